"""Gradients of operators that move elements, repeat or choose them."""

from __future__ import annotations

import numpy as np

from deeploy.errors import UnsupportedError
from deeploy.frontend.gradients.rules import Backward, Gradients, differentiates
from deeploy.ir.nodes import Tensor, concat, constant, inverse_order, where
from deeploy.ir.types import DType


@differentiates("Reshape")
def _reshape(g: Backward, x: Tensor, *_: Tensor) -> Tensor:
    return g.dy.reshape(x.shape)


@differentiates("Expand")
def _expand(g: Backward, *_: Tensor) -> Tensor:
    return g.dy


@differentiates("Transpose")
def _transpose(g: Backward, x: Tensor) -> Tensor:
    return g.dy.transpose(inverse_order(g.attrs["perm"]))


@differentiates("Concat")
def _concat(g: Backward, *parts: Tensor) -> Gradients:
    return g.dy.split(g.attrs["axis"], [part.shape[g.attrs["axis"]] for part in parts])


@differentiates("Split")
def _split(g: Backward, x: Tensor) -> Tensor:
    return concat([g.of_output(position) for position in range(len(g.node.outputs))], g.attrs["axis"])


@differentiates("Slice")
def _slice(g: Backward, x: Tensor) -> Tensor:
    dy = g.dy
    for axis, step in enumerate(g.attrs["steps"]):
        dy = spread(dy, axis, step)
    starts = g.attrs["starts"]
    return dy.pad(starts, [n - start - m for n, start, m in zip(x.shape, starts, dy.shape, strict=True)])


def spread(x: Tensor, axis: int, step: int) -> Tensor:
    """A tensor with ``step - 1`` zeros between two neighbours along an axis."""
    if step == 1 or x.shape[axis] == 1:
        return x
    before, size, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    apart, zeros = x.reshape([*before, size, 1, *behind]), [0] * (x.rank + 1)
    after = [step - 1 if i == axis + 1 else 0 for i in range(x.rank + 1)]
    return apart.pad(zeros, after).reshape([*before, size * step, *behind]).cut(axis, 0, size * step - step + 1)


@differentiates("Pad")
def _pad(g: Backward, x: Tensor) -> Tensor:
    if g.attrs.get("mode", "constant") != "constant":
        raise UnsupportedError(f"{g.node} mirrors or repeats its border, which has no gradient here", "Pad with a constant.")
    dy = g.dy
    for axis, size in enumerate(x.shape):
        dy = dy.cut(axis, g.attrs["pads"][axis], g.attrs["pads"][axis] + size)
    return dy


@differentiates("Gather", weights=(0,))
def _gather(g: Backward, x: Tensor, places: Tensor) -> Gradients:
    """A product with ones where an entry was taken."""
    axis, count = g.attrs["axis"], x.shape[g.attrs["axis"]]
    taken = g.dy.reshape([*x.shape[:axis], places.elements, *x.shape[axis + 1 :]])
    order = [axis, *(i for i in range(x.rank) if i != axis)]
    rows = taken.transpose(order).reshape([places.elements, -1])
    entries = one_hot(places.reshape([places.elements]), count, x.dtype)
    summed = entries.transpose([1, 0]) @ rows
    return summed.reshape([x.shape[i] for i in order]).transpose(inverse_order(order)), None


def one_hot(places: Tensor, count: int, dtype: DType) -> Tensor:
    """A row for each place with 1 there and 0 elsewhere; places below 0 count from the end."""
    columns = constant(np.arange(count).astype(places.dtype.numpy))
    if places.data is not None:
        hits = np.equal(places.data[:, None] % count, np.arange(count))
        return constant(hits.astype(dtype.numpy), label="taken")
    rows = places.reshape([-1, 1])
    return where(rows.apply("Equal", columns), 1.0, constant(0.0, dtype))
