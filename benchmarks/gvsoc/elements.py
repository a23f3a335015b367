"""What calibration fits the cycles of kernels of elements, of rows and of windows to: see families.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.gvsoc import cases
from benchmarks.gvsoc.families import RNG, Family, draw, stage
from benchmarks.gvsoc.layer import Case
from deeploy.ir.types import DType
from deeploy.operators.pairs import COMPARISONS

# Rows that cores share: one, or fewer than there are cores.
FEW_ROWS = ((1, 128), (1, 512), (1, 37), (3, 200), (5, 64), (6, 1, 331))
SHAPES = ((1, 64), (9, 18), (1, 256), (24, 40), (1, 16, 16, 16), (1, 1000), (1, 40, 11), (4, 16, 65))


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


def rows(
    op: str, x: str, y: str, attrs: Mapping[str, Any], shapes: Sequence[tuple[int, ...]] = SHAPES, **constants: Callable[[int], np.ndarray]
) -> list[Case]:
    """The operator along the last axis of every shape, with constants by its length."""
    return [_simple(op, y, attrs, x=draw(x, *s), **{name: make(s[-1]) for name, make in constants.items()}) for s in shapes]


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
DOWN = {**LEVELS, "rounded": False}
HALVES = {
    f"{name}_{side}": value for side in "ab" for name, value in (("mul", 300), ("add", 1 << 8), ("shift", 9), ("low", -128), ("high", 127))
}
STANDARD = {"centred": True, "zero_point": 9, "fraction": 20, "epsilon": 1 << 18}
QUOTIENT = {"a_zero_point": 1, "b_zero_point": -2, "mul": 3 << 20, "shift": 20, "zero_point": 4, "low": -128, "high": 127}
ZEROS = {"a_zero_point": 0, "b_zero_point": 0}
ZERO_POINTS = {"a_zero_point": 7, "b_zero_point": -3}
AXES = ("d0", "d1", "d2")  # which cores divide in turn: inside of a run of elements, every part begins a new one
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

EVEN_POOLS = (*(shape for shape in POOLS if shape[3] in (2, 4, 8)), (16, 16, 16, 2, 2), (8, 24, 40, 2, 2), (12, 12, 64, 4, 4))
ODD_POOLS = (*(shape for shape in POOLS if shape[3] not in (2, 4, 8)), (12, 12, 16, 3, 3), (9, 9, 40, 3, 1), (15, 10, 64, 5, 5))
AVERAGED = (("", ODD_POOLS), (" power", EVEN_POOLS))


def pools(op: str, dtype: str, requantised: bool = False, shapes: Sequence[tuple[int, ...]] = POOLS) -> list[Case]:
    """Pools of square windows; the third one of a row covers all of a narrow image."""
    result = []
    for height, width, channels, taps, stride in shapes:
        operands, more = stage(shift=24) if requantised else ({}, {})
        attrs = {"kernel": (taps, min(taps, width)), "strides": (stride, stride), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
        attrs |= {} if op == "MaxPool" else {"count_include_pad": False, "zero_point": 0}
        y = dtype if op == "MaxPool" else "s8" if requantised else "s32" if dtype != "f32" else "f32"
        result.append(_simple(op, y, {**attrs, **more}, x=draw(dtype, 1, height, width, channels), **operands))
    return result


def moves() -> list[Case]:
    """Transpositions: rows become columns, blocks change places, or heads of attention part and turn."""
    return [
        *(
            _simple("Transpose", "s8", {"perm": (0, 2, 1, *range(3, len(s)))}, x=draw("s8", *s))
            for s in ((1, 16, 16), (1, 8, 40), (1, 16, 8, 4), (1, 64, 16, 4), (1, 3, 32, 32), (1, 1000, 4))
        ),
        *(
            _simple("Transpose", "s8", {"perm": (0, 2, 3, 1)}, x=draw("s8", *s))
            for s in ((1, 24, 2, 16), (1, 12, 4, 24), (1, 40, 3, 8), (1, 8, 6, 12))
        ),
    ]


def requantised_sums(a_scaled: bool, b_scaled: bool, form: cases.Form = "narrow") -> list[Case]:
    """Sums whose operands are requantised on their own, or are what they are."""
    whole, scaled = (1 << 16, 1 << 15, 16), (300, 1 << 8, 9)
    result = []
    for shape in SHAPES:
        operands, attrs = cases.requantised(RNG, form, 1, 100.0, "s8")
        for side, is_scaled in (("a", a_scaled), ("b", b_scaled)):
            values = (*(scaled if is_scaled else whole), -128, 127)
            attrs |= {f"{name}_{side}": value for name, value in zip(("mul", "add", "shift", "low", "high"), values, strict=True)}
        result.append(_simple("RequantAdd", "s8", attrs, a=draw("s8", *shape), b=draw("s8", *shape), **operands))
    return result


def scaled_sums(shift: int) -> list[Case]:
    """Sums by two factors of ``shift`` bits."""
    attrs = {"mul_a": 7 << (shift - 4), "mul_b": 11 << (shift - 4), "add": 1 << (shift - 1), "shift": shift, "low": -128, "high": 127}
    return each("ScaledAdd", ("s8", "s8"), "s8", attrs)


def scaled(op: str, form: cases.Form, zeros: Mapping[str, int] = ZEROS) -> list[Case]:
    """Elements, or sums or products of two, with one multiplier for all."""
    result = []
    for shape in SHAPES:
        operands, attrs = cases.requantised(RNG, form, 1, 100.0 if op != "Mul" else 5000.0, "s8")
        names = ("x",) if op == "RequantShift" else ("a", "b")
        given = {key: value for key, value in attrs.items() if op != "RequantShift" or key != "epilogue"} | (zeros if op == "Mul" else {})
        result.append(_simple(op, "s8", given, **{name: draw("s8", *shape) for name in names}, **operands))
    return result


def quantised(dtype: str) -> list[Case]:
    """Numbers to steps, or steps to numbers; all within the range."""
    op, y = ("Quantize", "s8") if dtype == "f32" else ("Dequantize", "f32")
    limits = {"low": -128, "high": 127} if dtype == "f32" else {}
    return rows(op, dtype, y, limits, scale=_one("f32"), zero_point=_one("s32"))


def padded() -> list[Case]:
    """Images with a border of one pixel."""
    attrs = {"pads": (0, 1, 1, 0, 0, 1, 1, 0), "mode": "constant", "value": 3}
    return [
        _simple("Pad", "s8", attrs, x=draw("s8", 1, h, w, c)) for h, w, c in ((8, 8, 16), (16, 5, 4), (25, 10, 1), (6, 6, 64), (12, 12, 3))
    ]


def gathered() -> list[Case]:
    """Rows of a table."""
    attrs = {"axis": 0}
    shapes = ((1, 40, 64), (8, 40, 64), (24, 100, 16), (5, 30, 256), (40, 64, 4))
    return [_simple("Gather", "s8", attrs, x=draw("s8", rows, width), indices=RNG.integers(0, rows, n)) for n, rows, width in shapes]


def few(case: Case) -> Case:
    """The case with a constant table of 4 bits."""
    operands = {**case.operands, "x": case.operands["x"] >> 4}
    return replace(case, name=f"{case.name} of 4 bits", variables=("indices",), operands=operands, narrow={"x": DType.INT4})


def scanned(kind: str) -> list[Case]:
    """Running sums along the middle axis: long ones of one column, and short ones of many."""
    attrs = {"exclusive": False, "reverse": False}
    return [_simple("RunningSum", kind, attrs, x=draw(kind, *s)) for s in ((1, 512, 1), (8, 128, 1), (4, 16, 16), (2, 64, 8), (16, 8, 32))]


def reached(kind: str, of: str) -> list[Case]:
    """Thresholds of channels: 1 to 255 of them, in images and in rows."""
    shapes = ((1, 16, 64, 15), (1, 1, 1024, 255), (64, 8, 1, 7), (4, 8, 16, 3), (1, 32, 32, 1), (2, 8, 64, 63))
    return [_simple("Thresholds", "u8", {}, x=draw(kind, o, c, i), t=np.sort(draw(of, c, n), axis=1)) for o, c, i, n in shapes]


def forests() -> list[Case]:
    """Trees of 4 to 7 levels, each the heap of all its nodes, whose leaves add one number: rows, features, trees, levels, targets."""
    found = []
    for rows, features, trees, levels, targets in (
        (1, 8, 10, 5, 1),
        (1, 20, 50, 6, 3),
        (4, 8, 10, 5, 1),
        (8, 16, 20, 4, 2),
        (16, 8, 5, 6, 1),
        (1, 30, 25, 7, 5),
    ):
        branches, leaves = 2**levels - 1, 2**levels
        size, heap = branches + leaves, np.arange(branches)
        nodes = np.zeros((trees, size, 4), np.int32)
        first = np.arange(trees)[:, None] * size
        nodes[:, :branches, 0] = RNG.integers(0, features, (trees, branches))
        nodes[:, :branches, 2], nodes[:, :branches, 3] = first + 2 * heap + 1, first + 2 * heap + 2
        nodes[:, branches:] = -1, 0, 0, 1
        nodes[:, branches:, 2] = np.arange(trees * leaves).reshape(trees, leaves)
        operands = {
            "x": RNG.normal(size=(rows, features)).astype(np.float32),
            "nodes": nodes.reshape(-1, 4),
            "thresholds": RNG.normal(size=trees * size).astype(np.float32),
            "roots": first[:, 0].astype(np.int32),
            "targets": RNG.integers(0, targets, trees * leaves).astype(np.int32),
            "weights": RNG.normal(size=trees * leaves).astype(np.float32),
        }
        name = f"{trees} trees of {levels} levels for {rows} rows"
        found.append(Case(name, "DecisionTrees", ("x",), operands, "f32", {"aggregate": "SUM", "targets": targets}))
    return found


def coupled() -> list[Case]:
    """Probabilities of pairs of classes, in so many rows."""
    return [
        _simple("PairwiseCoupling", "f32", {"classes": k}, x=RNG.uniform(0.05, 0.95, (rows, k * (k - 1) // 2)).astype(np.float32))
        for rows, k in ((1, 2), (1, 3), (4, 3), (8, 5), (16, 2), (2, 10), (24, 4))
    ]


def reduced(op: str, x: str, y: str) -> list[Case]:
    """The last axis is added up."""
    attrs = {"keepdims": True}
    draws = [draw("s32", *s).astype(np.int64) if x == "s64" else draw(x, *s) for s in SHAPES]
    return [_simple(op, y, {**attrs, "axes": (values.ndim - 1,)}, x=values) for values in draws]


def columns(op: str, x: str, y: str) -> list[Case]:
    """All axes but the first and the last are added up."""
    shapes = ((1, 7, 7, 64), (1, 16, 128), (4, 25, 40), (1, 8, 8, 256), (2, 3, 5, 21), (1, 64, 12), (8, 10, 16), (1, 100, 32))
    return [_simple(op, y, {"keepdims": False, "axes": tuple(range(1, len(s) - 1))}, x=draw(x, *s)) for s in shapes]


def _staged(case: Case, form: cases.Form = "narrow", per_channel: bool = False) -> Case:
    """The case with a requantisation behind it, of results of ``STANDARD``'s fraction."""
    channels = case.operands["x"].shape[-1] if per_channel else 1
    operands, attrs = cases.requantised(RNG, form, channels, 2.0 ** STANDARD["fraction"], "s8")
    return replace(case, operands={**case.operands, **operands}, attrs={**case.attrs, **attrs})


