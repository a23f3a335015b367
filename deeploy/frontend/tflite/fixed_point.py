"""Numbers of TensorFlow Lite's reference kernels: multipliers of 31 bits, and products that are rounded twice.

A real factor is M * 2^(shift - 31) with M in [2^30, 2^31). ``x`` times it is high = (x * M + 2^30) >> 31, a whole number, and then,
where shift is negative, high / 2^-shift, rounded to the nearest, half away from zero (tensorflow/lite/kernels/internal/common.h).
Both are one requantisation each; where one alone gives the same for all accumulators that can occur, that is what is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from deeploy.ir.types import Array
from deeploy.operators.fractions import exponential, invert_sum, multiply_twice_rounded
from deeploy.operators.staircase import LONGEST, Staircase

WORD = 2**31
Rounding: TypeAlias = Literal["twice", "away", "up", "short"]
Factor: TypeAlias = tuple[Array, Array]  # multiplier and shift
_MOST_STEPS = 1024  # results that are looked at one by one
_FAR = 2**40  # beyond all accumulators
_HIGH = 31  # the shift behind the product of two words


class NoConstants(Exception):
    """Factors differ so much that no constants of 32 bits have the results of all channels."""


@dataclass(frozen=True)
class Shift:
    """clip((x * mul + add) >> shift, low, high): constants of one channel or all, int64."""

    mul: Array | int
    add: Array | int
    shift: int
    low: int
    high: int


def quantise_factor(factor: Array | float | np.floating[Any]) -> Factor:
    """M and shift of real factors (float64) or of one, which are next to nothing below 2^-32.

    >>> quantise_factor(0.25)
    (array([1073741824]), array([-1]))
    """
    mantissa, shift = np.frexp(np.atleast_1d(np.asarray(factor, np.float64)))
    multiplier = np.floor(np.abs(mantissa) * WORD + 0.5).astype(np.int64)
    shift = np.where(multiplier == WORD, shift + 1, shift).astype(np.int64)
    multiplier = np.where(multiplier == WORD, WORD // 2, multiplier)
    return np.where(shift < -_HIGH, 0, multiplier) * np.sign(mantissa).astype(np.int64), np.where(shift < -_HIGH, 0, shift)


def find_requantisation(
    factor: Factor, zero_point: int, limits: tuple[int, int], ends: tuple[Array, Array], rounding: Rounding
) -> Iterator[Shift]:
    """The steps that lead from accumulators to results: one, or two where no single one has all results.

    Args:
        factor: of channels, or one for all.
        limits: the least and the largest result.
        ends: the least and the most accumulator, per channel; int64, of 32 bits.
        rounding: of halves: ``twice``; once, away from zero or up; ``short``: up, by multipliers of 15 bits.

    Raises:
        NoConstants: no constants of 32 bits have these results.
    """
    (low, high), count = limits, max(factor[0].size, ends[0].size)
    multiplier, shift, least, most = (np.broadcast_to(each.ravel(), (count,)) for each in (*factor, *ends))
    if high - low > _MOST_STEPS:
        yield from _requantise_words(multiplier, shift, zero_point, limits, (least, most), rounding)
        return
    total, steps = _HIGH - shift, np.arange(low + 1, high + 1, dtype=np.int64) - zero_point
    kind = np.int64 if int(total.max()) < LONGEST and np.abs(steps).max(initial=0) < 2**9 else object  # which is slow, and holds all
    wanted = (steps.astype(kind) << total[:, None].astype(kind)) - ((1 << total.astype(kind))[:, None] >> 1)
    if rounding == "twice":
        wanted = wanted + np.where(shift[:, None] < 0, np.where(steps <= 0, WORD, 0) - WORD // 2, 0)
    elif rounding == "away":
        wanted = wanted + (steps <= 0)
    first = -(-wanted // np.maximum(multiplier, 1)[:, None].astype(kind))
    first = np.where((multiplier == 0)[:, None], np.where(steps <= 0, -_FAR, _FAR), first)
    thresholds = np.clip(first, -_FAR, _FAR).astype(np.int64)
    real = multiplier.astype(np.float64) / 2.0**total
    if (once := _fit_thresholds(Staircase(steps, thresholds, least, most), real)) is not None:
        yield Shift(once[0], once[1] + (zero_point << once[2]), once[2], low, high)
        return
    # The upper word of the product first; of factors above 1 that is a product with nearly 1, which leaves accumulators as they are.
    is_large, right = shift > 0, np.maximum(-shift, 0)
    words = np.where(is_large, WORD - 1, multiplier)
    further = (steps << right[:, None]) - ((1 << right) >> 1)[:, None] + ((steps <= 0) & (right[:, None] > 0))
    further = np.where(is_large[:, None], thresholds, further)
    upper = Staircase(steps, further, *((end * words + WORD // 2) >> _HIGH for end in (least, most)))
    second = _fit_thresholds(upper, np.where(is_large, real, 2.0**-right))
    is_beyond = is_large & (np.maximum(-least, most) > WORD // 2)
    if second is None or rounding != "twice" or is_beyond.any():
        raise NoConstants
    yield Shift(words, WORD // 2, _HIGH, -WORD, WORD - 1)
    yield Shift(second[0], second[1] + (zero_point << second[2]), second[2], low, high)


def _requantise_words(
    multiplier: Array, shift: Array, zero_point: int, limits: tuple[int, int], ends: tuple[Array, Array], rounding: Rounding
) -> Iterator[Shift]:
    """The same for results of 16 bits, of which there are too many to look at one by one."""
    if rounding != "twice":
        bits = 16 if rounding == "short" else 0
        factor, total = np.minimum((multiplier + ((1 << bits) >> 1)) >> bits, (WORD >> bits) - 1), _HIGH - bits - shift
        common = int(total.min()) if rounding == "up" else int(total.max())
        mul = factor >> (total - common) if rounding == "up" else factor << (common - total)
        halves = (1 << np.clip(total - 1, 0, 62)) // np.maximum(multiplier & -multiplier, 1)  # the least sum in the middle between results
        is_tied = rounding == "away" and (np.maximum(-ends[0], ends[1]) >= halves).any()
        if is_tied or total.min() < 1 or mul.max() >= WORD or common > LONGEST:
            raise NoConstants
        yield Shift(mul, (1 << (common - 1)) + (zero_point << common), common, *limits)
        return
    if int(shift.min()) == int(shift.max()) >= 0:
        common = _HIGH - int(shift[0])
        yield Shift(multiplier, ((1 << common) >> 1) + (zero_point << common), common, *limits)
        return
    # high / 2^right, half away from zero, is (high * (2^k + 1) + half * 2^k) >> (right + k), if high has at most k bits.
    right, (low, high) = -shift, limits
    reached = max(int(np.abs((end * multiplier + WORD // 2) >> _HIGH).max()) for end in ends)
    k = min(int(right.max()) + (high - low).bit_length() + 1, reached.bit_length())
    longest = int(right.max()) + k
    mul = np.where(right > 0, ((1 << k) + 1) << (longest - k - np.minimum(right, longest - k)), 1 << longest)
    if right.min() < 0 or mul.max() >= WORD or longest > LONGEST:
        raise NoConstants
    yield Shift(multiplier, WORD // 2, _HIGH, -(1 << k), (1 << k) - 1)
    yield Shift(mul, np.where(right > 0, 1 << (longest - 1), 0) + (zero_point << longest), longest, low, high)


def _fit_thresholds(stairs: Staircase, factor: Array) -> tuple[Array, Array, int] | None:
    """mul, add and a shift for all channels with these thresholds, where some have them; the factors are those to try first."""
    is_reached = (stairs.thresholds > stairs.least[:, None]) & (stairs.thresholds <= stairs.most[:, None])
    is_constant = np.asarray(~is_reached.any(axis=1))
    largest = np.where(is_constant, 0, factor).max(initial=0.0)
    longest = min(LONGEST, 62 - int(np.abs(stairs.steps).max(initial=1)).bit_length())
    best = min(30 - int(np.frexp(largest)[1]) + 1, longest) if largest else 0
    reach = np.maximum(np.abs(stairs.least), np.abs(stairs.most)).max()
    for shift in range(best, max(0, best - 3) - 1, -1):
        if reach * largest * 2.0**shift >= 2.0**62:
            continue
        mul, add = np.zeros(len(factor), np.int64), np.zeros(len(factor), np.int64)
        rest = np.arange(len(factor))
        for nudge in (0, 1, -1, 2, -2, 3, -3):
            tried = np.where(is_constant[rest], 0, np.rint(factor[rest] * 2.0**shift).astype(np.int64) + nudge)
            lower, upper = stairs.of(rest).adds(tried, shift)
            fits = np.asarray((lower <= upper) & (tried < WORD) & (tried >= 0))
            mul[rest[fits]], add[rest[fits]] = tried[fits], np.clip((1 << shift) >> 1, lower, upper)[fits]
            rest = rest[~fits]
            if not len(rest):
                return mul, add, shift
    return None


# ---- roots, quotients and exponentials


def reciprocal(x: Array) -> Factor:
    """1 / x as M and shift of positive words, by three steps of Newton's method."""
    bits = np.frexp(x.astype(np.float64))[1].astype(np.int64)
    return np.minimum(invert_sum((x << (32 - bits)) - WORD) << 1, WORD - 1), 1 - bits


