"""Convolutions and matrix products of quantised operands, with the requantisation of their results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.quant import Quantised, centred, dequantised, requant_constants, ties
from deeploy.graph.rewrite import producer

Rewrite = Callable[[gs.Graph, gs.Node, gs.Node, Quantised, int, int], bool]


def append(
    graph: gs.Graph,
    op: str,
    inputs: list[gs.Tensor],
    node: gs.Node,
    y: Quantised,
    ratio: np.ndarray | float,
    offset: np.ndarray | int,
    limits: tuple[int, int],
    name: str,
    output: gs.Tensor,
    **attrs: object,
) -> bool:
    """Append ``op`` with a requantise epilogue; ``node`` is the QuantizeLinear that it replaces."""
    result = y.tensor
    node.outputs = [t for t in node.outputs if t is not result]
    mul, add, shift = requant_constants(ratio, offset, y.z)
    constants = [build.const(f"{result.name} (mul)", mul), build.const(f"{result.name} (add)", add)]
    attrs = {**attrs, **ties(mul, shift, y.z), "epilogue": ("requantise",), "shift": shift, "low": limits[0], "high": limits[1]}
    build.add(graph, op, [*inputs, *constants], output, name, **attrs)
    return True


def _per_channel(values: np.ndarray, channels: int) -> np.ndarray | None:
    """Scales or zero points as one value or one per output channel."""
    flat = values.ravel().astype(np.float64)
    return flat if flat.size in (1, channels) else None


def _bias(tensor: gs.Tensor | None, unit: np.ndarray, channels: int) -> np.ndarray | None:
    """A bias in integer steps of ``unit`` (the product of both scales), one per channel."""
    if tensor is None:
        return np.zeros(1, np.int64)
    found = dequantised(tensor)
    if found is not None and isinstance(found.tensor, gs.Constant):
        exact = found.scale.astype(np.float64).ravel()
        values = np.asarray(found.tensor.values).astype(np.int64) - (found.zero_point if found.is_scalar else found.zero_point.ravel())
        if np.allclose(exact, unit, rtol=1e-5, atol=0) and values.size == channels:
            return np.asarray(values.ravel())
    real = real_constant(tensor)
    if real is None or real.size not in (1, channels):
        return None
    return np.asarray(np.rint(np.broadcast_to(real.ravel(), (channels,)).astype(np.float64) / unit).astype(np.int64))


def _conv(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    x, w = dequantised(source.inputs[0]), dequantised(source.inputs[1])
    if x is None or w is None or not x.is_scalar or not x.is_byte or not build.is_image(x.tensor):
        return False
    weights = centred(w)
    transposed = source.op == "ConvTranspose"
    if weights is None or (not w.is_scalar and w.axis != int(transposed)):
        return False
    group, channels = source.attrs["group"], y.tensor.shape[1]
    scales = _per_channel(w.scale, weights.shape[int(transposed)])
    if scales is None:
        return False
    if transposed and scales.size > 1:
        scales = np.tile(scales, group)
    unit = scales * x.s
    bias = _bias(source.inputs[2] if len(source.inputs) > 2 else None, unit, channels)
    if bias is None:
        return False
    image, output = build.image_in(graph, x.tensor, source.name), build.image_out(graph, y.tensor.shape, y.tensor.dtype, y.tensor)
    stored = build.const(f"{w.tensor.name} (centred)", build.filters(weights))
    attrs = {**build.window(source.attrs), "group": group, "zero_point": x.z}
    if transposed:
        attrs["output_padding"] = build.spatial(source.attrs["output_padding"], 0)
        offset = bias
    else:
        offset = bias - x.z * weights.astype(np.int64).sum(axis=tuple(range(1, weights.ndim)))
    return append(graph, source.op, [image, stored], node, y, unit / y.s, offset, (low, high), source.name, output, **attrs)


def _matmul(
    graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int, bias_tensor: gs.Tensor | None = None
) -> bool:
    a, b = dequantised(source.inputs[0]), dequantised(source.inputs[1])
    if a is None or b is None or not a.is_scalar or not a.is_byte or min(len(a.tensor.shape), len(b.tensor.shape)) < 2:
        return False
    is_gemm = source.op == "Gemm"
    trans_a, trans_b = (bool(source.attrs["transA"]), bool(source.attrs["transB"])) if is_gemm else (False, False)
    channels = y.tensor.shape[-1]
    column = len(b.tensor.shape) - (2 if trans_b else 1)
    if not b.is_scalar and (b.axis % len(b.tensor.shape) != column or not isinstance(b.tensor, gs.Constant)):
        return False
    scales = _per_channel(b.scale, channels)
    if scales is None or not b.is_byte:
        return False
    alpha, beta = (source.attrs["alpha"], source.attrs["beta"]) if is_gemm else (1.0, 1.0)
    unit = scales * a.s * alpha
    if is_gemm and len(source.inputs) > 2 and bias_tensor is None:
        bias_tensor = source.inputs[2] if beta else None
    bias = _bias(bias_tensor, unit if beta == 1.0 else unit / (beta or 1.0), channels)
    if bias is None or (bias_tensor is not None and bias_tensor.shape and list(bias_tensor.shape)[-1] not in (1, channels)):
        return False
    attrs = {"trans_a": trans_a, "trans_b": trans_b, "a_zero_point": a.z, "b_zero_point": b.z if b.is_scalar else 0}
    inputs, offset = [a.tensor, b.tensor], bias
    weights = centred(b)
    if weights is not None:
        inputs[1] = build.const(f"{b.tensor.name} (centred)", weights)
        attrs["b_zero_point"] = 0
        if weights.ndim == 2 and a.z:
            offset = bias - a.z * weights.astype(np.int64).sum(axis=1 if trans_b else 0)
            attrs["a_zero_point"] = 0
    elif not b.is_scalar:
        return False
    return append(graph, "MatMul", inputs, node, y, unit / y.s, offset, (low, high), source.name, y.tensor, **attrs)


def _product(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    return _matmul(graph, source, node, y, low, high)


def biased(graph: gs.Graph, source: gs.Node, node: gs.Node, y: Quantised, low: int, high: int) -> bool:
    """A matrix product and the Add of a constant row behind it."""
    for position in (0, 1):
        product, bias = producer(source.inputs[position], "MatMul"), source.inputs[1 - position]
        real = real_constant(bias)
        if product is None or build.lowered(product) or real is None or len(product.outputs[0].outputs) != 1:
            continue
        if real.shape[-1:] == tuple(y.tensor.shape[-1:]) == (real.size,):
            return _matmul(graph, product, node, y, low, high, bias)
    return False


PRODUCTS: dict[str, Rewrite] = {"Conv": _conv, "ConvTranspose": _conv, "Gemm": _product, "MatMul": _product}
