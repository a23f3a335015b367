"""Records of operators of ONNX: what the standard says of them, and the onnx package's definitions and its inference do not look at.

Small predicates over operands each say what is wrong, or nothing; what inference or a rule of normalisation refuses is not repeated here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from deeploy.errors import shorten
from deeploy.frontend.predicates import (
    ANY,
    MOST,
    Constraint,
    Operands,
    Reach,
    UnknownOperand,
    at_least,
    axes_in,
    axis_in,
    divides_channels,
    first_shape,
    has_axes,
    has_broadcast,
    has_one_element,
    indices_in,
    make_constraint,
    rank_is,
    same_rank,
    shape_is,
    value_of,
    values_in,
)
from deeploy.frontend.records import QuantisedForm, Record, standard_record, vendor_record
from deeploy.frontend.vendors import ACTIVATIONS, PADDING
from deeploy.operators.recurrent import GATES

_TERM = r"[A-Za-z]*(\.\.\.[A-Za-z]*)?"
_EQUATION = re.compile(rf"{_TERM}(,{_TERM})*(->{_TERM})?")


def _check_equation(node: Operands) -> str | None:
    """Einsum: letters and at most one ellipsis for every operand, and for the result; the inference of onnx may not end with others."""
    text = str(node.attributes.get("equation", ""))
    is_one = _EQUATION.fullmatch(text.replace(" ", "")) is not None
    return None if is_one else f"has the equation {shorten(text, 40)}, where letters, commas, ... and one -> are known"


def _no_more(node: Operands) -> str | None:
    """GatherElements, ScatterElements: indices are no more than the data along the other axes."""
    data, indices, axis = node.shape(0), node.shape(1), node.axis()
    wrong = next((i for i, (n, m) in enumerate(zip(indices, data, strict=False)) if i != axis and n > m), None)
    return None if wrong is None else f"has {indices[wrong]} indices along axis {wrong}, which has {data[wrong]}"


def _nd_depth(node: Operands) -> str | None:
    """GatherND, ScatterND: the last axis of the indices counts axes of the data; constants of it lie within these."""
    data, indices, batch = node.shape(0), node.shape(1), node.attributes.get("batch_dims", 0)
    if not data or not indices or not 0 <= batch < min(len(data), len(indices)) or data[:batch] != indices[:batch]:
        return f"reads data of shape {list(data)} by indices of shape {list(indices)}, {batch} axes of which are batches"
    if not 1 <= indices[-1] <= len(data) - batch:
        return f"has indices of {indices[-1]} numbers each, its data has {len(data) - batch} axes for them"
    value, sizes = node.value(1), np.array(data[batch : batch + indices[-1]])
    return f"has an index outside of {sizes.tolist()}" if value.size and np.any((value < -sizes) | (value >= sizes)) else None


def _check_scatter(node: Operands) -> tuple[int, ...]:
    *places, depth = node.shape(1)
    return (*places, *node.shape(0)[depth:])


def _check_image(node: Operands) -> str | None:
    """Pools of whole images: there is something in them."""
    shape = node.shape(0)
    return f"has images of shape {list(shape)}, which are empty" if 0 in shape[2:] else None


def _check_pads(node: Operands) -> str | None:
    """Pad: as many pads as twice the axes; what is mirrored or wrapped is there."""
    shape, pads, mode = node.shape(0), node.setting("pads", 1), node.attributes.get("mode", "constant")
    names_axes = node.attributes.get("axes") is not None or node.has(3)
    axes = [axis % len(shape) for axis in node.setting("axes", 3)] if names_axes else range(len(shape))
    if len(pads) != 2 * len(axes):
        return f"has {len(pads)} pads for {len(axes)} axes"
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        left = shape[axis] + min(before, 0) + min(after, 0)
        most = {"reflect": left - 1, "constant": MOST}.get(mode, ANY if left > 0 else 0)
        if left < 0 or max(before, after) > max(most, 0):
            return f"pads axis {axis} of {shape[axis]} elements by {before} and {after} in mode {mode}"
    return None


def _check_reshape(node: Operands) -> str | None:
    """Reshape: one extent may be -1; a 0 copies one of the input."""
    wanted, shape, has_zeros = node.setting("shape", 1), node.shape(0), node.attributes.get("allowzero")
    if min(wanted, default=0) < -1 or wanted.count(-1) > 1 or (has_zeros and {0, -1} <= {*wanted}):
        return f"wants the shape {wanted}"
    if not has_zeros and 0 in wanted[len(shape) :]:
        return f"wants the shape {wanted}, which copies axes that an input of shape {list(shape)} does not have"
    return None


def _check_range(node: Operands) -> str | None:
    """Range: three numbers, of which the step is not 0; no more elements than a tensor has."""
    start, limit, delta = (float(node.value(position).item()) for position in range(3))
    count = math.inf if delta == 0 or not math.isfinite(start + limit + delta) else math.ceil((limit - start) / delta)
    return f"counts from {start:g} to {limit:g} in steps of {delta:g}" if count > MOST else None


def _check_resize(node: Operands) -> str | None:
    """Resize, Upsample: a factor or an extent, above 0, for every axis."""
    shape, axes, scales = node.shape(0), node.attributes.get("axes"), node.attributes.get("scales")
    for position in (2, 3) if node.has(2) or node.has(3) else (1,):
        tensor = node.inputs[position] if node.has(position) else None
        value = value_of(tensor) if scales is None else np.asarray(scales)
        if value is None or value.dtype.kind not in "iufb" or not value.size:
            continue
        if value.size != len(shape if axes is None else axes) or not np.all(value > 0):
            return f"resizes a tensor of shape {list(shape)} by {value.ravel()[:8].tolist()}"
    return None


def _quantised_rows(node: Operands) -> str | None:
    """QuantizeLinear, DequantizeLinear: several zero points have the shape of the scales."""
    scale, zero = node.shape(1), node.shape(2)
    same = scale == zero or math.prod(scale) == math.prod(zero) == 1
    return None if same else f"has scales of shape {list(scale)} and zero points of shape {list(zero)}"


def _check_concat(node: Operands) -> str | None:
    """Concat: ranks and the extents of all other axes are equal."""
    shapes, axis = [tuple(tensor.shape) for tensor in node.inputs if tensor is not None], node.axis()
    if len({(len(shape), shape[:axis] + shape[axis + 1 :]) for shape in shapes}) > 1:
        return f"joins tensors of shapes {shorten(', '.join(str(list(s)) for s in shapes), 120)}"
    return None


@make_constraint
def fits_window(node: Operands, weights: int) -> str | None:
    """Convolutions: the weights have the rank of the input, which has spatial axes."""
    x, w = node.shape(0), node.shape(weights)
    return None if len(x) == len(w) >= 3 else f"has an input of shape {list(x)} and weights of shape {list(w)}"


def count_filters(weights: int = 1) -> Reach:
    """The number of output channels of a convolution."""
    return lambda node: node.shape(weights)[:1]


def _transposed_filters(node: Operands) -> tuple[int, ...]:
    return (node.shape(1)[1] * int(node.attributes.get("group", 1)),)


def _check_extension(node: Operands) -> str | None:
    """ConvTranspose: what is added at the end is less than a step of its window."""
    extra = node.attributes.get("output_padding") or []
    ones = [1] * len(extra)
    steps = zip(extra, node.attributes.get("strides") or ones, node.attributes.get("dilations") or ones, strict=False)
    fits = all(0 <= added < max(stride, dilation) for added, stride, dilation in steps)
    return None if fits else f"has output_padding {extra}, which is below the strides or the dilations"


def _check_channels(node: Operands) -> tuple[int, ...]:
    if len(node.shape(0)) < 2:
        raise UnknownOperand
    return node.shape(0)[1:2]


def _check_groups(node: Operands) -> str | None:
    """GroupNormalization: groups of equally many channels."""
    (channels,), groups = _check_channels(node), node.attributes.get("num_groups", 1)
    return None if groups > 0 and channels % groups == 0 else f"has {channels} channels in {groups} groups"


def _check_product(node: Operands) -> tuple[int, ...]:
    """Gemm: the shape of the result, which its third input is repeated to."""
    a, b = node.shape(0), node.shape(1)
    if len(a) != 2 or len(b) != 2:
        raise UnknownOperand
    return a[1 if node.attributes.get("transA") else 0], b[0 if node.attributes.get("transB") else 1]


def _along_axis(node: Operands) -> int:
    """One more than the extent of the axis."""
    return node.shape(0)[node.axis(-1)] + 1


def _check_axis(node: Operands) -> str | None:
    """CumSum: the axis is a constant input."""
    axis, rank = node.value(1).item(), len(node.shape(0))
    return None if -rank <= axis < rank else f"has axis {axis}, but its input has {rank} axes"


def _check_repeats(node: Operands) -> tuple[int, ...]:
    if node.has(2):
        raise UnknownOperand
    return (len(node.shape(0)),)


def _check_reverse(node: Operands) -> str | None:
    """ReverseSequence: two different axes of the first two; a length for each sequence, which has as many steps."""
    shape, lengths = node.shape(0), value_of(node.tensor(1))
    batch, time = node.attributes.get("batch_axis", 1), node.attributes.get("time_axis", 0)
    if {batch, time} != {0, 1} or len(shape) < 2:
        return f"has batch_axis {batch} and time_axis {time} of {len(shape)} axes"
    fits = lengths is None or not lengths.size or 0 <= lengths.min() <= lengths.max() <= shape[time]
    return None if fits and node.shape(1) == (shape[batch],) else f"has lengths that do not fit its input of shape {list(shape)}"


@make_constraint
def fits_recurrent(node: Operands, gates: int) -> str | None:
    """LSTM, GRU, RNN: weights, biases and states are those of as many units as the weights of the state have columns."""
    x, of_state, layout = node.shape(0), node.shape(2), int(bool(node.attributes.get("layout")))
    if len(x) != 3 or not of_state:
        return f"has an input 0 of {len(x)} axes, which has 3" if of_state else None
    units = of_state[-1]
    directions, batch, rows = 1 + (node.attributes.get("direction") == "bidirectional"), x[1 - layout], gates * units
    if node.attributes.get("hidden_size", units) != units:
        return f"has hidden_size {node.attributes['hidden_size']}, and {units} units by its input 2"
    state = (batch, directions, units) if layout else (directions, batch, units)
    weights = ((directions, rows, x[-1]), (directions, rows, units), (directions, 2 * rows))
    for position, shape in enumerate((*weights, (batch,), state, state, (directions, 3 * units)), 1):
        if node.has(position) and (actual_shape := node.shape(position)) != shape:
            told = f"has an input {position} of shape {list(actual_shape)} instead of {list(shape)}, for the {units} units of its input 2"
            return f"{told}; layers of ONNX have no projection (proj_size in PyTorch)"
    return None


def _check_grid(node: Operands) -> str | None:
    """GridSample: a place of as many numbers as there are spatial axes, for each image."""
    x, grid = node.shape(0), node.shape(1)
    fits = len(x) == len(grid) >= 3 and x[0] == grid[0] and grid[-1] == len(x) - 2
    return None if fits else f"has images of shape {list(x)} and a grid of shape {list(grid)}"


def _kept_share(node: Operands) -> str | None:
    ratio = node.value(1)
    return None if ratio.size == 1 and 0 <= ratio < 1 else "has a ratio that is not from 0 up to 1"


def _check_regions(node: Operands) -> tuple[int, ...]:
    return node.shape(1)[:1]


_PADDED = f"auto_pad?: {PADDING}"
_RECURRENT = f"direction?: forward|reverse|bidirectional; activations?: {ACTIVATIONS}"
_LOSS = "reduction?: none|mean|sum|add|mul|max|min"
_COORDINATES = "half_pixel|half_pixel_symmetric|pytorch_half_pixel|align_corners|asymmetric|tf_crop_and_resize|tf_half_pixel_for_nn"
_SCALED = (shape_is(1, _check_channels), shape_is(2, _check_channels))
_WHOLE = (has_broadcast(1, first_shape), has_broadcast(2, first_shape))
_FROM_0 = values_in(1, 0, lambda node: 1 << 63)
_REDUCED = standard_record(rank_is(1, 1), settings=(1,))


def convolution_record(weights: int, *known: Constraint, **about: Any) -> Record:
    """The record of a convolution whose weights are at a position."""
    return standard_record(_PADDED, fits_window(weights), *known, weights=weights, **about)


_RUNNING = (has_one_element(1), _check_axis, at_least("exclusive", 0, 1), at_least("reverse", 0, 1))
STANDARD: Mapping[str, Record] = {
    **dict.fromkeys(("AffineGrid", "Attention", "CenterCropPad", "SwiGLU"), standard_record(is_composed=True)),
    # Up to opset 7, inference believes the first of unequal shapes, while exporters and runtimes broadcast.
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), standard_record(inferred_from=8)),
    # Up to opset 15 these are functions of other operators, which have no inference.
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual"), standard_record(inferred_from=16)),
    **{f"Reduce{kind}": _REDUCED for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")},
    **dict.fromkeys(("AveragePool", "LpPool"), standard_record(_PADDED)),
    **dict.fromkeys(("Cast", "CastLike"), standard_record("round_mode?: up|down|nearest")),
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), standard_record(_check_image)),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), standard_record(axis_in(default=-1), *_WHOLE)),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), standard_record(_LOSS, is_composed=True)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), standard_record(_quantised_rows)),
    **{op: standard_record(_RECURRENT, at_least("linear_before_reset", 0, 1), fits_recurrent(gates)) for op, gates in GATES.items()},
    "BatchNormalization": standard_record(rank_is(0, 2, ANY), *_SCALED, shape_is(3, _check_channels), shape_is(4, _check_channels)),
    "BitShift": standard_record("direction?: LEFT|RIGHT"),
    "CausalConvWithState": standard_record("activation?: none|silu|swish", is_composed=True),
    "Clip": standard_record(has_one_element(1), has_one_element(2), settings=(1, 2)),
    "Compress": standard_record(rank_is(1, 1), settings=(1,)),
    "Concat": standard_record(axis_in(), _check_concat),
    "ConstantOfShape": standard_record(rank_is(0, 1), values_in(0, 0, lambda node: 1 << 63), settings=(0,)),
    "Conv": convolution_record(1, shape_is(2, count_filters()), product=1),
    "ConvInteger": convolution_record(1, zero_points=((2, 0, 1), (3, 1, 0))),
    "ConvTranspose": convolution_record(1, shape_is(2, _transposed_filters), _check_extension, product=1),
    "CumProd": standard_record(*_RUNNING),
    "CumSum": standard_record(*_RUNNING, settings=(1,)),
    "DepthToSpace": standard_record("mode?: DCR|CRD", rank_is(0, 4), divides_channels("blocksize")),
    "Div": standard_record("Delta? eps? eta?: wide"),
    "Dropout": standard_record(rank_is(1, 0), _kept_share),
    "Einsum": standard_record(_check_equation),
    "Expand": standard_record(rank_is(1, 1), _FROM_0, settings=(1,)),
    "EyeLike": standard_record(rank_is(0, 2)),
    "Flatten": standard_record(axis_in(more=1, default=1)),
    "Gather": standard_record(axis_in(), indices_in()),
    "GatherElements": standard_record(axis_in(), same_rank(0, 1), _no_more, indices_in()),
    "GatherND": standard_record(_nd_depth),
    "Gelu": standard_record("approximate?: none|tanh"),
    "Gemm": standard_record(has_broadcast(2, _check_product), product=-1),
    "GridSample": standard_record("mode?: bilinear|nearest|bicubic|linear|cubic; padding_mode?: zeros|border|reflection", _check_grid),
    "GroupNormalization": standard_record(rank_is(0, 3, ANY), _check_groups, keeps_shape=True, is_composed=True),
    "HardSwish": standard_record("three? six? one_over_six?: wide"),
    "ImageDecoder": standard_record("pixel_format?: RGB|BGR|Grayscale"),
    "InstanceNormalization": standard_record(rank_is(0, 3, ANY), *_SCALED),
    "LRN": standard_record(rank_is(0, 3, ANY), at_least("size", 1)),
    "LinearAttention": standard_record("update_rule?: linear|gated|delta|gated_delta", is_composed=True),
    "MatMul": standard_record(product=-1),
    "MatMulInteger": standard_record(zero_points=((2, 0, -2), (3, 1, -1))),
    "MaxPool": standard_record(_PADDED, at_least("storage_order", 0, 1)),
    "MeanVarianceNormalization": standard_record(axes_in("axes", 1), keeps_shape=True, is_composed=True),
    "OneHot": standard_record(
        axis_in(more=1, default=-1), has_one_element(1), shape_is(2, lambda node: (2,)), values_in(1, 1, lambda node: MOST), settings=(1,)
    ),
    "PRelu": standard_record(has_broadcast(1, first_shape)),
    "Pad": standard_record("mode?: constant|reflect|edge|wrap", axes_in("axes", 3), has_one_element(2), _check_pads, settings=(1, 2, 3)),
    "QLinearConv": convolution_record(3, has_one_element(1, 2, 6, 7), shape_is(8, count_filters(3)), form=QuantisedForm("Conv", 2, 6, 8)),
    "QLinearMatMul": standard_record(form=QuantisedForm("MatMul", 2, 6)),
    "Range": standard_record(has_one_element(0, 1, 2), _check_range, settings=(0, 1, 2)),
    "Reshape": standard_record(rank_is(1, 1), _check_reshape, settings=(1,)),
    "Resize": standard_record(
        "mode?: nearest|linear|cubic; nearest_mode?: round_prefer_floor|round_prefer_ceil|floor|ceil|simple|; "
        f"keep_aspect_ratio_policy?: stretch|not_larger|not_smaller; coordinate_transformation_mode?: {_COORDINATES}",
        _check_resize,
        settings=(1, 2, 3),
    ),
    "ReverseSequence": standard_record(_check_reverse),
    "RoiAlign": standard_record(
        "mode?: avg|max; coordinate_transformation_mode?: half_pixel|output_half_pixel",
        *(rank_is(0, 4), rank_is(1, 2), shape_is(2, _check_regions)),
    ),
    "RotaryEmbedding": standard_record(at_least("rotary_embedding_dim", 0), at_least("interleaved", 0, 1), is_composed=True),
    "ScatterElements": standard_record(_LOSS, axis_in(), same_rank(0, 1), shape_is(2, lambda node: node.shape(1)), _no_more, indices_in()),
    "ScatterND": standard_record(_LOSS, _nd_depth, shape_is(2, _check_scatter)),
    "SimplifiedLayerNormalization": vendor_record(2, 3, "epsilon?: float; axis?: int", rank=1, keeps_shape=True),
    "Slice": standard_record(*(rank_is(position, 1) for position in range(1, 5)), settings=(1, 2, 3, 4)),
    "SpaceToDepth": standard_record("mode?: DCR|CRD", rank_is(0, 4), divides_channels("blocksize", 2, 3)),
    "Split": standard_record(settings=(1,)),
    "Squeeze": standard_record(rank_is(1, 0, 1), axes_in("axes", 1), has_axes("axes", 1), settings=(1,)),
    "StringNormalizer": standard_record("case_change_action?: LOWER|UPPER|NONE"),
    "TensorScatter": standard_record("mode?: linear|circular"),
    "TfIdfVectorizer": standard_record("mode?: TF|IDF|TFIDF"),
    "Tile": standard_record(shape_is(1, _check_repeats), _FROM_0, settings=(1,)),
    "TopK": standard_record(
        *(axis_in(default=-1), has_one_element(1), values_in(1, 0, _along_axis), at_least("largest", 0, 1), at_least("sorted", 0, 1)),
        settings=(1,),
    ),
    "Trilu": standard_record(rank_is(0, 2, ANY), has_one_element(1), settings=(1,)),
    "Unsqueeze": standard_record(rank_is(1, 0, 1), axes_in("axes", 1, grows=True), settings=(1,)),
    "Upsample": standard_record("mode?: nearest|linear|bilinear", _check_resize, settings=(1,)),
}
