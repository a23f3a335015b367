"""Seeded files of one or a few operators each, by name: what the outputs that LiteRT computed are stored for.

``examples`` has some more, and writes ``expected.npz``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.frontend.tflite.writer import Op, Spec, write_file

# LiteRT has no reference kernels of this name for these: its others are taken.
OTHER_KERNELS = frozenset({"function_ceil", "function_elu", "function_round", "move_broadcast_to"})
EXPECTED = Path(__file__).parent / "expected.npz"
_WINDOW = {"padding": 0, "stride_w": 1, "stride_h": 1}


class Draft:
    """A file as it grows: tensors, and operators on them."""

    def __init__(self, seed: str) -> None:
        self.rng = np.random.default_rng(zlib.crc32(seed.encode()))
        self.tensors: list[Spec] = []
        self.ops: list[Op] = []
        self.inputs: list[int] = []

    def tensor(self, *shape: int, dtype: str = "i1", scale: float | None = None, zero: int | None = None) -> int:
        """A tensor that is computed or given; quantised with some scale."""
        scales, zeros = list[float](), list[int]()
        if dtype in ("i1", "u1", "i2"):
            scales = [float(np.float32(self.rng.uniform(0.01, 0.1) if scale is None else scale))]
            origin = 0 if dtype == "i2" else int(self.rng.integers(-20, 20)) + 128 * (dtype == "u1")
            zeros = [origin if zero is None else zero]
        self.tensors.append(Spec(shape, dtype, scales, zeros))
        return len(self.tensors) - 1

    def given(self, *shape: int, **about: Any) -> int:
        self.inputs.append(self.tensor(*shape, **about))
        return self.inputs[-1]

    def constant(self, data: np.ndarray, scale: Sequence[float] = (), axis: int = 0, zero: Sequence[int] = ()) -> int:
        self.tensors.append(Spec(data.shape, data.dtype.str[1:], list(scale), list(zero) if len(zero) else [0] * len(scale), data, axis))
        return len(self.tensors) - 1

    def variable(self, *shape: int, **about: Any) -> int:
        at = self.tensor(*shape, **about)
        self.tensors[at] = replace(self.tensors[at], is_variable=True)
        return at

    def op(self, name: str, inputs: Sequence[int], output: int | Sequence[int], intermediates: Sequence[int] = (), **options: Any) -> int:
        outputs = [output] if isinstance(output, int) else list(output)
        self.ops.append(Op(name, list(inputs), outputs, options, intermediates))
        return outputs[0]

    def like(self, at: int, *shape: int) -> int:
        """A tensor of the scale and the type of another one."""
        spec = self.tensors[at]
        self.tensors.append(Spec(shape or spec.shape, spec.dtype, spec.scale, spec.zero))
        return len(self.tensors) - 1

    def weights(self, x: int, shape: Sequence[int], axis: int, count: int, each: bool = True, depth: int = 0) -> list[int]:
        """Weights and a bias for ``count`` outputs, with one scale for each, or one for all."""
        spec = self.tensors[x]
        if spec.dtype == "f4":
            w = self.rng.normal(0, 0.3, shape).astype(np.float32)
            return [self.constant(w), self.constant(self.rng.normal(0, 1, count).astype(np.float32))]
        is_old = spec.dtype == "u1"  # weights of one scale, with a zero point
        scales = self.rng.uniform(0.002, 0.02, count if each and not is_old else 1).astype(np.float32)
        w = self.rng.integers(-127, 128, shape)
        w = (w + 127).astype(np.uint8) if is_old else w.astype(np.int8)
        units = [float(s) for s in scales * np.float32(spec.scale[0])]
        bias = self.rng.integers(-2000, 2000, count).astype(np.int64 if spec.dtype == "i2" else np.int32)
        return [self.constant(w, [float(s) for s in scales], axis, [120] if is_old else ()), self.constant(bias, units)]

    def content(self, outputs: Sequence[int]) -> bytes:
        return write_file(self.tensors, self.ops, self.inputs, outputs)

    def samples(self, count: int) -> list[list[np.ndarray]]:
        """Values of the inputs, the whole range of their types."""
        return [[self._draw(self.tensors[at]) for at in self.inputs] for _ in range(count)]

    def _draw(self, spec: Spec) -> np.ndarray:
        if spec.dtype == "f4":
            return self.rng.normal(0, 2, spec.shape).astype(np.float32)
        if spec.dtype == "b1":
            return self.rng.integers(0, 2, spec.shape).astype(bool)
        info = np.iinfo(spec.dtype)
        wide = spec.scale or info.bits < 32
        low, high = (info.min, info.max + 1) if wide else (-50, 50)
        return self.rng.integers(low, high, spec.shape).astype(spec.dtype)


Case = tuple[bytes, list[list[np.ndarray]]]
Build = Callable[[Draft], Sequence[int]]
CASES: dict[str, Build] = {}


def case(function: Build) -> Build:
    CASES[function.__name__] = function
    return function


def build_case(name: str, samples: int = 2) -> Case:
    """A file and values of its inputs."""
    draft = Draft(name)
    outputs = CASES[name](draft)
    return draft.content(outputs), draft.samples(samples)


def _many(name: str, variants: dict[str, dict[str, Any]]) -> Callable[[Callable[..., Sequence[int]]], None]:
    """Decorator: a case for each variant of a function."""

    def register(function: Callable[..., Sequence[int]]) -> None:
        for suffix, about in variants.items():
            CASES[f"{name}_{suffix}"] = lambda draft, about=about: function(draft, **about)

    return register


_TYPES = {"i1": {"dtype": "i1"}, "f4": {"dtype": "f4"}}


@_many(
    "conv",
    {
        "same": {},
        "valid": {"padding": 1},
        "strides": {"stride": 2, "extent": 9},
        "dilated": {"dilation": 2, "extent": 10},
        "relu": {"fused": 1},
        "relu6": {"fused": 3},
        "one_scale": {"each": False},
        "large_factor": {"out": 0.002},
        "float": {"dtype": "f4", "fused": 3},
        "old": {"dtype": "u1"},
        "words": {"dtype": "i2", "out": 0.5},
        "words_relu": {"dtype": "i2", "fused": 1},
    },
)
def conv(d: Draft, padding: int = 0, stride: int = 1, dilation: int = 1, extent: int = 7, fused: int = 0, each: bool = True,
         out: float = 0.4, dtype: str = "i1") -> Sequence[int]:  # fmt: skip
    x = d.given(1, extent, extent + 1, 5, dtype=dtype)
    w = d.weights(x, (6, 3, 3, 5), 0, 6, each)
    reach = 2 * dilation * padding
    y = d.tensor(1, *(-(-(n - reach) // stride) for n in (extent, extent + 1)), 6, dtype=dtype, scale=out)
    options = {"padding": padding, "stride_w": stride, "stride_h": stride, "dilation_w": dilation, "dilation_h": dilation, "fused": fused}
    return [d.op("CONV_2D", [x, *w], y, **options)]


@_many("depthwise", {"i1": {"dtype": "i1"}, "twofold": {"dtype": "i1", "multiplier": 2}, "f4": {"dtype": "f4"},
                     "words": {"dtype": "i2"}, "old": {"dtype": "u1"}})  # fmt: skip
def depthwise(d: Draft, dtype: str, multiplier: int = 1) -> Sequence[int]:
    x = d.given(1, 6, 9, 4, dtype=dtype)
    w = d.weights(x, (1, 3, 5, 4 * multiplier), 3, 4 * multiplier)
    y = d.tensor(1, 3, 5, 4 * multiplier, dtype=dtype, scale=0.2)
    return [d.op("DEPTHWISE_CONV_2D", [x, *w], y, padding=0, stride_w=2, stride_h=2, multiplier=multiplier)]


@_many("dense", {"i1": {"dtype": "i1"}, "each": {"dtype": "i1", "each": True}, "relu": {"dtype": "i1", "fused": 1}, "f4": {"dtype": "f4"},
                 "words": {"dtype": "i2"}, "old": {"dtype": "u1"}})  # fmt: skip
def dense(d: Draft, dtype: str, each: bool = False, fused: int = 0) -> Sequence[int]:
    x = d.given(3, 40, dtype=dtype)
    y = d.tensor(3, 11, dtype=dtype, scale=0.3)
    return [d.op("FULLY_CONNECTED", [x, *d.weights(x, (11, 40), 0, 11, each)], y, fused=fused)]


@case
def dense_without_bias(d: Draft) -> Sequence[int]:
    x = d.given(2, 16)
    return [d.op("FULLY_CONNECTED", [x, d.weights(x, (5, 16), 0, 5, False)[0], -1], d.tensor(2, 5, scale=0.3))]


@case
def dense_ties(d: Draft) -> Sequence[int]:
    """Sums that lie in the middle between results."""
    x = d.given(4, 8, scale=0.5, zero=0)
    w = d.constant(d.rng.integers(-3, 4, (6, 8)).astype(np.int8), [0.0625])
    bias = d.constant(np.arange(6, dtype=np.int32), [0.03125])
    return [d.op("FULLY_CONNECTED", [x, w, bias], d.tensor(4, 6, scale=0.125, zero=-5))]


@case
def conv_ties(d: Draft) -> Sequence[int]:
    x = d.given(1, 4, 4, 8, scale=0.5, zero=0)
    w = d.constant(d.rng.integers(-3, 4, (6, 1, 1, 8)).astype(np.int8), [0.0625] * 6)
    bias = d.constant(np.arange(6, dtype=np.int32), [0.03125] * 6)
    return [d.op("CONV_2D", [x, w, bias], d.tensor(1, 4, 4, 6, scale=0.125, zero=-5), **_WINDOW)]


@_many("transposed", {"same": {}, "valid": {"padding": 1}, "stride_3": {"stride": 3}, "f4": {"dtype": "f4"}})
def transposed(d: Draft, padding: int = 0, stride: int = 2, dtype: str = "i1") -> Sequence[int]:
    x = d.given(1, 4, 5, 3, dtype=dtype)
    w, bias = d.weights(x, (4, 3, 3, 3), 0, 4)
    extents = [n * stride if not padding else (n - 1) * stride + 3 for n in (4, 5)]
    shape = d.constant(np.array([1, *extents, 4], np.int32))
    y = d.tensor(1, *extents, 4, dtype=dtype, scale=0.3)
    return [d.op("TRANSPOSE_CONV", [shape, w, x, bias], y, padding=padding, stride_w=stride, stride_h=stride)]


@_many("pool", {f"{op.lower()}_{dtype}": {"op": op, "dtype": dtype} for op in ("MAX", "AVERAGE") for dtype in ("i1", "f4", "u1", "i2")})
def pool(d: Draft, op: str, dtype: str) -> Sequence[int]:
    x = d.given(1, 7, 8, 3, dtype=dtype)
    y = d.like(x, 1, 4, 4, 3)
    return [d.op(f"{op}_POOL_2D", [x], y, padding=0, stride_w=2, stride_h=2, filter_w=3, filter_h=2, fused=1 if dtype == "i1" else 0)]


@_many(
    "softmax",
    {"narrow": {"scale": 0.2}, "wide": {"scale": 0.02, "columns": 300}, "beta": {"scale": 0.1, "beta": 0.5}, "f4": {"dtype": "f4"},
     **{f"words{n}": {"dtype": "i2", "scale": scale, "columns": n} for n, scale in ((10, 0.0002), (1, 0.01), (300, 1e-5))}},
)  # fmt: skip
def softmax(d: Draft, scale: float = 0.1, columns: int = 12, beta: float = 1.0, dtype: str = "i1") -> Sequence[int]:
    x = d.given(4, columns, dtype=dtype, scale=scale)
    about = {"scale": 2.0**-15, "zero": 0} if dtype == "i2" else {"scale": 1 / 256, "zero": -128}
    return [d.op("SOFTMAX", [x], d.tensor(4, columns, dtype=dtype, **about), beta=beta)]


@_many(
    "binary",
    {
        **{f"{op.lower()}_{dtype}": {"op": op, "dtype": dtype} for op in ("ADD", "SUB", "MUL") for dtype in ("i1", "f4", "i2", "u1")},
        **{"add_relu": {"op": "ADD", "fused": 1}, "add_row": {"op": "ADD", "other": (1, 1, 5)}, "mul_relu6": {"op": "MUL", "fused": 3}},
    },
)
def binary(d: Draft, op: str, dtype: str = "i1", fused: int = 0, other: Sequence[int] = (3, 4, 5)) -> Sequence[int]:
    a, b = d.given(3, 4, 5, dtype=dtype), d.given(*other, dtype=dtype)
    scale = {"pot_scale": 0} if op != "MUL" else {}
    return [d.op(op, [a, b], d.tensor(3, 4, 5, dtype=dtype), fused=fused, **scale)]


@case
def binary_squared_difference(d: Draft) -> Sequence[int]:
    return [d.op("SQUARED_DIFFERENCE", [d.given(3, 4, 5), d.given(3, 4, 5)], d.tensor(3, 4, 5, scale=0.4))]


@_many("div", {"i1": {}, "u1": {"dtype": "u1"}, "halves": {"scale": 0.5, "out": 1 / 128}, "number": {"number": 7}})
def div(d: Draft, dtype: str = "i1", scale: float = 0.05, out: float = 0.01, number: int | None = None) -> Sequence[int]:
    """Nothing is divided by zero, which LiteRT refuses, and no quotient is so small that it shifts by more than 31 bits."""
    a, b = d.given(16, 32, dtype=dtype, scale=scale), d.given(16, 32, dtype=dtype, scale=scale)
    if number is None:
        spec = d.tensors[b]
        least = d.constant(np.array([spec.zero[0] + 1], spec.dtype), spec.scale, 0, spec.zero)
        divisor = d.op("MAXIMUM", [b, least], d.like(b))
    else:
        d.inputs.remove(b)
        divisor = d.constant(np.full((1, 1), number, np.int8), [0.03], 0, [-2])
    return [d.op("DIV", [a, divisor], d.tensor(16, 32, dtype=dtype, scale=out))]


@case
def add_ties(d: Draft) -> Sequence[int]:
    """Sums in the middle between results, below and above zero, which no two factors round as the reference kernel does."""
    a, b = d.given(8, 32, scale=0.5, zero=0), d.given(8, 32, scale=0.5, zero=0)
    return [d.op("ADD", [a, b], d.tensor(8, 32, scale=1.0, zero=0), pot_scale=0)]


@_many("table", {op.lower(): {"op": op} for op in ("LOGISTIC", "TANH", "RELU", "RELU6", "EXP", "LOG", "HARD_SWISH", "QUANTIZE", "ABS",
                                                   "RSQRT", "NEG")}
       | {"abs_same": {"op": "ABS", "scale": 0.05}, "gelu": {"op": "GELU", "approximate": 0}, "gelu_tanh": {"op": "GELU", "approximate": 1}}
       | {"leaky_relu": {"op": "LEAKY_RELU", "alpha": 0.1}, "leaky_relu_negative": {"op": "LEAKY_RELU", "alpha": -0.3}})  # fmt: skip
def table(d: Draft, op: str, scale: float | None = None, **options: Any) -> Sequence[int]:
    given = {"scale": 0.02, "zero": 0} if op == "NEG" else {"zero": -128} if op == "RSQRT" else {"scale": scale}
    about = {"LOGISTIC": {"scale": 1 / 256, "zero": -128}, "TANH": {"scale": 1 / 128, "zero": 0}, "NEG": given}.get(op, {"scale": scale})
    return [d.op(op, [d.given(16, 32, **given)], d.tensor(16, 32, **about), **options)]


@_many(
    "words",
    {
        "leaky_relu": {"op": "LEAKY_RELU", "alpha": 0.1},
        "unchanged": {"op": "LEAKY_RELU", "alpha": 0.3, "scale": 0.03},
        "quantize": {"op": "QUANTIZE"},
        "narrow": {"op": "QUANTIZE", "dtype": "i1"},
        **{op.lower(): {"op": op, "scale": 0.0003, "out": 0.0002} for op in ("EXP", "LOG", "ABS", "RELU", "RELU6")},
        "neg": {"op": "NEG", "scale": 0.0003},
        **{f"{op.lower()}{suffix}": {"op": op, "scale": scale, "out": 2.0**-15} for op in ("LOGISTIC", "TANH")
           for suffix, scale in (("", 2.0**-12), ("_twice", 2.0**-11), ("_fine", 0.0001), ("_coarse", 0.003))},
    },
)  # fmt: skip
def words(d: Draft, op: str, dtype: str = "i2", scale: float | None = None, out: float | None = None, **options: Any) -> Sequence[int]:
    return [d.op(op, [d.given(8, 16, dtype="i2", scale=scale)], d.tensor(8, 16, dtype=dtype, scale=out or scale), **options)]


@_many("function", {op.lower(): {"op": op} for op in ("LOGISTIC", "TANH", "RELU", "RELU6", "EXP", "HARD_SWISH", "ABS", "NEG", "FLOOR",
                                                      "CEIL", "ROUND", "SQUARE", "SIN", "COS", "ELU")}
       | {"leaky_relu": {"op": "LEAKY_RELU", "alpha": 0.1}, "gelu": {"op": "GELU", "approximate": 0},
          "gelu_tanh": {"op": "GELU", "approximate": 1}})  # fmt: skip
def function(d: Draft, op: str, **options: Any) -> Sequence[int]:
    return [d.op(op, [d.given(3, 7, dtype="f4")], d.tensor(3, 7, dtype="f4"), **options)]


# LiteRT's reference kernel of SUM gives the same number whatever bytes are summed, so that there is nothing to compare with.
@_many("mean", {"i1": {"op": "MEAN"}, "f4": {"op": "MEAN", "dtype": "f4"}, "sum_f4": {"op": "SUM", "dtype": "f4"},
                "odd": {"op": "MEAN", "axes": (1,)}, "all": {"op": "MEAN", "axes": (0, 1, 2, 3)}})  # fmt: skip
def mean(d: Draft, op: str, dtype: str = "i1", axes: Sequence[int] = (1, 2)) -> Sequence[int]:
    x = d.given(2, 5, 6, 3, dtype=dtype)
    rest = [n for at, n in enumerate((2, 5, 6, 3)) if at not in axes]
    y = d.tensor(*rest, dtype=dtype, scale=0.05)
    return [d.op(op, [x, d.constant(np.array(axes, np.int32))], y, keeps_axes=0)]


@_many("extreme", {op.lower(): {"op": op} for op in ("REDUCE_MAX", "REDUCE_MIN")})
def extreme(d: Draft, op: str) -> Sequence[int]:
    x = d.given(2, 5, 6)
    return [d.op(op, [x, d.constant(np.array([1], np.int32))], d.like(x, 2, 1, 6), keeps_axes=1)]


@case
def prelu(d: Draft) -> Sequence[int]:
    x = d.given(1, 4, 5, 6)
    slopes = d.constant(d.rng.integers(-100, 100, (1, 1, 6)).astype(np.int8), [0.01], 0, [5])
    return [d.op("PRELU", [x, slopes], d.tensor(1, 4, 5, 6))]


@_many("l2_norm", {"one": {"columns": 1}, "few": {"columns": 3}, "many": {"columns": 300}, "f4": {"columns": 12, "dtype": "f4"}})
def l2_norm(d: Draft, columns: int, dtype: str = "i1") -> Sequence[int]:
    return [d.op("L2_NORMALIZATION", [d.given(16, columns, dtype=dtype)], d.tensor(16, columns, dtype=dtype, scale=1 / 128, zero=0))]


@_many("matrices", {"i1": {}, "swapped": {"swaps_y": 1}, "f4": {"dtype": "f4"}})
def matrices(d: Draft, swaps_y: int = 0, dtype: str = "i1") -> Sequence[int]:
    a, b = d.given(2, 5, 7, dtype=dtype), d.given(2, *((4, 7) if swaps_y else (7, 4)), dtype=dtype)
    return [d.op("BATCH_MATMUL", [a, b], d.tensor(2, 5, 4, dtype=dtype, scale=0.3), swaps_x=0, swaps_y=swaps_y)]


@_many("bilinear", {f"{name}{suffix}": {"dtype": dtype, **about} for dtype, suffix in (("f4", ""), ("i1", "_i1"))
                    for name, about in (("half_pixel", {"half_pixel": 1}), ("corners", {"align_corners": 1}), ("plain", {}))})  # fmt: skip
def bilinear(d: Draft, dtype: str, **options: int) -> Sequence[int]:
    x = d.given(1, 3, 4, 2, dtype=dtype)
    return [d.op("RESIZE_BILINEAR", [x, d.constant(np.array([7, 6], np.int32))], d.like(x, 1, 7, 6, 2), **options)]


@case
def arg_max(d: Draft) -> Sequence[int]:
    return [d.op("ARG_MAX", [d.given(3, 9), d.constant(np.array(1, np.int32))], d.tensor(3, dtype="i8"), kind=4)]


def _moved(op: str, shape: Sequence[int], result: Sequence[int], *lists: Any, **options: Any) -> None:
    def build(d: Draft) -> Sequence[int]:
        x = d.given(*shape)
        constants = [d.constant(np.array(each, np.int32)) for each in lists]
        return [d.op(op, [x, *constants], d.like(x, *result), **options)]

    CASES[f"move_{op.lower()}{sum(name.startswith(f'move_{op.lower()}') for name in CASES) or ''}"] = build


_moved("RESHAPE", (2, 6), (3, 4), [3, 4])
_moved("SQUEEZE", (2, 1, 6), (2, 6))
_moved("EXPAND_DIMS", (2, 6), (2, 1, 6), 1)
_moved("TRANSPOSE", (2, 3, 4), (4, 2, 3), [2, 0, 1])
_moved("PAD", (1, 3, 4, 2), (1, 6, 5, 2), [[0, 0], [1, 2], [0, 1], [0, 0]])
_moved("MIRROR_PAD", (4, 5), (7, 7), [[1, 2], [2, 0]], mode=0)
_moved("SLICE", (4, 6), (2, 4), [1, 2], [2, -1])
_moved("STRIDED_SLICE", (6, 7), (3, 3), [0, 1], [6, 7], [2, 2], begin_mask=1, end_mask=1)
_moved("STRIDED_SLICE", (6, 7), (7,), [2, 0], [3, 7], [1, -1], shrink_axis_mask=1, begin_mask=2, end_mask=2)
_moved("GATHER", (5, 6), (5, 3), [4, 0, 2], axis=1)
_moved("TILE", (2, 3), (4, 9), [2, 3])
_moved("BROADCAST_TO", (1, 4), (3, 4), [3, 4])
_moved("DEPTH_TO_SPACE", (1, 3, 2, 8), (1, 6, 4, 2), block=2)
_moved("SPACE_TO_DEPTH", (1, 4, 6, 3), (1, 2, 3, 12), block=2)
_moved("SPACE_TO_BATCH_ND", (1, 5, 6, 2), (4, 3, 4, 2), [2, 2], [[0, 1], [1, 1]])
_moved("BATCH_TO_SPACE_ND", (4, 3, 4, 2), (1, 5, 6, 2), [2, 2], [[0, 1], [1, 1]])
_moved("RESIZE_NEAREST_NEIGHBOR", (1, 3, 4, 2), (1, 7, 6, 2), [7, 6])
_moved("RESIZE_NEAREST_NEIGHBOR", (1, 3, 4, 2), (1, 7, 6, 2), [7, 6], half_pixel=1)
_moved("RESIZE_NEAREST_NEIGHBOR", (1, 3, 4, 2), (1, 7, 6, 2), [7, 6], align_corners=1)
_moved("REVERSE_V2", (3, 4), (3, 4), [1])


@case
def joined(d: Draft) -> Sequence[int]:
    a = d.given(2, 3, 4)
    d.inputs.append(b := d.like(a, 2, 2, 4))
    return [d.op("CONCATENATION", [a, b], d.like(a, 2, 5, 4), axis=-2)]


@case
def packed(d: Draft) -> Sequence[int]:
    a = d.given(2, 3)
    d.inputs.append(b := d.like(a, 2, 3))
    return [d.op("PACK", [a, b], d.like(a, 2, 2, 3), count=2, axis=1)]


@case
def divided(d: Draft) -> Sequence[int]:
    x = d.given(4, 6)
    parts = [d.like(x, 4, 3), d.like(x, 4, 3)]
    d.op("SPLIT", [d.constant(np.array(1, np.int32)), x], parts, count=2)
    rows = [d.like(x, 3) for _ in range(4)]
    d.op("UNPACK", [parts[1]], rows, count=4, axis=0)
    return [parts[0], *rows]


@case
def compared(d: Draft) -> Sequence[int]:
    a, b = d.given(3, 4, dtype="f4"), d.given(3, 4, dtype="f4")
    less = d.op("LESS", [a, b], d.tensor(3, 4, dtype="b1"))
    return [d.op("SELECT_V2", [less, a, b], d.tensor(3, 4, dtype="f4"))]


@_many("larger", {op.lower(): {"op": op} for op in ("MAXIMUM", "MINIMUM")})
def larger(d: Draft, op: str) -> Sequence[int]:
    a = d.given(3, 4)
    d.inputs.append(b := d.like(a))
    return [d.op(op, [a, b], d.like(a))]


@_many("svdf", {"i1": {}, "f4": {"dtype": "f4"}, "rank": {"rank": 2}})
def svdf(d: Draft, dtype: str = "i1", rank: int = 1, fused: int = 1) -> Sequence[int]:
    x, filters, memory = d.given(1, 12, dtype=dtype, scale=0.05), 6, 5
    if dtype == "f4":
        w, h = (d.constant(d.rng.normal(0, 0.4, shape).astype(np.float32)) for shape in ((filters, 12), (filters, memory)))
        bias = d.constant(d.rng.normal(0, 1, filters // rank).astype(np.float32))
    else:
        w = d.constant(d.rng.integers(-127, 128, (filters, 12)).astype(np.int8), [0.004])
        h = d.constant(d.rng.integers(-6000, 6000, (filters, memory)).astype(np.int16), [0.00003])
        bias = d.constant(d.rng.integers(-2000, 2000, filters // rank).astype(np.int32), [0.00003 * 0.0002])
    state = d.variable(1, filters * memory, dtype="f4" if dtype == "f4" else "i2", scale=0.0002, zero=0)
    return [d.op("SVDF", [x, w, h, bias, state], d.tensor(1, filters // rank, dtype=dtype, scale=0.02), rank=rank, fused=fused)]


@_many("lstm", {"i1": {}, "f4": {"dtype": "f4"}, "time_major": {"time_major": 1}, "f4_clipped": {"dtype": "f4", "clip": 0.3},
                "clipped": {"clip": 0.3}, "long": {"time": 28}})  # fmt: skip
def lstm(d: Draft, dtype: str = "i1", time_major: int = 0, clip: float = 0.0, time: int = 4) -> Sequence[int]:
    batch, width, units = 1, 6, 5
    extents = (time, batch) if time_major else (batch, time)
    x = d.given(*extents, width, dtype=dtype, scale=0.02)
    is_float, states = dtype == "f4", {"dtype": dtype, "scale": 1 / 128, "zero": 3}

    def weights(columns: int) -> list[int]:
        if is_float:
            return [d.constant(d.rng.normal(0, 0.5, (units, columns)).astype(np.float32)) for _ in range(4)]
        return [d.constant(d.rng.integers(-127, 128, (units, columns)).astype(np.int8), [0.005 + 0.003 * at]) for at in range(4)]

    w, r = weights(width), weights(units)
    if is_float:
        biases = [d.constant(d.rng.normal(0, 0.3, units).astype(np.float32)) for _ in range(4)]
    else:
        biases = [d.constant(d.rng.integers(-3000, 3000, units).astype(np.int32), [0.02 * (0.005 + 0.003 * at)]) for at in range(4)]
    hidden, cell = d.variable(batch, units, **states), d.variable(batch, units, dtype="f4" if is_float else "i2", scale=2.0**-11, zero=0)
    y = d.tensor(*extents, units, **states)
    between = () if is_float else [d.tensor(1, dtype="i2", scale=2.0**-12, zero=0) for _ in range(4)] + [d.tensor(1, **states)]
    inputs = [x, *w, *r, -1, -1, -1, *biases, -1, -1, hidden, cell, -1, -1, -1, -1]
    return [d.op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, y, between, fused=4, cell_clip=clip, time_major=time_major)]


@case
def from_float_to_float(d: Draft) -> Sequence[int]:
    x = d.given(1, 6, 6, 2, dtype="f4")
    q = d.op("QUANTIZE", [x], d.tensor(1, 6, 6, 2, scale=0.05))
    y = d.op("CONV_2D", [q, *d.weights(q, (3, 3, 3, 2), 0, 3)], d.tensor(1, 6, 6, 3, scale=0.1), **_WINDOW)
    return [d.op("DEQUANTIZE", [y], d.tensor(1, 6, 6, 3, dtype="f4"))]


@case
def residual_network(d: Draft) -> Sequence[int]:
    """A block of a residual network with a pool, a dense layer and a softmax behind it."""
    x = d.given(1, 8, 8, 4)
    front = d.op("CONV_2D", [x, *d.weights(x, (4, 3, 3, 4), 0, 4)], d.tensor(1, 8, 8, 4, scale=0.2), **_WINDOW, fused=1)
    back = d.op("CONV_2D", [front, *d.weights(front, (4, 3, 3, 4), 0, 4)], d.tensor(1, 8, 8, 4, scale=0.4), **_WINDOW)
    total = d.op("ADD", [x, back], d.tensor(1, 8, 8, 4, scale=0.4), fused=1)
    pooled = d.op("AVERAGE_POOL_2D", [total], d.like(total, 1, 1, 1, 4), padding=1, stride_w=8, stride_h=8, filter_w=8, filter_h=8)
    flat = d.op("RESHAPE", [pooled, d.constant(np.array([1, 4], np.int32))], d.like(total, 1, 4))
    scores = d.op("FULLY_CONNECTED", [flat, *d.weights(flat, (10, 4), 0, 10, False)], d.tensor(1, 10, scale=0.2))
    return [d.op("SOFTMAX", [scores], d.tensor(1, 10, scale=1 / 256, zero=-128), beta=1.0)]


def interpret(content: bytes, samples: Sequence[Sequence[np.ndarray]], reference: bool = True) -> list[list[np.ndarray]]:
    """What LiteRT computes, with its reference kernels or those that it takes by itself; samples are steps of one sequence."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    results = []
    for sample in samples:
        for about, array in zip(interpreter.get_input_details(), sample, strict=True):
            interpreter.set_tensor(about["index"], array)
        interpreter.invoke()
        results.append([interpreter.get_tensor(about["index"]).copy() for about in interpreter.get_output_details()])
    return results


def expected(name: str) -> Iterator[list[np.ndarray]]:
    """The outputs that are stored for each sample of a case."""
    with np.load(EXPECTED) as arrays:
        keys = sorted(key for key in arrays if key.rpartition(" ")[0].rpartition(" ")[0] == name)
        for sample in sorted({key.split(" ")[1] for key in keys}):
            yield [arrays[key] for key in keys if key.split(" ")[1] == sample]
