"""Run an emitted project on the GVSoC simulator: build it for the chip, feed it files, read cycles from what it prints."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.backend import host
from deeploy.backend.project import read_manifest
from deeploy.errors import BuildError, DeeployError, FitError, UsageError, shorten
from deeploy.graph.types import DType

SECONDS = 600.0  # wall time after which a simulation is taken to hang
_LAYER = re.compile(r"layer (\d+) (\d+) (\S+) (\d+)$")
_TOTAL = re.compile(r"total (\d+) (\d+)$")
_ERROR = re.compile(r"^error: (.*)$")
_TOO_LARGE = re.compile(r"error: (.* larger than .*|.* leaves no room .*)$|(region .* overflowed .*)$")
_OF_SIZE = re.compile(r"larger than|do not fit|no room|is full")
_BROKEN = re.compile(r"error|undefined reference|No rule|not found")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FIT = "Leave more of the memory to the program with smaller --l1 or --l2, or keep constants far away with --default-memory."
_WANTED = re.compile(r"^GVSOC_REVISION\s*:?=\s*(\w+)", re.MULTILINE)
REVISION = "Use the revision and the packages of the simulator that docs/targets.md names, and a launcher that starts by itself."


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


def _check_compiler() -> None:
    for tool, package in (("make", "make"), ("riscv64-unknown-elf-gcc", "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf")):
        if shutil.which(tool) is None:
            raise BuildError(f"{tool} is not installed", f"Install it (on Debian: apt-get install {package}).")


def check_tools() -> str:
    """The simulator's launcher, where the compiler is there as well.

    Raises:
        BuildError: one of them is missing.
    """
    found = launcher()
    _check_compiler()
    return found


def run(
    project: Path,
    network: Mapping[str, Any],
    samples: Sequence[Sequence[np.ndarray]],
    on_line: Callable[[str], None] | None = None,
    seconds: float = SECONDS,
    has_layers: bool = True,
) -> Simulated:
    """Build the project for the chip and simulate one inference per sample.

    To measure layers takes some hundred cycles of each, since it needs room in the instruction caches; without ``has_layers`` only
    whole inferences are measured, as they are.

    Raises:
        UsageError: the project is for a target that has no such simulator.
        BuildError: tools are missing, the simulator is of another revision, or the simulation fails or hangs.
        FitError: the program with its arenas and arrays is larger than the chip's memory.
    """
    if not (project / "runtime" / "bare" / "bare.mk").is_file():
        raise UsageError(
            f"--on gvsoc: target {network['target']} does not run there", "Compile for a target of that simulator, or leave --on out."
        )
    gvsoc = check_tools()
    check_revision(gvsoc, project / "runtime" / "bare" / "bare.mk")
    folder = build(project, network["name"], has_layers)
    host.write_samples(folder / "inputs.bin", network, samples)
    if network["machine"]["constants"] is not None:
        shutil.copyfile(project / network["machine"]["constants"], folder / "weights.bin")
    (folder / "outputs.bin").unlink(missing_ok=True)
    lines = _simulate(command(gvsoc, network["target"], folder), folder, on_line, seconds)
    return simulated(lines, folder, network, len(samples))


def command(simulator: str, target: str, folder: Path) -> list[str]:
    """What runs ``application.elf`` of a folder, in this folder."""
    elf = folder / "application.elf"
    return [simulator, f"--target={target}", f"--work-dir={folder}", f"--binary={elf}", "image", "flash", "run"]


def simulated(lines: Sequence[str], folder: Path, network: Mapping[str, Any], samples: int) -> Simulated:
    """What came of a simulation that printed so."""
    layers = tuple((m[3], int(m[4])) for m in map(_LAYER.search, lines) if m and m[1] == "0")
    cycles = tuple(int(m[2]) for m in map(_TOTAL.search, lines) if m)
    return Simulated(_outputs(folder / "outputs.bin", network, samples), cycles, layers)


def revision(simulator: str) -> str | None:
    """The revision of the simulator's sources, where they lie around its installation or GVSOC_SOURCES names them, else None."""
    named = os.environ.get("GVSOC_SOURCES")
    around = Path(simulator).resolve().parents[:4]
    for folder in [Path(named)] if named else [path for parent in around for path in (parent / "src", parent)]:
        if (folder / ".git").exists():
            command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
            with contextlib.suppress(OSError):
                done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace")
                return done.stdout.strip() or None
    return None


