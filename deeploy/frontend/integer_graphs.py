"""Float graphs that compute integers only, as NEMO writes them for DORY and FINN does: recognised by value, not by who wrote them.

Every tensor that is computed from whole numbers by constants is a multiple of 2^-k for some k, its grain: products add grains, a division
by 2^n adds n, Floor makes it 0. Where all that is not whole lies in front of a Floor, the graph computes integers: each Floor is a
requantisation, ``RequantShift`` of the integer dialect, of (x*mul + add) / 2^shift without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.schemas import DIALECT_OPS
from deeploy.graph import surgeon
from deeploy.graph.surgeon import constant, only_consumer, producer, sort
from deeploy.graph.types import DType
from deeploy.graph.values import Graph

FRACTION = "fraction"  # attribute of an AveragePool: bits behind the point of its integer result
_MEAN_BITS = 16  # of the integer form's AveragePool
_FINEST = 31  # grain that is looked for in constants
_MOST_COUNT = 2**16  # elements of a mean that is no shift: its sum times the reciprocal of 31 bits has the right whole part
_LARGEST = 2**61
_MOST_SHIFT = 62
_INT32 = DType.INT32.range

_PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Mul")
_JOINING = ("Add", "Sub", "Max", "Min", "Concat", "Sum", "Pad")
_MOVING = (
    *("Relu", "Neg", "Abs", "MaxPool", "GlobalMaxPool", "ReduceSum", "ReduceMax", "ReduceMin", "Clip", "Identity"),
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Expand", "Split", "Tile", "DepthToSpace"),
)
_BOUNDED = (
    "Relu",
    "Pad",
    "MaxPool",
    "GlobalMaxPool",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Slice",
    "Gather",
    "Split",
)
_STEPS = ("Floor", "MultiThreshold")
_MEANS = ("AveragePool", "GlobalAveragePool", "ReduceMean")
Grains = dict[int, int | None]  # by the identity of a tensor; None: not known, or not a multiple of any power of two


def computes_integers(values: Graph) -> bool:
    """Whether a float graph without operators of the dialect computes integers only, if its inputs are integers.

    It has a product with whole constants and a requantisation, written out or by thresholds; and nothing else is not whole.
    """
    graph = surgeon.write_graph(values)
    steps = [node for node in graph.nodes if node.op in _STEPS]
    weights = [constant(t) for node in graph.nodes if node.op in _PRODUCTS[:-1] for t in node.inputs[1:2]]
    if not steps or not any(w is not None for w in weights) or any(w is not None and not np.array_equal(w, np.rint(w)) for w in weights):
        return False
    _write(graph, {})
    grains = _grains(graph, {})
    computed = [t for node in graph.nodes for t in node.outputs]
    return all(grains[id(t)] == 0 for t in (*computed, *graph.outputs))


def write_requantisations(values: Graph, types: Mapping[str, DType]) -> Graph:
    """Replace each Floor of a fraction of whole numbers, and the limits around it, by a RequantShift.

    Args:
        types: of the inputs of the graph; those that are not named hold integers.
    """
    graph = surgeon.write_graph(values)
    _write(graph, types)
    return surgeon.read_graph(graph)


def _write(graph: gs.Graph, types: Mapping[str, DType]) -> None:
    for node in list(graph.nodes):
        if node.op == "Floor" and _written(graph, node, _grains(graph, types), types):
            sort(graph.cleanup(remove_unused_node_outputs=False))


def _grain(values: np.ndarray) -> int | None:
    if values.dtype.kind in "iub":
        return 0
    if not np.isfinite(values).all():
        return None
    wide = values.astype(np.float64)
    if not np.array_equal(wide * 2.0**_FINEST, np.rint(wide * 2.0**_FINEST)):
        return None
    return next(k for k in range(_FINEST + 1) if np.array_equal(wide * 2.0**k, np.rint(wide * 2.0**k)))


def _grains(graph: gs.Graph, types: Mapping[str, DType]) -> Grains:
    found: Grains = {id(t): None if t.name in types and types[t.name].is_float else 0 for t in graph.inputs}
    stored: Grains = {}
    # Means of the dialect are rounded to whole numbers.
    rounding = _MEANS[1:] if any(node.op in DIALECT_OPS and "low" not in node.attrs for node in graph.nodes) else ()

    def of(tensor: gs.Tensor) -> int | None:
        if isinstance(tensor, gs.Constant):
            if id(tensor) not in stored:
                stored[id(tensor)] = _grain(np.asarray(tensor.values))
            return stored[id(tensor)]
        return found.get(id(tensor))

    for node in graph.nodes:
        grain = 0 if node.op in rounding and of(node.inputs[0]) == 0 else _result(node, of)
        found |= {id(t): 0 if np.dtype(t.dtype).kind in "iub" else grain for t in node.outputs}
    return found


def _result(node: gs.Node, of: Callable[[gs.Tensor], int | None]) -> int | None:
    """The grain of what a node computes."""
    inputs = [of(t) for t in node.inputs if not t.is_empty()]
    if node.op in DIALECT_OPS or node.op == "QuantizeLinear" or FRACTION in node.attrs:
        return 0
    if not inputs or inputs[0] is None:
        return 0 if node.op == "Floor" and _mean(node.inputs[0], of) else None
    known = [grain for grain in inputs if grain is not None]
    if node.op in ("Floor", "Ceil", "Round"):
        return 0
    if node.op in _MOVING:
        ends = [np.asarray(node.attrs[name]) for name in ("min", "max") if node.op == "Clip" and node.attrs.get(name) is not None]
        return _most([inputs[0], *(_grain(end) for end in ends)])
    if node.op in _MEANS:
        count = _count(node)
        return inputs[0] + count.bit_length() - 1 if count and count & (count - 1) == 0 else None
    if len(known) < len(inputs):
        return None
    if node.op == "MultiThreshold":
        return _grain(np.array([node.attrs.get("out_scale", 1.0), node.attrs.get("out_bias", 0.0)]))
    if node.op == "Pad":
        return _most([inputs[0], _grain(np.asarray(node.attrs.get("value", 0)))])
    if node.op in _JOINING:
        return max(known)
    if node.op in _PRODUCTS and node.attrs.get("alpha", 1.0) == node.attrs.get("beta", 1.0) == 1.0:
        return max(sum(known[:2]), *known[2:], 0)
    divisor = constant(node.inputs[1]) if node.op == "Div" else None
    shift = None if divisor is None else _exponent(divisor)
    return None if shift is None else max(0, known[0] + shift)


def _most(grains: Sequence[int | None]) -> int | None:
    known = [grain for grain in grains if grain is not None]
    return max(known) if len(known) == len(grains) else None


def _exponent(values: np.ndarray) -> int | None:
    """n where one number is 2^n."""
    value = float(values.ravel()[0]) if values.size and (values == values.ravel()[0]).all() else 0.0
    mantissa, exponent = math.frexp(value)
    return exponent - 1 if mantissa == 0.5 else None


def _count(node: gs.Node) -> int:
    """How many elements a mean is of; 0 where windows differ, or elements are weighted."""
    shape = node.inputs[0].shape
    if node.op == "AveragePool":
        whole = not any(node.attrs["pads"]) or node.attrs["count_include_pad"]
        return math.prod(node.attrs["kernel_shape"]) if whole and len(shape) in (3, 4) else 0
    axes = range(2, len(shape)) if node.op == "GlobalAveragePool" else node.attrs["axes"]
    return math.prod(shape[axis] for axis in axes)


def _mean(tensor: gs.Tensor, of: Callable[[gs.Tensor], int | None]) -> gs.Node | None:
    """The node that computes a tensor, where that is a mean of whole numbers."""
    node = producer(tensor)
    fits = node is not None and node.op in _MEANS and of(node.inputs[0]) == 0 and 0 < _count(node) <= _MOST_COUNT
    return node if fits else None


class _Fraction:
    """(x*mul + add) / 2^shift: whole numbers of any size, as they broadcast over x."""

    def __init__(self) -> None:
        self.mul, self.add, self.shift = np.array([1], object), np.array([0], object), 0

    @property
    def is_one(self) -> bool:
        """Whether it is x."""
        return not self.shift and bool((self.mul == 1).all()) and not self.add.any()

    def times(self, numerator: np.ndarray, shift: int) -> None:
        """Let x be x * numerator / 2^shift."""
        self.mul, self.add, self.shift = self.mul * numerator, self.add * 2**shift, self.shift + shift

    def plus(self, numerator: np.ndarray, shift: int) -> None:
        """Let x be x + numerator / 2^shift."""
        self.add, self.mul, self.shift = self.add * 2**shift + self.mul * numerator, self.mul * 2**shift, self.shift + shift


def _whole(values: np.ndarray, grain: int) -> np.ndarray:
    return np.rint(values.astype(np.float64) * 2.0**grain).astype(np.int64).astype(object)


def _folded(node: gs.Node, fraction: _Fraction) -> gs.Tensor | None:
    """The operand of an operator with a constant, which enters the fraction; None where that is not one."""
    values = [constant(t) for t in node.inputs]
    if node.op not in ("Mul", "Add", "Sub", "Div") or len(values) != 2 or (values[0] is None) == (values[1] is None):
        return None
    at = 0 if values[0] is None else 1
    x, value = node.inputs[at], np.asarray(values[1 - at])
    grain = _grain(value)
    if grain is None or list(x.shape) != list(node.outputs[0].shape) or (at and node.op == "Div"):
        return None
    if node.op == "Div":
        shift = _exponent(value)
        if shift is None:
            return None
        fraction.times(np.array(1 << max(0, -shift), object), max(0, shift))
    elif node.op == "Mul":
        fraction.times(_whole(value, grain), grain)
    elif node.op == "Add":
        fraction.plus(_whole(value, grain), grain)
    elif at:  # constant - x
        fraction.plus(_whole(value, grain), grain)
        fraction.times(np.array(-1, object), 0)
    else:
        fraction.plus(-_whole(value, grain), grain)
    return x


def _limits(node: gs.Node | None) -> tuple[int, int] | None:
    """The least and the greatest number that a node lets through, where it is a limit to whole numbers; else None."""
    if node is None or node.op not in ("Clip", "Relu"):
        return None
    given = (0.0, None) if node.op == "Relu" else (node.attrs["min"], node.attrs["max"])
    low, high = (end if value is None else value for end, value in zip(_INT32, given, strict=True))
    return (max(int(low), _INT32[0]), min(int(high), _INT32[1])) if low == int(low) and high == int(high) else None


def _bounds(x: gs.Tensor, types: Mapping[str, DType]) -> tuple[int, int]:
    """The least and the greatest whole number of a tensor, from what requantises it or the type of an input."""
    node = producer(x)
    if node is None:
        return types[x.name].range if x.name in types else _INT32
    if node.op == "RequantShift" and "low" in node.attrs:
        return int(node.attrs["low"]), int(node.attrs["high"])
    if node.op not in _BOUNDED:
        return _INT32
    low, high = _bounds(node.inputs[0], types)
    border = math.floor(node.attrs.get("value", 0) or 0) if node.op == "Pad" else low
    return min(low, border), max(high, border)


def _written(graph: gs.Graph, floor: gs.Node, grains: Grains, types: Mapping[str, DType]) -> bool:
    """Whether a Floor became a RequantShift."""
    taken, x, (low, high) = [floor], floor.inputs[0], _INT32
    for node in (_only(graph, x), only_consumer(graph, floor.outputs[0])):
        ends = _limits(node)
        if node is not None and ends is not None:
            low, high = max(low, ends[0]), min(high, ends[1])
            taken, x = ([*taken, node], x) if node.inputs[0] is floor.outputs[0] else (taken, node.inputs[0])
    fraction = _Fraction()
    while (node := _only(graph, x)) is not None and (operand := _folded(node, fraction)) is not None:
        x = operand
    mean = None if grains.get(id(x)) == 0 else node
    if fraction.is_one:
        ends = _bounds(x if mean is None else mean.inputs[0], types)
        low, high = max(low, ends[0]), min(high, ends[1])
    if mean is not None:
        found = _sum_of(graph, mean, fraction) if _mean(x, lambda tensor: grains.get(id(tensor))) is mean else None
        if found is None:
            return False
        x = found
    half = 1 << (fraction.shift - 1) if fraction.shift else 0  # which a RequantShift adds
    mul, add = fraction.mul, fraction.add - half
    if isinstance(x, gs.Constant) or (grains.get(id(x)) != 0 and mean is None) or low > high or not mul.size or not add.size:
        return False
    if fraction.shift > _MOST_SHIFT or np.abs(mul).max() >= 2**31 or np.abs(add).max() >= _LARGEST:
        return False
    if mean is not None and mean.op == "AveragePool":
        mean.attrs[FRACTION] = _MEAN_BITS
    result, rank = taken[-1].outputs[0], len(x.shape)
    constants = [
        surgeon.const(f"{result.name} ({label})", values.astype(np.int64).reshape([1] * (rank - values.ndim) + list(values.shape)))
        for label, values in (("mul", mul), ("add", add))
    ]
    attrs = {"div": 1 << fraction.shift, "n_levels": high - low + 1, "signed": int(low < 0), "low": low, "high": high}
    for node in taken:
        node.outputs.clear()
        node.inputs.clear()
    graph.nodes.append(gs.Node("RequantShift", floor.name, attrs, [x, *constants], [result]))
    return True


def _only(graph: gs.Graph, tensor: gs.Tensor) -> gs.Node | None:
    """The node that computes a tensor which has one reader."""
    return producer(tensor) if only_consumer(graph, tensor) is not None else None


def _sum_of(graph: gs.Graph, node: gs.Node, fraction: _Fraction) -> gs.Tensor | None:
    """The integers that a mean of whole numbers is computed of: a sum, or the mean with bits behind its point; None if neither is exact."""
    x, count = node.outputs[0], _count(node)
    is_shift = count & (count - 1) == 0
    if not is_shift and not fraction.is_one:
        return None  # what is left of such a mean is right in its whole part alone
    if node.op == "AveragePool":
        fraction.times(np.array([1], object), _MEAN_BITS)
        return x
    if is_shift:
        fraction.times(np.array([1], object), count.bit_length() - 1)
    else:  # by the reciprocal, and half of what one more adds
        shift = 29 + count.bit_length()
        fraction.mul, fraction.shift = np.array([((1 << shift) + count // 2) // count], object), shift
        fraction.add = np.array([(1 << shift) // (2 * count)], object)
    axes = list(range(2, len(node.inputs[0].shape))) if node.op == "GlobalAveragePool" else list(node.attrs["axes"])
    total = surgeon.variable(f"{x.name} (sum)", np.float32, x.shape)
    attrs = {"axes": axes, "keepdims": node.attrs.get("keepdims", 1)}
    graph.nodes.append(gs.Node("ReduceSum", node.name, attrs, [node.inputs[0]], [total]))
    return total
