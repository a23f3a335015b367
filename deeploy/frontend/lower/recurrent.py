"""LSTM, GRU and RNN: the products of all inputs as one matrix product, then the steps.

The steps of a direction are one layer, which holds the weights of its state. One step alone is a product and a cell: its weights pass by
tile by tile. So are all steps where the weights are too many for a memory near the engine, and long sequences are cut there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.errors import UnsupportedError, shorten
from deeploy.frontend.lower.call import PLAIN, Call
from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.schemas import Attributes
from deeploy.operators.recurrent import GATES

MOST_WEIGHTS = 96 * 1024  # bytes of weights of the state that a layer holds where a memory near the engine is small
MOST_PRODUCTS = 24 * 1024  # bytes of products that a layer of several steps gets there
_FIRST = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}  # positions of the states before the first step
_PEEPHOLES = 7


@dataclass(frozen=True)
class Direction:
    """One direction of a layer.

    Attributes:
        weights: of the inputs [gate*unit, input], of the state [gate, unit, unit].
        bias: of the inputs [gate*unit].
        reset: bias of the candidate's product with the state, where a GRU resets that product.
    """

    number: int
    inputs: np.ndarray
    state: np.ndarray
    bias: np.ndarray
    reset: np.ndarray | None
    peepholes: np.ndarray | None
    attributes: Attributes

    @property
    def gates(self) -> int:
        return int(self.state.shape[0])

    @property
    def units(self) -> int:
        return int(self.state.shape[1])


def floats(call: Call, is_near: bool) -> bool:
    """LSTM, GRU, RNN of floats, whose weights may be dequantised."""
    layout = call.attrs["layout"]
    x = call.transpose(call.x, (1, 0, 2)) if layout else call.x
    parts = [Layer(call, direction, x, is_near).run() for direction in directions(call)]
    names = list(zip(*parts, strict=True))
    outputs = list(call.node.outputs)
    call.node.outputs.clear()
    for number, (result, found) in enumerate(zip(outputs, names, strict=False)):
        if not result.is_empty():
            join(call, result, found, layout, is_sequence=number == 0)
    return True


def join(call: Call, result: gs.Tensor, parts: Sequence[gs.Tensor], layout: int, is_sequence: bool) -> None:
    """An output of the layer from those of its directions: [t,n,k] or [n,k], the axis of directions before n or, of layout 1, before k."""
    shape = list(parts[0].shape)
    axis = len(shape) - (1 if layout else 2)
    if layout and is_sequence:
        parts = [call.transpose(part, (1, 0, 2)) for part in parts]
        shape = list(parts[0].shape)
    wide = [*shape[:axis], 1, *shape[axis:]]
    if len(parts) == 1:
        call.into(result, "Reshape", parts[0])
    else:
        call.into(result, "Concat", *(call.reshape(part, wide) for part in parts), axis=axis)


def directions(call: Call) -> list[Direction]:
    """The directions of a layer, with weights as floats.

    Raises:
        UnsupportedError: weights that are no constants.
    """
    w, r, b, peepholes = (_real(call, position) for position in (1, 2, 3, _PEEPHOLES))
    assert w is not None and r is not None
    count, gates, units = w.shape[0], GATES[call.op], r.shape[2]
    bias = np.zeros((count, 2 * gates * units), np.float32) if b is None else b
    functions = call.attrs["functions"]
    each = len(functions) // count
    found = []
    for number in range(count):
        own, state = bias[number].reshape(2, gates, units).copy()
        reset = state[2].copy() if call.op == "GRU" and call.attrs["linear_before_reset"] else None
        if reset is not None:
            state[2] = 0
        names, alphas, betas = zip(*functions[number * each : (number + 1) * each], strict=True)
        attributes: Attributes = {
            "functions": names,
            "alphas": alphas,
            "betas": betas,
            "clip": call.attrs["clip"],
            "input_forget": bool(call.attrs["input_forget"]),
            "reverse": call.attrs["direction"] == "reverse" or number == 1,
        }
        found.append(
            Direction(
                number,
                w[number],
                r[number].reshape(gates, units, units),
                (own + state).ravel(),
                reset,
                None if peepholes is None else peepholes[number].reshape(3, units),
                attributes,
            )
        )
    return found


def _real(call: Call, position: int) -> np.ndarray | None:
    """The float value of a constant input, also of a dequantised one; None where it is absent."""
    tensor = call.input(position)
    value = real_constant(tensor) if tensor is not None else None
    if tensor is not None and value is None:
        raise UnsupportedError(
            f"node {shorten(call.node.name)} ({call.op}) has weights {shorten(tensor.name)} that are computed",
            "Export the model with constant weights.",
        )
    return value


class Layer:
    """One direction of a float layer."""

    def __init__(self, call: Call, own: Direction, x: gs.Tensor, is_near: bool) -> None:
        self.call, self.own, self.x, self.is_near = call, own, x, is_near
        self.steps, self.batch = int(x.shape[0]), int(x.shape[1])

    def run(self) -> list[gs.Tensor]:
        """The states behind all steps [t,n,k], behind the last one [n,k], and an LSTM's cells."""
        h, *c = (self._first(position) for position in _FIRST[self.call.op])
        every: list[gs.Tensor] = []
        products = self._products()
        for first, count in self._chunks():
            p = self._slice(products, first, count)
            h, *c = self._layer(p, h, *c) if self._holds() else self._cell(p, h, *c)
            every.append(h)
            h = self._last(h)
        if self.own.attributes["reverse"]:
            every.reverse()
        whole = every[0] if len(every) == 1 else self.call.create("Concat", *every, shape=[self.steps, *every[0].shape[1:]], axis=0)
        return [whole, h, *c]

    def _holds(self) -> bool:
        """Whether a layer holds the weights of its state."""
        is_spelled = self.call.op == "RNN" or (self.call.op == "GRU" and self.own.reset is None)
        if is_spelled:
            return True
        return self.steps > 1 and not (self.is_near and self.own.state.nbytes > MOST_WEIGHTS)

    def _chunks(self) -> list[tuple[int, int]]:
        """First step and number of the steps that are computed together, in the order of computing."""
        size = self.steps if self._holds() else 1
        if self.is_near and size > 1:
            size = max(1, MOST_PRODUCTS // (4 * self.batch * self.own.gates * self.own.units))
        found = [(first, min(size, self.steps - first)) for first in range(0, self.steps, size)]
        return found[::-1] if self.own.attributes["reverse"] else found

    def _products(self) -> gs.Tensor:
        """p[t,n,g,k] of all inputs."""
        flat = self.call.reshape(self.x, [self.steps * self.batch, self.x.shape[2]])
        return self.call.reshape(
            self._times(flat, self.own.inputs, self.own.bias), [self.steps, self.batch, self.own.gates, self.own.units]
        )

    def _times(self, x: gs.Tensor, weights: np.ndarray, bias: np.ndarray) -> gs.Tensor:
        """x[n,j] times weights[k,j], with a bias for each k."""
        call = self.call
        operands = call.constant(np.ascontiguousarray(weights.T), label="weights"), call.constant(bias, label="bias")
        shape = [x.shape[0], weights.shape[0]]
        return call.create("MatMul", x, *operands, shape=shape, trans_a=False, trans_b=False, **PLAIN, epilogue=("bias",))

    def _first(self, position: int) -> gs.Tensor:
        """A state before the first step [n,k]."""
        call, tensor = self.call, self.call.input(position)
        if tensor is None:
            return call.constant(np.zeros((self.batch, self.own.units), np.float32), label="state")
        value = call.value(position)
        axis = 1 if call.attrs["layout"] else 0
        if value is not None:
            return call.constant(value.take(self.own.number, axis), label="state")
        starts = [self.own.number if i == axis else 0 for i in range(3)]
        ends = [self.own.number + 1 if i == axis else size for i, size in enumerate(tensor.shape)]
        if tensor.shape[axis] > 1:
            tensor = call.create("Slice", tensor, starts=tuple(starts), ends=tuple(ends), steps=(1,) * 3)
        return call.reshape(tensor, [self.batch, self.own.units])

    def _slice(self, products: gs.Tensor, first: int, count: int) -> gs.Tensor:
        if count == self.steps:
            return products
        ends = (first + count, *products.shape[1:])
        return self.call.create("Slice", products, starts=(first, 0, 0, 0), ends=ends, steps=(1,) * 4)

    def _last(self, y: gs.Tensor) -> gs.Tensor:
        """The state [n,k] behind the step of y[t,n,k] that is computed last."""
        at = 0 if self.own.attributes["reverse"] else y.shape[0] - 1
        if y.shape[0] > 1:
            y = self.call.create("Slice", y, starts=(at, 0, 0), ends=(at + 1, *y.shape[1:]), steps=(1, 1, 1))
        return self.call.reshape(y, y.shape[1:])

    def _layer(self, p: gs.Tensor, h: gs.Tensor, *c: gs.Tensor) -> list[gs.Tensor]:
        """Several steps: y[t,n,k], and an LSTM's cells [n,k]."""
        own = [self.own.state, *(each for each in (self.own.reset, self.own.peepholes) if each is not None)]
        r, *rest = (self.call.constant(each) for each in own)
        shape = [p.shape[0], self.batch, self.own.units]
        return self._made(self.call.op, shape, [p, r, h, *c, *rest])

    def _cell(self, p: gs.Tensor, h: gs.Tensor, *c: gs.Tensor) -> list[gs.Tensor]:
        """One step, whose product with the state is made outside."""
        gates, units = self.own.gates, self.own.units
        bias = np.zeros((gates, units), np.float32)
        if self.own.reset is not None:
            bias[2] = self.own.reset
        q = self._times(h, self.own.state.reshape(gates * units, units), bias.ravel())
        rest = [] if self.own.peepholes is None else [self.call.constant(self.own.peepholes)]
        operands = [self.call.reshape(each, [self.batch, gates, units]) for each in (p, q)]
        y, *cells = self._made(f"{self.call.op}Cell", [self.batch, units], [*operands, *(c or [h]), *rest])
        return [self.call.reshape(y, [1, *y.shape]), *cells]

    def _made(self, op: str, shape: Sequence[int], operands: Sequence[gs.Tensor]) -> list[gs.Tensor]:
        y = self.call.create(op, *operands, shape=shape, label="steps", **self.own.attributes)
        if self.call.op != "LSTM":
            return [y]
        cells = self.call.variable([self.batch, self.own.units], y.dtype, "cells")
        y.inputs[0].outputs.append(cells)
        return [y, cells]
