"""Builds programs for Siracusa with Debian's RISC-V gcc, and runs them on GVSoC where it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[3]
BARE = ROOT / "kernels" / "pulp_runtime" / "bare"
SIMULATED = ROOT / "kernels" / "gvsoc_runtime" / "bare"
SOC = ROOT / "targets" / "siracusa" / "runtime" / "bare"
SECONDS = 120  # for one simulation


@dataclass(frozen=True)
class Run:
    """What a simulation printed, line by line, and whether it ended with status 0."""

    lines: tuple[str, ...]
    is_success: bool

    def numbers(self, word: str) -> dict[str, int]:
        """Of the lines that begin with ``word``: the number at their end, by the words between."""
        found = [line.split() for line in self.lines if line.startswith(f"{word} ")]
        return {" ".join(words[1:-1]): int(words[-1]) for words in found}


Simulate = Callable[[Path, Path], Run]


def absent(what: str) -> NoReturn:
    """Skip for want of a tool, or fail where the simulator is required."""
    if os.environ.get("DEEPLOY_REQUIRE_GVSOC") == "1":
        pytest.fail(what)
    pytest.skip(what)


def make(folder: Path, sources: Sequence[Path], **variables: object) -> subprocess.CompletedProcess[str]:
    """Run bare.mk in ``folder``; what it says when the compiler or the linker refuses is in ``stderr``."""
    if shutil.which("riscv64-unknown-elf-gcc") is None:
        absent("no riscv64-unknown-elf-gcc: install Debian's gcc-riscv64-unknown-elf and picolibc-riscv64-unknown-elf")
    includes = f"{ROOT / 'kernels' / 'hal'} {variables.pop('INCLUDES', '')}"
    values = {
        "BARE": BARE,
        "SOC": SOC,
        "SIMULATED": SIMULATED,
        "BUILD": folder,
        "SOURCES": " ".join(map(str, sources)),
        "INCLUDES": includes,
        **variables,
    }
    command = ["make", "-s", "-f", str(BARE / "bare.mk"), *(f"{name}={value}" for name, value in values.items())]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def build(folder: Path, sources: Sequence[Path], **variables: object) -> Path:
    """The program that bare.mk makes in ``folder``; warnings are errors."""
    result = make(folder, sources, **variables)
    assert result.returncode == 0, result.stderr
    return folder / "application.elf"


@pytest.fixture(scope="session")
def simulate() -> Simulate:
    """``simulate(program, folder)`` runs it with ``folder`` as the simulator's working directory."""
    launcher = os.environ.get("GVSOC") or shutil.which("gvsoc")
    if launcher is None:
        absent("no GVSoC: build github.com/gvsoc/gvsoc for target siracusa, then set GVSOC to its launcher or add it to PATH")

    def run(program: Path, folder: Path) -> Run:
        command = [launcher, "--target=siracusa", f"--work-dir={folder}", f"--binary={program}", "image", "flash", "run"]
        result = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=SECONDS, check=False)
        return Run(tuple(result.stdout.splitlines()), result.returncode == 0)

    return run
