"""Operators of QONNX, in which Brevitas, FINN and other tools for training with few bits write quantisation: spelled as ONNX does it.

``Quant`` rounds to steps of a scale, limits them to so many bits and gives the number that they stand for: a QuantizeLinear behind a Clip,
and a DequantizeLinear, where that is the same in every bit; else the definition in floats, whose whole numbers become bytes. Of a constant,
only the DequantizeLinear is left. ``Trunc`` drops bits of such steps, ``MultiThreshold`` counts how many thresholds a value reaches.
(https://github.com/fastmachinelearning/qonnx, qonnx-custom-ops)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.errors import UnsupportedError
from deeploy.frontend.integer_graphs import MEANS
from deeploy.frontend.lower.quant import behind_dequantisation, byte_tensor
from deeploy.frontend.schemas import PRODUCTS, SELECTING
from deeploy.ir.nodes import INTEGER_FORM, Node, Tensor, compute, constant
from deeploy.ir.rewriting import Match, Pass, Result, need, require, standard
from deeploy.ir.types import DType
from deeploy.operators.scan import MOST_THRESHOLDS, THRESHOLDS

NEAREST = ("ROUND", "HALF_EVEN")  # the nearest step, the even one of two: what QuantizeLinear does
_MOST_BITS = 32
_LEAST = 64  # elements of weights: a scale is as long as a few floats
_REMEDY = "Correct the model, or export it again."
_DIRECT = {"CEIL": "Ceil", "FLOOR": "Floor", **dict.fromkeys(NEAREST, "Round")}
# Modes that go by the distance from zero: what is added to it, and how the sum is rounded.
_BY_SIZE = {
    **{"UP": (0.0, "Ceil"), "HALF_DOWN": (-0.5, "Ceil"), "HALF_UP": (0.5, "Floor")},
    **dict.fromkeys(("DOWN", "ROUND_TO_ZERO"), (0.0, "Floor")),
}


@dataclass(frozen=True)
class _Steps:
    """Whole numbers of a type and what they stand for: (steps - zero) * scale, which broadcasts over tensors of so many axes."""

    scale: np.ndarray
    zero: np.ndarray
    dtype: DType
    rank: int

    @property
    def axis(self) -> int | None:
        """The one axis along which there are several values; 0 where there is one of each, None where there are several such axes."""
        long = {axis + self.rank - array.ndim for array in (self.scale, self.zero) for axis, n in enumerate(array.shape) if n > 1}
        return None if len(long) > 1 else next(iter(long), 0)

    def convert(self, x: Tensor, op: str, dtype: DType) -> Tensor:
        """The result of QuantizeLinear or DequantizeLinear: with one of each parameter, or one for every entry along an axis."""
        count = max(self.scale.size, self.zero.size)
        scale, zero = (v.reshape(()) if count == 1 else np.broadcast_to(v.ravel(), count) for v in (self.scale, self.zero))
        parameters = constant(scale, DType.FLOAT32, "scale"), constant(zero, self.dtype, "zero point")
        return compute(op, x, *parameters, dtype=dtype, axis=self.axis)

    def quantise(self, x: Tensor) -> Tensor:
        return self.convert(x, "QuantizeLinear", self.dtype)

    def dequantise(self, x: Tensor) -> Tensor:
        return self.convert(x, "DequantizeLinear", DType.FLOAT32)

    def measure(self, x: Tensor) -> Tensor:
        """Numbers in steps, before rounding."""
        steps = x / self.scale
        return steps + self.zero if self.zero.any() else steps

    def numbers(self, steps: Tensor) -> Tensor:
        """What whole numbers in floats stand for: dequantised, where a byte holds them, so that what reads them may compute integers."""
        if self.axis is None or self.dtype.bytes > 1 or not is_whole(self.zero):
            return (steps - self.zero if self.zero.any() else steps) * self.scale
        return self.dequantise(replace(self, scale=np.ones(()), zero=np.zeros(())).quantise(steps))


def is_whole(values: np.ndarray | None) -> bool:
    """Whether all values are whole numbers, as those are that are not known."""
    return values is None or np.array_equal(values, np.rint(values))


def _read_parameter(m: Match, position: int, name: str) -> np.ndarray:
    """A constant that broadcasts over the first input without changing its shape: a positive scale, or whole numbers."""
    value, shape, is_scale = m.value(position), m.x.shape, name.startswith("scale")
    if value is None:
        raise UnsupportedError(f"{m.node} computes its {name} at run time", "Export the model with constant parameters of quantisation.")
    value = (value.reshape(()) if value.size == 1 else value).astype(np.float64)
    if value.ndim > len(shape) or any(n not in (1, most) for n, most in zip(value.shape[::-1], shape[::-1], strict=False)):
        what = f"{m.node} has a {name} of shape {list(value.shape)} for {list(shape)}"
        raise UnsupportedError(what, "Give one, or one for every entry along axes.")
    if not (np.isfinite(value) & ((value > 0) if is_scale else (value == np.rint(value)))).all():
        raise UnsupportedError(f"{m.node} has a {name} that is not {'positive' if is_scale else 'a whole number'}", _REMEDY)
    return value


def _read_bits(m: Match, position: int) -> np.ndarray:
    bits = _read_parameter(m, position, "number of bits")
    if bits.size and not 1 <= bits.min() <= bits.max() <= _MOST_BITS:
        raise UnsupportedError(f"{m.node} has steps of {bits.max():g} bits", f"1 to {_MOST_BITS} bits are supported.")
    return bits


def _read_ends(m: Match, position: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest step of so many bits."""
    bits, narrow = _read_bits(m, position), int(m.attrs.get("narrow", 0))
    low = narrow - 2 ** (bits - 1) if m.attrs.get("signed", 1) else 0 * bits
    return low, low + 2**bits - narrow - 1


