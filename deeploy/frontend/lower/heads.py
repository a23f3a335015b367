"""Repetition that nobody has to carry out: Expand in front of operators that broadcast, and heads that share keys and values.

Grouped-query attention repeats every key head for a group of query heads: Expand, Reshape, perhaps Transpose, MatMul. The
product with the heads as two axes, heads and groups, broadcasts instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.layout import BROADCASTING
from deeploy.frontend.lower.rewriter import Rewriter, lowered, result_shape
from deeploy.graph.rewrite import Pass
from deeploy.operators.matmul import BATCH_AXES

_SINGLE = ("Unary", "Lookup", "Clip", "Cast", "Quantize", "Dequantize")
_MOVING = ("Reshape", "Transpose")


def _is_number(tensor: gs.Tensor) -> bool:
    return bool(np.prod(tensor.shape, dtype=np.int64) == 1)


def _expansion(rw: Rewriter, tensor: gs.Tensor) -> gs.Tensor | None:
    """What ``tensor`` is an expansion of."""
    node = rw.source(tensor, "Expand")
    return None if node is None else node.inputs[0]


@lowered(*_SINGLE, *BROADCASTING)
def later(rw: Rewriter) -> bool:
    """Repeat what was computed instead of computing what was repeated."""
    sources = [_expansion(rw, t) for t in rw.node.inputs]
    single = rw.op in _SINGLE
    if all(s is None for s in sources) or rw.attrs.get("epilogue"):
        return False
    if single and rw.op != "Lookup" and not all(map(_is_number, rw.node.inputs[1:])):
        return False
    inputs = [t if s is None else s for s, t in zip(sources, rw.node.inputs, strict=True)]
    shape = result_shape(rw.op, inputs, rw.attrs)
    if len(shape) != len(rw.y.shape) or shape == list(rw.y.shape):
        return False
    return rw.replace("Expand", rw.create(rw.op, *inputs, dtype=rw.y.dtype, **rw.attrs))


@lowered("Expand")
def needless(rw: Rewriter) -> bool:
    """An expansion whose readers broadcast anyway."""
    if not rw.y.outputs or rw.is_output(rw.y) or not all(_broadcasts(reader, rw.x, rw.y) for reader in rw.y.outputs):
        return False
    return rw.forward(rw.x)


def _broadcasts(reader: gs.Node, x: gs.Tensor, y: gs.Tensor) -> bool:
    """Whether ``reader`` computes the same from ``x``, of which ``y`` is an expansion."""
    if not build.lowered(reader) or reader.op not in (*BROADCASTING, "MatMul") or reader.attrs.get("epilogue"):
        return False
    shapes = [tuple((x if t is y else t).shape) for t in reader.inputs]
    result = list(reader.outputs[0].shape)
    if reader.op == "MatMul":
        same = list(x.shape[-2:]) == list(y.shape[-2:])
        return same and list(np.broadcast_shapes(*(s[:-2] for s in shapes))) == result[:-2]
    return list(np.broadcast_shapes(*shapes)) == result


@lowered(*_SINGLE, *BROADCASTING)
def earlier(rw: Rewriter) -> bool:
    """A function of what was repeated and then reordered moves in front of all that."""
    inputs = rw.node.inputs
    position = next((i for i, t in enumerate(inputs) if not isinstance(t, gs.Constant)), None)
    others = [t for i, t in enumerate(inputs) if i != position and not (rw.op == "Lookup" and i == 1)]
    if position is None or rw.attrs.get("epilogue") or rw.op == "Where":
        return False
    if any(not isinstance(t, gs.Constant) or not _is_number(t) for t in others):
        return False
    chain, tensor = list[gs.Node](), inputs[position]
    while (mover := rw.source(tensor, *_MOVING)) is not None:
        chain.insert(0, mover)
        tensor = mover.inputs[0]
    x = _expansion(rw, tensor)
    if x is None or not chain or list(rw.y.shape) != list(inputs[position].shape):
        return False
    operands = [x if i == position else t for i, t in enumerate(inputs)]
    first = rw.create(rw.op, *operands, shape=x.shape, dtype=rw.y.dtype, **rw.attrs)
    moved = rw.create("Expand", first, shape=tensor.shape)
    for mover in chain:
        moved = rw.create(mover.op, moved, shape=mover.outputs[0].shape, **mover.attrs)
    return rw.finish(moved)


@dataclass(frozen=True)
class _Repeated:
    """An operand that is Transpose(Reshape(Expand(source))): axes ``axis`` and ``axis + 1`` of the expansion are one behind it."""

    source: gs.Tensor
    split: tuple[int, int]
    axis: int
    perm: tuple[int, ...]


def _repeated(rw: Rewriter, tensor: gs.Tensor) -> _Repeated | None:
    perm = tuple(range(len(tensor.shape)))
    while (node := rw.source(tensor, *_MOVING)) is not None and (
        node.op == "Transpose" or list(node.inputs[0].shape) == list(tensor.shape)
    ):
        perm = tuple(node.attrs["perm"][p] for p in perm) if node.op == "Transpose" else perm
        tensor = node.inputs[0]
    short = list(tensor.shape)
    while (node := rw.source(tensor, "Reshape")) is not None:
        tensor = node.inputs[0]
    source, long = _expansion(rw, tensor), list(tensor.shape)
    if source is None:
        return None
    changed = [i for i, (a, b) in enumerate(zip(source.shape, long, strict=True)) if a != b]
    if len(long) != len(short) + 1 or len(changed) != 1:
        return None
    for axis in (changed[0] - 1, changed[0]):
        if 0 <= axis < len(short) and [*long[:axis], long[axis] * long[axis + 1], *long[axis + 2 :]] == short:
            return _Repeated(source, (long[axis], long[axis + 1]), axis, perm)
    return None


def _insert(shape: list[int], place: int, split: tuple[int, int]) -> list[int] | None:
    """The shape of the other operand or the result, with the heads, ``place`` (negative) from the right, as two axes."""
    at = len(shape) + place
    if at < 0:
        return shape
    if shape[at] not in (1, split[0] * split[1]):
        return None
    return [*shape[:at], *(split if shape[at] != 1 else (1, 1)), *shape[at + 1 :]]


@lowered("MatMul")
def grouped(rw: Rewriter) -> bool:
    """A product with repeated heads, without the repetition."""
    for position in (0, 1):
        found = _repeated(rw, rw.node.inputs[position])
        if found is None:
            continue
        rank, at = len(found.perm), found.perm.index(found.axis)
        other = rw.node.inputs[1 - position]
        shape, result = (_insert(list(t.shape), at - rank, found.split) for t in (other, rw.y))
        if at >= rank - 2 or shape is None or result is None or len(result) > BATCH_AXES + 2:
            continue
        moved = [p if p < found.axis else p + 1 for p in found.perm]
        moved[at : at + 1] = [found.axis, found.axis + 1]
        operands = [rw.reshape(other, shape)] * 2
        operands[position] = rw.transpose(found.source, moved)
        return rw.replace("Reshape", rw.create("MatMul", *operands, *rw.node.inputs[2:], shape=result, dtype=rw.y.dtype, **rw.attrs))
    return False


PASS = Pass("heads", (later, earlier, needless, grouped))
