"""Kernels that multiply and reduce: convolutions, matrix products, pools, reductions."""

from __future__ import annotations

from dataclasses import replace

from deeploy.graph.nest import Map
from deeploy.operators import conv, matmul, pool, reduce
from deeploy.target import Kernel, Layout, Node, Tiling, permuted, types

BYTES = types("s8", "u8")
WEIGHTS = types("s8", "u8", "s16")
INTEGER = {"x": BYTES, "w": WEIGHTS, "y": types("s8", "u8", "s32")}
FLOAT = {"x": types("f32"), "w": types("f32"), "y": types("f32")}
INTEGER_STAGES = ((), ("bias",), ("requantise",), ("bias", "requantise"))
FLOAT_STAGES = ((), ("bias",), ("clamp",), ("bias", "clamp"))
IMAGE = {"x": 1, "y": 1}  # channels are dense, other axes may have any stride
WINDOW = Tiling(whole=("c", "fh", "fw"))


def _depthwise(node: Node) -> str | None:
    return None if conv.is_depthwise(node) else "one filter per channel"


_CONV = Kernel(
    name="conv2d",
    op="Conv",
    inputs=("x", "w"),
    types=INTEGER,
    epilogues=INTEGER_STAGES,
    nest=conv.nest(lambda k, c, fh, fw: Map(fh, fw, c, k)),
    layouts={"w": permuted(2, 3, 1, 0)},
    constants=("w",),
    strided=IMAGE,
    cores=("oh", "k"),
    tiling=WINDOW,
    source="portable/conv2d.c",
    template="conv2d.mako",
    reference=conv.reference,
)
_CONV_GRAPH_ORDER = replace(
    _CONV, name="conv2d_any", constants=(), layouts={}, nest=conv.nest(lambda k, c, fh, fw: Map(k, c, fh, fw)),
    source="portable/conv2d_any.c", template="conv2d_any.mako",
)
_DEPTHWISE = replace(
    _CONV,
    name="depthwise2d",
    accepts=_depthwise,
    nest=conv.depthwise_nest,
    layouts={"w": Layout(lambda w, node: w[:, 0].transpose(1, 2, 0).copy())},
    source="portable/depthwise2d.c",
    template="depthwise2d.mako",
)
_TRANSPOSED = Kernel(
    name="conv2d_transpose",
    op="ConvTranspose",
    inputs=("x", "w"),
    types=INTEGER,
    epilogues=INTEGER_STAGES,
    nest=conv.transposed_nest,
    layouts={"w": permuted(2, 3, 0, 1)},
    constants=("w",),
    strided=IMAGE,
    cores=("oh", "k"),
    tiling=WINDOW,
    source="portable/conv2d_transpose.c",
    template="conv2d_transpose.mako",
    reference=conv.transposed_reference,
)
_MATMUL = Kernel(
    name="matmul",
    op="MatMul",
    inputs=("a", "b"),
    types={"a": types("s8", "u8", "s16", "s32"), "b": types("s8", "u8", "s16", "s32"), "y": types("s8", "u8", "s32")},
    epilogues=INTEGER_STAGES,
    nest=matmul.nest,
    layouts={"b": Layout(matmul.stored_b)},
    strided={"a": 0, "b": 0, "y": 1},
    cores=("m", "n"),
    tiling=Tiling(whole=("k",)),
    source="portable/matmul.c",
    template="matmul.mako",
    reference=matmul.reference,
)
_AVERAGE = Kernel(
    name="average_pool2d",
    op="AveragePool",
    inputs=("x",),
    types=INTEGER,
    epilogues=INTEGER_STAGES,
    nest=pool.average_nest,
    strided=IMAGE,
    cores=("oh", "c"),
    tiling=Tiling(whole=("fh", "fw")),
    source="portable/average_pool2d.c",
    template="average_pool2d.mako",
    reference=pool.average_reference,
)
_MAX = Kernel(
    name="maxpool2d",
    op="MaxPool",
    inputs=("x",),
    types={"x": types("s8", "u8", "s16", "s32", "f32"), "y": types("s8", "u8", "s16", "s32", "f32")},
    nest=pool.max_nest,
    strided=IMAGE,
    cores=("oh", "c"),
    tiling=Tiling(whole=("fh", "fw")),
    source="portable/maxpool2d.c",
    template="maxpool2d.mako",
    reference=pool.max_reference,
)
_SUM = Kernel(
    name="reduce_sum",
    op="ReduceSum",
    inputs=("x",),
    types={"x": types("s8", "u8", "s16", "s32"), "y": types("s8", "u8", "s32")},
    epilogues=INTEGER_STAGES,
    nest=reduce.sum_nest,
    strided={"x": 0},
    source="portable/reduce.c",
    template="reduce.mako",
    reference=reduce.sum_reference,
)
_EXTREMES = types("s8", "u8", "s16", "s32", "f32")


def _float(kernel: Kernel) -> Kernel:
    """The same kernel on float32."""
    return replace(kernel, types={name: types("f32") for name in kernel.types}, epilogues=FLOAT_STAGES)


KERNELS = (
    _DEPTHWISE,
    _float(_DEPTHWISE),
    _CONV,
    _float(_CONV),
    _CONV_GRAPH_ORDER,
    _float(_CONV_GRAPH_ORDER),
    _TRANSPOSED,
    _float(_TRANSPOSED),
    _MATMUL,
    _float(_MATMUL),
    _AVERAGE,
    _float(_AVERAGE),
    _MAX,
    _SUM,
    _float(_SUM),
    replace(_float(_SUM), name="reduce_mean", op="ReduceMean", reference=reduce.mean_reference),
    replace(_SUM, name="integer_mean", op="IntegerMean", reference=reduce.integer_mean_reference),
    *(
        replace(_SUM, name=f"reduce_{name}", op=op, types={"x": _EXTREMES, "y": _EXTREMES}, epilogues=((),), nest=reduce.extreme_nest, reference=reference)
        for name, op, reference in (("max", "ReduceMax", reduce.max_reference), ("min", "ReduceMin", reduce.min_reference))
    ),
)