def check_revision(simulator: str, makefile: Path) -> None:
    """Raise where the simulator is known to be of another revision than the one that the project's runtime was written for."""
    wanted = _WANTED.search(makefile.read_text(encoding="utf-8"))
    found = revision(simulator) if wanted and os.environ.get("GVSOC_REVISION") != "any" else None
    if wanted and found and not found.startswith(wanted[1]):
        raise BuildError(
            f"the simulator {simulator} is of revision {found[:8]}, the project was written for {wanted[1]}",
            f"Build GVSoC at revision {wanted[1]}, or set GVSOC_REVISION=any to see what another one does.",
        )


def _outputs(file: Path, network: Mapping[str, Any], samples: int) -> list[np.ndarray]:
    data = file.read_bytes() if file.is_file() else b""
    size = sum(math.prod(port["shape"]) * DType(port["type"]).bytes for port in network["outputs"])
    if len(data) != size * samples:
        raise BuildError(f"the simulation left {len(data)} bytes of outputs instead of {size * samples}", REVISION)
    return host.split(data, network["outputs"], samples)


def build(project: Path, name: str, has_layers: bool = True) -> Path:
    """Build one network of the project for the chip; returns the folder with ``application.elf``.

    Raises:
        BuildError: tools are missing, or the sources are rejected.
        FitError: the program is larger than the chip's memory.
    """
    _check_compiler()
    manifest = read_manifest(project)
    names = [entry["name"] for entry in manifest.get("networks") or [manifest]]
    kind = "build/bare" if has_layers else "build/whole"
    folder = kind if len(names) == 1 else f"{kind}/{name}"
    defines = f"DEFINES={'-DDEEPLOY_PROFILE ' if has_layers else ''}-DNETWORK={names.index(name)}"
    make(project, ["PLATFORM=bare", f"BUILD={folder}", defines])
    return (project / folder).resolve()


def make(project: Path, options: Sequence[str]) -> None:
    """Run make for the chip.

    Raises:
        BuildError: the sources are rejected.
        FitError: the program is larger than the chip's memory.
    """
    command = ["make", "-s", "-j2", "-C", str(project), f"PYTHON={sys.executable}", *options, "all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", errors="replace")
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        too_large = next((m[1] or m[2] for line in lines if (m := _TOO_LARGE.search(line))), None)
        if too_large is not None:
            what, _, remedy = too_large.partition("; ")
            raise FitError(f"the program for the chip does not fit: {what}", remedy[:1].upper() + remedy[1:] or FIT)
        first = next((line for line in lines if _BROKEN.search(line)), lines[-1] if lines else "make says nothing")
        raise BuildError(
            f"the project in {project} does not build for the chip: {shorten(first, 300)}", f"See all of it: {' '.join(command)}"
        )


def _simulate(command: Sequence[str], folder: Path, on_line: Callable[[str], None] | None, seconds: float) -> list[str]:
    """The lines that the program printed."""
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise BuildError(f"the simulator {command[0]} cannot be run: {error.strerror}", REVISION) from error
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the launcher starts the simulator as a process of its own

    alarm = threading.Timer(seconds, stop)
    alarm.start()
    lines = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append(plain(line))
            if on_line is not None:
                on_line(lines[-1])
        status = process.wait()
    finally:  # whoever interrupts is not kept waiting, and nothing stays behind
        alarm.cancel()
        if process.poll() is None:
            stop()
    if is_late.is_set():
        raise BuildError(f"the simulation did not end within {seconds:g} seconds", "Give it more with --time-limit, or fewer samples.")
    if status:
        raise failure(command[0], status, lines)
    return lines


def plain(line: str) -> str:
    """A printed line without colours."""
    return _COLOUR.sub("", line.rstrip())


def failure(simulator: str, status: int, lines: Sequence[str]) -> DeeployError:
    """Why a simulation failed, from what was printed: the program says ``error:``, the rest is the simulator."""
    said = next((m[1] for m in map(_ERROR.search, lines) if m), None)
    if said is not None and _OF_SIZE.search(said):
        return FitError(f"the program does not fit the chip: {said}", FIT)
    if said is not None:
        return BuildError(f"the program failed on the simulator: {said}", "Run it on the host first: deeploy run without --on.")
    if any("Invalid target" in line for line in lines):
        return BuildError(f"the simulator {simulator} does not know this chip", REVISION)
    last = next((line for line in reversed(lines) if line.strip() and not line.startswith("Input error: Platform")), "it printed nothing")
    if status < 0:
        return BuildError(f"the simulator crashed with {signal.Signals(-status).name}: {shorten(last, 300)}", REVISION)
    return BuildError(f"the simulator failed with status {status}: {shorten(last, 300)}", REVISION)
