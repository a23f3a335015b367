"""Operators element by element: arithmetic, functions, limits, comparisons, choices among values, bits.

Choosing commutes with quantisation, so that a quantised choice is one of integers in the quantisation of its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deeploy.frontend.lower.affine import affine_operands
from deeploy.frontend.lower.lookup import look_up, real_constant, relu_limits, unary_attributes
from deeploy.frontend.lower.products import biased_product
from deeploy.frontend.lower.quant import (
    byte_tensor,
    fixed_point_multiplier,
    quantise_values,
    repeat_parameters,
    rounding_half,
    ties_attribute,
)
from deeploy.frontend.lower.rule_call import RuleCall
from deeploy.ir.nodes import Tensor, compute, constant
from deeploy.ir.rewriting import Result, need, require
from deeploy.ir.types import DType

BINARY = {  # functions of the integer form's Binary
    **{op: op.lower() for op in ("Equal", "Less", "Greater", "And", "Or", "Max", "Min", "Pow", "Mod", "Add", "Sub", "Mul", "Div")},
    **{"LessOrEqual": "less_or_equal", "GreaterOrEqual": "greater_or_equal", "Xor": "not_equal", "BitShift": "shift"},
    **{"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor", "BitwiseNot": "bit_xor"},
}


def lower_arithmetic(call: RuleCall) -> Result:
    """Add, Sub, Mul, Div."""
    if call.result is None:
        is_function = call.y.dtype is DType.INT64 or (call.op == "Div" and call.y.dtype.is_integer)
        return lower_binary(call) if is_function else call.replace(call.op, *call.inputs)
    a, b = call.operand(0), call.operand(1)
    if a is None or b is None:
        return (biased_product(call) if call.op == "Add" else None) or _scale_and_shift(call)
    operands, zeros = (a.tensor, b.tensor), {"a_zero_point": a.z, "b_zero_point": b.z}
    if call.op == "Mul":
        return call.replace("Mul", *operands, ratio=np.float64(a.s) * b.s / call.step, **zeros)
    if call.op == "Div":
        # 31-bit numerators and 2^shift denominators: 8 more bits for a, 9 for b, one for rounding.
        mul, shift = fixed_point_multiplier(np.float64(a.s) / b.s / call.step)
        less = max(0, shift - 50)
        attrs = {"mul": int(mul[0]) >> less, "shift": shift - less, "zero_point": call.zero}
        return call.replace("ScaledDiv", *operands, **zeros, **attrs, **call.limits)
    # y = (a - za)*sa/sy +- (b - zb)*sb/sy + zy with one common shift
    mul, shift = fixed_point_multiplier(np.array([a.s, -b.s if call.op == "Sub" else b.s], np.float64) / call.step)
    mul_a, mul_b = mul.tolist()
    add = (call.zero << shift) - a.z * mul_a - b.z * mul_b + rounding_half(shift)
    attrs = {"mul_a": mul_a, "mul_b": mul_b, "add": add, "shift": shift, **ties_attribute(mul, shift, call.zero)}
    return call.replace("ScaledAdd", *operands, **attrs, **call.limits)


def _scale_and_shift(call: RuleCall) -> Result:
    """A dequantised tensor times and plus constants: multiplier and summand per element of them."""
    x = need(next((x for x in map(byte_tensor, call.inputs) if x is not None and x.tensor.data is None), None))
    return call.scale(x, *affine_operands(call.node, real_constant))


def batch_norm(call: RuleCall) -> Result:
    """(x - mean) * scale / sqrt(variance + epsilon) + bias per channel, on axis 1, from constants."""
    if call.result is not None or not call.x.dtype.is_float:
        return _scale_and_shift(call)
    factor, plus = affine_operands(call.node, real_constant)
    return call.replace("Add", call.create("Mul", call.x, constant(factor, label="factor")), constant(plus, label="summand"))


def lower_prelu(call: RuleCall) -> Result:
    """max(x, 0) + slope * min(x, 0): both parts quantised on their own, one of which is always the zero point."""
    x, slope = need(call.operand(0)), call.inputs[1]
    require(call.x.dtype.is_float)
    above, below = (compute("Clip", x.tensor, low=low, high=high) for low, high in ((x.z, None), (None, x.z)))
    if call.result is None:
        return call.replace("Add", above, call.create("Mul", below, slope))
    factor, (low, high) = need(real_constant(slope)).astype(np.float64), call.y.dtype.range
    require(factor.ndim <= call.y.rank)
    parts = (
        call.scale(replace(x, tensor=part), slopes, np.zeros_like(slopes), low=low, high=high)
        for part, slopes in ((above, np.ones(1)), (below, factor))
    )
    return call.replace("ScaledAdd", *parts, mul_a=1, mul_b=1, add=-call.zero, shift=0, **call.limits)


def lower_clip(call: RuleCall) -> Result:
    """Relu, Clip."""
    low, high = relu_limits(call.node) or (None, None)
    return call.replace("Clip", call.x, low=low, high=high)


def lower_unary(call: RuleCall) -> Result:
    """A function of one float tensor."""
    form = unary_attributes(call.node) if call.x.dtype.is_float else None
    return None if form is None else call.replace("Unary", call.x, **form)


def lower_negative(call: RuleCall) -> Tensor:
    """Integers times -1, or taken from 0 where no accumulator holds them."""
    x = call.x
    require(x.dtype.is_integer)
    if x.dtype is DType.INT64:
        return call.replace("Binary", constant([0], x.dtype), x, function="sub")
    return call.replace("Mul", x, constant([-1], DType.INT8))


def lower_abs(call: RuleCall) -> Result:
    """Abs of integers: the larger one of a value and its negative."""
    require(call.x.dtype in (DType.INT32, DType.INT64))
    return call.replace("Binary", call.x, lower_negative(call), function="max")


def lower_binary(call: RuleCall) -> Result:
    """A function of two, applied from left to right; quantised operands in the quantisation of the result.

    A complement is a difference from all ones.
    """
    inputs, name = _in_result_scale(call, call.inputs), BINARY[call.op]
    if call.op == "BitwiseNot":
        inputs.append(constant(~np.zeros(1, call.y.dtype.numpy)))
    elif call.op == "BitShift":
        name = f"shift_{call.attrs['direction'].lower()}"
    elif call.attrs.get("fmod", 0):
        name = "fmod"
    total, *others = inputs
    for tensor in others:
        total = compute("Binary", total, tensor, dtype=call.y.dtype, function=name)
    return total


def lower_where(call: RuleCall) -> Result:
    """Where."""
    return call.replace("Where", call.x, *_in_result_scale(call, call.inputs[1:]))


def compare_with_zero(call: RuleCall, name: str = "equal") -> Result:
    """Not; a Cast to bool, which asks whether an element differs from zero."""
    return call.replace("Binary", call.x, constant([0], call.x.dtype), function=name)


def lower_concat(call: RuleCall) -> Result:
    """Every quantised part in the scale of the whole; parts that have it already are taken as they are."""
    require(call.result is None or all(map(byte_tensor, call.inputs)))
    return call.replace("Concat", *_in_result_scale(call, call.inputs), axis=call.attrs["axis"])


def _in_result_scale(call: RuleCall, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors, each quantised or constant, in the quantisation of the result, within its limits."""
    y = call.result

    def convert(tensor: Tensor) -> Tensor:
        """By a table, or itself where it has that quantisation already."""
        if y is None:
            return tensor
        real = real_constant(tensor)
        if real is not None:
            return constant(np.clip(y.quantise(real), call.low, call.high), call.y.dtype)
        part = need(byte_tensor(tensor))
        return look_up(part.tensor, np.clip(y.quantise(part.every), call.low, call.high))

    return list(map(convert, tensors))


