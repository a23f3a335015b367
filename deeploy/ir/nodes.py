"""The value graph: tensors, and the operators that compute them; what kernel declarations are evaluated on.

Nothing in it is ever changed. What a rewrite makes (``deeploy.ir.rewriting``) has no name until it takes its place in a graph: then it
is called after what it was made for, and ``label``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from deeploy.errors import shorten
from deeploy.ir.types import DType

INTEGER_FORM = "deeploy"  # the domain of its operators (docs/integer-form.md); that of ONNX's is empty
Attributes = Mapping[str, Any]  # of an operator, by name; what each may be is its operator's declaration
Like: TypeAlias = "Tensor | np.ndarray | np.generic | Sequence[float] | float | int | bool"  # what can be an operand beside a tensor


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor as an operator sees it; it computes like an array, each operation a node of ONNX.

    ``shape`` is in elements, outermost axis first. ``data`` is the value of a constant, else None; ``narrow`` are
    types of fewer bits that have all of its elements, and that the model uses: a kernel may read it so (``Kernel.packing``).
    ``maker`` is the node that computes it, the first that it was given to as an output; None for inputs and constants.
    ``label`` says what a tensor without a name is. ``limits`` are those of its integers, where more is known of them than their type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    data: np.ndarray | None = None
    narrow: tuple[DType, ...] = ()
    maker: Node | None = field(default=None, repr=False)
    label: str = field(default="", repr=False)
    limits: tuple[int, int] | None = field(default=None, repr=False)

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
        return evaluate_result(compute(op, self, *(constant(other, self.dtype) for other in others), **attributes))

    def __add__(self, other: Like) -> Tensor:
        return self.apply("Add", other)

    def __sub__(self, other: Like) -> Tensor:
        return self.apply("Sub", other)

    def __rsub__(self, other: Like) -> Tensor:
        return constant(other, self.dtype).apply("Sub", self)

    def __mul__(self, other: Like) -> Tensor:
        return self.apply("Mul", other)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Like) -> Tensor:
        return self.apply("Div", other)

    def __matmul__(self, other: Like) -> Tensor:
        return self.apply("MatMul", other)

    def reduce(self, kind: str, *axes: int, keepdims: int = 1) -> Tensor:
        """ReduceSum, ReduceMax, ... along axes, which stay with one element each; itself where there are none."""
        return self.apply(f"Reduce{kind}", axes=[axis % self.rank for axis in axes], keepdims=keepdims) if axes else self

    def cast(self, dtype: DType) -> Tensor:
        return self if self.dtype is dtype else self.apply("Cast", dtype=dtype)

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """Under another shape, whose only -1 stands for what is left; itself where it has that already, a constant at once.

        Raises:
            ValueError: it has another number of elements.
        """
        shape = tuple(self.elements // max(1, -math.prod(shape)) if n == -1 else n for n in shape)
        if math.prod(shape) != self.elements:
            raise ValueError(f"{list(self.shape)} cannot be reshaped to {list(shape)}")
        return self if self.shape == shape else self.apply("Reshape", shape=shape)

    def transpose(self, perm: Sequence[int]) -> Tensor:
        """With its axes reordered; itself where the order is the same, a constant at once."""
        return self if list(perm) == sorted(perm) else self.apply("Transpose", perm=tuple(perm))

    def swap_last(self) -> Tensor:
        """The tensor with its last two axes exchanged."""
        return self.transpose([*range(self.rank - 2), self.rank - 1, self.rank - 2])

    def expand(self, shape: Sequence[int]) -> Tensor:
        """Repeated along axes of one element, and along new ones in front.

        Raises:
            ValueError: axes have other extents.
        """
        if np.broadcast_shapes(self.shape, tuple(shape)) != tuple(shape):
            raise ValueError(f"{list(self.shape)} cannot be repeated to {list(shape)}")
        return self.reshape(shape) if math.prod(shape) == self.elements else self.apply("Expand", shape=shape)

    def repeat(self, times: Sequence[int]) -> Tensor:
        """With every entry so often, one behind the other, along each axis; itself where that is once."""
        axes = [(n, count) for n, count in zip(self.shape, times, strict=True)]
        apart = self.reshape([m for n, count in axes for m in ((n, 1) if count > 1 else (n,))])
        whole = apart.expand([m for n, count in axes for m in ((n, count) if count > 1 else (n,))])
        return whole.reshape([n * count for n, count in axes])

    def cut(self, axis: int, begin: int, end: int, step: int = 1) -> Tensor:
        """Every ``step``-th of its elements from ``begin`` to ``end`` along an axis, as of a list; itself where these are all."""
        spans = [range(n)[begin:end:step] if i == axis % self.rank else range(n) for i, n in enumerate(self.shape)]
        starts, ends, steps = zip(*((span.start, span.stop, span.step) for span in spans), strict=True)
        is_whole = all(len(span) == n for span, n in zip(spans, self.shape, strict=True))
        return self if is_whole else self.apply("Slice", starts=starts, ends=ends, steps=steps)

    def split(self, axis: int, sizes: Sequence[int]) -> list[Tensor]:
        ends = [int(end) for end in np.cumsum(sizes)]
        return [self.cut(axis, end - size, end) for size, end in zip(sizes, ends, strict=True)]

    def pad(self, before: Sequence[int], after: Sequence[int], value: float = 0) -> Tensor:
        """The tensor with borders of ``value``, as many elements before and after each axis."""
        fill = float(value) if self.dtype.is_float else int(value)
        return self.apply("Pad", pads=[*before, *after], mode="constant", value=fill) if any((*before, *after)) else self

    def take(self, places: Tensor | npt.ArrayLike, axis: int = 0) -> Tensor:
        """Gather along an axis; itself where everything is taken in order.

        Raises:
            ValueError: a constant place is not on the axis.
        """
        if isinstance(places, Tensor) and places.data is None:
            return self.apply("Gather", places, axis=axis)
        indices, size = np.asarray(places.data if isinstance(places, Tensor) else places, np.int32), self.shape[axis]
        if indices.size and not -size <= indices.min() <= indices.max() < size:
            raise ValueError(f"takes the entries {indices.min()} to {indices.max()} of an axis that has {size}")
        return self if np.array_equal(indices, np.arange(size)) else self.apply("Gather", constant(indices), axis=axis)


@dataclass(frozen=True, eq=False)
class Node:
    """One operator: its inputs by position (None where an optional one is absent), outputs and attributes.

    ``attrs["epilogue"]`` is the tuple of epilogue stages fused behind the body (see ``deeploy.ir.kernel``); their
    operands follow the body's inputs. ``operands`` are the inputs that are there: all of them, of most operators.
    ``domain``: of the operator, empty for those of ONNX. ``words``: by which the rates of its kernel differ, besides those that follow
    from what it computes (``PostProcessing.words``).
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
        """The inputs of the node that are not constant."""
        return [tensor for tensor in self.operands if tensor.data is None]

    @property
    def epilogue(self) -> tuple[str, ...]:
        return tuple(self.attrs.get("epilogue", ()))


