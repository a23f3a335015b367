"""LSTM, GRU and RNN: the products of all inputs as one matrix product, then the steps.

The steps of a direction are one layer, which holds the weights of its state. One step alone is a product and a cell: its weights pass by
tile by tile. So are all steps where the weights are too many for a memory near the engine, and long sequences are cut there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deeploy.errors import UnsupportedError, shorten
from deeploy.frontend.lower.call import PLAIN
from deeploy.frontend.lower.lookup import real_constant
from deeploy.graph.nodes import INTEGER_FORM, Attributes, Node, Tensor, compute, constant
from deeploy.graph.rewriting import Match
from deeploy.graph.types import DType
from deeploy.operators.recurrent import GATES

MOST_WEIGHTS = 96 * 1024  # bytes of weights of the state that a layer holds where a memory near the engine is small
MOST_PRODUCTS = 24 * 1024  # bytes of products that a layer of several steps gets there
STATE = 5  # position of the states before the first step; an LSTM's cells follow
PEEPHOLES = 7


@dataclass(frozen=True, eq=False)
class Direction:
    """One direction of a layer, of floats or of integers.

    Attributes:
        x: its inputs [t,n,j].
        is_near: an engine works in a small memory of its own.
        weights: of the inputs [gate*unit, input].
        state_weights: of the state [gate, unit, unit].
        bias: of the inputs [gate*unit].
        attributes: of the operator that does the steps; ``reverse`` is one of them.
        tables: that it reads.
        reset: bias of the candidate's product with the state, where a GRU resets that product.
    """

    m: Match
    x: Tensor
    is_near: bool
    number: int
    weights: np.ndarray
    state_weights: np.ndarray
    bias: np.ndarray
    attributes: Attributes
    tables: tuple[np.ndarray, ...] = ()
    reset: np.ndarray | None = None
    peepholes: np.ndarray | None = None
    state_type, sum_type, prefix = DType.FLOAT32, DType.FLOAT32, ""

    @property
    def extents(self) -> tuple[int, ...]:
        """The number of gates, and of units."""
        return self.state_weights.shape[:2]

    @property
    def shape(self) -> tuple[int, int]:
        """Of a state [n,k]."""
        return self.x.shape[1], self.extents[1]

    def run(self) -> list[Tensor]:
        """The states behind all steps [t,n,k], behind the last one [n,k], and an LSTM's cells."""
        m, is_reverse, steps = self.m, self.attributes["reverse"], self.x.shape[0]
        h, *c = (self.read_state(STATE + number) for number in range(2 if m.op == "LSTM" else 1))
        sums = self._multiply(self.x.reshape([steps * self.shape[0], self.x.shape[2]]), self.weights, self.bias)
        products, size, parts = sums.reshape([*self.x.shape[:2], *self.extents]), steps if self.holds_weights else 1, list[Tensor]()
        if self.is_near and size > 1:
            size = max(1, MOST_PRODUCTS // (4 * self.x.shape[1] * len(self.bias)))
        for first in range(0, steps, size)[:: -1 if is_reverse else 1]:
            p = products.cut(0, first, min(first + size, steps))
            y, *c = self._run_steps(p, h, *c) if self.holds_weights else self._run_step(p, h, *c)
            last = 0 if is_reverse else y.shape[0] - 1
            h = y.cut(0, last, last + 1).reshape(self.shape)
            parts.insert(0 if is_reverse else len(parts), y)
        whole = parts[0] if len(parts) == 1 else compute("Concat", *parts, shape=(steps, *self.shape), axis=0)
        return [whole, h, *c]

    @property
    def holds_weights(self) -> bool:
        """Whether several steps are one operator, which holds the weights of the state."""
        is_spelled = self.m.op == "RNN" or (self.m.op == "GRU" and self.reset is None)
        return is_spelled or (self.x.shape[0] > 1 and not (self.is_near and self.state_weights.nbytes > MOST_WEIGHTS))

    def _multiply(self, x: Tensor, weights: np.ndarray, bias: np.ndarray) -> Tensor:
        """x[n,j] times weights[k,j], with a bias for each k."""
        operands = constant(weights.T, label="weights"), constant(bias, label="bias")
        return compute("MatMul", x, *operands, dtype=self.sum_type, trans_a=False, trans_b=False, **PLAIN, epilogue=("bias",))

    def read_state(self, position: int) -> Tensor:
        """A state before the first step [n,k]."""
        m, tensor = self.m, self.m.input(position)
        if tensor is None:
            return constant(np.zeros(self.shape, np.float32), label="state")
        state = tensor.cut(1 if m.attrs["layout"] else 0, self.number, self.number + 1).reshape(self.shape)
        return state if state.data is None else constant(state.data, label="state")

    def _run_steps(self, p: Tensor, *states: Tensor) -> Sequence[Tensor]:
        """Several steps: y[t,n,k], and an LSTM's cells [n,k]."""
        constants = [constant(values) for values in (*self.tables, self.reset, self.peepholes) if values is not None]
        weights = constant(self.state_weights, label="weights")
        return self._create(f"{self.prefix}{self.m.op}", (p.shape[0], *self.shape), p, weights, *states, *constants)

    def _run_step(self, p: Tensor, h: Tensor, *c: Tensor) -> Sequence[Tensor]:
        """One step, whose product with the state is made outside."""
        bias = np.zeros(self.extents, np.float32)
        if self.reset is not None:
            bias[2] = self.reset
        q = self._multiply(h, self.state_weights.reshape(bias.size, -1), bias.ravel())
        products = [product.reshape([h.shape[0], *self.extents]) for product in (p, q)]
        peepholes = [] if self.peepholes is None else [constant(self.peepholes)]
        y, *cells = self._create(f"{self.m.op}Cell", self.shape, *products, *(c or [h]), *peepholes)
        return [y.reshape([1, *y.shape]), *cells]

    def _create(self, op: str, shape: tuple[int, ...], *operands: Tensor) -> Sequence[Tensor]:
        results = Tensor("", shape, self.state_type, label="steps"), Tensor("", self.shape, self.sum_type, label="cells")
        return Node("", op, operands, results if self.m.op == "LSTM" else results[:1], self.attributes, domain=INTEGER_FORM).outputs


def read_directions(m: Match, x: Tensor, is_near: bool) -> list[Direction]:
    """The directions of a layer that reads ``x``, with weights as floats.

    Raises:
        UnsupportedError: weights that are no constants.
    """
    w, r, b, peepholes = (_real(m, position) for position in (1, 2, 3, PEEPHOLES))
    assert w is not None and r is not None
    (count, _, units), functions, directions = r.shape, m.attrs["functions"], list[Direction]()
    rows = x.transpose((1, 0, 2)) if m.attrs["layout"] else x
    for number in range(count):
        inputs, states = np.zeros((2, GATES[m.op], units), np.float32) if b is None else b[number].reshape(2, -1, units).copy()
        names, alphas, betas = zip(*functions[number * len(functions) // count :][: len(functions) // count], strict=True)
        reset = None
        if m.op == "GRU" and m.attrs["linear_before_reset"]:
            reset, states[2] = states[2].copy(), 0
        attributes: Attributes = {
            **{"functions": names, "alphas": alphas, "betas": betas, "clip": m.attrs["clip"]},
            "input_forget": bool(m.attrs["input_forget"]),
            "reverse": m.attrs["direction"] == "reverse" or number == 1,
        }
        holes = None if peepholes is None else peepholes[number].reshape(3, units)
        weights = w[number], r[number].reshape(-1, units, units), (inputs + states).ravel()
        directions.append(Direction(m, rows, is_near, number, *weights, attributes, reset=reset, peepholes=holes))
    return directions


def _real(m: Match, position: int) -> np.ndarray | None:
    """The float value of a constant input, also of a dequantised one; None where it is absent."""
    tensor = m.input(position)
    value = None if tensor is None else real_constant(tensor)
    if tensor is not None and value is None:
        what = f"{m.node} has weights {shorten(tensor.name)} that are computed"
        raise UnsupportedError(what, "Export the model with constant weights.")
    return value


def join_directions(m: Match, directions: Sequence[Direction]) -> dict[Tensor, Tensor]:
    """What stands in for the results that are read, made of those of all directions."""
    results = zip(m.node.outputs, zip(*(direction.run() for direction in directions), strict=True), strict=False)
    return {result: _join_result(m, result, parts) for result, parts in results if m.readers(result) or m.is_output(result)}


def _join_result(m: Match, result: Tensor, parts: Sequence[Tensor]) -> Tensor:
    """A result made of [t,n,k] or [n,k]: the axis of directions is before n or, of layout 1, before k."""
    axis = result.rank - 3 + m.attrs["layout"]
    shape = [1 if i == axis else n for i, n in enumerate(result.shape)]
    if m.attrs["layout"] and parts[0].rank == 3:
        parts = [part.transpose((1, 0, 2)) for part in parts]
    wide = [part.reshape(shape) for part in parts]
    return wide[0] if len(parts) == 1 else compute("Concat", *wide, shape=result.shape, axis=axis)
