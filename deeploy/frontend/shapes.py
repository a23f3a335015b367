"""Shapes and element types of one node's outputs, from those of its inputs.

Standard operators are inferred by the onnx package; the others have the shapes of a standard operator (see
``schemas``). Declared types may contradict each other, since files in the integer dialect call everything float32: where
an operator's definition does not allow the types found, shapes are inferred with types that it does allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.shape_inference import InferenceError, infer_node_outputs

from deeploy.errors import ModelError, shorten
from deeploy.frontend.predicates import Inputs, Known, type_of, type_text, value_of
from deeploy.frontend.schemas import Attributes, Signature, find_record, find_signature, keeps_shape, like_standard
from deeploy.frontend.structure import describe_node

_LARGEST_OPERAND = 1024  # elements; constants up to this size are shown to the inference

# Older definitions count windows that start in the padding at the end, which no implementation computes.
_CEIL_MODE_VERSION = 22


@dataclass(frozen=True)
class Value:
    """What is known of a tensor: element type and shape, None where unknown."""

    dtype: np.dtype[np.generic] | None = None
    shape: tuple[int | None, ...] | None = None

    def or_else(self, other: Value) -> Value:
        """This value, with what is unknown of it (type, extents) taken from ``other``."""
        shape = self.shape
        if shape is None:
            shape = other.shape
        elif other.shape is not None and len(other.shape) == len(shape):
            shape = tuple(b if a is None else a for a, b in zip(shape, other.shape, strict=True))
        return Value(other.dtype if self.dtype is None else self.dtype, shape)

    @property
    def static_shape(self) -> list[int] | None:
        """The shape as a list of extents, or None where one of them is unknown."""
        return None if self.shape is None or None in self.shape else [extent for extent in self.shape if extent is not None]


def infer_outputs(node: onnx.NodeProto, domain: str, attributes: Attributes, inputs: Inputs, version: int) -> list[Value] | None:
    """What follows for the node's outputs; None for an operator that is not known here.

    Raises:
        ModelError: the inputs' shapes do not fit the operator.
    """
    first = inputs[0] if inputs else None
    key = (domain, node.op_type)
    if attributes.get("ceil_mode"):
        version = max(version, _CEIL_MODE_VERSION)
    if not domain:
        version = max(version, find_record(domain, node.op_type).inferred_from)
    if keeps_shape(*key) and first is not None:
        return [Value(type_of(first), first.shape), *(Value() for _ in node.output[1:])]
    if key == ("", "Gemm") and first is not None and len(first.shape) > 2:
        return [_batched_gemm(node, attributes, inputs)]
    like = like_standard(domain, node.op_type, len(inputs))
    if like is not None:
        op, picks = like
        value = _infer_as(op, node, attributes, [inputs[i] if i < len(inputs) else None for i in picks], version)[0]
        return [Value(_qgemm_type(inputs), value.shape) if node.op_type == "QGemm" else value]
    if domain:
        return None
    signature = find_signature(node.op_type, version, frozenset(attributes), len(inputs))
    if signature is None:
        return None
    values = _infer_standard(signature, node, attributes, inputs)
    wanted = attributes.get("output_shape") if node.op_type == "ConvTranspose" else None
    if wanted and first is not None and values[0].shape is not None:  # inference leaves out extents that are below those of the input
        values[0] = Value(values[0].dtype, (*values[0].shape[:2], *wanted[2 - len(first.shape) :]))
    return values


def _qgemm_type(inputs: Inputs) -> np.dtype[np.generic]:
    """The type of the output's zero point; without one the output is float."""
    zero_point = inputs[8] if len(inputs) > 8 else None
    return np.dtype(np.float32) if zero_point is None else type_of(zero_point)


def _batched_gemm(node: onnx.NodeProto, attributes: Attributes, inputs: Inputs) -> Value:
    """The dialect's Gemm with leading batch axes in A: a product whose operands may have their last two axes swapped."""
    a, b = inputs[0], inputs[1] if len(inputs) > 1 else None
    if a is None or b is None or len(b.shape) < 2:
        raise ModelError(f"{describe_node(node)} multiplies tensors of fewer than two axes", "check the shapes of its inputs")
    left, right = list(a.shape), list(b.shape)
    if attributes.get("transA", 0):
        left[-2:] = left[:-3:-1]
    if attributes.get("transB", 0):
        right[-2:] = right[:-3:-1]
    if left[-1] != right[-2]:
        raise ModelError(f"{describe_node(node)} multiplies {a.shape} by {b.shape}", "check the shapes of its inputs")
    try:
        batch = np.broadcast_shapes(tuple(left[:-2]), tuple(right[:-2]))
    except ValueError as error:
        raise ModelError(f"{describe_node(node)} multiplies {a.shape} by {b.shape}", "check the shapes of its inputs") from error
    return Value(type_of(a), (*batch, left[-2], right[-1]))


def _infer_as(op: str, node: onnx.NodeProto, attributes: Attributes, inputs: Inputs, version: int) -> list[Value]:
    """Infer a node as if it were the standard operator ``op``, ignoring the attributes that the latter does not have."""
    signature = find_signature(op, version, frozenset(attributes), len(inputs))
    if signature is None or any(tensor is None for tensor in inputs):
        raise ModelError(f"{describe_node(node)} lacks an input", "export the model again")
    return _infer_repaired(signature, node, attributes, inputs)


def _infer_standard(signature: Signature, node: onnx.NodeProto, attributes: Attributes, inputs: Inputs) -> list[Value]:
    tensors = {name: tensor for name, tensor in zip(node.input, inputs, strict=False) if name and tensor is not None}
    try:
        return _infer_outputs(signature, node, tensors, {name: type_of(tensor) for name, tensor in tensors.items()})
    except onnx.checker.ValidationError:
        return _infer_repaired(signature, node, attributes, inputs)
    except InferenceError as error:
        raise _explain_mismatch(node, error, inputs) from error


