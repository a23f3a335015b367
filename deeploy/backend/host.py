"""Build an emitted project with the machine's own compiler, and run it."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from deeploy.backend.program import SECONDS, run_program
from deeploy.errors import BuildError, UsageError
from deeploy.graph.types import DType

_TAIL = 12  # lines of a failed build that are shown

Sanitizer = Literal["address", "thread"]


@dataclass(frozen=True)
class Result:
    """Outputs by position, each stacked over the samples; ``nanoseconds`` is the median of one inference, if measured."""

    outputs: list[np.ndarray]
    nanoseconds: float | None = None


def build(project: Path, sanitize: Sanitizer | None = None, flags: str | None = None) -> Path:
    """Compile the project's application with make and return its path.

    Args:
        sanitize: ``address`` adds the address and undefined-behaviour sanitizers, ``thread`` runs cores as threads under
            the thread sanitizer.

    Raises:
        BuildError: no C compiler or make, or the compiler rejects the sources.
    """
    for tool, package in (("make", "make"), (os.environ.get("CC", "gcc"), "gcc")):
        if shutil.which(tool) is None:
            raise BuildError(f"{tool} is not installed", f"Install it (on Debian: apt-get install {package}), or name a C compiler in CC.")
    folder = f"build/{sanitize}" if sanitize else "build/host" if flags is None else "build/flags"
    cflags = flags if flags is not None else "-O1" if sanitize else "-O2"
    command = ["make", "-s", "-j2", "-C", str(project), f"BUILD={folder}", f"CFLAGS={cflags}", f"CC={os.environ.get('CC', 'gcc')}"]
    if sanitize:
        command.append("SANITIZE=thread" if sanitize == "thread" else "SANITIZE=1")
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace")
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-_TAIL:])
        raise BuildError(
            f"the project in {project} does not compile:\n{tail}", "Report this with the model; the emitted C is the compiler's duty."
        )
    return project / folder / "application"


def run(
    project: Path,
    network: Mapping[str, Any],
    samples: Sequence[Sequence[np.ndarray]],
    sanitize: bool = False,
    flags: str | None = None,
    repeat: int = 0,
    sequence: bool = False,
    seconds: float = SECONDS,
) -> Result:
    """Build the project and run one of its networks on every sample.

    Args:
        network: the network's entry in ``deploy.json``.
        samples: per sample one array per input, in the order of the graph.
        repeat: when positive, time that many inferences of the first sample.
        sequence: the samples are steps of one sequence; states outlive them.
        seconds: after which the program is taken for hanging.
    """
    application = build(project, "address" if sanitize else None, flags)
    with tempfile.TemporaryDirectory() as scratch:
        source, sink = Path(scratch) / "inputs.bin", Path(scratch) / "outputs.bin"
        write_samples(source, network, samples)
        command = [
            str(application.resolve()),
            network["name"],
            str(source),
            str(sink),
            str(len(samples)),
            str(repeat),
            *["--sequence"] * sequence,
        ]
        done = run_program(command, seconds)
        if done.returncode:
            raise failure(done)
        data = sink.read_bytes()
    outputs = split(data, network["outputs"], len(samples))
    return Result(outputs, float(done.stdout) if repeat else None)


def write_samples(path: Path, network: Mapping[str, Any], samples: Sequence[Sequence[np.ndarray]]) -> None:
    """Write all inputs of all samples one after the other, as applications read them."""
    types = [DType(port["type"]) for port in network["inputs"]]
    with path.open("wb") as file:
        for sample in samples:
            for array, dtype in zip(sample, types, strict=True):
                file.write(np.ascontiguousarray(array, dtype.numpy).tobytes())


def failure(done: subprocess.CompletedProcess[str]) -> BuildError:
    """The error for an application that ended with a status."""
    tail = "\n".join(done.stderr.strip().splitlines()[:_TAIL])
    return BuildError(
        f"the program failed with status {done.returncode}:\n{tail}", "Report this with the model; the emitted C is the compiler's duty."
    )


def split(data: bytes, ports: Sequence[Mapping[str, Any]], samples: int) -> list[np.ndarray]:
    """Undo the concatenation of all outputs of all samples."""
    wanted = samples * sum(math.prod(port["shape"]) * DType(port["type"]).bytes for port in ports)
    if len(data) != wanted:
        raise UsageError(f"the program wrote {len(data)} bytes of outputs, and deploy.json says {wanted}", "Compile the project again.")
    parts: list[list[np.ndarray]] = [[] for _ in ports]
    position = 0
    for _ in range(samples):
        for index, port in enumerate(ports):
            dtype = DType(port["type"]).numpy
            count = int(np.prod(port["shape"], dtype=np.int64))
            parts[index].append(np.frombuffer(data, dtype, count, position).reshape(port["shape"]))
            position += count * dtype.itemsize
    return [np.stack(part) if part else np.zeros((0, *port["shape"])) for part, port in zip(parts, ports, strict=True)]


def select_network(manifest: Mapping[str, Any], name: str | None = None) -> Mapping[str, Any]:
    """The entry of one network in ``deploy.json``, or of ``chipK``; without a name, the only one, or that of all chips.

    The entry of a chip has the name of the first one with the same code, under which explanations are kept.
    """
    if "chips" in manifest and name is not None:
        chips = {f"chip{k}": {**entry, "name": f"chip{manifest['code'][k]}"} for k, entry in enumerate(manifest["chips"])}
        if name not in chips:
            raise UsageError(
                f"the project holds the chips chip0 to chip{len(chips) - 1}; {name} was named", "Name one of them with --network."
            )
        return chips[name]
    entries: list[Mapping[str, Any]] = manifest.get("networks") or [manifest]
    found = [entry for entry in entries if name in (None, entry["name"])]
    if len(found) != 1:
        known = ", ".join(str(entry["name"]) for entry in entries)
        raise UsageError(f"the project holds the networks {known}; {name or 'none'} was named", "Name one of them with --network.")
    return found[0]
