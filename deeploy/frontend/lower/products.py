"""Convolutions and matrix products.

Those of integers whose zero point is computed at run time are computed of the bytes as they are: the zero point of the data, times the
sums of the weights, is subtracted from them. Exact, as ONNX defines each operator.
"""

from __future__ import annotations

import numpy as np

from deeploy.frontend.lower.call import Call, filters, is_image, spatial, wide, window
from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.quant import centred, dequantised, narrow
from deeploy.frontend.schemas import Attributes
from deeploy.graph.nodes import Node, Tensor, constant
from deeploy.graph.rewriting import Result
from deeploy.graph.types import DType


def convolution(call: Call) -> Result:
    """Conv, ConvTranspose."""
    x, weights, is_transposed = call.operand(0), call.inputs[1], call.op == "ConvTranspose"
    if x is None or not is_image(call.x):
        return None
    attrs = {**window(call.attrs), "group": call.attrs["group"], "zero_point": x.z}
    if is_transposed:
        attrs["output_padding"] = spatial(call.attrs["output_padding"], 0)
    if call.result is None:
        bias = [wide(tensor) for tensor in call.inputs[2:]]
        weights = weights.reshape([*weights.shape[:2], 1, weights.shape[2]]) if weights.rank == 3 else weights
        return call.replace_image(call.op, call.image(call.x), weights, *bias, epilogue=("bias",) * len(bias), **attrs)
    w, axis = dequantised(weights), int(is_transposed)
    values = None if w is None else centred(w)
    if w is None or values is None or not (w.is_scalar or w.axis == axis) or w.scale.size not in (1, weights.shape[axis]):
        return None
    repeats = call.attrs["group"] if is_transposed and w.scale.size > 1 else 1
    unit = np.tile(w.scale.ravel().astype(np.float64), repeats) * x.s
    offset = _bias(call.input(2), unit, call.y.shape[1])
    if offset is None:
        return None
    offset = offset if is_transposed else offset - x.z * _sums(values)
    operands = call.image(x.tensor), constant(filters(values), label="weights")
    return call.replace_image(call.op, *operands, ratio=unit / call.step, offset=offset, **attrs)


def _sums(weights: np.ndarray) -> np.ndarray:
    """The sum of each filter."""
    return np.asarray(weights.sum(axis=tuple(range(1, weights.ndim)), dtype=np.int64))


def integer_convolution(call: Call) -> Result:
    """ConvInteger: the zero point of the weights is in the weights, that of the input in the operator where it is constant.

    Where it is computed, borders are filled before the quantisation, where they are 0, so that it counts for every tap.
    """
    x, zero, pads, weights, source = call.x, call.input(2), call.attrs["pads"], _centred_weights(call, 0), _quantisation(call.x)
    known = 0 if zero is None else zero.number
    has_borders = known is None and any(pads)
    if weights is None or not is_image(x) or (zero is not None and zero.elements != 1) or (has_borders and source is None):
        return None
    factor, attrs = constant(filters(weights), label="weights"), {**window(call.attrs), "group": call.attrs["group"]}
    if known is not None:
        bias = constant(-known * _sums(weights), DType.INT32, "bias")
        return call.replace_image("Conv", call.image(x), factor, bias, zero_point=known, epilogue=("bias",), **attrs)
    if has_borders and source is not None:
        before, after = np.split(np.array(pads), 2)
        wider = call.create("Pad", source.operands[0], pads=(0, 0, *before.tolist(), 0, 0, *after.tolist()), mode="constant", value=0)
        x = call.create("Quantize", wider, *source.operands[1:], dtype=x.dtype, **source.attrs)
        attrs["pads"] = (0, 0, 0, 0)
    products = call.create_image("Conv", call.image(x), factor, zero_point=0, epilogue=(), **attrs)
    return call.replace_image("Sub", products, _correction(call, _sums(weights)))


def integer_product(call: Call) -> Result:
    """MatMulInteger: zero points that are constant, one for each operand, are attributes of the product.

    Others are computed, or several for the rows of a or the columns of b. The sum of (a - za) * (b - zb) over a depth is that of a * b,
    less za times the sum of b, less zb times the sum of a - za. The second term is absent where b is constant, from which zb is subtracted.
    """
    a, b = call.inputs[:2]
    if min(a.rank, b.rank) < 2:
        return None
    weights = _centred_weights(call, b.rank - 1)
    known = [0 if zero is None else zero.number for zero in (call.input(2), call.input(3))]
    if weights is not None and None in known:
        b, known[1] = constant(weights, label="weights"), 0
    if None not in known:
        return call.replace("MatMul", a, b, a_zero_point=known[0], b_zero_point=known[1])
    products = call.replace("MatMul", a, b)
    if weights is not None:
        return call.replace("Sub", products, _correction(call, weights.sum(axis=-2, keepdims=weights.ndim > 2, dtype=np.int64)))
    rows, columns = (
        call.create("ReduceSum", x, dtype=DType.INT32, axes=(x.rank - back,), keepdims=True, label=label)
        for x, back, label in ((a, 1, "sums of rows"), (b, 2, "sums of columns"))
    )
    zero, depth = _zero_points(call, 2), constant([a.shape[-1]], DType.INT32, "depth")
    centred = call.create("Sub", rows, call.create("Mul", depth, zero, label="zero points of a row"))
    first = call.create("Mul", columns, zero, label="correction of a")
    second = call.create("Mul", centred, _zero_points(call, 3), label="correction of b")
    return call.replace("Sub", call.create("Sub", products, first, label="products"), second)


