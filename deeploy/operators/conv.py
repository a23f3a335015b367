"""Convolutions of channels-last images (docs/integer-form.md): loop nests, layouts of weights, references.

The references add the products of one tap after the other, channel after channel, as the C kernels do, so that float
results agree to the last bit where C is compiled without contraction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from random import Random
from typing import NamedTuple

import numpy as np

from deeploy.ir.expr import Expr
from deeploy.ir.kernel import INTEGERS, AxisIndices, Layout, Operator, Range, Row, Sample, Stored, Tiling, permuted, types
from deeploy.ir.nest import Map, Nest, encoded, parallel, reduction
from deeploy.ir.nodes import Attributes, Node
from deeploy.ir.types import Array
from deeploy.operators.accumulate import INTEGER_STAGES, Ends, held, products, stored_whole, sums, values
from deeploy.operators.draws import FLAG, OUTPUTS, WIDE, ZERO_POINTS, sliding
from deeploy.operators.matmul import ROUNDED, exact_product, fuses, multiply_add

Weights = Callable[[Expr, Expr, Expr, Expr], Map]  # (output channel, input channel of its group, fh, fw) -> stored axes


class ConvWindow(NamedTuple):
    """The attributes of a convolution, and what follows from the shape of its weights; channels are those of one group."""

    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    zero_point: int
    groups: int
    channels: int
    filters: int
    height: int
    width: int


def window(node: Node, w_shape: tuple[int, ...] | None = None) -> ConvWindow:
    """Read a ``Conv`` or ``ConvTranspose`` node; ``w_shape`` is given where the node has only the weights' name."""
    attrs = node.attrs
    groups, (first, second, *size) = int(attrs["group"]), w_shape or node.operands[1].shape
    channels, filters = (first // groups, second) if node.op == "ConvTranspose" else (second, first // groups)
    strides, dilations, pads = (tuple(attrs[name]) for name in ("strides", "dilations", "pads"))
    return ConvWindow(strides, dilations, pads, int(attrs["zero_point"]), groups, channels, filters, *size)


def nest(weights: Weights) -> Callable[[Node], Nest]:
    """The nest of ``Conv``; ``weights`` says how the weights are stored."""

    return lambda node: _nest(node, weights, is_depthwise=False)


def depthwise_nest(weights: Callable[[Expr, Expr, Expr], Map]) -> Callable[[Node], Nest]:
    """The nest of a ``Conv`` whose groups have one input channel each; ``weights`` maps output channel, row and column of a tap."""

    return lambda node: _nest(node, lambda k, c, fh, fw: weights(k, fh, fw), is_depthwise=True)


def _nest(node: Node, weights: Weights, is_depthwise: bool) -> Nest:
    g = window(node)
    n, oh, ow, k = parallel("n", "oh", "ow", "k")
    fh, fw, c = reduction("fh", "fw", "c")
    group: Expr = k if g.filters == 1 else k // g.filters
    channel = group if is_depthwise else c if g.groups == 1 else group * g.channels + c
    reads = {"x": image(node, n, oh, ow, fh, fw, channel), "w": weights(k, c, fh, fw)}
    extents = {"fh": g.height, "fw": g.width, **({} if is_depthwise else {"c": g.channels})}
    return Nest(reads, {"y": Map(n, oh, ow, k)}, extents=extents)


def image(node: Node, n: Expr, oh: Expr, ow: Expr, fh: Expr, fw: Expr, channel: Expr) -> Map:
    """What an output at a row and a column sees through a tap of a sliding window."""
    (sh, sw), (dh, dw), (top, left) = node.attrs["strides"], node.attrs["dilations"], node.attrs["pads"][:2]
    outside = node.attrs.get("zero_point", 0)  # a maximum ignores what lies outside
    return Map(n, sh * oh + dh * fh - top, sw * ow + dw * fw - left, channel, outside=outside)


def taps(node: Node, x: Array, size: Sequence[int], outside: float) -> Iterator[tuple[int, int, Array]]:
    """For every tap of a window, in order, its place and what each output sees through it: [N,OH,OW,C], ``outside`` beyond the borders."""
    (height, width), (sh, sw), (dh, dw) = size, node.attrs["strides"], node.attrs["dilations"]
    top, left, bottom, right = node.attrs["pads"]
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=outside)
    rows, columns = padded.shape[1] - dh * (height - 1), padded.shape[2] - dw * (width - 1)
    for fh, fw in product(range(height), range(width)):
        yield fh, fw, padded[:, fh * dh : fh * dh + rows : sh, fw * dw : fw * dw + columns : sw]


