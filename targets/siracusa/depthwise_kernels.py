"""Depthwise convolutions of bytes with any window, on the cores of the cluster."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deeploy.operators import conv
from deeploy.target import BYTES, Count, Kernel, Layout, Node, Scratch, load, types

from . import forms

CORES = 8  # of the cluster
GENERIC = load("generic")
INTEGERS = types("s8", "u8", "s32")
PLANE = 1024  # bytes of a channel under several rows of a depthwise convolution, which a core keeps at most


def _in_lines(w: np.ndarray, is_down: bool) -> np.ndarray:
    """Filters [K,1,FH,FW] with the taps of a line, or of a column, filled up to whole words: [K,bytes]."""
    lines = w[:, 0].swapaxes(1, 2) if is_down else w[:, 0]
    filled = np.pad(lines, ((0, 0), (0, 0), (0, -lines.shape[2] % 4)))
    return np.ascontiguousarray(filled.reshape(len(w), -1))


def _of_lines(name: str, is_down: bool) -> Kernel:
    """Depthwise convolutions with words of the taps of a line, or of a column."""

    def plane(node: Node, tile: Mapping[str, Count]) -> Count:
        """Bytes in which a core keeps what some outputs see of four channels: at least four of them."""
        w, turn = conv.window(node), -1 if is_down else 1
        (across, along), (taps, line), (step, apart) = (each[::turn] for each in (w.strides, (w.height, w.width), w.dilations))
        high, wide = (tile["oh"], tile["ow"])[::turn]
        tall, broad = (taps - 1) * step + 1, (line - 1) * apart + 1

        def segments(columns: Count) -> Count:
            return apart * ((-(-columns // apart) + 7) // 4 * 4)

        least = tall * (9 * apart + 3 * along + broad)
        every = ((high - 1) * across + tall) * segments((wide - 1) * along + broad)
        return np.minimum((tile["k"] + 3) // 4 * 4 * every, 4 * max(least, PLANE)) + 16

    return GENERIC.kernel("depthwise2d").variant(
        name,
        source="pulp/pulp_depthwise_any.c",
        types={"x": BYTES, "w": types("s8"), "y": INTEGERS},
        nest=conv.DEPTHWISE_BYTES,
        layouts={"w": Layout(lambda w, node: _in_lines(w, is_down)), **forms.PER_CHANNEL},
        macros=forms.macros,
        cores=("oh", "ow", "k"),
        scratch={"planes": Scratch(plane, CORES)},
        settings=lambda node: {**forms.settings(node), "is_down": is_down},
    )


def _is_line(node: Node) -> bool:
    """Whether windows of one line move over lines, and read nothing outside of these; columns that are apart are taken one by one."""
    w, (_, height, _, _), pads = conv.window(node), node.operands[0].shape, node.attrs["pads"]
    return w.height == 1 and height == 1 and not any(pads) and (w.strides[1] == 1 or w.dilations[1] == 1)


def _line_planes(node: Node, tile: Mapping[str, Count]) -> Count:
    """Bytes in which a core keeps what the outputs of a line see of four channels."""
    w = conv.window(node)
    outputs = -(-tile["ow"] // w.dilations[1])
    return 4 * (((outputs - 1) * w.strides[1] + w.width + 7) // 4 * 4) + 16


LINES = (
    _of_lines("pulp_depthwise_rows", False),
    _of_lines("pulp_depthwise_columns", True),
    _of_lines("pulp_depthwise_rows", False).variant(
        "pulp_depthwise_line",
        (_is_line, "windows of one line, without borders"),
        source="pulp/pulp_depthwise_line.c",
        struct="pulp_depthwise_any",
        cores=("k",),
        scratch={"planes": Scratch(_line_planes, CORES)},
    ),
)
