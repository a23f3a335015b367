"""Means and sums over the whole window, in integers: of sums of columns, which are kept instead of columns.

A quantised pool over time and other axes is ``requantise(S)``, S the sum of all that it pools. S is the sum of what each column sums to,
which fits 16 bits more often than not, so that a call keeps one number where it kept a column's extent. Over time, the call adds all kept
sums up; or S is a running sum, to which it adds new columns, and takes off those that leave. That is exact, as integers are. What moves
fewer bytes is taken: of n columns with h new ones, adding up reads n sums and copies n - h, while a running sum reads 2 h, copies n, reads
and writes three words, and has five layers more, each of which counts as ``_START`` bytes: of DS-CNN they take 8 000 cycles on Siracusa,
and on a Cortex-M4 as many instructions as they save. Floats are added in the order of the network, as before.

The rounding of the pool is kept for every S that there can be. Where it rounds twice, as an ``AveragePool`` does, or ties go to even
results, thresholds of the result are found by bisection, and a multiplier and a summand are taken that have them all. Where there are none,
as of an average that keeps the scale of an even number of elements, the pool is computed of its columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from deeploy.frontend.lower.quant import (
    BYTES,
    Quantised,
    byte_tensor,
    fixed_point_multiplier,
    quantised_result,
    requant_constants,
    requantisation_operands,
    ties_attribute,
)
from deeploy.frontend.streaming.walk import CourseWalk, name_all
from deeploy.ir.epilogue import clip_shifted
from deeploy.ir.nodes import INTEGER_FORM, Attributes, Node, Tensor, compute
from deeploy.ir.rewriting import attempt, need, require
from deeploy.ir.types import DType
from deeploy.ir.values import Graph, substitute_tensors
from deeploy.operators.pool import round_average

_WORDS = 3  # that a running sum reads and writes: what enters, what leaves, and itself
_START, _FURTHER = 1024, 5  # bytes moved that starting a layer is worth, and layers that a running sum has more
_LARGEST_SUMMAND = 2**61


@dataclass(frozen=True)
class WindowSums:
    """What is known of tensors that are summed over time.

    Attributes:
        befores: of each of them, what stands before the recording.
        running: the sums that are running ones.
    """

    befores: Mapping[Tensor, int] = field(default_factory=dict)
    running: frozenset[Tensor] = frozenset()


def split_pools(walked: CourseWalk) -> tuple[Graph, WindowSums]:
    """The graph of a walk, in which pools over its windows are sums of columns, sums over time, and requantisations."""
    instead, befores, running = dict[Tensor, Tensor](), dict[Tensor, int](), set[Tensor]()
    for node in walked.heads:
        if (split := attempt(_split_pool, walked, node)) is not None:
            result, columns, total, before = split
            instead[walked.graph.readers[node.outputs[0]][0].outputs[0]] = result
            befores[columns] = before
            if _is_running_shorter(walked, node, columns):
                running.add(total)
    return name_all(substitute_tensors(walked.graph, instead)), WindowSums(befores, frozenset(running))


def _is_running_shorter(walked: CourseWalk, node: Node, columns: Tensor) -> bool:
    """Whether a running sum moves fewer bytes than adding all sums of columns up."""
    count, new = walked.columns_in_file(node.operands[0]), walked.columns(node.operands[0])
    sums = columns.elements // count  # of one column
    running = sums * (columns.dtype.bytes * (2 * new + count) + 2 * _WORDS * DType.INT32.bytes) + _FURTHER * _START
    return running < sums * columns.dtype.bytes * (count + max(0, count - new))


def _split_pool(walked: CourseWalk, node: Node) -> tuple[Tensor, Tensor, Tensor, int]:
    """What stands for the quantised result of a pool; the sums of columns, that over time, and what stands before the recording."""
    x, y = node.operands[0], node.outputs[0]
    axes, q = _find_axes(node), need(byte_tensor(x))
    readers = walked.graph.readers.get(y, [])
    require(len(readers) == 1, y not in walked.graph.outputs, q.tensor in walked.courses, q.is_scalar)
    result, course = need(quantised_result(readers[0])), walked.courses[q.tensor]
    require(result.is_scalar, result.tensor.dtype in BYTES, course.axis in axes, walked.columns_in_file(x) > 1)
    others = [axis for axis in axes if axis != course.axis and x.shape[axis] > 1]
    inner, columns = math.prod(x.shape[axis] for axis in others), q.tensor
    count, largest = inner * x.shape[course.axis], max(map(abs, q.tensor.dtype.range))
    require(count * largest < 2**31)
    mul, add, limits = _requantise_sums(node, q, result, count)
    if others:
        columns = compute("ReduceSum", columns, dtype=DType.INT32, label="columns", domain=INTEGER_FORM, axes=tuple(others), keepdims=True)
        columns = columns.cast(DType.INT16) if inner * largest < 2**15 else columns
        require(columns.dtype.bytes < inner)
    else:
        require(_is_running_shorter(walked, node, columns))
    attrs: Attributes = {"axes": (course.axis,), "keepdims": True, "domain": INTEGER_FORM}
    total = compute("ReduceSum", columns, dtype=DType.INT32, label="sum", called=node.name, **attrs)
    given = total.reshape(y.shape), *requantisation_operands(mul, add)
    y = result.tensor
    stepped = compute("RequantShift", *given, shape=y.shape, dtype=y.dtype, name=y.name, domain=INTEGER_FORM, **limits)
    return stepped, columns, total, int(q.quantise(0.0)) * inner


def _find_axes(node: Node) -> Sequence[int]:
    """The axes that a pool takes whole."""
    x, axes = node.operands[0], range(2, node.operands[0].rank)
    if node.op == "AveragePool":
        require(x.rank in (3, 4), tuple(node.attrs["kernel_shape"]) == x.shape[2:], not any(node.attrs["pads"]))
        require(all(n == 1 for n in node.attrs.get("dilations", ())))
        return axes
    require(node.op in ("GlobalAveragePool", "ReduceMean", "ReduceSum"), not node.domain)
    return axes if node.op == "GlobalAveragePool" else list(node.attrs["axes"])


def _requantise_sums(node: Node, q: Quantised, result: Quantised, count: int) -> tuple[np.ndarray, np.ndarray, Attributes]:
    """Multiplier, summand, shift and limits that make of the sum of so many elements what the pool makes of these."""
    share = 1 if node.op == "ReduceSum" else count
    (least, most), (low, high) = q.tensor.dtype.range, result.tensor.dtype.range
    is_image = node.op == "AveragePool"  # whose accumulator is an average in fixed point
    ratio = np.float64(q.s) / result.s / (65536 if is_image else share)
    factor, summand, shift = requant_constants(ratio, 0 if is_image else -q.z * count, result.z)
    attrs: Attributes = {"shift": shift, "low": low, "high": high, **ties_attribute(factor, shift, result.z)}
    if not is_image and "even" not in attrs:
        return factor, summand, attrs

    def pool(total: np.ndarray) -> np.ndarray:
        sums = round_average(total - q.z * count, count) if is_image else total
        return clip_shifted(attrs, sums * factor.astype(np.int64) + summand)

    levels = np.arange(low + 1, high + 1)
    first, last = least * count, most * count
    thresholds = _bisect_levels(pool, levels, first, last)
    mul, shift = fixed_point_multiplier(np.float64(q.s) / result.s / share)
    edges, wide = levels << shift, mul.astype(np.int64)
    enough, too_much = (edges - thresholds * wide)[thresholds <= last], (edges - (thresholds - 1) * wide)[thresholds > first]
    floor, ceiling = int(enough.max(initial=-_LARGEST_SUMMAND)), int(too_much.min(initial=_LARGEST_SUMMAND)) - 1
    require(floor <= ceiling)
    add = np.array([(floor + ceiling) // 2], np.int64)
    return mul, add, {"shift": shift, "low": low, "high": high}


def _bisect_levels(step: Callable[[np.ndarray], np.ndarray], levels: np.ndarray, first: int, last: int) -> np.ndarray:
    """The least number from ``first`` on for which a function that never falls is at least each level; behind ``last`` if none is."""
    below, reached = np.full(levels.shape, first - 1), np.full(levels.shape, last + 1)
    while (is_open := reached - below > 1).any():
        middle = (below + reached) // 2
        is_reached = step(middle) >= levels
        below = np.where(is_open & ~is_reached, middle, below)
        reached = np.where(is_open & is_reached, middle, reached)
    return reached
