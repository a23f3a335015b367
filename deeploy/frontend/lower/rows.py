"""Operators on rows and windows: reductions, extremes, softmax, norms, pools.

A norm takes everything from ``axis`` on as one row. In integers the row is standardised in fixed point, and scale, bias, and the
quantisation of the result are its requantisation, per element of the row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deeploy.frontend.integer_graphs import FRACTION
from deeploy.frontend.lower.lookup import real_constant, tabulate_values
from deeploy.frontend.lower.quant import (
    Quantised,
    behind_dequantisation,
    fixed_point_multiplier,
    requantisation_operands,
    rounded_summand,
    rounding_half,
)
from deeploy.frontend.lower.rule_call import RuleCall, is_image, spatial_pair, window_attributes
from deeploy.frontend.schemas import Attributes
from deeploy.ir.nodes import Tensor, compute, constant, inverse_order
from deeploy.ir.rewriting import Result, need, require
from deeploy.ir.types import DType
from deeploy.operators.norms import MOST_COLUMNS

CENTRED = {"LayerNormalization": True, "RMSNormalization": False, "SimplifiedLayerNormalization": False}
_LONG = 44  # bits of a shift, beside which 32 bits are at most 2^-12 of a step
_FRACTION = 29  # bits of a standardised value of 1, where no value exceeds 1
_MOST_LEVELS = 2**16  # of a softmax: what is finer is computed in floats


def lower_pool(call: RuleCall) -> Result:
    """MaxPool, AveragePool."""
    x, is_average = need(call.operand(0)), call.op == "AveragePool"
    require(is_image(call.x), len(call.node.outputs) == 1, call.x.dtype.is_float or FRACTION in call.attrs or not is_average)
    attrs: Attributes = {**window_attributes(call.attrs), "kernel": spatial_pair(call.attrs["kernel_shape"], 1)}
    if is_average:
        attrs |= {"count_include_pad": bool(call.attrs["count_include_pad"]), "zero_point": x.z}
    return call.replace_image(call.op, call.image(x.tensor), ratio=np.float64(x.s) / call.step / 65536, **attrs)


def lower_reduction(call: RuleCall) -> Result:
    """Reduce operators, global pools.

    Quantised means over whole axes are sums whose ratio holds the count; what is summed may be a function of an 8-bit tensor.
    """
    op = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}.get(call.op, call.op)
    axes = tuple(call.attrs["axes"] if op == call.op else range(2, call.x.rank))
    attrs: Attributes = {"axes": axes, "keepdims": bool(call.attrs.get("keepdims", 1))}
    if call.result is None:
        return call.replace("IntegerMean" if op == "ReduceMean" and not call.x.dtype.is_float else op, call.x, **attrs)
    x, count = call.operand(0), math.prod(call.x.shape[i] for i in axes)
    share = 1 if op == "ReduceSum" else count
    if x is not None:
        return call.replace("ReduceSum", x.tensor, ratio=np.float64(x.s) / call.step / share, offset=-x.z * count, **attrs)
    source, reals = need(tabulate_values(call.x) if behind_dequantisation(call.x) is None else None)
    source = need(source)
    require(source.tensor.data is None, np.all(np.isfinite(reals)), np.any(reals))
    unit = float(np.abs(reals).max()) * count / 2**30  # of a sum, which fits 32 bits then
    terms = compute("Lookup", source.tensor, constant(np.rint(reals / unit), DType.INT32, "table"), dtype=DType.INT32)
    return call.replace("ReduceSum", terms, ratio=unit / call.step / share, **attrs)


def lower_extreme(call: RuleCall) -> Result:
    """ArgMax, ArgMin: along the last axis, which is kept."""
    moved, _ = call.axis_last(call.x)
    attrs: Attributes = {"smallest": call.op == "ArgMin", "last": bool(call.attrs.get("select_last_index", 0))}
    return compute("ArgMax", moved, shape=[*moved.shape[:-1], 1], dtype=call.y.dtype, **attrs)


def lower_softmax(call: RuleCall) -> Result:
    """Softmax; of integers, exponentials of the distance from the maximum come from a table."""
    x, constants, attrs = need(call.operand(0)), list[Tensor](), dict[str, int]()
    # onnxruntime's QLinearSoftmax cuts the number of levels off, which this follows: 254 for the scale 1/255 in float32.
    levels = int(np.float32(1.0) / np.float32(call.step))
    require(levels <= _MOST_LEVELS)
    if call.result is not None:
        # What keeps sums and numerators within 32 bits, where nothing is lost by that.
        peak = (2**31 - 1) // (levels + call.x.shape[call.attrs["axis"]])
        exponentials = np.exp(-np.arange(256, dtype=np.float64) * x.s)
        constants = [constant(np.rint(exponentials * max(peak, 2**18)), DType.UINT32, "exponentials")]
        attrs = {"levels": levels, "zero_point": call.zero, **call.limits}
    moved, perm = call.axis_last(x.tensor)
    label = "channels last" if perm == [0, 2, 3, 1] else ""
    return call.create("Softmax", moved, *constants, dtype=call.y.dtype, label=label, **attrs).transpose(inverse_order(perm))


def lower_norm(call: RuleCall) -> Result:
    """LayerNormalization, RMSNormalization."""
    x, shape, parameters = need(call.operand(0)), call.x.shape, call.inputs[1:]
    require(call.x.dtype.is_float, not any(tensor.name for tensor in call.node.outputs[1:]))
    axis, epsilon = call.attrs.get("axis", -1) % len(shape), float(call.attrs.get("epsilon", 1e-5))
    columns = math.prod(shape[axis:])
    rows = x.tensor.reshape([*shape[:axis], columns])
    if call.result is not None:
        return _standardise_rows(call, x, rows, [need(_find_row(tensor, columns)) for tensor in parameters], epsilon)
    tensors = (_read_parameter(tensor, columns) for tensor in parameters)
    return compute("Normalise", rows, *tensors, centred=CENTRED[call.op], epsilon=epsilon)


def _find_row(tensor: Tensor, columns: int) -> np.ndarray | None:
    """One constant value per element of a row, from one or as many."""
    values = real_constant(tensor)
    return np.broadcast_to(values.ravel(), (columns,)) if values is not None and values.size in (1, columns) else None


def _read_parameter(tensor: Tensor, columns: int) -> Tensor:
    """A value per element of a row, constant or not."""
    row = _find_row(tensor, columns)
    if row is not None:
        return constant(row, label="row")
    require(real_constant(tensor) is None, tensor.elements == columns)
    return tensor.reshape([columns])


def _standardise_rows(call: RuleCall, x: Quantised, rows: Tensor, parameters: Sequence[np.ndarray], epsilon: float) -> Result:
    """``Standardise`` and its requantisation."""
    columns, centred = rows.shape[-1], CENTRED[call.op]
    # In the units of the squares, which are columns^2 times the variance or columns times the mean square.
    epsilon = epsilon / x.s**2 * columns * (columns if centred else 1) * 2**16
    require(parameters, 1 <= columns <= MOST_COLUMNS, epsilon < 2.0**61)
    scale, bias = (np.asarray(row, np.float64) for row in (*parameters, np.zeros(1))[:2])
    # No standardised value exceeds sqrt(columns); without the mean, that is left to the multiplier.
    fraction = _FRACTION - ((columns.bit_length() + 1) // 2 if centred else 0)
    mul, shift = fixed_point_multiplier(scale * (1.0 if centred else math.sqrt(columns)) / call.step / 2.0**fraction)
    # Of a long shift, summands leave their lower word 0, which is nothing beside a step: upper words of products are enough then.
    below = 32 if shift >= _LONG else 0
    add = (rounded_summand(bias / call.step, shift - below) << below) + (call.zero << shift) + rounding_half(shift)
    stage: Attributes = {"epilogue": ("requantise",), "shift": shift, **call.limits}
    attrs: Attributes = {"centred": centred, "zero_point": x.z, "fraction": fraction, "epsilon": round(epsilon)}
    return compute("Standardise", rows, *requantisation_operands(mul, add), dtype=call.y.dtype, **attrs, **stage)
