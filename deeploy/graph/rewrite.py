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

from deeploy.errors import ModelError

# Rewritten constants keep their origin's name; only names of variables have to be unique, and lowering keeps them so.
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
                    if node.op in rule.ops and node.outputs and rule.rewrite(graph, node):
                        changed = True
            if changed:
                graph.cleanup(remove_unused_node_outputs=False).toposort()
                rounds -= 1
                if rounds < 0:
                    raise ModelError(f"pass {self.name} does not end on this graph", "report this model: a rewrite undoes another one")
        return graph


def rule(*ops: str) -> Callable[[Callable[[gs.Graph, gs.Node], bool]], Rule]:
    """Decorator: make a rule of a function, rooted at nodes with one of ``ops``."""
    return lambda function: Rule(function.__name__, frozenset(ops), function)


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
