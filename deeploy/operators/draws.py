"""Random nodes of every operator of the integer form, drawn over what docs/integer-form.md allows it, for the test of kernels alone.

A drawn node has extents of 1, 2, odd and larger ones, broadcast axes, all attributes, borders on every side. Whether a kernel accepts
it is not decided here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np

from deeploy.graph.kernel import Sample
from deeploy.graph.nodes import Attributes
from deeploy.graph.types import Array
from deeploy.operators import elementwise, pairs
from deeploy.operators.integer_recurrent import STEPS
from deeploy.operators.recurrent import GATES

EXTENTS = (1, 1, 2, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17)
LONG = (33, 64, 70, 129)  # extents of one axis now and then
ELEMENTS = 700  # of an operand, at most

Draw = Callable[[Random], Sample]


def draw(op: str, rng: Random) -> Sample | None:
    """A random node of an operator; None for operators that are not of the integer form."""
    return DRAWS[op](rng) if op in DRAWS else None


def extent(rng: Random) -> int:
    return rng.choice(EXTENTS)


def shape(rng: Random, least: int = 1, most: int = 5) -> tuple[int, ...]:
    """Extents of ``least`` to ``most`` axes."""
    while True:
        found = [extent(rng) for _ in range(rng.randint(least, most))]
        if found and rng.random() < 0.25:
            found[rng.randrange(len(found))] = rng.choice(LONG)
        if found and rng.random() < 0.25:  # of rows of one element kernels assume most
            found[-1] = 1
        if math.prod(found) <= ELEMENTS:
            return tuple(found)


def broadcast(rng: Random, full: tuple[int, ...]) -> tuple[int, ...]:
    """Extents that NumPy broadcasts to ``full``: some axes of extent 1, some outer ones left out."""
    found = tuple(1 if rng.random() < 0.3 else n for n in full)
    return found[rng.randrange(len(found)) if rng.random() < 0.25 else 0 :]


def pair(rng: Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents of two operands of an elementwise operator."""
    full = shape(rng, most=6)
    kind = rng.randrange(4)
    if kind == 0:
        return full, full
    if kind == 1:
        return full, broadcast(rng, full)
    return (broadcast(rng, full), full) if kind == 2 else (broadcast(rng, full), broadcast(rng, full))


def _array(rng: Random, size: tuple[int, ...], low: int, high: int, dtype: type = np.int32) -> Array:
    """Values of both ends and between, all equal now and then."""
    values = np.random.default_rng(rng.getrandbits(32)).integers(low, high, size, endpoint=True)
    return np.asarray(values if rng.random() < 0.7 else np.full(size, rng.randint(low, high)), dtype)


def _floats(rng: Random, size: tuple[int, ...], low: float, high: float) -> Array:
    return np.random.default_rng(rng.getrandbits(32)).uniform(low, high, size).astype(np.float32)


def _factors(rng: Random, shift: int) -> tuple[int, int]:
    """A multiplier and a summand of a requantisation that keeps the order of magnitude; half a step and a zero point in the summand."""
    mul = max(1, int(rng.choice((0.3, 0.7, 1, 1.9)) * 2**shift))
    return mul, (1 << shift >> 1) + (rng.randint(-20, 20) << shift)


def _limits(rng: Random) -> tuple[int, int]:
    return rng.choice(((-128, 127), (0, 127), (-100, 90), (-128, 0), (0, 255), (3, 11)))


