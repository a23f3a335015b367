"""Kernels of Arm processors with the DSP extension: products of pairs of 16-bit values, as variants of the portable ones.

A requantisation of QDQ networks is the upper word of a 64-bit sum, which SMLAL leaves in a register: its constants have one entry per
channel, and are chosen so that no sum that can occur is a tie.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deeploy.operators import conv, requantise
from deeploy.target import BYTES, Count, Layout, Map, Node, Scratch, Tiling, encoded, load, types

GENERIC = load("generic")
RESULTS = types("s8", "u8", "s32")
VECTORS = 4  # windows that are multiplied by a filter together
ON_STACK = 1024  # bytes of windows that need no memory of the arena


_CONSTANTS = requantise.stored(requantise.upper_words)


def _list_macros(node: Node) -> dict[str, str]:
    if requantise.upper_words(node) is None:
        return {}
    is_whole = (node.attrs["low"], node.attrs["high"]) == tuple(node.outputs[0].dtype.range)
    return {"REQUANT_UPPER": "upper", **({"CLIP_WHOLE": "whole"} if is_whole else {})}


def _macros_of_product(node: Node) -> dict[str, str]:
    a = node.operands[0]
    depth = -(-a.shape[-1] // 4) * 4
    is_widened = a.shape[-2] >= VECTORS and 8 * depth <= ON_STACK
    return {**_list_macros(node), "WIDENED_ROWS": str(depth if is_widened else 0)}


def _has_plain_rows(node: Node) -> bool:
    return not (int(node.attrs["a_zero_point"]) or int(node.attrs["b_zero_point"]) or node.attrs["trans_a"])


def _filled_depth(node: Node) -> int:
    """Elements of a filter, filled up to whole words."""
    window = conv.window(node)
    return -(-window.channels * window.height * window.width // 4) * 4


def _encode_filters(array: np.ndarray, node: Node) -> np.ndarray:
    rows = array.transpose(0, 2, 3, 1).reshape(len(array), -1)
    return np.ascontiguousarray(np.pad(rows, ((0, 0), (0, _filled_depth(node) - rows.shape[1]))))


def _window_bytes(node: Node, tile: Mapping[str, Count]) -> int:
    """Bytes of the windows of four positions in 16 bits, and of one in 8, where these are too many for the stack."""
    needed = (2 * VECTORS + 1) * _filled_depth(node)
    return needed if needed > ON_STACK else 0


def _copy_bytes(node: Node, tile: Mapping[str, Count]) -> Count:
    """Bytes of the copies of a filter and of the rows under it, a word for four channels, and of where these rows lie."""
    window = conv.window(node)
    high, wide = ((extent - 1) * step + 1 for extent, step in zip((window.height, window.width), window.dilations, strict=True))
    return 4 * (window.height * (window.width + 1) + high * ((tile["ow"] - 1) * window.strides[1] + wide))


_CONV = GENERIC.kernel("conv2d_dot_grouped").variant(
    "arm_conv2d_grouped",
    requires=GENERIC.kernel("conv2d_grouped").requires,
    source="arm/arm_conv2d.c",
    types={"x": BYTES, "w": BYTES, "y": RESULTS},
    nest=conv.nest(lambda k, c, fh, fw: Map(k, *encoded("w_byte", of=[dim for e in (fh, fw, c) for dim in e.affine().dims()]))),
    layouts={"w": Layout(_encode_filters), **_CONSTANTS},
    scratch={"windows": Scratch(_window_bytes)},
    macros=_list_macros,
)
_PACKED = tuple(kernel for kernel in GENERIC.computing if kernel.packs)  # weights of few bits stay so in flash

KERNELS = (
    *_PACKED,
    GENERIC.kernel("depthwise2d").variant(
        "arm_depthwise",
        source="arm/arm_depthwise.c",
        types={"x": BYTES, "w": BYTES, "y": RESULTS},
        layouts=_CONSTANTS,
        scratch={"words": Scratch(_copy_bytes)},
        macros=lambda node: {**_list_macros(node), "FILTER_WIDTH": str(conv.window(node).width)},
    ),
    _CONV.variant("arm_conv2d", (conv.is_dense, "one group"), tiling=Tiling(whole=("c", "fh", "fw"))),
    _CONV,
    GENERIC.kernel("matmul_dot").variant(
        "arm_matmul",
        (_has_plain_rows, "rows of a, and zero points that are constants of the epilogue"),
        source="arm/arm_matmul.c",
        struct="matmul_dot",
        types={"a": BYTES, "b": BYTES, "y": RESULTS},
        strided={"a": 1, "b": 1, "y": 1},
        layouts=_CONSTANTS,
        macros=_macros_of_product,
    ),
    GENERIC.kernel("fixed_fourier").variant("arm_fourier", source="arm/arm_fourier.c", struct="fixed_fourier"),
    *(kernel for kernel in GENERIC.computing if kernel not in _PACKED),
)
