"""Operators of QONNX, in which Brevitas, FINN and other tools for training with few bits write quantisation: spelled as ONNX does it.

``Quant`` rounds to steps of a scale, limits them to so many bits and gives the number that they stand for: a QuantizeLinear behind a Clip,
and a DequantizeLinear, where that is the same in every bit; else the definition in floats, whose whole numbers become bytes. Of a constant,
only the DequantizeLinear is left. ``Trunc`` drops bits of such steps, ``MultiThreshold`` counts how many thresholds a value reaches.
(https://github.com/fastmachinelearning/qonnx, qonnx-custom-ops)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import UnsupportedError, shorten
from deeploy.frontend.lower.build import DOMAIN
from deeploy.frontend.lower.quant import byte, dequantised, limits
from deeploy.frontend.lower.rewriter import Rewriter, standard
from deeploy.graph.rewrite import Pass, constant, producer
from deeploy.graph.types import DType
from deeploy.operators.scan import MOST_THRESHOLDS, THRESHOLDS

NEAREST = ("ROUND", "HALF_EVEN")  # the nearest step, the even one of two: what QuantizeLinear does
_MOST_BITS = 32
_ORDERED = ("AveragePool", "GlobalAveragePool", "MaxPool", "GlobalMaxPool", "ReduceMean", "Reshape", "Flatten", "Transpose", "Slice")
# Modes that go by the distance from zero: what is added to it, and how the sum is rounded.
_BY_SIZE = {
    "UP": (0.0, "Ceil"),
    "DOWN": (0.0, "Floor"),
    "ROUND_TO_ZERO": (0.0, "Floor"),
    "HALF_UP": (0.5, "Floor"),
    "HALF_DOWN": (-0.5, "Ceil"),
}
_NUMPY = {"Ceil": np.ceil, "Floor": np.floor, "Round": np.rint}


class Steps(NamedTuple):
    """Whole numbers and what they stand for: (steps - zero) * scale."""

    scale: np.ndarray
    zero: np.ndarray
    dtype: DType


def _refused(rw: Rewriter, what: str, remedy: str) -> UnsupportedError:
    return UnsupportedError(f"node {shorten(rw.node.name)} ({rw.op}) {what}", remedy)


def _parameter(rw: Rewriter, position: int, name: str) -> np.ndarray:
    """A constant that broadcasts over the first input without changing its shape."""
    value, shape = rw.value(position), tuple(rw.x.shape)
    if value is None:
        raise _refused(rw, f"computes its {name} at run time", "Export the model with constant parameters of quantisation.")
    if value.size == 1:
        value = value.reshape(())
    if value.ndim > len(shape) or any(n not in (1, most) for n, most in zip(value.shape[::-1], shape[::-1], strict=False)):
        raise _refused(rw, f"has a {name} of shape {list(value.shape)} for {list(shape)}", "Give one, or one for every entry along axes.")
    return value.astype(np.float64)


def _scale(rw: Rewriter, position: int, name: str = "scale") -> np.ndarray:
    scale = _parameter(rw, position, name)
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise _refused(rw, f"has a {name} that is not positive", "Correct the model, or export it again.")
    return scale


def _whole(rw: Rewriter, position: int, name: str) -> np.ndarray:
    value = _parameter(rw, position, name)
    if not np.isfinite(value).all() or not np.array_equal(value, np.rint(value)):
        raise _refused(rw, f"has a {name} that is not a whole number", "Correct the model, or export it again.")
    return value


def _ends(rw: Rewriter, position: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest step of so many bits."""
    bits = _bits(rw, position)
    narrow = int(rw.attrs.get("narrow", 0))
    if rw.attrs.get("signed", 1):
        return -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1
    return 0 * bits, 2**bits - 1 - narrow


def _bits(rw: Rewriter, position: int) -> np.ndarray:
    bits = _whole(rw, position, "number of bits")
    if bits.size and not 1 <= bits.min() <= bits.max() <= _MOST_BITS:
        raise _refused(rw, f"has steps of {bits.max():g} bits", f"1 to {_MOST_BITS} bits are supported.")
    return bits


def _mode(rw: Rewriter, default: str) -> str:
    return str(rw.attrs.get("rounding_mode", default)).upper()


def _axis(rw: Rewriter, *values: np.ndarray) -> int | None:
    """The one axis of x along which there are several values; 0 where there is one of each, None where there are several such axes."""
    rank = len(rw.x.shape)
    long = {axis + rank - array.ndim for array in values for axis, n in enumerate(array.shape) if n > 1}
    return None if len(long) > 1 else next(iter(long), 0)


