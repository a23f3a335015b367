"""Operators that move, select, repeat or convert elements."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.call import Call
from deeploy.frontend.lower.pointwise import compared_with_zero
from deeploy.graph.rewrite import constant


def movement(call: Call) -> bool:
    """Reshape, Transpose, Slice, Pad, Expand: the same operator of the integer form."""
    attrs = {name: tuple(value) if isinstance(value, list) else value for name, value in call.attrs.items() if name != "to"}
    if call.op == "Pad" and attrs["mode"] not in ("constant", "reflect", "edge"):
        return False
    return call.replace(call.op, *call.node.inputs, **attrs)


def cast(call: Call) -> bool:
    """A Cast to bool asks whether an element differs from zero."""
    return compared_with_zero(call, "not_equal") if np.dtype(call.y.dtype).kind == "b" else movement(call)


def gather(call: Call) -> bool:
    """Gather."""
    call.node.inputs[1] = indices(call)
    return movement(call)


def indices(call: Call) -> gs.Tensor:
    """The indices of a Gather in a type that the integer form has them in; constants in 32 bits."""
    given = call.node.inputs[1]
    values = constant(given)
    if values is not None:
        return gs.Constant(given.name, np.asarray(values.astype(np.int32)))
    return given if np.dtype(given.dtype) in (np.int32, np.int64) else call.create("Cast", given, dtype=np.int32)


def split(call: Call) -> bool:
    """Slices, which a transpose can pass one by one."""
    axis, parts, rank = call.attrs["axis"], list(call.node.outputs), len(call.x.shape)
    call.node.outputs.clear()
    begin = 0
    for part, extent in zip(parts, call.attrs["split"], strict=True):
        starts, ends = [0] * rank, list(call.x.shape)
        starts[axis], ends[axis] = begin, begin + extent
        begin += extent
        if not part.is_empty():
            call.into(part, "Slice", call.x, starts=tuple(starts), ends=tuple(ends), steps=(1,) * rank)
    return True
