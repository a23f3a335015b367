"""When every buffer is live, and which buffers may share memory because one is overwritten by the other.

Steps are positions in the list of calls. A local buffer lives from its first write to its last use; scratch memory and windows live
in the step of their call, windows that are fetched early from a step before. Buffers that a kernel may overwrite in place are united: they
get one address.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from deeploy.graph.target import Target
from deeploy.midend.candidate import Candidate
from deeploy.midend.chain import Chain
from deeploy.midend.pack import Block
from deeploy.midend.program import Buffer, Call, Operand, Program, Role, ahead, content

FOR_EVER = -1  # the first step of what is there before an inference begins


def spans(program: Program) -> dict[str, tuple[int, int]]:
    """First and last step of every local and scratch buffer that is used."""
    found: dict[str, tuple[int, int]] = {}
    for step, call in enumerate(program.calls):
        for name in (*(o.buffer for o in call.operands.values()), *call.scratch.values()):
            if program.buffers[name].role in (Role.LOCAL, Role.SCRATCH):
                found[name] = (found.get(name, (step, step))[0], step)
    return found


def most_alive(blocks: Iterable[Block], steps: int) -> int:
    """The most bytes that are alive at once, in so many steps."""
    change = [0] * (steps + 1)
    for block in blocks:
        change[max(block.first, 0)] += block.size
        change[min(block.last + 1, steps)] -= block.size
    return max(itertools.accumulate(change))


def lifetimes(program: Program, chains: Sequence[Chain] = ()) -> list[Block]:
    """The blocks of states, live for ever, and of buffers, united where a call may overwrite a dying operand.

    The calls of a chain run side by side: what one of them needs is there during all of it, and nothing is overwritten.
    """
    alive = {name: during(ends, chains) for name, ends in spans(program).items()}
    inside = {step for chain in chains for step in range(chain.first, chain.last + 1)}
    successor = {x: y for step, (y, x) in united(program).items() if step not in inside}
    end = len(program.calls)
    states = [Block((b.name,), FOR_EVER, end, b.bytes) for b in program.buffers.values() if b.role is Role.STATE]
    heads = [name for name in alive if name not in successor.values()]
    held = {name: elements for chain in chains for name, elements in chain.held.items()}
    result = []
    for head in heads:
        shared = [head]
        while shared[-1] in successor:
            shared.append(successor[shared[-1]])
        sizes = [held[b.name] * b.dtype.bytes if b.name in held else b.bytes for b in (program.buffers[name] for name in shared)]
        result.append(Block(tuple(shared), alive[head][0], alive[shared[-1]][1], max(sizes)))
    return states + result


def window_name(call: str, operand: str, level: str, engine_level: str) -> str:
    """The name of a window's block."""
    return f"{call}.{operand}" if level == engine_level else f"{call}.{operand}@{level}"


def wanted_blocks(
    program: Program,
    target: Target,
    candidates: Sequence[Candidate],
    residences: Mapping[str, str],
    blocks: Sequence[Block],
    kept: Mapping[str, tuple[int, int]],
    chains: Sequence[Chain] = (),
) -> dict[str, list[Block]]:
    """Everything that needs an address, by memory.

    Args:
        residences: the level of every block's first buffer.
        blocks: of local buffers and states.
        kept: first and last step of the copies of far constants.
        chains: calls that run side by side, so that what each of them has is there during all of them.
    """
    result: dict[str, list[Block]] = {memory.name: [] for memory in target.memories}
    for block in blocks:
        if block.buffers[0] in residences:
            result[residences[block.buffers[0]]].append(block)
    copies: dict[object, list[str]] = {}
    for name, steps in kept.items():
        copies.setdefault((residences[name], steps, content(program.buffers[name])), []).append(name)
    for names in copies.values():
        result[residences[names[0]]].append(Block(tuple(names), *kept[names[0]], program.buffers[names[0]].bytes))
    for step, (call, candidate) in enumerate(zip(program.calls, candidates, strict=True)):
        tiling = candidate.tiling
        inner = target.engine(call.kernel.engine).memory
        first, last = during((step, step), chains)
        for stream in tiling.streams:
            level = next(path.near for path in target.paths if path.name == stream.path)
            name = window_name(call.name, stream.operand, level, inner)
            begin = step - ahead(program.calls, step) if stream.is_early else first
            result[level].append(Block((name,), begin, last, stream.bytes * stream.depth))
        tile = {**call.geometry.extents, **tiling.sizes} if call.scratch else {}
        for key, name in call.scratch.items():
            size = int(call.kernel.scratch[key].total(call.node, tile)) * call.kernel.slots(key, candidate.is_double and tiling.tiles > 1)
            result[inner].append(Block((name,), first, last, size))
    return result


def during(ends: tuple[int, int], chains: Sequence[Chain]) -> tuple[int, int]:
    """The steps in which a buffer is alive, with all of the chains in which it is."""
    first, last = ends
    for chain in chains:
        first = chain.first if chain.first <= first <= chain.last else first
        last = chain.last if chain.first <= last <= chain.last else last
    return first, last


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
