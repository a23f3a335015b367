"""First packings: place blocks one by one in a fixed order, each in a gap that the blocks placed before it leave.

Decides offsets, not optimally; the orders are tried one after the other until one reaches the goal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from deeploy.midend.pack_instance import Instance

Order = Callable[[int], tuple[int, ...]]


def _orders(instance: Instance, conflicts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The orders worth trying: large, big in area, long, much contested, early, late and in the middle of the heaviest section first."""
    lo, hi, size = instance.lo, instance.hi, instance.size
    loads = instance.loads
    worst = [max(loads[lo[i] : hi[i]]) for i in range(len(size))]
    contested = [sum(size[j] for j in others) for others in conflicts]
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
    for key in keys:
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


def greedy(instance: Instance, goal: int) -> list[int]:
    """Return the offsets of the best order tried, in units; stops at the first whose peak is at most ``goal``."""
    conflicts = instance.conflicts()
    best: list[int] | None = None
    for order in _orders(instance, conflicts):
        for best_fit in (False, True):
            offsets = _place(instance, conflicts, order, best_fit)
            if best is None or instance.peak(offsets) < instance.peak(best):
                best = offsets
            if instance.peak(best) <= goal:
                return best
    return best if best is not None else []
