"""Kernels of the cluster that multiply: SIMD ones for bytes, as variants of the portable ones of the generic target."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from deeploy.operators import conv, matmul
from deeploy.target import BYTES, SUMS, Count, DType, Kernel, Layout, Need, Node, Sample, Scratch, Tiling, accumulated, types, variant

from . import forms
from .depthwise_kernels import CORES, GENERIC, INTEGERS, LINES

ROWS = 4  # of a product that are computed together
FILLED = 4096  # bytes of all filters that every core copies where they are no whole words
SKEW = 4  # bytes between what two cores gather, so that equal places of a window lie in different banks
SIMD = "without zero points, b signed or both unsigned"
SIMD_WITH_ZEROS = "zero points, b signed or both unsigned"
MOST_PACKED = 2**16  # products of a byte and few bits, 2^7 at most when shifted up, whose sum fits into 32 bits
COLUMNS = 128  # of four channels under four rows of an image, which a core keeps at most
TURNED = 1024  # bytes of the columns that a core turns together, where these are more than four
GATHERED = 48 * 1024  # bytes of the windows that eight cores gather, at most
PATCH = 2048  # bytes of an image, with what is around it, that a core copies together where it may copy more than a few positions see
WINDOWS = 1536  # bytes of windows that a core gathers together where it may gather more than a few


def _has_zero_points(node: Node) -> bool:
    return int(node.attrs["a_zero_point"]) != 0 or int(node.attrs["b_zero_point"]) != 0


def _no_zero_points(node: Node) -> bool:
    return not _has_zero_points(node) and not node.attrs["trans_a"]


def _is_pointwise(node: Node) -> bool:
    window = conv.window(node)
    return window.groups == 1 and (window.height, window.width) == (1, 1) and not any(window.pads)


def _filled_depth(node: Node) -> int:
    window = conv.window(node)
    return window.channels * window.height * window.width


def _can_gather(node: Node, windows: int) -> bool:
    """Whether so many windows for every core are short enough."""
    return CORES * windows * _filled_depth(node) <= GATHERED


def _gathers_row(node: Node) -> bool:
    """The same of as many windows as a row of the output has, up to four."""
    return _can_gather(node, min(ROWS, node.outputs[0].shape[2]))


def _pitch(node: Node) -> int:
    """Bytes of a window, filled up to whole words."""
    return -(-_filled_depth(node) // 4) * 4


def _is_filled(node: Node) -> bool:
    """Whether every core copies the filters of gathered windows, filled up to whole words."""
    return _pitch(node) != _filled_depth(node) and _pitch(node) * node.outputs[0].shape[-1] <= FILLED


def _has_runs(node: Node) -> bool:
    """Whether rows of taps are dense runs of whole words, which products read in an image."""
    window = conv.window(node)
    return window.channels % 4 == 0 and window.dilations[1] == 1


def _whole_words(count: Count) -> Count:
    return (count + 3) // 4 * 4 + SKEW


def _patch_scratch(room: int) -> Scratch:
    """Where every core copies a part of an image: what ``room`` positions side by side see, or more where it is short."""

    def size(node: Node, tile: Mapping[str, Count]) -> Count:
        w = conv.window(node)
        tall, broad = ((taps - 1) * step + 1 for taps, step in zip((w.height, w.width), w.dilations, strict=True))

        def seen(oh: Count, ow: Count) -> Count:
            return ((oh - 1) * w.strides[0] + tall) * ((ow - 1) * w.strides[1] + broad) * tile["c"]

        few = seen(1, np.minimum(room, tile["ow"]))
        return _whole_words(np.minimum(seen(tile["oh"], tile["ow"]), np.maximum(few, PATCH if room == ROWS else 0)))

    return Scratch(size, CORES)


def _slots(node: Node, room: int) -> int:
    """Windows that a core gathers together."""
    return max(room, WINDOWS // _pitch(node) // ROWS * ROWS) if room == ROWS else room


def _window_scratch(room: int, is_used: Callable[[Node], bool] = lambda node: not _has_runs(node)) -> Scratch:
    """What every core gathers windows in."""

    def size(node: Node, tile: Mapping[str, Count]) -> Count:
        return np.minimum(_slots(node, room), tile["oh"] * tile["ow"]) * _pitch(node) + SKEW if is_used(node) else 0

    return Scratch(size, CORES)


FILLED_UP = Scratch(lambda node, tile: _pitch(node) * tile["k"] + SKEW if _is_filled(node) else 0, CORES)


def _gathering_settings(room: int, fills: bool = False, bits: int = 8) -> Callable[[Node], dict[str, Any]]:
    """What the template is told of windows: how many are gathered together, how long they are, and of how many bits elements of the
    filters are.
    """

    def settings(node: Node) -> dict[str, Any]:
        row = _pitch(node) if fills and _is_filled(node) else _filled_depth(node)
        return {**forms.settings(node), "slots": _slots(node, room), "pitch": _pitch(node), "row": row, "w_row": row * bits // 8}

    return settings


_VARIANTS = {  # of products, and what instances of them are called by; ``pulp_product.h`` says what they are
    **{"ZEROS": "zeros", "RUNS": "runs", "GATHERED": "gathered", "FILLED": "filled"},
    **{"DEPTH_REST": "rest", "DEPTH_VARIES": "varies"},
}


def _product_macros(node: Node, *held: str) -> dict[str, str]:
    """Which variants of a product hold, and the form of the requantisation."""
    return {**{name: variant(word, word in held) for name, word in _VARIANTS.items()}, **forms.macros(node)}


def _pixel_macros(node: Node, *held: str) -> dict[str, str]:
    """The same with rows that may end within a word."""
    return _product_macros(node, *held, "rest" if _filled_depth(node) % 4 else "")


def _window_macros(node: Node) -> dict[str, str]:
    """How windows are read."""
    return _product_macros(node, "runs") if _has_runs(node) else _pixel_macros(node, "gathered")


def _filling_macros(node: Node) -> dict[str, str]:
    """The same where a copy of the filters is filled up."""
    return _product_macros(node, "gathered", "filled") if _is_filled(node) else _window_macros(node)


def _row_macros(node: Node) -> dict[str, str]:
    x = node.inputs[0]
    assert x is not None
    return _product_macros(node, "rest" if x.shape[-1] % 4 else "")


_FOUR = Tiling(whole=("c", "fh", "fw"), multiple={"k": 4})
_REQUIRES = conv.CONV.usual["requires"]
_GROUPED = GENERIC.kernel("conv2d_dot_grouped").variant(
    "pulp_conv2d_grouped",
    # A dense convolution may be told to fill up rows of its filters, which several groups never are.
    (
        lambda node: not conv.is_dense(node) and conv.window(node).channels > 1 and _gathers_row(node),
        "groups of several input channels, short windows",
    ),
    requires=_REQUIRES,
    source="pulp/pulp_conv2d.c",
    types={"x": BYTES, "w": types("s8"), "y": INTEGERS},
    layouts=forms.PER_CHANNEL,
    macros=_window_macros,
    scratch={"patch": _patch_scratch(ROWS), "windows": _window_scratch(ROWS)},
    settings=_gathering_settings(ROWS),
)
_SHARED = _GROUPED.variant("pulp_conv2d_dense", requires=_REQUIRES, tiling=_FOUR, cores=("oh", "ow", "k"))
_SMALL = _SHARED.variant(
    "pulp_conv2d_small",
    (lambda node: conv.is_dense(node) and _gathers_row(node), "one group, short windows"),
    tiling=Tiling(whole=_FOUR.whole, multiple={"k": 4 * CORES}),
    scratch={**_SHARED.scratch, "filled": FILLED_UP},
    macros=_filling_macros,
    settings=_gathering_settings(ROWS, fills=True),
)


def _is_run(node: Node) -> bool:
    """Whether windows are runs of whole words of a line, and read nothing outside of it."""
    w, x = conv.window(node), node.operands[0]
    is_dense = conv.is_dense(node) and (w.dilations[1] == 1 or w.width == 1) and _filled_depth(node) % 4 == 0
    return is_dense and (w.height, *x.shape[:2]) == (1, 1, 1) and not any(w.pads)


def _few_windows(name: str, room: int, words: str) -> Kernel:
    """A convolution that computes so many positions together."""
    return _SHARED.variant(
        name,
        (lambda node: conv.is_dense(node) and _can_gather(node, room), f"one group, windows of which {words}"),
        scratch={"patch": _patch_scratch(room), "windows": _window_scratch(room)},
        settings=_gathering_settings(room),
    )


def _is_3x3(node: Node) -> bool:
    window = conv.window(node)
    return (window.height, window.width, *window.dilations) == (3, 3, 1, 1) and max(window.strides) <= 2


def _column_scratch(node: Node, tile: Mapping[str, Count]) -> Count:
    """Bytes in which a core keeps columns of four channels under pairs of rows: all of a small image, or some pairs."""
    high, wide = conv.window(node).strides
    return 16 * high * np.minimum(COLUMNS // high, ((tile["ow"] - 1) * wide + 3) * (-(-tile["oh"] // 2)))


def _turned_scratch(node: Node, tile: Mapping[str, Count]) -> Count:
    """Bytes in which a core turns columns, at least four, into rows of whole words."""
    pitch = -(-tile["k"] // 4) * 4
    return pitch * np.clip(-(-tile["n"] // 4), 1, np.maximum(1, TURNED // pitch // 4)) * 4


def _varying_macros(node: Node, *held: str) -> dict[str, str]:
    """A depth that may end within a word, which is seen when the code runs."""
    return _product_macros(node, *held, "rest", "varies")


def _group_size(bits: int) -> int:
    """How many elements of so many bits are whole words, each of whose bytes holds whole elements of its lane."""
    return 4 * math.lcm(8, bits) // bits


def _in_words(kernel: Kernel, name: str, operand: str, bits: int) -> Kernel:
    """A kernel on a constant of so many bits, in words whose bytes are lanes of elements."""
    layout, group = kernel.layouts.get(operand, Layout(lambda array, node: array)), _group_size(bits)

    def has_whole_words(node: Node) -> bool:
        """Whether rows end with a word of elements, and what accumulators hold fits into 32 bits."""
        w = node.inputs[1]
        depth = 0 if w is None else w.elements // node.outputs[0].shape[-1]
        return depth % group == 0 and depth <= MOST_PACKED

    needs: Need = (has_whole_words, f"rows of whole words, of {group} elements")
    return kernel.variant(name, needs, types={operand: types(f"s{bits}", f"u{bits}")}, layouts={operand: replace(layout, lanes=4)})


def _sum_scratch(dim: str) -> Scratch:
    """What every core adds up the rows of a in, or the columns of b."""
    return Scratch(lambda node, tile: 4 * tile[dim], CORES)


def _is_product(is_transposed: bool, has_zeros: bool) -> Callable[[Node], bool]:
    """Whether b lies so, operands have zero points, and there is an inner product for the signs of both."""

    def holds(node: Node) -> bool:
        a, b = node.inputs[:2]
        has_simd = a is not None and b is not None and (a.dtype is b.dtype or b.dtype is DType.INT8)
        lies_so = not node.attrs["trans_a"] and bool(node.attrs["trans_b"]) is is_transposed
        return has_simd and lies_so and _has_zero_points(node) is has_zeros

    return holds


_ROWS_OF_BOTH = "rows of a and of a transposed b"
_ROWS_AND_COLUMNS = "rows of a and columns of b"
_MATMUL_ANY = GENERIC.kernel("matmul_any")
_MATMUL_ROWS = _MATMUL_ANY.variant(
    "pulp_matmul_rows",
    (_is_product(True, False), f"{_ROWS_OF_BOTH}, {SIMD}"),
    source="pulp/pulp_matmul.c",
    types={"a": BYTES, "b": BYTES, "y": INTEGERS},
    tiling=Tiling(whole=("k",), multiple={"n": 4}),
    strided={"a": 1, "b": 1, "y": 1},
    layouts=forms.PER_CHANNEL,
    settings=forms.settings,
    macros=_varying_macros,
    cores=("m", "n", "b0", "b1", "b2", "b3"),
)
_MATMUL_COLUMNS = _MATMUL_ROWS.variant(
    "pulp_matmul_columns",
    requires=_MATMUL_ANY.requires,
    needs=(_is_product(False, False), f"{_ROWS_AND_COLUMNS}, {SIMD}"),
    source="pulp/pulp_matmul_columns.c",
    scratch={"turned": Scratch(_turned_scratch, CORES)},
    cores=("b0", "b1", "b2", "b3", "n", "m"),  # cores that share b would all turn it
)


def _with_zeros(kernel: Kernel, is_transposed: bool) -> Kernel:
    """The same for operands with zero points: sums of rows and columns correct the products of bytes."""
    return kernel.variant(
        f"{kernel.name}_zeros",
        requires=_MATMUL_ANY.requires,
        needs=(_is_product(is_transposed, True), f"{_ROWS_OF_BOTH if is_transposed else _ROWS_AND_COLUMNS}, {SIMD_WITH_ZEROS}"),
        macros=lambda node: _varying_macros(node, "zeros"),
        scratch={**kernel.scratch, "row_sums": _sum_scratch("m"), "column_sums": _sum_scratch("n")},
        cores=_MATMUL_COLUMNS.cores,  # cores that share b would all add it up
    )


_MATMUL = GENERIC.kernel("matmul_dot").variant(
    "pulp_matmul",
    (_no_zero_points, "zero points that are constants of the epilogue"),
    source="pulp/pulp_matmul.c",
    types={"a": BYTES, "b": types("s8"), "y": INTEGERS},
    tiling=_MATMUL_ROWS.tiling,
    strided={"a": 1, "b": 1, "y": 1},
    layouts=forms.PER_CHANNEL,
    settings=forms.settings,
    macros=_row_macros,
)


def _accumulator_scratch(*dims: str) -> Scratch:
    """The sums of a tile's outputs."""
    return Scratch(lambda node, tile: 4 * math.prod(tile[dim] for dim in dims))


