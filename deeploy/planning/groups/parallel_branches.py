"""Fused groups of neighbours of which none needs the other: an accelerator works on one while cores compute the other
(``groups.layer_fusion``).

Branches of a network have such calls. Each of them is cut as in the plan without fused groups, or, on an accelerator, into a few tiles
along one dimension. Nothing stays between them; what is gained is that one engine begins before the other one is through.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from deeploy.planning.groups.layer_fusion import FusionCandidate, FusionSearch
from deeploy.planning.packing.order import operands_meet
from deeploy.planning.program import Call
from deeploy.planning.tiling.fused_group import GroupMember
from deeploy.planning.tiling.loops import TileLoop

LONGEST = 3  # calls
TRIPS = (2, 3, 4)  # tiles


def parallel_groups(search: FusionSearch) -> Iterator[FusionCandidate]:
    """The fused groups of independent calls for which there is room."""
    calls = search.program.calls
    for first in range(len(calls) - 1):
        for last in range(first + 1, min(first + LONGEST, len(calls))):
            some = calls[first : last + 1]
            if not all(_may_join(search, step, call) for step, call in enumerate(some, first)) or not _are_independent(some):
                break
            ways = itertools.product(*(_tried_loops(search, step) for step in range(first, last + 1)))
            groups = (one for loops in ways if (one := _fuse_branches(search, first, some, loops)) is not None)
            yield from itertools.islice(sorted(groups, key=lambda one: one.cycles), 1)


def _tried_loops(search: FusionSearch, step: int) -> list[tuple[TileLoop, ...]]:
    """The loops of a call that are tried."""
    call = search.program.calls[step]
    extents, choices = call.geometry.extents, search.tiler(call).choices if search.accelerator(call) else {}
    cuts = (TileLoop(dim, -(-extents[dim] // size), size) for dim, sizes in choices.items() for size in sizes)
    return list(dict.fromkeys([search.plan.tiling(step).loops, *((loop,) for loop in cuts if loop.trips in TRIPS)]))


def _may_join(search: FusionSearch, step: int, call: Call) -> bool:
    """Whether a call can be part of such a fused group."""
    is_simple = call.kernel.link is None and not call.kernel.forks and not call.geometry.nest.updates and not call.geometry.dynamic
    return is_simple and search.may(step, call)


def _are_independent(calls: Sequence[Call]) -> bool:
    """Whether no call touches elements that another one writes: parts of a concatenation are apart."""
    for call, other in itertools.permutations(calls, 2):
        for written, operand in itertools.product((call.operands[name] for name in call.writes), other.operands.values()):
            if written.buffer == operand.buffer and operands_meet(written, operand):
                return False
    return True


def _start_steps(search: FusionSearch, calls: Sequence[Call], tiles: Sequence[int]) -> list[int] | None:
    """The time step in which each call begins; None where no two engines have work at the same time.

    Jobs follow each other, and so do tiles of cores. In a time step an accelerator begins with its tile of the next one, so cores compute
    their first tile a time step before its first.
    """
    jobs = [bool(search.accelerator(call)) for call in calls]
    if not any(jobs) or not any(not job or call.kernel.post_processing is not None for job, call in zip(jobs, calls, strict=True)):
        return None
    starts, time_steps = list[int](), {True: int(not all(jobs)), False: 0}
    for job, count in zip(jobs, tiles, strict=True):
        starts.append(time_steps[job])
        time_steps[job] += count
    return starts


def _fuse_branches(
    search: FusionSearch, first: int, calls: Sequence[Call], loops: Sequence[tuple[TileLoop, ...]]
) -> FusionCandidate | None:
    """The calls with these loops as a fused group, where there is room for it."""
    tiles = [math.prod(loop.trips for loop in own) for own in loops]
    starts = _start_steps(search, calls, tiles)
    made = [search.tile_call(call, own, [], True) for call, own in zip(calls, loops, strict=True)] if starts is not None else []
    tiled_ops = [tiled_op for tiled_op in made if tiled_op is not None]
    if starts is None or len(tiled_ops) < len(calls):
        return None
    every = max(start + count for start, count in zip(starts, tiles, strict=True))
    rows = zip(loops, starts, tiles, strict=True)
    members = tuple(GroupMember(step, own, every, start, count) for step, (own, start, count) in enumerate(rows, first))
    return search.together(members, calls, tiled_ops, is_nested=True)
