"""Runs under QEMU: a project is built for the board with its own Makefile, fed files, and its outputs are read.

A target whose projects have ``runtime/qemu/qemu.mk`` (``kernels/semihosting`` brings it) and set its variables in their Makefile can
do this: ``make qemu`` builds the program and ``make run-qemu`` runs it, reading ``inputs.bin`` and writing ``outputs.bin``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deeploy.backend.project import read_manifest
from deeploy.documents import Document
from deeploy.errors import BuildError, DeeployError, FitError, UsageError, shorten
from deeploy.execution.runners.processes import MORE_TIME, require, run_make, run_together
from deeploy.execution.runners.runner import Result, Samples, output_bytes, self_test_macro, split_outputs, write_samples

PROFILED = "-DDEEPLOY_PROFILE"  # for programs that write what memory holds after every layer,
CHECKED = "-DRT_CHECKED"  # where there are several memories
SECONDS = 600.0  # wall time after which a run is taken to hang
OVERFLOW = re.compile(r"(region .* overflowed.*)$", re.MULTILINE)
_TOOL = re.compile(r"^(QEMU_CC|QEMU_LINK|QEMU_RUN) *:?= *([\w.+-]+)", re.MULTILINE)
_PACKAGES = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "clang": "clang",
    "qemu-system-arm": "qemu-system-arm",
    "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
    "qemu-system-riscv32": "qemu-system-misc",
}
FIT = "Leave more of the memory to inputs and outputs with a smaller arena (--memory), or use a network that needs less."


def compiler_of(makefile: str) -> str:
    """The cross compiler that a Makefile names."""
    return tools_of(makefile)["QEMU_CC"]


def tools_of(makefile: str) -> Mapping[str, str]:
    """The compiler, the linker where that is another one, and the emulator that a Makefile names, by its variables."""
    return {str(name): str(tool) for name, tool in _TOOL.findall(makefile)}


def require_tools(tools: Sequence[str]) -> None:
    """Raise BuildError unless make and these tools are installed."""
    require(*((tool, _PACKAGES.get(tool, tool)) for tool in dict.fromkeys(("make", *tools))))


@dataclass(frozen=True)
class Qemu:
    """Runs under the emulator; a run of more than ``seconds`` of wall time is taken to hang."""

    seconds: float = SECONDS

    def check(self, project: Path, entry: Document) -> None:
        """Raise UsageError for several chips or a target that does not run there, BuildError without the tools."""
        if "chips" in entry:
            raise UsageError("--on qemu: several chips do not run there", "Run them on the host, with --on mpi or with --on gvsoc.")
        if not (project / "runtime" / "qemu" / "qemu.mk").is_file():
            what = f"--on qemu: target {entry['target']} does not run there"
            raise UsageError(what, "Compile for a target that does, or leave --on out.")
        require_tools(list(tools_of((project / "Makefile").read_text(encoding="utf-8")).values()))

    def build(self, project: Path, entry: Document, sequence: bool = False, defines: str = "") -> Sequence[Path]:
        """Builds the program for the emulator; returns the folder with it."""
        folder, options = self._options(project, entry, sequence, defines)

        def failure(text: str, command: Sequence[str]) -> DeeployError:
            overflow = OVERFLOW.search(text)
            if overflow is not None:
                return FitError(f"the program for the board does not fit: {overflow[1]}", FIT)
            otherwise = text.strip() or "make says nothing"
            first = next((line for line in text.splitlines() if "error" in line or "undefined" in line), otherwise)
            what = f"the project in {project} does not build for the board: {shorten(first, 300)}"
            return BuildError(what, f"See all of it: {' '.join(command)}")

        run_make(project, [*options, "qemu"], failure)
        return [folder]

    def run(self, project: Path, entry: Document, samples: Samples, sequence: bool = False) -> Result:
        """One inference per sample.

        Raises:
            DeeployError: see ``check`` and ``build``; or the program fails or hangs.
        """
        work = self._run(project, entry, samples, sequence)
        data = (work / "outputs.bin").read_bytes() if (work / "outputs.bin").is_file() else b""
        wanted = output_bytes(entry["outputs"], len(samples))
        if len(data) != wanted:
            raise BuildError(f"the program left {len(data)} bytes of outputs instead of {wanted}", "Report this with the model.")
        return Result(split_outputs(data, entry["outputs"], len(samples)))

    def snapshots(self, project: Path, entry: Document, sample: Sequence[np.ndarray]) -> bytes:
        """The results of each layer as the emulated program leaves them (``Snapshots``)."""
        defines = PROFILED if entry["machine"] is None else CHECKED
        return (self._run(project, entry, [sample], False, defines) / "snapshots.bin").read_bytes()

    def self_test(self, project: Path, entry: Document) -> str:
        """What the project's self-test prints under the emulator (``SelfTests``)."""
        self.check(project, entry)
        self.build(project, entry, False, self_test_macro(entry))
        return self._execute(project, entry, False, self_test_macro(entry))

    def _run(self, project: Path, entry: Document, samples: Samples, sequence: bool, defines: str = "") -> Path:
        """Build the program and let it work on samples; the folder with what it wrote."""
        self.check(project, entry)
        (work,) = self.build(project, entry, sequence, defines)
        write_samples(work / "inputs.bin", entry, samples)
        for name in ("outputs.bin", "snapshots.bin"):
            (work / name).unlink(missing_ok=True)
        self._execute(project, entry, sequence, defines)
        return work

    def _execute(self, project: Path, entry: Document, sequence: bool, defines: str) -> str:
        """Run the program that was built; what it prints."""
        _, options = self._options(project, entry, sequence, defines)
        (done,) = run_together([["make", "-s", "-C", str(project), *options, "run-qemu"]], self.seconds)
        if done.returncode is None:
            raise BuildError(f"the run did not end within {self.seconds:g} seconds", MORE_TIME)
        if done.returncode:
            raise _explain_failure(done.stdout)
        return done.stdout

    def _options(self, project: Path, entry: Document, sequence: bool, defines: str) -> tuple[Path, list[str]]:
        """The folder of a program, and the variables of the Makefile for it."""
        manifest = read_manifest(project)
        names = [other["name"] for other in manifest.get("networks") or [manifest]]
        folder = f"build/qemu/{entry['name']}{'_sequence' * sequence}{defines.replace('-D', '_')}"
        given = f"-DNETWORK={names.index(entry['name'])}{' -DSEQUENCE' * sequence} {defines}".rstrip()
        return project / folder, [f"QEMU_BUILD={folder}", f"DEFINES={given}"]


def _explain_failure(text: str) -> DeeployError:
    said = next((line.partition("error: ")[2] for line in text.splitlines() if line.startswith("error: ")), None)
    if said is not None and "no room" in said:
        return FitError(f"the program does not fit the board: {said}", FIT)
    return BuildError(
        f"the program failed under QEMU: {shorten(said or text.strip() or 'it printed nothing', 300)}",
        "Run it on the host first: deeploy run without --on.",
    )
