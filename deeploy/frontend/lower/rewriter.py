"""What lowering rules are written with: the node that matched, and the nodes that take its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.schemas import Attributes
from deeploy.graph.rewrite import Rule, constant, only_consumer, producer, redirect

_BROADCASTING = frozenset(
    [
        *("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Where", "Binary", "ScaledAdd", "ScaledDiv", "RequantAdd"),
        "Equal",
    ]
)
_FOLLOWING = ("Reshape", "Transpose", "QuantizeLinear")


class Rewriter:
    """One node that a rule matched.

    Attributes:
        graph: the graph of the node.
        node: the node.
        x: its first input.
        y: the first result of ``last``, which keeps its name and its readers.
        last: what computes the result: the node, or one behind it that is replaced with it.
        domain: of the nodes that are created: "" for ONNX's operators, ``deeploy`` for those of the integer form.
    """

    def __init__(self, graph: gs.Graph, node: gs.Node, domain: str = "", last: gs.Node | None = None) -> None:
        self.graph, self.node, self.domain, self.last = graph, node, domain, last or node
        self.x, self.y = (node.inputs[0] if node.inputs else gs.Variable.empty()), self.last.outputs[0]
        self._names: set[str] = set()
        self._made: list[gs.Tensor] = []

    @property
    def op(self) -> str:
        return str(self.node.op)

    @property
    def attrs(self) -> Attributes:
        attributes: Attributes = self.node.attrs
        return attributes

    @property
    def is_float(self) -> bool:
        """Whether the first input holds floats."""
        return is_float(self.x)

    def input(self, position: int) -> gs.Tensor | None:
        """An input; None where it is absent."""
        inputs = self.node.inputs
        return inputs[position] if position < len(inputs) and not inputs[position].is_empty() else None

    def value(self, position: int) -> np.ndarray | None:
        """The value of an input; None where it is absent or not constant."""
        tensor = self.input(position)
        return None if tensor is None else constant(tensor)

    def source(self, tensor: gs.Tensor, *ops: str) -> gs.Node | None:
        """The node, lowered as the matched one is or not, that computes a tensor; None where it has none of ``ops``, if any are given."""
        node = producer(tensor)
        fits = node is not None and build.lowered(node) == build.lowered(self.node) and (not ops or node.op in ops)
        return node if fits else None

    def only_source(self, tensor: gs.Tensor, *ops: str) -> gs.Node | None:
        """As ``source``, of a tensor that has one reader and is no output of the network."""
        return self.source(tensor, *ops) if only_consumer(self.graph, tensor) is not None else None

    def is_output(self, tensor: gs.Tensor) -> bool:
        """Whether a tensor is an output of the network."""
        return any(tensor is out for out in self.graph.outputs)

    def forward(self, x: gs.Tensor) -> bool:
        """Let all that read the result read ``x`` instead; an output of the network is a Reshape of it. Always True."""
        if self.is_output(self.y):
            return self.finish(x)
        redirect(self.graph, self.y, x)
        self.node.outputs.clear()
        return True

    def let_read(self, readers: Iterable[gs.Node], old: gs.Tensor, new: gs.Tensor) -> None:
        """Let some nodes read another tensor."""
        for reader in readers:
            reader.inputs = [new if t is old else t for t in reader.inputs]

    def give(self, front: gs.Node) -> bool:
        """Let a node in front compute the result, without the matched one; always True."""
        self.node.outputs.clear()
        self.node.inputs.clear()
        front.outputs = [self.y]
        return True

    def name(self, label: str) -> str:
        """A name for a tensor or node that is made here."""
        number = 2
        name = base = f"{self.y.name} ({label})"
        while name in self._names:
            name, number = f"{base[:-1]} {number})", number + 1
        self._names.add(name)
        return name

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None, label: str = "constant") -> gs.Constant:
        """A constant tensor, called after the result and ``label``; floats are stored in 32 bits where no type is given."""
        array = np.asarray(values, dtype)
        return build.const(self.name(label), array.astype(np.float32) if dtype is None and array.dtype.kind == "f" else array)

    def variable(self, shape: Sequence[int], dtype: npt.DTypeLike, label: str) -> gs.Variable:
        """A further result of a new node."""
        return build.variable(self.name(label), dtype, shape)

    def create(
        self,
        op: str,
        *inputs: gs.Tensor,
        shape: Sequence[int] | None = None,
        dtype: npt.DTypeLike | None = None,
        label: str = "",
        **attributes: object,
    ) -> gs.Tensor:
        """The result of a new node, called after the result of the matched one and ``label`` or the operator.

        Without ``shape`` it has that of the operator, without ``dtype`` the type of the first input.
        """
        extents = result_shape(op, inputs, attributes) if shape is None else shape
        result = build.variable(self.name(label or op.lower()), inputs[0].dtype if dtype is None else dtype, extents)
        self._made.append(result)
        return self.into(result, op, *inputs, **attributes)

    def into(self, result: gs.Tensor, op: str, *inputs: gs.Tensor, **attributes: object) -> gs.Tensor:
        """``result``, computed by a new node."""
        self.graph.nodes.append(gs.Node(op, result.name, attributes, list(inputs), [result], domain=self.domain))
        return result

    def replace(self, op: str, *inputs: gs.Tensor, **attributes: object) -> bool:
        """Put a node in the place of the matched one; always True, which is what a rule returns that changed the graph.

        It gets the name of the matched one; where it only reorders or quantises what another new node computes, that one gets it.
        """
        self._detach()
        self.into(self.y, op, *inputs, **attributes)
        return self._named(self.graph.nodes[-1])

    def finish(self, result: gs.Tensor) -> bool:
        """Put what a new node computes in the place of the result, reshaped where it has another shape; always True."""
        if not any(result is tensor for tensor in self._made) or list(result.shape) != list(self.y.shape):
            return self.replace("Reshape", result)
        self._detach()
        last = result.inputs[0]
        last.outputs = [self.y]
        return self._named(last)

    def _detach(self) -> None:
        self.last.outputs = [tensor for tensor in self.last.outputs if tensor is not self.y]

    def _named(self, last: gs.Node) -> bool:
        named = last
        while last.op in _FOLLOWING and any(last.inputs[0] is tensor for tensor in self._made):
            last = last.inputs[0].inputs[0]
            named = named if last.op in _FOLLOWING else last
        named.name = self.node.name
        return True

    def reshape(self, x: gs.Tensor, shape: Sequence[int]) -> gs.Tensor:
        """``x`` under another shape; itself where it has that already."""
        if list(x.shape) == list(shape):
            return x
        values = constant(x)
        return self.create("Reshape", x, shape=shape) if values is None else self.constant(values.reshape(shape), values.dtype)

    def transpose(self, x: gs.Tensor, perm: Sequence[int]) -> gs.Tensor:
        """``x`` with its axes reordered; itself where the order is the same."""
        values = constant(x)
        if list(perm) == sorted(perm):
            return x
        return self.create("Transpose", x, perm=tuple(perm)) if values is None else self.constant(values.transpose(perm), values.dtype)


def is_float(tensor: gs.Tensor) -> bool:
    """Whether a tensor holds floats."""
    return bool(np.dtype(tensor.dtype).kind == "f")


def result_shape(op: str, inputs: Sequence[gs.Tensor], attributes: Attributes) -> list[int]:
    """The shape of a node's result, of operators that state it by their inputs and attributes.

    Broadcasting, products, reductions, transposes, slices; all others have results like their first input.
    """
    shape = [int(n) for n in inputs[0].shape]
    if op in _BROADCASTING:
        return list(np.broadcast_shapes(*(tuple(tensor.shape) for tensor in inputs)))
    if op == "Transpose":
        return [shape[axis] for axis in attributes["perm"]]
    if op.startswith("Reduce"):
        kept = attributes["keepdims"]
        return [1 if i in attributes["axes"] else n for i, n in enumerate(shape) if kept or i not in attributes["axes"]]
    if op == "Slice":
        return [len(range(*box)) for box in zip(attributes["starts"], attributes["ends"], attributes["steps"], strict=True)]
    if op == "Gather":
        axis = attributes["axis"]
        return [*shape[:axis], *inputs[1].shape, *shape[axis + 1 :]]
    if op == "MatMul":
        return [*np.broadcast_shapes(tuple(shape[:-2]), tuple(inputs[1].shape[:-2])), shape[-2], inputs[1].shape[-1]]
    return shape


def inverse(perm: Sequence[int]) -> list[int]:
    """The order of axes that undoes ``perm``."""
    return [perm.index(axis) for axis in range(len(perm))]


Rewrite = Callable[[Rewriter], bool]


def _rule(ops: Sequence[str], kind: str, domain: str, into: str) -> Callable[[Rewrite], Rule]:
    def made(function: Rewrite) -> Rule:
        def rewrite(graph: gs.Graph, node: gs.Node) -> bool:
            fits = (node.domain == build.DOMAIN) == (domain == build.DOMAIN)
            if not fits or (kind and any(np.dtype(tensor.dtype).kind not in kind for tensor in node.inputs if not tensor.is_empty())):
                return False
            return function(Rewriter(graph, node, into))

        return Rule(function.__name__, frozenset(ops), rewrite)

    return made


def standard(*ops: str, kind: str = "", lowers: bool = False) -> Callable[[Rewrite], Rule]:
    """Decorator: a rule for operators that are not lowered yet.

    Args:
        kind: of the elements of all inputs, as NumPy calls it ("f", "iu"); any where it is empty.
        lowers: the rule makes operators of the integer form, else ONNX's.
    """
    return _rule(ops, kind, "", build.DOMAIN if lowers else "")


def lowered(*ops: str, kind: str = "") -> Callable[[Rewrite], Rule]:
    """Decorator: a rule for operators of the integer form."""
    return _rule(ops, kind, build.DOMAIN, build.DOMAIN)
