"""Chains of neighbours of which none needs the other: an accelerator works on one while cores compute the other (``deeploy.midend.fuse``).

Branches of a network have such calls. Each of them is cut as in the plan without chains, and nothing stays between them; what is
gained is that one engine begins before the other one is through.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from deeploy.midend.chain import Member
from deeploy.midend.fuse import Fused, Fuser
from deeploy.midend.order import meet
from deeploy.midend.program import Call

LONGEST = 3  # calls


def branches(fuser: Fuser) -> Iterator[Fused]:
    """The chains of independent calls for which there is room."""
    calls = fuser.program.calls
    for first in range(len(calls) - 1):
        for last in range(first + 1, min(first + LONGEST, len(calls))):
            some = calls[first : last + 1]
            if not all(_may(fuser, step, call) for step, call in enumerate(some, first)) or not _are_independent(some):
                break
            starts = _starts(fuser, first, some)
            one = _beside(fuser, first, some, starts) if starts is not None else None
            if one is not None:
                yield one


def _may(fuser: Fuser, step: int, call: Call) -> bool:
    """Whether a call can be part of such a chain."""
    is_simple = call.kernel.link is None and not call.kernel.forks and not call.geometry.nest.updates and not call.geometry.dynamic
    return is_simple and fuser.may(step, call)


def _are_independent(calls: Sequence[Call]) -> bool:
    """Whether no call touches elements that another one writes: parts of a concatenation are apart."""
    for call, other in itertools.permutations(calls, 2):
        for written, operand in itertools.product((call.operands[name] for name in call.writes), other.operands.values()):
            if written.buffer == operand.buffer and meet(written, operand):
                return False
    return True


def _starts(fuser: Fuser, first: int, calls: Sequence[Call]) -> list[int] | None:
    """The clock in which each call begins; None where no two engines have work at the same time.

    Jobs follow each other, and so do tiles of cores. In a clock an accelerator begins with its tile of the next one, so cores compute
    their first tile a clock before its first.
    """
    jobs = [bool(fuser.accelerator(call)) for call in calls]
    if not any(jobs) or not any(not job or call.kernel.second is not None for job, call in zip(jobs, calls, strict=True)):
        return None
    found, clocks = list[int](), {True: int(not all(jobs)), False: 0}
    for step, (job, _) in enumerate(zip(jobs, calls, strict=True), first):
        found.append(clocks[job])
        clocks[job] += fuser.plan.tiling(step).tiles
    return found


def _beside(fuser: Fuser, first: int, calls: Sequence[Call], starts: Sequence[int]) -> Fused | None:
    """The calls with their clocks as a chain, where there is room for it."""
    strips = [fuser.strip(call, fuser.plan.tiling(step).loops, [], True) for step, call in enumerate(calls, first)]
    tiles = [fuser.plan.tiling(step).tiles for step in range(first, first + len(calls))]
    every = max(start + count for start, count in zip(starts, tiles, strict=True))
    members = tuple(
        Member(step, fuser.plan.tiling(step).loops, every, start, count)
        for step, (start, count) in enumerate(zip(starts, tiles, strict=True), first)
    )
    found = [strip for strip in strips if strip is not None]
    return fuser.together(members, calls, found, is_nested=True) if len(found) == len(calls) else None
