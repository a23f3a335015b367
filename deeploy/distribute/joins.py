"""Residual connections join the reduction: the last sum of a chip's partial sums and the addition behind it become one call.

``y = clip((t*mul_a + b*mul_b + offset) >> shift)`` is what ``ResidualSum`` computes behind a requantised sum (docs/integer-form.md); which
operators are such an addition, and with which constants, their declarations say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.distribute.dependence import shape_of
from deeploy.distribute.system import System
from deeploy.graph import surgeon
from deeploy.graph.nodes import INTEGER_FORM, Node
from deeploy.operators.reduce import REDUCE_SUM
from deeploy.operators.residual import RESIDUAL_SUM
from deeploy.operators.table import OPERATORS
from deeploy.operators.views import CONCAT, SLICE

Supports = Callable[[Node], bool]  # whether a target has a kernel for a node


@dataclass(frozen=True, eq=False)
class _Join:
    """An addition ``last`` of ``skip`` and the result of ``sums``, which ``concat`` puts together where there are several."""

    sums: Sequence[gs.Node]
    concat: gs.Node | None
    last: gs.Node
    skip: gs.Tensor
    addition: Mapping[str, int]


def joined(system: System, supports: Supports) -> System:
    """The system with residual connections in the sums that they follow, where the target has a kernel for that."""
    return replace(system, chips=tuple(_joined(graph, supports) for graph in system.chips))


def _joined(graph: gs.Graph, supports: Supports) -> gs.Graph:
    places = {id(node): place for place, node in enumerate(graph.nodes)}
    instead: dict[int, list[gs.Node]] = {}
    for node in list(graph.nodes):
        found = _join(graph, node, places)
        if found is None:
            continue
        parts = [_part(found, position) for position in range(len(found.sums))]
        if not all(supports(surgeon.described(part[-1])) for part in parts):
            _detach([node for part in parts for node in part])
            continue
        y = surgeon.take_over(found.last)
        instead[id(found.last)] = []
        if found.concat is None:
            parts[0][-1].outputs = [y]
        else:
            pieces = [part[-1].outputs[0] for part in parts]
            instead[id(found.concat)] = [gs.Node(CONCAT, y.name, dict(found.concat.attrs), pieces, [y], domain=INTEGER_FORM)]
        instead |= {id(old): part for part, old in zip(parts, found.sums, strict=True)}
        _detach([*found.sums, found.last, *([found.concat] if found.concat is not None else [])])
        places[id(y.inputs[0])] = places[id(node)]
    if not instead:
        return graph
    nodes = [new for node in graph.nodes for new in instead.get(id(node), [node])]
    return gs.Graph(nodes, graph.inputs, graph.outputs, name=graph.name, opset=graph.opset, import_domains=graph.import_domains)


def _detach(nodes: Sequence[gs.Node]) -> None:
    for node in nodes:
        node.inputs.clear()
        node.outputs.clear()


def _join(graph: gs.Graph, last: gs.Node, places: Mapping[int, int]) -> _Join | None:
    """What a node adds to a sum that nothing else reads."""
    addition_of = OPERATORS[last.op].addition if last.op in OPERATORS else None
    if addition_of is None or len(last.outputs) != 1 or np.dtype(last.outputs[0].dtype).itemsize != 1:
        return None
    outputs = {id(tensor) for tensor in graph.outputs}
    for position in (0, 1):
        t, skip = last.inputs[position], last.inputs[1 - position]
        addition = addition_of(surgeon.described(last), position)
        if addition is None or id(t) in outputs or len(t.outputs) != 1 or len(t.inputs) != 1 or shape_of(t) != shape_of(skip):
            continue
        maker = t.inputs[0]
        sums = [one.inputs[0] if one.inputs else None for one in maker.inputs] if maker.op == CONCAT else [maker]
        listed = [node for node in sums if node is not None and _is_sum(node) and len(node.outputs[0].outputs) == 1]
        known = not skip.inputs or all(places[id(skip.inputs[0])] < places[id(node)] for node in listed)
        if listed and len(listed) == len(sums) and known and np.dtype(skip.dtype).itemsize == 1:
            return _Join(listed, maker if maker.op == CONCAT else None, last, skip, addition)
    return None


def _is_sum(node: gs.Node) -> bool:
    """Whether a node is the requantised sum of terms that lie one behind the other."""
    is_requantised = tuple(node.attrs.get("epilogue", ())) == ("requantise",)
    is_leading = node.op == REDUCE_SUM.name and tuple(node.attrs["axes"]) == (0,) and not node.attrs["keepdims"]
    return is_leading and is_requantised and np.dtype(node.outputs[0].dtype).itemsize == 1


def _part(join: _Join, number: int) -> list[gs.Node]:
    """The nodes of one sum with its part of the residual connection; the last one computes it."""
    node = join.sums[number]
    x, mul, add = node.inputs
    skip, nodes = join.skip, list[gs.Node]()
    y = surgeon.variable(f"{join.last.outputs[0].name} (part {number})", join.last.outputs[0].dtype, shape_of(node.outputs[0]))
    if join.concat is not None:
        axis = join.concat.attrs["axis"]
        begin = sum(shape_of(other.outputs[0])[axis] for other in join.sums[:number])
        starts = tuple(begin if i == axis else 0 for i in range(len(shape_of(y))))
        ends = tuple(start + size for start, size in zip(starts, shape_of(y), strict=True))
        cut = surgeon.variable(f"{skip.name} (from {begin})", skip.dtype, shape_of(y))
        attrs = {"starts": starts, "ends": ends, "steps": (1,) * len(starts)}
        nodes.append(gs.Node(SLICE, cut.name, attrs, [skip], [cut], domain=INTEGER_FORM))
        skip = cut
    attrs = {name: node.attrs[name] for name in ("shift", "low", "high", "even") if name in node.attrs}
    nodes.append(gs.Node(RESIDUAL_SUM.name, join.last.name, {**attrs, **join.addition}, [x, skip, mul, add], [y], domain=INTEGER_FORM))
    return nodes
