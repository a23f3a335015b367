"""Kernels of transformers: softmaxes and norms along rows, and the integer functions between them."""

from __future__ import annotations

from collections.abc import Mapping

from deeploy.operators import elementwise as ew
from deeploy.operators import integer, rows
from deeploy.target import Kernel, Node, types

BYTES = types("s8", "u8")
INTEGERS = types("s8", "u8", "s16", "u16", "s32")
ROW = {"x": 1, "y": 1}  # rows are dense, the other axes may have any stride


def _softmax(node: Node) -> Mapping[str, str]:
    wide = {"WIDE_T": "uint64_t" if rows.softmax_is_wide(node) else "uint32_t"}
    return {**wide, "ROUND_UP": "rounded"} if node.attrs.get("rounded", True) else wide


def _norm(node: Node) -> Mapping[str, str]:
    squares, product = rows.norm_types(node)
    centred = {"CENTRED": "centred"} if node.op == "IntegerLayerNorm" else {}
    return {"SQUARES_T": squares, "PRODUCT_T": product, **centred}


def _function(node: Node) -> Mapping[str, str]:
    return {"FUNCTION": {"gelu": "polynomial_gelu", "hard_swish": "clipped_ramp"}[node.attrs["function"]]}


_TABLE_SOFTMAX = Kernel(
    name="table_softmax",
    op="Softmax",
    inputs=("x", "table"),
    types={"x": BYTES, "table": types("u32"), "y": types("s8", "u8", "s32")},
    constants=("table",),
    nest=rows.nest(),
    accepts=ew.fits_loops,
    strided=ROW,
    overwrites=(("y", "x"),),
    macros=_softmax,
    source="portable/table_softmax.c",
    template="table_softmax.mako",
    reference=rows.table_softmax_reference,
)
_SHIFT_SOFTMAX = Kernel(
    name="shift_softmax",
    op="ShiftSoftmax",
    inputs=("x",),
    types={"x": BYTES, "y": types("u8", "s32")},
    nest=rows.nest(),
    accepts=ew.fits_loops,
    strided=ROW,
    overwrites=(("y", "x"),),
    source="portable/shift_softmax.c",
    template="shift_softmax.mako",
    reference=rows.shift_softmax_reference,
)
_LAYER_NORM = Kernel(
    name="integer_layer_norm",
    op="IntegerLayerNorm",
    inputs=("x", "weight", "bias"),
    types={"x": types("s8", "u8", "s16"), "weight": INTEGERS, "bias": INTEGERS, "y": types("s8")},
    nest=rows.nest("weight", "bias"),
    accepts=ew.fits_loops,
    strided=ROW,
    overwrites=(("y", "x"),),
    macros=_norm,
    source="portable/integer_norm.c",
    template="integer_norm.mako",
    reference=rows.layer_norm_reference,
)
_RMS_NORM = Kernel(
    name="integer_rms_norm",
    op="IntegerRMSNorm",
    inputs=("x", "weight"),
    types={"x": types("s8", "u8", "s16"), "weight": INTEGERS, "y": types("s8")},
    nest=rows.nest("weight"),
    accepts=ew.fits_loops,
    strided=ROW,
    overwrites=(("y", "x"),),
    macros=_norm,
    source="portable/integer_norm.c",
    template="integer_norm.mako",
    reference=rows.rms_norm_reference,
)
_FUNCTION = Kernel(
    name="integer_function",
    op="IntegerFunction",
    inputs=("x",),
    types={"x": INTEGERS, "y": types("s32")},
    nest=ew.nest("x"),
    accepts=ew.fits_loops,
    strided={"x": 0, "y": 0},
    overwrites=(("y", "x"),),
    macros=_function,
    source="portable/integer_function.c",
    template="integer_function.mako",
    reference=integer.function_reference,
)
_DIV = Kernel(
    name="integer_div",
    op="IntegerDiv",
    inputs=("a", "b"),
    types={"a": INTEGERS, "b": INTEGERS, "y": types("s32")},
    nest=ew.nest("a", "b"),
    accepts=ew.fits_loops,
    strided={"a": 0, "b": 0, "y": 0},
    overwrites=(("y", "a"), ("y", "b")),
    source="portable/integer_div.c",
    template="integer_div.mako",
    reference=integer.div_reference,
)

KERNELS: tuple[Kernel, ...] = (_TABLE_SOFTMAX, _SHIFT_SOFTMAX, _LAYER_NORM, _RMS_NORM, _FUNCTION, _DIV)
