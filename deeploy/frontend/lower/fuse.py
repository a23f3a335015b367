"""Epilogues: bias, requantisation and clamping move into the operator in front of them."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.quant import narrow
from deeploy.graph import epilogue
from deeploy.graph.rewrite import Pass, constant, producer, rule

_SUMS = ("Add", "Sub", "Mul", "RequantAdd")
_ACCUMULATING = ("Conv", "ConvTranspose", "MatMul", "AveragePool", "ReduceSum", "ReduceMean", "IntegerMean", *_SUMS)


def _in_front(graph: gs.Graph, tensor: gs.Tensor) -> gs.Node | None:
    """The accumulating operator whose only result and only reader this is."""
    node = producer(tensor)
    if node is None or node.op not in _ACCUMULATING or not build.lowered(node):
        return None
    return node if len(tensor.outputs) == 1 and not any(tensor is out for out in graph.outputs) else None


def _stages(node: gs.Node) -> tuple[str, ...]:
    return tuple(node.attrs.get("epilogue", ()))


def _row(values: np.ndarray, result: gs.Tensor) -> np.ndarray | None:
    """One value, or one per element of the result's last axis, as a flat array; None for other shapes."""
    if values.size == 1 or values.shape[-1:] == tuple(result.shape[-1:]) == (values.size,):
        return values.ravel()
    return None


def _take_output(node: gs.Node, follower: gs.Node) -> None:
    result = follower.outputs[0]
    follower.outputs.clear()
    follower.inputs.clear()
    node.outputs = [result]


@rule("BatchNormalization")
def fold_batch_norm(graph: gs.Graph, node: gs.Node) -> bool:
    """BatchNormalization behind a convolution with constant weights scales its filters."""
    conv = producer(node.inputs[0])
    if conv is None or conv.op != "Conv" or build.lowered(conv) or len(conv.outputs[0].outputs) != 1 or len(node.outputs) > 1:
        return False
    if any(conv.outputs[0] is out for out in graph.outputs):
        return False
    parts = [constant(t) for t in (*node.inputs[1:5], *conv.inputs[1:])]
    if any(p is None for p in parts):
        return False
    scale, bias, mean, variance, w, *old = (np.asarray(p, np.float64) for p in parts)
    factor = scale / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
    shift = bias + (old[0] - mean if old else -mean) * factor
    name = conv.inputs[1].name
    weights = (w * factor.reshape([-1] + [1] * (w.ndim - 1))).astype(np.float32)
    conv.inputs = [conv.inputs[0], build.const(f"{name} (normalised)", weights), build.const(f"{name} (bias)", shift.astype(np.float32))]
    _take_output(conv, node)
    return True


@rule("Add")
def bias(graph: gs.Graph, node: gs.Node) -> bool:
    """A constant row added to an accumulator."""
    if not build.lowered(node) or _stages(node):
        return False
    for position in (0, 1):
        front, values = _in_front(graph, node.inputs[position]), constant(node.inputs[1 - position])
        if front is None or values is None or front.op in _SUMS or _stages(front):
            continue
        if list(front.outputs[0].shape) != list(node.outputs[0].shape):
            continue
        row = _row(values, node.outputs[0])
        if row is None or row.dtype.kind not in "iuf":
            continue
        dtype = np.int32 if row.dtype.kind in "iu" else np.float32
        front.inputs.append(build.const(f"{node.outputs[0].name} (bias)", row, dtype))
        front.attrs["epilogue"] = ("bias",)
        _take_output(front, node)
        return True
    return False


@rule("RequantShift")
def requantise(graph: gs.Graph, node: gs.Node) -> bool:
    """A requantisation per tensor or per channel; a constant bias in front of it enters its summand."""
    front = _in_front(graph, node.inputs[0])
    if front is None or _stages(front) not in ((), ("bias",)) or np.dtype(node.outputs[0].dtype).itemsize != 1:
        return False
    mul, add = constant(node.inputs[1]), constant(node.inputs[2])
    if mul is None or add is None or np.dtype(front.outputs[0].dtype).kind != "i":
        return False
    rows = [_row(mul, node.outputs[0]), _row(add, node.outputs[0])]
    if rows[0] is None or rows[1] is None:
        return False
    factor, summand = rows[0].astype(np.int64), rows[1].astype(np.int64)
    if _stages(front) == ("bias",):
        values = constant(front.inputs[-1])
        if values is None:
            return False
        summand = summand + values.astype(np.int64) * factor
        front.inputs = front.inputs[:-1]
    name = node.outputs[0].name
    front.inputs += [build.const(f"{name} (mul)", factor, np.int32), build.const(f"{name} (add)", narrow(summand))]
    front.attrs |= {"epilogue": ("requantise",), "shift": node.attrs["shift"], "low": node.attrs["low"], "high": node.attrs["high"]}
    _take_output(front, node)
    return True


