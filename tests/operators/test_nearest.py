"""The integers of a requantiser that are nearest to a requantisation: what is proved of them, beside every sum tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deeploy.ir import epilogue
from deeploy.operators.nearest import Nearest, nearest_results
from deeploy.operators.staircase import staircase
from deeploy.target import Requantiser

Array = np.ndarray[Any, np.dtype[Any]]
NARROW = Requantiser(word=20, mul=12, add=20, shift=15)
APART = replace(NARROW, has_shifts=True)
CHANNELS, SHIFT = 6, 30


def tried(
    found: Nearest, mul: Array, add: Array, limits: tuple[int, int], even: int | None, ends: tuple[Array, Array]
) -> tuple[int, int, int]:
    """Of every sum that can occur: how many there are, how many differ, and how many have a result between the limits."""
    total = differ = inside = 0
    for channel, (least, most) in enumerate(zip(*ends, strict=True)):
        acc = np.arange(least, most + 1)
        wanted = np.clip(epilogue.shift_right(acc * mul[channel] + add[channel], SHIFT, even), *limits)
        wide = acc * found.mul[channel]
        assert max(np.abs(wide).max(), np.abs(wide + found.add[channel]).max()) < 1 << (NARROW.word - 1), "more than a word holds"
        got = np.clip((wide + found.add[channel]) >> found.shift[channel], *limits)
        far = np.abs(got - wanted)
        assert far.max() <= 1
        total, differ = total + len(acc), differ + int((far > 0).sum())
        inside += int(((wanted > limits[0]) & (wanted < limits[1])).sum())
    return total, differ, inside


@pytest.mark.parametrize("even", [None, 0, 1])
@pytest.mark.parametrize("by", [NARROW, APART])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_proved_holds_of_every_sum(seed: int, by: Requantiser, even: int | None) -> None:
    random = np.random.default_rng(seed)
    least, most = -random.integers(0, 1500, CHANNELS), random.integers(0, 1500, CHANNELS)
    limits = (-128, 127) if seed % 2 else (-20, 100)
    scale = 2.0 ** -random.integers(0, 3) * random.uniform(0.05, 0.3, CHANNELS)
    mul = np.maximum(scale * 2.0**SHIFT, 1).astype(np.int64)
    if seed == 3:
        mul[2], least[2], most[2] = 1, 0, 0  # a channel without weights
    add = (random.integers(-60, 60, CHANNELS) << SHIFT) + (1 << SHIFT >> 1)
    found = list(nearest_results(staircase(mul, add, SHIFT, *limits, even, least, most), mul, SHIFT, by))
    assert found and [one.shift[0] for one in found] == sorted((one.shift[0] for one in found), reverse=True)
    for one in found:
        assert by.has_shifts or len({*one.shift}) == 1
        assert (one.sums, one.differ, one.inside) == tried(one, mul, add, limits, even, (least, most))
    assert found[0].differ <= min(one.differ for one in found) * 1.1 + 2, "the largest shift has the most bits"


@pytest.mark.parametrize("seed", range(4))
def test_no_other_summand_is_much_better(seed: int) -> None:
    random = np.random.default_rng(seed)
    least, most, mul = np.array([-900 * (seed % 2)]), np.array([1000]), random.integers(1 << 26, 1 << 28, 1)
    add = np.array([(int(random.integers(-90, 90)) << SHIFT) + (1 << SHIFT >> 1)])
    found = next(nearest_results(staircase(mul, add, SHIFT, -128, 127, None, least, most), mul, SHIFT, NARROW))
    acc = np.arange(least[0], most[0] + 1)
    wanted = np.clip((acc * mul + add) >> SHIFT, -128, 127)
    shift = int(found.shift[0])
    others = (add[0] >> (SHIFT - shift)) + np.arange(-(2 << shift), 2 << shift)
    best = min(
        int((np.clip((acc * factor + others[:, None]) >> shift, -128, 127) != wanted).sum(axis=1).min())
        for factor in range(int(found.mul[0]) - 1, int(found.mul[0]) + 2)
    )
    assert found.differ <= 1.1 * best + 2


def test_what_a_requantiser_can_itself_is_exact() -> None:
    mul, add = np.array([100, 57]) << 20, (np.array([3, -4]) << 30) + (1 << 29)
    ends = np.array([-500, -800]), np.array([900, 700])
    found = next(nearest_results(staircase(mul, add, 30, -128, 127, None, *ends), mul, 30, NARROW))
    assert found.differ == 0 and tried(found, mul, add, (-128, 127), None, ends)[1] == 0


@pytest.mark.parametrize("least", [600_000, 9000])
def test_where_one_step_cannot_be_kept_nothing_is_found(least: int) -> None:
    mul, add = np.array([2**29, 6_000_000]), np.array([1 << 29, 1 << 29])
    stairs = staircase(mul, add, 30, -128, 127, None, np.array([-least, -5000]), np.array([least, 5000]))
    assert list(nearest_results(stairs, mul, 30, NARROW)) == []
    assert (next(nearest_results(stairs, mul, 30, APART), None) is not None) == (least == 9000), "shifts of their own help"
