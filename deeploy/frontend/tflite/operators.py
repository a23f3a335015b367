"""A record for every operator of TensorFlow Lite: its number, its fields, and the nodes that it becomes.

Products, pools and functions of floats are here, what only moves elements in ``moves``, arithmetic on quantised numbers in ``quantised``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deeploy.frontend.schemas import Attributes
from deeploy.frontend.tflite import moves, quantised, stateful, words
from deeploy.frontend.tflite.network import Builder, LiteCall, Operand
from deeploy.frontend.tflite.requantising import find_limits
from deeploy.operators.elementwise import FUNCTIONS


@dataclass(frozen=True)
class LiteOperator:
    """An operator: its name in the schema, what builds its nodes, and its fields (``flatbuffer``)."""

    name: str
    build: Builder
    options: str = ""


def _build_plain(op: str, **fixed: Any) -> Builder:
    """An operator of ONNX with the same inputs, and a fused activation behind it."""
    return lambda call: call.activate(call.add(op, *call.inputs, **fixed))


def _choose_builder(of_floats: Builder, of_quantised: Builder) -> Builder:
    """What builds an operator of floats and other plain numbers, and one that has quantised ones."""
    return lambda call: (of_quantised if call.x.is_quantised else of_floats)(call)


def _refuse_operator(call: LiteCall) -> None:
    raise call.refused("of quantised numbers is not handled", "Leave it in floats, or cut the model in front of it: docs/from-tflite.md")


# ---- windows


def _read_pads(call: LiteCall, extents: Sequence[int], sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Borders at the top, left, bottom, right."""
    call.need(min((*extents, *sizes, *strides, *dilations)) > 0, "has a window, step or image of no extent")
    if call.options["padding"]:
        return [0, 0, 0, 0]
    total = [
        max((-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
        for extent, size, stride, dilation in zip(extents, sizes, strides, dilations, strict=True)
    ]
    return [*(n // 2 for n in total), *(n - n // 2 for n in total)]


def _channels_first(call: LiteCall, image: Operand) -> str:
    """Channels first."""
    return call.add("Transpose", image, perm=[0, 3, 1, 2])


def _channels_last(call: LiteCall, image: str) -> str:
    """Channels last."""
    return call.add("Transpose", image, perm=[0, 2, 3, 1])


def _build_convolve(call: LiteCall) -> None:
    """CONV_2D, DEPTHWISE_CONV_2D: filters [outputs, height, width, channels] or [1, height, width, outputs]."""
    filters, bias = call.constant(1), call.input(2)
    call.need(len(call.x.shape) == 4 and filters.ndim == 4 and min(filters.shape) > 0, "has no image or filters of four axes")
    weights = filters.transpose(3, 0, 1, 2) if call.op == "DEPTHWISE_CONV_2D" else filters.transpose(0, 3, 1, 2)
    groups = call.x.shape[3] // weights.shape[1]
    call.need(groups * weights.shape[1] == call.x.shape[3] > 0, "has filters for another number of channels")
    call.need(weights.shape[0] % groups == 0, "has filters that do not fit its groups")
    strides, dilations = ([call.options[f"{name}_{side}"] for side in "hw"] for name in ("stride", "dilation"))
    pads = _read_pads(call, call.x.shape[1:3], weights.shape[2:], strides, dilations)
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups}
    image = _channels_first(call, call.x)
    if call.x.is_quantised:
        zeros = quantised.zero_points(call, call.x, call.needed(1))
        total = _channels_last(call, call.add("ConvInteger", image, weights, *zeros, **attributes))
        return quantised.finish_product(call, total, weights.reshape(len(weights), -1), call.needed(1), bias)
    return call.activate(_channels_last(call, call.add("Conv", image, weights, *([bias] if bias else []), **attributes)))


def _convolve_transposed(call: LiteCall) -> None:
    """TRANSPOSE_CONV: the shape of the result, filters [outputs, height, width, channels], the image, perhaps a bias."""
    filters, image, bias = call.constant(1), call.needed(2), call.input(3)
    call.need(len(image.shape) == len(call.y.shape) == filters.ndim == 4 and min(filters.shape) > 0, "has no image of four axes")
    call.need(image.shape[3] == filters.shape[3], "has filters for another number of channels")
    strides, sizes = [call.options[f"stride_{side}"] for side in "hw"], filters.shape[1:3]
    before = _read_pads(call, call.y.shape[1:3], sizes, strides, (1, 1))[:2]
    whole = [(n - 1) * s + size for n, s, size in zip(image.shape[1:3], strides, sizes, strict=True)]
    after = [n - pad - wanted for n, pad, wanted in zip(whole, before, call.y.shape[1:3], strict=True)]
    pads, further = [*before, *(max(0, n) for n in after)], [max(0, -n) for n in after]
    call.need(all(n < s for n, s in zip(further, strides, strict=True)), f"gives {list(call.y.shape)}")
    attributes = {"strides": strides, "pads": pads, "output_padding": further}
    if not image.is_quantised:
        weights = filters.transpose(3, 0, 1, 2)
        total = call.add("ConvTranspose", _channels_first(call, image), weights, *([bias] if bias else []), **attributes)
        return call.activate(_channels_last(call, total))
    # A convolution of the image with zero points between its elements by the filters the other way round.
    borders = [n - 1 - pad for n, pad in zip(sizes, before, strict=True)]
    rest = [y + n - 1 - h * s - top for y, n, h, s, top in zip(call.y.shape[1:3], sizes, image.shape[1:3], strides, borders, strict=True)]
    number, height, width, channels = image.shape
    wide = call.add("Reshape", image, [number, height, 1, width, 1, channels])
    gaps = [0] * 8 + [strides[0] - 1, 0, strides[1] - 1, 0]
    wide = call.add("Pad", wide, gaps, image.zero_point)
    extents = [height * strides[0], width * strides[1]]
    wide = call.add("Reshape", wide, [number, *extents, channels])
    wide = moves.slice_tensor(call, wide, [0, 0], [n + min(0, r) for n, r in zip(extents, rest, strict=True)], [1, 2])
    weights = filters[:, ::-1, ::-1].transpose(0, 3, 1, 2)
    pads = [*borders, *(max(0, r) for r in rest)]
    zeros = quantised.zero_points(call, image, call.needed(1))
    total = _channels_last(call, call.add("ConvInteger", _channels_first(call, wide), weights, *zeros, pads=pads))
    return quantised.finish_product(call, total, weights.reshape(len(weights), -1), call.needed(1), bias, image)


def _build_pool(call: LiteCall) -> None:
    """MAX_POOL_2D, AVERAGE_POOL_2D."""
    call.need(len(call.x.shape) == 4, "has no image of four axes")
    size, strides = ([call.options[f"{name}_{side}"] for side in "hw"] for name in ("filter", "stride"))
    attributes: Attributes = {"kernel_shape": size, "strides": strides, "pads": _read_pads(call, call.x.shape[1:3], size, strides, (1, 1))}
    op, image = "MaxPool" if call.op == "MAX_POOL_2D" else "AveragePool", _channels_first(call, call.x)
    if call.x.is_quantised:
        quantised.check_same(call, call.x)
        if op == "AveragePool" and call.x.is_wide:
            ones, zeros = np.ones((call.x.shape[3], 1, *size), np.int8), (np.int16(0), np.int8(0))
            window = {name: attributes[name] for name in ("strides", "pads")}
            total = call.add("ConvInteger", image, ones, *zeros, group=len(ones), **window)
            return words.divide_sums(call, _channels_last(call, total), attributes)
        if op == "AveragePool":
            low, high = find_limits(call)
            return call.result(_channels_last(call, call.add("RoundedAveragePool", image, low=low, high=high, **attributes)))
    attributes |= {"count_include_pad": 0} if op == "AveragePool" else {}
    return call.activate(_channels_last(call, call.add(op, image, **attributes)))


def _build_resize(call: LiteCall) -> None:
    """RESIZE_BILINEAR of floats."""
    call.need(len(call.x.shape) == len(call.y.shape) == 4, "has no image of four axes")
    mode = "align_corners" if call.options["align_corners"] else "half_pixel" if call.options["half_pixel"] else "asymmetric"
    sizes = [call.x.shape[0], call.x.shape[3], *call.y.shape[1:3]]
    image = call.add("Resize", _channels_first(call, call.x), None, None, sizes, mode="linear", coordinate_transformation_mode=mode)
    call.result(_channels_last(call, image))


# ---- products


def _build_dense(call: LiteCall) -> None:
    """FULLY_CONNECTED: weights [outputs, depth], the data rows of that depth."""
    weights, bias = call.constant(1), call.input(2)
    call.need(weights.ndim == 2 and min(weights.shape) > 0 and not call.options["format"], "has weights that are no plain matrix")
    rows = math.prod(call.x.shape) // weights.shape[1]
    call.need(rows * weights.shape[1] == math.prod(call.x.shape), f"multiplies {list(call.x.shape)} by {list(weights.shape)}")
    call.need(math.prod(call.y.shape) == rows * len(weights), f"gives {list(call.y.shape)}")
    data = call.add("Reshape", call.x, [rows, weights.shape[1]])
    if not call.x.is_quantised:
        return call.activate(call.add("Reshape", call.add("Gemm", data, weights, *([bias] if bias else []), transB=1), call.y.shape))
    w = call.needed(1)
    total = call.add("MatMulInteger", data, weights.T, *quantised.zero_points(call, call.x, w))
    return quantised.finish_product(call, call.add("Reshape", total, call.y.shape), weights, w, bias)


def _build_product(call: LiteCall) -> None:
    """BATCH_MATMUL, of whose operands the last two axes may be swapped."""
    a, b = call.x, call.needed(1)
    call.need(min(len(a.shape), len(b.shape)) > 1, "multiplies vectors")
    swapped = [
        call.add("Transpose", t, perm=[*range(len(t.shape) - 2), len(t.shape) - 1, len(t.shape) - 2]) if call.options[name] else t.name
        for t, name in ((a, "swaps_x"), (b, "swaps_y"))
    ]
    if a.is_quantised:
        return quantised.multiply_matrices(call, *swapped)
    return call.result(call.add("MatMul", *swapped))


# ---- functions


def _build_softmax(call: LiteCall) -> None:
    beta = np.float32(call.options["beta"])
    call.result(call.add("Softmax", call.x if beta == 1 else call.add("Mul", call.x, beta), axis=-1))


def _build_clip(low: float, high: float | None) -> Builder:
    ends = [None if end is None else np.float32(end) for end in (low, high)]
    return _choose_builder(lambda call: call.result(call.add("Clip", call.x, *ends)), quantised.build_rescale)


def _build_unary(op: str, name: str = "", of_quantised: Builder | None = None, **fixed: Any) -> Builder:
    """A function of floats, by its operator of ONNX; of quantised numbers by the function of the integer form of that name."""
    function = FUNCTIONS[name or op.lower()]
    table = of_quantised or quantised.of_reals(lambda x: function(x, 0.0, 0.0))
    return _choose_builder(lambda call: call.result(call.add(op, call.x, **fixed)), table)


def _build_leaky(call: LiteCall) -> None:
    call.result(call.add("LeakyRelu", call.x, alpha=call.options["alpha"]))


def _build_gelu(call: LiteCall) -> None:
    form = "tanh" if call.options["approximate"] else "none"
    _build_unary("Gelu", "gelu_tanh" if form == "tanh" else "gelu", approximate=form)(call)


def _build_square(call: LiteCall) -> None:
    call.result(call.add("Mul", call.x, call.x))


def _squared_difference(call: LiteCall) -> None:
    difference = call.add("Sub", call.x, call.needed(1))
    call.result(call.add("Mul", difference, difference))


def _inverse_root(call: LiteCall) -> None:
    call.result(call.add("Div", np.float32(1), call.add("Sqrt", call.x)))


def _build_norm(call: LiteCall) -> None:
    """L2_NORMALIZATION of the last axis."""
    squares = call.add("ReduceSum", call.add("Mul", call.x, call.x), [-1], keepdims=1)
    call.activate(call.add("Div", call.x, call.add("Sqrt", call.add("Max", squares, np.float32(1e-6)))))


def _floor_divide(call: LiteCall) -> None:
    call.result(call.add("Floor", call.add("Div", call.x, call.needed(1))))


def _build_reduce(op: str, of_quantised: Builder) -> Builder:
    return _choose_builder(lambda call: moves.reduce_tensor(call, op), of_quantised)


def _build_quantise(call: LiteCall) -> None:
    y = call.y
    if call.x.dtype.kind in "iu":
        return quantised.build_rescale(call)
    call.need(y.is_quantised and y.scale.size == 1, "has no scale for its result")
    call.add("QuantizeLinear", call.x, np.float32(y.s), y.zero_point, outputs=[y])
    return None


def _build_dequantise(call: LiteCall) -> None:
    x = call.x
    if x.dtype.kind == "f":
        return call.cast(x.name)
    call.need(x.is_quantised and x.scale.size == 1, "has no scale for its input")
    call.add("DequantizeLinear", x, np.float32(x.s), x.zero_point, outputs=[call.y])
    return None


def _build_cast(call: LiteCall) -> None:
    call.cast(call.x.name)


_WINDOW = "padding:b stride_w:i stride_h:i"
_DILATED = "dilation_w:i=1 dilation_h:i=1"
_POOL = f"{_WINDOW} filter_w:i filter_h:i fused:b"
_SLICE = "begin_mask:i end_mask:i ellipsis_mask:i new_axis_mask:i shrink_axis_mask:i offset:B"
_ADD, _SUB, _MUL = (
    _choose_builder(_build_plain(op), rule)
    for op, rule in (("Add", quantised.build_add), ("Sub", quantised.build_add), ("Mul", quantised.build_multiply))
)
_SHAPED = moves.build_move("Reshape", moves.read_reshape)
_PAD = moves.build_move("Pad", moves.read_padding)

OPERATORS: Mapping[int | str, LiteOperator] = {
    0: LiteOperator("ADD", _ADD, "fused:b pot_scale:B=1"),
    1: LiteOperator("AVERAGE_POOL_2D", _build_pool, _POOL),
    2: LiteOperator("CONCATENATION", moves.build_concatenate, "axis:i fused:b"),
    3: LiteOperator("CONV_2D", _build_convolve, f"{_WINDOW} fused:b {_DILATED}"),
    4: LiteOperator("DEPTHWISE_CONV_2D", _build_convolve, f"{_WINDOW} multiplier:i fused:b {_DILATED}"),
    5: LiteOperator("DEPTH_TO_SPACE", moves.depth_and_space, "block:i"),
    6: LiteOperator("DEQUANTIZE", _build_dequantise),
    7: LiteOperator("EMBEDDING_LOOKUP", moves.look_up_rows),
    8: LiteOperator("FLOOR", _build_unary("Floor")),
    9: LiteOperator("FULLY_CONNECTED", _build_dense, "fused:b format:b keeps_axes:B"),
    11: LiteOperator("L2_NORMALIZATION", _choose_builder(_build_norm, quantised.build_normalise), "fused:b"),
    14: LiteOperator("LOGISTIC", _build_unary("Sigmoid")),
    17: LiteOperator("MAX_POOL_2D", _build_pool, _POOL),
    18: LiteOperator("MUL", _MUL, "fused:b"),
    19: LiteOperator("RELU", _build_clip(0, None)),
    20: LiteOperator("RELU_N1_TO_1", _build_clip(-1, 1)),
    21: LiteOperator("RELU6", _build_clip(0, 6)),
    22: LiteOperator("RESHAPE", _SHAPED),
    23: LiteOperator("RESIZE_BILINEAR", _choose_builder(_build_resize, quantised.resize_bilinear), "-:i -:i align_corners:B half_pixel:B"),
    25: LiteOperator("SOFTMAX", _choose_builder(_build_softmax, quantised.build_softmax), "beta:f"),
    26: LiteOperator("SPACE_TO_DEPTH", moves.depth_and_space, "block:i"),
    27: LiteOperator("SVDF", stateful.filter_history, "rank:i fused:b"),
    28: LiteOperator("TANH", _build_unary("Tanh")),
    34: LiteOperator("PAD", _PAD),
    36: LiteOperator("GATHER", moves.build_gather, "axis:i batch_dims:i"),
    37: LiteOperator("BATCH_TO_SPACE_ND", moves.batch_and_space),
    38: LiteOperator("SPACE_TO_BATCH_ND", moves.batch_and_space),
    39: LiteOperator("TRANSPOSE", moves.build_transpose),
    40: LiteOperator("MEAN", _build_reduce("ReduceMean", quantised.reduce_sum), "keeps_axes:B"),
    41: LiteOperator("SUB", _SUB, "fused:b pot_scale:B=1"),
    42: LiteOperator("DIV", _choose_builder(_build_plain("Div"), quantised.build_divide), "fused:b"),
    43: LiteOperator("SQUEEZE", _SHAPED, "axes:[i]"),
    44: LiteOperator("UNIDIRECTIONAL_SEQUENCE_LSTM", stateful.run_lstm, "fused:b cell_clip:f proj_clip:f time_major:B"),
    45: LiteOperator("STRIDED_SLICE", moves.cut_strided, _SLICE),
    47: LiteOperator("EXP", _build_unary("Exp")),
    49: LiteOperator("SPLIT", moves.build_split, "count:i"),
    53: LiteOperator("CAST", _build_cast),
    54: LiteOperator("PRELU", _choose_builder(_build_plain("PRelu"), quantised.build_prelu)),
    55: LiteOperator("MAXIMUM", moves.build_choose("Max")),
    56: LiteOperator("ARG_MAX", moves.find_extreme, "kind:b"),
    57: LiteOperator("MINIMUM", moves.build_choose("Min")),
    58: LiteOperator("LESS", moves.build_compare("Less")),
    59: LiteOperator("NEG", _choose_builder(_build_plain("Neg"), quantised.build_negate)),
    60: LiteOperator("PADV2", _PAD),
    61: LiteOperator("GREATER", moves.build_compare("Greater")),
    62: LiteOperator("GREATER_EQUAL", moves.build_compare("GreaterOrEqual")),
    63: LiteOperator("LESS_EQUAL", moves.build_compare("LessOrEqual")),
    64: LiteOperator("SELECT", moves.build_choose("Where")),
    65: LiteOperator("SLICE", moves.build_cut),
    66: LiteOperator("SIN", _build_unary("Sin", of_quantised=_refuse_operator)),
    67: LiteOperator("TRANSPOSE_CONV", _convolve_transposed, f"{_WINDOW} fused:b"),
    69: LiteOperator("TILE", moves.build_move("Tile", lambda call: [call.x, moves.read_numbers(call, 1)])),
    70: LiteOperator("EXPAND_DIMS", _SHAPED),
    71: LiteOperator("EQUAL", moves.build_compare("Equal")),
    72: LiteOperator("NOT_EQUAL", moves.build_compare("NotEqual")),
    73: LiteOperator("LOG", _build_unary("Log")),
    74: LiteOperator("SUM", _build_reduce("ReduceSum", quantised.reduce_sum), "keeps_axes:B"),
    75: LiteOperator("SQRT", _build_unary("Sqrt", of_quantised=_refuse_operator)),
    76: LiteOperator("RSQRT", _choose_builder(_inverse_root, quantised.invert_root)),
    77: LiteOperator("SHAPE", moves.build_constant(lambda call: np.array(call.x.shape)), "kind:b"),
    78: LiteOperator("POW", _build_plain("Pow")),
    79: LiteOperator("ARG_MIN", moves.find_extreme, "kind:b"),
    82: LiteOperator("REDUCE_MAX", moves.reduce_extreme, "keeps_axes:B"),
    83: LiteOperator("PACK", moves.build_pack, "count:i axis:i"),
    84: LiteOperator("LOGICAL_OR", _build_plain("Or")),
    86: LiteOperator("LOGICAL_AND", _build_plain("And")),
    87: LiteOperator("LOGICAL_NOT", _build_plain("Not")),
    88: LiteOperator("UNPACK", moves.build_split, "count:i axis:i"),
    89: LiteOperator("REDUCE_MIN", moves.reduce_extreme, "keeps_axes:B"),
    90: LiteOperator("FLOOR_DIV", _choose_builder(_floor_divide, _refuse_operator)),
    92: LiteOperator("SQUARE", _choose_builder(_build_square, _refuse_operator)),
    93: LiteOperator("ZEROS_LIKE", moves.build_constant(lambda call: np.zeros(call.y.shape))),
    97: LiteOperator("RESIZE_NEAREST_NEIGHBOR", moves.resize_nearest, "align_corners:B half_pixel:B"),
    98: LiteOperator("LEAKY_RELU", _choose_builder(_build_leaky, quantised.build_rescale), "alpha:f"),
    99: LiteOperator("SQUARED_DIFFERENCE", _choose_builder(_squared_difference, quantised.square_difference)),
    100: LiteOperator("MIRROR_PAD", moves.build_move("Pad", moves.read_padding, moves.build_mirror), "mode:b"),
    101: LiteOperator("ABS", _build_unary("Abs", of_quantised=quantised.build_absolute)),
    102: LiteOperator("SPLIT_V", moves.build_split, "count:i"),
    104: LiteOperator("CEIL", _build_unary("Ceil", of_quantised=_refuse_operator)),
    105: LiteOperator("REVERSE_V2", moves.build_reverse),
    106: LiteOperator("ADD_N", _choose_builder(_build_plain("Sum"), _refuse_operator)),
    108: LiteOperator("COS", _build_unary("Cos", of_quantised=_refuse_operator)),
    111: LiteOperator("ELU", _choose_builder(_build_plain("Elu"), quantised.of_reals(lambda x: np.where(x < 0, np.expm1(x), x)))),
    114: LiteOperator("QUANTIZE", _build_quantise),
    116: LiteOperator("ROUND", _build_unary("Round", of_quantised=_refuse_operator)),
    117: LiteOperator("HARD_SWISH", _choose_builder(_build_plain("HardSwish"), quantised.hard_swish)),
    123: LiteOperator("SELECT_V2", moves.build_choose("Where")),
    126: LiteOperator("BATCH_MATMUL", _build_product, "swaps_x:B swaps_y:B"),
    130: LiteOperator("BROADCAST_TO", moves.build_move("Expand", lambda call: [call.x, call.y.shape])),
    150: LiteOperator("GELU", _build_gelu, "approximate:B"),
    158: LiteOperator("SIGN", _choose_builder(_build_plain("Sign"), _refuse_operator)),
}
