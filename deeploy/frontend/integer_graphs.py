"""Float graphs that compute integers only, as NEMO writes them for DORY and FINN does: recognised by value, not by who wrote them.

Every tensor that is computed from whole numbers by constants is a multiple of 2^-k for some k, its grain: products add grains, a division
by 2^n adds n, Floor makes it 0. Where all that is not whole lies in front of a Floor, the graph computes integers: each Floor is a
requantisation, ``RequantShift`` of the integer dialect, of (x*mul + add) / 2^shift without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from deeploy.frontend.schemas import DIALECT_OPS, PRODUCTS, SELECTING
from deeploy.ir.nodes import Attributes, Node, Tensor, compute, constant
from deeploy.ir.rewriting import Match, Pass, Result, require, standard
from deeploy.ir.types import DType
from deeploy.ir.values import Graph

FRACTION = "fraction"  # attribute of an AveragePool: bits behind the point of its integer result
_MEAN_BITS = 16  # of the integer form's AveragePool
_FINEST = 31  # grain that is looked for in constants
_MOST_COUNT = 2**16  # elements of a mean that is no shift: its sum times the reciprocal of 31 bits has the right whole part
_LARGEST = 2**61
_MOST_SHIFT = 62
_INT32 = DType.INT32.range

_JOINING = ("Add", "Sub", "Max", "Min", "Concat", "Sum")
_MOVING = (*SELECTING, "Relu", "Neg", "Abs", "ReduceSum", "Clip", "Expand", "Split", "Tile", "DepthToSpace")
_STEPS = ("Floor", "MultiThreshold")
MEANS = ("AveragePool", "GlobalAveragePool", "ReduceMean")
Grains = Callable[[Tensor], int | None]  # that of a tensor; None: not known, or not a multiple of any power of two


def computes_integers(graph: Graph) -> bool:
    """Whether a float graph without operators of the dialect computes integers only, if its inputs are integers.

    It has a product with whole constants and a requantisation, written out or by thresholds; and nothing else is not whole.
    """
    weights = [tensor.data for node in graph.nodes if node.op in PRODUCTS for tensor in node.operands[1:2] if tensor.data is not None]
    if graph.operators.isdisjoint(_STEPS) or not weights or any(not np.array_equal(w, np.rint(w)) for w in weights):
        return False
    graph = write_requantisations(graph, {})
    grain_of = _find_grains(graph, {})
    return all(grain_of(tensor) == 0 for node in graph.nodes for tensor in node.outputs) and all(grain_of(t) == 0 for t in graph.outputs)


def write_requantisations(graph: Graph, types: Mapping[str, DType]) -> Graph:
    """Replace each Floor of a fraction of whole numbers, and the limits around it, by a RequantShift.

    Args:
        types: of the inputs of the graph; those that are not named hold integers.
    """
    if "Floor" not in graph.operators:
        return graph
    grain_of = _find_grains(graph, types)

    @standard("Floor")
    def write_requantisation(m: Match) -> Result:
        return _write_shift(m, grain_of, types)

    return Pass("requantisations", (write_requantisation,))(graph)


def _grain_of_values(values: np.ndarray) -> int | None:
    if values.dtype.kind in "iub":
        return 0
    if not np.isfinite(values).all():
        return None
    wide = values.astype(np.float64)
    if not np.array_equal(wide * 2.0**_FINEST, np.rint(wide * 2.0**_FINEST)):
        return None
    return next(k for k in range(_FINEST + 1) if np.array_equal(wide * 2.0**k, np.rint(wide * 2.0**k)))


def _find_grains(graph: Graph, types: Mapping[str, DType]) -> Grains:
    variables = {t.name: None if t.name in types and types[t.name].is_float else 0 for t in graph.inputs}
    # Means of the dialect are rounded to whole numbers.
    rounding = MEANS[1:] if any(node.op in DIALECT_OPS and "low" not in node.attrs for node in graph.nodes) else ()
    constants = cache(lambda tensor: _grain_of_values(tensor.data))

    def grain_of(tensor: Tensor) -> int | None:
        return variables.get(tensor.name) if tensor.data is None else constants(tensor)

    for node in graph.nodes:
        grain = 0 if node.op in rounding and grain_of(node.operands[0]) == 0 else _result_grain(node, grain_of)
        variables |= {tensor.name: grain if tensor.dtype.is_float else 0 for tensor in node.outputs}
    return grain_of


def _result_grain(node: Node, grain_of: Grains) -> int | None:
    """The grain of what a node computes."""
    inputs = list(map(grain_of, node.operands))
    if node.op in DIALECT_OPS or node.op == "QuantizeLinear" or FRACTION in node.attrs:
        return 0
    if not inputs or inputs[0] is None:
        return 0 if node.op == "Floor" and _find_mean(node.operands[0], grain_of) else None
    known = [grain for grain in inputs if grain is not None]
    if node.op in ("Floor", "Ceil", "Round"):
        return 0
    if node.op in _MOVING:
        names = {"Clip": ("min", "max"), "Pad": ("value",)}.get(node.op, ())
        ends = [np.asarray(node.attrs[name]) for name in names if node.attrs.get(name) is not None]
        return _coarsest_grain([inputs[0], *(_grain_of_values(end) for end in ends)])
    if node.op in MEANS:
        count = _count_elements(node)
        return inputs[0] + count.bit_length() - 1 if count and count & (count - 1) == 0 else None
    if len(known) < len(inputs):
        return None
    if node.op == "MultiThreshold":
        return _grain_of_values(np.array([node.attrs.get("out_scale", 1.0), node.attrs.get("out_bias", 0.0)]))
    if node.op in _JOINING:
        return max(known)
    if node.op in {"Mul", *PRODUCTS} and node.attrs.get("alpha", 1.0) == node.attrs.get("beta", 1.0) == 1.0:
        return max(sum(known[:2]), *known[2:], 0)
    divisor = node.operands[1].data if node.op == "Div" else None
    shift = None if divisor is None else _power_of_two(divisor)
    return None if shift is None else max(0, known[0] + shift)


def _coarsest_grain(grains: Sequence[int | None]) -> int | None:
    known = [grain for grain in grains if grain is not None]
    return max(known) if len(known) == len(grains) else None


def _power_of_two(values: np.ndarray) -> int | None:
    """n where one number is 2^n."""
    value = float(values.ravel()[0]) if values.size and (values == values.ravel()[0]).all() else 0.0
    mantissa, exponent = math.frexp(value)
    return exponent - 1 if mantissa == 0.5 else None


def _count_elements(node: Node) -> int:
    """How many elements a mean is of; 0 where windows differ, or elements are weighted."""
    shape = node.operands[0].shape
    if node.op == "AveragePool":
        whole = not any(node.attrs["pads"]) or node.attrs["count_include_pad"]
        return math.prod(node.attrs["kernel_shape"]) if whole and len(shape) in (3, 4) else 0
    axes = range(2, len(shape)) if node.op == "GlobalAveragePool" else node.attrs["axes"]
    return math.prod(shape[axis] for axis in axes)


def _find_mean(tensor: Tensor, grain_of: Grains) -> Node | None:
    """The node that computes a tensor, where that is a mean of whole numbers."""
    node = tensor.made_by(*MEANS)
    return node if node is not None and grain_of(node.operands[0]) == 0 and 0 < _count_elements(node) <= _MOST_COUNT else None


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


def _whole_numbers(values: np.ndarray, grain: int) -> np.ndarray:
    return np.rint(values.astype(np.float64) * 2.0**grain).astype(np.int64).astype(object)


def _fold_constant(node: Node, fraction: _Fraction) -> Tensor | None:
    """The operand of an operator with a constant, which enters the fraction; None where that is not one."""
    if node.op not in ("Mul", "Add", "Sub", "Div") or len(node.operands) != 2 or len(node.variables) != 1:
        return None
    (x,) = node.variables
    at = node.operands.index(x)
    value = node.operands[1 - at].data
    assert value is not None
    grain = _grain_of_values(value)
    if grain is None or x.shape != node.outputs[0].shape or (at and node.op == "Div"):
        return None
    if node.op == "Div":
        shift = _power_of_two(value)
        if shift is None:
            return None
        fraction.times(np.array(1 << max(0, -shift), object), max(0, shift))
    elif node.op == "Mul":
        fraction.times(_whole_numbers(value, grain), grain)
    elif node.op == "Add":
        fraction.plus(_whole_numbers(value, grain), grain)
    elif at:  # constant - x
        fraction.plus(_whole_numbers(value, grain), grain)
        fraction.times(np.array(-1, object), 0)
    else:
        fraction.plus(-_whole_numbers(value, grain), grain)
    return x


def _node_limits(node: Node | None) -> tuple[int, int] | None:
    """The least and the greatest number that a node lets through, where it is a limit to whole numbers; else None."""
    if node is None or node.op not in ("Clip", "Relu"):
        return None
    given = (0.0, None) if node.op == "Relu" else (node.attrs["min"], node.attrs["max"])
    low, high = (end if value is None else value for end, value in zip(_INT32, given, strict=True))
    return (max(int(low), _INT32[0]), min(int(high), _INT32[1])) if low == int(low) and high == int(high) else None


def _tensor_bounds(x: Tensor, types: Mapping[str, DType]) -> tuple[int, int]:
    """The least and the greatest whole number of a tensor, from what requantises it or the type of an input."""
    node = x.maker
    if node is None:
        return types[x.name].range if x.name in types else _INT32
    if node.op == "RequantShift" and "low" in node.attrs:
        return int(node.attrs["low"]), int(node.attrs["high"])
    if node.op not in (*SELECTING, "Relu", "Split"):
        return _INT32
    low, high = _tensor_bounds(node.operands[0], types)
    border = math.floor(node.attrs.get("value", 0) or 0) if node.op == "Pad" else low
    return min(low, border), max(high, border)


def _write_shift(m: Match, grain_of: Grains, types: Mapping[str, DType]) -> Result:
    """The RequantShift that a Floor is."""
    result, x, (low, high) = m.y, m.x, _INT32
    readers = m.readers(m.y)
    for node in (m.only_source(x), readers[0] if len(readers) == 1 and not m.is_output(m.y) else None):
        ends = _node_limits(node)
        if node is not None and ends is not None:
            low, high = max(low, ends[0]), min(high, ends[1])
            result, x = (node.outputs[0], x) if node.operands[0] is m.y else (result, node.operands[0])
    fraction = _Fraction()
    while (node := m.only_source(x)) is not None and (operand := _fold_constant(node, fraction)) is not None:
        x = operand
    mean = None if grain_of(x) == 0 else node
    if fraction.is_one:
        ends = _tensor_bounds(x if mean is None else mean.operands[0], types)
        low, high = max(low, ends[0]), min(high, ends[1])
    if mean is not None:
        require(_find_mean(x, grain_of) is mean)
        x = _sum_of(mean, fraction)
    half = 1 << (fraction.shift - 1) if fraction.shift else 0  # which a RequantShift adds
    mul, add = fraction.mul, fraction.add - half
    require(x.data is None, grain_of(x) == 0 or mean is not None, low <= high, mul.size, add.size, fraction.shift <= _MOST_SHIFT)
    require(np.abs(mul).max() < 2**31, np.abs(add).max() < _LARGEST)
    constants = [
        replace(constant(values.astype(np.int64).reshape([1] * (x.rank - values.ndim) + [*values.shape])), name=f"{result.name} ({label})")
        for label, values in (("mul", mul), ("add", add))
    ]
    attrs: Attributes = {"div": 1 << fraction.shift, "n_levels": high - low + 1, "signed": int(low < 0), "low": low, "high": high}
    return {result: compute("RequantShift", x, *constants, shape=result.shape, dtype=result.dtype, called=m.node.name, **attrs)}


def _sum_of(node: Node, fraction: _Fraction) -> Tensor:
    """The integers that a mean of whole numbers is computed of: a sum, or the mean with bits behind its point, if either is exact."""
    x, count = node.outputs[0], _count_elements(node)
    is_shift = count & (count - 1) == 0
    require(is_shift or fraction.is_one)  # what is left of another mean is right in its whole part alone
    if node.op == "AveragePool":
        fraction.times(np.array([1], object), _MEAN_BITS)
        return node.another(attrs={**node.attrs, FRACTION: _MEAN_BITS}).outputs[0]
    if is_shift:
        fraction.times(np.array([1], object), count.bit_length() - 1)
    else:  # by the reciprocal, and half of what one more adds
        shift = 29 + count.bit_length()
        fraction.mul, fraction.shift = np.array([((1 << shift) + count // 2) // count], object), shift
        fraction.add = np.array([(1 << shift) // (2 * count)], object)
    source = node.operands[0]
    axes = list(range(2, source.rank)) if node.op == "GlobalAveragePool" else list(node.attrs["axes"])
    attrs = {"axes": axes, "keepdims": node.attrs.get("keepdims", 1)}
    return compute("ReduceSum", source, shape=x.shape, name=f"{x.name} (sum)", called=node.name, **attrs)
