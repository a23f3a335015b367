"""Siracusa without an SDK: the runtime builds with a stock gcc, and what it promises holds on the simulator."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeploy.target import load

from .conftest import ROOT, SIMULATED, Run, Simulate, absent, build, make

HERE = Path(__file__).parent
HAL = sorted((HERE / "hal").glob("*.c"))
APP = [SIMULATED / "main.c", HERE / "app" / "network.c"]
ELEMENTS = 3000

# Cycles that a call may take at most: a tenth above what was measured on revision edfcd839 with gcc 12, -O3.
MOST = {
    "fork 8 cores, barrier and join": 150,
    "dma in 1 KiB": 340,
    "dma in 16 KiB": 2450,
    "dma out 16 KiB": 2520,
    "dma in 16 rows of 32 B": 290,
    "dma out 16 rows of 32 B": 310,
    "ram read 64 B": 850,
    "ram write 64 B": 900,
    "ram read 8 KiB": 9650,
    "ram write 8 KiB": 16900,
    "ram read 32 rows of 64 B": 3950,
}


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """main.c with the network of app/network.c, and its profile."""
    folder = tmp_path_factory.mktemp("application")
    return build(folder, APP, INCLUDES=headers(folder), DEFINES="-DDEEPLOY_PROFILE")


def headers(folder: Path) -> Path:
    """A folder with the header that is the same in every project."""
    include = folder / "include"
    include.mkdir()
    (include / "deeploy_network.h").write_text((ROOT / "templates" / "deeploy_network.h.mako").read_text())
    return include


def write(folder: Path, samples: int) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Write random inputs and constants; the result is what the network must answer."""
    generator = np.random.default_rng(samples)
    inputs = generator.integers(-128, 128, (samples, 2, ELEMENTS)).astype(np.int8)
    constants = generator.integers(-128, 128, ELEMENTS).astype(np.int8)
    inputs.tofile(folder / "inputs.bin")
    constants.tofile(folder / "weights.bin")
    return inputs[:, 0] + inputs[:, 1] + constants


def errors(run: Run) -> list[str]:
    return [line for line in run.lines if line.startswith("error:")]


def test_it_builds_without_atomics_and_without_floating_point_in_the_runtime(application: Path) -> None:
    """The cluster has no A, the controller no F."""
    text = subprocess.run(["riscv64-unknown-elf-objdump", "-d", application], capture_output=True, text=True, check=True).stdout
    mnemonics = set(re.findall(r"^\s*[0-9a-f]+:\t[0-9a-f ]+\t(\S+)", text, re.MULTILINE))
    assert {"jal", "csrr", "wfi"} <= mnemonics
    assert {m for m in mnemonics if re.match(r"amo|lr\.|sc\.|f(?!ence)", m)} == set()


def test_the_linker_leaves_the_planner_what_the_target_promises(application: Path) -> None:
    names = subprocess.run(["riscv64-unknown-elf-nm", application], capture_output=True, text=True, check=True).stdout
    symbols = {name: int(value, 16) for value, _, name in (line.split() for line in names.splitlines())}
    target = load("siracusa")
    l1, l2 = target.memory("L1"), target.memory("L2")
    assert l1.capacity is not None and l2.capacity is not None
    assert symbols["__l1_arena_end"] - symbols["__l1_arena"] == l1.capacity - l1.reserved
    assert symbols["__l2_end"] - symbols["__l2_arena"] >= l2.capacity - l2.reserved


def test_instructions_are_alone_in_the_banks_that_are_not_interleaved(application: Path) -> None:
    """The first 64 KiB of L2; what transfers read and write, constants and the arena, comes behind."""
    sections = subprocess.run(["riscv64-unknown-elf-size", "-A", application], capture_output=True, text=True, check=True).stdout
    begin = {line.split()[0]: int(line.split()[2]) for line in sections.splitlines() if line.startswith(".")}
    assert begin[".text"] == 0x1C000000 and begin[".stack"] < 0x1C010000 == begin[".rodata"]
    names = subprocess.run(["riscv64-unknown-elf-nm", application], capture_output=True, text=True, check=True).stdout
    (arena,) = (int(line.split()[0], 16) for line in names.splitlines() if line.endswith(" __l2_arena"))
    assert arena > begin[".rodata"]


