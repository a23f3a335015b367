"""ONNX operators that are others in disguise: block rearrangements, repetition, borders that repeat, sums of several.

Everything here stays in the spelling of the normalised graph, so that quantisation is lowered afterwards by one set of rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.rewriter import Rewriter, is_float, result_shape, standard
from deeploy.frontend.schemas import Attributes
from deeploy.graph.rewrite import Pass, constant, producer

_LARGEST = float(np.finfo(np.float32).max)


def kept(axes: Sequence[int]) -> Attributes:
    """Attributes of a reduction that leaves its axes, with one element each."""
    return {"axes": list(axes), "keepdims": 1}


@standard("DepthToSpace", "SpaceToDepth")
def blocks(rw: Rewriter) -> bool:
    """Reshape, Transpose, Reshape (ONNX, DepthToSpace: the equivalent NumPy code of both modes)."""
    size, is_deep = int(rw.attrs["blocksize"]), rw.attrs.get("mode", "DCR") == "DCR"
    n, c, h, w = rw.x.shape
    if rw.op == "SpaceToDepth":
        split, perm = [n, c, h // size, size, w // size, size], [0, 3, 5, 1, 2, 4] if is_deep else [0, 1, 3, 5, 2, 4]
    elif is_deep:
        split, perm = [n, size, size, c // size**2, h, w], [0, 3, 4, 1, 5, 2]
    else:
        split, perm = [n, c // size**2, size, size, h, w], [0, 1, 4, 2, 5, 3]
    return rw.finish(rw.create("Transpose", rw.create("Reshape", rw.x, shape=split), perm=perm))


@standard("Pad")
def repeated_borders(rw: Rewriter) -> bool:
    """Borders that wrap around, or mirror more than once, are gathered along every axis."""
    shape, pads, mode = rw.x.shape, rw.attrs["pads"], rw.attrs["mode"]
    widths = list(zip(pads[: len(shape)], pads[len(shape) :], strict=True))
    is_far = any(max(width) >= size for width, size in zip(widths, shape, strict=True))
    if not (mode == "wrap" or (mode == "reflect" and is_far)) or math.prod(shape) == 0:
        return False
    return take(rw, [np.pad(np.arange(size), width, mode=mode) for size, width in zip(shape, widths, strict=True)])


def take(rw: Rewriter, places: Sequence[np.ndarray]) -> bool:
    """Replace a node by one Gather from its first input for every axis whose places are not all in order."""
    x = rw.x
    for axis, indices in enumerate(places):
        if not np.array_equal(indices, np.arange(x.shape[axis])):
            x = rw.create("Gather", x, rw.constant(indices, np.int32), axis=axis)
    return rw.finish(x)


@standard("Expand", "Tile")
def repeat(rw: Rewriter) -> bool:
    """Repetition as an Expand of equal rank; a Tile of more than single elements gets an axis to expand in front of each one."""
    x, y = rw.x, rw.y
    shape = [1] * (len(y.shape) - len(x.shape)) + list(x.shape)
    if (rw.op == "Expand" and len(shape) == len(x.shape)) or math.prod(shape) == 0:
        return False
    before: list[int] = []
    after: list[int] = []
    for size, result in zip(shape, y.shape, strict=True):
        apart = size not in (1, result)
        before += [1, size] if apart else [size]
        after += [result // size, size] if apart else [result]
    x = rw.reshape(x, before)
    return rw.finish(rw.create("Expand", x, shape=after))


@standard("Gather")
def pick(rw: Rewriter) -> bool:
    """One constant index is a slice: a view."""
    index, axis, rank = rw.value(1), rw.attrs["axis"], len(rw.x.shape)
    if index is None or index.ndim or isinstance(rw.x, gs.Constant):
        return False
    starts, ends = [0] * rank, list(rw.x.shape)
    starts[axis] = int(index) % ends[axis]
    ends[axis] = starts[axis] + 1
    return rw.finish(rw.create("Slice", rw.x, starts=starts, ends=ends, steps=[1] * rank))


@standard("IsNaN", lowers=True)
def is_nan(rw: Rewriter) -> bool:
    """What differs from itself."""
    return rw.replace("Binary", rw.x, rw.x, function="not_equal")


@standard("IsInf", kind="f")
def is_infinite(rw: Rewriter) -> bool:
    """Infinities are compared with."""
    negative, positive = (rw.attrs.get(f"detect_{sign}", 1) for sign in ("negative", "positive"))
    size = rw.create("Abs", rw.x) if negative and positive else rw.x
    return bool(negative or positive) and rw.replace("Equal", size, rw.constant([np.inf if positive else -np.inf]))


@standard("ArgMax", "ArgMin")
def of_integers(rw: Rewriter) -> bool:
    """Where the largest of quantised values is, the largest integer is."""
    source = producer(rw.x, "DequantizeLinear")
    scale = constant(source.inputs[1]) if source is not None else None
    if source is None or scale is None or scale.size != 1 or scale.item() <= 0:
        return False
    rw.node.inputs[0] = source.inputs[0]
    return True


@standard("LpNormalization", kind="f")
def normalisation(rw: Rewriter) -> bool:
    """Divided by the sum of absolute values, or by the root of that of squares; rows of zeros stay."""
    power = int(rw.attrs.get("p", 2))
    if power not in (1, 2):
        return False
    size = rw.create(f"ReduceL{power}", rw.x, **kept([rw.attrs["axis"]]))
    return rw.replace("Div", rw.x, rw.create("Max", size, rw.constant(np.finfo(np.float32).tiny)))


@standard("LayerNormalization", kind="f")
def statistics(rw: Rewriter) -> bool:
    """Where the mean or the deviation are results too, the norm is taken apart."""
    mean, deviation = [*rw.node.outputs[1:], gs.Variable.empty(), gs.Variable.empty()][:2]
    if mean.is_empty() and deviation.is_empty():
        return False
    rw.node.outputs = [rw.y]

    def create(given: gs.Tensor, op: str, x: gs.Tensor, **attributes: Any) -> gs.Tensor:
        return rw.create(op, x, **attributes) if given.is_empty() else rw.into(given, op, x, **attributes)

    rank = len(rw.x.shape)
    axes = kept(range(rw.attrs.get("axis", -1) % rank, rank))
    distance = rw.create("Sub", rw.x, create(mean, "ReduceMean", rw.x, **axes))
    variance = rw.create("ReduceMean", rw.create("Mul", distance, distance), **axes)
    root = rw.create("Sqrt", rw.create("Add", variance, rw.constant([float(rw.attrs.get("epsilon", 1e-5))])))
    total = rw.create("Mul", distance, create(deviation, "Reciprocal", root))
    for op, operand in zip(("Mul", "Add"), rw.node.inputs[1:], strict=False):
        total = total if operand.is_empty() else rw.create(op, total, operand)
    return rw.finish(total)


@standard("Sum", "Mean")
def several(rw: Rewriter) -> bool:
    """A chain of additions, and for the mean a multiplication."""
    mean = rw.op == "Mean" and len(rw.node.inputs) > 1
    if rw.op == "Mean" and not is_float(rw.y):
        return False
    total, *others = rw.node.inputs
    for summand in others:
        total = rw.create("Add", total, summand)
    return rw.replace("Mul", total, rw.constant(1 / len(rw.node.inputs))) if mean else rw.finish(total)


@standard("Max", "Min")
def bound(rw: Rewriter) -> bool:
    """The larger or smaller of a tensor and a constant number is a Clip."""
    values = [constant(t) for t in rw.node.inputs]
    position = next((i for i, v in enumerate(values) if v is not None and v.size == 1), None)
    if len(values) != 2 or position is None or not is_float(rw.y):
        return False
    x, value = rw.node.inputs[1 - position], values[position]
    if value is None or list(x.shape) != list(rw.y.shape):
        return False
    low, high = (value.item(), None) if rw.op == "Max" else (None, value.item())
    return rw.replace("Clip", x, min=low, max=high)


@standard("PRelu", kind="f")
def chosen(rw: Rewriter) -> bool:
    """The product with the slope where x is negative, and x elsewhere: a slope that may be infinite has no product with 0.

    Finite constant slopes stay as they are.
    """
    slope = real_constant(rw.node.inputs[1])
    if slope is not None and (slope.size == 1 or np.isfinite(slope).all()):
        return False
    below = rw.create("Less", rw.x, rw.constant([0.0]), dtype=np.bool_)
    return rw.replace("Where", below, rw.create("Mul", rw.x, rw.node.inputs[1], shape=rw.y.shape), rw.x)


@standard("LogSoftmax", kind="f")
def log_softmax(rw: Rewriter) -> bool:
    """d - log(sum(exp(d))) with d = x - max(x), which neither overflows nor takes the logarithm of zero."""
    axes = kept([rw.attrs["axis"]])
    distance = rw.create("Sub", rw.x, rw.create("ReduceMax", rw.x, **axes))
    return rw.replace("Sub", distance, rw.create("Log", rw.create("ReduceSum", rw.create("Exp", distance), **axes)))


@standard("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", kind="f")
def reductions(rw: Rewriter) -> bool:
    """A sum with a function in front of it, behind it, or both; the exponentials are those of distances from the maximum.

    That maximum is finite: an infinite one is as far from itself as infinity less infinity, which is no number.
    """
    x, attrs = rw.x, dict(rw.attrs)
    if rw.op == "ReduceLogSumExp":
        axes = kept(attrs["axes"])
        largest = rw.create("Clip", rw.create("ReduceMax", x, **axes), min=-_LARGEST, max=_LARGEST)
        total = rw.create("ReduceSum", rw.create("Exp", rw.create("Sub", x, largest)), **axes)
        return rw.finish(rw.create("Add", rw.create("Log", total), largest))
    if rw.op != "ReduceLogSum":
        x = rw.create("Abs", x) if rw.op == "ReduceL1" else rw.create("Mul", x, x)
    total = rw.create("ReduceSum", x, **attrs)
    behind = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log"}.get(rw.op)
    return rw.replace(behind, total) if behind else rw.finish(total)


@standard("MatMul", "MatMulInteger")
def vectors(rw: Rewriter) -> bool:
    """A vector is a matrix of one row (left) or one column (right)."""
    a, b = rw.node.inputs[:2]
    if min(len(a.shape), len(b.shape)) != 1:
        return False
    left = _reshaped(rw, a, [1, *a.shape]) if len(a.shape) == 1 else a
    right = _reshaped(rw, b, [*b.shape, 1]) if len(b.shape) == 1 else b
    shape = result_shape("MatMul", (left, right), {})
    return rw.finish(rw.create(rw.op, left, right, *rw.node.inputs[2:], shape=shape, dtype=rw.y.dtype))


def _reshaped(rw: Rewriter, x: gs.Tensor, shape: Sequence[int]) -> gs.Tensor:
    """``x`` under another shape; a constant, dequantised or not, is reshaped at once."""
    source = producer(x, "DequantizeLinear")
    if source is None or constant(source.inputs[0]) is None or any(math.prod(t.shape) != 1 for t in source.inputs[1:]):
        return rw.reshape(x, shape)
    return rw.create("DequantizeLinear", rw.reshape(source.inputs[0], shape), *source.inputs[1:], shape=shape, dtype=x.dtype, axis=0)


_RULES = (
    blocks,
    repeated_borders,
    repeat,
    pick,
    of_integers,
    is_nan,
    is_infinite,
    normalisation,
    statistics,
    several,
    bound,
    chosen,
    log_softmax,
    reductions,
)
PASS = Pass("decompose", (*_RULES, log_softmax, reductions, vectors))
