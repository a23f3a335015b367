"""Repetition that nobody has to carry out: Expand in front of operators that broadcast, and heads that share keys and values.

Grouped-query attention repeats every key head for a group of query heads: Expand, Reshape, perhaps Transpose, MatMul. The
product with the heads as two axes, heads and groups, broadcasts instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deeploy.frontend.lower.layout import BROADCASTING, SINGLE
from deeploy.ir.nodes import Node, Tensor, compute, result_shape
from deeploy.ir.rewriting import Match, Pass, Result, lowered, need, require
from deeploy.operators.matmul import BATCH_AXES

_SINGLE = (*SINGLE, "Quantize")


def _find_expansion(m: Match, tensor: Tensor) -> Tensor | None:
    """What ``tensor`` is an expansion of."""
    node = m.source(tensor, "Expand")
    return node.operands[0] if node else None


@lowered(*_SINGLE, *BROADCASTING)
def repeat_later(m: Match) -> Result:
    """Repeat what was computed instead of computing what was repeated."""
    sources = [_find_expansion(m, tensor) for tensor in m.inputs]
    require(any(sources), not m.node.epilogue)
    require(m.op not in _SINGLE or m.op == "Lookup" or all(tensor.elements == 1 for tensor in m.inputs[1:]))
    inputs = [source or tensor for source, tensor in zip(sources, m.inputs, strict=True)]
    shape = tuple(result_shape(m.op, inputs, m.attrs))
    require(len(shape) == m.y.rank, shape != m.y.shape)
    return m.replace("Expand", compute(m.op, *inputs, dtype=m.y.dtype, **m.attrs))


@lowered("Expand")
def drop_repetition(m: Match) -> Result:
    """An expansion whose readers broadcast anyway."""
    readers = m.readers(m.y)
    require(readers, not m.is_output(m.y), all(_reader_broadcasts(reader, m.x, m.y) for reader in readers))
    return {m.y: m.x}


def _reader_broadcasts(reader: Node, x: Tensor, y: Tensor) -> bool:
    """Whether ``reader`` computes the same from ``x``, of which ``y`` is an expansion."""
    if not reader.is_lowered or reader.op not in (*BROADCASTING, "MatMul") or reader.epilogue:
        return False
    shapes = [(x if tensor is y else tensor).shape for tensor in reader.operands]
    result = reader.outputs[0].shape
    if reader.op == "MatMul":
        return x.shape[-2:] == y.shape[-2:] and np.broadcast_shapes(*(shape[:-2] for shape in shapes)) == result[:-2]
    return np.broadcast_shapes(*shapes) == result


@lowered(*_SINGLE, *BROADCASTING)
def apply_earlier(m: Match) -> Result:
    """A function of what was repeated and then reordered moves in front of all that."""
    position, variable = need(next(((i, tensor) for i, tensor in enumerate(m.inputs) if tensor.data is None), None))
    others = [tensor for i, tensor in enumerate(m.inputs) if i != position and not (m.op == "Lookup" and i == 1)]
    require(not m.node.epilogue, m.op != "Where", all(tensor.data is not None and tensor.elements == 1 for tensor in others))
    views, tensor = m.views(variable, is_shared=True)
    x = need(_find_expansion(m, tensor))
    require(views, m.y.shape == variable.shape)
    operands = [x if operand is variable else operand for operand in m.inputs]
    moved = compute("Expand", compute(m.op, *operands, shape=x.shape, dtype=m.y.dtype, **m.attrs), shape=tensor.shape)
    for view in views:
        moved = compute(view.op, moved, shape=view.outputs[0].shape, **view.attrs)
    return moved


def _find_repeated(m: Match, tensor: Tensor) -> tuple[Tensor, tuple[int, int], int, tuple[int, ...]] | None:
    """Source, extents, axis and order of an operand that is Transpose(Reshape(Expand(source))).

    The axis of the expansion and the next one, of these extents, are one behind it.
    """
    perm = tuple(range(tensor.rank))
    while (node := m.source(tensor, "Reshape", "Transpose")) is not None and (
        node.op == "Transpose" or node.operands[0].shape == tensor.shape
    ):
        perm = tuple(node.attrs["perm"][p] for p in perm) if node.op == "Transpose" else perm
        tensor = node.operands[0]
    short = tensor.shape
    while node := m.source(tensor, "Reshape"):
        tensor = node.operands[0]
    source, long = _find_expansion(m, tensor), tensor.shape
    changed = [] if source is None else [i for i, (a, b) in enumerate(zip(source.shape, long, strict=True)) if a != b]
    for axis in (changed[0] - 1, changed[0]) if len(long) == len(short) + 1 and len(changed) == 1 else ():
        if 0 <= axis < len(short) and (*long[:axis], long[axis] * long[axis + 1], *long[axis + 2 :]) == short:
            return need(source), (long[axis], long[axis + 1]), axis, perm
    return None


def _insert_heads(shape: Sequence[int], place: int, split: tuple[int, int]) -> Sequence[int] | None:
    """The shape of the other operand or the result, with the heads, ``place`` (negative) from the right, as two axes."""
    at = len(shape) + place
    if at < 0:
        return shape
    if shape[at] not in (1, split[0] * split[1]):
        return None
    return [*shape[:at], *(split if shape[at] != 1 else (1, 1)), *shape[at + 1 :]]


@lowered("MatMul")
def group_queries(m: Match) -> Result:
    """A product with repeated heads, without the repetition."""
    for position in (0, 1):
        repeated, other = _find_repeated(m, m.inputs[position]), m.inputs[1 - position]
        if repeated is None:
            continue
        source, split, axis, perm = repeated
        at = perm.index(axis)
        shape, result = (_insert_heads(tensor.shape, at - len(perm), split) for tensor in (other, m.y))
        if at >= len(perm) - 2 or shape is None or result is None or len(result) > BATCH_AXES + 2:
            continue
        moved = [p if p < axis else p + 1 for p in perm]
        moved[at : at + 1] = [axis, axis + 1]
        operands = [other.reshape(shape)] * 2
        operands[position] = source.transpose(moved)
        return m.replace("Reshape", compute("MatMul", *operands, *m.inputs[2:], shape=result, dtype=m.y.dtype, **m.attrs))
    return None


PASS = Pass("heads", (repeat_later, apply_earlier, drop_repetition, group_queries))
