"""Where the cycles of a Plan go: what a walk over it (``deeploy.execution.simulation.walk``) finds, and its summary for scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deeploy.documents import Contents
from deeploy.planning.energy import STATIC, Energy


class Interval(NamedTuple):
    """Something that a resource does from one cycle to another.

    Attributes:
        lane: the engine or the path.
        kind: ``compute``, ``overhead``, ``issue`` or ``wait`` on the engine; ``in`` or ``out`` on a path.
        step: the call that runs; ``owner`` the call that it is for.
        label: the operand, the constant, or what is waited for.
    """

    lane: str
    kind: str
    start: float
    end: float
    step: int
    owner: int
    label: str
    tile: int
    bytes: int


@dataclass
class Traffic:
    """What a path moved: bytes to its near and to its far memory, rows, transfers, and the cycles that took."""

    bytes_in: int = 0
    bytes_out: int = 0
    rows: int = 0
    transfers: int = 0
    busy: float = 0.0

    @property
    def bytes(self) -> int:
        return self.bytes_in + self.bytes_out

    def add(self, more: Traffic) -> None:
        """Adds what another path or call moved to these counts."""
        self.bytes_in += more.bytes_in
        self.bytes_out += more.bytes_out
        self.rows += more.rows
        self.transfers += more.transfers
        self.busy += more.busy


@dataclass
class CallTiming:
    """Where the cycles of one call go; the shares add up to ``end - start``.

    Attributes:
        compute: cycles in kernels, of the core with the largest share of every tile.
        overhead: forks, set-up of tiles, calls of kernels.
        issue: cycles that the first core spends to start transfers.
        stalls: cycles it waits, by path and reason.
        traffic: by path, of the windows and constants of this call, whenever they move.
        worked: cycles of accelerators.
        read: bytes of constants that kernels read where they lie, by memory.
    """

    name: str
    start: float
    end: float = 0.0
    compute: float = 0.0
    overhead: float = 0.0
    issue: float = 0.0
    stalls: dict[str, dict[str, float]] = field(default_factory=dict)
    traffic: dict[str, Traffic] = field(default_factory=dict)
    worked: dict[str, float] = field(default_factory=dict)
    read: Mapping[str, int] = field(default_factory=dict)

    @property
    def cycles(self) -> float:
        return self.end - self.start

    @property
    def stalled(self) -> float:
        """Cycles in which the call waits, for whatever reason."""
        return sum(sum(reasons.values()) for reasons in self.stalls.values())

    @property
    def bound(self) -> str:
        """What is busiest on the call's behalf: ``compute``, ``overhead`` or a path."""
        busy = {"compute": self.compute, "overhead": self.overhead + self.issue}
        busy |= {path: traffic.busy for path, traffic in self.traffic.items()}
        return max(busy, key=lambda name: busy[name])


@dataclass(frozen=True)
class Engines:
    """Cycles in which accelerators work, in which cores compute, and in which both do."""

    accelerators: float = 0.0
    cores: float = 0.0
    both: float = 0.0

    @property
    def hidden(self) -> float | None:
        """The share of what takes less time that is hidden behind the other: ``(A + C - T) / min(A, C)``, where T is when either works.

        None where one of them has nothing to do.
        """
        least = min(self.accelerators, self.cores)
        return self.both / least if least else None


def engine_overlap(jobs: Sequence[tuple[float, float]], computed: Sequence[tuple[float, float]]) -> Engines:
    """Cycles in which accelerators work, in which cores do, and in which both do, from their intervals [begin, end)."""
    both, first = 0.0, 0
    for begin, end in jobs:
        while first < len(computed) and computed[first][1] <= begin:
            first += 1
        for other in range(first, len(computed)):
            if computed[other][0] >= end:
                break
            both += min(end, computed[other][1]) - max(begin, computed[other][0])
    return Engines(sum(end - begin for begin, end in jobs), sum(end - begin for begin, end in computed), both)


