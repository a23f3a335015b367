"""Networks as they would be: the lowered graph with the constants that another quantisation of the same model would have.

Only what decides by which kernels a layer can run, and in which form they requantise, is changed; such a graph is never emitted.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.graph import epilogue
from deeploy.graph.surgeon import const
from deeploy.midend.bind import view_node
from deeploy.operators.table import OPERATORS

_BYTE = -128, 127
MOST_SHIFT = 30  # of a multiplier of 32 bits


def powers_of_two(graph: gs.Graph) -> set[str]:
    """Make the multipliers of all fused requantisations the nearest powers of two, in place; returns the names of these nodes."""
    changed = set()
    for node in graph.nodes:
        names = epilogue.operands(view_node(node).epilogue)
        if "mul" not in names:
            continue
        place = len(node.inputs) - len(names) + names.index("mul")
        mul = node.inputs[place]
        if not isinstance(mul, gs.Constant) or mul.values.min() <= 0:
            continue
        values = 2 ** np.rint(np.log2(mul.values.astype(np.float64))).clip(0, MOST_SHIFT).astype(np.int64)
        if not np.array_equal(values, mul.values):
            node.inputs[place] = const(f"{mul.name}_power", values, mul.values.dtype.type)
            changed.add(node.name)
    return changed


def symmetric_weights(graph: gs.Graph) -> set[str]:
    """Clip the weights of products to int8 without a zero point, in place; returns the names of nodes whose weights were others."""
    changed = set()
    for node in graph.nodes:
        operator = OPERATORS.get(node.op)
        if operator is None or not operator.is_product or len(node.inputs) < 2 or not isinstance(node.inputs[1], gs.Constant):
            continue
        weights = node.inputs[1].values
        zero = "b_zero_point" in node.attrs and int(node.attrs["b_zero_point"])
        is_outside = weights.dtype.kind in "iu" and (weights.min() < _BYTE[0] or weights.max() > _BYTE[1])
        if not zero and not is_outside:
            continue
        node.inputs[1] = const(f"{node.inputs[1].name}_symmetric", np.clip(weights.astype(np.int64) - zero, *_BYTE), np.int8)
        node.attrs = {**node.attrs, **({"b_zero_point": 0} if zero else {})}
        changed.add(node.name)
    return changed
