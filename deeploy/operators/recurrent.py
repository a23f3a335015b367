"""Recurrent layers (docs/integer-form.md): LSTM, GRU and RNN in one direction, on what their inputs were multiplied by already.

A layer of several steps holds the weights of its state: every step depends on all of the one before, so that steps follow each other in
one call, in which cores divide the units and meet after each step. A cell is one step whose product with the state was made outside.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from deeploy.ir.expr import Dim
from deeploy.ir.kernel import FLOAT, FLOAT_OR_HALF, Operator, Reference, Tiling
from deeploy.ir.nest import Map, Nest, coupled, encoded, parallel, reduction
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.draws import FLAG, sample
from deeploy.operators.elementwise import apply_function, is_exact

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
WHOLE = Tiling(whole=("k",))
STEPS = {"t": (1, 2, 5), "n": (1, 1, 2, 3)}  # how many are drawn
_RUN = 16  # float products that are added up before they enter the accumulator


_ENCODED = parallel("k")
_LAYER = (*coupled("t"), *parallel("n", "k"), *reduction("g", "j"), *encoded("e", of=_ENCODED))
_CELL = (*parallel("n", "k"), *encoded("g", "e", of=_ENCODED))
# Products of the inputs p and of the state q, weights r of the state h, state c of an LSTM and its peepholes w, biases b of a GRU.
_AXES = {"p": "t,n,g,k", "r": "g,k,j", "h": "n,j", "c": "n,k", "b": "k", "w": "e,k", "y": "t,n,k", "cells": "n,k"}
_CELL_AXES = {**dict.fromkeys("pq", "n,g,k"), **dict.fromkeys(("h", "c", "y", "cells"), "n,k"), "w": "e,k"}


def nest(dims: Sequence[Dim], axes: Mapping[str, str], inputs: Sequence[str], outputs: Sequence[str]) -> Callable[[Node], Nest]:
    """The nest of an operator by the axes of its operands."""
    named = {dim.name: dim for dim in dims}
    reads, writes = ({n: Map(*(named[axis] for axis in axes[n].split(","))) for n in names} for names in (inputs, outputs))
    return lambda node: Nest(reads, writes)


def scan(node: Node, p: Array, step: Callable[..., tuple[Array, ...]], *states: Array) -> Array | tuple[Array, ...]:
    """y[t], the first state behind every step, and what the others are behind the last one.

    Args:
        step: of p[t] and all states.
    """
    y, order = np.zeros((*p.shape[:2], p.shape[-1]), p.dtype), range(len(p))
    for t in order[::-1] if node.attrs["reverse"] else order:
        states = step(p[t], *states)
        y[t] = states[0]
    return (y, *states[1:]) if len(states) > 1 else y


def _apply_activation(node: Node, number: int) -> Callable[[Array], Array]:
    name, alpha, beta = (node.attrs[key][number] for key in ("functions", "alphas", "betas"))
    return lambda x: apply_function(name, x, alpha, beta)


def _clip_state(node: Node, x: Array) -> Array:
    clip = node.attrs["clip"]
    return x if clip == 0 else np.clip(x, np.float32(-clip), np.float32(clip))


def _multiply_state(h: Array, r: Array) -> Array:
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
    f, g, h = (_apply_activation(node, number) for number in range(3))
    i_in, o_in, f_in, g_in = (a[:, gate] for gate in range(4))
    if w is not None:
        i_in, f_in = i_in + w[0] * c, f_in + w[2] * c
    i = f(_clip_state(node, i_in))
    forget = 1 - i if node.attrs["input_forget"] else f(_clip_state(node, f_in))
    c = np.asarray(forget * c + i * g(_clip_state(node, g_in)), np.float32)
    o = f(_clip_state(node, o_in + w[1] * c if w is not None else o_in))
    return np.asarray(o * h(c), np.float32), c


def _gru_step(node: Node, p: Array, q: Array, h: Array, r: Array | None) -> Array:
    """The state behind a step; ``r`` are the weights of the candidate where the state is reset before they multiply it."""
    f, g = (_apply_activation(node, number) for number in range(2))
    z, reset = f(_clip_state(node, p[:, 0] + q[:, 0])), f(_clip_state(node, p[:, 1] + q[:, 1]))
    product = reset * q[:, 2] if r is None else _multiply_state(np.asarray(reset * h, np.float32), r)
    candidate = g(_clip_state(node, p[:, 2] + product))
    return np.asarray((1 - z) * candidate + z * h, np.float32)


def lstm_reference(node: Node, p: Array, r: Array, h: Array, c: Array, w: Array | None = None) -> Any:
    """y[t] and the cells behind the last step.

    p[t,n,g,k] float (what the inputs were multiplied by, with all biases of theirs), r[g,k,k], h[n,k], c[n,k], peepholes w[3,k]; functions,
    alphas, betas of ONNX, clip (0: none), reverse, input_forget. One direction of ONNX's operator, gates g in its order. No epilogue.
    """
    return scan(node, p, lambda a, h, c: _lstm_step(node, a + _multiply_state(h, r), c, w), h, c)


def lstm_cell_reference(node: Node, p: Array, q: Array, c: Array, w: Array | None = None) -> tuple[Array, Array]:
    """One step of an LSTM; q[n,g,k] is the product of the state."""
    return _lstm_step(node, p + q, c, w)


def gru_reference(node: Node, p: Array, r: Array, h: Array, b: Array | None = None) -> Any:
    """y[t]. With ``b``, the product of the state is reset, of which b is the candidate's bias; without it the state is.

    Operands and attributes as of LSTM.
    """

    def step(a: Array, h: Array) -> tuple[Array]:
        q = _multiply_state(h, r)
        if b is not None:
            q[:, 2] += b
        return (_gru_step(node, a, q, h, r[2] if b is None else None),)

    return scan(node, p, step, h)


def gru_cell_reference(node: Node, p: Array, q: Array, h: Array) -> Array:
    """One step of a GRU, in which q[n,g,k], the product of the state, is reset."""
    return _gru_step(node, p, q, h, None)


def rnn_reference(node: Node, p: Array, r: Array, h: Array) -> Any:
    """y[t] = f(p[t] + r h); operands and attributes as of LSTM."""
    f = _apply_activation(node, 0)
    return scan(node, p, lambda a, h: (f(_clip_state(node, a[:, 0] + _multiply_state(h, r)[:, 0])),), h)


_FUNCTIONS = tuple(itertools.product(("sigmoid", "tanh", "hard_sigmoid", "softsign"), repeat=3))


def _draw_weights(rng: Random, shape: tuple[int, ...]) -> Array:
    """With which differences of rounding do not grow from step to step."""
    drawn = np.random.default_rng(rng.getrandbits(32)).standard_normal(shape)
    return np.asarray(drawn / (2 * math.sqrt(shape[-1])), np.float32)


def drawn_operands(inputs: Sequence[str], outputs: Sequence[str], axes: Mapping[str, str]) -> str:
    """Operands with the axes that they are drawn with: units of the state are those of the layer."""
    return " ".join(f"{name}[{axes[name.rstrip('?')].replace('j', 'k')}]" for name in (*inputs, *outputs))


def _make_operator(name: str, inputs: tuple[str, ...], reference: Reference) -> Operator:
    outputs = ("y", "cells") if name.startswith("LSTM") else ("y",)
    is_cell, operands = name.endswith("Cell"), (*(each.rstrip("?") for each in inputs), *outputs)
    dims, axes = (_CELL, _CELL_AXES) if is_cell else (_LAYER, _AXES)
    extents = {**STEPS, "e": (3,), "g": (GATES[name.removesuffix("Cell")],)}
    given = {
        "alphas": ((0.3,) * 3,),
        "betas": ((0.4,) * 3,),
        "functions": _FUNCTIONS,
        "clip": (0.0, 0.7),
        "input_forget": FLAG,
        "reverse": FLAG,
    }
    return Operator(
        name,
        inputs,
        nest(dims, axes, [each.rstrip("?") for each in inputs], outputs),
        reference,
        {
            "types": {each: FLOAT_OR_HALF if each == "r" else FLOAT for each in operands},
            "outputs": outputs,
            "constants": tuple(each for each in operands if each in ("r", "b", "w")),
            "strided": {each: 1 for each in operands if each not in ("r", "w")},
            "tiling": Tiling() if is_cell else WHOLE,
        },
        calls_library=lambda node: not all(map(is_exact, node.attrs["functions"])),
        draw=sample(drawn_operands(inputs, outputs, axes), extents=extents, r=_draw_weights, **given),
    )


LSTM = _make_operator("LSTM", ("p", "r", "h", "c", "w?"), lstm_reference)
GRU = _make_operator("GRU", ("p", "r", "h", "b?"), gru_reference)
RNN = _make_operator("RNN", ("p", "r", "h"), rnn_reference)
LSTM_CELL = _make_operator("LSTMCell", ("p", "q", "c", "w?"), lstm_cell_reference)
GRU_CELL = _make_operator("GRUCell", ("p", "q", "h"), gru_cell_reference)
