"""Numbers of TensorFlow Lite: products of words beside a direct transcription of what its documents say, and steps that have these."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from deeploy.frontend.tflite import fixed_point
from deeploy.frontend.tflite.fixed_point import Rounding
from deeploy.operators.fractions import multiply_twice_rounded


def multiply(x: int, factor: float) -> int:
    """x times a factor, in whole numbers of Python: a product of words, and a division that rounds half away from zero."""
    mantissa, shift = math.frexp(factor)
    multiplier = math.floor(mantissa * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, shift = 2**30, shift + 1
    product = x * 2 ** max(shift, 0) * multiplier
    nudge = 2**30 if product >= 0 else 1 - 2**30
    high = math.trunc((product + nudge) / 2**31) if abs(product) < 2**52 else (product + 2**30) >> 31
    divisor = 2 ** max(-shift, 0)
    quotient, rest = divmod(abs(high), divisor)
    rounded = quotient + (2 * rest >= divisor > 1)
    return rounded if high >= 0 else -rounded


@pytest.mark.parametrize("factor", [0.25, 0.2501, 1e-3, 0.9999999999, 1.0, 1.7, 3.2e-8])
def test_products_are_rounded_twice(factor: float) -> None:
    rng = random.Random(5)
    x = np.array([*range(-70, 70), *(rng.randrange(-(2**26), 2**26) for _ in range(300))], np.int64)
    got = multiply_twice_rounded(x, *fixed_point.quantise_factor(np.array([factor])))
    assert got.tolist() == [multiply(int(v), factor) for v in x]


def _wanted(x: np.ndarray, factors: np.ndarray, rounding: Rounding) -> np.ndarray:
    multiplier, shift = fixed_point.quantise_factor(factors)
    if rounding == "twice":
        return multiply_twice_rounded(x[:, None], multiplier, shift)
    total = 31 - shift
    product = x[:, None] * multiplier
    half = (1 << total) >> 1
    return np.sign(product) * ((np.abs(product) + half) >> total) if rounding == "away" else (product + half) >> total


@pytest.mark.parametrize("rounding", ["twice", "away", "up"])
@pytest.mark.parametrize("low, zero", [(-128, 0), (-128, -128), (-7, -7), (-128, 20)])
@pytest.mark.parametrize("factors", [(0.01, 0.003, 0.02), (0.25, 0.125, 0.5), (1.3, 0.9, 0.2), (2e-5, 1e-3, 1e-9), (0.0021,)])
def test_steps_have_all_results(rounding: Rounding, low: int, zero: int, factors: tuple[float, ...]) -> None:
    ratio, most = np.array(factors), np.full(len(factors), 40_000)
    x = np.random.default_rng(2).integers(-40_000, 40_001, 4000)
    wanted = np.clip(_wanted(x, ratio, rounding) + zero, low, 127)
    value = np.broadcast_to(x[:, None], wanted.shape)
    steps = list(fixed_point.find_requantisation(fixed_point.quantise_factor(ratio), zero, (low, 127), (-most, most), rounding))
    for step in steps:
        assert np.abs(step.mul).max() < 2**31 and step.shift <= 62
        value = np.clip((value * step.mul + step.add) >> step.shift, step.low, step.high)
    np.testing.assert_array_equal(value, wanted)
    assert len(steps) <= (1 if rounding != "twice" or low >= zero else 2)


def test_exponentials_are_those_of_real_numbers() -> None:
    table = fixed_point.softmax_exponentials(0.05, 1.0)
    assert table[0] == 2**31 - 1
    np.testing.assert_allclose(table / 2.0**31, np.exp(-0.05 * np.arange(256)), atol=2e-7)
    assert not fixed_point.softmax_exponentials(0.5, 1.0)[70:].any()  # beyond 31, nothing is left
