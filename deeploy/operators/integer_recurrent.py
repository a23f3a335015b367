"""Recurrent layers of quantised values in one direction (docs/integer-form.md): products of bytes, states and functions of 16 bits.

Sums of a gate are brought to 16 fractional bits; a function of them is a table of 16-bit values, between whose entries lies a
straight line, with 15 fractional bits. So have the states; the cells of an LSTM have 16 in 32 bits. All sums have 32 bits.
"""

from __future__ import annotations

import numpy as np

from deeploy.graph.kernel import Operator, Reference, types
from deeploy.graph.nest import Map, Nest, coupled, encoded, parallel, reduction
from deeploy.graph.nodes import Node
from deeploy.graph.types import Array
from deeploy.operators.recurrent import WHOLE

FRACTION = 16  # bits of what a function is applied to, and of cells
UNIT = 15  # bits of what a function leaves, and of states
REACH = 8  # of the tables, to both sides, twice that of gates: beyond it functions are what they are there
STEPS = 1024  # of a table, which has a value more
_BETWEEN = (2 * REACH << FRACTION) // STEPS  # values between two entries
MOST_CELL = 1 << 30
MOST_UNITS = 511  # for which products with the state have 32 bits


def _nest(node: Node) -> Nest:
    """p[t,n,g,k] and r[g,k,j] of the state h[n,j], factors of both [k,g,2], a table for each function; a GRU's biases b[k]."""
    (t,), (n, k), (g, j) = coupled("t"), parallel("n", "k"), reduction("g", "j")
    f, entry, gate, part = encoded("f", "entry", "gate", "part", of=(k,))
    reads = {"p": Map(t, n, g, k), "r": Map(g, k, j), "h": Map(n, j)}
    reads |= {"c": Map(n, k)} if node.op == "IntegerLSTM" else {}
    reads |= {"factors": Map(k, gate, part), "tables": Map(f, entry)}
    reads |= {"b": Map(k)} if node.op == "IntegerGRU" else {}
    return Nest(reads, {"y": Map(t, n, k), **({"cells": Map(n, k)} if node.op == "IntegerLSTM" else {})})


def looked_up(table: Array, a: Array) -> Array:
    """The function at ``a``, with 15 fractional bits."""
    place = np.clip(a, -REACH << FRACTION, (REACH << FRACTION) - 1) + (REACH << FRACTION)
    step, rest, wide = place // _BETWEEN, place % _BETWEEN, table.astype(np.int64)
    return np.asarray((wide[step] * (_BETWEEN - rest) + wide[step + 1] * rest + (_BETWEEN >> 1)) // _BETWEEN)


def _gate(table: Array, a: Array) -> Array:
    """The function of gates of an LSTM or a GRU, whose table reaches twice as far: what they keep, they keep over many steps."""
    return looked_up(table, a >> 1)


def _rounded(x: Array, bits: int) -> Array:
    return np.asarray((x + (1 << bits >> 1)) >> bits)


def _order(node: Node, p: Array) -> range:
    steps = range(p.shape[0])
    return steps[::-1] if node.attrs["reverse"] else steps


def _products(node: Node, p: Array, h: Array, r: Array, factors: Array) -> tuple[Array, Array]:
    """Those of the inputs and of the state h[n,j] r[g,k,j], in front of the shift of their sum [n,g,k]."""
    mul_p, mul_r = factors.astype(np.int64).transpose(2, 1, 0)
    product = np.rint(np.einsum("nj,gkj->ngk", h.astype(np.float64), r.astype(np.float64))).astype(np.int64)
    return ((p.astype(np.int64) << int(node.attrs["shift_p"])) * mul_p) >> 32, product * mul_r >> 32


def lstm_reference(node: Node, p: Array, r: Array, h: Array, c: Array, factors: Array, tables: Array) -> tuple[Array, Array]:
    """y[t], and the cells behind the last step."""
    y = np.zeros((*p.shape[:2], p.shape[3]), np.int64)
    cells, state = c.astype(np.int64), h.astype(np.int64)
    f, g, last = tables[0], tables[1], tables[-1]  # two where g and h are one function
    for t in _order(node, p):
        own, product = _products(node, p[t], state, r, factors)
        a = _rounded(own + product, int(node.attrs["shift"]))
        i, o, forget = (_gate(f, a[:, gate]) for gate in range(3))
        cells = _rounded(forget * cells, UNIT) + _rounded(i * looked_up(g, a[:, 3]), 2 * UNIT - FRACTION)
        cells = np.clip(cells, -MOST_CELL, MOST_CELL - 1)
        state = y[t] = _rounded(o * looked_up(last, cells), UNIT)
    return y, cells


def gru_reference(node: Node, p: Array, r: Array, h: Array, factors: Array, tables: Array, b: Array) -> Array:
    """y[t]; the product of the state, with its bias b (16 fractional bits), is reset."""
    y = np.zeros((*p.shape[:2], p.shape[3]), np.int64)
    state, shift = h.astype(np.int64), int(node.attrs["shift"])
    f, g = tables
    for t in _order(node, p):
        own, product = _products(node, p[t], state, r, factors)
        z, reset = (_gate(f, _rounded(own[:, gate] + product[:, gate], shift)) for gate in range(2))
        candidate = looked_up(g, _rounded(own[:, 2], shift) + _rounded(reset * (_rounded(product[:, 2], shift) + b), UNIT))
        state = y[t] = _rounded(((1 << UNIT) - z) * candidate + z * state, UNIT)
    return y


def rnn_reference(node: Node, p: Array, r: Array, h: Array, factors: Array, tables: Array) -> Array:
    """y[t] = f(p[t] + r h)."""
    y = np.zeros((*p.shape[:2], p.shape[3]), np.int64)
    state = h.astype(np.int64)
    for t in _order(node, p):
        own, product = _products(node, p[t], state, r, factors)
        state = y[t] = looked_up(tables[0], _rounded(own + product, int(node.attrs["shift"]))[:, 0])
    return y


def accepts(node: Node) -> str | None:
    """Sums of 32 bits."""
    return None if node.outputs[0].shape[-1] <= MOST_UNITS else f"at most {MOST_UNITS} units"


_TYPES = {"p": types("s32"), "r": types("s8"), "h": types("s16"), "c": types("s32"), "factors": types("s32"), "tables": types("s16")}
_TYPES |= {"b": types("s32"), "y": types("s16"), "cells": types("s32")}


def _operator(name: str, inputs: tuple[str, ...], reference: Reference) -> Operator:
    outputs = ("y", "cells") if "c" in inputs else ("y",)
    return Operator(
        name,
        inputs,
        _nest,
        reference,
        {
            "types": {each: _TYPES[each] for each in (*inputs, *outputs)},
            "outputs": outputs,
            "constants": tuple(each for each in inputs if each in ("r", "factors", "tables", "b")),
            "strided": {each: 1 for each in ("p", "h", "c", "y", "cells") if each in (*inputs, *outputs)},
            "tiling": WHOLE,
            "accepts": accepts,
        },
    )


INTEGER_LSTM = _operator("IntegerLSTM", ("p", "r", "h", "c", "factors", "tables"), lstm_reference)
INTEGER_GRU = _operator("IntegerGRU", ("p", "r", "h", "factors", "tables", "b"), gru_reference)
INTEGER_RNN = _operator("IntegerRNN", ("p", "r", "h", "factors", "tables"), rnn_reference)
