"""Operators on quantised tensors that carry their scales as inputs: ONNX's own and those of onnxruntime's domain com.microsoft."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import helper

from tests.random import oracle
from tests.random.graph import Builder, Value
from tests.random.oracle import Invalid

MICROSOFT = "com.microsoft"


def begin(b: Builder) -> None:
    for _ in range(b.choices.weighted([(3, 1), (1, 2)])):
        rank = b.choices.weighted([(5, 4), (2, 3), (3, 2), (1, 1), (1, 0)])
        shape = b.shape(rank)
        if rank >= 3 and not b.choices.chance(4):
            shape = (1, *shape[1:])
        b.attempt(lambda made, shape=shape: [quantised_entry(made, shape)])


def quantised_entry(b: Builder, shape: Sequence[int]) -> Value:
    """A new input: float with a QuantizeLinear, or integers."""
    from tests.random.forms import parameters

    real = b.floats(shape, exact=True)
    scale, zero = parameters(b, float(real.min()), float(real.max()), exact=b.choices.chance(2))
    if b.choices.chance(4):
        info = np.iinfo(zero.dtype)
        whole = np.clip(np.rint(real / scale) + int(zero), info.min, info.max).astype(zero.dtype)
        return known(b, b.source(whole), scale, zero)
    return known(b, b.one("QuantizeLinear", b.source(real), b.constant(scale), b.constant(zero)), scale, zero)


def known(b: Builder, value: Value, scale: np.ndarray, zero: np.ndarray) -> Value:
    """Remember the quantisation of a tensor."""
    b.scales[value.name] = (np.asarray(scale, np.float32), zero)
    return value


def real_of(b: Builder, x: Value) -> np.ndarray:
    scale, zero = b.scales[x.name]
    return np.asarray((x.array.astype(np.float32) - np.float32(int(zero))) * scale, np.float32)


def pick(b: Builder, least: int = 0, most: int = 5) -> Value:
    found = b.pick(lambda v: v.name in b.scales and least <= v.rank <= most)
    if found is None:
        return quantised_entry(b, b.shape(b.choices.integer(least, most)))
    return found


def triple(b: Builder, x: Value) -> list[Value]:
    """A quantised tensor with its scale and zero point, as operators of this form take it."""
    scale, zero = b.scales[x.name]
    return [x, b.constant(scale), b.constant(zero)]


def constant_triple(b: Builder, array: np.ndarray, axis: int | None = None) -> list[Value]:
    """Weights of 8 bits, per tensor or along ``axis``."""
    others = tuple(a for a in range(array.ndim) if a != axis) if axis is not None else None
    scale = np.asarray(np.maximum(np.abs(array).max(axis=others), 1e-3) / 127, np.float32)
    spread = scale.reshape([-1 if a == axis else 1 for a in range(array.ndim)]) if axis is not None else scale
    zero = np.zeros(scale.shape, np.int8)
    if axis is None and b.choices.chance(5):
        zero = np.asarray(b.choices.integer(-20, 20), np.int8)
    stored = np.clip(np.rint(array / spread) + int(zero.ravel()[0]), -128, 127).astype(np.int8)
    return [b.constant(stored), b.constant(scale), b.constant(zero)]


def result(b: Builder, op: str, reals: Sequence[np.ndarray], x: Value, **attributes: object) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point for what the float operator ``op`` gives, in the type of ``x``."""
    from tests.random.forms import parameters

    names = [f"r{i}" for i in range(len(reals))]
    attributes = {key: value for key, value in attributes.items() if value is not None}
    node = helper.make_node(op, names, ["y"], **attributes)
    (y,) = oracle.evaluate(node, dict(zip(names, reals, strict=True)), names[1:], b.opset)
    scale, zero = parameters(b, float(y.min()), float(y.max()))
    _, own = b.scales[x.name]
    if own.dtype != zero.dtype:  # these operators keep the type
        zero = np.asarray(int(zero) + (128 if own.dtype == np.uint8 else -128), own.dtype)
    return scale, zero


