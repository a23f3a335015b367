"""Inputs that stream through pipelines: order, throughput, what waits for what."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeploy.simulate.stream import stream

TIMES = st.integers(1, 20)


def test_two_stages_by_hand() -> None:
    found = stream([3, 5], [2], 1, 3)
    assert found.starts[0] == (0, 3, 6) and found.ends[0] == (3, 6, 9)
    assert found.starts[1] == (5, 10, 15) and found.ends[1] == (10, 15, 20)
    assert (found.total, found.pace, found.latencies) == (20, 5, (10, 12, 14))
    assert found.idle == pytest.approx((1 - 9 / 20, 1 - 15 / 20))


def test_a_full_queue_stops_the_stage_before_it() -> None:
    assert stream([1, 10], [1], 1, 4).starts[0] == (0, 1, 2, 12)  # the third result waits until the second is taken
    assert stream([1, 10], [1], 2, 4).starts[0] == (0, 1, 2, 3)


def test_one_stage_is_never_idle() -> None:
    found = stream([4], [], 2, 5)
    assert found.total == 20 and found.idle == (0,) and found.latencies == (4,) * 5


@given(st.lists(TIMES, min_size=1, max_size=6), st.data(), st.integers(1, 3), st.integers(1, 30))
def test_inputs_stay_in_order_and_the_slowest_sets_the_pace(stages: list[int], data: st.DataObject, queue: int, inputs: int) -> None:
    links = data.draw(st.lists(TIMES, min_size=len(stages) - 1, max_size=len(stages) - 1))
    found = stream(stages, links, queue, inputs)
    for stage, (starts, ends) in enumerate(zip(found.starts, found.ends, strict=True)):
        assert all(end <= start for end, (_, start) in zip(ends, pairwise(starts), strict=False))
        if stage:
            assert all(found.ends[stage - 1][n] + links[stage - 1] <= starts[n] for n in range(inputs))
    slowest, path = max([*stages, *links]), sum(stages) + sum(links)
    assert found.latencies[0] == path
    assert path + (inputs - 1) * slowest <= found.total <= inputs * path
    alone = [a + b + c for a, b, c in zip([0, *links], stages, [*links, 0], strict=True)]
    assert found.total <= path + (inputs - 1) * max(alone)
    assert all(0 <= idle < 1 for idle in found.idle)


@given(st.lists(TIMES, min_size=2, max_size=5), st.data(), st.integers(2, 20))
def test_a_longer_queue_is_never_slower(stages: list[int], data: st.DataObject, inputs: int) -> None:
    links = data.draw(st.lists(TIMES, min_size=len(stages) - 1, max_size=len(stages) - 1))
    totals = [stream(stages, links, queue, inputs).total for queue in (1, 2, 3)]
    assert totals == sorted(totals, reverse=True)
