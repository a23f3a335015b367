"""The value graph: tensors that know what computes them, from the outputs back to the inputs.

Nothing in it is ever changed. A rewrite makes other nodes and tensors and says which tensors they take the place of
(``deeploy.ir.rewriting``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from deeploy.errors import shorten
from deeploy.ir.nodes import Node, Tensor

_SHOWN = 4  # elements of a constant whose values are printed


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: what its outputs depend on.

    ``nodes`` are sorted by the most nodes in a row before them, then as the outputs read them, so that the order follows from the graph
    alone; unless they have an ``order`` of their own, with nodes that no output depends on, as messages are. ``opset`` and ``domains`` are
    those of the file, for another file to state. ``next_states`` are tensors for later inferences, which need no reader. ``periods`` has,
    by name, outputs and next states that are new in every n-th inference alone.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    opset: int = 0
    domains: Any = None
    order: tuple[Node, ...] | None = None
    next_states: tuple[Tensor, ...] = ()
    periods: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(sort_nodes((*self.outputs, *self.next_states))) if self.order is None else self.order

    @cached_property
    def operators(self) -> frozenset[str]:
        """The names of the operators of the graph's nodes."""
        return frozenset(node.op for node in self.nodes)

    @cached_property
    def readers(self) -> dict[Tensor, list[Node]]:
        """The nodes that read a tensor, one that reads it twice twice; none for what only leaves the network."""
        readers_by_tensor: dict[Tensor, list[Node]] = {}
        for node in self.nodes:
            for tensor in node.operands:
                readers_by_tensor.setdefault(tensor, []).append(node)
        return readers_by_tensor

    def __str__(self) -> str:
        """A line for every node: its results with their types, its operator, inputs, and attributes in the order of their names."""
        lines = [f"inputs {', '.join(map(_print_type, self.inputs))}", *map(_print_node, self.nodes)]
        return "\n".join([*lines, f"outputs {', '.join(shorten(tensor.name) for tensor in self.outputs)}"]) + "\n"


def spread_periods(steps: Sequence[tuple[Iterable[str], Iterable[str]]], periods: Mapping[str, int]) -> list[int]:
    """In every how many inferences each step has to run: whenever somebody needs what it writes.

    Args:
        steps: in the order in which they run: the names of what each writes, and of what it reads.
        periods: of what leaves an inference, by name.
    """
    needed, periods_of_nodes = dict(periods), list[int]()
    for written, read in reversed(steps):
        periods_of_nodes.append(math.gcd(*(needed.get(name, 0) for name in written)) or 1)
        needed |= {name: math.gcd(needed.get(name, 0), periods_of_nodes[-1]) for name in read}
    return periods_of_nodes[::-1]


def _print_type(tensor: Tensor) -> str:
    return f"{shorten(tensor.name)}: {tensor}" if tensor.name else "-"


def _print_node(node: Node) -> str:
    inputs = ", ".join("-" if tensor is None else _print_operand(tensor) for tensor in node.inputs)
    attributes = "".join(f" {shorten(name)}={_print_value(value)}" for name, value in sorted(node.attrs.items()))
    return f"{', '.join(map(_print_type, node.outputs))} = {shorten(node.op)}({inputs}){attributes}"


def _print_operand(tensor: Tensor) -> str:
    if tensor.data is None:
        return shorten(tensor.name)
    return f"{tensor} {_print_value(tensor.data.ravel().tolist())}" if tensor.elements <= _SHOWN else f"{tensor} {shorten(tensor.name)}"


def _print_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_print_value, value))}]"
    return f"{value:g}" if isinstance(value, float) else shorten(str(value))


def source_nodes(node: Node) -> list[Node]:
    """The nodes that compute the inputs of a node."""
    return [tensor.maker for tensor in node.operands if tensor.maker is not None]


def sort_nodes(outputs: Sequence[Tensor]) -> list[Node]:
    """The nodes that tensors depend on, each behind what it reads; without recursion, since networks are deep."""
    levels: dict[Node, int] = {}
    path = [tensor.maker for tensor in reversed(outputs) if tensor.maker is not None]
    while path:
        node = path[-1]
        before = source_nodes(node)
        waiting = [source for source in before if source not in levels]
        path += reversed(waiting)
        if not waiting:
            levels.setdefault(path.pop(), 1 + max([levels[source] for source in before], default=-1))
    return sorted(levels, key=levels.__getitem__)


def change_nodes(graph: Graph, change: Callable[[Node], Node]) -> Graph:
    """The graph of what ``change`` makes of every node, which it is given as it reads the results of the nodes before it."""
    now: dict[Tensor, Tensor] = {}

    def of(tensor: Tensor) -> Tensor:
        return now.get(tensor, tensor)

    changed = []
    for node in graph.nodes:
        changed.append(change(read_other_tensors(node, of)))
        now.update(zip(node.outputs, changed[-1].outputs, strict=True))
    graph = replace(graph, outputs=tuple(map(of, graph.outputs)), next_states=tuple(map(of, graph.next_states)))
    if graph.order is None:
        return graph
    ends = (tensor for node in changed if not node.outputs for tensor in node.operands)
    used = set(sort_nodes((*graph.outputs, *graph.next_states, *ends)))
    return replace(graph, order=tuple(node for node in changed if node in used or not node.outputs))


def substitute_tensors(graph: Graph, instead: Mapping[Tensor, Tensor] | Callable[[Tensor], Tensor]) -> Graph:
    """The graph in which other tensors are read, and leave the network, instead of some."""
    of = instead if callable(instead) else lambda tensor: instead.get(tensor, tensor)
    graph = change_nodes(graph, lambda node: read_other_tensors(node, of))
    return replace(graph, outputs=tuple(map(of, graph.outputs)), next_states=tuple(map(of, graph.next_states)))


def read_other_tensors(node: Node, instead: Callable[[Tensor], Tensor]) -> Node:
    """A node that reads other tensors; itself, where these are the same."""
    inputs = tuple(None if tensor is None else instead(tensor) for tensor in node.inputs)
    return node if inputs == node.inputs else node.another(inputs=inputs)
