"""Passes over a graph: a named list of rules, each a pattern's root operators and a replacement.

A rule is called on every node whose operator it names, in topological order, and says whether it changed the graph. A
pass repeats its rules until none of them does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.logger import G_LOGGER

from deeploy.errors import ModelError, shorten

# Rewritten constants keep their origin's name; only names of variables have to be unique, and passes keep them so.
G_LOGGER.severity = G_LOGGER.ERROR


@dataclass(frozen=True)
class Rule:
    """``rewrite(graph, node)`` returns whether it changed the graph; it is called for nodes whose op is in ``ops``."""

    name: str
    ops: frozenset[str]
    rewrite: Callable[[gs.Graph, gs.Node], bool]


@dataclass(frozen=True)
class Pass:
    """A named list of rules, applied until nothing changes."""

    name: str
    rules: tuple[Rule, ...]

    def __call__(self, graph: gs.Graph) -> gs.Graph:
        """Apply the pass in place and return the graph, cleaned up and sorted."""
        rounds = 2 * len(graph.nodes) + 10
        changed = True
        while changed:
            changed = False
            for node in list(graph.nodes):
                for rule in self.rules:
                    if node.op in rule.ops and node.outputs:
                        changed |= _applied(rule, graph, node)
            if changed:
                _name_apart(graph)
                sort(graph.cleanup(remove_unused_node_outputs=False))
                rounds -= 1
                if rounds < 0:
                    raise ModelError(f"pass {self.name} does not end on this graph", "report this model: a rewrite undoes another one")
        return graph


def _applied(rule: Rule, graph: gs.Graph, node: gs.Node) -> bool:
    """Whether a rule rewrote a node.

    Raises:
        ModelError: its shapes, constants or attributes contradict each other: the rule could not compute with them.
    """
    what = f"node {shorten(node.name)} ({shorten(node.op)})"
    try:
        return rule.rewrite(graph, node)
    except (IndexError, KeyError, ValueError, TypeError, ArithmeticError, MemoryError) as error:
        reason = shorten(f"{type(error).__name__}: {error}".splitlines()[0], 200)
        raise ModelError(
            f"{what} cannot be rewritten by {rule.name}: {reason}",
            "Its shapes, constants or attributes do not fit each other: correct them, or report the model; --debug shows where it fails.",
        ) from error


def _name_apart(graph: gs.Graph) -> None:
    """Give variables of one name names of their own: rules name what they make after what it is made for, which may happen twice.

    Nodes whose tensors have the same names are equal to onnx-graphsurgeon, which then disconnects the wrong one.
    """
    owners = {tensor.name: tensor for tensor in (*graph.inputs, *graph.outputs)}
    for node in graph.nodes:
        for tensor in node.outputs:
            name, number = tensor.name, 2
            while owners.setdefault(name, tensor) is not tensor:
                name, number = f"{tensor.name} ({number})", number + 1
            tensor.name = name


def rule(*ops: str) -> Callable[[Callable[[gs.Graph, gs.Node], bool]], Rule]:
    """Decorator: make a rule of a function, rooted at nodes with one of ``ops``."""
    return lambda function: Rule(function.__name__, frozenset(ops), function)


def sort(graph: gs.Graph) -> gs.Graph:
    """Sort the nodes of a graph without cycles in place: by the most nodes in a row before them, then in the order in which they are found.

    ``gs.Graph.toposort`` gives the same order, but calls itself as deep as the graph is.
    """
    levels: dict[int, int] = {}
    found: list[gs.Node] = []
    for root in graph.nodes:
        path = [] if id(root) in levels else [(root, iter(_sources(root)))]
        while path:
            node, sources = path[-1]
            source = next((s for s in sources if id(s) not in levels), None)
            if source is not None:
                path.append((source, iter(_sources(source))))
                continue
            levels[id(node)] = 1 + max((levels[id(s)] for s in _sources(node)), default=-1)
            found.append(node)
            path.pop()
    graph.nodes = sorted(found, key=lambda node: levels[id(node)])
    return graph


def _sources(node: gs.Node) -> list[gs.Node]:
    return [source for tensor in node.inputs for source in tensor.inputs]


def constant(tensor: gs.Tensor) -> np.ndarray | None:
    """The value of a constant tensor, else None."""
    return np.asarray(tensor.values) if isinstance(tensor, gs.Constant) else None


def producer(tensor: gs.Tensor, op: str | None = None) -> gs.Node | None:
    """The node that computes ``tensor``, if there is one and it has the operator ``op``."""
    if not tensor.inputs or (op is not None and tensor.inputs[0].op != op):
        return None
    return tensor.inputs[0]


def only_consumer(graph: gs.Graph, tensor: gs.Tensor, op: str | None = None) -> gs.Node | None:
    """The single node that reads ``tensor`` (once), if it has the operator ``op`` and the tensor is no graph output."""
    if len(tensor.outputs) != 1 or any(tensor is out for out in graph.outputs):
        return None
    node = tensor.outputs[0]
    if (op is not None and node.op != op) or sum(i is tensor for i in node.inputs) != 1:
        return None
    return node


def replace_node(graph: gs.Graph, old: gs.Node, new: gs.Node) -> None:
    """Put ``new`` in the place of ``old``, whose connections are cut; ``new`` is already connected to its tensors."""
    index = next(i for i, node in enumerate(graph.nodes) if node is old)
    old.inputs.clear()
    old.outputs.clear()
    graph.nodes[index] = new


def redirect(graph: gs.Graph, old: gs.Tensor, new: gs.Tensor) -> None:
    """Make every reader of ``old`` read ``new``; a graph output keeps its name."""
    for node in list(old.outputs):
        node.inputs = [new if i is old else i for i in node.inputs]
    for position, out in enumerate(graph.outputs):
        if out is old:
            graph.outputs[position] = new
