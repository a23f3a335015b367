"""Operators element by element: arithmetic, functions, limits, comparisons, choices among values, bits.

Choosing commutes with quantisation, so that a quantised choice is one of integers in the quantisation of its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.call import PLAIN, Call
from deeploy.frontend.lower.lookup import converted, function, real_constant
from deeploy.frontend.lower.products import biased_product
from deeploy.frontend.lower.quant import Quantised, byte, half, limits, multiplier, quantise_values, repeated, ties
from deeploy.graph.rewrite import constant

BINARY = {  # functions of the integer form's Binary
    **{"Equal": "equal", "Less": "less", "LessOrEqual": "less_or_equal", "Greater": "greater", "GreaterOrEqual": "greater_or_equal"},
    **{"And": "and", "Or": "or", "Xor": "not_equal", "Max": "max", "Min": "min", "Pow": "pow"},
    **{"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor", "BitShift": "shift", "Mod": "mod"},
    **{"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"},
}


def arithmetic(call: Call) -> bool:
    """Add, Sub, Mul, Div."""
    if call.result is None:
        dtype = np.dtype(call.y.dtype)
        if dtype == np.int64 or (call.op == "Div" and dtype.kind in "iu"):
            return binary(call)
        return call.replace(call.op, *call.node.inputs, **(PLAIN if call.op == "Mul" else {}))
    a, b = call.operand(0), call.operand(1)
    if a is None or b is None:
        return (call.op == "Add" and biased_product(call)) or _affine(call)
    zeros, ends = {"a_zero_point": a.z, "b_zero_point": b.z}, {"low": call.low, "high": call.high}
    if call.op == "Mul":
        constants, stage = call.requantisation(np.float64(a.s) * b.s / call.step)
        return call.replace("Mul", a.tensor, b.tensor, *constants, **zeros, **stage)
    if call.op == "Div":
        # 31-bit numerators and 2^shift denominators: 8 more bits for a, 9 for b, one for rounding.
        mul, shift = multiplier(np.float64(a.s) / b.s / call.step)
        less = max(0, shift - 50)
        attrs = {"mul": int(mul[0]) >> less, "shift": shift - less, "zero_point": call.zero}
        return call.replace("ScaledDiv", a.tensor, b.tensor, **zeros, **attrs, **ends)
    # y = (a - za)*sa/sy +- (b - zb)*sb/sy + zy with one common shift
    mul, shift = multiplier(np.array([a.s, -b.s if call.op == "Sub" else b.s], np.float64) / call.step)
    mul_a, mul_b = (int(m) for m in mul)
    add = (call.zero << shift) - a.z * mul_a - b.z * mul_b + half(shift)
    more = {"mul_a": mul_a, "mul_b": mul_b, "add": add, "shift": shift, **ties(mul, shift, call.zero)}
    return call.replace("ScaledAdd", a.tensor, b.tensor, **more, **ends)


def _affine(call: Call) -> bool:
    """A dequantised tensor plus, minus or times an array of constants: multiplier and summand per element of the array."""
    for position in (0, 1):
        x, c = call.operand(position), real_constant(call.node.inputs[1 - position])
        if x is None or c is None or isinstance(x.tensor, gs.Constant):
            continue
        if list(x.tensor.shape) != list(call.y.shape) or (call.op == "Div" and (position == 1 or not c.all())):
            return False
        real = c.astype(np.float64)
        factor, plus = np.ones_like(real), np.zeros_like(real)
        if call.op in ("Mul", "Div"):
            factor = real if call.op == "Mul" else 1 / real
        elif call.op == "Sub":
            factor, plus = (-factor, real) if position == 1 else (factor, -real)
        else:
            plus = real
        return _scaled(call, x, factor, plus)
    return False


def _scaled(call: Call, x: Quantised, factor: np.ndarray, plus: np.ndarray) -> bool:
    constants, attrs = call.scaling(x, factor, plus)
    return call.replace("RequantShift", x.tensor, *constants, **attrs)


def batch_norm(call: Call) -> bool:
    """(x - mean) * scale / sqrt(variance + epsilon) + bias per channel, on axis 1, from constants."""
    x, values = call.operand(0), [real_constant(t) for t in call.node.inputs[1:5]]
    if x is None or any(v is None for v in values) or len(call.node.outputs) > 1 or not call.is_float:
        return False
    shape = [-1] + [1] * (len(call.x.shape) - 2)
    scale, bias, mean, variance = (np.asarray(v, np.float64).reshape(shape) for v in values)
    factor = scale / np.sqrt(variance + call.attrs.get("epsilon", 1e-5))
    plus = bias - mean * factor
    if call.result is not None:
        return _scaled(call, x, factor, plus)
    return call.replace(
        "Add", call.create("Mul", call.x, call.constant(factor, label="factor"), **PLAIN), call.constant(plus, label="summand")
    )


def prelu(call: Call) -> bool:
    """max(x, 0) + slope * min(x, 0): both parts quantised on their own, one of which is always the zero point."""
    if call.result is None and unary(call):
        return True
    x, slope, rank = call.operand(0), real_constant(call.node.inputs[1]), len(call.y.shape)
    if x is None or not call.is_float or (call.result is not None and (slope is None or slope.ndim > rank)):
        return False
    parts = [call.create("Clip", x.tensor, low=low, high=high) for low, high in ((x.z, None), (None, x.z))]
    if call.result is None or slope is None:
        return call.replace("Add", parts[0], call.create("Mul", parts[1], call.node.inputs[1], **PLAIN))
    for i, factor in enumerate((np.ones(1), slope.astype(np.float64))):
        constants, attrs = call.scaling(replace(x, tensor=parts[i]), factor, np.zeros_like(factor), limits(call.y))
        parts[i] = call.create("RequantShift", parts[i], *constants, dtype=call.y.dtype, **attrs)
    return call.replace("ScaledAdd", *parts, mul_a=1, mul_b=1, add=-call.zero, shift=0, low=call.low, high=call.high)


def clip(call: Call) -> bool:
    """Relu, Clip."""
    low, high = (0, None) if call.op == "Relu" else (call.attrs["min"], call.attrs["max"])
    return call.replace("Clip", call.x, low=low, high=high)


def unary(call: Call) -> bool:
    """A function of one float tensor."""
    found = function(call.node) if call.is_float else None
    return found is not None and call.replace("Unary", call.x, function=found[0], alpha=found[1], beta=found[2])


def power(call: Call) -> bool:
    return unary(call) or binary(call)


def negative(call: Call) -> bool:
    return unary(call) or (np.dtype(call.x.dtype).kind in "iu" and call.finish(_negative(call)))


def _negative(call: Call) -> gs.Tensor:
    """Integers times -1, or taken from 0 where no accumulator holds them."""
    if np.dtype(call.x.dtype) == np.int64:
        return call.create("Binary", call.constant([0], np.int64), call.x, shape=call.x.shape, function="sub")
    return call.create("Mul", call.x, call.constant([-1], np.int8), shape=call.x.shape, **PLAIN)


def size(call: Call) -> bool:
    """Abs: of integers, the larger one of a value and its negative."""
    is_wide = np.dtype(call.x.dtype) in (np.int32, np.int64)
    return unary(call) or (is_wide and call.replace("Binary", call.x, _negative(call), function="max"))


def binary(call: Call) -> bool:
    """A function of two, applied from left to right; quantised operands in the quantisation of the result."""
    inputs = _in_result_scale(call, call.node.inputs)
    return inputs is not None and _chain(call, BINARY[call.op], inputs)


def _chain(call: Call, name: str, inputs: Sequence[gs.Tensor]) -> bool:
    total, *others = inputs
    for tensor in others:
        total = call.create("Binary", total, tensor, dtype=call.y.dtype, function=name)
    return call.finish(total)


def where(call: Call) -> bool:
    condition, *values = call.node.inputs
    inputs = _in_result_scale(call, values)
    return inputs is not None and call.replace("Where", condition, *inputs)


def bits(call: Call) -> bool:
    """Functions of bits and remainders; a complement is a difference from all ones."""
    inputs, name = list(call.node.inputs), BINARY.get(call.op, "bit_xor")
    if call.op == "BitwiseNot":
        inputs.append(call.constant([~np.dtype(call.y.dtype).type(0)], call.y.dtype))
    elif call.op == "BitShift":
        name = f"shift_{call.attrs['direction'].lower()}"
    elif call.attrs.get("fmod", 0):
        name = "fmod"
    return _chain(call, name, inputs)


def compared_with_zero(call: Call, name: str = "equal") -> bool:
    """Not; a Cast to bool, which asks whether an element differs from zero."""
    return call.replace("Binary", call.x, call.constant([0], call.x.dtype), function=name)


def concat(call: Call) -> bool:
    """Every quantised part in the scale of the whole; parts that have it already are taken as they are."""
    inputs = call.node.inputs
    if call.result is not None and any(byte(t) is None for t in inputs):
        return False
    parts = _in_result_scale(call, inputs)
    return parts is not None and call.replace("Concat", *parts, axis=call.attrs["axis"])


def _in_result_scale(call: Call, tensors: Sequence[gs.Tensor]) -> list[gs.Tensor] | None:
    """Tensors in the quantisation of the result, within its limits; None where one is neither quantised nor constant."""
    y = call.result
    if y is None:
        return list(tensors)
    if any(byte(t) is None and real_constant(t) is None for t in tensors):
        return None
    return [_quantised(call, y, t) for t in tensors]


def _quantised(call: Call, y: Quantised, tensor: gs.Tensor) -> gs.Tensor:
    """A tensor in the quantisation of the result: itself where it has that already, else by a table."""
    part = byte(tensor)
    if part is None:
        real = np.asarray(real_constant(tensor))
        return call.constant(np.clip(quantise_values(real, y.s, y.z, *limits(call.y)), call.low, call.high), call.y.dtype)
    values = np.clip(converted(part, y), call.low, call.high)
    stored, (first, last) = constant(part.tensor), limits(call.y)
    if stored is not None:
        return call.constant(values[stored.astype(np.int64) - limits(part.tensor)[0]])
    if np.dtype(part.tensor.dtype) == call.y.dtype and np.array_equal(values, np.arange(first, last + 1)):
        return part.tensor
    return call.create("Lookup", part.tensor, call.constant(values, label="table"), dtype=call.y.dtype)


def quantisation(call: Call) -> bool:
    """Quantise or dequantise in floats; parameters broadcast to the tensor's axes, those of blocks are repeated."""
    x, is_quantise, size = call.x, call.op == "QuantizeLinear", call.attrs.get("block_size", 0)
    scale, integer = call.value(1), call.y if is_quantise else x
    zero = call.value(2) if call.input(2) is not None else np.zeros(1, np.int32)
    if scale is None or zero is None or np.dtype(integer.dtype).kind not in "iu":
        return False
    shape = [1] * len(x.shape)
    if size:
        shape = x.shape
        scale, zero = (repeated(np.broadcast_to(a, scale.shape), size, call.attrs["axis"], x.shape) for a in (scale, zero))
    elif scale.size > 1 or zero.size > 1:
        shape[call.attrs["axis"]] = -1
    scale, zero = (
        a.astype(dtype).reshape(shape if a.size > 1 else [1] * min(1, len(shape))) for a, dtype in ((scale, np.float32), (zero, np.int32))
    )
    values = constant(x)
    if values is not None:
        real = (
            call.constant((values.astype(np.int64) - zero).astype(np.float32) * scale)
            if not is_quantise
            else call.constant(quantise_values(values, scale, zero, *limits(call.y)), call.y.dtype)
        )
        for reader in list(call.y.outputs):
            reader.inputs = [real if t is call.y else t for t in reader.inputs]
        is_output = any(call.y is out for out in call.graph.outputs)
        call.node.outputs = [call.y] if is_output else []
        return not is_output
    low, high = limits(integer)
    ends = {"low": low, "high": high} if is_quantise else {}
    return call.replace(
        "Quantize" if is_quantise else "Dequantize", x, call.constant(scale, label="scale"), call.constant(zero, label="zero point"), **ends
    )
