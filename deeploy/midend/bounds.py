"""What no schedule of a plan's layers can be faster than: their products at the peak of their engines, and what has to move at least.

A layer computes on the engine that the plan gives it. Engines may work side by side, so that the engine with the most to do bounds the
network. Of what moves, only what comes from outside counts: constants that lie further out than the engines, each once, and the network's
inputs and outputs. Paths move side by side as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from deeploy.midend.lifetime import FOR_EVER
from deeploy.midend.peak import peaks
from deeploy.midend.plan import Plan
from deeploy.midend.program import Buffer, Role


@dataclass(frozen=True)
class Bounds:
    """Cycles at least: for products, by engine, and for transfers, by path."""

    compute: Mapping[str, int]
    traffic: Mapping[str, int]

    @property
    def binding(self) -> tuple[str, int]:
        """The engine or path that bounds the network, and its cycles; an empty name where nothing is multiplied or moved."""
        return max({"": 0, **self.compute, **self.traffic}.items(), key=lambda one: one[1])


def bounds(plan: Plan) -> Bounds:
    """The bounds of a plan for a machine with several memories whose target has a timing."""
    assert plan.target.timing is not None
    reached, macs = peaks(plan), dict[str, int]()
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
            if _place(plan, buffer) in beyond:
                moved[buffer.role is Role.OUTPUT] += buffer.bytes
        traffic[path.name] = round(sum(count * each for count, each in zip(moved, timing.byte, strict=True)))
    return Bounds(compute, traffic)


def _place(plan: Plan, buffer: Buffer) -> str | None:
    """The memory that a buffer comes from in every inference, or goes to; None for what is of the inference alone."""
    if buffer.role is Role.CONSTANT:
        stored = buffer.memory or plan.machine.default_memory
        return plan.residences.get(buffer.name, stored) if plan.fetched.get(buffer.name) == FOR_EVER else stored
    if buffer.role in (Role.INPUT, Role.OUTPUT):
        return plan.target.outward(plan.target.engines[0].memory)[0].far
    return None
