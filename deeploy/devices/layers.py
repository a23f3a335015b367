"""A network as a device that is planned for runs it: layers in int8, with their loops, constants and readers.

They are read off a lowered graph and the loop nests of its kernels. Networks in floats count as what int8 converters make of them:
normalisations are folded into the product before them, and every element takes a byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from deeploy.ir.kernel import Kernel
from deeploy.ir.loops import from_geometry
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.values import Graph
from deeploy.operators.table import OPERATORS
from deeploy.operators.views import VIEWS
from deeploy.partition.balance_levels import INPUT
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.program import Role

BIAS_BYTES = 4  # of a product's result channel: an int32


@dataclass(frozen=True)
class Item:
    """A layer of the int8 network; ``loops`` are those of ``deeploy.ir.loops.LOOPS``, empty where nothing is multiplied and summed.

    Attributes:
        reads: the layers whose results it reads, all before it; ``INPUT`` is the network's input.
        constants: elements, and ``output`` those of its result.
        name: of its node, for messages.
    """

    op: str
    reads: tuple[int, ...]
    loops: tuple[int, ...]
    constants: int
    output: int
    name: str = field(default="", compare=False)

    @property
    def macs(self) -> int:
        return math.prod(self.loops) if self.loops else 0

    @property
    def weights(self) -> int:
        """Bytes of constants: int8, and an int32 for each channel of a product's result."""
        return self.constants + (BIAS_BYTES * self.loops[0] * self.loops[1] if self.loops else 0)


@dataclass(frozen=True)
class Layers:
    """The layers of a network, in an order in which they can run; ``given`` counts the elements of its inputs, ``returned`` are the
    layers whose results leave it."""

    items: tuple[Item, ...]
    given: int
    returned: tuple[int, ...]


def read_layers(graph: Graph, kernels: Sequence[Kernel]) -> Layers:
    """The layers of a lowered graph."""
    reader = _LayerReader(graph, _layer_loops(graph, kernels))
    for node in graph.nodes:
        reader.add(node)
    items = tuple(Item(d.op, tuple(d.reads), d.loops, d.constants, d.output, d.name) for d in reader.layers)
    left = dict.fromkeys(reader.made.get(tensor.name, INPUT) for tensor in graph.outputs)
    return Layers(items, sum(tensor.elements for tensor in graph.inputs), tuple(position for position in left if position != INPUT))


def _layer_loops(graph: Graph, kernels: Sequence[Kernel]) -> dict[str, tuple[int, ...]]:
    """The seven loops of every node that multiplies and accumulates."""
    program = assemble_program("network", graph, kernels)
    loops_by_node = {}
    for call in program.calls:
        constants = {n for n, operand in call.operands.items() if program.buffers[operand.buffer].role is Role.CONSTANT}
        for layer in from_geometry(call.node.name, call.geometry, constants):
            loops_by_node[call.node.name] = layer.sizes
    return loops_by_node


@dataclass
class _LayerDraft:
    op: str
    reads: list[int]
    loops: tuple[int, ...]
    constants: int
    output: int
    name: str


class _LayerReader:
    """Makes layers of nodes, one after the other; a node that is folded gives its result to the layer before."""

    def __init__(self, graph: Graph, loops: dict[str, tuple[int, ...]]) -> None:
        self.graph = graph
        self.loops = loops
        self.layers: list[_LayerDraft] = []
        self.made = {tensor.name: INPUT for tensor in graph.inputs}

    def add(self, node: Node) -> None:
        reads = list(dict.fromkeys(self.made[tensor.name] for tensor in node.variables))
        is_silent = node.op in VIEWS and VIEWS[node.op](node).keeps_order
        if len(reads) == 1 and (is_silent or self.folds(node)):
            self.made |= {result.name: reads[0] for result in node.outputs}
            return
        loops = self.loops.get(node.name, ())
        count = sum(_stored_elements(node, tensor, loops) for tensor in node.operands if tensor.data is not None)
        self.made |= {result.name: len(self.layers) for result in node.outputs}
        self.layers.append(_LayerDraft(node.op, reads, loops, count, sum(tensor.elements for tensor in node.outputs), node.name))

    def folds(self, node: Node) -> bool:
        """Whether a node is part of a normalisation that the layer before takes over: a product's, or a subtraction's factor."""
        kind = _affine_operator(node.op)
        if not kind or len(node.variables) != 1:
            return False
        (source,) = node.variables
        before = self.made[source.name]
        if before == INPUT or len(self.graph.readers[source]) != 1:
            return False
        layer = self.layers[before]
        if layer.loops:
            return True
        if (
            _affine_operator(layer.op) == "offset" and layer.constants and kind == "factor"
        ):  # (x - mean) * scale + shift is x * scale + other shift
            layer.op = node.op
            return True
        return False


def _affine_operator(op: str) -> str:
    """Whether an operator adds an ``offset`` to every element or multiplies by a ``factor``; "" for others."""
    return OPERATORS[op].affine if op in OPERATORS else ""


def _stored_elements(node: Node, tensor: Tensor, loops: tuple[int, ...]) -> int:
    """Elements of a constant that the device keeps for a layer.

    A product's weights have two axes or more; what has one, a value for each channel, is in ``Item.weights``. Sums and factors keep
    values of their own. Of other layers, tables are kept; bounds of clips and sizes of pads are attributes of int8 operators.
    """
    return tensor.elements if tensor.rank > 1 or (not loops and _affine_operator(node.op)) else 0
