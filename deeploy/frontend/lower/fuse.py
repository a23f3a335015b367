"""Epilogues: bias, requantisation and clamping move into the operator in front of them."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.quant import narrow
from deeploy.frontend.lower.rewriter import Rewriter, is_float, lowered, standard
from deeploy.frontend.schemas import Attributes
from deeploy.graph.rewrite import Pass, constant

BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
_SUMS = ("Add", "Sub", "Mul", "RequantAdd")
ACCUMULATING = ("Conv", "ConvTranspose", "MatMul", "AveragePool", "ReduceSum", "ReduceMean", "IntegerMean", *_SUMS)
_MOVING = ("Reshape", "Transpose")


def stages(node: gs.Node) -> tuple[str, ...]:
    """The stages of a node's epilogue."""
    return tuple(node.attrs.get("epilogue", ()))


def _in_front(rw: Rewriter, tensor: gs.Tensor) -> gs.Node | None:
    """The accumulating operator, with nothing but a bias behind it, whose only reader this is."""
    node = rw.only_source(tensor, *ACCUMULATING)
    return node if node is not None and stages(node) in ((), ("bias",)) else None


def row(values: np.ndarray | None, result: gs.Tensor) -> np.ndarray | None:
    """One value, or one per element of the result's last axis, as a flat array; None for other shapes."""
    if values is not None and (values.size == 1 or values.shape[-1:] == tuple(result.shape[-1:]) == (values.size,)):
        return values.ravel()
    return None


def scalars(node: gs.Node) -> tuple[int, int, int, int, int, int] | None:
    """mul, add, shift, low, high and the parity of ties of a requantisation behind a body, where one value serves all."""
    mul, add = (constant(t) for t in node.inputs[-2:])
    if stages(node) != ("requantise",) or mul is None or add is None or mul.size != 1 or add.size != 1:
        return None
    attrs = node.attrs
    return int(mul.item()), int(add.item()), attrs["shift"], attrs["low"], attrs["high"], attrs.get("even", -1)


@standard("BatchNormalization")
def fold_batch_norm(rw: Rewriter) -> bool:
    """BatchNormalization behind a convolution with constant weights scales its filters."""
    conv = rw.only_source(rw.x, "Conv")
    if conv is None or len(rw.node.outputs) > 1:
        return False
    parts = [constant(t) for t in (*rw.node.inputs[1:5], *conv.inputs[1:])]
    if any(p is None for p in parts):
        return False
    scale, bias, mean, variance, w, *old = (np.asarray(p, np.float64) for p in parts)
    factor = scale / np.sqrt(variance + rw.attrs.get("epsilon", 1e-5))
    shift = bias + (old[0] - mean if old else -mean) * factor
    conv.inputs = [
        conv.inputs[0],
        rw.constant(w * factor.reshape([-1] + [1] * (w.ndim - 1)), label="weights"),
        rw.constant(shift, label="bias"),
    ]
    return rw.give(conv)


@lowered("Add")
def bias(rw: Rewriter) -> bool:
    """A constant row added to an accumulator."""
    a, b = rw.node.inputs[:2]
    for tensor, other in () if stages(rw.node) else ((a, b), (b, a)):
        front, values = _in_front(rw, tensor), row(constant(other), rw.y)
        if front is None or values is None or values.dtype.kind not in "iuf" or front.op in _SUMS or stages(front):
            continue
        if list(tensor.shape) == list(rw.y.shape):
            front.inputs.append(rw.constant(values, np.int32 if values.dtype.kind in "iu" else np.float32, "bias"))
            front.attrs["epilogue"] = ("bias",)
            return rw.give(front)
    return False


@lowered("RequantShift")
def requantise(rw: Rewriter) -> bool:
    """A requantisation per tensor or per channel; a constant bias in front of it enters its summand."""
    front, mul, add = _in_front(rw, rw.x), row(rw.value(1), rw.y), row(rw.value(2), rw.y)
    if front is None or mul is None or add is None or np.dtype(rw.y.dtype).itemsize != 1 or np.dtype(rw.x.dtype).kind != "i":
        return False
    factor, summand = mul.astype(np.int64), add.astype(np.int64)
    if stages(front):
        values = constant(front.inputs[-1])
        if values is None:
            return False
        summand = summand + values.astype(np.int64) * factor
        front.inputs = front.inputs[:-1]
    front.inputs += [rw.constant(factor, np.int32, "mul"), rw.constant(narrow(summand), label="add")]
    front.attrs |= {"epilogue": ("requantise",), **{name: rw.attrs[name] for name in ("shift", "low", "high")}}
    return rw.give(front)


@lowered("RequantShift")
def before_views(rw: Rewriter) -> bool:
    """A requantisation with one multiplier moves in front of what only reorders an accumulator."""
    view, tensor = rw.source(rw.x, *_MOVING), rw.x
    while (source := rw.only_source(tensor, *_MOVING)) is not None:
        tensor = source.inputs[0]
    if view is None or any(np.prod(t.shape, dtype=np.int64) != 1 for t in rw.node.inputs[1:]) or _in_front(rw, tensor) is None:
        return False
    early = rw.create("RequantShift", view.inputs[0], *rw.node.inputs[1:], dtype=rw.y.dtype, **rw.attrs)
    return rw.replace(view.op, early, **view.attrs)


def _scale(rw: Rewriter, tensor: gs.Tensor) -> tuple[gs.Tensor, tuple[int, ...]] | None:
    """What a requantised summand is the requantisation of, and how: multiplier, summand, shift, limits."""
    node = rw.only_source(tensor, "RequantShift")
    if node is None:
        return None
    x, *parameters = node.inputs
    values = [constant(p) for p in parameters]
    if np.dtype(x.dtype).itemsize > 2 or list(x.shape) != list(tensor.shape) or any(v is None or v.size != 1 for v in values):
        return None
    return x, (*(int(np.asarray(v).item()) for v in values), *(node.attrs[name] for name in ("shift", "low", "high")))


@lowered("Add")
def requantised_sum(rw: Rewriter) -> bool:
    """A sum whose summands are requantised one by one, as residual connections have them."""
    found = [_scale(rw, t) for t in rw.node.inputs]
    dtypes = [np.dtype(t.dtype) for t in rw.node.inputs]
    if stages(rw.node) or np.dtype(rw.y.dtype) != np.int32 or not any(found) or any(t.kind not in "iu" or t.itemsize > 4 for t in dtypes):
        return False
    inputs: list[gs.Tensor] = []
    attrs: Attributes = {}
    for name, tensor, scale in zip("ab", rw.node.inputs, found, strict=True):
        info = np.iinfo(tensor.dtype)
        x, values = scale if scale is not None else (tensor, (1, 0, 0, int(info.min), int(info.max)))
        inputs.append(x)
        attrs |= {f"{field}_{name}": value for field, value in zip(("mul", "add", "shift", "low", "high"), values, strict=True)}
    return rw.replace("RequantAdd", *inputs, **attrs)


@lowered("Clip")
def clamp(rw: Rewriter) -> bool:
    """A float Relu or Clip behind an accumulator."""
    front = _in_front(rw, rw.x)
    if front is None or not is_float(rw.y):
        return False
    front.attrs |= {"epilogue": (*stages(front), "clamp"), "low": rw.attrs["low"], "high": rw.attrs["high"]}
    return rw.give(front)


FOLD = Pass("fold-batchnorm", (fold_batch_norm,))
PASS = Pass("fuse", (bias, before_views, requantise, requantised_sum, clamp))
