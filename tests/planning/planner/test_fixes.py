"""What the user fixes of a plan: it is so in the plan, outputs are the same, and what is not possible says which option and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import deeploy
from deeploy.backend import project
from deeploy.driver import plan as plans
from deeploy.errors import FitError, UsageError
from deeploy.execution.runners import host
from deeploy.execution.simulation.walk import walk_plan
from deeploy.ir.target import Target
from deeploy.options import Options
from deeploy.planning.plan import Machine, Plan
from deeploy.planning.program import Program
from tests.command import deeploy_cli as run
from tests.execution.simulation.nets import compile_nodes, node
from tests.schedule.test_alternating import POINTWISE, save_alternating

Fixes = Mapping[str, str | int]
ARRAY = str(Path(__file__).parents[2] / "targets" / "array")


@pytest.fixture(scope="module")
def two_branches_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches behind a convolution with its Relu: a convolution each, added up."""
    folder = tmp_path_factory.mktemp("fixes")
    nodes = [
        node("Conv", "x w1", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("Conv", "b w2", "c", pads=[1, 1, 1, 1]),
        node("Conv", "b w3", "d"),
        node("Add", "c d", "e"),
        node("Reshape", "e s", "y"),
    ]
    weights = {"w1": [8, 3, 3, 3], "w2": [16, 8, 3, 3], "w3": [16, 8, 1, 1], "s": [2]}
    compile_nodes(folder, nodes[:-1], {"x": [1, 3, 16, 16]}, {"e": [1, 16, 16, 16]}, weights, Options())
    return folder / "model.onnx"


def plan_with(model: Path, fix: Fixes, target: str = "siracusa", options: Options | None = None) -> deeploy.Compiled:
    return deeploy.compile(model, target, fix=fix, **(options or Options(memory={"l1": 30_000})).given())


def layer(one: deeploy.Compiled, written: str) -> int:
    """The step that writes a tensor of the model."""
    program = one.plan.program
    operand = program.tensors.get(f"{written} (channels last)") or program.tensors[written]
    return next(
        step for step, call in enumerate(program.calls) if any(call.operands[name].buffer == operand.buffer for name in call.writes)
    )


def test_nothing_fixed_is_the_free_plan(two_branches_model: Path) -> None:
    free, fixed = plan_with(two_branches_model, {}), plan_with(two_branches_model, {"c_node.buffering": "single"})
    assert free.plan.free_cycles is None and not free.plan.machine.fixes
    assert fixed.plan.free_cycles == round(walk_plan(free.plan).cycles) <= round(walk_plan(fixed.plan).cycles)


@pytest.mark.parametrize(("dim", "size", "trips"), [("oh", 4, 4), ("k", 5, 4), ("ow", 16, 1)])
def test_tiles_have_the_size_that_is_fixed(dim: str, size: int, trips: int, two_branches_model: Path) -> None:
    one = plan_with(two_branches_model, {f"c_node.tile.{dim}": size})
    loops = {loop.dim: (loop.tile, loop.trips) for loop in one.plan.tiling(layer(one, "c")).loops}
    assert loops.get(dim, (16, 1)) == (size, trips)


@pytest.mark.parametrize(("how", "is_double"), [("single", False), ("double", True)])
def test_windows_have_as_many_slots_as_are_fixed(how: str, is_double: bool, two_branches_model: Path) -> None:
    one = plan_with(two_branches_model, {"c_node.buffering": how, "c_node.tile.oh": 4})
    assert one.plan.calls[layer(one, "c")].is_double is is_double


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_activations_lie_where_that_is_fixed(level: str, two_branches_model: Path) -> None:
    one = plan_with(two_branches_model, {"b.memory": level}, options=Options())
    buffer = one.plan.program.calls[layer(one, "b")].operands["y"].buffer
    assert one.plan.residences[buffer] == level and not any(buffer in chain.held for chain in one.plan.fused_groups)


def test_constants_lie_where_that_is_fixed(two_branches_model: Path) -> None:
    far = Options(default_memory="L3")
    (name,) = {b.name for b in plan_with(two_branches_model, {}, options=far).plan.program.buffers.values() if b.tensor.startswith("w2")}
    for level in ("L2", "L3"):
        plan = plan_with(two_branches_model, {f"{name}.memory": level}, options=far).plan
        assert (plan.residences.get(name, "L3") == "L2") is (level == "L2")


@pytest.mark.parametrize("wanted", [("c_node", "d_node"), ("d_node", "c_node")])
@pytest.mark.parametrize("target", ["siracusa", "generic"])
def test_a_node_runs_behind_another_one(wanted: tuple[str, str], target: str, two_branches_model: Path) -> None:
    later, earlier = wanted
    one = plan_with(two_branches_model, {f"{later}.after": earlier}, target, Options())
    assert layer(one, later[0]) > layer(one, earlier[0])


@pytest.mark.parametrize("target", [ARRAY, "generic"], ids=["array", "generic"])
def test_a_kernel_that_is_fixed_computes_the_node(target: str, two_branches_model: Path) -> None:
    free = plan_with(two_branches_model, {}, target, Options())
    step = layer(free, "c")
    others = [call.kernel.name for call in free.plan.variants[step]]
    assert len(others) > 1
    for name in others:
        one = plan_with(two_branches_model, {"c_node.kernel": name}, target, Options())
        assert one.plan.program.calls[layer(one, "c")].kernel.name == name


def test_an_engine_that_is_fixed_computes_the_node_and_what_is_fused_into_it(tmp_path: Path) -> None:
    """Of a quantised network: a node's own result is never stored, only what is requantised of it."""
    path = save_alternating(tmp_path / "model.onnx")
    named = onnx.load(path)
    for number, one in enumerate(n for n in named.graph.node if n.op_type == "Conv"):
        one.name = f"conv{number}"
    onnx.save(named, path)
    free, fixed = deeploy.compile(path, POINTWISE), deeploy.compile(path, POINTWISE, fix={"conv0.engine": "cluster"})
    before, after = ([call.kernel.engine for call in one.plan.program.calls if call.geometry.macs()] for one in (free, fixed))
    assert before == ["npu", "cluster", "npu", "cluster"] and after == ["cluster", "cluster", "npu", "cluster"]
    assert fixed.plan.free_cycles == round(walk_plan(free.plan).cycles)
    sample = [np.random.default_rng(0).integers(-128, 128, [1, 32, 32, 32]).astype(np.int8)]
    fixed.write(tmp_path / "out")
    entry = project.select_network(project.read_manifest(tmp_path / "out"))
    (outputs,) = host.Host().run(tmp_path / "out", entry, [sample]).outputs
    np.testing.assert_array_equal(outputs[0], free.interpret(sample)[0])


IMPOSSIBLE: dict[str, tuple[Fixes, str]] = {
    "no such node": ({"cnode.engine": "npu"}, "no node cnode"),
    "no such tensor": ({"bb.memory": "L2"}, "no tensor bb"),
    "no such form": ({"c_node.speed": "fast"}, "what can be fixed is"),
    "no such engine": ({"c_node.engine": "gpu"}, "gpu cannot compute it"),
    "no such kernel": ({"c_node.kernel": "magic"}, "magic cannot compute it"),
    "an engine and a kernel of another one": (
        {"c_node.engine": "cluster", "c_node.kernel": "neureka_dense"},
        'with fix={"c_node.engine": "cluster"}',
    ),
    "no such dimension": ({"c_node.tile.z": 4}, "not cut along z"),
    "too large a tile": ({"c_node.tile.oh": 17}, "1 to 16 iterations"),
    "no number": ({"c_node.tile.oh": "many"}, "1 to 16 iterations"),
    "no such buffering": ({"c_node.buffering": "triple"}, "no such buffering"),
    "no such memory": ({"b.memory": "L7"}, "no such memory"),
    "a memory of kernels": ({"b.memory": "WM"}, "WM holds what kernels want there"),
    "the caller's": ({"x.memory": "L1"}, "where the caller has it"),
    "what does not fit there": ({"c.memory": "L3"}, "there is no room for it"),
    "a circle": ({"a_node.after": "c_node"}, "c_node needs what a_node computes"),
    "two names of one layer": ({"a_node.tile.oh": 4, "b_node.tile.oh": 8}, "about the same layer"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_is_not_possible_says_which_option_and_why(case: str, two_branches_model: Path) -> None:
    fix, expected = IMPOSSIBLE[case]
    with pytest.raises(UsageError) as refused:
        plan_with(two_branches_model, fix)
    assert expected in refused.value.what and refused.value.remedy
    assert f'fix={{"{next(iter(fix))}": ' in refused.value.what


def test_an_engine_that_may_not_be_used_is_refused_beside_the_option_that_leaves_it_out(two_branches_model: Path) -> None:
    with pytest.raises(UsageError, match=r'fix={"c_node\.engine": "npu"} and engines cluster contradict each other'):
        plan_with(two_branches_model, {"c_node.engine": "npu"}, options=Options(engines=("cluster",)))


def test_what_does_not_fit_since_it_is_fixed_says_that_it_would_fit_without(two_branches_model: Path) -> None:
    whole = {"c_node.tile.oh": 16, "c_node.tile.ow": 16, "c_node.tile.k": 16}
    with pytest.raises(FitError) as refused:
        plan_with(two_branches_model, whole, options=Options(memory={"l1": 8_000}))
    assert '"c_node.tile.oh": 16' in refused.value.remedy and "without what is fixed" in refused.value.remedy
    assert plan_with(two_branches_model, {}, options=Options(memory={"l1": 8_000})).plan.memory["L1"].peak <= 8_000


def test_what_is_fixed_may_fit_where_the_free_plan_does_not(two_branches_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plans.plan_program

    def only_fixed(program: Program, target: Target, machine: Machine, options: Options) -> Plan:
        if not machine.fixes:
            raise FitError("too large", "")
        return planned(program, target, machine, options)

    monkeypatch.setattr(plans, "plan_program", only_fixed)
    one = plan_with(two_branches_model, {"d_node.after": "c_node"}, options=Options())
    assert one.plan.machine.fixes and one.plan.free_cycles is None


@pytest.mark.parametrize(("given", "what"), [("c_node.tile.oh", "tile"), ("c_node.buffering", "buffering"), ("c.memory", "memory")])
def test_a_machine_with_one_memory_has_neither_tiles_nor_memories(given: str, what: str, two_branches_model: Path) -> None:
    with pytest.raises(UsageError, match="one flat memory"):
        plan_with(two_branches_model, {given: 4 if what == "tile" else "single"}, "generic", Options())


def test_the_command_says_what_is_fixed_and_what_it_costs(two_branches_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = run(
        "compile",
        str(two_branches_model),
        "-t",
        "siracusa",
        "-o",
        str(out),
        "--fix",
        "c_node.buffering=single",
        "--fix",
        "c_node.tile.oh=4",
    )
    assert made.returncode == 0, made.stderr
    found = json.loads((out / "deploy.json").read_text())
    assert [(fix["of"], fix["what"], fix["value"]) for fix in found["fixed"]["fixes"]] == [
        ("c_node", "buffering", "single"),
        ("c_node", "tile.oh", "4"),
    ]
    assert found["fixed"]["cycles_free"] < found["cycles"]
    assert "fixed by you: c_node.buffering=single" in run("report", str(out)).stdout
    assert "Fixed by you: c_node.buffering=single, c_node.tile.oh=4." in run("explain", str(out), "c_node").stdout
    again = run("compile", "--config", str(out / "deeploy.toml"), "-o", str(tmp_path / "again"))
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "again" / "src" / "network.c").read_text() == (out / "src" / "network.c").read_text()
    twice = run(
        "compile", str(two_branches_model), "-t", "siracusa", "-o", str(out), "--fix", "c_node.engine=npu", "--fix", "c_node.engine=cluster"
    )
    assert twice.returncode == 2 and "contradict each other" in twice.stderr and len(twice.stderr.strip().splitlines()) == 2
