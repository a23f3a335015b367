"""When every buffer is alive, and which buffers may share memory because one is overwritten by the other.

Steps are positions in the list of calls. A local buffer lives from its first write to its last use; scratch memory lives
in the step of its call. Buffers that a kernel may overwrite in place are united: they get one address.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deeploy.midend.chain import Chain
from deeploy.midend.program import Buffer, Call, Operand, Program, Role

FOR_EVER = -1  # the first step of what is there before an inference begins


@dataclass(frozen=True)
class Lifetime:
    """Buffers that share one address, from step ``first`` to step ``last`` (inclusive), in ``size`` bytes; states for ever."""

    buffers: tuple[str, ...]
    first: int
    last: int
    size: int


def spans(program: Program) -> dict[str, tuple[int, int]]:
    """First and last step of every local and scratch buffer that is used."""
    found: dict[str, tuple[int, int]] = {}
    for step, call in enumerate(program.calls):
        for name in (*(o.buffer for o in call.operands.values()), *call.scratch.values()):
            if program.buffers[name].role in (Role.LOCAL, Role.SCRATCH):
                found[name] = (found.get(name, (step, step))[0], step)
    return found


def most_alive(blocks: Iterable[Lifetime], steps: int) -> int:
    """The most bytes that are alive at once, in so many steps."""
    change = [0] * (steps + 1)
    for block in blocks:
        change[max(block.first, 0)] += block.size
        change[min(block.last + 1, steps)] -= block.size
    return max(itertools.accumulate(change))


def lifetimes(program: Program, chains: Sequence[Chain] = ()) -> list[Lifetime]:
    """The blocks to be packed: buffers united where a call may overwrite a dying operand.

    The calls of a chain run side by side: what one of them needs is there during all of it, and nothing is overwritten.
    """
    alive = {name: during(ends, chains) for name, ends in spans(program).items()}
    inside = {step for chain in chains for step in range(chain.first, chain.last + 1)}
    successor = {x: y for step, (y, x) in united(program).items() if step not in inside}
    end = len(program.calls)
    states = [Lifetime((b.name,), FOR_EVER, end, b.bytes) for b in program.buffers.values() if b.role is Role.STATE]
    heads = [name for name in alive if name not in successor.values()]
    held = {name: elements for chain in chains for name, elements in chain.held.items()}
    result = []
    for head in heads:
        shared = [head]
        while shared[-1] in successor:
            shared.append(successor[shared[-1]])
        size = max(_bytes(program.buffers[name], held.get(name)) for name in shared)
        result.append(Lifetime(tuple(shared), alive[head][0], alive[shared[-1]][1], size))
    return states + result


def during(ends: tuple[int, int], chains: Sequence[Chain]) -> tuple[int, int]:
    """The steps in which a buffer is alive, with all of the chains in which it is."""
    first, last = ends
    for chain in chains:
        first = chain.first if chain.first <= first <= chain.last else first
        last = chain.last if chain.first <= last <= chain.last else last
    return first, last


def _bytes(buffer: Buffer, elements: int | None) -> int:
    return buffer.bytes if elements is None else elements * buffer.dtype.bytes


def united(program: Program) -> dict[int, tuple[str, str]]:
    """The buffers (written, read) that share an address since the call of a step writes the one over the other."""
    alive = spans(program)
    found: dict[int, tuple[str, str]] = {}
    for step, call in enumerate(program.calls):
        for y, x in overwrites(program, call):
            if alive.get(x, (0, -1))[1] == step and alive.get(y, (-1, 0))[0] == step:
                found[step] = (y, x)
                break
    return found


def overwrites(program: Program, call: Call) -> list[tuple[str, str]]:
    """The pairs of buffers of which the call may write the first over the second."""
    pairs = (_overwritten(program, call, output, source) for output, source in call.kernel.overwrites)
    return [pair for pair in pairs if pair is not None]


def _overwritten(program: Program, call: Call, output: str, source: str) -> tuple[str, str] | None:
    """The buffers behind (output, source) when the call may write the one over the other."""
    y, x = call.operands.get(output), call.operands.get(source)
    if y is None or x is None or y.buffer == x.buffer:
        return None
    result, origin = program.buffers[y.buffer], program.buffers[x.buffer]
    if result.role is not Role.LOCAL or origin.role is not Role.LOCAL:
        return None
    if not (_covers(y, result) and _covers(x, origin)) or result.bytes != origin.bytes:
        return None
    if result.dtype.bytes != origin.dtype.bytes:
        return None  # more elements that are shorter: one that is broadcast would be overwritten before its last use
    maps = call.geometry.nest.maps()
    if output in maps and source in maps and maps[output].axes != maps[source].axes:
        return None  # a tile would overwrite what another one still reads
    others = [o for name, o in call.operands.items() if name not in (output, source) and o.buffer == x.buffer]
    return (y.buffer, x.buffer) if all(o.access == x.access for o in others) else None


def _covers(operand: Operand, buffer: Buffer) -> bool:
    """Whether the operand is all of its buffer, in order."""
    access = operand.access
    return access.is_dense and access.offset == 0 and math.prod(access.shape) == math.prod(buffer.shape)