def paired(function: str, kind: str) -> list[Case]:
    """A function of two tensors of one type; numbers that may be an exponent or a divisor."""
    some = each("Binary", (kind, kind), "bool" if function in COMPARISONS else kind, {"function": function})
    return [replace(one, operands={name: np.abs(array) % 7 + 1 for name, array in one.operands.items()}) for one in some]


def selected(kind: str) -> list[Case]:
    """One of two tensors, by a third one."""
    return [_simple("Where", kind, {}, condition=RNG.integers(0, 2, s).astype(bool), a=draw(kind, *s), b=draw(kind, *s)) for s in SHAPES]


def expanded(kind: str) -> list[Case]:
    """Rows that are repeated, or elements of columns."""
    shapes = (
        ((1, 64), (8, 64)),
        ((24, 1), (24, 40)),
        ((1, 16, 1, 16), (1, 16, 16, 16)),
        ((1, 1, 7), (1, 40, 7)),
        ((4, 1, 65), (4, 16, 65)),
    )
    return [_simple("Expand", kind, {"shape": y}, x=draw(kind, *x)) for x, y in shapes]


# Constants of a rotation in the network's 64 bits: products have no form that is narrow.
LONG_ROTATION = {
    "cosine": (-2, -1, 1124440670, -893353197568, 37, -128, 127, -1),
    "sine": (1, 0, 1272086169, -1030792151040, 37, -128, 127, -1),
    "sum": (2039811374, 1809848131, 29831206490, 31, -128, 127, 0),
}