def _has_one(node: Node) -> bool:
    """Whether there is one image, or one product of matrices."""
    y = node.outputs[0]
    return math.prod(y.shape[:-3] if node.op == "Conv" else y.shape[:-2]) == 1


# Products that are cut along their reductions, for those of which four rows of weights leave little room in L1.
_MATMUL_SUMS = _MATMUL.variant(
    "pulp_matmul_sums",
    (_has_one, "one product of matrices"),
    source="pulp/pulp_matmul_sums.c",
    nest=accumulated(matmul.nest("rows"), "k"),
    tiling=Tiling(multiple={"n": 4, "k": 4}),
    scratch={SUMS: _accumulator_scratch("m", "n")},
    macros=lambda node: _varying_macros(node) if _row_macros(node)["DEPTH_REST"] else _product_macros(node),
    cores=("m", "n"),
)
_POINTWISE_SUMS = _SHARED.variant(
    "pulp_conv2d_pointwise_sums",
    (lambda node: _is_pointwise(node) and _has_one(node) and _filled_depth(node) % 4 == 0, "one image, a kernel of 1x1, whole words"),
    source="pulp/pulp_conv2d_sums.c",
    nest=accumulated(conv.OUTPUTS_FIRST["nest"], "c"),
    tiling=Tiling(whole=("fh", "fw"), multiple={"k": 4, "c": 4}),
    scratch={SUMS: _accumulator_scratch("oh", "ow", "k")},
    settings=forms.settings,
    macros=_product_macros,
)
_CONVOLUTION_SUMS = _POINTWISE_SUMS.variant(
    "pulp_conv2d_sums",
    requires=_REQUIRES,
    needs=(
        lambda node: conv.is_dense(node) and _has_one(node) and _has_runs(node) and not _is_pointwise(node),
        "one image, one group, channels of whole words, no dilation along rows",
    ),
    scratch={SUMS: _accumulator_scratch("oh", "ow", "k"), "patch": _patch_scratch(1)},
    macros=_window_macros,
)


