"""One rule for every operator of ONNX, on tensors that carry a scale and a zero point, or none.

Two passes apply them. First, where a quantisation follows: the operands behind DequantizeLinear are integers, and the result is that of the
QuantizeLinear, whose output keeps its name. Data movement sinks below DequantizeLinear and rises above QuantizeLinear,
so that what lies between the two is always the operator itself. What no rule takes stays in floats between a Dequantize and a Quantize:
slower, and right. Then every operator that is left, in whatever type it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from deeploy.frontend.lower import movement, pointwise, products, rows
from deeploy.frontend.lower.affine import quantise_affine
from deeploy.frontend.lower.call import Call
from deeploy.frontend.lower.lookup import UNARY, limits, look_up, table
from deeploy.frontend.lower.quant import Quantised, byte, dequantised, quantised
from deeploy.frontend.schemas import DIALECT_OPS
from deeploy.graph.nodes import compute
from deeploy.graph.rewriting import Match, Pass, Result, standard

Lowering = Callable[[Call], Result]


def _by_operator(table: dict[Lowering, str]) -> dict[str, Lowering]:
    return {op: lower for lower, ops in table.items() for op in ops.split()}


# Those that also compute quantised results from quantised operands.
_QUANTISED = _by_operator(
    {
        pointwise.arithmetic: "Add Sub Mul Div",
        pointwise.batch_norm: "BatchNormalization",
        pointwise.binary: "Max Min",
        pointwise.concat: "Concat",
        pointwise.prelu: "PRelu",
        pointwise.where: "Where",
        products.convolution: "Conv ConvTranspose",
        products.product: "Gemm MatMul",
        rows.norm: " ".join(rows.CENTRED),
        rows.pool: "AveragePool",
        rows.reduction: "GlobalAveragePool ReduceMean ReduceSum",
        rows.softmax: "Softmax",
    }
)
# Those that are no functions of one float tensor.
_RULES = {
    **dict.fromkeys((*pointwise.BINARY, "BitwiseNot"), pointwise.binary),
    **_QUANTISED,
    **_by_operator(
        {
            movement.cast: "Cast",
            movement.gather: "Gather",
            movement.movement: "Reshape Transpose Slice Pad Expand",
            movement.split: "Split",
            pointwise.clip: "Relu Clip",
            pointwise.compared_with_zero: "Not",
            pointwise.negative: "Neg",
            pointwise.quantisation: "QuantizeLinear DequantizeLinear",
            pointwise.size: "Abs",
            products.integer_convolution: "ConvInteger",
            products.integer_product: "MatMulInteger",
            rows.extreme: "ArgMax ArgMin",
            rows.pool: "MaxPool",
            rows.reduction: "ReduceMax ReduceMin ReduceProd GlobalMaxPool IntegerMean",
        }
    ),
}
# What a kernel of the same name runs in the integer form only.
LOWERED = frozenset((*_RULES, *UNARY)) | DIALECT_OPS | {"GRU", "LSTM", "RNN"}

_RISING = ("Reshape", "Transpose", "Slice", "Gather", "MaxPool", "Pad", "GlobalMaxPool", "ReduceMax", "ReduceMin")


@standard(*_RISING, "Split", "Expand")
def sink(m: Match) -> Result:
    """Movement of dequantised values: move the integers, then dequantise."""
    x, front, results, attrs = dequantised(m.x), m.x.maker, m.node.outputs, dict(m.attrs)
    is_table = x is not None and x.tensor.data is not None and m.op != "Gather"
    if x is None or front is None or not x.is_scalar or is_table or not all(y.name for y in results):
        return None
    if attrs.get("mode") == "constant":
        value = attrs["value"] = _padding(m, x)
        if value is None:
            return None
    integers = [replace(y, name="", dtype=x.tensor.dtype, label="quantised") for y in results]
    moved = m.node.another(inputs=(x.tensor, *m.node.inputs[1:]), outputs=integers, attrs=attrs).outputs
    return {
        y: compute("DequantizeLinear", tensor, *front.inputs[1:], dtype=y.dtype, called=y.name, axis=0)
        for y, tensor in zip(results, moved, strict=True)
    }


def _padding(m: Match, x: Quantised) -> int | None:
    """What a Pad of dequantised values pads the integers with; None where no integer stands for it."""
    value, (low, high), readers = m.attrs["value"], x.tensor.dtype.range, [quantised(reader) for reader in m.readers(m.y)]
    same = [y is not None and y.is_scalar and (y.s, y.z, y.tensor.dtype) == (x.s, x.z, x.tensor.dtype) for y in readers]
    if same and all(same):  # whatever it is, it is quantised in the same way
        return int(x.quantise(value))
    steps = value / x.s + x.z
    return None if abs(steps - round(steps)) > 1e-3 or not low <= round(steps) <= high else round(steps)


@standard("QuantizeLinear")
def rise(m: Match) -> Result:
    """Quantisation of reordered, selected or padded values: quantise first, which keeps the order of values."""
    mover, y = m.only_source(m.x, *_RISING), quantised(m.node)
    if mover is None or len(mover.outputs) != 1 or mover.operands[0].maker is None or y is None or not y.is_scalar:
        return None
    attrs = dict(mover.attrs)
    if attrs.get("mode") == "constant":
        attrs["value"] = int(y.quantise(attrs["value"]))
    early = compute("QuantizeLinear", mover.operands[0], *m.inputs[1:], dtype=m.y.dtype, called=m.node.name, axis=0)
    return m.replace(mover.op, early, *mover.inputs[1:], called=mover.name, **attrs)


@standard("Relu", "Clip")
def limit(m: Match) -> Result:
    """Reordered values that are limited and then quantised: limit first, next to the operator that computes them."""
    mover, readers = m.only_source(m.x, "Reshape", "Transpose"), [reader.op for reader in m.readers(m.y)]
    if mover is None or readers != ["QuantizeLinear"] or m.is_output(m.y):
        return None
    return m.replace(mover.op, compute(m.op, mover.operands[0], **m.attrs), *mover.inputs[1:], **mover.attrs)


@standard("QuantizeLinear", lowers=True)
def quantised_operator(m: Match) -> Result:
    """The operator in front of a quantisation, when its operands are quantised; limits in between are limits of the result.

    An expression of one dequantised 8-bit tensor alone is a table, or nothing where it is the identity.
    """
    y = byte(quantised(m.node))
    if y is None:
        return None
    found = table(m.x, y)
    if found is not None:
        return look_up(m, *found)
    low, high = y.tensor.dtype.range
    source = m.source(m.x)
    while source is not None and (ends := limits(source)) is not None and len(m.readers(source.outputs[0])) == 1:
        # What this one leaves passes through the limits behind it.
        steps = [end if value is None else int(y.quantise(value)) for value, end in zip(ends, (low, high), strict=True)]
        low, high = np.clip(steps, low, high).tolist()
        source = m.source(source.operands[0])
    if source is None or source.op not in _QUANTISED:
        return None
    return _QUANTISED[source.op](Call(m, source, y, low, max(low, high)))


@standard(*LOWERED, lowers=True)
def operator(m: Match) -> Result:
    """Every operator by its own rule; one that does not apply leaves the node for binding to report."""
    call = Call(m)
    return pointwise.unary(call) or (_RULES[m.op](call) if m.op in _RULES else None)


QUANTISED = Pass("qdq", (sink, limit, rise, quantise_affine, quantised_operator))
PASS = Pass("operators", (operator,))
