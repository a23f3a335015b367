"""Running sums, and thresholds that values reach (docs/integer-form.md)."""

from __future__ import annotations

from random import Random

import numpy as np

from deeploy.ir.kernel import FLOAT, Operator, Row, Sample, Tiling, types
from deeploy.ir.nest import Map, Nest, coupled, parallel, reduction
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.accumulate import exclude_overflow, keeps_type
from deeploy.operators.draws import FLAG, integers, sample

MOST_THRESHOLDS = 255  # of a channel, which a byte counts


def nest(node: Node) -> Nest:
    """Over x[o,n,i], along n, of which every output may depend on all."""
    (o, i), (n,) = parallel("o", "i"), coupled("n")
    return Nest(reads={"x": Map(o, n, i)}, writes={"y": Map(o, n, i)})


def reference(node: Node, x: Array) -> Array:
    """In the type of x, one after the other from the first (``reverse``: the last) one; without the element itself where ``exclusive``.

    x[o,n,i] int32, int64 or float, along n. Integers wrap around. No epilogue.
    """
    order = slice(None, None, -1 if node.attrs["reverse"] else 1)
    ordered = x[:, order]
    if node.attrs["exclusive"]:
        ordered = np.concatenate([np.zeros_like(x[:, :1]), ordered[:, :-1]], axis=1)
    return np.asarray(np.add.accumulate(ordered, axis=1, dtype=x.dtype)[:, order])


RUNNING_SUM = Operator(
    "RunningSum",
    ("x",),
    nest,
    reference,
    Row(types=dict.fromkeys(("x", "y"), types("s32", "s64") | FLOAT), requires=keeps_type, strided={"x": 1, "y": 1}, cores=("o", "i")),
    integers=exclude_overflow,
    draw=sample("x[o,n,i]", exclusive=FLAG, reverse=FLAG),
)


def thresholds_nest(node: Node) -> Nest:
    """The sum over n of whether x[o,c,i] reaches t[c,n]; all channels have one row of thresholds, or each its own."""
    t = node.operands[1]
    (o, c, i), (n,) = parallel("o", "c", "i"), reduction("n")
    return Nest(reads={"x": Map(o, c, i), "t": Map(c if t.shape[0] > 1 else 0, n)}, writes={"y": Map(o, c, i)})


def thresholds_reference(node: Node, x: Array, t: Array) -> Array:
    """How many of a channel's thresholds, sorted, are not above the element; 0 for NaN.

    x[o,c,i] 8, 16 or 32 bit or float, t[c,n] or t[1,n] (n <= 255) int16 or int32, float where x is; y uint8. No epilogue.
    """
    rows = zip(range(x.shape[1]), np.broadcast_to(t, (x.shape[1], t.shape[1])), strict=True)
    columns = [np.where(np.isnan(x[:, c]), 0, np.searchsorted(row, x[:, c], side="right")) for c, row in rows]
    return np.stack(columns, axis=1).astype(np.int64)


def _fits_accumulator(node: Node) -> str | None:
    x, t = node.operands
    return None if x.dtype.is_float == t.dtype.is_float else "thresholds in floats where x is, and else in integers"


def _draw_thresholds(rng: Random) -> Sample:
    rows = integers(-300, 300)
    return sample(f"x[o,c,i] t[{rng.choice('1c')},n]", t=lambda rng, shape: np.sort(rows(rng, shape), axis=1))(rng)


THRESHOLDS = Operator(
    "Thresholds",
    ("x", "t"),
    thresholds_nest,
    thresholds_reference,
    Row(
        types={"x": types("s8", "u8", "s16", "s32") | FLOAT, "t": types("s16", "s32") | FLOAT, "y": types("u8")},
        requires=_fits_accumulator,
        constants=("t",),
        strided={"x": 1, "y": 1},
        tiling=Tiling(whole=("n",)),
        cores=("o", "c", "i"),
        data_dependent="A binary search takes more steps for some values.",
    ),
    integers=exclude_overflow,
    draw=_draw_thresholds,
)
