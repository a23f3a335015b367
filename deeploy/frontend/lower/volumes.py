"""Convolutions along three axes as convolutions of images.

Every plane of the result reads as many planes of the volume as the filter is deep. They become channels of one image, and the planes of
the result its batch: sums of products are the same, so that quantised ones stay exact. A plane that lies outside is one of zeros.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.quant import dequantised
from deeploy.frontend.lower.rewriter import Rewriter, standard
from deeploy.graph.rewrite import Pass, constant, producer

_WINDOW = ("kernel_shape", "strides", "dilations", "output_padding")


def _planes(rw: Rewriter, extent: int) -> np.ndarray:
    """The plane of the input that every plane of the result reads, of shape [planes, depth of the filter]; -1 where it lies outside."""
    depth, stride, dilation = (rw.attrs[name][0] for name in _WINDOW[:3])
    plane, tap, begin = np.arange(rw.y.shape[2])[:, None], np.arange(depth)[None] * dilation, rw.attrs["pads"][0]
    if rw.op == "ConvTranspose":
        found, rest = np.divmod(plane + begin - tap, stride)
        return np.where((rest == 0) & (found >= 0) & (found < extent), found, -1)
    found = plane * stride + tap - begin
    return np.where((found >= 0) & (found < extent), found, -1)


def _padded(rw: Rewriter, x: gs.Tensor, pads: list[int], value: int = 0) -> gs.Tensor:
    """A volume with borders: their widths at the beginnings of its axes, then at the ends."""
    around = [0, 0, *pads[:3], 0, 0, *pads[3:]]
    shape = [n + around[axis] + around[axis + 5] for axis, n in enumerate(x.shape)]
    return rw.create("Pad", x, shape=shape, pads=around, mode="constant", value=value)


def _zero(rw: Rewriter) -> int | None:
    """The integer that stands for 0 in the input; None where it is computed."""
    if rw.op != "ConvInteger" or rw.input(2) is None:
        return 0
    point = rw.value(2)
    return int(point.item()) if point is not None and point.size == 1 else None


def _filters(rw: Rewriter) -> gs.Tensor:
    """The filters of images: channels are sorted by group, then by plane."""

    def sorted_channels(weights: gs.Tensor) -> gs.Tensor:
        channels, more, depth, *window = weights.shape
        if rw.op != "ConvTranspose":
            return rw.reshape(rw.transpose(weights, (0, 2, 1, 3, 4)), [channels, depth * more, *window])
        groups = rw.attrs["group"]
        split = rw.reshape(weights, [groups, channels // groups, more, depth, *window])
        return rw.reshape(rw.transpose(split, (0, 3, 1, 2, 4, 5)), [channels * depth, more, *window])

    weights = rw.node.inputs[1]
    found, source = dequantised(weights), producer(weights, "DequantizeLinear")
    if found is None or source is None or constant(found.tensor) is None:
        return sorted_channels(weights)
    axis = int(rw.op == "ConvTranspose")
    if not found.is_scalar and found.axis != axis:
        return sorted_channels(weights)
    return rw.create("DequantizeLinear", sorted_channels(found.tensor), *source.inputs[1:], dtype=weights.dtype, axis=axis)


@standard("Conv", "ConvTranspose", "ConvInteger")
def volume(rw: Rewriter) -> bool:
    """Planes become channels of images, and those of the result images of a batch."""
    x = rw.x
    if len(x.shape) != 5:
        return False
    batch, channels, extent, *image = x.shape
    planes, groups = _planes(rw, extent), rw.attrs["group"]
    count, depth = planes.shape
    if (planes < 0).any():
        zero = _zero(rw)
        if zero is None:
            return False
        x, planes = _padded(rw, x, [0, 0, 0, 1, 0, 0], zero), np.where(planes < 0, extent, planes)
    between = rw.transpose(rw.reshape(x, [batch, channels, x.shape[2], math.prod(image)]), (0, 2, 1, 3))
    if not np.array_equal(planes.ravel(), np.arange(x.shape[2])):
        between = rw.create("Gather", between, rw.constant(planes.ravel(), np.int32), axis=1)
    split = rw.reshape(between, [batch * count, depth, groups, channels // groups, math.prod(image)])
    images = rw.reshape(split if groups == 1 else rw.transpose(split, (0, 2, 1, 3, 4)), [batch * count, channels * depth, *image])
    attrs = {name: values[1:] if name in _WINDOW else values for name, values in rw.attrs.items()}
    attrs["pads"] = [rw.attrs["pads"][position] for position in (1, 2, 4, 5)]
    shape = [batch * count, rw.y.shape[1], *rw.y.shape[3:]]
    made = rw.create(rw.op, images, _filters(rw), *rw.node.inputs[2:], shape=shape, dtype=rw.y.dtype, **attrs)
    back = rw.reshape(made, [batch, count, shape[1], math.prod(shape[2:])])
    return rw.finish(rw.reshape(rw.transpose(back, (0, 2, 1, 3)), rw.y.shape))


@standard("ConvInteger")
def dynamic_borders(rw: Rewriter) -> bool:
    """Borders of a volume whose zero point is computed are filled before the quantisation, whose range holds 0 in any case."""
    source, pads = producer(rw.x, "DynamicQuantizeLinear"), rw.attrs["pads"]
    if len(rw.x.shape) != 5 or source is None or not any(pads):
        return False
    wide = rw.create("DynamicQuantizeLinear", _padded(rw, source.inputs[0], pads), dtype=rw.x.dtype)
    return rw.replace(rw.op, wide, *rw.node.inputs[1:], **{**rw.attrs, "pads": [0] * len(pads)})


PASS = Pass("volumes", (dynamic_borders, volume))
