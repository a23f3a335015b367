"""Fronts: of many tilings of a call, those that no other one beats in cycles and bytes, and of long fronts some that stand for all."""

from __future__ import annotations

from operator import le
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from deeploy.ir.types import Numeric

if TYPE_CHECKING:
    from deeploy.planning.candidates.candidate import Candidate
    from deeploy.planning.tiling.loops import TileLoop

LARGEST_FRONT = 8  # candidates for one combination of distances of the operands

_T = TypeVar("_T")


class GridCell(NamedTuple):
    """A combination of tile sizes (by number), an order of loops (by number) and a number of slots."""

    number: int
    order: int
    depth: int


class LoopCut(NamedTuple):
    """The loops of a cell, of which the outermost ``outer`` move the windows of memories further out."""

    cell: GridCell
    loops: tuple[TileLoop, ...]
    outer: int


def dominates(a: Candidate, b: Candidate) -> bool:
    """Whether one takes no more cycles and no more bytes of any memory than another."""
    return a.cycles <= b.cycles and all(map(le, a.bytes, b.bytes))


def undominated_candidates(candidates: list[Candidate]) -> list[Candidate]:
    """Candidates that no other beats in cycles and bytes, the cheapest first."""
    undominated: list[Candidate] = []
    front: set[tuple[int, ...]] = set()  # what is cheaper needs: a candidate stays where none of it is smaller
    for candidate in sorted(candidates, key=lambda c: (c.cycles, c.bytes)):
        if not any(all(map(le, sizes, candidate.bytes)) for sizes in front):
            front = {sizes for sizes in front if not all(map(le, candidate.bytes, sizes))} | {candidate.bytes}
            undominated.append(candidate)
    return undominated


def grid_cells(used: Numeric, cycles: Numeric, prefetchable: Numeric, orders: int, fits: Numeric, depth: int) -> Numeric:
    """The cells of all orders and of the combinations that fit, as rows: depth, order, number, bytes, cycles and early cycles."""
    shape = orders, len(used)
    figures = [np.broadcast_to(row, shape)[:, fits].astype(np.int64) for row in (used, cycles, prefetchable)]
    order, number = (axis[:, fits] for axis in np.indices(shape))
    return np.stack([row.ravel() for row in (np.full_like(order, depth), order, number, *figures)])


def best_cells(grid: Numeric) -> list[GridCell]:
    """Rows as ``grid_cells`` makes them that no other beats in bytes and cycles, or in bytes and cycles less the early ones."""
    *names, used, cycles, prefetchable = grid
    numbers = set[int]()
    for counted in (cycles, cycles - prefetchable):
        ranked = np.lexsort((*names, used, counted))  # cheapest first: one stays when it needs fewer bytes than all before
        sizes = used[ranked]
        numbers |= set(ranked[np.append(True, sizes[1:] < np.minimum.accumulate(sizes)[:-1])].tolist() if len(ranked) else ())
    at = np.array(sorted(numbers), np.int64)
    ordered = at[np.lexsort((*(row[at] for row in names), used[at], cycles[at]))]
    front = [GridCell(int(grid[2, i]), int(grid[1, i]), int(grid[0, i])) for i in ordered]
    return subsample(front, int(used[ordered].argmin())) if front else []


def subsample(ordered: list[_T], smallest: int) -> list[_T]:
    """At most ``LARGEST_FRONT`` of a front that begins with the cheapest: half from there on, the others spread, and the smallest."""
    if len(ordered) <= LARGEST_FRONT:
        return ordered
    half = LARGEST_FRONT // 2
    rest = [i for i in range(half, len(ordered)) if i != smallest]
    spread = [rest[round(i * (len(rest) - 1) / (half - 2))] for i in range(half - 1)]
    return [ordered[i] for i in sorted({*range(half), *spread, smallest})]


def tile_divisors(count: int) -> list[int]:
    """Divisors of a number of tiles; of many, four that are spread."""
    every = [d for d in range(1, count + 1) if count % d == 0]
    return every if len(every) <= 4 else [*every[:2], every[len(every) // 2], every[-1]]
