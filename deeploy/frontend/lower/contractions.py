"""Sums of products and running sums as matrix products, and norms of images as norms of rows; all in ONNX spelling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.lookup import real_constant
from deeploy.graph.rewrite import Pass, constant, rule


def _moved(graph: gs.Graph, x: gs.Tensor, perm: Sequence[int], label: str) -> gs.Tensor:
    """``x`` with its axes reordered."""
    if list(perm) == sorted(perm):
        return x
    return build.spell(graph, "Transpose", [x], build.variable(label, x.dtype, [x.shape[p] for p in perm]), perm=list(perm))


def _shaped(graph: gs.Graph, x: gs.Tensor, shape: Sequence[int], label: str) -> gs.Tensor:
    return x if list(x.shape) == list(shape) else build.spell(graph, "Reshape", [x], build.variable(label, x.dtype, shape))


@rule("CumSum")
def running_sum(graph: gs.Graph, node: gs.Node) -> bool:
    """A product with a triangle of ones along the axis; 64-bit integers are summed in 32 bits."""
    x, y, axis = node.inputs[0], node.outputs[0], constant(node.inputs[1])
    if axis is None or np.dtype(x.dtype).kind not in "if":
        return False
    rank = len(x.shape)
    at = int(np.asarray(axis).ravel()[0]) % rank
    size = x.shape[at]
    ones = np.triu(np.ones((size, size), np.int8), int(node.attrs.get("exclusive", 0)))  # row i enters the sums from column i on
    triangle = ones[::-1, ::-1] if node.attrs.get("reverse", 0) else ones
    wide = np.dtype(x.dtype) == np.int64
    dtype = np.dtype(np.int32) if wide else np.dtype(x.dtype)
    node.outputs.clear()
    if wide:
        x = build.spell(graph, "Cast", [x], build.variable(f"{y.name} (32 bits)", dtype, x.shape), to=int(onnx.TensorProto.INT32))
    perm = [*(i for i in range(rank) if i != at), at]
    last = _moved(graph, x, perm, f"{y.name} (axis last)")
    rows = _shaped(graph, last, [math.prod(last.shape[:-1]), size], f"{y.name} (rows)")
    weights: gs.Tensor = build.const(f"{y.name} (triangle)", triangle)
    if dtype.kind == "f":  # dequantised: a quantised sum stays one
        real = build.variable(f"{y.name} (real triangle)", dtype, triangle.shape)
        weights = build.spell(graph, "DequantizeLinear", [weights, build.const(f"{y.name} (one)", 1.0, dtype)], real, axis=0)
    sums = build.spell(graph, "MatMul", [rows, weights], build.variable(f"{y.name} (sums)", dtype, rows.shape))
    back = _moved(graph, _shaped(graph, sums, last.shape, f"{y.name} (shape)"), [perm.index(i) for i in range(rank)], f"{y.name} (back)")
    if wide:
        build.spell(graph, "Cast", [back], y, to=int(onnx.TensorProto.INT64))
    else:
        build.spell(graph, "Reshape", [back], y)
    return True


def _equation(node: gs.Node) -> tuple[list[str], str] | None:
    """The letters of every operand and of the result of an Einsum without dots or repeated letters."""
    text = str(node.attrs.get("equation", "")).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if not arrow:
        right = "".join(sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1))
    words = [*terms, right]
    letters = set("".join(terms))
    plain = all(word.isalpha() or not word for word in words) and all(len(set(word)) == len(word) for word in words)
    return (terms, right) if plain and set(right) <= letters and len(terms) == len(node.inputs) else None


@rule("Einsum")
def einsum(graph: gs.Graph, node: gs.Node) -> bool:
    """Of two operands: batches, rows, columns and what is summed are grouped and multiplied as matrices."""
    found = _equation(node)
    if found is None or len(found[0]) != 2:
        return False
    (first, second), result = found
    a, b = node.inputs
    sizes = {letter: size for word, t in ((first, a), (second, b)) for letter, size in zip(word, t.shape, strict=True)}
    if any(sizes[c] != n for word, t in ((first, a), (second, b)) for c, n in zip(word, t.shape, strict=True)):
        return False
    batch = [c for c in result if c in first and c in second]
    summed = [c for c in first if c in second and c not in result]
    rows, columns = ([c for c in word if c not in other] for word, other in ((first, second), (second, first)))
    if any(c not in result for c in (*rows, *columns)):
        return False
    y = node.outputs[0]
    node.outputs.clear()

    def extent(letters: Sequence[str]) -> int:
        return math.prod(sizes[c] for c in letters)

    head = [sizes[c] for c in batch]
    left = _moved(graph, a, [first.index(c) for c in (*batch, *rows, *summed)], f"{y.name} (left)")
    right = _moved(graph, b, [second.index(c) for c in (*batch, *summed, *columns)], f"{y.name} (right)")
    left = _shaped(graph, left, [*head, extent(rows), extent(summed)], f"{y.name} (left matrix)")
    right = _shaped(graph, right, [*head, extent(summed), extent(columns)], f"{y.name} (right matrix)")
    matrix = build.variable(f"{y.name} (matrix)", y.dtype, [*head, extent(rows), extent(columns)])
    build.spell(graph, "MatMul", [left, right], matrix)
    order = [*batch, *rows, *columns]
    whole = _shaped(graph, matrix, [sizes[c] for c in order], f"{y.name} (axes)")
    back = _moved(graph, whole, [order.index(c) for c in result], f"{y.name} (order)")
    build.spell(graph, "Reshape", [back], y)
    return True


@rule("InstanceNormalization")
def instance_norm(graph: gs.Graph, node: gs.Node) -> bool:
    """Every channel of every image is a row; scale and bias are per channel."""
    x, y = node.inputs[0], node.outputs[0]
    values = [real_constant(t) for t in node.inputs[1:3]]
    if np.dtype(x.dtype).kind != "f" or any(v is None for v in values):
        return False
    spatial = math.prod(x.shape[2:])
    channels = [-1, *(1 for _ in x.shape[2:])]
    scale, bias = (build.const(f"{y.name} ({n})", np.asarray(v).reshape(channels)) for n, v in zip(("scale", "bias"), values, strict=True))
    node.outputs.clear()
    rows = _shaped(graph, x, [*x.shape[:2], spatial], f"{y.name} (rows)")
    ones = build.const(f"{y.name} (ones)", np.ones(spatial, np.float32))
    normal = build.variable(f"{y.name} (normal)", x.dtype, rows.shape)
    graph.nodes.append(
        gs.Node("LayerNormalization", node.name, {"axis": 2, "epsilon": node.attrs.get("epsilon", 1e-5)}, [rows, ones], [normal])
    )
    whole = _shaped(graph, normal, x.shape, f"{y.name} (image)")
    scaled = build.spell(graph, "Mul", [whole, scale], build.variable(f"{y.name} (scaled)", x.dtype, x.shape))
    build.spell(graph, "Add", [scaled, bias], y)
    return True


@rule("Trilu")
def triangle(graph: gs.Graph, node: gs.Node) -> bool:
    """What lies above or below a diagonal, zeros elsewhere."""
    x, y = node.inputs[0], node.outputs[0]
    k = constant(node.inputs[1]) if len(node.inputs) > 1 else np.zeros(1, np.int64)
    if k is None:
        return False
    ones, at = np.ones(x.shape[-2:], bool), int(k.ravel()[0])
    kept = np.triu(ones, at) if node.attrs.get("upper", 1) else np.tril(ones, at)
    node.outputs.clear()
    build.spell(graph, "Where", [build.const(f"{y.name} (kept)", kept), x, build.const(f"{y.name} (zero)", [0], x.dtype)], y)
    return True


@rule("IsNaN")
def is_nan(graph: gs.Graph, node: gs.Node) -> bool:
    """What differs from itself."""
    x, y = node.inputs[0], node.outputs[0]
    node.outputs.clear()
    build.add(graph, "Binary", [x, x], y, node.name, function="not_equal")
    return True


PASS = Pass("contractions", (running_sum, einsum, instance_norm, triangle, is_nan))
