"""Accumulators of 32 bits as results: the steps of a requantisation, and their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deeploy.frontend.tflite import fixed_point
from deeploy.frontend.tflite.fixed_point import Factor, Rounding, Shift
from deeploy.frontend.tflite.network import LiteCall
from deeploy.ir.types import Array

WORDS = (-fixed_point.WORD, fixed_point.WORD - 1)
Kind = np.dtype[Any] | type[np.generic]


def find_limits(call: LiteCall) -> tuple[int, int]:
    """The least and the largest result: of the type, within a fused activation."""
    (low, high), (least, most) = call.y.range, call.real_limits()
    return (low if least is None else max(low, call.y.steps(least))), (high if most is None else min(high, call.y.steps(most)))


def find_steps(call: LiteCall, factor: Factor, limits: tuple[int, int], ends: tuple[Array, Array], rounding: Rounding) -> list[Shift]:
    """The steps of a requantisation to the zero point of the result, or to 0 where a word is wanted."""
    zero = call.y.z if limits[1] < fixed_point.WORD - 1 else 0
    try:
        return list(fixed_point.find_requantisation(factor, zero, limits, ends, rounding if call.is_exact else "up"))
    except fixed_point.NoConstants as error:
        what = "has factors that differ so much that no constants of 32 bits have its results"
        raise call.refused(what, "Quantise the weights again: some of their scales are far from all others.") from error


def emit_steps(call: LiteCall, total: str, steps: Sequence[Shift], dtype: Kind | None = None) -> str:
    """Nodes for the steps of a requantisation; the last gives the result of the operator, or a value of a type."""
    for step in steps:
        is_last = step is steps[-1]
        mul, add = (np.atleast_1d(each) if np.ptp(each) else np.ravel(each)[:1] for each in (step.mul, step.add))
        attributes = {"shift": step.shift, "low": step.low, "high": step.high}
        kind = np.zeros((), (dtype or call.y.dtype) if is_last else np.int32)
        is_result = is_last and dtype is None
        total = call.add("Requantise", total, mul.astype(np.int32), add, kind, outputs=[call.y] if is_result else [], **attributes)
    return total


def requantise_word(call: LiteCall, total: str, factor: Factor, ends: tuple[Array, Array]) -> str:
    """Integers between ends times a factor, in 32 bits."""
    return emit_steps(call, total, find_steps(call, factor, WORDS, ends, "twice"), np.int32)


def limit_result(call: LiteCall, total: str) -> None:
    """Steps of the result without its zero point as the result of the operator."""
    emit_steps(call, total, [Shift(1, call.y.z, 0, *find_limits(call))])


def requantise_result(call: LiteCall, total: str, factor: Factor, ends: tuple[Array, Array], rounding: Rounding = "twice") -> None:
    """Accumulators (int32) as the result of the operator.

    Args:
        ends: the least and the most accumulator, per channel or for all.
    """
    low, high = find_limits(call)
    call.need(low <= high, "has an activation that no number of its result has")
    if int(ends[0].min()) < -fixed_point.WORD or int(ends[1].max()) >= fixed_point.WORD:
        raise call.refused("has sums that 32 bits may not hold", "Quantise with 8 bits, or divide the layer.")
    emit_steps(call, total, find_steps(call, factor, (low, high), ends, rounding))
