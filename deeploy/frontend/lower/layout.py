"""Transposes: moved towards the outputs until they meet their inverse, and absorbed where nothing has to move.

Lowering wraps every image operator into transposes to and from channels-last; between two of them this pass leaves none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.graph.rewrite import Pass, constant, producer, redirect, rule

_BROADCASTING = ("Add", "Sub", "Mul", "Div", "ScaledAdd", "ScaledDiv", "Binary", "Where")
_ELEMENTWISE = (*_BROADCASTING, "RequantShift", "Lookup", "Clip", "Unary", "Dequantize", "Cast")
_REDUCING = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "IntegerMean")


def _source(tensor: gs.Tensor) -> gs.Tensor:
    """What the node that computes ``tensor`` reads first."""
    return tensor.inputs[0].inputs[0]


def _perm(tensor: gs.Tensor) -> tuple[int, ...] | None:
    node = producer(tensor, "Transpose")
    return tuple(node.attrs["perm"]) if node is not None and build.lowered(node) else None


def _behind(graph: gs.Graph, node: gs.Node, inputs: list[gs.Tensor], perm: Sequence[int], attrs: dict[str, Any]) -> bool:
    """Replace ``node`` by itself on untransposed ``inputs``, and a transpose of its result."""
    y = node.outputs[0]
    node.outputs.clear()
    shape = [0] * len(perm)
    for position, axis in enumerate(perm):
        shape[axis] = y.shape[position]
    last = tuple(perm) == (0, len(perm) - 1, *range(1, len(perm) - 1))
    early = build.variable(f"{y.name} ({'channels last' if last else 'before transpose'})", y.dtype, shape)
    graph.nodes.append(gs.Node(node.op, node.name, attrs, inputs, [early], domain=build.DOMAIN))
    build.add(graph, "Transpose", [early], y, f"{node.name} (transpose)", perm=tuple(perm))
    return True


def _fitted(graph: gs.Graph, tensor: gs.Tensor, perm: Sequence[int], label: str) -> gs.Tensor | None:
    """An operand as it must be when the transpose ``perm`` moves behind the operator, or None where that is not free."""
    rank = len(perm)
    if _perm(tensor) == tuple(perm):
        return _source(tensor)
    if not isinstance(tensor, gs.Constant) and len(tensor.shape) == rank:
        order = [list(perm).index(axis) for axis in range(rank)]
        moving = [axis for axis in order if tensor.shape[axis] != 1]
        return build.reshape(graph, tensor, [tensor.shape[axis] for axis in order], label) if moving == sorted(moving) else None
    if math.prod(tensor.shape) == 1 and len(tensor.shape) <= rank and (isinstance(tensor, gs.Constant) or not tensor.shape):
        return tensor
    values = constant(tensor)
    if values is None or values.ndim > rank:
        return None
    whole = values.reshape([1] * (rank - values.ndim) + list(values.shape))
    inverse = [list(perm).index(axis) for axis in range(rank)]
    return build.const(f"{tensor.name} (transposed)", whole.transpose(inverse))


@rule("Transpose")
def simplify(graph: gs.Graph, node: gs.Node) -> bool:
    """Two transposes are one; one that only moves axes of extent 1 is a reshape; the identity is nothing."""
    if not build.lowered(node):
        return False
    x, perm = node.inputs[0], tuple(node.attrs["perm"])
    first = _perm(x)
    if first is not None:
        node.inputs = [_source(x)]
        node.attrs["perm"] = tuple(first[p] for p in perm)
        return True
    moving = [p for p in perm if x.shape[p] != 1]
    if perm != tuple(range(len(perm))) and moving != sorted(moving):
        return False
    node.op, node.attrs = "Reshape", {}
    _drop_reshape(graph, node)
    return True


def _drop_reshape(graph: gs.Graph, node: gs.Node) -> bool:
    x, y = node.inputs[0], node.outputs[0]
    if list(x.shape) != list(y.shape) or any(y is out for out in graph.outputs) or np.dtype(x.dtype) != np.dtype(y.dtype):
        return False
    redirect(graph, y, x)
    node.outputs.clear()
    node.inputs.clear()
    return True


@rule("Reshape")
def simplify_reshape(graph: gs.Graph, node: gs.Node) -> bool:
    """Two reshapes are one; one to the same shape is nothing; constants are reshaped at once."""
    if not build.lowered(node):
        return False
    before = producer(node.inputs[0], "Reshape")
    if before is not None and build.lowered(before):
        node.inputs = [before.inputs[0]]
        return True
    values = constant(node.inputs[0])
    if values is not None and not any(node.outputs[0] is out for out in graph.outputs):
        redirect(graph, node.outputs[0], build.const(node.outputs[0].name, values.reshape(node.outputs[0].shape)))
        node.outputs.clear()
        return True
    return _drop_reshape(graph, node)


@rule(*_ELEMENTWISE)
def elementwise(graph: gs.Graph, node: gs.Node) -> bool:
    if not build.lowered(node) or (node.attrs.get("epilogue") and node.op in ("Add", "Sub", "Mul") and not _scalar_epilogue(node)):
        return False
    perm = next((p for t in node.inputs if (p := _perm(t)) is not None and len(p) == len(node.outputs[0].shape)), None)
    if perm is None:
        return False
    stages = 2 if "requantise" in node.attrs.get("epilogue", ()) else 0
    data = 1 if node.op == "Lookup" else len(node.inputs) - stages
    fitted = [_fitted(graph, t, perm, f"untransposed for {node.name}") for t in node.inputs[:data]]
    if any(t is None for t in fitted):
        return False
    return _behind(graph, node, [*(t for t in fitted if t is not None), *node.inputs[data:]], perm, dict(node.attrs))


def _scalar_epilogue(node: gs.Node) -> bool:
    return "requantise" not in node.attrs["epilogue"] or all(math.prod(t.shape) == 1 for t in node.inputs[-2:])


def _from_caller(tensor: gs.Tensor) -> bool:
    """Whether the tensor is a network's input under another shape."""
    while (node := producer(tensor)) is not None:
        if node.op not in ("Reshape", "Transpose"):
            return False
        tensor = node.inputs[0]
    return True


