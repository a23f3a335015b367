"""Quantisation whose scale is computed at run time (docs/integer-form.md)."""

from __future__ import annotations

import numpy as np

from deeploy.ir.kernel import FLOAT, Operator, Range, Row, types
from deeploy.ir.nest import Map, Nest, parallel
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.accumulate import held
from deeploy.operators.draws import floats, sample

LEVELS = 255  # steps of a byte


def nest(node: Node) -> Nest:
    """One scale and one zero point of each smallest and largest element."""
    (n,) = parallel("n")
    return Nest(reads={"low": Map(n), "high": Map(n)}, writes={"scale": Map(n), "zero_point": Map(n)})


def reference(node: Node, low: Array, high: Array) -> tuple[Array, Array]:
    """DynamicQuantizeLinear of ONNX in float32: 0 is one of the values, and exact; where all are 0, the scale is 1.

    l = min(low, 0), h = max(high, 0); scale = (h - l) / 255; zero_point = round_half_even(clip(0 - l / scale, 0, 255)).
    """
    zero, levels = np.float32(0), np.float32(LEVELS)
    low, high = np.where(low < zero, low, zero), np.where(high > zero, high, zero)
    with np.errstate(all="ignore"):
        scale = (high - low) / levels
        scale = np.where(scale > zero, scale, np.float32(1))
        zero_point = zero - low / scale
    limited = np.where(zero_point < levels, np.where(zero_point > zero, zero_point, zero), levels)
    return scale.astype(np.float32), np.rint(limited).astype(np.int64)


def _bound_zero_points(node: Node) -> dict[str, tuple[Range, Range]]:
    return {"result": held(0, LEVELS)}


SCALE = Operator(
    "DynamicScale",
    ("low", "high"),
    nest,
    reference,
    Row(
        outputs=("scale", "zero_point"),
        types={"low": FLOAT, "high": FLOAT, "scale": FLOAT, "zero_point": types("s32")},
        strided=dict.fromkeys(("low", "high", "scale", "zero_point"), 0),
    ),
    integers=_bound_zero_points,
    draw=sample("low[n] high[n]", low=floats(-3, 1), high=floats(-1, 4)),
)
