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
import onnx_graphsurgeon as gs

from deeploy.distribute.collectives import Costs
from deeploy.distribute.cuts import Cuts, cuts
from deeploy.distribute.dependence import Declare, Loop, key, shape_of
from deeploy.distribute.divide import divide
from deeploy.distribute.products import Product, pieces
from deeploy.distribute.rows import Region, Rows
from deeploy.distribute.shards import ROOT, Apart, Box, Collective, Shard, Shards, size_of
from deeploy.distribute.sums import reduce
from deeploy.distribute.system import System, alone
from deeploy.distribute.together import gather, to_rows
from deeploy.errors import shorten
from deeploy.frontend.positions import POSITION
from deeploy.graph import epilogue, surgeon
from deeploy.graph.nodes import Attributes
from deeploy.graph.topology import Topology
from deeploy.operators.table import shared
from deeploy.operators.views import SLIDE, VIEWS, Access


@dataclass(frozen=True, eq=False)
class Partition:
    """A system, and what is proved of it (``deeploy.distribute.proof``).

    Attributes:
        shards: where the constants are that loop nests map.
        collectives: the movements between chips, in order.
        cut: names of the nodes that several chips compute, with the chips.
        gathered: nodes (``id``) that add partial sums up here, and end earlier by the estimate if their inputs are put together instead.
        has_rows: whether chips compute rows of something.
    """

    system: System
    shards: tuple[Shard, ...]
    collectives: tuple[Collective, ...]
    cut: Mapping[str, tuple[int, ...]]
    gathered: frozenset[int] = frozenset()
    has_rows: bool = False


@dataclass(frozen=True)
class _Share:
    """A node on some chips: per chip its attributes; ``axes`` of its operands, inputs first, along which they are in parts."""

    group: int
    attrs: Mapping[int, Attributes]
    axes: tuple[int | None, ...]
    is_sum: bool


def partition(
    graph: gs.Graph,
    chips: int,
    topology: Topology,
    declare: Declare,
    costs: Costs | None = None,
    by_rows: bool = False,
    gathered: frozenset[int] = frozenset(),
) -> Partition:
    """Cut a lowered graph across chips.

    Args:
        declare: what the target's kernels declare of a node, in order of preference.
        costs: seconds that chips spend besides the links; none, where it is not known.
        by_rows: whether all chips may add up rows of sums, and compute what follows from them (``deeploy.distribute.rows``).
        gathered: nodes (``id``) that are cut along their outputs, though their inputs are in parts along a reduction.

    Raises:
        UsageError: nothing can be cut, or not for so many chips.
    """
    if chips == 1:
        return Partition(alone(graph), (), (), {})
    return _Partitioner(graph, cuts(graph, declare, chips, gathered), topology, declare, costs or Costs(), by_rows).run()


