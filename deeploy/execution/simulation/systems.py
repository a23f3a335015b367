"""Discrete events over all chips of a system, and over the links between them.

Every chip is walked as a single one is (``deeploy.execution.simulation.walk``), up to its next Send or Recv; the chip that is
furthest behind goes on first. A message leaves when its Send is reached, or when a port of the sender and one of the receiver are
free, in the order of these moments; its Recv waits until it has arrived. A Send waits while as many messages as the topology's queue
says are under way or wait to be received.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from deeploy.documents import Contents
from deeploy.execution.simulation.timing import Run
from deeploy.execution.simulation.walk import Walk
from deeploy.ir.topology import Ports, Topology
from deeploy.planning.energy import STATIC, core_milliwatt
from deeploy.planning.plan import Plan
from deeploy.planning.program import Call

LINK = "link"


@dataclass(frozen=True)
class Delivery:
    """One message: when its first byte leaves and its last one has arrived, in cycles; picojoule on its way."""

    sender: int
    receiver: int
    tag: int
    bytes: int
    start: float
    end: float
    picojoule: float


@dataclass(frozen=True)
class SystemEnergy:
    """Microjoules of one inference by ``E = N_C2C E_C2C + sum over chips (P T_comp + N_L3 E_L3 + N_L2 E_L2)``, and what chips take besides.

    That is the formula of the paper on distributed inference, section V. T_comp are the cycles in which a chip's cores compute, set up
    and begin transfers; while they wait they are off. ``waiting`` is what they would take if they stayed on. The paper has no term for
    ``static``, which all chips take for as long as one of them works.
    """

    links: float
    cores: float
    paths: dict[str, float]
    waiting: float
    static: float = 0.0
    missing: tuple[str, ...] = ()

    @property
    def formula(self) -> float:
        """By the paper's formula; accelerators and memories that they read count among ``paths``."""
        return self.links + self.cores + sum(self.paths.values())

    @property
    def total(self) -> float:
        return self.formula + self.static


@dataclass(frozen=True)
class SystemRun:
    """One inference of a system, predicted; ``chips`` are their own runs, ``deliveries`` the messages in the order of their starts."""

    cycles: float
    chips: tuple[Run, ...]
    deliveries: tuple[Delivery, ...]
    mhz: float
    energy: SystemEnergy

    @property
    def milliseconds(self) -> float:
        return self.cycles / self.mhz / 1e3

    @property
    def link_bytes(self) -> int:
        """Bytes that all messages between chips carry in one inference."""
        return sum(delivery.bytes for delivery in self.deliveries)

    def waited(self, chip: int) -> float:
        """Cycles in which a chip waits for messages of others during one inference."""
        return self.chips[chip].shares.get(LINK, 0.0)


class _RunningLinks:
    """Ports and queues of all chips."""

    def __init__(self, topology: Topology, chips: int, hertz: float) -> None:
        self.topology = topology
        self.hertz = hertz
        self.chips = chips
        self.ports = Ports(topology, chips)
        self.lines: dict[tuple[int, int], deque[Delivery]] = {}
        self.deliveries: list[Delivery] = []

    def is_full(self, sender: int, receiver: int) -> bool:
        return len(self.lines.get((sender, receiver), ())) >= self.topology.queue

    def send(self, sender: int, call: Call, now: float) -> None:
        receiver, tag = int(call.node.attrs["peer"]), int(call.node.attrs["tag"])
        tensor = call.node.inputs[0]
        assert tensor is not None
        count = tensor.elements * tensor.dtype.bytes
        start, end = self.ports.move(sender, receiver, self.topology.seconds(sender, receiver, count, self.chips) * self.hertz, now)
        links = self.topology.links_between(sender, receiver, self.chips)
        delivery = Delivery(sender, receiver, tag, count, start, end, count * sum(link.pj_per_byte for link in links))
        self.lines.setdefault((sender, receiver), deque()).append(delivery)
        self.deliveries.append(delivery)


def walk_system(plans: Sequence[Plan], topology: Topology) -> SystemRun:
    """Predict one inference of the plans of all chips, for a target with a timing, whose clock that of all chips is."""
    events = _Events(plans, topology, 1)
    events.run()
    runs = tuple(rounds[0] for rounds in events.results)
    deliveries = tuple(sorted(events.links.deliveries, key=lambda delivery: (delivery.start, delivery.sender, delivery.receiver)))
    return SystemRun(max(run.cycles for run in runs), runs, deliveries, clock_of(plans), _system_energy(plans, runs, deliveries))


@dataclass(frozen=True)
class OutputStream:
    """Inferences that follow each other as closely as they can, each chip going on with the next one when it is done with one.

    Attributes:
        latency: cycles of one input that meets idle chips.
        interval: cycles between two outputs, once all chips are busy.
        idle: per chip, the part of the interval in which it waits for others.
    """

    latency: float
    interval: float
    idle: tuple[float, ...]


def walk_stream(plans: Sequence[Plan], topology: Topology, inferences: int) -> OutputStream:
    """Predict as many inferences of a system, at least two, one behind the other."""
    events = _Events(plans, topology, inferences)
    events.run()
    ends = [max(rounds[number].cycles for rounds in events.results) for number in range(inferences)]
    first = inferences // 2
    interval = (ends[-1] - ends[first - 1]) / (inferences - first)
    busy = [sum(rounds[-1].shares.values()) - rounds[-1].shares.get(LINK, 0.0) for rounds in events.results]
    return OutputStream(ends[0], interval, tuple(max(0.0, 1 - cycles / interval) for cycles in busy))


