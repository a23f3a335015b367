"""Requantisations in a cheaper form with the same results, for machines whose registers hold 32 bits.

``clip((acc*mul + add) >> shift, low, high)`` is a staircase over the accumulators that can occur. Known are their range, from
the constants of the node and the types of its inputs, and the few hundred thresholds at which the result steps. Any other
constants with the same thresholds within the range give the same results. In order of cost:

``narrow``
    ``(acc*mul + add) >> shift`` without a value beyond 32 bits.
``split``
    ``((acc*low >> bits) + acc*high + add) >> shift`` with a factor of two parts, ``high * 2**bits + low``. The sum of both products is
    acc times the factor shifted by ``bits``, exactly, though no product is beyond 32 bits: |acc| is below 2**size, ``low`` below
    2**bits, and size + bits is at most 31. ``add`` is rounded as in the next form.
``high``
    ``(high half of (acc << left)*mul + add) >> shift``. Where the lower half of a product is dropped, ``add`` is rounded: it may
    be anything in the interval that keeps all thresholds, which is about mul/256 wide.
``wide``
    the 64-bit form as it is.

In all but the last, accumulators may be limited to [-limit - 1, limit] first, beyond which the result does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from deeploy.ir.epilogue import constants_of
from deeploy.ir.memo import by_content
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array

WORD = 2**31
LONGEST = 53  # shifts up to here keep all that is computed below in 64 bits
FACTOR = 31  # bits of the longest factor
COARSE = 16  # steps of which one is looked at first
NEIGHBOURS = sorted(range(-4, 5), key=abs)  # factors that are tried, from the one that is nearest to the node's


@dataclass(frozen=True)
class StaircaseRequantisation:
    """Constants in the form ``form``; ``mul`` and ``add`` have the shapes they had before, or one entry per channel.

    In the form ``split``, ``mul`` is int64: the upper part of the factor above 32 bits with the lower one.
    """

    form: Literal["narrow", "split", "high", "wide"]
    mul: Array
    add: Array
    shift: int
    left: int = 0
    limit: int | None = None
    bits: int = 0


@dataclass(frozen=True)
class Staircase:
    """What a requantisation does to accumulators in [least, most], per channel (first axis).

    ``steps`` are the results, ``thresholds[c, i]`` is the least accumulator that gives at least ``steps[i]``.
    """

    steps: Array
    thresholds: Array
    least: Array
    most: Array

    def limit(self) -> int:
        """The least limit beyond which no threshold lies that can be reached, or that lies between zero and what can."""
        t = self.thresholds
        reached = (t > np.minimum(self.least, 0)[:, None]) & (t <= np.maximum(self.most, 0)[:, None])
        return int(np.maximum(t, -t)[reached].max(initial=0))

    def limited(self, limit: int) -> Staircase:
        """This staircase behind an accumulator that is clipped to [-limit - 1, limit]."""
        return Staircase(self.steps, self.thresholds, np.clip(self.least, -limit - 1, limit), np.clip(self.most, -limit - 1, limit))

    def adds(self, mul: Array, shift: int | Array) -> tuple[Array, Array]:
        """Per channel the least and the most ``add`` with which ``mul`` and ``shift`` have these thresholds; empty if least > most.

        ``shift`` is one for all channels, or one for each.
        """
        target, factor = self.steps << np.reshape(shift, (-1, 1)), mul[:, None]
        (is_reached, first), (is_missed, last), far = *self._sides, np.int64(2**62)
        lower = np.where(is_reached, target - first * factor, -far).max(axis=1, initial=-far)
        upper = np.where(is_missed, target - 1 - last * factor, far).min(axis=1, initial=far)
        return lower, upper

    @cached_property
    def _sides(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Whether accumulators of a channel reach a step, and the least that do; whether some miss it, and the greatest that do."""
        t, least, most = self.thresholds, self.least[:, None], self.most[:, None]
        return (t <= most, np.maximum(t, least)), (t > least, np.minimum(t - 1, most))

    @cached_property
    def coarse(self) -> Staircase:
        """Some of the steps: constants without the thresholds of these have not those of all, which takes much longer to see."""
        return Staircase(self.steps[::COARSE], self.thresholds[:, ::COARSE], self.least, self.most)

    def of(self, channels: Array) -> Staircase:
        """Some of the channels, by their numbers in order."""
        if len(channels) == len(self.least):
            return self
        return Staircase(self.steps, self.thresholds[channels], self.least[channels], self.most[channels])


