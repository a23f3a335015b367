"""Float functions of one tensor, and chains of them as tables of 256 entries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.quant import dequantised
from deeploy.graph.rewrite import constant
from deeploy.operators.elementwise import FUNCTIONS

# ONNX operator -> function of the integer form's Unary, and the defaults of alpha and beta.
UNARY: dict[str, tuple[str, float, float]] = {
    "LeakyRelu": ("leaky_relu", 0.01, 0),
    "Sigmoid": ("sigmoid", 0, 0),
    "Tanh": ("tanh", 0, 0),
    "HardSwish": ("hard_swish", 0, 0),
    "HardSigmoid": ("hard_sigmoid", 0.2, 0.5),
    "Elu": ("elu", 1.0, 0),
    "Selu": ("selu", 1.67326319, 1.05070102),
    "Exp": ("exp", 0, 0),
    "Log": ("log", 0, 0),
    "Sqrt": ("sqrt", 0, 0),
    "Erf": ("erf", 0, 0),
    "Abs": ("abs", 0, 0),
    "Neg": ("neg", 0, 0),
    "Reciprocal": ("reciprocal", 0, 0),
    "Softplus": ("softplus", 0, 0),
    "Softsign": ("softsign", 0, 0),
    "Floor": ("floor", 0, 0),
    "Ceil": ("ceil", 0, 0),
    "Round": ("round", 0, 0),
    "Sin": ("sin", 0, 0),
    "Cos": ("cos", 0, 0),
    "QuickGelu": ("silu", 1.702, 0),
    "Swish": ("silu", 1.0, 0),
}
_Operation = Callable[[np.ndarray, np.ndarray], np.ndarray]
_ARITHMETIC: dict[str, _Operation] = {
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
        exponent = constant(node.inputs[1])
        return ("pow", float(exponent.ravel()[0]), 0) if exponent is not None and exponent.size == 1 else None
    if node.op == "PRelu":
        slope = constant(node.inputs[1])
        return ("leaky_relu", float(slope.ravel()[0]), 0) if slope is not None and slope.size == 1 else None
    if node.op in ("QuickGelu", "Swish") and node.attrs.get("alpha", UNARY[node.op][1]) != 1.0:
        return None
    if node.op not in UNARY:
        return None
    name, alpha, beta = UNARY[node.op]
    return name, float(node.attrs.get("alpha", alpha)), float(node.attrs.get("beta", node.attrs.get("gamma", beta)))


def real_constant(tensor: gs.Tensor) -> np.ndarray | None:
    """The float value of a constant, also of a dequantised one."""
    value = constant(tensor)
    if value is not None:
        return value.astype(np.float32)
    found = dequantised(tensor)
    return found.reals() if found is not None else None


def step(node: gs.Node) -> tuple[gs.Tensor, Callable[[np.ndarray], np.ndarray]] | None:
    """The variable input of a float node that works element by element on it alone, and the function it applies."""
    if node.op == "Relu":
        return node.inputs[0], lambda x: np.maximum(x, np.float32(0))
    if node.op == "Clip":
        low, high = node.attrs["min"], node.attrs["max"]
        return node.inputs[0], lambda x: np.clip(x, low, high) if (low, high) != (None, None) else x
    found = function(node)
    if found is not None:
        name, alpha, beta = found
        return node.inputs[0], lambda x: np.asarray(FUNCTIONS[name](x.astype(np.float64), alpha, beta), np.float32)
    if node.op in _ARITHMETIC and len(node.inputs) == 2:
        return _arithmetic(node)
    return None


def _right_scalar(operate: _Operation, scalar: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.asarray(operate(x, scalar), np.float32)


def _left_scalar(operate: _Operation, scalar: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.asarray(operate(scalar, x), np.float32)


def _arithmetic(node: gs.Node) -> tuple[gs.Tensor, Callable[[np.ndarray], np.ndarray]] | None:
    operate = _ARITHMETIC[node.op]
    for position, tensor in enumerate(node.inputs):
        other = node.inputs[1 - position]
        value = real_constant(tensor)
        if value is None or value.size != 1 or len(value.shape) > len(other.shape):
            continue
        scalar = value.astype(np.float32).reshape(())
        if position == 1:
            return other, partial(_right_scalar, operate, scalar)
        return other, partial(_left_scalar, operate, scalar)
    squared = node.op == "Mul" and node.inputs[0] is node.inputs[1]
    return (node.inputs[0], lambda x: x * x) if squared else None


def table(x_dtype: Any, scale: float, zero_point: int, functions: list[Callable[[np.ndarray], np.ndarray]]) -> np.ndarray:
    """The real values of a chain of functions for every value of an 8-bit type, in float32."""
    info = np.iinfo(x_dtype)
    values = (np.arange(info.min, info.max + 1, dtype=np.int64) - zero_point).astype(np.float32) * np.float32(scale)
    with np.errstate(all="ignore"):
        for apply in functions:
            values = np.asarray(apply(values), np.float32)
    return values
