"""Kernels of N-EUREKA: declarations of what it runs, alone or with the cores around it.

Weights, scales and biases are encoded when a node is bound. A tile is one job or a few, so it may be cut anywhere along height
and width, and along output channels at whole groups of them; input channels stay together, as there is one pass over them.
Nests count multiply-accumulates by the node's own dimensions; a second phase without products says which encoded bytes a tile
reads, and how many bits its weights have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from deeploy.graph.nest import Expr, Geometry
from deeploy.operators import conv, matmul
from deeploy.target import Kernel, Layout, Map, Nest, Node, Tiling, parallel, reduction, types

from .npu import GROUP, NARROW, PIXELS, Array, Mode
from .npu_layers import Lowered, lower, lower_thinned, lower_windows

BYTES = types("s8", "u8")
STAGES: tuple[tuple[str, ...], ...] = ((), ("requantise",), ("bias", "requantise"))
ROOM = 24 * 1024  # bytes for two bands of windows, or of outputs that are thinned out
BANDS = 4  # of all outputs, at least: while the engine works on one, the cores are busy with another

Form = Callable[[Node], Lowered | str]  # a node for the engine, or what the engine would need instead


# ---- what the engine makes of a node; ``accepts``, the encodings and the templates ask for the same nodes

_lower = lru_cache(maxsize=512)(lower)


def _of_mode(mode: Mode) -> Form:
    def form(node: Node) -> Lowered | str:
        if node.op == "MatMul" and sum(n > 1 for n in node.outputs[0].shape[:-2]) > 1:
            return "at most one batch axis"
        found = _lower(node)
        return found if isinstance(found, str) or found.layer.mode is mode else f"a {mode.name.lower()} convolution"

    return form


@lru_cache(maxsize=512)
def _as_windows(node: Node) -> Lowered | str:
    """A convolution of windows that cores gather."""
    longest = ROOM // (2 * PIXELS**2)
    return f"a window of at most {longest} bytes" if _pitch(node) > longest else lower_windows(node)


_lower_thinned = lru_cache(maxsize=512)(lower_thinned)


def _thinned_of(mode: Mode) -> Form:
    """A convolution of which not all outputs are wanted."""
    most = ROOM // (2 * PIXELS)

    def form(node: Node) -> Lowered | str:
        found = _lower_thinned(node)
        if isinstance(found, str) or found.layer.mode is not mode:
            return found if isinstance(found, str) else f"a {mode.name.lower()} convolution"
        return found if _row(node) <= most else f"rows of at most {most} bytes of outputs with stride 1"

    return form


def _found(form: Form, node: Node) -> Lowered:
    found = form(node)
    assert isinstance(found, Lowered), "only nodes that the kernel accepts are encoded and emitted"
    return found


def _reason(form: Form) -> Callable[[Node], str | None]:
    def accepts(node: Node) -> str | None:
        found = form(node)
        return found if isinstance(found, str) else None

    return accepts


def _layouts(form: Form, weights: str) -> Mapping[str, Layout]:
    """The encodings of constants; the bias of the engine holds that of the node."""

    def scale(array: Array, node: Node) -> Array:
        norm = _found(form, node).normalisation
        assert norm is not None, "scales belong to a requantisation"
        return norm.scale

    def bias(array: Array, node: Node) -> Array:
        norm = _found(form, node).normalisation
        assert norm is not None, "biases belong to a requantisation"
        return norm.bias

    encoded = Layout(lambda array, node: _found(form, node).weights)
    return {weights: encoded, "bias": Layout(lambda array, node: None), "mul": Layout(scale), "add": Layout(bias)}


# ---- nests


def _encoded(nest: Nest, operand: str, *within: Expr, is_3x3: bool = False) -> Nest:
    """The nest whose ``operand`` is encoded: ``within`` are the axes but for the 32 bytes of a pass, and the passes of 3x3 kernels.

    Products are counted with one byte of the first pass; the second phase reads all of them.
    """
    bit, byte, fh, fw = reduction("bit", "byte", "fh", "fw")
    phase = Nest({operand: Map(*within, *([bit] if is_3x3 else []), byte)}, {}, extents={"byte": GROUP})
    reads = {**nest.reads, operand: Map(*within, *([(3 * fh + fw) // 9] if is_3x3 else []), 0)}
    return Nest(reads, nest.writes, extents=nest.extents, phases=(phase,))


def _pointwise_nest(node: Node) -> Nest:
    (n, oh, ow, k), (c,) = parallel("n", "oh", "ow", "k"), reduction("c")
    sh, sw = conv.window(node).strides
    image = Nest({"x": Map(n, sh * oh, sw * ow, c)}, {"y": Map(n, oh, ow, k)})
    return _encoded(image, "w", k, c // GROUP)


def _dense_nest(node: Node) -> Nest:
    (k,), (c,) = parallel("k"), reduction("c")
    return _encoded(conv.nest(lambda *_: Map(k))(node), "w", k, c // NARROW, is_3x3=True)


def _depthwise_nest(node: Node) -> Nest:
    (k,) = parallel("k")
    return _encoded(conv.depthwise_nest(node), "w", k // NARROW, is_3x3=True)


def _windows_nest(node: Node) -> Nest:
    g = conv.window(node)
    (k,), (fh, fw, c) = parallel("k"), reduction("fh", "fw", "c")
    tap = (fh * g.width + fw) * g.channels + c
    return _encoded(conv.nest(lambda *_: Map(k))(node), "w", k, tap // GROUP)


def _product_nest(node: Node) -> Nest:
    (n,), (k,) = parallel("n"), reduction("k")
    return _encoded(matmul.nest("rows")(node), "b", n, k // GROUP)


# ---- what templates see, and room


def _layer(form: Form, node: Node) -> dict[str, Any]:
    """The fields of ``struct neureka_layer``, and the height of the kernel."""
    layer = _found(form, node).layer
    fields = {"config": f"0x{layer.config:08x}u", "weight_offset": layer.weight_offset, "padding_value": layer.padding_value}
    return {"layer": fields, "taps": layer.mode.taps}


def _pitch(node: Node) -> int:
    """Bytes of a window, filled up to whole words."""
    g = conv.window(node)
    return -(-g.height * g.width * g.channels // 4) * 4


def _subtiles(outputs: int, pitch: int) -> int:
    """Subtiles of windows that are gathered at once: a quarter of all, as far as there is room for two bands."""
    return min(ROOM // (2 * pitch * PIXELS**2), -(-outputs // (BANDS * PIXELS**2)))


def _band(node: Node) -> int:
    """Windows that are gathered at once."""
    outputs = node.outputs[0].shape
    return _subtiles(outputs[1] * outputs[2], _pitch(node)) * PIXELS**2


def _windows_room(geometry: Geometry) -> int:
    e = geometry.extents
    pitch = -(-e["fh"] * e["fw"] * e["c"] // 4) * 4
    return 2 * _subtiles(e["oh"] * e["ow"], pitch) * PIXELS**2 * pitch


def _row(node: Node) -> int:
    """Bytes of a row of outputs before they are thinned out, at most: as many pixels as x has."""
    x = node.inputs[0]
    assert x is not None
    return x.shape[2] * node.outputs[0].shape[3]


def _rows_at_once(height: int, row: int) -> int:
    """Rows of outputs that are thinned out at once, by the same rule."""
    return min(ROOM // (2 * row * PIXELS), -(-height // (BANDS * PIXELS))) * PIXELS


def _rows(node: Node) -> int:
    """Rows of outputs that are thinned out at once."""
    x = node.inputs[0]
    assert x is not None
    return _rows_at_once(x.shape[1], _row(node))


def _rows_room(geometry: Geometry) -> int:
    height, width = geometry.shapes["x"][1:3]
    row = width * geometry.extents["k"]
    return 2 * _rows_at_once(height, row) * row


# ---- declarations


def _kernel(name: str, form: Form, settings: Mapping[str, Callable[[Node], int]] | None = None, **changes: Any) -> Kernel:
    """A declaration with what those of convolutions have in common."""
    extra = settings or {}
    declared = Kernel(
        name=f"neureka_{name}",
        op="Conv",
        inputs=("x", "w"),
        types={"x": BYTES, "w": types("s8", "u8", "s16", "s32"), "y": types("s8", "u8", "s32"), "bias": types("s32")},
        nest=_dense_nest,
        source="neureka/neureka_conv.c",
        template="neureka_conv.mako",
        reference=conv.reference,
        accepts=_reason(form),
        epilogues=STAGES,
        constants=("w", "bias", "mul", "add"),
        layouts=_layouts(form, "w"),
        strided={"x": 1, "y": 1},
        tiling=Tiling(whole=("c", "fh", "fw"), multiple={"k": GROUP}),
        settings=lambda node: {**_layer(form, node), **{key: value(node) for key, value in extra.items()}},
        engine="npu",
    )
    return replace(declared, **changes)


_POINTWISE = _kernel("pointwise", _of_mode(Mode.POINTWISE), nest=_pointwise_nest)
_DENSE = _kernel("dense", _of_mode(Mode.DENSE))
_DEPTHWISE = _kernel("depthwise", _of_mode(Mode.DEPTHWISE), nest=_depthwise_nest, tiling=Tiling(whole=("fh", "fw"), multiple={"k": NARROW}))
_PRODUCT = _kernel(
    "product",
    _of_mode(Mode.POINTWISE),
    op="MatMul",
    inputs=("a", "b"),
    types={**_DENSE.types, "a": BYTES, "b": _DENSE.types["w"]},
    nest=_product_nest,
    template="neureka_product.mako",
    reference=matmul.reference,
    constants=("b", "bias", "mul", "add"),
    layouts=_layouts(_of_mode(Mode.POINTWISE), "b"),
    strided={"a": 1, "y": 1},
    tiling=Tiling(whole=("k",), multiple={"n": GROUP}),
)
_WINDOWS = _kernel(
    "windows",
    _as_windows,
    settings={"band": _band, "pitch": _pitch},
    nest=_windows_nest,
    source="neureka/neureka_windows.c",
    template="neureka_windows.mako",
    strided={"x": 1, "y": 3},
    tiling=Tiling(whole=("c", "fh", "fw", "ow"), multiple={"k": GROUP}),
    scratch={"windows": _windows_room},
)

_DENSE_THINNED = _kernel(
    "dense_thinned",
    _thinned_of(Mode.DENSE),
    settings={"band": _rows},
    source="neureka/neureka_thinned.c",
    template="neureka_thinned.mako",
    scratch={"all": _rows_room},
)
_DEPTHWISE_THINNED = _kernel(
    "depthwise_thinned",
    _thinned_of(Mode.DEPTHWISE),
    settings={"band": _rows},
    nest=_depthwise_nest,
    source="neureka/neureka_thinned.c",
    template="neureka_thinned.mako",
    tiling=_DEPTHWISE.tiling,
    scratch={"all": _rows_room},
)

# Windows and what is thinned out come last: without the planner's comparison, a node takes the first kernel that fits.
KERNELS: tuple[Kernel, ...] = (_POINTWISE, _DENSE, _DEPTHWISE, _PRODUCT, _DEPTHWISE_THINNED, _WINDOWS, _DENSE_THINNED)
