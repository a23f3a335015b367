"""Where random cases come from: a stream of small integers, drawn from a seed, recorded, and replayed with changes to shrink a case.

Everything that a generator decides it asks of one ``Choices``. A case is thus a list of integers, and any list of integers is a case:
what is missing counts as the smallest choice, what is too large is reduced. The smallest choice is always the plainest one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Choices:
    """Integers out of a seed, or out of the record of another run."""

    def __init__(self, seed: int | str | None = None, record: Sequence[int] = ()) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._given = list(record)
        self.record: list[int] = []

    def integer(self, low: int, high: int) -> int:
        """A number from ``low`` to ``high``, both included."""
        position = len(self.record)
        if self._random is not None:
            offset = self._random.randint(0, high - low)
        else:
            offset = self._given[position] % (high - low + 1) if position < len(self._given) else 0
        self.record.append(offset)
        return low + offset

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, one_in: int) -> bool:
        """True once in so many times; False is the plain choice."""
        return self.integer(0, one_in - 1) == one_in - 1

    def weighted(self, options: Sequence[tuple[int, T]]) -> T:
        """One of several, as often as its weight says."""
        position = self.integer(0, sum(weight for weight, _ in options) - 1)
        for weight, option in options:
            if position < weight:
                return option
            position -= weight
        raise AssertionError("weights add up to less than themselves")

    def shuffled(self, options: Sequence[T]) -> list[T]:
        rest, result = list(options), []
        while rest:
            result.append(rest.pop(self.integer(0, len(rest) - 1)))
        return result

    def generator(self) -> np.random.Generator:
        """NumPy's generator with a seed of its own, for the contents of arrays."""
        return np.random.default_rng(self.integer(0, 2**20))


def shrink(record: Sequence[int], fails: Callable[[list[int]], bool], attempts: int) -> list[int]:
    """The shortest and smallest record found that still fails, in at most so many attempts.

    Chunks are deleted from long to short, then single choices are lowered: to nothing, to half, by one.
    """
    best, left = list(record), attempts

    def better(candidate: list[int]) -> bool:
        nonlocal best, left
        if left <= 0 or candidate == best:
            return False
        left -= 1
        if fails(candidate):
            best = candidate
            return True
        return False

    improved = True
    while improved and left > 0:
        improved = False
        size = max(1, len(best) // 2)
        while size:
            start = 0
            while start < len(best):
                if better(best[:start] + best[start + size :]):
                    improved = True
                else:
                    start += size
            size //= 2
        for position in range(len(best) - 1, -1, -1):
            for lower in (lambda v: 0, lambda v: v // 2, lambda v: v - 1):
                if position < len(best) and best[position] > 0:
                    improved |= better([*best[:position], lower(best[position]), *best[position + 1 :]])
    return best
