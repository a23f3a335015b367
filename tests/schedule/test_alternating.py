"""Pointwise convolutions on N-EUREKA and depthwise ones on the cores, in turns, as a chain: tiles of both are computed at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.driver import layer_fusion as chains
from deeploy.execution.runners import host
from deeploy.planning.groups.layer_fusion import FusionSearch
from deeploy.planning.program import Role
from deeploy.planning.tiling.loops import Footprints, TileLoop, cut_dims, in_place
from deeploy.schedule import build_schedule
from deeploy.schedule.ir import Compute, Finish
from deeploy.schedule.unroll import Unrolled
from deeploy.target import load
from tests.schedule.proofs import prove
from tests.schedule.test_managed_fused_groups import Quantised

L1 = 40000

SIRACUSA = load("siracusa")
# Without runs of taps, N-EUREKA cannot compute depthwise convolutions of 5x5, and cores do; in ``PORTABLE``, by kernels of any target.
POINTWISE = replace(SIRACUSA, kernels=tuple(kernel for kernel in SIRACUSA.kernels if kernel.source != "neureka/neureka_runs.c"))
PORTABLE = replace(SIRACUSA, kernels=tuple(kernel for kernel in POINTWISE.kernels if kernel.source != "pulp/pulp_depthwise_any.c"))


def save_alternating(path: Path) -> Path:
    """Two pairs of a 1x1 convolution and a depthwise one of 5x5."""
    one = Quantised()
    y = "x"
    for _ in range(2):
        y = one.conv(one.conv(y, 32, 32, 1), 32, 32, 5, group=32)
    return one.save(path, y, [1, 32, 32, 32], [1, 32, 32, 32])


@pytest.fixture(scope="module")
def chained(tmp_path_factory: pytest.TempPathFactory) -> deeploy.Compiled:
    """The network with chains that move fewer bytes, however many cycles they take: rows one by one cost a 5x5 kernel many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "SLOWER", 10.0)
        model = save_alternating(tmp_path_factory.mktemp("model") / "alternating.onnx")
        return deeploy.compile(model, PORTABLE, memory={"l1": L1}, objective="traffic")


def test_the_accelerator_works_on_one_tile_while_cores_compute_another(chained: deeploy.Compiled) -> None:
    plan = chained.plan
    engines = [call.kernel.engine for call in plan.program.calls]
    chain = max(plan.fused_groups, key=lambda one: len(one.members))
    assert engines[chain.first : chain.last + 1].count("npu") == 2
    running, beside, tiles = set[int](), Counter[tuple[int, int]](), Counter[int]()
    for event in Unrolled(build_schedule(plan), {}).events(chain.last):
        node = event.node
        if isinstance(node, Compute) and event.table.layer.accelerator:
            running.add(node.step)
        elif isinstance(node, Finish):
            running.discard(node.step)
        elif isinstance(node, Compute):
            tiles[node.step] += 1
            beside.update((job, node.step) for job in running)
    depthwise = next(step for step in range(2, chain.last) if engines[step] == "cluster" and engines[step + 1] == "npu")
    assert beside[depthwise + 1, depthwise] >= 0.9 * tiles[depthwise] > 1  # all but those at the ends


def test_what_is_computed_side_by_side_is_right(chained: deeploy.Compiled, tmp_path: Path) -> None:
    prove(chained)
    chained.write(tmp_path / "out")
    entry = project.select_network(project.read_manifest(tmp_path / "out"))
    sample = [np.random.default_rng(3).integers(-128, 128, entry["inputs"][0]["shape"]).astype(np.int8)]
    (outputs,) = host.Host(sanitize=True).run(tmp_path / "out", entry, [sample]).outputs
    np.testing.assert_array_equal(outputs[0], chained.interpret(sample)[0])


def test_constants_that_a_kernel_wants_packed_are_not_cut_where_they_lie(tmp_path: Path) -> None:
    """With all of L1, filters of the depthwise convolutions lie there."""
    plan, found = deeploy.compile(save_alternating(tmp_path / "alternating.onnx"), PORTABLE).plan, 0
    fuser = FusionSearch(plan, plan.program)
    for call in plan.program.calls:
        for name, operand in call.operands.items():
            if plan.program.buffers[operand.buffer].role is Role.CONSTANT and fuser.distance(operand.buffer) == 0:
                for dim in cut_dims(call).keys() & in_place(call, Footprints(call.geometry, name, operand)):
                    half = -(-call.geometry.extents[dim] // 2)
                    assert fuser.tile_call(call, (TileLoop(dim, 2, half),), []) is None
                    found += 1
    assert found
