"""Candidates that cannot be part of a cheapest choice, because memory is never what speaks against a better one.

A step is roomy for a candidate when everything that could be alive beside it fits as well: every buffer that may be resident in
the engines' own memory, and the largest windows that the next call could fetch early. Such a candidate replaces any other with
the same residences that takes no fewer cycles, with and without its instructions cached; where these are others, also what later calls
could save behind the one or the other counts. What is left is small where memory is plenty, and everything where it is short.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product, takewhile

from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.choice.problem import ChoiceProblem, Most

Places = frozenset[tuple[str, int]]  # where the operands of a call are


def undominated_numbers(problem: ChoiceProblem) -> list[list[int]]:
    """Per call the numbers of the candidates worth choosing from; sums of bytes decide, not addresses."""
    later_saving, neighbours = _later_savings(problem), _NeighbourLoads(problem)
    return [_CallCandidates(problem, step, later_saving[step], neighbours).undominated() for step in range(len(problem.candidates))]


def _later_savings(problem: ChoiceProblem) -> list[int]:
    """Per step the most cycles that calls behind it could save because of what it runs.

    These are one on cores and one on an accelerator, by cached instructions, and early windows that are started beside an accelerator.
    """
    result, cores = [0] * len(problem.candidates), 0
    for step in reversed(range(1, len(problem.candidates) if problem.codes else 1)):
        rows = [(problem.codes[step][c.variant].is_short, c.cache_saving) for c in problem.candidates[step]]
        own, other = (max((warm for is_short, warm in rows if is_short is kind), default=0) for kind in (False, True))
        cores = max(own, cores) if any(is_short for is_short, _ in rows) else own
        result[step - 1] += cores + other
        result[problem.start(step)] += max((c.prefetchable_issue for c in problem.candidates[step]), default=0)
    return result


class _CallCandidates:
    """The candidates of a call, by where their operands are."""

    def __init__(self, problem: ChoiceProblem, step: int, later_saving: int, neighbours: _NeighbourLoads) -> None:
        self.problem = problem
        self.neighbours = neighbours
        self.step = step
        self.later_saving = later_saving
        self.candidates = problem.candidates[step]
        self.codes = [problem.code(step, candidate) for candidate in self.candidates]
        self.groups: dict[Places, list[int]] = {}
        for number, candidate in enumerate(self.candidates):
            pairs = zip(problem.operands[step][candidate.variant], candidate.distances, strict=True)
            self.groups.setdefault(frozenset((name, distance) for name, distance in pairs if name is not None), []).append(number)
        self.is_awaited = step + 1 in neighbours.fetches
        self.sharing = neighbours.sharing.get(step, set())
        earlier = range(problem.start(step), step) if step else ()
        owns = {c.engine_memory for c in self.candidates}
        self.before = {own: min((problem.capacities[own] - neighbours.most(s, own) for s in earlier), default=0) for own in owns}

    def replaces(self, m: int, n: int) -> bool:
        """Whether choosing one candidate for another costs nothing, given that its bytes fit."""
        a, b, is_equal = self.candidates[m], self.candidates[n], self.codes[m] == self.codes[n]
        if a.variant != b.variant and a.variant in self.sharing:
            return False
        later_saving, before = 0 if is_equal else self.later_saving, self.before[a.engine_memory]
        pairs = zip(a.states, b.states, strict=True) if is_equal else product(a.states, b.states)
        return all(_is_no_slower(a, b, mine, theirs, self.is_awaited, later_saving) for mine, theirs in pairs) and _is_no_larger(
            a, b, before
        )

    def undominated(self) -> list[int]:
        """Numbers of the candidates that no other one replaces."""
        undominated: list[int] = []
        for places, group in self.groups.items():
            elsewhere = {
                own: [name for name, distance in places if distance != own] for own in {self.candidates[n].engine_memory for n in group}
            }
            room = {own: self.problem.capacities[own] - self.neighbours(self.step, names, own) for own, names in elsewhere.items()}
            roomy = [
                n for n in group if self.candidates[n].bytes[self.candidates[n].engine_memory] <= room[self.candidates[n].engine_memory]
            ]
            equals = set(roomy)
            roomy.sort(key=lambda n: self.candidates[n].cycles)  # what replaces most is found first
            for n in group:
                if not any(m != n and self.replaces(m, n) and (m < n or n not in equals or not self.replaces(n, m)) for m in roomy):
                    undominated.append(n)
        return sorted(undominated)


class _NeighbourLoads:
    """What could be there beside a call, and who waits for what."""

    def __init__(self, problem: ChoiceProblem) -> None:
        self.problem = problem
        self.residences = Most(problem)
        self.fetches = {residence.steps[0] for residence in problem.residences if residence.fetch is not None}
        self.sharing: dict[int, set[int]] = {}
        for share in problem.shares:
            for step, variant in share.users:
                self.sharing.setdefault(step, set()).add(variant)

    def __call__(self, step: int, elsewhere: Collection[str], own: int) -> int:
        """The most bytes that could be alive in an engine's own memory beside the windows of a call, without what is ``elsewhere``."""
        following = takewhile(lambda s: self.problem.start(s) <= step, range(step + 1, len(self.problem.candidates)))
        prefetchable = sum(
            max((c.prefetchable_bytes for c in self.problem.candidates[s] if c.engine_memory == own), default=0) for s in following
        )
        return self.residences(step, own, elsewhere) + prefetchable

    def most(self, step: int, distance: int) -> int:
        """The most bytes that could be alive in a memory in a step, without early windows of the next call."""
        return self.residences(step, distance) + max((c.bytes[distance] for c in self.problem.candidates[step]), default=0)


def _is_no_slower(a: Candidate, b: Candidate, mine: tuple[int, int], theirs: tuple[int, int], is_awaited: bool, later_saving: int) -> bool:
    """Whether choosing ``a`` for ``b`` costs no time, where they take such cycles in all and for the last tile.

    Cycles may not grow with or without early windows, nor the time in which the next call's windows hide, nor what the next
    call waits for the far path, nor may later calls lose ``later_saving`` cycles, unless that is gained here.
    """
    (cycles, tail), (other, other_tail) = mine, theirs
    saved = a.prefetchable_cycles - b.prefetchable_cycles
    gained = other - cycles + min(0, saved, saved + a.prefetchable_issue - b.prefetchable_issue)
    lost = later_saving + (max(0, max(0, other - b.far) - max(0, cycles - a.far)) if is_awaited else 0)
    return gained >= lost and tail >= other_tail


def _is_no_larger(a: Candidate, b: Candidate, before: int) -> bool:
    """Whether choosing ``a`` for ``b`` takes no room, given that its bytes fit; ``before`` is what early windows may take."""
    if any(x > y for distance, (x, y) in enumerate(zip(a.bytes, b.bytes, strict=True)) if distance != a.engine_memory):
        return False
    return (
        not a.prefetchable_cycles
        or a.prefetchable_bytes <= before
        or (bool(b.prefetchable_cycles) and a.engine_memory == b.engine_memory and a.prefetchable_bytes <= b.prefetchable_bytes)
    )
