"""What disappears: constants, identities, and the arithmetic on shapes that exporters write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from deeploy.errors import UnsupportedError
from deeploy.frontend import fold
from deeploy.frontend.shapes import Value
from tests.frontend.models import build, f32, ints, read

node = helper.make_node


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value": numpy_helper.from_array(np.array([2.0, 3.0], np.float32))}, [2.0, 3.0]),
        ({"value_float": 2.5}, 2.5),
        ({"value_floats": [2.5, 1.0]}, [2.5, 1.0]),
    ],
)
def test_constant_nodes_in_all_forms(tmp_path: Path, attributes: dict[str, Any], expected: object) -> None:
    graph = read(build([node("Constant", [], ["c"], **attributes), node("Add", ["x", "c"], ["y"])], {"x": f32(2)}, ["y"]), tmp_path)
    assert [n.op for n in graph.nodes] == ["Add"]
    assert graph.nodes[0].inputs[1].data.tolist() == expected
    assert graph.nodes[0].inputs[1].dtype.numpy == np.float32


@pytest.mark.parametrize("attributes", [{"value_int": 6}, {"value_ints": [6]}])
def test_integer_constant_nodes(tmp_path: Path, attributes: dict[str, Any]) -> None:
    nodes = [
        node("Constant", [], ["c"], **attributes),
        node("Constant", [], ["m"], value_ints=[-1]),
        node("Reshape", ["c", "m"], ["s"]),
        node("Reshape", ["x", "s"], ["y"]),
    ]
    assert list(read(build(nodes, {"x": f32(2, 3)}, ["y"]), tmp_path).outputs[0].shape) == [6]


def test_shape_gather_concat_into_reshape(tmp_path: Path) -> None:
    """The flattening that PyTorch writes for x.view(x.size(0), -1)."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"], axis=0),
        node("Unsqueeze", ["batch", "axes"], ["batch1"]),
        node("Concat", ["batch1", "minus"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"zero": np.array(0), "axes": ints(0), "minus": ints(-1)}
    graph = read(build(nodes, {"x": f32("n", 3, 4)}, ["y"], constants), tmp_path, {"n": 2})
    assert [(n.op, len(n.inputs), n.attrs) for n in graph.nodes] == [("Reshape", 1, {})]
    assert list(graph.outputs[0].shape) == [2, 12]


def test_computed_constants_have_the_type_that_the_graph_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever type the package computes in."""
    monkeypatch.setattr(fold, "_by_reference", lambda *_: [np.array([0.1, 2.0])])
    array = np.array([0.1, 2.0], np.float32)
    (got,) = fold.evaluate_node(node("Identity", ["x"], ["y"]), {}, [array], [Value(np.dtype(np.float32), (2,))], 17)
    assert got.dtype == np.float32 and np.array_equal(got, array)


def test_arithmetic_on_shapes(tmp_path: Path) -> None:
    """Slice, Cast, Mul, Div, Range, Where, Equal, ConstantOfShape, Expand of constants, in float64 on the way."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "one", "two"], ["c"]),
        node("Cast", ["c"], ["cd"], to=TensorProto.DOUBLE),
        node("Mul", ["cd", "half"], ["hd"]),
        node("Cast", ["hd"], ["h"], to=TensorProto.INT64),
        node("Concat", ["h", "minus"], ["t"], axis=0),
        node("ConstantOfShape", ["two"], ["z"], value=numpy_helper.from_array(np.array([-1]))),
        node("Equal", ["t", "z"], ["eq"]),
        node("Where", ["eq", "six", "t"], ["shape"]),
        node("Reshape", ["x", "shape"], ["r"]),
        node("Size", ["x"], ["size"]),
        node("Range", ["zero", "size", "three"], ["range"]),
        node("Expand", ["range", "one"], ["same"]),
        node("Cast", ["same"], ["f"], to=TensorProto.FLOAT),
        node("Slice", ["f", "zeros", "minus"], ["few"]),
        node("Unsqueeze", ["few", "one"], ["column"]),
        node("Slice", ["column", "zeros", "two"], ["column2"]),
        node("Add", ["r", "column2"], ["y"]),
    ]
    constants = {
        "one": ints(1),
        "two": ints(2),
        "half": np.array([0.5], np.float64),
        "minus": ints(-1),
        "six": np.array(6),
        "zero": np.array(0),
        "zeros": ints(0),
        "three": np.array(3),
    }
    graph = read(build(nodes, {"x": f32(3, 4)}, ["y"], constants), tmp_path)
    assert [n.op for n in graph.nodes] == ["Reshape", "Add"]
    assert list(graph.outputs[0].shape) == [2, 6]
    assert graph.nodes[1].inputs[1].data.tolist() == [[0.0], [3.0]]


@pytest.mark.parametrize("opset", [7, 11, 13, 20])
def test_identity_dropout_and_casts_disappear(tmp_path: Path, opset: int) -> None:
    nodes = [
        node("Identity", ["x"], ["a"]),
        node("Dropout", ["a"], ["b", "mask"]),
        node("Cast", ["b"], ["c"], to=TensorProto.FLOAT),
        node("Relu", ["c"], ["d"]),
        node("Identity", ["d"], ["y"]),
    ]
    graph = read(build(nodes, {"x": f32(2)}, ["y"], opset=opset), tmp_path)
    assert [(n.op, n.inputs[0].name, n.outputs[0].name) for n in graph.nodes] == [("Relu", "x", "y")]


