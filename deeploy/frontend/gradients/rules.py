"""What rules of gradients are: records by operator, and what all of them are written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from deeploy.errors import UnsupportedError
from deeploy.ir.nodes import Attributes, Node, Tensor, constant, where

Gradients: TypeAlias = "Sequence[Tensor | None]"
GradientRule: TypeAlias = "Callable[..., Gradients | Tensor]"


@dataclass(frozen=True)
class GradientRecord:
    """The rule of an operator, and positions of inputs that are weights where they are fixed: those that are added are biases."""

    rule: GradientRule
    weights: tuple[int, ...]
    biases: tuple[int, ...]


GRADIENTS: dict[str, GradientRecord] = {}


@dataclass(frozen=True)
class Backward:
    """A node on the way back: its first result ``y``, and the gradients of its results; zeros of those that nothing depends on."""

    node: Node
    gradients: Sequence[Tensor | None]

    @property
    def attrs(self) -> Attributes:
        return self.node.attrs

    @property
    def y(self) -> Tensor:
        return self.node.outputs[0]

    @property
    def dy(self) -> Tensor:
        return self.of_output(0)

    def of_output(self, position: int) -> Tensor:
        """The gradient of a result."""
        known, result = self.gradients[position], self.node.outputs[position]
        return constant(np.zeros(result.shape, result.dtype.numpy), label="no gradient") if known is None else known


def differentiates(*ops: str, weights: tuple[int, ...] = (), biases: tuple[int, ...] = ()) -> Callable[[GradientRule], GradientRule]:
    """Decorator: the rule of some operators."""

    def register(rule: GradientRule) -> GradientRule:
        GRADIENTS.update(dict.fromkeys(ops, GradientRecord(rule, weights, biases)))
        return rule

    return register


def differentiate_node(node: Node, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The gradients of the inputs of a node, given those of its results; each has the shape of its input.

    Raises:
        UnsupportedError: the operator has no rule.
    """
    record = GRADIENTS.get(node.op)
    if record is None:
        raise UnsupportedError(
            f"{node} has no gradient, which what is to be trained in front of it needs",
            "Train only what stands behind this node: --train last:N, or the names of nodes.",
        )
    gradients_of_inputs = record.rule(Backward(node, gradients), *node.inputs)
    every = [gradients_of_inputs] if isinstance(gradients_of_inputs, Tensor) else gradients_of_inputs
    return [None if x is None or g is None else sum_copies(g, x.shape) for x, g in zip(node.inputs, every, strict=False)]


def sum_copies(gradient: Tensor, shape: Sequence[int]) -> Tensor:
    """The gradient of a tensor of a shape, from that of its repetition."""
    if gradient.shape == tuple(shape):
        return gradient
    padded = (1,) * (gradient.rank - len(shape)) + tuple(shape)
    return gradient.reduce("Sum", *(i for i, (n, m) in enumerate(zip(gradient.shape, padded, strict=True)) if n != m)).reshape(shape)


def keep_where(condition: Tensor, x: Tensor) -> Tensor:
    """A tensor where a condition holds, else zeros."""
    return where(condition, x, 0.0)


def square(x: Tensor) -> Tensor:
    return x * x


def reciprocal(x: Tensor) -> Tensor:
    return constant(1.0, x.dtype) / x


def add_gradients(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Both gradients of a tensor together."""
    return other if one is None else one if other is None else one + other


def by_bias(dy: Tensor) -> Tensor:
    return dy.reduce("Sum", *(axis for axis in range(dy.rank) if axis != 1)).reshape([dy.shape[1]])
