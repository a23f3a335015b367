"""Which nodes of the integer form N-EUREKA computes with the same results, and its constants for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from deeploy.operators import conv
from deeploy.operators.staircase import WORD
from deeploy.target import DType, Node, Tensor

from .npu import GROUP, Array, EngineLayer, Mode, Normalisation, bound_sums, encode_weights, find_normalisation, weight_range
from .sums import Channels, channel_parameters

LEAST_RUN = 16  # bytes of pixels side by side, of which a job computes 32 at a time
LEAST_BLOCK = 24  # channels of outputs, the same, unless there are fewer
DILATIONS = range(2, 5)  # of 3x3 convolutions that are computed by parts, of which larger ones have too many


@dataclass(frozen=True)
class LoweredLayer:
    """A node for the engine.

    ``weights`` are encoded; ``normalisation`` is None where y is int32. Products of matrices are 1x1 convolutions whose pixels
    are the rows of their first operand.
    """

    layer: EngineLayer
    weights: Array
    normalisation: Normalisation | None


Convolution = tuple[Mode, Array, Array, int]  # mode, weights [K, C, FH, FW], what is added to the sums [K], padding


def lower_layer(node: Node) -> LoweredLayer | str:
    """The node for the engine, or what the engine would need instead."""
    return _lower_convolution(
        node, _read_convolution(node) if node.op == "Conv" else _read_product(node) if node.op == "MatMul" else "a convolution or a product"
    )


def lower_windows(node: Node) -> LoweredLayer | str:
    """A convolution as a product of its windows, which hold row after row of taps; or what the engine would need instead."""
    return _lower_convolution(node, _read_windows(node, (0, 2, 3, 1)) if node.op == "Conv" else "a convolution")


def lower_patches(node: Node) -> LoweredLayer | str:
    """The same with windows that hold column after column of taps."""
    return _lower_convolution(node, _read_windows(node, (0, 3, 2, 1)) if node.op == "Conv" else "a convolution")


def lower_subsampled(node: Node) -> LoweredLayer | str:
    """A 3x3 convolution of stride 2 with all the outputs that stride 1 has; or what the engine would need instead."""
    if node.op != "Conv" or sorted(set(conv.window(node).strides)) not in ([2], [1, 2]) or node.outputs[0].dtype.bytes != 1:
        return "a convolution of stride 2 with 8-bit outputs"
    return _lower_convolution(node, _read_convolution(replace(node, attrs={**node.attrs, "strides": (1, 1)})))


def lower_dilated(node: Node) -> LoweredLayer | str:
    """A 3x3 convolution with dilation, of which every so-manieth row and column is one without; or what the engine would need instead."""
    if node.op != "Conv":
        return "a convolution"
    g = conv.window(node)
    if g.dilations[0] not in DILATIONS or g.dilations[0] != g.dilations[1] or max(g.pads) > g.dilations[0]:
        return f"the same dilation of {DILATIONS.start} to {DILATIONS[-1]} along both axes, and borders of at most it"
    pads = tuple(min(1, pad) for pad in g.pads)
    return _lower_convolution(node, _read_convolution(replace(node, attrs={**node.attrs, "dilations": (1, 1), "pads": pads})))


def has_upright_runs(node: Node) -> bool:
    """Whether runs of taps lie in the columns of a window: it is taller than wide, or taps of its rows are no neighbours."""
    g = conv.window(node)
    return g.dilations[0] == 1 and g.height > (g.width if g.dilations[1] == 1 else 1)


def count_runs(node: Node) -> tuple[int, int]:
    """Rows and columns of runs of a window: taps that are neighbours in a row, or in a column, are one run, others are one each."""
    g = conv.window(node)
    if has_upright_runs(node):
        return 1, g.width
    return g.height, 1 if g.dilations[1] == 1 else g.width


def count_block(node: Node) -> tuple[int, int]:
    """Input channels that a run has, and output channels that see them: of as many whole groups as fit into a pass of the engine."""
    g = conv.window(node)
    together = max(1, min(GROUP // g.channels, g.groups))
    return together * g.channels, together * g.filters


@lru_cache(maxsize=512)
def lower_runs(node: Node) -> LoweredLayer | str:
    """A convolution as a sum of 1x1 ones, one for each run of taps, whose weights stand one behind the other; or what the engine would
    need instead.

    Of several groups, weights are zero for the other channels of a block.
    """
    w, x, y = _read_constant(node.inputs[1]), node.inputs[0], node.outputs[0]
    if node.op != "Conv" or w is None or x is None or x.dtype.value not in ("s8", "u8"):
        return "a convolution of bytes with constant weights"
    g, (height, width), (channels, filters) = conv.window(node, w.shape), count_runs(node), count_block(node)
    if (g.height, g.width) == (1, 1) and g.groups == 1:
        return "a window of several pixels"
    if channels * g.height * g.width // (height * width) < LEAST_RUN or (g.groups > 1 and filters < min(LEAST_BLOCK, w.shape[0])):
        return f"runs of {LEAST_RUN} bytes, and {LEAST_BLOCK} channels of outputs that see them"
    span = weight_range(w if g.groups == 1 else np.append(w, 0))
    if span is None:
        return f"weights within 8 bits, not {w.min()} to {w.max()}"
    if node.epilogue or y.dtype.value != "s32":
        return "sums without a requantisation"
    layer = EngineLayer(Mode.POINTWISE, x.dtype.value, y.dtype.value, *span, padding_value=g.zero_point)
    blocks = _fill_blocks(w, g.filters, channels, filters)
    taps = blocks.transpose(3, 2, 0, 1) if has_upright_runs(node) else blocks.transpose(2, 3, 0, 1)
    runs = taps.reshape(height * width, -1, *blocks.shape[:2]).swapaxes(1, 2).reshape(height * width, w.shape[0], -1, 1, 1)
    return LoweredLayer(layer, np.stack([encode_weights(run, layer) for run in runs]), None)


def _fill_blocks(w: Array, filters: int, channels: int, block_filters: int) -> Array:
    """Weights [K, channels, FH, FW] of all channels of a block, zero for those of other groups, of [K, C, FH, FW] of one group."""
    blocks = np.zeros((w.shape[0], channels, *w.shape[2:]), np.int64)
    outputs = np.arange(w.shape[0])
    first = outputs % block_filters // filters * w.shape[1]
    for channel in range(w.shape[1]):
        blocks[outputs, first + channel] = w[:, channel]
    return blocks


@lru_cache(maxsize=512)
def without_epilogue(node: Node) -> Node:
    """The node whose sums leave as int32, without what is added to them: its epilogue, and what a zero point of the first operand takes."""
    attrs = {**node.attrs, "epilogue": (), **({"a_zero_point": 0} if node.op == "MatMul" else {})}
    return replace(node, inputs=node.inputs[:2], outputs=(replace(node.outputs[0], dtype=DType.INT32),), attrs=attrs)


@lru_cache(maxsize=512)
def body_of_all(node: Node) -> Node:
    """The same with all the outputs that stride 1 has."""
    weights = without_epilogue(node)
    y = weights.outputs[0]
    shape = (y.shape[0], *((n - 1) * by + 1 for n, by in zip(y.shape[1:3], conv.window(node).strides, strict=True)), y.shape[3])
    return replace(weights, outputs=(replace(y, shape=shape),), attrs={**weights.attrs, "strides": (1, 1)})


@lru_cache(maxsize=512)
def channels_of(node: Node) -> Channels | str:
    """How cores requantise the sums of a node's body, or what they would need instead."""
    stages, x, y = node.epilogue, node.inputs[0], node.outputs[0]
    assert x is not None
    before, lookups = (stages[:-1], 1) if stages[-1:] == ("lookup",) else (stages, 0)
    if before not in (("requantise",), ("bias", "requantise")) or y.dtype.bytes != 1:
        return "a requantisation to 8 bits, with or without a bias"
    layer = _read_product(node) if node.op == "MatMul" else _read_windows(node, (0, 2, 3, 1), is_grouped=True)
    if isinstance(layer, str):
        return layer
    _, weights, offset, _ = layer
    *biases, mul, add = (_read_constant(tensor) for tensor in node.inputs[2 : len(node.inputs) - lookups])
    bias = biases[0] if biases else offset * 0
    count = weights.shape[0]
    if mul is None or add is None or bias is None or np.abs(add).max() >= 1 << 61 or np.abs(mul).max() >= WORD:
        return "constant parameters"
    if any(array.size not in (1, count) for array in (mul, add, bias)) or np.abs(offset + bias.ravel()).max() >= WORD // 2:
        return "parameters of 32 bits, one for all channels or one for each"
    factor = np.broadcast_to(mul.ravel(), count)
    summand = np.broadcast_to(add.ravel(), count) + (offset + bias.ravel()) * factor
    limits, shift = (int(node.attrs["low"]), int(node.attrs["high"])), int(node.attrs["shift"])
    result = channel_parameters(factor, summand, shift, limits, node.attrs.get("even"), *bound_sums(weights, x.dtype.value))
    return result or "positive factors, a shift of at most 53, and numbers of 62 bits"


