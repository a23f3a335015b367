"""What is left after quantisation is gone: ONNX operators one by one into operators of the integer form, in any type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build, choice, norms
from deeploy.frontend.lower.lookup import UNARY, function
from deeploy.graph.rewrite import Pass, constant, rule

Lowering = Callable[[gs.Graph, gs.Node], bool]


def _replace(graph: gs.Graph, node: gs.Node, op: str, inputs: Sequence[gs.Tensor], **attrs: object) -> bool:
    y = node.outputs[0]
    node.outputs.clear()
    build.add(graph, op, inputs, y, node.name, **attrs)
    return True


def _conv(graph: gs.Graph, node: gs.Node) -> bool:
    x, w = node.inputs[:2]
    if not build.is_image(x):
        return False
    y = node.outputs[0]
    weights = build.const(f"{w.name} (two axes)", build.filters(np.asarray(w.values))) if isinstance(w, gs.Constant) else w
    if not isinstance(w, gs.Constant) and len(w.shape) == 3:
        weights = build.reshape(graph, w, [w.shape[0], w.shape[1], 1, w.shape[2]], f"two axes for {node.name}")
    has_bias = len(node.inputs) > 2
    bias = [_wide(t) for t in node.inputs[2:3]]
    node.outputs.clear()
    attrs = {**build.window(node.attrs), "group": node.attrs["group"], "zero_point": 0, "epilogue": ("bias",) if has_bias else ()}
    if node.op == "ConvTranspose":
        attrs["output_padding"] = build.spatial(node.attrs["output_padding"], 0)
    image, output = build.image_in(graph, x, node.name), build.image_out(graph, y.shape, y.dtype, y)
    build.add(graph, node.op, [image, weights, *bias], output, node.name, **attrs)
    return True


def _wide(bias: gs.Tensor) -> gs.Tensor:
    """A constant bias in the type of an accumulator, whatever smaller type holds its values."""
    values = constant(bias)
    return build.const(bias.name, values, np.int32) if values is not None and values.dtype.kind in "iu" else bias


def _times(graph: gs.Graph, x: gs.Tensor, factor: float, label: str) -> gs.Tensor:
    """A float tensor times a number; a constant is multiplied at once."""
    name, values = f"{x.name} (times {label})", constant(x)
    if factor == 1:
        return x
    if values is not None:
        return build.const(name, values * np.float32(factor))
    number = build.const(f"{name} (factor)", [factor], np.float32)
    return build.add(graph, "Mul", [x, number], build.variable(name, x.dtype, x.shape), a_zero_point=0, b_zero_point=0)


def _gemm(graph: gs.Graph, node: gs.Node) -> bool:
    a, b = node.inputs[:2]
    y = node.outputs[0]
    alpha, beta = node.attrs["alpha"], node.attrs["beta"]
    c = node.inputs[2] if len(node.inputs) > 2 and not node.inputs[2].is_empty() and beta != 0 else None
    if (alpha != 1 or (beta != 1 and c is not None)) and np.dtype(y.dtype).kind != "f":
        return False
    inputs = [a, _times(graph, b, alpha, "alpha")]
    c = None if c is None else _times(graph, c, beta, "beta")
    bias = None if c is None else constant(c)
    node.outputs.clear()
    attrs = {"trans_a": bool(node.attrs["transA"]), "trans_b": bool(node.attrs["transB"]), "a_zero_point": 0, "b_zero_point": 0}
    row = bias is not None and bias.size in (1, y.shape[-1]) and (bias.size == 1 or bias.shape[-1] == bias.size)
    if c is None or (row and bias is not None):
        if bias is not None:
            inputs.append(_wide(build.const(f"{y.name} (bias)", bias.ravel())))
        build.add(graph, "MatMul", inputs, y, node.name, **attrs, epilogue=("bias",) if bias is not None else ())
        return True
    product = build.add(graph, "MatMul", inputs, build.variable(f"{y.name} (product)", y.dtype, y.shape), node.name, **attrs)
    summand = c if bias is None else build.const(f"{y.name} (summand)", bias)
    build.add(graph, "Add", [product, summand], y, f"{node.name} (sum)")
    return True


def _matmul(graph: gs.Graph, node: gs.Node) -> bool:
    a, b = node.inputs[:2]
    y = node.outputs[0]
    node.outputs.clear()
    build.add(graph, "MatMul", [a, b], y, node.name, trans_a=False, trans_b=False, a_zero_point=0, b_zero_point=0)
    return True


def _pool(graph: gs.Graph, node: gs.Node) -> bool:
    x, y = node.inputs[0], node.outputs[0]
    if not build.is_image(x) or len(node.outputs) > 1:
        return False
    if node.op == "AveragePool" and np.dtype(x.dtype).kind != "f":
        return False
    node.outputs.clear()
    attrs = {**build.window(node.attrs), "kernel": build.spatial(node.attrs["kernel_shape"], 1)}
    if node.op == "AveragePool":
        attrs |= {"count_include_pad": bool(node.attrs["count_include_pad"]), "zero_point": 0}
    image, output = build.image_in(graph, x, node.name), build.image_out(graph, y.shape, y.dtype, y)
    build.add(graph, node.op, [image], output, node.name, **attrs)
    return True


def _reduce(graph: gs.Graph, node: gs.Node) -> bool:
    x = node.inputs[0]
    op = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}.get(node.op, node.op)
    axes = tuple(node.attrs["axes"]) if node.op == op else tuple(range(2, len(x.shape)))
    if op == "ReduceMean" and np.dtype(x.dtype).kind != "f":
        op = "IntegerMean"
    return _replace(graph, node, op, [x], axes=axes, keepdims=bool(node.attrs.get("keepdims", 1)))


def _extreme(graph: gs.Graph, node: gs.Node) -> bool:
    """Along the last axis, which is kept."""
    x, y = node.inputs[0], node.outputs[0]
    rank, axis = len(x.shape), node.attrs["axis"]
    perm = [i for i in range(rank) if i != axis] + [axis]
    node.outputs.clear()
    moved = build.transpose(graph, x, perm, f"axis last for {node.name}")
    found = build.variable(f"{y.name} (of rows)", y.dtype, [*moved.shape[:-1], 1])
    attrs = {"smallest": node.op == "ArgMin", "last": bool(node.attrs.get("select_last_index", 0))}
    build.add(graph, "ArgMax", [moved], found, node.name, **attrs)
    build.add(graph, "Reshape", [found], y)  # the axes that remain are in the same order
    return True


def _binary(graph: gs.Graph, node: gs.Node) -> bool:
    dtype = np.dtype(node.outputs[0].dtype)
    if dtype == np.int64 or (node.op == "Div" and dtype.kind in "iu"):
        return choice.lower(graph, node)
    attrs = {"a_zero_point": 0, "b_zero_point": 0} if node.op == "Mul" else {}
    return _replace(graph, node, node.op, node.inputs, **attrs)


def _clip(graph: gs.Graph, node: gs.Node) -> bool:
    low, high = (0, None) if node.op == "Relu" else (node.attrs["min"], node.attrs["max"])
    return _replace(graph, node, "Clip", node.inputs[:1], low=low, high=high)


def _softmax(graph: gs.Graph, node: gs.Node) -> bool:
    x, y = node.inputs[0], node.outputs[0]
    rank, axis = len(x.shape), node.attrs["axis"]
    perm = [i for i in range(rank) if i != axis] + [axis]
    node.outputs.clear()
    moved = build.transpose(graph, x, perm, f"softmax axis last for {node.name}")
    if moved is x:
        build.add(graph, "Softmax", [x], y, node.name)
        return True
    output = build.add(graph, "Softmax", [moved], build.variable(f"{y.name} (axis last)", y.dtype, moved.shape), node.name)
    build.add(graph, "Transpose", [output], y, perm=tuple(perm.index(i) for i in range(rank)))
    return True


def _unary(graph: gs.Graph, node: gs.Node) -> bool:
    found = function(node)
    if found is None or np.dtype(node.inputs[0].dtype).kind != "f":
        further = {"PRelu": _prelu, "Pow": choice.lower, "Neg": _negative, "Abs": _size}.get(node.op)
        return further is not None and further(graph, node)
    return _replace(graph, node, "Unary", node.inputs[:1], function=found[0], alpha=found[1], beta=found[2])


def _negative(graph: gs.Graph, node: gs.Node) -> bool:
    """Integers times -1, or taken from 0 where no accumulator holds them."""
    x = node.inputs[0]
    if np.dtype(x.dtype).kind not in "iu":
        return False
    if np.dtype(x.dtype) == np.int64:
        node.op, node.inputs = "Sub", [build.const(f"{node.name} (zero)", [0], np.int64), x]
        return _binary(graph, node)
    return _replace(graph, node, "Mul", [x, build.const(f"{node.name} (sign)", [-1], np.int8)], a_zero_point=0, b_zero_point=0)


def _size(graph: gs.Graph, node: gs.Node) -> bool:
    """The larger one of an integer and its negative."""
    x = node.inputs[0]
    if np.dtype(x.dtype) not in (np.int32, np.int64):
        return False
    negative = build.variable(f"{node.outputs[0].name} (negative)", x.dtype, x.shape)
    build.spell(graph, "Neg", [x], negative)
    node.op, node.inputs = "Max", [x, negative]
    return choice.lower(graph, node)


def _prelu(graph: gs.Graph, node: gs.Node) -> bool:
    """max(x, 0) + slope * min(x, 0)."""
    x, slope = node.inputs[:2]
    y = node.outputs[0]
    if np.dtype(x.dtype).kind != "f":
        return False
    node.outputs.clear()
    positive = build.add(graph, "Clip", [x], build.variable(f"{y.name} (positive)", x.dtype, x.shape), low=0, high=None)
    negative = build.add(graph, "Clip", [x], build.variable(f"{y.name} (negative)", x.dtype, x.shape), low=None, high=0)
    scaled = build.add(
        graph, "Mul", [negative, slope], build.variable(f"{y.name} (scaled)", x.dtype, x.shape), a_zero_point=0, b_zero_point=0
    )
    build.add(graph, "Add", [positive, scaled], y, node.name)
    return True


def _batch_norm(graph: gs.Graph, node: gs.Node) -> bool:
    """y = x*factor + summand per channel (axis 1), from constants."""
    x, y = node.inputs[0], node.outputs[0]
    values = [constant(t) for t in node.inputs[1:5]]
    if any(v is None for v in values) or np.dtype(x.dtype).kind != "f" or len(node.outputs) > 1:
        return False
    scale, bias, mean, variance = (np.asarray(v, np.float64) for v in values)
    factor = scale / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
    shape = [-1] + [1] * (len(x.shape) - 2)
    node.outputs.clear()
    product = build.variable(f"{y.name} (scaled)", x.dtype, x.shape)
    by, plus = ((a.astype(np.float32)).reshape(shape) for a in (factor, bias - mean * factor))
    build.add(graph, "Mul", [x, build.const(f"{y.name} (factor)", by)], product, node.name, a_zero_point=0, b_zero_point=0)
    build.add(graph, "Add", [product, build.const(f"{y.name} (summand)", plus)], y, f"{node.name} (sum)")
    return True


def _quantisation(graph: gs.Graph, node: gs.Node) -> bool:
    """Quantise or dequantise in floats; parameters broadcast to the tensor's axes."""
    x, y = node.inputs[0], node.outputs[0]
    scale = constant(node.inputs[1])
    integer = y if node.op == "QuantizeLinear" else x
    zero = constant(node.inputs[2]) if len(node.inputs) > 2 and not node.inputs[2].is_empty() else np.zeros(1, np.int32)
    if scale is None or zero is None or np.dtype(integer.dtype).kind not in "iu" or node.attrs.get("block_size", 0):
        return False
    shape = [1] * len(x.shape)
    if scale.size > 1 or zero.size > 1:
        shape[node.attrs["axis"]] = -1
    parameters = [
        np.asarray(a).reshape(shape if a.size > 1 else [1] * min(1, len(shape))) for a in (scale.astype(np.float32), zero.astype(np.int32))
    ]
    if isinstance(x, gs.Constant):
        real = (np.asarray(x.values).astype(np.int64) - parameters[1]).astype(np.float32) * parameters[0]
        for reader in list(y.outputs):
            reader.inputs = [build.const(f"{y.name} (folded)", real) if t is y else t for t in reader.inputs]
        if any(y is out for out in graph.outputs):
            return False
        node.outputs.clear()
        return True
    constants = [build.const(f"{y.name} ({name})", value) for name, value in zip(("scale", "zero point"), parameters, strict=True)]
    attrs = {}
    if node.op == "QuantizeLinear":
        info = np.iinfo(y.dtype)
        attrs = {"low": int(info.min), "high": int(info.max)}
    return _replace(graph, node, {"QuantizeLinear": "Quantize", "DequantizeLinear": "Dequantize"}[node.op], [x, *constants], **attrs)


