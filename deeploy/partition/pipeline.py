"""Cutting a lowered graph by depth into a pipeline of chips, through which inputs stream.

Every cut is horizontal: it goes through all paths that are open between two depths. What is read behind it is sent over it; a tensor
that passes several cuts, as around a residual block, is forwarded from stage to stage, so that a chip sends to the next one only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from deeploy.errors import UnsupportedError, shorten
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.values import Graph
from deeploy.operators.link import receive, send
from deeploy.operators.views import APPEND, KEEP, POSITION
from deeploy.options import Balance
from deeploy.partition import balance
from deeploy.partition.balance import Table
from deeploy.partition.balance_levels import INPUT, BalancedLayer, Cuts, Levels, levels_of, stage_segments, stage_sizes
from deeploy.partition.shards import bytes_of
from deeploy.partition.system import System, names_of, order_system

MOST_CHIPS = 64  # that `--chips auto` tries


class StageCosts(Protocol):
    """What a target says of stages; see ``deeploy.execution.simulation.stages``."""

    def overflow(self, stage: int, first: int, end: int) -> int:
        """Bytes of constants of levels ``first`` to ``end - 1`` that do not stay on the chip of a stage."""

    def tables(self, stages: int) -> Sequence[Table]:
        """Times of all stages, by chip; see ``deeploy.partition.balance``."""


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
        """Bytes of constants that each stage holds."""
        return tuple(stage_sizes(self.levels, self.cuts))


def nodes_of(graph: Graph) -> list[BalancedLayer]:
    """The nodes of a graph as layers; a node's constants count once, with the first node that reads them."""
    made = _node_positions(graph)
    seen: set[Tensor] = set()
    members = []
    for node in graph.nodes:
        own = {tensor for tensor in node.operands if tensor.data is not None} - seen
        seen |= own
        reads = tuple(dict.fromkeys(made.get(tensor, INPUT) for tensor in node.variables))
        members.append(BalancedLayer(node.name, reads, sum(map(bytes_of, own)), sum(map(bytes_of, node.outputs))))
    return members


def _node_positions(graph: Graph) -> dict[Tensor, int]:
    """By tensor the position of the node that computes it."""
    return {tensor: position for position, node in enumerate(graph.nodes) for tensor in node.outputs}


def check_states(graph: Graph) -> None:
    """Raise ``UnsupportedError`` where a network keeps states, which exist only where they are written."""
    for node in graph.nodes:
        if node.op in (APPEND, KEEP):
            state = node.operands[1] if node.op == KEEP else node.outputs[0]
            raise UnsupportedError(
                f"the network keeps the state {shorten(state.name)}, and a pipeline's stages work on different inputs at a time",
                "Cut it with --partition tensor.",
            )


def levels_of_graph(graph: Graph) -> Levels:
    """Where a lowered graph can be cut.

    Raises:
        UnsupportedError: it keeps states.
    """
    check_states(graph)
    made = _node_positions(graph)
    returned = [made[tensor] for tensor in graph.outputs if tensor in made]
    return levels_of(nodes_of(graph), sum(bytes_of(tensor) for tensor in graph.inputs if tensor.name != POSITION), returned)


def choose_cuts_by(levels: Levels, chips: int, strategy: Balance, costs: StageCosts) -> Cuts:
    """Cuts into as many stages as there are chips.

    Raises:
        UsageError: more chips than levels, a strategy that is unknown or would try too many cuts.
        FitError: no cut fits.
    """
    if strategy == "layers":
        return balance.cut_by_layers(levels, chips)
    if strategy == "vendor":
        return balance.cut_by_vendor(levels, chips)
    if strategy == "parameters":
        return balance.cut_by_parameters(levels, chips, costs.overflow).cuts
    balance.check_stages(levels, chips)
    if strategy == "profile":
        balance.check_profile(levels, chips)
        return balance.cut_by_profile(levels, costs.tables(chips))
    return balance.cut_by_cycles(levels, costs.tables(chips))


def fewest_chips(levels: Levels, costs: StageCosts) -> int:
    """``--chips auto``: the fewest chips on which all constants stay, cut by parameters.

    Raises:
        FitError: there is no such number.
    """
    return balance.smallest_count(levels, lambda chips: balance.cut_by_parameters(levels, chips, costs.overflow).excess == 0, MOST_CHIPS)


