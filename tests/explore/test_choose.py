"""The chosen sets against trying every set and every assignment."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeploy.explore.choose import OBJECTIVES, Objective, _promising_rows, best_set, evaluate_set, undominated_rows

Array = np.ndarray


def instance(seed: int, rows: int, layers: int) -> tuple[Array, Array]:
    """Costs over four decades, with zeros' absence and repeated rows."""
    random = np.random.default_rng(seed)
    cycles, energy = (np.round(10 ** random.uniform(0, 4, (rows, layers)), 2) for _ in range(2))
    cycles[-1], energy[-1] = cycles[0], energy[0]
    return cycles, energy


def tried(cycles: Array, energy: Array, size: int) -> dict[str, float]:
    """The least of every objective over all sets and all assignments of layers."""
    best = {"edp": np.inf, "latency": np.inf, "energy": np.inf}
    layers = np.arange(cycles.shape[1])
    for rows in itertools.combinations(range(len(cycles)), size):
        for uses in itertools.product(rows, repeat=len(layers)):
            t, e = cycles[list(uses), layers].sum(), energy[list(uses), layers].sum()
            best = {"edp": min(best["edp"], t * e), "latency": min(best["latency"], t), "energy": min(best["energy"], e)}
    return best


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 7), st.integers(1, 4), st.integers(1, 3))
def test_sets_are_optimal(seed: int, rows: int, layers: int, size: int) -> None:
    cycles, energy = instance(seed, rows, layers)
    expected = tried(cycles, energy, size)
    for objective in OBJECTIVES:
        choice = best_set(cycles, energy, size, objective)
        assert choice.value(objective) == pytest.approx(expected[objective], rel=2e-6)
        assert choice.bound <= choice.value(objective) * (1 + 1e-9)
        assert choice.bound >= choice.value(objective) * (1 - 2e-6)
        assert len(choice.rows) <= size
        uses = np.array(choice.rows)[list(choice.uses)]
        assert cycles[uses, np.arange(layers)].sum() == pytest.approx(choice.cycles)
        assert energy[uses, np.arange(layers)].sum() == pytest.approx(choice.energy)


@pytest.mark.parametrize("size", [3, 4])
def test_the_solver_finds_what_trying_all_sets_finds(size: int) -> None:
    cycles, energy = instance(7, 30, 12)
    least = min(cycles[list(rows)].min(axis=0).sum() for rows in itertools.combinations(range(30), size))
    choice = best_set(cycles, energy, size, "latency")
    assert choice.cycles == pytest.approx(least)
    assert choice.bound == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_more_unrollings_are_never_worse(objective: Objective) -> None:
    cycles, energy = instance(3, 24, 8)
    values = [best_set(cycles, energy, size, objective).value(objective) for size in (1, 2, 3, 4)]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]


def test_a_given_set_gets_its_best_assignment() -> None:
    cycles, energy = instance(5, 6, 4)
    for rows in itertools.combinations(range(6), 2):
        layers = np.arange(4)
        least = min(cycles[list(uses), layers].sum() * energy[list(uses), layers].sum() for uses in itertools.product(rows, repeat=4))
        choice = evaluate_set(cycles, energy, rows)
        assert choice.edp == pytest.approx(least, rel=2e-6)
        assert choice.rows == rows


def test_undominated_rows() -> None:
    cost = np.array([[1, 5], [2, 2], [2, 2], [3, 3], [5, 1], [1, 6]], float)
    assert sorted(undominated_rows(cost).tolist()) == [0, 1, 4]


def test_a_set_larger_than_the_choice_is_all_of_it() -> None:
    cycles, energy = instance(1, 2, 3)
    assert best_set(cycles, energy, 5).rows == (0,)  # the second row repeats the first


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 3))
def test_no_row_of_a_best_set_is_ruled_out(seed: int, size: int) -> None:
    cost, _ = instance(seed, 8, 5)
    sums = {rows: cost[list(rows)].min(axis=0).sum() for rows in itertools.combinations(range(len(cost)), size)}
    least = min(sums.values())
    for limit in (least, 1.2 * least):
        kept = set(_promising_rows(cost, size, limit).tolist())
        assert {row for rows, total in sums.items() if total <= limit for row in rows} <= kept
