"""Kernels of transformers: softmaxes and norms along rows, and the integer functions between them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deeploy.operators import integer, norms, pairs, rotate, rows
from deeploy.target import Kernel, Layout, Node, Sample, variant

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


def _declare_softmax(node: Node, is_curve: bool = False) -> Mapping[str, str]:
    wide = "uint64_t" if rows.softmax_is_wide(node) else "uint32_t"
    rounded = variant("rounded", bool(node.attrs.get("rounded", True)))
    return {"CURVE": variant("curve", is_curve), "WIDE_T": wide, "ROUNDED": rounded}


def _declare_norm(node: Node) -> Mapping[str, str]:
    squares, product = rows.norm_types(node)
    return {"SQUARES_T": squares, "PRODUCT_T": product, "CENTRED": variant("centred", node.op == "IntegerLayerNorm")}


_INTEGER_FUNCTIONS = {"gelu": "polynomial_gelu", "hard_swish": "clipped_ramp", "logistic": "logistic", "tanh": "tangent"}


def _declare_function(node: Node) -> Mapping[str, str]:
    return {"FUNCTION": _INTEGER_FUNCTIONS[node.attrs["function"]]}


def _declare_standardise(node: Node) -> Mapping[str, str]:
    wide = 255 * 255 * rows.columns(node) >= 2**31
    return {"SQUARES_T": "int64_t" if wide else "int32_t", "CENTRED": variant("centred", bool(node.attrs["centred"]))}


def _declare_pair(node: Node) -> Mapping[str, str]:
    return {"FUNCTION": _PAIRS[node.attrs["function"]]}


def _declare_sum(node: Node) -> Mapping[str, str]:
    return {"WIDE_T": "int64_t" if integer.requant_add_is_wide(node) else "int32_t"}


def _declare_curve(node: Node) -> np.ndarray | None:
    table = node.operands[1].data
    return None if table is None else rows.curve_of(table)


def _sampled_curve() -> Sample:
    """Eight rows of an integer softmax whose exponentials halve every 63 distances."""
    distances = np.arange(256)
    table = ((distances % 63 - 85) ** 2 + 3770) >> distances // 63
    attrs = {"levels": 255, "zero_point": 0, "low": 0, "high": 255, "smallest": 0, "rounded": 0}
    return Sample({"x": (8, 16), "table": (256,)}, attrs, {"table": table.astype(np.uint32)})


_TABLE_SOFTMAX = rows.TABLE_SOFTMAX.kernel("table_softmax", "portable/table_softmax.c", macros=_declare_softmax)
KERNELS: tuple[Kernel, ...] = (
    _TABLE_SOFTMAX,
    _TABLE_SOFTMAX.variant(  # for memories that have no room for the table
        "curve_softmax",
        (lambda node: _declare_curve(node) is not None, "a table of exponentials that is a parabola and its halves"),
        layouts={"table": Layout(lambda table, node: rows.curve_of(table))},
        macros=lambda node: _declare_softmax(node, True),
        samples=(_sampled_curve(),),
    ),
    rows.SOFTMAX.kernel("softmax", "portable/softmax.c"),
    rows.FIXED_SOFTMAX.kernel("fixed_softmax", "portable/fixed_softmax.c"),
    rows.FIXED_L2_NORM.kernel("fixed_l2_norm", "portable/fixed_l2_norm.c"),
    rows.SHIFT_SOFTMAX.kernel("shift_softmax", "portable/shift_softmax.c"),
    rows.LAYER_NORM.kernel("integer_layer_norm", "portable/integer_norm.c", macros=_declare_norm),
    rows.RMS_NORM.kernel("integer_rms_norm", "portable/integer_norm.c", macros=_declare_norm),
    integer.FUNCTION.kernel("integer_function", "portable/integer_function.c", macros=_declare_function),
    integer.DIV.kernel("integer_div", "portable/integer_div.c"),
    norms.STANDARDISE.kernel("standardise", "portable/standardise.c", macros=_declare_standardise),
    norms.NORMALISE.kernel("normalise", "portable/normalise.c"),
    pairs.PAIRWISE.kernel("pairwise", "portable/pairwise.c", macros=_declare_pair),
    pairs.SELECT.kernel("select", "portable/select.c"),
    pairs.EXPAND.kernel("expand", "portable/copy.c"),
    integer.REQUANT_ADD.kernel("requant_add", "portable/requant_add.c", macros=_declare_sum),
    rotate.TABLE_ROTATE.kernel("rotate", "portable/rotate.c"),
    rotate.ROTATE.kernel("rotate", "portable/rotate.c"),
)
