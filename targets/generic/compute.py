"""Kernels that multiply and reduce: convolutions, matrix products, pools, reductions.

Each is declared on integers and, where the operator has a float form, on float32. The first one that fits a node runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

from deeploy.graph.nest import Map
from deeploy.operators import conv, matmul, pool, reduce, residual
from deeploy.operators import elementwise as ew
from deeploy.target import Kernel, Node, Tiling, types

BYTES = types("s8", "u8")
INTEGERS = types("s8", "u8", "s16", "u16", "s32")
FLOAT = types("f32")
IMAGE = {"x": 1, "y": 1}  # channels are dense, the other axes may have any stride
INTEGER_STAGES = tuple(bias + final for bias, final in product(((), ("bias",)), ((), ("requantise",), ("requantise", "clamp"), ("clamp",))))
FLOAT_STAGES = ((), ("bias",), ("clamp",), ("bias", "clamp"))

Accepts = Callable[[Node], str | None]


def _wide(node: Node) -> str | None:
    """An int32 accumulator that is not requantised must be stored as it is."""
    if "requantise" in node.epilogue or node.outputs[0].dtype.value in ("s32", "f32"):
        return None
    return f"a requantisation, or y of type s32, not {node.outputs[0].dtype.value}"


def _same(node: Node) -> str | None:
    """Without a requantisation y is stored in the type of x, or as the accumulator."""
    x, y = node.inputs[0], node.outputs[0]
    return None if x is not None and x.dtype is y.dtype else _wide(node)


def _both(*conditions: Accepts) -> Accepts:
    """The first objection of several conditions."""
    return lambda node: next((reason for condition in conditions if (reason := condition(node)) is not None), None)


def _if(holds: Callable[[Node], bool], need: str) -> Accepts:
    return lambda node: None if holds(node) else need


LONG = 48  # below this, loops over neighbouring outputs were measured to be faster than inner products


def _long(node: Node) -> bool:
    """Whether a window holds enough elements for inner products to pay."""
    w = node.inputs[1]
    return w is not None and w.elements // w.shape[0] >= LONG


def _float(kernel: Kernel) -> Kernel:
    """The same kernel on float32."""
    return replace(kernel, types={name: FLOAT for name in (*kernel.types, "bias")}, epilogues=FLOAT_STAGES)


_GROUPED = Kernel(
    name="conv2d_grouped",
    op="Conv",
    inputs=("x", "w"),
    types={"x": INTEGERS, "w": INTEGERS, "y": INTEGERS, "bias": types("s32")},
    nest=conv.nest(lambda k, c, fh, fw: Map(fh, fw, c, k)),
    accepts=_wide,
    epilogues=INTEGER_STAGES,
    constants=("w",),
    layouts={"w": conv.OUTPUTS_LAST},
    strided=IMAGE,
    tiling=Tiling(whole=("k", "c", "fh", "fw")),
    cores=("oh",),
    source="portable/conv2d.c",
    template="conv2d.mako",
    reference=conv.reference,
)
_DENSE = replace(
    _GROUPED,
    name="conv2d",
    accepts=_both(_wide, _if(conv.is_dense, "one group")),
    tiling=Tiling(whole=("c", "fh", "fw")),
    cores=("oh", "k"),
)
_DOT = replace(
    _DENSE,
    name="conv2d_dot",
    accepts=_both(_wide, _if(conv.is_dense, "one group"), _if(_long, f"a window of at least {LONG} elements")),
    types={"x": BYTES, "w": types("s8", "u8", "s16"), "y": INTEGERS, "bias": types("s32")},
    nest=conv.nest(lambda k, c, fh, fw: Map(k, fh, fw, c)),
    layouts={"w": conv.OUTPUTS_FIRST},
    source="portable/conv2d_dot.c",
    template="conv2d_dot.mako",
)
_DOT_GROUPED = replace(
    _DOT,
    name="conv2d_dot_grouped",
    accepts=_both(_wide, _if(_long, f"a window of at least {LONG} elements")),
    tiling=_GROUPED.tiling,
    cores=_GROUPED.cores,
)
_COMPUTED_WEIGHTS = replace(
    _GROUPED,
    name="conv2d_any",
    nest=conv.nest(lambda k, c, fh, fw: Map(k, c, fh, fw)),
    constants=(),
    layouts={},
    strided={**IMAGE, "w": 0},
    source="portable/conv2d_any.c",
    template="conv2d_any.mako",
)
_MULTIPLIED = replace(
    _GROUPED,
    name="depthwise2d_multiplied",
    nest=conv.depthwise_nest,
    accepts=_both(_wide, _if(conv.is_depthwise_multiplied, "one input channel per group")),
    layouts={"w": conv.DEPTHWISE},
    tiling=Tiling(whole=("k", "fh", "fw")),
    source="portable/depthwise2d.c",
    template="depthwise2d.mako",
)
_DEPTHWISE = replace(
    _MULTIPLIED,
    name="depthwise2d",
    accepts=_both(_wide, _if(conv.is_depthwise, "one input and one output channel per group")),
    tiling=Tiling(whole=("fh", "fw")),
    cores=("oh", "k"),
)
_TRANSPOSED = replace(
    _GROUPED,
    name="conv2d_transpose",
    op="ConvTranspose",
    nest=conv.transposed_nest,
    layouts={"w": conv.TRANSPOSED},
    tiling=Tiling(whole=("oh", "ow", "k", "th", "tw", "c")),  # the taps of a tile depend on where it begins
    cores=(),
    source="portable/conv2d_transpose.c",
    template="conv2d_transpose.mako",
    reference=conv.transposed_reference,
)
_MATMUL = Kernel(
    name="matmul_any",
    op="MatMul",
    inputs=("a", "b"),
    types={"a": INTEGERS, "b": INTEGERS, "y": INTEGERS, "bias": types("s32")},
    nest=matmul.nest(),
    accepts=_both(_wide, matmul.accepts),
    epilogues=INTEGER_STAGES,
    strided={"a": 0, "b": 0, "y": 1},
    tiling=Tiling(whole=("k",)),
    cores=("m", "n"),
    source="portable/matmul.c",
    template="matmul.mako",
    reference=matmul.reference,
)
_MATMUL_CONSTANT = replace(_MATMUL, name="matmul", nest=matmul.nest(stored="columns"), constants=("b",), layouts={"b": matmul.COLUMNS_LAST})
_MATMUL_DOT = replace(
    _MATMUL,
    name="matmul_dot",
    types={"a": BYTES, "b": types("s8", "u8", "s16"), "y": INTEGERS, "bias": types("s32")},
    nest=matmul.nest(stored="rows"),
    constants=("b",),
    layouts={"b": matmul.ROWS_LAST},
    source="portable/matmul_dot.c",
    template="matmul_dot.mako",
)
_AVERAGE = Kernel(
    name="average_pool2d",
    op="AveragePool",
    inputs=("x",),
    types={"x": BYTES, "y": INTEGERS, "bias": types("s32")},
    nest=pool.average_nest,
    accepts=_wide,
    epilogues=INTEGER_STAGES,
    strided=IMAGE,
    tiling=Tiling(whole=("fh", "fw")),
    cores=("oh", "c"),
    source="portable/average_pool2d.c",
    template="average_pool2d.mako",
    reference=pool.average_reference,
)
_MAX_POOL = Kernel(
    name="maxpool2d",
    op="MaxPool",
    inputs=("x",),
    types={"x": INTEGERS, "y": INTEGERS},
    nest=pool.max_nest,
    accepts=_if(lambda node: node.inputs[0] is not None and node.inputs[0].dtype is node.outputs[0].dtype, "y of the type of x"),
    strided=IMAGE,
    tiling=Tiling(whole=("fh", "fw")),
    cores=("oh", "c"),
    source="portable/maxpool2d.c",
    template="maxpool2d.mako",
    reference=pool.max_reference,
)
_MAX_POOL_FLOAT = replace(_MAX_POOL, types={"x": FLOAT, "y": FLOAT})
_SUM = Kernel(
    name="reduce_sum",
    op="ReduceSum",
    inputs=("x",),
    types={"x": INTEGERS, "y": INTEGERS, "bias": types("s32")},
    nest=reduce.sum_nest,
    accepts=_both(_wide, reduce.accepts),
    epilogues=INTEGER_STAGES,
    strided={"x": 0, "y": 0},
    source="portable/reduce.c",
    template="reduce.mako",
    reference=reduce.sum_reference,
)
_MAX = replace(
    _SUM, name="reduce_max", op="ReduceMax", nest=reduce.max_nest, accepts=_both(_same, reduce.accepts), reference=reduce.max_reference
)
_MIN = replace(_MAX, name="reduce_min", op="ReduceMin", nest=reduce.min_nest, reference=reduce.min_reference)
_INTEGER_MEAN = replace(_MAX, name="integer_mean", op="IntegerMean", nest=reduce.sum_nest, reference=reduce.integer_mean_reference)
_PRODUCT = replace(_float(_SUM), name="reduce_prod", op="ReduceProd", nest=reduce.product_nest, reference=reduce.product_reference)
_RESIDUAL = Kernel(
    name="residual_sum",
    op="ResidualSum",
    inputs=("x", "b", "mul", "add"),
    types={"x": types("s32"), "b": BYTES, "mul": types("s32"), "add": types("s32", "s64"), "y": BYTES},
    nest=residual.nest,
    accepts=residual.accepts,
    strided={"x": 0, "b": 0, "y": 0},
    overwrites=(("y", "b"),),
    source="portable/residual_sum.c",
    template="residual_sum.mako",
    reference=residual.reference,
)
_EXTREME = Kernel(
    name="arg_extreme",
    op="ArgMax",
    inputs=("x",),
    types={"x": INTEGERS | FLOAT, "y": types("s32", "s64")},
    nest=reduce.extreme_nest,
    accepts=ew.fits_loops,
    strided={"x": 0, "y": 0},
    macros=lambda node: {"BETTER": ("less" if node.attrs["smallest"] else "greater") + ("_or_equal" if node.attrs["last"] else "")},
    source="portable/arg_extreme.c",
    template="arg_extreme.mako",
    reference=reduce.extreme_reference,
)
_MEAN = replace(_float(_SUM), name="reduce_mean", op="ReduceMean", reference=reduce.mean_reference)

_TWICE = (
    *(_DENSE, _DEPTHWISE, _MULTIPLIED, _GROUPED, _COMPUTED_WEIGHTS, _TRANSPOSED),
    *(_MATMUL_CONSTANT, _MATMUL, _AVERAGE, _SUM, _MAX, _MIN),
)

KERNELS: tuple[Kernel, ...] = (
    _DEPTHWISE,
    _DOT,
    _DOT_GROUPED,
    _MATMUL_DOT,
    *_TWICE,
    *map(_float, _TWICE),
    _MAX_POOL,
    _MAX_POOL_FLOAT,
    _INTEGER_MEAN,
    _RESIDUAL,
    _MEAN,
    _PRODUCT,
    _EXTREME,
)
