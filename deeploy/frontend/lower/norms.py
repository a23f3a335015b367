"""LayerNormalization and RMSNormalization, in floats and in the integers of QDQ graphs.

Both normalise everything from ``axis`` on, which is one row here. In integers the row is standardised in fixed point, and scale,
bias, and the quantisation of the result are its requantisation, per element of the row.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.quant import Quantised, dequantised, half, multiplier, narrow, summand
from deeploy.operators.norms import MOST_COLUMNS

CENTRED = {"LayerNormalization": True, "RMSNormalization": False, "SimplifiedLayerNormalization": False}
_FRACTION = 29  # bits of a standardised value of 1, where no value exceeds 1


def _axis(node: gs.Node) -> int:
    return int(node.attrs.get("axis", -1)) % len(node.inputs[0].shape)


def _row(values: np.ndarray, columns: int) -> np.ndarray | None:
    """One value per element of a row, from one or as many."""
    return np.broadcast_to(values.ravel(), (columns,)) if values.size in (1, columns) else None


def _in_rows(graph: gs.Graph, x: gs.Tensor, axis: int, label: str) -> gs.Tensor:
    """``x`` with everything from ``axis`` on as one axis."""
    return build.reshape(graph, x, [*x.shape[:axis], math.prod(x.shape[axis:])], f"rows for {label}")


def _from_rows(graph: gs.Graph, y: gs.Tensor, axis: int) -> gs.Tensor:
    """The tensor in rows that ``y`` is a reshaping of, which is appended; ``y`` itself where nothing changes."""
    if axis == len(y.shape) - 1:
        return y
    rows = build.variable(f"{y.name} (rows)", y.dtype, [*y.shape[:axis], math.prod(y.shape[axis:])])
    build.add(graph, "Reshape", [rows], y)
    return rows


def floating(graph: gs.Graph, node: gs.Node) -> bool:
    """``Normalise``, with the scale and bias of the node as rows."""
    x, y = node.inputs[0], node.outputs[0]
    if np.dtype(x.dtype).kind != "f" or any(not t.is_empty() for t in node.outputs[1:]):
        return False
    axis = _axis(node)
    columns = math.prod(x.shape[axis:])
    parameters: list[gs.Tensor] = []
    for tensor in node.inputs[1:3]:
        if tensor.is_empty():
            continue
        values = real_constant(tensor)
        row = None if values is None else _row(values, columns)
        if row is not None:
            parameters.append(build.const(f"{tensor.name} (row)", row, np.float32))
        elif values is None and math.prod(tensor.shape) == columns:
            parameters.append(build.reshape(graph, tensor, [columns], f"row for {node.name}"))
        else:
            return False
    node.outputs.clear()
    rows = _in_rows(graph, x, axis, node.name)
    output = _from_rows(graph, y, axis)
    attrs = {"centred": CENTRED[node.op], "epsilon": float(node.attrs.get("epsilon", 1e-5))}
    build.add(graph, "Normalise", [rows, *parameters], output, node.name, **attrs)
    return True


def quantised(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    """``Standardise`` and its requantisation; ``node`` is the QuantizeLinear that it replaces."""
    x = dequantised(source.inputs[0])
    if x is None or not (x.is_scalar and x.is_byte) or any(not t.is_empty() for t in source.outputs[1:]):
        return False
    axis, centred = _axis(source), CENTRED[source.op]
    columns = math.prod(x.tensor.shape[axis:])
    reals = [real_constant(t) for t in source.inputs[1:3] if not t.is_empty()]
    rows = [None if real is None else _row(real.astype(np.float64), columns) for real in reals]
    # In the units of the squares, which are columns^2 times the variance or columns times the mean square.
    epsilon = float(source.attrs.get("epsilon", 1e-5)) / x.s**2 * columns * (columns if centred else 1) * 2**16
    if any(row is None for row in rows) or not rows or not 1 <= columns <= MOST_COLUMNS or epsilon >= 2.0**61:
        return False
    scale, bias = np.asarray(rows[0]), np.asarray(rows[1] if len(rows) > 1 else np.zeros(1))
    # No standardised value exceeds sqrt(columns); without the mean, that is left to the multiplier.
    fraction = _FRACTION - ((columns.bit_length() + 1) // 2 if centred else 0)
    mul, shift = multiplier(scale * (1.0 if centred else math.sqrt(columns)) / y.s / 2.0**fraction)
    add = narrow(summand(bias / y.s, shift) + (y.z << shift) + half(shift))
    result = node.outputs[0]
    node.outputs.clear()
    constants = [build.const(f"{result.name} (mul)", mul), build.const(f"{result.name} (add)", add)]
    attrs = {"centred": centred, "zero_point": x.z, "fraction": fraction, "epsilon": round(epsilon)}
    stage = {"epilogue": ("requantise",), "shift": shift, "low": low, "high": high}
    rows_in = _in_rows(graph, x.tensor, axis, source.name)
    build.add(graph, "Standardise", [rows_in, *constants], _from_rows(graph, result, axis), source.name, **attrs, **stage)
    return True