def _parameters(rw: Rewriter, scale: np.ndarray, zero: np.ndarray, dtype: DType) -> list[gs.Tensor]:
    """Scale and zero point as ONNX wants them: one of each, or one for every entry along an axis."""
    one = scale.size == zero.size == 1
    flat = [values.reshape(()) if one else np.broadcast_to(values.ravel(), max(scale.size, zero.size)) for values in (scale, zero)]
    return [rw.constant(flat[0], np.float32, "scale"), rw.constant(flat[1], dtype.numpy, "zero point")]


def _rounded(rw: Rewriter, x: gs.Tensor, mode: str) -> gs.Tensor:
    """Whole numbers, in floats."""
    if mode not in _BY_SIZE:
        return rw.create({"CEIL": "Ceil", "FLOOR": "Floor"}.get(mode, "Round"), x)
    shift, op = _BY_SIZE[mode]
    size = rw.create("Abs", x)
    return rw.create("Mul", rw.create("Sign", x), rw.create(op, rw.create("Add", size, rw.constant(shift)) if shift else size))


def _round_values(x: np.ndarray, mode: str) -> np.ndarray:
    if mode not in _BY_SIZE:
        return np.asarray(_NUMPY[{"CEIL": "Ceil", "FLOOR": "Floor"}.get(mode, "Round")](x))
    shift, op = _BY_SIZE[mode]
    return np.asarray(np.sign(x) * _NUMPY[op](np.abs(x) + shift))


def _limited(rw: Rewriter, x: gs.Tensor, low: np.ndarray, high: np.ndarray) -> gs.Tensor:
    if low.size == high.size == 1:
        return rw.create("Clip", x, min=float(low), max=float(high))
    return rw.create("Min", rw.create("Max", x, rw.constant(low, np.float32, "least")), rw.constant(high, np.float32, "most"))


def _moved(rw: Rewriter, op: str, x: gs.Tensor, by: np.ndarray) -> gs.Tensor:
    """``x`` plus or minus a constant, which may be nothing."""
    return rw.create(op, x, rw.constant(by, np.float32, "zero point")) if by.any() else x


def _numbers(rw: Rewriter, steps: gs.Tensor, kind: Steps) -> bool:
    """What whole numbers in floats stand for: dequantised, where a byte holds them, so that what reads them may be computed of integers."""
    axis = _axis(rw, kind.scale, kind.zero)
    if axis is None or kind.dtype.bytes > 1 or not np.array_equal(kind.zero, np.rint(kind.zero)):
        return rw.replace("Mul", _moved(rw, "Sub", steps, kind.zero), rw.constant(kind.scale, np.float32, "scale"))
    unit = _parameters(rw, np.ones(()), np.zeros(()), kind.dtype)
    integers = rw.create("QuantizeLinear", steps, *unit, dtype=kind.dtype.numpy, axis=0)
    return rw.replace("DequantizeLinear", integers, *_parameters(rw, kind.scale, kind.zero, kind.dtype), axis=axis)


def _smallest(low: float, high: float) -> DType:
    return DType.UINT8 if DType.UINT8.holds(int(low), int(high)) else DType.smallest(int(low), int(high))


@standard("Quant", "IntQuant")
def quant(rw: Rewriter) -> bool:
    if not rw.is_float:
        return False
    scale, zero, (low, high), stored, x = _scale(rw, 1), _whole(rw, 2, "zero point"), _ends(rw, 3), rw.value(0), rw.x
    mode, axis, dtype = _mode(rw, "ROUND"), _axis(rw, scale, zero), _smallest(low.min(), high.max())
    if not dtype.holds(int(zero.min()), int(zero.max())):
        raise _refused(rw, "has a zero point that its steps do not hold", "Correct the model, or export it again.")
    if stored is not None:
        with np.errstate(all="ignore"):
            steps = np.clip(_round_values(stored.astype(np.float32) / scale.astype(np.float32) + zero, mode), low, high)
        if axis is None:
            return rw.forward(rw.constant(((steps - zero) * scale).astype(np.float32)))
        return rw.replace(
            "DequantizeLinear", rw.constant(steps.astype(dtype.numpy), label="steps"), *_parameters(rw, scale, zero, dtype), axis=axis
        )
    one_each, limited = scale.size == zero.size == 1, (int(low.min()), int(high.max())) != dtype.range
    # Odd zero points are added before a tie goes to the even step.
    if mode in NEAREST and axis is not None and dtype.bytes == 1 and not (zero % 2).any() and low.size == 1 and (one_each or not limited):
        if limited:
            bottom, top = ((float(end) - float(zero)) * float(scale) for end in (low, high))
            x = rw.create("Clip", x, min=bottom, max=top)
        parameters = _parameters(rw, scale, zero, dtype)
        return rw.replace(
            "DequantizeLinear", rw.create("QuantizeLinear", x, *parameters, dtype=dtype.numpy, axis=axis), *parameters, axis=axis
        )
    moved = _moved(rw, "Add", rw.create("Div", x, rw.constant(scale, np.float32, "scale")), zero)
    return _numbers(rw, _limited(rw, _rounded(rw, moved, mode), low, high), Steps(scale, zero, dtype))


