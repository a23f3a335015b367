"""Constants of a flat machine that are copied to RAM: where reading them in place takes longer, within what RAM is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy import cli
from deeploy.driver.compile import load_target
from deeploy.driver.verify import verify_compiled
from deeploy.errors import UsageError
from deeploy.ir.target import Target, load_timing
from deeploy.planning.packing.lifetimes import FOR_EVER
from deeploy.planning.program import Role
from tests.models import save_graph

BOARD = """
[machine.clock]
mhz = 100
tile = 0
provenance = "assumed"

[engine.core]
fork = 0
core_mw = 0
provenance = "assumed"

[kernel.default]
call = 100
mac = 4
output = 30
provenance = "estimate: assumed"
"""
SLOW = """
[memory.{memory}]
byte = 0.5
provenance = "assumed: a wait state for every two bytes"
"""


@pytest.fixture(scope="module")
def shared_weights_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three products, the second and the last by the same weights."""
    values = {name: np.random.default_rng(seed).normal(size=(24, 24)).astype(np.float32) for seed, name in enumerate(("w0", "w1"))}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 24]) for name in ("x", "y")]
    steps = [("x", "w0", "a"), ("a", "w1", "b"), ("b", "w1", "y")]
    nodes = [helper.make_node("MatMul", [a, w], [b], f"product{i}") for i, (a, w, b) in enumerate(steps)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(w, name) for name, w in values.items()])
    path = tmp_path_factory.mktemp("products") / "products.onnx"
    save_graph(graph, path)
    return path


def timed(folder: Path, text: str) -> Target:
    (folder / "timing.toml").write_text(text)
    return replace(load_target("cortex_m7"), timing=load_timing(folder / "timing.toml"))


def compile_with_sizes(model: Path, target: Target, sizes: Mapping[str, int] | None = None) -> deeploy.Compiled:
    return deeploy.compile(model, target, memory=sizes or {})


def test_constants_are_copied_where_that_pays(shared_weights_model: Path, tmp_path: Path) -> None:
    """All of them where there is room; a call saves half a cycle for each byte that it reads. By default they stay."""
    near, slow = (
        compile_with_sizes(shared_weights_model, timed(tmp_path, BOARD)).plan,
        compile_with_sizes(shared_weights_model, timed(tmp_path, BOARD + SLOW.format(memory="FLASH"))).plan,
    )
    assert not near.fetched and not any(p.first == FOR_EVER for p in near.placements)
    constants = {b.name: b.bytes for b in slow.program.buffers.values() if b.role is Role.CONSTANT}
    assert slow.fetched == dict.fromkeys(constants, FOR_EVER) and len(constants) >= 2
    read = sum(constants[o.buffer] for call in slow.program.calls for o in call.operands.values() if o.buffer in constants)
    assert near.prediction is not None and slow.prediction is not None
    assert near.prediction.cycles - slow.prediction.cycles == round(0.5 * read)
    assert slow.memory["RAM"].peak >= near.memory["RAM"].peak + sum(constants.values())
    assert not deeploy.compile(shared_weights_model, "cortex_m7").plan.fetched


def test_what_is_read_most_often_is_copied_first(shared_weights_model: Path, tmp_path: Path) -> None:
    """There is room for one of the two matrices: that which two calls read. With less there is none."""
    target = timed(tmp_path, BOARD + SLOW.format(memory="FLASH"))
    whole = compile_with_sizes(shared_weights_model, timed(tmp_path, BOARD)).plan
    reserved = target.memories[0].reserved + 2 * 2 * 24 * 4
    size = whole.memory["RAM"].peak + reserved + 24 * 24 * 4 + 64
    twice = whole.program.calls[1].operands["b"].buffer
    assert twice == whole.program.calls[2].operands["b"].buffer
    assert list(compile_with_sizes(shared_weights_model, target, {"ram": size}).plan.fetched) == [twice]
    assert not compile_with_sizes(shared_weights_model, target, {"ram": size - 1000}).plan.fetched
    several = deeploy.compile({"one": shared_weights_model, "two": shared_weights_model}, target)
    assert not any(unit.network.plan.fetched for unit in several.units.values())


def test_copies_hold_what_flash_does(shared_weights_model: Path, tmp_path: Path) -> None:
    """The C on this machine gives the interpreter's results, layer by layer, and for every sample."""
    found = compile_with_sizes(shared_weights_model, timed(tmp_path, BOARD + SLOW.format(memory="FLASH")))
    verdict = verify_compiled(found, shared_weights_model, layers=True)
    assert verdict.passed and "all 3 layers agree with the interpreter" in verdict.notes


def test_memories_that_the_target_does_not_have(shared_weights_model: Path, tmp_path: Path) -> None:
    (tmp_path / "board.toml").write_text(BOARD + SLOW.format(memory="PROM"))
    arguments = [
        "compile",
        str(shared_weights_model),
        "-t",
        "cortex_m7",
        "--timing",
        str(tmp_path / "board.toml"),
        "-o",
        str(tmp_path / "out"),
    ]
    said = CliRunner().invoke(cli.app, arguments).exception
    assert isinstance(said, UsageError) and "keeps no constants in PROM" in said.what and "FLASH" in said.remedy
