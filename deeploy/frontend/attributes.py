"""Attributes of nodes as plain Python values, and constants as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.schemas import Attributes, is_dialect_op
from deeploy.frontend.structure import describe_node

_PLAIN = frozenset(int(AttributeProto.AttributeType.Value(name)) for name in ("INT", "INTS", "FLOAT", "FLOATS", "STRING", "STRINGS"))
_TENSOR_VALUED = frozenset({"Constant", "ConstantOfShape"})


def decode_text(value: Any) -> Any:
    """What bytes say, those that are no text escaped; other values as they are."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def read_array(tensor: onnx.TensorProto, name: str) -> np.ndarray:
    """The value of the constant ``name``.

    Raises:
        ModelError: it is damaged.
    """
    try:
        if any(extent < 0 for extent in tensor.dims):
            raise ValueError("it has a negative extent")
        return np.asarray(numpy_helper.to_array(tensor))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"constant '{shorten(name)}' is damaged: {shorten(str(error), 120)}",
            "export the model again, or check that the file is complete",
        ) from error


def read_attributes(node: onnx.NodeProto, domain: str) -> Attributes:
    """The attributes as ints, floats, strings, lists of these, or arrays.

    Numbers that a file stores as tensors become plain numbers. For operators of the dialect, floats with integer values
    become ints, ``n_levels_out`` is called ``n_levels``, ``signed`` is a bool, and one axis alone is a list of axes.

    Raises:
        ModelError: an attribute is damaged.
        UnsupportedError: one holds something else than numbers, strings or dense tensors.
    """
    attributes = {attribute.name: _attribute_value(attribute, node) for attribute in node.attribute}
    if domain or node.op_type not in _TENSOR_VALUED:
        attributes = {name: _unwrap_value(value) for name, value in attributes.items()}
    if not is_dialect_op(node.op_type, domain):
        return attributes
    if "n_levels_out" in attributes:
        attributes["n_levels"] = attributes.pop("n_levels_out")
    attributes = {name: int(v) if isinstance(v, float) and v.is_integer() else v for name, v in attributes.items()}
    if isinstance(attributes.get("axes"), int):
        attributes["axes"] = [attributes["axes"]]
    if isinstance(attributes.get("signed"), int):
        attributes["signed"] = bool(attributes["signed"])
    return attributes


def _unwrap_value(value: Any) -> Any:
    """A tensor of one element as a number, one of one axis as a list."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iufb":
        if value.size == 1 and value.ndim <= 1:
            return value.item()
        if value.ndim == 1:
            return value.tolist()
    return value


def _attribute_value(attribute: AttributeProto, node: onnx.NodeProto) -> Any:
    if attribute.type == AttributeProto.TENSOR:
        return read_array(attribute.t, node.name or attribute.name)
    if attribute.type in _PLAIN:
        value = helper.get_attribute_value(attribute)
        return [decode_text(one) for one in value] if isinstance(value, list) else decode_text(value)
    raise UnsupportedError(
        f"{describe_node(node)} has the attribute '{shorten(attribute.name)}', which is neither a number, a string nor a dense tensor",
        "export the model without it",
    )
