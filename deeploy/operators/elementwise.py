"""Operators that work element by element with NumPy broadcasting (docs/integer-form.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Unpack

import numpy as np

from deeploy.ir.epilogue import clip_shifted
from deeploy.ir.expr import Dim
from deeploy.ir.kernel import ANY, BYTES, DIVIDES, FLOAT, INTEGERS, Draw, Operator, Range, Reference, Row, Sample, types
from deeploy.ir.nest import Map, Nest, parallel
from deeploy.ir.nodes import Attributes, Node
from deeploy.ir.types import Array, DType
from deeploy.operators import exponentials
from deeploy.operators.accumulate import SUM_STAGES, Ends, ends, exclude_overflow, held, keeps_type, products, scale, span, values
from deeploy.operators.draws import ZERO_POINTS, factors, floats, integers, limits, parity, requantisation, sample
from deeploy.operators.scaled import RESIDUAL

AXES = 6  # that the C loops have


def nest(*operands: str) -> Callable[[Node], Nest]:
    """The nest of an elementwise operator: inputs named ``operands``, aligned to the right of the output's axes."""

    def declare(node: Node) -> Nest:
        dims: tuple[Dim, ...] = parallel(*(f"d{axis}" for axis in range(_output_rank(node))))
        reads = {}
        for name, tensor in zip(operands, node.inputs, strict=False):
            if tensor is not None:
                own = min(len(dims), len(tensor.shape))  # more axes than the output's are of extent 1: a constant for a scalar
                reads[name] = Map(*[0] * (len(tensor.shape) - own), *dims[len(dims) - own :])
        return Nest(reads=reads, writes={"y": Map(*dims)})

    return declare


def _output_rank(node: Node) -> int:
    """The output's rank; where there is none yet, that of the operand with most axes."""
    return max(len(tensor.shape) for tensor in (node.outputs or node.inputs) if tensor is not None)


def loops(extent: Sequence[Any], keep_last: bool = False, most: int = AXES, **views: Any) -> str:
    """C initialisers of an elementwise loop: ``.extent``, and ``.NAME_step`` for each operand, collapsed to few axes.

    Neighbouring axes become one where every operand steps through them as through one, and axes of extent 1 vanish; ``keep_last`` keeps
    the last axis apart, since epilogue operands are indexed by it. Where the last axis that is left would step through an operand whose
    last axis the kernel takes for packed, one of extent 1 follows it. The loop has ``most`` axes.
    """
    rank = len(extent)
    steps = {name: _operand_steps(view, extent) for name, view in views.items()}
    axes: list[tuple[int, list[int]]] = []
    for axis in range(rank):
        size, here = extent[axis], [s[axis] for s in steps.values()]
        if size == 1 and not (keep_last and axis == rank - 1):
            continue
        last = keep_last and axis == rank - 1
        if axes and not last and all(outer == inner * size for outer, inner in zip(axes[-1][1], here, strict=True)):
            axes[-1] = (axes[-1][0] * size, here)
        else:
            axes.append((size, here))
    packed = [i for i, view in enumerate(views.values()) if view.dense > 0]
    if axes and any(axes[-1][1][i] not in (0, 1) for i in packed) and axes[-1][0] != 1:
        axes.append((1, [0] * len(steps)))
    if len(axes) > most:
        raise ValueError(f"more than {most} axes")
    axes = [(1, [0] * len(steps))] * (most - len(axes)) + axes
    parts = [f".extent = {_in_braces(size for size, _ in axes)}"]
    parts += [f".{name}_step = {_in_braces(here[i] for _, here in axes)}" for i, name in enumerate(steps)]
    return ", ".join(parts)


def _operand_steps(view: Any, extent: Sequence[int]) -> list[int]:
    """Strides over the loops, aligned to the right: 0 where the operand is broadcast along an axis, or has none."""
    rank, own = len(extent), min(len(extent), len(view.stride))
    first = len(view.stride) - own
    axes = zip(view.shape[first:], extent[rank - own :], view.stride[first:], strict=True)
    return [0] * (rank - own) + [0 if size == 1 and loop != 1 else stride for size, loop, stride in axes]


