"""Calls of two branches beside each other: N-EUREKA works on one while cores are busy with the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import deeploy
from deeploy.driver import chains
from deeploy.midend.machine import Options
from deeploy.midend.tiling import Stream
from deeploy.schedule import build
from deeploy.schedule.ir import Compute, Finish, Second
from deeploy.schedule.rings import Rings
from deeploy.schedule.unroll import Unrolled
from deeploy.simulate.walk import walk
from tests.schedule.test_managed_chains import CHANGES, Quantised, equal_on_the_host, unsafe


def network(path: Path) -> Path:
    """Two convolutions of one image, which are added."""
    one = Quantised()
    x = one.conv("x", 32, 32, 1)
    y = one.stored(one.node("Add", one.read(one.conv(x, 32, 32, 1)), one.read(one.conv(x, 32, 32, 3))))
    return one.save(path, y, [1, 32, 20, 20], [1, 32, 20, 20])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[deeploy.Compiled, deeploy.Compiled]:
    """The network with what is beside each other, and without."""
    model = network(tmp_path_factory.mktemp("model") / "branches.onnx")
    return compiled(model, True), compiled(model, False)


def compiled(model: Path, has_chains: bool) -> deeploy.Compiled:
    """The network without chains of calls that follow each other, which would have the branches in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "following", lambda fuser: ())
        return deeploy.compile(model, "siracusa", options=Options(chains=has_chains))


def test_branches_beside_each_other_are_faster_and_the_same(both: tuple[deeploy.Compiled, deeploy.Compiled], tmp_path: Path) -> None:
    beside, alone = both
    (chain,) = beside.plan.chains
    calls = beside.plan.program.calls[chain.first : chain.last + 1]
    assert chain.is_nested and not chain.held and calls[0].operands["x"].buffer == calls[1].operands["x"].buffer
    runs = walk(beside.plan), walk(alone.plan)
    assert runs[0].cycles < 0.97 * runs[1].cycles
    assert (runs[0].engines.hidden or 0) > (runs[1].engines.hidden or 0)
    assert equal_on_the_host(beside, tmp_path / "out")["engines"]["hidden"] == pytest.approx(runs[0].engines.hidden, abs=1e-4)


def test_cores_are_busy_with_one_while_the_accelerator_works_on_the_other(both: tuple[deeploy.Compiled, deeploy.Compiled]) -> None:
    plan = both[0].plan
    running, beside = set[int](), 0
    for event in Unrolled(build(plan), {}).events(plan.chains[0].last):
        node = event.node
        if isinstance(node, Compute) and event.table.layer.accelerator:
            running.add(node.step)
        elif isinstance(node, Finish):
            running.discard(node.step)
        elif isinstance(node, Compute | Second):
            beside += bool(running - {node.step})
    assert beside


@pytest.mark.parametrize("what", CHANGES)
def test_what_makes_branches_unsafe_is_found(what: str, both: tuple[deeploy.Compiled, deeploy.Compiled]) -> None:
    assert bool(unsafe(both[0].plan, what)) is what.startswith(
        ("transfers or", "another tile", "nobody waits for a job")
    )  # all else is in L1


def test_the_same_network_has_the_same_branches_beside_each_other(both: tuple[deeploy.Compiled, deeploy.Compiled], tmp_path: Path) -> None:
    again = compiled(network(tmp_path / "again.onnx"), True).plan
    assert again.chains == both[0].plan.chains
    assert again.chain_choices == both[0].plan.chain_choices


def test_only_what_calls_write_in_place_is_followed(both: tuple[deeploy.Compiled, deeploy.Compiled]) -> None:
    """What leaves through windows may be read where it lies, by an engine that works there: it is checked by its transfers."""
    plan = both[0].plan
    (chain,) = plan.chains
    step = chain.last
    (name,) = plan.program.calls[step].writes
    written = plan.program.calls[step].operands[name].buffer
    assert written in Rings(plan, AssertionError).held
    stream = Stream(name, "L2_L1", 1, 1, plan.tiling(step).tiles, 2, 64, True)
    leaving = replace(plan.calls[step], tiling=replace(plan.tiling(step), streams=(stream,)))
    assert written not in Rings(replace(plan, calls=(*plan.calls[:step], leaving, *plan.calls[step + 1 :])), AssertionError).held
