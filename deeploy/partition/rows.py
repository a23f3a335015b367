"""Rows of a tensor on all chips: partial sums that every chip adds up for some of the rows, what follows from these rows alone, and all
rows for every chip again.

Rows are indices of an axis along which nothing depends on another index: the positions of a sequence, for norms and residual connections.
A sum that would be added up on the first chip is then a reduce-scatter, and what would be copied from there an all-gather. In both, chips
of a group exchange first (or last), then those with the same place in other groups: few bytes pass between groups.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deeploy.ir.memo import by_arguments
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.values import Graph
from deeploy.partition.collectives import Add, ComputePiece, Event, Pair, Receive, Send
from deeploy.partition.dependence import Declare, Dependence, read_dependence


@dataclass(frozen=True)
class Division:
    """Which chip has which rows.

    Attributes:
        axis: of the tensor that is divided, and ``extent`` its rows.
        levels: the distance of the chips that exchange, and how many they are: those of a group, of a group of groups, and so on.
    """

    axis: int
    extent: int
    chips: int
    levels: tuple[Pair, ...]

    @cached_property
    def boxes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Rows [begin, end) of every chip: before the first level all of them, then a part of what it had, as even as can be."""
        boxes = [((0, self.extent),) * self.chips]
        for stride, count in self.levels:
            own = []
            for chip, (begin, end) in enumerate(boxes[-1]):
                place = chip // stride % count
                first, last = (begin + -(-(end - begin) * i // count) for i in (place, place + 1))
                own.append((first, last))
            boxes.append(tuple(own))
        return tuple(boxes)

    @property
    def owned(self) -> dict[int, tuple[int, int]]:
        """The rows of the chips that have some in the end."""
        return {chip: box for chip, box in enumerate(self.boxes[-1]) if box[0] < box[1]}

    @property
    def indices(self) -> list[np.ndarray]:
        """The rows of every chip in the end."""
        return [np.arange(*box) for box in self.boxes[-1]]

    def count(self, chip: int, level: int) -> int:
        """How many rows a chip has before a level."""
        begin, end = self.boxes[level][chip]
        return end - begin

    def events(self, chunks: int) -> Iterator[Event]:
        """A reduce-scatter in an order in which it can happen: while chips compute a chunk, links move those before it, each a level on.

        A piece is a chunk, and the level at which it is sent or added up.
        """
        depth = len(self.levels)
        for step in range(chunks + depth):
            if step < chunks:
                yield from (ComputePiece(chip, (step,)) for chip in range(self.chips))
            for level in reversed(range(depth)):
                if 0 <= step - 1 - level < chunks:
                    piece = (step - 1 - level, level)
                    yield from map(Receive, self._sends(piece))
                    yield from (Add(chip, piece) for chip in range(self.chips) if self.count(chip, level + 1))
            for level in reversed(range(depth)):
                if 0 <= step - level < chunks:
                    yield from self._sends((step - level, level))

    def _sends(self, piece: tuple[int, int]) -> Iterator[Send]:
        """Everybody sends the rows of others, in rounds in which every chip sends to another one."""
        stride, count = self.levels[piece[1]]
        for distance in range(1, count):
            for chip in range(self.chips):
                place = chip // stride % count
                target = chip + ((place + distance) % count - place) * stride
                if self.count(target, piece[1] + 1):
                    yield Send(chip, target, piece)

    def sizes(self, bytes_: int) -> dict[int, int]:
        """Bytes of the rows of every chip that has some, of a tensor of so many bytes."""
        return {chip: bytes_ * (end - begin) // self.extent for chip, (begin, end) in self.owned.items()}


def divide_rows(axis: int, extent: int, chips: int, group: int) -> Division | None:
    """How rows are divided among all chips; None where groups are not full, so that places have no counterpart in other groups."""
    levels, stride, size = list[Pair](), 1, group if group > 1 else chips
    while stride < chips:
        count = min(size, chips // stride)
        if count < 2 or chips % (stride * count):
            return None
        levels.append((stride, count))
        stride *= count
    return Division(axis, extent, chips, tuple(levels)) if extent > 1 else None


@dataclass(frozen=True)
class RowRegion:
    """What follows from a tensor row by row: nodes, and tensors that nodes which are cut read whole, each with the axis of its rows."""

    nodes: tuple[Node, ...]
    read: tuple[tuple[Tensor, int], ...]


class Rows:
    """What is known of rows of a graph's tensors, node by node."""

    def __init__(self, graph: Graph, declare: Declare) -> None:
        self.graph = graph
        self.declare = declare

    @by_arguments
    def _alone(self, node: Node) -> Dependence:
        """What depends on each other in one node."""
        return read_dependence(self.graph, self.declare, nodes=[node])

    def matching(self, node: Node, tensor: Tensor, axis: int, operands: Sequence[Tensor]) -> tuple[int | None, ...] | None:
        """Per operand of a node the axis whose indices depend on the same index of ``tensor`` alone, None where it has none; None where
        indices depend on each other.
        """
        own = self._alone(node)
        wanted = own.index_classes(tensor, axis)
        if len(np.unique(wanted)) < len(wanted):
            return None
        axes: list[int | None] = []
        for operand in operands:
            touched = [i for i in range(operand.rank) if np.isin(own.index_classes(operand, i), wanted).any()]
            if len(touched) > 1 or any(not np.array_equal(own.index_classes(operand, i), wanted) for i in touched):
                return None
            axes.append(touched[0] if touched else None)
        return tuple(axes)

    def along(self, node: Node, tensor: Tensor, axis: int) -> tuple[int | None, ...] | None:
        """Per operand of a node, inputs first, the axis of its rows, where ``axis`` is that of ``tensor``; None where rows depend on each
        other, or a variable has none.
        """
        if len(node.outputs) != 1:
            return None
        operands = (*node.operands, *node.outputs)
        axes = self.matching(node, tensor, axis, operands)
        if axes is None or node in self._alone(node).factors:
            return None
        return axes if all(place is not None for place, t in zip(axes, operands, strict=True) if t.data is None) else None

    def regions(self, tensor: Tensor, cut: Container[Node]) -> dict[int, RowRegion]:
        """What follows from a tensor row by row, by the axis of its rows, as far as nodes that are cut."""
        regions = {axis: self._region(tensor, axis, cut) for axis in range(tensor.rank)}
        return {axis: follows for axis, follows in regions.items() if follows is not None}

    def _region(self, tensor: Tensor, axis: int, cut: Container[Node]) -> RowRegion | None:
        """What follows from rows of a tensor; None where a node that is not cut needs all rows."""
        nodes: dict[Node, int] = {}
        read: dict[Tensor, int] = {}
        waiting = [(tensor, axis)]
        while waiting:
            tensor, axis = waiting.pop()
            for node in self.graph.readers.get(tensor, ()):
                if node in cut:
                    read[tensor] = axis
                elif node not in nodes:
                    axes = self.along(node, tensor, axis)
                    if axes is None:
                        return None
                    nodes[node] = axis
                    last = axes[-1]
                    assert last is not None
                    waiting.append((node.outputs[0], last))
        return RowRegion(tuple(nodes), tuple(read.items()))
