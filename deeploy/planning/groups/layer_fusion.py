"""Fused groups on a machine with several memories (``tiling.fused_group``): which there could be, and a plan with some of them.

What is between the calls of a fused group stays in the memory of the engines, a few rows of it at a time. What comes from outside, and
what goes there, moves tile by tile as it does for single calls; weights are fetched once, and stay while the fused group runs. Where
calls run on an accelerator, it works on a tile of one call while cores compute another one.

A fused group is an interval of the calls of a plan without fused groups, and a number of tiles into which all of its calls are cut. Where
buffers outside of it lie, and all other calls, stay as they are.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deeploy.ir.memo import by_arguments
from deeploy.planning.candidates.candidate import Candidate, TiledOp, with_prefetch
from deeploy.planning.candidates.tiler import Tiler
from deeploy.planning.cost import candidate_kind, meet_engines
from deeploy.planning.packing.addresses import Placement, place_wanted
from deeploy.planning.packing.lifetimes import OccupiedBytes, block_lifetimes, extend_lifetime, wanted_blocks
from deeploy.planning.plan import UNLIMITED, ChainReason, Plan
from deeploy.planning.program import Buffer, Call, Program, Role, buffer_spans
from deeploy.planning.tiling.fused_group import (
    FusedGroup,
    FusionAxis,
    GroupMember,
    LineBuffer,
    ModuloSchedule,
    RowCut,
    StepAction,
    TileBuffers,
    cut_into_rows,
    tile_rows,
)
from deeploy.planning.tiling.loops import TileLoop

TRIPS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)  # tiles of a fused group
ROOM = (4, 2, 1)  # tiles between two moves of the rows that stay in a line buffer, the most first
LONGEST = 8  # calls of a fused group
WAYS = 1 << 13  # groups of calls in a number of tiles that are looked at: in long networks, fewer numbers of tiles and shorter groups


@dataclass(frozen=True, eq=False)
class FusionCandidate:
    """A fused group, with the candidates of its calls; cycles are an estimate.

    Attributes:
        programmed: its calls, which may run by other kernels than in the plan without fused groups.
        bytes: in the memory of the engines.
        traffic: bytes of windows that move for it, by path.
    """

    fused_group: FusedGroup
    programmed: tuple[Call, ...]
    calls: tuple[Candidate, ...]
    bytes: int
    cycles: int
    traffic: Mapping[str, int]

    @property
    def steps(self) -> range:
        """The steps of the calls that the group fuses."""
        return range(self.fused_group.first, self.fused_group.last + 1)

    @property
    def moved(self) -> int:
        """Bytes that the group's windows move, summed over all paths."""
        return sum(self.traffic.values())


@dataclass(frozen=True)
class _Group:
    """Calls that may be a group of rows: the buffers that they write, and whether only they use them; by call, how far its operands lie."""

    steps: range
    inside: Mapping[str, bool]
    distances: tuple[Mapping[str, int], ...]


