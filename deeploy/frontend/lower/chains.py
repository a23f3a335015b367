"""Quantisation written in standard operators: Div, Add, Round, Clip, and back Sub, Mul.

Only what is the same in every bit is recognised: the chain rounds the sum of quotient and zero point, ``Quantize`` the quotient, so the
zero point must be 0. The operators in between stay in floats; what is gained are one kernel instead of four, and 8-bit storage.
"""

from __future__ import annotations

from typing import Any

from deeploy.frontend.lower.quant import BYTES
from deeploy.graph.nodes import Node, Tensor, compute, constant
from deeploy.graph.rewriting import Match, Pass, Result, need, require, standard
from deeploy.graph.types import DType


@standard("Clip", lowers=True)
def steps(m: Match, x: Tensor, *, min: Any = None, max: Any = None) -> Result:
    """Clip(Round(x / scale [+ 0])) to an 8-bit range: the steps of a Quantize, as floats."""
    numbers = dict[str, float | None]()
    for op in ("Round", "Add", "Div"):
        if (node := m.only_source(x, op)) is not None:
            x, numbers[op] = node.operands[0], node.operands[-1].number
    low, high, scale = need(min), need(max), need(numbers.get("Div"))
    dtype = need(next((dtype for dtype in BYTES if dtype.holds(low, high)), None))
    require(low == int(low) <= high == int(high), x.shape == m.y.shape, "Round" in numbers, numbers.get("Add", 0) == 0, scale > 0)
    parameters = constant([scale], DType.FLOAT32), constant([0], DType.INT32)
    integers = compute("Quantize", x, *parameters, dtype=dtype, called=m.node.name, low=int(low), high=int(high))
    return _dequantise(m, integers, 1, 0, called=f"{m.node.name} (real)")


def _dequantise(m: Match, x: Tensor, scale: float, zero: float, called: str = "") -> Tensor:
    return m.replace("Dequantize", x, constant([scale], DType.FLOAT32), constant([zero], DType.INT32), called=called)


def _find_integers(tensor: Tensor) -> Tensor:
    """The 8-bit tensor whose values ``tensor`` has as floats."""
    match tensor.maker:
        case Node(op="Dequantize", operands=(x, Tensor(number=1), Tensor(number=0))) | Node(op="Cast", is_lowered=False, operands=(x,)):
            return need(x if x.dtype in BYTES and tensor.dtype.is_float else None)
    return need(None)


@standard("Mul", lowers=True)
def reals(m: Match, x: Tensor, scale: float) -> Result:
    """(q [- zero_point]) * scale of 8-bit steps: a Dequantize."""
    subtraction = m.source(x, "Sub")
    x, zero = (x, 0) if subtraction is None else (subtraction.operands[0], need(subtraction.operands[1].number))
    integers = _find_integers(x)
    require(zero % 1 == 0, abs(zero) <= 2**16, integers.shape == m.y.shape)
    return _dequantise(m, integers, scale, zero)


@standard("Cast", lowers=True)
def back(m: Match, x: Tensor) -> Result:
    """Steps that are cast to the 8-bit type they have already."""
    integers = _find_integers(x)
    require(integers.dtype is m.y.dtype)
    return integers


PASS = Pass("chains", (steps, reals, back))
