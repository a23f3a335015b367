"""Normalisation of operators that select, rearrange or reduce axes: what newer opsets pass as inputs becomes attributes."""

from __future__ import annotations

import math

import numpy as np

from deeploy.errors import UnsupportedError
from deeploy.frontend.rules import (
    Draft,
    axes_of,
    axes_setting,
    axis_of,
    broken_node,
    constant_operand,
    describe_node,
    integer_attribute,
    integer_setting,
    restate_node,
)
from deeploy.ir.nodes import Tensor, compute, constant

# Reducing over no axis changes nothing for these; the others (ReduceL2, ReduceLogSum...) still compute.
_PLAIN_REDUCTIONS = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"})


def normalise_reshape(node: Draft) -> Tensor | None:
    """Reshape, Flatten, Squeeze, Unsqueeze, and Expand without repetition: a Reshape with one input, or nothing at all."""
    x, y = node.x, node.y
    if x.elements != y.elements and node.op != "Expand":
        raise broken_node(node, f"turns the shape {list(x.shape)} into {list(y.shape)}, which has another number of elements")
    restate_node(node, "Reshape" if x.elements == y.elements else "Expand")
    return x if x.shape == y.shape else None


def normalise_reduction(node: Draft) -> Tensor | None:
    """Reduce operators, IntegerMean and QLinearReduceMean: ``axes`` is an attribute, sorted; ``keepdims`` an int."""
    rank = node.x.rank
    axes = integer_setting(node, "axes", len(node.inputs) if node.domain else 1)
    empty = integer_attribute(node, "noop_with_empty_axes", 0)
    if not axes and not empty:
        axes = list(range(rank))
    if not node.domain:
        node.inputs = node.inputs[:1]
    node.attrs.pop("noop_with_empty_axes", None)
    node.attrs.update(axes=sorted(axes_of(node, axes or [], rank)), keepdims=integer_attribute(node, "keepdims", 1))
    return node.x if not node.attrs["axes"] and node.op in _PLAIN_REDUCTIONS else None


def normalise_split(node: Draft) -> Tensor | None:
    """Split: ``split`` lists the extents of all outputs, as inferred."""
    x = node.x
    axis = axis_of(node, integer_attribute(node, "axis", 0), x.rank)
    sizes = [output.shape[axis] for output in node.outputs]
    if sum(sizes) != x.shape[axis]:
        raise broken_node(node, f"splits {x.shape[axis]} elements into {sizes}")
    restate_node(node, axis=axis, split=sizes)
    return x if len(sizes) == 1 else None


