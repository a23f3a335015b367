"""The integer dialect: element types, which its files do not hold, and its requantisation (DIALECT semantics).

Rounding (half of the divisor, up) and NumPy broadcasting are made explicit here; a RequantShift then means what the
integer form says: clip((x*mul + add) >> shift, low, high).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.integer_graphs import FRACTION
from deeploy.frontend.lower.dialect_functions import RULES
from deeploy.frontend.lower.lookup import ARITHMETIC
from deeploy.frontend.lower.qonnx import is_whole, reached_results
from deeploy.frontend.lower.quant import requantisation_operands, rounding_half
from deeploy.frontend.schemas import DIALECT_OPS, PRODUCTS
from deeploy.ir.nodes import TRUTHS, Node, Tensor, constant
from deeploy.ir.rewriting import Match, Pass, standard
from deeploy.ir.types import DType
from deeploy.ir.values import Graph

_LARGEST = 2.0**62  # of constants
_RESULTS = {
    **dict.fromkeys((*PRODUCTS, *ARITHMETIC, "Neg", "ReduceSum", "ReduceMean", "IntegerMean", "GlobalAveragePool"), DType.INT32),
    **dict.fromkeys(("iGELU", "iHardswish", "IntegerDiv", "TrueIntegerDiv", "iNoNorm"), DType.INT32),
    **dict.fromkeys(("iLayerNorm", "iRMSNorm"), DType.INT8),
    **dict.fromkeys(TRUTHS, DType.BOOL),
}
_UNSIGNED = ("iSoftmax", "ITAMax", "ITAPartialMax")
_JOINING = {"Concat": 0, "Max": 0, "Min": 0, "Where": 1}  # whose results hold elements of all inputs from this position on
_INDICES = {"Gather": 1, "Reshape": 1}  # positions of inputs whose values are no data
_STEPS = frozenset({*PRODUCTS, *DIALECT_OPS})  # that take whole numbers where they are rounded before


CustomType = Callable[[Node], DType | None]


def assign_types(graph: Graph, input_types: Mapping[str, DType], custom: CustomType) -> Graph:
    """A dialect graph in which every tensor has its element type, starting from the inputs.

    Accumulators are int32, RequantShift's result follows from ``n_levels`` and ``signed``, constants take the smallest type
    that holds them, everything else keeps the type of its first input. ``custom`` knows the results of operators that only
    the target has. What is computed from floats (an input, a DequantizeLinear) is float up to the next QuantizeLinear, or to
    whole numbers that an integer operator reads.

    Raises:
        ModelError: a constant that holds other than whole numbers, or a tensor whose values fit no type.
    """
    typed = {tensor: replace(tensor, dtype=input_types[tensor.name]) for tensor in graph.inputs}
    inputs, integers = tuple(typed.values()), dict[Tensor, Tensor]()

    def to_integer(node: Node, position: int, tensor: Tensor) -> Tensor:
        if tensor.data is None:
            return tensor
        if position == _INDICES.get(node.op):
            return _restate_constant(tensor, np.rint(tensor.data), DType.INT64)
        return integers.setdefault(tensor, _integer_constant(node, tensor))

    for former in graph.nodes:
        node, dtype = _read_stand_ins(former, lambda _, __, tensor: typed.get(tensor, tensor)), None
        if node.op in ("QuantizeLinear", "DequantizeLinear"):
            dtype = _quantised_type(node)
        else:
            node = _to_reals(_read_stand_ins(node, _take_steps))
            if not any(map(_is_real, node.operands)):
                node = _read_stand_ins(node, to_integer)
                dtype = custom(node)
                node = node if dtype else _join_types(node)
                dtype = dtype or _result_type(node)
        results = tuple(replace(tensor, dtype=dtype or tensor.dtype) for tensor in former.outputs)
        typed.update(zip(former.outputs, node.another(outputs=results).outputs, strict=True))
    return replace(graph, inputs=inputs, outputs=tuple(typed.get(tensor, tensor) for tensor in graph.outputs))


def _read_stand_ins(node: Node, stand_in: Callable[[Node, int, Tensor], Tensor]) -> Node:
    """The node, as it reads what stands in for each of its inputs."""
    inputs = enumerate(node.inputs)
    return node.another(inputs=tuple(None if tensor is None else stand_in(node, position, tensor) for position, tensor in inputs))


def _restate_constant(tensor: Tensor, values: np.ndarray, dtype: DType) -> Tensor:
    """A constant with other values."""
    return replace(constant(values, dtype), name=tensor.name)


def _is_real(tensor: Tensor) -> bool:
    """Whether a tensor that is no constant holds floats."""
    return tensor.data is None and tensor.dtype.is_float


def _quantised_type(node: Node) -> DType:
    """The type of the zero point where there is one, else what the file says, else uint8; floats on the other side."""
    if node.op == "DequantizeLinear":
        return DType.FLOAT32
    declared = next((zero for zero in node.operands[2:] if zero.data is not None), node.outputs[0]).dtype
    return declared if declared.is_integer else DType.UINT8


def _take_steps(node: Node, _: int, tensor: Tensor) -> Tensor:
    """The whole numbers behind Round and Clip, which an integer operator reads, as integers."""
    match tensor.maker:
        case Node(op="Clip", attrs={"min": low, "max": high}, operands=(Tensor(maker=Node(op="Round")),)) if _is_real(tensor):
            is_word = None not in (low, high) and low <= high and DType.INT32.holds(low, high)
            if is_word and node.op in _STEPS and all(is_whole(weights.data) for weights in node.operands[1:]):
                return _cast_tensor(node, tensor, DType.smallest(int(low), int(high)))
    return tensor


def _to_reals(node: Node) -> Node:
    """Cast integers that meet constants other than whole numbers: a dequantisation, written out."""
    if node.op not in ARITHMETIC or all(is_whole(tensor.data) for tensor in node.operands):
        return node
    return _read_stand_ins(node, lambda node, _, x: x if x.data is not None or x.dtype.is_float else _cast_tensor(node, x, DType.FLOAT32))


def _cast_tensor(node: Node, tensor: Tensor, dtype: DType) -> Tensor:
    result = Tensor(f"{tensor.name} ({dtype.name.lower()} for {node.name})", tensor.shape, dtype)
    return Node(result.name, "Cast", (tensor,), (result,), domain="").outputs[0]


def _integer_constant(node: Node, tensor: Tensor) -> Tensor:
    values = np.asarray(tensor.data)
    if values.dtype.kind == "f":
        if not is_whole(values) or (np.abs(values) > _LARGEST).any():
            raise ModelError(
                f"constant {shorten(tensor.name)} of {node} holds values that are not integers of 64 bits",
                "A dialect graph is integer throughout; pass --dialect standard if this one is not.",
            )
        values = values.astype(np.int64)
    is_kept = values.dtype.kind == "b" or not values.size
    return _restate_constant(tensor, values, DType.of(values.dtype) if is_kept else DType.smallest(int(values.min()), int(values.max())))


def _result_type(node: Node) -> DType:
    attrs, dtype = node.attrs, _RESULTS.get(node.op)
    if node.op == "RequantShift":
        low, high = output_range(node)
        return DType.smallest(min(low, -1) if attrs.get("signed", True) else low, high)
    if node.op == "MultiThreshold":
        return DType.smallest(*reached_results(node))
    if node.op in _UNSIGNED:
        return DType.UINT8 if attrs.get("n_levels", 256) <= 256 else DType.INT32
    if dtype is not None or FRACTION in attrs or not node.operands:
        return dtype or DType.INT32
    return node.operands[_JOINING.get(node.op, 0)].dtype


def _join_types(node: Node) -> Node:
    """The node whose inputs are joined, all of one type; constants take that of the others where it holds them."""
    begin = _JOINING.get(node.op)
    if begin is None:
        return node
    parts = node.operands[begin:]
    types = {tensor.dtype for tensor in parts}
    dtype, *others = {tensor.dtype for tensor in parts if tensor.data is None} or types
    stored = [tensor.data for tensor in parts if tensor.data is not None and tensor.elements]
    if not others and all(dtype.holds(values.min(), values.max()) for values in stored):
        return _read_stand_ins(node, lambda _, i, x: x if x.data is None or i < begin else _restate_constant(x, x.data, dtype))
    ranges = np.array([t.range for t in types])
    raise UnsupportedError(
        f"{node} joins {', '.join(sorted(t.name.lower() for t in types))}",
        f"Requantise its inputs to one type, or declare inputs that hold {ranges.min()} to {ranges.max()} (--input-type).",
    )


def output_range(node: Node) -> tuple[int, int]:
    """Smallest and largest result of a RequantShift, which one that a model writes out in floats says itself."""
    levels = node.attrs["n_levels"]
    low, high = (-(levels // 2), levels // 2 - 1) if node.attrs.get("signed", True) else (0, levels - 1)
    return node.attrs.get("low", low), node.attrs.get("high", high)


def _broadcast_parameter(values: np.ndarray, x: Tensor) -> np.ndarray:
    """mul or add as it broadcasts over x: [C,1,1] and [1,C,1,1] with C the size of axis 1 lie on axis 1, else NumPy's rule."""
    channels = x.shape[1] if x.rank > 1 else 0
    if values.ndim in (3, 4) and values.shape[-3] == channels == values.size:
        return values.reshape([1, channels, *[1] * (x.rank - 2)][-x.rank :])
    return values.reshape(-1) if values.size == 1 else values


