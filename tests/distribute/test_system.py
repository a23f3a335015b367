"""Systems: what is checked of them, how their nodes are ordered, and that they compute what one chip does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from deeploy.distribute.system import System, alone, check, constants, deadlock, ordered
from deeploy.errors import ModelError, UsageError
from deeploy.graph.nodes import INTEGER_FORM
from deeploy.operators.link import receive, send
from deeploy.simulate import chips
from deeploy.target import Link, Topology, load
from tests.distribute.cuts import cut, lowered
from tests.frontend.lower.nets import Net

GENERIC = load("generic")
TOPOLOGY = GENERIC.topology
assert TOPOLOGY is not None


def residual(folder: Path) -> gs.Graph:
    """A chain of products with a skip over it: nodes on different chips need the same tensor."""
    net = Net()
    x = net.x(2, 8)
    a = net.Relu(net.MatMul(x, net.w(8, 12)))
    b = net.Relu(net.MatMul(a, net.w(12, 8)))
    c = net.Add(net.MatMul(b, net.w(8, 8)), x)
    return lowered(net.model([net.Add(c, b), net.Softmax(c)]), folder)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [2, 3])
def test_any_cut_computes_what_one_chip_does(tmp_path: Path, seed: int, count: int) -> None:
    graph = residual(tmp_path)
    numbers = np.random.default_rng(seed)
    residences = numbers.permutation(np.arange(len(graph.nodes)) % count)
    system = ordered(cut(graph, lambda node: int(residences[node]), count))
    check(system, TOPOLOGY)
    assert deadlock(system, 1) is None
    whole = alone(graph)
    inputs = [numbers.standard_normal((2, 8)).astype(np.float32)]
    expected = chips.outputs(whole, chips.programs(whole, GENERIC), inputs)
    got = chips.outputs(system, chips.programs(system, GENERIC), inputs)
    assert len(expected) == 2
    assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
    assert sum(constants(system).values()) == constants(whole)[0] > 0


def two() -> tuple[gs.Graph, gs.Graph, gs.Variable, gs.Variable]:
    """Two chips with an operator each, on x and on z."""
    graphs, tensors = [], []
    for name, result in (("x", "y"), ("z", "w")):
        source, target = (gs.Variable(n, np.dtype(np.float32), [4]) for n in (name, result))
        graphs.append(gs.Graph([gs.Node("Unary", name, {}, [source], [target], domain=INTEGER_FORM)], [source], [target]))
        tensors.append(target)
    return graphs[0], graphs[1], tensors[0], tensors[1]


def system_of(*graphs: gs.Graph) -> System:
    return System(graphs, ("x", "z"), ("y", "w"))


def test_a_send_needs_its_recv() -> None:
    a, b, y, _ = two()
    send(a, y, 1, 5)
    with pytest.raises(ModelError, match="chip 0, node send 5 to 1: y: chip 1 has no Recv with tag 5"):
        check(system_of(a, b), TOPOLOGY)


def test_both_sides_move_the_same_bytes() -> None:
    a, b, y, _ = two()
    send(a, y, 1, 0)
    receive(b, gs.Variable("v", np.dtype(np.int8), [4]), 0, 0)
    with pytest.raises(ModelError, match=r"sends float32\[4\], chip 1 receives int8\[4\]"):
        check(system_of(a, b), TOPOLOGY)


def test_a_tag_occurs_once_between_two_chips() -> None:
    a, b, y, _ = two()
    for _ in range(2):
        send(a, y, 1, 3)
    with pytest.raises(ModelError, match="tag 3 occurs twice"):
        check(system_of(a, b), TOPOLOGY)


def test_a_peer_is_another_chip_of_the_system() -> None:
    a, b, y, _ = two()
    send(a, y, 2, 0)
    with pytest.raises(ModelError, match="there is no other chip 2"):
        check(system_of(a, b), TOPOLOGY)


def test_a_chip_computes_something() -> None:
    a, b, y, _ = two()
    idle = gs.Graph()
    send(a, y, 2, 0)
    receive(idle, y, 0, 0)
    with pytest.raises(UsageError, match="chip 2 of 3 would have nothing to compute"):
        check(System((a, b, idle), ("x", "z"), ("y", "w")), TOPOLOGY)


def test_outputs_are_held_once() -> None:
    a, b, _, _ = two()
    b.outputs.append(b.inputs[0].copy())
    b.outputs[-1].name = "y"
    with pytest.raises(ModelError, match="output y of the model is held by 2 chips"):
        check(system_of(a, b), TOPOLOGY)


def test_chips_that_wait_for_each_other_are_found() -> None:
    """Both receive before they send."""
    a, b, y, w = two()
    v, u = receive(a, gs.Variable("v", np.dtype(np.float32), [4]), 1, 0), receive(b, gs.Variable("u", np.dtype(np.float32), [4]), 0, 0)
    assert (v.name, u.name) == ("v", "u")
    send(a, y, 1, 0)
    send(b, w, 0, 0)
    system = system_of(a, b)
    with pytest.raises(ModelError, match="chip 0 waits to receive tag 0 from chip 1; chip 1 waits to receive tag 0 from chip 0"):
        check(system, TOPOLOGY)
    check(ordered(system), TOPOLOGY)


def test_queues_are_bounded() -> None:
    """Both send four messages before they receive any: with three places in between, both would wait."""
    a, b, y, w = two()
    for tag in range(4):
        send(a, y, 1, tag)
        send(b, w, 0, tag)
    for tag in range(4):
        receive(a, w, 1, tag, f"a{tag}")
        receive(b, y, 0, tag, f"b{tag}")
    assert deadlock(system_of(a, b), 3) is not None
    assert deadlock(system_of(a, b), 4) is None
    assert deadlock(ordered(system_of(a, b)), 1) is None


def test_messages_between_two_chips_keep_their_order() -> None:
    a, b, y, _ = two()
    send(a, y, 1, 0)
    send(a, y, 1, 1)
    receive(b, y, 0, 1, "first")
    receive(b, y, 0, 0, "second")
    assert deadlock(system_of(a, b), 2) == "chip 1 waits to receive tag 1 from chip 0"


def test_a_circle_has_no_order() -> None:
    a, b, y, w = two()
    a.nodes[0].inputs = [receive(a, w, 1, 0, "from b")]
    b.nodes[0].inputs = [receive(b, y, 0, 0, "from a")]
    send(a, y, 1, 0)
    send(b, w, 0, 0)
    with pytest.raises(ModelError, match="wait for each other in a circle"):
        ordered(system_of(a, b))


def test_chips_are_joined() -> None:
    link = Link("l", 1e9, 0, 0)
    a, b, y, _ = two()
    c = gs.Graph([gs.Node("Unary", "c", {}, [], [gs.Variable("v", np.dtype(np.float32), [4])])])
    with pytest.raises(UsageError, match="does not join 3 chips: no links lead from chip 0 to chip 2"):
        check(System((a, b, c), ("x", "z"), ("y", "w")), Topology({"l": link}, pairs={(0, 1): "l"}))
    send(a, y, 2, 0)
    receive(c, y, 0, 0, "r")
    with pytest.raises(UsageError, match="no links lead from chip 0 to chip 2"):
        check(System((a, b, c), ("x", "z"), ("y", "w")), Topology({"l": link}, pairs={(0, 1): "l"}))
