"""Operators element by element: arithmetic, functions, limits, comparisons, choices among values, bits.

Choosing commutes with quantisation, so that a quantised choice is one of integers in the quantisation of its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deeploy.frontend.lower.affine import affine
from deeploy.frontend.lower.call import Call
from deeploy.frontend.lower.lookup import function, limits, look_up, real_constant
from deeploy.frontend.lower.products import biased_product
from deeploy.frontend.lower.quant import Quantised, byte, half, multiplier, quantise_values, repeated, ties
from deeploy.graph.nodes import Tensor, constant
from deeploy.graph.rewriting import Result
from deeploy.graph.types import DType

BINARY = {  # functions of the integer form's Binary
    **{"Equal": "equal", "Less": "less", "LessOrEqual": "less_or_equal", "Greater": "greater", "GreaterOrEqual": "greater_or_equal"},
    **{"And": "and", "Or": "or", "Xor": "not_equal", "Max": "max", "Min": "min", "Pow": "pow"},
    **{"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor", "BitShift": "shift", "Mod": "mod"},
    **{"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"},
}


def arithmetic(call: Call) -> Result:
    """Add, Sub, Mul, Div."""
    if call.result is None:
        is_function = call.y.dtype is DType.INT64 or (call.op == "Div" and call.y.dtype.is_integer)
        return binary(call) if is_function else call.replace(call.op, *call.inputs)
    a, b = call.operand(0), call.operand(1)
    if a is None or b is None:
        return (biased_product(call) if call.op == "Add" else None) or _affine(call)
    operands, zeros = (a.tensor, b.tensor), {"a_zero_point": a.z, "b_zero_point": b.z}
    if call.op == "Mul":
        return call.replace("Mul", *operands, ratio=np.float64(a.s) * b.s / call.step, **zeros)
    if call.op == "Div":
        # 31-bit numerators and 2^shift denominators: 8 more bits for a, 9 for b, one for rounding.
        mul, shift = multiplier(np.float64(a.s) / b.s / call.step)
        less = max(0, shift - 50)
        attrs = {"mul": int(mul[0]) >> less, "shift": shift - less, "zero_point": call.zero}
        return call.replace("ScaledDiv", *operands, **zeros, **attrs, **call.limits)
    # y = (a - za)*sa/sy +- (b - zb)*sb/sy + zy with one common shift
    mul, shift = multiplier(np.array([a.s, -b.s if call.op == "Sub" else b.s], np.float64) / call.step)
    mul_a, mul_b = mul.tolist()
    add = (call.zero << shift) - a.z * mul_a - b.z * mul_b + half(shift)
    attrs = {"mul_a": mul_a, "mul_b": mul_b, "add": add, "shift": shift, **ties(mul, shift, call.zero)}
    return call.replace("ScaledAdd", *operands, **attrs, **call.limits)


def _affine(call: Call) -> Result:
    """A dequantised tensor times and plus constants: multiplier and summand per element of them."""
    x, found = next((x for x in map(byte, call.inputs) if x is not None and x.tensor.data is None), None), affine(call.node, real_constant)
    return None if x is None or found is None else call.scale(x, *found)


def batch_norm(call: Call) -> Result:
    """(x - mean) * scale / sqrt(variance + epsilon) + bias per channel, on axis 1, from constants."""
    found = affine(call.node, real_constant) if call.x.dtype.is_float else None
    if call.result is not None or found is None:
        return _affine(call)
    factor, plus = found
    return call.replace("Add", call.create("Mul", call.x, constant(factor, label="factor")), constant(plus, label="summand"))


def prelu(call: Call) -> Result:
    """max(x, 0) + slope * min(x, 0): both parts quantised on their own, one of which is always the zero point."""
    x, slope = call.operand(0), real_constant(call.inputs[1])
    if x is None or not call.x.dtype.is_float:
        return None
    above, below = (call.create("Clip", x.tensor, low=low, high=high) for low, high in ((x.z, None), (None, x.z)))
    if call.result is None:
        return call.replace("Add", above, call.create("Mul", below, call.inputs[1]))
    if slope is None or slope.ndim > call.y.rank:
        return None
    low, high = call.y.dtype.range
    parts = (
        call.scale(replace(x, tensor=part), factor, np.zeros_like(factor), low=low, high=high)
        for part, factor in ((above, np.ones(1)), (below, slope.astype(np.float64)))
    )
    return call.replace("ScaledAdd", *parts, mul_a=1, mul_b=1, add=-call.zero, shift=0, **call.limits)


def clip(call: Call) -> Result:
    """Relu, Clip."""
    low, high = limits(call.node) or (None, None)
    return call.replace("Clip", call.x, low=low, high=high)


def unary(call: Call) -> Result:
    """A function of one float tensor."""
    found = function(call.node) if call.x.dtype.is_float else None
    if found is None:
        return None
    name, alpha, beta = found
    return call.replace("Unary", call.x, function=name, alpha=alpha, beta=beta)


def negative(call: Call) -> Tensor | None:
    """Integers times -1, or taken from 0 where no accumulator holds them."""
    x = call.x
    if x.dtype is DType.INT64:
        return call.replace("Binary", constant([0], x.dtype), x, function="sub")
    return call.replace("Mul", x, constant([-1], DType.INT8)) if x.dtype.is_integer else None


def size(call: Call) -> Result:
    """Abs of integers: the larger one of a value and its negative."""
    is_wide = call.x.dtype in (DType.INT32, DType.INT64)
    return call.replace("Binary", call.x, negative(call), function="max") if is_wide else None


def binary(call: Call) -> Result:
    """A function of two, applied from left to right; quantised operands in the quantisation of the result.

    A complement is a difference from all ones.
    """
    inputs, name = _in_result_scale(call, call.inputs), BINARY.get(call.op, "bit_xor")
    if inputs is None:
        return None
    if call.op == "BitwiseNot":
        inputs.append(constant(~np.zeros(1, call.y.dtype.numpy)))
    elif call.op == "BitShift":
        name = f"shift_{call.attrs['direction'].lower()}"
    elif call.attrs.get("fmod", 0):
        name = "fmod"
    total, *others = inputs
    for tensor in others:
        total = call.create("Binary", total, tensor, dtype=call.y.dtype, function=name)
    return total


def where(call: Call) -> Result:
    """Where."""
    inputs = _in_result_scale(call, call.inputs[1:])
    return None if inputs is None else call.replace("Where", call.x, *inputs)


def compared_with_zero(call: Call, name: str = "equal") -> Result:
    """Not; a Cast to bool, which asks whether an element differs from zero."""
    return call.replace("Binary", call.x, constant([0], call.x.dtype), function=name)


def concat(call: Call) -> Result:
    """Every quantised part in the scale of the whole; parts that have it already are taken as they are."""
    is_mixed = call.result is not None and any(byte(tensor) is None for tensor in call.inputs)
    parts = None if is_mixed else _in_result_scale(call, call.inputs)
    return None if parts is None else call.replace("Concat", *parts, axis=call.attrs["axis"])


def _in_result_scale(call: Call, tensors: Sequence[Tensor]) -> list[Tensor] | None:
    """Tensors in the quantisation of the result, within its limits; None where one is neither quantised nor constant."""
    y = call.result
    if y is None:
        return list(tensors)
    found = [_quantised(call, y, tensor) for tensor in tensors]
    return None if None in found else [tensor for tensor in found if tensor is not None]


def _quantised(call: Call, y: Quantised, tensor: Tensor) -> Tensor | None:
    """A tensor in the quantisation of the result: itself where it has that already, else by a table."""
    part, real = byte(tensor), real_constant(tensor)
    if real is not None:
        return constant(np.clip(y.quantise(real), call.low, call.high), call.y.dtype)
    return None if part is None else look_up(call, part.tensor, np.clip(y.quantise(part.every), call.low, call.high))


def quantisation(call: Call) -> Result:
    """Quantise or dequantise in floats; parameters broadcast to the tensor's axes, those of blocks are repeated."""
    x, is_quantise, axis, size = call.x, call.op == "QuantizeLinear", call.attrs.get("axis", 0), call.attrs.get("block_size", 0)
    scale, zero, integer = call.value(1), call.value(2, np.zeros(1, np.int32)), call.y if is_quantise else x
    if scale is None or zero is None or not integer.dtype.is_integer or (x.data is not None and call.is_output(call.y)):
        return None
    blocks, (low, high) = scale.shape, integer.dtype.range

    def spread(values: np.ndarray, dtype: type[np.generic]) -> np.ndarray:
        if size:
            values = repeated(np.broadcast_to(values, blocks), size, axis, x.shape)
        shape = [1] * min(1, x.rank) if values.size == 1 else x.shape if size else [-1 if i == axis else 1 for i in range(x.rank)]
        return values.reshape(shape).astype(dtype)

    scale, zero = spread(scale, np.float32), spread(zero, np.int32)
    if x.data is not None and is_quantise:
        return constant(quantise_values(x.data, scale, zero, low, high), integer.dtype)
    if x.data is not None:
        return constant((x.data.astype(np.int64) - zero).astype(np.float32) * scale)
    operands = x, constant(scale, label="scale"), constant(zero, label="zero point")
    return call.replace("Quantize", *operands, low=low, high=high) if is_quantise else call.replace("Dequantize", *operands)
