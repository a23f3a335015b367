"""Further variants of a call: which kernels are offered, and that little memory takes slower kernels only where it has to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deeploy
from deeploy.errors import FitError
from deeploy.ir.kernel import Kernel, Scratch, Tiling
from deeploy.ir.nodes import INTEGER_FORM, Tensor, compute
from deeploy.ir.target import Rate, Target
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.options import Options
from deeploy.planning import cost
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.binding.kernels import select_kernels
from deeploy.planning.plan import Plan
from deeploy.planning.planner import network as planner
from deeploy.planning.planner.machine import machine_of
from deeploy.planning.planner.network import Planner
from deeploy.planning.program import Program, Role, choose_variants
from deeploy.target import load
from tests.e2e import test_pipeline
from tests.execution.simulation.nets import compile_nodes, node
from tests.planning.choice.test_infeasibility import stated

GENERIC: Target = load("generic")
RESIDUAL = Path(__file__).parents[4] / "shared" / "models" / "dialect" / "Models" / "MLPerf" / "ImageClassification"


def sums() -> Graph:
    """y = ((x + x) + x) + x: what the second sum writes may lie over what it reads."""
    y = x = Tensor("x", (4, 5), DType.FLOAT32)
    for name in "aby":
        y = compute("Add", y, x, name=name, called=f"sum_{name}", domain=INTEGER_FORM)
    return Graph("network", (x,), (y,))


def kernels(*changes: dict[str, Any]) -> list[Kernel]:
    plain = next(kernel for kernel in GENERIC.kernels if kernel.name == "add" and "f32" in {t.value for t in kernel.types["a"]})
    return [replace(plain, **{"name": f"add{number}", "overwrites": (), **change}) for number, change in enumerate(changes)]


SCRATCH: dict[str, Any] = {"scratch": {"room": Scratch(lambda node, extents: 64)}}
NPU: dict[str, Any] = {"engine": "npu"}
OVER: dict[str, Any] = {"overwrites": (("y", "a"),)}


def test_every_kernel_that_fits_a_node_is_selected() -> None:
    other = {"operator": replace(kernels({})[0].operator, name="Sub")}
    (found,) = select_kernels(kernels(SCRATCH, {}, NPU, other, {}), [sums().nodes[0]])
    assert [kernel.name for kernel in found] == ["add0", "add1", "add2", "add4"]


def worth(monkeypatch: pytest.MonkeyPatch, rates: Mapping[str, float], *changes: dict[str, Any]) -> list[str]:
    """The variants of the first sum that a plan may choose from, where kernels take so many cycles for an output."""
    target = load("siracusa")
    machine = machine_of(target, Options())
    assert machine is not None
    rated = {name: Rate(10.0, 0.0, rate) for name, rate in rates.items()}
    monkeypatch.setattr(cost, "kernel_rate", lambda call, _: rated[call.kernel.name])
    program = assembled(*({"engine": "cluster", **change} for change in changes))
    return [call.kernel.name for call in Planner(program, target, machine).program.variants(0)]


def test_what_is_never_better_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worth(monkeypatch, {"add0": 1, "add1": 1}, {}, {}) == ["add0"]
    assert worth(monkeypatch, {"add0": 2, "add1": 1}, {}, {}) == ["add1"]
    assert worth(monkeypatch, {"add0": 1, "add1": 1.5}, SCRATCH, {}) == ["add0", "add1"]
    assert worth(monkeypatch, {"add0": 1, "add1": 1.5, "add2": 1.2}, SCRATCH, {}, {}) == ["add0", "add2"]
    assert worth(monkeypatch, {"add0": 1.5, "add1": 1}, {}, {"tiling": Tiling(whole=("d1",))}) == ["add0", "add1"]
    assert worth(monkeypatch, {"add0": 9000, "add1": 1}, {}, {"tiling": Tiling(whole=("d1",))}) == ["add1"]


@pytest.mark.slow
@pytest.mark.parametrize("l1", [3000, 6000, 64_000])
def test_no_better_plan_is_lost(l1: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not offered would not have been chosen, or for less than one cycle in a hundred."""
    path = test_pipeline.residual(tmp_path)
    options = Options(memory={"l1": l1})
    few = deeploy.compile(path, "siracusa", **options.given()).plan
    monkeypatch.setattr(planner, "prune_variants", lambda program, *_: program)
    every = deeploy.compile(path, "siracusa", **options.given()).plan
    assert few.prediction is not None and every.prediction is not None
    assert few.prediction.cycles <= 1.01 * every.prediction.cycles


