"""The chips' nodes as they grow, and where every tensor of the model is: its sharding.

A tensor is *whole* on some chips, *in parts* along a class that is cut, in *rows* that are divided among all chips, or chips have partial
sums of it, which are added up at once. What is whole is whole on the first chip at least: it computes everything that is not cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from deeploy.ir.memo import by_arguments
from deeploy.ir.nodes import INTEGER_FORM, Attributes, Node, Tensor, compute
from deeploy.ir.topology import Topology
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators import link
from deeploy.operators.views import CONCAT, SLICE, SLIDE, VIEWS
from deeploy.partition.collectives import ComputePiece, Costs, Effort, Event, Links, Piece, Receive, Send
from deeploy.partition.cuts import Cuts
from deeploy.partition.rows import Division

ROOT = 0
Box = tuple[int, int, int]  # indices [begin, end) along an axis: axis, begin, end


@dataclass(frozen=True)
class Whole:
    """A tensor that some chips hold as a whole."""

    chips: tuple[int, ...] = (ROOT,)


@dataclass(frozen=True)
class Parts:
    """A tensor in parts along the axis of a class that is cut."""

    group: int


@dataclass(frozen=True)
class Partial:
    """Partial sums of a tensor on several chips."""


Sharding = Whole | Parts | Division | Partial


@dataclass(frozen=True)
class Shard:
    """A constant's part on a chip: all of it, or some indices along some of its axes.

    A *copy* is of what every chip needs that computes rows: the weights of norms, requantisations. Other chips may have it too.
    """

    constant: Tensor
    chip: int
    indices: Mapping[int, np.ndarray]
    values: np.ndarray
    is_copy: bool = False


@dataclass(frozen=True)
class Collective:
    """A movement of a tensor between the first chip and others: ``reduce``, ``gather``, ``broadcast`` or ``scatter``; of rows between all
    chips: ``reduce-scatter`` or ``all-gather``.

    ``bytes`` are those of all messages; ``group`` is the class that the tensor is cut along, None where it is whole.
    """

    kind: str
    tensor: str
    algorithm: str
    chips: tuple[int, ...]
    bytes: int
    group: int | None


@dataclass(frozen=True, eq=False)
class Divided:
    """A tensor divided along an axis: per chip the indices that it has, and what every chip has that has some.

    It is cut along a ``group``, or as a ``division`` of rows says.
    """

    axis: int
    indices: Sequence[np.ndarray]
    tensors: Mapping[int, Tensor]
    group: int | None = None
    division: Division | None = None


@dataclass
class ShardState:
    """Where a tensor is: whole, by chip; in parts, by class; in rows.

    What is ``apart`` is made whole when it is read. What is read by rows, though it is whole, ``is_divided``. ``add_up`` makes partial
    sums whole, or rows.
    """

    whole: dict[int, Tensor] = field(default_factory=dict)
    apart: Divided | None = None
    parts: dict[int, Divided] = field(default_factory=dict)
    rows: Divided | None = None
    is_divided: bool = False
    add_up: Callable[[], None] | None = None

    @property
    def division(self) -> Division | None:
        """How the rows of the tensor are divided over chips; None where they are not."""
        return self.rows.division if self.rows is not None else None

    @property
    def divided(self) -> Divided | None:
        """How the tensor is divided over chips, in parts or rows; None where it is whole."""
        return next((shard for shard in (self.apart, self.rows, *self.parts.values()) if shard is not None), None)

    @property
    def is_there(self) -> bool:
        return bool(self.whole) or self.divided is not None

    def has(self, wanted: Sharding) -> bool:
        """Whether a tensor is where it is wanted."""
        if isinstance(wanted, Whole):
            return self.whole.keys() >= {ROOT, *wanted.chips}
        return wanted.group in self.parts if isinstance(wanted, Parts) else self.division == wanted


class Shards:
    """Builds the chips' graphs.

    Attributes:
        nodes: of every chip, in order.
        inputs: of every chip.
        gathered: nodes that add partial sums up and would end earlier if their inputs were put together.
    """

    def __init__(self, graph: Graph, cuts: Cuts, topology: Topology, costs: Costs) -> None:
        self.graph = graph
        self.cuts = cuts
        self.links = Links(topology, cuts.chips, costs.message)
        self.effort = costs.effort
        self.nodes: list[list[Node]] = [[] for _ in range(cuts.chips)]
        self.inputs: list[list[Tensor]] = [[] for _ in range(cuts.chips)]
        self.states = defaultdict[Tensor, ShardState](ShardState)
        self.shards: list[Shard] = []
        self.collectives: list[Collective] = []
        self.gathered: set[Node] = set()
        self._constants: dict[tuple[Tensor, int, int | None, Box | None, bool], Tensor] = {}
        self._tags = defaultdict[tuple[int, int], int](int)
        self.sent = 0  # bytes, since a collective was noted last

    # ---- what is known of the graph

    @cached_property
    def free(self) -> set[Tensor]:
        """Inputs that nodes that are cut are the only ones to read, or views of them, as far as that can be said beforehand."""
        return {tensor for tensor in self.graph.inputs if self._is_free(tensor)}

    def _is_free(self, tensor: Tensor) -> bool:
        readers, loops = self.graph.readers.get(tensor, ()), self.cuts.dependence.loops
        return bool(readers) and all(
            all(map(self._is_free, reader.outputs))
            if reader.op in VIEWS
            else any(loop.group in self.cuts.groups for loop in loops.get(reader, ()))
            for reader in readers
        )

    @cached_property
    def sliding(self) -> set[Tensor]:
        """Tensors that follow from constants alone, one of which is read further on with every row that exists."""
        windows: set[Tensor] = set()
        for node in self.graph.nodes:
            if windows.issuperset(node.variables) and (node.variables or node.op == SLIDE):
                windows.update(node.outputs)
        return windows

    def mapped(self, node: Node) -> frozenset[int]:
        """Positions of the inputs that are no tables."""
        return self.cuts.dependence.mapped.get(node, frozenset(range(len(node.operands))))

    def is_sent(self, node: Node, position: int) -> bool:
        """Whether a constant that several chips read whole lies on the first one: nests map it, and it is no single value."""
        return position in self.mapped(node) and node.operands[position].elements > 1

    # ---- nodes

    def add(self, chip: int, result: Tensor, name: str, title: str | None = None) -> Tensor:
        """A new result on a chip, under a name; what has a name is there already. ``title``: of its node, where that has another name."""
        if result.name:
            return result
        result = name_result(result, name, title)
        assert result.maker is not None
        self.nodes[chip].append(result.maker)
        return result

    def put(self, chip: int, node: Node, inputs: Iterable[Tensor], outputs: Iterable[Tensor], attrs: Attributes) -> tuple[Tensor, ...]:
        """Compute a node of the model on a chip, from and to what the chip has; returns its results."""
        self.nodes[chip].append(node.another(inputs=tuple(inputs), outputs=tuple(outputs), attrs=dict(attrs)))
        return self.nodes[chip][-1].outputs

    def give(self, tensor: Tensor, chip: int) -> None:
        """Give a chip an input of the model."""
        self.states[tensor].whole[chip] = make_like(tensor)
        self.inputs[chip].append(self.states[tensor].whole[chip])

    def constant(
        self, tensor: Tensor, chip: int, group: int | None = None, is_mapped: bool = True, box: Box | None = None, is_copy: bool = False
    ) -> Tensor:
        """A constant, or a chip's part of it, or a box of that; what loop nests map is noted, so that it can be proved to exist once, or on
        all chips that compute rows (``is_copy``)."""
        axis = self.cuts.dependence.axis(tensor, group) if group is not None and is_mapped else None
        place = tensor, chip, None if axis is None else group, box, is_copy
        if place not in self._constants:
            values = tensor.data
            assert values is not None
            indices = {} if axis is None else {axis: self.cuts.indices_of(tensor, axis)[chip]}
            indices |= {} if box is None else {box[0]: np.arange(*box[1:])}
            for along, own in indices.items():
                values = np.ascontiguousarray(np.take(values, own, along))
            name = tensor.name if box is None else f"{tensor.name} (from {box[1]} to {box[2]})"
            self._constants[place] = replace(tensor, name=name, shape=values.shape, data=values)
            if is_mapped and tensor.elements > 1:
                self.shards.append(Shard(tensor, chip, indices, values, is_copy))
        return self._constants[place]

    def operand(
        self, node: Node, position: int, chip: int, wanted: Sharding, axis: int | None, box: Box | None = None, is_copy: bool = False
    ) -> Tensor:
        """An input of a node as a chip has it, or a box of that."""
        tensor, group = node.operands[position], wanted.group if isinstance(wanted, Parts) and axis is not None else None
        state = self.states[tensor]
        if tensor.data is not None and (axis is not None or is_copy or not self.is_sent(node, position) or chip not in state.whole):
            return self.constant(tensor, chip, group, position in self.mapped(node), box, is_copy)
        if isinstance(wanted, Division):
            assert state.rows is not None
            return state.rows.tensors[chip]
        own = state.whole[chip] if group is None else state.parts[group].tensors[chip]
        return own if box is None else self.add(chip, cut_out(own, *box), f"{own.name} (from {box[1]} to {box[2]})")

    # ---- messages

    def message(self, source: int, target: int, tensor: Tensor, name: str) -> Tensor:
        """Send a tensor; returns it as the receiver has it."""
        return self._receive(source, target, tensor, self._send(source, target, tensor), name)

    def _send(self, source: int, target: int, tensor: Tensor) -> int:
        """Send a tensor; returns the message's tag."""
        tag = self._tags[source, target]
        self._tags[source, target] += 1
        self.sent += bytes_of(tensor)
        self.nodes[source].append(link.send(tensor, target, tag))
        return tag

    def _receive(self, source: int, target: int, tensor: Tensor, tag: int, name: str) -> Tensor:
        self.nodes[target].append(link.receive(tensor, source, tag, name))
        return self.nodes[target][-1].outputs[0]

    def carry_out(self, events: Iterable[Event], mover: Mover) -> None:
        """Adds the nodes of a collective's events to the chips' graphs; ``mover`` says what a piece is."""
        sent: dict[Send, tuple[Tensor, int]] = {}
        for event in events:
            if isinstance(event, Send):
                own = mover.take(event.chip, event.target, event.piece)
                sent[event] = own, self._send(event.chip, event.target, own)
            elif isinstance(event, Receive):
                chip, target, piece = event.sent.chip, event.sent.target, event.sent.piece
                mover.put(target, piece, self._receive(chip, target, *sent[event.sent], mover.name(chip, piece)))
            elif isinstance(event, ComputePiece):
                mover.compute(event.chip, event.piece)
            else:
                mover.add(event.chip, event.piece)

    def note(self, kind: str, tensor: Tensor, algorithm: str, chips: Iterable[int], group: int | None = None) -> None:
        """Note a collective with all bytes that were sent since the last one."""
        self.collectives.append(Collective(kind, tensor.name, algorithm, tuple(sorted(chips)), self.sent, group))
        self.sent = 0

    @by_arguments
    def effort_of(self, node: Node) -> Effort:
        """What one chip takes for a node; nothing for a view."""
        return Effort() if node.op in VIEWS else self.effort(graph_of(node))


