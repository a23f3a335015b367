"""The requantisation of a node in a cheaper form with the same results (``staircase.py``), by what its operator leaves in accumulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from deeploy.ir.epilogue import constants_of, stage_operands
from deeploy.ir.kernel import Layout
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.staircase import LONGEST, WORD, Staircase, StaircaseRequantisation, cheapest_form, staircase
from deeploy.operators.table import OPERATORS

Constants = tuple[Array | None, Array, Array]  # bias, where there is one, multiplier and summand; of one axis or none
FUSED = (("requantise",), ("bias", "requantise"))
FURTHER = 16  # bits by which the shift of a folded requantisation may be longer
STEPS = 2**8  # the most that a staircase of an approximation has
FAR = 2**61  # beyond all summands
HALF = 32  # bits of the lower half of a product


@lru_cache(maxsize=256)
def of_node(node: Node) -> StaircaseRequantisation | None:
    """The cheapest form of a requantisation: an operator's own, or what is fused behind a body; None where it is not constant.

    Where accumulators may have any value of 32 bits, the bias is in ``add``, so that it is added to nothing that 32 bits must hold.
    """
    attrs, operator, constants = node.attrs, OPERATORS.get(node.op), requantisation_of(node)
    if constants is None:
        return None
    bias, factor, summand = constants
    least, most = accumulators(node)
    if bias is not None:
        wide = bias.astype(np.int64)
        if operator is None or operator.bounds is None:
            summand = summand + wide * factor
        else:
            least, most = least + wide, most + wide
    channels = max(len(least), factor.size, summand.size)
    least, most = (np.broadcast_to(end, channels) for end in (least, most))
    return cheapest_form(
        factor,
        summand,
        *constants_of(attrs),
        least,
        most,
        operator is not None and operator.is_product,
    )


def fused_stage(node: Node) -> tuple[Staircase, Array] | None:
    """What is fused behind a body whose accumulators have bounds, as a staircase over these, and every channel's multiplier, int64.

    None where that is no requantisation with or without a bias, not constant, or has multipliers that are not positive.
    """
    attrs, operator, constants = node.attrs, OPERATORS.get(node.op), requantisation_of(node)
    is_known = operator is not None and operator.bounds is not None and "mul" not in operator.inputs and node.epilogue in FUSED
    if (
        not is_known
        or constants is None
        or attrs["shift"] > LONGEST
        or attrs["high"] - attrs["low"] >= STEPS
        or attrs["high"] <= attrs["low"]
    ):
        return None
    least, most = accumulators(node)
    bias, factor, summand = constants[0], constants[1].astype(np.int64), constants[2].astype(np.int64)
    if factor.min() <= 0 or np.abs(summand).max() >= 1 << 61 or least.min() < -WORD or most.max() >= WORD:
        return None
    summand = summand if bias is None else summand + bias.astype(np.int64) * factor
    channels = np.broadcast_shapes((node.outputs[0].shape[-1],), factor.shape, summand.shape)
    factor, summand, least, most = (np.broadcast_to(values, channels) for values in (factor, summand, least, most))
    if np.abs(summand).max() >= 1 << 61:
        return None
    return staircase(factor, summand, *constants_of(attrs), least, most), factor


@lru_cache(maxsize=512)
def narrow_words(node: Node) -> tuple[Array, Array] | None:
    """Constants of every channel for ``(upper half of (sum + bias) * factor) + summand``, in words; None where that is not exact.

    A product's lower half is dropped, so that ``bias * factor + (summand << 32)`` has to be one of the summands that keep all thresholds.
    The least bias that leaves such a remainder is taken.

    Returns:
        The factors, int32; bias and summand as the lower and the upper half of an int64.
    """
    form = fused_stage(node)
    if form is None or node.attrs["shift"] < HALF:
        return None
    stairs, factor = form
    is_constant = np.less_equal(*stairs.adds(np.zeros_like(factor), node.attrs["shift"]))
    factor = np.where(is_constant, 0, factor)
    least, most = (np.clip(end, -FAR, FAR) for end in stairs.adds(factor, node.attrs["shift"]))
    if (least > most).any() or factor.max() >= WORD:
        return None
    biases = [_first_of(-int(f), 1 << HALF, -int(m), int(m - n)) for f, n, m in zip(factor, least, most, strict=True)]
    if None in biases:
        return None
    bias = np.array(biases, np.int64)
    bias -= np.where(bias < WORD, 0, 1 << HALF)
    summand = (most - bias * factor) >> HALF
    lowest, highest = stairs.least + bias, stairs.most + bias
    if lowest.min() < -WORD or highest.max() >= WORD or np.abs(summand).max() >= WORD // 2:
        return None
    both = (summand << HALF) | (bias & ((1 << HALF) - 1))
    channels = node.outputs[0].shape[-1]
    return np.broadcast_to(factor, channels).astype(np.int32), np.broadcast_to(both, channels)


def _first_of(step: int, modulus: int, begin: int, width: int) -> int | None:
    """The least x from 0 on for which ``x * step`` is one of ``begin`` to ``begin + width``, modulo ``modulus``; None where there is none.

    >>> _first(5, 12, 2, 1)
    3
    """
    step, begin = step % modulus, begin % modulus
    if begin == 0 or begin + width >= modulus:
        return 0
    if step == 0:
        return None
    if (x := -(-begin // step)) * step <= begin + width:
        return x
    turns = _first_of(modulus, step, -begin - width, width)  # x * step - turns * modulus is in the range, which has no multiple of step
    return None if turns is None else -(-(begin + turns * modulus) // step)


def stored(find: Callable[[Node], tuple[Array, Array] | None]) -> Mapping[str, Layout]:
    """How a kernel has the constants of its requantisation stored: ``mul`` and ``add`` as ``find`` has them, and then no ``bias``."""

    def constant(position: int) -> Layout:
        def encode(array: Array, node: Node) -> Array:
            form = find(node)
            return array if form is None else form[position]

        return Layout(encode)

    return {"mul": constant(0), "add": constant(1), "bias": Layout(lambda array, node: None if find(node) else array)}


@dataclass(frozen=True)
class FoldedRequantisation:
    """The constants of a requantisation that does what another one and a table behind it do; ``mul`` and ``add`` as those of the first."""

    mul: Array
    add: Array
    shift: int
    low: int
    high: int


def fold_table(node: Node, results: Array) -> FoldedRequantisation | None:
    """One requantisation for that of ``node`` and what its results become, for all accumulators that can occur; None where there is none.

    The thresholds of both together are some of those of the first. Constants are tried whose slope is that of both, and taken if an
    ``add`` exists with which every threshold that can be reached is the same (``Staircase.adds``).

    Args:
        results: what every result of the requantisation becomes, from ``low`` to ``high``.
    """
    attrs, constants, table = node.attrs, requantisation_of(node), results.astype(np.int64)
    if constants is None or constants[0] is not None or (np.diff(table) < 0).any() or table[0] == table[-1] or attrs["shift"] > LONGEST:
        return None
    factor, summand = constants[1].astype(np.int64), constants[2].astype(np.int64)
    least, most = accumulators(node)
    if factor.min() <= 0 or np.abs(summand).max() >= 1 << 61 or least.min() < -WORD or most.max() >= WORD:
        return None
    channels = max(len(least), factor.size, summand.size)
    mul, add, least, most = (np.broadcast_to(values, channels) for values in (factor, summand, least, most))
    stairs = staircase(mul, add, *constants_of(attrs), least, most)
    steps = np.arange(table[0] + 1, table[-1] + 1)
    first = np.searchsorted(table, steps)  # results of the first that reach a step of both
    both = Staircase(steps, stairs.thresholds[:, first - 1], least, most)
    slope = (len(steps) - 1) / max(int(first[-1] - first[0]), 1) if len(steps) > 1 else 1.0
    for further in range(min(FURTHER, LONGEST - attrs["shift"]) + 1):
        scaled = np.rint(factor * slope * 2.0**further).astype(np.int64)
        if not 0 < scaled.min() <= scaled.max() < WORD:
            continue
        lower, upper = both.adds(np.broadcast_to(scaled, channels), attrs["shift"] + further)
        if factor.size == summand.size == 1:
            lower, upper = lower.max(keepdims=True), upper.min(keepdims=True)
        if (lower <= upper).all():
            bias = np.clip(0, lower, upper)
            return FoldedRequantisation(scaled.astype(np.int32), bias, attrs["shift"] + further, int(table[0]), int(table[-1]))
    return None


def requantisation_of(node: Node) -> Constants | None:
    """The constants of a node's requantisation; None where there is none, or one that is not constant for every channel."""
    operator, bias = OPERATORS.get(node.op), None
    if operator is not None and "mul" in operator.inputs:
        place = operator.inputs.index("mul")
        mul, add = node.inputs[place : place + 2]
    elif "requantise" in node.epilogue:
        operand = dict(zip(stage_operands(node.epilogue), node.inputs[-len(stage_operands(node.epilogue)) :], strict=True))
        bias, mul, add = operand.get("bias"), operand["mul"], operand["add"]
    else:
        return None
    if any(t is None or t.data is None for t in (mul, add)) or (bias is not None and bias.data is None):
        return None
    assert mul is not None and mul.data is not None and add is not None and add.data is not None
    if mul.data.ndim > 1 or add.data.ndim > 1:
        return None
    return bias.data if bias is not None else None, mul.data, add.data


def accumulators(node: Node) -> tuple[Array, Array]:
    """The least and the most accumulator that a node's body can leave, per output channel or for all of them."""
    operator = OPERATORS.get(node.op)
    if operator is None or operator.bounds is None:
        return np.array([-WORD]), np.array([WORD - 1])
    return operator.bounds(node)
