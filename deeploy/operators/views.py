"""Views: operators that move no data, declared as boxes of a container.

A view operator relates one *container* tensor to *parts* of it. Each part is a strided box of the container, or a
reshaping of the whole of it. Placement decides whether a part really lies inside its container or has to be copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.ir.kernel import AxisIndices
from deeploy.ir.nest import dense_strides
from deeploy.ir.nodes import Attributes, Node, Tensor


@dataclass(frozen=True)
class Access:
    """Where the elements of a tensor lie: an offset into a buffer, and a stride per axis, both in elements."""

    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    @classmethod
    def dense(cls, shape: tuple[int, ...]) -> Access:
        """Row-major order from the start of the buffer."""
        return cls(shape, 0, dense_strides(shape))

    def dense_axes(self) -> int:
        """How many trailing axes lie densely packed in row-major order (axes of extent 1 always do)."""
        expected = 1
        for count, (size, stride) in enumerate(zip(reversed(self.shape), reversed(self.strides), strict=True)):
            if size != 1 and stride != expected:
                return count
            expected *= size
        return len(self.shape)

    @property
    def is_dense(self) -> bool:
        return self.dense_axes() == len(self.shape)

    def box(self, starts: tuple[int, ...], shape: tuple[int, ...], steps: tuple[int, ...]) -> Access:
        """The box that begins at ``starts`` and takes every ``steps``-th element of each axis."""
        offset = self.offset + sum(a * s for a, s in zip(starts, self.strides, strict=True))
        return Access(shape, offset, tuple(a * s for a, s in zip(steps, self.strides, strict=True)))

    def transposed(self, perm: tuple[int, ...]) -> Access:
        """Axis i of the result is axis ``perm[i]`` of this access."""
        return Access(tuple(self.shape[p] for p in perm), self.offset, tuple(self.strides[p] for p in perm))

    def reshaped(self, shape: tuple[int, ...]) -> Access | None:
        """An access to all elements in their order under another shape, or None where no strides express that."""
        if 0 in shape:
            return replace(Access.dense(shape), offset=self.offset)
        old = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        merged: list[tuple[int, int]] = []
        for size, stride in old:
            if merged and merged[-1][1] == size * stride:
                merged[-1] = (merged[-1][0] * size, stride)
            else:
                merged.append((size, stride))
        result = [0] * len(shape)
        for axis in range(len(shape) - 1, -1, -1):
            if shape[axis] == 1:
                result[axis] = 1
                continue
            if not merged:
                return None
            size, stride = merged.pop()
            if size % shape[axis]:
                return None
            result[axis] = stride
            if size != shape[axis]:
                merged.append((size // shape[axis], stride * shape[axis]))
        return None if merged else Access(shape, self.offset, tuple(result))


POSITION = "position of the first new row"  # the input that the emitted code gives itself
MATERIALISE = "Copy"  # the operator that writes a view out as a tensor of its own

Shared = Callable[[Sequence[int | None], AxisIndices], Attributes | None]
Axes = list[tuple[int, int]]  # axes of an input and of an output along which indices are the same


def _equal_view(source: Tensor, result: Tensor) -> Axes:
    return [(axis, axis) for axis, size in enumerate(source.shape) if size == result.shape[axis]]


Place = Callable[[Access], Access | None]  # where a part lies, given where the container lies


@dataclass(frozen=True)
class View:
    """The container and the parts of one view operator; tensors are named ``("in" | "out", position)``.

    A part of a container that ``slides`` along an axis begins as many indices before its place as rows exist.

    ``inverse`` gives the container's access from the only part's, where the view covers all of the container. Parts of a
    container that ``grows`` along an axis lie as many indices further along it as rows exist when the code runs.

    ``axes`` says along which axes an input and an output have the same indices. The elements of a view that ``keeps_order`` follow each
    other in row-major order as before. ``share`` gives the attributes on a share of the operands, as that of an ``Operator`` does.
    """

    container: tuple[str, int]
    parts: tuple[tuple[tuple[str, int], Place], ...]
    inverse: Place | None = None
    grows: int | None = None
    slides: int | None = None
    axes: Callable[[Tensor, Tensor], Axes] = _equal_view
    keeps_order: bool = False
    share: Shared | None = None


def _reshape_view(node: Node) -> View:
    """The elements in the same order, under another shape."""
    source, result = node.inputs[0], node.outputs[0]
    assert source is not None
    part = ("out", 0), lambda a: a.reshaped(result.shape)
    return View(("in", 0), (part,), lambda a: a.reshaped(source.shape), axes=_indices_of_reshape, keeps_order=True)


def _indices_of_reshape(source: Tensor, result: Tensor) -> Axes:
    """Axes of one extent, and of one number of elements behind them."""
    left, right = dense_strides(source.shape), dense_strides(result.shape)
    return [
        (a, b)
        for a, size in enumerate(source.shape)
        for b, other in enumerate(result.shape)
        if size > 1 and (size, left[a]) == (other, right[b])
    ]


def _transpose_view(node: Node) -> View:
    """Axis i of the result is axis perm[i]."""
    perm = tuple(node.attrs["perm"])
    inverse = tuple(perm.index(axis) for axis in range(len(perm)))
    return View(
        ("in", 0),
        ((("out", 0), lambda a: a.transposed(perm)),),
        inverse=lambda a: a.transposed(inverse),
        axes=lambda source, result: [(a, b) for b, a in enumerate(perm)],
    )


def _slice_view(node: Node) -> View:
    """starts, ends, steps: one per axis of the whole rank, normalised, steps >= 1."""
    starts, steps = tuple(node.attrs["starts"]), tuple(node.attrs["steps"])
    part = ("out", 0), lambda a: a.box(starts, node.outputs[0].shape, steps)
    return View(("in", 0), (part,), share=lambda axes, indices: _share_of_slice(node, axes, indices))


def _share_of_slice(node: Node, axes: Sequence[int | None], indices: AxisIndices) -> Attributes | None:
    axis, before, after = axes[0], indices[0], indices[1]
    if axis is None or before is None or after is None:
        return dict(node.attrs)
    start, step = node.attrs["starts"][axis], node.attrs["steps"][axis]
    wanted = start + step * after
    places = np.searchsorted(before, wanted)
    if not len(places) or places[-1] >= len(before) or not np.array_equal(before[places], wanted):
        return None
    steps = np.diff(places)
    if len(steps) and (steps != steps[0]).any():
        return None
    own = int(steps[0]) if len(steps) else 1
    changed = {"starts": int(places[0]), "ends": int(places[-1]) + 1, "steps": own}
    return {**node.attrs, **{name: _replace_axis(node.attrs[name], axis, value) for name, value in changed.items()}}


def _replace_axis(values: Sequence[int], axis: int, value: int) -> tuple[int, ...]:
    return tuple(value if i == axis else int(v) for i, v in enumerate(values))


def _list_pieces(side: str, shapes: list[tuple[int, ...]], axis: int) -> tuple[tuple[tuple[str, int], Place], ...]:
    parts = []
    begin = 0
    for position, shape in enumerate(shapes):
        starts = tuple(begin if i == axis else 0 for i in range(len(shape)))
        parts.append(((side, position), _box_place(starts, shape)))
        begin += shape[axis]
    return tuple(parts)


def _box_place(starts: tuple[int, ...], shape: tuple[int, ...]) -> Place:
    return lambda a: a.box(starts, shape, (1,) * len(shape))


def _concat_view(node: Node) -> View:
    """Parts one after the other along ``axis``; copies where the memory does not allow a view."""
    shapes = [t.shape for t in node.inputs if t is not None]
    return View(("out", 0), _list_pieces("in", shapes, node.attrs["axis"]))


def _split_view(node: Node) -> View:
    """Several slices along ``axis``, as long as ``sizes`` says."""

    def share(axes: Sequence[int | None], indices: AxisIndices) -> Attributes | None:
        if axes[0] != node.attrs["axis"]:
            return dict(node.attrs)
        sizes = tuple(len(k) for k in indices[1:] if k is not None)
        return {**node.attrs, "sizes": sizes} if len(sizes) == len(node.outputs) else None

    return View(("in", 0), _list_pieces("out", [t.shape for t in node.outputs], node.attrs["axis"]), share=share)


def _append_view(node: Node) -> View:
    """The rows that exist of a state, and new ones behind them."""
    rows = node.operands[0]
    return View(("out", 0), ((("in", 0), _box_place((0,) * len(rows.shape), rows.shape)),), grows=node.attrs["axis"])


def _slide_view(node: Node) -> View:
    """The part of a mask for all positions that the position of an inference sees."""
    shape, axis = node.outputs[0].shape, node.attrs["axis"]
    starts = tuple(node.attrs["start"] if i == axis else 0 for i in range(len(shape)))
    return View(("in", 0), ((("out", 0), _box_place(starts, shape)),), slides=axis)


def by_rows(shape: tuple[int, ...], axis: int) -> Access:
    """The layout of a tensor that grows along ``axis``: that axis is the last but one, so that an append is one run per head."""
    inner = max((i for i, size in enumerate(shape) if i != axis and size > 1), default=axis)
    order = [i for i in range(len(shape)) if i not in (axis, inner)] + [axis, *([inner] if inner != axis else [])]
    result = [0] * len(shape)
    for position, stride in zip(order, dense_strides(tuple(shape[i] for i in order)), strict=True):
        result[position] = stride
    return Access(shape, 0, tuple(result))


RESHAPE, TRANSPOSE, SLICE, CONCAT, SPLIT = "Reshape", "Transpose", "Slice", "Concat", "Split"

APPEND = "Append"  # the operator that writes rows into a state, behind those that exist

KEEP = "Keep"  # the operator that writes all of a state, at the end of an inference

TURNS = "turns"  # the attribute of a Keep whose state has room for what so many inferences write

SETTLES = "settles"  # the attribute of a node whose result is its second input, as it is, behind so many inferences of a sequence

SLIDE = "Slide"  # the operator that reads a constant at the end of its columns, as many as there are rows

VIEWS: Mapping[str, Callable[[Node], View]] = {
    RESHAPE: _reshape_view,
    TRANSPOSE: _transpose_view,
    SLICE: _slice_view,
    CONCAT: _concat_view,
    SPLIT: _split_view,
    APPEND: _append_view,
    SLIDE: _slide_view,
}
