"""Bytes that are taken in a memory between two steps, counted one by one; how many chains are looked at in long networks."""

from __future__ import annotations

import numpy as np

from deeploy.planning.groups.layer_fusion import LONGEST, TRIPS, WAYS, tile_limits
from deeploy.planning.packing.addresses import Placement
from deeploy.planning.packing.lifetimes import FOR_EVER, OccupiedBytes


def test_bytes_between_two_steps_are_those_of_the_placements_that_are_there() -> None:
    rng = np.random.default_rng(0)
    placed = []
    for number in range(60):
        first = int(rng.integers(FOR_EVER, 20))
        placed.append(Placement("L1", 0, int(rng.integers(1, 50)), first, first + int(rng.integers(0, 6)), (f"b{number}",)))
    taken = OccupiedBytes(placed, lambda size: -(-size // 4) * 4)
    for first in range(20):
        for last in range(first, 20):
            there = [p for p in placed if p.first <= last and p.last >= first]
            assert taken.between(range(first, last + 1)) == sum(-(-p.size // 4) * 4 for p in there)
    assert OccupiedBytes([], lambda size: size).between(range(3)) == 0


def test_chains_of_short_networks_are_all_looked_at_and_of_long_ones_as_many_as_the_limit_allows() -> None:
    assert tile_limits(60) == (TRIPS, LONGEST)
    sizes = [count * len(every) * (longest - 1) for count in range(1, 4000, 37) for every, longest in (tile_limits(count),)]
    assert max(sizes) <= WAYS and set(tile_limits(100_000)[0]) < set(TRIPS) and tile_limits(100_000)[1] == 2
