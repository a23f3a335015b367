"""Transposes: moved towards the outputs until they meet their inverse, and absorbed where nothing has to move.

Lowering wraps every image operator into transposes to and from channels-last; between two of them this pass leaves none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.rewriter import Rewriter, inverse, lowered
from deeploy.frontend.schemas import Attributes
from deeploy.graph.rewrite import Pass, constant, producer, redirect

BROADCASTING = ("Add", "Sub", "Mul", "Div", "ScaledAdd", "ScaledDiv", "Binary", "Where")
_ELEMENTWISE = (*BROADCASTING, "RequantShift", "Lookup", "Clip", "Unary", "Dequantize", "Cast")
_REDUCING = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "IntegerMean")
_ROWS = ("Softmax", "ShiftSoftmax", "Normalise", "Standardise", "IntegerLayerNorm", "IntegerRMSNorm")


def _transposed(tensor: gs.Tensor) -> tuple[gs.Tensor, tuple[int, ...] | None]:
    """What a tensor is the transpose of, and how; itself and None where it is none, or of what has its order."""
    node = producer(tensor, "Transpose")
    perm = tuple(node.attrs["perm"]) if node is not None and build.lowered(node) else ()
    return (tensor, None) if node is None or perm == tuple(range(len(perm))) else (node.inputs[0], perm)


def _behind(rw: Rewriter, inputs: Sequence[gs.Tensor], perm: Sequence[int], attrs: Attributes) -> bool:
    """Replace the node by itself on untransposed ``inputs``, and a transpose of its result."""
    shape = [rw.y.shape[position] for position in inverse(perm)]
    label = "channels last" if tuple(perm) == (0, len(perm) - 1, *range(1, len(perm) - 1)) else "before transpose"
    early = rw.create(rw.op, *inputs, shape=shape, dtype=rw.y.dtype, label=label, **attrs)
    return rw.replace("Transpose", early, perm=tuple(perm))


def _fitted(rw: Rewriter, tensor: gs.Tensor, perm: Sequence[int]) -> gs.Tensor | None:
    """An operand as it must be when the transpose ``perm`` moves behind the operator, or None where that is not free."""
    rank, order, values = len(perm), inverse(perm), constant(tensor)
    source, own = _transposed(tensor)
    if own == tuple(perm):
        return source
    if values is None and len(tensor.shape) == rank:
        moving = [axis for axis in order if tensor.shape[axis] != 1]
        return rw.reshape(tensor, [tensor.shape[axis] for axis in order]) if moving == sorted(moving) else None
    if math.prod(tensor.shape) == 1 and len(tensor.shape) <= rank:
        return tensor
    if values is None or values.ndim > rank:
        return None
    return rw.transpose(rw.constant(values.reshape([1] * (rank - values.ndim) + list(values.shape)), values.dtype), order)


def _all_fitted(rw: Rewriter, tensors: Sequence[gs.Tensor], perm: Sequence[int]) -> list[gs.Tensor] | None:
    fitted = [_fitted(rw, tensor, perm) for tensor in tensors]
    return [t for t in fitted if t is not None] if all(t is not None for t in fitted) else None


@lowered("Transpose")
def simplify(rw: Rewriter) -> bool:
    """Two transposes are one; one that only moves axes of extent 1 is a reshape; the identity is nothing."""
    perm, (source, first) = tuple(rw.attrs["perm"]), _transposed(rw.x)
    if first is not None:
        rw.node.inputs = [source]
        rw.attrs["perm"] = tuple(first[p] for p in perm)
        return True
    moving = [p for p in perm if rw.x.shape[p] != 1]
    if perm != tuple(range(len(perm))) and moving != sorted(moving):
        return False
    rw.node.op, rw.node.attrs = "Reshape", {}
    _drop_reshape(rw)
    return True


def _drop_reshape(rw: Rewriter) -> bool:
    same = list(rw.x.shape) == list(rw.y.shape) and np.dtype(rw.x.dtype) == np.dtype(rw.y.dtype)
    return same and not rw.is_output(rw.y) and rw.forward(rw.x)


@lowered("Reshape")
def simplify_reshape(rw: Rewriter) -> bool:
    """Two reshapes are one; one to the same shape is nothing; constants are reshaped at once."""
    before, values = rw.source(rw.x, "Reshape"), constant(rw.x)
    if before is not None:
        rw.node.inputs = [before.inputs[0]]
        return True
    if values is not None and not rw.is_output(rw.y):
        return rw.forward(rw.constant(values.reshape(rw.y.shape), values.dtype))
    return _drop_reshape(rw)


@lowered(*_ELEMENTWISE)
def elementwise(rw: Rewriter) -> bool:
    if rw.op in ("Add", "Sub", "Mul") and not _scalar_epilogue(rw):
        return False
    perms = (_transposed(t)[1] for t in rw.node.inputs)
    perm = next((p for p in perms if p is not None and len(p) == len(rw.y.shape)), None)
    stages = 2 if "requantise" in rw.attrs.get("epilogue", ()) else 0
    data = 1 if rw.op == "Lookup" else len(rw.node.inputs) - stages
    fitted = None if perm is None else _all_fitted(rw, rw.node.inputs[:data], perm)
    return perm is not None and fitted is not None and _behind(rw, [*fitted, *rw.node.inputs[data:]], perm, rw.attrs)


def _scalar_epilogue(rw: Rewriter) -> bool:
    return "requantise" not in rw.attrs.get("epilogue", ()) or all(math.prod(t.shape) == 1 for t in rw.node.inputs[-2:])


def _from_caller(tensor: gs.Tensor) -> bool:
    """Whether the tensor is a network's input under another shape."""
    while (node := producer(tensor)) is not None and node.op in ("Reshape", "Transpose"):
        tensor = node.inputs[0]
    return node is None


