"""Which calls of a network on a machine with several memories become chains (``deeploy.midend.fuse``), by the walk over their schedules.

What a chain saves is what its calls take alone, in the plan without chains, less what they take in the chain: cycles, or bytes that
move. Of the chains for which an estimate promises most, those are chosen that save the most together; no call is in two. The plan with
them is taken where the walk over the whole network finds that it is better.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deeploy.midend.fuse import Fused, Fuser, chained, part, placed
from deeploy.midend.place import Overfull
from deeploy.midend.plan import Plan
from deeploy.simulate.timing import Run
from deeploy.simulate.walk import walk

TRIED = 48  # chains that are walked over
WORTH = 0.03  # of the cycles of its calls that a chain has to save, which is more than the walk errs
SLOWER = 1.25  # times as many cycles that a chain may take to save bytes
ATTEMPTS = 6  # to find room for what was chosen, and to do without what gains nothing


@dataclass(frozen=True)
class _Found:
    """A chain, and what it saves."""

    fused: Fused
    cycles: float
    bytes: int


def with_chains(plan: Plan) -> Plan:
    """The plan with the chains that save the most; itself where none saves anything."""
    machine = plan.machine
    if plan.target.is_flat or plan.target.timing is None or not machine.chains:
        return plan
    by_bytes = machine.objective == "traffic"
    before = walk(plan)
    best, least = plan, _cost(before, by_bytes)
    chosen = _chosen(_tried(plan, before, by_bytes), len(plan.calls), by_bytes)
    for _ in range(ATTEMPTS):
        if not chosen:
            break
        try:
            found = placed(chained(plan, [one.fused for one in chosen]))
        except Overfull:
            found = None
        if found is not None:
            after = walk(found)
            if _cost(after, by_bytes) < least:
                best, least = _predicted(found, before, after), _cost(after, by_bytes)
                break
        chosen.remove(min(chosen, key=lambda one: one.bytes if by_bytes else one.cycles))
    return best


def _cost(run: Run, by_bytes: bool) -> tuple[float, float]:
    """What is to be small, and then what else."""
    moved = sum(traffic.bytes for traffic in run.traffic.values())
    return (moved, run.cycles) if by_bytes else (run.cycles, moved)


def _tried(plan: Plan, before: Run, by_bytes: bool) -> list[_Found]:
    """What the most promising chains save."""
    cycles = [call.cycles for call in before.calls]
    moved = [sum(traffic.bytes for traffic in call.traffic.values()) for call in before.calls]

    def promise(one: Fused) -> tuple[float, float]:
        steps = slice(one.chain.first, one.chain.last + 1)
        gains = sum(cycles[steps]) - one.cycles, sum(moved[steps]) - one.traffic
        if not by_bytes:
            return gains
        return (gains[1] if one.cycles <= SLOWER * sum(cycles[steps]) else 0, gains[0])

    found = list[_Found]()
    alone: dict[range, Run] = {}
    for one in heapq.nlargest(TRIED, Fuser(plan).found(), key=promise):
        if promise(one)[0] <= 0:
            break
        steps = range(one.chain.first, one.chain.last + 1)
        if steps not in alone:
            alone[steps] = walk(part(plan, steps))
        now = walk(part(chained(plan, [one]), steps))
        bytes_before, bytes_now = (sum(traffic.bytes for traffic in run.traffic.values()) for run in (alone[steps], now))
        if now.cycles <= (SLOWER if by_bytes else 1 - WORTH) * alone[steps].cycles:
            found.append(_Found(one, alone[steps].cycles - now.cycles, bytes_before - bytes_now))
    return found


def _chosen(found: Sequence[_Found], count: int, by_bytes: bool) -> list[_Found]:
    """Those that save the most together, of which no two share a call: the longest path over the positions between calls."""
    ends: dict[int, list[_Found]] = {}
    for one in found:
        if (one.bytes if by_bytes else one.cycles) > 0:
            ends.setdefault(one.fused.chain.last + 1, []).append(one)
    best: list[tuple[tuple[float, float], list[_Found]]] = [((0.0, 0.0), [])]
    for end in range(1, count + 1):
        ways = [best[-1]]
        for one in ends.get(end, ()):
            (first, second), before = best[one.fused.chain.first]
            gains = (one.bytes, one.cycles) if by_bytes else (one.cycles, one.bytes)
            ways.append(((first + gains[0], second + gains[1]), [*before, one]))
        best.append(max(ways, key=lambda way: way[0]))
    return best[-1][1]


def _predicted(plan: Plan, before: Run, after: Run) -> Plan:
    """The plan with what the walk says that its chains save; the planner's own figures know nothing of them."""
    assert plan.prediction is not None
    cycles = plan.prediction.cycles - round(before.cycles - after.cycles)
    return replace(plan, prediction=replace(plan.prediction, cycles=cycles, bound=min(plan.prediction.bound, cycles)))
