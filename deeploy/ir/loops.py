"""From loop nests to the seven loops that an array of processing elements unrolls.

A ``LayerLoops`` is one multiply-accumulate nest. The role of a dimension is read off the access maps alone: of the two factors
and the result, a dimension that all three have is G (groups, channels of a depthwise layer, heads), one that weights and
result have is K, one that inputs and weights have is C, one that inputs and result have is O. Where an axis of the inputs
mentions a reduction beside a parallel dimension, a window slides: these two are FY and OY, or FX and OX.

The inputs are the factor with such axes, else the one whose value is not a constant, else the first one. A dimension of which
a factor sees only the quotient or the remainder by a constant is two loops, one for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deeploy.errors import UnsupportedError, shorten
from deeploy.ir.dimensions import SUM, Kind
from deeploy.ir.expr import Affine, Dim, Quotient, Remainder
from deeploy.ir.nest import Geometry, Map, Nest

LOOPS = ("G", "K", "C", "OY", "OX", "FY", "FX")  # outermost first in every table


@dataclass(frozen=True)
class LayerLoops:
    """The seven loops of a layer.

    Attributes:
        name: of the node, for messages and reports.
        sizes: iterations of every loop, in the order of ``LOOPS``; a matrix product has OY, OX = rows as square as can be.
        strides, dilations: along y and x: how far the window moves with OY, OX and with FY, FX.
        count: how many layers of the network have exactly these loops.
    """

    name: str
    sizes: tuple[int, ...]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    count: int = 1

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one such layer."""
        return math.prod(self.sizes)

    @property
    def is_square(self) -> bool:
        """Whether both directions of the image are alike, which the paper's pruning of unrollings needs."""
        size = dict(zip(LOOPS, self.sizes, strict=True))
        alike = size["OX"] == size["OY"] and size["FX"] == size["FY"]
        return alike and self.strides[0] == self.strides[1] and self.dilations[0] == self.dilations[1]

    @property
    def loops(self) -> str:
        """The loops with more than one iteration, for people."""
        return " ".join(f"{name}{size}" for name, size in zip(LOOPS, self.sizes, strict=True) if size > 1) or "one product"


def from_geometry(name: str, geometry: Geometry, constants: set[str] | frozenset[str] = frozenset()) -> list[LayerLoops]:
    """The layers of one call: a phase that sums products of two operands is one."""
    loops = []
    for phase in (geometry.nest, *geometry.nest.phases):
        factors = [n for n, m in phase.reads.items() if any(d.kind is Kind.REDUCTION for d in m.dims())]
        if len(factors) >= 2 and any(d.kind is Kind.REDUCTION and d.combine is SUM for d in phase.dims().values()):
            loops.append(_make_layer(name, phase, geometry.extents, factors, constants))
    return loops


