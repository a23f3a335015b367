"""A record for every operator of TensorFlow Lite: its number, its fields, and the nodes that it becomes.

What is the same for quantised and other numbers is here, beside floats; arithmetic on quantised numbers is in ``quantised``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deeploy.frontend.tflite import quantised
from deeploy.frontend.tflite.network import Builder, Call, Operand, Tensor
from deeploy.ir.types import Array

_ACTIVATIONS: Mapping[int, tuple[float | None, float | None]] = {0: (None, None), 1: (0, None), 2: (-1, 1), 3: (0, 6), 152: (0, 1)}


@dataclass(frozen=True)
class Operator:
    """An operator: its name in the schema, its fields (``flatbuffer``), and what builds its nodes."""

    name: str
    options: str
    build: Builder


def limits_of(call: Call, code: int) -> tuple[float | None, float | None]:
    """The real limits of a fused activation."""
    limits = _ACTIVATIONS.get(code)
    if limits is None:
        raise call.refused(f"has the fused activation {code}, which is not handled", "Let it be an operator of its own.")
    return limits


def activate(call: Call, name: str) -> None:
    """The limits of floats or plain integers behind an operator, whose result is the output then."""
    low, high = limits_of(call, call.options.get("fused", 0))
    if (low, high) == (None, None):
        return call.result(name)
    ends = [None if end is None else np.array(end, call.y.dtype) for end in (low, high)]
    call.add("Clip", name, *ends, outputs=[call.y])
    return None


def _spread_reads(op: str, **fixed: Any) -> Builder:
    """An operator of ONNX with the same inputs."""
    return lambda call: activate(call, call.add(op, *call.inputs, **fixed))


def _move(op: str, read: Callable[[Call], Sequence[Operand]], attributes: Callable[[Call], Mapping[str, Any]] | None = None) -> Builder:
    """An operator that only moves elements, in whatever quantisation they are: of the result the same."""

    def build(call: Call) -> None:
        quantised.check_same(call, *[tensor for tensor in call.inputs if tensor is not None and tensor.is_quantised])
        call.add(op, *read(call), outputs=call.outputs, **(attributes(call) if attributes else {}))

    return build


def _shape(call: Call) -> Sequence[Operand]:
    """The input and the shape of the output, which the file has."""
    call.need(math.prod(call.x.shape) == math.prod(call.y.shape), f"makes {list(call.y.shape)} of {list(call.x.shape)}")
    return call.x, np.array(call.y.shape, np.int64)


def axes(call: Call, values: Array, rank: int) -> list[int]:
    """Axes counted from the front."""
    found = [int(axis) for axis in values.ravel()]
    call.need(all(-rank <= axis < rank for axis in found), f"has the axes {found} of {rank}")
    return sorted({axis % rank for axis in found})


# ---- windows


def _pads(call: Call, extents: Sequence[int], sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Borders at the top, left, bottom, right."""
    call.need(min((*extents, *sizes, *strides, *dilations)) > 0, "has a window, step or image of no extent")
    if call.options["padding"]:
        return [0, 0, 0, 0]
    total = [
        max((-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
        for extent, size, stride, dilation in zip(extents, sizes, strides, dilations, strict=True)
    ]
    return [*(n // 2 for n in total), *(n - n // 2 for n in total)]


def channels_first(call: Call, image: Operand) -> str:
    return call.add("Transpose", image, perm=[0, 3, 1, 2])


def channels_last(call: Call, image: str) -> str:
    return call.add("Transpose", image, perm=[0, 2, 3, 1])


def _convolve(call: Call) -> None:
    """CONV_2D, DEPTHWISE_CONV_2D: filters [outputs, height, width, channels] or [1, height, width, outputs]."""
    is_depthwise, filters, bias = call.op == "DEPTHWISE_CONV_2D", call.constant(1), call.input(2)
    call.need(len(call.x.shape) == 4 and filters.ndim == 4, "has no image or filters of four axes")
    weights = filters.transpose(3, 0, 1, 2) if is_depthwise else filters.transpose(0, 3, 1, 2)
    channels = call.x.shape[3]
    call.need(min(weights.shape) > 0 and channels % weights.shape[1] == 0, "has filters for another number of channels")
    groups = channels // weights.shape[1]
    call.need(weights.shape[0] % groups == 0, "has filters that do not fit its groups")
    strides = [call.options[name] for name in ("stride_h", "stride_w")]
    dilations = [call.options[name] for name in ("dilation_h", "dilation_w")]
    pads = _pads(call, call.x.shape[1:3], weights.shape[2:], strides, dilations)
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups}
    image = channels_first(call, call.x)
    if call.x.is_quantised:
        total = call.add("ConvInteger", image, weights, np.array(call.x.z, call.x.dtype), **attributes)
        quantised.finish_product(call, channels_last(call, total), weights.reshape(len(weights), -1), call.needed(1), bias)
        return
    total = call.add("Conv", image, weights, *([bias] if bias else []), **attributes)
    activate(call, channels_last(call, total))


def _pool(call: Call) -> None:
    """MAX_POOL_2D, AVERAGE_POOL_2D."""
    call.need(len(call.x.shape) == 4, "has no image of four axes")
    size, strides = ([call.options[f"{name}_{side}"] for side in "hw"] for name in ("filter", "stride"))
    pads = _pads(call, call.x.shape[1:3], size, strides, (1, 1))
    attributes = {"kernel_shape": size, "strides": strides, "pads": pads}
    image = channels_first(call, call.x)
    if call.op == "MAX_POOL_2D":
        quantised.check_same(call, call.x)
        pooled = channels_last(call, call.add("MaxPool", image, **attributes))
        return quantised.limit(call, pooled) if call.x.is_quantised else activate(call, pooled)
    if call.x.is_quantised:
        quantised.check_same(call, call.x)
        low, high = quantised.limits(call)
        return call.result(channels_last(call, call.add("RoundedAveragePool", image, low=low, high=high, **attributes)))
    return activate(call, channels_last(call, call.add("AveragePool", image, count_include_pad=0, **attributes)))


def _dense(call: Call) -> None:
    """FULLY_CONNECTED: weights [outputs, depth], the data rows of that depth."""
    weights, bias = call.constant(1), call.input(2)
    call.need(weights.ndim == 2 and min(weights.shape) > 0 and not call.options["format"], "has weights that are no plain matrix")
    rows = math.prod(call.x.shape) // weights.shape[1]
    call.need(rows * weights.shape[1] == math.prod(call.x.shape), f"multiplies {list(call.x.shape)} by {list(weights.shape)}")
    call.need(math.prod(call.y.shape) == rows * len(weights), f"gives {list(call.y.shape)}")
    data = call.add("Reshape", call.x, np.array([rows, weights.shape[1]]))
    if call.x.is_quantised:
        w = call.needed(1)
        call.need(w.is_quantised, "has weights without a scale")
        zeros = np.array(call.x.z, call.x.dtype), np.array(w.z, w.dtype)
        total = call.add("MatMulInteger", data, np.ascontiguousarray(weights.T), *zeros)
        total = call.add("Reshape", total, np.array(call.y.shape, np.int64))
        quantised.finish_product(call, total, weights.astype(np.int64) - w.z, w, bias)
        return
    total = call.add("Gemm", data, weights, *([bias] if bias else []), transB=1)
    activate(call, call.add("Reshape", total, np.array(call.y.shape, np.int64)))


def _softmax(call: Call) -> None:
    if call.x.is_quantised:
        return quantised.softmax(call)
    beta = call.options["beta"]
    scaled = call.x if beta == 1 else call.add("Mul", call.x, np.array(beta, np.float32))
    return call.result(call.add("Softmax", scaled, axis=-1))


def _two(op: str, of_quantised: Builder) -> Builder:
    """An operator on two tensors, of quantised numbers by another rule."""
    plain = _spread_reads(op)
    return lambda call: (of_quantised if call.y.is_quantised else plain)(call)


_WINDOW = "padding:b stride_w:i stride_h:i"
_FACTORS = "dilation_w:i=1 dilation_h:i=1"

OPERATORS: Mapping[int | str, Operator] = {
    0: Operator("ADD", "fused:b", _two("Add", quantised.add)),
    1: Operator("AVERAGE_POOL_2D", f"{_WINDOW} filter_w:i filter_h:i fused:b", _pool),
    3: Operator("CONV_2D", f"{_WINDOW} fused:b {_FACTORS}", _convolve),
    4: Operator("DEPTHWISE_CONV_2D", f"{_WINDOW} multiplier:i fused:b {_FACTORS}", _convolve),
    9: Operator("FULLY_CONNECTED", "fused:b format:b keeps_axes:B", _dense),
    17: Operator("MAX_POOL_2D", f"{_WINDOW} filter_w:i filter_h:i fused:b", _pool),
    22: Operator("RESHAPE", "", _move("Reshape", _shape)),
    25: Operator("SOFTMAX", "beta:f", _softmax),
}
