"""Ranges of integer arithmetic: that no sum, product, shift or result of a layer leaves its type in C, for all inputs.

Inputs may have all values of their types; constants have theirs, and words those that layers leave (``Operator.bounds``). Partial sums
count, in whatever order they are added: every operand's range includes 0, so that each lies within the sums of all negative and of all
positive terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from deeploy.ir.epilogue import stage_operands
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.operators.accumulate import Ends, ends, values
from deeploy.operators.requantise import requantisation_of
from deeploy.operators.table import OPERATORS
from deeploy.operators.views import VIEWS

Range = tuple[int, int]
_WORD, _DOUBLE = DType.INT32.range, DType.INT64.range
Factors = tuple[Sequence[np.ndarray], Sequence[np.ndarray]]  # ends of multipliers and summands, of every channel
LONGEST_SHIFT = 62  # bits
SHORT = 8  # bits of types that are taken to have all values


@dataclass(frozen=True)
class LayerArithmetic:
    """What the integers of a layer can be; as mathematics, so that what does not fit is seen.

    Attributes:
        sum: of products and bias, with all partial sums.
        product: the sum times the multiplier, without and with the summand.
        result: behind the shift and the limits.
        steps: what else is computed on the way, by name.
        failure: what does not fit, or why that is not known; empty where all of it is proved.
    """

    sum: Range | None = None
    product: Range | None = None
    shift: int | None = None
    result: Range | None = None
    failure: str = ""
    steps: Mapping[str, Range] = field(default_factory=dict)


def bound_network(nodes: Iterable[Node]) -> list[LayerArithmetic | None]:
    """The ranges of nodes in the order in which they run: words have those that nodes before leave in them."""
    known, found = dict[int, Range](), list[LayerArithmetic | None]()
    for node in nodes:
        found.append(bound_arithmetic(node, known))
        known |= {id(t): _leave_values(node, t, found[-1], known) for t in node.outputs if _is_word(t)}
    return found


def bound_arithmetic(node: Node, known: Mapping[int, Range] | None = None) -> LayerArithmetic | None:
    """The ranges of a node; None where it computes with floats alone, or only moves and compares.

    Args:
        known: ranges of tensors by their ``id``, where more is known of them than their types.
    """
    operator, tensors = OPERATORS.get(node.op), (*node.operands, *node.outputs)
    is_requantised = "requantise" in node.epilogue or (operator is not None and "mul" in operator.inputs)
    is_mixed = any(t.dtype.is_float for t in tensors)
    if all(t.dtype.is_float for t in tensors) or operator is None or (is_mixed and operator.integers is None):
        return None
    node = _limit_operands(node, known or {})
    stated = operator.integers(node) if operator.integers is not None else None
    if stated == {} and (is_mixed or not is_requantised) and operator.bounds is None:
        return None
    steps = {name: reached for name, (reached, _) in (stated or {}).items()}
    for name, (reached, allowed) in (stated or {}).items():
        if not _fits_type(reached, allowed):
            return LayerArithmetic(
                steps=steps, failure=f"{name} from {reached[0]} to {reached[1]}, where C has {allowed[0]} to {allowed[1]}"
            )
    if operator.bounds is None and "sum" not in steps:
        if steps and "requantise" not in node.epilogue:
            return LayerArithmetic(steps=steps, result=steps.get("result"))
        return LayerArithmetic(failure="the operator states no range of its sums")
    if is_mixed:
        return LayerArithmetic(steps=steps)
    return replace(_bound_sums(node, operator.bounds(node) if operator.bounds else ends(*steps["sum"]), is_requantised), steps=steps)


def _limit_operands(node: Node, known: Mapping[int, Range]) -> Node:
    """The node with what is known of the values of its operands."""
    inputs = [t if t is None or t.dtype.is_float else replace(t, limits=_reach_values(t, known)) for t in node.inputs]
    return replace(node, inputs=tuple(inputs))


def _is_word(tensor: Tensor) -> bool:
    """Whether a tensor has integers of which more may be known than their type: bytes are taken to have all values."""
    return not tensor.dtype.is_float and tensor.dtype.bits > SHORT


def _reach_values(tensor: Tensor, known: Mapping[int, Range]) -> Range:
    """What the integers of a tensor can be: those of a constant, or of what a view shows."""
    if tensor.data is not None:
        return int(tensor.data.min(initial=0)), int(tensor.data.max(initial=0))
    if id(tensor) in known or not _is_word(tensor) or tensor.maker is None or tensor.maker.op not in VIEWS:
        return known.get(id(tensor), tensor.dtype.range)
    return _join_values(tensor.maker.operands, known)


def _join_values(tensors: Iterable[Tensor], known: Mapping[int, Range]) -> Range:
    parts = [_reach_values(t, known) for t in tensors if not t.dtype.is_float]
    return min((low for low, _ in parts), default=0), max((high for _, high in parts), default=0)


def _leave_values(node: Node, tensor: Tensor, bound: LayerArithmetic | None, known: Mapping[int, Range]) -> Range:
    """What the integers of a node's output can be."""
    operator, (least, most) = OPERATORS.get(node.op), tensor.dtype.range
    reached: Range | None = None
    if operator is not None and operator.is_table and not node.epilogue:
        reached = _join_values(node.operands[1:], known)
    elif bound is not None and not bound.failure and "lookup" not in node.epilogue:
        reached = bound.result
    return (least, most) if reached is None else (max(reached[0], least), min(reached[1], most))


