"""What exploration chose, fed back: a target includes the engine description, and the planner chooses a configuration per layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import TargetError
from deeploy.ir.target import Rate
from deeploy.planning import cost
from deeploy.planning.program import Call
from deeploy.target import load, load_array
from tests.command import deeploy_cli
from tests.models import save_graph

ROOT = Path(__file__).parents[2]
UNROLLED = Path(__file__).parent / "unrolled"
LAYERS = ("expand", "depthwise", "reduce", "product")


@pytest.fixture
def saved_model(tmp_path: Path) -> Path:
    return saved(tmp_path)


def saved(folder: Path) -> Path:
    """A pointwise, a depthwise and a pointwise convolution, and a product, each requantised to int8."""
    numbers = np.random.default_rng(0)
    shapes = {"expand": (32, 8, 1, 1), "depthwise": (32, 1, 3, 3), "reduce": (16, 32, 1, 1), "product": (16, 32)}
    constants = {f"w_{name}": numbers.integers(-8, 8, shape).astype(np.float32) for name, shape in shapes.items()}
    constants |= {"mul": np.array([3.0], np.float32), "add": np.array([5.0], np.float32)}
    settings = {"div": 128.0, "n_levels": 256.0, "signed": 1.0}
    nodes, last = [], "x"
    for name in LAYERS:
        if name == "product":
            nodes.append(helper.make_node("Transpose", [last], ["rows"], "transpose", perm=[0, 2, 3, 1]))
            nodes.append(helper.make_node("MatMul", ["rows", "w_product"], ["sum_product"], name))
        else:
            size, groups = shapes[name][2], 32 if name == "depthwise" else 1
            pads = [size // 2] * 4
            plain = {"dilations": [1, 1], "strides": [1, 1], "group": groups, "pads": pads, "kernel_shape": [size, size]}
            nodes.append(helper.make_node("Conv", [last, f"w_{name}"], [f"sum_{name}"], name, **plain))
        last = "y" if name == "product" else f"a_{name}"
        nodes.append(helper.make_node("RequantShift", [f"sum_{name}", "mul", "add"], [last], f"requant_{name}", **settings))
    graph = helper.make_graph(
        nodes,
        "unrolled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 16, 32])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = folder / "model.onnx"
    return save_graph(graph, path, 13)


def test_the_description_is_what_exploration_writes(saved_model: Path, tmp_path: Path) -> None:
    options = ("--hardware", UNROLLED / "hardware.toml", "--write-engine", tmp_path / "array.toml")
    result = deeploy_cli("explore", saved_model, *options, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "array.toml").read_text() == (UNROLLED / "array.toml").read_text()


def test_a_configuration_is_chosen_per_layer(saved_model: Path) -> None:
    """The one with fewer cycles in each layer; the code runs bit for bit."""
    compiled = deeploy.compile(saved_model, UNROLLED)
    target = load(UNROLLED)
    chosen = {}
    for call in compiled.plan.program.calls:
        name = next((name for name in LAYERS if call.node.name.startswith(name)), None)
        if name is not None:
            chosen[name] = call.kernel.engine
    _, depthwise, pointwise = (engine.name for engine in target.engines)
    assert chosen == {"expand": pointwise, "depthwise": depthwise, "reduce": pointwise, "product": pointwise}
    x = np.random.default_rng(1).integers(-128, 128, (1, 8, 16, 16)).astype(np.int8)
    assert np.array_equal(compiled.run([x], sanitize=True)[0], compiled.interpret([x])[0])


def test_cycles_are_the_steps_of_the_array(saved_model: Path) -> None:
    """Loops are rounded up to multiples of the factors: 64 products in a cycle, idle ones counted."""
    target = load(UNROLLED)
    assert target.timing is not None
    calls = {call.node.name.split(" ")[0]: call for call in deeploy.compile(saved_model, UNROLLED).plan.program.calls}
    pointwise, depthwise = (target.timing.kernel(f"toy_{name}") for name in ("k8_oy2_ox4", "ox16_fx4"))
    expected = {"expand": (32 * 8 * 256, 4 * 32 * 8 * 256), "depthwise": (32 * 9 * 256 * 8, 32 * 3 * 4 * 256)}
    for name, slots in expected.items():
        assert (products(calls[name], pointwise), products(calls[name], depthwise)) == pytest.approx(slots)
    assert products(calls["expand"], target.timing.kernel("other")) == 32 * 8 * 256


def products(call: Call, rate: Rate) -> float:
    """Cycles of a call as one tile, where each product takes one and nothing else any."""
    extents = call.geometry.extents
    work = cost.work_of(call, replace(rate, mac=1.0, output=0.0, per={}))
    return float(work.cycles(lambda dim, step: cost.whole_steps(extents[dim], step) if step else 1))


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("pes = 4", "name is missing"),
        ("name = 3 = 4", "is not valid TOML"),
        (
            'name = "a"\npes = 4\n[[configuration]]\nname = "k"\nunrolling = { K = 2 }',
            r"configuration\[0\].unrolling fills 2 of 4 elements",
        ),
        (
            'name = "a"\npes = 4\n[[configuration]]\nname = "k k"\nunrolling = { K = 4 }',
            r"configuration\[0\].name is k k, which is empty or has other characters",
        ),
        ('name = "a"\npes = 4\n[[configuration]]\nname = "k"\nunrolling = { K = 2, Z = 2 }', r"unrolling.Z is not a field"),
    ],
)
def test_a_bad_description_is_refused(tmp_path: Path, contents: str, message: str) -> None:
    (tmp_path / "array.toml").write_text(contents)
    with pytest.raises(TargetError, match=message):
        load_array(tmp_path / "array.toml")
