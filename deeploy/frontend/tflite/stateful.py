"""Operators of TensorFlow Lite with variables that carry over from one inference to the next: SVDF and UNIDIRECTIONAL_SEQUENCE_LSTM.

A variable becomes an input and an output of the model that are one state (docs/state.md). Integers are those of the kernels that store
filters in 8 and states in 16 bits (tensorflow/lite/kernels/internal/reference/svdf.h, tensorflow/lite/kernels/lstm_eval.cc).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deeploy.frontend.tflite import quantised
from deeploy.frontend.tflite.fixed_point import WORD, Shift, quantise_factor
from deeploy.frontend.tflite.network import LiteCall, LiteTensor
from deeploy.frontend.tflite.requantising import WORDS, emit_steps, find_steps, requantise_word
from deeploy.ir.types import Array
from deeploy.operators.accumulate import ends, sums

_HALVES = (-(2**15), 2**15 - 1)
_EXACT = (1 << 30) + 1  # a factor of 1 and 30 bits, which moves products of two words of 16 bits away from the middle between results
_GATES = 4  # input, forget, cell, output


def filter_history(call: LiteCall) -> None:
    """SVDF: filters of features, whose results of the last inferences are weighed by filters of time, added up over a rank."""
    x, features, history, bias, state = call.x, call.constant(1), call.constant(2), call.input(3), call.needed(4)
    (filters, memory), rank, batch = history.shape, call.options["rank"], call.x.shape[0]
    call.need(rank > 0 and filters % rank == 0 and features.shape == (filters, *call.x.shape[1:]), "has filters that do not fit its rank")
    call.need(state.is_variable and state.shape == (batch, filters * memory), "has no variable for its results")
    if x.is_quantised:
        call.need(state.dtype == np.int16 and history.dtype == np.int16, "has a state or weights of time that have not 16 bits")
        scale = np.float32(x.s) * np.float32(call.needed(1).s) / np.float32(state.s)
        total = call.add("MatMulInteger", x, features.T, *quantised.zero_points(call, x, call.needed(1)))
        new = _to_halves(call, requantise_word(call, total, quantise_factor(scale), _reach(features, x)))
    else:
        new = call.add("MatMul", x, features.T)
    past = call.add("Reshape", call.state(state), [batch, filters, memory])
    older = call.add("Slice", past, [1], [memory], [2])
    now = call.add("Concat", older, call.add("Reshape", new, [batch, filters, 1]), axis=2)
    call.leave(state, call.add("Reshape", now, state.shape))
    weighed = call.multiply(now, history) if x.is_quantised else call.add("Mul", now, history)
    rows = call.add("Reshape", weighed, [batch, filters // rank, rank * memory])
    total = call.add("ReduceSum", rows, [2], keepdims=0)
    total = call.add("Add", total, bias) if bias is not None else total
    if not x.is_quantised:
        return call.activate(total)
    # Sums have 32 bits, as in the reference kernel: states are scaled so that they fit.
    most = np.minimum(np.abs(history.astype(np.int64)).reshape(-1, rank * memory).sum(axis=1) << 15, WORD - 1)
    scale = np.float32(state.s) * np.float32(call.needed(2).s) / np.float32(call.y.s)
    # The file has to say that it is rectified, which the reference kernel does not do.
    steps = find_steps(call, quantise_factor(scale), call.y.range, (-most, most), "twice")
    emit_steps(call, total, steps)
    return None


def run_lstm(call: LiteCall) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM, without peepholes, projection and normalisation, as TensorFlow Lite Micro has it."""
    x, y, options = call.x, call.y, call.options
    if any(call.input(at) is not None for at in (9, 10, 11, 16, 17, 20, 21, 22, 23)) or call.input(1) is None or options["fused"] != 4:
        raise call.refused(
            "has peepholes, a projection, layer normalisation, coupled gates or another activation than tanh", "Export a plain LSTM."
        )
    hidden, cell = call.needed(18), call.needed(19)
    call.need(len(x.shape) == 3 and hidden.is_variable and cell.is_variable, "has no sequence or no variables for its states")
    ws, rs, biases = ([call.needed(at) for at in range(begin, begin + _GATES)] for begin in (1, 5, 12))
    units = hidden.shape[-1]
    fits = all(w.shape == (units, x.shape[2]) and r.shape == (units, units) for w, r in zip(ws, rs, strict=True))
    call.need(fits and all(b.shape == (units,) for b in biases), "has weights that do not fit its states")
    w, r = (np.concatenate([call.constant(at) for at in range(begin, begin + _GATES)]).T for begin in (1, 5))
    bias = np.concatenate([call.constant(at) for at in range(12, 12 + _GATES)])
    time = x.name if options["time_major"] else call.add("Transpose", x, perm=[1, 0, 2])
    inner = replace(call, outputs=[replace(y, name=f"{y.name} round")], nodes=[])
    if x.is_quantised:
        call.need(cell.dtype == np.int16 and hidden.dtype == x.dtype == np.int8, "has other types than 8 bits, and 16 for its cells")
        quantised.check_same(call, hidden)
        total = call.add("Add", call.add("MatMulInteger", time, w, x.zero_point, np.int8(0)), bias.astype(np.int32))
        sums = [_to_halves(call, word) for word in _gate_words(call, total, ws, x, bias)]
        begun = emit_steps(call, call.state(hidden, np.dtype(np.int16)), [_move_axes(y.z, y.range)], y.dtype)
    else:
        sums, begun = [call.add("Add", call.add("MatMul", time, w), bias)], call.state(hidden)
    names = [f"{y.name} round given {at}" for at in range(2 + len(sums))]
    results = (_integer_step if x.is_quantised else _float_step)(inner, names, r, rs)
    rows = call.loop([begun, call.state(cell), *sums], names, inner, results, 2)
    call.leave(hidden, emit_steps(call, rows[0], [_move_axes(-y.z, _HALVES)], np.int16) if x.is_quantised else rows[0])
    call.leave(cell, rows[1])
    call.result(rows[2] if options["time_major"] else call.add("Transpose", rows[2], perm=[1, 0, 2]))


