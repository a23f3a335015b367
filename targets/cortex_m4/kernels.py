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


def _encode_constants(node: Node) -> tuple[np.ndarray, np.ndarray] | None:
    return requantise.narrow_words(node) if node.outputs[0].dtype in BYTES else None


_CONSTANTS = requantise.stored(_encode_constants)


def _list_macros(node: Node) -> dict[str, str]:
    if _encode_constants(node) is None:
        return {}
    is_whole = (node.attrs["low"], node.attrs["high"]) == tuple(node.outputs[0].dtype.range)
    return {"REQUANT_WORDS": "words", **({"CLIP_WHOLE": "whole"} if is_whole else {})}


def _widened_depth(node: Node) -> int:
    """Elements of a row where four rows are widened on the stack; else 0."""
    rows, depth = node.operands[0].shape[-2:]
    return depth if rows >= VECTORS and depth % 4 == 0 and 2 * VECTORS * depth <= ON_STACK else 0


def _macros_of_product(node: Node) -> dict[str, str]:
    return {**_list_macros(node), "WIDENED_ROWS": str(_widened_depth(node))}


def _alternate(filters: np.ndarray) -> np.ndarray:
    """Filters [..., K, depth] in twos, whose bytes alternate, of four elements the even ones first; the last filter may stand alone."""
    *outer, count, depth = filters.shape
    whole, stored = count // 2 * 2, filters.copy()
    twos = np.moveaxis(filters[..., :whole, :].reshape(*outer, count // 2, 2, depth // 4, 2, 2), -4, -1)
    stored[..., :whole, :] = np.swapaxes(twos, -3, -2).reshape(*outer, whole, depth)
    return np.ascontiguousarray(stored)


def _encode_columns(array: np.ndarray, node: Node) -> np.ndarray:
    """[..., N, K] as the kernel reads it: columns in twos, or four elements of each of four columns after those of the next four."""
    columns = array if node.attrs["trans_b"] else array.swapaxes(-1, -2)
    if _widened_depth(node):
        return _alternate(columns)
    *outer, count, depth = columns.shape
    whole, fours, stored = depth // 4 * 4, count // 4 * 4, columns.copy()
    blocks = columns[..., :fours, :].reshape(*outer, fours // 4, 4, depth)
    words = np.swapaxes(blocks[..., :whole].reshape(*outer, fours // 4, 4, whole // 4, 4), -3, -2).reshape(*outer, fours // 4, 4 * whole)
    rest = np.swapaxes(blocks[..., whole:], -2, -1).reshape(*outer, fours // 4, 4 * (depth - whole))
    stored[..., :fours, :] = np.concatenate((words, rest), -1).reshape(*outer, fours, depth)
    return np.ascontiguousarray(stored)


def _macros_of_filter(node: Node) -> dict[str, str]:
    window = conv.window(node)
    steps = {"FILTER_HEIGHT": window.height, "FILTER_WIDTH": window.width, "STRIDE": window.strides[1], "DILATION": window.dilations[1]}
    return {**_list_macros(node), **{name: str(number) for name, number in steps.items()}}


def _has_plain_rows(node: Node) -> bool:
    return not (int(node.attrs["a_zero_point"]) or int(node.attrs["b_zero_point"]) or node.attrs["trans_a"])


def _filled_depth(node: Node) -> int:
    """Elements of a filter, filled up to whole words."""
    window = conv.window(node)
    return -(-window.channels * window.height * window.width // 4) * 4


def _encode_filters(array: np.ndarray, node: Node) -> np.ndarray:
    window = conv.window(node)
    rows = array.transpose(0, 2, 3, 1).reshape(window.groups, window.filters, -1)
    filled = np.pad(rows, ((0, 0), (0, 0), (0, _filled_depth(node) - rows.shape[-1])))
    return _alternate(filled).reshape(len(array), -1)


def _window_bytes(node: Node, tile: Mapping[str, Count]) -> int:
    """Bytes of the windows of four positions in 16 bits, where these are too many for the stack.

    Where channels are no whole words, a window in 8 bits comes on top.
    """
    needed = (2 * VECTORS + (conv.window(node).channels % 4 != 0)) * _filled_depth(node)
    return needed if needed > ON_STACK else 0


def _copy_bytes(node: Node, tile: Mapping[str, Count]) -> Count:
    """Bytes of a filter, two words for four channels, of the rows under it, a word for four channels, and of where these rows lie."""
    window = conv.window(node)
    high, wide = ((extent - 1) * step + 1 for extent, step in zip((window.height, window.width), window.dilations, strict=True))
    return 4 * (window.height * (2 * window.width + 1) + high * ((tile["ow"] - 1) * window.strides[1] + wide))


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
        macros=_macros_of_filter,
    ),
    _CONV.variant("arm_conv2d", (conv.is_dense, "one group"), tiling=Tiling(whole=("c", "fh", "fw"), multiple={"k": 2})),
    _CONV,
    GENERIC.kernel("matmul_dot").variant(
        "arm_matmul",
        (_has_plain_rows, "rows of a, and zero points that are constants of the epilogue"),
        source="arm/arm_matmul.c",
        struct="matmul_dot",
        types={"a": BYTES, "b": BYTES, "y": RESULTS},
        strided={"a": 1, "y": 1},
        tiling=Tiling(whole=("k",), multiple={"n": 4}),
        cores=("m", "b0", "b1", "b2", "b3"),
        layouts={"b": Layout(_encode_columns), **_CONSTANTS},
        macros=_macros_of_product,
    ),
    GENERIC.kernel("fixed_fourier").variant("arm_fourier", source="arm/arm_fourier.c", struct="fixed_fourier"),
    *(kernel for kernel in GENERIC.computing if kernel not in _PACKED),
)
