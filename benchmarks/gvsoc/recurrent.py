"""What calibration fits the cycles of recurrent layers and of scales that are computed to: see families.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.gvsoc.families import RNG, Family, draw, halves
from benchmarks.gvsoc.layer import Case
from deeploy.ir.types import DType
from deeploy.operators.integer_recurrent import REACH, STEPS

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# Steps, samples, units.
LAYERS = ((1, 1, 64), (1, 1, 96), (2, 1, 32), (4, 1, 48), (8, 1, 24), (3, 2, 40), (16, 1, 16), (6, 1, 20), (10, 1, 52), (5, 1, 13))
CELLS = ((1, 16), (1, 64), (1, 128), (2, 40), (1, 200), (3, 24), (1, 37), (4, 64))
FUNCTIONS = ("sigmoid", "tanh", "tanh")


def _floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def _attributes(op: str) -> dict[str, Any]:
    functions = {"LSTM": FUNCTIONS, "GRU": FUNCTIONS[:2], "RNN": FUNCTIONS[1:2]}[op]
    zeros = (0.0,) * len(functions)
    return {"functions": functions, "alphas": zeros, "betas": zeros, "clip": 0.0, "reverse": False, "input_forget": False}


def layers(op: str, resets_state: bool = False) -> list[Case]:
    """Layers of floats; a GRU that resets its product, or its state."""
    found = []
    for t, n, k in LAYERS:
        operands = {"p": _floats(t, n, GATES[op], k), "r": _floats(GATES[op], k, k) / np.float32(k**0.5), "h": _floats(n, k)}
        operands |= {"c": _floats(n, k)} if op == "LSTM" else {}
        variables = tuple(name for name in operands if name != "r")
        operands |= {"b": _floats(k)} if op == "GRU" and not resets_state else {}
        cells = {"cells": ((n, k), "f32")} if op == "LSTM" else {}
        found.append(Case(f"{op} {t}x{n}x{k}", op, variables, operands, "f32", _attributes(op), cells))
    return found


def cells(op: str) -> list[Case]:
    """One step, its product with the state made outside."""
    found = []
    for n, k in CELLS:
        last = "c" if op == "LSTM" else "h"
        operands = {"p": _floats(n, GATES[op], k), "q": _floats(n, GATES[op], k), last: _floats(n, k)}
        further = {"cells": ((n, k), "f32")} if op == "LSTM" else {}
        found.append(Case(f"{op} cell {n}x{k}", f"{op}Cell", tuple(operands), operands, "f32", _attributes(op), further))
    return found


def integer_layers(op: str) -> list[Case]:
    """Layers of quantised values, whose sums are of the size that tables are for."""
    a = np.linspace(-REACH, REACH, STEPS + 1)
    tables = {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
    table = np.rint(np.tanh(np.stack([a] * tables)) * 32767).astype(np.int16)
    found = []
    for t, n, k in LAYERS:
        operands = {"p": draw("s16", t, n, GATES[op], k).astype(np.int32), "r": draw("s8", GATES[op], k, k), "h": draw("s16", n, k)}
        operands |= {"c": draw("s32", n, k)} if op == "LSTM" else {}
        variables = tuple(name for name in operands if name != "r")
        operands |= {"factors": np.full((k, GATES[op], 2), 1 << 25, np.int32), "tables": table}
        operands |= {"b": draw("s32", k)} if op == "GRU" else {}
        further = {"cells": ((n, k), "s32")} if op == "LSTM" else {}
        attributes = {"reverse": False, "shift_p": 14, "shift": 4}
        found.append(Case(f"integer {op} {t}x{n}x{k}", f"Integer{op}", variables, operands, "s16", attributes, further))
    return found


def scales() -> Sequence[Case]:
    """Scales of tensors whose range is known when code runs."""
    return [
        Case(
            f"scale of {n}",
            "DynamicScale",
            ("low", "high"),
            {"low": _floats(n) - 2, "high": _floats(n) + 2},
            "f32",
            {},
            {"zero_point": ((n,), "s32")},
        )
        for n in (1, 2, 4, 7, 16, 40)
    ]


RECURRENT = (
    *(Family(f"{own}integer_{op.lower()}", {"": integer_layers(op)}, ("t", "t n k g")) for own in ("pulp_", "") for op in GATES),
    *(Family(f"{own}{op.lower()}", {"": layers(op)}, ("t", "t n k g")) for own in ("pulp_", "") for op in GATES),
    *(
        Family(f"{own}{op.lower()} {dtype.value}", halves({"": layers(op)}, dtype), ("t", "t n k g"))
        for own in ("pulp_", "")
        for op in GATES
        for dtype in (DType.FLOAT16, DType.BFLOAT16)
    ),
    Family("lstm_cell", {"": cells("LSTM")}),
    Family("gru_cell", {"": cells("GRU")}),
    Family("dynamic_scale", {"": scales()}),
)
