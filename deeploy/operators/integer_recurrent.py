"""Recurrent layers of quantised values in one direction (docs/integer-form.md): products of bytes, states and functions of 16 bits.

Sums of a gate are brought to 16 fractional bits; a function of them is a table of 16-bit values, between whose entries lies a
straight line, with 15 fractional bits. So have the states; the cells of an LSTM have 16 in 32 bits.
"""

from __future__ import annotations

import numpy as np

from deeploy.graph.kernel import Operator, Reference, types
from deeploy.graph.nest import Map, Nest, coupled, encoded, parallel, reduction
from deeploy.graph.nodes import Node
from deeploy.operators.recurrent import WHOLE

FRACTION = 16  # bits of what a function is applied to, and of cells
UNIT = 15  # bits of what a function leaves, and of states
REACH = 8  # of the tables, to both sides: beyond it functions are what they are there
STEPS = 2048  # of a table, which has one entry more
_BETWEEN = (2 * REACH << FRACTION) // STEPS  # values between two entries
MOST_CELL = 1 << 30
MOST_UNITS = 511  # for which sums have 32 bits


def _nest(node: Node) -> Nest:
    """p[t,n,g,k] and r[g,k,j] of the state h[n,j], factors of both [g,k], a table for each function; a GRU's biases b[k]."""
    (t,), (n, k), (g, j) = coupled("t"), parallel("n", "k"), reduction("g", "j")
    f, entry = encoded("f", "entry", of=(k,))
    reads = {"p": Map(t, n, g, k), "r": Map(g, k, j), "h": Map(n, j)}
    reads |= {"c": Map(n, k)} if node.op == "IntegerLSTM" else {}
    reads |= {"mul_p": Map(g, k), "mul_r": Map(g, k), "tables": Map(f, entry)}
    reads |= {"b": Map(k)} if node.op == "IntegerGRU" else {}
    return Nest(reads, {"y": Map(t, n, k), **({"cells": Map(n, k)} if node.op == "IntegerLSTM" else {})})


def looked_up(table: np.ndarray, a: np.ndarray) -> np.ndarray:
    """The function at ``a``, with 15 fractional bits."""
    place = np.clip(a, -REACH << FRACTION, (REACH << FRACTION) - 1) + (REACH << FRACTION)
    entry, rest = place // _BETWEEN, place % _BETWEEN
    wide = table.astype(np.int64)
    return np.asarray(wide[entry] + (((wide[entry + 1] - wide[entry]) * rest + (_BETWEEN >> 1)) // _BETWEEN))


def _rounded(x: np.ndarray, bits: int) -> np.ndarray:
    return np.asarray((x + (1 << bits >> 1)) >> bits)


def _product(h: np.ndarray, r: np.ndarray) -> np.ndarray:
    """h[n,j] r[g,k,j], exactly."""
    return np.asarray(np.rint(np.einsum("nj,gkj->ngk", h.astype(np.float64), r.astype(np.float64))).astype(np.int64))


def _order(node: Node, p: np.ndarray) -> range:
    steps = range(p.shape[0])
    return steps[::-1] if node.attrs["reverse"] else steps


def _sums(node: Node, p: np.ndarray, h: np.ndarray, r: np.ndarray, mul_p: np.ndarray, mul_r: np.ndarray) -> np.ndarray:
    """All gates with 16 fractional bits: (p * mul_p + h r * mul_r + half) >> shift."""
    return _rounded(p.astype(np.int64) * mul_p + _product(h, r) * mul_r, int(node.attrs["shift"]))


def lstm_reference(
    node: Node, p: np.ndarray, r: np.ndarray, h: np.ndarray, c: np.ndarray, mul_p: np.ndarray, mul_r: np.ndarray, tables: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """y[t], and the cells behind the last step."""
    y = np.zeros((*p.shape[:2], p.shape[3]), np.int64)
    cells, state = c.astype(np.int64), h.astype(np.int64)
    f, g, last = tables
    for t in _order(node, p):
        a = _sums(node, p[t], state, r, mul_p, mul_r)
        i, o, forget = (looked_up(f, a[:, gate]) for gate in range(3))
        cells = _rounded(forget * cells, UNIT) + _rounded(i * looked_up(g, a[:, 3]), 2 * UNIT - FRACTION)
        cells = np.clip(cells, -MOST_CELL, MOST_CELL)
        state = y[t] = _rounded(o * looked_up(last, cells), UNIT)
    return y, cells


def gru_reference(
    node: Node, p: np.ndarray, r: np.ndarray, h: np.ndarray, mul_p: np.ndarray, mul_r: np.ndarray, tables: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """y[t]; the product of the state, with its bias b (16 fractional bits), is reset."""
    y = np.zeros((*p.shape[:2], p.shape[3]), np.int64)
    state, shift = h.astype(np.int64), int(node.attrs["shift"])
    f, g = tables
    for t in _order(node, p):
        own, product = p[t].astype(np.int64) * mul_p, _product(state, r) * mul_r
        z, reset = (looked_up(f, _rounded(own[:, gate] + product[:, gate], shift)) for gate in range(2))
        turned = _rounded(reset * (_rounded(product[:, 2], shift) + b), UNIT)
        candidate = looked_up(g, _rounded(own[:, 2], shift) + turned)
        state = y[t] = _rounded(((1 << UNIT) - z) * candidate + z * state, UNIT)
    return y


def rnn_reference(
    node: Node, p: np.ndarray, r: np.ndarray, h: np.ndarray, mul_p: np.ndarray, mul_r: np.ndarray, tables: np.ndarray
) -> np.ndarray:
    """y[t] = f(p[t] + r h)."""
    y = np.zeros((*p.shape[:2], p.shape[3]), np.int64)
    state = h.astype(np.int64)
    for t in _order(node, p):
        state = y[t] = looked_up(tables[0], _sums(node, p[t], state, r, mul_p, mul_r)[:, 0])
    return y


def accepts(node: Node) -> str | None:
    """Sums of 32 bits."""
    return None if node.outputs[0].shape[-1] <= MOST_UNITS else f"at most {MOST_UNITS} units"


_FACTORS = ("mul_p", "mul_r", "tables")
_TYPES = {"p": types("s32"), "r": types("s16"), "h": types("s16"), "c": types("s32"), "b": types("s32"), "y": types("s16")}


def _operator(name: str, inputs: tuple[str, ...], reference: Reference) -> Operator:
    outputs = ("y", "cells") if "c" in inputs else ("y",)
    factors = {"mul_p": types("s32"), "mul_r": types("s32"), "tables": types("s16"), "cells": types("s32")}
    return Operator(
        name,
        inputs,
        _nest,
        reference,
        {
            "types": {each: {**_TYPES, **factors}[each] for each in (*inputs, *outputs)},
            "outputs": outputs,
            "constants": tuple(each for each in inputs if each in ("r", "b", *_FACTORS)),
            "strided": {each: 1 for each in ("p", "h", "c", "y", "cells") if each in (*inputs, *outputs)},
            "tiling": WHOLE,
            "accepts": accepts,
        },
    )


INTEGER_LSTM = _operator("IntegerLSTM", ("p", "r", "h", "c", *_FACTORS), lstm_reference)
INTEGER_GRU = _operator("IntegerGRU", ("p", "r", "h", *_FACTORS, "b"), gru_reference)
INTEGER_RNN = _operator("IntegerRNN", ("p", "r", "h", *_FACTORS), rnn_reference)
