"""Pooling of channels-last images (docs/integer-form.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from deeploy.graph.nest import MAX, SUM, Combine, Map, Nest, parallel, reduction
from deeploy.graph.nodes import Node


def nest(combine: Combine) -> Callable[[Node], Nest]:
    """The nest of a pooling that combines the taps inside the image."""

    def declare(node: Node) -> Nest:
        (sh, sw), (dh, dw), (top, left) = node.attrs["strides"], node.attrs["dilations"], node.attrs["pads"][:2]
        n, oh, ow, c = parallel("n", "oh", "ow", "c")
        fh, fw = reduction("fh", "fw", combine=combine)
        return Nest(
            reads={"x": Map(n, sh * oh + dh * fh - top, sw * ow + dw * fw - left, c, outside=0)},
            writes={"y": Map(n, oh, ow, c)},
            extents={"fh": node.attrs["kernel"][0], "fw": node.attrs["kernel"][1]},
        )

    return declare


max_nest, average_nest = nest(MAX), nest(SUM)


def _taps(node: Node, x: np.ndarray, outside: float) -> Iterator[np.ndarray]:
    """For every tap the image it sees, in output shape; ``outside`` beyond the borders."""
    (height, width), (sh, sw), (dh, dw) = node.attrs["kernel"], node.attrs["strides"], node.attrs["dilations"]
    top, left = node.attrs["pads"][:2]
    _, out_h, out_w, _ = node.outputs[0].shape
    bottom = max(0, (out_h - 1) * sh + (height - 1) * dh + 1 - top - x.shape[1])
    right = max(0, (out_w - 1) * sw + (width - 1) * dw + 1 - left - x.shape[2])
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=outside)
    for fh in range(height):
        for fw in range(width):
            yield padded[:, fh * dh : fh * dh + (out_h - 1) * sh + 1 : sh, fw * dw : fw * dw + (out_w - 1) * sw + 1 : sw]


def max_reference(node: Node, x: np.ndarray) -> np.ndarray:
    """Maximum over the taps inside the image."""
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return np.asarray(np.maximum.reduce(list(_taps(node, x, lowest))))


def average_reference(node: Node, x: np.ndarray) -> np.ndarray:
    """Mean over the taps that count; integers: floor((2*S*65536 + n) / (2*n)), S the sum of x - zero_point, n the taps."""
    is_float = x.dtype.kind == "f"
    values = x if is_float else x.astype(np.int64) - node.attrs["zero_point"]
    total = np.add.reduce(list(_taps(node, values, 0)))
    counted = np.ones((1, *x.shape[1:3], 1), np.int64)
    if node.attrs["count_include_pad"]:
        top, left, bottom, right = node.attrs["pads"]
        counted = np.ones((1, top + x.shape[1] + bottom, left + x.shape[2] + right, 1), np.int64)
        node = Node(node.name, node.op, node.inputs, node.outputs, {**node.attrs, "pads": (0, 0, 0, 0)})
    count = np.maximum(np.add.reduce(list(_taps(node, counted, 0))), 1)
    return np.asarray(total / count.astype(np.float32)) if is_float else np.asarray((2 * total * 65536 + count) // (2 * count))
