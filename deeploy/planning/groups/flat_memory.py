"""Which calls of a network on a flat machine become fused groups (``tiling.fused_group``), so that its arena is small.

The calls keep their order, so fused groups are intervals of it. First the least peak of all ways to divide the calls into intervals is
found; then, among those ways that keep a peak, the one that costs the least: rows that are moved, and kernels that are called more often.
Both are shortest paths over the positions between calls. A tile has some rows, and line buffers have room for some tiles more than they
need: larger ones cost less and take more memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deeploy.errors import FitError
from deeploy.planning.choice.infeasibility import check_constants, more_memory, suggest_remedy
from deeploy.planning.packing.addresses import place_wanted
from deeploy.planning.packing.lifetimes import block_lifetimes, wanted_blocks
from deeploy.planning.plan import UNLIMITED, FusionChoice, Machine, Plan
from deeploy.planning.program import Program, Role, buffer_spans
from deeploy.planning.tiling.fused_group import Arrangement, FusedGroup, LineBuffer, ModuloSchedule, RowCut, tile_rows

LONGEST = 64  # calls of a fused group
ROWS = (1, 2, 4, 8)  # of a tile
ROOM = (1, 4)  # tiles between two moves of the rows that stay in a line buffer
CALL = 400  # what one more call of a kernel costs, in bytes that could be moved instead
ATTEMPTS = 4  # to pack a choice
MOST_ARRANGEMENTS = 16  # that are shown


@dataclass(frozen=True)
class _CallInterval:
    """The calls from a step on, together or one by itself: bytes that are there at once, and what it costs.

    ``rows`` and ``tiles`` are those of a fused group (``ROWS``, ``ROOM``); 0 where there is none. A fused group adds ``calls`` of
    kernels, and ``moved`` bytes in its line buffers.
    """

    first: int
    peak: int
    calls: int = 0
    moved: int = 0
    rows: int = 0
    tiles: int = 0

    @property
    def cost(self) -> int:
        """What the interval costs: bytes that it moves, and a constant for each further call of a kernel."""
        return self.moved + self.calls * CALL


class _GroupCandidate:
    """A group that grows call by call: bytes that are there while it runs, and what it costs, without and with what is needed for line
    buffers."""

    def __init__(self, network: _FlatNetwork, first: int, tiles: int) -> None:
        self.network = network
        self.first = first
        self.tiles = tiles
        self.scratch, self.calls, self.moved = 0, 0, 0
        self.line_buffers: dict[str, LineBuffer] = {}
        ends = network.local.items()
        self.bytes = network.states + sum(network.whole[name] for name, (begin, end) in ends if begin < first <= end)
        self.certain = self.bytes  # that no further call takes away: what is read from before the fused group, and line buffers

    def add(self, group_schedule: ModuloSchedule, step: int) -> None:
        """The call of a step, which the schedule has."""
        network, one = self.network, group_schedule.cuts[-1]
        self.scratch = max(self.scratch, network.scratch(step, {one.dim: one.rows}))
        self.calls += one.trips - 1
        self.bytes += sum(network.whole[name] for name in network.begun[step])
        for name in network.over[step]:
            makers = group_schedule.makers.get(name, ())
            if network.local[name][0] >= self.first and len(makers) == 1 and group_schedule.cuts[makers[0]].is_all:
                self._add_line_buffer(name, group_schedule.cuts[makers[0]], self.first + makers[0], group_schedule.line_buffer(name))

    def _add_line_buffer(self, name: str, made: RowCut, producer: int, needed: int) -> None:
        """A buffer that nothing behind the fused group reads is a line buffer, where that is smaller."""
        tiles = self.tiles if needed > made.rows else 1
        held = needed + made.rows * (tiles - 1)
        if held >= made.extent:
            return
        self.line_buffers[name] = LineBuffer(producer, held, made.pitch, tiles)
        row = made.pitch * self.network.program.buffers[name].dtype.bytes
        size = self.network.aligned(held * row)
        self.bytes += size - self.network.whole[name]
        self.certain += size
        self.moved += -(-(made.extent - held) // (made.rows * tiles)) * (needed - made.rows) * row

    def interval(self, rows: int) -> _CallInterval:
        """The fused group of all calls so far, for tiles of ``rows`` rows."""
        return _CallInterval(self.first, self.bytes + self.scratch, self.calls, self.moved, rows, self.tiles)


class _FlatNetwork:
    """The intervals of a network, by the step behind their last one."""

    def __init__(self, plan: Plan) -> None:
        self.program: Program = plan.program
        self.count = len(self.program.calls)
        self.unit = plan.target.memories[0].alignment
        roles = {name: buffer.role for name, buffer in self.program.buffers.items()}
        self.states = sum(self.aligned(b.bytes) for b in self.program.buffers.values() if b.role is Role.STATE)
        self.local = {name: ends for name, ends in buffer_spans(self.program).items() if roles[name] is Role.LOCAL}
        self.whole = {name: self.aligned(self.program.buffers[name].bytes) for name in self.local}
        self.begun = [[name for name, ends in self.local.items() if ends[0] == step] for step in range(self.count)]
        self.over = [[name for name, ends in self.local.items() if ends[1] == step] for step in range(self.count)]
        self.cuts = {rows: [tile_rows(self.program, call, rows) for call in self.program.calls] for rows in ROWS}
        self.single = self._single()
        most = max(self.single, default=0)
        self.intervals = {step + 1: [_CallInterval(step, peak)] for step, peak in enumerate(self.single)}
        for rows, first in itertools.product(ROWS, range(self.count)):
            candidates = [_GroupCandidate(self, first, tiles) for tiles in ROOM]
            for group_schedule, step in self._group_schedules(rows, first):
                for fused_group in candidates:
                    fused_group.add(group_schedule, step)
                    if step > first and (interval := fused_group.interval(rows)).peak < most:
                        self.intervals[step + 1].append(interval)
                if min(fused_group.certain for fused_group in candidates) >= most:
                    break  # no longer fused group is smaller than the calls one by one

    def aligned(self, size: int) -> int:
        """Bytes that a block of ``size`` bytes takes in the arena."""
        return -(-size // self.unit) * self.unit

    def scratch(self, step: int, sizes: Mapping[str, int]) -> int:
        """Bytes of scratch memory of a tile of these sizes."""
        call = self.program.calls[step]
        tile = {**call.geometry.extents, **sizes}
        return sum(self.aligned(int(call.kernel.scratch[key].total(call.node, tile))) for key in call.scratch)

    def _single(self) -> list[int]:
        """Bytes that are there while each call runs by itself."""
        peaks = [self.scratch(step, {}) for step in range(self.count)]
        for block in block_lifetimes(self.program):
            if self.program.buffers[block.buffers[0]].role is not Role.SCRATCH:
                for step in range(max(block.first, 0), min(block.last + 1, self.count)):
                    peaks[step] += self.aligned(block.size)
        return peaks

    def _group_schedules(self, rows: int, first: int) -> Iterator[tuple[ModuloSchedule, int]]:
        """A fused group from a step on, as it grows, and the step that came last."""
        group_schedule = ModuloSchedule()
        for step in range(first, min(first + LONGEST, self.count)):
            one = self.cuts[rows][step]
            if one is None or self.program.calls[step].turns != self.program.calls[first].turns:
                return
            group_schedule.add(one)
            yield group_schedule, step

    def _fused_group(self, interval: _CallInterval, end: int) -> FusedGroup:
        """An interval, with everything that code needs."""
        candidate = _GroupCandidate(self, interval.first, interval.tiles)
        group_schedule = ModuloSchedule()
        for group_schedule, step in self._group_schedules(interval.rows, interval.first):
            candidate.add(group_schedule, step)
            if step + 1 == end:
                break
        return FusedGroup(group_schedule.members(interval.first), candidate.line_buffers)

    def least(self) -> int:
        """The least peak of all ways to divide the calls."""
        best = [0]
        for end in range(1, self.count + 1):
            best.append(min(max(best[i.first], i.peak) for i in self.intervals[end]))
        return best[-1]

    def cheapest(self, limit: int) -> list[tuple[_CallInterval, int]] | None:
        """The intervals of the cheapest way whose peak is at most ``limit`` bytes, each with the step behind it."""
        best: list[tuple[int, _CallInterval | None] | None] = [(0, None)]
        for end in range(1, self.count + 1):
            ways = [(known[0] + i.cost, i) for i in self.intervals[end] if i.peak <= limit and (known := best[i.first]) is not None]
            best.append(min(ways, key=lambda way: way[0], default=None))
        intervals: list[tuple[_CallInterval, int]] = []
        end = self.count
        while end:
            way = best[end]
            if way is None or way[1] is None:
                return None
            intervals.append((way[1], end))
            end = way[1].first
        return intervals[::-1]

    def fused_groups(self, limit: int) -> tuple[FusedGroup, ...] | None:
        """The fused groups of the cheapest way whose peak is at most ``limit`` bytes."""
        fused = self.cheapest(limit)
        return None if fused is None else tuple(self._fused_group(interval, end) for interval, end in fused if interval.rows)

    def choices(self, plan: Plan) -> tuple[FusionChoice, ...]:
        """The fused groups of a plan, and what its memory holds at most during them."""
        options = []
        for fused_group in plan.fused_groups:
            steps = range(fused_group.first, fused_group.last + 1)
            held = [sum(self.aligned(p.size) for p in plan.placements if p.first <= step <= p.last) for step in steps]
            peaks = max(self.single[step] for step in steps), max(held)
            options.append(
                FusionChoice(fused_group.first, fused_group.last, fused_group.members[0].trips, "taken", None, None, {}, {}, *peaks)
            )
        return tuple(options)

    def arrangements(self) -> tuple[Arrangement, ...]:
        """The cheapest ways for ever lower limits, the least memory first; none of a network without calls."""
        if not self.count:
            return ()
        arrangements: list[Arrangement] = []
        limit = UNLIMITED
        while len(arrangements) < MOST_ARRANGEMENTS and (way := self.cheapest(limit)) is not None:
            peak = max(interval.peak for interval, _ in way)
            arrangements.append(Arrangement(peak, sum(i.calls for i, _ in way), sum(i.moved for i, _ in way)))
            limit = min(peak - 1, peak * 15 // 16)
        least = self.least()
        if arrangements[-1].bytes > least and (way := self.cheapest(least)) is not None:
            arrangements.append(Arrangement(least, sum(i.calls for i, _ in way), sum(i.moved for i, _ in way)))
        return tuple(reversed(arrangements))


def best_of(plans: Sequence[Plan], machine: Machine) -> Plan:
    """The plan of a flat machine: of several orders of its calls without limits, the smallest one, or with fused groups where that does
    not fit.

    Raises:
        FitError: no plan is small enough.
    """
    target, name = plans[0].target, plans[0].target.memories[0].name
    plan = min(plans, key=lambda plan: plan.memory[name].peak)
    check_constants(plan.program, target, machine)
    if machine.objective == "cycles" and plan.memory[name].peak <= machine.capacities[name]:
        return fit_smaller_machine(plan, machine)
    fitting_plans, refused = list[Plan](), list[FitError]()
    for one in plans:
        try:
            fitting_plans.append(fuse_flat_plan(one, machine))
        except FitError as error:
            refused.append(error)
    if not fitting_plans:
        raise refused[-1]
    return min(fitting_plans, key=lambda plan: plan.memory[name].peak if machine.objective == "ram" else plan.added)


def fuse_flat_plan(plan: Plan, machine: Machine) -> Plan:
    """The plan of a flat machine with fused groups: the fastest one within its capacity, or one in as few bytes as possible.

    Args:
        plan: without fused groups, whatever its size.

    Raises:
        FitError: no plan is that small; says how many bytes would do.
    """
    network = _FlatNetwork(plan)
    name = plan.target.memories[0].name
    room = machine.capacities[name] - plan.memory[name].constants
    least = network.least()
    limit, best = least if machine.objective == "ram" else room, None
    for _ in range(ATTEMPTS):
        fused_groups = network.fused_groups(limit)
        if fused_groups is None:
            break
        placed = _place_groups(plan, fused_groups, machine)
        if best is None or placed.memory[name].peak < best.memory[name].peak:
            best = placed
        over = placed.memory[name].peak - placed.memory[name].constants - limit
        if over <= 0:
            break
        limit -= over
    if best is not None and best.memory[name].peak <= machine.capacities[name]:
        return replace(best, arrangements=network.arrangements(), fusion_choices=network.choices(best))
    needed = best.memory[name].peak if best is not None else least + plan.memory[name].constants
    program, target = plan.program, plan.target
    there = [(b.name, b.bytes) for b in program.buffers.values() if b.role in (Role.LOCAL, Role.STATE)]
    raise FitError(
        f"{name}: the network needs {needed} bytes when it is computed a few rows at a time, {machine.capacities[name]} are there",
        suggest_remedy(program, target, there, (needed, machine.capacities[name]), [], more_memory(target, name, needed)),
    )


def _place_groups(plan: Plan, fused_groups: tuple[FusedGroup, ...], machine: Machine) -> Plan:
    """The plan with these fused groups and new addresses."""
    name = plan.target.memories[0].name
    members = {member.step: member for fused_group in fused_groups for member in fused_group.members}
    calls = tuple(
        replace(candidate, tiling=members[step].tiling) if step in members else candidate for step, candidate in enumerate(plan.calls)
    )
    blocks = [b for b in block_lifetimes(plan.program, fused_groups) if plan.program.buffers[b.buffers[0]].role is not Role.SCRATCH]
    residences = dict.fromkeys((block.buffers[0] for block in blocks), name)
    placements, packings = place_wanted(
        wanted_blocks(plan.program, plan.target, calls, residences, blocks, {}), plan.target, {name: UNLIMITED}
    )
    constants = plan.memory[name].constants
    use = plan.memory[name]
    use = replace(use, peak=packings[name].peak + constants, lower_bound=packings[name].lower_bound + constants)
    return fit_smaller_machine(
        replace(plan, placements=placements, memory={**plan.memory, name: use}, calls=calls, fused_groups=fused_groups), machine
    )


def fit_smaller_machine(plan: Plan, machine: Machine) -> Plan:
    """The plan of a flat machine, made for another one that has more memory."""
    memory = plan.target.memories[0]
    capacity = machine.capacities[memory.name]
    is_open = memory.capacity is None and capacity == UNLIMITED - memory.reserved
    use = replace(plan.memory[memory.name], capacity=None if is_open else capacity)
    return replace(plan, machine=machine, memory={**plan.memory, memory.name: use})
