"""Functions of two tensors of one type, and the choice between them (docs/integer-form.md)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from deeploy.ir.kernel import ANY, Sample, types
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array, DType
from deeploy.operators.accumulate import exclude_overflow
from deeploy.operators.draws import floats, sample
from deeploy.operators.elementwise import AB, fits_loops, pointwise, usual


def _truncate_quotient(a: Array, b: Array) -> Array:
    """Towards zero; 0 for a divisor of 0."""
    safe = np.where(b == 0, 1, b)
    whole = a // safe
    return np.where(b == 0, 0, whole + ((whole < 0) & (whole * safe != a)))


def _split_shifts(a: Array, b: Array) -> tuple[Array, Array]:
    """Which shifts are by less than the bits of a type, and by how many places."""
    bits = 8 * a.dtype.itemsize
    within = (b >= 0) & (b < bits)
    return within, np.where(within, b, 0).astype(a.dtype)


def _shift_left(a: Array, b: Array) -> Array:
    """Bits that leave the type are lost."""
    within, places = _split_shifts(a, b)
    return np.where(within, np.left_shift(a, places), 0)


def _shift_right(a: Array, b: Array) -> Array:
    """Signs fill what becomes free."""
    within, places = _split_shifts(a, b)
    return np.where(within, np.right_shift(a, places), np.where(a < 0, -1, 0))


def _floor_modulo(a: Array, b: Array) -> Array:
    """With the sign of the divisor; integers: 0 for a divisor of 0."""
    if a.dtype.kind == "f":
        rest = np.fmod(a, b)
        return np.asarray(np.where(rest == 0, np.copysign(0, b), np.where((rest < 0) != (b < 0), rest + b, rest)))
    return np.asarray(np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))))


def _truncate_remainder(a: Array, b: Array) -> Array:
    """With the sign of the dividend; integers: 0 for a divisor of 0."""
    return np.asarray(np.fmod(a, b) if a.dtype.kind == "f" else np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b))))


FUNCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "max": np.maximum,
    "min": np.minimum,
    "pow": lambda a, b: np.power(a.astype(np.float64), b),
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_or_equal": np.less_equal,
    "greater": np.greater,
    "greater_or_equal": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _truncate_quotient,
    "mod": _floor_modulo,
    "fmod": _truncate_remainder,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
}
ARITHMETIC = ("add", "sub", "mul")  # of int64, which no accumulator holds
INTEGER = ("div", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right")
COMPARISONS = ("equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal", "and", "or")


def reference(node: Node, a: Array, b: Array) -> Array:
    """``function`` of a and b of one type, by name, in the type of the output; no epilogue.

    max, min, pow (float), equal, not_equal, less, less_or_equal, greater, greater_or_equal, and, or (bool results), mod (sign of the
    divisor), fmod (sign of the dividend); of integers div (towards zero), bit_and, bit_or, bit_xor, shift_left, shift_right (signs fill);
    of int64 add, sub, mul. A divisor of 0 gives 0 for integers.
    """
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[node.attrs["function"]](a, b)).astype(node.outputs[0].dtype.numpy)


def select_reference(node: Node, condition: Array, a: Array, b: Array) -> Array:
    """a where the condition holds, else b."""
    return np.where(condition, a, b)


def expand_reference(node: Node, x: Array) -> Array:
    """x repeated along its axes of extent 1, up to the shape of the output."""
    return np.broadcast_to(x, node.outputs[0].shape)


def _declare_pairwise(node: Node) -> str | None:
    """Both operands of one type, which is also the result's unless the function compares."""
    (a, b), y, function = node.inputs[:2], node.outputs[0], node.attrs["function"]
    if function not in FUNCTIONS or a is None or b is None or a.dtype is not b.dtype:
        return "a known function of two operands of one type"
    if y.dtype is not (DType.BOOL if function in COMPARISONS else a.dtype):
        return "y of type bool" if function in COMPARISONS else "y of the type of a"
    if (function in ARITHMETIC and a.dtype is not DType.INT64) or (function == "pow" and not a.dtype.is_float):
        return f"operands of type {'s64' if function != 'pow' else 'f32'}"
    if function in INTEGER and (a.dtype.is_float or a.dtype is DType.BOOL):
        return "operands of an integer type"
    return fits_loops(node)


def _select_function(node: Node) -> str | None:
    same = len({t.dtype for t in (*node.inputs[1:3], *node.outputs) if t is not None}) == 1
    return fits_loops(node) if same else "operands of one type"


def _draw_pair(rng: Random) -> Sample:
    function = rng.choice(sorted(FUNCTIONS))
    arrays = {"a": floats(0.1, 3), "b": floats(-2, 2)} if function == "pow" else {}
    return sample("a[~s] b[~s]", function=(function,), **arrays)(rng)


_ALL = ("condition", *AB)
_ANY = dict.fromkeys((*AB, "y"), ANY)
PAIRWISE = pointwise(
    "Binary",
    AB,
    reference,
    {
        **usual(*AB, over=AB, types=_ANY, requires=_declare_pairwise),
        "data_dependent": "Where its function divides, it takes longer for some values.",
    },
    _draw_pair,
    integers=exclude_overflow,
    calls_library=lambda node: node.attrs["function"] == "pow",
)
SELECT = pointwise(
    "Where",
    _ALL,
    select_reference,
    {
        **usual(*_ALL, over=AB, types={"condition": types("bool"), **_ANY}, requires=_select_function),
        "data_dependent": "A row with one condition is a copy of what is chosen, which takes less time where that lies densely.",
    },
    sample("a[~s] b[~s] condition[~s]"),
    integers=exclude_overflow,
)
EXPAND = pointwise(
    "Expand", ("x",), expand_reference, usual("x", types={"x": ANY, "y": ANY}), sample("x[~s] y[*s]"), integers=exclude_overflow
)
