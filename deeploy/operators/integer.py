"""Integer functions of one and two operands with int32 results (docs/integer-form.md)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from deeploy.ir.epilogue import clip_shifted
from deeploy.ir.kernel import DIVIDES, INTEGERS, Range, Sample, types
from deeploy.ir.nodes import Attributes, Node
from deeploy.ir.types import Array, DType
from deeploy.operators.accumulate import Ends, ends, held, values
from deeploy.operators.draws import integers, requantisation, sample
from deeploy.operators.elementwise import AB, SUMMED, fits_loops, pointwise, usual, wide
from deeploy.operators.fractions import logistic, tangent
from deeploy.operators.staircase import operand_results


def gelu(x: Array, a: int, b: int) -> Array:
    """x * ((b + sign(x) * (b - (min(|x|, -a) + a)^2)) >> 1) of int64 values."""
    q = np.minimum(np.abs(x), -a) + a
    return np.asarray(x * ((b + np.sign(x) * (b - q * q)) >> 1))


def hard_swish(x: Array, a: int, b: int, c: int) -> Array:
    """x * clip(x + a, 0, b) * c of int64 values."""
    return np.asarray(x * (np.clip(x + a, 0, b) * c))


def function_reference(node: Node, x: Array) -> Array:
    """``function`` with a, b and c in int32, modulo 2^32.

    gelu: x * ((b + sign(x) * (b - (min(abs x, -a) + a)^2)) >> 1); hard_swish: x * clip(x + a, 0, b) * c; logistic, tanh: of 16 bits, a of
    them in front of the point, with 15 bits behind it (``deeploy.operators.fractions``).
    """
    with np.errstate(over="ignore"):
        return _FUNCTIONS[node.attrs["function"]](wide(x), *(node.attrs[name] for name in "abc")).astype(np.int32)


_FUNCTIONS: dict[str, Callable[[Array, int, int, int], Array]] = {
    "gelu": lambda x, a, b, c: gelu(x, a, b),
    "hard_swish": hard_swish,
    "logistic": lambda x, a, b, c: logistic(x, a, 15),
    "tanh": lambda x, a, b, c: tangent(x, a, 15),
}


def div_reference(node: Node, a: Array, b: Array) -> Array:
    """n = a*factor, d = b*scale + offset; (n + sgn(n)*(d >> 1)) / d towards zero, sgn(0) = 1; 0 where d = 0; modulo 2^32."""
    n, d = wide(a) * node.attrs["factor"], wide(b) * node.attrs["scale"] + node.attrs["offset"]
    top = n + np.where(n < 0, -1, 1) * (d >> 1)
    divisor = np.where(d == 0, 1, d)
    quotient = np.sign(top) * np.sign(divisor) * (np.abs(top) // np.abs(divisor))
    return np.where(d == 0, 0, quotient).astype(np.int32)


def requant_add_reference(node: Node, a: Array, b: Array) -> Array:
    """The sum of both operands, each clip((x*mul + add) >> shift, low, high) with parameters of its own (mul_a ... high_b)."""
    attrs, operands = node.attrs, {"_a": a, "_b": b}
    return np.asarray(sum(clip_shifted(attrs, wide(x) * attrs[f"mul{side}"] + attrs[f"add{side}"], side) for side, x in operands.items()))


def requant_add_is_wide(node: Node) -> bool:
    """Whether a product and its summand need more than 32 bits."""
    for name, tensor in zip("ab", node.operands, strict=False):
        low, high = tensor.dtype.range
        if max(-low, high) * abs(node.attrs[f"mul_{name}"]) + abs(node.attrs[f"add_{name}"]) >= 2**31:
            return True
    return False


def _bound_accumulators(node: Node) -> Ends:
    """The sum of both operands' ends, each behind its limits."""
    attrs, least, most = node.attrs, 0, 0
    for index, name in enumerate("ab"):
        interval = sorted(min(max(end, attrs[f"low_{name}"]), attrs[f"high_{name}"]) for end in operand_results(node, index))
        least, most = least + interval[0], most + interval[1]
    return ends(least, most)


def _bound_function(node: Node) -> dict[str, tuple[Range, Range]]:
    """What a function leaves; what it computes on the way has 64 bits, or is less than 32 bits wide for words of 16."""
    a, b, c = (int(node.attrs[name]) for name in "abc")
    function, far = node.attrs["function"], max(map(abs, values(node.inputs[0])))
    if function in FRACTIONS:
        return {"result": held(-(1 << 15), (1 << 15) - 1)}
    most = far * (2 * abs(b) + a * a + 1 >> 1) if function == "gelu" else far * abs(b) * abs(c)
    return {"square": held(0, a * a, 64), "result": held(-most, most)} if function == "gelu" else {"result": held(-most, most)}


def _quotients(node: Node) -> dict[str, tuple[Range, Range]]:
    attrs = node.attrs
    a, b = (max(map(abs, values(t))) for t in node.operands)
    most = a * abs(attrs["factor"]) + (b * abs(attrs["scale"]) + abs(attrs["offset"]) + 1 >> 1)
    divisor = b * abs(attrs["scale"]) + abs(attrs["offset"])
    return {"numerators": held(-most, most, 64), "divisors": held(-divisor, divisor, 64)}


def _draw_function(rng: Random) -> Sample:
    function = rng.choice(("gelu", "hard_swish", *FRACTIONS))
    if function in FRACTIONS:
        words = sample("x[*s]", function=(function,), a=range(7), b=(0,), c=(0,), x=integers(-(2**15), 2**15 - 1, np.int16))
        return words(rng)
    if function == "gelu":
        return sample("x[*s]", function=(function,), a=range(-120, -19), b=range(1000, 9001), c=(0,))(rng)
    return sample("x[*s]", function=(function,), a=range(201), b=range(301), c=range(1, 61))(rng)


def _draw_requantisations(rng: Random) -> Attributes:
    return {f"{name}_{side}": value for side in "ab" for name, value in requantisation(rng, 0, 7, 12, 20).items()}


_POWERS = "Where it is a logistic function or a hyperbolic tangent, it multiplies by a power for some values."
FRACTIONS = ("logistic", "tanh")  # functions of words of 16 bits


def _takes_function(node: Node) -> str | None:
    wanted, y = (DType.INT16 if node.attrs["function"] in FRACTIONS else None), node.outputs[0].dtype
    if wanted is None:
        return fits_loops(node) if y is DType.INT32 else "y of type s32"
    return fits_loops(node) if node.operands[0].dtype is wanted else "x of type s16"


FUNCTION = pointwise(
    "IntegerFunction",
    ("x",),
    function_reference,
    usual("x", over=("x",), types={"x": INTEGERS, "y": types("s16", "s32")}, requires=_takes_function, data_dependent=_POWERS),
    _draw_function,
    integers=_bound_function,
)
DIV = pointwise(
    "IntegerDiv",
    AB,
    div_reference,
    usual(*AB, over=AB, types={"a": INTEGERS, "b": INTEGERS, "y": types("s32")}, data_dependent=DIVIDES),
    sample("a[~s] b[~s]", factor=range(1, 5000), scale=(1, 17, -3), offset=range(-300, 300)),
    integers=_quotients,
)
REQUANT_ADD = pointwise(
    "RequantAdd", AB, requant_add_reference, SUMMED, sample("a[~s] b[~s]", _draw_requantisations), bounds=_bound_accumulators
)
