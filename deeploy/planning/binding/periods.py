"""Which calls run in every n-th inference alone, of a network whose states and outputs are not all written anew in each.

A call runs whenever somebody needs what it writes, so that passes and kernels need not know of it: it follows from who reads what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deeploy.ir.values import spread_periods
from deeploy.planning.program import Call, Program, Role


def with_periods(program: Program, written: Mapping[str, int]) -> Program:
    """The program with the period of every call.

    Args:
        written: of the buffers of states and outputs, in every how many inferences they are written.
    """

    def name_buffers(call: Call, is_written: bool) -> list[str]:
        return [operand.buffer for name, operand in call.operands.items() if (name in call.writes) is is_written]

    steps = [
        (name_buffers(call, True), [name for name in name_buffers(call, False) if program.buffers[name].role is Role.LOCAL])
        for call in program.calls
    ]
    periods = spread_periods(steps, written)
    calls = tuple(replace(call, period=period) for call, period in zip(program.calls, periods, strict=True))
    further = tuple(
        tuple(replace(call, period=period) for call in row) for row, period in zip(program.further, periods, strict=bool(program.further))
    )
    program = replace(program, calls=calls, further=further)
    length = program.dynamic_length
    whole = None if length is None else replace(length, context=length.context // (2 * program.period) * 2 * program.period)
    return replace(program, dynamic_length=whole)
