"""Transfers as the walk counts them: within the limits of their path, and all bytes of a box."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeploy.execution.simulation.boxes import Batch, BoxAxis, box_transfers
from deeploy.ir.target import DmaPath

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
AXES = st.lists(st.builds(BoxAxis, count=st.integers(0, 5), pitch=st.integers(0, 60)), max_size=4)


@given(PATHS, st.integers(0, 40), AXES)
def test_transfers_keep_the_limits_and_move_everything(path: DmaPath, run: int, axes: list[BoxAxis]) -> None:
    found = box_transfers(path, run, axes)
    for batch in found:
        assert batch.count >= 1
        assert 1 <= batch.bytes <= path.max_bytes
        assert 1 <= batch.rows <= path.max_rows
        assert batch.bytes * batch.rows <= path.max_total
    assert sum(batch.count * batch.bytes * batch.rows for batch in found) == run * math.prod(axis.count for axis in axes)


@given(PATHS, st.integers(1, 40), AXES)
def test_rows_that_are_too_far_apart_move_alone(path: DmaPath, run: int, axes: list[BoxAxis]) -> None:
    found = box_transfers(path, run, axes)
    if all(axis.pitch > path.max_pitch for axis in axes):
        assert all(batch.rows == 1 for batch in found)


@pytest.mark.parametrize(
    ("limits", "run", "pitch", "found"),
    [
        ({}, 20, 30, [(1, 20, 5), (1, 20, 2)]),
        ({"max_rows": 2}, 20, 30, [(3, 20, 2), (1, 20, 1)]),
        ({"max_total": 60}, 20, 30, [(2, 20, 3), (1, 20, 1)]),
        ({"max_pitch": 29}, 20, 30, [(7, 20, 1)]),
        ({"max_bytes": 19}, 20, 30, [(7, 19, 1), (7, 1, 1)]),
        ({"max_total": 19}, 20, 30, [(7, 19, 1), (7, 1, 1)]),
        ({}, 20, 20, [(3, 40, 1), (1, 20, 1)]),
        ({"max_total": 30}, 20, 20, [(4, 30, 1), (1, 20, 1)]),
    ],
)
def test_each_limit_cuts_seven_rows(limits: dict[str, int], run: int, pitch: int, found: list[tuple[int, int, int]]) -> None:
    path = replace(DmaPath("path", "near", "far", max_bytes=40, max_rows=5, max_total=100, max_pitch=30), **limits)
    assert box_transfers(path, run, [BoxAxis(7, pitch)]) == tuple(Batch(*batch) for batch in found)
