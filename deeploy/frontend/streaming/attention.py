"""Attention whose mask lets every column see a band of others: what a stream keeps keys and values of.

softmax(q k^T + mask) v of a sequence is recognised by its two products, and what lies between these: functions of elements, constants,
a softmax along the keys. The mask says what is seen. It is cut into blocks of as few columns as make it repeat: one column of a causal
or a banded mask, a chunk where all columns of a chunk see the same. Columns of a block see no more than ``before`` columns in front of
it and ``after`` behind it, of which the lookback is at most that of the window. With biases that depend on distances alone (ALiBi, T5)
it is the same, as they repeat, too.

Along a recording every block meets ``before + block + after`` columns, however long the recording is: columns further away are no part
of the softmax. That is what the mask says where hidden scores vanish, which those of integers need not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deeploy.frontend.lower.lookup import UNARY, real_constant
from deeploy.frontend.lower.pointwise import BINARY
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.rewriting import need, require
from deeploy.ir.values import Graph

HIDDEN = -1e3  # a score below it is hidden, whatever the others are
_GAP = 8.0  # by which hidden scores lie below the others at least, where they have the lowest number of integers
SOFTMAXES = ("Softmax", "iSoftmax", "ITAMax")
_FUNCTIONS = ("Relu", "Clip", "Cast", "Identity", "QuantizeLinear", "DequantizeLinear", "RequantShift", "LookUp", "IsNaN", *UNARY)
_BETWEEN = frozenset([*SOFTMAXES, *_FUNCTIONS, *BINARY, "Where", "Reshape"])


@dataclass(frozen=True, eq=False)
class Attention:
    """The product of queries and keys, what is between it and the product with values, and that."""

    scores: Node
    inner: tuple[Node, ...]
    last: Node

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.scores, *self.inner


@dataclass(frozen=True)
class Band:
    """What the columns of a block see.

    Attributes:
        constants: of operands [..., T, T], each as [..., block, width].
        hidden: of operands that hide, the element that does.
        is_limited: whether a block sees as far back as the window goes.
    """

    block: int
    before: int
    after: int
    constants: Mapping[Tensor, np.ndarray]
    hidden: Mapping[Tensor, np.generic]
    is_limited: bool

    @property
    def width(self) -> int:
        return self.before + self.block + self.after


def find_attentions(graph: Graph) -> dict[Node, Attention]:
    """The attentions of a graph by their last products, none of which gives the scores of another."""
    found = [_find_attention(graph, node) for node in graph.nodes if node.op == "MatMul"]
    lasts = {attention.last for attention in found if attention is not None}
    return {attention.last: attention for attention in found if attention is not None and attention.scores not in lasts}


def _find_attention(graph: Graph, scores: Node) -> Attention | None:
    """The attention whose scores a product gives; None where it gives none, or they are read by others."""
    (y,) = scores.outputs
    if len(scores.variables) != 2 or len(scores.inputs) != 2 or y.rank < 2 or not y.shape[-1] == y.shape[-2] > 1:
        return None
    reached, inner, waiting = {y}, dict[Node, None](), [y]
    lasts = list[Node]()
    while waiting:
        tensor = waiting.pop()
        if tensor in graph.outputs:
            return None
        for node in graph.readers.get(tensor, ()):
            if node.op == "MatMul" and node.operands[0] is tensor and len(node.inputs) == 2:
                lasts.append(node)
            elif node.op not in _BETWEEN or len(node.outputs) != 1 or node.outputs[0].shape[-2:] != y.shape[-2:]:
                return None
            elif node not in inner:
                inner[node] = None
                reached.add(node.outputs[0])
                waiting.append(node.outputs[0])
    softmaxes = [node for node in inner if node.op in SOFTMAXES]
    if len(lasts) != 1 or lasts[0].operands[1] in reached or len(softmaxes) != 1:
        return None
    if softmaxes[0].attrs.get("axis", -1) % softmaxes[0].operands[0].rank != softmaxes[0].operands[0].rank - 1:
        return None
    return Attention(scores, tuple(node for node in graph.nodes if node in inner), lasts[0])


def find_band(attention: Attention) -> Band:
    """What every column sees; ``Unfit`` where that is not a band with an end ahead."""
    columns = attention.scores.outputs[0].shape[-1]
    arrays = {
        tensor: _spread(tensor, columns) for node in attention.inner for tensor in list_constants(node) if _is_spread(tensor, columns)
    }
    hidden = dict[Tensor, np.generic]()
    is_hidden = np.zeros((columns, columns), bool)
    for node in attention.inner:
        for tensor, element, hides in _find_hidden(node):
            require(hidden.setdefault(tensor, element) == element)
            arrays[tensor] = np.where(hides, element, arrays[tensor])
            is_hidden |= hides.reshape(-1, columns, columns).all(0)
    for block in range(1, columns // 2 + 1):
        if all(_repeats(array, block) for array in (is_hidden, *arrays.values())):
            return _measure_band(block, ~is_hidden, arrays, hidden)
    return need(None)


def list_constants(node: Node) -> list[Tensor]:
    """The constant operands of a node, dequantised ones too; without parameters of quantisation and tables."""
    operands = node.operands if node.op in (*BINARY, "Where") else ()
    return [tensor for tensor in operands if stored_constant(tensor).data is not None]


def stored_constant(tensor: Tensor) -> Tensor:
    """What is stored of a constant that is dequantised as a whole; else the tensor itself."""
    node = tensor.made_by("DequantizeLinear")
    return node.operands[0] if node is not None and all(t.elements == 1 for t in node.operands[1:]) else tensor


def _is_spread(tensor: Tensor, columns: int) -> bool:
    """Whether a constant differs along queries or keys, or hides."""
    return tensor.rank > 0 and columns in tensor.shape[-2:]


def _spread(tensor: Tensor, columns: int) -> np.ndarray:
    array = need(stored_constant(tensor).data)
    return np.broadcast_to(array, (*array.shape[:-2], columns, columns))


def _find_hidden(node: Node) -> list[tuple[Tensor, np.generic, np.ndarray]]:
    """Operands of a node that hide scores, with the element that does, and where it is."""
    size = node.outputs[0].shape[-1]
    known = list_constants(node)
    if node.op == "Add" and len(known) == 1 and _is_spread(known[0], size):
        return [(known[0], element, hides) for element, hides in _find_low(known[0], size)]
    if node.op != "Where" or len(node.operands) != 3 or node.operands[0] not in known or not _is_spread(node.operands[0], size):
        return []
    condition, *branches = node.operands
    for side, branch in zip((True, False), branches, strict=True):
        if branch in known and branch.elements == 1 and _find_low(branch, size):
            return [(condition, np.bool_(side), _spread(condition, size) == side)]
    return []


def _find_low(tensor: Tensor, columns: int) -> list[tuple[np.generic, np.ndarray]]:
    """The lowest element of a constant as it is stored, and where it is, if it hides: others are far above it, or it is far below 0."""
    stored, real = need(stored_constant(tensor).data), real_constant(tensor)
    if real is None or stored.dtype.kind == "b":
        return []
    if stored.dtype.kind == "f":
        low = stored < HIDDEN
    else:
        lowest = np.iinfo(stored.dtype).min
        others = real[stored > lowest]
        low = (stored == lowest) & (real <= min(float(others.min(initial=0)), 0) - _GAP)
    if not low.any():
        return []
    hides = np.broadcast_to(low, (*low.shape[:-2], columns, columns)) if low.ndim > 1 or low.size > 1 else low
    return [(stored[low].min(), hides)]


def _repeats(array: np.ndarray, block: int) -> bool:
    """Whether elements are the same a block of columns later, for queries and keys."""
    return bool(np.array_equal(array[..., block:, block:], array[..., :-block, :-block]))


def _measure_band(block: int, seen: np.ndarray, arrays: Mapping[Tensor, np.ndarray], hidden: Mapping[Tensor, np.generic]) -> Band:
    columns = len(seen)
    rows, keys = np.nonzero(seen)
    distances = keys - rows // block * block
    before, after = max(0, -int(distances.min(initial=0))), max(0, int(distances.max(initial=0)) - block + 1)
    require(seen.any(1).all(), block + after < columns)
    width = before + block + after
    constants = {
        tensor: np.full((*array.shape[:-2], block, width), hidden.get(tensor, array.min()), array.dtype) for tensor, array in arrays.items()
    }
    for row in range(columns):
        first = row // block * block - before
        low, high = max(0, first), min(columns, first + width)
        for tensor, array in arrays.items():
            constants[tensor][..., row % block, low - first : high - first] = array[..., row, low:high]
    return Band(block, before, after, constants, hidden, before + block > columns - block)
