"""Rotary embedding: C against its reference, and the reference against a rotation of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deeploy.ir.kernel import Kernel
from deeploy.ir.types import DType
from deeploy.target import load
from tests.operators.harness import check

RANDOM = np.random.default_rng(3)
KERNELS = [k for k in load("generic").kernels if k.name == "rotate"]
SHAPES = [
    ((2,), (2,), (2,)),
    ((1, 3, 5, 8), (5, 8), (1, 1, 5, 8)),
    ((2, 4, 3, 6), (3, 1), (2, 1, 3, 6)),
    ((1, 2, 2, 3, 2, 10), (2, 10), (10,)),
]


def kernel(is_float: bool) -> Kernel:
    return next(k for k in KERNELS if (DType.FLOAT32 in k.types["x"]) == is_float)


def draw(dtype: str, *shape: int) -> np.ndarray:
    low, high = DType(dtype).range
    return RANDOM.integers(low, high, shape, endpoint=True).astype(DType(dtype).numpy)


@pytest.mark.parametrize("attrs", [{}, {"interleaved": True}])
@pytest.mark.parametrize("shapes", SHAPES)
def test_floats_turn_as_complex_numbers(shapes: tuple[tuple[int, ...], ...], attrs: dict[str, Any]) -> None:
    x = RANDOM.normal(size=shapes[0]).astype(np.float32)
    angle = RANDOM.uniform(-3, 3, (*shapes[0][:-1], shapes[0][-1] // 2))
    tables = [(np.repeat(f(angle), 2, -1) if attrs else np.tile(f(angle), 2)).astype(np.float32) for f in (np.cos, np.sin)]
    got = check(kernel(True), {"x": x, "cosine": tables[0], "sine": tables[1]}, "f32", attrs, strided=True)[0]
    half = x.shape[-1] // 2
    first, second = (slice(0, None, 2), slice(1, None, 2)) if attrs else (slice(0, half), slice(half, None))
    points = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angle)
    np.testing.assert_allclose(got[..., first], points.real, atol=1e-5)
    np.testing.assert_allclose(got[..., second], points.imag, atol=1e-5)
    cos, sin = (RANDOM.normal(size=s).astype(np.float32) for s in shapes[1:])
    check(kernel(True), {"x": x, "cosine": cos, "sine": sin}, "f32", attrs, strided=True)


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtypes", [("s8", "s8", "s8", "s8", "s8"), ("u8", "s8", "u8", "s8", "u8"), ("s8", "u8", "u8", "u8", "s8")])
@pytest.mark.parametrize("even", [-1, 0, 1])
@pytest.mark.parametrize("interleaved", [False, True])
def test_integers(shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...], even: int, interleaved: bool) -> None:
    x, cos, sin = (draw(d, *s) for d, s in zip(dtypes, shapes, strict=False))
    table = draw(dtypes[3], 2, 256)
    product = (3, 2, 1 << 20, 1 << 26, 27, -128, 127, even)
    attrs: dict[str, Any] = {
        "interleaved": interleaved,
        "cosine": product,
        "sine": (5, -7, (1 << 30) - 3, 77 << 30, 38, -100, 127, -1),
        "sum": (1 << 29, (1 << 30) + 9, 1 << 29, 30, *DType(dtypes[4]).range, even),
    }
    check(kernel(False), {"x": x, "cosine": cos, "sine": sin, "table": table}, dtypes[4], attrs, strided=True)


def test_integers_turn_points() -> None:
    """In steps of 1/64 of x and y and of 1/127 of cosines and sines, the result is the rotation to within two steps."""
    x, angle = draw("s8", 4, 6, 16) // 2, RANDOM.uniform(-3, 3, (6, 8))
    cos, sin = (np.rint(np.tile(f(angle), 2) * 127).astype(np.int8) for f in (np.cos, np.sin))
    steps = np.arange(-128, 128)
    table = np.stack([np.clip(-steps, -128, 127), steps]).astype(np.int8)
    mul = round(2**31 / 127)
    by = (0, 0, mul, 1 << 30, 31, -128, 127, -1)
    attrs = {"cosine": by, "sine": by, "sum": (1, 1, 0, 0, -128, 127, -1)}
    got = check(kernel(False), {"x": x, "cosine": cos, "sine": sin, "table": table}, "s8", attrs)[0]
    points = (x[..., :8] + 1j * x[..., 8:]) * np.exp(1j * angle)
    assert np.abs(got - np.concatenate([points.real, points.imag], axis=-1)).max() <= 2
