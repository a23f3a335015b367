"""Kernels that move elements or work on each, on the simulator: `.insn` against the portable body, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gvsoc import layer
from deeploy.backend.project import select_network
from deeploy.execution.runners import gvsoc
from tests.targets.siracusa.conftest import Simulate
from tests.targets.siracusa.test_element_kernels import MOVES, moved

ROOT = Path(__file__).resolve().parents[3]

LEVELS = {"levels": 255, "zero_point": -128, "low": -128, "high": 127}
TABLE = np.rint(np.exp(-np.arange(256) / 30) * 2**12).astype(np.uint32)


def _draw(kind: str, *shape: int) -> np.ndarray:
    if kind == "?":
        return np.random.default_rng(len(shape)).integers(0, 2, shape).astype(bool)
    info = np.iinfo(kind)
    return np.random.default_rng(len(shape)).integers(max(info.min, -(2**20)), min(info.max, 2**20), shape, endpoint=True).astype(kind)


def _case(op: str, y: str, attrs: dict[str, Any], **operands: np.ndarray) -> Callable[[], layer.Case]:
    variables = tuple(name for name in operands if name in ("x", "a", "b", "condition"))
    return lambda: layer.Case(op, op, variables, operands, y, attrs)


def _reduction(op: str, kind: str, y: str, *axes: int, **attrs: Any) -> Callable[[], layer.Case]:
    stage = {"mul": np.array([77], np.int32), "add": np.array([1 << 10])} if y != "s32" and op == "ReduceSum" else {}
    attrs |= {"epilogue": ("requantise",), "shift": 11, "low": -100, "high": 90} if stage else {}
    return _case(op, y, {"keepdims": True, "axes": axes, **attrs}, x=_draw(kind, 3, 5, 2, 21), **stage)


def _pair(function: str, kind: str, y: str = "") -> Callable[[], layer.Case]:
    """Rows of a, of all rows and columns of b."""
    a, b = _draw(kind, 3, 5, 29), _draw(kind, 5, 1)
    return _case("Binary", y or {"i1": "s8", "u1": "u8"}[kind], {"function": function}, a=a, b=b)


STANDARD = {"centred": False, "zero_point": 9, "fraction": 25, "epsilon": 1 << 18}
CASES = {
    "lookup": _case("Lookup", "u8", {}, x=_draw("i1", 5, 7, 3), table=_draw("u1", 256)),
    "softmax": _case("Softmax", "s8", {**LEVELS, "rounded": False}, x=_draw("i1", 9, 13), table=TABLE),
    "softmax, rounded": _case("Softmax", "s8", LEVELS, x=_draw("u1", 9, 6), table=np.minimum(TABLE, 2)),
    "softmax, requantised": _case(
        "Softmax", "s8", {**LEVELS, "smallest": -128}, x=_draw("i1", 5, 3), table=TABLE, results=_draw("i1", 256)
    ),
    "softmax, wide": _case("Softmax", "s8", {**LEVELS, "rounded": False}, x=_draw("u1", 3, 45), table=TABLE << 8),
    "softmax, clipped": _case("Softmax", "s8", {**LEVELS, "low": -100, "high": 9, "rounded": False}, x=_draw("i1", 9, 12), table=TABLE),
    "softmax of one row": _case("Softmax", "s8", {**LEVELS, "rounded": False}, x=_draw("i1", 1, 93), table=TABLE),
    "softmax of few rows, rounded": _case("Softmax", "s8", LEVELS, x=_draw("i1", 3, 1, 37), table=TABLE),
    "softmax of few rows, requantised": _case(
        "Softmax", "s8", {**LEVELS, "rounded": False, "smallest": -128}, x=_draw("u1", 2, 6), table=TABLE, results=_draw("i1", 256)
    ),
    "layer norm": _case("IntegerLayerNorm", "s8", {"shift": 9}, x=_draw("u1", 9, 13), weight=_draw("i4", 13), bias=_draw("i4", 13)),
    "RMS norm": _case("IntegerRMSNorm", "s8", {"shift": 9}, x=_draw("i1", 3, 3, 7), weight=_draw("i4", 7)),
    "RMS norm of one row": _case("IntegerRMSNorm", "s8", {"shift": 9}, x=_draw("i1", 1, 133), weight=_draw("i4", 133)),
    "layer norm of few rows": _case(
        "IntegerLayerNorm", "s8", {"shift": 9}, x=_draw("u1", 2, 70), weight=_draw("i4", 70), bias=_draw("i4", 70)
    ),
    "rotation": _case(
        "Rotate",
        "s8",
        {
            "interleaved": False,
            "cosine": (-2, -1, 1124440670, -893353197568, 37, -128, 127, -1),
            "sine": (3, 0, 2500, 0, 12, -128, 127, 1),
            "sum": (2039811374, 1809848131, 29831206490, 31, -128, 127, 0),
        },
        x=_draw("i1", 9, 3, 10),
        cosine=_draw("i1", 9, 1, 10),
        sine=_draw("i1", 9, 1, 10),
        table=_draw("i1", 2, 256),
    ),
    "standardised rows": _case("Standardise", "s32", {**STANDARD, "centred": True}, x=_draw("u1", 9, 13)),
    "standardised rows, by factors of channels and a table": _case(
        "Standardise",
        "s8",
        {**STANDARD, "centred": True, "epilogue": ("requantise", "lookup"), "shift": 48, "low": -128, "high": 127},
        x=_draw("u1", 9, 13),
        mul=_draw("i4", 13) % 2**29 + 2**29,
        add=np.full(13, 1 << 47),
        table=_draw("i1", 256),
    ),
    "standardised few rows": _case(
        "Standardise",
        "s8",
        {**STANDARD, "epilogue": ("requantise",), "shift": 50, "low": -128, "high": 127},
        x=_draw("i1", 2, 70),
        mul=_draw("i4", 70) << 9,
        add=_draw("i8", 70) << 30,
    ),
    "RMS norm of fewer columns than cores": _case("IntegerRMSNorm", "s8", {"shift": 9}, x=_draw("i1", 5), weight=_draw("i4", 5)),
    **{f"{name} of {kind}": _pair(name, kind) for name in ("max", "min") for kind in ("i1", "u1")},
    **{name: _pair(name, "i1") for name in ("bit_and", "bit_or", "bit_xor")},
    **{
        f"{name} of {kind}": _pair(name, kind, "bool")
        for name in ("less", "less_or_equal", "greater", "greater_or_equal")
        for kind in ("i1", "u1")
    },
    **{name: _pair(name, "i1", "bool") for name in ("equal", "not_equal")},
    **{f"{name} of truths": _pair(name, "?", "bool") for name in ("and", "or")},
    "quotient": _case(
        "ScaledDiv",
        "s8",
        {"a_zero_point": 1, "b_zero_point": -2, "mul": 1_234_567_890, "shift": 29, "zero_point": 4, "low": -128, "high": 127},
        a=_draw("i1", 3, 5, 29),
        b=_draw("i1", 5, 1),
    ),
    "selection": _case("Where", "s8", {}, condition=_draw("?", 3, 5, 29), a=_draw("i1", 3, 5, 29), b=_draw("i1", 1)),
    "selection by rows": _case("Where", "u8", {}, condition=_draw("?", 5, 1), a=_draw("u1", 29), b=_draw("u1", 3, 5, 29)),
    "sum of rows": _reduction("ReduceSum", "u1", "s32", 2, 3),
    "sum of columns": _reduction("ReduceSum", "i1", "s8", 0, 2),
    "sum of columns, requantised": _reduction("ReduceSum", "u1", "s8", 1, 2),
    "maximum of rows": _reduction("ReduceMax", "i1", "s8", 3),
    "maximum of columns": _reduction("ReduceMax", "u1", "u8", 1),
    "minimum of all": _reduction("ReduceMin", "u1", "u8", 0, 1, 2, 3),
    "minimum of columns": _reduction("ReduceMin", "i1", "s8", 0, 1),
    "mean of rows": _reduction("IntegerMean", "i1", "s8", 1, 3),
    "mean of columns, a shift": _reduction("IntegerMean", "i1", "s8", 2, keepdims=False),
    "RMS norm, short weights": _case("IntegerRMSNorm", "s8", {"shift": 1}, x=_draw("i1", 17, 64), weight=_draw("i2", 64)),
}


@pytest.mark.gvsoc
@pytest.mark.parametrize("flags", ["", "-DXPULP_PORTABLE"])
@pytest.mark.parametrize("name", CASES)
def test_equal_to_the_reference(simulate: Simulate, name: str, flags: str) -> None:
    assert layer.check_and_measure(CASES[name](), 8, flags).kernel.startswith("pulp_")


@pytest.mark.gvsoc
@pytest.mark.parametrize("cores", range(1, 8))
def test_any_number_of_cores_shares_a_row(simulate: Simulate, cores: int) -> None:
    for name in CASES:
        if "few" in name or "one row" in name:
            layer.check_and_measure(CASES[name](), cores)


@pytest.mark.gvsoc
@pytest.mark.parametrize("l1", [60_000, 1_500])
def test_transpositions(simulate: Simulate, tmp_path: Path, l1: int) -> None:
    made, arrays = moved(l1)
    made.write(tmp_path)
    got = gvsoc.Gvsoc().run(tmp_path, select_network(json.loads((tmp_path / "deploy.json").read_text())), [arrays]).outputs
    for (shape, perm, _), array, have in zip(MOVES, arrays, got, strict=True):
        np.testing.assert_array_equal(have[0], array.transpose(perm), err_msg=f"{shape} in order {perm}")
