"""Integer expressions: the one type of every index, extent, offset and condition.

An expression is kept as a sum of atoms times constants, plus a constant (``Affine``). Atoms are variables and what is not affine:
floor quotients, remainders, products, maxima and named parts. Sums with equal terms are equal, so that a difference of two expressions
is 0 exactly where its terms cancel. An expression

* evaluates on integers and on NumPy arrays (``at``),
* has exact interval bounds for each of its atoms (``span``) and symbolic ones over ranges of its variables (``hull``),
* prints as C (``str``); every variable is an ``int32_t`` there, and every division rounds towards minus infinity.

What is constant is a plain ``int``: functions here take and return ``Value``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Union

import numpy as np

from deeploy.ir.dimensions import Combine, Kind
from deeploy.ir.types import Numeric

Span = tuple[int, int]  # first and last index, both inclusive
Value = Union["Expr", int]
Range = tuple[Value, Value]  # lowest and highest value of a variable, as expressions
Environment = dict[Any, Numeric]  # values of variables by name, ints or arrays; named parts are added as they are computed


class Expr:
    """An integer expression; see the module."""

    def affine(self) -> Affine:
        """The expression as a sum of atoms with coefficients."""
        raise NotImplementedError  # every subclass defines it

    def __add__(self, other: Value) -> Affine:
        return self.affine().plus(other, 1)

    def __sub__(self, other: Value) -> Affine:
        return self.affine().plus(other, -1)

    def __mul__(self, other: Value) -> Affine:
        return self.affine().times(other)

    def __neg__(self) -> Affine:
        return self.affine().times(-1)

    def __floordiv__(self, divisor: int) -> Quotient:
        return Quotient(self.affine(), divisor)

    def __mod__(self, divisor: int) -> Remainder:
        return Remainder(self.affine(), divisor)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> Affine:
        return self.affine().times(-1).plus(other, 1)

    def span(self, box: Mapping[str, Span]) -> Span:
        """Interval hull of the expression when every variable runs over ``box[name]``, or over its own range where it has one."""
        return self.affine().span(box)

    def hull(self, ranges: Mapping[str, Range]) -> Range:
        """Lowest and highest value as expressions, when variables run over ``ranges``; every variable of the expression is there."""
        return self.affine().hull(ranges)

    def at(self, values: Environment) -> Numeric:
        """The value where variables have these values: an int, or an array where any is one."""
        return self.affine().at(values)

    def atoms(self) -> Iterator[Atom]:
        """Every variable and named part that the expression mentions, outermost first."""
        yield from self.affine().atoms()

    def dims(self) -> Iterator[Dim]:
        """Every dimension of an iteration domain that the expression mentions."""
        return iter(self.affine().mentioned)


class Atom(Expr):
    """A factor of an ``Affine``: a dimension, a quotient, a minimum, or another expression that is no sum."""

    def affine(self) -> Affine:
        return Affine(((self, 1),), 0)


@dataclass(frozen=True)
class Dim(Atom):
    """One dimension of an iteration domain.

    ``runtime`` names the run-time value that limits the loop (a position, say); the dimension is planned at its extent. ``whole``
    names another dimension over the same indices, all of which every one of these depends on: elements of a row that is read whole.
    ``of`` are the dimensions whose elements an encoded one holds.
    """

    name: str
    kind: Kind = Kind.PARALLEL
    combine: Combine | None = None
    runtime: str | None = None
    whole: str | None = None
    of: tuple[Dim, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)

    def span(self, box: Mapping[str, Span]) -> Span:
        return box[self.name]

    def hull(self, ranges: Mapping[str, Range]) -> Range:
        return ranges[self.name]

    def at(self, values: Environment) -> Numeric:
        return values[self.name]

    def atoms(self) -> Iterator[Atom]:
        yield self
        yield from self.of

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Affine(Expr):
    """``sum(coefficient * atom) + constant``."""

    terms: tuple[tuple[Atom, int], ...]
    constant: int

    @cached_property
    def _key(self) -> tuple[frozenset[tuple[Atom, int]], int]:
        return frozenset(self.terms), self.constant

    @cached_property
    def mentioned(self) -> tuple[Dim, ...]:
        """The dimensions that occur in the sum, each once."""
        return tuple(atom for atom in self.atoms() if isinstance(atom, Dim))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return not self.terms and self.constant == other
        return isinstance(other, Expr) and self._key == other.affine()._key

    def __hash__(self) -> int:
        return hash(self._key)

    def affine(self) -> Affine:
        return self

    def plus(self, other: Value, sign: int) -> Affine:
        """The sum of this expression and ``sign`` times ``other``."""
        if isinstance(other, int):
            return Affine(self.terms, self.constant + sign * other)
        right = other.affine()
        terms = dict(self.terms)
        for atom, factor in right.terms:
            terms[atom] = terms.get(atom, 0) + sign * factor
        return Affine(tuple((a, f) for a, f in terms.items() if f), self.constant + sign * right.constant)

    def times(self, other: Value) -> Affine:
        """The product with ``other``, multiplied out term by term."""
        if isinstance(other, int):
            return Affine(tuple((a, f * other) for a, f in self.terms if other), self.constant * other)
        right = other.affine()
        total = self.times(right.constant) + right.times(self.constant) - self.constant * right.constant
        for a, f in self.terms:
            for b, g in right.terms:
                total = total + Affine(((_multiply_atoms(a, b), f * g),), 0)
        return total

    def span(self, box: Mapping[str, Span]) -> Span:
        low = high = self.constant
        for atom, factor in self.terms:
            first, last = atom.span(box)
            low += factor * (first if factor > 0 else last)
            high += factor * (last if factor > 0 else first)
        return low, high

    def hull(self, ranges: Mapping[str, Range]) -> Range:
        low: Value = self.constant
        high: Value = self.constant
        for atom, factor in self.terms:
            first, last = atom.hull(ranges)
            low = low + factor * (first if factor > 0 else last)
            high = high + factor * (last if factor > 0 else first)
        return low, high

    def at(self, values: Environment) -> Numeric:
        total: Numeric = self.constant
        for atom, factor in self.terms:
            total = total + factor * atom.at(values)
        return total

    def atoms(self) -> Iterator[Atom]:
        for atom, _ in self.terms:
            yield from atom.atoms()

    def bare(self) -> Dim | None:
        """The dimension, when the expression is just that dimension."""
        atom, factor = self.terms[0] if len(self.terms) == 1 else (None, 0)
        return atom if isinstance(atom, Dim) and factor == 1 and self.constant == 0 else None

    def __str__(self) -> str:
        text = str(self.constant) if self.constant > 0 and all(factor < 0 for _, factor in self.terms) else ""
        rest = 0 if text else self.constant
        for atom, factor in sorted(self.terms, key=lambda term: term[1] < 0):
            size = _print_factor(atom, abs(factor))
            text += f" {'-' if factor < 0 else '+'} {size}" if text else ("-" if factor < 0 else "") + size
        return text + (f" {'-' if rest < 0 else '+'} {abs(rest)}" if rest else "") if text else str(rest)


@dataclass(frozen=True)
class Variable(Atom):
    """A variable of the emitted code that is between ``low`` and ``high``."""

    name: str
    low: int
    high: int

    def span(self, box: Mapping[str, Span]) -> Span:
        return box.get(self.name, (self.low, self.high))

    def hull(self, ranges: Mapping[str, Range]) -> Range:
        return ranges.get(self.name, (self, self))

    def at(self, values: Environment) -> Numeric:
        return values[self.name]

    def atoms(self) -> Iterator[Atom]:
        yield self

    def __str__(self) -> str:
        return _mention_name(self)


@dataclass(frozen=True, eq=False)
class Named(Atom):
    """A part of expressions that is computed once and then has a name; equal to itself alone."""

    name: str
    value: Affine

    def span(self, box: Mapping[str, Span]) -> Span:
        return self.value.span(box)

    def hull(self, ranges: Mapping[str, Range]) -> Range:
        return self, self

    def at(self, values: Environment) -> Numeric:
        if self not in values:
            values[self] = self.value.at(values)
        return values[self]

    def atoms(self) -> Iterator[Atom]:
        yield self
        yield from self.value.atoms()

    def __str__(self) -> str:
        return _mention_name(self)


@dataclass(frozen=True)
class Quotient(Atom):
    """Floor division of an expression by a positive constant."""

    inner: Affine
    divisor: int

    def span(self, box: Mapping[str, Span]) -> Span:
        low, high = self.inner.span(box)
        return low // self.divisor, high // self.divisor

    def hull(self, ranges: Mapping[str, Range]) -> Range:
        low, high = self.inner.hull(ranges)
        return quotient(low, self.divisor), quotient(high, self.divisor)

    def at(self, values: Environment) -> Numeric:
        return self.inner.at(values) // self.divisor

    def atoms(self) -> Iterator[Atom]:
        yield from self.inner.atoms()

    def __str__(self) -> str:
        is_simple = len(self.inner.terms) == 1 and not self.inner.constant and self.inner.terms[0][1] == 1
        if not _is_natural(self.inner):
            return f"quotient({self.inner}, {self.divisor})"
        return f"{self.inner} / {self.divisor}" if is_simple else f"({self.inner}) / {self.divisor}"


@dataclass(frozen=True)
class Remainder(Atom):
    """An expression modulo a positive constant, never negative."""

    inner: Affine
    divisor: int

    def span(self, box: Mapping[str, Span]) -> Span:
        low, high = self.inner.span(box)
        if low // self.divisor == high // self.divisor:
            return low % self.divisor, high % self.divisor
        return 0, self.divisor - 1

    def hull(self, ranges: Mapping[str, Range]) -> Range:
        return 0, self.divisor - 1  # of any range: windows of tiles that follow each other do not jump back and forth

    def at(self, values: Environment) -> Numeric:
        return self.inner.at(values) % self.divisor

    def atoms(self) -> Iterator[Atom]:
        yield from self.inner.atoms()

    def __str__(self) -> str:
        is_simple = len(self.inner.terms) == 1 and not self.inner.constant and self.inner.terms[0][1] == 1
        inner = str(self.inner) if is_simple else f"({self.inner})"
        if not _is_natural(self.inner):
            return f"({self.inner} - quotient({self.inner}, {self.divisor}) * {self.divisor})"
        return f"{inner} % {self.divisor}"


@dataclass(frozen=True)
class Product(Atom):
    """The product of atoms, in the order of their names."""

    factors: tuple[Atom, ...]

    def span(self, box: Mapping[str, Span]) -> Span:
        low = high = 1
        for factor in self.factors:
            ends = [a * b for a in (low, high) for b in factor.span(box)]
            low, high = min(ends), max(ends)
        return low, high

    def hull(self, ranges: Mapping[str, Range]) -> Range:
        if any(low != high for low, high in (factor.hull(ranges) for factor in self.factors)):
            raise ValueError(f"{self} has no bounds that are expressions")
        value = reduce(lambda a, b: a * b, (factor.hull(ranges)[0] for factor in self.factors))
        return value, value

    def at(self, values: Environment) -> Numeric:
        return reduce(lambda total, factor: total * factor.at(values), self.factors, 1)

    def atoms(self) -> Iterator[Atom]:
        for factor in self.factors:
            yield from factor.atoms()

    def __str__(self) -> str:
        first, *others = self.factors  # C divides from left to right
        return " * ".join([str(first), *(f"({factor})" if isinstance(factor, Quotient | Remainder) else str(factor) for factor in others)])


@dataclass(frozen=True)
class Maximum(Atom):
    """The larger of two expressions; the smaller one where ``is_least``."""

    left: Affine
    right: Affine
    is_least: bool = False

    def span(self, box: Mapping[str, Span]) -> Span:
        (a, b), (c, d) = self.left.span(box), self.right.span(box)
        return (min(a, c), min(b, d)) if self.is_least else (max(a, c), max(b, d))

    def hull(self, ranges: Mapping[str, Range]) -> Range:
        (a, b), (c, d) = self.left.hull(ranges), self.right.hull(ranges)
        either = minimum if self.is_least else maximum
        return either(a, c), either(b, d)

    def at(self, values: Environment) -> Numeric:
        left, right = self.left.at(values), self.right.at(values)
        if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
            return np.minimum(left, right) if self.is_least else np.maximum(left, right)
        return min(left, right) if self.is_least else max(left, right)

    def atoms(self) -> Iterator[Atom]:
        yield from self.left.atoms()
        yield from self.right.atoms()

    def __str__(self) -> str:
        return f"{'smaller' if self.is_least else 'larger'}({self.left}, {self.right})"


def plain_value(value: Value) -> Value:
    """The value as an int where it is constant, else as an expression."""
    if isinstance(value, int):
        return value
    sum_ = value.affine()
    return sum_ if sum_.terms else sum_.constant


def value_bounds(value: Value) -> Span:
    """The lowest and highest value; every variable has its own range."""
    return (value, value) if isinstance(value, int) else value.span({})


def evaluate_value(value: Value, values: Environment) -> Numeric:
    """The value where variables have these values."""
    return value if isinstance(value, int) else value.at(values)


def maximum(a: Value, b: Value) -> Value:
    """The larger of two values; one of them where bounds say which."""
    return _extreme_value(a, b, False)


def minimum(a: Value, b: Value) -> Value:
    """The smaller of two values; one of them where bounds say which."""
    return _extreme_value(a, b, True)


def _extreme_value(a: Value, b: Value, is_least: bool) -> Value:
    low, high = value_bounds(a - b)
    if low >= 0 or high <= 0:
        return plain_value(b if (low >= 0) == is_least else a)
    return Maximum(_as_sum(a), _as_sum(b), is_least)


def quotient(value: Value, divisor: int) -> Value:
    """Floor division by a positive constant."""
    if isinstance(value, int):
        return value // divisor
    low, high = value_bounds(value)
    return low // divisor if low // divisor == high // divisor else value if divisor == 1 else Quotient(value.affine(), divisor)


def remainder(value: Value, divisor: int) -> Value:
    """The value modulo a positive constant."""
    if isinstance(value, int) or divisor == 1:
        return value % divisor if isinstance(value, int) else 0
    low, high = value_bounds(value)
    return plain_value(value - low // divisor * divisor) if low // divisor == high // divisor else Remainder(value.affine(), divisor)


def name_value(name: str, value: Value) -> Value:
    """The value under a name, where it is not constant and has none yet."""
    value = plain_value(value)
    if isinstance(value, int):
        return value
    terms = value.affine().terms
    is_name = len(terms) == 1 and value == terms[0][0] and isinstance(terms[0][0], Variable | Named) and terms[0][0].name.isidentifier()
    return value if is_name else Named(name, value.affine())


def multiply_values(values: Iterable[Value]) -> Value:
    """The product of values; 1 for none."""
    total: Value = 1
    for value in values:
        total = total * value
    return plain_value(total)


def _as_sum(value: Value) -> Affine:
    return Affine((), value) if isinstance(value, int) else value.affine()


def _multiply_atoms(a: Atom, b: Atom) -> Product:
    factors = [f for atom in (a, b) for f in (atom.factors if isinstance(atom, Product) else (atom,))]
    return Product(tuple(sorted(factors, key=_write_atom)))


def _write_atom(atom: Atom) -> str:
    return atom.name if isinstance(atom, Named | Variable) else repr(atom)


def _is_natural(value: Affine) -> bool:
    """Whether a value is never negative, as far as its variables' own ranges say; dimensions have none."""
    try:
        return value.span({})[0] >= 0
    except KeyError:
        return False


def _print_factor(atom: Atom, factor: int) -> str:
    """An atom times a positive constant, as it stands in a sum."""
    if isinstance(atom, Quotient | Remainder) and factor == 1:
        return str(atom)
    return str(atom) if factor == 1 else f"{atom} * {factor}"


# What is printed is noted here, where somebody asks for it (``deeploy.ir.mentions``).
PRINTED: ContextVar[dict[Atom, None] | None] = ContextVar("printed", default=None)


def _mention_name(atom: Variable | Named) -> str:
    printed = PRINTED.get()
    if printed is not None:
        printed[atom] = None
    return atom.name
