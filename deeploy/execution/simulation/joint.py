"""What all chips of a system do at the same time, in few rectangles for a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deeploy.execution.simulation.timing import Interval, Run

COLUMNS = 1400  # of the picture: what is shorter than one of them is joined with its neighbours

# What the row of the cores shows of each kind of interval; where the first core waits for another chip, it is ``link``.
_SHOWN = {"compute": "compute", "overhead": "overhead", "issue": "overhead", "wait": "wait"}

DrawnBar = tuple[str, float, float]  # kind, begin and end in cycles
BarsByRow = Mapping[str, Sequence[DrawnBar]]  # by row: the cores, and every path


def draw_joint_rows(runs: Sequence[Run], link: str) -> list[BarsByRow]:
    """The rows of every chip; intervals of one kind with less than a column between them are one."""
    most = max((run.cycles for run in runs), default=0.0)
    return [_chip_rows(run, most / COLUMNS, link) for run in runs]


def _chip_rows(run: Run, column: float, link: str) -> BarsByRow:
    rows: dict[str, list[DrawnBar]] = {row: [] for row in ("cores", *run.traffic)}
    for interval in sorted(run.intervals, key=lambda i: i.start):
        row = interval.lane if interval.lane in run.traffic else "cores"
        kind = interval.kind if row != "cores" else _interval_kind(interval, link)
        bars = rows[row]
        if bars and bars[-1][0] == kind and interval.start - bars[-1][2] < column:
            bars[-1] = (kind, bars[-1][1], max(bars[-1][2], interval.end))
        elif interval.end - interval.start >= column or not bars or interval.start - bars[-1][2] >= column:
            bars.append((kind, interval.start, interval.end))
        else:  # too short to be seen
            bars[-1] = (bars[-1][0], bars[-1][1], max(bars[-1][2], interval.end))
    return rows


def _interval_kind(interval: Interval, link: str) -> str:
    if interval.kind == "wait" and interval.label.startswith(f"{link}:"):
        return link
    return _SHOWN.get(interval.kind, "wait")
