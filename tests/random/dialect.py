"""Graphs of the integer dialect; its own operators are computed here, from its formulas alone, one element at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tests.random.graph import Builder, Value
from tests.random.oracle import Invalid

Row = list[int]


def begin(b: Builder) -> None:
    for _ in range(b.choices.weighted([(3, 1), (1, 2)])):
        rank = b.choices.weighted([(5, 4), (3, 3), (3, 2), (1, 1)])
        shape = b.shape(rank)
        if rank >= 3 and not b.choices.chance(4):
            shape = (1, *shape[1:])
        b.attempt(lambda made, shape=shape: [entry(made, shape)])


def entry(b: Builder, shape: Sequence[int]) -> Value:
    kind = b.choices.pick(["int8", "uint8"])
    info = np.iinfo(kind)
    array = b.choices.generator().integers(info.min, info.max + 1, tuple(shape)).astype(np.float32)
    return typed(b, b.source(array, kind=kind), kind)


def typed(b: Builder, value: Value, kind: str) -> Value:
    b.kinds[value.name] = kind
    return value


def pick(b: Builder, least: int = 0, most: int = 5, kinds: Sequence[str] = ("int8", "uint8")) -> Value:
    found = b.pick(lambda v: b.kinds.get(v.name) in kinds and least <= v.rank <= most)
    if found is None or (len(b.inputs) < 3 and b.choices.chance(16)):
        found = entry(b, b.shape(b.choices.integer(least, most)))
        if b.kinds[found.name] not in kinds:
            raise Invalid
    return found


def whole(b: Builder, low: int, high: int, shape: Sequence[int]) -> Value:
    """A constant of whole numbers, stored as floats as these files do."""
    return b.constant(b.choices.generator().integers(low, high + 1, tuple(shape)).astype(np.float32))


def number(b: Builder, value: int) -> object:
    """A scalar attribute: a plain number, or a tensor."""
    from onnx import TensorProto, helper

    if b.choices.chance(2):
        return value
    return helper.make_tensor("value", TensorProto.FLOAT, b.choices.pick([[], [1]]), [float(value)])


def made(b: Builder, op: str, inputs: Sequence[Value], array: np.ndarray, kind: str, /, **attributes: object) -> Value:
    """A node of the dialect with its value."""
    limit = 2**24 if kind == "int32" else 2**15
    if np.abs(array.astype(np.int64)).max() >= limit:
        raise Invalid
    domain = b.choices.pick(["", "", "PACTOps", "ai.onnx.contrib"])
    value = b.node(op, inputs, domain=domain, arrays=[np.asarray(array, np.float32)], **attributes)[0]
    return typed(b, value, kind)


def integers(value: Value) -> np.ndarray:
    return value.array.astype(np.int64)


def accumulated(b: Builder, value: Value) -> Value:
    """An int32 result of a standard operator; floats compute it exactly below 2^24."""
    if np.abs(value.array).max() >= 2**24:
        raise Invalid
    return typed(b, value, "int32")


def cdiv(n: int, d: int) -> int:
    return abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1)


def along_rows(x: np.ndarray, function: Callable[[Row], Row]) -> np.ndarray:
    return np.array([function([int(v) for v in row]) for row in x.reshape(-1, x.shape[-1])]).reshape(x.shape)


def requantised(b: Builder, x: Value) -> Value:
    """RequantShift with multipliers of every shape that the dialect knows."""
    values = integers(x)
    size = max(1, int(np.abs(values).max()))
    shift = b.choices.integer(0, 18)
    shapes: list[tuple[int, ...]] = [(), (1,)]
    if x.rank >= 2:
        channels = x.shape[1]
        shapes += [(channels, 1, 1), (1, channels, 1, 1), x.shape[-1:], (x.shape[-2], 1)]
    shape = b.choices.pick(shapes)
    on_channels = len(shape) in (3, 4)
    most = min(2**30 // size, int(2**shift * b.choices.pick([300, 100, 60]) / size) + 1)
    random = b.choices.generator()
    mul = random.integers(max(1, most // 2), most + 1, shape) * (-1 if b.choices.chance(8) else 1)
    spread = int(np.abs(mul).max()) * size
    add = random.integers(-min(spread, 2**29), min(spread, 2**29) + 1, shape if b.choices.chance(2) else (1,) * len(shape))
    levels = b.choices.pick([256, 256, 128, 16])
    signed = b.choices.pick([1, 1, 0])
    low, high = (-(levels // 2), levels // 2 - 1) if signed else (0, levels - 1)

    def spread_over(a: np.ndarray) -> np.ndarray:
        return a.reshape([1, -1, *[1] * (x.rank - 2)]) if on_channels and a.size > 1 else (a.reshape(()) if a.size == 1 else a)

    plain = not (on_channels and x.rank != 4)  # as NumPy broadcasts
    if plain and shift and spread + int(np.abs(add).max()) < 2**24 and b.choices.chance(3):
        return written_out(b, x, mul, add, shift, (low, high))
    y = np.clip((values * spread_over(mul) + spread_over(add) + (1 << (shift - 1) if shift else 0)) >> shift, low, high)
    kind = "int8" if signed else "uint8"
    inputs = [x, b.constant(mul.astype(np.float32)), b.constant(add.astype(np.float32))]
    if any(not np.array_equal(v.array.astype(np.int64), a) for v, a in zip(inputs[1:], (mul, add), strict=True)):
        raise Invalid  # a float that does not hold the number, or a shared constant
    return made(b, "RequantShift", inputs, y, kind, div=number(b, 1 << shift), n_levels=number(b, levels), signed=number(b, signed))


def written_out(b: Builder, x: Value, mul: np.ndarray, add: np.ndarray, shift: int, limits: tuple[int, int]) -> Value:
    """The same without rounding, in operators of ONNX on floats that hold integers."""
    total = b.one("Add", b.one("Mul", x, b.constant(mul.astype(np.float32))), b.constant(add.astype(np.float32)))
    if total.shape != x.shape:
        raise Invalid
    if b.choices.chance(2):
        steps = b.one("Floor", b.one("Div", total, b.constant(np.asarray(2**shift, np.float32))))
    else:
        steps = b.one("Floor", b.one("Mul", total, b.constant(np.asarray(2.0**-shift, np.float32))))
    low, high = (float(end) for end in limits)
    if b.opset < 11:
        limited = b.one("Clip", steps, min=low, max=high)
    else:
        limited = b.one("Clip", steps, *(b.constant(np.asarray(end, np.float32)) for end in (low, high)))
    return typed(b, limited, "int8" if low < 0 else "uint8")


def finished(b: Builder, value: Value) -> list[Value]:
    """Requantise an accumulator, nearly always."""
    if b.choices.chance(12):
        return [value]
    return [requantised(b, value)]


def conv(b: Builder) -> list[Value]:
    from tests.random.operators import window

    x = pick(b, 3, 4)
    attributes = window(b, x)
    channels = x.shape[1]
    group = b.choices.pick([1, 1, channels])
    outputs = group * b.choices.integer(1, max(1, 12 // group))
    kernel: list[int] = attributes["kernel_shape"]
    w = whole(b, -128, 127, (outputs, channels // group, *kernel))
    c = whole(b, -2000, 2000, (outputs,)) if b.choices.chance(3) else None
    return finished(b, accumulated(b, b.one("Conv", x, w, c, group=group, **attributes)))


def matmul(b: Builder) -> list[Value]:
    x = pick(b, 2)
    fits = [
        v
        for v in b.pool
        if b.kinds.get(v.name) in ("int8", "uint8") and v.rank == x.rank and v.shape[-2] == x.shape[-1] and v.shape[:-2] == x.shape[:-2]
    ]
    other = b.choices.pick(fits) if fits and b.choices.chance(2) else whole(b, -128, 127, (x.shape[-1], b.extent()))
    return finished(b, accumulated(b, b.one("MatMul", x, other)))


def gemm(b: Builder) -> list[Value]:
    x = pick(b, 2, 2)
    trans = b.choices.chance(2)
    columns = b.extent()
    w = whole(b, -128, 127, (columns, x.shape[1]) if trans else (x.shape[1], columns))
    c = whole(b, -2000, 2000, b.choices.pick([(columns,), (1, columns)])) if b.opset < 11 or b.choices.chance(2) else None
    return finished(b, accumulated(b, b.one("Gemm", x, w, c, transB=int(trans))))


def arithmetic(b: Builder) -> list[Value]:
    from tests.random.operators import broadcasts

    x = pick(b)
    fits = [v for v in b.pool if b.kinds.get(v.name) in ("int8", "uint8") and broadcasts(v.shape, x.shape)]
    if fits and not b.choices.chance(3):
        other = b.choices.pick(fits)
    else:
        other = whole(b, -100, 100, [1 if b.choices.chance(3) else n for n in x.shape])
    return finished(b, accumulated(b, b.one(b.choices.pick(["Add", "Add", "Sub", "Mul"]), x, other)))


def rescaled(b: Builder) -> list[Value]:
    return [requantised(b, pick(b, kinds=("int8", "uint8", "int32")))]


def softmax(b: Builder) -> list[Value]:
    x = pick(b, 1, kinds=("int8",))
    op = b.choices.pick(["iSoftmax", "ITAMax", "ITAPartialMax"])
    levels = 256
    if op == "iSoftmax":
        log2, bb, c = b.choices.pick([(255, 345, 62395), (127, 173, 15599), (7, 40, 900), (34, 67, 2401)])

        def soft(row: Row) -> Row:
            e = []
            for v in row:
                t = v - max(row)
                z = min(max(-cdiv(t, log2), 0), 31)
                e.append(((t + z * log2 + bb) ** 2 + c) >> z)
            return [v * (levels - 1) // sum(e) for v in e]

        attributes = {"coeffA": number(b, 1), "coeffB": number(b, bb), "coeffC": number(b, c), "log2": number(b, log2)}
        return [made(b, op, [x], along_rows(integers(x), soft), "uint8", n_levels=number(b, levels), **attributes)]
    if op == "ITAMax":

        def ita(row: Row) -> Row:
            shifts = [(max(row) - v + 16) >> 5 for v in row]
            inverse = (levels - 1) * 256 // sum(256 >> s for s in shifts)
            return [inverse >> s for s in shifts]

        return [made(b, op, [x], along_rows(integers(x), ita), "uint8", n_levels=number(b, levels))]
    width = b.choices.pick([g for g in range(1, x.shape[-1] + 1) if x.shape[-1] % g == 0])

    def partial(row: Row) -> Row:
        acc, gm = 0, -128
        for first in range(0, len(row), width):
            part = row[first : first + width]
            shift = (max(part) - gm + 16) >> 5 if max(part) > gm else 0
            gm = max(gm, max(part))
            acc = (acc >> shift) + sum(256 >> ((gm - v + 16) >> 5) for v in part)
        return [((levels // 2 - 1) * 256 // acc) >> ((gm - v + 16) >> 5) for v in row]

    return [made(b, op, [x], along_rows(integers(x), partial), "uint8", n_levels=number(b, levels), group_width=number(b, width))]


def norm(b: Builder) -> list[Value]:
    x = pick(b, 1, kinds=("int8",))
    n, depth = x.shape[-1], b.choices.integer(3, 9)
    weight, bias = whole(b, -127, 127, (n,)), whole(b, -500, 500, (n,))
    w, c = integers(weight), integers(bias)

    def layer(row: Row) -> Row:
        centred = [v - cdiv(sum(row), n) for v in row]
        std = math.isqrt(cdiv(sum(v * v for v in centred), n) + 1)
        return [(((cdiv(v * int(w[i]), std) + int(c[i])) >> depth) + 128) % 256 - 128 for i, v in enumerate(centred)]

    def rms(row: Row) -> Row:
        std = math.isqrt(cdiv(sum(v * v for v in row), n) + 1)
        return [min(max(cdiv(v * int(w[i]), std) >> depth, -128), 127) for i, v in enumerate(row)]

    common = {"D": number(b, 1 << depth), "n_levels": number(b, 256)}
    if b.choices.chance(2):
        return [made(b, "iRMSNorm", [x, weight], along_rows(integers(x), rms), "int8", **common)]
    return [made(b, "iLayerNorm", [x, weight, bias], along_rows(integers(x), layer), "int8", **common)]


def function(b: Builder) -> list[Value]:
    x = pick(b)
    v = integers(x)
    op = b.choices.pick(["iGELU", "iHardswish", "TrueIntegerDiv", "IntegerDiv", "iNoNorm"])
    if op == "iGELU":
        edge, one = -b.choices.integer(5, 100), b.choices.integer(100, 9000)
        q = np.minimum(np.abs(v), -edge)
        y = v * ((one + np.sign(v) * (one - (q + edge) ** 2)) >> 1)
        return finished(b, made(b, op, [x], y, "int32", b=number(b, edge), one=number(b, one)))
    if op == "iHardswish":
        three, sixth = b.choices.integer(10, 120), b.choices.integer(1, 42)
        y = v * (np.clip(v + three, 0, 2 * three) * sixth)
        return finished(b, made(b, op, [x], y, "int32", three=number(b, three), six=number(b, 2 * three), one_over_six=number(b, sixth)))
    delta, eta, eps = b.choices.integer(1, 200), b.choices.integer(1, 50), b.choices.integer(1, 5)
    given = {"Delta": number(b, delta), "eta": number(b, eta), "eps": number(b, eps)}
    if op == "TrueIntegerDiv":
        divisor = b.choices.integer(1, 9)
        return finished(b, made(b, op, [x], v * ((delta * eta) // (divisor * eta + eps)), "int32", y=number(b, divisor), **given))
    if op == "IntegerDiv":
        shape = b.choices.pick([(), x.shape[-1:], x.shape])
        other = whole(b, 1, 90, shape)
        d, n = eta * integers(other) + eps, delta * eta * v
        total = n + np.where(n < 0, -1, 1) * (d >> 1)
        y = np.sign(total) * np.sign(d) * (np.abs(total) // np.abs(d))
        return finished(b, made(b, op, [x, other], y, "int32", **given))
    depth, factor = b.choices.integer(2, 10), b.choices.integer(1, 400)
    weight, bias = whole(b, -60, 60, x.shape[-1:]), whole(b, -300, 300, x.shape[-1:])
    y = ((v * integers(weight) + integers(bias)) * factor) >> depth
    return finished(b, made(b, op, [x, weight, bias], y, "int32", mul=number(b, factor), D=number(b, 1 << depth), n_levels=number(b, 256)))


def mean(b: Builder) -> list[Value]:
    x = pick(b, 1)
    axes = sorted(b.choices.shuffled(range(x.rank))[: b.choices.integer(1, x.rank)])
    keep = b.choices.pick([0, 1])
    total = integers(x).sum(axis=tuple(axes), keepdims=bool(keep))
    n = int(np.prod([x.shape[a] for a in axes]))
    if b.choices.chance(3):
        if b.opset >= 13:
            raise Invalid
        return finished(b, accumulated(b, b.one("ReduceSum", x, axes=axes, keepdims=keep)))
    if n & (n - 1) == 0 and not keep:
        y = (total + (n >> 1)) >> (n.bit_length() - 1)
    else:
        moved = total + np.where(total < 0, -1, np.where(total > 0, 1, 0)) * (n >> 1)
        y = np.sign(moved) * (np.abs(moved) // n)
    value = b.node("ReduceMean", [x], arrays=[np.asarray(y, np.float32)], axes=axes, keepdims=keep)[0]
    return finished(b, typed(b, value, "int32"))


def view(b: Builder) -> list[Value]:
    from tests.random import views

    x = pick(b, 1)
    kind = b.kinds[x.name]
    step = b.choices.pick([views.transpose, views.reshape, views.slice_, views.split, views.gather, views.expand])
    own, sources = b.pool, len(b.inputs)
    b.pool = [x]
    try:
        found = list(step(b))
    finally:
        b.pool = own
    if len(b.inputs) > sources or any(value.name not in {n for node in b.nodes for n in node.output} for value in found):
        raise Invalid  # floats that a step brought in
    return [typed(b, value, kind) for value in found]


def concat(b: Builder) -> list[Value]:
    x = pick(b, 1)
    axis = b.choices.integer(0, x.rank - 1)
    kind = b.kinds[x.name]
    fits = [
        v
        for v in b.pool
        if b.kinds.get(v.name) == kind
        and v.rank == x.rank
        and all(n == m for a, (n, m) in enumerate(zip(v.shape, x.shape, strict=True)) if a != axis)
    ]
    parts = [x, *(b.choices.pick(fits or [x]) for _ in range(b.choices.integer(1, 2)))]
    return [typed(b, b.one("Concat", *b.choices.shuffled(parts), axis=axis), kind)]


def pool(b: Builder) -> list[Value]:
    from tests.random.operators import window

    x = pick(b, 3, 4)
    attributes = window(b, x, pooled=True)
    if b.opset < 10:
        attributes.pop("dilations", None)
    return [typed(b, b.one("MaxPool", x, **attributes), b.kinds[x.name])]


def padded(b: Builder) -> list[Value]:
    x = pick(b, 1)
    pads = [b.choices.integer(0, 2) for _ in (*x.shape, *x.shape)]
    if b.opset < 11:
        return [typed(b, b.one("Pad", x, pads=pads), b.kinds[x.name])]
    return [typed(b, b.one("Pad", x, b.ints(pads)), b.kinds[x.name])]


STEPS: list[tuple[int, Callable[[Builder], Sequence[Value]]]] = [
    (5, conv),
    (4, matmul),
    (2, gemm),
    (5, arithmetic),
    (3, rescaled),
    (3, softmax),
    (3, norm),
    (4, function),
    (2, mean),
    (5, view),
    (2, concat),
    (2, pool),
    (1, padded),
]
