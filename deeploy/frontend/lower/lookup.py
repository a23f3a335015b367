"""Float functions of one tensor, and expressions of them as tables of 256 entries."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.build import DOMAIN
from deeploy.frontend.lower.quant import Quantised, byte, dequantised, limits, quantise_values
from deeploy.graph.rewrite import constant, producer
from deeploy.operators.elementwise import FUNCTIONS

# ONNX operator -> function of the integer form's Unary, and the defaults of alpha and beta.
UNARY: dict[str, tuple[str, float, float]] = {
    **{
        op: (op.lower(), 0, 0)
        for op in ("Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Erf", "Abs", "Neg", "Reciprocal", "Softplus", "Softsign")
    },
    **{op: (op.lower(), 0, 0) for op in ("Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Mish")},
    **{op: (op.lower(), 0, 0) for op in ("Sinh", "Cosh", "Asinh", "Acosh", "Atanh")},
    "LeakyRelu": ("leaky_relu", 0.01, 0),
    "HardSwish": ("hard_swish", 0, 0),
    "HardSigmoid": ("hard_sigmoid", 0.2, 0.5),
    "Elu": ("elu", 1.0, 0),
    "Selu": ("selu", 1.67326319, 1.05070102),
    "QuickGelu": ("silu", 1.702, 0),
    "Swish": ("silu", 1.0, 0),
    "Celu": ("celu", 1.0, 0),
    "ThresholdedRelu": ("thresholded_relu", 1.0, 0),
    "Shrink": ("shrink", 0.5, 0),
}
DEEPEST = 100  # operators in a row; networks have a handful
ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
}


def function(node: gs.Node) -> tuple[str, float, float] | None:
    """The Unary function, alpha and beta that a float ONNX node computes, where it is one."""
    if node.op == "Gelu":
        return ("gelu_tanh" if node.attrs.get("approximate") == "tanh" else "gelu"), 0, 0
    if node.op == "Pow":
        exponent = real_constant(node.inputs[1])
        return ("pow", _whole(float(exponent.ravel()[0])), 0) if exponent is not None and exponent.size == 1 else None
    if node.op == "PRelu":
        slope = constant(node.inputs[1])
        return ("leaky_relu", float(slope.ravel()[0]), 0) if slope is not None and slope.size == 1 else None
    if node.op not in UNARY:
        return None
    name, alpha, beta = UNARY[node.op]
    first = node.attrs.get("alpha", node.attrs.get("lambd", alpha))
    second = next((node.attrs[attr] for attr in ("beta", "gamma", "bias") if attr in node.attrs), beta)
    return name, float(first), float(second)


def _whole(exponent: float) -> float:
    """The whole number that a quantised exponent stands for: with any other, negative bases have no power."""
    return float(round(exponent)) if math.isfinite(exponent) and math.isclose(exponent, round(exponent), rel_tol=1e-6) else exponent


def real_constant(tensor: gs.Tensor) -> np.ndarray | None:
    """The float value of a constant, also of a dequantised one."""
    value = constant(tensor)
    if value is not None:
        return value.astype(np.float32)
    found = dequantised(tensor)
    return found.reals() if found is not None else None


Values = tuple[Quantised | None, np.ndarray]  # the tensor that all depends on, and a real value for each value of it
Leaf = Callable[[gs.Tensor], Values | None]


def _of_byte(tensor: gs.Tensor) -> Values | None:
    x = byte(tensor)
    return None if x is None else (x, _reals(x))


def tabulate(
    tensor: gs.Tensor, leaf: Leaf = _of_byte, known: dict[int, Values | None] | None = None, depth: int = DEEPEST
) -> Values | None:
    """The float32 values of a float tensor, element by element a function of one tensor alone: of a dequantised 8-bit one.

    Any expression of functions, arithmetic and constant numbers counts, also one that reads the tensor several times.

    Args:
        leaf: what a tensor is known to hold, that of which the others are functions.
        known: values that were found before, by the identities of tensors.
        depth: of the expression, at most.
    """
    known = {} if known is None else known
    if id(tensor) not in known:
        known[id(tensor)] = _tabulate(tensor, leaf, known, depth - 1) if depth > 0 else None
    return known[id(tensor)]


def _tabulate(tensor: gs.Tensor, leaf: Leaf, known: dict[int, Values | None], depth: int) -> Values | None:
    number, values, node = real_constant(tensor), leaf(tensor), producer(tensor)
    if number is not None:
        return (None, number.reshape(())) if number.size == 1 else None
    if values is not None or node is None or node.domain == DOMAIN:
        return values
    operate = ARITHMETIC.get(node.op) if len(node.inputs) == 2 else None
    apply = elementwise(node) if operate is None else None
    if operate is None and apply is None:
        return None
    found = [tabulate(t, leaf, known, depth) for t in (node.inputs if operate else node.inputs[:1])]
    sources = [f[0] for f in found if f is not None and f[0] is not None]
    if not all(found) or not sources or any(s.tensor is not sources[0].tensor for s in sources):
        return None
    if list(tensor.shape) != list(sources[0].tensor.shape):
        return None
    arrays = [f[1] for f in found if f is not None]
    with np.errstate(all="ignore"):
        result = operate(*arrays) if operate else apply(arrays[0]) if apply else arrays[0]
    return sources[0], np.asarray(result, np.float32)


def elementwise(node: gs.Node) -> Callable[[np.ndarray], np.ndarray] | None:
    """What a float node with one variable input computes element by element."""
    if node.op == "Relu":
        return lambda x: np.maximum(x, np.float32(0))
    if node.op == "Clip":
        low, high = node.attrs["min"], node.attrs["max"]
        return lambda x: np.clip(x, low, high) if (low, high) != (None, None) else x
    found = function(node)
    if found is None:
        return None
    name, alpha, beta = found
    return lambda x: np.asarray(FUNCTIONS[name](x.astype(np.float64), alpha, beta), np.float32)


def joined_sum(tensor: gs.Tensor, y: Quantised) -> Values | None:
    """The steps of ``y`` that onnxruntime's sum of a quantised tensor and a quantised number makes of every value, before rounding.

    It multiplies the integers by ratios of scales in float32, all zero points in one summand. Where scales are nearly multiples of
    each other, as those of a function's range and of its sum with 1 are, every second value is almost a tie, which this decides.
    An int8 result that is dequantised again becomes uint8 there, of another type than the number: that sum stays in floats.
    """
    node = producer(tensor, "Add")
    if node is None or node.domain == DOMAIN or np.dtype(y.tensor.dtype) != np.uint8:
        return None
    parts = [byte(t) for t in node.inputs]
    if any(p is None for p in parts):
        return None
    number, x = sorted((p for p in parts if p is not None), key=lambda p: not isinstance(p.tensor, gs.Constant))
    value = constant(number.tensor)
    if value is None or value.size != 1 or isinstance(x.tensor, gs.Constant) or list(x.tensor.shape) != list(tensor.shape):
        return None
    ratio, other = (np.float32(p.s) / np.float32(y.s) for p in (x, number))
    zeros = ratio * np.float32(x.z) + other * np.float32(number.z)
    fixed = other * np.float32(value.ravel()[0]) + (np.float32(y.z) - zeros)
    first, last = limits(x.tensor)
    return x, np.asarray(ratio * np.arange(first, last + 1).astype(np.float32) + fixed, np.float32)


def _reals(x: Quantised) -> np.ndarray:
    info = np.iinfo(x.tensor.dtype)
    return (np.arange(info.min, info.max + 1, dtype=np.int64) - x.z).astype(np.float32) * np.float32(x.s)


def converted(x: Quantised, y: Quantised) -> np.ndarray:
    """Every value of an 8-bit tensor in the quantisation of another one."""
    return quantise_values(_reals(x), y.s, y.z, *limits(y.tensor)).astype(y.tensor.dtype)
