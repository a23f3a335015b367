"""What a call of jobs by runs takes where cores requantise their sums, found again from layers of a machine whose rates are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.gvsoc import gathered
from benchmarks.gvsoc.layer import Case
from benchmarks.gvsoc.sweep import compiled
from deeploy.execution.simulation.walk import walk_plan
from deeploy.options import Buffering
from deeploy.planning.plan import Plan
from deeploy.target import Target, load

ENTRY = "neureka_depthwise_runs_nms_sums linear"
CALL, COLD = 1234, 321


def test_fit_finds_the_call_of_requantised_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    target = load("siracusa")
    assert target.timing is not None
    known = target.timing.kernels[ENTRY]
    tiles = set[int]()

    def walk_layers(order: Sequence[Case], machine: Target, l1: int | None, buffering: Buffering) -> tuple[Plan, list[int]]:
        plan = compiled(order, machine, gathered.CORES, l1, None, buffering=buffering).networks["network"].plan
        assert machine.timing is not None
        kernels = {**machine.timing.kernels, ENTRY: replace(known, call=CALL, cold=COLD)}
        tiles.update(plan.tiling(step).tiles for step, call in enumerate(plan.program.calls) if call.kernel.name == ENTRY.split()[0])
        run = walk_plan(replace(plan, target=replace(machine, timing=replace(machine.timing, kernels=kernels))))
        return plan, [round(call.cycles) for call in run.calls]

    monkeypatch.setattr(gathered, "_simulate", walk_layers)
    family = next(each for each in gathered.RUNS if each.kernel == "neureka_depthwise_runs linear")
    fitted = gathered._fit_calls(ENTRY, family.cases[:4], known, target)
    assert fitted.rate.call == pytest.approx(CALL, abs=5)
    assert fitted.rate.cold == pytest.approx(COLD, abs=15)
    assert fitted.rate.per == known.per
    assert min(tiles) == 1 < max(tiles)
