"""Kernels along rows, functions of two tensors, choices: their C against references, and the references against plain NumPy."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from deeploy.api import compile as compile_model
from deeploy.ir.kernel import Kernel
from deeploy.ir.types import DType
from deeploy.operators.norms import reciprocal_root
from deeploy.operators.rows import curve_of
from deeploy.options import Options
from deeploy.target import load
from tests.operators.harness import check

KERNELS = load("generic").kernels
RANDOM = np.random.default_rng(5)
SHAPES = [(1,), (70,), (3, 65), (2, 3, 4, 16), (2, 1, 3, 2, 3, 5)]


def kernel(name: str) -> Kernel:
    return next(k for k in KERNELS if k.name == name)


def draw(dtype: str, *shape: int) -> np.ndarray:
    if dtype == "f32":
        return RANDOM.normal(scale=3, size=shape).astype(np.float32)
    low, high = DType(dtype).range
    return RANDOM.integers(max(low, -(2**31)), min(high, 2**31 - 1), shape, endpoint=True).astype(DType(dtype).numpy)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["s8", "u8"])
def test_softmaxes_follow_strides(shape: tuple[int, ...], dtype: str) -> None:
    x = draw(dtype, *shape)
    table = np.rint(np.exp(-np.arange(256) / 30) * 2**20).astype(np.uint32)
    attrs: dict[str, Any] = {"levels": 255, "zero_point": 0, "low": 0, "high": 255}
    got = check(kernel("table_softmax"), {"x": x, "table": table}, "u8", attrs, strided=True)[0]
    e = np.exp((x.astype(np.float64) - x.max(axis=-1, keepdims=True)) / 30)
    assert np.abs(got - e / e.sum(axis=-1, keepdims=True) * 255).max() <= 0.501
    check(kernel("table_softmax"), {"x": x, "table": table}, "u8", {**attrs, "rounded": False}, strided=True)
    results = draw("s8", 256)
    check(kernel("table_softmax"), {"x": x, "table": table, "results": results}, "s8", {**attrs, "smallest": 0}, strided=True)
    check(kernel("shift_softmax"), {"x": x}, "u8", {"group": min(8, shape[-1]), "numerator": 127 * 256}, strided=True)


def test_ties_of_a_softmax_go_to_the_even_step() -> None:
    table = np.full(256, 1, np.uint32)
    attrs = {"levels": 255, "zero_point": -128, "low": -128, "high": 127}
    for count, steps in ((2, 128), (6, 42), (10, 26), (34, 8)):  # 127.5, 42.5, 25.5, 7.5
        got = check(kernel("table_softmax"), {"x": np.zeros((1, count), np.int8), "table": table}, "s8", attrs)[0]
        assert (got == steps - 128).all()


@pytest.mark.share(0.25)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["s8", "u8", "s16"])
def test_integer_norms_follow_strides(shape: tuple[int, ...], dtype: str) -> None:
    x, n = draw(dtype, *shape), shape[-1]
    for bits in (7, 22):
        w, b = (RANDOM.integers(-(2**bits), 2**bits, n).astype(np.int32) for _ in range(2))
        check(
            kernel("integer_layer_norm"), {"x": x, "weight": w, "bias": b}, "s8", {"shift": 3}, constants=("weight", "bias"), strided=True
        )
        check(kernel("integer_rms_norm"), {"x": x, "weight": w}, "s8", {"shift": 3}, constants=("weight",), strided=True)
        check(kernel("integer_rms_norm"), {"x": x, "weight": w}, "s8", {"shift": 3}, strided=True)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 40_000)])
@pytest.mark.parametrize("centred", [True, False])
def test_standardise(shape: tuple[int, ...], centred: bool) -> None:
    x, n = draw("u8", *shape), shape[-1]
    x.reshape(-1, n)[0] = 9  # a row without deviation
    epsilon = 0.3 * n * (n if centred else 1)
    attrs = {"centred": centred, "zero_point": 9, "fraction": 20, "epsilon": round(epsilon * 2**16)}
    got = check(kernel("standardise"), {"x": x}, "s32", attrs, strided=True)[0]
    d = x.astype(np.float64) - (x.mean(axis=-1, keepdims=True, dtype=np.float64) if centred else 9)
    want = d / np.sqrt((d * d).mean(axis=-1, keepdims=True) + 0.3) / (1 if centred else math.sqrt(n))
    np.testing.assert_allclose(got / 2**20, want, atol=2**-20)
    mul, add = RANDOM.integers(-(2**25), 2**25, n).astype(np.int32), RANDOM.integers(-(2**40), 2**40, n)
    stage = {"epilogue": ("requantise",), "shift": 40, "low": -128, "high": 127}
    check(kernel("standardise"), {"x": x, "mul": mul, "add": add}, "s8", {**attrs, **stage}, strided=True)


def test_reciprocal_roots_are_precise() -> None:
    for value in [1 << 16, (1 << 16) + 1, 12345678, 2**31 - 1, 2**31, 2**32, 2**47 + 3, 2**62 - 1]:
        factor, shift = reciprocal_root(value, 20)
        assert factor / 2.0**shift == pytest.approx(2**20 / math.sqrt(value / 2**16), rel=3e-9)
        assert shift >= 1 and 2**30 <= factor <= 2**31


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("centred", [True, False])
def test_normalise(shape: tuple[int, ...], centred: bool) -> None:
    x, w, b = draw("f32", *shape), draw("f32", shape[-1]), draw("f32", shape[-1])
    attrs = {"centred": centred, "epsilon": 1e-5}
    check(kernel("normalise"), {"x": x, "scale": w, "offset": b}, "f32", attrs, strided=True, rtol=1e-4, atol=1e-4)
    check(kernel("normalise"), {"x": x, "scale": w}, "f32", attrs, strided=True, rtol=1e-4, atol=1e-4)


@pytest.mark.share(0.25)
@pytest.mark.parametrize(("a", "b"), [((7,), (7,)), ((4, 1, 6), (3, 1)), ((2, 1, 3, 2), (5, 1, 2)), ((3, 4), (1,))])
@pytest.mark.parametrize("dtype", ["f32", "s8", "u8", "s64"])
def test_functions_of_two_tensors(a: tuple[int, ...], b: tuple[int, ...], dtype: str) -> None:
    x, y = draw(dtype, *a), draw(dtype, *b)
    x.flat[0] = y.flat[0]
    functions: dict[str, Any] = {
        "max": np.maximum,
        "min": np.minimum,
        "equal": np.equal,
        "not_equal": np.not_equal,
        "less": np.less,
        "less_or_equal": np.less_equal,
        "greater": np.greater,
        "greater_or_equal": np.greater_equal,
    }
    if dtype == "s64":
        functions |= {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": lambda p, q: np.trunc(p / q).astype(np.int64)}
    for name, function in functions.items():
        result = dtype if name in ("max", "min", "add", "sub", "mul", "div") else "bool"
        got = check(kernel("pairwise"), {"a": x, "b": y}, result, {"function": name}, strided=True)[0]
        assert np.array_equal(got, function(x, y)), name
    c = RANDOM.integers(0, 2, b).astype(bool)
    got = check(kernel("select"), {"condition": c, "a": x, "b": y}, dtype, {}, strided=True)[0]
    assert np.array_equal(got, np.where(c, x, y))


def test_a_nan_is_the_larger_and_the_smaller() -> None:
    a, b = np.array([np.nan, 1, np.nan], np.float32), np.array([1, np.nan, np.nan], np.float32)
    for name in ("max", "min"):
        assert np.isnan(check(kernel("pairwise"), {"a": a, "b": b}, "f32", {"function": name})[0]).all()


def test_divisors_of_zero_and_the_smallest_integer() -> None:
    smallest = -(2**63)
    a, b = np.array([5, smallest, -7, -7, 7], np.int64), np.array([0, -1, 2, -2, -2], np.int64)
    got = check(kernel("pairwise"), {"a": a, "b": b}, "s64", {"function": "div"})[0]
    assert got.tolist() == [0, smallest, -3, 3, -3]


@pytest.mark.parametrize("dtype", ["s8", "u8", "u32", "s64"])
def test_functions_of_bits(dtype: str) -> None:
    values = DType(dtype).numpy
    bits, least = 8 * np.dtype(values).itemsize, int(np.iinfo(values).min)
    a = np.array([0, 1, 5, 100, 127, np.iinfo(values).max, least, least + 3 if least else 7], values)[:, None]
    b = np.array([0, 1, 3, bits - 1, bits, 100, *([-1, -3, least] if least else [])], values)
    p, q = a.astype(object), b.astype(object)
    inside = (q >= 0) & (q < bits)
    expected = {
        "bit_and": p & q,
        "bit_or": p | q,
        "bit_xor": p ^ q,
        "shift_left": np.where(inside, p << np.where(inside, q, 0), 0),
        "shift_right": np.where(inside, p >> np.where(inside, q, 0), np.where(p < 0, -1, 0)),
        "mod": np.where(q == 0, 0, p % np.where(q == 0, 1, q)),
        "fmod": np.where(q == 0, 0, abs(p) % abs(np.where(q == 0, 1, q)) * np.where(p < 0, -1, 1)),
        "div": np.where(q == 0, 0, abs(p) // abs(np.where(q == 0, 1, q)) * np.where((p < 0) != (q < 0), -1, 1)),
    }
    for name, exact in expected.items():
        (got,) = check(kernel("pairwise"), {"a": a, "b": b}, dtype, {"function": name}, strided=True)
        wrapped = ((exact - least) % 2**bits + least).astype(values)
        assert np.array_equal(got, wrapped), name


def test_remainders_of_floats() -> None:
    a, b = np.array([5.5, -5.5, 5.5, -5.5, 4, 3, -3], np.float32), np.array([2, 2, -2, -2, -2, np.inf, np.inf], np.float32)
    (modulo,) = check(kernel("pairwise"), {"a": a, "b": b}, "f32", {"function": "mod"})
    (remainder,) = check(kernel("pairwise"), {"a": a, "b": b}, "f32", {"function": "fmod"})
    assert modulo.tolist() == [1.5, 0.5, -0.5, -1.5, 0, 3, np.inf]
    assert remainder.tolist() == [1.5, -1.5, 1.5, -1.5, 0, 3, -3]


@pytest.mark.parametrize("dtype", ["s8", "s16", "s32"])
def test_integer_functions(dtype: str) -> None:
    x = draw(dtype, 3, 50)
    for attrs in ({"function": "gelu", "a": -83, "b": 6889, "c": 0}, {"function": "hard_swish", "a": 122, "b": 245, "c": 42}):
        check(kernel("integer_function"), {"x": x}, "s32", attrs, strided=True)
    if dtype == "s16":
        every = np.arange(-(2**15), 2**15).astype(np.int16).reshape(64, 1024)
        for function, whole in product(("logistic", "tanh"), range(7)):
            (y,) = check(kernel("integer_function"), {"x": every}, "s32", {"function": function, "a": whole, "b": 0, "c": 0})
            real = every / 2.0 ** (15 - whole)
            wanted = np.tanh(real) if function == "tanh" else 1 / (1 + np.exp(-real))
            assert np.abs(y / 2.0**15 - wanted).max() < 13 / 2**15
    b = draw("u8", 50)
    attrs = {"factor": 255 * 17, "scale": 17, "offset": -17 * 9}
    b[3] = 9  # a divisor of zero
    x[0, :2] = (0, 1)
    check(kernel("integer_div"), {"a": x, "b": b}, "s32", attrs, strided=True)


@pytest.mark.parametrize(("a", "b"), [((7,), (7,)), ((4, 1, 70), (3, 1)), ((2, 1, 3, 2), (5, 1, 2)), ((3, 4), (1,))])
@pytest.mark.parametrize("types", [("s8", "u8"), ("s32", "s16")])
def test_sums_of_requantised_operands(a: tuple[int, ...], b: tuple[int, ...], types: tuple[str, str]) -> None:
    x, y = draw(types[0], *a), draw(types[1], *b)
    first = {"mul_a": 77 if types[0] == "s8" else 3, "add_a": -900, "shift_a": 6, "low_a": -90, "high_a": 100}
    second = {"mul_b": -(2**30), "add_b": 2**40, "shift_b": 33, "low_b": -128, "high_b": 127} if types[1] == "u8" else {}
    second = second or {"mul_b": 1, "add_b": 0, "shift_b": 0, "low_b": -(2**15), "high_b": 2**15 - 1}
    narrow = {**first, "mul_b": 9, "add_b": 4, "shift_b": 3, "low_b": 0, "high_b": 127}
    for attrs in ({**first, **second}, narrow):
        got = check(kernel("requant_add"), {"a": x, "b": y}, "s32", attrs, strided=True)[0]
        p, q = (
            np.clip(
                (v.astype(np.int64) * attrs[f"mul_{n}"] + attrs[f"add_{n}"]) >> attrs[f"shift_{n}"], attrs[f"low_{n}"], attrs[f"high_{n}"]
            )
            for n, v in (("a", x), ("b", y))
        )
        assert np.array_equal(got, p + q)
    stage = {"epilogue": ("requantise",), "shift": 9, "low": -128, "high": 127}
    constants = {"mul": np.array([300], np.int32), "add": np.array([256], np.int32)}
    check(kernel("requant_add"), {"a": x, "b": y, **constants}, "s8", {**narrow, **stage}, strided=True)


@pytest.mark.parametrize(("b", "c", "period"), [(85, 3770, 63), (345, 62395, 255), (1, 1, 8), (255, 65025, 256), (20, 0, 17)])
def test_tables_of_integer_softmaxes_are_curves(b: int, c: int, period: int) -> None:
    """Four numbers say the table of ((b - r)^2 + c) >> z, and the kernel that computes entries from them agrees with the table."""
    distances = np.arange(256)
    table = (((b - distances % period) ** 2 + c) >> distances // period).astype(np.uint32)
    curve = curve_of(table)
    assert curve is not None and len(curve) == 4
    attrs = {"levels": 255, "zero_point": 0, "low": 0, "high": 255, "rounded": False}
    check(kernel("curve_softmax"), {"x": draw("s8", 3, 40), "table": table}, "u8", attrs, strided=True)
    table[200] += 1
    assert curve_of(table) is None


def test_an_integer_softmax_fits_where_its_table_does_not(tmp_path: Path) -> None:
    """One row, its results and a curve: the program in the emitted memory agrees with the interpreter."""
    x = np.random.default_rng(3).integers(-128, 128, (2, 100)).astype(np.int8)
    coefficients = {"coeffA": 1.0, "coeffB": 85.0, "coeffC": 3770.0, "log2": 63.0, "n_levels": 256.0}
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, x.shape) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("iSoftmax", ["x"], ["y"], **coefficients)], "softmax", ends[:1], ends[1:])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.onnx")
    options = Options(memory={"l1": 300})
    compiled = compile_model(tmp_path / "model.onnx", "siracusa", dialect="integer", input_types={"x": "int8"}, **options.given())
    (call,) = compiled.plan.program.calls
    assert call.kernel.name == "curve_softmax"
    (wanted,) = compiled.interpret([x])
    np.testing.assert_array_equal(compiled.run([x])[0], wanted)
