"""Operators that move elements: slices, splits, joins, turns, gathers, pads, resizes."""

from __future__ import annotations

import numpy as np

from tests.random.graph import LARGEST, Builder, Value
from tests.random.operators import any_float, broadcasts, entry, reshaped, weight_like
from tests.random.oracle import Invalid


def transpose(b: Builder) -> list[Value]:
    x = any_float(b)
    return [b.one("Transpose", x, exact=True, perm=b.choices.shuffled(range(x.rank)) if x.rank and not b.choices.chance(5) else None)]


def reshape(b: Builder) -> list[Value]:
    x = any_float(b)
    kind = b.choices.integer(0, 4)
    if kind == 0:
        return [reshaped(b, x, b.choices.integer(0, 5))]
    if kind == 1 and x.rank:
        target = list(x.shape)
        place = b.choices.integer(0, x.rank - 1)
        target[place] = -1
        return [b.one("Reshape", x, b.ints([0 if n != -1 and b.choices.chance(2) else n for n in target]), exact=True)]
    if kind == 2:
        return [b.one("Flatten", x, exact=True, axis=b.choices.integer(0 if b.opset < 11 else -x.rank, x.rank))]
    if kind == 3:
        ones = [a for a, n in enumerate(x.shape) if n == 1]
        axes = [a for a in ones if b.choices.chance(2)] or ones
        if not axes:
            raise Invalid
        return [b.one("Squeeze", x, b.ints(axes), exact=True) if b.opset >= 13 else b.one("Squeeze", x, exact=True, axes=axes)]
    if x.rank >= 5:
        raise Invalid
    axes = [b.choices.integer(0, x.rank)]
    return [b.one("Unsqueeze", x, b.ints(axes), exact=True) if b.opset >= 13 else b.one("Unsqueeze", x, exact=True, axes=axes)]


def slice_(b: Builder) -> list[Value]:
    x = any_float(b, 1)
    axes = b.choices.shuffled(range(x.rank))[: b.choices.integer(1, x.rank)]
    starts, ends, steps = [], [], []
    for axis in axes:
        size, step = x.shape[axis], 1
        if b.opset >= 10 and b.choices.chance(3):
            step = b.choices.pick([2, -1, 3, -2])
        first = b.choices.integer(0, size - 1)
        last = b.choices.integer(first, size - 1)
        starts.append(first if step > 0 else last)
        ends.append(last + 1 if step > 0 else (first - 1 if first else -size - 1))
        if b.choices.chance(6):
            ends[-1] = 2**31 if step > 0 else -(2**31)
        if starts[-1] and b.choices.chance(4):
            starts[-1] -= size
        steps.append(step)
    if b.opset < 10:
        return [b.one("Slice", x, exact=True, starts=starts, ends=ends, axes=axes)]
    names = [a - x.rank if b.choices.chance(5) else a for a in axes]
    given = b.ints(steps) if any(step != 1 for step in steps) or b.choices.chance(3) else None
    return [b.one("Slice", x, b.ints(starts), b.ints(ends), b.ints(names), given, exact=True)]


def split(b: Builder) -> list[Value]:
    x = any_float(b, 1)
    axis = b.choices.integer(0, x.rank - 1)
    size = x.shape[axis]
    if size < 2:
        raise Invalid
    first = b.choices.integer(1, size - 1)
    sizes = [first, size - first]
    if b.choices.chance(3) and sizes[1] > 1:
        sizes = [first, 1, size - first - 1]
    if b.opset >= 13:
        return b.node("Split", [x, b.ints(sizes)], len(sizes), exact=True, axis=axis)
    return b.node("Split", [x], len(sizes), exact=True, axis=axis, split=sizes)