def transposed_nest(node: Node) -> Nest:
    """The nest of ``ConvTranspose``, weights stored [FH,FW,C,K/g]: an output gathers the inputs whose taps reach it.

    With stride s and no dilation only every s-th tap reaches an output: the dimension ``th`` counts those ceil(FH/s)
    taps, so that multiply-accumulates are not counted s times; the same holds for ``tw``. With dilation all taps are counted.
    """
    g = window(node)
    n, oh, ow, k = parallel("n", "oh", "ow", "k")
    th, tw, c = reduction("th", "tw", "c")
    channel: Expr = c if g.groups == 1 else (k // g.filters) * g.channels + c
    row, row_tap, rows = _gather_axis(oh + g.pads[0], th, g.strides[0], g.dilations[0], g.height)
    column, column_tap, columns = _gather_axis(ow + g.pads[1], tw, g.strides[1], g.dilations[1], g.width)
    return Nest(
        reads={
            "x": Map(n, row, column, channel, outside=g.zero_point),
            "w": Map(row_tap, column_tap, channel, k if g.groups == 1 else k % g.filters),
        },
        writes={"y": Map(n, oh, ow, k)},
        extents={"th": rows, "tw": columns, "c": g.channels},
    )


def _gather_axis(at: Expr, tap: Expr, stride: int, dilation: int, taps: int) -> tuple[Expr, Expr, int]:
    """Along one axis: the index into x, the index into w and the number of taps that one output gathers."""
    if dilation == 1:
        return at // stride - tap, (at % stride) + stride * tap, -(-taps // stride)
    return (at - dilation * tap) // stride, tap + 0, taps


def _channels_layout(*axes: int) -> Layout:
    """The layout of [K,1,FH,FW] without its second axis, in another order."""
    return Layout(lambda w, node: np.ascontiguousarray(w[:, 0].transpose(axes)))


# How a kernel may want constant weights of a ``Conv`` stored: parts of its row.
OUTPUTS_FIRST = Stored(nest=nest(lambda k, c, fh, fw: Map(k, fh, fw, c)), layouts={"w": permuted(0, 2, 3, 1)})  # [K,FH,FW,C/g]
OUTPUTS_LAST = Stored(nest=nest(lambda k, c, fh, fw: Map(fh, fw, c, k)), layouts={"w": permuted(2, 3, 1, 0)})  # [FH,FW,C/g,K]
PACKED_FILTERS = Stored(  # [K,bytes of FH,FW,C/g]
    nest=nest(lambda k, c, fh, fw: Map(k, *encoded("w_byte", of=[dim for e in (fh, fw, c) for dim in e.affine().dims()]))),
    layouts={"w": Layout(lambda w, node: np.ascontiguousarray(w.transpose(0, 2, 3, 1).reshape(len(w), -1)))},
)
DEPTHWISE_LAST = Stored(nest=depthwise_nest(lambda k, fh, fw: Map(fh, fw, k)), layouts={"w": _channels_layout(1, 2, 0)})  # [FH,FW,K]
DEPTHWISE_COLUMNS = Stored(nest=depthwise_nest(lambda k, fh, fw: Map(k, fw, fh)), layouts={"w": _channels_layout(0, 2, 1)})  # [K,FW,FH]
DEPTHWISE_BYTES = depthwise_nest(lambda k, fh, fw: Map(k, *encoded("w_byte", of=[d for e in (fh, fw) for d in e.affine().dims()])))


def is_dense(node: Node) -> bool:
    """Whether every output channel reads all input channels."""
    return window(node).groups == 1


def is_depthwise(node: Node) -> bool:
    """Whether every output channel reads one of several input channels, each read by one output channel."""
    g = window(node)
    return g.groups > 1 and g.channels == 1 and g.filters == 1


def is_depthwise_multiplied(node: Node) -> bool:
    """Whether every output channel reads one of several input channels."""
    g = window(node)
    return g.groups > 1 and g.channels == 1


def add_products(acc: Array, x: Array, w: Array, is_fused: bool = False) -> None:
    """acc[P,G,K] += x[P,G,C] w[G,C,K] for every group; integers exactly, floats channel by channel in float32."""
    if x.dtype.kind == "f" or x.shape[2] == 1:
        for c in range(x.shape[2]):
            seen, weights = x[:, :, c, None].astype(acc.dtype), w[None, :, c, :].astype(acc.dtype)
            acc[:] = multiply_add(seen, weights, acc) if is_fused else acc + seen * weights
    else:
        acc += exact_product(x.transpose(1, 0, 2), w).transpose(1, 0, 2)


def _list_taps(start: int, outputs: int, stride: int) -> slice:
    return slice(start, start + (outputs - 1) * stride + 1, stride)


def reference(node: Node, x: Array, w: Array) -> Array:
    """acc[n,oh,ow,k] = sum over the taps of x * w; x reads ``zero_point`` outside its borders.

    x[N,H,W,C], w[K,C/g,FH,FW]; strides(2), dilations(2), pads (top, left, bottom, right), group, zero_point. The term -zero_point * sum(w)
    is part of the epilogue's constants. multiply_add: each product of floats is added without having been rounded.
    """
    g = window(node, w.shape)
    filters = w.reshape(g.groups, g.filters, g.channels, g.height, g.width).transpose(3, 4, 0, 2, 1)
    seen = list(taps(node, x, w.shape[2:], g.zero_point))
    outputs = seen[0][2].shape[:3]
    acc = np.zeros((math.prod(outputs), g.groups, g.filters), np.float32 if x.dtype.kind == "f" else np.int64)
    for fh, fw, tap in seen:
        add_products(acc, tap.reshape(-1, g.groups, g.channels), filters[fh, fw], fuses(node))
    return acc.reshape(*outputs, g.groups * g.filters)


def transposed_reference(node: Node, x: Array, w: Array) -> Array:
    """Every input pixel adds (x - zero_point) * w to the outputs under its taps; ``pads`` cut the result's borders off.

    x[N,H,W,C], w[C,K/g,FH,FW]; the attributes of Conv, and output_padding(2).
    """
    g = window(node, w.shape)
    (top, left, bottom, right), (sh, sw), (dh, dw) = g.pads, g.strides, g.dilations
    batch, height, width = x.shape[:3]
    values = x if x.dtype.kind == "f" else x.astype(np.int64) - g.zero_point
    values = values.reshape(-1, g.groups, g.channels)
    further = node.attrs["output_padding"]
    full_h = (height - 1) * sh + (g.height - 1) * dh + 1 + further[0]
    full_w = (width - 1) * sw + (g.width - 1) * dw + 1 + further[1]
    result = np.zeros((batch, full_h, full_w, g.groups, g.filters), np.float32 if x.dtype.kind == "f" else np.int64)
    filters = w.reshape(g.groups, g.channels, g.filters, g.height, g.width).transpose(3, 4, 0, 1, 2)
    for fh, fw in product(range(g.height), range(g.width)):
        place = (slice(None), _list_taps(fh * dh, height, sh), _list_taps(fw * dw, width, sw))
        part = result[place].reshape(-1, g.groups, g.filters)
        add_products(part, values, filters[fh, fw])
        result[place] = part.reshape(result[place].shape)
    cut = result[:, top : full_h - bottom, left : full_w - right]
    return cut.reshape(*cut.shape[:3], g.groups * g.filters)


def _share_groups(node: Node, axes: Sequence[int | None], indices: AxisIndices) -> Attributes | None:
    """Groups are divided with the channels of the image; a dense convolution has one, whatever is divided."""
    groups, channels = int(node.attrs["group"]), indices[0]
    x = node.operands[0]
    if groups == 1 or channels is None:
        return dict(node.attrs) if groups == 1 else None
    own = groups * len(channels)
    return {**node.attrs, "group": own // x.shape[-1]} if own % x.shape[-1] == 0 else None


def _bound_transposed(node: Node) -> dict[str, tuple[Range, Range]]:
    """Products of all taps, of which an output has some, and the same of the zero point, which is taken off."""
    x, w = node.operands[:2]
    zero, groups = int(node.attrs["zero_point"]), int(node.attrs["group"])
    data = np.full(w.shape, max(map(abs, values(w)))) if w.data is None else w.data
    filters = np.moveaxis(data.reshape(groups, -1, *w.shape[1:]), 2, 1).reshape(groups * w.shape[1], -1)
    ranges = {}
    for name, (low, high) in (("products", values(x)), ("zero points", (zero, zero)), ("sum", values(x, zero))):
        least, most = sums(filters, min(low, 0, -high if w.data is None else 0), max(high, 0, -low if w.data is None else 0))
        ranges[name] = held(int(least.min(initial=0)), int(most.max(initial=0)))
    return ranges


def _bound_accumulators(node: Node) -> Ends:
    w = node.operands[1]
    if w.data is None:
        return products(values(node.inputs[0]), values(w), w.elements // w.shape[0])
    return sums(w.data.reshape(w.shape[0], -1), *values(node.inputs[0]))


# Groups, channels and filters of each: dense, of few outputs with many channels, depthwise with one and several filters, grouped.
_DRAWN = (
    *[((1,), WIDE, WIDE)] * 3,
    ((1,), (96, 390, 640), (1, 3, 4, 9)),
    ((2, 3, 4, 5, 8, 13, 16, 17, 33), (1,), (1,)),
    ((2, 3, 5, 8), (1,), (1, 2, 3)),
    ((2, 3, 4), (2, 3, 4, 8, 17), (1, 2, 3, 5)),
)


def _draw_node(rng: Random) -> Sample:
    groups, channels, filters = map(rng.choice, rng.choice(_DRAWN))
    attrs, size, extents = sliding(rng, (1, 2, 3) if channels > max(WIDE) else OUTPUTS, 1)
    shapes = {"x": (rng.choice((1, 1, 2)), *extents, groups * channels), "w": (groups * filters, channels, *size)}
    return Sample(shapes, {**attrs, "group": groups, "zero_point": rng.choice(ZERO_POINTS), "multiply_add": rng.choice(FLAG)})


def _draw_transposed(rng: Random) -> Sample:
    (attrs, size, _), batch, extents = sliding(rng, beyond=1), rng.choice((1, 1, 2)), rng.choices((1, 2, 3, 5), k=2)
    groups, channels, filters = map(rng.choice, ((1, 1, 2, 3), (1, 2, 3, 5, 8), (1, 2, 4, 5)))
    shapes = {"x": (batch, *extents, groups * channels), "w": (groups * channels, filters, *size)}
    padding = tuple(map(rng.randrange, attrs["strides"]))
    return Sample(shapes, {**attrs, "group": groups, "zero_point": rng.choice(ZERO_POINTS), "output_padding": padding})


def state_requirement(node: Node) -> str | None:
    """An accumulator that can be stored, of products that are rounded before they are added."""
    return ROUNDED if fuses(node) else stored_whole(node)


_USUAL = Row(
    types={"x": INTEGERS, "w": INTEGERS, "y": INTEGERS, "bias": types("s32")},
    requires=stored_whole,
    epilogues=INTEGER_STAGES,
    constants=("w",),
    strided={"x": 1, "y": 1},  # channels are dense, the other axes may have any stride
)
CONV = Operator(
    "Conv",
    ("x", "w"),
    nest(lambda k, c, fh, fw: Map(k, c, fh, fw)),
    reference,
    usual={**_USUAL, "requires": state_requirement, "tiling": Tiling(whole=("c", "fh", "fw"))},
    share=_share_groups,
    bounds=_bound_accumulators,
    is_product=True,
    draw=_draw_node,
)
TRANSPOSED = Operator(
    "ConvTranspose",
    ("x", "w"),
    transposed_nest,
    transposed_reference,
    usual={
        **_USUAL,
        "layouts": {"w": permuted(2, 3, 0, 1)},
        "tiling": Tiling(whole=("k", "th", "tw", "c")),  # groups are not cut
    },
    share=_share_groups,
    integers=_bound_transposed,
    draw=_draw_transposed,
)
