"""The plan that one would write by hand, call by call, as the measure of what planning together gains."""

from __future__ import annotations

from dataclasses import replace

from deeploy.midend.problem import Choice, Home, Problem, Share, evaluate, fits


def greedy(problem: Problem) -> Choice | None:
    """The choice in which every call takes the largest tiles that fit; None where that ends in a dead end.

    Calls are run by the first kernel that fits. Nothing stays in the engines' own memories between calls and nothing is fetched
    ahead. A buffer lives in the memory next to it if there is room when it comes up, else further out; far constants are fetched
    whole when they are first used.
    """
    load = [0] * len(problem.candidates)
    homes: dict[str, int] = {}
    shared: set[Share] = set()
    picks: list[int] = []
    for step, candidates in enumerate(problem.candidates):
        _place(problem, step, None, homes, load)
        for variant in range(len(problem.operands[step])):
            there, taken = dict(homes), list(load)
            needed = shared | {share for share in problem.shares if (step, variant) in share.users}
            _place(problem, step, variant, there, taken)
            fitting = _fitting(problem, step, variant, there, taken, needed)
            if fitting:
                homes, load, shared = there, taken, needed
                order = {number: (candidates[number].bytes[candidates[number].own], -candidates[number].cycles) for number in fitting}
                picks.append(max(order, key=order.__getitem__))
                break
        else:
            return None
    fetched = {home.name: home.steps[0] for home in problem.homes if home.fetch is not None and homes.get(home.name) == 1}
    choice = Choice(tuple(picks), (False,) * len(picks), homes, fetched, 0, 0)
    return replace(choice, cycles=evaluate(problem, choice)) if fits(problem, choice) else None


def _fitting(problem: Problem, step: int, variant: int, placed: dict[str, int], load: list[int], shared: set[Share]) -> list[int]:
    """The numbers of candidates of a variant with these homes and loads of the memory around the engines' own."""
    room = [capacity - sum(share.size for share in shared if share.hop == hop) for hop, capacity in enumerate(problem.capacities)]
    wanted = tuple(1 if name is None else placed[name] for name in problem.operands[step][variant])
    rows = enumerate(problem.candidates[step])
    alike = [(number, c) for number, c in rows if c.variant == variant and c.hops == wanted and max(load) <= room[1]]
    return [number for number, c in alike if c.bytes[c.own] <= room[c.own] and c.bytes[1] + load[step] <= room[1]]


def _place(problem: Problem, step: int, variant: int | None, placed: dict[str, int], load: list[int]) -> None:
    """Place what comes up with a step, or with one variant of it."""
    for home in problem.homes:
        is_due = home.steps[0] == step and not home.users if variant is None else (step, variant) in home.users
        if is_due and home.name not in placed:
            placed[home.name] = _nearest(home, load, problem.capacities[1])


def _nearest(home: Home, load: list[int], capacity: int) -> int:
    """The nearest memory with room, no engine's own one; its load is added."""
    if home.origin == 1:
        return 1
    steps = range(home.steps[0], home.steps[1] + 1)
    if 1 in home.hops and all(load[step] + home.size <= capacity for step in steps):
        for step in steps:
            load[step] += home.size
        return 1
    return max(hop for hop in home.hops if hop < 3)
