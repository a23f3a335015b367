"""Operators that move, select, repeat or convert elements."""

from __future__ import annotations

import numpy as np

from deeploy.frontend.lower.call import Call
from deeploy.frontend.lower.pointwise import compared_with_zero
from deeploy.graph.nodes import Tensor, compute, constant
from deeploy.graph.rewriting import Match, Result
from deeploy.graph.types import DType


def movement(call: Call) -> Result:
    """Reshape, Transpose, Slice, Pad, Expand: the same operator of the integer form."""
    attrs = {name: tuple(value) if isinstance(value, list) else value for name, value in call.attrs.items() if name != "to"}
    return call.replace(call.op, *call.inputs, **attrs) if attrs.get("mode", "edge") in ("constant", "reflect", "edge") else None


def cast(call: Call) -> Result:
    """A Cast to bool asks whether an element differs from zero."""
    return compared_with_zero(call, "not_equal") if call.y.dtype is DType.BOOL else movement(call)


def gather(call: Call) -> Result:
    """Gather."""
    return call.replace(call.op, call.x, indices(call), axis=call.attrs["axis"])


def indices(m: Match) -> Tensor:
    """The indices of a Gather in a type that the integer form has them in; constants in 32 bits."""
    given = m.inputs[1]
    if given.data is not None:
        return constant(given.data, DType.INT32, "indices")
    return given if given.dtype in (DType.INT32, DType.INT64) else compute("Cast", given, dtype=DType.INT32)


def split(call: Call) -> Result:
    """Slices, which a transpose can pass one by one."""
    axis, ends = call.attrs["axis"], np.cumsum(call.attrs["split"])
    return {
        part: call.x.cut(axis, int(end) - extent, int(end))
        for part, end, extent in zip(call.node.outputs, ends, call.attrs["split"], strict=True)
    }
