"""Scales as integers: multipliers are rounded, saturate, and say whether ties can occur; weights keep their values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deeploy.frontend.lower.quant import Quantised, centre_weights, fixed_point_multiplier, narrow_values, quantise_values, ties_attribute
from deeploy.ir.nodes import constant

RATIOS = st.floats(2.0**-40, 2.0**30, exclude_max=True)


@given(st.lists(RATIOS, min_size=1, max_size=4))
@example([1 - 2.0**-33])  # next to a power of two: 31 bits behind the largest shift would not hold it
@example([0.5])
@example([1.0, 2.0**-40])
def test_multipliers_are_the_nearest_with_the_largest_shift(ratios: list[float]) -> None:
    mul, shift = fixed_point_multiplier(np.array(ratios))
    assert mul.dtype == np.int32
    for factor, ratio in zip(mul.tolist(), ratios, strict=True):
        assert abs(Fraction(factor) - Fraction(ratio) * 2**shift) <= Fraction(1, 2)
    assert shift == 53 or round(Fraction(max(ratios)) * 2 ** (shift + 1)) >= 2**31


def test_ratios_beyond_31_bits_saturate() -> None:
    assert [(int(mul[0]), shift) for mul, shift in map(fixed_point_multiplier, (2.0**31, -(2.0**40), 0.0))] == [
        (2**31 - 1, 0),
        (1 - 2**31, 0),
        (0, 53),
    ]


@given(st.lists(st.integers(-300, 300).filter(bool), min_size=1, max_size=3), st.integers(0, 9), st.integers(-128, 127))
def test_ties_are_said_where_an_accumulator_gives_one(mul: list[int], shift: int, zero_point: int) -> None:
    products = np.arange(-512, 512)[:, None] * np.array(mul)
    is_tie = shift > 0 and bool((products % 2**shift == 2 ** (shift - 1)).any())
    assert ties_attribute(np.array(mul), shift, zero_point) == ({"even": zero_point % 2} if is_tie else {})


@pytest.mark.parametrize(
    ("values", "zero", "kind"),
    [
        (np.int8([-128, 127]), [0], np.int8),
        (np.int8([-127, 127]), [-1], np.int16),  # 128 is one too many
        (np.int8([-127, 126]), [-1], np.int8),
        (np.int8([-128, 0]), [1], np.int16),
        (np.uint8([0, 255]), [128], np.int8),
        (np.uint8([0, 255]), [127], np.int16),
        (np.uint8([]), [127], np.int8),
    ],
)
def test_weights_without_their_zero_point_keep_their_values(values: np.ndarray, zero: list[int], kind: type[np.generic]) -> None:
    found = centre_weights(Quantised(constant(values), np.ones(1, np.float32), np.array(zero), 0))
    assert found is not None and found.dtype == kind
    assert found.tolist() == [int(value) - zero[0] for value in values]


def test_channels_have_zero_points_of_their_own() -> None:
    values = np.arange(6, dtype=np.int8).reshape(2, 3)
    for axis, zeros in ((0, [1, 2]), (1, [1, 2, 3])):
        found = centre_weights(Quantised(constant(values), np.ones(len(zeros), np.float32), np.array(zeros), axis))
        np.testing.assert_array_equal(found, values - np.expand_dims(zeros, 1 - axis))


def test_summands_are_as_narrow_as_they_fit() -> None:
    for value, kind in ((2**31 - 1, np.int32), (2**31, np.int64), (-(2**31), np.int32), (-(2**31) - 1, np.int64)):
        found = narrow_values(np.array([0, value]))
        assert found.dtype == kind and found.tolist() == [0, value]


def test_values_are_rounded_half_to_even_and_saturate() -> None:
    real = np.array([-np.inf, -300, -0.75, -0.25, 0.25, 0.75, 1.25, 300, np.inf, np.nan])
    assert quantise_values(real, 0.5, 3, -128, 127).tolist() == [-128, -128, 1, 3, 3, 5, 5, 127, 127, -128]