def _centred_weights(call: Call, axis: int) -> np.ndarray | None:
    """The constant weights minus their zero points; None where they are not constant.

    There is one zero point, one per entry along an axis, or an array of as many axes as the weights, which broadcasts.
    """
    zero, weights = call.value(3, np.zeros(1)), call.value(1)
    if zero is None or weights is None:
        return None
    if zero.size in (1, weights.shape[axis]):
        zero = zero.reshape([-1 if at == axis else 1 for at in range(weights.ndim)])
    return narrow(weights.astype(np.int64) - zero.astype(np.int64), np.int8, np.int16) if zero.ndim == weights.ndim else None


def _zero_points(call: Call, position: int) -> Tensor:
    """Zero points of a product's operand in int32, as they broadcast over its result: one, or one per row of a or column of b."""
    given, source = call.input(position) or constant([0], DType.INT32), _quantisation(call.inputs[position - 2])
    behind = given
    while (node := behind.maker) is not None and node.op in ("Reshape", "Cast"):
        behind = node.operands[0]
    if source is not None and source.operands[2] is behind:
        return behind
    per_row = position == 2 and given.rank == 1 and given.elements > 1
    shaped = given.reshape([1] if given.elements == 1 else [*given.shape, 1] if per_row else given.shape)
    return call.create("Cast", shaped, dtype=DType.INT32) if shaped.data is None else constant(shaped.data, DType.INT32, "zero points")


def _quantisation(tensor: Tensor) -> Node | None:
    """The lowered one that computes a tensor."""
    return tensor.maker if tensor.maker is not None and tensor.maker.op == "Quantize" else None


def _correction(call: Call, sums: np.ndarray) -> Tensor:
    """What the zero point of the data contributes to the products with weights of these sums."""
    return call.create("Mul", constant(sums, DType.INT32, "sums of weights"), _zero_points(call, 2), label="correction")


def _bias(tensor: Tensor | None, unit: np.ndarray, channels: int) -> np.ndarray | None:
    """A bias in integer steps of ``unit`` (the product of both scales), one per channel."""
    if tensor is None:
        return np.zeros(1, np.int64)
    found = dequantised(tensor)
    if found is not None and found.tensor.data is not None:
        values = found.tensor.data.astype(np.int64) - found.zero_point.ravel()
        if np.allclose(found.scale.astype(np.float64).ravel(), unit, rtol=1e-5, atol=0) and values.size == channels:
            return np.asarray(values.ravel())
    real = real_constant(tensor)
    if real is None or real.size not in (1, channels):
        return None
    return np.asarray(np.rint(np.broadcast_to(real.ravel(), (channels,)).astype(np.float64) / unit).astype(np.int64))


def _flags(call: Call) -> Attributes:
    return {"trans_a": bool(call.attrs.get("transA", 0)), "trans_b": bool(call.attrs.get("transB", 0))}


def product(call: Call) -> Result:
    """Gemm, MatMul."""
    alpha, beta = call.attrs.get("alpha", 1.0), call.attrs.get("beta", 1.0)
    summand = call.input(2) if beta else None
    if call.result is not None:
        return _quantised_product(call, summand)
    if not call.y.dtype.is_float and (alpha != 1 or (beta != 1 and summand is not None)):
        return None
    operands, stage = [call.x, times(call, call.inputs[1], alpha)], _flags(call)
    if summand is not None:
        summand = times(call, summand, beta)
        values = summand.data
        if values is not None and (values.size == 1 or values.size == values.shape[-1] == call.y.shape[-1]):
            operands.append(wide(constant(values.ravel(), label="bias")))
            summand, stage["epilogue"] = None, ("bias",)
    result = call.replace("MatMul", *operands, **stage)
    return result if summand is None else call.replace("Add", result, summand)


def times(call: Call, x: Tensor, factor: float) -> Tensor:
    """A float tensor times a number; a constant is multiplied at once."""
    if factor == 1:
        return x
    return call.create("Mul", x, constant([factor], x.dtype)) if x.data is None else constant(x.data * np.float32(factor))


def _quantised_product(call: Call, summand: Tensor | None) -> Result:
    a, b, flags = call.operand(0), dequantised(call.inputs[1]), _flags(call)
    if a is None or b is None or not b.is_byte or min(a.tensor.rank, b.tensor.rank) < 2:
        return None
    channels, columns, weights = call.y.shape[-1], b.tensor.rank - 1 - flags["trans_b"], centred(b)
    if not (b.is_scalar or (weights is not None and b.axis % b.tensor.rank == columns)) or b.scale.size not in (1, channels):
        return None
    unit = b.scale.ravel().astype(np.float64) * a.s * call.attrs.get("alpha", 1.0)
    offset = _bias(summand, unit / (call.attrs.get("beta", 1.0) or 1.0), channels)
    if offset is None or (summand is not None and summand.shape[-1:] not in ((), (1,), (channels,))):
        return None
    factor, zeros = b.tensor, {"a_zero_point": a.z, "b_zero_point": b.z}
    if weights is not None:
        factor, zeros["b_zero_point"] = constant(weights, label="weights"), 0
        if weights.ndim == 2 and a.z:
            offset = offset - a.z * weights.sum(axis=1 - columns, dtype=np.int64)
            zeros["a_zero_point"] = 0
    return call.replace("MatMul", a.tensor, factor, ratio=unit / call.step, offset=offset, **flags, **zeros)


def biased_product(call: Call) -> Result:
    """A quantised matrix product and the Add of a constant row behind it."""
    for summed, bias in (call.inputs, call.inputs[::-1]):
        front, real = call.source(summed, "MatMul"), real_constant(bias)
        if front is None or real is None or len(call.readers(summed)) != 1:
            continue
        if real.shape[-1:] == call.y.shape[-1:] == (real.size,):
            return _quantised_product(call.of(front), bias)
    return None
