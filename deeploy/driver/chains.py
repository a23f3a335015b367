"""Which calls of a network on a machine with several memories become chains (``deeploy.midend.fuse``), by the walk over their schedules.

What a chain saves is what its calls take alone, in the plan without chains, less what they take in the chain: cycles, or bytes that
move. Of the chains for which an estimate promises most, those are chosen that save the most together; no call is in two. The plan with
them is taken where the walk over the whole network finds that it is better.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from deeploy.midend.behind import following
from deeploy.midend.beside import branches
from deeploy.midend.fuse import Fused, Fuser, chained, part, placed
from deeploy.midend.place import Overfull
from deeploy.midend.plan import ChainChoice, ChainReason, Plan
from deeploy.midend.program import Program
from deeploy.midend.tilewise import products
from deeploy.simulate.timing import Run, Traffic
from deeploy.simulate.walk import walk

TRIED = 16  # chains of each kind that are walked over
WORTH = 0.02  # of the cycles of its calls that a chain has to save, which is more than the walk errs
SLOWER = 1.25  # times as many cycles that a chain may take to save bytes
ATTEMPTS = 6  # to find room for what was chosen, and to do without what gains nothing


@dataclass(frozen=True)
class _Found:
    """A chain, and what the walk says of its calls one after the other and of the chain."""

    fused: Fused
    apart: Run
    chained: Run
    is_worth: bool

    @property
    def steps(self) -> range:
        """Those of its calls."""
        return range(self.fused.chain.first, self.fused.chain.last + 1)

    @property
    def cycles(self) -> float:
        """That it saves."""
        return self.apart.cycles - self.chained.cycles

    @property
    def bytes(self) -> int:
        """That it need not move."""
        return _moved(self.apart.traffic) - _moved(self.chained.traffic)

    def gains(self, by_bytes: bool) -> tuple[float, float]:
        """What it saves, and then what else."""
        return (self.bytes, self.cycles) if by_bytes else (self.cycles, self.bytes)


def with_chains(plan: Plan, given: Program) -> Plan:
    """The plan with the chains that save the most; itself, with what was considered, where none saves anything.

    Args:
        given: the program that the plan was made from, with all variants of its calls.
    """
    machine = plan.machine
    if plan.target.is_flat or plan.target.timing is None or not machine.chains:
        return plan
    by_bytes = machine.objective == "traffic"
    before, fuser = walk(plan), Fuser(plan, given)
    least = _cost(before, by_bytes)
    promise = _promise(before, by_bytes)
    is_free = plan.program.growth is None
    kinds = (
        list(fuser.found(lambda steps, cycles, traffic: promise(steps, cycles, traffic)[0] > 0)),
        [*products(fuser), *branches(fuser)] if is_free else [],
        list(following(fuser)) if is_free and not by_bytes else [],
    )
    possible = [one for every in kinds for one in every]
    walked = _walked(fuser, kinds, promise, by_bytes)
    chosen = _chosen([one for one in walked if one.is_worth], len(plan.calls), by_bytes)
    dropped: dict[range, ChainReason] = {}
    best = plan
    for _ in range(ATTEMPTS):
        if not chosen:
            break
        reason: ChainReason = "more bytes" if by_bytes else "slower"
        try:
            found = placed(chained(plan, [one.fused for one in chosen], fuser.buffers))
            after = walk(found)
            if _cost(after, by_bytes) < least:
                best = predicted(found, before, after)
                break
        except Overfull:
            reason = "not packed"
        worst = min(chosen, key=lambda one: one.gains(by_bytes)[0])
        chosen.remove(worst)
        dropped[worst.steps] = reason
    taken = {chain.first for chain in best.chains}
    return replace(
        best, chain_choices=_choices(fuser, possible, walked, [one for one in chosen if one.steps[0] in taken], dropped, by_bytes)
    )


def _moved(traffic: Mapping[str, Traffic]) -> int:
    """Bytes on all paths."""
    return sum(one.bytes for one in traffic.values())


def _cost(run: Run, by_bytes: bool) -> tuple[float, float]:
    """What is to be small, and then what else."""
    moved = _moved(run.traffic)
    return (moved, run.cycles) if by_bytes else (run.cycles, moved)


Promise = Callable[[range, int, int], tuple[float, float]]


def _promise(before: Run, by_bytes: bool) -> Promise:
    """What a chain of some steps saves that is estimated at so many cycles and bytes that move, and then what else; 0 where too little."""
    cycles = [0.0, *itertools.accumulate(call.cycles for call in before.calls)]
    moved = [0, *itertools.accumulate(_moved(call.traffic) for call in before.calls)]

    def promise(steps: range, estimate: int, traffic: int) -> tuple[float, float]:
        alone = cycles[steps[-1] + 1] - cycles[steps[0]]
        gains = alone - estimate, moved[steps[-1] + 1] - moved[steps[0]] - traffic
        if not by_bytes:  # the walk adds overheads to the estimate
            return (gains[0] if gains[0] >= WORTH * alone else 0, gains[1])
        return (gains[1] if estimate <= SLOWER * alone else 0, gains[0])

    return promise


def _walked(fuser: Fuser, kinds: Sequence[Sequence[Fused]], promise: Promise, by_bytes: bool) -> list[_Found]:
    """The most promising chains of each kind, walked over."""

    def promised(one: Fused) -> tuple[float, float]:
        return promise(range(one.chain.first, one.chain.last + 1), one.cycles, one.traffic)

    found = list[_Found]()
    alone: dict[range, Run] = {}
    for one in (one for every in kinds for one in heapq.nlargest(TRIED, every, key=promised)):
        if promised(one)[0] <= 0:
            continue
        steps = range(one.chain.first, one.chain.last + 1)
        if steps not in alone:
            alone[steps] = walk(part(fuser.plan, steps))
        now = walk(part(chained(fuser.plan, [one], fuser.buffers), steps))
        found.append(_Found(one, alone[steps], now, now.cycles <= (SLOWER if by_bytes else 1 - WORTH) * alone[steps].cycles))
    return found


def _chosen(found: Sequence[_Found], count: int, by_bytes: bool) -> list[_Found]:
    """Those that save the most together, of which no two share a call: the longest path over the positions between calls."""
    ends: dict[int, list[_Found]] = {}
    for one in found:
        if one.gains(by_bytes)[0] > 0:
            ends.setdefault(one.fused.chain.last + 1, []).append(one)
    best: list[tuple[tuple[float, float], list[_Found]]] = [((0.0, 0.0), [])]
    for end in range(1, count + 1):
        ways = [best[-1]]
        for one in ends.get(end, ()):
            (first, second), before = best[one.fused.chain.first]
            gains = one.gains(by_bytes)
            ways.append(((first + gains[0], second + gains[1]), [*before, one]))
        best.append(max(ways, key=lambda way: way[0]))
    return best[-1][1]


def _choices(
    fuser: Fuser,
    possible: Sequence[Fused],
    walked: Sequence[_Found],
    taken: Sequence[_Found],
    dropped: Mapping[range, ChainReason],
    by_bytes: bool,
) -> tuple[ChainChoice, ...]:
    """What became of every group of calls: of several ways to cut one, the one that was taken, or the best one that was walked over."""
    found: dict[range, ChainChoice] = {}
    for one in sorted(walked, key=lambda one: (one not in taken, not one.is_worth, *(-gain for gain in one.gains(by_bytes)))):
        reason: ChainReason = "taken" if one in taken else "less saved"
        if one not in taken and one.gains(by_bytes)[0] <= 0:
            reason = "more bytes" if by_bytes else "slower"
        elif not one.is_worth:
            reason = "slower"
        cycles = round(one.apart.cycles), round(one.chained.cycles)
        moved = [{name: traffic.bytes for name, traffic in run.traffic.items()} for run in (one.apart, one.chained)]
        peaks = fuser.peak(one.steps), one.fused.bytes
        reason = dropped.get(one.steps, reason) if reason == "less saved" else reason
        trips = one.fused.chain.members[0].trips
        found.setdefault(one.steps, ChainChoice(one.steps[0], one.steps[-1], trips, reason, *cycles, moved[0], moved[1], *peaks))
    for fused in sorted(possible, key=lambda fused: fused.cycles):
        steps = range(fused.chain.first, fused.chain.last + 1)
        if len(steps) == 2 and steps not in found:
            trips = fused.chain.members[0].trips
            found[steps] = ChainChoice(steps[0], steps[-1], trips, "not walked", None, None, {}, {}, fuser.peak(steps), fused.bytes)
    for step, (reason, needed) in fuser.misses.items():
        steps = range(step, step + 2)
        if steps not in found and fuser.follows(step + 1):
            found[steps] = ChainChoice(step, step + 1, 0, reason, None, None, {}, {}, fuser.peak(steps), needed)
    return tuple(sorted(found.values(), key=lambda choice: (choice.first, choice.last)))


def predicted(plan: Plan, before: Run, after: Run) -> Plan:
    """The plan with what the walk says that its chains save; the planner's own figures know nothing of them."""
    assert plan.prediction is not None
    cycles = plan.prediction.cycles - round(before.cycles - after.cycles)
    return replace(plan, prediction=replace(plan.prediction, cycles=cycles, bound=min(plan.prediction.bound, cycles)))
