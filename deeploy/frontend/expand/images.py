"""Operators on images and volumes: sampled at computed places, pooled along three axes, normalised by parameters that are computed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from deeploy.frontend.expand.builder import Builder, Operand

_SHARPNESS = -0.75  # of cubic interpolation, as ONNX has it for GridSample
Tap = tuple[Operand, Operand | None]  # an index along an axis as a float, and its weight


def _reflected(x: Operand, low: float, high: float) -> Operand:
    """Coordinates mirrored at both borders until they lie between them."""
    span = high - low
    turns = (x - low) / span
    rest = turns - (turns * 0.5).apply("Floor") * 2.0
    return (1.0 - (rest - 1.0).apply("Abs")) * span + low if span else x * 0.0 + low


def _borders(b: Builder, size: int) -> tuple[float, float]:
    return (0.0, size - 1.0) if b.integer("align_corners", 0) else (-0.5, size - 0.5)


def _kept(b: Builder, x: Operand, size: int) -> Operand:
    """Coordinates that lie outside, as the padding mode moves them."""
    mode, (low, high) = b.text("padding_mode", "zeros"), _borders(b, size)
    if mode == "border":
        return x.larger(0.0).smaller(size - 1.0)
    return _reflected(x, low, high) if mode == "reflection" else x


def _taps(b: Builder, x: Operand, kind: str) -> list[Tap]:
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


def _inside(b: Builder, tap: Tap, size: int) -> Tap:
    """A neighbour whose index is one of the axis; its weight is 0 where zeros lie around."""
    index, weight = tap
    if b.text("padding_mode", "zeros") == "zeros":
        seen = index.greater(-0.5).both(index.less(size - 0.5)).cast(np.float32)
        weight = seen if weight is None else weight * seen
    elif b.text("padding_mode", "zeros") == "reflection":
        index = _reflected(index, *_borders(b, size)).apply("Round")
    return index.larger(0.0).smaller(size - 1.0), weight


def grid_sample(b: Builder) -> Operand:
    """GridSample: rows of channels are gathered at the neighbours of every place, and weighted."""
    x, grid = b.needed(0), b.needed(1)
    batch, channels, *sizes = x.shape
    outer, kind = grid.shape[1:-1], b.text("mode", "bilinear")
    b.spend(4 ** len(sizes))
    axes: list[list[Tap]] = []
    for axis, size in enumerate(sizes):
        position = len(sizes) - 1 - axis
        place = grid.slice(grid.rank - 1, position, position + 1).reshape(batch, *outer)
        scaled = (place + 1.0) * ((size - 1) / 2) if b.integer("align_corners", 0) else (place + 1.0) * (size / 2) - 0.5
        found = _taps(b, _kept(b, scaled.apply("Round") if kind == "nearest" else scaled, size), kind)
        axes.append([_inside(b, tap, size) for tap in found])
    rows = x.reshape(batch, channels, -1).transpose(0, 2, 1).reshape(-1, channels)
    begins = (np.arange(batch) * math.prod(sizes)).astype(np.int32).reshape(batch, *[1] * len(outer))
    total: Operand | None = None
    for taps in itertools.product(*axes):
        flat, weight = b.operand(begins), None
        for axis, (index, own) in enumerate(taps):
            flat = flat + index.cast(np.int32) * math.prod(sizes[axis + 1 :])
            weight = own if weight is None else weight if own is None else weight * own
        part = rows.take(flat)
        part = part if weight is None else part * weight.reshape(*weight.shape, 1)
        total = part if total is None else total + part
    assert total is not None
    return total.transpose(0, total.rank - 1, *range(1, total.rank - 1))


def pool_of_volumes(b: Builder) -> Operand | None:
    """AveragePool and MaxPool along three axes: along the last two, then along the first."""
    x = b.needed(0)
    if x.rank != 5 or b.wants(1):
        return None
    own = dict(b.attributes)
    split = {name: own.pop(name) for name in ("kernel_shape", "strides", "dilations", "pads") if name in own}
    halves: list[dict[str, list[int]]] = []
    for axes in ((1, 2), (0,)):
        part: dict[str, list[int]] = {name: [values[a] for a in axes] for name, values in split.items() if name != "pads"}
        if "pads" in split:
            part["pads"] = [split["pads"][a + side] for side in (0, 3) for a in axes]
        halves.append(part)
    along = {"kernel_shape": [*halves[1]["kernel_shape"], 1]}
    along |= {name: [*halves[1][name], 1] for name in ("strides", "dilations") if name in halves[1]}
    if "pads" in split:
        along["pads"] = [halves[1]["pads"][0], 0, halves[1]["pads"][1], 0]
    batch, channels, depth, height, width = x.shape
    flat = x.reshape(batch, channels * depth, height, width).apply(b.node.op_type, **own, **halves[0])
    height, width = flat.shape[2:]
    deep = flat.reshape(batch, channels, depth, height * width).apply(b.node.op_type, **own, **along)
    return deep.reshape(batch, channels, deep.shape[2], height, width)


def response_norm(b: Builder) -> Operand:
    """LRN: squares summed over neighbouring channels."""
    x, size = b.needed(0), b.integer("size", 1)
    before, channels = (size - 1) // 2, x.shape[1]
    rest = [0] * (x.rank - 2)
    squares = (x * x).pad([0, before, *rest], [0, size - 1 - before, *rest])
    total = squares.slice(1, 0, channels)
    for shift in range(1, size):
        total = total + squares.slice(1, shift, shift + channels)
    return x / (total * (b.number("alpha", 1e-4) / size) + b.number("bias", 1.0)).power(b.number("beta", 0.75))


def _of_channels(x: Operand, rank: int) -> Operand:
    return x.reshape(1, x.size, *[1] * (rank - 2))


def _are_computed(b: Builder, positions: Sequence[int]) -> bool:
    return not all(b.needed(position).is_fixed for position in positions)


def batch_norm(b: Builder) -> Operand | None:
    """BatchNormalization with parameters that are computed."""
    if not _are_computed(b, range(1, 5)) or b.integer("training_mode", 0) or b.wants(1) or not b.integer("spatial", 1):
        return None
    x = b.needed(0)
    scale, offset, mean, variance = (_of_channels(b.needed(position), x.rank) for position in range(1, 5))
    return (x - mean) / (variance + b.number("epsilon", 1e-5)).apply("Sqrt") * scale + offset


def instance_norm(b: Builder) -> Operand | None:
    """InstanceNormalization with parameters that are computed."""
    if not _are_computed(b, (1, 2)):
        return None
    x = b.needed(0)
    axes = range(2, x.rank)
    distance = x - x.reduce("Mean", axes)
    variance = (distance * distance).reduce("Mean", axes)
    scale, offset = (_of_channels(b.needed(position), x.rank) for position in (1, 2))
    return distance / (variance + b.number("epsilon", 1e-5)).apply("Sqrt") * scale + offset


def _transform(length: int, taken: int, count: int, inverse: bool, is_half: bool) -> np.ndarray:
    """The matrix [2 taken, 2 count] of a discrete Fourier transform of ``length``, of real and imaginary parts side by side.

    With ``is_half``, what is transformed back are the first half of the frequencies of a real signal.
    """
    angle = 2 * np.pi * np.outer(np.arange(taken), np.arange(count)) / length * (1 if inverse else -1)
    factor = np.full(taken, 1 / length if inverse else 1.0)
    if is_half:
        factor[1 : taken if length % 2 else taken - 1] *= 2
    real, imaginary = np.cos(angle) * factor[:, None], np.sin(angle) * factor[:, None]
    return np.array([[real, imaginary], [-imaginary, real]]).transpose(2, 0, 3, 1).reshape(2 * taken, 2 * count)


def _transformed(x: Operand, length: int, inverse: bool, onesided: bool) -> Operand:
    """Rows [..., taken, 1 or 2] of numbers, real or complex, transformed: [..., count, 2], or [..., count, 1] back to real ones."""
    *outer, taken, parts = x.shape
    back = inverse and onesided
    count = length if back or not onesided else length // 2 + 1
    used = min(taken, count if not back and onesided and parts == 2 and taken < length else taken, length)
    matrix = _transform(length, used, count, inverse, back).reshape(used, 2, count, 2)
    matrix = matrix[:, :parts, :, : 1 if back else 2]
    rows = x.slice(x.rank - 2, 0, used) if used < taken else x
    result = rows.reshape(*outer, used * parts) @ matrix.reshape(used * parts, -1).astype(np.float32)
    return result.reshape(*outer, count, matrix.shape[3])


def fourier(b: Builder) -> Operand:
    """DFT: a product with a constant matrix along an axis."""
    x, given, axes = b.needed(0), b.constant_input(1), b.constant_input(2)
    newer = "axis" not in b.attributes and b.walk.version >= 20
    axis = int(axes.reshape(-1)[0]) if axes is not None else b.integer("axis", -2 if newer else 1)
    axis, inverse, onesided = axis % x.rank, bool(b.integer("inverse", 0)), bool(b.integer("onesided", 0))
    perm = [i for i in range(x.rank - 1) if i != axis] + [axis, x.rank - 1]
    rows = x.transpose(*perm)
    usual = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    length = usual if given is None else int(given.reshape(-1)[0])
    return _transformed(rows, length, inverse, onesided).transpose(*(perm.index(i) for i in range(x.rank)))


def short_fourier(b: Builder) -> Operand:
    """STFT: transforms of windows that follow each other."""
    x, step, window, given = b.needed(0), b.constant_input(1), b.input(2), b.constant_input(3)
    assert step is not None
    size, hop = (int(given.reshape(-1)[0]) if given is not None else window.size if window is not None else 0), int(step.reshape(-1)[0])
    signal = x if x.rank == 3 else x.reshape(*x.shape, 1)
    count = (signal.shape[1] - size) // hop + 1
    frames = signal.take(np.arange(count)[:, None] * hop + np.arange(size), 1)
    if window is not None:
        frames = frames * window.reshape(size, 1)
    return _transformed(frames, size, False, bool(b.integer("onesided", 1)))


IMAGES: Mapping[str, Callable[[Builder], Operand | None]] = {
    **dict.fromkeys(("AveragePool", "MaxPool"), pool_of_volumes),
    "BatchNormalization": batch_norm,
    "DFT": fourier,
    "GridSample": grid_sample,
    "InstanceNormalization": instance_norm,
    "LRN": response_norm,
    "STFT": short_fourier,
}
