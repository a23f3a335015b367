"""Scales, shifts and borders that belong to the product behind or in front of them.

A multiplication or addition of constants behind a product with constant weights changes these weights and the bias instead, and zeros
around an image are those of its convolution. Views in between do not matter: what is constant for an element stays so where only its
place changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.quant import every, half, multiplier, narrow, plain, quantised, summand
from deeploy.graph.nodes import Node, Tensor, compute, constant, inverse
from deeploy.graph.rewriting import Match, Pass, Result, lowered, standard
from deeploy.graph.surgeon import read_graph, write_graph
from deeploy.graph.types import DType

_VIEWS = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten")  # the last three only in files
_PRODUCTS = {"Conv": 1, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1}  # the axis of the result that weights and bias have elements for
_AFFINE = ("BatchNormalization", "Mul", "Div", "Add", "Sub")
_ARITHMETIC = {"Mul": np.multiply, "Div": np.divide, "Add": np.add, "Sub": np.subtract}
_UNBOUNDED = 2**62  # beyond all summands
Affine = tuple[np.ndarray, np.ndarray]  # factor and summand, which broadcast over a tensor and have as many axes


def affine(node: Node, value_of: Callable[[Tensor], np.ndarray | None] = lambda tensor: tensor.data) -> Affine | None:
    """Factor and summand of a node that multiplies and adds constants, in float64; None of one that does anything else."""
    rank, values = len(node.outputs[0].shape), [value_of(tensor) for tensor in node.operands]
    variables = [tensor for tensor, known in zip(node.operands, values, strict=True) if known is None]
    constants = [known.astype(np.float64) for known in values if known is not None]
    if len(variables) != 1 or len(node.outputs) > 1 or variables[0].shape != node.outputs[0].shape:
        return None
    if node.op == "BatchNormalization":
        scale, bias, mean, variance = (values.reshape([1, -1] + [1] * (rank - 2)) for values in constants)
        factor = scale / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
        return factor, bias - mean * factor
    value = constants[0].reshape([1] * (rank - constants[0].ndim) + list(constants[0].shape))
    ones, zeros, is_first = np.ones_like(value), np.zeros_like(value), variables[0] is node.operands[0]
    if node.op in ("Add", "Sub"):
        return (ones, value) if node.op == "Add" else (ones, -value) if is_first else (-ones, value)
    if node.op == "Div" and not (is_first and value.all()):
        return None
    return 1 / value if node.op == "Div" else value, zeros


def _in_front(view: Node, values: np.ndarray) -> np.ndarray | None:
    """Constants that broadcast over the result of a view, as they broadcast over its input; None where they do not."""
    before, after = view.operands[0].shape, view.outputs[0].shape
    if view.op == "Transpose":
        return values.transpose(inverse(view.attrs.get("perm", range(len(after))[::-1])))
    long = [axis for axis, extent in enumerate(values.shape) if extent > 1]
    if not long:
        return values.reshape([1] * len(before))
    axis = _same_axis(after, before, long[0]) if len(long) == 1 else None
    return None if axis is None else values.reshape([-1 if position == axis else 1 for position in range(len(before))])


def _same_axis(shape: Sequence[int], other: Sequence[int], axis: int) -> int | None:
    """The axis of another shape of the same elements that steps through them as an axis of one shape does."""
    begin = math.prod(shape[:axis])
    return next((i for i, n in enumerate(other) if n == shape[axis] and math.prod(other[:i]) == begin), None)


@standard(*_AFFINE, kind="f")
def fold_affine(m: Match) -> Result:
    """A product with constant weights, perhaps reordered, times and plus constants."""
    views: list[Node] = []
    node, total = m.node, affine(m.node)
    while total is not None and (before := m.only_source(node.variables[0], *_VIEWS, *_AFFINE, *_PRODUCTS)) is not None:
        if before.op in _PRODUCTS:
            result = _scale(m, before, *total)
            for view in views if result is not None else ():
                result = view.another(inputs=(result, *view.inputs[1:])).outputs[0]
            return result
        if before.op in _VIEWS:
            factor, plus = (_in_front(before, values) for values in total)
            total, views = None if factor is None or plus is None else (factor, plus), [before, *views]
        else:
            own = affine(before)
            total = None if own is None else (own[0] * total[0], own[1] * total[0] + total[1])
        node = before
    return None


def _scale(m: Match, product: Node, factor: np.ndarray, plus: np.ndarray) -> Tensor | None:
    """The product with other weights and bias; None where that is not possible, or nothing is gained."""
    x, weights, *rest = product.operands
    y, axis = product.outputs[0], _PRODUCTS[product.op] % len(product.outputs[0].shape)
    is_row = all(values.size in (1, y.shape[axis]) and values.shape[axis] == values.size for values in (factor, plus))
    if not is_row or weights.data is None or any(tensor.data is None for tensor in rest) or m.is_read_twice(weights):
        return None
    scale, bias = (np.broadcast_to(values.ravel(), (y.shape[axis],)) for values in (factor, plus))
    if product.op == "MatMul" and m.op == "Add" and m.node.variables[0] is y:
        return None  # which has no bias, but an addition behind it
    scaled = constant(weights.data * _over_weights(product, scale), label="weights")
    if product.op == "MatMul":
        result = compute("MatMul", x, weights if np.all(scale == 1) else scaled, shape=y.shape, called=product.name)
        return compute("Add", result, constant(bias, label="bias")) if np.any(bias) else result
    beta = {"beta": 1.0} if product.op == "Gemm" else {}
    before = rest[0].data.astype(np.float64) * float(product.attrs.get("beta", 1.0)) if rest and rest[0].data is not None else 0.0
    operands, result = (x, scaled, constant(bias + before * scale, label="bias")), Tensor("", y.shape, y.dtype, label="scaled")
    return product.another(inputs=operands, outputs=(result,), attrs={**product.attrs, **beta}).outputs[0]


def _over_weights(product: Node, scale: np.ndarray) -> np.ndarray:
    """One value for each element of a product's result along its axis, as it broadcasts over the weights."""
    weights = product.operands[1].shape
    if product.op == "Conv":
        return scale.reshape([-1] + [1] * (len(weights) - 1))
    if product.op == "ConvTranspose":
        groups = int(product.attrs.get("group", 1))
        return np.repeat(scale.reshape(groups, -1), weights[0] // groups, axis=0).reshape([*weights[:2]] + [1] * (len(weights) - 2))
    return scale[:, None] if product.op == "Gemm" and product.attrs.get("transB", 0) else scale


@lowered("Conv")
def fold_borders(m: Match) -> Result:
    """What stands for zeros around an image is a border of its convolution, as far as filters reach; views may stand in between."""
    views: list[Node] = []
    tensor = m.x
    while (view := m.only_source(tensor, "Reshape", "Transpose")) is not None:
        views, tensor = [view, *views], view.operands[0]
    pad = m.only_source(tensor, "Pad")
    if pad is None or pad.attrs["mode"] != "constant" or pad.attrs["value"] != m.attrs["zero_point"] or min(pad.attrs["pads"]) < 0:
        return None
    x, begins, ends = pad.operands[0], *np.split(np.array(pad.attrs["pads"]), 2)
    widths = {axis: (int(begins[axis]), int(ends[axis])) for axis in range(len(tensor.shape)) if begins[axis] or ends[axis]}
    for view in views:
        before, after = view.operands[0].shape, view.outputs[0].shape
        axes = {axis: view.attrs["perm"].index(axis) if view.op == "Transpose" else _same_axis(before, after, axis) for axis in widths}
        widths = {place: widths[axis] for axis, place in axes.items() if place is not None}
        if len(widths) < len(axes):
            return None
        x = compute(view.op, x, shape=[n - sum(widths.get(axis, (0, 0))) for axis, n in enumerate(after)], **view.attrs)
    reach = [d * (n - 1) for d, n in zip(m.attrs["dilations"], m.inputs[1].shape[2:], strict=True)]
    if any(axis not in (1, 2) or max(width) > reach[axis - 1] for axis, width in widths.items()):
        return None
    (top, bottom), (left, right) = (widths.get(axis, (0, 0)) for axis in (1, 2))
    pads = tuple(own + more for own, more in zip(m.attrs["pads"], (top, left, bottom, right), strict=True))
    return m.replace("Conv", x, *m.inputs[1:], **{**m.attrs, "pads": pads})


@standard("QuantizeLinear", lowers=True)
def quantise_affine(m: Match) -> Result:
    """Bytes that become floats, are scaled and shifted by constants, and quantised: a requantisation, where that is exact for all."""
    y, tensor, nodes = quantised(m.node), m.x, list[Node]()
    while (node := m.only_source(tensor, *_ARITHMETIC)) is not None and len(node.variables) == 1:
        nodes, tensor = [node, *nodes], node.variables[0]
    cast, steps = m.only_source(tensor, "Cast"), [affine(node) for node in nodes]
    x = None if cast is None else cast.operands[0]
    if y is None or not (y.is_scalar and y.is_byte) or x is None or not plain(x).is_byte or not nodes or None in steps:
        return None
    integers = every(x).astype(np.int64).reshape([-1] + [1] * tensor.rank)
    reals, factor, plus = integers.astype(np.float32), np.ones([1] * tensor.rank), np.zeros([1] * tensor.rank)
    for node, own in zip(nodes, steps, strict=True):
        assert own is not None
        reals = _ARITHMETIC[node.op](*(reals if operand.data is None else operand.data for operand in node.operands))
        factor, plus = own[0] * factor, own[0] * plus + own[1]
    mul, shift = multiplier((factor / y.s).ravel())
    mul, wanted, (low, high) = mul.reshape(factor.shape), y.quantise(reals).astype(np.int64), y.tensor.dtype.range
    least = np.where(wanted > low, (wanted << shift) - integers * mul, -_UNBOUNDED).max(axis=0)
    most = np.where(wanted < high, ((wanted + 1) << shift) - 1 - integers * mul, _UNBOUNDED).min(axis=0)
    if (least > most).any():
        return None
    add = narrow(np.clip(summand(plus / y.s, shift) + (y.z << shift) + half(shift), least, most))
    return m.replace("RequantShift", x, constant(mul, label="mul"), constant(add, label="add"), shift=shift, low=low, high=high)


PASS = Pass("affine", (fold_affine,))
BORDERS = Pass("borders", (fold_borders,))


def fold_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """A float model whose products have taken over the constants behind them; the same one where it has none, or open shapes."""
    graph = gs.import_onnx(model)
    tensors = [tensor for tensor in graph.tensors().values() if not tensor.is_empty()]
    if any(tensor.shape is None or not all(isinstance(n, int) for n in tensor.shape) or not DType.has(tensor.dtype) for tensor in tensors):
        return model
    before = read_graph(graph)
    after = PASS(before)
    return model if after is before else gs.export_onnx(write_graph(after), ir_version=model.ir_version)
