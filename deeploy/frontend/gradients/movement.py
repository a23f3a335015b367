"""Gradients of operators that move elements, repeat or choose them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deeploy.errors import UnsupportedError
from deeploy.frontend.gradients.rules import Backward, Gradients, differentiates
from deeploy.ir.nodes import Tensor, concat, constant, inverse_order, where
from deeploy.ir.types import DType


@differentiates("Reshape")
def _differentiate_reshape(g: Backward, x: Tensor, *_: Tensor) -> Tensor:
    return g.dy.reshape(x.shape)


@differentiates("Expand")
def _differentiate_expand(g: Backward, *_: Tensor) -> Tensor:
    return g.dy


@differentiates("Transpose")
def _differentiate_transpose(g: Backward, x: Tensor) -> Tensor:
    return g.dy.transpose(inverse_order(g.attrs["perm"]))


@differentiates("Concat")
def _differentiate_concat(g: Backward, *parts: Tensor) -> Gradients:
    return g.dy.split(g.attrs["axis"], [part.shape[g.attrs["axis"]] for part in parts])


@differentiates("Split")
def _differentiate_split(g: Backward, x: Tensor) -> Tensor:
    return concat([g.of_output(position) for position in range(len(g.node.outputs))], g.attrs["axis"])


@differentiates("Slice")
def _differentiate_slice(g: Backward, x: Tensor) -> Tensor:
    return place_slice(g.dy, g.attrs["starts"], g.attrs["steps"], x.shape)


def place_slice(part: Tensor, starts: Sequence[int], steps: Sequence[int], shape: Sequence[int]) -> Tensor:
    """A tensor of zeros but for a part of it, whose elements begin at ``starts`` and are ``steps`` apart."""
    for axis, step in enumerate(steps):
        part = spread_elements(part, axis, step)
    return part.pad(starts, [n - start - m for n, start, m in zip(shape, starts, part.shape, strict=True)])


def spread_elements(x: Tensor, axis: int, step: int) -> Tensor:
    """A tensor with ``step - 1`` zeros between two neighbours along an axis."""
    if step == 1 or x.shape[axis] == 1:
        return x
    before, size, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    apart, zeros = x.reshape([*before, size, 1, *behind]), [0] * (x.rank + 1)
    after = [step - 1 if i == axis + 1 else 0 for i in range(x.rank + 1)]
    return apart.pad(zeros, after).reshape([*before, size * step, *behind]).cut(axis, 0, size * step - step + 1)


@differentiates("Pad")
def _differentiate_pad(g: Backward, x: Tensor) -> Tensor:
    if g.attrs.get("mode", "constant") != "constant":
        raise UnsupportedError(f"{g.node} mirrors or repeats its border, which has no gradient here", "Pad with a constant.")
    dy = g.dy
    for axis, size in enumerate(x.shape):
        dy = dy.cut(axis, g.attrs["pads"][axis], g.attrs["pads"][axis] + size)
    return dy


@differentiates("Gather", weights=(0,))
def _differentiate_gather(g: Backward, x: Tensor, places: Tensor) -> Gradients:
    return sum_entries(g.dy, places, x.shape, g.attrs["axis"]), None


def sum_entries(dy: Tensor, places: Tensor, shape: Sequence[int], axis: int) -> Tensor:
    """A tensor of a shape with the sum of what was taken from each place of an axis: a product with ones where an entry was taken."""
    taken = dy.reshape([*shape[:axis], places.elements, *shape[axis + 1 :]])
    order = [axis, *(i for i in range(len(shape)) if i != axis)]
    rows = taken.transpose(order).reshape([places.elements, -1])
    summed = one_hot(places.reshape([-1]), shape[axis], dy.dtype).transpose([1, 0]) @ rows
    return summed.reshape([shape[i] for i in order]).transpose(inverse_order(order))


def one_hot(places: Tensor, count: int, dtype: DType) -> Tensor:
    """A row for each place with 1 there and 0 elsewhere; places below 0 count from the end."""
    columns = constant(np.arange(count).astype(places.dtype.numpy))
    if places.data is not None:
        hits = np.equal(places.data[:, None] % count, np.arange(count))
        return constant(hits.astype(dtype.numpy), label="taken")
    rows = places.reshape([-1, 1])
    return where(rows.apply("Equal", columns), 1.0, constant(0.0, dtype))
