"""One rule for every operator of ONNX, on tensors that carry a scale and a zero point, or none.

Two passes apply them. First, where a quantisation follows: the operands behind DequantizeLinear are integers, and the result is that of the
QuantizeLinear, whose output keeps its tensor (and name). Data movement sinks below DequantizeLinear and rises above QuantizeLinear,
so that what lies between the two is always the operator itself. What no rule takes stays in floats between a Dequantize and a Quantize:
slower, and right. Then every operator that is left, in whatever type it has.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build, movement, pointwise, products, rows
from deeploy.frontend.lower.call import Call
from deeploy.frontend.lower.lookup import UNARY, joined_sum, tabulate
from deeploy.frontend.lower.quant import Quantised, dequantised, limits, quantise_values, quantised
from deeploy.frontend.lower.rewriter import Rewriter, standard
from deeploy.frontend.schemas import DIALECT_OPS
from deeploy.graph.rewrite import Pass, only_consumer, producer, rule

Lowering = Callable[[Call], bool]

# Those that also compute quantised results from quantised operands.
_QUANTISED: dict[str, Lowering] = {
    **dict.fromkeys(("Conv", "ConvTranspose"), products.convolution),
    **dict.fromkeys(("Gemm", "MatMul"), products.product),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), pointwise.arithmetic),
    **dict.fromkeys(("Max", "Min"), pointwise.binary),
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean", "ReduceSum"), rows.reduction),
    **dict.fromkeys(rows.CENTRED, rows.norm),
    "AveragePool": rows.pool,
    "BatchNormalization": pointwise.batch_norm,
    "Concat": pointwise.concat,
    "PRelu": pointwise.prelu,
    "Softmax": rows.softmax,
    "Where": pointwise.where,
}
RULES: dict[str, Lowering] = {
    **_QUANTISED,
    **dict.fromkeys((*UNARY, "Gelu"), pointwise.unary),
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"), pointwise.binary),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift", "Mod"), pointwise.bits),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceProd", "GlobalMaxPool", "IntegerMean"), rows.reduction),
    **dict.fromkeys(("Relu", "Clip"), pointwise.clip),
    **dict.fromkeys(("ArgMax", "ArgMin"), rows.extreme),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), pointwise.quantisation),
    **dict.fromkeys(("Reshape", "Transpose", "Slice", "Pad", "Expand"), movement.movement),
    "Abs": pointwise.size,
    "Cast": movement.cast,
    "Gather": movement.gather,
    "ConvInteger": products.integer_convolution,
    "MatMulInteger": products.integer_product,
    "MaxPool": rows.pool,
    "Neg": pointwise.negative,
    "Not": pointwise.compared_with_zero,
    "Pow": pointwise.power,
    "Split": movement.split,
}
LOWERED = frozenset(RULES) | DIALECT_OPS | {"GRU", "LSTM", "RNN"}  # what a kernel of the same name runs in the integer form only

_RISING = ("Reshape", "Transpose", "Slice", "Gather", "MaxPool", "Pad", "GlobalMaxPool", "ReduceMax", "ReduceMin")


@standard(*_RISING, "Split", "Expand")
def sink(rw: Rewriter) -> bool:
    """Movement of dequantised values: move the integers, then dequantise."""
    q, results, attrs = dequantised(rw.x), list(rw.node.outputs), dict(rw.attrs)
    is_table = q is not None and isinstance(q.tensor, gs.Constant) and rw.op != "Gather"
    if q is None or not q.is_scalar or is_table or any(t.is_empty() for t in results):
        return False
    if rw.op == "Pad" and attrs["mode"] == "constant":
        value = _pad_value(rw, q, attrs["value"])
        if value is None:
            return False
        attrs["value"] = value
    moved = [build.variable(f"{y.name} (quantised)", q.tensor.dtype, y.shape) for y in results]
    rw.node.outputs.clear()
    rw.graph.nodes.append(gs.Node(rw.op, rw.node.name, attrs, [q.tensor, *rw.node.inputs[1:]], moved))
    for y, m in zip(results, moved, strict=True):
        rw.into(y, "DequantizeLinear", m, *rw.x.inputs[0].inputs[1:], axis=0)
    return True


def _pad_value(rw: Rewriter, q: Quantised, value: float) -> int | None:
    """What a Pad of dequantised values pads the integers with; None where no integer stands for it."""
    low, high = limits(q.tensor)
    found = [quantised(reader) if reader.op == "QuantizeLinear" else None for reader in rw.y.outputs]
    same = [f is not None and f.is_scalar and (f.s, f.z, f.tensor.dtype) == (q.s, q.z, q.tensor.dtype) for f in found]
    if same and all(same):  # whatever it is, it is quantised in the same way
        return int(quantise_values(np.asarray(value), q.s, q.z, low, high))
    steps = value / q.s + q.z
    return None if abs(steps - round(steps)) > 1e-3 or not low <= round(steps) <= high else round(steps)


@standard("QuantizeLinear")
def rise(rw: Rewriter) -> bool:
    """Quantisation of reordered, selected or padded values: quantise first, which keeps the order of values."""
    mover, found = producer(rw.x), quantised(rw.node)
    if mover is None or mover.op not in _RISING or build.lowered(mover) or found is None or not found.is_scalar:
        return False
    is_output = any(rw.x is out for out in rw.graph.outputs)
    if len(mover.outputs) != 1 or len(rw.x.outputs) != 1 or is_output or producer(mover.inputs[0]) is None:
        return False
    attrs = dict(mover.attrs)
    if mover.op == "Pad" and attrs["mode"] == "constant":
        attrs["value"] = int(quantise_values(np.asarray(attrs["value"]), found.s, found.z, *limits(rw.y)))
    early = rw.create("QuantizeLinear", mover.inputs[0], *rw.node.inputs[1:], dtype=rw.y.dtype, axis=0)
    early.inputs[0].name, name = rw.node.name, mover.name
    rw.replace(mover.op, early, *mover.inputs[1:], **attrs)
    rw.y.inputs[0].name = name
    return True


@standard("Relu", "Clip")
def limit(rw: Rewriter) -> bool:
    """Reordered values that are limited and then quantised: limit first, next to the operator that computes them."""
    mover, reader = rw.only_source(rw.x, "Reshape", "Transpose"), only_consumer(rw.graph, rw.y)
    if mover is None or reader is None or reader.op != "QuantizeLinear":
        return False
    return rw.replace(mover.op, rw.create(rw.op, mover.inputs[0], **rw.attrs), *mover.inputs[1:], **mover.attrs)


@rule("QuantizeLinear")
def quantised_operator(graph: gs.Graph, node: gs.Node) -> bool:
    """The operator in front of a quantisation, when its operands are quantised; limits in between are limits of the result."""
    y = quantised(node)
    if y is None or not y.is_scalar or not y.is_byte:
        return False
    if _lookup(Call(graph, node), y):
        return True
    low, high = limits(y.tensor)
    source = producer(node.inputs[0])
    while source is not None and source.op in ("Relu", "Clip") and len(source.outputs[0].outputs) == 1 and not build.lowered(source):
        bottom, top = (0.0, None) if source.op == "Relu" else (source.attrs["min"], source.attrs["max"])
        # What this one leaves passes through the limits behind it.
        ends = (low if bottom is None else _steps(bottom, y), high if top is None else _steps(top, y))
        low, high = (min(max(end, low), high) for end in ends)
        source = producer(source.inputs[0])
    if source is None or build.lowered(source) or source.op not in _QUANTISED:
        return False
    return _QUANTISED[source.op](Call(graph, source, node, y, low, max(low, high)))


def _steps(value: float, y: Quantised) -> int:
    return int(quantise_values(np.asarray(value), y.s, y.z, *limits(y.tensor)))


def _lookup(call: Call, y: Quantised) -> bool:
    """An expression of one dequantised 8-bit tensor alone: a table, or nothing where it is the identity."""
    joined = joined_sum(call.x, y)
    found = joined or tabulate(call.x)
    x, reals = found if found is not None else (None, np.zeros(0))
    if x is None or isinstance(x.tensor, gs.Constant):
        return False
    scale, zero = (1.0, 0) if joined is not None else (y.s, y.z)
    values = quantise_values(reals, scale, zero, *limits(y.tensor)).astype(y.tensor.dtype)
    first, last = limits(x.tensor)
    if np.dtype(x.tensor.dtype) == values.dtype and np.array_equal(values, np.arange(first, last + 1)):
        return call.replace("Reshape", x.tensor)
    return call.replace("Lookup", x.tensor, call.constant(values, label="table"))


@rule(*RULES)
def operator(graph: gs.Graph, node: gs.Node) -> bool:
    """Every operator by its own rule; one that does not apply leaves the node for binding to report."""
    return not build.lowered(node) and RULES[node.op](Call(graph, node))


QUANTISED = Pass("qdq", (sink, limit, rise, quantised_operator))
PASS = Pass("operators", (operator,))
