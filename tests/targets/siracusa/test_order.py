"""Disassembled RV32 code: what is stored before a transfer, a team or a job begins is stored before anything that begins it.

The runtime is compiled in one unit with its caller, where a compiler sees everything and may move what no barrier holds: the worst
case of a build with optimisation at link time. The same unit without the barrier shows that the test would notice.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from deeploy import api
from tests.models import save_graph

from .conftest import BARE, ROOT, SIMULATED, SOC, absent

GCC, OBJDUMP = "riscv64-unknown-elf-gcc", "riscv64-unknown-elf-objdump"
FLAGS = ("-march=rv32imfc", "-mabi=ilp32f", "--specs=picolibc.specs", "-std=c11", "-O3", "-mno-relax", f"-I{ROOT / 'kernels' / 'hal'}")
BARRIER = '__asm__ volatile("" ::: "memory")'
BEGIN = {
    "a transfer": ("mchan.c", "", "rt_store_run(0, 0, (rt_address)window, to, 16);"),
    "a team": ("cluster.c", "(void)to;", "rt_fork(8, body, window);"),
}
UNIT = """
#include "{source}"
IN_L1 int32_t window[4];
void body(void *argument);
void prepare(int32_t value, rt_address to);
void prepare(int32_t value, rt_address to) {{
    {before}
    window[0] = value;
    {begin}
    window[0] = 0;
}}
"""
ACCESS = re.compile(r"\t(?:c\.)?([ls])([bhw])u?\s+(\w+),(-?\d+)\((\w+)\)")


@pytest.fixture(scope="module", autouse=True)
def toolchain() -> None:
    if shutil.which(GCC) is None:
        absent(f"no {GCC}: install Debian's gcc-riscv64-unknown-elf and picolibc-riscv64-unknown-elf")


def disassembled(source: Path, *flags: str) -> str:
    """What gcc makes of a file."""
    subprocess.run([GCC, *FLAGS, *flags, "-c", source, "-o", source.with_suffix(".o")], check=True)
    text = subprocess.run([OBJDUMP, "-dr", source.with_suffix(".o")], capture_output=True, text=True, check=True).stdout
    return re.sub(r"\n\n?[0-9a-f]+ <\.L\w+>:", "", text)  # labels within functions


def function(text: str, name: str) -> list[str]:
    """The lines of one function."""
    found = re.search(rf"^[0-9a-f]+ <{name}>:\n(.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no function {name}"
    return found[1].splitlines()


def before(lines: list[str]) -> list[str]:
    """The accesses to memory, the stack apart, before the argument ``value`` (a0) is stored."""
    result = []
    for line in lines:
        access = ACCESS.search(line)
        if access is None:
            continue
        if access[1] == "s" and access[3] == "a0":
            return result
        if access[5] != "sp":
            result.append(line.strip())
    raise AssertionError("the value is not stored")


def unit(folder: Path, what: str, barrier: str) -> list[str]:
    source, lines, begin = BEGIN[what]
    for file in (*BARE.glob("*.[ch]"), *SOC.glob("*.[ch]"), *SIMULATED.glob("*.h")):
        text = file.read_text()
        (folder / file.name).write_text(text.replace(BARRIER, barrier))
    (folder / "unit.c").write_text(UNIT.format(source=source, before=lines, begin=begin))
    return function(disassembled(folder / "unit.c", f"-I{folder}"), "prepare")


@pytest.mark.parametrize("what", BEGIN)
def test_what_is_stored_before_is_stored_first(tmp_path: Path, what: str) -> None:
    assert before(unit(tmp_path, what, BARRIER)) == []


@pytest.mark.parametrize("what", BEGIN)
def test_without_the_barrier_it_is_not(tmp_path: Path, what: str) -> None:
    assert before(unit(tmp_path, what, "(void)0")) != []


def test_emitted_code_tells_a_kernel_its_tile_before_the_barrier(tmp_path: Path) -> None:
    """Between the calls before the barrier and the barrier, the kernel's argument is stored; none between it and the kernel."""
    shape = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (64, 64)) for name in "xy"]
    constant = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], "g", shape[:1], shape[1:], [constant])
    save_graph(graph, tmp_path / "model.onnx")
    project = tmp_path / "project"
    api.compile(tmp_path / "model.onnx", "siracusa", memory={"l1": 9000}, buffering="single").write(project)
    includes = [f"-I{project / folder}" for folder in ("include", "runtime", "kernels/portable")]
    lines = function(disassembled(project / "src" / "network.c", *includes), "layer_product")
    calls = [(i, m[1]) for i, line in enumerate(lines) if (m := re.search(r"R_RISCV_CALL(?:_PLT)?\t(\w+)", line))]
    names = [name for _, name in calls]
    assert {"rt_fetch_run", "rt_fetch_rows", "rt_wait", "rt_barrier", "rt_store_rows"} <= set(names)
    kernel = next(i for i, name in enumerate(names) if "kernel" in name)
    barrier = kernel - 1
    assert names[barrier] == "rt_barrier"
    assert stores(lines[calls[barrier - 1][0] : calls[barrier][0]]) and not stores(lines[calls[barrier][0] : calls[kernel][0]])


def stores(lines: list[str]) -> list[str]:
    """Stores to the stack, where a kernel's argument lies."""
    return [line for line in lines if (access := ACCESS.search(line)) and access[1] == "s" and access[5] == "sp"]
