"""Softmax over the last axis, in floats and by a table of exponentials in integers (docs/integer-form.md)."""

from __future__ import annotations

import numpy as np

from deeploy.graph.nest import Map, Nest, coupled, parallel
from deeploy.graph.nodes import Node


def nest(node: Node) -> Nest:
    """Rows are independent; along a row every output depends on every input."""
    x = node.inputs[0]
    assert x is not None
    rows = parallel(*(f"d{axis}" for axis in range(len(x.shape) - 1)))
    (c,) = coupled("c")
    return Nest(reads={"x": Map(*rows, c)}, writes={"y": Map(*rows, c)})


def float_reference(node: Node, x: np.ndarray) -> np.ndarray:
    """exp(x - max) / sum in float32."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True), np.float32)


def reference(node: Node, x: np.ndarray, table: np.ndarray) -> np.ndarray:
    """e = table[max - x]; clip((2*e*levels + sum) // (2*sum) + zero_point, low, high)."""
    wide = x.astype(np.int64)
    e = table.astype(np.int64)[wide.max(axis=-1, keepdims=True) - wide]
    total = e.sum(axis=-1, keepdims=True)
    y = (2 * e * node.attrs["levels"] + total) // (2 * total) + node.attrs["zero_point"]
    return np.asarray(np.clip(y, node.attrs["low"], node.attrs["high"]))