def rotated(kind: str, interleaved: bool, **constants: tuple[int, ...]) -> list[Case]:
    """Rows of pairs that are turned by the same angles in every head."""
    attrs: dict[str, Any] = {"interleaved": interleaved}
    if kind != "f32":
        attrs |= {"cosine": (3, -4, 3000, 1 << 11, 12, -128, 127, -1), "sine": (0, 5, 2500, 0, 12, -128, 127, 0)}
        attrs |= {"sum": (1 << 10, 700, 1 << 9, 11, -128, 127, -1), **constants}
    result = []
    for heads, count, width in ((4, 16, 16), (1, 1, 64), (8, 1, 64), (6, 24, 10), (2, 40, 32), (1, 100, 8)):
        angles = {name: draw(kind, count, width) for name in ("cosine", "sine")}
        table = {} if kind == "f32" else {"table": draw("s8", 2, 256)}
        result.append(_simple("Rotate", kind, attrs, x=draw(kind, heads, count, width), **angles, **table))
    return result


BOTH_FORMS: tuple[cases.Form, ...] = ("narrow", "high")
LONG = 3 << 17  # a factor of more than 16 bits
# Terms, and the shape of their sum.
TERMS = ((2, (1, 64)), (3, (8, 8)), (4, (1, 512)), (5, (24, 40)), (4, (1, 16, 16, 16)), (2, (1, 1000)), (9, (1, 40, 7)), (6, (4, 16, 65)))


