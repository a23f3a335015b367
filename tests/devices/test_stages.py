"""Devices that are only planned for, and the study of the networks that they were measured with."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.networks import fit_edgetpu, paper, summary
from deeploy.devices.stages import DeviceStages, seconds_per_input
from deeploy.errors import TargetError
from deeploy.ir.device import Device, load_device
from deeploy.partition import balance
from deeploy.partition.balance_levels import BalancedLayer, levels_of, stage_segments, stage_sizes

EDGETPU = Path(__file__).parents[2] / "targets" / "edgetpu" / "device.toml"
MIB = paper.MIB


def chain(*weights: int) -> list[BalancedLayer]:
    return [BalancedLayer(f"l{i}", (i - 1,), weight, 10) for i, weight in enumerate(weights)]


def stages_of(network: summary.Summary) -> DeviceStages:
    layers = network.layers()
    return DeviceStages(levels_of(layers, network.input_bytes), layers, [i.loops for i in network.items], load_device(EDGETPU))


def test_layers_get_room_in_their_order_and_as_a_whole() -> None:
    layers = chain(60, 50, 30, 10, 1)
    stages = DeviceStages(levels_of(layers, 5), layers, [()] * 5, Device(100, 1, byte=1.0, fetch=1000.0))
    use = stages.use(0, 5)
    assert (use.held, use.fetched, use.fetches) == (60 + 30 + 10, 50 + 1, 2)
    assert stages.seconds(0, 5) == 51 + 2000 + 5 + 10
    assert stages.seconds(1, 3) == 10 + 10  # what a device holds takes no time
    assert [stages.overflow(0, 0, end) for end in (1, 2, 3)] == [0, 50, 50]
    assert np.isinf(stages.table()[2, 2]) and stages.table()[1, 3] == stages.seconds(1, 3)


def test_layers_fill_up_tiles_of_the_array() -> None:
    device = Device(10**9, 64, step=1.0)
    dense, depthwise = (1, 65, 3, 7, 5, 3, 3), (96, 1, 1, 7, 5, 3, 3)
    assert device.stored(65 * 27 + 4 * 65, dense) == 128 * 3 * 9 + 4 * 65
    assert device.steps(dense) == 2 * 1 * (35 + 64)  # 65 results in two columns of tiles, 27 products in one row of them
    assert device.steps((1, 64, 8, 7, 5, 3, 3)) == 1 * 2 * (35 + 64)
    assert device.steps(depthwise) == 2 * 9 * (35 + 64)
    assert device.stored(96 * 9 + 4 * 96, depthwise) == 128 * 9 + 4 * 96
    assert (device.stored(96, ()), device.steps(())) == (96, 0)


def test_a_batch_fills_and_drains_the_pipeline_once() -> None:
    assert seconds_per_input([1.0, 3.0, 2.0], 15) == (6 + 14 * 3) / 15
    assert seconds_per_input([4.0], 15) == 4.0


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[memory]\nbytes = 1\n", "time is missing"),
        ('[memory]\nbytes = 1\nprovenance = "x"\n[time]\nprovenance = "x"\n', "memory.filters is missing"),
    ],
)
def test_a_device_without_figures_or_their_origin_is_refused(tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "device.toml"
    file.write_text(text)
    with pytest.raises(TargetError, match=what):
        load_device(file)


@pytest.mark.parametrize("filters", paper.SYNTHETIC_MEMORY)
def test_every_row_of_table_2_has_as_much_with_the_host_as_the_paper_says(filters: int) -> None:
    costs = stages_of(summary.synthetic(filters))
    assert costs.use(0, 5).fetched / MIB == pytest.approx(paper.SYNTHETIC_MEMORY[filters][1], abs=0.1)


@pytest.mark.parametrize("name", paper.NETWORKS)
def test_networks_have_the_parameters_and_products_of_table_1(name: str) -> None:
    network, row = summary.load(name), paper.NETWORKS[name]
    assert network.parameters / 1e6 == pytest.approx(row.parameters, rel=0.01)
    assert network.macs / 1e6 == pytest.approx(row.macs, rel=0.003)
    constants = sum(item.constants for item in network.items)
    assert 0.98 * network.parameters < constants <= network.parameters  # normalisations are folded


@pytest.mark.parametrize("name", paper.NETWORKS)
def test_balanced_networks_need_no_host_and_the_exact_cut_is_no_slower(name: str) -> None:
    costs, devices = stages_of(summary.load(name)), paper.NETWORKS[name].devices
    balanced = balance.cut_by_parameters(costs.levels, devices, costs.overflow)
    assert balanced.excess == 0
    tables = costs.tables(devices)
    exact = balance.slowest_stage(tables, balance.cut_by_cycles(costs.levels, tables))
    assert exact <= balance.slowest_stage(tables, balanced.cuts)
    assert exact <= balance.slowest_stage(tables, balance.cut_by_layers(costs.levels, devices))
    assert max(stage_sizes(costs.levels, balanced.cuts)) < 8 * MIB
    assert costs.overflow(0, 0, costs.levels.depth) > MIB


def test_the_synthetic_network_is_cut_as_the_paper_says() -> None:
    costs = stages_of(summary.synthetic(602))
    assert balance.cut_by_layers(costs.levels, 4) == balance.cut_by_vendor(costs.levels, 4) == (1, 2, 3)
    assert balance.cut_by_parameters(costs.levels, 4, costs.overflow).cuts == (2, 3, 4)
    assert balance.cut_by_profile(costs.levels, costs.tables(4)) == (2, 3, 4)


@pytest.mark.parametrize("name", ["ResNet101", "ResNet101V2", "ResNet152", "ResNet152V2", "InceptionResNetV2"])
def test_the_vendors_split_leaves_as_much_with_the_host_as_in_the_paper(name: str) -> None:
    costs, row = stages_of(summary.load(name)), paper.NETWORKS[name]
    parts = stage_segments(balance.cut_by_vendor(costs.levels, row.devices), costs.levels.depth)
    hosts = [costs.use(*part).fetched / MIB for part in parts]
    assert sum(hosts) == hosts[-1] == pytest.approx(row.vendor_host, rel=0.08)  # all in the last stage


def test_one_device_rules_out_that_constants_that_it_holds_take_time() -> None:
    found = fit_edgetpu.fit()
    possible = {candidate.terms: candidate.is_possible for candidate in fit_edgetpu.candidates(found.rows, found.seconds)}
    assert possible[fit_edgetpu.CHOSEN] and not possible["slots", "constants", "fetches"]
    assert fit_edgetpu.features_alone(found.networks[1], found.device)["steps"] == sum(
        found.device.steps(item.loops) for item in found.networks[1].items
    )
    assert (found.device.step, found.device.byte, found.device.fetch) == pytest.approx(
        (load_device(EDGETPU).step, load_device(EDGETPU).byte, load_device(EDGETPU).fetch), rel=1e-3
    )


def test_summaries_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = summary.load("ResNet50")
    text = (summary.FOLDER / "ResNet50.json").read_text()
    monkeypatch.setattr(summary, "FOLDER", tmp_path)
    summary.save(network)
    assert (tmp_path / "ResNet50.json").read_text() == text
    assert math.prod(network.items[1].loops) == network.items[1].macs == 118013952  # 64 filters of 7 x 7 x 3 on 112 x 112
