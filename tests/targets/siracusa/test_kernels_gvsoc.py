"""The cluster's kernels on the simulator, bit for bit: `.insn` against the portable body, every number of cores, awkward shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gvsoc import cases, layer, lines

from .conftest import Simulate

ROOT = Path(__file__).resolve().parents[3]

CASES: dict[str, Any] = {
    "matmul, odd": lambda: cases.matmul(13, 61, 17),
    "matmul, one row, 31-bit multipliers": lambda: cases.matmul(1, 40, 9, "high"),
    "matmul, no requantisation": lambda: cases.matmul(6, 16, 8, "plain", "u8"),
    "rows of two variables, odd": lambda: cases.attention(2, 5, 7, 9, True, "u8"),
    "columns of two variables, odd": lambda: cases.attention(2, 5, 7, 9, False),
    "conv, dense": lambda: cases.conv((9, 7, 8), 12),
    "conv, odd channels": lambda: cases.conv((7, 5, 3), 6, form="high", x="s8"),
    "conv, strided": lambda: cases.conv((11, 9, 4), 8, (3, 2), 2, 1),
    "conv, two filters for a core": lambda: cases.conv((3, 3, 21), 15),
    "conv, deep windows by twos": lambda: cases.conv((5, 5, 180), 9, form="high"),
    "conv, very deep windows": lambda: cases.conv((3, 4, 404), 12, x="s8"),
    "conv, one-sided runs": lambda: cases.conv((6, 5, 13), 8, (2, 4), 1, 1),
    "pointwise": lambda: cases.pointwise((5, 5, 12), 20, "high", "s8"),
    "depthwise": lambda: cases.depthwise((9, 7, 12)),
    "depthwise, strided, 31-bit multipliers": lambda: cases.depthwise((8, 9, 6), 2, "high", "s8"),
    "conv, upper halves": lambda: cases.conv((9, 7, 24), 12, form="high"),
    "conv, factors of two parts": lambda: cases.conv((9, 7, 24), 12, form="split"),
    "pointwise, upper halves": lambda: cases.pointwise((5, 5, 160), 20, "high"),
    "depthwise, factors of two parts": lambda: cases.depthwise((9, 7, 12), 1, "split"),
    "depthwise, one row": lambda: cases.depthwise((2, 9, 8), 2),
    "rows less zero points, factors of two parts": lambda: cases.attention(2, 5, 7, 9, True, form="split", zeros=(3, -7)),
    "conv, one factor of two parts": lambda: cases.by_one_factor(cases.conv((9, 7, 8), 13, form="split")),
    "conv, one factor by upper halves": lambda: cases.by_one_factor(cases.conv((9, 7, 64), 13, form="high")),
    "matmul, one factor": lambda: cases.by_one_factor(cases.matmul(9, 12, 11, "high")),
    "conv, one factor": lambda: cases.by_one_factor(cases.conv((9, 7, 8), 13)),
    "depthwise, one factor": lambda: cases.by_one_factor(cases.depthwise((5, 5, 6))),
    "matmul, table": lambda: cases.by_table(cases.matmul(13, 61, 17)),
    "columns less zero points, table": lambda: cases.by_table(cases.attention(2, 5, 7, 9, False, form="split", zeros=(3, -7))),
    "conv, table": lambda: cases.by_table(cases.conv((9, 7, 8), 13, form="high")),
    "conv, one factor of two parts, table": lambda: cases.by_table(cases.by_one_factor(cases.conv((9, 7, 8), 13, form="split"))),
    "pointwise, table": lambda: cases.by_table(cases.pointwise((5, 5, 12), 20, "split", "s8")),
    "depthwise, factors of two parts, table": lambda: cases.by_table(cases.depthwise((9, 7, 12), 2, "split")),
    "product, table": lambda: cases.by_table(cases.mul(3, 5, 7)),
    "sum of requantised operands, table": lambda: cases.by_table(cases.requant_add(3, 5, 7)),
    "add": lambda: cases.add(3, 5, 7),
    "product": lambda: cases.mul(3, 5, 7),
    "product, zero points": lambda: cases.mul(3, 5, 7, zero_point=11),
    "requantisation": lambda: cases.requant_shift(2, 9, 5),
    "sum of requantised operands": lambda: cases.requant_add(3, 5, 7),
    "sum by two factors": lambda: cases.scaled_add(3, 5, 7),
    "sum by two factors, long rows": lambda: cases.scaled_add(40, 67),
    "sum by two factors, in halves": lambda: cases.scaled_add(3, 5, 7, shift=32, even=False),
    "quantisation": lambda: cases.quantize(67),
    "maxima": lambda: cases.pool("MaxPool", (7, 9, 10), 3, "u8", 2),
    "maxima of signed bytes": lambda: cases.pool("MaxPool", (4, 6, 5), 2),
    "means": lambda: cases.pool("AveragePool", (7, 9, 10), 3, "s8", 2),
    "maxima of floats": lambda: cases.pool("MaxPool", (7, 9, 10), 3, "f32", 2),
    "means of floats": lambda: cases.pool("AveragePool", (7, 9, 10), 3, "f32", 2),
    "depthwise 5x5": lambda: lines.make(False)((6, 7, 12, (5, 5), 1, 1), "split"),
    "depthwise, dilated columns": lambda: lines.make(True)((9, 12, 7, (3, 5), 1, 2), "narrow"),
    "dequantisation": lambda: cases.dequantize(35),
}


@pytest.mark.gvsoc
@pytest.mark.parametrize("flags", ["", "-DXPULP_PORTABLE"])
@pytest.mark.parametrize("name", CASES)
def test_equal_to_the_reference(simulate: Simulate, name: str, flags: str) -> None:
    case = CASES[name]()
    assert layer.check_and_measure(case, 8, flags).kernel.startswith("pulp_")


@pytest.mark.gvsoc
@pytest.mark.parametrize("cores", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("name", ["matmul, odd", "columns of two variables, odd", "conv, dense", "depthwise"])
def test_any_number_of_cores(simulate: Simulate, name: str, cores: int) -> None:
    layer.check_and_measure(CASES[name](), cores)


@pytest.mark.gvsoc
@pytest.mark.parametrize("name", ["conv, odd channels", "pointwise", "depthwise"])
def test_built_by_clang(simulate: Simulate, name: str) -> None:
    layer.check_and_measure(CASES[name](), compiler="clang")


@pytest.mark.gvsoc
def test_speed(simulate: Simulate) -> None:
    """Multiply-accumulates a cycle on eight cores, data in L1; a little below what was measured."""
    floors = {
        "matmul": (cases.matmul(64, 256, 64), 15.5),
        "conv": (cases.conv((32, 32, 16), 32), 13.5),
        "depthwise": (cases.depthwise((32, 32, 32)), 3),
    }
    rates = {}
    for name, (case, _) in floors.items():
        measured = layer.check_and_measure(case)
        rates[name] = measured.macs / measured.cycles
    assert all(rates[name] >= floor for name, (_, floor) in floors.items()), rates


def test_cases_reach_their_range() -> None:
    target = layer.load("siracusa")
    for case in (cases.matmul(13, 61, 17), cases.conv((9, 7, 8), 12), cases.depthwise((9, 7, 12))):
        values = layer.expected(case, target)
        assert np.unique(values).size > 60, case.name


def test_compilers_search_the_folder_of_every_header(tmp_path: Path) -> None:
    """The pool's source lies in one folder, the header that it shares with the portable one in another."""
    case, target = CASES["maxima"](), layer.load("siracusa")
    layer.compiled(case, target, layer.expected(case, target).shape, 8).write(tmp_path)
    makefile = (tmp_path / "Makefile").read_text()
    folders = {header.parent.relative_to(tmp_path) for header in (tmp_path / "kernels").rglob("*.h")}
    assert len(folders) == 2 and all(f"-I{folder}" in makefile for folder in folders), folders
