"""Graphs cut by hand, for tests of everything that works on systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import onnx

from deeploy.driver.lower import Stopwatch
from deeploy.driver.lower import lower_model as imported
from deeploy.frontend import import_model
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.rewriting import rewrite_graph
from deeploy.ir.target import Target
from deeploy.ir.values import Graph
from deeploy.operators import link
from deeploy.options import Dialect, Options
from deeploy.partition.system import System
from deeploy.partition.tensor import Partition
from deeploy.target import load


def lower_for_target(model: onnx.ModelProto, folder: Path, target: Target | None = None) -> Graph:
    """A model as the passes of a target leave it."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    return rewrite_graph(import_model(path), (target or load("generic")).passes)


def lowered_file(
    path: Path, target: Target, *, inputs: Path | None = None, dialect: Dialect | None = None, context: int | None = None, **dims: int
) -> Graph:
    """A file as the passes of a target leave it; ``dims`` are its symbolic dimensions."""
    return imported(Stopwatch(), path, target, Options(inputs=inputs, dialect=dialect, dims=dims, context=context)).graph


class Chip:
    """A graph of one chip as it grows, node by node."""

    def __init__(self, *nodes: Node, inputs: tuple[Tensor, ...] = (), outputs: tuple[Tensor, ...] = ()) -> None:
        self.nodes, self.inputs, self.outputs = list(nodes), list(inputs), list(outputs)

    def send(self, tensor: Tensor, peer: int, tag: int) -> None:
        self.nodes.append(link.send(tensor, peer, tag))

    def receive(self, like: Tensor, peer: int, tag: int, name: str | None = None) -> Tensor:
        self.nodes.append(link.receive(like, peer, tag, name))
        return self.nodes[-1].outputs[0]

    @property
    def graph(self) -> Graph:
        return Graph("chip", tuple(self.inputs), tuple(self.outputs), order=tuple(self.nodes))


def cut(graph: Graph, chip_of: Callable[[int], int], count: int) -> System:
    """Give node i to chip ``chip_of(i)``; what another chip needs of its outputs is sent there once, with a tag of its own."""
    chips = [Chip() for _ in range(count)]
    local: list[dict[Tensor, Tensor]] = [{} for _ in chips]
    residences: dict[Tensor, int] = {}
    tags = 0
    for number, node in enumerate(graph.nodes):
        chip = chip_of(number)
        for tensor in node.variables:
            if tensor in local[chip]:
                continue
            if tensor not in residences:  # an input of the model
                local[chip][tensor] = replace(tensor)
                chips[chip].inputs.append(local[chip][tensor])
            else:
                chips[residences[tensor]].send(local[residences[tensor]][tensor], chip, tags)
                local[chip][tensor] = chips[chip].receive(tensor, residences[tensor], tags)
                tags += 1
        own = node.another(inputs=tuple(None if tensor is None else local[chip].get(tensor, tensor) for tensor in node.inputs))
        for tensor, result in zip(node.outputs, own.outputs, strict=True):
            local[chip][tensor], residences[tensor] = result, chip
        chips[chip].nodes.append(own)
    for tensor in graph.outputs:
        chips[residences[tensor]].outputs.append(local[residences[tensor]][tensor])
    return System(tuple(chip.graph for chip in chips), tuple(t.name for t in graph.inputs), tuple(t.name for t in graph.outputs))


def synchronisations(partition: Partition) -> Mapping[int, int]:
    """How often the chips wait for each other's results, per class that is cut: sums and gatherings."""
    return Counter(c.group for c in partition.collectives if c.kind in ("reduce", "reduce-scatter", "gather") and c.group is not None)
