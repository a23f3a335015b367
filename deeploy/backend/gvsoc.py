"""Run an emitted project on the GVSoC simulator: build it for the chip, feed it files, read cycles from what it prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.backend import host
from deeploy.backend.project import read_manifest
from deeploy.errors import BuildError, UsageError

SECONDS = 600.0  # wall time after which a simulation is taken to hang
_LAYER = re.compile(r"layer (\d+) (\d+) (\S+) (\d+)$")
_TOTAL = re.compile(r"total (\d+) (\d+)$")
_ERROR = re.compile(r"error: (.*)$")


@dataclass(frozen=True)
class Simulated:
    """Outputs by position, stacked over samples; cycles of each sample, and of each layer of the first one, by name."""

    outputs: list[np.ndarray]
    cycles: tuple[int, ...]
    layers: tuple[tuple[str, int], ...]


def launcher() -> str:
    """The simulator's launcher: what GVSOC names, else ``gvsoc`` on the path.

    Raises:
        BuildError: there is none.
    """
    named = os.environ.get("GVSOC")
    found = shutil.which(named or "gvsoc")
    if found is None:
        missing = f"GVSOC names {named}, which cannot be run" if named else "the simulator gvsoc is neither named by GVSOC nor on the path"
        raise BuildError(missing, "Build GVSoC (github.com/gvsoc/gvsoc) for the chip and set GVSOC to its install/bin/gvsoc.")
    return found


def run(
    project: Path,
    network: Mapping[str, Any],
    samples: Sequence[Sequence[np.ndarray]],
    on_line: Callable[[str], None] | None = None,
    seconds: float = SECONDS,
) -> Simulated:
    """Build the project for the chip and simulate one inference per sample.

    Raises:
        UsageError: the project is for a target that has no such simulator.
        BuildError: tools are missing, the program does not fit, or the simulation fails or hangs.
    """
    if not (project / "runtime" / "bare" / "bare.mk").is_file():
        raise UsageError(
            f"--on gvsoc: target {network['target']} does not run there", "Compile for a target of that simulator, or leave --on out."
        )
    gvsoc = launcher()
    folder = _build(project, network["name"])
    host.write_samples(folder / "inputs.bin", network, samples)
    if network["machine"]["constants"] is not None:
        shutil.copyfile(project / network["machine"]["constants"], folder / "weights.bin")
    (folder / "outputs.bin").unlink(missing_ok=True)
    elf = folder / "application.elf"
    command = [gvsoc, f"--target={network['target']}", f"--work-dir={folder}", f"--binary={elf}", "image", "flash", "run"]
    lines = _simulate(command, folder, on_line, seconds)
    layers = tuple((m[3], int(m[4])) for m in map(_LAYER.search, lines) if m and m[1] == "0")
    cycles = tuple(int(m[2]) for m in map(_TOTAL.search, lines) if m)
    return Simulated(host.split((folder / "outputs.bin").read_bytes(), network["outputs"], len(samples)), cycles, layers)


def _build(project: Path, name: str) -> Path:
    """The folder of the application that runs one network of the project."""
    for tool, package in (("make", "make"), ("riscv64-unknown-elf-gcc", "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf")):
        if shutil.which(tool) is None:
            raise BuildError(f"{tool} is not installed", f"Install it (on Debian: apt-get install {package}).")
    manifest = read_manifest(project)
    names = [entry["name"] for entry in manifest.get("networks") or [manifest]]
    folder = "build/bare" if len(names) == 1 else f"build/bare/{name}"
    defines = f"DEFINES=-DDEEPLOY_PROFILE -DNETWORK={names.index(name)}"
    command = ["make", "-s", "-j2", "-C", str(project), "PLATFORM=bare", f"BUILD={folder}", defines, "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise BuildError(
            f"the project in {project} does not build for the chip:\n{tail}", "A program that is too large says which memory overflows."
        )
    return (project / folder).resolve()


def _simulate(command: Sequence[str], folder: Path, on_line: Callable[[str], None] | None, seconds: float) -> list[str]:
    """The lines that the program printed."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        process.kill()

    alarm = threading.Timer(seconds, stop)
    alarm.start()
    lines = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            if on_line is not None:
                on_line(lines[-1])
        status = process.wait()
    finally:  # whoever interrupts is not kept waiting, and nothing stays behind
        alarm.cancel()
        process.kill()
    if is_late.is_set():
        raise BuildError(f"the simulation did not end within {seconds:g} seconds", "Give it more with --time-limit, or fewer samples.")
    if status:
        errors = [m[1] for m in map(_ERROR.search, lines) if m]
        what = errors[0] if errors else "\n".join(lines[-12:])
        raise BuildError(
            f"the program failed on the simulator with status {status}: {what}", "Run it on the host first: deeploy run without --on."
        )
    return lines
