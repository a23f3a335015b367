"""Pipelines end to end: a network whose constants do not fit one chip, compiled for several, streams on the host model bit for bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from deeploy import chips
from deeploy.backend import project
from deeploy.driver.lower import Lowered, Stopwatch, lower_model
from deeploy.execution.runners import host
from deeploy.execution.simulation import chips as golden
from deeploy.execution.simulation.stages import plan_pipeline_stages
from deeploy.ir.topology import Member
from deeploy.options import Options
from deeploy.partition.pipeline import Balance
from deeploy.partition.system import system_of_one
from deeploy.quantization.static import quantize_model
from deeploy.report.chips import report_system
from deeploy.target import load
from tests.models import Net, conv

LITTLE = Options(memory={"l2": 14_000}, default_memory="L3", engines=("cluster",))
DIFFERENT = {0: Member({"l2": 9_500}), 1: Member({"l1": 40_000}, cores=4)}
needs_mpi = pytest.mark.skipif(shutil.which("mpicc") is None or shutil.which("mpirun") is None, reason="Open MPI is not installed")


def residual(folder: Path) -> Path:
    """Convolutions in int8 with a residual path around most of them, two outputs."""
    net = Net()
    a = net.Relu(conv(net, net.x(1, 8, 8, 8), 8, 16))
    b = net.Relu(conv(net, a, 16, 24))
    c = net.Relu(conv(net, b, 24, 24))
    y = net.Relu(net.Add(conv(net, c, 24, 16), a))
    onnx.save(net.model([y, net.GlobalAveragePool(b)]), folder / "float.onnx")
    np.savez(folder / "calibration.npz", x0=np.random.default_rng(0).standard_normal((4, 8, 8, 8)).astype(np.float32))
    quantize_model(folder / "float.onnx", folder / "calibration.npz", folder / "int8.onnx")
    return folder / "int8.onnx"


def compile_pipeline(
    folder: Path, count: int, strategy: Balance, members: Mapping[int, Member] | None = None
) -> tuple[chips.Distributed, Lowered]:
    """The pipeline, and the network that it was cut from."""
    machine, stopwatch = load("siracusa"), Stopwatch()
    assert machine.topology is not None
    topology = replace(machine.topology, members=members or {})
    found = lower_model(stopwatch, residual(folder), machine, Options())
    cut = plan_pipeline_stages(found.graph, machine, count, strategy, topology, LITTLE)
    return chips.build(cut.system, found, "int8", machine, topology, LITTLE, stopwatch), found


@pytest.mark.share(0.25)
@pytest.mark.parametrize(
    ("count", "strategy", "members"),
    [(2, "layers", {}), (3, "parameters", {}), (4, "cycles", {}), (3, "cycles", DIFFERENT), (3, "parameters", DIFFERENT)],
)
def test_a_hundred_inputs_stream_in_order(tmp_path: Path, count: int, strategy: Balance, members: Mapping[int, Member]) -> None:
    system, found = compile_pipeline(tmp_path, count, strategy, members)
    images = np.random.default_rng(count).standard_normal((100, 1, 8, 8, 8)).astype(np.float32)
    system.write(tmp_path / "out")
    got = host.Host().run(tmp_path / "out", project.read_manifest(tmp_path / "out"), [[image] for image in images]).outputs
    whole = system_of_one(found.graph)
    programs = golden.chip_programs(whole, system.target)
    expected = [golden.system_outputs(whole, programs, [image]) for image in images]
    assert len({first.tobytes() for first, _ in expected}) == 100
    for array, results in zip(got, zip(*expected, strict=True), strict=True):
        assert np.array_equal(array, np.stack(results))


def test_a_stream_is_as_fast_as_the_slowest_stage_and_nothing_streams_from_far_away(tmp_path: Path) -> None:
    system, _ = compile_pipeline(tmp_path, 3, "cycles")
    assert system.predicted is not None and system.stream is not None
    assert [run.traffic["L3_L2"].bytes_in for run in system.predicted.chips] == [0, 0, 0]
    assert system.stream.interval < system.stream.latency < 3.5 * system.stream.interval
    busy = [1 - part for part in system.stream.idle]
    assert max(busy) > 0.85
    shown = report_system(json.loads(str(system.files()["deploy.json"])))
    assert (
        f"idle, by stage: {', '.join(f'{100 - 100 * part:.0f} %' for part in busy)}" in shown and "a second; one input alone takes" in shown
    )
    notes = [float(note.split(": ")[1].split(" cycles")[0]) for note in system.notes if note.startswith("stage ")]
    assert system.stream.interval == pytest.approx(max(notes), rel=0.15)


@pytest.mark.slow
def test_chips_that_differ_are_given_what_they_can_hold_and_planned_for_what_they_have(tmp_path: Path) -> None:
    system, _ = compile_pipeline(tmp_path, 3, "cycles", DIFFERENT)
    capacities = [plan.machine.capacities for plan in system.plans if plan.machine is not None]
    assert [own["L2"] for own in capacities] == [9_500, 14_000, 14_000] and capacities[1]["L1"] == 40_000
    assert [plan.machine.cores for plan in system.plans if plan.machine is not None] == [8, 4, 8]
    assert system.predicted is not None
    for plan, run in zip(system.plans, system.predicted.chips, strict=True):
        assert plan.memory["L2"].peak <= (plan.memory["L2"].capacity or 0) and run.traffic["L3_L2"].bytes_in == 0
    equal, _ = compile_pipeline(tmp_path, 3, "cycles")
    assert system.stream is not None and equal.stream is not None
    assert system.stream.interval > 1.05 * equal.stream.interval


@pytest.mark.slow
@needs_mpi
def test_stages_stream_as_mpi_ranks(tmp_path: Path) -> None:
    system, _ = compile_pipeline(tmp_path, 3, "parameters")
    system.write(tmp_path / "out")
    given = [[image] for image in np.random.default_rng(7).standard_normal((20, 1, 8, 8, 8)).astype(np.float32)]
    got = host.Mpi(patience=60).run(tmp_path / "out", project.read_manifest(tmp_path / "out"), given).outputs
    for array, results in zip(got, zip(*system.references(given), strict=True), strict=True):
        assert np.array_equal(array, np.stack(results))
