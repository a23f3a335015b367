"""N-EUREKA's jobs as tests see them: their registers, as ``kernels/neureka/neureka.h`` fills them, and their cycles in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from targets.siracusa.npu import GROUP, PIXELS, Array, EngineLayer, Mode, count_groups

REGISTERS = 24


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


def job(layer: EngineLayer, tile: Tile) -> Array:
    """The registers of a job, uint32[24], in their order; addresses are their low 32 bits."""
    mode = layer.mode
    nb_in, rem_in = count_groups(tile.channels_in, mode.inputs)
    nb_out, rem_out = count_groups(tile.channels_out, mode.outputs)
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


# Cycles of core 0 from working out the registers of a job to the return of the wait, beyond those of the engine, and those
# that neureka_linear adds. GVSoC edfcd839, gcc 12 -O3, caches warm: benchmarks/gvsoc/neureka.py.
DRIVER, LINEAR = 435, 75


def cycles(layer: EngineLayer, height: int, width: int, channels_in: int, channels_out: int) -> int:
    """Cycles of a job that is waited for, while nobody else uses L1; see ``busy``."""
    return DRIVER + busy(layer, height, width, channels_in, channels_out)


def linear_cycles(layer: EngineLayer, pixels: int, channels_in: int, channels_out: int) -> int:
    """Cycles of the jobs that ``neureka_linear`` begins for so many pixels, until the last one was waited for."""
    images = [(height, width) for height, width in ((pixels // PIXELS, PIXELS), (1, pixels % PIXELS)) if height and width]
    return DRIVER + LINEAR + sum(busy(layer, *image, channels_in, channels_out) for image in images)


def busy(layer: EngineLayer, height: int, width: int, channels_in: int, channels_out: int) -> int:
    """Cycles in which the engine works on a job, while nobody else uses L1.

    For every group of output channels and every subtile of 6x6 pixels: for every group of input channels 6, its inputs (a pixel
    a cycle; 1x1: as if there were 36, and 6 more), 6 to 34 to set up, and a pass a cycle (1x1: one for each output; dense: one for
    each output and bit; depthwise: one for each bit), 8 more where dense; then scales (4 bytes a cycle) and 9, biases 4 and 8,
    and a pixel a cycle out, 3 more for 1x1; int32: 8 channels of a pixel a cycle. With weights in their own memory the passes
    hide behind the next inputs, but for those of the last subtile of a group of outputs.
    """
    mode = layer.mode
    inputs, _ = count_groups(channels_in, mode.inputs)
    if mode is Mode.DEPTHWISE:
        inputs = 1
    total = 0
    for outputs, count in _parts(channels_out, mode.outputs):
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
        total += count * (each + (passes if layer.in_weight_memory else 0))
    return total


def _set_up(layer: EngineLayer) -> int:
    if layer.mode is Mode.POINTWISE:
        return 7 if layer.in_weight_memory else 10
    return 6 if layer.mode is Mode.DENSE else 34


def _finish(layer: EngineLayer, tall: int, wide: int, outputs: int) -> int:
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
