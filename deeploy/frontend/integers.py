"""Operators on integers by others that are exact in all their types: no kernel has to have these for every type.

Powers have whole constant exponents, and sums wrap around as ONNX's and C's of unsigned types do.
"""

from __future__ import annotations

import math

from deeploy.frontend import regions
from deeploy.frontend.rules import Draft, constant_operand
from deeploy.ir.nodes import Tensor
from deeploy.ir.types import DType

_MOST_FACTORS = 63  # of a power: a larger one of anything but 0, 1 and -1 overflows 64 bits
_NARROW = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32)  # types that kernels of Relu and Clip have


def is_wide(tensor: Tensor) -> bool:
    """Whether a tensor is of integers that kernels of one operand may not have."""
    return tensor.dtype.is_integer and tensor.dtype not in _NARROW


def lower_relu(node: Draft) -> Tensor | None:
    """Relu: the maximum with 0."""
    return node.x.apply("Max", 0) if is_wide(node.x) else None


def lower_sign(node: Draft) -> Tensor | None:
    """Sign: what is left between -1 and 1."""
    if not node.x.dtype.is_integer:
        return None
    below = node.x.apply("Min", 1)
    return below.apply("Max", -1) if node.x.dtype.range[0] else below


def lower_absolute(node: Draft) -> Tensor | None:
    """Abs: the larger of a number and its negative; of types that no kernel has it for."""
    is_left = not node.x.dtype.is_integer or node.x.dtype in (DType.INT16, DType.INT32, DType.INT64)
    return None if is_left else _magnitude(node.x)


def _magnitude(x: Tensor) -> Tensor:
    return x.apply("Max", x.apply("Neg")) if x.dtype.range[0] else x


def lower_leaky(node: Draft) -> Tensor | None:
    """PRelu: the positive part, and the negative part times the slope."""
    return node.x.apply("Max", 0) + node.x.apply("Min", 0) * node.needed(1) if node.x.dtype.is_integer else None


def lower_power(node: Draft) -> Tensor | None:
    """Pow with one whole exponent: squares and products."""
    exponent = constant_operand(node, 1)
    if not node.x.dtype.is_integer or exponent is None or exponent.size != 1 or node.x.shape != node.y.shape:
        return None
    times = float(exponent.item())
    if not times.is_integer() or not 1 <= times <= _MOST_FACTORS:
        return None
    result: Tensor | None = None
    left, square = int(times), node.x
    while left:
        if left % 2:
            result = square if result is None else result * square
        left //= 2
        square = square * square if left else square
    return result


def of_squares(node: Draft) -> Tensor | None:
    """ReduceL1, ReduceSumSquare: the sum of absolute values or of squares."""
    plain = regions.normalise_reduction(node)
    if plain is None and node.x.dtype.is_integer:
        node.inputs[0] = node.x * node.x if node.op == "ReduceSumSquare" else _magnitude(node.x)
        node.op = "ReduceSum"
    return plain


def lower_mean(node: Draft) -> Tensor | None:
    """ReduceMean: the sum over the number of elements, rounded towards 0; the dialect rounds otherwise, in an operator of its own."""
    plain = regions.normalise_reduction(node)
    if plain is not None or not node.x.dtype.is_integer or node.is_dialect:
        return plain
    axes: list[int] = node.attrs["axes"]
    return node.x.reduce("Sum", *axes, keepdims=node.attrs["keepdims"]) / math.prod(node.x.shape[axis] for axis in axes)