class Mover:
    """What events mean for a tensor: pieces of it, by chip."""

    def take(self, chip: int, target: int, piece: Piece) -> Tensor:
        """What a chip sends of a piece to another one."""
        raise NotImplementedError  # this and the next two: every subclass defines them

    def put(self, chip: int, piece: Piece, tensor: Tensor) -> None:
        """Takes over the piece of a tensor that has arrived on a chip."""
        raise NotImplementedError

    def name(self, source: int, piece: Piece) -> str:
        """What a piece from a chip is called where it arrives."""
        raise NotImplementedError

    def compute(self, chip: int, piece: Piece) -> None:
        """Compute what a chip has of a piece."""

    def add(self, chip: int, piece: Piece) -> None:
        """Add what a chip has of a piece to what has arrived."""


def in_rows(division: Division, tensors: Mapping[int, Tensor]) -> Divided:
    """Rows of a tensor on the chips that have some."""
    return Divided(division.axis, division.indices, tensors, division=division)


def name_result(result: Tensor, name: str, title: str | None = None) -> Tensor:
    """The result of a new node of the integer form under a name, which is the node's as well where that has no ``title``."""
    assert result.maker is not None
    return result.maker.another(name=title or name, domain=INTEGER_FORM, outputs=(replace(result, name=name),)).outputs[0]


