"""Float functions of one tensor, and expressions of them as tables of 256 entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from deeploy.frontend.lower.quant import Quantised, behind_dequantisation, byte_tensor, every_value, plain_tensor
from deeploy.ir.nodes import Attributes, Node, Tensor, compute, constant
from deeploy.ir.types import DType
from deeploy.operators.elementwise import FUNCTIONS

# ONNX operator -> function of the integer form's Unary, and the defaults of alpha and beta.
UNARY: dict[str, tuple[str, float, float]] = {
    **{
        op: (op.lower(), 0, 0)
        for op in (
            *("Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Erf", "Abs", "Neg", "Reciprocal", "Softplus", "Softsign", "Mish", "Gelu"),
            *("Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
        )
    },
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
Operations: TypeAlias = Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]
ARITHMETIC: Operations = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}
OF_TWO: Operations = {**ARITHMETIC, "Max": np.maximum, "Min": np.minimum}


def unary_attributes(node: Node) -> Attributes | None:
    """The attributes of the Unary that computes what a float ONNX node does, where there is one."""
    name, *defaults = UNARY.get(node.op, ("", 0.0, 0.0))
    if node.op in ("Pow", "PRelu"):
        number = node.operands[1].number if node.op == "PRelu" else real_number(node.operands[1])
        if number is not None:
            whole = float(np.rint(number))  # a quantised exponent stands for one: with any other, negative bases have no power
            exponent = whole if math.isclose(number, whole, rel_tol=1e-6) else number
            name, *defaults = ("leaky_relu", number, 0) if node.op == "PRelu" else ("pow", exponent, 0)
    alpha, beta = (
        next((node.attrs[attribute] for attribute in names if attribute in node.attrs), default)
        for names, default in zip((("alpha", "lambd"), ("beta", "gamma", "bias")), defaults, strict=True)
    )
    name += "_tanh" * (node.attrs.get("approximate") == "tanh")
    return {"function": name, "alpha": float(alpha), "beta": float(beta)} if name else None


def relu_limits(node: Node) -> tuple[Any, Any] | None:
    """The smallest and the largest value that a Relu or a Clip leaves, None where there is none of these; None of another node."""
    return {"Relu": (0, None), "Clip": (node.attrs.get("min"), node.attrs.get("max"))}.get(node.op)


def real_constant(tensor: Tensor) -> np.ndarray | None:
    """The float value of a constant, also of a dequantised one."""
    if tensor.data is not None:
        return tensor.data.astype(np.float32)
    q = behind_dequantisation(tensor)
    return None if q is None or q.tensor.data is None else q.real(q.tensor.data)


def real_number(tensor: Tensor) -> float | None:
    """The one real number that a constant tensor stands for, if it has one element."""
    values = real_constant(tensor)
    return values.item() if values is not None and values.size == 1 else None


Values = tuple[Quantised | None, np.ndarray]  # the tensor that all depends on, and a real value for each value of it
Leaf = Callable[[Tensor], Values | None]


def _of_byte(tensor: Tensor) -> Values | None:
    x = byte_tensor(tensor)
    return None if x is None else (x, x.every)


def tabulate_values(
    tensor: Tensor, leaf: Leaf = _of_byte, known: dict[Tensor, Values | None] | None = None, depth: int = DEEPEST
) -> Values | None:
    """The float32 values of a float tensor, element by element a function of one tensor alone: of a dequantised 8-bit one.

    Any expression of functions, arithmetic and constant numbers counts, also one that reads the tensor several times.

    Args:
        leaf: what a tensor is known to hold, that of which the others are functions.
        known: values that were found before.
        depth: of the expression, at most.
    """
    known = {} if known is None else known
    if tensor not in known:
        known[tensor] = _tabulate_node(tensor, leaf, known, depth - 1) if depth > 0 else None
    return known[tensor]


def _tabulate_node(tensor: Tensor, leaf: Leaf, known: dict[Tensor, Values | None], depth: int) -> Values | None:
    number, values, node = real_constant(tensor), leaf(tensor), tensor.maker
    if number is not None:
        return (None, number.reshape(())) if number.size == 1 else None
    if values is not None or node is None or node.is_lowered:
        return values
    operands = node.operands if node.op in OF_TWO else node.operands[:1]
    operate = OF_TWO[node.op] if len(operands) == 2 else elementwise_function(node)
    parts = [] if operate is None else [tabulate_values(operand, leaf, known, depth) for operand in operands]
    sources = {part[0].tensor: part[0] for part in parts if part is not None and part[0] is not None}
    if operate is None or None in parts or [source.shape for source in sources] != [tensor.shape]:
        return None
    with np.errstate(all="ignore"):
        result = operate(*(part[1] for part in parts if part is not None))
    return next(iter(sources.values())), np.asarray(result, np.float32)


def elementwise_function(node: Node) -> Callable[..., np.ndarray] | None:
    """What a float node with one variable input computes element by element."""
    ends, form = relu_limits(node), unary_attributes(node)
    if ends is not None:
        return lambda x: np.asarray(x if ends == (None, None) else np.clip(x, *ends))
    if form is None:
        return None
    name, *parameters = form.values()
    return lambda x: np.asarray(FUNCTIONS[name](x.astype(np.float64), *parameters), np.float32)


def lookup_table(tensor: Tensor, y: Quantised) -> tuple[Tensor, np.ndarray] | None:
    """The 8-bit tensor that a float one is a function of, element by element, and what ``y`` is for each value of it."""
    joined = _join_sum(tensor, y)
    x, values = joined or tabulate_values(tensor) or (None, np.zeros(0))
    if x is None or x.tensor.data is not None:
        return None
    return x.tensor, (y if joined is None else plain_tensor(y.tensor)).quantise(values)


def look_up(x: Tensor, results: np.ndarray) -> Tensor:
    """What a table has for every element of an 8-bit tensor: the tensor itself where that is the same."""
    values = every_value(x)
    if values.dtype == results.dtype and np.array_equal(values, results):
        return x
    return compute("Lookup", x, constant(results, label="table"), dtype=DType.of(results.dtype))


def _join_sum(tensor: Tensor, y: Quantised) -> Values | None:
    """The steps of ``y`` that onnxruntime's sum of a quantised tensor and a quantised number makes of every value, before rounding.

    It multiplies the integers by ratios of scales in float32, all zero points in one summand. Where scales are nearly multiples of
    each other, as those of a function's range and of its sum with 1 are, every second value is almost a tie, which this decides.
    An int8 result that is dequantised again becomes uint8 there, of another type than the number: that sum stays in floats.
    """
    node = tensor.maker
    if node is None or node.op != "Add" or node.is_lowered or y.tensor.dtype is not DType.UINT8:
        return None
    number, x = sorted(map(byte_tensor, node.operands), key=lambda part: part is None or part.tensor.data is None)
    value = None if number is None else number.tensor.number
    if number is None or x is None or value is None or x.tensor.data is not None or x.tensor.shape != tensor.shape:
        return None
    ratio, other = (np.float32(part.s) / np.float32(y.s) for part in (x, number))
    zeros = ratio * np.float32(x.z) + other * np.float32(number.z)
    fixed = other * np.float32(value) + (np.float32(y.z) - zeros)
    return x, np.asarray(ratio * every_value(x.tensor).astype(np.float32) + fixed, np.float32)
