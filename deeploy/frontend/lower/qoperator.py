"""QOperator graphs in the spelling of QDQ graphs: dequantise, compute, quantise.

One set of rules (``qdq``) then lowers both. The integer operators of ONNX (ConvInteger, MatMulInteger) are lowered here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.quant import Quantised, centred
from deeploy.graph.rewrite import Pass, constant, rule


def _dequantise(graph: gs.Graph, x: gs.Tensor, scale: gs.Tensor, zero: gs.Tensor | None, label: str, axis: int = 0) -> gs.Tensor:
    real = build.variable(f"{x.name} (real for {label})", np.float32, x.shape)
    inputs = [x, scale] if zero is None or zero.is_empty() else [x, scale, zero]
    graph.nodes.append(gs.Node("DequantizeLinear", real.name, {"axis": axis}, inputs, [real]))
    return real


def _finish(
    graph: gs.Graph, node: gs.Node, op: str, attrs: dict[str, Any], inputs: list[gs.Tensor], scale: gs.Tensor, zero: gs.Tensor | None
) -> bool:
    """Replace ``node`` by the float operator ``op`` and the quantisation of its result."""
    y = node.outputs[0]
    node.outputs.clear()
    real = build.variable(f"{y.name} (real)", np.float32, y.shape)
    graph.nodes.append(gs.Node(op, node.name, attrs, inputs, [real]))
    parameters = [scale] if zero is None or zero.is_empty() else [scale, zero]
    graph.nodes.append(gs.Node("QuantizeLinear", f"{node.name} (quantise)", {"axis": 1}, [real, *parameters], [y]))
    return True


def _input(node: gs.Node, position: int) -> gs.Tensor | None:
    return node.inputs[position] if position < len(node.inputs) and not node.inputs[position].is_empty() else None


def _bias(graph: gs.Graph, bias: gs.Tensor, x_scale: gs.Tensor, w_scale: gs.Tensor, label: str) -> gs.Tensor | None:
    """An int32 bias in units of the product of both scales."""
    sx, sw = constant(x_scale), constant(w_scale)
    if sx is None or sw is None:
        return None
    product = build.const(f"{bias.name} (scale for {label})", np.asarray(sx.ravel()[0] * sw, np.float32))
    return _dequantise(graph, bias, product, None, label, axis=0)


@rule("QLinearConv")
def conv(graph: gs.Graph, node: gs.Node) -> bool:
    x, xs, xz, w, ws, wz, ys, yz = node.inputs[:8]
    inputs = [_dequantise(graph, x, xs, xz, node.name), _dequantise(graph, w, ws, wz, node.name, axis=0)]
    if (bias := _input(node, 8)) is not None:
        real = _bias(graph, bias, xs, ws, node.name)
        if real is None:
            return False
        inputs.append(real)
    return _finish(graph, node, "Conv", dict(node.attrs), inputs, ys, yz)


@rule("QLinearMatMul")
def matmul(graph: gs.Graph, node: gs.Node) -> bool:
    a, a_scale, az, b, bs, bz, ys, yz = node.inputs[:8]
    axis = len(b.shape) - 1
    inputs = [_dequantise(graph, a, a_scale, az, f"{node.name} a"), _dequantise(graph, b, bs, bz, f"{node.name} b", axis)]
    return _finish(graph, node, "MatMul", {}, inputs, ys, yz)


@rule("QGemm")
def gemm(graph: gs.Graph, node: gs.Node) -> bool:
    a, a_scale, az, b, bs, bz = node.inputs[:6]
    axis = 0 if node.attrs["transB"] else 1
    inputs = [_dequantise(graph, a, a_scale, az, f"{node.name} a"), _dequantise(graph, b, bs, bz, f"{node.name} b", axis)]
    if (bias := _input(node, 6)) is not None:
        # The kernel adds the bias to the sum of products before it multiplies by alpha.
        unit = constant(a_scale)
        scaled = None if unit is None else build.const(f"{a_scale.name} (times alpha)", unit * np.float32(node.attrs["alpha"]))
        real = None if scaled is None else _bias(graph, bias, scaled, bs, node.name)
        if real is None:
            return False
        inputs.append(real)
    attrs = {"alpha": node.attrs["alpha"], "beta": 1.0, "transA": node.attrs["transA"], "transB": node.attrs["transB"]}
    ys = _input(node, 7)
    if ys is not None:
        return _finish(graph, node, "Gemm", attrs, inputs, ys, _input(node, 8))
    y = node.outputs[0]
    node.outputs.clear()
    graph.nodes.append(gs.Node("Gemm", node.name, attrs, inputs, [y]))
    return True


@rule("QLinearAdd", "QLinearMul")
def binary(graph: gs.Graph, node: gs.Node) -> bool:
    a, a_scale, az, b, bs, bz, ys = node.inputs[:7]
    inputs = [_dequantise(graph, a, a_scale, az, f"{node.name} a"), _dequantise(graph, b, bs, bz, f"{node.name} b")]
    return _finish(graph, node, node.op.removeprefix("QLinear"), {}, inputs, ys, _input(node, 7))


@rule("QLinearConcat")
def concat(graph: gs.Graph, node: gs.Node) -> bool:
    ys, yz = node.inputs[:2]
    groups = [node.inputs[i : i + 3] for i in range(2, len(node.inputs), 3)]
    inputs = [_dequantise(graph, group[0], group[1], group[2], f"{node.name} {i}") for i, group in enumerate(groups)]
    return _finish(graph, node, "Concat", {"axis": node.attrs["axis"]}, inputs, ys, yz)


_ONE_INPUT = {
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
    "QLinearSoftmax": "Softmax",
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearReduceMean": "ReduceMean",
}


@rule(*_ONE_INPUT)
def one_input(graph: gs.Graph, node: gs.Node) -> bool:
    x, xs, xz, ys = node.inputs[:4]
    attrs = {name: value for name, value in node.attrs.items() if name not in ("opset", "channels_last")}
    if node.op == "QLinearSoftmax":
        recent = node.attrs.get("opset", 13) >= 13
        attrs.setdefault("axis", len(x.shape) - 1 if recent else 1)
        if not recent and any(n != 1 for n in x.shape[attrs["axis"] + 1 :]):
            return False
    if not node.attrs.get("channels_last", 0):
        real = _dequantise(graph, x, xs, xz, node.name)
        return _finish(graph, node, _ONE_INPUT[node.op], attrs, [real], ys, _input(node, 4))
    axes = list(range(1, len(x.shape) - 1))
    if node.op != "QLinearGlobalAveragePool" or list(node.outputs[0].shape) != [x.shape[0], *(1 for _ in axes), x.shape[-1]]:
        return False
    real = _dequantise(graph, x, xs, xz, node.name)
    return _finish(graph, node, "ReduceMean", {"axes": axes, "keepdims": 1}, [real], ys, _input(node, 4))


@rule("MatMulInteger")
def matmul_integer(graph: gs.Graph, node: gs.Node) -> bool:
    a, b = node.inputs[:2]
    zero, weight_zero = _scalar(node, 2), _scalar(node, 3)
    if build.lowered(node) or zero is None or min(len(a.shape), len(b.shape)) < 2:
        return False
    if weight_zero is None:
        columns = constant(node.inputs[3])
        if columns is None or columns.size != b.shape[-1]:
            return False
        weights = centred(Quantised(b, np.ones(1, np.float32), columns.astype(np.int64).ravel(), len(b.shape) - 1))
        if weights is None:
            return False
        b, weight_zero = build.const(f"{b.name} (centred)", weights), 0
    y = node.outputs[0]
    node.outputs.clear()
    build.add(graph, "MatMul", [a, b], y, node.name, trans_a=False, trans_b=False, a_zero_point=zero, b_zero_point=weight_zero)
    return True


@rule("ConvInteger")
def conv_integer(graph: gs.Graph, node: gs.Node) -> bool:
    x, w = node.inputs[:2]
    zero = _scalar(node, 2)
    weight_zero = constant(node.inputs[3]) if _input(node, 3) is not None else np.zeros(1, np.int64)
    if zero is None or weight_zero is None or not build.is_image(x):
        return False
    weights = centred(Quantised(w, np.ones(1, np.float32), weight_zero.astype(np.int64).ravel(), 0))
    if weights is None:
        return False
    y = node.outputs[0]
    node.outputs.clear()
    stored = build.const(f"{w.name} (centred)", build.filters(weights))
    correction = -zero * weights.astype(np.int64).sum(axis=tuple(range(1, weights.ndim)))
    bias = build.const(f"{node.name} (bias)", correction, np.int32)
    image = build.image_out(graph, y.shape, np.int32, y)
    attrs = {**build.window(node.attrs), "group": node.attrs["group"], "zero_point": zero, "epilogue": ("bias",)}
    build.add(graph, "Conv", [build.image_in(graph, x, node.name), stored, bias], image, node.name, **attrs)
    return True


def _scalar(node: gs.Node, position: int) -> int | None:
    """A constant scalar input as an int; 0 where it is absent, None where it is something else."""
    tensor = _input(node, position)
    if tensor is None:
        return 0
    value = constant(tensor)
    return int(value.ravel()[0]) if value is not None and value.size == 1 else None


PASS = Pass("qoperator", (conv, matmul, gemm, binary, concat, one_input, matmul_integer, conv_integer))
