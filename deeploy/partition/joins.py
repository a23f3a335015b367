"""Residual connections join the reduction: the last sum of a chip's partial sums and the addition behind it become one call.

``y = clip((t*mul_a + b*mul_b + offset) >> shift)`` is what ``ResidualSum`` computes behind a requantised sum (docs/integer-form.md); which
operators are such an addition, and with which constants, their declarations say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.values import Graph, source_nodes
from deeploy.operators.reduce import REDUCE_SUM
from deeploy.operators.residual import RESIDUAL_SUM
from deeploy.operators.table import OPERATORS
from deeploy.operators.views import CONCAT, SLICE
from deeploy.partition.shards import cut_out, name_result
from deeploy.partition.system import System

Supports = Callable[[Node], bool]  # whether a target has a kernel for a node


@dataclass(frozen=True, eq=False)
class _Join:
    """An addition ``last`` of ``skip`` and the result of ``sums``, which ``concat`` puts together where there are several."""

    sums: list[Node]
    concat: Node | None
    last: Node
    skip: Tensor
    addition: Mapping[str, int]

    def totals(self) -> list[Node]:
        """Per sum the node that computes it with its part of the residual connection."""
        y, begin, totals = self.last.outputs[0], 0, list[Node]()
        for number, node in enumerate(self.sums):
            (x, *factors), (result,), skip, name = node.operands, node.outputs, self.skip, y.name
            if self.concat is not None:
                axis = self.concat.attrs["axis"]
                end = begin + result.shape[axis]
                skip, name = name_result(cut_out(skip, axis, begin, end), f"{skip.name} (from {begin})"), f"{name} (part {number})"
                begin = end
            attrs = {key: node.attrs[key] for key in ("shift", "low", "high", "even") if key in node.attrs} | dict(self.addition)
            outputs = (Tensor(name, result.shape, y.dtype),)
            totals.append(Node(self.last.name, RESIDUAL_SUM.name, (x, skip, *factors), outputs, attrs))
        return totals


def join_residuals(system: System, supports: Supports) -> System:
    """The system with residual connections in the sums that they follow, where the target has a kernel for that."""
    return replace(system, chips=tuple(_join_graph(graph, supports) for graph in system.chips))


def _join_graph(graph: Graph, supports: Supports) -> Graph:
    places = {node: place for place, node in enumerate(graph.nodes)}
    instead: dict[Node, tuple[Node, ...]] = {}
    stand_ins: dict[Tensor, Tensor] = {}

    def current(tensor: Tensor | None) -> Tensor | None:
        while tensor in stand_ins:
            tensor = stand_ins[tensor]
        return tensor

    for join in filter(None, (_find_join(graph, node, places) for node in graph.nodes)):
        totals, y = join.totals(), join.last.outputs[0]
        if not all(map(supports, totals)):
            continue
        if join.concat is None:
            instead[join.sums[0]], stand_ins[y] = tuple(totals), totals[0].outputs[0]
        else:
            for node, total in zip(join.sums, totals, strict=True):
                instead[node] = (*(cut for cut in source_nodes(total) if cut.op == SLICE and cut not in places), total)
            pieces = tuple(total.outputs[0] for total in totals)
            concat = join.concat.another(name=y.name, inputs=pieces, outputs=(y,))
            instead[join.concat], stand_ins[y] = (concat,), concat.outputs[0]
        instead[join.last] = ()
    nodes = []
    for node in (new for old in graph.nodes for new in instead.get(old, (old,))):
        inputs = tuple(map(current, node.inputs))
        if inputs != node.inputs:
            changed = node.another(inputs=inputs)
            stand_ins |= zip(node.outputs, changed.outputs, strict=True)
            node = changed
        nodes.append(node)
    outputs = tuple(tensor for tensor in map(current, graph.outputs) if tensor is not None)
    return replace(graph, outputs=outputs, order=tuple(nodes)) if instead else graph


def _find_join(graph: Graph, last: Node, places: Mapping[Node, int]) -> _Join | None:
    """What a node adds to a sum that nothing else reads."""
    addition_of = OPERATORS[last.op].addition if last.op in OPERATORS else None
    if addition_of is None or len(last.outputs) != 1 or last.outputs[0].dtype.numpy.itemsize != 1:
        return None

    def is_read_once(tensor: Tensor) -> bool:
        return len(graph.readers.get(tensor, ())) == 1 and tensor not in graph.outputs

    for position in (0, 1):
        t, skip = last.operands[position], last.operands[1 - position]
        addition = addition_of(last, position)
        if addition is None or not is_read_once(t) or t.maker is None or t.shape != skip.shape or skip.dtype.numpy.itemsize != 1:
            continue
        concat = t.maker if t.maker.op == CONCAT else None
        sums = list(source_nodes(concat)) if concat is not None else [t.maker]
        before = places[skip.maker] if skip.maker is not None else -1
        if len(sums) == (1 if concat is None else len(concat.operands)) and all(
            _is_sum(node) and is_read_once(node.outputs[0]) and before < places[node] for node in sums
        ):
            return _Join(sums, concat, last, skip, addition)
    return None


def _is_sum(node: Node) -> bool:
    """Whether a node is the requantised sum of terms that lie one behind the other."""
    is_leading = node.op == REDUCE_SUM.name and tuple(node.attrs["axes"]) == (0,) and not node.attrs["keepdims"]
    return is_leading and node.epilogue == ("requantise",) and node.outputs[0].dtype.numpy.itemsize == 1
