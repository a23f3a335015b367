"""Addresses: where every buffer and every window of tiles lies in its memory, decided from lifetimes and sizes. A schedule adds to a
window's address the slot that a tile has (``deeploy.schedule.build``), and ``deeploy.backend.layers`` prints both.

Problem. Every block is live from step ``first`` to step ``last`` and occupies a contiguous range of addresses for all of that time. Blocks
that are live at the same time must not share an address. Find the packing with the smallest peak, or any packing within a capacity.

Model. A block is a rectangle, lifetime by addresses, that moves along the addresses only; offsets are multiples of the alignment, and a
block occupies its size rounded up to it (also in the peak), so rectangles stay on one grid. Blocks of no size touch nothing. Every memory
is a problem of its own: buffers that are resident there, windows and scratch memory of calls (``packing.lifetimes``).

Bound. At every step the live blocks lie above one another: the largest sum of live sizes is a lower bound of the peak. It is not always
reached. ``packing.search`` stops as soon as it is; its budgets are deterministic, so that the result depends on nothing but the
blocks, not even on their order.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deeploy.ir.target import Target
from deeploy.planning.packing.search import make_rectangles, search_packing

SHORT = 0.02  # of the search's budget, to lower a peak that fits anyway; on a flat machine the peak is what counts
MOST_BITS = 50  # of all sizes together; addresses in more bytes than any memory has are multiples of more than the alignment


@dataclass(frozen=True)
class Block:
    """``size`` bytes that ``buffers`` share, live in the steps ``first`` to ``last`` inclusive."""

    buffers: tuple[str, ...]
    first: int
    last: int
    size: int


@dataclass(frozen=True)
class Placement:
    """``size`` bytes at ``offset`` of a level's arena, from step ``first`` to ``last``; shared by ``buffers``.

    Windows are named ``CALL.OPERAND``; the window of an operand in a memory further out
    ends in ``@LEVEL``.
    """

    level: str
    offset: int
    size: int
    first: int
    last: int
    buffers: tuple[str, ...]


@dataclass(frozen=True)
class Packing:
    """An offset in bytes for every block, in their order.

    ``peak`` is the end of the highest block and ``lower_bound`` what no packing can go below, both in bytes and rounded up to the
    alignment. ``work`` is what the search cost, the same on any machine.
    """

    offsets: tuple[int, ...]
    peak: int
    lower_bound: int
    work: int = 0


class Overfull(Exception):
    """A memory whose blocks do not fit: ``needed`` bytes would do; ``is_proven`` where no packing exists, otherwise none was found."""

    def __init__(self, level: str, needed: int, is_proven: bool) -> None:
        super().__init__(level)
        self.level = level
        self.needed = needed
        self.is_proven = is_proven


def pack_blocks(blocks: Sequence[Block], alignment: int = 1, capacity: int | None = None, effort: float = 1.0) -> Packing:
    """The packing with the smallest peak found or, given a ``capacity``, the first one found that fits it.

    Args:
        alignment: bytes; every offset is a multiple of it.
        capacity: bytes of the memory, or None to minimise the peak.
        effort: factor on the budgets of the search; 0 leaves greedy orders.

    Raises:
        ValueError: a block that is none: a negative size, or it ends before it begins.
    """
    for block in blocks:
        if block.size < 0 or block.last < block.first:
            raise ValueError(f"not a block: {block}")
    order = sorted(
        (i for i, block in enumerate(blocks) if block.size),
        key=lambda i: (blocks[i].first, blocks[i].last, -blocks[i].size, blocks[i].buffers),
    )
    alignment <<= max(0, sum(block.size for block in blocks).bit_length() - MOST_BITS)
    sizes = [-(-blocks[i].size // alignment) * alignment for i in order]
    offsets, unit = [0] * len(blocks), math.gcd(*sizes) or alignment
    table = [(blocks[i].first, blocks[i].last, size // unit) for i, size in zip(order, sizes, strict=True)]
    problem = make_rectangles(*np.array(table, np.int64).reshape(-1, 3).T)
    placement, bound, work = search_packing(problem, max(problem.bound, (capacity or 0) // unit), effort)
    for i, offset in zip(order, placement.tolist(), strict=True):
        offsets[i] = offset * unit
    return Packing(tuple(offsets), problem.peak(placement) * unit, bound * unit, work)


def place_wanted(
    wanted: Mapping[str, Sequence[Block]], target: Target, capacities: Mapping[str, int]
) -> tuple[tuple[Placement, ...], dict[str, Packing]]:
    """Pack what is wanted in every memory.

    Raises:
        Overfull: the blocks of a memory do not fit, or no packing was found.
    """
    placements: list[Placement] = []
    packings: dict[str, Packing] = {}
    for memory in target.memories[:1] if target.is_flat else target.memories:
        blocks, capacity = wanted.get(memory.name, ()), capacities[memory.name]
        packing = pack_blocks(blocks, memory.alignment, effort=1.0 if target.is_flat else SHORT)
        if packing.lower_bound <= capacity < packing.peak:
            packing = pack_blocks(blocks, memory.alignment, capacity)
        if packing.peak > capacity:
            raise Overfull(memory.name, packing.peak, packing.lower_bound > capacity)
        packings[memory.name] = packing
        placements += [
            Placement(memory.name, offset, block.size, block.first, block.last, block.buffers)
            for offset, block in zip(packing.offsets, blocks, strict=True)
        ]
    return tuple(placements), packings


def check_placements(placements: Iterable[Placement], arenas: Mapping[str, tuple[int, int]]) -> None:
    """What holds for the addresses of every plan, however they were found.

    Args:
        arenas: alignment and peak in bytes, by memory.

    Raises:
        ValueError: placements that are live at the same time share an address, or one is not aligned, or not in its arena.
    """
    placed = [p for p in placements if p.size]
    taken: dict[str, list[tuple[int, int]]] = {level: [] for level in arenas}  # ranges of addresses, in order
    events = [(p.first, True, number) for number, p in enumerate(placed)] + [(p.last + 1, False, number) for number, p in enumerate(placed)]
    for _, begins, number in sorted(events):
        placement = placed[number]
        area, offset, end = taken[placement.level], placement.offset, placement.offset + placement.size
        at = bisect_left(area, (offset, end))
        if not begins:
            del area[at]
            continue
        alignment, peak = arenas[placement.level]
        is_inside = offset >= 0 and end <= peak and offset % alignment == 0
        if not is_inside or any(low < end and offset < high for low, high in area[max(0, at - 1) : at + 1]):
            raise ValueError(f"no place in {placement.level} for {placement}, beside {area}")
        area.insert(at, (offset, end))
