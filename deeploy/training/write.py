"""A graph of float operators as ONNX that other runtimes read: attributes of the normalised graph become inputs where ONNX has them so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deeploy.frontend.states import next_name
from deeploy.ir.nodes import Attributes, Node, Tensor, name_part
from deeploy.ir.values import Graph, sort_nodes

OPSET, IR_VERSION = 20, 9  # the first ones with Gelu
_RENAMED = {"value": "constant_value"}  # attributes of older versions, by the name of the input


def write_step(
    graph: Graph, results: Mapping[str, Tensor], initial: Mapping[Tensor, np.ndarray], following: Mapping[Tensor, Tensor]
) -> onnx.ModelProto:
    """The file of a graph with states: results have names, states are inputs with values, and have outputs called ``next_name``."""
    writer = _StepWriter(graph, max(graph.opset, OPSET))
    states = list(following)
    for tensor in (*graph.inputs, *states):
        writer.names[tensor] = tensor.name
        writer.written.add(tensor.name)
    ends = {**results, **{next_name(state.name): following[state] for state in states}}
    writer.written.update(ends)
    copied = [name for name, tensor in ends.items() if tensor.data is not None or writer.names.setdefault(tensor, name) != name]
    for node in sort_nodes(list(ends.values())):
        writer.add(node)
    for name in copied:
        writer.nodes.append(helper.make_node("Identity", [writer.name(ends[name])], [name], f"{name}.out"))
    values = [numpy_helper.from_array(np.asarray(initial[state], order="C"), state.name) for state in states]
    written = helper.make_graph(
        writer.nodes,
        graph.name,
        [_port(tensor.name, tensor) for tensor in (*graph.inputs, *states)],
        [_port(name, tensor) for name, tensor in ends.items()],
        [*values, *writer.constants],
    )
    domains = [helper.make_opsetid(entry.domain, entry.version) for entry in graph.domains or () if entry.domain not in ("", "ai.onnx")]
    imports = [helper.make_opsetid("", writer.opset), *domains]
    return helper.make_model(written, opset_imports=imports, ir_version=IR_VERSION)


def _port(name: str, tensor: Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(tensor.dtype.numpy), tensor.shape)


class _StepWriter:
    """Nodes and constants of a file, and the names of its tensors."""

    def __init__(self, graph: Graph, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.names: dict[Tensor, str] = {}
        self.written: set[str] = set()
        self.taken = {tensor.name for node in graph.nodes for tensor in (*node.operands, *node.outputs)}

    def name(self, tensor: Tensor) -> str:
        """The name of a tensor in the file; constants are written with their first reader."""
        if tensor not in self.names:
            is_free = tensor.name and tensor.name not in self.written
            self.names[tensor] = tensor.name if is_free else name_part("step", tensor.label or "constant", self.taken)
            self.written.add(self.names[tensor])
            if tensor.data is not None:
                self.constants.append(numpy_helper.from_array(np.asarray(tensor.data, order="C"), self.names[tensor]))
        return self.names[tensor]

    def add(self, node: Node) -> None:
        """Write a node; what its version of the operator takes as inputs instead of attributes are constants behind its inputs."""
        inputs = ["" if tensor is None else self.name(tensor) for tensor in node.inputs]
        result = node.outputs[0]
        attrs = {**node.attrs, "shape": result.shape} if node.op in ("Reshape", "Expand") else node.attrs
        if node.op == "Cast":
            attrs = {"to": helper.np_dtype_to_tensor_dtype(result.dtype.numpy)}
        if not node.domain and onnx.defs.has(node.op):
            schema = onnx.defs.get_schema(node.op, self.opset, "")
            inputs += self._write_settings(node, attrs, [each.name for each in schema.inputs])
            attrs = {name: value for name, value in attrs.items() if name in schema.attributes}
        outputs = [self.name(tensor) for tensor in node.outputs]
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in attrs.items()}
        written = helper.make_node(node.op, inputs, outputs, node.name or outputs[0], domain=node.domain)
        for name, value in plain.items():
            is_default = name == "dilations" and {*value} == {1}  # which onnxruntime's integer pools do not know
            if value is not None and value != [] and not is_default:
                written.attribute.append(helper.make_attribute(name, int(value) if isinstance(value, bool) else value))
        self.nodes.append(written)

    def _write_settings(self, node: Node, attrs: Attributes, known: Sequence[str]) -> list[str]:
        """Constants for attributes that are inputs, with empty places between them where others are absent."""
        names, dtype = list[str](), node.operands[0].dtype
        for name in known[len(node.inputs) :]:
            value = attrs.get(next((old for old, new in _RENAMED.items() if new == name), name))
            array = np.array(value, np.int64 if np.ndim(value) else dtype.numpy) if value is not None else None
            names.append("" if array is None else self.name(Tensor("", array.shape, dtype, array, label=name)))
        while names and not names[-1]:
            names.pop()
        return names
