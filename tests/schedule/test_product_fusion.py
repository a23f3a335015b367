"""Chains of products tile by tile, such as an MLP without its hidden layer: they are safe, and what makes one unsafe is found."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.backend import project
from deeploy.driver import layer_fusion as driver
from deeploy.driver import order
from deeploy.execution.runners import host
from deeploy.execution.simulation.walk import walk_plan
from deeploy.ir.target import Target
from deeploy.options import Options
from deeploy.planning.groups import layer_fusion as fuse
from deeploy.planning.plan import Plan
from deeploy.planning.program import Program
from deeploy.planning.tiling.fused_group import FusedGroup
from deeploy.target import load
from tests.schedule.proofs import refuse
from tests.schedule.test_managed_fused_groups import CHANGES, moved, unsafe
from tests.schedule.test_reductions import Deep

SIRACUSA = load("siracusa")
# N-EUREKA's weights come through L1.
STREAMED = replace(SIRACUSA, kernels=tuple(kernel for kernel in SIRACUSA.kernels if not kernel.resident))
BOTH = ("cluster", "npu")

# rows, width, hidden columns; L1; L2 where constants lie in L3; engines; target; kernel of the second product; whether the chain is nested
CASES: dict[str, tuple[tuple[int, int, int], int, int | None, tuple[str, ...], Target, str, bool]] = {
    "nested, both engines": ((41, 64, 256), 20_000, None, BOTH, SIRACUSA, "neureka_product_nms_sums", True),
    "nested, cores": ((130, 64, 256), 30_000, None, ("cluster",), SIRACUSA, "pulp_matmul", True),
    "sums, both engines": ((130, 32, 512), 46_000, None, BOTH, STREAMED, "neureka_product_parts", False),
    "sums, cores": ((130, 16, 256), 12_000, None, ("cluster",), SIRACUSA, "pulp_matmul_sums", False),
    "nested, both engines, L3": ((200, 64, 256), 44_000, 30_000, BOTH, STREAMED, "neureka_product_sums", True),
    "nested, cores, L3": ((130, 64, 256), 30_000, 12_000, ("cluster",), SIRACUSA, "pulp_matmul", True),
    "sums, both engines, L3": ((130, 32, 512), 46_000, 40_000, BOTH, STREAMED, "neureka_product_parts", False),
    "sums, cores, L3": ((130, 16, 256), 12_000, 12_000, ("cluster",), SIRACUSA, "pulp_matmul_sums", False),
}
DEARER = "nested, both engines, L3"  # weights come once for every tile of rows, which takes more than the hidden layer would


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def save_products(path: Path, rows: int, width: int, hidden: int) -> Path:
    """Two products, with the GELU of the first one in between."""
    one = Deep()
    x = one.matmul("x", width, hidden)
    erf = one.node("Erf", one.node("Div", one.read(x), one.constant(2**0.5)))
    x = one.stored(one.node("Mul", one.node("Mul", one.read(x), one.node("Add", erf, one.constant(1.0))), one.constant(0.5)))
    return one.save(path, one.matmul(x, hidden, width), [rows, width], [rows, width])


@functools.cache
def compile_products(folder: Path, name: str, fusion: bool = True) -> deeploy.Compiled:
    """The network with the chain of one kind that moves the fewest bytes, however long it takes."""
    shape, l1, l2, engines, target, _, is_nested = CASES[name]
    options = Options(memory={"l1": l1}, engines=engines, objective="traffic" if fusion else "cycles", fusion=fusion)
    if l2 is not None:
        options = replace(options, memory={"l1": l1, "l2": l2}, default_memory="L3")
    every, choose = driver.product_groups, order.fuse_layers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "SLOWER", 100)
        patch.setattr(fuse, "TRIPS", ())
        patch.setattr(driver, "product_groups", lambda fuser: filter(functools.partial(is_wanted, is_nested), every(fuser)))
        if fusion and name == DEARER:
            patch.setattr(order, "fuse_layers", lambda alone, given: cheapest(choose(alone, given), given))
        return deeploy.compile(save_products(folder / f"{name}.onnx", *shape), target, **options.given())


def cheapest(alone: Plan, given: Program) -> Plan:
    """The plan with the chain that moves the fewest bytes, though that may be more than without it."""
    fuser = fuse.FusionSearch(alone, given)
    one = min(driver.product_groups(fuser), key=lambda one: one.traffic)
    return fuse.place_addresses(fuse.apply_groups(alone, [one], fuser.buffers))


def is_wanted(is_nested: bool, one: fuse.FusionCandidate) -> bool:
    """A chain of one kind, in several rounds, of which each has several tiles of both calls."""
    loops = [member.loops for member in one.fused_group.members]
    return one.fused_group.is_nested is is_nested and all(len(each) == 2 for each in loops) and loops[0][0].trips > 2


def chain_of(one: deeploy.Compiled) -> FusedGroup:
    (chain,) = one.plan.fused_groups
    return chain


@pytest.mark.share(0.25)
@pytest.mark.parametrize("name", CASES)
def test_the_hidden_layer_is_nowhere_and_outputs_are_the_same(name: str, folder: Path, tmp_path: Path) -> None:
    (rows, _, hidden), l1, _, _, _, kernel, is_nested = CASES[name]
    one = compile_products(folder, name)
    chain, calls = chain_of(one), one.plan.program.calls
    assert [call.kernel.name for call in calls][1:] == [kernel] and len(chain.members[0].loops) == len(chain.members[1].loops) == 2
    ((buffer, slots),) = chain.tile_buffers.items()
    assert buffer == calls[0].operands["y"].buffer and slots.elements * slots.count < rows * hidden / 1.5
    assert (slots.loops == 1) is is_nested and (one.plan.tiling(1).partial(calls[1].geometry) > 1) is not is_nested
    assert (moved(one) < moved(compile_products(folder, name, fusion=False))) is (name != DEARER)
    assert one.plan.memory["L1"].peak <= l1
    one.write(tmp_path / "out")
    entry = project.select_network(project.read_manifest(tmp_path / "out"))
    assert entry["fused_groups"][0]["slots"] == [{"buffer": buffer, "slots": slots.count, "elements": slots.elements}]
    sample = [np.random.default_rng(3).integers(-128, 128, entry["inputs"][0]["shape"]).astype(np.int8)]
    (outputs,) = host.Host(sanitize=True).run(tmp_path / "out", entry, [sample]).outputs
    np.testing.assert_array_equal(outputs[0], one.interpret(sample)[0])
    assert np.unique(outputs[0]).size > 8


@pytest.mark.share(0.5)
@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("L3")])
def test_weights_come_from_l3_through_windows_of_a_few_tiles(name: str, folder: Path) -> None:
    one = compile_products(folder, name)
    plan, chain = one.plan, chain_of(one)
    (rows, width, hidden), rounds = CASES[name][0], chain.members[0].loops[0].trips
    streamed = [s for step in (0, 1) for s in plan.tiling(step).streams if s.path == "L3_L2" and s.moves > 1]
    assert streamed and all(s.bytes * s.moves >= rounds * width for s in streamed)
    assert not any(
        plan.residences[operand.buffer] == "L3"
        for operand in plan.program.calls[0].operands.values()
        if operand.access_elements == rows * hidden
    )
    assert 0 < walk_plan(plan).traffic["L3_L2"].bytes <= walk_plan(plan).traffic["L2_L1"].bytes
    assert plan.memory["L2"].peak <= (CASES[name][2] or 0)


@pytest.mark.parametrize("name", CASES)
def test_weights_move_once_for_every_tile_of_rows(name: str, folder: Path) -> None:
    one = compile_products(folder, name)
    run, chain = walk_plan(one.plan), chain_of(one)
    (rows, width, _), rounds = CASES[name][0], chain.members[0].loops[0].trips
    constants = {operand.buffer for call in one.plan.program.calls for operand in call.operands.values()} & {
        buffer.name for buffer in one.plan.program.buffers.values() if buffer.data is not None and not buffer.memory
    }
    near = {name for name in constants if one.plan.residences.get(name) == "L1"}
    size = sum(one.plan.program.buffers[name].bytes for name in constants - near)
    assert run.traffic["L2_L1"].bytes <= 2 * rows * width + rounds * size


@pytest.mark.share(0.25)
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("name", CASES)
def test_what_makes_such_a_chain_unsafe_is_found(name: str, what: str, folder: Path) -> None:
    absent = ("a move of rows", "nobody waits for a job") if "cores" in name else ("a move of rows",)
    assert bool(unsafe(compile_products(folder, name), what)) is not what.startswith(absent)


@pytest.mark.parametrize("name", CASES)
def test_no_call_could_begin_earlier_and_no_slot_be_left_out(name: str, folder: Path) -> None:
    one = compile_products(folder, name)
    chain, room = chain_of(one), one.plan.target.memory("L1").alignment  # elements of a byte, in which room is given
    members = chain.members
    others = [replace(chain, members=(members[0], replace(members[1], start=members[1].start - 1)))] if members[1].start else []
    for buffer, slots in chain.tile_buffers.items():
        others += [replace(chain, tile_buffers={buffer: replace(slots, count=slots.count - 1)})] if slots.count > 1 else []
        others.append(replace(chain, tile_buffers={buffer: replace(slots, elements=slots.elements - room)}))
    assert refuse(one, (fuse.place_addresses(replace(one.plan, fused_groups=(other,))) for other in others))
