"""Kernels of the cluster that work on each element or on rows of them, that add partial sums, or take steps over windows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from deeploy.operators import elementwise as ew
from deeploy.operators import reduce, requantise, rotate, rows, scaled, staircase
from deeploy.operators.accumulate import on_floats
from deeploy.operators.fused_kernels import fuse_kernels
from deeploy.operators.pairs import COMPARISONS
from deeploy.target import BYTES, FLOAT, DType, Kernel, Need, Nest, Node, types, variant

from . import forms
from .depthwise_kernels import CORES, GENERIC

WORD = 4
ONE_BYTE = BYTES | types("bool")
MANY_TAPS = 6  # of maxima, from which on loops without branches gain more than they take to begin
AXES = 3  # of a sum, that the C loops have
FEW_ROWS = (*(f"d{axis}" for axis in range(ew.AXES - 1)), "k")  # what divides rows, or columns of few
ONE_FACTOR: Need = (lambda node: forms.of_all(node) is not None, "a requantisation by one multiplier, in 32 bits")
ONE_SCALE: Need = (lambda node: all(t is not None and t.elements == 1 for t in node.inputs[1:3]), "one scale and zero point for all")


def _moves_words(node: Node) -> bool:
    """Whether elements of at most a word keep their bits."""
    x, y = node.inputs[0], node.outputs[0]
    return x is not None and x.dtype is y.dtype and x.dtype.bytes <= WORD


def _few_rows(*per_element: str) -> Callable[[Node], Nest]:
    """The nest of an operator along rows: of fewer than there are cores, columns may be divided, too."""
    by_row, by_column = rows.nest(*per_element), rows.column_nest(*per_element)

    def declare(node: Node) -> Nest:
        x = node.inputs[0]
        assert x is not None
        return (by_column if math.prod(x.shape[:-1]) < CORES else by_row)(node)

    return declare


def _largest_sum(node: Node) -> int:
    table = node.inputs[1]
    assert table is not None and table.data is not None
    return int(table.data.max(initial=0))


def _largest_numerator(node: Node) -> int:
    """The largest numerator of a softmax's quotients."""
    return _largest_sum(node) * int(node.attrs["levels"])


def _softmax_macros(node: Node) -> dict[str, str]:
    """How quotients are made, and whether they may leave the limits."""
    attrs = node.attrs
    low, high = attrs["zero_point"], attrs["zero_point"] + attrs["levels"]
    length = (2 * _largest_sum(node) * rows.columns(node)).bit_length()
    is_rounded = bool(attrs.get("rounded", True))
    return {
        "ROUNDED": variant("rounded", is_rounded),
        "CORRECTED": variant("corrected", not is_rounded and _largest_numerator(node).bit_length() + 2 * length >= 64),
        "CLIPPED": variant("clipped", low < attrs["low"] or high > attrs["high"]),
    }


def _short_products(node: Node) -> bool:
    """Whether the squares of a row fit 32 bits, and the products of its elements and weights 29."""
    weight = node.inputs[1]
    if weight is None or weight.data is None or rows.norm_types(node) != ("int32_t", "int32_t"):
        return False
    distance = 255 if node.op == "IntegerLayerNorm" else 128  # of bytes from their mean, of signed ones from zero
    return int(np.abs(weight.data.astype(np.int64)).max(initial=0)) * distance < 2**29


def _short_rows(node: Node) -> bool:
    """Whether standardised values have at most 29 bits and a sign: none exceeds the root of the columns, or 1 where the mean stays."""
    most = rows.columns(node) if node.attrs["centred"] else 1
    return bool(most << 2 * node.attrs["fraction"] <= 2**58)


def _product_macros(node: Node) -> dict[str, str]:
    has_zeros = bool(node.attrs["a_zero_point"] or node.attrs["b_zero_point"])
    return {**_sum_macros(node), "PRODUCT": variant("product", True), "ZERO_POINTS": variant("zeros", has_zeros)}


