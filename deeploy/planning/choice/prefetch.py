"""Constants from a far memory are fetched as far ahead of their use as they have to, where there is room for them.

Choose counts on one call in which the next one's constants may arrive (``choice.choose``). What it has fetched at every inference
may be fetched earlier: while a block of layers is computed, the weights of the next one arrive. How much room there is, the choice
says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from deeploy.planning.choice.problem import Choice, ChoiceProblem, Residence, evaluate_choice, fetch_groups, free_path_cycles, memory_loads


def prefetch_earlier(problem: ChoiceProblem, choice: Choice) -> Choice:
    """The choice with fetches that begin earlier; the same one where nothing is gained.

    The path to the far memory moves constants in the order in which they are used, in the time in which calls leave it free. Every fetch
    begins as late as all can arrive in time, and not before there is room.
    """
    fetched = fetch_groups(problem, choice)
    if not fetched:
        return choice
    idle = free_path_cycles(problem, choice)
    before = {step: choice.fetched[residences[0].name] for step, residences in fetched.items()}
    wanted = _latest_steps(fetched, idle)
    room = [problem.capacities[1] - load for load in memory_loads(problem, choice)[1]]
    after: dict[int, int] = {}
    earliest = 0
    for step, residences in fetched.items():
        size, begin = sum(residence.size for residence in residences), before[step]
        while begin > max(wanted[step], earliest) and room[begin - 1] >= size and problem.start(begin) < begin:
            begin -= 1
            room[begin] -= size
        after[step] = earliest = begin
    earlier = replace(choice, fetched={residence.name: after[step] for step, residences in fetched.items() for residence in residences})
    gained = evaluate_choice(problem, choice) - evaluate_choice(problem, earlier)
    return replace(earlier, cycles=choice.cycles - gained) if gained > 0 else choice


def _latest_steps(fetched: Mapping[int, Sequence[Residence]], idle: Sequence[int]) -> dict[int, int]:
    """The last step in which the constants of each group may set out so that they, and all behind them, arrive in time."""
    passed = [0]
    for cycles in idle:
        passed.append(passed[-1] + cycles)
    latest: dict[int, int] = {}
    limit = passed[-1]
    for step, residences in reversed(list(fetched.items())):
        limit = min(limit, passed[step]) - sum(residence.fetch or 0 for residence in residences)
        latest[step] = max((s for s in range(step + 1) if passed[s] <= limit), default=0)
    return latest
