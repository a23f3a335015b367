"""Transposes: moved towards the outputs until they meet their inverse, and absorbed where nothing has to move.

Lowering wraps every image operator into transposes to and from channels-last; between two of them this pass leaves none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deeploy.ir.nodes import Attributes, Tensor, compute, constant, inverse_order
from deeploy.ir.rewriting import Match, Pass, Result, lowered, need, require

BROADCASTING = ("Add", "Sub", "Mul", "Div", "ScaledAdd", "ScaledDiv", "Binary", "Where")
SINGLE = ("Unary", "Lookup", "Clip", "Cast", "Dequantize")  # element by element of their first operand
_ELEMENTWISE = (*BROADCASTING, *SINGLE, "RequantShift")
_REDUCING = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "IntegerMean")
_ROWS = ("Softmax", "FixedSoftmax", "FixedL2Norm", "ShiftSoftmax", "Normalise", "Standardise", "IntegerLayerNorm", "IntegerRMSNorm")


def _find_transpose(m: Match, tensor: Tensor) -> tuple[Tensor, tuple[int, ...]] | None:
    """What a tensor is the transpose of in another order, and that order."""
    node = m.source(tensor, "Transpose")
    perm = () if node is None else tuple(node.attrs["perm"])
    return None if node is None or list(perm) == sorted(perm) else (node.operands[0], perm)


def _move_behind(m: Match, inputs: Sequence[Tensor], perm: Sequence[int], attrs: Attributes) -> Tensor:
    """The node itself on untransposed ``inputs``, and a transpose of its result."""
    shape = [m.y.shape[position] for position in inverse_order(perm)]
    label = "channels last" if tuple(perm) == (0, len(perm) - 1, *range(1, len(perm) - 1)) else "before transpose"
    return m.replace("Transpose", compute(m.op, *inputs, shape=shape, dtype=m.y.dtype, label=label, **attrs), perm=tuple(perm))


def _fit_operand(m: Match, tensor: Tensor, perm: tuple[int, ...]) -> Tensor:
    """An operand as it must be when the transpose ``perm`` moves behind the operator, where that is free."""
    rank, order = len(perm), inverse_order(perm)
    source, own = _find_transpose(m, tensor) or (tensor, None)
    if own == perm or (tensor.elements == 1 and tensor.rank <= rank and (tensor.data is not None or tensor.rank < rank)):
        return source if own == perm else tensor
    if tensor.data is None:
        moving = [axis for axis in order if tensor.rank == rank and tensor.shape[axis] != 1]
        require(tensor.rank == rank, moving == sorted(moving))
        return tensor.reshape([tensor.shape[axis] for axis in order])
    require(tensor.rank <= rank)
    return constant(np.array(tensor.data, ndmin=rank)).transpose(order)


@lowered("Transpose")
def simplify_transpose(m: Match) -> Result:
    """Two transposes are one; one that only moves axes of extent 1 is a reshape; the identity is nothing."""
    perm, before = tuple(m.attrs["perm"]), _find_transpose(m, m.x)
    if before is not None:
        source, first = before
        return m.replace("Transpose", source, perm=tuple(first[p] for p in perm))
    moving = [p for p in perm if m.x.shape[p] != 1]
    require(perm == tuple(range(len(perm))) or moving == sorted(moving))
    return m.x if m.x.shape == m.y.shape else m.replace("Reshape", m.x)


@lowered("Reshape")
def simplify_reshape(m: Match) -> Result:
    """Two reshapes are one; one to the same shape is nothing; constants are reshaped at once."""
    before = m.source(m.x, "Reshape")
    if before is not None:
        return m.replace("Reshape", before.operands[0])
    require(not m.is_output(m.y), m.x.data is not None or m.x.shape == m.y.shape)
    return m.x.reshape(m.y.shape)


@lowered(*_ELEMENTWISE)
def move_past_elementwise(m: Match) -> Result:
    require(m.op not in ("Add", "Sub", "Mul") or _has_scalar_epilogue(m))
    transposes = (_find_transpose(m, tensor) for tensor in m.inputs)
    perm = need(next((pair[1] for pair in transposes if pair is not None and len(pair[1]) == m.y.rank), None))
    data = 1 if m.op == "Lookup" else len(m.inputs) - (2 if "requantise" in m.node.epilogue else 0)
    return _move_behind(m, [*(_fit_operand(m, tensor, perm) for tensor in m.inputs[:data]), *m.inputs[data:]], perm, m.attrs)


def _has_scalar_epilogue(m: Match) -> bool:
    return "requantise" not in m.node.epilogue or all(tensor.elements == 1 for tensor in m.inputs[-2:])


@lowered("Quantize")
def move_past_quantise(m: Match) -> Result:
    """A transpose of a quantised input goes in front of the quantisation, whose kernel follows the strides of the caller's array.

    Elsewhere transposes move behind, as with any other operator.
    """
    if m.views(m.x, is_shared=True)[1].maker is not None:
        return move_past_elementwise.rewrite(m)
    readers = m.readers(m.y)
    require(all(reader.op == "Transpose" and reader.is_lowered for reader in readers), not m.is_output(m.y))
    perms = {tuple(reader.attrs["perm"]) for reader in readers}
    require(len(perms) == 1, all(tensor.elements == 1 for tensor in m.inputs[1:]))
    moved = m.x.transpose(perms.pop())
    result = compute("Quantize", moved, *m.inputs[1:], dtype=m.y.dtype, called=m.node.name, **m.attrs)
    return {reader.outputs[0]: result for reader in readers}


@lowered(*_REDUCING)
def move_past_reduction(m: Match) -> Result:
    x, perm = need(_find_transpose(m, m.x))
    axes = tuple(sorted(perm[axis] for axis in m.attrs["axes"]))
    kept = [p for p in perm if p not in axes]
    order = perm if m.attrs["keepdims"] else tuple(sorted(kept).index(p) for p in kept)
    require(_has_scalar_epilogue(m) or not (m.attrs["keepdims"] or list(order) != sorted(order)))
    return _move_behind(m, [x, *m.inputs[1:]], order, {**m.attrs, "axes": axes})


@lowered("Concat", "Pad", "Slice", "Expand", "Gather", *_ROWS)
def by_axis(m: Match) -> Result:
    """Operators with axes in their attributes."""
    (x, perm), attrs = need(_find_transpose(m, m.x)), dict(m.attrs)
    rank = len(perm)
    if "axis" in attrs:
        attrs["axis"] = perm[attrs["axis"]]
    if m.op == "Gather" or m.op in _ROWS:
        require(m.inputs[1].rank == 1 if m.op == "Gather" else perm[-1] == rank - 1)
        return _move_behind(m, [x, *m.inputs[1:]], perm, attrs)
    require(m.op != "Expand" or m.y.rank == rank)
    for name in {"Pad": ("pads",), "Slice": ("starts", "ends", "steps")}.get(m.op, ()):
        halves = [attrs[name][i : i + rank] for i in range(0, len(attrs[name]), rank)]
        attrs[name] = tuple(half[position] for half in halves for position in inverse_order(perm))
    return _move_behind(m, [_fit_operand(m, tensor, perm) for tensor in m.inputs], perm, attrs)


def _reshape_blocks(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
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
def move_past_reshape(m: Match) -> Result:
    """Transpose, then split or merge axes: whole blocks of axes change places behind the reshape instead of in front of it.

    What is permuted within a block has to stay in front.
    """
    x, perm = need(_find_transpose(m, m.x))
    require(0 not in m.y.shape, m.readers(m.y))
    blocks = _reshape_blocks(m.x.shape, m.y.shape)
    sources = [[perm[axis] for axis in run] for run, _ in blocks]
    order = sorted(range(len(blocks)), key=lambda block: min(sources[block]))
    whole = all(sorted(axes) == list(range(min(axes), max(axes) + 1)) for axes in sources)
    require(whole, order != sorted(order))
    outer = [axis for block in order for axis in blocks[block][1]]
    moved = x.transpose([axis for block in order for axis in sources[block]])
    early = compute("Reshape", moved, shape=[m.y.shape[axis] for axis in outer])
    return m.replace("Transpose", early, perm=tuple(inverse_order(outer)))


@lowered("MatMul")
def move_past_product(m: Match) -> Result:
    """A transpose that swaps the last two axes of an operand becomes a flag; one behind flattening permutes constant rows.

    One that also moves other axes of the second operand becomes one that leaves its rows dense.
    """
    for position, flag in enumerate(("trans_a", "trans_b")):
        source, perm = _find_transpose(m, m.inputs[position]) or (m.x, ())
        others = [*perm[:-2], *perm[:-3:-1]]
        is_swap = others == sorted(others)
        if len(perm) > 1 and perm[-2] == len(perm) - 1 and (is_swap or position):
            inputs = list(m.inputs)
            inputs[position] = source.transpose(others)
            return m.replace("MatMul", *inputs, **{**m.attrs, flag: not m.attrs[flag]})
    return _absorb_flattening(m)


def _absorb_flattening(m: Match) -> Result:
    """Transpose, flatten to [M,K], product with constant [K,N]: permute the K rows of the constant instead."""
    flatten, weights, is_turned = need(m.source(m.x, "Reshape")), need(m.value(1)), m.attrs["trans_b"]
    x, perm = need(_find_transpose(m, flatten.operands[0]))
    shape = flatten.operands[0].shape
    require(weights.ndim == m.x.rank == 2, not m.attrs["trans_a"], perm[0] == 0, shape[0] == m.x.shape[0])
    rows = weights.T if is_turned else weights
    order = [axis - 1 for axis in inverse_order(perm)[1:]]
    ordered = rows.reshape(*shape[1:], -1).transpose(*order, len(order)).reshape(rows.shape)
    flat = compute("Reshape", x, shape=m.x.shape)
    return m.replace("MatMul", flat, constant(ordered.T if is_turned else ordered), *m.inputs[2:], **m.attrs)


PASS = Pass(
    "transposes",
    (
        simplify_transpose,
        simplify_reshape,
        move_past_quantise,
        move_past_elementwise,
        move_past_reduction,
        by_axis,
        move_past_reshape,
        move_past_product,
    ),
)
