"""The operators that are measured: shapes of the published figures, of MLPerf Tiny's layers, and awkward ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from benchmarks.gvsoc.layer import Case

Form = Literal["narrow", "split", "high", "plain"]


def draw(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    """Uniform values over the whole type."""
    low, high = {"s8": (-128, 127), "u8": (0, 255)}[kind]
    return rng.integers(low, high, shape, endpoint=True).astype({"s8": np.int8, "u8": np.uint8}[kind])


def requantised(rng: np.random.Generator, form: Form, channels: int, size: float, y: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Operands and attributes that map accumulators of standard deviation ``size`` onto the range of ``y``.

    ``narrow`` has small multipliers, as the integer dialect does, ``split`` and ``high`` 31-bit ones, as a QDQ graph's scales give.
    Those of ``split`` have all steps below 2**18.
    """
    if form == "plain":
        return {}, {}
    low, high = {"s8": (-128, 127), "u8": (0, 255)}[y]
    factor = 60 / (min(size, 30_000) if form == "split" else size)
    bits = {"narrow": 9, "split": 30, "high": 30}[form]
    shift = int(bits - np.floor(np.log2(factor)))
    mul = np.round(factor * 2.0**shift * rng.uniform(0.5, 1, channels)).astype(np.int32)
    zero = (low + high + 1) // 2
    add = np.full(channels, (zero << shift) + (1 << (shift - 1)), np.int64)
    if shift < 22:
        add = add.astype(np.int32)
    return {"mul": mul, "add": add}, {"epilogue": ("requantise",), "shift": shift, "low": low, "high": high}


def matmul(m: int, k: int, n: int, form: Form = "narrow", a: str = "s8") -> Case:
    rng = np.random.default_rng(m * k + n)
    operands, attrs = requantised(rng, form, n, 74 * 74 * k**0.5 * (2 if a == "u8" else 1), "s8")
    y = "s8" if attrs else "s32"
    attrs |= {"trans_a": False, "trans_b": False, "a_zero_point": 0, "b_zero_point": 0}
    return Case(
        f"matmul {m}x{k}x{n} {a} {form}", "MatMul", ("a",), {"a": draw(rng, a, m, k), "b": draw(rng, "s8", k, n), **operands}, y, attrs
    )


def in_words(case: Case) -> Case:
    """A case with variables and results of 64 bits."""
    operands = {name: values.astype(np.int64) for name, values in case.operands.items()}
    return Case(f"{case.name} in 64 bits", case.op, case.variables, operands, "s64", case.attrs)


def attention(
    batch: int, m: int, k: int, n: int, is_transposed: bool, a: str = "s8", form: Form = "narrow", zeros: tuple[int, int] = (0, 0)
) -> Case:
    """A product of two variables, with the zero points of both."""
    rng = np.random.default_rng(m * k + n)
    operands, attrs = requantised(rng, form, 1, 74 * 74 * k**0.5 * (2 if a == "u8" else 1), "s8")
    y = "s8" if attrs else "s32"
    attrs |= {"trans_a": False, "trans_b": is_transposed, "a_zero_point": zeros[0], "b_zero_point": zeros[1]}
    operands = {"a": draw(rng, a, batch, m, k), "b": draw(rng, "s8", batch, *((n, k) if is_transposed else (k, n))), **operands}
    return Case(
        f"product {batch}x{m}x{k}x{n} {'rows' if is_transposed else 'columns'} {a}{' less zero points' if any(zeros) else ''}",
        "MatMul",
        ("a", "b"),
        operands,
        y,
        attrs,
    )


