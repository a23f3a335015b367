"""Quantisation written in standard operators: Div, Add, Round, Clip, and back Sub, Mul.

Only what is the same in every bit is recognised: the chain rounds the sum of quotient and zero point, ``Quantize`` the quotient, so the
zero point must be 0. The operators in between stay in floats; what is gained are one kernel instead of four, and 8-bit storage.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.rewriter import Rewriter, is_float, standard
from deeploy.graph.rewrite import Pass, constant, producer
from deeploy.graph.types import DType


def _number(tensor: gs.Tensor) -> float | None:
    value = constant(tensor)
    return float(value.item()) if value is not None and value.size == 1 and value.ndim <= 1 else None


@standard("Clip", lowers=True)
def steps(rw: Rewriter) -> bool:
    """Clip(Round(x / scale [+ 0])) to an 8-bit range: the steps of a Quantize, as floats."""
    low, high = rw.attrs.get("min"), rw.attrs.get("max")
    if low is None or high is None or not all(abs(end) < 2**31 and end == int(end) for end in (low, high)):
        return False
    dtype = DType.smallest(int(low), int(high)) if low <= high else DType.INT32
    rounding = rw.only_source(rw.x, "Round") if dtype.bytes == 1 else None
    quotient = None if rounding is None else rounding.inputs[0]
    if quotient is not None and (addition := rw.only_source(quotient, "Add")) is not None:
        quotient = addition.inputs[0] if _number(addition.inputs[1]) == 0 else None
    division = None if quotient is None else rw.only_source(quotient, "Div")
    scale = None if division is None else _number(division.inputs[1])
    if division is None or scale is None or scale <= 0 or list(division.inputs[0].shape) != list(rw.y.shape):
        return False
    constants = rw.constant([scale], np.float32), rw.constant([0], np.int32)
    integers = rw.create("Quantize", division.inputs[0], *constants, dtype=dtype.numpy, low=int(low), high=int(high))
    integers.inputs[0].name = rw.node.name
    rw.node.name = f"{rw.node.name} (real)"
    return _dequantise(rw, integers, 1.0, 0)


def _dequantise(rw: Rewriter, x: gs.Tensor, scale: float, zero: int) -> bool:
    return rw.replace("Dequantize", x, rw.constant([scale], np.float32), rw.constant([zero], np.int32))


def _integers(tensor: gs.Tensor) -> gs.Tensor | None:
    """The 8-bit tensor whose values ``tensor`` has as floats."""
    node = producer(tensor)
    if node is None or np.dtype(node.inputs[0].dtype) not in (np.int8, np.uint8) or not is_float(tensor):
        return None
    is_unit = node.op == "Dequantize" and [_number(t) for t in node.inputs[1:]] == [1.0, 0.0]
    return node.inputs[0] if is_unit or (node.op == "Cast" and not build.lowered(node)) else None


@standard("Mul", lowers=True)
def reals(rw: Rewriter) -> bool:
    """(q [- zero_point]) * scale of 8-bit steps: a Dequantize."""
    scale, x, zero = _number(rw.node.inputs[1]), rw.x, 0.0
    if (subtraction := rw.source(x, "Sub")) is not None:
        x, found = subtraction.inputs[0], _number(subtraction.inputs[1])
        zero = 0.5 if found is None or abs(found) > 2**16 else found
    integers = _integers(x)
    if scale is None or zero != int(zero) or integers is None or list(integers.shape) != list(rw.y.shape):
        return False
    return _dequantise(rw, integers, scale, int(zero))


@standard("Cast", lowers=True)
def back(rw: Rewriter) -> bool:
    """Steps that are cast to the 8-bit type they have already."""
    integers = _integers(rw.x)
    return integers is not None and np.dtype(integers.dtype) == np.dtype(rw.y.dtype) and rw.replace("Reshape", integers)


PASS = Pass("chains", (steps, reals, back))
