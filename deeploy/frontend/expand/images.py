"""Operators on images and volumes: sampled at computed places, pooled along three axes, normalised by parameters that are computed."""

from __future__ import annotations

import itertools
import math

import numpy as np

from deeploy.frontend.expand.expansion import Expansion, Results, expands, is_fixed
from deeploy.frontend.gradients.windows import largest_places
from deeploy.ir.nodes import Tensor, compute, constant
from deeploy.ir.nodes import inverse_order as invert
from deeploy.ir.types import DType
from deeploy.operators.fourier import is_fast

_SHARPNESS = -0.75  # of cubic interpolation, as ONNX has it for GridSample
Tap = tuple[Tensor, Tensor | None]  # an index along an axis as a float, and its weight


def _reflect_coordinates(x: Tensor, low: float, high: float) -> Tensor:
    """Coordinates mirrored at both borders until they lie between them."""
    span = high - low
    if not span:
        return x * 0.0 + low
    turns = (x - low) / span
    rest = turns - (turns * 0.5).apply("Floor") * 2.0
    return (1.0 - (rest - 1.0).apply("Abs")) * span + low


def _limit_coordinates(x: Tensor, size: int) -> Tensor:
    """Coordinates limited to those of an axis."""
    return x.apply("Max", 0.0).apply("Min", size - 1.0)


def _list_neighbours(x: Tensor, kind: str) -> list[Tap]:
    """The neighbours of a coordinate and their weights."""
    if kind == "nearest":
        return [(x.apply("Round"), None)]
    first = x.apply("Floor")
    t = x - first
    if kind in ("linear", "bilinear"):
        return [(first, 1.0 - t), (first + 1.0, t)]
    a = _SHARPNESS
    far = [((d * a - 5 * a) * d + 8 * a) * d - 4 * a for d in (t + 1.0, 2.0 - t)]
    near = [((d * (a + 2)) - (a + 3)) * d * d + 1.0 for d in (t, 1.0 - t)]
    return list(zip((first - 1.0, first, first + 1.0, first + 2.0), (far[0], *near, far[1]), strict=True))


