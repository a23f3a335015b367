"""The requantisation of a node in a cheaper form with the same results (``staircase.py``), by what its operator leaves in accumulators."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from deeploy.graph.epilogue import operands
from deeploy.graph.nodes import Node
from deeploy.operators.staircase import WORD, Requantisation, cheapest
from deeploy.operators.table import OPERATORS


@lru_cache(maxsize=256)
def of_node(node: Node) -> Requantisation | None:
    """The cheapest form of a requantisation: an operator's own, or what is fused behind a body; None where it is not constant.

    Where accumulators may have any value of 32 bits, the bias is in ``add``, so that it is added to nothing that 32 bits must hold.
    """
    attrs, operator = node.attrs, OPERATORS.get(node.op)
    bias = None
    if operator is not None and "mul" in operator.inputs:
        place = operator.inputs.index("mul")
        mul, add = node.inputs[place : place + 2]
    elif "requantise" in node.epilogue:
        fused = node.inputs[-len(operands(node.epilogue)) :]
        mul, add = fused[-2], fused[-1]
        bias = fused[0] if "bias" in node.epilogue else None
    else:
        return None
    if any(t is None or t.data is None for t in (mul, add)) or (bias is not None and bias.data is None):
        return None
    assert mul is not None and mul.data is not None and add is not None and add.data is not None
    factor, summand = mul.data, add.data
    if factor.ndim > 1 or summand.ndim > 1:
        return None
    least, most = accumulators(node)
    if bias is not None and bias.data is not None:
        wide = bias.data.astype(np.int64)
        if operator is None or operator.bounds is None:
            summand = summand + wide * factor
        else:
            least, most = least + wide, most + wide
    channels = max(len(least), factor.size, summand.size)
    ends = (np.broadcast_to(end, channels) for end in (least, most))
    return cheapest(factor, summand, attrs["shift"], attrs["low"], attrs["high"], attrs.get("even"), *ends)


def accumulators(node: Node) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most accumulator that a node's body can leave, per output channel or for all of them."""
    operator = OPERATORS.get(node.op)
    if operator is None or operator.bounds is None:
        return np.array([-WORD]), np.array([WORD - 1])
    return operator.bounds(node)
