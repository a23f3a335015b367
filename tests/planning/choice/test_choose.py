"""Choose against trying everything, on small random problems: same cycles, same verdict, same smallest capacity."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.candidates.instruction_cache import InstanceCode
from deeploy.planning.choice.choose import choose_candidates, smallest_capacity
from deeploy.planning.choice.dominance import undominated_numbers
from deeploy.planning.choice.problem import Choice, ChoiceProblem, ConditionalConstant, Residence, Search
from deeploy.planning.tiling.loops import CallTiling
from tests.planning.choice import exhaustive

EXACT = Search(gap=0.0)
NO_TILING = CallTiling((), (), None)


def candidate(
    distances: Sequence[int],
    sizes: Sequence[int],
    cycles: int,
    prefetchable_cycles: int = 0,
    prefetchable_bytes: int = 0,
    last_tile_cycles: int = 0,
    far: int = 0,
) -> Candidate:
    figures = (cycles, prefetchable_cycles, prefetchable_bytes, last_tile_cycles, far)
    return Candidate(NO_TILING, tuple(distances), tuple(sizes), *figures, False)


def residences(numbers: random.Random, calls: int, is_far: bool) -> list[Residence]:
    """A chain of activations, each written by one call and read by the next, and constants of some calls."""
    result = []
    for step in range(calls - 1):
        distances = (0, 1, 2) if is_far and numbers.random() < 0.3 else (0, 1)
        result.append(Residence(f"a{step}", numbers.randint(1, 6), (step, step + 1), distances))
    for step in range(calls):
        if is_far and numbers.random() < 0.8:
            last = numbers.choice([step, step, calls - 1])
            distances = (1, 2) if numbers.random() < 0.3 else (1,)
            result.append(Residence(f"w{step}", numbers.randint(3, 8), (step, last), distances, numbers.randint(5, 50), origin=2))
        elif not is_far and numbers.random() < 0.5:
            last = numbers.choice([step, step, calls - 1])
            result.append(Residence(f"w{step}", numbers.randint(3, 8), (step, last), (0, 1), origin=1))
    return result


def random_candidate(numbers: random.Random, distances: tuple[int, ...]) -> Candidate:
    is_far = 2 in distances
    sizes = (numbers.randint(1, 10), numbers.randint(0, 4) if is_far else 0, 0)
    early = numbers.choice([0, 8, 15])
    tail, far = numbers.randint(0, 20), numbers.randint(10, 70) if is_far else 0
    return candidate((*distances, 1), sizes, numbers.randint(20, 60), early, min(sizes[0], 3) if early else 0, tail, far)


def random_problem(seed: int) -> ChoiceProblem:
    """Two or three calls with up to two candidates for every combination of residences; every second problem has far memories."""
    numbers = random.Random(seed)
    calls, is_far = numbers.randint(2, 3), seed % 2 == 0
    every = {residence.name: residence for residence in residences(numbers, calls, is_far)}
    operands: list[list[list[str | None]]] = []
    candidates: list[list[Candidate]] = []
    for step in range(calls):
        names = [h.name for h in every.values() if step in h.steps or (h.origin is not None and h.steps[0] <= step <= h.steps[1])]
        found = []
        for combination in itertools.product(*[every[name].distances for name in names]):
            for _ in range(numbers.randint(1, 2)):
                found.append(random_candidate(numbers, combination))
        operands.append([[*names, None]])
        candidates.append(found)
    return ChoiceProblem(candidates, operands, list(every.values()), [numbers.randint(8, 22), numbers.randint(8, 24), 1000])


@pytest.mark.parametrize("seeds", [range(start, start + 25) for start in range(0, 200, 25)], ids=str)
def test_the_cheapest_choice_is_found(seeds: range) -> None:
    solved = 0
    for seed in seeds:
        solved += check_against_everything(random_problem(seed))
    assert solved > len(seeds) // 2


def with_alternatives(seed: int) -> ChoiceProblem:
    """A random problem whose calls may also run in a second way: with another constant, by an engine with a memory of its own."""
    numbers = random.Random(seed)
    problem = random_problem(seed)
    is_far = seed % 2 == 0
    every = {residence.name: residence for residence in problem.residences if residence.origin is None}
    residences, shares, operands, candidates = list(problem.residences), [], [], []
    for step, row in enumerate(problem.candidates):
        (names,) = problem.operands[step]
        moving = [name for name in names if name in every]
        found = [replace(c, bytes=(*c.bytes, 0)) for c in row]
        own = f"v{step}"
        if is_far:
            residences.append(Residence(own, numbers.randint(3, 8), (step, step), (1,), numbers.randint(5, 50), (), ((step, 1),), 2))
            residences = [replace(h, users=((step, 0),)) if h.name == f"w{step}" and h.steps == (step, step) else h for h in residences]
        else:
            shares += [
                ConditionalConstant(1, numbers.randint(1, 6), ((step, 1),)),
                ConditionalConstant(1, numbers.randint(1, 6), ((step, 0), (0, 0))),
            ]
        level = numbers.choice([0, 3])
        for distances in itertools.product(*[[level, 1] for _ in moving]):
            c = random_candidate(numbers, distances)
            sizes = [0, c.bytes[1], 0, 0]
            sizes[level] = c.bytes[0]
            distances = (*distances, *([1] if is_far else []))
            found.append(replace(c, distances=distances, bytes=tuple(sizes), variant=1, engine_memory=level))
        operands.append([names, [*moving, *([own] if is_far else [])]])
        candidates.append(found)
    residences = [replace(h, distances=(*h.distances, 3)) if h.name in every else h for h in residences]
    return ChoiceProblem(candidates, operands, residences, [*problem.capacities, numbers.randint(4, 20)], shares)


@pytest.mark.share(0.4)
@pytest.mark.parametrize("seeds", [range(start, start + 20) for start in range(0, 160, 20)], ids=str)
def test_the_cheapest_way_to_run_every_call_is_found(seeds: range) -> None:
    solved = second = 0
    for seed in seeds:
        problem = with_alternatives(seed)
        solved += check_against_everything(problem)
        found = choose_candidates(problem, (), EXACT)
        second += found is not None and any(row[pick].variant for row, pick in zip(problem.candidates, found.picks, strict=True))
    assert solved > len(seeds) // 2
    assert second > len(seeds) // 4


def with_codes(seed: int) -> ChoiceProblem:
    """A random problem whose calls run one of few kernels, others mostly by an accelerator, and are cheaper behind the same one."""
    numbers = random.Random(seed)
    problem = with_alternatives(seed) if seed % 3 else random_problem(seed)
    codes = []
    for variants in problem.operands:
        first = InstanceCode(numbers.choice("ab"))
        codes.append([first, InstanceCode("n", True) if numbers.random() < 0.7 else InstanceCode(numbers.choice("ab"))][: len(variants)])
    rows = []
    for row in problem.candidates:
        warm = [numbers.choice([0, 5, 12]) for _ in row]
        row = [
            replace(c, cache_saving=w, last_tile_cache_saving=min(w, c.last_tile_cycles) // numbers.randint(1, 3))
            for c, w in zip(row, warm, strict=True)
        ]
        rows.append([replace(c, prefetchable_issue=numbers.choice([0, 4, 9]) if c.prefetchable_cycles else 0) for c in row])
    return replace(problem, candidates=rows, codes=codes, capacities=[c + numbers.choice([0, 0, 30]) for c in problem.capacities])


@pytest.mark.share(0.25)
@pytest.mark.parametrize("seeds", [range(start, start + 20) for start in range(2000, 2200, 20)], ids=str)
def test_calls_are_cheaper_behind_the_same_instructions(seeds: range) -> None:
    solved = other = 0
    for seed in seeds:
        problem = with_codes(seed)
        solved += check_against_everything(problem)
        found, cold = choose_candidates(problem, (), EXACT), choose_candidates(replace(problem, codes=()), (), EXACT)
        other += found is not None and cold is not None and found.picks != cold.picks
    assert solved > len(seeds) // 2
    assert other, "some choices are others because of it"


def test_an_accelerator_leaves_in_the_caches_what_ran_before() -> None:
    """Three calls: the second on cores or, a little slower, by an accelerator, behind which the third one is cheaper."""
    calls = [
        [candidate((1,), (1, 0, 0), 50)],
        [candidate((1,), (1, 0, 0), 40), replace(candidate((1,), (1, 0, 0), 45), variant=1)],
        [replace(candidate((1,), (1, 0, 0), 50), cache_saving=20, last_tile_cache_saving=20)],
    ]
    variants: list[list[list[str | None]]] = [[[None]], [[None], [None]], [[None]]]
    own, other = InstanceCode("own"), InstanceCode("other")
    for code, expected in ((InstanceCode("n", True), (0, 1, 0)), (other, (0, 0, 0)), (own, (0, 1, 0))):
        found = choose_candidates(ChoiceProblem(calls, variants, [], [10, 10, 10], codes=[[own], [other, code], [own]]), (), EXACT)
        assert found is not None
        assert (found.picks, found.cycles) == (expected, 140 if expected == (0, 0, 0) else 125)


@pytest.mark.parametrize("seed", range(16))
def test_the_smallest_capacity_counts_the_constants_of_the_chosen_way(seed: int) -> None:
    check_smallest(with_alternatives(seed))


def check_against_everything(problem: ChoiceProblem) -> bool:
    """Whether there is a choice; if so, it has the fewest cycles and fits."""
    best = min((cycles for cycles, _ in exhaustive.every(problem)), default=None)
    found = choose_candidates(problem, (), EXACT)
    assert (found.cycles if found is not None else None) == best
    if found is not None:
        assert found.bound == best
        state = {name: (distance, name in found.fetched) for name, distance in found.residences.items()}
        ahead = [any(found.fetched.get(h.name) == step - 1 and h.steps[0] == step for h in problem.residences) for step in range(3)]
        rows = [exhaustive.Row(pick, problem.candidates[step][pick], found.prefetched[step]) for step, pick in enumerate(found.picks)]
        assert exhaustive.cycles(problem, state, rows, ahead) == best
        for used, capacity in zip(exhaustive.loads(problem, state, rows, ahead), problem.capacities, strict=True):
            assert max(used) <= capacity
    return found is not None


@pytest.mark.parametrize("seed", range(20))
def test_the_smallest_capacity_is_the_smallest(seed: int) -> None:
    check_smallest(random_problem(seed))


def check_smallest(problem: ChoiceProblem) -> None:
    for distance in (0, 1):
        needed = smallest_capacity(problem, distance, EXACT)
        others = replace(problem, capacities=[10_000 if i == distance else c for i, c in enumerate(problem.capacities)])
        if needed is None:
            assert choose_candidates(others, (), EXACT) is None
            continue
        exact = [needed if i == distance else c for i, c in enumerate(problem.capacities)]
        assert choose_candidates(replace(problem, capacities=exact), (), EXACT) is not None
        exact[distance] -= 1
        assert choose_candidates(replace(problem, capacities=exact), (), EXACT) is None


def test_a_forbidden_choice_does_not_come_back() -> None:
    """Cut after cut, the choices come in the order of their cycles, each once."""
    residence = Residence("a", 4, (0, 1), (0, 1))
    calls = [[candidate((distance, 1), (2, 0, 0), 10 * step + distance + 3) for distance in (0, 1)] for step in (0, 1)]
    calls[1].append(candidate((1, 1), (1, 0, 0), 50))
    problem = ChoiceProblem(calls, [[["a", None]], [["a", None]]], [residence], [100, 100, 100])
    cuts: list[Choice] = []
    while (choice := choose_candidates(problem, cuts, EXACT)) is not None:
        cuts.append(choice)
    assert [c.cycles for c in cuts] == sorted(cycles for cycles, _ in exhaustive.every(problem)) == [16, 18, 54]


@pytest.mark.parametrize(("before", "expected"), [(100, 100 + 30), (20, 20 + 30 + 10)])
def test_a_constant_is_fetched_beside_the_call_before(before: int, expected: int) -> None:
    """30 cycles of fetching vanish beside 100 cycles of computing; of 30 beside 20, 10 remain. Keeping both does not fit."""
    first, second = Residence("w0", 6, (0, 0), (1,), 0, origin=2), Residence("w1", 5, (1, 1), (1,), 30, origin=2)
    calls = [[candidate((1, 1), (1, 0, 0), before)], [candidate((1, 1), (1, 0, 0), 30)]]
    third = Residence("a", 7, (2, 2), (1,))
    calls.append([candidate((1, 1), (1, 0, 0), 0)])
    problem = ChoiceProblem(calls, [[["w0", None]], [["w1", None]], [["a", None]]], [first, second, third], [10, 11, 100])
    choice = choose_candidates(problem, (), EXACT)
    assert choice is not None
    assert choice.cycles == expected
    assert choice.fetched["w1"] == 0
    tighter = choose_candidates(replace(problem, capacities=[10, 10, 100]), (), EXACT)
    assert tighter is not None and tighter.cycles == before + 30 + 30


def test_early_windows_take_room_in_the_step_before() -> None:
    """The second call's first window is fetched early exactly when it fits beside the first call."""
    calls = [
        [candidate((1,), (6, 0, 0), 10, last_tile_cycles=9)],
        [candidate((1,), (5, 0, 0), 20, prefetchable_cycles=7, prefetchable_bytes=4)],
    ]
    problem = ChoiceProblem(calls, [[[None]], [[None]]], [], [10, 10, 10])
    assert choose_candidates(problem, (), EXACT) == Choice((0, 0), (False, True), {}, {}, 23, 23)
    assert choose_candidates(replace(problem, capacities=[9, 10, 10]), (), EXACT) == Choice((0, 0), (False, False), {}, {}, 30, 30)


