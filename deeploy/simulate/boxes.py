"""Which transfers the windows of a stream are: the boxes that emitted code moves, cut as ``deeploy_box.c`` cuts them.

Counts are exact: halos, clipped borders and remainder tiles are those of every single window, and boxes are split by the limits of
their path. The equality with what the host machine model counts is tested.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deeploy.graph.nest import Span
from deeploy.graph.target import DmaPath
from deeploy.midend.plan import Plan
from deeploy.midend.tiling import Stream, Windows


@dataclass(frozen=True)
class Batch:
    """``count`` equal transfers of ``rows`` rows of ``bytes`` bytes."""

    count: int
    bytes: int
    rows: int


@dataclass(frozen=True)
class Axis:
    """An outer axis of a box: ``count`` runs that are ``pitch`` bytes apart on the far side."""

    count: int
    pitch: int


def transfers(path: DmaPath, run: int, axes: Sequence[Axis]) -> tuple[Batch, ...]:
    """The transfers that move a box of ``run`` bytes along ``axes`` (outermost first) over a path."""
    outer = list(axes)
    if not run or not all(axis.count for axis in outer):
        return ()
    while outer and (outer[-1].count == 1 or outer[-1].pitch == run):
        run *= outer.pop().count
    last = outer.pop() if outer else Axis(1, run)
    rows, pitch = last.count, last.pitch
    times = math.prod(axis.count for axis in outer)
    longest = min(path.max_bytes, path.max_total)
    if rows > 1 and run <= longest and path.max_rows > 1 and pitch <= path.max_pitch:
        most = min(path.max_rows, path.max_total // run)
        parts = [Batch(times * (rows // most), run, most), Batch(times * (rows > rows // most * most), run, rows % most)]
    else:
        parts = [Batch(times * rows * (run // longest), longest, 1), Batch(times * rows * (run % longest > 0), run % longest, 1)]
    return tuple(part for part in parts if part.count)


class StreamBoxes:
    """The transfers of one stream of a call, by the number of the tile that its window serves."""

    def __init__(self, plan: Plan, step: int, stream: Stream) -> None:
        self.call = plan.program.calls[step]
        self.tiling = plan.tiling(step)
        self.stream = stream
        self.path = next(path for path in plan.target.paths if path.name == stream.path)
        self.unit = plan.program.buffers[self.call.operands[stream.operand].buffer].dtype.bytes
        self.windows = Windows(self.call.geometry, stream.operand, self.call.operands[stream.operand])
        self.is_mapped = self.windows.is_mapped
        self.outer: Stream | None = None
        if stream.inner:
            self.outer = next(s for s in self.tiling.streams if s.operand == stream.operand and s.path != stream.path)
        self._mentions = [self._dims(axis) for axis in range(len(self.windows.shape))]
        self._digits = self._relevant()
        self._varies = self._varying(stream)
        self._boxes: dict[tuple[int, ...], tuple[Batch, ...]] = {}
        self._counts: dict[tuple[int, tuple[Span, ...]], int] = {}

    def at(self, tile: int) -> tuple[Batch, ...]:
        """The transfers of the window that serves a tile."""
        key = tuple(tile // inner % trips for inner, trips in self._digits)
        if key not in self._boxes:
            spans = self.tiling.spans(self.call.geometry.extents, tile, self.stream.loops)
            around = self.tiling.spans(self.call.geometry.extents, tile, self.outer.loops) if self.outer is not None else {}
            self._boxes[key] = self._box(spans, around)
        return self._boxes[key]

    def _dims(self, axis: int) -> set[str]:
        """The dimensions that the operand's maps mention along an axis."""
        return {dim.name for access in self.windows.maps for dim in access.axes[axis].dims()} if self.is_mapped else set()

    def _relevant(self) -> list[tuple[int, int]]:
        """Of the loops that move the window: tiles between two of their steps, and trips."""
        result, inner = [], self.tiling.tiles
        for loop in self.tiling.loops[: self.stream.loops]:
            inner //= loop.trips
            if any(loop.dim in dims for dims in self._mentions):
                result.append((inner, loop.trips))
        return result

    def _count(self, axis: int, spans: Mapping[str, Span]) -> int:
        if not self.is_mapped:
            return self.windows.shape[axis]
        key = (axis, tuple(span for dim, span in spans.items() if dim in self._mentions[axis]))
        if key not in self._counts:
            first, last = self.windows.window(axis, spans)
            self._counts[key] = max(0, last - first + 1)
        return self._counts[key]

    def _varying(self, stream: Stream) -> list[bool]:
        """Per axis whether emitted code computes the extent of the window; it merges only what it knows."""
        windows = self.windows
        dims = {loop.dim for loop in self.tiling.loops[: stream.loops]} | self.call.geometry.limited
        is_padded = any(access.outside is not None for access in windows.maps)
        fixed = [size == 1 and dim is None and not is_padded for size, dim in zip(windows.shape, windows.dims, strict=True)]
        return [not is_fixed and not dims.isdisjoint(names) for is_fixed, names in zip(fixed, self._mentions, strict=True)]

    def _box(self, spans: Mapping[str, Span], around: Mapping[str, Span]) -> tuple[Batch, ...]:
        """The box of a window: axes that touch are merged where the emitter sees that they do, the rest as the C does.

        The emitter compares a pitch with the extent and the pitch of the axis within it. It sees that they are equal where that extent
        is constant, also when the pitches are products of variables.
        """
        windows = self.windows
        strides = self._strides(around)
        run = self.unit
        axes: list[Axis] = []
        is_known = False  # whether the emitter knows the count of the last axis
        for axis in reversed(windows.order):
            count, pitch = self._count(axis, spans), strides[axis] * self.unit
            varies = self._varies[axis]
            if count == 1 and not varies:
                continue
            if not axes and pitch == run:
                run *= count
                continue
            if axes and is_known and pitch == axes[-1].count * axes[-1].pitch:
                axes[-1] = Axis(axes[-1].count * count, axes[-1].pitch)
            else:
                axes.append(Axis(count, pitch))
            is_known = not varies
        return transfers(self.path, run, axes[::-1])

    def _strides(self, around: Mapping[str, Span]) -> list[int]:
        """Strides on the far side in elements: of the buffer, or of the packed window that this one is cut from."""
        windows = self.windows
        if self.outer is None:
            return list(windows.strides)
        strides, step = [1] * len(windows.shape), 1
        for axis in reversed(windows.order):
            strides[axis] = step
            step *= self._count(axis, around)
        return strides


def boxes_of(plan: Plan) -> list[list[StreamBoxes]]:
    """The boxes of every stream of every call; equal calls share them."""
    known: dict[tuple[object, ...], list[StreamBoxes]] = {}
    result = []
    for step, call in enumerate(plan.program.calls):
        tiling = plan.tiling(step)
        maps = tuple(str(access) for phase in (call.geometry.nest, *call.geometry.nest.phases) for access in phase.maps().values())
        operands = tuple((o.access, plan.program.buffers[o.buffer].dtype) for o in call.operands.values())
        key = (id(call.kernel), maps, tuple(call.geometry.extents.items()), call.geometry.limited, operands, tiling)
        if key not in known:
            known[key] = [StreamBoxes(plan, step, stream) for stream in tiling.streams]
        result.append(known[key])
    return result


def whole(path: DmaPath, size: int) -> tuple[Batch, ...]:
    """The transfers of a whole buffer of ``size`` bytes."""
    return transfers(path, size, ())
