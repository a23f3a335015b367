"""Cycles of kernels on tiles that cores divide: of every combination of tile sizes at once.

A tile takes as long as the core with its largest part. A core is slower the more cores work at once, as they meet in one memory: with
``s`` the slowdown by each further core, a tile in which ``a`` of them have a part takes (1 - s + s*a) times as long. Both summands are
products over dimensions, so that each is added up over tiles dimension by dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from deeploy.ir.nest import Geometry
from deeploy.ir.types import Numeric
from deeploy.planning import cost
from deeploy.planning.candidates.candidate import Tile
from deeploy.planning.tiling.loops import Division

Weight = Callable[[Numeric], Numeric]  # by which a tile counts in which so many cores have a part
EVEN = 1.03  # times what a core has to do where cores share evenly
# By how much a division of rows that may be few has to be better than others: cores have nothing to do then; and one of several dimensions:
# windows of each share are smaller, which rates know less of.
BETTER = 1.1


def best_division(
    work: cost.Work, geometry: Geometry, size: Mapping[str, Numeric], divisions: Sequence[Division], tiles: np.ndarray, barrier: float
) -> tuple[Numeric, Numeric]:
    """Per combination of tile sizes: cycles of all tiles, with a barrier for each, and the number of the division (-1: one core).

    Several dimensions are only divided where no single one gives all cores about as much to do.
    """
    undivided: dict[tuple[str, int], Numeric] = {}
    alone = np.broadcast_to(tile_cycles(work, geometry.extents, size, (), undivided=undivided), len(tiles)).astype(float)
    fewest, compared, which = alone, alone, np.full(len(tiles), -1)
    for number, division in enumerate(divisions):
        is_several, cores = len(division) > 1, math.prod(parts for _, parts in division)
        if is_several and np.all(fewest <= EVEN * alone / cores + tiles * barrier):
            break
        shared = tile_cycles(work, geometry.extents, size, division, undivided=undivided) + tiles * barrier
        wanted = shared * (BETTER if is_several or (number and division[0][0] in geometry.dynamic) else 1)
        is_better = wanted < compared
        fewest, which, compared = np.where(is_better, shared, fewest), np.where(is_better, number, which), np.minimum(wanted, compared)
    return fewest, which


def tile_cycles(
    work: cost.Work,
    extents: Mapping[str, int],
    size: Mapping[str, Numeric],
    division: Division,
    tile: Tile | None = None,
    once: Collection[str] = (),
    undivided: dict[tuple[str, int], Numeric] | None = None,
) -> Numeric:
    """Cycles of all tiles of these sizes, or of one of them; those along dimensions in ``once`` count as one.

    ``undivided`` keeps what dimensions add up to that the cores do not divide, for other divisions of the same tiles.
    """
    parts, own = dict(division), work.divided(division)
    known = {} if undivided is None else undivided

    def added(name: str, step: int, weight: Weight) -> Numeric:
        """The largest parts of tiles along a dimension in whole steps, for step 0 their number, by the weight of their cores."""
        extent, cores = extents[name], parts.get(name, 1)
        if cores == 1 and (name, step) in known:
            return known[name, step]
        first = size.get(name, extent)
        trips = -(-extent // first)
        last = extent - (trips - 1) * first
        whole, rest = (cost.whole_steps(-(-n // cores), step) if step else 1 for n in (first, last))
        if cores > 1:
            whole, rest = whole * weight(cost.active_cores(first, cores)), rest * weight(cost.active_cores(last, cores))
        share = whole if tile is Tile.FIRST else rest if tile is Tile.LAST else (trips - 1) * whole + rest
        if cores == 1:
            known[name, step] = share
        return share

    def total(weight: Weight) -> Numeric:
        return own.cycles(lambda name, step: 1 if name in once else added(name, step, weight))

    if len(division) < 2:
        return total(work.slower)
    return total(lambda active: 1) * (1 - work.shared) + total(lambda active: active) * work.shared