def assembled(*changes: dict[str, Any]) -> Program:
    return assemble_program("network", sums(), kernels(*changes))


def variants(program: Program) -> list[list[str]]:
    return [[call.kernel.name for call in program.variants(step)] for step in range(len(program.calls))]


def test_what_could_not_overwrite_is_no_alternative() -> None:
    assert variants(assembled({}, NPU)) == [["add0", "add1"]] * 3
    assert variants(assembled(OVER, {**NPU, **OVER})) == [["add0", "add1"]] * 3
    assert variants(assembled(OVER, NPU)) == [["add0", "add1"], ["add0"], ["add0", "add1"]]


def test_only_what_the_chosen_ways_need_is_left() -> None:
    program = assembled(SCRATCH, {})
    assert [b.name for b in program.buffers.values() if b.role is Role.SCRATCH] == ["sum_a_room", "sum_b_room", "sum_y_room"]
    mixed = choose_variants(program, [0, 1, 0])
    assert [call.kernel.name for call in mixed.calls] == ["add0", "add1", "add0"]
    assert [b.name for b in mixed.buffers.values() if b.role is Role.SCRATCH] == ["sum_a_room", "sum_y_room"]
    assert {b.name for b in program.buffers.values() if b.role is not Role.SCRATCH} < set(mixed.buffers)


def residual(l1: int, l2: int | None = None) -> Plan:
    options = Options(memory={"l1": l1} | ({} if l2 is None else {"l2": l2}), engines=("cluster",))
    return deeploy.compile(RESIDUAL / "network.onnx", "siracusa", inputs=RESIDUAL / "inputs.npz", **options.given()).plan


@pytest.mark.skipif(not RESIDUAL.exists(), reason="shared models are absent")
def test_little_memory_takes_slower_kernels_only_where_it_has_to() -> None:
    """Those that unfold a few windows at a time fit 16 KB; in 4 KB some convolutions are cut along their reduction, through sums in L1."""
    cut: dict[int, int] = {}
    for l1 in (64_000, 16_000, 4_000):
        plan = residual(l1)
        convolutions = [call.kernel.name for call in plan.program.calls if call.node.op == "Conv"]
        cut[l1] = sum(name.endswith("_sums") for name in convolutions)
        assert plan.memory["L1"].peak <= l1
        assert all(name.startswith("pulp") for name in convolutions)
    assert cut[64_000] == cut[16_000] == 0 < cut[4_000]


@pytest.mark.share(0.5)
@pytest.mark.skipif(not RESIDUAL.exists(), reason="shared models are absent")
@pytest.mark.parametrize("l1", [4_000, 16_000, pytest.param(64_000, marks=pytest.mark.slow)])
def test_the_stated_smallest_memory_holds_the_constants_of_some_kernels(l1: int) -> None:
    """Beside what every variant needs there are constants that only the chosen variants need."""
    with pytest.raises(FitError) as error:
        residual(l1, 100)
    least = stated(error.value, "L2")
    assert residual(l1, least).memory["L2"].peak <= least
    with pytest.raises(FitError):
        residual(l1, least - 8)


def test_a_fast_kernel_that_finds_no_room_hides_no_other(tmp_path: Path) -> None:
    """Products of vectors want the depth whole; filters that are larger than L1 have to be cut along it or along their number."""
    shape, weights = {"x": [1, 256, 3, 3]}, {"w": [256, 256, 1, 1]}
    result = compile_nodes(tmp_path, [node("Conv", "x w", "y")], shape, {"y": [1, 256, 3, 3]}, weights, Options(memory={"l1": 60_000}))
    assert result.memory["L1"].peak <= 60_000
