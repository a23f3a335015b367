"""Sums of partial sums on the simulator, bit for bit: `.insn` against the portable body, every form, awkward shapes, numbers of cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gvsoc import layer
from tests.targets.siracusa.conftest import Simulate

ROOT = Path(__file__).resolve().parents[3]

# Factor, half of a step, shift of a sum; factors and shift of what is added to it.
FORMS = {"narrow": (45, 1 << 10, 11), "high": (1192384022, 1 << 36, 37)}
SHORT, LONG = (3 << 12, 5 << 11, 14), (1192384022, -497609111, 31)


def _draw(kind: str, *shape: int) -> np.ndarray:
    info = np.iinfo(kind)
    return np.random.default_rng(len(shape)).integers(max(info.min, -2000), min(info.max, 2000), shape, endpoint=True).astype(kind)


def _sum(terms: int, shape: tuple[int, ...], form: str = "", channels: int = 1, y: str = "s8", high: int = 127) -> layer.Case:
    """A sum, as it is or requantised; with a bias where channels differ."""
    operands, attrs = {"x": _draw("i4", terms, *shape)}, {"axes": (0,), "keepdims": False}
    if not form:
        return layer.Case(f"sum {shape}", "ReduceSum", ("x",), operands, "s32", attrs)
    stages = ("bias", "requantise") if channels > 1 else ("requantise",)
    operands |= {"bias": _draw("i4", channels)} if channels > 1 else {}
    more, values = _factors(form, channels)
    attrs |= {"epilogue": stages, **values, "low": 0 if y == "u8" else -128, "high": high}
    return layer.Case(f"{form} sum {shape}", "ReduceSum", ("x",), {**operands, **more}, y, attrs)


def _factors(form: str, channels: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    mul, half, shift = FORMS[form]
    each = np.linspace(0.6, 1, channels) * mul
    return {"mul": each.astype(np.int32), "add": np.full(channels, half, np.int64)}, {"shift": shift}


def _residual(
    terms: int, shape: tuple[int, ...], form: str, channels: int, added: tuple[int, int, int], types: tuple[str, str], low: int, high: int
) -> layer.Case:
    b, y = types
    more, attrs = _factors(form, channels)
    operands = {"x": _draw("i4", terms, *shape), "b": _draw({"s8": "i1", "u8": "u1"}[b], *shape), **more}
    attrs |= {"low": low, "high": high, "mul_a": added[0], "mul_b": added[1], "offset": 3 << (added[2] - 1), "shift_sum": added[2]}
    attrs |= {"low_sum": 0 if y == "u8" else -128, "high_sum": (255 if y == "u8" else 127) if low == -128 else 99}
    return layer.Case(f"{form} residual sum {shape}", "ResidualSum", ("x", "b"), operands, y, attrs)


CASES = {
    "kept": lambda: _sum(4, (1, 1, 96)),
    "kept, odd": lambda: _sum(3, (5, 7)),
    "narrow": lambda: _sum(5, (3, 40), "narrow"),
    "narrow, odd": lambda: _sum(2, (67,), "narrow", 1, "u8", 255),
    "narrow, channels": lambda: _sum(3, (9, 13), "narrow", 13),
    "high": lambda: _sum(4, (1, 1, 50), "high", 1, "u8", 200),
    "high, channels": lambda: _sum(3, (2, 6, 3), "high", 3),
    "one element for each core": lambda: _sum(2, (8,), "narrow"),
    "residual": lambda: _residual(5, (1, 1, 96), "narrow", 1, SHORT, ("s8", "s8"), -128, 127),
    "residual, odd": lambda: _residual(2, (9, 5), "narrow", 1, LONG, ("u8", "s8"), -100, 90),
    "residual, channels": lambda: _residual(3, (7, 13), "narrow", 13, SHORT, ("u8", "u8"), -128, 127),
    "residual, high": lambda: _residual(4, (77,), "high", 1, LONG, ("s8", "u8"), -100, 90),
    "residual, high, channels": lambda: _residual(9, (2, 3, 21), "high", 21, LONG, ("s8", "s8"), -100, 90),
}


@pytest.mark.gvsoc
@pytest.mark.parametrize("flags", ["", "-DXPULP_PORTABLE"])
@pytest.mark.parametrize("name", CASES)
def test_equal_to_the_reference(simulate: Simulate, name: str, flags: str) -> None:
    assert layer.check_and_measure(CASES[name](), 8, flags).kernel.startswith("pulp_")


@pytest.mark.gvsoc
@pytest.mark.parametrize("cores", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("name", ["narrow, channels", "residual, odd"])
def test_any_number_of_cores(simulate: Simulate, name: str, cores: int) -> None:
    layer.check_and_measure(CASES[name](), cores)


@pytest.mark.gvsoc
@pytest.mark.parametrize("name", ["kept, odd", "high, channels", "residual, high, channels"])
def test_built_by_clang(simulate: Simulate, name: str) -> None:
    layer.check_and_measure(CASES[name](), compiler="clang")


@pytest.mark.gvsoc
def test_speed(simulate: Simulate) -> None:
    """Cycles of eight cores, from fork to join, a little above what was measured; the portable kernels take 11 300 and 13 700."""
    limits = {
        "sum": (_sum(4, (1, 1, 512), "narrow"), 1600),
        "residual sum": (_residual(5, (1, 1, 512), "narrow", 1, SHORT, ("s8", "s8"), -128, 127), 2300),
    }
    cycles = {name: layer.check_and_measure(case).cycles for name, (case, _) in limits.items()}
    assert all(cycles[name] <= limit for name, (_, limit) in limits.items()), cycles
