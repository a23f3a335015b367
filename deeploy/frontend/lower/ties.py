"""Constants that are the transpose of another one are read as that: an embedding that is the output layer too is stored once."""

from __future__ import annotations

import numpy as np

from deeploy.graph.nodes import compute
from deeploy.graph.rewriting import Match, Pass, Result, lowered


@lowered("MatMul")
def tied(m: Match) -> Result:
    """A product with the transpose of a constant that other nodes read."""
    weights = m.inputs[1]
    if weights.data is None or weights.data.ndim != 2 or m.attrs["trans_b"]:
        return None
    alike = (t for t in m.constants() if t is not weights and t.shape == weights.shape[::-1] and t.dtype is weights.dtype)
    twin = next((tensor for tensor in alike if np.array_equal(np.asarray(tensor.data), weights.data.T)), None)
    if twin is None:
        return None
    view = compute("Reshape", twin, shape=twin.shape)  # which no kernel stores in an order of its own
    return m.replace("MatMul", m.x, view, *m.inputs[2:], **{**m.attrs, "trans_b": True})


PASS = Pass("ties", (tied,))
