"""Reductions over any axes (docs/integer-form.md)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from deeploy.graph.nest import MAX, SUM, Combine, Dim, Expr, Kind, Map, Nest
from deeploy.graph.nodes import Node


def nest(combine: Combine) -> Callable[[Node], Nest]:
    """The nest of a reduction: reduced axes of x are absent from y, or of extent 1 with ``keepdims``."""

    def declare(node: Node) -> Nest:
        x = node.inputs[0]
        assert x is not None
        axes = node.attrs["axes"]
        dims = [Dim(f"d{i}", Kind.REDUCTION, combine) if i in axes else Dim(f"d{i}") for i in range(len(x.shape))]
        result: list[Expr | int] = [0 if i in axes else dim for i, dim in enumerate(dims) if node.attrs["keepdims"] or i not in axes]
        return Nest(reads={"x": Map(*dims)}, writes={"y": Map(*result)})

    return declare


sum_nest, extreme_nest = nest(SUM), nest(MAX)


def _over(node: Node) -> tuple[tuple[int, ...], bool]:
    return tuple(node.attrs["axes"]), bool(node.attrs["keepdims"])


def sum_reference(node: Node, x: np.ndarray) -> np.ndarray:
    axes, keepdims = _over(node)
    return np.asarray(x.sum(axis=axes, keepdims=keepdims, dtype=np.float32 if x.dtype.kind == "f" else np.int64))


def mean_reference(node: Node, x: np.ndarray) -> np.ndarray:
    axes, keepdims = _over(node)
    return np.asarray(x.mean(axis=axes, keepdims=keepdims, dtype=np.float32))


def max_reference(node: Node, x: np.ndarray) -> np.ndarray:
    axes, keepdims = _over(node)
    return np.asarray(x.max(axis=axes, keepdims=keepdims))


def min_reference(node: Node, x: np.ndarray) -> np.ndarray:
    axes, keepdims = _over(node)
    return np.asarray(x.min(axis=axes, keepdims=keepdims))


def integer_mean_reference(node: Node, x: np.ndarray) -> np.ndarray:
    """S the sum, n the count; n = 2^k without keepdims: (S + 2^(k-1)) >> k; else (S + sgn(S)*(n >> 1)) / n truncated."""
    axes, keepdims = _over(node)
    total = x.sum(axis=axes, keepdims=keepdims, dtype=np.int64)
    count = int(np.prod([x.shape[i] for i in axes], dtype=np.int64))
    if count & (count - 1) == 0 and not keepdims:
        return np.asarray((total + count // 2) >> (count.bit_length() - 1))
    rounded = total + np.sign(total) * (count >> 1)
    return np.asarray(np.sign(rounded) * (np.abs(rounded) // count))
