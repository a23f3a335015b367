"""Smaller problems with nearly the same answers, for networks too large to be chosen in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deeploy.midend.candidates import Candidate
from deeploy.midend.problem import Choice, Home, Problem, Users, most

FEW = 2  # candidates per combination of sources


def bundled(homes: Sequence[Home]) -> list[Home]:
    """Small constants that have the same uses are fetched, pinned or streamed together."""
    bundles: dict[tuple[tuple[int, int], tuple[int, ...], Users], list[Home]] = {}
    for home in homes:
        bundles.setdefault((home.steps, home.hops, home.users), []).append(home)
    result = []
    for members in bundles.values():
        size, fetch = sum(home.size for home in members), sum(home.fetch or 0 for home in members)
        result.append(replace(members[0], size=size, fetch=fetch, members=tuple(home.name for home in members)))
    return result


def without_harmless(problem: Problem) -> Problem:
    """The problem without the shares of memories that hold everything that could be chosen at once."""
    tight = set()
    for hop, capacity in enumerate(problem.capacities):
        shares = sum(share.size for share in problem.shares if share.hop == hop)
        for step, candidates in enumerate(problem.candidates):
            if shares + most(problem, step, hop) + max((c.bytes[hop] for c in candidates), default=0) > capacity:
                tight.add(hop)
                break
    return replace(problem, shares=[share for share in problem.shares if share.hop in tight])


def coarse(problem: Problem) -> Problem:
    """The problem with a few candidates per call and combination of sources."""
    return replace(problem, candidates=_possible(problem, problem.homes, FEW))


def settled(problem: Problem, choice: Choice) -> Problem:
    """The problem with the far homes that were chosen for a coarse one."""
    homes = []
    for home in problem.homes:
        hop = choice.homes.get(home.name)
        if hop is None:
            homes.append(home)
            continue
        homes.append(replace(home, hops=(hop,) if hop > 1 else tuple(h for h in home.hops if h < 2)))
    return replace(problem, homes=homes, candidates=_possible(problem, homes, None))


def _possible(problem: Problem, homes: Sequence[Home], most: int | None) -> list[list[Candidate]]:
    """The candidates that the homes allow; of each combination of sources the ``most`` cheapest ones and those smallest in a memory."""
    hops = {home.name: home.hops for home in homes}
    result = []
    for candidates, operands in zip(problem.candidates, problem.operands, strict=True):
        found: dict[tuple[int, tuple[int, ...]], list[Candidate]] = {}
        for candidate in candidates:
            names = operands[candidate.variant]
            if all(name is None or hop in hops[name] for name, hop in zip(names, candidate.hops, strict=True)):
                found.setdefault((candidate.variant, candidate.hops), []).append(candidate)
        result.append([c for group in found.values() for c in _few(group, most)])
    return result


def _few(group: list[Candidate], most: int | None) -> list[Candidate]:
    if most is None or len(group) <= most + 1:
        return group
    kept = sorted(group, key=lambda c: c.cycles)[:most]
    for hop in range(len(group[0].bytes)):
        order = [(c.bytes[hop], c.bytes, c.cycles) for c in group]
        smallest = group[order.index(min(order))]
        if smallest not in kept:
            kept.append(smallest)
    return kept
