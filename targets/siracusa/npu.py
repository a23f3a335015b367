"""N-EUREKA, Siracusa's convolution engine: its registers, its encoding of weights, its normalisation, its cycles.

The facts are those of GVSoC's model of the engine (revision edfcd839). A job computes, for images with channels last,

    acc[oh, ow, k] = sum over taps and input channels of x * (w + weight_offset)
    y = clip((acc * scale[k] + bias[k]) >> shift, 0, 255)          or -128, 127 for a signed y, or acc itself as int32

with 8-bit x and unsigned weights w of 2 to 8 bits, as a 1x1, a dense 3x3 or a depthwise 3x3 convolution of stride 1 (1x1:
of any stride, by the distances of its inputs). It works on 6x6 pixels, 32 output channels and 32 (3x3: 28) input channels
at a time; depthwise on 28 channels. ``kernels/neureka/neureka.h`` fills the registers of a tile in C; ``job`` is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

PIXELS = 6  # outputs of a subtile, in height and in width
GROUP = 32  # channels of a subtile; bytes of the weights of one pass
NARROW = 28  # input channels of a 3x3 subtile: 9 taps of 28 bits fill 32 bytes
REGISTERS = 24


class Mode(Enum):
    """The convolution; the value is that of the mode bits."""

    DENSE = 0
    DEPTHWISE = 1
    POINTWISE = 2

    @property
    def taps(self) -> int:
        """Height and width of the kernel."""
        return 1 if self is Mode.POINTWISE else 3

    @property
    def inputs(self) -> int:
        """Input channels of a subtile."""
        return GROUP if self is Mode.POINTWISE else NARROW

    @property
    def outputs(self) -> int:
        """Output channels of a subtile."""
        return NARROW if self is Mode.DEPTHWISE else GROUP


@dataclass(frozen=True)
class Layer:
    """What all tiles of a layer have in common.

    Attributes:
        bits: of a weight, 2 to 8.
        weight_offset: added to every weight.
        scale_bits: 8, 16 or 32 bits of a channel's scale; fewer are faster. Ignored for int32 outputs.
        shift: the common shift, 0 to 31, or None where every channel has its own.
        padding_value: what x is beyond the border, in the type of x.
        in_weight_memory: weights lie in the weight memory, not in L1.
        accumulate: the job adds to the int32 values that y holds.
    """

    mode: Mode
    x_type: str = "u8"
    y_type: str = "u8"
    bits: int = 8
    weight_offset: int = -128
    scale_bits: int = 32
    shift: int | None = 0
    padding_value: int = 0
    in_weight_memory: bool = False
    accumulate: bool = False

    def __post_init__(self) -> None:
        valid = (
            self.x_type in ("s8", "u8")
            and self.y_type in ("s8", "u8", "s32")
            and 2 <= self.bits <= 8
            and self.scale_bits in (8, 16, 32)
            and (self.shift is None or 0 <= self.shift <= 31)
            and not (self.accumulate and (self.y_type != "s32" or self.mode is Mode.DEPTHWISE))
        )
        if not valid:
            raise ValueError(f"N-EUREKA has no such layer: {self}")

    @property
    def config(self) -> int:
        """The configuration register.

        The next inputs are fetched while the engine computes only where weights come from their own memory: from L1, both would
        share one port, and the simulator counts many times the cycles.
        """
        is_requantised = self.y_type != "s32"
        return (
            int(self.x_type == "s8") << 26
            | int(is_requantised) << 25  # bias
            | int(self.shift is None) << 24
            | int(self.y_type != "u8") << 23  # no rectification
            | (0 if is_requantised else 2) << 21
            | (self.shift or 0) << 16
            | int(self.accumulate) << 14
            | {8: 0, 16: 1, 32: 2}[self.scale_bits] << 12
            | int(self.in_weight_memory) << 10  # prefetch
            | int(self.in_weight_memory) << 9
            | self.mode.value << 5
            | int(is_requantised) << 4
            | (self.bits - 1)
        )


@dataclass(frozen=True)
class Tile:
    """One job's part of a layer.

    ``height`` and ``width`` are those of the output. Distances are in bytes, between pixels and between rows that follow each
    other in the convolution: of stride 2, every second one. ``top`` to ``right`` count the rows and columns beyond the border.
    Addresses: x is that of the first pixel inside.
    """

    height: int
    width: int
    channels_in: int
    channels_out: int
    x_pixel: int
    x_row: int
    y_pixel: int
    y_row: int
    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0
    x: int = 0
    y: int = 0
    weights: int = 0
    scale: int = 0
    bias: int = 0
    shifts: int = 0


def _groups(count: int, size: int) -> tuple[int, int]:
    """How many groups of ``size`` hold ``count``, and how many are in the last one."""
    groups = -(-count // size)
    return groups, count - (groups - 1) * size


def job(layer: Layer, tile: Tile) -> Array:
    """The registers of a job, uint32[24], in their order; addresses are their low 32 bits."""
    mode = layer.mode
    nb_in, rem_in = _groups(tile.channels_in, mode.inputs)
    nb_out, rem_out = _groups(tile.channels_out, mode.outputs)
    nb_h, nb_w = -(-tile.height // PIXELS), -(-tile.width // PIXELS)
    rem_h, rem_w = tile.height % PIXELS, tile.width % PIXELS
    halo = mode.taps - 1
    bottom = tile.bottom + (PIXELS - rem_h) % PIXELS if tile.bottom else 0
    right = tile.right + (PIXELS - rem_w) % PIXELS if tile.right else 0
    per_output = {
        Mode.POINTWISE: GROUP * nb_in,
        Mode.DENSE: GROUP * layer.bits * nb_in,
        Mode.DEPTHWISE: 0,
    }[mode]
    values = [
        tile.weights,
        tile.x - tile.top * tile.x_row - tile.left * tile.x_pixel,
        tile.y,
        tile.scale,
        tile.shifts,
        tile.bias,
        *(tile.x_pixel, tile.x_row, 0),
        *(GROUP, tile.y_pixel, tile.y_row),
        *(GROUP, per_output, 0),
        rem_out << 16 | rem_in,
        rem_h << 16 | rem_w,
        (rem_h + halo if rem_h else 0) << 16 | (rem_w + halo if rem_w else 0),
        nb_out << 16 | nb_in,
        nb_h << 16 | nb_w,
        tile.top << 28 | right << 24 | bottom << 20 | tile.left << 16 | layer.padding_value & 0xFF,
        layer.weight_offset,
        0,
        layer.config,
    ]
    return np.array([value & 0xFFFFFFFF for value in values], np.uint32)


def weight_range(weights: Array) -> tuple[int, int] | None:
    """The fewest bits (2 to 8) that hold ``weights``, and their offset; None when they span more than 8 bits."""
    low, high = int(weights.min()), int(weights.max())
    bits = max(2, (high - low).bit_length())
    return (bits, low) if bits <= 8 else None


def encode(weights: Array, layer: Layer) -> Array:
    """Weights of the graph, [K, C, FH, FW] (depthwise: [K, 1, 3, 3]), as the engine reads them.

    Returns uint8: 1x1 ``[K, groups of C, 32]``, dense 3x3 ``[K, groups of C, bits, 32]``, depthwise ``[groups of K, bits, 32]``.
    32 bytes, with bit 0 of byte 0 first, hold of a 3x3 kernel one bit of each weight: 9 taps of 28 channels; of a 1x1 kernel
    all bits: for every 4 of 32 channels 8 times one bit of each. Channels are filled up with zeros, which meet inputs of zero.

    Raises:
        ValueError: a weight does not fit into the layer's bits above its offset.
    """
    values = weights.astype(np.int64) - layer.weight_offset
    if values.min() < 0 or values.max() >> layer.bits:
        raise ValueError(f"weights {weights.min()} to {weights.max()} are not of {layer.bits} bits above {layer.weight_offset}")
    if layer.mode is Mode.DEPTHWISE:
        values = values.transpose(1, 0, 2, 3)  # the channels of all kernels lie side by side
    rows, channels = values.shape[:2]
    groups, _ = _groups(channels, layer.mode.inputs)
    filled = np.zeros((rows, groups * layer.mode.inputs, layer.mode.taps**2), np.uint8)
    filled[:, :channels] = values.reshape(rows, channels, -1)
    planes = filled.reshape(rows, groups, layer.mode.inputs, -1, 1) >> np.arange(8) & 1  # [K, group, channel, tap, bit]
    if layer.mode is Mode.POINTWISE:
        quads = planes.reshape(rows, groups, 8, 4, 8).swapaxes(3, 4)
        return np.packbits(quads.reshape(rows, groups, 256), axis=-1, bitorder="little")
    bits = np.zeros((rows, groups, layer.bits, 256), np.uint8)
    bits[..., : 9 * NARROW] = planes.transpose(0, 1, 4, 3, 2)[:, :, : layer.bits].reshape(rows, groups, layer.bits, -1)
    packed = np.packbits(bits, axis=-1, bitorder="little")
    return packed[0] if layer.mode is Mode.DEPTHWISE else packed


@dataclass(frozen=True)
class Normalisation:
    """What takes sums to outputs: ``scale`` (uint8, uint16 or uint32) and ``bias`` (int32) per output channel, and the shift.

    ``shifts`` is uint8 per channel where no common ``shift`` does, else None.
    """

    scale: Array
    bias: Array
    shift: int | None
    shifts: Array | None


_WORD = (1 << 31) - 1
_CLIP = {"u8": (0, 255), "s8": (-128, 127)}


def sums(weights: Array, x_type: str) -> tuple[Array, Array]:
    """The least and the greatest sum of every output channel, int64 [K], whatever 8-bit x and its padding are."""
    low, high = _CLIP[x_type]
    w = weights.reshape(weights.shape[0], -1).astype(np.int64)
    return np.minimum(w * low, w * high).sum(axis=1), np.maximum(w * low, w * high).sum(axis=1)


def normalisation(
    mul: Array, add: Array, shift: int, limits: tuple[int, int], least: Array, most: Array, y_type: str
) -> Normalisation | None:
    """How the engine computes ``clip((acc * mul + add) >> shift, *limits)`` with the same result for every possible sum.

    ``least`` and ``most`` bound the sums ``acc`` of every channel, int64 [K]; ``mul`` and ``add`` have K elements or one. A
    clipped staircase is determined by the first sum that reaches each step. The engine's staircase, of a smaller shift s and a
    scale m next to mul * 2^(s - shift), is the same one if and only if a bias b exists with m * t + b >= k * 2^s at the first
    sum t of every step k, and m * (t - 1) + b < k * 2^s before it; its clip must be that of y's type, or not be reached. The
    engine's products and sums have 32 bits, its scale is not negative. The smallest shift that does is taken: scales get
    fewer bits, which are loaded faster. None: no shift does.
    """
    low, high = limits
    floor, ceiling = _CLIP[y_type]
    mul, add = (np.broadcast_to(array.astype(np.int64).ravel(), least.shape) for array in (mul, add))
    if low < floor or high > ceiling or shift > 53 or mul.min() < 0 or np.abs(add).max() >= 1 << 62:
        return None
    steps = np.arange(low + (low == floor), high + (high < ceiling) + 1, dtype=np.int64)
    reached = -((add[:, None] - (steps << shift)) // np.maximum(mul, 1)[:, None])
    reached = np.where(mul[:, None] > 0, reached, np.where(add[:, None] >> shift >= steps, least[:, None], most[:, None] + 1))
    first = np.clip(reached, least[:, None], most[:, None] + 1)
    first[:, steps == low] = least[:, None]
    first[:, steps > high] = most[:, None] + 1
    found = np.full((3, *least.shape), -1, np.int64)  # scale, bias and shift of every channel
    for s in range(min(shift, 31) + 1):
        common = np.full_like(found, -1)
        for up in (0, 1):
            scale = (mul >> (shift - s)) + up
            bias = _bias(scale, s, steps, first, least, most)
            is_better = (bias <= _WORD) & (common[0] < 0)
            common[:, is_better] = np.stack([scale, bias, np.full_like(scale, s)])[:, is_better]
        if (common[0] >= 0).all():
            return Normalisation(_narrow(common[0]), common[1].astype(np.int32), s, None)
        found = np.where((found[0] < 0) & (common[0] >= 0), common, found)
    if (found[0] < 0).any():
        return None
    return Normalisation(_narrow(found[0]), found[1].astype(np.int32), None, found[2].astype(np.uint8))


def _bias(scale: Array, shift: int, steps: Array, first: Array, least: Array, most: Array) -> Array:
    """The least bias of 32 bits that makes the staircase, int64 [K]; more than 32 bits where there is none."""
    at = (steps << shift) - scale[:, None] * first
    reach = np.where(first <= most[:, None], at, -_WORD - 1).max(axis=1, initial=-_WORD - 1)
    stay = np.where(first > least[:, None], at + scale[:, None] - 1, _WORD).min(axis=1, initial=_WORD)
    reach = np.maximum(reach, -_WORD - 1 - np.minimum(scale * least, 0))
    stay = np.minimum(stay, _WORD - np.maximum(scale * most, 0))
    fits = (np.maximum(np.abs(least), np.abs(most)) <= _WORD // np.maximum(scale, 1)) & (reach <= stay)
    return np.where(fits, reach, _WORD + 1)


def _narrow(scale: Array) -> Array:
    """Scales in the smallest of the engine's types."""
    return scale.astype(next(kind for kind in (np.uint8, np.uint16, np.uint32) if scale.max() <= np.iinfo(kind).max))


