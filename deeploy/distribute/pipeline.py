"""Cutting a lowered graph by depth into a pipeline of chips, through which inputs stream.

Every cut is horizontal: it goes through all paths that are open between two depths. What is read behind it is sent over it; a tensor
that passes several cuts, as around a residual block, is forwarded from stage to stage, so that a chip sends to the next one only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.distribute import balance
from deeploy.distribute.balance import Table
from deeploy.distribute.balance_levels import INPUT, Cuts, Layer, Levels, levels_of, segments, sizes
from deeploy.distribute.system import System, ordered
from deeploy.errors import UnsupportedError, UsageError, shorten
from deeploy.frontend.positions import POSITION
from deeploy.operators.link import receive, send
from deeploy.operators.views import APPEND

Balance = Literal["layers", "vendor", "profile", "parameters", "cycles"]
BALANCES: tuple[Balance, ...] = ("layers", "vendor", "profile", "parameters", "cycles")
MOST_CHIPS = 64  # that `--chips auto` tries


class Costs(Protocol):
    """What a target says of stages; see ``deeploy.simulate.stages``."""

    def overflow(self, stage: int, first: int, end: int) -> int:
        """Bytes of constants of levels ``first`` to ``end - 1`` that do not stay on the chip of a stage."""

    def tables(self, stages: int) -> Sequence[Table]:
        """Times of all stages, by chip; see ``deeploy.distribute.balance``."""


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A graph cut into stages.

    Attributes:
        system: the graph of every chip.
        levels: where it could be cut.
        cuts: where it was.
        balance: by which strategy.
    """

    system: System
    levels: Levels
    cuts: Cuts
    balance: Balance

    @property
    def constants(self) -> tuple[int, ...]:
        """Bytes of constants of every stage."""
        return tuple(sizes(self.levels, self.cuts))


def nodes_of(graph: gs.Graph) -> list[Layer]:
    """The nodes of a graph as layers; a node's constants count once, with the first node that reads them."""
    made: dict[int, int] = {}
    seen: set[int] = set()
    found = []
    for position, node in enumerate(graph.nodes):
        reads = dict.fromkeys(made.get(id(t), INPUT) for t in node.inputs if not isinstance(t, gs.Constant) and not t.is_empty())
        own = {id(t): t.values.nbytes for t in node.inputs if isinstance(t, gs.Constant) and id(t) not in seen}
        seen |= own.keys()
        found.append(Layer(node.name, tuple(reads), sum(own.values()), sum(map(_bytes, node.outputs))))
        made |= {id(tensor): position for tensor in node.outputs}
    return found


def check_states(graph: gs.Graph) -> None:
    """Raise ``UnsupportedError`` where a network keeps states, whose rows exist only where they are appended."""
    for node in graph.nodes:
        if node.op == APPEND:
            raise UnsupportedError(
                f"the network keeps the state {shorten(node.outputs[0].name)}, and a pipeline's stages work on different inputs at a time",
                "Cut it with --partition tensor.",
            )


def levels_of_graph(graph: gs.Graph) -> Levels:
    """Where a lowered graph can be cut.

    Raises:
        UnsupportedError: it keeps states.
    """
    check_states(graph)
    made = {id(t): position for position, node in enumerate(graph.nodes) for t in node.outputs}
    returned = [made[id(t)] for t in graph.outputs if id(t) in made]
    return levels_of(nodes_of(graph), sum(_bytes(t) for t in graph.inputs if t.name != POSITION), returned)


def _bytes(tensor: gs.Tensor) -> int:
    return int(math.prod(tensor.shape)) * int(np.dtype(tensor.dtype).itemsize)


def choose(levels: Levels, chips: int, strategy: Balance, costs: Costs) -> Cuts:
    """Cuts into as many stages as there are chips.

    Raises:
        UsageError: more chips than levels, a strategy that is unknown or would try too many cuts.
        FitError: no cut fits.
    """
    if strategy == "layers":
        return balance.layers(levels, chips)
    if strategy == "vendor":
        return balance.vendor(levels, chips)
    if strategy == "parameters":
        return balance.parameters(levels, chips, costs.overflow).cuts
    if strategy not in BALANCES:
        raise UsageError(f"--balance {strategy} is unknown", f"Use one of {', '.join(BALANCES)}.")
    balance.check(levels, chips)
    if strategy == "profile":
        balance.check_profile(levels, chips)
        return balance.profile(levels, costs.tables(chips))
    return balance.cycles(levels, costs.tables(chips))


def smallest(levels: Levels, costs: Costs) -> int:
    """``--chips auto``: the fewest chips on which all constants stay, cut by parameters.

    Raises:
        FitError: there is no such number.
    """
    return balance.smallest(levels, lambda chips: balance.parameters(levels, chips, costs.overflow).excess == 0, MOST_CHIPS)


def pipeline(graph: gs.Graph, levels: Levels, chips: int | Literal["auto"], strategy: Balance, costs: Costs) -> Pipeline:
    """Cut a lowered graph into a pipeline.

    Args:
        graph: as the target's passes leave it; it is not changed, its constants are shared.
        levels: where it can be cut (``levels_of_graph``).
        chips: how many stages; ``auto`` for the fewest that keep all constants.

    Raises:
        UsageError, FitError: it cannot be cut so; see ``choose``.
    """
    count = smallest(levels, costs) if chips == "auto" else chips
    cuts = choose(levels, count, strategy, costs)
    return Pipeline(cut(graph, levels, cuts), levels, cuts, strategy)


