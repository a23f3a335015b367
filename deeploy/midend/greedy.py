"""The plan that one would write by hand, call by call, as the measure of what planning together gains."""

from __future__ import annotations

from deeploy.midend.cached import saved
from deeploy.midend.candidates import Candidate
from deeploy.midend.problem import Home, Problem, Share


def greedy_cycles(problem: Problem) -> int | None:
    """Predicted cycles when every call takes the largest tiles that fit; None where that ends in a dead end.

    Calls are run by the first kernel that fits. Nothing stays in the engines' own memories between calls and nothing is fetched
    ahead. A buffer lives in the memory next to it if there is room when it comes up, else further out; far constants are fetched
    whole when they are first used.
    """
    load = [0] * len(problem.candidates)
    placed: dict[str, int] = {}
    shared: set[Share] = set()
    total, chosen = 0, list[Candidate]()
    for step in range(len(problem.candidates)):
        total += _place(problem, step, None, placed, load)
        for variant in range(len(problem.operands[step])):
            there, taken = dict(placed), list(load)
            needed = shared | {share for share in problem.shares if (step, variant) in share.users}
            fetched = _place(problem, step, variant, there, taken)
            fitting = _fitting(problem, step, variant, there, taken, needed)
            if fitting:
                placed, load, shared = there, taken, needed
                total += fetched
                chosen.append(max(fitting, key=lambda c: (c.bytes[c.own], -c.cycles)))
                break
        else:
            return None
    return total + sum(c.cycles for c in chosen) - sum(saved(problem.executed(chosen), chosen))


def _fitting(problem: Problem, step: int, variant: int, placed: dict[str, int], load: list[int], shared: set[Share]) -> list[Candidate]:
    """The candidates of a variant with these homes and loads of the memory around the engines' own."""
    room = [capacity - sum(share.size for share in shared if share.hop == hop) for hop, capacity in enumerate(problem.capacities)]
    wanted = tuple(1 if name is None else placed[name] for name in problem.operands[step][variant])
    alike = (c for c in problem.candidates[step] if c.variant == variant and c.hops == wanted and max(load) <= room[1])
    return [c for c in alike if c.bytes[c.own] <= room[c.own] and c.bytes[1] + load[step] <= room[1]]


def _place(problem: Problem, step: int, variant: int | None, placed: dict[str, int], load: list[int]) -> int:
    """Place what comes up with a step, or with one variant of it; returns cycles of fetching."""
    fetched = 0
    for home in problem.homes:
        is_due = home.steps[0] == step and not home.users if variant is None else (step, variant) in home.users
        if is_due and home.name not in placed:
            placed[home.name] = _nearest(home, load, problem.capacities[1])
            fetched += (home.fetch or 0) if placed[home.name] == 1 else 0
    return fetched


def _nearest(home: Home, load: list[int], capacity: int) -> int:
    """The nearest memory with room, no engine's own one; its load is added."""
    steps = range(home.steps[0], home.steps[1] + 1)
    if 1 in home.hops and all(load[step] + home.size <= capacity for step in steps):
        for step in steps:
            load[step] += home.size
        return 1
    return max(hop for hop in home.hops if hop < 3)
