"""One walk over a sorted model: every tensor gets a shape, every constant subgraph its value.

Shapes and constants need each other (``Shape`` makes constants, ``Reshape`` needs them), so both are found in the same
walk, node by node. What comes out are the model's own nodes on typed tensors, without those that compute nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.attributes import read_array, read_attributes
from deeploy.frontend.branches import Names
from deeploy.frontend.constraints import check_constraints, check_types
from deeploy.frontend.control import CONTROL
from deeploy.frontend.expand import expand
from deeploy.frontend.fold import evaluate, is_foldable
from deeploy.frontend.schemas import FALLBACK, MICROSOFT, Attributes, canonical_domain, constant_inputs, is_dialect_op, misplaced
from deeploy.frontend.shapes import Value, infer, numpy_dtype, read_type
from deeploy.frontend.structure import describe, is_control, reads
from deeploy.frontend.unknown import is_unknown, unknown_operators
from deeploy.frontend.validate import check_operands, check_result, check_size
from deeploy.frontend.walk import CustomShapes, Walk


def trace(
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    inputs: Iterable[gs.Variable],
    version: int,
    dims: Mapping[str, int],
    custom_shapes: CustomShapes | None,
    budget: int,
) -> Walk:
    """Walk over ``nodes``, which are sorted, starting from ``inputs``; loops become ``budget`` nodes at most.

    Raises:
        ModelError: shapes that do not fit, damaged constants.
        UnsupportedError: shapes that depend on run-time values, operators of which nobody knows the shapes.
    """
    declared = {value.name: read_type(value.type, dims) for value in (*graph.value_info, *graph.output)}
    read = {name for node in nodes for name in reads(node)} | {value.name for value in graph.output}
    tensors: dict[str, gs.Tensor] = {tensor.name: tensor for tensor in inputs}
    is_dialect = any(is_dialect_op(node.op_type, canonical_domain(node.domain, node.op_type)) for node in nodes)
    step, refusal = partial(_step, custom_shapes, dims, is_dialect), partial(unknown_operators, graph, custom_shapes)
    state = Walk(version, declared, step, refusal, budget, tensors, read=read, known=Names.of(graph), inputs=frozenset(tensors))
    for initializer in graph.initializer:
        if initializer.name in read:
            state.tensors[initializer.name] = gs.Constant(initializer.name, read_array(initializer, initializer.name))
    state.over(nodes)
    return state


def _step(custom_shapes: CustomShapes | None, dims: Mapping[str, int], is_dialect: bool, state: Walk, node: onnx.NodeProto) -> None:
    domain = canonical_domain(node.domain, node.op_type)
    if (problem := misplaced(node.op_type, domain)) is not None:
        raise UnsupportedError(
            f"{describe(node)} is of the domain '{shorten(domain)}', {problem}",
            "set the domain if they are the same, else give the operator a name of its own and add it to the target",
        )
    if is_control(node):
        CONTROL[node.op_type](state, node)
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
            inputs[position] = _setting(state, node, position, inputs[position])
    if dims and not domain:
        _check_example(node, inputs, dims)
    values = infer(node, domain, attributes, inputs, state.version)
    constant = bool(inputs) and all(tensor is None or isinstance(tensor, gs.Constant) or 0 in tensor.shape for tensor in inputs)
    if constant and values is not None and is_foldable(node.op_type, domain, state.version):
        arrays = [None if tensor is None else _known(tensor) for tensor in inputs]
        for name, array in zip(node.output, evaluate(node, attributes, arrays, values, state.version), strict=True):
            state.tensors[name] = gs.Constant(name, array)
        return
    if expand(state, node, domain, attributes, [None if v.static_shape is None else tuple(v.static_shape) for v in values or ()]):
        del state.flat[place]
        return
    made = gs.Node(node.op_type, state.name_of(node), attributes, [gs.Variable.empty() if t is None else t for t in inputs], domain=domain)
    if values is None and domain == FALLBACK:
        values = []  # the file declares its outputs
    elif values is None:
        values = _ask(made, custom_shapes, len(node.output))
    _finish(state, node, made, values)


def _check_example(node: onnx.NodeProto, inputs: Sequence[gs.Tensor | None], dims: Mapping[str, int]) -> None:
    """Raise ModelError where a shape that is written in the file does not fit the extents of the symbolic dimensions."""
    if node.op_type not in ("Reshape", "Expand") or len(inputs) < 2 or inputs[0] is None or not isinstance(inputs[1], gs.Constant):
        return
    shape, wanted = tuple(inputs[0].shape), tuple(int(n) for n in np.asarray(inputs[1].values).ravel())
    if node.op_type == "Reshape":
        fits = min(wanted, default=1) < 1 or math.prod(wanted) == math.prod(shape)
    else:
        fits = all(1 in (m, n) or m == n for m, n in zip(shape[::-1], wanted[::-1], strict=False))
    if not fits:
        given = ", ".join(f"{shorten(name)}={value}" for name, value in list(dims.items())[:5])
        raise ModelError(
            f"{describe(node)} wants the shape {list(wanted)} of {list(shape)}, which {given} leads to: the file holds sizes of an example",
            "Compile for the example that it was exported with (--dim),"
            " or export it with dynamic sizes: torch.onnx.export(..., dynamo=True, dynamic_shapes=...).",
        )


def _known(tensor: gs.Tensor) -> np.ndarray:
    """The value of a constant, or of a tensor without elements, which has only one."""
    return np.asarray(tensor.values) if isinstance(tensor, gs.Constant) else np.zeros(tensor.shape, tensor.dtype)


_VARIADIC = ("Concat", "Sum", "Max", "Min", "Mean")  # of one tensor, that tensor


def _step_trivial(state: Walk, node: onnx.NodeProto, attributes: Attributes, inputs: Sequence[gs.Tensor | None]) -> bool:
    """Handle nodes that compute nothing at run time; False for all others."""
    op, first = node.op_type, inputs[0] if inputs else None
    if op == "Constant":
        state.tensors[node.output[0]] = gs.Constant(node.output[0], _constant_value(node, attributes))
    elif first is None:
        return False
    elif op == "Identity" or (op in _VARIADIC and len(inputs) == 1) or (op == "Dropout" and not _trains(state, node, inputs)):
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


def _trains(state: Walk, node: onnx.NodeProto, inputs: Sequence[gs.Tensor | None]) -> bool:
    """Whether a Dropout is meant for training; UnsupportedError if so, since there is nothing to compile."""
    mode = inputs[2] if len(inputs) > 2 else None
    if mode is None or (isinstance(mode, gs.Constant) and not np.any(mode.values)):
        return False
    raise UnsupportedError(f"{describe(node)} is in training mode", state.pinning([mode]) or "export the model for inference")


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


def _setting(state: Walk, node: onnx.NodeProto, position: int, tensor: gs.Tensor | None) -> gs.Tensor | None:
    """An input that describes the operation, which must be constant; a dequantised constant is one, too."""
    if node.op_type == "Range" and isinstance(tensor, gs.Constant) and tensor.values.size == 1:
        return gs.Constant(tensor.name, np.asarray(tensor.values).reshape(()))  # bodies of ONNX have an axis there
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
        f"only constants are supported there; {state.pinning([tensor]) or 'export the model with fixed shapes'}",
    )


def _ask(node: gs.Node, custom_shapes: CustomShapes | None, outputs: int) -> list[Value]:
    """Shapes of an operator that only the target knows, if it does; the type is that of the first input."""
    dtype = node.inputs[0].dtype if node.inputs else None
    shapes = custom_shapes(node) if custom_shapes is not None else None
    found = [Value(dtype, tuple(shape)) for shape in shapes or ()]
    return found[:outputs] + [Value(dtype)] * (outputs - len(found))


def _finish(state: Walk, node: onnx.NodeProto, made: gs.Node, values: Sequence[Value]) -> None:
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
        if (shape is None or dtype is None) and is_unknown(node):
            raise state.refusal(node)
        if shape is None or dtype is None:
            told = "export the model with fixed shapes" if standard else "declare it in the model's value_info"
            raise UnsupportedError(
                f"the shape of '{shorten(name)}', output of {describe(node)}, cannot be inferred",
                state.pinning(made.inputs[1:]) or told,
            )
        check_size(name, shape)
        check_result(node, made.inputs, shape)
        state.tensors[name] = gs.Variable(name, dtype, shape)
        outputs.append(state.tensors[name])
    while outputs and outputs[-1].is_empty():
        outputs.pop()
    made.outputs = outputs
    state.nodes.append(made)
