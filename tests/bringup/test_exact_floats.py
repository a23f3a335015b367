"""Float kernels equal their references bit for bit, but where a declaration says that the C library or an order of its own decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deeploy.bringup.cases import draw_cases
from deeploy.bringup.check import check_target
from deeploy.target import load

GENERIC = load("generic")


def is_exact(name: str) -> set[bool]:
    kernel = GENERIC.kernel(name)
    return {kernel.is_exact(case.node) for case in draw_cases(kernel, 4, 0)}


def test_what_declarations_say_of_floats() -> None:
    """Only the C library leaves a last bit open; of no kernel of the compiler the order of sums is."""
    assert not any(kernel.reorders for kernel in GENERIC.kernels)
    for name in ("normalise", "matmul_any", "conv2d", "reduce_mean", "average_pool2d", "quantize", "softmax"):
        assert is_exact(name) == {True}
    assert is_exact("unary") == {True, False}


@pytest.mark.parametrize("name", ["normalise", "reduce_mean", "average_pool2d", "matmul_any"])
def test_sums_of_floats_run_in_the_stated_order(name: str) -> None:
    """These are drawn anew here; ``target check`` holds all kernels to the same rule, in the other tests."""
    findings = check_target(GENERIC, (name,), samples=3, seed=11)
    assert findings.passed, findings.rows


def test_another_order_is_found_unless_it_is_declared() -> None:
    """A norm whose reference adds up in float64: what the C gives is within the rule, and not the same."""
    kernel = GENERIC.kernel("normalise")

    def other(node, x, scale, offset=None):  # type: ignore[no-untyped-def]
        return kernel.reference(node, x.astype("float64"), scale, offset)

    wrong = replace(kernel, reference=other)
    (row,) = [r for r in check_target(replace(GENERIC, kernels=(wrong,)), ("normalise",), samples=3).rows if r.part == "kernel"]
    assert row.status == "failed" and "reorders=True" in row.finding
    (row,) = [
        r
        for r in check_target(replace(GENERIC, kernels=(replace(wrong, reorders=True),)), ("normalise",), samples=3).rows
        if r.part == "kernel"
    ]
    assert row.status == "ok"