def _infer_repaired(signature: Signature, node: onnx.NodeProto, attributes: Attributes, inputs: Inputs) -> list[Value]:
    """Infer on a copy of the node whose attributes and types are what the operator's definition demands."""
    names = ["" if tensor is None else f"i{i}" for i, tensor in enumerate(inputs)]
    outputs = [f"o{i}" if name else "" for i, name in enumerate(node.output)]
    copy = helper.make_node(signature.schema.name, names, outputs, name=node.name)
    for name, value in attributes.items():
        if name in signature.attributes:
            copy.attribute.append(_make_attribute(name, value, signature.attributes[name], node))
    chosen, originals = _allowed_types(signature, inputs)
    tensors = {name: tensor for name, tensor in zip(names, inputs, strict=True) if tensor is not None}
    try:
        values = _infer_outputs(signature, copy, tensors, dict(zip(names, chosen, strict=True)))
    except (onnx.checker.ValidationError, InferenceError) as error:
        raise _explain_mismatch(node, error, inputs) from error
    strings = signature.outputs + signature.outputs[-1:] * (len(values) - len(signature.outputs))
    return [Value(originals.get(string, value.dtype), value.shape) for string, value in zip(strings, values, strict=False)]


def _make_attribute(name: str, value: Any, kind: int, node: onnx.NodeProto) -> AttributeProto:
    try:
        if kind == AttributeProto.FLOAT:
            value = float(value)
        elif kind == AttributeProto.INT:
            value = int(value)
        elif kind == AttributeProto.INTS:
            value = [int(item) for item in np.atleast_1d(value)]
        return helper.make_attribute(name, value, attr_type=kind)
    except (TypeError, ValueError, AssertionError) as error:  # the last where a tensor or a graph is wanted
        raise ModelError(
            f"{describe_node(node)} has the attribute '{shorten(name)}' in a type that the operator does not have", "export the model again"
        ) from error


def _allowed_types(signature: Signature, inputs: Inputs) -> tuple[list[Any], dict[str, np.dtype[np.generic]]]:
    """Types per input that the definition allows, and the real type of every type variable whose inputs got another one."""
    strings = (signature.inputs + signature.inputs[-1:] * (len(inputs) - len(signature.inputs)))[: len(inputs)]
    originals: dict[str, np.dtype[np.generic]] = {}
    chosen: dict[str, np.dtype[np.generic]] = {}
    for string, tensor in zip(strings, inputs, strict=True):
        if tensor is not None and string not in originals:
            originals[string] = type_of(tensor)
            allowed = [name for name in sorted(signature.allowed.get(string, {string})) if name.startswith("tensor(")]
            own = _type_string(type_of(tensor))
            name = next((n for n in (own, "tensor(float)", *allowed) if n in allowed), own)
            chosen[string] = _from_type_string(name)
    types = [None if tensor is None else chosen[string] for string, tensor in zip(strings, inputs, strict=True)]
    return types, {string: dtype for string, dtype in originals.items() if dtype != chosen[string]}


def _explain_mismatch(node: onnx.NodeProto, error: Exception, inputs: Inputs) -> ModelError:
    shapes = ", ".join("none" if tensor is None else type_text(tensor) for tensor in inputs)
    text = " ".join(str(error).split())
    return ModelError(f"{describe_node(node)} does not fit its inputs {shorten(shapes, 200)}: {shorten(text, 200)}", "correct the model")


def _infer_outputs(signature: Signature, node: onnx.NodeProto, tensors: Mapping[str, Known], dtypes: Mapping[str, Any]) -> list[Value]:
    """What the onnx package says of a node's outputs; it is shown the values of small constants, which may describe a shape."""
    types = {name: helper.make_tensor_type_proto(_element_type(dtypes[name]), tensor.shape) for name, tensor in tensors.items()}
    values = {name: value for name, tensor in tensors.items() if (value := value_of(tensor)) is not None}
    small = {name: value for name, value in values.items() if value.size <= _LARGEST_OPERAND and value.dtype.kind in "iufb"}
    data = {name: numpy_helper.from_array(value, name) for name, value in small.items()}
    outputs = infer_node_outputs(signature.schema, node, types, data)
    inferred = (outputs.get(name) for name in node.output)
    return [read_type(one, {}) if one is not None and one.WhichOneof("value") == "tensor_type" else Value() for one in inferred]


def read_type(value_type: TypeProto, dims: Mapping[str, int]) -> Value:
    """Element type and shape of a tensor type; named dimensions take their extent from ``dims``."""
    tensor = value_type.tensor_type
    dtype = numpy_dtype(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return Value(dtype)
    shape = []
    for dim in tensor.shape.dim:
        fixed = dim.HasField("dim_value") and dim.dim_value >= 0
        shape.append(int(dim.dim_value) if fixed else dims.get(dim.dim_param))
    return Value(dtype, tuple(shape))


@cache
def numpy_dtype(element_type: int) -> np.dtype[np.generic]:
    """The NumPy type of an ONNX element type.

    Raises:
        ModelError: there is no such element type.
    """
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(element_type))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"a tensor has the unknown element type {element_type}", "export the model again") from error


@cache
def _element_type(dtype: np.dtype[np.generic]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _type_string(dtype: np.dtype[np.generic]) -> str:
    return f"tensor({TensorProto.DataType.Name(_element_type(dtype)).lower()})"


def _from_type_string(string: str) -> np.dtype[np.generic]:
    return numpy_dtype(TensorProto.DataType.Value(string.removeprefix("tensor(").removesuffix(")").upper()))
