"""The cluster's kernels on the host, with the portable body of xpulp.h: C against the NumPy references, over shapes and types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deeploy.target import Kernel, Rate, load
from tests.operators import harness
from tests.operators.kernels import draw, requantisation, staged

PULP = harness.KERNELS.parent / "pulp"


@pytest.fixture(autouse=True)
def pulp_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the harness find the sources, and give calls the one core that they run on."""
    monkeypatch.setattr(harness, "WARNINGS", (*harness.WARNINGS, f"-I{PULP}", "-Drt_core()=0"))


def kernel(name: str) -> Kernel:
    return next(k for k in load("siracusa").kernels if k.name == name)


# rows, depth, columns
PRODUCTS = [(5, 7, 9), (1, 30, 140), (4, 6, 3), (6, 17, 1), (2, 1, 2), (3, 3, 5), (7, 64, 13), (16, 130, 11), (1, 1, 1)]
STAGES: dict[str, tuple[str, ...]] = {
    **{"plain": (), "clamped": ("clamp",), "biased": ("bias",), "requantised": ("bias", "requantise")},
    "looked up": ("bias", "requantise", "lookup"),
}


def epilogue(rng: np.random.Generator, stages: tuple[str, ...], channels: int, size: int, y: str, wide: bool) -> tuple[Any, Any]:
    """Operands and attributes of the stages."""
    given: dict[str, np.ndarray] = {}
    attrs: dict[str, Any] = {}
    if "bias" in stages:
        given["bias"] = rng.integers(-9000, 9000, channels).astype(np.int32)
    if "requantise" in stages:
        operands, attrs = requantisation(rng, channels, y, size, wide)
        operands["mul"] = np.maximum(np.abs(operands["mul"]), 1)
        given |= operands
        if "lookup" in stages:
            given["table"] = draw(rng, y, attrs["high"] - attrs["low"] + 1)
    elif "clamp" in stages:
        attrs = {"low": -4000, "high": 3000}
    return given, staged({}, *stages, **attrs)


NO_ZEROS: dict[str, Any] = {"a_zero_point": 0, "b_zero_point": 0, "trans_a": False, "trans_b": False}


def check_matmul(shape: tuple[int, int, int], stages: str, x: str, strided: bool = True) -> None:
    rows, depth, columns = shape
    rng = np.random.default_rng(rows * 1000 + depth)
    given, attrs = epilogue(rng, STAGES[stages], columns, 4000 * depth, x, False)
    given |= {"a": draw(rng, x, rows, depth), "b": draw(rng, "s8", depth, columns)}
    y = x if "requantise" in STAGES[stages] else "s32"
    harness.check(kernel("pulp_matmul"), given, y, attrs | NO_ZEROS, strided=strided)


@pytest.mark.parametrize("shape", PRODUCTS)
def test_matmul(shape: tuple[int, int, int]) -> None:
    check_matmul(shape, "requantised", "u8")


@pytest.mark.share(0.25)
@pytest.mark.parametrize("x", ["s8", "u8"])
@pytest.mark.parametrize("stages", STAGES)
def test_stages_and_types(stages: str, x: str) -> None:
    check_matmul((5, 12, 9), stages, x)


@pytest.mark.parametrize("shape", [(9, 16, 8), (4, 64, 5), (7, 4, 4), (6, 20, 7)])
def test_matmul_of_dense_rows(shape: tuple[int, int, int]) -> None:
    check_matmul(shape, "requantised", "s8", strided=False)