def _window(
    rng: Random, outputs: tuple[int, ...] = (1, 1, 2, 3, 5, 8, 9, 11), beyond: int = 0
) -> tuple[dict[str, Any], tuple[int, int], tuple[int, int]]:
    """Attributes of a sliding window, its height and width, and the height and width of an image of which it has so many ``outputs``.

    Padding is up to ``beyond`` indices wider than what keeps a tap of every window inside of a large image.
    """
    size = rng.choice(((1, 1), (3, 3))) if rng.random() < 0.5 else (rng.choice((1, 1, 2, 3, 4, 5)), rng.choice((1, 1, 2, 3, 4, 5)))
    strides = (rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 3)))
    dilations = (1, 1) if rng.random() < 0.7 else (rng.choice((1, 2, 3)), rng.choice((1, 2)))
    reach = [d * (n - 1) + 1 for d, n in zip(dilations, size, strict=True)]
    pads = [0] * 4
    kind = rng.randrange(3)
    if kind == 1:
        pads = [reach[0] // 2, reach[1] // 2] * 2
    if kind == 2:
        pads = [rng.randint(0, reach[axis % 2] - 1 + beyond) for axis in range(4)]
    extents = []
    for axis in range(2):
        padded = (rng.choice(outputs) - 1) * strides[axis] + reach[axis] + rng.randrange(strides[axis])
        extents.append(max(1, padded - pads[axis] - pads[axis + 2]))
    return {"strides": strides, "dilations": dilations, "pads": tuple(pads)}, size, (extents[0], extents[1])


def _zero_point(rng: Random) -> int:
    return rng.choice((0, 0, 3, 127, -5, -128))


def _conv(rng: Random) -> Sample:
    kind = rng.choice(("dense", "dense", "dense", "long", "depthwise", "multiplied", "grouped"))
    attrs, (fh, fw), (height, width) = _window(rng, (1, 2, 3), 1) if kind == "long" else _window(rng, beyond=1)
    groups, channels, filters = 1, rng.choice((*EXTENTS, 33)), rng.choice((*EXTENTS, 33))
    if kind == "long":
        channels, filters = rng.choice((96, 390, 640)), rng.choice((1, 3, 4, 9))
    if kind == "depthwise":
        groups, channels, filters = rng.choice((2, 3, 4, 5, 8, 13, 16, 17, 33)), 1, 1
    if kind == "multiplied":
        groups, channels, filters = rng.choice((2, 3, 5, 8)), 1, rng.choice((1, 2, 3))
    if kind == "grouped":
        groups, channels, filters = rng.choice((2, 3, 4)), rng.choice((2, 3, 4, 8, 17)), rng.choice((1, 2, 3, 5))
    shapes = {"x": (rng.choice((1, 1, 2)), height, width, groups * channels), "w": (groups * filters, channels, fh, fw)}
    return Sample(shapes, {**attrs, "group": groups, "zero_point": _zero_point(rng)})


def _conv_transpose(rng: Random) -> Sample:
    attrs, (fh, fw), _ = _window(rng, beyond=1)
    groups, channels, filters = rng.choice((1, 1, 2, 3)), rng.choice((1, 2, 3, 5, 8)), rng.choice((1, 2, 4, 5))
    shapes = {
        "x": (rng.choice((1, 1, 2)), rng.choice((1, 2, 3, 5)), rng.choice((1, 2, 3, 5)), groups * channels),
        "w": (groups * channels, filters, fh, fw),
    }
    padding = tuple(rng.randrange(n) for n in attrs["strides"])
    return Sample(shapes, {**attrs, "group": groups, "zero_point": _zero_point(rng), "output_padding": padding})


def _matmul(rng: Random) -> Sample:
    m, n, k = extent(rng), rng.choice((*EXTENTS, 33)), rng.choice((*EXTENTS, 33, 130))
    batch = shape(rng, 1, 4) if rng.random() < 0.5 else ()
    while math.prod(batch) > 12:
        batch = shape(rng, 1, 4)
    left, right = (batch, batch) if rng.random() < 0.5 or not batch else (broadcast(rng, batch), broadcast(rng, batch))
    if rng.random() < 0.3:
        right = ()
    trans_a, trans_b = rng.random() < 0.25, rng.random() < 0.5
    zero_points = {"a_zero_point": _zero_point(rng), "b_zero_point": _zero_point(rng)} if rng.random() < 0.4 else {}
    return Sample(
        {"a": (*left, *((k, m) if trans_a else (m, k))), "b": (*right, *((n, k) if trans_b else (k, n)))},
        {"trans_a": trans_a, "trans_b": trans_b, "a_zero_point": 0, "b_zero_point": 0, **zero_points},
    )


def _block_matmul(rng: Random) -> Sample:
    m, n, k = extent(rng), rng.choice((*EXTENTS, 33)), rng.choice((*EXTENTS, 64, 130))
    batch, size = (shape(rng, 1, 2) if rng.random() < 0.3 else ()), rng.choice((3, 4, 8, 16, 32))
    while math.prod(batch) > 12:
        batch = shape(rng, 1, 2)
    blocks = (n, -(-k // size))
    arrays = {"scales": _floats(rng, blocks, 0.01, 0.3)} | ({"zeros": _array(rng, blocks, 0, 15, np.uint8)} if rng.random() < 0.5 else {})
    return Sample({"a": (*batch, m, k), "b": (n, k), "y": (*batch, m, n)}, {"size": size}, arrays)


def _pool(rng: Random) -> Sample:
    attrs, kernel, (height, width) = _window(rng)
    x = rng.choice((1, 1, 2)), height, width, rng.choice((*EXTENTS, 33))
    return Sample({"x": x}, {**attrs, "kernel": kernel, "count_include_pad": rng.random() < 0.5, "zero_point": _zero_point(rng)})


def _reduce(rng: Random) -> Sample:
    x = shape(rng)
    axes = tuple(axis for axis in range(len(x)) if rng.random() < 0.5) or (rng.randrange(len(x)),)
    axes = (0,) if rng.random() < 0.3 else axes
    return Sample({"x": x}, {"axes": axes, "keepdims": rng.random() < 0.5})


def _elementwise(attrs: Callable[[Random], Attributes] = lambda rng: {}) -> Draw:
    def made(rng: Random) -> Sample:
        a, b = pair(rng)
        return Sample({"a": a, "b": b}, attrs(rng))

    return made


def _of_x(attrs: Callable[[Random], Attributes] = lambda rng: {}, least: int = 1, most: int = 6) -> Draw:
    return lambda rng: Sample({"x": shape(rng, least, most)}, attrs(rng))


def _scaled_add(rng: Random) -> Attributes:
    shift = rng.choice((7, 12, 20, 30))
    (mul_a, add), (mul_b, _), (low, high) = _factors(rng, shift), _factors(rng, shift), _limits(rng)
    even = {"even": rng.randrange(2)} if rng.random() < 0.3 else {}
    return {"mul_a": mul_a, "mul_b": rng.choice((1, -1)) * mul_b, "add": add, "shift": shift, "low": low, "high": high, **even}


def _scaled_div(rng: Random) -> Attributes:
    shift, (low, high) = rng.choice((3, 12, 20)), _limits(rng)
    zero_points = {name: rng.randint(-5, 5) for name in ("a_zero_point", "b_zero_point", "zero_point")}
    return {**zero_points, "mul": rng.randint(1, 50) << shift, "shift": shift, "low": low, "high": high}


def _requant_add(rng: Random) -> Attributes:
    found: dict[str, Any] = {}
    for side in "ab":
        shift = rng.choice((0, 7, 12, 20))
        (mul, add), (low, high) = _factors(rng, shift), rng.choice(((-128, 127), (-100, 90), (0, 255)))
        found |= {f"{name}_{side}": value for name, value in dict(mul=mul, add=add, shift=shift, low=low, high=high).items()}
    return found


def _requant_shift(rng: Random) -> Sample:
    x, shift = shape(rng, most=6), rng.choice((0, 7, 12, 24, 36))
    parameters = [(1,), (x[-1],), broadcast(rng, x)][rng.randrange(3)]
    size = min(2**shift, 2**31 - 1)
    low, high = _limits(rng)
    is_wide = shift > 20 or rng.random() < 0.5
    mul = _array(rng, parameters, max(1, size // 3), size)
    add = _array(rng, parameters, -(20 << shift), 20 << shift, np.int64 if is_wide else np.int32)
    return Sample({"x": x}, {"shift": shift, "low": low, "high": high}, {"mul": mul, "add": add})


def _residual_sum(rng: Random) -> Sample:
    s, terms, shift = shape(rng, most=4), rng.choice((1, 2, 3, 4, 8)), rng.choice((7, 14, 20))
    channels = rng.choice((1, s[-1]))
    mul, offset = _factors(rng, 15)
    is_wide = rng.random() < 0.5
    arrays = {
        "mul": _array(rng, (channels,), 1 << shift >> 5, 1 << shift >> 3),
        "add": _array(rng, (channels,), -(20 << shift), 20 << shift, np.int64 if is_wide else np.int32),
    }
    (low, high), (low_sum, high_sum) = rng.choice(((-128, 127), (-100, 127))), _limits(rng)
    attrs = {"shift": shift, "low": low, "high": high, "mul_a": mul, "mul_b": rng.choice((1, -1)) * mul // 2, "offset": offset}
    attrs |= {"shift_sum": 15, "low_sum": low_sum, "high_sum": high_sum}
    attrs |= {name: rng.randrange(2) for name in ("even", "even_sum") if rng.random() < 0.3}
    return Sample({"x": (terms, *s), "b": s}, attrs, arrays)


def _quantize(rng: Random) -> Sample:
    x = shape(rng, most=6)
    parameters = [(), (1,), (x[-1],), broadcast(rng, x)][rng.randrange(4)]
    low, high = _limits(rng)
    arrays = {"scale": _floats(rng, parameters, 0.01, 0.3), "zero_point": _array(rng, parameters, -5, 100)}
    return Sample({"x": x}, {"low": low, "high": high}, arrays)


def _dynamic_scale(rng: Random) -> Sample:
    count = (rng.randint(1, 9),)
    return Sample({"low": count, "high": count}, {}, {"low": _floats(rng, count, -3, 1), "high": _floats(rng, count, -1, 4)})


def _decision_trees(rng: Random) -> Sample:
    """Trees of two levels, whose nodes are those of a heap, three branches and four leaves each."""
    rows, features, targets, count = rng.randint(1, 9), rng.randint(1, 5), rng.randint(1, 4), rng.randint(1, 5)
    nodes, entries, roots = list[list[int]](), 0, [7 * tree for tree in range(count)]
    for root in roots:
        nodes += [[rng.randrange(features), rng.randrange(6) + 8 * rng.randrange(2), root + 2 * i + 1, root + 2 * i + 2] for i in range(3)]
        for _ in range(4):
            added = rng.randint(0, 2)
            nodes.append([-1, 0, entries, added])
            entries += added
    arrays = {
        "nodes": np.array(nodes, np.int32),
        "thresholds": _floats(rng, (7 * count,), -1, 1),
        "roots": np.array(roots, np.int32),
        "targets": _array(rng, (max(1, entries),), 0, targets - 1, np.int32),
        "weights": _floats(rng, (max(1, entries),), -1, 1),
    }
    attributes = {"aggregate": rng.choice(("SUM", "AVERAGE", "MIN", "MAX")), "targets": targets}
    return Sample({"x": (rows, features), "y": (rows, targets)}, attributes, arrays)


def _coupling(rng: Random) -> Sample:
    rows, classes = rng.randint(1, 9), rng.randint(2, 7)
    pairs = (rows, classes * (classes - 1) // 2)
    return Sample({"x": pairs, "y": (rows, classes)}, {"classes": classes}, {"x": _floats(rng, pairs, 0.01, 0.99)})


_POSITIVE = ("log", "sqrt", "pow", "reciprocal")
_DOMAINS = {
    **dict.fromkeys(_POSITIVE, (0.1, 4)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.9, 0.9)),
    "acosh": (1.1, 4),
    "tan": (-1.2, 1.2),
}


def _unary(rng: Random) -> Sample:
    x, function = shape(rng, most=6), rng.choice(sorted(elementwise.FUNCTIONS))
    values = _floats(rng, x, *_DOMAINS.get(function, (-4, 4)))
    return Sample({"x": x}, {"function": function, "alpha": rng.choice((0.2, 1.0, 1.5)), "beta": 0.5}, {"x": values})


def _softmax(rng: Random) -> Sample:
    x = shape(rng)
    if rng.random() < 0.4:
        return Sample({"x": x})
    levels, top = rng.choice((255, 256, 127)), rng.choice((20, 23, 30))
    table = np.rint(np.exp(-np.arange(256) / rng.choice((3, 30))) * 2**top).astype(np.uint32)
    low, high = rng.choice(((0, 255), (-128, 127), (0, 100)))
    attrs = {
        "levels": levels,
        "zero_point": rng.choice((0, -128)),
        "low": low,
        "high": high,
        "smallest": low,
        "rounded": rng.random() < 0.5,
    }
    results = {}
    if rng.random() < 0.4:
        results = {"results": _array(rng, (high - low + 1,), 0, 127, rng.choice((np.int8, np.uint8)))}
    return Sample({"x": x}, attrs, {"table": table, **results})


def _shift_softmax(rng: Random) -> Sample:
    x = shape(rng)
    return Sample({"x": x}, {"group": rng.randint(1, min(9, x[-1])), "numerator": rng.choice((127, 255)) * 256})


def _normalise(rng: Random) -> Sample:
    x = shape(rng)
    shapes = {"x": x, "scale": (x[-1],), **({"offset": (x[-1],)} if rng.random() < 0.5 else {})}
    return Sample(shapes, {"centred": rng.random() < 0.5, "epsilon": 1e-5})


def _standardise(rng: Random) -> Attributes:
    fraction = rng.choice((8, 16, 20))
    return {"centred": rng.random() < 0.5, "zero_point": rng.randint(-9, 9), "fraction": fraction, "epsilon": rng.choice((1, 1 << 18))}


def _integer_norm(*per_element: str) -> Draw:
    def made(rng: Random) -> Sample:
        x = shape(rng)
        return Sample({"x": x, **dict.fromkeys(per_element, (x[-1],))}, {"shift": rng.randint(0, 8)})

    return made


def _integer_function(rng: Random) -> Attributes:
    if rng.random() < 0.5:
        return {"function": "gelu", "a": -rng.randint(20, 120), "b": rng.randint(1000, 9000), "c": 0}
    return {"function": "hard_swish", "a": rng.randint(0, 200), "b": rng.randint(0, 300), "c": rng.randint(1, 60)}


def _binary(rng: Random) -> Sample:
    a, b = pair(rng)
    function = rng.choice(sorted(pairs.FUNCTIONS))
    arrays = {"a": _floats(rng, a, 0.1, 3), "b": _floats(rng, b, -2, 2)} if function == "pow" else {}
    return Sample({"a": a, "b": b}, {"function": function}, arrays)


def _where(rng: Random) -> Sample:
    a, b = pair(rng)
    return Sample({"condition": broadcast(rng, np.broadcast_shapes(a, b)), "a": a, "b": b})


def _expand(rng: Random) -> Sample:
    y = shape(rng, most=6)
    return Sample({"x": tuple(1 if rng.random() < 0.5 else n for n in y), "y": y})


def _pad(rng: Random) -> Sample:
    x, mode = shape(rng, most=4), rng.choice(("constant", "reflect", "edge"))
    most = [n - 1 if mode == "reflect" else 3 for n in x] * 2
    pads = [rng.randint(0, min(3, n)) if rng.random() < 0.6 else 0 for n in most]
    if mode == "constant" and x[0] > 2 and rng.random() < 0.3:
        pads[0] = -1
    return Sample({"x": x}, {"pads": tuple(pads), "mode": mode, "value": rng.choice((0, 1, 7))})


def _gather(rng: Random) -> Sample:
    x = shape(rng, most=4)
    axis = rng.randrange(len(x))
    indices = _array(rng, shape(rng, 0, 2) if rng.random() < 0.8 else (), -x[axis], x[axis] - 1, rng.choice((np.int32, np.int64)))
    return Sample({"x": x}, {"axis": axis}, {"indices": indices})


def _rotate(rng: Random) -> Sample:
    *outer, row = shape(rng)
    x = (*outer, 2 * row)
    angles = (*broadcast(rng, x)[:-1], x[-1])
    shapes, interleaved = {"x": x, "cosine": angles, "sine": angles}, rng.random() < 0.5
    if rng.random() < 0.5:
        return Sample(shapes, {"interleaved": interleaved})
    parity = [rng.choice((-1, 0, 1)) for _ in range(3)]
    attrs = {
        "interleaved": interleaved,
        "cosine": (rng.randint(-5, 5), rng.randint(-5, 5), rng.randint(1, 4000), 1 << 11, 12, -128, 127, parity[0]),
        "sine": (rng.randint(-5, 5), rng.randint(-5, 5), rng.randint(1, 4000), 0, 12, -128, 127, parity[1]),
        "sum": (1 << 10, rng.randint(100, 1000), 1 << 9, 11, *_limits(rng), parity[2]),
    }
    return Sample(shapes, attrs, {"table": _array(rng, (2, 256), 0, 127, rng.choice((np.int8, np.uint8)))})


def _recurrent(op: str) -> Draw:
    """A layer or a cell; half of the optional operand, peepholes or biases."""
    gates, is_cell, functions = GATES[op.removesuffix("Cell")], op.endswith("Cell"), ("sigmoid", "tanh", "hard_sigmoid", "softsign")

    def draw_one(rng: Random) -> Sample:
        t, n, k = rng.choice((1, 2, 5)), rng.choice((1, 1, 2, 3)), extent(rng)
        shapes: dict[str, tuple[int, ...]] = {"p": (n, gates, k), "q": (n, gates, k)}
        arrays: dict[str, Array] = {}
        if not is_cell:  # weights with which differences of rounding do not grow from step to step
            shapes = {"p": (t, n, gates, k)}
            drawn = np.random.default_rng(rng.getrandbits(32)).standard_normal((gates, k, k))
            arrays["r"] = (drawn / (2 * math.sqrt(k))).astype(np.float32)
        shapes |= dict.fromkeys({"LSTM": "hc", "LSTMCell": "c"}.get(op, "h"), (n, k))
        if rng.random() < 0.5 and op not in ("RNN", "GRUCell"):
            shapes |= {"w": (3, k)} if op.startswith("LSTM") else {"b": (k,)}
        attrs: dict[str, Any] = {"functions": tuple(rng.choices(functions, k=3)), "alphas": (0.3,) * 3, "betas": (0.4,) * 3}
        attrs |= {"clip": rng.choice((0.0, 0.7)), "reverse": rng.random() < 0.5, "input_forget": rng.random() < 0.3}
        outputs: dict[str, tuple[int, ...]] = {
            "y": (n, k) if is_cell else (t, n, k),
            **({"cells": (n, k)} if op.startswith("LSTM") else {}),
        }
        return Sample({**shapes, **outputs}, attrs, arrays)

    return draw_one


def _integer_recurrent(op: str) -> Draw:
    """A layer of quantised values; sums are of the size that tables are for."""

    def draw_one(rng: Random) -> Sample:
        gates, functions = {"IntegerLSTM": (4, rng.choice((2, 3))), "IntegerGRU": (3, 2), "IntegerRNN": (1, 1)}[op]
        t, n, k = rng.choice((1, 2, 5)), rng.choice((1, 1, 2, 3)), extent(rng)
        arrays = {"p": _array(rng, (t, n, gates, k), -(1 << 14), 1 << 14), "r": _array(rng, (gates, k, k), -128, 127, np.int8)}
        arrays["h"] = _array(rng, (n, k), -32767, 32767, np.int16)
        arrays |= {"c": _array(rng, (n, k), -(1 << 18), 1 << 18)} if op == "IntegerLSTM" else {}
        arrays["factors"] = _array(rng, (k, gates, 2), 1 << 24, 1 << 26)
        arrays["factors"][:, :, 1] <<= 3
        arrays["tables"] = _array(rng, (functions, STEPS + 1), -32767, 32767, np.int16)
        arrays |= {"b": _array(rng, (k,), -(1 << 17), 1 << 17)} if op == "IntegerGRU" else {}
        outputs = {"y": (t, n, k), **({"cells": (n, k)} if op == "IntegerLSTM" else {})}
        return Sample(outputs, {"reverse": rng.random() < 0.5, "shift_p": 14, "shift": rng.choice((1, 3, 4))}, arrays)

    return draw_one


def _thresholds(rng: Random) -> Sample:
    o, c, i, n = (extent(rng) for _ in range(4))
    rows = np.sort(_array(rng, (rng.choice((1, c)), n), -300, 300), axis=1)
    return Sample({"x": (o, c, i)}, {}, {"t": rows})


DRAWS: Mapping[str, Draw] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MatMul": _matmul,
    "BlockMatMul": _block_matmul,
    "MaxPool": _pool,
    "AveragePool": _pool,
    **dict.fromkeys(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "IntegerMean"), _reduce),
    "RunningSum": lambda rng: Sample(
        {"x": tuple(extent(rng) for _ in range(3))}, {name: rng.random() < 0.5 for name in ("exclusive", "reverse")}
    ),
    "Thresholds": _thresholds,
    "ArgMax": _of_x(lambda rng: {"smallest": rng.random() < 0.5, "last": rng.random() < 0.5}),
    **dict.fromkeys(("Add", "Sub", "Div"), _elementwise()),
    "Mul": _elementwise(lambda rng: {"a_zero_point": _zero_point(rng), "b_zero_point": _zero_point(rng)}),
    "ResidualSum": _residual_sum,
    "ScaledAdd": _elementwise(_scaled_add),
    "ScaledDiv": _elementwise(_scaled_div),
    "RequantAdd": _elementwise(_requant_add),
    "RequantShift": _requant_shift,
    "Lookup": lambda rng: Sample({"x": shape(rng, most=6), "table": (256,)}),
    "Quantize": _quantize,
    "Dequantize": _quantize,
    "DynamicScale": _dynamic_scale,
    "Clip": _of_x(lambda rng: {"low": rng.choice((None, 0, -5)), "high": rng.choice((None, 6, 100))}),
    "Unary": _unary,
    **dict.fromkeys(("Copy", "Cast"), _of_x()),
    "Expand": _expand,
    "Rotate": _rotate,
    "Softmax": _softmax,
    "ShiftSoftmax": _shift_softmax,
    "Normalise": _normalise,
    "Standardise": _of_x(_standardise, most=5),
    "IntegerLayerNorm": _integer_norm("weight", "bias"),
    "IntegerRMSNorm": _integer_norm("weight"),
    "IntegerFunction": _of_x(_integer_function),
    "IntegerDiv": _elementwise(
        lambda rng: {"factor": rng.randint(1, 5000), "scale": rng.choice((1, 17, -3)), "offset": rng.randint(-300, 300)}
    ),
    "Binary": _binary,
    "Where": _where,
    "Pad": _pad,
    "Gather": _gather,
    "DecisionTrees": _decision_trees,
    "PairwiseCoupling": _coupling,
    **{op: _integer_recurrent(op) for op in ("IntegerLSTM", "IntegerGRU", "IntegerRNN")},
    **{op: _recurrent(op) for op in ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell")},
}
