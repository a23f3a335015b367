"""When every buffer is live, and what needs an address.

Steps are positions in the list of calls. A local buffer lives from its first write to its last use; scratch memory and windows live
in the step of their call, windows that are fetched early from a step before. Buffers that a kernel may overwrite in place are united: they
get one address.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

from deeploy.ir.target import Target
from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.packing.addresses import Block, Placement
from deeploy.planning.program import Program, Role, buffer_spans, calls_ahead, constant_content, united_buffers
from deeploy.planning.tiling.fused_group import FusedGroup

FOR_EVER = -1  # the first step of what is there before an inference begins


def most_alive(blocks: Iterable[Block], steps: int) -> int:
    """The most bytes that are alive at once, in so many steps."""
    change = [0] * (steps + 1)
    for block in blocks:
        change[max(block.first, 0)] += block.size
        change[min(block.last + 1, steps)] -= block.size
    return max(itertools.accumulate(change))


def block_lifetimes(program: Program, fused_groups: Sequence[FusedGroup] = ()) -> list[Block]:
    """The blocks of states, live for ever, and of buffers, united where a call may overwrite a dying operand.

    The calls of a fused group run side by side: what one of them needs is there during all of it, and nothing is overwritten.
    """
    alive = {name: extend_lifetime(ends, fused_groups) for name, ends in buffer_spans(program).items()}
    inside = {step for fused_group in fused_groups for step in range(fused_group.first, fused_group.last + 1)}
    successor = {x: y for step, (y, x) in united_buffers(program).items() if step not in inside}
    end = len(program.calls)
    states = [Block((b.name,), FOR_EVER, end, b.bytes) for b in program.buffers.values() if b.role is Role.STATE]
    heads = [name for name in alive if name not in successor.values()]
    held = {name: elements for fused_group in fused_groups for name, elements in fused_group.held.items()}
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
    fetched: Mapping[str, tuple[int, int]],
    fused_groups: Sequence[FusedGroup] = (),
) -> dict[str, list[Block]]:
    """Everything that needs an address, by memory.

    Args:
        residences: the level of every block's first buffer.
        blocks: of local buffers and states.
        fetched: first and last step of the copies of far constants.
        fused_groups: calls that run side by side, so that what each of them has is there during all of them.
    """
    result: dict[str, list[Block]] = {memory.name: [] for memory in target.memories}
    for block in blocks:
        if block.buffers[0] in residences:
            result[residences[block.buffers[0]]].append(block)
    copies: dict[object, list[str]] = {}
    for name, steps in fetched.items():
        copies.setdefault((residences[name], steps, constant_content(program.buffers[name])), []).append(name)
    for names in copies.values():
        result[residences[names[0]]].append(Block(tuple(names), *fetched[names[0]], program.buffers[names[0]].bytes))
    for step, (call, candidate) in enumerate(zip(program.calls, candidates, strict=True)):
        tiling = candidate.tiling
        inner = target.engine(call.kernel.engine).memory
        first, last = extend_lifetime((step, step), fused_groups)
        for stream in tiling.streams:
            level = next(path.near for path in target.paths if path.name == stream.path)
            name = window_name(call.name, stream.operand, level, inner)
            begin = step - calls_ahead(program.calls, step) if stream.is_prefetchable else first
            result[level].append(Block((name,), begin, last, stream.bytes * stream.depth))
        tile = {**call.geometry.extents, **tiling.sizes} if call.scratch else {}
        for key, name in call.scratch.items():
            size = int(call.kernel.scratch[key].total(call.node, tile)) * call.kernel.slots(key, candidate.is_double and tiling.tiles > 1)
            result[inner].append(Block((name,), first, last, size))
    return result


def extend_lifetime(ends: tuple[int, int], fused_groups: Sequence[FusedGroup]) -> tuple[int, int]:
    """The steps in which a buffer is alive, with all of the fused groups in which it is."""
    first, last = ends
    for fused_group in fused_groups:
        first = fused_group.first if fused_group.first <= first <= fused_group.last else first
        last = fused_group.last if fused_group.first <= last <= fused_group.last else last
    return first, last


class OccupiedBytes:
    """Bytes of placements in a memory that are there at any time between two steps, without a look at each of them."""

    def __init__(self, placed: Sequence[Placement], aligned: Callable[[int], int]) -> None:
        self.begun, self.begun_bytes = self._summed((p.first, aligned(p.size)) for p in placed)
        self.ended, self.ended_bytes = self._summed((p.last, aligned(p.size)) for p in placed)

    def between(self, steps: range) -> int:
        """Bytes of the placements that live in some step from the first to the last one."""
        return self.begun_bytes[bisect_right(self.begun, steps[-1])] - self.ended_bytes[bisect_left(self.ended, steps[0])]

    @staticmethod
    def _summed(events: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
        ordered = sorted(events)
        return [step for step, _ in ordered], [0, *itertools.accumulate(size for _, size in ordered)]
