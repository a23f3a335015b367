"""What was chosen where energy counted as cycles (``Machine.price``), in the cycles that are waited for."""

from __future__ import annotations

from dataclasses import replace

from deeploy.planning.choice.problem import Choice, ChoiceProblem, evaluate_choice, least_cycles


def remove_prices(problem: ChoiceProblem, choice: Choice) -> tuple[ChoiceProblem, Choice]:
    """What was chosen from, and what was chosen, in cycles alone where energy counted as well."""
    if not any(candidate.surcharge for row in problem.candidates for candidate in row):
        return problem, choice
    rows = [[replace(one, cycles=one.cycles - one.surcharge, surcharge=0) for one in row] for row in problem.candidates]
    plain = replace(problem, candidates=rows)
    return plain, replace(choice, cycles=evaluate_choice(plain, choice), bound=least_cycles(plain))