@standard("RequantShift", kind="iu", lowers=True)
def requant_shift(m: Match, x: Tensor, mul: np.ndarray, add: np.ndarray, *, div: int) -> Tensor:
    """Explicit rounding and broadcasting; an identity vanishes."""
    shift, (low, high), (first, last) = div.bit_length() - 1, output_range(m.node), x.dtype.range
    if div < 1 or div & (div - 1) or shift > 62:
        raise UnsupportedError(f"{m.node} divides by {div}", "The divisor must be a power of two up to 2^62.")
    factor, summand = mul.astype(np.int64), add.astype(np.int64) + rounding_half(shift)
    if x.dtype is m.y.dtype and low <= first and last <= high and _is_identity(x.dtype, factor - (1 << shift), summand, shift):
        return x
    return m.replace(
        "RequantShift",
        x,
        *requantisation_operands(_broadcast_parameter(factor, x), _broadcast_parameter(summand, x)),
        shift=shift,
        low=low,
        high=high,
    )


def _is_identity(dtype: DType, factor: np.ndarray, summand: np.ndarray, shift: int) -> bool:
    """Whether every value of a type stays as it is: by a factor of one, or so near to one that rounding gives the value back.

    (x*mul + summand) >> shift is x + ((x*factor + summand) >> shift), factor = mul - 2^shift, whose second part is linear before the
    shift: 0 everywhere if it is at both ends.
    """
    most, largest = (int(np.abs(values).max(initial=0)) for values in (factor, summand))
    is_exact = max(most * max(map(abs, dtype.range)), largest) < 2**62
    is_joint = min(factor.size, summand.size) <= 1 or factor.shape == summand.shape
    return is_exact and is_joint and not any(((end * factor + summand) >> shift).any() for end in dtype.range)


PASS = Pass("dialect", (requant_shift, *RULES))
