"""Operators that onnxruntime's optimiser puts together (domain com.microsoft), taken apart again."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from deeploy.frontend.lower.rewriter import Rewriter, standard
from deeploy.graph.rewrite import Pass


def _sum(rw: Rewriter, a: gs.Tensor, b: gs.Tensor | None) -> gs.Tensor:
    return a if b is None else rw.create("Add", a, b)


@standard("BiasGelu", "FastGelu")
def biased_gelu(rw: Rewriter) -> bool:
    return rw.replace("Gelu", _sum(rw, rw.x, rw.input(1)), approximate="tanh" if rw.op == "FastGelu" else "none")


@standard("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norm(rw: Rewriter) -> bool:
    """The norm of the sum of two tensors and perhaps a bias; the sum may be an output, too."""
    centred, results = rw.op == "SkipLayerNormalization", rw.node.outputs
    if any(not t.is_empty() for t in results[1:3]):
        return False
    total = _sum(rw, _sum(rw, rw.x, rw.input(1)), rw.input(4 if centred else 3))
    if len(results) > 3:
        rw.into(results[3], "Reshape", total)
    parameters = [t for t in (rw.input(2), rw.input(3) if centred else None) if t is not None]
    epsilon = float(rw.attrs.get("epsilon", 1e-12 if centred else 1e-5))
    rw.node.outputs = results[:1]
    op = "LayerNormalization" if centred else "RMSNormalization"
    return rw.replace(op, total, *parameters, axis=len(total.shape) - 1, epsilon=epsilon)


@standard("FusedMatMul")
def fused_matmul(rw: Rewriter) -> bool:
    """Transposes of the last two axes, the product, and its scale."""
    if rw.attrs.get("transBatchA", 0) or rw.attrs.get("transBatchB", 0):
        return False
    operands, alpha = list(rw.node.inputs), float(rw.attrs.get("alpha", 1.0))
    for position, flag in enumerate(("transA", "transB")):
        *batch, row, column = range(len(operands[position].shape))
        if rw.attrs.get(flag, 0):
            operands[position] = rw.transpose(operands[position], [*batch, column, row])
    if alpha == 1.0:
        return rw.replace("MatMul", *operands)
    return rw.replace("Mul", rw.create("MatMul", *operands, shape=rw.y.shape, dtype=rw.y.dtype), rw.constant([alpha]))


PASS = Pass("contrib", (biased_gelu, skip_norm, fused_matmul))
