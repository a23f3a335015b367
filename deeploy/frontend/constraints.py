"""What the standard says of shapes, axes, constants and element types that a node reads, and that onnx's inference does not look at.

One table: for every operator small predicates over its operands, each of which says what is wrong or nothing. Kinds and values of
attributes are checked in ``validate``; what inference or a rule of normalisation refuses is not repeated here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from deeploy.errors import ModelError, shorten
from deeploy.frontend.predicates import (
    ANY,
    MOST,
    Constraint,
    Operands,
    Reach,
    at_least,
    axes_in,
    axis_in,
    broadcasts,
    divides,
    indices_in,
    masked,
    rank_is,
    same_rank,
    shape_is,
    single,
    values_in,
)
from deeploy.frontend.schemas import MICROSOFT, QUANTISED, Attributes, history
from deeploy.frontend.structure import describe


def _no_more(node: Operands) -> str | None:
    """GatherElements, ScatterElements: indices are no more than the data along the other axes."""
    data, indices, axis = node.shape(0) or (), node.shape(1) or (), node.axis()
    wrong = next((i for i, (n, m) in enumerate(zip(indices, data, strict=False)) if i != axis and n > m), None)
    return None if wrong is None else f"has {indices[wrong]} indices along axis {wrong}, which has {data[wrong]}"


def _nd_depth(node: Operands) -> str | None:
    """GatherND, ScatterND: the last axis of the indices counts axes of the data; constants of it lie within these."""
    data, indices, batch = node.shape(0), node.shape(1), node.attributes.get("batch_dims", 0)
    if data is None or indices is None:
        return None
    if not data or not indices or not 0 <= batch < min(len(data), len(indices)) or data[:batch] != indices[:batch]:
        return f"reads data of shape {list(data)} by indices of shape {list(indices)}, {batch} axes of which are batches"
    if not 1 <= indices[-1] <= len(data) - batch:
        return f"has indices of {indices[-1]} numbers each, its data has {len(data) - batch} axes for them"
    value, sizes = node.value(1), np.array(data[batch : batch + indices[-1]])
    if value is None or not value.size:
        return None
    return f"has an index outside of {sizes.tolist()}" if np.any(value < -sizes) or np.any(value >= sizes) else None


def _scattered(node: Operands) -> tuple[int, ...] | None:
    data, indices = node.shape(0), node.shape(1)
    return None if data is None or not indices else (*indices[:-1], *data[indices[-1] :])


def _one_scale(node: Operands) -> str | None:
    """QLinear operators but products: every scale and zero point is one number."""
    wrong = next((t for t in node.inputs if t is not None and t.dtype == np.float32 and math.prod(t.shape) != 1), None)
    return None if wrong is None else f"has scales of shape {list(wrong.shape)}, where there is one"


def _some(node: Operands) -> str | None:
    """Pools of whole images: there is something in them."""
    shape = node.shape(0)
    return f"has images of shape {list(shape)}, which are empty" if shape is not None and 0 in shape[2:] else None


def _padded(node: Operands) -> str | None:
    """Pad: as many pads as twice the axes; what is mirrored or wrapped is there."""
    shape, pads, axes = node.shape(0), node.setting("pads", 1), node.setting("axes", 3)
    if shape is None or pads is None:
        return None
    axes = list(range(len(shape))) if axes is None else [axis % len(shape) for axis in axes]
    if len(pads) != 2 * len(axes):
        return f"has {len(pads)} pads for {len(axes)} axes"
    mode = node.attributes.get("mode", "constant")
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        left = shape[axis] + min(before, 0) + min(after, 0)
        most = {"reflect": left - 1, "edge": ANY if left > 0 else 0, "wrap": ANY if left > 0 else 0}.get(mode, MOST)
        if left < 0 or max(before, after) > max(most, 0):
            return f"pads axis {axis} of {shape[axis]} elements by {before} and {after} in mode {mode}"
    return None


def _reshaped(node: Operands) -> str | None:
    """Reshape: one extent may be -1; a 0 copies one of the input."""
    wanted, shape = node.setting("shape", 1), node.shape(0)
    if wanted is None or shape is None:
        return None
    if min(wanted, default=0) < -1 or wanted.count(-1) > 1 or (node.attributes.get("allowzero") and {0, -1} <= {*wanted}):
        return f"wants the shape {wanted}"
    if not node.attributes.get("allowzero") and any(n == 0 and axis >= len(shape) for axis, n in enumerate(wanted)):
        return f"wants the shape {wanted}, which copies axes that an input of shape {list(shape)} does not have"
    return None


def _ranged(node: Operands) -> str | None:
    """Range: three numbers, of which the step is not 0; no more elements than a tensor has."""
    values = [node.value(position) for position in range(3)]
    if any(value is None or value.size != 1 for value in values):
        return None
    start, limit, delta = (float(np.asarray(value).item()) for value in values)
    count = math.inf if delta == 0 or not math.isfinite(start + limit + delta) else math.ceil((limit - start) / delta)
    return f"counts from {start:g} to {limit:g} in steps of {delta:g}" if count > MOST else None


def _resized(node: Operands) -> str | None:
    """Resize, Upsample: a factor or an extent, above 0, for every axis."""
    shape, axes, is_old = node.shape(0), node.attributes.get("axes"), node.tensor(2) is None and node.tensor(3) is None
    if shape is None:
        return None
    for position in (1,) if is_old else (2, 3):
        value = node.value(position) if "scales" not in node.attributes else np.asarray(node.attributes["scales"])
        if value is None or not value.size:
            continue
        if value.size != len(shape if axes is None else axes) or not np.all(value > 0):
            return f"resizes a tensor of shape {list(shape)} by {value.ravel()[:8].tolist()}"
    return None


def _quantised_rows(node: Operands) -> str | None:
    """QuantizeLinear, DequantizeLinear: several zero points have the shape of the scales."""
    scale, zero = node.shape(1), node.shape(2)
    same = scale is None or zero is None or scale == zero or math.prod(scale) == math.prod(zero) == 1
    return None if same else f"has scales of shape {list(scale or ())} and zero points of shape {list(zero or ())}"


def _concatenated(node: Operands) -> str | None:
    """Concat: ranks and the extents of all other axes are equal."""
    shapes = [tuple(tensor.shape) for tensor in node.inputs if tensor is not None]
    axis = node.axis()
    rest = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
    return (
        f"joins tensors of shapes {shorten(', '.join(str(list(s)) for s in shapes), 120)}"
        if len({*map(len, shapes)}) > 1 or len(rest) > 1
        else None
    )


def windowed(weights: int = 1) -> Constraint:
    """Convolutions: the weights have the rank of the input, which has spatial axes."""

    def check(node: Operands) -> str | None:
        x, w = node.shape(0), node.shape(weights)
        same = x is None or w is None or len(x) == len(w) >= 3
        return None if same else f"has an input of shape {list(x or ())} and weights of shape {list(w or ())}"

    return check


def filters(weights: int = 1) -> Reach:
    """The number of output channels of a convolution."""
    return lambda node: (node.shape(weights) or ())[:1] or None


def _transposed_filters(node: Operands) -> tuple[int, ...] | None:
    w = node.shape(1)
    return None if w is None or len(w) < 2 else (w[1] * int(node.attributes.get("group", 1)),)


def _extended(node: Operands) -> str | None:
    """ConvTranspose: what is added at the end is less than a step of its window."""
    extra = node.attributes.get("output_padding") or []
    ones = [1] * len(extra)
    steps = zip(extra, node.attributes.get("strides") or ones, node.attributes.get("dilations") or ones, strict=False)
    fits = all(0 <= added < max(stride, dilation) for added, stride, dilation in steps)
    return None if fits else f"has output_padding {extra}, which is below the strides or the dilations"


def _zero_points(node: Operands) -> str | None:
    """MatMulNBits: zero points of all blocks, those of bytes packed by rows."""
    zero, (k, n, bits, size) = node.tensor(3), (int(node.attributes[name]) for name in ("K", "N", "bits", "block_size"))
    blocks = -(-k // size)
    needed = 0 if zero is None else n * (-(-blocks * bits // 8) if zero.dtype == np.uint8 else blocks)
    return None if zero is None or math.prod(zero.shape) == needed else f"has zero points of shape {list(zero.shape)}, {needed} are needed"


def _batches(node: Operands) -> str | None:
    """Queries, keys and values are of the same batches."""
    counts = {shape[0] for shape in map(node.shape, range(3)) if shape}
    return f"has queries, keys and values of {' and '.join(map(str, sorted(counts)))} batches" if len(counts) > 1 else None


def _columns(node: Operands) -> tuple[int, ...] | None:
    """A bias for every column of weights."""
    weights = node.shape(1)
    return weights[1:] if weights is not None and len(weights) == 2 else None


def _skipped(node: Operands) -> str | None:
    """SkipLayerNormalization and its kind: what is added is the same for all batches, or has all rows of each."""
    x, skip = node.shape(0) or (), node.shape(1) or ()
    return None if x[-2:] == skip[-2:] else f"adds a tensor of shape {list(skip)} to one of shape {list(x)}"


def _biases(node: Operands) -> tuple[int, ...] | None:
    """MultiHeadAttention: one for every column of queries, keys and values."""
    q, v = node.shape(0), node.shape(2)
    return (2 * q[-1] + v[-1],) if q is not None and v is not None and len(q) == len(v) == 3 else None


def _channels(node: Operands) -> tuple[int, ...] | None:
    shape = node.shape(0)
    return None if shape is None or len(shape) < 2 else shape[1:2]


def _groups(node: Operands) -> str | None:
    """GroupNormalization: groups of equally many channels."""
    channels, groups = _channels(node), node.attributes.get("num_groups", 1)
    return None if channels is None or (groups > 0 and channels[0] % groups == 0) else f"has {channels[0]} channels in {groups} groups"


def _product(node: Operands) -> tuple[int, ...] | None:
    """Gemm: the shape of the result, which its third input is repeated to."""
    a, b = node.shape(0), node.shape(1)
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    return a[1 if node.attributes.get("transA") else 0], b[0 if node.attributes.get("transB") else 1]


def _along_axis(node: Operands) -> int | None:
    """One more than the extent of the axis."""
    shape = node.shape(0)
    return shape[node.axis(-1)] + 1 if shape else None


def _rank(node: Operands) -> int | None:
    shape = node.shape(0)
    return None if shape is None else len(shape)


def _counted(node: Operands) -> str | None:
    """CumSum: the axis is a constant input."""
    axis, rank = node.value(1), len(node.shape(0) or ())
    return None if axis is None or -rank <= axis.item() < rank else f"has axis {axis.item()}, but its input has {rank} axes"


def _whole(node: Operands) -> tuple[int, ...] | None:
    return node.shape(0)


def _repeated(node: Operands) -> tuple[int, ...] | None:
    rank = _rank(node)
    return None if rank is None or node.tensor(2) is not None else (rank,)


def _reversed(node: Operands) -> str | None:
    """ReverseSequence: two different axes of the first two; a length for each sequence, which has as many steps."""
    shape, lengths, value = node.shape(0) or (), node.shape(1), node.value(1)
    batch, time = node.attributes.get("batch_axis", 1), node.attributes.get("time_axis", 0)
    if {batch, time} != {0, 1} or len(shape) < 2:
        return f"has batch_axis {batch} and time_axis {time} of {len(shape)} axes"
    if lengths != (shape[batch],) or (value is not None and value.size and not 0 <= value.min() <= value.max() <= shape[time]):
        return f"has lengths that do not fit its input of shape {list(shape)}"
    return None


def recurrent(gates: int) -> Constraint:
    """LSTM, GRU, RNN: weights, biases and states are those of as many units as the weights of the state have columns."""

    def check(node: Operands) -> str | None:
        x, of_state, layout = node.shape(0), node.shape(2), int(bool(node.attributes.get("layout")))
        if x is None or not of_state or len(x) != 3:
            return None if x is None or not of_state else f"has an input 0 of {len(x)} axes, which has 3"
        units, directions, batch = of_state[-1], 1 + (node.attributes.get("direction") == "bidirectional"), x[1 - layout]
        if node.attributes.get("hidden_size", units) != units:
            return f"has hidden_size {node.attributes['hidden_size']}, and {units} units by its input 2"
        rows, state = gates * units, (batch, directions, units) if layout else (directions, batch, units)
        wanted = [
            (directions, rows, x[-1]),
            (directions, rows, units),
            (directions, 2 * rows),
            (batch,),
            state,
            state,
            (directions, 3 * units),
        ]
        for position, shape in enumerate(wanted, 1):
            if (found := node.shape(position)) is not None and found != shape:
                told = f"has an input {position} of shape {list(found)} instead of {list(shape)}, for the {units} units of its input 2"
                return f"{told}; layers of ONNX have no projection (proj_size in PyTorch)"
        return None

    return check


def _sampled(node: Operands) -> str | None:
    """GridSample: a place of as many numbers as there are spatial axes, for each image."""
    x, grid = node.shape(0), node.shape(1)
    fits = x is None or grid is None or (len(x) == len(grid) >= 3 and x[0] == grid[0] and grid[-1] == len(x) - 2)
    return None if fits else f"has images of shape {list(x or ())} and a grid of shape {list(grid or ())}"


def _kept_share(node: Operands) -> str | None:
    ratio = node.value(1)
    return None if ratio is None or (ratio.size == 1 and 0 <= ratio < 1) else "has a ratio that is not from 0 up to 1"


def _regions(node: Operands) -> tuple[int, ...] | None:
    boxes = node.shape(1)
    return boxes[:1] if boxes else None


_SCALED = (shape_is(1, _channels), shape_is(2, _channels))
_FLAGS = (at_least("unidirectional", 0, 1), at_least("rotary_embedding_dim", 0))
CONSTRAINTS: Mapping[str, tuple[Constraint, ...]] = {
    **{f"Reduce{kind}": (rank_is(1, 1),) for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")},
    "Conv": (windowed(), shape_is(2, filters())),
    "ConvInteger": (windowed(),),
    **dict.fromkeys(("CumSum", "CumProd"), (single(1), _counted, at_least("exclusive", 0, 1), at_least("reverse", 0, 1))),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), (axis_in(default=-1), broadcasts(1, _whole), broadcasts(2, _whole))),
    **{op: (_one_scale,) for op, form in QUANTISED.items() if op.startswith("QLinear") and form.bias is None and op != "QLinearMatMul"},
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), (_quantised_rows,)),
    **dict.fromkeys(("iLayerNorm", "iNoNorm", "iRMSNorm"), (broadcasts(1, _whole), broadcasts(2, _whole))),
    "BatchNormalization": (rank_is(0, 2, ANY), *_SCALED, shape_is(3, _channels), shape_is(4, _channels)),
    "Clip": (single(1), single(2)),
    "Compress": (rank_is(1, 1),),
    "Concat": (axis_in(), _concatenated),
    "ConstantOfShape": (rank_is(0, 1), values_in(0, 0, lambda node: 1 << 63)),
    "ConvTranspose": (windowed(), shape_is(2, _transposed_filters), _extended),
    "DepthToSpace": (rank_is(0, 4), divides("blocksize")),
    "Dropout": (rank_is(1, 0), _kept_share),
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), (_some,)),
    "Expand": (rank_is(1, 1), values_in(1, 0, lambda node: 1 << 63)),
    "EyeLike": (rank_is(0, 2),),
    "Gather": (axis_in(), indices_in()),
    "GatherElements": (axis_in(), same_rank(0, 1), _no_more, indices_in()),
    "GatherND": (_nd_depth,),
    "Flatten": (axis_in(more=1, default=1),),
    "GRU": (at_least("linear_before_reset", 0, 1), recurrent(3)),
    "GatherBlockQuantized": (axis_in("gather_axis"), axis_in("quantize_axis", default=1)),
    "GroupQueryAttention": (shape_is(5, lambda node: (node.shape(0) or ())[:1]), shape_is(8, lambda node: node.shape(7))),
    "Gemm": (broadcasts(2, _product),),
    "GridSample": (_sampled,),
    "GroupNormalization": (rank_is(0, 3, ANY), _groups),
    "InstanceNormalization": (rank_is(0, 3, ANY), *_SCALED),
    "LSTM": (recurrent(4),),
    "RNN": (recurrent(1),),
    "LRN": (rank_is(0, 3, ANY), at_least("size", 1)),
    f"{MICROSOFT}.Attention": (*_FLAGS, shape_is(2, _columns), masked(3)),
    "EmbedLayerNormalization": (at_least("mask_index_type", 0, 1),),
    "MultiHeadAttention": (at_least("unidirectional", 0, 1), shape_is(3, _biases), masked(4), _batches),
    "QAttention": (at_least("unidirectional", 0, 1), shape_is(2, _columns), masked(5)),
    "MatMulNBits": (_zero_points,),
    "MaxPool": (at_least("storage_order", 0, 1),),
    "MeanVarianceNormalization": (axes_in("axes", 1),),
    "OneHot": (axis_in(more=1, default=-1), single(1), shape_is(2, lambda node: (2,)), values_in(1, 1, lambda node: MOST)),
    "PRelu": (broadcasts(1, _whole),),
    "Pad": (axes_in("axes", 3), single(2), _padded),
    "QLinearConv": (windowed(3), single(1, 2, 6, 7), shape_is(8, filters(3))),
    "Range": (single(0, 1, 2), _ranged),
    "Reshape": (rank_is(1, 1), _reshaped),
    "Resize": (_resized,),
    "ReverseSequence": (_reversed,),
    "RoiAlign": (rank_is(0, 4), rank_is(1, 2), shape_is(2, _regions)),
    "FusedMatMul": tuple(at_least(name, 0, 1) for name in ("transA", "transB", "transBatchA", "transBatchB")),
    "RotaryEmbedding": (at_least("rotary_embedding_dim", 0), at_least("interleaved", 0, 1)),
    "ScatterElements": (axis_in(), same_rank(0, 1), shape_is(2, lambda node: node.shape(1)), _no_more, indices_in()),
    "ScatterND": (_nd_depth, shape_is(2, _scattered)),
    "SkipLayerNormalization": (rank_is(1, 2, 3), rank_is(2, 1), broadcasts(1, _whole), _skipped),
    "SkipSimplifiedLayerNormalization": (rank_is(1, 2, 3), rank_is(2, 1), broadcasts(1, _whole), _skipped),
    "Slice": (rank_is(1, 1), rank_is(2, 1), rank_is(3, 1), rank_is(4, 1)),
    "SpaceToDepth": (rank_is(0, 4), divides("blocksize", 2, 3)),
    "Squeeze": (rank_is(1, 0, 1), axes_in("axes", 1)),
    "Tile": (shape_is(1, _repeated), values_in(1, 0, lambda node: 1 << 63)),
    "TopK": (axis_in(default=-1), single(1), values_in(1, 0, _along_axis), at_least("largest", 0, 1), at_least("sorted", 0, 1)),
    "Trilu": (rank_is(0, 2, ANY), single(1)),
    "Unsqueeze": (rank_is(1, 0, 1), axes_in("axes", 1, grows=True)),
    "Upsample": (_resized,),
}


def check_constraints(node: onnx.NodeProto, attributes: Attributes, inputs: Sequence[gs.Tensor | None]) -> None:
    """Raise ModelError where the operands of a standard operator, in shape or value, are not what it demands."""
    operands = Operands(attributes, inputs)
    for check in CONSTRAINTS.get(f"{node.domain}.{node.op_type}", CONSTRAINTS.get(node.op_type, ())):
        if (wrong := check(operands)) is not None:
            raise ModelError(f"{describe(node)} {wrong}", "correct the model, or export it again")


def check_types(node: onnx.NodeProto, inputs: Sequence[gs.Tensor | None]) -> None:
    """Raise ModelError where a standard operator reads floats that no version of it takes: as indices, counts, conditions.

    Not for graphs of the integer dialect, whose files call everything float32. Other types that differ are taken (``shapes``).
    """
    for position, (name, tensor) in enumerate(zip(node.input, inputs, strict=False)):
        if tensor is not None and tensor.dtype.kind == "f" and not _takes_floats(node.op_type, position):
            told = f"has the input '{shorten(name, 60)}' of type {tensor.dtype}, where whole numbers or truth values are needed"
            raise ModelError(f"{describe(node)} {told}", "convert it with a Cast")


@cache
def _takes_floats(op: str, position: int) -> bool:
    """Whether any version of an operator reads floats there; also where it has no such input."""
    found: set[str] = set()
    for known in history(op, ""):
        if position < known.schema.max_input:
            kind = known.inputs[min(position, len(known.inputs) - 1)]
            found |= known.allowed.get(kind, frozenset({kind}))
    return not found or "tensor(float)" in found
