"""Quantisation written in standard operators: Div, Add, Round, Clip, and back Sub, Mul.

Only what is the same in every bit is recognised: the chain rounds the sum of quotient and zero point, ``Quantize`` the quotient, so the
zero point must be 0. The operators in between stay in floats; what is gained are one kernel instead of four, and 8-bit storage.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.graph.rewrite import Pass, constant, only_consumer, producer, rule
from deeploy.graph.types import DType


def _number(tensor: gs.Tensor) -> float | None:
    value = constant(tensor)
    return float(value.ravel()[0]) if value is not None and value.size == 1 and value.ndim <= 1 else None


def _before(graph: gs.Graph, tensor: gs.Tensor, op: str) -> gs.Node | None:
    """The node that computes ``tensor`` for one reader alone."""
    node = producer(tensor, op)
    return node if node is not None and not build.lowered(node) and only_consumer(graph, tensor) is not None else None


@rule("Clip")
def steps(graph: gs.Graph, node: gs.Node) -> bool:
    """Clip(Round(x / scale [+ 0])) to an 8-bit range: the steps of a Quantize, as floats."""
    low, high = node.attrs.get("min"), node.attrs.get("max")
    if build.lowered(node) or low is None or high is None or not all(abs(end) < 2**31 and end == int(end) for end in (low, high)):
        return False
    dtype = DType.smallest(int(low), int(high)) if low <= high else DType.INT32
    rounding = _before(graph, node.inputs[0], "Round") if dtype.bytes == 1 else None
    if rounding is None:
        return False
    quotient = rounding.inputs[0]
    addition = _before(graph, quotient, "Add")
    if addition is not None:
        if _number(addition.inputs[1]) != 0:
            return False
        quotient = addition.inputs[0]
    division = _before(graph, quotient, "Div")
    scale = None if division is None else _number(division.inputs[1])
    y = node.outputs[0]
    if division is None or scale is None or scale <= 0 or list(division.inputs[0].shape) != list(y.shape):
        return False
    node.outputs.clear()
    integers = build.variable(f"{y.name} (steps)", dtype.numpy, y.shape)
    constants = [build.const(f"{y.name} (scale)", [scale], np.float32), build.const(f"{y.name} (zero point)", [0], np.int32)]
    build.add(graph, "Quantize", [division.inputs[0], *constants], integers, node.name, low=int(low), high=int(high))
    return _dequantise(graph, integers, 1.0, 0, y, f"{node.name} (real)")


def _dequantise(graph: gs.Graph, x: gs.Tensor, scale: float, zero: int, y: gs.Tensor, name: str) -> bool:
    constants = [build.const(f"{y.name} (unit)", [scale], np.float32), build.const(f"{y.name} (zero)", [zero], np.int32)]
    build.add(graph, "Dequantize", [x, *constants], y, name)
    return True


def _integers(tensor: gs.Tensor) -> gs.Tensor | None:
    """The 8-bit tensor whose values ``tensor`` has as floats."""
    node = producer(tensor)
    if node is None or np.dtype(node.inputs[0].dtype) not in (np.int8, np.uint8) or np.dtype(tensor.dtype).kind != "f":
        return None
    unit = node.op == "Dequantize" and [_number(t) for t in node.inputs[1:]] == [1.0, 0.0]
    return node.inputs[0] if unit or (node.op == "Cast" and not build.lowered(node)) else None


@rule("Mul")
def reals(graph: gs.Graph, node: gs.Node) -> bool:
    """(q [- zero_point]) * scale of 8-bit steps: a Dequantize."""
    scale = _number(node.inputs[1])
    if build.lowered(node) or scale is None:
        return False
    difference, zero = node.inputs[0], 0.0
    subtraction = producer(difference, "Sub")
    if subtraction is not None and not build.lowered(subtraction):
        found = _number(subtraction.inputs[1])
        if found is None or found != int(found) or abs(found) > 2**16:
            return False
        difference, zero = subtraction.inputs[0], found
    integers = _integers(difference)
    y = node.outputs[0]
    if integers is None or list(integers.shape) != list(y.shape):
        return False
    node.outputs.clear()
    return _dequantise(graph, integers, scale, int(zero), y, node.name)


@rule("Cast")
def back(graph: gs.Graph, node: gs.Node) -> bool:
    """Steps that are cast to the 8-bit type they have already."""
    integers, y = _integers(node.inputs[0]), node.outputs[0]
    if build.lowered(node) or integers is None or np.dtype(integers.dtype) != np.dtype(y.dtype):
        return False
    node.outputs.clear()
    build.add(graph, "Reshape", [integers], y, node.name)
    return True


PASS = Pass("chains", (steps, reals, back))
