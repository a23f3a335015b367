"""Whole random graphs of the four forms: float, QDQ, QOperator, and the integer dialect (``dialect``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests.random import dialect, operators, qoperators, views
from tests.random.choices import Choices
from tests.random.graph import STYLES, Builder, Value
from tests.random.oracle import Invalid

OLDEST = 7
FORMS = ((4, "float"), (4, "qdq"), (2, "qoperator"), (3, "dialect"))


@dataclass(frozen=True, eq=False)
class Case:
    """A model with one sample, and how it is to be compiled.

    Attributes:
        types: element types of the inputs of a dialect graph.
        golden: outputs as computed from the dialect's formulas; empty for other forms.
        plan: budgets and options, see ``plan``.
    """

    form: str
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    types: dict[str, str]
    golden: dict[str, np.ndarray]
    plan: dict[str, Any]


STEPS: list[tuple[int, operators.Step]] = [
    (6, operators.binary),
    (4, operators.unary),
    (1, operators.clip),
    (1, operators.prelu),
    (1, operators.cast),
    (2, operators.where),
    (5, operators.conv),
    (2, operators.conv_transpose),
    (3, operators.pool),
    (4, operators.matmul),
    (2, operators.gemm),
    (1, operators.einsum),
    (3, operators.softmax),
    (3, operators.norm),
    (3, operators.reduction),
    (1, operators.arg),
    (1, operators.scan),
    (3, views.transpose),
    (3, views.reshape),
    (3, views.slice_),
    (2, views.split),
    (3, views.concat),
    (2, views.gather),
    (2, views.pad),
    (1, views.expand),
    (2, views.resize),
    (1, views.blocks),
    (1, views.shape_chain),
    (1, views.whole_numbers),
    (1, views.source),
]


def make(choices: Choices) -> Case:
    """The case that a stream of choices describes.

    Raises:
        Invalid: the choices lead to no graph.
    """
    form = choices.weighted(FORMS)
    least = {"float": OLDEST, "qdq": 10, "qoperator": 10, "dialect": OLDEST}[form]
    newest = onnx.defs.onnx_opset_version()
    opset = choices.integer(least, newest) if choices.chance(2) else choices.pick([v for v in (13, 17, 11, 21, 9) if v >= least])
    b = Builder(choices, opset, form)
    if choices.chance(6):
        b.style = choices.pick(STYLES)
    {"dialect": dialect.begin, "qoperator": qoperators.begin}.get(form, _begin)(b)
    steps = {"dialect": dialect.STEPS, "qoperator": qoperators.STEPS}.get(form, STEPS)
    for _ in range(choices.pick([3, 3, 3, 8, 8, 14])):
        if not choices.integer(0, 9):  # the choice that lets shrinking drop steps
            break
        step = choices.weighted(steps)
        b.attempt(lambda made, step=step: _finished(made, step(made)))
    if form == "qoperator":
        qoperators.end(b)
    return _case(b)


def _case(b: Builder) -> Case:
    model = b.finish()
    used = {name for node in model.graph.node for name in node.input}
    outputs = {value.name for value in model.graph.output}
    for position in reversed(range(len(model.graph.input))):
        if model.graph.input[position].name not in used | outputs and len(model.graph.input) > 1:
            del model.graph.input[position]
    names = [value.name for value in model.graph.input]
    arrays = {name: b.inputs[name].array for name in names}
    return Case(b.form, model, arrays, {n: b.types[n] for n in names if n in b.types}, b.golden, plan(b))


WINDOWS: tuple[tuple[int, operators.Step], ...] = ((6, operators.conv_transpose), (2, operators.conv), (1, operators.pool))
AT_ONCE = 8  # windows in one graph: compiling C once costs more than a node


def windows(choices: Choices) -> Case:
    """Convolutions, transposed ones and pools, each on an input of its own: many shapes for one compilation.

    Raises:
        Invalid: the choices lead to no graph.
    """
    form = choices.pick(["float", "qdq"])
    b = Builder(choices, choices.pick([13, 17, 11, 21]), form)
    done: list[Value] = []
    for _ in range(AT_ONCE):
        step = choices.weighted(WINDOWS)
        rank = choices.weighted([(6, 4), (2, 3)])
        b.pool = []
        b.attempt(lambda made, rank=rank: [operators.entry(made, (1, *made.shape(rank - 1, 512)))])
        b.pool = b.pool[-1:] if b.attempt(lambda made, step=step: _finished(made, _flat(made, step))) else []
        done += b.pool
    b.pool = done
    return _case(b)


def _flat(b: Builder, step: operators.Step) -> list[Value]:
    """What ``step`` adds, unless it is of a sort that targets have no kernel for: the others of the graph are to be compared."""
    values = list(step(b))
    names = {attribute.name for attribute in b.nodes[-1].attribute}
    if b.nodes[-1].op_type == "LpPool" or values[0].rank > 4 or {"auto_pad", "output_padding"} <= names:
        raise Invalid
    return values


def plan(b: Builder) -> dict[str, Any]:
    """Options of the compilation for a managed target: bytes of L1 and L2 (None: all that there is), and what else there is to choose."""
    choices = b.choices
    shares = choices.pick([None, 70, 50, 35, 25, 15]), choices.pick([None, None, None, 100, 60])
    sizes = [None if share is None else max(256, size * share // 100) for share, size in zip(shares, b.sizes(), strict=True)]
    return {
        "l1": sizes[0],
        "l2": sizes[1],
        "buffering": choices.pick(["auto", "auto", "single", "double"]),
        "cores": choices.pick([None, None, 1, 3, 8]),
        "default_memory": choices.pick([None, None, "L3"]),
        "engines": choices.pick([None, None, "cluster"]),
        "sanitize": choices.chance(10),
        "objective": choices.pick(["cycles", "ram"]),
    }


def _begin(b: Builder) -> None:
    for _ in range(b.choices.weighted([(3, 1), (1, 2)])):
        rank = b.choices.weighted([(5, 4), (2, 3), (3, 2), (1, 1), (1, 0), (1, 5)])
        shape = b.shape(rank)
        if rank >= 3 and not b.choices.chance(4):
            shape = (1, *shape[1:])
        b.attempt(lambda made, shape=shape: [operators.entry(made, shape)])


def _finished(b: Builder, values: list[Value]) -> list[Value]:
    """Values as further nodes see them: scaled down where they are far out, and quantised in a QDQ graph."""
    if b.form not in ("float", "qdq"):
        return list(values)
    result = []
    for value in values:
        size = float(np.abs(value.array).max()) if value.is_float else 0.0
        if size > 1e4:
            raise Invalid
        if size > 64:
            value = b.one("Mul", value, b.constant(np.asarray(2.0 ** -np.ceil(np.log2(size / 4)), np.float32)))
        result.append(passed(b, value))
    return result


# Quantisation.


def parameters(b: Builder, low: float, high: float, exact: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point of 8 bits for values from ``low`` to ``high``, well or badly chosen."""
    dtype = b.choices.pick([np.uint8, np.int8])
    low, high = min(low, 0.0), max(high, 0.0, low + 1e-2)
    first, last = np.iinfo(dtype).min, np.iinfo(dtype).max
    kind = b.choices.weighted([(4, "fit"), (2, "symmetric"), (1, "narrow"), (1, "wide")])
    if exact or b.choices.chance(5):
        scale, zero = 2.0 ** -b.choices.integer(3, 5), b.choices.pick([(first + last + 1) // 2, first])
    elif kind == "symmetric":
        scale, zero = max(-low, high) / 127, (first + last + 1) // 2
    else:
        scale = (high - low) / 255 * {"fit": 1.0, "narrow": 0.6, "wide": 3.0}[kind]
        zero = int(np.clip(round(first - low / scale), first, last))
    return np.asarray(max(scale, 1e-4), np.float32), np.asarray(zero, dtype)


def passed(b: Builder, value: Value) -> Value:
    """The value behind QuantizeLinear and DequantizeLinear, in a QDQ graph and for floats, mostly."""
    if b.form != "qdq" or not value.is_float or b.choices.chance(8):
        return value
    scale, zero = parameters(b, float(value.array.min()), float(value.array.max()), exact=value.exact and b.choices.chance(2))
    given = None if zero.dtype == np.uint8 and zero == 0 and b.choices.chance(2) else b.constant(zero)
    step = b.constant(scale)
    power = float(np.log2(scale)).is_integer()
    whole = b.node("QuantizeLinear", [value, step, given])[0]
    real = b.node("DequantizeLinear", [whole, step, given])[0]
    is_exact = value.exact and power
    if is_exact:
        b.exact.add(real.name)
    return Value(real.name, real.array, is_exact, float(scale))


def quantised_weight(b: Builder, array: np.ndarray, axis: int | None) -> Value:
    """A constant; in a QDQ graph mostly 8 bits and a DequantizeLinear, per tensor or per channel."""
    if b.form != "qdq" or b.choices.chance(8):
        return b.constant(array)
    per_channel = axis is not None and b.opset >= 13 and b.choices.chance(2)
    others = tuple(a for a in range(array.ndim) if a != axis) if per_channel else None
    size = np.maximum(np.abs(array).max(axis=others), 1e-3)
    scale = np.asarray(size / 127, np.float32)
    spread = scale.reshape([-1 if a == axis else 1 for a in range(array.ndim)]) if per_channel else scale
    dtype, zero = np.int8, np.zeros_like(scale, np.int8)
    if not per_channel and b.choices.chance(5):
        zero = np.asarray(b.choices.integer(-20, 20), np.int8)
        if b.choices.chance(2):
            dtype, zero = np.uint8, np.asarray(128 + int(zero), np.uint8)
    info = np.iinfo(dtype)
    stored = np.clip(np.rint(array / spread) + zero.astype(np.int64).reshape(spread.shape), info.min, info.max).astype(dtype)
    attributes = {"axis": axis} if per_channel else {}
    real = b.node("DequantizeLinear", [b.constant(stored), b.constant(scale), b.constant(zero)], **attributes)[0]
    b.steps[real.name] = scale
    return real


def quantised_bias(b: Builder, array: np.ndarray, x: Value, w: Value) -> Value:
    """A bias of int32 in units of the product of both scales, where both are known."""
    if not x.step or w.name not in b.steps or b.choices.chance(8):
        return b.constant(array)
    scale = np.asarray(np.float32(x.step) * b.steps[w.name], np.float32)
    stored = np.rint(array / scale).astype(np.int32)
    per_channel = scale.ndim > 0
    if per_channel and scale.size != array.size:
        return b.constant(array)
    zero = b.constant(np.zeros(scale.shape, np.int32)) if b.choices.chance(2) else None
    attributes = {"axis": 0} if per_channel else {}
    return b.node("DequantizeLinear", [b.constant(stored), b.constant(scale), zero], **attributes)[0]