@expands("GridSample")
def grid_sample(
    m: Expansion, x: Tensor, grid: Tensor, *, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: int = 0
) -> Tensor:
    """Rows of channels are gathered at the neighbours of every place, and weighted."""
    batch, channels, *sizes = x.shape
    outer = grid.shape[1:-1]
    m.spend(4 ** len(sizes))

    def inside(tap: Tap, size: int, borders: tuple[float, float]) -> Tap:
        """A neighbour whose index is one of the axis; its weight is 0 where zeros lie around."""
        index, weight = tap
        if padding_mode == "zeros":
            seen = index.apply("Greater", -0.5).apply("And", index.apply("Less", size - 0.5)).cast(DType.FLOAT32)
            weight = seen if weight is None else weight * seen
        elif padding_mode == "reflection":
            index = _reflect_coordinates(index, *borders).apply("Round")
        return _limit_coordinates(index, size), weight

    axes: list[list[Tap]] = []
    for axis, size in enumerate(sizes):
        position, borders = len(sizes) - 1 - axis, (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        place = grid.cut(grid.rank - 1, position, position + 1).reshape([batch, *outer])
        scaled = (place + 1.0) * ((size - 1) / 2) if align_corners else (place + 1.0) * (size / 2) - 0.5
        scaled = scaled.apply("Round") if mode == "nearest" else scaled
        if padding_mode == "border":
            scaled = _limit_coordinates(scaled, size)
        elif padding_mode == "reflection":
            scaled = _reflect_coordinates(scaled, *borders)
        axes.append([inside(tap, size, borders) for tap in _list_neighbours(scaled, mode)])
    rows = x.reshape([batch, channels, -1]).transpose([0, 2, 1]).reshape([-1, channels])
    begins = (np.arange(batch) * math.prod(sizes)).astype(np.int32).reshape(batch, *[1] * len(outer))
    total: Tensor | None = None
    for taps in itertools.product(*axes):
        flat, weight = constant(begins), None
        for axis, (index, own) in enumerate(taps):
            flat = flat + index.cast(DType.INT32) * math.prod(sizes[axis + 1 :])
            weight = own if weight is None else weight if own is None else weight * own
        part = rows.take(flat)
        part = part if weight is None else part * weight.reshape([*weight.shape, 1])
        total = part if total is None else total + part
    assert total is not None
    return total.transpose([0, total.rank - 1, *range(1, total.rank - 1)])


@expands("AveragePool", "MaxPool")
def expand_pool(m: Expansion, x: Tensor) -> Results:
    """The largest elements with their places; three axes: along the last two, then along the first."""
    if m.wants(1):
        attrs = {name: value for name, value in m.attrs.items() if name != "storage_order"}
        largest = m.compute(m.op, x, **attrs)
        made = largest.made_by(m.op)
        return None if m.attrs.get("storage_order", 0) or made is None else [largest, largest_places(x, largest, made.attrs)]
    if x.rank != 5:
        return None
    own = dict(m.attrs)
    split = {name: own.pop(name) for name in ("kernel_shape", "strides", "dilations", "pads") if name in own}
    halves: list[dict[str, list[int]]] = []
    for axes in ((1, 2), (0,)):
        part: dict[str, list[int]] = {name: [values[a] for a in axes] for name, values in split.items() if name != "pads"}
        if "pads" in split:
            part["pads"] = [split["pads"][a + side] for side in (0, 3) for a in axes]
        halves.append(part)
    along: dict[str, list[int]] = {name: [*halves[1][name], 1] for name in ("kernel_shape", "strides", "dilations") if name in halves[1]}
    if "pads" in split:
        along["pads"] = [halves[1]["pads"][0], 0, halves[1]["pads"][1], 0]
    batch, channels, depth, height, width = x.shape
    flat = m.compute(m.op, x.reshape([batch, channels * depth, height, width]), **own, **halves[0])
    height, width = flat.shape[2:]
    deep = m.compute(m.op, flat.reshape([batch, channels, depth, height * width]), **own, **along)
    return deep.reshape([batch, channels, deep.shape[2], height, width])


@expands("LRN")
def response_norm(x: Tensor, *, size: int = 1, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """Squares summed over neighbouring channels."""
    before, channels, rest = (size - 1) // 2, x.shape[1], [0] * (x.rank - 2)
    squares = (x * x).pad([0, before, *rest], [0, size - 1 - before, *rest])
    total = squares.cut(1, 0, channels)
    for shift in range(1, size):
        total = total + squares.cut(1, shift, shift + channels)
    return x / (total * (alpha / size) + bias).apply("Pow", beta)


def _of_channels(x: Tensor, rank: int) -> Tensor:
    return x.reshape([1, x.elements, *[1] * (rank - 2)])


@expands("BatchNormalization")
def batch_norm(
    m: Expansion,
    x: Tensor,
    scale: Tensor,
    offset: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    training_mode: int = 0,
    spatial: int = 1,
) -> Results:
    """Parameters that are computed."""
    parameters = (scale, offset, mean, variance)
    if all(map(is_fixed, parameters)) or training_mode or m.wants(1) or not spatial:
        return None
    scale, offset, mean, variance = (_of_channels(each, x.rank) for each in parameters)
    return (x - mean) / (variance + epsilon).apply("Sqrt") * scale + offset


@expands("InstanceNormalization")
def instance_norm(x: Tensor, scale: Tensor, offset: Tensor, *, epsilon: float = 1e-5) -> Results:
    """Parameters that are computed."""
    if is_fixed(scale) and is_fixed(offset):
        return None
    axes = range(2, x.rank)
    distance = x - x.reduce("Mean", *axes)
    variance = (distance * distance).reduce("Mean", *axes)
    return distance / (variance + epsilon).apply("Sqrt") * _of_channels(scale, x.rank) + _of_channels(offset, x.rank)


def _transform_matrix(length: int, taken: int, count: int, inverse: bool, is_half: bool) -> np.ndarray:
    """The matrix [2 taken, 2 count] of a discrete Fourier transform of ``length``, of real and imaginary parts side by side.

    With ``is_half``, what is transformed back are the first half of the frequencies of a real signal.
    """
    angle = 2 * np.pi * np.outer(np.arange(taken), np.arange(count)) / length * (1 if inverse else -1)
    factor = np.full(taken, 1 / length if inverse else 1.0)
    if is_half:
        factor[1 : taken if length % 2 else taken - 1] *= 2
    real, imaginary = np.cos(angle) * factor[:, None], np.sin(angle) * factor[:, None]
    return np.array([[real, imaginary], [-imaginary, real]]).transpose(2, 0, 3, 1).reshape(2 * taken, 2 * count)


def _transform_rows(x: Tensor, length: int, inverse: bool, onesided: bool) -> Tensor:
    """Rows [..., taken, 1 or 2] of numbers, real or complex, transformed: [..., count, 2], or [..., count, 1] back to real ones.

    Where there is a fast way, a DFT along the last axis but one stays; else it is a product with a constant matrix.
    """
    *outer, taken, parts = x.shape
    if parts == 1 and onesided and not inverse and is_fast(length) and x.dtype is DType.FLOAT32:
        rank, missing = x.rank, max(0, length - taken)
        rows = x.cut(rank - 2, 0, length).pad([0] * rank, [*[0] * (rank - 2), missing, 0])
        return compute("DFT", rows, shape=[*outer, length // 2 + 1, 2], axis=rank - 2, inverse=0, onesided=1)
    back = inverse and onesided
    count = length if back or not onesided else length // 2 + 1
    used = min(taken, count if not back and onesided and parts == 2 and taken < length else taken, length)
    matrix = _transform_matrix(length, used, count, inverse, back).reshape(used, 2, count, 2)
    matrix = matrix[:, :parts, :, : 1 if back else 2]
    rows = x.cut(x.rank - 2, 0, used)
    result = rows.reshape([*outer, used * parts]) @ matrix.reshape(used * parts, -1).astype(np.float32)
    return result.reshape([*outer, count, matrix.shape[3]])


@expands("DFT")
def expand_fourier(
    m: Expansion,
    x: Tensor,
    given: np.ndarray | None = None,
    axes: np.ndarray | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Results:
    """The transform along an axis; itself where that is what it is transformed into."""
    if m.attrs.get("axis") == x.rank - 2 and onesided and not inverse and x.shape[-1] == 1 and given is None and is_fast(x.shape[-2]):
        return None
    if "axis" not in m.attrs and m.walk.version >= 20:
        axis = -2 if axes is None else int(axes.reshape(-1)[0])
    axis %= x.rank
    perm = [i for i in range(x.rank - 1) if i != axis] + [axis, x.rank - 1]
    usual = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    length = usual if given is None else int(given.reshape(-1)[0])
    return _transform_rows(x.transpose(perm), length, bool(inverse), bool(onesided)).transpose(invert(perm))


@expands("STFT")
def short_fourier(x: Tensor, step: np.ndarray, window: Tensor | None, given: np.ndarray | None = None, *, onesided: int = 1) -> Tensor:
    """Transforms of windows that follow each other."""
    size, hop = (int(given.reshape(-1)[0]) if given is not None else window.elements if window is not None else 0), int(step.reshape(-1)[0])
    signal = x if x.rank == 3 else x.reshape([*x.shape, 1])
    count = (signal.shape[1] - size) // hop + 1
    frames = signal.take(np.arange(count)[:, None] * hop + np.arange(size), 1)
    if window is not None:
        frames = frames * window.reshape([size, 1])
    return _transform_rows(frames, size, False, bool(onesided))
