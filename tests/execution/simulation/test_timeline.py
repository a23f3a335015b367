"""The timeline for drawing: nothing is lost where there is room, and crowds keep their bytes and their place."""

from __future__ import annotations

import itertools

import pytest

from deeploy.execution.simulation.timeline import MANY, make_timeline, thin_intervals
from deeploy.execution.simulation.timing import Run
from deeploy.execution.simulation.walk import walk_plan
from deeploy.options import Options
from tests.execution.simulation.nets import convolutions

FIELDS = ("lane", "kind", "start", "cycles", "step", "owner", "label", "tile", "bytes")  # of an event, by position


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return walk_plan(convolutions(tmp_path_factory.mktemp("timeline"), Options(memory={"l1": 2500}, buffering="single")).plan)


def test_events_stand_for_intervals(run: Run) -> None:
    told = make_timeline(run)
    assert len(told["events"]) == len(run.intervals) and MANY not in told["kinds"]
    intervals = sorted(run.intervals, key=lambda i: (i.start, i.end, i.lane))
    for event, interval in zip(told["events"], intervals, strict=True):
        entry = dict(zip(FIELDS, event, strict=True))
        assert told["lanes"][entry["lane"]] == interval.lane
        assert told["kinds"][entry["kind"]] == interval.kind
        assert told["labels"][entry["label"]] == interval.label
        assert (entry["start"], entry["bytes"], entry["tile"]) == (round(interval.start, 1), interval.bytes, interval.tile)
        assert entry["cycles"] == pytest.approx(interval.end - interval.start, abs=0.06)
    assert [(c["name"], c["end"]) for c in told["calls"]] == [(c.name, round(c.end)) for c in run.calls]


def test_crowds_become_one(run: Run) -> None:
    few = thin_intervals(run, 100)
    assert len(few) < len(run.intervals) / 2
    assert sum(i.bytes for i in few) == sum(i.bytes for i in run.intervals)
    many = [i for i in few if i.kind == MANY]
    assert many and len(few) - len(many) + sum(int(i.label.split()[0]) for i in many) == len(run.intervals)
    for lane in run.lanes:
        inside = [i for i in few if i.lane == lane]
        assert all(a.end <= b.start + 1e-6 for a, b in itertools.pairwise(inside))
        whole = sorted((i for i in run.intervals if i.lane == lane), key=lambda i: i.start)
        assert [(i.start, i.end) for i in (inside[:1] + inside[-1:])] == [(i.start, i.end) for i in (whole[:1] + whole[-1:])]


def test_nothing_to_draw(run: Run) -> None:
    empty = Run(0.0, (), {}, (), (), 100.0, run.energy, {}, 0)
    assert make_timeline(empty)["events"] == [] and thin_intervals(empty, 10) == []
