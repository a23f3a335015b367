"""Predicates over the operands of a node, of which the constraints of operators are made: each says what is wrong, or nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import shorten

ANY = 1 << 30  # axes or elements: no limit
MOST = 1 << 31  # elements along an axis


@dataclass(frozen=True)
class Operands:
    """What a node is given: its attributes, those that are absent included where they have a default, and its inputs."""

    attributes: Mapping[str, Any]
    inputs: Sequence[gs.Tensor | None]

    def tensor(self, position: int) -> gs.Tensor | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def shape(self, position: int) -> tuple[int, ...] | None:
        """The extents of an input; None where it is absent."""
        tensor = self.tensor(position)
        return None if tensor is None else tuple(tensor.shape)

    def value(self, position: int) -> np.ndarray | None:
        """The value of an input that is a constant of numbers."""
        value = constant_of(self.tensor(position))
        return value if value is not None and value.dtype.kind in "iufb" else None

    def setting(self, name: str, position: int) -> list[int] | None:
        """Whole numbers that are an attribute in some opsets and a constant input in others."""
        found = self.value(position) if self.attributes.get(name) is None else np.asarray(self.attributes[name])
        return None if found is None or found.dtype.kind not in "iu" else [int(number) for number in found.ravel()]

    def axis(self, default: int = 0, of: int = 0) -> int:
        """The attribute ``axis``, counted from the front; it lies within the rank of an input (``axis_in``)."""
        rank = len(self.shape(of) or ())
        return int(self.attributes.get("axis", default)) % max(rank, 1)


def constant_of(tensor: gs.Tensor | None) -> np.ndarray | None:
    """The value of a tensor that is constant."""
    return np.asarray(tensor.values) if isinstance(tensor, gs.Constant) else None


def extents(node: Operands) -> tuple[int, ...] | None:
    """The shape of the first input."""
    return node.shape(0)


Constraint = Callable[[Operands], str | None]
Reach = Callable[[Operands], "tuple[int, ...] | None"]


def rank_is(position: int, low: int, high: int | None = None) -> Constraint:
    """An input has from ``low`` to ``high`` axes; just ``low`` where that is all."""

    def check(node: Operands) -> str | None:
        shape, most = node.shape(position), low if high is None else high
        told = str(low) if low == most else f"{low} or more" if most >= ANY else f"{low} to {most}"
        return None if shape is None or low <= len(shape) <= most else f"has an input {position} of {len(shape)} axes, which has {told}"

    return check


def shape_is(position: int, wanted: Reach) -> Constraint:
    """An input has a shape that follows from others; None of it: nothing is demanded."""

    def check(node: Operands) -> str | None:
        shape, needed = node.shape(position), wanted(node)
        if shape is None or needed is None or shape == needed:
            return None
        return f"has an input {position} of shape {list(shape)}, where {list(needed)} is needed"

    return check


def broadcasts(position: int, to: Reach) -> Constraint:
    """An input can be repeated along axes to a shape, which it does not change."""

    def check(node: Operands) -> str | None:
        shape, whole = node.shape(position), to(node)
        if shape is None or whole is None:
            return None
        fits = len(shape) <= len(whole) and all(n in (1, m) for n, m in zip(shape[::-1], whole[::-1], strict=False))
        return None if fits else f"has an input {position} of shape {list(shape)}, which does not broadcast to {list(whole)}"

    return check


def single(*positions: int) -> Constraint:
    """Inputs have one element."""

    def check(node: Operands) -> str | None:
        wrong = next((p for p in positions if math.prod(node.shape(p) or ()) != 1), None)
        return None if wrong is None else f"has an input {wrong} of shape {list(node.shape(wrong) or ())}, which has one element"

    return check


def same_rank(first: int, second: int) -> Constraint:
    def check(node: Operands) -> str | None:
        a, b = node.shape(first), node.shape(second)
        return None if a is None or b is None or len(a) == len(b) else f"reads tensors of {len(a)} and {len(b)} axes, which are as many"

    return check


def axis_in(name: str = "axis", of: int = 0, more: int = 0, default: int = 0) -> Constraint:
    """An attribute is an axis of an input, or one of ``more`` behind it."""

    def check(node: Operands) -> str | None:
        shape, axis = node.shape(of), node.attributes.get(name, default)
        rank = 0 if shape is None else len(shape) + more
        return None if shape is None or -rank <= axis < rank else f"has {name} {axis}, but its input has {len(shape)} axes"

    return check


def axes_in(name: str, position: int, grows: bool = False) -> Constraint:
    """Axes of the first input, an attribute or a constant, none of them twice; where it ``grows``, of the output, which has them too."""

    def check(node: Operands) -> str | None:
        axes, shape = node.setting(name, position), node.shape(0)
        if axes is None or shape is None:
            return None
        rank = len(shape) + (len(axes) if grows else 0)
        if any(not -rank <= axis < rank for axis in axes):
            return f"has the {name} {shorten(str(axes), 80)}, but there are {rank}"
        return f"names an axis twice: {axes}" if len({axis % rank for axis in axes}) < len(axes) else None

    return check


def values_in(position: int, low: int, high: Callable[[Operands], int | None]) -> Constraint:
    """The elements of a constant lie from ``low`` up to a number, which is not one of them."""

    def check(node: Operands) -> str | None:
        value, most = node.value(position), high(node)
        if value is None or most is None or not value.size:
            return None
        least, greatest = value.min().item(), value.max().item()
        fits = low <= least and greatest < most
        return None if fits else f"has values from {least} to {greatest} in its input {position}, which lie from {low} to {most - 1}"

    return check


def indices_in(position: int = 1, axis: int | None = None) -> Constraint:
    """A constant holds indices of an axis of the first input, which may count from its end; of the attribute's where none is told."""

    def check(node: Operands) -> str | None:
        value, shape = node.value(position), node.shape(0)
        if value is None or not value.size or not shape:
            return None
        size = shape[node.axis() if axis is None else axis]
        least, greatest = value.min().item(), value.max().item()
        return None if -size <= least and greatest < size else f"takes the entries {least} to {greatest} of an axis that has {size}"

    return check


def at_least(name: str, low: int, most: int = ANY) -> Constraint:
    """An attribute, or each element of a list, is not below a number."""

    def check(node: Operands) -> str | None:
        value = node.attributes.get(name)
        numbers = value if isinstance(value, list) else [] if value is None else [value]
        told = f"{low} or more" if most == ANY else f"from {low} to {most}"
        return None if all(low <= number <= most for number in numbers) else f"has {name} = {shorten(str(value), 40)}, which is {told}"

    return check


def masked(position: int) -> Constraint:
    """A mask of rows has one for each batch; one of places has one for each row of the input."""

    def check(node: Operands) -> str | None:
        shape, x = node.shape(position), node.shape(0) or ()
        fits = shape is None or len(shape) not in (2, 3) or shape[:-1] == x[: len(shape) - 1]
        return None if fits else f"has a mask of shape {list(shape or ())} for an input of shape {list(x)}"

    return check


def divides(name: str, *axes: int) -> Constraint:
    """The square of an attribute divides the channels, or without its square it divides the extents of axes."""

    def check(node: Operands) -> str | None:
        size, shape = node.attributes.get(name, 1), node.shape(0)
        if shape is None or size < 1:
            return None if size >= 1 else f"has {name} = {size}, which is 1 or more"
        wrong = [shape[axis] for axis in axes if shape[axis] % size] if axes else [shape[1]] * (shape[1] % size**2 > 0)
        return f"has {name} {size}, which does not divide {wrong[0]} elements" if wrong else None

    return check
