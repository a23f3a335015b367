"""Tensor parallelism: every chip computes a share of every layer, with its share of the weights.

The first chip computes what is not cut: norms, residual connections, the ends. What is cut is computed by every chip on its part. Where a
cut dimension is an output's, the output is in parts, and what follows goes on with them as long as its loop nests allow; where it
is a sum's, partial sums are added up on the first chip, and requantised there, once. A tensor that cut nodes need whole is sent to them
by the first chip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.errors import shorten
from deeploy.ir import epilogue
from deeploy.ir.nodes import Attributes, Node, Tensor
from deeploy.ir.topology import Topology
from deeploy.ir.values import Graph
from deeploy.operators.table import shared
from deeploy.operators.views import KEEP, VIEWS, Access
from deeploy.partition.collectives import Costs
from deeploy.partition.cuts import Cuts, choose_cuts
from deeploy.partition.dependence import Declare, NestDimension
from deeploy.partition.rows import Division, RowRegion, Rows
from deeploy.partition.sharding import bring_tensor, whole_tensor
from deeploy.partition.shards import ROOT, Collective, Divided, Parts, Shard, Sharding, Shards, ShardState, Whole, in_rows, make_like
from deeploy.partition.sums import CutProduct, divide_tensor, pieces_of, plan_sum
from deeploy.partition.system import System, names_of, system_of_one

ChipIndices = Sequence[np.ndarray]  # per chip the indices that it has along an axis


@dataclass(frozen=True, eq=False)
class Partition:
    """A system, and what is proved of it (``deeploy.partition.proof``).

    Attributes:
        shards: where the constants are that loop nests map.
        collectives: the movements between chips, in order.
        cut: names of the nodes that several chips compute, with the chips.
        gathered: nodes that add partial sums up here, and end earlier by the estimate if their inputs are put together instead.
        has_rows: whether chips compute rows of something.
    """

    system: System
    shards: tuple[Shard, ...]
    collectives: tuple[Collective, ...]
    cut: Mapping[str, tuple[int, ...]]
    gathered: frozenset[Node] = frozenset()
    has_rows: bool = False


@dataclass(frozen=True, eq=False)
class _NodeShare:
    """How chips compute a node: per chip its attributes, and of every operand, inputs first, the axis along which it is divided, and what
    each chip has of it; None where it is whole. Operands are divided as ``sharding`` says.
    """

    sharding: Sharding
    attrs: Mapping[int, Attributes]
    axes: tuple[int | None, ...]
    indices: Sequence[ChipIndices | None]
    is_sum: bool = False

    def wanted(self, axis: int | None) -> Sharding:
        """Where an input is wanted that is divided along an axis, or whole."""
        if axis is None:
            return Whole(tuple(sorted(self.attrs)))
        return replace(self.sharding, axis=axis) if isinstance(self.sharding, Division) else self.sharding

    def result(self, tensor: Tensor, position: int, chip: int) -> Tensor:
        """A new result as a chip has it; ``position``: of the operand."""
        indices = self.indices[position]
        if indices is None:
            return make_like(tensor)
        own = indices[chip]
        suffix = f" (rows from {own[0]} to {own[-1] + 1})" if isinstance(self.sharding, Division) else " (part)"
        return make_like(tensor, self.axes[position], len(own), suffix)


def partition_by_tensor(
    graph: Graph,
    chips: int,
    topology: Topology,
    declare: Declare,
    costs: Costs | None = None,
    by_rows: bool = False,
    gathered: frozenset[Node] = frozenset(),
) -> Partition:
    """Cut a lowered graph across chips.

    Args:
        declare: what the target's kernels declare of a node, in order of preference.
        costs: seconds that chips spend besides the links; none, where it is not known.
        by_rows: whether all chips may add up rows of sums, and compute what follows from them (``deeploy.partition.rows``).
        gathered: nodes that are cut along their outputs, though their inputs are in parts along a reduction.

    Raises:
        UsageError: nothing can be cut, or not for so many chips.
    """
    if chips == 1:
        return Partition(system_of_one(graph), (), (), {})
    return _Partitioner(graph, choose_cuts(graph, declare, chips, gathered), topology, declare, costs or Costs(), by_rows).run()


class _Partitioner:
    """Walks the graph in order and computes every node on one chip or on several."""

    def __init__(self, graph: Graph, cuts: Cuts, topology: Topology, declare: Declare, costs: Costs, by_rows: bool) -> None:
        self.graph = graph
        self.by_rows = by_rows
        self.rows = Rows(graph, declare)
        self.cuts = cuts
        self.dependence = cuts.dependence
        self.shards = Shards(graph, cuts, topology, costs)
        self.cut: dict[str, tuple[int, ...]] = {}

    def run(self) -> Partition:
        shards, graph = self.shards, self.graph
        for tensor in graph.inputs:
            shards.give(tensor, ROOT)
        for node in (node for node in graph.nodes if node.op == KEEP):
            state = node.operands[1]
            shards.states[state].whole[ROOT] = make_like(state)
        for node in graph.nodes:
            alone = self._alone(node)
            self._compute(node, alone if node.op == KEEP else self._share(node) or self._rows_share(node) or alone)
            for tensor in node.outputs:
                if tensor in graph.outputs:
                    whole_tensor(shards, tensor)
        outputs, states = (tuple(whole_tensor(shards, tensor) for tensor in ends) for ends in (graph.outputs, graph.next_states))
        first = Graph(
            f"{graph.name} on chip 0", tuple(shards.inputs[0]), outputs, graph.opset, graph.domains, tuple(shards.nodes[0]), states
        )
        others = (
            Graph(f"{graph.name} on chip {chip}", tuple(inputs), (), graph.opset, graph.domains, tuple(nodes))
            for chip, (inputs, nodes) in enumerate(zip(shards.inputs, shards.nodes, strict=True))
            if chip
        )
        chips = first, *others
        system = System(chips, names_of(graph.inputs), tuple(t.name for t in graph.outputs), self._notes())
        has_rows = any(state.rows is not None for state in shards.states.values())
        return Partition(system, tuple(shards.shards), tuple(shards.collectives), self.cut, frozenset(shards.gathered), has_rows)

    def _notes(self) -> tuple[str, ...]:
        listed = []
        for kind in ("reduce", "reduce-scatter", "gather", "all-gather", "broadcast", "scatter"):
            algorithms = Counter(c.algorithm for c in self.shards.collectives if c.kind == kind)
            listed += [f"{algorithms.total()} {kind} ({', '.join(algorithms)})"] if algorithms else []
        notes = [f"cut over {self.cuts.chips} chips: {len(self.cut)} of {len(self.graph.nodes)} nodes; between chips: {', '.join(listed)}"]
        few = {len(self.cuts.members(group)) for group in self.cuts.groups} - {self.cuts.chips}
        if few:
            notes.append(f"some dimensions have fewer parts than there are chips: they are cut over {', '.join(map(str, sorted(few)))}")
        whole = [name for name in self.cuts.whole if name not in self.cut]
        if whole:
            notes.append(f"has nothing to cut and stays on chip 0: {', '.join(shorten(name) for name in whole)}")
        return tuple(notes)

    # ---- which chips compute a node

    def _alone(self, node: Node) -> _NodeShare:
        """All of it on the first chip."""
        count = len(node.operands) + len(node.outputs)
        return _NodeShare(Whole(), {ROOT: node.attrs}, (None,) * count, (None,) * count)

    def _share(self, node: Node) -> _NodeShare | None:
        """How a node is computed by several chips; None where the first one does, or all compute rows."""
        chosen = self.cuts.chosen.get(node)
        if chosen is not None:
            return self._kernel_share(node, chosen)
        sizes = Counter[int]()
        for tensor in node.variables:
            for group in self.shards.states[tensor].parts:
                sizes[group] += tensor.elements
        shares = (self._view_share(node, group) if node.op in VIEWS else self._any_share(node, group) for group, _ in sizes.most_common())
        return next((share for share in shares if share is not None), None)

    def _any_share(self, node: Node, group: int) -> _NodeShare | None:
        loops = [loop for loop in self.dependence.loops.get(node, ()) if loop.group == group]
        return self._kernel_share(node, loops[0]) if len(loops) == 1 else None

    def _kernel_share(self, node: Node, loop: NestDimension) -> _NodeShare | None:
        """A node cut along a dimension of its nest, where every chip has something of all operands that are in parts, or of none."""
        if (loop.output is None) != loop.is_sum or len(node.outputs) != 1:
            return None
        mapped, result, is_replicated = self.dependence.mapped[node], node.outputs[0], node in self.dependence.replicated
        if not is_replicated and not loop.is_sum and self.dependence.axis(result, loop.group) != loop.output:
            return None
        axes = [self.dependence.axis(tensor, loop.group) if position in mapped else None for position, tensor in enumerate(node.operands)]
        indices = self._chip_indices(node.operands, axes)
        inputs = [(len(np.concatenate(own)), own) for own in indices if own is not None]
        first = next((tensor.shape[axis] for tensor, axis in zip(node.operands, axes, strict=True) if axis is not None), None)
        if not inputs or inputs[0][0] != first:
            return None
        if is_replicated and loop.output is not None:  # what is made whole at once is divided as the constant is
            indices.append(next(own for count, own in inputs if count == result.shape[loop.output]))
        else:
            indices += self._chip_indices([result], [loop.output])
        share = self._shared(node, Parts(loop.group), (*axes, loop.output), indices, loop.is_sum)
        return share if share is not None and ROOT in share.attrs else None

    def _view_share(self, node: Node, group: int) -> _NodeShare | None:
        """A view, where the parts of its operands are views of each other on every chip."""
        tensors = (*node.operands, *node.outputs)
        axes = [axis for axis in (self.dependence.axis(tensor, group) for tensor in tensors) if axis is not None]
        if len(axes) < len(tensors) or not self._is_closed(node, axes):
            return None
        return self._shared(node, Parts(group), tuple(axes), self._chip_indices(tensors, axes))

    def _rows_share(self, node: Node) -> _NodeShare | None:
        """A node on all chips that have rows of what it reads, if it can be computed row by row."""
        if self.by_rows:
            for tensor in node.variables:
                divide_tensor(self.shards, tensor, self._regions(tensor))
        for tensor in node.variables:
            state = self.shards.states[tensor]
            if state.division is not None and (state.is_divided or ROOT not in state.whole):
                axes = self.rows.along(node, tensor, state.division.axis)
                rows = state.division.indices
                return self._shared(node, state.division, axes, [None if axis is None else rows for axis in axes]) if axes else None
        return None

    def _chip_indices(self, tensors: Sequence[Tensor], axes: Sequence[int | None]) -> list[ChipIndices | None]:
        return [None if axis is None else self.cuts.indices_of(tensor, axis) for tensor, axis in zip(tensors, axes, strict=True)]

    def _shared(
        self, node: Node, sharding: Sharding, axes: tuple[int | None, ...], indices: Sequence[ChipIndices | None], is_sum: bool = False
    ) -> _NodeShare | None:
        """The share of a node in which chips have so much of its operands; None where no attributes express that."""
        attrs: dict[int, Attributes] = {}
        for chip in range(self.cuts.chips):
            own = [None if of_chips is None else of_chips[chip] for of_chips in indices]
            has_some = {len(indices) > 0 for indices in own if indices is not None}
            if has_some != {False}:
                of_chip = shared(node, axes, own) if has_some == {True} else None
                if of_chip is None:
                    return None
                attrs[chip] = of_chip
        return _NodeShare(sharding, attrs, axes, indices, is_sum)

    def _is_closed(self, node: Node, axes: Sequence[int]) -> bool:
        """Whether every element of a part belongs to the chip that has it in the container."""
        view, count = VIEWS[node.op](node), len(node.operands)
        sides = {"in": list(zip(node.operands, axes, strict=False)), "out": list(zip(node.outputs, axes[count:], strict=True))}
        container, axis = sides[view.container[0]][view.container[1]]
        for (side, position), place in view.parts:
            part, along = sides[side][position]
            access = place(Access.dense(container.shape))
            if access is None:
                return False
            grid = np.ogrid[tuple(slice(size) for size in access.shape)]
            places = np.broadcast_to(access.offset + sum(i * stride for i, stride in zip(grid, access.strides, strict=True)), access.shape)
            inside = self.cuts.owner[self.dependence.index_classes(container, axis)[np.unravel_index(places, container.shape)[axis]]]
            if (np.moveaxis(inside, along, -1) != self.cuts.owner[self.dependence.index_classes(part, along)]).any():
                return False
        return True

    # ---- nodes

    def _compute(self, node: Node, share: _NodeShare) -> None:
        """Bring a node's inputs to where its share needs them, and compute it there."""
        shards, operands = self.shards, node.operands
        stages = epilogue.stage_operands(node.epilogue) if share.is_sum else ()  # which follow the sum
        count = len(operands) - len(stages)
        is_copied = isinstance(share.sharding, Division)
        for position, (tensor, axis) in enumerate(zip(operands[:count], share.axes, strict=False)):
            if tensor.data is None or (axis is None and shards.is_sent(node, position) and not is_copied):
                bring_tensor(shards, tensor, share.wanted(axis))
        if isinstance(share.sharding, Parts):
            self.cut[node.name] = tuple(share.attrs)
            if share.is_sum:
                product = CutProduct(shards, node, share.sharding.group, share.attrs, share.axes[:count], pieces_of(node, count, self.rows))
                rows = plan_sum(product, self._regions(node.outputs[0]))
                bring_tensor(shards, node.outputs[0], rows or Whole())
                return
        results: dict[int, tuple[Tensor, ...]] = {}
        for chip, attrs in share.attrs.items():
            inputs = []
            for position in range(len(operands)):
                axis, indices = share.axes[position], share.indices[position]
                box = (axis, int(indices[chip][0]), int(indices[chip][-1]) + 1) if is_copied and axis is not None and indices else None
                inputs.append(shards.operand(node, position, chip, share.sharding, axis, box, is_copied))
            outputs = [share.result(tensor, len(operands) + number, chip) for number, tensor in enumerate(node.outputs)]
            results[chip] = shards.put(chip, node, inputs, outputs, attrs)
        for number, tensor in enumerate(node.outputs):
            self._keep(node, share, len(operands) + number, shards.states[tensor], {chip: own[number] for chip, own in results.items()})

    def _keep(self, node: Node, share: _NodeShare, position: int, state: ShardState, tensors: Mapping[int, Tensor]) -> None:
        """Note where a result is; what is to be whole at once is put together when it is read."""
        axis, indices, sharding = share.axes[position], share.indices[position], share.sharding
        if axis is None or indices is None:
            state.whole |= tensors
        elif isinstance(sharding, Division):
            state.rows = in_rows(replace(sharding, axis=axis), tensors)
        elif isinstance(sharding, Parts):
            parts = Divided(axis, indices, tensors, sharding.group)
            if node in self.dependence.replicated:
                state.apart = parts
            else:
                state.parts[sharding.group] = parts

    def _regions(self, tensor: Tensor) -> dict[int, RowRegion]:
        """What follows from a tensor row by row, by the axis of its rows."""
        return self.rows.regions(tensor, self.cuts.chosen) if self.by_rows else {}
