"""Convolutions of channels-last images: x[N,H,W,C], w[K,C/g,FH,FW] (docs/integer-form.md)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from deeploy.graph.nest import Expr, Map, Nest, parallel, reduction
from deeploy.graph.nodes import Node


def _sizes(node: Node) -> tuple[int, int, int, int, int]:
    """Group count, output channels per group, input channels per group, kernel height and width."""
    w = node.inputs[1]
    assert w is not None
    group = node.attrs["group"]
    outputs = node.outputs[0].shape[3]
    depth = w.shape[1] if node.op == "Conv" else w.shape[0] // group
    return group, outputs // group, depth, w.shape[2], w.shape[3]


def nest(weights: Callable[[Expr, Expr, Expr, Expr], Map]) -> Callable[[Node], Nest]:
    """The nest of ``Conv``; ``weights`` maps (output channel, input channel in its group, fh, fw) to the stored axes."""

    def declare(node: Node) -> Nest:
        group, per_group, depth, height, width = _sizes(node)
        (sh, sw), (dh, dw), (top, left) = node.attrs["strides"], node.attrs["dilations"], node.attrs["pads"][:2]
        n, oh, ow, k = parallel("n", "oh", "ow", "k")
        fh, fw, c = reduction("fh", "fw", "c")
        channel: Expr = c if group == 1 else (k // per_group) * depth + c
        return Nest(
            reads={
                "x": Map(n, sh * oh + dh * fh - top, sw * ow + dw * fw - left, channel, outside=node.attrs["zero_point"]),
                "w": weights(k, c, fh, fw),
            },
            writes={"y": Map(n, oh, ow, k)},
            extents={"fh": height, "fw": width, "c": depth},
        )

    return declare


def depthwise_nest(node: Node) -> Nest:
    """The nest of a convolution with one filter per channel, whose weights are stored [FH,FW,C]."""
    _, _, _, height, width = _sizes(node)
    (sh, sw), (dh, dw), (top, left) = node.attrs["strides"], node.attrs["dilations"], node.attrs["pads"][:2]
    n, oh, ow, k = parallel("n", "oh", "ow", "k")
    fh, fw = reduction("fh", "fw")
    return Nest(
        reads={
            "x": Map(n, sh * oh + dh * fh - top, sw * ow + dw * fw - left, k, outside=node.attrs["zero_point"]),
            "w": Map(fh, fw, k),
        },
        writes={"y": Map(n, oh, ow, k)},
        extents={"fh": height, "fw": width},
    )


def is_depthwise(node: Node) -> bool:
    """Whether every output channel reads one input channel of its own."""
    group, per_group, depth, _, _ = _sizes(node)
    return per_group == depth == 1 and group > 1


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrix product with exact integers: by floating point where every sum is below 2^53, else in int64."""
    if a.dtype.kind == "f":
        return np.asarray(a @ b)
    bound = (np.abs(a.astype(np.int64)).max(initial=0) or 1) * (np.abs(b.astype(np.int64)).max(initial=0) or 1)
    if int(bound) * a.shape[-1] < 2**53:
        return np.asarray(np.rint(a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64))
    return np.asarray(a.astype(np.int64) @ b.astype(np.int64))


def reference(node: Node, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """acc[n,oh,ow,k] = sum over the taps of x * w; x reads the zero point outside its borders."""
    group, per_group, depth, height, width = _sizes(node)
    (sh, sw), (dh, dw), (top, left, bottom, right) = node.attrs["strides"], node.attrs["dilations"], node.attrs["pads"]
    batch, out_h, out_w, channels = node.outputs[0].shape
    border = ((0, 0), (top, max(0, bottom)), (left, max(0, right)), (0, 0))
    padded = np.pad(x, border, constant_values=node.attrs["zero_point"])
    acc = np.zeros((group, batch * out_h * out_w, per_group), np.float32 if x.dtype.kind == "f" else np.int64)
    filters = w.reshape(group, per_group, depth, height, width)
    for fh in range(height):
        for fw in range(width):
            taps = padded[:, fh * dh : fh * dh + (out_h - 1) * sh + 1 : sh, fw * dw : fw * dw + (out_w - 1) * sw + 1 : sw]
            columns = taps.reshape(-1, group, depth).transpose(1, 0, 2)
            acc += product(columns, filters[:, :, :, fh, fw].transpose(0, 2, 1))
    return acc.transpose(1, 0, 2).reshape(batch, out_h, out_w, channels)


def transposed_nest(node: Node) -> Nest:
    """The nest of ``ConvTranspose``: an output gathers the inputs whose taps reach it; weights stored [FH,FW,C,K/g]."""
    group, per_group, depth, height, width = _sizes(node)
    (sh, sw), (dh, dw), (top, left) = node.attrs["strides"], node.attrs["dilations"], node.attrs["pads"][:2]
    n, oh, ow, k = parallel("n", "oh", "ow", "k")
    fh, fw, c = reduction("fh", "fw", "c")
    channel: Expr = c if group == 1 else (k // per_group) * depth + c
    filter_of: Expr = k if group == 1 else k % per_group
    return Nest(
        reads={
            "x": Map(n, (oh + top - dh * fh) // sh, (ow + left - dw * fw) // sw, channel, outside=node.attrs["zero_point"]),
            "w": Map(fh, fw, channel, filter_of),
        },
        writes={"y": Map(n, oh, ow, k)},
        extents={"fh": height, "fw": width, "c": depth},
    )


def transposed_reference(node: Node, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Every input pixel adds (x - zero_point) * w to the outputs under its taps."""
    group, per_group, depth, height, width = _sizes(node)
    (sh, sw), (dh, dw), (top, left) = node.attrs["strides"], node.attrs["dilations"], node.attrs["pads"][:2]
    batch, out_h, out_w, channels = node.outputs[0].shape
    is_float = x.dtype.kind == "f"
    values = x if is_float else x.astype(np.int64) - node.attrs["zero_point"]
    columns = values.reshape(-1, group, depth).transpose(1, 0, 2)
    filters = w.reshape(group, depth, per_group, height, width)
    rows, cols = x.shape[1], x.shape[2]
    whole_h = max(top + out_h, (rows - 1) * sh + (height - 1) * dh + 1)
    whole_w = max(left + out_w, (cols - 1) * sw + (width - 1) * dw + 1)
    whole = np.zeros((batch, whole_h, whole_w, channels), np.float32 if is_float else np.int64)
    for fh in range(height):
        for fw in range(width):
            part = product(columns, filters[:, :, :, fh, fw]).transpose(1, 0, 2).reshape(batch, rows, cols, channels)
            whole[:, fh * dh : fh * dh + (rows - 1) * sh + 1 : sh, fw * dw : fw * dw + (cols - 1) * sw + 1 : sw] += part
    return whole[:, top : top + out_h, left : left + out_w]
