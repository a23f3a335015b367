"""What a dimension of an iteration domain may be: how its iterations depend on each other, and how a reduction combines them."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """How iterations along a dimension depend on each other."""

    PARALLEL = "parallel"  # independent: may be tiled, spread over cores, cut across chips
    REDUCTION = "reduction"  # combined into one output: a cut leaves partial results
    COUPLED = "coupled"  # in the output, yet every output depends on all of it: never cut
    ENCODED = "encoded"  # of how an operand is stored: no iterations, every one reads all of it


class Combine(Enum):
    """How the iterations of a reduction are combined."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PRODUCT = "product"


SUM, MAX, MIN, PRODUCT = Combine.SUM, Combine.MAX, Combine.MIN, Combine.PRODUCT
