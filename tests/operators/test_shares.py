"""Attributes of operators on shares of their operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.operators.table import shared

X = np.arange(12)
KEPT = st.sets(st.integers(0, 11), min_size=1).map(sorted)


@given(st.integers(0, 11), st.integers(1, 12), st.integers(1, 4), KEPT, KEPT)
def test_a_slice_of_a_share_is_a_share_of_the_slice(start: int, end: int, step: int, inside: list[int], results: list[int]) -> None:
    """Both along the last of two axes; None only where what is wanted is absent, or in no arithmetic progression."""
    whole = X[start:end:step]
    before, after = np.array(inside), np.array([i for i in results if i < len(whole)], int)
    node = Node("n", "Slice", (), (), {"starts": (1, start), "ends": (3, end), "steps": (1, step), "axis": 5})
    found = shared(node, (1, 1), (before, after))
    places = [inside.index(i) if i in inside else -1 for i in whole[after].tolist()]
    if found is None:
        assert not places or -1 in places or len(set(np.diff(places))) > 1
        return
    starts, ends, steps = (found[name] for name in ("starts", "ends", "steps"))
    assert (starts[0], ends[0], steps[0], found["axis"]) == (1, 3, 1, 5)
    np.testing.assert_array_equal(X[before][starts[1] : ends[1] : steps[1]], whole[after])


def test_what_is_not_divided_keeps_its_attributes() -> None:
    attrs = {"starts": (1, 2), "ends": (3, 4), "steps": (1, 1)}
    node = Node("n", "Slice", (), (), attrs)
    assert shared(node, (None, None), (None, None)) == shared(node, (1, 1), (X, None)) == attrs
    split = Node("n", "Split", (), (), {"axis": 1, "sizes": (4, 8)})
    assert shared(split, (0, 0, 0), (X, X, X)) == split.attrs
    assert shared(Node("n", "Relu", (), (), {"a": 1}), (0, 0), (X, X)) == {"a": 1}


def test_parts_of_a_split_are_as_long_as_what_is_kept_of_them() -> None:
    outputs = tuple(Tensor(name, (1, size), DType.INT8) for name, size in (("a", 4), ("b", 8)))
    node = Node("n", "Split", (), outputs, {"axis": 1, "sizes": (4, 8)})
    assert shared(node, (1, 1, 1), (X[:5], X[:1], X[:4])) == {"axis": 1, "sizes": (1, 4)}
    assert shared(node, (1, 1, None), (X[:5], X[:1], None)) is None


@pytest.mark.parametrize(
    ("groups", "kept", "group"), [(1, None, 1), (1, X[:3], 1), (6, X[:4], 2), (6, X[:2], 1), (6, X[:3], None), (6, None, None)]
)
def test_groups_are_divided_with_the_channels(groups: int, kept: Sequence[int] | None, group: int | None) -> None:
    """Of twelve channels."""
    image = Tensor("x", (1, 5, 5, 12), DType.INT8)
    found = shared(Node("n", "Conv", (image,), (), {"group": groups}), (3, None, 3), (kept, None, None))
    assert found == (None if group is None else {"group": group})
