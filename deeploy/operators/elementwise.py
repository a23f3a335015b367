"""Operators that work element by element with NumPy broadcasting (docs/integer-form.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deeploy.graph.epilogue import requantise, shifted
from deeploy.graph.nest import Dim, Map, Nest, parallel
from deeploy.graph.nodes import Node

AXES = 6  # that the C loops have


def nest(*operands: str) -> Callable[[Node], Nest]:
    """The nest of an elementwise operator: inputs named ``operands``, aligned to the right of the output's axes."""

    def declare(node: Node) -> Nest:
        dims: tuple[Dim, ...] = parallel(*(f"d{axis}" for axis in range(_rank(node))))
        reads = {}
        for name, tensor in zip(operands, node.inputs, strict=False):
            if tensor is not None:
                own = min(len(dims), len(tensor.shape))  # more axes than the output's are of extent 1: a constant for a scalar
                reads[name] = Map(*[0] * (len(tensor.shape) - own), *dims[len(dims) - own :])
        return Nest(reads=reads, writes={"y": Map(*dims)})

    return declare


def _rank(node: Node) -> int:
    """The output's rank; where there is none yet, that of the operand with most axes."""
    return max(len(tensor.shape) for tensor in (node.outputs or node.inputs) if tensor is not None)


def loops(extent: Sequence[Any], keep_last: bool = False, most: int = AXES, **views: Any) -> str:
    """C initialisers of an elementwise loop: ``.extent``, and ``.NAME_step`` for each operand, collapsed to few axes.

    Neighbouring axes become one where every operand steps through them as through one, and axes of extent 1 vanish; ``keep_last`` keeps
    the last axis apart, since epilogue operands are indexed by it. Where the last axis that is left would step through an operand whose
    last axis the kernel takes for packed, one of extent 1 follows it. The loop has ``most`` axes.
    """
    rank = len(extent)
    steps = {name: _steps(view, extent) for name, view in views.items()}
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
    parts = [f".extent = {_braces(size for size, _ in axes)}"]
    parts += [f".{name}_step = {_braces(here[i] for _, here in axes)}" for i, name in enumerate(steps)]
    return ", ".join(parts)


def _steps(view: Any, extent: Sequence[int]) -> list[int]:
    """Strides over the loops, aligned to the right: 0 where the operand is broadcast along an axis, or has none."""
    rank, own = len(extent), min(len(extent), len(view.stride))
    first = len(view.stride) - own
    axes = zip(view.shape[first:], extent[rank - own :], view.stride[first:], strict=True)
    return [0] * (rank - own) + [0 if size == 1 and loop != 1 else stride for size, loop, stride in axes]


def _braces(values: Any) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def fits_loops(node: Node) -> str | None:
    """Whether the rank is within what the C loops take."""
    return None if _rank(node) <= AXES else f"at most {AXES} axes"


