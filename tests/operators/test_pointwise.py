"""Elementwise kernels and data movement: their C against references, and the references against plain NumPy or onnxruntime."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from deeploy.ir.kernel import Kernel
from deeploy.ir.types import DType
from deeploy.operators import exponentials
from deeploy.operators.elementwise import FUNCTIONS, is_exact
from deeploy.target import load
from tests.operators.harness import check

KERNELS = load("generic").kernels
SHAPES = [
    ((7,), (7,)),
    ((2, 3, 5), (2, 3, 5)),
    ((2, 3, 5), (1,)),
    ((4, 1, 6), (3, 1)),
    ((1, 5), (4, 1)),
    ((2, 1, 3, 2), (5, 1, 2)),
    ((8, 1), (8, 1)),
    ((3, 4, 1, 1), (4, 1, 1)),
]


def kernel(op: str, **operand_types: str) -> Kernel:
    """The first declaration of ``op`` that takes these element types."""
    found = [k for k in KERNELS if k.op == op and not k.packs and all(DType(t) in k.types.get(n, ()) for n, t in operand_types.items())]
    return found[0]


def draw(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(len(shape) + sum(shape))
    if dtype == "f32":
        return rng.normal(scale=3, size=shape).astype(np.float32)
    low, high = DType(dtype).range
    return rng.integers(max(low, -2000), min(high, 2000) + 1, shape).astype(DType(dtype).numpy)


@pytest.mark.share(0.25)
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize(("op", "function"), [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)])
def test_arithmetic_broadcasts_as_numpy(op: str, function: Any, a: tuple[int, ...], b: tuple[int, ...], strided: bool) -> None:
    zeros = {"a_zero_point": 3, "b_zero_point": -5} if op == "Mul" else {}
    x, y = draw("s8", *a), draw("u8", *b)
    got = check(kernel(op, a="s8", b="u8", y="s32"), {"a": x, "b": y}, "s32", zeros, strided=strided)
    wide = (x.astype(np.int64) - zeros.get("a_zero_point", 0), y.astype(np.int64) - zeros.get("b_zero_point", 0))
    assert np.array_equal(got[0], function(*wide))
    floats = check(kernel(op, a="f32", b="f32"), {"a": draw("f32", *a), "b": draw("f32", *b)}, "f32", {}, strided=strided)
    np.testing.assert_array_equal(floats[0], function(draw("f32", *a), draw("f32", *b)))


@pytest.mark.parametrize("channels", [1, 6])
def test_an_epilogue_follows_the_last_axis(channels: int) -> None:
    x, y = draw("s8", 3, 4, 6), draw("s8", 3, 1, 6)
    mul, add = np.arange(1, channels + 1, dtype=np.int32) * 9, np.arange(channels, dtype=np.int32) * 40 + 32
    attrs = {"epilogue": ("requantise",), "shift": 6, "low": -100, "high": 90}
    got = check(kernel("Add", a="s8", b="s8", y="s8"), {"a": x, "b": y, "mul": mul, "add": add}, "s8", attrs)
    assert np.array_equal(got[0], np.clip(((x.astype(np.int64) + y) * mul + add) >> 6, -100, 90))


@pytest.mark.parametrize("even", [None, 0, 1])
def test_ties_go_up_or_to_the_even_multiple_of_the_scale(even: int | None) -> None:
    x = np.arange(-128, 128).astype(np.int8)
    attrs: dict[str, Any] = {"epilogue": ("requantise",), "shift": 1, "low": -128, "high": 127}
    if even is not None:
        attrs["even"] = even
    zero = 0 if even is None else even
    constants = {"mul": np.array([1], np.int32), "add": np.array([1 + 2 * zero], np.int32)}
    got = check(kernel("Add", a="s8", b="s8", y="s8"), {"a": x, "b": np.zeros(1, np.int8), **constants}, "s8", attrs)
    half = x.astype(np.float64) / 2
    expected = (np.floor(half + 0.5) if even is None else np.rint(half)) + zero
    assert np.array_equal(got[0], np.clip(expected, -128, 127))


@pytest.mark.parametrize(("even", "form"), [(None, "sum"), (None, "add"), (0, "add"), (1, "add")])
def test_scaled_add(even: int | None, form: str) -> None:
    a, b = draw("s8", 5, 6, 7), draw("u8", 6, 1)
    attrs: dict[str, Any] = {"mul_a": 1 << 29, "mul_b": -(3 << 28), "add": (1 << 29) + (7 << 30), "shift": 30, "low": -128, "high": 127}
    if even is not None:
        attrs["even"] = even
    found = next(k for k in KERNELS if k.name == f"scaled_{form}")  # in 32 bits, where no factors of fewer bits have ties; or in 64
    got = check(found, {"a": a, "b": b}, "s8", attrs, strided=True)
    real = a.astype(np.float64) / 2 - b.astype(np.float64) * 0.75
    steps = np.floor(real + 0.5) if even is None else np.rint(real) if even == 1 else np.rint(real + 1) - 1
    assert np.array_equal(got[0], np.clip(steps + 7, -128, 127))


def test_scaled_div() -> None:
    a, b = draw("s8", 4, 9), draw("s8", 1, 9)
    attrs = {"a_zero_point": 1, "b_zero_point": -2, "mul": 3 << 20, "shift": 20, "zero_point": 4, "low": -128, "high": 127}
    b[0, 0] = -2
    got = check(kernel("ScaledDiv", a="s8", b="s8"), {"a": a, "b": b}, "s8", attrs)
    n, d = (a.astype(np.int64) - 1) * 3, np.broadcast_to(b.astype(np.int64) + 2, a.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.where(d == 0, np.where(n > 0, 127, -128), np.floor(n / d + 0.5) + 4)
    assert np.array_equal(got[0], np.clip(expected, -128, 127))


@pytest.mark.parametrize("shape", [(1,), (6,), (4, 1), (1, 4, 1), (3, 1, 1)])
@pytest.mark.parametrize("wide", [False, True])
def test_requant_shift_broadcasts_its_constants(shape: tuple[int, ...], wide: bool) -> None:
    x = draw("s32", 3, 4, 6)
    mul, add = draw("s16", *shape).astype(np.int32), draw("s32", *shape).astype(np.int64) * (2**21 if wide else 1)
    attrs = {"shift": 12, "low": -128, "high": 127}
    operands = {"x": x, "mul": mul, "add": add if wide else add.astype(np.int32)}
    got = check(kernel("RequantShift", x="s32"), operands, "s8", attrs, strided=True)
    assert np.array_equal(got[0], np.clip((x.astype(np.int64) * mul + add) >> 12, -128, 127))


@pytest.mark.parametrize(("x", "y"), [("s8", "s8"), ("u8", "s8"), ("s8", "f32"), ("u8", "s32")])
def test_lookup(x: str, y: str) -> None:
    table, values = draw(y, 256), draw(x, 3, 50)
    got = check(kernel("Lookup", x=x), {"x": values, "table": table}, y, {}, strided=True)
    assert np.array_equal(got[0], table[values.astype(int) - DType(x).range[0]])


@pytest.mark.parametrize("y", ["s8", "u8", "s16"])
def test_quantize_rounds_half_to_even_and_saturates(y: str) -> None:
    low, high = DType(y).range
    x = np.array([0.25, 0.75, -0.25, -1.25, 1e9, -1e9, np.inf, -np.inf, np.nan, 3.1], np.float32)
    operands = {"x": x, "scale": np.array([0.5], np.float32), "zero_point": np.array([3], np.int32)}
    got = check(kernel("Quantize"), operands, y, {"low": low, "high": high}, constants=("scale", "zero_point"))
    expected = [0 + 3, 2 + 3, 0 + 3, -2 + 3, high, low, high, low, low, 6 + 3]
    assert got[0].tolist() == [max(low, v) for v in expected]


def test_dequantize_per_channel() -> None:
    x, scale, zero = draw("s8", 2, 3, 4), np.array([0.5, 2, 3], np.float32)[:, None], np.array([1, -2, 0], np.int32)[:, None]
    got = check(kernel("Dequantize"), {"x": x, "scale": scale, "zero_point": zero}, "f32", {}, constants=("scale", "zero_point"))
    assert np.array_equal(got[0], (x.astype(np.float32) - zero.astype(np.float32)) * scale)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_agree_with_their_references(name: str) -> None:
    x = np.linspace(-5, 5, 101, dtype=np.float32)
    if name in ("log", "sqrt", "pow"):
        x = np.abs(x) + np.float32(0.01)
    elif name in ("asin", "acos", "atanh"):
        x /= np.float32(5.1)
    elif name == "acosh":
        x = np.abs(x) + np.float32(1)
    alpha, beta = {"hard_sigmoid": (0.2, 0.5), "selu": (1.67, 1.05), "pow": (1.5, 0.0)}.get(name, (0.3, 0.0))
    attrs = {"function": name, "alpha": alpha, "beta": beta}
    rtol, atol = (0, 0) if is_exact(name) else (2e-5, 2e-6)
    got = check(kernel("Unary"), {"x": x}, "f32", attrs, rtol=rtol, atol=atol)
    assert got[0].dtype == np.float32 and np.isfinite(got[0][np.abs(x) > 0]).all()


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf"])
def test_exponentials_are_the_projects_own_to_the_last_bit(name: str) -> None:
    """Of floats of any size, infinite ones, those that are not normal and what is no number."""
    rng = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        x = np.concatenate([rng.integers(0, 2**32, 3000, np.uint32).view(np.float32), rng.normal(0, 3, 3000), rng.uniform(-110, 95, 3000)])
        x = np.concatenate([x, [0, -0.0, np.inf, -np.inf, np.nan, 89, -104, 1e-45, 1.17e-38]]).astype(np.float32)
        (got,) = check(kernel("Unary"), {"x": x}, "f32", {"function": name, "alpha": 0.0, "beta": 0.0}, rtol=0, atol=0)
        wanted = np.vectorize(math.erf)(x.astype(float)) if name == "erf" else getattr(np, name)(x.astype(float))
        np.testing.assert_array_max_ulp(got, wanted.astype(np.float32), 2)


def test_differences_of_exponentials_are_close() -> None:
    x = np.random.default_rng(6).uniform(-3, 3, 3000).astype(np.float32)
    np.testing.assert_array_max_ulp(exponentials.expm1(x), np.expm1(x.astype(float)).astype(np.float32), 4)
    np.testing.assert_array_max_ulp(exponentials.log1p(np.abs(x) / 3), np.log1p((np.abs(x) / 3).astype(float)).astype(np.float32), 2)


def test_some_functions_have_known_values() -> None:
    x = np.array([-2.0, 0.5, 3.0], np.float32)
    known = {"gelu": [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x], "hard_swish": [-1 / 3, 0.5 * (0.5 / 6 + 0.5), 3.0]}
    for name, values in known.items():
        got = check(kernel("Unary"), {"x": x}, "f32", {"function": name, "alpha": 0.0, "beta": 0.0}, rtol=2e-5)
        np.testing.assert_allclose(got[0], values, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "low", "high"), [("s8", -5, None), ("u8", 10, 200), ("s32", None, 70), ("f32", 0, None), ("f32", -1, 6)])
def test_clip(dtype: str, low: float | None, high: float | None) -> None:
    x = draw(dtype, 4, 33)
    got = check(kernel("Clip", x=dtype), {"x": x}, dtype, {"low": low, "high": high}, strided=True)
    assert np.array_equal(got[0], np.clip(x, low, high))


@pytest.mark.parametrize(("x", "y"), [("f32", "s32"), ("s8", "f32"), ("s64", "s8"), ("u8", "u8")])
def test_copy_and_cast(x: str, y: str) -> None:
    values = np.abs(draw(x, 3, 4, 5)) % 100
    got = check(kernel("Cast"), {"x": values.astype(DType(x).numpy)}, y, {}, strided=True)
    assert np.array_equal(got[0], values.astype(DType(x).numpy).astype(DType(y).numpy))


@pytest.mark.parametrize("columns", [1, 10, 129])
def test_softmax(columns: int) -> None:
    """Also of scores whose exponentials no float holds."""
    x = np.concatenate([draw("f32", 3, columns), 100 * draw("f32", 3, columns), draw("f32", 3, columns) - 500])
    got = check(kernel("Softmax", x="f32"), {"x": x}, "f32", {}, rtol=0, atol=0)
    e = np.exp((x - x.max(axis=1, keepdims=True)).astype(np.float64))
    np.testing.assert_allclose(got[0], e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode: str) -> None:
    x = draw("s8", 3, 4, 5)
    got = check(kernel("Pad"), {"x": x}, "s8", {"pads": (1, 0, 2, 0, 3, 1), "mode": mode, "value": 7}, strided=True)
    options = {"constant_values": 7} if mode == "constant" else {}
    assert np.array_equal(got[0], np.pad(x, ((1, 0), (0, 3), (2, 1)), mode=mode, **options))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_gather(axis: int, kind: type[np.generic]) -> None:
    x, indices = draw("s8", 3, 4, 5), np.array([[0, -1], [2, 1]], kind)
    got = check(kernel("Gather"), {"x": x, "indices": indices}, "s8", {"axis": axis})
    assert np.array_equal(got[0], np.take(x, indices.astype(int), axis=axis))
