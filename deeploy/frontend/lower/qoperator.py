"""Quantised operators (QLinearConv, QGemm...) as what they stand for: dequantise, compute, quantise.

One set of rules then lowers both spellings. The integer operators of ONNX (ConvInteger, MatMulInteger) are lowered here.
"""

from __future__ import annotations

import numpy as np

from deeploy.frontend.lower import build
from deeploy.frontend.lower.quant import Quantised, centred
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


def _centred_input(rw: Rewriter, axis: int) -> np.ndarray | None:
    """The constant weights minus their zero points, which lie along an axis of theirs; None where they are not constant."""
    zero = rw.value(3) if rw.input(3) is not None else np.zeros(1, np.int64)
    weights = rw.node.inputs[1]
    if zero is None or zero.size not in (1, weights.shape[axis]):
        return None
    return centred(Quantised(weights, np.ones(1, np.float32), zero.astype(np.int64).ravel(), axis))


def _scalar(rw: Rewriter, position: int) -> int | None:
    """A constant scalar input as an int; 0 where it is absent, None where it is something else."""
    if rw.input(position) is None:
        return 0
    value = rw.value(position)
    return int(value.item()) if value is not None and value.size == 1 else None


@standard("MatMulInteger", lowers=True)
def matmul_integer(rw: Rewriter) -> bool:
    a, b = rw.node.inputs[:2]
    zero, weight_zero = _scalar(rw, 2), _scalar(rw, 3)
    if zero is None or min(len(a.shape), len(b.shape)) < 2:
        return False
    if weight_zero is None:
        weights = _centred_input(rw, len(b.shape) - 1)
        if weights is None:
            return False
        b, weight_zero = rw.constant(weights), 0
    return rw.replace("MatMul", a, b, trans_a=False, trans_b=False, a_zero_point=zero, b_zero_point=weight_zero)


@standard("ConvInteger", lowers=True)
def conv_integer(rw: Rewriter) -> bool:
    zero, weights = _scalar(rw, 2), _centred_input(rw, 0)
    if zero is None or weights is None or not build.is_image(rw.x):
        return False
    correction = -zero * weights.astype(np.int64).sum(axis=tuple(range(1, weights.ndim)))
    stored, bias = rw.constant(build.filters(weights)), rw.constant(correction, np.int32)
    attrs = {**build.window(rw.attrs), "group": rw.attrs["group"], "zero_point": zero, "epilogue": ("bias",)}
    image = build.image_out(rw.graph, rw.y.shape, np.int32, rw.y)
    build.add(rw.graph, "Conv", [build.image_in(rw.graph, rw.x, rw.node.name), stored, bias], image, rw.node.name, **attrs)
    return True


PASS = Pass("qoperator", (spelled_out, matmul_integer, conv_integer))
