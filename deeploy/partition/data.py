"""Data parallelism: every chip computes its samples of a batch, with all weights.

The first axis of the inputs is divided evenly. What is computed sample by sample stays divided, whatever axis the samples are on. A sum
over samples, as the gradient of a weight is, is added up on the first chip and copied to all (an all-reduce). What needs all samples in
another way reads them put together. All else that states depend on is computed by every chip: each has all states, equal bit for bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.errors import UsageError, shorten
from deeploy.ir.nodes import Attributes, Node, Tensor
from deeploy.ir.topology import Topology
from deeploy.ir.values import Graph, sort_nodes
from deeploy.operators.table import shared
from deeploy.operators.views import KEEP, POSITION, RESHAPE
from deeploy.partition import collectives
from deeploy.partition.collectives import Costs
from deeploy.partition.cuts import Cuts
from deeploy.partition.dependence import Declare, read_dependence, summed_axes
from deeploy.partition.rows import Division, Rows
from deeploy.partition.sharding import bring_tensor, whole_tensor
from deeploy.partition.shards import ROOT, Shards, Whole, bytes_of, in_rows, make_like
from deeploy.partition.sums import CutProduct, RunningSum, sum_of
from deeploy.partition.system import System, names_of
from deeploy.partition.tensor import Partition

Axes = tuple[int | None, ...]  # per operand the axis of its samples, None where all chips read all of it


def partition_by_samples(graph: Graph, chips: int, topology: Topology, declare: Declare, costs: Costs | None = None) -> Partition:
    """Divide the samples of a lowered graph evenly among chips; arguments are those of ``partition_by_tensor``.

    Raises:
        UsageError: its inputs have no samples that can be divided so.
    """
    dependence = read_dependence(graph, declare)
    uncut = Cuts(dependence, chips, np.full(len(dependence.index_class), -1, np.int64), {}, ())
    return _SamplePartitioner(graph, Shards(graph, uncut, topology, costs or Costs()), declare).run()


@dataclass(frozen=True, eq=False)
class _SampleSum(CutProduct):
    """A node that sums over samples, of which every chip computes the sum over its own."""

    def _computed(self, chip: int, part: tuple[int, int] | None) -> Tensor:
        inputs = [_read_operand(self.shards, self.node, position, chip, axis) for position, axis in enumerate(self.axes)]
        result = make_like(self.result, suffix=" (partial)")
        return self.shards.put(chip, self.node, inputs, [result], self.attrs[chip])[0]


class _SamplePartitioner:
    """Walks the graph in order and computes every node on the chips that have its samples, or need all of it."""

    def __init__(self, graph: Graph, shards: Shards, declare: Declare) -> None:
        self.graph = graph
        self.shards = shards
        self.declare = declare
        self.rows = Rows(graph, declare)
        self.chips = tuple(range(shards.cuts.chips))
        self.replicated = set(sort_nodes(graph.next_states))
        self.cut: dict[str, tuple[int, ...]] = {}

    def run(self) -> Partition:
        shards, graph = self.shards, self.graph
        self._give_inputs()
        for node in graph.nodes:
            if not self._compute_samples(node):
                self._compute_whole(node)
        outputs = tuple(whole_tensor(shards, tensor) for tensor in graph.outputs)
        following = [tuple(shards.states[tensor].whole[chip] for tensor in graph.next_states) for chip in self.chips]
        systems = tuple(
            Graph(
                f"{graph.name} on chip {chip}",
                tuple(shards.inputs[chip]),
                () if chip else outputs,
                graph.opset,
                graph.domains,
                tuple(shards.nodes[chip]),
                following[chip],
            )
            for chip in self.chips
        )
        system = System(systems, names_of(graph.inputs), tuple(t.name for t in graph.outputs), self._notes())
        return Partition(system, tuple(shards.shards), tuple(shards.collectives), self.cut)

    def _notes(self) -> tuple[str, ...]:
        kinds = Counter((c.kind, c.algorithm) for c in self.shards.collectives)
        listed = ", ".join(f"{count} {kind} ({algorithm})" for (kind, algorithm), count in kinds.items())
        share = f"{len(self.cut)} of {len(self.graph.nodes)} nodes"
        return (f"samples are divided over {len(self.chips)} chips in {share}; between chips: {listed or 'nothing'}",)

    def _give_inputs(self) -> None:
        """Samples go to the first chip, which passes them on, other inputs to all; states are on all chips."""
        given = [tensor for tensor in self.graph.inputs if tensor.name != POSITION]
        first = next((tensor for tensor in given if tensor.rank), None)
        batch = first.shape[0] if first is not None else 1
        if first is None or batch % len(self.chips):
            name = "the model" if first is None else f"input {shorten(first.name)}"
            raise UsageError(
                f"--chips {len(self.chips)}: the {batch} samples of {name} cannot be divided evenly",
                "Give the model a batch that is a multiple of the number of chips (train-graph --batch), or use fewer chips.",
            )
        for tensor in self.graph.inputs:
            is_divided = tensor in given and tensor.rank > 0 and tensor.shape[0] == batch
            for chip in self.chips[:1] if is_divided else self.chips:
                self.shards.give(tensor, chip)
            if is_divided:
                bring_tensor(self.shards, tensor, self._division(tensor, 0))
        for node in self.graph.nodes:
            if node.op == KEEP:
                state = node.operands[1]
                self.shards.states[state].whole = {chip: make_like(state) for chip in self.chips}

    def _division(self, tensor: Tensor, axis: int) -> Division:
        return Division(axis, tensor.shape[axis], len(self.chips), ((1, len(self.chips)),))

    # ---- nodes

    def _compute_samples(self, node: Node) -> bool:
        """Compute a node on the samples that each chip has; False where it is not computed so."""
        for tensor in node.variables:
            division = self.shards.states[tensor].division
            if division is None or len(node.outputs) != 1:
                continue
            if (axes := self._sample_axes(node, tensor, division.axis)) is not None and (attrs := self._shared(node, axes)) is not None:
                self._bring(node, axes)
                self._put_samples(node, axes, attrs)
                return True
            axes = summed_axes(node, self.declare, tensor, division.axis)
            if axes is not None and (attrs := self._shared(node, (*axes, None))) is not None:
                self._bring(node, axes)
                self._add_up(node, axes, attrs)
                return True
        return False

    def _sample_axes(self, node: Node, tensor: Tensor, axis: int) -> Axes | None:
        """Per operand, inputs first, the axis of samples, if every sample of the output depends on the same sample of ``tensor`` alone."""
        result = node.outputs[0]
        if node.op == RESHAPE:
            before = math.prod(tensor.shape[:axis])
            fits = (i for i, n in enumerate(result.shape) if math.prod(result.shape[:i]) == before and n % len(self.chips) == 0)
            dim = next(fits, None)
            return None if dim is None else (axis, dim)
        axes = self.rows.matching(node, tensor, axis, (*node.operands, *node.outputs))
        return axes if axes is not None and axes[-1] is not None else None

    def _shared(self, node: Node, axes: Axes) -> dict[int, Attributes] | None:
        """By chip the attributes of a node on its samples; None where no attributes express that."""
        attributes_of_chips: dict[int, Attributes] = {}
        tensors = (*node.operands, *node.outputs)
        for chip in self.chips:
            own = [None if axis is None else self._division(tensor, axis).indices[chip] for tensor, axis in zip(tensors, axes, strict=True)]
            attrs = shared(node, axes, own)
            if attrs is None:
                return None
            attributes_of_chips[chip] = attrs
        return attributes_of_chips

    def _bring(self, node: Node, axes: Sequence[int | None]) -> None:
        """Bring the variables that a node reads to where it reads them."""
        for tensor, axis in zip(node.operands, axes, strict=False):
            if tensor.data is None:
                bring_tensor(self.shards, tensor, Whole(self.chips) if axis is None else self._division(tensor, axis))

    def _put_samples(self, node: Node, axes: Axes, attrs: dict[int, Attributes]) -> None:
        result, axis = node.outputs[0], axes[-1]
        assert axis is not None
        division, parts = self._division(result, axis), dict[int, Tensor]()
        for chip in self.chips:
            inputs = [_read_operand(self.shards, node, position, chip, place) for position, place in enumerate(axes[:-1])]
            begin, end = division.owned[chip]
            part = make_like(result, axis, end - begin, f" (samples of {chip})")
            (parts[chip],) = self.shards.put(chip, node, inputs, [part], attrs[chip])
        self.shards.states[result].rows = in_rows(division, parts)
        self.cut[node.name] = self.chips

    def _add_up(self, node: Node, axes: Axes, attrs: dict[int, Attributes]) -> None:
        """The sum over all samples; on all chips, where states depend on it."""
        shards, result = self.shards, node.outputs[0]
        product = _SampleSum(shards, node, -1, attrs, axes, None)
        topology, count = shards.links.topology, bytes_of(result)
        total = shards.effort(sum_of(result.shape, min(len(self.chips), topology.group or len(self.chips)), result.dtype))
        chunks = collectives.chunks_of(product.extent, count)
        algorithms = collectives.list_reductions(self.chips, topology.group, chunks, topology.collective)
        algorithm, _ = collectives.fastest_algorithm(algorithms, count, shards.links, total=total)
        RunningSum(product, algorithm).run()
        if node in self.replicated:
            bring_tensor(shards, result, Whole(self.chips))
        self.cut[node.name] = self.chips

    def _compute_whole(self, node: Node) -> None:
        """All of a node, on every chip where states depend on it, else on the first one."""
        chips = self.chips if node in self.replicated else (ROOT,)
        for tensor in node.variables:
            bring_tensor(self.shards, tensor, Whole(chips))
        for chip in chips:
            inputs = [_read_operand(self.shards, node, position, chip, None) for position in range(len(node.operands))]
            results = self.shards.put(chip, node, inputs, [replace(tensor, maker=None) for tensor in node.outputs], node.attrs)
            for tensor, own in zip(node.outputs, results, strict=True):
                self.shards.states[tensor].whole[chip] = own


def _read_operand(shards: Shards, node: Node, position: int, chip: int, axis: int | None) -> Tensor:
    """An input of a node as a chip reads it: all of it, or its samples along an axis."""
    tensor, chips = node.operands[position], shards.cuts.chips
    if axis is None:
        return shards.operand(node, position, chip, Whole(tuple(range(chips))), None, is_copy=True)
    division = Division(axis, tensor.shape[axis], chips, ((1, chips),))
    return shards.operand(node, position, chip, division, axis, (axis, *division.owned[chip]), is_copy=True)
