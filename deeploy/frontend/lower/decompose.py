"""ONNX operators that are others in disguise: block rearrangements, repetition, nearest resizing, sums of several.

Everything here stays in the spelling of the normalised graph, so that quantisation is lowered afterwards by one set of rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.graph.rewrite import Pass, constant, producer, rule


def _append(graph: gs.Graph, op: str, inputs: Sequence[gs.Tensor], output: gs.Tensor, name: str = "", **attrs: object) -> gs.Tensor:
    graph.nodes.append(gs.Node(op, name or output.name, attrs, list(inputs), [output]))
    return output


def _take_over(node: gs.Node) -> gs.Variable:
    """Disconnect the only result of ``node`` and return it."""
    y = node.outputs[0]
    node.outputs.clear()
    return y


def _is_float(tensor: gs.Tensor) -> bool:
    return bool(np.dtype(tensor.dtype).kind == "f")


@rule("DepthToSpace", "SpaceToDepth")
def blocks(graph: gs.Graph, node: gs.Node) -> bool:
    """Reshape, Transpose, Reshape (ONNX, DepthToSpace: the equivalent NumPy code of both modes)."""
    x, size = node.inputs[0], int(node.attrs["blocksize"])
    n, c, h, w = x.shape
    if node.op == "SpaceToDepth":
        split, perm = [n, c, h // size, size, w // size, size], [0, 3, 5, 1, 2, 4]
    elif node.attrs.get("mode", "DCR") == "DCR":
        split, perm = [n, size, size, c // size**2, h, w], [0, 3, 4, 1, 5, 2]
    else:
        split, perm = [n, c // size**2, size, size, h, w], [0, 1, 4, 2, 5, 3]
    y = _take_over(node)
    parts = _append(graph, "Reshape", [x], build.variable(f"{y.name} (blocks)", x.dtype, split))
    moved = _append(
        graph, "Transpose", [parts], build.variable(f"{y.name} (moved)", x.dtype, [split[p] for p in perm]), node.name, perm=perm
    )
    _append(graph, "Reshape", [moved], y)
    return True


def _take(graph: gs.Graph, node: gs.Node, x: gs.Tensor, indices: Sequence[np.ndarray | None]) -> bool:
    """Replace ``node`` by one Gather for every axis that has indices."""
    y = _take_over(node)
    wanted = [(axis, values) for axis, values in enumerate(indices) if values is not None]
    for axis, values in wanted:
        shape = [*x.shape[:axis], len(values), *x.shape[axis + 1 :]]
        result = y if axis == wanted[-1][0] else build.variable(f"{y.name} (axis {axis})", x.dtype, shape)
        x = _append(graph, "Gather", [x, build.const(f"{y.name} (indices {axis})", values, np.int32)], result, axis=axis)
    if not wanted:
        _append(graph, "Reshape", [x], y, node.name)
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
    y = _take_over(node)
    if before != list(x.shape):
        x = _append(graph, "Reshape", [x], build.variable(f"{y.name} (rank {len(before)})", x.dtype, before))
    if after == list(y.shape):
        _append(graph, "Expand", [x], y, node.name)
        return True
    expanded = _append(graph, "Expand", [x], build.variable(f"{y.name} (repeated)", x.dtype, after), node.name)
    _append(graph, "Reshape", [expanded], y)
    return True


@rule("Resize", "Upsample")
def nearest(graph: gs.Graph, node: gs.Node) -> bool:
    """Nearest neighbours, in any of ONNX's coordinate transformations that need no region of interest."""
    x, y = node.inputs[0], node.outputs[0]
    mode = node.attrs.get("mode", "nearest")
    if mode not in ("nearest", b"nearest") or node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False
    old = node.op == "Upsample" or len(node.inputs) == 2
    transformation = "asymmetric" if old else node.attrs.get("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if old else node.attrs.get("nearest_mode", "round_prefer_floor")
    scales = _scales(node, old)
    if transformation not in _COORDINATES or rounding not in _ROUNDING or scales is None:
        return False
    indices: list[np.ndarray | None] = []
    for size, out, scale in zip(x.shape, y.shape, scales, strict=True):
        position = _COORDINATES[transformation](np.arange(out, dtype=np.float64), scale, size, out)
        found = np.clip(_ROUNDING[rounding](position), 0, size - 1).astype(np.int64)
        indices.append(None if np.array_equal(found, np.arange(size)) else found)
    return _take(graph, node, x, indices)


def _scales(node: gs.Node, old: bool) -> list[float] | None:
    """The scale of every axis: as given, else the ratio of the sizes."""
    x, y = node.inputs[0], node.outputs[0]
    ratios = [b / a if a else 1.0 for a, b in zip(x.shape, y.shape, strict=True)]
    given = node.attrs.get("scales")
    position = 1 if old else 2
    if given is None and len(node.inputs) > position and not node.inputs[position].is_empty():
        value = constant(node.inputs[position])
        if value is None:
            return None
        given = value.ravel().tolist()
    if not given:
        return ratios
    for axis, scale in zip(node.attrs.get("axes", range(len(ratios))), given, strict=True):
        ratios[axis] = float(scale)
    return ratios


_COORDINATES: dict[str, Callable[[np.ndarray, float, int, int], np.ndarray]] = {
    "asymmetric": lambda i, scale, size, out: i / scale,
    "half_pixel": lambda i, scale, size, out: (i + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda i, scale, size, out: (i + 0.5) / scale - 0.5 if out > 1 else 0 * i,
    "align_corners": lambda i, scale, size, out: i * (size - 1) / (out - 1) if out > 1 else 0 * i,
}
_ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda p: np.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: np.floor(p + 0.5),
}


@rule("Gather")
def pick(graph: gs.Graph, node: gs.Node) -> bool:
    """One constant index is a slice: a view."""
    x, index = node.inputs[0], constant(node.inputs[1])
    if build.lowered(node) or index is None or index.ndim or isinstance(x, gs.Constant):
        return False
    y, axis, rank = _take_over(node), node.attrs["axis"], len(x.shape)
    at = int(index) % x.shape[axis]
    starts, ends = [0] * rank, list(x.shape)
    starts[axis], ends[axis] = at, at + 1
    row = build.variable(f"{y.name} (slice)", x.dtype, [1 if i == axis else n for i, n in enumerate(x.shape)])
    _append(graph, "Slice", [x], row, node.name, starts=starts, ends=ends, steps=[1] * rank)
    _append(graph, "Reshape", [row], y)
    return True


@rule("Sum", "Mean")
def several(graph: gs.Graph, node: gs.Node) -> bool:
    """A chain of additions, and for the mean a multiplication."""
    inputs = list(node.inputs)
    if node.op == "Mean" and not _is_float(node.outputs[0]):
        return False
    mean = node.op == "Mean" and len(inputs) > 1
    y = _take_over(node)
    total = inputs[0]
    for index, summand in enumerate(inputs[1:], 1):
        shape = np.broadcast_shapes(tuple(total.shape), tuple(summand.shape))
        last = index == len(inputs) - 1 and not mean
        result = y if last else build.variable(f"{y.name} (sum {index})", y.dtype, shape)
        total = _append(graph, "Add", [total, summand], result, node.name if last else "")
    if len(inputs) == 1:
        _append(graph, "Reshape", [total], y, node.name)
    elif mean:
        _append(graph, "Mul", [total, build.const(f"{y.name} (share)", 1 / len(inputs), np.float32)], y, node.name)
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
    y = _take_over(node)
    _append(graph, "Clip", [x], y, node.name, min=limits[0], max=limits[1])
    return True


@rule("LogSoftmax")
def log_softmax(graph: gs.Graph, node: gs.Node) -> bool:
    """d - log(sum(exp(d))) with d = x - max(x), which neither overflows nor takes the logarithm of zero."""
    x, axis = node.inputs[0], int(node.attrs["axis"])
    if not _is_float(x):
        return False
    y = _take_over(node)
    row = [1 if i == axis else n for i, n in enumerate(x.shape)]

    def new(op: str, inputs: list[gs.Tensor], shape: Sequence[int], **attrs: int | list[int]) -> gs.Tensor:
        return _append(graph, op, inputs, build.variable(f"{y.name} ({op.lower()})", x.dtype, shape), "", **attrs)

    largest = new("ReduceMax", [x], row, axes=[axis], keepdims=1)
    distance = new("Sub", [x, largest], x.shape)
    total = new("ReduceSum", [new("Exp", [distance], x.shape)], row, axes=[axis], keepdims=1)
    _append(graph, "Sub", [distance, new("Log", [total], row)], y, node.name)
    return True


@rule("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
def reductions(graph: gs.Graph, node: gs.Node) -> bool:
    """A sum with a function in front of it, behind it, or both; the exponentials are those of distances from the maximum."""
    x = node.inputs[0]
    if not _is_float(x):
        return False
    op, attrs, y = node.op, dict(node.attrs), _take_over(node)
    kept = {**attrs, "keepdims": 1}
    row = [1 if i in attrs["axes"] else n for i, n in enumerate(x.shape)]

    def new(op: str, inputs: list[gs.Tensor], shape: Sequence[int], **attrs: object) -> gs.Tensor:
        return _append(graph, op, inputs, build.variable(f"{y.name} ({op.lower()})", x.dtype, shape), "", **attrs)

    largest = new("ReduceMax", [x], row, **kept) if op == "ReduceLogSumExp" else None
    if largest is not None:
        x = new("Exp", [new("Sub", [x, largest], x.shape)], x.shape)
    elif op == "ReduceL1":
        x = new("Abs", [x], x.shape)
    elif op != "ReduceLogSum":
        x = new("Mul", [x, x], x.shape)
    behind = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log", "ReduceLogSumExp": "Log"}.get(op)
    if behind is None:
        _append(graph, "ReduceSum", [x], y, node.name, **attrs)
        return True
    if largest is None:
        _append(graph, behind, [new("ReduceSum", [x], y.shape, **attrs)], y, node.name)
        return True
    total = new("Add", [new("Log", [new("ReduceSum", [x], row, **kept)], row), largest], row)
    _append(graph, "Reshape", [total], y, node.name)
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
    node.inputs[0] = _append(graph, "Pad", [x], padded, pads=whole, mode="constant", value=0.0)
    node.attrs |= {"pads": [0] * spatial + list(extra), "count_include_pad": 0}
    return True


@rule("MatMul")
def vectors(graph: gs.Graph, node: gs.Node) -> bool:
    """A vector is a matrix of one row (left) or one column (right)."""
    a, b = node.inputs[:2]
    rank_a, rank_b = len(a.shape), len(b.shape)
    if build.lowered(node) or min(rank_a, rank_b) != 1:
        return False
    y = _take_over(node)
    left = _reshaped(graph, a, [1, *a.shape], node.name) if rank_a == 1 else a
    right = _reshaped(graph, b, [*b.shape, 1], node.name) if rank_b == 1 else b
    batch = np.broadcast_shapes(tuple(left.shape[:-2]), tuple(right.shape[:-2]))
    matrix = build.variable(f"{y.name} (matrix)", y.dtype, [*batch, left.shape[-2], right.shape[-1]])
    _append(graph, "MatMul", [left, right], matrix, node.name)
    _append(graph, "Reshape", [matrix], y)
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
        return _append(graph, "DequantizeLinear", [integers, *source.inputs[1:]], result, axis=0)
    return _append(graph, "Reshape", [x], result)


PASS = Pass("decompose", (blocks, repeat, nearest, pick, several, bound, log_softmax, reductions, counted_padding, vectors))