@standard("Trunc")
def trunc(rw: Rewriter) -> bool:
    """Steps without their lowest bits: as many as the numbers of bits say or, with six inputs, as the scales say."""
    if not rw.is_float:
        return False
    is_recent = rw.input(5) is not None
    scale, zero, last = _scale(rw, 1), _whole(rw, 2, "zero point"), 5 if is_recent else 4
    low, high = _ends(rw, last)
    if is_recent:
        result = _scale(rw, 4, "scale of the result")
        factor = 2.0 ** np.rint(np.log2(result / scale))
        kind = Steps(result, zero / factor, _smallest(low.min(), high.max()))
    else:
        factor = 2.0 ** (_bits(rw, 3) - _bits(rw, 4))
        kind = Steps(scale, zero, _reached(rw, scale, zero, factor))
    steps = rw.create("Round", _moved(rw, "Add", rw.create("Div", rw.x, rw.constant(scale, np.float32, "scale")), zero))
    whole = _rounded(rw, rw.create("Mul", steps, rw.constant(1 / factor, np.float32, "factor")), _mode(rw, "FLOOR"))
    return _numbers(rw, _limited(rw, whole, low, high) if is_recent else whole, kind)


def _reached(rw: Rewriter, scale: np.ndarray, zero: np.ndarray, factor: np.ndarray) -> DType:
    """The type of what is left of steps, which nothing limits but what they are computed of; int32 where that is not known."""
    found = _range(rw.x)
    if found is None:
        return DType.INT32
    ends = [(np.rint(end / scale + zero)) / factor for end in found]
    return _smallest(min(math.floor(end.min()) for end in ends), max(math.ceil(end.max()) for end in ends))


def _range(x: gs.Tensor) -> tuple[float, float] | None:
    """The least and the greatest number of a tensor, as far as its quantisation and what is computed of it say; else None."""
    node, q = producer(x), dequantised(x)
    if q is not None:
        numbers = (np.array(limits(q.tensor))[:, None] - q.zero_point.ravel()) * q.scale.ravel()
        return float(numbers.min()), float(numbers.max())
    if node is None:
        return None
    factor = constant(node.inputs[1]) if node.op == "Mul" else None
    if node.op == "Clip" and None not in (node.attrs["min"], node.attrs["max"]):
        return float(node.attrs["min"]), float(node.attrs["max"])
    found = _range(node.inputs[0]) if node.op in (*_ORDERED, "Relu") or factor is not None else None
    if found is None:
        return None
    low, high = found
    if factor is not None:
        products = [float(end * one) for end in found for one in (factor.min(), factor.max())]
        return min(products), max(products)
    if any(node.attrs.get("pads", ())):  # zeros may count
        low, high = min(low, 0.0), max(high, 0.0)
    return (max(low, 0.0), max(high, 0.0)) if node.op == "Relu" else (low, high)


@standard("BipolarQuant", kind="f")
def bipolar(rw: Rewriter) -> bool:
    """The scale, or less than nothing of it, by the sign; 0 is positive."""
    scale, stored = _scale(rw, 1), rw.value(0)
    axis = _axis(rw, scale)
    if stored is not None and axis is None:
        return rw.forward(rw.constant(np.where(stored >= 0, scale, -scale), np.float32))
    if stored is not None:
        steps: gs.Tensor = rw.constant(np.where(stored >= 0, 1, -1), np.int8, "steps")
    else:
        chosen = rw.create("GreaterOrEqual", rw.x, rw.constant([0.0]), dtype=np.bool_)
        if axis is None:
            return rw.replace("Where", chosen, rw.constant(scale, np.float32, "scale"), rw.constant(-scale, np.float32, "negative"))
        ones = (rw.constant([value], np.int8, label) for value, label in ((1, "one"), (-1, "less")))
        steps = rw.create("Where", chosen, *ones, dtype=np.int8)
    return rw.replace("DequantizeLinear", steps, *_parameters(rw, scale, np.zeros(()), DType.INT8), axis=axis)