# Cycles of core 0 from working out the registers of a job to the return of the wait, beyond those of the engine, and those
# that neureka_linear adds. GVSoC edfcd839, gcc 12 -O3, caches warm: benchmarks/gvsoc/neureka.py.
DRIVER, LINEAR = 435, 75


def cycles(layer: Layer, height: int, width: int, channels_in: int, channels_out: int) -> int:
    """Cycles of a job that is waited for, while nobody else uses L1; see ``busy``."""
    return DRIVER + busy(layer, height, width, channels_in, channels_out)


def linear_cycles(layer: Layer, pixels: int, channels_in: int, channels_out: int) -> int:
    """Cycles of the jobs that ``neureka_linear`` begins for so many pixels, until the last one was waited for."""
    images = [(height, width) for height, width in ((pixels // PIXELS, PIXELS), (1, pixels % PIXELS)) if height and width]
    return DRIVER + LINEAR + sum(busy(layer, *image, channels_in, channels_out) for image in images)


def busy(layer: Layer, height: int, width: int, channels_in: int, channels_out: int) -> int:
    """Cycles in which the engine works on a job, while nobody else uses L1.

    For every group of output channels and every subtile of 6x6 pixels: for every group of input channels 6, its inputs (a pixel
    a cycle; 1x1: as if there were 36, and 6 more), 6 to 34 to set up, and a pass a cycle (1x1: one for each output; dense: one for
    each output and bit; depthwise: one for each bit), 8 more where dense; then scales (4 bytes a cycle) and 9, biases 4 and 8,
    and a pixel a cycle out, 3 more for 1x1; int32: 8 channels of a pixel a cycle. With weights in their own memory the passes
    hide behind the next inputs, but for those of the last subtile of a group of outputs.
    """
    mode = layer.mode
    inputs, _ = _groups(channels_in, mode.inputs)
    if mode is Mode.DEPTHWISE:
        inputs = 1
    total = 0
    for outputs, groups in _parts(channels_out, mode.outputs):
        passes = {Mode.POINTWISE: outputs, Mode.DENSE: outputs * layer.bits + 8, Mode.DEPTHWISE: layer.bits}[mode]
        if layer.in_weight_memory and mode is Mode.DEPTHWISE:
            passes *= outputs
        each = 0
        for tall, rows in _parts(height, PIXELS):
            for wide, columns in _parts(width, PIXELS):
                steps = rows * columns * inputs
                fetch = PIXELS**2 + 6 if mode is Mode.POINTWISE else (tall + 2) * (wide + 2)
                each += steps * (6 + fetch + _set_up(layer)) + rows * columns * _finish(layer, tall, wide, outputs)
                if not layer.in_weight_memory:
                    each += steps * passes
                elif mode is not Mode.DEPTHWISE:
                    is_first = tall == min(height, PIXELS) and wide == min(width, PIXELS)
                    each += (steps - is_first) * max(0, _set_up(layer) + passes - fetch - 3)
        total += groups * (each + (passes if layer.in_weight_memory else 0))
    return total


def _set_up(layer: Layer) -> int:
    if layer.mode is Mode.POINTWISE:
        return 7 if layer.in_weight_memory else 10
    return 6 if layer.mode is Mode.DENSE else 34


def _finish(layer: Layer, tall: int, wide: int, outputs: int) -> int:
    """Cycles from the sums of a subtile to its outputs in L1."""
    pixels = (tall - 1) * PIXELS + wide
    streams = -(-outputs // 8)
    extra = 3 if layer.mode is Mode.POINTWISE else 0
    if layer.y_type == "s32":
        return pixels * streams + extra + (PIXELS**2 * streams + 10 if layer.accumulate else 0)
    scales = -(-outputs * layer.scale_bits // 32)
    return int(layer.shift is None) + scales + 9 + 4 + 8 + pixels + extra


def _parts(count: int, size: int) -> list[tuple[int, int]]:
    """The pieces of at most ``size`` that make ``count``, as (length, how many)."""
    return [(length, many) for length, many in ((size, count // size), (count % size, 1)) if length and many]
