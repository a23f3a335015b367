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
import onnx_graphsurgeon as gs
from onnx import helper, numpy_helper

from deeploy.errors import UnsupportedError
from deeploy.frontend.attributes import read_array
from deeploy.frontend.branches import Names
from deeploy.frontend.structure import check_and_sort, describe, reads
from deeploy.frontend.walk import Walk

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
class Ends:
    """What a loop has around its body: names of tensors, along whose first axis parts are read and left."""

    carried: Sequence[str]
    scanned: Sequence[str]
    backwards: Sequence[bool]
    results: Sequence[str]  # of what is carried, then of parts; "" where nobody reads it
    results_backwards: Sequence[bool]


def keep(walk: Walk, node: onnx.NodeProto, body: onnx.GraphProto, rounds: int, ends: Ends) -> None:
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
    inner = [*(walk.tensors[name] for name in ends.carried), *(_part(walk.tensors[name]) for name in ends.scanned)]
    inputs = [gs.Variable(name, tensor.dtype, list(tensor.shape)) for name, tensor in zip(given[first:], inner, strict=True)]
    number = gs.Variable(given[0], np.dtype(np.int64), []) if first else None
    constants = {tensor.name: gs.Constant(tensor.name, read_array(tensor, tensor.name)) for tensor in body.initializer}
    constants |= {given[1]: gs.Constant(given[1], np.array(True))} if first else {}
    own = {*given, *constants, *(name for each in nodes for name in each.output)}
    used = dict.fromkeys([*(name for each in nodes for name in reads(each)), *(value.name for value in body.output)])
    outside = {name: walk.tensors[name] for name in used if name not in own}
    constants |= {name: gs.Constant(name, tensor.values) for name, tensor in outside.items() if isinstance(tensor, gs.Constant)}
    captured = [name for name in outside if name not in constants]
    inputs += [gs.Variable(name, outside[name].dtype, list(outside[name].shape)) for name in captured]
    has_number = number is not None and given[0] in used
    state = Walk(walk.version, {}, walk.step, walk.refusal, walk.budget, known=Names.of(body), read=set(used))
    state.tensors |= {**constants, **{variable.name: variable for variable in (*inputs, *([number] if number else []))}}
    state.over(nodes)
    found = [state.tensors[value.name] for value in body.output]
    if first:
        _goes_on(node, found.pop(0))
    for tensor, start in zip(found, inner[: len(ends.carried)], strict=False):
        if (tensor.dtype, list(tensor.shape)) != (start.dtype, list(start.shape)):
            raise UnsupportedError(
                f"{describe(node)} carries {start.dtype}{list(start.shape)} into a round and {tensor.dtype}{list(tensor.shape)} out of it",
                "export the model with tensors of one shape",
            )
    wanted = [position for position, name in enumerate(ends.results) if name or position < len(ends.carried)]
    shown = [*inputs, *([number] if number is not None and has_number else [])]
    ports = body.output[len(body.output) - len(found) :]
    results = [(ports[position].name, found[position]) for position in wanted]
    model = _model(walk.version, nodes, shown, results, constants)
    ways = [way for position, way in enumerate(ends.results_backwards, len(ends.carried)) if position in wanted]
    kept = Body(model, rounds, len(ends.carried), tuple(ends.backwards), tuple(ways), has_number)
    names = [ends.results[position] or walk.known.fresh(f"{node.name or 'loop'}_{position}") for position in wanted]
    _add(walk, node, kept, [*ends.carried, *ends.scanned, *captured], dict(zip(names, (tensor for _, tensor in results), strict=True)))


def _part(tensor: gs.Tensor) -> gs.Variable:
    return gs.Variable(tensor.name, tensor.dtype, list(tensor.shape[1:]))


def _goes_on(node: onnx.NodeProto, condition: gs.Tensor) -> None:
    if not isinstance(condition, gs.Constant) or not np.all(condition.values):
        raise UnsupportedError(f"{describe(node)} ends by a condition", "export the model with a fixed number of iterations")


def _model(
    version: int,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[gs.Variable],
    results: Sequence[tuple[str, gs.Tensor]],
    constants: Mapping[str, gs.Constant],
) -> onnx.ModelProto:
    """A round as a model of its own; results that have the name of another one, or of an input, get their own."""
    read = {name for each in nodes for name in reads(each)} | {name for name, _ in results}
    tensors = [numpy_helper.from_array(np.asarray(constant.values), name) for name, constant in constants.items() if name in read]
    ends, taken = [], read | {variable.name for variable in inputs} | {name for each in nodes for name in each.output}
    for name, tensor in results:
        own = Names(taken, frozenset()).fresh(f"{name}_result")
        ends.append((helper.make_node("Identity", [name], [own]), _port(own, tensor)))
    graph = helper.make_graph(
        [*nodes, *(end for end, _ in ends)], "round", [_port(v.name, v) for v in inputs], [port for _, port in ends], tensors
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])


def _port(name: str, tensor: gs.Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)), list(tensor.shape))


def _add(walk: Walk, node: onnx.NodeProto, body: Body, inputs: Sequence[str], results: Mapping[str, gs.Tensor]) -> None:
    outputs = []
    for position, (name, tensor) in enumerate(results.items()):
        shape = [*([] if position < body.carried else [body.rounds]), *tensor.shape]
        walk.tensors[name] = gs.Variable(name, tensor.dtype, shape)
        outputs.append(walk.tensors[name])
    walk.nodes.append(
        gs.Node(node.op_type, walk.name_of(node), {BODY: body}, [walk.tensors[name] for name in inputs], outputs, domain=LOOPS)
    )
    walk.flat.append(node)