class _Partitioner:
    """Walks the graph in order and computes every node on one chip or on several."""

    def __init__(self, graph: gs.Graph, found: Cuts, topology: Topology, declare: Declare, costs: Costs, by_rows: bool) -> None:
        self.graph = graph
        self.declare = declare
        self.by_rows = by_rows
        self.rows = Rows(declare)
        self.cuts = found
        self.dependence = found.dependence
        self.shards = Shards(found, topology, costs)
        self.cut: dict[str, tuple[int, ...]] = {}
        self.free = [tensor for tensor in graph.inputs if self._is_free(tensor)]
        self.sliding = _sliding(graph)

    def run(self) -> Partition:
        root = self.shards.graphs[ROOT]
        for tensor in self.graph.inputs:
            self._give(tensor, ROOT)
        results = {key(t) for t in self.graph.outputs}
        for node in self.graph.nodes:
            share = self._share(node)
            if share is not None:
                self._on_several(node, share)
            elif not self._by_rows(node):
                self._alone(node)
            for tensor in node.outputs:
                if key(tensor) in results:
                    self._whole(tensor)
        for tensor in self.graph.outputs:
            root.outputs.append(self._whole(tensor))
        for number, graph in enumerate(self.shards.graphs):
            graph.name, graph.opset, graph.import_domains = (
                f"{self.graph.name} on chip {number}",
                self.graph.opset,
                self.graph.import_domains,
            )
        inputs = tuple(t.name for t in self.graph.inputs if t.name != POSITION)
        system = System(tuple(self.shards.graphs), inputs, tuple(t.name for t in self.graph.outputs), self._notes())
        shards, moved = tuple(self.shards.shards), tuple(self.shards.collectives)
        has_rows = any(state.rows for state in self.shards.states.values())
        return Partition(system, shards, moved, self.cut, frozenset(self.shards.gathered), has_rows)

    def _is_free(self, tensor: gs.Tensor) -> bool:
        """Whether nodes that are cut are the only ones that read an input, or views of it, as far as that can be said beforehand."""
        groups, waiting = self.cuts.groups, [tensor]
        while waiting:
            tensor = waiting.pop()
            readers = [node for node in self.graph.nodes if any(t is tensor for t in node.inputs)]
            kernels = [reader for reader in readers if reader.op not in VIEWS]
            cut = all(any(loop.group in groups for loop in self.dependence.loops.get(id(reader), ())) for reader in kernels)
            if not readers or not cut:
                return False
            waiting += (out for reader in readers if reader.op in VIEWS for out in reader.outputs)
        return True

    def _give(self, tensor: gs.Tensor, chip: int) -> None:
        """Give a chip an input of the model."""
        own = gs.Variable(tensor.name, np.dtype(tensor.dtype), list(shape_of(tensor)))
        self.shards.graphs[chip].inputs.append(own)
        self.shards.state(tensor).whole[chip] = own

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

    # ---- where operands are

    def _whole(self, tensor: gs.Tensor) -> gs.Tensor:
        """A tensor as the first chip has it, after it is gathered there."""
        if isinstance(tensor, gs.Constant):
            return self.shards.constant(tensor, ROOT, None, True)
        state = self.shards.state(tensor)
        if ROOT not in state.whole:
            gather(self.shards, tensor)
        return state.whole[ROOT]

    def _bring(self, tensor: gs.Tensor, share: _Share, axis: int | None) -> None:
        """Move an input to where a share needs it."""
        state = self.shards.state(tensor)
        if axis is not None and share.group in state.parts:
            return
        if axis is None and ROOT not in state.whole:
            gather(self.shards, tensor, sorted(share.attrs))
        self._whole(tensor)
        if axis is not None:
            self.shards.scatter(tensor, share.group)
        else:
            self._spread(tensor, sorted(share.attrs))

    def _spread(self, tensor: gs.Tensor, chips: Sequence[int]) -> None:
        """Make a tensor whole on several chips.

        An input of the model that nothing but cut nodes read is given to each of the chips. Of what is another view of a tensor, that is
        sent, once for all views. What follows from a constant that slides, as masks do, is computed again by every chip: how much of it is
        read changes from one inference to the next.
        """
        waiting: list[tuple[gs.Tensor, gs.Node | None]] = [(tensor, None)]  # and who computes it again, once its inputs are there
        while waiting:
            tensor, again = waiting.pop()
            node = tensor.inputs[0] if tensor.inputs else None
            if again is not None:
                self._repeat(again, tensor, chips)
            elif isinstance(tensor, gs.Constant):
                self._spread_constant(tensor, chips)
            elif tensor in self.free:
                for chip in chips:
                    if chip not in self.shards.state(tensor).whole:
                        self._give(tensor, chip)
            elif node is None or not (self._is_view(node) or id(tensor) in self.sliding) or len(node.outputs) != 1:
                self.shards.broadcast(tensor, chips)
            else:
                mapped = self._mapped(node)
                read = [t for i, t in enumerate(node.inputs) if not isinstance(t, gs.Constant) or self._is_sent(t, i in mapped)]
                waiting += [(tensor, node), *((t, None) for t in read[::-1])]

    def _repeat(self, node: gs.Node, tensor: gs.Tensor, chips: Sequence[int]) -> None:
        """Compute the output of a node on several chips that have its inputs."""
        mapped, whole = self._mapped(node), self.shards.state(tensor).whole
        for chip in chips:
            if chip not in whole:
                inputs = [self._spread_operand(t, chip, i in mapped) for i, t in enumerate(node.inputs)]
                own = self.shards.like(tensor, None, 0, "")
                self.shards.graphs[chip].nodes.append(gs.Node(node.op, node.name, dict(node.attrs), inputs, [own], domain=node.domain))
                whole[chip] = own

    def _spread_constant(self, tensor: gs.Constant, chips: Sequence[int]) -> None:
        """Send a constant that nests map: it lies on the first chip alone."""
        self.shards.state(tensor).whole.setdefault(ROOT, self.shards.constant(tensor, ROOT, None, True))
        self.shards.broadcast(tensor, chips)

    def _spread_operand(self, tensor: gs.Tensor, chip: int, is_mapped: bool) -> gs.Tensor:
        if isinstance(tensor, gs.Constant) and not self._is_sent(tensor, is_mapped):
            return self.shards.constant(tensor, chip, None, is_mapped)
        return self.shards.state(tensor).whole[chip]

    def _is_sent(self, tensor: gs.Constant, is_mapped: bool) -> bool:
        """Whether a constant that several chips read whole lies on the first one: nests map it, and it is no single value."""
        return is_mapped and np.asarray(tensor.values).size > 1

    def _is_view(self, node: gs.Node) -> bool:
        """Whether a node is another view of all of a tensor that the first chip has whole."""
        if node.op not in VIEWS or len(node.inputs) != 1 or isinstance(node.inputs[0], gs.Constant):
            return False
        source = node.inputs[0]
        return size_of(source) == size_of(node.outputs[0]) and ROOT in self.shards.state(source).whole

    def _mapped(self, node: gs.Node) -> frozenset[int]:
        """Positions of the inputs that are no tables."""
        return self.dependence.mapped.get(id(node), frozenset(range(len(node.inputs))))

    # ---- which chips compute a node

    def _share(self, node: gs.Node) -> _Share | None:
        """How a node is computed by several chips; None where the first one does."""
        chosen = self.cuts.chosen.get(id(node))
        if chosen is not None:
            return self._kernel_share(node, chosen)
        found: dict[int, int] = {}
        for tensor in node.inputs:
            if not isinstance(tensor, gs.Constant):
                for group in self.shards.state(tensor).parts:
                    found[group] = found.get(group, 0) + int(np.prod(shape_of(tensor)))
        for group in sorted(found, key=lambda group: -found[group]):
            share = self._view_share(node, group) if node.op in VIEWS else self._any_share(node, group)
            if share is not None:
                return share
        return None

    def _any_share(self, node: gs.Node, group: int) -> _Share | None:
        loops = [loop for loop in self.dependence.loops.get(id(node), ()) if loop.group == group]
        return self._kernel_share(node, loops[0]) if len(loops) == 1 else None

    def _kernel_share(self, node: gs.Node, loop: Loop) -> _Share | None:
        """A node cut along a dimension of its nest."""
        mapped = self.dependence.mapped[id(node)]
        axes: list[int | None] = []
        for position, tensor in enumerate(node.inputs):
            axes.append(self.dependence.axis(tensor, loop.group) if position in mapped else None)
        axes += [loop.output] + [None] * (len(node.outputs) - 1)
        if (loop.output is None) != loop.is_sum or len(node.outputs) != 1:
            return None
        detached = id(node) in self.dependence.detached
        if not detached and not loop.is_sum and self.dependence.axis(node.outputs[0], loop.group) != loop.output:
            return None
        return self._shared(node, loop, tuple(axes))

    def _shared(self, node: gs.Node, loop: Loop, axes: tuple[int | None, ...]) -> _Share | None:
        """The share, where every chip has something of all operands that are in parts, or of none."""
        tensors = [*node.inputs, *node.outputs]
        owned = [self.cuts.kept(t, a) for t, a in zip(node.inputs, axes, strict=False) if a is not None]
        if not owned:
            return None
        members = [chip for chip in range(self.cuts.chips) if len(owned[0][chip])]
        if any(bool(len(kept[chip])) != (chip in members) for kept in owned for chip in range(self.cuts.chips)):
            return None
        if sum(len(k) for k in owned[0]) != _extent(node, axes) or ROOT not in members:
            return None
        view, attrs = surgeon.described(node), dict[int, Attributes]()
        for chip in members:
            kept = [None if a is None else self._kept(node, t, a, owned)[chip] for t, a in zip(tensors, axes, strict=True)]
            own = shared(view, axes, kept)
            if own is None:
                return None
            attrs[chip] = own
        return _Share(loop.group, attrs, axes, loop.is_sum)

    def _kept(self, node: gs.Node, tensor: gs.Tensor, axis: int, owned: Sequence[Sequence[np.ndarray]]) -> Sequence[np.ndarray]:
        """Per chip the indices of an operand; what is made whole at once is divided as the constant is."""
        if id(node) in self.dependence.detached and tensor is node.outputs[0]:
            return next(kept for kept in owned if sum(map(len, kept)) == shape_of(tensor)[axis])
        return self.cuts.kept(tensor, axis)

    def _view_share(self, node: gs.Node, group: int) -> _Share | None:
        """A view, where the parts of its operands are views of each other on every chip."""
        tensors = [*node.inputs, *node.outputs]
        axes = [self.dependence.axis(tensor, group) for tensor in tensors]
        if any(axis is None for axis in axes) or not self._is_closed(node, axes):
            return None
        kept = [self.cuts.kept(tensor, axis) for tensor, axis in zip(tensors, axes, strict=True) if axis is not None]
        view, attrs = surgeon.described(node), dict[int, Attributes]()
        for chip in range(self.cuts.chips):
            lengths = {bool(len(k[chip])) for k in kept}
            if lengths == {False}:
                continue
            own = shared(view, axes, [k[chip] for k in kept]) if lengths == {True} else None
            if own is None:
                return None
            attrs[chip] = own
        return _Share(group, attrs, tuple(axes), False)

    def _is_closed(self, node: gs.Node, axes: Sequence[int | None]) -> bool:
        """Whether every element of a part belongs to the chip that has it in the container."""
        view = VIEWS[node.op](surgeon.described(node))
        sides = {"in": (node.inputs, axes), "out": (node.outputs, axes[len(node.inputs) :])}
        tensors, own = sides[view.container[0]]
        container, axis = tensors[view.container[1]], own[view.container[1]]
        whole = shape_of(container)
        assert axis is not None
        owner = self.cuts.owner[self.dependence.atoms(container, axis)]
        for (side, position), place in view.parts:
            part, along = sides[side][0][position], sides[side][1][position]
            access = place(Access.dense(whole))
            if access is None or along is None:
                return False
            places = np.full(access.shape, access.offset)
            for i, (size, stride) in enumerate(zip(access.shape, access.strides, strict=True)):
                places += (np.arange(size) * stride).reshape([-1 if i == j else 1 for j in range(len(access.shape))])
            inside = owner[np.unravel_index(places, whole)[axis]]
            outside = self.cuts.owner[self.dependence.atoms(part, along)]
            if not (inside == outside.reshape([-1 if i == along else 1 for i in range(len(access.shape))])).all():
                return False
        return True

    # ---- nodes

    def _alone(self, node: gs.Node) -> None:
        mapped = self._mapped(node)
        inputs = [
            self.shards.constant(t, ROOT, None, i in mapped) if isinstance(t, gs.Constant) else self._whole(t)
            for i, t in enumerate(node.inputs)
        ]
        outputs = [gs.Variable(t.name, np.dtype(t.dtype), list(shape_of(t))) for t in node.outputs]
        self.shards.graphs[ROOT].nodes.append(gs.Node(node.op, node.name, dict(node.attrs), inputs, outputs, domain=node.domain))
        for tensor, own in zip(node.outputs, outputs, strict=True):
            self.shards.state(tensor).whole[ROOT] = own

    def _by_rows(self, node: gs.Node) -> bool:
        """Compute a node on all chips that have rows of what it reads, if it can be computed row by row."""
        variables = [t for t in node.inputs if not isinstance(t, gs.Constant)]
        if self.by_rows:
            for tensor in variables:
                divide(self.shards, self.graph, tensor, self._regions(tensor))
        source = next((t for t in variables if self._is_in_rows(t)), None)
        if source is None:
            return False
        rows = self.shards.state(source).division
        assert rows is not None
        axes = self.rows.along(node, source, rows.axis)
        if axes is None:
            return False
        kept = {chip: [None if a is None else np.arange(*box) for a in axes] for chip, box in rows.owned.items()}
        attrs = {chip: shared(surgeon.described(node), axes, own) for chip, own in kept.items()}
        if any(own is None for own in attrs.values()):
            return False
        for tensor, axis in zip(node.inputs, axes, strict=False):
            if not isinstance(tensor, gs.Constant) and self.shards.state(tensor).division != replace(rows, axis=axis or 0):
                assert axis is not None  # as ``along`` says of every variable
                to_rows(self.shards, tensor, replace(rows, axis=axis))
        mapped, result, last = self._mapped(node), node.outputs[0], axes[-1]
        assert last is not None
        state = self.shards.state(result)
        state.division = replace(rows, axis=last)
        for chip, (begin, end) in rows.owned.items():
            inputs: list[gs.Tensor] = []
            for i, (tensor, axis) in enumerate(zip(node.inputs, axes, strict=False)):
                box = None if axis is None else (axis, begin, end)
                is_constant = isinstance(tensor, gs.Constant)
                own = (
                    self.shards.constant(tensor, chip, None, i in mapped, box, True)
                    if is_constant
                    else self.shards.state(tensor).rows[chip]
                )
                inputs.append(own)
            state.rows[chip] = self.shards.like(result, last, end - begin, f" (rows from {begin} to {end})")
            node_attrs = dict(attrs[chip] or {})
            self.shards.graphs[chip].nodes.append(gs.Node(node.op, node.name, node_attrs, inputs, [state.rows[chip]], domain=node.domain))
        return True

    def _is_in_rows(self, tensor: gs.Tensor) -> bool:
        state = self.shards.state(tensor)
        return bool(state.rows) and (state.is_divided or ROOT not in state.whole)

    def _on_several(self, node: gs.Node, share: _Share) -> None:
        mapped = self._mapped(node)
        body = node.inputs[: self._body(node)] if share.is_sum else node.inputs
        for position, (tensor, axis) in enumerate(zip(body, share.axes, strict=False)):
            if not isinstance(tensor, gs.Constant):
                self._bring(tensor, share, axis)
            elif axis is None and self._is_sent(tensor, position in mapped):
                self._spread_constant(tensor, sorted(share.attrs))
        self.cut[node.name] = tuple(share.attrs)
        if share.is_sum:
            reduce(self._product(node, share, len(body)), share.group, self._regions(node.outputs[0]))
            return
        results: dict[int, list[gs.Tensor]] = {}
        for chip, attrs in share.attrs.items():
            inputs = [self._operand(t, share, share.axes[i], chip, i in mapped) for i, t in enumerate(body)]
            outputs = [self._result(node, t, share, share.axes[len(node.inputs) + i], chip) for i, t in enumerate(node.outputs)]
            self.shards.graphs[chip].nodes.append(gs.Node(node.op, node.name, dict(attrs), inputs, outputs, domain=node.domain))
            results[chip] = outputs
        for position, tensor in enumerate(node.outputs):
            self._keep(node, tensor, share, {chip: own[position] for chip, own in results.items()})

    def _regions(self, tensor: gs.Tensor) -> dict[int, Region]:
        """What follows from a tensor row by row, by the axis of its rows."""
        return self.rows.regions(tensor, self.cuts.chosen) if self.by_rows else {}

    def _product(self, node: gs.Node, share: _Share, count: int) -> Product:
        """What every chip computes of a node whose sum is cut."""
        mapped = self._mapped(node)

        def operand(chip: int, position: int, box: Box | None) -> gs.Tensor:
            return self._operand(node.inputs[position], share, share.axes[position], chip, position in mapped, box)

        bare = {chip: {k: v for k, v in own.items() if k not in epilogue.ATTRIBUTES} for chip, own in share.attrs.items()}
        shapes = []
        for tensor, axis in zip(node.inputs[:count], share.axes, strict=False):
            own = len(self.cuts.kept(tensor, axis)[ROOT]) if axis is not None else 0
            shapes.append(tuple(own if i == axis else n for i, n in enumerate(shape_of(tensor))))
        return Product(self.shards, node, bare, shapes, operand, pieces(node, count, self.declare))

    def _keep(self, node: gs.Node, tensor: gs.Tensor, share: _Share, parts: Mapping[int, gs.Tensor]) -> None:
        """Note where an output is; what is to be whole at once is put together."""
        axis = share.axes[len(node.inputs)]
        if id(node) in self.dependence.detached and axis is not None:
            owned = [self.cuts.kept(t, a) for t, a in zip(node.inputs, share.axes, strict=False) if a is not None]
            self.shards.state(tensor).apart = Apart(share.group, axis, self._kept(node, tensor, axis, owned), parts)
        else:
            self.shards.state(tensor).parts[share.group] = dict(parts)

    def _body(self, node: gs.Node) -> int:
        """How many inputs a node has without its epilogue's."""
        return len(node.inputs) - len(epilogue.operands(tuple(node.attrs.get("epilogue", ()))))

    def _operand(self, tensor: gs.Tensor, share: _Share, axis: int | None, chip: int, is_mapped: bool, box: Box | None = None) -> gs.Tensor:
        """An input as a chip has it, or a box of that."""
        if isinstance(tensor, gs.Constant) and (axis is not None or not self._is_sent(tensor, is_mapped)):
            return self.shards.constant(tensor, chip, share.group if axis is not None else None, is_mapped, box)
        state = self.shards.state(tensor)
        own = state.whole[chip] if axis is None else state.parts[share.group][chip]
        return own if box is None else self.shards.cut_out(chip, own, *box, f"{own.name} (from {box[1]} to {box[2]})")

    def _result(self, node: gs.Node, tensor: gs.Tensor, share: _Share, axis: int | None, chip: int) -> gs.Variable:
        assert axis is not None
        owned = [self.cuts.kept(t, a) for t, a in zip(node.inputs, share.axes, strict=False) if a is not None]
        indices = self._kept(node, tensor, axis, owned)[chip]
        return self.shards.like(tensor, axis, len(indices), " (part)")


def _sliding(graph: gs.Graph) -> set[int]:
    """Tensors that follow from constants alone, one of which is read further on with every row that exists, by their ids."""
    found: set[int] = set()
    for node in graph.nodes:
        own = [t for t in node.inputs if not isinstance(t, gs.Constant)]
        if all(id(t) in found for t in own) and (own or node.op == SLIDE):
            found |= {id(t) for t in node.outputs}
    return found


def _extent(node: gs.Node, axes: Sequence[int | None]) -> int:
    """Indices along the axis of the first input that is in parts."""
    return next(shape_of(t)[a] for t, a in zip(node.inputs, axes, strict=False) if a is not None)
