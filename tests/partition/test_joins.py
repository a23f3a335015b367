"""Residual connections join the sums that they follow, bit for bit, where the target has a kernel for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.transformer_models import Shape
from deeploy.execution.simulation import chips
from deeploy.ir.nodes import Node, Tensor, constant
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators.residual import RESIDUAL_SUM
from deeploy.partition import collectives
from deeploy.partition.joins import join_residuals
from deeploy.partition.system import System, check_system, system_of_one
from tests.partition.cuts import lowered_file
from tests.partition.test_tensor import CLUSTER, SIRACUSA, TOPOLOGY, cut, declare, is_equal, transformer

assert TOPOLOGY is not None
STORY = Path(__file__).parents[2] / "examples" / "story" / "story_int8.onnx"


def supports(node: Node) -> bool:
    return any(declare(node))


def count_of(system: System, chip: int = 0) -> Counter[str]:
    return Counter(node.op for node in system.chips[chip].nodes)


@pytest.mark.share(0.25)
@pytest.mark.parametrize("smallest", [1, 4096])
@pytest.mark.parametrize("has_caches", [True, False])
def test_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_caches: bool, smallest: int) -> None:
    """In chunks and without; both residual connections of every block."""
    monkeypatch.setattr(collectives, "SMALLEST", smallest)
    monkeypatch.setattr(collectives, "LARGEST", 16 * smallest)
    graph = transformer(tmp_path, Shape(64, 96, 4, 2, 1 if has_caches else 5, has_caches), True)
    found = cut(graph, 4)
    both = join_residuals(found.system, supports)
    assert count_of(found.system)["Add"] - count_of(both)["Add"] == 4  # others add masks
    assert count_of(both)[RESIDUAL_SUM.name] == count_of(found.system)["ReduceSum"] >= 4
    assert (count_of(both)[RESIDUAL_SUM.name] > 4) == (smallest == 1)
    check_system(both, TOPOLOGY)
    assert is_equal(graph, replace(found, system=both), steps=2)


@pytest.mark.slow
def test_scales_of_their_own(tmp_path: Path) -> None:
    """A QDQ graph: the skip connection has another scale than the sum."""
    graph = lowered_file(STORY, replace(SIRACUSA, kernels=CLUSTER), rows=1, context=32)
    found = cut(graph, 2)
    both = join_residuals(found.system, supports)
    assert count_of(both)[RESIDUAL_SUM.name] >= count_of(found.system)["ScaledAdd"] - count_of(both)["ScaledAdd"] == 8
    assert is_equal(graph, replace(found, system=both), steps=2)


def sums(first: str, stages: tuple[str, ...], channels: int = 1, **attrs: Any) -> Graph:
    """y = (sum of x) and b, in this order or the other one; the sum is requantised by one factor, or one for each channel."""
    x, b = Tensor("x", (3, 2, 8), DType.INT32), Tensor("b", (2, 8), DType.INT8)
    mul, add = constant(np.arange(77, 77 + channels, dtype=np.int32)), constant(np.full(channels, 1 << 9, np.int32))
    total = {"axes": (0,), "keepdims": False, "shift": 10, "low": -128, "high": 127, "epilogue": ("requantise",)}
    (t,) = Node("sum", "ReduceSum", (x, mul, add), (replace(b, name="t"),), total).outputs
    pair = [t, b] if first == "t" else [b, t]
    factors = [constant([number], DType.INT32) for number in (3, 2)] if "requantise" in stages else []
    last = Node("last", "Add", (*pair, *factors), (replace(b, name="y"),), {"epilogue": stages, **attrs})
    return Graph("", (x, b), last.outputs)


@pytest.mark.parametrize("channels", [1, 8])
@pytest.mark.parametrize("first", ["t", "b"])
@pytest.mark.parametrize(
    ("stages", "attrs"),
    [(("clamp",), {"low": -100, "high": 90}), (("requantise",), {"shift": 2, "low": -128, "high": 120, "even": 0})],
)
def test_stages_behind_the_addition(first: str, channels: int, stages: tuple[str, ...], attrs: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    values = {"x": random.integers(-800, 800, (3, 2, 8)).astype(np.int32), "b": random.integers(-128, 128, (2, 8)).astype(np.int8)}
    results = []
    for with_join in (False, True):
        system = system_of_one(sums(first, stages, channels, **attrs))
        system = join_residuals(system, supports) if with_join else system
        assert (count_of(system)[RESIDUAL_SUM.name], count_of(system)["ReduceSum"]) == ((1, 0) if with_join else (0, 1))
        results += chips.system_outputs(system, chips.chip_programs(system, SIRACUSA), values)
    assert np.unique(results[0]).size > 5
    assert np.array_equal(*results)


def test_what_is_read_elsewhere_stays() -> None:
    graph = sums("t", ("clamp",), low=-128, high=127)
    graph = replace(graph, outputs=(*graph.outputs, graph.nodes[0].outputs[0]))
    assert count_of(join_residuals(system_of_one(graph), supports))[RESIDUAL_SUM.name] == 0


@pytest.mark.parametrize(("place", "count"), [(0, 1), (1, 0)])
def test_what_is_added_exists_before_the_sum(place: int, count: int) -> None:
    """A joined sum is where the sum was: nodes stay in an order in which they can run."""
    graph = sums("t", ("clamp",), low=-128, high=127)
    (total, last), b = graph.nodes, graph.inputs[1]
    copy = Node("copy", "Copy", (b,), (replace(b, name="c"),))
    last = last.another(inputs=(last.inputs[0], *copy.outputs))
    nodes = [total, last]
    nodes.insert(place, copy)
    (found,) = join_residuals(system_of_one(replace(graph, outputs=last.outputs, order=tuple(nodes))), supports).chips
    assert [node.op for node in found.nodes].count(RESIDUAL_SUM.name) == count
    made = set(found.inputs)
    for node in found.nodes:
        assert made.issuperset(node.variables)
        made.update(node.outputs)
    assert made.issuperset(found.outputs)


def test_without_a_kernel_nothing_joins() -> None:
    graph = sums("t", ("clamp",), low=-128, high=127)
    assert count_of(join_residuals(system_of_one(graph), lambda node: False)) == {"ReduceSum": 1, "Add": 1}
