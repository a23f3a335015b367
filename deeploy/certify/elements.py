"""Numbers of the bytes of tensors: those of a view are its source's, those of what a call computes are its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.lib.stride_tricks import as_strided

from deeploy.ir.interface import Bound
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.values import Graph
from deeploy.operators.views import APPEND, KEEP, MATERIALISE, SETTLES, VIEWS, Access, View

FIRST = 4096  # number of a byte of a tensor; those below are what cores leave in scratch memory
MISSING = -(2**31)  # the number of rows that no inference has appended yet, which no byte holds


class Elements:
    """The number of the first byte of every element of every tensor, by name: others in every inference, but those of states."""

    def __init__(self, graph: Graph, calls: Iterable[Bound]) -> None:
        self.known: dict[str, np.ndarray] = {}
        self.next = FIRST
        self.past = 0
        self.assumed = range(0)  # numbers of rows that no inference appended
        self.makers: dict[str, Node] = {}
        for node in [*(call.node for call in calls), *(node for node in graph.nodes if node.op in VIEWS)]:
            self.makers |= {tensor.name: node for tensor in node.outputs}
        self.grown = [node for node in graph.nodes if node.op == APPEND]
        self.periods = graph.periods
        self.settled = max((node.attrs.get(SETTLES, 0) for node in self.makers.values()), default=0)  # inferences until all nodes have
        self.begins = any(node.attrs.get("begins") for node in self.grown)  # whether there are no inferences behind others
        self.writes = [node for node in graph.nodes if node.op == KEEP]
        self.states: dict[str, np.ndarray] = {}  # what outlives an inference
        for node in self.grown:
            self.states[node.outputs[0].name] = np.full(node.outputs[0].shape, MISSING, np.int32)
        for node in self.writes:
            self.states[_state_of(node).name] = np.zeros(_state_of(node).shape, np.int32)

    # ---- inferences

    def begin(self, past: int, rows: int) -> None:
        """An inference behind ``past`` rows begins, which appends ``rows``."""
        for node in self.writes if self.known else ():
            if past % self.periods.get(node.outputs[0].name, 1) == 0:
                self.states[_state_of(node).name] = self.of(node.operands[0])
        self.known, self.past = dict(self.states), past
        for node in self.grown:
            _state_rows(self.states[node.outputs[0].name], int(node.attrs["axis"]), past, rows)[...] = self.of(node.operands[0])

    def skip(self, begin: int, end: int) -> None:
        """Let states have rows that no inference appends: they are assumed to lie where they are looked for and nothing was ever put."""
        first = self.next
        for node in self.grown:
            rows = _state_rows(self.states[node.outputs[0].name], int(node.attrs["axis"]), begin, end - begin)
            rows[...] = self.fresh(rows.shape, node.outputs[0].dtype.bytes)
        self.assumed = range(first, self.next)

    # ---- numbers

    def reserve(self, count: int) -> int:
        """The first of so many numbers that nothing has yet."""
        self.next += count
        return self.next - count

    def fresh(self, shape: tuple[int, ...], size: int) -> np.ndarray:
        """Numbers that nothing has yet, for elements of ``size`` bytes."""
        begin = self.reserve(math.prod(shape) * size)
        return np.arange(begin, self.next, size, dtype=np.int32).reshape(shape)

    def named(self, name: str, shape: tuple[int, ...], size: int) -> np.ndarray:
        """The numbers of what has a name and is made by nothing."""
        if name not in self.known:
            self.known[name] = self.fresh(shape, size)
        return self.known[name]

    def describe(self, number: int) -> str:
        """What a byte with this number is a part of."""
        if number < FIRST:
            return "nothing" if not number else "part of a constant" if number < 0 else "scratch"
        for name, numbers in self.known.items():
            at = np.nonzero((numbers <= number) & (number < numbers + 8))
            if at[0].size:
                return f"element {[int(index[-1]) for index in at]} of {name}"
        return "sums, or what an earlier inference left"

    def of(self, tensor: Tensor, same: Tensor | None = None) -> np.ndarray:
        """The numbers of a tensor's elements; those of ``same`` where nothing is known of it."""
        if tensor.name not in self.known:
            node = self.makers.get(tensor.name)
            if node is None and same is not None and tensor.data is None:
                return self.of(same)
            self.known[tensor.name] = self._made(tensor, node)
        return self.known[tensor.name]

    def value(self, tensor: Tensor, same: Tensor | None = None) -> np.ndarray | None:
        """The values of a tensor that is constant, or a view of a constant; those of ``same`` where nothing is known of it."""
        node = self.makers.get(tensor.name)
        if node is None and same is not None and tensor.data is None:
            return self.value(same)
        if tensor.data is not None or node is None or node.op not in VIEWS:
            return tensor.data
        view = VIEWS[node.op](node)
        container = _side_operand(node, view.container)
        value = self.value(container) if view.container[0] == "in" else None
        return None if value is None else self._viewed(value, tensor, node, view)

    def _made(self, tensor: Tensor, node: Node | None) -> np.ndarray:
        if node is not None and node.op == MATERIALISE:
            return self.of(node.operands[0]).reshape(tensor.shape)
        if node is not None and self.past >= node.attrs.get(SETTLES, np.inf):
            return self.of(node.operands[1])
        if node is None or node.op not in VIEWS:
            return self.fresh(tensor.shape, tensor.dtype.bytes)
        view = VIEWS[node.op](node)
        container = _side_operand(node, view.container)
        if view.container[0] == "in":
            return self._viewed(self.of(container), tensor, node, view)
        result = np.zeros(container.shape, np.int32)
        for side, place in view.parts:
            access = place(Access.dense(container.shape))
            assert access is not None
            _box_elements(result, access, 0)[...] = self.of(_side_operand(node, side))
        return result

    def _viewed(self, values: np.ndarray, tensor: Tensor, node: Node, view: View) -> np.ndarray:
        """What a view shows of a container with these values."""
        dense = Access.dense(values.shape)
        access = next(place for side, place in view.parts if _side_operand(node, side).name == tensor.name)(dense)
        assert access is not None
        back = 0 if view.slides is None else self.past * dense.strides[view.slides]
        return _box_elements(np.ascontiguousarray(values), access, back).copy()


def _state_of(node: Node) -> Tensor:
    """The memory that a Keep writes."""
    return node.operands[1]


def _side_operand(node: Node, place: tuple[str, int]) -> Tensor:
    sides: Mapping[str, tuple[Tensor | None, ...]] = {"in": node.inputs, "out": node.outputs}
    tensor = sides[place[0]][place[1]]
    assert tensor is not None
    return tensor


def _state_rows(state: np.ndarray, axis: int, begin: int, count: int) -> np.ndarray:
    """Rows of a state."""
    return state[(*(slice(None),) * axis, slice(begin, begin + count))]


def bytes_of(numbers: np.ndarray, size: int) -> np.ndarray:
    """The numbers of all bytes of elements of a size, along a further axis; nothing has none."""
    return np.where(numbers[..., None] == 0, 0, numbers[..., None] + np.arange(size, dtype=np.int32))


def _box_elements(values: np.ndarray, access: Access, back: int) -> np.ndarray:
    """The elements of dense values at an access, which begins ``back`` elements before its place."""
    if 0 in access.shape:
        return np.zeros(access.shape, values.dtype)
    steps = tuple(stride * values.itemsize for stride in access.strides)
    return as_strided(values.reshape(-1)[access.offset - back :], access.shape, steps)
