"""Float operators, each as a function that adds one or a few nodes with random attributes; quantised graphs use the same, with every value
and weight passed through quantisation by the builder's form (see ``forms``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from tests.random.graph import LARGEST, Builder, Value
from tests.random.oracle import Invalid

Step = Callable[[Builder], Sequence[Value]]


def any_float(b: Builder, least: int = 0, most: int = 5) -> Value:
    """A float tensor of a rank in a range, made by a view or a new input where there is none."""
    found = b.pick(lambda v: v.is_float and least <= v.rank <= most)
    if found is not None and not (len(b.inputs) < 3 and b.choices.chance(12)):
        return found
    other = b.pick(lambda v: v.is_float)
    if other is not None and b.choices.chance(2):
        return reshaped(b, other, b.choices.integer(least, most))
    return entry(b, b.shape(b.choices.integer(least, most)))


def entry(b: Builder, shape: Sequence[int]) -> Value:
    from tests.random.forms import passed

    return passed(b, b.source(b.floats(shape, exact=True)))


def reshaped(b: Builder, x: Value, rank: int) -> Value:
    """A Reshape to some factorisation of the number of elements."""
    left, shape = int(x.array.size), []
    if rank == 0 and left != 1:
        raise Invalid
    for position in range(rank):
        if position == rank - 1:
            shape.append(left)
            break
        factor = b.choices.pick([f for f in range(1, left + 1) if left % f == 0][:12])
        shape.append(factor)
        left //= factor
    return b.one("Reshape", x, b.ints(shape), exact=True)


def weight(b: Builder, shape: Sequence[int], axis: int | None = None) -> Value:
    from tests.random.forms import quantised_weight

    fan = max(1, int(np.prod(shape, dtype=np.int64)) // max(1, shape[axis] if axis is not None else 1))
    return quantised_weight(b, b.floats(shape) / np.float32(np.sqrt(fan)), axis)


# Elementwise.

BINARY = {"Add": True, "Sub": True, "Mul": False, "Max": True, "Min": True, "Div": False, "Sum": True, "Mean": False, "Pow": False}


def partner(b: Builder, x: Value) -> Value:
    """A tensor that broadcasts with ``x``: one of the graph, or a constant of a random broadcast shape."""
    if b.choices.chance(2):
        fits = [v for v in b.pool if v.is_float and broadcasts(v.shape, x.shape)]
        if fits:
            return b.choices.pick(fits)
    shape = [1 if b.choices.chance(3) else n for n in x.shape][b.choices.integer(0, x.rank) if b.choices.chance(3) else 0 :]
    if b.choices.chance(4):
        shape = [b.choices.integer(2, 3) if n == 1 and b.choices.chance(2) else n for n in shape]
    if b.choices.chance(8):
        shape = [b.choices.integer(1, 2), *shape]
    if b.choices.chance(6) and len(b.inputs) < 4:
        return entry(b, shape)
    return weight_like(b, b.floats(shape, exact=True))


def weight_like(b: Builder, array: np.ndarray) -> Value:
    from tests.random.forms import quantised_weight

    return quantised_weight(b, array, None)


def broadcasts(a: Sequence[int], c: Sequence[int]) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(tuple(a), tuple(c)), dtype=np.int64)) <= LARGEST
    except ValueError:
        return False


def binary(b: Builder) -> list[Value]:
    x = any_float(b)
    op = b.choices.pick(list(BINARY))
    if op == "Div":
        divisor = weight_like(b, np.abs(b.floats(x.shape[-1:], exact=True)) + np.float32(1))
        return [b.one("Div", x, divisor)]
    if op == "Pow":
        exponent = b.constant(np.asarray(b.choices.pick([2.0, 3.0, 0.5, 1.0]), np.float32))
        return [b.one("Pow", b.one("Abs", x, exact=True), exponent)]
    y = partner(b, x)
    pair = [x, y] if b.choices.chance(2) else [y, x]
    if op in ("Sum", "Mean", "Max", "Min") and b.choices.chance(3):
        pair.append(partner(b, x))
    return [b.one(op, *pair, exact=BINARY[op])]


UNARY = tuple(
    word
    for line in (
        "Relu Sigmoid Tanh LeakyRelu Elu HardSigmoid Selu Softplus Softsign ThresholdedRelu HardSwish Mish Gelu Celu Abs Neg Exp",
        "Erf Identity Sin Cos Atan Asinh Swish Dropout Shrink Tan Sinh Cosh",
    )
    for word in line.split()
)
POSITIVE = ("Sqrt", "Log", "Reciprocal", "Acosh")
SMALL = ("Asin", "Acos", "Atanh", "Tan")
JUMPS = ("Floor", "Ceil", "Round", "Sign", "ThresholdedRelu", "Shrink")
EXACT_UNARY = ("Relu", "Abs", "Neg", "Identity", "Dropout", "ThresholdedRelu", "Floor", "Ceil", "Round", "Sign")


def unary(b: Builder) -> list[Value]:
    x = any_float(b)
    kind = b.choices.weighted(((8, UNARY), (1, POSITIVE), (1, SMALL), (1, JUMPS)))
    op = b.choices.pick(kind)
    if op in JUMPS and not x.exact:
        raise Invalid
    if op in POSITIVE:
        x = b.one("Add", b.one("Abs", x, exact=True), b.constant(np.asarray(1.25, np.float32)), exact=True)
    if op in SMALL:
        x = b.one("Mul", b.one("Tanh", x), b.constant(np.asarray(0.75, np.float32)))
    if op in ("Exp", "Sinh", "Cosh", "Softplus") and float(x.array.max(initial=0)) > 6:
        raise Invalid
    alpha = None
    if op in ("LeakyRelu", "Elu", "HardSigmoid", "ThresholdedRelu", "Celu", "Swish") and b.choices.chance(2):
        alpha = b.choices.pick([0.5, 0.01, 1.0, 0.2])
    beta = b.choices.pick([0.5, 0.25]) if op == "HardSigmoid" and b.choices.chance(2) else None
    approximate = b.choices.pick(["none", "tanh"]) if op == "Gelu" else None
    return [b.one(op, x, exact=op in EXACT_UNARY, alpha=alpha, beta=beta, approximate=approximate)]


def clip(b: Builder) -> list[Value]:
    x = any_float(b)
    low, high = b.choices.pick([(-1.0, 1.0), (0.0, 6.0), (None, 0.5), (-0.25, None), (0.5, 0.5), (0.0, 1.0)])
    if b.opset < 11:
        return [b.one("Clip", x, exact=True, min=low, max=high)]
    limits = [None if v is None else b.constant(np.asarray(v, np.float32)) for v in (low, high)]
    return [b.one("Clip", x, *limits, exact=True)]


def prelu(b: Builder) -> list[Value]:
    x = any_float(b, 1)
    shape = b.choices.pick([(), (1,), x.shape[-1:], (x.shape[1], *([1] * (x.rank - 2))) if x.rank > 1 else (1,)])
    return [b.one("PRelu", x, weight_like(b, np.abs(b.floats(shape, exact=True))))]


def cast(b: Builder) -> list[Value]:
    """To integers or booleans and back, of exact values only."""
    x = any_float(b)
    if not x.exact:
        raise Invalid
    kind = b.choices.pick([onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.BOOL, onnx.TensorProto.INT8])
    middle = b.one("Cast", x, to=kind)
    if b.choices.chance(3):
        return [middle]
    return [b.one("Cast", middle, exact=True, to=onnx.TensorProto.FLOAT)]


def condition(b: Builder, x: Value) -> Value:
    """Booleans from a comparison of exact values, or a constant."""
    if x.exact and not b.choices.chance(4):
        op = b.choices.pick(["Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"])
        found = b.one(op, x, b.constant(np.asarray(b.choices.pick([0.0, 0.5, -1.0]), np.float32)))
        if b.choices.chance(3):
            found = b.one("Not", found)
        if b.choices.chance(4):
            found = b.one(b.choices.pick(["And", "Or", "Xor"]), found, b.one("Less", x, b.constant(np.asarray(1.0, np.float32))))
        return found
    return b.constant(b.choices.generator().integers(0, 2, x.shape).astype(bool))


def where(b: Builder) -> list[Value]:
    x = any_float(b)
    chosen = condition(b, x)
    if chosen.name not in b.constants and b.choices.chance(5):
        return [chosen]
    pair = [x, partner(b, x)]
    return [b.one("Where", chosen, *(pair if b.choices.chance(2) else pair[::-1]), exact=True)]


# Products and windows.


def image(b: Builder) -> Value:
    """A tensor of rank 3, 4 or sometimes 5."""
    rank = b.choices.weighted([(6, 4), (2, 3), (1, 5)])
    return any_float(b, rank, rank)


def window(b: Builder, x: Value, transposed: bool = False, pooled: bool = False) -> dict[str, object]:
    """Kernel, strides, dilations and pads of all sizes, also larger than the kernel."""
    space = x.rank - 2
    kernel = [b.choices.integer(1, 4) for _ in range(space)]
    attributes: dict[str, object] = {"kernel_shape": kernel}
    if b.choices.chance(2):
        attributes["strides"] = [b.choices.integer(1, 3) for _ in range(space)]
    if b.choices.chance(3) and (not pooled or b.opset >= 10):
        attributes["dilations"] = [b.choices.integer(1, 3) for _ in range(space)]
    how = b.choices.weighted([(3, "none"), (4, "pads"), (1, "SAME_UPPER"), (1, "SAME_LOWER"), (1, "VALID")])
    if how == "pads":
        attributes["pads"] = [b.choices.integer(0, k - 1 if pooled else k + 1) for k in [*kernel, *kernel]]
    elif how != "none":
        attributes["auto_pad"] = how
    if transposed and b.choices.chance(3):
        attributes["output_padding"] = [b.choices.integer(0, 1) for _ in range(space)]
    return attributes


def bias(b: Builder, count: int, x: Value, w: Value) -> Value | None:
    from tests.random.forms import quantised_bias

    return quantised_bias(b, b.floats([count]), x, w) if b.choices.chance(2) else None


def conv(b: Builder) -> list[Value]:
    x = image(b)
    attributes = window(b, x)
    channels = x.shape[1]
    group = b.choices.pick([1, 1, channels, *[g for g in range(2, channels) if channels % g == 0][:2]])
    outputs = group * b.choices.integer(1, max(1, 12 // group))
    kernel: list[int] = attributes["kernel_shape"]
    w = weight(b, (outputs, channels // group, *kernel), 0)
    if b.choices.chance(2):
        del attributes["kernel_shape"]
    return [b.one("Conv", x, w, bias(b, outputs, x, w), group=group if group > 1 else None, **attributes)]


def conv_transpose(b: Builder) -> list[Value]:
    x = image(b)
    attributes = window(b, x, transposed=True)
    channels = x.shape[1]
    group = b.choices.pick([1, 1, channels])
    each = b.choices.integer(1, max(1, 6 // group))
    kernel: list[int] = attributes["kernel_shape"]
    w = weight(b, (channels, each, *kernel), 1 if group == 1 else None)
    return [b.one("ConvTranspose", x, w, bias(b, each * group, x, w), group=group if group > 1 else None, **attributes)]


def pool(b: Builder) -> list[Value]:
    x = image(b)
    op = b.choices.pick(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"])
    if op.startswith("Global"):
        return [b.one(op, x, exact=op == "GlobalMaxPool")]
    attributes = window(b, x, pooled=True)
    if op != "MaxPool" and b.opset < 19:
        attributes.pop("dilations", None)
    if "dilations" in attributes:
        attributes.pop("auto_pad", None)  # onnx and onnxruntime make outputs of different sizes of both
    if b.opset >= 10 and b.choices.chance(4):
        attributes["ceil_mode"] = 1
    if op == "AveragePool" and b.choices.chance(2):
        attributes["count_include_pad"] = 1
    return [b.one(op, x, exact=op == "MaxPool", **attributes)]


def matmul(b: Builder) -> list[Value]:
    x = any_float(b, 1)
    inner = x.shape[-1]
    if b.choices.chance(3):
        fits = [v for v in b.pool if v.is_float and v.rank >= 2 and v.shape[-2] == inner and broadcasts(v.shape[:-2], x.shape[:-2])]
        other = b.choices.pick(fits) if fits else b.one("Transpose", x, exact=True)
        return [b.one("MatMul", x, other)]
    batch = [1 if b.choices.chance(2) else n for n in x.shape[:-2]] if b.choices.chance(4) else []
    shape = [inner] if b.choices.chance(10) else [*batch, inner, b.extent()]
    return [b.one("MatMul", x, weight(b, shape, len(shape) - 1))]


def gemm(b: Builder) -> list[Value]:
    x = any_float(b, 2, 2)
    trans_a, trans_b = b.choices.chance(3), b.choices.chance(2)
    rows, inner = x.shape[::-1] if trans_a else x.shape
    columns = b.extent()
    w = weight(b, (columns, inner) if trans_b else (inner, columns), 0 if trans_b else 1)
    c = None
    if b.opset < 11 or b.choices.chance(2):
        plain = bias(b, columns, x, w)
        shape = b.choices.pick([(columns,), (1, columns), (rows, columns), (rows, 1), (1,), ()])
        c = plain if plain is not None else weight_like(b, b.floats(shape, exact=True))
    more = {"alpha": b.choices.pick([0.5, 2.0]), "beta": b.choices.pick([0.5, 1.0])} if b.choices.chance(4) else {}
    return [b.one("Gemm", x, w, c, transA=int(trans_a), transB=int(trans_b), **more)]


def einsum(b: Builder) -> list[Value]:
    equation, ranks = b.choices.pick(
        [("ij,jk->ik", 2), ("bij,bjk->bik", 3), ("ij->ji", 2), ("bij,kj->bik", 3), ("ij->i", 2), ("bhij->bijh", 4), ("bij,bjk->bik", 3)]
    )
    x = any_float(b, ranks, ranks)
    sizes = dict(zip(equation.split("->")[0].split(",")[0], x.shape, strict=True))
    others = [weight(b, [sizes.setdefault(letter, b.extent()) for letter in part]) for part in equation.split("->")[0].split(",")[1:]]
    if x.rank > 2 and others and b.choices.chance(2):  # batches that broadcast
        equation = equation.replace("b", "...")
        others = [weight(b, [1, *others[0].shape[1:]])] if equation.count("...") == 3 else others
    return [b.one("Einsum", x, *others, equation=equation)]


# Rows and reductions.


def softmax(b: Builder) -> list[Value]:
    x = any_float(b, 1)
    axis = b.choices.integer(-x.rank, x.rank - 1) if b.choices.chance(2) else None
    return [b.one(b.choices.pick(["Softmax", "Softmax", "Softmax", "LogSoftmax"]), x, axis=axis)]


def norm(b: Builder) -> list[Value]:
    op = b.choices.pick(["LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LpNormalization"])
    op = b.choices.pick([op, op, "RMSNormalization", "MeanVarianceNormalization", "LRN"])
    x = any_float(b, 3 if op in ("InstanceNormalization", "GroupNormalization", "LRN") else 2)
    if op == "MeanVarianceNormalization" and (x.rank != 4 or b.opset < 9):
        raise Invalid
    if op in ("LayerNormalization", "RMSNormalization"):
        axis = b.choices.integer(1, x.rank - 1)
        shape = x.shape[axis:]
        second = b.constant(b.floats(shape)) if op[0] == "L" and b.choices.chance(2) else None
        return [b.one(op, x, b.constant(b.floats(shape)), second, axis=axis, epsilon=b.choices.pick([1e-5, 1e-3]))]
    channels = x.shape[1]
    if op == "BatchNormalization":
        figures = [b.constant(b.floats([channels])) for _ in range(3)]
        return [b.one(op, x, *figures, b.constant(np.abs(b.floats([channels])) + np.float32(0.5)))]
    if op == "InstanceNormalization":
        return [b.one(op, x, b.constant(b.floats([channels])), b.constant(b.floats([channels])), epsilon=1e-2)]
    if op == "GroupNormalization":
        groups = b.choices.pick([g for g in range(1, channels + 1) if channels % g == 0])
        count = channels if b.opset >= 21 else groups
        return [b.one(op, x, b.constant(b.floats([count])), b.constant(b.floats([count])), num_groups=groups, epsilon=1e-2)]
    if op == "LpNormalization":
        return [b.one(op, x, axis=b.choices.integer(0, x.rank - 1), p=b.choices.pick([1, 2]))]
    return [b.one(op, x, size=3)] if op == "LRN" else [b.one(op, x)]


REDUCTIONS = tuple(
    word
    for line in ("ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp",)
    for word in line.split()
)


def reduction(b: Builder) -> list[Value]:
    x = any_float(b, 1)
    op = b.choices.pick(REDUCTIONS)
    if op == "ReduceProd" and x.array.size > 64:
        raise Invalid
    axes = sorted(b.choices.shuffled(range(x.rank))[: b.choices.integer(1, x.rank)])
    axes = [a - x.rank if b.opset >= 11 and b.choices.chance(3) else a for a in axes]
    keepdims = b.choices.pick([1, 0])
    exact = op in ("ReduceSum", "ReduceMax", "ReduceMin")
    if b.choices.chance(6):
        return [b.one(op, x, exact=exact, keepdims=keepdims)]
    if b.opset >= (13 if op == "ReduceSum" else 18):
        return [b.one(op, x, b.ints(axes), exact=exact, keepdims=keepdims)]
    return [b.one(op, x, exact=exact, axes=axes, keepdims=keepdims)]


def arg(b: Builder) -> list[Value]:
    x = any_float(b, 1)
    if not x.exact:
        raise Invalid
    last = b.choices.pick([0, 1]) if b.opset >= 12 else None
    return [
        b.one(
            b.choices.pick(["ArgMax", "ArgMin"]),
            x,
            axis=b.choices.integer(0, x.rank - 1),
            keepdims=b.choices.pick([1, 0]),
            select_last_index=last,
        )
    ]


def scan(b: Builder) -> list[Value]:
    x = any_float(b, 1)
    if b.choices.chance(3) and x.rank >= 2:
        return [b.one("Trilu", x, b.ints(b.choices.integer(-2, 2)), exact=True, upper=b.choices.pick([0, 1]))]
    return [
        b.one(
            "CumSum",
            x,
            b.ints(b.choices.integer(0, x.rank - 1)),
            exact=True,
            exclusive=b.choices.pick([0, 1]),
            reverse=b.choices.pick([0, 1]),
        )
    ]
