"""A discrete-event walk over a schedule: it executes the tree that the emitted code is printed from.

The first core of the engine issues transfers, waits for them and computes with the team; every transfer path serves its transfers one after
the other, in the order of their start, and holds a limited number of them. Cycles of a transfer, a fork, a barrier and a kernel
are those of the target's timing. Nothing else is modelled: no contention for banks, no interrupts, no start of the cluster.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from deeploy.execution.simulation.boxes import Batch, box_batches
from deeploy.execution.simulation.timing import CallTiming, Interval, Run, Traffic, engine_overlap
from deeploy.ir.target import DmaPath, PathTiming
from deeploy.planning import cost
from deeploy.planning.candidates.instruction_cache import code_of, is_cached
from deeploy.planning.energy import energy, read_in_place
from deeploy.planning.plan import Plan
from deeploy.schedule.build import build_schedule, row_values
from deeploy.schedule.ir import Compute, Finish, Layer, Move, PostProcess, Section, ShiftRows, TileWork, Token, Wait
from deeploy.schedule.unroll import Event, Table, Unrolled

REASONS = {"in": "windows in", "out": "windows out"}
CONSTANTS, QUEUE = "constants", "full queue"


def walk_plan(plan: Plan, past: int | None = None) -> Run:
    """Predict one inference of a plan for a machine with several memories whose target has a timing.

    Args:
        past: rows of the states before it, where these outlive an inference; as many as there may be by default.

    Raises:
        UsageError: a position that the states of the network do not have.
    """
    return Walk(plan, past=past).run()


def walk_round(plan: Plan) -> tuple[float, float]:
    """Cycles and microjoules of an inference in the mean, where some calls run in every n-th inference alone, behind the first ones."""
    if plan.program.period == 1:
        run = walk_plan(plan)
        return run.cycles, run.energy.total
    periods = {call.period for call in plan.program.calls}
    turns = Counter(frozenset(p for p in periods if number % p == 0) for number in range(1, plan.program.period + 1))
    period = plan.program.period
    begun = -(-max(call.first or 0 for call in plan.program.calls) // period) * period
    first = {frozenset(p for p in periods if number % p == 0): begun + number for number in range(period, 0, -1)}
    runs = [(walk_plan(plan, first[turn] - 1), count / period) for turn, count in turns.items()]
    return sum(run.cycles * share for run, share in runs), sum(run.energy.total * share for run, share in runs)


class _Path:
    """A transfer engine: serves in order, one transfer at a time, and holds at most ``max_outstanding``."""

    def __init__(self, path: DmaPath, timing: PathTiming) -> None:
        self.path = path
        self.timing = timing
        self.free = 0.0
        self.ends: deque[float] = deque(maxlen=max(1, path.max_outstanding))
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

    def __init__(self, plan: Plan, now: float = 0.0, past: int | None = None) -> None:
        assert plan.target.timing is not None
        self.plan = plan
        self.unrolled = Unrolled(build_schedule(plan), row_values(plan.program, past))
        self.calls = plan.program.calls
        self.timing = plan.target.timing
        self.paths = {path.name: _Path(path, self.timing.paths[path.name]) for path in plan.target.paths}
        self.now = now
        self.step = 0  # of the call that cycles are counted for
        self.intervals: list[Interval] = []
        self.timings: list[CallTiming] = []
        self.owed: dict[int, list[tuple[str, Traffic]]] = {}  # traffic of calls that have not begun
        self.codes = [code_of(call, plan.target) for call in self.calls]
        self.forks = 0
        self.jobs: list[tuple[float, float]] = []  # of accelerators, from a cycle to another
        self.worked: dict[str, float] = {}  # cycles of all jobs, by engine
        self.running: _LayerWalk | None = None  # whose job was started last
        self.computed: list[tuple[float, float]] = []  # tiles on cores
        self.moved: set[tuple[int, str, str]] = set()  # windows whose code has run: call, operand, path
        self.forked: dict[int, Section] = {s.first: s for s in self.unrolled.schedule.sections if s.cores > 1}
        self._computed: dict[int, Sequence[float]] = {}
        self._post_processed: dict[int, Sequence[float]] = {}
        self._cut: dict[int, tuple[tuple[Batch, ...], ...]] = {}

    def compute(self, table: Table) -> Sequence[float]:
        """Cycles of the core with the largest part of every tile of a call."""
        step = table.layer.step
        if step not in self._computed:
            rate = cost.kernel_work(table.layer.call, self.plan.target)
            cycles, saved = _of_tiles(table, lambda sizes: _largest_part(rate, sizes, table.layer.work)), self.plan.saved(step)
            self._computed[step] = [max(0.0, each - saved / len(cycles)) for each in cycles]
        return self._computed[step]

    def post_process(self, table: Table, part_cost: cost.PostProcessingCost) -> Sequence[float]:
        """Cycles of the post-processing of each tile, which cores compute."""
        step = table.layer.step
        if step not in self._post_processed:
            self._post_processed[step] = _of_tiles(table, part_cost.cycles)
        return self._post_processed[step]

    def run(self) -> Run:
        """Walks through all calls in their order; returns the cycles, bytes and waits of one inference."""
        for step in range(len(self.calls)):
            self.call(step)
        return self.result()

    def call(self, step: int) -> None:
        """Walks through the call of a step, which begins at the current cycle."""
        self.step = step
        self.timings.append(CallTiming(self.calls[step].name, self.now))
        fused_group = next((fused_group for fused_group in self.plan.fused_groups if fused_group.first <= step <= fused_group.last), None)
        steps = range(step if fused_group is None else fused_group.first, step + 1)
        layers = {one: _LayerWalk(self, self.unrolled.schedule.layers[one], fused_group is not None) for one in steps}
        if step in self.forked:
            self.forks += 1
            layers[step].overheads(cost.fork_cycles(self.calls[step].parts[-1], self.plan.target), "fork and join", -1)
        for event in self.unrolled.events(step):
            self.event(event, layers)
        self.step = step
        if fused_group is not None and step == fused_group.last:
            self.share(steps)
        self.current.end = self.now

    def event(self, event: Event, layers: Mapping[int, _LayerWalk]) -> None:
        """What happens next in a call, or in the calls of a fused group."""
        node, tile, table = event
        if isinstance(node, Compute | Finish | PostProcess):
            self.step = node.step
        if isinstance(node, Move):
            self.step = node.owner if node.owner in layers else self.step
            self.move(node, table, tile)
        elif isinstance(node, Wait):
            self.wait(node.token, tile)
        elif isinstance(node, ShiftRows):
            cores = max(one.layer.cores for one in layers.values())
            part = table.at(node.bytes, tile) * self.timing.loops.move / cores
            cycles = part + cost.barrier_cycles(self.calls[self.step].parts[-1], self.plan.target)
            self.note("overhead", cycles, f"rows of {node.line_buffer.block}", tile)
            self.current.overhead += cycles
        elif isinstance(node, Compute):
            layers[node.step].compute(tile, self.compute(table)[tile])
        elif isinstance(node, Finish):
            layers[node.step].finish(tile)
        elif isinstance(node, PostProcess):
            layers[node.step].post_process(tile, table)

    def share(self, steps: range) -> None:
        """The cycles of a fused group, call by call, each with what it took: they follow each other, though they ran side by side."""
        moment = self.timings[steps[0]].start
        for step in steps:
            timing = self.timings[step]
            timing.start = moment
            moment += timing.compute + timing.overhead + timing.issue + timing.stalled
            timing.end = moment

    def wait_for(self, moment: float, path: str, reason: str) -> None:
        """What the last call waits for besides transfers, which ends at a moment."""
        stalled = moment - self.now
        if stalled > 0:
            _add_stall(self.current, path, reason, stalled)
            self.note("wait", stalled, f"{path}: {reason}", -1)
            self.current.end = self.now

    def result(self) -> Run:
        """The sums over all calls that were walked through: cycles, traffic, waits and energy."""
        traffic = {name: Traffic() for name in self.paths}
        for step, (timing, read) in enumerate(zip(self.timings, read_in_place(self.plan), strict=True)):
            timing.read = read
            for name, moved in self.owed.get(step, ()):
                timing.traffic.setdefault(name, Traffic()).add(moved)
                traffic[name].add(moved)
        lanes = (*dict.fromkeys(part.kernel.engine for call in self.calls for part in call.parts), *self.paths)
        spent = energy(self.plan, self.now, {name: one.bytes for name, one in traffic.items()}, self.worked)
        waits = {name: path.waits for name, path in self.paths.items()}
        engine_uses = engine_overlap(self.jobs, self.computed)
        return Run(
            self.now, tuple(self.timings), traffic, tuple(self.intervals), lanes, self.timing.mhz, spent, waits, self.forks, engine_uses
        )

    @property
    def current(self) -> CallTiming:
        return self.timings[self.step]

    def note(self, kind: str, cycles: float, label: str, tile: int) -> None:
        """The first core is busy, or waits, for some cycles."""
        if cycles > 0:
            lane = self.calls[self.step].parts[-1].kernel.engine
            self.intervals.append(Interval(lane, kind, self.now, self.now + cycles, self.step, self.step, label, tile, 0))
            self.now += cycles

    def move(self, node: Move, table: Table, tile: int) -> None:
        """Starts the transfers of one box for a tile, on the path that the node names."""
        name, label, is_store, owner = node.token.path, node.label, node.is_store, node.owner
        path, timing = self.paths[name], self.current
        if id(node) not in self._cut:
            self._cut[id(node)] = box_batches(path.path, node.box, table)
        transfers = self._cut[id(node)][tile]
        tile = -1 if node.token.purpose == "constants" else tile
        window = self.window((owner, label, name))
        self.note("issue", window, label, tile)
        timing.issue += window
        moved, begin = Traffic(), -1.0
        for batch in transfers:
            size, count = batch.count * batch.bytes * batch.rows, batch.count * batch.rows
            issued, stalled, first = path.start(self.now, batch, is_store)
            self.note("wait", stalled, f"{name}: {QUEUE}", tile)
            self.note("issue", issued - self.now, label, tile)
            _add_stall(timing, name, QUEUE, stalled)
            timing.issue += batch.count * path.timing.issue
            busy = path.timing.data(size, count, is_store)
            moved.add(Traffic(0 if is_store else size, size if is_store else 0, count, batch.count, busy))
            begin = first if begin < 0 else begin
        if moved.transfers:
            path.tickets[node.token.ticket] = path.ends[-1]
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

    def wait(self, token: Token, tile: int) -> None:
        """Waits until all transfers or jobs that were started under a token are complete."""
        name, reason = token.path, REASONS.get(token.purpose, CONSTANTS)
        tile = -1 if token.purpose == "constants" else tile
        self.paths[name].waits += 1
        stalled = self.paths[name].tickets.pop(token.ticket, 0.0) - self.now
        if stalled > 0:
            _add_stall(self.current, name, reason, stalled)
            self.note("wait", stalled, f"{name}: {reason}", tile)


def _of_tiles(table: Table, cycles: Callable[[dict[str, int]], float]) -> Sequence[float]:
    """Cycles of every tile by its iterations of every dimension."""
    sizes = table.layer.work.tile
    rows, which = np.unique(table.rows(list(sizes.values())), axis=0, return_inverse=True)
    tile_cycles = [cycles(dict(zip(sizes, row, strict=True))) for row in rows.tolist()]
    return [tile_cycles[number] for number in which.ravel()]


def _largest_part(rate: cost.Work, sizes: dict[str, int], work: TileWork) -> float:
    """Cycles of the core with the largest part of a tile of ``sizes``."""
    return 0.0 if min(sizes.values(), default=1) <= 0 else cost.largest_part(rate, sizes, work.division)


class _LayerWalk:
    """Executes the layer of one call."""

    def __init__(self, walk: Walk, layer: Layer, is_chained: bool) -> None:
        self.walk = walk
        self.layer = layer
        target = walk.plan.target
        self.overhead, self.once = (
            cost.tile_overhead(layer.call, target),
            cost.call_once(layer.call, is_cached(walk.codes, layer.step), target),
        )
        self.post_processing = cost.post_processing_cost(layer.call, target, layer.team)
        # of a fused group, other kernels ran since the last tile
        self.again = (
            cost.call_once(layer.call, False, target) - cost.call_once(layer.call, True, target)
            if is_chained and not self.post_processing
            else 0.0
        )
        self.begun = self.ends = 0.0
        self.slower = [cost.slowdown_in_parallel(part, target) for part in layer.call.parts]

    def post_process(self, tile: int, table: Table) -> None:
        """Counts the post-processing of a tile: the cycles that cores take to make outputs of an accelerator's sums."""
        assert self.post_processing is not None
        self.walk.forks += self.layer.call.kernel.forks
        self.overheads(self.post_processing.overhead, "barriers", tile)
        self.computed(self.walk.post_process(table, self.post_processing)[tile], tile)

    def compute(self, tile: int, cycles: float) -> None:
        """Set a tile up; then compute it, all cores behind a barrier, or leave it to an accelerator."""
        walk, is_team = self.walk, self.layer.work.cores > 1 and self.layer.accelerator is None
        barrier = cost.barrier_cycles(self.layer.call, walk.plan.target) if is_team else 0.0
        self.overheads(self.overhead + barrier + (self.once if tile == 0 else self.again), "set-up, barriers", tile)
        if self.layer.accelerator is None:
            self.computed(cycles, tile)
            return
        self.begun, self.ends = walk.now, walk.now + cycles
        walk.running = self

    def finish(self, tile: int) -> None:
        """The first core waits for the job of a tile."""
        walk, cycles = self.walk, max(0.0, self.ends - self.walk.now)
        lane, step = self.layer.accelerator or "", self.layer.step
        walk.jobs.append((self.begun, self.ends))
        for worked in (walk.worked, walk.timings[step].worked):
            worked[lane] = worked.get(lane, 0.0) + self.ends - self.begun
        walk.running = None if walk.running is self else walk.running
        if self.post_processing is None:
            self.passed(cycles, tile)
            return
        walk.intervals.append(Interval(lane, "compute", self.begun, self.ends, step, step, self.layer.call.name, tile, 0))
        walk.now += cycles
        walk.current.compute += cycles

    def overheads(self, cycles: float, label: str, tile: int) -> None:
        """What a tile, or a part of it, costs besides computing."""
        self.walk.note("overhead", cycles, label, tile)
        self.walk.current.overhead += cycles

    def computed(self, cycles: float, tile: int) -> None:
        """Cores compute, and an accelerator's job that runs takes longer for it, as they do."""
        walk, job = self.walk, self.walk.running
        if job is not None and job.ends > walk.now:
            left, cycles = cost.meet_engines(job.ends - walk.now, cycles, (job.slower[0], self.slower[-1]))
            job.ends = walk.now + left
        walk.computed.append((walk.now, walk.now + cycles))
        self.passed(cycles, tile)

    def passed(self, cycles: float, tile: int) -> None:
        """The first core computes, or only waits for what does."""
        self.walk.note("compute", cycles, self.layer.call.name, tile)
        self.walk.current.compute += cycles


def _add_stall(timing: CallTiming, path: str, reason: str, cycles: float) -> None:
    if cycles > 0:
        reasons = timing.stalls.setdefault(path, {})
        reasons[reason] = reasons.get(reason, 0.0) + cycles
