"""Kernels of N-EUREKA: declarations of what it runs, alone or with the cores around it.

Weights, scales and biases are encoded when a node is bound. A tile is one job or a few, so it may be cut anywhere along height
and width, and along output channels at whole groups of them; input channels stay together, as there is one pass over them.
Nests count multiply-accumulates by the node's own dimensions; encoded ones say in which bytes and bits weights are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Unpack

from deeploy.operators import conv, matmul
from deeploy.target import (
    BYTES,
    SUMS,
    Count,
    Dim,
    Kernel,
    Layout,
    Map,
    Nest,
    Node,
    Operator,
    PostProcessing,
    Row,
    Sample,
    Scratch,
    Tiling,
    accumulated,
    encoded,
    parallel,
    reduction,
    types,
    variant,
)

from .forms import is_whole
from .npu import GROUP, NARROW, PIXELS, Array, Mode
from .npu_lowering import (
    DILATIONS,
    LoweredLayer,
    body_of_all,
    channels_of,
    lower_dilated,
    lower_layer,
    lower_patches,
    lower_subsampled,
    lower_windows,
    without_epilogue,
)
from .sums import requantised_shares

WEIGHTS = types("s8", "u8", "s16", "s32")
STAGES: tuple[tuple[str, ...], ...] = ((), ("requantise",), ("bias", "requantise"))
ROOM = 24 * 1024  # bytes for two bands of windows, or of outputs that are subsampled
FEW = 8  # input channels, of which pixels are copied one by one
REDUCED = {"product": {"k": GROUP}, "pointwise": {"c": GROUP}, "dense": {"c": NARROW}}  # reductions that may be cut, weights in L1
BANDS = 4  # of all outputs, at least: while the engine works on one, the cores are busy with another

Form = Callable[[Node], LoweredLayer | str]  # a node for the engine, or what the engine would need instead


# ---- what the engine makes of a node; ``requires``, the encodings and the templates ask for the same nodes

_lower = lru_cache(maxsize=512)(lower_layer)


def _of_mode(mode: Mode) -> Form:
    def form(node: Node) -> LoweredLayer | str:
        if node.op == "MatMul" and sum(n > 1 for n in node.outputs[0].shape[:-2]) > 1:
            return "at most one batch axis"
        lowered = _lower(node)
        return lowered if isinstance(lowered, str) or lowered.layer.mode is mode else f"a {mode.name.lower()} convolution"

    return form


@lru_cache(maxsize=512)
def _as_windows(node: Node) -> LoweredLayer | str:
    """A convolution of windows that cores gather, which those of one pixel each need not."""
    if node.op == "Conv":
        window = conv.window(node)
        if (window.height, window.width, *window.strides, *window.pads) == (1, 1, 1, 1, 0, 0, 0, 0):
            return "a window of several pixels, or one that is moved by more than a pixel"
    longest = ROOM // (2 * PIXELS**2)
    return f"a window of at most {longest} bytes" if _window_pitch(node) > longest else lower_windows(node)


_lower_patches = lru_cache(maxsize=512)(lower_patches)


def _as_patches(node: Node) -> LoweredLayer | str:
    """A convolution of windows that are runs in patches that cores gather."""
    if node.op != "Conv" or conv.window(node).dilations[1] != 1 or conv.window(node).channels > FEW:
        return f"a convolution of at most {FEW} channels whose taps in a row are neighbours"
    most = ROOM // (2 * PIXELS)
    return f"patches of at most {most} bytes" if _patch_bytes(node) > most else _lower_patches(node)


_lower_subsampled = lru_cache(maxsize=512)(lower_subsampled)


def _subsampled_of(mode: Mode) -> Form:
    """A convolution of which not all outputs are wanted."""
    most = ROOM // (2 * PIXELS)

    def form(node: Node) -> LoweredLayer | str:
        lowered = _lower_subsampled(node)
        if isinstance(lowered, str) or lowered.layer.mode is not mode:
            return lowered if isinstance(lowered, str) else f"a {mode.name.lower()} convolution"
        return lowered if _row_bytes(node) <= most else f"rows of at most {most} bytes of outputs with stride 1"

    return form


_lower_dilated = lru_cache(maxsize=512)(lower_dilated)


def _dilated_of(mode: Mode) -> Form:
    """A 3x3 convolution with dilation."""

    def form(node: Node) -> LoweredLayer | str:
        lowered = _lower_dilated(node)
        return lowered if isinstance(lowered, str) or lowered.layer.mode is mode else f"a {mode.name.lower()} convolution"

    return form


def _dilation_settings(node: Node) -> dict[str, str]:
    return {"DILATION": str(conv.window(node).dilations[0])}


def _lowered_layer(form: Form, node: Node) -> LoweredLayer:
    lowered = form(node)
    assert isinstance(lowered, LoweredLayer), "only nodes that the kernel accepts are encoded and emitted"
    return lowered


def _find_reason(form: Form) -> Callable[[Node], str | None]:
    def state_requirement(node: Node) -> str | None:
        lowered = form(node)
        return lowered if isinstance(lowered, str) else None

    return state_requirement


def _constant_layouts(form: Form, weights: str) -> Mapping[str, Layout]:
    """The encodings of constants; the engine's bias holds that of the node, which has room for shifts where channels have their own."""

    def scale(array: Array, node: Node) -> Array:
        norm = _lowered_layer(form, node).normalisation
        assert norm is not None, "scales belong to a requantisation"
        return norm.scale

    def bias(array: Array, node: Node) -> Array:
        norm = _lowered_layer(form, node).normalisation
        assert norm is not None, "biases belong to a requantisation"
        return norm.bias

    def shifts(array: Array, node: Node) -> Array | None:
        norm = _lowered_layer(form, node).normalisation
        return None if norm is None else norm.shifts

    encoded = Layout(lambda array, node: _lowered_layer(form, node).weights)
    return {weights: encoded, "bias": Layout(shifts), "mul": Layout(scale), "add": Layout(bias)}