def _lower_convolution(node: Node, convolution: Convolution | str) -> LoweredLayer | str:
    if isinstance(convolution, str):
        return convolution
    mode, weights, offset, padding = convolution
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    if x.dtype.value not in ("s8", "u8"):
        return f"x of 8 bits, not {x.dtype.value}"
    span = weight_range(weights)
    if span is None:
        return f"weights within 8 bits, not {weights.min()} to {weights.max()}"
    settings = (mode, x.dtype.value, y.dtype.value, *span)
    if not node.epilogue and y.dtype.value == "s32" and not offset.any():
        layer = EngineLayer(*settings, padding_value=padding)
        return LoweredLayer(layer, encode_weights(weights, layer), None)
    norm = _read_normalisation(node, weights, offset)
    if isinstance(norm, str):
        return norm
    layer = EngineLayer(*settings, 8 * norm.scale.itemsize, norm.shift, padding)
    return LoweredLayer(layer, encode_weights(weights, layer), norm)


def _read_constant(tensor: Tensor | None) -> Array | None:
    return None if tensor is None or tensor.data is None else tensor.data.astype(np.int64)


def _read_convolution(node: Node) -> Convolution | str:
    w = _read_constant(node.inputs[1])
    if w is None:
        return "constant weights"
    g = conv.window(node, w.shape)
    none = np.zeros(w.shape[0], np.int64)
    if (g.height, g.width) == (1, 1) and g.groups == 1:
        return (Mode.POINTWISE, w, none, 0) if not any(g.pads) else "a kernel of 1x1 without padding"
    if (g.height, g.width) != (3, 3) or g.strides != (1, 1) or g.dilations != (1, 1) or max(g.pads) > 1:
        return "a kernel of 1x1, or of 3x3 with stride 1, no dilation and borders of at most 1"
    if g.groups > 1 and not conv.is_depthwise(node):
        return "one group, or one channel in each"
    return Mode.DENSE if g.groups == 1 else Mode.DEPTHWISE, w, none, g.zero_point