def softmax_exponentials(scale: float, beta: float) -> Array:
    """The exponentials of distances 0 to 255 from the maximum with 31 bits, 0 where they are next to nothing; uint32."""
    multiplier, shift = quantise_factor(min(scale * beta * 2.0**26, WORD - 1.0))
    left = int(shift[0])
    distance = np.arange(256, dtype=np.int64)
    farthest = math.floor(31 * 2.0**26 / 2.0**left)
    scaled = multiply_twice_rounded(-np.minimum(distance, farthest), multiplier, shift)
    return np.where(distance <= farthest, exponential(scaled, 5), 0).astype(np.uint32)


def tabulate_curve(function: Callable[[Array], Array], low: float, high: float) -> Array:
    """A function with 15 bits behind the point at 513 places, moved by half of the error that lines have in the middle (gen_lut)."""
    real = np.linspace(low, high, 1025)
    exact = function(real) * 2.0**15
    at, middle = np.floor(exact[::2] + 0.5), np.floor(exact[1::2] + 0.5)
    error = np.floor((exact[2::2] + at[:-1]) / 2 + 0.5) - middle
    bias = np.sign(error) * np.floor(np.abs(error) / 2 + 0.5)
    return np.asarray(np.clip(np.append(at[:-1] - bias, at[-1]), -(2**15), 2**15 - 1), np.int64)
