"""Reductions: C against the reference, the reference against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deeploy.ir.dimensions import Combine
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.planning.binding import kernels as bind
from tests.operators.harness import check, make_node
from tests.operators.kernels import KERNELS, draw, kernel, requantisation, staged

SHAPES: dict[tuple[int, ...], list[tuple[int, ...]]] = {
    (7,): [(0,)],
    (3, 70): [(0,), (1,), (0, 1)],
    (2, 5, 6, 9): [(1, 2), (3,), (2,), (0, 3), (0, 2), (1, 2, 3), (0, 1, 2, 3)],
    (2, 1, 3, 2, 2, 3): [(1, 3), (0, 2, 4), (0, 1, 2, 3, 5), (0, 1, 2, 3, 4, 5)],
}
CASES = [(shape, axes, keepdims) for shape, choices in SHAPES.items() for axes in choices for keepdims in (False, True)]
NUMPY = {"reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min}


EXTREME = next(k for k in KERNELS if k.name == "arg_extreme")


def reduce_attrs(axes: tuple[int, ...], keepdims: bool) -> dict[str, Any]:
    return {"axes": axes, "keepdims": keepdims}


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize(("shape", "axes", "keepdims"), CASES)
def test_reductions(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool, name: str) -> None:
    x = draw(np.random.default_rng(len(axes)), "s8", *shape)
    attrs = reduce_attrs(axes, keepdims)
    (y,) = check(kernel(name), {"x": x}, "s32", attrs, strided=keepdims)
    np.testing.assert_array_equal(y, NUMPY[name](x.astype(np.int64), axis=axes, keepdims=keepdims))


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize(("shape", "axes", "keepdims"), CASES[::3])
def test_reductions_float(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool, name: str) -> None:
    x = draw(np.random.default_rng(len(axes)), "f32", *shape)
    (y,) = check(kernel(name, floating=True), {"x": x}, "f32", reduce_attrs(axes, keepdims), rtol=0, atol=0)
    np.testing.assert_allclose(y, NUMPY[name](x, axis=axes, keepdims=keepdims), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "axes", "keepdims"), CASES[1::3])
def test_mean_float(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> None:
    x = draw(np.random.default_rng(1), "f32", *shape)
    (y,) = check(kernel("reduce_mean", floating=True), {"x": x}, "f32", reduce_attrs(axes, keepdims), rtol=0, atol=0)
    np.testing.assert_allclose(y, x.mean(axis=axes, keepdims=keepdims), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "axes", "keepdims"), CASES)
def test_integer_mean(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> None:
    x = draw(np.random.default_rng(3), "s8" if keepdims else "u8", *shape)
    (y,) = check(kernel("integer_mean"), {"x": x}, "s32", reduce_attrs(axes, keepdims))
    count = int(np.prod([shape[axis] for axis in axes]))
    for got, total in zip(y.ravel().tolist(), x.sum(axis=axes, dtype=np.int64).ravel().tolist(), strict=True):
        if count & (count - 1) == 0 and not keepdims:
            assert got == (total + count // 2) // count
        else:
            assert got == int((total + (total > 0) * (count // 2) - (total < 0) * (count // 2)) / count)


@pytest.mark.parametrize(("shape", "axes"), [((4, 9), (1,)), ((2, 8, 2), (1,)), ((16, 3), (0,)), ((5, 1), (1,))])
def test_integer_mean_of_powers_of_two(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = draw(np.random.default_rng(3), "s8", *shape)
    for keepdims in (False, True):
        check(kernel("integer_mean"), {"x": x}, "s32", reduce_attrs(axes, keepdims))
        check(kernel("integer_mean"), {"x": x}, "s8", reduce_attrs(axes, keepdims))


@pytest.mark.share(0.25)
@pytest.mark.parametrize("dtype", ["s8", "u8", "s16", "s32"])
@pytest.mark.parametrize("name", [*NUMPY, "integer_mean"])
def test_types(name: str, dtype: str) -> None:
    x = draw(np.random.default_rng(4), dtype, 3, 5, 4)
    check(kernel(name), {"x": x}, "s32", reduce_attrs((1,), False))
    if name != "reduce_sum":
        check(kernel(name), {"x": x}, dtype, reduce_attrs((1, 2), False))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [(1, 2), (3,), (2, 3)])
def test_requantised_by_the_last_axis_of_the_output(axes: tuple[int, ...], keepdims: bool) -> None:
    rng = np.random.default_rng(5)
    x = draw(rng, "s8", 2, 6, 5, 70)
    last = 1 if keepdims and 3 in axes else [n for i, n in enumerate(x.shape) if i not in axes][-1]
    operands, values = requantisation(rng, last, "u8", 500, True)
    operands["bias"] = rng.integers(-50, 50, last).astype(np.int32)
    check(kernel("reduce_sum"), {"x": x, **operands}, "u8", staged(reduce_attrs(axes, keepdims), "bias", "requantise", **values))


@pytest.mark.parametrize(("shape", "axes", "keepdims"), CASES[2::3])
def test_products_float(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> None:
    x = draw(np.random.default_rng(6), "f32", *shape)
    (y,) = check(kernel("reduce_prod", floating=True), {"x": x}, "f32", reduce_attrs(axes, keepdims), rtol=0, atol=0)
    np.testing.assert_allclose(y, x.prod(axis=axes, keepdims=keepdims), rtol=1e-4, atol=1e-30)


@pytest.mark.parametrize("dtype", ["s32", "s64"])
def test_products_of_integers(dtype: str) -> None:
    x = np.random.default_rng(7).integers(-3, 4, (5, 4, 6)).astype(np.dtype(f"i{int(dtype[1:]) // 8}"))
    of_type = next(k for k in KERNELS if k.name.startswith("reduce_prod") and DType(dtype) in k.types["x"])
    (y,) = check(of_type, {"x": x}, dtype, reduce_attrs((0, 2), False))
    np.testing.assert_array_equal(y, x.prod(axis=(0, 2)))


def test_extremes_of_nothing() -> None:
    x = np.zeros((3, 0), np.float32)
    for name, limit in (("reduce_max", -np.inf), ("reduce_min", np.inf)):
        (y,) = check(kernel(name, floating=True), {"x": x}, "f32", reduce_attrs((1,), False))
        assert y.tolist() == [limit] * 3
    empty, y = Tensor("x", (3, 0), DType.INT8, None), Tensor("y", (3,), DType.INT8, None)
    node = Node("none", "ReduceMax", (empty,), (y,), reduce_attrs((1,), False))
    assert bind.list_mismatches(kernel("reduce_max"), node) == ["elements to reduce"]


@pytest.mark.parametrize("shape", [(7,), (3, 40), (2, 3, 1), (2, 1, 5, 9)])
@pytest.mark.parametrize("dtype", ["s8", "u8", "s32", "f32"])
@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_where_extremes_are(shape: tuple[int, ...], dtype: str, smallest: bool, last: bool) -> None:
    x = np.round(draw(np.random.default_rng(7), dtype, *shape) / 16).astype(DType(dtype).numpy)  # equal ones are likely
    (y,) = check(EXTREME, {"x": x}, "s64", {"smallest": smallest, "last": last}, strided=True)
    wanted = x.min(-1, keepdims=True) if smallest else x.max(-1, keepdims=True)
    places = [np.flatnonzero(row) for row in (x == wanted).reshape(-1, shape[-1])]
    assert y.ravel().tolist() == [place[-1 if last else 0] for place in places]


def test_nest_knows_how_results_combine() -> None:
    x = np.zeros((2, 3), np.int8)
    for name, combine in (("reduce_sum", Combine.SUM), ("reduce_max", Combine.MAX), ("reduce_min", Combine.MIN)):
        node = make_node(kernel(name), {"x": x}, "s32", reduce_attrs((1,), True))
        assert kernel(name).nest(node).dims()["d1"].combine is combine


def test_limits_are_stated() -> None:
    x = np.zeros((1,) * 8, np.int8)
    node = make_node(kernel("reduce_sum"), {"x": x}, "s32", reduce_attrs((0, 1, 2, 3, 4, 5, 6), False))
    assert bind.list_mismatches(kernel("reduce_sum"), node) == ["at most 6 reduced and 6 other axes"]
