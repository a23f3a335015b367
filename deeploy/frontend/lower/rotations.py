"""Rotary embedding: x * cos + concat(-second half, first half) * sin as one operator, in floats and in integers.

Pairs may also lie side by side: then the turned tensor is stack(-odd elements, even elements), along a new axis that is flattened.

Files spell it out in slices, a negation, a concatenation, two products and a sum, each of which a quantised graph requantises. Nothing
of that has to exist in memory: ``Rotate`` does the same steps for one pair of elements after the other.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from deeploy.frontend.lower.fuse import requantisation_scalars
from deeploy.frontend.lower.quant import BYTES, every_value
from deeploy.frontend.lower.tables import apply_operator
from deeploy.frontend.schemas import Attributes
from deeploy.ir.nodes import Node, Tensor, constant
from deeploy.ir.rewriting import Match, Pass, Result, attempt, lowered, need, require
from deeploy.ir.types import DType

_LONGEST = 8  # functions between a half and the concatenation


@dataclass(frozen=True)
class _RotatedProduct:
    """A product of a variable and cosines or sines; ``constants`` as ``deeploy.operators.rotate.product`` has them."""

    x: Tensor
    factor: Tensor
    constants: tuple[int, ...]


def _read_products(m: Match, tensor: Tensor) -> list[_RotatedProduct]:
    """What ``tensor`` is the product of, with either operand as the variable."""
    node = need(m.only_source(tensor, "Mul"))
    (a, b), attrs, is_float = node.operands[:2], node.attrs, tensor.dtype.is_float
    require(not node.epilogue if is_float else all(t.dtype in BYTES for t in (a, b, tensor)))
    zeros, scale = ((), ()) if is_float else ((int(attrs["a_zero_point"]), int(attrs["b_zero_point"])), requantisation_scalars(node))
    return [_RotatedProduct(a, b, (*zeros, *scale)), _RotatedProduct(b, a, (*zeros[::-1], *scale))]


def _read_sum(m: Match) -> tuple[int, ...]:
    """mul_a, mul_b, add, shift, low, high and the parity of ties of a sum; nothing for floats."""
    if m.op == "ScaledAdd":
        return (*(int(m.attrs[name]) for name in ("mul_a", "mul_b", "add", "shift", "low", "high")), int(m.attrs.get("even", -1)))
    if m.y.dtype.is_float:
        require(not m.node.epilogue)
        return ()
    require(m.y.dtype in BYTES)
    scale = requantisation_scalars(m.node)
    return (scale[0], *scale)


def _read_half(m: Match, tensor: Tensor, x: Tensor, second: bool, interleaved: bool) -> np.ndarray:
    """What a part of the turned tensor is for every value of the half of ``x`` that it comes from; the sign alone for floats."""
    chain: list[Node] = []
    while (node := need(m.source(tensor))).op != "Slice" and len(chain) < _LONGEST:
        require(len(node.variables) == 1, m.only_source(tensor))
        (variable,) = node.variables
        if not interleaved or node.op != "Reshape" or tensor.shape != (*variable.shape, 1):
            chain.insert(0, node)
        tensor = variable
    require(node.op == "Slice" and node.operands[0] is x and _is_half(node, second, interleaved))
    if x.dtype.is_float:
        require(all(node.op == "Unary" and node.attrs["function"] == "neg" for node in chain))
        return np.array([(-1) ** len(chain)])
    values = every_value(x)
    for node in chain:
        values = need(apply_operator(node, values))
    require(DType.of(values.dtype) in BYTES)
    return values


def _is_half(cut: Node, second: bool, interleaved: bool) -> bool:
    """Whether a Slice takes one of the halves of rows, or every other element from the first or the second on."""
    *outer, row = (range(n) for n in cut.operands[0].shape)
    half = len(row) // 2
    wanted = row[int(second) :: 2] if interleaved else row[second * half : (second + 1) * half]
    boxes = [range(*box) for box in zip(*(cut.attrs[name] for name in ("starts", "ends", "steps")), strict=True)]
    return boxes == [*outer, wanted] and boxes[-1].step == (2 if interleaved else 1)


def _read_turned(m: Match, tensor: Tensor, x: Tensor) -> tuple[np.ndarray, bool]:
    """How ``tensor`` is turned from ``x``, and whether pairs lie side by side.

    Row 0: what it has for every value of the second half of ``x`` in its first half; row 1: the other way round.
    """
    flat = m.only_source(tensor, "Reshape")
    is_flat, joined = flat is not None, need(m.only_source(tensor if flat is None else flat.operands[0], "Concat"))
    require(x.shape[-1] % 2 == 0, tensor.shape == x.shape, len(joined.operands) == 2)
    require(joined.attrs["axis"] == x.rank - 1 + is_flat, joined.outputs[0].rank == x.rank + is_flat)
    return np.stack([_read_half(m, part, x, not number, is_flat) for number, part in enumerate(joined.operands)]), is_flat


@lowered("ScaledAdd", "Add")
def recognise_rotation(m: Match) -> Result:
    """The sum of a tensor times cosines and of its halves, exchanged and one of them negated, times sines."""
    total, products = _read_sum(m), [_read_products(m, tensor) for tensor in m.inputs[:2]]
    for straight, crossed in ((0, 1), (1, 0)):
        for c, s in itertools.product(products[straight], products[crossed]):
            turned = attempt(_read_turned, m, s.x, c.x) if c.x.shape == m.y.shape else None
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


PASS = Pass("rotations", (recognise_rotation,))
