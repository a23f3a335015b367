"""Discrete events over several chips: messages wait for ports, for room and for each other, and energy follows the paper's formula."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.transformer_models import Shape
from deeploy.execution.simulation.systems import LINK, SystemRun, walk_stream, walk_system
from deeploy.execution.simulation.walk import walk_plan
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.target import Loops, Rate
from deeploy.ir.types import DType
from deeploy.options import Options
from deeploy.partition.system import System
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.plan import Plan
from deeploy.planning.planner.machine import kernels_of, machine_of
from deeploy.planning.planner.network import make_plan
from deeploy.target import Link, Topology, load
from tests.models import Net
from tests.partition.cuts import Chip, lower_for_target
from tests.partition.test_tensor import cut, transformer

SIRACUSA = load("siracusa")
assert SIRACUSA.timing is not None
CALL = 100.0  # cycles of a Send or a Recv
TIMING = replace(
    SIRACUSA.timing,
    mhz=100.0,
    kernels={**SIRACUSA.timing.kernels, "send": Rate(CALL, 0, 0), "recv": Rate(CALL, 0, 0)},
    loops=Loops(first_window=337, window=203),
    tile=21,
)
TARGET = replace(SIRACUSA, timing=TIMING)
WIRE = Link("wire", 100e6, 0.0, 10.0)  # at 100 MHz, a byte in a cycle
EVERY = {(a, b): "wire" for a in range(4) for b in range(a + 1, 4)}


def topology(**changes: Any) -> Topology:
    return replace(Topology({"wire": WIRE}, pairs=EVERY, ports=1, queue=2), **changes)


def planned(system: System) -> list[Plan]:
    machine = machine_of(TARGET, Options(engines=("cluster",)))
    assert machine is not None
    plans = []
    for graph in system.chips:
        program = assemble_program("chip", graph, *kernels_of(TARGET, machine))
        plans.append(make_plan(program, TARGET, machine, 0.1))
    return plans


def sending(sources: int, bytes_: int, times: int = 1) -> System:
    """Chips 1, 2, ... send their inputs to chip 0, which gives all of them out."""
    first, *others = (Chip() for _ in range(sources + 1))
    for number, chip in enumerate(others, 1):
        chip.inputs.append(Tensor(f"x{number}", (bytes_,), DType.INT8))
        for tag in range(times):
            chip.send(chip.inputs[0], 0, tag)
    for tag in range(times):
        first.outputs += [first.receive(chip.inputs[0], number, tag, f"y{number} {tag}") for number, chip in enumerate(others, 1)]
    names = (tuple(t.name for t in tensors) for tensors in ([chip.inputs[0] for chip in others], first.outputs))
    return System(tuple(chip.graph for chip in (first, *others)), *names)


def run(system: System, joined: Topology) -> SystemRun:
    return walk_system(planned(system), joined)


def test_one_message() -> None:
    found = run(sending(1, 1000), topology(links={"wire": replace(WIRE, latency=5e-7)}))
    (delivery,) = found.deliveries
    assert (delivery.sender, delivery.receiver, delivery.bytes) == (1, 0, 1000)
    assert delivery.end - delivery.start == pytest.approx(50 + 1000)  # half a microsecond at 100 MHz, and a cycle for a byte
    assert delivery.start == pytest.approx(found.chips[1].cycles)
    assert found.cycles == pytest.approx(delivery.end)
    assert found.milliseconds == pytest.approx(delivery.end / 100e3)
    assert found.waited(0) > 1000 and found.waited(1) == 0
    assert found.link_bytes == 1000


@pytest.mark.parametrize(("ports", "least", "most"), [(1, 3000, 3400), (3, 1000, 1400)])
def test_messages_share_ports(ports: int, least: float, most: float) -> None:
    found = run(sending(3, 1000), topology(ports=ports))
    assert least < found.cycles < most
    if ports == 1:
        assert all(a.end <= b.start for a, b in zip(found.deliveries, found.deliveries[1:], strict=False))


def test_a_sender_waits_for_room() -> None:
    """With a queue of one, the second message leaves when the first one is received."""
    short, long = (run(sending(1, 2000, times=4), topology(queue=queue)) for queue in (1, 4))
    assert short.chips[1].shares[LINK] > 2000
    assert long.chips[1].shares.get(LINK, 0.0) == 0
    assert short.cycles >= long.cycles


def test_energy_by_the_formula_of_the_paper() -> None:
    found = run(sending(2, 500), topology())
    assert found.energy.links == pytest.approx(2 * 500 * 10.0 / 1e6)
    assert found.energy.cores == found.energy.waiting == 0  # nothing is computed
    assert found.energy.formula == pytest.approx(found.energy.links + sum(found.energy.paths.values()))
    timing = TARGET.timing
    assert timing is not None and timing.static_mw > 0
    assert found.energy.static == pytest.approx(len(found.chips) * timing.static_mw * found.cycles / found.mhz / 1e3)  # no part of it
    assert found.energy.total == found.energy.formula + found.energy.static


def test_a_message_costs_energy_on_every_link_of_its_route() -> None:
    """Chip 2 reaches chip 0 over two links of different energy, chip 1 over one."""
    links = {"wire": WIRE, "radio": replace(WIRE, pj_per_byte=3.0)}
    found = run(sending(2, 500), topology(links=links, pairs={(0, 1): "wire", (1, 2): "radio"}))
    assert sorted(delivery.picojoule for delivery in found.deliveries) == [500 * 10.0, 500 * (10.0 + 3.0)]
    assert found.energy.links == pytest.approx(500 * 23.0 / 1e6)


def test_one_chip_is_walked_as_ever(tmp_path: Path) -> None:
    net = Net()
    graph = lower_for_target(net.model([net.Softmax(net.MatMul(net.x(8, 64), net.w(64, 32)))]), tmp_path, TARGET)
    (plan,) = planned(System((graph,), ("x0",), tuple(t.name for t in graph.outputs)))
    alone, found = walk_plan(plan), walk_system([plan], topology())
    assert found.cycles == alone.cycles > 1000
    assert found.chips[0].shares == alone.shares
    busy = sum(alone.shares[name] for name in ("compute", "overhead", "issue"))
    assert found.energy.cores == pytest.approx(8 * 13 / 1e3 * busy / 100)
    assert found.energy.cores + found.energy.waiting == pytest.approx(8 * 13 / 1e3 * alone.cycles / 100)


def chain(stages: int) -> System:
    """Every chip adds a number to what it receives and hands it on."""
    chips = [Chip() for _ in range(stages)]
    tensor = Tensor("x", (64, 64), DType.FLOAT32)
    chips[0].inputs.append(tensor)
    for number, chip in enumerate(chips):
        if number:
            chips[number - 1].send(tensor, number, 0)
            tensor = chip.receive(tensor, number - 1, 0, f"r{number}")
        added = Tensor(f"c{number}", (64, 64), DType.FLOAT32, np.ones((64, 64), np.float32))
        chip.nodes.append(Node(f"add{number}", "Add", (tensor, added), (Tensor(f"t{number}", (64, 64), DType.FLOAT32),)))
        (tensor,) = chip.nodes[-1].outputs
    chips[-1].outputs.append(tensor)
    return System(tuple(chip.graph for chip in chips), ("x",), (tensor.name,))


def test_a_pipeline_gives_outputs_as_fast_as_its_slowest_stage() -> None:
    """Within 3 %: what arrives while a stage waits for its input is waited for where it does not."""
    plans = planned(chain(3))
    alone = [sum(count for name, count in run.shares.items() if name != LINK) for run in walk_system(plans, topology()).chips]
    fast = replace(WIRE, bytes_per_second=1e12)
    found = walk_stream(plans, topology(links={"wire": fast}), 12)
    assert found.interval == pytest.approx(max(alone), rel=0.03)
    assert found.latency == pytest.approx(sum(alone), rel=0.03)
    assert found.idle == pytest.approx([1 - cycles / max(alone) for cycles in alone], abs=0.03)


def test_a_slow_link_bounds_a_pipeline() -> None:
    """Every message takes 16384 byte / 0.1 byte per cycle, which the port of a sender is busy for."""
    plans = planned(chain(3))
    found = walk_stream(plans, topology(links={"wire": replace(WIRE, bytes_per_second=10e6)}), 12)
    assert found.interval == pytest.approx(163840, rel=0.01)
    assert min(found.idle) > 0.5


def test_matrices_behind_sends_are_fetched_before_them(tmp_path: Path) -> None:
    """A Send is over before anything has arrived: the first columns set out in the call before, and lie there from then on."""
    system = cut(transformer(tmp_path, Shape(512, 1024, 4, 1, 1, True), True), 4).system
    plan = planned(system)[0]
    calls = plan.program.calls
    behind = [
        step
        for step in range(2, len(calls))
        if calls[step - 1].kernel.link == "send" and any(stream.is_prefetchable for stream in plan.tiling(step).streams)
    ]
    assert behind
    found = walk_plan(plan)
    for step in behind:
        start = next(earlier for earlier, follower in plan.followers.items() if follower == step)
        assert start < step - 1 and calls[start].kernel.link is None
        assert all(calls[between].kernel.link == "send" for between in range(start + 1, step))
        early = next(stream for stream in plan.tiling(step).streams if stream.is_prefetchable)
        windows = [p for p in plan.placements if (p.first, p.last) == (start, step) and any(early.operand in name for name in p.buffers)]
        assert windows and all(window.size >= early.bytes for window in windows)
        moved = [interval for interval in found.intervals if interval.kind == "in" and interval.owner == step]
        assert min(interval.start for interval in moved) < found.calls[start].end
