"""The trace file: what a viewer needs is there, and it says what the walk found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deeploy.execution.simulation.timing import Run
from deeploy.execution.simulation.trace import write_trace
from deeploy.execution.simulation.walk import walk_plan
from deeploy.options import Options
from tests.execution.simulation.nets import compile_nodes, convolutions, node


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, list[dict[str, Any]]]]:
    """A network's run, and the events of its trace by phase."""
    plan = convolutions(tmp_path_factory.mktemp("trace"), Options(memory={"l1": 3000})).plan
    run = walk_plan(plan)
    contents = json.loads(write_trace({"network": (plan, run)}))
    assert set(contents) == {"displayTimeUnit", "traceEvents"}
    phases: dict[str, list[dict[str, Any]]] = {}
    for event in contents["traceEvents"]:
        phases.setdefault(event["ph"], []).append(event)
    return run, phases


def test_every_event_is_complete(traced: tuple[Run, dict[str, list[dict[str, Any]]]]) -> None:
    run, phases = traced
    assert set(phases) == {"M", "X", "C"}
    for event in phases["X"]:
        assert {"ph", "pid", "tid", "ts", "dur", "name", "cat", "args"} == set(event)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and isinstance(event["name"], str) and event["name"]
        assert isinstance(event["ts"], float | int) and isinstance(event["dur"], float | int)
        assert event["dur"] >= 0 and 0 <= event["ts"] <= run.cycles / run.mhz + 0.001
    for event in phases["C"]:
        assert set(event) == {"ph", "pid", "tid", "ts", "name", "args"}


def test_processes_and_threads_have_names(traced: tuple[Run, dict[str, list[dict[str, Any]]]]) -> None:
    run, phases = traced
    names = {(e["name"], e["tid"]): e["args"] for e in phases["M"]}
    assert names["process_name", 0] == {"name": "network"}
    threads = {tid: args["name"] for (name, tid), args in names.items() if name == "thread_name"}
    assert list(threads.values()) == ["calls", *run.lanes]
    assert {e["tid"] for e in phases["X"]} <= set(threads)


def test_events_are_those_of_the_run(traced: tuple[Run, dict[str, list[dict[str, Any]]]]) -> None:
    run, phases = traced
    kinds = Counter(e["cat"] for e in phases["X"])
    found = Counter({"in": "fetch", "out": "store"}.get(i.kind, i.kind) for i in run.intervals)
    assert kinds == found + Counter({"call": len(run.calls)})
    moved = sum(e["args"].get("bytes", 0) for e in phases["X"])
    assert moved == sum(t.bytes for t in run.traffic.values())
    calls = [e for e in phases["X"] if e["cat"] == "call"]
    assert sum(e["dur"] for e in calls) == pytest.approx(run.cycles / run.mhz, rel=1e-4)


def test_counters_are_the_bytes_in_use(tmp_path: Path) -> None:
    plan = convolutions(tmp_path, Options(memory={"l1": 2500, "l2": 14000}, default_memory="L3")).plan
    counters = [e for e in json.loads(write_trace({"n": (plan, walk_plan(plan))}))["traceEvents"] if e["ph"] == "C"]
    for level in plan.memory:
        found = [e["args"]["bytes"] for e in counters if e["name"] == f"bytes in {level}"]
        alive = [
            sum(p.size for p in plan.placements if p.level == level and p.first <= step <= p.last)
            for step in range(len(plan.program.calls))
        ]
        assert found == alive


def test_networks_are_processes_and_hostile_names_stay_on_one_line(tmp_path: Path) -> None:
    plan = compile_nodes(tmp_path, [node("Neg", "x", "y")], {"x": [4, 8]}, {"y": [4, 8]}, {}, Options(memory={"l1": 4000}), "siracusa").plan
    runs = {name: (plan, walk_plan(plan)) for name in ("a", 'b"\n</script>\u2028')}
    text = write_trace(runs)
    events = json.loads(text)["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == list(runs)
    assert {e["pid"] for e in events} == {1, 2}
    assert text.isascii() and len(text.splitlines()) == len(events) + 2