def terms(form: cases.Form, is_residual: bool = False, per_channel: bool = False, factor: int = 3 << 12) -> list[Case]:
    """Sums along the first axis, requantised but for ``plain``; with a residual connection, whose factors have the size of ``factor``."""
    result = []
    for count, shape in TERMS:
        operands, attrs = cases.requantised(RNG, form, shape[-1], 200_000.0 if form == "high" else 50_000.0, "s8")
        if not per_channel:
            operands = {name: array[:1] for name, array in operands.items()}
        given = {"x": draw("s32", count, *shape)}
        if is_residual:
            attrs = {name: attrs[name] for name in ("shift", "low", "high")} | {"mul_a": factor, "mul_b": factor + 1, "low_sum": -128}
            attrs |= {"offset": factor >> 1, "shift_sum": factor.bit_length(), "high_sum": 127}
            result.append(_simple("ResidualSum", "s8", attrs, **given, b=draw("s8", *shape), **operands))
        else:
            y = "s32" if form == "plain" else "s8"
            result.append(_simple("ReduceSum", y, {**attrs, "axes": (0,), "keepdims": False}, **given, **operands))
    return result


POOLING = ("oh ow", "oh ow c/4", "oh ow fh c/4", "oh ow fh fw c/4", "oh ow fh fw c<4", "oh ow c<4")
PORTABLE_POOLING = ("oh ow", "oh ow fh fw", "oh ow fh fw c<8", "oh ow c<8")
ROWS = ("rows", "runs")
SHARED_ROWS = ("rows", "rows c")  # whole rows are read by every core that has columns of them
FAST = (
    Family("pulp_add", {"narrow": scaled("Add", "narrow"), "high": scaled("Add", "high")}, ROWS, divided=AXES),
    Family(
        "pulp_mul",
        {
            **{form: scaled("Mul", form) for form in BOTH_FORMS},
            **{f"{form} zeros": scaled("Mul", form, ZERO_POINTS) for form in BOTH_FORMS},
        },
        ROWS,
        divided=AXES,
    ),
    Family("pulp_requant_shift", {"narrow": scaled("RequantShift", "narrow"), "high": scaled("RequantShift", "high")}, ROWS, divided=AXES),
    Family(
        "pulp_requant_add",
        {
            "": requantised_sums(False, False),
            "a_scaled": requantised_sums(True, False),
            "b_scaled": requantised_sums(False, True),
            "a_scaled b_scaled": requantised_sums(True, True),
            "a_scaled b_scaled high": requantised_sums(True, True, "high"),
        },
        ROWS,
        divided=AXES,
    ),
    Family("pulp_scaled_add", {"narrow": scaled_sums(12), "halves": scaled_sums(30)}, ROWS, divided=AXES),
    Family("pulp_sum", {"": terms("plain")}),
    Family("pulp_sum requantise", {form: terms(form, per_channel=True) for form in BOTH_FORMS}, ("rows",)),
    Family("pulp_sum requantise one", {form: terms(form) for form in BOTH_FORMS}),
    Family("pulp_residual_sum", {form: terms(form, True, True, LONG) for form in BOTH_FORMS}, ("rows",)),
    Family(
        "pulp_residual_sum one",
        {**{form: terms(form, True, factor=LONG) for form in BOTH_FORMS}, "narrow sum_short": terms("narrow", True)},
    ),
    Family("pulp_quantize", {"": quantised("f32")}),  # its rows are the longest axis, which no term counts
    Family("pulp_dequantize", {"": quantised("s8")}, ROWS, divided=AXES),
    Family("pulp_expand", {"": expanded("s8")}, ("rows", "runs")),
    Family("pulp_copy", {"": [*moves(), *each("Copy", "s8", "s8", {})]}, ("rows", "runs")),
    Family("pulp_lookup", {"": rows("Lookup", "s8", "s8", {}, table=lambda _: draw("s8", 256))}, ROWS, divided=AXES),
    Family(
        "pulp_softmax",
        {
            "": rows("Softmax", "s8", "u8", DOWN, (*SHAPES, *FEW_ROWS), table=_short_table),
            "rounded": rows("Softmax", "s8", "u8", LEVELS, (*SHAPES, *FEW_ROWS), table=_short_table),
            "corrected": rows("Softmax", "s8", "u8", DOWN, table=_table),
        },
        SHARED_ROWS,
    ),
    Family(
        "pulp_layer_norm",
        {"": rows("IntegerLayerNorm", "s8", "s8", {"shift": 3}, (*SHAPES, *FEW_ROWS), weight=_words, bias=_words)},
        SHARED_ROWS,
    ),
    Family("pulp_rms_norm", {"": rows("IntegerRMSNorm", "s8", "s8", {"shift": 3}, (*SHAPES, *FEW_ROWS), weight=_words)}, SHARED_ROWS),
    Family(
        "pulp_rotate",
        {"": rotated("s8", False, **LONG_ROTATION), "cosine_narrow sine_narrow": [*rotated("s8", False), *rotated("s8", True)]},
        ("rows",),
    ),
    Family(
        "pulp_standardise",
        {
            "": rows("Standardise", "s8", "s32", STANDARD, (*SHAPES, *FEW_ROWS)),
            "requantise": [_staged(one) for one in rows("Standardise", "s8", "s8", STANDARD, (*SHAPES, *FEW_ROWS))],
            "requantise high": [_staged(one, "high") for one in rows("Standardise", "s8", "s8", STANDARD, (*SHAPES, *FEW_ROWS))],
            "requantise wide": [_staged(one, "high", True) for one in rows("Standardise", "s8", "s8", STANDARD, (*SHAPES, *FEW_ROWS))],
        },
        SHARED_ROWS,
    ),
    Family("pulp_maxpool2d", {"": pools("MaxPool", "s8")}, POOLING),
    Family("pulp_reduce_sum", {"": reduced("ReduceSum", "s8", "s32")}),
    Family("pulp_reduce_sum columns", {"": columns("ReduceSum", "s8", "s32")}, ()),
    Family("pulp_reduce_max", {"": reduced("ReduceMax", "s8", "s8")}),
    Family("pulp_reduce_max columns", {"": columns("ReduceMax", "s8", "s8")}, ()),
    Family("pulp_reduce_min", {"": reduced("ReduceMin", "s8", "s8")}),
    Family("pulp_reduce_min columns", {"": columns("ReduceMin", "s8", "s8")}, ()),
    Family("pulp_integer_mean", {"": reduced("IntegerMean", "s8", "s8")}),
    Family("pulp_integer_mean columns", {"": columns("IntegerMean", "s8", "s8")}, ()),
    Family("pulp_pairwise", {"": [*paired("max", "s8"), *paired("less", "s8")]}, ROWS, divided=AXES),
    Family("pulp_scaled_div", {"": each("ScaledDiv", ("s8", "s8"), "s8", QUOTIENT)}),
    Family("pulp_select", {"": selected("s8")}, ROWS, divided=AXES),
    *(
        Family(f"pulp_average_pool2d{word}", {form: pools("AveragePool", "s8", bool(form), some) for form in ("requantise", "")}, POOLING)
        for word, some in AVERAGED
    ),
)
CLAMPED: dict[str, Any] = {"epilogue": ("clamp",), "low": 0.0, "high": None}
FUNCTIONS = {
    "gelu": ("s8", "s32", {"function": "gelu", "a": -20, "b": 60, "c": 0}),
    "hard_swish": ("s8", "s32", {"function": "hard_swish", "a": 48, "b": 96, "c": 5}),
    **{name: ("s16", "s16", {"function": name, "a": 3, "b": 0, "c": 0}) for name in ("logistic", "tanh")},
}
ELEMENTS = (
    Family("scaled_add", {"": scaled_sums(30)}),
    Family("scaled_sum", {"": scaled_sums(12)}),
    Family("residual_sum", {"": terms("narrow", True)}),
    Family(
        "requant_add",
        {"": each("RequantAdd", ("s8", "s8"), "s32", HALVES), "requantise": each("RequantAdd", ("s8", "s8"), "s8", HALVES, True)},
        ("rows",),
    ),
    Family(
        "mul",
        {
            "": each("Mul", ("s8", "s8"), "s32", ZEROS),
            "requantise": each("Mul", ("s8", "s8"), "s8", ZEROS, True),
            "f32": each("Mul", ("f32", "f32"), "f32", ZEROS),
        },
        ("rows",),
    ),
    Family(
        "add",
        {
            "": each("Add", ("s32", "s32"), "s32", {}),
            "f32": each("Add", ("f32", "f32"), "f32", {}),
            "f32 clamp": each("Add", ("f32", "f32"), "f32", CLAMPED),
        },
    ),
    Family("sub", {"": each("Sub", ("s32", "s32"), "s32", {}), "f32": each("Sub", ("f32", "f32"), "f32", {})}),
    Family("div", {"": each("Div", ("f32", "f32"), "f32", {})}),
    Family(
        "clip", {"": each("Clip", "s32", "s32", {"low": -100, "high": 100}), "f32": each("Clip", "f32", "f32", {"low": 0.0, "high": 6.0})}
    ),
    Family("lookup", {"": rows("Lookup", "s8", "s8", {}, table=lambda _: draw("s8", 256))}),
    Family("quantize", {"": rows("Quantize", "f32", "s8", {"low": -128, "high": 127}, scale=_one("f32"), zero_point=_one("s32"))}),
    Family("dequantize", {"": rows("Dequantize", "s8", "f32", {}, scale=_one("f32"), zero_point=_one("s32"))}),
    Family("cast", {"": each("Cast", "s8", "s32", {}), "f32": each("Cast", "s8", "f32", {})}),
    Family(
        "requant_shift",
        {"": [_simple("RequantShift", "s8", stage()[1] | {"epilogue": ()}, x=draw("s32", *s), **stage()[0]) for s in SHAPES]},
    ),
    Family("copy", {"": [*moves(), *each("Copy", "s8", "s8", {})]}, ("runs",)),
    Family("integer_function", {name: each("IntegerFunction", *about) for name, about in FUNCTIONS.items()}),
    Family("integer_div", {"": each("IntegerDiv", ("s32", "s32"), "s32", {"factor": 7, "scale": 3, "offset": 1})}),
    Family("table_softmax", {"": rows("Softmax", "s8", "u8", LEVELS, table=_table)}, ("rows",)),
    Family("fixed_softmax", {"": rows("FixedSoftmax", "s8", "u8", LEVELS, table=lambda _: _table(0) * 2047)}, ("rows",)),
    Family("fixed_l2_norm", {"": rows("FixedL2Norm", "s8", "s8", {"zero_point": 3})}, ("rows",)),
    Family("shift_softmax", {"": rows("ShiftSoftmax", "s8", "u8", {"group": 8, "numerator": 127 * 256})}, ("rows",)),
    Family("integer_layer_norm", {"": rows("IntegerLayerNorm", "s8", "s8", {"shift": 3}, weight=_words, bias=_words)}, ("rows",)),
    Family("integer_rms_norm", {"": rows("IntegerRMSNorm", "s8", "s8", {"shift": 3}, weight=_words)}, ("rows",)),
    Family(
        "normalise", {"": rows("Normalise", "f32", "f32", {"centred": True, "epsilon": 1e-5}, scale=_floats, offset=_floats)}, ("rows",)
    ),
    Family("maxpool2d", {"": pools("MaxPool", "s8")}, PORTABLE_POOLING),
    Family("maxpool2d f32", {"": pools("MaxPool", "f32")}, PORTABLE_POOLING),
    Family("average_pool2d", {"": pools("AveragePool", "s8"), "requantise": pools("AveragePool", "s8", True)}, PORTABLE_POOLING),
    Family("average_pool2d f32", {"": pools("AveragePool", "f32")}, PORTABLE_POOLING),
    Family("softmax", {"": rows("Softmax", "f32", "f32", {})}, ("rows",)),
    Family("pad", {"": padded()}, ("rows",)),
    Family("gather", {"": gathered()}, ("rows",)),
    Family("decision_trees", {"": forests()}, ("n t",)),  # walks of trees; what is deeper takes longer
    Family("pairwise_coupling", {"": coupled()}, ("n e e",)),
    Family("gather_packed", {"": [few(case) for case in gathered()]}, ("rows",)),
    Family("reduce_sum", {"": reduced("ReduceSum", "s8", "s32")}),
    *(Family(f"reduce_{kind.lower()}_wide", {"": reduced(f"Reduce{kind}", "s64", "s64")}) for kind in ("Sum", "Max", "Min", "Prod")),
    Family("reduce_max", {"": reduced("ReduceMax", "s8", "s8"), "f32": reduced("ReduceMax", "f32", "f32")}),
    Family("reduce_min", {"": reduced("ReduceMin", "s8", "s8"), "f32": reduced("ReduceMin", "f32", "f32")}),
    Family("reduce_prod", {"": reduced("ReduceProd", "f32", "f32")}),
    Family("integer_mean", {"": reduced("IntegerMean", "s8", "s8")}),
    Family("running_sum", {"": scanned("s32"), "f32": scanned("f32"), "s64": scanned("s64")}, ("o n",)),
    Family("thresholds", {"": reached("s8", "s16"), "s32": reached("s32", "s32"), "f32": reached("f32", "f32")}, ("o c",)),
    Family("arg_extreme", {"": rows("ArgMax", "s8", "s64", {"smallest": False, "last": False, "axis": -1})}, ("rows",)),
    Family(
        "standardise",
        {
            "": rows("Standardise", "s8", "s32", STANDARD),
            "requantise": [_staged(one) for one in rows("Standardise", "s8", "s8", STANDARD)],
        },
        ("rows",),
    ),
    Family("pairwise", {"": paired("max", "s32"), "f32": paired("max", "f32"), "s64": paired("add", "s64"), "div": paired("div", "s64")}),
    Family("pairwise pow", {"": paired("pow", "f32")}),
    Family("select", {"": selected("s8"), "f32": selected("f32")}, ("rows",)),
    Family("expand", {"": expanded("s8")}, ("rows", "runs")),
    Family("rotate", {"": rotated("s8", False), "interleaved": rotated("s8", True)}, ("rows",)),
    Family("rotate f32", {"": rotated("f32", False)}, ("rows",)),
    Family("scaled_div", {"": each("ScaledDiv", ("s8", "s8"), "s8", QUOTIENT)}),
    Family("reduce_mean", {"": reduced("ReduceMean", "f32", "f32")}),
)
