"""Multiplexer inputs: counted by hand on arrays of a few elements."""

from __future__ import annotations

import numpy as np
import pytest

from deeploy.explore import overhead
from deeploy.explore.overhead import multiplexer_inputs, of_pairs, overhead_front, word_lanes
from deeploy.ir.loops import LOOPS


def row(**factors: int) -> list[int]:
    return [factors.get(loop, 1) for loop in LOOPS]


def test_lanes_of_one_unrolling() -> None:
    weights, inputs, outputs = word_lanes(np.array(row(K=2, OX=2, FX=2))).tolist()
    # Elements: K outermost, then FX, then OX.
    assert weights == [0, 0, 1, 1, 2, 2, 3, 3]  # (k, fx)
    assert inputs == [0, 1, 1, 2, 0, 1, 1, 2]  # ox + fx
    assert outputs == [0, 1, 0, 1, 2, 3, 2, 3]  # (k, ox)


def test_one_unrolling_needs_wires_only() -> None:
    assert multiplexer_inputs(np.array([row(K=4, C=2)])) == 0


def test_two_unrollings() -> None:
    """K2 and C2 on two elements: weights agree; element 1 has input lane 0 or 1, and output lane 1 or 0."""
    assert multiplexer_inputs(np.array([row(K=2), row(C=2)])) == 2 + 2


def test_pairs_agree_with_sets() -> None:
    factors = np.array([row(K=8), row(C=8), row(OX=4, OY=2), row(G=2, FX=4), row(K=2, C=2, OX=2)])
    table = of_pairs(factors)
    for i in range(len(factors)):
        for j in range(len(factors)):
            assert table[i, j] == (0 if i == j else multiplexer_inputs(factors[[i, j]]))


def test_pairs_on_a_large_array_are_estimated_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = np.array([row(K=64, C=64), row(K=16, C=256), row(OX=64, OY=64), row(G=16, FX=4, K=64), row(K=16, C=16, OX=16)])
    exact = of_pairs(factors)
    monkeypatch.setattr(overhead, "MOST_ELEMENTS", 1024)
    assert np.abs(of_pairs(factors) - exact).max() < 0.1 * exact.max() and not np.array_equal(of_pairs(factors), exact)


def test_three_unrollings_count_different_lanes() -> None:
    factors = np.array([row(K=2), row(C=2), row(OX=2)])
    # Element 1: weight lanes 1, 1, 0; input lanes 0, 1, 1; output lanes 1, 0, 1. Element 0: always lane 0.
    assert multiplexer_inputs(factors) == 2 + 2 + 2


def test_front() -> None:
    assert overhead_front([5.0, 4.0, 4.5, 3.0, 3.0], [0, 2, 1, 4, 5]) == [0, 2, 1, 3]
