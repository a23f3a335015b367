"""Fused groups: consecutive calls that are computed together, a few rows of each at a time.

What is between them need not exist as a whole: of a tensor that only calls of the fused group read, as many rows stay as are still needed.

A call of a fused group is cut into tiles along the outermost axis of its output. The fused group counts *time steps*: call ``i`` computes
tile ``t`` at time step ``start[i] + interval[i] * t``, in every time step in the order of the program. ``interval`` follows from the
strides of the maps: a call that takes two rows for one of its own runs in every second time step. ``start`` is the least for which every
row that a tile reads is there:

    start[j] = max over t of (start[i] + interval[i] * (last tile of i that tile t of j reads) - interval[j] * t)

This is the order of line buffers in hardware. Nothing is computed twice. A *line buffer* holds the last rows of a tensor: as many as lie,
at any time, between the first one that a tile reads and the last one that has been computed. Kernels see rows that lie one after the
other, so rows that stay are moved to the beginning of the line buffer when its end is reached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from functools import cached_property

import numpy as np

from deeploy.ir.expr import Value, Variable, evaluate_value, maximum, minimum, plain_value, quotient
from deeploy.planning.program import Call, Operand, Program, Role
from deeploy.planning.tiling.loops import CallTiling, Footprints, TileLoop, cut_dims, in_place

TIME_STEP = "time_step"  # the variable that counts them


@dataclass(frozen=True)
class GroupMember:
    """A call of a fused group: the tiles of its loops, ``tiles_per_step`` of them in a row, and again after ``interval`` time steps.

    Tile ``t`` is computed at time step ``start + interval * (t // tiles_per_step) + t % tiles_per_step``.
    """

    step: int
    loops: tuple[TileLoop, ...]
    interval: int
    start: int
    tiles_per_step: int = 1

    @property
    def trips(self) -> int:
        """How many tiles the call is cut into."""
        return math.prod(loop.trips for loop in self.loops)

    @property
    def rows(self) -> int:
        """Iterations of a tile along the innermost loop; where the call writes a line buffer, there is no other loop."""
        return self.loops[-1].tile

    @property
    def tiling(self) -> CallTiling:
        """The tiles of the call, as those of a call by itself are described."""
        return CallTiling(self.loops, (), None)


@dataclass(frozen=True)
class LineBuffer:
    """The last rows of a tensor between two calls of a fused group.

    Attributes:
        producer: the step that computes it.
        rows: that there is room for, a multiple of those of a tile.
        pitch: elements of one row.
        tiles: that are computed between two moves of the rows that stay.
    """

    producer: int
    rows: int
    pitch: int
    tiles: int


@dataclass(frozen=True)
class TileBuffers:
    """Parts of a tensor between two calls of a fused group, which have loops in common: one reads in a round of those what the other
    wrote in it.

    Attributes:
        elements: of a slot: the largest part.
        count: slots; what belongs to round ``n`` lies in slot ``n % count``.
        loops: how many of the calls' loops, the outermost ones, they have in common.
    """

    elements: int
    count: int
    loops: int


class StepAction(IntEnum):
    """What happens to a tile: an accelerator begins with it, is waited for, or cores compute."""

    BEGIN = 0
    FINISH = 1
    COMPUTE = 2


@dataclass(frozen=True)
class FusedGroup:
    """Calls of consecutive steps, and what lies between them by buffer: the last rows in a line buffer, or single tiles in slots.

    Attributes:
        is_ahead: an accelerator begins with the first call's tile of the next time step while cores compute the last call's of this one.
        is_nested: calls follow each other in every round of the loop that they have in common; accelerators begin a time step ahead.
    """

    members: tuple[GroupMember, ...]
    line_buffers: Mapping[str, LineBuffer]
    is_ahead: bool = False
    tile_buffers: Mapping[str, TileBuffers] = field(default_factory=dict)
    is_nested: bool = False

    @property
    def first(self) -> int:
        """The step of the group's first call."""
        return self.members[0].step

    @property
    def last(self) -> int:
        """The step of the group's last call."""
        return self.members[-1].step

    @cached_property
    def held(self) -> Mapping[str, int]:
        """Elements for which there is room of what lies between calls, by buffer."""
        line_buffers = {name: line_buffer.rows * line_buffer.pitch for name, line_buffer in self.line_buffers.items()}
        return line_buffers | {name: tile_buffers.elements * tile_buffers.count for name, tile_buffers in self.tile_buffers.items()}

    @cached_property
    def time_steps(self) -> int:
        """How many time steps the group takes until the last tile of every call is computed."""
        return max(m.start + m.interval * (m.trips // m.tiles_per_step - 1) + m.tiles_per_step for m in self.members)

    def turns(self, has_job: Sequence[bool]) -> list[tuple[StepAction, int]]:
        """What happens, in order, and to which call by its number; some have jobs of an accelerator.

        An accelerator begins with a tile while cores compute the call in front of it: in the same time step, or in the one before.
        """
        count, turns = len(self.members), list[tuple[int, int, StepAction, int]]()  # by the time step, and the turn in it
        for number, member in enumerate(self.members):
            is_ahead = self.is_ahead and number == 0
            for tile in range(member.trips):
                time_step = member.start + member.interval * (tile // member.tiles_per_step) + tile % member.tiles_per_step
                if self.is_nested:
                    before, ended, computed = (time_step - 1, count + number), number, 2 * count + number
                else:
                    before = (time_step - 1, 3 * count - 2) if is_ahead else (time_step, 3 * number - 2)
                    ended, computed = 3 * number, 3 * number + 2
                if has_job[number]:
                    turns += [(*before, StepAction.BEGIN, number), (time_step, ended, StepAction.FINISH, number)]
                turns.append((time_step, computed, StepAction.COMPUTE, number))
        return [(turn, number) for _, _, turn, number in sorted(turns)]

    def member(self, step: int) -> GroupMember:
        """The call of the group at a step of the program."""
        return self.members[step - self.first]

    def base(self, buffer: str, tile: Value) -> Value:
        """The first row that a line buffer holds when a tile of its tensor is computed."""
        line_buffer = self.line_buffers[buffer]
        rows = self.member(line_buffer.producer).rows
        more = maximum(tile + (1 - line_buffer.rows // rows), 0)  # tiles for which there was no room
        return plain_value(quotient(more + (line_buffer.tiles - 1), line_buffer.tiles) * (line_buffer.tiles * rows))

    def seen(self, buffer: str, step: int, tile: Value) -> Value:
        """The last tile of a line buffer's tensor that is computed before a tile of another call."""
        reader, producer = self.member(step), self.member(self.line_buffers[buffer].producer)
        if reader is producer:
            return tile
        last = quotient(reader.interval * tile + (reader.start - producer.start), producer.interval)
        return minimum(maximum(last, 0), producer.trips - 1)


@dataclass(frozen=True)
class _Reads:
    """What tiles read of a buffer: the first element and the one behind the last, by tile."""

    buffer: str
    first: np.ndarray
    end: np.ndarray

    @property
    def advance(self) -> int:
        """Elements between two tiles, where that is the same for most of them; else 0."""
        steps = np.diff(self.first)
        middle = int(np.median(steps)) if steps.size else 0
        return middle if 2 * np.count_nonzero(steps == middle) > steps.size else 0


@dataclass(frozen=True)
class RowCut:
    """A call in tiles: what they read of buffers that calls write, and the rows of the one that they write.

    ``offset`` and ``pitch`` are elements of the buffer ``written``; ``is_all`` says whether the rows are the whole buffer.
    """

    dim: str
    rows: int
    trips: int
    extent: int
    reads: tuple[_Reads, ...]
    written: str
    offset: int
    pitch: int
    is_all: bool


@dataclass(frozen=True)
class FusionAxis:
    """Along which axis of its output a call is cut, and the dimension along it: ``extent`` iterations, in multiples of ``multiple``."""

    axis: int
    dim: str
    extent: int
    multiple: int

    def loop(self, rows: int) -> TileLoop:
        """The loop over tiles of at least ``rows`` iterations along the fusion axis."""
        rows = min(-(-rows // self.multiple) * self.multiple, self.extent)
        return TileLoop(self.dim, -(-self.extent // rows), rows)


def cut_into_rows(program: Program, call: Call) -> FusionAxis | None:
    """How a call is cut into rows; None where it cannot be part of a fused group of them."""
    kernel, nest = call.kernel, call.geometry.nest
    if kernel.link is not None or kernel.forks or nest.updates or call.geometry.dynamic or len(call.writes) != 1:
        return None
    output = call.operands[call.writes[0]]
    if program.buffers[output.buffer].role is Role.STATE:
        return None  # calls that read what it was before would have to be over
    axis, dim = _outermost_axis(call, call.writes[0], output)
    fixed = {d for name, operand in call.operands.items() for d in in_place(call, Footprints(call.geometry, name, operand))}
    multiple = cut_dims(call).get(dim or "")
    if dim is None or multiple is None or dim in fixed or any(operand.step for operand in call.operands.values()):
        return None
    return FusionAxis(axis, dim, call.geometry.extents[dim], multiple)


def tile_rows(program: Program, call: Call, rows: int) -> RowCut | None:
    """A call in tiles of at least so many rows of its output; None where it cannot be part of a fused group."""
    along = cut_into_rows(program, call)
    if along is None:
        return None
    loop, output = along.loop(rows), call.operands[call.writes[0]]
    reads = []
    for name, operand in call.operands.items():
        if name not in call.writes and program.buffers[operand.buffer].role in (Role.LOCAL, Role.OUTPUT):
            reads.append(_tile_reads(call, name, operand, loop.dim, loop.tile, loop.trips))
    if any(read is None for read in reads):
        return None
    pitch, buffer = output.access.strides[along.axis], program.buffers[output.buffer]
    is_all = output.access.is_dense and not output.access.offset and along.extent * pitch == math.prod(buffer.shape)
    known = tuple(read for read in reads if read is not None)
    return RowCut(loop.dim, loop.tile, loop.trips, along.extent, known, output.buffer, output.access.offset, pitch, is_all)


def _outermost_axis(call: Call, name: str, operand: Operand) -> tuple[int, str | None]:
    """The axis of an operand with the widest stride, of those that have several indices, and the dimension that runs along it."""
    windows = Footprints(call.geometry, name, operand)
    axes = [axis for axis in windows.order if windows.shape[axis] > 1]
    return (axes[0], windows.dims[axes[0]]) if axes else (0, None)


def _tile_reads(call: Call, name: str, operand: Operand, dim: str, rows: int, trips: int) -> _Reads | None:
    """What tiles read of an operand: rows along its outermost axis, or all of it; None where it is read backwards."""
    windows = Footprints(call.geometry, name, operand)
    axis, along = _outermost_axis(call, name, operand)
    offset, strides = operand.access.offset, operand.access.strides
    if any(size > 1 and stride < 0 for size, stride in zip(windows.shape, strides, strict=True)):
        return None
    if along != dim or name in call.geometry.nest.indirect:
        whole = 1 + sum((size - 1) * stride for size, stride in zip(windows.shape, strides, strict=True))
        return _Reads(operand.buffer, np.full(trips, offset), np.full(trips, offset + whole))
    tile, pitch = Variable("tile", 0, trips - 1), strides[axis]
    extent = call.geometry.extents[dim]
    window = windows.window(axis, {dim: (tile * rows, minimum(rows, extent - tile * rows))})
    first, count = (
        np.broadcast_to(evaluate_value(value, {"tile": np.arange(trips)}), trips).astype(np.int64) for value in (window.first, window.count)
    )
    within = 1 + sum((windows.shape[other] - 1) * strides[other] for other in range(len(strides)) if other != axis)
    end = np.where(count > 0, offset + (first + count - 1) * pitch + within, offset)
    return _Reads(operand.buffer, offset + first * pitch, end)


class ModuloSchedule:
    """In which time steps the calls of a fused group run, which is made call by call: its modulo schedule."""

    def __init__(self) -> None:
        self.cuts: list[RowCut] = []
        self.intervals: list[Fraction] = []
        self.start: list[Fraction] = []
        self.makers: dict[str, list[int]] = {}  # positions of the calls that write a buffer

    def add(self, one: RowCut, is_pipelined: bool = False) -> None:
        """The next call.

        Args:
            is_pipelined: it is computed at the same time as the one before it, and finds what that has computed up to the time step before.
        """
        needs = [(maker, read) for read in one.reads for maker in self.makers.get(read.buffer, ())]
        interval = max((self._rate(maker, read, one) for maker, read in needs), default=None)
        if interval is None:
            interval = self.intervals[0] * Fraction(self.cuts[0].trips, one.trips) if self.cuts else Fraction(1)
        start = Fraction(0)
        for maker, read in needs:
            start = max(start, self._ready(maker, read, interval) + (is_pipelined and maker == len(self.cuts) - 1))
        self.makers.setdefault(one.written, []).append(len(self.cuts))
        self.cuts.append(one)
        self.intervals.append(interval)
        self.start.append(start)

    def _rate(self, maker: int, read: _Reads, one: RowCut) -> Fraction:
        """Time steps between two tiles that follow the one that makes what they read."""
        made = self.cuts[maker]
        if read.advance > 0:
            return self.intervals[maker] * Fraction(read.advance, made.rows * made.pitch)
        return self.intervals[maker] * Fraction(made.trips, one.trips)

    def _ready(self, maker: int, read: _Reads, interval: Fraction) -> Fraction:
        """The first time step from which tiles find what they read."""
        made = self.cuts[maker]
        rows = np.clip(-((made.offset - read.end) // made.pitch), 0, made.extent)
        tiles = -(-rows // made.rows) - 1
        unit = math.lcm(interval.denominator, self.intervals[maker].denominator)
        late = int(self.intervals[maker] * unit) * tiles - int(interval * unit) * np.arange(len(tiles))
        needed = late[tiles >= 0]
        return self.start[maker] + Fraction(int(needed.max()), unit) if needed.size else Fraction(0)

    def line_buffer(self, buffer: str) -> int:
        """Rows of the line buffer of a tensor: a multiple of those of a tile."""
        (maker,) = self.makers[buffer]
        made, most = self.cuts[maker], 0
        for position, other in enumerate(self.cuts):
            for read in other.reads:
                if read.buffer == buffer:
                    most = max(most, self._held(maker, position, read))
        return max(-(-most // made.rows), 1) * made.rows

    def _held(self, maker: int, reader: int, read: _Reads) -> int:
        """The most rows from the first one that a tile reads to the last one that is computed."""
        made = self.cuts[maker]
        unit = math.lcm(*(x.denominator for x in (self.intervals[maker], self.intervals[reader], self.start[maker], self.start[reader])))
        time_step = int(self.intervals[reader] * unit) * np.arange(len(read.first)) + int((self.start[reader] - self.start[maker]) * unit)
        tiles = np.clip(time_step // int(self.intervals[maker] * unit), 0, made.trips - 1) + 1
        held = tiles * made.rows - (read.first - made.offset) // made.pitch
        return int(held[read.end > read.first].max(initial=0))

    def members(self, first: int) -> tuple[GroupMember, ...]:
        """The calls, in whole time steps, where the first one has the given step."""
        unit = math.lcm(*(x.denominator for x in (*self.intervals, *self.start)))
        return tuple(
            GroupMember(first + number, (TileLoop(one.dim, one.trips, one.rows),), int(interval * unit), int(start * unit))
            for number, (one, interval, start) in enumerate(zip(self.cuts, self.intervals, self.start, strict=True))
        )


@dataclass(frozen=True)
class Arrangement:
    """Bytes that layers take at once in a way to arrange them, and what it adds: calls of kernels, and bytes that are moved in line
    buffers."""

    bytes: int
    calls: int
    moved: int
