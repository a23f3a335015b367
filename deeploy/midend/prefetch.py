"""Constants from a far memory set out as far ahead of their use as they have to, where there is room for them.

Choose counts on one call in which the next one's constants may arrive (``deeploy.midend.choose``). What it has fetched at every inference
may set out earlier: while a block of layers is computed with, the weights of the next one arrive. How much room there is, the choice says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from deeploy.midend.cached import saved
from deeploy.midend.choose import Choice, Home, Problem
from deeploy.midend.load import loads

Groups = Mapping[int, Sequence[Home]]  # what is fetched, by the step that first uses it


def prefetched(problem: Problem, choice: Choice) -> Choice:
    """The choice with fetches that begin earlier; the same one where nothing is gained.

    The path to the far memory moves constants in the order in which they are used, in the time in which calls leave it free. Every fetch
    begins as late as all can arrive in time, and not before there is room.
    """
    groups: dict[int, list[Home]] = {}
    for home in sorted(problem.homes, key=lambda home: home.steps[0]):
        if home.name in choice.fetched:
            groups.setdefault(home.steps[0], []).append(home)
    if not groups:
        return choice
    chosen = problem.chosen(choice.picks)
    warm = saved(problem.executed(chosen), chosen)
    free = [max(0, c.cycles - less - c.far) for c, less in zip(chosen, warm, strict=True)]
    before = {step: choice.fetched[homes[0].name] for step, homes in groups.items()}
    wanted = _latest(groups, free)
    room = [problem.capacities[1] - load for load in loads(problem, choice)[1]]
    after: dict[int, int] = {}
    earliest = 0
    for step, homes in groups.items():
        size, begin = sum(home.size for home in homes), before[step]
        while begin > max(wanted[step], earliest) and room[begin - 1] >= size:
            begin -= 1
            room[begin] -= size
        after[step] = earliest = begin
    gained = _waits(groups, free, before) - _waits(groups, free, after)
    if gained <= 0:
        return choice
    fetched = {home.name: after[step] for step, homes in groups.items() for home in homes}
    return replace(choice, fetched=fetched, cycles=choice.cycles - gained)


def _latest(groups: Groups, free: Sequence[int]) -> dict[int, int]:
    """The last step in which the constants of each group may set out so that they, and all behind them, arrive in time."""
    passed = [0]
    for cycles in free:
        passed.append(passed[-1] + cycles)
    found: dict[int, int] = {}
    limit = passed[-1]
    for step, homes in reversed(list(groups.items())):
        limit = min(limit, passed[step]) - sum(home.fetch or 0 for home in homes)
        found[step] = max((s for s in range(step + 1) if passed[s] <= limit), default=0)
    return found


def _waits(groups: Groups, free: Sequence[int], begins: Mapping[int, int]) -> int:
    """Cycles that calls wait for constants that set out in these steps."""
    now = path = waited = 0
    arrives: dict[int, int] = {}
    for step, cycles in enumerate(free):
        for use, homes in groups.items():
            if begins[use] == step:
                path = arrives[use] = max(path, now) + sum(home.fetch or 0 for home in homes)
        if step in groups:
            wait = max(0, arrives[step] - now)
            now, waited = now + wait, waited + wait
        now += cycles
    return waited
