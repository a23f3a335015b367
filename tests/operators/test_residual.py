"""Partial sums with a residual connection: C against the reference, the reference against the operators that it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.operators.elementwise import scaled_add_reference
from deeploy.planning.binding import kernels as bind
from tests.operators.harness import check
from tests.operators.kernels import draw, kernel

RESIDUAL = kernel("residual_sum")
BOTH: dict[str, Any] = {
    "mul_a": 3 << 28,
    "mul_b": -(5 << 27),
    "offset": (1 << 29) + (3 << 30),
    "shift_sum": 30,
    "low_sum": -128,
    "high_sum": 127,
}


def operands(shape: tuple[int, ...], terms: int, b: str, channels: int, wide: bool = False) -> dict[str, np.ndarray]:
    """Sums of a few thousand that a factor of about 1/32 brings to 8 bits, half of a step in ``add``."""
    rng = np.random.default_rng(terms + len(shape))
    shift = 34 if wide else 20
    mul = rng.integers(1 << 14, 1 << 15, channels).astype(np.int32)
    add = (rng.integers(-20, 20, channels).astype(np.int64) << shift) + (1 << (shift - 1))
    return {"x": draw(rng, "s32", terms, *shape), "b": draw(rng, b, *shape), "mul": mul, "add": add.astype(np.int64 if wide else np.int32)}


SHAPES = [((7,), 4, 1), ((1, 1, 70), 2, 70), ((2, 5, 6), 5, 6), ((3, 1, 9), 1, 1), ((2, 1, 3, 2, 1, 5), 3, 5), ((), 3, 1)]


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize(("b", "y", "wide"), [("s8", "s8", False), ("u8", "s8", True), ("s8", "u8", False)])
@pytest.mark.parametrize(("shape", "terms", "channels"), SHAPES)
def test_sum_and_scaled_add(shape: tuple[int, ...], terms: int, channels: int, b: str, y: str, wide: bool, strided: bool) -> None:
    """The same as a sum in 64 bits, a requantisation of it and a ``ScaledAdd`` behind that."""
    given = operands(shape, terms, b, channels, wide)
    low, high = DType(y).range
    attrs = {**BOTH, "shift": 34 if wide else 20, "low": -100, "high": 90, "low_sum": low, "high_sum": high}
    (got,) = check(RESIDUAL, given, y, attrs, strided=strided)
    total = given["x"].astype(np.int64).sum(axis=0)
    t = np.clip((total * given["mul"] + given["add"]) >> attrs["shift"], -100, 90)
    names = {"add": "offset", "shift": "shift_sum", "low": "low_sum", "high": "high_sum"}
    added = Node("", "ScaledAdd", (), (), {"mul_a": BOTH["mul_a"], "mul_b": BOTH["mul_b"], **{n: attrs[m] for n, m in names.items()}})
    np.testing.assert_array_equal(got, scaled_add_reference(added, t, given["b"]))


@pytest.mark.parametrize("even", [None, 0, 1])
@pytest.mark.parametrize("even_sum", [None, 0, 1])
def test_ties_of_both_go_where_they_are_told(even: int | None, even_sum: int | None) -> None:
    x, b = np.arange(-40, 40, dtype=np.int32).reshape(2, 40), np.arange(40, dtype=np.int8)
    given = {"x": x, "b": b, "mul": np.array([1], np.int32), "add": np.array([2], np.int32)}
    attrs: dict[str, Any] = {"shift": 2, "low": -128, "high": 127, "mul_a": 2, "mul_b": 1, "offset": 2, "shift_sum": 2}
    attrs |= {"low_sum": -128, "high_sum": 127}
    attrs |= {name: value for name, value in (("even", even), ("even_sum", even_sum)) if value is not None}
    (got,) = check(RESIDUAL, given, "s8", attrs)

    def rounded(values: np.ndarray, parity: int | None) -> np.ndarray:
        return np.floor(values + 0.5) if parity is None else np.rint(values + parity) - parity

    t = rounded(x.sum(axis=0) / 4, even)
    np.testing.assert_array_equal(got, rounded((2 * t + b) / 4, even_sum))


def tensor(name: str, dtype: str, *shape: int) -> Tensor:
    return Tensor(name, shape, DType(dtype))


@pytest.mark.parametrize(
    ("x", "b", "mul", "need"),
    [
        ((3, 4, 5), (4, 5), (5,), None),
        ((3, 4, 5), (5,), (5,), "x of the shape of b behind an axis of terms"),
        ((3, 4, 5), (4, 5), (4,), "mul and add of one element, or one for each of the last axis"),
        ((3, 4, 5), (4, 5), (1, 5), "mul and add of one element, or one for each of the last axis"),
        ((2, *[1] * 7), (1,) * 7, (1,), "at most 6 axes"),
    ],
)
def test_shapes(x: tuple[int, ...], b: tuple[int, ...], mul: tuple[int, ...], need: str | None) -> None:
    inputs = (tensor("x", "s32", *x), tensor("b", "s8", *b), tensor("mul", "s32", *mul), tensor("add", "s64", 1))
    node = Node("node", "ResidualSum", inputs, (tensor("y", "s8", *b),), {})
    assert bind.list_mismatches(RESIDUAL, node) == ([] if need is None else [need])


def test_partial_sums_are_never_cut() -> None:
    """What follows the sum is not linear: the chips' machinery must see no product whose parts may be added."""
    given = operands((4, 6), 3, "s8", 1)
    inputs = tuple(tensor(name, DType.of(array.dtype).value, *array.shape) for name, array in given.items())
    nest = RESIDUAL.nest(Node("node", "ResidualSum", inputs, (tensor("y", "s8", 4, 6),), {}))
    reduced = {name for name, access in nest.reads.items() if any(dim.name == "term" for dim in access.dims())}
    assert reduced == {"x"}