class _Events:
    """What all chips do, in the order of time; ``results`` are the runs of every chip, one for each inference."""

    def __init__(self, plans: Sequence[Plan], topology: Topology, inferences: int) -> None:
        self.plans = plans
        self.inferences = inferences
        self.walks = [Walk(plan) for plan in plans]
        self.links = _RunningLinks(topology, len(plans), clock_of(plans) * 1e6)
        self.done = [0] * len(plans)  # calls of the inference that is under way
        self.results: list[list[Run]] = [[] for _ in plans]

    def run(self) -> None:
        """Walks through the calls of all chips, the earliest first, until each chip has done all inferences."""
        ready = [(0.0, chip) for chip in range(len(self.plans))]
        blocked: dict[int, bool] = {}  # and whether it is to send
        while ready:
            _, chip = heapq.heappop(ready)
            if self.is_over(chip):
                continue
            walk, step = self.walks[chip], self.done[chip]
            call = walk.calls[step]
            if call.kernel.link is not None and not _may_go_on(self.links, chip, call):
                blocked[chip] = call.kernel.link == "send"
                continue
            self.advance(chip)
            heapq.heappush(ready, (walk.now, chip))
            if call.kernel.link is not None and (peer := int(call.node.attrs["peer"])) in blocked:
                if blocked.pop(peer) and call.kernel.link == "recv" and self.done[peer]:
                    self.walks[peer].wait_for(walk.now, LINK, f"until chip {chip} has room")
                heapq.heappush(ready, (self.walks[peer].now, peer))

    def is_over(self, chip: int) -> bool:
        """Whether a chip has done everything; the next inference begins where one ends."""
        while self.done[chip] == len(self.walks[chip].calls):
            now = self.walks[chip].now
            self.results[chip].append(self.walks[chip].result())
            if len(self.results[chip]) == self.inferences:
                return True
            self.walks[chip], self.done[chip] = Walk(self.plans[chip], now), 0
        return False

    def advance(self, chip: int) -> None:
        """The next call of a chip, and its message."""
        walk, step = self.walks[chip], self.done[chip]
        call = walk.calls[step]
        self.done[chip] += 1
        walk.call(step)
        if call.kernel.link == "send":
            self.links.send(chip, call, walk.now)
        elif call.kernel.link is not None:
            delivery = self.links.lines[int(call.node.attrs["peer"]), chip].popleft()
            walk.wait_for(delivery.end, LINK, f"from chip {delivery.sender}")


def _may_go_on(links: _RunningLinks, chip: int, call: Call) -> bool:
    """Whether a Send has room and a Recv has a message."""
    peer = int(call.node.attrs["peer"])
    return not links.is_full(chip, peer) if call.kernel.link == "send" else bool(links.lines.get((peer, chip)))


def clock_of(plans: Sequence[Plan]) -> float:
    """The clock of the plans' chips, in MHz: that of their target's timing."""
    timing = plans[0].target.timing
    assert timing is not None
    return timing.mhz


def _system_energy(plans: Sequence[Plan], runs: Sequence[Run], deliveries: Sequence[Delivery]) -> SystemEnergy:
    mhz, cores, waiting = clock_of(plans), 0.0, 0.0
    paths: dict[str, float] = {}
    for plan, run in zip(plans, runs, strict=True):
        power = core_milliwatt(plan) / 1e3
        busy = sum(run.shares[name] for name in ("compute", "overhead", "issue"))
        cores += power * busy / mhz
        waiting += power * (run.cycles - busy) / mhz
        for name, microjoule in {**run.energy.paths, **run.energy.accelerators, **run.energy.memories}.items():
            paths[name] = paths.get(name, 0.0) + microjoule
    timing = plans[0].target.timing
    static = (timing.static_mw if timing else 0.0) * len(plans) * max(run.cycles for run in runs) / mhz / 1e3
    missing = tuple(dict.fromkeys(name for run in runs for name in run.energy.missing))
    return SystemEnergy(sum(delivery.picojoule for delivery in deliveries) / 1e6, cores, paths, waiting, static, missing)


def system_summary(run: SystemRun | None, streamed: OutputStream | None) -> Contents:
    """What ``deploy.json`` says of a system: cycles, bytes and energy of one inference, and what streams of them come to."""
    if run is None:
        return {"cycles": None, "microseconds": None, "bytes": {}, "shares": {}, "energy_uj": None, "energy": {}, "stream": None}
    shares: dict[str, float] = {}
    moved: dict[str, int] = {}
    for chip in run.chips:
        for name, cycles in chip.shares.items():
            shares[name] = shares.get(name, 0.0) + cycles / len(run.chips)
        for name, traffic in chip.traffic.items():
            moved[name] = moved.get(name, 0) + traffic.bytes
    static = {STATIC: run.energy.static} if run.energy.static else {}
    energy = {"cores": run.energy.cores, LINK: run.energy.links, **run.energy.paths, **static}
    parts = {name: round(value, 3) for name, value in energy.items()}
    return {
        "cycles": round(run.cycles),
        "microseconds": round(run.cycles / run.mhz, 3),
        "bytes": {**moved, LINK: run.link_bytes},
        "shares": {name: round(cycles) for name, cycles in shares.items()},
        "energy_uj": round(run.energy.total, 3),
        "energy": parts,
        "waiting_uj": round(run.energy.waiting, 3),
        "energy_missing": list(run.energy.missing),
        "edp_uj_ms": round(run.energy.total * run.milliseconds, 3),
        "stream": None if streamed is None else _describe_stream(run, streamed),
    }


def _describe_stream(run: SystemRun, streamed: OutputStream) -> Contents:
    return {
        "latency": round(streamed.latency),
        "interval": round(streamed.interval),
        "per_second": round(run.mhz * 1e6 / streamed.interval, 3),
        "idle": [round(part, 4) for part in streamed.idle],
    }