def concat(b: Builder) -> list[Value]:
    x = any_float(b, 1)
    axis = b.choices.integer(0, x.rank - 1)
    parts = [x]
    for _ in range(b.choices.integer(1, 3)):
        fits = [
            v
            for v in b.pool
            if v.is_float and v.rank == x.rank and all(n == m for a, (n, m) in enumerate(zip(v.shape, x.shape, strict=True)) if a != axis)
        ]
        if fits and not b.choices.chance(3):
            parts.append(b.choices.pick(fits))
        else:
            shape = list(x.shape)
            shape[axis] = b.choices.integer(1, 4)
            parts.append(weight_like(b, b.floats(shape, exact=True)))
    return [b.one("Concat", *b.choices.shuffled(parts), exact=True, axis=axis if b.opset < 11 or b.choices.chance(2) else axis - x.rank)]


def gather(b: Builder) -> list[Value]:
    x = any_float(b, 1)
    axis = b.choices.integer(0, x.rank - 1)
    low = -x.shape[axis] if b.opset >= 11 else 0
    kind = b.choices.pick(["Gather", "Gather", "Gather", "GatherElements", "GatherND"])
    random = b.choices.generator()
    if kind == "Gather":
        shape = b.choices.pick([(), (1,), (3,), (2, 2)])
        indices = random.integers(low, x.shape[axis], shape)
    elif kind == "GatherElements":
        indices = random.integers(low, x.shape[axis], x.shape)
    else:
        indices = np.stack([random.integers(0, n, 3) for n in x.shape[: b.choices.integer(1, x.rank)]], -1)
    dtype = np.int32 if kind != "GatherND" and b.choices.chance(3) else np.int64
    chosen = b.source(np.asarray(indices, dtype)) if b.choices.chance(5) and len(b.inputs) < 4 else b.constant(np.asarray(indices, dtype))
    return [b.one(kind, x, chosen, exact=True, axis=None if kind == "GatherND" else axis)]


def pad(b: Builder) -> list[Value]:
    x = any_float(b, 1)
    mode = b.choices.pick(["constant", "constant", "reflect", "edge", "wrap"])
    pads = [
        b.choices.integer(0, min(3, n - 1) if mode in ("reflect", "wrap") else 3) if b.choices.chance(2) else 0
        for n in (*x.shape, *x.shape)
    ]
    if mode == "constant" and b.choices.chance(4):
        pads = [-1 if x.shape[a % x.rank] > 2 and b.choices.chance(3) else p for a, p in enumerate(pads)]
    value = b.choices.pick([0.0, 0.5, -2.0])
    if b.opset < 11:
        return [b.one("Pad", x, exact=True, mode=mode, pads=pads, value=value)]
    fill = b.constant(np.asarray(value, np.float32)) if mode == "constant" and b.choices.chance(2) else None
    return [b.one("Pad", x, b.ints(pads), fill, exact=True, mode=mode)]


def expand(b: Builder) -> list[Value]:
    x = any_float(b)
    if b.choices.chance(2):
        repeats = [b.choices.integer(1, 3) for _ in x.shape]
        if not x.rank or x.array.size * np.prod(repeats) > LARGEST:
            raise Invalid
        return [b.one("Tile", x, b.ints(repeats), exact=True)]
    shape = [b.choices.integer(1, 4) if n == 1 else n for n in x.shape]
    if b.choices.chance(3) and x.rank < 5:
        shape = [b.choices.integer(1, 3), *shape]
    if not broadcasts(shape, x.shape):
        raise Invalid
    return [b.one("Expand", x, b.ints(shape), exact=True)]


