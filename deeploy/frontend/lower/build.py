"""Pieces that lowering rules build graphs from. Lowered nodes have the domain ``deeploy``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.graph.nodes import Node, Tensor
from deeploy.graph.types import DType

DOMAIN = "deeploy"


def lowered(node: gs.Node) -> bool:
    """Whether the node is an operator of the integer form already."""
    return bool(node.domain == DOMAIN)


def variable(name: str, dtype: Any, shape: Sequence[int]) -> gs.Variable:
    return gs.Variable(name, np.dtype(dtype), [int(n) for n in shape])


def const(name: str, values: Any, dtype: Any = None) -> gs.Constant:
    return gs.Constant(name, np.ascontiguousarray(np.asarray(values, dtype)))


def described(node: gs.Node) -> Node:
    """The read-only view of a lowered node, which has no absent operands, that declarations are evaluated on."""
    return Node(node.name, node.op, tuple(map(_described, node.inputs)), tuple(map(_described, node.outputs)), node.attrs)


def _described(tensor: gs.Tensor) -> Tensor:
    data = np.asarray(tensor.values) if isinstance(tensor, gs.Constant) else None
    return Tensor(tensor.name, tuple(int(n) for n in tensor.shape), DType.of(tensor.dtype), data)


def add(graph: gs.Graph, op: str, inputs: Sequence[gs.Tensor], output: gs.Tensor, name: str | None = None, **attrs: Any) -> gs.Tensor:
    """Append a lowered node that computes ``output`` and return it; an old producer of ``output`` is disconnected."""
    for old in list(output.inputs):
        old.outputs = [t for t in old.outputs if t is not output]
    graph.nodes.append(gs.Node(op, name or output.name, attrs, list(inputs), [output], domain=DOMAIN))
    return output


def spell(graph: gs.Graph, op: str, inputs: Sequence[gs.Tensor], output: gs.Tensor, name: str = "", **attrs: object) -> gs.Tensor:
    """Append a node in the spelling of the normalised graph, to be lowered by later rules; returns ``output``."""
    graph.nodes.append(gs.Node(op, name or output.name, attrs, list(inputs), [output]))
    return output


def take_over(node: gs.Node) -> gs.Variable:
    """Disconnect the only result of ``node`` and return it."""
    y = node.outputs[0]
    node.outputs.clear()
    return y


def take(graph: gs.Graph, node: gs.Node, indices: Sequence[np.ndarray | None]) -> None:
    """Replace ``node`` by one Gather from its first input for every axis that has indices."""
    x, y = node.inputs[0], take_over(node)
    wanted = [(axis, values) for axis, values in enumerate(indices) if values is not None]
    for axis, values in wanted:
        shape = [*x.shape[:axis], len(values), *x.shape[axis + 1 :]]
        result = y if axis == wanted[-1][0] else variable(f"{y.name} (axis {axis})", x.dtype, shape)
        x = spell(graph, "Gather", [x, const(f"{y.name} (indices {axis})", values, np.int32)], result, axis=axis)
    if not wanted:
        spell(graph, "Reshape", [x], y, node.name)


def reshape(graph: gs.Graph, x: gs.Tensor, shape: Sequence[int], label: str) -> gs.Tensor:
    """``x`` under another shape; a constant is reshaped at once."""
    if isinstance(x, gs.Constant):
        return const(f"{x.name} ({label})", np.asarray(x.values).reshape(shape))
    if list(x.shape) == list(shape):
        return x
    return add(graph, "Reshape", [x], variable(f"{x.name} ({label})", x.dtype, shape))


def transpose(graph: gs.Graph, x: gs.Tensor, perm: Sequence[int], label: str) -> gs.Tensor:
    """``x`` with its axes reordered; a constant is transposed at once."""
    if list(perm) == list(range(len(perm))):
        return x
    if isinstance(x, gs.Constant):
        return const(f"{x.name} ({label})", np.asarray(x.values).transpose(perm))
    return add(graph, "Transpose", [x], variable(f"{x.name} ({label})", x.dtype, [x.shape[p] for p in perm]), perm=tuple(perm))


def image_in(graph: gs.Graph, x: gs.Tensor, label: str) -> gs.Tensor:
    """A channels-first tensor [N,C,W] or [N,C,H,W] as a channels-last image [N,H,W,C]."""
    rank = len(x.shape)
    moved = transpose(graph, x, (0, *range(2, rank), 1), f"channels last for {label}")
    if rank == 3:
        return reshape(graph, moved, [x.shape[0], 1, x.shape[2], x.shape[1]], f"image for {label}")
    return moved


def image_out(graph: gs.Graph, shape: Sequence[int], dtype: Any, output: gs.Tensor) -> gs.Tensor:
    """A new channels-last image whose channels-first form is ``output``, of ``shape`` [N,C,W] or [N,C,H,W]."""
    rank = len(shape)
    last = [shape[0], *shape[2:], shape[1]]
    image = variable(f"{output.name} (channels last)", dtype, last if rank == 4 else [shape[0], 1, shape[2], shape[1]])
    moved = image
    if rank == 3:
        moved = reshape(graph, image, last, "sequence")
    add(graph, "Transpose", [moved], output, perm=(0, rank - 1, *range(1, rank - 1)))
    return image


def spatial(values: Sequence[int], filler: int) -> tuple[int, int]:
    """Two spatial attributes from one or two."""
    return (filler, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))


def pads4(pads: Sequence[int]) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) from ONNX's begins and ends of one or two axes."""
    if len(pads) == 2:
        return 0, int(pads[0]), 0, int(pads[1])
    return int(pads[0]), int(pads[1]), int(pads[2]), int(pads[3])


def window(attrs: Any) -> dict[str, Any]:
    """Strides, dilations and pads of a windowed operator as the integer form has them."""
    return {
        "strides": spatial(attrs["strides"], 1),
        "dilations": spatial(attrs["dilations"], 1),
        "pads": pads4(attrs["pads"]),
    }


def filters(w: np.ndarray) -> np.ndarray:
    """Convolution weights with two spatial axes."""
    return w[:, :, None, :] if w.ndim == 3 else w


def is_image(tensor: gs.Tensor) -> bool:
    """Whether a channels-first tensor has one or two spatial axes."""
    return len(tensor.shape) in (3, 4)
