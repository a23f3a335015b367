"""Constants that may stay in the first engine's own memory for ever: residences of the one choice, like those of activations.

A window of a constant costs more to work out, to start and to wait for than its bytes do: thresholds, multipliers, tables and rows of
norms take a few hundred bytes each, and a small network fetches hundreds of them. What is copied once, before the first inference, costs
nothing afterwards.

The shortest constants are offered, since a fetch that is saved is worth nearly the same for all of them: as many as fit a share of the
memory, because several networks may want theirs at the same time; a larger share for a network that runs for ever, as streams do. What
has the same uses is pinned together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum

from deeploy.ir.target import Target
from deeploy.planning.choice.problem import Residence, Users
from deeploy.planning.plan import Machine
from deeploy.planning.program import Buffer, Call, Program, Role, constant_content

SHARE, SHARE_FOR_EVER = 4, 2  # of the memory, one part of which at most is filled; by a network whose states follow time

Key = tuple[object, ...]  # of the contents of a constant


class Far(IntEnum):
    """Which buffers may live in the far memory and be streamed from there."""

    NONE = 0
    LARGE = 1
    ALL = 2


def is_near(target: Target, machine: Machine) -> bool:
    """Whether constants lie in the memory around the first engine's: then they may be pinned nearer."""
    return not target.is_flat and machine.default_memory == target.outward(target.engines[0].memory)[0].far


def pinnable_constants(program: Program, capacity: int, alignment: int) -> list[Residence]:
    """The residences of constants that may be pinned in a memory of ``capacity`` bytes: memory 0; the one around it is 1."""
    uses: dict[Key, dict[tuple[int, int], set[str]]] = {}
    sizes: dict[Key, int] = {}
    excluded = set[Key]()
    for step in range(len(program.calls)):
        for number, call in enumerate(program.variants(step)):
            for name, operand in call.operands.items():
                buffer = program.buffers[operand.buffer]
                if buffer.role is Role.CONSTANT and not buffer.memory:
                    key = constant_content(buffer)
                    uses.setdefault(key, {}).setdefault((step, number), set()).add(buffer.name)
                    sizes[key] = -(-buffer.bytes // alignment) * alignment
                    if not _is_pinnable(call, name, buffer):
                        excluded.add(key)
    length, bundles = program.dynamic_length, dict[Users, list[Key]]()
    room = capacity // (SHARE if length is None or length.resumed is None else SHARE_FOR_EVER)
    for key in _shortest_constants({key: size for key, size in sizes.items() if key not in excluded}, uses, room):
        bundles.setdefault(tuple(uses[key]), []).append(key)
    residences = []
    for users, keys in bundles.items():
        members = tuple(dict.fromkeys(name for key in keys for names in uses[key].values() for name in sorted(names)))
        is_certain = any(all((step, number) in users for number in range(len(program.variants(step)))) for step, _ in users)
        size, steps = sum(sizes[key] for key in keys), (users[0][0], users[-1][0])
        residences.append(Residence(members[0], size, steps, (0, 1), None, members, () if is_certain else users, 1))
    return residences


def _shortest_constants(sizes: Mapping[Key, int], uses: Mapping[Key, Mapping[tuple[int, int], set[str]]], capacity: int) -> Sequence[Key]:
    """The shortest constants that fit together, whichever variants of calls are chosen."""
    taken: Counter[tuple[int, int]] = Counter()
    largest: Counter[int] = Counter()
    ordered = sorted(sizes, key=sizes.__getitem__)
    for count, key in enumerate(ordered):
        first = next(iter(uses[key]))[0]
        for step, number in uses[key]:
            if step == first:
                taken[step, number] += sizes[key]
                largest[step] = max(largest[step], taken[step, number])
        if largest.total() > capacity:
            return ordered[:count]
    return ordered


def _is_pinnable(call: Call, name: str, buffer: Buffer) -> bool:
    """Whether a call may use a constant as it lies."""
    access = call.operands[name].access
    if name in call.geometry.nest.indirect:
        return False
    return access.is_dense and not access.offset and math.prod(access.shape) == math.prod(buffer.shape)
