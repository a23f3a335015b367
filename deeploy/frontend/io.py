"""What the caller must know of a network's inputs and outputs: scales, and how exact an output can be expected to be.

Works on the lowered graph, before it is bound.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.values import Graph, change_nodes, substitute_tensors

_FORWARD = ("Reshape", "Transpose", "Slice", "Copy")


class Equality(Enum):
    """How an output is compared with a golden one."""

    EXACT = "exact"  # integer graphs: bit for bit
    STEPS = "steps"  # quantised graphs: at most one step apart, 99 % equal
    SOFTMAX = "softmax"  # probabilities: within 10/255, same maximum among the tied
    FLOAT = "float"  # within 1e-4, absolute or relative


@dataclass(frozen=True)
class Port:
    """One input or output: value = scale * (stored - zero_point)."""

    name: str
    scale: float = 1.0
    zero_point: int = 0
    equality: Equality = Equality.FLOAT
    step: float = 1.0  # of the quantisation that the values went through last
    labels: tuple[str, ...] = ()  # of what it is an index of


def strip_quantisation(graph: Graph, states: Collection[str] = ()) -> tuple[Graph, dict[str, tuple[float, int]]]:
    """Make the integer tensors behind Quantize inputs and before Dequantize outputs the graph's own (``--quantised-io``).

    Returns scale and zero point of every tensor that was stripped, by its name in the graph. An input that is used other
    than by one quantisation, or an output that is used inside, stays as it is; so do those named in ``states``.
    """
    ranges: dict[str, tuple[float, int]] = {}
    inputs, inner = list(graph.inputs), dict[Tensor, Tensor]()  # by quantised tensors, the inputs that are read instead
    for position, tensor in enumerate(inputs):
        nodes = graph.readers.get(tensor, [])
        if tensor.name not in states and len(nodes) == 1 and nodes[0].op == "Quantize" and (parameters := scalar_parameters(nodes[0])):
            (result,) = nodes[0].outputs
            inputs[position] = inner[result] = replace(result, name=tensor.name, maker=None)
            ranges[tensor.name] = parameters
    graph = substitute_tensors(replace(graph, inputs=tuple(inputs)), inner)
    outputs, names = list(graph.outputs), dict[str, str]()
    for position, tensor in enumerate(outputs):
        node = tensor.made_by("Dequantize")
        if tensor.name in states or node is None or tensor in graph.readers or not (parameters := scalar_parameters(node)):
            continue
        source = node.operands[0]
        if source.data is None and source not in (*graph.inputs, *outputs):
            outputs[position], names[source.name], ranges[tensor.name] = source, tensor.name, parameters

    def renamed(node: Node) -> Node:
        results = tuple(replace(tensor, name=names.get(tensor.name, tensor.name)) for tensor in node.outputs)
        return node.another(outputs=results) if any(tensor.name in names for tensor in node.outputs) else node

    return change_nodes(replace(graph, outputs=tuple(outputs)), renamed), ranges


def scalar_parameters(node: Node) -> tuple[float, int] | None:
    """Scale and zero point of a Quantize or Dequantize, where it has one of each."""
    scale, zero = (tensor.number for tensor in node.operands[1:3])
    return None if scale is None or zero is None else (float(scale), int(zero))


def describe_ports(graph: Graph, dialect: bool, stripped: dict[str, tuple[float, int]]) -> tuple[list[Port], list[Port]]:
    """Describe the inputs and outputs of a lowered graph."""
    quantised = any(node.op in ("Dequantize", "Quantize") for node in graph.nodes) or bool(stripped)
    inputs = [Port(t.name, *stripped.get(t.name, (1.0, 0))) for t in graph.inputs]
    outputs = []
    for tensor in graph.outputs:
        scale, zero = stripped.get(tensor.name, (1.0, 0))
        outputs.append(_output_port(tensor, scale, zero, dialect, quantised))
    return inputs, outputs


def _output_port(tensor: Tensor, scale: float, zero: int, dialect: bool, quantised: bool) -> Port:
    node = _find_origin(tensor)
    step = scale
    if node is not None and node.op == "Dequantize":
        values = node.operands[1].data
        step = float(np.max(values)) if values is not None else 1.0
        node = _find_origin(node.operands[0])
    integer = not tensor.dtype.is_float
    if dialect and (integer or not quantised):
        equality = Equality.EXACT if integer else Equality.FLOAT
    elif node is not None and node.op == "Softmax" and (quantised or integer):
        equality = Equality.SOFTMAX
    elif integer or step != scale:
        equality = Equality.STEPS
    else:
        equality = Equality.FLOAT
    return Port(tensor.name, scale, zero, equality, step)


def _find_origin(tensor: Tensor) -> Node | None:
    """The node that computed the values of ``tensor``, looking through views."""
    while (view := tensor.made_by(*_FORWARD)) is not None:
        tensor = view.operands[0]
    return tensor.maker
