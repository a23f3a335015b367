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

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeploy.midend import pack_beam, pack_exact
from deeploy.midend.pack import Block, PackError, pack
from deeploy.midend.pack_greedy import greedy
from deeploy.midend.pack_instance import Instance, sections
from deeploy.midend.pack_solve import Work, solve


def instance(blocks: Sequence[tuple[int, int, int]]) -> Instance:
    """The instance of blocks ``(first, last, size)``."""
    everything = tuple(None for _ in blocks)
    ranges = sections([(first, last) for first, last, _ in blocks])
    return Instance(tuple(lo for lo, _ in ranges), tuple(hi for _, hi in ranges), tuple(size for _, _, size in blocks), everything)


def is_packing(problem: Instance, offsets: Sequence[int]) -> bool:
    """Whether no two blocks that meet share an address, and none lies below 0."""
    pairs = ((i, j) for i, others in enumerate(problem.conflicts()) for j in others)
    apart = (offsets[i] + problem.size[i] <= offsets[j] or offsets[j] + problem.size[j] <= offsets[i] for i, j in pairs)
    return len(offsets) == len(problem.size) and min(offsets, default=0) >= 0 and all(apart)


def smallest_peak(problem: Instance) -> int:
    """Exhaustive: every order in which offsets never fall, each block on top of the earlier ones it meets."""
    conflicts = problem.conflicts()
    best = sum(problem.size)

    def extend(tops: dict[int, int], floor: int) -> None:
        nonlocal best
        if len(tops) == len(problem.size):
            best = min(best, max(tops.values(), default=0))
        for block in set(range(len(problem.size))) - set(tops):
            offset = max((tops[other] for other in conflicts[block] if other in tops), default=0)
            if offset >= floor and offset + problem.size[block] < best:
                extend({**tops, block: offset + problem.size[block]}, offset)

    extend({}, 0)
    return best


def sliced(width: int, height: int, count: int, seed: int) -> Instance:
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
def test_what_knows_holes_instead_of_neighbours_packs_as_well(problem: Instance, are_equal: bool) -> None:
    """Blocks of equal sizes in as little as there can be."""
    problem = replace(problem, size=(3,) * len(problem.size)) if are_equal else problem
    assert problem.pairs == sum(map(len, problem.conflicts())) // 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deeploy.midend.pack_greedy.MOST_PAIRS", -1)
        offsets = greedy(problem, problem.bound)
    assert is_packing(problem, offsets)
    assert problem.peak(offsets) == problem.bound if are_equal else problem.peak(offsets) >= problem.bound


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(small | awkward)
def test_a_peak_is_reached_or_refuted_exactly_where_brute_force_says(problem: Instance) -> None:
    lowest = smallest_peak(problem)
    reached = pack_exact.decide(problem, lowest, 1.0)
    assert reached.offsets is not None
    assert is_packing(problem, reached.offsets)
    assert problem.peak(reached.offsets) <= lowest
    if lowest > problem.bound:
        assert pack_exact.decide(problem, lowest - 1, 1.0).refuted
    outcome = solve(problem, problem.bound, 1.0)
    assert (problem.peak(outcome.offsets), outcome.bound) == (lowest, lowest)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(small | awkward, st.integers(0, 4), st.sampled_from([0.0, 0.0001, 1.0]))
def test_a_lower_bound_is_never_above_the_smallest_peak(problem: Instance, spare: int, effort: float) -> None:
    outcome = solve(problem, problem.bound + spare, effort)
    assert is_packing(problem, outcome.offsets)
    assert problem.bound <= outcome.bound <= smallest_peak(problem) <= problem.peak(outcome.offsets)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(small | awkward, st.integers(0, 3), st.integers(0, pack_beam.STREAMS - 1))
def test_what_the_beam_finds_is_a_packing_within_the_goal(problem: Instance, spare: int, stream: int) -> None:
    offsets, states = pack_beam.search(problem, problem.bound + spare, 2000, stream)
    assert states > 0
    if offsets is not None:
        assert is_packing(problem, offsets)
        assert smallest_peak(problem) <= problem.peak(offsets) <= problem.bound + spare


@pytest.mark.parametrize("seed", range(12))
def test_the_beam_restores_packings_without_waste(seed: int) -> None:
    problem = sliced(60, 1000, 40, seed)
    offsets, _ = pack_beam.search(problem, 1000, 400_000, 0)
    assert offsets is not None
    assert is_packing(problem, offsets)
    assert problem.peak(offsets) == problem.bound == 1000


