"""The walk over a plan: bytes and transfers as the host machine model counts them, cycles as worked out by hand."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deeploy
from deeploy.backend import project
from deeploy.execution.runners import host
from deeploy.execution.simulation.boxes import Batch, BoxAxis, box_transfers
from deeploy.execution.simulation.timing import Engines, Run, engine_overlap, summarise_run
from deeploy.execution.simulation.walk import Walk, _Path, walk_plan
from deeploy.ir.target import DmaPath, PathTiming, Rate, Target, Timing
from deeploy.options import Options
from deeploy.planning import cost
from deeploy.planning.candidates.tiler import Tiler
from deeploy.target import load
from tests.execution.simulation.nets import compile_nodes, convolutions, filters, node, perceptron, transposed

PATH = DmaPath("P", "near", "far", max_bytes=100, max_rows=8, max_total=400, max_pitch=1000, max_outstanding=4)


def counters(result: deeploy.Compiled, folder: Path) -> dict[str, Any]:
    """What one inference on the host machine model moved."""
    result.write(folder / "project")
    manifest = project.read_manifest(folder / "project")
    application = host.build_application(folder / "project")
    size = sum(4 * int(np.prod(port["shape"])) for port in manifest["inputs"])
    (folder / "inputs").write_bytes(bytes(size))
    command = [str(application), "network", str(folder / "inputs"), str(folder / "outputs"), "1", "--counters", str(folder / "counters")]
    if result.plan.machine is not None and result.plan.machine.default_memory == "L3":
        command += ["--constants", str(folder / "project" / "network_weights.bin")]
    subprocess.run(command, check=True)
    found: dict[str, Any] = json.loads((folder / "counters").read_text())
    return found


CASES = {
    "convolutions": (convolutions, Options(memory={"l1": 3000})),
    "convolutions, one tile at a time": (convolutions, Options(memory={"l1": 3000}, buffering="single")),
    "convolutions, everything far away": (convolutions, Options(memory={"l1": 2500, "l2": 14000}, default_memory="L3")),
    "perceptron, weights streamed from far away": (perceptron, Options(memory={"l1": 2000, "l2": 6000}, default_memory="L3")),
    "perceptron, weights fetched whole": (perceptron, Options(memory={"l1": 4000, "l2": 14000}, default_memory="L3")),
    "filters cut twice, far away": (filters, Options(memory={"l1": 3000, "l2": 14000}, default_memory="L3")),
    "transposed": (transposed, Options(memory={"l1": 4000}, buffering="double")),
}


@pytest.mark.parametrize("name", CASES)
def test_the_host_model_counts_the_same_transfers_waits_and_forks(name: str, tmp_path: Path) -> None:
    build, options = CASES[name]
    result = build(tmp_path, options)
    run = walk_plan(result.plan)
    counted = counters(result, tmp_path)
    engines = counted["engines"]
    for path, traffic in run.traffic.items():
        found = {key: engines[path][key] for key in ("transfers", "rows", "bytes_to_near", "bytes_to_far", "waits")}
        assert found == {
            "transfers": traffic.transfers,
            "rows": traffic.rows,
            "bytes_to_near": traffic.bytes_in,
            "bytes_to_far": traffic.bytes_out,
            "waits": run.waits[path],
        }
    assert run.forks == counted["forks"]
    steps = [0] * len(run.calls)
    for interval in run.intervals:
        steps[interval.step] += interval.bytes
    assert steps == counted["step_bytes"][: len(steps)]
    assert sum(steps) == sum(t.bytes for t in run.traffic.values()) > 0
    if "far away" in name or "whole" in name:
        assert run.traffic["L3_L2"].bytes > 0
    assert max(c.tiling.tiles for c in result.plan.calls) > 2


@pytest.mark.parametrize("name", CASES)
def test_shares_add_up_and_resources_do_one_thing_at_a_time(name: str, tmp_path: Path) -> None:
    build, options = CASES[name]
    run = walk_plan(build(tmp_path, options).plan)
    for call in run.calls:
        assert call.cycles == pytest.approx(call.compute + call.overhead + call.issue + call.stalled)
    assert run.cycles == pytest.approx(sum(run.shares.values())) == pytest.approx(sum(c.cycles for c in run.calls))
    for lane in run.lanes:
        inside = sorted((i for i in run.intervals if i.lane == lane), key=lambda i: i.start)
        assert all(a.end <= b.start + 1e-6 for a, b in itertools.pairwise(inside))
        assert all(0 <= i.start <= i.end <= run.cycles for i in inside)
    for path, traffic in run.traffic.items():
        assert traffic.busy <= run.cycles
        assert sum(call.traffic[path].bytes for call in run.calls if path in call.traffic) == traffic.bytes


@pytest.mark.parametrize(
    ("run", "axes", "expected"),
    [
        (60, [], [Batch(1, 60, 1)]),
        (0, [BoxAxis(4, 10)], []),
        (60, [BoxAxis(0, 10)], []),
        (250, [], [Batch(2, 100, 1), Batch(1, 50, 1)]),
        (10, [BoxAxis(6, 10)], [Batch(1, 60, 1)]),  # rows that touch are one run
        (10, [BoxAxis(5, 200), BoxAxis(6, 10)], [Batch(1, 60, 5)]),
        (10, [BoxAxis(6, 20)], [Batch(1, 10, 6)]),
        (10, [BoxAxis(19, 20)], [Batch(2, 10, 8), Batch(1, 10, 3)]),  # more rows than a transfer takes
        (90, [BoxAxis(6, 95)], [Batch(1, 90, 4), Batch(1, 90, 2)]),  # more bytes than a transfer takes
        (10, [BoxAxis(6, 1001)], [Batch(6, 10, 1)]),  # rows too far apart
        (120, [BoxAxis(3, 200)], [Batch(3, 100, 1), Batch(3, 20, 1)]),  # rows too long
        (10, [BoxAxis(3, 500), BoxAxis(4, 7), BoxAxis(5, 20)], [Batch(12, 10, 5)]),
        (10, [BoxAxis(3, 500), BoxAxis(1, 7)], [Batch(1, 10, 3)]),
    ],
)
def test_a_box_is_cut_by_the_limits_of_its_path(run: int, axes: list[BoxAxis], expected: list[Batch]) -> None:
    assert list(box_transfers(PATH, run, axes)) == expected


@pytest.mark.parametrize(("issue", "byte"), [(30.0, 1.0), (30.0, 0.1), (7.0, 0.3), (0.0, 1.0)])
@pytest.mark.parametrize("before", [0, 3, 9])
def test_many_equal_transfers_take_as_long_as_one_after_the_other(issue: float, byte: float, before: int) -> None:
    def started(pieces: list[int]) -> tuple[float, float, float, list[float]]:
        path = _Path(PATH, PathTiming(issue, (20.0, 20.0), 2.0, (byte, byte), 0.0))
        now, stalled = path.start(5.0, Batch(before, 90, 2), False)[:2] if before else (5.0, 0.0)
        for count in pieces:
            now, more, _ = path.start(now, Batch(count, 40, 1), False)
            stalled += more
        return now, stalled, path.free, list(path.ends)

    together, apart = started([200]), started([1] * 200)
    assert together[:3] == pytest.approx(apart[:3])
    assert together[3] == pytest.approx(apart[3])


def plain_target(byte: float = 1.0, commands: int = 16) -> Target:
    """Siracusa with round figures: issue 10, latency 100 after the last byte, one byte per cycle, fork 50, tile 5, call 20."""
    target = load("siracusa")
    timing = PathTiming(10.0, (100.0, 100.0), 0.0, (byte, byte), 2.0)
    far = PathTiming(10.0, (1000.0, 1000.0), 0.0, (2.0, 2.0), 100.0)
    rates = {"default": Rate(20.0, 4.0, 1.0)}
    figures = Timing(100.0, {"cluster": 50.0}, 5.0, {"cluster": 10.0}, {"L2_L1": timing, "L3_L2": far}, rates)
    return replace(target, timing=figures, paths=tuple(replace(path, max_outstanding=commands) for path in target.paths))


def negation(folder: Path, options: Options, target: Target) -> Run:
    """One elementwise layer of 16 rows of 64 floats."""
    return walk_plan(compile_nodes(folder, [node("Neg", "x", "y")], {"x": [16, 64]}, {"y": [16, 64]}, {}, options, target).plan)


def test_one_tile_by_hand(tmp_path: Path) -> None:
    run = negation(tmp_path, Options(memory={"l1": 16000}), plain_target())
    fetch, store = 10 + 100 + 4096, 10 + 100 + 4096
    compute = 1024 / 8  # one cycle per element, over eight cores
    (call,) = run.calls
    assert (call.compute, call.overhead, call.issue) == (compute, 5 + 50 + 20, 20)
    assert call.stalls == {"L2_L1": {"windows in": 4196.0, "windows out": 4196.0}}
    assert run.cycles == fetch + 5 + 50 + 20 + compute + store
    assert call.bound == "L2_L1"
    assert [(i.kind, i.start, i.end) for i in run.intervals if i.lane == "L2_L1"] == [("in", 60, 4156), ("out", 4419, 8515)]
    # 8 cores of 10 mW for 86.15 us, and 8192 bytes of 2 pJ
    assert run.cycles == 8615 and run.energy.cores == pytest.approx(6.892) and run.energy.paths["L2_L1"] == pytest.approx(0.016384)
    told = summarise_run(run)
    assert (told["cycles"], told["bytes"], told["energy_uj"]) == (8615, {"L2_L1": 8192, "L3_L2": 0}, 6.908)
    assert told["microseconds"] == 86.15


def test_two_buffers_hide_transfers_behind_computing(tmp_path: Path) -> None:
    slow = plain_target(byte=0.01)
    assert slow.timing is not None
    slow = replace(slow, timing=replace(slow.timing, kernels={"default": Rate(20.0, 4.0, 100.0)}))
    single = negation(tmp_path, Options(memory={"l1": 5000}, buffering="single"), slow)
    double = negation(tmp_path, Options(memory={"l1": 5000}, buffering="double"), slow)
    assert double.cycles < single.cycles
    assert single.calls[0].compute == double.calls[0].compute == 12800
    assert set(double.calls[0].stalls["L2_L1"]) == {"windows in", "windows out"}
    # What is exposed with two buffers: the first window in and the last one out; nothing else waits.
    waits = [i for i in double.intervals if i.kind == "wait"]
    assert len(waits) == 2 and waits[0].tile == 0 and waits[1].end == double.cycles


def test_a_full_queue_stops_the_first_core(tmp_path: Path) -> None:
    def rows(commands: int) -> Run:
        target = plain_target(commands=commands)
        target = replace(target, paths=tuple(replace(p, max_rows=1) for p in target.paths))
        nodes = [node("Split", "x", "l r", axis=1), node("Neg", "r", "y")]
        return walk_plan(compile_nodes(tmp_path, nodes, {"x": [16, 64]}, {"y": [16, 32]}, {}, Options(memory={"l1": 16000}), target).plan)

    wide, narrow = rows(64), rows(1)
    assert wide.traffic["L2_L1"] == narrow.traffic["L2_L1"]
    assert wide.traffic["L2_L1"].transfers == 17
    assert not any("full queue" in reasons for call in wide.calls for reasons in call.stalls.values())
    assert any("full queue" in call.stalls.get("L2_L1", {}) for call in narrow.calls)
    assert narrow.cycles > wide.cycles


def test_a_core_alone_is_not_forked(tmp_path: Path) -> None:
    run = negation(tmp_path, Options(memory={"l1": 16000}, cores=1), plain_target())
    assert run.calls[0].compute == 1024
    assert run.energy.cores == pytest.approx(10 * run.cycles / 100 / 1000)


def test_a_call_of_an_accelerator_leaves_instructions_in_the_caches(tmp_path: Path) -> None:
    """The third call runs what the first one did: cold behind another kernel on the cores, warm behind one on the accelerator."""
    nodes = [node("Neg", "x", "a"), node("Exp", "a", "b"), node("Neg", "b", "y")]
    plan = compile_nodes(tmp_path, nodes, {"x": [4, 8]}, {"y": [4, 8]}, {}, Options()).plan
    first, middle, last = plan.program.calls
    elsewhere = replace(middle, kernel=replace(middle.kernel, engine="npu"))
    behind = walk_plan(replace(plan, program=replace(plan.program, calls=(first, elsewhere, last)))).calls[2].overhead
    assert cost.kernel_rate(last, plan.target).cold > 0
    assert walk_plan(plan).calls[2].overhead - behind == pytest.approx(cost.kernel_rate(last, plan.target).cold)


@pytest.mark.parametrize(
    ("build", "buffering"),
    [(convolutions, "single"), (perceptron, "single"), (perceptron, "double"), (transposed, "single"), (transposed, "double")],
)
def test_the_planner_predicted_much_the_same(
    build: Callable[[Path, Options], deeploy.Compiled], buffering: Literal["single", "double"], tmp_path: Path
) -> None:
    """Within 5 %, where every tile is forked and no box is merged."""
    plan = build(tmp_path, Options(memory={"l1": 4000}, buffering=buffering)).plan
    assert plan.prediction is not None
    assert walk_plan(plan).cycles == pytest.approx(plan.prediction.cycles, rel=0.05)


def test_the_manifest_holds_what_the_walk_found(tmp_path: Path) -> None:
    result = convolutions(tmp_path, Options(memory={"l1": 3000}))
    manifest = json.loads(result.files()["deploy.json"])
    run = walk_plan(result.plan)
    assert manifest["cycles"] == round(run.cycles)
    assert manifest["bytes"] == {name: traffic.bytes for name, traffic in run.traffic.items()}
    assert manifest["energy_uj"] == round(run.energy.total, 3)
    assert sum(call["cycles"] for call in manifest["calls"]) == manifest["cycles"]
    assert [call["tiles"] for call in manifest["calls"]] == [c.tiling.tiles for c in result.plan.calls]
    for call in manifest["calls"]:
        shares = call["compute"] + call["overhead"] + call["issue"] + sum(n for r in call["stalls"].values() for n in r.values())
        assert abs(shares - call["cycles"]) <= 6  # each is rounded
    assert manifest["prediction"]["bound"] <= manifest["prediction"]["cycles"]


def test_a_flat_machine_has_no_figures(tmp_path: Path) -> None:
    result = compile_nodes(tmp_path, [node("Neg", "x", "y")], {"x": [4, 8]}, {"y": [4, 8]}, {}, Options(), "generic")
    manifest = json.loads(result.files()["deploy.json"])
    assert (manifest["cycles"], manifest["energy_uj"], manifest["bytes"], manifest["machine"]) == (None, None, {}, None)
    assert [(call["tiles"], call["cycles"]) for call in manifest["calls"]] == [(1, None)]


@given(st.integers(1, 200), st.integers(1, 16))
def test_cores_that_have_a_part(size: int, cores: int) -> None:
    share = -(-size // cores)
    assert cost.active_cores(size, cores) == len(range(0, size, share))
    assert cost.active_cores(np.array([size]), cores).tolist() == [cost.active_cores(size, cores)]


@pytest.mark.parametrize("outputs", [10, 16, 9, 23])
def test_the_planner_and_the_walk_count_the_same_computing(tmp_path: Path, outputs: int) -> None:
    """Also where cores have no part: 10 columns on 8 cores are 5 parts of 2, and 5 cores that share the memory."""
    nodes = [node("MatMul", "x w", "y")]
    result = compile_nodes(tmp_path, nodes, {"x": [1, 40]}, {"y": [1, outputs]}, {"w": [40, outputs]}, Options())
    plan = result.plan
    assert plan.machine is not None and plan.target.timing is not None
    (call,), (planned,), (walked,) = plan.program.calls, plan.calls, walk_plan(plan).calls
    tiler = Tiler(call, plan.program.buffers, plan.target, dict(plan.machine.capacities), plan.machine.cores)
    assert planned.tiling.tiles == 1 and planned.tiling.division
    (computed,) = tiler.computed[0][tiler.tiles == 1]
    assert math.isclose(computed, walked.compute + walked.overhead - cost.fork_cycles(call, plan.target), rel_tol=1e-9)


def test_the_code_of_a_window_is_slow_at_first_only(tmp_path: Path) -> None:
    """Every operand of every call has code of its own, for every path."""
    going = Walk(perceptron(tmp_path, Options(memory={"l1": 4000})).plan)
    loops = going.timing.loops
    assert loops.first_window > loops.window
    windows = [(0, "x", "L2_L1"), (0, "w", "L2_L1"), (0, "x", "L3_L2"), (1, "x", "L2_L1")]
    assert [going.window(key) for key in windows] == [loops.first_window] * 4
    assert [going.window(key) for key in windows] == [loops.window] * 4


def test_what_is_hidden_is_what_both_do_at_once() -> None:
    found = engine_overlap([(0.0, 10.0), (10.0, 14.0), (30.0, 40.0)], [(2.0, 4.0), (8.0, 12.0), (20.0, 31.0)])
    assert found == Engines(24.0, 17.0, 2 + 2 + 2 + 1) and found.hidden == 7 / 17
    either = 14 + (40 - 20)  # cycles in which either works
    assert found.both == found.accelerators + found.cores - either
    assert engine_overlap([], [(0.0, 1.0)]).hidden is None and engine_overlap([(0.0, 1.0)], []).hidden is None