def _wide(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind == "f" else x.astype(np.int64)


def add_reference(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(_wide(a) + _wide(b))


def sub_reference(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(_wide(a) - _wide(b))


def mul_reference(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(a - a_zero_point) * (b - b_zero_point); floats: a * b."""
    if a.dtype.kind == "f":
        return np.asarray(a * b)
    return np.asarray((_wide(a) - node.attrs["a_zero_point"]) * (_wide(b) - node.attrs["b_zero_point"]))


def div_reference(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(a / b, np.float32)


def scaled_add_reference(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """clip((a*mul_a + b*mul_b + add) >> shift, low, high) in 64 bits."""
    attrs = node.attrs
    wide = _wide(a) * attrs["mul_a"] + _wide(b) * attrs["mul_b"] + attrs["add"]
    return np.asarray(np.clip(shifted(wide, attrs["shift"], attrs.get("even")), attrs["low"], attrs["high"]))


def scaled_div_reference(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """n = (a - za)*mul, d = (b - zb) << shift; floor((2n + d) / 2d) + zero_point with d made positive, clipped."""
    attrs = node.attrs
    n, d = np.broadcast_arrays((_wide(a) - attrs["a_zero_point"]) * attrs["mul"], (_wide(b) - attrs["b_zero_point"]) << attrs["shift"])
    n, d = np.where(d < 0, -n, n), np.abs(d)
    quotient = (2 * n + d) // (2 * np.maximum(d, 1)) + attrs["zero_point"]
    edge = np.where(n > 0, attrs["high"], np.where(n < 0, attrs["low"], attrs["zero_point"]))
    return np.asarray(np.clip(np.where(d == 0, edge, quotient), attrs["low"], attrs["high"]))


def requant_reference(node: Node, x: np.ndarray, mul: np.ndarray, add: np.ndarray) -> np.ndarray:
    """clip((x*mul + add) >> shift, low, high); mul and add broadcast as NumPy does."""
    return np.asarray(requantise(x, mul, add, node.attrs["shift"], node.attrs["low"], node.attrs["high"]))


def lookup_reference(node: Node, x: np.ndarray, table: np.ndarray) -> np.ndarray:
    """table[x - smallest value of x's type]."""
    return np.asarray(table[x.astype(np.int64) - np.iinfo(x.dtype).min])


def clip_reference(node: Node, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(x, *(bound(node.attrs[name], x.dtype) for name in ("low", "high"))))


def bound(value: float | None, dtype: np.dtype[Any]) -> Any:
    """A limit of a Clip in the operand's type; limits beyond the type's range limit nothing."""
    if value is None:
        return None
    if dtype.kind == "f":
        return np.float32(value)
    info = np.iinfo(dtype)
    return dtype.type(min(max(int(value), info.min), info.max))


def cast_reference(node: Node, x: np.ndarray) -> np.ndarray:
    return x.astype(node.outputs[0].dtype.numpy)


def quantize_reference(node: Node, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """clip(round_half_even(x / scale) + zero_point, low, high) in float32; NaN gives low."""
    low, high = np.float32(node.attrs["low"]) - zero_point, np.float32(node.attrs["high"]) - zero_point
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        steps = np.rint(x / scale)
    limited = np.where(steps > high, high, np.where(steps >= low, steps, low))
    return np.asarray(limited.astype(np.int64) + zero_point)


def dequantize_reference(node: Node, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    return np.asarray((x.astype(np.int64) - zero_point).astype(np.float32) * scale)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


FUNCTIONS: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "leaky_relu": lambda x, a, b: np.where(x < 0, a * x, x),
    "sigmoid": lambda x, a, b: _sigmoid(x),
    "tanh": lambda x, a, b: np.tanh(x),
    "hard_swish": lambda x, a, b: x * np.clip(x / 6 + 0.5, 0, 1),
    "hard_sigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
    "selu": lambda x, a, b: np.where(x < 0, b * a * np.expm1(np.minimum(x, 0)), b * x),
    "celu": lambda x, a, b: np.maximum(x, 0) + np.minimum(a * np.expm1(np.minimum(x, 0) / a), 0),
    "thresholded_relu": lambda x, a, b: np.where(x > a, x, 0),
    "shrink": lambda x, a, b: np.where(x < -a, x + b, np.where(x > a, x - b, 0)),
    "exp": lambda x, a, b: np.exp(x),
    "log": lambda x, a, b: np.log(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "erf": lambda x, a, b: _erf(x),
    "abs": lambda x, a, b: np.abs(x),
    "neg": lambda x, a, b: -x,
    "reciprocal": lambda x, a, b: 1 / x,
    "softplus": lambda x, a, b: np.logaddexp(x, 0),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "gelu": lambda x, a, b: x * 0.5 * (1 + _erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x, a, b: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x, a, b: x * _sigmoid(a * x),
    "mish": lambda x, a, b: x * np.tanh(np.logaddexp(x, 0)),
    "pow": lambda x, a, b: np.power(x, a),
    "floor": lambda x, a, b: np.floor(x),
    "ceil": lambda x, a, b: np.ceil(x),
    "round": lambda x, a, b: np.rint(x),
    "sin": lambda x, a, b: np.sin(x),
    "cos": lambda x, a, b: np.cos(x),
    "tan": lambda x, a, b: np.tan(x),
    "asin": lambda x, a, b: np.arcsin(x),
    "acos": lambda x, a, b: np.arccos(x),
    "atan": lambda x, a, b: np.arctan(x),
    "sinh": lambda x, a, b: np.sinh(x),
    "cosh": lambda x, a, b: np.cosh(x),
    "asinh": lambda x, a, b: np.arcsinh(x),
    "acosh": lambda x, a, b: np.arccosh(x),
    "atanh": lambda x, a, b: np.arctanh(x),
    "sign": lambda x, a, b: np.sign(x),
}


def unary_reference(node: Node, x: np.ndarray) -> np.ndarray:
    """The function in float64, rounded once to float32; C's float32 functions differ by a few units in the last place."""
    alpha, beta = (float(np.float32(node.attrs[name])) for name in ("alpha", "beta"))
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[node.attrs["function"]](x.astype(np.float64), alpha, beta), np.float32)
