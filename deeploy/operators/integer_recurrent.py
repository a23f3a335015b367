"""Recurrent layers of quantised values in one direction (docs/integer-form.md): products of bytes, states and functions of 16 bits.

Sums of a gate are brought to 16 fractional bits; a function of them is a table of 16-bit values, between whose entries lies a
straight line, with 15 fractional bits. So have the states; the cells of an LSTM have 16 in 32 bits. All sums have 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import numpy as np

from deeploy.ir.kernel import Operator, Range, Reference, types
from deeploy.ir.nest import coupled, encoded, parallel, reduction
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators import recurrent
from deeploy.operators.accumulate import held, sums, values
from deeploy.operators.draws import FLAG, integers, sample
from deeploy.operators.elementwise import wide
from deeploy.operators.recurrent import GATES, WHOLE, drawn_operands, nest, scan

FRACTION = 16  # bits of what a function is applied to, and of cells
UNIT = 15  # bits of what a function leaves, and of states
REACH = 8  # of the tables, to both sides, twice that of gates: beyond it functions are what they are there
STEPS = 1024  # of a table, which has a value more
_BETWEEN = (2 * REACH << FRACTION) // STEPS  # values between two entries
MOST_CELL = 1 << 30
MOST_UNITS = 511  # for which products with the state have 32 bits


_DIMS = (*coupled("t"), *parallel("n", "k"), *reduction("g", "j"), *encoded("f", "entry", "gate", "part", of=parallel("k")))
# Products p of the inputs, weights r of the state h, factors of both products, a table for each function, biases b of a GRU.
_AXES = {"p": "t,n,g,k", "r": "g,k,j", "h": "n,j", "c": "n,k", "factors": "k,gate,part", "tables": "f,entry", "b": "k"}
_AXES |= {"y": "t,n,k", "cells": "n,k"}


def looked_up(table: Array, a: Array) -> Array:
    """The function at ``a``, with 15 fractional bits."""
    place = np.clip(a, -REACH << FRACTION, (REACH << FRACTION) - 1) + (REACH << FRACTION)
    step, rest, values = place // _BETWEEN, place % _BETWEEN, wide(table)
    return np.asarray((values[step] * (_BETWEEN - rest) + values[step + 1] * rest + (_BETWEEN >> 1)) // _BETWEEN)


def _gate_table(table: Array, a: Array) -> Array:
    """The function of gates of an LSTM or a GRU, whose table reaches twice as far: what they keep, they keep over many steps."""
    return looked_up(table, a >> 1)


def _round_shift(x: Any, bits: int) -> Array:
    return np.asarray((x + (1 << bits >> 1)) >> bits)


def _add_products(node: Node, p: Array, h: Array, r: Array, factors: Array) -> tuple[Array, Array]:
    """Those of the inputs and of the state h[n,j] r[g,k,j], in front of the shift of their sum [n,g,k]."""
    mul_p, mul_r = wide(factors).transpose(2, 1, 0)
    product = np.rint(np.einsum("nj,gkj->ngk", h.astype(np.float64), r.astype(np.float64))).astype(np.int64)
    return ((wide(p) << int(node.attrs["shift_p"])) * mul_p) >> 32, product * mul_r >> 32


def lstm_reference(node: Node, p: Array, r: Array, h: Array, c: Array, factors: Array, tables: Array) -> Any:
    """y[t], and the cells behind the last step.

    p[t,n,g,k] int32 (sums of the inputs with their biases), r[g,k,k] int8, h[n,k] int16 with 15 fractional bits, c[n,k] int32 with 16;
    factors[k,g,2] int32 of both products, tables[f,1025] int16; reverse, shift_p, shift. R(x, s) = (x + 2^(s-1)) >> s, P =
    (p*2^shift_p*factors[0]) >> 32, Q = ((r h)*factors[1]) >> 32; a = R(P + Q, shift) has 16 fractional bits. f(a) is a line between two
    values of a table from -8 to 8: u = clip(a) + 8*2^16, i = u >> 10, d = u & 1023, R(table[i]*(1024 - d) + table[i + 1]*d, 10); gates take
    a >> 1. c = clip(R(f(a_f)*c, 15) + R(f(a_i)*g(a_c), 14), -2^30, 2^30 - 1), h = R(f(a_o)*h(c), 15). No epilogue.
    """
    f, g, last = tables[0], tables[1], tables[-1]  # two where g and h are one function

    def step(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        a = _round_shift(sum(_add_products(node, x, h, r, factors)), int(node.attrs["shift"]))
        i, o, forget = (_gate_table(f, a[:, gate]) for gate in range(3))
        cells = _round_shift(forget * c, UNIT) + _round_shift(i * looked_up(g, a[:, 3]), 2 * UNIT - FRACTION)
        cells = np.clip(cells, -MOST_CELL, MOST_CELL - 1)
        return _round_shift(o * looked_up(last, cells), UNIT), cells

    return scan(node, p, step, wide(h), wide(c))


def gru_reference(node: Node, p: Array, r: Array, h: Array, factors: Array, tables: Array, b: Array) -> Any:
    """y[t]; the product of the state, with its bias b (16 fractional bits), is reset.

    Operands, R, P, Q and f as of IntegerLSTM. h = R((2^15 - z)*g(R(P_h, shift) + R(reset*(R(Q_h, shift) + b), 15)) + z*h, 15).
    """
    shift, (f, g) = int(node.attrs["shift"]), tables

    def step(x: Array, h: Array) -> tuple[Array]:
        own, product = _add_products(node, x, h, r, factors)
        z, reset = (_gate_table(f, _round_shift(own[:, gate] + product[:, gate], shift)) for gate in range(2))
        candidate = looked_up(g, _round_shift(own[:, 2], shift) + _round_shift(reset * (_round_shift(product[:, 2], shift) + b), UNIT))
        return (_round_shift(((1 << UNIT) - z) * candidate + z * h, UNIT),)

    return scan(node, p, step, wide(h))


def rnn_reference(node: Node, p: Array, r: Array, h: Array, factors: Array, tables: Array) -> Any:
    """y[t] = f(p[t] + r h); operands as of IntegerLSTM."""

    def step(x: Array, h: Array) -> tuple[Array]:
        return (looked_up(tables[0], _round_shift(sum(_add_products(node, x, h, r, factors)), int(node.attrs["shift"]))[:, 0]),)

    return scan(node, p, step, wide(h))


def state_requirement(node: Node) -> str | None:
    """What is wrong with a layer whose sums might not fit 32 bits, or None."""
    return None if node.outputs[0].shape[-1] <= MOST_UNITS else f"at most {MOST_UNITS} units"


def _bound_gates(inputs: Sequence[str], node: Node) -> dict[str, tuple[Range, Range]]:
    """Sums of gates in the order of the reference, and what equations make of them: all in 32 bits, of products upper halves."""
    given, shift = dict(zip(inputs, node.operands, strict=True)), int(node.attrs["shift"])
    state, tables, one = (-(1 << UNIT), (1 << UNIT) - 1), given["tables"].data, 1 << UNIT
    r = given["r"].data if given["r"].data is not None else np.full(given["r"].shape, 1 << 7)
    ends = sums(r.reshape(-1, r.shape[-1]), *state)
    product = max(int(np.abs(end).max(initial=0)) for end in ends)
    own = max(map(abs, values(given["p"]))) << int(node.attrs["shift_p"])
    factors = (np.full((1, 1, 2), 1 << 31, object) if given["factors"].data is None else abs(given["factors"].data.astype(object))).reshape(
        -1, 2
    )
    scaled = [(largest * int(factor) >> 32) + 1 for largest, factor in zip((own, product), factors.max(axis=0), strict=True)]
    least, most = (-one, one) if tables is None else (int(tables[0].min()), int(tables[0].max()))
    far = one if tables is None else int(np.abs(tables.astype(np.int64)).max())
    steps = {
        "products": held(-product, product),
        "scaled inputs": held(-own, own),
        "sums": held(-sum(scaled) - (1 << shift), sum(scaled) + (1 << shift)),
        "shift": ((shift, shift), (1, 31)),
        "lines": held(-2 * far << UNIT - 5, 2 * far << UNIT - 5),
    }
    if "c" in inputs:
        cells = (max(abs(least), abs(most)) * (MOST_CELL >> UNIT)) + (far * far >> 2 * UNIT - FRACTION) + one + 2
        return {**steps, "products of gates": held(-far * far - one, far * far + one), "cells": held(-cells, cells)}
    if "b" in inputs:
        apart = (scaled[1] >> shift) + 2 + max(map(abs, values(given["b"])))
        turned = (max(abs(least), abs(most)) * (apart + one >> UNIT)) + one + (scaled[0] >> shift) + 2
        states = max(abs(one - gate) * far + abs(gate) * one for gate in (least, most)) + one
        return {**steps, "reset products": held(-apart, apart), "candidates": held(-turned, turned), "states": held(-states, states)}
    return steps


_TYPES = {
    **dict.fromkeys(("p", "c", "factors", "b", "cells"), types("s32")),
    **dict.fromkeys(("h", "tables", "y"), types("s16")),
    "r": types("s8"),
}


def _list_factors(rng: Random, shape: tuple[int, ...]) -> Array:
    return integers(1 << 24, 1 << 26)(rng, shape) << np.array([0, 3], np.int32)


# Of which sums are of the size that tables are for.
_VALUES = {
    "p": integers(-(1 << 14), 1 << 14),
    "r": integers(-128, 127, np.int8),
    "h": integers(-32767, 32767, np.int16),
    "c": integers(-(1 << 18), 1 << 18),
    "factors": _list_factors,
    "tables": integers(-32767, 32767, np.int16),
    "b": integers(-(1 << 17), 1 << 17),
}


def _make_operator(name: str, inputs: tuple[str, ...], reference: Reference, functions: tuple[int, ...]) -> Operator:
    outputs = ("y", "cells") if "c" in inputs else ("y",)
    gates = (GATES[name.removeprefix("Integer")],)
    extents = {**recurrent.STEPS, "g": gates, "gate": gates, "part": (2,), "f": functions, "entry": (STEPS + 1,)}
    given = {**_VALUES, "reverse": FLAG, "shift_p": (14,), "shift": (1, 3, 4)}
    return Operator(
        name,
        inputs,
        nest(_DIMS, _AXES, inputs, outputs),
        reference,
        {
            "types": {each: _TYPES[each] for each in (*inputs, *outputs)},
            "outputs": outputs,
            "constants": tuple(each for each in inputs if each in ("r", "factors", "tables", "b")),
            "strided": {each: 1 for each in ("p", "h", "c", "y", "cells") if each in (*inputs, *outputs)},
            "tiling": WHOLE,
            "requires": state_requirement,
        },
        integers=partial(_bound_gates, inputs),
        draw=sample(drawn_operands(inputs, outputs, _AXES), extents=extents, **given),
    )


INTEGER_LSTM = _make_operator("IntegerLSTM", ("p", "r", "h", "c", "factors", "tables"), lstm_reference, (2, 3))
INTEGER_GRU = _make_operator("IntegerGRU", ("p", "r", "h", "factors", "tables", "b"), gru_reference, (2,))
INTEGER_RNN = _make_operator("IntegerRNN", ("p", "r", "h", "factors", "tables"), rnn_reference, (1,))
