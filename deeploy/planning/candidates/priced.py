"""What the energy of a candidate counts for, in cycles (``Machine.price``)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deeploy.planning.candidates.candidate import Candidate
from deeploy.planning.candidates.tiler import Tiler
from deeploy.planning.tiling.loops import CallTiling


def price_candidate(tiler: Tiler, candidate: Candidate, price: float) -> Candidate:
    """The candidate, whose cycles count its energy as well where a cycle's worth of picojoules is not 0."""
    if not price:
        return candidate
    surcharge = round(tiling_picojoule(tiler, candidate.tiling) / price)
    return replace(candidate, cycles=candidate.cycles + surcharge, surcharge=surcharge)


def tiling_picojoule(tiler: Tiler, tiling: CallTiling) -> float:
    """What a tiling takes besides the power of cores and chip: of windows that move, and of an accelerator while it works."""
    timing, engine = tiler.target.timing, tiler.engine
    assert timing is not None
    picojoules = sum(count * timing.paths[path].pj_per_byte for path, count in tiler.traffic(tiling).items())
    if engine.accelerator:
        tiles = {loop.dim: loop.tile for loop in tiling.loops}
        sizes = {name: np.array([tiles.get(name, tiler.call.geometry.extents[name])]) for name in tiler.dims}
        picojoules += tiler.job(sizes, np.array([tiling.tiles])) * timing.active_mw.get(engine.name, 0.0) / timing.mhz * 1e3
    return picojoules