def cut(graph: gs.Graph, levels: Levels, cuts: Cuts) -> System:
    """The system whose stages are given by their first levels."""
    stages = _Stages(graph, len(cuts) + 1)
    for stage, (first, end) in enumerate(segments(cuts, levels.depth)):
        for position in sorted(position for row in levels.layers[first:end] for position in row):
            stages.add(graph.nodes[position], stage)
    return stages.system()


class _Stages:
    """The graphs of all stages as they grow."""

    def __init__(self, graph: gs.Graph, count: int) -> None:
        self.graph = graph
        self.graphs = [gs.Graph(name=f"stage{i}", opset=graph.opset, import_domains=graph.import_domains) for i in range(count)]
        self.local: list[dict[int, gs.Tensor]] = [{} for _ in range(count)]  # a stage's own of the tensors of the graph
        self.home: dict[int, int] = {}  # the stage that computes a tensor
        self.given = {id(tensor) for tensor in graph.inputs}
        self.tags = [0] * count

    def add(self, node: gs.Node, stage: int) -> None:
        """Give a node to a stage, and the stage what it reads."""
        inputs = [t if isinstance(t, gs.Constant) or t.is_empty() else self.at(t, stage) for t in node.inputs]
        outputs = [gs.Variable(t.name, t.dtype, t.shape) for t in node.outputs]
        for tensor, own in zip(node.outputs, outputs, strict=True):
            self.local[stage][id(tensor)] = own
            self.home[id(tensor)] = stage
        self.graphs[stage].nodes.append(gs.Node(node.op, node.name, dict(node.attrs), inputs, outputs, domain=node.domain))

    def at(self, tensor: gs.Tensor, stage: int) -> gs.Tensor:
        """A tensor where a stage reads it: given from outside, or handed on from the stage that computes it."""
        own = self.local[stage].get(id(tensor))
        if own is not None:
            return own
        if id(tensor) in self.given:
            own = self.local[stage][id(tensor)] = gs.Variable(tensor.name, tensor.dtype, tensor.shape)
            self.graphs[stage].inputs.append(own)
            return own
        nearest = max(before for before in range(stage) if id(tensor) in self.local[before])
        own = self.local[nearest][id(tensor)]
        for to in range(nearest + 1, stage + 1):
            tag = self.tags[to]
            self.tags[to] += 1
            send(self.graphs[to - 1], own, to, tag)
            own = self.local[to][id(tensor)] = receive(self.graphs[to], tensor, to - 1, tag)
        return own

    def system(self) -> System:
        """All stages, their nodes in an order that ends whatever the queues hold."""
        for tensor in self.graph.outputs:
            stage = self.home.get(id(tensor), len(self.graphs) - 1)
            self.graphs[stage].outputs.append(tensor if isinstance(tensor, gs.Constant) else self.at(tensor, stage))
        for tensor in self.graph.inputs:  # whatever is read by nobody is still part of the network's interface
            if tensor.name != POSITION and not any(id(tensor) in own for own in self.local):
                self.at(tensor, 0)
        for graph in self.graphs:  # in the order of the model's
            order = {tensor.name: position for position, tensor in enumerate(self.graph.inputs)}
            graph.inputs.sort(key=lambda tensor: order[tensor.name])
        names = tuple(tensor.name for tensor in self.graph.inputs if tensor.name != POSITION)
        return ordered(System(tuple(self.graphs), names, tuple(tensor.name for tensor in self.graph.outputs)))


def part(graph: gs.Graph, levels: Levels, first: int, end: int) -> gs.Graph:
    """Levels ``first`` to ``end - 1`` as a graph of its own: given what it reads, it returns what is read behind it."""
    positions = sorted(position for row in levels.layers[first:end] for position in row)
    inside = {id(t) for position in positions for t in graph.nodes[position].outputs}
    local: dict[int, gs.Variable] = {}
    result = gs.Graph(name="part", opset=graph.opset, import_domains=graph.import_domains)

    def own(tensor: gs.Tensor) -> gs.Tensor:
        if isinstance(tensor, gs.Constant) or tensor.is_empty():
            return tensor
        if id(tensor) not in local:
            local[id(tensor)] = gs.Variable(tensor.name, tensor.dtype, tensor.shape)
            if id(tensor) not in inside:
                result.inputs.append(local[id(tensor)])
        return local[id(tensor)]

    for position in positions:
        node = graph.nodes[position]
        inputs, outputs = [own(t) for t in node.inputs], [own(t) for t in node.outputs]
        result.nodes.append(gs.Node(node.op, node.name, dict(node.attrs), inputs, outputs, domain=node.domain))
    later = {id(t) for row in levels.layers[end:] for position in row for t in graph.nodes[position].inputs}
    wanted = later | {id(t) for t in graph.outputs}
    result.outputs = [local[id(t)] for position in positions for t in graph.nodes[position].outputs if id(t) in wanted]
    return result
