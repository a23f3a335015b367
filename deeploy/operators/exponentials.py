"""The exponential of float32 and functions that follow from it, operation by operation as kernels/portable/exponentials.h has them.

Only operations of IEEE 754 are in them, so that C has the same last bit everywhere, whatever its library. Where C takes one of two ways,
both are computed here, and one is chosen. Of float64, as tables are computed of, they are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from deeploy.ir.types import Array

_MAGIC, _LN2_UPPER, _LN2_REST = np.float32(12582912.0), np.float32(0.693145752), np.float32(1.42860677e-06)
_ONE, _TWO = np.float32(1), np.float32(2)
_EXP = (0.00139517395, 0.00836961064, 0.0416661873, 0.166665122, 0.5)
_LOG = (-0.0763442963, 0.127615497, -0.131601945, 0.142017618, -0.166233569, 0.200012267, -0.250008225, 0.333333313)
_TANH = (-0.00571703678, 0.0206505787, -0.0537434965, 0.133314908, -0.333332837)
_ERF = (-0.000635999313, 0.00505867833, -0.0268070213, 0.112828247, -0.376125813, 0.128379166)
_ERFC = (-0.000203169096, 0.0031132875, -0.0225025397, 0.104495212, 0.63654995, 1.12804496, 0.000107877786)


_Function = Callable[[Array], Array]


def _single(double: Callable[[Any], Any]) -> Callable[[_Function], _Function]:
    """A function of float32, which of float64 is another one."""

    def decorate(function: _Function) -> _Function:
        return wraps(function)(lambda x: function(x) if x.dtype == np.float32 else np.asarray(double(x)))

    return decorate


def _horner(x: Array, coefficients: tuple[float, ...]) -> Array:
    result = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + np.float32(coefficient)
    return result


def _expm1_near_zero(x: Array) -> Array:
    return np.asarray(x + x * x * _horner(x, _EXP))


def _power_of_two(n: Array) -> Array:
    return ((n + 127).astype(np.uint32) << np.uint32(23)).view(np.float32)


@_single(np.exp)
def exp(x: Array) -> Array:
    """e^x = 2^n e^r with |r| < 0.35."""
    limited = np.where(x < -104, np.float32(-104), np.where(x > 89, np.float32(89), x))
    shifted = limited * np.float32(1.44269502) + _MAGIC
    whole = shifted - _MAGIC
    n = np.where(np.isnan(x), 0, shifted.view(np.int32) - _MAGIC.view(np.int32))
    r = (limited - whole * _LN2_UPPER) - whole * _LN2_REST
    half = n >> 1
    return np.asarray((_ONE + _expm1_near_zero(r)) * _power_of_two(half) * _power_of_two(n - half))


@_single(np.expm1)
def expm1(x: Array) -> Array:
    """e^x - 1."""
    return np.where(np.abs(x) < np.float32(0.34), _expm1_near_zero(x), exp(x) - _ONE)


@_single(np.log)
def log(x: Array) -> Array:
    """The natural logarithm: x = 2^n (1 + f), and 1 + f is between the roots of 1/2 and 2."""
    is_small = x < np.float32(1.17549435e-38)
    bits = np.where(is_small, x * np.float32(8388608), x).view(np.int32)
    n = (bits - np.int32(0x3F3504F3)) >> 23
    f = (bits - (n << 23)).view(np.float32) - _ONE
    exponent, square = np.where(is_small, n - 23, n).astype(np.float32), f * f
    rest = (square * f * _horner(f, _LOG) + exponent * _LN2_REST) - np.float32(0.5) * square
    result = (f + rest) + exponent * _LN2_UPPER
    return np.where(x > 0, np.where(np.isinf(x), x, result), np.where(x == 0, -np.float32(np.inf), np.float32(np.nan)))


@_single(np.log1p)
def log1p(x: Array) -> Array:
    """log(1 + x) of numbers from 0 to 1."""
    total = _ONE + x
    return np.asarray(log(total) + (x - (total - _ONE)) / total)


@_single(np.tanh)
def tanh(x: Array) -> Array:
    """A polynomial near zero, else 1 - 2 / (e^(2|x|) + 1)."""
    size, square = np.abs(x), x * x
    far = np.copysign(_ONE - _TWO / (exp(_TWO * size) + _ONE), x)
    return np.asarray(np.where(size < np.float32(0.625), x + x * square * _horner(square, _TANH), far))


@_single(np.vectorize(math.erf, otypes=[np.float64]))
def erf(x: Array) -> Array:
    """A polynomial near zero, else 1 - e^-q(|x|)."""
    size, square = np.abs(x), x * x
    far = _ONE - exp(-_horner(np.where(size > 4, np.float32(4), size), _ERFC))
    return np.asarray(np.where(size < np.float32(0.84375), x + x * _horner(square, _ERF), np.copysign(far, x)))
