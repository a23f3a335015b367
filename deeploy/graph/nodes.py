"""The value graph: tensors, and the operators that compute them; what kernel declarations are evaluated on.

Nothing in it is ever changed. What a rewrite makes (``deeploy.graph.rewriting``) has no name until it takes its place in a graph: then it
is called after what it was made for, and ``label``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from deeploy.errors import shorten
from deeploy.graph.types import DType

INTEGER_FORM = "deeploy"  # the domain of its operators (docs/integer-form.md); that of ONNX's is empty
NARROW = "narrow"  # the attribute that names the narrow types in which a node's constants may be stored that are no larger
Attributes = Mapping[str, Any]  # of an operator, by name; what each may be is its operator's declaration
Like: TypeAlias = "Tensor | np.ndarray | np.generic | Sequence[float] | float | int | bool"  # what can be an operand beside a tensor


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor as an operator sees it; it computes like an array, each operation a node of ONNX.

    ``shape`` is in elements, outermost axis first. ``data`` is the value of a constant, else None; ``narrow`` are
    types of fewer bits that have all of its elements, and that the model uses: a kernel may read it so (``Kernel.packing``).
    ``maker`` is the node that computes it, the first that it was given to as an output; None for inputs and constants.
    ``label`` says what a tensor without a name is.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    data: np.ndarray | None = None
    narrow: tuple[DType, ...] = ()
    maker: Node | None = field(default=None, repr=False)
    label: str = field(default="", repr=False)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def number(self) -> float | None:
        """The only element of a constant; None where it has several, or is computed."""
        return self.data.item() if self.data is not None and self.data.size == 1 else None

    def made_by(self, *ops: str) -> Node | None:
        """The node that computes it, if it has one of the operators."""
        return self.maker if self.maker is not None and self.maker.op in ops else None

    def __str__(self) -> str:
        return f"{self.dtype.value}[{','.join(map(str, self.shape))}]"

    def apply(self, op: str, *others: Like, **attributes: Any) -> Tensor:
        """The result of an operator of ONNX; numbers and arrays beside it get its type."""
        return compute(op, self, *(constant(other, self.dtype) for other in others), **attributes)

    def __add__(self, other: Like) -> Tensor:
        return self.apply("Add", other)

    def __sub__(self, other: Like) -> Tensor:
        return self.apply("Sub", other)

    def __mul__(self, other: Like) -> Tensor:
        return self.apply("Mul", other)

    def __truediv__(self, other: Like) -> Tensor:
        return self.apply("Div", other)

    def __matmul__(self, other: Like) -> Tensor:
        return self.apply("MatMul", other)

    def reduce(self, kind: str, *axes: int, keepdims: int = 1) -> Tensor:
        """ReduceSum, ReduceMax, ... along axes, which stay with one element each; itself where there are none."""
        return self.apply(f"Reduce{kind}", axes=[axis % self.rank for axis in axes], keepdims=keepdims) if axes else self

    def cast(self, dtype: DType) -> Tensor:
        return compute("Cast", self, dtype=dtype)

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """Under another shape, whose only -1 stands for what is left; itself where it has that already, a constant at once."""
        shape = tuple(self.elements // max(1, -math.prod(shape)) if n == -1 else n for n in shape)
        if self.shape == shape:
            return self
        return compute("Reshape", self, shape=shape) if self.data is None else constant(self.data.reshape(shape))

    def transpose(self, perm: Sequence[int]) -> Tensor:
        """With its axes reordered; itself where the order is the same, a constant at once."""
        if list(perm) == sorted(perm):
            return self
        return compute("Transpose", self, perm=tuple(perm)) if self.data is None else constant(self.data.transpose(perm))

    def cut(self, axis: int, begin: int, end: int) -> Tensor:
        """Its elements from ``begin`` to ``end`` along an axis; itself where that is all, a constant at once."""
        box = [(begin, end) if i == axis % self.rank else (0, n) for i, n in enumerate(self.shape)]
        if self.data is not None:
            return constant(self.data[tuple(slice(*ends) for ends in box)])
        starts, ends = zip(*box, strict=True)
        return self if ends == self.shape and not any(starts) else compute("Slice", self, starts=starts, ends=ends, steps=(1,) * self.rank)

    def take(self, places: npt.ArrayLike, axis: int) -> Tensor:
        """Gather along an axis; itself where everything is taken in order."""
        indices = np.asarray(places, np.int32)
        is_whole = np.array_equal(indices, np.arange(self.shape[axis]))
        return self if is_whole else compute("Gather", self, constant(indices), axis=axis)


@dataclass(frozen=True, eq=False)
class Node:
    """One operator: its inputs by position (None where an optional one is absent), outputs and attributes.

    ``attrs["epilogue"]`` is the tuple of epilogue stages fused behind the body (see ``deeploy.graph.kernel``); their
    operands follow the body's inputs. ``operands`` are the inputs that are there: all of them, of most operators.
    ``domain``: of the operator, empty for those of ONNX. ``words``: by which the rates of its kernel differ, besides those that follow
    from what it computes (``Second.words``).
    """

    name: str
    op: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    attrs: Attributes = field(default_factory=dict)
    words: tuple[str, ...] = ()
    domain: str = INTEGER_FORM
    operands: tuple[Tensor, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", tuple([tensor for tensor in self.inputs if tensor is not None]))
        for tensor in self.outputs:
            if tensor.maker is None and tensor.data is None:
                object.__setattr__(tensor, "maker", self)

    def __str__(self) -> str:
        return f"node {shorten(self.name)} ({shorten(self.op)})"

    def another(self, **changes: Any) -> Node:
        """A node like this one with other fields, and results of its own; without ``outputs``, they are like the present ones."""
        results = changes.pop("outputs", self.outputs)
        unmade = (Tensor(each.name, each.shape, each.dtype, each.data, each.narrow, label=each.label) for each in results)
        return replace(self, outputs=tuple(unmade), **changes)

    @property
    def is_lowered(self) -> bool:
        """Whether the operator is one of the integer form."""
        return self.domain == INTEGER_FORM

    @property
    def variables(self) -> list[Tensor]:
        """The inputs that are not constant."""
        return [tensor for tensor in self.operands if tensor.data is None]

    @property
    def epilogue(self) -> tuple[str, ...]:
        return tuple(self.attrs.get("epilogue", ()))


def constant(values: Like, dtype: DType | None = None, label: str = "constant") -> Tensor:
    """A constant; a tensor as it is. Floats are stored in 32 bits where no type is given."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values, None if dtype is None else dtype.numpy)
    array = np.ascontiguousarray(array.astype(np.float32) if dtype is None and array.dtype.kind == "f" else array).reshape(array.shape)
    return Tensor("", array.shape, DType.of(array.dtype), array, label=label)


