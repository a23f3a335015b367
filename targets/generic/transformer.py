"""Kernels of transformers: softmaxes and norms along rows, and the integer functions between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deeploy.operators import elementwise as ew
from deeploy.operators import integer, norms, pairs, rotate, rows
from deeploy.target import DType, Kernel, Node, types

BYTES = types("s8", "u8")
INTEGERS = types("s8", "u8", "s16", "u16", "s32")
ANY = frozenset(DType)
FLOAT = types("f32")
ROW = {"x": 1, "y": 1}  # rows are dense, the other axes may have any stride


def _softmax(node: Node) -> Mapping[str, str]:
    wide = {"WIDE_T": "uint64_t" if rows.softmax_is_wide(node) else "uint32_t"}
    return {**wide, "ROUNDED": "rounded"} if node.attrs.get("rounded", True) else wide


def _norm(node: Node) -> Mapping[str, str]:
    squares, product = rows.norm_types(node)
    centred = {"CENTRED": "centred"} if node.op == "IntegerLayerNorm" else {}
    return {"SQUARES_T": squares, "PRODUCT_T": product, **centred}


def _function(node: Node) -> Mapping[str, str]:
    return {"FUNCTION": {"gelu": "polynomial_gelu", "hard_swish": "clipped_ramp"}[node.attrs["function"]]}


def _standardise(node: Node) -> Mapping[str, str]:
    wide = 255 * 255 * rows.columns(node) >= 2**31
    return {"SQUARES_T": "int64_t" if wide else "int32_t", **({"CENTRED": "centred"} if node.attrs["centred"] else {})}


# What pairwise.c calls the functions.
_PAIRS = {
    "max": "larger",
    "min": "smaller",
    "pow": "power",
    "equal": "equal",
    "not_equal": "differ",
    "less": "less",
    "less_or_equal": "at_most",
    "greater": "greater",
    "greater_or_equal": "at_least",
    "and": "both",
    "or": "either",
    "add": "sum",
    "sub": "difference",
    "mul": "product",
    "div": "quotient",
    "mod": "modulo",
    "fmod": "remainder_of",
    "bit_and": "bits_of_both",
    "bit_or": "bits_of_either",
    "bit_xor": "bits_that_differ",
    "shift_left": "shifted_left",
    "shift_right": "shifted_right",
}


def _pair(node: Node) -> Mapping[str, str]:
    return {"FUNCTION": _PAIRS[node.attrs["function"]]}


def _pair_types(node: Node) -> str | None:
    """Both operands of one type, which is also the result's unless the function compares."""
    (a, b), y, function = node.inputs[:2], node.outputs[0], node.attrs["function"]
    if function not in _PAIRS or a is None or b is None or a.dtype is not b.dtype:
        return "a known function of two operands of one type"
    if y.dtype is not (DType.BOOL if function in pairs.COMPARISONS else a.dtype):
        return "y of type bool" if function in pairs.COMPARISONS else "y of the type of a"
    if (function in pairs.ARITHMETIC and a.dtype is not DType.INT64) or (function == "pow" and not a.dtype.is_float):
        return f"operands of type {'s64' if function != 'pow' else 'f32'}"
    if function in pairs.INTEGER and (a.dtype.is_float or a.dtype is DType.BOOL):
        return "operands of an integer type"
    return ew.fits_loops(node)


def _select_types(node: Node) -> str | None:
    same = len({t.dtype for t in (*node.inputs[1:3], *node.outputs) if t is not None}) == 1
    return ew.fits_loops(node) if same else "operands of one type"