@lowered("Quantize")
def quantise(rw: Rewriter) -> bool:
    """A transpose of a quantised input goes in front of the quantisation, whose kernel follows the strides of the caller's array.

    Elsewhere transposes move behind, as with any other operator.
    """
    if not _from_caller(rw.x):
        return elementwise.rewrite(rw.graph, rw.node)
    readers = list(rw.y.outputs)
    if not readers or any(r.op != "Transpose" or not build.lowered(r) for r in readers) or rw.is_output(rw.y):
        return False
    perms = {tuple(r.attrs["perm"]) for r in readers}
    if len(perms) != 1 or any(math.prod(t.shape) != 1 for t in rw.node.inputs[1:]):
        return False
    result = readers[0].outputs[0]
    for reader in readers:
        if reader is not readers[0]:
            redirect(rw.graph, reader.outputs[0], result)
        reader.outputs.clear()
    rw.node.outputs.clear()
    moved = rw.transpose(rw.x, perms.pop())
    rw.into(result, "Quantize", moved, *rw.node.inputs[1:], **rw.attrs).inputs[0].name = rw.node.name
    return True


@lowered(*_REDUCING)
def reduction(rw: Rewriter) -> bool:
    x, perm = _transposed(rw.x)
    if perm is None:
        return False
    axes = tuple(sorted(perm[axis] for axis in rw.attrs["axes"]))
    kept = [p for p in perm if p not in axes]
    order = perm if rw.attrs["keepdims"] else tuple(sorted(kept).index(p) for p in kept)
    if not _scalar_epilogue(rw) and (rw.attrs["keepdims"] or list(order) != sorted(order)):
        return False
    return _behind(rw, [x, *rw.node.inputs[1:]], order, {**rw.attrs, "axes": axes})


