"""Formulas of kernels, read from their C, for all values of their ranges by z3: what they give, and that nothing is undefined."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pycparser", reason="needs pycparser (pip install 'deeploy[prove]')")
pytest.importorskip("z3", reason="needs z3-solver (pip install 'deeploy[prove]')")

import z3

from deeploy.resources import resource
from tests.certify.symbolic import Execution, Value, number, prove, read_functions, unknown

PORTABLE = resource("kernels") / "portable"
INTEGERS = {"ACC_T": "int32_t", "MUL_T": "int32_t", "ADD_T": "int64_t", "IS_FLOAT": "0"}


def run(file: str, name: str, given: list[Value], macros: dict[str, str], text: str = "") -> tuple[Value, Execution]:
    functions = read_functions(text or (PORTABLE / file).read_text("utf-8"), INTEGERS | macros, [name])
    execution = Execution(functions, {})
    return execution.call(name, given), execution


def failures(execution: Execution, limits: list[Any]) -> list[str]:
    """Obligations that do not hold."""
    return [f"{where}: {case}" for what, where in execution.obligations if (case := prove(what, limits))]


def requantise(shift: int, even: int, text: str = "") -> list[str]:
    """What is wrong with a requantisation of any sum that 64 bits hold."""
    (acc, one), (mul, two), (add, three) = (
        unknown("acc", "int32_t"),
        unknown("mul", "int32_t"),
        unknown("add", "int64_t", -(2**62), 2**62 - 1),
    )
    (low, four), (high, five) = unknown("low", "int32_t"), unknown("high", "int32_t")
    limits = [one, two, three, four, five, low.vector <= high.vector]
    macros = {"EVEN": str(even) if even >= 0 else "(-1)"}
    result, execution = run("epilogue.h", "requantise", [acc, mul, add, number(shift), low, high], macros, text)
    ((product, six),) = execution.products
    limits.append(six)
    total = product + add.vector
    down = total >> shift
    is_tie = (total & (2**shift - 1)) == 0
    down = down - z3.If(z3.And(even >= 0, is_tie, (down ^ even) & 1 == 1), z3.BitVecVal(1, 64), z3.BitVecVal(0, 64))
    least, most = z3.SignExt(32, low.vector), z3.SignExt(32, high.vector)
    wanted = z3.If(down < least, least, z3.If(down > most, most, down))
    return [*failures(execution, limits), *filter(None, [prove(z3.SignExt(32, result.vector) == wanted, limits)])]


@pytest.mark.parametrize("even", [-1, 0, 1])
def test_requantisation_rounds_and_clips(even: int) -> None:
    assert [wrong for shift in (*range(0, 62, 5), 31, 32, 61, 62) for wrong in requantise(shift, even)] == []


@pytest.mark.slow
@pytest.mark.parametrize("even", [-1, 0, 1])
def test_requantisation_by_every_shift(even: int) -> None:
    assert [wrong for shift in range(63) for wrong in requantise(shift, even)] == []


@pytest.mark.parametrize(
    ("correct", "wrong"),
    [
        ("wide < low ? low : wide > high ? high : wide", "wide < low ? low : wide"),
        ("sum >> shift", "sum >> (shift + 2)"),
        ("== sum", "<= sum"),
    ],
    ids=["limit", "shift", "tie"],
)
def test_wrong_requantisations_are_found(correct: str, wrong: str) -> None:
    text = (PORTABLE / "epilogue.h").read_text("utf-8")
    assert correct in text
    assert requantise(62, 0, text.replace(correct, wrong))


@pytest.mark.parametrize("count", [1, 2, 3, 9, 64, 125, 32768])
def test_the_mean_is_rounded_down_from_16_bits_behind_the_point(count: int) -> None:
    total, within = unknown("total", "int32_t", -255 * count, 255 * count)
    result, execution = run("average_pool2d.c", "mean", [total, number(count)], {})
    twice = 2 * 65536 * z3.SignExt(32, total.vector) + count
    wide = z3.SignExt(32, result.vector)
    assert failures(execution, [within]) == []
    assert prove(z3.And(2 * count * wide <= twice, twice < 2 * count * (wide + 1)), [within], 60) == ""


def test_integer_quotients_are_defined() -> None:
    (n, one), (d, two) = unknown("n", "int64_t", -(2**61), 2**61), unknown("d", "int64_t", -(2**61), 2**61)
    _, execution = run("integer_div.c", "divide", [n, d], {})
    assert len(execution.obligations) >= 2 and failures(execution, [one, two]) == []


@pytest.mark.parametrize("rounded", ["0", "1"])
def test_shares_of_a_softmax_are_defined(rounded: str) -> None:
    (e, one), (levels, two), (total, three) = (
        unknown(name, "uint32_t", low, 2**31 - 1) for name, low in (("e", 0), ("levels", 0), ("total", 1))
    )
    _, execution = run("table_softmax.c", "share", [e, levels, total], {"WIDE_T": "uint32_t", "ROUNDED": rounded})
    assert execution.obligations and failures(execution, [one, two, three]) == []
