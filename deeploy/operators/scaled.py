"""Sums of two 8-bit operands by two factors in a cheaper form with the same results, for machines of 32 bits.

``clip((a*mul_a + b*mul_b + add) >> shift, low, high)`` has 65536 pairs of arguments: every one is looked at. In order of cost:

``narrow``
    the same formula with shorter factors and another ``add``, no value beyond 32 bits.
``halves``
    factors and ``add`` cut into 16 bits each: the sum of the lower products is carried into that of the upper ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Literal

import numpy as np

from deeploy.ir.epilogue import clip_shifted
from deeploy.ir.nodes import Attributes, Node
from deeploy.ir.types import Array

WORD = 2**31
_CONSTANTS = ("mul_a", "mul_b", "add", "shift", "low", "high", "even")
# What attributes of a ``ScaledAdd`` are called where a ``ResidualSum`` has them.
RESIDUAL = {"add": "offset", "shift": "shift_sum", "low": "low_sum", "high": "high_sum", "even": "even_sum"}


@dataclass(frozen=True)
class Sum:
    """Constants of ``clip((a*mul_a + b*mul_b + add) >> shift, low, high)``."""

    form: Literal["narrow", "halves"]
    mul_a: int
    mul_b: int
    add: int
    shift: int


def of_node(node: Node) -> Sum | None:
    """The cheapest form of a ``ScaledAdd``, or of what a ``ResidualSum`` ends with; None where neither has its results."""
    names = RESIDUAL if node.op == "ResidualSum" else {}
    low, high = (int(node.attrs["low"]), int(node.attrs["high"])) if names else _type_range(node, 0)
    if names and max(-low, high) >= 256:
        return None
    constants = tuple((name, node.attrs.get(names.get(name, name))) for name in _CONSTANTS)
    return cheapest_sum((low, high), _type_range(node, 1), constants)


@lru_cache(maxsize=256)
def cheapest_sum(a_range: tuple[int, int], b_range: tuple[int, int], constants: tuple[tuple[str, Any], ...]) -> Sum | None:
    """The cheapest form by the ranges of both operands, both ends included, and the constants of the formula."""
    attrs = dict(constants)
    a, b = (np.arange(low, high + 1, dtype=np.int64) for low, high in (a_range, b_range))
    exact = a[:, None] * attrs["mul_a"] + b * attrs["mul_b"] + attrs["add"]
    results = clip_shifted(attrs, exact)
    return _find_narrow(attrs, a, b, results) or _find_halves(attrs, exact, results)


def _type_range(node: Node, index: int) -> tuple[int, int]:
    """The least and the largest value of an operand's type."""
    low, high = node.operands[index].dtype.range
    return int(low), int(high)


def _find_narrow(attrs: Attributes, a: Array, b: Array, results: Array) -> Sum | None:
    """Factors shortened by as few bits as make the sum fit, then by more, each rounded either way."""
    low, high = attrs["low"], attrs["high"]
    above, below = results > low, results < high
    for less in range(max(0, attrs["shift"] - 31), attrs["shift"] + 1):
        shift = attrs["shift"] - less
        for up_a, up_b in product((0, 1), repeat=2):
            mul_a, mul_b = (attrs["mul_a"] >> less) + up_a, (attrs["mul_b"] >> less) + up_b
            products = a[:, None] * mul_a + b * mul_b
            least = int(np.max((results[above] << shift) - products[above], initial=-WORD))
            most = int(np.min(((results[below] + 1) << shift) - 1 - products[below], initial=WORD - 1))
            size = max(abs(mul_a) * int(np.abs(a).max()), int(np.abs(products).max()))
            if least <= most and size + max(abs(least), abs(most)) < WORD:
                return Sum("narrow", mul_a, mul_b, (least + most) // 2, shift)
            if not less:
                break
    return None


def _find_halves(attrs: Attributes, exact: Array, results: Array) -> Sum | None:
    """The constants as they are, where both halves and what is carried between them stay in 32 bits, and no tie goes down."""
    largest = 256 * ((abs(attrs["mul_a"]) >> 16) + (abs(attrs["mul_b"]) >> 16) + 4) + (abs(attrs["add"]) >> 16)
    rounded_up = np.clip(exact >> attrs["shift"], attrs["low"], attrs["high"])
    if not 16 <= attrs["shift"] <= 47 or largest >= WORD or not np.array_equal(rounded_up, results):
        return None
    return Sum("halves", attrs["mul_a"], attrs["mul_b"], attrs["add"], attrs["shift"])
