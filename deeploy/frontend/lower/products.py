"""Convolutions and matrix products.

Those of integers whose zero point is computed at run time are computed of the bytes as they are: the zero point of the data, times the
sums of the weights, is subtracted from them. Exact, as ONNX defines each operator.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.quant import behind_dequantisation, centre_weights, plain_tensor
from deeploy.frontend.lower.rule_call import RuleCall, is_image, spatial_pair, two_dimensional_filters, widen_bias, window_attributes
from deeploy.frontend.lower.transposed import Phases
from deeploy.frontend.schemas import Attributes
from deeploy.ir.nodes import Tensor, compute, constant
from deeploy.ir.rewriting import Result, attempt, need, require
from deeploy.ir.types import DType
from deeploy.operators.conv import CONV


def lower_convolution(call: RuleCall) -> Result:
    """Conv, ConvTranspose."""
    x, weights, axis = need(call.operand(0)), call.inputs[1], int(call.op == "ConvTranspose")
    require(is_image(call.x))
    attrs: Attributes = {**window_attributes(call.attrs), "group": call.attrs["group"], "zero_point": x.z}
    if axis:
        attrs["output_padding"] = spatial_pair(call.attrs["output_padding"], 0)
        result = attempt(transposed_convolution, call)
        if result is not None:
            return result
    if call.result is None:
        bias = [widen_bias(tensor) for tensor in call.inputs[2:]]
        weights = weights.reshape([*weights.shape[:2], 1, weights.shape[2]]) if weights.rank == 3 else weights
        return call.replace_image(call.op, call.image(call.x), weights, *bias, epilogue=("bias",) * len(bias), **attrs)
    w = need(behind_dequantisation(weights))
    require(w.is_scalar or w.axis == axis, w.scale.size in (1, weights.shape[axis]))
    values, repeats = need(centre_weights(w)), call.attrs["group"] if axis and w.scale.size > 1 else 1
    unit = np.tile(w.scale.ravel().astype(np.float64), repeats) * x.s
    offset = _find_bias(call.input(2), unit, call.y.shape[1])
    offset = offset if axis else offset - x.z * _sum_filters(values)
    operands = call.image(x.tensor), constant(two_dimensional_filters(values), label="weights")
    return call.replace_image(call.op, *operands, ratio=unit / call.step, offset=offset, **attrs)


def transposed_convolution(call: RuleCall) -> Result:
    """ConvTranspose: a convolution of all phases; integers need constant filters."""
    x, weights, bias = need(call.operand(0)), call.inputs[1], call.input(2)
    if call.result is None:
        require(x.z == 0)
    else:
        w = need(behind_dequantisation(weights))
        require(w.is_scalar or w.axis == 1, w.scale.size in (1, weights.shape[1]))
        values, repeats = need(centre_weights(w)), call.attrs["group"] if w.scale.size > 1 else 1
        unit = np.tile(w.scale.ravel().astype(np.float64), repeats) * x.s
        offset, weights = _find_bias(bias, unit, call.y.shape[1]), constant(values, label="weights")
    weights = weights.reshape([*weights.shape[:2], 1, weights.shape[2]]) if weights.rank == 3 else weights
    phases = Phases.of(call, (weights.shape[2], weights.shape[3]))
    of_phases = phases.filters(weights)
    operands = [call.image(x.tensor), of_phases]
    given = {**phases.attributes, "shape": phases.shape(call), "dtype": call.y.dtype, "zero_point": x.z, "label": "phases"}
    if call.result is not None:
        product = call.create(
            CONV.name,
            *operands,
            ratio=phases.of_all(unit) / call.step,
            offset=phases.of_all(offset) - x.z * _sum_filters(need(of_phases.data)),
            **given,
        )
    else:
        stage = [] if bias is None else [widen_bias(phases.biases(bias))]
        product = call.create(CONV.name, *operands, *stage, epilogue=("bias",) * len(stage), **given)
    return phases.interleave(call, product)


def _sum_filters(weights: np.ndarray) -> np.ndarray:
    return np.asarray(weights.sum(axis=tuple(range(1, weights.ndim)), dtype=np.int64))


def integer_convolution(call: RuleCall) -> Result:
    """ConvInteger: the zero point of the weights is in the weights, that of the input in the operator where it is constant.

    Where it is computed, borders are filled before the quantisation, where they are 0, so that it counts for every tap.
    """
    x, zero, pads, weights = call.x, call.input(2), call.attrs["pads"], need(_centre_weights(call, 0))
    require(is_image(x), zero is None or zero.elements == 1)
    attrs: Attributes = {**window_attributes(call.attrs), "group": call.attrs["group"]}
    known, factor, sums = (
        0 if zero is None else zero.number,
        constant(two_dimensional_filters(weights), label="weights"),
        _sum_filters(weights),
    )
    if known is not None:
        bias = constant(-known * sums, DType.INT32, "bias")
        return call.replace_image(CONV.name, call.image(x), factor, bias, zero_point=known, epilogue=("bias",), **attrs)
    if any(pads):
        source, (before, after) = need(x.made_by("Quantize")), np.array(pads).reshape(2, -1).tolist()
        wider = compute("Pad", source.operands[0], pads=(0, 0, *before, 0, 0, *after), mode="constant", value=0)
        x, attrs["pads"] = compute("Quantize", wider, *source.operands[1:], dtype=x.dtype, **source.attrs), (0, 0, 0, 0)
    products = call.create_image(CONV.name, call.image(x), factor, zero_point=0, epilogue=(), **attrs)
    return call.replace_image("Sub", products, _correct_zero_point(call, sums))


def integer_product(call: RuleCall) -> Result:
    """MatMulInteger: zero points that are constant, one for each operand, are attributes of the product.

    Others are computed, or several for the rows of a or the columns of b. The sum of (a - za) * (b - zb) over a depth is that of a * b,
    less za times the sum of b, less zb times the sum of a - za. The second term is absent where b is constant, from which zb is subtracted.
    """
    a, b = call.inputs[:2]
    require(min(a.rank, b.rank) > 1)
    weights = _centre_weights(call, b.rank - 1)
    known = [0 if zero is None else zero.number for zero in (call.input(2), call.input(3))]
    if weights is not None and None in known:
        b, known[1] = constant(weights, label="weights"), 0
    if None not in known:
        return call.replace("MatMul", a, b, a_zero_point=known[0], b_zero_point=known[1])
    products = call.replace("MatMul", a, b)
    if weights is not None:
        return call.replace("Sub", products, _correct_zero_point(call, weights.sum(axis=-2, keepdims=weights.ndim > 2, dtype=np.int64)))
    rows, columns = (
        compute("ReduceSum", x, dtype=DType.INT32, axes=(x.rank - back,), keepdims=True, label=label)
        for x, back, label in ((a, 1, "sums of rows"), (b, 2, "sums of columns"))
    )
    zero, depth = _read_zero_points(call, 2), constant([a.shape[-1]], DType.INT32, "depth")
    centre = compute("Sub", rows, call.create("Mul", depth, zero, label="zero points of a row"))
    first = call.create("Mul", columns, zero, label="correction of a")
    second = call.create("Mul", centre, _read_zero_points(call, 3), label="correction of b")
    return call.replace("Sub", compute("Sub", products, first, label="products"), second)


def _centre_weights(call: RuleCall, axis: int) -> np.ndarray | None:
    """The constant weights minus their zero points; None where they are not constant.

    There is one zero point, one per entry along an axis, or an array of as many axes as the weights, which broadcasts.
    """
    weights, zero = call.inputs[1], call.value(3, np.zeros(1))
    known = zero is not None and (zero.size in (1, weights.shape[axis]) or zero.ndim == weights.rank)
    return (
        centre_weights(replace(plain_tensor(weights), zero_point=zero.astype(np.int64), axis=axis)) if zero is not None and known else None
    )


def _read_zero_points(call: RuleCall, position: int) -> Tensor:
    """Zero points of a product's operand in int32, as they broadcast over its result: one, or one per row of a or column of b."""
    given = call.input(position) or constant([0], DType.INT32)
    source, behind = call.inputs[position - 2].made_by("Quantize"), given
    while node := behind.made_by("Reshape", "Cast"):
        behind = node.operands[0]
    if source and source.operands[2] is behind:
        return behind
    per_row = position == 2 and given.rank == 1 and given.elements > 1
    shaped = given.reshape([1] if given.elements == 1 else [*given.shape, 1] if per_row else given.shape)
    return shaped.cast(DType.INT32) if shaped.data is None else constant(shaped.data, DType.INT32, "zero points")