_WHOLE_WORDS = Sample({"a": (5, 96), "b": (96, 9)}, {"a_zero_point": 0, "b_zero_point": 0, "trans_a": False, "trans_b": False})


def _declare_packed(bits: int) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...]]:
    """Products and convolutions with weights of so many bits."""
    suffix = "_packed" if bits == 4 else f"_packed_{bits}"
    product = _MATMUL.variant(
        "product",
        (lambda node: node.inputs[1] is not None and len(node.inputs[1].shape) == 2, "one matrix b"),
        source="pulp/pulp_matmul_packed.c",
        struct="pulp_matmul",
        samples=(_WHOLE_WORDS,),
        **matmul.PACKED_ROWS,
    )
    convolution = _in_words(
        _few_windows("packed", 2, "two for every core fit").variant(
            "packed",
            source="pulp/pulp_conv2d_packed.c",
            struct="pulp_conv2d",
            **conv.PACKED_FILTERS,
            settings=_gathering_settings(2, bits=bits),
            scratch={"patch": _patch_scratch(2), "windows": _window_scratch(2, lambda node: True)},
            macros=lambda node: _product_macros(node, "gathered"),
        ),
        f"pulp_conv2d{suffix}",
        "w",
        bits,
    )
    pointwise = convolution.variant(
        f"pulp_conv2d_pointwise{suffix}",
        (_is_pointwise, "a kernel of 1x1 and no padding"),
        scratch={},
        settings=_gathering_settings(2, bits=bits),
        macros=_product_macros,
    )
    of_blocks = GENERIC.kernel("block_matmul_packed").variant(
        "blocks",
        (lambda node: node.attrs["size"] % _group_size(bits) == 0, f"blocks of a multiple of {_group_size(bits)} elements"),
        source="pulp/pulp_block_matmul.c",
        struct="block_matmul",
        types={"a": BYTES},
        tiling=_MATMUL_ROWS.tiling,
        macros=None,
    )
    return (
        (_in_words(product, f"pulp_matmul{suffix}", "b", bits), _in_words(of_blocks, f"pulp_block_matmul{suffix}", "b", bits)),
        (pointwise, convolution),
    )


