"""The lengthened form of a network: its streamed axis is as long as a recording, and padding is at the ends of that.

It says what a stream computes, without states: what runs along the recording is one graph, what is computed of windows another one, for
each window by itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deeploy.frontend.streaming.attention import Band
from deeploy.frontend.streaming.rules import RULES
from deeploy.frontend.streaming.walk import Course, CourseWalk, Fill, Meeting, WindowSpan, with_columns
from deeploy.ir.nodes import Node, Tensor, constant
from deeploy.ir.rewriting import need, require
from deeploy.ir.types import DType
from deeploy.ir.values import Graph


class Recording(CourseWalk):
    """A walk that makes the lengthened form.

    Attributes:
        windows: what is read of windows: an input of the second graph, the tensor of the first that it is cut from, and its axis there.
    """

    keeps_pads = True

    def __init__(self, graph: Graph, source: Tensor, axis: int, columns: int, is_sketch: bool = False) -> None:
        super().__init__(graph, source, axis, columns, RULES)
        self.is_sketch = is_sketch
        self.windows: dict[Tensor, tuple[Tensor, Course, float]] = {}

    def slide(self, node: Node, x: Tensor, span: WindowSpan, fill: Fill) -> tuple[Tensor, Course]:
        course = self.courses[x]
        return self.of(x), Course(course.axis, course.period * span.stride)

    def meet(self, node: Node, queries: Tensor, keys: Tensor, values: Tensor, band: Band) -> Meeting:
        columns, course = self.columns(queries), self.courses[queries]
        require(self.columns(keys) == self.columns(values) == columns)
        blocks = -(-columns // band.block)
        whole = self._surround(queries, 0, blocks * band.block - columns)
        k, v = (self._surround(x, band.before, blocks * band.block + band.after - columns) for x in (keys, values))
        places = np.arange(blocks)[:, None, None] * band.block - band.before + np.arange(band.width)
        shown = (places >= 0) & (places < columns)
        mask = None if shown.all() else constant(shown[0 if blocks == 1 else ...])
        return self.pair_blocks((whole, k, v), mask, band, blocks, course, columns)

    def _surround(self, x: Tensor, before: int, after: int) -> Tensor:
        """A tensor with zeros in front of a recording, and behind it."""
        narrow = self.narrow(x)
        stored, axis = self.of(narrow.tensor), self.courses[narrow.tensor].axis
        front, behind = ([count if at == axis else 0 for at in range(stored.rank)] for count in (before, after))
        return self.widen(narrow, stored.pad(front, behind, need(narrow.store(0.0))))

    def wait(self, x: Tensor, delay: int) -> Tensor:
        return self.of(x)

    def window(self, x: Tensor, count: int) -> Tensor:
        narrow = self.narrow(x)
        tensor = narrow.tensor
        axis, name = self.courses[tensor].axis, f"{tensor.name} (window {count})"
        own = next((t for t in self.windows if t.name == name), None)
        own = own or Tensor(name, with_columns(tensor.shape, axis, count), tensor.dtype)
        fill = narrow.store(0.0)
        assert fill is not None
        self.windows[own] = tensor, self.courses[tensor], fill
        return self.widen(narrow, own)

    def recur(self, node: Node) -> bool:
        x, y = node.operands[0], node.outputs[0]
        shape = (self.columns(x), 1, x.shape[1], need(node.inputs[2]).shape[-1])
        sequence = Tensor(y.name or f"{node.name} (sequence)", shape, DType.FLOAT32)
        absent = (replace(t, name="", maker=None) for t in node.outputs[1:])
        made = node.another(inputs=(self.of(x), *node.inputs[1:]), outputs=(sequence, *absent))
        self.now[y], self.courses[y] = made.outputs[0], replace(self.courses[x], axis=0)
        return True

    def pad(self, node: Node, before: int, after: int, fill: float) -> bool:
        x = node.operands[0]
        return self.emit(node, (self.of(x),), self.courses[x], self.columns(x) + before + after)
