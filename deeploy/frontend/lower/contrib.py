"""Operators that onnxruntime's optimiser puts together (domain com.microsoft), taken apart again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.graph.rewrite import Pass, replace_node, rule


def _input(node: gs.Node, position: int) -> gs.Tensor | None:
    return node.inputs[position] if position < len(node.inputs) and not node.inputs[position].is_empty() else None


def _sum(graph: gs.Graph, a: gs.Tensor, b: gs.Tensor | None, label: str) -> gs.Tensor:
    if b is None:
        return a
    total = build.variable(label, a.dtype, [int(n) for n in np.broadcast_shapes(tuple(a.shape), tuple(b.shape))])
    graph.nodes.append(gs.Node("Add", label, {}, [a, b], [total]))
    return total


def _become(graph: gs.Graph, node: gs.Node, op: str, inputs: Sequence[gs.Tensor], **attrs: object) -> bool:
    y = node.outputs[0]
    replace_node(graph, node, gs.Node(op, node.name, attrs, list(inputs), [y]))
    return True


@rule("BiasGelu", "FastGelu")
def biased_gelu(graph: gs.Graph, node: gs.Node) -> bool:
    x = _sum(graph, node.inputs[0], _input(node, 1), f"{node.outputs[0].name} (biased)")
    return _become(graph, node, "Gelu", [x], approximate="tanh" if node.op == "FastGelu" else "none")


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norm(graph: gs.Graph, node: gs.Node) -> bool:
    """The norm of the sum of two tensors and perhaps a bias; the sum may be an output, too."""
    centred = node.op == "SkipLayerNormalization"
    label = node.outputs[0].name
    total = _sum(graph, node.inputs[0], _input(node, 1), f"{label} (sum)")
    total = _sum(graph, total, _input(node, 4 if centred else 3), f"{label} (biased sum)")
    further = [t for t in node.outputs[1:3] if not t.is_empty()]
    if further:
        return False
    if len(node.outputs) > 3:
        graph.nodes.append(gs.Node("Reshape", f"{label} (second output)", {}, [total], [node.outputs[3]]))
    parameters = [t for t in (_input(node, 2), _input(node, 3) if centred else None) if t is not None]
    attrs = {"axis": len(total.shape) - 1, "epsilon": float(node.attrs.get("epsilon", 1e-12 if centred else 1e-5))}
    node.outputs = node.outputs[:1]
    return _become(graph, node, "LayerNormalization" if centred else "RMSNormalization", [total, *parameters], **attrs)


@rule("FusedMatMul")
def fused_matmul(graph: gs.Graph, node: gs.Node) -> bool:
    """Transposes of the last two axes, the product, and its scale."""
    if node.attrs.get("transBatchA", 0) or node.attrs.get("transBatchB", 0):
        return False
    y, operands = node.outputs[0], []
    for tensor, flag in zip(node.inputs, ("transA", "transB"), strict=True):
        rank = len(tensor.shape)
        if node.attrs.get(flag, 0) and rank > 1:
            perm = [*range(rank - 2), rank - 1, rank - 2]
            moved = build.variable(f"{y.name} ({flag})", tensor.dtype, [tensor.shape[p] for p in perm])
            graph.nodes.append(gs.Node("Transpose", moved.name, {"perm": perm}, [tensor], [moved]))
            tensor = moved
        operands.append(tensor)
    alpha = float(node.attrs.get("alpha", 1.0))
    if alpha == 1.0:
        return _become(graph, node, "MatMul", operands)
    product = build.variable(f"{y.name} (product)", y.dtype, y.shape)
    graph.nodes.append(gs.Node("MatMul", product.name, {}, operands, [product]))
    return _become(graph, node, "Mul", [product, build.const(f"{y.name} (alpha)", [alpha], np.float32)])


PASS = Pass("contrib", (biased_gelu, skip_norm, fused_matmul))