@pytest.mark.parametrize("form", ["narrow", "split", "high"])
@pytest.mark.parametrize("shape", [(9, 16, 8), (4, 64, 7), (4, 8, 5), (2, 13, 9), (1, 20, 6), (3, 7, 2)])
def test_matmul_by_one_factor(shape: tuple[int, int, int], form: str) -> None:
    """All channels share it: it is in the call, and no operand."""
    rows, depth, columns = shape
    rng = np.random.default_rng(depth)
    mul, shift = {"narrow": (37, 16), "split": (1192384022, 38), "high": (1192384022, 42)}[form]
    given = {"a": draw(rng, "s8", rows, depth), "b": draw(rng, "s8", depth, columns)}
    given |= {"bias": rng.integers(-9000, 9000, columns).astype(np.int32)}
    given |= {"mul": np.array([mul], np.int32), "add": np.full(columns, 1 << (shift - 1), np.int64)}
    attrs = staged(NO_ZEROS, "bias", "requantise", shift=shift, low=-128, high=127)
    harness.check(kernel("pulp_matmul"), given, "s8", attrs, strided=rows != 4)


# batch of a and of b, rows, depth, columns
VARIABLE = [
    ((), (), 5, 7, 9),
    ((2, 3), (1, 3), 4, 12, 6),
    ((3,), (), 1, 65, 4),
    ((), (2,), 8, 16, 12),
    ((2,), (2,), 3, 3, 3),
    ((), (), 1, 1, 1),
]


@pytest.mark.share(0.25)
@pytest.mark.parametrize(("a", "b"), [("s8", "s8"), ("u8", "s8"), ("u8", "u8")])
@pytest.mark.parametrize("is_transposed", [True, False])
@pytest.mark.parametrize("shape", VARIABLE)
def test_matmul_of_two_variables(shape: tuple[Any, ...], is_transposed: bool, a: str, b: str) -> None:
    batch_a, batch_b, rows, depth, columns = shape
    rng = np.random.default_rng(rows * depth + columns)
    given, attrs = epilogue(rng, STAGES["requantised"], columns, 6000 * depth, a, False)
    right = (columns, depth) if is_transposed else (depth, columns)
    given |= {"a": draw(rng, a, *batch_a, rows, depth), "b": draw(rng, b, *batch_b, *right)}
    form = {"a_zero_point": 0, "b_zero_point": 0, "trans_a": False, "trans_b": is_transposed}
    name = "pulp_matmul_rows" if is_transposed else "pulp_matmul_columns"
    harness.check(kernel(name), given, a, attrs | form, strided=rows == 5)


FLOATS = [
    *VARIABLE,
    ((), (), 5, 150, 9),
    ((), (), 9, 33, 10),
    ((), (2,), 6, 1, 4),
    ((), (), 1, 40, 3),
    ((), (), 2, 17, 1),
    ((2,), (), 3, 16, 2),
]


@pytest.mark.share(0.5)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shape", FLOATS)
def test_matmul_of_floats(shape: tuple[Any, ...], trans_a: bool, trans_b: bool) -> None:
    """Products and gradients of a training step, blocks of which begin earlier or have fewer rows and columns, bit for bit."""
    batch_a, batch_b, rows, depth, columns = shape
    rng = np.random.default_rng(rows * depth + columns)
    left, right = (depth, rows) if trans_a else (rows, depth), (columns, depth) if trans_b else (depth, columns)
    given = {"a": draw(rng, "f32", *batch_a, *left), "b": draw(rng, "f32", *batch_b, *right), "bias": draw(rng, "f32", columns)}
    attrs = {**NO_ZEROS, "trans_a": trans_a, "trans_b": trans_b, "multiply_add": True}
    for stages in ("bias", "clamp"), ("bias",), ():
        some = {name: array for name, array in given.items() if name != "bias" or stages}
        form = staged(attrs, *stages, low=-0.5, high=np.inf) if stages else attrs
        harness.check(kernel("pulp_matmul_floats"), some, "f32", form, strided=rows != 9, rtol=0, atol=0)


