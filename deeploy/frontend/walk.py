"""The state of the walk over a model (``deeploy.frontend.trace``), which what stands for several nodes shares with it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import onnx
import onnx_graphsurgeon as gs

from deeploy.errors import UnsupportedError, shorten
from deeploy.frontend.branches import Names
from deeploy.frontend.shapes import Value
from deeploy.frontend.structure import describe, reads

# Output shapes of a node whose operator the importer does not know: None where nobody knows it, none where they do not follow, as of a node
# without inputs, which only asks whether the operator is known.
CustomShapes = Callable[[gs.Node], "list[list[int]] | None"]
MOST_UNROLLED = 10_000  # nodes of the rounds of loops, where no option says another number


_MOST_PINNED = 64  # elements of an input that is a setting
_MOST_SPELLED = 8  # values that a message spells out


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
        refusal: the error for a node whose operator nobody knows.
        flat: the nodes of the file that the walk has seen, those that stand for a node with a graph in it in its place.
        unrolled: nodes that loops became.
        inputs: names of the inputs of the network.
    """

    version: int
    declared: dict[str, Value]
    step: Callable[[Walk, onnx.NodeProto], None]
    refusal: Callable[[onnx.NodeProto], UnsupportedError]
    budget: int = MOST_UNROLLED
    tensors: dict[str, gs.Tensor] = field(default_factory=dict)
    nodes: list[gs.Node] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    known: Names = field(default_factory=lambda: Names(set(), frozenset()))
    flat: list[onnx.NodeProto] = field(default_factory=list)
    unrolled: int = 0
    inputs: Collection[str] = ()

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

    def pinning(self, tensors: Iterable[gs.Tensor], most: int = _MOST_PINNED) -> str:
        """How to make tensors constant: the options for the inputs that they are computed from; "" where one has more elements."""
        waiting, seen, found = list(tensors), set[int](), list[gs.Tensor]()
        while waiting:
            tensor = waiting.pop()
            if id(tensor) in seen or isinstance(tensor, gs.Constant) or tensor.is_empty():
                continue
            seen.add(id(tensor))
            found += [] if tensor.inputs else [tensor]
            waiting += [source for maker in tensor.inputs for source in maker.inputs]
        if not found or any(t.name not in self.inputs or math.prod(t.shape) > most for t in found):
            return ""
        return f"pin what it depends on: {' '.join(f'--pin {shlex.quote(_option(t))}' for t in found)}"


def _option(tensor: gs.Tensor) -> str:
    """The value of ``--pin`` for an input."""
    count = math.prod(tensor.shape)
    return f"{shorten(tensor.name)}=VALUE{',VALUE' * (count - 1) if count <= _MOST_SPELLED else f',... ({count} numbers)'}"