def _correct_zero_point(call: RuleCall, sums: np.ndarray) -> Tensor:
    """What the zero point of the data contributes to the products with weights of these sums."""
    return call.create("Mul", constant(sums, DType.INT32, "sums of weights"), _read_zero_points(call, 2), label="correction")


def _find_bias(tensor: Tensor | None, unit: np.ndarray, channels: int) -> np.ndarray:
    """A bias in integer steps of ``unit`` (the product of both scales), one per channel."""
    if tensor is None:
        return np.zeros(1, np.int64)
    q = behind_dequantisation(tensor)
    steps = None if q is None or q.tensor.elements != channels else q.tensor.data
    if q is not None and steps is not None and np.allclose(q.scale.astype(np.float64).ravel(), unit, rtol=1e-5, atol=0):
        return np.asarray(steps.astype(np.int64) - q.zero_point.ravel()).ravel()
    real = need(real_constant(tensor))
    require(real.size in (1, channels))
    return np.asarray(np.rint(np.broadcast_to(real.ravel(), (channels,)).astype(np.float64) / unit).astype(np.int64))


def _read_flags(call: RuleCall) -> Attributes:
    return {"trans_a": bool(call.attrs.get("transA", 0)), "trans_b": bool(call.attrs.get("transB", 0))}


def lower_product(call: RuleCall) -> Result:
    """Gemm, MatMul."""
    alpha, beta = call.attrs.get("alpha", 1.0), call.attrs.get("beta", 1.0)
    summand = call.input(2) if beta else None
    if call.result is not None:
        return _quantised_product(call, summand)
    if not call.y.dtype.is_float and (alpha, beta if summand is not None else 1) != (1, 1):
        return _weighted_product(call, alpha, summand, beta)
    operands, stage = [call.x, multiply_by(call, call.inputs[1], alpha)], _read_flags(call)
    if summand is not None:
        summand = multiply_by(call, summand, beta)
        values = summand.data
        if values is not None and (values.size == 1 or values.size == values.shape[-1] == call.y.shape[-1]):
            operands.append(widen_bias(constant(values.ravel(), label="bias")))
            summand, stage["epilogue"] = None, ("bias",)
    result = call.replace("MatMul", *operands, **stage)
    return result if summand is None else call.replace("Add", result, summand)


