"""Operators that nobody knows are named first, all of them at once; those that somebody knows may stand in front of any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.errors import DeeployError, UnsupportedError
from tests.command import deeploy_cli
from tests.frontend.models import build, f32, read

Node = helper.make_node


def unknown(*more: onnx.NodeProto) -> onnx.ModelProto:
    """A network with three operators that nobody knows, two of one kind, and other nodes behind them."""
    nodes = [
        Node("Wobble", ["x"], ["a"], name="first", domain="acme"),
        Node("Erfc", ["a"], ["b"], name="second"),
        Node("Wobble", ["b"], ["c"], name="third", domain="acme"),
        Node("MoE", ["c"], ["d"], name="fourth", domain="com.microsoft"),
        *(more or [Node("Relu", ["d"], ["y"])]),
    ]
    return build(nodes, {"x": f32(2, 3), "s": ([2], TensorProto.INT64)}, ["y"])


# What else is wrong with the same network: none of it is said first.
OTHERS: dict[str, list[onnx.NodeProto]] = {
    "nothing": [],
    "a setting from run time": [Node("Reshape", ["d", "s"], ["y"])],
    "an attribute": [Node("Relu", ["d"], ["y"], alpha=1.0)],
    "shapes": [Node("MatMul", ["d", "d"], ["y"])],
    "a composed operator": [Node("MeanVarianceNormalization", ["d"], ["y"], axes=[1])],
    "shapes in front": [Node("MatMul", ["x", "x"], ["e"]), Node("Add", ["d", "e"], ["y"])],
}


@pytest.mark.parametrize("case", OTHERS)
def test_all_are_named_first(tmp_path: Path, case: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        read(unknown(*OTHERS[case]), tmp_path)
    text = str(caught.value)
    assert "3 operators are unknown" in text and len(text.splitlines()) == 2
    for words in ("Wobble of the domain 'acme' (nodes first, third)", "Erfc in the domain of ONNX", "MoE of the domain 'com.microsoft'"):
        assert words in text


@pytest.mark.parametrize(
    "command", [["inspect"], ["compile", "-o", "out"], ["verify"], ["quantize", "--calibrate", "c.npz", "-o", "o.onnx"]]
)
@pytest.mark.parametrize("rows", [2, "rows"])
def test_every_command_names_them(tmp_path: Path, command: list[str], rows: int | str) -> None:
    model = unknown()
    if isinstance(rows, str):
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = rows
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "c.npz", x=np.zeros((4, 2, 3), np.float32), s=np.zeros((4, 2), np.int64))
    done = deeploy_cli(command[0], "m.onnx", *command[1:], cwd=tmp_path)
    assert done.returncode == 2 and "3 operators are unknown" in done.stderr and not done.stdout


def test_hostile_names_are_printable_and_short(tmp_path: Path) -> None:
    nodes = [Node(f"\x1b[31m{'O' * 300}{i}", [f"x{i}"], [f"x{i + 1}"], name="\n" * 200, domain="\x07" * 99) for i in range(50)]
    with pytest.raises(UnsupportedError) as caught:
        read(build(nodes, {"x0": f32(2)}, ["x50"]), tmp_path)
    text = str(caught.value)
    assert "50 operators are unknown" in text and "44 more" in text and len(text.splitlines()) == 2 and len(text) < 3000
    assert all(c.isprintable() or c == "\n" for c in text)


def branch(name: str, op: str) -> onnx.GraphProto:
    return helper.make_graph([Node(op, ["x"], [name])], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])


def test_a_branch_that_is_never_taken_may_have_any_operator(tmp_path: Path) -> None:
    choice = Node("If", ["c"], ["y"], then_branch=branch("one", "Relu"), else_branch=branch("two", "Wobble"))
    model = build([choice], {"x": f32(2)}, ["y"], {"c": np.array(True)})
    assert [node.op for node in read(model, tmp_path).nodes] == ["Relu"]
    model = build([choice], {"x": f32(2), "c": ([], TensorProto.BOOL)}, ["y"])
    with pytest.raises(UnsupportedError, match="an operator is unknown: Wobble"):
        read(model, tmp_path)


def test_a_body_is_looked_at(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(n, t, []) for n, t in (("i", TensorProto.INT64), ("k", TensorProto.BOOL))]
    state = helper.make_tensor_value_info("s", TensorProto.FLOAT, [2])
    results = [helper.make_tensor_value_info("k2", TensorProto.BOOL, []), onnx.ValueInfoProto(name="s2")]
    nodes = [Node("Identity", ["k"], ["k2"]), Node("Wobble", ["s"], ["s2"], domain="acme")]
    body = helper.make_graph(nodes, "body", [*values, state], results)
    model = build([Node("Loop", ["n", "", "x"], ["y"], body=body)], {"x": f32(2)}, ["y"], {"n": np.array(3)})
    with pytest.raises(UnsupportedError, match="an operator is unknown: Wobble of the domain 'acme'"):
        read(model, tmp_path)


def test_an_operator_of_the_target_is_known_wherever_something_else_fails(tmp_path: Path) -> None:
    """A target that has it is asked; shapes that do not fit are then what is said."""
    nodes = [Node("MatMul", ["x", "x"], ["a"]), Node("Wobble", ["a"], ["y"], domain="acme")]
    with pytest.raises(DeeployError, match="MatMul"):
        read(build(nodes, {"x": f32(2, 3)}, ["y"]), tmp_path, custom_shapes=lambda node: [] if node.op == "Wobble" else None)


SCALE, ZERO = np.array(0.03, np.float32), np.array(3, np.uint8)
MICROSOFT = "com.microsoft"
FOREIGN: dict[str, Callable[[], list[onnx.NodeProto]]] = {
    "quantised by onnxruntime's operators": lambda: [
        Node("QuantizeLinear", ["x", "s", "z"], ["q"], domain=MICROSOFT),
        Node("DequantizeLinear", ["q", "s", "z"], ["d"], domain=MICROSOFT),
    ],
    "an activation of onnxruntime": lambda: [Node("QuickGelu", ["x"], ["d"], domain=MICROSOFT)],
    "a quantiser of Brevitas": lambda: [
        Node("Quant", ["x", "s", "f", "bits"], ["d"], domain="qonnx.custom_op.general", signed=1, narrow=0)
    ],
    "two, and standard ones between": lambda: [
        Node("Gelu", ["x"], ["g"], domain=MICROSOFT),
        Node("Relu", ["g"], ["r"]),
        Node("QuickGelu", ["r"], ["d"], domain=MICROSOFT),
    ],
}
COMPOSED: dict[str, tuple[onnx.NodeProto, dict[str, Any]]] = {
    "GroupNormalization": (
        Node("GroupNormalization", ["d", "gain", "offset"], ["y"], num_groups=2),
        {"gain": np.linspace(1, 2, 4, dtype=np.float32), "offset": np.ones(4, np.float32)},
    ),
    "MeanVarianceNormalization": (Node("MeanVarianceNormalization", ["d"], ["y"], axes=[2, 3]), {}),
    "CenterCropPad": (Node("CenterCropPad", ["d", "to"], ["y"], axes=[2, 3]), {"to": np.array([2, 4])}),
}


@pytest.mark.parametrize("front", FOREIGN)
@pytest.mark.parametrize("op", COMPOSED)
def test_composed_operators_behind_foreign_ones(tmp_path: Path, front: str, op: str) -> None:
    """The same as behind an input of the network."""
    node, constants = COMPOSED[op]
    scales = {"s": SCALE, "z": ZERO, "f": np.zeros(1, np.float32), "bits": np.array(8, np.float32)}
    one = build([*FOREIGN[front](), node], {"x": f32(1, 4, 3, 3)}, ["y", "d"], {**scales, **constants}, 21)
    two = build([node], {"d": f32(1, 4, 3, 3)}, ["y"], constants, 21)
    for name, model in (("one", one), ("two", two)):
        onnx.save(model, tmp_path / f"{name}.onnx")
    x = np.random.default_rng(1).standard_normal((1, 4, 3, 3)).astype(np.float32)
    y, d = deeploy.compile(tmp_path / "one.onnx").interpret([x])
    np.testing.assert_allclose(y, deeploy.compile(tmp_path / "two.onnx").interpret([d])[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("domain", [MICROSOFT, "ai.onnx.ml", "qonnx.custom_op.general"])
def test_models_that_import_another_domain_alone(tmp_path: Path, domain: str) -> None:
    """As onnxruntime reads them: the standard operators are those of a new opset."""
    node = {
        MICROSOFT: Node("QuickGelu", ["x"], ["a"], domain=MICROSOFT, alpha=1.0),
        "ai.onnx.ml": Node("Scaler", ["x"], ["a"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0]),
        "qonnx.custom_op.general": FOREIGN["a quantiser of Brevitas"]()[0],
    }[domain]
    node.output[0] = "a"
    constants = {"s": SCALE, "f": np.zeros(1, np.float32), "bits": np.array(8, np.float32)} if "qonnx" in domain else {}
    model = build([node, Node("Relu", ["a"], ["y"])], {"x": f32(1, 4)}, ["y"], constants)
    full = deeploy.compile(model).interpret([x := np.array([[-1, 0.5, 2, 3]], np.float32)])[0]
    del model.opset_import[0]
    assert [entry.domain for entry in model.opset_import] == [domain]
    assert np.array_equal(deeploy.compile(model).interpret([x])[0], full)
    del model.opset_import[:]
    with pytest.raises(DeeployError, match="imports no opset"):
        deeploy.compile(model)
