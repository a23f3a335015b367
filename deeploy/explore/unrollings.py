"""Spatial unrollings: every way to spread the seven loops over an array so that no element is without a place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deeploy.errors import UsageError
from deeploy.ir.loops import LOOPS, LayerLoops

_OY, _OX, _FY, _FX = (LOOPS.index(name) for name in ("OY", "OX", "FY", "FX"))


@dataclass(frozen=True)
class Unrollings:
    """Factors of every loop, one row per unrolling, columns in the order of ``LOOPS``; each row's product is the array's size.

    ``complete`` counts all factorisations, ``useful`` those without a factor that is too long for every layer, before pruning.
    """

    factors: np.ndarray  # int64[N, 7]
    complete: int
    useful: int
    is_pruned: bool

    def __len__(self) -> int:
        return len(self.factors)

    @cached_property
    def labels(self) -> list[str]:
        """Every unrolling as text, such as ``K 16 OX 8``."""
        return [label_unrolling(row) for row in self.factors]


def label_unrolling(factors: Sequence[int] | np.ndarray) -> str:
    """An unrolling as text: the loops with a factor above 1."""
    return " ".join(f"{name}{int(u)}" for name, u in zip(LOOPS, factors, strict=True) if u > 1) or "none"


def all_divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return low + [number // d for d in reversed(low) if d * d != number]


def count_factorisations(pes: int) -> int:
    """Ordered products of seven factors: the product over the primes of C(exponent + 6, 6)."""
    total, rest, prime = 1, pes, 2
    while rest > 1:
        prime = prime if prime * prime <= rest else rest
        exponent = 0
        while rest % prime == 0:
            rest //= prime
            exponent += 1
        total *= math.comb(exponent + len(LOOPS) - 1, len(LOOPS) - 1)
        prime += 1
    return total


def enumerate_unrollings(pes: int, layers: Sequence[LayerLoops], prune: bool = True) -> Unrollings:
    """All unrollings of ``pes`` elements.

    Factors are divisors of ``pes`` and need not divide the loop that they unroll: what is left over is padded. A factor is left
    out where a smaller divisor covers the loop in every layer already, or where no layer uses more than half of it. With
    ``prune``, and where all layers are square, the paper's rule (section II-B1) keeps, for equal factors of the other loops, the
    pair OX >= OY that needs the fewest input pixels, (OX + FX - 1) (OY + FY - 1).

    Raises:
        UsageError: no product of such factors fills the array.
    """
    longest = np.max([layer.sizes for layer in layers], axis=0)
    options = [_useful_factors(all_divisors(pes), int(size)) for size in longest]
    rows = np.array([(1,) * len(LOOPS)], np.int64)[:, :0]
    filled = np.ones(1, np.int64)
    for choices in options:
        factor = np.tile(np.array(choices, np.int64), len(rows))
        rows = np.column_stack([np.repeat(rows, len(choices), axis=0), factor])
        filled = np.repeat(filled, len(choices)) * factor
        fits = (pes % filled == 0) & (filled <= pes)
        rows, filled = rows[fits], filled[fits]
    rows = rows[filled == pes]
    if not len(rows):
        extents = ", ".join(f"{name} {size}" for name, size in zip(LOOPS, longest, strict=True))
        raise UsageError(
            f"no spatial unrolling fills {pes} elements: the longest loops are {extents}",
            "Choose pes as a product of factors that these loops can take.",
        )
    square = all(layer.is_square for layer in layers)
    distinct = _fewest_pixels(rows) if prune and square else rows
    return Unrollings(distinct, count_factorisations(pes), len(rows), prune and square)


def _useful_factors(choices: Sequence[int], size: int) -> list[int]:
    """Divisors up to the first that covers a loop of ``size`` iterations, unless that one is twice as long or more."""
    covering = next((d for d in choices if d >= size), choices[-1])
    return [d for d in choices if d <= covering and d < 2 * size]


def _fewest_pixels(rows: np.ndarray) -> np.ndarray:
    """Of the rows that differ in OX and OY only, the one with OX >= OY that needs the fewest input pixels."""
    pixels = (rows[:, _OX] + rows[:, _FX] - 1) * (rows[:, _OY] + rows[:, _FY] - 1)
    rest = np.delete(rows, (_OY, _OX), axis=1)
    _, group = np.unique(rest, axis=0, return_inverse=True)
    order = np.lexsort((rows[:, _OX], pixels, rows[:, _OX] < rows[:, _OY], group))
    first = np.concatenate([[True], np.diff(group[order]) != 0])
    return np.asarray(rows[np.sort(order[first])])
