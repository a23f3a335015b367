"""Packing by constraint programming (CP-SAT): an instance into a given peak, or the proof that it does not go in.

The model has one offset a block, a rectangle (sections by units) a block, `AddNoOverlap2D` over all rectangles, and a cumulative of the
same rectangles seen along either axis: the loads, and the sections a unit of the memory can serve. Blocks with equal sections and sizes
are ordered by offset; without pinned blocks the block of the largest area lies in the lower half, since a packing turned upside down is
a packing. One worker, a fixed seed and a deterministic limit make the result a function of the instance alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from deeploy.midend.pack_instance import Instance


@dataclass(frozen=True)
class Decision:
    """``offsets`` in units, or None when nothing was found; ``refuted`` when no packing exists; ``seconds`` the solver took of its own."""

    offsets: list[int] | None
    refuted: bool
    seconds: float


def decide(instance: Instance, peak: int, budget: float) -> Decision:
    """Search for a packing of at most ``peak`` units for ``budget`` deterministic seconds; no load and no pin may go above the peak."""
    from deeploy.midend.solver import cp_model, new_solver, solve  # importing takes 0.2 s, which most instances need not pay

    model = cp_model.CpModel()
    offsets, spans, ranges = [], [], []
    for i, (lo, hi, size, pin) in enumerate(zip(instance.lo, instance.hi, instance.size, instance.pinned, strict=True)):
        offset = model.new_int_var(0, peak - size, f"offset{i}") if pin is None else model.new_constant(pin)
        offsets.append(offset)
        spans.append(model.new_fixed_size_interval_var(lo, hi - lo, f"span{i}"))
        ranges.append(model.new_fixed_size_interval_var(offset, size, f"range{i}"))
    model.add_no_overlap_2d(spans, ranges)
    model.add_cumulative(spans, instance.size, peak)
    model.add_cumulative(ranges, [hi - lo for lo, hi in zip(instance.lo, instance.hi, strict=True)], instance.sections)
    for first, second in _equal_pairs(instance):
        model.add(offsets[first] + instance.size[first] <= offsets[second])
    if all(pin is None for pin in instance.pinned):
        largest = max(range(len(offsets)), key=lambda i: instance.size[i] * (instance.hi[i] - instance.lo[i]))
        model.add(2 * offsets[largest] + instance.size[largest] <= peak)
    solver = new_solver(budget)
    status = solve(solver, model)
    found = [solver.value(offset) for offset in offsets] if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else None
    return Decision(found, status == cp_model.INFEASIBLE, solver.deterministic_time)


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