def _bound_sums(node: Node, sums: Ends, is_requantised: bool) -> LayerArithmetic:
    """The ranges behind the accumulators of a node."""
    factors = _find_factors(node) if is_requantised else None
    least, most = sums
    bias = _find_bias(node)
    if bias is not None:
        if bias.data is None:
            return LayerArithmetic(failure="the bias is no constant")
        least, most = (end + limit(bias.data.astype(np.int64), 0) for end, limit in ((least, np.minimum), (most, np.maximum)))
    reached = min(int(least.min()), 0, -_span_apart(node)), max(int(most.max()), 0, _span_apart(node))
    word = _DOUBLE if DType.INT64 in (node.outputs[0].dtype, *(t.dtype for t in node.operands[:1])) else _WORD
    if not _fits_type(reached, word):
        return LayerArithmetic(
            reached, failure=f"sums from {reached[0]} to {reached[1]} do not fit into {64 if word is _DOUBLE else 32} bits"
        )
    if factors is None:
        return LayerArithmetic(reached, result=_clamp_range(node, reached))
    return _requantise_ranges(node, reached, (least, most), factors)


def _find_factors(node: Node) -> Factors:
    """The ends of multipliers and summands."""
    constants = requantisation_of(node)
    if constants is not None:
        factor, summand = (values.astype(object) for values in constants[1:])  # Python's integers, which do not overflow
        return (factor,), (summand,)
    operator, names = OPERATORS[node.op], stage_operands(node.epilogue)
    named = dict(zip((*operator.inputs[: len(node.inputs) - len(names)], *names), node.inputs, strict=False))
    mul, add = ([np.array(end, object) for end in values(named[name])] for name in ("mul", "add"))
    return mul, add


def _requantise_ranges(node: Node, reached: Range, sums: Ends, factors: Factors) -> LayerArithmetic:
    """The ranges behind sums of every channel."""
    attrs, y = node.attrs, node.outputs[0].dtype
    shift, low, high = int(attrs["shift"]), int(attrs["low"]), int(attrs["high"])
    ends = [(end.astype(object), factor) for end in sums for factor in factors[0]]
    extremes = [np.atleast_1d(end * factor + added) for end, factor in ends for summand in factors[1] for added in (0 * summand, summand)]
    product = min(min(end) for end in extremes), max(max(end) for end in extremes)
    if not _fits_type(product, _DOUBLE):
        return LayerArithmetic(reached, product, failure=f"products from {product[0]} to {product[1]} do not fit into 64 bits")
    if not 0 <= shift <= LONGEST_SHIFT:
        return LayerArithmetic(reached, product, shift, failure=f"a shift by {shift} bits")
    below = 1 if attrs.get("even") is not None else 0  # a tie may become the even number below
    results = min(max((product[0] >> shift) - below, low), high), min(max(product[1] >> shift, low), high)
    whole = LayerArithmetic(reached, product, shift, results)
    if "lookup" in node.epilogue:
        entries = next((t.elements for t in node.operands if t.shape == (high - low + 1,)), 0)
        return whole if entries else LayerArithmetic(reached, product, shift, results, "a table without an entry for every result")
    if not _fits_type(results, y.range):
        return LayerArithmetic(reached, product, shift, results, f"results from {results[0]} to {results[1]} are not all of type {y.value}")
    return whole


def _find_bias(node: Node) -> Tensor | None:
    names = stage_operands(node.epilogue)
    return node.inputs[len(node.inputs) - len(names) + names.index("bias")] if "bias" in names else None


def _span_apart(node: Node) -> int:
    """What sums can be where products are added up before zero points are taken off them."""
    zero_points = [node.attrs.get(f"{name}_zero_point") for name in "ab"]
    if None in zero_points or "trans_a" not in node.attrs or not any(zero_points):
        return 0
    a, b, *_ = node.operands
    depth = a.shape[-2 if node.attrs["trans_a"] else -1]
    largest = [max(map(abs, (*values(t), *values(t, int(node.attrs[f"{name}_zero_point"]))))) for name, t in (("a", a), ("b", b))]
    return depth * largest[0] * largest[1]


def _clamp_range(node: Node, reached: Range) -> Range:
    low, high = (node.attrs.get(name) if "clamp" in node.epilogue else None for name in ("low", "high"))
    least, most = (max(end, int(low)) if low is not None else end for end in reached)
    return (least, most) if high is None else (min(least, int(high)), min(most, int(high)))


def _fits_type(reached: Range, allowed: Range) -> bool:
    return allowed[0] <= reached[0] and reached[1] <= allowed[1]
