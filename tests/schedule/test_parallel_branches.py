"""Calls of two branches beside each other: N-EUREKA works on one while cores are busy with the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.driver import layer_fusion as chains
from deeploy.execution.simulation.walk import walk_plan
from deeploy.planning.groups import layer_fusion as fuse
from deeploy.schedule import build_schedule
from deeploy.schedule.ir import Compute, Finish, PostProcess
from deeploy.schedule.unroll import Unrolled
from tests.models import save_graph
from tests.schedule.proofs import prove
from tests.schedule.test_managed_fused_groups import CHANGES, Quantised, equal_on_the_host, unsafe


def save_branches(path: Path) -> Path:
    """Two convolutions of one image, which are added."""
    one = Quantised()
    x = one.conv("x", 32, 32, 1)
    y = one.stored(one.node("Add", one.read(one.conv(x, 32, 32, 1)), one.read(one.conv(x, 32, 32, 3))))
    return one.save(path, y, [1, 32, 20, 20], [1, 32, 20, 20])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[deeploy.Compiled, deeploy.Compiled]:
    """The network with what is beside each other, and without."""
    model = save_branches(tmp_path_factory.mktemp("model") / "branches.onnx")
    return compile_branches(model, True), compile_branches(model, False)


def compile_branches(model: Path, has_chains: bool) -> deeploy.Compiled:
    """The network with no other chains than branches beside each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "pipelined_groups", lambda fuser: ())
        patch.setattr(fuse, "TRIPS", ())
        return deeploy.compile(model, "siracusa", fusion=has_chains)


def test_branches_beside_each_other_are_faster_and_the_same(both: tuple[deeploy.Compiled, deeploy.Compiled], tmp_path: Path) -> None:
    beside, alone = both
    (chain,) = beside.plan.fused_groups
    calls = beside.plan.program.calls[chain.first : chain.last + 1]
    assert chain.is_nested and not chain.held and calls[0].operands["x"].buffer == calls[1].operands["x"].buffer
    runs = walk_plan(beside.plan), walk_plan(alone.plan)
    assert runs[0].cycles < 0.97 * runs[1].cycles
    assert (runs[0].engines.hidden or 0) > (runs[1].engines.hidden or 0)
    assert equal_on_the_host(beside, tmp_path / "out")["engines"]["hidden"] == pytest.approx(runs[0].engines.hidden, abs=1e-4)


def test_cores_are_busy_with_one_while_the_accelerator_works_on_the_other(both: tuple[deeploy.Compiled, deeploy.Compiled]) -> None:
    plan = both[0].plan
    running, beside = set[int](), 0
    for event in Unrolled(build_schedule(plan), {}).events(plan.fused_groups[0].last):
        node = event.node
        if isinstance(node, Compute) and event.table.layer.accelerator:
            running.add(node.step)
        elif isinstance(node, Finish):
            running.discard(node.step)
        elif isinstance(node, Compute | PostProcess):
            beside += bool(running - {node.step})
    assert beside


@pytest.mark.parametrize("what", CHANGES)
def test_what_makes_branches_unsafe_is_found(what: str, both: tuple[deeploy.Compiled, deeploy.Compiled]) -> None:
    assert bool(unsafe(both[0], what)) is what.startswith(("transfers or", "another tile", "nobody waits for a job"))  # all else is in L1


def test_the_same_network_has_the_same_branches_beside_each_other(both: tuple[deeploy.Compiled, deeploy.Compiled], tmp_path: Path) -> None:
    again = compile_branches(save_branches(tmp_path / "again.onnx"), True).plan
    assert again.fused_groups == both[0].plan.fused_groups
    assert again.fusion_choices == both[0].plan.fusion_choices


def sums_beside_a_product(path: Path, is_behind: bool = False) -> deeploy.Compiled:
    """Sums of 32 bits that an accelerator makes, or makes behind it, and floats that cores multiply: neither needs the other."""
    weights = np.random.default_rng(4).integers(-127, 128, (64, 64)).astype(np.int8)
    nodes = [helper.make_node("Mul", ["s", "s"], ["t"]), helper.make_node("MatMulInteger", ["x", "w"], ["y"])]
    ports = (("x", TensorProto.UINT8, 900), ("s", TensorProto.FLOAT, 50), ("y", TensorProto.INT32, 900), ("t", TensorProto.FLOAT, 50))
    values = [helper.make_tensor_value_info(name, kind, [rows, 64]) for name, kind, rows in ports]
    outputs = values[:1:-1] if is_behind else values[2:]
    graph = helper.make_graph(nodes, "sums", values[:2], outputs, [numpy_helper.from_array(weights, "w")])
    save_graph(graph, path)
    return deeploy.compile(path, "siracusa", memory={"l1": 64_000})


def test_a_job_that_needs_nothing_of_the_call_in_front_waits_for_its_own_first_tile(tmp_path: Path) -> None:
    """It begins in the time step in which cores begin with that call, before these wait for what they read."""
    found = sums_beside_a_product(tmp_path / "model.onnx", is_behind=True)
    plan = replace(found.plan, memory={**found.plan.memory, "L1": replace(found.plan.memory["L1"], capacity=128_000)})
    fuser = fuse.FusionSearch(plan, plan.program)
    every = list(fuser.list_candidates(lambda *_: True))
    assert [bool(fuser.accelerator(call)) for call in plan.program.calls] == [False, True] and every
    for one in every:
        prove(found, fuse.place_addresses(fuse.apply_groups(plan, [one], fuser.buffers)))


def test_what_a_job_stores_itself_has_left_before_the_next_but_one_writes_there(tmp_path: Path) -> None:
    """Sums of 32 bits that no core completes, beside a product of cores: the accelerator has two slots for them."""
    found = sums_beside_a_product(tmp_path / "model.onnx")
    plan = found.plan
    plan = replace(plan, memory={**plan.memory, "L1": replace(plan.memory["L1"], capacity=128_000)})  # room for tiles of both
    fuser = fuse.FusionSearch(plan, plan.program)
    (one,) = chains.parallel_groups(fuser)
    kernels = [programmed.kernel for programmed in one.programmed]
    (job,) = (number for number, kernel in enumerate(kernels) if plan.target.engine(kernel.engine).accelerator)
    stored = [stream.moves for stream in one.calls[job].tiling.streams if stream.is_output]
    assert kernels[job].post_processing is None and stored[0] > 2
    prove(found, fuse.place_addresses(fuse.apply_groups(plan, [one], fuser.buffers)))
