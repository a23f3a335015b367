"""Batched matrix products: a[...,M,K] b[...,K,N], either one transposed, with zero points (docs/integer-form.md)."""

from __future__ import annotations

import numpy as np

from deeploy.graph.nest import Dim, Map, Nest, parallel, reduction
from deeploy.graph.nodes import Node
from deeploy.operators.conv import product


def nest(node: Node) -> Nest:
    """Batch axes are aligned to the right and broadcast; a constant b is stored [...,K,N] whatever ``trans_b`` says."""
    a, b, y = node.inputs[0], node.inputs[1], node.outputs[0]
    assert a is not None and b is not None
    rank = len(y.shape)
    batch: tuple[Dim, ...] = parallel(*(f"b{axis}" for axis in range(rank - 2)))
    m, n = parallel("m", "n")
    (k,) = reduction("k")
    transposed = node.attrs["trans_b"] and b.data is None
    rows = (k, m) if node.attrs["trans_a"] else (m, k)
    columns = (n, k) if transposed else (k, n)
    return Nest(
        reads={
            "a": Map(*batch[len(batch) - (len(a.shape) - 2) :], *rows),
            "b": Map(*batch[len(batch) - (len(b.shape) - 2) :], *columns),
        },
        writes={"y": Map(*batch, m, n)},
    )


def stored_b(array: np.ndarray, node: Node) -> np.ndarray:
    """The layout of a constant b: [...,K,N], columns dense."""
    return np.ascontiguousarray(array.swapaxes(-1, -2)) if node.attrs["trans_b"] else array


def reference(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """acc = sum over k of (a - a_zero_point) * (b - b_zero_point)."""
    if a.dtype.kind != "f":
        a = a.astype(np.int64) - node.attrs["a_zero_point"]
        b = b.astype(np.int64) - node.attrs["b_zero_point"]
    left = a.swapaxes(-1, -2) if node.attrs["trans_a"] else a
    right = b.swapaxes(-1, -2) if node.attrs["trans_b"] else b
    return product(left, right)
