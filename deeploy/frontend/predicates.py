"""Predicates over the operands of a node, of which the constraints of operators are made: each says what is wrong, or nothing.

None says anything of an operand that is absent, or of the value of one that is not constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeAlias

import numpy as np

from deeploy.errors import shorten
from deeploy.ir.nodes import Tensor

ANY = 1 << 30  # axes or elements: no limit
MOST = 1 << 31  # elements along an axis


class UnknownOperand(Exception):
    """An operand is absent, or its value not constant: there is nothing to say of it."""


Known: TypeAlias = Tensor | np.ndarray  # a tensor of the file; constants whose elements the generated code does not have are arrays
Inputs: TypeAlias = Sequence[Known | None]


def type_of(tensor: Known) -> np.dtype[Any]:
    """The element type of a tensor in the file."""
    return tensor.dtype if isinstance(tensor, np.ndarray) else tensor.dtype.numpy


def type_text(tensor: Known) -> str:
    """Element type and shape, as messages show them."""
    return f"{type_of(tensor)}{list(tensor.shape)}"


def value_of(tensor: Known | None) -> np.ndarray | None:
    """The array of a constant tensor; None for any other."""
    return tensor if tensor is None or isinstance(tensor, np.ndarray) else tensor.data


@dataclass(frozen=True)
class Operands:
    """What a node is given: its attributes, those that are absent included where they have a default, and its inputs."""

    attributes: Mapping[str, Any]
    inputs: Inputs

    def has(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def tensor(self, position: int) -> Known:
        """An input.

        Raises:
            UnknownOperand: it is absent.
        """
        tensor = self.inputs[position] if position < len(self.inputs) else None
        if tensor is None:
            raise UnknownOperand
        return tensor

    def shape(self, position: int) -> tuple[int, ...]:
        """The shape of the input at a position."""
        return tuple(self.tensor(position).shape)

    def value(self, position: int) -> np.ndarray:
        """The value of an input that is a constant of numbers."""
        value = value_of(self.tensor(position))
        if value is None or value.dtype.kind not in "iufb":
            raise UnknownOperand
        return value

    def setting(self, name: str, position: int) -> list[int]:
        """Whole numbers that are an attribute in some opsets and a constant input in others."""
        array = self.value(position) if self.attributes.get(name) is None else np.asarray(self.attributes[name])
        if array.dtype.kind not in "iu":
            raise UnknownOperand
        return [int(number) for number in array.ravel()]

    def axis(self, default: int = 0) -> int:
        """The attribute ``axis``, counted from the front; it lies within the rank of the first input (``axis_in``)."""
        return int(self.attributes.get("axis", default)) % max(len(self.shape(0)), 1)


Constraint = Callable[[Operands], str | None]
Reach = Callable[[Operands], tuple[int, ...]]
P = ParamSpec("P")


def make_constraint(check: Callable[Concatenate[Operands, P], str | None]) -> Callable[P, Constraint]:
    """A function that makes a constraint of everything but the operands."""
    return lambda *given, **named: lambda node: check(node, *given, **named)


def first_shape(node: Operands) -> tuple[int, ...]:
    """The shape of the node's first input."""
    return node.shape(0)


@make_constraint
def rank_is(node: Operands, position: int, low: int, high: int | None = None) -> str | None:
    """An input has from ``low`` to ``high`` axes; just ``low`` where that is all."""
    rank, most = len(node.shape(position)), low if high is None else high
    told = str(low) if low == most else f"{low} or more" if most >= ANY else f"{low} to {most}"
    return None if low <= rank <= most else f"has an input {position} of {rank} axes, which has {told}"


@make_constraint
def shape_is(node: Operands, position: int, wanted: Reach) -> str | None:
    """An input has a shape that follows from others."""
    shape, needed = node.shape(position), wanted(node)
    return None if shape == needed else f"has an input {position} of shape {list(shape)}, where {list(needed)} is needed"


@make_constraint
def has_broadcast(node: Operands, position: int, to: Reach) -> str | None:
    """An input can be repeated along axes to a shape, which it does not change."""
    shape, whole = node.shape(position), to(node)
    fits = len(shape) <= len(whole) and all(n in (1, m) for n, m in zip(shape[::-1], whole[::-1], strict=False))
    return None if fits else f"has an input {position} of shape {list(shape)}, which does not broadcast to {list(whole)}"


