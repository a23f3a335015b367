"""Gates beside the elements: counted by hand on arrays of a few elements."""

from __future__ import annotations

import numpy as np
import pytest

from deeploy.explore import overhead
from deeploy.explore.hardware import load_hardware
from deeploy.explore.overhead import (
    ADDER,
    AND,
    FLIP_FLOP,
    MULTIPLEXER,
    datapath_gates,
    of_pairs,
    overhead_front,
    overhead_gates,
    word_lanes,
)
from deeploy.ir.loops import LOOPS
from tests.conftest import ROOT


def row(**factors: int) -> list[int]:
    return [factors.get(loop, 1) for loop in LOOPS]


def test_lanes_of_one_unrolling() -> None:
    weights, inputs, outputs = word_lanes(np.array(row(K=2, OX=2, FX=2))).tolist()
    # Elements: K outermost, then FX, then OX.
    assert weights == [0, 0, 1, 1, 2, 2, 3, 3]  # (k, fx)
    assert inputs == [0, 1, 1, 2, 0, 1, 1, 2]  # ox + fx
    assert outputs == [0, 1, 0, 1, 2, 3, 2, 3]  # (k, ox)


HARDWARE = load_hardware(ROOT / "examples" / "hardware" / "table3.toml")  # 8 bits, sums of 16


def test_one_unrolling_needs_no_multiplexers() -> None:
    """Four outputs, each the sum of two elements: four adders."""
    assert overhead_gates(np.array([row(K=4)]), HARDWARE) == 0
    assert overhead_gates(np.array([row(K=4, C=2)]), HARDWARE) == round(4 * 16 * ADDER)


def test_two_unrollings() -> None:
    """K2 and C2 on two elements: weights agree; element 1 has input lane 0 or 1, and output lane 1 or 0. C2 needs an adder."""
    gates = (8 + 16) * MULTIPLEXER + 16 * ADDER
    assert overhead_gates(np.array([row(K=2), row(C=2)]), HARDWARE) == round(gates)


def test_trees_over_different_elements_have_multiplexers() -> None:
    """C2 adds neighbours, or elements two apart under two pixels: both inputs of the two adders that both use have two sources."""
    factors = np.array([row(K=2, C=2), row(C=2, OX=2)])
    apart = [int(np.count_nonzero(one != two)) for one, two in zip(word_lanes(factors[0]), word_lanes(factors[1]), strict=True)]
    assignment = sum(count * bits for count, bits in zip(apart, (8, 8, 16), strict=True)) * MULTIPLEXER
    assert overhead_gates(factors, HARDWARE) == round(assignment + 16 * (2 * ADDER + 2 * 2 * MULTIPLEXER))


def test_elements() -> None:
    """A multiplier of 8 x 8 bits, an adder of 16, and a word of each operand."""
    held = sum(words * bits for words, bits in zip(HARDWARE.registers, (8, 8, 16), strict=True))
    assert datapath_gates(HARDWARE) == round(8192 * (56 * ADDER + 64 * AND + 16 * ADDER + held * FLIP_FLOP))


def test_pairs_agree_with_sets() -> None:
    factors = np.array([row(K=8), row(C=8), row(OX=4, OY=2), row(G=2, FX=4), row(K=2, C=2, OX=2)])
    table = of_pairs(factors, HARDWARE)
    for i in range(len(factors)):
        for j in range(len(factors)):
            wanted = overhead_gates(factors[[i] if i == j else [i, j]], HARDWARE)
            assert table[i, j] == pytest.approx(wanted, abs=1)


def test_pairs_on_a_large_array_are_estimated_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = np.array([row(K=64, C=64), row(K=16, C=256), row(OX=64, OY=64), row(G=16, FX=4, K=64), row(K=16, C=16, OX=16)])
    exact = of_pairs(factors, HARDWARE)
    monkeypatch.setattr(overhead, "MOST_ELEMENTS", 1024)
    sampled = of_pairs(factors, HARDWARE)
    assert np.abs(sampled - exact).max() < 0.1 * exact.max() and not np.array_equal(sampled, exact)


def test_three_unrollings_count_different_lanes() -> None:
    factors = np.array([row(K=2), row(C=2), row(OX=2)])
    # Element 1: weight lanes 1, 1, 0; input lanes 0, 1, 1; output lanes 1, 0, 1. Element 0: always lane 0.
    assert overhead_gates(factors, HARDWARE) == round((8 + 8 + 16) * MULTIPLEXER + 16 * ADDER)


def test_front() -> None:
    assert overhead_front([5.0, 4.0, 4.5, 3.0, 3.0], [0, 2, 1, 4, 5]) == [0, 2, 1, 3]