def array_slots(layer: LayerLoops, unrolling: Sequence[int]) -> int:
    """Multiply-accumulates that an array could do while it runs a layer: every loop rounded up to a multiple of its factor."""
    return math.prod(-(-size // factor) * factor for size, factor in zip(layer.sizes, unrolling, strict=True))


def distinct_layers(layers: Sequence[LayerLoops]) -> list[LayerLoops]:
    """Layers without repetition: each stands for all that have its loops, under the first one's name."""
    merged: dict[tuple[object, ...], LayerLoops] = {}
    for layer in layers:
        key = (layer.sizes, layer.strides, layer.dilations)
        known = merged.get(key)
        merged[key] = layer if known is None else replace(known, count=known.count + layer.count)
    return list(merged.values())


@dataclass(frozen=True)
class _NestLoop:
    """A dimension, or its quotient or remainder by ``radix``; ``size`` iterations."""

    dim: str
    part: str
    size: int
    operands: frozenset[str]  # of "x", "w", "y"


def _make_layer(
    name: str, nest: Nest, extents: Mapping[str, int], factors: Sequence[str], constants: set[str] | frozenset[str]
) -> LayerLoops:
    if len(factors) > 2 or len(nest.writes) != 1:
        raise _unknown_loop(name, f"multiplies {len(factors)} operands into {len(nest.writes)}")
    result = next(iter(nest.writes.values()))
    first, second = (nest.reads[f] for f in factors)
    windows = {factor: list(_sliding_windows(nest.reads[factor], other)) for factor, other in zip(factors, (second, first), strict=True)}
    swapped = not windows[factors[0]] and (bool(windows[factors[1]]) or (factors[0] in constants and factors[1] not in constants))
    inputs, weights = (second, first) if swapped else (first, second)
    sliding = windows[factors[1] if swapped else factors[0]]
    if len(sliding) > 2:
        raise _unknown_loop(name, f"slides along {len(sliding)} axes")
    loops = list(_nest_loops(nest, {"x": inputs, "w": weights, "y": result}, extents))
    sizes = dict.fromkeys(LOOPS, 1)
    pairs = [(outputs, taps) for outputs, taps, _, _ in sliding]
    for loop in loops:
        sizes_key = _loop_role(name, loop, pairs)
        if sizes_key == "O":
            continue
        sizes[sizes_key] *= loop.size
    rows = math.prod(loop.size for loop in loops if _loop_role(name, loop, pairs) == "O")
    if sliding:
        sizes["OY"] *= rows  # a batch of images is as good as one that is higher
    else:
        sizes["OY"], sizes["OX"] = _nearly_square(rows)
    steps = [(stride, dilation) for _, _, stride, dilation in sliding]
    steps = [(1, 1)] * (2 - len(steps)) + steps
    ordered = tuple(sizes[loop] for loop in LOOPS)
    return LayerLoops(name, ordered, (steps[0][0], steps[1][0]), (steps[0][1], steps[1][1]))


def _sliding_windows(access: Map, other: Map) -> Iterator[tuple[str, str, int, int]]:
    """Axes along which a window slides: output dimension, tap dimension, stride, dilation; outermost first.

    The ``other`` factor does not know where the window is; at most the phase inside a period, as in a transposed convolution.
    """
    for axis in access.axes:
        quotients = {inner.name: 1 for atom, _ in axis.terms if isinstance(atom, Quotient) for inner in atom.dims()}
        steps = {atom.name: abs(factor) for atom, factor in axis.terms if isinstance(atom, Dim)} | quotients
        dims = {dim.name: dim for dim in axis.dims()}
        outputs = [n for n in steps if dims[n].kind is Kind.PARALLEL]
        taps = [n for n in steps if dims[n].kind is Kind.REDUCTION]
        if len(outputs) == 1 and len(taps) == 1 and all(part == "remainder" for part, _ in _seen_parts(other, outputs[0])):
            yield outputs[0], taps[0], steps[outputs[0]], steps[taps[0]]


def _nest_loops(nest: Nest, operands: Mapping[str, Map], extents: Mapping[str, int]) -> Iterator[_NestLoop]:
    """The loops of a nest: dimensions, or their quotients and remainders where a factor sees only these."""
    for name in (dim.name for dim in nest.iterated()):
        seen = {operand: _seen_parts(access, name) for operand, access in operands.items()}
        radices = {radix for parts in seen.values() for part, radix in parts if part != "all"}
        size = extents[name]
        if len(radices) != 1 or any(len(parts) > 1 for parts in seen.values()):
            yield _NestLoop(name, "all", size, frozenset(o for o, parts in seen.items() if parts))
            continue
        (radix,) = radices
        for part, iterations in (("quotient", -(-size // radix)), ("remainder", min(radix, size))):
            yield _NestLoop(name, part, iterations, frozenset(o for o, parts in seen.items() if parts & {("all", 0), (part, radix)}))


def _seen_parts(access: Map, name: str) -> set[tuple[str, int]]:
    """What of a dimension a map depends on: ("all", 0), ("quotient", radix) or ("remainder", radix)."""
    dims_seen = set()
    for axis in access.axes:
        for atom, _ in axis.terms:
            if isinstance(atom, Dim):
                if name == atom.name or any(name == dim.name for dim in atom.of):
                    dims_seen.add(("all", 0))
            elif isinstance(atom, Quotient | Remainder) and any(dim.name == name for dim in atom.dims()):
                alone = _is_alone(atom.inner, name)
                kind = "quotient" if isinstance(atom, Quotient) else "remainder"
                dims_seen.add((kind, atom.divisor) if alone else ("all", 0))
    return {("all", 0)} if len(dims_seen) > 1 else dims_seen


def _is_alone(inner: Affine, name: str) -> bool:
    return len(inner.terms) == 1 and isinstance(inner.terms[0][0], Dim) and inner.terms[0][0].name == name and inner.terms[0][1] == 1


def _loop_role(layer: str, loop: _NestLoop, sliding: Sequence[tuple[str, str]]) -> str:
    """One of ``LOOPS``, or O for rows that no window slides along."""
    letters = "".join(sorted(loop.operands))
    axes = ("OY", "OX")[2 - len(sliding) :] if sliding else ()
    taps = ("FY", "FX")[2 - len(sliding) :] if sliding else ()
    for (outputs, window), o, f in zip(sliding, axes, taps, strict=True):
        if loop.dim == outputs and letters == "xy":
            return o
        if loop.dim == window and letters == "wx":
            return f
    role = {"wxy": "G", "wy": "K", "wx": "C", "xy": "O"}.get(letters)
    if role is None and loop.size == 1:
        return "G"
    if role is None:
        raise _unknown_loop(layer, f"has a dimension {loop.dim} that fewer than two of inputs, weights and result depend on")
    return role


def _nearly_square(rows: int) -> tuple[int, int]:
    """The two factors of ``rows`` that are closest to each other, the smaller one first."""
    low = next(f for f in range(math.isqrt(rows), 0, -1) if rows % f == 0)
    return low, rows // low


def _unknown_loop(layer: str, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"layer {shorten(layer)} {what}", "Only sums of products of two operands are explored: leave the layer out of the model."
    )