def test_what_is_too_large_does_not_link(tmp_path: Path) -> None:
    too_much = make(tmp_path, HAL, L2_ARENA_BYTES=2048 * 1024 - 16384)
    assert too_much.returncode != 0 and "code, data and the L2 arena together are larger than L2" in too_much.stderr
    too_little = make(tmp_path, HAL, L1_RESERVED_BYTES=2048)
    assert too_little.returncode != 0 and "the reserved part of L1 leaves no room for stacks" in too_little.stderr
    assert make(tmp_path, HAL, L2_ARENA_BYTES=1900544).returncode == 0


@pytest.mark.gvsoc
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_function_of_the_interface(simulate: Simulate, tmp_path: Path, compiler: str) -> None:
    if compiler == "clang" and shutil.which("clang") is None:
        absent("no clang: install Debian's clang")
    run = simulate(build(tmp_path, HAL, COMPILER=compiler), tmp_path)
    checks = [line for line in run.lines if line.startswith("check ")]
    assert [line for line in checks if not line.endswith(" ok")] == []
    assert len(checks) == 54 and len(set(checks)) == 27, "every check, each of the two times"
    assert "checks that do not hold: 0" in run.lines
    assert run.is_success
    cycles = run.numbers("cycles")
    assert {name: cycles[name] for name, most in MOST.items() if cycles[name] > most and compiler == "gcc"} == {}
    assert cycles["fork 8 cores and join"] > 20 and cycles["dma in 16 KiB"] >= 16384 / 8, "cycles are counted at all"


@pytest.mark.gvsoc
def test_an_application_reads_inputs_and_writes_outputs(application: Path, simulate: Simulate, tmp_path: Path) -> None:
    expected = write(tmp_path, 3)
    run = simulate(application, tmp_path)
    assert run.is_success, run.lines
    got = np.fromfile(tmp_path / "outputs.bin", np.int8).reshape(3, ELEMENTS)
    np.testing.assert_array_equal(got, expected)
    total, layers, stacks = run.numbers("total"), run.numbers("layer"), run.numbers("stack")
    assert list(total) == ["0", "1", "2"]
    assert list(layers) == [f"{sample} {index} {name}" for sample in range(3) for index, name in enumerate(("inputs", "constants"))]
    for sample in total:
        inside = layers[f"{sample} 0 inputs"] + layers[f"{sample} 1 constants"]
        assert 2 * ELEMENTS / 8 < inside < total[sample] < 1.3 * inside
    assert len(stacks) == 8


@pytest.mark.gvsoc
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "inputs.bin").write_bytes(b""), "inputs.bin holds no whole number of samples"),
        (lambda folder: (folder / "inputs.bin").write_bytes(b"short"), "inputs.bin holds no whole number of samples"),
        (lambda folder: (folder / "weights.bin").write_bytes(b""), "file of constants is missing or of another length"),
        (lambda folder: (folder / "weights.bin").write_bytes(b"short"), "file of constants is missing or of another length"),
    ],
)
def test_files_that_do_not_fit(application: Path, simulate: Simulate, tmp_path: Path, spoil: Any, message: str) -> None:
    write(tmp_path, 1)
    spoil(tmp_path)
    run = simulate(application, tmp_path)
    assert not run.is_success
    assert len(errors(run)) == 1 and message in errors(run)[0]


@pytest.mark.gvsoc
@pytest.mark.parametrize("name", ["inputs.bin", "weights.bin"])
def test_a_file_that_is_absent_ends_the_simulation(application: Path, simulate: Simulate, tmp_path: Path, name: str) -> None:
    """The simulator ends by itself at a call of the host that fails, and says why."""
    write(tmp_path, 1)
    (tmp_path / name).unlink()
    run = simulate(application, tmp_path)
    assert not run.is_success
    assert f"path: {name}" in run.lines[-1] and "No such file" in run.lines[-1]


@pytest.mark.gvsoc
def test_an_l1_arena_that_stacks_reach_into_is_noticed(simulate: Simulate, tmp_path: Path) -> None:
    run = simulate(build(tmp_path, HAL, L1_RESERVED_BYTES=32 * 1024), tmp_path)
    assert not run.is_success
    assert errors(run) == ["error: the L1 arena is larger than what link.ld leaves"]


@pytest.mark.gvsoc
def test_a_stack_that_is_too_small_is_noticed(simulate: Simulate, tmp_path: Path) -> None:
    program = build(tmp_path, APP, INCLUDES=headers(tmp_path), DEFINES="-DTOO_DEEP", CHECK_STACKS=0)
    write(tmp_path, 1)
    run = simulate(program, tmp_path)
    assert not run.is_success
    assert errors(run) == ["error: a core's stack is full: the target must reserve more of L1"]
