"""Gradients of reductions, of softmax, and of norms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deeploy.frontend.gradients.rules import Backward, Gradients, by_bias, differentiates, reciprocal, square
from deeploy.ir.nodes import Tensor


@differentiates("GlobalAveragePool")
def _global_average(g: Backward, x: Tensor) -> Tensor:
    return (g.dy * (1 / math.prod(x.shape[2:]))).expand(x.shape)


@differentiates("ReduceSum", "ReduceMean")
def _differentiate_reduce(g: Backward, x: Tensor) -> Tensor:
    kept = [1 if axis in g.attrs["axes"] else n for axis, n in enumerate(x.shape)]
    dy = g.dy if g.node.op == "ReduceSum" else g.dy * (g.y.elements / x.elements)
    return dy.reshape(kept).expand(x.shape)


@differentiates("Softmax")
def _differentiate_softmax(g: Backward, x: Tensor) -> Tensor:
    return softmax_gradient(g.dy, g.y, g.attrs["axis"])


def softmax_gradient(dy: Tensor, y: Tensor, axis: int) -> Tensor:
    """The gradient of the argument of a softmax, by its result."""
    return y * (dy - (dy * y).reduce("Sum", axis))


@differentiates("LogSoftmax")
def _log_softmax(g: Backward, x: Tensor) -> Tensor:
    return g.dy - g.y.apply("Exp") * g.dy.reduce("Sum", g.attrs["axis"])


@differentiates("LayerNormalization", weights=(1,), biases=(2,))
def _layer_norm(g: Backward, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Gradients:
    axes = range(g.attrs["axis"] % x.rank, x.rank)
    centred = x - x.reduce("Mean", *axes)
    spread_inverse = inverse_root(square(centred).reduce("Mean", *axes), float(g.attrs.get("epsilon", 1e-5)))
    return norm_gradients(g.dy, centred * spread_inverse, spread_inverse, scale, axes)


def inverse_root(variance: Tensor, epsilon: float) -> Tensor:
    return reciprocal((variance + epsilon).apply("Sqrt"))


def norm_gradients(dy: Tensor, normal: Tensor, spread_inverse: Tensor, scale: Tensor, axes: Sequence[int]) -> Gradients:
    """The gradients of data, scale and bias of a norm along axes, by the normalised data and one over their deviation."""
    scaled = dy * scale
    shared = scaled.reduce("Mean", *axes) + normal * (scaled * normal).reduce("Mean", *axes)
    return (scaled - shared) * spread_inverse, dy * normal, dy


@differentiates("RMSNormalization", "SimplifiedLayerNormalization", weights=(1,))
def _rms_norm(g: Backward, x: Tensor, scale: Tensor) -> Gradients:
    axes = range(g.attrs.get("axis", -1) % x.rank, x.rank)
    inverse = inverse_root(square(x).reduce("Mean", *axes), float(g.attrs.get("epsilon", 1e-5)))
    normal, scaled = x * inverse, g.dy * scale
    return (scaled - normal * (scaled * normal).reduce("Mean", *axes)) * inverse, g.dy * normal


@differentiates("BatchNormalization", weights=(1,), biases=(2,))
def _batch_norm(g: Backward, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Gradients:
    """For inference: mean and variance are constants."""
    inverse = inverse_root(variance, float(g.attrs.get("epsilon", 1e-5)))
    channels: list[int] = [-1, *[1] * (x.rank - 2)]
    normal = (x - mean.reshape(channels)) * inverse.reshape(channels)
    return g.dy * (scale * inverse).reshape(channels), by_bias(g.dy * normal), by_bias(g.dy)