def set_name(made: Node | Tensor, name: str) -> None:
    """Name what has no name yet, and what nobody has seen yet."""
    object.__setattr__(made, "name", name)


def name_part(whole: str, label: str, taken: set[str]) -> str:
    """A name for a part of what ``whole`` computes, that nothing has; it is taken then."""
    number, name = 2, f"{whole} ({label})"
    while name in taken:
        number, name = number + 1, f"{whole} ({label} {number})"
    taken.add(name)
    return name


def list_makers(result: Tensor, is_new: Callable[[Node], bool]) -> list[Node]:
    """The new nodes that a tensor depends on, without looking behind others; what is read before its readers, as it is found."""
    waiting, makers = [result.maker], dict[Node, None]()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in makers and is_new(node):
            makers[node] = None
            waiting += [tensor.maker for tensor in node.operands]
    return list(makers)[::-1]


def constant(values: Like, dtype: DType | None = None, label: str = "constant") -> Tensor:
    """A constant; a tensor as it is. Floats are stored in 32 bits where no type is given."""
    if isinstance(values, Tensor):
        return values
    array = np.asarray(values, None if dtype is None else dtype.numpy)
    array = np.ascontiguousarray(array.astype(np.float32) if dtype is None and array.dtype.kind == "f" else array).reshape(array.shape)
    return Tensor("", array.shape, DType.of(array.dtype), array, label=label)


def concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors one behind the other along an axis."""
    return tensors[0].apply("Concat", *tensors[1:], axis=axis % tensors[0].rank) if len(tensors) > 1 else tensors[0]


def where(condition: Tensor, one: Like, other: Like) -> Tensor:
    """The elements of the first where a condition holds, else those of the second; numbers have the type of the other."""
    typed = next((tensor.dtype for tensor in (one, other) if isinstance(tensor, Tensor)), DType.FLOAT32)
    return condition.apply("Where", constant(one, typed), constant(other, typed))


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


def evaluate_result(result: Tensor) -> Tensor:
    """A result, or its value where it is computed of constants, and of tensors without elements, by an operator of ``_ARRAYS``."""
    node = result.maker
    if node is None or node.op not in _ARRAYS or any(tensor.elements for tensor in node.variables):
        return result
    arrays = (tensor and (np.zeros(tensor.shape, tensor.dtype.numpy) if tensor.data is None else tensor.data) for tensor in node.inputs)
    with np.errstate(all="ignore"):
        value = np.asarray(_ARRAYS[node.op](*arrays, **node.attrs))
    return constant(np.broadcast_to(value, result.shape) if node.op == "Expand" else value.reshape(result.shape), result.dtype)


# Operators whose results are true or false.
TRUTHS = frozenset(["And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Xor"])
_BROADCASTING = TRUTHS | {"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Where", "Binary", "ScaledAdd", "ScaledDiv", "RequantAdd"}


def pad(x: np.ndarray, *, pads: Sequence[int], mode: Any, value: npt.ArrayLike) -> np.ndarray:
    width: Any = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
    return np.pad(x, width, mode, **({"constant_values": value} if mode == "constant" else {}))


def _multiply_integers(a: np.ndarray, b: np.ndarray, a_zero: np.ndarray | None = None, b_zero: np.ndarray | None = None) -> np.ndarray:
    rows = 0 if a_zero is None else a_zero.astype(np.int32).reshape(-1, 1) if a_zero.ndim == 1 else a_zero.astype(np.int32)
    return (a.astype(np.int32) - rows) @ (b.astype(np.int32) - (0 if b_zero is None else b_zero.astype(np.int32)))


def _divide_values(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of whole numbers, the quotient is cut off."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    return np.asarray(a // b + ((a % b != 0) & ((a < 0) != (b < 0))))


# What operators make of constants.
_ARRAYS: Mapping[str, Callable[..., np.ndarray]] = {
    **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum},
    **{"MatMul": np.matmul, "MatMulInteger": _multiply_integers},
    **{"And": np.logical_and, "Or": np.logical_or, "Equal": np.equal, "Greater": np.greater, "Less": np.less, "Where": np.where},
    **{"GreaterOrEqual": np.greater_equal, "Abs": np.abs, "Sign": np.sign, "Ceil": np.ceil, "Floor": np.floor, "Round": np.rint},
    **{"Div": _divide_values, "Clip": lambda x, min, max: np.clip(x, min, max)},
    **{"Neg": np.negative, "Sqrt": np.sqrt, "Expand": np.asarray, "Reshape": np.asarray, "Cast": np.asarray, "Pad": pad},
    "Transpose": lambda x, perm: x.transpose(perm),
    "Gather": lambda x, places, axis: np.take(x, places, axis),
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Slice": lambda x, starts, ends, steps: x[tuple(map(slice, starts, ends, steps))],
}


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
        has_all_axes = attributes["keepdims"]
        return [1 if i in attributes["axes"] else n for i, n in enumerate(shape) if has_all_axes or i not in attributes["axes"]]
    if op == "Slice":
        return [len(range(*box)) for box in zip(attributes["starts"], attributes["ends"], attributes["steps"], strict=True)]
    if op == "Pad":
        return [n + begin + end for n, begin, end in zip(shape, attributes["pads"], attributes["pads"][len(shape) :], strict=False)]
    if op == "Concat":
        axis = attributes["axis"]
        if any(each[:axis] + each[axis + 1 :] != shape[:axis] + shape[axis + 1 :] for each in shapes):
            raise ValueError(f"parts of shapes {shapes} are no tensor along axis {axis}")
        return [sum(each[i] for each in shapes) if i == axis else n for i, n in enumerate(shape)]
    if op == "Gather":
        axis = attributes["axis"]
        return [*shape[:axis], *shapes[1], *shape[axis + 1 :]]
    if op in ("MatMul", "MatMulInteger"):
        if shape[-1] != shapes[1][-2]:
            raise ValueError(f"{list(shape)} cannot be multiplied by {list(shapes[1])}")
        return [*np.broadcast_shapes(shape[:-2], shapes[1][:-2]), shape[-2], shapes[1][-1]]
    return shape


def result_type(op: str, inputs: Sequence[Tensor | None]) -> DType:
    """The type of a node's result: that of its first input, but for comparisons, choices and what is dequantised."""
    first, *others = (tensor.dtype for tensor in inputs if tensor is not None)
    if op in TRUTHS or op == "MatMulInteger":
        return DType.BOOL if op in TRUTHS else DType.INT32
    return others[0] if op in ("Where", "DequantizeLinear", "Dequantize") else first


def inverse_order(perm: Sequence[int]) -> list[int]:
    """The order of axes that undoes ``perm``."""
    return [perm.index(axis) for axis in range(len(perm))]
