"""Operators of QONNX, in which Brevitas and other tools for training with few bits write quantisation: spelled as ONNX does it.

``Quant`` rounds to steps of a scale, limits them to so many bits and gives the number that they stand for: a QuantizeLinear behind a Clip,
and a DequantizeLinear, where that is the same in every bit. Of a constant, only the DequantizeLinear is left.
(https://github.com/fastmachinelearning/qonnx, qonnx-custom-ops)
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.rewriter import Rewriter, standard
from deeploy.graph.rewrite import Pass
from deeploy.graph.types import DType

NEAREST = ("ROUND", "HALF_EVEN")  # the nearest step, the even one of two: what QuantizeLinear does
_MOST_BITS = 32


def _limits(rw: Rewriter) -> tuple[int, int] | None:
    """The least and the greatest step; None where the number of bits is not one whole constant."""
    bits = rw.value(3)
    if bits is None or bits.size != 1 or bits.item() != int(bits.item()) or not 1 <= bits.item() <= _MOST_BITS:
        return None
    count, narrow = int(bits.item()), rw.attrs["narrow"]
    if rw.attrs["signed"]:
        return -(2 ** (count - 1)) + narrow, 2 ** (count - 1) - 1
    return 0, 2**count - 1 - narrow


def _axis(rw: Rewriter, values: np.ndarray) -> int | None:
    """The axis of x along which there are several values; 0 for one value, None where there is no such axis."""
    shape = (1,) * (len(rw.x.shape) - values.ndim) + values.shape
    long = [axis for axis, n in enumerate(shape) if n > 1]
    if len(long) > 1 or len(shape) != len(rw.x.shape) or any(shape[axis] != rw.x.shape[axis] for axis in long):
        return None
    return long[0] if long else 0


def _parameters(rw: Rewriter, scale: np.ndarray, zero: np.ndarray, dtype: DType) -> list[gs.Tensor]:
    """Scale and zero point as ONNX wants them: one of each, or one for every entry along an axis."""
    one = scale.size == zero.size == 1
    flat = [values.reshape(()) if one else np.broadcast_to(values.ravel(), max(scale.size, zero.size)) for values in (scale, zero)]
    return [rw.constant(flat[0], np.float32, "scale"), rw.constant(flat[1], dtype.numpy, "zero point")]


def _written_out(rw: Rewriter, scale: np.ndarray, zero: np.ndarray, low: int, high: int) -> bool:
    """The definition in floats: of more than 8 bits, and of odd zero points, which are added before a tie goes to the even step."""
    factor, offset = rw.constant(scale, np.float32, "scale"), rw.constant(zero, np.float32, "zero point")
    moved = rw.create("Add", rw.create("Div", rw.x, factor), offset)
    steps = rw.create("Clip", rw.create("Round", moved), min=float(low), max=float(high))
    return rw.replace("Mul", rw.create("Sub", steps, offset), factor)


@standard("Quant", kind="f")
def quant(rw: Rewriter) -> bool:
    ends, scale, zero, x = _limits(rw), rw.value(1), rw.value(2), rw.x
    if ends is None or scale is None or zero is None or rw.attrs.get("rounding_mode", NEAREST[0]) not in NEAREST:
        return False
    (low, high), axes, stored = ends, [_axis(rw, values) for values in (scale, zero)], rw.value(0)
    dtype = DType.UINT8 if DType.UINT8.holds(low, high) else DType.smallest(low, high)
    if (
        None in axes
        or not (scale > 0).all()
        or not np.array_equal(zero, np.rint(zero))
        or not dtype.holds(int(zero.min()), int(zero.max()))
    ):
        return False
    parameters, axis = _parameters(rw, scale, zero, dtype), max(a for a in axes if a is not None)
    if stored is not None:
        with np.errstate(all="ignore"):
            steps = np.clip(np.rint(stored.astype(np.float32) / scale.astype(np.float32) + zero), low, high)
        return rw.replace("DequantizeLinear", rw.constant(steps.astype(dtype.numpy), label="steps"), *parameters, axis=axis)
    if dtype.bytes > 1 or (zero % 2).any():
        return _written_out(rw, scale, zero, low, high)
    if (low, high) != dtype.range:
        if scale.size > 1 or zero.size > 1:
            return False
        bottom, top = ((end - float(zero.item())) * float(scale.item()) for end in (low, high))
        x = rw.create("Clip", x, min=bottom, max=top)
    integers = rw.create("QuantizeLinear", x, *parameters, dtype=dtype.numpy, axis=axis)
    return rw.replace("DequantizeLinear", integers, *parameters, axis=axis)


@standard("BipolarQuant", kind="f")
def bipolar(rw: Rewriter) -> bool:
    """The scale, or less than nothing of it, by the sign; 0 is positive."""
    scale, stored = rw.value(1), rw.value(0)
    axis = _axis(rw, scale) if scale is not None else None
    if scale is None or axis is None or not (scale > 0).all():
        return False
    if stored is None:
        chosen = rw.create("GreaterOrEqual", rw.x, rw.constant([0.0]), dtype=np.bool_)
        return rw.replace("Where", chosen, rw.constant(scale, np.float32, "scale"), rw.constant(-scale, np.float32, "negative"))
    steps = rw.constant(np.where(stored >= 0, 1, -1), np.int8, "steps")
    return rw.replace("DequantizeLinear", steps, *_parameters(rw, scale, np.zeros(1), DType.INT8), axis=axis)


PASS = Pass("qonnx", (quant, bipolar))
