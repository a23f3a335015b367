"""Stages of pipelines on a chip with several memories: what plans say of them, and that the best cut is found."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.networks import resnet
from deeploy.errors import FitError, UsageError
from deeploy.execution.simulation import chips
from deeploy.execution.simulation.stages import PlannedStages, plan_pipeline_stages
from deeploy.frontend import import_model
from deeploy.ir.rewriting import rewrite_graph
from deeploy.ir.topology import Member, Topology
from deeploy.ir.values import Graph
from deeploy.options import Options
from deeploy.partition import balance
from deeploy.partition.balance_levels import stage_segments
from deeploy.partition.pipeline import Balance, choose_cuts_by, levels_of_graph
from deeploy.partition.system import check_system, constants_by_chip, system_of_one
from deeploy.planning.planner.machine import own_options
from deeploy.quantization.static import quantize_model
from deeploy.target import load
from tests.models import Net, conv

SIRACUSA, GENERIC = load("siracusa"), load("generic")
LITTLE = Options(memory={"l2": 10_500}, default_memory="L3", engines=("cluster",), seconds=0.5)


@pytest.mark.parametrize("options", [Options(memory={"L1": 1000, "l2": 5000}, cores=4, engines=("npu", "cluster")), Options()])
def test_a_chip_has_the_less_of_what_options_and_the_topology_say(options: Options) -> None:
    little, much = Member({"l1": 500, "l2": 9000}, 2, ("cluster",)), Member({"l1": 2000}, 8, ("cluster", "npu", "other"))
    topology = Topology({}, members={1: little, 2: much, 3: Member()})
    assert own_options(options, topology, 0) == options
    found = [own_options(options, topology, chip) for chip in (1, 2, 3)]
    if options.cores is None:
        assert [(own.capacities, own.cores, own.engines) for own in found] == [
            (m.capacities, m.cores, m.engines) for m in (little, much, Member())
        ]
    else:
        assert [own.capacities for own in found] == [{"l1": 500, "l2": 5000}, {"l1": 1000, "l2": 5000}, {"l1": 1000, "l2": 5000}]
        assert [(own.cores, own.engines) for own in found] == [(2, ("cluster",)), (4, ("npu", "cluster")), (4, ("npu", "cluster"))]


@pytest.fixture(scope="module")
def three_convolutions(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Three convolutions, in int8, with more constants than ``LITTLE`` has memory for."""
    folder = tmp_path_factory.mktemp("chain")
    net = Net()
    x = net.x(1, 8, 8, 8)
    a = net.Relu(conv(net, x, 8, 16))
    b = net.Relu(conv(net, a, 16, 32))
    onnx.save(net.model([net.Relu(net.Add(conv(net, b, 32, 16), a))]), folder / "float.onnx")
    np.savez(folder / "calibration.npz", x0=np.random.default_rng(0).standard_normal((4, 8, 8, 8)).astype(np.float32))
    quantize_model(folder / "float.onnx", folder / "calibration.npz", folder / "int8.onnx")
    return rewrite_graph(import_model(folder / "int8.onnx"), SIRACUSA.passes)


@pytest.fixture(scope="module")
def costs(three_convolutions: Graph) -> PlannedStages:
    assert SIRACUSA.topology is not None
    return PlannedStages(three_convolutions, levels_of_graph(three_convolutions), SIRACUSA, LITTLE, SIRACUSA.topology)


@pytest.mark.slow
def test_what_does_not_fit_is_streamed_and_fits_where_it_is_cut(costs: PlannedStages) -> None:
    depth = costs.levels.depth
    assert sum(costs.levels.weights) > 10_500
    assert costs.overflow(0, 0, depth) > 0
    cuts = choose_cuts_by(costs.levels, 3, "parameters", costs)
    assert [costs.overflow(k, *part) for k, part in enumerate(stage_segments(cuts, depth))] == [0, 0, 0]
    assert max(costs.times(cuts)) < costs.stage(0, depth).cycles


@pytest.mark.slow
def test_the_best_of_all_cuts_is_found_without_planning_all_stages(costs: PlannedStages, three_convolutions: Graph) -> None:
    assert SIRACUSA.topology is not None
    depth = costs.levels.depth
    fresh = PlannedStages(three_convolutions, costs.levels, SIRACUSA, LITTLE, SIRACUSA.topology)
    found = choose_cuts_by(costs.levels, 3, "cycles", fresh)
    assert fresh.is_exact
    every = {cuts: max(costs.times(cuts)) for cuts in itertools.combinations(range(1, depth), 2)}
    assert max(fresh.times(found)) == min(every.values())
    assert len(fresh.planned) < len(costs.planned)
    for other in (balance.cut_by_layers(costs.levels, 3), balance.cut_by_parameters(costs.levels, 3).cuts):
        assert max(fresh.times(found)) <= every[other]


@pytest.mark.slow
def test_no_planned_stage_is_faster_than_its_bound(costs: PlannedStages) -> None:
    bounds = costs._bounded(0)
    for first, end in itertools.combinations(range(costs.levels.depth + 1), 2):
        assert 0.9 * bounds[first, end] <= costs.stage(first, end).cycles


