"""Products with a constant matrix of which every column is zero but for one run of elements, such as mel bands (docs/integer-form.md)."""

from __future__ import annotations

from random import Random

import numpy as np

from deeploy.ir.kernel import FLOAT, Operator, Row, Sample, types
from deeploy.ir.nest import Map, Nest, coupled, parallel
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array


def nest(node: Node) -> Nest:
    """x[r,k], of which a column n of y[r,n] may depend on all of a row; spans[n,3]."""
    (r, n), (k, e) = parallel("r", "n"), coupled("k", "e")
    return Nest(reads={"x": Map(r, k), "spans": Map(n, e)}, writes={"y": Map(r, n)})


def reference(node: Node, x: Array, w: Array, spans: Array) -> Array:
    """y[r,n], the sum over i < length of x[r,first + i] * w[start + i], float32, one after the other; spans[n]: first, start, length."""
    columns = []
    for first, start, length in spans:
        products = np.zeros((len(x), length + 1), np.float32)
        products[:, 1:] = x[:, first : first + length] * w[start : start + length]
        columns.append(np.add.accumulate(products, axis=1)[:, -1])
    return np.stack(columns, axis=1)


def pack_bands(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns of a matrix [k,n], each from its first to its last element that is not zero; and their spans, as of ``reference``."""
    rows, spans, values = np.arange(len(matrix))[:, None], list[tuple[int, int, int]](), [np.zeros(0, np.float32)]
    for column, is_used in zip(matrix.T, (matrix != 0).T, strict=True):
        used = rows[is_used]
        first, end = (int(used[0, 0]), int(used[-1, 0]) + 1) if len(used) else (0, 0)
        spans.append((first, sum(map(len, values)), end - first))
        values.append(column[first:end].astype(np.float32))
    return np.concatenate(values), np.array(spans, np.int32)


def _draw(rng: Random) -> Sample:
    rows, k, n = rng.choice((1, 2, 3)), rng.randint(4, 40), rng.randint(1, 9)
    drawn, places = np.random.default_rng(rng.getrandbits(32)), np.arange(k)[:, None]
    ends = np.sort(drawn.integers(0, k + 1, (2, n)), axis=0)
    matrix = np.where((places >= ends[0]) & (places < np.maximum(ends[1], 1)), drawn.standard_normal((k, n)), 0)
    w, spans = pack_bands(matrix)
    return Sample({"x": (rows, k), "y": (rows, n)}, {}, {"w": w if w.size else np.zeros(1, np.float32), "spans": spans})


BAND_MATMUL = Operator(
    "BandMatMul",
    ("x", "w", "spans"),
    nest,
    reference,
    Row(
        types={"x": FLOAT, "w": FLOAT, "y": FLOAT, "spans": types("s32")},
        constants=("w", "spans"),
        strided={"x": 1, "y": 1},
        cores=("n", "r"),
    ),
    draw=_draw,
)
