"""QDQ graphs to the integer form: an operator between DequantizeLinear and QuantizeLinear becomes an integer one.

Rules are rooted at QuantizeLinear, whose output keeps its tensor (and name). Data movement sinks below
DequantizeLinear and rises above QuantizeLinear, so that what lies between the two is always the operator itself. What no
rule takes stays in floats between a Dequantize and a Quantize: slower, and right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build, choice, norms
from deeploy.frontend.lower.lookup import joined_sum, real_constant, tabulate
from deeploy.frontend.lower.products import PRODUCTS, append, biased
from deeploy.frontend.lower.quant import Quantised, dequantised, half, limits, multiplier, narrow, quantise_values, quantised, summand, ties
from deeploy.graph.rewrite import Pass, producer, rule

_MOVEMENT = ("Reshape", "Transpose", "Slice", "Gather", "MaxPool", "Pad", "Split", "Expand", "GlobalMaxPool", "ReduceMax", "ReduceMin")
_RISING = ("Reshape", "Transpose", "Slice", "Gather", "MaxPool", "Pad", "GlobalMaxPool", "ReduceMax", "ReduceMin")


@rule(*_MOVEMENT)
def sink(graph: gs.Graph, node: gs.Node) -> bool:
    """Movement of dequantised values: move the integers, then dequantise."""
    q = dequantised(node.inputs[0]) if not build.lowered(node) else None
    if (
        q is None
        or not q.is_scalar
        or (isinstance(q.tensor, gs.Constant) and node.op != "Gather")
        or len([t for t in node.outputs if not t.is_empty()]) != len(node.outputs)
    ):
        return False
    attrs = dict(node.attrs)
    if node.op == "Pad" and attrs["mode"] == "constant":
        steps = attrs["value"] / q.s + q.z
        low, high = limits(q.tensor)
        if _requantised_as(node.outputs[0], q):
            steps = float(quantise_values(np.asarray(attrs["value"]), q.s, q.z, low, high))
        if abs(steps - round(steps)) > 1e-3 or not low <= round(steps) <= high:
            return False
        attrs["value"] = round(steps)
    parameters = list(node.inputs[0].inputs[0].inputs[1:])
    results = list(node.outputs)
    node.outputs.clear()
    moved = [build.variable(f"{y.name} (quantised)", q.tensor.dtype, y.shape) for y in results]
    graph.nodes.append(gs.Node(node.op, node.name, attrs, [q.tensor, *node.inputs[1:]], moved))
    for y, m in zip(results, moved, strict=True):
        graph.nodes.append(gs.Node("DequantizeLinear", f"{y.name} (dequantise)", {"axis": 0}, [m, *parameters], [y]))
    return True


def _requantised_as(real: gs.Tensor, q: Quantised) -> bool:
    """Whether all that reads ``real`` are quantisations with the parameters of ``q``."""
    found = [quantised(reader) if reader.op == "QuantizeLinear" else None for reader in real.outputs]
    return bool(found) and all(
        f is not None and f.is_scalar and f.s == q.s and f.z == q.z and f.tensor.dtype == q.tensor.dtype for f in found
    )


@rule("QuantizeLinear")
def rise(graph: gs.Graph, node: gs.Node) -> bool:
    """Quantisation of reordered, selected or padded values: quantise first, which keeps the order of values."""
    mover = producer(node.inputs[0])
    if (
        mover is None
        or mover.op not in _RISING
        or build.lowered(mover)
        or len(mover.outputs) != 1
        or len(mover.outputs[0].outputs) != 1
        or _is_output(graph, mover.outputs[0])
    ):
        return False
    found = quantised(node)
    if found is None or not found.is_scalar or producer(mover.inputs[0]) is None:
        return False
    x, y, attrs = mover.inputs[0], node.outputs[0], dict(mover.attrs)
    if mover.op == "Pad" and attrs["mode"] == "constant":
        attrs["value"] = int(quantise_values(np.asarray(attrs["value"]), found.s, found.z, *limits(y)))
    parameters = list(node.inputs[1:])
    node.outputs.clear()
    early = build.variable(f"{y.name} (before {mover.op.lower()})", y.dtype, x.shape)
    graph.nodes.append(gs.Node("QuantizeLinear", node.name, {"axis": 0}, [x, *parameters], [early]))
    graph.nodes.append(gs.Node(mover.op, mover.name, attrs, [early, *mover.inputs[1:]], [y]))
    return True


def _is_output(graph: gs.Graph, tensor: gs.Tensor) -> bool:
    return any(tensor is out for out in graph.outputs)


@rule("QuantizeLinear")
def operator(graph: gs.Graph, node: gs.Node) -> bool:
    """The operator in front of a quantisation, when its operands are quantised."""
    y = quantised(node)
    if y is None or not y.is_scalar or not y.is_byte:
        return False
    return _lookup(graph, node, y) or _compute(graph, node, y)


def _lookup(graph: gs.Graph, node: gs.Node, y: Quantised) -> bool:
    """An expression of one dequantised 8-bit tensor alone: a table, or nothing where it is the identity."""
    joined = joined_sum(node.inputs[0], y)
    found = joined or tabulate(node.inputs[0])
    x, reals = found if found is not None else (None, np.zeros(0))
    if x is None or isinstance(x.tensor, gs.Constant):
        return False
    unit = (1.0, 0) if joined is not None else (y.s, y.z)
    values = quantise_values(reals, *unit, *limits(y.tensor)).astype(y.tensor.dtype)
    result = node.outputs[0]
    node.outputs.clear()
    first, last = limits(x.tensor)
    if np.dtype(x.tensor.dtype) == values.dtype and np.array_equal(values, np.arange(first, last + 1)):
        build.add(graph, "Reshape", [x.tensor], result, node.name)
    else:
        build.add(graph, "Lookup", [x.tensor, build.const(f"{result.name} (table)", values)], result, node.name)
    return True


def _compute(graph: gs.Graph, node: gs.Node, y: Quantised) -> bool:
    """An operator, and the limits of the Relu or Clip behind it."""
    low, high = limits(y.tensor)
    source = producer(node.inputs[0])
    while source is not None and source.op in ("Relu", "Clip") and len(source.outputs[0].outputs) == 1 and not build.lowered(source):
        bottom, top = (0.0, None) if source.op == "Relu" else (source.attrs["min"], source.attrs["max"])
        # What this one leaves passes through the limits behind it.
        ends = (low if bottom is None else _steps(bottom, y), high if top is None else _steps(top, y))
        low, high = (min(max(end, low), high) for end in ends)
        source = producer(source.inputs[0])
    if source is None or build.lowered(source) or source.op not in _OPERATORS:
        return False
    return _OPERATORS[source.op](graph, source, node, y, low, max(low, high))


def _steps(value: float, y: Quantised) -> int:
    return int(quantise_values(np.asarray(value), y.s, y.z, *limits(y.tensor)))


def _operands(node: gs.Node) -> tuple[Quantised, Quantised] | None:
    a, b = dequantised(node.inputs[0]), dequantised(node.inputs[1])
    if a is None or b is None or not (a.is_scalar and b.is_scalar and a.is_byte and b.is_byte):
        return None
    return a, b


def _add(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    """y = (a - za)*sa/sy +- (b - zb)*sb/sy + zy with one common shift."""
    operands = _operands(source)
    sign = -1 if source.op == "Sub" else 1
    if operands is None:
        return (source.op == "Add" and biased(graph, source, node, y, low, high)) or _affine(graph, source, node, y, low, high)
    a, b = operands
    mul, shift = multiplier(np.array([a.s, sign * b.s], np.float64) / y.s)
    mul_a, mul_b = (int(m) for m in mul)
    add = (y.z << shift) - a.z * mul_a - b.z * mul_b + half(shift)
    result = node.outputs[0]
    node.outputs.clear()
    attrs = {"mul_a": mul_a, "mul_b": mul_b, "add": add, "shift": shift, "low": low, "high": high, **ties(mul, shift, y.z)}
    build.add(graph, "ScaledAdd", [a.tensor, b.tensor], result, source.name, **attrs)
    return True


def _affine(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    """A dequantised tensor plus, minus or times an array of constants: multiplier and summand per element of the array."""
    for position in (0, 1):
        x, c = dequantised(source.inputs[position]), real_constant(source.inputs[1 - position])
        if x is None or c is None or not (x.is_scalar and x.is_byte) or isinstance(x.tensor, gs.Constant):
            continue
        if list(x.tensor.shape) != list(node.outputs[0].shape) or (source.op == "Div" and (position == 1 or not c.all())):
            return False
        real = c.astype(np.float64)
        if source.op in ("Mul", "Div"):
            factor, plus = real if source.op == "Mul" else 1 / real, np.zeros_like(real)
        else:
            factor = np.full_like(real, -1 if source.op == "Sub" and position == 1 else 1)
            plus = -real if source.op == "Sub" and position == 0 else real
        node.outputs.clear()
        _scale_and_shift(graph, x, y, y.tensor, factor, plus, (low, high), source.name)
        return True
    return False


def _scale_and_shift(
    graph: gs.Graph, x: Quantised, y: Quantised, output: gs.Tensor, factor: np.ndarray, plus: np.ndarray, limits: tuple[int, int], name: str
) -> gs.Tensor:
    """y = x*factor + plus with arrays (float64, of one shape) that broadcast over x, into ``output``."""
    mul, shift = multiplier((x.s * factor / y.s).ravel())
    mul = mul.reshape(factor.shape)
    add = summand(plus / y.s, shift) - x.z * mul.astype(np.int64) + (y.z << shift) + half(shift)
    constants = [build.const(f"{output.name} (mul)", mul), build.const(f"{output.name} (add)", narrow(add))]
    return build.add(graph, "RequantShift", [x.tensor, *constants], output, name, shift=shift, low=limits[0], high=limits[1])


def _prelu(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    """One slope per channel: both halves requantised on their own, one of which is always the zero point, and added."""
    x, slope, result = dequantised(source.inputs[0]), real_constant(source.inputs[1]), node.outputs[0]
    if x is None or slope is None or not (x.is_scalar and x.is_byte) or slope.ndim > len(result.shape):
        return False
    node.outputs.clear()
    halves = []
    for label, factor, ends in (("positive", np.ones(1), (x.z, None)), ("negative", slope.astype(np.float64), (None, x.z))):
        part = build.variable(f"{result.name} ({label})", x.tensor.dtype, result.shape)
        build.add(graph, "Clip", [x.tensor], part, f"{source.name} ({label})", low=ends[0], high=ends[1])
        scaled = build.variable(f"{part.name} (scaled)", result.dtype, result.shape)
        own = replace(x, tensor=part)
        halves.append(_scale_and_shift(graph, own, y, scaled, factor, np.zeros_like(factor), limits(result), scaled.name))
    build.add(graph, "ScaledAdd", halves, result, source.name, mul_a=1, mul_b=1, add=-y.z, shift=0, low=low, high=high)
    return True


def _batch_norm(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    """(x - mean) * scale / sqrt(variance + epsilon) + bias per channel, on axis 1."""
    x, values = dequantised(source.inputs[0]), [real_constant(t) for t in source.inputs[1:5]]
    if x is None or not (x.is_scalar and x.is_byte) or any(v is None for v in values) or len(source.outputs) > 1:
        return False
    shape = [-1] + [1] * (len(x.tensor.shape) - 2)
    scale, bias, mean, variance = (np.asarray(v, np.float64).reshape(shape) for v in values)
    factor = scale / np.sqrt(variance + source.attrs.get("epsilon", 1e-5))
    node.outputs.clear()
    _scale_and_shift(graph, x, y, y.tensor, factor, bias - mean * factor, (low, high), source.name)
    return True


def _mul(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    operands = _operands(source)
    if operands is None:
        return _affine(graph, source, node, y, low, high)
    a, b = operands
    ratio = np.float64(a.s) * b.s / y.s
    zeros = {"a_zero_point": a.z, "b_zero_point": b.z}
    return append(graph, "Mul", [a.tensor, b.tensor], node, y, ratio, 0, (low, high), source.name, y.tensor, **zeros)


def _div(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    operands = _operands(source)
    if operands is None:
        return _affine(graph, source, node, y, low, high)
    a, b = operands
    # 31-bit numerators and 2^shift denominators: 8 more bits for a, 9 for b, one for rounding.
    mul, shift = multiplier(np.float64(a.s) / b.s / y.s)
    less = max(0, shift - 50)
    result = node.outputs[0]
    node.outputs.clear()
    attrs = {"mul": int(mul[0]) >> less, "shift": shift - less, "zero_point": y.z, "low": low, "high": high}
    build.add(graph, "ScaledDiv", [a.tensor, b.tensor], result, source.name, a_zero_point=a.z, b_zero_point=b.z, **attrs)
    return True


def _pool(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    x = dequantised(source.inputs[0])
    if x is None or not x.is_scalar or not x.is_byte or not build.is_image(x.tensor):
        return False
    result = node.outputs[0]
    image = build.image_in(graph, x.tensor, source.name)
    output = build.image_out(graph, result.shape, result.dtype, result)
    attrs = {
        **build.window(source.attrs),
        "kernel": build.spatial(source.attrs["kernel_shape"], 1),
        "count_include_pad": bool(source.attrs["count_include_pad"]),
        "zero_point": x.z,
    }
    ratio = np.float64(x.s) / y.s / 65536
    return append(graph, "AveragePool", [image], node, y, ratio, 0, (low, high), source.name, output, **attrs)


def _mean(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    """Means over whole axes are sums whose ratio holds the count; what is summed may be a function of an 8-bit tensor."""
    x = dequantised(source.inputs[0])
    shape = source.inputs[0].shape
    axes = tuple(source.attrs["axes"]) if source.op.startswith("Reduce") else tuple(range(2, len(shape)))
    keepdims = bool(source.attrs.get("keepdims", 1))
    count = int(np.prod([shape[i] for i in axes], dtype=np.int64))
    share = 1 if source.op == "ReduceSum" else count
    attrs = {"axes": axes, "keepdims": keepdims}
    if x is not None and x.is_scalar and x.is_byte:
        ratio = np.float64(x.s) / y.s / share
        return append(graph, "ReduceSum", [x.tensor], node, y, ratio, -x.z * count, (low, high), source.name, y.tensor, **attrs)
    found = tabulate(source.inputs[0]) if x is None else None
    operand, reals = found if found is not None else (None, np.zeros(0))
    if operand is None or isinstance(operand.tensor, gs.Constant) or not np.all(np.isfinite(reals)) or not np.any(reals):
        return False
    unit = float(np.abs(reals).max()) * count / 2**30  # of a sum, which fits 32 bits then
    table = build.const(f"{source.name} (table)", np.rint(reals / unit), np.int32)
    terms = build.variable(f"{source.name} (terms)", np.int32, operand.tensor.shape)
    build.add(graph, "Lookup", [operand.tensor, table], terms)
    return append(graph, "ReduceSum", [terms], node, y, unit / y.s / share, 0, (low, high), source.name, y.tensor, **attrs)


def _concat(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    """Every part in the scale of the whole; parts that have it already are taken as they are."""
    parts = [p for t in source.inputs if (p := dequantised(t)) is not None and p.is_scalar and p.is_byte]
    if len(parts) != len(source.inputs):
        return False
    result = node.outputs[0]
    names = [f"{part.tensor.name} (in {result.name}, {index})" for index, part in enumerate(parts)]
    joined = [choice.in_scale(graph, part, y, low, high, name) for part, name in zip(parts, names, strict=True)]
    node.outputs.clear()
    build.add(graph, "Concat", joined, result, source.name, axis=source.attrs["axis"])
    return True


_MOST_LEVELS = 2**16  # of a softmax: what is finer is computed in floats


def _softmax(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    """Exponentials of the distance from the maximum in a table."""
    x = dequantised(source.inputs[0])
    if x is None or not x.is_scalar or not x.is_byte:
        return False
    result, rank, axis = node.outputs[0], len(x.tensor.shape), source.attrs["axis"]
    # onnxruntime's QLinearSoftmax cuts the number of levels off, which this follows: 254 for the scale 1/255 in float32.
    levels = int(np.float32(1.0) / np.float32(y.s))
    if levels > _MOST_LEVELS:
        return False
    # What keeps sums and numerators within 32 bits, where nothing is lost by that.
    peak = (2**31 - 1) // (levels + int(x.tensor.shape[axis]))
    distances = np.arange(256, dtype=np.float64) * x.s
    entries = np.rint(np.exp(-distances) * max(peak, 2**18)).astype(np.uint32)
    perm = [i for i in range(rank) if i != axis] + [axis]
    inverse = [perm.index(i) for i in range(rank)]
    moved = build.transpose(graph, x.tensor, perm, f"softmax axis last for {source.name}")
    node.outputs.clear()
    output = result if perm == inverse == list(range(rank)) else build.variable(f"{result.name} (axis last)", result.dtype, moved.shape)
    attrs = {"levels": levels, "zero_point": y.z, "low": low, "high": high}
    build.add(graph, "Softmax", [moved, build.const(f"{result.name} (exponentials)", entries)], output, source.name, **attrs)
    if output is not result:
        build.add(graph, "Transpose", [output], result, perm=tuple(inverse))
    return True


_OPERATORS: dict[str, Callable[[gs.Graph, gs.Node, gs.Node, Quantised, int, int], bool]] = {
    **PRODUCTS,
    "Add": _add,
    "Sub": _add,
    "Mul": _mul,
    "Div": _div,
    "AveragePool": _pool,
    "GlobalAveragePool": _mean,
    "ReduceMean": _mean,
    "ReduceSum": _mean,
    "Concat": _concat,
    "Softmax": _softmax,
    "BatchNormalization": _batch_norm,
    "PRelu": _prelu,
    **dict.fromkeys(norms.CENTRED, norms.quantised),
    **dict.fromkeys(("Max", "Min", "Where"), choice.quantised),
}

PASS = Pass("qdq", (sink, rise, operator))
