"""Packing by constraint programming (CP-SAT): the smallest peak of an instance, or the proof that there is none below it.

The model has one offset a block, a rectangle (sections by units) a block, `AddNoOverlap2D` over all rectangles, and a cumulative of the
same rectangles seen along the schedule, which propagates the loads. Blocks with equal sections and sizes are ordered by offset; without
pinned blocks the block of the largest area lies in the lower half, since a packing turned upside down is a packing. One worker, a fixed
seed and a deterministic limit make the result a function of the instance alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deeploy.midend.pack_instance import Instance


@dataclass(frozen=True)
class Solution:
    """``offsets`` in units, or None when nothing was found; ``bound`` is a proven lower bound of the peak, in units."""

    offsets: list[int] | None
    bound: int


def solve(instance: Instance, goal: int, below: Sequence[int], budget: float) -> Solution:
    """Search for a packing lower than the packing ``below``, and stop at the first with a peak of at most ``goal``.

    Args:
        instance: what to pack.
        goal: a peak in units that is good enough, at least the instance's bound.
        below: a packing, the hint; only lower ones are of interest.
        budget: deterministic seconds of the solver.
    """
    from ortools.sat.python import cp_model  # importing takes 0.3 s, which most instances need not pay

    limit = instance.peak(below) - 1
    model = cp_model.CpModel()
    peak = model.new_int_var(goal, limit, "peak")
    offsets = []
    spans, ranges = [], []
    for i, (lo, hi, size, pin) in enumerate(zip(instance.lo, instance.hi, instance.size, instance.pinned, strict=True)):
        offset = model.new_int_var(0, limit - size, f"offset{i}") if pin is None else model.new_constant(pin)
        spans.append(model.new_fixed_size_interval_var(lo, hi - lo, f"span{i}"))
        ranges.append(model.new_fixed_size_interval_var(offset, size, f"range{i}"))
        model.add(offset + size <= peak)
        offsets.append(offset)
        if pin is None:
            model.add_hint(offset, below[i])
    model.add_no_overlap_2d(spans, ranges)
    model.add_cumulative(spans, instance.size, peak)
    for first, second in _equal_pairs(instance):
        model.add(offsets[first] + instance.size[first] <= offsets[second])
    if all(pin is None for pin in instance.pinned):
        largest = max(range(len(offsets)), key=lambda i: instance.size[i] * (instance.hi[i] - instance.lo[i]))
        model.add(2 * offsets[largest] + instance.size[largest] <= peak)
    model.minimize(peak)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = budget
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Solution(None, limit + 1)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found = [solver.value(offset) for offset in offsets]
        return Solution(found, instance.peak(found) if status == cp_model.OPTIMAL else instance.bound)
    return Solution(None, instance.bound)


def _equal_pairs(instance: Instance) -> list[tuple[int, int]]:
    """Neighbours in every group of movable blocks that differ in nothing."""
    last: dict[tuple[int, int, int], int] = {}
    pairs = []
    for i, key in enumerate(zip(instance.lo, instance.hi, instance.size, strict=True)):
        if instance.pinned[i] is None:
            if key in last:
                pairs.append((last[key], i))
            last[key] = i
    return pairs
