"""Kernels that multiply and reduce, on integers and, where there is such a form, on float32."""

from __future__ import annotations

from deeploy.operators import bands, blocks, conv, fourier, interpolate, matmul, pool, reduce, residual, scan
from deeploy.operators.accumulate import on_floats
from deeploy.target import BYTES, FEW, Kernel, Need, Node, Operator, Tiling, types

LONG = 48  # below this, loops over neighbouring outputs were measured to be faster than inner products
DENSE: Need = (conv.is_dense, "one group")
WEIGHTS = types("s8", "u8", "s16")  # of inner products with bytes


def _is_long(node: Node) -> bool:
    """Whether a window holds enough elements for inner products to pay."""
    w = node.inputs[1]
    return w is not None and w.elements // w.shape[0] >= LONG


def _declare_reduction(operator: Operator, name: str, operation: str) -> Kernel:
    return operator.kernel(name, "portable/reduce.c", settings=lambda node: {"operation": f"REDUCE_{operation}"})


def _widen_kernel(kernel: Kernel) -> Kernel:
    """The same on elements of 64 bits."""
    elements = dict.fromkeys(kernel.types, types("s64"))
    return kernel.variant(f"{kernel.name}_wide", types=elements, epilogues=((),), macros=lambda _: {"WIDE": "wide"})


def _integer_mean(node: Node) -> dict[str, str]:
    return {"operation": "REDUCE_SHIFT_MEAN" if reduce.is_shifted_mean(node) else "REDUCE_INTEGER_MEAN"}


def _declare_sum(node: Node) -> dict[str, str]:
    return {"SUM": "real" if node.outputs[0].dtype.is_float else "whole"}


def _is_better(node: Node) -> dict[str, str]:
    return {"BETTER": ("less" if node.attrs["smallest"] else "greater") + ("_or_equal" if node.attrs["last"] else "")}


_ALL = Tiling(whole=("k", "c", "fh", "fw"))  # groups are not cut
_GROUPED = conv.CONV.kernel("conv2d_grouped", "portable/conv2d.c", tiling=_ALL, cores=("oh", "ow"), **conv.OUTPUTS_LAST)
_DOT_GROUPED = _GROUPED.variant(
    "conv2d_dot_grouped",
    (_is_long, f"a window of at least {LONG} elements"),
    source="portable/conv2d_dot.c",
    types={"x": BYTES, "w": WEIGHTS},
    **conv.OUTPUTS_FIRST,
)
_MULTIPLIED = conv.CONV.kernel(
    "depthwise2d_multiplied",
    "portable/depthwise2d.c",
    (conv.is_depthwise_multiplied, "one input channel per group"),
    tiling=Tiling(whole=("k", "fh", "fw")),
    cores=("oh", "ow"),
    **conv.DEPTHWISE_LAST,
)
_DEPTHWISE = _MULTIPLIED.variant(
    "depthwise2d",
    (conv.is_depthwise, "one input and one output channel per group"),
    tiling=Tiling(whole=("fh", "fw")),
    cores=("oh", "ow", "k"),
)
_MATMUL = matmul.MATMUL.kernel("matmul_any", "portable/matmul.c", cores=("m", "n", "b0", "b1", "b2", "b3"))


def _sums_of_blocks(node: Node) -> dict[str, str]:
    a = node.inputs[0]
    return {"PART_T": "float" if a is not None and a.dtype.is_float else "int32_t"}


_BLOCKS = blocks.BLOCK_MATMUL.kernel("block_matmul", "portable/block_matmul.c", macros=_sums_of_blocks)