def tile_limits(count: int) -> tuple[tuple[int, ...], int]:
    """Numbers of tiles that are tried of fused groups in a network of so many calls, and the calls of the longest ones."""
    for longest, every in itertools.product((LONGEST, LONGEST // 2, 2), (1, 2, 3)):
        if count * (longest - 1) * len(TRIPS[::every]) <= WAYS:
            return TRIPS[::every], longest
    return TRIPS[2:3], 2


class FusionSearch:
    """The fused groups that a plan could have.

    Args:
        given: the program that it was made from, with all variants of its calls.
    """

    def __init__(self, plan: Plan, given: Program) -> None:
        self.plan = plan
        self.program = plan.program
        self.given = {call.name: given.variants(step) for step, call in enumerate(given.calls)}
        self.buffers = {**given.buffers, **plan.program.buffers}
        self.near = plan.target.memory(plan.target.engines[0].memory)
        self.around = tuple(path.far for path in plan.target.outward(self.near.name))
        uses = {name: plan.memory[name] for name in (self.near.name, *self.around)}
        self.room = {name: (UNLIMITED if use.capacity is None else use.capacity) - use.constants for name, use in uses.items()}
        self.spans = buffer_spans(self.program)
        self._taken = {name: OccupiedBytes([p for p in plan.placements if p.level == name], self.aligned) for name in self.room}
        self._blocks: dict[str, list[Placement]] = {}  # placements by their first buffers
        self._windows: dict[str, list[Placement]] = {}  # and those of windows by calls
        for p in plan.placements:
            first = p.buffers[0]
            is_buffer = first in self.program.buffers
            (self._blocks if is_buffer else self._windows).setdefault(first if is_buffer else first.partition(".")[0], []).append(p)
        self.longest = LONGEST
        self._tilers_by_kind: dict[tuple[object, ...], Tiler] = {}  # by what equal calls have in common
        self.misses: dict[
            int, tuple[ChainReason, int | None]
        ] = {}  # why a call and the next one are no fused group, and bytes that they need
        self.tiled_ops: dict[tuple[Tiler, tuple[TileLoop, ...], tuple[int, ...], bool], TiledOp] = {}

    def list_candidates(self, promises: Callable[[range, int, int], bool]) -> Iterator[FusionCandidate]:
        """The fused groups of rows that promise something and for which there is room; of two calls that promise nothing, the fastest one.

        Args:
            promises: whether a fused group of some steps is wanted that is estimated at so many cycles and bytes that move.
        """
        if self.program.dynamic_length is not None:
            return
        wanted, others = set[range](), dict[range, list[tuple[int, int]]]()
        every, self.longest = tile_limits(len(self.program.calls))
        for trips in every:
            for first in range(len(self.program.calls) - 1):
                for group in self._groups_from(first, trips):
                    tiled_ops = self._tile_group(group, trips)
                    cycles = self.estimate(self._calls(group.steps), tiled_ops)
                    traffic = sum(size for tiled_op in tiled_ops for size in tiled_op.traffic.values())
                    if promises(group.steps, cycles, traffic):
                        if (fused := self._fused(group, trips)) is not None:
                            wanted.add(group.steps)
                            yield fused
                    elif len(group.steps) == 2:
                        others.setdefault(group.steps, []).append((cycles, trips))
        for steps, ways in others.items():
            pair = self._group(steps) if steps not in wanted else None
            built = (self._fused(pair, trips) for _, trips in sorted(ways) if pair is not None)
            yield from itertools.islice((fused for fused in built if fused is not None), 1)

    def _groups_from(self, first: int, trips: int) -> Iterator[_Group]:
        """The calls that may be a fused group in so many tiles and begin with a given one, one more each time."""
        for step in range(first, min(first + self.longest, len(self.program.calls))):
            if self.loop(step, trips) is None:
                if step - first < 2:
                    self.misses.setdefault(first, ("cannot be cut", None))
                return
            if step > first and (group := self._group(range(first, step + 1))) is not None:
                yield group

    @by_arguments
    def _group(self, steps: range) -> _Group | None:
        """Calls with what is between them alone; None where others need that, or no path leads to what they read."""
        inside = self._inside(steps)
        within = [name for name, is_inner in (inside or {}).items() if is_inner]
        distances = [self.distances(call, within) for call in self._calls(steps)]
        known = tuple(distance for distance in distances if distance is not None)
        if inside is not None and len(known) == len(distances):
            return _Group(steps, inside, known)
        self._missed(steps, "read elsewhere" if inside is None else "cannot be cut", None)
        return None

    # ---- calls

    def others(self, step: int) -> list[Call]:
        """The call of a step, and those of its variants that need no constants but those that are there anyway."""
        call = self.program.calls[step]
        variants = (one for one in self.given.get(call.name, ()) if one.kernel is not call.kernel)
        constants = self.program.buffers.keys()
        return [call, *(one for one in variants if constants >= {operand.buffer for operand in one.operands.values()})]

    def begins_ahead(self, before: Call, call: Call) -> bool:
        """Whether a call begins while cores compute the one before it."""
        return bool(self.accelerator(call)) and (not self.accelerator(before) or before.kernel.post_processing is not None)

    def accelerator(self, call: Call) -> str | None:
        """What a call runs on, where it is no team of cores."""
        return self.plan.target.engine(call.kernel.engine).accelerator

    @by_arguments
    def tiler(self, call: Call) -> Tiler:
        """What cuts a call; equal calls share it."""
        key = candidate_kind(call, self.buffers)
        if key not in self._tilers_by_kind:
            target, cores = self.plan.target, self.plan.machine.cores
            self._tilers_by_kind[key] = Tiler(call, self.buffers, target, dict.fromkeys(self.plan.memory, UNLIMITED), cores)
        return self._tilers_by_kind[key]

    def traffic(self, step: int) -> Mapping[str, int]:
        """Bytes of all windows that a call moves without fused groups, by path."""
        return self.tiler(self.program.calls[step]).traffic(self.plan.tiling(step))

    @by_arguments
    def along(self, step: int) -> FusionAxis | None:
        """How a call is cut into rows; None where it cannot be part of a fused group."""
        call = self.program.calls[step]
        return cut_into_rows(self.program, call) if self.may(step, call) else None

    def loop(self, step: int, trips: int) -> TileLoop | None:
        """The loop of a call in so many tiles, or about as many, where it can be part of a fused group."""
        along = self.along(step)
        loop = along.loop(-(-along.extent // trips)) if along is not None else None
        return loop if loop is not None and loop.trips > 1 else None

    @by_arguments
    def cut(self, step: int, loop: TileLoop) -> RowCut | None:
        """What tiles of a call read and write; None where it reads backwards."""
        return tile_rows(self.program, self.program.calls[step], loop.tile)

    def may(self, step: int, call: Call) -> bool:
        """Whether a call runs always, in the memory of the engines, and the user fixes neither its tiles nor where its operands lie."""
        is_fixed = any(self.plan.machine.fixed(name).keys() - {"engine", "kernel", "after"} for name in self._named(call))
        return self.plan.target.engine(call.kernel.engine).memory == self.near.name and call.turns == (1, None) and not is_fixed

    def _named(self, call: Call) -> tuple[str, ...]:
        """A call and its buffers by name, where anything is fixed of the network."""
        return (call.name, *(operand.buffer for operand in call.operands.values())) if self.plan.machine.fixes else ()

    def distance(self, name: str) -> int | None:
        """Paths from the engines to a buffer: 0 to their memory and what they read in place; None where no path leads."""
        buffer = self.program.buffers[name]
        level = self.plan.residences.get(name, buffer.memory)
        if level == self.near.name or buffer.memory:
            return 0
        level = level or self.around[0]
        return 1 + self.around.index(level) if level in self.around else None

    def _tile_group(self, group: _Group, trips: int) -> list[TiledOp]:
        """Calls in tiles."""
        return [self._tile_step(step, trips, distances) for step, distances in zip(group.steps, group.distances, strict=True)]

    def _tile_step(self, step: int, trips: int, distances: Mapping[str, int]) -> TiledOp:
        """A call in tiles, where operands lie so many paths away."""
        loop = self.loop(step, trips)
        assert loop is not None
        return self._made(self.program.calls[step], (loop,), distances, False)

    def _made(self, call: Call, loops: tuple[TileLoop, ...], distances: Mapping[str, int], is_double: bool) -> TiledOp:
        """A call in the tiles of some loops; equal ones are made once."""
        tiler = self.tiler(call)
        key = tiler, loops, tuple(distances.values()), is_double
        if key not in self.tiled_ops:
            self.tiled_ops[key] = tiler.along(loops, distances, is_double)
        return self.tiled_ops[key]

    def tile_call(self, call: Call, loops: tuple[TileLoop, ...], inside: Sequence[str], is_double: bool = False) -> TiledOp | None:
        """A call in the tiles of some loops; None where it needs what lies too far away, or a part of a constant that it wants packed."""
        distances = self.distances(call, inside)
        if distances is None or self._is_packed(call, loops, distances):
            return None
        return self._made(call, loops, distances, is_double and call.kernel.post_processing is not None)

    def _is_packed(self, call: Call, loops: tuple[TileLoop, ...], distances: Mapping[str, int]) -> bool:
        """Whether loops cut a constant where it lies of which the kernel wants what it reads packed."""
        cut = {loop.dim for loop in loops if loop.trips > 1}
        fixed = (n for n, o in call.operands.items() if distances[n] == 0 and self.buffers[o.buffer].role is Role.CONSTANT)
        return any(cut & self.tiler(call).packed[name] for name in fixed)

    def distances(self, call: Call, inside: Sequence[str]) -> dict[str, int] | None:
        """How far the operands of a call lie, of which some buffers are in the memory of the engines; None where no path leads to one."""
        distances = {name: 0 if o.buffer in inside else self.distance(o.buffer) for name, o in call.operands.items()}
        near = {name: distance for name, distance in distances.items() if distance is not None}
        return near if len(near) == len(distances) else None

    # ---- fused groups

    def _calls(self, steps: range) -> tuple[Call, ...]:
        return self.program.calls[steps[0] : steps[-1] + 1]

    def _fused(self, group: _Group, trips: int) -> FusionCandidate | None:
        """Calls as a fused group, where there is room for it."""
        group_schedule, steps = ModuloSchedule(), group.steps
        for step in steps:
            loop = self.loop(step, trips)
            one = self.cut(step, loop) if loop is not None else None
            if one is None:
                self._missed(steps, "cannot be cut", None)
                return None
            group_schedule.add(one, step > steps[0] and self.begins_ahead(*self.program.calls[step - 1 : step + 1]))
        tiled_ops, inside = self._tile_group(group, trips), group.inside
        free = self.room[self.near.name] - self._bytes_elsewhere(steps, inside) - sum(tiled_op.candidate.bytes[0] for tiled_op in tiled_ops)
        rows = {name: group_schedule.line_buffer(name) for name, makers in group_schedule.makers.items() if len(makers) == 1}
        for tiles in ROOM:
            line_buffers, size = self._line_buffers(group_schedule, steps, inside, rows, tiles)
            if size <= free:
                break
        return self.together(group_schedule.members(steps[0]), self._calls(steps), tiled_ops, line_buffers, inside, size)

    def estimate(self, calls: Sequence[Call], tiled_ops: Sequence[TiledOp]) -> int:
        """Cycles that a fused group of rows takes at least: all that cores do of a call hides what an accelerator does of the next one."""
        is_ahead = self._is_ahead(calls)
        jobs, cores = [max(tiled_op.job - tiled_op.set_up, 0) for tiled_op in tiled_ops], [tiled_op.busy for tiled_op in tiled_ops]
        next_jobs = [*jobs[1:], jobs[0] if is_ahead else 0]
        cycles = sum(max(pair) for pair in zip(cores, next_jobs, strict=True)) + jobs[0] * (not is_ahead)
        return cycles + sum(tiled_op.set_up for tiled_op in tiled_ops)

    def cycles(self, fused_group: FusedGroup, calls: Sequence[Call], tiled_ops: Sequence[TiledOp]) -> int:
        """Cycles of a fused group in the order of its schedule (``deeploy.schedule.fused_group``), with tiles of equal length.

        Transfers are taken to arrive in time.
        """
        rows = zip(tiled_ops, calls, fused_group.members, strict=True)
        costs = [(s.set_up / m.trips, max(s.job - s.set_up, 0) / m.trips, s.busy / m.trips, self.tiler(c).slower) for s, c, m in rows]
        now, running, ends = 0.0, 0, [0.0] * len(costs)
        for turn, number in fused_group.turns([bool(self.accelerator(call)) for call in calls]):
            set_up, job, cores, _ = costs[number]
            if turn is StepAction.BEGIN:
                now += set_up
                running, ends[number] = number, now + job
            elif turn is StepAction.FINISH:
                now = max(now, ends[number])
            elif (left := ends[running] - now) > 0:
                left, took = meet_engines(left, cores, (costs[running][3][0], costs[number][3][1]))
                ends[running] = now + left
                now += took
            else:
                now += cores
        return round(now)

    def together(
        self,
        members: tuple[GroupMember, ...],
        calls: Sequence[Call],
        tiled_ops: Sequence[TiledOp],
        line_buffers: Mapping[str, LineBuffer] | None = None,
        inside: Mapping[str, bool] | None = None,
        size: int = 0,
        tile_buffers: Mapping[str, TileBuffers] | None = None,
        is_nested: bool = False,
    ) -> FusionCandidate | None:
        """Calls as a fused group, where there is room for it.

        Args:
            size: bytes of what is between the calls and not in ``tile_buffers``, and ``inside`` whether it is only there.
        """
        steps = range(members[0].step, members[-1].step + 1)
        held = {name: one.elements * one.count * self.program.buffers[name].dtype.bytes for name, one in (tile_buffers or {}).items()}
        size += sum(map(self.aligned, held.values()))
        inside = inside or dict.fromkeys(held, True)
        used = self._bytes_elsewhere(steps, inside) + size + sum(tiled_op.candidate.bytes[0] for tiled_op in tiled_ops)
        if used > self.room[self.near.name] or not self._is_held(steps, inside, tiled_ops):
            self._missed(steps, "no room", used)
            return None
        fused_group = FusedGroup(members, line_buffers or {}, self._is_ahead(calls) and not is_nested, tile_buffers or {}, is_nested)
        traffic = Counter[str]()
        for tiled_op in tiled_ops:
            traffic.update(tiled_op.traffic)
        return FusionCandidate(
            fused_group, tuple(calls), tuple(s.candidate for s in tiled_ops), used, self.cycles(fused_group, calls, tiled_ops), traffic
        )

    def _is_held(self, steps: range, inside: Mapping[str, bool], tiled_ops: Sequence[TiledOp]) -> bool:
        """Whether the memories around that of the engines have room for the windows that come through them."""
        for distance, level in enumerate(self.around, 1):
            size = sum(tiled_op.candidate.bytes[distance] for tiled_op in tiled_ops)
            if size and self._bytes_elsewhere(steps, inside, level) + size > self.room[level]:
                return False
        return True

    def _missed(self, steps: range, reason: ChainReason, needed: int | None) -> None:
        """Notes why two calls are no fused group: of several ways to cut them, that which needs the least."""
        known = self.misses.get(steps[0])
        if len(steps) == 2 and (known is None or known[1] is None or (needed is not None and needed < known[1])):
            self.misses[steps[0]] = reason, needed

    def peak(self, steps: range) -> int:
        """Bytes of the memory of the engines while calls run one after the other."""
        return max(self._taken[self.near.name].between(range(step, step + 1)) for step in steps)

    def follows(self, step: int) -> bool:
        """Whether a call reads what the one before it writes."""
        before, call = self.program.calls[step - 1 : step + 1]
        return bool({before.operands[name].buffer for name in before.writes} & {operand.buffer for operand in call.operands.values()})

    def _inside(self, steps: range) -> dict[str, bool] | None:
        """The buffers that calls of the fused group write, and whether only these use them; None where others need what they read."""
        buffers, calls = {}, self._calls(steps)
        read = {operand.buffer for call in calls for name, operand in call.operands.items() if name not in call.writes}
        for name in (call.operands[call.writes[0]].buffer for call in calls):
            ends = self.spans.get(name)
            is_inner = ends is not None and ends[0] >= steps[0] and ends[1] <= steps[-1]
            if name in read and not is_inner and self.distance(name) != 0:
                return None
            buffers[name] = is_inner
        return buffers

    def _line_buffers(
        self, group_schedule: ModuloSchedule, steps: range, inside: Mapping[str, bool], rows: Mapping[str, int], tiles: int
    ) -> tuple[dict[str, LineBuffer], int]:
        """What holds the buffers that are in the group alone, and bytes of all of them; ``rows`` are those that are needed of each."""
        line_buffers, size = {}, 0
        for name in (name for name, is_inner in inside.items() if is_inner):
            buffer, makers = self.program.buffers[name], group_schedule.makers[name]
            made = group_schedule.cuts[makers[0]]
            needed = rows[name] if len(makers) == 1 and made.is_all else made.extent
            room = tiles if needed > made.rows else 1
            held = needed + made.rows * (room - 1)
            if held < made.extent and needed - made.rows <= room * made.rows:
                line_buffers[name] = LineBuffer(steps[0] + makers[0], held, made.pitch, room)
                size += self.aligned(held * made.pitch * buffer.dtype.bytes)
            else:
                size += self.aligned(buffer.bytes)
        return line_buffers, size

    def _is_ahead(self, calls: Sequence[Call]) -> bool:
        """Whether the first call may begin with its next tile while cores compute the last call: that one reads nothing that it writes."""
        first, last = calls[0], calls[-1]
        written = first.operands[first.writes[0]].buffer
        has_cores = not self.accelerator(last) or last.kernel.post_processing is not None
        is_read = any(operand.buffer == written for operand in last.parts[-1].operands.values())
        return bool(self.accelerator(first)) and has_cores and not is_read

    def _bytes_elsewhere(self, steps: range, inside: Mapping[str, bool], level: str = "") -> int:
        """Bytes of what lies in a memory, by default that of the engines, while a fused group runs, and is not the fused group's own."""
        own = {name for name, is_inner in inside.items() if is_inner}
        own |= {scratch for step in steps for scratch in self.program.calls[step].scratch.values()}
        windows = {self.program.calls[step].name for step in steps}
        level = level or self.near.name
        mine = [p for name in own for p in self._blocks.get(name, ()) if own.issuperset(p.buffers)]
        mine += [p for name in windows for p in self._windows.get(name, ())]
        there = (p for p in mine if p.level == level and p.first <= steps[-1] and p.last >= steps[0])
        return self._taken[level].between(steps) - sum(self.aligned(p.size) for p in there)

    def aligned(self, size: int) -> int:
        return -(-size // self.near.alignment) * self.near.alignment


def apply_groups(plan: Plan, fused_groups: Sequence[FusionCandidate], buffers: Mapping[str, Buffer]) -> Plan:
    """The plan with some fused groups, in the order of their calls; addresses are those without them.

    Args:
        buffers: of the program that the plan was made from, with those of all variants of its calls.
    """
    calls, offered, variants = list(plan.calls), list(plan.offered), list(plan.variants)
    residences, programmed = dict(plan.residences), list(plan.program.calls)
    near = plan.target.engines[0].memory
    users = buffer_spans(plan.program)
    for one in fused_groups:
        for member, call, candidate in zip(one.fused_group.members, one.programmed, one.calls, strict=True):
            variant = calls[member.step].variant
            if call is not programmed[member.step]:
                known = variants[member.step]
                variants[member.step] = known if call in known else (*known, call)
                variant, programmed[member.step] = variants[member.step].index(call), call
            own = replace(candidate, variant=variant, engine_memory=calls[member.step].engine_memory)
            own = replace(own, bytes=(*own.bytes, *(0 for _ in calls[member.step].bytes))[: len(calls[member.step].bytes)])
            calls[member.step] = own
            offered[member.step] = (*offered[member.step], own)
            ends = users.get(call.operands[call.writes[0]].buffer)
            if ends is not None and one.fused_group.first <= ends[0] and ends[1] <= one.fused_group.last:
                residences[call.operands[call.writes[0]].buffer] = near
    scratch = {name: buffers[name] for call in programmed for name in call.scratch.values() if name not in plan.program.buffers}
    program = replace(plan.program, calls=tuple(programmed), buffers={**plan.program.buffers, **scratch})
    result = replace(plan, program=program, calls=tuple(calls), offered=tuple(offered), variants=tuple(variants), residences=residences)
    result = replace(result, fused_groups=tuple(one.fused_group for one in fused_groups))
    return replace(
        result, calls=tuple(c if _may_prefetch(result, step) else with_prefetch(c, False) for step, c in enumerate(result.calls))
    )


def _may_prefetch(plan: Plan, step: int) -> bool:
    """Whether what a call fetches early is there: another kernel of a call in a fused group may leave a whole constant to a later one."""
    used = {plan.program.calls[step].operands[stream.operand].buffer for stream in plan.tiling(step).streams if stream.is_prefetchable}
    return not any(plan.first_uses.get(name) == step for name in used)


def place_addresses(plan: Plan) -> Plan:
    """The plan with addresses for its fused groups.

    Raises:
        Overfull: there is no room.
    """
    program = plan.program
    fetched = {n: extend_lifetime((p.first, p.last), plan.fused_groups) for p in plan.placements for n in p.buffers if n in plan.fetched}
    blocks = [b for b in block_lifetimes(program, plan.fused_groups) if program.buffers[b.buffers[0]].role in (Role.LOCAL, Role.STATE)]
    everything = wanted_blocks(program, plan.target, plan.calls, plan.residences, blocks, fetched, plan.fused_groups)
    room = {name: (UNLIMITED if use.capacity is None else use.capacity) - use.constants for name, use in plan.memory.items()}
    placements, packings = place_wanted(everything, plan.target, room)
    memory = {
        name: replace(use, peak=packings[name].peak + use.constants, lower_bound=packings[name].lower_bound + use.constants)
        for name, use in plan.memory.items()
    }
    return replace(plan, placements=placements, memory=memory)
