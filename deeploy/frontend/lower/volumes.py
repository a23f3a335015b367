"""Convolutions along three axes as convolutions of images.

Every plane of the result reads as many planes of the volume as the filter is deep. They become channels of one image, and the planes of
the result its batch: sums of products are the same, so that quantised ones stay exact. A plane that lies outside is one of zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deeploy.frontend.lower.quant import rearrange
from deeploy.graph.nodes import Tensor, compute
from deeploy.graph.rewriting import Match, Pass, Result, need, require, standard

_WINDOW = ("kernel_shape", "strides", "dilations", "output_padding")


def _planes(m: Match) -> np.ndarray:
    """The plane of the input that every plane of the result reads, of shape [planes, depth of the filter].

    It is the one behind the last where it lies outside.
    """
    depth, stride, dilation, begin = (m.attrs[name][0] for name in (*_WINDOW[:3], "pads"))
    plane, tap, extent = np.arange(m.y.shape[2])[:, None], np.arange(depth) * dilation, m.x.shape[2]
    found, rest = np.divmod(plane + begin - tap, stride) if m.op == "ConvTranspose" else (plane * stride + tap - begin, 0)
    return np.where((rest == 0) & (found >= 0) & (found < extent), found, extent)


def _pad(x: Tensor, pads: Sequence[int], value: float = 0) -> Tensor:
    """A volume with borders: their widths at the beginnings of its axes, then at the ends."""
    return x.apply("Pad", pads=[0, 0, *pads[:3], 0, 0, *pads[3:]], mode="constant", value=value)


def _filters(weights: Tensor, groups: int, is_transposed: bool) -> Tensor:
    """The filters of images: channels are sorted by group, then by plane."""
    channels, more, depth, *window = weights.shape
    split, joined = ([groups, -1, more], [-1, more]) if is_transposed else ([channels, more, 1], [channels, -1])

    def sort_channels(filters: Tensor) -> Tensor:
        planes_first = filters.reshape([*split, depth, *window]).transpose((0, 3, 1, 2, 4, 5))
        return planes_first.reshape([*joined, *window])

    return rearrange(weights, sort_channels, int(is_transposed))


@standard("Conv", "ConvTranspose", "ConvInteger")
def volume(m: Match, x: Tensor, weights: Tensor, *, group: int, pads: Sequence[int]) -> Result:
    """Planes become channels of images, and those of the result images of a batch."""
    require(x.rank == 5)
    (batch, channels, extent, *image), planes = x.shape, _planes(m)
    count, depth = planes.shape
    if extent in planes:
        point = m.input(2) if m.op == "ConvInteger" else None
        x = _pad(x, [0, 0, 0, 1, 0, 0], need(0 if point is None else point.number))
    between = x.reshape([*x.shape[:3], -1]).transpose((0, 2, 1, 3)).take(planes.ravel(), 1)
    split = between.reshape([batch * count, depth, group, channels // group, -1]).transpose((0, 2, 1, 3, 4))
    images = split.reshape([batch * count, channels * depth, *image])
    window = {name: m.attrs[name][1:] for name in _WINDOW if name in m.attrs}
    attributes = {**m.attrs, **window, "pads": [*pads[1:3], *pads[4:]]}
    filters, shape = _filters(weights, group, m.op == "ConvTranspose"), [batch * count, m.y.shape[1], *m.y.shape[3:]]
    planar = compute(m.op, images, filters, *m.node.inputs[2:], shape=shape, dtype=m.y.dtype, **attributes)
    return planar.reshape([batch, count, m.y.shape[1], -1]).transpose((0, 2, 1, 3))


@standard("ConvInteger")
def dynamic_borders(m: Match, x: Tensor, *, pads: Sequence[int]) -> Result:
    """Borders of a volume whose zero point is computed are filled before the quantisation, whose range holds 0 in any case."""
    source = need(m.source(x, "DynamicQuantizeLinear"))
    require(x.rank == 5, any(pads))
    wide = compute("DynamicQuantizeLinear", _pad(source.operands[0], pads), dtype=x.dtype)
    return m.replace(m.op, wide, *m.node.inputs[1:], **{**m.attrs, "pads": [0] * len(pads)})


PASS = Pass("volumes", (dynamic_borders, volume))
