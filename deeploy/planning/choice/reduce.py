"""Smaller problems with nearly the same answers, for networks too large to be chosen in one piece; and the answer of any problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.choice.problem import Choice, ChoiceProblem, Most, Residence, Search, Users, obvious_choice

FEW = 2  # candidates per combination of sources


def bundle_constants(residences: Sequence[Residence]) -> list[Residence]:
    """Small constants that have the same uses are fetched, pinned or streamed together."""
    bundles: dict[tuple[tuple[int, int], tuple[int, ...], Users], list[Residence]] = {}
    for residence in residences:
        bundles.setdefault((residence.steps, residence.distances, residence.users), []).append(residence)
    result = []
    for members in bundles.values():
        size, fetch = sum(residence.size for residence in members), sum(residence.fetch or 0 for residence in members)
        result.append(replace(members[0], size=size, fetch=fetch, members=tuple(residence.name for residence in members)))
    return result


def without_harmless(problem: ChoiceProblem) -> ChoiceProblem:
    """The problem without the shares of memories that hold everything that could be chosen at once."""
    tight = {distance for distance in range(len(problem.capacities)) if tight_steps(problem, distance)}
    return replace(problem, shares=[share for share in problem.shares if share.distance in tight])


def tight_steps(problem: ChoiceProblem, distance: int) -> set[int]:
    """The steps in which a memory might not hold everything that could be chosen at once."""
    most, shares = Most(problem), sum(share.size for share in problem.shares if share.distance == distance)
    taken = [shares + most(step, distance) for step in range(len(problem.candidates))]
    for step, candidates in enumerate(problem.candidates):
        taken[step] += max((c.bytes[distance] for c in candidates), default=0)
        prefetchable = max((c.prefetchable_bytes for c in candidates if c.engine_memory == distance and c.prefetchable_cycles), default=0)
        for before in range(problem.start(step), step) if step else ():
            taken[before] += prefetchable
    return {step for step, size in enumerate(taken) if size > problem.capacities[distance]}


def coarsen_problem(problem: ChoiceProblem) -> ChoiceProblem:
    """The problem with a few candidates per call and combination of sources."""
    return replace(problem, candidates=_possible_candidates(problem, problem.residences, FEW))


def settle_residences(problem: ChoiceProblem, choice: Choice) -> ChoiceProblem:
    """The problem with the far residences that were chosen for a coarse one."""
    residences = []
    for residence in problem.residences:
        distance = choice.residences.get(residence.name)
        if distance is None:
            residences.append(residence)
            continue
        residences.append(replace(residence, distances=(distance,) if distance > 1 else tuple(h for h in residence.distances if h < 2)))
    return replace(problem, residences=residences, candidates=_possible_candidates(problem, residences, None))


def restore_choice(choice: Choice, problem: ChoiceProblem, other: ChoiceProblem) -> Choice:
    """A choice of one problem in another one, which has the candidates that were chosen, and more."""
    pairs = zip(problem.chosen(choice.picks), other.candidates, strict=True)
    return replace(choice, picks=tuple(candidates.index(candidate) for candidate, candidates in pairs))


def _possible_candidates(problem: ChoiceProblem, residences: Sequence[Residence], most: int | None) -> list[list[Candidate]]:
    """The candidates that the residences allow; of each combination of sources the ``most`` cheapest and the smallest in a memory."""
    distances = {residence.name: residence.distances for residence in residences}
    result = []
    for candidates, operands in zip(problem.candidates, problem.operands, strict=True):
        candidates_by_key: dict[tuple[int, tuple[int, ...]], list[Candidate]] = {}
        for candidate in candidates:
            names = operands[candidate.variant]
            if all(name is None or distance in distances[name] for name, distance in zip(names, candidate.distances, strict=True)):
                candidates_by_key.setdefault((candidate.variant, candidate.distances), []).append(candidate)
        result.append([c for group in candidates_by_key.values() for c in _few_candidates(group, most)])
    return result


def _few_candidates(group: list[Candidate], most: int | None) -> list[Candidate]:
    if most is None or len(group) <= most + 1:
        return group
    remaining = sorted(group, key=lambda c: c.cycles)[:most]
    for distance in range(len(group[0].bytes)):
        order = [(c.bytes[distance], c.bytes, c.cycles) for c in group]
        smallest = group[order.index(min(order))]
        if smallest not in remaining:
            remaining.append(smallest)
    return remaining


def tighten_capacity(problem: ChoiceProblem, distance: int, needed: int) -> ChoiceProblem:
    """The problem with less of the capacity that could not be packed."""
    capacities = list(problem.capacities)
    capacities[distance] -= max(16, needed - capacities[distance])
    return replace(problem, capacities=capacities)


def cheapest_choice(problem: ChoiceProblem, search: Search, forbidden: Sequence[Choice] = ()) -> Choice | None:
    """The cheapest choice that fits; None where there is none."""
    best = None if forbidden else obvious_choice(problem)
    if best is not None:
        return best
    from deeploy.planning.choice.choose import (
        choose_candidates,  # importing the solver takes a third of a second, which flat machines need not pay
    )

    return choose_candidates(problem, forbidden, search)
