"""Kernels of the cluster: SIMD ones for bytes, before the portable ones of the generic target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from deeploy.graph.nest import Geometry
from deeploy.operators import conv, matmul, requantise, scaled
from deeploy.target import DType, Kernel, Node, Tiling, types

from . import forms
from .element_kernels import KERNELS as ELEMENTS
from .portable import BYTES, CORES, GENERIC, also, generic
from .sum_kernels import KERNELS as SUMS

INTEGERS = types("s8", "u8", "s32")
ROWS = 4  # of a product that are computed together
FILLED = 4096  # bytes of all filters that every core copies where they are no whole words
SKEW = 4  # bytes between what two cores gather, so that equal places of a window lie in different banks
GATHERED = 48 * 1024  # bytes of the windows that eight cores gather, at most


def _no_zero_points(node: Node) -> bool:
    return int(node.attrs["a_zero_point"]) == 0 and int(node.attrs["b_zero_point"]) == 0 and not node.attrs["trans_a"]


def _is_pointwise(node: Node) -> bool:
    window = conv.window(node)
    return window.groups == 1 and (window.height, window.width) == (1, 1) and not any(window.pads)


def _depth(node: Node) -> int:
    window = conv.window(node)
    return window.channels * window.height * window.width


def _gathers(node: Node, channels: int) -> bool:
    """Whether the windows of a convolution are worth gathering, and short enough: as many as a row of the output has, up to four."""
    return conv.window(node).channels >= channels and CORES * min(ROWS, node.outputs[0].shape[2]) * _depth(node) <= GATHERED


def _gathers_some(node: Node, windows: int) -> bool:
    """Whether so many windows for every core are short enough, of one group."""
    return conv.is_dense(node) and CORES * windows * _depth(node) <= GATHERED


def _has_groups(node: Node) -> bool:
    """Several groups: a dense convolution may be told to fill up rows of its filters, which these never are."""
    return conv.window(node).groups > 1 and _gathers(node, 2)


def _pitch(geometry: Geometry) -> int:
    """Bytes of a window, filled up to whole words."""
    return -(-geometry.extents["fh"] * geometry.extents["fw"] * geometry.extents["c"] // 4) * 4


def _windows(room: int) -> Callable[[Geometry], int]:
    """Bytes in which every core gathers what the windows of at most ``room`` positions see."""
    return lambda geometry: CORES * (min(room, geometry.extents["ow"]) * _pitch(geometry) + SKEW)


def _windows_and_weights(geometry: Geometry) -> int:
    """The same of four positions, and room for filters that are filled up to whole words."""
    e, pitch = geometry.extents, _pitch(geometry)
    is_filled = pitch != e["fh"] * e["fw"] * e["c"] and pitch * e["k"] <= FILLED
    return CORES * (pitch * (ROWS + e["k"]) + SKEW) if is_filled else _windows(ROWS)(geometry)


def _gathering(room: int, fills: bool = False) -> Callable[[Node], dict[str, Any]]:
    """What the template is told of the windows: how many there is room for, and whether filters may be filled up."""
    return lambda node: {**forms.settings(node), "room": room, "most_filled": FILLED if fills else 0, "skew": SKEW}


def _macros(node: Node) -> dict[str, str]:
    """The form of the requantisation, and whether rows end within a word."""
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    depth = w.elements // w.shape[0] if node.op == "Conv" else x.shape[-1]
    return {**({"DEPTH_REST": "rest"} if depth % 4 else {}), **forms.macros(node)}


def _filling_macros(node: Node) -> dict[str, str]:
    """The same where a copy of the filters is filled up."""
    w = node.inputs[1]
    assert w is not None
    is_filled = -(-(w.elements // w.shape[0]) // 4) * 4 * w.shape[0] <= FILLED
    return forms.macros(node) if is_filled else _macros(node)


_DOT = generic("conv2d_dot_grouped")
_CONV_GROUPED = replace(
    _DOT,
    name="pulp_conv2d_grouped",
    types={"x": BYTES, "w": types("s8"), "y": INTEGERS, "bias": types("s32")},
    accepts=also(generic("conv2d_grouped"), _has_groups, "groups of several input channels, short windows"),
    layouts={**_DOT.layouts, **forms.PER_CHANNEL},
    macros=_macros,
    scratch={"windows": _windows(ROWS)},
    source="pulp/pulp_conv2d.c",
    template="pulp_conv2d.mako",
    settings=_gathering(ROWS),
)
_CONV_SMALL = replace(
    _CONV_GROUPED,
    name="pulp_conv2d_small",
    accepts=also(generic("conv2d_grouped"), lambda node: conv.is_dense(node) and _gathers(node, 1), "one group, short windows"),
    tiling=Tiling(whole=("c", "fh", "fw"), multiple={"k": 4 * CORES}),
    scratch={"windows": _windows_and_weights},
    macros=_filling_macros,
    settings=_gathering(ROWS, fills=True),
    cores=("oh", "ow", "k"),
)
_CONV = replace(
    _CONV_SMALL,
    name="pulp_conv2d",
    accepts=also(_CONV_SMALL, lambda node: max(node.outputs[0].shape[1:3]) >= CORES, "rows or columns for every core"),
    tiling=Tiling(whole=("c", "fh", "fw"), multiple={"k": 4}),
    cores=("oh", "ow"),  # cores that shared the filters would all gather all windows
)
_CONV_PAIRS = replace(
    _CONV_SMALL,
    name="pulp_conv2d_pairs",
    accepts=also(generic("conv2d_grouped"), lambda node: _gathers_some(node, 2), "one group, windows of which two for every core fit"),
    tiling=_CONV.tiling,
    scratch={"windows": _windows(2)},
    settings=_gathering(2),
    macros=_macros,
)
_CONV_SINGLE = replace(
    _CONV_PAIRS,
    name="pulp_conv2d_single",
    accepts=also(generic("conv2d_grouped"), lambda node: _gathers_some(node, 1), "one group, windows of which one for every core fits"),
    scratch={"windows": _windows(1)},
    settings=_gathering(1),
)
_POINTWISE = replace(
    _CONV_SMALL,
    name="pulp_conv2d_pointwise",
    accepts=also(generic("conv2d_grouped"), _is_pointwise, "one group, a kernel of 1x1 and no padding"),
    scratch={},
    macros=_macros,
    tiling=_CONV.tiling,
)


def _is_3x3(node: Node) -> bool:
    window = conv.window(node)
    return (window.height, window.width, *window.dilations) == (3, 3, 1, 1) and window.strides[1] in (1, 2)


def _columns(geometry: Geometry) -> int:
    """Bytes in which every core keeps columns of four channels: one word each, of all of a small image, or of some rows."""
    return CORES * 16 * min(72, (2 * geometry.extents["ow"] + 1) * geometry.extents["oh"])


_DEPTHWISE_2D = generic("depthwise2d")
_DEPTHWISE = replace(
    _DEPTHWISE_2D,
    name="pulp_depthwise",
    types={"x": BYTES, "w": types("s8"), "y": INTEGERS, "bias": types("s32")},
    accepts=also(_DEPTHWISE_2D, _is_3x3, "a kernel of 3x3 without dilation, moved by 1 or 2 along a row"),
    nest=conv.depthwise_nest_by_columns,
    layouts={"w": conv.DEPTHWISE_COLUMNS, **forms.PER_CHANNEL},
    macros=lambda node: {"STRIDE_W": str(conv.window(node).strides[1]), **forms.macros(node)},
    cores=("oh", "ow", "k"),
    scratch={"columns": _columns},
    source="pulp/pulp_depthwise.c",
    template="pulp_depthwise.mako",
    settings=forms.settings,
)
_MATMUL_DOT = generic("matmul_dot")
_MATMUL = replace(
    _MATMUL_DOT,
    name="pulp_matmul",
    tiling=Tiling(whole=("k",), multiple={"n": 4}),
    types={"a": BYTES, "b": types("s8"), "y": INTEGERS, "bias": types("s32")},
    accepts=also(_MATMUL_DOT, _no_zero_points, "zero points that are constants of the epilogue"),
    strided={"a": 1, "b": 1, "y": 1},
    layouts={**_MATMUL_DOT.layouts, **forms.PER_CHANNEL},
    macros=_macros,
    source="pulp/pulp_matmul.c",
    template="pulp_matmul.mako",
    settings=forms.settings,
)


def _turned(geometry: Geometry) -> int:
    """Bytes in which every core turns four columns into rows of whole words."""
    return CORES * ROWS * -(-geometry.extents["k"] // 4) * 4


def _varying_macros(node: Node) -> dict[str, str]:
    """A depth that may end within a word, which is seen when the code runs."""
    return {"DEPTH_REST": "rest", "DEPTH_VARIES": "varies", **forms.macros(node)}


def _has_simd(node: Node) -> bool:
    """Whether there is an inner product for the signs of both operands."""
    a, b = node.inputs[:2]
    return a is not None and b is not None and (a.dtype is b.dtype or b.dtype is DType.INT8)


_MATMUL_ANY = generic("matmul_any")
_MATMUL_ROWS = replace(
    _MATMUL,
    name="pulp_matmul_rows",
    types={**_MATMUL.types, "b": BYTES},
    nest=matmul.nest(),
    accepts=also(
        _MATMUL_ANY,
        lambda node: _no_zero_points(node) and node.attrs["trans_b"] and _has_simd(node),
        "rows of a and of a transposed b, without zero points, b signed or both unsigned",
    ),
    constants=(),
    layouts=forms.PER_CHANNEL,
    cores=("m", "n", "b0", "b1", "b2", "b3"),
    macros=_varying_macros,
)
_MATMUL_COLUMNS = replace(
    _MATMUL_ROWS,
    name="pulp_matmul_columns",
    accepts=also(
        _MATMUL_ANY,
        lambda node: _no_zero_points(node) and not node.attrs["trans_b"] and _has_simd(node),
        "rows of a and columns of b, without zero points, b signed or both unsigned",
    ),
    scratch={"turned": _turned},
    cores=("b0", "b1", "b2", "b3", "n", "m"),  # cores that share b would all turn it
    source="pulp/pulp_matmul_columns.c",
    template="pulp_matmul_columns.mako",
)


def _one_factor(node: Node) -> bool:
    return forms.of_all(node) is not None


_ADD = replace(
    generic("add"),
    name="pulp_add",
    types={"a": BYTES, "b": BYTES, "y": BYTES},
    accepts=also(generic("add"), _one_factor, "a requantisation by one multiplier, in 32 bits"),
    epilogues=(("requantise",),),
    strided={"a": 0, "b": 0, "y": 0},
    macros=lambda node: {"OPERANDS": "2", **forms.macros(node)},
    layouts=forms.IN_THE_CALL,
    source="pulp/pulp_scale.c",
    template="pulp_scale.mako",
    settings=forms.settings,
)


def _product_macros(node: Node) -> dict[str, str]:
    zeros = {"ZEROS": "zeros"} if node.attrs["a_zero_point"] or node.attrs["b_zero_point"] else {}
    return {"OPERANDS": "2", "PRODUCT": "product", **zeros, **forms.macros(node)}


_MUL = replace(
    _ADD,
    name="pulp_mul",
    op="Mul",
    nest=generic("mul").nest,
    accepts=also(generic("mul"), _one_factor, "a requantisation by one multiplier, in 32 bits"),
    macros=_product_macros,
    reference=generic("mul").reference,
)
_REQUANT_SHIFT = replace(
    generic("requant_shift"),
    name="pulp_requant_shift",
    types={**generic("requant_shift").types, "x": BYTES, "y": BYTES},
    accepts=also(generic("requant_shift"), _one_factor, "one multiplier for all, and a form of 32 bits"),
    macros=lambda node: {"OPERANDS": "1", **forms.macros(node)},
    layouts=forms.IN_THE_CALL,
    source="pulp/pulp_scale.c",
    template="pulp_scale.mako",
    settings=forms.settings,
)


def _operands_in_32_bits(node: Node) -> bool:
    """Whether both operands are requantised in 32 bits, clipped behind it."""
    found = [requantise.of_operand(node, index) for index in (0, 1)]
    return all(r.form == "narrow" and r.limit is None for r in found) and _one_factor(node)


_REQUANT_ADD = replace(
    generic("requant_add"),
    name="pulp_requant_add",
    types={"a": BYTES, "b": BYTES, "y": BYTES},
    accepts=also(generic("requant_add"), _operands_in_32_bits, "operands requantised in 32 bits, and one multiplier for the sum"),
    epilogues=(("requantise",),),
    strided={"a": 0, "b": 0, "y": 0},
    macros=lambda node: {**forms.operand_macros(node), **forms.macros(node)},
    layouts=forms.IN_THE_CALL,
    source="pulp/pulp_requant_add.c",
    template="pulp_requant_add.mako",
    settings=forms.settings,
)


_SCALED_ADD = replace(
    generic("scaled_add"),
    name="pulp_scaled_add",
    accepts=also(generic("scaled_add"), lambda node: scaled.of_node(node) is not None, "a sum that has a form in 32 bits"),
    macros=forms.sum_macros,
    source="pulp/pulp_scaled_add.c",
    template="pulp_scaled_add.mako",
)


def _one_scale(node: Node) -> bool:
    return all(t is not None and t.elements == 1 for t in node.inputs[1:3])


_QUANTIZE = replace(
    generic("quantize"),
    name="pulp_quantize",
    types={**generic("quantize").types, "y": BYTES},
    accepts=also(generic("quantize"), _one_scale, "one scale and zero point for all"),
    source="pulp/pulp_quantize.c",
    template="pulp_quantize.mako",
)
_DEQUANTIZE = replace(
    generic("dequantize"),
    name="pulp_dequantize",
    types={**generic("dequantize").types, "x": BYTES},
    accepts=also(generic("dequantize"), _one_scale, "one scale and zero point for all"),
    source="pulp/pulp_dequantize.c",
    template="pulp_dequantize.mako",
)
_MAX_POOL = replace(
    generic("maxpool2d"),
    name="pulp_maxpool2d",
    types={"x": BYTES, "y": BYTES},
    cores=("oh", "ow", "c"),
    source="pulp/pulp_maxpool2d.c",
    struct="maxpool2d",
)


def _few_taps(node: Node) -> bool:
    """Whether the rest of a sum, with 17 bits behind it, fits 32 bits."""
    height, width = node.attrs["kernel"]
    return bool(height * width < 2**15)


_AVERAGE_POOL = replace(
    generic("average_pool2d"),
    name="pulp_average_pool2d",
    accepts=also(generic("average_pool2d"), _few_taps, "windows of less than 2^15 taps"),
    cores=("oh", "ow", "c"),
    macros=forms.macros,
    layouts=forms.PER_CHANNEL,
    source="pulp/pulp_average_pool2d.c",
    template="pulp_average_pool2d.mako",
    settings=forms.settings,
)

KERNELS: tuple[Kernel, ...] = (
    _DEPTHWISE,
    _POINTWISE,
    _CONV,
    _CONV_SMALL,
    _CONV_PAIRS,
    _CONV_SINGLE,
    _CONV_GROUPED,
    _MATMUL,
    _MATMUL_ROWS,
    _MATMUL_COLUMNS,
    _ADD,
    _MUL,
    _REQUANT_SHIFT,
    _REQUANT_ADD,
    _SCALED_ADD,
    _QUANTIZE,
    _DEQUANTIZE,
    _MAX_POOL,
    _AVERAGE_POOL,
    *SUMS,
    *ELEMENTS,
    *GENERIC,
)
