"""First packings: place blocks one by one in a fixed order, each in a gap that the blocks placed before it leave.

Decides offsets, not optimally; the orders are tried one after the other until one reaches the goal.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Sequence

from deeploy.midend.pack_instance import Instance

MOST_PAIRS = 1 << 18  # of blocks that live at the same time, for which neighbours are looked at
UNMEASURED = 3  # orders that need no figures of neighbours
Order = Callable[[int], tuple[int, ...]]


def _orders(instance: Instance, conflicts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The orders worth trying: large, big in area, long, much contested, early, late and in the middle of the heaviest section first."""
    lo, hi, size = instance.lo, instance.hi, instance.size
    loads = instance.loads
    worst, contested = list[int](), list[int]()  # which many instances do without
    keys: list[Order] = [
        lambda i: (-size[i], lo[i] - hi[i]),
        lambda i: (-size[i] * (hi[i] - lo[i]),),
        lambda i: (lo[i] - hi[i], -size[i]),
        lambda i: (-contested[i], -size[i]),
        lambda i: (-worst[i], -size[i]),
        lambda i: (-worst[i], -size[i] * (hi[i] - lo[i])),
        lambda i: (lo[i], lo[i] - hi[i], -size[i]),
        lambda i: (-hi[i], lo[i] - hi[i], -size[i]),
    ]
    free = [i for i in range(len(size)) if instance.pinned[i] is None]
    for number, key in enumerate(keys):
        if number == UNMEASURED:
            worst += [max(loads[lo[i] : hi[i]]) for i in range(len(size))]
            contested += [sum(size[j] for j in others) for others in conflicts]
        yield sorted(free, key=lambda i: (*key(i), i))


def _place(instance: Instance, conflicts: Sequence[Sequence[int]], order: Sequence[int], best_fit: bool) -> list[int]:
    """Give each block of ``order`` the lowest gap that holds it, or (``best_fit``) the tightest one, the open end counting last."""
    offsets = [-1 if pin is None else pin for pin in instance.pinned]
    for block in order:
        need = instance.size[block]
        taken = sorted((offsets[j], offsets[j] + instance.size[j]) for j in conflicts[block] if offsets[j] >= 0)
        top, chosen, waste = 0, -1, -1
        for start, end in taken:
            gap = start - top
            if gap >= need and (chosen < 0 or gap - need < waste):
                chosen, waste = top, gap - need
                if not best_fit:
                    break
            top = max(top, end)
        offsets[block] = chosen if chosen >= 0 else top
    return offsets


def _swept(instance: Instance, is_backwards: bool, best_fit: bool) -> list[int]:
    """Offsets as an allocator gives them that meets blocks in the order of time, or against it; it knows the holes between live blocks."""
    end = instance.sections
    lo, hi = ([end - h for h in instance.hi], [end - first for first in instance.lo]) if is_backwards else (instance.lo, instance.hi)
    offsets, holes = [0] * len(lo), [(0, sum(instance.size))]
    events = [(time, is_begin, -instance.size[i], i) for i in range(len(lo)) for time, is_begin in ((lo[i], True), (hi[i], False))]
    for _, is_begin, negative, block in sorted(events):
        size = -negative
        if is_begin:
            fitting = (number for number, (first, last) in enumerate(holes) if last - first >= size)
            at = min(fitting, key=lambda number: holes[number][1] - holes[number][0]) if best_fit else next(fitting)
            offsets[block], last = holes[at]
            holes[at : at + 1] = [(offsets[block] + size, last)] if last - offsets[block] > size else []
            continue
        first, last = offsets[block], offsets[block] + size
        at = bisect(holes, (first, last))
        if at < len(holes) and holes[at][0] == last:
            last = holes.pop(at)[1]
        if at and holes[at - 1][1] == first:
            at -= 1
            first = holes.pop(at)[0]
        holes.insert(at, (first, last))
    return offsets


def greedy(instance: Instance, goal: int) -> list[int]:
    """Return the offsets of the best order tried, in units; stops at the first whose peak is at most ``goal``.

    Where very many blocks live at the same time, only those orders are tried that know holes instead of neighbours.
    """
    best: list[int] | None = None
    for offsets in _tried(instance):
        if best is None or instance.peak(offsets) < instance.peak(best):
            best = offsets
        if instance.peak(best) <= goal:
            return best
    return best if best is not None else []


def _tried(instance: Instance) -> Iterator[list[int]]:
    if instance.pairs > MOST_PAIRS and all(pin is None for pin in instance.pinned):
        yield from (_swept(instance, is_backwards, best_fit) for is_backwards in (False, True) for best_fit in (False, True))
        return
    conflicts = instance.conflicts()
    yield from (_place(instance, conflicts, order, best_fit) for order in _orders(instance, conflicts) for best_fit in (False, True))
