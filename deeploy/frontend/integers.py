"""Operators on integers by others that are exact in all their types: no kernel has to have these for every type.

Powers have whole constant exponents, and sums wrap around as ONNX's and C's of unsigned types do.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend import regions
from deeploy.frontend.rules import Context, Result, operand

_MOST_FACTORS = 63  # of a power: a larger one of anything but 0, 1 and -1 overflows 64 bits
_NARROW = (np.int8, np.uint8, np.int16, np.uint16, np.int32)  # types that kernels of Relu and Clip have


class _Chain:
    """Nodes in the place of one, whose results have its type."""

    def __init__(self, node: gs.Node, context: Context) -> None:
        self.node, self.context, self.made = node, context, list[gs.Node]()

    def constant(self, value: int) -> gs.Constant:
        dtype = self.node.inputs[0].dtype
        return gs.Constant(self.context.fresh(f"{self.node.name}_constant"), np.array(value, dtype))

    def add(self, op: str, *inputs: gs.Tensor) -> gs.Variable:
        shape = list(np.broadcast_shapes(*(tuple(tensor.shape) for tensor in inputs)))
        result = self.context.like(self.node.outputs[0], op.lower(), shape)
        self.made.append(self.context.node(op, self.node, {}, list(inputs), result))
        return result

    def finish(self) -> list[gs.Node]:
        """The nodes, the last of which computes what the node did."""
        self.made[-1].outputs = list(self.node.outputs)
        return self.made


def is_wide(tensor: gs.Tensor) -> bool:
    """Whether a tensor is of integers that kernels of one operand may not have."""
    return np.dtype(tensor.dtype).kind in "iu" and tensor.dtype not in _NARROW


def relu(node: gs.Node, context: Context) -> Result:
    """Relu: the maximum with 0."""
    if not is_wide(node.inputs[0]):
        return None
    chain = _Chain(node, context)
    chain.add("Max", node.inputs[0], chain.constant(0))
    return chain.finish()


def sign(node: gs.Node, context: Context) -> Result:
    """Sign: what is left between -1 and 1."""
    kind = np.dtype(node.inputs[0].dtype).kind
    if kind not in "iu":
        return None
    chain = _Chain(node, context)
    below = chain.add("Min", node.inputs[0], chain.constant(1))
    if kind == "i":
        chain.add("Max", below, chain.constant(-1))
    return chain.finish()


def absolute(node: gs.Node, context: Context) -> Result:
    """Abs: the larger of a number and its negative."""
    x = node.inputs[0]
    if np.dtype(x.dtype).kind not in "iu" or x.dtype in (np.int16, np.int32, np.int64):
        return None
    if np.dtype(x.dtype).kind == "u":
        return x
    chain = _Chain(node, context)
    chain.add("Max", x, chain.add("Neg", x))
    return chain.finish()


def leaky(node: gs.Node, context: Context) -> Result:
    """PRelu: the positive part, and the negative part times the slope."""
    x, slope = node.inputs
    if np.dtype(x.dtype).kind not in "iu":
        return None
    chain = _Chain(node, context)
    zero = chain.constant(0)
    chain.add("Add", chain.add("Max", x, zero), chain.add("Mul", chain.add("Min", x, zero), slope))
    return chain.finish()


def power(node: gs.Node, context: Context) -> Result:
    """Pow with one whole exponent: squares and products."""
    x, exponent = node.inputs[0], operand(node, 1)
    if np.dtype(x.dtype).kind not in "iu" or exponent is None or exponent.size != 1:
        return None
    times = float(exponent.item())
    if not times.is_integer() or not 1 <= times <= _MOST_FACTORS or list(x.shape) != list(node.outputs[0].shape):
        return None
    chain, left, square, result = _Chain(node, context), int(times), x, None
    while left:
        if left % 2:
            result = square if result is None else chain.add("Mul", result, square)
        left //= 2
        square = chain.add("Mul", square, square) if left else square
    return chain.finish() if chain.made else x


def of_squares(node: gs.Node, context: Context) -> Result:
    """ReduceL1, ReduceSumSquare: the sum of absolute values or of squares."""
    plain, x = regions.reduction(node, context), node.inputs[0]
    if plain is not None or np.dtype(x.dtype).kind not in "iu":
        return plain
    chain = _Chain(node, context)
    if node.op == "ReduceSumSquare":
        node.inputs[0] = chain.add("Mul", x, x)
    elif np.dtype(x.dtype).kind == "i":
        node.inputs[0] = chain.add("Max", x, chain.add("Neg", x))
    node.op = "ReduceSum"
    return [*chain.made, node]


def mean(node: gs.Node, context: Context) -> Result:
    """ReduceMean: the sum over the number of elements, rounded towards 0; the dialect rounds otherwise, in an operator of its own."""
    plain, x = regions.reduction(node, context), node.inputs[0]
    if plain is not None or np.dtype(x.dtype).kind not in "iu" or context.is_dialect:
        return plain
    chain, total = _Chain(node, context), context.like(node.outputs[0], "sum", list(node.outputs[0].shape))
    chain.add("Div", total, chain.constant(math.prod(x.shape[axis] for axis in node.attrs["axes"])))
    quotient = chain.finish()
    node.op, node.outputs = "ReduceSum", [total]
    return [node, *quotient]
