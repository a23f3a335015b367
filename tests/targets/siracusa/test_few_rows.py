"""Operators along rows of which there are fewer than cores: these divide columns, each of them measures whole rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gvsoc import layer, sweep
from deeploy.backend.project import select_network
from deeploy.execution.runners import host
from deeploy.target import load

ROOT = Path(__file__).resolve().parents[3]

SHAPES = ((1, 1, 1001), (1, 5), (1,), (3, 67), (2, 1, 3, 41))
RANDOM = np.random.default_rng(11)


def _case(op: str, shape: tuple[int, ...], *constants: str) -> layer.Case:
    operands = {"x": RANDOM.integers(-128, 127, shape, endpoint=True).astype(np.int8)}
    operands |= {name: RANDOM.integers(-(2**20), 2**20, shape[-1]).astype(np.int32) for name in constants}
    return layer.Case(f"{op} {shape}", op, ("x",), operands, "s8", {"shift": 11})


TABLE = np.rint(np.exp(-np.arange(256) / 30) * 2**12).astype(np.uint32)


def _softmax(shape: tuple[int, ...], results: bool = False, **attrs: object) -> layer.Case:
    case = _case("Softmax", shape)
    tables = {"table": TABLE} | ({"results": RANDOM.integers(-128, 127, 256).astype(np.int8)} if results else {})
    levels = {"levels": 255, "zero_point": -128, "low": -128, "high": 127, "smallest": -128, **attrs}
    return layer.Case(f"Softmax {shape} {attrs}", "Softmax", ("x",), {**case.operands, **tables}, "s8", levels)


def _standardised(shape: tuple[int, ...], is_centred: bool) -> layer.Case:
    stage = {"epilogue": ("requantise",), "shift": 50, "low": -128, "high": 127}
    attrs = {"centred": is_centred, "zero_point": 3, "fraction": 23, "epsilon": 1 << 20, **stage}
    constants = {
        "mul": RANDOM.integers(2**28, 2**30, shape[-1]).astype(np.int32),
        "add": RANDOM.integers(-(2**55), 2**55, shape[-1]),
    }
    return layer.Case(f"Standardise {shape} {is_centred}", "Standardise", ("x",), {**_case("", shape).operands, **constants}, "s8", attrs)


CASES = [
    *(_softmax(shape) for shape in SHAPES),
    *(_softmax(shape, rounded=False) for shape in SHAPES),
    _softmax((2, 50), results=True, rounded=False),
    _softmax((1, 50), low=-99, high=-20),
    *(_case("IntegerRMSNorm", shape, "weight") for shape in SHAPES),
    *(_case("IntegerLayerNorm", shape, "weight", "bias") for shape in SHAPES),
    *(_standardised(shape, is_centred) for shape in SHAPES for is_centred in (True, False)),
]


@pytest.mark.parametrize(
    ("cores", "l1"), [(1, 60_000), (2, 2_600), (3, 60_000), (4, 2_600), (5, 2_600), (6, 60_000), (7, 60_000), (8, 2_600)]
)
def test_equal_to_the_references(tmp_path: Path, cores: int, l1: int) -> None:
    """Odd numbers of columns, fewer of them than cores, columns in tiles."""
    target = load("siracusa")
    made = sweep.compiled(CASES, target, cores, l1)
    assert {call.kernel.source.split("/")[0] for call in made.plan.program.calls} == {"pulp"}
    made.write(tmp_path)
    entry = select_network(json.loads((tmp_path / "deploy.json").read_text()))
    got = host.Host(sanitize=True).run(tmp_path, entry, [[case.operands["x"] for case in CASES]]).outputs
    for case, have in zip(CASES, got, strict=True):
        np.testing.assert_array_equal(have[0], layer.expected(case, target), err_msg=case.name)


def test_what_cores_divide() -> None:
    """Columns of one row, whatever has the larger part of few, rows of many."""
    shapes = ((1, 512), (8, 512), (7, 8))
    cases = [_case("IntegerRMSNorm", shape, "weight") for shape in shapes]
    made = sweep.compiled([*cases, *(_softmax(shape) for shape in shapes)], load("siracusa"), 8)
    assert [made.plan.tiling(step).core_dims for step in range(6)] == ["k", "d0", "d0"] * 2


@pytest.mark.parametrize("case", [_case("IntegerRMSNorm", (1, 1001), "weight"), _softmax((1, 1001))], ids=lambda case: case.op)
def test_columns_are_cut_where_a_row_does_not_fit(case: layer.Case) -> None:
    made = sweep.compiled([case], load("siracusa"), 8, 2_600)
    tiling = made.plan.tiling(0)
    assert tiling.tiles > 1 and {loop.dim for loop in tiling.loops} == {"k"}