_FIRST = tuple(kernel for bits in (2, 4) for kernel in _declare_packed(bits)[0])
_OFFERED = tuple(kernel for bits in (1, 3, 5, 6, 7) for kernel in _declare_packed(bits)[0])
_CONVOLUTIONS = tuple(kernel for bits in range(1, 8) for kernel in _declare_packed(bits)[1])

# Of products with weights of few bits, kernels come first that read 2 or 4 bits, and bytes are not tried then. Those of other bits take
# longer than bytes where computing binds, and convolutions are rarely bound by memory: they come last, for plans to choose from.
PRODUCTS: tuple[Kernel, ...] = (
    *_FIRST,
    GENERIC.kernel("depthwise2d").variant(
        "pulp_depthwise",
        (_is_3x3, "a kernel of 3x3 without dilation, moved by 1 or 2"),
        source="pulp/pulp_depthwise.c",
        types={"x": BYTES, "w": types("s8"), "y": INTEGERS},
        nest=conv.DEPTHWISE_COLUMNS["nest"],
        layouts={**conv.DEPTHWISE_COLUMNS["layouts"], **forms.PER_CHANNEL},
        macros=lambda node: {**dict(zip(("STRIDE_H", "STRIDE_W"), map(str, conv.window(node).strides), strict=True)), **forms.macros(node)},
        cores=("oh", "ow", "k"),
        scratch={"columns": Scratch(_column_scratch, CORES)},
        settings=forms.settings,
    ),
    *LINES,
    _SMALL.variant(
        "pulp_conv2d_pointwise",
        requires=_REQUIRES,
        needs=(_is_pointwise, "one group, a kernel of 1x1 and no padding"),
        scratch={},
        settings=_gathering_settings(ROWS),
        macros=_pixel_macros,
        tiling=_FOUR,
    ),
    _SMALL.variant(
        "pulp_conv2d",
        (lambda node: max(node.outputs[0].shape[1:3]) >= CORES, "rows or columns for every core"),
        tiling=_FOUR,
        cores=("oh", "ow"),  # cores that shared the filters would all gather all windows
    ),
    _SMALL,
    _few_windows("pulp_conv2d_pairs", 2, "two for every core fit"),
    _few_windows("pulp_conv2d_single", 1, "one for every core fits"),
    _SHARED.variant(
        "pulp_conv2d_line",
        (_is_run, "windows that are whole words of a line, without borders"),
        source="pulp/pulp_conv2d_line.c",
        struct="pulp_matmul",
        template="pulp_conv2d_line.mako",
        strided={"x": 2, "w": 4, "y": 1},
        scratch={},
        macros=_product_macros,
        settings=forms.settings,
        cores=("ow", "k"),
    ),
    _GROUPED,
    *_CONVOLUTIONS,
    _MATMUL,
    _MATMUL_ROWS,
    _MATMUL_COLUMNS,
    _with_zeros(_MATMUL_ROWS, True),
    _with_zeros(_MATMUL_COLUMNS, False),
    _MATMUL_SUMS,
    _POINTWISE_SUMS,
    _CONVOLUTION_SUMS,
    *_OFFERED,
)
