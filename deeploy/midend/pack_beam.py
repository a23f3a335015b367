"""Packing to a given peak by beam search: fill the memory from below, many part-filled memories side by side in NumPy.

Decides offsets, or finds none; it never proves that there are none. A *state* is a skyline: for every section the address up to which it
is filled. A stretch of equal height between higher walls is a *valley*. The section at one of its walls can only be filled next by a
block that begins at this wall and ends within the valley, or be left empty up to the lower wall, if what still has to fit above allows
the waste. So each wall of each valley names a complete list of options, and a state is continued at the wall with the fewest, in the
narrowest valley: where every section is full to the goal, waste is impossible, moves are forced and dead ends show at once. (Blocks that
rest above a valley with waste below them are found only at the height of a wall: the search is not exhaustive.)

States that placed equal blocks are the same but for their waste; the best is kept, then the `WIDTH` best of all. No score suits every
instance, so the search restarts with scores drawn at random from a fixed sequence, until a budget of states is spent. All arithmetic is in
integers and every sort is stable: the result is the same on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeploy.midend.pack_instance import Instance

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

WIDTH = 100  # states kept; measured on the minimalloc benchmarks: wider beams find more in one run and less in the same time
ONE = 1024  # the score of an average block
STREAMS = 8  # disjoint sequences of restarts


@dataclass(frozen=True)
class _Tables:
    """An instance as arrays: n blocks, S sections, at most K blocks that begin (``edge[0]``) or end (``edge[1]``) at a section."""

    lo: Ints  # n
    hi: Ints  # n
    size: Ints  # n
    covers: Bools  # n, S
    load: Ints  # S
    edge: Ints  # 2, S, K; padded with -1
    key: Ints  # n; equal for equal blocks; the keys of a set of blocks add up to its hash


@dataclass(frozen=True)
class _States:
    """A beam of W states."""

    filled: Ints  # W, S: the skyline
    rest: Ints  # W, S: sizes still to come
    open: Bools  # W, n: blocks still to come
    key: Ints  # W
    score: Ints  # W


@dataclass(frozen=True)
class _Rule:
    """One way to score: roots of size and length that make a block valuable, bonuses for flush fits, cost of waste, noise."""

    gain: Ints  # n: the value of having placed a block
    flush: int
    span: int
    waste: int
    room: Ints  # S: what the waste is relative to
    noise: int


@dataclass(frozen=True)
class _Wall:
    """Where every state goes on: at section ``at``, next to a wall of the valley of height ``level``, and what it can do there."""

    level: Ints  # W
    first: Ints  # W: the valley's first section
    end: Ints  # W: one past its last
    left: Ints  # W: height of the wall before it
    right: Ints  # W
    at: Ints  # W: ``first`` or ``end - 1``
    blocks: Ints  # W, K
    fits: Bools  # W, K
    wastable: Bools  # W


def search(instance: Instance, goal: int, budget: int, stream: int) -> tuple[list[int] | None, int]:
    """Look for offsets with a peak of at most ``goal`` units until about ``budget`` states were visited, at least one run.

    The instance has no pinned blocks, and no load above the goal. Every ``stream`` below `STREAMS` draws other scores.

    Returns:
        The offsets or None, and the number of states visited.
    """
    tables = _tables(instance)
    visited, seed = 0, stream
    while visited < max(1, budget):
        found, states, complete = _beam(tables, goal, _rule(tables, goal, seed), seed)
        visited += states
        if found is not None or complete:
            return found, visited
        seed += STREAMS
    return None, visited


def _tables(instance: Instance) -> _Tables:
    """Arrays of an instance."""
    lo, hi, size = (np.array(values, np.int64) for values in (instance.lo, instance.hi, instance.size))
    section = np.arange(instance.sections)
    edges = [[np.flatnonzero(values == s) for s in section] for values in (lo, hi - 1)]
    edge = np.full((2, len(section), max(len(blocks) for side in edges for blocks in side)), -1)
    for side in (0, 1):
        for s in section:
            edge[side, s, : len(edges[side][s])] = edges[side][s]
    alike = np.unique(np.stack((lo, hi, size)), axis=1, return_inverse=True)[1].ravel()
    return _Tables(
        lo=lo,
        hi=hi,
        size=size,
        covers=(lo[:, None] <= section) & (section < hi[:, None]),
        load=np.array(instance.loads, np.int64),
        edge=edge,
        key=_random(0).randint(0, 1 << 62, len(size), np.int64)[alike],
    )


def _rule(tables: _Tables, goal: int, seed: int) -> _Rule:
    """The scores of a run; drawn, because no single weighting solves all instances."""
    source = _random(seed)

    def draw(*options: int) -> int:
        return options[int(source.randint(0, len(options), dtype=np.int64))]

    by_size, by_length = draw(0, 1, 1, 1, 2), draw(1, 1, 2, 3, 4)  # exponents in halves
    value = [math.isqrt(size**by_size * length**by_length << 20) for size, length in _extents(tables)]
    total = sum(value)
    return _Rule(
        gain=np.array([ONE * v * len(value) // total for v in value], np.int64),
        flush=draw(ONE // 10, ONE // 3, ONE, ONE, 3 * ONE),
        span=draw(0, ONE // 3, ONE),
        waste=draw(0, ONE // 3, ONE, 3 * ONE, 10 * ONE),
        room=goal - tables.load + max(1, goal * draw(1, 3, 10, 30) // 1024),
        noise=draw(0, ONE // 10, ONE),
    )


def _random(seed: int) -> np.random.RandomState:
    """The one generator whose stream NumPy promises never to change, on any platform."""
    return np.random.RandomState(seed)


def _extents(tables: _Tables) -> Sequence[tuple[int, int]]:
    """Size and length of every block, as Python integers."""
    return list(zip(tables.size.tolist(), (tables.hi - tables.lo).tolist(), strict=True))


def _beam(tables: _Tables, goal: int, rule: _Rule, seed: int) -> tuple[list[int] | None, int, bool]:
    """One run. Returns offsets or None, the number of states visited, and whether no state was ever dropped for want of width."""
    noise = _random(seed)
    n = len(tables.size)
    zero = np.zeros(1, np.int64)
    states = _States(np.zeros((1, len(tables.load)), np.int64), tables.load[None], np.ones((1, n), np.bool_), zero, zero)
    trail: list[tuple[Ints, Ints, Ints]] = []  # parents, blocks (or -1) and offsets of every generation
    visited, complete = 0, True
    while len(states.key):
        visited += len(states.key)
        full = np.flatnonzero(~states.open.any(axis=1))
        if len(full):
            return _trace(trail, int(full[0]), n), visited, complete
        wall = _wall(tables, states, goal)
        parent, block, score = _children(tables, rule, states, wall)
        key = states.key[parent] + np.where(block >= 0, tables.key[block], 0)
        order = np.lexsort((-score, key))
        order = order[np.concatenate(([True], key[order][1:] != key[order][:-1]))] if len(order) else order
        if len(order) > WIDTH:
            complete = False
            rank = score[order] + noise.randint(0, rule.noise + 1, len(order), np.int64)
            order = order[np.argsort(-rank, kind="stable")[:WIDTH]]
        parent, block = parent[order], block[order]
        trail.append((parent, block, wall.level[parent]))
        states = _advance(tables, states, wall, parent, block, key[order], score[order])
    return None, visited, complete


def _wall(tables: _Tables, states: _States, goal: int) -> _Wall:
    """Find the wall with the fewest options of every state; first all valleys of all states (V), then the best of each state."""
    closed = goal + 1  # the height of a section that is done, and of the ends of the schedule
    rows, sections = states.filled.shape
    height = np.full((rows, sections + 2), closed + 1)
    height[:, 1:-1] = np.where(states.rest > 0, states.filled, closed)
    row, edge = np.nonzero(height[:, 1:] != height[:, :-1])
    down = height[row, edge] > height[row, edge + 1]
    valley = np.flatnonzero(down[:-1] & ~down[1:])  # a step down, then a step up; every row begins with the one and ends with the other
    row, first, end = row[valley], edge[valley], edge[valley + 1]
    level = height[row, first + 1]
    left, right = np.minimum(height[row, first], closed), np.minimum(height[row, end + 1], closed)
    at = np.stack((first, end - 1), axis=1)  # V, 2
    blocks = tables.edge[np.arange(2), at]  # V, 2, K
    fits = (blocks >= 0) & states.open[row[:, None, None], blocks]
    fits &= (tables.lo[blocks] >= first[:, None, None]) & (tables.hi[blocks] <= end[:, None, None])
    wastable = (np.minimum(left, right) - level)[:, None] <= (goal - level)[:, None] - states.rest[row[:, None], at]
    options = fits.sum(axis=2) + wastable
    order = np.lexsort((end - first, options.min(axis=1), row))
    best = order[np.searchsorted(row, np.arange(rows))]
    side = options[best].argmin(axis=1)
    return _Wall(
        level=level[best],
        first=first[best],
        end=end[best],
        left=left[best],
        right=right[best],
        at=at[best, side],
        blocks=blocks[best, side],
        fits=fits[best, side],
        wastable=wastable[best, side],
    )


def _children(tables: _Tables, rule: _Rule, states: _States, wall: _Wall) -> tuple[Ints, Ints, Ints]:
    """All next states, as parent, block (-1: leave empty) and score."""
    parent, column = np.nonzero(wall.fits)
    block = wall.blocks[parent, column]
    top = wall.level[parent] + tables.size[block]
    at_first, at_end = tables.lo[block] == wall.first[parent], tables.hi[block] == wall.end[parent]
    flush = (at_first & (top == wall.left[parent])) * 1 + (at_end & (top == wall.right[parent]))
    score = states.score[parent] + rule.gain[block] + rule.flush * flush + rule.flush * rule.span // ONE * (at_first & at_end)
    idle = np.flatnonzero(wall.wastable)
    rise = np.minimum(wall.left, wall.right)[idle] - wall.level[idle]
    cost = rise * rule.waste // rule.room[wall.at[idle]]
    return (
        np.concatenate((parent, idle)),
        np.concatenate((block, np.full(len(idle), -1))),
        np.concatenate((score, states.score[idle] - cost)),
    )


def _advance(tables: _Tables, states: _States, wall: _Wall, parent: Ints, block: Ints, key: Ints, score: Ints) -> _States:
    """The states after the chosen children."""
    filled, rest, still = states.filled[parent], states.rest[parent], states.open[parent]
    row = np.flatnonzero(block >= 0)
    placed = block[row]
    covers, size = tables.covers[placed], tables.size[placed]
    filled[row] = np.where(covers, (wall.level[parent[row]] + size)[:, None], filled[row])
    rest[row] -= covers * size[:, None]
    still[row, placed] = False
    row = np.flatnonzero(block < 0)
    filled[row, wall.at[parent[row]]] = np.minimum(wall.left, wall.right)[parent[row]]
    return _States(filled, rest, still, key, score)


def _trace(trail: Sequence[tuple[Ints, Ints, Ints]], state: int, n: int) -> list[int]:
    """Offsets of all blocks, from the last generation back to the first."""
    offsets = [0] * n
    for parent, block, level in reversed(trail):
        if block[state] >= 0:
            offsets[int(block[state])] = int(level[state])
        state = int(parent[state])
    return offsets