def _in_braces(values: Any) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def fits_loops(node: Node) -> str | None:
    """Whether the rank is within what the C loops take."""
    return None if _output_rank(node) <= AXES else f"at most {AXES} axes"


def wide(x: Array) -> Array:
    """Integers in 64 bits; floats as they are."""
    return x if x.dtype.kind == "f" else x.astype(np.int64)


def add_reference(node: Node, a: Array, b: Array) -> Array:
    """a + b."""
    return np.asarray(wide(a) + wide(b))


def subtract_reference(node: Node, a: Array, b: Array) -> Array:
    """a - b."""
    return np.asarray(wide(a) - wide(b))


def mul_reference(node: Node, a: Array, b: Array) -> Array:
    """(a - a_zero_point) * (b - b_zero_point); floats: a * b."""
    is_float = a.dtype.kind == "f"
    return np.asarray(a * b if is_float else (wide(a) - node.attrs["a_zero_point"]) * (wide(b) - node.attrs["b_zero_point"]))


def div_reference(node: Node, a: Array, b: Array) -> Array:
    """a / b, of floats."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(a / b, np.float32)


def scaled_add_reference(node: Node, a: Array, b: Array) -> Array:
    """clip((a*mul_a + b*mul_b + add) >> shift, low, high) in 64 bits; a, b 8 bit; no epilogue."""
    attrs = node.attrs
    return clip_shifted(attrs, wide(a) * attrs["mul_a"] + wide(b) * attrs["mul_b"] + attrs["add"])


def scaled_div_reference(node: Node, a: Array, b: Array) -> Array:
    """n = (a - za)*mul, d = (b - zb) << shift; floor((2n + d) / 2d) + zero_point with d made positive, clipped.

    Where d is 0, it is high for n above 0, else low, as what is no number is quantised. a, b 8 bit, 64 bits wide; low, high; no epilogue.
    """
    attrs = node.attrs
    n, d = (wide(a) - attrs["a_zero_point"]) * attrs["mul"], (wide(b) - attrs["b_zero_point"]) << attrs["shift"]
    n, d = np.where(d < 0, -n, n), np.abs(d)
    quotient = (2 * n + d) // (2 * np.maximum(d, 1)) + attrs["zero_point"]
    edge = np.where(n > 0, attrs["high"], attrs["low"])
    return np.asarray(np.clip(np.where(d == 0, edge, quotient), attrs["low"], attrs["high"]))


def requant_reference(node: Node, x: Array, mul: Array, add: Array) -> Array:
    """clip((x*mul + add) >> shift, low, high); mul and add broadcast as NumPy does.

    x int, mul int32, add int32 or int64; rounding is in ``add``.
    """
    return clip_shifted(node.attrs, wide(x) * wide(mul) + wide(add))


def lookup_reference(node: Node, x: Array, table: Array) -> Array:
    """table[x - smallest value of x's type]; x 8 bit, table[256] of the type of the result."""
    return np.asarray(table[wide(x) - np.iinfo(x.dtype).min])


def clip_reference(node: Node, x: Array) -> Array:
    """clip(x, low, high); a limit that is None is none."""
    return np.asarray(np.clip(x, *(bound(node.attrs[name], x.dtype) for name in ("low", "high"))))


def bound(value: float | None, dtype: np.dtype[Any]) -> Any:
    """A limit of a Clip in the operand's type; limits beyond the type's range limit nothing."""
    if value is None:
        return None
    if dtype.kind == "f":
        return np.float32(value)
    info = np.iinfo(dtype)
    return dtype.type(min(max(int(value), info.min), info.max))


def cast_reference(node: Node, x: Array) -> Array:
    """The value, converted to the output's type; floats are truncated to integers. A view that must be materialised is a Copy."""
    return x.astype(node.outputs[0].dtype.numpy)


def quantize_reference(node: Node, x: Array, scale: Array, zero_point: Array) -> Array:
    """clip(round_half_even(x / scale) + zero_point, low, high) in float32; NaN gives low."""
    low, high = np.float32(node.attrs["low"]) - zero_point, np.float32(node.attrs["high"]) - zero_point
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        steps = np.rint(x / scale)
    limited = np.where(steps > high, high, np.where(steps >= low, steps, low))
    return np.asarray(limited.astype(np.int64) + zero_point)


def dequantize_reference(node: Node, x: Array, scale: Array, zero_point: Array) -> Array:
    """float32(x - zero_point) * scale."""
    return np.asarray((wide(x) - zero_point).astype(np.float32) * scale)


Function = Callable[[Array, float, float], Array]  # of x, alpha and beta


def rounded(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of the C library: in float64, rounded to the type of its argument; a library's own may differ in the last bit."""
    return lambda x: np.asarray(function(x.astype(np.float64)), x.dtype)


_NUMPY = {name: name for name in ("abs", "floor", "ceil", "sign", "sqrt")} | {"neg": "negative", "round": "rint"}
_LIBRARY = {name: name for name in ("sin", "cos", "tan", "sinh", "cosh")}
_LIBRARY |= {name: f"arc{name[1:]}" for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")}


def _of_x(function: Callable[[Array], Array]) -> Function:
    return lambda x, a, b: function(x)


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + exponentials.log1p(exponentials.exp(-np.abs(x))))


def _less_one(x: Array, a: float) -> Array:
    return np.asarray(a * exponentials.expm1(np.minimum(x, 0)))


# Operation by operation as functions.h has them, in the type of x; first those that call nothing of the C library but square roots.
_EXACT: dict[str, Function] = {
    **{name: _of_x(getattr(np, own)) for name, own in _NUMPY.items()},
    **{name: _of_x(getattr(exponentials, name)) for name in ("exp", "log", "tanh", "erf")},
    "leaky_relu": lambda x, a, b: np.where(x < 0, a * x, x),
    "affine": lambda x, a, b: a * x + b,
    "hard_swish": lambda x, a, b: x * np.clip(x / 6 + 0.5, 0, 1),
    "hard_sigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "thresholded_relu": lambda x, a, b: np.where(x > a, x, 0),
    "shrink": lambda x, a, b: np.where(x < -a, x + b, np.where(x > a, x - b, 0)),
    "reciprocal": lambda x, a, b: 1 / x,
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "sigmoid": lambda x, a, b: 1 / (1 + exponentials.exp(-x)),
    "scaled_tanh": lambda x, a, b: a * exponentials.tanh(b * x),
    "elu": lambda x, a, b: np.where(x < 0, _less_one(x, a), x),
    "selu": lambda x, a, b: b * np.where(x < 0, _less_one(x, a), x),
    "celu": lambda x, a, b: np.where(x < 0, _less_one(x / a, a), x),
    "softplus": lambda x, a, b: _softplus(x),
    "gelu": lambda x, a, b: x * 0.5 * (1 + exponentials.erf(x * math.sqrt(0.5))),
    "gelu_tanh": lambda x, a, b: x * 0.5 * (1 + exponentials.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
    "silu": lambda x, a, b: x / (1 + exponentials.exp(-a * x)),
    "mish": lambda x, a, b: x * exponentials.tanh(_softplus(x)),
}
FUNCTIONS: dict[str, Function] = {
    **_EXACT,
    **{name: _of_x(rounded(getattr(np, own))) for name, own in _LIBRARY.items()},
    # Of a scalar exponent NumPy takes a root, which -inf does not have.
    "pow": lambda x, a, b: np.asarray(np.power(x.astype(np.float64), np.full(x.shape, a)), x.dtype),
}


def is_exact(function: str) -> bool:
    """Whether the C of a function of one float is of operations of IEEE 754 alone."""
    return function in _EXACT


def apply_function(name: str, x: Array, alpha: float, beta: float) -> Array:
    """A function of floats as C computes it: operation by operation in float32, functions of the C library rounded once."""
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[name](x.astype(np.float32), float(np.float32(alpha)), float(np.float32(beta))), np.float32)


def unary_reference(node: Node, x: Array) -> Array:
    """``function`` of every float, by name, with alpha and beta (``apply_function``).

    leaky_relu, sigmoid, tanh, hard_swish, hard_sigmoid, elu, exp, log, sqrt, erf, abs, neg, reciprocal, softplus, gelu, gelu_tanh, silu (x
    * sigmoid(alpha*x)), mish, pow (x^alpha), floor, ceil, round, selu, softsign, sin, cos.
    """
    return apply_function(node.attrs["function"], x, node.attrs["alpha"], node.attrs["beta"])


def usual(*operands: str, over: tuple[str, ...] = (), **row: Unpack[Row]) -> Row:
    """A row of a kernel that steps through ``operands`` and y with any strides; y may take the place of inputs named ``over``."""
    given = Row(requires=fits_loops, strided=dict.fromkeys((*operands, "y"), 0), overwrites=tuple(("y", name) for name in over))
    return {**given, **row}


def converted(node: Node) -> str | None:
    """Types between which C converts as ONNX does: to bool, it keeps the low bits."""
    x, y = node.inputs[0], node.outputs[0]
    if x is not None and y.dtype is DType.BOOL and x.dtype is not DType.BOOL:
        return "y of another type than bool, or x of type bool"
    return fits_loops(node)


def _added_offset(node: Node) -> Ends:
    (least, most), (low, high) = values(node.inputs[0]), values(node.inputs[1])
    return ends(least + low, most + high)


def _multiplied_factor(node: Node) -> Ends:
    a, b = (values(tensor, int(node.attrs[f"{name}_zero_point"])) for name, tensor in zip("ab", node.inputs, strict=False))
    return products(a, b)


def _bound_difference(node: Node) -> dict[str, tuple[Range, Range]]:
    (least, most), (low, high) = values(node.inputs[0]), values(node.inputs[1])
    return {"sum": held(least - high, most - low)}


def _bound_quotient(node: Node) -> dict[str, tuple[Range, Range]]:
    """As wide as dividends: divisors of 0 give 0, and those of -1 the opposite number."""
    far = max(map(abs, values(node.inputs[0])))
    return {"sum": held(-far, far)}


def _as_addition(node: Node, position: int) -> dict[str, int] | None:
    """``clip((a*factor_a + b*factor_b + add) >> shift)`` as what a ``ResidualSum`` ends with; the operand at ``position`` is its sum."""
    attrs, stages = dict(node.attrs), node.epilogue
    if node.op == SCALED_ADD.name:
        factors = (attrs["mul_a"], attrs["mul_b"]) if position == 0 else (attrs["mul_b"], attrs["mul_a"])
    elif stages == ("clamp",):
        factors, attrs = (1, 1), {**attrs, "add": 0, "shift": 0}
    elif stages == ("requantise",):
        mul, add = (np.empty(0) if t is None or t.data is None else t.data for t in node.inputs[2:])
        if mul.size != 1 or add.size != 1:
            return None
        factors, attrs = (int(mul.item()), int(mul.item())), {**attrs, "add": int(add.item())}
    else:
        return None
    return {"mul_a": factors[0], "mul_b": factors[1], **{own: attrs[name] for name, own in RESIDUAL.items() if attrs.get(name) is not None}}


def _scaled_sum(node: Node) -> dict[str, tuple[Range, Range]]:
    attrs = node.attrs
    terms = (scale(attrs[f"mul_{name}"], values(node.inputs[at])) for at, name in enumerate("ab"))
    return {"total": held(*span(*terms, (attrs["add"],) * 2), 64), "shift": ((attrs["shift"],) * 2, (0, 62))}


def _scaled_quotient(node: Node) -> dict[str, tuple[Range, Range]]:
    attrs = node.attrs
    a, b = (max(map(abs, values(node.inputs[at], attrs[f"{name}_zero_point"]))) for at, name in enumerate("ab"))
    most = 2 * a * abs(attrs["mul"]) + (b << attrs["shift"])
    return {"numerators": held(-most, most, 64), "shift": ((attrs["shift"] + 1,) * 2, (0, 62)), "quotients": held(-(1 << 24) - b, 1 << 24)}


def _draw_scaled_add(rng: Random) -> Attributes:
    drawn = requantisation(rng, 7, 12, 20, 30)
    other = requantisation(rng, drawn["shift"])["mul"]
    return {"mul_a": drawn.pop("mul"), **drawn, "mul_b": rng.choice((1, -1)) * other, **parity(rng)}


def _draw_scaled_div(rng: Random) -> Attributes:
    shift = rng.choice((3, 12, 20))
    zero_points = {name: rng.randint(-5, 5) for name in ("a_zero_point", "b_zero_point", "zero_point")}
    return {**zero_points, "mul": rng.randint(1, 50) << shift, "shift": shift, **limits(rng)}


def pointwise(name: str, operands: tuple[str, ...], reference: Reference, usual: Row, draw: Draw, **about: Any) -> Operator:
    """An operator whose operands are aligned to the right of the output's axes."""
    return Operator(name, operands, nest(*operands), reference, usual, draw=draw, **about)


AB = ("a", "b")
PAIR = sample("a[~s] b[~s]")
_ONE = sample("x[*s]")
SUMMED: Row = {
    **usual(*AB, over=AB),
    "types": {"a": INTEGERS, "b": INTEGERS, "y": types("s8", "u8", "s32")},
    "epilogues": SUM_STAGES,
    "strided": {"a": 0, "b": 0, "y": 1},
}
_SCALED = usual(*AB, over=AB, types=dict.fromkeys((*AB, "y"), BYTES))
ADD = pointwise("Add", AB, add_reference, SUMMED, PAIR, bounds=_added_offset, addition=_as_addition, affine="offset")
SUB = pointwise("Sub", AB, subtract_reference, SUMMED, PAIR, integers=_bound_difference, affine="offset")
_ZERO_POINTS = sample("a[~s] b[~s]", a_zero_point=ZERO_POINTS, b_zero_point=ZERO_POINTS)
MUL = pointwise("Mul", AB, mul_reference, SUMMED, _ZERO_POINTS, bounds=_multiplied_factor, affine="factor")
DIV = pointwise("Div", AB, div_reference, {**SUMMED, "data_dependent": DIVIDES}, PAIR, integers=_bound_quotient, affine="factor")
SCALED_ADD = pointwise(
    "ScaledAdd", AB, scaled_add_reference, _SCALED, sample("a[~s] b[~s]", _draw_scaled_add), integers=_scaled_sum, addition=_as_addition
)
SCALED_DIV = pointwise(
    "ScaledDiv",
    AB,
    scaled_div_reference,
    {**_SCALED, "data_dependent": DIVIDES},
    sample("a[~s] b[~s]", _draw_scaled_div),
    integers=_scaled_quotient,
)


def _draw_requantisation(rng: Random) -> Sample:
    shift = rng.choice((0, 7, 12, 24, 36))
    return sample("x[*s] mul[%s] add[%s]", limits, shift=(shift,), **factors(shift))(rng)


REQUANT_SHIFT = pointwise(
    "RequantShift",
    ("x", "mul", "add"),
    requant_reference,
    usual("x", "mul", "add", over=("x",), types={"x": INTEGERS, "mul": types("s32"), "add": types("s32", "s64"), "y": INTEGERS}),
    _draw_requantisation,
    bounds=lambda node: ends(*values(node.inputs[0])),
    converts=True,
)
_STEPS = ("x", "scale", "zero_point")
_FACTORS = {"scale": FLOAT, "zero_point": types("s32")}


def _bound_steps(node: Node) -> dict[str, tuple[Range, Range]]:
    """Limits without the zero point, between which floats are converted."""
    (low, high), attrs = values(node.inputs[2]), node.attrs
    return {"steps": held(int(attrs["low"]) - high, int(attrs["high"]) - low), "result": held(int(attrs["low"]), int(attrs["high"]))}


def _bound_differences(node: Node) -> dict[str, tuple[Range, Range]]:
    (least, most), (low, high) = values(node.inputs[0]), values(node.inputs[2])
    return {"differences": held(least - high, most - low)}


_QUANTISED = sample("x[*s] scale[%s] zero_point[%s]", limits, scale=floats(0.01, 0.3), zero_point=integers(-5, 100))
QUANTIZE = pointwise(
    "Quantize",
    _STEPS,
    quantize_reference,
    usual(*_STEPS, types={"x": FLOAT, **_FACTORS, "y": INTEGERS}),
    _QUANTISED,
    integers=_bound_steps,
    converts=True,
)
DEQUANTIZE = pointwise(
    "Dequantize",
    _STEPS,
    dequantize_reference,
    usual(*_STEPS, types={"x": INTEGERS, **_FACTORS, "y": FLOAT}),
    _QUANTISED,
    integers=_bound_differences,
    converts=True,
)
_CONVERTED = usual("x", types={"x": ANY, "y": ANY}, requires=converted)
COPY, CAST = (
    pointwise(name, ("x",), cast_reference, _CONVERTED, _ONE, integers=exclude_overflow, converts=True) for name in ("Copy", "Cast")
)
_MAPPED = usual("x", over=("x",))


def _holds_table(node: Node) -> str | None:
    """Elements of a table are stored as they are: no kernel rounds or narrows them."""
    table, y = node.inputs[1], node.outputs[0].dtype
    is_held = table is None or table.dtype == y or (table.dtype.is_float == y.is_float and y.holds(*table.dtype.range))
    return None if is_held else "a table of y's type"


LOOKUP = Operator(
    "Lookup",
    ("x", "table"),
    nest("x"),
    lookup_reference,
    {**_MAPPED, "types": {"x": BYTES, "table": ANY, "y": ANY}, "constants": ("table",), "requires": _holds_table},
    integers=exclude_overflow,
    is_table=True,
    draw=sample("x[*s] table[256]"),
)
CLIP = pointwise(
    "Clip",
    ("x",),
    clip_reference,
    {**_MAPPED, "types": dict.fromkeys("xy", INTEGERS | FLOAT), "requires": lambda node: keeps_type(node) or fits_loops(node)},
    sample("x[*s]", low=(None, 0, -5), high=(None, 6, 100)),
    integers=exclude_overflow,
)
# Where functions have real values.
_DOMAINS = {
    **dict.fromkeys(("log", "sqrt", "pow", "reciprocal"), (0.1, 4)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.9, 0.9)),
    **{"acosh": (1.1, 4), "tan": (-1.2, 1.2)},
}


def _draw_unary(rng: Random) -> Sample:
    function = rng.choice(sorted(FUNCTIONS))
    values = floats(*_DOMAINS.get(function, (-4, 4)))
    return sample("x[*s]", function=(function,), alpha=(0.2, 1.0, 1.5), beta=(0.5,), x=values)(rng)


UNARY = pointwise(
    "Unary",
    ("x",),
    unary_reference,
    {**_MAPPED, "types": {"x": FLOAT, "y": FLOAT}},
    _draw_unary,
    calls_library=lambda node: not is_exact(node.attrs["function"]),
)
