"""A discrete-event walk over what the emitted code does, in the order in which it does it.

The first core of the engine issues transfers, waits for them and forks the team; every transfer path serves its transfers one after
the other, in the order of their start, and holds a limited number of them. Cycles of a transfer, a fork and a kernel
are those of the target's timing. Nothing else is modelled: no contention for banks, no interrupts, no start of the cluster.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from deeploy.graph.target import DmaPath, PathTiming
from deeploy.midend import cost
from deeploy.midend.cached import code_of, is_cached
from deeploy.midend.plan import Plan
from deeploy.midend.program import Call
from deeploy.simulate.boxes import Batch, StreamBoxes, boxes_of, whole
from deeploy.simulate.timing import CallTiming, Interval, Run, Traffic, energy

IN, OUT, EARLY = 0, 1, 2  # tickets, as the emitted code numbers them
REASONS = {IN: "windows in", OUT: "windows out"}
CONSTANTS, QUEUE = "constants", "full queue"


def walk(plan: Plan) -> Run:
    """Predict one inference of a plan for a machine with several memories whose target has a timing."""
    return Walk(plan).run()


class _Path:
    """A transfer engine: serves in order, one transfer at a time, and holds at most ``commands``."""

    def __init__(self, path: DmaPath, timing: PathTiming) -> None:
        self.timing = timing
        self.free = 0.0
        self.ends: deque[float] = deque(maxlen=max(1, path.commands))
        self.tickets: dict[int, float] = {}
        self.waits = 0

    def start(self, now: float, batch: Batch, is_store: bool) -> tuple[float, float, float]:
        """Issue equal transfers from ``now`` on: when the last is issued, cycles waited for room, when the first begins.

        Once a queue's length of them went through, either the queue stays full or the path idles between two of them: the
        others are multiplied instead of walked.
        """
        service, latency = self.timing.data(batch.bytes * batch.rows, batch.rows, is_store), self.timing.latency[is_store]
        issue, ends = self.timing.issue, self.ends
        room = ends.maxlen or 1
        stalled, first = 0.0, -1.0
        for done in range(1, batch.count + 1):
            is_full = len(ends) == room and ends[0] > now
            if is_full:
                stalled += ends[0] - now
                now = ends[0]
            now += issue
            is_idle = now >= self.free
            begin = max(now, self.free)
            first = begin if first < 0 else first
            self.free = begin + service
            ends.append(self.free + latency)
            left = batch.count - done
            if done > room and left > room and ((is_idle and not is_full and issue >= service) or (is_full and not is_idle)):
                pace = max(issue, service)
                now, self.free, stalled = now + left * pace, self.free + left * pace, stalled + left * (pace - issue)
                ends.extend([self.free + latency - pace * i for i in reversed(range(room))])
                break
        return now, stalled, first


class Walk:
    """The walk over a plan, call by call, from cycle ``now`` on."""

    def __init__(self, plan: Plan, now: float = 0.0) -> None:
        assert plan.machine is not None and plan.target.timing is not None
        self.plan = plan
        self.calls = plan.program.calls
        self.timing = plan.target.timing
        self.paths = {path.name: _Path(path, self.timing.paths[path.name]) for path in plan.target.paths}
        self.far = plan.target.outward(plan.target.engines[0].memory)[-1].name
        self.now = now
        self.step = 0
        self.intervals: list[Interval] = []
        self.timings: list[CallTiming] = []
        self.boxes = boxes_of(plan)
        self.owed: dict[int, list[tuple[str, Traffic]]] = {}  # traffic of calls that have not begun
        self.followers = plan.followers
        self.codes = [code_of(call, plan.target) for call in self.calls]
        self.forks = 0
        self.moved: set[tuple[int, str, str]] = set()  # windows whose code has run: call, operand, path

    def run(self) -> Run:
        """Every call in turn."""
        for step in range(len(self.calls)):
            self.call(step)
        return self.result()

    def call(self, step: int) -> None:
        """One call, from now on."""
        self.step = step
        self.timings.append(CallTiming(self.calls[step].name, self.now))
        _CallWalk(self, self.calls[step]).run()
        self.timings[-1].end = self.now

    def wait_for(self, moment: float, path: str, reason: str) -> None:
        """What the last call waits for besides transfers, which ends at a moment."""
        stalled = moment - self.now
        if stalled > 0:
            _stall(self.current, path, reason, stalled)
            self.note("wait", stalled, f"{path}: {reason}", -1)
            self.current.end = self.now

    def result(self) -> Run:
        """What all calls together were."""
        traffic = {name: Traffic() for name in self.paths}
        for step, timing in enumerate(self.timings):
            for name, moved in self.owed.get(step, ()):
                timing.traffic.setdefault(name, Traffic()).add(moved)
                traffic[name].add(moved)
        lanes = (*dict.fromkeys(call.kernel.engine for call in self.calls), *self.paths)
        spent = energy(self.plan, self.now, traffic)
        waits = {name: path.waits for name, path in self.paths.items()}
        return Run(self.now, tuple(self.timings), traffic, tuple(self.intervals), lanes, self.timing.mhz, spent, waits, self.forks)

    @property
    def current(self) -> CallTiming:
        return self.timings[-1]

    def note(self, kind: str, cycles: float, label: str, tile: int) -> None:
        """The engine's first core is busy, or waits, for some cycles."""
        if cycles > 0:
            lane = self.calls[self.step].kernel.engine
            self.intervals.append(Interval(lane, kind, self.now, self.now + cycles, self.step, self.step, label, tile, 0))
            self.now += cycles

    def move(self, name: str, batches: Iterable[Batch], ticket: int, is_store: bool, owner: int, label: str, tile: int) -> None:
        """Start transfers of one box under a ticket."""
        path, timing = self.paths[name], self.current
        window = self.window((owner, label, name))
        self.note("issue", window, label, tile)
        timing.issue += window
        moved, begin = Traffic(), -1.0
        for batch in batches:
            size, rows = batch.count * batch.bytes * batch.rows, batch.count * batch.rows
            issued, stalled, first = path.start(self.now, batch, is_store)
            self.note("wait", stalled, f"{name}: {QUEUE}", tile)
            self.note("issue", issued - self.now, label, tile)
            _stall(timing, name, QUEUE, stalled)
            timing.issue += batch.count * path.timing.issue
            busy = path.timing.data(size, rows, is_store)
            moved.add(Traffic(0 if is_store else size, size if is_store else 0, rows, batch.count, busy))
            begin = first if begin < 0 else begin
        if moved.transfers:
            path.tickets[ticket] = path.ends[-1]
            self.owed.setdefault(owner, []).append((name, moved))
            kind = "out" if is_store else "in"
            self.intervals.append(Interval(name, kind, begin, path.free, self.step, owner, label, tile, moved.bytes))

    def window(self, key: tuple[int, str, str]) -> float:
        """Cycles to work out where a window lies: more at first, when the code for it is not cached."""
        loops = self.timing.loops
        if key in self.moved:
            return loops.window
        self.moved.add(key)
        return loops.first_window

    def wait(self, name: str, ticket: int, reason: str, tile: int) -> None:
        """Until everything that was started under a ticket is complete."""
        self.paths[name].waits += 1
        stalled = self.paths[name].tickets.pop(ticket, 0.0) - self.now
        if stalled > 0:
            _stall(self.current, name, reason, stalled)
            self.note("wait", stalled, f"{name}: {reason}", tile)

    def early(self, step: int) -> None:
        """The first windows of the constants of a call, fetched while a call before it runs."""
        for boxes in self.boxes[step]:
            if boxes.stream.is_early:
                self.move(boxes.stream.path, boxes.at(0), EARLY, False, step, boxes.stream.operand, 0)

    def loads(self, step: int) -> None:
        """Whole constants whose fetch begins with a call."""
        path = next(path for path in self.plan.target.paths if path.name == self.far)
        for name in self.plan.loads(step):
            use, buffer = self.plan.first_uses[name], self.plan.program.buffers[name]
            self.move(path.name, whole(path, buffer.bytes), self.plan.load_tickets[use], False, use, buffer.tensor, -1)


