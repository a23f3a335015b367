"""Quantised operators (QLinearConv, QGemm...) as what they stand for: dequantise, compute, quantise.

One set of rules then lowers both spellings.
"""

from __future__ import annotations

import math

import numpy as np

from deeploy.frontend.schemas import QUANTISED
from deeploy.graph.nodes import Tensor, compute, constant
from deeploy.graph.rewriting import Match, Pass, Result, need, require, standard
from deeploy.graph.types import DType


@standard(*QUANTISED)
def spelled_out(m: Match) -> Result:
    """The float operator between DequantizeLinear and QuantizeLinear."""
    form, inputs, shape = QUANTISED[m.op], m.node.inputs, m.x.shape
    op, attrs = form.op, {name: value for name, value in m.attrs.items() if name not in ("opset", "channels_last")}
    if op == "Softmax":
        is_recent = m.attrs.get("opset", 13) >= 13
        axis = attrs.setdefault("axis", m.x.rank - 1 if is_recent else 1)
        require(is_recent or math.prod(shape[axis + 1 :]) == 1)
    if m.attrs.get("channels_last", 0):
        axes = list(range(1, m.x.rank - 1))
        require(op == "GlobalAveragePool", m.y.shape == (shape[0], *(1 for _ in axes), shape[-1]))
        op, attrs = "ReduceMean", {"axes": axes, "keepdims": 1}

    def dequantise(*operands: Tensor | None, axis: int = 0) -> Tensor:
        given = [tensor for tensor in operands if tensor is not None]
        return compute("DequantizeLinear", *given, dtype=DType.FLOAT32, axis=axis % max(1, given[0].rank))

    channels = {"Gemm": 1 - attrs.get("transB", 0), "MatMul": -1}.get(op, 0)  # the axis of the weights' scales
    operands = [dequantise(*inputs[i : i + 3], axis=channels if i else 0) for i in form.operands(len(inputs))]
    bias = None if form.bias is None else m.input(form.bias)
    if op == "Gemm":
        attrs["beta"] = 1.0
    if bias is not None:
        unit, scales = need(m.value(1)), need(m.value(4))
        # The kernel of QGemm adds the bias to the sum of products before it multiplies by alpha.
        operands.append(dequantise(bias, constant(unit.ravel()[0] * np.float32(attrs.get("alpha", 1)) * scales, DType.FLOAT32)))
    real = compute(op, *operands, shape=m.y.shape, **attrs)
    ends = [tensor for tensor in inputs[form.result : form.result + 2] if tensor is not None]
    return m.replace("QuantizeLinear", real, *ends, axis=1) if ends else real


PASS = Pass("qoperator", (spelled_out,))