def _float_step(call: LiteCall, names: Sequence[str], r: Array, rs: Sequence[LiteTensor]) -> list[str]:
    hidden, cell, sums = names
    i, f, g, o = _split_word(call, call.add("Add", sums, call.add("MatMul", hidden, r)), r.shape[0])
    i, f, g, o = (call.add("Tanh" if gate == g else "Sigmoid", gate) for gate in (i, f, g, o))
    cell = call.add("Add", call.add("Mul", f, cell), call.add("Mul", i, g))
    if most := call.options["cell_clip"]:
        cell = call.add("Clip", cell, np.float32(-most), np.float32(most))
    hidden = call.add("Mul", o, call.add("Tanh", cell))
    return [hidden, cell, hidden]


def _integer_step(call: LiteCall, names: Sequence[str], r: Array, rs: Sequence[LiteTensor]) -> list[str]:
    """Gates have 12 bits behind the point, what functions leave 15, and cells those that their scale says."""
    (hidden, cell, *sums), y, state = names, call.y, call.needed(19)
    whole = 15 + int(np.round(np.log2(state.s)))
    call.need(state.s == 2.0 ** (whole - 15) and 0 <= whole <= 6, "has cells whose scale is no power of two")
    product = call.add("MatMulInteger", hidden, r, y.zero_point, np.int8(0))
    words = zip(_gate_words(call, product, rs, y), sums, strict=True)
    gates = [_to_halves(call, call.add("Add", word, call.word(part))) for word, part in words]
    i, f, g, o = (_apply_table(call, "HyperbolicTangent" if at == 2 else "Logistic", gate, 3) for at, gate in enumerate(gates))
    kept, new = _multiply_words(call, f, cell, 15), _multiply_words(call, i, g, 15 + whole)
    cell = _to_halves(call, call.add("Add", kept, new))
    if clip := min(int(call.options["cell_clip"] / state.s), _HALVES[1]):
        cell = call.add("Clip", cell, np.int16(-clip), np.int16(clip))
    total = call.multiply(o, _apply_table(call, "HyperbolicTangent", cell, whole))
    result = call.intermediates[4] if len(call.intermediates) > 4 else y
    call.need(result.zero.tolist() == y.zero.tolist() and result.scale.size == 1, "has results of another zero point than its states")
    factor = quantise_factor(np.float32(2.0**-15) / np.float32(result.s) * np.float32(2.0**-15))
    hidden = emit_steps(call, total, find_steps(call, factor, y.range, ends(-(2**30), 2**30), "twice"), y.dtype)
    return [hidden, cell, hidden]


def _gate_words(call: LiteCall, total: str, weights: Sequence[LiteTensor], data: LiteTensor, bias: Array | None = None) -> list[str]:
    """Products of data and the weights of all gates with 12 bits behind the point, gate by gate; bias is in them already."""
    call.need(all(w.is_quantised and w.scale.size == 1 and not w.zero.any() for w in weights), "has weights of several scales")
    parts = np.zeros((_GATES, 1), np.int64) if bias is None else bias.reshape(_GATES, -1).astype(np.int64)
    words = []
    for gate, w, summand in zip(_split_word(call, total, weights[0].shape[0]), weights, parts, strict=True):
        least, most = _reach(np.asarray(w.data), data)
        scale = np.float32(w.s) * np.float32(data.s) / np.float32(2.0**-12)
        words.append(requantise_word(call, gate, quantise_factor(scale), (least + summand, most + summand)))
    return words


def _reach(weights: Array, data: LiteTensor) -> tuple[Array, Array]:
    """The least and the most sum of the rows of weights."""
    return sums(weights.astype(np.int64), *data.distances)


def _move_axes(by: int, limits: tuple[int, int]) -> Shift:
    return Shift(1, by, 0, *limits)


def _to_halves(call: LiteCall, total: str) -> str:
    """A word within 16 bits."""
    return emit_steps(call, total, [_move_axes(0, _HALVES)], np.int16)


def _split_word(call: LiteCall, gates: str, units: int) -> list[str]:
    return [call.add("Slice", gates, [at * units], [(at + 1) * units], [-1]) for at in range(_GATES)]


def _apply_table(call: LiteCall, op: str, x: str, whole: int) -> str:
    return call.add(op, x, np.int16(0), whole=whole)


def _multiply_words(call: LiteCall, a: str, b: str, bits: int) -> str:
    """The product of two words of 16 bits by 2^bits, rounded half away from zero."""
    return emit_steps(call, call.multiply(a, b), [Shift(_EXACT, 1 << (bits + 29), bits + 30, *WORDS)], np.int32)
