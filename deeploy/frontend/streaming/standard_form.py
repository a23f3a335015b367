"""The normalised graph as a file that another runtime reads: what newer versions of ONNX have as inputs are inputs again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx

from deeploy.frontend.recurrent import FUNCTIONS
from deeploy.ir.nodes import Attributes, Node, Tensor
from deeploy.ir.surgeon import write_model
from deeploy.ir.types import DType
from deeploy.ir.values import Graph, change_nodes
from deeploy.operators.recurrent import GATES

_LEAST_OPSET = 13  # whose Softmax and quantisation along an axis the normalised graph has
_INPUTS: Mapping[str, tuple[str, ...]] = {
    "Slice": ("starts", "ends", "axes", "steps"),
    "Clip": ("min", "max"),
    "Pad": ("pads", "value"),
    "Split": ("split",),
    "Reshape": ("shape",),
    "Expand": ("shape",),
}


def write_standard(graph: Graph) -> onnx.ModelProto:
    """The file of a normalised graph."""
    opset = max(graph.opset, _LEAST_OPSET)
    domains = [onnx.helper.make_opsetid(one.domain, opset if one.domain in ("", "ai.onnx") else one.version) for one in graph.domains]
    graph = change_nodes(replace(graph, opset=opset, domains=domains), lambda node: _state_inputs(node, opset))
    return write_model(graph, ir_version=8)


def _state_inputs(node: Node, opset: int) -> Node:
    """A node with inputs where ONNX has these instead of attributes, and with no attributes but those that ONNX has."""
    if node.domain or not onnx.defs.has(node.op, opset, ""):
        return node
    y, x, attrs = node.outputs[0], node.operands[0], dict(node.attrs)
    if node.op in GATES:
        attrs |= {"hidden_size": node.operands[2].shape[-1], "clip": attrs["clip"] or None, **_name_activations(attrs["functions"])}
    values: Attributes = {"axes": range(y.rank), "shape": y.shape, **attrs}
    names = _INPUTS.get(node.op, ())
    if node.op.startswith("Reduce") and (opset >= 18 or (node.op == "ReduceSum" and opset >= 13)):
        names = ("axes",)
    made: list[Tensor | None] = []
    for name in names:
        kind = x.dtype.numpy if name in ("min", "max", "value") else np.int64
        value = None if values[name] is None else np.asarray(values[name], kind)
        made.append(None if value is None else Tensor(f"{y.name} ({name})", value.shape, DType.of(value.dtype), value))
    known = onnx.defs.get_schema(node.op, opset, "").attributes
    kept = {name: value for name, value in attrs.items() if name in known and name not in names and value is not None}
    return node.another(inputs=(*node.inputs, *made), attrs=kept)


def _name_activations(functions: Sequence[tuple[str, float, float]]) -> Attributes:
    """The functions of a recurrent layer as ONNX has them: parameters of those alone that have some."""
    known = sorted((len(parameters), name) for name, parameters in FUNCTIONS.values())
    numbers, titles = {name: count for count, name in known}, {name: name.title().replace("_", "") for _, name in known}
    alphas, betas = ([f[place] for f in functions if numbers[f[0]] >= place] for place in (1, 2))
    return {"activations": [titles[name] for name, _, _ in functions], "activation_alpha": alphas, "activation_beta": betas}
