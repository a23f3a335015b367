"""Operators of QONNX: C and interpreter give what their definition says, and operands are stored in few bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import DeeployError
from deeploy.ir.types import DType

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


ROUNDINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ROUND": np.rint,
    "HALF_EVEN": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.trunc,
    "ROUND_TO_ZERO": np.trunc,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
}


@pytest.mark.parametrize("mode", sorted(ROUNDINGS))
@pytest.mark.parametrize("stored", [False, True])
def test_rounding_modes(mode: str, stored: bool, tmp_path: Path) -> None:
    """By the table of QONNX, in either case of letters; of a constant at compile time."""
    x = np.array([[5.5, 2.5, 1.6, 1.1, 1.0, -1.0, -1.1, -1.6, -2.5, -5.5, 0, 300, -300, 0.5, -0.5]], np.float32) / 4
    constants = {"s": np.float32(0.25), "z": np.float32(0), "b": np.float32(6), "one": np.float32(1), **({"c": x} if stored else {})}
    steps = node(
        "IntQuant", ["c" if stored else "x", "s", "z", "b"], "q", signed=1, narrow=0, rounding_mode=mode.lower() if stored else mode
    )
    model = save(tmp_path / "model.onnx", [steps, helper.make_node("Mul", ["q", "x"], ["y"])], constants, x.shape, x.shape)
    factor = np.ones_like(x) if stored else x
    expected = np.clip(ROUNDINGS[mode](x * 4), -32, 31) / 4 * factor
    (got,) = deeploy.compile(model).run([factor])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("scale", "zero", "bits"),
    [
        (np.array([0.25, 0.5, 1, 2, 4, 8]).reshape(6, 1, 1), 0, 4),  # channels of few bits
        (np.array([0.25, 0.5, 1, 2, 4, 8]).reshape(6, 1, 1), 0, np.array([2, 3, 4, 5, 6, 7]).reshape(1, 6, 1, 1)),
        (2.0 ** RANDOM.integers(-3, 3, (1, 6, 5, 1)), 0, 4),  # along two axes
        (0.25, np.array([1, 3, 0, 5, 2, 7]).reshape(6, 1, 1), 5),
    ],
)
def test_parameters_per_channel(scale: np.ndarray | float, zero: np.ndarray | int, bits: np.ndarray | int, tmp_path: Path) -> None:
    constants = {"s": scale, "z": zero, "b": bits}
    model = save(
        tmp_path / "model.onnx",
        [node("Quant", ["x", "s", "z", "b"], "y", signed=1, narrow=0)],
        {name: np.asarray(value) for name, value in constants.items()},
        X.shape,
        X.shape,
    )
    high = 2.0 ** (np.asarray(bits) - 1)
    expected = (np.clip(np.rint(X / scale + zero), -high, high - 1) - zero) * scale
    np.testing.assert_array_equal(deeploy.compile(model).run([X])[0], expected)


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize(
    ("given", "mode", "zero", "attrs"),
    [
        ([10, 8], "FLOOR", 0, {}),
        ([10, 8], "ROUND", 6, {}),
        ([10, 6], "ceil", 0, {}),
        ([10, np.float32(0.25), 8], "FLOOR", 0, {"signed": 1}),
        ([10, np.float32(0.5), 4], "ROUND", 0, {"signed": 1, "narrow": 1}),
        ([10, np.float32(0.5), 8], "floor", 8, {"signed": 0}),
    ],
)
def test_truncated_averages(given: list[float], mode: str, zero: int, attrs: dict[str, int], target: str, tmp_path: Path) -> None:
    """As Brevitas exports its pools: the average, times the number of elements, without its lowest bits; and a layer of integers behind."""
    shape, scale = (1, 4, 8, 8), np.float32(0.0625)
    w = RANDOM.normal(size=(5, 4, 1, 1)).astype(np.float32)
    names = [f"t{number}" for number in range(len(given))]
    nodes = [
        node("Quant", ["x", "s", "none", "eight"], "q", signed=1, narrow=0, rounding_mode="ROUND"),
        helper.make_node("AveragePool", ["q"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Mul", ["p", "four"], ["m"]),
        node("Trunc", ["m", "s", "z", *names], "t", rounding_mode=mode, **attrs),
        node("Quant", ["w", "s", "none", "eight"], "wq", signed=1, narrow=1, rounding_mode="ROUND"),
        helper.make_node("Conv", ["t", "wq"], ["y"]),
    ]
    constants = {"s": scale, "z": zero, "none": 0, "eight": 8, "four": 4, "w": w, **dict(zip(names, given, strict=True))}
    model = save(tmp_path / "model.onnx", nodes, {name: np.asarray(v) for name, v in constants.items()}, shape, (1, 5, 4, 4))
    x = RANDOM.normal(0, 3, shape).astype(np.float32)
    steps = np.clip(np.rint(x / scale), -128, 127).reshape(1, 4, 4, 2, 4, 2).sum(axis=(3, 5)) + zero
    rounding = ROUNDINGS[mode.upper()]
    if len(given) == 2:
        left = (rounding(steps / 2.0 ** (given[0] - given[1])) - zero) * scale
    else:
        factor, bits, narrow = given[1] / scale, int(given[2]), attrs.get("narrow", 0)
        low, high = (-(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1) if attrs["signed"] else (0, 2**bits - 1)
        left = (rounding(np.clip(steps / factor, low, high)) - zero / factor) * given[1]
    expected = np.einsum("nchw,kc->nkhw", left, np.clip(np.rint(w[..., 0, 0] / scale), -127, 127) * scale)
    made = deeploy.compile(model, target)
    (got,) = made.run([x])
    np.testing.assert_array_equal(got, made.interpret([x])[0])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize(
    ("shape", "rows", "count", "attrs"),
    [
        ((2, 6, 5, 5), 6, 15, {"out_scale": 0.5, "out_bias": -4.0, "out_dtype": "INT4"}),
        ((2, 6, 5, 5), 1, 255, {"out_scale": 1.0, "out_bias": -128.0, "out_dtype": "INT8"}),
        ((2, 5, 5, 6), 6, 3, {"out_dtype": "UINT2", "data_layout": "NHWC"}),
        ((4, 6), 6, 1, {"out_scale": 2.0, "out_bias": -1.0, "out_dtype": "BIPOLAR"}),
        ((2, 7, 6), 6, 7, {"out_scale": 0.3, "out_bias": 0.25, "out_dtype": "FLOAT32"}),
    ],
)
@pytest.mark.parametrize("quantised", [False, True])
def test_thresholds(
    shape: tuple[int, ...], rows: int, count: int, attrs: dict[str, Any], quantised: bool, target: str, tmp_path: Path
) -> None:
    """Of floats, and of bytes, where thresholds are of integers; thresholds in any order, and equal to elements."""
    axis = -1 if attrs.get("data_layout") == "NHWC" or len(shape) == 3 else 1
    x = (RANDOM.integers(-60, 60, shape) / 16).astype(np.float32)
    thresholds = (RANDOM.integers(-60, 60, (rows, count)) / 16).astype(np.float32)
    nodes = [node("Quant", ["x", "s", "z", "b"], "q", signed=1, narrow=0, rounding_mode="ROUND")] if quantised else []
    nodes.append(node("MultiThreshold", ["q" if quantised else "x", "t"], "y", "finn.custom_op.general", **attrs))
    constants = {"s": np.float32(0.0625), "z": np.float32(0), "b": np.float32(8), "t": thresholds}
    model = save(tmp_path / "model.onnx", nodes, constants, shape, shape)
    counts = np.moveaxis((np.moveaxis(x, axis, -1)[..., None] >= thresholds).sum(axis=-1), -1, axis)
    made = deeploy.compile(model, target)
    (got,) = made.run([x])
    np.testing.assert_array_equal(got, made.interpret([x])[0])
    np.testing.assert_allclose(got, attrs.get("out_scale", 1.0) * counts + attrs.get("out_bias", 0.0), rtol=1e-6, atol=1e-6)
    (call,) = (call for call in made.network.program.calls if call.node.op == "Thresholds")
    assert made.network.program.buffers[call.operands["x"].buffer].dtype is (DType.INT8 if quantised else DType.FLOAT32)


@pytest.mark.parametrize(
    ("thresholds", "problem"),
    [(np.zeros((2, 3)), "shape"), (np.zeros((6, 256)), "256 thresholds"), (np.full((6, 2), np.nan), "shape"), (np.zeros(6), "shape")],
)
def test_thresholds_that_are_refused(thresholds: np.ndarray, problem: str, tmp_path: Path) -> None:
    nodes = [node("MultiThreshold", ["x", "t"], "y", out_dtype="UINT8")]
    with pytest.raises(DeeployError, match=problem):
        deeploy.compile(save(tmp_path / "model.onnx", nodes, {"t": thresholds}, (1, 6, 4, 4), (1, 6, 4, 4)))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"rounding_mode": "SIDEWAYS", "signed": 1, "narrow": 0}, "rounding_mode = 'SIDEWAYS', not one of"),
        ({"rounding_mode": "ROUND", "signed": 1}, "lacks the attribute 'narrow'"),
        ({"rounding_mode": "ROUND", "signed": 2, "narrow": 0}, "signed = 2"),
    ],
)
def test_what_is_refused(more: dict[str, object], problem: str, tmp_path: Path) -> None:
    constants = {"s": np.float32(1), "z": np.float32(0), "b": np.float32(8)}
    model = save(tmp_path / "model.onnx", [node("Quant", ["x", "s", "z", "b"], "y", **more)], constants, (1, 4), (1, 4))
    with pytest.raises(DeeployError) as raised:
        deeploy.compile(model)
    assert problem in str(raised.value)


@pytest.mark.parametrize("wrong", [{"b": 2.5}, {"b": 40}, {"z": 0.5}, {"z": np.inf}, {"s": -1}, {"s": np.ones(3)}, {"b": np.zeros(0)}])
def test_parameters_that_are_no_quantisation(wrong: dict[str, Any], tmp_path: Path) -> None:
    constants = {name: np.asarray(value, np.float32) for name, value in {"s": 1, "z": 0, "b": 8, **wrong}.items()}
    nodes = [node("Quant", ["x", "s", "z", "b"], "y", signed=1, narrow=0)]
    with pytest.raises(DeeployError, match=r"\(Quant\) has"):
        deeploy.compile(save(tmp_path / "model.onnx", nodes, constants, (1, 4), (1, 4)))
