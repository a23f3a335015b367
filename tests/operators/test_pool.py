"""Pools: C against the reference, the references against a naive loop in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.operators.harness import check
from tests.operators.kernels import draw, kernel, requantisation, staged

# x shape, kernel, strides, dilations, pads
WINDOWS = {
    "2x2": ((1, 6, 6, 8), (2, 2), (2, 2), (1, 1), (0, 0, 0, 0)),
    "3x3 padded": ((2, 7, 5, 3), (3, 3), (2, 1), (1, 1), (1, 1, 1, 1)),
    "asymmetric": ((1, 5, 9, 70), (2, 4), (1, 3), (1, 1), (0, 2, 1, 1)),
    "dilated": ((1, 8, 8, 17), (3, 2), (1, 2), (2, 3), (2, 1, 0, 2)),
    "global": ((2, 9, 5, 12), (9, 5), (1, 1), (1, 1), (0, 0, 0, 0)),
    "signal": ((1, 1, 13, 4), (1, 3), (1, 2), (1, 1), (0, 1, 0, 1)),
    "enlarged end": ((1, 5, 5, 2), (2, 2), (2, 2), (1, 1), (0, 0, 1, 1)),
}


def pool_attrs(name: str, include: bool = False, zero: int = 0) -> dict[str, Any]:
    _, taps, strides, dilations, pads = WINDOWS[name]
    further = {"count_include_pad": include, "zero_point": zero}
    return {"kernel": taps, "strides": strides, "dilations": dilations, "pads": pads, **further}


def taps_inside(name: str, x: np.ndarray, shape: tuple[int, ...]) -> dict[tuple[int, ...], list[Any]]:
    """For every output index the elements under its window, by plain loops."""
    _, (height, width), (sh, sw), (dh, dw), pads = WINDOWS[name]
    found: dict[tuple[int, ...], list[Any]] = {}
    for n, oh, ow, c in np.ndindex(*shape):
        rows = (oh * sh + fh * dh - pads[0] for fh in range(height))
        inside = [ih for ih in rows if 0 <= ih < x.shape[1]]
        columns = (ow * sw + fw * dw - pads[1] for fw in range(width))
        across = [iw for iw in columns if 0 <= iw < x.shape[2]]
        found[n, oh, ow, c] = [x[n, ih, iw, c].item() for ih in inside for iw in across]
    return found


@pytest.mark.parametrize(("dtype", "strided"), [("s8", False), ("s8", True), ("f32", False)])
@pytest.mark.parametrize("name", WINDOWS)
def test_max_pool(name: str, dtype: str, strided: bool) -> None:
    x = draw(np.random.default_rng(1), dtype, *WINDOWS[name][0])
    (y,) = check(kernel("maxpool2d", dtype == "f32"), {"x": x}, dtype, pool_attrs(name), strided=strided, rtol=0, atol=0)
    if strided:
        return
    for index, taps in taps_inside(name, x, y.shape).items():
        assert y[index] == max(taps)


@pytest.mark.parametrize("dtype", ["u8", "s16", "s32"])
def test_max_pool_types(dtype: str) -> None:
    x = draw(np.random.default_rng(1), dtype, *WINDOWS["3x3 padded"][0])
    check(kernel("maxpool2d"), {"x": x}, dtype, pool_attrs("3x3 padded"))


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(("dtype", "zero"), [("s8", -128), ("u8", 77)])
@pytest.mark.parametrize("name", WINDOWS)
def test_average_pool_rounds_half_up_in_16_bits(name: str, dtype: str, zero: int, include: bool) -> None:
    x = draw(np.random.default_rng(2), dtype, *WINDOWS[name][0])
    attrs = pool_attrs(name, include, zero)
    (y,) = check(kernel("average_pool2d"), {"x": x}, "s32", attrs, strided=include)
    for index, taps in taps_inside(name, x, y.shape).items():
        count = math.prod(attrs["kernel"]) if include else len(taps)
        mean = Fraction(sum(taps) - zero * len(taps), count) * 65536
        assert y[index] == math.floor(mean + Fraction(1, 2))


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_average_pool_float(name: str, include: bool) -> None:
    x = draw(np.random.default_rng(3), "f32", *WINDOWS[name][0])
    (y,) = check(kernel("average_pool2d", floating=True), {"x": x}, "f32", pool_attrs(name, include), rtol=0, atol=0)
    for index, taps in taps_inside(name, x, y.shape).items():
        count = math.prod(WINDOWS[name][1]) if include else len(taps)
        assert y[index] == pytest.approx(sum(taps) / count, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("size", "value"), [(182, 255), (200, 255), (200, 254)])
def test_average_pool_of_many_taps(size: int, value: int) -> None:
    """Around 32768 taps the division changes from 32 to 64 bits."""
    x = np.full((1, size, size, 2), value, np.uint8)
    x[0, 0, 0, 1] = 0
    attrs = {"kernel": (size, size), "strides": (1, 1), "dilations": (1, 1), "pads": (0,) * 4, "count_include_pad": False, "zero_point": 3}
    (y,) = check(kernel("average_pool2d"), {"x": x}, "s32", attrs)
    assert y[0, 0, 0, 0] == (value - 3) * 65536


@pytest.mark.parametrize("mul_step", [0, 1])
def test_average_pool_requantised(mul_step: int) -> None:
    rng = np.random.default_rng(4)
    x = draw(rng, "s8", *WINDOWS["3x3 padded"][0])
    operands, values = requantisation(rng, 3, "s8", 128 << 16, True, mul_step, 1)
    check(kernel("average_pool2d"), {"x": x, **operands}, "s8", staged(pool_attrs("3x3 padded", True, 2), "requantise", **values))
