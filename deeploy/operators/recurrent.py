"""Recurrent layers (docs/integer-form.md): LSTM, GRU and RNN in one direction, on what their inputs were multiplied by already.

A layer of several steps holds the weights of its state: every step depends on all of the one before, so that steps follow each other in
one call, in which cores divide the units and meet after each step. A cell is one step whose product with the state was made outside.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from deeploy.graph.kernel import FLOAT, FLOAT_OR_HALF, Operator, Reference, Tiling
from deeploy.graph.nest import Dim, Kind, Map, Nest, coupled, encoded, parallel, reduction
from deeploy.graph.nodes import Node
from deeploy.graph.types import Array
from deeploy.operators.elementwise import apply_function, is_exact

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
WHOLE = Tiling(whole=("k",))
_RUN = 16  # float products that are added up before they enter the accumulator


def _nest(node: Node) -> Nest:
    """p[t,n,g,k] and r[g,k,j] of the state h[n,j]; an LSTM has a state c[n,k] besides, and peepholes w[e,k]; a GRU biases b[k]."""
    (t,), (n, k), (g, j) = coupled("t"), parallel("n", "k"), reduction("g", "j")
    (e,) = encoded("e", of=(k,))
    reads = {"p": Map(t, n, g, k), "r": Map(g, k, j), "h": Map(n, j), "c": Map(n, k), "b": Map(k), "w": Map(e, k)}
    return _of(node, reads, Map(t, n, k), Map(n, k))


def _cell_nest(node: Node) -> Nest:
    """p[n,g,k] of the input, q[n,g,k] of the state."""
    n, k = parallel("n", "k")
    g, e = (Dim(name, Kind.ENCODED, of=(k,)) for name in "ge")
    reads = {"p": Map(n, g, k), "q": Map(n, g, k), "h": Map(n, k), "c": Map(n, k), "w": Map(e, k)}
    return _of(node, reads, Map(n, k), Map(n, k))


def _of(node: Node, reads: dict[str, Map], y: Map, cells: Map) -> Nest:
    """The nest with the operands that an operator has."""
    is_lstm = node.op.startswith("LSTM")
    absent = {"b"} if is_lstm else {"c", "w"} if node.op.startswith("GRU") else {"b", "c", "w"}
    absent |= {"h"} if node.op == "LSTMCell" else set()
    return Nest({name: access for name, access in reads.items() if name not in absent}, {"y": y, **({"cells": cells} if is_lstm else {})})


def _function(node: Node, number: int) -> Callable[[Array], Array]:
    name, alpha, beta = (node.attrs[key][number] for key in ("functions", "alphas", "betas"))
    return lambda x: apply_function(name, x, alpha, beta)


def _clipped(node: Node, x: Array) -> Array:
    clip = node.attrs["clip"]
    return x if clip == 0 else np.clip(x, np.float32(-clip), np.float32(clip))


def _product(h: Array, r: Array) -> Array:
    """h[n,j] r[..,k,j], summed in float32, in runs of 16."""
    acc = np.zeros((h.shape[0], *r.shape[:-1]), np.float32)
    for begin in range(0, h.shape[1], _RUN):
        part = np.zeros_like(acc)
        for j in range(begin, min(begin + _RUN, h.shape[1])):
            part += h[:, j].reshape(-1, *[1] * (r.ndim - 1)) * r[..., j]
        acc += part
    return acc


def _lstm_step(node: Node, a: Array, c: Array, w: Array | None) -> tuple[Array, Array]:
    """The states behind a step; ``a`` [n,g,k] in the order of ONNX: input, output, forget gate, candidate."""
    f, g, h = (_function(node, number) for number in range(3))
    i_in, o_in, f_in, g_in = (a[:, gate] for gate in range(4))
    if w is not None:
        i_in, f_in = i_in + w[0] * c, f_in + w[2] * c
    i = f(_clipped(node, i_in))
    forget = 1 - i if node.attrs["input_forget"] else f(_clipped(node, f_in))
    c = np.asarray(forget * c + i * g(_clipped(node, g_in)), np.float32)
    o = f(_clipped(node, o_in + w[1] * c if w is not None else o_in))
    return np.asarray(o * h(c), np.float32), c


def _gru_step(node: Node, p: Array, q: Array, h: Array, r: Array | None) -> Array:
    """The state behind a step; ``r`` are the weights of the candidate where the state is reset before they multiply it."""
    f, g = (_function(node, number) for number in range(2))
    z, reset = f(_clipped(node, p[:, 0] + q[:, 0])), f(_clipped(node, p[:, 1] + q[:, 1]))
    product = reset * q[:, 2] if r is None else _product(np.asarray(reset * h, np.float32), r)
    candidate = g(_clipped(node, p[:, 2] + product))
    return np.asarray((1 - z) * candidate + z * h, np.float32)


def _order(node: Node, p: Array) -> range:
    steps = range(p.shape[0])
    return steps[::-1] if node.attrs["reverse"] else steps


def lstm_reference(node: Node, p: Array, r: Array, h: Array, c: Array, w: Array | None = None) -> tuple[Array, Array]:
    """y[t] and the cells behind the last step."""
    y = np.zeros((*p.shape[:2], p.shape[3]), np.float32)
    for t in _order(node, p):
        y[t], c = _lstm_step(node, p[t] + _product(h, r), c, w)
        h = y[t]
    return y, c


def lstm_cell_reference(node: Node, p: Array, q: Array, c: Array, w: Array | None = None) -> tuple[Array, Array]:
    """One step."""
    return _lstm_step(node, p + q, c, w)


def gru_reference(node: Node, p: Array, r: Array, h: Array, b: Array | None = None) -> Array:
    """y[t]. With ``b``, the product of the state is reset, of which b is the candidate's bias; without it the state is."""
    y = np.zeros((*p.shape[:2], p.shape[3]), np.float32)
    for t in _order(node, p):
        q = _product(h, r)
        if b is not None:
            q[:, 2] += b
        h = y[t] = _gru_step(node, p[t], q, h, r[2] if b is None else None)
    return y


