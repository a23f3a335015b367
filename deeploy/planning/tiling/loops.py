"""Tile loops of one call: what is cut, in which order, and which windows of its operands move when.

A tile loop is a list of loops, outermost first, each stepping along one dimension of the call's nest. A dimension may
occur twice: once between an outer memory and a middle one, once within. Tiles are numbered by one counter; where tile t
lies, and which window it needs, follows from t by division alone, so emitted code needs no tables.

A window of an operand moves when a loop steps that the operand depends on, or a loop around it. With ``period`` the number of
tiles between two moves, window number ``t // period`` serves tile t, in slot ``t // period % depth``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deeploy.ir.dimensions import Kind
from deeploy.ir.expr import Affine, Value, Variable, evaluate_value, maximum, minimum, name_value, plain_value, quotient, remainder
from deeploy.ir.memo import by_arguments
from deeploy.ir.nest import Geometry, Part, Window, is_broadcast
from deeploy.ir.types import Numeric
from deeploy.planning.program import Call, Operand

Division = tuple[tuple[str, int], ...]  # dimensions and parts of each; a core has one part of all, the parts of the first ones vary fastest
MOST_TRIPS = 4096  # tiles along one dimension that are considered


@dataclass(frozen=True)
class TileLoop:
    """``trips`` steps of ``tile`` iterations along a dimension of the nest."""

    dim: str
    trips: int
    tile: int


@dataclass(frozen=True)
class Stream:
    """A window of an operand that moves between two memories while the call runs.

    Attributes:
        path: name of the transfer path; the window lies in its near memory.
        loops: how many of the call's loops decide where the window lies (the outermost ones).
        period: tiles between two moves.
        moves: moves in all.
        depth: slots, 2 where the next window arrives while this one is in use.
        bytes: of one slot, aligned.
        is_output: the window is written by the call and moves outwards.
        inner: the window is cut out of the operand's window one memory further out, not out of its buffer.
        is_prefetchable: the first window may be fetched while the call before runs.
    """

    operand: str
    path: str
    loops: int
    period: int
    moves: int
    depth: int
    bytes: int
    is_output: bool
    inner: bool = False
    is_prefetchable: bool = False


@dataclass(frozen=True)
class CallTiling:
    """How one call is cut.

    Attributes:
        loops: outermost first; none where the call is one tile.
        streams: windows in the engine's own memory and in those around it, in the order of the operands.
        division: the dimensions that are divided over the cores, and into how many parts each; None where one core does the work.
    """

    loops: tuple[TileLoop, ...]
    streams: tuple[Stream, ...]
    division: Division | None

    @property
    def core_dims(self) -> str | None:
        """The names of the dimensions that are divided over the cores, as they are printed."""
        return " and ".join(name for name, _ in self.division or ()) or None

    @cached_property
    def tiles(self) -> int:
        return math.prod(loop.trips for loop in self.loops)

    def partial(self, geometry: Geometry) -> int:
        """How many tiles, one behind the other, add up to the same outputs: the loops along reductions are the innermost ones."""
        return math.prod(loop.trips for loop in self.loops if loop.dim in geometry.nest.accumulated)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Iterations of the dimensions that are cut, within a tile."""
        return {loop.dim: loop.tile for loop in self.loops}

    def tile(self, dim: str, extent: int, loops: int | None = None) -> int:
        """Iterations of a dimension within one tile of the outermost ``loops`` loops (all by default)."""
        steps = [loop.tile for loop in self.loops[:loops] if loop.dim == dim]
        return steps[-1] if steps else extent

    @cached_property
    def index(self) -> Value:
        """The number of a tile, as emitted code counts them."""
        return Variable("t", 0, self.tiles - 1) if self.tiles > 1 else 0

    def parts(
        self, geometry: Geometry, length: Value, index: Value | None = None, loops: int | None = None, suffix: str = ""
    ) -> dict[str, Part]:
        """First iteration of every cut dimension and the number of them in a tile, as the outermost ``loops`` loops see it.

        Args:
            length: how many iterations there are along dimensions that run over the rows that exist (``Geometry.dynamic``).
            index: the number of the tile; by default the variable.
            suffix: of the names of these expressions.
        """
        index = self.index if index is None else index
        rest, firsts, last = self.tiles, dict[str, Value](), dict[str, TileLoop]()
        for loop in self.loops[:loops]:
            rest //= loop.trips
            firsts[loop.dim] = firsts.get(loop.dim, 0) + remainder(quotient(index, rest), loop.trips) * loop.tile
            last[loop.dim] = loop
        parts: dict[str, Part] = {dim: (0, length) for dim in sorted(geometry.dynamic) if geometry.extents[dim] > 1}
        for dim, loop in last.items():
            first = name_value(f"at_{dim}{suffix}", firsts[dim])
            rows = maximum(length - first, 0) if dim in geometry.dynamic else geometry.extents[dim] - first
            parts[dim] = (first, name_value(f"n_{dim}{suffix}", minimum(loop.tile, rows)))
        return parts