def conv(
    size: tuple[int, int, int],
    filters: int,
    taps: tuple[int, int] = (3, 3),
    stride: int = 1,
    pad: int = 1,
    form: Form = "narrow",
    x: str = "u8",
    group: int = 1,
) -> Case:
    height, width, channels = size
    rng = np.random.default_rng(height * width + channels)
    depth = taps[0] * taps[1] * channels // group
    operands, attrs = requantised(rng, form, filters, 74 * 74 * depth**0.5 * (2 if x == "u8" else 1), x)
    y = x if attrs else "s32"
    attrs |= {"strides": (stride, stride), "dilations": (1, 1), "pads": (pad,) * 4, "group": group, "zero_point": 0 if x == "u8" else -5}
    kind = "depthwise" if group > 1 else "conv"
    name = f"{kind} {taps[0]}x{taps[1]}/{stride} {height}x{width}x{channels} to {filters} {x} {form}"
    image = draw(rng, x, 1, height, width, channels)
    return Case(name, "Conv", ("x",), {"x": image, "w": draw(rng, "s8", filters, channels // group, *taps), **operands}, y, attrs)


def pointwise(size: tuple[int, int, int], filters: int, form: Form = "narrow", x: str = "u8") -> Case:
    return conv(size, filters, (1, 1), 1, 0, form, x)


def depthwise(size: tuple[int, int, int], stride: int = 1, form: Form = "narrow", x: str = "u8", taps: tuple[int, int] = (3, 3)) -> Case:
    return conv(size, size[2], taps, stride, 1, form, x, size[2])


def add(*shape: int) -> Case:
    rng = np.random.default_rng(7)
    operands = {"a": draw(rng, "s8", *shape), "b": draw(rng, "s8", *shape)}
    operands |= {"mul": np.array([300], np.int32), "add": np.array([1 << 15], np.int32)}
    return Case(f"add {shape}", "Add", ("a", "b"), operands, "u8", {"epilogue": ("requantise",), "shift": 9, "low": 0, "high": 255})


def mul(*shape: int, zero_point: int = 0) -> Case:
    rng = np.random.default_rng(14)
    operands = {"a": draw(rng, "s8", *shape), "b": draw(rng, "u8", *shape)}
    operands |= {"mul": np.array([300], np.int32), "add": np.array([1 << 15], np.int32)}
    attrs: dict[str, Any] = {"a_zero_point": zero_point, "b_zero_point": 2 * zero_point}
    return Case(
        f"mul {shape}", "Mul", ("a", "b"), operands, "s8", attrs | {"epilogue": ("requantise",), "shift": 16, "low": -128, "high": 127}
    )


def by_one_factor(case: Case) -> Case:
    """The case with the requantisation of its first channel for all."""
    operands = {name: np.full_like(array, array[0]) if name in ("mul", "add") else array for name, array in case.operands.items()}
    return replace(case, name=f"{case.name} by one factor", operands=operands)


def by_table(case: Case) -> Case:
    """The case with a table of its results as the last stage."""
    low, high = case.attrs["low"], case.attrs["high"]
    table = draw(np.random.default_rng(10), case.y, high - low + 1)
    attrs = {**case.attrs, "epilogue": (*case.attrs["epilogue"], "lookup")}
    return replace(case, name=f"{case.name} by a table", operands={**case.operands, "table": table}, attrs=attrs)


def requant_shift(*shape: int) -> Case:
    operands = {"x": draw(np.random.default_rng(8), "u8", *shape), "mul": np.array([257], np.int32), "add": np.array([1 << 7], np.int32)}
    return Case(f"requantisation {shape}", "RequantShift", ("x",), operands, "s8", {"shift": 9, "low": -128, "high": 127})


def requant_add(*shape: int) -> Case:
    """A sum whose first operand is halved, with a second one that is scaled and clipped."""
    rng = np.random.default_rng(9)
    operands = {"a": draw(rng, "u8", *shape), "b": draw(rng, "s8", *shape)}
    operands |= {"mul": np.array([300], np.int32), "add": np.array([1 << 7], np.int32)}
    attrs: dict[str, Any] = {"epilogue": ("requantise",), "shift": 8, "low": 0, "high": 255}
    attrs |= {"mul_a": 1 << 15, "add_a": 1 << 15, "shift_a": 16, "low_a": -128, "high_a": 127}
    attrs |= {"mul_b": 20000, "add_b": 1 << 13, "shift_b": 14, "low_b": -128, "high_b": 127}
    return Case(f"requantised sum {shape}", "RequantAdd", ("a", "b"), operands, "u8", attrs)


def scaled_add(*shape: int, shift: int = 30, even: bool = True) -> Case:
    """A sum by two factors, as the scales of a residual connection give."""
    rng = np.random.default_rng(10)
    attrs = {"mul_a": 809901792, "mul_b": 2058554940, "add": -49703092704, "shift": shift, "low": -128, "high": 127}
    attrs |= {"even": 0} if even else {}
    return Case(f"scaled sum {shape}", "ScaledAdd", ("a", "b"), {"a": draw(rng, "s8", *shape), "b": draw(rng, "s8", *shape)}, "s8", attrs)


def quantize(count: int) -> Case:
    """Numbers all over the range and beyond, middles between two steps, and what is no number."""
    rng, scale = np.random.default_rng(11), np.float32(0.27040339)
    x = (rng.normal(0, 30, count)).astype(np.float32)
    x[:8] = np.array([np.nan, np.inf, -np.inf, 0, 1e38, 2.5 * scale, 0.5 * scale, -3.5 * scale], np.float32)
    operands = {"x": x, "scale": np.array(scale, np.float32), "zero_point": np.array(-5, np.int32)}
    return Case(f"quantisation {count}", "Quantize", ("x",), operands, "s8", {"low": -128, "high": 127})


def dequantize(count: int) -> Case:
    operands = {"x": draw(np.random.default_rng(12), "s8", count), "scale": np.array(0.1, np.float32), "zero_point": np.array(-5, np.int32)}
    return Case(f"dequantisation {count}", "Dequantize", ("x",), operands, "f32")


def pool(op: Literal["MaxPool", "AveragePool"], size: tuple[int, int, int], taps: int, x: str = "s8", stride: int = 0) -> Case:
    """Square windows, side by side unless ``stride`` says otherwise."""
    image = draw(np.random.default_rng(13), x, 1, *size)
    attrs: dict[str, Any] = {"kernel": (taps, taps), "strides": (stride or taps,) * 2, "dilations": (1, 1), "pads": (0,) * 4}
    operands = {"x": image}
    if op == "AveragePool" and x == "f32":
        attrs |= {"count_include_pad": False, "zero_point": 0}
    elif op == "AveragePool":
        operands |= {"mul": np.array([1 << 14], np.int32), "add": np.array([1 << 29], np.int32)}
        attrs |= {"count_include_pad": False, "zero_point": 3, "epilogue": ("requantise",), "shift": 30, "low": -128, "high": 127}
    return Case(f"{op} {taps}x{taps} {size} {x}", op, ("x",), operands, x, attrs)


CASES: tuple[Case, ...] = (
    matmul(64, 256, 64),
    matmul(64, 256, 64, "split"),
    matmul(64, 256, 64, "plain"),
    matmul(1, 640, 128, "split"),
    matmul(1, 128, 128, "split"),
    matmul(13, 61, 17),
    attention(1, 64, 192, 64, False),
    attention(1, 64, 64, 192, True),
    attention(16, 1, 65, 4, False),
    attention(16, 1, 4, 65, True),
    attention(3, 13, 17, 11, False, "u8"),
    conv((32, 32, 16), 32),
    conv((32, 32, 16), 32, form="split"),
    conv((16, 16, 32), 32),
    conv((8, 8, 64), 64),
    conv((32, 32, 3), 16),
    conv((25, 5, 1), 64, (10, 4), 2, 4, "split", "s8"),
    conv((17, 13, 7), 11),
    pointwise((25, 5, 64), 64, "split", "s8"),
    pointwise((20, 5, 64), 64),
    add(32, 32, 16),
    add(7, 11, 13),
    requant_shift(32, 32, 16),
    requant_add(32, 32, 16),
    scaled_add(32, 32, 16),
    pool("MaxPool", (32, 32, 16), 2),
    pool("MaxPool", (8, 8, 64), 8),
    pool("AveragePool", (8, 8, 64), 8),
    pool("AveragePool", (25, 5, 64), 5),
    quantize(3072),
    dequantize(640),
    depthwise((32, 32, 32)),
    depthwise((25, 5, 64), 1, "split", "s8"),
    depthwise((24, 24, 64), 2, "split", "s8"),
)
