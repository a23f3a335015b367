"""Kernel instances that the calls of a Program need, and the numbers of its messages."""

from __future__ import annotations

from collections.abc import Mapping

from deeploy.ir.interface import Bound, Instance, make_instance
from deeploy.ir.types import DType
from deeploy.planning.program import Program


def add_instance(call: Bound, stored: Mapping[str, DType], instances: dict[str, Instance], project: str) -> str:
    """The name of the C function of a call, whose instance is added to ``instances``; "" where it only sends or receives."""
    if call.kernel.link is not None:
        return ""
    arguments = make_instance(call, stored, project)
    instances.setdefault(arguments.name, arguments)
    for part in call.kernel.parts:
        name = f"{arguments.name}_{part.name}"
        instances.setdefault(name, Instance(name, part.source, part.struct, (("KERNEL", name), *part.macros), part.texts))
    return arguments.name


def message_number(program: Program, step: int) -> int | None:
    """Which one of the network's messages the call of a step sends or receives; None where it does neither."""
    if program.calls[step].kernel.link is None:
        return None
    return sum(call.kernel.link is not None for call in program.calls[:step])