def tile_sizes(extent: int, multiple: int = 1, factor: float = 0.25) -> list[int]:
    """Tile sizes worth trying along a dimension, largest first: the smallest for each number of tiles, which grows by ``factor``."""
    sizes_by_trips: dict[int, int] = {}
    trips, most = 1, -(-extent // multiple)
    while trips <= min(most, MOST_TRIPS):
        share = -(-extent // trips)
        size = min(-(-share // multiple) * multiple, extent)
        sizes_by_trips[-(-extent // size)] = size
        trips += max(1, int(trips * factor))
    if most <= MOST_TRIPS:
        sizes_by_trips[most] = min(multiple, extent)
    return sorted(set(sizes_by_trips.values()), reverse=True)


@dataclass(frozen=True)
class AxisCut:
    """What tiles of one size along one dimension do to one axis of an operand: widest window, the sum of all, and how many there are.

    Numbers, or arrays of them.
    """

    widest: Numeric
    total: Numeric
    trips: Numeric


@dataclass(frozen=True)
class Volume:
    """What an operand's windows take: bytes of the widest; summed over one round: bytes, rows, transfers, and how many windows there are.

    Numbers, or arrays of them.
    """

    widest: Numeric
    total: Numeric
    rows: Numeric
    transfers: Numeric
    windows: Numeric


class Footprints:
    """The windows that tiles of a call need of one operand, axis by axis; axes are those of the operand's map."""

    def __init__(self, geometry: Geometry, name: str, operand: Operand) -> None:
        self.geometry = geometry
        self.name = name
        self.shape = operand.access.shape
        self.strides = operand.access.strides
        phases = (geometry.nest, *geometry.nest.phases)
        self.maps = [phase.maps()[name] for phase in phases if name in phase.maps()]

    @property
    def is_mapped(self) -> bool:
        """Whether the operand has a map; one without is read whole."""
        return bool(self.maps) and self.name not in self.geometry.nest.indirect

    @cached_property
    def dims(self) -> tuple[str | None, ...]:
        """Per axis the dimension that may be cut along it: the first that its expressions mention and that may be cut.

        Words that encode several elements are never cut.
        """
        result: list[str | None] = []
        for axis, size in enumerate(self.shape):
            mentioned = [d for access in self.maps for d in access.axes[axis].dims()] if self.is_mapped else []
            names = [] if any(d.kind is Kind.ENCODED for d in mentioned) else [d.name for d in mentioned]
            free = [n for n in names if self.geometry.extents[n] > 1 and self.geometry.may_cut(n)]
            result.append(None if is_broadcast(self.maps, size) or not free else free[0])
        return tuple(result)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The axes in the order of their strides in memory, widest stride first."""
        return tuple(sorted(range(len(self.shape)), key=lambda axis: -abs(self.strides[axis]) if self.shape[axis] > 1 else 0))

    def window(self, axis: int, at: Mapping[str, Part], name: str = "") -> Window:
        """What a part of the iteration domain needs along an axis (``Geometry.window``); all of it where there is no map."""
        size = self.shape[axis]
        return self.geometry.window(self.name, axis, size, at, name) if self.is_mapped else Window(0, size, 0, 0)

    def in_place(self, at: Mapping[str, Part], name: str) -> tuple[Window, ...]:
        """What is seen of an operand that is used where it lies: along an axis that ``at`` does not narrow, all that there is."""
        seen = [self.window(axis, at, f"{name}_{axis}") for axis in range(len(self.shape))]
        free = [not any(d.name in at for access in self.maps for d in access.axes[axis].dims()) for axis in range(len(self.shape))]
        whole = zip(seen, self.shape, free, strict=True)
        return tuple(Window(w.first, plain_value(size - w.first), w.before, w.after) if is_free else w for w, size, is_free in whole)

    def volume(self, unit: int, cuts: Sequence[AxisCut]) -> Volume:
        """What the windows take whose axes are cut so, in elements of ``unit`` bytes; numbers, or arrays of them.

        Axes that follow each other in memory without a gap are one run; a transfer has rows along one further axis.
        """
        widest, total = unit, unit
        rows, transfers, windows, merged, single, expected = 1, 1, 1, 1, 1, 1
        for axis in reversed(self.order):
            cut, size, stride = cuts[axis], self.shape[axis], self.strides[axis]
            if size > 1 and stride != expected:
                merged = merged * 0
            free = merged + (1 - merged) * single  # the transfer takes this axis as well
            widest, total, windows = widest * cut.widest, total * cut.total, windows * cut.trips
            rows = rows * (cut.trips * merged + cut.total * (1 - merged))
            transfers = transfers * (cut.trips * free + cut.total * (1 - free))
            single, merged = single * merged, merged * (cut.trips == 1)
            expected = stride * size if size > 1 else expected
        return Volume(widest, total, rows, transfers, windows)

    @by_arguments
    def cut(self, axis: int, size: int) -> AxisCut:
        """The windows along ``axis`` when its dimension is cut into tiles of ``size``."""
        dim = self.dims[axis]
        if dim is None:
            width = int(evaluate_value(self.window(axis, {}).count, {}))
            return AxisCut(width, width, 1)
        extent = self.geometry.extents[dim]
        trips = -(-extent // size)
        if all(_is_bare(access.axes[axis], dim) for access in self.maps):
            return AxisCut(min(size, extent), extent, trips)
        widths = np.broadcast_to(evaluate_value(self._width(axis, dim), {"start": np.arange(0, extent, size), "size": size}), trips)
        return AxisCut(int(widths.max()), int(widths.sum()), trips)

    @by_arguments
    def _width(self, axis: int, dim: str) -> Value:
        """How many indices a tile of ``size`` iterations from ``start`` on needs."""
        extent = self.geometry.extents[dim]
        start, size = Variable("start", 0, extent - 1), Variable("size", 1, extent)
        return self.window(axis, {dim: (start, minimum(size, extent - start))}).count


def _is_bare(axis: Affine, dim: str) -> bool:
    bare = axis.bare()
    return bare is not None and bare.name == dim


def cut_dims(call: Call) -> dict[str, int]:
    """The dimensions along which the call may be cut, with the multiple that cuts must keep.

    At most one dimension of every axis is cut: the windows of two that meet in one axis are no boxes of both. What walks an
    operand that is read by index is never cut: such an operand is read whole.
    """
    geometry, rules = call.geometry, call.kernel.tiling
    dims = geometry.dims()
    allowed = [name for name in dims if geometry.extents[name] > 1 and name not in rules.whole and geometry.may_cut(name)]
    dependent: set[str] = set()
    for name, operand in call.operands.items():
        windows = Footprints(geometry, name, operand)
        if not windows.is_mapped:
            dependent |= {d.name for access in windows.maps for d in access.dims()}
            continue
        for axis, chosen in enumerate(windows.dims):
            names = {d.name for access in windows.maps for d in access.axes[axis].dims()}
            dependent |= {n for n in names & set(allowed) if n != chosen} if chosen is not None else set()
    accumulated = geometry.nest.accumulated
    missing = {n for n in allowed if n not in accumulated and not any(n in _output_dims(call, output) for output in call.writes)}
    return {name: rules.multiple.get(name, 1) for name in allowed if name not in dependent | missing}


def _output_dims(call: Call, output: str) -> set[str]:
    return {d.name for d in call.geometry.nest.maps()[output].dims()} if output in call.geometry.nest.maps() else set()


def core_dims(call: Call, free: Collection[str]) -> tuple[str, ...]:
    """Dimensions that may be divided over cores: those the kernel names, else every one that may be cut (``free``)."""
    if call.kernel.team:
        return (call.kernel.team,)
    able = [name for name in free if name not in call.geometry.nest.accumulated]
    return tuple(name for name in (call.kernel.cores or able) if name in able and _parts_are_views(call, name))


def core_divisions(call: Call, dims: Sequence[str], cores: int) -> tuple[Division, ...]:
    """How ``cores`` may divide dimensions: one of them, or several whose numbers of parts have the product ``cores``.

    A dimension whose parts a later phase reads whole, and one that runs over the rows that exist, is divided alone.
    """
    single = tuple(((name, cores),) for name in dims)
    whole = {dim.whole for dim in call.geometry.dims().values()} | {n for n, dim in call.geometry.dims().items() if dim.whole}
    able = [name for name in dims if name not in call.geometry.dynamic | whole and not call.kernel.team]
    shares = [n for n in range(2, cores) if cores % n == 0]
    several = (
        tuple(zip(chosen, parts, strict=True))
        for count in (2, 3)
        for chosen in itertools.combinations(able, count)
        for parts in itertools.product(shares, repeat=count)
        if math.prod(parts) == cores
    )
    return (*single, *(division for division in several if all(call.geometry.extents[name] >= parts for name, parts in division)))


def _parts_are_views(call: Call, dim: str) -> bool:
    """Whether the part of a packed window that one core gets is still laid out as the kernel wants it."""
    every = [Footprints(call.geometry, name, operand) for name, operand in call.operands.items()]
    return not any(windows.is_mapped and windows.dims[axis] == dim for windows in every for axis in _whole_axes(call, windows))


def _whole_axes(call: Call, windows: Footprints) -> list[int]:
    """The axes of an operand whose windows are all of the axis, if they are to be packed as the kernel wants and are no copies."""
    rank = len(windows.shape)
    outermost = rank - call.kernel.dense(windows.name, rank)
    return [axis for axis in range(outermost, rank) if any(windows.shape[a] > 1 for a in range(outermost, axis))]


def in_place(call: Call, windows: Footprints) -> frozenset[str]:
    """The dimensions that are not cut where a kernel uses an operand as it lies, without a copy of its window."""
    axes = _whole_axes(call, windows) if windows.is_mapped else []
    return frozenset(dim for axis in axes if (dim := windows.dims[axis]) is not None)


def window_period(loops: Sequence[TileLoop], dims: Collection[str], count: int | None = None) -> int:
    """Tiles between two moves of a window that depends on ``dims`` and sees the outermost ``count`` loops."""
    seen = loops if count is None else loops[:count]
    inner = math.prod(loop.trips for loop in loops[len(seen) :])
    for loop in reversed(seen):
        if loop.dim in dims and loop.trips > 1:
            return inner
        inner *= loop.trips
    return inner
