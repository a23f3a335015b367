"""Integer functions of one and two operands with int32 results (docs/integer-form.md)."""

from __future__ import annotations

import numpy as np

from deeploy.graph.epilogue import requantise
from deeploy.graph.kernel import INTEGERS, Operator, types
from deeploy.graph.nodes import Node
from deeploy.graph.types import Array
from deeploy.operators.accumulate import SUM_STAGES, Ends, ends
from deeploy.operators.elementwise import nest, usual
from deeploy.operators.staircase import operand_results


def gelu(x: Array, a: int, b: int) -> Array:
    """x * ((b + sign(x) * (b - (min(|x|, -a) + a)^2)) >> 1) of int64 values."""
    q = np.minimum(np.abs(x), -a) + a
    return np.asarray(x * ((b + np.sign(x) * (b - q * q)) >> 1))


def hard_swish(x: Array, a: int, b: int, c: int) -> Array:
    """x * clip(x + a, 0, b) * c of int64 values."""
    return np.asarray(x * (np.clip(x + a, 0, b) * c))


def function_reference(node: Node, x: Array) -> Array:
    """The function that ``node`` names, modulo 2^32."""
    attrs, wide = node.attrs, x.astype(np.int64)
    with np.errstate(over="ignore"):
        value = gelu(wide, attrs["a"], attrs["b"]) if attrs["function"] == "gelu" else hard_swish(wide, attrs["a"], attrs["b"], attrs["c"])
    return value.astype(np.int32)


def div_reference(node: Node, a: Array, b: Array) -> Array:
    """n = a*factor, d = b*scale + offset; (n + sgn(n)*(d >> 1)) / d towards zero, sgn(0) = 1; 0 where d = 0; modulo 2^32."""
    n = a.astype(np.int64) * node.attrs["factor"]
    d = b.astype(np.int64) * node.attrs["scale"] + node.attrs["offset"]
    top = n + np.where(n < 0, -1, 1) * (d >> 1)
    divisor = np.where(d == 0, 1, d)
    quotient = np.sign(top) * np.sign(divisor) * (np.abs(top) // np.abs(divisor))
    return np.where(d == 0, 0, quotient).astype(np.int32)


def requant_add_reference(node: Node, a: Array, b: Array) -> Array:
    """The sum of both operands, each clip((x*mul + add) >> shift, low, high) with parameters of its own."""
    attrs = node.attrs
    parts = []
    for name, x in (("a", a), ("b", b)):
        mul, add = np.asarray(attrs[f"mul_{name}"]), np.asarray(attrs[f"add_{name}"])
        parts.append(requantise(x, mul, add, attrs[f"shift_{name}"], attrs[f"low_{name}"], attrs[f"high_{name}"]))
    return np.asarray(parts[0] + parts[1])


def requant_add_is_wide(node: Node) -> bool:
    """Whether a product and its summand need more than 32 bits."""
    for name, tensor in zip("ab", node.inputs[:2], strict=True):
        assert tensor is not None
        low, high = tensor.dtype.range
        if max(-low, high) * abs(node.attrs[f"mul_{name}"]) + abs(node.attrs[f"add_{name}"]) >= 2**31:
            return True
    return False


def _bounds(node: Node) -> Ends:
    """The sum of both operands' ends, each behind its limits."""
    attrs, least, most = node.attrs, 0, 0
    for index, name in enumerate("ab"):
        found = sorted(min(max(end, attrs[f"low_{name}"]), attrs[f"high_{name}"]) for end in operand_results(node, index))
        least, most = least + found[0], most + found[1]
    return ends(least, most)


_AB = ("a", "b")
FUNCTION = Operator(
    "IntegerFunction", ("x",), nest("x"), function_reference, usual("x", over=("x",), types={"x": INTEGERS, "y": types("s32")})
)
DIV = Operator("IntegerDiv", _AB, nest(*_AB), div_reference, usual(*_AB, over=_AB, types={"a": INTEGERS, "b": INTEGERS, "y": types("s32")}))
REQUANT_ADD = Operator(
    "RequantAdd",
    _AB,
    nest(*_AB),
    requant_add_reference,
    usual(
        *_AB,
        over=_AB,
        types={"a": INTEGERS, "b": INTEGERS, "y": types("s8", "u8", "s32")},
        epilogues=SUM_STAGES,
        strided={"a": 0, "b": 0, "y": 1},
    ),
    bounds=_bounds,
)
