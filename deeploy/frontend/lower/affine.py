"""Scales, shifts and borders that belong to the product behind or in front of them.

A multiplication or addition of constants behind a product with constant weights changes these weights and the bias instead, and zeros
around an image are those of its convolution. Views in between do not matter: what is constant for an element stays so where only its
place changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx

from deeploy.frontend.lower.lookup import ARITHMETIC
from deeploy.frontend.lower.quant import (
    byte_tensor,
    every_value,
    fixed_point_multiplier,
    plain_tensor,
    quantised_result,
    requantisation_operands,
    rounded_summand,
    rounding_half,
)
from deeploy.frontend.schemas import PRODUCTS
from deeploy.ir.nodes import Node, Tensor, compute, constant, inverse_order
from deeploy.ir.rewriting import Match, Pass, Result, lowered, need, require, standard
from deeploy.ir.surgeon import read_model, write_model
from deeploy.operators.conv import CONV

_VIEWS = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten")  # the last three only in files
_AFFINE = ("BatchNormalization", *ARITHMETIC)
_UNBOUNDED = 2**62  # beyond all summands
Affine = tuple[np.ndarray, np.ndarray]  # factor and summand, which broadcast over a tensor and have as many axes


def affine_operands(node: Node, value_of: Callable[[Tensor], np.ndarray | None] = lambda tensor: tensor.data) -> Affine:
    """Factor and summand of a node that has to multiply and add constants, in float64."""
    values, y = [value_of(tensor) for tensor in node.operands], node.outputs[0]
    variables = [tensor for tensor, known in zip(node.operands, values, strict=True) if known is None]
    constants = [np.array(known, np.float64, ndmin=y.rank) for known in values if known is not None]
    require([tensor.shape for tensor in variables] == [y.shape], len(node.outputs) == 1)
    if node.op == "BatchNormalization":
        scale, bias, mean, variance = (known.reshape([1, -1] + [1] * (y.rank - 2)) for known in constants)
        factor = scale / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
        return factor, bias - mean * factor
    (value,), is_first = constants, variables[0] is node.operands[0]
    ones, zeros = np.ones_like(value), np.zeros_like(value)
    if node.op in ("Add", "Sub"):
        return (ones, value) if node.op == "Add" else (ones, -value) if is_first else (-ones, value)
    require(node.op == "Mul" or (is_first and value.all()))
    return value if node.op == "Mul" else 1 / value, zeros


def _move_in_front(view: Node, values: np.ndarray) -> np.ndarray:
    """Constants that broadcast over the result of a view, as they broadcast over its input."""
    before, after = view.operands[0].shape, view.outputs[0].shape
    if view.op == "Transpose":
        return values.transpose(inverse_order(view.attrs.get("perm", range(len(after))[::-1])))
    long = [axis for axis, extent in enumerate(values.shape) if extent > 1]
    places = [find_axis(after, before, axis) for axis in long]
    require(len(long) < 2)
    return values.reshape([-1 if axis in places else 1 for axis in range(len(before))])


def find_axis(shape: Sequence[int], other: Sequence[int], axis: int) -> int:
    """The axis of another shape of the same elements that steps through them as an axis of one shape does."""
    begin = math.prod(shape[:axis])
    return need(next((i for i, n in enumerate(other) if n == shape[axis] and math.prod(other[:i]) == begin), None))


@standard(*_AFFINE, kind="f")
def fold_affine(m: Match) -> Result:
    """A product with constant weights, perhaps reordered, times and plus constants."""
    views, node, (factor, plus) = list[Node](), m.node, affine_operands(m.node)
    while (node := need(m.only_source(node.variables[0], *_VIEWS, *_AFFINE, *PRODUCTS))).op not in PRODUCTS:
        if node.op in _VIEWS:
            views, factor, plus = [node, *views], _move_in_front(node, factor), _move_in_front(node, plus)
        else:
            scale, offset = affine_operands(node)
            factor, plus = scale * factor, offset * factor + plus
    result = _scale_product(m, node, factor, plus)
    for view in views:
        result = view.another(inputs=(result, *view.inputs[1:])).outputs[0]
    return result


def _scale_product(m: Match, product: Node, factor: np.ndarray, plus: np.ndarray) -> Tensor:
    """The product with other weights and bias, where that is possible, and something is gained."""
    (x, weights, *rest), y = product.operands, product.outputs[0]
    axis, values, former = PRODUCTS[product.op] % y.rank, need(weights.data), [need(tensor.data) for tensor in rest]
    require(all(each.size in (1, y.shape[axis]) and each.shape[axis] == each.size for each in (factor, plus)), not m.is_read_twice(weights))
    scale, bias = (np.broadcast_to(each.ravel(), (y.shape[axis],)) for each in (factor, plus))
    scaled = constant(values * _over_weights(product, scale), label="weights")
    if product.op == "MatMul":
        require(m.op != "Add" or m.node.variables[0] is not y)  # which has no bias, but an addition behind it
        result = compute("MatMul", x, weights if np.all(scale == 1) else scaled, shape=y.shape, called=product.name)
        return compute("Add", result, constant(bias, label="bias")) if np.any(bias) else result
    beta = {"beta": 1.0} if product.op == "Gemm" else {}
    bias = bias + sum(each.astype(np.float64) * float(product.attrs.get("beta", 1.0)) for each in former) * scale
    operands, result = (x, scaled, constant(bias, label="bias")), Tensor("", y.shape, y.dtype, label="scaled")
    return product.another(inputs=operands, outputs=(result,), attrs={**product.attrs, **beta}).outputs[0]


def _over_weights(product: Node, scale: np.ndarray) -> np.ndarray:
    """One value for each element of a product's result along its axis, as it broadcasts over the weights."""
    weights = product.operands[1].shape
    if product.op == "ConvTranspose":
        groups = int(product.attrs.get("group", 1))
        return np.repeat(scale.reshape(groups, -1), weights[0] // groups, axis=0).reshape([*weights[:2]] + [1] * (len(weights) - 2))
    is_first = product.op == CONV.name or product.attrs.get("transB", 0)
    return scale.reshape([-1] + [1] * (len(weights) - 1)) if is_first else scale


@lowered(CONV.name)
def fold_borders(m: Match) -> Result:
    """What stands for zeros around an image is a border of its convolution, as far as filters reach; views may stand in between."""
    views, tensor = m.views(m.x)
    pad = need(m.only_source(tensor, "Pad"))
    require(pad.attrs["mode"] == "constant", pad.attrs["value"] == m.attrs["zero_point"], min(pad.attrs["pads"]) >= 0)
    x, widths = pad.operands[0], _find_widths(pad.attrs["pads"])
    for view in views:
        before, after = view.operands[0].shape, view.outputs[0].shape
        find = view.attrs["perm"].index if view.op == "Transpose" else partial(find_axis, before, after)
        widths = {find(axis): width for axis, width in widths.items()}
        x = compute(view.op, x, shape=[n - sum(widths.get(axis, (0, 0))) for axis, n in enumerate(after)], **view.attrs)
    reach = [0, *(d * (n - 1) for d, n in zip(m.attrs["dilations"], m.inputs[1].shape[2:], strict=True)), 0]
    require(all(max(width) <= reach[axis] for axis, width in widths.items()))
    (top, bottom), (left, right) = (widths.get(axis, (0, 0)) for axis in (1, 2))
    return m.replace(m.op, x, *m.inputs[1:], **{**m.attrs, "pads": tuple(np.add(m.attrs["pads"], (top, left, bottom, right)).tolist())})


def _find_widths(pads: Sequence[int]) -> Mapping[int, tuple[int, int]]:
    """The widths of borders at the beginning and at the end of axes, of those that have any."""
    return {axis: width for axis, width in enumerate(zip(*np.split(np.array(pads), 2), strict=True)) if any(width)}


@standard("QuantizeLinear", lowers=True)
def quantise_affine(m: Match) -> Result:
    """Bytes that become floats, are scaled and shifted by constants, and quantised: a requantisation, where that is exact for all."""
    y, tensor, nodes = need(byte_tensor(quantised_result(m.node))), m.x, list[Node]()
    while (node := m.only_source(tensor, *ARITHMETIC)) and len(node.variables) == 1:
        nodes, tensor = [node, *nodes], node.variables[0]
    x = need(m.only_source(tensor, "Cast")).operands[0]
    require(plain_tensor(x).is_byte, nodes)
    integers = every_value(x).astype(np.int64).reshape([-1] + [1] * tensor.rank)
    reals, factor, plus = integers.astype(np.float32), np.ones([1] * tensor.rank), np.zeros([1] * tensor.rank)
    for node in nodes:
        scale, offset = affine_operands(node)
        reals = ARITHMETIC[node.op](*(reals if operand.data is None else operand.data for operand in node.operands))
        factor, plus = scale * factor, scale * plus + offset
    mul, shift = fixed_point_multiplier((factor / y.s).ravel())
    mul, wanted, (low, high) = mul.reshape(factor.shape), y.quantise(reals).astype(np.int64), y.tensor.dtype.range
    least = np.where(wanted > low, (wanted << shift) - integers * mul, -_UNBOUNDED).max(axis=0)
    most = np.where(wanted < high, ((wanted + 1) << shift) - 1 - integers * mul, _UNBOUNDED).min(axis=0)
    require((least <= most).all())
    add = np.clip(rounded_summand(plus / y.s, shift) + (y.z << shift) + rounding_half(shift), least, most)
    return m.replace("RequantShift", x, *requantisation_operands(mul, add), shift=shift, low=low, high=high)


PASS = Pass("affine", (fold_affine,))
BORDERS = Pass("borders", (fold_borders,))


def fold_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """A float model whose products have taken over the constants behind them; the same one where it has none, or open shapes."""
    before = read_model(model)
    after = None if before is None else PASS(before)
    return model if after is None or after is before else write_model(after, ir_version=model.ir_version)