@rule("Quantize")
def quantise(graph: gs.Graph, node: gs.Node) -> bool:
    """A transpose of a quantised input goes in front of the quantisation, whose kernel follows the strides of the caller's array.

    Elsewhere transposes move behind, as with any other operator.
    """
    if not _from_caller(node.inputs[0]):
        return elementwise.rewrite(graph, node)
    y = node.outputs[0]
    readers = list(y.outputs)
    if not readers or any(r.op != "Transpose" or not build.lowered(r) for r in readers) or any(y is out for out in graph.outputs):
        return False
    perms = {tuple(r.attrs["perm"]) for r in readers}
    if len(perms) != 1 or any(math.prod(t.shape) != 1 for t in node.inputs[1:]):
        return False
    perm = perms.pop()
    result = readers[0].outputs[0]
    for other in readers[1:]:
        redirect(graph, other.outputs[0], result)
        other.outputs.clear()
    readers[0].outputs.clear()
    node.outputs.clear()
    moved = build.transpose(graph, node.inputs[0], perm, f"for {node.name}")
    build.add(graph, "Quantize", [moved, *node.inputs[1:]], result, node.name, **node.attrs)
    return True


@rule(*_REDUCING)
def reduction(graph: gs.Graph, node: gs.Node) -> bool:
    perm = _perm(node.inputs[0])
    if perm is None or not build.lowered(node):
        return False
    x = _source(node.inputs[0])
    axes = tuple(sorted(perm[axis] for axis in node.attrs["axes"]))
    kept = [p for p in perm if p not in axes]
    attrs = {**node.attrs, "axes": axes}
    if node.attrs["keepdims"]:
        stay = "requantise" not in node.attrs.get("epilogue", ()) or _scalar_epilogue(node)
        return stay and _behind(graph, node, [x, *node.inputs[1:]], perm, attrs)
    order = [sorted(kept).index(p) for p in kept]
    if "epilogue" in node.attrs and not _scalar_epilogue(node) and order != sorted(order):
        return False
    return _behind(graph, node, [x, *node.inputs[1:]], order, attrs)


_ROWS = ("Softmax", "ShiftSoftmax", "Normalise", "Standardise", "IntegerLayerNorm", "IntegerRMSNorm")


@rule("Concat", "Pad", "Slice", *_ROWS)
def by_axis(graph: gs.Graph, node: gs.Node) -> bool:
    """Operators with axes in their attributes."""
    perm = _perm(node.inputs[0])
    if perm is None or not build.lowered(node):
        return False
    attrs, rank = dict(node.attrs), len(perm)
    if node.op in _ROWS:
        if perm[-1] != rank - 1:
            return False
        return _behind(graph, node, [_source(node.inputs[0]), *node.inputs[1:]], perm, attrs)
    fitted = [_fitted(graph, t, perm, f"untransposed for {node.name}") for t in node.inputs]
    if any(t is None for t in fitted):
        return False
    if node.op == "Concat":
        attrs["axis"] = perm[attrs["axis"]]
    else:
        for name in ("pads",) if node.op == "Pad" else ("starts", "ends", "steps"):
            values = attrs[name]
            halves = [values[i : i + rank] for i in range(0, len(values), rank)]
            attrs[name] = tuple(half[perm.index(axis)] for half in halves for axis in range(rank))
    return _behind(graph, node, [t for t in fitted if t is not None], perm, attrs)


