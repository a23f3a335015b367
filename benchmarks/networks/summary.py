"""A network as the segmentation study sees it: the layers of its int8 form, with their loops, constants and readers.

Made from the exported float network by the compiler's own lowering and loop nests, after normalisations are folded into the product
before them, as every int8 converter does. The cached files hold one layer a line:

    [operator, [layers read; -1 is the input], [G, K, C, OY, OX, FY, FX] or [], constant elements, result elements]
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_graphsurgeon as gs

from deeploy import target
from deeploy.distribute.balance_levels import INPUT, Layer
from deeploy.frontend import import_states
from deeploy.graph.loops import from_geometry
from deeploy.midend.assemble import assemble
from deeploy.midend.bind import inferred_shapes
from deeploy.midend.program import Role

FOLDER = Path(__file__).parent / "summaries"
FORMAT = 1
AFFINE = {"Add", "Sub", "Mul", "Div"}
SILENT = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"}  # nothing is computed or moved
BIAS_BYTES = 4  # of a product's result channel: an int32


@dataclass(frozen=True)
class Item:
    """A layer of the int8 network; ``loops`` are those of ``deeploy.graph.loops.LOOPS``, empty where nothing is multiplied and summed."""

    op: str
    reads: tuple[int, ...]
    loops: tuple[int, ...]
    constants: int
    output: int

    @property
    def macs(self) -> int:
        return math.prod(self.loops) if self.loops else 0

    @property
    def weights(self) -> int:
        """Bytes of constants: int8, and an int32 for each channel of a product's result."""
        return self.constants + (BIAS_BYTES * self.loops[0] * self.loops[1] if self.loops else 0)


@dataclass(frozen=True)
class Summary:
    """A network: its layers, and what its framework says of it.

    Attributes:
        source: where it is from.
        image: height and width of its input.
        parameters: of the float network, as its framework counts them.
        weighted: layers with parameters, normalisations among them.
        longest: layers on the longest path.
    """

    name: str
    source: str
    image: int
    parameters: int
    weighted: int
    longest: int
    items: tuple[Item, ...]

    @property
    def macs(self) -> int:
        return sum(item.macs for item in self.items)

    @property
    def input_bytes(self) -> int:
        return 3 * self.image**2

    def layers(self) -> list[Layer]:
        """The layers as the strategies read them."""
        return [Layer(f"{item.op} {i}", item.reads, item.weights, item.output) for i, item in enumerate(self.items)]


def save(summary: Summary) -> None:
    """Write a summary to its file."""
    head = {name: getattr(summary, name) for name in ("name", "source", "image", "parameters", "weighted", "longest")}
    rows = [json.dumps([i.op, i.reads, i.loops, i.constants, i.output], separators=(",", ":")) for i in summary.items]
    text = json.dumps({"format": FORMAT, **head})[:-1] + ', "layers": [\n' + ",\n".join(rows) + "\n]}\n"
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{summary.name}.json").write_text(text)


def load(name: str) -> Summary:
    """Read a cached summary."""
    data = json.loads((FOLDER / f"{name}.json").read_text())
    items = tuple(Item(op, tuple(reads), tuple(loops), constants, output) for op, reads, loops, constants, output in data["layers"])
    return Summary(*(data[key] for key in ("name", "source", "image", "parameters", "weighted", "longest")), items)


def synthetic(filters: int) -> Summary:
    """The paper's family: five 3 x 3 convolutions on 64 x 64 images with three channels (section 3.1)."""
    channels = (3, *[filters] * 5)
    items = tuple(
        Item("Conv", (i - 1,), (1, filters, channels[i], 64, 64, 3, 3), 9 * channels[i] * filters, 64 * 64 * filters) for i in range(5)
    )
    return Summary(f"f{filters}", "synthetic", 64, sum(i.constants for i in items), 5, 5, items)


# ---- from an exported network


def read(file: Path) -> tuple[Item, ...]:
    """The layers of an exported float network."""
    machine = target.load("generic")
    graph = import_states(file, {}, lambda node: inferred_shapes(machine.kernels, node)).graph
    for step in machine.passes:
        step(graph)
    return _Reader(graph, _loops(graph, machine)).run()


def _loops(graph: gs.Graph, machine: target.Target) -> dict[str, tuple[int, ...]]:
    """The seven loops of every node that multiplies and accumulates."""
    program = assemble("network", graph, machine.kernels)
    found = {}
    for call in program.calls:
        constants = {n for n, operand in call.operands.items() if program.buffers[operand.buffer].role is Role.CONSTANT}
        for layer in from_geometry(call.node.name, call.geometry, constants):
            found[call.node.name] = layer.sizes
    return found


@dataclass
class _Draft:
    op: str
    reads: list[int]
    loops: tuple[int, ...]
    constants: int
    output: int


class _Reader:
    """Makes layers of nodes, one after the other; a node that is folded gives its result to the layer before."""

    def __init__(self, graph: gs.Graph, loops: dict[str, tuple[int, ...]]) -> None:
        self.graph = graph
        self.loops = loops
        self.layers: list[_Draft] = []
        self.made = {tensor.name: INPUT for tensor in graph.inputs}

    def run(self) -> tuple[Item, ...]:
        for node in self.graph.nodes:
            self.add(node)
        return tuple(Item(d.op, tuple(d.reads), d.loops, d.constants, d.output) for d in self.layers)

    def add(self, node: gs.Node) -> None:
        sources = [tensor for tensor in node.inputs if isinstance(tensor, gs.Variable) and not tensor.is_empty()]
        reads = list(dict.fromkeys(self.made[tensor.name] for tensor in sources))
        (result,) = node.outputs
        if node.op in SILENT or self.folds(node, sources):
            self.made[result.name] = reads[0]
            return
        constants = [tensor for tensor in node.inputs if isinstance(tensor, gs.Constant)]
        loops = self.loops.get(node.name, ())
        count = math.prod(constants[0].values.shape) if loops else sum(self.per_channel(node, c) for c in constants)
        self.made[result.name] = len(self.layers)
        self.layers.append(_Draft(node.op, reads, loops, count, math.prod(result.shape)))

    def folds(self, node: gs.Node, sources: list[Any]) -> bool:
        """Whether a node is part of a normalisation that the layer before takes over: a product's, or a subtraction's factor."""
        if node.op not in AFFINE or len(sources) != 1:
            return False
        (source,) = sources
        before = self.made[source.name]
        if before == INPUT or len(source.outputs) != 1:
            return False
        layer = self.layers[before]
        if layer.loops:
            return True
        if layer.op == "Sub" and layer.constants and node.op == "Mul":  # (x - mean) * scale + shift is x * scale + other shift
            layer.op = "Mul"
            return True
        return False

    def per_channel(self, node: gs.Node, tensor: gs.Constant) -> int:
        """Elements of a constant operand of an affine node; bounds of clips and sizes of pads are attributes of int8 operators."""
        return math.prod(tensor.values.shape) if node.op in AFFINE else 0
