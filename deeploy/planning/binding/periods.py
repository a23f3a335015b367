"""Which calls run in every n-th inference alone, of a network whose states and outputs are not all written anew in each.

A call runs whenever somebody needs what it writes, so that passes and kernels need not know of it: it follows from who reads what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from deeploy.ir.values import spread_periods
from deeploy.planning.program import Call, Program, Role


def with_first_calls(program: Program) -> Program:
    """The program in which calls run in first inferences alone whose results no call reads that runs in others."""
    needed, firsts = dict[str, int | None](), list[int | None]()
    for call in reversed(program.calls):
        written = {call.operands[name].buffer for name in call.writes}
        needs = [needed.get(name) if program.buffers[name].role is Role.LOCAL else None for name in written]
        first = max((n for n in needs if n is not None), default=None) if call.first is None and None not in needs else call.first
        firsts.append(first)
        for name in {operand.buffer for name, operand in call.operands.items() if name not in call.writes}:
            others = needed.get(name, 0)
            needed[name] = None if first is None or others is None else max(others, first)
    calls = tuple(replace(call, first=first) for call, first in zip(program.calls, reversed(firsts), strict=True))
    further = tuple(tuple(replace(call, first=own.first) for call in row) for row, own in zip(program.further, calls, strict=False))
    return replace(program, calls=calls, further=further)


def with_periods(program: Program, written: Mapping[str, int], turns: Mapping[str, int] = MappingProxyType({})) -> Program:
    """The program with the period of every call.

    Args:
        written: of the buffers of states and outputs, in every how many inferences they are written.
        turns: by a tensor, in every how many of those it is computed.
    """

    def name_buffers(call: Call, is_written: bool) -> list[str]:
        return [operand.buffer for name, operand in call.operands.items() if (name in call.writes) is is_written]

    steps = [
        (name_buffers(call, True), [name for name in name_buffers(call, False) if program.buffers[name].role is Role.LOCAL])
        for call in program.calls
    ]
    periods = [
        period * turns.get(call.node.outputs[0].name if call.node.outputs else "", 1)
        for call, period in zip(program.calls, spread_periods(steps, written), strict=True)
    ]
    calls = tuple(replace(call, period=period) for call, period in zip(program.calls, periods, strict=True))
    further = tuple(
        tuple(replace(call, period=period) for call in row) for row, period in zip(program.further, periods, strict=bool(program.further))
    )
    program = replace(program, calls=calls, further=further)
    length = program.dynamic_length
    whole = None if length is None else replace(length, context=length.context // (2 * program.period) * 2 * program.period)
    return replace(program, dynamic_length=whole)
