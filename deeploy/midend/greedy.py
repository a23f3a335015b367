"""The plan that one would write by hand, call by call, as the measure of what planning together gains."""

from __future__ import annotations

from deeploy.midend.choose import Home, Problem


def greedy_cycles(problem: Problem) -> int | None:
    """Predicted cycles when every call takes the largest tiles that fit; None where that ends in a dead end.

    Nothing stays in the engines' own memory between calls and nothing is fetched ahead. A buffer lives in the memory next to
    it if there is room when it comes up, else further out; far constants are fetched whole when they are first used.
    """
    capacity = problem.capacities
    load = [0] * len(problem.candidates)
    placed: dict[str, int] = {}
    total = 0
    for step, (candidates, operands) in enumerate(zip(problem.candidates, problem.operands, strict=True)):
        for home in problem.homes:
            if home.steps[0] == step:
                placed[home.name] = _place(home, load, capacity[1])
                total += (home.fetch or 0) if placed[home.name] == 1 else 0
        wanted = tuple(1 if name is None else placed[name] for name in operands)
        fitting = [c for c in candidates if c.hops == wanted and c.bytes[0] <= capacity[0] and c.bytes[1] + load[step] <= capacity[1]]
        if not fitting:
            return None
        total += max(fitting, key=lambda c: (c.bytes[0], -c.cycles)).cycles
    return total


def _place(home: Home, load: list[int], capacity: int) -> int:
    """The nearest hop with room, not the engines' own memory; its load is added."""
    steps = range(home.steps[0], home.steps[1] + 1)
    if 1 in home.hops and all(load[step] + home.size <= capacity for step in steps):
        for step in steps:
            load[step] += home.size
        return 1
    return max(home.hops)
