"""Operators along rows of the last axis (docs/integer-form.md): softmaxes and norms.

Rows are independent; along a row every output depends on all of it, so that no row is ever cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import numpy as np

from deeploy.ir.expr import Dim
from deeploy.ir.kernel import BYTES, DIVIDES, FLOAT, INTEGERS, Operator, Range, Reference, Row, Sample, Types, types
from deeploy.ir.nest import Map, Nest, coupled, parallel
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import Array
from deeploy.operators import exponentials
from deeploy.operators.accumulate import held, values
from deeploy.operators.draws import FLAG, integers, sample
from deeploy.operators.elementwise import fits_loops, wide
from deeploy.operators.fractions import invert_root, invert_sum, multiply_fractions, multiply_twice_rounded


def nest(*per_element: str) -> Callable[[Node], Nest]:
    """The nest of an operator on rows of ``x``; operands named ``per_element`` have one value per element of a row."""

    return lambda node: _nest(node, per_element, is_cut=False)


def column_nest(*per_element: str) -> Callable[[Node], Nest]:
    """The nest of rows of which each element of ``y`` can be computed alone from the whole row of ``x``: cores may divide columns too."""

    return lambda node: _nest(node, per_element, is_cut=True)


def _nest(node: Node, per_element: tuple[str, ...], is_cut: bool) -> Nest:
    *rows, c = *parallel(*(f"d{axis}" for axis in range(node.operands[0].rank - 1))), *coupled("c")
    k = Dim("k", whole=c.name) if is_cut else c
    reads = {"x": Map(*rows, c), **{name: Map(k) for name in per_element}}
    return Nest(reads, writes={"y": Map(*rows, k)}, extents={k.name: columns(node)} if is_cut else {})


def columns(node: Node) -> int:
    """Elements of a row."""
    return node.operands[0].shape[-1]


def truncate_quotient(n: Array, d: Array) -> Array:
    """C's division of integers: towards zero; ``d`` is positive."""
    return np.asarray(np.sign(n) * (np.abs(n) // d))


def integer_root(values: Array) -> Array:
    """floor(sqrt(v)) of non-negative integers."""
    return np.asarray([math.isqrt(int(v)) for v in values.ravel()], np.int64).reshape(values.shape)


def _root_deviation(x: Array) -> Array:
    """isqrt(sum(x^2)/n + 1) of each row."""
    return integer_root((x * x).sum(axis=-1, keepdims=True) // x.shape[-1] + 1)


def softmax_reference(node: Node, x: Array) -> Array:
    """exp(x - max) * (1 / sum) in float32, added up in the order of the elements."""
    e = exponentials.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e * (np.float32(1) / np.add.accumulate(e, axis=-1)[..., -1:]), np.float32)


def softmax_is_wide(node: Node) -> bool:
    """Whether the table softmax of a node needs more than 32 bits for its sum or its quotients' numerators."""
    table = node.operands[1]
    largest = 2**31 if table.data is None else int(table.data.max(initial=0))
    return 2 * largest * (columns(node) + int(node.attrs["levels"])) >= 2**32


def curve_of(table: Array) -> np.ndarray | None:
    """uint32 [a, b, c, p] with table[z p + r] = (a r^2 + b r + c mod 2^32) >> z for all distances; None where there is no such curve.

    Integer softmaxes have one: a parabola up to a power of two, and halves of it behind that.
    """
    wanted, distances = wide(table), np.arange(len(table))
    for period in (p for p in range(8, len(table) + 1) if p == len(table) or wanted[p] == wanted[0] >> 1):
        z, r = distances // period, distances % period
        a = (wanted[2] - 2 * wanted[1] + wanted[0]) >> 1
        b = wanted[1] - wanted[0] - a
        if np.array_equal(((a * r + b) * r + wanted[0]) % 2**32 >> z, wanted):
            return np.array([int(n) % 2**32 for n in (a, b, wanted[0], period)], np.uint32)
    return None


def table_softmax_reference(node: Node, x: Array, table: Array, results: Array | None = None) -> Array:
    """e = table[max - x]; q = e * levels / sum(e), half to even or, without ``rounded``, down; y = q + zero_point, clipped.

    Last axis. Floats: exp(x - max) / sum. Integers have table uint32[256]. With ``results`` [256] of 8 bits, y is its entry for that, the
    first of which is for ``smallest``.
    """
    attrs = node.attrs
    e = wide(table)[wide(x).max(axis=-1, keepdims=True) - x]
    total = np.maximum(e.sum(axis=-1, keepdims=True), 1)
    top = e * attrs["levels"]
    if attrs.get("rounded", True):
        top = 2 * top + total
        q = top // (2 * total)
        q -= (q & 1) & (q * 2 * total == top)
    else:
        q = top // total
    y = np.clip(q + attrs["zero_point"], attrs["low"], attrs["high"])
    return np.asarray(y if results is None else results[y - attrs["smallest"]])


def fixed_softmax_reference(node: Node, x: Array, table: Array) -> Array:
    """e = table[max - x], 31 bits behind the point; y = e / sum(e) in steps of 1/256, by a reciprocal in words, + zero_point, clipped.

    Last axis, of less than 4096 elements; table uint32[256], of words. As TensorFlow Lite's reference kernel computes it
    (tensorflow/lite/kernels/internal/reference/softmax.h, and fixedpoint.h of https://github.com/google/gemmlowp).
    """
    e = wide(table)[wide(x).max(axis=-1, keepdims=True) - x]
    total = np.maximum(((e + 2048) >> 12).sum(axis=-1, keepdims=True), 1)  # with 19 bits behind the point
    bits = np.frexp(total.astype(np.float64))[1].astype(np.int64)
    inverse = np.minimum(invert_sum((total << (32 - bits)) - 2**31) << 1, 2**31 - 1)
    shift = np.maximum(bits + 3, 1)
    quotient = (multiply_fractions(inverse, e) + (1 << (shift - 1))) >> shift
    return np.asarray(np.clip(quotient + node.attrs["zero_point"], node.attrs["low"], node.attrs["high"]))


def fixed_l2_norm_reference(node: Node, x: Array) -> Array:
    """y = (x - zero_point) / sqrt(sum((x - zero_point)^2)) in steps of 1/128, by an inverse root in words, within 8 bits with a sign.

    Last axis, of less than 8192 elements. As TensorFlow Lite's reference kernel computes it
    (tensorflow/lite/kernels/internal/reference/integer_ops/l2normalization.h).
    """
    distance = wide(x) - int(node.attrs["zero_point"])
    multiplier, shift = invert_root((distance * distance).sum(axis=-1, keepdims=True))
    return np.asarray(np.clip(multiply_twice_rounded(distance, multiplier, shift + 7), -128, 127))


def shift_softmax_reference(node: Node, x: Array) -> Array:
    """Exponentials as powers of two, the sum corrected whenever a complete group of elements has a larger maximum.

    Last axis, x 8 bit; group, numerator. s = max(0, (maximum - x + 16) >> 5); y = (numerator // sum(256 >> s)) >> s. Elements of an
    incomplete last group are not in the maximum or the sum.
    """
    group = int(node.attrs["group"])
    x = wide(x)
    acc = np.zeros((*x.shape[:-1], 1), np.int64)
    top = np.full_like(acc, -128)
    for begin in range(0, x.shape[-1] - group + 1, group):
        part = x[..., begin : begin + group]
        largest = part.max(axis=-1, keepdims=True)
        acc >>= np.where(largest > top, (largest - top + 16) >> 5, 0)
        top = np.maximum(top, largest)
        acc += (256 >> ((top - part + 16) >> 5)).sum(axis=-1, keepdims=True)
    inverse = int(node.attrs["numerator"]) // np.maximum(acc, 1)
    return np.asarray(inverse >> np.maximum((top - x + 16) >> 5, 0))


def layer_norm_reference(node: Node, x: Array, weight: Array, bias: Array) -> Array:
    """c = x - sum/n; (c*weight / isqrt(sum(c^2)/n + 1) + bias) >> shift, modulo 2^8; divisions towards zero.

    Last axis; no epilogue.
    """
    c = wide(x) - truncate_quotient(wide(x).sum(axis=-1, keepdims=True), np.asarray(x.shape[-1]))
    y = (truncate_quotient(c * wide(weight), _root_deviation(c)) + wide(bias)) >> int(node.attrs["shift"])
    return np.asarray(((y + 128) & 255) - 128)


def rms_norm_reference(node: Node, x: Array, weight: Array) -> Array:
    """clip((x*weight / isqrt(sum(x^2)/n + 1)) >> shift, -128, 127); divisions towards zero.

    Last axis; no epilogue.
    """
    return np.asarray(np.clip(truncate_quotient(wide(x) * wide(weight), _root_deviation(wide(x))) >> int(node.attrs["shift"]), -128, 127))


def norm_types(node: Node) -> tuple[str, str]:
    """C types that hold a row's sum of squares, and the product of an element and its weight plus the bias."""
    x = node.operands[0]
    low, high = x.dtype.range
    largest = high - low if node.op == "IntegerLayerNorm" else max(-low, high)
    parameters = [t.data for t in node.inputs[1:] if t is not None]
    known = all(p is not None for p in parameters)
    bounds = [int(np.abs(p.astype(np.int64)).max(initial=0)) for p in parameters if p is not None]
    product = largest * bounds[0] + sum(bounds[1:]) if known else 2**63
    return ("int32_t" if largest**2 * columns(node) < 2**31 else "int64_t"), ("int32_t" if product < 2**31 else "int64_t")


def _has_short_rows(node: Node) -> str | None:
    """The sum of squares of a row has less than 30 bits."""
    return fits_loops(node) if columns(node) < 8192 else "rows of less than 8192 elements"


def _norm_integers(node: Node) -> dict[str, tuple[Range, Range]]:
    (low, high), n = values(node.operands[0]), columns(node)
    squares, product = (32 if kind == "int32_t" else 64 for kind in norm_types(node))
    far = high - low if node.op == "IntegerLayerNorm" else max(-low, high)
    weight, bias = (*(_largest(t) for t in node.inputs[1:] if t is not None), 0)[:2]
    return {
        "total": held(n * low, n * high, squares),
        "squares": held(0, n * far**2, squares),
        "root": held(1, math.isqrt(far**2 + 1)),
        "products": held(-far * weight - bias, far * weight + bias, product),
        "shift": ((int(node.attrs["shift"]),) * 2, (0, product - 1)),
    }


def _largest(tensor: Tensor) -> int:
    low, high = tensor.dtype.range if tensor.data is None else (int(tensor.data.min(initial=0)), int(tensor.data.max(initial=0)))
    return max(-low, high)


def _softmax_integers(node: Node) -> dict[str, tuple[Range, Range]]:
    attrs, bits, table = node.attrs, 64 if softmax_is_wide(node) else 32, node.operands[1]
    total, top = columns(node) * _largest(table), _largest(table) * int(attrs["levels"])
    is_rounded = attrs.get("rounded", True)
    ranges = {
        "sums": held(0, (1 + is_rounded) * max(total, 1), bits, False),
        "numerators": held(0, 2 * top + total if is_rounded else top, bits, False),
    }
    if len(node.operands) < 3:
        return ranges
    smallest = int(attrs["smallest"])
    return {**ranges, "entries": ((int(attrs["low"]) - smallest, int(attrs["high"]) - smallest), (0, node.operands[2].elements - 1))}


def _fixed_softmax_integers(node: Node) -> dict[str, tuple[Range, Range]]:
    return {"sums": held(0, columns(node) * (_largest(node.operands[1]) + 2048 >> 12))}


def _fixed_l2_norm_integers(node: Node) -> dict[str, tuple[Range, Range]]:
    far = max(map(abs, values(node.operands[0], int(node.attrs["zero_point"]))))
    return {"squares": held(0, columns(node) * far**2)}


def _shift_softmax_integers(node: Node) -> dict[str, tuple[Range, Range]]:
    return {"sums": held(0, 256 * columns(node)), "quotients": held(0, int(node.attrs["numerator"]))}


ROOT = "It takes a square root bit by bit, and divides values."  # as ``data_dependent``
USUAL = Row(requires=fits_loops, strided={"x": 1, "y": 1}, overwrites=(("y", "x"),))  # rows are dense, the other axes may have any stride


def _declare_norm(name: str, reference: Reference, *per_element: str) -> Operator:
    accepted: dict[str, Types] = {"x": types("s8", "u8", "s16"), **dict.fromkeys(per_element, INTEGERS), "y": types("s8")}
    draw = sample(" ".join(("x[*s,c]", *(f"{operand}[c]" for operand in per_element))), shift=range(9))
    return Operator(
        name,
        ("x", *per_element),
        nest(*per_element),
        reference,
        {**USUAL, "types": accepted, "data_dependent": ROOT},
        integers=_norm_integers,
        draw=draw,
    )


def _draw_softmax(rng: Random) -> Sample:
    low, high = rng.choice(((0, 255), (-128, 127), (0, 100)))
    table = np.rint(np.exp(-np.arange(256) / rng.choice((3, 30))) * 2 ** rng.choice((20, 23, 30))).astype(np.uint32)
    attributes = {"levels": rng.choice((255, 256, 127)), "zero_point": rng.choice((0, -128)), "low": low, "high": high, "smallest": low}
    given = {"rounded": FLAG, "table": lambda rng, shape: table, "results": integers(0, 127, np.int8, np.uint8)}
    return sample(f"x[*s] table[256] results?[{high - low + 1}]", lambda rng: attributes, **given)(rng)


def _draw_fixed_softmax(rng: Random) -> Sample:
    table = np.rint(np.exp(-np.arange(256) / rng.choice((3, 30))) * (2**31 - 1)).astype(np.uint32)
    low = rng.choice((0, -128))
    attributes = {"zero_point": low, "low": low, "high": low + 255}
    return sample("x[*s] table[256]", lambda rng: attributes, table=lambda rng, shape: table)(rng)


SOFTMAX = Operator(
    "Softmax",
    ("x",),
    nest(),
    softmax_reference,
    {**USUAL, "types": {"x": FLOAT, "y": FLOAT}},
    draw=sample("x[*s]"),
)
TABLE_SOFTMAX = Operator(  # the same of quantised values
    "Softmax",
    ("x", "table", "results?"),
    nest(),
    table_softmax_reference,
    {
        **USUAL,
        "types": {"x": BYTES, "table": types("u32"), "results": BYTES, "y": types("s8", "u8", "s32")},
        "constants": ("table", "results"),
        "data_dependent": DIVIDES,
    },
    integers=_softmax_integers,
    draw=_draw_softmax,
)
FIXED_SOFTMAX = Operator(
    "FixedSoftmax",
    ("x", "table"),
    nest(),
    fixed_softmax_reference,
    {
        **USUAL,
        "types": {"x": BYTES, "table": types("u32"), "y": BYTES},
        "constants": ("table",),
        "data_dependent": "A loop counts the bits of a sum.",
    },
    integers=_fixed_softmax_integers,
    draw=_draw_fixed_softmax,
)
FIXED_L2_NORM = Operator(
    "FixedL2Norm",
    ("x",),
    nest(),
    fixed_l2_norm_reference,
    {
        **USUAL,
        "types": {"x": BYTES, "y": types("s8")},
        "requires": _has_short_rows,
        "data_dependent": "A loop counts the bits of a sum, and a shift of results depends on them.",
    },
    integers=_fixed_l2_norm_integers,
    draw=sample("x[*s]", zero_point=range(-128, 128)),
)
SHIFT_SOFTMAX = Operator(
    "ShiftSoftmax",
    ("x",),
    nest(),
    shift_softmax_reference,
    {**USUAL, "types": {"x": BYTES, "y": types("u8", "s32")}, "data_dependent": DIVIDES},
    integers=_shift_softmax_integers,
    draw=sample("x[*s]", group=range(1, 10), numerator=(127 * 256, 255 * 256)),
)
LAYER_NORM = _declare_norm("IntegerLayerNorm", layer_norm_reference, "weight", "bias")
RMS_NORM = _declare_norm("IntegerRMSNorm", rms_norm_reference, "weight")
