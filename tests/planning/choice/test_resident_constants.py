"""Constants that stay where the engines work: which ones, what that saves, and what it does not touch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.execution.runners import host
from deeploy.execution.simulation.walk import walk_plan
from deeploy.options import Options
from deeploy.planning.choice.resident_constants import SHARE, pinnable_constants
from deeploy.planning.packing.lifetimes import FOR_EVER
from deeploy.planning.plan import Plan
from deeploy.planning.planner.network import Planner
from tests.execution.simulation.nets import compile_nodes, node

LAYERS = 6


def dense(folder: Path, options: Options) -> deeploy.Compiled:
    """Products with biases of 64 and weights of 4096 numbers."""
    nodes, constants, x = [], dict[str, list[int]](), "x"
    for number in range(LAYERS):
        y = "y" if number == LAYERS - 1 else f"a{number}"
        nodes.append(node("Gemm", f"{x} w{number} b{number}", y))
        constants |= {f"w{number}": [64, 64], f"b{number}": [64]}
        x = y
    return compile_nodes(folder, nodes, {"x": [4, 64]}, {"y": [4, 64]}, constants, options)


def without(whole: deeploy.Compiled) -> Plan:
    """The plan in which nothing may be pinned."""
    assert whole.plan.machine is not None
    planner = Planner(whole.network.program, whole.plan.target, whole.plan.machine)
    planner.may_pin = False
    return planner.plan()


def kept(plan: Plan) -> dict[str, int]:
    """Names of the constants that stay in L1, and their bytes."""
    buffers = plan.program.buffers
    return {name: buffers[name].bytes for name, first in plan.fetched.items() if first == FOR_EVER and plan.residences[name] == "L1"}


@pytest.mark.parametrize("l1", [60_000, 40_000])
def test_the_shortest_constants_stay_while_there_is_room(tmp_path: Path, l1: int) -> None:
    whole = dense(tmp_path, Options(memory={"l1": l1}))
    found = kept(whole.plan)
    sizes = sorted(b.bytes for b in whole.network.program.buffers.values() if b.role.value == "constant")
    assert sorted(found.values()) == sizes[: len(found)] and set(found.values()) == {256}
    assert len(found) == LAYERS
    assert whole.memory["L1"].peak <= l1 and sum(found.values()) <= l1 // SHARE
    placed = [p for p in whole.plan.placements if p.level == "L1" and p.first == FOR_EVER]
    assert len(placed) == LAYERS and all(p.last == LAYERS for p in placed)


@pytest.mark.slow
def test_what_is_pinned_is_worth_its_bytes(tmp_path: Path) -> None:
    """Pinned constants and windows fit together, some where L1 is scarce, and cost no more than a plan without pinned ones."""
    found = []
    for l1 in (2_000, 4_000, 40_000):
        whole = dense(tmp_path, Options(memory={"l1": l1}))
        plain = without(whole)
        assert whole.plan.prediction is not None and plain.prediction is not None
        assert whole.plan.prediction.cycles <= plain.prediction.cycles
        assert whole.memory["L1"].peak <= l1 and sum(kept(whole.plan).values()) <= l1 // SHARE
        found.append(len(kept(whole.plan)))
    assert found[0] == 0 < found[1] < found[2] == LAYERS


def test_nothing_is_fetched_for_what_stays(tmp_path: Path) -> None:
    whole = dense(tmp_path, Options(memory={"l1": 60_000}))
    before, after = walk_plan(without(whole)), walk_plan(whole.plan)
    assert before.traffic["L2_L1"].bytes - after.traffic["L2_L1"].bytes == sum(kept(whole.plan).values())
    assert before.traffic["L2_L1"].transfers - after.traffic["L2_L1"].transfers == LAYERS
    assert after.cycles < before.cycles
    pinned, streamed = whole.plan.prediction, without(whole).prediction
    assert pinned is not None and streamed is not None and pinned.cycles < streamed.cycles


def test_the_shortest_constants_are_offered_up_to_a_share_of_the_memory(tmp_path: Path) -> None:
    """Six biases of 256 bytes and six weights of 16 KB each, in a quarter of the memory; what one call uses is pinned together."""
    program = dense(tmp_path, Options(memory={"l1": 60_000})).network.program
    biases, weights = LAYERS * 256, LAYERS * 16_384
    room = [biases - 1, biases, biases + 2 * 16_384, biases + weights]
    found = [[residence.size for residence in pinnable_constants(program, size * SHARE, 8)] for size in room]
    assert found == [[256] * 5, [256] * 6, [256 + 16_384] * 2 + [256] * 4, [256 + 16_384] * 6]
    residences = pinnable_constants(program, room[-1] * SHARE, 8)
    assert [(residence.steps, residence.distances, residence.origin, residence.users) for residence in residences] == [
        ((n, n), (0, 1), 1, ()) for n in range(LAYERS)
    ]
    assert all(len(residence.members) == 2 for residence in residences)


@pytest.mark.slow
def test_a_full_memory_and_far_constants_keep_nothing(tmp_path: Path) -> None:
    assert not kept(dense(tmp_path, Options(memory={"l1": 60_000}, default_memory="L3")).plan)
    least = without(dense(tmp_path, Options(memory={"l1": 3_000}))).memory["L1"].peak
    assert sum(kept(dense(tmp_path, Options(memory={"l1": least})).plan).values()) <= least // SHARE


def test_copies_survive_inferences(tmp_path: Path) -> None:
    """Two samples in one run, whatever memory holds before."""
    whole = dense(tmp_path, Options(memory={"l1": 60_000}))
    whole.write(tmp_path / "out")
    samples = [[np.random.default_rng(seed).normal(size=(4, 64)).astype(np.float32)] for seed in (1, 2)]
    got = host.Host().run(tmp_path / "out", project.read_manifest(tmp_path / "out"), samples).outputs[0]
    np.testing.assert_allclose(got, [whole.interpret(sample)[0] for sample in samples], rtol=1e-4, atol=1e-4)
