"""Operators on rows and windows: reductions, extremes, softmax, norms, pools.

A norm takes everything from ``axis`` on as one row. In integers the row is standardised in fixed point, and scale, bias, and the
quantisation of the result are its requantisation, per element of the row.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.integer_graphs import FRACTION
from deeploy.frontend.lower.call import Call, is_image, spatial, window
from deeploy.frontend.lower.lookup import real_constant, tabulate
from deeploy.frontend.lower.quant import Quantised, dequantised, half, multiplier, narrow, summand
from deeploy.frontend.lower.rewriter import inverse
from deeploy.frontend.schemas import Attributes
from deeploy.operators.norms import MOST_COLUMNS

CENTRED = {"LayerNormalization": True, "RMSNormalization": False, "SimplifiedLayerNormalization": False}
_LONG = 44  # bits of a shift, beside which 32 bits are at most 2^-12 of a step
_FRACTION = 29  # bits of a standardised value of 1, where no value exceeds 1
_MOST_LEVELS = 2**16  # of a softmax: what is finer is computed in floats


def pool(call: Call) -> bool:
    """MaxPool, AveragePool."""
    x, is_average = call.operand(0), call.op == "AveragePool"
    if x is None or not is_image(call.x) or len(call.node.outputs) > 1 or (is_average and not call.is_float and FRACTION not in call.attrs):
        return False
    attrs = {**window(call.attrs), "kernel": spatial(call.attrs["kernel_shape"], 1)}
    if is_average:
        attrs |= {"count_include_pad": bool(call.attrs["count_include_pad"]), "zero_point": x.z}
    constants, stage = call.requantisation(np.float64(x.s) / call.step / 65536)
    return call.replace_image(call.op, call.image(x.tensor), *constants, **attrs, **stage)


def reduction(call: Call) -> bool:
    """Reduce operators, global pools.

    Quantised means over whole axes are sums whose ratio holds the count; what is summed may be a function of an 8-bit tensor.
    """
    op = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}.get(call.op, call.op)
    axes = tuple(call.attrs["axes"]) if op == call.op else tuple(range(2, len(call.x.shape)))
    attrs = {"axes": axes, "keepdims": bool(call.attrs.get("keepdims", 1))}
    if call.result is None:
        return call.replace("IntegerMean" if op == "ReduceMean" and not call.is_float else op, call.x, **attrs)
    x, count = call.operand(0), math.prod(call.x.shape[i] for i in axes)
    share = 1 if op == "ReduceSum" else count
    if x is not None:
        terms, ratio, offset = x.tensor, np.float64(x.s) / call.step / share, -x.z * count
    else:
        found = tabulate(call.x) if dequantised(call.x) is None else None
        source, reals = found if found is not None else (None, np.zeros(0))
        if source is None or isinstance(source.tensor, gs.Constant) or not np.all(np.isfinite(reals)) or not np.any(reals):
            return False
        unit = float(np.abs(reals).max()) * count / 2**30  # of a sum, which fits 32 bits then
        table = call.constant(np.rint(reals / unit), np.int32, "table")
        terms, ratio, offset = call.create("Lookup", source.tensor, table, dtype=np.int32), unit / call.step / share, 0
    constants, stage = call.requantisation(ratio, offset)
    return call.replace("ReduceSum", terms, *constants, **attrs, **stage)


def extreme(call: Call) -> bool:
    """ArgMax, ArgMin: along the last axis, which is kept."""
    moved, _ = call.axis_last(call.x)
    attrs: Attributes = {"smallest": call.op == "ArgMin", "last": bool(call.attrs.get("select_last_index", 0))}
    found = call.create("ArgMax", moved, shape=[*moved.shape[:-1], 1], dtype=call.y.dtype, **attrs)
    return call.replace("Reshape", found)  # the axes that remain are in the same order


def softmax(call: Call) -> bool:
    """In integers, exponentials of the distance from the maximum come from a table."""
    x, constants = call.operand(0), list[gs.Tensor]()
    attrs: Attributes = {}
    if x is None:
        return False
    if call.result is not None:
        # onnxruntime's QLinearSoftmax cuts the number of levels off, which this follows: 254 for the scale 1/255 in float32.
        levels = int(np.float32(1.0) / np.float32(call.step))
        if levels > _MOST_LEVELS:
            return False
        # What keeps sums and numerators within 32 bits, where nothing is lost by that.
        peak = (2**31 - 1) // (levels + int(call.x.shape[call.attrs["axis"]]))
        distances = np.arange(256, dtype=np.float64) * x.s
        constants = [call.constant(np.rint(np.exp(-distances) * max(peak, 2**18)), np.uint32, "exponentials")]
        attrs = {"levels": levels, "zero_point": call.zero, "low": call.low, "high": call.high}
    moved, perm = call.axis_last(x.tensor)
    label = "channels last" if perm == [0, 2, 3, 1] else ""
    return call.finish(call.transpose(call.create("Softmax", moved, *constants, dtype=call.y.dtype, label=label, **attrs), inverse(perm)))


def norm(call: Call) -> bool:
    """LayerNormalization, RMSNormalization."""
    x = call.operand(0)
    if x is None or not call.is_float or any(not t.is_empty() for t in call.node.outputs[1:]):
        return False
    shape = list(call.x.shape)
    axis = int(call.attrs.get("axis", -1)) % len(shape)
    rows = [*shape[:axis], math.prod(shape[axis:])]
    parameters = [t for t in call.node.inputs[1:3] if not t.is_empty()]
    if call.result is not None:
        return _standardised(call, x, parameters, rows)
    tensors: list[gs.Tensor] = []
    for tensor in parameters:
        row = _row(tensor, rows[-1])
        if row is None and (real_constant(tensor) is not None or math.prod(tensor.shape) != rows[-1]):
            return False
        tensors.append(call.reshape(tensor, rows[-1:]) if row is None else call.constant(row, label="row"))
    attrs: Attributes = {"centred": CENTRED[call.op], "epsilon": float(call.attrs.get("epsilon", 1e-5))}
    return call.finish(call.reshape(call.create("Normalise", call.reshape(call.x, rows), *tensors, **attrs), call.y.shape))


def _row(tensor: gs.Tensor, columns: int) -> np.ndarray | None:
    """One constant value per element of a row, from one or as many."""
    values = real_constant(tensor)
    return np.broadcast_to(values.ravel(), (columns,)) if values is not None and values.size in (1, columns) else None


def _standardised(call: Call, x: Quantised, parameters: list[gs.Tensor], rows: list[int]) -> bool:
    """``Standardise`` and its requantisation."""
    columns, centred = rows[-1], CENTRED[call.op]
    found = [_row(tensor, columns) for tensor in parameters]
    # In the units of the squares, which are columns^2 times the variance or columns times the mean square.
    epsilon = float(call.attrs.get("epsilon", 1e-5)) / x.s**2 * columns * (columns if centred else 1) * 2**16
    if any(row is None for row in found) or not found or not 1 <= columns <= MOST_COLUMNS or epsilon >= 2.0**61:
        return False
    scale, bias = (np.asarray(row, np.float64) for row in (*found, np.zeros(1))[:2])
    # No standardised value exceeds sqrt(columns); without the mean, that is left to the multiplier.
    fraction = _FRACTION - ((columns.bit_length() + 1) // 2 if centred else 0)
    mul, shift = multiplier(scale * (1.0 if centred else math.sqrt(columns)) / call.step / 2.0**fraction)
    # Of a long shift, summands leave their lower word 0, which is nothing beside a step: upper words of products are enough then.
    below = 32 if shift >= _LONG else 0
    add = narrow((summand(bias / call.step, shift - below) << below) + (call.zero << shift) + half(shift))
    attrs: Attributes = {"centred": centred, "zero_point": x.z, "fraction": fraction, "epsilon": round(epsilon)}
    stage: Attributes = {"epilogue": ("requantise",), "shift": shift, "low": call.low, "high": call.high}
    inputs = call.reshape(x.tensor, rows), call.constant(mul, label="mul"), call.constant(add, label="add")
    return call.finish(call.reshape(call.create("Standardise", *inputs, dtype=call.y.dtype, **attrs, **stage), call.y.shape))
