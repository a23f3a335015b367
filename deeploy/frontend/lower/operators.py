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

from deeploy.frontend.lower import pointwise, products, rows
from deeploy.frontend.lower.affine import find_axis, quantise_affine
from deeploy.frontend.lower.lookup import UNARY, look_up, lookup_table, relu_limits
from deeploy.frontend.lower.quant import Quantised, behind_dequantisation, byte_tensor, quantised_result
from deeploy.frontend.lower.rule_call import RuleCall, gather_indices
from deeploy.frontend.schemas import DIALECT_OPS, SELECTING
from deeploy.ir.nodes import Tensor, compute
from deeploy.ir.rewriting import Match, Pass, Result, need, require, standard
from deeploy.ir.types import DType
from deeploy.operators.recurrent import GATES

Lowering = Callable[[RuleCall], Result]


def _lower_move(call: RuleCall) -> Result:
    """Reshape, Transpose, Slice, Pad, Expand: the same operator of the integer form."""
    attrs = {name: tuple(value) if isinstance(value, list) else value for name, value in call.attrs.items() if name != "to"}
    require(attrs.get("mode", "edge") in ("constant", "reflect", "edge"))
    return call.replace(call.op, *call.inputs, **attrs)


def _lower_cast(call: RuleCall) -> Result:
    """A Cast to bool asks whether an element differs from zero."""
    return pointwise.compare_with_zero(call, "not_equal") if call.y.dtype is DType.BOOL else _lower_move(call)


def _lower_gather(call: RuleCall) -> Result:
    return call.replace(call.op, call.x, gather_indices(call), axis=call.attrs["axis"])


def _lower_split(call: RuleCall) -> Result:
    """Slices, which a transpose can pass one by one."""
    extents = call.attrs["split"]
    parts = zip(call.node.outputs, np.cumsum(extents).tolist(), extents, strict=True)
    return {part: call.x.cut(call.attrs["axis"], end - extent, end) for part, end, extent in parts}


def _by_operator(table: dict[Lowering, str]) -> dict[str, Lowering]:
    return {op: lower for lower, ops in table.items() for op in ops.split()}


# Those that also compute quantised results from quantised operands.
_QUANTISED = _by_operator(
    {
        pointwise.lower_arithmetic: "Add Sub Mul Div",
        pointwise.batch_norm: "BatchNormalization",
        pointwise.lower_binary: "Max Min",
        pointwise.lower_concat: "Concat",
        pointwise.lower_prelu: "PRelu",
        pointwise.lower_where: "Where",
        products.lower_convolution: "Conv ConvTranspose",
        products.lower_product: "Gemm MatMul",
        rows.lower_norm: " ".join(rows.CENTRED),
        rows.lower_pool: "AveragePool",
        rows.lower_reduction: "GlobalAveragePool ReduceMean ReduceSum",
        rows.lower_softmax: "Softmax",
    }
)
# Those that are no functions of one float tensor.
_RULES = {
    **dict.fromkeys(pointwise.BINARY, pointwise.lower_binary),
    **_QUANTISED,
    **_by_operator(
        {
            _lower_cast: "Cast",
            _lower_gather: "Gather",
            _lower_move: "Reshape Transpose Slice Pad Expand",
            _lower_split: "Split",
            pointwise.lower_clip: "Relu Clip",
            pointwise.compare_with_zero: "Not",
            pointwise.lower_negative: "Neg",
            pointwise.lower_quantisation: "QuantizeLinear DequantizeLinear",
            pointwise.lower_abs: "Abs",
            products.integer_convolution: "ConvInteger",
            products.integer_product: "MatMulInteger",
            rows.lower_extreme: "ArgMax ArgMin",
            rows.lower_pool: "MaxPool",
            rows.lower_reduction: "ReduceMax ReduceMin ReduceProd GlobalMaxPool IntegerMean",
        }
    ),
}
# What a kernel of the same name runs in the integer form only.
LOWERED = frozenset((*_RULES, *UNARY, *GATES)) | DIALECT_OPS


@standard(*SELECTING, "Split", "Expand")
def sink_movement(m: Match) -> Result:
    """Movement of dequantised values: move the integers, then dequantise."""
    x, front, results, attrs = need(behind_dequantisation(m.x)), need(m.x.maker), m.node.outputs, dict(m.attrs)
    require(x.is_scalar, x.tensor.data is None or m.op == "Gather", all(y.name for y in results))
    if attrs.get("mode") == "constant":
        attrs["value"] = _pad_with(m, x)
    integers = [replace(y, name="", dtype=x.tensor.dtype, label="quantised") for y in results]
    moved = m.node.another(inputs=(x.tensor, *m.node.inputs[1:]), outputs=integers, attrs=attrs).outputs
    return {
        y: compute("DequantizeLinear", tensor, *front.inputs[1:], dtype=y.dtype, called=y.name, axis=0)
        for y, tensor in zip(results, moved, strict=True)
    }