def _split(graph: gs.Graph, node: gs.Node) -> bool:
    """Slices, which a transpose can pass one by one."""
    x, axis, parts = node.inputs[0], node.attrs["axis"], list(node.outputs)
    node.outputs.clear()
    rank, start = len(x.shape), 0
    for part, size in zip(parts, node.attrs["split"], strict=True):
        starts, ends = [0] * rank, list(x.shape)
        starts[axis], ends[axis] = start, start + size
        start += size
        if not part.is_empty():
            build.add(graph, "Slice", [x], part, starts=tuple(starts), ends=tuple(ends), steps=(1,) * rank)
    return True


def _indices(graph: gs.Graph, tensor: gs.Tensor) -> gs.Tensor:
    """Indices in a type that the integer form has them in; constants in 32 bits."""
    values = constant(tensor)
    if values is not None:
        return gs.Constant(tensor.name, np.asarray(values.astype(np.int32)))
    if np.dtype(tensor.dtype) in (np.int32, np.int64):
        return tensor
    return build.add(graph, "Cast", [tensor], build.variable(f"{tensor.name} (indices)", np.int32, tensor.shape))


def _movement(graph: gs.Graph, node: gs.Node) -> bool:
    if node.op == "Split":
        return _split(graph, node)
    if node.op == "Cast" and np.dtype(node.outputs[0].dtype).kind == "b":
        return choice.to_bool(graph, node)
    if node.op == "Gather":
        node.inputs[1] = _indices(graph, node.inputs[1])
    attrs = {name: tuple(value) if isinstance(value, list) else value for name, value in node.attrs.items()}
    if node.op == "Pad" and attrs["mode"] not in ("constant", "reflect", "edge"):
        return False
    return _replace(graph, node, node.op, node.inputs, **{k: v for k, v in attrs.items() if k != "to"})


_LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(("Conv", "ConvTranspose"), _conv),
    "Gemm": _gemm,
    "MatMul": _matmul,
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(
        ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "GlobalAveragePool", "GlobalMaxPool", "IntegerMean"), _reduce
    ),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _binary),
    **dict.fromkeys(("Relu", "Clip"), _clip),
    **dict.fromkeys((*choice.BITS, "BitwiseNot"), choice.bits),
    **dict.fromkeys(("ArgMax", "ArgMin"), _extreme),
    "Softmax": _softmax,
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(norms.CENTRED, norms.floating),
    **dict.fromkeys((*choice.COMPARISONS, *choice.EXTREMES, "Where", "Not"), choice.lower),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantisation),
    **dict.fromkeys(("Reshape", "Transpose", "Slice", "Concat", "Split", "Pad", "Gather", "Cast", "Expand"), _movement),
    **dict.fromkeys((*UNARY, "Gelu", "Pow", "PRelu"), _unary),
}

LOWERED = frozenset(_LOWERINGS)  # what a kernel of the same name runs in the integer form only


@rule(*_LOWERINGS)
def operator(graph: gs.Graph, node: gs.Node) -> bool:
    """Every operator by its own lowering; one that does not apply leaves the node for binding to report."""
    return not build.lowered(node) and _LOWERINGS[node.op](graph, node)


PASS = Pass("operators", (operator,))
