"""What the caller must know of a network's inputs and outputs: scales, and how exact an output can be expected to be.

Works on the lowered graph, before it is bound.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.graph.surgeon import constant, producer, sort
from deeploy.operators.views import KEEP

_FORWARD = ("Reshape", "Transpose", "Slice", "Copy")


class Equality(Enum):
    """How an output is compared with a golden one (ARCHITECTURE.md, Numbers)."""

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


def strip_quantisation(graph: gs.Graph, states: Collection[str] = ()) -> dict[str, tuple[float, int]]:
    """Make the integer tensors behind Quantize inputs and before Dequantize outputs the graph's own (``--quantised-io``).

    Returns scale and zero point of every tensor that was stripped, by its name in the graph. An input that is used other
    than by one quantisation, or an output that is used inside, stays as it is; so do those named in ``states``.
    """
    found: dict[str, tuple[float, int]] = {}
    for position, tensor in enumerate(graph.inputs):
        nodes = list(tensor.outputs)
        if tensor.name not in states and len(nodes) == 1 and nodes[0].op == "Quantize" and (parameters := scalar_parameters(nodes[0])):
            inner = nodes[0].outputs[0]
            nodes[0].inputs.clear()
            nodes[0].outputs.clear()
            graph.inputs[position] = inner
            _rename(graph, inner, tensor.name)
            found[inner.name] = parameters
    for position, tensor in enumerate(graph.outputs):
        node = producer(tensor, "Dequantize")
        if tensor.name in states or node is None or tensor.outputs or not (parameters := scalar_parameters(node)):
            continue
        inner = node.inputs[0]
        if isinstance(inner, gs.Constant) or any(inner is t for t in (*graph.inputs, *graph.outputs)):
            continue
        name = tensor.name
        node.inputs.clear()
        node.outputs.clear()
        graph.outputs[position] = inner
        _rename(graph, inner, name)
        found[name] = parameters
    kept = [tensor for node in graph.nodes if node.op == KEEP for tensor in node.outputs]  # states, which nothing else reads
    outputs = list(graph.outputs)
    graph.outputs += kept
    sort(graph.cleanup())
    graph.outputs = outputs
    return found


def _rename(graph: gs.Graph, tensor: gs.Tensor, name: str) -> None:
    for other in graph.tensors().values():
        if other.name == name and other is not tensor:
            other.name = f"{name} (float)"
    tensor.name = name


def scalar_parameters(node: gs.Node) -> tuple[float, int] | None:
    """Scale and zero point of a Quantize or Dequantize, where it has one of each."""
    scale, zero = constant(node.inputs[1]), constant(node.inputs[2])
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    return float(scale.item()), int(zero.item())


def ports(graph: gs.Graph, dialect: bool, stripped: dict[str, tuple[float, int]]) -> tuple[list[Port], list[Port]]:
    """Describe the inputs and outputs of a lowered graph."""
    quantised = any(node.op in ("Dequantize", "Quantize") for node in graph.nodes) or bool(stripped)
    inputs = [Port(t.name, *stripped.get(t.name, (1.0, 0))) for t in graph.inputs]
    outputs = []
    for tensor in graph.outputs:
        scale, zero = stripped.get(tensor.name, (1.0, 0))
        outputs.append(_output_port(tensor, scale, zero, dialect, quantised))
    return inputs, outputs


def _output_port(tensor: gs.Tensor, scale: float, zero: int, dialect: bool, quantised: bool) -> Port:
    node = _origin(tensor)
    step = scale
    if node is not None and node.op == "Dequantize":
        values = constant(node.inputs[1])
        step = float(np.max(values)) if values is not None else 1.0
        node = _origin(node.inputs[0])
    integer = np.dtype(tensor.dtype).kind in "iub"
    if dialect and (integer or not quantised):
        equality = Equality.EXACT if integer else Equality.FLOAT
    elif node is not None and node.op == "Softmax" and (quantised or integer):
        equality = Equality.SOFTMAX
    elif integer or step != scale:
        equality = Equality.STEPS
    else:
        equality = Equality.FLOAT
    return Port(tensor.name, scale, zero, equality, step)


def _origin(tensor: gs.Tensor) -> gs.Node | None:
    """The node that computed the values of ``tensor``, looking through views."""
    node = producer(tensor)
    while node is not None and node.op in _FORWARD:
        node = producer(node.inputs[0])
    return node
