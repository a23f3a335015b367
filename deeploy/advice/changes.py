"""Networks as they would be: the lowered graph with the constants that another quantisation of the same model would have.

Only what decides by which kernels a layer can run, and in which form they requantise, is changed; such a graph is never emitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from deeploy.ir import epilogue
from deeploy.ir.nodes import Node, Tensor, constant
from deeploy.ir.rewriting import Pass
from deeploy.ir.values import Graph, read_other_tensors
from deeploy.operators.table import OPERATORS


@dataclass(frozen=True)
class Rewrite(Pass):
    """A change of a whole graph, as a pass of a target."""

    change: Callable[[Graph], Graph]

    def __call__(self, graph: Graph) -> Graph:
        return self.change(graph)


_BYTE = -128, 127
MOST_SHIFT = 30  # of a multiplier of 32 bits


def powers_of_two(node: Node) -> Node:
    """A node whose multipliers of a fused requantisation are the nearest powers of two; itself, where it has such, or none."""
    names = epilogue.stage_operands(node.epilogue)
    mul = node.operands[names.index("mul") - len(names)] if "mul" in names else None
    if mul is None or mul.data is None or mul.data.min() <= 0:
        return node
    values = 2 ** np.rint(np.log2(mul.data.astype(np.float64))).clip(0, MOST_SHIFT).astype(np.int64)
    return node if np.array_equal(values, mul.data) else _replace_constant(node, mul, values.astype(mul.data.dtype), "power")


def symmetric_weights(node: Node) -> Node:
    """A product whose weights are clipped to int8 without a zero point; itself, where they are such."""
    operator = OPERATORS.get(node.op)
    former = node.operands[1] if operator is not None and operator.is_product and len(node.operands) > 1 else None
    if former is None or former.data is None or former.dtype.is_float:
        return node
    values, zero = former.data.astype(np.int64), int(node.attrs.get("b_zero_point", 0))
    if not zero and _BYTE[0] <= values.min() and values.max() <= _BYTE[1]:
        return node
    changed = _replace_constant(node, former, np.clip(values - zero, *_BYTE).astype(np.int8), "symmetric")
    return changed.another(attrs={**node.attrs, "b_zero_point": 0}) if zero else changed


def _replace_constant(node: Node, former: Tensor, values: np.ndarray, kind: str) -> Node:
    """A node that reads another constant."""
    narrow = tuple(dtype for dtype in former.narrow if dtype.stores(values))
    other = replace(constant(values), name=f"{former.name}_{kind}", narrow=narrow)
    return read_other_tensors(node, lambda tensor: other if tensor is former else tensor)