@rule("Gather")
def gather(graph: gs.Graph, node: gs.Node) -> bool:
    """A list of indices along another axis."""
    perm = _perm(node.inputs[0])
    if perm is None or not build.lowered(node) or len(node.inputs[1].shape) != 1:
        return False
    return _behind(graph, node, [_source(node.inputs[0]), node.inputs[1]], perm, {"axis": perm[node.attrs["axis"]]})


def _blocks(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of axes of one shape that a reshape turns into runs of the other; no run of the first is empty."""
    runs: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before):
        first, start = i, j
        left, right, i = before[i], 1, i + 1
        while left != right or j == start:
            if j < len(after) and (right < left or (left == right and after[j] == 1)):
                right, j = right * after[j], j + 1
            elif left < right:
                left, i = left * before[i], i + 1
            else:
                break
        runs.append((list(range(first, i)), list(range(start, j))))
    runs[-1][1].extend(range(j, len(after)))
    return runs


@rule("Reshape")
def regroup(graph: gs.Graph, node: gs.Node) -> bool:
    """Transpose, then split or merge axes: whole blocks of axes change places behind the reshape instead of in front of it.

    What is permuted within a block has to stay in front.
    """
    perm = _perm(node.inputs[0])
    y = node.outputs[0]
    if perm is None or not build.lowered(node) or 0 in y.shape or not y.outputs:
        return False
    blocks = _blocks(node.inputs[0].shape, y.shape)
    sources = [[perm[axis] for axis in run] for run, _ in blocks]
    order = sorted(range(len(blocks)), key=lambda block: min(sources[block]))
    inner = [axis for block in order for axis in sources[block]]
    whole = all(sorted(axes) == list(range(min(axes), max(axes) + 1)) for axes in sources)
    outer = [axis for block in order for axis in blocks[block][1]]
    if not whole or order == sorted(order):
        return False
    x = build.transpose(graph, _source(node.inputs[0]), inner, f"blocks for {node.name}")
    inverse = [outer.index(axis) for axis in range(len(outer))]
    node.outputs.clear()
    early = build.variable(f"{y.name} (before transpose)", y.dtype, [y.shape[axis] for axis in outer])
    build.add(graph, "Reshape", [x], early, node.name)
    build.add(graph, "Transpose", [early], y, f"{node.name} (transpose)", perm=tuple(inverse))
    return True


@rule("MatMul")
def matmul(graph: gs.Graph, node: gs.Node) -> bool:
    """A transpose that swaps the last two axes of an operand becomes a flag; one behind flattening permutes constant rows."""
    if not build.lowered(node):
        return False
    for position, flag in ((0, "trans_a"), (1, "trans_b")):
        perm = _perm(node.inputs[position])
        if perm is not None and perm == (*range(len(perm) - 2), len(perm) - 1, len(perm) - 2):
            node.inputs[position] = _source(node.inputs[position])
            node.attrs[flag] = not node.attrs[flag]
            return True
    return _absorb_flattening(graph, node)


def _absorb_flattening(graph: gs.Graph, node: gs.Node) -> bool:
    """Transpose, flatten to [M,K], product with constant [K,N]: permute the K rows of the constant instead."""
    flatten = producer(node.inputs[0], "Reshape")
    weights = constant(node.inputs[1])
    if flatten is None or weights is None or weights.ndim != 2 or node.attrs["trans_a"] or len(node.inputs[0].shape) != 2:
        return False
    perm = _perm(flatten.inputs[0])
    if perm is None or perm[0] != 0 or flatten.inputs[0].shape[0] != node.inputs[0].shape[0]:
        return False
    x = _source(flatten.inputs[0])
    inner = flatten.inputs[0].shape[1:]
    rows = weights.T if node.attrs["trans_b"] else weights
    inverse = [perm.index(axis) - 1 for axis in range(1, len(perm))]
    ordered = rows.reshape(*inner, -1).transpose(*inverse, len(inner)).reshape(rows.shape)
    name = node.inputs[0].name
    flat = build.add(graph, "Reshape", [x], build.variable(f"{name} (own order)", x.dtype, node.inputs[0].shape))
    node.inputs[0] = flat
    node.inputs[1] = build.const(f"{node.inputs[1].name} (rows reordered)", ordered.T if node.attrs["trans_b"] else ordered)
    return True


PASS = Pass("transposes", (simplify, simplify_reshape, quantise, elementwise, reduction, by_axis, gather, regroup, matmul))
