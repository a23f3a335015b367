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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

Span = tuple[int, int]  # first and last index, both inclusive


class Kind(Enum):
    """How iterations along a dimension depend on each other."""

    PARALLEL = "parallel"  # independent: may be tiled, spread over cores, cut across chips
    REDUCTION = "reduction"  # combined into one output: a cut leaves partial results
    COUPLED = "coupled"  # in the output, yet every output depends on all of it: never cut


class Combine(Enum):
    """How the iterations of a reduction are combined."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PRODUCT = "product"


SUM, MAX, MIN, PRODUCT = Combine.SUM, Combine.MAX, Combine.MIN, Combine.PRODUCT


class Expr:
    """An affine expression over dimensions, plus floor division and modulo by constants."""

    def _affine(self) -> Affine:
        raise NotImplementedError  # every subclass defines it

    def __add__(self, other: Expr | int) -> Affine:
        return self._affine().plus(other, 1)

    def __sub__(self, other: Expr | int) -> Affine:
        return self._affine().plus(other, -1)

    def __mul__(self, factor: int) -> Affine:
        return self._affine().times(factor)

    def __floordiv__(self, divisor: int) -> Quotient:
        return Quotient(self._affine(), divisor)

    def __mod__(self, divisor: int) -> Remainder:
        return Remainder(self._affine(), divisor)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> Affine:
        return (self * -1) + other

    def span(self, box: Mapping[str, Span]) -> Span:
        """Interval hull of the expression when every dimension runs over ``box[name]``."""
        return self._affine().span(box)

    def dims(self) -> Iterator[Dim]:
        """Every dimension that the expression mentions."""
        yield from self._affine().dims()


class Atom(Expr):
    def _affine(self) -> Affine:
        return Affine(((self, 1),), 0)


@dataclass(frozen=True)
class Dim(Atom):
    """One dimension of an iteration domain.

    ``runtime`` names the run-time value that limits the loop (a position, say); the dimension is planned at its extent. ``whole``
    names another dimension over the same indices, all of which every one of these depends on: elements of a row that is read whole.
    """

    name: str
    kind: Kind = Kind.PARALLEL
    combine: Combine | None = None
    runtime: str | None = None
    whole: str | None = None

    def span(self, box: Mapping[str, Span]) -> Span:
        return box[self.name]

    def dims(self) -> Iterator[Dim]:
        yield self

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Quotient(Atom):
    """Floor division of an expression by a positive constant."""

    inner: Affine
    divisor: int

    def span(self, box: Mapping[str, Span]) -> Span:
        low, high = self.inner.span(box)
        return low // self.divisor, high // self.divisor

    def dims(self) -> Iterator[Dim]:
        yield from self.inner.dims()

    def __str__(self) -> str:
        return f"({self.inner}) // {self.divisor}"


@dataclass(frozen=True)
class Remainder(Atom):
    """An expression modulo a positive constant."""

    inner: Affine
    divisor: int

    def span(self, box: Mapping[str, Span]) -> Span:
        low, high = self.inner.span(box)
        if low // self.divisor == high // self.divisor:
            return low % self.divisor, high % self.divisor
        return 0, self.divisor - 1

    def dims(self) -> Iterator[Dim]:
        yield from self.inner.dims()

    def __str__(self) -> str:
        return f"({self.inner}) % {self.divisor}"


@dataclass(frozen=True)
class Affine(Expr):
    """``sum(coefficient * atom) + constant``; atoms are dimensions, quotients and remainders."""

    terms: tuple[tuple[Atom, int], ...]
    constant: int

    def _affine(self) -> Affine:
        return self

    def plus(self, other: Expr | int, sign: int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + sign * other)
        right = other._affine()
        terms = dict(self.terms)
        for atom, factor in right.terms:
            terms[atom] = terms.get(atom, 0) + sign * factor
        return Affine(tuple((a, f) for a, f in terms.items() if f), self.constant + sign * right.constant)

    def times(self, factor: int) -> Affine:
        return Affine(tuple((a, f * factor) for a, f in self.terms if f * factor), self.constant * factor)

    def span(self, box: Mapping[str, Span]) -> Span:
        low = high = self.constant
        for atom, factor in self.terms:
            first, last = atom.span(box)
            low += factor * (first if factor > 0 else last)
            high += factor * (last if factor > 0 else first)
        return low, high

    def dims(self) -> Iterator[Dim]:
        for atom, _ in self.terms:
            yield from atom.dims()

    def bare(self) -> Dim | None:
        """The dimension, when the expression is just that dimension."""
        if len(self.terms) == 1 and self.constant == 0 and self.terms[0][1] == 1:
            atom = self.terms[0][0]
            return atom if isinstance(atom, Dim) else None
        return None

    def __str__(self) -> str:
        parts = [str(a) if f == 1 else f"{f}*{a}" for a, f in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


def parallel(*names: str, runtime: str | None = None) -> tuple[Dim, ...]:
    """Dimensions whose iterations are independent."""
    return tuple(Dim(name, runtime=runtime) for name in names)


def reduction(*names: str, combine: Combine = SUM, runtime: str | None = None) -> tuple[Dim, ...]:
    """Dimensions whose iterations are combined into one result."""
    return tuple(Dim(name, Kind.REDUCTION, combine, runtime) for name in names)


def coupled(*names: str) -> tuple[Dim, ...]:
    """Dimensions along which every output depends on every input."""
    return tuple(Dim(name, Kind.COUPLED) for name in names)


class Map:
    """Where an iteration touches an operand: one expression per axis, outermost axis first.

    Args:
        axes: the expressions; a plain int is a fixed index.
        outside: the value read beyond the border, where the map may leave the operand.
    """

    def __init__(self, *axes: Expr | int, outside: float | None = None) -> None:
        self.axes = tuple(Affine((), axis) if isinstance(axis, int) else axis._affine() for axis in axes)
        self.outside = outside

    def dims(self) -> frozenset[Dim]:
        """Every dimension that any axis mentions."""
        return frozenset(dim for axis in self.axes for dim in axis.dims())

    def __str__(self) -> str:
        border = "" if self.outside is None else f" outside {self.outside}"
        return f"[{', '.join(map(str, self.axes))}]{border}"


@dataclass(frozen=True)
class Nest:
    """The geometry of one phase of a kernel.

    ``extents`` is needed only for dimensions that no operand's axis shows alone. ``updates`` are written in place, at an
    offset, in a buffer that outlives the call. ``indirect`` operands are read by index (Gather): they stay where they
    lie and are never tiled. An operand without a map is a table that is read whole. ``phases`` are further nests over the
    same dimension names, run one after the other.
    """

    reads: Mapping[str, Map]
    writes: Mapping[str, Map]
    updates: Mapping[str, Map] = field(default_factory=dict)
    extents: Mapping[str, int] = field(default_factory=dict)
    indirect: tuple[str, ...] = ()
    phases: tuple[Nest, ...] = ()

    def maps(self) -> dict[str, Map]:
        """Every operand's map."""
        return {**self.reads, **self.writes, **self.updates}

    def dims(self) -> dict[str, Dim]:
        """Every dimension of this phase by name, in order of first appearance in writes, then in reads."""
        found: dict[str, Dim] = {}
        for access in (*self.writes.values(), *self.updates.values(), *self.reads.values()):
            for axis in access.axes:
                for dim in axis.dims():
                    found.setdefault(dim.name, dim)
        return found


