"""Quantisation with scales that are computed at run time: DynamicQuantizeLinear, and the products of what it makes.

The smallest and the largest element give scale and zero point, and products are computed of the bytes as they are: the zero point
of the data, times the sums of the weights, is subtracted from them. Exact, as ONNX defines each operator.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.call import PLAIN, Call, filters, is_image, window
from deeploy.frontend.lower.products import centred_weights
from deeploy.frontend.lower.rewriter import Rewriter, lowered, standard
from deeploy.graph.rewrite import Pass, constant, producer, rule
from deeploy.operators.dynamic import LEVELS, SCALE

_ROW = 1024  # elements, from which on extremes are found in two steps


@standard("DynamicQuantizeLinear", lowers=True)
def dynamic(rw: Rewriter) -> bool:
    """The extremes, what follows from them, and a Quantize."""
    results = [*rw.node.outputs, gs.Variable.empty(), gs.Variable.empty()][:3]
    low, high = (_extreme(rw, op) for op in ("ReduceMin", "ReduceMax"))
    scale, zero = (gs.Variable(rw.name(label), dtype, [1]) for label, dtype in (("scale", np.float32), ("zero point", np.int32)))
    made = rw.into(scale, SCALE.name, low, high).inputs[0]
    made.outputs = [scale, zero]
    rw.node.outputs = results[:1]
    if not results[1].is_empty():
        rw.into(results[1], "Reshape", scale)
    if not results[2].is_empty():
        rw.into(results[2], "Reshape", rw.create("Cast", zero, dtype=np.uint8))
    return rw.replace("Quantize", rw.x, scale, zero, low=0, high=LEVELS)


def _extreme(rw: Rewriter, op: str) -> gs.Tensor:
    """The smallest or the largest element, of shape [1]: of rows first, which may be cut into tiles."""
    shape = list(rw.x.shape)
    long = [axis for axis, n in enumerate(shape) if n > 1]
    image = any(reader.op == "ConvInteger" for reader in rw.y.outputs)
    rows = next((axis for axis in long if not (image and axis == 1)), None)
    found = rw.reshape(rw.x, shape or [1])
    if math.prod(shape) > _ROW and rows is not None and len(shape) > 1:
        found = rw.create(op, found, axes=tuple(a for a in range(len(shape)) if a != rows), keepdims=False, label=f"{op} of rows")
    return rw.reshape(rw.create(op, found, axes=tuple(range(len(found.shape))), keepdims=True), [1])


@rule("ConvInteger")
def convolution(graph: gs.Graph, node: gs.Node) -> bool:
    """Borders are filled before the quantisation, where they are 0, so that the zero point counts for every tap."""
    call = Call(graph, node)
    weights, source = centred_weights(call, 0), producer(call.x, "Quantize")
    zero = _zero_point(call, source)
    if zero is None or weights is None or not is_image(call.x):
        return False
    x, attrs = call.x, window(call.attrs)
    pads = call.attrs["pads"]
    if any(pads):
        if source is None:
            return False
        spatial = len(pads) // 2
        around = [0, 0, *pads[:spatial], 0, 0, *pads[spatial:]]
        shape = [n + around[i] + around[i + len(x.shape)] for i, n in enumerate(x.shape)]
        wide = call.create("Pad", source.inputs[0], shape=shape, pads=tuple(around), mode="constant", value=0)
        x = call.create("Quantize", wide, *source.inputs[1:], dtype=x.dtype, **source.attrs)
        attrs["pads"] = (0, 0, 0, 0)
    image, number = call.image(x), call.y.shape[0]
    shape = [number, *[1] * (4 - len(call.y.shape)), *call.y.shape[2:], call.y.shape[1]]
    sums = weights.astype(np.int64).sum(axis=tuple(range(1, weights.ndim)))
    products = call.create(
        "Conv",
        image,
        call.constant(filters(weights), label="weights"),
        shape=shape,
        dtype=np.int32,
        group=call.attrs["group"],
        zero_point=0,
        epilogue=(),
        **attrs,
    )
    return call.replace_image("Sub", products, _correction(call, zero, sums))


@rule("MatMulInteger")
def product(graph: gs.Graph, node: gs.Node) -> bool:
    """With zero points that are computed, or several for the rows of a or the columns of b.

    The sum of (a - za) * (b - zb) over a depth is that of a * b, less za times the sum of b, less zb times the sum of a - za. The second
    term is absent where b is constant, from which zb is subtracted.
    """
    call = Call(graph, node)
    a, b = node.inputs[:2]
    if min(len(a.shape), len(b.shape)) < 2:
        return False
    weights = centred_weights(call, len(b.shape) - 1)
    if all(_is_one_constant(call.input(position)) for position in ((2,) if weights is not None else (2, 3))):
        return False  # in attributes of the product
    zero = _zero_points(call, 2)
    if weights is not None:
        b = call.constant(weights, label="weights")
    products = call.create("MatMul", a, b, shape=call.y.shape, dtype=np.int32, trans_a=False, trans_b=False, **PLAIN)
    if weights is not None:
        return call.replace("Sub", products, _correction(call, zero, weights.astype(np.int64).sum(axis=-2, keepdims=weights.ndim > 2)))
    rows, columns = (
        call.create("ReduceSum", x, dtype=np.int32, axes=(len(x.shape) - back,), keepdims=True, label=label)
        for x, back, label in ((a, 1, "sums of rows"), (b, 2, "sums of columns"))
    )
    depth = call.constant([a.shape[-1]], np.int32, "depth")
    centred = call.create("Sub", rows, call.create("Mul", depth, zero, label="zero points of a row", **PLAIN))
    first, second = (
        call.create("Mul", sums, each, label=f"correction of {side}", **PLAIN)
        for sums, each, side in ((columns, zero, "a"), (centred, _zero_points(call, 3), "b"))
    )
    return call.replace("Sub", call.create("Sub", products, first, label="products"), second)


def _is_one_constant(tensor: gs.Tensor | None) -> bool:
    return tensor is None or (isinstance(tensor, gs.Constant) and math.prod(tensor.shape) == 1)


def _zero_points(call: Call, position: int) -> gs.Tensor:
    """Zero points of a product's operand in int32, as they broadcast over its result: one, or one per row of a or column of b."""
    given, source = call.input(position), producer(call.node.inputs[position - 2], "Quantize")
    if given is None or isinstance(given, gs.Constant):
        values = np.zeros(1) if given is None else np.asarray(given.values)
        per_row = position == 2 and values.ndim == 1 and values.size > 1
        return call.constant(values[:, None] if per_row else values, np.int32, "zero points")
    if math.prod(given.shape) == 1 and (one := _zero_point(call, source, position)) is not None:
        return one
    shape = [*given.shape, 1] if position == 2 and len(given.shape) == 1 else given.shape
    return call.create("Cast", call.reshape(given, shape), dtype=np.int32, label="zero points")


