"""The packing problem with everything irrelevant removed: small integers instead of bytes and steps.

Decides nothing; it restates the problem so that the searches are fast and see as much symmetry as there is:

* sizes and pinned offsets are divided by their greatest common divisor (a packing in which every block rests on another block, on a
  pinned one or on the floor has offsets that are multiples of it, and any packing can be lowered to such a one);
* steps become *sections*, the maximal sets of blocks that live at the same time. Two blocks share a section exactly when their lifetimes
  overlap, since intervals that pairwise overlap have a common step;
* parts of the schedule between which no block lives are separate instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Instance:
    """Blocks ``0..n-1``: block ``i`` covers sections ``lo[i]..hi[i]-1`` and ``size[i] > 0`` units.

    ``pinned[i]`` is its offset in units, or None.
    """

    lo: tuple[int, ...]
    hi: tuple[int, ...]
    size: tuple[int, ...]
    pinned: tuple[int | None, ...]

    @property
    def sections(self) -> int:
        """Number of sections."""
        return max(self.hi, default=0)

    @property
    def loads(self) -> list[int]:
        """Live units of every section."""
        change = [0] * (self.sections + 1)
        for lo, hi, size in zip(self.lo, self.hi, self.size, strict=True):
            change[lo] += size
            change[hi] -= size
        loads, live = [], 0
        for delta in change[:-1]:
            live += delta
            loads.append(live)
        return loads

    @property
    def bound(self) -> int:
        """The largest load, or the end of a pinned block where that is larger: no packing has a smaller peak."""
        ends = [pin + size for pin, size in zip(self.pinned, self.size, strict=True) if pin is not None]
        return max([*self.loads, *ends], default=0)

    def peak(self, offsets: Sequence[int]) -> int:
        """The end of the highest block."""
        return max((offset + size for offset, size in zip(offsets, self.size, strict=True)), default=0)

    @property
    def pairs(self) -> int:
        """How many pairs of blocks live at the same time."""
        begins, ends = Counter(self.lo), Counter(self.hi)
        found = live = 0
        for section in range(self.sections):
            live -= ends[section]
            found += begins[section] * live + begins[section] * (begins[section] - 1) // 2
            live += begins[section]
        return found

    def conflicts(self) -> list[list[int]]:
        """For every block, the blocks whose lifetimes overlap its own, in ascending order."""
        found: list[list[int]] = [[] for _ in self.size]
        active: list[int] = []
        for block in sorted(range(len(self.size)), key=lambda i: (self.lo[i], i)):
            active = [other for other in active if self.hi[other] > self.lo[block]]
            for other in active:
                found[block].append(other)
                found[other].append(block)
            active.append(block)
        return [sorted(others) for others in found]


def sections(lifetimes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Map lifetimes ``(first, last)``, both inclusive, to half-open ranges of maximal sections.

    The stretch between two neighbouring events is a maximal clique when blocks begin at its left end and others end at its right end;
    every other stretch has its live set contained in a neighbour's.
    """
    begins = {first for first, _ in lifetimes}
    ends = {last + 1 for _, last in lifetimes}
    points = sorted(begins | ends)
    rank = dict.fromkeys(points[:1], 0)
    for left, right in pairwise(points):
        rank[right] = rank[left] + (left in begins and right in ends)
    return [(rank[first], rank[last + 1]) for first, last in lifetimes]


def components(lo: Sequence[int], hi: Sequence[int]) -> list[list[int]]:
    """Split blocks into groups that share no section with one another, in the order of the schedule."""
    groups: list[list[int]] = []
    reach = -1
    for block in sorted(range(len(lo)), key=lambda i: (lo[i], i)):
        if lo[block] >= reach:
            groups.append([])
        groups[-1].append(block)
        reach = max(reach, hi[block])
    return groups


def restrict(instance: Instance, blocks: Sequence[int]) -> Instance:
    """The instance made of ``blocks`` alone, in that order, with sections numbered anew from 0."""
    ranges = sections([(instance.lo[i], instance.hi[i] - 1) for i in blocks])
    return Instance(
        lo=tuple(lo for lo, _ in ranges),
        hi=tuple(hi for _, hi in ranges),
        size=tuple(instance.size[i] for i in blocks),
        pinned=tuple(instance.pinned[i] for i in blocks),
    )
