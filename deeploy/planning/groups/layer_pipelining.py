"""Fused groups of calls that follow each other: an accelerator begins with one while cores complete the one before
(``groups.layer_fusion``).

An accelerator whose sums cores complete waits for them once in every call: its first tile has nothing to run beside. Where the first tile
of a call needs nothing of the last tile of the call in front of it, the accelerator begins with it while cores complete that one. So calls
are cut into a few tiles of rows, each with so many rows that those in front of its last tile are all that the next call's first tile
reads: a 3x3 convolution has a row less in its first tile than the call whose output it reads. What the calls hand on lies in the memory of
the engines as a whole, and every call runs to its end before the next one does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deeploy.planning.groups.layer_fusion import FusionCandidate, FusionSearch
from deeploy.planning.program import Call, Role
from deeploy.planning.tiling.fused_group import GroupMember, RowCut
from deeploy.planning.tiling.loops import TileLoop

TRIPS = (2, 3, 4)  # tiles of a call
LONGEST = 8  # calls
CHOICES = 6  # numbers of rows of a tile that are compared


@dataclass(frozen=True)
class _CallPart:
    """A call in tiles; ``made`` is None where it is not cut."""

    call: Call
    loops: tuple[TileLoop, ...]
    made: RowCut | None

    @property
    def tiles(self) -> int:
        return math.prod(loop.trips for loop in self.loops)


def pipelined_groups(search: FusionSearch) -> Iterator[FusionCandidate]:
    """The fused groups of calls that follow each other for which there is room."""
    for last in range(1, len(search.program.calls)):
        for trips in TRIPS:
            parts: list[_CallPart] = []
            for first in range(last, max(last - LONGEST, -1), -1):
                part = _part_of_call(search, first, trips, parts[0] if parts else None)
                if part is None:
                    break
                parts.insert(0, part)
                if len(parts) > 1 and _is_hidden(search, *parts[:2]):
                    one = _fuse_parts(search, first, parts)
                    if one is None:
                        break
                    yield one


def _has_cores(search: FusionSearch, call: Call) -> bool:
    """Whether cores do something of a call."""
    return not search.accelerator(call) or call.kernel.post_processing is not None


def _is_hidden(search: FusionSearch, before: _CallPart, follower: _CallPart) -> bool:
    """Whether a job begins while cores are busy with the call in front of it."""
    return _has_cores(search, before.call) and bool(search.accelerator(follower.call))


def _part_of_call(search: FusionSearch, step: int, trips: int, follower: _CallPart | None) -> _CallPart | None:
    """A call in about so many tiles, without the last of which the next one can begin; None where it cannot be part of such a group."""
    call, along = search.program.calls[step], search.along(step)
    if along is None:
        return None
    is_followed = follower is not None and _has_cores(search, call) and bool(search.accelerator(follower.call))
    if not is_followed and not search.accelerator(call):
        return _CallPart(call, (), None)
    made = search.cut(step, along.loop(-(-along.extent // trips)))
    if made is None:
        return None
    needed = _first_tile_rows(made, follower.made) if is_followed and follower is not None and follower.made is not None else 0
    least = max(-(-along.extent // trips), -(-needed // (trips - 1)))
    loops = {along.loop(rows) for rows in range(least, min(least + CHOICES, along.extent))}
    loops_by_dim: dict[tuple[int, int], TileLoop] = {}
    for loop in (loop for loop in loops if loop.trips > 1 and needed <= (loop.trips - 1) * loop.tile):
        tiled_op = search.tile_call(call, (loop,), [operand.buffer for operand in call.operands.values()], True)
        if tiled_op is not None:
            loops_by_dim[tiled_op.candidate.cycles, loop.tile] = loop
    return _CallPart(call, (loops_by_dim[min(loops_by_dim)],), search.cut(step, loops_by_dim[min(loops_by_dim)])) if loops_by_dim else None


def _first_tile_rows(made: RowCut, follower: RowCut) -> int:
    """Rows that the first tile of a call needs of another one's output."""
    ends = [int(read.end[0]) for read in follower.reads if read.buffer == made.written and read.end[0] > read.first[0]]
    return max((-((made.offset - end) // made.pitch) for end in ends), default=0)


def _fuse_parts(search: FusionSearch, first: int, parts: Sequence[_CallPart]) -> FusionCandidate | None:
    """The calls as a fused group, where there is room for it."""
    last = first + len(parts) - 1
    inside = _inner_buffers(search, first, parts)
    if inside is None:
        return None
    made = [search.tile_call(part.call, part.loops, inside, True) for part in parts]
    tiled_ops = [tiled_op for tiled_op in made if tiled_op is not None]
    if len(tiled_ops) < len(parts):
        return None
    starts, every = [0], sum(part.tiles for part in parts)
    for part in parts:
        starts.append(starts[-1] + part.tiles)
    members = tuple(
        GroupMember(step, part.loops, every, start, part.tiles)
        for step, part, start in zip(range(first, last + 1), parts, starts, strict=False)
    )
    size = sum(search.aligned(search.program.buffers[name].bytes) for name in inside)
    inner = dict.fromkeys(inside, True)
    return search.together(members, [part.call for part in parts], tiled_ops, inside=inner, size=size, is_nested=True)


def _inner_buffers(search: FusionSearch, first: int, parts: Sequence[_CallPart]) -> list[str] | None:
    """The buffers that the calls alone use; None where one of them reads what another one writes and what is not next to the engines."""
    last, inside = first + len(parts) - 1, list[str]()
    for step, part in enumerate(parts, first):
        for name in part.call.writes:
            buffer = part.call.operands[name].buffer
            ends = search.spans.get(buffer)
            if ends is not None and ends[0] >= first and ends[1] <= last and search.program.buffers[buffer].role is Role.LOCAL:
                inside.append(buffer)
            elif search.distance(buffer) != 0 and any(
                operand.buffer == buffer for other in parts[step - first + 1 :] for operand in other.call.operands.values()
            ):
                return None
    return list(dict.fromkeys(inside))