@rule("RequantShift")
def before_views(graph: gs.Graph, node: gs.Node) -> bool:
    """A requantisation with one multiplier moves in front of what only reorders an accumulator."""
    view = producer(node.inputs[0])
    if view is None or view.op not in ("Reshape", "Transpose") or any(np.prod(t.shape, dtype=np.int64) != 1 for t in node.inputs[1:]):
        return False
    source = view
    while source is not None and source.op in ("Reshape", "Transpose"):
        alone = len(source.outputs[0].outputs) == 1 and not any(source.outputs[0] is out for out in graph.outputs)
        if not alone or not build.lowered(source):
            return False
        tensor, source = source.inputs[0], producer(source.inputs[0])
    front = _in_front(graph, tensor)
    if front is None or _stages(front) not in ((), ("bias",)):
        return False
    x, y = view.inputs[0], node.outputs[0]
    node.outputs.clear()
    early = build.variable(f"{y.name} (before {view.op.lower()})", y.dtype, x.shape)
    build.add(graph, "RequantShift", [x, *node.inputs[1:]], early, node.name, **node.attrs)
    build.add(graph, view.op, [early], y, view.name, **view.attrs)
    return True


def _scale(graph: gs.Graph, tensor: gs.Tensor) -> tuple[gs.Tensor, tuple[int, int, int, int, int]] | None:
    """What a requantised summand is the requantisation of, and how: multiplier, summand, shift, limits."""
    node = producer(tensor, "RequantShift")
    if node is None or not build.lowered(node) or len(tensor.outputs) != 1 or any(tensor is out for out in graph.outputs):
        return None
    x, parameters = node.inputs[0], [constant(t) for t in node.inputs[1:]]
    if np.dtype(x.dtype).itemsize > 2 or list(x.shape) != list(tensor.shape) or any(p is None or p.size != 1 for p in parameters):
        return None
    mul, add = (int(np.asarray(p).ravel()[0]) for p in parameters)
    return x, (mul, add, node.attrs["shift"], node.attrs["low"], node.attrs["high"])


@rule("Add")
def requantised_sum(graph: gs.Graph, node: gs.Node) -> bool:
    """A sum whose summands are requantised one by one, as residual connections have them."""
    if not build.lowered(node) or _stages(node) or np.dtype(node.outputs[0].dtype) != np.int32:
        return False
    found = [_scale(graph, t) for t in node.inputs]
    if not any(found) or any(np.dtype(t.dtype).kind not in "iu" or np.dtype(t.dtype).itemsize > 4 for t in node.inputs):
        return False
    inputs: list[gs.Tensor] = []
    attrs: dict[str, int] = {}
    for name, tensor, scale in zip("ab", node.inputs, found, strict=True):
        info = np.iinfo(tensor.dtype)
        x, values = scale if scale is not None else (tensor, (1, 0, 0, int(info.min), int(info.max)))
        inputs.append(x)
        attrs |= {f"{field}_{name}": value for field, value in zip(("mul", "add", "shift", "low", "high"), values, strict=True)}
    y = node.outputs[0]
    node.outputs.clear()
    build.add(graph, "RequantAdd", inputs, y, node.name, **attrs)
    return True


@rule("RequantShift", "Lookup")
def shares(graph: gs.Graph, node: gs.Node) -> bool:
    """What becomes of every result of an integer softmax is a table of the softmax."""
    x, y = node.inputs[0], node.outputs[0]
    front = producer(x, "Softmax")
    if front is None or not build.lowered(front) or len(x.outputs) != 1 or any(x is out for out in graph.outputs):
        return False
    if len(front.inputs) != 2 or any(np.dtype(t.dtype) not in (np.int8, np.uint8) for t in (x, y)):
        return False
    smallest = int(np.iinfo(x.dtype).min)
    constants = [constant(t) for t in node.inputs[1:]]
    if node.op == "Lookup":
        results = constants[0]
    elif any(c is None or c.size != 1 for c in constants):
        return False
    else:
        mul, add = (np.asarray(c).reshape(()) for c in constants)
        values = np.arange(smallest, smallest + 256)
        results = epilogue.requantise(values, mul, add, node.attrs["shift"], node.attrs["low"], node.attrs["high"])
    if results is None:
        return False
    front.inputs.append(build.const(f"{y.name} (results)", results.astype(y.dtype)))
    front.attrs["smallest"] = smallest
    _take_output(front, node)
    return True


@rule("Clip")
def clamp(graph: gs.Graph, node: gs.Node) -> bool:
    """A float Relu or Clip behind an accumulator."""
    front = _in_front(graph, node.inputs[0])
    if front is None or not build.lowered(node) or np.dtype(node.outputs[0].dtype).kind != "f" or _stages(front) not in ((), ("bias",)):
        return False
    front.attrs |= {"epilogue": (*_stages(front), "clamp"), "low": node.attrs["low"], "high": node.attrs["high"]}
    _take_output(front, node)
    return True


FOLD = Pass("fold-batchnorm", (fold_batch_norm,))
PASS = Pass("fuse", (bias, before_views, requantise, requantised_sum, shares, clamp))
