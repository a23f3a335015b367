"""Graphs of onnx-graphsurgeon: what is read from and written to the value graph, and what those who still edit them in place share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.logger import G_LOGGER

from deeploy.graph.nodes import Node, Tensor
from deeploy.graph.types import DType
from deeploy.graph.values import Graph

# Rewritten constants keep their origin's name; only names of variables have to be unique, and passes keep them so.
G_LOGGER.severity = G_LOGGER.ERROR


def read_graph(graph: gs.Graph) -> Graph:
    """The value graph of a sorted graph of onnx-graphsurgeon."""
    known: dict[int, Tensor] = {}

    def read(tensor: gs.Tensor) -> Tensor | None:
        if isinstance(tensor, gs.Variable) and (tensor.is_empty() or tensor.shape is None):  # what nobody reads may have no shape
            return None
        if id(tensor) not in known:
            data = np.asarray(tensor.values) if isinstance(tensor, gs.Constant) else None
            dtype: Any = data.dtype if data is not None else tensor.dtype
            known[id(tensor)] = Tensor(tensor.name, tuple(int(n) for n in tensor.shape), DType.of(dtype), data)
        return known[id(tensor)]

    inputs = [tensor for tensor in map(read, graph.inputs) if tensor is not None]
    for node in graph.nodes:
        results = tuple(read(tensor) or Tensor("", (), DType.FLOAT32) for tensor in node.outputs)
        Node(node.name, node.op, tuple(map(read, node.inputs)), results, dict(node.attrs), domain=node.domain or "")
    outputs = [tensor for tensor in map(read, graph.outputs) if tensor is not None]
    return Graph(graph.name, tuple(inputs), tuple(outputs), graph.opset, graph.import_domains)


def write_graph(graph: Graph) -> gs.Graph:
    """The graph of onnx-graphsurgeon for a value graph."""
    known: dict[Tensor, gs.Tensor] = {}

    def write(tensor: Tensor | None) -> gs.Tensor:
        if tensor is None or not (tensor.name or tensor.data is not None):
            return gs.Variable.empty()
        if tensor not in known:
            is_constant = tensor.data is not None
            known[tensor] = (
                gs.Constant(tensor.name, tensor.data) if is_constant else gs.Variable(tensor.name, tensor.dtype.numpy, list(tensor.shape))
            )
        return known[tensor]

    nodes = [
        gs.Node(node.op, node.name, dict(node.attrs), list(map(write, node.inputs)), list(map(write, node.outputs)), domain=node.domain)
        for node in graph.nodes
    ]
    inputs, outputs = (list(map(write, tensors)) for tensors in (graph.inputs, graph.outputs))
    return gs.Graph(nodes, inputs, outputs, graph.name, opset=graph.opset, import_domains=graph.domains)


def write_model(graph: Graph, **more: Any) -> onnx.ModelProto:
    """The file of a value graph, for a viewer or another tool: open limits and empty lists have no attribute of ONNX and are left out.

    Args:
        more: fields of the file.
    """
    written = write_graph(graph)
    for node in written.nodes:
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in node.attrs.items()}
        node.attrs = {name: int(v) if isinstance(v, bool) else v for name, v in plain.items() if v is not None and v != []}
    model: onnx.ModelProto = gs.export_onnx(written, do_type_check=False, **more)
    return model


def sort(graph: gs.Graph) -> gs.Graph:
    """Sort the nodes of a graph without cycles in place: by the most nodes in a row before them, then as the outputs read them.

    The order follows from the graph alone, whatever made it; nodes that no output depends on come last of a row, as they are found.
    """
    levels: dict[int, int] = {}
    found: list[gs.Node] = []
    for root in [*(node for tensor in graph.outputs for node in tensor.inputs), *graph.nodes]:
        path = [] if id(root) in levels else [(root, iter(_sources(root)))]
        while path:
            node, sources = path[-1]
            source = next((s for s in sources if id(s) not in levels), None)
            if source is not None:
                path.append((source, iter(_sources(source))))
                continue
            levels[id(node)] = 1 + max((levels[id(s)] for s in _sources(node)), default=-1)
            found.append(node)
            path.pop()
    graph.nodes = sorted(found, key=lambda node: levels[id(node)])
    return graph


def _sources(node: gs.Node) -> list[gs.Node]:
    return [source for tensor in node.inputs for source in tensor.inputs]


def constant(tensor: gs.Tensor) -> np.ndarray | None:
    """The value of a constant tensor, else None."""
    return np.asarray(tensor.values) if isinstance(tensor, gs.Constant) else None


def producer(tensor: gs.Tensor, op: str | None = None) -> gs.Node | None:
    """The node that computes ``tensor``, if there is one and it has the operator ``op``."""
    if not tensor.inputs or (op is not None and tensor.inputs[0].op != op):
        return None
    return tensor.inputs[0]


def only_consumer(graph: gs.Graph, tensor: gs.Tensor, op: str | None = None) -> gs.Node | None:
    """The single node that reads ``tensor`` (once), if it has the operator ``op`` and the tensor is no graph output."""
    if len(tensor.outputs) != 1 or any(tensor is out for out in graph.outputs):
        return None
    node = tensor.outputs[0]
    if (op is not None and node.op != op) or sum(i is tensor for i in node.inputs) != 1:
        return None
    return node


def variable(name: str, dtype: np.typing.DTypeLike, shape: Sequence[int]) -> gs.Variable:
    return gs.Variable(name, np.dtype(dtype), [int(n) for n in shape])


def const(name: str, values: np.typing.ArrayLike, dtype: np.typing.DTypeLike | None = None) -> gs.Constant:
    return gs.Constant(name, np.ascontiguousarray(np.asarray(values, dtype)))


def described(node: gs.Node) -> Node:
    """The read-only view of a lowered node, which has no absent operands, that declarations are evaluated on."""
    return Node(node.name, node.op, tuple(map(_described, node.inputs)), tuple(map(_described, node.outputs)), node.attrs)


def _described(tensor: gs.Tensor) -> Tensor:
    data = np.asarray(tensor.values) if isinstance(tensor, gs.Constant) else None
    return Tensor(tensor.name, tuple(int(n) for n in tensor.shape), DType.of(tensor.dtype), data)


def take_over(node: gs.Node) -> gs.Variable:
    """Disconnect the only result of ``node`` and return it."""
    y = node.outputs[0]
    node.outputs.clear()
    return y
