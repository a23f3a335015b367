"""N-EUREKA, Siracusa's convolution engine: its registers, its encoding of weights, its normalisation, its cycles.

The facts are those of GVSoC's model of the engine (revision edfcd839). A job computes, for images with channels last,

    acc[oh, ow, k] = sum over taps and input channels of x * (w + weight_offset)
    y = clip((acc * scale[k] + bias[k]) >> shift, 0, 255)          or -128, 127 for a signed y, or acc itself as int32

with 8-bit x and unsigned weights w of 2 to 8 bits, as a 1x1, a dense 3x3 or a depthwise 3x3 convolution of stride 1 (1x1:
of any stride, by the distances of its inputs). It works on 6x6 pixels, 32 output channels and 32 (3x3: 28) input channels
at a time; depthwise on 28 channels. ``kernels/neureka/neureka.h`` fills the registers of a tile in C.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from deeploy.ir.memo import by_content

Array = np.ndarray[Any, np.dtype[Any]]

PIXELS = 6  # outputs of a subtile, in height and in width
GROUP = 32  # channels of a subtile; bytes of the weights of one pass
NARROW = 28  # input channels of a 3x3 subtile: 9 taps of 28 bits fill 32 bytes


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
class EngineLayer:
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


def count_groups(count: int, size: int) -> tuple[int, int]:
    """How many groups of ``size`` hold ``count``, and how many are in the last one."""
    groups = -(-count // size)
    return groups, count - (groups - 1) * size


def weight_range(weights: Array) -> tuple[int, int] | None:
    """The fewest bits (2 to 8) that hold ``weights``, and their offset; None when they span more than 8 bits."""
    low, high = int(weights.min()), int(weights.max())
    bits = max(2, (high - low).bit_length())
    return (bits, low) if bits <= 8 else None


def encode_weights(weights: Array, layer: EngineLayer) -> Array:
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
    count, _ = count_groups(channels, layer.mode.inputs)
    filled = np.zeros((rows, count * layer.mode.inputs, layer.mode.taps**2), np.uint8)
    filled[:, :channels] = values.reshape(rows, channels, -1)
    planes = filled.reshape(rows, count, layer.mode.inputs, -1, 1) >> np.arange(8) & 1  # [K, group, channel, tap, bit]
    if layer.mode is Mode.POINTWISE:
        quads = planes.reshape(rows, count, 8, 4, 8).swapaxes(3, 4)
        return np.packbits(quads.reshape(rows, count, 256), axis=-1, bitorder="little")
    bits = np.zeros((rows, count, layer.bits, 256), np.uint8)
    bits[..., : 9 * NARROW] = planes.transpose(0, 1, 4, 3, 2)[:, :, : layer.bits].reshape(rows, count, layer.bits, -1)
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
COARSE = 16  # steps of which one is looked at first: a scale without a bias for these has none for all
_CLIP = {"u8": (0, 255), "s8": (-128, 127)}


def bound_sums(weights: Array, x_type: str) -> tuple[Array, Array]:
    """The least and the greatest sum of every output channel, int64 [K], whatever 8-bit x and its padding are."""
    low, high = _CLIP[x_type]
    w = weights.reshape(weights.shape[0], -1).astype(np.int64)
    return np.minimum(w * low, w * high).sum(axis=1), np.maximum(w * low, w * high).sum(axis=1)


@by_content
def find_normalisation(
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
    parameters = np.full((3, *least.shape), -1, np.int64)  # scale, bias and shift of every channel
    for s in range(min(shift, 31) + 1):
        common = np.full_like(parameters, -1)
        for up in (0, 1):
            scale = (mul >> (shift - s)) + up
            may = np.flatnonzero((_least_bias(scale, s, steps[::COARSE], first[:, ::COARSE], least, most) <= _WORD) & (common[0] < 0))
            if not len(may):
                continue
            bias = np.full_like(scale, _WORD + 1)
            bias[may] = _least_bias(scale[may], s, steps, first[may], least[may], most[may])
            is_better = bias <= _WORD
            common[:, is_better] = np.stack([scale, bias, np.full_like(scale, s)])[:, is_better]
        if (common[0] >= 0).all():
            return Normalisation(_narrow_scales(common[0]), common[1].astype(np.int32), s, None)
        parameters = np.where((parameters[0] < 0) & (common[0] >= 0), common, parameters)
    if (parameters[0] < 0).any():
        return None
    return Normalisation(_narrow_scales(parameters[0]), parameters[1].astype(np.int32), None, parameters[2].astype(np.uint8))


def _least_bias(scale: Array, shift: int, steps: Array, first: Array, least: Array, most: Array) -> Array:
    """The least bias of 32 bits that makes the staircase, int64 [K]; more than 32 bits where there is none."""
    at = (steps << shift) - scale[:, None] * first
    reach = np.where(first <= most[:, None], at, -_WORD - 1).max(axis=1, initial=-_WORD - 1)
    stay = np.where(first > least[:, None], at + scale[:, None] - 1, _WORD).min(axis=1, initial=_WORD)
    reach = np.maximum(reach, -_WORD - 1 - np.minimum(scale * least, 0))
    stay = np.minimum(stay, _WORD - np.maximum(scale * most, 0))
    fits = (np.maximum(np.abs(least), np.abs(most)) <= _WORD // np.maximum(scale, 1)) & (reach <= stay)
    return np.where(fits, reach, _WORD + 1)


def _narrow_scales(scale: Array) -> Array:
    """Scales in the smallest of the engine's types."""
    return scale.astype(next(kind for kind in (np.uint8, np.uint16, np.uint32) if scale.max() <= np.iinfo(kind).max))