def test_links_take_what_the_topology_says(costs: PlannedStages) -> None:
    assert SIRACUSA.topology is not None and SIRACUSA.timing is not None
    depth = costs.levels.depth
    times = costs.times((3,))
    moved = SIRACUSA.topology.seconds(0, 1, costs.levels.crossing[3], 2) * SIRACUSA.timing.mhz * 1e6
    assert times == pytest.approx([costs.stage(0, 3).cycles + moved, costs.stage(3, depth).cycles + moved])
    assert moved > costs.levels.crossing[3] * SIRACUSA.timing.mhz / 500  # the link gives 500 MB/s, and the first byte takes longer


def test_queues_and_what_is_forwarded_leave_less_memory(costs: PlannedStages) -> None:
    whole = costs._left(0, costs.levels.depth)
    assert whole.memories == SIRACUSA.memories
    middle = next(i for i in range(2, costs.levels.depth) if any(made < i - 1 and last > i for made, last, _ in costs._spans))
    queued = [max(size for made, last, size in costs._spans if made < border <= last) for border in (middle, middle + 1)]
    passed = sum(size for made, last, size in costs._spans if made < middle and last > middle)
    more = costs._left(middle, middle + 1).memory("L2").reserved - SIRACUSA.memory("L2").reserved
    assert passed > 0 and more == -(-2 * sum(queued) // 4096) * 4096 + passed


@pytest.mark.parametrize("strategy", ["layers", "parameters", "cycles"])
def test_a_pipeline_of_little_chips_computes_what_one_chip_does(three_convolutions: Graph, strategy: Balance) -> None:
    assert SIRACUSA.topology is not None
    found = plan_pipeline_stages(three_convolutions, SIRACUSA, 3, strategy, SIRACUSA.topology, LITTLE)
    check_system(found.system, SIRACUSA.topology)
    assert [note.split(":")[0] for note in found.system.notes] == ["stage 0", "stage 1", "stage 2"]
    assert tuple(constants_by_chip(found.system).values()) == found.constants
    whole = system_of_one(three_convolutions)
    one, many = chips.chip_programs(whole, SIRACUSA), chips.chip_programs(found.system, SIRACUSA)
    for image in np.random.default_rng(1).standard_normal((5, 1, 8, 8, 8)).astype(np.float32):
        assert np.array_equal(chips.system_outputs(whole, one, [image])[0], chips.system_outputs(found.system, many, [image])[0])


@pytest.mark.slow
def test_auto_takes_the_fewest_chips_that_keep_all_constants(three_convolutions: Graph, costs: PlannedStages) -> None:
    assert SIRACUSA.topology is not None
    found = plan_pipeline_stages(three_convolutions, SIRACUSA, "auto", "parameters", SIRACUSA.topology, LITTLE)
    count = len(found.system.chips)
    assert count > 1 and all(note.endswith(" 0 streamed") for note in found.system.notes)
    assert balance.cut_by_parameters(costs.levels, count - 1, costs.overflow).excess > 0


@pytest.mark.slow
def test_a_stage_that_fits_no_chip_is_named(three_convolutions: Graph) -> None:
    assert SIRACUSA.topology is not None
    near = Options(memory={"l2": 3_000}, engines=("cluster",))
    with pytest.raises(FitError, match=r"stage \d of 2, from node .*bytes of constants and does not fit a chip"):
        plan_pipeline_stages(three_convolutions, SIRACUSA, 2, "layers", SIRACUSA.topology, near)
    with pytest.raises(FitError, match=r"level \d+ of \d+, with .*, has \d+ bytes of constants, which no device can run"):
        plan_pipeline_stages(three_convolutions, SIRACUSA, 4, "cycles", SIRACUSA.topology, near)
    with pytest.raises(FitError, match="do not stay on the devices"):
        plan_pipeline_stages(three_convolutions, SIRACUSA, "auto", "cycles", SIRACUSA.topology, near)


def test_more_chips_than_levels_are_refused(three_convolutions: Graph) -> None:
    assert SIRACUSA.topology is not None
    with pytest.raises(UsageError, match="64 stages are more than"):
        plan_pipeline_stages(three_convolutions, SIRACUSA, 64, "cycles", SIRACUSA.topology, LITTLE)


def test_a_target_without_timing_counts_products(three_convolutions: Graph) -> None:
    assert GENERIC.topology is not None
    found = plan_pipeline_stages(three_convolutions, GENERIC, 3, "cycles", GENERIC.topology, Options())
    assert "does not say how long things take" in found.system.notes[0]
    assert len(found.system.chips) == 3
    assert plan_pipeline_stages(three_convolutions, GENERIC, 2, "parameters", GENERIC.topology, Options()).system.notes == ()


@pytest.mark.slow
def test_a_resnet_gains_more_than_it_takes_chips_where_constants_stop_streaming(tmp_path: Path) -> None:
    assert SIRACUSA.topology is not None
    graph = rewrite_graph(import_model(resnet.build(tmp_path, 40, 32)), SIRACUSA.passes)
    options = Options(default_memory="L3", engines=("cluster",))
    costs = PlannedStages(graph, levels_of_graph(graph), SIRACUSA, options, SIRACUSA.topology)
    one = costs.stage(0, costs.levels.depth)
    cuts = choose_cuts_by(costs.levels, 4, "cycles", costs)
    assert one.streamed > 2_000_000
    assert sum(costs.stage(*part).streamed for part in stage_segments(cuts, costs.levels.depth)) == 0
    assert one.cycles / max(costs.times(cuts)) > 4.2
