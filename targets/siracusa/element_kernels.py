"""Kernels of the cluster that move elements, or work on each or on rows of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deeploy.operators import rows
from deeploy.target import Kernel, Node, types

from .portable import BYTES, also, generic

WORD = 4


def _moves_words(node: Node) -> bool:
    """Whether elements of at most a word keep their bits."""
    x, y = node.inputs[0], node.outputs[0]
    return x is not None and x.dtype is y.dtype and x.dtype.bytes <= WORD


_COPY = replace(
    generic("copy"),
    name="pulp_copy",
    accepts=also(generic("copy"), _moves_words, "y of the type of x, of at most 4 bytes"),
    source="pulp/pulp_copy.c",
    struct="copy",
)

_LOOKUP = replace(
    generic("lookup"),
    name="pulp_lookup",
    types={"x": BYTES, "table": BYTES, "y": BYTES},
    source="pulp/pulp_lookup.c",
    struct="lookup",
)
_SOFTMAX = replace(
    generic("table_softmax"),
    name="pulp_softmax",
    accepts=also(generic("table_softmax"), lambda node: not rows.softmax_is_wide(node), "sums of 32 bits"),
    source="pulp/pulp_softmax.c",
    struct="table_softmax",
)


def _short_products(node: Node) -> bool:
    """Whether the squares of a row fit 32 bits, and the products of its elements and weights 29."""
    weight = node.inputs[1]
    if weight is None or weight.data is None or rows.norm_types(node) != ("int32_t", "int32_t"):
        return False
    distance = 255 if node.op == "IntegerLayerNorm" else 128  # of bytes from their mean, of signed ones from zero
    return int(np.abs(weight.data.astype(np.int64)).max(initial=0)) * distance < 2**29


_LAYER_NORM, _RMS_NORM = (
    replace(
        generic(f"integer_{name}_norm"),
        name=f"pulp_{name}_norm",
        types={**generic(f"integer_{name}_norm").types, "x": x},
        accepts=also(generic(f"integer_{name}_norm"), _short_products, "constant weights, sums of 32 bits and products of 29"),
        source="pulp/pulp_integer_norm.c",
        struct="integer_norm",
    )
    for name, x in (("layer", BYTES), ("rms", types("s8")))
)

KERNELS: tuple[Kernel, ...] = (_COPY, _LOOKUP, _SOFTMAX, _LAYER_NORM, _RMS_NORM)
