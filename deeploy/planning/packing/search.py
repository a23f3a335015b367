"""Packing rectangles: greedy orders, a beam search and proofs by constraint programming, until a peak is reached.

Problem. Block ``i`` covers the columns ``first[i]`` to ``end[i] - 1``, is ``size[i]`` high, and moves up and down. No two blocks may
overlap. Find offsets with a peak of at most a goal, or as low as the budgets allow.

Model. Columns are the maximal sets of blocks that live at the same time: intervals that pairwise overlap have a common step. Heights are
in units of the greatest common divisor of all sizes. Blocks that live in all columns are laid on the floor, since any packing can be
rearranged so, and columns between which no block lives are packed apart. What greedy orders do not solve then is given to a beam search
and to CP-SAT in turns, with growing budgets: the one finds packings of hundreds of blocks, the other proves that there is none.

Beam. A *state* is a skyline: the height up to which every column is filled. A stretch of equal height between higher walls is a *valley*.
The column at one of its walls can only be filled next by a block that begins at this wall and ends within the valley, or be left empty up
to the lower wall, if what still has to fit above allows the waste. So each wall of each valley names a complete list of options, and a
state is continued at the wall with the fewest, in the narrowest valley: where every column is full to the goal, waste is impossible, moves
are forced and dead ends show at once. (Blocks that rest above a valley with waste below them are found only at the height of a wall: the
search is not exhaustive.) Of states that placed equal blocks and differ in their waste, the best is kept, then the ``WIDTH`` best of all.

Bound. The largest load of a column, or one unit more than a peak for which CP-SAT proves that no packing reaches it.

Budgets are states of the beam and deterministic time of the solver, arithmetic is in integers, and every sort is stable: the result is the
same on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise, zip_longest

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

REPAIRS = 16  # how often a greedy order is tried
MOST_PLACED = 16_000  # blocks that it may place again; long networks get fewer repairs
WIDTH = 100  # states of a beam; measured on the minimalloc benchmarks: wider ones find more in one run and less in the same time
ATTEMPTS = (60_000, 400_000, 2_000_000, 4_000_000)  # states at the goal at effort 1; about 200 000 take a second
NEIGHBOUR = 100_000  # states at a peak between the goal and the best packing
NEIGHBOURS = 10  # how many such peaks are tried
STATES = 3e7  # that stand for a deterministic second of CP-SAT, which takes 20 to 100 seconds
MOST_CELLS = 1 << 21  # blocks by columns of what is searched at effort 1: a larger part stays as the greedy orders leave it
ONE = 1024  # the score of an average block; that of a block is in proportion to the root of its area
SCORES = (  # of a block flush with a wall, and of all the waste that a column can have, from run to run: none solves all instances
    (ONE, ONE),
    (ONE // 3, ONE // 3),
    (3 * ONE, 10 * ONE),
    (ONE, ONE // 3),
)
NOISE = ONE // 10  # of a score, other in each run


@dataclass(frozen=True, eq=False)
class Rectangles:
    """Blocks in columns ``first`` (inclusive) to ``end`` (exclusive) with sizes above 0, in units."""

    first: Ints
    end: Ints
    size: Ints

    @property
    def columns(self) -> int:
        """The number of columns: steps of the inference in which some block lives."""
        return int(self.end.max(initial=0))

    @property
    def loads(self) -> Ints:
        """Units of memory that live in every column."""
        begun, over = (np.bincount(at, self.size, self.columns + 1) for at in (self.first, self.end))
        return np.cumsum(begun - over)[:-1].astype(np.int64)

    @property
    def bound(self) -> int:
        """The largest load of a column, below which no packing's peak can be."""
        return int(self.loads.max(initial=0))

    def peak(self, offsets: Ints) -> int:
        """The end of the highest block when they lie at ``offsets``, in units."""
        return int((offsets + self.size).max(initial=0))

    def part(self, blocks: Ints) -> Rectangles:
        """The rectangles of some blocks alone."""
        return make_rectangles(self.first[blocks], self.end[blocks] - 1, self.size[blocks])


def make_rectangles(first: Ints, last: Ints, size: Ints) -> Rectangles:
    """Blocks that live in the steps ``first`` to ``last``, both inclusive.

    Between two neighbouring events lies a maximal set of blocks where blocks begin at its left end and others end at its right one; any
    other stretch has its live set contained in a neighbour's.
    """
    points = np.unique(np.append(first, last + 1))
    is_column = np.isin(points[:-1], first) & np.isin(points[1:], last + 1)
    column = np.append(0, np.cumsum(is_column))
    return Rectangles(column[np.searchsorted(points, first)], column[np.searchsorted(points, last + 1)], size)