def staircase(mul: Array, add: Array, shift: int, low: int, high: int, even: int | None, least: Array, most: Array) -> Staircase:
    """The thresholds of a requantisation with positive multipliers; all arrays are int64, one entry per channel."""
    steps = np.arange(low + 1, high + 1, dtype=np.int64)
    late = 0 if even is None else (steps - even) & 1  # a tie goes down to the even step: the odd one is reached one later
    rest = (steps << shift)[None, :] + late - add[:, None]
    return Staircase(steps, -((-rest) // mul[:, None]), least, most)


@by_content
def cheapest_form(
    mul: Array,
    add: Array,
    shift: int,
    low: int,
    high: int,
    even: int | None,
    least: Array,
    most: Array,
    has_split: bool = False,
) -> StaircaseRequantisation:
    """The cheapest form for accumulators in [least, most].

    Args:
        mul, add: constants of one or as many entries as there are channels.
        shift, low, high, even: as in ``deeploy.ir.epilogue``.
        least, most: int64, one entry per channel; both within 32 bits.
        has_split: whether the form ``split`` is among them.
    """
    wide = StaircaseRequantisation("wide", mul, add, shift)
    channels = len(least)
    factor, offset = (np.broadcast_to(a.astype(np.int64), channels) for a in (mul, add))
    if shift > LONGEST or channels == 0 or high - low > 2**16 or int(least.min()) < -WORD or int(most.max()) >= WORD:
        return wide
    if int(factor.min()) <= 0:
        direct = even is None and shift < 32 and _fits_words(factor, offset, least, most)
        return StaircaseRequantisation("narrow", mul, add.astype(np.int32), shift) if direct else wide
    stairs = staircase(factor, offset, shift, low, high, even, least, most)
    limit = stairs.limit()
    limited = limit < max(-int(least.min()) - 1, int(most.max()))
    variants: list[tuple[Staircase, int | None]] = [(stairs, None), *([(stairs.limited(limit), limit)] if limited else [])]
    for form in (_find_narrow, _find_split, _find_high) if has_split else (_find_narrow, _find_high):
        for variant, bound in variants:
            for candidate in form(variant, mul, add, shift):
                return replace(candidate, limit=bound)
    return wide


def _fits_words(mul: Array, add: Array, least: Array, most: Array) -> bool:
    """Whether acc*mul, add and their sum stay in 32 bits."""
    ends = np.stack([least * mul, most * mul])
    return _in_words(ends, ends + add, add)


def _in_words(*values: Array) -> bool:
    return all(int(v.min()) >= -WORD and int(v.max()) < WORD for v in values)


def _one_or_all(lower: Array, upper: Array, add: Array) -> Array | None:
    """An ``add`` in every interval, of one entry where the original has one: the one nearest to zero, where that is free."""
    if add.size == 1:
        lower, upper = lower.max(keepdims=True), upper.min(keepdims=True)
    if (lower > upper).any():
        return None
    return np.asarray(np.clip(0, lower, upper))


def _find_narrow(stairs: Staircase, mul: Array, add: Array, shift: int) -> Iterator[StaircaseRequantisation]:
    """Multipliers shortened by ever more bits, until the products fit."""
    wide = mul.astype(np.int64)
    for less in range(max(0, shift - 31), shift + 1):
        short = (wide + ((1 << less) >> 1)) >> less
        if int(short.min()) <= 0:
            return
        factor = np.broadcast_to(short, len(stairs.least))
        if max(abs(int((stairs.least * factor).min())), abs(int((stairs.most * factor).max()))) >= WORD:
            continue
        offset = _one_or_all(*stairs.adds(factor, shift - less), add)
        if offset is not None and _fits_words(factor, np.broadcast_to(offset, len(factor)), stairs.least, stairs.most):
            yield StaircaseRequantisation("narrow", short.astype(np.int32), offset.astype(np.int32), shift - less)


def _find_split(stairs: Staircase, mul: Array, add: Array, shift: int) -> Iterator[StaircaseRequantisation]:
    """Factors as long as their parts have products of 32 bits; every channel has the one nearest to its own that has its thresholds."""
    if add.size == 1 and mul.size == 1 and len(stairs.least) > 1:
        bounds = stairs.least.min(keepdims=True), stairs.most.max(keepdims=True)
        stairs = Staircase(stairs.steps, stairs.thresholds[:1], *bounds)
    wide = np.broadcast_to(mul.astype(np.int64), len(stairs.least))
    size = max(-int(stairs.least.min()) - 1, int(stairs.most.max()), 0).bit_length()
    longest = int(wide.max()).bit_length()
    for length in range(min(longest, FACTOR, 62 - 2 * size), size - 1, -1):
        less, bits = longest - length, max(size + length - 31, 0)
        if shift - less - bits < 0 or bits == 0:
            return
        factors, summands, rest = wide.copy(), np.zeros_like(wide), np.arange(len(wide))
        for step in NEIGHBOURS:
            factor = ((wide[rest] + ((1 << less) >> 1)) >> less) + step
            some = stairs.of(rest)
            lower, upper = some.adds(factor, shift - less)
            least, most = -(-lower >> bits), upper >> bits
            summand, ends = np.clip(0, least, most), np.stack([some.least, some.most]) * factor >> bits
            fits = (factor > 0) & (factor < 1 << length) & (least <= most) & (np.abs(summand) < WORD)
            fits &= (np.abs(ends) < WORD).all(axis=0) & (np.abs(ends + summand) < WORD).all(axis=0)
            factors[rest[fits]], summands[rest[fits]] = factor[fits], summand[fits]
            rest = rest[~fits]
            if not len(rest):
                parts = (factors >> bits << 32) + (factors & ((1 << bits) - 1))
                yield StaircaseRequantisation("split", parts, summands.astype(np.int32), shift - less - bits, bits=bits)
                break


def _find_high(stairs: Staircase, mul: Array, add: Array, shift: int) -> Iterator[StaircaseRequantisation]:
    """Accumulators shifted left as far as they fit: the fewest bits of ``add`` are dropped."""
    factor = np.broadcast_to(mul.astype(np.int64), len(stairs.least))
    lower, upper = stairs.adds(factor, shift)
    size = max(-int(stairs.least.min()) - 1, int(stairs.most.max()), 0)
    for left in range(min(31 - size.bit_length(), 63 - shift), -1, -1):
        dropped = 32 - left
        if shift < dropped:
            return
        offset = _one_or_all(-((-lower) >> dropped), upper >> dropped, add)
        if offset is None:
            continue
        ends = np.stack([stairs.least * factor, stairs.most * factor]) >> dropped
        if _in_words(offset, ends + offset):
            yield StaircaseRequantisation("high", mul, offset.astype(np.int32), shift - dropped, left)


# ---- operands that are requantised on their own


@lru_cache(maxsize=256)
def of_operand(node: Node, index: int) -> StaircaseRequantisation:
    """The cheapest form of the requantisation of an input of a ``RequantAdd``, clipping apart."""
    tensor, attrs, name = node.operands[index], node.attrs, "ab"[index]
    mul, add = (np.array([attrs[f"{part}_{name}"]], np.int64) for part in ("mul", "add"))
    least, most = (np.array([end], np.int64) for end in tensor.dtype.range)
    return cheapest_form(mul, add, *constants_of(attrs, f"_{name}"), least, most)


def operand_results(node: Node, index: int) -> tuple[int, int]:
    """What the least and the greatest value of an input's type become before they are clipped, in the form of ``of_operand``."""
    tensor, steps = node.operands[index], of_operand(node, index)
    least, most = ((int(end) * steps.mul.item() + steps.add.item()) >> steps.shift for end in tensor.dtype.range)
    return least, most
