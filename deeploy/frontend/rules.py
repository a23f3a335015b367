"""What the normalisation rules of operators share: how attributes and constant inputs are read, and how nodes are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import ModelError, shorten
from deeploy.frontend.schemas import Attributes


@dataclass
class Context:
    """What a rule may need besides its node.

    Attributes:
        version: opset of the standard operators.
        names: names of tensors and nodes in use.
        is_dialect: whether the graph has operators of the integer dialect.
    """

    version: int
    names: set[str]
    is_dialect: bool

    def fresh(self, base: str) -> str:
        """A name that is not in use, made from ``base``."""
        name, number = base, 2
        while name in self.names:
            name, number = f"{base}_{number}", number + 1
        self.names.add(name)
        return name

    def node(self, op: str, model: gs.Node, attributes: Attributes, inputs: list[gs.Tensor], output: gs.Variable) -> gs.Node:
        """A new node that computes a part of what ``model`` does."""
        return gs.Node(op, self.fresh(f"{model.name}_{op.lower()}"), attributes, inputs, [output], domain="")

    def like(self, tensor: gs.Tensor, suffix: str, shape: list[int]) -> gs.Variable:
        """A new variable with the element type of ``tensor``."""
        return gs.Variable(self.fresh(f"{tensor.name}_{suffix}"), tensor.dtype, shape)


# What a rule makes of a node: None (the node, edited in place), the tensor that replaces its output, or other nodes.
Result: TypeAlias = gs.Tensor | list[gs.Node] | None
Rule = Callable[[gs.Node, Context], Result]


def describe(node: gs.Node) -> str:
    """How messages call a node."""
    return f"node '{shorten(node.name)}' ({shorten(node.op)})"


def broken(node: gs.Node, what: str) -> ModelError:
    """The error for a node that is not valid."""
    return ModelError(f"{describe(node)} {what}", "correct the model, or export it again")


def integer(node: gs.Node, name: str, default: int) -> int:
    """An attribute that is one integer."""
    value = node.attrs.get(name, default)
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise broken(node, f"has an attribute '{name}' that is not an integer") from error


def integers(node: gs.Node, name: str, length: int, default: list[int]) -> list[int]:
    """An attribute that is a list of ``length`` integers; ``default`` when it is absent or empty."""
    found = node.attrs.get(name)
    if found is None or np.size(found) == 0:
        return default
    values = _to_ints(node, name, found)
    if len(values) != length:
        raise broken(node, f"has {len(values)} values in the attribute '{name}' instead of {length}")
    return values


def _to_ints(node: gs.Node, name: str, found: Any) -> list[int]:
    array = np.atleast_1d(np.asarray(found))
    if array.ndim != 1 or array.dtype.kind not in "iufb" or not (np.isfinite(array) & (array == np.trunc(array))).all():
        raise broken(node, f"has no list of integers for '{name}'")
    return [int(value) for value in array]


def setting(node: gs.Node, name: str, position: int) -> list[int] | None:
    """A list of integers that is an attribute in one opset and an input in another; None where there is neither."""
    if node.attrs.get(name) is not None:
        return _to_ints(node, name, node.attrs[name])
    found = operand(node, position)
    return None if found is None else _to_ints(node, name, found)


def axes_setting(node: gs.Node, position: int, count: int, rank: int) -> list[int]:
    """The axes that ``count`` values of a node are for: an attribute or an input; the first ones where neither is there."""
    given = setting(node, "axes", position)
    return axes_of(node, list(range(count)) if given is None else given, rank)


def restate(node: gs.Node, op: str = "", **attributes: object) -> Result:
    """Leave a node with its first input and these attributes, perhaps as another operator; None, which is what a rule returns then."""
    node.inputs = node.inputs[:1]
    node.op = op or node.op
    node.attrs.clear()
    node.attrs.update(attributes)
    return None


def operand(node: gs.Node, position: int) -> np.ndarray | None:
    """The value of a constant input; None where the input is absent."""
    tensor = node.inputs[position] if position < len(node.inputs) else None
    if tensor is None or not isinstance(tensor, gs.Constant):
        return None
    return np.asarray(tensor.values)


def axis_of(node: gs.Node, value: int, rank: int, limit: int | None = None) -> int:
    """A non-negative axis; ``limit`` is the first one that is too large, the rank by default."""
    axis = value + rank if value < 0 else value
    if not 0 <= axis < (rank if limit is None else limit):
        raise broken(node, f"has axis {value}, but its input has {rank} axes")
    return axis


def axes_of(node: gs.Node, values: list[int], rank: int) -> list[int]:
    """Non-negative axes in the order given."""
    axes = [axis_of(node, value, rank) for value in values]
    if len(set(axes)) < len(axes):
        raise broken(node, f"names an axis twice: {values}")
    return axes
