"""Which calls of a network on a machine with several memories become fused groups (``deeploy.planning.groups.layer_fusion``).

What a fused group saves is what its calls take alone, in the plan without fused groups, less what they take in the fused group: cycles,
or bytes that move. First that is an estimate, tile by tile. Those fused groups are chosen that save the most together; no call is in two.
The walk over the network with them says what each of them saves; as long as that changes which ones are best, others are chosen. The best
plan is taken.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from deeploy.execution.simulation.timing import Run
from deeploy.execution.simulation.walk import walk_plan
from deeploy.options import Objective
from deeploy.planning.energy import measure_objective
from deeploy.planning.groups.layer_fusion import FusionCandidate, FusionSearch, apply_groups, place_addresses
from deeploy.planning.groups.layer_pipelining import pipelined_groups
from deeploy.planning.groups.parallel_branches import parallel_groups
from deeploy.planning.groups.product_fusion import product_groups
from deeploy.planning.packing.addresses import Overfull
from deeploy.planning.plan import ChainReason, FusionChoice, Plan
from deeploy.planning.program import Program

WORTH = 0.01  # of the cycles of its calls that a fused group has to save, which is more than estimates err
SLOWER = 1.25  # times as many cycles that a fused group may take to save bytes
ATTEMPTS = 6  # networks with fused groups that are walked over


class _Cost(NamedTuple):
    """What calls take: cycles, and bytes that move by path."""

    cycles: float
    traffic: Mapping[str, int]

    @property
    def moved(self) -> int:
        """Bytes that the calls move, summed over all paths."""
        return sum(self.traffic.values())


@dataclass(frozen=True)
class _Option:
    """A fused group, what its calls take without it and with it, and why it cannot be taken."""

    fused: FusionCandidate
    apart: _Cost
    together: _Cost
    reason: ChainReason | None = None

    def gains(self, by_bytes: bool) -> tuple[float, float]:
        """What it saves, and then what else; nothing where that is too little, or not possible."""
        cycles, moved = self.apart.cycles - self.together.cycles, self.apart.moved - self.together.moved
        most = SLOWER if by_bytes else 1 - WORTH
        if self.reason or self.together.cycles > most * self.apart.cycles or (moved if by_bytes else cycles) <= 0:
            return 0.0, 0.0
        return (moved, cycles) if by_bytes else (cycles, moved)


def fuse_layers(plan: Plan, given: Program) -> Plan:
    """The plan with the fused groups that save the most; itself, with what was considered, where none saves anything.

    Args:
        given: the program that the plan was made from, with all variants of its calls.
    """
    if plan.target.is_flat or plan.target.timing is None or not plan.machine.fusion:
        return plan
    by_bytes = plan.machine.objective == "traffic"
    before, search, objective = walk_plan(plan), FusionSearch(plan, given), plan.machine.objective
    costs = _WalkedCosts(before)
    options = {fused: _estimate_option(search, costs, fused) for fused in _possible_groups(search, costs, by_bytes)}
    best, least, taken, tried = plan, costs.total(before, objective), set[FusionCandidate](), set[frozenset[FusionCandidate]]()
    for _ in range(ATTEMPTS):
        chosen = _select_options([one for one in options.values() if one.gains(by_bytes)[0] > 0], len(plan.calls), by_bytes)
        if not chosen or frozenset(one.fused for one in chosen) in tried:
            break
        tried.add(frozenset(one.fused for one in chosen))
        fused_plan = apply_groups(plan, [one.fused for one in chosen], search.buffers)
        try:
            fused_plan = place_addresses(fused_plan)
        except Overfull:
            worst = min(chosen, key=lambda one: one.gains(by_bytes)[0])
            options[worst.fused] = replace(worst, reason="not packed")
            continue
        after = walk_plan(fused_plan)
        now = _WalkedCosts(after)
        options |= {one.fused: replace(one, together=now.cost(one.fused.steps)) for one in chosen}
        if now.total(after, objective) < least:
            least, taken, best = now.total(after, objective), {one.fused for one in chosen}, predict_savings(fused_plan, before, after)
    return replace(best, fusion_choices=_describe_choices(search, list(options.values()), taken, by_bytes))


class _WalkedCosts:
    """What the calls of a run take, one after the other."""

    def __init__(self, run: Run) -> None:
        self.calls = [_Cost(call.cycles, {name: one.bytes for name, one in call.traffic.items()}) for call in run.calls]
        self.cycles = [0.0, *itertools.accumulate(call.cycles for call in self.calls)]
        self.moved = [0, *itertools.accumulate(call.moved for call in self.calls)]

    def cost(self, steps: range) -> _Cost:
        """Cycles and bytes by path that the calls ``steps`` take one after the other."""
        traffic = Counter[str]()
        for step in steps:
            traffic.update(self.calls[step].traffic)
        return _Cost(self.cycles[steps[-1] + 1] - self.cycles[steps[0]], traffic)

    def total(self, run: Run, objective: Objective) -> tuple[float, float]:
        """What is to be small, and then what else."""
        if objective == "traffic":
            return self.moved[-1], self.cycles[-1]
        return measure_objective(objective, self.cycles[-1], run.energy.total), self.moved[-1]


def _possible_groups(search: FusionSearch, costs: _WalkedCosts, by_bytes: bool) -> list[FusionCandidate]:
    """The fused groups of all kinds for which there is room."""

    def promises(steps: range, cycles: int, traffic: int) -> bool:
        alone, moved = (row[steps[-1] + 1] - row[steps[0]] for row in (costs.cycles, costs.moved))
        return traffic < moved and cycles <= SLOWER * alone if by_bytes else cycles <= (1 - WORTH) * alone

    groups = list(search.list_candidates(promises))
    if search.program.dynamic_length is None:
        groups += [*product_groups(search), *parallel_groups(search), *(() if by_bytes else pipelined_groups(search))]
    return groups


def _estimate_option(search: FusionSearch, costs: _WalkedCosts, fused: FusionCandidate) -> _Option:
    """A fused group with the estimate of what it takes: besides windows, as much moves as without it."""
    alone = costs.cost(fused.steps)
    moved = Counter(alone.traffic)
    moved.update(fused.traffic)
    for step in fused.steps:
        moved.subtract(search.traffic(step))
    return _Option(fused, alone, _Cost(fused.cycles, moved))


def _select_options(options: Sequence[_Option], count: int, by_bytes: bool) -> list[_Option]:
    """Those that save the most together, of which no two share a call: the longest path over the positions between calls."""
    ends: dict[int, list[_Option]] = {}
    for one in options:
        ends.setdefault(one.fused.fused_group.last + 1, []).append(one)
    best: list[tuple[tuple[float, float], list[_Option]]] = [((0.0, 0.0), [])]
    for end in range(1, count + 1):
        ways = [best[-1]]
        for one in ends.get(end, ()):
            (first, second), before = best[one.fused.fused_group.first]
            gains = one.gains(by_bytes)
            ways.append(((first + gains[0], second + gains[1]), [*before, one]))
        best.append(max(ways, key=lambda way: way[0]))
    return best[-1][1]


def _describe_choices(
    search: FusionSearch, options: Sequence[_Option], taken: set[FusionCandidate], by_bytes: bool
) -> tuple[FusionChoice, ...]:
    """What became of every group of calls: of several ways to cut one, the one that was taken, or the best one."""
    choices: dict[range, FusionChoice] = {}
    for one in sorted(options, key=lambda one: (one.fused not in taken, *(-gain for gain in one.gains(by_bytes)), one.together.cycles)):
        steps, (gain, _) = one.fused.steps, one.gains(by_bytes)
        reason: ChainReason = "taken" if one.fused in taken else one.reason or "less saved"
        if reason == "less saved" and not gain:
            reason = "more bytes" if by_bytes and one.together.moved >= one.apart.moved else "slower"
        trips, cycles = one.fused.fused_group.members[0].trips, (round(one.apart.cycles), round(one.together.cycles))
        peaks = search.peak(steps), one.fused.bytes
        moved = dict(one.apart.traffic), dict(one.together.traffic)
        choice = FusionChoice(steps[0], steps[-1], trips, reason, *cycles, *moved, *peaks)
        choices.setdefault(steps, choice)
    for step, (why, needed) in search.misses.items():
        steps = range(step, step + 2)
        if steps not in choices and search.follows(step + 1):
            choices[steps] = FusionChoice(step, step + 1, 0, why, None, None, {}, {}, search.peak(steps), needed)
    return tuple(sorted(choices.values(), key=lambda choice: (choice.first, choice.last)))


def predict_savings(plan: Plan, before: Run, after: Run) -> Plan:
    """The plan with what the walk says that its fused groups save; the planner's own figures know nothing of them."""
    assert plan.prediction is not None
    cycles = plan.prediction.cycles - round(before.cycles - after.cycles)
    return replace(plan, prediction=replace(plan.prediction, cycles=cycles, bound=min(plan.prediction.bound, cycles)))
