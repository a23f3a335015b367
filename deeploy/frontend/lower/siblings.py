"""Products of one tensor with several constants as one product: queries, keys and values; a gate and what it gates.

Their weights lie side by side, and each result is a slice of the common one, which is a view. One call fetches its operand once and
sets itself up once, and has columns for all cores where every product alone has too few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.fuse import stages
from deeploy.frontend.lower.quant import narrow
from deeploy.frontend.lower.rewriter import Rewriter, lowered
from deeploy.frontend.schemas import Attributes
from deeploy.graph.rewrite import Pass
from deeploy.operators import requantise, staircase
from deeploy.operators.views import VIEWS

_LARGEST = 16384  # bytes of a common result: behind more work, set-up is nothing, and parts that die one by one fit memories better
_STAGES = ((), ("bias",), ("requantise",))
_SHARED = ("trans_a", "a_zero_point", "b_zero_point", "low", "high")  # attributes that siblings have in common


def _is_placed(graph: gs.Graph, tensor: gs.Tensor) -> bool:
    """Whether a tensor has to lie in a place of its own: an output of the network, or a part of a concatenation."""
    waiting = [tensor]
    while waiting:
        tensor = waiting.pop()
        if any(tensor is out for out in graph.outputs):
            return True
        views = [node for node in tensor.outputs if build.lowered(node) and node.op in VIEWS]
        if any(node.op == "Concat" for node in views):
            return True
        waiting += (out for node in views for out in node.outputs)
    return False


def _is_candidate(graph: gs.Graph, node: gs.Node) -> bool:
    if node.op != "MatMul" or not build.lowered(node) or stages(node) not in _STAGES or len(node.outputs) != 1:
        return False
    a, b = node.inputs[:2]
    if isinstance(a, gs.Constant) or not isinstance(b, gs.Constant) or b.values.ndim != 2 or node.attrs["trans_a"]:
        return False
    return not any(n == 0 for n in node.outputs[0].shape) and not _is_placed(graph, node.outputs[0])


def _alike(first: gs.Node, other: gs.Node) -> bool:
    """Whether two candidates can share a product, requantisation aside."""
    types = [
        (n.inputs[1].values.dtype, np.dtype(n.outputs[0].dtype), stages(n), *(n.attrs.get(a) for a in _SHARED)) for n in (first, other)
    ]
    return types[0] == types[1]


@dataclass(frozen=True)
class _Requantisation:
    """mul and add of one entry per column, and their shift."""

    mul: np.ndarray
    add: np.ndarray
    shift: int
    even: int | None


def _columns(node: gs.Node) -> int:
    return int(node.outputs[0].shape[-1])


def _bytes(node: gs.Node) -> int:
    y = node.outputs[0]
    return math.prod(int(n) for n in y.shape) * int(np.dtype(y.dtype).itemsize)


def _requantisation(node: gs.Node) -> _Requantisation:
    mul, add = (np.broadcast_to(np.asarray(t.values).astype(np.int64), _columns(node)) for t in node.inputs[-2:])
    return _Requantisation(mul, add, int(node.attrs["shift"]), node.attrs.get("even"))


def _shortened(node: gs.Node, own: _Requantisation, shift: int) -> _Requantisation | None:
    """The same results with fewer bits of multipliers, None where no summand gives them for every accumulator that can occur."""
    view = build.described(node)
    least, most = (np.broadcast_to(end, len(own.mul)) for end in requantise.accumulators(view))
    less = own.shift - shift
    mul = (own.mul + ((1 << less) >> 1)) >> less
    outside = own.shift > staircase.LONGEST or int(least.min()) < -staircase.WORD or int(most.max()) >= staircase.WORD
    if outside or int(own.mul.min()) <= 0 or int(mul.min()) <= 0:
        return None
    stairs = staircase.staircase(own.mul, own.add, own.shift, node.attrs["low"], node.attrs["high"], own.even, least, most)
    lower, upper = stairs.adds(mul, shift)
    return None if (lower > upper).any() else _Requantisation(mul, np.clip(own.add >> less, lower, upper), shift, None)


def _common(group: Sequence[gs.Node]) -> tuple[list[gs.Node], _Requantisation] | None:
    """The requantisation of all columns, and the nodes that it holds for: those whose shift can be that of the least one."""
    parts = [_requantisation(node) for node in group]
    shift = min(part.shift for part in parts)
    is_same = len({(part.shift, part.even) for part in parts}) == 1
    found = [(n, part if is_same else _shortened(n, part, shift)) for n, part in zip(group, parts, strict=True)]
    kept = [(node, part) for node, part in found if part is not None]
    if len(kept) < 2:
        return None
    mul, add = (np.concatenate([getattr(part, name) for _, part in kept]) for name in ("mul", "add"))
    return [node for node, _ in kept], _Requantisation(mul, add, shift, kept[0][1].even)


@lowered("MatMul")
def siblings(rw: Rewriter) -> bool:
    """Constant factors of one tensor, side by side."""
    if not _is_candidate(rw.graph, rw.node):
        return False
    readers = [n for n in rw.graph.nodes if n.op == "MatMul" and len(n.inputs) > 1 and n.inputs[0] is rw.x]
    group = [n for n in readers if n is rw.node or (_is_candidate(rw.graph, n) and _alike(rw.node, n))]
    sizes = np.cumsum([_bytes(n) for n in group])
    group = [n for n, size in zip(group, sizes, strict=True) if size <= _LARGEST]
    if len(group) < 2 or group[0] is not rw.node:
        return False
    attrs = {key: value for key, value in rw.attrs.items() if key != "even"}
    constants: list[gs.Tensor] = []
    if stages(rw.node) == ("requantise",):
        common = _common(group)
        if common is None:
            return False
        group, own = common
        attrs |= {"shift": own.shift} | ({} if own.even is None else {"even": own.even})
        constants = [rw.constant(own.mul, np.int32, "mul"), rw.constant(narrow(own.add), label="add")]
    elif stages(rw.node) == ("bias",):
        rows = [np.broadcast_to(np.asarray(n.inputs[2].values), _columns(n)) for n in group]
        constants = [rw.constant(np.concatenate(rows), label="bias")]
    return _join(rw, group, attrs, constants)


def _join(rw: Rewriter, group: Sequence[gs.Node], attrs: Attributes, constants: Sequence[gs.Tensor]) -> bool:
    """Put one product in the place of a group; ``constants`` are its epilogue's."""
    results = [n.outputs[0] for n in group]
    weights = [np.asarray(n.inputs[1].values) if n.attrs["trans_b"] else np.asarray(n.inputs[1].values).T for n in group]
    for n in group:
        n.outputs.clear()
        n.inputs.clear()
    *rows, _ = rw.y.shape
    columns = [int(t.shape[-1]) for t in results]
    stacked = rw.constant(np.concatenate(weights), label="weights")
    attrs["trans_b"] = True
    both = rw.create("MatMul", rw.x, stacked, *constants, shape=[*rows, sum(columns)], dtype=rw.y.dtype, **attrs)
    both.inputs[0].name = " and ".join(n.name for n in group)
    begins = np.cumsum([0, *columns]).tolist()
    for result, begin, end in zip(results, begins, begins[1:], strict=False):
        rw.into(result, "Slice", both, starts=(*(0 for _ in rows), begin), ends=(*rows, end), steps=(1,) * (len(rows) + 1))
    return True


PASS = Pass("siblings", (siblings,))