def search_packing(blocks: Rectangles, goal: int, effort: float) -> tuple[Ints, int, int]:
    """Pack to a peak of at most ``goal``, which is at least the bound, or as low as the budgets allow.

    Returns:
        Offsets, a proven lower bound of the peak, both in units, and the work in states.
    """
    offsets, rest, height = np.zeros_like(blocks.size), np.arange(len(blocks.size)), 0
    while (is_floor := blocks.end - blocks.first == blocks.columns).any():
        tops = height + np.cumsum(blocks.size[is_floor])
        offsets[rest[is_floor]], height = tops - blocks.size[is_floor], int(tops[-1])
        rest, blocks = rest[~is_floor], blocks.part(np.flatnonzero(~is_floor))
    goal -= height
    best = _pack_greedily(blocks, goal)
    best_offsets, bound, work = best.copy(), blocks.bound, 0
    order = np.argsort(blocks.first, kind="stable")
    cuts = np.flatnonzero(blocks.first[order][1:] >= np.maximum.accumulate(blocks.end[order])[:-1]) + 1
    if blocks.peak(best) > goal and len(cuts):
        for part in np.split(order, cuts):
            piece = blocks.part(part)
            best_offsets[part], least, spent = search_packing(piece, goal, effort)
            bound, work = max(bound, least), work + spent
            goal = max(goal, piece.peak(best_offsets[part]))  # no part need be lower than another one is
    elif blocks.peak(best) > goal and len(order) * blocks.columns <= MOST_CELLS * effort:
        best_offsets, bound, work = _improve_packing(blocks, goal, best, effort)
    offsets[rest] = height + (best_offsets if blocks.peak(best_offsets) < blocks.peak(best) else best)
    return offsets, height + bound, work