@standard("MultiThreshold")
def thresholds(rw: Rewriter) -> bool:
    """The number of thresholds that are not above a value: a table for bytes with one row of thresholds, else a search."""
    rows, shape = rw.value(1), list(rw.x.shape)
    at = len(shape) - 1 if rw.attrs.get("data_layout", "NCHW") == "NHWC" or len(shape) not in (2, 4) else 1
    if rows is None or rows.ndim != 2 or rows.shape[0] not in (1, shape[at]) or np.isnan(rows).any():
        found = "at run time" if rows is None else f"of shape {list(rows.shape)}"
        raise _refused(rw, f"has thresholds {found} for {shape[at]} channels", f"Give constants of shape [{shape[at]}, N] or [1, N].")
    if rows.shape[1] > MOST_THRESHOLDS:
        raise _refused(rw, f"has {rows.shape[1]} thresholds", f"Up to {MOST_THRESHOLDS}, for results of 8 bits, are supported.")
    scale, bias, q = float(rw.attrs.get("out_scale", 1.0)), float(rw.attrs.get("out_bias", 0.0)), byte(rw.x)
    x, ordered = rw.x, np.sort(rows.astype(np.float32 if rw.is_float else np.float64), axis=1)
    if q is not None and not isinstance(q.tensor, gs.Constant):  # which bytes reach a threshold, is known
        first, last = limits(q.tensor)
        numbers = ((np.arange(first, last + 1) - q.z).astype(np.float32)) * np.float32(q.s)
        x, ordered = q.tensor, first + np.searchsorted(numbers, ordered, side="left").astype(np.float64)
    if np.dtype(x.dtype).kind != "f":
        ordered = np.clip(np.ceil(ordered), -(2.0**31), 2.0**31 - 1)
    counts = _counted(rw, x, ordered, at)
    zero = -bias / scale if scale else 0.5
    if np.dtype(rw.y.dtype).kind != "f":
        low, high = reached(rw.node)
        whole = gs.Variable(rw.name("whole numbers"), rw.y.dtype, shape)
        inputs = [counts, rw.constant([scale], np.int32, "mul"), rw.constant([bias], np.int32, "add")]
        rw.graph.nodes.append(gs.Node("RequantShift", whole.name, {"shift": 0, "low": low, "high": high}, inputs, [whole], domain=DOMAIN))
        return rw.forward(whole)
    if scale > 0 and zero == round(zero) and 0 <= zero <= 255:
        return rw.replace("DequantizeLinear", counts, rw.constant(scale, np.float32), rw.constant(zero, np.uint8), axis=0)
    scaled = rw.create("Mul", rw.create("Cast", counts, dtype=np.float32), rw.constant([scale]))
    return rw.replace("Add", scaled, rw.constant([bias]))


def reached(node: gs.Node) -> tuple[int, int]:
    """The least and the greatest result of a MultiThreshold of a graph of integers."""
    scale, bias = (float(node.attrs.get(name, default)) for name, default in (("out_scale", 1.0), ("out_bias", 0.0)))
    if scale != int(scale) or bias != int(bias):
        told = f"node {shorten(node.name)} ({node.op}) gives steps of {scale:g} from {bias:g}"
        raise UnsupportedError(told, "Pass --dialect standard: the graph does not compute integers only.")
    ends = (int(bias), int(bias + scale * node.inputs[1].shape[-1]))
    return min(ends), max(ends)


def _counted(rw: Rewriter, x: gs.Tensor, rows: np.ndarray, at: int) -> gs.Tensor:
    """The counts of elements of x, as bytes: of its channels along an axis, each with a row of thresholds that rise."""
    shape = list(x.shape)
    dtype = np.dtype(np.float32 if np.dtype(x.dtype).kind == "f" else np.int16 if (np.abs(rows) < 2**15).all() else np.int32)
    outer, inner = math.prod(shape[:at]), math.prod(shape[at + 1 :])
    folded = [1, 1, math.prod(shape)] if len(rows) == 1 else [outer, shape[at], inner]
    flat = rw.reshape(x, folded)
    result = gs.Variable(rw.name("counts"), np.dtype(np.uint8), folded)
    inputs = [flat, rw.constant(rows, dtype, "thresholds")]
    rw.graph.nodes.append(gs.Node(THRESHOLDS.name, result.name, {}, inputs, [result], domain=DOMAIN))
    return rw.create("Reshape", result, shape=shape, dtype=np.uint8)


PASS = Pass("qonnx", (quant, trunc, bipolar, thresholds))
