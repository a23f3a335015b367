"""Functions of quantised numbers of 16 bits, as TensorFlow Lite's reference kernels have them: lines between values of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from deeploy.frontend.schemas import Attributes
from deeploy.frontend.tflite import fixed_point
from deeploy.frontend.tflite.fixed_point import Shift
from deeploy.frontend.tflite.network import Builder, LiteCall
from deeploy.frontend.tflite.requantising import WORDS, Kind, emit_steps, find_limits, find_steps
from deeploy.ir.types import Array
from deeploy.operators.accumulate import ends


def divide_sums(call: LiteCall, total: str, window: Attributes) -> None:
    """AVERAGE_POOL_2D of 16 bits: sums of windows, channels last, times a factor for every number of elements in a window."""
    extents, results = call.x.shape[1:3], call.y.shape[1:3]
    sides = zip(window["strides"], window["pads"], window["kernel_shape"], extents, results, strict=False)
    inside = [[min(at * step - pad + size, n) - max(at * step - pad, 0) for at in range(count)] for step, pad, size, n, count in sides]
    rows, columns = (np.array(counts) for counts in inside)
    counts = rows[:, None, None] * columns[None, :, None]
    call.need(counts.min() > 0, "has a window outside of its image")
    # A factor slightly above 1/n moves no sum but those in the middle, which it moves away from zero.
    bits = 17 + 2 * int(counts.max()).bit_length()
    if (1 << bits) // int(counts.min()) >= fixed_point.WORD - 1 or bits > 53:
        raise call.refused("has windows that are too large for 16 bits", "Quantise with 8 bits.")
    emit_steps(call, total, [Shift((1 << bits) // counts + 1, 1 << (bits - 1), bits, *find_limits(call))])


def build_word_softmax(call: LiteCall) -> None:
    """SOFTMAX of 16 bits: exponentials and a reciprocal from tables, a shift by the size of their sum (reference/softmax.h)."""
    x, y, columns = call.x, call.y, call.x.shape[-1]
    call.need(x.dtype == y.dtype == np.int16 and y.z == 0 and y.s == 2.0**-15, "has a result in other steps than 2^-15")
    if columns >= 2**15:
        raise call.refused(f"is of {columns} numbers", "Use less than 32768 classes.")
    distance = call.add("Sub", call.word(x), call.word(call.add("ReduceMax", x, [-1], keepdims=1)))
    factor = fixed_point.quantise_factor(x.s * call.options["beta"] / (10 / 65535))
    steps = [*find_steps(call, factor, WORDS, ends(-(2**16), 0), "twice"), Shift(1, 2**15 - 1, 0, -(2**15), 2**15 - 1)]
    scaled = emit_steps(call, distance, steps, np.int32)
    powers = _interpolate_lines(call, scaled, fixed_point.tabulate_curve(np.exp, -10, 0))
    total = call.add("ReduceSum", powers, [-1], keepdims=1)
    size = emit_steps(call, total, [Shift(1, 0, 15, 0, columns)], np.int32)
    bits = np.array([max(1, number.bit_length()) + 15 - (number == 0) for number in range(columns + 1)])
    up, down, half = (call.add("Gather", (1 << shift).astype(np.int32), size) for shift in (31 - bits, bits - 1, bits - 2))
    place = Shift(1, 2**13 - (3 << 29), 14, -(2**15), 2**15 - 1)
    inverse = emit_steps(call, call.add("Mul", total, up), [place], np.int32)
    inverse = _interpolate_lines(call, inverse, fixed_point.tabulate_curve(lambda real: 1 / (1 + real), 0, 1))
    quotient = call.add("Div", call.add("Add", call.add("Mul", powers, inverse), half), down)
    emit_steps(call, quotient, [Shift(1, 0, 0, 0, 2**15 - 1)])


def _round_word(real: Array) -> Array:
    """To the nearest, half away from zero."""
    return np.asarray(np.sign(real) * np.floor(np.abs(real) + np.float32(0.5)), np.float32)


def tabulate_function(function: Callable[[Array, float], Array]) -> Builder:
    """A function of 16 bits and of its least result, by lines between 513 values (tensorflow/lite/kernels/internal/common.h)."""

    def build(call: LiteCall) -> None:
        x, y = call.x, call.y
        call.need(x.z == y.z == 0 and y.is_quantised, "has a zero point, or a result without a scale")
        (least, most), (low, high) = ([np.float32(t.s) * np.float32(end) for end in t.range] for t in (x, y))
        step, inverse = (most - least) / np.float32(512), np.float32(65536) / (high - low)
        begins = least + np.arange(513, dtype=np.float32) * step
        with np.errstate(over="ignore"):
            real = [function(at.astype(np.float64), float(low)).astype(np.float32) for at in (begins, begins[:-1] + step / np.float32(2))]
        call.need(all(np.isfinite(each).all() for each in real), "has results beyond those of floats")
        ends, middle = (each * inverse for each in real)
        error = _round_word((ends[1:] + _round_word(ends[:-1])) / 2) - _round_word(middle)
        table = np.append(_round_word(ends[:-1]) - _round_word(error / 2), _round_word(ends[-1:])).clip(*y.range).astype(np.int64)
        call.need(np.abs(np.diff(table)).max() < 2**15, "has results that differ by more than 16 bits from one line to the next")
        _interpolate_lines(call, call.word(x), table, None)

    return build


def _interpolate_lines(call: LiteCall, word: str, values: Array, dtype: Kind | None = np.int32) -> str:
    """The lines between 513 values, of a word within 16 bits, in a type or as the result of the operator."""
    place = emit_steps(call, word, [Shift(1, 2**15, 7, 0, 511)], np.int32)
    slopes = np.diff(values)
    begin = (values[:512] << 7) - ((np.arange(512) << 7) - 2**15) * slopes
    begun, slope = (call.add("Gather", table.astype(np.int32), place) for table in (begin, slopes))
    total = call.add("Add", begun, call.add("Mul", word, slope))
    return emit_steps(call, total, [Shift(1, 64, 7, -(2**15), 2**15 - 1)], dtype)


# Which of the values that LiteRT's logistic function of 16 bits lies between are one more than what is nearest.
_ONE_MORE = 0x800000000000000000000000000000800011009020440005C0467BAEFA7BD110


def build_word_curve(call: LiteCall) -> None:
    """LOGISTIC, TANH of 16 bits: lines between 256 values of the logistic function, 24 or 12 of which are between numbers one apart.

    TANH is 2 * LOGISTIC(2x) - 1; both are computed of the distance from zero (reference/integer_ops/logistic.h, tanh.h).
    """
    x, is_tanh = call.x, call.op == "TANH"
    call.need(
        x.z == call.y.z == 0 and call.y.is_quantised and call.y.s == 2.0**-15, "has a zero point, or a result in other steps than 2^-15"
    )
    mantissa, exponent = np.frexp(x.s)
    left, real, shift = int(exponent) + 11, x.s * 3 * 4096.0, 0
    while real <= 32767 / 2 and shift <= 30:
        real, shift = real * 2, shift + 1
    is_power = mantissa == 0.5 and (left == 0 or (is_tanh and left == 1))
    mul, shift = (3 << left, 0) if is_power else (int(real), shift)
    bits = 8 if is_tanh else 9  # between two values
    reach = 255 << bits
    word = emit_steps(call, call.word(x), [Shift(mul, (1 << shift) >> 1, shift, -reach, reach)], np.int32)
    sign = call.add("Clip", word, np.int32(-1), np.int32(1))
    size = call.add("Mul", word, sign)
    place = emit_steps(call, size, [Shift(1, 0, bits, 0, 255)], np.uint8)
    is_more = np.array([_ONE_MORE >> at & 1 for at in range(257)])
    values = np.minimum(np.rint(65536 / (1 + np.exp(-np.arange(257) / 24))).astype(np.int64) + is_more, 2**16 - 1) - 2**15
    slopes = np.diff(values)
    slopes[255] = 0
    begin = (values[:256] << bits) - (np.arange(256) << bits) * slopes
    begin[255] = (2**15 - (1 if is_tanh else 2)) << bits
    begun, slope = (call.add("LookUp", place, table.astype(np.int32)) for table in (begin, slopes))
    total = call.add("Mul", call.add("Add", begun, call.add("Mul", size, slope)), sign)
    shift, middle = (8, 0) if is_tanh else (10, 2**14)
    step = Shift((1 << 26) + 1, (1 << (shift + 25)) + (middle << (shift + 26)), shift + 26, *call.y.range)
    emit_steps(call, total, [step])


def _tabulate_logarithm(x: Array, least: float) -> Array:
    return np.where(x > 0, np.log(np.maximum(x, np.finfo(np.float32).tiny)), least)


BUILDERS: Mapping[str, Builder] = {
    "LOGISTIC": build_word_curve,
    "TANH": build_word_curve,
    "EXP": tabulate_function(lambda x, least: np.exp(x)),
    "LOG": tabulate_function(_tabulate_logarithm),
}
