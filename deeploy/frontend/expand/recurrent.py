"""Recurrent layers step by step: those whose weights are computed, and those that quantise at run time what they multiply.

All others stay one operator of the network (``deeploy.frontend.lower.recurrent``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deeploy.frontend.expand.builder import Builder, Operand
from deeploy.frontend.expand.products import to_float

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_USUAL = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
Product = Callable[[Operand], Operand]


@dataclass(frozen=True)
class _Direction:
    """One direction of a layer: products of inputs and of states, the biases of both, peepholes, and the first states."""

    of_input: Product
    of_state: Product
    bias: tuple[Operand, Operand] | None
    peepholes: list[Operand] | None
    h: Operand
    c: Operand | None


def _lstm(b: Builder, layer: _Direction, a: Operand, h: Operand, c: Operand | None) -> tuple[Operand, Operand | None]:
    assert c is not None
    a = a + layer.of_state(h)
    width = h.shape[1]
    i, o, f, g = a.split(1, [width] * 4)
    if layer.peepholes is not None:
        i, f = i + layer.peepholes[0] * c, f + layer.peepholes[2] * c
    c = f.apply("Sigmoid") * c + i.apply("Sigmoid") * g.apply("Tanh")
    if layer.peepholes is not None:
        o = o + layer.peepholes[1] * c
    return o.apply("Sigmoid") * c.apply("Tanh"), c


def _gru(b: Builder, layer: _Direction, a: Operand, h: Operand, c: Operand | None) -> tuple[Operand, Operand | None]:
    width = h.shape[1]
    z_in, r_in, n_in = a.split(1, [width] * 3)
    z_state, r_state, n_state = layer.of_state(h).split(1, [width] * 3)
    z, r = (z_in + z_state).apply("Sigmoid"), (r_in + r_state).apply("Sigmoid")
    offset = None if layer.bias is None else layer.bias[1].slice(0, 2 * width, 3 * width)
    if not b.integer("linear_before_reset", 0):
        n_state = layer.of_state(r * h).slice(1, 2 * width, 3 * width)
        n = n_in + n_state if offset is None else n_in + n_state + offset
    else:
        n = n_in + r * (n_state if offset is None else n_state + offset)
    n = n.apply("Tanh")
    return (1 - z) * n + z * h, None


def _rnn(b: Builder, layer: _Direction, a: Operand, h: Operand, c: Operand | None) -> tuple[Operand, Operand | None]:
    return (a + layer.of_state(h)).apply("Tanh"), None


_STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


def _run(b: Builder, op: str, layer: _Direction, x: Operand, is_reverse: bool) -> tuple[list[Operand], Operand, Operand | None]:
    """The states behind all steps of inputs [steps, batch, width], and the last ones."""
    steps, batch, width = x.shape
    b.spend(12 * steps)
    products = layer.of_input(x.reshape(steps * batch, width))
    if layer.bias is not None:
        of_input, of_state = layer.bias
        rest = of_state if op != "GRU" else None
        products = products + of_input + rest if rest is not None else products + of_input + _gates_alone(b, of_state)
    rows = products.reshape(steps, batch, products.shape[1])
    h, c, found = layer.h, layer.c, []
    for step in range(steps)[:: -1 if is_reverse else 1]:
        h, c = _STEPS[op](b, layer, rows.slice(0, step, step + 1).reshape(batch, rows.shape[2]), h, c)
        found.append(h)
    return found[:: -1 if is_reverse else 1], h, c


def _gates_alone(b: Builder, bias: Operand) -> Operand:
    """The state's bias of a GRU without that of the candidate, which is added where the state is reset."""
    width = bias.shape[0] // 3
    return bias.slice(0, 0, 2 * width).pad([0], [width])


def _whole(b: Builder, op: str, directions: int, layer: Callable[[int, int, int], _Direction]) -> list[Operand | None]:
    """The outputs of a layer of one or two directions; ``layer`` gives one of them, for a batch and a width of the state."""
    x, is_batch_first = b.needed(0), bool(b.integer("layout", 0))
    x = x.transpose(1, 0, 2) if is_batch_first else x
    width = b.integer("hidden_size", 0)
    reverse = b.text("direction", "forward").lower() == "reverse"
    runs = [_run(b, op, layer(number, x.shape[1], width), x, reverse or number == 1) for number in range(directions)]
    sequences = [b.concat([h.reshape(1, 1, *h.shape) for h in found], 0) for found, _, _ in runs]
    y = sequences[0] if directions == 1 else b.concat(sequences, 1)
    ends = [
        b.concat([h.reshape(1, *h.shape) for h in last], 0)
        for last in ([h for _, h, _ in runs], [c for _, _, c in runs if c is not None])
        if last
    ]
    if is_batch_first:
        return [y.transpose(2, 0, 1, 3), *(end.transpose(1, 0, 2) for end in ends)]
    return [y, *ends]