def _pack_greedily(blocks: Rectangles, goal: int) -> Ints:
    """The best of a few orders in which blocks get the lowest gap that holds them: first those of large sizes or areas, early or late ones.

    Blocks that end above the goal are moved to the front of an order, and it is tried again, a few times (squeaky wheel optimisation:
    Joslin and Clements, Journal of Artificial Intelligence Research 10, 1999).
    """
    best = np.cumsum(blocks.size) - blocks.size
    length = blocks.end - blocks.first
    for keys in ((-length, -blocks.size), (-length * blocks.size,), (-length, blocks.first), (-length, -blocks.end)):
        order = np.lexsort(keys)
        for _ in range(min(REPAIRS, 1 + MOST_PLACED // (1 + len(order)))):
            offsets = _place_in_order(blocks, order)
            if blocks.peak(offsets) <= blocks.peak(best):
                best = offsets
            if blocks.peak(best) <= goal:
                return best
            order = order[np.argsort((offsets + blocks.size)[order] <= goal, kind="stable")]
    return best


def _place_in_order(blocks: Rectangles, order: Ints) -> Ints:
    """Offsets where each block in turn gets the lowest gap that those before it leave."""
    first, end, size = blocks.first[order], blocks.end[order], blocks.size[order]
    offsets, placed = np.zeros_like(size), np.empty_like(size)
    for k in range(1, len(size)):
        met = np.flatnonzero((first[:k] < end[k]) & (first[k] < end[:k]))
        met = met[offsets[met].argsort(kind="stable")]
        tops = np.maximum.accumulate(np.append(0, offsets[met] + size[met]))
        gaps = np.append(offsets[met], tops[-1] + size[k]) - tops
        offsets[k] = tops[(gaps >= size[k]).argmax()]
    placed[order] = offsets
    return placed


def _improve_packing(blocks: Rectangles, goal: int, best: Ints, effort: float) -> tuple[Ints, int, int]:
    """Lower a packing: the goal is tried with growing budgets, then peaks half-way between what was missed and the best packing."""
    bound, missed, work, seeds = blocks.bound, goal - 1, 0, count()
    for number, budget in enumerate((*ATTEMPTS, *[NEIGHBOUR] * NEIGHBOURS)):
        target = goal if missed < goal else (missed + blocks.peak(best)) // 2
        if target in (missed, blocks.peak(best)):
            break
        offsets, states = _beam_search(blocks, target, int(budget * effort), seeds)
        is_refuted, seconds = False, 0.0
        if offsets is None:
            offsets, is_refuted, seconds = _decide_peak(blocks, target, budget * effort / STATES)
        work += states + int(seconds * STATES)
        if offsets is not None:
            best = offsets
        elif is_refuted or number >= len(ATTEMPTS) - 1:
            missed, bound = target, target + 1 if is_refuted else bound
        if blocks.peak(best) <= goal:
            break
    return best, bound, work


def _beam_search(blocks: Rectangles, goal: int, budget: int, seeds: count[int]) -> tuple[Ints | None, int]:
    """Offsets within the goal or None, and the states visited, in runs of the next seeds: about as many as the budget says."""
    visited, offsets, is_complete, tables = 0, None, False, _beam_tables(blocks)
    while offsets is None and not is_complete and visited <= budget:
        offsets, states, is_complete = _run_beam(blocks, tables, goal, next(seeds))
        visited += states
    return offsets, visited


def _beam_tables(blocks: Rectangles) -> tuple[Ints, ...]:
    """What runs of the beam read: arrays of all blocks, with one of no size behind them that stands for leaving a column empty.

    Returns:
        First columns, ends and sizes, the columns of every block, the blocks that begin and those that end at every column, numbers of
        which the sums tell sets of blocks apart, equal for equal blocks, and scores. There is an empty column before the first and behind
        the last.
    """
    n = len(blocks.size)
    first, end, size = (np.append(values, 0) for values in (blocks.first + 1, blocks.end + 1, blocks.size))
    columns = np.arange(blocks.columns + 2)
    covers = (first[:, None] <= columns) & (columns < end[:, None])
    walls = [[n, *np.flatnonzero(at == column)] for at in (first[:n], end[:n] - 1) for column in columns]
    options = np.array([*zip_longest(*walls, fillvalue=n)]).T.reshape(2, len(columns), -1)
    _, alike = np.unique(np.stack((first, end, size)), axis=1, return_inverse=True)
    hashes = np.random.RandomState(0).randint(0, 1 << 62, n + 1, np.int64)[alike.ravel()] * (size > 0)
    value = np.sqrt(size * (1.0 * end - first))
    return first, end, size, covers * size[:, None], options, hashes, (ONE * n / math.fsum(value) * value).astype(np.int64)


def _run_beam(blocks: Rectangles, tables: tuple[Ints, ...], goal: int, seed: int) -> tuple[Ints | None, int, bool]:
    """Fill the memory from below, many part-filled memories side by side.

    Returns:
        Offsets or None, the states visited, and whether no state was ever dropped for want of width.
    """
    draw = np.random.RandomState(seed)  # the one generator whose stream NumPy promises never to change, on any platform
    flush, waste = SCORES[seed % len(SCORES)]
    first, end, size, heights, options, hashes, gain = tables
    n, closed = len(blocks.size), goal + 1  # full columns are as high as the ends of the schedule
    slack = np.pad(goal - blocks.loads, 1)[None]  # waste that a column can still have
    spare = slack[0] + max(1, goal // ONE)
    filled = np.full((1, blocks.columns + 2), closed)
    filled[:, 1:-1] = 0
    left = np.arange(n + 1)[None] < n
    key = score = np.zeros(1, np.int64)
    trail: list[tuple[Ints, Ints, Ints]] = []  # parents, blocks and levels of every generation
    visited, is_complete = 0, True
    while len(filled):
        visited += len(filled)
        done = np.flatnonzero(~left.any(axis=1))
        if len(done):
            return _trace_offsets(trail, done[0], n), visited, is_complete
        row, begin, stop = _find_valleys(filled)
        level, before, after = filled[row, begin], filled[row, begin - 1], filled[row, stop]
        rise = np.minimum(before, after) - level
        # The options at both walls of each, then the wall with the fewest of each state.
        at = np.stack((begin, stop - 1), axis=1)
        option = options[[0, 1], at]
        fits = left[row[:, None, None], option] & (first[option] >= begin[:, None, None]) & (end[option] <= stop[:, None, None])
        fits[:, :, 0] = rise[:, None] <= slack[row[:, None], at]
        number = fits.sum(axis=2)
        order = np.lexsort((stop - begin, number.min(axis=1), row))
        chosen = order[np.searchsorted(row, np.arange(len(filled)))]
        side = number[chosen].argmin(axis=1)
        # The next states: of equal ones the best, then the best of all.
        parent, place = np.nonzero(fits[chosen, side])
        block, where, valley = option[chosen, side][parent, place], at[chosen, side][parent], chosen[parent]
        top, is_empty = level[valley] + size[block], block == n
        begins, ends = first[block] == begin[valley], end[block] == stop[valley]
        flushes = (begins & (top == before[valley])) * 3 + (ends & (top == after[valley])) * 3 + (begins & ends)
        points = score[parent] + gain[block] + flush * flushes // 3 - is_empty * (waste * rise[valley] // spare[where])
        keys = key[parent] + hashes[block]
        order = np.lexsort((-points, keys))
        order = order[np.append(True, np.diff(keys[order]) != 0)[: len(order)]]
        if len(order) > WIDTH:
            rank, is_complete = points[order] + draw.randint(0, NOISE, len(order)), False
            order = order[np.argsort(-rank, kind="stable")[:WIDTH]]
        parent, block, where, valley = parent[order], block[order], where[order], valley[order]
        trail.append((parent, block, level[valley]))
        key, score, filled, slack, left = keys[order], points[order], filled[parent], slack[parent], left[parent]
        left[np.arange(len(order)), block] = False
        filled += heights[block]
        row = np.flatnonzero(block == n)
        filled[row, where[row]] += rise[valley[row]]
        slack[row, where[row]] -= rise[valley[row]]
        filled[filled + slack == goal] = closed
    return None, visited, is_complete


def _trace_offsets(trail: Sequence[tuple[Ints, Ints, Ints]], state: np.int64, n: int) -> Ints:
    """Offsets of ``n`` blocks, from the last generation of states back to the first."""
    offsets = np.zeros(n + 1, np.int64)
    for parent, block, level in reversed(trail):
        offsets[block[state]], state = level[state], parent[state]
    return offsets[:n]


def _find_valleys(filled: Ints) -> tuple[Ints, Ints, Ints]:
    """The row, the first column, and the one behind the last, of all valleys: a step down, then a step up. Every row begins and ends so."""
    row, edge = np.nonzero(np.diff(filled, axis=1))
    is_down = filled[row, edge] > filled[row, edge + 1]
    valley = np.flatnonzero(is_down[:-1] & ~is_down[1:])
    return row[valley], edge[valley] + 1, edge[valley + 1] + 1


def _decide_peak(blocks: Rectangles, peak: int, seconds: float) -> tuple[Ints | None, bool, float]:
    """A packing within ``peak`` by constraint programming, or the proof that there is none.

    Every block is a rectangle, and rectangles do not overlap. Loads are cumulative and, the other way round, the columns that a unit of
    memory can serve. Equal blocks are ordered, and the block of the largest area lies in the lower half, since a packing upside down is a
    packing.

    Returns:
        Offsets or None, whether no packing exists, and the deterministic seconds it took.
    """
    from deeploy.planning.packing.solver import (  # importing takes 0.2 s, which most instances need not pay
        cp_model,
        new_solver,
        solve_model,
    )

    model = cp_model.CpModel()
    table = list(zip(blocks.first.tolist(), blocks.end.tolist(), blocks.size.tolist(), strict=True))
    offsets = [model.new_int_var(0, peak - size, "") for _, _, size in table]
    spans = [model.new_fixed_size_interval_var(first, end - first, "") for first, end, _ in table]
    ranges = [model.new_fixed_size_interval_var(offset, size, "") for offset, (_, _, size) in zip(offsets, table, strict=True)]
    model.add_no_overlap_2d(spans, ranges)
    model.add_cumulative(spans, [size for _, _, size in table], peak)
    model.add_cumulative(ranges, [end - first for first, end, _ in table], blocks.columns)
    for one, other in pairwise(sorted(range(len(table)), key=table.__getitem__)):
        if table[one] == table[other]:
            model.add(offsets[one] + table[one][2] <= offsets[other])
    largest = int((blocks.size * (blocks.end - blocks.first)).argmax())
    model.add(2 * offsets[largest] + table[largest][2] <= peak)
    solver = new_solver(seconds)
    status = solve_model(solver, model)
    is_found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    solution = np.array([solver.value(offset) for offset in offsets], np.int64) if is_found else None
    return solution, status == cp_model.INFEASIBLE, solver.deterministic_time
