"""Fractions of fixed point as gemmlowp computes with them (https://github.com/google/gemmlowp, fixedpoint/fixedpoint.h).

A number with ``whole`` bits in front of the point has ``bits - whole`` behind it: 31 bits in words of 32, 15 in those of 16. Constants are
written with 31, and rounded where there are fewer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deeploy.ir.types import Array

_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)  # exp(-1/4), exp(-1/2), ... exp(-16)
_HALF_ROOT = 1518500250  # the root of 2, a half of it
_FEWEST = -2  # 2 to this power is the first of the exponents


def _constant(value: int, bits: int) -> int:
    return (value + ((1 << (31 - bits)) >> 1)) >> (31 - bits)


def multiply_fractions(a: Any, b: Any, bits: int = 31) -> Array:
    """The product of two fractions, rounded to the nearest."""
    return np.asarray((a * b + (1 << (bits - 1))) >> bits)


def divide_rounding(x: Any, bits: int) -> Array:
    """x / 2^bits to the nearest, half away from zero."""
    return np.asarray((x + ((1 << bits) >> 1) - ((x < 0) & (bits > 0))) >> bits)


def exponential(x: Array, whole: int, bits: int = 31) -> Array:
    """exp(x) without bits in front of the point, of numbers that are not positive and have ``whole`` of them."""
    quarter, most = 1 << (bits - whole - 2), (1 << bits) - 1
    rest = (x & (quarter - 1)) - quarter
    near = (rest << whole) + (1 << (bits - 3))  # the Taylor series around -1/8
    square = multiply_fractions(near, near, bits)
    fourth = divide_rounding(multiply_fractions(square, square, bits), 2) + multiply_fractions(square, near, bits)
    tail = divide_rounding(multiply_fractions(fourth, _constant(715827883, bits), bits) + square, 1)
    middle = _constant(1895147668, bits)
    result = np.minimum(middle + multiply_fractions(near + tail, middle, bits), most)
    for step, power in enumerate(_POWERS[: whole - _FEWEST]):
        result = np.where((rest - x) & (quarter << step), multiply_fractions(result, _constant(power, bits), bits), result)
    result = np.where(x < -(1 << (bits - whole + 5)), 0, result) if whole > 5 else result
    return np.where(x == 0, most, result)


def invert_sum(x: Array, bits: int = 31) -> Array:
    """1 / (1 + x) with two bits in front of the point, of fractions from 0 to 1, half of it: three steps of Newton's method."""
    half = (x + (1 << bits)) >> 1
    inverse = _constant(1515870810, bits) + multiply_fractions(half, _constant(-1010580540, bits), bits)
    for _ in range(3):
        inverse = inverse + (multiply_fractions(inverse, (1 << (bits - 2)) - multiply_fractions(half, inverse, bits), bits) << 2)
    return inverse


def invert_root(x: Array) -> tuple[Array, Array]:
    """1 / sqrt(x) of positive numbers below 2^29, by five steps of Newton's method; 1 where x is 1 or less.

    Returns:
        M and shift: the inverse root is M * 2^(shift - 31).
    """
    pairs = (31 - np.frexp(np.maximum(x, 2).astype(np.float64))[1].astype(np.int64)) // 2 - 1
    value = x << (2 * pairs) >> 1  # with 28 bits
    half, root = divide_rounding(value, 1), np.full(np.shape(x), 1 << 28, np.int64)
    for _ in range(5):
        cube = multiply_fractions(multiply_fractions(root, root), root) << 6
        root = (multiply_fractions(root, 3 << 27) - multiply_fractions(half, cube)) << 3
    return np.where(x <= 1, 2**31 - 1, multiply_fractions(root, _HALF_ROOT)), np.where(x <= 1, 0, pairs - 11)


def multiply_twice_rounded(x: Array, multiplier: Array, shift: Array) -> Array:
    """x (int64) * multiplier * 2^(shift - 31), rounded as a word, and, where the shift is negative, half away from zero behind it."""
    right = np.maximum(-shift, 0)
    return divide_rounding(multiply_fractions(x << np.maximum(shift, 0), multiplier), right)


def logistic(x: Array, whole: int, bits: int = 31) -> Array:
    """1 / (1 + exp(-x)) without bits in front of the point."""
    most = (1 << bits) - 1
    positive = np.minimum(invert_sum(exponential(-np.abs(x), whole, bits), bits) << 1, most)
    return np.where(x == 0, 1 << (bits - 1), np.where(x > 0, positive, most - positive))


def tangent(x: Array, whole: int, bits: int = 31) -> Array:
    """tanh(x) without bits in front of the point."""
    least, most = -1 << bits, (1 << bits) - 1
    positive = np.clip((invert_sum(exponential(-np.abs(x), whole + 1, bits), bits) - (1 << (bits - 2))) << 2, least, most)
    return np.asarray(np.sign(x) * positive)
