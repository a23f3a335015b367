"""The integers of a requantiser of few bits whose results are nearest to those of a requantisation, and the proof of how near they are.

``clip((sum*mul + add) >> shift, low, high)`` is determined by its thresholds: the first sum that gives at least each step
(``staircase.py``). A requantiser's own are ``ceil((step * 2^shift - add) / mul)``. A sum gives another result exactly if it lies between
both thresholds of a step, and results are at most one step apart exactly if no threshold passes that of the next step. So sums that
differ are counted over all that can occur, without trying one.

A shift that channels share is the largest with which products fit, as multipliers then have most bits, or a smaller one where an engine
asks for that; a channel's own is the best of the largest few. The multiplier of a channel is next to ``mul`` in as many bits, its summand
the best of those that put one threshold in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from deeploy.ir.target import Requantiser
from deeploy.ir.types import Array
from deeploy.operators.staircase import Staircase

SPREAD = 12  # how far shifts of channels are apart at most
TRIED = 4  # shifts of a channel of its own, of which one may come nearer by chance
CANDIDATES = 33  # thresholds of a channel that summands are tried for
NONE = np.int64(2**62)  # what a channel costs where no summand keeps it within one step


@dataclass(frozen=True)
class Nearest:
    """A requantiser's integers, and what they cost; sums are counted over all channels.

    Attributes:
        mul, add, shift: int64, one entry per channel.
        sums: that can occur.
        inside: those among them whose exact result is neither the least nor the greatest.
        differ: those with another result, which is one step away.
    """

    mul: Array
    add: Array
    shift: Array
    sums: int
    inside: int
    differ: int


def nearest_results(stairs: Staircase, mul: Array, shift: int, by: Requantiser) -> Iterator[Nearest]:
    """The nearest results by the largest shifts, then by ever smaller ones, as far as all sums are within one step.

    Args:
        stairs: what is to be computed.
        mul, shift: how it is computed exactly; int64 [channels], positive.
    """
    least, most = stairs.least, stairs.most
    first = np.clip(stairs.thresholds, least[:, None], most[:, None] + 1)
    sums, inside = int((most - least + 1).sum()), int((first[:, -1] - first[:, 0]).sum())
    largest = _largest_shift(np.maximum(np.maximum(-least, most), 1), mul, shift, by)
    for less in range(int(largest.min())):
        cost, best = np.full_like(least, NONE), np.zeros((3, len(least)), np.int64)  # best: multiplier, summand and shift
        for fewer, up in product(range(TRIED if by.has_shifts else 1), (0, 1)):
            right = np.maximum(largest - less - fewer, 1)
            multiplier = np.maximum(mul >> (shift - right), 1) + up
            for add in _place_summands(stairs, first, multiplier, right[:, None]):
                step = _count_differing(stairs, first, multiplier, add, right[:, None], by)
                better = step < cost
                cost[better], best[:, better] = step[better], np.stack([multiplier, add, right])[:, better]
        if (cost < NONE).all():
            yield Nearest(best[0], best[1], best[2], sums, inside, int(cost.sum()))


def _largest_shift(size: Array, mul: Array, shift: int, by: Requantiser) -> Array:
    """The largest shift of every channel, 0 where there is none, at which the products of sums of that size fit."""
    largest = np.zeros_like(mul)
    for right in range(1, min(shift, by.shift) + 1):
        lower = np.maximum(mul >> (shift - right), 1)
        largest = np.where((lower < 1 << by.mul) & (lower * size < 1 << (by.word - 1)), right, largest)
    return np.asarray(np.minimum(largest, largest.min() + (SPREAD if by.has_shifts else 0)))


def _place_summands(stairs: Staircase, first: Array, mul: Array, shift: Array) -> Iterator[Array]:
    """Summands that put the threshold of some step of every channel in its place, or leave the results of both ends what they are.

    ``shift`` is [channels, 1].
    """
    least, most = stairs.least, stairs.most
    scaled = stairs.steps << shift
    reached = (first > least[:, None]) & (first <= most[:, None])
    count = reached.sum(axis=1)
    placed = np.sort(np.where(reached, scaled - mul[:, None] * first, NONE), axis=1)
    lowest, highest = ((stairs.steps[0] - 1 + (first <= end[:, None]).sum(axis=1)) << shift[:, 0] for end in (least, most))
    lower, upper = lowest - mul * least, highest + (1 << shift[:, 0]) - 1 - mul * most
    yield lower
    yield upper
    for part in range(CANDIDATES):
        index = np.maximum(count - 1, 0) * part // (CANDIDATES - 1)
        yield np.where(count > 0, np.take_along_axis(placed, index[:, None], axis=1)[:, 0], (lower + upper) // 2)


def _count_differing(stairs: Staircase, first: Array, mul: Array, add: Array, shift: Array, by: Requantiser) -> Array:
    """How many sums of every channel differ; NONE where one differs by more than a step, or the requantiser has no room."""
    least, most, word = stairs.least, stairs.most, 1 << (by.word - 1)
    own = np.clip(-((add[:, None] - (stairs.steps << shift)) // mul[:, None]), least[:, None], most[:, None] + 1)
    is_near = (own[:, 1:] >= first[:, :-1]).all(axis=1) & (first[:, 1:] >= own[:, :-1]).all(axis=1)
    ends = np.stack([least * mul, most * mul])
    fits = (np.abs(add) < min(word, 1 << (by.add - 1))) & (mul < 1 << by.mul)
    fits &= ((ends >= -word) & (ends < word) & (ends + add >= -word) & (ends + add < word)).all(axis=0)
    return np.where(is_near & fits, np.abs(own - first).sum(axis=1), NONE)
