"""Builds the schedule of a plan: the only place that knows in which order a call fetches, computes, waits and stores.

With one slot per window a tile is fetched, computed and stored before the next one is. With two, the next tile arrives and the one before
leaves while a tile is computed. Windows in memories further out move once for a group of tiles. Constants may be fetched early, while
calls before theirs run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from deeploy.errors import UsageError
from deeploy.ir.epilogue import stage_operands
from deeploy.ir.expr import Value, Variable, minimum, multiply_values, name_value, plain_value, quotient, remainder, value_bounds
from deeploy.ir.kernel import SUMS
from deeploy.ir.memo import by_object
from deeploy.ir.nest import Part, Window
from deeploy.ir.types import DType
from deeploy.planning.packing.lifetimes import FOR_EVER, window_name
from deeploy.planning.plan import Plan
from deeploy.planning.program import Program
from deeploy.planning.tiling.fused_group import FusedGroup
from deeploy.planning.tiling.loops import Footprints, Stream
from deeploy.schedule.fused_group import schedule_group, slide_rows
from deeploy.schedule.ir import (
    CORE,
    TICKETS,
    TILE,
    Address,
    Axis,
    Box,
    Compute,
    Condition,
    Do,
    Finish,
    Layer,
    Loop,
    Move,
    Node,
    OperandView,
    PostProcess,
    Purpose,
    Schedule,
    TileWork,
    Token,
    Wait,
    guard_nodes,
    list_turns,
)
from deeploy.schedule.team import join_layers, team_sections

PAST, ALL_ROWS = "past_rows", "all_rows"  # rows of the states before an inference, and with its own
ONCE = 2  # ticket of constants that are fetched before the first inference


def past_rows(program: Program) -> Variable | int:
    """Rows of the states before an inference; 0 where nothing outlives one."""
    return _row_variable(program, PAST, 0) if program.dynamic_length is not None else 0


def all_rows(program: Program) -> Variable | int:
    """Rows of the states with those of an inference; 0 where nothing outlives one."""
    return _row_variable(program, ALL_ROWS, program.dynamic_length.rows) if program.dynamic_length is not None else 0


def _row_variable(program: Program, name: str, own: int) -> Variable:
    dynamic_length = program.dynamic_length
    assert dynamic_length is not None
    return Variable(name, own, own + (0 if dynamic_length.begins else dynamic_length.context - dynamic_length.rows))


def row_values(program: Program, past: int | None = None) -> dict[str, int]:
    """The values of these variables in an inference behind ``past`` rows: as many as there may be by default; none without states.

    Raises:
        UsageError: a position that the states of the network do not have.
    """
    dynamic_length = program.dynamic_length
    if dynamic_length is None:
        if past is not None:
            raise UsageError(f"position {past}: the network has no states", "Leave the position out.")
        return {}
    most = _row_variable(program, PAST, 0).high
    past = most if past is None else past
    if not 0 <= past <= most:
        raise UsageError(f"position {past} is out of range: an inference can begin at 0 to {most}", "Give a position within the context.")
    return {PAST: past, ALL_ROWS: past + dynamic_length.rows}


@by_object
def build_schedule(plan: Plan) -> Schedule:
    """The schedule of one network."""
    copies = _copied_constants(plan)
    tokens = list(dict.fromkeys(Token(_path_to(plan, name), "constants", ONCE) for name in copies))
    initialise: list[Node] = [_fetch_whole(plan, name, ONCE, 0) for name in copies]
    layers = [_Builder(plan, step).layer() for step in range(len(plan.program.calls))]
    for fused_group in plan.fused_groups:
        body = schedule_group(plan, fused_group, layers)
        layers[fused_group.first : fused_group.last + 1] = [
            replace(layer, body=()) for layer in layers[fused_group.first : fused_group.last + 1]
        ]
        layers[fused_group.last] = body
    layers = [replace(layer, body=tuple(guard_nodes(list_turns(layer.call, all_rows(plan.program)), layer.body))) for layer in layers]
    sections = team_sections(layers)
    return Schedule(plan.program.name, (*initialise, *map(Wait, tokens)), join_layers(plan, layers, sections), sections)


def _copied_constants(plan: Plan) -> list[str]:
    """The constants that a transfer copies before the first inference, one of those that share theirs; a flat machine has none."""
    if plan.target.is_flat:
        return []
    shared, buffers = {name: p.buffers[0] for p in plan.placements for name in p.buffers}, plan.program.buffers
    return [name for name, step in plan.fetched.items() if step == FOR_EVER and buffers[name].bytes and shared.get(name, name) == name]


def _path_to(plan: Plan, name: str) -> str:
    """The path over which a copy of a constant comes to where it is read."""
    return next(path.name for path in plan.target.paths if path.near == plan.residences[name])


def _fetch_whole(plan: Plan, name: str, ticket: int, owner: int) -> Move:
    """Begins to fetch a whole constant."""
    buffer = plan.program.buffers[name]
    token = Token(_path_to(plan, name), "constants", ticket)
    return Move(token, False, Address(name, 0, plan.residences[name]), Address(far_name(name)), Box(buffer.bytes), owner, buffer.tensor)


def far_name(name: str) -> str:
    """The block that a constant with a copy is fetched from."""
    return f"{name} far"


class _Builder:
    """Builds the layer of one call."""

    def __init__(self, plan: Plan, step: int) -> None:
        self.plan = plan
        self.step = step
        self.call = plan.program.calls[step]
        self.geometry = self.call.geometry
        self.tiling = plan.tiling(step)
        self.engine = plan.target.engine(self.call.kernel.engine)
        self.paths = plan.target.outward(self.engine.memory)
        self.windows = {name: Footprints(self.geometry, name, operand) for name, operand in self.call.operands.items()}
        self.length = all_rows(plan.program)
        self.cores = min(plan.machine.cores, self.engine.cores) if self.tiling.division else 1
        self.is_double = plan.calls[step].is_double and self.tiling.tiles > 1
        post_processing = self.call.kernel.post_processing
        self.team = min(plan.machine.cores, plan.target.engine(post_processing.kernel.engine).cores) if post_processing is not None else 0
        self.late = stage_operands(self.call.node.epilogue) if post_processing is not None else ()  # what post-processing reads
        self.fused_group = next((fused_group for fused_group in plan.fused_groups if fused_group.first <= step <= fused_group.last), None)
        self.partial = self.tiling.partial(self.geometry)

    def layer(self) -> Layer:
        """The procedures of the call, and what runs them."""
        procedures = {
            "tile": self._tile(self.fused_group) if self.fused_group is not None and self.plan.target.is_flat else [],
            "early": self._moves(0, False, "early"),
            "fetch": self._moves(0, False, "in"),
            "supply": self._moves(0, False, "in", is_late=True),
            "store": self._moves(0, True, "out"),
            "stage": self._moves(1, False, "in"),
            "unstage": self._moves(1, True, "out"),
        }
        self.procedures = {name: tuple(body) for name, body in procedures.items() if body}
        return Layer(
            self.step,
            self.call,
            self.tiling,
            self.plan.calls[self.step].is_double,
            self.engine.name if self.engine.accelerator else None,
            self.team,
            self._sums() if self.team else None,
            self.procedures,
            self._work(),
            (*self._constants(), *(self._tiles() if self.fused_group is None else ())),
            partial=self.partial,
        )

    def _tile(self, fused_group: FusedGroup) -> list[Node]:
        """A tile of a call of a fused group; before it, rows that stay in the line buffer that it writes make room."""
        return [*slide_rows(self.plan, fused_group, self.step, self.tiling.index), Compute(self.step, self.tiling.index)]

    # ---- windows

    def streams(self, distance: int, is_output: bool) -> list[Stream]:
        """The windows that move over the path that is ``distance`` memories away from the engine's own."""
        if distance >= len(self.paths):
            return []
        return [s for s in self.tiling.streams if s.path == self.paths[distance].name and s.is_output == is_output]

    def _moves(self, distance: int, is_output: bool, purpose: Purpose, is_late: bool = False) -> list[Node]:
        """What moves for a tile: what it needs and the tile before did not, or what it computed.

        ``is_late``: what the post-processing of a tile needs, instead of what the first does.
        """
        nodes: list[Node] = []
        is_prefetchable = purpose == "early"
        for stream in self.streams(distance, is_output):
            tile = 0 if is_prefetchable else self.tiling.index
            is_elsewhere = not stream.is_prefetchable if is_prefetchable else stream.is_prefetchable and stream.moves == 1
            if is_elsewhere or (purpose == "in" and distance == 0 and (stream.operand in self.late) is not is_late):
                continue
            near, (far, box) = self._locate_window(stream, tile), self._locate_source(stream, tile)
            move = Move(Token(stream.path, purpose, TICKETS[purpose]), is_output, near, far, box, self.step, stream.operand)
            conditions: list[Condition] = []
            if not is_output and not is_prefetchable:
                conditions += [Condition(tile, "!=", 0)] if stream.is_prefetchable else []
                conditions.append(Condition(tile, "==", 0) if stream.moves == 1 else Condition(remainder(tile, stream.period), "==", 0))
            if is_output and distance == 0:
                conditions.append(Condition(remainder(tile, self.partial), "==", self.partial - 1))
            nodes += guard_nodes(conditions, [move])
        return nodes

    def _sums(self) -> Address:
        """The slot in which the first part of a tile leaves its sums."""
        scratch = self.call.kernel.scratch[SUMS]
        size = int(scratch.total(self.call.node, {**self.geometry.extents, **self.tiling.sizes}))
        turn = remainder(quotient(self.tiling.index, self.partial), self.call.kernel.slots(SUMS, self.is_double))
        return Address(self.call.scratch[SUMS], turn * size, self.engine.memory)

    def _dtype(self, operand: str) -> DType:
        return self.plan.program.buffers[self.call.operands[operand].buffer].dtype

    def _locate_window(self, stream: Stream, tile: Value) -> Address:
        """The address of the window that serves a tile: that of the window, which the plan has, and a slot that takes turns."""
        level = next(path.near for path in self.paths if path.name == stream.path)
        turn = remainder(quotient(tile, stream.period), stream.depth)
        return Address(window_name(self.call.name, stream.operand, level, self.engine.memory), turn * stream.bytes, level)

    def _buffer(self, name: str) -> Address:
        """Where an operand's buffer begins, with the rows that exist before it."""
        operand, unit = self.call.operands[name], self._dtype(name).bytes
        offset = (operand.access.offset + operand.moved(past_rows(self.plan.program))) * unit
        level = self.plan.residences.get(operand.buffer, "") if operand.buffer in self.plan.offsets else ""
        return Address(operand.buffer, plain_value(offset), level)

    def _shown(self, name: str, parts: Mapping[str, Part], label: str) -> tuple[Window, ...]:
        windows = self.windows[name]
        return tuple(windows.window(axis, parts, f"{label}_{axis}") for axis in range(len(windows.shape)))

    def _locate_source(self, stream: Stream, tile: Value) -> tuple[Address, Box]:
        """What the slot that serves a tile holds: where that lies one memory further out, and its box."""
        name = stream.operand
        unit, order = self._dtype(name).bytes, self.windows[name].order
        shown = self._shown(name, self.tiling.parts(self.geometry, self.length, tile, stream.loops), name)
        firsts = [window.first for window in shown]
        strides: Sequence[Value] = self.call.operands[name].access.strides
        if stream.inner:
            outer = next(s for s in self.tiling.streams if s.operand == name and s.path != stream.path)
            parts = self.tiling.parts(self.geometry, self.length, tile, outer.loops, "_outer")
            around = self._shown(name, parts, f"{name}_outer")
            firsts = [a.first - b.first for a, b in zip(shown, around, strict=True)]
            strides, far = _packed_strides(around, order), self._locate_window(outer, tile)
        else:
            far = self._buffer(name)
        place = sum((first * (stride * unit) for first, stride in zip(firsts, strides, strict=True)), start=far.offset)
        box = _make_box([(shown[axis].count, strides[axis] * unit) for axis in reversed(order)], unit)
        return replace(far, offset=plain_value(place)), box

    # ---- what a core computes

    def _work(self) -> TileWork:
        parts = self.tiling.parts(self.geometry, self.length)
        tile: dict[str, Value] = {name: parts[name][1] if name in parts else extent for name, extent in self.geometry.extents.items()}
        division = self.tiling.division or ()
        dynamic = sorted({loop.dim for loop in self.tiling.loops} & self.geometry.dynamic - dict(division).keys())
        empty = [parts[dim][1] for dim in dynamic]
        mine, core = parts, Variable(CORE, 0, self.cores - 1)
        number: Value = core
        for dim, shares in () if self.call.kernel.team else division:
            first, count = parts.get(dim, (0, self.geometry.extents[dim]))
            whole = self.tiling.tile(dim, self.geometry.extents[dim])
            is_fixed = self.geometry.extents[dim] % whole == 0 and dim not in self.geometry.dynamic
            each = -(-whole // shares) if is_fixed else quotient(count + (shares - 1), shares)
            begin = name_value(f"part_{dim}", first + (remainder(number, shares) if len(division) > 1 else number) * each)
            mine = {**mine, dim: (begin, name_value(f"part_{dim}_n", minimum(each, first + count - begin)))}
            empty.append(mine[dim][1])
            number = quotient(number, shares)
        operands = {name: self._operand(name, parts, mine) for name in self.call.operands}
        if self.geometry.nest.accumulated and not self.team:
            operands[SUMS] = self._accumulated_sums(parts, mine)
        return TileWork(self.cores, tile, division, mine, operands, tuple(n for n in empty if value_bounds(n)[0] <= 0))

    def _operand(self, name: str, tile: Mapping[str, Part], mine: Mapping[str, Part]) -> OperandView:
        """What the calling core sees of an operand: in its buffer, or in the window that holds the tile's part of it."""
        stream = next((s for s in self.tiling.streams if s.operand == name and s.path == self.paths[0].name), None)
        label = f"{name}_part"
        slots = self.fused_group.tile_buffers.get(self.call.operands[name].buffer) if self.fused_group is not None else None
        strides: Sequence[Value]
        element: Value = 0
        firsts: Sequence[Value]
        if stream is not None or slots is not None:
            parts = tile if slots is None else self.tiling.parts(self.geometry, self.length, None, slots.loops, "_round")
            whole = self._shown(name, parts, name if slots is None else f"{name}_round")
            part = whole if mine == parts else self._shown(name, mine, label)
            strides = _packed_strides(whole, self.windows[name].order)
            firsts = [a.first - b.first for a, b in zip(part, whole, strict=True)]
            if stream is not None:
                address = self._locate_window(stream, self.tiling.index)
            else:
                assert slots is not None
                inner = math.prod(loop.trips for loop in self.tiling.loops[slots.loops :])
                turn = remainder(quotient(self.tiling.index, inner), slots.count)
                address, element = replace(self._buffer(name), offset=0), turn * slots.elements
        else:
            part = self.windows[name].in_place(mine, label)
            operand = self.call.operands[name]
            strides = operand.access.strides
            element = operand.access.offset + operand.moved(past_rows(self.plan.program))
            address, firsts = replace(self._buffer(name), offset=0), [window.first for window in part]
        element = sum((first * stride for first, stride in zip(firsts, strides, strict=True)), start=element)
        element = element - self._base(self.call.operands[name].buffer)
        return OperandView(address, plain_value(element), part, tuple(plain_value(s) for s in strides))

    def _accumulated_sums(self, tile: Mapping[str, Part], mine: Mapping[str, Part]) -> OperandView:
        """What the calling core sees of the sums of a tile's outputs, which are packed."""
        (name,) = self.call.writes
        whole = self._shown(name, tile, name)
        part = whole if mine == tile else self._shown(name, mine, f"{name}_part")
        strides = _packed_strides(whole, self.windows[name].order)
        element = plain_value(sum(((a.first - b.first) * stride for a, b, stride in zip(part, whole, strides, strict=True)), start=0))
        return OperandView(Address(self.call.scratch[SUMS], 0, self.engine.memory), element, part, tuple(plain_value(s) for s in strides))

    def _base(self, buffer: str) -> Value:
        """Elements of a buffer that its line buffer no longer holds when a tile is computed; 0 where it is no line buffer."""
        if self.fused_group is None or buffer not in self.fused_group.line_buffers:
            return 0
        first = self.fused_group.base(buffer, self.fused_group.seen(buffer, self.step, self.tiling.index))
        return first * self.fused_group.line_buffers[buffer].pitch

    # ---- the order

    def _constants(self) -> list[Node]:
        """Whole constants whose fetch begins with the call, and the wait for those that it needs."""
        plan, nodes = self.plan, list[Node]()
        for name in plan.loads(self.step):
            use = plan.first_uses[name]
            nodes.append(_fetch_whole(plan, name, plan.load_tickets[use], use))
        if self.step in plan.load_tickets:
            nodes.append(Wait(Token(self.paths[-1].name, "constants", plan.load_tickets[self.step])))
        if "early" in self.procedures:
            nodes.append(Wait(self._token(0, "early")))
        return nodes

    def _token(self, distance: int, purpose: Purpose) -> Token:
        return Token(self.paths[distance].name, purpose, TICKETS[purpose])

    def _do(self, procedure: str, tile: Value) -> list[Node]:
        return [Do(self.step, procedure, tile)] if procedure in self.procedures else []

    def _waited(self, procedure: str, distance: int, purpose: Purpose) -> list[Node]:
        """A wait for what a procedure moves, where there is one."""
        return [Wait(self._token(distance, purpose))] if procedure in self.procedures else []

    @property
    def _group(self) -> int:
        """Tiles between two moves of the windows in memories further out."""
        far = self.streams(1, False) + self.streams(1, True)
        return math.prod(loop.trips for loop in self.tiling.loops[far[0].loops :]) if far else 1

    def _computed(self, tile: Value, ahead: Sequence[Node] = ()) -> list[Node]:
        """The kernel on a tile; an accelerator works while what comes ``ahead`` is begun, and before cores are forked it has begun."""
        others = [*ahead, *self._followed(tile)]
        if self.engine.accelerator:
            return [
                Compute(self.step, tile),
                *others,
                Finish(self.step, self.engine.name, tile),
                *self._post_processed(tile),
            ]
        return [*others, Compute(self.step, tile)]

    def _post_processed(self, tile: Value) -> list[Node]:
        """What cores make of the sums of a tile, or of the last of those that add up to them."""
        nodes: list[Node] = [PostProcess(self.step, tile)] if self.team else []
        return guard_nodes([Condition(remainder(tile, self.partial), "==", self.partial - 1)], nodes)

    def _followed(self, tile: Value) -> list[Node]:
        """With the last tile the early windows of a later call begin to move."""
        following = self.plan.followers.get(self.step)
        last: Sequence[Node] = [Do(following, "early", 0)] if following is not None else []
        return guard_nodes([Condition(tile, "==", self.tiling.tiles - 1)], last)

    def _looped(self, body: Sequence[Node]) -> list[Node]:
        tile = self.tiling.index
        return [Loop(tile, self.tiling.tiles, tuple(body))] if isinstance(tile, Variable) else list(body)

    def _tiles(self) -> list[Node]:
        """All tiles; parts of tiles whose windows are staged do not overlap."""
        if not self.is_double or (self.team and {"stage", "unstage"} & self.procedures.keys()):
            return self._simple()
        return self._overlapped() if self.team else self._doubled()

    def _simple(self) -> list[Node]:
        """One tile after the other."""
        tile, group = self.tiling.index, self._group
        turn = remainder(tile, group)
        stage = [*self._do("stage", tile), *self._waited("stage", 1, "in")]
        unstage = [*self._do("unstage", tile), *self._waited("unstage", 1, "out")]
        return self._looped(
            [
                *guard_nodes([Condition(turn, "==", 0)], stage),
                *self._do("fetch", tile),
                *self._do("supply", tile),
                *(self._waited("fetch", 0, "in") or self._waited("supply", 0, "in")),
                *self._computed(tile),
                *self._do("store", tile),
                *self._waited("store", 0, "out"),
                *guard_nodes([Condition(turn, "==", group - 1)], unstage),
            ]
        )

    def _overlapped(self) -> list[Node]:
        """The accelerator computes the next tile, and the one behind that is fetched, during the post-processing of a tile."""
        tile, tiles = self.tiling.index, self.tiling.tiles
        arrived = self._waited("fetch", 0, "in") or self._waited("supply", 0, "in")
        more, further = Condition(tile, "<", tiles - 1), Condition(tile, "<", tiles - 2)
        loop = [
            *(arrived if "supply" in self.procedures else guard_nodes([more], arrived)),
            Finish(self.step, self.engine.name, tile),
            *guard_nodes([more], [Compute(self.step, tile + 1)]),
            *guard_nodes([further], self._do("fetch", tile + 2)),
            *guard_nodes([more], self._do("supply", tile + 1)),
            *self._followed(tile),
            *self._post_processed(tile),
            *self._waited("store", 0, "out"),
            *self._do("store", tile),
        ]
        return [
            *self._do("fetch", 0),
            *self._do("supply", 0),
            *arrived,
            Compute(self.step, 0),
            *self._do("fetch", 1),
            *self._looped(loop),
            *self._waited("store", 0, "out"),
        ]

    def _doubled(self) -> list[Node]:
        """The next tile is fetched and the one before is stored while a tile is computed."""
        tile, group, tiles = self.tiling.index, self._group, self.tiling.tiles
        following = tile + 1
        staged = self._waited("stage", 1, "in")
        starts = Condition(remainder(following, group), "==", 0)
        further = Condition(following, "<", tiles - group)
        ahead = [
            *guard_nodes([starts], staged),
            *self._do("fetch", following),
            *guard_nodes([starts, further], self._do("stage", following + group)),
        ]
        is_single = any(s.depth == 1 and s.moves > 1 for s in self.streams(1, True))
        left = self._waited("unstage", 1, "out")
        unstage = [
            *self._waited("unstage", 0, "out"),
            *(left if not is_single and tiles // group > 2 else ()),  # the slot that the next group fills is the one before last
            *self._do("unstage", tile),
            *(left if is_single else ()),  # the only slot is needed again
        ]
        loop = [
            *self._waited("fetch", 0, "in"),
            *self._computed(tile, guard_nodes([Condition(tile, "<", tiles - 1)], ahead)),
            *self._waited("store", 0, "out"),
            *self._do("store", tile),
            *guard_nodes([Condition(remainder(tile, group), "==", group - 1)], unstage),
        ]
        return [
            *self._do("stage", 0),
            *staged,
            *self._do("fetch", 0),
            *(self._do("stage", group) if group < tiles else ()),
            *self._looped(loop),
            *(left or self._waited("store", 0, "out")),  # to leave the memory further out, the last tile's stores were waited for
        ]


def _packed_strides(window: Sequence[Window], order: Sequence[int]) -> tuple[Value, ...]:
    """Strides of a window packed in the given order of axes, in elements."""
    return tuple(multiply_values(window[inner].count for inner in order[order.index(axis) + 1 :]) for axis in range(len(window)))


def _make_box(axes: Sequence[tuple[Value, Value]], unit: int) -> Box:
    """The box with these counts and pitches, innermost first; axes that touch are merged."""
    run: Value = unit
    outer: list[Axis] = []
    for count, pitch in axes:
        if count == 1:
            continue
        if not outer and pitch == run:
            run = run * count
        elif outer and pitch == outer[-1].count * outer[-1].pitch:
            outer[-1] = Axis(plain_value(outer[-1].count * count), outer[-1].pitch)
        else:
            outer.append(Axis(plain_value(count), plain_value(pitch)))
    return Box(plain_value(run), tuple(reversed(outer)))


__all__ = ["ALL_ROWS", "ONCE", "PAST", "TILE", "all_rows", "build_schedule", "far_name", "past_rows"]
