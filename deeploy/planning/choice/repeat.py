"""Networks that repeat a block: the first, a middle and the last one are chosen, and the middle one is copied.

The middle block stands for all between the first and the last: its cycles count as often. So that copies fit side by side, what
crosses from the first block into it has the same residence as what crosses from it into the next, and the first call of the
last block runs as the first call of the middle one does. What that one saves behind its predecessor stands for all copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.planning.choice.problem import Choice, ChoiceProblem, ConditionalConstant, Residence, Users, choice_fits, evaluate_choice

LEAST = 4  # blocks that are worth it


@dataclass(frozen=True)
class Repetition:
    """``count`` equal blocks of ``period`` calls, the first of which begins at step ``first``."""

    first: int
    period: int
    count: int

    @property
    def middle(self) -> int:
        """The first step of the middle block."""
        return self.first + self.period

    @property
    def gap(self) -> range:
        """The steps that are left out: those of all blocks between the middle one and the last one."""
        return range(self.middle + self.period, self.first + (self.count - 1) * self.period)

    def model(self, step: int) -> int:
        """The step of the middle block that stands for a step of the gap."""
        return self.middle + (step - self.first) % self.period

    def short(self, step: int) -> int:
        """The step that stands for a step where the gap is left out."""
        return self.model(step) if step in self.gap else step - len(self.gap) if step >= self.gap.stop else step

    def users(self, users: Users) -> Users:
        """The (step, variant) that stand for others where the gap is left out."""
        return tuple(dict.fromkeys((self.short(step), variant) for step, variant in users))


def find_repetition(signatures: Sequence[Hashable]) -> Repetition | None:
    """The blocks that leave out the most calls; None where nothing repeats often enough."""
    best: Repetition | None = None
    known: dict[Hashable, int] = {}
    numbers = np.array([known.setdefault(signature, len(known)) for signature in signatures], np.int64)
    for period in range(1, len(numbers) // LEAST + 1):
        others = np.flatnonzero(numbers[:-period] != numbers[period:])
        ends = np.concatenate((others, [len(numbers) - period]))
        begins = np.concatenate(([0], others + 1))
        counts = (ends - begins) // period + 1
        longest = int(np.argmax(counts))
        repetition = Repetition(int(begins[longest]), period, int(counts[longest]))
        if repetition.count >= LEAST and (best is None or len(repetition.gap) > len(best.gap)):
            best = repetition
    return best


def shorten_problem(problem: ChoiceProblem, blocks: Repetition) -> ChoiceProblem | None:
    """The problem without the gap; None where buffers live across blocks in another way than from one to the next."""
    gap, steps = blocks.gap, range(len(problem.candidates))
    residences = {residence.name: residence for residence in problem.residences}
    pinned: Counter[str | None] = Counter()  # bytes of constants of the gap, by what stands for them
    for residence in problem.residences:
        if residence.steps[0] in gap and residence.origin is not None:
            pinned[_twin_residence(problem, blocks, residence)] += residence.size
    remaining: list[Residence] = []
    for residence in problem.residences:
        if residence.steps[0] in gap:
            continue
        last = _shortened_last(residence, blocks)
        if last is None or None in pinned:
            return None
        size = residence.size + pinned[residence.name]
        remaining.append(replace(residence, size=size, steps=(blocks.short(residence.steps[0]), last), users=blocks.users(residence.users)))
    operands = []
    for step in steps:
        if step not in gap:
            variants = [
                [_shortened_operand(problem, residences, blocks, step, variant, j) for j in range(len(names))]
                for variant, names in enumerate(problem.operands[step])
            ]
            if any(name == "" for names in variants for name in names):
                return None
            operands.append(variants)
    twins = []
    for step in gap[: blocks.period]:
        pairs = zip(problem.operands[step - blocks.period], problem.operands[step], strict=True)
        for before, name in ((b, n) for first, second in pairs for b, n in zip(first, second, strict=True)):
            if name is not None and before is not None and name != before and residences[name].steps[0] < gap.start:
                twins.append((before, name))
    weights = [blocks.count - 2 if blocks.middle <= s < gap.start else 1 for s in steps]
    return replace(
        problem,
        candidates=[problem.candidates[s] for s in steps if s not in gap],
        operands=operands,
        residences=remaining,
        codes=[row for s, row in enumerate(problem.codes) if s not in gap],
        weights=tuple(weights[s] for s in steps if s not in gap),
        cached_weights=tuple({blocks.middle: 1, gap.stop: blocks.count - 2}.get(s, weights[s]) for s in steps if s not in gap),
        equal_residences=tuple(dict.fromkeys(twins)),
        equal_steps=((blocks.middle, gap.start),),
        ahead=tuple(problem.ahead[s] for s in steps if s not in gap) if problem.ahead else (),
        shares=_shortened_shares(problem, blocks),
    )


def _shortened_shares(problem: ChoiceProblem, blocks: Repetition) -> list[ConditionalConstant]:
    """What constants of the gap take is taken where the middle block takes its own."""
    shares: dict[tuple[int, Users], int] = {}
    for share in problem.shares:
        key = share.distance, blocks.users(share.users)
        shares[key] = shares.get(key, 0) + share.size
    return [ConditionalConstant(distance, size, users) for (distance, users), size in shares.items()]


def _shortened_last(residence: Residence, blocks: Repetition) -> int | None:
    """Where a residence that begins outside of the gap ends without it."""
    first, last = residence.steps
    gap = blocks.gap
    if last < gap.start:
        return last
    if last >= gap.stop:
        return last - len(gap)
    crosses_once = blocks.middle <= first and last < gap.start + blocks.period
    return gap.start + (last - gap.start) if crosses_once else None


def _shortened_operand(
    problem: ChoiceProblem, residences: dict[str, Residence], blocks: Repetition, step: int, variant: int, position: int
) -> str | None:
    """The residence of an operand outside of the gap; what came from the gap comes from the middle block. "" where nothing does."""
    name, gap = problem.operands[step][variant][position], blocks.gap
    if name is None or residences[name].steps[0] not in gap:
        return name
    model = step - len(gap)
    if model >= gap.start + blocks.period:
        return ""
    twin = problem.operands[model][variant][position]
    if (
        twin is None
        or residences[twin].steps[1] != residences[name].steps[1] - len(gap)
        or not blocks.middle <= residences[twin].steps[0] < gap.start
    ):
        return ""
    return twin


def _twin_residence(problem: ChoiceProblem, blocks: Repetition, residence: Residence) -> str | None:
    """The residence of the middle block that stands for one of the gap."""
    variants = problem.operands[residence.steps[0]]
    variant = next(number for number, names in enumerate(variants) if residence.name in names)
    return problem.operands[blocks.model(residence.steps[0])][variant][list(variants[variant]).index(residence.name)]


def expand_choice(problem: ChoiceProblem, blocks: Repetition, choice: Choice) -> Choice | None:
    """The choice of the whole problem; None where the copies do not fit after all."""
    gap = blocks.gap
    picks: list[int] = []
    prefetched: list[bool] = []
    for step in range(len(problem.candidates)):
        picks.append(choice.picks[blocks.short(step)])
        prefetched.append(choice.prefetched[blocks.short(step)])
    residences = dict(choice.residences)
    for residence in problem.residences:
        if residence.steps[0] in gap:
            twin = _twin_residence(problem, blocks, residence)
            if twin is None:
                return None
            if twin in choice.residences:
                residences[residence.name] = choice.residences[twin]
    result = replace(choice, picks=tuple(picks), prefetched=tuple(prefetched), residences=residences)
    return replace(result, cycles=evaluate_choice(problem, result)) if choice_fits(problem, result) else None