def _smallest_type(low: float, high: float) -> DType:
    ends = int(low), int(high)
    return DType.UINT8 if DType.UINT8.holds(*ends) else DType.smallest(*ends)


def _round_tensor(m: Match, x: Tensor, default: str) -> Tensor:
    """The whole numbers, in floats, that the node's mode makes of a tensor."""
    mode = _read_mode(m, default)
    if mode in _DIRECT:
        return x.apply(_DIRECT[mode])
    (shift, op), size = _BY_SIZE[mode], x.apply("Abs")
    return x.apply("Sign") * (size + shift if shift else size).apply(op)


def _read_mode(m: Match, default: str) -> str:
    return str(m.attrs.get("rounding_mode", default)).upper()


def _limit_tensor(x: Tensor, low: np.ndarray, high: np.ndarray) -> Tensor:
    return x.apply("Clip", min=float(low), max=float(high)) if low.size == high.size == 1 else x.apply("Max", low).apply("Min", high)


@standard("Quant", "IntQuant")
def lower_quant(m: Match, x: Tensor) -> Result:
    require(x.dtype.is_float)
    scale, zero, (low, high) = _read_parameter(m, 1, "scale"), _read_parameter(m, 2, "zero point"), _read_ends(m, 3)
    dtype = _smallest_type(low.min(), high.max())
    steps = _Steps(scale, zero, dtype, x.rank)
    if not dtype.holds(int(zero.min()), int(zero.max())):
        raise UnsupportedError(f"{m.node} has a zero point that its steps do not hold", _REMEDY)
    whole = _limit_tensor(_round_tensor(m, steps.measure(x), "ROUND"), low, high)
    if x.data is not None and steps.axis is not None:
        return steps.dequantise(constant(need(whole.data), dtype, "steps"))
    is_limited, has_one_of_each = (int(low.min()), int(high.max())) != dtype.range, scale.size == zero.size == low.size == 1
    is_plain = x.data is None and steps.axis is not None and dtype.bytes == low.size == 1 and (has_one_of_each or not is_limited)
    # Odd zero points are added before a tie goes to the even step.
    if is_plain and _read_mode(m, "ROUND") in NEAREST and not (zero % 2).any():
        bounded = _limit_tensor(x, (low - zero) * scale, (high - zero) * scale) if is_limited else x
        return steps.dequantise(steps.quantise(bounded))
    return steps.numbers(whole)


