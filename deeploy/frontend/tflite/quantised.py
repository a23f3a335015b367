"""Arithmetic on quantised numbers, number for number as TensorFlow Lite's reference kernels do it (tensorflow/lite/kernels)."""

from __future__ import annotations

import numpy as np

from deeploy.frontend.tflite import fixed_point
from deeploy.frontend.tflite.fixed_point import Rounding
from deeploy.frontend.tflite.network import Call, Tensor
from deeploy.ir.types import Array
from deeploy.operators.accumulate import sums

_ACTIVATIONS = {0: (None, None), 1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}


def check_same(call: Call, *tensors: Tensor) -> None:
    """Refuse operators that would have to rescale what they only move."""
    for tensor in tensors:
        for other in call.outputs:
            if other.is_quantised and (tensor.scale.tolist(), tensor.zero.tolist()) != (other.scale.tolist(), other.zero.tolist()):
                raise call.refused("moves numbers between tensors of different scales", "Quantise the model with one scale for both.")


def steps_of(y: Tensor, real: float) -> int:
    """A real number in steps of a tensor, as limits are quantised."""
    ratio = np.float32(real) / np.float32(y.s)
    return y.z + int(np.sign(ratio) * np.floor(np.abs(np.float64(ratio)) + 0.5))


def limits(call: Call) -> tuple[int, int]:
    """The least and the largest result: of the type, within a fused activation."""
    known = _ACTIVATIONS.get(call.options.get("fused", 0))
    if known is None:
        raise call.refused("has a fused activation that is not handled", "Let it be an operator of its own.")
    low, high = call.y.range
    least, most = known
    return (low if least is None else max(low, steps_of(call.y, least))), (high if most is None else min(high, steps_of(call.y, most)))


def limit(call: Call, name: str) -> None:
    """Limits of numbers that keep their scale."""
    low, high = limits(call)
    if (low, high) == call.y.range:
        return call.result(name)
    call.add("Clip", name, np.array(low, call.y.dtype), np.array(high, call.y.dtype), outputs=[call.y])
    return None


def requantise(call: Call, total: str, factor: tuple[Array, Array], ends: tuple[Array, Array], rounding: Rounding = "twice") -> None:
    """Accumulators (int32) as the result of the operator.

    Args:
        factor: multipliers and shifts.
        ends: the least and the most accumulator.
    """
    least, most = ends
    low, high = limits(call)
    call.need(low <= high, "has an activation that no number of its result has")
    words = int(least.min()) >= -fixed_point.WORD and int(most.max()) < fixed_point.WORD
    if not words:
        raise call.refused("has sums that 32 bits may not hold", "Quantise with 8 bits, or divide the layer.")
    wanted = fixed_point.requantise(*factor, call.y.z, low, high, least, most, rounding if call.is_exact else "up")
    for step in wanted:
        is_last = (step.low, step.high) == (low, high)
        kind = np.array(0, call.y.dtype if is_last else np.int32)
        mul, add = (each if np.ptp(each) else each[:1] for each in (step.mul, step.add))
        attributes = {"shift": step.shift, "low": step.low, "high": step.high}
        total = call.add("Requantise", total, mul.astype(np.int32), add, kind, outputs=[call.y] if is_last else [], **attributes)


def finish_product(call: Call, total: str, weights: Array, w: Tensor, bias: Tensor | None) -> None:
    """Bias and requantisation of a product: of rows ``weights`` (int64, without a zero point) with the data."""
    x, y = call.x, call.y
    call.need(y.is_quantised and w.is_quantised, "has no scale for its weights or its result")
    low, high = x.range
    least, most = sums(weights, low - x.z, high - x.z)
    if bias is not None:
        values = call.constant(2).astype(np.int64).ravel()
        call.need(values.size == len(weights), f"has {values.size} numbers in its bias for {len(weights)} outputs")
        call.need(np.abs(values).max(initial=0) < fixed_point.WORD, "has a bias beyond 32 bits")
        least, most, total = least + values, most + values, call.add("Add", total, values.astype(np.int32))
    is_dense = call.op == "FULLY_CONNECTED" and w.scale.size == 1
    product = np.float64(np.float32(x.s) * np.float32(w.s)) if is_dense else np.float64(x.s) * w.scale.astype(np.float64)
    factor = fixed_point.quantise_factor(np.atleast_1d(product / np.float64(y.s)))
    requantise(call, total, factor, (least, most), "away" if call.op == "FULLY_CONNECTED" else "twice")


def softmax(call: Call) -> None:
    """By exponentials of the distance from the maximum; the result has a step of 1/256 from the least number on."""
    y, (low, high) = call.y, call.y.range
    call.need(call.x.dtype.itemsize == y.dtype.itemsize == 1, "is no softmax of 8 bits")
    if (y.z, y.s) != (low, 1 / 256):
        raise call.refused("has a result in other steps than 1/256", "Quantise the model again; the converter chooses these.")
    call.add("QuantisedSoftmax", call.x, fixed_point.softmax_exponentials(call.x.s, call.options["beta"]), outputs=[y], low=low, high=high)


def add(call: Call) -> None:
    """ADD, SUB: both operands in steps of a common scale with bits behind the point, then the sum in steps of the result."""
    a, b, y = call.x, call.needed(1), call.y
    call.need(a.is_quantised and b.is_quantised, "adds quantised and other numbers")
    sign = -1 if call.op == "SUB" else 1
    left = 15 if a.dtype.itemsize == 2 else 20
    largest = 2 * np.float64(max(np.float32(a.s), np.float32(b.s)))
    parts = []
    for side, way in ((a, 1), (b, sign)):
        multiplier, shift = fixed_point.quantise_factor(np.array([np.float64(side.s) / largest]))
        parts.append(way * fixed_point.multiply((side.every() - side.z) << left, multiplier, shift))
    factor = fixed_point.quantise_factor(np.array([largest / (2.0**left * np.float64(y.s))]))
    call.need(a.dtype.itemsize == 1, "adds numbers of 16 bits")
    names = [call.add("LookUp", side, part.astype(np.int32)) for side, part in zip((a, b), parts, strict=True)]
    total = call.add("Add", *names)
    least, most = (np.array([sum(int(end(part)) for part in parts)]) for end in (np.min, np.max))
    requantise(call, total, factor, (least, most))
