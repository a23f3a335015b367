"""How a network over a window runs along a recording: what both forms of it have in common, the streamed one and the lengthened one.

A tensor that has the streamed axis has a *course*: the axis, its *period* (columns of the input for each of its own), and its *delay*, by
how many of its own columns it lags behind the input. Rules by operator (``rules``) say what becomes of courses. A node that no rule takes
needs the window: it reads the last columns of what streams, as many as the file has, and all behind it is as in the file.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from deeploy.frontend.lower.quant import behind_dequantisation
from deeploy.frontend.streaming.attention import Band, find_attentions
from deeploy.ir.nodes import Node, Tensor, compute, constant, name_part, set_name
from deeploy.ir.rewriting import attempt
from deeploy.ir.types import DType
from deeploy.ir.values import Graph, read_other_tensors, spread_periods
from deeploy.operators.recurrent import GATES

Fill: TypeAlias = "float | str | None"  # what stands before a recording: a real number, LOWEST, or nothing that is read
LOWEST = "lowest"
_MOVERS = ("Reshape", "Transpose")
CONVOLUTIONS, MATRICES = ("Conv", "ConvInteger"), ("Gemm", "MatMul", "MatMulInteger")


@dataclass(frozen=True)
class Course:
    """How a tensor runs along the recording.

    Attributes:
        axis: that of time.
        period: columns of the streamed input for each of its columns; a fraction where sound is resampled to a higher rate.
        delay: columns by which it lags; where that is negative, its first ones are known before they are computed: they are ``fill``.
    """

    axis: int
    period: int | Fraction
    delay: int = 0
    fill: float | None = None


@dataclass(frozen=True)
class WindowSpan:
    """A window that slides along the streamed axis: how many columns it covers and moves by, and what is put before and behind them."""

    reach: int
    stride: int
    before: int
    after: int

    def count(self, columns: int) -> int:
        """How often it fits into so many columns."""
        return (columns + self.before + self.after - self.reach) // self.stride + 1


@dataclass(frozen=True)
class Narrow:
    """The integers that a tensor is made of by a dequantisation and views of it: what is stored for it; else the tensor itself."""

    tensor: Tensor
    path: tuple[Node, ...] = ()

    def store(self, fill: Fill) -> float | None:
        """What stands for a real number among its elements."""
        if fill is None:
            return None
        dtype = self.tensor.dtype
        if isinstance(fill, str):
            return float(np.finfo(np.float32).min) if dtype.is_float else dtype.range[0]
        q = behind_dequantisation(self.path[0].outputs[0]) if self.path else None
        return fill if q is None else int(q.quantise(fill))


@dataclass(frozen=True)
class Meeting:
    """Queries of blocks, and the keys and values that each block meets: the axis of blocks, where there are several, is third from last.

    Attributes:
        shown: which keys are columns of the recording; None where all are.
        course, columns: of what is computed for the queries.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    shown: Tensor | None
    blocks: int
    course: Course
    columns: int


