"""Operators of QONNX: C and interpreter give what their definition says, and operands are stored in few bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import DeeployError
from deeploy.graph.types import DType

RANDOM = np.random.default_rng(11)
X = (RANDOM.integers(-64, 64, (1, 6, 5, 5)) / 16).astype(np.float32)
W = (RANDOM.normal(size=(4, 6, 3, 3)) * np.array([1, 2, 4, 8]).reshape(4, 1, 1, 1)).astype(np.float32)
BIAS = RANDOM.normal(size=4).astype(np.float32)
Ends = tuple[int, int]


def quant(x: np.ndarray, scale: np.ndarray | float, zero: float, bits: int, signed: int, narrow: int) -> np.ndarray:
    """The definition of QONNX, in float64."""
    low = (-(2 ** (bits - 1)) + narrow) if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    return np.asarray((np.clip(np.rint(x / scale + zero), low, high) - zero) * scale)


def save(
    path: Path, nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], shape: tuple[int, ...], result: tuple[int, ...]
) -> Path:
    tensors = [numpy_helper.from_array(np.asarray(values, np.float32), name) for name, values in constants.items()]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)]
    graph = helper.make_graph(nodes, "g", *ports, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("qonnx.custom_op.general", 2), helper.make_opsetid("onnx.brevitas", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def node(op: str, inputs: list[str], output: str, domain: str = "qonnx.custom_op.general", **attrs: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], output, domain=domain, **attrs)


@pytest.mark.parametrize(
    ("bits", "signed", "narrow", "zero", "domain"),
    [
        (8, 1, 0, 0, "qonnx.custom_op.general"),
        (8, 0, 0, 37, "onnx.brevitas"),
        (4, 1, 1, 0, "qonnx.custom_op.general"),
        (4, 0, 0, 5, "qonnx.custom_op.general"),
        (2, 1, 0, -1, "onnx.brevitas"),
        (1, 0, 0, 0, "qonnx.custom_op.general"),
        (12, 1, 0, 0, "qonnx.custom_op.general"),
    ],
)
def test_a_convolution_of_few_bits(bits: int, signed: int, narrow: int, zero: int, domain: str, tmp_path: Path) -> None:
    """Scales are powers of two, so that the definition is exact in floats."""
    scales, filters = {"sx": 2.0 ** (3 - bits), "sy": 2.0 ** (7 - bits)}, np.array([2.0**-k for k in (2, 1, 0, 1)]).reshape(4, 1, 1, 1)
    shape = {"signed": signed, "narrow": narrow, "rounding_mode": "ROUND"}
    nodes = [
        node("Quant", ["x", "sx", "zero", "bits"], "xq", domain, **shape),
        node("Quant", ["w", "sw", "none", "four"], "wq", domain, signed=1, narrow=1, rounding_mode="ROUND"),
        node("Quant", ["b", "sb", "none", "wide"], "bq", domain, signed=1, narrow=0, rounding_mode="HALF_EVEN"),
        helper.make_node("Conv", ["xq", "wq", "bq"], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        node("Quant", ["r", "sy", "zero", "bits"], "y", domain, **shape),
    ]
    product = (scales["sx"] * filters).reshape(4)
    constants = {**scales, "sw": filters, "sb": product, "zero": zero, "none": 0, "bits": bits, "four": 4, "wide": 32, "w": W, "b": BIAS}
    model = save(tmp_path / "model.onnx", nodes, {n: np.asarray(v) for n, v in constants.items()}, X.shape, (1, 4, 3, 3))
    x, w, b = quant(X, scales["sx"], zero, bits, signed, narrow), quant(W, filters, 0, 4, 1, 1), quant(BIAS, product, 0, 32, 1, 0)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    sums = np.einsum("ncijhw,kchw->nkij", windows, w) + b.reshape(1, 4, 1, 1)
    result = deeploy.compile(model)
    expected = quant(np.maximum(sums, 0), scales["sy"], zero, bits, signed, narrow)
    assert len(np.unique(expected)) > 1
    np.testing.assert_array_equal(result.run([X])[0], expected)
    stored = {b.tensor: b.dtype for b in result.network.program.buffers.values() if b.data is not None}
    is_exact = bits <= 8 and zero % 2 == 0
    assert any(kind in stored.values() for kind in (DType.INT8, DType.INT4)) is is_exact
    assert any(call.kernel.op == "Unary" for call in result.network.program.calls) is not is_exact


def test_one_bit(tmp_path: Path) -> None:
    nodes = [
        node("BipolarQuant", ["x", "sx"], "s"),
        node("BipolarQuant", ["w", "sw"], "wq"),
        helper.make_node("MatMul", ["s", "wq"], ["y"]),
    ]
    w, sw = W.reshape(36, 6), np.array([[0.5, 1, 2, 4, 8, 0.25]], np.float32)
    x = np.array([[0.0, -0.0, 1e-9, -1e-9, *RANDOM.normal(size=32)]], np.float32)
    model = save(tmp_path / "model.onnx", nodes, {"sx": np.float32(0.5), "w": w, "sw": sw}, (1, 36), (1, 6))
    expected = np.where(x >= 0, 0.5, -0.5) @ np.where(w >= 0, sw, -sw)
    np.testing.assert_array_equal(deeploy.compile(model).run([x])[0], expected.astype(np.float32))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"rounding_mode": "FLOOR", "signed": 1, "narrow": 0}, "no kernel"),
        ({"rounding_mode": "SIDEWAYS", "signed": 1, "narrow": 0}, "rounding_mode = 'SIDEWAYS', not one of"),
        ({"rounding_mode": "ROUND", "signed": 1}, "has no narrow"),
        ({"rounding_mode": "ROUND", "signed": 2, "narrow": 0}, "signed = 2"),
    ],
)
def test_what_is_refused(more: dict[str, object], problem: str, tmp_path: Path) -> None:
    constants = {"s": np.float32(1), "z": np.float32(0), "b": np.float32(8)}
    model = save(tmp_path / "model.onnx", [node("Quant", ["x", "s", "z", "b"], "y", **more)], constants, (1, 4), (1, 4))
    with pytest.raises(DeeployError) as raised:
        deeploy.compile(model)
    assert problem in str(raised.value)


@pytest.mark.parametrize("wrong", [{"b": 2.5}, {"b": 40}, {"z": 0.5}, {"s": -1}])
def test_parameters_that_are_no_quantisation(wrong: dict[str, float], tmp_path: Path) -> None:
    constants = {name: np.float32(value) for name, value in {"s": 1, "z": 0, "b": 8, **wrong}.items()}
    nodes = [node("Quant", ["x", "s", "z", "b"], "y", signed=1, narrow=0)]
    with pytest.raises(DeeployError):
        deeploy.compile(save(tmp_path / "model.onnx", nodes, constants, (1, 4), (1, 4)))
