"""Attention on a machine with several memories: what lies between the projections and the output stays near the cores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.execution.runners import host
from deeploy.execution.simulation.walk import walk_plan
from deeploy.planning.program import Role
from tests.e2e import decoders

ROWS = 24


@pytest.mark.share(0.25)
@pytest.mark.parametrize("engines", [("cluster",), ("cluster", "npu")])
def test_a_block_that_fits_makes_no_round_trip(tmp_path: Path, engines: tuple[str, ...]) -> None:
    """Of all activations, the output alone leaves L1, once; and the model of the machine counts the same bytes."""
    path = decoders.attention(tmp_path, ROWS)
    compiled = deeploy.compile(path, "siracusa", quantised_io=True, engines=engines)
    plan, size = compiled.plan, ROWS * decoders.MODEL
    between = [b for b in plan.program.buffers.values() if b.role is Role.LOCAL]
    assert len(between) > 20
    assert {plan.residences[b.name] for b in between} == {"L1"}
    folder = tmp_path / "project"
    compiled.write(folder)
    entry, counters = project.read_manifest(folder), tmp_path / "counters.json"
    x = np.random.default_rng(1).integers(-128, 128, (1, ROWS, decoders.MODEL)).astype(np.int8)
    got = host.execute_application(host.build_application(folder), folder, entry, [[x]], ["--counters", str(counters)]).outputs[0]
    np.testing.assert_array_equal(got[0], compiled.interpret([x])[0])
    counted, traffic = json.loads(counters.read_text())["engines"]["L2_L1"], walk_plan(plan).traffic["L2_L1"]
    assert (counted["bytes_to_near"], counted["bytes_to_far"]) == (traffic.bytes_in, traffic.bytes_out)
    assert counted["bytes_to_far"] == size
    constants = sum(b.bytes for b in plan.program.buffers.values() if b.role is Role.CONSTANT)
    assert counted["bytes_to_near"] <= 2 * size + constants  # by the projections, and by the sum at the end


@pytest.mark.slow
def test_a_block_that_does_not_fit_does(tmp_path: Path) -> None:
    """The count above would see a round trip: with half the memory that it takes, activations come and go."""
    path = decoders.attention(tmp_path, ROWS)
    plans = [deeploy.compile(path, "siracusa", quantised_io=True, memory=given).plan for given in ({}, {"l1": 6000})]
    assert plans[0].memory["L1"].peak > 6000
    assert [walk_plan(plan).traffic["L2_L1"].bytes_out > ROWS * decoders.MODEL for plan in plans] == [False, True]
