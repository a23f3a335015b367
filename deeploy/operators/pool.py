"""Pooling of channels-last images (docs/integer-form.md): loop nests and references."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from deeploy.ir.dimensions import MAX, SUM, Combine
from deeploy.ir.kernel import BYTES, DIVIDES, FLOAT, INTEGERS, Operator, Row, Sample, Tiling, types
from deeploy.ir.nest import Map, Nest, parallel, reduction
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.accumulate import INTEGER_STAGES, Ends, ends, exclude_overflow, keeps_type, stored_whole, values
from deeploy.operators.conv import image, taps
from deeploy.operators.draws import FLAG, WIDE, ZERO_POINTS, sliding
from deeploy.operators.elementwise import wide

FRACTION = 16  # bits of an average behind the point


def nest(combine: Combine) -> Callable[[Node], Nest]:
    """The nest of a pooling that combines the taps inside the image."""

    def declare(node: Node) -> Nest:
        height, width = node.attrs["kernel"]
        n, oh, ow, c = parallel("n", "oh", "ow", "c")
        fh, fw = reduction("fh", "fw", combine=combine)
        return Nest({"x": image(node, n, oh, ow, fh, fw, c)}, {"y": Map(n, oh, ow, c)}, extents={"fh": height, "fw": width})

    return declare


def _list_taps(node: Node, x: Array, outside: float) -> list[Array]:
    return [tap for _, _, tap in taps(node, x, node.attrs["kernel"], outside)]


def max_reference(node: Node, x: Array) -> Array:
    """The maximum over the taps inside the image that are numbers; the smallest value of the type where there is none.

    x[N,H,W,C]; kernel, strides, dilations, pads.
    """
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    maximum = np.fmax.reduce(_list_taps(node, x, lowest))
    return np.asarray(np.where(np.isnan(maximum), lowest, maximum) if x.dtype.kind == "f" else maximum, x.dtype)


def average_reference(node: Node, x: Array) -> Array:
    """Floats: the mean. Integers: floor((2*S*65536 + n) / (2*n)), S the sum of x - zero_point over the n taps that count.

    x[N,H,W,C]; kernel(2), strides, dilations, pads, count_include_pad (bool: all taps count, else those inside), zero_point.
    """
    values = x if x.dtype.kind == "f" else wide(x) - int(node.attrs["zero_point"])
    total = sum(_list_taps(node, values, 0), np.zeros((), values.dtype))
    if node.attrs["count_include_pad"]:
        count = np.asarray(np.prod(node.attrs["kernel"]))
    else:
        count = np.maximum(1, sum(_list_taps(node, np.ones((1, *x.shape[1:3], 1), np.int64), 0)))
    if x.dtype.kind == "f":
        return np.asarray(total / count.astype(np.float32))
    return round_average(total, count)


def round_average(total: Array, count: Array | int) -> Array:
    """A sum of so many integers as their average, with 16 bits behind the point, rounded half up."""
    return np.asarray((2 * total * 65536 + count) // (2 * count))


def _bound_accumulators(node: Node) -> Ends:
    low, high = values(node.inputs[0], int(node.attrs["zero_point"]))
    return ends(min(0, low) << FRACTION, max(0, high) << FRACTION)


def _draw_node(rng: Random) -> Sample:
    attrs, kernel, extents = sliding(rng)
    further = {"kernel": kernel, "count_include_pad": rng.choice(FLAG), "zero_point": rng.choice(ZERO_POINTS)}
    return Sample({"x": (rng.choice((1, 1, 2)), *extents, rng.choice(WIDE))}, {**attrs, **further})


_USUAL = Row(strided={"x": 1, "y": 1}, tiling=Tiling(whole=("fh", "fw")))
AVERAGE_POOL = Operator(
    "AveragePool",
    ("x",),
    nest(SUM),
    average_reference,
    usual={
        **_USUAL,
        "types": {"x": BYTES, "y": INTEGERS, "bias": types("s32")},
        "requires": stored_whole,
        "epilogues": INTEGER_STAGES,
        "data_dependent": DIVIDES,
    },
    bounds=_bound_accumulators,
    draw=_draw_node,
)
MAX_POOL = Operator(
    "MaxPool",
    ("x",),
    nest(MAX),
    max_reference,
    usual={**_USUAL, "types": {"x": INTEGERS | FLOAT, "y": INTEGERS | FLOAT}, "requires": keeps_type},
    integers=exclude_overflow,
    draw=_draw_node,
)
