"""LSTM, GRU and RNN between DequantizeLinear and QuantizeLinear: products of bytes, and steps in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deeploy.frontend.lower.quant import Quantised, byte, centred, dequantised, quantised, requant_constants, requantisation
from deeploy.frontend.lower.recurrent import MOST_WEIGHTS, PEEPHOLES, STATE, Direction, join_directions, read_directions
from deeploy.graph.nodes import Tensor, compute, constant
from deeploy.graph.rewriting import Match, Pass, Result, standard
from deeploy.graph.types import DType
from deeploy.operators.elementwise import FUNCTIONS
from deeploy.operators.integer_recurrent import FRACTION, MOST_CELL, MOST_UNITS, REACH, STEPS, UNIT
from deeploy.operators.recurrent import GATES

_BOUNDED = frozenset({"sigmoid", "tanh", "softsign", "hard_sigmoid"})  # functions between -1 and 1
_MORE = 4  # fractional bits of sums beyond those that functions take, at most
_WORD = 2**31 - 1
_STEP = 2 * REACH / STEPS  # of a table


@dataclass(frozen=True)
class _Weights:
    """Integer weights of all directions [direction, gate*unit, ...] with the scale of every row [direction, gate*unit]."""

    values: np.ndarray
    scale: np.ndarray


def steps(is_near: bool) -> Pass:
    """The pass that makes steps of LSTM, GRU and RNN, in integers or in floats.

    Args:
        is_near: an engine works in a small memory of its own.
    """

    @standard(*GATES, lowers=True)
    def recurrent(m: Match) -> Result:
        integers = _lower_integers(m, is_near)
        return join_directions(m, read_directions(m, m.x, is_near)) if integers is None else integers

    return Pass("recurrent", (recurrent,))


def _lower_integers(m: Match, is_near: bool) -> dict[Tensor, Tensor] | None:
    """A layer whose inputs and weights are quantised, where its operator has a form in integers."""
    x, w, r = byte(m.x), _weights(m.inputs[1]), _weights(m.inputs[2])
    resets_state = m.op == "GRU" and not m.attrs["linear_before_reset"]
    is_bounded = {name for name, _, _ in m.attrs["functions"]} <= _BOUNDED and _is_small(m.input(STATE))
    if x is None or w is None or r is None or resets_state or not is_bounded or m.input(PEEPHOLES) is not None or m.attrs["input_forget"]:
        return None
    if r.values.dtype != np.int8 or r.values.shape[2] > MOST_UNITS or (is_near and r.values[0].size > MOST_WEIGHTS):
        return None
    directions = [_quantise(direction, x, w, r) for direction in read_directions(m, x.tensor, is_near)]
    if None in directions:
        return None
    stand_ins = dict[Tensor, Tensor]()
    for result, whole in join_directions(m, [direction for direction in directions if direction is not None]).items():
        bits = UNIT if whole.dtype is DType.INT16 else FRACTION
        stand_ins[result] = compute("Dequantize", whole, *_step(bits, result.rank), dtype=DType.FLOAT32)
        for y in map(quantised, m.readers(result)):
            if y is not None and y.is_scalar:
                mul, add, shift = requant_constants(2.0**-bits / y.s, 0, y.z)
                dtype, constants = y.tensor.dtype, requantisation(mul, add)
                low, high = dtype.range
                stand_ins[y.tensor] = compute("RequantShift", whole, *constants, dtype=dtype, shift=shift, low=low, high=high)
    return stand_ins


def _is_small(state: Tensor | None) -> bool:
    """Whether the states before the first step are known to lie between -1 and 1, but for a step of theirs."""
    if state is None:
        return True
    if state.data is not None:
        return float(np.abs(state.data).max(initial=0.0)) <= 1
    q = dequantised(state)
    return q is not None and q.is_scalar and _farthest(q) * q.s <= 1 + q.s


def _farthest(q: Quantised) -> int:
    """The most steps that a value of a tensor is from zero."""
    return max(abs(end - q.z) for end in q.tensor.dtype.range)


def _weights(tensor: Tensor) -> _Weights | None:
    """Constant weights of 8 bits, of one scale, one per direction or one per row."""
    q = dequantised(tensor)
    values = centred(q) if q is not None and q.is_byte and (q.is_scalar or q.axis in (0, 1)) else None
    if q is None or values is None:
        return None
    shape = (1, -1) if q.is_scalar or q.axis else (-1, 1)
    return _Weights(values, np.broadcast_to(q.scale.astype(np.float64).reshape(shape), values.shape[:2]))


def _quantise(direction: Direction, x: Quantised, w: _Weights, r: _Weights) -> Direction | None:
    """A direction in integers; None where sums of gates would have too few fractional bits.

    Its first table is what sums of gates are made with, as ``deeploy.operators.integer_recurrent`` takes it: [unit, gate, 2].
    """
    number, reset = direction.number, direction.reset
    weights, states = (part.values[number].astype(np.int64) for part in (w, r))
    unit, step = x.s * w.scale[number], r.scale[number]
    bias = direction.bias / unit
    inputs = np.abs(weights).sum(axis=1) * _farthest(x) + np.abs(bias)
    sums = inputs * unit + np.abs(states).sum(axis=1) * step
    shift_p = _bits(inputs.max() + 1)
    ratios = np.stack([unit * 2.0**-shift_p, step * 2.0**-UNIT]) * 2.0**32
    bits = min(FRACTION + _MORE, _bits(2 * max(1.0, sums.max())), _bits(ratios.max(), _WORD - 1))
    if bits <= FRACTION or shift_p < 0:
        return None
    factors = np.rint(ratios * 2.0**bits).astype(np.int32).reshape(2, *direction.extents).transpose(2, 1, 0)
    offset = np.clip(np.rint(bias) - x.z * weights.sum(axis=1), *DType.INT32.range).astype(np.int32)
    return _IntegerDirection(
        *(
            direction.m,
            direction.x,
            direction.is_near,
            number,
            w.values[number],
            r.values[number].reshape(direction.state_weights.shape),
            offset,
        ),
        {"reverse": direction.attributes["reverse"], "shift_p": shift_p, "shift": bits - FRACTION},
        (factors, _tables(direction)),
        None if reset is None else np.rint(reset.astype(np.float64) * 2.0**FRACTION).astype(np.int32),
    )


def _bits(largest: float, word: int = _WORD) -> int:
    """How many fractional bits numbers have in a word."""
    return int(np.floor(np.log2(word / largest)))


def _step(bits: int, rank: int) -> tuple[Tensor, Tensor]:
    """Scale and zero point of numbers with so many fractional bits."""
    return constant(np.full([1] * rank, 2.0**-bits)), constant(np.zeros([1] * rank), DType.INT32)


class _IntegerDirection(Direction):
    """One direction in integers."""

    state_type, sum_type, prefix, holds_weights = DType.INT16, DType.INT32, "Integer", True

    def read_state(self, position: int) -> Tensor:
        state = super().read_state(position)
        bits, most, dtype = (UNIT, 2**15 - 1, self.state_type) if position == STATE else (FRACTION, MOST_CELL - 1, self.sum_type)
        if state.data is not None:
            return constant(np.clip(np.rint(state.data.astype(np.float64) * 2.0**bits), -most, most), dtype, "state")
        return compute("Quantize", state, *_step(bits, state.rank), dtype=dtype, low=-most, high=most)


def table_bytes(op: str, directions: int) -> int:
    """The bytes of the tables of a layer of ONNX's, whose last two functions are equal."""
    return directions * (1 if op == "RNN" else 2) * (STEPS + 1) * 2


def _tables(direction: Direction) -> np.ndarray:
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
