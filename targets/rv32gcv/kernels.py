"""Kernels of RISC-V processors with vectors: bytes are widened to 16 bits, neighbouring channels are computed together.

A requantisation of QDQ networks is a product's upper word, with a bias before and a summand behind it (``requantise.words``).
"""

from __future__ import annotations

import numpy as np

from deeploy.operators import matmul, requantise
from deeploy.target import BYTES, Kernel, Node, load, types

GENERIC = load("generic")
RESULTS = types("s8", "u8", "s32")


def _encode_constants(node: Node) -> tuple[np.ndarray, np.ndarray] | None:
    return requantise.narrow_words(node) if node.outputs[0].dtype in BYTES else None


def _list_macros(node: Node) -> dict[str, str]:
    return {"REQUANT_WORDS": "words"} if _encode_constants(node) else {}


def _has_plain_rows(node: Node) -> bool:
    return not (int(node.attrs["a_zero_point"]) or int(node.attrs["b_zero_point"]) or node.attrs["trans_a"])


def _declare_vector(kernel: Kernel, name: str, x: str, w: str) -> Kernel:
    """A kernel of bytes that takes what a portable one takes."""
    return kernel.variant(
        f"rvv_{kernel.name}",
        source=f"rvv/rvv_{name}.c",
        struct=kernel.argument,
        types={x: BYTES, w: BYTES, "y": RESULTS},
        layouts=requantise.stored(_encode_constants),
        macros=_list_macros,
    )


_PACKED = tuple(kernel for kernel in GENERIC.computing if kernel.packs)
_MATMUL = _declare_vector(GENERIC.kernel("matmul"), "matmul", "a", "b")

KERNELS = (
    *_PACKED,
    _declare_vector(GENERIC.kernel("depthwise2d"), "depthwise", "x", "w"),
    _declare_vector(GENERIC.kernel("conv2d"), "conv2d", "x", "w"),
    _declare_vector(GENERIC.kernel("conv2d_grouped"), "conv2d", "x", "w"),
    _MATMUL.variant(
        _MATMUL.name,
        (_has_plain_rows, "rows of a, and zero points that are constants of the epilogue"),
        strided={"a": 1, "b": 1, "y": 1},
        constants=matmul.COLUMNS_LAST["constants"],
    ),
    *(kernel for kernel in GENERIC.computing if kernel not in _PACKED),
)