# ---- nests


def _byte_axis(*of: Dim) -> Dim:
    """The axis of 32 bytes that hold elements of these dimensions."""
    return encoded("byte", of=of)[0]


def _pointwise_nest(node: Node) -> Nest:
    (n, oh, ow, k), (c,) = parallel("n", "oh", "ow", "k"), reduction("c")
    sh, sw = conv.window(node).strides
    return Nest({"x": Map(n, sh * oh, sw * ow, c), "w": Map(k, c // GROUP, _byte_axis(c))}, {"y": Map(n, oh, ow, k)})


def _dense_nest(node: Node) -> Nest:
    (k,), (c, fh, fw) = parallel("k"), reduction("c", "fh", "fw")
    (bit,) = encoded("bit", of=(fh, fw))
    return conv.nest(lambda *_: Map(k, c // NARROW, bit, _byte_axis(c, fh, fw)))(node)


def _depthwise_nest(node: Node) -> Nest:
    (k,), (fh, fw) = parallel("k"), reduction("fh", "fw")
    (bit,) = encoded("bit", of=(fh, fw))
    return conv.depthwise_nest(lambda *_: Map(k // NARROW, bit, _byte_axis(fh, fw)))(node)


def _windows_nest(node: Node) -> Nest:
    """Weights of all taps, one after the other; ``group`` counts the engine's passes over them."""
    (k,), taps = parallel("k"), reduction("fh", "fw", "c")
    (group,) = encoded("group", of=taps)
    return conv.nest(lambda *_: Map(k, group, _byte_axis(*taps)))(node)


def _product_nest(node: Node) -> Nest:
    (n,), (k,) = parallel("n"), reduction("k")
    nest = matmul.nest("rows")(node)
    return replace(nest, reads={**nest.reads, "b": Map(n, k // GROUP, _byte_axis(k))})


# ---- what templates see, and room


def _layer_fields(form: Form, node: Node, in_weight_memory: bool) -> dict[str, Any]:
    """The fields of ``struct neureka_layer``, the height of the kernel, and the operands behind fields of ``struct neureka_tile``."""
    lowered = _lowered_layer(form, node)
    layer, norm = replace(lowered.layer, in_weight_memory=in_weight_memory), lowered.normalisation
    operands = {"scale": "mul", "bias": "add"} if norm is not None else {}
    operands |= {"shifts": "bias"} if norm is not None and norm.shifts is not None else {}
    fields = {"config": f"0x{layer.config:08x}u", "weight_offset": layer.weight_offset, "padding_value": layer.padding_value}
    return {"layer": fields, "taps": layer.mode.taps, "operands": operands, "accumulates": False}


def _window_pitch(node: Node) -> int:
    """Bytes of a window, filled up to whole words."""
    g = conv.window(node)
    return -(-g.height * g.width * g.channels // 4) * 4


def _subtiles_at_once(outputs: int, pitch: int) -> int:
    """Subtiles of windows that are gathered at once: a quarter of all, as far as there is room for two bands."""
    return min(ROOM // (2 * pitch * PIXELS**2), -(-outputs // (BANDS * PIXELS**2)))


def _windows_at_once(node: Node) -> int:
    """Windows that are gathered at once."""
    outputs = node.outputs[0].shape
    return _subtiles_at_once(outputs[1] * outputs[2], _window_pitch(node)) * PIXELS**2


def _patch_bytes(node: Node) -> int:
    """Bytes of a patch: as many columns as the windows of a row of outputs see."""
    g = conv.window(node)
    return ((node.outputs[0].shape[2] - 1) * g.strides[1] + g.width) * g.height * g.channels


def _patches_at_once(node: Node) -> int:
    """Patches that are gathered at once, by the rule of ``_rows_at_once``."""
    return _rows_at_once(node.outputs[0].shape[1], _patch_bytes(node))


def _row_bytes(node: Node) -> int:
    """Bytes of a row of outputs before they are subsampled, at most: as many pixels as x has."""
    x = node.inputs[0]
    assert x is not None
    return x.shape[2] * node.outputs[0].shape[3]


def _rows_at_once(height: int, row: int) -> int:
    """Rows of outputs that are subsampled at once, by the same rule."""
    return min(ROOM // (2 * row * PIXELS), -(-height // (BANDS * PIXELS))) * PIXELS


def _rows(node: Node) -> int:
    """Rows of outputs that are subsampled at once."""
    x = node.inputs[0]
    assert x is not None
    return _rows_at_once(x.shape[1], _row_bytes(node))


# ---- sums that cores requantise

Steps = Callable[[Node], tuple[int, ...]]
_SUMS = Operator(
    SUMS, (SUMS,), lambda node: Nest({SUMS: Map(*parallel("pixel", "k"))}, {"y": Map(*parallel("pixel", "k"))}), lambda node, sums: sums
)


def _as_they_are(node: Node) -> tuple[int, ...]:
    return (1,) * len(node.outputs[0].shape)


def _of_stride_1(node: Node) -> tuple[int, ...]:
    return (1, *node.attrs["strides"], 1)


def _requantisation_form(node: Node) -> tuple[str, ...]:
    """How cores requantise most channels of a node, where that is not the fastest form."""
    channels = channels_of(node)
    return () if isinstance(channels, str) else tuple(word for word, share in requantised_shares(channels).items() if share > 0.5)


def _with_sums(
    kernel: Kernel, name: str, form: Form, usual: Form | None = None, steps: Steps = _as_they_are, reduced: Mapping[str, int] | None = None
) -> Kernel:
    """A kernel whose sums leave as int32, and are requantised by cores, for nodes that the engine cannot requantise itself.

    Args:
        usual: what the engine makes of such nodes where it requantises them, if that differs from ``form``.
        reduced: reductions along which tiles are cut, at multiples; the engine adds to the sums of those before. It cannot requantise then.
    """
    (weights,) = set(kernel.constants) - {"bias", "mul", "add"}
    bare = without_epilogue if steps is _as_they_are else body_of_all

    def needs(node: Node) -> str | None:
        if steps is _of_stride_1 and max(conv.window(node).strides) != 2:
            return "a convolution of stride 2"
        if not reduced and isinstance((usual or form)(node), LoweredLayer):
            return "a requantisation that the engine cannot compute itself"
        lowered = form(bare(node))
        if isinstance(lowered, str):
            return lowered
        parameters = channels_of(node)
        return parameters if isinstance(parameters, str) else None

    def parameters(field: str) -> Layout:
        return Layout(lambda array, node: getattr(channels_of(node), field))

    constants = {
        weights: Layout(lambda array, node: _lowered_layer(form, bare(node)).weights),
        **{"bias": Layout(lambda array, node: None), "mul": parameters("mul"), "add": parameters("add")},
    }

    def bytes_of(node: Node, tile: Mapping[str, Count]) -> Count:
        if node.op == "MatMul":
            return 4 * math.prod(count for name, count in tile.items() if name not in ("k", "byte"))
        _, sh, sw, _ = steps(node)
        return 4 * tile["n"] * ((tile["oh"] - 1) * sh + 1) * ((tile["ow"] - 1) * sw + 1) * tile["k"]

    post_processing = _SUMS.kernel(
        "pulp_requantise_sums",
        "pulp/pulp_requantise_sums.c",
        macros=lambda node: {"CLIP_WHOLE": variant("whole", is_whole(node))},
        settings=lambda node: {"sums_steps": steps(node)},
    )
    whole = (*(dim for dim in kernel.tiling.whole if dim not in (reduced or ())), "ow")
    return kernel.variant(
        name,
        requires=needs,
        nest=accumulated(kernel.nest, *(reduced or ())),
        settings=lambda node: {**(kernel.settings(node) if kernel.settings else {}), "accumulates": bool(reduced)},
        types={"y": BYTES},
        epilogues=(*STAGES[1:], *((*stages, "lookup") for stages in STAGES[1:])),
        layouts=constants,
        scratch={**kernel.scratch, SUMS: Scratch(bytes_of)},
        tiling=Tiling(tuple(dict.fromkeys(whole)), {**kernel.tiling.multiple, **(reduced or {})}),
        post_processing=PostProcessing(post_processing, bare, steps, _requantisation_form),
    )


# ---- declarations


def declare_pair(
    name: str, operator: Operator, form: Form, values: Mapping[str, Callable[[Node], Any]] | None = None, **row: Unpack[Row]
) -> Iterator[Kernel]:
    """Two kernels of what the engine makes of a node: weights in their own memory, and weights in L1; templates see ``values``, too.

    From their own memory the engine reads weights while it fetches the next inputs from L1.
    """
    x, weights = operator.inputs

    def settings(is_resident: bool) -> Callable[[Node], dict[str, Any]]:
        return lambda node: {**_layer_fields(form, node, is_resident), **{key: value(node) for key, value in (values or {}).items()}}

    declared = operator.kernel(
        f"neureka_{name}",
        "neureka/neureka_conv.c",
        requires=_find_reason(form),
        types={x: BYTES, weights: WEIGHTS, "y": types("s8", "u8", "s32")},
        epilogues=STAGES,
        constants=(weights, "bias", "mul", "add"),
        layouts=_constant_layouts(form, weights),
        strided={x: 1, "y": 1},
        tiling=Tiling(whole=("c", "fh", "fw"), multiple={"k": GROUP}),
        settings=settings(False),
        engine="npu",
    ).variant(f"neureka_{name}", **row)
    every = (declared.variant(f"{declared.name}_nms", resident={weights: "WM"}, settings=settings(True)), declared)
    yield from every
    if name not in ("depthwise_subsampled", "dense_subsampled"):
        yield from (_with_sums(kernel, f"{kernel.name}_sums", form) for kernel in every)
    if name in REDUCED:
        yield _with_sums(declared, f"{declared.name}_parts", form, reduced=REDUCED[name])


_DEPTHWISE = Tiling(whole=("fh", "fw"), multiple={"k": NARROW})


def _all_of(kernels: Sequence[Kernel], mode: Mode) -> Iterator[Kernel]:
    """Kernels of stride 1 whose sums are subsampled by the cores that requantise them."""
    for kernel in kernels:
        if kernel.post_processing is None:
            name = kernel.name.replace(mode.name.lower(), f"{mode.name.lower()}_all")
            yield _with_sums(kernel, f"{name}_sums", _of_mode(mode), _lower_subsampled, _of_stride_1)


_DENSE_3X3 = tuple(declare_pair("dense", conv.CONV, _of_mode(Mode.DENSE), nest=_dense_nest))
_DEPTHWISE_3X3 = tuple(declare_pair("depthwise", conv.CONV, _of_mode(Mode.DEPTHWISE), nest=_depthwise_nest, tiling=_DEPTHWISE))

_DILATED = "neureka/neureka_dilated.c"


def _dilated_sample(groups: int, channels: int, dilation: int) -> Sample:
    """A 3x3 convolution of the given channels per group, with the given dilation and a border of it."""
    attrs = {"strides": (1, 1), "dilations": (dilation,) * 2, "pads": (dilation,) * 4, "group": groups, "zero_point": 0}
    return Sample({"x": (1, 7, 9, groups * channels), "w": (groups if groups > 1 else 17, channels, 3, 3)}, attrs)


# A plan chooses from the first that fits of those with weights in each memory: windows and what is subsampled come last.
KERNELS: tuple[Kernel, ...] = (
    *declare_pair("pointwise", conv.CONV, _of_mode(Mode.POINTWISE), nest=_pointwise_nest),
    *_DENSE_3X3,
    *_DEPTHWISE_3X3,
    *declare_pair(
        "dense_dilated",
        conv.CONV,
        _dilated_of(Mode.DENSE),
        nest=_dense_nest,
        source=_DILATED,
        macros=_dilation_settings,
        samples=tuple(_dilated_sample(1, 19, dilation) for dilation in DILATIONS),
    ),
    *declare_pair(
        "depthwise_dilated",
        conv.CONV,
        _dilated_of(Mode.DEPTHWISE),
        nest=_depthwise_nest,
        tiling=_DEPTHWISE,
        source=_DILATED,
        macros=_dilation_settings,
        samples=tuple(_dilated_sample(19, 1, dilation) for dilation in DILATIONS),
    ),
    *declare_pair(
        "product",
        matmul.MATMUL,
        _of_mode(Mode.POINTWISE),
        nest=_product_nest,
        template="neureka_product.mako",
        tiling=Tiling(whole=("k",), multiple={"n": GROUP, "m": PIXELS}),  # images of whole rows are one job
    ),
    *declare_pair(
        "depthwise_subsampled",
        conv.CONV,
        _subsampled_of(Mode.DEPTHWISE),
        {"band": _rows},
        source="neureka/neureka_subsampled.c",
        forks=True,
        nest=_depthwise_nest,
        tiling=_DEPTHWISE,
        scratch={"all": Scratch(lambda node, tile: 2 * _rows(node) * _row_bytes(node))},
    ),
    *declare_pair(
        "patches",
        conv.CONV,
        _as_patches,
        {"band": _patches_at_once},
        source="neureka/neureka_patches.c",
        forks=True,
        nest=_windows_nest,
        strided={"x": 2, "y": 1},
        scratch={"patches": Scratch(lambda node, tile: 2 * _patches_at_once(node) * _patch_bytes(node))},
    ),
    *declare_pair(
        "windows",
        conv.CONV,
        _as_windows,
        {"band": _windows_at_once, "pitch": _window_pitch},
        source="neureka/neureka_windows.c",
        forks=True,
        nest=_windows_nest,
        strided={"x": 1, "y": 3},
        tiling=Tiling(whole=("c", "fh", "fw", "ow"), multiple={"k": GROUP}),
        scratch={"windows": Scratch(lambda node, tile: 2 * _windows_at_once(node) * _window_pitch(node))},
    ),
    *declare_pair(
        "dense_subsampled",
        conv.CONV,
        _subsampled_of(Mode.DENSE),
        {"band": _rows},
        source="neureka/neureka_subsampled.c",
        forks=True,
        nest=_dense_nest,
        scratch={"all": Scratch(lambda node, tile: 2 * _rows(node) * _row_bytes(node))},
    ),
    *_all_of(_DEPTHWISE_3X3, Mode.DEPTHWISE),
    *_all_of(_DENSE_3X3, Mode.DENSE),
)
