"""Reductions over any set of axes (docs/integer-form.md): loop nests and references."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np

from deeploy.ir.dimensions import MAX, MIN, PRODUCT, SUM, Combine
from deeploy.ir.expr import Dim, Expr
from deeploy.ir.kernel import DIVIDES, FLOAT, INTEGERS, Operator, Range, Reference, Row, Sample, types
from deeploy.ir.nest import Map, Nest, parallel, reduction
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.accumulate import INTEGER_STAGES, exclude_overflow, held, keeps_type, stored_whole, values
from deeploy.operators.draws import FLAG, draw_shape, sample
from deeploy.operators.elementwise import fits_loops, wide

AXES = 6  # kept, and reduced, that the portable kernel handles


def nest(combine: Combine) -> Callable[[Node], Nest]:
    """The nest of a reduction; dimension ``d<i>`` runs over axis i of x."""

    def declare(node: Node) -> Nest:
        x = node.operands[0]
        axes = node.attrs["axes"]
        dims: list[Dim] = []
        for axis in range(len(x.shape)):
            dims += reduction(f"d{axis}", combine=combine) if axis in axes else parallel(f"d{axis}")
        rest: list[Expr | int] = [0 if axis in axes else dim for axis, dim in enumerate(dims) if node.attrs["keepdims"] or axis not in axes]
        return Nest(reads={"x": Map(*dims)}, writes={"y": Map(*rest)})

    return declare


def _shape(node: Node, shape: tuple[int, ...]) -> tuple[int, ...]:
    axes = node.attrs["axes"]
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape) if node.attrs["keepdims"] or axis not in axes)


def loops(x: Any, y: Any, attrs: Mapping[str, Any]) -> str:
    """C initialisers of a reduction of ``x`` to ``y``: extents and strides of the kept and of the reduced axes, filled up in front.

    Neighbouring reduced axes become one where x steps through them as through one.
    """
    axes, rank = attrs["axes"], len(x.extent)
    rest = [axis for axis in range(rank) if axis not in axes]
    reduced: list[tuple[int, int]] = []  # extents and strides
    for extent, stride in ((x.extent[axis], x.stride[axis]) for axis in axes):
        if reduced and reduced[-1][1] == extent * stride:
            reduced[-1] = (reduced[-1][0] * extent, stride)
        else:
            reduced.append((extent, stride))
    fields = {
        "kept": (1, [x.extent[axis] for axis in rest]),
        "x_kept": (0, [x.stride[axis] for axis in rest]),
        "y_kept": (0, [y.stride[axis] for axis in (rest if attrs["keepdims"] else range(len(rest)))]),
        "reduced": (1, [extent for extent, _ in reduced]),
        "x_reduced": (0, [stride for _, stride in reduced]),
    }
    filled = {name: [filler] * (AXES - len(values)) + values for name, (filler, values) in fields.items()}
    return ", ".join(f".{name} = {{{', '.join(map(str, values))}}}" for name, values in filled.items())


def _rows(node: Node, x: Array) -> Array:
    """x as a matrix: one row per result, the elements it combines in row-major order of the reduced axes."""
    axes = tuple(node.attrs["axes"])
    rest = tuple(axis for axis in range(x.ndim) if axis not in axes)
    return x.transpose(rest + axes).reshape(math.prod(x.shape[axis] for axis in rest), math.prod(x.shape[axis] for axis in axes))


def folded(combine: np.ufunc, initial: float) -> Reference:
    """Elements combined in row-major order of the reduced axes: float32, or int64; what is ``initial`` where there are none."""

    def reference(node: Node, x: Array) -> Array:
        """The sum, extreme or product over ``axes`` (sorted, non-negative), which stay with extent 1 where ``keepdims``."""
        rows = _rows(node, wide(x))
        total = combine.accumulate(rows, axis=1)[:, -1] if rows.shape[1] else np.full(len(rows), initial, rows.dtype)
        return np.asarray(total.reshape(_shape(node, x.shape)))

    return reference


_sum = folded(np.add, 0)


def mean_reference(node: Node, x: Array) -> Array:
    """The float32 sum divided by the number of elements; axes, keepdims."""
    return np.asarray(_sum(node, x) / np.float32(_rows(node, x).shape[1]))


def extreme_nest(node: Node) -> Nest:
    """The nest of an arg-extreme along the last axis, which stays with extent 1."""
    x = node.operands[0]
    *dims, row = [*parallel(*(f"d{axis}" for axis in range(len(x.shape) - 1))), *reduction("row", combine=MAX)]
    return Nest(reads={"x": Map(*dims, row)}, writes={"y": Map(*dims, 0)})


def extreme_reference(node: Node, x: Array) -> Array:
    """Where the largest (or ``smallest``) element of a row is, the first or the ``last`` of equal ones.

    y[..., 0], int32 or int64. What is no number is neither larger nor smaller, and no place but the first can be one.
    """
    smaller, larger = (np.less_equal, np.greater_equal) if node.attrs["last"] else (np.less, np.greater)
    place, best = np.zeros(x.shape[:-1], np.int64), x[..., 0]
    for i in range(1, x.shape[-1]):
        is_better = (smaller if node.attrs["smallest"] else larger)(x[..., i], best)
        place, best = np.where(is_better, i, place), np.where(is_better, x[..., i], best)
    return np.asarray(place[..., None])


def is_shifted_mean(node: Node) -> bool:
    """Whether an integer mean is of 2^k elements whose axes vanish: it is a shift."""
    x = node.operands[0]
    count = math.prod(x.shape[axis] for axis in node.attrs["axes"])
    return count & (count - 1) == 0 and not node.attrs["keepdims"]


def integer_mean_reference(node: Node, x: Array) -> Array:
    """n = 2^k and not keepdims: (S + 2^(k-1)) >> k (k = 0: S); else (S + sgn(S)*(n >> 1)) / n, truncated.

    S is the sum of n elements; axes, keepdims.
    """
    total = _sum(node, x)
    count = _rows(node, x).shape[1]
    if is_shifted_mean(node):
        return np.asarray((total + (count >> 1)) >> (count.bit_length() - 1))
    rounded = np.abs(total) + (count >> 1)  # half a count away from zero, for either sign
    return np.asarray(np.sign(total) * (rounded // count))


def _reduced(node: Node) -> dict[str, tuple[Range, Range]]:
    """The sums of elements of a node, and of their means, which half a count rounds; none of words as they are, which wrap around."""
    x = node.operands[0]
    if x.dtype.bits >= 32 and "requantise" not in node.epilogue:
        return {}
    (low, high), count = values(x), math.prod(x.shape[axis] for axis in node.attrs["axes"])
    bits, half = 64 if x.dtype.bits == 64 else 32, count >> 1 if node.op == "IntegerMean" else 0
    total = held(count * low - half, count * high + half, bits)
    return {"total": total, "sum": held(low, high, bits)} if half else {"sum": total}


def _of_type(node: Node) -> dict[str, tuple[Range, Range]]:
    """Extremes are among the elements."""
    return {"sum": held(*values(node.operands[0]), 64)}


def _make_operator(
    name: str,
    combine: Combine,
    reference: Reference,
    is_whole: bool = False,
    stages: tuple[tuple[str, ...], ...] = INTEGER_STAGES,
    varies: str = "",
) -> Operator:
    """A reduction; where its accumulator ``is_whole``, it never has the type of x for certain."""

    def state_requirement(node: Node) -> str | None:
        x, reduced = node.operands[0], len(node.attrs["axes"])
        reason = stored_whole(node) if is_whole or keeps_type(node) is not None else None
        if reason is not None:
            return reason
        if combine in (MAX, MIN) and 0 in x.shape and not x.dtype.is_float:
            return "elements to reduce"
        return None if max(reduced, len(x.shape) - reduced) <= AXES else f"at most {AXES} reduced and {AXES} other axes"

    accepted = {"x": INTEGERS, "y": INTEGERS, "bias": types("s32")}
    usual = Row(types=accepted, requires=state_requirement, epilogues=stages, strided={"x": 0, "y": 0}, data_dependent=varies)
    integers = {SUM: _reduced, PRODUCT: None}.get(combine, _of_type)
    return Operator(name, ("x",), nest(combine), reference, usual, integers=integers, draw=_draw_node)


def _draw_node(rng: Random) -> Sample:
    x = draw_shape(rng)
    axes = tuple(sorted(rng.sample(range(len(x)), rng.randint(1, len(x)))))
    return Sample({"x": x}, {"axes": axes, "keepdims": rng.choice(FLAG)})


REDUCE_SUM = _make_operator("ReduceSum", SUM, _sum, is_whole=True)
REDUCE_MAX = _make_operator("ReduceMax", MAX, folded(np.maximum, -np.inf))
REDUCE_MIN = _make_operator("ReduceMin", MIN, folded(np.minimum, np.inf))
REDUCE_MEAN = _make_operator("ReduceMean", SUM, mean_reference, is_whole=True)
REDUCE_PRODUCT = _make_operator("ReduceProd", PRODUCT, folded(np.multiply, 1), is_whole=True, stages=((),))
INTEGER_MEAN = _make_operator("IntegerMean", SUM, integer_mean_reference, varies=DIVIDES)
ARG_EXTREME = Operator(
    "ArgMax",
    ("x",),
    extreme_nest,
    extreme_reference,
    usual=Row(
        types={"x": INTEGERS | FLOAT | types("u32", "s64"), "y": types("s32", "s64")},
        requires=fits_loops,
        strided={"x": 0, "y": 0},
        data_dependent="It branches where an element is better.",
    ),
    integers=exclude_overflow,
    draw=sample("x[*s]", smallest=FLAG, last=FLAG),
)
