"""What the caller must know of a network's inputs and outputs: scales, and how exact an output can be expected to be.

Works on the lowered graph, before it is bound.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from deeploy.errors import UsageError, shorten
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


def remove_io_quantisation(graph: Graph, states: Collection[str] = ()) -> tuple[Graph, dict[str, tuple[float, int]]]:
    """Make the integer tensors behind Quantize inputs and before Dequantize outputs the graph's own (``--quantised-io``).

    What only moves elements between a port and its conversion, as for another layout, moves integers then. Returns scale and zero point
    of every tensor that was stripped, by its name in the graph. An input that is used other than by equal quantisations, or an output
    that is used inside, stays as it is (``check_integer_ports``); so do those named in ``states``.
    """
    graph, ranges = _convert_inputs(graph, states)
    graph, moved_ranges = _convert_behind_moves(graph, states)
    ranges |= moved_ranges
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


def check_integer_ports(graph: Graph, states: Collection[str]) -> None:
    """Check that nothing but states enters or leaves the network as floats.

    Raises:
        UsageError: something does; names the node that needs or computes floats.
    """
    for tensor in (*graph.inputs, *graph.outputs):
        if not tensor.dtype.is_float or tensor.name in states:
            continue
        if tensor in graph.inputs:
            nodes = [node for node in _follow_moves(graph, tensor)[1] if node.op != "Quantize"]
            reason = f"{nodes[0]} reads floats of it" if nodes else "it is quantised in several ways, per channel, or not at all"
        else:
            reason = f"{node} computes floats" if (node := _find_origin(tensor)) is not None else "it is an input"
            if node is not None and node.op == "Dequantize":
                reason = f"what {node} computes has several scales, or is used elsewhere too"
        kind = "input" if tensor in graph.inputs else "output"
        raise UsageError(
            f"--quantised-io: {kind} {shorten(tensor.name)} cannot be integers, as {reason}",
            "Quantise the network from its inputs to its outputs, each with one scale, or leave out --quantised-io.",
        )


def _follow_moves(graph: Graph, tensor: Tensor) -> tuple[list[Tensor], list[Node]]:
    """A tensor and those with its elements moved, and the nodes that do something else with one of them."""
    moved, nodes = [tensor], list[Node]()
    for each in moved:
        for node in graph.readers.get(each, []):
            if node.op in _FORWARD and node.operands[0] is each:
                moved += node.outputs
            else:
                nodes.append(node)
    return moved, nodes


def _convert_inputs(graph: Graph, states: Collection[str]) -> tuple[Graph, dict[str, tuple[float, int]]]:
    """The inputs that are only quantised, all in one way, become integers; what a quantisation limits besides is a Clip of its own then."""
    inputs, ranges, quantised = dict[Tensor, Tensor](), dict[str, tuple[float, int]](), set[str]()
    for tensor in graph.inputs:
        moved, nodes = _follow_moves(graph, tensor)
        if tensor.name in states or {*moved} & {*graph.outputs, *graph.next_states} or any(n.op != "Quantize" or n.epilogue for n in nodes):
            continue
        ways = {(scalar_parameters(node), node.outputs[0].dtype) for node in nodes}
        if len(ways) == 1 and (parameters := scalar_parameters(nodes[0])) is not None:
            inputs[tensor] = replace(tensor, dtype=nodes[0].outputs[0].dtype)
            ranges[tensor.name] = parameters
            quantised |= {node.outputs[0].name for node in nodes}

    def integers(node: Node) -> Node:
        if node.op == "Quantize" and node.outputs[0].name in quantised:
            return node.another(op="Clip", inputs=node.operands[:1], attrs={name: node.attrs[name] for name in ("low", "high")})
        return _retype_moves(node)

    graph = replace(graph, inputs=tuple(inputs.get(tensor, tensor) for tensor in graph.inputs))
    graph = change_nodes(substitute_tensors(graph, inputs), integers)
    clips = [node for node in graph.nodes if node.outputs and node.outputs[0].name in quantised]
    whole = [clip for clip in clips if (clip.attrs["low"], clip.attrs["high"]) == clip.outputs[0].dtype.range]
    return substitute_tensors(graph, {clip.outputs[0]: clip.operands[0] for clip in whole}), ranges


def _convert_behind_moves(graph: Graph, states: Collection[str]) -> tuple[Graph, dict[str, tuple[float, int]]]:
    """Outputs whose elements are moved after they were converted to floats become integers."""
    sources, ranges = dict[Tensor, Tensor](), dict[str, tuple[float, int]]()
    for tensor in graph.outputs:
        first = tensor
        while (node := first.made_by(*_FORWARD)) is not None and graph.readers.get(node.operands[0]) == [node]:
            first = node.operands[0]
        node = first.made_by("Dequantize")
        if (
            first is tensor
            or node is None
            or tensor.name in states
            or tensor in graph.readers
            or {first} & {*graph.outputs, *graph.next_states}
        ):
            continue
        if (parameters := scalar_parameters(node)) is not None and node.operands[0].data is None:
            sources[first], ranges[tensor.name] = node.operands[0], parameters
    return change_nodes(substitute_tensors(graph, sources), _retype_moves), ranges


def _retype_moves(node: Node) -> Node:
    """A node that moves what are integers now, with integers as results."""
    if node.op not in _FORWARD or node.operands[0].dtype.is_float or not node.outputs[0].dtype.is_float:
        return node
    return node.another(outputs=tuple(replace(tensor, dtype=node.operands[0].dtype) for tensor in node.outputs))


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
