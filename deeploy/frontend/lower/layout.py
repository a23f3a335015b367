"""Transposes: moved towards the outputs until they meet their inverse, and absorbed where nothing has to move.

Lowering wraps every image operator into transposes to and from channels-last; between two of them this pass leaves none.
"""

from __future__ import annotations

from collections.abc import Sequence

from deeploy.graph.nodes import Attributes, Tensor, compute, constant, inverse
from deeploy.graph.rewriting import Match, Pass, Result, lowered

BROADCASTING = ("Add", "Sub", "Mul", "Div", "ScaledAdd", "ScaledDiv", "Binary", "Where")
_ELEMENTWISE = (*BROADCASTING, "RequantShift", "Lookup", "Clip", "Unary", "Dequantize", "Cast")
_REDUCING = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "IntegerMean")
_ROWS = ("Softmax", "ShiftSoftmax", "Normalise", "Standardise", "IntegerLayerNorm", "IntegerRMSNorm")


def _transposed(m: Match, tensor: Tensor) -> tuple[Tensor, tuple[int, ...] | None]:
    """What a tensor is the transpose of, and how; itself and None where it is none, or of what has its order."""
    node = m.source(tensor, "Transpose")
    perm = () if node is None else tuple(node.attrs["perm"])
    return (tensor, None) if node is None or perm == tuple(range(len(perm))) else (node.operands[0], perm)


def _behind(m: Match, inputs: Sequence[Tensor], perm: Sequence[int], attrs: Attributes) -> Tensor:
    """The node itself on untransposed ``inputs``, and a transpose of its result."""
    shape = [m.y.shape[position] for position in inverse(perm)]
    label = "channels last" if tuple(perm) == (0, len(perm) - 1, *range(1, len(perm) - 1)) else "before transpose"
    return m.replace("Transpose", compute(m.op, *inputs, shape=shape, dtype=m.y.dtype, label=label, **attrs), perm=tuple(perm))


def _fitted(m: Match, tensor: Tensor, perm: Sequence[int]) -> Tensor | None:
    """An operand as it must be when the transpose ``perm`` moves behind the operator, or None where that is not free."""
    rank, order = len(perm), inverse(perm)
    source, own = _transposed(m, tensor)
    if own == tuple(perm):
        return source
    if tensor.data is None and len(tensor.shape) == rank:
        moving = [axis for axis in order if tensor.shape[axis] != 1]
        return tensor.reshape([tensor.shape[axis] for axis in order]) if moving == sorted(moving) else None
    if tensor.elements == 1 and len(tensor.shape) <= rank:
        return tensor
    if tensor.data is None or len(tensor.shape) > rank:
        return None
    return (tensor.reshape([1] * (rank - len(tensor.shape)) + list(tensor.shape))).transpose(order)


def _all_fitted(m: Match, tensors: Sequence[Tensor], perm: Sequence[int]) -> list[Tensor] | None:
    fitted = [_fitted(m, tensor, perm) for tensor in tensors]
    return [t for t in fitted if t is not None] if all(t is not None for t in fitted) else None


@lowered("Transpose")
def simplify(m: Match) -> Result:
    """Two transposes are one; one that only moves axes of extent 1 is a reshape; the identity is nothing."""
    perm, (source, first) = tuple(m.attrs["perm"]), _transposed(m, m.x)
    if first is not None:
        return m.replace("Transpose", source, perm=tuple(first[p] for p in perm))
    moving = [p for p in perm if m.x.shape[p] != 1]
    if perm != tuple(range(len(perm))) and moving != sorted(moving):
        return None
    return m.x if m.x.shape == m.y.shape else m.replace("Reshape", m.x)


@lowered("Reshape")
def simplify_reshape(m: Match) -> Result:
    """Two reshapes are one; one to the same shape is nothing; constants are reshaped at once."""
    before = m.source(m.x, "Reshape")
    if before is not None:
        return m.replace("Reshape", before.operands[0])
    if m.is_output(m.y) or (m.x.data is None and m.x.shape != m.y.shape):
        return None
    return m.x if m.x.data is None else constant(m.x.data.reshape(m.y.shape))


@lowered(*_ELEMENTWISE)
def elementwise(m: Match) -> Result:
    if m.op in ("Add", "Sub", "Mul") and not _has_scalar_epilogue(m):
        return None
    perms = (_transposed(m, tensor)[1] for tensor in m.inputs)
    perm = next((p for p in perms if p is not None and len(p) == len(m.y.shape)), None)
    data = 1 if m.op == "Lookup" else len(m.inputs) - (2 if "requantise" in m.node.epilogue else 0)
    fitted = None if perm is None else _all_fitted(m, m.inputs[:data], perm)
    return None if perm is None or fitted is None else _behind(m, [*fitted, *m.inputs[data:]], perm, m.attrs)


def _has_scalar_epilogue(m: Match) -> bool:
    return "requantise" not in m.node.epilogue or all(tensor.elements == 1 for tensor in m.inputs[-2:])


def _is_from_caller(m: Match, tensor: Tensor) -> bool:
    """Whether the tensor is a network's input under another shape."""
    while (node := tensor.maker) is not None and node.op in ("Reshape", "Transpose"):
        tensor = node.operands[0]
    return tensor.maker is None


