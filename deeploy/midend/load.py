"""Bytes that a choice takes of every memory, step by step; addresses come later (``deeploy.midend.place``)."""

from __future__ import annotations

from deeploy.midend.choose import Choice, Problem


def loads(problem: Problem, choice: Choice) -> list[list[int]]:
    """Bytes per memory, by its number, and step: homes, constants that are fetched or kept, windows and scratch."""
    count = len(problem.candidates)
    load = [[0] * count for _ in problem.capacities]
    for home in problem.homes:
        hop = choice.homes.get(home.name)
        if hop is None or (home.fetch is not None and hop != 1):
            continue
        is_kept = home.fetch is not None and home.name not in choice.fetched
        first, last = (0, count - 1) if is_kept else (choice.fetched.get(home.name, home.steps[0]), home.steps[1])
        for step in range(first, last + 1):
            load[hop][step] += home.size
    chosen = problem.chosen(choice.picks)
    for share in problem.shares:
        if any(chosen[step].alternative == way for step, way in share.users):
            load[share.hop] = [taken + share.size for taken in load[share.hop]]
    for step, candidate in enumerate(chosen):
        for hop, size in enumerate(candidate.bytes):
            load[hop][step] += size
        if choice.early[step]:
            for earlier in range(problem.start(step), step):
                load[candidate.own][earlier] += candidate.early_bytes
    return load
