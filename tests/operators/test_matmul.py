"""Matrix products: C against the reference, and the reference against NumPy in int64."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deeploy.operators import matmul
from deeploy.operators.accumulate import sums
from deeploy.planning.binding import kernels as bind
from tests.operators.harness import check, make_node
from tests.operators.kernels import draw, kernel, requantisation, staged

# a shape, b shape, as multiplied (before any transposition)
SHAPES = {
    "plain": ((5, 7), (7, 9)),
    "row": ((1, 30), (30, 140)),
    "few columns": ((4, 6), (6, 3)),
    "column": ((6, 17), (17, 1)),
    "rank 3 by 2": ((2, 3, 8), (8, 20)),
    "rank 2 by 3": ((3, 8), (4, 8, 5)),
    "broadcast both": ((2, 1, 4, 6), (3, 6, 10)),
    "four batch axes": ((2, 1, 2, 1, 3, 4), (3, 1, 2, 4, 11)),
    "wide": ((3, 5), (5, 203)),
    "deep": ((3, 1100), (1100, 7)),
}


def transposed(array: np.ndarray, flag: bool) -> np.ndarray:
    return np.ascontiguousarray(array.swapaxes(-1, -2)) if flag else array


def operands(name: str, trans_a: bool, trans_b: bool, a_type: str = "s8", b_type: str = "s8") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(len(name))
    a, b = SHAPES[name]
    return {"a": transposed(draw(rng, a_type, *a), trans_a), "b": transposed(draw(rng, b_type, *b), trans_b)}


def matmul_attrs(trans_a: bool = False, trans_b: bool = False, a_zero: int = 0, b_zero: int = 0) -> dict[str, Any]:
    return {"trans_a": trans_a, "trans_b": trans_b, "a_zero_point": a_zero, "b_zero_point": b_zero}


@pytest.mark.share(0.25)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("name", SHAPES)
def test_matmul_is_exact(name: str, trans_a: bool, trans_b: bool) -> None:
    given = operands(name, trans_a, trans_b)
    a = transposed(given["a"], trans_a).astype(np.int64) - 5
    b = transposed(given["b"], trans_b).astype(np.int64) + 9
    attrs = matmul_attrs(trans_a, trans_b, 5, -9)
    for chosen in ("matmul", "matmul_any", "matmul_dot"):
        (y,) = check(kernel(chosen), given, "s32", attrs)
        np.testing.assert_array_equal(y, np.matmul(a, b))


@pytest.mark.parametrize("name", ["plain", "rank 2 by 3", "broadcast both"])
@pytest.mark.parametrize("trans", [False, True])
def test_matmul_of_strided_operands(name: str, trans: bool) -> None:
    check(kernel("matmul_any"), operands(name, trans, trans), "s32", matmul_attrs(trans, trans, 1, 2), strided=True)


@pytest.mark.share(0.25)
@pytest.mark.parametrize(("a_type", "b_type"), [("u8", "s8"), ("s8", "s16"), ("s16", "s16"), ("s32", "u8"), ("u8", "s32")])
def test_matmul_types(a_type: str, b_type: str) -> None:
    for chosen in ("matmul", "matmul_any"):
        check(kernel(chosen), operands("rank 3 by 2", False, True, a_type, b_type), "s32", matmul_attrs(trans_b=True, a_zero=3))


@pytest.mark.share(0.25)
@pytest.mark.parametrize("wide_add", [False, True])
@pytest.mark.parametrize("name", ["plain", "row", "wide"])
def test_matmul_requantised(name: str, wide_add: bool) -> None:
    rng = np.random.default_rng(6)
    given = operands(name, False, False)
    columns = given["b"].shape[-1]
    requantised, values = requantisation(rng, columns, "u8", 60000, wide_add)
    given |= requantised | {"bias": rng.integers(-9000, 9000, columns).astype(np.int32)}
    for chosen in ("matmul", "matmul_dot"):
        check(kernel(chosen), given, "u8", staged(matmul_attrs(a_zero=3), "bias", "requantise", **values))


@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, True)])
@pytest.mark.parametrize("name", SHAPES)
def test_matmul_float(name: str, trans_a: bool, trans_b: bool) -> None:
    given = operands(name, trans_a, trans_b, "f32", "f32")
    columns = given["b"].shape[-2 if trans_b else -1]
    given["bias"] = draw(np.random.default_rng(1), "f32", columns)
    attrs = staged(matmul_attrs(trans_a, trans_b), "bias", "clamp", low=-1.0, high=None)
    for chosen in ("matmul", "matmul_any"):
        # The reference adds in the order of the C code: equal to the last bit.
        check(kernel(chosen, floating=True), given, "f32", {**attrs, "high": np.inf}, rtol=0, atol=0)


def test_exact_product_beyond_53_bits() -> None:
    a = np.array([[2**31 - 1, 2**31 - 1]], np.int64)
    b = np.array([[2**31 - 1], [1]], np.int64)
    assert matmul.exact_product(a, b).tolist() == [[(2**31 - 1) ** 2 + 2**31 - 1]]


def test_limits_are_stated() -> None:
    a, b = np.zeros((1, 1, 1, 1, 1, 2, 3), np.int8), np.zeros((3, 4), np.int8)
    node = make_node(kernel("matmul"), {"a": a, "b": b}, "s32", matmul_attrs())
    assert bind.list_mismatches(kernel("matmul"), node) == ["at most 4 batch axes"]


def test_multiply_add_rounds_once() -> None:
    """Where two roundings would show: ties of 64 bits beside ties of 32, cancellation, numbers below the normal ones, and infinity."""
    rng = np.random.default_rng(3)
    tie, tiny = np.float32(2**12 + 1), np.float32(2.0**-60)
    a, b, c = (np.float32(2) ** rng.integers(-70, 60, 500) * rng.normal(size=500).astype(np.float32) for _ in range(3))
    c[:300] = -(a * b)[:300]
    a[:4], b[:4], c[:4] = [tie, tie, -tie, tiny], [tie, tie, tie, tiny], [tiny, -tiny, tiny, -(2.0**-149)]
    got = matmul.multiply_add(a, b, c)
    for x, w, summand, result in zip(a, b, c, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(w)) + Fraction(float(summand))
        errors = [abs(Fraction(float(near)) - exact) for near in (np.nextafter(result, -np.inf), result, np.nextafter(result, np.inf))]
        is_even = not result.view(np.int32) & 1
        assert errors[1] <= min(errors) and (is_even or errors.count(errors[1]) == 1)
    special = matmul.multiply_add(*np.float32([[np.inf, np.nan, 3e38, 0], [1, 1, 3e38, -1], [-1, 1, -1, 0]]))
    np.testing.assert_array_equal(special, np.float32([np.inf, np.nan, np.inf, 0]))


def test_extremes_of_sums_have_no_limit_of_bits() -> None:
    """Words times words, of which a sum leaves 64 bits."""
    word = 2**31
    least, most = sums(np.array([[word - 1, -word], [1, 0]]), -word, word - 1)
    assert list(least) == [-word * (word - 1) - word * (word - 1), -word] and list(most) == [(word - 1) ** 2 + word**2, word - 1]
    assert list(sums(np.array([[1, 2]]), 0, 2**64)[1]) == [3 * 2**64]
