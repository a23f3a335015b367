"""Networks as they would be: the lowered graph with the constants that another quantisation of the same model would have.

Only what decides by which kernels a layer can run, and in which form they requantise, is changed; such a graph is never emitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from deeploy.graph import epilogue
from deeploy.graph.nodes import Node, constant
from deeploy.graph.values import Graph, change_nodes
from deeploy.operators.table import OPERATORS

_BYTE = -128, 127
MOST_SHIFT = 30  # of a multiplier of 32 bits


def powers_of_two(graph: Graph) -> tuple[Graph, set[str]]:
    """A graph whose multipliers of all fused requantisations are the nearest powers of two, and the names of the nodes that had others."""

    def change(node: Node) -> Node:
        names = epilogue.operands(node.epilogue)
        place = len(node.inputs) - len(names) + names.index("mul") if "mul" in names else 0
        mul = node.inputs[place] if "mul" in names else None
        if mul is None or mul.data is None or mul.data.min() <= 0:
            return node
        values = 2 ** np.rint(np.log2(mul.data.astype(np.float64))).clip(0, MOST_SHIFT).astype(np.int64)
        return node if np.array_equal(values, mul.data) else _with(node, place, values.astype(mul.data.dtype), "power")

    return _changed(graph, change)


def symmetric_weights(graph: Graph) -> tuple[Graph, set[str]]:
    """A graph whose products' weights are clipped to int8 without a zero point, and the names of nodes whose weights were others."""

    def change(node: Node) -> Node:
        operator = OPERATORS.get(node.op)
        weights = node.operands[1].data if operator is not None and operator.is_product and len(node.operands) > 1 else None
        if weights is None:
            return node
        zero = int(node.attrs.get("b_zero_point", 0))
        is_outside = weights.dtype.kind in "iu" and (weights.min() < _BYTE[0] or weights.max() > _BYTE[1])
        if not zero and not is_outside:
            return node
        changed = _with(node, 1, np.clip(weights.astype(np.int64) - zero, *_BYTE).astype(np.int8), "symmetric")
        return changed.another(attrs={**node.attrs, "b_zero_point": 0}) if zero else changed

    return _changed(graph, change)


def _with(node: Node, place: int, values: np.ndarray, kind: str) -> Node:
    """A node with another constant."""
    former = node.operands[place]
    other = replace(constant(values), name=f"{former.name}_{kind}")
    return node.another(inputs=tuple(other if tensor is former else tensor for tensor in node.inputs))


def _changed(graph: Graph, change: Callable[[Node], Node]) -> tuple[Graph, set[str]]:
    """A graph of changed nodes, and the names of those that are others."""
    names = set[str]()

    def noted(node: Node) -> Node:
        changed = change(node)
        names.update({node.name} if changed is not node else ())
        return changed

    return change_nodes(graph, noted), names
