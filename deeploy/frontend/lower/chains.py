"""Quantisation written in standard operators: Div, Add, Round, Clip, and back Sub, Mul.

Only what is the same in every bit is recognised: the chain rounds the sum of quotient and zero point, ``Quantize`` the quotient, so the
zero point must be 0. The operators in between stay in floats; what is gained are one kernel instead of four, and 8-bit storage.
"""

from __future__ import annotations

from typing import Any

from deeploy.frontend.lower.fuse import BYTES
from deeploy.graph.nodes import Node, Tensor, compute, constant
from deeploy.graph.rewriting import Match, Pass, Result, standard
from deeploy.graph.types import DType


@standard("Clip", lowers=True)
def steps(m: Match, x: Tensor) -> Result:
    """Clip(Round(x / scale [+ 0])) to an 8-bit range: the steps of a Quantize, as floats."""
    numbers = dict[str, float | None]()
    for op in ("Round", "Add", "Div"):
        if (node := m.only_source(x, op)) is not None:
            x, numbers[op] = node.operands[0], node.operands[-1].number
    limits: list[Any] = [m.attrs.get(end) for end in ("min", "max")]
    dtype, scale = next((dtype for dtype in BYTES if None not in limits and dtype.holds(*limits)), None), numbers.get("Div")
    if dtype is None or limits != sorted(map(int, limits)) or x.shape != m.y.shape:
        return None
    if "Round" not in numbers or numbers.get("Add", 0) != 0 or scale is None or scale <= 0:
        return None
    constants, (low, high) = (constant([scale], DType.FLOAT32), constant([0], DType.INT32)), map(int, limits)
    integers = compute("Quantize", x, *constants, dtype=dtype, called=m.node.name, low=low, high=high)
    return _dequantise(m, integers, 1, 0, called=f"{m.node.name} (real)")


def _dequantise(m: Match, x: Tensor, scale: float, zero: float, called: str = "") -> Tensor:
    return m.replace("Dequantize", x, constant([scale], DType.FLOAT32), constant([zero], DType.INT32), called=called)


def _integers(tensor: Tensor) -> Tensor | None:
    """The 8-bit tensor whose values ``tensor`` has as floats."""
    match tensor.maker:
        case Node(op="Dequantize", operands=(x, Tensor(number=1), Tensor(number=0))) | Node(op="Cast", is_lowered=False, operands=(x,)):
            return x if x.dtype in BYTES and tensor.dtype.is_float else None
    return None


@standard("Mul", lowers=True)
def reals(m: Match, x: Tensor, scale: float) -> Result:
    """(q [- zero_point]) * scale of 8-bit steps: a Dequantize."""
    zero: float | None = 0
    if (subtraction := m.source(x, "Sub")) is not None:
        x, zero = subtraction.operands[0], subtraction.operands[1].number
    integers = _integers(x)
    if zero is None or zero % 1 or abs(zero) > 2**16 or integers is None or integers.shape != m.y.shape:
        return None
    return _dequantise(m, integers, scale, zero)


@standard("Cast", lowers=True)
def back(m: Match, x: Tensor) -> Result:
    """Steps that are cast to the 8-bit type they have already."""
    integers = _integers(x)
    return integers if integers is not None and integers.dtype is m.y.dtype else None


PASS = Pass("chains", (steps, reals, back))
