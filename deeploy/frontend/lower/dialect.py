"""The integer dialect: element types, which its files do not hold, and its requantisation (DIALECT semantics).

Rounding (half of the divisor, up) and NumPy broadcasting are made explicit here; a RequantShift then means what the
integer form says: clip((x*mul + add) >> shift, low, high).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.lower import build
from deeploy.frontend.lower.dialect_functions import functions, requantised_function
from deeploy.frontend.lower.quant import narrow
from deeploy.graph.rewrite import Pass, constant, redirect, rule
from deeploy.graph.types import DType

_ACCUMULATORS = frozenset(
    [
        "Conv",
        "ConvTranspose",
        "Gemm",
        "MatMul",
        "Add",
        "Sub",
        "Mul",
        "ReduceSum",
        "ReduceMean",
        "IntegerMean",
        "iGELU",
        "iHardswish",
        "IntegerDiv",
        "TrueIntegerDiv",
        "iNoNorm",
        "Div",
    ]
)
_UNSIGNED = frozenset({"iSoftmax", "ITAMax", "ITAPartialMax"})
_SIGNED = frozenset({"iLayerNorm", "iRMSNorm"})


CustomType = Callable[[gs.Node], DType | None]


def assign_types(graph: gs.Graph, input_types: Mapping[str, DType], custom: CustomType = lambda node: None) -> None:
    """Give every tensor of a dialect graph its element type, in place, starting from the inputs.

    Accumulators are int32, RequantShift's result follows from ``n_levels`` and ``signed``, constants take the smallest type
    that holds them, everything else keeps the type of its first input. ``custom`` knows the results of operators that only
    the target has.

    Raises:
        ModelError: a constant that holds other than whole numbers, or a tensor whose values fit no type.
    """
    for tensor in graph.inputs:
        tensor.dtype = input_types[tensor.name].numpy
    known: dict[str, gs.Constant] = {}
    for node in graph.nodes:
        for position, tensor in enumerate(node.inputs):
            if isinstance(tensor, gs.Constant):
                if tensor.name not in known:
                    known[tensor.name] = _integer_constant(tensor, node)
                node.inputs[position] = known[tensor.name]
        for tensor in node.outputs:
            tensor.dtype = (custom(node) or _result(node)).numpy


def _integer_constant(tensor: gs.Constant, node: gs.Node) -> gs.Constant:
    values = np.asarray(tensor.values)
    if values.dtype.kind in "f":
        whole = np.rint(values)
        if not np.array_equal(whole, values):
            raise ModelError(
                f"constant {shorten(tensor.name)} of node {shorten(node.name)} ({node.op}) holds values that are not whole numbers",
                "A dialect graph is integer throughout; pass --dialect standard if this one is not.",
            )
        values = whole.astype(np.int64)
    if node.op in ("Gather", "Reshape") or not values.size:
        return tensor if np.asarray(tensor.values).dtype.kind in "iu" else build.const(tensor.name, values)
    dtype = DType.smallest(int(values.min()), int(values.max()))
    return build.const(tensor.name, values, dtype.numpy)


def _result(node: gs.Node) -> DType:
    if node.op == "RequantShift":
        low, high = output_range(node)
        return DType.smallest(low, high) if not node.attrs.get("signed", True) or low < 0 else DType.smallest(min(low, -1), high)
    if node.op in _UNSIGNED:
        return DType.UINT8 if int(node.attrs.get("n_levels", 256)) <= 256 else DType.INT32
    if node.op in _SIGNED:
        return DType.INT8
    if node.op in _ACCUMULATORS:
        return DType.INT32
    data = [DType.of(t.dtype) for t in node.inputs if not t.is_empty() and (node.op == "Concat" or t is node.inputs[0])]
    if len(set(data)) > 1:
        low, high = min(t.range[0] for t in data), max(t.range[1] for t in data)
        raise UnsupportedError(
            f"node {shorten(node.name)} (Concat) joins {', '.join(sorted({t.name.lower() for t in data}))}",
            f"Requantise its inputs to one type, or declare inputs that hold {low} to {high} (--input-type).",
        )
    return data[0] if data else DType.INT32


def output_range(node: gs.Node) -> tuple[int, int]:
    """Smallest and largest result of a RequantShift."""
    levels = int(node.attrs["n_levels"])
    return (-(levels // 2), levels // 2 - 1) if node.attrs.get("signed", True) else (0, levels - 1)


def _shift(node: gs.Node) -> int:
    divisor = int(node.attrs["div"])
    shift = divisor.bit_length() - 1
    if divisor < 1 or divisor != 1 << shift or shift > 62:
        raise UnsupportedError(
            f"node {shorten(node.name)} (RequantShift) divides by {divisor}", "The divisor must be a power of two up to 2^62."
        )
    return shift


def _broadcast(values: np.ndarray, rank: int, channels: int) -> np.ndarray:
    """mul or add as it broadcasts over x: [C,1,1] and [1,C,1,1] with C the size of axis 1 lie on axis 1, else NumPy's rule."""
    trailing = values.ndim - 2
    on_axis_1 = (
        values.ndim in (3, 4)
        and values.shape[-3] == channels == values.size
        and values.shape[-2:] == (1, 1)
        and (values.ndim == 3 or values.shape[0] == 1)
    )
    if on_axis_1 and trailing >= 1:
        return values.reshape([1, channels] + [1] * (rank - 2)) if rank >= 2 else values.reshape(-1)
    return values.reshape(-1) if values.size == 1 else values


@rule("RequantShift")
def requant_shift(graph: gs.Graph, node: gs.Node) -> bool:
    """Explicit rounding and broadcasting; an identity vanishes."""
    if build.lowered(node):
        return False
    x, y = node.inputs[0], node.outputs[0]
    mul, add = constant(node.inputs[1]), constant(node.inputs[2])
    if mul is None or add is None:
        return False
    shift = _shift(node)
    low, high = output_range(node)
    if bool(np.all(mul == (1 << shift))) and not add.any() and _vanishes(graph, node, x, y, low, high):
        return True
    rank = len(x.shape)
    channels = x.shape[1] if rank > 1 else 0
    rounding = (1 << (shift - 1)) if shift else 0
    factor = _broadcast(mul.astype(np.int64), rank, channels)
    summand = _broadcast(add.astype(np.int64) + rounding, rank, channels)
    node.outputs.clear()
    constants = [build.const(f"{y.name} (mul)", factor, np.int32), build.const(f"{y.name} (add)", narrow(summand))]
    build.add(graph, "RequantShift", [x, *constants], y, node.name, shift=shift, low=low, high=high)
    return True


def _vanishes(graph: gs.Graph, node: gs.Node, x: gs.Tensor, y: gs.Tensor, low: int, high: int) -> bool:
    """Remove a RequantShift that changes no value: its output range contains its input's."""
    first, last = DType.of(x.dtype).range
    if first < low or last > high or np.dtype(x.dtype) != np.dtype(y.dtype):
        return False
    if any(y is out for out in graph.outputs):
        node.outputs.clear()
        build.add(graph, "Reshape", [x], y, node.name)
        return True
    redirect(graph, y, x)
    node.outputs.clear()
    return True


PASS = Pass("dialect", (requant_shift, functions, requantised_function))
