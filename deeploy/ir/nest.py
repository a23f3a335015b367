"""Loop nests: an operator's geometry, declared once, from which everything else is derived.

A ``Nest`` names the dimensions of an operator's iteration domain and maps them onto the axes of every operand. Tile
footprints with halo and clipped padding, multiply-accumulates, operand strides and legal cuts are computed from it; no
other module knows what a convolution is.

Example, a dense convolution on channels-last data::

    oh, ow, k = parallel("oh", "ow", "k")
    fh, fw, c = reduction("fh", "fw", "c")
    Nest(
        reads={"x": Map(sh * oh + dh * fh - top, sw * ow + dw * fw - left, c, outside=zero_point), "w": Map(fh, fw, c, k)},
        writes={"y": Map(oh, ow, k)},
    )
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

from deeploy.ir.dimensions import SUM, Combine, Kind
from deeploy.ir.expr import Affine, Dim, Expr, Range, Span, Value, evaluate_value, maximum, minimum, name_value, plain_value


def parallel(*names: str, runtime: str | None = None) -> tuple[Dim, ...]:
    """Dimensions whose iterations are independent."""
    return tuple(Dim(name, runtime=runtime) for name in names)


def reduction(*names: str, combine: Combine = SUM, runtime: str | None = None) -> tuple[Dim, ...]:
    """Dimensions whose iterations are combined into one result."""
    return tuple(Dim(name, Kind.REDUCTION, combine, runtime) for name in names)


def coupled(*names: str) -> tuple[Dim, ...]:
    """Dimensions along which every output depends on every input."""
    return tuple(Dim(name, Kind.COUPLED) for name in names)


def encoded(*names: str, of: Sequence[Dim]) -> tuple[Dim, ...]:
    """Dimensions of the axes in which an operand is stored that hold, encoded, the elements of others (``of``): bits, packed bytes, blocks.

    Whatever part of those is computed reads all of them. Their extents are those of the stored operand.
    """
    return tuple(Dim(name, Kind.ENCODED, of=tuple(of)) for name in names)


class Map:
    """Where an iteration touches an operand: one expression per axis, outermost axis first.

    Args:
        axes: the expressions; a plain int is a fixed index.
        outside: the value read beyond the border, where the map may leave the operand.
    """

    def __init__(self, *axes: Expr | int, outside: float | None = None) -> None:
        self.axes = tuple(Affine((), axis) if isinstance(axis, int) else axis.affine() for axis in axes)
        self.outside = outside

    def dims(self) -> tuple[Dim, ...]:
        """Every dimension that any axis mentions, once, in the order of the axes."""
        return self._dims

    @cached_property
    def _dims(self) -> tuple[Dim, ...]:
        return tuple(dict.fromkeys(dim for axis in self.axes for dim in axis.dims()))

    def __str__(self) -> str:
        border = "" if self.outside is None else f" outside {self.outside}"
        return f"[{', '.join(map(str, self.axes))}]{border}"


@dataclass(frozen=True)
class Nest:
    """The geometry of one phase of a kernel.

    ``extents`` is needed only for dimensions that no operand's axis shows alone. ``updates`` are written in place, at an
    offset, in a buffer that outlives the call. ``indirect`` operands are read by index (Gather): they stay where they
    lie and are never tiled. An operand without a map is a table that is read whole. ``phases`` are further nests over the
    same dimension names, run one after the other. ``accumulated`` are reductions along which tiles may be cut: the kernel keeps
    the sums of a tile, adds those of the next one to them, and makes outputs of them in the last.
    """

    reads: Mapping[str, Map]
    writes: Mapping[str, Map]
    updates: Mapping[str, Map] = field(default_factory=dict)
    extents: Mapping[str, int] = field(default_factory=dict)
    indirect: tuple[str, ...] = ()
    phases: tuple[Nest, ...] = ()
    accumulated: tuple[str, ...] = ()

    def maps(self) -> dict[str, Map]:
        """The index maps of all operands by name: those read, written and updated."""
        return {**self.reads, **self.writes, **self.updates}

    def dims(self) -> Mapping[str, Dim]:
        """Every dimension of this phase by name, in order of first appearance in writes, then in reads."""
        return self._dims

    def iterated(self) -> tuple[Dim, ...]:
        """The dimensions that the loops of the nest run over: all but those of encoded bits and bytes."""
        return tuple(dim for dim in self._dims.values() if dim.kind is not Kind.ENCODED)

    @cached_property
    def _dims(self) -> Mapping[str, Dim]:
        dims_by_name: dict[str, Dim] = {}
        for access in (*self.writes.values(), *self.updates.values(), *self.reads.values()):
            for axis in access.axes:
                for dim in axis.dims():
                    dims_by_name.setdefault(dim.name, dim)
        return dims_by_name


Part = tuple[Value, Value]  # of a dimension: first iteration, and the number of them


@dataclass(frozen=True)
class Window:
    """What a part of the iteration domain touches along one axis of an operand.

    ``before`` and ``after`` count the indices that the map reads beyond the operand's borders (clipped padding). A window lies inside
    the operand: where all that is read lies beyond a border, ``count`` is 0 and ``first`` the index next to that border.
    """

    first: Value
    count: Value
    before: Value
    after: Value


@dataclass(frozen=True)
class Footprint:
    """The box of an operand that a tile touches, per axis, outermost first, in elements.

    ``before`` and ``after`` count the indices that the map reads beyond the operand's borders (clipped padding). The box lies inside
    the operand: where all that is read lies beyond a border, its extent is 0 and ``first`` the index next to that border.
    """

    first: tuple[int, ...]
    extent: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.extent)


@dataclass(frozen=True)
class Geometry:
    """A nest bound to the shapes of its operands: every dimension has an extent.

    Dimensions in ``dynamic`` run over the rows that exist when the code runs; their extents are the most there can be.
    """

    nest: Nest
    shapes: Mapping[str, tuple[int, ...]]
    extents: Mapping[str, int]
    dynamic: frozenset[str] = frozenset()

    @classmethod
    def bind(cls, nest: Nest, shapes: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Infer the extent of every dimension from the axes that show it alone.

        An axis of extent 1 under a longer dimension is a broadcast and binds nothing.

        Raises:
            ValueError: an extent is missing or two operands disagree; the text names the dimension.
        """
        extents = dict(nest.extents)
        maps = [entry for phase in (nest, *nest.phases) for entry in phase.maps().items() if entry[0] in shapes]
        # A map that may leave its operand says nothing certain about extents: it comes last, for what is still unknown.
        for name, access in sorted(maps, key=lambda entry: entry[1].outside is not None):
            if len(access.axes) != len(shapes[name]):
                raise ValueError(f"operand {name} has {len(shapes[name])} axes, its map {access} has {len(access.axes)}")
            for axis, size in zip(access.axes, shapes[name], strict=True):
                dim = axis.bare()
                if dim is None:
                    continue
                known = extents.get(dim.name)
                if known is None or (known == 1 and access.outside is None):
                    extents[dim.name] = size
                elif access.outside is None and size not in (1, known):
                    raise ValueError(f"dimension {dim.name} has extent {known}, but operand {name} gives {size}")
        for phase in (nest, *nest.phases):
            for missing in sorted(phase.dims().keys() - extents.keys()):
                raise ValueError(f"dimension {missing} has no extent")
        dynamic = frozenset(name for phase in (nest, *nest.phases) for name, dim in phase.dims().items() if dim.runtime is not None)
        return cls(nest, dict(shapes), extents, dynamic)

    def dims(self) -> Mapping[str, Dim]:
        """Every dimension of all phases by name."""
        dims_by_name = self.nest.dims()
        for phase in self.nest.phases:
            dims_by_name = {**phase.dims(), **dims_by_name}
        return dims_by_name

    def box(self, tile: Mapping[str, Span] | None = None) -> dict[str, Span]:
        """The whole iteration domain, narrowed to ``tile`` where given."""
        whole = {name: (0, extent - 1) for name, extent in self.extents.items()}
        return {**whole, **(tile or {})}

    def window(self, operand: str, axis: int, size: int, at: Mapping[str, Part], name: str = "") -> Window:
        """What a part of the iteration domain touches along an axis of an operand: the hull over all phases, clipped to its ``size``.

        Args:
            at: per dimension the first iteration and the number of them; all other dimensions are whole.
            name: of the parts of the expressions, where they get names.

        Raises:
            KeyError: the operand has no map.
        """
        maps = [phase.maps()[operand] for phase in (self.nest, *self.nest.phases) if operand in phase.maps()]
        if not maps:
            raise KeyError(operand)
        if is_broadcast(maps, size):
            return Window(0, 1, 0, 0)
        expressions = list(dict.fromkeys(access.axes[axis] for access in maps))
        bare = expressions[0].bare()
        if len(expressions) == 1 and bare is not None and bare.name in at and self.extents[bare.name] <= size:
            return Window(*at[bare.name], 0, 0)
        whole = {dim: (0, extent - 1) for dim, extent in self.extents.items()}
        ranges: dict[str, Range] = {**whole, **{dim: (first, first + count - 1) for dim, (first, count) in at.items()}}
        hulls = [expression.hull(ranges) for expression in expressions]
        spans = [
            (evaluate_value(low, {}), evaluate_value(high, {})) for low, high in (expression.hull(whole) for expression in expressions)
        ]
        low, high = reduce(minimum, (low for low, _ in hulls)), reduce(maximum, (high for _, high in hulls))
        is_before, is_after = min(low for low, _ in spans) < 0, max(high for _, high in spans) >= size
        if not is_before and not is_after:
            return Window(name_value(name, low), name_value(f"{name}_n", high - low + 1), 0, 0)
        low, high = name_value(f"{name}_low", low), name_value(f"{name}_high", high)
        last = minimum(high, size - 1) if is_after else high
        before, after = maximum(-low, 0) if is_before else 0, maximum(high - (size - 1), 0) if is_after else 0
        begin = maximum(low, 0) if is_before else low
        inside = minimum(begin, size - 1) if is_after else begin  # windows behind the operand are empty, and begin where it ends
        first = name_value(name, inside)
        begin = first if inside == begin else begin
        return Window(first, name_value(f"{name}_n", maximum(last - begin + 1, 0)), plain_value(before), plain_value(after))

    def footprint(self, operand: str, tile: Mapping[str, Span] | None = None) -> Footprint:
        """The part of ``operand`` that a tile touches: the hull over all phases, clipped to the operand."""
        at: dict[str, Part] = {name: (first, last - first + 1) for name, (first, last) in (tile or {}).items()}
        axes = [self.window(operand, axis, size, at) for axis, size in enumerate(self.shapes[operand])]
        first, extent, before, after = (
            tuple(int(evaluate_value(getattr(window, name), {})) for window in axes) for name in ("first", "count", "before", "after")
        )
        return Footprint(first, extent, before, after)

    def macs(self, tile: Mapping[str, Span] | None = None) -> int:
        """Multiply-accumulates within ``tile``: the volume of every phase that sums a product of two operands."""
        box = self.box(tile)
        total = 0
        for phase in (self.nest, *self.nest.phases):
            dims = phase.iterated()
            sums = any(d.kind is Kind.REDUCTION and d.combine is SUM for d in dims)
            factors = [m for m in phase.reads.values() if any(d.kind is Kind.REDUCTION for d in m.dims())]
            if sums and len(factors) >= 2:
                total += math.prod(box[dim.name][1] - box[dim.name][0] + 1 for dim in dims)
        return total

    def cuttable(self, name: str) -> Kind | None:
        """Whether work may be divided along a dimension: PARALLEL, REDUCTION (leaves partial sums), or None."""
        return self._cuttable.get(name)

    def may_cut(self, name: str) -> bool:
        """Whether tiles may be cut along a dimension: its iterations are independent, or the kernel keeps what they add up to."""
        return self.cuttable(name) is Kind.PARALLEL or name in self.nest.accumulated

    @cached_property
    def _cuttable(self) -> Mapping[str, Kind]:
        kinds: dict[str, set[Kind]] = {}
        for phase in (self.nest, *self.nest.phases):
            for name, dim in phase.dims().items():
                kinds.setdefault(name, set()).add(dim.kind)
        return {
            name: next(iter(dim_kinds))
            for name, dim_kinds in kinds.items()
            if len(dim_kinds) == 1 and not dim_kinds & {Kind.COUPLED, Kind.ENCODED}
        }


def is_broadcast(maps: Sequence[Map], size: int) -> bool:
    """Whether the only index of an axis stands for every one that the maps name; what lies beyond a border never does."""
    return size == 1 and all(access.outside is None for access in maps)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Dense row-major strides of ``shape``, in elements."""
    result = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        result[axis] = result[axis + 1] * shape[axis + 1]
    return tuple(result)
