"""Branches of an ``If`` and bodies of loops as nodes of the graph that they are in: under names that are free there.

Such a graph defines names of its own and reads those around it. Copies of its nodes keep their names where these are free; a constant of
it becomes a node ``Constant``, and each result is handed on by an ``Identity``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import helper

from deeploy.frontend.schemas import PRODUCTS
from deeploy.frontend.structure import all_graphs, node_graphs
from deeploy.operators.recurrent import GATES

# What takes too long to be computed for nothing.
_HEAVY = ("Attention", *PRODUCTS, *GATES)


@dataclass
class BranchNames:
    """Names of tensors or nodes: those ``taken`` in the graph around all branches, and those that the model has ``anywhere``."""

    taken: set[str] = field(default_factory=set)
    anywhere: frozenset[str] = frozenset()

    @classmethod
    def of(cls, graph: onnx.GraphProto) -> BranchNames:
        return cls(set(_defined_names(graph)), frozenset(name for inner in all_graphs(graph) for name in _defined_names(inner)))

    def fresh(self, name: str) -> str:
        """``name`` where it is free, else one made from it; it is taken then."""
        free_name, number = name, 2
        while free_name in self.taken or (number > 2 and free_name in self.anywhere):
            free_name, number = f"{name}_{number}", number + 1
        self.taken.add(free_name)
        return free_name


def _defined_names(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a graph gives to tensors."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (name for node in graph.node for name in node.output if name)


def unfold_nodes(
    inner: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], given: Sequence[str], results: Sequence[str], names: BranchNames
) -> list[onnx.NodeProto]:
    """Copies of the nodes of a branch or a body that compute ``results``, for the graph around it.

    Args:
        nodes: of the inner graph, sorted.
        given: names outside of the tensors that are its inputs.
        results: names of its outputs outside.
        names: those in use; those of the copies are added.
    """
    own = {value.name: name for value, name in zip(inner.input, given, strict=True)}
    own.update({name: names.fresh(name) for name in _defined_names(inner) if name not in own})
    made = [helper.make_node("Constant", [], [own[tensor.name]], value=tensor) for tensor in inner.initializer]
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        _rename_reads(copy, own)
        copy.output[:] = [own.get(name, name) for name in copy.output]
        made.append(copy)
    ends = zip(inner.output, results, strict=True)
    return made + [helper.make_node("Identity", [own.get(value.name, value.name)], [name]) for value, name in ends if name]


def _rename_reads(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Read tensors under other names, also in the graphs that a node holds, where these do not define the names anew."""
    node.input[:] = [names.get(name, name) for name in node.input]
    for graph in node_graphs(node):
        own = set(_defined_names(graph))
        left = {name: other for name, other in names.items() if name not in own}
        for inner in graph.node:
            _rename_reads(inner, left)
        for value in graph.output:
            value.name = left.get(value.name, value.name)


def is_heavy(branch: onnx.GraphProto) -> bool:
    """Whether a branch holds operators that multiply matrices, or run over a sequence."""
    return any(part in node.op_type for graph in all_graphs(branch) for node in graph.node for part in _HEAVY)