@pytest.mark.parametrize(("tail", "expected"), [(0, 30), (3, 27), (7, 23), (8, 23)])
def test_early_windows_hide_behind_the_last_tile_only(tail: int, expected: int) -> None:
    calls = [
        [candidate((1,), (6, 0, 0), 10, last_tile_cycles=tail)],
        [candidate((1,), (5, 0, 0), 20, prefetchable_cycles=7, prefetchable_bytes=4)],
    ]
    choice = choose_candidates(ChoiceProblem(calls, [[[None]], [[None]]], [], [10, 10, 10]), (), EXACT)
    assert choice is not None
    assert choice.cycles == expected


@pytest.mark.parametrize("seeds", [range(start, start + 40) for start in range(1000, 1120, 40)], ids=str)
def test_what_is_dominated_is_not_missed(seeds: range) -> None:
    """Where memory is plenty, many candidates are left out, and the cheapest choice stays."""
    left = there = 0
    for seed in seeds:
        numbers = random.Random(seed)
        problem = with_codes(seed) if seed % 2 else random_problem(seed)
        roomy = [numbers.choice([12, 20, 30, 45, 60]), numbers.choice([12, 20, 30, 60]), 1000, 20]
        problem = replace(problem, capacities=roomy[: len(problem.capacities)])
        kept = undominated_numbers(problem)
        reduced = replace(problem, candidates=[[c[n] for n in row] for c, row in zip(problem.candidates, kept, strict=True)])
        best, rest = (min((cycles for cycles, _ in exhaustive.every(p)), default=None) for p in (problem, reduced))
        assert best == rest
        left, there = left + sum(map(len, kept)), there + sum(map(len, problem.candidates))
    assert left < 0.95 * there
