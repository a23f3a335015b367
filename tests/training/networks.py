"""Small networks that are trained: each ends in one tensor, which a loss is taken of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.models import Net, conv

Build = Callable[[Net], str]


def _linear(n: Net, x: str, inner: int, outer: int) -> str:
    return str(n.Add(n.MatMul(x, n.w(inner, outer)), n.w(outer)))


def _smooth(n: Net, x: str, inner: int, outer: int) -> str:
    """A layer in front, whose weights get a gradient through what follows."""
    return str(n.Tanh(_linear(n, x, inner, outer)))


def _image(n: Net, *shape: int) -> str:
    """An image behind a convolution."""
    return conv(n, n.x(*shape), shape[1], shape[1], 1)


def _elementwise(op: str, **attrs: object) -> Build:
    return lambda n: str(getattr(n, op)(_linear(n, n.x(3, 4), 4, 5), **attrs))


def _positive(op: str) -> Build:
    """A function of numbers above 1."""
    return lambda n: str(getattr(n, op)(n.Add(n.Sigmoid(_linear(n, n.x(3, 4), 4, 5)), n.c(1.0))))


def _window(channels: int, filters: int, size: int, **attrs: Any) -> Build:
    def build(n: Net) -> str:
        return conv(n, _image(n, 2, channels, size, size + 1), channels, filters, 3, **attrs)

    return build


def _transposed(group: int, **attrs: object) -> Build:
    return lambda n: str(n.ConvTranspose(_image(n, 2, 4, 4, 3), n.w(4, 2, 3, 3), n.w(2 * group), group=group, **attrs))


def _pool(op: str, **attrs: object) -> Build:
    return lambda n: str(getattr(n, op)(_image(n, 2, 2, 6, 6), **attrs))


def _conv_1d(n: Net) -> str:
    return str(n.Conv(n.Conv(n.x(2, 2, 9), n.w(3, 2, 1)), n.w(4, 3, 3), n.w(4), strides=[2], pads=[1, 1]))


def _norm(n: Net) -> str:
    return str(n.LayerNormalization(_smooth(n, n.x(2, 3, 4), 4, 6), n.w(6), n.w(6), axis=-1))


def _spelled_norm(n: Net) -> str:
    x = _smooth(n, n.x(3, 4), 4, 6)
    d = n.Sub(x, n.ReduceMean(x, axes=[-1]))
    return str(n.Mul(n.Div(d, n.Sqrt(n.Add(n.ReduceMean(n.Pow(d, n.c(2.0)), axes=[-1]), n.c(1e-5)))), n.w(6)))


def _frozen_norm(n: Net) -> str:
    return str(n.BatchNormalization(_image(n, 2, 3, 4, 4), n.w(3), n.w(3), n.w(3), n.c(np.array([0.5, 1.0, 2.0], np.float32))))


def _attention(n: Net) -> str:
    x = n.x(1, 4, 6)
    q, k, v = (n.Transpose(n.Reshape(_linear(n, x, 6, 6), n.i(1, 4, 2, 3)), perm=[0, 2, 1, 3]) for _ in range(3))
    scores = n.Softmax(n.Mul(n.MatMul(q, n.Transpose(k, perm=[0, 1, 3, 2])), n.c(0.5)), axis=-1)
    return _linear(n, n.Reshape(n.Transpose(n.MatMul(scores, v), perm=[0, 2, 1, 3]), n.i(1, 4, 6)), 6, 2)


def _moves(n: Net) -> str:
    x = _smooth(n, n.x(3, 4), 4, 6)
    first, second = n.node("Split", [x, n.i(2, 4)], 2, axis=1)
    cut = n.Slice(second, n.i(0, 0), n.i(3, 4), n.i(0, 1), n.i(2, 3))
    joined = n.Concat(n.Transpose(first, perm=[1, 0]), n.Pad(cut, n.i(0, 1, 0, 0)), axis=0)
    return str(n.Expand(n.Unsqueeze(n.Flatten(joined), n.i(0)), n.i(2, 4, 3)))


def _table(n: Net) -> str:
    rows = n.Gather(n.w(5, 3), n.i(1, 4, 1), axis=0)
    return str(n.Add(n.Gather(_smooth(n, n.x(3, 4), 4, 3), n.i(2, 0), axis=1), n.Slice(rows, n.i(1), n.i(3), n.i(1))))


def _broadcast(n: Net) -> str:
    x = _smooth(n, n.x(2, 3, 4), 4, 4)
    return str(n.Sub(n.Mul(x, n.w(3, 1)), n.Div(n.w(4), n.Add(n.Sigmoid(x), n.c(1.0)))))


def _chosen(n: Net) -> str:
    x, y = _smooth(n, n.x(3, 4), 4, 4), _smooth(n, n.x(3, 4), 4, 4)
    return str(n.Max(n.Where(n.Greater(x, n.c(0.1)), y, x), n.Min(y, n.Neg(x)), n.PRelu(x, n.w(4))))


def _products(n: Net) -> str:
    x = n.Gemm(n.x(3, 4), n.w(5, 4), n.w(5), alpha=0.5, beta=2.0, transB=1)
    return str(n.Gemm(n.Tanh(x), n.w(3, 2), transA=1))


def _vectors(n: Net) -> str:
    x = _smooth(n, n.x(2, 3, 4), 4, 4)
    return str(n.MatMul(n.MatMul(n.w(3), x), n.w(4)))


def _batched(n: Net) -> str:
    return str(n.MatMul(n.w(2, 1, 3, 3), n.MatMul(_smooth(n, n.x(2, 1, 3, 4), 4, 4), n.w(2, 4, 2))))


def _reductions(n: Net) -> str:
    x = _image(n, 2, 3, 4, 4)
    return str(n.Add(n.GlobalAveragePool(x), n.Add(n.ReduceMean(x, axes=[1, 3]), n.ReduceSum(x, n.i(2), keepdims=1))))


def _residual(n: Net) -> str:
    x = _image(n, 1, 4, 6, 6)
    x = n.Add(x, conv(n, n.Relu(conv(n, x, 4, 4, group=4)), 4, 4, 1))
    return _linear(n, n.Flatten(n.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2])), 36, 3)


NETWORKS: dict[str, Build] = {
    **{
        op: _elementwise(op)
        for op in ("Relu", "LeakyRelu", "Elu", "Sigmoid", "Tanh", "Softplus", "HardSigmoid", "HardSwish", "Exp", "Erf", "Abs")
    },
    **{op: _positive(op) for op in ("Log", "Sqrt", "Reciprocal")},
    "Clip": lambda n: str(n.Clip(_linear(n, n.x(3, 4), 4, 5), n.c(-0.5), n.c(0.7))),
    "Gelu": _elementwise("Gelu"),
    "Gelu by tanh": _elementwise("Gelu", approximate="tanh"),
    "Silu": lambda n: str(n.Mul(x := _linear(n, n.x(3, 4), 4, 5), n.Sigmoid(x))),
    "Pow": lambda n: str(n.Pow(n.Sigmoid(_linear(n, n.x(3, 4), 4, 5)), n.c(1.5))),
    "Softmax": lambda n: str(n.MatMul(n.Softmax(_linear(n, n.x(3, 4), 4, 5), axis=-1), n.w(5, 2))),
    "LogSoftmax": _elementwise("LogSoftmax", axis=-1),
    "convolution": _window(2, 3, 5),
    "strides": _window(2, 3, 6, strides=[2, 3], pads=[1, 0, 0, 1]),
    "dilations": _window(2, 3, 7, dilations=[2, 1], pads=[0, 1, 1, 0]),
    "groups": _window(4, 6, 5, group=2, strides=[2, 2]),
    "depthwise": _window(3, 3, 5, group=3),
    "wide": _window(8, 9, 5),
    "wide, dilated and strided": _window(8, 9, 8, strides=[2, 1], dilations=[1, 2], pads=[0, 1, 1, 2]),
    "along one axis": _conv_1d,
    "transposed": _transposed(1, strides=[2, 2], output_padding=[1, 0]),
    "transposed in groups": _transposed(2, pads=[1, 0, 1, 1]),
    "largest": _pool("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
    "largest, overlapping": _pool("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0]),
    "average": _pool("AveragePool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    "norm": _norm,
    "norm, spelled out": _spelled_norm,
    "frozen norm": _frozen_norm,
    "attention": _attention,
    "moves": _moves,
    "table": _table,
    "broadcast": _broadcast,
    "chosen": _chosen,
    "products": _products,
    "vectors": _vectors,
    "batches": _batched,
    "reductions": _reductions,
    "residual": _residual,
}
