"""What expansions are written with: operands that compute like arrays, each operation a node of ONNX that the walk takes at once.

Shapes, element types and constant values are therefore known while an expansion is built, and what is constant is folded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
import onnx_graphsurgeon as gs
from onnx import helper, numpy_helper

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.schemas import RESERVED, Attributes
from deeploy.frontend.structure import describe
from deeploy.frontend.walk import Walk

Like: TypeAlias = "Operand | np.ndarray | np.generic | float | int | bool"


def _is_fixed(tensor: gs.Tensor) -> bool:
    operands = [each for maker in tensor.inputs for each in maker.inputs if not each.is_empty()]
    return isinstance(tensor, gs.Constant) or (bool(operands) and all(map(_is_fixed, operands)))


@dataclass(frozen=True, eq=False)
class Operand:
    """A tensor of the walk, under a name that nodes can read it by."""

    builder: Builder
    name: str

    @property
    def tensor(self) -> gs.Tensor:
        return self.builder.walk.tensors[self.name]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.tensor.shape)

    @property
    def rank(self) -> int:
        return len(self.tensor.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.tensor.dtype)
        return dtype

    @property
    def value(self) -> np.ndarray | None:
        """What it holds where that is constant."""
        return np.asarray(self.tensor.values) if isinstance(self.tensor, gs.Constant) else None

    @property
    def is_fixed(self) -> bool:
        """Whether it is a constant, or made of nothing else, as dequantised weights are."""
        return _is_fixed(self.tensor)

    def _with(self, op: str, other: Like, swapped: bool = False) -> Operand:
        second = self.builder.operand(other, self.dtype)
        return self.builder.op(op, second, self) if swapped else self.builder.op(op, self, second)

    def __add__(self, other: Like) -> Operand:
        return self._with("Add", other)

    def __radd__(self, other: Like) -> Operand:
        return self._with("Add", other, swapped=True)

    def __sub__(self, other: Like) -> Operand:
        return self._with("Sub", other)

    def __rsub__(self, other: Like) -> Operand:
        return self._with("Sub", other, swapped=True)

    def __mul__(self, other: Like) -> Operand:
        return self._with("Mul", other)

    def __rmul__(self, other: Like) -> Operand:
        return self._with("Mul", other, swapped=True)

    def __truediv__(self, other: Like) -> Operand:
        return self._with("Div", other)

    def __matmul__(self, other: Like) -> Operand:
        return self._with("MatMul", other)

    def equal(self, other: Like) -> Operand:
        return self._with("Equal", other)

    def less(self, other: Like) -> Operand:
        return self._with("Less", other)

    def greater(self, other: Like) -> Operand:
        return self._with("Greater", other)

    def both(self, other: Operand) -> Operand:
        return self._with("And", other)

    def larger(self, other: Like) -> Operand:
        """The larger of two, elementwise."""
        return self._with("Max", other)

    def smaller(self, other: Like) -> Operand:
        return self._with("Min", other)

    def power(self, exponent: float) -> Operand:
        return self._with("Pow", exponent)

    def apply(self, op: str, **attributes: Any) -> Operand:
        """The result of an operator of one input."""
        return self.builder.op(op, self, **attributes)

    def cast(self, dtype: npt.DTypeLike) -> Operand:
        return self.apply("Cast", to=int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))

    def reshape(self, *shape: int) -> Operand:
        """Under another shape, of which one extent may be -1."""
        if -1 in shape:
            rest = math.prod(n for n in shape if n != -1)
            shape = tuple(self.size // rest if n == -1 else n for n in shape)
        if shape == self.shape:
            return self
        return self.builder.op("Reshape", self, self.builder.operand(np.array(shape, np.int64)))

    def transpose(self, *perm: int) -> Operand:
        return self if list(perm) == sorted(perm) else self.apply("Transpose", perm=list(perm))

    def swap_last(self) -> Operand:
        """With the last two axes exchanged."""
        return self.transpose(*range(self.rank - 2), self.rank - 1, self.rank - 2)

    def expand(self, *shape: int) -> Operand:
        return self if shape == self.shape else self.builder.op("Expand", self, self.builder.operand(np.array(shape, np.int64)))

    def slice(self, axis: int, start: int, stop: int, step: int = 1) -> Operand:
        values = [self.builder.operand(np.array([n], np.int64)) for n in (start, stop, axis, step)]
        return self.builder.op("Slice", self, *values)

    def take(self, indices: Like, axis: int = 0) -> Operand:
        """Gather along an axis."""
        return self.builder.op("Gather", self, self.builder.operand(indices, np.dtype(np.int64)), axis=axis)

    def pad(self, before: Sequence[int], after: Sequence[int], value: float = 0) -> Operand:
        if not any((*before, *after)):
            return self
        pads = self.builder.operand(np.array([*before, *after], np.int64))
        return self.builder.op("Pad", self, pads, self.builder.operand(np.array(value, self.dtype)))

    def reduce(self, kind: str, axes: Sequence[int], keep: bool = True) -> Operand:
        """ReduceSum, ReduceMean, ... of some axes."""
        return self.apply(f"Reduce{kind}", axes=[int(axis) for axis in axes], keepdims=int(keep))

    def split(self, axis: int, sizes: Sequence[int]) -> list[Operand]:
        ends = np.cumsum(sizes)
        return [self.slice(axis, int(end - size), int(end)) for size, end in zip(sizes, ends, strict=True)]


class Builder:
    """A node that is expanded.

    Attributes:
        walk: the walk that came to it.
        node: the node.
        attributes: of the node.
    """

    def __init__(self, walk: Walk, node: onnx.NodeProto, attributes: Attributes, results: Sequence[tuple[int, ...] | None]) -> None:
        self.walk, self.node, self.attributes, self.results = walk, node, attributes, results
        self._label = node.name or next(name for name in node.output if name)

    def input(self, position: int) -> Operand | None:
        """An input; None where it is absent."""
        names = self.node.input
        return Operand(self, names[position]) if position < len(names) and names[position] else None

    def needed(self, position: int) -> Operand:
        """An input that has to be there.

        Raises:
            ModelError: it is absent.
        """
        found = self.input(position)
        if found is None:
            raise ModelError(f"{describe(self.node)} lacks its input {position}", "correct the model, or export it again")
        return found

    def constant_input(self, position: int) -> np.ndarray | None:
        """The value of an input that has to be constant; None where it is absent.

        Raises:
            UnsupportedError: it is computed at run time.
        """
        found = self.input(position)
        if found is not None and found.value is None:
            told = f"takes its input {position} ('{shorten(found.name)}') from run-time values"
            raise self.refused(
                told, f"only constants are supported there; {self.walk.pinning([found.tensor]) or 'export the model with fixed ones'}"
            )
        return None if found is None else found.value

    def wants(self, position: int) -> bool:
        """Whether an output is there."""
        return position < len(self.node.output) and bool(self.node.output[position])

    def number(self, name: str, default: float) -> float:
        """An attribute that is one number."""
        return float(self.attributes.get(name, default))

    def integer(self, name: str, default: int) -> int:
        return int(self.attributes.get(name, default))

    def text(self, name: str, default: str) -> str:
        return str(self.attributes.get(name, default))

    def refused(self, what: str, remedy: str = "export the model without it") -> UnsupportedError:
        """The error for a node that cannot be expanded."""
        return UnsupportedError(f"{describe(self.node)} {what}", remedy)

    def operand(self, value: Like, dtype: np.dtype[Any] | None = None) -> Operand:
        """A constant; an operand as it is."""
        if isinstance(value, Operand):
            return value
        array = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else np.asarray(value, dtype)
        name = self.walk.known.fresh(f"{self.node.output[0] or self._label}_constant")
        self.walk.over([helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.ascontiguousarray(array), name))])
        return Operand(self, name)

    def op(self, op: str, *operands: Operand | None, **attributes: Any) -> Operand:
        """The first result of a new node."""
        return self.several(op, 1, *operands, **attributes)[0]

    def several(self, op: str, count: int, *operands: Operand | None, **attributes: Any) -> list[Operand]:
        """The first results of a new node."""
        names = [self.walk.known.fresh(f"{self._label}_{op.lower()}") for _ in range(count)]
        inputs = ["" if operand is None else operand.name for operand in operands]
        self.walk.read.update(names)
        self.walk.over([helper.make_node(op, inputs, names, f"{self._label}_{op}", **attributes)])
        return [Operand(self, name) for name in names]

    def lowered(self, op: str, operands: Sequence[Operand], shape: tuple[int, ...], dtype: npt.DTypeLike, **attributes: Any) -> Operand:
        """The result of a new node of the integer form."""
        name = self.walk.known.fresh(f"{self._label}_{op.lower()}")
        result = self.walk.tensors[name] = gs.Variable(name, np.dtype(dtype), list(shape))
        label = self.walk.known.fresh(self._label)
        self.walk.names.add(label)
        self.walk.nodes.append(gs.Node(op, label, attributes, [operand.tensor for operand in operands], [result], domain=RESERVED))
        return Operand(self, name)

    def zeros(self, *shape: int) -> Operand:
        """A constant of floats."""
        return self.operand(np.zeros(shape, np.float32))

    def spend(self, nodes: int) -> None:
        """Count nodes that a loop becomes.

        Raises:
            UnsupportedError: they are more than ``--unroll`` allows.
        """
        self.walk.spend(self.node, nodes)

    def where(self, condition: Operand, one: Like, other: Like) -> Operand:
        typed = next((each for each in (one, other) if isinstance(each, Operand)), None)
        dtype = np.dtype(np.float32) if typed is None else typed.dtype
        return self.op("Where", condition, self.operand(one, dtype), self.operand(other, dtype))

    def concat(self, operands: Sequence[Operand], axis: int) -> Operand:
        return self.op("Concat", *operands, axis=axis)

    def finish(self, results: Sequence[Operand | None]) -> None:
        """Give the node's outputs what was built."""
        pairs = [(result, name) for result, name in zip(results, self.node.output, strict=False) if name]
        if any(result is None for result, _ in pairs) or any(self.node.output[len(results) :]):
            missing = next((i for i, name in enumerate(self.node.output) if name and (i >= len(results) or results[i] is None)), 0)
            raise self.refused(f"has its output {missing}, which is not supported")
        self.walk.over(helper.make_node("Identity", [result.name], [name]) for result, name in pairs if result is not None)