class _CallWalk:
    """One call: the loop that the emitter writes for it (``tiled_call.c.mako``)."""

    def __init__(self, walk: Walk, call: Call) -> None:
        self.walk = walk
        self.call = call
        plan, step = walk.plan, walk.step
        assert plan.machine is not None
        self.tiling = plan.tiling(step)
        self.last = self.tiling.tiles - 1
        self.is_double = plan.calls[step].is_double and self.last > 0
        self.following = walk.followers.get(step)
        paths = plan.target.outward(plan.target.engine(call.kernel.engine).memory)
        self.near, self.far = paths[0].name, paths[-1].name
        self.streams: dict[tuple[bool, bool], list[StreamBoxes]] = {}
        for boxes in walk.boxes[step]:
            if not (boxes.stream.is_early and boxes.stream.moves == 1):  # those are there already
                self.streams.setdefault((boxes.stream.path != self.near, boxes.stream.is_output), []).append(boxes)
        outer = [b.stream.loops for is_output in (False, True) for b in self.streams.get((True, is_output), ())][:1]
        self.group = math.prod(loop.trips for loop in self.tiling.loops[outer[0] :]) if outer else 0
        engine = plan.target.engine(call.kernel.engine)
        self.cores = min(plan.machine.cores, engine.cores) if self.tiling.core_dim is not None else 1
        self.is_accelerated = bool(engine.accelerator)
        self.work = cost.work(call, plan.target)
        self.overhead, self.once = cost.overhead(call, plan.target), cost.once(call, is_cached(walk.codes, step), plan.target)
        self.computed: dict[tuple[int, ...], float] = {}
        self.ends = 0.0

    # ---- pieces

    def fetch(self, is_far: bool, tile: int) -> None:
        """What tile ``tile`` needs and the one before it did not."""
        for boxes in self.streams.get((is_far, False), ()):
            stream = boxes.stream
            is_due = tile == 0 if stream.moves == 1 else tile % stream.period == 0
            if is_due and not (stream.is_early and tile == 0):
                self.walk.move(stream.path, boxes.at(tile), IN, False, self.walk.step, stream.operand, tile)

    def store(self, is_far: bool, tile: int) -> None:
        """What tile ``tile`` computed; further out, what its group did."""
        for boxes in self.streams.get((is_far, True), ()):
            self.walk.move(boxes.stream.path, boxes.at(tile), OUT, True, self.walk.step, boxes.stream.operand, tile)

    def wait(self, is_far: bool, is_output: bool, tile: int) -> None:
        """For this call's windows in one direction."""
        ticket = OUT if is_output else IN
        self.walk.wait(self.far if is_far else self.near, ticket, REASONS[ticket], tile)

    def has(self, is_far: bool, is_output: bool) -> bool:
        return bool(self.streams.get((is_far, is_output)))

    def begin(self, tile: int) -> None:
        """Set the tile up for an accelerator, which computes while the first core goes on."""
        if self.is_accelerated:
            self.set_up(tile, 0.0)
            self.ends = self.walk.now + self.compute(tile)

    def team(self, tile: int) -> None:
        """Set the tile up, fork, compute, join; or wait for what an accelerator began to compute."""
        walk = self.walk
        if self.following is not None and tile == self.last:
            walk.early(self.following)
        if self.is_accelerated:
            compute = max(0.0, self.ends - walk.now)
        else:
            self.set_up(tile, walk.timing.fork.get(self.call.kernel.engine, 0.0) if self.cores > 1 else 0.0)
            compute = self.compute(tile)
        walk.note("compute", compute, self.call.name, tile)
        walk.current.compute += compute

    def set_up(self, tile: int, fork: float) -> None:
        """What a tile costs before it is computed."""
        overhead = self.overhead + fork + (self.once if tile == 0 else 0.0)
        self.walk.note("overhead", overhead, "set-up, fork and join", tile)
        self.walk.forks += self.cores > 1
        self.walk.current.overhead += overhead

    def compute(self, tile: int) -> float:
        """Cycles of the core with the largest part of a tile."""
        extents, rest = self.call.geometry.extents, self.last + 1
        key: list[int] = []
        for loop in self.tiling.loops:  # tiles differ in size only where a loop is in its last trip
            rest //= loop.trips
            key.append(tile // rest % loop.trips == loop.trips - 1)
        key += [tile] if self.call.geometry.limited else []  # rows may end in any trip
        if tuple(key) not in self.computed:
            part = {name: last - first + 1 for name, (first, last) in self.tiling.spans(extents, tile).items()}
            self.computed[tuple(key)] = self.largest({**extents, **part})
        return self.computed[tuple(key)]

    def largest(self, sizes: dict[str, int]) -> float:
        """Cycles of the core with the largest part of a tile of ``sizes``."""
        dim, active = self.tiling.core_dim, 1
        if min(sizes.values(), default=1) <= 0:
            return 0.0
        if dim is not None:
            share = -(-sizes[dim] // self.cores)
            sizes, active = {**sizes, dim: share}, -(-sizes[dim] // share)
        return float(self.work.cycles(lambda name, step: cost.steps(sizes[name], step) if step else 1, active))

    # ---- the loop

    def run(self) -> None:
        """From the begin to the end of the call."""
        walk = self.walk
        walk.loads(walk.step)
        if walk.step in walk.plan.load_tickets:
            walk.wait(walk.far, walk.plan.load_tickets[walk.step], CONSTANTS, -1)
        if any(boxes.stream.is_early for boxes in walk.boxes[walk.step]):
            walk.wait(self.near, EARLY, CONSTANTS, 0)
        if self.is_double:
            self.doubled()
        else:
            self.simple()

    def simple(self) -> None:
        """One tile after the other."""
        group = self.group or self.last + 1
        for tile in range(self.last + 1):
            if self.has(True, False) and tile % group == 0:
                self.fetch(True, tile)
                self.wait(True, False, tile)
            if self.has(False, False):
                self.fetch(False, tile)
                self.wait(False, False, tile)
            self.begin(tile)
            self.team(tile)
            if self.has(False, True):
                self.store(False, tile)
                self.wait(False, True, tile)
            if self.has(True, True) and tile % group == group - 1:
                self.store(True, tile)
                self.wait(True, True, tile)

    def doubled(self) -> None:
        """The next tile is fetched and the one before is stored while a tile is computed."""
        group = self.group or self.last + 1
        stages, unstages = self.has(True, False), self.has(True, True)
        if stages:
            self.fetch(True, 0)
            self.wait(True, False, 0)
        self.fetch(False, 0)
        if stages and group <= self.last:
            self.fetch(True, group)
        for tile in range(self.last + 1):
            if self.has(False, False):
                self.wait(False, False, tile)
            self.begin(tile)
            if self.has(False, False) and tile < self.last:
                self.ahead(tile + 1, group, stages)
            self.team(tile)
            if self.has(False, True):
                self.wait(False, True, tile)
                self.store(False, tile)
            if unstages and tile % group == group - 1:
                self.wait(False, True, tile)
                self.wait(True, True, tile)
                self.store(True, tile)
                if any(b.stream.depth == 1 and b.stream.moves > 1 for b in self.streams[True, True]):
                    self.wait(True, True, tile)
        if self.has(False, True):
            self.wait(False, True, self.last)
        if unstages:
            self.wait(True, True, self.last)

    def ahead(self, tile: int, group: int, stages: bool) -> None:
        """Fetch a tile while the one before it is computed, and what its group's next one needs from further out."""
        if stages and tile % group == 0:
            self.wait(True, False, tile)
        self.fetch(False, tile)
        if stages and tile % group == 0 and tile + group <= self.last:
            self.fetch(True, tile + group)


def _stall(timing: CallTiming, path: str, reason: str, cycles: float) -> None:
    if cycles > 0:
        reasons = timing.stalls.setdefault(path, {})
        reasons[reason] = reasons.get(reason, 0.0) + cycles
