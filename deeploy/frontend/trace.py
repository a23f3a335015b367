"""One walk over a sorted model: every tensor gets a shape, every constant subgraph its value.

Shapes and constants need each other (``Shape`` makes constants, ``Reshape`` needs them), so both are found in the same
walk, node by node. What comes out are nodes of the normalised graph (``normalise``), without those that compute nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.attributes import read_array, read_attributes
from deeploy.frontend.branches import BranchNames
from deeploy.frontend.constraints import check_constraints, check_types
from deeploy.frontend.control import UNFOLD
from deeploy.frontend.expand import expand
from deeploy.frontend.fold import evaluate_node, is_foldable
from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.normalise import normalise_node
from deeploy.frontend.predicates import Inputs, Known, type_of, value_of
from deeploy.frontend.rules import Draft, absent_output
from deeploy.frontend.schemas import FALLBACK, MICROSOFT, Attributes, canonical_domain, constant_inputs, explain_misplaced, is_dialect_op
from deeploy.frontend.shapes import Value, infer_outputs, numpy_dtype, read_type
from deeploy.frontend.structure import describe_node, is_control, read_names
from deeploy.frontend.type_legalisation import TYPES
from deeploy.frontend.unknown import is_unknown, unknown_operators
from deeploy.frontend.validate import check_operands, check_result, check_size
from deeploy.frontend.walk import CustomShapes, GraphWalk, element_type, known_constant
from deeploy.ir.nodes import Node, Tensor


def trace_nodes(
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    inputs: Iterable[Tensor],
    version: int,
    dims: Mapping[str, int],
    custom_shapes: CustomShapes | None,
    budget: int,
) -> GraphWalk:
    """Walk over ``nodes``, which are sorted, starting from ``inputs``; loops become ``budget`` nodes at most.

    Raises:
        ModelError: shapes that do not fit, damaged constants.
        UnsupportedError: shapes that depend on run-time values, operators of which nobody knows the shapes.
    """
    declared = {value.name: read_type(value.type, dims) for value in (*graph.value_info, *graph.output)}
    read = {name for node in nodes for name in read_names(node)} | {value.name for value in graph.output}
    tensors: dict[str, Known] = {tensor.name: tensor for tensor in inputs}
    is_dialect = any(is_dialect_op(node.op_type, canonical_domain(node.domain, node.op_type)) for node in nodes)
    step, refusal = partial(_trace_node, custom_shapes, dims, is_dialect), partial(unknown_operators, graph, custom_shapes)
    state = GraphWalk(version, declared, step, refusal, budget, tensors, read=read, known=BranchNames.of(graph), inputs=frozenset(tensors))
    for initializer in graph.initializer:
        if initializer.name in read:
            state.tensors[initializer.name] = known_constant(read_array(initializer, initializer.name), initializer.name)
    state.over(nodes)
    return state


def _trace_node(
    custom_shapes: CustomShapes | None, dims: Mapping[str, int], is_dialect: bool, state: GraphWalk, node: onnx.NodeProto
) -> None:
    domain = canonical_domain(node.domain, node.op_type)
    if (problem := explain_misplaced(node.op_type, domain)) is not None:
        raise UnsupportedError(
            f"{describe_node(node)} is of the domain '{shorten(domain)}', {problem}",
            "set the domain if they are the same, else give the operator a name of its own and add it to the target",
        )
    if is_control(node):
        UNFOLD[node.op_type](state, node)
        return
    place = len(state.flat)
    state.flat.append(node)
    inputs = [state.tensors[name] if name else None for name in node.input]
    while inputs and inputs[-1] is None:
        inputs.pop()
    attributes = read_attributes(node, domain)
    check_operands(node, domain, inputs)
    if domain in ("", MICROSOFT):
        check_constraints(node, attributes, inputs)
    if not domain and not is_dialect:
        check_types(node, inputs)
    if not domain and _step_trivial(state, node, attributes, inputs):
        return
    for position in constant_inputs(node.op_type) if not domain else ():
        if position < len(inputs):
            inputs[position] = _read_setting(state, node, position, inputs[position])
    if dims and not domain:
        _check_example(node, inputs, dims)
    is_constant = bool(inputs) and all(tensor is None or value_of(tensor) is not None or 0 in tensor.shape for tensor in inputs)
    if not is_constant:
        inputs = [_narrow_floats(state, tensor, name) for tensor, name in zip(inputs, node.input, strict=False)]
    values = infer_outputs(node, domain, attributes, inputs, state.version)
    if is_constant and values is not None and is_foldable(node.op_type, domain, state.version):
        arrays = [None if tensor is None else _constant_array(tensor) for tensor in inputs]
        for name, array in zip(node.output, evaluate_node(node, attributes, arrays, values, state.version), strict=True):
            state.tensors[name] = known_constant(array, name)
        return
    if expand(state, node, domain, attributes):
        del state.flat[place + 1 :]  # what it is made of
        return
    operands = [None if tensor is None else state.operand(tensor, name) for tensor, name in zip(inputs, node.input, strict=False)]
    draft = Draft(state.name_of(node), node.op_type, domain, attributes, operands, [], state.version, is_dialect)
    if values is None and domain == FALLBACK:
        values = []  # the file declares its outputs
    elif values is None:
        values = _ask_target(draft, custom_shapes, len(node.output))
    _finish_node(state, node, draft, values)


def _narrow_floats(state: GraphWalk, tensor: Known | None, name: str) -> Known | None:
    """Floats of 64 bits as float32, for a node that computes at run time."""
    return state.operand(tensor, name) if isinstance(tensor, np.ndarray) and tensor.dtype == np.float64 else tensor


def _constant_array(tensor: Known) -> np.ndarray:
    """The value of a constant, or of a tensor without elements."""
    value = value_of(tensor)
    return np.zeros(tensor.shape, type_of(tensor)) if value is None else value


def _check_example(node: onnx.NodeProto, inputs: Inputs, dims: Mapping[str, int]) -> None:
    """Raise ModelError where a shape that is written in the file does not fit the extents of the symbolic dimensions."""
    sizes = value_of(inputs[1]) if node.op_type in ("Reshape", "Expand") and len(inputs) > 1 else None
    if sizes is None or inputs[0] is None:
        return
    shape, wanted = inputs[0].shape, tuple(int(n) for n in sizes.ravel())
    if node.op_type == "Reshape":
        fits = min(wanted, default=1) < 1 or math.prod(wanted) == math.prod(shape)
    else:
        fits = all(1 in (m, n) or m == n for m, n in zip(shape[::-1], wanted[::-1], strict=False))
    if not fits:
        given = ", ".join(f"{shorten(name)}={value}" for name, value in list(dims.items())[:5])
        raise ModelError(
            f"{describe_node(node)} wants the shape {list(wanted)} of {list(shape)}, which {given} leads to: "
            f"the file holds sizes of an example",
            "Compile for the example that it was exported with (--dim),"
            " or export it with dynamic sizes: torch.onnx.export(..., dynamo=True, dynamic_shapes=...).",
        )


_VARIADIC = ("Concat", "Sum", "Max", "Min", "Mean")  # of one tensor, that tensor


def _step_trivial(state: GraphWalk, node: onnx.NodeProto, attributes: Attributes, inputs: Inputs) -> bool:
    """Handle nodes that compute nothing at run time; False for all others."""
    op, first = node.op_type, inputs[0] if inputs else None
    if op == "Constant":
        result: Known | np.ndarray = _constant_value(node, attributes)
    elif first is None:
        return False
    elif op == "Identity" or (op in _VARIADIC and len(inputs) == 1) or (op == "Dropout" and not _trains_dropout(state, node, inputs)):
        result = first
        for name in node.output[1:]:
            state.tensors[name] = known_constant(np.ones(first.shape, bool), name)
    elif op == "Cast" and numpy_dtype(attributes.get("to", 0)) == type_of(first):
        result = first
    elif op == "CastLike" and (value := value_of(first)) is not None and inputs[1] is not None:
        result = value.astype(type_of(inputs[1]))
    elif op == "Shape":
        result = np.array(first.shape[slice(attributes.get("start", 0), attributes.get("end"))], np.int64)
    elif op == "Size":
        result = np.array(math.prod(first.shape), np.int64)
    else:
        return False
    name = node.output[0]
    state.tensors[name] = known_constant(result, name) if isinstance(result, np.ndarray) else result
    return True


def _trains_dropout(state: GraphWalk, node: onnx.NodeProto, inputs: Inputs) -> bool:
    """Whether a Dropout is meant for training; UnsupportedError if so, since there is nothing to compile."""
    mode = inputs[2] if len(inputs) > 2 else None
    value = value_of(mode)
    if mode is None or (value is not None and not np.any(value)):
        return False
    raise UnsupportedError(f"{describe_node(node)} is in training mode", state.pinning([mode]) or "export the model for inference")


def _constant_value(node: onnx.NodeProto, attributes: Attributes) -> np.ndarray:
    types = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name, value in attributes.items():
        if name == "value" and isinstance(value, np.ndarray):
            return value
        if name in types:
            return np.array(value, types[name])
        if name in ("value_string", "value_strings"):
            return np.array(value, object)
    raise UnsupportedError(f"{describe_node(node)} has no dense value", "store the constant as a dense tensor")


def _read_setting(state: GraphWalk, node: onnx.NodeProto, position: int, tensor: Known | None) -> Known | None:
    """An input that describes the operation, which must be constant; a dequantised constant is one, too."""
    value = value_of(tensor)
    if node.op_type == "Range" and value is not None and value.size == 1:
        return known_constant(value.reshape(()), node.input[position])  # bodies of ONNX have an axis there
    if not isinstance(tensor, Tensor) or value is not None:
        return tensor
    if (real := real_constant(tensor)) is not None:
        return known_constant(real, tensor.name)
    if node.op_type == "Clip":  # with computed bounds it is Max and Min
        return tensor
    name = shorten(node.input[position])
    raise UnsupportedError(
        f"{describe_node(node)} takes its input {position} ('{name}') from run-time values",
        f"only constants are supported there; {state.pinning([tensor]) or 'export the model with fixed shapes'}",
    )


def _ask_target(draft: Draft, custom_shapes: CustomShapes | None, outputs: int) -> list[Value]:
    """Shapes of an operator that only the target knows, if it does; the type is that of the first input."""
    dtype = type_of(draft.inputs[0]) if draft.inputs and draft.inputs[0] is not None else None
    node = Node(draft.name, draft.op, tuple(draft.inputs), (), draft.attrs, domain=draft.domain)
    shapes = custom_shapes(node) if custom_shapes is not None else None
    values = [Value(dtype, tuple(shape)) for shape in shapes or ()]
    return values[:outputs] + [Value(dtype)] * (outputs - len(values))


def _finish_node(state: GraphWalk, node: onnx.NodeProto, draft: Draft, values: Sequence[Value]) -> None:
    """Give a node its outputs and normalise it. What is inferred wins over what the file declares.

    Optional outputs that nobody reads are left out; the number of outputs of Split is part of its meaning.
    """
    standard = not draft.domain and not is_dialect_op(draft.op, draft.domain)
    optional = standard and draft.op != "Split"
    for index, name in enumerate(node.output):
        if not name or (optional and index > 0 and name not in state.read):
            draft.outputs.append(absent_output())
            continue
        inferred = values[index] if index < len(values) else Value()
        value = inferred.or_else(state.declared.get(name, Value()))
        shape, dtype = value.static_shape, value.dtype
        if (shape is None or dtype is None) and is_unknown(node):
            raise state.refusal(node)
        if shape is None or dtype is None:
            told = "export the model with fixed shapes" if standard else "declare it in the model's value_info"
            raise UnsupportedError(
                f"the shape of '{shorten(name)}', output of {describe_node(node)}, cannot be inferred",
                state.pinning(draft.inputs[1:]) or told,
            )
        check_size(name, shape)
        check_result(node, draft.inputs, shape)
        draft.outputs.append(Tensor(name, tuple(shape), element_type(dtype, name)))
    while draft.outputs and not draft.outputs[-1].name:
        draft.outputs.pop()
    draft.attrs |= {name: int(TensorProto.FLOAT) for name in TYPES & draft.attrs.keys() if draft.attrs[name] == TensorProto.DOUBLE}
    replacement, outputs = normalise_node(draft), tuple(draft.outputs)
    if replacement is None:
        made = Node(draft.name, draft.op, tuple(draft.inputs), outputs, draft.attrs, domain=draft.domain)
        for tensor in made.operands:
            if not tensor.name:
                state.publish(tensor, f"{node.output[0] or draft.name} ({tensor.label})")
    else:
        state.publish(replacement, outputs[0].name, draft.name)
    state.tensors.update((tensor.name, tensor) for tensor in outputs if tensor.name)
    if replacement is not None:
        state.tensors[outputs[0].name] = replacement