_REDUCTIONS = (
    _declare_reduction(reduce.REDUCE_SUM, "reduce_sum", "SUM"),
    _declare_reduction(reduce.REDUCE_MAX, "reduce_max", "MAX"),
    _declare_reduction(reduce.REDUCE_MIN, "reduce_min", "MIN"),
)
_PRODUCT = _declare_reduction(reduce.REDUCE_PRODUCT, "reduce_prod", "PRODUCT")
_ON_BOTH = (
    _GROUPED.variant("conv2d", DENSE, tiling=conv.CONV.usual["tiling"], strided={"x": 1, "y": 1, "w": 1}, cores=("oh", "ow", "k")),
    _DEPTHWISE,
    _MULTIPLIED,
    _GROUPED,
    conv.CONV.kernel(
        "conv2d_any", "portable/conv2d_any.c", constants=(), strided={"x": 1, "y": 1, "w": 0}, tiling=_ALL, cores=("oh", "ow")
    ),
    conv.TRANSPOSED.kernel("conv2d_transpose", "portable/conv2d_transpose.c", cores=("oh", "ow")),
    _MATMUL.variant("matmul", **matmul.COLUMNS_LAST),
    _MATMUL,
    pool.AVERAGE_POOL.kernel("average_pool2d", "portable/average_pool2d.c", cores=("oh", "ow", "c")),
    *_REDUCTIONS,
)

_PACKED_GROUPED = _GROUPED.variant(
    "conv2d_packed_grouped",
    (lambda node: conv.window(node).channels > 1, "several input channels in a group"),  # others have few weights
    source="portable/conv2d_dot.c",
    types={"x": BYTES, "w": FEW},
    **conv.PACKED_FILTERS,
)

# Where constants have few bits, those come first that read them packed.
KERNELS: tuple[Kernel, ...] = (
    _PACKED_GROUPED.variant(
        "conv2d_packed", requires=_GROUPED.requires, needs=DENSE, tiling=conv.CONV.usual["tiling"], cores=("oh", "ow", "k")
    ),
    _PACKED_GROUPED,
    _MATMUL.variant("matmul_packed", source="portable/matmul_dot.c", types={"a": BYTES, "b": FEW}, **matmul.PACKED_ROWS),
    _BLOCKS.variant("block_matmul_packed", blocks.WHOLE_BYTES, types={"b": FEW}, **blocks.PACKED_ROWS),
    _BLOCKS,
    _DEPTHWISE,
    _DOT_GROUPED.variant("conv2d_dot", DENSE, tiling=conv.CONV.usual["tiling"], cores=("oh", "ow", "k")),
    _DOT_GROUPED,
    _MATMUL.variant("matmul_dot", source="portable/matmul_dot.c", types={"a": BYTES, "b": WEIGHTS}, **matmul.ROWS_LAST),
    *_ON_BOTH,
    *map(on_floats, _ON_BOTH),
    *map(_widen_kernel, (*_REDUCTIONS, _PRODUCT, _MATMUL)),
    bands.BAND_MATMUL.kernel("band_matmul", "portable/band_matmul.c"),
    interpolate.INTERPOLATE.kernel("interpolate", "portable/interpolate.c"),
    pool.MAX_POOL.kernel("maxpool2d", "portable/maxpool2d.c", cores=("oh", "ow", "c")),
    reduce.INTEGER_MEAN.kernel("integer_mean", "portable/reduce.c", settings=_integer_mean),
    residual.RESIDUAL_SUM.kernel("residual_sum", "portable/residual_sum.c"),
    on_floats(_declare_reduction(reduce.REDUCE_MEAN, "reduce_mean", "MEAN")),
    on_floats(_PRODUCT),
    _PRODUCT.variant("reduce_prod", types=dict.fromkeys(("x", "y"), types("s32"))),
    scan.RUNNING_SUM.kernel("running_sum", "portable/running_sum.c", macros=_declare_sum),
    scan.THRESHOLDS.kernel("thresholds", "portable/thresholds.c"),
    fourier.REAL_FOURIER.kernel("real_fourier", "portable/real_fourier.c"),
    fourier.FIXED_FOURIER.kernel("fixed_fourier", "portable/fixed_fourier.c"),
    reduce.ARG_EXTREME.kernel("arg_extreme", "portable/arg_extreme.c", macros=_is_better),
)