def _weighted_product(call: RuleCall, alpha: float, summand: Tensor | None, beta: float) -> Result:
    """A product of integers with whole factors; other factors have no meaning there."""
    require(float(alpha).is_integer(), float(beta).is_integer())
    result = call.create("MatMul", *call.inputs[:2], shape=call.y.shape, dtype=call.y.dtype, **_read_flags(call))
    if summand is None:
        return call.replace("Mul", result, constant([int(alpha)], DType.INT32))
    result = result if alpha == 1 else call.create("Mul", result, constant([int(alpha)], DType.INT32))
    if summand.data is not None:
        return call.replace("Add", result, constant(summand.data.astype(np.int64) * int(beta), DType.INT32, "summand"))
    return call.replace("Add", result, call.create("Mul", summand, constant([int(beta)], DType.INT32)))


def multiply_by(call: RuleCall, x: Tensor, factor: float) -> Tensor:
    """A float tensor times a number; a constant is multiplied at once."""
    if factor == 1:
        return x
    return call.create("Mul", x, constant([factor], x.dtype)) if x.data is None else constant(x.data * np.float32(factor))


def _quantised_product(call: RuleCall, summand: Tensor | None) -> Result:
    a, b, flags = need(call.operand(0)), need(behind_dequantisation(call.inputs[1])), _read_flags(call)
    channels, columns, weights = call.y.shape[-1], b.tensor.rank - 1 - flags["trans_b"], centre_weights(b)
    require(b.is_byte, min(a.tensor.rank, b.tensor.rank) > 1, b.scale.size in (1, channels))
    require(b.is_scalar or (weights is not None and b.axis % b.tensor.rank == columns))
    require(summand is None or summand.shape[-1:] in ((), (1,), (channels,)))
    unit = b.scale.ravel().astype(np.float64) * a.s * call.attrs.get("alpha", 1.0)
    offset = _find_bias(summand, unit / (call.attrs.get("beta", 1.0) or 1.0), channels)
    factor, zeros = b.tensor, {"a_zero_point": a.z, "b_zero_point": b.z}
    if weights is not None:
        factor, zeros["b_zero_point"] = constant(weights, label="weights"), 0
        if weights.ndim == 2 and a.z:
            offset = offset - a.z * weights.sum(axis=1 - columns, dtype=np.int64)
            zeros["a_zero_point"] = 0
    return call.replace("MatMul", a.tensor, factor, ratio=unit / call.step, offset=offset, **flags, **zeros)


def biased_product(call: RuleCall) -> Result:
    """A quantised matrix product and the Add of a constant row behind it."""
    for summed, bias in (call.inputs, call.inputs[::-1]):
        front, real = call.source(summed, "MatMul"), real_constant(bias)
        is_row = real is not None and real.shape[-1:] == call.y.shape[-1:] == (real.size,)
        if front is not None and is_row and len(call.readers(summed)) == 1:
            return _quantised_product(call.of(front), bias)
    return None
