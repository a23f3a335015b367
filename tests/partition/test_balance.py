"""Strategies that cut a network into a pipeline, against all ways to cut it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeploy.errors import FitError, UsageError
from deeploy.partition import balance
from deeploy.partition.balance_levels import INPUT, BalancedLayer, Levels, layer_depths, levels_of, stage_segments, stage_sizes


def chain(*weights: int) -> Levels:
    """A network without branches."""
    return levels_of([BalancedLayer(f"l{i}", (i - 1,), weight, 1) for i, weight in enumerate(weights)], 1)


@st.composite
def dags(draw: st.DrawFn, most: int = 9) -> list[BalancedLayer]:
    """Small networks with branches."""
    count = draw(st.integers(1, most))
    reads = [draw(st.sets(st.integers(INPUT, i - 1), min_size=1, max_size=3)) for i in range(count)]
    return [BalancedLayer(f"l{i}", tuple(sorted(r)), draw(st.integers(0, 50)), draw(st.integers(1, 20))) for i, r in enumerate(reads)]


def every_cut(depth: int, stages: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(1, depth), stages - 1))


def tables_of(levels: Levels, stages: int, capacity: float, speeds: list[float]) -> list[np.ndarray]:
    """A made-up device: time by constants, what is over its capacity four times as slow, and what crosses the borders."""
    tables = []
    for stage in range(stages):
        table = np.full((levels.depth, levels.depth + 1), math.inf)
        for first in range(levels.depth):
            for end in range(first + 1, levels.depth + 1):
                size = sum(levels.weights[first:end])
                moved = levels.crossing[first] + levels.crossing[end]
                table[first, end] = (size + 4 * max(0, size - capacity)) / speeds[stage] + moved
        tables.append(table)
    return tables


# ---- levels


def test_depth_is_the_longest_path() -> None:
    layers = [
        BalancedLayer("a", (INPUT,), 0, 1),
        BalancedLayer("b", (0,), 0, 1),
        BalancedLayer("c", (0, 1), 0, 1),
        BalancedLayer("d", (INPUT,), 0, 1),
        BalancedLayer("e", (2, 3), 0, 1),
    ]
    assert layer_depths(layers) == [0, 1, 2, 0, 3]


def test_what_crosses_a_border_counts_once_for_every_border_it_crosses() -> None:
    layers = [
        BalancedLayer("a", (INPUT,), 5, 10),
        BalancedLayer("b", (0,), 6, 20),
        BalancedLayer("c", (1,), 7, 30),
        BalancedLayer("d", (0, 2), 8, 40),
    ]
    levels = levels_of(layers, 3)
    assert levels.weights == (5, 6, 7, 8)
    assert levels.crossing == (3, 10, 30, 40, 40)  # a is forwarded twice: 10, 20 + 10, 30 + 10


def test_what_belongs_together_is_one_level() -> None:
    layers = [BalancedLayer(f"l{i}", (i - 1,), 1 << i, 1) for i in range(5)]
    levels = levels_of(layers, 1, together=[(1, 3)])
    assert levels.layers == ((0,), (1, 2, 3), (4,))
    assert levels.weights == (1, 14, 16)


@given(dags())
def test_layers_read_from_their_own_or_an_earlier_stage(layers: list[BalancedLayer]) -> None:
    levels = levels_of(layers, 1)
    level = {position: number for number, row in enumerate(levels.layers) for position in row}
    assert sorted(level) == list(range(len(layers)))
    assert all(level[read] < level[i] for i, layer in enumerate(layers) for read in layer.reads if read != INPUT)
    assert sum(levels.weights) == sum(layer.weights for layer in layers)


# ---- layers and vendor


@pytest.mark.parametrize("strategy", [balance.cut_by_layers, balance.cut_by_vendor])
def test_five_layers_are_cut_for_four_devices_as_the_paper_says_of_the_vendor(strategy: Callable[[Levels, int], tuple[int, ...]]) -> None:
    assert strategy(chain(1, 9, 9, 9, 9), 4) == (1, 2, 3)


def test_the_vendor_fills_stages_up_to_the_average_and_leaves_the_rest_to_the_last() -> None:
    assert balance.cut_by_vendor(chain(4, 6, 5, 5, 7, 3, 9, 1), 4) == (2, 4, 6)  # 10 each, exactly
    levels = chain(6, 6, 6, 6, 6, 6, 4)  # 10 on average
    assert balance.cut_by_vendor(levels, 4) == (1, 2, 3)
    assert stage_sizes(levels, balance.cut_by_vendor(levels, 4)) == [6, 6, 6, 22]


@pytest.mark.parametrize("strategy", [balance.cut_by_layers, balance.cut_by_vendor])
@given(dags(), st.data())
def test_every_stage_gets_a_level(
    strategy: Callable[[Levels, int], tuple[int, ...]], layers: list[BalancedLayer], data: st.DataObject
) -> None:
    levels = levels_of(layers, 1)
    stages = data.draw(st.integers(1, levels.depth))
    cuts = strategy(levels, stages)
    assert len(cuts) == stages - 1
    assert all(end > first for first, end in stage_segments(cuts, levels.depth))


# ---- parameters


@given(st.lists(st.integers(0, 60), min_size=1, max_size=10), st.data())
def test_parameters_makes_the_largest_stage_as_small_as_any_cut_does(weights: list[int], data: st.DataObject) -> None:
    levels = chain(*weights)
    stages = data.draw(st.integers(1, len(weights)))
    cuts = balance.cut_by_parameters(levels, stages).cuts
    assert len(cuts) == stages - 1
    assert all(end > first for first, end in stage_segments(cuts, levels.depth))
    assert max(stage_sizes(levels, cuts)) == min(max(stage_sizes(levels, other)) for other in every_cut(levels.depth, stages))


def test_the_synthetic_family_is_split_two_one_one_one() -> None:
    assert balance.cut_by_parameters(chain(1, 99, 99, 99, 99), 4).cuts == (2, 3, 4)


def test_fewer_stages_than_devices_are_cut_further() -> None:
    assert balance.balanced_split([9, 1, 1], 3) == (1,)
    assert balance.cut_by_parameters(chain(9, 1, 1), 3).cuts == (1, 2)


def over(levels: Levels, capacities: list[int]) -> balance.Overflow:
    return lambda stage, first, end: max(0, sum(levels.weights[first:end]) - capacities[stage])


def test_refinement_goes_forward_several_levels_at_a_time() -> None:
    levels = chain(*[10] * 12)
    refined = balance.refine_cuts(levels, (6,), over(levels, [30, 100]))
    assert refined.cuts == (3,)
    assert (refined.moves, refined.excess) == (1, 0)


def test_refinement_goes_backward_when_the_last_stage_has_too_much() -> None:
    levels = chain(*[10] * 12)
    refined = balance.refine_cuts(levels, (4, 8), over(levels, [100, 60, 20]))
    assert refined.cuts == (4, 10)
    assert (refined.moves, refined.excess) == (1, 0), "two levels at once"


def test_refinement_says_what_is_too_much_in_the_end() -> None:
    levels = chain(50, 50)
    refined = balance.refine_cuts(levels, (1,), over(levels, [20, 60]))
    assert (refined.cuts, refined.excess) == ((1,), 30)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=10), st.data())
def test_refinement_leaves_what_fits_and_never_empties_a_stage(weights: list[int], data: st.DataObject) -> None:
    levels = chain(*weights)
    stages = data.draw(st.integers(2, len(weights)))
    capacities = data.draw(st.lists(st.integers(5, 60), min_size=stages, max_size=stages))
    start = data.draw(st.sampled_from(every_cut(levels.depth, stages)))
    refined = balance.refine_cuts(levels, start, over(levels, capacities))
    parts = stage_segments(refined.cuts, levels.depth)
    assert len(parts) == stages and all(end > first for first, end in parts)
    before = sum(over(levels, capacities)(k, *part) for k, part in enumerate(stage_segments(start, levels.depth)))
    assert refined.excess == sum(over(levels, capacities)(k, *part) for k, part in enumerate(parts))
    assert refined.excess <= before
    if refined.excess == before:
        assert refined.cuts == start and refined.moves == 0, "what moving does not mend stays as equal as it was"


def test_cuts_stay_where_no_cut_avoids_what_is_too_much() -> None:
    """Two equal halves, each too large by as much as one of two unequal stages would be."""
    levels = chain(1, 40, 40, 40, 40)
    refined = balance.cut_by_parameters(levels, 2, over(levels, [79, 79]))
    assert (refined.cuts, refined.moves, refined.excess) == ((3,), 0, 3)


# ---- cycles and profile


@settings(max_examples=150)
@given(dags(), st.data())
def test_cycles_is_the_best_of_all_cuts_and_never_worse_than_the_other_strategies(layers: list[BalancedLayer], data: st.DataObject) -> None:
    levels = levels_of(layers, 1)
    stages = data.draw(st.integers(1, min(4, levels.depth)))
    speeds = data.draw(st.lists(st.sampled_from([1.0, 2.0, 0.5]), min_size=stages, max_size=stages))
    tables = tables_of(levels, stages, data.draw(st.integers(5, 80)), speeds)
    cuts = balance.cut_by_cycles(levels, tables)
    best = min(balance.slowest_stage(tables, other) for other in every_cut(levels.depth, stages))
    assert balance.slowest_stage(tables, cuts) == best
    totals = [
        sum(tables[k][part] for k, part in enumerate(stage_segments(other, levels.depth)))
        for other in every_cut(levels.depth, stages)
        if balance.slowest_stage(tables, other) == best
    ]
    assert sum(tables[k][part] for k, part in enumerate(stage_segments(cuts, levels.depth))) == pytest.approx(min(totals))
    others = (balance.cut_by_layers(levels, stages), balance.cut_by_vendor(levels, stages), balance.cut_by_parameters(levels, stages).cuts)
    for other in (*others, balance.cut_by_profile(levels, tables)):
        assert best <= balance.slowest_stage(tables, other)
    assert balance.slowest_stage(tables, balance.cut_by_profile(levels, tables)) == best


def test_cycles_uses_what_each_device_is_good_at() -> None:
    levels = chain(10, 10, 10, 10)
    tables = tables_of(levels, 2, 1000, [1.0, 3.0])
    assert balance.cut_by_cycles(levels, tables) == (1,)
    assert balance.cut_by_cycles(levels, tables[::-1]) == (3,)


# ---- what cannot be


def test_more_devices_than_levels_is_refused_by_every_strategy() -> None:
    levels = chain(1, 1, 1)
    tables = tables_of(levels, 4, 10, [1.0] * 4)
    for strategy in (
        lambda: balance.cut_by_layers(levels, 4),
        lambda: balance.cut_by_vendor(levels, 4),
        lambda: balance.cut_by_parameters(levels, 4),
        lambda: balance.cut_by_profile(levels, tables),
        lambda: balance.cut_by_cycles(levels, tables),
    ):
        with pytest.raises(UsageError, match="4 stages are more than the 3 levels"):
            strategy()


def test_profile_refuses_more_cuts_than_it_would_try() -> None:
    levels = chain(*[1] * 30)
    tables = tables_of(levels, 6, 100, [1.0] * 6)
    with pytest.raises(UsageError, match=r"would try 118755 ways.*1000 at most"):
        balance.cut_by_profile(levels, tables, most=1000)
    assert balance.count_partitions(levels, 6) == 118755


@pytest.mark.parametrize("strategy", [balance.cut_by_cycles, balance.cut_by_profile])
def test_a_level_that_no_device_can_run_is_named(strategy: Callable[[Levels, list[np.ndarray]], object]) -> None:
    levels = chain(1, 100, 1)
    tables = tables_of(levels, 2, 1000, [1.0, 1.0])
    for table in tables:
        table[:, :][[0, 0, 1, 1], [2, 3, 2, 3]] = math.inf
    with pytest.raises(FitError, match="level 1 of 3, with l1, has 100 bytes of constants"):
        strategy(levels, tables)


def test_where_every_level_fits_but_no_cut_does_more_devices_are_asked_for() -> None:
    levels = chain(1, 1, 1)
    tables = tables_of(levels, 2, 1000, [1.0, 1.0])
    for table in tables:
        for first in range(3):
            table[first, first + 2 :] = math.inf
    with pytest.raises(FitError, match="one of 2 stages does not fit"):
        balance.cut_by_cycles(levels, tables)


def test_the_smallest_number_of_stages_that_fits_is_found() -> None:
    levels = chain(*[10] * 8)

    def fits(stages: int) -> bool:
        return max(stage_sizes(levels, balance.cut_by_parameters(levels, stages).cuts)) <= 25

    assert balance.smallest_count(levels, fits, 8) == 4
    with pytest.raises(FitError, match="any number of them up to 3"):
        balance.smallest_count(levels, fits, 3)
