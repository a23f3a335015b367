"""What operators do to a streamed axis: one rule for each, which does not apply where a node needs the whole window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from deeploy.frontend.lower.lookup import UNARY
from deeploy.frontend.lower.pointwise import BINARY
from deeploy.frontend.streaming.bands import stream_attention
from deeploy.frontend.streaming.walk import LOWEST, Course, CourseWalk, Fill, WindowSpan, replace_name
from deeploy.ir.nodes import Node, Tensor, constant
from deeploy.ir.rewriting import need, require
from deeploy.operators.recurrent import GATES

Rule = Callable[[CourseWalk, Node], bool]
_OF_VALUES = ("Relu", "Clip", "Cast", "Not", "QuantizeLinear", "DequantizeLinear", *UNARY)  # functions of each element alone
_CHANNELS = ("BatchNormalization", "RequantShift", "MultiThreshold")  # with constants for each channel


def _check_first(walk: CourseWalk, node: Node) -> tuple[Tensor, Course]:
    """The first input, which alone has the streamed axis."""
    x, *others = node.operands
    require(x in walk.courses, all(t not in walk.courses and t not in walk.whole for t in others))
    return x, walk.courses[x]


def _stream_function(walk: CourseWalk, node: Node) -> bool:
    """Functions of each element, with parameters that do not depend on time."""
    x, course = _check_first(walk, node)
    parameters = [t for t in node.operands[1:] if t.elements > 1 and node.op != "LookUp"]
    axis = node.attrs.get("axis", 1) if node.op in ("QuantizeLinear", "DequantizeLinear") else 1
    require(not parameters or course.axis != axis, all(t.rank != x.rank or t.shape[course.axis] == 1 for t in parameters))
    require(not node.attrs.get("block_size", 0))
    if course.delay < 0 and course.fill is not None and (fill := _apply_function(node, course.fill)) is not None:
        return walk.emit(node, (walk.of(x), *node.inputs[1:]), replace(course, fill=fill), walk.columns(x))
    settled = walk.wait(x, max(course.delay, 0))
    return walk.emit(node, (settled, *node.inputs[1:]), replace(course, delay=max(course.delay, 0), fill=None), walk.columns(x))


def _apply_function(node: Node, value: float) -> float | None:
    """What a function of elements makes of the value that stands before a recording; None where that is not looked into."""
    if node.op in ("Relu", "Clip"):
        low, high = (0.0, None) if node.op == "Relu" else (node.attrs["min"], node.attrs["max"])
        return float(np.clip(value, low, high))
    numbers = [t.number for t in node.operands[1:]]
    if node.op in ("QuantizeLinear", "DequantizeLinear") and numbers and numbers[0] is not None:
        scale, zero = numbers[0], numbers[1] if len(numbers) > 1 and numbers[1] is not None else 0.0
        if node.op == "DequantizeLinear":
            return (value - zero) * scale
        return float(np.clip(np.rint(value / scale) + zero, *node.outputs[0].dtype.range))
    return None


def _stream_combine(walk: CourseWalk, node: Node) -> bool:
    """Functions of several tensors element by element: those that come early wait for the latest."""
    y = node.outputs[0]
    streamed = [t for t in node.operands if t in walk.courses]
    backs = {t.rank - walk.courses[t].axis for t in streamed}
    require(len(backs) == 1, all(t not in walk.whole for t in node.operands))
    back = backs.pop()
    axis = y.rank - back
    require(all(t.shape[-back] == 1 for t in node.operands if t not in walk.courses and t.rank >= back))
    require(all(t.shape[-back] == y.shape[axis] for t in streamed))
    return _join_streams(walk, node, axis)


def _join_streams(walk: CourseWalk, node: Node, axis: int) -> bool:
    """A node whose streamed inputs have one period; ``axis`` is that of its results."""
    streamed = [t for t in node.operands if t in walk.courses]
    courses = [walk.courses[t] for t in streamed]
    require(len({(course.period, walk.columns(t)) for t, course in zip(streamed, courses, strict=True)}) == 1)
    delay = max(0, *(course.delay for course in courses))
    inputs = [walk.wait(t, delay) if t in walk.courses else t for t in node.inputs]
    return walk.emit(node, inputs, Course(axis, courses[0].period, delay), walk.columns(streamed[0]))


def _stream_concat(walk: CourseWalk, node: Node) -> bool:
    axes = {walk.courses[t].axis for t in node.operands if t in walk.courses}
    require(len(axes) == 1, all(t in walk.courses for t in node.operands), node.attrs["axis"] not in axes)
    return _join_streams(walk, node, axes.pop())


def _stream_slide(walk: CourseWalk, node: Node) -> bool:
    """Convolutions and pools: they keep the columns that the next window needs as well."""
    x, course = _check_first(walk, node)
    y, rank, place = node.outputs[0], x.rank - 2, course.axis - 2
    if place == -2:
        return walk.emit(node, (walk.wait(x, max(course.delay, 0)), *node.inputs[1:]), _settle_value(course), walk.columns(x))
    require(place >= 0, y.shape[course.axis] > 1 or x.shape[course.axis] == 1, len([t for t in node.outputs if t.name]) == 1)
    pads = list(node.attrs["pads"])
    before, after = pads[place], pads[rank + place]
    reach = (node.attrs["kernel_shape"][place] - 1) * node.attrs.get("dilations", [1] * rank)[place] + 1
    span = WindowSpan(reach, node.attrs["strides"][place], before, after)
    require(node.op != "AveragePool" or not before or node.attrs["count_include_pad"])
    zero = need(node.operands[2].number) if node.op == "ConvInteger" and len(node.operands) > 2 else 0.0
    fill: Fill = LOWEST if node.op == "MaxPool" else zero
    columns, result = walk.slide(node, x, span, fill)
    if not walk.keeps_pads:
        pads[place] = pads[rank + place] = 0
        span = replace(span, before=0, after=0)
    return walk.emit(node, (columns, *node.inputs[1:]), result, span.count(columns.shape[course.axis]), pads=pads)


def _settle_value(course: Course) -> Course:
    return replace(course, delay=max(course.delay, 0), fill=None)


def _stream_move(walk: CourseWalk, node: Node) -> bool:
    """Transposes, and Reshapes that leave the streamed axis: its extent, and the elements behind each column; or make these columns."""
    x, course = _check_first(walk, node)
    y, (size, behind) = node.outputs[0], (x.shape[course.axis], int(np.prod(x.shape[course.axis + 1 :])))
    if node.op == "Transpose":
        axis = list(node.attrs["perm"]).index(course.axis)
    else:
        places = [i for i, n in enumerate(y.shape) if n == size and int(np.prod(y.shape[i + 1 :])) == behind]
        if not places and behind > 1 and y.shape[-1] == size * behind and course.delay >= 0:
            faster = Course(y.rank - 1, Fraction(course.period, behind), course.delay * behind)
            return walk.emit(node, (walk.of(x),), faster, walk.columns(x) * behind)
        require(size > 1, places)
        axis = places[0]
        require("shape" not in node.attrs)
    return walk.emit(node, (walk.of(x),), replace(course, axis=axis), walk.columns(x))


def _stream_along(walk: CourseWalk, node: Node) -> bool:
    """Operators that work along other axes: norms, softmax, reductions, splits; along time, running sums."""
    x, course = _check_first(walk, node)
    axes = node.attrs.get("axes", [node.attrs.get("axis", -1)])
    axes = {axis % x.rank for axis in axes}
    if "Norm" in node.op and node.op != "LpNormalization":
        axes = set(range(min(axes), x.rank))
    if walk.add_up(node):
        return True
    require(course.axis not in axes, all(t.rank < x.rank - course.axis for t in node.operands[1:] if t.elements > 1))
    gone = sum(axis < course.axis for axis in axes) if node.outputs[0].rank < x.rank else 0
    settled = walk.wait(x, max(course.delay, 0))
    return walk.emit(node, (settled, *node.inputs[1:]), replace(_settle_value(course), axis=course.axis - gone), walk.columns(x))


def _stream_gather(walk: CourseWalk, node: Node) -> bool:
    """What is taken along another axis; or the last column alone."""
    x, course = _check_first(walk, node)
    axis, indices, y = node.attrs["axis"], node.operands[1], node.outputs[0]
    require(indices.data is not None)
    if axis == course.axis and indices.rank == 2:
        return _stream_frame(walk, node)
    if axis == course.axis:
        require(indices.number in (-1, x.shape[axis] - 1))
        return walk.show(node, replace_name(walk.window(x, 1).reshape(y.shape), y))
    moved = course.axis + (indices.rank - 1 if axis < course.axis else 0)
    return walk.emit(node, (walk.wait(x, max(course.delay, 0)), indices), replace(_settle_value(course), axis=moved), walk.columns(x))


def _stream_frame(walk: CourseWalk, node: Node) -> bool:
    """Overlapping frames of a signal, of which each is a column."""
    x, places = node.operands[0], need(node.operands[1].data)
    axis, (count, size) = walk.courses[x].axis, places.shape
    step = int(places[1, 0] - places[0, 0]) if count > 1 else 0
    require(step > 0, np.array_equal(places, np.arange(count)[:, None] * step + np.arange(size)))
    span = WindowSpan(size, step, 0, 0)
    columns, result = walk.slide(node, x, span, None)
    frames = span.count(columns.shape[axis])
    wanted = np.broadcast_to(0, (frames, size)) if walk.is_sketch else np.arange(frames)[:, None] * step + np.arange(size)
    taken = constant(wanted, node.operands[1].dtype, "places")
    return walk.emit(node, (columns, taken), result, frames)


def _stream_slice(walk: CourseWalk, node: Node) -> bool:
    """Columns that are left out at the ends of a recording, every n-th column, or the last ones alone; other axes as they are."""
    x, course = _check_first(walk, node)
    names = ("starts", "ends", "steps")
    starts, ends, steps = (list(node.attrs[name]) for name in names)
    size, axis, y = x.shape[course.axis], course.axis, node.outputs[0]
    start, end, step = starts[axis], ends[axis], steps[axis]
    if y.shape[axis] == 1 or start > size // 2:
        require(end == size, step == 1)
        last = walk.window(x, size - start)
        starts[axis], ends[axis] = 0, size - start
        return walk.show(node, replace_name(last.apply("Slice", starts=starts, ends=ends, steps=steps), y))
    columns, result = walk.slide(node, x, WindowSpan(1, step, -start, end - size), None)
    if walk.keeps_pads:
        starts[axis], ends[axis] = start, columns.shape[axis] - (size - end)
    else:
        starts[axis], ends[axis] = 0, columns.shape[axis]
    count = len(range(starts[axis], ends[axis], step))
    return walk.emit(node, (columns,), result, count, starts=starts, ends=ends, steps=steps)


def _stream_pad(walk: CourseWalk, node: Node) -> bool:
    """Borders of other axes; along the streamed one, columns before and behind the recording."""
    x, course = _check_first(walk, node)
    pads = list(node.attrs["pads"])
    before, after = pads[course.axis], pads[x.rank + course.axis]
    if not before and not after:
        return walk.emit(node, (walk.wait(x, max(course.delay, 0)),), _settle_value(course), walk.columns(x))
    require(node.attrs["mode"] == "constant", sum(pads) == before + after)
    return walk.pad(node, before, after, float(node.attrs["value"]))


def _stream_multiply(walk: CourseWalk, node: Node) -> bool:
    """Products of matrices of which one has the streamed axis, which they are not summed over, or both have it among their batches.

    The last one of an attention that is limited to a band computes the whole attention.
    """
    if node in walk.attentions:
        return stream_attention(walk, node)
    a, b, *others = node.operands
    y = node.outputs[0]
    require(all(t not in walk.courses and t not in walk.whole for t in (*others, *(t for t in (a, b) if t not in walk.courses))))
    backs = [(t.rank - walk.courses[t].axis, at) for at, t in enumerate((a, b)) if t in walk.courses]
    back = backs[0][0]
    require(all(other == back for other, _ in backs), a.rank > 1, b.rank > 1)
    if len(backs) == 2:
        require(back > 2)
    else:
        at, other = backs[0][1], (a, b)[1 - backs[0][1]]
        require(back != (1 if at == 0 else 2), back <= 2 or other.rank < back or other.shape[-back] == 1)
    require(all(t.elements == 1 or t.rank < back for t in others))
    return _join_streams(walk, node, y.rank - back)


def _stream_gemm(walk: CourseWalk, node: Node) -> bool:
    x, course = _check_first(walk, node)
    require(course.axis == 0, not node.attrs["transA"], all(t.rank < 2 or t.shape[0] == 1 for t in node.operands[2:]))
    return walk.emit(node, (walk.wait(x, max(course.delay, 0)), *node.inputs[1:]), _settle_value(course), walk.columns(x))


def _stream_expand(walk: CourseWalk, node: Node) -> bool:
    x, course = _check_first(walk, node)
    axis = node.outputs[0].rank - (x.rank - course.axis)
    require(x.shape[course.axis] == node.outputs[0].shape[axis] > 1, "shape" not in node.attrs)
    return walk.emit(node, (walk.of(x),), replace(course, axis=axis), walk.columns(x))


def _stream_recurrent(walk: CourseWalk, node: Node) -> bool:
    """Recurrent layers in the direction of time; the last state is that behind the last column."""
    _, course = _check_first(walk, node)
    require(course.axis == node.attrs["layout"] == 0, node.attrs["direction"] == "forward")
    read = [y for y in node.outputs[2:] if y.name and (y in walk.graph.readers or y in walk.graph.outputs)]
    require(not read, all(t is None or t.data is not None for t in node.inputs[5:7]))
    walk.recur(node)
    y, last = node.outputs[:2]
    if last.name and (last in walk.graph.readers or last in walk.graph.outputs):
        walk.whole.add(last)
        walk.courses.pop(last, None)
        walk.now[last] = replace_name(walk.window(y, 1).reshape(last.shape), last)
    return True


def _by_name(table: Mapping[Rule, Sequence[str]]) -> dict[str, Rule]:
    return {op: rule for rule, ops in table.items() for op in ops}


RULES: Mapping[str, Rule] = _by_name(
    {
        _stream_function: (*_OF_VALUES, *_CHANNELS, "iGELU", "iHardswish", "TrueIntegerDiv", "iNoNorm", "LookUp"),
        _stream_combine: (*BINARY, "Where", "Sum", "Mean", "PRelu", "IntegerDiv", "Quant", "AddScaled", "MultiplyCentred", "Requantise"),
        _stream_concat: ("Concat",),
        _stream_slide: ("Conv", "ConvInteger", "MaxPool", "AveragePool"),
        _stream_move: ("Reshape", "Transpose"),
        _stream_along: (
            *("Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"),
            *("LpNormalization", "DFT", "ArgMax", "ArgMin", "TopK", "Split", "IntegerMean", "iSoftmax", "ITAMax", "iLayerNorm", "iRMSNorm"),
            *(f"Reduce{kind}" for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")),
        ),
        _stream_gather: ("Gather",),
        _stream_slice: ("Slice",),
        _stream_pad: ("Pad",),
        _stream_multiply: ("MatMul", "MatMulInteger"),
        _stream_gemm: ("Gemm",),
        _stream_expand: ("Expand",),
        _stream_recurrent: tuple(GATES),
    }
)
