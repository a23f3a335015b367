"""Rows of a tensor on all chips: partial sums that every chip adds up for some of the rows, what follows from these rows alone, and all
rows for every chip again.

Rows are indices of an axis along which nothing depends on another index: the positions of a sequence, for norms and residual connections.
A sum that would be added up on the first chip is then a reduce-scatter, and what would be copied from there an all-gather. In both, chips
of a group exchange first (or last), then those with the same place in other groups: few bytes pass between groups.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.distribute.collectives import Effort, Piece, Timeline, Work
from deeploy.distribute.dependence import Declare, read_dependence, shape_of
from deeploy.graph import surgeon
from deeploy.graph.topology import Topology
from deeploy.operators.views import VIEWS


@dataclass(frozen=True)
class Post:
    """A chip sends rows to another one."""

    source: int
    target: int
    level: int
    chunk: int = 0


@dataclass(frozen=True)
class Take:
    """A chip receives what another one has sent."""

    post: Post


@dataclass(frozen=True)
class Add:
    """A chip adds up what it has of its rows, and what has arrived."""

    chip: int
    level: int
    chunk: int = 0


Event = Piece | Post | Take | Add


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
    levels: tuple[tuple[int, int], ...]

    @cached_property
    def boxes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Rows [begin, end) of every chip: before the first level all of them, then a part of what it had, as even as can be."""
        found = [((0, self.extent),) * self.chips]
        for stride, count in self.levels:
            own = []
            for chip, (begin, end) in enumerate(found[-1]):
                place = chip // stride % count
                first, last = (begin + -(-(end - begin) * i // count) for i in (place, place + 1))
                own.append((first, last))
            found.append(tuple(own))
        return tuple(found)

    @property
    def owned(self) -> dict[int, tuple[int, int]]:
        """The rows of the chips that have some in the end."""
        return {chip: box for chip, box in enumerate(self.boxes[-1]) if box[0] < box[1]}

    def peers(self, level: int) -> Iterator[tuple[int, int]]:
        """Who exchanges with whom, in rounds in which every chip sends to another one."""
        stride, count = self.levels[level]
        for distance in range(1, count):
            for chip in range(self.chips):
                place = chip // stride % count
                yield chip, chip + ((place + distance) % count - place) * stride

    def has(self, chip: int, level: int) -> bool:
        """Whether a chip has rows before a level."""
        begin, end = self.boxes[level][chip]
        return begin < end

    def fraction(self, chip: int, level: int) -> float:
        begin, end = self.boxes[level][chip]
        return (end - begin) / self.extent

    def script(self, chunks: int) -> Iterator[Event]:
        """A reduce-scatter in an order in which it can happen: while chips compute a chunk, links move those before it, each a level on."""
        depth = len(self.levels)
        for step in range(chunks + depth):
            if step < chunks:
                yield from (Piece(chip, step) for chip in range(self.chips))
            for level in reversed(range(depth)):
                if 0 <= step - 1 - level < chunks:
                    yield from self._added(level, step - 1 - level)
            for level in reversed(range(depth)):
                if 0 <= step - level < chunks:
                    yield from self._posts(level, step - level)

    def _posts(self, level: int, chunk: int) -> Iterator[Post]:
        for source, target in self.peers(level):
            if self.has(target, level + 1):
                yield Post(source, target, level, chunk)

    def _added(self, level: int, chunk: int) -> Iterator[Event]:
        yield from (Take(post) for post in self._posts(level, chunk))
        yield from (Add(chip, level, chunk) for chip in range(self.chips) if self.has(chip, level + 1))

    def added_seconds(self, bytes_: int, chunks: int, topology: Topology, work: Work, sums: Sequence[float]) -> float:
        """When the last chip has its rows of a sum of so many bytes.

        Args:
            sums: seconds for what a chip adds up of a chunk, by level.
        """
        line, arrivals = Timeline(topology, self.chips, work.message), dict[Post, float]()
        for event in self.script(chunks):
            if isinstance(event, Piece):
                line.compute(event.chip, work.product.part(chunks))
            elif isinstance(event, Post):
                own = bytes_ * self.fraction(event.target, event.level + 1) / chunks
                arrivals[event] = line.send(event.source, event.target, own)
            elif isinstance(event, Take):
                line.receive(event.post.target, arrivals[event.post])
            else:
                line.compute(event.chip, sums[event.level])
        return max(line.free)

    def sizes(self, bytes_: int) -> dict[int, int]:
        """Bytes of the rows of every chip that has some, of a tensor of so many bytes."""
        return {chip: bytes_ * (end - begin) // self.extent for chip, (begin, end) in self.owned.items()}


def share_of(effort: Effort, share: float) -> float:
    """Seconds of a share of what one call computes."""
    return effort.call + max(0.0, effort.whole - effort.call) * share


def division(axis: int, extent: int, chips: int, group: int) -> Division | None:
    """How rows are divided among all chips; None where groups are not full, so that places have no counterpart in other groups."""
    levels, stride, size = list[tuple[int, int]](), 1, group if group > 1 else chips
    while stride < chips:
        count = min(size, chips // stride)
        if count < 2 or chips % (stride * count):
            return None
        levels.append((stride, count))
        stride *= count
    return Division(axis, extent, chips, tuple(levels)) if extent > 1 else None


def along(node: gs.Node, tensor: gs.Tensor, axis: int, declare: Declare) -> tuple[int | None, ...] | None:
    """Per operand of a node, inputs first, the axis whose indices depend on the same index of ``tensor`` alone, None where it has none;
    None where rows depend on each other.
    """
    if len(node.outputs) != 1:
        return None
    operands = [*node.inputs, *node.outputs]
    own = read_dependence(gs.Graph([node], [t for t in node.inputs if isinstance(t, gs.Variable)], list(node.outputs)), declare)
    wanted = own.atoms(tensor, axis)
    if len(np.unique(wanted)) < len(wanted) or id(node) in own.factors:
        return None
    places: list[int | None] = []
    for operand in operands:
        touched = [i for i in range(len(shape_of(operand))) if np.isin(own.atoms(operand, i), wanted).any()]
        if len(touched) > 1 or any(not np.array_equal(own.atoms(operand, i), wanted) for i in touched):
            return None
        places.append(touched[0] if touched else None)
    known = [place is not None for place, operand in zip(places, operands, strict=True) if not isinstance(operand, gs.Constant)]
    return tuple(places) if all(known) else None


Along = Callable[[gs.Node, gs.Tensor, int], tuple[int | None, ...] | None]


@dataclass(frozen=True)
class Region:
    """What follows from a tensor row by row: nodes, and tensors that nodes which are cut read whole, each with the axis of its rows."""

    nodes: tuple[gs.Node, ...]
    read: tuple[tuple[gs.Tensor, int], ...]


class Rows:
    """What is known of rows of a graph's tensors; asked for again and again, and found once."""

    def __init__(self, declare: Declare) -> None:
        self.declare = declare
        self._along: dict[tuple[int, int, int], tuple[int | None, ...] | None] = {}

    def along(self, node: gs.Node, tensor: gs.Tensor, axis: int) -> tuple[int | None, ...] | None:
        """``along`` of a node."""
        place = id(node), id(tensor), axis
        if place not in self._along:
            self._along[place] = along(node, tensor, axis, self.declare)
        return self._along[place]

    def regions(self, tensor: gs.Tensor, cut: Container[int]) -> dict[int, Region]:
        """What follows from a tensor row by row, by the axis of its rows."""
        found = {axis: region(tensor, axis, cut, self.along) for axis in range(len(shape_of(tensor)))}
        return {axis: follows for axis, follows in found.items() if follows is not None}


def region(tensor: gs.Tensor, axis: int, cut: Container[int], along: Along) -> Region | None:
    """What follows from rows of a tensor, as far as nodes that are cut (``id``); None where another node needs all rows."""
    nodes: dict[int, gs.Node] = {}
    read: dict[str, tuple[gs.Tensor, int]] = {}
    waiting = [(tensor, axis)]
    while waiting:
        tensor, axis = waiting.pop()
        for node in tensor.outputs:
            if id(node) in cut:
                read[tensor.name] = tensor, axis
            elif id(node) not in nodes:
                places = along(node, tensor, axis)
                if places is None:
                    return None
                nodes[id(node)] = node
                last = places[-1]
                assert last is not None
                waiting.append((node.outputs[0], last))
    return Region(tuple(nodes.values()), tuple(read.values()))


def single(node: gs.Node) -> gs.Graph | None:
    """A node as a graph of its own, in which constants are zero; None for a view, which computes nothing."""
    if node.op in VIEWS:
        return None
    inputs: list[gs.Tensor] = []
    for tensor in node.inputs:
        if isinstance(tensor, gs.Constant):
            inputs.append(gs.Constant(tensor.name, np.asarray(tensor.values)))
        else:
            inputs.append(surgeon.variable(tensor.name, tensor.dtype, shape_of(tensor)))
    result = surgeon.variable(node.outputs[0].name, node.outputs[0].dtype, shape_of(node.outputs[0]))
    own = gs.Node(node.op, node.name, dict(node.attrs), inputs, [result], domain=node.domain)
    return gs.Graph([own], [t for t in inputs if isinstance(t, gs.Variable)], [result])