_TABLE_SOFTMAX = Kernel(
    name="table_softmax",
    op="Softmax",
    inputs=("x", "table", "results?"),
    types={"x": BYTES, "table": types("u32"), "results": BYTES, "y": types("s8", "u8", "s32")},
    constants=("table", "results"),
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

_STANDARDISE = Kernel(
    name="standardise",
    op="Standardise",
    inputs=("x",),
    types={"x": BYTES, "y": types("s8", "u8", "s32")},
    nest=rows.nest(),
    accepts=lambda node: norms.standardise_accepts(node) or ew.fits_loops(node),
    epilogues=((), ("requantise",)),
    strided=ROW,
    overwrites=(("y", "x"),),
    macros=_standardise,
    source="portable/standardise.c",
    template="standardise.mako",
    reference=norms.standardise_reference,
)
_NORMALISE = Kernel(
    name="normalise",
    op="Normalise",
    inputs=("x", "scale", "offset?"),
    types={"x": FLOAT, "scale": FLOAT, "offset": FLOAT, "y": FLOAT},
    nest=rows.nest("scale", "offset"),
    accepts=ew.fits_loops,
    strided=ROW,
    overwrites=(("y", "x"),),
    source="portable/normalise.c",
    template="normalise.mako",
    reference=norms.normalise_reference,
)
_PAIRWISE = Kernel(
    name="pairwise",
    op="Binary",
    inputs=("a", "b"),
    types={"a": ANY, "b": ANY, "y": ANY},
    nest=ew.nest("a", "b"),
    accepts=_pair_types,
    strided={"a": 0, "b": 0, "y": 0},
    overwrites=(("y", "a"), ("y", "b")),
    macros=_pair,
    source="portable/pairwise.c",
    template="pairwise.mako",
    reference=pairs.reference,
)
_SELECT = Kernel(
    name="select",
    op="Where",
    inputs=("condition", "a", "b"),
    types={"condition": types("bool"), "a": ANY, "b": ANY, "y": ANY},
    nest=ew.nest("condition", "a", "b"),
    accepts=_select_types,
    strided={"condition": 0, "a": 0, "b": 0, "y": 0},
    overwrites=(("y", "a"), ("y", "b")),
    source="portable/select.c",
    template="select.mako",
    reference=pairs.select_reference,
)
_EXPAND = Kernel(
    name="expand",
    op="Expand",
    inputs=("x",),
    types={"x": ANY, "y": ANY},
    nest=ew.nest("x"),
    accepts=ew.fits_loops,
    strided={"x": 0, "y": 0},
    source="portable/copy.c",
    template="copy.mako",
    reference=pairs.expand_reference,
)

_REQUANT_ADD = Kernel(
    name="requant_add",
    op="RequantAdd",
    inputs=("a", "b"),
    types={"a": INTEGERS, "b": INTEGERS, "y": types("s8", "u8", "s32")},
    nest=ew.nest("a", "b"),
    accepts=ew.fits_loops,
    epilogues=((), ("requantise",), ("clamp",)),
    strided={"a": 0, "b": 0, "y": 1},
    overwrites=(("y", "a"), ("y", "b")),
    macros=lambda node: {"WIDE_T": "int64_t" if integer.requant_add_is_wide(node) else "int32_t"},
    source="portable/requant_add.c",
    template="requant_add.mako",
    reference=integer.requant_add_reference,
)

_ROTATE = Kernel(
    name="rotate",
    op="Rotate",
    inputs=("x", "cosine", "sine", "table"),
    types={"x": BYTES, "cosine": BYTES, "sine": BYTES, "table": BYTES, "y": BYTES},
    constants=("table",),
    nest=rotate.nest,
    accepts=rotate.accepts,
    strided={"x": 0, "cosine": 0, "sine": 0, "y": 0},
    overwrites=(("y", "x"),),
    source="portable/rotate.c",
    template="rotate.mako",
    reference=rotate.reference,
)
_ROTATE_FLOAT = replace(
    _ROTATE,
    inputs=("x", "cosine", "sine", "table?"),
    types={**dict.fromkeys(("x", "cosine", "sine", "y"), FLOAT), "table": frozenset()},
    constants=(),
    reference=rotate.float_reference,
)

KERNELS: tuple[Kernel, ...] = (
    *(_TABLE_SOFTMAX, _SHIFT_SOFTMAX, _LAYER_NORM, _RMS_NORM, _FUNCTION, _DIV),
    *(_STANDARDISE, _NORMALISE, _PAIRWISE, _SELECT, _EXPAND, _REQUANT_ADD),
    *(_ROTATE, _ROTATE_FLOAT),
)
