"""Products of one tensor with several constants as one product: queries, keys and values; a gate and what it gates.

Their weights lie side by side, and each result is a slice of the common one, which is a view. One call fetches its operand once and
sets itself up once, and has columns for all cores where every product alone has too few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deeploy.frontend.lower.quant import requantisation_operands
from deeploy.frontend.schemas import Attributes
from deeploy.ir.nodes import Node, Tensor, compute, constant
from deeploy.ir.rewriting import Match, Pass, Result, lowered, require
from deeploy.operators import requantise, staircase
from deeploy.operators.views import VIEWS

_LARGEST = 16384  # bytes of a common result: behind more work, set-up is nothing, and parts that die one by one fit memories better
_STAGES = ((), ("bias",), ("requantise",))
_SHARED = ("trans_a", "a_zero_point", "b_zero_point", "low", "high")  # attributes that siblings have in common


def _is_placed(m: Match, tensor: Tensor) -> bool:
    """Whether a tensor has to lie in a place of its own: an output of the network, or a part of a concatenation."""
    waiting = [tensor]
    while waiting:
        tensor = waiting.pop()
        if m.is_output(tensor):
            return True
        views = [node for node in m.readers(tensor) if node.is_lowered and node.op in VIEWS]
        if any(node.op == "Concat" for node in views):
            return True
        waiting += (result for node in views for result in node.outputs)
    return False


def _is_candidate(m: Match, node: Node) -> bool:
    return (
        (node.op, node.is_lowered, len(node.outputs), len(node.variables)) == ("MatMul", True, 1, 1)
        and node.epilogue in _STAGES
        and _constant_input(node, 1).ndim == 2
        and not node.attrs["trans_a"]
        and 0 not in node.outputs[0].shape
        and not _is_placed(m, node.outputs[0])
    )


def _constant_input(node: Node, position: int) -> np.ndarray:
    """The value of an input; an array without axes where it is not constant."""
    values = node.operands[position].data
    return np.zeros(()) if values is None else values


def _candidate_kind(node: Node) -> tuple[Any, ...]:
    """What candidates have in common that can share a product, requantisation aside."""
    return _constant_input(node, 1).dtype, node.outputs[0].dtype, node.epilogue, *(node.attrs.get(name) for name in _SHARED)


def _count_columns(node: Node) -> int:
    return node.outputs[0].shape[-1]


def _spread_operand(node: Node, position: int) -> np.ndarray:
    """An operand of the epilogue, one for each column."""
    return np.broadcast_to(_constant_input(node, position), _count_columns(node))


@dataclass(frozen=True)
class _SiblingRequantisation:
    """mul and add of one entry per column, and their shift."""

    mul: np.ndarray
    add: np.ndarray
    shift: int
    even: int | None

    @classmethod
    def of(cls, node: Node) -> _SiblingRequantisation:
        mul, add = (_spread_operand(node, position).astype(np.int64) for position in (-2, -1))
        return cls(mul, add, int(node.attrs["shift"]), node.attrs.get("even"))


def _shorten_multipliers(node: Node, own: _SiblingRequantisation, shift: int) -> _SiblingRequantisation | None:
    """The same results with fewer bits of multipliers, None where no summand gives them for every accumulator that can occur."""
    least, most = (np.broadcast_to(end, len(own.mul)) for end in requantise.accumulators(node))
    less = own.shift - shift
    mul = (own.mul + ((1 << less) >> 1)) >> less
    outside = own.shift > staircase.LONGEST or int(least.min()) < -staircase.WORD or int(most.max()) >= staircase.WORD
    if outside or int(own.mul.min()) <= 0 or int(mul.min()) <= 0:
        return None
    stairs = staircase.staircase(own.mul, own.add, own.shift, node.attrs["low"], node.attrs["high"], own.even, least, most)
    lower, upper = stairs.adds(mul, shift)
    return None if (lower > upper).any() else _SiblingRequantisation(mul, np.clip(own.add >> less, lower, upper), shift, None)


def _share_shift(group: Sequence[Node]) -> dict[Node, _SiblingRequantisation]:
    """The nodes whose shift can be that of the least one, with their requantisation."""
    parts = {node: _SiblingRequantisation.of(node) for node in group}
    shift = min(part.shift for part in parts.values())
    is_same = len({(part.shift, part.even) for part in parts.values()}) == 1
    shared = {node: part if is_same else _shorten_multipliers(node, part, shift) for node, part in parts.items()}
    return {node: part for node, part in shared.items() if part is not None}


@lowered("MatMul")
def fuse_products_of_one_tensor(m: Match) -> Result:
    """Constant factors of one tensor, side by side."""
    require(_is_candidate(m, m.node))
    readers = [node for node in dict.fromkeys(m.readers(m.x)) if node.operands[0] is m.x]
    group = [node for node in readers if node is m.node or (_is_candidate(m, node) and _candidate_kind(node) == _candidate_kind(m.node))]
    sizes = np.cumsum([node.outputs[0].elements * node.outputs[0].dtype.bytes for node in group])
    group = [node for node, size in zip(group, sizes, strict=True) if size <= _LARGEST]
    require(len(group) > 1 and group[0] is m.node)
    attrs: Attributes = {**{name: value for name, value in m.attrs.items() if name != "even"}, "trans_b": True}
    constants = list[Tensor]()
    if m.node.epilogue == ("requantise",):
        parts = _share_shift(group)
        require(len(parts) > 1)
        group, (own, *_) = list(parts), parts.values()
        attrs |= {"shift": own.shift} | ({} if own.even is None else {"even": own.even})
        constants = [
            *requantisation_operands(*(np.concatenate([getattr(part, name) for part in parts.values()]) for name in ("mul", "add")))
        ]
    elif m.node.epilogue == ("bias",):
        constants = [constant(np.concatenate([_spread_operand(node, 2) for node in group]), label="bias")]
    weights = [_constant_input(node, 1) if node.attrs["trans_b"] else _constant_input(node, 1).T for node in group]
    *rows, _ = m.y.shape
    shape, name = [*rows, sum(map(_count_columns, group))], " and ".join(node.name for node in group)
    both = compute(
        "MatMul", m.x, constant(np.concatenate(weights), label="weights"), *constants, shape=shape, dtype=m.y.dtype, called=name, **attrs
    )
    slices, begin = dict[Tensor, Tensor](), 0
    for node in group:
        end, (result,) = begin + _count_columns(node), node.outputs
        box: Attributes = {"starts": (*(0 for _ in rows), begin), "ends": (*rows, end), "steps": (1,) * (len(rows) + 1)}
        slices[result], begin = compute("Slice", both, called=result.name, **box), end
    return slices


PASS = Pass("siblings", (fuse_products_of_one_tensor,))
