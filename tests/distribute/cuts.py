"""Graphs cut by hand, for tests of everything that works on systems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_graphsurgeon as gs

from deeploy.distribute.system import System
from deeploy.driver.lower import Clock
from deeploy.driver.lower import lowered as imported
from deeploy.driver.request import Dialect, Request
from deeploy.frontend import import_model
from deeploy.graph.nodes import INTEGER_FORM
from deeploy.graph.rewriting import rewrite
from deeploy.graph.surgeon import write_graph
from deeploy.graph.target import Target
from deeploy.operators.link import receive, send
from deeploy.target import load


def lowered(model: onnx.ModelProto, folder: Path, target: Target | None = None) -> gs.Graph:
    """A model as the passes of a target leave it."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    return write_graph(rewrite(import_model(path), (target or load("generic")).passes))


def lowered_file(
    path: Path, target: Target, *, inputs: Path | None = None, dialect: Dialect | None = None, context: int | None = None, **dims: int
) -> gs.Graph:
    """A file as the passes of a target leave it; ``dims`` are its symbolic dimensions."""
    return write_graph(imported(Clock(), path, target, Request(inputs=inputs, dialect=dialect, dims=dims, context=context)).graph)


def cut(graph: gs.Graph, chip_of: Callable[[int], int], chips: int) -> System:
    """Give node i to chip ``chip_of(i)``; what another chip needs of its outputs is sent there once, with a tag of its own."""
    graphs = [gs.Graph(name=f"chip{chip}", opset=graph.opset) for chip in range(chips)]
    local: list[dict[int, gs.Tensor]] = [{} for _ in range(chips)]
    residences: dict[int, int] = {}
    tags = 0
    for number, node in enumerate(graph.nodes):
        chip = chip_of(number)
        inputs = []
        for tensor in node.inputs:
            if isinstance(tensor, gs.Constant) or tensor.is_empty():
                inputs.append(tensor)
                continue
            if id(tensor) not in local[chip]:
                if id(tensor) not in residences:  # an input of the model
                    local[chip][id(tensor)] = gs.Variable(tensor.name, tensor.dtype, tensor.shape)
                    graphs[chip].inputs.append(local[chip][id(tensor)])
                else:
                    send(graphs[residences[id(tensor)]], local[residences[id(tensor)]][id(tensor)], chip, tags)
                    local[chip][id(tensor)] = receive(graphs[chip], tensor, residences[id(tensor)], tags)
                    tags += 1
            inputs.append(local[chip][id(tensor)])
        outputs = [gs.Variable(t.name, t.dtype, t.shape) for t in node.outputs]
        for tensor, own in zip(node.outputs, outputs, strict=True):
            local[chip][id(tensor)], residences[id(tensor)] = own, chip
        graphs[chip].nodes.append(gs.Node(node.op, node.name, dict(node.attrs), inputs, outputs, domain=INTEGER_FORM))
    for tensor in graph.outputs:
        graphs[residences[id(tensor)]].outputs.append(local[residences[id(tensor)]][id(tensor)])
    return System(tuple(graphs), tuple(t.name for t in graph.inputs), tuple(t.name for t in graph.outputs))
