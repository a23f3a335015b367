"""Laws of the static allocator, and its optimality against exhaustive search."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeploy.planning.packing.addresses import Block, Overfull, Packing, check_placements, pack_blocks, place_wanted
from deeploy.target import load


def block(name: str, first: int, last: int, size: int) -> Block:
    return Block((name,), first, last, size)


def overlap(a: Block, b: Block) -> bool:
    return a.first <= b.last and b.first <= a.last


def check(blocks: Sequence[Block], packing: Packing, alignment: int = 1) -> None:
    """Every law a packing obeys."""
    offsets = dict(zip(blocks, packing.offsets, strict=True))
    solid = [block for block in blocks if block.size]
    for a, b in itertools.combinations(solid, 2):
        if overlap(a, b):
            assert offsets[a] + a.size <= offsets[b] or offsets[b] + b.size <= offsets[a], (a, b)
    for one in blocks:
        assert offsets[one] % alignment == 0
        assert offsets[one] >= 0
    ends = [offsets[block] + -(-block.size // alignment) * alignment for block in solid]
    assert packing.peak == max(ends, default=0)
    loads = [sum(-(-b.size // alignment) * alignment for b in solid if b.first <= step <= b.last) for step in range(30)]
    assert max(loads) <= packing.lower_bound <= packing.peak


@st.composite
def problems(draw: st.DrawFn, most: int, size: int) -> list[Block]:
    blocks: list[Block] = []
    for i in range(draw(st.integers(0, most))):
        first = draw(st.integers(0, 8))
        blocks.append(block(f"b{i}", first, first + draw(st.integers(0, 4)), draw(st.integers(0, size))))
    return blocks


def lowest_peak(blocks: Sequence[Block]) -> int:
    """Exhaustive: every order, each block set on top of the earlier ones it meets; some order does this to an optimal packing."""
    best = sum(block.size for block in blocks)
    for order in itertools.permutations([block for block in blocks if block.size]):
        tops: list[tuple[Block, int]] = []
        for block in order:
            tops.append((block, block.size + max((top for other, top in tops if overlap(block, other)), default=0)))
        best = min(best, max((top for _, top in tops), default=0))
    return best


@settings(deadline=None, max_examples=200)
@given(problems(most=25, size=40), st.sampled_from([1, 2, 4, 16]))
def test_lifetimes_never_overlap_in_address(blocks: list[Block], alignment: int) -> None:
    check(blocks, pack_blocks(blocks, alignment=alignment, effort=0.01), alignment)


@settings(deadline=None, max_examples=150)
@given(problems(most=6, size=5))
def test_peak_is_the_smallest_of_all(blocks: list[Block]) -> None:
    packing = pack_blocks(blocks)
    assert packing.peak == packing.lower_bound == lowest_peak(blocks)


@settings(deadline=None, max_examples=50)
@given(problems(most=12, size=9), st.randoms(use_true_random=False))
def test_order_of_blocks_does_not_matter(blocks: list[Block], rng: random.Random) -> None:
    shuffled = list(blocks)
    rng.shuffle(shuffled)
    a, b = pack_blocks(blocks, effort=0.01), pack_blocks(shuffled, effort=0.01)
    assert dict(zip(blocks, a.offsets, strict=True)) == dict(zip(shuffled, b.offsets, strict=True))
    assert (a.peak, a.lower_bound, a.work) == (b.peak, b.lower_bound, b.work)


@settings(deadline=None, max_examples=50)
@given(problems(most=6, size=5))
def test_capacity_is_met_exactly_when_it_can_be(blocks: list[Block]) -> None:
    smallest = lowest_peak(blocks)
    assert pack_blocks(blocks, capacity=smallest).peak <= smallest
    if smallest:
        missed = pack_blocks(blocks, capacity=smallest - 1)
        assert missed.peak == missed.lower_bound == smallest


def test_zero_sized_blocks_constrain_nothing() -> None:
    packing = pack_blocks([block("empty", 0, 9, 0), block("a", 0, 9, 8), block("other", 3, 3, 0)], alignment=8)
    assert packing == Packing((0, 0, 0), 8, 8)


def test_nothing_to_pack() -> None:
    assert pack_blocks([]) == Packing((), 0, 0)


def test_alignment_rounds_sizes_up() -> None:
    packing = pack_blocks([block("a", 0, 0, 5), block("b", 0, 0, 3)], alignment=4)
    assert sorted(packing.offsets) in ([0, 4], [0, 8])
    assert packing.peak == 12


def test_sizes_beyond_any_memory_have_addresses() -> None:
    """Shapes of a hostile model: no machine has so much, and the arithmetic of addresses does not wrap."""
    blocks = [block("a", 0, 1, 1 << 70), block("b", 1, 2, 3), block("c", 2, 3, 1 << 63)]
    packing = pack_blocks(blocks, alignment=4)
    assert not any(offset % 4 for offset in packing.offsets)
    assert 1 << 70 < packing.lower_bound <= packing.peak < 3 << 69
    for (a, at), (b, bt) in itertools.combinations(zip(blocks, packing.offsets, strict=True), 2):
        assert not overlap(a, b) or at + a.size <= bt or bt + b.size <= at


@pytest.mark.parametrize("wrong", [block("a", 1, 0, 4), block("a", 0, 0, -1)])
def test_what_is_no_block(wrong: Block) -> None:
    with pytest.raises(ValueError, match="not a block"):
        pack_blocks([wrong])


def test_easy_instances_do_not_import_the_solver() -> None:
    code = (
        "import sys; from deeploy.planning.packing.addresses import Block, pack_blocks;"
        "p = pack_blocks([Block((f'b{i}',), i, i + 1, 10 * i) for i in range(50)]);"
        "assert p.peak == p.lower_bound, p; assert 'ortools' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


SIRACUSA = load("siracusa")
LEVELS = {memory.name: 1000 for memory in SIRACUSA.memories}


@pytest.mark.parametrize(("sizes", "needed", "is_proven"), [((300, 200), 504, True), ((3, 3, 2, 2, 1, 1, 3, 3), 64, True)])
def test_a_memory_that_is_too_small_says_what_would_do(sizes: tuple[int, ...], needed: int, is_proven: bool) -> None:
    """The first by its load alone, the second since no packing exists: eight blocks of which seven units live at once."""
    lifetimes = ((0, 0), (0, 1), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (4, 4)) if len(sizes) == 8 else ((0, 1), (1, 2))
    unit = 8 if len(sizes) == 8 else 1
    blocks = [block(f"b{i}", first, last, unit * size) for i, ((first, last), size) in enumerate(zip(lifetimes, sizes, strict=True))]
    assert place_wanted({"L1": blocks}, SIRACUSA, {**LEVELS, "L1": needed})[1]["L1"].peak == needed
    with pytest.raises(Overfull) as caught:
        place_wanted({"L1": blocks}, SIRACUSA, {**LEVELS, "L1": needed - 8})
    assert (caught.value.level, caught.value.needed, caught.value.is_proven) == ("L1", needed, is_proven)


@settings(deadline=None, max_examples=50)
@given(problems(most=12, size=40), st.sampled_from(["overlap", "misaligned", "outside", "below"]), st.data())
def test_placements_are_checked(blocks: list[Block], mistake: str, data: st.DataObject) -> None:
    placements, packings = place_wanted({"L1": blocks, "L2": blocks[:2]}, SIRACUSA, LEVELS)
    arenas = {level: (SIRACUSA.memory(level).alignment, packing.peak) for level, packing in packings.items()}
    check_placements(placements, arenas)
    pairs = [(a, b) for a, b in itertools.permutations(placements, 2) if a.level == b.level and a.last >= b.first and b.last >= a.first]
    able = [(a, b) for a, b in pairs if a.size and b.size]
    if not able:
        return
    moved, other = data.draw(st.sampled_from(able))
    offset = {
        "overlap": other.offset,
        "misaligned": moved.offset + 1,
        "outside": arenas[moved.level][1],
        "below": -SIRACUSA.memory("L1").alignment,
    }
    wrong = tuple(replace(p, offset=offset[mistake]) if p is moved else p for p in placements)
    with pytest.raises(ValueError, match=r"no place in L[12] for"):
        check_placements(wrong, arenas)
