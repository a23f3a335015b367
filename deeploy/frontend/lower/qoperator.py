"""Quantised operators (QLinearConv, QGemm...) as what they stand for: dequantise, compute, quantise.

One set of rules then lowers both spellings.
"""

from __future__ import annotations

import numpy as np

from deeploy.frontend.lower.rewriter import Rewriter, standard
from deeploy.frontend.schemas import QUANTISED
from deeploy.graph.rewrite import Pass


@standard(*QUANTISED)
def spelled_out(rw: Rewriter) -> bool:
    """The float operator between DequantizeLinear and QuantizeLinear."""
    form, inputs = QUANTISED[rw.op], rw.node.inputs
    attrs = {name: value for name, value in rw.attrs.items() if name not in ("opset", "channels_last")}
    op, rank = form.op, len(rw.x.shape)
    axis = {"Conv": 0, "Gemm": 1 - attrs.get("transB", 0), "MatMul": -1}.get(op, 0)
    if op == "Gemm":
        attrs["beta"] = 1.0
    if rw.op == "QLinearSoftmax":
        recent = rw.attrs.get("opset", 13) >= 13
        attrs.setdefault("axis", rank - 1 if recent else 1)
        if not recent and any(n != 1 for n in rw.x.shape[attrs["axis"] + 1 :]):
            return False
    if rw.attrs.get("channels_last", 0):
        op, attrs = "ReduceMean", {"axes": list(range(1, rank - 1)), "keepdims": 1}
        if form.op != "GlobalAveragePool" or list(rw.y.shape) != [rw.x.shape[0], *[1] * (rank - 2), rw.x.shape[-1]]:
            return False
    operands = []
    for position in form.operands(len(inputs)):
        x, *parameters = inputs[position : position + 3]
        along = axis % max(1, len(x.shape)) if position else 0
        parameters = [t for t in parameters if not t.is_empty()]
        operands.append(rw.create("DequantizeLinear", x, *parameters, dtype=np.float32, axis=along))
    if form.bias is not None and (bias := rw.input(form.bias)) is not None:
        unit, scales = rw.value(1), rw.value(4)
        if unit is None or scales is None:
            return False
        # The kernel of QGemm adds the bias to the sum of products before it multiplies by alpha.
        product = rw.constant(unit.ravel()[0] * np.float32(attrs.get("alpha", 1)) * scales, np.float32)
        operands.append(rw.create("DequantizeLinear", bias, product, dtype=np.float32, axis=0))
    real = rw.create(op, *operands, shape=rw.y.shape, **attrs)
    ends = [t for t in (rw.input(form.result), rw.input(form.result + 1)) if t is not None]
    return rw.replace("QuantizeLinear", real, *ends, axis=1) if ends else rw.finish(real)


PASS = Pass("qoperator", (spelled_out,))
