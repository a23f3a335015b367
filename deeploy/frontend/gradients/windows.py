"""Gradients of products, convolutions and pools: these are products, convolutions and transposed convolutions again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deeploy.frontend.gradients.rules import Backward, Gradients, by_bias, differentiates, keep_where, sum_copies
from deeploy.ir.nodes import Attributes, Tensor, compute, concat, constant, where
from deeploy.ir.types import DType

_LOWEST = float(np.finfo(np.float32).min)


@differentiates("MatMul", weights=(0, 1))
def _differentiate_matmul(g: Backward, a: Tensor, b: Tensor) -> Gradients:
    if b.rank == 2 and a.rank > 1:  # one product, whose rows are those of all matrices
        rows, dy = a.reshape([-1, a.shape[-1]]), g.dy.reshape([-1, b.shape[1]])
        return (dy @ b.swap_last()).reshape(a.shape), rows.swap_last() @ dy
    left, right = a.reshape([1, -1]) if a.rank == 1 else a, b.reshape([-1, 1]) if b.rank == 1 else b
    batch = g.y.shape[: g.y.rank - (a.rank > 1) - (b.rank > 1)]
    dy = g.dy.reshape([*batch, left.shape[-2], right.shape[-1]])
    da, db = dy @ right.swap_last(), left.swap_last() @ dy
    return sum_copies(da, left.shape).reshape(a.shape), sum_copies(db, right.shape).reshape(b.shape)


@differentiates("Gemm", weights=(0, 1), biases=(2,))
def _differentiate_gemm(g: Backward, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Gradients:
    alpha, is_turned = float(g.attrs.get("alpha", 1.0)), [bool(g.attrs.get(name, 0)) for name in ("transA", "transB")]
    left, right = (x.swap_last() if turned else x for x, turned in zip((a, b), is_turned, strict=True))
    dy = g.dy if alpha == 1 else g.dy * alpha
    da = right @ dy.swap_last() if is_turned[0] else dy @ right.swap_last()
    db = dy.swap_last() @ left if is_turned[1] else left.swap_last() @ dy
    beta = float(g.attrs.get("beta", 1.0))
    return da, db, g.dy if beta == 1 else g.dy * beta


@dataclass(frozen=True)
class SlidingWindow:
    """The window of a convolution or a pool along all spatial axes, and how an image of some extents lies under it."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    @classmethod
    def of(cls, attrs: Attributes, kernel: Sequence[int]) -> SlidingWindow:
        rank = len(kernel)
        return cls(tuple(kernel), tuple(attrs["strides"]), tuple(attrs.get("dilations") or [1] * rank), tuple(attrs["pads"]))

    @property
    def before(self) -> tuple[int, ...]:
        return self.pads[: len(self.kernel)]

    def span(self, axis: int, count: int) -> int:
        """How many elements ``count`` windows cover along an axis."""
        return (count - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def left(self, image: Sequence[int], windows: Sequence[int]) -> list[int]:
        """How many elements of a padded image the last window does not reach."""
        axes = range(len(self.kernel))
        return [image[i] + self.before[i] + self.pads[len(axes) + i] - self.span(i, windows[i]) for i in axes]

    @property
    def attributes(self) -> Attributes:
        return {"strides": [*self.strides], "dilations": [*self.dilations], "pads": [*self.pads], "kernel_shape": [*self.kernel]}


def scatter_windows(dy: Tensor, weights: Tensor, window: SlidingWindow, group: int, image: Sequence[int]) -> Tensor:
    """The transposed convolution that gives the elements of an image what the windows over them got.

    Strided groups of several channels are computed one by one, or copies around them would have more axes than kernels move.
    """
    if group > 1 < max(window.strides) and weights.shape[1] > 1 < weights.shape[0] // group:
        pairs = zip(dy.split(1, [dy.shape[1] // group] * group), weights.split(0, [weights.shape[0] // group] * group), strict=True)
        return concat([scatter_windows(part, filters, window, 1, image) for part, filters in pairs], 1)
    shape = [dy.shape[0], weights.shape[1] * group, *image]
    attrs = {**window.attributes, "output_padding": window.left(image, dy.shape[2:])}
    return compute("ConvTranspose", dy, weights, shape=shape, group=group, label="by data", **attrs)


def by_weights(x: Tensor, dy: Tensor, window: SlidingWindow, group: int) -> Tensor:
    """The gradient of a convolution's weights: for each of its places, the product of what lies under it and the gradient of the result.

    These are products of matrices for every group; where that has one channel and one filter, of elements, which are summed.
    """
    channels, filters, rank = x.shape[1] // group, dy.shape[1] // group, dy.rank - 2
    taps = _list_taps(x, window, dy.shape[2:], 0.0)
    if channels == filters == 1:
        parts = [(tap * dy).reduce("Sum", 0, *range(2, dy.rank)).reshape([1, group, 1]) for tap in taps]
    else:
        rows = _rows_of_groups(dy, group).swap_last()
        parts = [(rows @ _rows_of_groups(tap, group)).reshape([1, dy.shape[1], channels]) for tap in taps]
    whole = concat(parts, 0).reshape([*window.kernel, dy.shape[1], channels])
    return whole.transpose([rank, rank + 1, *range(rank)])


def _rows_of_groups(image: Tensor, group: int) -> Tensor:
    """A matrix for each group, with a row for every place of all images and a column for every channel; one matrix where there is one."""
    rows = image.transpose([0, *range(2, image.rank), 1]).reshape([-1, image.shape[1]])
    return rows if group == 1 else rows.reshape([rows.shape[0], group, -1]).transpose([1, 0, 2])


def _list_taps(x: Tensor, window: SlidingWindow, count: Sequence[int], outside: float) -> list[Tensor]:
    """What all windows see through each of their places, in order."""
    rank = len(count)
    padded = x.pad([0, 0, *window.before], [0, 0, *window.pads[rank:]], outside)
    taps = []
    for place in np.ndindex(*window.kernel):
        tap = padded
        for axis, at in enumerate(place):
            begin, step = at * window.dilations[axis], window.strides[axis]
            tap = tap.cut(2 + axis, begin, begin + (count[axis] - 1) * step + 1, step)
        taps.append(tap)
    return taps


@differentiates("Conv", weights=(1,), biases=(2,))
def _differentiate_convolve(g: Backward, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Gradients:
    window, group = SlidingWindow.of(g.attrs, weights.shape[2:]), int(g.attrs.get("group", 1))
    return scatter_windows(g.dy, weights, window, group, x.shape[2:]), by_weights(x, g.dy, window, group), by_bias(g.dy)


@differentiates("ConvTranspose", weights=(1,), biases=(2,))
def _convolve_transposed(g: Backward, x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Gradients:
    """Data and result change places with those of the convolution that it is the gradient of."""
    window, group = SlidingWindow.of(g.attrs, weights.shape[2:]), int(g.attrs.get("group", 1))
    more = [n // step for n, step in zip(window.left(g.dy.shape[2:], x.shape[2:]), window.strides, strict=True)]
    shape = [*x.shape[:2], *(n + m for n, m in zip(x.shape[2:], more, strict=True))]
    by_data = compute("Conv", g.dy, weights, shape=shape, group=group, label="by data", **window.attributes)
    for axis, size in enumerate(x.shape):
        by_data = by_data.cut(axis, 0, size)
    return by_data, by_weights(g.dy, x, window, group), by_bias(g.dy)


@differentiates("AveragePool")
def _average_pool(g: Backward, x: Tensor) -> Tensor:
    return average_gradient(g.dy, g.attrs, x.shape)


def average_gradient(dy: Tensor, attrs: Attributes, shape: Sequence[int]) -> Tensor:
    """The gradient of an image of a shape whose windows are averaged: each element of a window gets an equal share."""
    window, channels = SlidingWindow.of(attrs, attrs["kernel_shape"]), shape[1]
    ones = np.ones((channels, 1, *window.kernel), dy.dtype.numpy)
    share = dy * constant(_share_of_window(attrs, window, shape[2:], dy.shape[2:]), dy.dtype)
    return scatter_windows(share, constant(ones, label="windows"), window, channels, shape[2:])


def _share_of_window(attrs: Attributes, window: SlidingWindow, image: Sequence[int], windows: Sequence[int]) -> np.ndarray:
    """One over the number of elements that each window averages."""
    if attrs.get("count_include_pad", 0) or not any(window.pads):
        return np.array(1 / math.prod(window.kernel))
    counts = np.ones((1,) * len(image))
    for axis, size in enumerate(image):
        starts = np.arange(windows[axis])[:, None] * window.strides[axis] - window.before[axis]
        places = starts + np.arange(window.kernel[axis]) * window.dilations[axis]
        inside = np.sum((places >= 0) & (places < size), 1)
        counts = counts * inside.reshape([-1 if i == axis else 1 for i in range(len(image))])
    return np.asarray(1 / counts)


@differentiates("MaxPool")
def _max_pool(g: Backward, x: Tensor) -> Tensor:
    """Each window gives all of it to the first of its largest elements."""
    window, count = SlidingWindow.of(g.attrs, g.attrs["kernel_shape"]), g.dy.shape[2:]
    left, taps = g.dy, list[Tensor]()
    for tap in _list_taps(x, window, count, _LOWEST):
        is_largest = tap.apply("Equal", g.y)
        taps.append(keep_where(is_largest, left).reshape([*g.dy.shape[:2], 1, *count]))
        left = where(is_largest, constant(0.0, left.dtype), left)
    return _scatter_taps(concat(taps, 2), window, x.shape)


def _numbered_taps(shape: Sequence[int], window: SlidingWindow, count: Sequence[int]) -> list[Tensor]:
    """What numbers the elements that all windows see through each of their places have in the image; -1 outside of it."""
    numbers = np.arange(math.prod(shape), dtype=np.int32).reshape(tuple(shape))
    return _list_taps(constant(numbers), window, count, -1)


def largest_places(x: Tensor, y: Tensor, attrs: Attributes) -> Tensor:
    """The number that the first of the largest elements of every window has in the image."""
    window, count = SlidingWindow.of(attrs, attrs["kernel_shape"]), y.shape[2:]
    pairs = list(zip(_list_taps(x, window, count, _LOWEST), _numbered_taps(x.shape, window, count), strict=True))
    places = pairs[-1][1]
    for tap, numbers in pairs[-2::-1]:
        places = where(tap.apply("Equal", y), numbers, places)
    return places.cast(DType.INT64)


def by_places(dy: Tensor, places: Tensor, attrs: Attributes, shape: Sequence[int]) -> Tensor:
    """The gradient of the largest elements of windows, given the numbers that these have in the image."""
    window, count = SlidingWindow.of(attrs, attrs["kernel_shape"]), dy.shape[2:]
    numbers, places = _numbered_taps(shape, window, count), places.cast(DType.INT32)
    taps = [keep_where(places.apply("Equal", each), dy).reshape([*dy.shape[:2], 1, *count]) for each in numbers]
    return _scatter_taps(concat(taps, 2), window, shape)


def _scatter_taps(taps: Tensor, window: SlidingWindow, shape: Sequence[int]) -> Tensor:
    """The elements of windows where they lie in the image: ``taps`` has an image of windows for every place of a window."""
    (samples, channels, places), count, image = taps.shape[:3], taps.shape[3:], shape[2:]
    if window.kernel == window.strides and not any(window.pads) and not any(window.left(image, count)):
        rank = len(count)
        apart = taps.reshape([samples, channels, *window.kernel, *count])
        order = [0, 1, *(axis for i in range(rank) for axis in (2 + rank + i, 2 + i))]
        return apart.transpose(order).reshape(shape)
    ones = np.tile(np.eye(places, dtype=np.float32), (channels, 1)).reshape(channels * places, 1, *window.kernel)
    return scatter_windows(taps.reshape([samples, channels * places, *count]), constant(ones, label="places"), window, channels, image)
