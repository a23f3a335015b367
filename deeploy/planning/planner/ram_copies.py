"""Constants that are copied from slow memory to the RAM of a flat machine, once, before the first inference.

A target's timing may say how many cycles a byte of constants takes more where it lies than in RAM; cycles of kernels hold that. A call is
taken to read each of its constants once in an inference, so that the cycles which a copy saves are the least that it does. Kernels read
what has many products per byte more often than that: of constants that save as much per byte, these come first. Tables of which a call
reads some rows stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deeploy.planning.packing.addresses import Placement
from deeploy.planning.packing.lifetimes import FOR_EVER
from deeploy.planning.plan import Plan


def with_copies(plan: Plan) -> Plan:
    """The plan with the copies that pay, in the RAM that is left.

    Left is the capacity without the arena, the caller's arrays, and what the target reserves for stacks and variables. The prediction
    stays that of the plan without them.
    """
    if not plan.slower or plan.machine.objective != "cycles" or not plan.machine.copies:
        return plan
    memory = plan.target.memories[0]
    use = plan.memory[memory.name]
    program, unit = plan.program, memory.alignment
    io = sum(program.buffers[name].bytes for name in (*program.inputs, *program.outputs))
    left = plan.machine.capacities[memory.name] - io - memory.reserved
    peak, added = -(-use.peak // unit) * unit, list[Placement]()
    wanted = _wanted_copies(plan)
    for name in sorted(wanted, key=lambda name: (*wanted[name], program.buffers[name].bytes), reverse=True):
        size = program.buffers[name].bytes
        if peak + size <= left:
            added.append(Placement(memory.name, peak, size, FOR_EVER, len(program.calls), (name,)))
            peak = -(-(peak + size) // unit) * unit
    if not added:
        return plan
    end = added[-1].offset + added[-1].size
    use = replace(use, peak=end, lower_bound=use.lower_bound + sum(p.size for p in added))
    fetched = {**plan.fetched, **{p.buffers[0]: FOR_EVER for p in added}}
    return replace(plan, placements=(*plan.placements, *added), memory={**plan.memory, memory.name: use}, fetched=fetched)


def _wanted_copies(plan: Plan) -> Mapping[str, tuple[int, float]]:
    """The constants that calls read whole: how many calls do, and the products of these calls for a byte."""
    savings: dict[str, tuple[int, float]] = {}
    for step, call in enumerate(plan.program.calls):
        for name in plan.constants(step):
            calls, products = savings.get(name, (0, 0.0))
            savings[name] = calls + 1, products + call.geometry.macs() / plan.program.buffers[name].bytes
    return savings
