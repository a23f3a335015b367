"""Energy by what takes it; what has no figure is named; and plans whose objective it is."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
import typer.testing

import deeploy
from deeploy.cli import app
from deeploy.driver import compile as driver
from deeploy.driver.distributed import Distributed
from deeploy.errors import UsageError
from deeploy.execution.simulation.walk import walk_plan
from deeploy.options import Objective, Options
from deeploy.planning.energy import check_energies, core_milliwatt, measure_objective, missing_energy
from deeploy.planning.planner.machine import machine_of
from deeploy.report import terminal
from deeploy.target import Target, load
from tests.models import Net, quantised


def perceptron(folder: Path, *widths: int, rows: int = 1) -> Path:
    """Layers of weights that pass once, which an accelerator computes hardly faster than cores."""
    net = Net()
    x = quantised(net, net.x(rows, widths[0]))
    for inputs, outputs in pairwise(widths):
        weights = net.c(net.random.integers(-60, 60, (inputs, outputs)), np.int8)
        x = quantised(net, net.MatMul(x, net.DequantizeLinear(weights, net.c(0.01), net.c(0, np.int8))))
    file = folder / "network.onnx"
    onnx.save(net.model([x]), file)
    return file


def compile_file(file: Path, target: Target | str = "siracusa", **options: Any) -> deeploy.Compiled:
    return deeploy.compile(file, target, **options)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, deeploy.Compiled]:
    file = perceptron(tmp_path_factory.mktemp("energy"), 640, 128, 128)
    return {objective: compile_file(file, objective=objective) for objective in ("cycles", "energy", "edp")}


def test_parts_add_up_and_accelerators_and_their_memory_take_part(plans: dict[str, deeploy.Compiled]) -> None:
    plan = plans["cycles"].plan
    run = walk_plan(plan)
    timing = plan.target.timing
    assert timing is not None and run.engines.accelerators > 0
    found = run.energy
    assert found.missing == ()
    assert found.total == pytest.approx(sum(found.parts.values()))
    assert found.accelerators == {"npu": pytest.approx(timing.active_mw["npu"] * run.engines.accelerators / run.mhz / 1e3)}
    assert found.static == pytest.approx(timing.static_mw * run.cycles / run.mhz / 1e3)
    weights = sum(b.bytes for b in plan.program.buffers.values() if b.memory == "WM")
    assert found.memories["WM"] >= weights * timing.memory_pj["WM"] / 1e6 > 0
    told = json.loads(plans["cycles"].files()["deploy.json"])
    assert (told["energy_missing"], set(told["energy"])) == ([], {"cores", "npu", "L2_L1", "L3_L2", "WM", "static"})
    assert told["energy_uj"] == pytest.approx(sum(told["energy"].values()), abs=0.01)
    for name in told["energy"]:
        assert sum(call["energy"].get(name, 0.0) for call in told["calls"]) == pytest.approx(told["energy"][name], rel=0.05, abs=0.01)
    (explained,) = json.loads(plans["cycles"].files()["explain.json"])["networks"].values()
    reasons = [line for call in explained["calls"] for line in call["reasons"]]
    assert sum(line.startswith("Energy: ") for line in reasons) == len(told["calls"])


@pytest.mark.parametrize("objective", ["energy", "edp"])
def test_a_plan_for_energy_takes_no_more_than_the_fastest(plans: dict[str, deeploy.Compiled], objective: Any) -> None:
    runs = {name: walk_plan(found.plan) for name, found in plans.items()}
    value = {name: measure_objective(objective, run.cycles, run.energy.total) for name, run in runs.items()}
    assert value[objective] == min(value.values())
    assert plans[objective].plan.machine.objective == objective


def test_energy_decides_where_cycles_would_decide_otherwise(plans: dict[str, deeploy.Compiled]) -> None:
    fast, frugal = (walk_plan(plans[name].plan) for name in ("cycles", "energy"))
    assert fast.cycles < frugal.cycles
    assert frugal.energy.total < 0.95 * fast.energy.total
    prediction = plans["energy"].plan.prediction
    assert prediction is not None and abs(prediction.cycles / frugal.cycles - 1) < 0.1  # in cycles, though energy was counted in them


def test_what_has_no_energy_is_named_and_no_plan_is_made_for_it(tmp_path: Path) -> None:
    target = load("siracusa")
    assert target.timing is not None
    poor = replace(target, timing=replace(target.timing, active_mw={}, memory_pj={}, static_mw=0.0))
    found = compile_file(perceptron(tmp_path, 64, 64), poor)
    told = json.loads(found.files()["deploy.json"])
    lacking = told["energy_missing"]
    assert {"engine npu", "memory WM", "static power"} >= set(lacking) and "static power" in lacking
    assert all(name in terminal.report_network(told) for name in lacking)
    with pytest.raises(UsageError, match="target siracusa has no energy of engine npu, memory WM") as refused:
        machine_of(poor, Options(objective="energy"))
    assert "--objective cycles" in refused.value.remedy
    assert machine_of(poor, Options(objective="edp", engines=("cluster",))).objective == "edp"


@pytest.mark.parametrize("name", ["generic", "cortex_m4", "rv32imc"])
def test_a_target_without_energies_says_so(name: str, tmp_path: Path) -> None:
    told = json.loads(compile_file(perceptron(tmp_path, 16, 8), name).files()["deploy.json"])
    assert told["energy_uj"] is None
    assert told["energy_missing"][0].startswith("engine ") and told["energy_missing"][-1] == "static power"
    for objective in ("energy", "edp"):
        with pytest.raises(UsageError, match=f'objective="{objective}": target {name} has no energy of engine'):
            compile_file(perceptron(tmp_path, 16, 8), name, objective=objective)


def test_every_objective_is_offered_and_named_where_one_is_unknown() -> None:
    with pytest.raises(UsageError) as refused:
        machine_of(load("siracusa"), Options(objective="speed"))  # type: ignore[arg-type]
    assert all(objective in refused.value.remedy for objective in get_args(Objective))
    shown = typer.testing.CliRunner().invoke(app, ["compile", "--help"], env={"COLUMNS": "200"}).output
    assert "|".join(get_args(Objective)) in shown


def test_one_core_serves_an_accelerator_that_works_alone(plans: dict[str, deeploy.Compiled]) -> None:
    """Of a plan that needs the team, all of its cores are on, and the one that serves the accelerator is one of them."""
    plan = plans["cycles"].plan
    timing = plan.target.timing
    assert timing is not None
    assert core_milliwatt(plan) == timing.core_mw["cluster"] * 8
    calls = tuple(call for call in plan.program.calls if {part.kernel.engine for part in call.parts} == {"npu"})
    assert not calls or core_milliwatt(replace(plan, program=replace(plan.program, calls=calls))) == timing.core_mw["npu"]


def test_figures_of_zero_are_no_figures() -> None:
    target = load("siracusa")
    assert target.timing is not None
    free = replace(target, timing=replace(target.timing, core_mw={"cluster": 0.0, "npu": 13.0}, static_mw=1.0))
    assert missing_energy(free, ["cluster", "npu"], ["L2_L1"]) == ("engine cluster",)
    check_energies(free, "cycles", ())


def test_the_way_to_cut_a_network_is_chosen_by_the_objective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way with the least of what is measured; where more were better, another one."""
    built, build, file = [], driver.build, perceptron(tmp_path, 64, 64, rows=32)

    def recorded(*given: Any) -> Distributed:
        built.append(build(*given))
        return built[-1]

    def chosen(objective: Any) -> int:
        built.clear()
        best = driver.compile_chips(file, load("siracusa"), Options(chips=4, objective=objective))
        runs = [one.predicted for one in built]
        assert len(runs) == 2 and best.predicted is not None
        values = [driver.measure_objective(objective, run.cycles, run.energy.total) for run in runs if run is not None]
        assert driver.measure_objective(objective, best.predicted.cycles, best.predicted.energy.total) == min(values)
        return values.index(min(values))

    monkeypatch.setattr(driver, "build", recorded)
    least = chosen("energy")
    monkeypatch.setattr(driver, "measure_objective", lambda objective, cycles, energy: -energy)
    assert chosen("energy") != least