def graph_of(node: Node) -> Graph:
    """A node as a graph of its own."""
    return Graph("", tuple(node.variables), node.outputs, order=(node,))


def make_like(tensor: Tensor, axis: int | None = None, extent: int = 0, suffix: str = "", dtype: DType | None = None) -> Tensor:
    """A variable of a tensor's shape, but for the extent of one axis."""
    return Tensor(f"{tensor.name}{suffix}", with_extent(tensor.shape, axis, extent), dtype or tensor.dtype)


def with_extent(shape: Sequence[int], axis: int | None, extent: int) -> tuple[int, ...]:
    """A shape with another extent of one axis."""
    return tuple(extent if i == axis else n for i, n in enumerate(shape))


def cut_out(tensor: Tensor, axis: int, begin: int, end: int) -> Tensor:
    """A box of a tensor: indices ``begin`` to ``end`` along an axis, as a view; itself where that is all."""
    if not tensor.shape or (begin, end) == (0, tensor.shape[axis]):
        return tensor
    starts, ends = with_extent((0,) * tensor.rank, axis, begin), with_extent(tensor.shape, axis, end)
    return compute(SLICE, tensor, starts=starts, ends=ends, steps=(1,) * tensor.rank)


def join_pieces(pieces: Sequence[Tensor], axis: int) -> Tensor:
    """Pieces side by side along an axis; the only one as it is."""
    if len(pieces) == 1:
        return pieces[0]
    shape = with_extent(pieces[0].shape, axis, sum(piece.shape[axis] for piece in pieces))
    return compute(CONCAT, *pieces, shape=shape, axis=axis)


def chunked_axis(tensor: Tensor) -> tuple[int, int]:
    """The outermost axis with more than one index, along which chunks are contiguous, and its extent."""
    axis = next((i for i, n in enumerate(tensor.shape) if n > 1), 0)
    return axis, tensor.shape[axis] if tensor.shape else 1


def bytes_of(tensor: Tensor) -> int:
    """Bytes that the elements of a tensor take."""
    return tensor.elements * tensor.dtype.numpy.itemsize


def index_runs(indices: np.ndarray) -> list[tuple[int, int]]:
    """Ascending indices as runs [begin, end)."""
    breaks = np.flatnonzero(np.diff(indices) != 1)
    begins, ends = [0, *(breaks + 1)], [*(breaks + 1), len(indices)]
    return [(int(indices[a]), int(indices[b - 1]) + 1) for a, b in zip(begins, ends, strict=True)]
