"""The integer dialect: element types, which its files do not hold, and its requantisation (DIALECT semantics).

Rounding (half of the divisor, up) and NumPy broadcasting are made explicit here; a RequantShift then means what the
integer form says: clip((x*mul + add) >> shift, low, high).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.integer_graphs import FRACTION
from deeploy.frontend.lower import build
from deeploy.frontend.lower.dialect_functions import RULES
from deeploy.frontend.lower.qonnx import reached
from deeploy.frontend.lower.quant import half, narrow
from deeploy.frontend.lower.rewriter import Rewriter, standard
from deeploy.frontend.schemas import DIALECT_OPS
from deeploy.graph.rewrite import Pass, constant, producer, sort
from deeploy.graph.types import DType

_LARGEST = 2.0**62  # of constants
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_SUMS = ("ReduceSum", "ReduceMean", "IntegerMean", "GlobalAveragePool")
_FUNCTIONS = ("iGELU", "iHardswish", "IntegerDiv", "TrueIntegerDiv", "iNoNorm")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
_ACCUMULATORS = frozenset({*_PRODUCTS, *_SUMS, *_FUNCTIONS, *_ARITHMETIC, "Neg"})
_UNSIGNED = frozenset({"iSoftmax", "ITAMax", "ITAPartialMax"})
_SIGNED = frozenset({"iLayerNorm", "iRMSNorm"})
_JOINING = {"Concat": 0, "Max": 0, "Min": 0, "Where": 1}  # whose results hold elements of all inputs from this position on
_INDICES = {"Gather": 1, "Reshape": 1}  # positions of inputs whose values are no data
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not")
_STEPS = frozenset({*_PRODUCTS, *DIALECT_OPS})  # that take whole numbers where they are rounded before


CustomType = Callable[[gs.Node], DType | None]


def assign_types(graph: gs.Graph, input_types: Mapping[str, DType], custom: CustomType = lambda node: None) -> None:
    """Give every tensor of a dialect graph its element type, in place, starting from the inputs.

    Accumulators are int32, RequantShift's result follows from ``n_levels`` and ``signed``, constants take the smallest type
    that holds them, everything else keeps the type of its first input. ``custom`` knows the results of operators that only
    the target has. What is computed from floats (an input, a DequantizeLinear) is float up to the next QuantizeLinear, or to
    whole numbers that an integer operator reads.

    Raises:
        ModelError: a constant that holds other than whole numbers, or a tensor whose values fit no type.
    """
    for tensor in graph.inputs:
        tensor.dtype = input_types[tensor.name].numpy
    known: dict[str, gs.Constant] = {}
    for node in list(graph.nodes):
        if node.op in ("QuantizeLinear", "DequantizeLinear"):
            _quantisation(node)
            continue
        _take_steps(graph, node)
        _to_reals(graph, node)
        if any(_is_real(tensor) for tensor in node.inputs):
            continue
        for position, tensor in enumerate(node.inputs):
            if isinstance(tensor, gs.Constant) and position != _INDICES.get(node.op):
                if tensor.name not in known:
                    known[tensor.name] = _integer_constant(tensor, node)
                node.inputs[position] = known[tensor.name]
            elif isinstance(tensor, gs.Constant):
                node.inputs[position] = gs.Constant(tensor.name, np.asarray(np.rint(tensor.values), np.int64))
        for tensor in node.outputs:
            tensor.dtype = (custom(node) or _result(node)).numpy
    sort(graph)


def _is_real(tensor: gs.Tensor) -> bool:
    """Whether a tensor that is no constant holds floats."""
    return not isinstance(tensor, gs.Constant) and not tensor.is_empty() and np.dtype(tensor.dtype).kind == "f"


def _quantisation(node: gs.Node) -> None:
    """The type of the zero point where there is one, else what the file says, else uint8; floats on the other side."""
    if node.op == "DequantizeLinear":
        node.outputs[0].dtype = np.dtype(np.float32)
        return
    zero = constant(node.inputs[2]) if len(node.inputs) > 2 else None
    declared = np.dtype(node.outputs[0].dtype if zero is None else zero.dtype)
    node.outputs[0].dtype = declared if declared.kind in "iu" else np.dtype(np.uint8)


def _take_steps(graph: gs.Graph, node: gs.Node) -> None:
    """Make the whole numbers behind Round and Clip, which an integer operator reads, integers by a Cast."""
    if node.op not in _STEPS:
        return
    weights = [constant(t) for t in node.inputs[1:]]
    if any(w is not None and not np.array_equal(w, np.rint(w)) for w in weights):
        return
    for position, tensor in enumerate(node.inputs):
        limits = producer(tensor, "Clip")
        if not _is_real(tensor) or limits is None or producer(limits.inputs[0], "Round") is None:
            continue
        low, high = limits.attrs.get("min"), limits.attrs.get("max")
        if low is not None and high is not None and -(2**31) <= low <= high < 2**31:
            node.inputs[position] = _cast(graph, tensor, DType.smallest(int(low), int(high)), node)


def _to_reals(graph: gs.Graph, node: gs.Node) -> None:
    """Cast integers that meet constants other than whole numbers: a dequantisation, written out."""
    values = [constant(t) for t in node.inputs] if node.op in _ARITHMETIC else []
    if any(v is not None and v.dtype.kind == "f" and not np.array_equal(v, np.rint(v)) for v in values):
        for position, (tensor, value) in enumerate(zip(node.inputs, values, strict=True)):
            if value is None and not _is_real(tensor):
                node.inputs[position] = _cast(graph, tensor, DType.FLOAT32, node)


def _cast(graph: gs.Graph, tensor: gs.Tensor, dtype: DType, node: gs.Node) -> gs.Tensor:
    result = build.variable(f"{tensor.name} ({dtype.name.lower()} for {node.name})", dtype.numpy, tensor.shape)
    kind = int(onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy))
    graph.nodes.append(gs.Node("Cast", result.name, {"to": kind}, [tensor], [result]))
    return result


def _integer_constant(tensor: gs.Constant, node: gs.Node) -> gs.Constant:
    values = np.asarray(tensor.values)
    if values.dtype.kind in "f":
        whole = np.rint(values)
        if not np.array_equal(whole, values) or (np.abs(whole) > _LARGEST).any():
            raise ModelError(
                f"constant {shorten(tensor.name)} of node {shorten(node.name)} ({node.op}) holds values that are not integers of 64 bits",
                "A dialect graph is integer throughout; pass --dialect standard if this one is not.",
            )
        values = whole.astype(np.int64)
    if values.dtype.kind == "b" or not values.size:
        return tensor if np.asarray(tensor.values).dtype.kind in "iub" else build.const(tensor.name, values)
    dtype = DType.smallest(int(values.min()), int(values.max()))
    return build.const(tensor.name, values, dtype.numpy)


def _result(node: gs.Node) -> DType:
    if node.op == "RequantShift":
        low, high = output_range(node)
        return DType.smallest(low, high) if not node.attrs.get("signed", True) or low < 0 else DType.smallest(min(low, -1), high)
    if node.op == "MultiThreshold":
        return DType.smallest(*reached(node))
    if node.op in _UNSIGNED:
        return DType.UINT8 if int(node.attrs.get("n_levels", 256)) <= 256 else DType.INT32
    if node.op in _SIGNED:
        return DType.INT8
    if node.op in _ACCUMULATORS or FRACTION in node.attrs:
        return DType.INT32
    if node.op in _COMPARISONS:
        return DType.BOOL
    if node.op in _JOINING:
        return _joined(node)
    first = next((t for t in node.inputs if not t.is_empty()), None)
    return DType.INT32 if first is None else DType.of(first.dtype)


def _joined(node: gs.Node) -> DType:
    """The one type of the inputs that are joined; constants take that of the others where it holds them."""
    begin = _JOINING[node.op]
    parts = [t for t in node.inputs[begin:] if not t.is_empty()]
    data = {DType.of(t.dtype) for t in parts if not isinstance(t, gs.Constant)} or {DType.of(t.dtype) for t in parts}
    if len(data) == 1:
        (dtype,) = data
        stored = [constant(t) for t in node.inputs]
        if all(v is None or not v.size or dtype.is_float or dtype.holds(v.min(), v.max()) for v in stored[begin:]):
            kept = enumerate(zip(node.inputs, stored, strict=True))
            node.inputs = [t if v is None or i < begin else build.const(t.name, v, dtype.numpy) for i, (t, v) in kept]
            return dtype
    found = {DType.of(t.dtype) for t in parts}
    whole = [t.range for t in found if not t.is_float]
    low, high = min(t[0] for t in whole), max(t[1] for t in whole)
    raise UnsupportedError(
        f"node {shorten(node.name)} ({node.op}) joins {', '.join(sorted(t.name.lower() for t in found))}",
        f"Requantise its inputs to one type, or declare inputs that hold {low} to {high} (--input-type).",
    )


def output_range(node: gs.Node) -> tuple[int, int]:
    """Smallest and largest result of a RequantShift, which one that a model writes out in floats says itself."""
    if "low" in node.attrs:
        return int(node.attrs["low"]), int(node.attrs["high"])
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


@standard("RequantShift", kind="iu", lowers=True)
def requant_shift(rw: Rewriter) -> bool:
    """Explicit rounding and broadcasting; an identity vanishes."""
    x, mul, add = rw.x, rw.value(1), rw.value(2)
    if mul is None or add is None:
        return False
    shift, (low, high) = _shift(rw.node), output_range(rw.node)
    factor, summand = mul.astype(np.int64), add.astype(np.int64) + half(shift)
    if np.dtype(x.dtype) == np.dtype(rw.y.dtype) and _is_identity(DType.of(x.dtype), low, high, factor, summand, shift):
        return rw.forward(x)
    factor, summand = (_broadcast(values, len(x.shape), x.shape[1] if len(x.shape) > 1 else 0) for values in (factor, summand))
    return rw.replace(
        "RequantShift", x, rw.constant(factor, np.int32, "mul"), rw.constant(narrow(summand), label="add"), shift=shift, low=low, high=high
    )


def _is_identity(dtype: DType, least: int, most: int, mul: np.ndarray, summand: np.ndarray, shift: int) -> bool:
    """Whether every value of a type stays as it is: a factor of one, or so near to one that rounding gives the value back, and no clip.

    (x*mul + summand) >> shift is x + ((x*(mul - 2^shift) + summand) >> shift), whose second part is linear before the shift: 0
    everywhere if it is at both ends.
    """
    factor, half = mul.astype(np.int64) - (1 << shift), summand.astype(np.int64)
    if factor.size > 1 and half.size > 1 and factor.shape != half.shape:
        return False
    first, last = dtype.range
    if np.abs(factor).max(initial=0) * max(-first, last) >= 2**62 or np.abs(half).max(initial=0) >= 2**62:
        return False
    return least <= first and last <= most and all(not ((end * factor + half) >> shift).any() for end in (first, last))


PASS = Pass("dialect", (requant_shift, *RULES))