def compute(
    op: str,
    *inputs: Tensor | None,
    shape: Sequence[int] | None = None,
    dtype: DType | None = None,
    name: str = "",
    label: str = "",
    called: str = "",
    domain: str = "",
    **attributes: Any,
) -> Tensor:
    """The result of a new node.

    Args:
        shape: that of the operator where it is not given.
        dtype: that of the operator where it is not given.
        name: of the result, which a rewrite gives it where it is not given; ``label`` says what the result is, as the operator does.
        called: the name of the node, where that is not the name of the result.
    """
    extents = result_shape(op, inputs, attributes) if shape is None else shape
    result = Tensor(name, tuple(int(n) for n in extents), dtype or result_type(op, inputs), label=label or op.lower())
    return Node(called or name, op, inputs, (result,), attributes, domain=domain).outputs[0]


_BROADCASTING = frozenset(
    [*("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Where", "Binary", "ScaledAdd", "ScaledDiv", "RequantAdd"), "Equal"]
)


def result_shape(op: str, inputs: Sequence[Tensor | None], attributes: Attributes) -> Sequence[int]:
    """The shape of a node's result, of operators that state it by their inputs and attributes.

    Broadcasting, products, reductions, transposes, slices; all others have results like their first input.
    """
    shapes = [tensor.shape for tensor in inputs if tensor is not None]
    shape = shapes[0]
    if op in _BROADCASTING:
        return np.broadcast_shapes(*shapes)
    if op == "Transpose":
        return [shape[axis] for axis in attributes["perm"]]
    if op.startswith("Reduce"):
        kept = attributes["keepdims"]
        return [1 if i in attributes["axes"] else n for i, n in enumerate(shape) if kept or i not in attributes["axes"]]
    if op == "Slice":
        return [len(range(*box)) for box in zip(attributes["starts"], attributes["ends"], attributes["steps"], strict=True)]
    if op == "Pad":
        return [n + begin + end for n, begin, end in zip(shape, attributes["pads"], attributes["pads"][len(shape) :], strict=False)]
    if op == "Gather":
        axis = attributes["axis"]
        return [*shape[:axis], *shapes[1], *shape[axis + 1 :]]
    if op in ("MatMul", "MatMulInteger"):
        return [*np.broadcast_shapes(shape[:-2], shapes[1][:-2]), shape[-2], shapes[1][-1]]
    return shape


def result_type(op: str, inputs: Sequence[Tensor | None]) -> DType:
    """The type of a node's result: that of its first input, but for comparisons, choices and what is dequantised."""
    first, *others = (tensor.dtype for tensor in inputs if tensor is not None)
    return DType.BOOL if op in ("Equal", "Less") else others[0] if op in ("Where", "DequantizeLinear", "Dequantize") else first


def inverse(perm: Sequence[int]) -> list[int]:
    """The order of axes that undoes ``perm``."""
    return [perm.index(axis) for axis in range(len(perm))]
