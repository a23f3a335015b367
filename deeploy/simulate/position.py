"""A plan as it runs at one position: loops, windows and transfers over the rows that exist then."""

from __future__ import annotations

from dataclasses import replace

from deeploy.errors import UsageError
from deeploy.midend.plan import Plan
from deeploy.midend.program import Call
from deeploy.simulate.interpreter import live_shape


def at_position(plan: Plan, past: int) -> Plan:
    """The plan when ``past`` rows exist before the inference, to be walked (``deeploy.simulate.walk``); tiles are the same.

    Raises:
        UsageError: a position that the states of the network do not have.
    """
    growth = plan.program.growth
    most = growth.context - growth.rows if growth is not None and not growth.begins else 0
    if growth is None or not 0 <= past <= most:
        raise UsageError(f"position {past}: inferences begin at 0 to {most}", "Give a position within the context.")
    calls = tuple(_at(call, past + growth.rows) for call in plan.program.calls)
    return replace(plan, program=replace(plan.program, calls=calls))


def _at(call: Call, rows: int) -> Call:
    geometry = call.geometry
    if not geometry.limited:
        return call
    operands = {
        name: replace(operand, access=replace(operand.access, shape=live_shape(call, name, operand.access.shape, rows)))
        for name, operand in call.operands.items()
    }
    extents = {name: rows if name in geometry.limited and size > 1 else size for name, size in geometry.extents.items()}
    return replace(call, operands=operands, geometry=replace(geometry, extents=extents))
