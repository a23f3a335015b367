"""Recurrent layers step by step: those whose weights are computed, and those that quantise at run time what they multiply.

All others stay one operator of the network (``deeploy.frontend.lower.recurrent``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deeploy.frontend.expand.expansion import Expansion, Refusal, Results, declares, expands, is_fixed
from deeploy.frontend.expand.products import to_float
from deeploy.frontend.recurrent import ACTIVATIONS
from deeploy.frontend.vendors import ACTIVATIONS as ACTIVATION_NAMES
from deeploy.ir.nodes import Tensor, concat, constant
from deeploy.operators.recurrent import GATES

Product = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]  # what a step hands on: h, and c of an LSTM


@dataclass(frozen=True)
class _ExpandedDirection:
    """One direction of a layer: products of inputs and of states, the biases of both, peepholes, and the first state."""

    of_input: Product
    of_state: Product
    bias: Sequence[Tensor] | None
    peepholes: Sequence[Tensor] | None
    state: State
    resets_product: bool  # of a GRU: the reset gate scales the product of the state, not the state

    @property
    def width(self) -> int:
        return self.state[0].shape[1]


def _step_lstm(layer: _ExpandedDirection, a: Tensor, h: Tensor, c: Tensor) -> State:
    i, o, f, g = (a + layer.of_state(h)).split(1, [layer.width] * 4)
    if layer.peepholes is not None:
        i, f = i + layer.peepholes[0] * c, f + layer.peepholes[2] * c
    c = f.apply("Sigmoid") * c + i.apply("Sigmoid") * g.apply("Tanh")
    if layer.peepholes is not None:
        o = o + layer.peepholes[1] * c
    return o.apply("Sigmoid") * c.apply("Tanh"), c


def _step_gru(layer: _ExpandedDirection, a: Tensor, h: Tensor) -> State:
    width = layer.width
    z_in, r_in, n_in = a.split(1, [width] * 3)
    z_state, r_state, n_state = layer.of_state(h).split(1, [width] * 3)
    z, r = (z_in + z_state).apply("Sigmoid"), (r_in + r_state).apply("Sigmoid")
    offset = None if layer.bias is None else layer.bias[1].cut(0, 2 * width, 3 * width)
    if layer.resets_product:
        n = n_in + r * (n_state if offset is None else n_state + offset)
    else:
        n = n_in + layer.of_state(r * h).cut(1, 2 * width, 3 * width)
        n = n if offset is None else n + offset
    n = n.apply("Tanh")
    return ((1 - z) * n + z * h,)


def _step_rnn(layer: _ExpandedDirection, a: Tensor, h: Tensor) -> State:
    return ((a + layer.of_state(h)).apply("Tanh"),)


_STEPS: dict[str, Callable[..., State]] = dict(zip(GATES, (_step_lstm, _step_gru, _step_rnn), strict=True))


def _run_steps(m: Expansion, op: str, layer: _ExpandedDirection, x: Tensor, is_reverse: bool) -> tuple[list[Tensor], State]:
    """The states behind all steps of inputs [steps, batch, width], and the last one."""
    steps, batch, width = x.shape
    m.spend(12 * steps)
    products = layer.of_input(x.reshape([steps * batch, width]))
    if layer.bias is not None:
        of_input, of_state = layer.bias
        if op == "GRU":  # that of the candidate is added where the state is reset
            of_state = of_state.cut(0, 0, 2 * layer.width).pad([0], [layer.width])
        products = products + of_input + of_state
    rows = products.reshape([steps, batch, -1])
    state, results = layer.state, list[Tensor]()
    for step in range(steps)[:: -1 if is_reverse else 1]:
        state = _STEPS[op](layer, rows.cut(0, step, step + 1).reshape([batch, -1]), *state)
        results.append(state[0])
    return results[:: -1 if is_reverse else 1], state


def _select_direction(x: Tensor, number: int) -> Tensor:
    """What belongs to one direction."""
    return x.cut(0, number, number + 1).reshape(x.shape[1:])


def _find_refusal(m: Expansion, op: str) -> str:
    """What a layer has that steps are not written for; "" for nothing."""
    given = [str(name).lower() for name in m.attrs.get("activations", [])]
    usual = [name.lower() for name in ACTIVATIONS[op]]
    if given and given != usual * (len(given) // len(usual)):
        return "other activations"
    return "a clip" if m.attrs.get("clip") else "coupled gates" if m.attrs.get("input_forget") else ""


def _join_directions(
    m: Expansion, op: str, x: Tensor, directions: int, products: Callable[[int], tuple[Product, Product]]
) -> list[Tensor | None]:
    """The outputs of a layer of one or two directions; ``products`` are those of inputs and of states of one."""
    is_batch_first, width = int(bool(m.attrs.get("layout"))), int(m.attrs["hidden_size"])
    x = x.transpose([1, 0, 2]) if is_batch_first else x
    batch, size = x.shape[1], GATES[op] * width
    biases, peepholes = m.input(3), m.input(7) if op == "LSTM" else None
    is_reverse = str(m.attrs.get("direction", "forward")).lower() == "reverse"

    def begin(position: int, number: int) -> Tensor:
        states = m.input(position)
        if states is None:
            return constant(np.zeros((batch, width), np.float32))
        return states.cut(is_batch_first, number, number + 1).reshape([batch, width])

    runs = [
        _run_steps(
            m,
            op,
            _ExpandedDirection(
                *products(number),
                None if biases is None else _select_direction(biases, number).split(0, [size, size]),
                None if peepholes is None else _select_direction(peepholes, number).split(0, [width] * 3),
                tuple(begin(position, number) for position in ((5, 6) if op == "LSTM" else (5,))),
                bool(m.attrs.get("linear_before_reset")),
            ),
            x,
            is_reverse or number == 1,
        )
        for number in range(directions)
    ]
    y = concat([concat([h.reshape([1, 1, *h.shape]) for h in states_of_run], 0) for states_of_run, _ in runs], 1)
    ends = [concat([state.reshape([1, *state.shape]) for state in states], 0) for states in zip(*(last for _, last in runs), strict=True)]
    return [y.transpose([2, 0, 1, 3]), *(end.transpose([1, 0, 2]) for end in ends)] if is_batch_first else [y, *ends]


@expands(*_STEPS)
def expand_computed(m: Expansion, x: Tensor, weights: Tensor, recurrence: Tensor) -> Results:
    """Weights that are computed at run time."""
    lengths, given = m.input(4), [tensor for tensor in (weights, recurrence, m.input(3), m.input(7)) if tensor is not None]
    steps = x.shape[int(m.attrs.get("layout", 0))]
    is_whole = lengths is None or (lengths.data is not None and (lengths.data == steps).all())
    if all(map(is_fixed, given)) or _find_refusal(m, m.op) or not is_whole:
        return None

    def products(number: int) -> tuple[Product, Product]:
        left, right = (_select_direction(matrix, number).swap_last() for matrix in (weights, recurrence))
        return (lambda x: x @ left), (lambda h: h @ right)

    return _join_directions(m, m.op, x, weights.shape[0], products)


@declares(
    "DynamicQuantizeLSTM",
    f"hidden_size: positive; activations?: strings {ACTIVATION_NAMES}; activation_alpha? activation_beta?: floats; clip?: float; "
    "direction?: string forward|reverse|bidirectional; input_forget?: int",
    inputs=(1, 12),
    rank=3,
)
def expand_dynamic(m: Expansion, x: Tensor, weights: Tensor) -> Results:
    """Inputs, and in every step the states, are quantised by their extremes and multiplied by integers."""
    lengths = m.value(4)
    if problem := _find_refusal(m, "LSTM") or ("lengths of sequences" if lengths is not None and (lengths != x.shape[0]).any() else ""):
        raise Refusal(f"has {problem}", "export the model with an LSTM of floats")

    def product(number: int, *positions: int) -> Product:
        matrix, scale, zero = (_select_direction(tensor, number) for position in positions if (tensor := m.input(position)) is not None)

        def of(x: Tensor) -> Tensor:
            integers, step, offset = m.compute_several("DynamicQuantizeLinear", 3, x)
            return to_float(integers, matrix, step * scale, offset, zero)

        return of

    return _join_directions(m, "LSTM", x, weights.shape[0], lambda number: (product(number, 1, 8, 9), product(number, 2, 10, 11)))
