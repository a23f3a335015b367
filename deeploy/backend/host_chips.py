"""Run a project of several chips on this host: as threads of one program, or as MPI ranks.

Every chip reads its own inputs and writes its own outputs, inference after inference: chips work on different samples at a time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.backend import host, program
from deeploy.backend.host import Sanitizer
from deeploy.backend.host_model import ADVERSARIES, require_equal
from deeploy.errors import BuildError, UsageError

SECONDS = 600  # that a rank waits for a message before it takes the other chip for lost
_BROKEN = "Report this with the model; the emitted C is the compiler's duty."
_LOST = 71  # the status of a program one of whose chips lost another (kernels/chips/chip.h)


@dataclass(frozen=True)
class Ranks:
    """How MPI is to run: machines, by a file that mpirun reads, and seconds until a silent chip counts as lost."""

    hostfile: Path | None = None
    seconds: float = SECONDS
    count: int | None = None  # ranks, where mpirun is to begin others than there are chips


def build(project: Path, sanitize: Sanitizer | None = None, mpi: bool = False) -> Path:
    """Compile the libraries of all chips and the program that runs them; returns its path.

    Raises:
        BuildError: no C compiler, make or MPI, or the compiler rejects the sources.
    """
    for tool, package in (("make", "make"), (os.environ.get("CC", "gcc"), "gcc"), *([("mpicc", "libopenmpi-dev")] if mpi else [])):
        if shutil.which(tool) is None:
            raise BuildError(f"{tool} is not installed", f"Install it (on Debian: apt-get install {package}).")
    folder = f"build/{sanitize}" if sanitize else "build/host"
    options = [f"BUILD={folder}", f"CFLAGS={'-O1' if sanitize else '-O2'}", f"CC={os.environ.get('CC', 'gcc')}"]
    if sanitize:
        options.append("SANITIZE=thread" if sanitize == "thread" else "SANITIZE=1")
    command = ["make", "-s", "-j2", "-C", str(project), *options, "mpi" if mpi else "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace")
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise BuildError(f"the project in {project} does not compile:\n{tail}", _BROKEN)
    return project / folder / ("application-mpi" if mpi else "application")


def run(
    project: Path,
    manifest: Mapping[str, Any],
    samples: Sequence[Sequence[np.ndarray]],
    sanitize: bool = False,
    sequence: bool = False,
    ranks: Ranks | None = None,
    seconds: float = program.SECONDS,
) -> list[np.ndarray]:
    """Outputs of the model by position, stacked over samples.

    Threads on the host machine model also run the first sample twice in a row under every adversary, a sequence once.

    Raises:
        BuildError: a rule of the machine is broken, an output depends on what the machine does not promise, or a chip is lost.
    """
    application = build(project, "address" if sanitize else None, ranks is not None)
    is_managed = manifest["machine"] is not None
    options = _options(is_managed, sequence)
    outputs = execute(application, project, manifest, samples, options, ranks, seconds=seconds).outputs
    if not is_managed or ranks is not None:
        return outputs
    again, more = (samples, []) if sequence else (samples[:1], ["--repeat", "2"])
    for mode, seed in ADVERSARIES:
        got = execute(
            application, project, manifest, again, [*options, "--mode", mode, "--seed", str(seed), *more], seconds=seconds
        ).outputs
        require_equal(manifest, outputs, got, f"mode {mode}, seed {seed}")
    if sanitize:
        got = execute(build(project, "thread"), project, manifest, again, [*options, *more], seconds=seconds).outputs
        require_equal(manifest, outputs, got, "cores as threads")
    return outputs


def _options(is_managed: bool, sequence: bool) -> list[str]:
    """What the applications of the host model, and those of flat machines, want to be told of a sequence."""
    return (["--sequence", "1"] if is_managed else ["--sequence"]) if sequence else []


@dataclass(frozen=True)
class Executed:
    """Outputs of the model by position, stacked over samples, and the counters of every chip's last inference where asked for."""

    outputs: list[np.ndarray]
    counters: list[dict[str, Any]]