@dataclass(frozen=True)
class Footprint:
    """The box of an operand that a tile touches, per axis, outermost first, in elements.

    ``before`` and ``after`` count the indices that the map reads beyond the operand's borders (clipped padding).
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

    Dimensions in ``limited`` run over the rows that exist when the code runs; their extents are the most there can be.
    """

    nest: Nest
    shapes: Mapping[str, tuple[int, ...]]
    extents: Mapping[str, int]
    limited: frozenset[str] = frozenset()

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
            for missing in phase.dims().keys() - extents.keys():
                raise ValueError(f"dimension {missing} has no extent")
        limited = frozenset(name for phase in (nest, *nest.phases) for name, dim in phase.dims().items() if dim.runtime is not None)
        return cls(nest, dict(shapes), extents, limited)

    def dims(self) -> dict[str, Dim]:
        """Every dimension of all phases by name."""
        found = self.nest.dims()
        for phase in self.nest.phases:
            found = {**phase.dims(), **found}
        return found

    def box(self, tile: Mapping[str, Span] | None = None) -> dict[str, Span]:
        """The whole iteration domain, narrowed to ``tile`` where given."""
        whole = {name: (0, extent - 1) for name, extent in self.extents.items()}
        return {**whole, **(tile or {})}

    def footprint(self, operand: str, tile: Mapping[str, Span] | None = None) -> Footprint:
        """The part of ``operand`` that a tile touches: the hull over all phases, clipped to the operand."""
        box = self.box(tile)
        spans: list[Span] | None = None
        for phase in (self.nest, *self.nest.phases):
            access = phase.maps().get(operand)
            if access is None:
                continue
            here = [axis.span(box) for axis in access.axes]
            spans = here if spans is None else [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(spans, here, strict=True)]
        if spans is None:
            raise KeyError(operand)
        shape = self.shapes[operand]
        spans = [(0, 0) if size == 1 and access_is_broadcast(span) else span for span, size in zip(spans, shape, strict=True)]
        first = tuple(max(0, low) for low, _ in spans)
        last = tuple(min(size - 1, high) for (_, high), size in zip(spans, shape, strict=True))
        return Footprint(
            first,
            tuple(max(0, b - a + 1) for a, b in zip(first, last, strict=True)),
            tuple(max(0, -low) for low, _ in spans),
            tuple(max(0, high - size + 1) for (_, high), size in zip(spans, shape, strict=True)),
        )

    def macs(self, tile: Mapping[str, Span] | None = None) -> int:
        """Multiply-accumulates within ``tile``: the volume of every phase that sums a product of two operands."""
        box = self.box(tile)
        total = 0
        for phase in (self.nest, *self.nest.phases):
            dims = phase.dims()
            sums = any(d.kind is Kind.REDUCTION and d.combine is SUM for d in dims.values())
            factors = [m for m in phase.reads.values() if any(d.kind is Kind.REDUCTION for d in m.dims())]
            if sums and len(factors) >= 2:
                total += math.prod(box[name][1] - box[name][0] + 1 for name in dims)
        return total

    def cuttable(self, name: str) -> Kind | None:
        """Whether work may be divided along a dimension: PARALLEL, REDUCTION (leaves partial sums), or None."""
        kinds = {phase.dims()[name].kind for phase in (self.nest, *self.nest.phases) if name in phase.dims()}
        if not kinds or Kind.COUPLED in kinds or len(kinds) > 1:
            return None
        return kinds.pop()


def access_is_broadcast(span: Span) -> bool:
    """Whether a span over an axis of extent 1 stands for a broadcast rather than for padding."""
    return span[0] >= 0


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Dense row-major strides of ``shape``, in elements."""
    result = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        result[axis] = result[axis + 1] * shape[axis + 1]
    return tuple(result)
