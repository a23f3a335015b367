"""Nodes that kernels of every operator are tried on: small, odd and large extents, borders, strides, broadcasts.

``deeploy target check`` runs each kernel of a target on those that it accepts, in its element types, whole, in tiles and in parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deeploy.graph.kernel import Sample

_ROWS = ((1,), (70,), (3, 65), (2, 3, 4, 16), (5, 1, 7))
_PAIRS = (((7,), (7,)), ((4, 1, 6), (3, 1)), ((3, 70), (70,)), ((2, 5, 7, 8), (2, 5, 7, 8)), ((2, 3, 16), (1,)))


def _conv(
    x: tuple[int, ...], w: tuple[int, ...], strides: int = 1, dilation: int = 1, pads: int = 0, group: int = 1, zero: int = 0
) -> Sample:
    attrs = {"strides": (strides, strides), "dilations": (dilation, dilation), "pads": (pads,) * 4, "group": group, "zero_point": zero}
    return Sample({"x": x, "w": w}, attrs)


_CONV = (
    _conv((1, 6, 7, 3), (4, 3, 3, 3), pads=1, zero=5),
    _conv((1, 9, 8, 16), (10, 16, 3, 3), strides=2, pads=1),
    _conv((2, 5, 6, 17), (7, 17, 1, 1)),
    _conv((1, 9, 9, 2), (3, 2, 3, 3), dilation=2, pads=2, zero=3),
    _conv((1, 8, 7, 8), (8, 1, 3, 3), pads=1, group=8, zero=5),
    _conv((1, 9, 9, 13), (13, 1, 3, 3), strides=2, pads=1, group=13),
    _conv((1, 5, 5, 6), (4, 3, 3, 3), pads=1, group=2, zero=1),
    _conv((1, 4, 4, 64), (33, 64, 3, 3), pads=1, zero=7),
    _conv((1, 1, 1, 5), (1, 5, 1, 1)),
)
_TRANSPOSED = tuple(
    Sample(
        {"x": x, "w": w}, {"strides": (s, s), "dilations": (1, 1), "pads": (p,) * 4, "group": 1, "zero_point": 3, "output_padding": (0, 0)}
    )
    for x, w, s, p in (((1, 5, 4, 3), (3, 5, 3, 3), 1, 1), ((1, 4, 5, 6), (6, 2, 2, 2), 2, 0), ((2, 3, 3, 1), (1, 4, 3, 3), 2, 1))
)
_PLAIN = {"trans_a": False, "trans_b": False, "a_zero_point": 0, "b_zero_point": 0}
_MATMUL = tuple(
    Sample({"a": a, "b": b}, {**_PLAIN, **attrs})
    for a, b, attrs in (
        ((5, 7), (7, 9), {}),
        ((1, 30), (30, 140), {"a_zero_point": 5, "b_zero_point": -3}),
        ((6, 17), (17, 1), {}),
        ((2, 3, 8), (8, 20), {}),
        ((2, 4, 16), (2, 16, 5), {}),
        ((4, 6), (5, 6), {"trans_b": True}),
        ((6, 4), (6, 5), {"trans_a": True}),
        ((2, 1, 4, 6), (3, 6, 10), {}),
        ((1, 1), (1, 1), {}),
    )
)


def _pool(x: tuple[int, ...], kernel: int, strides: int, pads: int, **more: Any) -> Sample:
    attrs = {"kernel": (kernel, kernel), "strides": (strides, strides), "dilations": (1, 1), "pads": (pads,) * 4}
    return Sample({"x": x}, {**attrs, **more})


_POOLS = (((1, 6, 7, 5), 2, 2, 0), ((2, 7, 5, 12), 3, 1, 1), ((1, 8, 8, 3), 8, 1, 0), ((1, 9, 9, 1), 3, 2, 1))
_MAX_POOL = tuple(_pool(*pool) for pool in _POOLS)
_AVERAGE_POOL = tuple(_pool(*pool, count_include_pad=bool(i % 2), zero_point=2) for i, pool in enumerate(_POOLS))
_REDUCE = tuple(
    Sample({"x": x}, {"axes": axes, "keepdims": keep})
    for x, axes, keep in (
        ((3, 5, 7), (1,), True),
        ((4, 6, 9), (1, 2), False),
        ((2, 8, 8, 5), (1, 2), True),
        ((70,), (0,), True),
        ((5, 6, 8), (0,), False),
    )
)
_ELEMENTWISE = tuple(Sample({"a": a, "b": b}) for a, b in _PAIRS)
_X = tuple(Sample({"x": x}) for x in _ROWS)


def _each(samples: tuple[Sample, ...], *attrs: Mapping[str, Any]) -> tuple[Sample, ...]:
    return tuple(Sample(s.shapes, {**s.attrs, **more}, s.arrays) for s in samples for more in attrs)


def _with(arrays: Mapping[str, np.ndarray], attrs: Mapping[str, Any]) -> tuple[Sample, ...]:
    return tuple(Sample({"x": x}, attrs, arrays) for x in _ROWS)


_EXPONENTIALS = np.rint(np.exp(-np.arange(256) / 30) * 2**20).astype(np.uint32)
_SCALED_ADD = {"mul_a": 1 << 29, "mul_b": -(3 << 28), "add": (1 << 29) + (7 << 30), "shift": 30, "low": -128, "high": 127}
_SCALED_DIV = {"a_zero_point": 1, "b_zero_point": -2, "mul": 3 << 20, "shift": 20, "zero_point": 4, "low": -128, "high": 127}
_FUNCTIONS = (
    "leaky_relu",
    "sigmoid",
    "tanh",
    "hard_swish",
    "exp",
    "erf",
    "abs",
    "neg",
    "gelu",
    "silu",
    "floor",
    "round",
    "elu",
    "softplus",
)
_UNARY = tuple({"function": name, "alpha": 1.0 if name in ("silu", "elu") else 0.2, "beta": 0.5} for name in _FUNCTIONS)
_CHOSEN = (
    "max",
    "min",
    "equal",
    "not_equal",
    "less",
    "less_or_equal",
    "greater",
    "greater_or_equal",
    "and",
    "or",
    "add",
    "sub",
    "mul",
    "div",
)
_LAST = tuple(x[-1] for x in _ROWS)
_RESIDUAL = {"shift": 14, "low": -100, "high": 127, "mul_a": 3 << 13, "mul_b": -(1 << 14), "offset": (1 << 14) + (5 << 15)}
_RESIDUAL |= {"shift_sum": 15, "low_sum": 0, "high_sum": 120}

_TURNED = np.clip(-np.arange(-128, 128), -128, 127)
_ROTATION = {"cosine": (3, -4, 3000, 1 << 11, 12, -128, 127, -1), "sine": (0, 5, 2500, 0, 12, -128, 127, 0)}
_ROTATED = tuple(
    sample
    for x, angles in (((2, 3, 16), (3, 16)), ((1, 2), (2,)), ((2, 4, 3, 10), (1, 3, 10)))
    for sample in (
        Sample({"x": x, "cosine": angles, "sine": angles}),
        Sample(
            {"x": x, "cosine": angles, "sine": angles},
            {**_ROTATION, "sum": (1 << 10, 900, 1 << 9, 11, -128, 127, -1)},
            {"table": np.stack([_TURNED, np.arange(-128, 128)]).astype(np.int8)},
        ),
    )
)

SAMPLES: Mapping[str, tuple[Sample, ...]] = {
    "Conv": _CONV,
    "ConvTranspose": _TRANSPOSED,
    "MatMul": _MATMUL,
    "MaxPool": _MAX_POOL,
    "AveragePool": _AVERAGE_POOL,
    "ArgMax": _each(_X, *({"smallest": smallest, "last": not smallest} for smallest in (True, False))),
    **dict.fromkeys(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "IntegerMean"), _REDUCE),
    **dict.fromkeys(("Add", "Sub", "Div"), _ELEMENTWISE),
    "Mul": _each(_ELEMENTWISE, {"a_zero_point": 3, "b_zero_point": -4}),
    "ResidualSum": tuple(
        Sample({"x": (terms, *s), "b": s}, {**_RESIDUAL, **even}, {"mul": np.arange(900, 900 + channels, dtype=np.int32), "add": add})
        for s, terms, channels, even, add in (
            ((70,), 4, 1, {}, np.array([1 << 13], np.int32)),
            ((2, 5, 7), 5, 7, {}, np.full(7, 9 << 13, np.int64)),
            ((3, 1, 16), 2, 1, {"even_sum": 1}, np.array([1 << 13], np.int64)),
            ((1, 2, 9), 1, 9, {"even": 0}, np.full(9, 5 << 12, np.int32)),
        )
    ),
    "ScaledAdd": _each(_ELEMENTWISE, _SCALED_ADD),
    "ScaledDiv": _each(_ELEMENTWISE, _SCALED_DIV),
    "RequantAdd": _each(
        _ELEMENTWISE,
        {f"{name}_{side}": value for side in "ab" for name, value in dict(mul=3, add=64, shift=7, low=-100, high=90).items()},
    ),
    "RequantShift": tuple(Sample({"x": x, "mul": (x[-1],), "add": (x[-1],)}, {"shift": 12, "low": -128, "high": 127}) for x in _ROWS),
    "Lookup": tuple(Sample({"x": x, "table": (256,)}) for x in _ROWS),
    "Quantize": tuple(
        Sample({"x": x}, {"low": -128, "high": 127}, {"scale": np.array(0.25, np.float32), "zero_point": np.array(3, np.int32)})
        for x in _ROWS
    ),
    "Dequantize": tuple(Sample({"x": x}, {}, {"scale": np.array(0.25, np.float32), "zero_point": np.array(3, np.int32)}) for x in _ROWS),
    "Clip": _each(_X, {"low": -5, "high": 9}, {"low": None, "high": 3}),
    "Unary": _each(_X[2:3], *_UNARY),
    "Copy": _X,
    "Expand": tuple(
        Sample({"x": x, "y": y}) for x, y in (((1,), (70,)), ((3, 1), (3, 65)), ((2, 1, 4, 1), (2, 3, 4, 5)), ((4, 1, 7), (4, 9, 7)))
    ),
    "Rotate": _ROTATED,
    "Cast": _X,
    "Softmax": (*_X, *_with({"table": _EXPONENTIALS}, {"levels": 255, "zero_point": 0, "low": 0, "high": 255, "smallest": 0})),
    "ShiftSoftmax": tuple(Sample({"x": x}, {"group": min(8, x[-1]), "numerator": 127 * 256}) for x in _ROWS),
    "Normalise": tuple(
        Sample({"x": x, "scale": (n,), "offset": (n,)}, {"centred": True, "epsilon": 1e-5}) for x, n in zip(_ROWS, _LAST, strict=True)
    ),
    "Standardise": _each(_X, *({"centred": c, "zero_point": 9, "fraction": 20, "epsilon": 1 << 18} for c in (True, False))),
    "IntegerLayerNorm": tuple(Sample({"x": x, "weight": (n,), "bias": (n,)}, {"shift": 3}) for x, n in zip(_ROWS, _LAST, strict=True)),
    "IntegerRMSNorm": tuple(Sample({"x": x, "weight": (n,)}, {"shift": 3}) for x, n in zip(_ROWS, _LAST, strict=True)),
    "IntegerFunction": _each(
        _X, {"function": "gelu", "a": -83, "b": 6889, "c": 0}, {"function": "hard_swish", "a": 122, "b": 245, "c": 42}
    ),
    "IntegerDiv": _each(_ELEMENTWISE, {"factor": 255 * 17, "scale": 17, "offset": -17 * 9}),
    "Binary": _each(_ELEMENTWISE[1:3], *({"function": name} for name in _CHOSEN)),
    "Where": tuple(Sample({"condition": a, "a": a, "b": b}) for a, b in _PAIRS[2:4]),
    "Pad": tuple(
        Sample({"x": (3, 5, 4)}, {"pads": (0, 1, 2, 0, 2, 1), "mode": mode, "value": 0}) for mode in ("constant", "reflect", "edge")
    ),
    "Gather": tuple(
        Sample({"x": (7, 5)}, {"axis": axis}, {"indices": np.array([0, 3, -1], kind)}) for axis in (0, 1) for kind in (np.int32, np.int64)
    ),
}
