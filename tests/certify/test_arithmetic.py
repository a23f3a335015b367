"""Ranges in certificates contain what is computed, are reached, and name what does not fit."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import deeploy
from deeploy.bringup.cases import draw_cases
from deeploy.certify import LayerArithmetic, bound_arithmetic, bound_network
from deeploy.cli import app
from deeploy.driver.compile import load_target
from deeploy.ir.epilogue import stage_operands
from deeploy.ir.kernel import Kernel
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.operators.accumulate import exclude_overflow
from deeploy.operators.requantise import requantisation_of
from deeploy.operators.table import OPERATORS
from deeploy.schemas import CERTIFICATE
from tests.certify.test_prove import small
from tests.models import Net, quantised


def product(folder: Path) -> Node:
    """Four elements times three columns, requantised."""
    n = Net()
    w = n.c(np.array([[100, -7, 3], [-128, -90, 5], [127, -1, 0], [9, -128, 1]], np.int8))
    x = quantised(n, n.x(1, 4))
    path = n.save(folder / "product.onnx", quantised(n, n.MatMul(x, n.DequantizeLinear(w, n.c(np.float32(0.01)), n.c(np.int8(0))))))
    calls = deeploy.compile(path, certify=False).plan.program.calls
    return next(call.node for call in calls if call.node.op == "MatMul")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return product(tmp_path_factory.mktemp("product"))


def bounded(node: Node) -> LayerArithmetic:
    found = bound_arithmetic(node)
    assert found is not None
    return found


def test_ranges_are_those_of_the_extreme_inputs(node: Node) -> None:
    found, constants, weights = bounded(node), requantisation_of(node), node.operands[1].data
    assert constants is not None and weights is not None and found.sum is not None
    assert constants[0] is None
    columns = (weights if node.attrs["trans_b"] else weights.T).astype(np.int64)
    sums = {(j, int(np.dot(column, x))) for x in itertools.product((-128, 127), repeat=4) for j, column in enumerate(columns)}
    partial = [
        int(np.dot(column * mask, x))
        for column in columns
        for mask in itertools.product((0, 1), repeat=4)
        for x in ((-128,) * 4, (127,) * 4)
    ]
    assert found.sum == (min(value for _, value in sums), max(value for _, value in sums))
    assert found.sum[0] <= min(partial) and max(partial) <= found.sum[1]
    factor, summand = (np.broadcast_to(values, 3).astype(object) for values in constants[1:])
    products = [value * factor[j] + added for j, value in sums for added in (0, summand[j])]
    assert found.product == (min(products), max(products))
    assert found.result == (-128, 127) and found.shift == node.attrs["shift"] and not found.failure


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"shift": 63}, "a shift by 63 bits"),
        ({"shift": 0, "high": 128}, "results from -128 to 128 are not all of type s8"),
        ({"a_zero_point": -(2**24)}, "do not fit into 32 bits"),
    ],
    ids=["shift", "limit", "zero point"],
)
def test_what_does_not_fit_is_said(attrs: dict[str, Any], words: str, node: Node) -> None:
    assert words in bounded(replace(node, attrs={**node.attrs, **attrs})).failure


def test_a_product_that_does_not_fit_is_said(node: Node) -> None:
    inputs = [
        replace(t, data=np.full_like(t.data, 2**63 - 1)) if t is not None and t.data is not None and t.data.dtype == np.int64 else t
        for t in node.inputs
    ]
    assert "do not fit into 64 bits" in bounded(replace(node, inputs=tuple(inputs))).failure


def test_the_certificate_has_them_and_is_compared_with_them(tmp_path: Path) -> None:
    out = tmp_path / "out"
    runner = CliRunner()
    assert runner.invoke(app, ["compile", str(small(tmp_path)), "-o", str(out)]).exit_code == 0
    told = json.loads((out / CERTIFICATE).read_text("utf-8"))
    arithmetic = told["arithmetic"]
    assert arithmetic["is_proved"] and len(arithmetic["layers"]) == 10 and arithmetic["others"] == []
    assert runner.invoke(app, ["certify", str(out)]).exit_code == 0
    next(layer for layer in arithmetic["layers"] if "sum" in layer)["sum"][0] += 1
    (out / CERTIFICATE).write_text(json.dumps(told), "utf-8")
    changed = runner.invoke(app, ["certify", str(out), "--json"])
    assert changed.exit_code == 1 and json.loads(changed.stdout)["changed"] == [CERTIFICATE]


KERNELS = [
    kernel
    for kernel in load_target("generic").kernels
    if kernel.operator.integers not in (None, exclude_overflow)
    and any(t.bits < 32 for t in kernel.types.get(kernel.operator.inputs[0], ()))
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_what_is_computed_on_the_way_holds_what_references_give(kernel: Kernel) -> None:
    proved = 0
    for case in draw_cases(kernel, 12):
        found, is_word = bound_arithmetic(case.node), any(t.dtype.bits >= 32 for t in case.node.operands[:2])
        if found is None or not found.steps:
            assert is_word
            continue
        assert is_word or not found.failure or found.sum is not None or "multipliers" in found.failure
        body = len(case.node.operands) - len(stage_operands(case.node.epilogue))
        sums = np.asarray(kernel.reference(case.node, *list(case.inputs.values())[:body]))
        low, high = found.steps.get("sum", found.steps.get("result", (sums.min(initial=0), sums.max(initial=0))))
        assert low <= sums.min(initial=0) and sums.max(initial=0) <= high
        proved += 1
    assert proved


def squares(table: np.ndarray, *, is_copied: bool) -> list[Node]:
    """The sum of 64 words of a table, which may be seen in another shape."""
    x, entries = Tensor("x", (1, 2, 64), DType.INT8), Tensor("entries", (256,), DType.INT32, table)
    words, total = Tensor("words", (1, 2, 64), DType.INT32), Tensor("total", (1, 2, 1), DType.INT32)
    seen = Tensor("seen", (1, 2, 64), DType.INT32)
    Node("view", "Reshape", (words,), (seen,))
    factors = [Tensor(name, (1,), DType.INT32, np.array([1], np.int32)) for name in ("mul", "add")]
    attrs = {"axes": (2,), "keepdims": True, "epilogue": ("requantise",), "shift": 8, "low": -(2**31), "high": 2**31 - 1}
    first = Node("first", "Lookup", (x, entries), (words,))
    return [first, Node("sum", "ReduceSum", (seen if is_copied else words, *factors), (total,), attrs)]


@pytest.mark.parametrize("is_copied", [False, True])
def test_words_have_what_layers_leave_in_them(is_copied: bool) -> None:
    lookup, total = bound_network(squares(np.arange(-128, 128, dtype=np.int32) ** 2, is_copied=is_copied))
    assert lookup is None
    assert total is not None and total.sum == (0, 64 * 128**2) and not total.failure
    too_large = bound_network(squares(np.full(256, 2**26, np.int32), is_copied=is_copied))[1]
    assert too_large is not None and "sum from 0 to 4294967296" in too_large.failure
    alone = bound_network(squares(np.zeros(256, np.int32), is_copied=is_copied)[1:])[0]
    assert alone is not None and "sum from -137438953472" in alone.failure, "nobody says what the words are"


def test_multipliers_that_are_computed_have_all_values_of_their_type() -> None:
    x, mul, add = (Tensor(name, (1, 4), DType.INT32) for name in ("x", "mul", "add"))
    attrs = {"shift": 8, "low": -128, "high": 127}
    found = bounded(Node("requantised", "RequantShift", (x, mul, add), (Tensor("y", (1, 4), DType.INT8),), attrs))
    assert found.product == (-(2**31) * (2**31 - 1) - 2**31, 2**62 + 2**31 - 1)
    assert found.result == (-128, 127) and not found.failure


def test_operators_without_ranges_are_not_proved(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = replace(OPERATORS[node.op], bounds=None, integers=None)
    monkeypatch.setattr("deeploy.certify.arithmetic.OPERATORS", {node.op: silent})
    assert "states no range" in bounded(node).failure
