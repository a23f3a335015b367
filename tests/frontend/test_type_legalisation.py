"""Floats of 16 bits and integers of 4: computed in wider types, with the values that they have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import UnsupportedError
from deeploy.ir.types import DType
from tests.models import save_graph

RANDOM = np.random.default_rng(5)


def save(
    path: Path, nodes: list[onnx.NodeProto], kinds: tuple[int, int], shapes: tuple[list[int], list[int]], tensors: list[TensorProto]
) -> Path:
    ports = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in zip("xy", kinds, shapes, strict=True)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    return save_graph(graph, path, 21)


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


SIGNS = np.where(RANDOM.random((24, 8)) < 0.5, -1, 1)
TWO_VALUES = {  # how a model has a matrix: a node that makes it, its constants, and the floats that they stand for
    "signs of bytes": ("DequantizeLinear", (np.int8(SIGNS), np.float32(0.5)), SIGNS * 0.5),
    "zeros and ones": ("DequantizeLinear", (np.uint8(SIGNS > 0), np.float32(0.5)), (SIGNS > 0) * 0.5),
    "signs of floats": ("Sign", (np.float32(SIGNS * RANDOM.uniform(1, 2, (24, 8))),), SIGNS),
    "sizes of columns": ("Identity", (np.float32(SIGNS * np.arange(1, 9)),), SIGNS * np.arange(1, 9)),
}


@pytest.mark.parametrize("is_quantised", [True, False])
@pytest.mark.parametrize("form", TWO_VALUES)
def test_matrices_of_two_values_take_a_bit_for_each(form: str, is_quantised: bool, tmp_path: Path) -> None:
    op, constants, weights = TWO_VALUES[form]
    tensors = [numpy_helper.from_array(np.asarray(values), f"w{i}") for i, values in enumerate(constants)]
    tensors += [numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(np.int8(0), "z")]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node(op, [f"w{i}" for i in range(len(constants))], ["w"]),
        helper.make_node("MatMul", ["d" if is_quantised else "x", "w"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["o"]),
        helper.make_node("DequantizeLinear", ["o", "s", "z"], ["y"]),
    ]
    model = save(tmp_path / "model.onnx", nodes, (TensorProto.FLOAT, TensorProto.FLOAT), ([3, 24], [3, 8]), tensors)
    x = (RANDOM.integers(-2, 3, (3, 24)) / 2).astype(np.float32)
    result = deeploy.compile(model)
    np.testing.assert_array_equal(result.run([x])[0], np.clip(np.rint(x @ weights / 0.5), -128, 127) * 0.5)
    stored = [b for b in result.network.program.buffers.values() if b.data is not None]
    assert [b.data.nbytes for b in stored if b.data is not None and b.dtype.bits == 1] == [SIGNS.size // 8]
    assert all(b.data is None or b.data.size < SIGNS.size for b in stored)  # the floats are gone


def test_matrices_of_one_value_are_not_packed(tmp_path: Path) -> None:
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in (("w", np.ones((24, 8), np.int8)), ("s", np.float32(0.5)))]
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["d"]), helper.make_node("MatMul", ["x", "d"], ["y"])]
    model = save(tmp_path / "model.onnx", nodes, (TensorProto.FLOAT, TensorProto.FLOAT), ([3, 24], [3, 8]), tensors)
    (stored,) = [b for b in deeploy.compile(model).network.program.buffers.values() if b.data is not None and b.data.size == 192]
    assert stored.dtype is DType.INT8