@dataclass(frozen=True)
class Run:
    """One inference, predicted.

    Attributes:
        engines: how long accelerators and cores work, and at the same time.
        lanes: the engines and paths that intervals name.
        waits, forks: how often the first core waits, per path, and how often it forks a team.
    """

    cycles: float
    calls: tuple[CallTiming, ...]
    traffic: Mapping[str, Traffic]
    intervals: tuple[Interval, ...]
    lanes: tuple[str, ...]
    mhz: float
    energy: Energy
    waits: Mapping[str, int]
    forks: int
    engines: Engines = Engines()

    @property
    def shares(self) -> dict[str, float]:
        """Cycles of all calls by what they are spent on; exposed transfers under the name of their path."""
        total = {"compute": 0.0, "overhead": 0.0, "issue": 0.0} | dict.fromkeys(self.traffic, 0.0)
        for call in self.calls:
            total["compute"] += call.compute
            total["overhead"] += call.overhead
            total["issue"] += call.issue
            for path, reasons in call.stalls.items():
                total[path] = total.get(path, 0.0) + sum(reasons.values())
        return total


def summarise_run(run: Run) -> Contents:
    """What ``deploy.json`` says of a run; cycles as whole numbers, energy in microjoule."""
    return {
        "cycles": round(run.cycles),
        "microseconds": round(run.cycles / run.mhz, 3),
        "forks": run.forks,
        "engines": {
            "accelerators": round(run.engines.accelerators),
            "cores": round(run.engines.cores),
            "both": round(run.engines.both),
            "hidden": None if run.engines.hidden is None else round(run.engines.hidden, 4),
        },
        "shares": _round_values(run.shares),
        "bytes": {name: traffic.bytes for name, traffic in run.traffic.items()},
        "traffic": {name: _describe_traffic(traffic) for name, traffic in run.traffic.items()},
        "utilisation": {name: round(t.busy / run.cycles, 4) if run.cycles else 0.0 for name, t in run.traffic.items()},
        "energy_uj": round(run.energy.total, 3) if run.energy.total or not run.energy.missing else None,
        "energy": {name: round(value, 3) for name, value in run.energy.parts.items()},
        "energy_missing": list(run.energy.missing),
        "calls": [_summarise_call(call) | {"energy": _call_energy(run, call)} for call in run.calls],
    }


def _summarise_call(call: CallTiming) -> Contents:
    start, end = round(call.start), round(call.end)
    return {
        "cycles": end - start,
        "start": start,
        "bound": call.bound,
        "compute": round(call.compute),
        "overhead": round(call.overhead),
        "issue": round(call.issue),
        "stalls": {path: _round_values(reasons) for path, reasons in call.stalls.items()},
        "traffic": {path: _describe_traffic(traffic) for path, traffic in call.traffic.items()},
    }


def _call_energy(run: Run, call: CallTiming) -> dict[str, float]:
    """What a call takes of every part of the energy."""
    spent, share = run.energy, call.cycles / run.cycles if run.cycles else 0.0
    worked = {name: sum(one.worked.get(name, 0.0) for one in run.calls) for name in spent.accelerators}
    parts = {"cores": spent.cores * share, **({STATIC: spent.static * share} if spent.static else {})}
    parts |= {name: whole * call.worked.get(name, 0.0) / worked[name] for name, whole in spent.accelerators.items() if worked[name]}
    parts |= {name: spent.paths[name] * moved.bytes / run.traffic[name].bytes for name, moved in call.traffic.items() if moved.bytes}
    read = {name: sum(one.read.get(name, 0) for one in run.calls) for name in spent.memories}
    parts |= {name: whole * call.read[name] / read[name] for name, whole in spent.memories.items() if name in call.read}
    return {name: round(value, 4) for name, value in parts.items()}


def _round_values(values: Mapping[str, float]) -> dict[str, int]:
    return {name: round(value) for name, value in values.items()}


def _describe_traffic(traffic: Traffic) -> dict[str, int]:
    return {
        "in": traffic.bytes_in,
        "out": traffic.bytes_out,
        "rows": traffic.rows,
        "transfers": traffic.transfers,
        "busy": round(traffic.busy),
    }
