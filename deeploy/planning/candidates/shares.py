"""Cycles of kernels on tiles that cores divide: of every combination of tile sizes at once.

A tile takes as long as the core with its largest part. A core is slower the more cores work at once, as they meet in one memory: with
``s`` the slowdown by each further core, a tile in which ``a`` of them have a part takes (1 - s + s*a) times as long. Both summands are
products over dimensions, so that each is added up over tiles dimension by dimension.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from deeploy.graph.types import Numeric
from deeploy.planning import cost
from deeploy.planning.candidates.candidate import Tile
from deeploy.planning.tiling.loops import Division


def cycles(
    work: cost.Work,
    extents: Mapping[str, int],
    size: Mapping[str, Numeric],
    division: Division,
    tile: Tile | None = None,
    once: Collection[str] = (),
) -> Numeric:
    """Cycles of all tiles of these sizes, or of one of them; those along dimensions in ``once`` count as one."""
    parts, own = dict(division), work.divided(division)

    def added(name: str, step: int, is_met: bool) -> Numeric:
        """The largest parts of tiles along a dimension in whole steps, for step 0 their number; by the cores that have a part."""
        extent, cores = extents[name], parts.get(name, 1)
        first = size.get(name, extent)
        trips = -(-extent // first)
        last = extent - (trips - 1) * first
        whole, rest = ((cost.steps(-(-n // cores), step) if step else 1) * (cost.active(n, cores) if is_met else 1) for n in (first, last))
        return whole if tile is Tile.FIRST else rest if tile is Tile.LAST else (trips - 1) * whole + rest

    def total(is_met: bool) -> Numeric:
        return own.cycles(lambda name, step: 1 if name in once else added(name, step, is_met))

    alone = total(False)
    return alone * (1 - work.shared) + total(True) * work.shared if work.shared and division else alone
