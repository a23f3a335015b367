"""The sweeps that kernels are calibrated with: per family of kernels, operators of many shapes, and what cycles are counted by.

Shapes are chosen for what they vary: depth, rows, widths, remainders of the steps that a kernel takes. No network's layers as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cases
import numpy as np
from layer import Case

RNG = np.random.default_rng(17)


@dataclass(frozen=True)
class Family:
    """A kernel whose entries of ``timing.toml`` are fitted together.

    Attributes:
        kernel: the beginning of its name, and words that all entries share.
        variants: cases by the further words of the entry. Entries differ in ``output`` only.
        terms: what cycles are counted by beside calls, multiply-accumulates and outputs (``Rate.per``).
    """

    kernel: str
    variants: Mapping[str, Sequence[Case]]
    terms: tuple[str, ...] = ()


def draw(dtype: str, *shape: int) -> np.ndarray:
    """Uniform values over the whole type, normal ones of floats."""
    if dtype == "f32":
        return RNG.normal(scale=3, size=shape).astype(np.float32)
    kind = np.dtype({"s8": "i1", "u8": "u1", "s16": "i2", "s32": "i4"}[dtype])
    info = np.iinfo(kind)
    return RNG.integers(max(info.min, -(2**15)), min(info.max, 2**15), shape, endpoint=True).astype(kind)


def stage(channels: int = 1, shift: int = 16) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A requantisation to int8 whose products fit into 32 bits."""
    operands = {"mul": np.full(channels, 37, np.int32), "add": np.full(channels, 1 << (shift - 1), np.int32)}
    return operands, {"epilogue": ("requantise",), "shift": shift, "low": -128, "high": 127}


def wide(case: Case) -> Case:
    """The case with a requantisation that only 64 bits hold: one channel's multiplier is negative."""
    operands = dict(case.operands)
    mul = operands["mul"].astype(np.int64) << 18
    operands["mul"] = np.where(np.arange(mul.size) == 0, -mul, mul).astype(np.int32)
    operands["add"] = operands["add"].astype(np.int64) << 18
    attrs = {**case.attrs, "shift": case.attrs["shift"] + 18}
    return Case(f"{case.name} in 64 bits", case.op, case.variables, operands, case.y, attrs)


# ---- products

MATMULS = (
    *((1, 64, 12), (1, 64, 64), (1, 64, 256), (1, 256, 64), (1, 128, 128), (1, 640, 64)),
    *(
        (2, 64, 64),
        (4, 64, 64),
        (16, 64, 64),
        (32, 64, 32),
        (32, 256, 32),
        (13, 60, 20),
        (16, 64, 3),
        (24, 32, 40),
        (40, 128, 32),
        (64, 16, 64),
    ),
)
POINTWISE = (
    *((16, 16, 16, 32), (8, 8, 32, 64), (12, 12, 64, 64), (6, 6, 128, 128), (24, 24, 16, 32), (3, 3, 256, 64), (24, 5, 64, 64)),
    *((10, 7, 32, 32), (9, 9, 24, 40), (4, 4, 32, 64)),
)
CONVOLUTIONS = (
    *((32, 32, 8, 16, 3, 1), (16, 16, 16, 16, 3, 1), (16, 16, 32, 32, 3, 1), (8, 8, 64, 32, 3, 1), (16, 16, 16, 32, 3, 2)),
    *((24, 10, 4, 64, 5, 1), (12, 12, 48, 24, 3, 1), (9, 9, 32, 40, 3, 1), (32, 8, 16, 32, 3, 1)),
)
RAGGED = (
    *(
        (32, 32, 3, 16, 3, 1),
        (24, 24, 3, 8, 3, 2),
        (16, 12, 5, 24, 3, 1),
        (16, 16, 1, 32, 5, 1),
        (40, 9, 1, 64, 7, 2),
        (17, 13, 7, 12, 3, 1),
    ),
    *((30, 20, 1, 16, (6, 4), 2), (16, 24, 2, 32, (4, 2), 1), (36, 12, 1, 48, (8, 4), 2), (20, 40, 4, 16, (1, 4), 1)),
)
SMALL = ((4, 4, 32, 64, 3, 1), (4, 4, 64, 64, 3, 1), (3, 3, 16, 64, 3, 1), (2, 2, 64, 128, 3, 1), (5, 5, 16, 32, 3, 1), (8, 8, 3, 32, 3, 2))
DEPTHWISE = (
    *((24, 24, 16, 1), (12, 12, 64, 1), (6, 6, 128, 1), (16, 5, 64, 1), (25, 5, 64, 1), (32, 32, 8, 1), (3, 3, 256, 1), (9, 11, 40, 1)),
    *((40, 40, 8, 1), (4, 4, 64, 1), (20, 20, 3, 1)),
)
STRIDED = (
    (24, 24, 16, 2),
    (12, 12, 64, 2),
    (6, 6, 128, 2),
    (48, 48, 8, 2),
    (25, 11, 32, 2),
    (4, 4, 64, 2),
    (16, 16, 32, 2),
    (21, 21, 3, 2),
)


