"""Tile sizes, periods and windows: what tiles cover, and what moves when."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import deeploy
from deeploy.options import Options
from deeploy.planning.program import Call
from deeploy.planning.tiling.loops import MOST_TRIPS, CallTiling, TileLoop, cut_dims, tile_sizes, window_period
from tests.execution.simulation import nets
from tests.planning.tiling.tiles import spans


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 3000), st.integers(1, 16), st.sampled_from([0.2, 0.25, 0.5, 1.0]))
def test_sizes_are_the_smallest_for_their_number_of_tiles(extent: int, multiple: int, factor: float) -> None:
    found = tile_sizes(extent, multiple, factor)
    assert found == sorted(set(found), reverse=True)
    assert found[0] == extent
    assert found[-1] == min(multiple, extent)
    for size in found:
        assert size == extent or size % multiple == 0
        smaller = size - multiple
        assert smaller < 1 or size == extent or -(-extent // smaller) > -(-extent // size)


def test_very_long_dimensions_are_not_cut_into_single_iterations() -> None:
    assert max(-(-(10**6) // size) for size in tile_sizes(10**6)) <= MOST_TRIPS


@st.composite
def tilings(draw: st.DrawFn) -> tuple[CallTiling, dict[str, int]]:
    """Up to three dimensions, some of them cut twice; the extents."""
    extents, outer, inner = {}, [], []
    for name in ("a", "b", "c")[: draw(st.integers(1, 3))]:
        tile, outers, inners = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
        trips = outers * inners
        extents[name] = draw(st.integers((trips - 1) * tile + 1, trips * tile))
        outer += [TileLoop(name, outers, tile * inners)] if outers > 1 else []
        inner += [TileLoop(name, inners, tile)] if inners > 1 else []
    loops = (*draw(st.permutations(outer)), *draw(st.permutations(inner)))
    return CallTiling(loops, (), None), extents


def boxes(spans: dict[str, tuple[int, int]], extents: dict[str, int]) -> Iterator[tuple[int, ...]]:
    """Every point of a tile."""
    ranges = [range(spans[n][0], spans[n][1] + 1) if n in spans else range(e) for n, e in extents.items()]
    result: list[tuple[int, ...]] = [()]
    for values in ranges:
        result = [(*head, value) for head in result for value in values]
    yield from result


@settings(max_examples=200, deadline=None, derandomize=True)
@given(tilings())
def test_tiles_cover_every_iteration_once(given_tiling: tuple[CallTiling, dict[str, int]]) -> None:
    tiling, extents = given_tiling
    points = [point for t in range(tiling.tiles) for point in boxes(spans(tiling, extents, t), extents)]
    assert len(points) == len(set(points)) == math.prod(extents.values())


@settings(max_examples=200, deadline=None, derandomize=True)
@given(tilings(), st.sets(st.sampled_from(["a", "b", "c"])), st.integers(0, 6))
def test_a_window_moves_exactly_when_its_place_changes(given_tiling: tuple[CallTiling, dict[str, int]], dims: set[str], seen: int) -> None:
    """Within a period nothing that the window depends on changes; at its end, something does."""
    tiling, extents = given_tiling
    count = min(seen, len(tiling.loops))
    moving = window_period(tiling.loops, dims, count)
    places = [{d: s for d, s in spans(tiling, extents, t, count).items() if d in dims} for t in range(tiling.tiles)]
    assert tiling.tiles % moving == 0
    changes = [t for t in range(1, tiling.tiles) if places[t] != places[t - 1]]
    assert all(t % moving == 0 for t in changes)
    if any(loop.dim in dims and loop.trips > 1 for loop in tiling.loops[:count]):
        assert changes == list(range(moving, tiling.tiles, moving))


def calls(folder: Path) -> list[tuple[deeploy.Compiled, Call]]:
    result = []
    for build in (nets.convolutions, nets.perceptron, nets.transposed):
        compiled = build(folder, Options())
        result += [(compiled, call) for call in compiled.network.program.calls]
    return result


def test_only_parallel_dimensions_of_the_output_are_cut(tmp_path: Path) -> None:
    for _, call in calls(tmp_path):
        found = cut_dims(call)
        outputs = {d.name for output in call.writes for d in call.geometry.nest.maps()[output].dims()}
        assert found.keys() <= outputs
        assert all(call.geometry.dims()[name].kind.value == "parallel" for name in found)