def qlinear_conv(b: Builder) -> list[Value]:
    from tests.random.operators import window

    x = pick(b, 4, 4)
    channels = x.shape[1]
    attributes = window(b, x)
    group = b.choices.pick([1, 1, channels])
    outputs = group * b.choices.integer(1, max(1, 12 // group))
    kernel: list[int] = attributes["kernel_shape"]
    array = b.floats((outputs, channels // group, *kernel))
    w = constant_triple(b, array, 0 if b.choices.chance(2) else None)
    scale, zero = result(b, "Conv", [real_of(b, x), array], x, group=group, **attributes)
    bias = None
    if b.choices.chance(2):
        units = b.scales[x.name][0] * w[1].array
        bias = b.constant(np.rint(b.floats([outputs]) / units).astype(np.int32))
    y = b.one("QLinearConv", *triple(b, x), *w, b.constant(scale), b.constant(zero), bias, group=group, **attributes)
    return [known(b, y, scale, zero)]


def qlinear_matmul(b: Builder) -> list[Value]:
    x = pick(b, 2)
    array = b.floats((x.shape[-1], b.extent()))
    w = constant_triple(b, array)
    fits = [v for v in b.pool if v.name in b.scales and v.rank == x.rank and v.shape[-2] == x.shape[-1] and v.shape[:-2] == x.shape[:-2]]
    if fits and b.choices.chance(3):
        other = b.choices.pick(fits)
        w, array = triple(b, other), real_of(b, other)
    scale, zero = result(b, "MatMul", [real_of(b, x), array], x)
    return [known(b, b.one("QLinearMatMul", *triple(b, x), *w, b.constant(scale), b.constant(zero)), scale, zero)]


def qgemm(b: Builder) -> list[Value]:
    x = pick(b, 2, 2)
    trans = b.choices.chance(2)
    columns = b.extent()
    array = b.floats((columns, x.shape[1]) if trans else (x.shape[1], columns))
    w = constant_triple(b, array)
    bias = b.constant(np.rint(b.floats([columns]) / (b.scales[x.name][0] * w[1].array)).astype(np.int32)) if b.choices.chance(2) else None
    scale, zero = result(b, "Gemm", [real_of(b, x), array], x, transB=int(trans))
    y = b.one("QGemm", *triple(b, x), *w, bias, b.constant(scale), b.constant(zero), domain=MICROSOFT, transB=int(trans))
    return [known(b, y, scale, zero)]


def qlinear_binary(b: Builder) -> list[Value]:
    from tests.random.operators import broadcasts

    x = pick(b)
    dtype = x.array.dtype
    op = b.choices.pick(["Add", "Mul"])
    fits = [v for v in b.pool if v.name in b.scales and v.array.dtype == dtype and broadcasts(v.shape, x.shape)]
    if fits and not b.choices.chance(3):
        other = b.choices.pick(fits)
        parts, real = triple(b, other), real_of(b, other)
    else:
        shape = [1 if b.choices.chance(3) else n for n in x.shape]
        info = np.iinfo(dtype)
        stored = b.choices.generator().integers(info.min, info.max + 1, shape).astype(dtype)
        zero = np.asarray(0 if dtype == np.int8 else 128, dtype)
        scale = np.asarray(b.choices.pick([0.02, 0.0625, 0.1]), np.float32)
        parts = [b.constant(stored), b.constant(scale), b.constant(zero)]
        real = np.asarray((stored.astype(np.float32) - int(zero)) * scale, np.float32)
    scale, zero = result(b, op, [real_of(b, x), real], x)
    y = b.one(f"QLinear{op}", *triple(b, x), *parts, b.constant(scale), b.constant(zero), domain=MICROSOFT)
    return [known(b, y, scale, zero)]


def qlinear_unary(b: Builder) -> list[Value]:
    op, float_op = b.choices.pick([("QLinearSigmoid", "Sigmoid"), ("QLinearLeakyRelu", "LeakyRelu")])
    x = pick(b)
    alpha = b.choices.pick([0.1, 0.01]) if float_op == "LeakyRelu" else None
    scale, zero = result(b, float_op, [real_of(b, x)], x, alpha=alpha)
    return [known(b, b.one(op, *triple(b, x), b.constant(scale), b.constant(zero), domain=MICROSOFT, alpha=alpha), scale, zero)]


def qlinear_pool(b: Builder) -> list[Value]:
    from tests.random.operators import window

    x = pick(b, 4, 4)
    if b.choices.chance(2):
        scale, zero = result(b, "GlobalAveragePool", [real_of(b, x)], x)
        y = b.one("QLinearGlobalAveragePool", *triple(b, x), b.constant(scale), b.constant(zero), domain=MICROSOFT, channels_last=0)
        return [known(b, y, scale, zero)]
    attributes = window(b, x, pooled=True)
    attributes.pop("dilations", None)
    attributes["count_include_pad"] = b.choices.pick([0, 1])
    scale, zero = result(b, "AveragePool", [real_of(b, x)], x, **attributes)
    y = b.one("QLinearAveragePool", *triple(b, x), b.constant(scale), b.constant(zero), domain=MICROSOFT, **attributes)
    return [known(b, y, scale, zero)]


def qlinear_concat(b: Builder) -> list[Value]:
    x = pick(b, 1)
    axis = b.choices.integer(0, x.rank - 1)
    fits = [
        v
        for v in b.pool
        if v.name in b.scales
        and v.array.dtype == x.array.dtype
        and v.rank == x.rank
        and all(n == m for a, (n, m) in enumerate(zip(v.shape, x.shape, strict=True)) if a != axis)
    ]
    parts = [x, *(b.choices.pick(fits) for _ in range(b.choices.integer(1, 2)))] if fits else [x, x]
    scale, zero = result(b, "Concat", [real_of(b, v) for v in parts], x, axis=axis)
    operands = [v for part in parts for v in triple(b, part)]
    y = b.one("QLinearConcat", b.constant(scale), b.constant(zero), *operands, domain=MICROSOFT, axis=axis)
    return [known(b, y, scale, zero)]


def qlinear_softmax(b: Builder) -> list[Value]:
    x = pick(b, 1)
    if x.shape[-1] == 1:
        raise Invalid  # onnxruntime gives 0 for the only probability of a row
    dtype = b.scales[x.name][1].dtype
    scale = np.asarray(1 / 256, np.float32)
    zero = np.asarray(0 if dtype == np.uint8 else -128, dtype)
    y = b.one("QLinearSoftmax", *triple(b, x), b.constant(scale), b.constant(zero), domain=MICROSOFT, axis=-1, opset=b.opset)
    return [known(b, y, scale, zero)]


def integer_product(b: Builder) -> list[Value]:
    """ConvInteger or MatMulInteger, and the float scale that exporters put behind it."""
    x = pick(b, 2, 4)
    zero = b.scales[x.name][1]
    given = b.constant(zero) if zero or b.choices.chance(2) else None
    if x.rank == 4 and x.array.dtype == np.uint8:
        w = b.constant(b.choices.generator().integers(-128, 128, (b.choices.integer(1, 6), x.shape[1], 2, 1)).astype(np.int8))
        total = b.one("ConvInteger", x, w, given)
    else:
        several, columns = x.rank > 2 and b.choices.chance(2), b.extent()
        batch = x.shape[:-2] if several else ()
        w = b.constant(b.choices.generator().integers(-128, 128, (*batch, x.shape[-1], columns)).astype(np.int8))
        zeros = None
        if b.choices.chance(2):  # per column, of every matrix where there are several
            shape = (*batch, 1, columns) if several else (columns,)
            zeros = b.constant(b.choices.generator().integers(-9, 10, shape).astype(np.int8))
        total = b.one("MatMulInteger", x, w, given, zeros)
    real = b.one("Cast", total, to=1)
    return [b.one("Mul", real, b.constant(np.asarray(2.0**-12, np.float32)))]


def view(b: Builder) -> list[Value]:
    """What moves elements, on integers themselves."""
    x = pick(b, 1)
    scale, zero = b.scales[x.name]
    op = b.choices.pick(["Transpose", "Reshape", "Flatten", "Slice", "Concat", "MaxPool", "Gather"])
    if op == "Transpose":
        y = b.one(op, x, perm=b.choices.shuffled(range(x.rank)))
    elif op == "Reshape":
        y = b.one(op, x, b.ints([-1] if b.choices.chance(2) else [*x.shape[1:], x.shape[0]]))
    elif op == "Flatten":
        y = b.one(op, x, axis=b.choices.integer(0, x.rank))
    elif op == "Slice":
        step = b.choices.pick([1, 2, -1])
        first, last = (0, x.shape[-1]) if step > 0 else (x.shape[-1] - 1, -x.shape[-1] - 1)
        y = b.one(op, x, b.ints([first]), b.ints([last]), b.ints([x.rank - 1]), b.ints([step]))
    elif op == "Concat":
        y = b.one(op, x, x, axis=b.choices.integer(0, x.rank - 1))
    elif op == "MaxPool":
        y = b.one(op, x, kernel_shape=[2] * max(1, x.rank - 2), pads=[1] * (2 * max(1, x.rank - 2)) if b.choices.chance(2) else None)
    else:
        y = b.one(op, x, b.ints([0, x.shape[0] - 1]), axis=0)
    return [known(b, y, scale, zero)]


def end(b: Builder) -> None:
    """Dequantise some of the results."""
    read = {name for node in b.nodes for name in node.input}
    for value in [v for v in b.pool if v.name in b.scales and v.name not in read]:
        if not b.choices.chance(4):
            b.attempt(lambda made, value=value: made.node("DequantizeLinear", triple(made, value)))


STEPS: list[tuple[int, Callable[[Builder], Sequence[Value]]]] = [
    (5, qlinear_conv),
    (3, qlinear_matmul),
    (2, qgemm),
    (5, qlinear_binary),
    (2, qlinear_unary),
    (2, qlinear_pool),
    (2, qlinear_concat),
    (1, qlinear_softmax),
    (1, integer_product),
    (3, view),
    (1, lambda b: [quantised_entry(b, b.shape(b.choices.integer(1, 4)))]),
]

__all__ = ["STEPS", "Invalid", "begin", "end"]
