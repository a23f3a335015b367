"""Arithmetic on quantised numbers, number for number as TensorFlow Lite's reference kernels do it (tensorflow/lite/kernels)."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np

from deeploy.frontend.tflite import fixed_point, words
from deeploy.frontend.tflite.fixed_point import Factor, Shift
from deeploy.frontend.tflite.network import Builder, LiteCall, LiteTensor, read_axes
from deeploy.frontend.tflite.requantising import (
    WORDS,
    emit_steps,
    find_limits,
    find_steps,
    limit_result,
    requantise_result,
    requantise_word,
)
from deeploy.ir.types import Array
from deeploy.operators import fractions
from deeploy.operators.accumulate import ends, products, sums
from deeploy.operators.fractions import divide_rounding, multiply_twice_rounded


def check_same(call: LiteCall, *tensors: LiteTensor) -> None:
    """Refuse operators that would have to rescale what they only move."""
    for tensor in (each for each in tensors if each.is_quantised):
        for other in call.outputs:
            if other.is_quantised and (tensor.scale.tolist(), tensor.zero.tolist()) != (other.scale.tolist(), other.zero.tolist()):
                raise call.refused("moves numbers between tensors of different scales", "Quantise the model with one scale for both.")


def check_bytes(call: LiteCall, *tensors: LiteTensor) -> None:
    """Refuse all but quantised bytes, of which all results are known."""
    if any(tensor.is_wide for tensor in tensors) or not all(tensor.is_quantised for tensor in (*tensors, call.y)):
        raise call.refused("of 16 bits is not handled", "Quantise with 8 bits.")


def zero_points(call: LiteCall, x: LiteTensor, w: LiteTensor) -> list[np.ndarray]:
    """The zero points of data and weights, of which the latter are one number."""
    call.need(w.is_quantised and np.ptp(w.zero) == 0, "has no scale for its weights, or several zero points")
    return [x.zero_point, w.zero_point]


def finish_product(
    call: LiteCall, total: str, weights: Array, w: LiteTensor, bias: LiteTensor | None, data: LiteTensor | None = None
) -> None:
    """Bias and requantisation of a product: of the rows of ``weights`` with the data."""
    x, y = data or call.x, call.y
    call.need(y.is_quantised and w.is_quantised, "has no scale for its weights or its result")
    least, most = sums(weights.astype(np.int64) - w.z, *x.distances)
    if bias is not None:
        call.need(bias.data is not None, "computes its bias at run time")
        values = np.asarray(bias.data, np.int64).ravel()
        call.need(values.size == len(weights), f"has {values.size} numbers in its bias for {len(weights)} outputs")
        call.need(np.abs(values).max(initial=0) < fixed_point.WORD, "has a bias beyond 32 bits")
        least, most, total = least + values, most + values, call.add("Add", total, values.astype(np.int32))
    is_whole = w.scale.size == 1 and (call.op == "FULLY_CONNECTED" or x.dtype.kind == "u")
    product = np.float64(np.float32(x.s) * np.float32(w.s)) if is_whole else x.s * w.scale.astype(np.float64)
    factor = fixed_point.quantise_factor(product / y.s)
    is_long = x.dtype.itemsize == 2 and (bias is None or bias.dtype.itemsize == 8)  # sums of 64 bits, in the reference kernels
    requantise_result(call, total, factor, (least, most), "away" if call.op == "FULLY_CONNECTED" else "short" if is_long else "twice")


def build_softmax(call: LiteCall) -> None:
    """By exponentials of the distance from the maximum; the result has a step of 1/256 from the least number on."""
    y, (low, high) = call.y, call.y.range
    if call.x.is_wide:
        return words.build_word_softmax(call)
    if (y.z, y.s) != (low, 1 / 256):
        raise call.refused("has a result in other steps than 1/256", "Quantise the model again; the converter chooses these.")
    call.need(y.dtype.itemsize == 1, "has a result of another type")
    call.add("QuantisedSoftmax", call.x, fixed_point.softmax_exponentials(call.x.s, call.options["beta"]), outputs=[y], low=low, high=high)


def _common_steps(a: LiteTensor, b: LiteTensor, left: int, sign: int) -> tuple[np.float64, list[Factor], list[Array]]:
    """A scale of both operands, the factors to it, and both with all their numbers in its steps, of which ``left`` bits are a fraction."""
    largest = 2 * np.float64(max(np.float32(a.s), np.float32(b.s)))
    factors = [fixed_point.quantise_factor(side.s / largest) for side in (a, b)]
    sides = zip((a, b), factors, (1, sign), strict=True)
    return largest, factors, [multiply_twice_rounded((t.every() - t.z) << left, *f) * way for t, f, way in sides]


def build_add(call: LiteCall) -> None:
    """ADD, SUB: both operands in steps of a common scale with bits behind the point, then the sum in steps of the result."""
    a, b, y = call.x, call.needed(1), call.y
    call.need(a.is_quantised and b.is_quantised, "adds quantised and other numbers")
    left, sign = (15 if a.dtype.itemsize == 2 else 20), (-1 if call.op == "SUB" else 1)
    if left == 15 and call.options["pot_scale"]:
        raise call.refused("adds numbers of 16 bits whose scales are powers of two", "Convert the model with a recent converter.")
    largest, factors, terms = _common_steps(a, b, left, sign)
    factor = fixed_point.quantise_factor(largest / (2.0**left * y.s))
    if (
        left == 20
        and y.dtype == a.dtype == b.dtype
        and _add_at_once(call, a, b, sign, multiply_twice_rounded(terms[0][:, None] + terms[1], *factor))
    ):
        return
    parts = [
        call.add("LookUp", side, term.astype(np.int32)) if left == 20 else _scale_word(call, side, f, way)
        for side, term, f, way in zip((a, b), terms, factors, (1, sign), strict=True)
    ]
    least, most = (sum(int(end(term)) for term in terms) for end in (np.min, np.max))
    requantise_result(call, call.add("Add", *parts), factor, ends(least, most))


def _add_at_once(call: LiteCall, a: LiteTensor, b: LiteTensor, sign: int, steps: Array) -> bool:
    """One sum by two factors, where some have the results of all pairs of bytes."""
    (low, high), x, other, y = find_limits(call), a.every()[:, None], b.every(), call.y
    wanted = np.clip(steps + y.z, low, high)
    real = a.s / y.s, sign * b.s / y.s
    shift = min(30 - int(np.frexp(max(map(abs, real)))[1]), 45)
    for nudges in [(0, 0), *product((0, 1, -1), repeat=2)] if shift > 8 else ():
        mul = [round(factor * 2.0**shift) + nudge for factor, nudge in zip(real, nudges, strict=True)]
        sums = x * mul[0] + other * mul[1]
        least = int(np.where(wanted > low, (wanted << shift) - sums, -(2**62)).max())
        most = int(np.where(wanted < high, ((wanted + 1) << shift) - 1 - sums, 2**62).min())
        if least <= most:
            middle = min(max((y.z << shift) + (1 << (shift - 1)) - a.z * mul[0] - b.z * mul[1], least), most)
            call.add("AddScaled", a, b, [*mul, middle], shift=shift, low=low, high=high, outputs=[y])
            return True
    return False


def _scale_word(call: LiteCall, x: LiteTensor, factor: Factor, sign: int) -> str:
    """x * 2^15 times a factor: a product whose upper part is rounded twice, as one of 30 bits is."""
    word, right = call.word(x), int(-factor[1][0])
    steps = [Shift(factor[0], 1 << 15, 16, *WORDS)]
    if right:
        steps.append(Shift(2**30 + 1, 1 << (right + 29), right + 30, *WORDS))
    result = emit_steps(call, word, steps, np.int32)
    return result if sign > 0 else call.add("Neg", result)


def build_multiply(call: LiteCall) -> None:
    """MUL: the product of both without their zero points."""
    a, b = call.x, call.needed(1)
    call.need(a.is_quantised and b.is_quantised, "multiplies quantised and other numbers")
    factor = fixed_point.quantise_factor(a.s * b.s / call.y.s)
    requantise_result(call, call.multiply(a, b, a.z, b.z), factor, products(a.distances, b.distances))


def square_difference(call: LiteCall) -> None:
    """SQUARED_DIFFERENCE: the square of a sum as that of SUB, with 7 bits behind the point."""
    a, b, y = call.x, call.needed(1), call.y
    check_bytes(call, a, b)
    largest, _, terms = _common_steps(a, b, 7, -1)
    difference = call.add("Add", *(call.add("LookUp", side, term.astype(np.int32)) for side, term in zip((a, b), terms, strict=True)))
    total = call.multiply(difference, difference)
    most = max(int(end(terms[0])) + int(end(terms[1])) for end in (np.max, lambda term: -np.min(term)))
    factor = fixed_point.quantise_factor(largest * largest / (2.0**14 * y.s))
    requantise_result(call, total, factor, ends(0, most * most))


def build_divide(call: LiteCall) -> None:
    """DIV of bytes, whose results for all pairs are known: by one factor where one has all of them, else as a table."""
    a, b, y = call.x, call.needed(1), call.y
    check_bytes(call, a, b)
    dividend, divisor = (a.every() - a.z)[:, None], b.every() - b.z
    (inverse, inverse_shift), steps = fixed_point.reciprocal(np.maximum(np.abs(divisor), 1)), np.sign(divisor) * dividend
    headroom = 31 - np.frexp(np.where(steps < 0, ~steps, steps).astype(np.float64))[1].astype(np.int64)
    real = np.float64(np.float32(a.s) / (np.float32(b.s) * np.float32(y.s)))
    multiplier, shift = fixed_point.quantise_factor(real)
    total = shift + inverse_shift - headroom
    # Shifts of 32 bits and more are not defined in C, and differ from processor to processor: here the quotient is 0.
    results = multiply_twice_rounded(multiply_twice_rounded(steps, inverse, headroom), multiplier, np.minimum(total, 0))
    call.need((total <= 0).all(), "has a scale that its quotients do not fit")
    low, high = find_limits(call)
    results = np.clip(results + y.z, low, high)
    if b.data is not None and np.ptp(b.data) == 0:
        return build_tabulate(call, results[:, int(b.data.flat[0]) - b.range[0]])
    bits = min(22, 30 - int(np.frexp(real)[1]), 61)
    for nudge in (0, 1, -1, 2) if bits > 0 else ():
        mul = round(real * 2.0**bits) + nudge
        n, d = steps * mul, np.maximum(np.abs(divisor), 1) << bits
        if (np.where(divisor == 0, results, np.clip((2 * n + d) // (2 * d) + y.z, low, high)) == results).all():
            attributes = {"a_zero_point": a.z, "b_zero_point": b.z, "zero_point": y.z, "shift": bits, "low": low, "high": high}
            call.add("DivideScaled", a, b, [mul], outputs=[y], **attributes)
            return None
    rows, columns = (call.add("LookUp", t, np.arange(256, dtype=np.int32) * f) for t, f in ((a, 256), (b, 1)))
    call.add("Gather", results.astype(y.dtype).ravel(), call.add("Add", rows, columns), outputs=[y])
    return None


def resize_bilinear(call: LiteCall) -> None:
    """RESIZE_BILINEAR of bytes: weights of both axes have 10 bits, the sum of 20 is rounded half away from zero."""
    x, y = call.x, call.y
    check_bytes(call, x)
    check_same(call, x)
    corners, image = call.options["align_corners"], call.word(x)
    for at in (1, 2):
        before, after = x.shape[at], y.shape[at]
        less = int(corners and after > 1)
        scale = (((before - less) << 10) + (after - less) // 2) // (after - less)
        places = np.arange(after) * scale + (scale // 2 - 512 if call.options["half_pixel"] else 0)
        lower = np.minimum(np.maximum(places, 0) >> 10, before - 1)
        upper = np.minimum(np.maximum(places + 1023, 0) >> 10, before - 1)
        shape = [-1 if axis == at else 1 for axis in range(4)]
        shares = [(1024 - (places - (lower << 10)), lower), (places - (lower << 10), upper)]
        parts = [
            call.add("Mul", call.add("Gather", image, rows.astype(np.int32), axis=at), weights.astype(np.int32).reshape(shape))
            for weights, rows in shares
        ]
        image = call.add("Add", *parts)
    emit_steps(call, image, [Shift((1 << 28) + 1, 1 << 47, 48, *y.range)])


def reduce_sum(call: LiteCall) -> None:
    """MEAN, SUM: the multiplier is divided by the number of elements first."""
    x, y = call.x, call.y
    along = read_axes(call, x, call.constant(1))
    count = math.prod(x.shape[at] for at in along)
    call.need(count, "is of no elements")
    total = call.word(x)
    total = call.add("ReduceSum", total, along, keepdims=1) if along else total
    total = call.add("Reshape", call.add("Sub", total, np.int32(x.z * count)), y.shape)
    multiplier, shift = fixed_point.quantise_factor(x.s / y.s)
    if call.op == "MEAN":
        bits = min(count.bit_length() - 1, 32, 31 + int(shift[0]))
        multiplier, shift = (multiplier << bits) // count, shift - bits
    requantise_result(call, total, (multiplier, shift), products(x.distances, (count, count)))


Real = Callable[[Array], Array]


def build_tabulate(call: LiteCall, results: Array) -> None:
    """A function of one 8-bit tensor as a table of its results, which are limited to the type."""
    check_bytes(call, call.x)
    call.add("LookUp", call.x, np.clip(results, *find_limits(call)).astype(call.y.dtype), outputs=[call.y])


def of_reals(function: Real) -> Builder:
    """A function of the real number, rounded to the nearest step, in float32 (LUTPopulateInt8)."""

    def build(call: LiteCall) -> None:
        x, y = call.x, call.y
        if x.is_wide:
            return (
                words.BUILDERS[call.op](call) if call.op in words.BUILDERS else build_tabulate(call, x.every())
            )  # which says that it is not handled
        real = np.float32(x.s) * (x.every() - x.z).astype(np.float32)
        with np.errstate(all="ignore"):
            steps = np.asarray(function(real), np.float32) * (np.float32(1) / np.float32(y.s))
        steps = np.nan_to_num(steps, nan=-(2.0**30), posinf=2.0**30, neginf=-(2.0**30)).astype(np.float64)
        build_tabulate(call, (np.sign(steps) * np.floor(np.abs(steps) + 0.5)).clip(-(2**30), 2**30).astype(np.int64) + y.z)

    return build


def build_absolute(call: LiteCall) -> None:
    """ABS: the distance from zero."""
    x, y = call.x, call.y
    if x.is_wide:
        call.need(x.z == y.z == 0 and y.is_quantised, "has a zero point, or a result without a scale")
        total = call.add("Abs", call.word(x))
        return requantise_result(call, total, _ratio(call), ends(0, 2**15))
    distance = np.abs(x.every() - x.z)
    return build_tabulate(call, (distance if x.s == y.s else multiply_twice_rounded(distance, *_ratio(call))) + y.z)


def build_negate(call: LiteCall) -> None:
    """NEG, which the reference kernels have for the integers as they are; the least has no other sign."""
    check_same(call, call.x)
    if call.x.z:
        raise call.refused("has a zero point, which LiteRT's kernel takes for a part of the number", "Use SUB from zero instead.")
    if call.x.is_wide:
        word, (low, _) = call.word(call.x), call.x.range
        least = call.add("Clip", word, np.int32(low), np.int32(low + 1))  # one less where it is the least
        parts = call.add("Mul", call.add("Sub", least, np.int32(low + 1)), np.int32(2 * -low)), call.add("Neg", word)
        emit_steps(call, call.add("Add", *parts), [Shift(1, 0, 0, *call.x.range)])
        return None
    return build_tabulate(
        call, -call.x.every() * (call.x.every() > call.x.range[0]) + call.x.range[0] * (call.x.every() == call.x.range[0])
    )


def build_normalise(call: LiteCall) -> None:
    """L2_NORMALIZATION of the last axis, whose result has steps of 1/128."""
    x, y = call.x, call.y
    if x.dtype != np.int8 or y.dtype != np.int8:
        raise call.refused(
            "of other numbers than those of 8 bits with a sign is not handled", "Quantise the model again; converters choose these."
        )
    call.need((y.z, y.s) == (0, 1 / 128) and not call.options["fused"], "has a result in other steps than 1/128, or an activation")
    if x.shape[-1] >= 8192:
        raise call.refused(f"is of {x.shape[-1]} numbers", "Use less than 8192 numbers.")
    call.add("L2Norm", x, outputs=[y], zero_point=x.z)


def invert_root(call: LiteCall) -> None:
    """RSQRT with 20 bits behind the point in between; the largest result where there is none."""
    x, y, bits = call.x, call.y, 20
    steps = x.every() - x.z
    multiplier, shift = fractions.invert_root(np.maximum(steps, 1))
    roots = multiply_twice_rounded(np.array(1), multiplier, shift + bits)
    factor = fixed_point.quantise_factor(1 / (np.float64(np.sqrt(np.float32(x.s))) * y.s))
    build_tabulate(call, np.where(steps > 0, multiply_twice_rounded(roots, factor[0], factor[1] - bits) + y.z, y.range[1]))


_LIMITS = {"RELU": (0.0, None), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}


def _ratio(call: LiteCall, factor: float = 1.0) -> Factor:
    """A factor times the scale of the input by that of the result; but for QUANTIZE, in float32."""
    kind = np.float64 if call.op == "QUANTIZE" else np.float32
    return fixed_point.quantise_factor(kind(kind(kind(call.x.s) * kind(factor)) / kind(call.y.s)))


def build_rescale(call: LiteCall) -> None:
    """RELU, RELU6, RELU_N1_TO_1, LEAKY_RELU, QUANTIZE of quantised numbers: by one factor above zero and one below."""
    if call.x.is_wide:
        return _rescale_words(call)
    x, y, alpha = call.x, call.y, call.options["alpha"] if call.op == "LEAKY_RELU" else 1.0
    steps = x.every() - x.z
    above, below = (multiply_twice_rounded(steps, *_ratio(call, abs(a))) for a in (1.0, alpha))
    results = np.where(steps >= 0, above, below * (-1 if alpha < 0 else 1)) + y.z
    low, high = _LIMITS.get(call.op, (None, None))
    results = results if low is None else np.maximum(results, y.steps(low))
    return build_tabulate(call, results if high is None else np.minimum(results, y.steps(high)))


def _rescale_words(call: LiteCall) -> None:
    """The same of numbers of 16 and 32 bits without zero points: QUANTIZE, RELU, RELU6, and LEAKY_RELU as the sum of both sides."""
    x, y = call.x, call.y
    call.need(y.scale.size and x.z == 0, "has a zero point, or no scale for its result")
    total = call.word(x)
    if call.op == "QUANTIZE":
        return requantise_result(call, total, _ratio(call), ends(*x.range))
    if call.op in ("RELU", "RELU6"):
        least, most = (None if end is None else y.steps(end) for end in _LIMITS[call.op])
        limited = max(y.range[0], least or 0), y.range[1] if most is None else min(y.range[1], most)
        emit_steps(call, total, find_steps(call, _ratio(call), limited, ends(*x.range), "twice"))
        return None
    if call.op != "LEAKY_RELU" or call.options["alpha"] < 0:
        raise call.refused("of 16 bits is not handled", "Quantise with 8 bits.")
    parts = []
    for a, low, high in ((1.0, 0, x.range[1]), (call.options["alpha"], x.range[0], 0)):
        factor = _ratio(call, a)
        side = call.add("Clip", total, np.int32(low), np.int32(high))
        parts.append(requantise_word(call, side, factor, ends(low, high)))
    limit_result(call, call.add("Add", *parts))
    return None


def hard_swish(call: LiteCall) -> None:
    """x * clip(x + 3, 0, 6) / 6 with words of 16 bits (reference/hard_swish.h)."""
    x, y = call.x, call.y
    fine = np.float32(1 / 128) * np.float32(x.s)
    first, right = _half_word(np.float64(fine / np.float32(y.s)))
    second, left = _half_word(np.float64(fine / np.float32(3 / 32768)))
    word = 2**15
    wide = (x.every() - x.z) << 7
    value = ((wide * first + word // 2) >> 15).clip(-word, word - 1)
    ramp = wide if left <= 0 else (wide << (left - 1)).clip(-word, word - 1)
    ramp = ((ramp * second + word // 2) >> 15).clip(-word, word - 1)
    ramp = (ramp << 1).clip(-word, word - 1) if left > 0 else divide_rounding(ramp, -left)
    product = ((ramp + word) >> 1) * value
    product = np.sign(product) * (np.abs(product) >> 15)
    build_tabulate(call, divide_rounding(product, -right) + y.z)


def _half_word(factor: np.float64) -> tuple[int, int]:
    """A multiplier of 15 bits, rounded from that of 31, and its shift."""
    multiplier, shift = fixed_point.quantise_factor(factor)
    return min(int(multiplier[0] + 2**15) >> 16, 2**15 - 1), int(shift[0])


def build_prelu(call: LiteCall) -> None:
    """What is above zero by one factor, what is below times its slope by another one."""
    x, alpha, y = call.x, call.needed(1), call.y
    check_bytes(call, x, alpha)
    steps = x.every() - x.z
    above = np.where(steps >= 0, multiply_twice_rounded(steps, *fixed_point.quantise_factor(x.s / y.s)), 0)
    slopes = call.multiply(call.add("Clip", x, None, x.zero_point), alpha, x.z, alpha.z)
    factor = fixed_point.quantise_factor(x.s * alpha.s / y.s)
    reach = products((x.distances[0], 0), alpha.distances)
    slopes = requantise_word(call, slopes, factor, reach)
    limit_result(call, call.add("Add", call.add("LookUp", x, above.astype(np.int32)), slopes))


def multiply_matrices(call: LiteCall, a: str, b: str) -> None:
    """BATCH_MATMUL of two tensors that are both computed, or one of which is."""
    x, w, y = call.x, call.needed(1), call.y
    call.need(w.is_quantised and y.is_quantised, "multiplies quantised and other numbers")
    check_bytes(call, x, w)
    total = call.add("MatMulInteger", a, b, x.zero_point, w.zero_point)
    depth = x.shape[-2 if call.options["swaps_x"] else -1]
    factor = fixed_point.quantise_factor(x.s * w.s / y.s)
    requantise_result(call, total, factor, products(x.distances, w.distances, depth))