def build_pipeline(graph: Graph, levels: Levels, chips: int | Literal["auto"], strategy: Balance, costs: StageCosts) -> Pipeline:
    """Cut a lowered graph into a pipeline.

    Args:
        graph: as the target's passes leave it; it is not changed, its constants are shared.
        levels: where it can be cut (``levels_of_graph``).
        chips: how many stages; ``auto`` for the fewest that keep all constants.

    Raises:
        UsageError, FitError: it cannot be cut so; see ``choose_cuts_by``.
    """
    count = fewest_chips(levels, costs) if chips == "auto" else chips
    cuts = choose_cuts_by(levels, count, strategy, costs)
    return Pipeline(cut_stages(graph, levels, cuts), levels, cuts, strategy)


def cut_stages(graph: Graph, levels: Levels, cuts: Cuts) -> System:
    """The system whose stages are given by their first levels, their nodes in an order that ends whatever the queues hold."""
    stages = _Stages(graph, len(cuts) + 1)
    for stage, bounds in enumerate(stage_segments(cuts, levels.depth)):
        for node in _nodes_between(graph, levels, *bounds):
            stages.add(node, stage)
    return order_system(stages.system())


def _nodes_between(graph: Graph, levels: Levels, first: int, end: int) -> list[Node]:
    """The nodes of levels ``first`` to ``end - 1``, in the order of the graph."""
    return [graph.nodes[position] for position in sorted(position for row in levels.layers[first:end] for position in row)]


class _Stages:
    """The nodes of all stages as they grow."""

    def __init__(self, graph: Graph, count: int) -> None:
        self.graph = graph
        self.nodes: list[list[Node]] = [[] for _ in range(count)]
        self.local: list[dict[Tensor, Tensor]] = [{} for _ in range(count)]  # a stage's own of the tensors of the graph
        self.home: dict[Tensor, int] = {}  # the stage that computes a tensor
        self.tags = defaultdict[int, int](int)

    def add(self, node: Node, stage: int) -> None:
        """Give a node to a stage, and the stage what it reads."""
        inputs = tuple(tensor if tensor is None or tensor.data is not None else self.at(tensor, stage) for tensor in node.inputs)
        own = node.another(inputs=inputs)
        self.local[stage] |= zip(node.outputs, own.outputs, strict=True)
        self.home |= dict.fromkeys(node.outputs, stage)
        self.nodes[stage].append(own)

    def at(self, tensor: Tensor, stage: int) -> Tensor:
        """A tensor where a stage reads it: given from outside, or handed on from the stage that computes it."""
        if tensor in self.local[stage] or tensor in self.graph.inputs:
            return self.local[stage].setdefault(tensor, replace(tensor))
        nearest = max(before for before in range(stage) if tensor in self.local[before])
        for to in range(nearest + 1, stage + 1):
            self.nodes[to - 1].append(send(self.local[to - 1][tensor], to, self.tags[to]))
            self.nodes[to].append(receive(tensor, to - 1, self.tags[to]))
            self.local[to][tensor] = self.nodes[to][-1].outputs[0]
            self.tags[to] += 1
        return self.local[stage][tensor]

    def system(self) -> System:
        """All stages, each with the inputs that it reads, and the outputs that it computes; the last one has the others."""
        graph = self.graph
        outputs: list[list[Tensor]] = [[] for _ in self.nodes]
        for tensor in graph.outputs:
            stage = self.home.get(tensor, len(self.nodes) - 1)
            outputs[stage].append(tensor if tensor.data is not None else self.at(tensor, stage))
        for tensor in graph.inputs:  # whatever is read by nobody is still part of the network's interface
            if tensor.name != POSITION and not any(tensor in own for own in self.local):
                self.at(tensor, 0)
        chips = tuple(
            Graph(
                f"stage{stage}", tuple(own[t] for t in graph.inputs if t in own), tuple(results), graph.opset, graph.domains, tuple(nodes)
            )
            for stage, (own, results, nodes) in enumerate(zip(self.local, outputs, self.nodes, strict=True))
        )
        return System(chips, names_of(graph.inputs), tuple(tensor.name for tensor in graph.outputs))


def stage_graph(graph: Graph, levels: Levels, first: int, end: int) -> Graph:
    """Levels ``first`` to ``end - 1`` as a graph of its own: given what it reads, it returns what is read behind it."""
    nodes = _nodes_between(graph, levels, first, end)
    computed = dict.fromkeys(tensor for node in nodes for tensor in node.outputs)
    read = dict.fromkeys(tensor for node in nodes for tensor in node.variables if tensor not in computed)
    later = {tensor for node in _nodes_between(graph, levels, end, levels.depth) for tensor in node.operands} | set(graph.outputs)
    return Graph("part", tuple(read), tuple(tensor for tensor in computed if tensor in later), graph.opset, graph.domains, tuple(nodes))
