"""Roots of sums of squares, as magnitudes of a spectrum are: a square has twice the bits of what it is made of, and 8 do not hold them."""

from __future__ import annotations

import onnx
from onnx import numpy_helper

_SUMS = frozenset({"Add", "Sum"})


def magnitude_nodes(graph: onnx.GraphProto) -> list[str]:
    """Names of the nodes that stay in float: squares, their sum, and its root, in the order of the graph."""
    makers = {name: node for node in graph.node for name in node.output}
    exponents = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def is_square(node: onnx.NodeProto | None) -> bool:
        if node is None or node.op_type not in ("Pow", "Mul"):
            return False
        power = exponents.get(node.input[1])
        return node.input[0] == node.input[1] if node.op_type == "Mul" else power is not None and bool((power == 2).all())

    names = set[str]()
    for node in graph.node:
        total = makers.get(node.input[0]) if node.op_type == "Sqrt" else None
        squares = [makers.get(name) for name in total.input] if total is not None and total.op_type in _SUMS else []
        if total is not None and squares and all(is_square(square) for square in squares):
            names |= {node.name, total.name, *(square.name for square in squares if square is not None)}
    return [node.name for node in graph.node if node.name in names]