class CourseWalk(ABC):
    """A graph as it is made anew, node by node.

    Attributes:
        now: what stands for a tensor of the file.
        courses: of those with the streamed axis.
        whole: those that are computed of windows.
        heads: the nodes that needed a window first.
        attentions: those that may stream, by their last products.
        bands: what those that do see.
        is_sketch: extents alone are asked for, which may be far too large for constants of that extent.
    """

    keeps_pads = is_sketch = False

    def __init__(
        self, graph: Graph, source: Tensor, axis: int, columns: int, rules: Mapping[str, Callable[[CourseWalk, Node], bool]]
    ) -> None:
        self.graph, self.source, self.rules = graph, source, rules
        self.now: dict[Tensor, Tensor] = {}
        self.courses: dict[Tensor, Course] = {source: Course(axis, 1)}
        self.whole = set[Tensor]()
        self.heads: list[Node] = []
        self.attentions = find_attentions(graph)
        self.bands: dict[Node, Band] = {}
        self.now[source] = Tensor(source.name, with_columns(source.shape, axis, columns), source.dtype)

    def run(self) -> None:
        """Make all nodes anew; those of an attention with its last one."""
        waiting = {each for attention in self.attentions.values() for each in attention.nodes}
        for node in self.graph.nodes:
            if node in waiting:
                continue
            attention = self.attentions.get(node)
            if attention is not None and not attempt(self.rules[node.op], self, node):
                del self.attentions[node]
                for each in (*attention.nodes, node):
                    self._make(each)
            elif attention is None:
                self._make(node)

    def _make(self, node: Node) -> None:
        """Make a node anew: by its rule, or of windows."""
        if not any(tensor in self.courses for tensor in node.operands):
            self.whole.update(node.outputs if not self.whole.isdisjoint(node.operands) else ())
            self._put(node, read_other_tensors(node, self.of))
        elif not (node.op in self.rules and attempt(self.rules[node.op], self, node)):
            self.heads.append(node)
            self.whole.update(node.outputs)
            self._put(
                node, read_other_tensors(node, lambda t: self.window(t, self.columns_in_file(t)) if t in self.courses else self.of(t))
            )

    def of(self, tensor: Tensor) -> Tensor:
        """What stands for a tensor of the file."""
        return self.now.get(tensor, tensor)

    def columns_in_file(self, tensor: Tensor) -> int:
        return tensor.shape[self.courses[tensor].axis]

    def columns(self, tensor: Tensor) -> int:
        """The columns of what stands for a tensor."""
        return self.of(tensor).shape[self.courses[tensor].axis]

    def _put(self, node: Node, made: Node) -> None:
        self.now.update(zip(node.outputs, made.outputs, strict=True))

    def emit(self, node: Node, inputs: Sequence[Tensor | None], course: Course, columns: int, **attrs: Any) -> bool:
        """Compute a node of other inputs; its results have a course, and so many columns."""
        outputs = [replace(t, shape=with_columns(t.shape, course.axis, columns), maker=None) if t.name else t for t in node.outputs]
        self._put(node, node.another(inputs=tuple(inputs), outputs=outputs, attrs={**node.attrs, **attrs}))
        self.courses.update((tensor, course) for tensor in node.outputs if tensor.name)
        return True

    def show(self, node: Node, result: Tensor) -> bool:
        """Let what is computed of windows stand for the result of a node."""
        self.whole.update(node.outputs)
        self.now[node.outputs[0]] = result
        return True

    def narrow(self, tensor: Tensor) -> Narrow:
        """What is stored for a tensor."""
        path, t = list[Node](), tensor
        while (node := t.made_by(*_MOVERS)) is not None and node.operands[0] in self.courses:
            if self.courses[node.operands[0]].period != self.courses[t].period:
                break
            path, t = [node, *path], node.operands[0]
        q = behind_dequantisation(t)
        if q is None or not q.is_scalar or t.maker is None or t.maker.operands[0] not in self.courses:
            return Narrow(tensor)
        return Narrow(t.maker.operands[0], (t.maker, *path))

    def widen(self, narrow: Narrow, columns: Tensor) -> Tensor:
        """Columns of what is stored, as those of the tensor that it is stored for."""
        count = columns.shape[self.courses[narrow.tensor].axis]
        for node in narrow.path:
            (y,), course = node.outputs, self.courses[node.outputs[0]]
            result = Tensor("", with_columns(y.shape, course.axis, count), y.dtype, label="columns")
            columns = node.another(name="", inputs=(columns, *node.inputs[1:]), outputs=(result,)).outputs[0]
        return columns

    @abstractmethod
    def slide(self, node: Node, x: Tensor, span: WindowSpan, fill: Fill) -> tuple[Tensor, Course]:
        """The columns over which a window slides, and the course of what is computed of it."""

    @abstractmethod
    def meet(self, node: Node, queries: Tensor, keys: Tensor, values: Tensor, band: Band) -> Meeting:
        """The blocks of an attention; keys have columns along their last axis, the others along the last but one."""

    def pair_blocks(
        self, tensors: Sequence[Tensor], shown: Tensor | None, band: Band, blocks: int, course: Course, columns: int
    ) -> Meeting:
        """Queries, keys and values of so many blocks, from columns of each that are as many as these need."""
        q, k, v = tensors
        if blocks > 1:
            q = q.reshape((*q.shape[:-2], blocks, band.block, q.shape[-1]))
            k = self._cut_blocks(k, k.rank - 1, blocks, band)
            k = k.transpose([*range(k.rank - 3), k.rank - 2, k.rank - 3, k.rank - 1])
            v = self._cut_blocks(v, v.rank - 2, blocks, band)
        return Meeting(q, k, v, shown, blocks, course, columns)

    def _cut_blocks(self, x: Tensor, axis: int, blocks: int, band: Band) -> Tensor:
        """What each block sees of an axis, which the axis of blocks stands in front of."""
        size = (blocks, band.width)
        places = np.broadcast_to(0, size) if self.is_sketch else np.arange(blocks)[:, None] * band.block + np.arange(band.width)
        taken = replace(constant(0, DType.INT64, "places"), shape=size, data=places)
        shape = (*x.shape[:axis], *size, *x.shape[axis + 1 :])
        return compute("Gather", x, taken, shape=shape, dtype=x.dtype, label="blocks", axis=axis)

    @abstractmethod
    def wait(self, x: Tensor, delay: int) -> Tensor:
        """A tensor, delayed more."""

    @abstractmethod
    def window(self, x: Tensor, count: int) -> Tensor:
        """The last columns of a tensor."""

    @abstractmethod
    def recur(self, node: Node) -> bool:
        """A recurrent layer, which goes on where it was."""

    def add_up(self, node: Node) -> bool:
        """A running sum, which goes on; False for a node that is none."""
        return False

    @abstractmethod
    def pad(self, node: Node, before: int, after: int, fill: float) -> bool:
        """Columns before and behind a recording."""


