"""Constants that stay where the engines work: which ones, what that saves, and what it does not touch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.midend.lifetime import FOR_EVER
from deeploy.midend.machine import Options
from deeploy.midend.pin import SHARE, likely, pin
from deeploy.midend.plan import Plan
from deeploy.midend.planner import Planner
from deeploy.runners import host
from deeploy.simulate.walk import walk
from tests.simulate.nets import compiled, node

LAYERS = 6


def dense(folder: Path, options: Options) -> deeploy.Compiled:
    """Products with biases of 64 and weights of 4096 numbers."""
    nodes, constants, x = [], dict[str, list[int]](), "x"
    for number in range(LAYERS):
        y = "y" if number == LAYERS - 1 else f"a{number}"
        nodes.append(node("Gemm", f"{x} w{number} b{number}", y))
        constants |= {f"w{number}": [64, 64], f"b{number}": [64]}
        x = y
    return compiled(folder, nodes, {"x": [4, 64]}, {"y": [4, 64]}, constants, options)


def without(whole: deeploy.Compiled) -> Plan:
    """The plan before anything is kept."""
    assert whole.plan.machine is not None
    return Planner(whole.network.program, whole.plan.target, whole.plan.machine).plan()


def kept(plan: Plan) -> dict[str, int]:
    """Names of the constants that stay in L1, and their bytes."""
    buffers = plan.program.buffers
    return {name: buffers[name].bytes for name, first in plan.fetched.items() if first == FOR_EVER and plan.homes[name] == "L1"}


@pytest.mark.parametrize("l1", [60_000, 40_000])
def test_the_shortest_constants_stay_while_there_is_room(tmp_path: Path, l1: int) -> None:
    whole = dense(tmp_path, Options({"l1": l1}))
    found = kept(whole.plan)
    sizes = sorted(b.bytes for b in whole.network.program.buffers.values() if b.role.value == "constant")
    assert sorted(found.values()) == sizes[: len(found)] and set(found.values()) == {256}
    assert len(found) == LAYERS
    assert whole.memory["L1"].peak <= l1 and sum(found.values()) <= l1 // SHARE
    placed = [p for p in whole.plan.placements if p.level == "L1" and p.first == FOR_EVER]
    assert len(placed) == LAYERS and all(p.last == LAYERS for p in placed)
    others = [p for p in whole.plan.placements if p.level == "L1" and p.first != FOR_EVER]
    assert max(p.offset + p.size for p in others) <= min(p.offset for p in placed)


def test_room_is_what_the_peak_leaves(tmp_path: Path) -> None:
    """Where blocks lie higher than the bound, room for two biases of 256 bytes is left above them, and for a bit of a third."""
    whole = dense(tmp_path, Options({"l1": 60_000}))
    assert whole.plan.machine is not None
    planner = Planner(whole.network.program, whole.plan.target, whole.plan.machine)
    plan = planner.plan()
    top = 60_000 - 2 * 256 - 200
    high = replace(plan, memory={**plan.memory, "L1": replace(plan.memory["L1"], peak=top)})
    found = pin(high, planner.measured)
    assert sorted(p.offset for p in found.placements if p.level == "L1" and p.first == FOR_EVER) == [top, top + 256]
    assert found.memory["L1"].peak == top + 2 * 256


def test_nothing_is_fetched_for_what_stays(tmp_path: Path) -> None:
    whole = dense(tmp_path, Options({"l1": 60_000}))
    before, after = walk(without(whole)), walk(whole.plan)
    assert before.traffic["L2_L1"].bytes - after.traffic["L2_L1"].bytes == sum(kept(whole.plan).values())
    assert before.traffic["L2_L1"].transfers - after.traffic["L2_L1"].transfers == LAYERS
    assert after.cycles < before.cycles
    assert whole.plan.prediction is not None and whole.plan.prediction.cycles < without(whole).prediction.cycles  # type: ignore[union-attr]


def test_constants_are_likely_to_be_kept_if_all_shorter_ones_fit_too(tmp_path: Path) -> None:
    """Six biases of 256 bytes and six weights of 16 KB each, in a quarter of the memory."""
    program = dense(tmp_path, Options({"l1": 60_000})).network.program
    whole = LAYERS * (256 + 16_384) * SHARE
    sizes = [LAYERS * 256 * SHARE - 1, LAYERS * 256 * SHARE, whole - 1, whole]
    assert [likely(program, size, 8) for size in sizes] == [0, 256, 256, 16_384]


def test_what_will_be_kept_is_expected(tmp_path: Path) -> None:
    """Candidates cost what they do once constants are kept; what finds no room in the end costs what it did before."""
    whole = dense(tmp_path, Options({"l1": 60_000}))
    assert whole.plan.machine is not None
    planners = [Planner(whole.network.program, whole.plan.target, whole.plan.machine, short=short) for short in (0, 256, 16_384)]
    plans = [planner.plan() for planner in planners]
    after = [pin(plan, planner.measured) for plan, planner in zip(plans, planners, strict=True)]
    before, found = ([plan.prediction.cycles for plan in row if plan.prediction is not None] for row in (plans, after))
    assert before[0] > found[0] >= found[1] == before[1]
    assert before[2] < found[2]
    assert [walk(plan).cycles for plan in after] == pytest.approx(found, rel=0.03)


def test_a_full_memory_and_far_constants_keep_nothing(tmp_path: Path) -> None:
    assert not kept(dense(tmp_path, Options({"l1": 60_000}, default_memory="L3")).plan)
    least = without(dense(tmp_path, Options({"l1": 3_000}))).memory["L1"].peak
    assert sum(kept(dense(tmp_path, Options({"l1": least})).plan).values()) <= least // SHARE


def test_copies_survive_inferences(tmp_path: Path) -> None:
    """Two samples in one run, whatever memory holds before."""
    whole = dense(tmp_path, Options({"l1": 60_000}))
    whole.write(tmp_path / "out")
    samples = [[np.random.default_rng(seed).normal(size=(4, 64)).astype(np.float32)] for seed in (1, 2)]
    got = host.Host().run(tmp_path / "out", project.read_manifest(tmp_path / "out"), samples).outputs[0]
    np.testing.assert_allclose(got, [whole.interpret(sample)[0] for sample in samples], rtol=1e-4, atol=1e-4)