@lowered("Quantize")
def quantise(m: Match) -> Result:
    """A transpose of a quantised input goes in front of the quantisation, whose kernel follows the strides of the caller's array.

    Elsewhere transposes move behind, as with any other operator.
    """
    if not _is_from_caller(m, m.x):
        return elementwise.rewrite(m)
    readers = m.readers(m.y)
    if not readers or any(r.op != "Transpose" or not r.is_lowered for r in readers) or m.is_output(m.y):
        return None
    perms = {tuple(reader.attrs["perm"]) for reader in readers}
    if len(perms) != 1 or any(tensor.elements != 1 for tensor in m.inputs[1:]):
        return None
    moved = m.x.transpose(perms.pop())
    result = compute("Quantize", moved, *m.inputs[1:], dtype=m.y.dtype, called=m.node.name, **m.attrs)
    return {reader.outputs[0]: result for reader in readers}


@lowered(*_REDUCING)
def reduction(m: Match) -> Result:
    x, perm = _transposed(m, m.x)
    if perm is None:
        return None
    axes = tuple(sorted(perm[axis] for axis in m.attrs["axes"]))
    kept = [p for p in perm if p not in axes]
    order = perm if m.attrs["keepdims"] else tuple(sorted(kept).index(p) for p in kept)
    if not _has_scalar_epilogue(m) and (m.attrs["keepdims"] or list(order) != sorted(order)):
        return None
    return _behind(m, [x, *m.inputs[1:]], order, {**m.attrs, "axes": axes})


@lowered("Concat", "Pad", "Slice", "Gather", *_ROWS)
def by_axis(m: Match) -> Result:
    """Operators with axes in their attributes."""
    x, perm = _transposed(m, m.x)
    attrs, others = dict(m.attrs), m.inputs[1:]
    if perm is None:
        return None
    rank = len(perm)
    if m.op in _ROWS:
        return _behind(m, [x, *others], perm, attrs) if perm[-1] == rank - 1 else None
    if "axis" in attrs:
        attrs["axis"] = perm[attrs["axis"]]
    if m.op == "Gather":
        return _behind(m, [x, *others], perm, attrs) if len(others[0].shape) == 1 else None
    fitted = _all_fitted(m, m.inputs, perm)
    for name in {"Pad": ("pads",), "Slice": ("starts", "ends", "steps")}.get(m.op, ()):
        halves = [attrs[name][i : i + rank] for i in range(0, len(attrs[name]), rank)]
        attrs[name] = tuple(half[position] for half in halves for position in inverse(perm))
    return None if fitted is None else _behind(m, fitted, perm, attrs)


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
def regroup(m: Match) -> Result:
    """Transpose, then split or merge axes: whole blocks of axes change places behind the reshape instead of in front of it.

    What is permuted within a block has to stay in front.
    """
    x, perm = _transposed(m, m.x)
    if perm is None or 0 in m.y.shape or not m.readers(m.y):
        return None
    blocks = _blocks(m.x.shape, m.y.shape)
    sources = [[perm[axis] for axis in run] for run, _ in blocks]
    order = sorted(range(len(blocks)), key=lambda block: min(sources[block]))
    whole = all(sorted(axes) == list(range(min(axes), max(axes) + 1)) for axes in sources)
    if not whole or order == sorted(order):
        return None
    moved = x.transpose([axis for block in order for axis in sources[block]])
    outer = [axis for block in order for axis in blocks[block][1]]
    early = compute("Reshape", moved, shape=[m.y.shape[axis] for axis in outer])
    return m.replace("Transpose", early, perm=tuple(inverse(outer)))


@lowered("MatMul")
def matmul(m: Match) -> Result:
    """A transpose that swaps the last two axes of an operand becomes a flag; one behind flattening permutes constant rows.

    One that also moves other axes of the second operand becomes one that leaves its rows dense.
    """
    for position, flag in ((0, "trans_a"), (1, "trans_b")):
        source, perm = _transposed(m, m.inputs[position])
        if perm is None or len(perm) < 2 or perm[-2] != len(perm) - 1:
            continue
        others = [*perm[:-2], perm[-1], perm[-2]]
        is_swap = others == sorted(others)
        if is_swap or position:
            inputs = list(m.inputs)
            inputs[position] = source if is_swap else source.transpose(others)
            return m.replace("MatMul", *inputs, **{**m.attrs, flag: not m.attrs[flag]})
    return _absorb_flattening(m)


def _absorb_flattening(m: Match) -> Result:
    """Transpose, flatten to [M,K], product with constant [K,N]: permute the K rows of the constant instead."""
    flatten, weights = m.source(m.x, "Reshape"), m.value(1)
    if flatten is None or weights is None or weights.ndim != 2 or m.attrs["trans_a"] or len(m.x.shape) != 2:
        return None
    shape, (x, perm) = flatten.operands[0].shape, _transposed(m, flatten.operands[0])
    if not perm or perm[0] != 0 or shape[0] != m.x.shape[0]:
        return None
    rows = weights.T if m.attrs["trans_b"] else weights
    order = [axis - 1 for axis in inverse(perm)[1:]]
    ordered = rows.reshape(*shape[1:], -1).transpose(*order, len(order)).reshape(rows.shape)
    moved = constant(ordered.T if m.attrs["trans_b"] else ordered)
    return m.replace("MatMul", compute("Reshape", x, shape=m.x.shape), moved, *m.inputs[2:], **m.attrs)


PASS = Pass("transposes", (simplify, simplify_reshape, quantise, elementwise, reduction, by_axis, regroup, matmul))