@make_constraint
def has_one_element(node: Operands, *positions: int) -> str | None:
    """Requires the inputs at these positions to have one element; returns what is wrong, or None."""
    wrong = next((p for p in positions if node.has(p) and math.prod(node.shape(p)) != 1), None)
    return None if wrong is None else f"has an input {wrong} of shape {list(node.shape(wrong))}, which has one element"


@make_constraint
def same_rank(node: Operands, first: int, second: int) -> str | None:
    a, b = len(node.shape(first)), len(node.shape(second))
    return None if a == b else f"reads tensors of {a} and {b} axes, which are as many"


@make_constraint
def axis_in(node: Operands, name: str = "axis", more: int = 0, default: int = 0) -> str | None:
    """An attribute is an axis of the first input, or one of ``more`` behind it."""
    rank, axis = len(node.shape(0)), node.attributes.get(name, default)
    return None if -rank - more <= axis < rank + more else f"has {name} {axis}, but its input has {rank} axes"


@make_constraint
def axes_in(node: Operands, name: str, position: int, grows: bool = False) -> str | None:
    """Axes of the first input, an attribute or a constant, none of them twice; where it ``grows``, of the output, which has them too."""
    axes = node.setting(name, position)
    rank = len(node.shape(0)) + (len(axes) if grows else 0)
    if any(not -rank <= axis < rank for axis in axes):
        return f"has the {name} {shorten(str(axes), 80)}, but there are {rank}"
    return f"names an axis twice: {axes}" if len({axis % rank for axis in axes}) < len(axes) else None


@make_constraint
def has_axes(node: Operands, name: str, position: int) -> str | None:
    """Axes that are given are not none at all, of which onnx and onnxruntime have different opinions."""
    given = node.attributes.get(name)
    return (
        None
        if np.size(node.value(position) if given is None else given)
        else f"has {name} without elements; without {name} it would mean all axes of extent 1"
    )


def _value_ends(node: Operands, position: int) -> tuple[float, float]:
    value = node.value(position)
    if not value.size:
        raise UnknownOperand
    return value.min().item(), value.max().item()


@make_constraint
def values_in(node: Operands, position: int, low: int, high: Callable[[Operands], int]) -> str | None:
    """The elements of a constant lie from ``low`` up to a number, which is not one of them."""
    (least, greatest), most = _value_ends(node, position), high(node)
    fits = low <= least and greatest < most
    return None if fits else f"has values from {least} to {greatest} in its input {position}, which lie from {low} to {most - 1}"


@make_constraint
def indices_in(node: Operands) -> str | None:
    """The second input holds indices of an axis of the first one, which may count from its end."""
    (least, greatest), shape = _value_ends(node, 1), node.shape(0)
    if not shape:
        return None
    size = shape[node.axis()]
    return None if -size <= least and greatest < size else f"takes the entries {least} to {greatest} of an axis that has {size}"


@make_constraint
def at_least(node: Operands, name: str, low: int, most: int = ANY) -> str | None:
    """An attribute, or each element of a list, is not below a number."""
    value = node.attributes.get(name)
    numbers = value if isinstance(value, list) else [] if value is None else [value]
    told = f"{low} or more" if most == ANY else f"from {low} to {most}"
    return None if all(low <= number <= most for number in numbers) else f"has {name} = {shorten(str(value), 40)}, which is {told}"


@make_constraint
def fits_mask(node: Operands, position: int) -> str | None:
    """A mask of rows has one for each batch; one of places has one for each row of the input."""
    shape, x = node.shape(position), node.shape(0)
    fits = len(shape) not in (2, 3) or shape[:-1] == x[: len(shape) - 1]
    return None if fits else f"has a mask of shape {list(shape)} for an input of shape {list(x)}"


@make_constraint
def divides_channels(node: Operands, name: str, *axes: int) -> str | None:
    """The square of an attribute divides the channels, or without its square it divides the extents of axes."""
    size = node.attributes.get(name, 1)
    if size < 1:
        return f"has {name} = {size}, which is 1 or more"
    shape = node.shape(0)
    wrong = [shape[axis] for axis in axes if shape[axis] % size] if axes else [shape[1]] * (shape[1] % size**2 > 0)
    return f"has {name} {size}, which does not divide {wrong[0]} elements" if wrong else None
