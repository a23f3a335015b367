"""What the normalisation rules of operators share: how attributes and constant inputs are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from deeploy.errors import ModelError, shorten
from deeploy.frontend.schemas import Attributes
from deeploy.ir.nodes import Tensor
from deeploy.ir.types import DType


@dataclass
class Draft:
    """A node as the file has it, which a rule may edit: nobody has seen it yet.

    Attributes:
        version: opset of the standard operators.
        is_dialect: whether the graph has operators of the integer dialect.
    """

    name: str
    op: str
    domain: str
    attrs: Attributes
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    version: int
    is_dialect: bool

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.needed(0)

    def needed(self, position: int) -> Tensor:
        """An input that has to be there."""
        tensor = self.inputs[position] if position < len(self.inputs) else None
        if tensor is None:
            raise broken_node(self, f"lacks its input {position}")
        return tensor

    @property
    def y(self) -> Tensor:
        """The first output."""
        return self.outputs[0]


Rule: TypeAlias = Callable[[Draft], "Tensor | None"]  # the tensor that stands for the output; None: what the draft says now


def absent_output() -> Tensor:
    """A tensor in the place of an optional output that no node reads."""
    return Tensor("", (), DType.FLOAT32)


def describe_node(node: Draft) -> str:
    """A node as messages name it: its name and its operator."""
    return f"node '{shorten(node.name)}' ({shorten(node.op)})"


def broken_node(node: Draft, what: str) -> ModelError:
    """The error for a node that is not valid."""
    return ModelError(f"{describe_node(node)} {what}", "correct the model, or export it again")


def integer_attribute(node: Draft, name: str, default: int) -> int:
    """An attribute that is one integer."""
    value = node.attrs.get(name, default)
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise broken_node(node, f"has an attribute '{name}' that is not an integer") from error


def integer_list(node: Draft, name: str, length: int, default: list[int]) -> list[int]:
    """An attribute that is a list of ``length`` integers; ``default`` when it is absent or empty."""
    value = node.attrs.get(name)
    if value is None or np.size(value) == 0:
        return default
    values = _to_ints(node, name, value)
    if len(values) != length:
        raise broken_node(node, f"has {len(values)} values in the attribute '{name}' instead of {length}")
    return values


def _to_ints(node: Draft, name: str, attribute: Any) -> list[int]:
    array = np.atleast_1d(np.asarray(attribute))
    if array.ndim != 1 or array.dtype.kind not in "iufb" or not (np.isfinite(array) & (array == np.trunc(array))).all():
        raise broken_node(node, f"has no list of integers for '{name}'")
    return [int(value) for value in array]


def integer_setting(node: Draft, name: str, position: int) -> list[int] | None:
    """A list of integers that is an attribute in one opset and an input in another; None where there is neither."""
    if node.attrs.get(name) is not None:
        return _to_ints(node, name, node.attrs[name])
    array = constant_operand(node, position)
    return None if array is None else _to_ints(node, name, array)


def axes_setting(node: Draft, position: int, count: int, rank: int) -> list[int]:
    """The axes that ``count`` values of a node are for: an attribute or an input; the first ones where neither is there."""
    given = integer_setting(node, "axes", position)
    return axes_of(node, list(range(count)) if given is None else given, rank)


def restate_node(node: Draft, op: str = "", **attributes: object) -> None:
    """Leave a node with its first input and these attributes, perhaps as another operator."""
    node.inputs, node.op, node.attrs = node.inputs[:1], op or node.op, attributes


def constant_operand(node: Draft, position: int) -> np.ndarray | None:
    """The value of a constant input; None where the input is absent."""
    tensor = node.inputs[position] if position < len(node.inputs) else None
    return None if tensor is None else tensor.data


def axis_of(node: Draft, value: int, rank: int, limit: int | None = None) -> int:
    """A non-negative axis; ``limit`` is the first one that is too large, the rank by default."""
    axis = value + rank if value < 0 else value
    if not 0 <= axis < (rank if limit is None else limit):
        raise broken_node(node, f"has axis {value}, but its input has {rank} axes")
    return axis


def axes_of(node: Draft, values: list[int], rank: int) -> list[int]:
    """Non-negative axes in the order given."""
    axes = [axis_of(node, value, rank) for value in values]
    if len(set(axes)) < len(axes):
        raise broken_node(node, f"names an axis twice: {values}")
    return axes
