"""Rows of sums on all chips: reduce-scatter, norms and residual connections row by row, all-gather; the results are those of one chip."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from benchmarks.transformer_models import Shape, encoder
from deeploy.chips import Options
from deeploy.chips import compile as compile_chips
from deeploy.errors import ModelError
from deeploy.ir.nodes import Tensor
from deeploy.ir.topology import Link, Ports, Topology
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.partition.collectives import Add, ComputePiece, Costs, Effort, Receive, Send
from deeploy.partition.proof import prove_partition
from deeploy.partition.rows import Rows, divide_rows
from deeploy.partition.system import check_system
from deeploy.partition.tensor import Partition, partition_by_tensor
from tests.partition.cuts import synchronisations
from tests.partition.test_tensor import SIRACUSA, TOPOLOGY, declare, is_equal, transformer

WIRE = Link("wire", 1e9, 0.0, 1.0)


def effort(graph: Graph) -> Effort:
    """A microsecond for every element of the result, so that computing is worth dividing."""
    return Effort(1e-6 * math.prod(graph.outputs[0].shape))


def by_rows(graph: Graph, count: int, topology: Topology = TOPOLOGY) -> Partition:
    found = partition_by_tensor(graph, count, topology, declare, Costs(1e-8, effort), True)
    check_system(found.system, replace(topology, queue=1))
    prove_partition(graph, declare, found)
    return found


@pytest.mark.parametrize(("chips", "group"), [(2, 4), (3, 4), (4, 4), (8, 4), (8, 2), (12, 4), (16, 4), (6, 0), (64, 4)])
@pytest.mark.parametrize("extent", [2, 5, 16, 67])
def test_every_row_is_added_up_once_from_all_chips(chips: int, group: int, extent: int) -> None:
    """The script is run with sets of chips in the place of numbers."""
    found = divide_rows(1, extent, chips, group)
    assert found is not None
    rows = [row for chip in sorted(found.owned) for row in range(*found.owned[chip])]
    assert sorted(rows) == list(range(extent))
    has: dict[tuple[int, int], set[int]] = {}
    sent: dict[Send, set[int]] = {}
    arrived: dict[tuple[int, int], list[set[int]]] = {}
    for event in found.events(2):
        if isinstance(event, ComputePiece):
            has[event.chip, event.piece[0]] = {event.chip}
        elif isinstance(event, Send):
            assert event not in sent
            sent[event] = has[event.chip, event.piece[0]]
        elif isinstance(event, Receive):
            arrived.setdefault((event.sent.target, event.sent.piece[0]), []).append(sent.pop(event.sent))
        else:
            assert isinstance(event, Add)
            place = event.chip, event.piece[0]
            terms = [has[place], *arrived.pop(place)]
            assert sum(map(len, terms)) == len(set().union(*terms))  # nothing is added twice
            has[place] = set().union(*terms)
    assert not sent and not arrived
    assert all(has[chip, chunk] == set(range(chips)) for chip in found.owned for chunk in (0, 1))


def test_groups_that_are_not_full_have_no_rows() -> None:
    assert divide_rows(0, 8, 6, 4) is None
    assert divide_rows(0, 1, 4, 4) is None


@pytest.mark.share(0.4)
@pytest.mark.parametrize(("count", "heads", "rows"), [(2, 4, 6), (4, 4, 6), (4, 5, 3), (8, 8, 5), (16, 16, 3)])
def test_encoders_by_rows(tmp_path: Path, count: int, heads: int, rows: int) -> None:
    graph = transformer(tmp_path, Shape(8 * heads, 96, heads, 2, rows), False)
    found = by_rows(graph, count)
    kinds = Counter(c.kind for c in found.collectives)
    assert kinds["reduce-scatter"] == 4 and kinds["all-gather"] + kinds["gather"] >= 3 and kinds["reduce"] == 0
    assert sum(synchronisations(found).values()) == 4
    owners = min(count, rows)
    norms = [sum(node.op == "IntegerLayerNorm" for node in chip.nodes) for chip in found.system.chips]
    assert sum(number > 0 for number in norms) >= min(owners, 2) and max(norms) == 4
    assert is_equal(graph, found)


def test_rows_keep_their_place_where_a_view_has_fewer_axes() -> None:
    x = Tensor("x", (1, 1, 6, 4), DType.FLOAT32)
    row = x.reshape((1, 6, 4))
    y = row @ row.transpose((0, 2, 1))
    graph = Graph("", (x,), (y,))
    (product,) = (node for node in graph.nodes if node.op == "MatMul")
    turned = product.operands[1]
    assert {axis: follows.read for axis, follows in Rows(graph, declare).regions(x, {product}).items()} == {
        2: ((row, 1), (turned, 2)),
        3: ((row, 2), (turned, 1)),
    }


def test_one_row_is_not_divided(tmp_path: Path) -> None:
    graph = transformer(tmp_path, Shape(32, 64, 4, 1, 1, True), True)
    assert {c.kind for c in by_rows(graph, 4).collectives} >= {"reduce"}


def test_the_proof_finds_a_weight_that_is_no_copy_twice(tmp_path: Path) -> None:
    graph = transformer(tmp_path, Shape(32, 64, 4, 1, 6), False)
    found = by_rows(graph, 4)
    copies = [shard for shard in found.shards if shard.is_copy]
    assert copies and len({shard.chip for shard in copies}) == 4
    with pytest.raises(ModelError, match="and on another one"):
        prove_partition(graph, declare, replace(found, shards=tuple(replace(shard, is_copy=False) for shard in found.shards)))
    other = replace(copies[0], values=copies[0].values + 1)
    with pytest.raises(ModelError, match="other values"):
        prove_partition(graph, declare, replace(found, shards=(*(s for s in found.shards if s is not copies[0]), other)))


def test_messages_take_the_ports_of_chips_that_they_pass() -> None:
    chain = Topology({"wire": WIRE}, pairs={(0, 1): "wire", (1, 2): "wire"}, ports=1)
    ports = Ports(chain, 3)
    assert ports.move(0, 2, 10.0, 5.0) == (5.0, 15.0)
    assert ports.move(1, 2, 4.0, 6.0) == (15.0, 19.0)  # chip 1 is passing on until 15
    assert ports.move(2, 0, 4.0, 6.0) == (15.0, 23.0)  # it takes a port of chip 1 in either direction
    wide = Ports(replace(chain, ports=2), 3)
    assert wide.move(0, 2, 10.0, 5.0) == (5.0, 15.0) and wide.move(1, 2, 4.0, 6.0) == (6.0, 10.0)


@pytest.mark.slow
def test_the_faster_of_both_is_taken(tmp_path: Path) -> None:
    """Predicted by walking plans; many rows are added up by all chips, and the project still gives what one chip does."""
    path = tmp_path / "encoder.onnx"
    onnx.save(encoder(Shape(128, 256, 4, 1, 96)), path)
    request = Options(dialect="integer", engines=("cluster",))
    found = compile_chips(path, "siracusa", 4, **request.given())
    assert found.predicted is not None
    assert any("reduce-scatter" in note for note in found.notes)
    target = replace(SIRACUSA, topology=replace(TOPOLOGY, links={"mipi": replace(TOPOLOGY.links["mipi"], latency=1e-3)}))
    slow = compile_chips(path, target, 4, **request.given())  # every message takes a millisecond: the fewest are best
    assert not any("reduce-scatter" in note for note in slow.notes)
    graph = transformer(tmp_path, Shape(128, 256, 4, 1, 96), False)
    assert is_equal(graph, Partition(found.system, (), (), {}))
