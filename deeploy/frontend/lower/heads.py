"""Repetition that nobody has to carry out: Expand in front of operators that broadcast, and heads that share keys and values.

Grouped-query attention repeats every key head for a group of query heads: Expand, Reshape, perhaps Transpose, MatMul. The
product with the heads as two axes, heads and groups, broadcasts instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.graph.rewrite import Pass, producer, redirect, rule
from deeploy.operators.matmul import BATCH_AXES

_BROADCASTING = ("Add", "Sub", "Mul", "Div", "ScaledAdd", "ScaledDiv", "Binary", "Where")
_SINGLE = ("Unary", "Lookup", "Clip", "Cast", "Quantize", "Dequantize")


def _expansion(tensor: gs.Tensor) -> gs.Tensor | None:
    """What ``tensor`` is an expansion of."""
    node = producer(tensor, "Expand")
    return node.inputs[0] if node is not None and build.lowered(node) else None


@rule(*_SINGLE, *_BROADCASTING)
def later(graph: gs.Graph, node: gs.Node) -> bool:
    """Repeat what was computed instead of computing what was repeated."""
    y = node.outputs[0]
    sources = [_expansion(t) for t in node.inputs]
    single = node.op in _SINGLE
    if not build.lowered(node) or not any(s is not None for s in sources) or node.attrs.get("epilogue"):
        return False
    if single and node.op != "Lookup" and any(np.prod(t.shape, dtype=np.int64) != 1 for t in node.inputs[1:]):
        return False
    inputs = [t if s is None else s for s, t in zip(sources, node.inputs, strict=True)]
    shape = list(inputs[0].shape) if single else list(np.broadcast_shapes(*(tuple(t.shape) for t in inputs)))
    if len(shape) != len(y.shape) or shape == list(y.shape):
        return False
    node.outputs.clear()
    early = build.variable(f"{y.name} (before expansion)", y.dtype, shape)
    build.add(graph, node.op, inputs, early, node.name, **node.attrs)
    build.add(graph, "Expand", [early], y, f"{node.name} (expansion)")
    return True


@rule("Expand")
def needless(graph: gs.Graph, node: gs.Node) -> bool:
    """An expansion whose readers broadcast anyway."""
    x, y = node.inputs[0], node.outputs[0]
    if not build.lowered(node) or not y.outputs or any(y is out for out in graph.outputs):
        return False
    if not all(build.lowered(reader) and _broadcasts(reader, x, y) for reader in y.outputs):
        return False
    redirect(graph, y, x)
    node.outputs.clear()
    return True


def _broadcasts(reader: gs.Node, x: gs.Tensor, y: gs.Tensor) -> bool:
    """Whether ``reader`` computes the same from ``x``, of which ``y`` is an expansion."""
    stages = len(reader.attrs.get("epilogue", ()))
    if reader.op not in (*_BROADCASTING, "MatMul") or stages:
        return False
    shapes = [tuple((x if t is y else t).shape) for t in reader.inputs]
    result = list(reader.outputs[0].shape)
    if reader.op == "MatMul":
        same = list(x.shape[-2:]) == list(y.shape[-2:])
        return same and list(np.broadcast_shapes(*(s[:-2] for s in shapes))) == result[:-2]
    return list(np.broadcast_shapes(*shapes)) == result


@rule(*_SINGLE, *_BROADCASTING)
def earlier(graph: gs.Graph, node: gs.Node) -> bool:
    """A function of what was repeated and then reordered moves in front of all that."""
    position = next((i for i, t in enumerate(node.inputs) if not isinstance(t, gs.Constant)), None)
    others = [t for i, t in enumerate(node.inputs) if i != position and not (node.op == "Lookup" and i == 1)]
    if position is None or not build.lowered(node) or node.attrs.get("epilogue") or node.op == "Where":
        return False
    if any(not isinstance(t, gs.Constant) or np.prod(t.shape, dtype=np.int64) != 1 for t in others):
        return False
    chain, tensor, y = [], node.inputs[position], node.outputs[0]
    while (mover := _mover(tensor)) is not None:
        chain.append(mover)
        tensor = mover.inputs[0]
    x = _expansion(tensor)
    if x is None or not chain or list(y.shape) != list(node.inputs[position].shape):
        return False
    node.outputs.clear()
    first = build.variable(f"{y.name} (before expansion)", y.dtype, x.shape)
    build.add(graph, node.op, [x if i == position else t for i, t in enumerate(node.inputs)], first, node.name, **node.attrs)
    moved = build.add(graph, "Expand", [first], build.variable(f"{y.name} (expanded)", y.dtype, tensor.shape))
    for number, mover in enumerate(reversed(chain)):
        last = number == len(chain) - 1
        result = y if last else build.variable(f"{y.name} (moved {number})", y.dtype, mover.outputs[0].shape)
        moved = build.add(graph, mover.op, [moved], result, **mover.attrs)
    return True


@dataclass(frozen=True)
class _Repeated:
    """An operand that is Transpose(Reshape(Expand(source))): axes ``axis`` and ``axis + 1`` of the expansion are one behind it."""

    source: gs.Tensor
    split: tuple[int, int]
    axis: int
    perm: tuple[int, ...]


def _mover(tensor: gs.Tensor) -> gs.Node | None:
    """The Reshape or Transpose that computes ``tensor``."""
    node = producer(tensor)
    return node if node is not None and node.op in ("Reshape", "Transpose") and build.lowered(node) else None


def _repeated(tensor: gs.Tensor) -> _Repeated | None:
    perm = tuple(range(len(tensor.shape)))
    while (node := _mover(tensor)) is not None and (node.op == "Transpose" or list(node.inputs[0].shape) == list(tensor.shape)):
        perm = tuple(node.attrs["perm"][p] for p in perm) if node.op == "Transpose" else perm
        tensor = node.inputs[0]
    short = list(tensor.shape)
    while (node := _mover(tensor)) is not None and node.op == "Reshape":
        tensor = node.inputs[0]
    source, long = _expansion(tensor), list(tensor.shape)
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


@rule("MatMul")
def grouped(graph: gs.Graph, node: gs.Node) -> bool:
    """A product with repeated heads, without the repetition."""
    if not build.lowered(node):
        return False
    for position in (0, 1):
        found = _repeated(node.inputs[position])
        if found is None:
            continue
        rank = len(found.perm)
        at = found.perm.index(found.axis)
        other, y = node.inputs[1 - position], node.outputs[0]
        shapes = [_insert(list(t.shape), at - rank, found.split) for t in (other, y)]
        if at >= rank - 2 or shapes[0] is None or shapes[1] is None or len(shapes[1]) > BATCH_AXES + 2:
            continue
        moved = [p if p < found.axis else p + 1 for p in found.perm]
        moved[at : at + 1] = [found.axis, found.axis + 1]
        operands = [build.reshape(graph, other, shapes[0], f"grouped for {node.name}")] * 2
        operands[position] = build.transpose(graph, found.source, moved, f"groups for {node.name}")
        node.outputs.clear()
        result = build.variable(f"{y.name} (grouped)", y.dtype, shapes[1])
        build.add(graph, "MatMul", [*operands, *node.inputs[2:]], result, node.name, **node.attrs)
        build.add(graph, "Reshape", [result], y)
        return True
    return False


PASS = Pass("heads", (later, earlier, needless, grouped))
