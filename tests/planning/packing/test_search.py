"""The searches behind the static allocator: what they find is a packing, what they refute has none, and nothing but the instance counts."""

from __future__ import annotations

import csv
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeploy.planning.packing import search as pack_search
from deeploy.planning.packing.addresses import Block, pack_blocks
from deeploy.planning.packing.search import Rectangles, make_rectangles, search_packing


def instance(blocks: Sequence[tuple[int, int, int]]) -> Rectangles:
    """The instance of blocks ``(first, last, size)``."""
    return make_rectangles(*np.array(blocks, np.int64).T)


def conflicts(problem: Rectangles) -> list[list[int]]:
    """For every block, those that live at the same time."""
    ranges = list(zip(problem.first.tolist(), problem.end.tolist(), strict=True))
    return [[j for j, (lo, hi) in enumerate(ranges) if j != i and lo < end and first < hi] for i, (first, end) in enumerate(ranges)]


def is_packing(problem: Rectangles, found: Sequence[int] | pack_search.Ints) -> bool:
    """Whether no two blocks that meet share an address, and none lies below 0."""
    offsets, size = [int(offset) for offset in found], problem.size.tolist()
    pairs = ((i, j) for i, others in enumerate(conflicts(problem)) for j in others)
    apart = (offsets[i] + size[i] <= offsets[j] or offsets[j] + size[j] <= offsets[i] for i, j in pairs)
    return len(offsets) == len(size) and min(offsets, default=0) >= 0 and all(apart)


def smallest_peak(problem: Rectangles) -> int:
    """Exhaustive: every order in which offsets never fall, each block on top of the earlier ones it meets."""
    meeting, size = conflicts(problem), problem.size.tolist()
    best = sum(size)

    def extend(tops: dict[int, int], floor: int) -> None:
        nonlocal best
        if len(tops) == len(size):
            best = min(best, max(tops.values(), default=0))
        for block in set(range(len(size))) - set(tops):
            offset = max((tops[other] for other in meeting[block] if other in tops), default=0)
            if offset >= floor and offset + size[block] < best:
                extend({**tops, block: offset + size[block]}, offset)

    extend({}, 0)
    return best


def sliced(width: int, height: int, count: int, seed: int) -> Rectangles:
    """A packing without any waste, cut from one rectangle by ``count - 1`` straight cuts, with its offsets forgotten."""
    rng = random.Random(seed)
    pieces = [(0, width, 0, height)]
    while len(pieces) < count:
        lo, hi, bottom, top = pieces.pop(rng.randrange(len(pieces)))
        if rng.random() < 0.5 and hi - lo > 1:
            cut = rng.randrange(lo + 1, hi)
            pieces += [(lo, cut, bottom, top), (cut, hi, bottom, top)]
        elif top - bottom > 1:
            cut = rng.randrange(bottom + 1, top)
            pieces += [(lo, hi, bottom, cut), (lo, hi, cut, top)]
        else:
            pieces.append((lo, hi, bottom, top))
    return instance(sorted((lo, hi - 1, top - bottom) for lo, hi, bottom, top in pieces))


AWKWARD = ((0, 0, 3), (0, 1, 3), (1, 2, 2), (1, 3, 2), (2, 3, 1), (2, 4, 1), (3, 4, 3), (4, 4, 3))  # load 7, smallest peak 8

awkward = st.tuples(*(st.integers(max(1, size - 1), size + 1) for _, _, size in AWKWARD)).map(
    lambda sizes: instance([(first, last, size) for (first, last, _), size in zip(AWKWARD, sizes, strict=True)])
)
small = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(1, 6)).map(lambda t: (t[0], t[0] + t[1], t[2])), min_size=1, max_size=6
).map(instance)


@settings(deadline=None, max_examples=100)
@given(small | awkward, st.booleans())
def test_greedy_orders_pack(problem: Rectangles, are_equal: bool) -> None:
    """Blocks of equal sizes in as little as there can be."""
    problem = replace(problem, size=np.full_like(problem.size, 3)) if are_equal else problem
    offsets, bound, work = search_packing(problem, problem.bound, 0)
    assert is_packing(problem, offsets)
    assert (bound, work) == (problem.bound, 0)
    assert problem.peak(offsets) == problem.bound if are_equal else problem.peak(offsets) >= problem.bound


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(small | awkward)
def test_a_peak_is_reached_or_refuted_exactly_where_brute_force_says(problem: Rectangles) -> None:
    lowest = smallest_peak(problem)
    reached, _, _ = pack_search._decide_peak(problem, lowest, 1.0)
    assert reached is not None
    assert is_packing(problem, reached)
    assert problem.peak(reached) <= lowest
    if lowest > problem.bound:
        assert pack_search._decide_peak(problem, lowest - 1, 1.0)[:2] == (None, True)
    offsets, bound, _ = search_packing(problem, problem.bound, 1.0)
    assert (problem.peak(offsets), bound) == (lowest, lowest)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(small | awkward, st.integers(0, 4), st.sampled_from([0.0, 0.0001, 1.0]))
def test_a_lower_bound_is_never_above_the_smallest_peak(problem: Rectangles, spare: int, effort: float) -> None:
    offsets, bound, _ = search_packing(problem, problem.bound + spare, effort)
    assert is_packing(problem, offsets)
    assert problem.bound <= bound <= smallest_peak(problem) <= problem.peak(offsets)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(small | awkward, st.integers(0, 3), st.integers(0, 7))
def test_what_the_beam_finds_is_a_packing_within_the_goal(problem: Rectangles, spare: int, seed: int) -> None:
    offsets, states = pack_search._beam_search(problem, problem.bound + spare, 2000, itertools.count(seed))
    assert states > 0
    if offsets is not None:
        assert is_packing(problem, offsets)
        assert smallest_peak(problem) <= problem.peak(offsets) <= problem.bound + spare


