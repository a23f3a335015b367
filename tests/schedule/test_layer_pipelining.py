"""Calls that follow each other: N-EUREKA begins with one while cores complete the last tile of the one before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import deeploy
from deeploy.certify import CertificateError
from deeploy.driver import layer_fusion as chains
from deeploy.execution.simulation.walk import walk_plan
from deeploy.planning.tiling.loops import TileLoop
from deeploy.schedule import build_schedule
from deeploy.schedule.ir import Compute, Finish, PostProcess
from deeploy.schedule.unroll import Unrolled
from tests.schedule.proofs import prove
from tests.schedule.test_managed_fused_groups import CHANGES, Quantised, equal_on_the_host, unsafe

SIZE = [1, 32, 25, 10]


def save_convolutions(path: Path) -> Path:
    """1x1 and 3x3 convolutions in turns, the last of which halves rows and columns."""
    one = Quantised()
    y = one.conv(one.conv(one.conv("x", 32, 32, 1), 32, 32, 3), 32, 32, 1)
    return one.save(path, one.conv(y, 32, 32, 1, 2), SIZE, [1, 32, 13, 5])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[deeploy.Compiled, deeploy.Compiled]:
    """The network with calls that follow each other closely, and without; however little that saves."""
    model = save_convolutions(tmp_path_factory.mktemp("model") / "behind.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "WORTH", 0.0)
        patch.setattr(chains, "parallel_groups", lambda fuser: ())
        behind, alone = (deeploy.compile(model, "siracusa", fusion=has_chains) for has_chains in (True, False))
    return behind, alone


def test_calls_that_follow_each_other_closely_are_faster_and_the_same(
    both: tuple[deeploy.Compiled, deeploy.Compiled], tmp_path: Path
) -> None:
    behind, alone = both
    (chain,) = behind.plan.fused_groups
    assert chain.is_nested and len(chain.members) >= 3 and not chain.held
    runs = walk_plan(behind.plan), walk_plan(alone.plan)
    assert runs[0].cycles < runs[1].cycles
    assert (runs[0].engines.hidden or 0) > (runs[1].engines.hidden or 0)
    assert equal_on_the_host(behind, tmp_path / "out")["engines"]["hidden"] == pytest.approx(runs[0].engines.hidden, abs=1e-4)


def test_a_job_begins_while_cores_complete_the_call_before(both: tuple[deeploy.Compiled, deeploy.Compiled]) -> None:
    plan = both[0].plan
    running, found = set[int](), set[tuple[int, int]]()
    for event in Unrolled(build_schedule(plan), {}).events(plan.fused_groups[0].last):
        node = event.node
        if isinstance(node, Compute) and event.table.layer.accelerator:
            running.add(node.step)
        elif isinstance(node, Finish):
            running.discard(node.step)
        elif isinstance(node, Compute | PostProcess):
            found |= {(node.step, step) for step in running}
    steps = [member.step for member in plan.fused_groups[0].members if plan.program.calls[member.step].kernel.post_processing is not None]
    assert {(step, step + 1) for step in steps[:-1]} <= found


@pytest.mark.parametrize("what", CHANGES)
def test_what_makes_such_a_chain_unsafe_is_found(what: str, both: tuple[deeploy.Compiled, deeploy.Compiled]) -> None:
    assert bool(unsafe(both[0], what)) is not what.startswith("a move of rows")


def test_first_tiles_need_all_tiles_but_the_last(both: tuple[deeploy.Compiled, deeploy.Compiled]) -> None:
    """With a row more in the first tile of a 3x3 convolution, it would read what is not there yet."""
    plan = both[0].plan
    (chain,) = plan.fused_groups
    number, member = next((n, m) for n, m in enumerate(chain.members) if "fh" in plan.program.calls[m.step].geometry.extents and n)
    loop = member.loops[0]
    before = chain.members[number - 1].loops[0]
    longer = replace(member, loops=(TileLoop(loop.dim, loop.trips, before.tile),))
    calls = list(plan.calls)
    calls[member.step] = replace(calls[member.step], tiling=replace(calls[member.step].tiling, loops=longer.loops))
    members = tuple(longer if one is member else one for one in chain.members)
    with pytest.raises(CertificateError, match="does not hold element"):
        prove(both[0], replace(plan, calls=tuple(calls), fused_groups=(replace(chain, members=members),)))


def test_the_same_network_has_the_same_chains(both: tuple[deeploy.Compiled, deeploy.Compiled], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "WORTH", 0.0)
        patch.setattr(chains, "parallel_groups", lambda fuser: ())
        again = deeploy.compile(save_convolutions(tmp_path / "again.onnx"), "siracusa").plan
    assert again.fused_groups == both[0].plan.fused_groups
