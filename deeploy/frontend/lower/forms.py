"""Forms of quantisation besides QuantizeLinear and DequantizeLinear, as what they stand for.

Quantised operators (QLinearConv, QGemm...) dequantise, compute, quantise: one set of rules then lowers both spellings. Where scales are
computed at run time, the smallest and the largest element give scale and zero point.

Quantisation is also written in standard operators: Div, Add, Round, Clip, and back Sub, Mul. Only what is the same in every bit is
recognised: the chain rounds the sum of quotient and zero point, ``Quantize`` the quotient, so the zero point must be 0. The operators in
between stay in floats; what is gained are one kernel instead of four, and 8-bit storage.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deeploy.frontend.lower.quant import BYTES
from deeploy.frontend.schemas import QUANTISED
from deeploy.ir.nodes import Node, Tensor, compute, constant
from deeploy.ir.rewriting import Match, Pass, Result, need, require, standard
from deeploy.ir.types import DType
from deeploy.operators.dynamic import LEVELS, SCALE


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


OPERATORS = Pass("qoperator", (spelled_out,))


_ROW = 1024  # elements, from which on extremes are found in two steps


@standard("DynamicQuantizeLinear", lowers=True)
def recognise_dynamic(m: Match) -> Result:
    """The extremes, what follows from them, and a Quantize."""
    extremes = tuple(_find_extreme(m, op) for op in ("ReduceMin", "ReduceMax"))
    results = (Tensor("", (1,), dtype, label=label) for label, dtype in (("scale", DType.FLOAT32), ("zero point", DType.INT32)))
    scale, zero = Node("", SCALE.name, extremes, tuple(results)).outputs
    parts = m.replace("Quantize", m.x, scale, zero, low=0, high=LEVELS), scale, zero.cast(DType.UINT8)
    return {y: part.reshape(y.shape) for y, part in zip(m.node.outputs, parts, strict=False)}


def _find_extreme(m: Match, op: str) -> Tensor:
    """The smallest or the largest element, of shape [1]: of rows first, which may be cut into tiles."""
    shape, is_channels_first = m.x.shape, any(reader.op == "ConvInteger" for reader in m.readers(m.y))
    rows = next((axis for axis, n in enumerate(shape) if n > 1 and not (is_channels_first and axis == 1)), None)
    x = m.x.reshape(shape or [1])
    if x.elements > _ROW and rows is not None and x.rank > 1:
        x = compute(op, x, axes=tuple(axis for axis in range(x.rank) if axis != rows), keepdims=False, label=f"{op} of rows")
    return compute(op, x, axes=tuple(range(x.rank)), keepdims=True).reshape([1])


DYNAMIC = Pass("dynamic", (recognise_dynamic,))


@standard("Clip", lowers=True)
def recognise_steps(m: Match, x: Tensor, *, min: Any = None, max: Any = None) -> Result:
    """Clip(Round(x / scale [+ 0])) to an 8-bit range: the steps of a Quantize, as floats."""
    numbers = dict[str, float | None]()
    for op in ("Round", "Add", "Div"):
        if node := m.only_source(x, op):
            x, numbers[op] = node.operands[0], node.operands[-1].number
    low, high, scale = need(min), need(max), need(numbers.get("Div"))
    dtype = need(next((dtype for dtype in BYTES if dtype.holds(low, high)), None))
    require(low == int(low) <= high == int(high), x.shape == m.y.shape, "Round" in numbers, numbers.get("Add", 0) == 0, scale > 0)
    parameters = constant([scale], DType.FLOAT32), constant([0], DType.INT32)
    integers = compute("Quantize", x, *parameters, dtype=dtype, called=m.node.name, low=int(low), high=int(high))
    return _dequantise_steps(m, integers, 1, 0, called=f"{m.node.name} (real)")


def _dequantise_steps(m: Match, x: Tensor, scale: float, zero: float, called: str = "") -> Tensor:
    return m.replace("Dequantize", x, constant([scale], DType.FLOAT32), constant([zero], DType.INT32), called=called)


def _find_integers(tensor: Tensor) -> Tensor:
    """The 8-bit tensor whose values ``tensor`` has as floats."""
    match tensor.maker:
        case Node(op="Dequantize", operands=(x, Tensor(number=1), Tensor(number=0))) | Node(op="Cast", is_lowered=False, operands=(x,)):
            return need(x if x.dtype in BYTES and tensor.dtype.is_float else None)
    return need(None)


@standard("Mul", lowers=True)
def recognise_reals(m: Match, x: Tensor, scale: float) -> Result:
    """(q [- zero_point]) * scale of 8-bit steps: a Dequantize."""
    subtraction = m.source(x, "Sub")
    x, zero = (subtraction.operands[0], need(subtraction.operands[1].number)) if subtraction else (x, 0)
    integers = _find_integers(x)
    require(zero % 1 == 0, abs(zero) <= 2**16, integers.shape == m.y.shape)
    return _dequantise_steps(m, integers, scale, zero)


@standard("Cast", lowers=True)
def remove_cast(m: Match, x: Tensor) -> Result:
    """Steps that are cast to the 8-bit type they have already."""
    integers = _find_integers(x)
    require(integers.dtype is m.y.dtype)
    return integers


CHAINS = Pass("chains", (recognise_steps, recognise_reals, remove_cast))
