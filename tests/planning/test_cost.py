"""Cycles in closed form: what counts beside what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deeploy.options import Options
from deeploy.planning import cost
from deeploy.planning.cost import (
    Load,
    SharedCycles,
    active_cores,
    call_cycles,
    kernel_rate,
    kernel_work,
    post_processing_cost,
    tile_overhead,
    whole_steps,
)
from deeploy.target import load
from tests.execution.simulation import nets

OUT = Load(fetched=40, stored=670, first=10, last=70)  # 10 cycles of fetching and 200 of storing a tile
IN = Load(fetched=610, stored=100, first=10, last=70)  # the other way round


@pytest.mark.parametrize(
    ("compute", "loads", "tiles"),
    [
        (400, [], 100 + 2 * 100 + 100),
        (400, [OUT], 100 + 2 * 210 + 200),  # nothing leaves beside the first tile
        (400, [IN], 200 + 2 * 210 + 100),  # nothing arrives beside the last one
        (400, [OUT, IN], 200 + 2 * 210 + 200),
        (840, [OUT], 210 + 2 * 210 + 210),
        (820, [OUT], 205 + 2 * 210 + 205),
    ],
)
def test_with_two_slots_the_longer_counts_for_every_tile(compute: int, loads: list[Load], tiles: int) -> None:
    """Of four tiles; the first window arrives and the last one leaves beside nothing, as the first core starts all transfers."""
    ends = sum(load.first + load.last for load in loads)
    assert call_cycles(compute, 4, 33, {str(path): load for path, load in enumerate(loads)}, True) == tiles + ends + 33


def test_with_one_slot_everything_adds_up() -> None:
    assert call_cycles(400, 4, 33, {"near": OUT, "far": IN}, False) == 400 + 33 + 710 + 710


def test_an_accelerator_computes_while_the_first_core_starts_transfers() -> None:
    """Of 400 cycles the core needs 40 before; 150 of starting 200 are done meanwhile, which is 50 for each of three tiles."""
    assert call_cycles(400, 4, 200, {"near": OUT}, True, SharedCycles(40, 150)) == 40 + 90 + 2 * 260 + 200 + 200 - 150 + 80


def test_a_team_works_on_parts_of_one_size() -> None:
    assert [active_cores(size, 8) for size in (1, 8, 9, 16, 17, 24)] == [1, 8, 5, 8, 6, 8]
    assert [whole_steps(10, step) for step in (1, 4, 5, 10, 11)] == [10, 3, 2, 1, 1]
    assert [whole_steps(size, -4) for size in (3, 4, 5)] == [3, 0, 0]


def test_figures_of_a_call_are_worked_out_once_for_a_target(tmp_path: Path) -> None:
    """Plans, chains and walks ask hundreds of times; another target with other cycles has other figures."""
    plan = nets.convolutions(tmp_path, Options()).plan
    assert plan.target.timing is not None
    slower = replace(plan.target, timing=replace(plan.target.timing, tile=plan.target.timing.tile + 1000.0))
    for call in plan.program.calls:
        assert kernel_work(call, plan.target) is kernel_work(call, plan.target)
        assert kernel_rate(call, plan.target) is kernel_rate(call, plan.target)
        assert post_processing_cost(call, plan.target, 8) is post_processing_cost(call, plan.target, 8)
        assert tile_overhead(call, slower) == tile_overhead(call, plan.target) + 1000.0


def test_starts_are_hidden_behind_what_the_path_has_to_do_by_then() -> None:
    """One window of one transfer at a time: nothing is under way when it is started. Of a second operand's, the first one's is."""
    target = load("siracusa")
    assert target.timing is not None
    timing, loops = target.timing.paths["L2_L1"], target.timing.loops
    late = 10 * (loops.window + timing.issue)
    one = cost.TransferCost(data=10_000.0, issue=late + 500.0, commands=10, moves=10, is_output=False, is_prefetchable=False)
    assert cost.path_load([one], target, "L2_L1").fetched == 10_000 + 10 * timing.latency[False]
    other = cost.TransferCost(data=5_000.0, issue=300.0, commands=10, moves=10, is_output=False, is_prefetchable=False)
    both = cost.path_load([one, other], target, "L2_L1").fetched
    assert both == 15_000 + 10 * timing.latency[False] - 300


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("kernel", ["matmul", "matmul_any", "matmul_dot"])
def test_only_a_kernel_without_a_layout_is_told_to_read_rows(tmp_path: Path, kernel: str, is_transposed: bool) -> None:
    """Kernels that store b in their own way read it alike, however the graph has it."""
    call = nets.convolutions(tmp_path, Options()).plan.program.calls[0]
    found = next(each for each in load("generic").kernels if each.name == kernel)
    node = replace(call.node, attrs={**call.node.attrs, "trans_b": is_transposed})
    told = "transposed" in cost.instance_words(replace(call, node=node, kernel=replace(call.kernel, layouts=found.layouts)))
    assert told == (is_transposed and kernel == "matmul_any")


@pytest.mark.parametrize("groups", [1, 8])
def test_convolutions_of_several_groups_are_told_from_dense_ones(tmp_path: Path, groups: int) -> None:
    """Kernels take groups one by one, which costs a multiple where these are small."""
    call = nets.convolutions(tmp_path, Options()).plan.program.calls[0]
    node = replace(call.node, attrs={**call.node.attrs, "group": groups})
    assert ("grouped" in cost.instance_words(replace(call, node=node))) == (groups > 1)


def test_tiles_of_an_accelerator_count_as_large_as_they_are() -> None:
    """Of two tiles, cores complete the first one, of 90 cycles, beside the second one's job of 20; what is left is 10."""
    shared = SharedCycles(0, 0, first=80, post_processing=100, last=10)
    assert call_cycles(100, 2, 0, {}, True, shared) == 80 + 90 + 10
