"""Laws of the static allocator, and its optimality against exhaustive search."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deeploy.errors import FitError, UsageError
from deeploy.midend.pack import Block, PackError, Packing, pack


def overlap(a: Block, b: Block) -> bool:
    return a.first <= b.last and b.first <= a.last


def check(blocks: Sequence[Block], packing: Packing, alignment: int = 1) -> None:
    """Every law a packing obeys."""
    assert set(packing.offsets) == {block.name for block in blocks}
    solid = [block for block in blocks if block.size]
    for a, b in itertools.combinations(solid, 2):
        if overlap(a, b):
            at, bt = packing.offsets[a.name], packing.offsets[b.name]
            assert at + a.size <= bt or bt + b.size <= at, (a, b)
    for block in blocks:
        assert packing.offsets[block.name] % alignment == 0
        assert packing.offsets[block.name] >= 0
        if block.fixed is not None:
            assert packing.offsets[block.name] == block.fixed
    ends = [packing.offsets[block.name] + -(-block.size // alignment) * alignment for block in solid]
    assert packing.peak == max(ends, default=0)
    loads = [sum(-(-b.size // alignment) * alignment for b in solid if b.first <= step <= b.last) for step in range(30)]
    assert max(loads) <= packing.lower_bound <= packing.peak
    assert packing.status == ("optimal" if packing.peak == packing.lower_bound else "feasible")


@st.composite
def problems(draw: st.DrawFn, most: int, size: int, pins: bool = False, grid: int = 1) -> list[Block]:
    blocks: list[Block] = []
    for i in range(draw(st.integers(0, most))):
        first = draw(st.integers(0, 8))
        block = Block(f"b{i}", first, first + draw(st.integers(0, 4)), draw(st.integers(0, size)))
        if pins and draw(st.integers(0, 3)) == 0:
            top = max((-(-(b.fixed + b.size) // grid) for b in blocks if b.fixed is not None), default=0)
            block = Block(block.name, block.first, block.last, block.size, grid * (top + draw(st.integers(0, 3))))
        blocks.append(block)
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


def lowest_pinned_peak(blocks: Sequence[Block]) -> int:
    """Exhaustive over all offsets of the blocks that are free."""
    solid = sorted((block for block in blocks if block.size), key=lambda block: block.fixed is None)
    total = sum(block.size for block in solid) + max((block.fixed for block in solid if block.fixed is not None), default=0)
    best = total

    def place(done: list[tuple[Block, int]], peak: int) -> None:
        nonlocal best
        if peak >= best:
            return
        if len(done) == len(solid):
            best = peak
            return
        block = solid[len(done)]
        for offset in range(total - block.size + 1) if block.fixed is None else [block.fixed]:
            if all(not overlap(block, b) or offset + block.size <= at or at + b.size <= offset for b, at in done):
                place([*done, (block, offset)], max(peak, offset + block.size))

    best += 1
    place([], 0)
    return best


@settings(deadline=None, max_examples=200)
@given(problems(most=25, size=40), st.sampled_from([1, 2, 4, 16]))
def test_lifetimes_never_overlap_in_address(blocks: list[Block], alignment: int) -> None:
    check(blocks, pack(blocks, alignment=alignment, effort=0.01), alignment)


@settings(deadline=None, max_examples=100)
@given(problems(most=15, size=20, pins=True, grid=4))
def test_pins_and_alignment_hold(blocks: list[Block]) -> None:
    check(blocks, pack(blocks, alignment=4, effort=0.01), 4)


@settings(deadline=None, max_examples=150)
@given(problems(most=6, size=5))
def test_peak_is_the_smallest_of_all(blocks: list[Block]) -> None:
    packing = pack(blocks)
    assert packing.peak == lowest_peak(blocks)
    assert packing.status == "optimal"


@settings(deadline=None, max_examples=100)
@given(problems(most=4, size=4, pins=True))
def test_peak_is_the_smallest_with_pins(blocks: list[Block]) -> None:
    packing = pack(blocks)
    check(blocks, packing)
    assert packing.peak == lowest_pinned_peak(blocks)
    assert packing.status == "optimal"


@settings(deadline=None, max_examples=50)
@given(problems(most=12, size=9), st.randoms(use_true_random=False))
def test_order_of_blocks_does_not_matter(blocks: list[Block], rng: random.Random) -> None:
    shuffled = list(blocks)
    rng.shuffle(shuffled)
    a, b = pack(blocks, effort=0.01), pack(shuffled, effort=0.01)
    assert a == b
    assert list(a.offsets) == list(b.offsets)


@settings(deadline=None, max_examples=50)
@given(problems(most=6, size=5))
def test_capacity_is_met_exactly_when_it_can_be(blocks: list[Block]) -> None:
    smallest = lowest_peak(blocks)
    assert pack(blocks, capacity=smallest).peak <= smallest
    if smallest:
        with pytest.raises(PackError) as caught:
            pack(blocks, capacity=smallest - 1)
        assert caught.value.needed == smallest
        assert caught.value.proven


def test_zero_sized_blocks_constrain_nothing() -> None:
    packing = pack([Block("empty", 0, 9, 0), Block("pinned", 0, 9, 0, fixed=64), Block("a", 0, 9, 8)], alignment=8)
    assert packing.offsets == {"empty": 0, "pinned": 64, "a": 0}
    assert packing.peak == packing.lower_bound == 8


def test_nothing_to_pack() -> None:
    assert pack([]) == Packing({}, 0, 0, "optimal")


def test_alignment_rounds_sizes_up() -> None:
    packing = pack([Block("a", 0, 0, 5), Block("b", 0, 0, 3)], alignment=4)
    assert sorted(packing.offsets.values()) in ([0, 4], [0, 8])
    assert packing.peak == 12


def test_capacity_below_the_load_names_step_blocks_and_remedy() -> None:
    blocks = [Block("early", 0, 1, 100), Block("x", 2, 3, 300), Block("y", 3, 4, 200), Block("late", 4, 5, 50)]
    with pytest.raises(FitError) as caught:
        pack(blocks, capacity=400)
    lines = str(caught.value).splitlines()
    assert lines[0] == "step 3 needs 500 bytes at once, 400 are there; live then: 'x' (300), 'y' (200)"
    assert "The smallest capacity that would do is 500 bytes" in lines[1]
    assert caught.value.exit_status == 3


def test_capacity_below_a_pinned_block() -> None:
    with pytest.raises(PackError, match="'far' of 4 bytes is pinned to offset 96, beyond the 64 bytes"):
        pack([Block("far", 0, 0, 4, fixed=96), Block("a", 1, 1, 8)], capacity=64)


def test_pins_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="pinned to offset 6, not a multiple of the alignment of 4"):
        pack([Block("a", 0, 0, 4, fixed=6)], alignment=4)
    with pytest.raises(UsageError, match="'a' and 'b' are pinned to addresses that overlap"):
        pack([Block("a", 0, 2, 4, fixed=0), Block("b", 2, 3, 4, fixed=2)])


@pytest.mark.parametrize("block", [Block("a", 1, 0, 4), Block("a", 0, 0, -1), Block("a", 0, 0, 1, fixed=-4)])
def test_what_is_no_block(block: Block) -> None:
    with pytest.raises(ValueError, match="not a block"):
        pack([block])


def test_names_are_distinct() -> None:
    with pytest.raises(ValueError, match="share a name"):
        pack([Block("a", 0, 0, 1), Block("a", 1, 1, 1)])


def test_easy_instances_do_not_import_the_solver() -> None:
    code = (
        "import sys; from deeploy.midend.pack import Block, pack;"
        "p = pack([Block(f'b{i}', i, i + 1, 10 * i) for i in range(50)]);"
        "assert p.status == 'optimal', p; assert 'ortools' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