def lower_quantisation(call: RuleCall) -> Result:
    """Quantise or dequantise in floats; parameters broadcast to the tensor's axes, those of blocks are repeated."""
    x, is_quantise, axis, size = call.x, call.op == "QuantizeLinear", call.attrs.get("axis", 0), call.attrs.get("block_size", 0)
    scale, zero, integer = need(call.value(1)), need(call.value(2, np.zeros(1, np.int32))), call.y if is_quantise else x
    require(integer.dtype.is_integer, x.data is None or not call.is_output(call.y))
    blocks, (low, high) = scale.shape, integer.dtype.range

    def spread(values: np.ndarray, dtype: type[np.generic]) -> np.ndarray:
        if size:
            values = repeat_parameters(np.broadcast_to(values, blocks), size, axis, x.shape)
        shape = [1] * min(1, x.rank) if values.size == 1 else x.shape if size else [-1 if i == axis else 1 for i in range(x.rank)]
        return values.reshape(shape).astype(dtype)

    scale, zero = spread(scale, np.float32), spread(zero, np.int32)
    if x.data is not None and is_quantise:
        return constant(quantise_values(x.data, scale, zero, low, high), integer.dtype)
    if x.data is not None:
        return constant((x.data.astype(np.int64) - zero).astype(np.float32) * scale)
    operands = x, constant(scale, label="scale"), constant(zero, label="zero point")
    return call.replace("Quantize", *operands, low=low, high=high) if is_quantise else call.replace("Dequantize", *operands)