def _sum_macros(node: Node) -> dict[str, str]:
    return {"OPERANDS": "2", "PRODUCT": variant("", False), "ZERO_POINTS": variant("", False), **forms.macros(node)}


def _operands_in_32_bits(node: Node) -> bool:
    """Whether both operands are requantised in 32 bits, clipped behind it."""
    operand_forms = [staircase.of_operand(node, index) for index in (0, 1)]
    return all(r.form == "narrow" and r.limit is None for r in operand_forms) and forms.of_all(node) is not None


def _few_taps(node: Node) -> bool:
    """Whether the rest of a sum, with 17 bits behind it, fits 32 bits."""
    height, width = node.attrs["kernel"]
    return bool(height * width < 2**15)


def _mean_macros(node: Node) -> dict[str, str]:
    """Whether all means are of one power of two of taps, few enough for sums with 16 bits behind the point in 32 bits."""
    taps, attrs = math.prod(node.attrs["kernel"]), node.attrs
    is_whole = bool(attrs["count_include_pad"]) or not any(attrs["pads"])
    return {**forms.macros(node), "IS_POWER": variant("power", is_whole and 1 < taps <= 64 and taps & (taps - 1) == 0)}


def _term_macros(node: Node) -> bool:
    """Whether there are two terms or more of 32 bits, and few axes of results."""
    x = node.inputs[0]
    return x is not None and x.dtype is DType.INT32 and x.shape[0] > 1 and sum(size > 1 for size in x.shape[1:]) <= AXES


def _has_form(node: Node) -> bool:
    form = requantise.of_node(node)
    return form is not None and form.form != "wide"


def _adds_terms(node: Node) -> bool:
    """Whether the terms lie along the first axis, and their sum is requantised in 32 bits, or kept."""
    if node.attrs["axes"] != (0,) or not _term_macros(node):
        return False
    return _has_form(node) if node.epilogue else node.outputs[0].dtype not in BYTES


def _join_macros(node: Node) -> bool:
    form = scaled.of_node(node) if _term_macros(node) and _has_form(node) else None
    return form is not None and form.form == "narrow"


def _rotation_macros(node: Node) -> dict[str, str]:
    """The forms of a rotation's products and of their sum, and which limits are those of a type."""
    words = rotate.in_words(node)
    assert words is not None
    by_cosine, by_sine, summed = words
    held = {
        **{"cosine_narrow": by_cosine.form == "narrow", "sine_narrow": by_sine.form == "narrow"},
        **{"cosine_clipped": by_cosine.limit is not None, "sine_clipped": by_sine.limit is not None},
        "products_whole": all(node.attrs[name][5:7] == (-128, 127) for name in ("cosine", "sine")),
    }
    whole = variant("whole", node.attrs["sum"][4:6] == tuple(node.outputs[0].dtype.range))
    variants = {word.upper(): variant(word, holds) for word, holds in held.items()}
    return {**variants, "CLIP_WHOLE": whole, "SUM_HALVES": variant("sum_halves", summed.form == "halves")}


def _divides_in_words(node: Node) -> bool:
    """Whether numerators, of at most 511 steps, have room in a word where they are shifted up, and the factor has 31 bits."""
    return 0 <= node.attrs["mul"] < 2**31 and 11 <= node.attrs["shift"] < 64 and abs(int(node.attrs["a_zero_point"])) <= 256


def _pairs_bytes(node: Node) -> bool:
    """Whether there is an instruction for four bytes."""
    return node.attrs["function"] in (*COMPARISONS, "max", "min", "bit_and", "bit_or", "bit_xor")


def _declare_reduction(name: str, reduction: str) -> Kernel:
    """A sum, mean, maximum or minimum of bytes."""

    def macros(node: Node) -> dict[str, str]:
        x = node.inputs[0]
        assert x is not None
        columns = variant("columns", len(x.shape) - 1 not in node.attrs["axes"])
        return {"REDUCTION": reduction, "COLUMNS": columns, **forms.macros(node)}

    return GENERIC.kernel(name).variant(
        f"pulp_{name}",
        source="pulp/pulp_reduce.c",
        types={"x": BYTES, "y": types("s8", "u8", "s32")},
        epilogues=((), ("requantise",), ("requantise", "lookup")),
        strided={"x": 1, "y": 0},
        macros=macros,
        layouts=forms.PER_CHANNEL,
        settings=lambda node: {**forms.settings(node), "is_shifted": reduction == "MEAN" and reduce.is_shifted_mean(node)},
    )


