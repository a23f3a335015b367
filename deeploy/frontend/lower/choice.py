"""Operators that choose among values: Max, Min, Where; comparisons, and arithmetic of 64-bit integers.

Choosing commutes with quantisation, so that a quantised choice is one of integers in the quantisation of its result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.lookup import converted, real_constant
from deeploy.frontend.lower.quant import Quantised, dequantised, limits, quantise_values
from deeploy.graph.rewrite import constant

COMPARISONS = {
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_or_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_or_equal",
    "And": "and",
    "Or": "or",
    "Xor": "not_equal",
}
EXTREMES = {"Max": "max", "Min": "min"}
POWER = {"Pow": "pow"}
BITS = {"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor", "BitShift": "shift", "Mod": "mod"}
ARITHMETIC = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}


def in_scale(graph: gs.Graph, part: Quantised, y: Quantised, low: int, high: int, label: str) -> gs.Tensor:
    """An 8-bit tensor in the quantisation of ``y``: itself where it has that already, else by a table."""
    values = np.clip(converted(part, y), low, high)
    first, last = limits(y.tensor)
    stored = constant(part.tensor)
    if stored is not None:
        return build.const(label, values[stored.astype(np.int64) - limits(part.tensor)[0]])
    if np.dtype(part.tensor.dtype) == y.tensor.dtype and np.array_equal(values, np.arange(first, last + 1)):
        return part.tensor
    own = build.variable(label, y.tensor.dtype, part.tensor.shape)
    return build.add(graph, "Lookup", [part.tensor, build.const(f"{own.name} (table)", values)], own)


def _operand(graph: gs.Graph, tensor: gs.Tensor, y: Quantised, low: int, high: int, label: str) -> gs.Tensor | None:
    """A real tensor in the quantisation of ``y``; None where it is neither quantised nor constant."""
    part = dequantised(tensor)
    if part is not None and part.is_scalar and part.is_byte:
        return in_scale(graph, part, y, low, high, label)
    real = real_constant(tensor)
    if real is None:
        return None
    return build.const(label, np.clip(quantise_values(real, y.s, y.z, *limits(y.tensor)), low, high), y.tensor.dtype)


def quantised(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    """Max, Min, Where of quantised tensors and constants; ``node`` is the QuantizeLinear that it replaces."""
    result = node.outputs[0]
    values = source.inputs[1:] if source.op == "Where" else source.inputs
    if any(not _is_known(t) for t in values):
        return False
    parts = [_operand(graph, t, y, low, high, f"{t.name} (in {result.name}, {i})") for i, t in enumerate(values)]
    known = [part for part in parts if part is not None]
    node.outputs.clear()
    if source.op == "Where":
        build.add(graph, "Where", [source.inputs[0], *known], result, source.name)
    else:
        _chain(graph, EXTREMES[source.op], known, result, source.name)
    return True


def _is_known(tensor: gs.Tensor) -> bool:
    part = dequantised(tensor)
    return real_constant(tensor) is not None or (part is not None and part.is_scalar and part.is_byte)


def _chain(graph: gs.Graph, function: str, inputs: Sequence[gs.Tensor], y: gs.Tensor, name: str) -> None:
    """The function of two applied from left to right."""
    total = inputs[0]
    if len(inputs) == 1:
        build.add(graph, "Reshape", [total], y, name)
    for index, tensor in enumerate(inputs[1:], 1):
        last = index == len(inputs) - 1
        shape = np.broadcast_shapes(tuple(total.shape), tuple(tensor.shape))
        result = y if last else build.variable(f"{y.name} ({function} {index})", y.dtype, shape)
        total = build.add(graph, "Binary", [total, tensor], result, name if last else result.name, function=function)


def lower(graph: gs.Graph, node: gs.Node) -> bool:
    """The node, in whatever type it has."""
    y, inputs = node.outputs[0], list(node.inputs)
    node.outputs.clear()
    if node.op == "Where":
        build.add(graph, "Where", inputs, y, node.name)
    elif node.op == "Not":
        build.add(graph, "Binary", [inputs[0], build.const(f"{y.name} (false)", [False])], y, node.name, function="equal")
    else:
        _chain(graph, {**COMPARISONS, **EXTREMES, **ARITHMETIC, **POWER}[node.op], inputs, y, node.name)
    return True


def bits(graph: gs.Graph, node: gs.Node) -> bool:
    """Functions of bits and remainders; a complement is a difference from all ones."""
    y, inputs, attrs = node.outputs[0], list(node.inputs), node.attrs
    function = {**BITS, "BitwiseNot": "bit_xor"}[node.op]
    node.outputs.clear()
    if node.op == "BitwiseNot":
        inputs.append(build.const(f"{y.name} (ones)", np.array([~np.dtype(y.dtype).type(0)])))
    elif node.op == "BitShift":
        function = "shift_left" if attrs["direction"] == "LEFT" else "shift_right"
    elif node.op == "Mod" and attrs.get("fmod", 0):
        function = "fmod"
    _chain(graph, function, inputs, y, node.name)
    return True


def to_bool(graph: gs.Graph, node: gs.Node) -> bool:
    """A Cast to bool: whether an element differs from zero."""
    x, y = node.inputs[0], node.outputs[0]
    node.outputs.clear()
    build.add(graph, "Binary", [x, build.const(f"{y.name} (zero)", [0], x.dtype)], y, node.name, function="not_equal")
    return True
