"""Optimisers: what a weight is behind a step, by its gradient, and what the optimiser remembers of it; the formulas are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from deeploy.ir.nodes import Tensor

MOMENTUM, EPSILON = 0.9, 1e-8
BETAS: Mapping[str, float] = {"beta1": 0.9, "beta2": 0.999}


@dataclass(frozen=True)
class Optimizer:
    """An optimiser.

    Attributes:
        memory: what it remembers of each weight, in the shape of that, zeros at first.
        betas: of moving averages that begin with zeros, by name. A number is such an average of ones: what others are divided by.
        update: of learning rate, weight, gradient, memory, and these numbers behind the step: the weight and its memory behind the step.
    """

    memory: tuple[str, ...]
    update: Callable[[Tensor, Tensor, Tensor, Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, Sequence[Tensor]]]
    betas: Mapping[str, float] = field(default_factory=dict)


def _descend(rate: Tensor, w: Tensor, g: Tensor, memory: Sequence[Tensor], shares: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
    return w - g * rate, ()


def _with_momentum(
    rate: Tensor, w: Tensor, g: Tensor, memory: Sequence[Tensor], shares: Sequence[Tensor]
) -> tuple[Tensor, Sequence[Tensor]]:
    velocity = memory[0] * MOMENTUM + g
    return w - velocity * rate, (velocity,)


def _adam(rate: Tensor, w: Tensor, g: Tensor, memory: Sequence[Tensor], shares: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
    """Kingma and Ba, Adam, algorithm 1."""
    mean, square = (average(old, new, beta) for old, new, beta in zip(memory, (g, g * g), BETAS.values(), strict=True))
    deviation = (square / shares[1]).apply("Sqrt") + EPSILON
    return w - mean * (rate / shares[0]) / deviation, (mean, square)


def average(old: Tensor, new: Tensor, beta: float) -> Tensor:
    """A moving average, which nothing has to be computed for before the new value is there."""
    return old + (new - old) * (1 - beta)


OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": Optimizer((), _descend),
    "momentum": Optimizer(("velocity",), _with_momentum),
    "adam": Optimizer(("mean", "square"), _adam, BETAS),
}