def _of_bytes(name: str, *operands: str) -> Kernel:
    """A portable kernel on bytes, requantised behind it by constants in the call."""
    kernel = GENERIC.kernel(name)
    return kernel.variant(
        f"pulp_{name}",
        types=dict.fromkeys((*operands, "y"), BYTES),
        strided=dict.fromkeys((*kernel.strided, "y"), 0),
        epilogues=kernel.epilogues if kernel.epilogues == ((),) else (("requantise",), ("requantise", "lookup")),
        layouts=forms.IN_THE_CALL,
        settings=forms.settings,
    )


def _norm_macros(name: str, accepted: frozenset[DType], *per_element: str) -> Kernel:
    return GENERIC.kernel(f"integer_{name}_norm").variant(
        f"pulp_{name}_norm",
        (_short_products, "constant weights, sums of 32 bits and products of 29"),
        source="pulp/pulp_integer_norm.c",
        types={"x": accepted},
        nest=_few_rows(*per_element),
        cores=FEW_ROWS,
    )


SUMS_OF_TWO: tuple[Kernel, ...] = (
    _of_bytes("add", "a", "b").variant("pulp_add", ONE_FACTOR, source="pulp/pulp_scale.c", macros=_sum_macros),
    _of_bytes("requant_add", "a", "b").variant(
        "pulp_requant_add",
        (_operands_in_32_bits, "operands requantised in 32 bits, and one multiplier for the sum"),
        source="pulp/pulp_requant_add.c",
        macros=lambda node: {**forms.operand_macros(node), **forms.macros(node)},
    ),
    GENERIC.kernel("scaled_sum").variant("pulp_scaled_add", source="pulp/pulp_scaled_add.c", struct="scaled_sum", macros=forms.sum_macros),
)
NORMS: tuple[Kernel, ...] = (
    GENERIC.kernel("standardise").variant(
        "pulp_standardise",
        (_short_rows, "values of at most 29 bits"),
        source="pulp/pulp_standardise.c",
        nest=_few_rows(),
        cores=FEW_ROWS,
        layouts=forms.PER_CHANNEL,
        macros=lambda node: {"CENTRED": variant("centred", bool(node.attrs["centred"])), **forms.macros(node)},
        settings=forms.settings,
    ),
    _norm_macros("layer", BYTES, "weight", "bias"),
    _norm_macros("rms", types("s8"), "weight"),
)
KERNELS: tuple[Kernel, ...] = (
    *SUMS_OF_TWO,
    _of_bytes("mul", "a", "b").variant("pulp_mul", ONE_FACTOR, source="pulp/pulp_scale.c", macros=_product_macros),
    _of_bytes("requant_shift", "x").variant(
        "pulp_requant_shift",
        ONE_FACTOR,
        source="pulp/pulp_requant_shift.c",
        struct="pulp_scale",
        macros=lambda node: {"OPERANDS": "1", **forms.macros(node)},
    ),
    GENERIC.kernel("quantize").variant("pulp_quantize", ONE_SCALE, source="pulp/pulp_quantize.c", types={"y": BYTES}),
    GENERIC.kernel("dequantize").variant("pulp_dequantize", ONE_SCALE, source="pulp/pulp_dequantize.c", types={"x": BYTES}),
    GENERIC.kernel("maxpool2d").variant(
        "pulp_maxpool2d", source="pulp/pulp_maxpool2d.c", struct="maxpool2d", types={"x": BYTES, "y": BYTES}, cores=("oh", "ow", "c")
    ),
    GENERIC.kernel("maxpool2d").variant(
        "pulp_maxpool2d_floats",
        (lambda node: math.prod(node.attrs["kernel"]) >= MANY_TAPS, f"windows of {MANY_TAPS} taps or more"),
        source="pulp/pulp_maxpool2d_floats.c",
        struct="maxpool2d",
        types={"x": FLOAT, "y": FLOAT},
    ),
    on_floats(GENERIC.kernel("average_pool2d")).variant(
        "pulp_average_floats", source="pulp/pulp_average_floats.c", struct="average_pool2d"
    ),
    GENERIC.kernel("average_pool2d").variant(
        "pulp_average_pool2d",
        (_few_taps, "windows of less than 2^15 taps"),
        source="pulp/pulp_average_pool2d.c",
        data_dependent="",
        cores=("oh", "ow", "c"),
        macros=_mean_macros,
        layouts=forms.PER_CHANNEL,
        settings=forms.settings,
    ),
    GENERIC.kernel("reduce_sum").variant(
        "pulp_sum",
        (_adds_terms, "terms of 32 bits along the first axis, and a requantisation of 32 bits"),
        source="pulp/pulp_sum.c",
        types={"x": types("s32"), "y": types("s8", "u8", "s32")},
        epilogues=((), ("requantise",), ("bias", "requantise")),
        macros=forms.macros,
        layouts=forms.WITHOUT_BIAS,
        settings=forms.settings,
    ),
    *(
        _declare_reduction(*each)
        for each in (("reduce_sum", "SUM"), ("reduce_max", "MAX"), ("reduce_min", "MIN"), ("integer_mean", "MEAN"))
    ),
    GENERIC.kernel("pairwise").variant(
        "pulp_pairwise",
        (_pairs_bytes, "a function of bytes that has an instruction"),
        source="pulp/pulp_pairwise.c",
        data_dependent="",
        struct="pairwise",
        types=dict.fromkeys(("a", "b", "y"), ONE_BYTE),
    ),
    GENERIC.kernel("select").variant(
        "pulp_select", source="pulp/pulp_select.c", struct="select", types=dict.fromkeys(("a", "b", "y"), ONE_BYTE)
    ),
    GENERIC.kernel("scaled_div").variant(
        "pulp_scaled_div",
        (_divides_in_words, "a factor of 31 bits, and a shift by 11 to 63"),
        source="pulp/pulp_scaled_div.c",
        settings=lambda node: {"left": max(33 - node.attrs["shift"], 0), "right": max(node.attrs["shift"] - 33, 0)},
    ),
    GENERIC.kernel("residual_sum").variant(
        "pulp_residual_sum",
        (_join_macros, "two terms or more, few axes, constant factors, and both stages in 32 bits"),
        source="pulp/pulp_residual_sum.c",
        overwrites=(),  # elements may be computed twice
        macros=forms.residual_macros,
        layouts=forms.WITHOUT_BIAS,
        settings=forms.settings,
    ),
    *(
        GENERIC.kernel(name).variant(
            f"pulp_{name}", (_moves_words, "y of the type of x, of at most 4 bytes"), source="pulp/pulp_copy.c", struct="copy"
        )
        for name in ("copy", "expand")
    ),
    GENERIC.kernel("lookup").variant("pulp_lookup", source="pulp/pulp_lookup.c", struct="lookup", types={"table": BYTES, "y": BYTES}),
    GENERIC.kernel("table_softmax").variant(
        "pulp_softmax",
        (lambda node: not rows.softmax_is_wide(node), "sums of 32 bits"),
        source="pulp/pulp_softmax.c",
        nest=_few_rows(),
        cores=FEW_ROWS,
        macros=_softmax_macros,
        settings=lambda node: {"bits": _largest_numerator(node).bit_length()},
    ),
    GENERIC.kernel("rotate").variant(
        "pulp_rotate",
        (lambda node: rotate.in_words(node) is not None, "products and sums that have a form in 32 bits"),
        source="pulp/pulp_rotate.c",
        macros=_rotation_macros,
    ),
    *NORMS,
    *(fuse_kernels(first, second) for first in SUMS_OF_TWO for second in NORMS),
)
