"""Repeated blocks: chosen once and copied, and what comes out is a choice of the whole problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.candidates.instruction_cache import InstanceCode
from deeploy.planning.choice.choose import choose_candidates
from deeploy.planning.choice.problem import ChoiceProblem, ConditionalConstant, Most, Residence
from deeploy.planning.choice.repeat import Repetition, expand_choice, find_repetition, shorten_problem
from deeploy.planning.tiling.loops import CallTiling
from tests.planning.choice import exhaustive

TILING = CallTiling((), (), None)


def test_the_repetition_that_leaves_out_most_is_found() -> None:
    assert find_repetition("abcabcabcabcx") == Repetition(0, 3, 4)
    assert find_repetition("pqababababababrs") == Repetition(2, 2, 6)
    assert find_repetition("aaaa" + "bcdbcdbcdbcdbcd") == Repetition(4, 3, 5)
    assert find_repetition("abcabcabc") is None
    assert find_repetition("") is None


def test_what_is_left_out() -> None:
    blocks = Repetition(2, 3, 5)
    assert (blocks.middle, blocks.gap) == (5, range(8, 14))
    assert [blocks.model(step) for step in blocks.gap] == [5, 6, 7, 5, 6, 7]


def _candidate(distances: tuple[int, ...], size: int, cycles: int, early: int = 0) -> Candidate:
    return Candidate(TILING, distances, (size, 0), cycles, early, size // 2 if early else 0, cycles // 2, 0, True)


@pytest.mark.parametrize("seed", range(3))
def test_the_most_that_may_be_in_a_memory_is_the_sum_of_what_may_be_there(seed: int) -> None:
    problem = _chain(4, seed)
    pinned = Residence("pinned", 7, (2, 3), (0, 1), origin=1)
    problem = replace(problem, residences=[*problem.residences, pinned])
    most = Most(problem)
    for step in range(len(problem.candidates)):
        for distance in (0, 1):
            there = [r for r in problem.residences if distance in r.distances and (r.steps[0] <= step <= r.steps[1] or r is pinned)]
            there = [r for r in there if distance != r.origin]
            assert most(step, distance) == sum(r.size for r in there)
            elsewhere = problem.residences[:2]
            assert most(step, distance, [r.name for r in elsewhere]) == sum(r.size for r in there if r not in elsewhere)


def _chain(blocks: int, seed: int, capacity: int = 60) -> ChoiceProblem:
    """Blocks of three calls: x -> a -> b -> next x, with a residual from x to the third call."""
    random = np.random.default_rng(seed)
    kinds: list[list[Candidate]] = []
    for operands in (2, 2, 3):
        rows: list[Candidate] = []
        for distances in np.ndindex(*(2,) * operands):
            for _ in range(3):
                cycles = int(random.integers(50, 400)) + 80 * sum(distances)
                rows.append(_candidate(tuple(distances), int(random.integers(4, 30)), cycles, int(random.integers(0, 2)) * 30))
        kinds.append(rows)
    sizes = random.integers(5, 30, 3).tolist()
    candidates, operands_of, residences = [], [], [Residence("x0", sizes[2], (0, 2), (0, 1))]
    for block in range(blocks):
        at = 3 * block
        residences += [Residence(f"a{block}", sizes[0], (at, at + 1), (0, 1)), Residence(f"b{block}", sizes[1], (at + 1, at + 2), (0, 1))]
        residences.append(Residence(f"x{block + 1}", sizes[2], (at + 2, at + 5 if block + 1 < blocks else at + 2), (0, 1)))
        operands_of += [[[f"x{block}", f"a{block}"]], [[f"a{block}", f"b{block}"]], [[f"b{block}", f"x{block}", f"x{block + 1}"]]]
        candidates += kinds
    return ChoiceProblem(candidates, operands_of, residences, (capacity, 500))


@pytest.mark.slow
def test_copies_are_a_choice_of_the_whole_problem_and_mostly_nearly_the_best() -> None:
    losses: list[float] = []
    for seed in range(40):
        problem = _chain(8, seed)
        blocks = find_repetition([step % 3 for step in range(24)])
        assert blocks == Repetition(0, 3, 8)
        short = shorten_problem(problem, blocks)
        assert short is not None and len(short.candidates) == 9 and short.weights == (1,) * 3 + (6,) * 3 + (1,) * 3
        assert short.equal_residences == (("x1", "x2"),)
        first, whole = choose_candidates(short), choose_candidates(problem)
        if whole is None:
            assert first is None
            continue
        if first is None:
            continue
        copied = expand_choice(problem, blocks, first)
        assert copied is not None, "the copies fit side by side"
        fixed = replace(problem, candidates=[[row[pick]] for row, pick in zip(problem.candidates, copied.picks, strict=True)])
        again = choose_candidates(
            replace(fixed, residences=[replace(h, distances=(copied.residences[h.name],)) for h in problem.residences])
        )
        assert again is not None and again.cycles <= copied.cycles, "its cycles are at most what was promised"
        assert whole.cycles <= again.cycles
        losses.append(again.cycles / whole.cycles - 1)
    assert len(losses) >= 20 and np.median(losses) < 0.05, "blocks that would rather differ from each other are the exception"


def test_what_cached_instructions_save_is_counted_for_every_copy() -> None:
    """Calls that run the same kernel as the one before are cheaper; the promise is what the copies take."""
    warm = 0
    for seed in range(12):
        problem, numbers = _chain(8, seed), np.random.default_rng(seed)
        saving = [int(n) for n in numbers.integers(10, 60, 3)]
        kinds = [[*row, *(replace(c, cycles=c.cycles + 20, variant=1) for c in row)] for row in problem.candidates[:3]]
        kinds = [[replace(c, cache_saving=saving[c.variant]) for c in row] for row in kinds]
        problem = replace(
            problem,
            candidates=[kinds[step % 3] for step in range(24)],
            operands=[[names, names] for (names,) in problem.operands],
            codes=[[InstanceCode("abb"[step % 3]), InstanceCode("bcc"[step % 3], step % 3 == 1)] for step in range(24)],
        )
        blocks = Repetition(0, 3, 8)
        short = shorten_problem(problem, blocks)
        assert short is not None
        assert (short.codes, short.cached_weights) == (problem.codes[:9], (1, 1, 1, 1, 6, 6, 6, 1, 1))
        first = choose_candidates(short)
        if first is None:
            continue
        copied = expand_choice(problem, blocks, first)
        assert copied is not None
        rows = [exhaustive.Row(pick, problem.candidates[s][pick], copied.prefetched[s]) for s, pick in enumerate(copied.picks)]
        assert copied.cycles == exhaustive.cycles(problem, {}, rows, [False] * 24)
        warm += sum(exhaustive.cached(problem, rows))
    assert warm > 20


def test_buffers_that_live_across_several_blocks_are_left_alone() -> None:
    problem = _chain(6, 1)
    residences = [*problem.residences, Residence("far", 4, (4, 13), (0, 1))]
    operands = [list(names) for names in problem.operands]
    blocks = Repetition(0, 3, 6)
    assert shorten_problem(replace(problem, residences=residences, operands=operands), blocks) is None
    through = [*problem.residences, Residence("mask", 4, (0, 17), (1,))]
    short = shorten_problem(replace(problem, residences=through), blocks)
    assert short is not None and {h.name: h.steps for h in short.residences}["mask"] == (0, 8)


def test_copies_that_do_not_fit_are_refused() -> None:
    problem = _chain(6, 2)
    blocks = Repetition(0, 3, 6)
    short = shorten_problem(problem, blocks)
    assert short is not None
    first = choose_candidates(short)
    assert first is not None and expand_choice(problem, blocks, first) is not None
    assert expand_choice(replace(problem, capacities=(1, 500)), blocks, first) is None


def test_constants_of_some_ways_are_counted_for_every_block() -> None:
    """Each call may run faster by another kernel, whose constants take memory for ever; there is room for those of some calls."""
    seconds: list[int] = []
    for seed in range(12):
        problem = _chain(8, seed)
        rows = [[*row, *(replace(c, cycles=c.cycles // 2, variant=1) for c in row)] for row in problem.candidates[:3]]
        problem = replace(
            problem,
            candidates=[rows[step % 3] for step in range(24)],
            operands=[[names, names] for (names,) in problem.operands],
            shares=[ConditionalConstant(1, 3 + step % 3, ((step, 1),)) for step in range(24)],
            capacities=(60, 140),
        )
        blocks = Repetition(0, 3, 8)
        short = shorten_problem(problem, blocks)
        assert short is not None
        assert sorted((share.size, share.users) for share in short.shares)[-3:] == [(18, ((3, 1),)), (24, ((4, 1),)), (30, ((5, 1),))]
        first = choose_candidates(short)
        if first is None:
            continue
        copied = expand_choice(problem, blocks, first)
        assert copied is not None, "the copies fit side by side"
        chosen = [row[pick].variant for row, pick in zip(problem.candidates, copied.picks, strict=True)]
        assert sum(3 + step % 3 for step, way in enumerate(chosen) if way) <= 140
        seconds.append(sum(chosen))
    assert len(seconds) >= 6 and min(seconds) < 24 and max(seconds) > 6
