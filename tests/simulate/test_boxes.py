"""Transfers as the walk counts them: within the limits of their path, and all bytes of a box."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from deeploy.graph.target import DmaPath
from deeploy.simulate.boxes import Axis, transfers

PATHS = st.builds(
    DmaPath,
    name=st.just("path"),
    near=st.just("near"),
    far=st.just("far"),
    max_bytes=st.sampled_from([1, 3, 8, 64, 65535]),
    max_rows=st.sampled_from([1, 2, 5, 65535]),
    max_total=st.sampled_from([4, 17, 100, 131071]),
    max_pitch=st.sampled_from([0, 12, 40, 65535]),
)
AXES = st.lists(st.builds(Axis, count=st.integers(0, 5), pitch=st.integers(0, 60)), max_size=4)


@given(PATHS, st.integers(0, 40), AXES)
def test_transfers_keep_the_limits_and_move_everything(path: DmaPath, run: int, axes: list[Axis]) -> None:
    found = transfers(path, run, axes)
    for batch in found:
        assert batch.count >= 1
        assert 1 <= batch.bytes <= path.max_bytes
        assert 1 <= batch.rows <= path.max_rows
        assert batch.bytes * batch.rows <= path.max_total
    assert sum(batch.count * batch.bytes * batch.rows for batch in found) == run * math.prod(axis.count for axis in axes)


@given(PATHS, st.integers(1, 40), AXES)
def test_rows_that_are_too_far_apart_move_alone(path: DmaPath, run: int, axes: list[Axis]) -> None:
    found = transfers(path, run, axes)
    if all(axis.pitch > path.max_pitch for axis in axes):
        assert all(batch.rows == 1 for batch in found)