@pytest.mark.parametrize("seed", range(12))
def test_the_beam_restores_packings_without_waste(seed: int) -> None:
    problem = sliced(60, 1000, 40, seed)
    offsets, _ = pack_search._beam_search(problem, 1000, 400_000, itertools.count())
    assert offsets is not None
    assert is_packing(problem, offsets)
    assert problem.peak(offsets) == problem.bound == 1000


def test_a_budget_ends_the_beam_and_a_larger_one_restarts_it() -> None:
    problem = sliced(200, 1000, 300, 2)
    offsets, once = pack_search._beam_search(problem, 1000, 1, itertools.count())
    assert offsets is None
    assert 0 < once < pack_search.WIDTH * 2 * len(problem.size)
    offsets, often = pack_search._beam_search(problem, 1000, 40 * once, itertools.count())
    assert offsets is not None
    assert is_packing(problem, offsets)
    assert once < often < 40 * once


def test_what_does_not_fit_is_refuted() -> None:
    problem = instance(AWKWARD)
    assert (problem.bound, smallest_peak(problem)) == (7, 8)
    assert pack_search._beam_search(problem, 7, 10**9, itertools.count())[0] is None
    assert pack_search._decide_peak(problem, 7, 1.0)[:2] == (None, True)
    offsets, bound, _ = search_packing(problem, 7, 1.0)
    assert (problem.peak(offsets), bound) == (8, 8)


def test_blocks_that_live_throughout_lie_on_the_floor() -> None:
    above = sliced(40, 1000, 30, 37)
    assert above.peak(search_packing(above, 1000, 0)[0]) > 1000
    table = np.stack((above.first, above.end - 1, above.size), axis=1)
    problem = instance([(0, above.columns - 1, 17), (0, above.columns - 1, 5), *map(tuple, table.tolist())])
    offsets, bound, _ = search_packing(problem, 1022, 1.0)
    assert problem.peak(offsets) == bound == 1022
    assert offsets[:2].max() < 22
    assert offsets[2:].min() == 22
    assert is_packing(above, offsets[2:] - 22)


def test_deeply_nested_lifetimes_are_packed() -> None:
    """Each block lives through all that begin after it: floors on floors, more of them than functions may call themselves."""
    problem = instance([(step, 4000 - step, 1 + step % 7) for step in range(1200)])
    offsets, bound, work = search_packing(problem, problem.bound, 1.0)
    assert (problem.peak(offsets), work) == (bound, 0)
    assert sorted(zip(offsets.tolist(), problem.size.tolist(), strict=True))[-1][0] == bound - problem.size[offsets.argmax()]


def test_a_part_of_the_schedule_is_not_searched_below_another_ones_peak() -> None:
    again = [(first + 5, last + 5, size) for first, last, size in AWKWARD]
    once, twice = search_packing(instance(AWKWARD), 7, 1.0), search_packing(instance([*AWKWARD, *again]), 7, 1.0)
    assert once[2] > 0
    assert twice[1:] == (8, once[2])
    assert problem_peak(again, twice[0][8:]) == 8


def problem_peak(blocks: Sequence[tuple[int, int, int]], offsets: pack_search.Ints) -> int:
    problem = instance(blocks)
    assert is_packing(problem, offsets)
    return problem.peak(offsets)


def read(path: Path) -> list[Block]:
    with path.open() as file:
        return [Block((row["id"],), int(row["lower"]), int(row["upper"]) - 1, int(row["size"])) for row in csv.DictReader(file)]


@pytest.mark.share(0.4)
@pytest.mark.parametrize("letter", ["A", "C", "E", "G", "I", "K"])
def test_benchmarks_go_into_their_capacity(letter: str, shared_models: Path) -> None:
    blocks = read(shared_models / "allocation" / f"{letter}.1048576.csv")
    packing = pack_blocks(blocks, capacity=1_048_576)
    for (a, at), (b, bt) in itertools.combinations(zip(blocks, packing.offsets, strict=True), 2):
        if a.first <= b.last and b.first <= a.last:
            assert at + a.size <= bt or bt + b.size <= at
    assert min(packing.offsets) == 0
    assert max(at + block.size for block, at in zip(blocks, packing.offsets, strict=True)) == packing.peak <= 1_048_576


def test_a_capacity_out_of_reach_is_refuted(shared_models: Path) -> None:
    packing = pack_blocks(read(shared_models / "allocation" / "E.1048576.csv"), capacity=1_048_575)
    assert packing.peak == packing.lower_bound == 1_048_576


SCRIPT = """
import json, random, sys
from deeploy.planning.packing.addresses import Block, pack_blocks
rng = random.Random(5)
blocks = [Block((f"b{i}",), first, first + rng.randrange(9), rng.randrange(1, 99)) for i in range(90) for first in [rng.randrange(30)]]
random.Random(int(sys.argv[1])).shuffle(blocks)
packing = pack_blocks(blocks, effort=0.2)
offsets = sorted((block.buffers, offset) for block, offset in zip(blocks, packing.offsets))
print(json.dumps([offsets, packing.peak, packing.lower_bound, packing.work]))
"""


def test_equal_on_any_number_of_cores_and_in_any_process() -> None:
    printed = set()
    for seed in ("0", "1"):
        environment = {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": str(1 + int(seed)), "PYTHONPATH": str(Path(__file__).parents[3])}
        printed.add(
            subprocess.run([sys.executable, "-c", SCRIPT, seed], env=environment, capture_output=True, text=True, check=True).stdout
        )
    assert len(printed) == 1
    assert json.loads(printed.pop())[3] > 0
