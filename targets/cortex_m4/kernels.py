"""Kernels of Arm processors with the DSP extension: products of pairs of 16-bit values, as variants of the portable ones."""

from __future__ import annotations

from deeploy.operators import conv
from deeploy.target import BYTES, Node, Tiling, load, types

GENERIC = load("generic")
RESULTS = types("s8", "u8", "s32")


def _has_plain_rows(node: Node) -> bool:
    return not (int(node.attrs["a_zero_point"]) or int(node.attrs["b_zero_point"]) or node.attrs["trans_a"])


_CONV = GENERIC.kernel("conv2d_dot_grouped").variant(
    "arm_conv2d_grouped",
    accepts=GENERIC.kernel("conv2d_grouped").accepts,
    source="arm/arm_conv2d.c",
    struct="conv2d_dot",
    types={"x": BYTES, "w": BYTES, "y": RESULTS},
)
_PACKED = tuple(kernel for kernel in GENERIC.computing if kernel.packs)  # weights of few bits stay so in flash

KERNELS = (
    *_PACKED,
    GENERIC.kernel("depthwise2d").variant(
        "arm_depthwise", source="arm/arm_depthwise.c", struct="depthwise2d", types={"x": BYTES, "w": BYTES, "y": RESULTS}
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
    ),
    *(kernel for kernel in GENERIC.computing if kernel not in _PACKED),
)
