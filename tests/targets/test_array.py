"""Two engines, one of which works in a scratchpad of its own: who runs what is chosen by cost, and the code runs bit for bit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import UnsupportedError, UsageError
from deeploy.options import Options
from deeploy.planning.program import Role
from deeploy.report import explain_layer as why
from tests.models import save_graph

ARRAY = Path(__file__).parent / "array"


@pytest.fixture
def requantised_model(tmp_path: Path) -> Path:
    """A large and a small convolution, another large one, and a product, each requantised to int8."""
    numbers = np.random.default_rng(0)
    shapes = {"w0": (24, 8, 3, 3), "w1": (2, 24, 1, 1), "w2": (32, 2, 3, 3), "w3": (32, 10)}
    constants = {name: numbers.integers(-8, 8, shape).astype(np.float32) for name, shape in shapes.items()}
    constants |= {"mul": np.array([3.0], np.float32), "add": np.array([5.0], np.float32)}
    settings: dict[str, Any] = {"div": 128.0, "n_levels": 256.0, "signed": 1.0}
    nodes, last = [], "x"
    for number in range(3):
        pads = [1, 1, 1, 1] if number != 1 else [0, 0, 0, 0]
        size = [3, 3] if number != 1 else [1, 1]
        plain: dict[str, Any] = {"dilations": [1, 1], "strides": [1, 1], "group": 1}
        nodes.append(helper.make_node("Conv", [last, f"w{number}"], [f"s{number}"], f"conv{number}", kernel_shape=size, pads=pads, **plain))
        nodes.append(helper.make_node("RequantShift", [f"s{number}", "mul", "add"], [f"a{number}"], f"requant{number}", **settings))
        last = f"a{number}"
    nodes.append(helper.make_node("Transpose", [last], ["t"], "transpose", perm=[0, 2, 3, 1]))
    nodes.append(helper.make_node("MatMul", ["t", "w3"], ["p"], "product"))
    nodes.append(helper.make_node("RequantShift", ["p", "mul", "add"], ["y"], "requant", **settings))
    graph = helper.make_graph(
        nodes,
        "array",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 12, 12, 10])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = tmp_path / "model.onnx"
    return save_graph(graph, path, 13)


def engines(compiled: deeploy.Compiled) -> list[str]:
    """Of the layers, without copies."""
    return [call.kernel.engine for call in compiled.plan.program.calls if call.node.op in ("Conv", "MatMul")]


def sample() -> np.ndarray:
    return np.random.default_rng(0).integers(-128, 128, (1, 8, 12, 12)).astype(np.int8)


@pytest.mark.parametrize("memory", ["L2", "L3"])
def test_every_layer_runs_where_it_costs_least(requantised_model: Path, memory: str) -> None:
    """The array takes long to begin: the small convolution is left to the cores, and its operands pass through L2."""
    compiled = deeploy.compile(requantised_model, ARRAY, default_memory=memory)
    assert engines(compiled) == ["array", "cores", "array", "array"]
    levels = {placement.buffers[0]: placement.level for placement in compiled.plan.placements}
    assert {levels["a0_channels_last"], levels["a1_channels_last"]} == {"L2"}, "the engines share no nearer memory"
    assert levels["a2_channels_last"] == "PAD", "two layers of the array hand over in its own"
    assert np.array_equal(compiled.run([sample()], sanitize=True)[0], compiled.interpret([sample()])[0])


LITTLE = [(4000, 9000, {"array", "cores"}), (300, 9000, {"cores"})]


@pytest.mark.parametrize(
    ("memory", "pad", "l2", "expected"),
    [
        *(("L2", *case) for case in (*LITTLE, (4000, 6000, {"cores"}))),
        *(("L3", *case) for case in (*LITTLE, (4000, 6000, {"array", "cores"}), (16_000, 3000, {"array"}))),  # constants need not lie in L2
    ],
)
def test_little_memory_decides_too(requantised_model: Path, memory: str, pad: int, l2: int, expected: set[str]) -> None:
    """Tiles through a small scratchpad; where none fits, the cores; and constants that are streamed."""
    options = Options(memory={"pad": pad, "l1": 6000, "l2": l2}, default_memory=memory)
    compiled = deeploy.compile(requantised_model, ARRAY, **options.given())
    assert set(engines(compiled)) == expected
    for name, use in compiled.memory.items():
        assert use.capacity is None or use.peak <= use.capacity, name
    assert np.array_equal(compiled.run([sample()], sanitize=True)[0], compiled.interpret([sample()])[0])


def test_only_the_constants_of_chosen_kernels_are_kept(requantised_model: Path) -> None:
    """Cores want weights with channels last, the array as the graph has them."""
    compiled = deeploy.compile(requantised_model, ARRAY)
    constants = [buffer for buffer in compiled.plan.program.buffers.values() if buffer.role is Role.CONSTANT]
    used = {operand.buffer for call in compiled.plan.program.calls for operand in call.operands.values()}
    assert {buffer.name for buffer in constants} <= used
    shapes = sorted(buffer.shape for buffer in constants if len(buffer.shape) > 1)
    assert shapes == [(1, 1, 24, 2), (24, 8, 3, 3), (32, 2, 3, 3), (32, 10)]
    assert compiled.memory["L2"].constants == sum(-(-buffer.bytes // 8) * 8 for buffer in constants)


def test_engines_may_be_left_out(requantised_model: Path) -> None:
    alone = deeploy.compile(requantised_model, ARRAY, engines=("cores",))
    assert engines(alone) == ["cores"] * 4
    manifest = json.loads(str(alone.files()["deploy.json"]))
    assert manifest["machine"]["engines"] == ["cores"]
    assert {call["engine"] for call in manifest["calls"]} == {"cores"}
    with pytest.raises(UsageError) as unknown:
        deeploy.compile(requantised_model, ARRAY, engines=("cores", "npu"))
    assert "no engine npu" in unknown.value.what and "cores, array" in unknown.value.remedy
    with pytest.raises(UnsupportedError) as missing:
        deeploy.compile(requantised_model, ARRAY, engines=("array",))
    assert "only cores could run it, which engines leaves out" in missing.value.what


def test_it_is_explained_who_runs_a_layer(requantised_model: Path) -> None:
    compiled = deeploy.compile(requantised_model, ARRAY)
    calls = json.loads(str(compiled.files()["explain.json"]))["networks"]["network"]["calls"]
    small = next(call for call in calls if call["node"].startswith("conv1"))
    assert re.search(r"Engine: cores, by conv2d\b[^;]*; .* array_conv2d_any wide on array: [\d ]+ cycles more", small["reasons"][0]), small[
        "reasons"
    ][0]
    assert {way["engine"] for way in small["candidates"]} == {"cores", "array"}
    shown = why.describe_explanation({"step": 2, "steps": 5, "levels": ["L1", "L2", "L3", "PAD"], **small})
    assert re.search(r"^ +\* +conv2d wide on cores .* chosen$", shown, re.M), shown
    assert re.search(r"^ +array_conv2d_any wide on array .* bytes of|^ +array_conv2d_any wide on array .* more", shown, re.M), shown
