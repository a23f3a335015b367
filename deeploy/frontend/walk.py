"""The state of the walk over a model (``deeploy.frontend.trace``), which what stands for several nodes shares with it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from deeploy.errors import UnsupportedError, shorten
from deeploy.frontend.branches import BranchNames
from deeploy.frontend.predicates import Known
from deeploy.frontend.shapes import Value
from deeploy.frontend.structure import describe_node, read_names
from deeploy.ir.nodes import Node, Tensor, list_makers, name_part, set_name
from deeploy.ir.types import WHOLE, DType
from deeploy.options import MOST_UNROLLED

# Output shapes of a node whose operator the importer does not know: None where nobody knows it, none where they do not follow, as of a node
# without inputs, which only asks whether the operator is known.
CustomShapes = Callable[[Node], "list[list[int]] | None"]


_MOST_PINNED = 64  # elements of an input that is a setting
_LARGEST = float(np.finfo(np.float32).max)
_MOST_SPELLED = 8  # values that a message spells out


@dataclass
class GraphWalk:
    """The state of the walk, and its result.

    Attributes:
        version: opset of the standard operators.
        declared: what the file says about tensors.
        step: walks over a node.
        budget: nodes that loops may become.
        tensors: every tensor computed so far, by its name in the file; several names may share one tensor.
        names: names of nodes in use.
        read: names of tensors that a node reads or that are outputs of the graph.
        known: names of tensors in use.
        refusal: the error for a node whose operator nobody knows.
        flat: the nodes of the file that the walk has seen, those that stand for a node with a graph in it in its place.
        unrolled: nodes that loops became.
        inputs: names of the inputs of the network.
        operands: constants that nodes read in another type than the file has them in.
    """

    version: int
    declared: dict[str, Value]
    step: Callable[[GraphWalk, onnx.NodeProto], None]
    refusal: Callable[[onnx.NodeProto], UnsupportedError]
    budget: int = MOST_UNROLLED
    tensors: dict[str, Known] = field(default_factory=dict)
    names: BranchNames = field(default_factory=BranchNames)
    read: set[str] = field(default_factory=set)
    known: BranchNames = field(default_factory=BranchNames)
    flat: list[onnx.NodeProto] = field(default_factory=list)
    unrolled: int = 0
    inputs: Collection[str] = ()
    operands: dict[str, Tensor] = field(default_factory=dict)

    def over(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Walks over further nodes, which are sorted topologically."""
        nodes = list(nodes)
        self.read.update(name for node in nodes for name in read_names(node))
        for node in nodes:
            self.step(self, node)

    def name_of(self, node: onnx.NodeProto) -> str:
        """A name for a node that no other has; it is in use then."""
        return self.names.fresh(node.name or f"{node.op_type}_{next(name for name in node.output if name)}")

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
                f"{describe_node(node)} takes more than {self.budget} nodes when its rounds stand one behind the other"
                + (f", and cannot stay a loop: {why}" if why else ""),
                f"allow more: --unroll {10 * self.budget}, or export the model with a shorter loop",
            )

    def pinning(self, tensors: Iterable[Known | None], most: int = _MOST_PINNED) -> str:
        """How to make tensors constant: the options for the inputs that they are computed from; "" where one has more elements."""
        waiting, sources = [tensor for tensor in tensors if isinstance(tensor, Tensor)], dict[Tensor, bool]()
        while waiting:
            tensor = waiting.pop()
            if tensor not in sources and tensor.data is None:
                sources[tensor] = tensor.maker is None
                waiting += tensor.maker.operands if tensor.maker is not None else ()
        pinning_sources = [tensor for tensor, is_source in sources.items() if is_source]
        if not pinning_sources or any(t.name not in self.inputs or t.elements > most for t in pinning_sources):
            return ""
        return f"pin what it depends on: {' '.join(f'--pin {shlex.quote(_pin_option(t))}' for t in pinning_sources)}"

    def operand(self, tensor: Known, name: str) -> Tensor:
        """A tensor as a node of the graph reads it: floats of 64 bits are float32, and what is finite stays so.

        Raises:
            UnsupportedError: the generated code does not have its elements.
        """
        if isinstance(tensor, Tensor):
            return tensor
        if name not in self.operands:
            dtype = element_type(tensor.dtype, name)
            values = np.where(np.isfinite(tensor), np.clip(tensor, -_LARGEST, _LARGEST), tensor).astype(np.float32)
            self.operands[name] = Tensor(name, tensor.shape, dtype, values)
        return self.operands[name]

    def publish(self, made: Tensor, name: str, title: str = "") -> None:
        """Name a tensor, where it has no name, and all that it was made of; ``title`` is the name of the node that computes it."""
        if not made.name:
            set_name(made, name)
        for node in list_makers(made, lambda node: not node.name):
            for tensor in (*node.operands, *node.outputs):
                if not tensor.name and tensor.label:
                    set_name(tensor, name_part(title or name, tensor.label, self.known.taken))
            set_name(node, self.names.fresh(title if made in node.outputs and title else node.outputs[0].name))


def known_constant(array: np.ndarray, name: str) -> Known:
    """A constant of the file: the array itself, where the generated code does not have its elements."""
    return Tensor(name, array.shape, DType.of(array.dtype), array) if DType.has(array.dtype) else array


def element_type(dtype: np.dtype[Any], name: str) -> DType:
    """The element type of a tensor that is computed, or read by what is: floats of 64 bits are float32.

    Raises:
        UnsupportedError: the generated code does not have it.
    """
    if DType.has(dtype):
        return DType.of(dtype)
    if dtype == np.float64:
        return DType.FLOAT32
    told = "string" if dtype.kind in "OSU" else dtype.name
    raise UnsupportedError(
        f"tensor '{shorten(name)}' has elements of type {told}, which the generated code does not have",
        f"convert the model to use {', '.join(whole.numpy.name for whole in WHOLE)}",
    )


def _pin_option(tensor: Tensor) -> str:
    """The value of ``--pin`` for an input."""
    count = tensor.elements
    return f"{shorten(tensor.name)}=VALUE{',VALUE' * (count - 1) if count <= _MOST_SPELLED else f',... ({count} numbers)'}"
