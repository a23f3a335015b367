"""Expressions: their values, their bounds and their C against plain arithmetic on random expressions."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

from deeploy.backend.layers import declare_parts
from deeploy.ir.expr import (
    Value,
    Variable,
    evaluate_value,
    maximum,
    minimum,
    multiply_values,
    name_value,
    plain_value,
    quotient,
    remainder,
    value_bounds,
)
from deeploy.ir.mentions import mentions
from deeploy.resources import resource

T, U = Variable("t", 0, 11), Variable("u", -3, 4)
POINTS = [(t, u) for t in range(12) for u in range(-3, 5)]


def expression(numbers: random.Random, depth: int) -> Value:
    """What the compiler makes of variables and constants: operations nested up to a depth."""
    if depth == 0:
        return numbers.choice([numbers.randint(-9, 9), T, T, U])
    a, b = (expression(numbers, numbers.randrange(depth)) for _ in range(2))
    small = numbers.randint(1, 5)
    return numbers.choice(
        [
            lambda: a + b,
            lambda: a - b,
            lambda: a * numbers.randint(-3, 3),
            lambda: a * b if depth < 3 else a,
            lambda: quotient(a, small),
            lambda: remainder(a, small),
            lambda: maximum(a, b),
            lambda: minimum(a, b),
            lambda: name_value(f"part{numbers.randrange(10**9)}", a),
        ]
    )()


def some(count: int) -> list[Value]:
    return [expression(random.Random(seed), 4) for seed in range(count)]


def test_values_bounds_and_arrays_agree() -> None:
    ts, us = np.array(POINTS).T
    for value in some(400):
        values = [evaluate_value(value, {"t": t, "u": u}) for t, u in POINTS]
        low, high = value_bounds(value)
        assert low <= min(values) and max(values) <= high, value
        assert np.broadcast_to(evaluate_value(value, {"t": ts, "u": us}), len(POINTS)).tolist() == values, value


def test_the_c_has_the_same_values(tmp_path: Path) -> None:
    found = some(400)
    source = ["#include <stdint.h>", "#include <stdio.h>", '#include "deeploy_tile.h"']
    for number, value in enumerate(found):
        with mentions() as noted:
            result = f"return {value};"
        source += [
            f"static int32_t value_{number}(int32_t t, int32_t u) {{",
            "(void)t; (void)u;",
            *declare_parts(noted.parts()),
            result,
            "}",
        ]
    calls = "".join(f'printf("%d ", (int)value_{number}(t, u));' for number in range(len(found)))
    source.append(f"int main(void) {{ for (int t = 0; t < 12; t++) for (int u = -3; u < 5; u++) {{ {calls} }} return 0; }}")
    (tmp_path / "values.c").write_text("\n".join(source))
    command = ["gcc", "-std=c11", "-fsanitize=undefined", "-fno-sanitize-recover", f"-I{resource('kernels') / 'hal'}"]
    subprocess.run([*command, str(tmp_path / "values.c"), "-o", str(tmp_path / "values")], check=True)
    done = subprocess.run([str(tmp_path / "values")], capture_output=True, text=True, check=True)
    got = np.array(done.stdout.split(), int).reshape(len(POINTS), len(found))
    for number, value in enumerate(found):
        assert got[:, number].tolist() == [evaluate_value(value, {"t": t, "u": u}) for t, u in POINTS], value


def test_a_hull_holds_every_value_of_its_range() -> None:
    bounded = 0
    for seed, value in enumerate(some(400)):
        first, last = sorted(random.Random(seed).choices(range(12), k=2))
        if isinstance(value, int) or any(atom not in (T, U) for atom in value.atoms()):
            continue
        try:
            low, high = value.hull({"t": (first, last), "u": (-3, 4)})
        except ValueError:
            continue  # products of ranges have no hull that is an expression, and say so
        inside = [evaluate_value(value, {"t": t, "u": u}) for t, u in POINTS if first <= t <= last]
        assert evaluate_value(low, {}) <= min(inside) and max(inside) <= evaluate_value(high, {}), value
        bounded += 1
    assert bounded > 100


def test_sums_are_equal_where_their_terms_are() -> None:
    assert T + U - T == U
    assert plain_value(T - T) == 0 and plain_value((T + 1) * 2 - 2 * T) == 2
    assert (T + 1) * (U + 2) == T * U + 2 * T + U + 2
    assert multiply_values([T, 3, U]) == U * T * 3
    assert T + 1 != U + 1 and hash(T + U) == hash(U + T)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (quotient(T, 12), 0),
        (remainder(T, 12), T),
        (remainder(T * 4, 1), 0),
        (maximum(T, 0), T),
        (maximum(U, 7), 7),
        (minimum(T, 11), T),
        (minimum(16, 50 - T * 3), 16),
        (name_value("n", T), T),
        (name_value("n", T - T + 4), 4),
    ],
)
def test_bounds_decide_what_they_can(value: Value, expected: Value) -> None:
    assert value == expected


def test_what_is_printed_is_noted_with_all_that_it_needs() -> None:
    first = name_value("first", T * 4)
    count = name_value("count", minimum(4, 30 - first))
    with mentions() as noted:
        text = f"{first + count}"
    assert text == "first + count"
    assert [part.name for part in noted.parts()] == ["first", "count"]
    assert noted.names() == {"first", "count", "t"}