@lowered("Concat", "Pad", "Slice", "Gather", *_ROWS)
def by_axis(rw: Rewriter) -> bool:
    """Operators with axes in their attributes."""
    x, perm = _transposed(rw.x)
    attrs, others = dict(rw.attrs), rw.node.inputs[1:]
    if perm is None:
        return False
    rank = len(perm)
    if rw.op in _ROWS:
        return perm[-1] == rank - 1 and _behind(rw, [x, *others], perm, attrs)
    if "axis" in attrs:
        attrs["axis"] = perm[attrs["axis"]]
    if rw.op == "Gather":
        return len(others[0].shape) == 1 and _behind(rw, [x, *others], perm, attrs)
    fitted = _all_fitted(rw, rw.node.inputs, perm)
    for name in {"Pad": ("pads",), "Slice": ("starts", "ends", "steps")}.get(rw.op, ()):
        halves = [attrs[name][i : i + rank] for i in range(0, len(attrs[name]), rank)]
        attrs[name] = tuple(half[position] for half in halves for position in inverse(perm))
    return fitted is not None and _behind(rw, fitted, perm, attrs)


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


@lowered("Reshape")
def regroup(rw: Rewriter) -> bool:
    """Transpose, then split or merge axes: whole blocks of axes change places behind the reshape instead of in front of it.

    What is permuted within a block has to stay in front.
    """
    x, perm = _transposed(rw.x)
    if perm is None or 0 in rw.y.shape or not rw.y.outputs:
        return False
    blocks = _blocks(rw.x.shape, rw.y.shape)
    sources = [[perm[axis] for axis in run] for run, _ in blocks]
    order = sorted(range(len(blocks)), key=lambda block: min(sources[block]))
    whole = all(sorted(axes) == list(range(min(axes), max(axes) + 1)) for axes in sources)
    if not whole or order == sorted(order):
        return False
    moved = rw.transpose(x, [axis for block in order for axis in sources[block]])
    outer = [axis for block in order for axis in blocks[block][1]]
    early = rw.create("Reshape", moved, shape=[rw.y.shape[axis] for axis in outer])
    return rw.replace("Transpose", early, perm=tuple(inverse(outer)))


@lowered("MatMul")
def matmul(rw: Rewriter) -> bool:
    """A transpose that swaps the last two axes of an operand becomes a flag; one behind flattening permutes constant rows.

    One that also moves other axes of the second operand becomes one that leaves its rows dense.
    """
    for position, flag in ((0, "trans_a"), (1, "trans_b")):
        source, perm = _transposed(rw.node.inputs[position])
        if perm is None or len(perm) < 2 or perm[-2] != len(perm) - 1:
            continue
        others = [*perm[:-2], perm[-1], perm[-2]]
        is_swap = others == sorted(others)
        if is_swap or position:
            rw.node.inputs[position] = source if is_swap else rw.transpose(source, others)
            rw.attrs[flag] = not rw.attrs[flag]
            return True
    return _absorb_flattening(rw)


def _absorb_flattening(rw: Rewriter) -> bool:
    """Transpose, flatten to [M,K], product with constant [K,N]: permute the K rows of the constant instead."""
    flatten, weights = rw.source(rw.x, "Reshape"), rw.value(1)
    if flatten is None or weights is None or weights.ndim != 2 or rw.attrs["trans_a"] or len(rw.x.shape) != 2:
        return False
    shape, (x, perm) = list(flatten.inputs[0].shape), _transposed(flatten.inputs[0])
    if not perm or perm[0] != 0 or shape[0] != rw.x.shape[0]:
        return False
    rows = weights.T if rw.attrs["trans_b"] else weights
    order = [axis - 1 for axis in inverse(perm)[1:]]
    ordered = rows.reshape(*shape[1:], -1).transpose(*order, len(order)).reshape(rows.shape)
    rw.node.inputs[0] = rw.create("Reshape", x, shape=rw.x.shape)
    rw.node.inputs[1] = rw.constant(ordered.T if rw.attrs["trans_b"] else ordered, weights.dtype)
    return True


PASS = Pass("transposes", (simplify, simplify_reshape, quantise, elementwise, reduction, by_axis, regroup, matmul))
