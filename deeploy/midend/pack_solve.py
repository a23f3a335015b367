"""Packing an instance: which search runs on which part of it, in which order and for how long.

Parts of the schedule between which no block lives are packed apart. In a part that the greedy orders do not solve, blocks that live all
through it are laid on the floor (any packing can be rearranged so) and what remains is packed by the same rules. On what is left over,
beam search and CP-SAT take turns with growing budgets, since each solves at once what the other does not solve in a minute; CP-SAT also
proves that a peak cannot be reached, and so raises the lower bound. When neither settles the goal, the peaks between it and the best
packing are tried, in growing steps and then in halves: the more room, the easier.
"""

from __future__ import annotations

from dataclasses import dataclass

from deeploy.midend import pack_beam, pack_exact
from deeploy.midend.pack_greedy import greedy
from deeploy.midend.pack_instance import Instance, components, restrict


@dataclass(frozen=True)
class Work:
    """What a search costs or may cost: ``states`` of the beam and deterministic ``seconds`` of CP-SAT, the same on any machine."""

    states: int = 0
    seconds: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.states + other.states, self.seconds + other.seconds)

    def __mul__(self, factor: float) -> Work:
        return Work(int(self.states * factor), self.seconds * factor)


# Budgets of one part at effort 1, about a minute when all are spent: about 250 000 states take a second; a deterministic second of CP-SAT
# takes 20 to 100.
ROUNDS = (Work(60_000, 0.01), Work(400_000, 0.02), Work(2_000_000, 0.06), Work(4_000_000, 0.15))
MOST_CELLS = 1 << 21  # blocks by sections of a part that is searched at effort 1: a larger one stays as the greedy orders leave it
NEIGHBOUR = Work(100_000, 0.01)  # of a peak above the goal
NEIGHBOURS = 10  # how many of them may use up their budget


@dataclass(frozen=True)
class Outcome:
    """``offsets`` and a proven lower ``bound`` of the peak, both in units, and the ``work`` it took."""

    offsets: list[int]
    bound: int
    work: Work


def solve(instance: Instance, goal: int, effort: float) -> Outcome:
    """Pack every part of the schedule to a peak of at most ``goal`` units, or as low as the budgets allow.

    The goal is at least the instance's bound.
    """
    offsets = [0] * len(instance.size)
    bound, work = instance.bound, Work()
    for part in components(instance.lo, instance.hi):
        piece = restrict(instance, part)
        found = greedy(piece, goal)
        if piece.peak(found) > goal and len(part) * piece.sections <= MOST_CELLS * effort:
            outcome = _improve(piece, goal, found, effort)
            found, bound, work = outcome.offsets, max(bound, outcome.bound), work + outcome.work
        goal = max(goal, piece.peak(found))  # no part need be lower than another one is
        for block, offset in zip(part, found, strict=True):
            offsets[block] = offset
    return Outcome(offsets, bound, work)


def _improve(piece: Instance, goal: int, found: list[int], effort: float) -> Outcome:
    """Lower the packing ``found`` of one part."""
    throughout = [i for i in range(len(piece.size)) if piece.lo[i] == 0 and piece.hi[i] == piece.sections]
    if throughout and all(pin is None for pin in piece.pinned):
        return _on_the_floor(piece, throughout, goal, found, effort)
    work = Work()
    for stream, budget in enumerate(ROUNDS):
        packed, refuted, spent = _attempt(piece, goal, budget * effort, stream)
        work += spent
        if packed:
            return Outcome(packed, piece.bound, work)
        if refuted:
            return _descend(piece, goal, True, found, effort, work)
    return _descend(piece, goal, False, found, effort, work)


def _on_the_floor(piece: Instance, floor: list[int], goal: int, found: list[int], effort: float) -> Outcome:
    """Lay the blocks ``floor``, which meet all others, below the rest; keep ``found`` if that does not come out lower."""
    rest = sorted(set(range(len(piece.size))) - set(floor))
    offsets = [0] * len(piece.size)
    height = 0
    for block in floor:
        offsets[block] = height
        height += piece.size[block]
    above = solve(restrict(piece, rest), goal - height, effort)
    for block, offset in zip(rest, above.offsets, strict=True):
        offsets[block] = offset + height
    return Outcome(offsets if piece.peak(offsets) < piece.peak(found) else found, above.bound + height, above.work)


def _attempt(piece: Instance, peak: int, budget: Work, stream: int) -> tuple[list[int] | None, bool, Work]:
    """One try of both searches at ``peak``: offsets or None, whether no packing exists, and the work done."""
    states = 0
    if all(pin is None for pin in piece.pinned):
        packed, states = pack_beam.search(piece, peak, budget.states, stream)
        if packed:
            return packed, False, Work(states)
    decision = pack_exact.decide(piece, peak, budget.seconds)
    return decision.offsets, decision.refuted, Work(states, decision.seconds)


def _descend(piece: Instance, missed: int, refuted: bool, found: list[int], effort: float, work: Work) -> Outcome:
    """Lower ``found`` towards the peak ``missed``, which was not reached, or is ``refuted``."""
    bound = missed + 1 if refuted else piece.bound
    step, open_ends = max(1, missed // 128), 0
    peak = piece.peak(found)
    while peak - missed > 1 and open_ends < NEIGHBOURS:
        target = missed + step if missed + step < peak else (missed + peak) // 2
        packed, refuted, spent = _attempt(piece, target, NEIGHBOUR * effort, 0)
        work += spent
        if packed:
            found, peak, step = packed, piece.peak(packed), piece.peak(packed)
        else:
            missed, step = target, 2 * step
            bound, open_ends = (target + 1, open_ends) if refuted else (bound, open_ends + 1)
    return Outcome(found, bound, work)