@standard("Trunc")
def lower_trunc(m: Match, x: Tensor) -> Result:
    """Steps without their lowest bits: as many as the numbers of bits say or, with six inputs, as the scales say."""
    require(x.dtype.is_float)
    is_recent, scale, zero = m.input(5) is not None, _read_parameter(m, 1, "scale"), _read_parameter(m, 2, "zero point")
    low, high = _read_ends(m, 5 if is_recent else 4)
    steps = left = _Steps(scale, zero, DType.INT32, x.rank)
    if is_recent:
        scale = _read_parameter(m, 4, "scale of the result")
        factor = 2.0 ** np.rint(np.log2(scale / steps.scale))
        left = replace(steps, scale=scale, zero=zero / factor, dtype=_smallest_type(low.min(), high.max()))
    else:
        factor = 2.0 ** (_read_bits(m, 3) - _read_bits(m, 4))
        ends = _find_range(x)  # nothing else limits these
        if ends is not None:
            kept = np.array([np.rint(end / scale + zero) / factor for end in ends])
            left = replace(steps, dtype=_smallest_type(np.floor(kept.min()), np.ceil(kept.max())))
    whole = _round_tensor(m, steps.measure(x).apply("Round") * (1 / factor), "FLOOR")
    return left.numbers(_limit_tensor(whole, low, high) if is_recent else whole)


def _find_range(x: Tensor) -> Sequence[float] | None:
    """The least and the greatest number of a tensor, as far as its quantisation and what is computed of it say; else None."""
    node, q = x.maker, behind_dequantisation(x)
    if q is not None:
        numbers = (np.array(q.tensor.dtype.range)[:, None] - q.zero_point.ravel()) * q.scale.ravel()
        return numbers.min(), numbers.max()
    if node is None:
        return None
    if node.op == "Clip" and None not in (node.attrs["min"], node.attrs["max"]):
        return node.attrs["min"], node.attrs["max"]
    factor = node.operands[1].data if node.op == "Mul" else np.ones(1)
    ends = _find_range(node.operands[0]) if node.op in (*SELECTING, *MEANS, "Relu", "Mul") and factor is not None else None
    if ends is None or factor is None:
        return None
    ends = [float(end * one) for end in ends for one in (factor.min(), factor.max())]
    if any(node.attrs.get("pads", ())):  # zeros may count
        ends = [*ends, float(node.attrs.get("value") or 0)]
    return [max(end, 0.0) if node.op == "Relu" else end for end in (min(ends), max(ends))]


@standard("BipolarQuant", kind="f")
def lower_bipolar(m: Match, x: Tensor) -> Tensor:
    """The scale, or less than nothing of it, by the sign; 0 is positive."""
    steps = _Steps(_read_parameter(m, 1, "scale"), np.zeros(()), DType.INT8, x.rank)
    # Scales along several axes are chosen themselves, else the steps 1 and -1.
    positive, dtype = (steps.scale, DType.FLOAT32) if steps.axis is None else (np.ones(1), steps.dtype)
    result = x.apply("GreaterOrEqual", [0.0]).apply("Where", constant(positive, dtype, "positive"), constant(-positive, dtype, "negative"))
    return result if steps.axis is None else steps.dequantise(result)


@standard(*PRODUCTS, kind="f")
def lower_signs(m: Match, x: Tensor, weights: np.ndarray) -> Tensor:
    """Weights of one size for every column or filter, and of either sign: bytes behind a scale, where they stay so."""
    axis = weights.ndim - 1 - m.attrs.get("transB", 0) if m.op in ("MatMul", "Gemm") else int(m.op == "ConvTranspose")
    sizes = np.abs(weights).max(tuple(i for i in range(weights.ndim) if i != axis), keepdims=True, initial=0)
    sign = np.sign(weights)
    require(weights.ndim == 2 or (weights.ndim > 2 and behind_dequantisation(x)), weights.size >= _LEAST, np.isfinite(sizes).all())
    require(sign.all(), sign.min() < sign.max(), np.array_equal(sign * sizes, weights))
    steps = _Steps(sizes if np.ptp(sizes) else sizes.ravel()[:1], np.zeros(()), DType.INT8, weights.ndim)
    return m.replace(m.op, x, steps.dequantise(constant(sign, DType.INT8, "signs")), *m.node.inputs[2:], **m.attrs)


