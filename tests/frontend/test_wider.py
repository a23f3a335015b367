"""Floats of 16 bits and integers of 4: computed in wider types, with the values that they have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import UnsupportedError
from deeploy.graph.types import DType

RANDOM = np.random.default_rng(5)


def save(
    path: Path, nodes: list[onnx.NodeProto], kinds: tuple[int, int], shapes: tuple[list[int], list[int]], tensors: list[TensorProto]
) -> Path:
    ports = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in zip("xy", kinds, shapes, strict=True)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_floats_of_16_bits(kind: int, tmp_path: Path) -> None:
    """Weights as they are stored, everything else in 32 bits: also types that attributes name, and constants of nodes."""
    weights = numpy_helper.to_array(helper.make_tensor("w", kind, [6, 4], RANDOM.normal(size=24).astype(np.float32)))
    one = helper.make_node("Constant", [], ["one"], value=helper.make_tensor("one", kind, [1], [1.5]))
    nodes = [
        one,
        helper.make_node("Cast", ["x"], ["h"], to=kind),
        helper.make_node("MatMul", ["h", "w"], ["p"]),
        helper.make_node("Add", ["p", "one"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    stored = helper.make_tensor("w", kind, [6, 4], weights.astype(np.float32).ravel())
    model = save(tmp_path / "model.onnx", nodes, (TensorProto.FLOAT, kind), ([3, 6], [3, 4]), [stored])
    x = RANDOM.normal(size=(3, 6)).astype(np.float32)
    sums = np.exp(x.astype(np.float64) @ weights.astype(np.float64) + 1.5)
    result = deeploy.compile(model)
    program = result.network.program
    assert {program.buffers[name].dtype for name in (*program.inputs, *program.outputs)} == {DType.FLOAT32}
    np.testing.assert_allclose(result.run([x])[0], sums / sums.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(("kind", "low", "high"), [(TensorProto.INT4, -8, 7), (TensorProto.UINT4, 0, 15)])
def test_weights_of_4_bits_are_integers(kind: int, low: int, high: int, tmp_path: Path) -> None:
    weights, zero = RANDOM.integers(low, high + 1, (6, 4)), np.array([1, 2, 0, 3])
    scales = {"s": np.float32(0.5), "sw": np.array([0.25, 0.5, 1, 2], np.float32), "z": np.int8(3)}
    tensors = [numpy_helper.from_array(np.asarray(values), name) for name, values in scales.items()]
    tensors += [helper.make_tensor("w", kind, [6, 4], weights.ravel()), helper.make_tensor("zw", kind, [4], zero)]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["f"], axis=1),
        helper.make_node("MatMul", ["d", "f"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["o"]),
        helper.make_node("DequantizeLinear", ["o", "s", "z"], ["y"]),
    ]
    model = save(tmp_path / "model.onnx", nodes, (TensorProto.FLOAT, TensorProto.FLOAT), ([3, 6], [3, 4]), tensors)
    x = (RANDOM.integers(-9, 9, (3, 6)) / 2).astype(np.float32)
    product = x @ ((weights - zero) * scales["sw"])
    expected = (np.clip(np.rint(product / 0.5) + 3, -128, 127) - 3) * 0.5
    result = deeploy.compile(model)
    np.testing.assert_array_equal(result.run([x])[0], expected.astype(np.float32))
    (stored,) = [b for b in result.network.program.buffers.values() if b.data is not None and b.data.size == 24]
    assert stored.dtype is DType.INT8


def test_activations_of_4_bits_are_refused(tmp_path: Path) -> None:
    tensors = [numpy_helper.from_array(np.float32(0.5), "s"), helper.make_tensor("z", TensorProto.INT4, [], [0])]
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    model = save(tmp_path / "model.onnx", nodes, (TensorProto.FLOAT, TensorProto.FLOAT), ([3], [3]), tensors)
    with pytest.raises(UnsupportedError, match="int4"):
        deeploy.compile(model)
