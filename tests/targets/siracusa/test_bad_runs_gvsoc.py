"""What goes wrong in the simulation itself: programs that hang, crash, find too little memory or fail, in two lines and with a status."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from deeploy import api
from deeploy.backend.project import read_manifest, select_network
from deeploy.errors import DeeployError
from deeploy.execution.runners import gvsoc
from deeploy.execution.runners.runner import Result
from tests.models import save_graph

from .conftest import Simulate, absent

RUN = "const uint32_t begin = measured_cycles();"


def _insert(statement: str) -> Callable[[Path], None]:
    """A statement before the network runs."""

    def change(project: Path) -> None:
        _replace(project / "runtime" / "bare" / "main.c", RUN, f"{RUN} {statement}")

    return change


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, f"{file.name} has no {old}"
    file.write_text(text.replace(old, new))


def _lose_constants(project: Path) -> None:
    (project / "network_weights.bin").write_bytes(b"short")


# What is done to a project: the error's words in its first line, and its exit status.
BROKEN: dict[str, tuple[Callable[[Path], None], str, int]] = {
    "hangs": (_insert('for (;;) __asm__ volatile("nop");'), "did not end within 5 seconds", 2),
    "crashes": (_insert("*(volatile uint32_t *)0x60000000u = begin;"), "the simulator", 2),
    "fails": (_insert('bare_fail("run failed");'), "the program failed on the simulator: run failed", 2),
    "too many weights": (_insert('bare_fail("constants are larger than the weight memory");'), "does not fit the chip: constants", 3),
    "constants are missing": (_lose_constants, "the file of constants is missing or of another length", 2),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A product with weights in HyperRAM."""
    value = helper.make_tensor_value_info
    w = helper.make_tensor("w", TensorProto.FLOAT, (4, 4), np.arange(16, dtype=np.float32))
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    graph = helper.make_graph([node], "g", [value("x", TensorProto.FLOAT, (2, 4))], [value("y", TensorProto.FLOAT, (2, 4))], [w])
    save_graph(graph, tmp_path / "model.onnx")
    api.compile(tmp_path / "model.onnx", "siracusa", default_memory="L3").write(tmp_path / "project")
    return tmp_path / "project"


def _run(project: Path) -> Result:
    entry = select_network(read_manifest(project))
    return gvsoc.Gvsoc(seconds=5.0).run(project, entry, [[np.ones((2, 4), np.float32)]])


@pytest.mark.gvsoc
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_program(simulate: Simulate, project: Path, name: str) -> None:
    break_it, words, status = BROKEN[name]
    break_it(project)
    with pytest.raises(DeeployError) as raised:
        _run(project)
    assert words in raised.value.what, raised.value
    assert (raised.value.exit_status, len(str(raised.value).splitlines())) == (status, 2)


@pytest.mark.gvsoc
def test_the_program_as_it_was(simulate: Simulate, project: Path) -> None:
    done = _run(project)
    np.testing.assert_array_equal(done.outputs[0][0], np.ones((2, 4), np.float32) @ np.arange(16, dtype=np.float32).reshape(4, 4))
    assert done.cycles[0] > 100


@pytest.mark.parametrize(
    ("variable", "size", "what"),
    [("L2_ARENA_BYTES", 2_090_000, "larger than L2"), ("L1_RESERVED_BYTES", 1_000, "leaves no room for stacks")],
)
def test_a_program_that_is_larger_than_a_memory(project: Path, variable: str, size: int, what: str) -> None:
    """As the linker finds out."""
    if shutil.which("riscv64-unknown-elf-gcc") is None:
        absent("no riscv64-unknown-elf-gcc: install Debian's gcc-riscv64-unknown-elf and picolibc-riscv64-unknown-elf")
    lines = (project / "Makefile").read_text().splitlines()
    changed = [f"{variable} := {size}" if line.startswith(f"{variable} :=") else line for line in lines]
    assert changed != lines
    (project / "Makefile").write_text("\n".join(changed) + "\n")
    with pytest.raises(DeeployError) as raised:
        gvsoc.build_network(project, "network")
    assert "does not fit" in raised.value.what and what in raised.value.what and raised.value.exit_status == 3
    assert "--l2" in raised.value.remedy