def find_common_hop(courses: Iterable[Course]) -> int:
    """The fewest columns of the input in which each of some tensors has a whole number of columns."""
    return math.lcm(*(Fraction(course.period).numerator for course in courses))


def with_columns(shape: Sequence[int], axis: int, columns: int) -> tuple[int, ...]:
    """A shape with another extent of an axis."""
    return tuple(columns if i == axis else n for i, n in enumerate(shape))


def replace_name(result: Tensor, y: Tensor) -> Tensor:
    """A result under the name of a tensor of the file."""
    node = result.maker
    return result if node is None else node.another(outputs=(replace(y, maker=None),)).outputs[0]


def name_all(graph: Graph) -> Graph:
    """The graph, in which all that has no name gets one, after what it is computed of."""
    taken = {tensor.name for node in graph.nodes for tensor in (*node.operands, *node.outputs)} | {t.name for t in graph.inputs}
    called = {node.name for node in graph.nodes}
    for node in graph.nodes:
        base = next((tensor.name for tensor in node.operands if tensor.name), graph.name)
        for tensor in (*(t for t in node.operands if t.data is not None), *node.outputs):
            if not tensor.name and tensor.label:
                set_name(tensor, name_part(base, tensor.label, taken))
        if not node.name:
            name = node.outputs[0].name
            set_name(node, name_part(name, node.op.lower(), called) if name in called else name)
    return graph


def count_products(graph: Graph) -> int:
    """Products of a graph in the mean of its inferences: those of convolutions, of matrices and of recurrent layers."""
    outputs = {tensor.name: graph.periods.get(tensor.name, 1) for tensor in graph.outputs}
    steps = [([t.name for t in node.outputs], [t.name for t in node.operands]) for node in graph.nodes]
    periods = spread_periods(steps, outputs)
    every = math.lcm(*periods)
    return -(-sum(_count_of(node) * every // period for node, period in zip(graph.nodes, periods, strict=True)) // every)


def _count_of(node: Node) -> int:
    y = node.outputs[0]
    if node.op in GATES:
        rows = node.operands[1].elements + node.operands[2].elements
        return node.operands[0].shape[0] * node.operands[0].shape[1] * rows
    if node.op in CONVOLUTIONS:
        weights = node.operands[1]
        return y.elements * weights.elements // max(1, weights.shape[0])
    return y.elements * node.operands[0].shape[0 if node.attrs.get("transA") else -1] if node.op in MATRICES else 0
