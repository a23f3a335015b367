"""A target with an operator that the compiler has never heard of: the generic machine and one kernel more.

``Stretch(x, w)`` repeats every row of x ``factor`` times and multiplies it by a weight per column.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from deeploy.target import Map, Nest, Node, Operator, load, parallel, reduction, types

HERE = Path(__file__).parent


def nest(node: Node) -> Nest:
    """y[r, n] = sum over k of x[r // factor, k] * w[k, n]: the quotient is what makes an outside geometry worth a test."""
    rows, n = parallel("rows", "n")
    (k,) = reduction("k")
    x = node.inputs[0]
    return Nest(
        reads={"x": Map(rows // node.attrs["factor"], k), "w": Map(k, n)},
        writes={"y": Map(rows, n)},
        extents={"rows": x.shape[0] * node.attrs["factor"]},
    )


def reference(node: Node, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.repeat(x.astype(np.int64) @ w.astype(np.int64), node.attrs["factor"], axis=0)


STRETCH = Operator("Stretch", ("x", "w"), nest, reference).kernel(
    "stretch", "outside/stretch.c", types={"x": types("s8"), "w": types("s8"), "y": types("s32")}, constants=("w",)
)

_GENERIC = load("generic")
TARGET = replace(
    _GENERIC,
    name="outside",
    kernels=(STRETCH, *_GENERIC.kernels),
    kernel_folders=(HERE / "kernels", *_GENERIC.kernel_folders),
    template_folders=(HERE / "templates", *_GENERIC.template_folders),
)
