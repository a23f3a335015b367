"""The instance structure of a network: all that it keeps between calls of its functions, which each of them gets as a pointer.

Networks that share states share one structure, that of the first of them: an instance is one set of states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deeploy.ir.expr import Variable
from deeploy.planning.plan import Plan
from deeploy.schedule.build import ALL_ROWS, PAST

SELF = Variable("self", 0, 0)  # the pointer to the instance, in expressions and texts, which note that it is mentioned
POSITION = "position"  # the field that points to the number of rows before an inference
CONSTANTS = "constants"
_ROWS = (PAST, ALL_ROWS)  # fields that expressions mention by their names alone


@dataclass(frozen=True)
class Field:
    """A field of the structure: its C type with the blank in front of the name, where one is needed, and what it holds."""

    type: str
    name: str
    comment: str = ""


def used_levels(plans: Sequence[Plan]) -> list[str]:
    """The memories in which networks have something, behind the first one of all."""
    used = {p.level for plan in plans for p in plan.placements} | {b.memory for plan in plans for b in plan.program.buffers.values()}
    return [level for number, level in enumerate(plans[0].memory) if number == 0 or level in used]


def instance_fields_of(plans: Sequence[Plan]) -> Sequence[Field]:
    """The fields that the functions of networks with equal states read, or those of a single network."""
    first = plans[0]
    instance_fields = [Field("const void *const *", "inputs", "the caller's arrays during an inference"), Field("void *const *", "outputs")]
    arenas = "address of the arena" if first.target.is_flat else "addresses of the arenas of the scratchpad memories"
    instance_fields += [Field("uintptr_t ", level.lower(), arenas * (number == 0)) for number, level in enumerate(used_levels(plans))]
    if not first.target.is_flat and first.target.memory(first.machine.default_memory).is_far:
        instance_fields.append(Field("uintptr_t ", CONSTANTS, "address of the constants in memory that only transfer engines can read"))
    if first.program.dynamic_length is not None:
        instance_fields.append(Field("int32_t ", PAST, "rows in the states before the inference"))
        instance_fields.append(Field("int32_t ", ALL_ROWS, "and after it"))
    if any(plan.program.dynamic_length is not None and plan.program.dynamic_length.position for plan in plans):
        instance_fields.append(Field("int64_t ", "first_row", "a copy of past_rows for layers that read it"))
        instance_fields.append(Field("const int64_t *", POSITION, "points to first_row"))
    return instance_fields


def load_fields(names: Iterable[str]) -> list[str]:
    """What a function begins with that mentions these names: numbers of rows."""
    return [f"const int32_t {name} = {SELF}->{name};" for name in _ROWS if name in names]
