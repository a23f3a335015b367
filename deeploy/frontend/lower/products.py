"""Convolutions and matrix products."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.call import PLAIN, Call, Stage, filters, is_image, spatial, wide, window
from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.quant import Quantised, centred, dequantised, subtracted
from deeploy.frontend.lower.rewriter import is_float
from deeploy.frontend.schemas import Attributes
from deeploy.graph.rewrite import constant, producer


def convolution(call: Call) -> bool:
    """Conv, ConvTranspose."""
    x, w = call.operand(0), call.node.inputs[1]
    if x is None or not is_image(call.x):
        return False
    attrs = {**window(call.attrs), "group": call.attrs["group"], "zero_point": x.z}
    if call.op == "ConvTranspose":
        attrs["output_padding"] = spatial(call.attrs["output_padding"], 0)
    if call.result is None:
        bias = [wide(t) for t in call.node.inputs[2:3]]
        weights = call.reshape(w, [*w.shape[:2], 1, w.shape[2]]) if len(w.shape) == 3 else w
        return call.replace_image(call.op, call.image(call.x), weights, *bias, epilogue=("bias",) * len(bias), **attrs)
    found = _filters(call, x)
    if found is None:
        return False
    constants, stage = found
    return call.replace_image(call.op, call.image(x.tensor), *constants, **attrs, **stage)


def integer_convolution(call: Call) -> bool:
    """ConvInteger: the zero point of the input in the operator, that of the weights in the weights."""
    zero, weights = _zero_point(call, 2), centred_weights(call, 0)
    if zero is None or weights is None or not is_image(call.x):
        return False
    bias = call.constant(-zero * weights.astype(np.int64).sum(axis=tuple(range(1, weights.ndim))), np.int32, "bias")
    attrs = {**window(call.attrs), "group": call.attrs["group"], "zero_point": zero, "epilogue": ("bias",)}
    return call.replace_image("Conv", call.image(call.x), call.constant(filters(weights), label="weights"), bias, **attrs)


def integer_product(call: Call) -> bool:
    """MatMulInteger."""
    a, b = call.node.inputs[:2]
    zero, weight_zero = _zero_point(call, 2), _zero_point(call, 3)
    if zero is None or min(len(a.shape), len(b.shape)) < 2:
        return False
    if weight_zero is None:
        weights = centred_weights(call, len(b.shape) - 1)
        if weights is None:
            return False
        b, weight_zero = call.constant(weights, label="weights"), 0
    return call.replace("MatMul", a, b, trans_a=False, trans_b=False, a_zero_point=zero, b_zero_point=weight_zero)


def _zero_point(call: Call, position: int) -> int | None:
    """A constant zero point of a whole tensor; 0 where it is absent, None where it is something else."""
    value = call.value(position) if call.input(position) is not None else np.zeros(1)
    return int(value.item()) if value is not None and value.size == 1 else None


def centred_weights(call: Call, axis: int) -> np.ndarray | None:
    """The constant weights minus their zero points; None where they are not constant.

    There is one zero point, one per entry along an axis, or an array of as many axes as the weights, which broadcasts.
    """
    zero, weights = call.value(3) if call.input(3) is not None else np.zeros(1), constant(call.node.inputs[1])
    if zero is None or weights is None:
        return None
    if zero.size in (1, weights.shape[axis]):
        zero = zero.reshape([-1 if at == axis else 1 for at in range(weights.ndim)])
    return None if zero.ndim != weights.ndim else subtracted(weights, zero)


def _filters(call: Call, x: Quantised) -> Stage | None:
    """The filters of a quantised convolution, and the requantisation of its result."""
    w, axis = dequantised(call.node.inputs[1]), int(call.op == "ConvTranspose")
    weights = None if w is None else centred(w)
    if w is None or weights is None or not (w.is_scalar or w.axis == axis):
        return None
    scales = _per_channel(w.scale, weights.shape[axis])
    if scales is None:
        return None
    unit = (np.tile(scales, call.attrs["group"]) if axis and scales.size > 1 else scales) * x.s
    offset = _bias(call.input(2), unit, call.y.shape[1])
    if offset is None:
        return None
    if not axis:
        offset = offset - x.z * weights.astype(np.int64).sum(axis=tuple(range(1, weights.ndim)))
    constants, stage = call.requantisation(unit / call.step, offset)
    return [call.constant(filters(weights), label="weights"), *constants], stage


def _per_channel(values: np.ndarray, channels: int) -> np.ndarray | None:
    """Scales or zero points as one value or one per output channel."""
    flat = values.ravel().astype(np.float64)
    return flat if flat.size in (1, channels) else None


def _bias(tensor: gs.Tensor | None, unit: np.ndarray, channels: int) -> np.ndarray | None:
    """A bias in integer steps of ``unit`` (the product of both scales), one per channel."""
    if tensor is None:
        return np.zeros(1, np.int64)
    found = dequantised(tensor)
    if found is not None and isinstance(found.tensor, gs.Constant):
        exact = found.scale.astype(np.float64).ravel()
        values = np.asarray(found.tensor.values).astype(np.int64) - (found.zero_point if found.is_scalar else found.zero_point.ravel())
        if np.allclose(exact, unit, rtol=1e-5, atol=0) and values.size == channels:
            return np.asarray(values.ravel())
    real = real_constant(tensor)
    if real is None or real.size not in (1, channels):
        return None
    return np.asarray(np.rint(np.broadcast_to(real.ravel(), (channels,)).astype(np.float64) / unit).astype(np.int64))


def product(call: Call) -> bool:
    """Gemm, MatMul."""
    flags: Attributes = {"trans_a": bool(call.attrs.get("transA", 0)), "trans_b": bool(call.attrs.get("transB", 0))}
    alpha, beta = call.attrs.get("alpha", 1.0), call.attrs.get("beta", 1.0)
    summand = call.input(2) if beta else None
    if call.result is not None:
        return _quantised_product(call, summand, flags, alpha, beta or 1.0)
    if not is_float(call.y) and (alpha != 1 or (beta != 1 and summand is not None)):
        return False
    a, b = call.x, times(call, call.node.inputs[1], alpha)
    if summand is None:
        return call.replace("MatMul", a, b, **flags, **PLAIN)
    summand = times(call, summand, beta)
    values, columns = constant(summand), call.y.shape[-1]
    if values is not None and (values.size == 1 or values.size == values.shape[-1] == columns):
        bias = wide(call.constant(values.ravel(), values.dtype, "bias"))
        return call.replace("MatMul", a, b, bias, **flags, **PLAIN, epilogue=("bias",))
    return call.replace("Add", call.create("MatMul", a, b, shape=call.y.shape, dtype=call.y.dtype, **flags, **PLAIN), summand)


def times(call: Call, x: gs.Tensor, factor: float) -> gs.Tensor:
    """A float tensor times a number; a constant is multiplied at once."""
    values = constant(x)
    if factor == 1:
        return x
    if values is not None:
        return call.constant(values * np.float32(factor))
    return call.create("Mul", x, call.constant([factor]), **PLAIN)


def _quantised_product(call: Call, summand: gs.Tensor | None, flags: Attributes, alpha: float, beta: float) -> bool:
    a, b = call.operand(0), dequantised(call.node.inputs[1])
    if a is None or b is None or not b.is_byte or min(len(a.tensor.shape), len(b.tensor.shape)) < 2:
        return False
    channels, rank = call.y.shape[-1], len(b.tensor.shape)
    if not b.is_scalar and (b.axis % rank != rank - 1 - flags["trans_b"] or not isinstance(b.tensor, gs.Constant)):
        return False
    scales = _per_channel(b.scale, channels)
    if scales is None:
        return False
    unit = scales * a.s * alpha
    offset = _bias(summand, unit / beta, channels)
    if offset is None or (summand is not None and summand.shape and list(summand.shape)[-1] not in (1, channels)):
        return False
    attrs: Attributes = {**flags, "a_zero_point": a.z, "b_zero_point": b.z if b.is_scalar else 0}
    weights, factor = centred(b), b.tensor
    if weights is not None:
        factor, attrs["b_zero_point"] = call.constant(weights, label="weights"), 0
        if weights.ndim == 2 and a.z:
            offset = offset - a.z * weights.astype(np.int64).sum(axis=int(flags["trans_b"]))
            attrs["a_zero_point"] = 0
    elif not b.is_scalar:
        return False
    constants, stage = call.requantisation(unit / call.step, offset)
    return call.replace("MatMul", a.tensor, factor, *constants, **attrs, **stage)


def biased_product(call: Call) -> bool:
    """A quantised matrix product and the Add of a constant row behind it."""
    for tensor, bias in (call.node.inputs, call.node.inputs[::-1]):
        front, real = producer(tensor, "MatMul"), real_constant(bias)
        if front is None or build.lowered(front) or real is None or len(tensor.outputs) != 1:
            continue
        if real.shape[-1:] == tuple(call.y.shape[-1:]) == (real.size,):
            return _quantised_product(call.of(front), bias, {"trans_a": False, "trans_b": False}, 1.0, 1.0)
    return False