def test_every_output_keeps_its_own_name(tmp_path: Path) -> None:
    """Outputs that are an input, a constant, or the same tensor twice are copies."""
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Identity", ["a"], ["first"]),
        node("Identity", ["a"], ["second"]),
        node("Identity", ["x"], ["third"]),
        node("Identity", ["w"], ["fourth"]),
    ]
    outputs = ["first", "second", "third", "fourth", "a"]
    graph = read(build(nodes, {"x": f32(2)}, outputs, {"w": np.ones(3, np.float32)}), tmp_path)
    assert [t.name for t in graph.outputs] == outputs
    assert [list(t.shape) for t in graph.outputs] == [[2], [2], [2], [3], [2]]
    assert len({id(t) for t in graph.outputs}) == 5
    assert [n.op for n in graph.nodes] == ["Relu", "Reshape", "Reshape", "Reshape", "Reshape"]
    sources = {node.outputs[0].name: node.inputs[0] for node in graph.nodes}
    assert sources["second"] is sources["a"] is graph.outputs[0]
    assert sources["third"] is graph.inputs[0]


def test_quantised_weights_stay_quantised(tmp_path: Path) -> None:
    """Float weights behind QuantizeLinear become integers; DequantizeLinear of constants stays."""
    nodes = [
        node("QuantizeLinear", ["w", "s", "z"], ["wq"]),
        node("DequantizeLinear", ["wq", "s", "z"], ["wd"]),
        node("MatMul", ["x", "wd"], ["y"]),
    ]
    constants = {"w": np.array([[0.24, 0.26], [-9.0, 100.0]], np.float32), "s": np.float32(0.5), "z": np.int8(1)}
    graph = read(build(nodes, {"x": f32(1, 2)}, ["y"], constants), tmp_path)
    assert [n.op for n in graph.nodes] == ["DequantizeLinear", "MatMul"]
    assert graph.nodes[0].inputs[0].data.tolist() == [[1, 2], [-17, 127]]
    assert graph.nodes[0].inputs[0].dtype.numpy == np.int8


def test_dequantised_bounds_of_clip(tmp_path: Path) -> None:
    nodes = [node("DequantizeLinear", ["q", "s", "z"], ["high"]), node("Clip", ["x", "", "high"], ["y"])]
    graph = read(build(nodes, {"x": f32(2)}, ["y"], {"q": np.uint8(26), "s": np.float32(0.5), "z": np.uint8(2)}), tmp_path)
    assert [(n.op, n.attrs, len(n.inputs)) for n in graph.nodes] == [("Clip", {"min": None, "max": 12.0}, 1)]


@pytest.mark.parametrize(
    ("op", "names", "position"),
    [
        ("Reshape", ["x", "r"], 1),
        ("Slice", ["x", "r", "r"], 1),
        ("Pad", ["x", "r"], 1),
        ("Unsqueeze", ["x", "r"], 1),
        ("Expand", ["x", "r"], 1),
        ("ReduceSum", ["x", "r"], 1),
        ("Tile", ["x", "r"], 1),
        ("Split", ["x", "r"], 1),
    ],
)
def test_run_time_settings_are_refused(tmp_path: Path, op: str, names: list[str], position: int) -> None:
    model = build([node(op, names, ["y"], name="the node")], {"x": f32(2, 3), "r": ([2], TensorProto.INT64)}, ["y"])
    with pytest.raises(UnsupportedError, match=rf"'the node' \({op}\) takes its input {position} \('r'\)"):
        read(model, tmp_path)


@pytest.mark.parametrize("opset", [10, 13])
def test_folding_equals_onnxruntime(tmp_path: Path, opset: int) -> None:
    """A chain of constant nodes gives the same bits as onnxruntime."""
    onnxruntime = pytest.importorskip("onnxruntime")
    nodes = [
        node("Div", ["i", "j"], ["q"]),
        node("Cast", ["q"], ["qf"], to=TensorProto.FLOAT),
        node("Mul", ["qf", "w"], ["m"]),
        node("QuantizeLinear", ["m", "s", "z"], ["mq"]),
        node("Cast", ["mq"], ["mf"], to=TensorProto.FLOAT),
        node("Transpose", ["mf"], ["t"], perm=[1, 0]),
        node("Add", ["x", "t"], ["y"]),
    ]
    generator = np.random.default_rng(3)
    constants = {
        "i": generator.integers(-50, 50, (3, 4)),
        "j": np.array(7),
        "w": generator.normal(size=(3, 4)).astype(np.float32),
        "s": np.float32(0.13),
        "z": np.uint8(100),
    }
    model = build(nodes, {"x": f32(4, 3)}, ["y"], constants, opset)
    graph = read(model, tmp_path)
    assert [n.op for n in graph.nodes] == ["Add"]
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    zeros = np.zeros((4, 3), np.float32)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": zeros})
    np.testing.assert_array_equal(graph.nodes[0].inputs[1].data, expected)
