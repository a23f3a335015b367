"""ONNX operators that are others in disguise: block rearrangements, repetition, borders that repeat, sums of several.

Everything here stays in the spelling of the normalised graph, so that quantisation is lowered afterwards by one set of rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.graph.rewrite import Pass, constant, producer, rule


def _is_float(tensor: gs.Tensor) -> bool:
    return bool(np.dtype(tensor.dtype).kind == "f")


@rule("DepthToSpace", "SpaceToDepth")
def blocks(graph: gs.Graph, node: gs.Node) -> bool:
    """Reshape, Transpose, Reshape (ONNX, DepthToSpace: the equivalent NumPy code of both modes)."""
    x, size = node.inputs[0], int(node.attrs["blocksize"])
    n, c, h, w = x.shape
    if node.op == "SpaceToDepth":
        split = [n, c, h // size, size, w // size, size]
        perm = [0, 3, 5, 1, 2, 4] if node.attrs.get("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    elif node.attrs.get("mode", "DCR") == "DCR":
        split, perm = [n, size, size, c // size**2, h, w], [0, 3, 4, 1, 5, 2]
    else:
        split, perm = [n, c // size**2, size, size, h, w], [0, 1, 4, 2, 5, 3]
    y = build.take_over(node)
    parts = build.spell(graph, "Reshape", [x], build.variable(f"{y.name} (blocks)", x.dtype, split))
    moved = build.spell(
        graph, "Transpose", [parts], build.variable(f"{y.name} (moved)", x.dtype, [split[p] for p in perm]), node.name, perm=perm
    )
    build.spell(graph, "Reshape", [moved], y)
    return True


@rule("Pad")
def repeated_borders(graph: gs.Graph, node: gs.Node) -> bool:
    """Borders that wrap around, or mirror more than once, are gathered along every axis."""
    x, pads, mode = node.inputs[0], node.attrs["pads"], node.attrs["mode"]
    rank = len(x.shape)
    widths = [(pads[axis], pads[axis + rank]) for axis in range(rank)]
    is_far = any(max(width) >= size for width, size in zip(widths, x.shape, strict=True))
    if build.lowered(node) or not (mode == "wrap" or (mode == "reflect" and is_far)) or math.prod(x.shape) == 0:
        return False
    places = [np.pad(np.arange(size), width, mode=mode) if any(width) else None for size, width in zip(x.shape, widths, strict=True)]
    build.take(graph, node, places)
    return True


@rule("Expand", "Tile")
def repeat(graph: gs.Graph, node: gs.Node) -> bool:
    """Repetition as an Expand of equal rank; a Tile of more than single elements gets an axis to expand in front of each one."""
    x, y = node.inputs[0], node.outputs[0]
    shape = [1] * (len(y.shape) - len(x.shape)) + list(x.shape)
    if (node.op == "Expand" and len(shape) == len(x.shape)) or math.prod(shape) == 0:
        return False
    before: list[int] = []
    after: list[int] = []
    for size, result in zip(shape, y.shape, strict=True):
        apart = size not in (1, result)
        before += [1, size] if apart else [size]
        after += [result // size, size] if apart else [result]
    y = build.take_over(node)
    if before != list(x.shape):
        x = build.spell(graph, "Reshape", [x], build.variable(f"{y.name} (rank {len(before)})", x.dtype, before))
    if after == list(y.shape):
        build.spell(graph, "Expand", [x], y, node.name)
        return True
    expanded = build.spell(graph, "Expand", [x], build.variable(f"{y.name} (repeated)", x.dtype, after), node.name)
    build.spell(graph, "Reshape", [expanded], y)
    return True


@rule("Gather")
def pick(graph: gs.Graph, node: gs.Node) -> bool:
    """One constant index is a slice: a view."""
    x, index = node.inputs[0], constant(node.inputs[1])
    if build.lowered(node) or index is None or index.ndim or isinstance(x, gs.Constant):
        return False
    y, axis, rank = build.take_over(node), node.attrs["axis"], len(x.shape)
    at = int(index) % x.shape[axis]
    starts, ends = [0] * rank, list(x.shape)
    starts[axis], ends[axis] = at, at + 1
    row = build.variable(f"{y.name} (slice)", x.dtype, [1 if i == axis else n for i, n in enumerate(x.shape)])
    build.spell(graph, "Slice", [x], row, node.name, starts=starts, ends=ends, steps=[1] * rank)
    build.spell(graph, "Reshape", [row], y)
    return True


@rule("IsNaN", "IsInf")
def special(graph: gs.Graph, node: gs.Node) -> bool:
    """What is not itself is no number; infinities are compared with."""
    x = node.inputs[0]
    both = node.attrs.get("detect_negative", 1), node.attrs.get("detect_positive", 1)
    if not _is_float(x) or (node.op == "IsInf" and not any(both)):
        return False
    y = build.take_over(node)
    if node.op == "IsNaN":
        same = build.spell(graph, "Equal", [x, x], build.variable(f"{y.name} (is itself)", bool, x.shape))
        build.spell(graph, "Not", [same], y, node.name)
        return True
    size = build.spell(graph, "Abs", [x], build.variable(f"{y.name} (size)", x.dtype, x.shape)) if all(both) else x
    build.spell(graph, "Equal", [size, build.const(f"{y.name} (limit)", [np.inf if both[1] else -np.inf], np.float32)], y, node.name)
    return True


@rule("ArgMax", "ArgMin")
def of_integers(graph: gs.Graph, node: gs.Node) -> bool:
    """Where the largest of quantised values is, the largest integer is."""
    source = producer(node.inputs[0], "DequantizeLinear")
    scale = constant(source.inputs[1]) if source is not None else None
    if source is None or scale is None or scale.size != 1 or scale.item() <= 0:
        return False
    node.inputs[0] = source.inputs[0]
    return True


@rule("LpNormalization")
def normalisation(graph: gs.Graph, node: gs.Node) -> bool:
    """Divided by the sum of absolute values, or by the root of that of squares; rows of zeros stay."""
    x, axis, power = node.inputs[0], node.attrs["axis"], int(node.attrs.get("p", 2))
    if not _is_float(x) or power not in (1, 2):
        return False
    y = build.take_over(node)
    row = [1 if i == axis else n for i, n in enumerate(x.shape)]
    size = build.variable(f"{y.name} (size)", x.dtype, row)
    build.spell(graph, f"ReduceL{power}", [x], size, axes=[axis], keepdims=1)
    smallest = build.const(f"{y.name} (smallest)", np.finfo(np.float32).tiny, np.float32)
    divisor = build.spell(graph, "Max", [size, smallest], build.variable(f"{y.name} (divisor)", x.dtype, row))
    build.spell(graph, "Div", [x, divisor], y, node.name)
    return True


@rule("LayerNormalization")
def statistics(graph: gs.Graph, node: gs.Node) -> bool:
    """Where the mean or the deviation are results too, the norm is taken apart."""
    if build.lowered(node) or not any(not t.is_empty() for t in node.outputs[1:]) or not _is_float(node.inputs[0]):
        return False
    x, further, results = node.inputs[0], [t for t in node.inputs[1:] if not t.is_empty()], list(node.outputs)
    axis = int(node.attrs.get("axis", -1)) % len(x.shape)
    row = [n if i < axis else 1 for i, n in enumerate(x.shape)]
    attrs = {"axes": list(range(axis, len(x.shape))), "keepdims": 1}
    node.outputs.clear()
    y = results[0]

    def new(op: str, inputs: list[gs.Tensor], shape: Sequence[int], given: gs.Tensor | None = None, **attrs: object) -> gs.Tensor:
        is_given = given is not None and not given.is_empty()
        output = given if is_given else build.variable(f"{y.name} ({len(graph.nodes)} {op.lower()})", x.dtype, shape)
        return build.spell(graph, op, inputs, output, "", **attrs)

    mean = new("ReduceMean", [x], row, results[1], **attrs)
    distance = new("Sub", [x, mean], x.shape)
    variance = new("ReduceMean", [new("Mul", [distance, distance], x.shape)], row, **attrs)
    epsilon = build.const(f"{y.name} (epsilon)", [float(node.attrs.get("epsilon", 1e-5))], np.float32)
    root = new("Sqrt", [new("Add", [variance, epsilon], row)], row)
    inverse = new("Reciprocal", [root], row, results[2] if len(results) > 2 else None)
    total = new("Mul", [distance, inverse], x.shape)
    for op, operand in zip(("Mul", "Add"), further, strict=False):
        total = new(op, [total, operand], x.shape)
    build.spell(graph, "Reshape", [total], y, node.name)
    return True


@rule("Sum", "Mean")
def several(graph: gs.Graph, node: gs.Node) -> bool:
    """A chain of additions, and for the mean a multiplication."""
    inputs = list(node.inputs)
    if node.op == "Mean" and not _is_float(node.outputs[0]):
        return False
    mean = node.op == "Mean" and len(inputs) > 1
    y = build.take_over(node)
    total = inputs[0]
    for index, summand in enumerate(inputs[1:], 1):
        shape = np.broadcast_shapes(tuple(total.shape), tuple(summand.shape))
        last = index == len(inputs) - 1 and not mean
        result = y if last else build.variable(f"{y.name} (sum {index})", y.dtype, shape)
        total = build.spell(graph, "Add", [total, summand], result, node.name if last else "")
    if len(inputs) == 1:
        build.spell(graph, "Reshape", [total], y, node.name)
    elif mean:
        build.spell(graph, "Mul", [total, build.const(f"{y.name} (share)", 1 / len(inputs), np.float32)], y, node.name)
    return True


@rule("Max", "Min")
def bound(graph: gs.Graph, node: gs.Node) -> bool:
    """The larger or smaller of a tensor and a constant number is a Clip."""
    values = [constant(t) for t in node.inputs]
    position = next((i for i, v in enumerate(values) if v is not None and v.size == 1), None)
    if len(node.inputs) != 2 or position is None or not _is_float(node.outputs[0]):
        return False
    x, value = node.inputs[1 - position], values[position]
    if value is None or list(x.shape) != list(node.outputs[0].shape):
        return False
    limits = (value.item(), None) if node.op == "Max" else (None, value.item())
    y = build.take_over(node)
    build.spell(graph, "Clip", [x], y, node.name, min=limits[0], max=limits[1])
    return True


@rule("LogSoftmax")
def log_softmax(graph: gs.Graph, node: gs.Node) -> bool:
    """d - log(sum(exp(d))) with d = x - max(x), which neither overflows nor takes the logarithm of zero."""
    x, axis = node.inputs[0], int(node.attrs["axis"])
    if not _is_float(x):
        return False
    y = build.take_over(node)
    row = [1 if i == axis else n for i, n in enumerate(x.shape)]

    def new(op: str, inputs: list[gs.Tensor], shape: Sequence[int], **attrs: int | list[int]) -> gs.Tensor:
        return build.spell(graph, op, inputs, build.variable(f"{y.name} ({op.lower()})", x.dtype, shape), "", **attrs)

    largest = new("ReduceMax", [x], row, axes=[axis], keepdims=1)
    distance = new("Sub", [x, largest], x.shape)
    total = new("ReduceSum", [new("Exp", [distance], x.shape)], row, axes=[axis], keepdims=1)
    build.spell(graph, "Sub", [distance, new("Log", [total], row)], y, node.name)
    return True


@rule("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
def reductions(graph: gs.Graph, node: gs.Node) -> bool:
    """A sum with a function in front of it, behind it, or both; the exponentials are those of distances from the maximum."""
    x = node.inputs[0]
    if not _is_float(x):
        return False
    op, attrs, y = node.op, dict(node.attrs), build.take_over(node)
    kept = {**attrs, "keepdims": 1}
    row = [1 if i in attrs["axes"] else n for i, n in enumerate(x.shape)]

    def new(op: str, inputs: list[gs.Tensor], shape: Sequence[int], **attrs: object) -> gs.Tensor:
        return build.spell(graph, op, inputs, build.variable(f"{y.name} ({op.lower()})", x.dtype, shape), "", **attrs)

    largest = new("ReduceMax", [x], row, **kept) if op == "ReduceLogSumExp" else None
    if largest is not None:
        x = new("Exp", [new("Sub", [x, largest], x.shape)], x.shape)
    elif op == "ReduceL1":
        x = new("Abs", [x], x.shape)
    elif op != "ReduceLogSum":
        x = new("Mul", [x, x], x.shape)
    behind = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log", "ReduceLogSumExp": "Log"}.get(op)
    if behind is None:
        build.spell(graph, "ReduceSum", [x], y, node.name, **attrs)
        return True
    if largest is None:
        build.spell(graph, behind, [new("ReduceSum", [x], y.shape, **attrs)], y, node.name)
        return True
    total = new("Add", [new("Log", [new("ReduceSum", [x], row, **kept)], row), largest], row)
    build.spell(graph, "Reshape", [total], y, node.name)
    return True


@rule("AveragePool")
def counted_padding(graph: gs.Graph, node: gs.Node) -> bool:
    """With ``ceil_mode`` only the declared padding counts: it becomes a Pad, and the rest stays with the pool."""
    extra = node.attrs.get("ceil_pads") if not build.lowered(node) else None
    if extra is None:
        return False
    del node.attrs["ceil_pads"]
    if not any(extra):
        return True
    x, pads, spatial = node.inputs[0], list(node.attrs["pads"]), len(extra)
    own = [*pads[:spatial], *(p - e for p, e in zip(pads[spatial:], extra, strict=True))]
    shape = [*x.shape[:2], *(n + own[i] + own[i + spatial] for i, n in enumerate(x.shape[2:]))]
    padded = build.variable(f"{x.name} (padded for {node.name})", x.dtype, shape)
    whole = [0, 0, *own[:spatial], 0, 0, *own[spatial:]]
    node.inputs[0] = build.spell(graph, "Pad", [x], padded, pads=whole, mode="constant", value=0.0)
    node.attrs |= {"pads": [0] * spatial + list(extra), "count_include_pad": 0}
    return True


@rule("MatMul")
def vectors(graph: gs.Graph, node: gs.Node) -> bool:
    """A vector is a matrix of one row (left) or one column (right)."""
    a, b = node.inputs[:2]
    rank_a, rank_b = len(a.shape), len(b.shape)
    if build.lowered(node) or min(rank_a, rank_b) != 1:
        return False
    y = build.take_over(node)
    left = _reshaped(graph, a, [1, *a.shape], node.name) if rank_a == 1 else a
    right = _reshaped(graph, b, [*b.shape, 1], node.name) if rank_b == 1 else b
    batch = np.broadcast_shapes(tuple(left.shape[:-2]), tuple(right.shape[:-2]))
    matrix = build.variable(f"{y.name} (matrix)", y.dtype, [*batch, left.shape[-2], right.shape[-1]])
    build.spell(graph, "MatMul", [left, right], matrix, node.name)
    build.spell(graph, "Reshape", [matrix], y)
    return True


def _reshaped(graph: gs.Graph, x: gs.Tensor, shape: Sequence[int], label: str) -> gs.Tensor:
    """``x`` under another shape; a constant, dequantised or not, is reshaped at once."""
    if (value := constant(x)) is not None:
        return build.const(f"{x.name} (matrix)", value.reshape(shape))
    result = build.variable(f"{x.name} (matrix for {label})", x.dtype, shape)
    source = producer(x, "DequantizeLinear")
    stored = constant(source.inputs[0]) if source is not None else None
    if source is not None and stored is not None and all(math.prod(t.shape) == 1 for t in source.inputs[1:]):
        integers = build.const(f"{source.inputs[0].name} (matrix)", stored.reshape(shape))
        return build.spell(graph, "DequantizeLinear", [integers, *source.inputs[1:]], result, axis=0)
    return build.spell(graph, "Reshape", [x], result)


_RULES = (blocks, repeated_borders, repeat, pick, of_integers, special, normalisation, statistics, several, bound, log_softmax, reductions)
PASS = Pass("decompose", (*_RULES, counted_padding, vectors))
