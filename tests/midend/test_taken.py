"""Bytes that are taken in a memory between two steps are those of the placements that are there, counted one by one."""

from __future__ import annotations

import numpy as np

from deeploy.midend.fuse import Taken
from deeploy.midend.lifetime import FOR_EVER
from deeploy.midend.place import Placement


def test_bytes_between_two_steps_are_those_of_the_placements_that_are_there() -> None:
    rng = np.random.default_rng(0)
    placed = []
    for number in range(60):
        first = int(rng.integers(FOR_EVER, 20))
        placed.append(Placement("L1", 0, int(rng.integers(1, 50)), first, first + int(rng.integers(0, 6)), (f"b{number}",)))
    taken = Taken(placed, lambda size: -(-size // 4) * 4)
    for first in range(20):
        for last in range(first, 20):
            there = [p for p in placed if p.first <= last and p.last >= first]
            assert taken.between(range(first, last + 1)) == sum(-(-p.size // 4) * 4 for p in there)
    assert Taken([], lambda size: size).between(range(3)) == 0