def _read_windows(node: Node, order: tuple[int, ...], is_grouped: bool = False) -> Convolution | str:
    w = _read_constant(node.inputs[1])
    if w is None:
        return "constant weights"
    g = conv.window(node, w.shape)
    if g.groups > 1 and not is_grouped:
        return "one group"
    rows = w.transpose(order).reshape(w.shape[0], -1, 1, 1)
    return Mode.POINTWISE, rows, np.zeros(w.shape[0], np.int64), g.zero_point


def _read_product(node: Node) -> Convolution | str:
    b = _read_constant(node.inputs[1])
    if b is None or b.ndim != 2 or node.attrs["trans_a"]:
        return "a constant second operand of rank 2, and a first one that is not transposed"
    w = (b if node.attrs["trans_b"] else b.T) - int(node.attrs["b_zero_point"])
    return Mode.POINTWISE, w[:, :, None, None], -int(node.attrs["a_zero_point"]) * w.sum(axis=1), 0


def _read_normalisation(node: Node, weights: Array, offset: Array) -> Normalisation | str:
    """The node's requantisation, with what is added to the sums before it."""
    stages, x, y = node.epilogue, node.inputs[0], node.outputs[0]
    assert x is not None
    if stages not in (("requantise",), ("bias", "requantise")) or "even" in node.attrs or y.dtype.value not in ("s8", "u8"):
        return "a requantisation to 8 bits that rounds halves up, with or without a bias, or an int32 output"
    constants = [_read_constant(tensor) for tensor in node.inputs[2:]]
    mul, add = constants[-2], constants[-1]
    bias = constants[0] if len(constants) == 3 else offset
    if mul is None or add is None or bias is None or np.abs(add).max() >= 1 << 61 or np.abs(mul).max() >= 1 << 31:
        return "constant parameters"
    before = offset + (bias if len(constants) == 3 else 0)
    limits = (int(node.attrs["low"]), int(node.attrs["high"]))
    parameters = find_normalisation(
        mul, add + before * mul, int(node.attrs["shift"]), limits, *bound_sums(weights, x.dtype.value), y.dtype.value
    )
    if parameters is None:
        return "a requantisation that 32 bits compute with the same results"
    if parameters.shifts is not None and "bias" not in stages:
        return "a bias, in whose place a channel's own shift is stored, or one shift for all channels"
    return parameters