def test_a_budget_ends_the_beam_and_a_larger_one_restarts_it() -> None:
    problem = sliced(200, 1000, 200, 5)
    offsets, once = pack_beam.search(problem, 1000, 1, 0)
    assert offsets is None
    assert 0 < once < pack_beam.WIDTH * 2 * len(problem.size)
    offsets, often = pack_beam.search(problem, 1000, 40 * once, 0)
    assert offsets is not None
    assert is_packing(problem, offsets)
    assert once < often < 40 * once


def test_what_does_not_fit_is_refuted() -> None:
    problem = instance(AWKWARD)
    assert (problem.bound, smallest_peak(problem)) == (7, 8)
    assert pack_beam.search(problem, 7, 10**9, 0)[0] is None
    assert pack_exact.decide(problem, 7, 1.0).refuted
    outcome = solve(problem, 7, 1.0)
    assert (problem.peak(outcome.offsets), outcome.bound) == (8, 8)


def test_blocks_that_live_throughout_lie_on_the_floor() -> None:
    above = sliced(40, 1000, 30, 5)
    assert above.peak(greedy(above, 1000)) > 1000
    outcome = solve(
        Instance((0, 0, *above.lo), (above.sections, above.sections, *above.hi), (17, 5, *above.size), (None, None, *above.pinned)),
        1022,
        1.0,
    )
    assert max(outcome.offsets[:2]) < 22
    assert min(outcome.offsets[2:]) == 22
    assert is_packing(above, [offset - 22 for offset in outcome.offsets[2:]])


def test_a_part_of_the_schedule_is_not_searched_below_another_ones_peak() -> None:
    again = [(first + 5, last + 5, size) for first, last, size in AWKWARD]
    once, twice = solve(instance(AWKWARD), 7, 1.0), solve(instance([*AWKWARD, *again]), 7, 1.0)
    assert once.work != Work()
    assert twice.work == once.work
    assert twice.bound == 8
    assert greedy(instance(AWKWARD), 7) == twice.offsets[8:]


def test_work_adds_up_and_scales() -> None:
    assert Work(3, 0.5) + Work(4, 0.25) == Work(7, 0.75)
    assert Work(10, 0.5) * 0.25 == Work(2, 0.125)


def read(path: Path) -> list[Block]:
    with path.open() as file:
        return [Block(row["id"], int(row["lower"]), int(row["upper"]) - 1, int(row["size"])) for row in csv.DictReader(file)]


@pytest.mark.parametrize("letter", ["A", "C", "E", "G", "I", "K"])
def test_benchmarks_go_into_their_capacity(letter: str, shared_models: Path) -> None:
    blocks = read(shared_models / "allocation" / f"{letter}.1048576.csv")
    packing = pack(blocks, capacity=1_048_576)
    for a, b in itertools.combinations(blocks, 2):
        if a.first <= b.last and b.first <= a.last:
            at, bt = packing.offsets[a.name], packing.offsets[b.name]
            assert at + a.size <= bt or bt + b.size <= at
    assert min(packing.offsets.values()) == 0
    assert max(packing.offsets[block.name] + block.size for block in blocks) == packing.peak <= 1_048_576


def test_a_capacity_out_of_reach_names_one_that_does(shared_models: Path) -> None:
    blocks = read(shared_models / "allocation" / "E.1048576.csv")
    with pytest.raises(PackError) as caught:
        pack(blocks, capacity=1_048_575)
    assert caught.value.needed == 1_048_576
    assert caught.value.proven


SCRIPT = """
import json, random, sys
from deeploy.midend.pack import Block, pack
rng = random.Random(5)
blocks = [Block(f"b{i}", first, first + rng.randrange(9), rng.randrange(1, 99)) for i in range(60) for first in [rng.randrange(30)]]
rng = random.Random(int(sys.argv[1]))
rng.shuffle(blocks)
packing = pack(blocks, effort=0.2)
print(json.dumps([dict(packing.offsets), packing.peak, packing.lower_bound, packing.work.states, packing.work.seconds]))
"""


def test_equal_on_any_number_of_cores_and_in_any_process() -> None:
    printed = set()
    for seed in ("0", "1"):
        environment = {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": str(1 + int(seed)), "PYTHONPATH": str(Path(__file__).parents[2])}
        printed.add(
            subprocess.run([sys.executable, "-c", SCRIPT, seed], env=environment, capture_output=True, text=True, check=True).stdout
        )
    assert len(printed) == 1
    assert json.loads(printed.pop())[3] > 0
