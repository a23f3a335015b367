"""Loop nests: extents, footprints, MAC counts and legal cuts, against direct enumeration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeploy.ir.dimensions import MAX, Kind
from deeploy.ir.nest import Geometry, Map, Nest, coupled, dense_strides, parallel, reduction


def convolution(stride: int, dilation: int, pad: int, taps: int, size: int, channels: int = 3, filters: int = 4) -> Geometry:
    """A convolution along one axis."""
    out = (size + 2 * pad - (taps - 1) * dilation - 1) // stride + 1
    o, k = parallel("o", "k")
    f, c = reduction("f", "c")
    nest = Nest(
        reads={"x": Map(stride * o + dilation * f - pad, c, outside=0), "w": Map(f, c, k)},
        writes={"y": Map(o, k)},
    )
    return Geometry.bind(nest, {"x": (size, channels), "w": (taps, channels, filters), "y": (out, filters)})


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 3), st.integers(1, 4), st.integers(10, 16), st.data())
def test_footprint_is_the_hull_of_what_a_tile_reads(
    stride: int, dilation: int, pad: int, taps: int, size: int, data: st.DataObject
) -> None:
    geometry = convolution(stride, dilation, pad, taps, size)
    first = data.draw(st.integers(0, geometry.extents["o"] - 1))
    last = data.draw(st.integers(first, geometry.extents["o"] - 1))
    touched = [stride * o + dilation * f - pad for o in range(first, last + 1) for f in range(taps)]
    found = geometry.footprint("x", {"o": (first, last)})
    inside = [i for i in touched if 0 <= i < size]
    assert found.before[0] == max(0, -min(touched))
    assert found.after[0] == max(0, max(touched) - size + 1)
    if inside:
        assert (found.first[0], found.first[0] + found.extent[0] - 1) == (max(0, min(touched)), min(size - 1, max(touched)))
    assert geometry.footprint("y", {"o": (first, last)}).extent == (last - first + 1, 4)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5))
def test_tiles_cover_the_macs_exactly(tile_o: int, tile_k: int) -> None:
    geometry = convolution(1, 1, 1, 3, 12)
    total = 0
    for o, k in itertools.product(range(0, geometry.extents["o"], tile_o), range(0, geometry.extents["k"], tile_k)):
        box = {
            "o": (o, min(o + tile_o, geometry.extents["o"]) - 1),
            "k": (k, min(k + tile_k, geometry.extents["k"]) - 1),
        }
        total += geometry.macs(box)
    assert total == geometry.macs() == 12 * 4 * 3 * 3


def test_cuts_are_legal_only_where_iterations_are_independent_or_combined() -> None:
    geometry = convolution(1, 1, 0, 3, 8)
    assert [geometry.cuttable(name) for name in ("o", "k", "c")] == [Kind.PARALLEL, Kind.PARALLEL, Kind.REDUCTION]
    (r,), (c,) = parallel("r"), coupled("c")
    rows = Geometry.bind(Nest(reads={"x": Map(r, c)}, writes={"y": Map(r, c)}), {"x": (4, 5), "y": (4, 5)})
    assert (rows.cuttable("r"), rows.cuttable("c"), rows.macs()) == (Kind.PARALLEL, None, 0)


def test_a_maximum_multiplies_nothing() -> None:
    (o,), (f,) = parallel("o"), reduction("f", combine=MAX)
    geometry = Geometry.bind(Nest(reads={"x": Map(2 * o + f)}, writes={"y": Map(o)}, extents={"f": 2}), {"x": (8,), "y": (4,)})
    assert geometry.macs() == 0


def test_phases_share_dimensions_add_macs_and_join_footprints() -> None:
    (o,), (f,) = parallel("o"), reduction("f")
    left = Nest(reads={"x": Map(o + f), "w": Map(f)}, writes={"y": Map(o)})
    right = Nest(reads={"x": Map(o + f + 3), "w": Map(f)}, writes={"y": Map(o)})
    both = Geometry.bind(Nest(left.reads, left.writes, phases=(right,)), {"x": (10,), "w": (3,), "y": (5,)})
    assert both.macs() == 2 * 5 * 3
    assert both.footprint("x", {"o": (0, 0)}).extent == (6,)


def test_broadcast_axes_have_extent_one_and_quotients_follow_groups() -> None:
    a, b = parallel("a", "b")
    geometry = Geometry.bind(Nest(reads={"x": Map(a, b), "s": Map(a, b)}, writes={"y": Map(a, b)}), {"x": (4, 6), "s": (1, 6), "y": (4, 6)})
    assert geometry.footprint("s", {"a": (2, 3)}).extent == (1, 6)
    (k,) = parallel("k")
    (c,) = reduction("c")
    grouped = Geometry.bind(
        Nest(reads={"x": Map(k // 3 * 2 + c), "w": Map(k, c)}, writes={"y": Map(k)}), {"x": (4,), "w": (6, 2), "y": (6,)}
    )
    assert grouped.footprint("x", {"k": (3, 5)}).first == (2,)
    assert (k % 4).span({"k": (5, 6)}) == (1, 2)
    assert (k % 4).span({"k": (3, 5)}) == (0, 3)


def test_contradictions_and_missing_extents_are_errors() -> None:
    a, b = parallel("a", "b")
    with pytest.raises(ValueError, match="dimension a has extent 4"):
        Geometry.bind(Nest(reads={"x": Map(a)}, writes={"y": Map(a)}), {"x": (4,), "y": (5,)})
    with pytest.raises(ValueError, match="dimension b has no extent"):
        Geometry.bind(Nest(reads={"x": Map(a + b)}, writes={"y": Map(a)}), {"x": (4,), "y": (4,)})
    with pytest.raises(ValueError, match="operand x has 2 axes"):
        Geometry.bind(Nest(reads={"x": Map(a)}, writes={"y": Map(a)}), {"x": (4, 1), "y": (4,)})


def test_expressions_print_as_arithmetic() -> None:
    (o,), (f,) = parallel("o"), reduction("f")
    assert str(Map(2 * o + f - 1, o // 2, outside=3)) == "[o * 2 + f - 1, quotient(o, 2)] outside 3"
    assert dense_strides((2, 3, 4)) == (12, 4, 1)
