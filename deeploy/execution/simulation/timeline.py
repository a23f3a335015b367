"""The timeline of a run in few bytes, for a page that draws it: events as lists, texts by number, crowds as one."""

from __future__ import annotations

from collections.abc import Sequence

from deeploy.documents import Document
from deeploy.execution.simulation.timing import Interval, Run

MOST_EVENTS = 4_000
MANY = "many"  # the kind of an event that stands for others


def make_timeline(run: Run, most: int = MOST_EVENTS) -> Document:
    """Lanes, kinds and labels, and the events as lists ``[lane, kind, start, cycles, step, owner, label, tile, bytes]``.

    Lane, kind and label are numbers. There are about ``most`` events at most; see ``thin_intervals``.
    """
    shown = thin_intervals(run, most)
    kinds = list(dict.fromkeys(interval.kind for interval in shown))
    labels = list(dict.fromkeys(interval.label for interval in shown))
    at = {"lane": {n: i for i, n in enumerate(run.lanes)}, "kind": {n: i for i, n in enumerate(kinds)}}
    words = {n: i for i, n in enumerate(labels)}
    return {
        "cycles": round(run.cycles),
        "mhz": run.mhz,
        "lanes": list(run.lanes),
        "kinds": kinds,
        "labels": labels,
        "calls": [{"name": call.name, "start": round(call.start), "end": round(call.end)} for call in run.calls],
        "events": [
            [
                at["lane"][i.lane],
                at["kind"][i.kind],
                _round_cycles(i.start),
                _round_cycles(i.end - i.start),
                i.step,
                i.owner,
                words[i.label],
                i.tile,
                i.bytes,
            ]
            for i in shown
        ],
    }


def _round_cycles(cycles: float) -> float:
    """A number of cycles with one decimal, which whole ones are written without."""
    rounded = round(cycles, 1)
    return int(rounded) if rounded.is_integer() else rounded


def thin_intervals(run: Run, most: int) -> list[Interval]:
    """The intervals of a run in the order of time.

    Where a run has more than ``most``, those in the middle of a call become one interval per lane, of the kind ``MANY``, whose label says
    how many there are.
    """
    share = min(1.0, most / max(1, len(run.intervals)))
    crowds: dict[tuple[str, int], list[Interval]] = {}
    for interval in run.intervals:
        crowds.setdefault((interval.lane, interval.step), []).append(interval)
    shown = [interval for crowd in crowds.values() for interval in _thin_crowd(crowd, share)]
    return sorted(shown, key=lambda interval: (interval.start, interval.end, interval.lane))


def _thin_crowd(crowd: Sequence[Interval], share: float) -> list[Interval]:
    """The first and last intervals of a crowd as they are, those between as one."""
    half = max(8, int(len(crowd) * share)) // 2
    if share >= 1.0 or len(crowd) <= 2 * half + 1:
        return list(crowd)
    inner = crowd[half:-half]
    busy = sum(i.end - i.start for i in inner)
    span = inner[-1].end - inner[0].start
    label = f"{len(inner)} intervals, {busy / span:.0%} of the time" if span else f"{len(inner)} intervals"
    one = inner[0]._replace(kind=MANY, end=inner[-1].end, label=label, tile=-1, bytes=sum(i.bytes for i in inner))
    return [*crowd[:half], one, *crowd[-half:]]
