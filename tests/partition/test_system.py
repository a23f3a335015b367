"""Systems: what is checked of them, how their nodes are ordered, and that they compute what one chip does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deeploy.errors import ModelError, UsageError
from deeploy.execution.simulation import chips
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.partition.system import System, check_system, constants_by_chip, find_deadlock, order_system, system_of_one
from deeploy.target import Link, Topology, load
from tests.models import Net
from tests.partition.cuts import Chip, cut, lower_for_target

GENERIC = load("generic")
TOPOLOGY = GENERIC.topology
assert TOPOLOGY is not None


def residual(folder: Path) -> Graph:
    """A chain of products with a skip over it: nodes on different chips need the same tensor."""
    net = Net()
    x = net.x(2, 8)
    a = net.Relu(net.MatMul(x, net.w(8, 12)))
    b = net.Relu(net.MatMul(a, net.w(12, 8)))
    c = net.Add(net.MatMul(b, net.w(8, 8)), x)
    return lower_for_target(net.model([net.Add(c, b), net.Softmax(c)]), folder)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [2, 3])
def test_any_cut_computes_what_one_chip_does(tmp_path: Path, seed: int, count: int) -> None:
    graph = residual(tmp_path)
    numbers = np.random.default_rng(seed)
    residences = numbers.permutation(np.arange(len(graph.nodes)) % count)
    system = order_system(cut(graph, lambda node: int(residences[node]), count))
    check_system(system, TOPOLOGY)
    assert find_deadlock(system, 1) is None
    whole = system_of_one(graph)
    inputs = [numbers.standard_normal((2, 8)).astype(np.float32)]
    expected = chips.system_outputs(whole, chips.chip_programs(whole, GENERIC), inputs)
    got = chips.system_outputs(system, chips.chip_programs(system, GENERIC), inputs)
    assert len(expected) == 2
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
    assert sum(constants_by_chip(system).values()) == constants_by_chip(whole)[0] > 0


def two() -> tuple[Chip, Chip, Tensor, Tensor]:
    """Two chips with an operator each, on x and on z."""
    chips = []
    for name, result in (("x", "y"), ("z", "w")):
        source, target = (Tensor(n, (4,), DType.FLOAT32) for n in (name, result))
        chips.append(Chip(Node(name, "Unary", (source,), (target,)), inputs=(source,), outputs=(target,)))
    return *chips, chips[0].outputs[0], chips[1].outputs[0]


def system_of(*chips: Chip) -> System:
    return System(tuple(chip.graph for chip in chips), ("x", "z"), ("y", "w"))


def test_a_send_needs_its_recv() -> None:
    a, b, y, _ = two()
    a.send(y, 1, 5)
    with pytest.raises(ModelError, match="chip 0, node send 5 to 1: y: chip 1 has no Recv with tag 5"):
        check_system(system_of(a, b), TOPOLOGY)


def test_both_sides_move_the_same_bytes() -> None:
    a, b, y, _ = two()
    a.send(y, 1, 0)
    b.receive(Tensor("v", (4,), DType.INT8), 0, 0)
    with pytest.raises(ModelError, match=r"sends float32\[4\], chip 1 receives int8\[4\]"):
        check_system(system_of(a, b), TOPOLOGY)


def test_a_tag_occurs_once_between_two_chips() -> None:
    a, b, y, _ = two()
    for _ in range(2):
        a.send(y, 1, 3)
    with pytest.raises(ModelError, match="tag 3 occurs twice"):
        check_system(system_of(a, b), TOPOLOGY)


def test_a_peer_is_another_chip_of_the_system() -> None:
    a, b, y, _ = two()
    a.send(y, 2, 0)
    with pytest.raises(ModelError, match="there is no other chip 2"):
        check_system(system_of(a, b), TOPOLOGY)


def test_a_chip_computes_something() -> None:
    a, b, y, _ = two()
    idle = Chip()
    a.send(y, 2, 0)
    idle.receive(y, 0, 0)
    with pytest.raises(UsageError, match="chip 2 of 3 would have nothing to compute"):
        check_system(System((a.graph, b.graph, idle.graph), ("x", "z"), ("y", "w")), TOPOLOGY)


def test_outputs_are_held_once() -> None:
    a, b, _, _ = two()
    b.outputs.append(replace(b.inputs[0], name="y"))
    with pytest.raises(ModelError, match="output y of the model is held by 2 chips"):
        check_system(system_of(a, b), TOPOLOGY)


def test_chips_that_wait_for_each_other_are_found() -> None:
    """Both receive before they send."""
    a, b, y, w = two()
    v, u = a.receive(replace(y, name="v"), 1, 0), b.receive(replace(y, name="u"), 0, 0)
    assert (v.name, u.name) == ("v", "u")
    a.send(y, 1, 0)
    b.send(w, 0, 0)
    system = system_of(a, b)
    with pytest.raises(ModelError, match="chip 0 waits to receive tag 0 from chip 1; chip 1 waits to receive tag 0 from chip 0"):
        check_system(system, TOPOLOGY)
    check_system(order_system(system), TOPOLOGY)


def test_queues_are_bounded() -> None:
    """Both send four messages before they receive any: with three places in between, both would wait."""
    a, b, y, w = two()
    for tag in range(4):
        a.send(y, 1, tag)
        b.send(w, 0, tag)
    for tag in range(4):
        a.receive(w, 1, tag, f"a{tag}")
        b.receive(y, 0, tag, f"b{tag}")
    assert find_deadlock(system_of(a, b), 3) is not None
    assert find_deadlock(system_of(a, b), 4) is None
    assert find_deadlock(order_system(system_of(a, b)), 1) is None


def test_messages_between_two_chips_keep_their_order() -> None:
    a, b, y, _ = two()
    a.send(y, 1, 0)
    a.send(y, 1, 1)
    b.receive(y, 0, 1, "first")
    b.receive(y, 0, 0, "second")
    assert find_deadlock(system_of(a, b), 2) == "chip 1 waits to receive tag 1 from chip 0"


def test_a_circle_has_no_order() -> None:
    a, b, y, w = two()
    for chip, peer, other in ((a, 1, w), (b, 0, y)):
        first = chip.nodes[0].another(inputs=(chip.receive(other, peer, 0, "from the other one"),))
        chip.nodes[0], chip.outputs = first, list(first.outputs)
        chip.send(first.outputs[0], peer, 0)
    with pytest.raises(ModelError, match="wait for each other in a circle"):
        order_system(system_of(a, b))


def test_chips_are_joined() -> None:
    link = Link("l", 1e9, 0, 0)
    a, b, y, _ = two()
    c = Chip(Node("c", "Unary", (), (replace(y, name="v"),)))
    with pytest.raises(UsageError, match="does not join 3 chips: no links lead from chip 0 to chip 2"):
        check_system(System((a.graph, b.graph, c.graph), ("x", "z"), ("y", "w")), Topology({"l": link}, pairs={(0, 1): "l"}))
    a.send(y, 2, 0)
    c.receive(y, 0, 0, "r")
    with pytest.raises(UsageError, match="no links lead from chip 0 to chip 2"):
        check_system(System((a.graph, b.graph, c.graph), ("x", "z"), ("y", "w")), Topology({"l": link}, pairs={(0, 1): "l"}))