def gru_cell_reference(node: Node, p: Array, q: Array, h: Array) -> Array:
    """One step, in which the product of the state is reset."""
    return _gru_step(node, p, q, h, None)


def rnn_reference(node: Node, p: Array, r: Array, h: Array) -> Array:
    """y[t] = f(p[t] + r h)."""
    f = _function(node, 0)
    y = np.zeros((*p.shape[:2], p.shape[3]), np.float32)
    for t in _order(node, p):
        h = y[t] = f(_clipped(node, p[t, :, 0] + _product(h, r)[:, 0]))
    return y


def _operator(name: str, inputs: tuple[str, ...], reference: Reference) -> Operator:
    outputs = ("y", "cells") if name.startswith("LSTM") else ("y",)
    is_cell, operands = name.endswith("Cell"), (*(each.rstrip("?") for each in inputs), *outputs)
    return Operator(
        name,
        inputs,
        _cell_nest if is_cell else _nest,
        reference,
        {
            "types": {each: FLOAT_OR_HALF if each == "r" else FLOAT for each in operands},
            "outputs": outputs,
            "constants": tuple(each for each in operands if each in ("r", "b", "w")),
            "strided": {each: 1 for each in operands if each not in ("r", "w")},
            "tiling": Tiling() if is_cell else WHOLE,
        },
        calls_library=lambda node: not all(map(is_exact, node.attrs["functions"])),
    )


LSTM = _operator("LSTM", ("p", "r", "h", "c", "w?"), lstm_reference)
GRU = _operator("GRU", ("p", "r", "h", "b?"), gru_reference)
RNN = _operator("RNN", ("p", "r", "h"), rnn_reference)
LSTM_CELL = _operator("LSTMCell", ("p", "q", "c", "w?"), lstm_cell_reference)
GRU_CELL = _operator("GRUCell", ("p", "q", "h"), gru_cell_reference)