@standard("MultiThreshold")
def lower_thresholds(m: Match) -> Result:
    """The number of thresholds that are not above a value: a table for bytes with one row of thresholds, else a search."""
    rows, shape, q = m.value(1), m.x.shape, byte_tensor(m.x)
    at = 1 if m.attrs.get("data_layout", "NCHW") != "NHWC" and len(shape) in (2, 4) else len(shape) - 1
    if rows is None or rows.ndim != 2 or rows.shape[0] not in (1, shape[at]) or np.isnan(rows).any():
        what = f"{m.node} has thresholds {'at run time' if rows is None else f'of shape {list(rows.shape)}'} for {shape[at]} channels"
        raise UnsupportedError(what, f"Give constants of shape [{shape[at]}, N] or [1, N].")
    if rows.shape[1] > MOST_THRESHOLDS:
        remedy = f"Up to {MOST_THRESHOLDS}, for results of 8 bits, are supported."
        raise UnsupportedError(f"{m.node} has {rows.shape[1]} thresholds", remedy)
    scale, bias = float(m.attrs.get("out_scale", 1.0)), float(m.attrs.get("out_bias", 0.0))
    x, ordered = m.x, np.sort(rows.astype(np.float32 if m.x.dtype.is_float else np.float64), axis=1)
    if q is not None and q.tensor.data is None:  # which bytes reach a threshold, is known
        x, ordered = q.tensor, q.tensor.dtype.range[0] + np.searchsorted(q.every, ordered, side="left").astype(np.float64)
    counts = _count_thresholds(x, ordered, at)
    if not m.y.dtype.is_float:
        (low, high), constants = reached_results(m.node), (constant(np.array([value]), DType.INT32) for value in (scale, bias))
        return compute("RequantShift", counts, *constants, dtype=m.y.dtype, domain=INTEGER_FORM, shift=0, low=low, high=high)
    zero = -bias / scale if scale else 0.5
    if scale > 0 and zero == round(zero) and 0 <= zero <= 255:
        return _Steps(np.array(scale), np.array(zero), DType.UINT8, x.rank).dequantise(counts)
    return counts.cast(DType.FLOAT32) * np.array([scale]) + np.array([bias])


def reached_results(node: Node) -> tuple[int, int]:
    """The least and the greatest result of a MultiThreshold of a graph of integers."""
    scale, bias = (float(node.attrs.get(name, default)) for name, default in (("out_scale", 1.0), ("out_bias", 0.0)))
    if scale != int(scale) or bias != int(bias):
        told = f"{node} gives steps of {scale:g} from {bias:g}"
        raise UnsupportedError(told, "Pass --dialect standard: the graph does not compute integers only.")
    ends = int(bias), int(bias + scale * node.operands[1].shape[-1])
    return min(ends), max(ends)


def _count_thresholds(x: Tensor, rows: np.ndarray, at: int) -> Tensor:
    """The counts of elements of x, as bytes: of its channels along an axis, each with a row of thresholds that rise."""
    shape, dtype = x.shape, x.dtype
    if not dtype.is_float:
        rows = np.clip(np.ceil(rows), *DType.INT32.range)
        dtype = DType.INT16 if (np.abs(rows) < 2**15).all() else DType.INT32
    folded = [1, 1, x.elements] if len(rows) == 1 else [math.prod(shape[:at]), shape[at], math.prod(shape[at + 1 :])]
    flat, limits = x.reshape(folded), constant(rows, dtype, "thresholds")
    return compute(THRESHOLDS.name, flat, limits, dtype=DType.UINT8, label="counts", domain=INTEGER_FORM).reshape(shape)


PASS = Pass("qonnx", (lower_quant, lower_trunc, lower_bipolar, lower_signs, lower_thresholds))