# x shape, filters, kernel, strides, dilations, pads, group
GEOMETRIES: dict[str, tuple[Any, ...]] = {
    "3x3": ((1, 7, 6, 8), 9, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "few filters, odd channels": ((1, 5, 7, 3), 3, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "batch, asymmetric": ((2, 8, 7, 3), 12, (3, 2), (2, 1), (1, 1), (0, 1, 2, 0), 1),
    "dilated": ((1, 11, 9, 4), 17, (3, 3), (1, 2), (2, 3), (2, 3, 2, 1), 1),
    "signal": ((1, 1, 20, 3), 6, (1, 5), (1, 3), (1, 2), (0, 4, 0, 4), 1),
    "kernel beyond image": ((1, 2, 3, 2), 8, (5, 5), (1, 1), (1, 1), (2, 2, 2, 2), 1),
    "one pixel": ((1, 1, 1, 5), 1, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "deep, two columns": ((1, 2, 2, 224), 9, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "deep, one pixel": ((1, 1, 1, 521), 8, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "deep, by twos": ((1, 3, 5, 180), 9, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "deep, by twos, dilated": ((1, 6, 7, 171), 3, (3, 3), (2, 1), (1, 2), (1, 2, 1, 2), 1),
    "very deep, one by one": ((2, 4, 5, 401), 6, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "two filters": ((1, 3, 3, 17), 2, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "one element": ((1, 4, 3, 1), 5, (1, 1), (1, 1), (1, 1), (0, 1, 0, 1), 1),
    "grouped": ((1, 6, 6, 12), 21, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 3),
    "pointwise": ((1, 5, 5, 12), 10, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    "pointwise, odd": ((2, 3, 5, 13), 7, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    "pointwise strided": ((1, 5, 7, 8), 24, (1, 1), (2, 2), (1, 1), (0, 0, 0, 0), 1),
}


@pytest.mark.share(0.25)
@pytest.mark.parametrize("x", ["s8", "u8"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_conv(name: str, x: str) -> None:
    shape, filters, taps, strides, dilations, pads, group = GEOMETRIES[name]
    rng = np.random.default_rng(len(name))
    w = draw(rng, "s8", filters, shape[3] // group, *taps)
    given, attrs = epilogue(rng, STAGES["requantised"], filters, 4000 * w[0].size, x, x == "s8")
    given |= {"x": draw(rng, x, *shape), "w": w}
    attrs |= {"strides": strides, "dilations": dilations, "pads": pads, "group": group, "zero_point": -7 if x == "s8" else 9}
    special = {"grouped": "grouped", "pointwise": "pointwise", "deep, by": "pairs", "very deep": "single"}
    chosen = f"pulp_conv2d_{next((word for begin, word in special.items() if name.startswith(begin)), 'small')}"
    harness.check(kernel(chosen), given, x, attrs, strided=name in ("3x3", "pointwise strided"))


@pytest.mark.parametrize("name", [name for name, geometry in GEOMETRIES.items() if geometry[-1] == 1])
def test_conv_of_floats(name: str) -> None:
    """Blocks of positions, single ones at borders, and few filters, bit for bit."""
    shape, filters, taps, strides, dilations, pads, group = GEOMETRIES[name]
    rng = np.random.default_rng(len(name))
    given = {"x": draw(rng, "f32", *shape), "w": draw(rng, "f32", filters, shape[3], *taps), "bias": draw(rng, "f32", filters)}
    attrs = {"strides": strides, "dilations": dilations, "pads": pads, "group": group, "zero_point": 0, "multiply_add": True}
    form = staged(attrs, "bias", "clamp", low=0.0, high=np.inf)
    harness.check(kernel("pulp_conv2d_floats"), given, "f32", form, strided=name in ("3x3", "pointwise strided"), rtol=0, atol=0)


# x shape, strides, pads
DEPTHWISE: dict[str, tuple[Any, ...]] = {
    "stride 1": ((1, 7, 6, 8), (1, 1), (1, 1, 1, 1)),
    "stride 2, odd": ((2, 8, 7, 7), (2, 2), (1, 1, 1, 1)),
    "two channels": ((1, 5, 7, 2), (1, 1), (1, 1, 1, 1)),
    "asymmetric": ((1, 6, 5, 5), (2, 1), (0, 2, 2, 0)),
    "one pixel": ((1, 1, 1, 4), (1, 2), (1, 1, 1, 1)),
    "one column, no padding": ((1, 4, 3, 9), (1, 1), (0, 0, 0, 0)),
    "one row": ((1, 1, 9, 4), (1, 1), (1, 1, 1, 1)),
}


@pytest.mark.share(0.25)
@pytest.mark.parametrize("x", ["s8", "u8"])
@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise(name: str, x: str) -> None:
    shape, strides, pads = DEPTHWISE[name]
    rng = np.random.default_rng(len(name))
    w = draw(rng, "s8", shape[3], 1, 3, 3)
    given, attrs = epilogue(rng, STAGES["requantised"], shape[3], 36000, x, x == "s8")
    given |= {"x": draw(rng, x, *shape), "w": w}
    attrs |= {"strides": strides, "dilations": (1, 1), "pads": pads, "group": shape[3], "zero_point": -7 if x == "s8" else 9}
    harness.check(kernel("pulp_depthwise"), given, x, attrs, strided=name == "stride 1")


# x shape, taps, strides, dilations, pads
WINDOWS: dict[str, tuple[Any, ...]] = {
    "5x5 on a small map": ((1, 4, 4, 12), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    "7x7, odd channels": ((1, 9, 10, 7), (7, 7), (2, 2), (1, 1), (3, 3, 3, 3)),
    "one row": ((2, 1, 37, 9), (1, 11), (1, 1), (1, 1), (0, 5, 0, 5)),
    "one column, dilated": ((1, 23, 1, 4), (5, 1), (1, 1), (3, 3), (6, 0, 6, 0)),
    "dilated, moved by 2": ((1, 12, 11, 6), (3, 3), (2, 2), (2, 2), (2, 2, 1, 3)),
    "two channels": ((1, 6, 9, 2), (3, 5), (1, 1), (1, 1), (1, 2, 1, 2)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_depthwise_by_any_window(name: str) -> None:
    """In lines and in columns, with borders that are the zero point."""
    shape, taps, strides, dilations, pads = WINDOWS[name]
    rng, x = np.random.default_rng(len(name)), "s8" if len(name) % 2 else "u8"
    given, attrs = epilogue(rng, STAGES["requantised"], shape[3], 36000, x, x == "s8")
    given |= {"x": draw(rng, x, *shape), "w": draw(rng, "s8", shape[3], 1, *taps)}
    attrs |= {"strides": strides, "dilations": dilations, "pads": pads, "group": shape[3], "zero_point": -7 if x == "s8" else 9}
    for chosen in ("pulp_depthwise_rows", "pulp_depthwise_columns"):
        harness.check(kernel(chosen), given, x, attrs, strided=name == "one row")


RUNS = {  # columns, channels, filters, taps, stride
    "four columns": (10, 16, 24, 4, 2),
    "one column": (5, 12, 9, 5, 1),
    "taps make words": (9, 6, 7, 2, 1),
    "single taps": (7, 8, 5, 1, 3),
}


@pytest.mark.parametrize("form", ["plain", "requantised"])
@pytest.mark.parametrize("name", RUNS)
def test_convolution_by_windows_of_a_line(name: str, form: str) -> None:
    columns, channels, filters, taps, stride = RUNS[name]
    rng, x = np.random.default_rng(len(name)), "s8" if len(name) % 2 else "u8"
    given, attrs = epilogue(rng, STAGES[form], filters, 74 * 74 * (channels * taps) ** 0.5, x, False)
    given |= {"x": draw(rng, x, 1, 1, columns, channels), "w": draw(rng, "s8", filters, channels, 1, taps)}
    attrs |= {"strides": (stride, stride), "dilations": (1, 1), "pads": (0,) * 4, "group": 1, "zero_point": 0}
    harness.check(kernel("pulp_conv2d_line"), given, x if form == "requantised" else "s32", attrs, strided=name == "four columns")


LINES = {  # shape, taps, stride, dilation
    "eight channels": ((1, 1, 18, 8), 13, 1, 1),
    "three channels": ((2, 1, 9, 3), 4, 1, 1),
    "seven channels": ((1, 1, 12, 7), 5, 2, 1),
    "one output": ((2, 1, 5, 12), 5, 1, 1),
    "columns apart": ((2, 1, 17, 9), 3, 1, 3),
    "fewer outputs than columns between taps": ((1, 1, 14, 6), 3, 1, 6),
}


@pytest.mark.parametrize("name", LINES)
def test_depthwise_by_windows_of_a_line(name: str) -> None:
    shape, taps, stride, dilation = LINES[name]
    rng, x = np.random.default_rng(len(name)), "s8" if len(name) % 2 else "u8"
    given, attrs = epilogue(rng, STAGES["requantised"], shape[3], 36000, x, x == "s8")
    given |= {"x": draw(rng, x, *shape), "w": draw(rng, "s8", shape[3], 1, 1, taps)}
    attrs |= {"strides": (stride, stride), "dilations": (dilation,) * 2, "pads": (0,) * 4, "group": shape[3], "zero_point": 9}
    harness.check(kernel("pulp_depthwise_line"), given, x, attrs, strided=name == "one output")


SCALED = {"narrow": (514, 32768, 16), "clipped": (2**22 + 5, 2**19, 20), "high": (1192384022, 68543442544075 // 2**6, 31)}


@pytest.mark.parametrize("form", SCALED)
@pytest.mark.parametrize(("a", "b", "y"), [("s8", "s8", "u8"), ("u8", "s8", "s8")])
def test_add(a: str, b: str, y: str, form: str) -> None:
    rng = np.random.default_rng(3)
    mul, add, shift = SCALED[form]
    low, high = (-100, 127) if y == "s8" else (0, 255)
    given = {"a": draw(rng, a, 2, 5, 7), "b": draw(rng, b, 5, 1)}
    given |= {"mul": np.array([mul], np.int32), "add": np.array([add], np.int64)}
    harness.check(kernel("pulp_add"), given, y, staged({}, "requantise", shift=shift, low=low, high=high), strided=form == "narrow")


@pytest.mark.parametrize("form", ["narrow", "high"])
@pytest.mark.parametrize("zeros", [(0, 0), (-7, 100)])
@pytest.mark.parametrize(("a", "b", "y"), [("s8", "s8", "s8"), ("u8", "s8", "u8")])
def test_mul(a: str, b: str, y: str, zeros: tuple[int, int], form: str) -> None:
    rng = np.random.default_rng(3)
    mul, add, shift = SCALED[form]
    given = {"a": draw(rng, a, 2, 5, 7), "b": draw(rng, b, 5, 1) if form == "high" else draw(rng, b, 2, 5, 7)}
    given |= {"mul": np.array([mul >> 7], np.int32), "add": np.array([add], np.int64)}
    attrs = staged({"a_zero_point": zeros[0], "b_zero_point": zeros[1]}, "requantise", shift=shift, low=-128 if y == "s8" else 0, high=127)
    harness.check(kernel("pulp_mul"), given, y, attrs, strided=form == "narrow")


@pytest.mark.parametrize("form", SCALED)
@pytest.mark.parametrize(("x", "y"), [("s8", "u8"), ("u8", "s8")])
def test_requant_shift(x: str, y: str, form: str) -> None:
    mul, add, shift = SCALED[form]
    given = {"x": draw(np.random.default_rng(4), x, 3, 11), "mul": np.array([mul], np.int32), "add": np.array([add], np.int64)}
    low, high = (-128, 127) if y == "s8" else (3, 250)
    harness.check(kernel("pulp_requant_shift"), given, y, {"shift": shift, "low": low, "high": high}, ("mul", "add"))


# factors, shift, and the parity of the zero point where ties go to even
SUMS = [(131072, 257, 17, None), (1192384022, -497609111, 31, None), (70000, 2**31 - 1, 32, 0), (3, 5, 16, None)]


@pytest.mark.parametrize(("mul_a", "mul_b", "shift", "even"), SUMS)
@pytest.mark.parametrize(("a", "b", "y"), [("s8", "u8", "u8"), ("u8", "s8", "s8")])
def test_scaled_add(a: str, b: str, y: str, mul_a: int, mul_b: int, shift: int, even: int | None) -> None:
    rng = np.random.default_rng(5)
    low, high = (-128, 127) if y == "s8" else (0, 255)
    attrs = {"mul_a": mul_a, "mul_b": mul_b, "add": (7 << shift) + (1 << (shift - 1)), "shift": shift, "low": low, "high": high}
    attrs |= {} if even is None else {"even": even}
    harness.check(kernel("pulp_scaled_add"), {"a": draw(rng, a, 2, 5, 7), "b": draw(rng, b, 2, 5, 7)}, y, attrs, strided=shift == 17)


# of both operands: multiplier, summand, shift, limits
SAME, HALF, CLIPPED, WHOLE = (1, 0, 0, -128, 127), (1 << 15, 1 << 15, 16, -128, 127), (81369, 8192, 14, -128, 127), (-700, 900, 9, 0, 255)


@pytest.mark.parametrize(("scale_a", "scale_b"), [(SAME, HALF), (CLIPPED, SAME), (WHOLE, CLIPPED)])
@pytest.mark.parametrize(("a", "b", "y"), [("s8", "s8", "s8"), ("u8", "s8", "u8")])
def test_requant_add(a: str, b: str, y: str, scale_a: tuple[int, ...], scale_b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    given = {"a": draw(rng, a, 3, 5, 7), "b": draw(rng, b, 5, 7) if scale_a is SAME else draw(rng, b, 3, 5, 1)}
    given |= {"mul": np.array([30000], np.int32), "add": np.array([1 << 15], np.int32)}
    names = ("mul", "add", "shift", "low", "high")
    attrs = {f"{name}_{side}": value for side, scale in (("a", scale_a), ("b", scale_b)) for name, value in zip(names, scale, strict=True)}
    low, high = (-128, 127) if y == "s8" else (0, 255)
    attrs = staged(attrs, "requantise", shift=16, low=low, high=high)
    harness.check(kernel("pulp_requant_add"), given, y, attrs, strided=scale_a is WHOLE)


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize(("scale", "zero"), [(0.27040339, -5), (0.5, 0), (0.50000006, 0), (0.0039215689, -128), (1e-38, 3), (3.0, 127)])
def test_quantize(scale: float, zero: int, strided: bool) -> None:
    """Numbers around every middle between two steps, and what is no number."""
    middles = (np.arange(-150, 150) + 0.5).astype(np.float32) * np.float32(scale)
    x = np.concatenate([np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)] + [middles])
    x = np.concatenate([x, np.array([np.nan, np.inf, -np.inf, 0, 1e38, -1e-45], np.float32)]).astype(np.float32)
    given = {"x": x, "scale": np.array(scale, np.float32), "zero_point": np.array(zero, np.int32)}
    harness.check(kernel("pulp_quantize"), given, "s8", {"low": -128, "high": 127}, strided=strided)


@pytest.mark.parametrize("x", ["s8", "u8"])
def test_dequantize(x: str) -> None:
    given = {"x": draw(np.random.default_rng(7), x, 3, 7), "scale": np.array(0.1, np.float32), "zero_point": np.array(-5, np.int32)}
    harness.check(kernel("pulp_dequantize"), given, "f32", {}, strided=x == "u8")


# x shape, kernel, strides, dilations, pads
POOLS: dict[str, tuple[Any, ...]] = {
    "2x2": ((2, 6, 4, 8), (2, 2), (2, 2), (1, 1), (0, 0, 0, 0)),
    "padded, odd channels": ((1, 7, 5, 7), (3, 3), (2, 1), (1, 1), (1, 1, 1, 1)),
    "two channels, dilated": ((1, 7, 6, 2), (2, 3), (1, 1), (2, 2), (0, 2, 1, 0)),
    "global": ((1, 5, 3, 12), (5, 3), (1, 1), (1, 1), (0, 0, 0, 0)),
    "power of two": ((1, 8, 8, 5), (8, 8), (1, 1), (1, 1), (0, 0, 0, 0)),
}


def pooling(name: str, x: str) -> tuple[np.ndarray, dict[str, Any]]:
    shape, size, strides, dilations, pads = POOLS[name]
    return draw(np.random.default_rng(len(name)), x, *shape), {"kernel": size, "strides": strides, "dilations": dilations, "pads": pads}


@pytest.mark.parametrize("x", ["s8", "u8"])
@pytest.mark.parametrize("name", POOLS)
def test_max_pool(name: str, x: str) -> None:
    image, attrs = pooling(name, x)
    harness.check(kernel("pulp_maxpool2d"), {"x": image}, x, attrs, strided=name == "2x2")


@pytest.mark.parametrize(("x", "counts_padding"), [("s8", True), ("u8", False)])
@pytest.mark.parametrize("name", POOLS)
def test_average_pool(name: str, x: str, counts_padding: bool) -> None:
    image, attrs = pooling(name, x)
    attrs |= {"count_include_pad": counts_padding, "zero_point": -3 if x == "s8" else 100}
    given = {"x": image, "mul": np.array([70000], np.int32), "add": np.array([(5 << 32) + (1 << 31)], np.int64)}
    low, high = (-128, 127) if x == "s8" else (0, 255)
    attrs = staged(attrs, "requantise", shift=32, low=low, high=high)
    harness.check(kernel("pulp_average_pool2d"), given, x, attrs, strided=name == "2x2")


@pytest.mark.parametrize("name", POOLS)
def test_pools_of_floats(name: str) -> None:
    """Among numbers that are none, or infinite, or so small that rests of divisions are no normal ones."""
    image, attrs = pooling(name, "f32")
    image.ravel()[3::17] = np.resize(np.array([np.nan, np.inf, -0.0, 1e-40, -np.inf, 3e38], np.float32), image.ravel()[3::17].shape)
    if np.prod(attrs["kernel"]) >= 6:
        harness.check(kernel("pulp_maxpool2d_floats"), {"x": image}, "f32", attrs, strided=name == "global")
    for counts_padding in (True, False):
        further = {"count_include_pad": counts_padding, "zero_point": 0}
        harness.check(kernel("pulp_average_floats"), {"x": image}, "f32", attrs | further, strided=name == "2x2")


def test_every_kernel_has_a_rate_of_its_own() -> None:
    """Its figures are declared to be measured: an instance that no entry with words names still has one of its kernel."""
    target = load("siracusa")
    assert target.timing is not None and "default" not in target.timing.kernels
    seconds = [kernel.post_processing.kernel for kernel in target.kernels if kernel.post_processing is not None]
    whole = [part for kernel in target.kernels for part in ([phase.kernel for phase in kernel.phases] or [kernel])]  # joined ones: of parts
    rates = {kernel.name: target.timing.own(kernel.name, kernel.engine) for kernel in (*whole, *seconds)}
    assert [name for name, rate in rates.items() if rate is None] == []
    assert [name for name, rate in rates.items() if rate is not None and rate.is_estimate] == []


def test_products_cost_something() -> None:
    """A rate that was fitted to reductions of one length may not know what a product costs: plans would take long ones for nothing."""
    target = load("siracusa")
    assert target.timing is not None
    fixed = {"pulp_depthwise"}  # nine products for every result, always
    known = [k for k in target.kernels if k.engine == "cluster" and k.link is None and k.name not in fixed]
    reducing = {k.name: k.op for k in known if k.op in ("Conv", "ConvTranspose", "MatMul")}
    rates = {entry: rate for entry, rate in target.timing.kernels.items() if entry.split()[0] in reducing}

    def counts_products(entry: str, rate: Rate) -> bool:
        lengths = {"k"} if reducing[entry.split()[0]] == "MatMul" else {"c", "fw", "tw"}
        return rate.mac > 0 or rate.slots is not None or any(lengths & set(term.split()) for term, cycles in rate.per.items() if cycles > 0)

    assert len(rates) > 40
    assert [entry for entry, rate in rates.items() if not counts_products(entry, rate)] == []
