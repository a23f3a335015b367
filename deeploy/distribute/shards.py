"""The graphs of the chips as they grow, node by node, and the collectives that move tensors between them.

A tensor of the model is *whole* on some chips, *in parts* along a class that is cut, or both. What is whole is whole on the first
chip at least: it computes everything that is not cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.distribute import collectives
from deeploy.distribute.collectives import Algorithm, Costs, Effort, Work
from deeploy.distribute.cuts import Cuts
from deeploy.distribute.dependence import key, shape_of
from deeploy.distribute.rows import Division, single
from deeploy.graph import surgeon
from deeploy.graph.nodes import INTEGER_FORM
from deeploy.graph.topology import Topology
from deeploy.operators import link
from deeploy.operators.views import CONCAT, SLICE

ROOT = 0
Box = tuple[int, int, int]  # indices [begin, end) along an axis: axis, begin, end


@dataclass(frozen=True)
class Shard:
    """A constant's part on a chip: all of it, or some indices along some of its axes.

    A *copy* is of what every chip needs that computes rows: the weights of norms, requantisations. Other chips may have it too.
    """

    constant: gs.Constant
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
class Apart:
    """Parts of a tensor by chip, and the indices ``kept`` of every chip along an axis; ``group``: the class, if there is one."""

    group: int | None
    axis: int
    kept: Sequence[np.ndarray]
    parts: Mapping[int, gs.Tensor]


@dataclass
class _State:
    """Where a tensor is: whole, by chip; in parts along a class, by class and chip; rows of it, by chip, and how they are divided.

    What is ``apart`` is made whole when it is read. What is read by rows, though it is whole, ``is_divided``.
    """

    whole: dict[int, gs.Tensor] = field(default_factory=dict)
    apart: Apart | None = None
    parts: dict[int, dict[int, gs.Tensor]] = field(default_factory=dict)
    rows: dict[int, gs.Tensor] = field(default_factory=dict)
    division: Division | None = None
    is_divided: bool = False

    @property
    def is_there(self) -> bool:
        return bool(self.whole or self.parts or self.rows or self.apart)


class Shards:
    """Builds the chips' graphs."""

    def __init__(self, cuts: Cuts, topology: Topology, costs: Costs) -> None:
        self.cuts = cuts
        self.topology = topology
        self.costs = costs
        self.graphs = [gs.Graph() for _ in range(cuts.chips)]
        self.states: dict[object, _State] = {}
        self.shards: list[Shard] = []
        self.collectives: list[Collective] = []
        self.gathered: set[int] = set()  # nodes that add partial sums up and would end earlier if their inputs were put together
        self._constants: dict[tuple[object, int, int | None, Box | None, bool], gs.Constant] = {}
        self._tags: dict[tuple[int, int], int] = {}
        self._sent = 0
        self._efforts: dict[int, Effort] = {}

    # ---- tensors

    def state(self, tensor: gs.Tensor) -> _State:
        return self.states.setdefault(key(tensor), _State())

    def add(self, chip: int, op: str, inputs: Sequence[gs.Tensor], output: gs.Tensor, name: str, **attrs: object) -> gs.Tensor:
        """Append a node to a chip's graph and return its result."""
        self.graphs[chip].nodes.append(gs.Node(op, name, attrs, list(inputs), [output], domain=INTEGER_FORM))
        return output

    def constant(
        self, tensor: gs.Constant, chip: int, group: int | None, is_mapped: bool, box: Box | None = None, is_copy: bool = False
    ) -> gs.Constant:
        """A constant, or a chip's part of it, or a box of that; what loop nests map is noted, so that it can be proved to exist once, or on
        all chips that compute rows (``is_copy``)."""
        axis = self.cuts.dependence.axis(tensor, group) if group is not None and is_mapped else None
        place = (key(tensor), chip, None if axis is None else group, box, is_copy)
        if place not in self._constants:
            values = np.asarray(tensor.values)
            indices = {} if axis is None else {axis: self.cuts.kept(tensor, axis)[chip]}
            indices |= {} if box is None else {box[0]: np.arange(box[1], box[2])}
            for along, own in indices.items():
                values = np.ascontiguousarray(np.take(values, own, along))
            name = tensor.name if box is None else f"{tensor.name} (from {box[1]} to {box[2]})"
            self._constants[place] = gs.Constant(name, values)
            if is_mapped and np.asarray(tensor.values).size > 1:
                self.shards.append(Shard(tensor, chip, indices, values, is_copy))
        return self._constants[place]

    def like(self, tensor: gs.Tensor, axis: int | None, extent: int, suffix: str, dtype: np.typing.DTypeLike | None = None) -> gs.Variable:
        """A variable of a tensor's shape, but for the extent of one axis."""
        shape = [extent if i == axis else n for i, n in enumerate(shape_of(tensor))]
        return surgeon.variable(f"{tensor.name}{suffix}", dtype or tensor.dtype, shape)

    def part(self, tensor: gs.Tensor, chip: int, axis: int, indices: np.ndarray) -> gs.Variable:
        return self.like(tensor, axis, len(indices), " (part)")

    # ---- messages

    def message(self, source: int, target: int, tensor: gs.Tensor, name: str) -> gs.Tensor:
        """Send a tensor; returns it as the receiver has it."""
        return self.receive(source, target, tensor, self.send(source, target, tensor), name)

    def send(self, source: int, target: int, tensor: gs.Tensor) -> int:
        """Send a tensor; returns the message's tag."""
        tag = self._tags.get((source, target), 0)
        self._tags[source, target] = tag + 1
        self._sent += size_of(tensor)
        link.send(self.graphs[source], tensor, target, tag)
        return tag

    def receive(self, source: int, target: int, tensor: gs.Tensor, tag: int, name: str) -> gs.Tensor:
        """Receive what was sent; returns it as the receiver has it."""
        return link.receive(self.graphs[target], tensor, source, tag, name)

    def cut_out(self, chip: int, tensor: gs.Tensor, axis: int, begin: int, end: int, name: str) -> gs.Tensor:
        """A box of a tensor on a chip: indices ``begin`` to ``end`` along an axis, as a view."""
        shape = shape_of(tensor)
        if not shape or (begin, end) == (0, shape[axis]):
            return tensor
        starts = tuple(begin if i == axis else 0 for i in range(len(shape)))
        ends = tuple(end if i == axis else n for i, n in enumerate(shape))
        dtype = tensor.values.dtype if isinstance(tensor, gs.Constant) else tensor.dtype
        out = surgeon.variable(name, dtype, [b - a for a, b in zip(starts, ends, strict=True)])
        return self.add(chip, SLICE, [tensor], out, name, starts=starts, ends=ends, steps=(1,) * len(shape))

    def joined(self, chip: int, pieces: Sequence[gs.Tensor], axis: int, output: gs.Tensor) -> gs.Tensor:
        return self.add(chip, CONCAT, pieces, output, output.name, axis=axis)

    def select(self, chip: int, tensor: gs.Tensor, axis: int, indices: np.ndarray, name: str) -> gs.Tensor:
        """The elements of a tensor on a chip at ``indices`` along an axis: a box, or several side by side."""
        pieces = [self.cut_out(chip, tensor, axis, a, b, f"{name} (from {a} to {b})") for a, b in runs(indices)]
        if len(pieces) == 1:
            return pieces[0]
        output = surgeon.variable(name, pieces[0].dtype, [len(indices) if i == axis else n for i, n in enumerate(shape_of(tensor))])
        return self.joined(chip, pieces, axis, output)

    def note(self, kind: str, tensor: gs.Tensor, algorithm: str, chips: Sequence[int], group: int | None = None) -> None:
        """Note a collective with all bytes that were sent since the last one."""
        self.collectives.append(Collective(kind, tensor.name, algorithm, tuple(chips), self._sent, group))
        self._sent = 0

    def choose(self, algorithms: Iterator[Algorithm], count: int, work: Work | None = None) -> tuple[Algorithm, float]:
        """The fastest algorithm for so many bytes, and its seconds; ``work`` is what chips do for a sum, None where nothing is added."""
        every = replace(work or Work(), message=self.costs.message)
        return collectives.fastest(algorithms, count, self.topology, self.cuts.chips, every, work is not None)

    def effort(self, node: gs.Node) -> Effort:
        """What one chip takes for a node; nothing for a view."""
        if id(node) not in self._efforts:
            graph = single(node)
            self._efforts[id(node)] = Effort() if graph is None else self.costs.effort(graph)
        return self._efforts[id(node)]

    # ---- collectives

    def broadcast(self, tensor: gs.Tensor, chips: Sequence[int]) -> None:
        """Make a tensor that is whole on the first chip whole on others."""
        state = self.state(tensor)
        missing = [chip for chip in chips if chip not in state.whole]
        if not missing:
            return
        axis, extent = chunked_axis(tensor)
        count = size_of(tensor)
        algorithms = collectives.spreads([ROOT, *missing], self.topology.group, collectives.chunks_of(extent, count))
        algorithm, _ = self.choose(algorithms, count)
        pieces: dict[tuple[int, int], gs.Tensor] = {}
        for step in algorithm.steps:
            if (step.source, step.chunk) not in pieces:
                name = f"{tensor.name} (chunk {step.chunk})"
                box = algorithm.box(step.chunk, extent)
                pieces[step.source, step.chunk] = self.cut_out(step.source, state.whole[step.source], axis, *box, name)
            name = tensor.name if algorithm.chunks == 1 else f"{tensor.name} (chunk {step.chunk})"
            pieces[step.target, step.chunk] = self.message(step.source, step.target, pieces[step.source, step.chunk], name)
        for chip in missing:
            own = [pieces[chip, chunk] for chunk in range(algorithm.chunks)]
            state.whole[chip] = own[0] if len(own) == 1 else self.joined(chip, own, axis, self.like(tensor, None, 0, ""))
        self.note("broadcast", tensor, algorithm.name, [ROOT, *missing])

    def scatter(self, tensor: gs.Tensor, group: int) -> None:
        """Give every chip its part of a tensor that is whole on the first one."""
        axis = self.cuts.dependence.axis(tensor, group)
        assert axis is not None
        state = self.state(tensor)
        parts: dict[int, gs.Tensor] = {}
        for chip, indices in enumerate(self.cuts.kept(tensor, axis)):
            name = f"{tensor.name} (part)"
            if not len(indices):
                continue
            if chip in state.whole:
                parts[chip] = self.select(chip, state.whole[chip], axis, indices, name)
            else:
                own = self.select(ROOT, state.whole[ROOT], axis, indices, f"{name} of {chip}")
                parts[chip] = self.message(ROOT, chip, own, name)
        state.parts[group] = parts
        if self._sent:
            self.note("scatter", tensor, "flat", sorted(parts), group)


def chunked_axis(tensor: gs.Tensor) -> tuple[int, int]:
    """The outermost axis with more than one index, along which chunks are contiguous, and its extent."""
    shape = shape_of(tensor)
    axis = next((i for i, n in enumerate(shape) if n > 1), 0)
    return axis, shape[axis] if shape else 1


def size_of(tensor: gs.Tensor) -> int:
    """Bytes of a tensor."""
    dtype = tensor.values.dtype if isinstance(tensor, gs.Constant) else tensor.dtype
    return math.prod(shape_of(tensor)) * int(np.dtype(dtype).itemsize)


def runs(indices: np.ndarray) -> list[tuple[int, int]]:
    """Ascending indices as runs [begin, end)."""
    breaks = np.flatnonzero(np.diff(indices) != 1)
    begins, ends = [0, *(breaks + 1)], [*(breaks + 1), len(indices)]
    return [(int(indices[a]), int(indices[b - 1]) + 1) for a, b in zip(begins, ends, strict=True)]