@standard("Reshape", "Transpose")
def view_constant(m: Match, x: Tensor) -> Tensor:
    """A view of a dequantised constant: the integers are moved at once, and with them the axis of several scales."""
    q, front, order = need(behind_dequantisation(x)), need(x.maker), m.attrs.get("perm")
    require(q.tensor.data is not None)
    moved = q.tensor.reshape(m.y.shape) if order is None else q.tensor.transpose(order)
    axis = 0 if q.is_scalar else find_axis(x.shape, m.y.shape, q.axis) if order is None else list(order).index(q.axis)
    return compute("DequantizeLinear", moved, *front.inputs[1:], dtype=m.y.dtype, axis=axis)


def _pad_with(m: Match, x: Quantised) -> int:
    """What a Pad of dequantised values pads the integers with, which has to stand for it."""
    value: float = m.attrs["value"]
    readers = [quantised_result(reader) for reader in m.readers(m.y)]
    same = [y is not None and y.is_scalar and (y.s, y.z, y.tensor.dtype) == (x.s, x.z, x.tensor.dtype) for y in readers]
    if same and all(same):  # whatever it is, it is quantised in the same way
        return int(x.quantise(value))
    steps = value / x.s + x.z
    require(abs(steps - round(steps)) <= 1e-3 and x.tensor.dtype.holds(round(steps), round(steps)))
    return round(steps)


@standard("QuantizeLinear")
def raise_quantise(m: Match) -> Result:
    """Quantisation of reordered, selected or padded values: quantise first, which keeps the order of values."""
    mover, y = need(m.only_source(m.x, *SELECTING)), need(quantised_result(m.node))
    x, *others = mover.inputs
    require(len(mover.outputs) == 1, need(x).maker, y.is_scalar)
    attrs = dict(mover.attrs)
    if attrs.get("mode") == "constant":
        attrs["value"] = int(y.quantise(attrs["value"]))
    early = compute("QuantizeLinear", x, *m.inputs[1:], dtype=m.y.dtype, called=m.node.name, axis=0)
    return m.replace(mover.op, early, *others, called=mover.name, **attrs)


@standard("Relu", "Clip")
def limit_first(m: Match) -> Result:
    """Reordered values that are limited and then quantised: limit first, next to the operator that computes them."""
    mover = need(m.only_source(m.x, "Reshape", "Transpose"))
    require([reader.op for reader in m.readers(m.y)] == ["QuantizeLinear"], not m.is_output(m.y))
    return m.replace(mover.op, compute(m.op, mover.operands[0], **m.attrs), *mover.inputs[1:], **mover.attrs)


@standard("QuantizeLinear", lowers=True)
def quantised_operator(m: Match) -> Result:
    """The operator in front of a quantisation, when its operands are quantised; limits in between are limits of the result.

    An expression of one dequantised 8-bit tensor alone is a table, or nothing where it is the identity.
    """
    y = need(byte_tensor(quantised_result(m.node)))
    entries = lookup_table(m.x, y)
    if entries is not None:
        return look_up(*entries)
    low, high = y.tensor.dtype.range
    source = need(m.source(m.x))
    while (ends := relu_limits(source)) is not None and len(m.readers(source.outputs[0])) == 1:
        # What this one leaves passes through the limits behind it.
        steps = [end if value is None else int(y.quantise(value)) for value, end in zip(ends, (low, high), strict=True)]
        low, high = np.clip(steps, low, high).tolist()
        source = need(m.source(source.operands[0]))
    return need(_QUANTISED.get(source.op))(RuleCall(m, source, y, low, max(low, high)))


@standard(*LOWERED, lowers=True)
def lower_operator(m: Match) -> Result:
    """Every operator by its own rule; one that does not apply leaves the node for binding to report."""
    call = RuleCall(m)
    return pointwise.lower_unary(call) or need(_RULES.get(m.op))(call)


QUANTISED = Pass("qdq", (view_constant, sink_movement, limit_first, raise_quantise, quantise_affine, quantised_operator))
PASS = Pass("operators", (lower_operator,))
