"""Runs on the GVSoC simulator: a project is built for the chip, fed files, and its cycles are read from what it prints.

Of several chips, each has a simulator of its own, and pipes of this machine are the links between them. That shows that the programs of
the chips work together, and nothing of their time: messages take what the controller needs to hand them over, and simulators know
nothing of each other's clocks.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deeploy.backend.project import read_manifest
from deeploy.documents import Document
from deeploy.errors import BuildError, DeeployError, FitError, UsageError, shorten
from deeploy.execution.runners.processes import MORE_TIME, require, run_make, run_together
from deeploy.execution.runners.runner import (
    ChipPart,
    Result,
    Samples,
    gather_outputs,
    output_bytes,
    project_parts,
    split_outputs,
    write_samples,
)

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
_CHIP = re.compile(r"^GVSOC_TARGET\s*:?=\s*([\w-]+)", re.MULTILINE)
REVISION = "Use the revision and the packages of the simulator that docs/siracusa.md names, and a launcher that starts by itself."


def find_launcher() -> str:
    """The simulator's launcher: what GVSOC names, else ``gvsoc`` on the path.

    Raises:
        BuildError: there is none.
    """
    named = os.environ.get("GVSOC")
    path = shutil.which(named or "gvsoc")
    if path is None:
        missing = f"GVSOC names {named}, which cannot be run" if named else "the simulator gvsoc is neither named by GVSOC nor on the path"
        raise BuildError(missing, "Build GVSoC (github.com/gvsoc/gvsoc) for the chip and set GVSOC to its install/bin/gvsoc.")
    return path


def _check_compiler() -> None:
    require(("make", "make"), ("riscv64-unknown-elf-gcc", "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf"))


def check_tools() -> str:
    """The simulator's launcher, where the compiler is there as well.

    Raises:
        BuildError: one of them is missing.
    """
    program_path = find_launcher()
    _check_compiler()
    return program_path


@dataclass(frozen=True)
class ProgramKind:
    """What a program does beside the inference: its folder in a project, and the macros that it is built with."""

    folder: str
    defines: str


WHOLE = ProgramKind("build/whole", "")
PROFILED = ProgramKind("build/bare", "-DDEEPLOY_PROFILE")
SNAPSHOTS = ProgramKind("build/snapshots", "-DRT_CHECKED")


@dataclass(frozen=True)
class Gvsoc:
    """Runs on the simulator.

    Attributes:
        seconds: of wall time, after which a simulation is taken to hang.
        on_line: called with every line that a simulation prints.
        has_layers: whether layers are measured, which takes some hundred cycles of each, since it needs room in the instruction
            caches; without it only whole inferences are measured, as they are.
    """

    seconds: float = SECONDS
    on_line: Callable[[str], None] | None = None
    has_layers: bool = True

    def check(self, project: Path, entry: Document) -> None:
        """Raise UsageError for a target without such a simulator, BuildError without the tools or with another revision of them."""
        if "chips" in entry and not (project / "chips" / "0" / "chip.mk").is_file():
            raise UsageError(f"--on gvsoc: several chips of target {entry['target']} do not run there", "Leave --on out, or say --on mpi.")
        if not (project / "runtime" / "bare" / "bare.mk").is_file():
            raise UsageError(
                f"--on gvsoc: target {entry['target']} does not run there", "Compile for a target of that simulator, or leave --on out."
            )
        check_revision(check_tools(), project / "runtime" / "bare" / "program.mk")

    def build(self, project: Path, entry: Document, sequence: bool = False) -> Sequence[Path]:
        """The folder of every chip, with its ``application.elf``."""
        if "chips" not in entry:
            return [build_network(project, entry["name"], PROFILED if self.has_layers else WHOLE)]
        folders = []
        for chip in range(len(entry["chips"])):
            _run_make(project, ["-f", f"chips/{chip}/chip.mk", f"BUILD=build/bare/{chip}", "DEFINES="])
            folders.append((project / "build" / "bare" / str(chip)).resolve())
        return folders

    def run(self, project: Path, entry: Document, samples: Samples, sequence: bool = False) -> Result:
        """Simulate one inference per sample, the steps of a sequence where the network has states; cycles are those of single chips.

        Raises:
            DeeployError: see ``check`` and ``build``; or a simulation fails or hangs. Of several chips, one is named.
        """
        self.check(project, entry)
        simulator, folders, own = find_launcher(), self.build(project, entry), project_parts(project, entry, samples)
        for part, folder in zip(own, folders, strict=True):
            _write_inputs(part, folder)
        for message in entry.get("messages", []):
            pipe = folders[0].parent / f"link_{message['from']}_{message['to']}"
            if not pipe.exists():
                os.mkfifo(pipe)
        printed = self._simulate(simulator, chip_name(project / "runtime" / "bare"), entry, folders)
        outputs = []
        for part, folder in zip(own, folders, strict=True):
            data = (folder / "outputs.bin").read_bytes() if (folder / "outputs.bin").is_file() else b""
            wanted = output_bytes(part.entry["outputs"], len(samples))
            if len(data) != wanted:
                raise BuildError(f"the simulation left {len(data)} bytes of outputs instead of {wanted}", REVISION)
            outputs.append(split_outputs(data, part.entry["outputs"], len(samples)))
        if "chips" in entry:
            return Result(gather_outputs(entry, outputs))
        layers = tuple((m[3], int(m[4])) for m in map(_LAYER.search, printed[0]) if m and m[1] == "0")
        return Result(gather_outputs(entry, outputs), tuple(int(m[2]) for m in map(_TOTAL.search, printed[0]) if m), layers)

    def snapshots(self, project: Path, entry: Document, sample: Sequence[np.ndarray]) -> bytes:
        """Every memory and the outputs at the end of every step, as the host model writes them (``snapshots.h``)."""
        self.check(project, entry)
        folder = build_network(project, entry["name"], SNAPSHOTS)
        (part,) = project_parts(project, entry, [sample])
        _write_inputs(part, folder)
        self._simulate(find_launcher(), chip_name(project / "runtime" / "bare"), entry, [folder])
        if not (folder / "snapshots.bin").is_file():
            raise BuildError("the simulation left no snapshots of memory", REVISION)
        return (folder / "snapshots.bin").read_bytes()

    def _simulate(self, simulator: str, name: str, entry: Document, folders: Sequence[Path]) -> list[list[str]]:
        """The lines that the program of every chip printed."""
        commands = [_simulator_command(simulator, name, folder) for folder in folders]
        tell = self.on_line
        try:
            output_lines = run_together(commands, self.seconds, folders, None if tell is None else lambda line: tell(_COLOUR.sub("", line)))
        except OSError as error:
            raise BuildError(f"the simulator {simulator} cannot be run: {error.strerror}", REVISION) from error
        lines = [[_COLOUR.sub("", line) for line in ended.stdout.splitlines()] for ended in output_lines]
        failed = {chip: explain_failure(simulator, end.returncode, lines[chip]) for chip, end in enumerate(output_lines) if end.returncode}
        if failed:  # the first whose failure is not that its peer is gone, else the first
            chip, cause = next(((c, e) for c, e in failed.items() if "is gone" not in e.what), next(iter(failed.items())))
            raise type(cause)(f"chip {chip}: {cause.what}", cause.remedy) if "chips" in entry else cause
        late = [str(chip) for chip, end in enumerate(output_lines) if end.returncode is None]
        if late:
            which = f" of chips {', '.join(late)}" if "chips" in entry else ""
            raise BuildError(f"the simulation{which} did not end within {self.seconds:g} seconds", MORE_TIME)
        return lines


def chip_name(folder: Path) -> str:
    """What the simulator calls the chip whose part of the runtime is in ``folder``.

    Raises:
        BuildError: the folder does not say.
    """
    file = folder / "soc.mk"
    named = _CHIP.search(file.read_text(encoding="utf-8")) if file.is_file() else None
    if named is None:
        said = f"{shorten(str(file), 160)} does not set GVSOC_TARGET, the chip's name in the simulator"
        raise BuildError(said, "Compile the project again.")
    return named[1]


def _simulator_command(simulator: str, name: str, folder: Path) -> list[str]:
    """What runs ``application.elf`` of a folder, in this folder."""
    elf = folder / "application.elf"
    return [simulator, f"--target={name}", f"--work-dir={folder}", f"--binary={elf}", "image", "flash", "run"]


def _write_inputs(part: ChipPart, folder: Path) -> None:
    """Put what a program reads into its folder: without inputs, a byte for every sample."""
    if part.entry["inputs"]:
        write_samples(folder / "inputs.bin", part.entry, part.samples)
    else:
        (folder / "inputs.bin").write_bytes(bytes(len(part.samples)))
    if part.constants is not None:
        shutil.copyfile(part.constants, folder / "weights.bin")
    for name in ("outputs.bin", "snapshots.bin"):
        (folder / name).unlink(missing_ok=True)


def simulator_revision(simulator: str) -> str | None:
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
    actual_revision = simulator_revision(simulator) if wanted and os.environ.get("GVSOC_REVISION") != "any" else None
    if wanted and actual_revision and not actual_revision.startswith(wanted[1]):
        raise BuildError(
            f"the simulator {simulator} is of revision {actual_revision[:8]}, the project was written for {wanted[1]}",
            f"Build GVSoC at revision {wanted[1]}, or set GVSOC_REVISION=any to see what another one does.",
        )


def build_network(project: Path, name: str, kind: ProgramKind = PROFILED) -> Path:
    """Build one network of the project for the chip, in a folder of its kind; returns the folder with ``application.elf``.

    Raises:
        BuildError: tools are missing, or the sources are rejected.
        FitError: the program is larger than the chip's memory.
    """
    _check_compiler()
    manifest = read_manifest(project)
    names = [entry["name"] for entry in manifest.get("networks") or [manifest]]
    folder = kind.folder if len(names) == 1 else f"{kind.folder}/{name}"
    defines = f"DEFINES={kind.defines} -DNETWORK={names.index(name)}"
    _run_make(project, ["PLATFORM=bare", f"BUILD={folder}", defines])
    return (project / folder).resolve()


def _run_make(project: Path, options: Sequence[str]) -> None:
    """Run make for the chip.

    Raises:
        BuildError: the sources are rejected.
        FitError: the program is larger than the chip's memory.
    """

    def refused(text: str, command: Sequence[str]) -> DeeployError:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        too_large = next((m[1] or m[2] for line in lines if (m := _TOO_LARGE.search(line))), None)
        if too_large is not None:
            what, _, remedy = too_large.partition("; ")
            return FitError(f"the program for the chip does not fit: {what}", remedy[:1].upper() + remedy[1:] or FIT)
        first = next((line for line in lines if _BROKEN.search(line)), lines[-1] if lines else "make says nothing")
        what = f"the project in {project} does not build for the chip: {shorten(first, 300)}"
        return BuildError(what, f"See all of it: {' '.join(command)}")

    run_make(project, [f"PYTHON={sys.executable}", *options, "all"], refused)


def explain_failure(simulator: str, status: int, lines: Sequence[str]) -> DeeployError:
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
