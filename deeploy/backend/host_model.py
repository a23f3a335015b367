"""Run an emitted project on the host machine model: once for its outputs, then again and again under an adversary.

Transfers land as early or as late as they may or in pieces in between, memory that nobody has written holds another nonsense with
every seed, and cores take turns in another order. A plan is right when no output notices.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.backend import host
from deeploy.backend.program import SECONDS, run_program
from deeploy.errors import BuildError

ADVERSARIES = tuple((mode, seed) for mode in ("early", "late", "random") for seed in (1, 2))


def run(
    project: Path,
    network: Mapping[str, Any],
    samples: Sequence[Sequence[np.ndarray]],
    sanitize: bool = False,
    sequence: bool = False,
    seconds: float = SECONDS,
) -> list[np.ndarray]:
    """Outputs by position, stacked over samples; the first sample runs twice in a row under every adversary, a sequence once.

    Raises:
        BuildError: a rule of the machine is broken, or an output depends on what the machine does not promise.
    """
    application = host.build(project, "address" if sanitize else None)
    options = ("--sequence", "1") if sequence else ("--repeat", "2")
    again_samples = samples if sequence else samples[:1]
    outputs = execute(application, project, network, samples, *options[: 2 * sequence], seconds=seconds)
    for mode, seed in ADVERSARIES:
        again = execute(application, project, network, again_samples, "--mode", mode, "--seed", str(seed), *options, seconds=seconds)
        require_equal(network, outputs, again, f"mode {mode}, seed {seed}")
    if sanitize:
        again = execute(host.build(project, "thread"), project, network, again_samples, *options, seconds=seconds)
        require_equal(network, outputs, again, "cores as threads")
    return outputs


def execute(
    application: Path,
    project: Path,
    network: Mapping[str, Any],
    samples: Sequence[Sequence[np.ndarray]],
    *options: str,
    seconds: float = SECONDS,
) -> list[np.ndarray]:
    """One run of the application with its options (see ``runtime/host/main.c``)."""
    with tempfile.TemporaryDirectory() as scratch:
        source, sink = Path(scratch) / "inputs.bin", Path(scratch) / "outputs.bin"
        host.write_samples(source, network, samples)
        command = [str(application.resolve()), network["name"], str(source), str(sink), str(len(samples)), *options]
        if network["machine"]["constants"] is not None:
            command += ["--constants", str(project / network["machine"]["constants"])]
        done = run_program(command, seconds)
        if done.returncode:
            raise host.failure(done)
        return host.split(sink.read_bytes(), network["outputs"], len(samples))


def snapshots(
    project: Path, network: Mapping[str, Any], levels: Sequence[str], sample: Sequence[np.ndarray]
) -> list[dict[str, np.ndarray]]:
    """Memory at the end of every step: bytes by level, and ``outputs``."""
    application = host.build(project)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "snapshots"
        execute(application, project, network, [sample], "--snapshot", str(path))
        data = path.read_bytes()
    count = int(np.frombuffer(data, np.uint32, 1)[0])
    sizes = np.frombuffer(data, np.uint32, count + 1, 4).tolist()
    names = [*levels, "outputs"]
    position = 4 * (count + 2)
    result = []
    while position < len(data):
        step = int(np.frombuffer(data, np.int32, 1, position)[0])
        position += 4
        record = {}
        for name, size in zip(names, sizes, strict=True):
            record[name] = np.frombuffer(data, np.uint8, size, position)
            position += size
        if 0 <= step < len(network["calls"]):
            result.append(record)
    return result


def require_equal(network: Mapping[str, Any], first: Sequence[np.ndarray], again: Sequence[np.ndarray], how: str) -> None:
    for port, a, b in zip(network["outputs"], first, again, strict=True):
        if a[: len(b)].tobytes() != b.tobytes():
            raise BuildError(
                f"output {port['name']} changes with what the machine does not promise ({how})",
                "Report this with the model; the emitted C is the compiler's duty.",
            )
