"""The plan that one would write by hand, call by call, as the measure of what planning together gains."""

from __future__ import annotations

from dataclasses import replace

from deeploy.planning.choice.problem import Choice, ChoiceProblem, ConditionalConstant, Residence, choice_fits, evaluate_choice


def choose_greedily(problem: ChoiceProblem) -> Choice | None:
    """The choice in which every call takes the largest tiles that fit; None where that ends in a dead end.

    Of the kernels that fit, on any engine that plans may use, a call is run by the one that is fastest with its largest tile. Nothing
    stays in the engines' own memories between calls and nothing is fetched ahead. A buffer lives in the memory next to it if there is
    room when it comes up, else further out; far constants are fetched whole when they are first used.
    """
    if any(min(residence.distances, default=3) > 2 for residence in problem.residences):
        return None  # it has room in the own memory of an engine alone
    load = [0] * len(problem.candidates)
    residences: dict[str, int] = {}
    shared: set[ConditionalConstant] = set()
    picks: list[int] = []
    for step, candidates in enumerate(problem.candidates):
        _place_residences(problem, step, None, residences, load)
        orders: list[tuple[int, dict[str, int], list[int], set[ConditionalConstant]]] = []
        for variant in range(len(problem.operands[step])):
            there, taken = dict(residences), list(load)
            needed = shared | {share for share in problem.shares if (step, variant) in share.users}
            _place_residences(problem, step, variant, there, taken)
            fitting = _fitting_candidates(problem, step, variant, there, taken, needed)
            if fitting:
                order = {
                    number: (candidates[number].bytes[candidates[number].engine_memory], -candidates[number].cycles) for number in fitting
                }
                orders.append((max(order, key=order.__getitem__), there, taken, needed))
        if not orders:
            return None
        pick, residences, load, shared = min(orders, key=lambda one: candidates[one[0]].cycles)
        picks.append(pick)
    fetched = {
        residence.name: residence.steps[0]
        for residence in problem.residences
        if residence.fetch is not None and residences.get(residence.name) == 1
    }
    choice = Choice(tuple(picks), (False,) * len(picks), residences, fetched, 0, 0)
    return replace(choice, cycles=evaluate_choice(problem, choice)) if choice_fits(problem, choice) else None


def _fitting_candidates(
    problem: ChoiceProblem, step: int, variant: int, placed: dict[str, int], load: list[int], shared: set[ConditionalConstant]
) -> list[int]:
    """The numbers of candidates of a variant with these residences and loads of the memory around the engines' own."""
    room = [
        capacity - sum(share.size for share in shared if share.distance == distance) for distance, capacity in enumerate(problem.capacities)
    ]
    if min(room) < 0:
        return []
    wanted = tuple(1 if name is None else placed[name] for name in problem.operands[step][variant])
    rows = enumerate(problem.candidates[step])
    alike = [(number, c) for number, c in rows if c.variant == variant and c.distances == wanted and max(load) <= room[1]]
    return [number for number, c in alike if c.bytes[c.engine_memory] <= room[c.engine_memory] and c.bytes[1] + load[step] <= room[1]]


def _place_residences(problem: ChoiceProblem, step: int, variant: int | None, placed: dict[str, int], load: list[int]) -> None:
    """Place what comes up with a step, or with one variant of it."""
    for residence in problem.residences:
        is_due = residence.steps[0] == step and not residence.users if variant is None else (step, variant) in residence.users
        if is_due and residence.name not in placed:
            placed[residence.name] = _nearest_memory(residence, load, problem.capacities[1])


def _nearest_memory(residence: Residence, load: list[int], capacity: int) -> int:
    """The nearest memory with room, no engine's own one; its load is added."""
    if residence.origin == 1:
        return 1
    steps = range(residence.steps[0], residence.steps[1] + 1)
    if 1 in residence.distances and all(load[step] + residence.size <= capacity for step in steps):
        for step in steps:
            load[step] += residence.size
        return 1
    return max(distance for distance in residence.distances if distance < 3)
