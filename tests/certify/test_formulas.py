"""Formulas of kernels, read from their C, for all values of their ranges by z3: what they give, and that nothing is undefined."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pycparser", reason="needs pycparser (pip install 'deeploy[prove]')")
pytest.importorskip("z3", reason="needs z3-solver (pip install 'deeploy[prove]')")

import z3
from pycparser import c_ast

from deeploy.resources import resource
from tests.certify.symbolic import Execution, Value, number, prove, read_functions, unknown

PORTABLE = resource("kernels") / "portable"
INTEGERS = {"ACC_T": "int32_t", "MUL_T": "int32_t", "ADD_T": "int64_t", "IS_FLOAT": "0", "INT32_MAX": "2147483647"}


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
    ("correct", "wrong", "shift"),
    [
        ("return near > high ? high : near", "return near", 62),
        ("(int32_t)(wide >> 32) == lower >> 31 ? lower : (int32_t)(wide >> 63) ^ INT32_MAX", "lower", 20),
        ("sum >> shift", "sum >> (shift + 2)", 62),
        ("== sum)", "<= sum)", 62),
    ],
    ids=["limit", "saturation", "shift", "tie"],
)
def test_wrong_requantisations_are_found(correct: str, wrong: str, shift: int) -> None:
    text = (PORTABLE / "epilogue.h").read_text("utf-8")
    assert correct in text
    assert requantise(shift, 0, text.replace(correct, wrong))


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


def one_bit_of_a_root(k: int, text: str = "") -> list[str]:
    """What is wrong with the step of a root that decides bit k, by induction over the steps.

    Of a value V and the part r of its root that is known, a multiple of 2^(k+1), the C holds value = V - r^2 and root = 2^(k+1) r.
    That r^2 <= V < (r + 2^(k+1))^2 is then 0 <= value < 2 root + 4 bit, and (r + 2^k)^2 - r^2 is root + bit.
    """
    functions = read_functions(text or (PORTABLE / "roots.h").read_text("utf-8"), {}, ["integer_root"])
    loop = next(item for item in functions["integer_root"].body.block_items if isinstance(item, c_ast.For))
    (value, one), (root, two) = unknown("value", "uint64_t"), unknown("root", "uint64_t", 0, (1 << 33 + k) - (2 << 2 * k + 1))
    after = {"value": value, "root": root, "bit": number(1 << 2 * k, 64, False)}
    Execution(functions, {})._run(loop.stmt, after, z3.BoolVal(True), [])
    v, r, last, found = (z3.ZeroExt(8, one.vector) for one in (value, root, after["value"], after["root"]))
    bit = 1 << 2 * k
    limits = [one, two, z3.URem(root.vector, 4 * bit) == 0 if k < 31 else root.vector == 0, z3.ULT(v, 2 * r + 4 * bit)]
    is_set = z3.UGE(v, r + bit)
    wanted = [
        found == z3.If(is_set, z3.LShR(r, 1) + bit, z3.LShR(r, 1)),  # 2^k times r, or r + 2^k
        last == z3.If(is_set, v - r - bit, v),
        z3.ULT(last, 2 * found + bit),
    ]
    return [case for what in wanted if (case := prove(what, limits, 60))]


@pytest.mark.parametrize("k", range(32))
def test_integer_roots_are_exact(k: int) -> None:
    r, bit = z3.Int("r"), 2**k
    assert prove((r + bit) ** 2 - r**2 == 2 * bit * r + bit**2, []) == ""
    assert one_bit_of_a_root(k) == []


def test_a_wrong_root_is_found() -> None:
    text = (PORTABLE / "roots.h").read_text("utf-8")
    assert one_bit_of_a_root(3, text.replace("value >= root + bit", "value > root + bit"))


@pytest.mark.parametrize("shift", [0, 1, 17, 49, 50])
def test_scaled_quotients_are_defined(shift: int) -> None:
    """Of operands of 8 bits less their zero points, with 31-bit factors and shifts up to 50 bits as lowering makes them."""
    kinds = {"a": ("int", -510, 510), "b": ("int", -510, 510), "mul": ("int64_t", 0, 2**31 - 1), "zero_point": ("int", -255, 255)}
    given = {name: unknown(name, *kind) for name, kind in (kinds | {"high": ("int", -255, 255), "low": ("int", -255, 255)}).items()}
    text = (PORTABLE / "scaled_div.c").read_text("utf-8").replace("k->", "")
    function = read_functions(text, {"MOST": str(2**24)}, ["divide"])["divide"]
    execution, returned = Execution({}, {}), list[tuple[Any, Value]]()
    execution._run(
        function.body, {name: value for name, (value, _) in given.items()} | {"shift": number(shift)}, z3.BoolVal(True), returned
    )
    limits = [within for _, within in given.values()] + [within for _, within in execution.products]
    assert execution.obligations and len(returned) == 2 and failures(execution, limits) == []
