"""Kernels of the cluster that move elements, or work on each or on rows of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from deeploy.operators import elementwise as ew
from deeploy.operators import rows
from deeploy.target import Kernel, Nest, Node, types

from .portable import BYTES, CORES, also, generic

WORD = 4
FEW_ROWS = (*(f"d{axis}" for axis in range(ew.AXES - 1)), "k")  # what divides rows, or columns of few


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


def _few_rows(*per_element: str) -> Callable[[Node], Nest]:
    """The nest of an operator along rows: of fewer than there are cores, columns may be divided, too."""
    by_row, by_column = rows.nest(*per_element), rows.column_nest(*per_element)

    def declare(node: Node) -> Nest:
        x = node.inputs[0]
        assert x is not None
        return (by_column if math.prod(x.shape[:-1]) < CORES else by_row)(node)

    return declare


def _largest(node: Node) -> int:
    table = node.inputs[1]
    assert table is not None and table.data is not None
    return int(table.data.max(initial=0))


def _numerator(node: Node) -> int:
    """The largest numerator of a softmax's quotients."""
    return _largest(node) * int(node.attrs["levels"])


def _softmax(node: Node) -> dict[str, str]:
    """How quotients are made, and whether they may leave the limits."""
    attrs = node.attrs
    low, high = attrs["zero_point"], attrs["zero_point"] + attrs["levels"]
    length = (2 * _largest(node) * rows.columns(node)).bit_length()
    found = {"ROUNDED": "rounded"} if attrs.get("rounded", True) else {}
    if not found and _numerator(node).bit_length() + 2 * length >= 64:
        found = {"CORRECTED": "corrected"}
    return found | ({"CLIPPED": "clipped"} if low < attrs["low"] or high > attrs["high"] else {})


_SOFTMAX = replace(
    generic("table_softmax"),
    name="pulp_softmax",
    accepts=also(generic("table_softmax"), lambda node: not rows.softmax_is_wide(node), "sums of 32 bits"),
    nest=_few_rows(),
    cores=FEW_ROWS,
    macros=_softmax,
    settings=lambda node: {"bits": _numerator(node).bit_length()},
    source="pulp/pulp_softmax.c",
    template="pulp_softmax.mako",
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
        nest=_few_rows(*per_element),
        cores=FEW_ROWS,
        source="pulp/pulp_integer_norm.c",
        template="pulp_integer_norm.mako",
    )
    for name, x, per_element in (("layer", BYTES, ("weight", "bias")), ("rms", types("s8"), ("weight",)))
)

KERNELS: tuple[Kernel, ...] = (_COPY, _LOOKUP, _SOFTMAX, _LAYER_NORM, _RMS_NORM)
