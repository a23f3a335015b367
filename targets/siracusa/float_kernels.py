"""Kernels of the cluster on floats: products in blocks of registers, which round once for a product and its sum, and pairs of elements."""

from __future__ import annotations

from deeploy.operators import conv, matmul
from deeploy.operators.accumulate import on_floats, stored_whole
from deeploy.target import FLOAT, Kernel, Tiling

from .depthwise_kernels import GENERIC

UNROUNDED = "products of floats that are added without having been rounded"

KERNELS: tuple[Kernel, ...] = (
    *(
        GENERIC.kernel(name).variant(
            f"pulp_{name}_floats",
            source="pulp/pulp_binary_floats.c",
            struct="binary",
            types=dict.fromkeys(("a", "b", "y"), FLOAT),
            epilogues=((), ("clamp",)),
        )
        for name in ("add", "sub", "mul")
    ),
    GENERIC.kernel("unary").variant("pulp_unary_floats", source="pulp/pulp_unary_floats.c", struct="unary"),
    on_floats(GENERIC.kernel("matmul_any")).variant(
        "pulp_matmul_floats",
        requires=matmul.state_fused_requirement,
        needs=(matmul.fuses, UNROUNDED),
        source="pulp/pulp_matmul_floats.c",
        struct="matmul",
        tiling=Tiling(whole=("k",)),
    ),
    on_floats(GENERIC.kernel("conv2d")).variant(
        "pulp_conv2d_floats",
        requires=stored_whole,
        needs=(lambda node: matmul.fuses(node) and conv.is_dense(node), UNROUNDED),
        source="pulp/pulp_conv2d_floats.c",
        types={"w": FLOAT},
        struct="conv2d",
        tiling=Tiling(whole=("c", "fh", "fw")),
    ),
)
