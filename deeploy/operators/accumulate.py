"""What operators have in common that leave an accumulator, int32 or float32, for an epilogue."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from deeploy.ir.kernel import FLOAT, FLOAT_OR_HALF, Kernel, Range
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import Array

_ENDS = ((), ("requantise",), ("requantise", "clamp"), ("requantise", "lookup"), ("clamp",))
SUM_STAGES: tuple[tuple[str, ...], ...] = ((), ("requantise",), ("requantise", "lookup"), ("clamp",))
INTEGER_STAGES: tuple[tuple[str, ...], ...] = tuple(bias + end for bias, end in product(((), ("bias",)), _ENDS))
FLOAT_STAGES: tuple[tuple[str, ...], ...] = ((), ("bias",), ("clamp",), ("bias", "clamp"))
Ends = tuple[Array, Array]  # the least and the most value, int64, per channel or one for all


def stored_whole(node: Node) -> str | None:
    """An accumulator that is not requantised must be stored as it is."""
    if "requantise" in node.epilogue or node.outputs[0].dtype.value in ("s32", "s64", "f32"):
        return None
    return f"a requantisation, or y of type s32, not {node.outputs[0].dtype.value}"


def keeps_type(node: Node) -> str | None:
    """The output has the type of the first input."""
    x = node.inputs[0]
    return None if x is not None and x.dtype is node.outputs[0].dtype else "y of the type of x"


def on_floats(kernel: Kernel) -> Kernel:
    """The same kernel on float32; it reads constants that it wants as such in 16 bits, too."""
    accepted = {name: FLOAT_OR_HALF if name in kernel.constants else FLOAT for name in (*kernel.types, "bias")}
    return replace(kernel, types=accepted, epilogues=FLOAT_STAGES)


def ends(least: int, most: int) -> Ends:
    """The least and the largest accumulator as arrays of one entry, which holds for all channels."""
    return np.array([least]), np.array([most])


def values(tensor: Tensor | None, zero_point: int = 0) -> tuple[int, int]:
    """The ends of what a tensor can have, by its type where no more is known, behind a zero point."""
    assert tensor is not None
    low, high = tensor.limits or tensor.dtype.range
    return low - zero_point, high - zero_point


def held(low: int, high: int, bits: int = 32, is_signed: bool = True) -> tuple[Range, Range]:
    """An integer between limits, or 0, and what a type of C with so many bits holds."""
    return (min(low, 0), max(high, 0)), (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)


def exclude_overflow(node: Node) -> dict[str, tuple[Range, Range]]:
    """No ranges: operators move, compare or choose integers, or compute modulo a power of two as C defines it."""
    return {}


def span(*parts: tuple[int, int]) -> tuple[int, int]:
    """The ends of a sum of values in these ranges, and of every part of it."""
    return sum(min(low, high, 0) for low, high in parts), sum(max(low, high, 0) for low, high in parts)


def scale(factor: int, ends: tuple[int, int]) -> tuple[int, int]:
    """The ends of a product with a constant."""
    low, high = sorted(factor * end for end in ends)
    return low, high


def products(a: tuple[int, int], b: tuple[int, int], depth: int = 1) -> Ends:
    """The extremes of a sum of so many products of values in two ranges."""
    products = [x * y * depth for x in a for y in b]
    return ends(min(products), max(products))


def sums(w: Array, low: int, high: int) -> Ends:
    """Per row of w, the extremes of its product with any vector of values in [low, high]."""
    positive, negative = np.maximum(w.astype(np.int64), 0).sum(axis=1), np.minimum(w.astype(np.int64), 0).sum(axis=1)
    if max(int(np.abs(part).max(initial=0)) for part in (positive, negative)) * max(abs(low), abs(high)) >= 2**62:
        positive, negative = positive.astype(object), negative.astype(object)  # without a limit on the number of bits
    return positive * low + negative * high, positive * high + negative * low
