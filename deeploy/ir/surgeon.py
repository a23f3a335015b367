"""Graphs of onnx-graphsurgeon, read as value graphs and written from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.logger import G_LOGGER

from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph

# Rewritten constants keep their origin's name; only names of variables have to be unique, and passes keep them so.
G_LOGGER.severity = G_LOGGER.ERROR


def read_graph(graph: gs.Graph) -> Graph:
    """The value graph of a graph of onnx-graphsurgeon."""
    known: dict[int, Tensor] = {}

    def read(tensor: gs.Tensor) -> Tensor | None:
        if isinstance(tensor, gs.Variable) and (tensor.is_empty() or tensor.shape is None):  # what nobody reads may have no shape
            return None
        if id(tensor) not in known:
            data = np.asarray(tensor.values) if isinstance(tensor, gs.Constant) else None
            dtype: Any = data.dtype if data is not None else tensor.dtype
            known[id(tensor)] = Tensor(tensor.name, tuple(int(n) for n in tensor.shape), DType.of(dtype), data)
        return known[id(tensor)]

    for node in graph.nodes:
        results = tuple(read(tensor) or Tensor("", (), DType.FLOAT32) for tensor in node.outputs)
        Node(node.name, node.op, tuple(map(read, node.inputs)), results, dict(node.attrs), domain=node.domain or "")
    inputs, outputs = (tuple(filter(None, map(read, tensors))) for tensors in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs, graph.opset, graph.import_domains)


def read_model(model: onnx.ModelProto) -> Graph | None:
    """The value graph of a file; None where a shape is open, or the generated code does not have some elements."""
    graph = gs.import_onnx(model)
    tensors = [tensor for tensor in graph.tensors().values() if not tensor.is_empty()]
    is_known = all(t.shape is not None and all(isinstance(n, int) for n in t.shape) and DType.has(t.dtype) for t in tensors)
    return read_graph(graph) if is_known else None


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
