"""Losses: what a prediction costs by its label, on average, and the gradient of that. Labels are an input of the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deeploy.frontend.gradients import one_hot
from deeploy.ir.nodes import Tensor
from deeploy.ir.types import DType


@dataclass(frozen=True)
class TrainingLoss:
    """A loss.

    Attributes:
        label: the shape and element type of the label of a prediction.
        costs: of prediction and label: the cost of each, and the gradient of their sum.
        squashed: the operator that it contains: predictions are what that is applied to, where a model ends with it.
    """

    label: Callable[[Sequence[int]], tuple[list[int], DType]]
    costs: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    squashed: str = ""

    def of(self, prediction: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """The mean cost, one element, and its gradient."""
        costs, gradient = self.costs(prediction, label)
        share = 1 / math.prod(costs.shape)
        return costs.reshape([-1]).reduce("Mean", 0), gradient * share


def _class_axis(shape: Sequence[int]) -> int:
    return min(1, len(shape) - 1)


def _cross_entropy(scores: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of the softmax of the right class; classes are axis 1."""
    axis = _class_axis(scores.shape)
    centred = scores - scores.reduce("Max", axis)
    powers = centred.apply("Exp")
    total = powers.reduce("Sum", axis)
    order = [*range(axis), scores.rank - 1, *range(axis, scores.rank - 1)]
    hits = one_hot(label.reshape([-1]), scores.shape[axis], scores.dtype)
    hits = hits.reshape([*label.shape, scores.shape[axis]]).transpose(order)
    return total.apply("Log") - (centred * hits).reduce("Sum", axis), powers / total - hits


def _squared(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    d = x - label
    return d * d, d * 2.0


def _absolute(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    d = x - label
    return d.apply("Abs"), d.apply("Sign")


def _binary(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """The cross entropy of a sigmoid: max(x, 0) - x label + log(1 + exp(-|x|))."""
    small = (x.apply("Abs").apply("Neg").apply("Exp") + 1.0).apply("Log")
    return x.apply("Relu") - x * label + small, x.apply("Sigmoid") - label


def _same(shape: Sequence[int]) -> tuple[list[int], DType]:
    return [*shape], DType.FLOAT32


def _class_numbers(shape: Sequence[int]) -> tuple[list[int], DType]:
    return [n for axis, n in enumerate(shape) if axis != _class_axis(shape)] or [1], DType.INT32


LOSSES: Mapping[str, TrainingLoss] = {
    "cross_entropy": TrainingLoss(_class_numbers, _cross_entropy, "Softmax"),
    "mse": TrainingLoss(_same, _squared),
    "l1": TrainingLoss(_same, _absolute),
    "bce": TrainingLoss(_same, _binary, "Sigmoid"),
}