def forms(make: Callable[..., Case], shapes: Sequence[Any], some: Sequence[cases.Form] = ("narrow", "high")) -> dict[str, list[Case]]:
    """The shapes with forms of the epilogue, by the word of the instance; ``plain`` is none."""
    result = {form.replace("plain", ""): [make(s, form) for s in shapes] for form in some}
    return {**result, "wide": [wide(make(s, "narrow")) for s in shapes]}


def _matmul(shape: tuple[int, int, int], form: cases.Form) -> Case:
    return cases.matmul(*shape, form)


def _conv(shape: tuple[Any, ...], form: cases.Form) -> Case:
    height, width, channels, filters, taps, stride = shape
    window = taps if isinstance(taps, tuple) else (taps, taps)
    return cases.conv((height, width, channels), filters, window, stride, window[0] // 2, form)


def _pointwise(shape: tuple[int, ...], form: cases.Form) -> Case:
    return cases.pointwise((shape[0], shape[1], shape[2]), shape[3], form)


def _depthwise(shape: tuple[int, ...], form: cases.Form) -> Case:
    return cases.depthwise((shape[0], shape[1], shape[2]), shape[3], form)


PLAIN = ((12, 12, 3, 16, 3, 1), (7, 5, 3, 6, 3, 1), (16, 16, 1, 32, 5, 2), (10, 10, 24, 20, 1, 1), (9, 9, 5, 8, 3, 1), (6, 6, 40, 64, 1, 1))
DEPTHS = ((12, 12, 24, 1), (7, 5, 6, 1), (20, 9, 16, 2), (6, 6, 64, 1), (16, 16, 8, 2), (3, 3, 40, 1))


def by_words(case: Case) -> Case:
    """The case with weights of 16 bits, which are multiplied in plain C."""
    return replace(case, operands={**case.operands, "w": case.operands["w"].astype(np.int16)})


def in_floats(case: Case) -> Case:
    """The case without requantisation on floats."""
    names = ("x", "w")
    attrs = {name: value for name, value in case.attrs.items() if name not in ("epilogue", "shift", "low", "high")}
    return replace(case, operands={name: case.operands[name].astype(np.float32) for name in names}, y="f32", attrs=attrs)


def plain(make: Callable[[tuple[Any, ...], cases.Form], Case], shapes: Sequence[tuple[Any, ...]]) -> dict[str, list[Case]]:
    """Convolutions that no SIMD kernel takes."""
    return {
        "": [by_words(make(s, "plain")) for s in shapes],
        "requantise": [by_words(make(s, "narrow")) for s in shapes],
        "f32": [in_floats(make(s, "plain")) for s in shapes],
    }


PRODUCT = ("m/2 n/4 k", "n/4", "m n<4 k", "m n<4")
GATHERING = ("oh ow/4 k c fh fw", "oh ow fh fw c", "oh ow fh", "oh ow/4 k/4")
COLUMNS = ("oh ow k/4", "oh k/4", "oh k", "k/4", "oh ow k<4")

PULP = (
    Family("pulp_matmul", forms(_matmul, MATMULS, ("narrow", "high", "plain")), PRODUCT),
    Family("pulp_matmul rest", forms(_matmul, [(m, k + 1 + m % 3, n) for m, k, n in MATMULS]), PRODUCT),
    Family("pulp_conv2d_pointwise", forms(_pointwise, POINTWISE), ("oh ow k/4 c", "oh ow k/4", "k/4 c", "k/4", "oh ow k<4 c")),
    Family("pulp_conv2d", forms(_conv, [*CONVOLUTIONS, *RAGGED]), GATHERING),
    Family("pulp_conv2d_small", forms(_conv, SMALL), (*GATHERING, "k fh fw c")),
    Family("pulp_depthwise 1", forms(_depthwise, DEPTHWISE), COLUMNS),
    Family("pulp_depthwise 2", forms(_depthwise, STRIDED), COLUMNS),
)


# ---- functions of elements and rows, in portable C or with SIMD

SHAPES = ((1, 64), (8, 8), (1, 256), (24, 40), (1, 16, 16, 16), (1, 1000), (1, 40, 7), (4, 16, 65))


def _simple(op: str, y: str, attrs: Mapping[str, Any], **operands: np.ndarray) -> Case:
    """A case whose variables are x, or a and b."""
    variables = tuple(name for name in operands if name in ("x", "a", "b", "condition"))
    shape = operands[variables[0]].shape
    return Case(f"{op} {shape}", op, variables, operands, y, attrs)


def each(op: str, types: str | tuple[str, str], y: str, attrs: Mapping[str, Any], requantised: bool = False) -> list[Case]:
    """The operator on every shape: on one tensor, or two of one shape."""
    names = ("x",) if isinstance(types, str) else ("a", "b")
    kinds = (types,) if isinstance(types, str) else types
    result = []
    for shape in SHAPES:
        operands, more = stage() if requantised else ({}, {})
        tensors = {name: draw(kind, *shape) for name, kind in zip(names, kinds, strict=True)}
        result.append(_simple(op, y, {**attrs, **more}, **tensors, **operands))
    return result


def rows(op: str, x: str, y: str, attrs: Mapping[str, Any], **constants: Callable[[int], np.ndarray]) -> list[Case]:
    """The operator along the last axis of every shape, with constants by its length."""
    return [_simple(op, y, attrs, x=draw(x, *s), **{name: make(s[-1]) for name, make in constants.items()}) for s in SHAPES]


def _table(_: int) -> np.ndarray:
    return np.rint(np.exp(-np.arange(256) / 30) * 2**20).astype(np.uint32)


def _short_table(_: int) -> np.ndarray:
    return _table(0) >> 10


def _words(count: int) -> np.ndarray:
    return draw("s32", count)


def _floats(count: int) -> np.ndarray:
    return draw("f32", count)


def _one(dtype: str) -> Callable[[int], np.ndarray]:
    return lambda _: np.array([0.05 if dtype == "f32" else 3], {"f32": np.float32, "s32": np.int32}[dtype])


LEVELS = {"levels": 255, "zero_point": 0, "low": 0, "high": 255}
HALVES = {
    f"{name}_{side}": value for side in "ab" for name, value in (("mul", 300), ("add", 1 << 8), ("shift", 9), ("low", -128), ("high", 127))
}
WORDS = {"mul_a": 1 << 29, "mul_b": 3 << 28, "add": 1 << 29, "shift": 30, "low": -128, "high": 127}
ZEROS = {"a_zero_point": 0, "b_zero_point": 0}
POOLS = (
    (8, 8, 64, 8, 8),
    (20, 5, 64, 20, 1),
    (16, 16, 32, 2, 2),
    (32, 32, 16, 2, 2),
    (8, 8, 64, 2, 2),
    (4, 4, 128, 2, 2),
    (12, 12, 24, 3, 2),
    (6, 6, 256, 6, 6),
)


def pools(op: str, dtype: str, requantised: bool = False) -> list[Case]:
    """Pools of square windows; the third one of a row covers all of a narrow image."""
    result = []
    for height, width, channels, taps, stride in POOLS:
        operands, more = stage(shift=24) if requantised else ({}, {})
        attrs = {"kernel": (taps, min(taps, width)), "strides": (stride, stride), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
        attrs |= {} if op == "MaxPool" else {"count_include_pad": False, "zero_point": 0}
        y = dtype if op == "MaxPool" else "s8" if requantised else "s32" if dtype != "f32" else "f32"
        result.append(_simple(op, y, {**attrs, **more}, x=draw(dtype, 1, height, width, channels), **operands))
    return result


def batches(a: str, b: str, y: str, requantised: bool) -> list[Case]:
    """Products of two activations, as attention has them."""
    result = []
    for heads, m, k, n in (
        (1, 16, 4, 4),
        (16, 1, 4, 2),
        (16, 1, 4, 65),
        (16, 1, 65, 4),
        (4, 8, 8, 8),
        (2, 16, 16, 16),
        (8, 1, 32, 24),
        (1, 24, 32, 24),
    ):
        operands, more = stage() if requantised else ({}, {})
        attrs = {"trans_a": False, "trans_b": False, **ZEROS, **more}
        result.append(_simple("MatMul", y, attrs, a=draw(a, 1, heads, m, k), b=draw(b, 1, heads, k, n), **operands))
    return result


def moves() -> list[Case]:
    """Transpositions: rows become columns, or blocks change places."""
    return [
        _simple("Transpose", "s8", {"perm": (0, 2, 1, *range(3, len(s)))}, x=draw("s8", *s))
        for s in ((1, 16, 16), (1, 8, 40), (1, 16, 8, 4), (1, 64, 16, 4), (1, 3, 32, 32), (1, 1000, 4))
    ]


POOLING = ("oh ow", "oh ow fh fw", "oh ow fh fw c<8", "oh ow c<8")
BLOCKS = ("b0 b1", "rows", "rows k", "b0 b1 m n<8 k", "b0 b1 m n<8")
CONVOLVING = ("oh ow", "oh ow fh fw c", "oh ow fh fw", "oh ow k<8 fh fw c")
ELEMENTS = (
    Family("conv2d", plain(_conv, PLAIN), CONVOLVING),
    Family("depthwise2d", plain(_depthwise, DEPTHS), ("oh ow", "oh ow fh fw")),
    Family("pulp_add", {"narrow": [cases.add(*s) for s in SHAPES]}),
    Family("pulp_mul", {"narrow": [cases.mul(*s) for s in SHAPES]}),
    Family("pulp_requant_shift", {"narrow": [cases.requant_shift(*s) for s in SHAPES]}),
    Family("pulp_scaled_add", {"": each("ScaledAdd", ("s8", "s8"), "s8", WORDS)}),
    Family("scaled_add", {"": each("ScaledAdd", ("s8", "s8"), "s8", {**WORDS, "even": 0})}),
    Family(
        "requant_add",
        {"": each("RequantAdd", ("s8", "s8"), "s32", HALVES), "requantise": each("RequantAdd", ("s8", "s8"), "s8", HALVES, True)},
        ("rows",),
    ),
    Family(
        "mul",
        {
            "": each("Mul", ("s8", "s8"), "s32", ZEROS),
            "requantise": [wide(case) for case in each("Mul", ("s8", "s8"), "s8", ZEROS, True)],
            "f32": each("Mul", ("f32", "f32"), "f32", ZEROS),
        },
        ("rows",),
    ),
    Family("add", {"": each("Add", ("s32", "s32"), "s32", {}), "f32": each("Add", ("f32", "f32"), "f32", {})}),
    Family("sub", {"": each("Sub", ("s32", "s32"), "s32", {}), "f32": each("Sub", ("f32", "f32"), "f32", {})}),
    Family("div", {"": each("Div", ("f32", "f32"), "f32", {})}),
    Family(
        "clip", {"": each("Clip", "s32", "s32", {"low": -100, "high": 100}), "f32": each("Clip", "f32", "f32", {"low": 0.0, "high": 6.0})}
    ),
    Family("pulp_lookup", {"": rows("Lookup", "s8", "s8", {}, table=lambda _: draw("s8", 256))}),
    Family("lookup", {"": rows("Lookup", "s8", "f32", {}, table=lambda _: draw("f32", 256))}),
    Family("quantize", {"": rows("Quantize", "f32", "s8", {"low": -128, "high": 127}, scale=_one("f32"), zero_point=_one("s32"))}),
    Family("dequantize", {"": rows("Dequantize", "s8", "f32", {}, scale=_one("f32"), zero_point=_one("s32"))}),
    Family("cast", {"": each("Cast", "s8", "s32", {}), "f32": each("Cast", "s8", "f32", {})}),
    Family(
        "requant_shift",
        {"": [_simple("RequantShift", "s8", stage()[1] | {"epilogue": ()}, x=draw("s32", *s), **stage()[0]) for s in SHAPES]},
    ),
    Family("pulp_copy", {"": [*moves(), *each("Copy", "s8", "s8", {})]}, ("runs",)),
    Family(
        "integer_function",
        {
            "gelu": each("IntegerFunction", "s8", "s32", {"function": "gelu", "a": -20, "b": 60, "c": 0}),
            "hard_swish": each("IntegerFunction", "s8", "s32", {"function": "hard_swish", "a": 48, "b": 96, "c": 5}),
        },
    ),
    Family("integer_div", {"": each("IntegerDiv", ("s32", "s32"), "s32", {"factor": 7, "scale": 3, "offset": 1})}),
    Family("pulp_softmax", {"": rows("Softmax", "s8", "u8", LEVELS, table=_short_table)}, ("rows",)),
    Family("table_softmax", {"": rows("Softmax", "s8", "u8", LEVELS, table=_table)}, ("rows",)),
    Family("shift_softmax", {"": rows("ShiftSoftmax", "s8", "u8", {"group": 8, "numerator": 127 * 256})}, ("rows",)),
    Family("pulp_layer_norm", {"": rows("IntegerLayerNorm", "s8", "s8", {"shift": 3}, weight=_words, bias=_words)}, ("rows",)),
    Family("pulp_rms_norm", {"": rows("IntegerRMSNorm", "s8", "s8", {"shift": 3}, weight=_words)}, ("rows",)),
    Family(
        "normalise", {"": rows("Normalise", "f32", "f32", {"centred": True, "epsilon": 1e-5}, scale=_floats, offset=_floats)}, ("rows",)
    ),
    Family("maxpool2d", {"": pools("MaxPool", "s8")}, POOLING),
    Family("maxpool2d f32", {"": pools("MaxPool", "f32")}, POOLING),
    Family("average_pool2d", {"": pools("AveragePool", "s8"), "requantise": pools("AveragePool", "s8", True)}, POOLING),
    Family("average_pool2d f32", {"": pools("AveragePool", "f32")}, POOLING),
    Family("matmul", {"": batches("s8", "s8", "s32", False), "requantise": batches("s8", "s8", "s8", True)}, BLOCKS),
    Family("matmul f32", {"": batches("f32", "f32", "f32", False)}, BLOCKS),
)
