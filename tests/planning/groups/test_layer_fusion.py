"""How many fused groups are looked at in networks of any length."""

from __future__ import annotations

from deeploy.planning.groups.layer_fusion import LONGEST, TRIPS, WAYS, tile_limits


def test_groups_of_short_networks_are_all_looked_at_and_of_long_ones_as_many_as_the_limit_allows() -> None:
    assert tile_limits(60) == (TRIPS, LONGEST)
    sizes = [count * len(every) * (longest - 1) for count in range(1, 4000, 37) for every, longest in (tile_limits(count),)]
    assert max(sizes) <= WAYS and set(tile_limits(100_000)[0]) < set(TRIPS) and tile_limits(100_000)[1] == 2
