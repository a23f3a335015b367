"""The state of the walk over a model (``deeploy.frontend.trace``), which what stands for several nodes shares with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import onnx
import onnx_graphsurgeon as gs

from deeploy.errors import UnsupportedError
from deeploy.frontend.branches import Names
from deeploy.frontend.shapes import Value
from deeploy.frontend.structure import describe, reads

CustomShapes = Callable[[gs.Node], "list[list[int]] | None"]
MOST_UNROLLED = 10_000  # nodes of the rounds of loops, where no option says another number


@dataclass
class Walk:
    """The state of the walk, and its result.

    Attributes:
        version: opset of the standard operators.
        declared: what the file says about tensors.
        step: walks over a node.
        budget: nodes that loops may become.
        tensors: every tensor computed so far, by its name in the file; several names may share one tensor.
        nodes: the nodes that remain.
        names: names of nodes in use.
        read: names of tensors that a node reads or that are outputs of the graph.
        known: names of tensors in use.
        flat: the nodes of the file that the walk has seen, those that stand for a node with a graph in it in its place.
        unrolled: nodes that loops became.
    """

    version: int
    declared: dict[str, Value]
    step: Callable[[Walk, onnx.NodeProto], None]
    budget: int = MOST_UNROLLED
    tensors: dict[str, gs.Tensor] = field(default_factory=dict)
    nodes: list[gs.Node] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    known: Names = field(default_factory=lambda: Names(set(), frozenset()))
    flat: list[onnx.NodeProto] = field(default_factory=list)
    unrolled: int = 0

    def over(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Walk over further nodes, which are sorted."""
        nodes = list(nodes)
        self.read.update(name for node in nodes for name in reads(node))
        for node in nodes:
            self.step(self, node)

    def name_of(self, node: onnx.NodeProto) -> str:
        """A name for a node that no other has; it is in use then."""
        base = node.name or f"{node.op_type}_{next(name for name in node.output if name)}"
        name, number = base, 2
        while name in self.names:
            name, number = f"{base}_{number}", number + 1
        self.names.add(name)
        return name

    def spend(self, node: onnx.NodeProto, nodes: int, why: str = "") -> None:
        """Count nodes that a loop becomes.

        Args:
            why: it cannot stay a loop.

        Raises:
            UnsupportedError: they are more than the budget.
        """
        self.unrolled += nodes
        if self.unrolled > self.budget:
            raise UnsupportedError(
                f"{describe(node)} takes more than {self.budget} nodes when its rounds stand one behind the other"
                + (f", and cannot stay a loop: {why}" if why else ""),
                f"allow more: --unroll {10 * self.budget}, or export the model with a shorter loop",
            )
