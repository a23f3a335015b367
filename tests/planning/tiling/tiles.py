"""Tiles as numbers, for tests that go through all of them."""

from __future__ import annotations

from collections.abc import Mapping

from deeploy.ir.expr import Span, evaluate_value
from deeploy.ir.nest import Geometry, Nest
from deeploy.planning.tiling.loops import CallTiling


def spans(tiling: CallTiling, extents: Mapping[str, int], tile: int, loops: int | None = None) -> dict[str, Span]:
    """First and last iteration of every cut dimension in a tile, as the outermost ``loops`` loops see it."""
    parts = tiling.parts(Geometry(Nest({}, {}), {}, extents), 0, tile, loops)
    values = {dim: (evaluate_value(first, {}), evaluate_value(count, {})) for dim, (first, count) in parts.items()}
    return {dim: (first, first + count - 1) for dim, (first, count) in values.items()}
