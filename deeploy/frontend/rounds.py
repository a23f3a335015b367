"""Loops that stay loops: a body that is compiled once, and what each of its rounds reads and writes.

A ``Loop`` or ``Scan`` whose rounds would be too many nodes one behind the other becomes one node of the domain ``LOOPS``, where all rounds
compute the same on tensors of the same shapes. Its inputs are what the first round carries, what is read part by part along the first
axis, and what all rounds read; its outputs what the last round carries, and the parts that rounds leave, along the first axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deeploy.errors import UnsupportedError
from deeploy.frontend.attributes import read_array
from deeploy.frontend.branches import BranchNames
from deeploy.frontend.predicates import type_text, value_of
from deeploy.frontend.structure import check_and_sort, describe_node, read_names
from deeploy.frontend.walk import GraphWalk, known_constant
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType

LOOPS = "deeploy.loops"  # of nodes whose attribute ``BODY`` is a ``Body``
BODY = "body"
CONTROLLED = 2  # inputs of the body of a ``Loop`` in front of those that are carried: the number of the round, and its condition


@dataclass(frozen=True, eq=False)
class Body:
    """What every round computes.

    Attributes:
        model: its inputs are those of the node in the shapes of a round, then the number of the round where ``has_number``; its outputs
            those of the node, in the shapes of a round.
        rounds: how many there are.
        carried: how many inputs and outputs are handed from round to round.
        backwards: of every input that is read part by part, whether the first round reads the last part.
        results_backwards: the same of the outputs.
    """

    model: onnx.ModelProto
    rounds: int
    carried: int
    backwards: tuple[bool, ...]
    results_backwards: tuple[bool, ...]
    has_number: bool


@dataclass(frozen=True)
class LoopTensors:
    """What a loop has around its body: names of tensors, along whose first axis parts are read and left."""

    carried: Sequence[str]
    scanned: Sequence[str]
    backwards: Sequence[bool]
    results: Sequence[str]  # of what is carried, then of parts; "" where nobody reads it
    results_backwards: Sequence[bool]


def keep_loop_node(walk: GraphWalk, node: onnx.NodeProto, body: onnx.GraphProto, rounds: int, ends: LoopTensors) -> None:
    """Add the node of a loop that stays one.

    Args:
        body: of a ``Scan``, or of a ``Loop``, which goes on in all rounds.

    Raises:
        DeeployError: its rounds differ, or something in the body depends on which one it is.
    """
    first = CONTROLLED if node.op_type == "Loop" else 0
    around = walk.known.taken.union(walk.tensors)
    nodes = check_and_sort(body, around)
    given = [value.name for value in body.input]
    carried, scanned = ([walk.operand(walk.tensors[name], name) for name in names] for names in (ends.carried, ends.scanned))
    inner = [*carried, *(Tensor(tensor.name, tensor.shape[1:], tensor.dtype) for tensor in scanned)]
    inputs = [Tensor(name, tensor.shape, tensor.dtype) for name, tensor in zip(given[first:], inner, strict=True)]
    number = Tensor(given[0], (), DType.INT64) if first else None
    constants = {tensor.name: read_array(tensor, tensor.name) for tensor in body.initializer}
    constants |= {given[1]: np.array(True)} if first else {}
    own = {*given, *constants, *(name for each in nodes for name in each.output)}
    used = dict.fromkeys([*(name for each in nodes for name in read_names(each)), *(value.name for value in body.output)])
    outside = {name: walk.tensors[name] for name in used if name not in own}
    constants |= {name: value for name, tensor in outside.items() if (value := value_of(tensor)) is not None}
    captured = {name: walk.operand(tensor, name) for name, tensor in outside.items() if name not in constants}
    inputs += [Tensor(name, tensor.shape, tensor.dtype) for name, tensor in captured.items()]
    has_number = number is not None and given[0] in used
    state = GraphWalk(walk.version, {}, walk.step, walk.refusal, walk.budget, known=BranchNames.of(body), read=set(used))
    state.tensors |= {name: known_constant(value, name) for name, value in constants.items()}
    state.tensors |= {variable.name: variable for variable in (*inputs, *([number] if number else []))}
    state.over(nodes)
    outputs = [state.operand(state.tensors[value.name], value.name) for value in body.output]
    if first:
        _goes_on(node, outputs.pop(0))
    for tensor, start in zip(outputs, carried, strict=False):
        if (tensor.dtype, tensor.shape) != (start.dtype, start.shape):
            raise UnsupportedError(
                f"{describe_node(node)} carries {type_text(start)} into a round and {type_text(tensor)} out of it",
                "export the model with tensors of one shape",
            )
    wanted = [position for position, name in enumerate(ends.results) if name or position < len(ends.carried)]
    shown = [*inputs, *([number] if number is not None and has_number else [])]
    ports = body.output[len(body.output) - len(outputs) :]
    results = [(ports[position].name, outputs[position]) for position in wanted]
    model = _round_model(walk.version, nodes, shown, results, constants)
    ways = [way for position, way in enumerate(ends.results_backwards, len(ends.carried)) if position in wanted]
    kept = Body(model, rounds, len(ends.carried), tuple(ends.backwards), tuple(ways), has_number)
    names = [ends.results[position] or walk.known.fresh(f"{node.name or 'loop'}_{position}") for position in wanted]
    _add_loop_node(
        walk, node, kept, [*ends.carried, *ends.scanned, *captured], dict(zip(names, (tensor for _, tensor in results), strict=True))
    )


def _goes_on(node: onnx.NodeProto, condition: Tensor) -> None:
    if condition.data is None or not np.all(condition.data):
        raise UnsupportedError(f"{describe_node(node)} ends by a condition", "export the model with a fixed number of iterations")


def _round_model(
    version: int,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Tensor],
    results: Sequence[tuple[str, Tensor]],
    constants: Mapping[str, np.ndarray],
) -> onnx.ModelProto:
    """A round as a model of its own; results that have the name of another one, or of an input, get their own."""
    read = {name for each in nodes for name in read_names(each)} | {name for name, _ in results}
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items() if name in read]
    ends, taken = [], read | {variable.name for variable in inputs} | {name for each in nodes for name in each.output}
    for name, tensor in results:
        own = BranchNames(taken).fresh(f"{name}_result")
        ends.append((helper.make_node("Identity", [name], [own]), _round_port(own, tensor)))
    graph = helper.make_graph(
        [*nodes, *(end for end, _ in ends)], "round", [_round_port(v.name, v) for v in inputs], [port for _, port in ends], tensors
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])


def _round_port(name: str, tensor: Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(tensor.dtype.numpy), tensor.shape)


def _add_loop_node(walk: GraphWalk, node: onnx.NodeProto, body: Body, inputs: Sequence[str], results: Mapping[str, Tensor]) -> None:
    outputs = {
        name: Tensor(name, (*(() if position < body.carried else (body.rounds,)), *tensor.shape), tensor.dtype)
        for position, (name, tensor) in enumerate(results.items())
    }
    operands = tuple(walk.operand(walk.tensors[name], name) for name in inputs)
    Node(walk.name_of(node), node.op_type, operands, tuple(outputs.values()), {BODY: body}, domain=LOOPS)
    walk.tensors |= outputs
    walk.flat.append(node)
