"""A predicted run as a file of Chrome trace events, for ui.perfetto.dev or chrome://tracing.

Format: "Trace Event Format", the JSON object form: complete events (``ph`` X) with ``ts`` and ``dur`` in microseconds, metadata (M) that
names processes and threads, and counters (C). A network is a process; its threads are the calls, the engines and the paths.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping

from deeploy.documents import Contents, Document
from deeploy.errors import shorten
from deeploy.execution.simulation.timeline import MANY, thin_intervals
from deeploy.execution.simulation.timing import Interval, Run
from deeploy.planning.plan import Plan

MOST_EVENTS = 50_000  # of a network; beyond that, those in the middle of a call are drawn as one
FEWEST_EVENTS = 2_000  # of a chip in the trace of many
CALLS = 1  # the thread that shows which call runs
_KINDS = {"in": "fetch", "out": "store"}


def write_trace(runs: Mapping[str, tuple[Plan, Run]], most: int = MOST_EVENTS) -> str:
    """The contents of ``trace.json``: every network with its plan and run, of ``most`` events or so each."""
    events: list[Contents] = []
    for pid, (name, (plan, run)) in enumerate(runs.items(), start=1):
        events += _name_threads(pid, name, run)
        events += _call_events(pid, plan, run)
        tids = {lane: CALLS + 1 + index for index, lane in enumerate(run.lanes)}
        events += [_interval_event(pid, tids[interval.lane], interval, plan, run) for interval in thin_intervals(run, most)]
    # One line per event; within a string, quotes are escaped.
    lines = json.dumps(events, separators=(",", ":")).replace('},{"ph":', '},\n{"ph":')
    return f'{{"displayTimeUnit":"ns","traceEvents":[\n{lines[1:-1]}\n]}}\n'


def _name_threads(pid: int, name: str, run: Run) -> list[Contents]:
    """Metadata: the name of the process, and names and order of its threads."""
    events: list[Contents] = [{"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}]
    for tid, thread in enumerate(("calls", *run.lanes), start=CALLS):
        events.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": thread}})
        events.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
    return events


def _call_events(pid: int, plan: Plan, run: Run) -> list[Contents]:
    """One event per call, and the bytes of every memory that are in use during it."""
    events: list[Contents] = []
    used = {level: _used_bytes(plan, level) for level in plan.memory}
    for step, (call, timing) in enumerate(zip(plan.program.calls, run.calls, strict=True)):
        shares = {"compute": round(timing.compute), "overhead": round(timing.overhead), "issue": round(timing.issue)}
        stalls = {path: {reason: round(cycles) for reason, cycles in stall_cycles.items()} for path, stall_cycles in timing.stalls.items()}
        about = {"node": shorten(call.node.name), "kernel": call.kernel.name, "bound": timing.bound, "cycles": shares, "stalls": stalls}
        events.append(_span_event(pid, CALLS, timing.name, "call", timing.start, timing.end, run, about))
        at = _to_microseconds(timing.start, run)
        for level, counts in used.items():
            events.append({"ph": "C", "pid": pid, "tid": 0, "ts": at, "name": f"bytes in {level}", "args": {"bytes": counts[step]}})
    return events


def _used_bytes(plan: Plan, level: str) -> list[int]:
    """Bytes of a level's arena that are in use, per step."""
    steps = len(plan.program.calls)
    changes = [0] * (steps + 2)
    for placement in plan.placements:
        if placement.level == level:
            changes[max(0, placement.first)] += placement.size
            changes[min(placement.last, steps) + 1] -= placement.size
    return list(itertools.accumulate(changes))


def _interval_event(pid: int, tid: int, interval: Interval, plan: Plan, run: Run) -> Contents:
    about: Contents = {"call": plan.program.calls[interval.owner].name, "cycles": round(interval.end - interval.start)}
    if interval.tile >= 0:
        about["tile"] = interval.tile
    if interval.bytes:
        about["bytes"] = interval.bytes
    kind = _KINDS.get(interval.kind, interval.kind)
    name = interval.label if interval.kind in ("compute", "overhead", MANY) else f"{kind} {interval.label}"
    return _span_event(pid, tid, shorten(name), kind, interval.start, interval.end, run, about)


def _span_event(pid: int, tid: int, name: str, category: str, start: float, end: float, run: Run, about: Document) -> Contents:
    begin = _to_microseconds(start, run)
    duration = round(_to_microseconds(end, run) - begin, 4)
    return {"ph": "X", "pid": pid, "tid": tid, "ts": begin, "dur": duration, "name": name, "cat": category, "args": about}


def _to_microseconds(cycles: float, run: Run) -> float:
    return round(cycles / run.mhz, 4)
