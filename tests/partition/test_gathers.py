"""Parts of tensors on their way to the first chip or to all, and products whose inputs are put together instead of adding sums up."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.transformer_models import Shape, decoder
from deeploy.chips import Options
from deeploy.chips import compile as compile_chips
from deeploy.driver.partition import costs_of, partition_graph
from deeploy.ir.nodes import Node
from deeploy.ir.values import Graph
from deeploy.partition import gathers
from deeploy.partition.collectives import Add, Costs, Effort, Links, Receive, Send
from deeploy.partition.cuts import choose_cuts
from deeploy.partition.proof import prove_partition
from deeploy.partition.rows import divide_rows
from deeploy.partition.sharding import _grid_factors
from deeploy.partition.system import check_system
from deeploy.partition.tensor import Partition, partition_by_tensor
from tests.partition.test_tensor import LINK, SIRACUSA, TOPOLOGY, Topology, declare, images, is_equal, perceptron, transformer

assert TOPOLOGY is not None
CHAIN = Topology({"wire": LINK}, pairs={(0, 1): "wire", (1, 2): "wire", (2, 3): "wire"})


@pytest.mark.parametrize("way", [gathers.to_first, gathers.to_all, gathers.by_leaders])
@pytest.mark.parametrize(("count", "group"), [(2, 4), (3, 4), (4, 4), (8, 4), (7, 2), (13, 4), (6, 0), (64, 4)])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_everybody_gets_every_part_from_one_that_has_it(way: gathers.Way, count: int, group: int, step: int) -> None:
    owners = range(0, count, step)
    has = {chip: {chip} & set(owners) for chip in range(count)}
    sent: set[Send] = set()
    links = Counter[tuple[int, int]]()
    for event in way(range(count), group, owners):
        if isinstance(event, Send):
            assert event.piece and event not in sent and set(event.piece) <= has[event.chip]
            assert list(event.piece) == sorted(event.piece)  # one behind the other
            assert TOPOLOGY.find_link(event.chip, event.target) is not None or group != TOPOLOGY.group
            sent.add(event)
            links[event.chip, event.target] += 1
        elif isinstance(event, Receive):
            sent.remove(event.sent)
            has[event.sent.target] |= set(event.sent.piece)
        else:
            assert isinstance(event, Add) and has[event.chip] == set(event.piece) == set(owners)  # before it is sent down
    assert not sent and max(links.values(), default=0) <= 2
    assert has[0] == set(owners) and (way is gathers.to_first or all(own == set(owners) for own in has.values()))


def test_a_way_through_groups_is_faster_than_all_to_the_first() -> None:
    """Sixty-four parts of eight bytes: nine messages to the first chip instead of sixty-three."""
    seconds = partial(gathers.gather_seconds, sizes=dict.fromkeys(range(64), 8), links=Links(TOPOLOGY, 64, 2e-7))
    flat = sum(TOPOLOGY.seconds(chip, 0, 8, 64) for chip in range(1, 64))
    assert seconds(gathers.to_first) < flat / 5
    assert seconds(gathers.to_first) < min(map(seconds, (gathers.to_all, gathers.by_leaders))) < 3 * seconds(gathers.to_first)


@pytest.mark.parametrize(("chips", "group", "extent"), [(4, 4, 8), (8, 4, 16), (8, 2, 16), (16, 4, 32)])
def test_rows_of_chips_of_groups_are_turned_at_once(chips: int, group: int, extent: int) -> None:
    rows = divide_rows(0, extent, chips, group)
    assert rows is not None
    order = np.concatenate([np.arange(*rows.owned[chip]) for chip in range(chips)])
    factors = _grid_factors(order, chips)
    if len(rows.levels) > 2:
        assert factors is None
        return
    assert factors is not None
    turned = np.arange(extent).reshape(*factors, -1).transpose(1, 0, 2).ravel()  # places of rows as they arrive
    assert np.array_equal(order[turned], np.arange(extent))
    assert _grid_factors(order[::-1].copy(), chips) is None


def sums(graph: Graph, count: int) -> frozenset[Node]:
    """The products that are cut along a reduction."""
    return frozenset(node for node, loop in choose_cuts(graph, declare, count).chosen.items() if loop.is_sum)


def gathered(graph: Graph, count: int, topology: Topology = TOPOLOGY, by_rows: bool = False, costs: Costs | None = None) -> Partition:
    """All products along their outputs."""
    found = partition_by_tensor(graph, count, topology, declare, costs or Costs(1e-7, elements), by_rows, sums(graph, count))
    check_system(found.system, replace(topology, queue=1))
    prove_partition(graph, declare, found)
    return found


def elements(graph: Graph) -> Effort:
    """A microsecond for every element of the result, which is worth dividing; nothing for bringing parts to their places."""
    return Effort() if graph.nodes[0].op == "Transpose" else Effort(1e-6 * math.prod(graph.outputs[0].shape))


@pytest.mark.share(0.4)
@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize(("count", "heads", "rows"), [(2, 4, 6), (3, 4, 1), (4, 5, 3), (8, 8, 5), (8, 8, 16), (16, 16, 1), (13, 16, 4)])
def test_decoders_whose_inputs_are_put_together(tmp_path: Path, count: int, heads: int, rows: int, by_rows: bool) -> None:
    """Also where parts are of different sizes, and where groups are not full."""
    graph = transformer(tmp_path, Shape(8 * heads, 96, heads, 2, rows, rows == 1), True)
    found = gathered(graph, count, by_rows=by_rows)
    kinds = Counter(c.kind for c in found.collectives)
    assert kinds["reduce"] == kinds["reduce-scatter"] == 0 and kinds["all-gather"] + kinds["gather"] >= 8
    assert is_equal(graph, found, 2)
    assert sum(c.bytes for c in found.collectives) == sum(m.bytes for m in found.system.messages)
    products = [node for node in found.system.chips[-1].nodes if node.op == "MatMul" and node.variables != list(node.operands)]
    assert products and all(node.attrs.get("epilogue") for node in products)  # no chip has a partial sum


def test_rows_begin_at_inputs_where_that_is_faster(tmp_path: Path) -> None:
    """All chips compute some rows of the first norm; the first chip computes all where that is not asked for, or messages take long."""
    graph = transformer(tmp_path, Shape(64, 96, 8, 1, 16), True)
    norms = [sum(node.op == "IntegerRMSNorm" for node in chip.nodes) for chip in gathered(graph, 8, by_rows=True).system.chips]
    assert norms == [2] * 8
    slow = replace(TOPOLOGY, links={"mipi": replace(TOPOLOGY.links["mipi"], latency=1.0)})
    assert sum(node.op == "IntegerRMSNorm" for node in gathered(graph, 8, slow, True).system.chips[5].nodes) == 0
    assert sum(node.op == "IntegerRMSNorm" for node in gathered(graph, 8).system.chips[5].nodes) == 0


@pytest.mark.parametrize("count", [2, 4])
def test_other_networks_whose_inputs_are_put_together(tmp_path: Path, count: int) -> None:
    for name, graph in (("perceptron", perceptron(tmp_path, 32, 48, 40, 24)), ("images", images(tmp_path))):
        for topology in (TOPOLOGY, CHAIN):
            found = gathered(graph, count, topology)
            assert not any(c.kind == "reduce" for c in found.collectives), name
            assert is_equal(graph, found)


def test_the_estimate_says_what_is_put_together(tmp_path: Path) -> None:
    """Bytes cost: sums are four times as large as what they are of. Messages cost: two synchronisations more."""
    graph = transformer(tmp_path, Shape(128, 128, 8, 1, 1, True), True)
    costs = costs_of(SIRACUSA, Options(engines=("cluster",)))
    link = TOPOLOGY.links["mipi"]
    for topology, wanted in (
        (replace(TOPOLOGY, links={"mipi": replace(link, bytes_per_second=1e6, latency=0.0)}), 2),
        (replace(TOPOLOGY, links={"mipi": replace(link, latency=1e-3)}), 0),
    ):
        assert len(partition_by_tensor(graph, 8, topology, declare, costs).gathered) == wanted
        (system,) = partition_graph(graph, 8, SIRACUSA, topology, Options(engines=("cluster",)))[:1]
        assert ("reduce" in system.notes[0]) == (wanted == 0)


@pytest.mark.slow
def test_what_is_put_together_is_faster_as_predicted(tmp_path: Path) -> None:
    path = tmp_path / "decoder.onnx"
    onnx.save(decoder(Shape(256, 512, 16, 1, 1, True)), path)
    request = Options(dialect="integer", context=64, engines=("cluster",))
    found = compile_chips(path, "siracusa", 16, **request.given())
    assert found.predicted is not None and "reduce" not in found.notes[-1]
    graph = transformer(tmp_path, Shape(256, 512, 16, 1, 1, True), True)
    assert is_equal(graph, Partition(found.system, (), (), {}))
