"""Choose by trying everything: every candidate, residence, early window, and every constant kept, fetched, fetched ahead or streamed.

The rules are written down here once more, from the text of ``deeploy.planning.choice.choose``, without its model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.choice.problem import Choice, ChoiceProblem, Residence

State = dict[str, tuple[int, bool]]  # per residence: distance, and whether its constants are fetched at every inference


@dataclass(frozen=True)
class Row:
    """One variant of a call, given the residences: number, candidate, early or not."""

    number: int
    candidate: Candidate
    is_prefetchable: bool

    @property
    def cycles(self) -> int:
        return self.candidate.cycles - self.is_prefetchable * self.candidate.prefetchable_cycles


def loads(problem: ChoiceProblem, state: State, rows: Sequence[Row], ahead: Sequence[bool]) -> list[list[int]]:
    """Bytes per distance and step."""
    count = len(problem.candidates)
    result = [[0] * count for _ in problem.capacities]
    for share in problem.shares:
        if any(rows[step].candidate.variant == way for step, way in share.users):
            result[share.distance] = [count + share.size for count in result[share.distance]]
    for residence in problem.residences:
        if residence.name not in state:
            continue
        distance, is_fetched = state[residence.name]
        first, last = residence.steps
        if residence.origin is not None:
            if distance == residence.origin:
                continue
            first, last = (first - ahead[first], last) if is_fetched else (0, count - 1)
        for step in range(first, last + 1):
            result[distance][step] += residence.size
    for step, row in enumerate(rows):
        for distance, size in enumerate(row.candidate.bytes):
            result[distance][step] += size
        if row.is_prefetchable:
            result[row.candidate.engine_memory][step - 1] += row.candidate.prefetchable_bytes
    return result


def cycles(problem: ChoiceProblem, state: State, rows: Sequence[Row], ahead: Sequence[bool]) -> int:
    """Of the network: its calls, what early windows are late, and what remains of fetching constants beside the call before."""
    total = sum(row.cycles for row in rows)
    warm = cached(problem, rows)
    for step in range(len(rows)):
        before = rows[step - 1].candidate if step else None
        if warm[step]:
            total -= rows[step].candidate.cache_saving
        if before is not None and warm[step - 1]:
            before = replace(
                before, cycles=before.cycles - before.cache_saving, last_tile_cycles=before.last_tile_cycles - before.last_tile_cache_saving
            )
        if before is not None and rows[step].is_prefetchable:
            candidate = rows[step].candidate
            is_beside = bool(problem.codes) and problem.codes[step - 1][rows[step - 1].candidate.variant].is_accelerated
            begun = candidate.prefetchable_issue if is_beside else 0
            total += max(0, candidate.prefetchable_cycles + begun - before.last_tile_cycles) - begun
        due = (h for h in problem.residences if h.fetch is not None and h.steps[0] == step and h.name in state)
        fetch = sum(h.fetch or 0 for h in due if state[h.name][1])
        hidden = max(0, before.cycles - before.far) if before is not None and ahead[step] else 0
        total += max(0, fetch - hidden)
    return total


def cached(problem: ChoiceProblem, rows: Sequence[Row]) -> list[bool]:
    """Which calls run what the cores ran last; those of an accelerator: what was called last."""
    result: list[bool] = []
    cores = last = None
    for codes, row in zip(problem.codes, rows, strict=False):
        code = codes[row.candidate.variant]
        result.append(code.instance == (last if code.is_accelerated else cores))
        last = code.instance
        cores = cores if code.is_accelerated else code.instance
    return result or [False] * len(rows)


def _states(problem: ChoiceProblem, residences: Sequence[Residence], variants: Sequence[int]) -> Iterator[State]:
    """Where every residence is; those that none of the calls needs, run in these variants, are nowhere."""
    there = [h for h in residences if not h.users or any(variants[step] == way for step, way in h.users)]
    options = [[(distance, False) for distance in h.distances] + [(1, True)] * (h.fetch is not None and 1 in h.distances) for h in there]
    for combination in itertools.product(*options):
        yield {residence.name: option for residence, option in zip(there, combination, strict=True)}


def _rows(problem: ChoiceProblem, step: int, state: State, way: int) -> list[Row]:
    """What a call may do under these residences, run in one way."""
    wanted = problem.operands[step][way]
    is_arriving = any(h.fetch is not None and h.steps[0] == step and state.get(h.name, (0, False))[1] for h in problem.residences)
    result = []
    for number, candidate in enumerate(problem.candidates[step]):
        if candidate.variant == way and all(
            name is None or state[name][0] == distance for name, distance in zip(wanted, candidate.distances, strict=True)
        ):
            result.append(Row(number, candidate, False))
            if step and candidate.prefetchable_cycles and not is_arriving:
                result.append(Row(number, candidate, True))
    return result


def every(problem: ChoiceProblem) -> Iterator[tuple[int, Choice]]:
    """All choices within the capacities, with their cycles."""
    count = len(problem.candidates)
    every_way = itertools.product(*(range(len(names)) for names in problem.operands))
    for variants, state in ((chosen, state) for chosen in every_way for state in _states(problem, problem.residences, chosen)):
        arriving = {h.steps[0] for h in problem.residences if h.fetch is not None and state.get(h.name, (0, False))[1]} - {0}
        options = [_rows(problem, step, state, variants[step]) for step in range(count)]
        for early_fetch in itertools.product(*([False, True] if step in arriving else [False] for step in range(count))):
            for rows in itertools.product(*options):
                used = loads(problem, state, rows, early_fetch)
                if all(size <= capacity for sizes, capacity in zip(used, problem.capacities, strict=True) for size in sizes):
                    yield cycles(problem, state, rows, early_fetch), _choice(problem, state, rows, early_fetch)


def _choice(problem: ChoiceProblem, state: State, rows: Sequence[Row], ahead: Sequence[bool]) -> Choice:
    first = {residence.name: residence.steps[0] for residence in problem.residences}
    return Choice(
        tuple(row.number for row in rows),
        tuple(row.is_prefetchable for row in rows),
        {name: distance for name, (distance, _) in state.items()},
        {name: first[name] - ahead[first[name]] for name, (_, is_fetched) in state.items() if is_fetched},
        cycles(problem, state, rows, ahead),
        0,
    )
