"""Graphs cut by depth: what every stage holds and sends, and that a pipeline computes what one chip does."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from deeploy.errors import FitError, UnsupportedError, UsageError
from deeploy.execution.simulation import chips
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators.link import RECV, SEND
from deeploy.operators.views import APPEND
from deeploy.options import Balance
from deeploy.partition import balance
from deeploy.partition.balance_levels import Levels
from deeploy.partition.pipeline import build_pipeline, choose_cuts_by, cut_stages, levels_of_graph, stage_graph
from deeploy.partition.system import System, check_system, constants_by_chip, find_deadlock, system_of_one
from deeploy.target import load
from tests.models import Net, conv
from tests.partition.cuts import lower_for_target

GENERIC = load("generic")
TOPOLOGY = GENERIC.topology
assert TOPOLOGY is not None


class Given:
    """Costs of devices that hold so many bytes of constants each, and take a time for every byte."""

    def __init__(self, levels: Levels, capacity: int) -> None:
        self.levels = levels
        self.capacity = capacity

    def overflow(self, stage: int, first: int, end: int) -> int:
        return max(0, sum(self.levels.weights[first:end]) - self.capacity)

    def tables(self, stages: int) -> list[np.ndarray]:
        depth = self.levels.depth
        table = np.full((depth, depth + 1), np.inf)
        for first, end in itertools.combinations(range(depth + 1), 2):
            table[first, end] = sum(self.levels.weights[first:end]) + 9 * self.overflow(0, first, end)
            table[first, end] += self.levels.crossing[first] + self.levels.crossing[end]
        return [table] * stages


def branching(folder: Path) -> Graph:
    """Convolutions with a skip connection over all of them, branches of different depth, and two outputs."""
    net = Net()
    x = net.x(1, 3, 8, 8)
    a = net.Relu(conv(net, x, 3, 8))
    b = net.Relu(conv(net, a, 8, 8))
    c = net.Relu(conv(net, b, 8, 8))
    d = net.Add(conv(net, c, 8, 8), a)
    joined = net.Concat(d, net.Relu(conv(net, a, 8, 4)), axis=1)
    e = net.Relu(conv(net, joined, 12, 8))
    return lower_for_target(net.model([net.Add(e, a), b]), folder)


def results(system: System, inputs: list[np.ndarray]) -> list[np.ndarray]:
    return chips.system_outputs(system, chips.chip_programs(system, GENERIC), inputs)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("strategy", get_args(Balance))
def test_a_pipeline_computes_what_one_chip_does(tmp_path: Path, count: int, strategy: str) -> None:
    graph = branching(tmp_path)
    levels = levels_of_graph(graph)
    found = build_pipeline(graph, levels, count, strategy, Given(levels, 1500))  # type: ignore[arg-type]
    check_system(found.system, TOPOLOGY)
    assert find_deadlock(found.system, 1) is None
    assert len(found.system.chips) == count
    images = np.random.default_rng(count).standard_normal((3, 1, 3, 8, 8)).astype(np.float32)
    for image in images:
        expected, got = results(system_of_one(graph), [image]), results(found.system, [image])
        assert len(got) == 2
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


def test_every_cut_sends_to_the_next_stage_only_and_forwards_what_is_read_later(tmp_path: Path) -> None:
    graph = branching(tmp_path)
    levels = levels_of_graph(graph)
    cuts = tuple(range(1, levels.depth))
    system = cut_stages(graph, levels, cuts)
    assert all(m.receiver[0] == m.sender[0] + 1 for m in system.messages)
    for border in cuts:
        assert sum(m.bytes for m in system.messages if m.receiver[0] == border) == levels.crossing[border]
    level = {position: number for number, row in enumerate(levels.layers) for position in row}
    made = next(i for i, node in enumerate(graph.nodes) if node.op == "Conv")
    readers = [i for i, node in enumerate(graph.nodes) if graph.nodes[made].outputs[0] in node.inputs]
    names = [m.tensor.name for m in system.messages]
    assert names.count(graph.nodes[made].outputs[0].name) == max(level[i] for i in readers) - level[made] == 7


def test_a_part_returns_what_is_read_behind_it_and_is_given_what_it_reads(tmp_path: Path) -> None:
    """All ranges of levels: what only the next level reads, what a later one does, and what is an output of the network."""
    graph = branching(tmp_path)
    levels = levels_of_graph(graph)
    returned = {t.name for t in graph.outputs}
    for first, end in itertools.combinations(range(levels.depth + 1), 2):
        inside = {position for row in levels.layers[first:end] for position in row}
        behind = {position for row in levels.layers[end:] for position in row}
        made = {t.name for position in inside for t in graph.nodes[position].outputs}
        read = {t.name for position in inside for t in graph.nodes[position].variables}
        wanted = {t.name for position in behind for t in graph.nodes[position].operands} | returned
        found = stage_graph(graph, levels, first, end)
        assert [node.name for node in found.nodes] == [graph.nodes[position].name for position in sorted(inside)]
        assert {t.name for t in found.outputs} == made & wanted
        assert {t.name for t in found.inputs} == read - made


def test_constants_are_divided_and_none_is_on_two_chips(tmp_path: Path) -> None:
    graph = branching(tmp_path)
    levels = levels_of_graph(graph)
    found = build_pipeline(graph, levels, 4, "parameters", Given(levels, 10**6))
    assert sum(found.constants) == constants_by_chip(system_of_one(graph))[0] > 0
    assert found.constants == tuple(constants_by_chip(found.system).values())
    assert max(found.constants) == min(
        max(sum(found.levels.weights[a:b]) for a, b in itertools.pairwise((0, *other, found.levels.depth)))
        for other in itertools.combinations(range(1, found.levels.depth), 3)
    )


def test_auto_takes_the_fewest_chips_that_keep_all_constants(tmp_path: Path) -> None:
    graph = branching(tmp_path)
    levels = levels_of_graph(graph)
    costs = Given(levels, 4000)
    found = build_pipeline(graph, levels, "auto", "parameters", costs)
    count = len(found.system.chips)
    assert count > 1
    assert max(found.constants) <= 4000
    assert balance.cut_by_parameters(levels, count - 1, costs.overflow).excess > 0
    with pytest.raises(FitError, match="do not stay on the devices"):
        build_pipeline(graph, levels, "auto", "parameters", Given(levels, 100))


def test_a_level_larger_than_a_chip_is_named(tmp_path: Path) -> None:
    graph = branching(tmp_path)
    costs = Given(levels_of_graph(graph), 1500)
    costs.tables = lambda stages: [np.full((costs.levels.depth, costs.levels.depth + 1), np.inf)] * stages  # type: ignore[method-assign]
    with pytest.raises(FitError, match=r"level 0 of .* which no device can run"):
        build_pipeline(graph, costs.levels, 2, "cycles", costs)


def test_more_chips_than_levels_are_refused(tmp_path: Path) -> None:
    graph = branching(tmp_path)
    levels = levels_of_graph(graph)
    for strategy in get_args(Balance):
        with pytest.raises(UsageError, match=f"99 stages are more than the {levels.depth} levels"):
            choose_cuts_by(levels, 99, strategy, Given(levels, 1500))


def test_a_network_with_states_is_refused() -> None:
    source, result = (Tensor(name, (1, 4), DType.INT8) for name in ("x", "cache"))
    graph = Graph("", (source,), Node("append", APPEND, (source,), (result,)).outputs)
    with pytest.raises(UnsupportedError, match="keeps the state cache"):
        levels_of_graph(graph)


def test_inputs_are_given_where_they_are_read(tmp_path: Path) -> None:
    net = Net()
    x = net.x(2, 8)
    y = net.Relu(net.MatMul(x, net.w(8, 8)))
    graph = lower_for_target(net.model([net.Add(net.Relu(net.MatMul(y, net.w(8, 8))), x)]), tmp_path)
    levels = levels_of_graph(graph)
    system = cut_stages(graph, levels, tuple(range(1, levels.depth)))
    assert system.given(x) == (0, levels.depth - 1)
    image = [np.arange(16, dtype=np.float32).reshape(2, 8)]
    assert np.array_equal(results(system, image)[0], results(system_of_one(graph), image)[0])
    assert not any(node.op in (SEND, RECV) for node in system_of_one(graph).chips[0].nodes)
