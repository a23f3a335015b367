"""One walk over a sorted model: every tensor gets a shape, every constant subgraph its value.

Shapes and constants need each other (``Shape`` makes constants, ``Reshape`` needs them), so both are found in the same
walk, node by node. What comes out are the model's own nodes on typed tensors, without those that compute nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from deeploy.errors import DeeployError, ModelError, UnsupportedError, shorten
from deeploy.frontend.attributes import read_array, read_attributes
from deeploy.frontend.branches import Names, is_heavy, unfolded
from deeploy.frontend.fold import evaluate, is_foldable
from deeploy.frontend.schemas import FALLBACK, VENDORS, Attributes, canonical_domain, constant_inputs, is_dialect_op, misplaced
from deeploy.frontend.shapes import Value, infer, numpy_dtype, read_type
from deeploy.frontend.structure import branches, check_and_sort, describe, reads
from deeploy.frontend.validate import check_operands, check_result, check_size

CustomShapes = Callable[[gs.Node], "list[list[int]] | None"]


@dataclass
class Trace:
    """The state of the walk, and its result.

    Attributes:
        version: opset of the standard operators.
        declared: what the file says about tensors.
        tensors: every tensor computed so far, by its name in the file; several names may share one tensor.
        nodes: the nodes that remain.
        names: names of nodes in use.
        read: names of tensors that a node reads or that are outputs of the graph.
        known: names of tensors in use.
        flat: the nodes of the file that the walk has seen, those of branches in the place of each ``If``.
    """

    version: int
    declared: dict[str, Value]
    tensors: dict[str, gs.Tensor] = field(default_factory=dict)
    nodes: list[gs.Node] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    known: Names = field(default_factory=lambda: Names(set(), frozenset()))
    flat: list[onnx.NodeProto] = field(default_factory=list)


def trace(
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    inputs: Iterable[gs.Variable],
    version: int,
    dims: Mapping[str, int],
    custom_shapes: CustomShapes | None,
) -> Trace:
    """Walk over ``nodes``, which are sorted, starting from ``inputs``.

    Raises:
        ModelError: shapes that do not fit, damaged constants.
        UnsupportedError: shapes that depend on run-time values, operators of which nobody knows the shapes.
    """
    declared = {value.name: read_type(value.type, dims) for value in (*graph.value_info, *graph.output)}
    read = {name for node in nodes for name in reads(node)} | {value.name for value in graph.output}
    state = Trace(version, declared, {tensor.name: tensor for tensor in inputs}, read=read, known=Names.of(graph))
    for initializer in graph.initializer:
        if initializer.name in read:
            state.tensors[initializer.name] = gs.Constant(initializer.name, read_array(initializer, initializer.name))
    for node in nodes:
        _step(state, node, custom_shapes)
    return state


def _step(state: Trace, node: onnx.NodeProto, custom_shapes: CustomShapes | None) -> None:
    domain = canonical_domain(node.domain, node.op_type)
    if (problem := misplaced(node.op_type, domain)) is not None:
        raise UnsupportedError(
            f"{describe(node)} is of the domain '{shorten(domain)}', {problem}",
            "set the domain if they are the same, else give the operator a name of its own and add it to the target",
        )
    if node.op_type == "If" and not domain:
        _step_branches(state, node, custom_shapes)
        return
    state.flat.append(node)
    inputs = [state.tensors[name] if name else None for name in node.input]
    while inputs and inputs[-1] is None:
        inputs.pop()
    attributes = read_attributes(node, domain)
    check_operands(node, domain, inputs)
    if not domain and _step_trivial(state, node, attributes, inputs):
        return
    for position in constant_inputs(node.op_type) if not domain else ():
        if position < len(inputs):
            inputs[position] = _setting(node, position, inputs[position])
    values = infer(node, domain, attributes, inputs, state.version)
    constant = bool(inputs) and all(tensor is None or isinstance(tensor, gs.Constant) or 0 in tensor.shape for tensor in inputs)
    if constant and values is not None and is_foldable(node.op_type, domain, state.version):
        arrays = [None if tensor is None else _known(tensor) for tensor in inputs]
        for name, array in zip(node.output, evaluate(node, attributes, arrays, values, state.version), strict=True):
            state.tensors[name] = gs.Constant(name, array)
        return
    made = gs.Node(
        node.op_type, _node_name(state, node), attributes, [gs.Variable.empty() if t is None else t for t in inputs], domain=domain
    )
    if values is None and domain == FALLBACK:
        values = []  # the file declares its outputs
    elif values is None:
        values = _ask(made, custom_shapes, len(node.output))
    _finish(state, node, made, values)


def _step_branches(state: Trace, node: onnx.NodeProto, custom_shapes: CustomShapes | None) -> None:
    """Take the branch of an ``If`` whose condition is constant; both where it is not, and choose between their results."""
    condition, (then, otherwise) = state.tensors[node.input[0]], branches(node)
    if np.dtype(condition.dtype) != np.bool_ or math.prod(condition.shape) != 1:
        told = f"{condition.dtype}{list(condition.shape)}"
        raise ModelError(f"{describe(node)} has a condition of type {told}", "give it one element of type bool")
    if isinstance(condition, gs.Constant):
        _walk_branch(state, then if np.asarray(condition.values).item() else otherwise, node.output, custom_shapes)
        return
    hint = _pinning(condition)
    if hint and (is_heavy(then) or is_heavy(otherwise)):
        raise UnsupportedError(f"{describe(node)} chooses at run time between branches that take long", hint)
    results = [[state.known.fresh(f"{name}_{end}") if name else "" for name in node.output] for end in ("then", "else")]
    try:
        for branch, names in zip((then, otherwise), results, strict=True):
            _walk_branch(state, branch, names, custom_shapes)
    except DeeployError as error:
        raise type(error)(error.what, hint or error.remedy) from error
    for name, one, other in zip(node.output, *results, strict=True):
        if name:
            _choose(state, node, (one, other, name), hint, custom_shapes)


def _choose(state: Trace, node: onnx.NodeProto, names: tuple[str, str, str], hint: str, custom_shapes: CustomShapes | None) -> None:
    """A result of both branches: ``names`` are those of the first, of the second, and of what is chosen."""
    one, other = (state.tensors[name] for name in names[:2])
    if (one.dtype, list(one.shape)) != (other.dtype, list(other.shape)):
        told = f"{one.dtype}{list(one.shape)} or {other.dtype}{list(other.shape)}"
        raise UnsupportedError(
            f"{describe(node)} computes '{shorten(names[2])}' as {told}, as its condition says at run time",
            hint or "export the model with a fixed condition",
        )
    state.read.update((*names[:2], node.input[0]))
    _step(state, onnx.helper.make_node("Where", [node.input[0], *names[:2]], names[2:], name=node.name), custom_shapes)


def _walk_branch(state: Trace, branch: onnx.GraphProto, results: Sequence[str], custom_shapes: CustomShapes | None) -> None:
    nodes = unfolded(branch, check_and_sort(branch, state.known.taken), results, state.known)
    state.read.update(name for node in nodes for name in reads(node))
    for node in nodes:
        _step(state, node, custom_shapes)


def _pinning(condition: gs.Tensor) -> str:
    """How to make a condition constant: the options for the inputs that it is computed from, where these are settings; else ""."""
    waiting, seen, found = [condition], set[int](), list[gs.Tensor]()
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in seen or isinstance(tensor, gs.Constant) or tensor.is_empty():
            continue
        seen.add(id(tensor))
        found += [] if tensor.inputs else [tensor]
        waiting += [source for maker in tensor.inputs for source in maker.inputs]
    if any(math.prod(tensor.shape) != 1 for tensor in found):
        return ""
    return "pin what its condition depends on: " + " ".join(f"--pin '{shorten(tensor.name)}=VALUE'" for tensor in found)


def _known(tensor: gs.Tensor) -> np.ndarray:
    """The value of a constant, or of a tensor without elements, which has only one."""
    return np.asarray(tensor.values) if isinstance(tensor, gs.Constant) else np.zeros(tensor.shape, tensor.dtype)


_VARIADIC = ("Concat", "Sum", "Max", "Min", "Mean")  # of one tensor, that tensor


def _step_trivial(state: Trace, node: onnx.NodeProto, attributes: Attributes, inputs: Sequence[gs.Tensor | None]) -> bool:
    """Handle nodes that compute nothing at run time; False for all others."""
    op, first = node.op_type, inputs[0] if inputs else None
    if op == "Constant":
        state.tensors[node.output[0]] = gs.Constant(node.output[0], _constant_value(node, attributes))
    elif first is None:
        return False
    elif op == "Identity" or (op in _VARIADIC and len(inputs) == 1) or (op == "Dropout" and not _trains(node, inputs)):
        state.tensors[node.output[0]] = first
        for name in node.output[1:]:
            state.tensors[name] = gs.Constant(name, np.ones(first.shape, bool))
    elif op == "Cast" and numpy_dtype(attributes.get("to", 0)) == first.dtype:
        state.tensors[node.output[0]] = first
    elif op == "CastLike" and isinstance(first, gs.Constant) and inputs[1] is not None:
        state.tensors[node.output[0]] = gs.Constant(node.output[0], np.asarray(first.values).astype(inputs[1].dtype))
    elif op == "Shape":
        span = slice(attributes.get("start", 0), attributes.get("end"))
        state.tensors[node.output[0]] = gs.Constant(node.output[0], np.array(first.shape[span], np.int64))
    elif op == "Size":
        state.tensors[node.output[0]] = gs.Constant(node.output[0], np.array(np.prod(first.shape, dtype=np.int64)))
    else:
        return False
    return True


def _trains(node: onnx.NodeProto, inputs: Sequence[gs.Tensor | None]) -> bool:
    """Whether a Dropout is meant for training; UnsupportedError if so, since there is nothing to compile."""
    mode = inputs[2] if len(inputs) > 2 else None
    if mode is None or (isinstance(mode, gs.Constant) and not np.any(mode.values)):
        return False
    raise UnsupportedError(f"{describe(node)} is in training mode", "export the model for inference")


def _constant_value(node: onnx.NodeProto, attributes: Attributes) -> np.ndarray:
    types = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name, value in attributes.items():
        if name == "value" and isinstance(value, np.ndarray):
            return value
        if name in types:
            return np.array(value, types[name])
        if name in ("value_string", "value_strings"):
            return np.array(value, object)
    raise UnsupportedError(f"{describe(node)} has no dense value", "store the constant as a dense tensor")


def _setting(node: onnx.NodeProto, position: int, tensor: gs.Tensor | None) -> gs.Tensor | None:
    """An input that describes the operation, which must be constant; a dequantised constant is one, too."""
    if tensor is None or isinstance(tensor, gs.Constant):
        return tensor
    source = tensor.inputs[0] if tensor.inputs else None
    if source is not None and source.op == "DequantizeLinear" and all(isinstance(t, gs.Constant) for t in source.inputs):
        value, scale = (np.asarray(t.values) for t in source.inputs[:2])
        zero_point = np.asarray(source.inputs[2].values) if len(source.inputs) > 2 else np.zeros((), np.int64)
        if scale.size == 1 and scale.dtype == np.float32:
            real = (value.astype(np.int64) - zero_point.astype(np.int64)).astype(np.float32) * scale.reshape(())
            return gs.Constant(tensor.name, np.asarray(real, np.float32))
    if node.op_type == "Clip":  # with computed bounds it is Max and Min
        return tensor
    name = shorten(node.input[position])
    raise UnsupportedError(
        f"{describe(node)} takes its input {position} ('{name}') from run-time values",
        "only constants are supported there; export the model with fixed shapes",
    )


def _node_name(state: Trace, node: onnx.NodeProto) -> str:
    base = node.name or f"{node.op_type}_{next(name for name in node.output if name)}"
    name, number = base, 2
    while name in state.names:
        name, number = f"{base}_{number}", number + 1
    state.names.add(name)
    return name


def _ask(node: gs.Node, custom_shapes: CustomShapes | None, outputs: int) -> list[Value]:
    """Shapes of an operator that only the target knows, if it does; the type is that of the first input."""
    dtype = node.inputs[0].dtype if node.inputs else None
    shapes = custom_shapes(node) if custom_shapes is not None else None
    found = [Value(dtype, tuple(shape)) for shape in shapes or ()]
    return found[:outputs] + [Value(dtype)] * (outputs - len(found))


def _finish(state: Trace, node: onnx.NodeProto, made: gs.Node, values: Sequence[Value]) -> None:
    """Give a node its outputs and add it. What is inferred wins over what the file declares.

    Optional outputs that nobody reads are left out; the number of outputs of Split is part of its meaning.
    """
    standard = not made.domain and not is_dialect_op(made.op, made.domain)
    optional = standard and made.op != "Split"
    outputs = []
    for index, name in enumerate(node.output):
        if not name or (optional and index > 0 and name not in state.read):
            outputs.append(gs.Variable.empty())
            continue
        inferred = values[index] if index < len(values) else Value()
        declared = state.declared.get(name, Value())
        value = inferred.or_else(declared)
        shape, dtype = value.static_shape, value.dtype
        if (shape is None or dtype is None) and made.domain.startswith(VENDORS):
            raise UnsupportedError(
                f"{describe(node)}: {shorten(made.domain)} {shorten(made.op)} is not supported",
                "export the model without it, or add the operator to the target",
            )
        if shape is None or dtype is None:
            raise UnsupportedError(
                f"the shape of '{shorten(name)}', output of {describe(node)}, cannot be inferred",
                "export the model with fixed shapes"
                if standard
                else "declare it in the model's value_info, or add the operator to the target",
            )
        check_size(name, shape)
        check_result(node, made.inputs, shape)
        state.tensors[name] = gs.Variable(name, dtype, shape)
        outputs.append(state.tensors[name])
    while outputs and outputs[-1].is_empty():
        outputs.pop()
    made.outputs = outputs
    state.nodes.append(made)
