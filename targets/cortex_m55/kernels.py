"""Kernels of Arm processors with Helium: products of sixteen bytes, as variants of the portable ones; then those of the DSP extension.

Bytes are signed. A requantisation of QDQ networks is a product's upper word, with a bias before and a summand behind it
(``requantise.words``), so that four outputs are requantised together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deeploy.operators import conv, requantise
from deeploy.target import Count, Layout, Map, Node, Scratch, Tiling, encoded, load, types

GENERIC, M4 = load("generic"), load("cortex_m4")
_BYTES = types("s8")
RESULTS = types("s8", "s32")
LANES = 4  # outputs that are requantised together
TAPS = 4  # rows and columns of the stored filters of depthwise convolutions


def _encode_constants(node: Node) -> tuple[np.ndarray, np.ndarray] | None:
    return requantise.narrow_words(node) if node.outputs[0].dtype in _BYTES else None


def _list_macros(node: Node) -> dict[str, str]:
    return {"REQUANT_WORDS": "words"} if _encode_constants(node) else {}


def _window_bytes(node: Node, tile: Mapping[str, Count]) -> int:
    """Bytes of a window; none where it is a pixel, which is read in place."""
    window = conv.window(node)
    is_pixel = window.height == window.width == 1 and not any(window.pads)
    return 0 if is_pixel else window.channels * window.height * window.width


def _is_small(node: Node) -> bool:
    window = conv.window(node)
    is_inside = window.height < TAPS and window.width <= TAPS
    return conv.is_depthwise(node) and is_inside and window.dilations == (1, 1) and window.strides[0] <= 2


def _encode_filters(array: np.ndarray, node: Node) -> np.ndarray:
    """[K, 16]: column after column of four bytes, those of the rows."""
    stored = np.zeros((len(array), TAPS, TAPS), array.dtype)
    stored[:, : array.shape[3], : array.shape[2]] = array[:, 0].transpose(0, 2, 1)
    return stored.reshape(len(array), -1)


def _word_bytes(node: Node, tile: Mapping[str, Count]) -> Count:
    """Bytes of a word for every column under a row of outputs, whose number is a multiple of four."""
    return 4 * (((tile["ow"] + LANES - 1) // LANES * LANES - 1) * conv.window(node).strides[1] + TAPS)


_CONSTANTS = requantise.stored(_encode_constants)
_CONV = GENERIC.kernel("conv2d_dot_grouped").variant(
    "helium_conv2d_grouped",
    requires=GENERIC.kernel("conv2d_grouped").requires,
    source="arm/helium_conv2d.c",
    struct="arm_conv2d",
    types={"x": _BYTES, "w": _BYTES, "y": RESULTS},
    layouts=_CONSTANTS,
    scratch={"windows": Scratch(_window_bytes)},
    macros=_list_macros,
)

KERNELS = (
    *(kernel for kernel in M4.kernels if kernel.packs),
    GENERIC.kernel("depthwise2d").variant(
        "helium_depthwise",
        (_is_small, "a depthwise filter of up to 3 rows and 4 columns, not dilated, with steps of up to 2 rows"),
        source="arm/helium_depthwise.c",
        struct="arm_depthwise",
        types={"x": _BYTES, "w": _BYTES, "y": RESULTS},
        nest=conv.depthwise_nest(lambda k, fh, fw: Map(k, *encoded("w_byte", of=[dim for e in (fh, fw) for dim in e.affine().dims()]))),
        layouts={"w": Layout(_encode_filters), **_CONSTANTS},
        scratch={"words": Scratch(_word_bytes)},
        macros=_list_macros,
    ),
    _CONV.variant("helium_conv2d", (conv.is_dense, "one group"), tiling=Tiling(whole=("c", "fh", "fw"))),
    _CONV,
    M4.kernel("arm_matmul").variant(
        "helium_matmul",
        source="arm/helium_matmul.c",
        struct="matmul_dot",
        types={"a": _BYTES, "b": _BYTES, "y": RESULTS},
        strided={"a": 1, "b": 1, "y": 1},
        tiling=GENERIC.kernel("matmul_dot").tiling,
        layouts={**GENERIC.kernel("matmul_dot").layouts, **_CONSTANTS},
        macros=_list_macros,
    ),
    GENERIC.kernel("scaled_sum").variant(
        "helium_sum", source="arm/helium_sum.c", struct="scaled_sum", types=dict.fromkeys(("a", "b", "y"), _BYTES)
    ),
    GENERIC.kernel("quantize").variant("helium_quantize", source="arm/helium_quantize.c", struct="quantize", types={"y": _BYTES}),
    *(kernel for kernel in M4.kernels if not kernel.packs),
)
