"""Kernels of N-EUREKA: declarations of what it runs, with its weights in L1 or in their own memory.

Weights, scales and biases are encoded when a node is bound. A tile is one job, so it may be cut anywhere along height and
width, and along output channels at whole groups of them; input channels stay together, as there is one pass over them. Nests
count multiply-accumulates by the node's own dimensions; a second phase without products says that every tile reads whole rows
of encoded weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from deeploy.graph.nest import Expr
from deeploy.operators import conv, matmul
from deeploy.target import Kernel, Layout, Map, Nest, Node, Tiling, parallel, reduction, types

from .npu import GROUP, NARROW, Array, Mode
from .npu_layers import Lowered, lower

BYTES = types("s8", "u8")
STAGES: tuple[tuple[str, ...], ...] = ((), ("requantise",), ("bias", "requantise"))


@lru_cache(maxsize=512)
def lowered(node: Node) -> Lowered | str:
    """The node for the engine, or what the engine would need instead; ``accepts`` and the encodings ask for the same nodes."""
    return lower(node)


def _found(node: Node) -> Lowered:
    found = lowered(node)
    assert isinstance(found, Lowered), "only nodes that the kernel accepts are encoded"
    return found


def _accepts(mode: Mode) -> Callable[[Node], str | None]:
    def check(node: Node) -> str | None:
        found = lowered(node)
        if isinstance(found, str):
            return found
        if node.op == "MatMul" and sum(n > 1 for n in node.outputs[0].shape[:-2]) > 1:
            return "at most one batch axis"
        return None if found.layer.mode is mode else f"a {mode.name.lower()} convolution"

    return check


# ---- encodings


def _weights(array: Array, node: Node) -> Array:
    return _found(node).weights


def _scale(array: Array, node: Node) -> Array:
    norm = _found(node).normalisation
    assert norm is not None
    return norm.scale


def _bias(array: Array, node: Node) -> Array:
    norm = _found(node).normalisation
    assert norm is not None
    return norm.bias


# The bias of the engine holds that of the node.
LAYOUTS = {"bias": Layout(lambda array, node: None), "mul": Layout(_scale), "add": Layout(_bias)}


# ---- nests


def _encoded(nest: Nest, operand: str, *within: Expr) -> Nest:
    """The nest whose ``operand`` is encoded: ``within`` are the axes but for the 32 bytes of a pass, and the passes of 3x3 kernels.

    Products are counted with one byte of the first pass; the second phase reads all of them.
    """
    bit, byte, fh, fw = reduction("bit", "byte", "fh", "fw")
    is_3x3 = "fh" in nest.dims()
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
    return _encoded(conv.nest(lambda *_: Map(k))(node), "w", k, c // NARROW)


def _depthwise_nest(node: Node) -> Nest:
    (k,) = parallel("k")
    return _encoded(conv.depthwise_nest(node), "w", k // NARROW)


def _product_nest(node: Node) -> Nest:
    (n,), (k,) = parallel("n"), reduction("k")
    return _encoded(matmul.nest("rows")(node), "b", n, k // GROUP)


# ---- what templates see


def settings(node: Node, in_weight_memory: bool) -> dict[str, Any]:
    """The fields of ``struct neureka_layer``, and the height of the kernel."""
    layer = replace(_found(node).layer, in_weight_memory=in_weight_memory)
    fields = {"config": f"0x{layer.config:08x}u", "weight_offset": layer.weight_offset, "padding_value": layer.padding_value}
    return {"layer": fields, "taps": layer.mode.taps}


def _kernel(name: str, mode: Mode, in_weight_memory: bool = False, **changes: Any) -> Kernel:
    """A declaration with what those of convolutions have in common."""
    declared = Kernel(
        name=f"neureka_{name}",
        op="Conv",
        inputs=("x", "w"),
        types={"x": BYTES, "w": types("s8", "u8", "s16", "s32"), "y": types("s8", "u8", "s32"), "bias": types("s32")},
        nest=_dense_nest,
        source="neureka/neureka_conv.c",
        template="neureka_conv.mako",
        reference=conv.reference,
        accepts=_accepts(mode),
        epilogues=STAGES,
        constants=("w", "bias", "mul", "add"),
        layouts={"w": Layout(_weights), **LAYOUTS},
        strided={"x": 1, "y": 1},
        tiling=Tiling(whole=("c", "fh", "fw"), multiple={"k": GROUP}),
        settings=lambda node: settings(node, in_weight_memory),
        engine="npu",
    )
    return replace(declared, **changes)


_POINTWISE = _kernel("pointwise", Mode.POINTWISE, nest=_pointwise_nest, tiling=Tiling(whole=("c",), multiple={"k": GROUP}))
_DENSE = _kernel("dense", Mode.DENSE)
_DEPTHWISE = _kernel("depthwise", Mode.DEPTHWISE, nest=_depthwise_nest, tiling=Tiling(whole=("fh", "fw"), multiple={"k": NARROW}))
_PRODUCT = _kernel(
    "product",
    Mode.POINTWISE,
    op="MatMul",
    inputs=("a", "b"),
    types={**_DENSE.types, "a": BYTES, "b": _DENSE.types["w"]},
    nest=_product_nest,
    template="neureka_product.mako",
    reference=matmul.reference,
    constants=("b", "bias", "mul", "add"),
    layouts={"b": Layout(_weights), **LAYOUTS},
    strided={"a": 1, "y": 1},
    tiling=Tiling(whole=("k",), multiple={"n": GROUP}),
)

KERNELS: tuple[Kernel, ...] = (_POINTWISE, _DENSE, _DEPTHWISE, _PRODUCT)
