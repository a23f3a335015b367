"""What a step computes again instead of keeping it: which nodes of the way there, for the least peak of RAM of the plan.

The way there is cut where the fewest bytes cross; of what lies between, the way back computes again what it reads (Chen et al., Training
deep nets with sublinear memory cost, 2016). Which cuts are the best says the planner: every variant is planned, the least peak wins, and of
equal ones the fewest predicted cycles.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from deeploy.driver.compile import compile_networks, select_target
from deeploy.frontend.gradients import CHEAP, COMPARING
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.options import Options

SMALLEST = 64  # elements of what is stored in bytes
SEGMENTS = (2, 3, 4, 6)  # between cuts


class RecomputedTensors:
    """Tensors as gradients read them: of nodes that are repeated, computed again from what others leave; else kept, perhaps in bytes."""

    def __init__(self, repeated: Collection[Node], in_bytes: bool) -> None:
        self.repeated = repeated
        self.in_bytes = in_bytes
        self.nodes: dict[Node, Node] = {}
        self.stored: dict[Tensor, Tensor] = {}

    def tensor(self, tensor: Tensor) -> Tensor:
        node = tensor.maker
        if node is None or node not in self.repeated:
            is_wide = node is not None and tensor.dtype is DType.FLOAT32 and tensor.elements >= SMALLEST
            return self.store(tensor) if self.in_bytes and is_wide else tensor
        if node not in self.nodes:
            results = [Tensor("", y.shape, y.dtype, label="again") for y in node.outputs]
            inputs = tuple(None if x is None else self.tensor(x) for x in node.inputs)
            self.nodes[node] = replace(node, name="", inputs=inputs, outputs=tuple(results))
        return self.nodes[node].outputs[node.outputs.index(tensor)]

    def store(self, tensor: Tensor) -> Tensor:
        """A tensor in 8 bits, whose range is that of its elements at run time, in floats again."""
        if tensor not in self.stored:
            kinds = ((tensor.shape, DType.UINT8, "bytes"), ((), DType.FLOAT32, "step"), ((), DType.UINT8, "zero point"))
            results = tuple(Tensor("", shape, dtype, label=label) for shape, dtype, label in kinds)
            kept, step, zero = Node("", "DynamicQuantizeLinear", (tensor,), results, domain="").outputs
            centred = kept.cast(tensor.dtype) - zero.cast(tensor.dtype).reshape([1])
            self.stored[tensor] = centred * step.reshape([1])
        return self.stored[tensor]

    def node(self, node: Node) -> Node:
        """A node whose inputs and results are such tensors."""
        inputs = tuple(None if x is None else self.tensor(x) for x in node.inputs)
        return replace(node, inputs=inputs, outputs=tuple(map(self.tensor, node.outputs)))


def cheap_nodes(graph: Graph) -> set[Node]:
    """Nodes that take about one operation an element."""
    return {node for node in graph.nodes if node.op in CHEAP}


def comparing_nodes(graph: Graph) -> set[Node]:
    """Nodes whose operands and results are compared, which is only right where one is computed of the other."""
    return {node for node in graph.nodes if node.op in COMPARING}


def list_variants(graph: Graph, moving: AbstractSet[Tensor]) -> Iterator[set[Node]]:
    """Nodes that may be repeated: none, cheap ones, and all that depend on what is trained but for what crosses cuts."""
    cheap = cheap_nodes(graph)
    learning = [node for node in graph.nodes if not moving.isdisjoint(node.outputs)]
    yield from (set[Node](), cheap)
    for segments in SEGMENTS:
        if len(learning) > 2 * segments:
            yield (set(learning) | cheap) - _crossing_nodes(graph, learning, segments)


def _crossing_nodes(graph: Graph, learning: Sequence[Node], segments: int) -> set[Node]:
    """The nodes of all tensors that cross cuts: near equal parts of the way, where they are the fewest bytes."""
    places = {node: place for place, node in enumerate(learning)}
    last = {y: max([places.get(reader, 0) for reader in graph.readers.get(y, ())], default=0) for node in learning for y in node.outputs}
    crossing: set[Node] = set()
    for number in range(1, segments):
        middle, reach = number * len(learning) // segments, max(1, len(learning) // (2 * segments))
        cuts = [[y for y in last if places[_maker(y)] < cut <= last[y]] for cut in range(max(1, middle - reach), middle + reach + 1)]
        best = min(cuts, key=lambda cut: sum(y.elements * y.dtype.bits for y in cut))
        crossing.update(map(_maker, best))
    return crossing


def _maker(tensor: Tensor) -> Node:
    assert tensor.maker is not None
    return tensor.maker


@dataclass(frozen=True, order=True)
class PlannedCost:
    """What a plan of a step takes: bytes of RAM at once, and predicted cycles, 0 where the target has no timing."""

    ram: int
    cycles: float


def plan_cost(step: onnx.ModelProto, target: str | None) -> PlannedCost:
    """The cost of a step on a target, as it is planned without limits."""
    options = Options() if target is None else Options(target)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "step.onnx"
        path.write_bytes(step.SerializeToString())
        project = compile_networks({"step": path}, select_target(options), options)
    run = project.network.predicted
    return PlannedCost(sum(use.peak - use.constants for use in project.memory.values()), 0.0 if run is None else run.cycles)


def least_memory(variants: Iterator[set[Node]], build: Callable[[set[Node]], onnx.ModelProto], target: str | None) -> set[Node]:
    """The variant whose plan takes the least RAM."""
    return min(variants, key=lambda repeated: plan_cost(build(repeated), target))
