"""What no schedule of a plan's layers can be faster than: their products at the peak of their engines, and what has to move at least.

A layer computes on the engine that the plan gives it. Engines may work side by side, so that the engine with the most to do bounds the
network. Of what moves, only what comes from outside counts: constants that lie further out than the engines, each once, and the network's
inputs and outputs. Paths move side by side as well. The peak of an engine is that of the fastest kernel that any layer could run by there,
on layers without end: set-up, borders, requantisation and transfers are what a share of it misses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from deeploy.ir.dimensions import Kind
from deeploy.planning import cost
from deeploy.planning.packing.lifetimes import FOR_EVER
from deeploy.planning.plan import Plan
from deeploy.planning.program import Buffer, Call, Role

_ENDLESS = 2**12 * 3**4 * 5 * 7  # a multiple of the steps in which kernels take dimensions


@dataclass(frozen=True)
class Bounds:
    """Cycles at least: for products, by engine, and for transfers, by path."""

    compute: Mapping[str, int]
    traffic: Mapping[str, int]

    @property
    def binding(self) -> tuple[str, int]:
        """The engine or path that bounds the network, and its cycles; an empty name where nothing is multiplied or moved."""
        return max({"": 0, **self.compute, **self.traffic}.items(), key=lambda one: one[1])


def plan_bounds(plan: Plan) -> Bounds:
    """The bounds of a plan for a machine with several memories whose target has a timing."""
    assert plan.target.timing is not None
    reached, macs = peak_products(plan), dict[str, int]()
    for call in plan.program.calls:
        macs[call.kernel.engine] = macs.get(call.kernel.engine, 0) + call.geometry.macs()
    compute = {engine: round(count / reached[engine]) for engine, count in macs.items() if reached.get(engine)}
    ways = plan.target.outward(plan.target.engines[0].memory)
    used = {operand.buffer for call in plan.program.calls for operand in call.operands.values()}
    traffic = {}
    for number, path in enumerate(ways):
        beyond = {way.far for way in ways[number:]}
        timing = plan.target.timing.paths[path.name]
        moved = [0, 0]  # bytes towards the engines, and from them
        for name in used:
            buffer = plan.program.buffers[name]
            if _far_memory(plan, buffer) in beyond:
                moved[buffer.role is Role.OUTPUT] += buffer.bytes
        traffic[path.name] = round(sum(count * each for count, each in zip(moved, timing.byte, strict=True)))
    return Bounds(compute, traffic)


def _far_memory(plan: Plan, buffer: Buffer) -> str | None:
    """The memory that a buffer comes from in every inference, or goes to; None for what is of the inference alone."""
    if buffer.role is Role.CONSTANT:
        stored = buffer.memory or plan.machine.default_memory
        return plan.residences.get(buffer.name, stored) if plan.fetched.get(buffer.name) == FOR_EVER else stored
    if buffer.role in (Role.INPUT, Role.OUTPUT):
        return plan.target.outward(plan.target.engines[0].memory)[0].far
    return None


def peak_products(plan: Plan) -> Mapping[str, float]:
    """MAC in a cycle, by the name of the engine: of the fastest kernel that any layer of the network could run by there."""
    cycles_of_paths: dict[str, float] = {}
    for step, call in enumerate(plan.program.calls):
        for variant in plan.variants[step] if plan.variants else (call,):
            reached = _without_end(variant, plan)
            if reached:
                engine = variant.kernel.engine
                cycles_of_paths[engine] = max(cycles_of_paths.get(engine, 0.0), round(reached, 2))
    return cycles_of_paths


def _without_end(call: Call, plan: Plan) -> float:
    """MAC in a cycle of a call whose dimensions, but those of windows, are endless; 0 where it multiplies nothing."""
    nest, extents = call.geometry.nest, call.geometry.extents
    inside = {dim.name for access in nest.reads.values() for axis in access.axes if len(dims := list(axis.dims())) > 1 for dim in dims}
    kinds = {dim.name: dim.kind for dim in nest.iterated()}
    windows = {name for name, kind in kinds.items() if kind is Kind.REDUCTION and name in inside}
    if not call.geometry.macs():
        return 0.0
    work = cost.kernel_work(call, plan.target)
    counted = {name for _, steps in work.terms for name in steps}
    repeated = set(kinds) - windows - counted  # along these a kernel is called again for every index
    endless = {name for name in counted & set(kinds) - windows if extents[name] > 1}
    size = {name: _ENDLESS if name in endless else 1 if name in repeated else extent for name, extent in extents.items()}
    cycles = float(work.cycles(lambda dim, step: float(cost.whole_steps(size[dim], step)) if step else 1.0))
    cores = min(plan.machine.cores, plan.target.engine(call.kernel.engine).cores)
    return math.prod(float(size[name]) for name in kinds) / cycles * cores / float(work.slower(cores)) if cycles else 0.0
