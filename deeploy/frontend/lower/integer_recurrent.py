"""LSTM, GRU and RNN between DequantizeLinear and QuantizeLinear: products of bytes, and steps in 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower import build
from deeploy.frontend.lower.call import PLAIN, Call
from deeploy.frontend.lower.quant import Quantised, byte, centred, dequantised, limits, quantised, requant_constants
from deeploy.frontend.lower.recurrent import MOST_WEIGHTS, Direction, Layer, directions, floats, join
from deeploy.graph.rewrite import Pass, rule
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


@dataclass(frozen=True)
class _Factors:
    """What sums of gates are made with, as ``deeploy.operators.integer_recurrent`` takes it; ``values`` [unit, gate, 2]."""

    values: np.ndarray
    shift_p: int
    shift: int


def steps(is_near: bool) -> Pass:
    """The pass that makes steps of LSTM, GRU and RNN, in integers or in floats.

    Args:
        is_near: an engine works in a small memory of its own.
    """

    @rule(*GATES)
    def recurrent(graph: gs.Graph, node: gs.Node) -> bool:
        call = Call(graph, node)
        return not build.lowered(node) and (_lower(call, is_near) or floats(call, is_near))

    return Pass("recurrent", (recurrent,))


def _lower(call: Call, is_near: bool) -> bool:
    """A layer whose inputs and weights are quantised, where its operator has a form in integers."""
    x, weights = byte(call.x), [_weights(call.node.inputs[position]) for position in (1, 2)]
    w, r = weights
    if x is None or w is None or r is None or call.input(7) is not None or call.attrs["input_forget"]:
        return False
    functions = {name for name, _, _ in call.attrs["functions"]}
    resets_state = call.op == "GRU" and not call.attrs["linear_before_reset"]
    if not functions <= _BOUNDED or resets_state or not _is_small(call) or r.values.shape[2] > MOST_UNITS:
        return False
    if is_near and r.values[0].size > MOST_WEIGHTS:
        return False
    found = directions(call)
    factors = [_factors(x, w, r, own) for own in found]
    if None in factors or r.values.min() < -128 or r.values.max() > 127:
        return False
    layout = call.attrs["layout"]
    rows = call.transpose(x.tensor, (1, 0, 2)) if layout else x.tensor
    parts = [_Layer(call, own, rows, is_near, x, w, r, each).run() for own, each in zip(found, factors, strict=True) if each is not None]
    outputs = list(call.node.outputs)
    call.node.outputs.clear()
    for number, (result, names) in enumerate(zip(outputs, zip(*parts, strict=True), strict=False)):
        if result.outputs or call.is_output(result):
            whole = call.variable(result.shape, names[0].dtype, "states" if number < 2 else "cells")
            join(call, whole, names, layout, is_sequence=number == 0)
            _leave(call, result, whole, 2.0 ** -(UNIT if number < 2 else FRACTION))
    return True


def _is_small(call: Call) -> bool:
    """Whether the states before the first step are known to lie between -1 and 1, but for a step of theirs."""
    tensor, value = call.input(5), call.value(5)
    found = dequantised(tensor) if tensor is not None else None
    if tensor is None or value is not None:
        return value is None or float(np.abs(value).max(initial=0.0)) <= 1
    if found is None or not found.is_scalar:
        return False
    return max(abs(end - found.z) for end in limits(found.tensor)) * found.s <= 1 + found.s


def _weights(tensor: gs.Tensor) -> _Weights | None:
    """Constant weights of 8 bits, of one scale, one per direction or one per row."""
    found = dequantised(tensor)
    values = centred(found) if found is not None and found.is_byte else None
    if found is None or values is None or (not found.is_scalar and found.axis not in (0, 1)):
        return None
    shape = (1, 1) if found.is_scalar else (-1, 1) if found.axis == 0 else (1, -1)
    return _Weights(values, np.broadcast_to(found.scale.astype(np.float64).reshape(shape), values.shape[:2]))


def _factors(x: Quantised, w: _Weights, r: _Weights, own: Direction) -> _Factors | None:
    """The factors of a direction; None where sums of gates would have too few fractional bits."""
    unit, step = x.s * w.scale[own.number], r.scale[own.number] * 2.0**-UNIT
    farthest = max(abs(end - x.z) for end in limits(x.tensor))
    inputs = np.abs(w.values[own.number].astype(np.int64)).sum(axis=1) * farthest + np.abs(own.bias / unit)
    states = np.abs(r.values[own.number].astype(np.int64)).sum(axis=1) * 2.0**UNIT
    shift_p = int(np.floor(np.log2(_WORD / (inputs.max() + 1))))
    ratios = unit * 2.0**-shift_p, step
    sums, factor = max(1.0, float((inputs * unit + states * step).max())), float(np.max(ratios)) * 2.0**32
    bits = min(FRACTION + _MORE, int(np.floor(np.log2(_WORD / 2 / sums))), int(np.floor(np.log2((_WORD - 1) / factor))))
    if bits <= FRACTION or shift_p < 0:
        return None
    values = np.stack([np.rint(ratio * 2.0 ** (32 + bits)) for ratio in ratios]).astype(np.int32)
    return _Factors(np.ascontiguousarray(values.reshape(2, own.gates, own.units).transpose(2, 1, 0)), shift_p, bits - FRACTION)


def _leave(call: Call, result: gs.Tensor, whole: gs.Tensor, unit: float) -> None:
    """What reads a result of steps of ``unit``: quantisations of it in integers, all else in floats."""
    for reader in list(result.outputs):
        y = quantised(reader) if reader.op == "QuantizeLinear" and reader.inputs[0] is result else None
        if y is None or not y.is_scalar:
            continue
        mul, add, shift = requant_constants(unit / y.s, 0, y.z)
        low, high = limits(y.tensor)
        reader.inputs.clear()
        reader.outputs.clear()
        constants = call.constant(mul, label="mul"), call.constant(add, label="add")
        call.into(y.tensor, "RequantShift", whole, *constants, shift=shift, low=low, high=high)
    if result.outputs or call.is_output(result):
        step = call.constant(np.full([1] * len(result.shape), unit)), call.constant(np.zeros([1] * len(result.shape)), np.int32)
        call.into(result, "Dequantize", whole, *step)


class _Layer(Layer):
    """One direction in integers."""

    def __init__(
        self, call: Call, own: Direction, rows: gs.Tensor, is_near: bool, x: Quantised, w: _Weights, r: _Weights, factors: _Factors
    ) -> None:
        super().__init__(call, own, rows, is_near)
        self.factors = factors
        self.zero, number = x.z, own.number
        self.weights, self.unit = w.values[number], x.s * w.scale[number]
        self.states, self.step = r.values[number], r.scale[number]

    def _holds(self) -> bool:
        return True

    def _products(self) -> gs.Tensor:
        call = self.call
        flat = call.reshape(self.x, [self.steps * self.batch, self.x.shape[2]])
        offset = np.rint(self.own.bias / self.unit) - self.zero * self.weights.astype(np.int64).sum(axis=1)
        bias = np.clip(offset, -(2**31), 2**31 - 1).astype(np.int32)
        operands = call.constant(np.ascontiguousarray(self.weights.T), label="weights"), call.constant(bias, label="bias")
        shape = [flat.shape[0], self.weights.shape[0]]
        p = call.create("MatMul", flat, *operands, shape=shape, dtype=np.int32, trans_a=False, trans_b=False, **PLAIN, epilogue=("bias",))
        return call.reshape(p, [self.steps, self.batch, self.own.gates, self.own.units])

    def _first(self, position: int) -> gs.Tensor:
        tensor, call = super()._first(position), self.call
        bits, most, dtype = (UNIT, 2**15 - 1, np.int16) if position == 5 else (FRACTION, MOST_CELL - 1, np.int32)
        if isinstance(tensor, gs.Constant):
            values = np.rint(np.asarray(tensor.values).astype(np.float64) * 2.0**bits)
            return call.constant(np.clip(values, -most, most), dtype, "state")
        step = call.constant(np.full([1, 1], 2.0**-bits)), call.constant(np.zeros([1, 1]), np.int32)
        return call.create("Quantize", tensor, *step, dtype=dtype, low=-most, high=most)

    def _layer(self, p: gs.Tensor, h: gs.Tensor, *c: gs.Tensor) -> list[gs.Tensor]:
        call, own = self.call, self.own
        weights = self.states.astype(np.int8).reshape(own.gates, own.units, own.units)
        constants: Sequence[np.ndarray] = [self.factors.values, _tables(own)]
        if own.reset is not None:
            constants = [*constants, np.rint(own.reset.astype(np.float64) * 2.0**FRACTION).astype(np.int32)]
        operands = [p, call.constant(weights, label="weights"), h, *c, *(call.constant(each, each.dtype) for each in constants)]
        shape = [p.shape[0], self.batch, own.units]
        shifts = {"shift_p": self.factors.shift_p, "shift": self.factors.shift}
        y = call.create(
            f"Integer{call.op}", *operands, shape=shape, dtype=np.int16, label="steps", reverse=own.attributes["reverse"], **shifts
        )
        if call.op != "LSTM":
            return [y]
        cells = call.variable([self.batch, own.units], np.int32, "cells")
        y.inputs[0].outputs.append(cells)
        return [y, cells]


def table_bytes(op: str, directions: int) -> int:
    """The bytes of the tables of a layer of ONNX's, whose last two functions are equal."""
    return directions * (1 if op == "RNN" else 2) * (STEPS + 1) * 2


def _tables(own: Direction) -> np.ndarray:
    """A table for each function, of what it is applied to."""
    attributes = own.attributes
    found = []
    for number, (name, alpha, beta) in enumerate(zip(attributes["functions"], attributes["alphas"], attributes["betas"], strict=True)):
        a = np.linspace(-REACH - _STEP, REACH + _STEP, STEPS + 3) * (2 if number == 0 and own.gates > 1 else 1)  # of gates twice as far
        limit = attributes["clip"] if number < 2 else 0  # cells have none
        values = FUNCTIONS[name](np.clip(a, -limit, limit) if limit else a, alpha, beta)
        bends = values[:-2] - 2 * values[1:-1] + values[2:]  # lines are above or below the function by an eighth of it, at most
        found.append(np.clip(np.rint((values[1:-1] - bends / 16) * 2.0**UNIT), -(2**15) + 1, 2**15 - 1))
    is_shared = len(found) == 3 and np.array_equal(found[1], found[2])  # of what is let in, and of cells
    return np.stack(found[:2] if is_shared else found).astype(np.int16)
