"""Requantisations of sums that N-EUREKA leaves as int32, in the form in which ``kernels/pulp/pulp_requantise_sums.c`` computes them.

``(((acc * mul) >> bits) + add) >> shift`` has products of 32 bits where the factor has a lower part of ``bits`` and an upper one. Every
channel has its own factor, summand and shifts: any that step at the same sums as the node's, for all sums that can occur, do. Where the
summand leaves room for that, the kernel adds the lower product to an earlier result, whatever it is, which takes a cycle less.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from deeploy.ir.epilogue import shift_right
from deeploy.ir.memo import by_content
from deeploy.operators.staircase import LONGEST, NEIGHBOURS, WORD, Staircase, staircase

from .npu import Array

FREE = WORD - 2  # the limit of a channel whose sums need none
LONG = -1  # that of a channel that is computed in 64 bits
MOST_CENTRE = 1 << 21
ROOM = 22  # the most bits of the last shift, which leaves those of the outputs and of what is clipped
SHORTER = 6  # lengths of factors that are tried
EARLIER = (-128, 255)  # results, which are added to products below ``bits``
FAR = np.int64(2**62)
LOWER = 9  # bits of a lower product of zero: EARLIER leaves 0 or -1 of it
POWERS = 1 << np.arange(63, dtype=np.int64)


@dataclass(frozen=True)
class Channels:
    """The parameters of every channel, int64 [K]: the factor below the limit of sums; the summand below both shifts and a centre."""

    mul: Array
    add: Array


@by_content
def channel_parameters(
    mul: Array, add: Array, shift: int, limits: tuple[int, int], even: int | None, least: Array, most: Array
) -> Channels | None:
    """The parameters for sums in [least, most]; all arrays are int64 [K]. A channel for which none are found is computed in 64 bits.

    None: there are numbers that no form has room for.
    """
    low, high = limits
    if shift > LONGEST or mul.min() <= 0 or mul.max() >= WORD or np.abs(add).max() >= 1 << 62 or high - low > 2**8:
        return None
    if int(least.min()) < -WORD or int(most.max()) >= WORD:
        return None
    stairs = staircase(mul, add, shift, low, high, even, least, most)
    factor, summand, is_one = _constant_channels(mul, add, shift, limits, even, least, most)
    factors, summands, rest = np.where(is_one, factor, (LONG << 32) + mul), np.where(is_one, summand, add), np.flatnonzero(~is_one)
    for is_limited, has_room in itertools.product((False, True), (True, False)):  # the fastest first
        if not len(rest):
            break
        some, none = stairs.of(rest), np.zeros_like(rest)
        variant, centre, limit = _limit_staircase(some) if is_limited else (some, none, none + FREE)
        is_found, factor, summand, bits, right = _split_channels(variant, mul[rest], shift, EARLIER if has_room else (0, 0))
        is_found &= np.abs(centre) < MOST_CENTRE
        factors[rest[is_found]] = (((limit if has_room else -2 - limit) << 32) + factor)[is_found]
        summands[rest[is_found]] = ((((centre << 5) + right << 5) + bits << 32) + (summand & 0xFFFFFFFF))[is_found]
        rest = rest[~is_found]
    return Channels(factors, summands)


def requantised_shares(limits_of: Channels) -> dict[str, float]:
    """The parts of the channels that cores requantise in 64 bits (``long``), and whose sums they limit on both sides first."""
    limits = limits_of.mul >> 32
    forms = {"long": limits == LONG, "limited": (limits != LONG) & (limits != FREE) & (limits != -2 - FREE)}
    return {word: float(np.mean(is_so)) for word, is_so in forms.items()}


def _constant_channels(
    mul: Array, add: Array, shift: int, limits: tuple[int, int], even: int | None, least: Array, most: Array
) -> tuple[Array, Array, Array]:
    """The parameters of channels that have one output for all sums, such as those whose weights are zero; and which these are.

    Their factor is zero, and what the kernel adds to the lower product of them is shifted out.
    """
    first, last = (np.clip(shift_right(sums * mul + add, shift, even), *limits) for sums in (least, most))
    bits, right = LOWER, LOWER - 1
    summand = (first << right) + (1 << right >> 1)
    is_one = (first == last) & (np.abs(summand) < WORD)
    packed = ((right << 5) + bits << 32) + (summand & 0xFFFFFFFF)
    return np.full_like(mul, FREE << 32), packed, is_one


def _limit_staircase(stairs: Staircase) -> tuple[Staircase, Array, Array]:
    """The staircase of sums to which a centre is added, and which are then limited on both sides; centre and limit of every channel."""
    t = stairs.thresholds
    reached = (t > stairs.least[:, None]) & (t <= stairs.most[:, None])
    low = np.where(reached, t, FAR).min(axis=1, initial=FAR)
    high = np.where(reached, t, -FAR).max(axis=1, initial=-FAR)
    centre = np.where(low <= high, -((low + high) // 2), -stairs.least)
    limit = np.where(low <= high, np.maximum(high + centre, 1 - low - centre), 0)
    ends = (np.clip(end + centre, -limit - 1, limit) for end in (stairs.least, stairs.most))
    return Staircase(stairs.steps, t + centre[:, None], *ends), centre, limit


def _split_channels(stairs: Staircase, mul: Array, shift: int, room: tuple[int, int]) -> tuple[Array, Array, Array, Array, Array]:
    """Per channel whether there is a form in two parts, with whose lower product anything in ``room`` may be added; its factor, summand,
    the bits of the lower part, and the shift behind both.
    """
    size = _bit_length(np.maximum(np.maximum(-stairs.least - 1, stairs.most), 0))
    result = [np.zeros(len(mul), kind) for kind in (bool, np.int64, np.int64, np.int64, np.int64)]
    spared, longer = np.minimum(62 - 2 * size, 31) - _bit_length(mul), 8 if any(room) else 0
    every, width, body = mul, size, stairs
    for fewer, step, spare in itertools.product(range(SHORTER), NEIGHBOURS, (0, 1)):
        rest = np.flatnonzero(~result[0])  # channels for which nothing is found yet
        if not len(rest):
            break
        mul, size = every[rest], width[rest]
        stairs = body.of(rest)
        more = np.minimum(spared[rest] - fewer, LONGEST - shift)  # bits that the factor has and the node's has not
        less = np.maximum(-more, 0)
        factor = (((mul << np.maximum(more, 0)) + ((1 << less) >> 1)) >> less) + step
        bits = np.maximum(np.maximum(size + _bit_length(np.maximum(factor, 0)) - 31, shift + more - ROOM) + spare, 0)
        right = shift + more - bits
        may = (factor > 0) & (factor < WORD) & (bits <= 31 - np.maximum(size, longer)) & (right >= 0) & (right <= 31)
        lower, upper = stairs.coarse.adds(factor, np.maximum(shift + more, 0))
        may &= -(room[0] - lower >> bits) <= upper - room[1] >> bits
        if not may.any():
            continue
        rest, factor, bits, right, more = (values[may] for values in (rest, factor, bits, right, more))
        stairs = stairs.of(np.flatnonzero(may))
        lower, upper = stairs.adds(factor, np.maximum(shift + more, 0))
        least, most = -(room[0] - lower >> bits), upper - room[1] >> bits
        summand = np.clip(0, least, most)
        ends = np.stack([stairs.least, stairs.most]) * factor >> bits
        is_new = (least <= most) & (np.abs(summand) < WORD) & (np.abs(ends + summand) < WORD).all(axis=0)
        for values, new in zip(result, (is_new, factor, summand, bits, right), strict=True):
            values[rest[is_new]] = new[is_new]
    return result[0], result[1], result[2], result[3], result[4]


def _bit_length(values: Array) -> Array:
    """Bits of numbers that are not negative."""
    return np.searchsorted(POWERS, values, side="right").astype(np.int64)
