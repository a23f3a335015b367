"""Kernels and the calls that templates make of them, with the compilers of all processors: they find nothing to warn of.

``deeploy target check`` compiles them for this host with the same warnings. Makefiles of projects ask for them too.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deeploy.bringup.alone import WARNINGS, include_options, write_program
from deeploy.bringup.cases import draw_cases
from deeploy.ir.kernel import Kernel
from deeploy.target import Target, load
from tests.samples import is_drawn

ROOT = Path(__file__).resolve().parents[2]
ARM = "arm-none-eabi-gcc -mthumb -mfloat-abi=hard --specs=nano.specs"
RISCV = "riscv64-unknown-elf-gcc --specs=picolibc.specs"
VECTORS = "clang --target=riscv32-unknown-elf -march=rv32gcv -mabi=ilp32d -isystem /usr/lib/picolibc/riscv64-unknown-elf/include"
EXAMPLES = {path.parent.parent.name: path.parent for path in (ROOT / "examples" / "targets").glob("*/*/target.py")}
# Compiler and target, and the beginnings of the names of kernels: those that are not tried for another target with the same compiler.
TRIED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "generic, gcc": ("gcc", "generic", ("",)),
    "generic, clang": ("clang", "generic", ("",)),
    "generic, Arm": (f"{ARM} -mcpu=cortex-m7 -mfpu=fpv5-sp-d16", "generic", ("",)),
    "rv32imc": (f"{RISCV} -march=rv32imc_zicsr -mabi=ilp32", "rv32imc", ("",)),
    "cortex_m4": (f"{ARM} -mcpu=cortex-m4 -mfpu=fpv4-sp-d16", "cortex_m4", ("arm_",)),
    "cortex_m55": (f"{ARM} -mcpu=cortex-m55", "cortex_m55", ("arm_", "helium_")),
    "cortex_m4, gcc": ("gcc", "cortex_m4", ("arm_",)),
    "cortex_m55, clang": ("clang", "cortex_m55", ("arm_", "helium_")),
    "rv32gcv": (VECTORS, "rv32gcv", ("rvv_",)),
    "siracusa": (f"{RISCV} -march=rv32imfc -mabi=ilp32f", "siracusa", ("pulp_", "neureka_")),
    "siracusa, gcc": ("gcc", "siracusa", ("pulp_", "neureka_")),
    "siracusa, clang": ("clang", "siracusa", ("pulp_", "neureka_")),
    "snitch": (f"{RISCV} -march=rv32imafd -mabi=ilp32d", str(EXAMPLES["snitch"]), ("snitch_",)),
    "snitch, clang": ("clang", str(EXAMPLES["snitch"]), ("snitch_",)),
}
SHARE = 0.02  # of the kernels, in the short run
PARTS = 4  # of the others, each a test
MAKEFILES = (
    *("templates/generic.Makefile.mako", "templates/managed.Makefile.mako", "templates/chips.Makefile.mako"),
    "kernels/gvsoc_runtime/bare/program.mk",
)


def warnings_of(kernel: Kernel, target: Target, command: list[str], samples: int, seed: int, folder: Path) -> str:
    """What the compiler says of a kernel in its instances, and of their calls."""
    program = write_program(kernel, target, draw_cases(kernel, samples, seed), folder, seed)
    files = ["main.c", *(f"{name}.c" for name in program.instances)]
    command = [*command, *WARNINGS, "-fsyntax-only", *include_options(kernel, target, program, folder), *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def check(name: str, share: float, samples: int, folder: Path, part: slice = slice(None)) -> None:
    compiler, target_name, beginnings = TRIED[name]
    command = compiler.split()
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    target = load(target_name)
    kernels = [k for k in target.kernels if k.name.startswith(beginnings) and not k.link]
    drawn = [(number, k) for number, k in list(enumerate(kernels))[part] if share == 1 or is_drawn(f"{name} {number} {k.name}", share)]
    said = {k.name: warnings_of(k, target, command, samples, number, folder / str(number)) for number, k in drawn}
    assert kernels and not any(said.values()), [text for text in said.values() if text]


@pytest.mark.parametrize("name", TRIED)
def test_a_sample_compiles_without_a_warning(name: str, tmp_path: Path) -> None:
    check(name, SHARE, 4, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", TRIED)
def test_every_kernel_compiles_without_a_warning(name: str, part: int, tmp_path: Path) -> None:
    check(name, 1, 12, tmp_path, slice(part, None, PARTS))


@pytest.mark.parametrize("path", MAKEFILES)
def test_makefiles_ask_for_these_warnings(path: str) -> None:
    found = re.findall(r"^WARNINGS \?= (.*)$", (ROOT / path).read_text(), re.MULTILINE)
    assert found == [" ".join(word for word in WARNINGS if word.startswith("-W"))]
