"""Linear interpolation between four neighbours in an image (docs/integer-form.md)."""

from __future__ import annotations

from random import Random

import numpy as np

from deeploy.ir.kernel import FLOAT, Operator, Row
from deeploy.ir.nest import Map, Nest, encoded, parallel
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.draws import sample


def axis_table(place: Array, size: int) -> Array:
    """The table [outputs, 3] of an axis of ``size`` elements: at ``place``, in float32, the element before it, and the weights of that
    and of the next one; both are a half behind the last element, which is its own neighbour (onnxruntime, ``SetupUpsampleBilinear``).
    """
    inside = np.clip(place.astype(np.float32), 0, np.float32(size - 1))
    first = inside.astype(np.int32)
    weights = (np.minimum(first + 1, size - 1) - inside).astype(np.float32), inside - first.astype(np.float32)
    return np.stack([first, *(np.where(first == size - 1, np.float32(0.5), each) for each in weights)], axis=1).astype(np.float32)


def nest(node: Node) -> Nest:
    """Any part of the outputs reads all rows and columns of x[n,h,w,c]: entries of the tables name those that it sees."""
    n, oh, ow, c = parallel("n", "oh", "ow", "c")
    (h,), (w,), (part,) = encoded("h", of=(oh,)), encoded("w", of=(ow,)), encoded("part", of=(oh, ow))
    return Nest({"x": Map(n, h, w, c), "rows": Map(oh, part), "columns": Map(ow, part)}, {"y": Map(n, oh, ow, c)})


def _find_neighbours(table: Array, size: int) -> tuple[Array, Array, Array, Array]:
    first = np.clip(table[:, 0].astype(np.int64), 0, size - 1)
    return first, np.minimum(first + 1, size - 1), table[:, 1], table[:, 2]


def reference(node: Node, x: Array, rows: Array, columns: Array) -> Array:
    """``((a*x[i,j] + b*x[i,j+1]) + c*x[i+1,j]) + d*x[i+1,j+1]`` with products of weights of a column and of a row, as onnxruntime adds.

    x[n,h,w,c] float; rows[oh,3], columns[ow,3] float: the first neighbour, its weight and that of the next, which the last one is itself.
    """
    (up, down, above, below), (left, right, before, after) = _find_neighbours(rows, x.shape[1]), _find_neighbours(columns, x.shape[2])
    total = np.zeros((), np.float32)
    for place, (row, across) in enumerate(((up, above), (down, below))):
        for column, along in ((left, before), (right, after)):
            product = (along[None, :] * across[:, None])[None, :, :, None] * x[:, row][:, :, column]
            total = product if place == 0 and column is left else total + product
    return np.asarray(total, np.float32)


def _table_entries(rng: Random, shape: tuple[int, ...]) -> Array:
    return np.array([[rng.randrange(6), rng.random(), rng.random()] for _ in range(shape[0])], np.float32)


INTERPOLATE = Operator(
    "Interpolate",
    ("x", "rows", "columns"),
    nest,
    reference,
    Row(
        types=dict.fromkeys(("x", "rows", "columns", "y"), FLOAT),
        constants=("rows", "columns"),
        strided={"x": 1, "y": 1},
        cores=("n", "oh", "ow", "c"),
    ),
    draw=sample("x[n,h,w,c] rows[oh,part] columns[ow,part]", extents={"part": (3,)}, rows=_table_entries, columns=_table_entries),
)
