"""Nodes of a model by themselves: what is known of their inputs before anything runs, and models that hold one node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, helper, numpy_helper

from deeploy.frontend.attributes import read_array, read_attributes
from deeploy.frontend.constraints import check_constraints, check_types
from deeploy.frontend.fold import RANDOM
from deeploy.frontend.load import opset_version
from deeploy.frontend.schemas import ONNX_FAILURES, canonical_domain
from deeploy.frontend.shapes import numpy_dtype
from deeploy.ir.nodes import Tensor
from deeploy.ir.types import DType

_MOST_FOLDED = 1 << 16  # elements of a constant that is computed to learn shapes
_LARGEST_SETTING = 16  # elements of a constant that is written into the code; whole numbers, which say how to compute, may be more
_LARGEST_WHOLE = 4096
# What onnx's inference and reference raise for nodes that they do not take.
FAILURES = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NotImplementedError, TypeError),
    *ONNX_FAILURES,
)


@dataclass
class KnownTensors:
    """What is known of a model's tensors: element types and shapes, and the values of constants, by name."""

    types: dict[str, TypeProto] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The static shape of a tensor, or None."""
        tensor = self.types.get(name, TypeProto()).tensor_type
        if not tensor.HasField("shape") or any(not dim.HasField("dim_value") for dim in tensor.shape.dim):
            return None
        return tuple(dim.dim_value for dim in tensor.shape.dim)

    def learn(self, name: str, value: np.ndarray) -> None:
        self.values[name] = value
        self.types[name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


@dataclass(frozen=True, eq=False)
class Single:
    """A model of one node, with names of its own.

    Attributes:
        inputs, outputs: names in the model it was taken from, of what the model of one node takes and gives.
    """

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def learn_tensors(model: onnx.ModelProto, dims: Mapping[str, int]) -> KnownTensors:
    """Walk over a model whose nodes are sorted, and learn types, shapes and constants; what cannot be known is left out.

    Args:
        dims: extents of symbolic dimensions, as ``deeploy.frontend.import_model`` takes them.
    """
    result, graph = KnownTensors(), model.graph
    for value in graph.input:
        result.types[value.name] = _bind_type(value, dims)
    for tensor in graph.initializer:
        if tensor.data_type != TensorProto.STRING:
            result.learn(tensor.name, read_array(tensor, tensor.name))
    declared = {value.name: value.type for value in (*graph.value_info, *graph.output) if value.type.HasField("tensor_type")}
    for node in graph.node:
        _learn_node(result, node, model, declared)
    return result


def _bind_type(value: onnx.ValueInfoProto, dims: Mapping[str, int]) -> TypeProto:
    bound = TypeProto()
    bound.CopyFrom(value.type)
    for axis, dim in enumerate(bound.tensor_type.shape.dim):
        extent = dims.get(dim.dim_param, dims.get(f"{value.name}:{axis}"))
        if not dim.HasField("dim_value") and extent is not None:
            dim.dim_value = extent
    return bound


def _learn_node(tensors: KnownTensors, node: onnx.NodeProto, model: onnx.ModelProto, declared: Mapping[str, TypeProto]) -> None:
    _check_operands(tensors, node)
    inferred = _infer_types(tensors, node, model)
    if all(math.prod(KnownTensors({name: kind}).shape(name) or ()) <= _MOST_FOLDED for name, kind in inferred.items()):
        for name, value in zip(node.output, _fold_node(tensors, node, model), strict=False):
            tensors.learn(name, value)
    for name in node.output:
        if not name or name in tensors.values:
            continue
        for option in (inferred.get(name), declared.get(name)):
            if option is not None and option.tensor_type.elem_type and name not in tensors.types:
                tensors.types[name] = option
            if option is not None and tensors.shape(name) is None and KnownTensors({name: option}).shape(name) is not None:
                tensors.types[name] = option


def _check_operands(tensors: KnownTensors, node: onnx.NodeProto) -> None:
    """Raise ModelError where the operands of a standard operator contradict each other; the generator would not see it."""
    if canonical_domain(node.domain, node.op_type) or any(name and tensors.shape(name) is None for name in node.input):
        return
    inputs: list[Tensor | np.ndarray | None] = []
    for name in node.input:
        if not name or name in tensors.values:
            inputs.append(tensors.values.get(name))
        elif DType.has(dtype := numpy_dtype(tensors.types[name].tensor_type.elem_type)):
            inputs.append(Tensor(name, tensors.shape(name) or (), DType.of(dtype)))
        else:
            return
    check_constraints(node, read_attributes(node, ""), inputs)
    check_types(node, inputs)


def _fold_node(tensors: KnownTensors, node: onnx.NodeProto, model: onnx.ModelProto) -> Sequence[np.ndarray]:
    """The outputs of a node that computes constants, where they are small."""
    from onnx.reference import ReferenceEvaluator  # only here: its import takes longer than that of a whole small model

    shape = tensors.shape(node.input[0]) if node.input else None
    if node.op_type == "Shape" and shape is not None and not node.attribute:
        return [np.array(shape, np.int64)]
    if node.op_type == "Size" and shape is not None:
        return [np.array(math.prod(shape), np.int64)]
    used = [name for name in node.input if name]
    plain = all(attribute.type not in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for attribute in node.attribute)
    if node.op_type in RANDOM or not plain or any(n not in tensors.values or tensors.values[n].size > _MOST_FOLDED for n in used):
        return []
    if not used and node.op_type != "Constant":
        return []
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(node, opsets={entry.domain: entry.version for entry in model.opset_import}).run(
                None, {name: tensors.values[name] for name in used}
            )
    except FAILURES:
        return []
    return [np.asarray(value) for value in results] if all(isinstance(value, np.ndarray | np.generic) for value in results) else []


def _infer_types(tensors: KnownTensors, node: onnx.NodeProto, model: onnx.ModelProto) -> Mapping[str, TypeProto]:
    try:
        schema = onnx.defs.get_schema(node.op_type, _operator_version(node, model), node.domain)
        types = {name: tensors.types[name] for name in node.input if name}
        data = {n: numpy_helper.from_array(tensors.values[n], n) for n in types if n in tensors.values}
        return dict(onnx.shape_inference.infer_node_outputs(schema, node, types, data, {}, list(model.opset_import), model.ir_version))
    except FAILURES:
        return {}


def single_model(node: onnx.NodeProto, tensors: KnownTensors, model: onnx.ModelProto, everything: bool) -> Single | None:
    """The model that holds only ``node``; None where types or static shapes of its tensors are not known.

    Args:
        everything: make every constant part of the model, and not only those that say how to compute.
    """
    inputs = list(dict.fromkeys(name for name in node.input if name))
    outputs = [name for name in node.output if name]
    if any(tensors.shape(name) is None for name in (*inputs, *outputs)):
        return None
    constants = {
        name: tensors.values[name] for name in inputs if name in tensors.values and (everything or _is_setting(tensors.values[name]))
    }
    new = {name: f"x{i}" for i, name in enumerate(inputs)} | {name: f"y{i}" for i, name in enumerate(outputs)}
    copy = onnx.NodeProto(op_type=node.op_type, domain=node.domain, attribute=_stated_attributes(node, model))
    copy.input.extend(new.get(name, "") for name in node.input)
    copy.output.extend(new.get(name, "") for name in node.output)
    taken = tuple(name for name in inputs if name not in constants)
    graph = helper.make_graph(
        [copy],
        "single",
        [helper.make_value_info(new[name], tensors.types[name]) for name in taken],
        [helper.make_value_info(new[name], tensors.types[name]) for name in outputs],
        [numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), new[name]) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version, functions=[])
    return Single(made, taken, tuple(outputs))


def _stated_attributes(node: onnx.NodeProto, model: onnx.ModelProto) -> list[onnx.AttributeProto]:
    """The attributes of a node that say something else than their defaults, which the generator may refuse when they are given."""
    try:
        schema = onnx.defs.get_schema(node.op_type, _operator_version(node, model), node.domain)
    except onnx.defs.SchemaError:
        return list(node.attribute)
    defaults = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    return [a for a in node.attribute if a.name not in defaults or _attribute_value(a) != _attribute_value(defaults[a.name])]


def _attribute_value(attribute: onnx.AttributeProto) -> tuple[int, object]:
    """Type and value of an attribute, as they compare."""
    return attribute.type, None if attribute.type == onnx.AttributeProto.UNDEFINED else helper.get_attribute_value(attribute)


def _operator_version(node: onnx.NodeProto, model: onnx.ModelProto) -> int:
    """The version of a node's operator set."""
    versions: dict[str, int] = {entry.domain: entry.version for entry in model.opset_import}
    return versions.get(node.domain, opset_version(model))


def _is_setting(value: np.ndarray) -> bool:
    return value.size <= (_LARGEST_WHOLE if value.dtype == np.int64 else _LARGEST_SETTING)
