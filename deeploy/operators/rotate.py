"""Rotary embedding (docs/integer-form.md): the halves of a row as the two coordinates of points, turned by angles.

y = x * cos + turned * sin, where turned is (-second half, first half); pairs that are interleaved lie side by side instead.
Every element needs another one of its row, so that a row is never cut; cosines and sines broadcast over heads.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

import numpy as np

from deeploy.ir.epilogue import shift_right
from deeploy.ir.kernel import BYTES, FLOAT, Operator, Range, Row, Sample
from deeploy.ir.nest import Map, Nest, coupled, parallel
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators import scaled
from deeploy.operators.accumulate import held, products, scale, span, values
from deeploy.operators.draws import FLAG, LIMITS, broadcast, draw_shape, integers
from deeploy.operators.elementwise import wide
from deeploy.operators.staircase import WORD, StaircaseRequantisation, cheapest_form

_OPERANDS = ("x", "cosine", "sine")


def nest(node: Node) -> Nest:
    """Rows of ``x`` are independent; ``cosine`` and ``sine`` are aligned to the right of its axes."""
    dims = (*parallel(*(f"d{axis}" for axis in range(node.operands[0].rank - 1))), *coupled("c"))
    reads = {name: Map(*dims[len(dims) - tensor.rank :]) for name, tensor in zip(_OPERANDS, node.operands, strict=False)}
    return Nest(reads=reads, writes={"y": Map(*dims)})


def state_requirement(node: Node) -> str | None:
    """Rows of pairs, and tables of rank at most that of ``x``."""
    x = node.inputs[0]
    if x is None or not x.shape or x.shape[-1] % 2:
        return "rows of an even length"
    same = x.shape == node.outputs[0].shape and all(t is not None and len(t.shape) <= len(x.shape) for t in node.inputs[1:3])
    return None if same and len(x.shape) <= 6 else "cosines and sines that broadcast over x, at most 6 axes"


def product(a: Array, b: Array, constants: tuple[int, ...]) -> Array:
    """clip(((a - za)*(b - zb)*mul + add) >> shift, low, high); ``constants``: za, zb, mul, add, shift, low, high, even or -1."""
    a_zero, b_zero, mul, add, shift, low, high, even = constants
    return _limited((wide(a) - a_zero) * (wide(b) - b_zero) * mul + add, shift, low, high, even)


def _limited(sums: Array, shift: int, low: int, high: int, even: int) -> Array:
    return np.asarray(np.clip(shift_right(sums, shift, None if even < 0 else even), low, high))


def halves(node: Node, x: Array) -> tuple[Array, Array]:
    """The first and the second elements of all pairs."""
    half = x.shape[-1] // 2
    return (x[..., ::2], x[..., 1::2]) if node.attrs.get("interleaved") else (x[..., :half], x[..., half:])


def join_halves(node: Node, first: Array, second: Array) -> Array:
    """Rows whose halves, or even and odd elements where interleaved, are ``first`` and ``second``."""
    both = np.stack([first, second], axis=-1 if node.attrs.get("interleaved") else -2)
    return both.reshape(*first.shape[:-1], 2 * first.shape[-1])


def reference(node: Node, x: Array, cos: Array, sin: Array, table: Array) -> Array:
    """Rotary embedding, last axis. Floats: x*cosine + turned*sine, turned = (-second half, first half).

    ``interleaved``: the first half are the elements of even index, the second those of odd index. 8 bits: both products are requantised on
    their own, then clip((c*mul_a + s*mul_b + add) >> shift, low, high). ``table`` [2,256] gives the turned element for one of the second
    half (row 0) and of the first half (row 1). No epilogue.
    """
    first, second = halves(node, wide(x) - np.iinfo(x.dtype).min)
    turned = join_halves(node, table[0][second], table[1][first])
    mul_a, mul_b, add, *limits = node.attrs["sum"]
    return _limited(product(x, cos, node.attrs["cosine"]) * mul_a + product(turned, sin, node.attrs["sine"]) * mul_b + add, *limits)


@lru_cache(maxsize=256)
def in_words(node: Node) -> tuple[StaircaseRequantisation, StaircaseRequantisation, scaled.Sum] | None:
    """The products with cosines and with sines, and their sum, in forms of 32 bits with the same results; None where one has none."""
    x, cosine, sine, table = node.operands
    by_cosine = _product_in_words(x.dtype.range, cosine.dtype.range, node.attrs["cosine"])
    by_sine = _product_in_words(table.dtype.range, sine.dtype.range, node.attrs["sine"])
    parts = [node.attrs[name][5:7] for name in ("cosine", "sine")]
    mul_a, mul_b, add, shift, low, high, even = node.attrs["sum"]
    if by_cosine is None or by_sine is None or any(least < -256 or most > 255 for least, most in parts):
        return None
    constants = (("mul_a", mul_a), ("mul_b", mul_b), ("add", add), ("shift", shift), ("low", low), ("high", high))
    form = scaled.cheapest_sum(parts[0], parts[1], (*constants, ("even", None if even < 0 else even)))
    return None if form is None else (by_cosine, by_sine, form)


def _product_in_words(
    a_range: tuple[float, float], b_range: tuple[float, float], constants: tuple[int, ...]
) -> StaircaseRequantisation | None:
    """The requantisation of a product of values in these ranges, constants as those of ``product``."""
    a_zero, b_zero, mul, add, shift, low, high, even = constants
    if not abs(mul) < WORD or abs(add) >= 2**62:
        return None
    corners = [(int(a) - a_zero) * (int(b) - b_zero) for a in a_range for b in b_range]
    ends = np.array([min(corners)]), np.array([max(corners)])
    form = cheapest_form(np.array([mul], np.int32), np.array([add]), shift, low, high, None if even < 0 else even, *ends)
    return None if form.form == "wide" else form


def float_reference(node: Node, x: Array, cos: Array, sin: Array) -> Array:
    """x * cos + (-second half, first half) * sin in float32."""
    first, second = halves(node, x)
    turned = join_halves(node, -second, first)
    return np.asarray(x * cos + turned * sin, np.float32)


def _draw_node(rng: Random) -> Sample:
    *outer, row = draw_shape(rng)
    x = (*outer, 2 * row)
    angles = (*broadcast(rng, x)[:-1], x[-1])
    return Sample({"x": x, "cosine": angles, "sine": angles}, {"interleaved": rng.choice(FLAG)})


def _draw_table(rng: Random) -> Sample:
    drawn = _draw_node(rng)
    attrs = {
        name: (rng.randint(-5, 5), rng.randint(-5, 5), rng.randint(1, 4000), half, 12, -128, 127, rng.choice((-1, 0, 1)))
        for name, half in (("cosine", 1 << 11), ("sine", 0))
    }
    total = (1 << 10, rng.randint(100, 1000), 1 << 9, 11, *rng.choice(LIMITS), rng.choice((-1, 0, 1)))
    return Sample(drawn.shapes, {**drawn.attrs, **attrs, "sum": total}, {"table": integers(0, 127, np.int8, np.uint8)(rng, (2, 256))})


def _bound_sums(node: Node) -> dict[str, tuple[Range, Range]]:
    """Both products in 32 bits, scaled and added up in 64."""
    x, cosine, sine, table = node.operands
    steps = dict[str, tuple[Range, Range]]()
    for name, a, b in (("cosine", x, cosine), ("sine", table, sine)):
        a_zero, b_zero, mul, add, shift, *_ = node.attrs[name]
        (least,), (most,) = products(values(a, a_zero), values(b, b_zero))
        reached = int(least), int(most)
        steps[f"products with {name}"] = held(*reached)
        steps[f"scaled by {name}"] = held(*span(scale(mul, reached), (add, add)), 64)
        steps[f"shift of {name}"] = (shift, shift), (0, 62)
    mul_a, mul_b, add, shift, low, high, _ = node.attrs["sum"]
    terms = scale(mul_a, node.attrs["cosine"][5:7]), scale(mul_b, node.attrs["sine"][5:7])
    return {**steps, "total": held(*span(*terms, (add, add)), 64), "shift": ((shift, shift), (0, 62)), "result": held(low, high)}


_USUAL = Row(requires=state_requirement, strided=dict.fromkeys((*_OPERANDS, "y"), 0), overwrites=(("y", "x"),))
ROTATE = Operator(
    "Rotate",
    (*_OPERANDS, "table?"),
    nest,
    float_reference,
    {**_USUAL, "types": {**dict.fromkeys((*_OPERANDS, "y"), FLOAT), "table": frozenset()}},
    draw=_draw_node,
)
TABLE_ROTATE = Operator(  # the same of quantised values
    "Rotate",
    (*_OPERANDS, "table"),
    nest,
    reference,
    {**_USUAL, "types": dict.fromkeys((*_OPERANDS, "table", "y"), BYTES), "constants": ("table",)},
    integers=_bound_sums,
    draw=_draw_table,
)