def resize(b: Builder) -> list[Value]:
    x = any_float(b, 3, 4)
    mode = b.choices.pick(["nearest", "linear", "cubic"])
    scales = [1.0, 1.0, *[b.choices.pick([2.0, 1.0, 0.5, 3.0, 1.5]) for _ in x.shape[2:]]]
    exact = mode == "nearest"
    if b.opset < 10:
        if b.opset < 9:
            return [b.one("Upsample", x, exact=exact, mode=mode, scales=scales)]
        return [b.one("Upsample", x, b.constant(np.asarray(scales, np.float32)), exact=exact, mode=mode)]
    if b.opset == 10:
        return [b.one("Resize", x, b.constant(np.asarray(scales, np.float32)), exact=exact, mode=mode)]
    how = b.choices.pick(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    nearest = b.choices.pick(["round_prefer_floor", "floor", "ceil", "round_prefer_ceil"]) if exact else None
    roi = b.constant(np.zeros(0, np.float32)) if b.opset < 13 else None
    if b.choices.chance(3):
        sizes = [*x.shape[:2], *[max(1, int(n * s)) for n, s in zip(x.shape[2:], scales[2:], strict=True)]]
        empty = b.constant(np.zeros(0, np.float32)) if b.opset < 13 else None
        if b.opset >= 18 and how != "align_corners" and b.choices.chance(2):
            policy = b.choices.pick(["not_larger", "not_smaller"])
            own = {"mode": mode, "coordinate_transformation_mode": how, "nearest_mode": nearest, "keep_aspect_ratio_policy": policy}
            return [b.one("Resize", x, None, None, b.ints(sizes[2:]), exact=exact, axes=list(range(2, x.rank)), **own)]
        return [
            b.one("Resize", x, roi, empty, b.ints(sizes), exact=exact, mode=mode, coordinate_transformation_mode=how, nearest_mode=nearest)
        ]
    factors = b.constant(np.asarray(scales, np.float32))
    return [b.one("Resize", x, roi, factors, exact=exact, mode=mode, coordinate_transformation_mode=how, nearest_mode=nearest)]


def blocks(b: Builder) -> list[Value]:
    x = any_float(b, 4, 4)
    fits = [s for s in (2, 3) if x.shape[1] % (s * s) == 0]
    if fits and b.choices.chance(2):
        mode = b.choices.pick(["DCR", "CRD"]) if b.opset >= 11 else None
        return [b.one("DepthToSpace", x, exact=True, blocksize=b.choices.pick(fits), mode=mode)]
    sides = [s for s in (2, 3) if x.shape[2] % s == 0 and x.shape[3] % s == 0]
    if not sides:
        raise Invalid
    return [b.one("SpaceToDepth", x, exact=True, blocksize=b.choices.pick(sides))]


def shape_chain(b: Builder) -> list[Value]:
    """Shape, Gather, Unsqueeze, Concat, Reshape, as exporters write a flattening."""
    x = any_float(b, 2)
    shape = b.one("Shape", x)
    first = b.one("Gather", shape, b.ints(0), axis=0)
    lifted = b.one("Unsqueeze", first, b.ints([0])) if b.opset >= 13 else b.one("Unsqueeze", first, axes=[0])
    return [b.one("Reshape", x, b.one("Concat", lifted, b.ints([-1]), axis=0), exact=True)]


def whole_numbers(b: Builder) -> list[Value]:
    """Arithmetic of integers from a Cast, an index or an input."""
    x = b.pick(lambda v: v.array.dtype in (np.int32, np.int64))
    if x is None or b.choices.chance(4):
        kind = b.choices.pick([np.int32, np.int64])
        x = b.source(b.choices.generator().integers(-20, 20, b.shape(b.choices.integer(0, 4))).astype(kind))
    op = b.choices.pick(["Add", "Sub", "Mul", "Max", "Min", "Mod", "Neg", "Abs", "Equal", "Greater", "Concat", "Transpose", "Reshape"])
    if op in ("Neg", "Abs", "Transpose"):
        return [b.one(op, x)]
    if op == "Reshape":
        return [b.one(op, x, b.ints([-1]))]
    if float(np.abs(x.array).max()) > 1000:
        raise Invalid
    shape = b.choices.pick([(), x.shape, x.shape[-1:]])
    values = b.choices.generator().integers(-9, 10, shape)
    if op == "Mod":
        values = np.abs(values) + 1
    other = b.constant(np.asarray(values, x.array.dtype))
    if op == "Concat":
        return [b.one(op, x, x, axis=0)]
    return [b.one(op, x, other)]


def source(b: Builder) -> list[Value]:
    return [entry(b, b.shape(b.choices.integer(0, 5)))]
