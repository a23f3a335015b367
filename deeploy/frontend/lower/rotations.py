"""Rotary embedding: x * cos + concat(-second half, first half) * sin as one operator, in floats and in integers.

Pairs may also lie side by side: then the turned tensor is stack(-odd elements, even elements), along a new axis that is flattened.

Files spell it out in slices, a negation, a concatenation, two products and a sum, each of which a quantised graph requantises. Nothing
of that has to exist in memory: ``Rotate`` does the same steps for one pair of elements after the other.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from deeploy.frontend.lower.fuse import BYTES, scalars
from deeploy.frontend.lower.quant import every
from deeploy.frontend.lower.tables import applied
from deeploy.frontend.schemas import Attributes
from deeploy.graph.nodes import Node, Tensor, constant
from deeploy.graph.rewriting import Match, Pass, Result, lowered
from deeploy.graph.types import DType

_LONGEST = 8  # functions between a half and the concatenation


@dataclass(frozen=True)
class _Product:
    """A product of a variable and cosines or sines; ``constants`` as ``deeploy.operators.rotate.product`` has them."""

    x: Tensor
    factor: Tensor
    constants: tuple[int, ...]


def _products(m: Match, tensor: Tensor) -> list[_Product]:
    """What ``tensor`` is the product of, with either operand as the variable."""
    node = m.only_source(tensor, "Mul")
    if node is None:
        return []
    a, b = node.operands[:2]
    if tensor.dtype.is_float:
        return [] if node.epilogue else [_Product(a, b, ()), _Product(b, a, ())]
    found = scalars(node)
    if found is None or any(t.dtype not in BYTES for t in (a, b, tensor)):
        return []
    zeros = int(node.attrs["a_zero_point"]), int(node.attrs["b_zero_point"])
    return [_Product(a, b, (*zeros, *found)), _Product(b, a, (*zeros[::-1], *found))]


def _sum(m: Match) -> tuple[int, ...] | None:
    """mul_a, mul_b, add, shift, low, high and the parity of ties of a sum; nothing for floats."""
    if m.op == "ScaledAdd":
        return (*(int(m.attrs[name]) for name in ("mul_a", "mul_b", "add", "shift", "low", "high")), int(m.attrs.get("even", -1)))
    if m.y.dtype.is_float:
        return None if m.node.epilogue else ()
    found = scalars(m.node)
    return None if found is None or m.y.dtype not in BYTES else (found[0], *found)


def _half(m: Match, tensor: Tensor, x: Tensor, second: bool, interleaved: bool) -> np.ndarray | None:
    """What a part of the turned tensor is for every value of the half of ``x`` that it comes from; the sign alone for floats."""
    chain: list[Node] = []
    while (node := m.source(tensor)) is not None and node.op != "Slice" and len(chain) < _LONGEST:
        variables = node.variables
        if m.only_source(tensor) is None or len(variables) != 1:
            return None
        if not interleaved or node.op != "Reshape" or tensor.shape != (*variables[0].shape, 1):
            chain.insert(0, node)
        tensor = variables[0]
    cut = m.source(tensor, "Slice")
    if cut is None or cut.operands[0] is not x or not _is_half(cut, second, interleaved):
        return None
    if x.dtype.is_float:
        return np.array([(-1) ** len(chain)]) if all(n.op == "Unary" and n.attrs["function"] == "neg" for n in chain) else None
    values: np.ndarray | None = every(x)
    for node in chain:
        values = None if values is None else applied(node, values)
    return None if values is None or DType.of(values.dtype) not in BYTES else values


def _is_half(cut: Node, second: bool, interleaved: bool) -> bool:
    """Whether a Slice takes one of the halves of rows, or every other element from the first or the second on."""
    shape = [int(n) for n in cut.operands[0].shape]
    step, last = 2 if interleaved else 1, len(shape) - 1
    begin = int(second) if interleaved else second * shape[-1] // 2
    wanted = range(shape[-1])[begin::2] if interleaved else range(begin, begin + shape[-1] // 2)
    starts, ends, steps = (list(cut.attrs[name]) for name in ("starts", "ends", "steps"))
    is_whole = starts[:last] == [0] * last and ends[:last] == shape[:last] and set(steps[:last]) <= {1}
    return is_whole and steps[last] == step and range(starts[last], ends[last], step) == wanted


def _turned(m: Match, tensor: Tensor, x: Tensor) -> tuple[np.ndarray, bool] | None:
    """How ``tensor`` is turned from ``x``, and whether pairs lie side by side.

    Row 0: what it has for every value of the second half of ``x`` in its first half; row 1: the other way round.
    """
    if x.shape[-1] % 2 or tensor.shape != x.shape:
        return None
    flat = m.only_source(tensor, "Reshape")
    joined = m.only_source(tensor if flat is None else flat.operands[0], "Concat")
    last, is_flat = len(x.shape) - 1, flat is not None
    if joined is None or len(joined.operands) != 2 or joined.attrs["axis"] != last + is_flat:
        return None
    if len(joined.outputs[0].shape) != last + 1 + is_flat:
        return None
    first, second = (_half(m, part, x, is_second, is_flat) for part, is_second in zip(joined.operands, (True, False), strict=True))
    return None if first is None or second is None else (np.stack([first, second]), is_flat)


@lowered("ScaledAdd", "Add")
def rotary(m: Match) -> Result:
    """The sum of a tensor times cosines and of its halves, exchanged and one of them negated, times sines."""
    total, y = _sum(m), m.y
    for straight, crossed in () if total is None else ((0, 1), (1, 0)):
        pairs = itertools.product(_products(m, m.inputs[straight]), _products(m, m.inputs[crossed]))
        for c, s in pairs:
            turned = _turned(m, s.x, c.x) if c.x.shape == y.shape else None
            if turned is None or (not total and turned[0].ravel().tolist() != [-1, 1]):
                continue
            table, interleaved = turned
            attrs: Attributes = {"interleaved": True} if interleaved else {}
            if not total:
                return m.replace("Rotate", c.x, c.factor, s.factor, **attrs)
            factors = (total[1], total[0], *total[2:]) if straight else total
            attrs |= {"cosine": c.constants, "sine": s.constants, "sum": factors}
            return m.replace("Rotate", c.x, c.factor, s.factor, constant(table), **attrs)
    return None


PASS = Pass("rotations", (rotary,))