def _states(b: Builder, position: int, number: int, batch: int, width: int) -> Operand:
    """The first state of a direction [batch, width], zeros where it is absent."""
    found = b.input(position)
    if found is None:
        return b.zeros(batch, width)
    axis = int(bool(b.integer("layout", 0)))
    return found.slice(axis, number, number + 1).reshape(batch, width)


def _part(x: Operand | None, number: int) -> Operand | None:
    """What belongs to one direction."""
    return None if x is None else x.slice(0, number, number + 1).reshape(*x.shape[1:])


def _refuses(b: Builder, op: str) -> str:
    """What a layer has that steps are not written for; "" for nothing."""
    given = [str(name).lower() for name in b.attributes.get("activations", [])]
    usual = [name.lower() for name in _USUAL[op]]
    if given and given != usual * (len(given) // len(usual)):
        return "other activations"
    return "a clip" if b.number("clip", 0) else "coupled gates" if b.integer("input_forget", 0) else ""


def _common(b: Builder, op: str, number: int, batch: int, width: int, products: tuple[Product, Product]) -> _Direction:
    offset, peepholes = _part(b.input(3), number), _part(b.input(7), number) if op == "LSTM" else None
    size = _GATES[op] * width
    bias = None if offset is None else (offset.slice(0, 0, size), offset.slice(0, size, 2 * size))
    cells = _states(b, 6, number, batch, width) if op == "LSTM" else None
    return _Direction(
        *products, bias, None if peepholes is None else peepholes.split(0, [width] * 3), _states(b, 5, number, batch, width), cells
    )


def computed(b: Builder) -> list[Operand | None] | None:
    """LSTM, GRU and RNN with weights that are computed at run time."""
    op = b.node.op_type
    weights = [b.input(position) for position in (1, 2, 3, 7)]
    lengths = b.input(4)
    is_whole = lengths is None or (lengths.value is not None and (lengths.value == b.needed(0).shape[b.integer("layout", 0)]).all())
    if all(each is None or each.is_fixed for each in weights) or _refuses(b, op) or not is_whole:
        return None

    def layer(number: int, batch: int, width: int) -> _Direction:
        of_input, of_state = (_part(b.needed(position), number) for position in (1, 2))
        assert of_input is not None and of_state is not None
        left, right = of_input.swap_last(), of_state.swap_last()
        return _common(b, op, number, batch, width, (lambda x: x @ left, lambda h: h @ right))

    return _whole(b, op, b.needed(1).shape[0], layer)


def dynamic(b: Builder) -> list[Operand | None]:
    """DynamicQuantizeLSTM: inputs, and in every step the states, are quantised by their extremes and multiplied by integers."""
    lengths = b.constant_input(4)
    if problem := _refuses(b, "LSTM") or (
        "lengths of sequences" if lengths is not None and (lengths != b.needed(0).shape[0]).any() else ""
    ):
        raise b.refused(f"has {problem}", "export the model with an LSTM of floats")

    def product(number: int, positions: tuple[int, int, int]) -> Product:
        weights, scale, zero = (_part(b.needed(position), number) for position in positions)
        assert weights is not None and scale is not None and zero is not None

        def of(x: Operand) -> Operand:
            bytes_, step, offset = b.several("DynamicQuantizeLinear", 3, x)
            return to_float(b, bytes_, weights, step * scale, offset, zero)

        return of

    def layer(number: int, batch: int, width: int) -> _Direction:
        return _common(b, "LSTM", number, batch, width, (product(number, (1, 8, 9)), product(number, (2, 10, 11))))

    return _whole(b, "LSTM", b.needed(1).shape[0], layer)


RECURRENT: Mapping[str, Callable[[Builder], list[Operand | None] | None]] = dict.fromkeys(_GATES, computed)