def execute(
    application: Path,
    project: Path,
    manifest: Mapping[str, Any],
    samples: Sequence[Sequence[np.ndarray]],
    options: Sequence[str] = (),
    ranks: Ranks | None = None,
    counters: bool = False,
    seconds: float = program.SECONDS,
) -> Executed:
    """One run of the program.

    Args:
        options: of every chip's application (see ``kernels/hal/host/main.c``).
        counters: whether the host model is to count what the chips move.
    """
    chips = manifest["chips"]
    with tempfile.TemporaryDirectory(dir=project if ranks is not None and ranks.hostfile is not None else None) as scratch:
        folder = Path(scratch).resolve()
        positions = {port["name"]: index for index, port in enumerate(manifest["inputs"])}
        for chip, entry in enumerate(chips):
            own = [[sample[positions[port["name"]]] for port in entry["inputs"]] for sample in samples]
            host.write_samples(folder / f"{chip}.in", entry, own)
            arguments = ["application", entry["name"], str(folder / f"{chip}.in"), str(folder / f"{chip}.out"), str(len(samples))]
            if entry["machine"] is not None and entry["machine"]["constants"] is not None:
                arguments += ["--constants", str((project / "chips" / str(chip) / entry["machine"]["constants"]).resolve())]
            if counters:
                arguments += ["--counters", str(folder / f"{chip}.json")]
            (folder / f"{chip}.args").write_text("\n".join([*arguments, *options]) + "\n", encoding="utf-8")
        _start(_command(application, folder, len(chips), ranks), seconds)
        outputs = []
        parts = [host.split((folder / f"{chip}.out").read_bytes(), entry["outputs"], len(samples)) for chip, entry in enumerate(chips)]
        for port in manifest["outputs"]:
            names = [own["name"] for own in chips[port["chip"]]["outputs"]]
            outputs.append(parts[port["chip"]][names.index(port["name"])])
        counted = [json.loads((folder / f"{chip}.json").read_text(encoding="utf-8")) for chip in range(len(chips))] if counters else []
        return Executed(outputs, counted)


def _command(application: Path, folder: Path, chips: int, ranks: Ranks | None) -> list[str]:
    started = str(application.resolve())
    if ranks is None:
        return [started, str(folder)]
    if shutil.which("mpirun") is None:
        raise BuildError("mpirun is not installed", "Install it (on Debian: apt-get install openmpi-bin libopenmpi-dev).")
    if ranks.hostfile is not None and not ranks.hostfile.is_file():
        raise UsageError(f"there is no hostfile {ranks.hostfile}", "Give a file with a machine per line, as mpirun reads it.")
    count = str(ranks.count or chips)
    command = ["mpirun", "--oversubscribe", "-n", count, *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    where = ["--host", f"localhost:{count}"] if ranks.hostfile is None else ["--hostfile", str(ranks.hostfile.resolve())]
    return [*command, *where, started, str(folder), f"{ranks.seconds:g}"]


def _start(command: Sequence[str], seconds: float) -> None:
    """Run the program.

    Raises:
        BuildError: it ended with a status; chips that were lost, and those that waited for them, are named.
    """
    done = program.run_program(command, seconds)
    if not done.returncode:
        return
    lines = [line for line in done.stderr.splitlines() if re.match(r"(chip \d+|host model:|  |the project has)", line)]
    killed = re.search(r"mpirun noticed that process rank (\d+).*exited on signal (\d+)", done.stderr, re.DOTALL)
    if killed is not None:
        lines.insert(0, f"chip {killed[1]} was lost (signal {killed[2]})")
    if any("mpirun began" in line for line in lines):
        raise UsageError(lines[0], "Begin as many ranks as the project has chips.")
    shown = "\n".join(dict.fromkeys(lines)) or "\n".join(done.stderr.strip().splitlines()[:12])
    is_lost = killed is not None or done.returncode == _LOST or any("waits to" in line for line in lines)
    raise BuildError(
        f"the chips stopped with status {done.returncode}:\n{shown}",
        "See why the chip that was lost ended; its peers only waited for it." if is_lost else _BROKEN,
    )
