"""What a rule is called with: inputs and attributes, as its parameters name them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from deeploy.ir.nodes import Tensor, compute, constant
from deeploy.ir.rewriting import Match, Pass, Result, need, require, standard
from deeploy.ir.types import DType
from deeploy.ir.values import Graph

X = Tensor("x", (2, 3), DType.FLOAT32)


@standard("Any")
def rule(m: Match, x: Tensor, table: np.ndarray, number: int = 7, *others: Tensor, axis: int = -1, mode: str = "") -> Result:
    return x.apply("Seen", constant(table + number), *others, axis=axis, mode=mode, former=m.op)


def seen(*inputs: Tensor | None, **attributes: object) -> tuple[object, ...]:
    """The values of constants, how many other inputs there are, and attributes; nothing where the rule does not apply."""
    (node,) = Pass("test", (rule,))(Graph("g", (X,), (compute("Any", *inputs, **attributes),))).nodes
    if node.op != "Seen":
        return ()
    _, table, *others = node.operands
    return (np.asarray(table.data).tolist(), len(others), *(node.attrs[name] for name in ("axis", "mode", "former")))


@pytest.mark.parametrize(
    ("inputs", "attributes", "expected"),
    [
        ([constant(np.arange(2))], {"axis": 1, "unknown": 3}, ([7, 8], 0, 1, "", "Any")),
        ([constant(np.arange(2)), constant(np.array([1]))], {"mode": "far"}, ([1, 2], 0, -1, "far", "Any")),
        ([constant(np.arange(2)), None, X, None, X], {}, ([7, 8], 2, -1, "", "Any")),
        ([], {}, ()),  # no default
        ([X], {}, ()),  # computed
        ([constant(np.arange(2)), constant(np.arange(2))], {}, ()),  # two numbers
    ],
)
def test_parameters_say_what_a_rule_is_called_with(inputs: list[Tensor | None], attributes: dict, expected: tuple[object, ...]) -> None:
    assert seen(X, *inputs, **attributes) == expected


@standard("Sum", commutes=True)
def double(m: Match, x: Tensor, number: float, *others: Tensor) -> Result:
    require(number > 1, need(x.maker).op != "Seen")
    return x.apply("Seen", number, *others)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (lambda x: (x, constant(2.0)), ["Twice", "Seen"]),
        (lambda x: (constant(2.0), x), ["Twice", "Seen"]),
        (lambda x: (constant(2.0), x, X), ["Twice", "Seen"]),
        (lambda x: (x, X), ["Twice", "Sum"]),  # no number
        (lambda x: (x, constant(1.0)), ["Twice", "Sum"]),  # a condition does not hold
        (lambda x: (X, constant(2.0)), ["Sum"]),  # there is no value
        (lambda x: (x,), ["Twice", "Sum"]),  # an input is absent
    ],
)
def test_a_rule_that_commutes_is_tried_both_ways_and_does_not_apply_without_what_it_needs(
    inputs: Callable[[Tensor], tuple[Tensor, ...]], expected: list[str]
) -> None:
    graph = Pass("test", (double,))(Graph("g", (X,), (compute("Sum", *inputs(compute("Twice", X)), shape=X.shape),)))
    assert [node.op for node in graph.nodes] == expected
