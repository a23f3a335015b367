"""Which axes only have as many rows as exist, and how states are placed and appended to."""

from __future__ import annotations

import numpy as np
import pytest

from deeploy.errors import UnsupportedError
from deeploy.ir.nest import Map, Nest, parallel, reduction
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.operators.rows import column_nest
from deeploy.operators.views import APPEND, VIEWS, by_rows
from deeploy.planning.binding.dynamic import spread_axes


def _tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name, shape, DType.INT8)


ROWS, STATE = _tensor("rows", 1, 2, 1, 4), _tensor("state", 1, 2, 8, 4)
APPENDED = Node("append", APPEND, (ROWS,), (STATE,), {"axis": 2})


def _product(node: Node) -> tuple[tuple[str, ...], Nest]:
    (h, m, n), (k,) = parallel("h", "m", "n"), reduction("k")
    return ("a", "b", "y"), Nest({"a": Map(0, h, m, k), "b": Map(0, h, k, n)}, {"y": Map(0, h, m, n)})


def test_live_axes_spread_forwards_and_backwards() -> None:
    """Scores grow with the keys, the values with the scores, and what is added to the scores with them."""
    turned = _tensor("turned", 1, 2, 4, 8)
    scores, mask = _tensor("scores", 1, 2, 1, 8), _tensor("mask", 1, 2, 1, 8)
    (h, m, n) = parallel("h", "m", "n")
    nests = {
        "product": _product(APPENDED),
        "sum": (("a", "b", "y"), Nest({"a": Map(0, h, m, n), "b": Map(0, h, m, n)}, {"y": Map(0, h, m, n)})),
        "source": (("x", "y"), Nest({"x": Map(0, h, m, n)}, {"y": Map(0, h, m, n)})),
    }
    nodes = [
        Node("source", "Copy", (_tensor("given", 1, 2, 1, 8),), (mask,)),
        APPENDED,
        Node("turn", "Transpose", (STATE,), (turned,), {"perm": (0, 1, 3, 2)}),
        Node("product", "MatMul", (_tensor("q", 1, 2, 1, 4), turned), (scores,)),
        Node("sum", "Add", (scores, mask), (_tensor("sums", 1, 2, 1, 8),)),
    ]
    dynamic_axes = spread_axes(nodes, lambda node: nests.get(node.name))
    assert dynamic_axes == {
        name: frozenset({axis}) for name, axis in [("state", 2), ("turned", 3), ("scores", 3), ("sums", 3), ("mask", 3), ("given", 3)]
    }


@pytest.mark.parametrize("of", ["scores", "shares"])
def test_columns_are_live_with_the_row_that_they_need(of: str) -> None:
    """From what is read whole to what is written, and back."""
    turned, scores, shares = _tensor("turned", 1, 2, 4, 8), _tensor("scores", 1, 2, 1, 8), _tensor("shares", 1, 2, 1, 8)
    product = Node("product", "MatMul", (_tensor("q", 1, 2, 1, 4), turned), (scores if of == "scores" else shares,))
    softmax = Node("softmax", "Softmax", (scores,), (shares,))
    nests = {"product": _product(product), "softmax": (("x", "y"), column_nest()(softmax))}
    turn = Node("turn", "Transpose", (STATE,), (turned,), {"perm": (0, 1, 3, 2)})
    dynamic_axes = spread_axes([APPENDED, turn, product, softmax], lambda node: nests.get(node.name))
    assert dynamic_axes["scores"] == dynamic_axes["shares"] == frozenset({3})


def test_without_states_nothing_is_live() -> None:
    assert spread_axes([Node("sum", "Add", (ROWS, ROWS), (ROWS,))], lambda node: None) == {}


@pytest.mark.parametrize(
    ("op", "shape", "attrs"),
    [
        ("Reshape", (16, 4), {}),
        ("Slice", (1, 2, 3, 4), {"starts": (0, 0, 2, 0), "steps": (1, 1, 1, 1)}),
        ("Concat", (1, 2, 16, 4), {"axis": 2}),
    ],
)
def test_views_that_cannot_follow_are_named(op: str, shape: tuple[int, ...], attrs: dict[str, object]) -> None:
    inputs = (STATE, STATE) if op == "Concat" else (STATE,)
    with pytest.raises(UnsupportedError, match=f"node view \\({op}\\) cannot follow the rows of state"):
        spread_axes([APPENDED, Node("view", op, inputs, (_tensor("y", *shape),), attrs)], lambda node: None)


def test_kernels_that_cannot_follow_are_named() -> None:
    """A window slides over rows: the map of the axis is not a bare dimension."""
    h, m, n = parallel("h", "m", "n")
    (k,) = reduction("k")
    nest = ("x", "y"), Nest({"x": Map(0, h, m + k, n)}, {"y": Map(0, h, m, n)}, extents={"k": 3})
    with pytest.raises(UnsupportedError, match="node pool"):
        spread_axes([APPENDED, Node("pool", "MaxPool", (STATE,), (_tensor("y", 1, 2, 6, 4),))], lambda node: nest)


@pytest.mark.parametrize(
    ("shape", "axis", "strides"),
    [
        ((1, 2, 8, 4), 2, (64, 32, 4, 1)),
        ((2, 4, 8), 2, (32, 1, 4)),
        ((8, 2, 4), 0, (4, 32, 1)),
        ((1, 8), 1, (8, 1)),
        ((5, 8, 1), 1, (1, 5, 1)),
    ],
)
def test_rows_are_the_last_axis_but_one_in_memory(shape: tuple[int, ...], axis: int, strides: tuple[int, ...]) -> None:
    access = by_rows(shape, axis)
    for size, got, want in zip(shape, access.strides, strides, strict=True):
        assert size == 1 or got == want
    cells = np.indices(shape).reshape(len(shape), -1).T @ np.array(access.strides)
    assert sorted(cells) == list(range(int(np.prod(shape))))


def test_rows_are_appended_behind_those_that_exist() -> None:
    view = VIEWS[APPEND](APPENDED)
    (((side, position), place),) = view.parts
    assert (side, position, view.grows) == ("in", 0, 2)
    inside = place(by_rows(STATE.shape, 2))
    assert inside is not None and (inside.shape, inside.offset, inside.strides[2]) == (ROWS.shape, 0, 4)
