"""Rotary embedding (docs/integer-form.md): the halves of a row as the two coordinates of points, turned by angles.

y = x * cos + turned * sin, where turned is (-second half, first half); pairs that are interleaved lie side by side instead.
Every element needs another one of its row, so that a row is never cut; cosines and sines broadcast over heads.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from deeploy.graph.epilogue import shifted
from deeploy.graph.kernel import BYTES, FLOAT, Operator, Row
from deeploy.graph.nest import Map, Nest, coupled, parallel
from deeploy.graph.nodes import Node
from deeploy.graph.types import Array
from deeploy.operators import scaled
from deeploy.operators.staircase import WORD, Requantisation, cheapest


def nest(node: Node) -> Nest:
    """Rows of ``x`` are independent; ``cosine`` and ``sine`` are aligned to the right of its axes."""
    x = node.operands[0]
    dims = (*parallel(*(f"d{axis}" for axis in range(len(x.shape) - 1))), *coupled("c"))
    reads = {"x": Map(*dims)}
    for name, tensor in zip(("cosine", "sine"), node.inputs[1:3], strict=True):
        assert tensor is not None
        reads[name] = Map(*dims[len(dims) - len(tensor.shape) :])
    return Nest(reads=reads, writes={"y": Map(*dims)})


def accepts(node: Node) -> str | None:
    """Rows of pairs, and tables of rank at most that of ``x``."""
    x = node.inputs[0]
    if x is None or not x.shape or x.shape[-1] % 2:
        return "rows of an even length"
    same = x.shape == node.outputs[0].shape and all(t is not None and len(t.shape) <= len(x.shape) for t in node.inputs[1:3])
    return None if same and len(x.shape) <= 6 else "cosines and sines that broadcast over x, at most 6 axes"


def product(a: Array, b: Array, constants: tuple[int, ...]) -> Array:
    """clip(((a - za)*(b - zb)*mul + add) >> shift, low, high); ``constants``: za, zb, mul, add, shift, low, high, even or -1."""
    a_zero, b_zero, mul, add, shift, low, high, even = constants
    wide = (a.astype(np.int64) - a_zero) * (b.astype(np.int64) - b_zero) * mul + add
    return np.asarray(np.clip(shifted(wide, shift, None if even < 0 else even), low, high))


def halves(node: Node, x: Array) -> tuple[Array, Array]:
    """The first and the second elements of all pairs."""
    half = x.shape[-1] // 2
    return (x[..., ::2], x[..., 1::2]) if node.attrs.get("interleaved") else (x[..., :half], x[..., half:])


def joined(node: Node, first: Array, second: Array) -> Array:
    """Rows of these pairs."""
    both = np.stack([first, second], axis=-1 if node.attrs.get("interleaved") else -2)
    return both.reshape(*first.shape[:-1], 2 * first.shape[-1])


def reference(node: Node, x: Array, cos: Array, sin: Array, table: Array) -> Array:
    """Both products requantised on their own, then clip((c*mul_a + s*mul_b + add) >> shift, low, high).

    ``table`` [2,256] gives the turned element for one of the second half (row 0) and of the first half (row 1).
    """
    first, second = halves(node, x.astype(np.int64) - np.iinfo(x.dtype).min)
    turned = joined(node, table[0][second], table[1][first])
    mul_a, mul_b, add, shift, low, high, even = node.attrs["sum"]
    c, s = product(x, cos, node.attrs["cosine"]), product(turned, sin, node.attrs["sine"])
    return np.asarray(np.clip(shifted(c * mul_a + s * mul_b + add, shift, None if even < 0 else even), low, high))


@lru_cache(maxsize=256)
def in_words(node: Node) -> tuple[Requantisation, Requantisation, scaled.Sum] | None:
    """The products with cosines and with sines, and their sum, in forms of 32 bits with the same results; None where one has none."""
    x, cosine, sine, table = node.operands
    by_cosine = _product_in_words(x.dtype.range, cosine.dtype.range, node.attrs["cosine"])
    by_sine = _product_in_words(table.dtype.range, sine.dtype.range, node.attrs["sine"])
    parts = [node.attrs[name][5:7] for name in ("cosine", "sine")]
    mul_a, mul_b, add, shift, low, high, even = node.attrs["sum"]
    if by_cosine is None or by_sine is None or any(least < -256 or most > 255 for least, most in parts):
        return None
    constants = (("mul_a", mul_a), ("mul_b", mul_b), ("add", add), ("shift", shift), ("low", low), ("high", high))
    found = scaled.cheapest(parts[0], parts[1], (*constants, ("even", None if even < 0 else even)))
    return None if found is None else (by_cosine, by_sine, found)


def _product_in_words(a_range: tuple[float, float], b_range: tuple[float, float], constants: tuple[int, ...]) -> Requantisation | None:
    """The requantisation of a product of values in these ranges, constants as those of ``product``."""
    a_zero, b_zero, mul, add, shift, low, high, even = constants
    if not abs(mul) < WORD or abs(add) >= 2**62:
        return None
    corners = [(int(a) - a_zero) * (int(b) - b_zero) for a in a_range for b in b_range]
    ends = np.array([min(corners)]), np.array([max(corners)])
    found = cheapest(np.array([mul], np.int32), np.array([add]), shift, low, high, None if even < 0 else even, *ends)
    return None if found.form == "wide" else found


def float_reference(node: Node, x: Array, cos: Array, sin: Array) -> Array:
    """x * cos + (-second half, first half) * sin in float32."""
    first, second = halves(node, x)
    turned = joined(node, -second, first)
    return np.asarray(x * cos + turned * sin, np.float32)


_OPERANDS = ("x", "cosine", "sine")
_USUAL = Row(accepts=accepts, strided=dict.fromkeys((*_OPERANDS, "y"), 0), overwrites=(("y", "x"),))
ROTATE = Operator(
    "Rotate",
    (*_OPERANDS, "table?"),
    nest,
    float_reference,
    {**_USUAL, "types": {**dict.fromkeys((*_OPERANDS, "y"), FLOAT), "table": frozenset()}},
)
TABLE_ROTATE = Operator(  # the same of quantised values
    "Rotate",
    (*_OPERANDS, "table"),
    nest,
    reference,
    {**_USUAL, "types": dict.fromkeys((*_OPERANDS, "table", "y"), BYTES), "constants": ("table",)},
)
