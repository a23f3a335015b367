"""Three engines in two memories beside each other: the planner assigns both, the host model checks the code, the report shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.report import terminal
from tests.models import save_graph

DUO = Path(__file__).resolve().parents[2] / "examples" / "targets" / "duo" / "deeploy_duo"
CORES, SMALL, LARGE = "cores", "taps_g4_f3x3", "channels_k16_c16"


@pytest.fixture
def mixed_layers_model(tmp_path: Path) -> Path:
    """Channels that are mixed (1x1, many), a depthwise layer, channels mixed again, a pool: each with an engine that suits it."""
    numbers = np.random.default_rng(0)
    shapes = {"w0": (32, 32, 1, 1), "w1": (32, 1, 3, 3), "w2": (64, 32, 1, 1)}
    constants = {name: numbers.integers(-8, 8, shape).astype(np.float32) for name, shape in shapes.items()}
    constants |= {"mul": np.array([3.0], np.float32), "add": np.array([5.0], np.float32)}
    nodes, last = [], "x"
    for number, (pad, size, group) in enumerate(((0, 1, 1), (1, 3, 32), (0, 1, 1))):
        plain: dict[str, Any] = {"dilations": [1, 1], "strides": [1, 1], "group": group, "kernel_shape": [size, size], "pads": [pad] * 4}
        nodes.append(helper.make_node("Conv", [last, f"w{number}"], [f"s{number}"], f"conv{number}", **plain))
        scale: dict[str, Any] = {"div": 128.0, "n_levels": 256.0, "signed": 1.0}
        nodes.append(helper.make_node("RequantShift", [f"s{number}", "mul", "add"], [f"a{number}"], f"requant{number}", **scale))
        last = f"a{number}"
    nodes.append(helper.make_node("MaxPool", [last], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2]))
    graph = helper.make_graph(
        nodes,
        "duo",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64, 8, 8])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = tmp_path / "model.onnx"
    return save_graph(graph, path, 13)


def engines(compiled: deeploy.Compiled) -> list[str]:
    return [call.kernel.engine for call in compiled.plan.program.calls if call.node.op in ("Conv", "MaxPool")]


def sample() -> np.ndarray:
    return np.random.default_rng(1).integers(-128, 128, (1, 32, 16, 16)).astype(np.int8)


@pytest.mark.parametrize("memory", ["L2", "L3"])
def test_every_layer_runs_where_it_is_fastest(mixed_layers_model: Path, memory: str, tmp_path: Path) -> None:
    compiled = deeploy.compile(mixed_layers_model, DUO, default_memory=memory)
    assert engines(compiled) == [LARGE, SMALL, LARGE, CORES]
    levels = {placement.level for placement in compiled.plan.placements}
    assert {"L1", "PAD", "L2"} <= levels
    assert np.array_equal(compiled.run([sample()], sanitize=True)[0], compiled.interpret([sample()])[0])
    files = compiled.files()
    manifest = json.loads(str(files["deploy.json"]))
    assert {call["engine"] for call in manifest["calls"]} == {CORES, SMALL, LARGE}
    assert manifest["bytes"]["L2_PAD"] > 0 and manifest["bytes"]["L2_L1"] > 0
    shown = terminal.report_network(manifest)
    for text in (SMALL, LARGE, "PAD", "L2_PAD"):
        assert text in shown and text in str(files["report.html"])


def test_without_its_arrays_the_cores_take_longer(mixed_layers_model: Path) -> None:
    full = deeploy.compile(mixed_layers_model, DUO)
    alone = deeploy.compile(mixed_layers_model, DUO, engines=(CORES,))
    assert set(engines(alone)) == {CORES}
    assert full.network.predicted is not None and alone.network.predicted is not None
    assert full.network.predicted.cycles * 3 < alone.network.predicted.cycles


def test_little_scratchpad_is_streamed_through_or_left_out(mixed_layers_model: Path) -> None:
    small = deeploy.compile(mixed_layers_model, DUO, memory={"pad": 6000})
    assert small.memory["PAD"].peak <= 6000 and LARGE in engines(small)
    assert np.array_equal(small.run([sample()])[0], small.interpret([sample()])[0])
    assert LARGE not in engines(deeploy.compile(mixed_layers_model, DUO, memory={"pad": 300}))