def _zero_point(call: Call, source: gs.Node | None, position: int = 2) -> gs.Tensor | None:
    """The zero point of the data as int32[1], where it is one that is computed at run time; else None."""
    given = call.input(position)
    if given is None or constant(given) is not None or math.prod(given.shape) != 1:
        return None
    if source is not None and source.inputs[2] is _behind(given):
        return source.inputs[2]
    return call.create("Cast", call.reshape(given, [1]), dtype=np.int32, label="zero point")


def _behind(tensor: gs.Tensor) -> gs.Tensor:
    """What a tensor holds before it got another type and another shape."""
    while (node := producer(tensor)) is not None and node.op in ("Reshape", "Cast"):
        tensor = node.inputs[0]
    return tensor


def _correction(call: Call, zero: gs.Tensor, sums: np.ndarray) -> gs.Tensor:
    """What the zero point of the data contributes to the products with weights of these sums."""
    return call.create("Mul", call.constant(sums, np.int32, "sums of weights"), zero, label="correction", **PLAIN)


@lowered("Mul", kind="f")
def scaled(rw: Rewriter) -> bool:
    """Products of integers, converted to floats and scaled, are dequantised; what is subtracted of them is a zero point."""
    for x, scale in (rw.node.inputs, rw.node.inputs[::-1]):
        cast = rw.only_source(x, "Cast")
        view = rw.only_source(cast.inputs[0], "Reshape") if cast is not None else None
        source = rw.only_source((view or cast).inputs[0], "Sub") if cast is not None else None
        if source is None or source.attrs.get("epilogue") or np.dtype(source.outputs[0].dtype) != np.int32 or rw.attrs.get("epilogue"):
            continue
        total, correction = source.inputs
        is_one = math.prod(scale.shape) == 1
        same = list(total.shape) == list(source.outputs[0].shape) and math.prod(total.shape) == math.prod(rw.y.shape)
        fits = is_one if view is not None else len(scale.shape) <= len(rw.y.shape)
        if same and fits and producer(correction) is not None:
            step = rw.reshape(scale, [1]) if is_one else scale
            return rw.finish(rw.create("Dequantize", total, step, correction, dtype=np.float32))
    return False


PASS = Pass("dynamic", (dynamic, convolution, product))
FUSE = Pass("dynamic scales", (scaled,))
