"""All factorisations are there, the paper's pruning loses nothing, arrays that cannot be filled are refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeploy.errors import UsageError
from deeploy.explore.choose import best_set
from deeploy.explore.cost import evaluate_unrollings
from deeploy.explore.study import total_costs
from deeploy.explore.unrollings import all_divisors, count_factorisations, enumerate_unrollings, label_unrolling
from deeploy.ir.loops import LOOPS, LayerLoops
from tests.explore.accelerators import shared

BIG = LayerLoops("big", (10**6,) * 7)


def mobile() -> list[LayerLoops]:
    """A classical, a pointwise, a depthwise layer and a product with heads, all square."""
    return [
        LayerLoops("classical", (1, 16, 3, 16, 16, 3, 3), count=1),
        LayerLoops("pointwise", (1, 32, 16, 16, 16, 1, 1), count=3),
        LayerLoops("depthwise", (32, 1, 1, 16, 16, 3, 3), count=2),
        LayerLoops("heads", (4, 16, 8, 4, 4, 1, 1), count=2),
    ]


@settings(max_examples=30)
@given(st.integers(1, 5000))
def test_divisors(number: int) -> None:
    assert all_divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


@pytest.mark.parametrize("pes", [1, 2, 12, 30, 64])
def test_all_factorisations_are_generated(pes: int) -> None:
    expected = {f for f in itertools.product(all_divisors(pes), repeat=7) if math.prod(f) == pes}
    found = enumerate_unrollings(pes, [BIG], prune=False)
    assert {tuple(row) for row in found.factors.tolist()} == expected
    assert len(found) == found.complete == found.useful == count_factorisations(pes) == len(expected)


def test_the_count_for_the_papers_arrays() -> None:
    assert count_factorisations(256) == math.comb(8 + 6, 6)
    assert count_factorisations(8192) == math.comb(13 + 6, 6) == 27132
    assert count_factorisations(9973) == 7


def test_factors_cover_loops_with_padding_but_not_twice() -> None:
    factors = enumerate_unrollings(64, [LayerLoops("small", (1, 5, 4, 3, 3, 3, 1))], prune=False).factors
    assert factors.max(axis=0).tolist() == [1, 8, 4, 4, 4, 4, 1]


def test_pruning_keeps_one_pair_per_product() -> None:
    kept = enumerate_unrollings(64, mobile())
    assert kept.is_pruned
    assert len(kept) < kept.useful
    named = [dict(zip(LOOPS, row, strict=True)) for row in kept.factors.tolist()]
    assert all(row["OX"] >= row["OY"] for row in named)
    groups = {(row["G"], row["K"], row["C"], row["FY"], row["FX"]) for row in named}
    assert len(groups) == len(named)
    for row in named:
        product = row["OY"] * row["OX"]
        others = [(product // ox, ox) for ox in all_divisors(product) if ox <= 16 and product // ox <= ox]
        pixels = [(oy + row["FY"] - 1) * (ox + row["FX"] - 1) for oy, ox in others]
        assert (row["OY"] + row["FY"] - 1) * (row["OX"] + row["FX"] - 1) == min(pixels)


def test_layers_that_are_not_square_are_not_pruned() -> None:
    wide = LayerLoops("wide", (1, 4, 4, 2, 32, 1, 1))
    found = enumerate_unrollings(64, [*mobile(), wide])
    assert not found.is_pruned
    assert len(found) == found.useful


@pytest.mark.parametrize("pes", [4, 16, 64])
@pytest.mark.parametrize("bandwidth", [32, 256, 4096])
@pytest.mark.parametrize("size", [1, 2])
def test_without_pruning_the_optimum_is_the_same(pes: int, bandwidth: float, size: int) -> None:
    best = []
    for prune in (True, False):
        found = enumerate_unrollings(pes, mobile(), prune)
        cycles, energy = total_costs(evaluate_unrollings(found.factors, mobile(), shared(pes, bandwidth)), mobile())
        best.append(best_set(cycles, energy, size).edp)
    assert best[0] == pytest.approx(best[1], rel=1e-6)


def test_an_array_that_nothing_fills_is_refused() -> None:
    with pytest.raises(UsageError, match="no spatial unrolling fills 9973 elements: the longest loops are G 32, K 32"):
        enumerate_unrollings(9973, mobile())
    with pytest.raises(UsageError, match="fills 1048576 elements"):
        enumerate_unrollings(1 << 20, [LayerLoops("tiny", (1, 4, 4, 2, 2, 1, 1))])


def test_labels() -> None:
    assert label_unrolling(np.array([1, 8, 1, 2, 4, 1, 3])) == "K8 OY2 OX4 FX3"
    assert label_unrolling(np.ones(7)) == "none"