def normalise_slice(node: Draft) -> Tensor | None:
    """Slice: ``starts``, ``ends``, ``steps`` for every axis, clamped; element i of an axis is the i-th of range(start, end, step).

    Axes that are walked backwards are gathered: no transfer engine reads memory in that order.
    """
    x = node.x
    starts, ends = integer_setting(node, "starts", 1), integer_setting(node, "ends", 2)
    if starts is None or ends is None:
        raise broken_node(node, "lacks starts or ends")
    axes = axes_setting(node, 3, len(starts), len(x.shape))
    steps = integer_setting(node, "steps", 4) or [1] * len(axes)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise broken_node(node, f"has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    spans = [range(extent) for extent in x.shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise broken_node(node, "has a step of 0")
        span = range(x.shape[axis])[start:end:step]
        spans[axis] = span if span else range(0)
    if [len(span) for span in spans] != list(node.y.shape):
        raise broken_node(node, f"takes {[len(span) for span in spans]} elements, but its output has the shape {list(node.y.shape)}")
    backwards = {axis: span for axis, span in enumerate(spans) if span.step < 0}
    spans = [range(extent) if axis in backwards else span for axis, (extent, span) in enumerate(zip(x.shape, spans, strict=True))]
    restate_node(node, starts=[s.start for s in spans], ends=[s.stop for s in spans], steps=[s.step for s in spans])
    is_whole = all(span == range(extent) for extent, span in zip(x.shape, spans, strict=True))
    if not backwards:
        return x if is_whole else None
    forwards = x if is_whole else compute("Slice", x, **node.attrs)
    for axis, span in backwards.items():
        forwards = compute("Gather", forwards, constant(np.array(span, np.int64), label="places"), axis=axis)
    return forwards


def normalise_pad(node: Draft) -> Tensor | None:
    """Pad: ``pads`` of the whole rank, ``mode``, ``value``. Negative pads become a Slice before it."""
    x = node.x
    rank = x.rank
    pads = integer_setting(node, "pads", 1)
    if pads is None:
        raise broken_node(node, "lacks pads")
    axes = axes_setting(node, 3, rank, rank)
    if len(pads) != 2 * len(axes):
        raise broken_node(node, f"has {len(pads)} pads for {len(axes)} axes")
    whole = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        whole[axis], whole[rank + axis] = pads[i], pads[len(axes) + i]
    mode = node.attrs.get("mode", "constant")
    restate_node(node, pads=[max(p, 0) for p in whole], mode=mode, value=_pad_value(node))
    if not any(whole):
        return x
    if min(whole) >= 0:
        return None
    if mode != "constant":
        raise UnsupportedError(f"{describe_node(node)} crops and pads in mode '{str(mode)[:40]}'", "crop with a Slice instead")
    return _crop_borders(node, whole)


def _pad_value(node: Draft) -> int | float:
    padding = constant_operand(node, 2)
    value = node.attrs.get("value", 0) if padding is None else padding.reshape(-1)[0] if padding.size else 0
    return float(value) if node.x.dtype.is_float else int(value)


def _crop_borders(node: Draft, pads: list[int]) -> Tensor | None:
    """What negative pads take away, as a Slice in front of what is left of the Pad."""
    x, rank = node.x, node.x.rank
    starts = [max(-p, 0) for p in pads[:rank]]
    ends = [extent - max(-p, 0) for extent, p in zip(x.shape, pads[rank:], strict=True)]
    if any(start > end for start, end in zip(starts, ends, strict=True)):
        raise broken_node(node, f"removes more than the {list(x.shape)} elements of its input")
    cropped = compute("Slice", x, starts=starts, ends=ends, steps=[1] * rank)
    node.inputs[0] = cropped
    return None if any(node.attrs["pads"]) else cropped


def normalise_transpose(node: Draft) -> Tensor | None:
    """Transpose: ``perm`` is always present."""
    rank = node.x.rank
    given = "perm" in node.attrs
    perm = axes_of(node, integer_setting(node, "perm", 1) or [] if given else list(range(rank))[::-1], rank)
    if len(perm) != rank:
        raise broken_node(node, f"permutes {len(perm)} of {rank} axes")
    restate_node(node, perm=perm)
    return node.x if perm == sorted(perm) else None


def with_axis(node: Draft) -> Tensor | None:
    """Operators with one axis of their first input: it is present and not negative."""
    node.attrs["axis"] = axis_of(node, integer_attribute(node, "axis", 0), node.x.rank)
    return None


def normalise_gather(node: Draft) -> Tensor | None:
    """Gather and GatherElements: as ``with_axis``; constant indices lie within the axis. To take all entries in order is a Reshape."""
    with_axis(node)
    size, indices = node.x.shape[node.attrs["axis"]], constant_operand(node, 1)
    is_table = node.x.maker is not None and node.x.maker.op == "DequantizeLinear"  # of quantised rows, as it stays
    if node.op == "Gather" and not is_table and indices is not None and np.array_equal(indices.ravel(), np.arange(size)):
        return normalise_reshape(node)
    if indices is not None and indices.size and not -size <= indices.min() <= indices.max() < size:
        raise broken_node(node, f"takes the entries {indices.min()} to {indices.max()} of an axis that has {size}")
    return None


def normalise_concat(node: Draft) -> Tensor | None:
    """Concat and QLinearConcat, whose axis is that of the output."""
    node.attrs["axis"] = axis_of(node, integer_attribute(node, "axis", 0), node.y.rank)
    return None


def normalise_quantisation(node: Draft) -> Tensor | None:
    """QuantizeLinear, DequantizeLinear: ``axis`` is that of a scale per channel or block; 0 where there is one scale for all."""
    shape, scale = node.x.shape, node.needed(1).shape
    axis, size = integer_attribute(node, "axis", 1), integer_attribute(node, "block_size", 0)
    if math.prod(scale) == 1 and not size:
        node.attrs["axis"] = 0
        return None
    node.attrs["axis"] = axis_of(node, axis, len(shape))
    expected = [shape[node.attrs["axis"]]]
    if size:
        expected = [-(-n // size) if i == node.attrs["axis"] else n for i, n in enumerate(shape)]
    if size < 0 or list(scale) != expected:
        raise broken_node(node, f"has scales of shape {list(scale)} for axis {axis} of {list(shape)}")
    return None
