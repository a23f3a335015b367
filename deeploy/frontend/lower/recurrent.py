"""LSTM, GRU and RNN: the products of all inputs as one matrix product, then the steps.

The steps of a direction are one layer, which holds the weights of its state. One step alone is a product and a cell: its weights pass by
tile by tile. So are all steps where the weights are too many for a memory near the engine, and long sequences are cut there.
Between DequantizeLinear and QuantizeLinear, products are those of bytes, and steps have 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeploy.errors import UnsupportedError, shorten
from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.quant import (
    Quantised,
    behind_dequantisation,
    byte_tensor,
    centre_weights,
    quantised_result,
    requant_constants,
    requantisation_operands,
)
from deeploy.frontend.lower.rule_call import PLAIN
from deeploy.ir.nodes import Attributes, Node, Tensor, compute, constant
from deeploy.ir.rewriting import Match, Pass, Result, attempt, need, require, standard
from deeploy.ir.types import DType
from deeploy.operators.elementwise import FUNCTIONS
from deeploy.operators.integer_recurrent import FRACTION, MOST_CELL, MOST_UNITS, REACH, STEPS, UNIT
from deeploy.operators.recurrent import GATES

_MOST_WEIGHTS = 96 * 1024  # bytes of weights of the state that a layer holds where a memory near the engine is small
_MOST_PRODUCTS = 24 * 1024  # bytes of products that a layer of several steps gets there
_STATE = 5  # position of the states before the first step; an LSTM's cells follow
_PEEPHOLES = 7
_BOUNDED = frozenset({"sigmoid", "tanh", "softsign", "hard_sigmoid"})  # functions between -1 and 1
_MORE = 4  # fractional bits of sums beyond those that functions take, at most
_WORD = 2**31 - 1
_STEP = 2 * REACH / STEPS  # of a table


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
    is_integer: bool = False

    @property
    def extents(self) -> tuple[int, ...]:
        """The number of gates of the layer, and of units."""
        return self.state_weights.shape[:2]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape [batch, units] of a state of the layer."""
        return self.x.shape[1], self.extents[1]

    @property
    def types(self) -> tuple[DType, DType]:
        """The element type of the layer's states, and that of its sums and cells."""
        return (DType.INT16, DType.INT32) if self.is_integer else (DType.FLOAT32, DType.FLOAT32)

    @property
    def holds_weights(self) -> bool:
        """Whether several steps are one operator, which holds the weights of the state."""
        is_spelled = self.is_integer or self.m.op == "RNN" or (self.m.op == "GRU" and self.reset is None)
        return is_spelled or (self.x.shape[0] > 1 and not (self.is_near and self.state_weights.nbytes > _MOST_WEIGHTS))

    def run(self) -> list[Tensor]:
        """The states behind all steps [t,n,k], behind the last one [n,k], and an LSTM's cells."""
        (steps, batch, width), is_reverse = self.x.shape, self.attributes["reverse"]
        h, *c = map(self._read_state, range(_STATE, _STATE + (2 if self.m.op == "LSTM" else 1)))
        sums = self._multiply(self.x.reshape([steps * batch, width]), self.weights, self.bias)
        products, size, parts = sums.reshape([steps, batch, *self.extents]), steps if self.holds_weights else 1, list[Tensor]()
        if self.is_near and size > 1:
            size = max(1, _MOST_PRODUCTS // (4 * batch * len(self.bias)))
        for first in range(0, steps, size)[:: -1 if is_reverse else 1]:
            p = products.cut(0, first, min(first + size, steps))
            y, *c = self._run_steps(p, h, *c) if self.holds_weights else self._run_step(p, h, *c)
            last = 0 if is_reverse else y.shape[0] - 1
            h = y.cut(0, last, last + 1).reshape(self.shape)
            parts.insert(0 if is_reverse else len(parts), y)
        return [parts[0] if len(parts) == 1 else compute("Concat", *parts, shape=(steps, *self.shape), axis=0), h, *c]

    def _multiply(self, x: Tensor, weights: np.ndarray, bias: np.ndarray) -> Tensor:
        """x[n,j] times weights[k,j], with a bias for each k."""
        operands = constant(weights.T, label="weights"), constant(bias, label="bias")
        return compute("MatMul", x, *operands, dtype=self.types[1], trans_a=False, trans_b=False, **PLAIN, epilogue=("bias",))

    def _read_state(self, position: int) -> Tensor:
        """A state before the first step [n,k]."""
        tensor, axis, number = self.m.input(position), 1 if self.m.attrs["layout"] else 0, self.number
        stored = None if tensor is None or not self.is_integer or position != _STATE else behind_dequantisation(tensor)
        if stored is not None and stored.is_scalar and (stored.s, stored.z, stored.tensor.dtype) == (2.0**-UNIT, 0, DType.INT16):
            return stored.tensor.cut(axis, number, number + 1).reshape(self.shape)
        state = constant(np.zeros(self.shape)) if tensor is None else tensor.cut(axis, number, number + 1).reshape(self.shape)
        if not self.is_integer:
            return state if state.data is None else constant(state.data, label="state")
        bits, most, dtype = (UNIT, 2**15 - 1, DType.INT16) if position == _STATE else (FRACTION, MOST_CELL - 1, DType.INT32)
        if state.data is not None:
            return constant(np.clip(np.rint(state.data.astype(np.float64) * 2.0**bits), -most, most), dtype, "state")
        return compute("Quantize", state, *_step_parameters(bits, state.rank), dtype=dtype, low=-most, high=most)

    def _run_steps(self, p: Tensor, *states: Tensor) -> Sequence[Tensor]:
        """Several steps: y[t,n,k], and an LSTM's cells [n,k]."""
        constants = [constant(values) for values in (*self.tables, self.reset, self.peepholes) if values is not None]
        op, weights = "Integer" * self.is_integer + self.m.op, constant(self.state_weights, label="weights")
        return self._create(op, (p.shape[0], *self.shape), p, weights, *states, *constants)

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
        parts = zip((shape, self.shape), self.types, ("steps", "cells"), strict=True)
        results = tuple(Tensor("", extents, dtype, label=label) for extents, dtype, label in parts)
        return Node("", op, operands, results if self.m.op == "LSTM" else results[:1], self.attributes).outputs


def _step_parameters(bits: int, rank: int) -> tuple[Tensor, Tensor]:
    """Scale and zero point of numbers with so many fractional bits."""
    return constant(np.full([1] * rank, 2.0**-bits)), constant(np.zeros([1] * rank), DType.INT32)


def _read_directions(m: Match, x: Tensor, is_near: bool) -> Iterator[Direction]:
    """The directions of a layer that reads ``x``, with weights as floats.

    Raises:
        UnsupportedError: weights that are no constants.
    """
    w, r, b, peepholes = (_read_real(m, position) for position in (1, 2, 3, _PEEPHOLES))
    assert w is not None and r is not None
    (count, _, units), rows = r.shape, x.transpose((1, 0, 2)) if m.attrs["layout"] else x
    for number, functions in enumerate(np.array_split(np.array(m.attrs["functions"], object), count)):
        inputs, states = np.zeros((2, GATES[m.op], units), np.float32) if b is None else b[number].reshape(2, -1, units).copy()
        reset = None
        if m.op == "GRU" and m.attrs["linear_before_reset"]:
            reset, states[2] = states[2].copy(), 0
        attributes: Attributes = {
            **{name: tuple(column) for name, column in zip(("functions", "alphas", "betas"), functions.T, strict=True)},
            **{"clip": m.attrs["clip"], "input_forget": bool(m.attrs["input_forget"])},
            "reverse": m.attrs["direction"] == "reverse" or number == 1,
        }
        holes = None if peepholes is None else peepholes[number].reshape(3, units)
        weights = w[number], r[number].reshape(-1, units, units), (inputs + states).ravel()
        yield Direction(m, rows, is_near, number, *weights, attributes, reset=reset, peepholes=holes)


def _read_real(m: Match, position: int) -> np.ndarray | None:
    """The float value of a constant input, also of a dequantised one; None where it is absent."""
    tensor = m.input(position)
    value = None if tensor is None else real_constant(tensor)
    if tensor is not None and value is None:
        what = f"{m.node} has weights {shorten(tensor.name)} that are computed"
        raise UnsupportedError(what, "Export the model with constant weights.")
    return value


def _join_directions(m: Match, directions: Sequence[Direction]) -> dict[Tensor, Tensor]:
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


def recurrent_steps(is_near: bool) -> Pass:
    """The pass that makes steps of LSTM, GRU and RNN, in integers or in floats.

    Args:
        is_near: an engine works in a small memory of its own.
    """

    @standard(*GATES, lowers=True)
    def recurrent(m: Match) -> Result:
        return attempt(_lower_integers, m, is_near) or _join_directions(m, list(_read_directions(m, m.x, is_near)))

    return Pass("recurrent", (recurrent,))


def _lower_integers(m: Match, is_near: bool) -> dict[Tensor, Tensor]:
    """A layer whose inputs and weights are quantised, where its operator has a form in integers."""
    x, w, r = need(byte_tensor(m.x)), _read_weights(m.inputs[1]), _read_weights(m.inputs[2])
    require(m.op != "GRU" or m.attrs["linear_before_reset"], m.input(_PEEPHOLES) is None, not m.attrs["input_forget"])
    require({name for name, _, _ in m.attrs["functions"]} <= _BOUNDED, _is_small(m.input(_STATE)))
    require(r[0].dtype == np.int8, r[0].shape[2] <= MOST_UNITS, not is_near or r[0][0].size <= _MOST_WEIGHTS)
    directions = [_quantise_direction(direction, x, w, r) for direction in _read_directions(m, x.tensor, is_near)]
    stand_ins = dict[Tensor, Tensor]()
    for result, whole in _join_directions(m, directions).items():
        bits = UNIT if whole.dtype is DType.INT16 else FRACTION
        stand_ins[result] = compute("Dequantize", whole, *_step_parameters(bits, result.rank))
        for y in map(quantised_result, m.readers(result)):
            if y is not None and y.is_scalar:
                mul, add, shift = requant_constants(2.0**-bits / y.s, 0, y.z)
                dtype, constants = y.tensor.dtype, requantisation_operands(mul, add)
                low, high = dtype.range
                stand_ins[y.tensor] = compute("RequantShift", whole, *constants, dtype=dtype, shift=shift, low=low, high=high)
    return stand_ins


def _is_small(state: Tensor | None) -> bool:
    """Whether the states before the first step are known to lie between -1 and 1, but for a step of theirs."""
    if state is None:
        return True
    if state.data is not None:
        return float(np.abs(state.data).max(initial=0.0)) <= 1
    q = behind_dequantisation(state)
    return q is not None and q.is_scalar and _farthest_step(q) * q.s <= 1 + q.s


def _farthest_step(q: Quantised) -> int:
    """The most steps that a value of a tensor is from zero."""
    return max(abs(end - q.z) for end in q.tensor.dtype.range)


def _read_weights(tensor: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Constant weights of all directions in 8 bits [direction, gate*unit, ...], and the scale of every row [direction, gate*unit]."""
    q = need(behind_dequantisation(tensor))
    require(q.is_byte, q.is_scalar or q.axis in (0, 1))
    values, shape = need(centre_weights(q)), (1, -1) if q.is_scalar or q.axis else (-1, 1)
    return values, np.broadcast_to(q.scale.astype(np.float64).reshape(shape), values.shape[:2])


def _quantise_direction(
    direction: Direction, x: Quantised, w: tuple[np.ndarray, np.ndarray], r: tuple[np.ndarray, np.ndarray]
) -> Direction:
    """A direction in integers, where sums of gates have enough fractional bits.

    Its first table is what sums of gates are made with, as ``deeploy.operators.integer_recurrent`` takes it: [unit, gate, 2].
    """
    reset, ((weights, scale), (states, step)) = direction.reset, ([part[direction.number] for part in pair] for pair in (w, r))
    unit = x.s * scale
    bias = direction.bias / unit
    inputs = np.abs(weights.astype(np.int64)).sum(axis=1) * _farthest_step(x) + np.abs(bias)
    sums = inputs * unit + np.abs(states.astype(np.int64)).sum(axis=1) * step
    shift_p = _count_bits(inputs.max() + 1)
    ratios = np.stack([unit * 2.0**-shift_p, step * 2.0**-UNIT]) * 2.0**32
    bits = min(FRACTION + _MORE, _count_bits(2 * max(1.0, sums.max())), _count_bits(ratios.max(), _WORD - 1))
    require(bits > FRACTION, shift_p >= 0)
    factors = np.rint(ratios * 2.0**bits).astype(np.int32).reshape(2, *direction.extents).transpose(2, 1, 0)
    offset = np.rint(bias) - x.z * weights.astype(np.int64).sum(axis=1)
    return replace(
        direction,
        weights=weights,
        state_weights=states.reshape(direction.state_weights.shape),
        bias=np.clip(offset, *DType.INT32.range).astype(np.int32),
        attributes={"reverse": direction.attributes["reverse"], "shift_p": shift_p, "shift": bits - FRACTION},
        tables=(factors, _tabulate_functions(direction)),
        reset=None if reset is None else np.rint(reset.astype(np.float64) * 2.0**FRACTION).astype(np.int32),
        is_integer=True,
    )


def _count_bits(largest: float, word: int = _WORD) -> int:
    """How many fractional bits numbers have in a word."""
    return int(np.floor(np.log2(word / largest)))


def table_bytes(op: str, directions: int) -> int:
    """The bytes of the tables of a layer of ONNX's, whose last two functions are equal."""
    return directions * (1 if op == "RNN" else 2) * (STEPS + 1) * 2


def _tabulate_functions(direction: Direction) -> np.ndarray:
    """A table for each function, of what it is applied to."""
    tables = []
    functions = zip(*(direction.attributes[name] for name in ("functions", "alphas", "betas")), strict=True)
    for number, (name, alpha, beta) in enumerate(functions):
        reach = (2 if number == 0 and direction.extents[0] > 1 else 1) * (REACH + _STEP)  # of gates twice as far
        limit = (number < 2 and direction.attributes["clip"]) or np.inf  # cells have none
        values = FUNCTIONS[name](np.linspace(-reach, reach, STEPS + 3).clip(-limit, limit), alpha, beta)
        bends = values[:-2] - 2 * values[1:-1] + values[2:]  # lines are above or below the function by an eighth of it, at most
        tables.append(np.clip(np.rint((values[1:-1] - bends / 16) * 2.0**UNIT), -(2**15) + 1, 2**15 - 1))
    is_shared = len(tables) == 3 and np.array_equal(tables[1], tables[2])  # of what is let in, and of cells
    return np.stack(tables[:2] if is_shared else tables).astype(np.int16)
