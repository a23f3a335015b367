"""Running sums (docs/integer-form.md)."""

from __future__ import annotations

import numpy as np

from deeploy.graph.kernel import FLOAT, Operator, Row, types
from deeploy.graph.nest import Map, Nest, coupled, parallel
from deeploy.graph.nodes import Node
from deeploy.operators.accumulate import keeps_type


def nest(node: Node) -> Nest:
    """Over x[o,n,i], along n, of which every output may depend on all."""
    (o, i), (n,) = parallel("o", "i"), coupled("n")
    return Nest(reads={"x": Map(o, n, i)}, writes={"y": Map(o, n, i)})


def reference(node: Node, x: np.ndarray) -> np.ndarray:
    """In the type of x, one after the other from the first (``reverse``: the last) one; without the element itself where ``exclusive``."""
    ordered = x[:, ::-1] if node.attrs["reverse"] else x
    if node.attrs["exclusive"]:
        ordered = np.concatenate([np.zeros_like(x[:, :1]), ordered[:, :-1]], axis=1)
    sums = np.add.accumulate(ordered, axis=1, dtype=x.dtype)
    return np.asarray(sums[:, ::-1] if node.attrs["reverse"] else sums)


RUNNING_SUM = Operator(
    "RunningSum",
    ("x",),
    nest,
    reference,
    Row(types=dict.fromkeys(("x", "y"), types("s32", "s64") | FLOAT), accepts=keeps_type, strided={"x": 1, "y": 1}, cores=("o", "i")),
)
