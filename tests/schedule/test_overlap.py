"""The order of calls in which those of two engines are next to each other: faster than the order of the file, and the same is computed."""

from __future__ import annotations

import itertools
from pathlib import Path
from random import Random

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.driver import order
from deeploy.driver.verify import run_project
from deeploy.execution.runners import host
from deeploy.execution.simulation.walk import walk_plan
from deeploy.planning.packing.order import EngineLoad, arrange_calls, side_by_side
from deeploy.planning.planner.isomorphic import carry_plan
from deeploy.report.reasons import explain_calls
from tests.planning.packing.test_order import branches, is_legal
from tests.schedule.proofs import prove
from tests.schedule.test_managed_fused_groups import Quantised


def save_two_engines(path: Path, channels: int = 48, size: int = 16) -> Path:
    """Two branches joined by Concat: convolutions, which N-EUREKA computes, and pools, one behind the other."""
    one = Quantised()
    a = b = one.conv("x", channels, channels, 1)
    for _ in range(3):
        a = one.conv(a, channels, channels, 3)
    for _ in range(3):
        b = one.stored(one.node("MaxPool", one.read(b), kernel_shape=[3, 3], pads=[1] * 4))
    y = one.stored(one.node("Concat", one.read(a), one.read(b), axis=1))
    return one.save(path, y, [1, channels, size, size], [1, 2 * channels, size, size])


def in_the_order_of_the_file(model: Path) -> deeploy.Compiled:
    """The network as it was planned before its order was chosen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "side_by_side", lambda *given: None)
        return deeploy.compile(model, "siracusa")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> deeploy.Compiled:
    return deeploy.compile(save_two_engines(tmp_path_factory.mktemp("model") / "model.onnx"), "siracusa")


def test_the_order_that_is_faster_is_taken_and_computes_the_same(both: deeploy.Compiled, tmp_path: Path) -> None:
    plan, choice = both.plan, both.plan.order
    assert choice is not None and choice.is_taken
    names = [call.name for call in plan.program.calls]
    assert names != [*choice.file] and sorted(names) == sorted(choice.file) and is_legal(plan.program)
    assert round(walk_plan(plan).cycles) == choice.cycles_other < 0.99 * choice.cycles_file
    prove(both)
    both.write(tmp_path / "out")
    entry = project.select_network(project.read_manifest(tmp_path / "out"))
    assert entry["order"]["cycles_other"] == choice.cycles_other
    said = [[text for text in call["reasons"] if text.startswith("Order: ")] for call in explain_calls(plan, entry)["calls"]]
    assert all(len(texts) == 1 and f"instead of {choice.cycles_file:_}".replace("_", " ") in texts[0] for texts in said)
    assert sum("in the file, so" in texts[0] for texts in said) == sum(a != b for a, b in zip(names, choice.file, strict=True))
    sample = [np.random.default_rng(3).integers(-128, 128, entry["inputs"][0]["shape"]).astype(np.int8)]
    (outputs,) = host.Host().run(tmp_path / "out", entry, [sample]).outputs
    np.testing.assert_array_equal(outputs[0], both.interpret(sample)[0])


def test_what_saves_too_little_is_planned_in_the_order_of_the_file(both: deeploy.Compiled, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "walk_plan", lambda plan: walk_plan(both.plan if plan.fusion_choices else plan))  # both orders take as long
        plan = deeploy.compile(save_two_engines(tmp_path / "model.onnx"), "siracusa").plan
    assert plan.order is not None and not plan.order.is_taken
    assert [call.name for call in plan.program.calls] == [*plan.order.file]


@pytest.mark.gvsoc
def test_the_chosen_order_is_faster_on_the_simulator(both: deeploy.Compiled, tmp_path: Path) -> None:
    sample = np.random.default_rng(3).integers(-128, 128, (1, 32, 16, 16)).astype(np.int8)
    np.savez(tmp_path / "inputs.npz", x=sample)
    cycles = []
    for name, one in (("chosen", both), ("file", in_the_order_of_the_file(save_two_engines(tmp_path / "model.onnx")))):
        one.write(tmp_path / name)
        run = run_project(tmp_path / name, tmp_path / "inputs.npz", on="gvsoc")
        np.testing.assert_array_equal(run.outputs[0][0], both.interpret([sample])[0])
        cycles.append(run.cycles[0])
    print(f"chosen order {cycles[0]}, order of the file {cycles[1]} cycles")
    assert cycles[0] < 0.98 * cycles[1]


def test_the_same_network_has_the_same_order(both: deeploy.Compiled, tmp_path: Path) -> None:
    again = deeploy.compile(save_two_engines(tmp_path / "again.onnx"), "siracusa").plan
    assert again.order == both.plan.order and again.fused_groups == both.plan.fused_groups
    assert deeploy.compile(tmp_path / "again.onnx", "siracusa", fusion=False).plan.order is None


def test_a_plan_in_another_order_is_carried_over(both: deeploy.Compiled) -> None:
    plan = both.plan
    assert plan.order is not None
    steps = {call.name: step for step, call in enumerate(plan.program.calls)}
    given = arrange_calls(plan.program, [steps[name] for name in plan.order.file])
    found = carry_plan(plan, given, given)
    assert [call.name for call in found.program.calls] == [call.name for call in plan.program.calls]
    assert [call.kernel for call in found.program.calls] == [call.kernel for call in plan.program.calls]


@pytest.mark.parametrize("seed", range(6))
def test_no_other_order_lets_engines_work_together_for_longer(seed: int, tmp_path: Path) -> None:
    """Against all orders, with neighbours of which neither needs the other as groups of at most three."""
    program, random = branches(tmp_path, seed), Random(seed)
    loads = [EngineLoad(*random.choice([(0, 50), (40, 0), (30, 20), (10, 60)])) for _ in program.calls]
    count = len(program.calls)
    legal = [turn for turn in itertools.permutations(range(count)) if is_legal(arrange_calls(program, turn))]

    def flow(group: tuple[int, ...]) -> float:
        def span(turn: tuple[int, ...]) -> float:
            jobs = cores = 0.0
            for step in turn:
                jobs += loads[step].jobs
                cores = max(cores, jobs) + loads[step].cores if loads[step].cores else cores
            return max(jobs, cores)

        return min(map(span, itertools.permutations(group)))

    def cycles(steps: tuple[int, ...]) -> float:
        best = [0.0]
        for end in range(1, count + 1):
            ways = []
            for begin in range(max(0, end - 3), end):
                group = steps[begin:end]
                others = (steps[:begin] + turn + steps[end:] for turn in itertools.permutations(group))
                if all(other in known for other in others):
                    ways.append(best[begin] + flow(group))
            best.append(min(ways))
        return best[-1]

    known = set(legal)
    least, own = min(map(cycles, legal)), cycles(tuple(range(count)))
    found = side_by_side(program, loads, 0)
    assert (least < own) is (found is not None)
    if found is not None:
        assert tuple(found) in known and cycles(tuple(found)) == least
