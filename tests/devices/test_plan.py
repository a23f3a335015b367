"""Plans for devices without code: layers of float and int8 networks, stages, devices that differ, and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import pytest

from deeploy.devices.layers import read_layers
from deeploy.devices.plan import plan_devices
from deeploy.errors import FitError, UsageError
from deeploy.frontend import import_model
from deeploy.ir.rewriting import rewrite_graph
from deeploy.ir.topology import Member
from deeploy.ir.values import Graph
from deeploy.options import Balance, Options
from deeploy.quantization.static import quantize_model
from deeploy.target import load
from tests.command import deeploy_cli
from tests.models import Net, conv

EDGETPU = load("edgetpu")


def saved(folder: Path) -> Path:
    """Convolutions with a residual path, one of them with a normalisation behind it."""
    net = Net()
    a = net.Relu(conv(net, net.x(1, 8, 8, 8), 8, 16))
    scaled = net.BatchNormalization(conv(net, a, 16, 32, bias=False), *(net.w(32) for _ in range(3)), net.c(np.ones(32, np.float32)))
    b = net.Relu(scaled)
    onnx.save(net.model([net.Relu(net.Add(conv(net, b, 32, 16), a))]), folder / "float.onnx")
    np.savez(folder / "calibration.npz", x0=np.random.default_rng(0).standard_normal((4, 8, 8, 8)).astype(np.float32))
    quantize_model(folder / "float.onnx", folder / "calibration.npz", folder / "int8.onnx")
    return folder


def lower_for_device(file: Path) -> Graph:
    return rewrite_graph(import_model(file), EDGETPU.passes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("devices"))


@pytest.fixture(scope="module")
def lowered_graph(folder: Path) -> Graph:
    return lower_for_device(folder / "int8.onnx")


def test_a_float_network_and_its_int8_form_have_the_same_products_and_constants(folder: Path, lowered_graph: Graph) -> None:
    products = [
        [item for item in read_layers(g, EDGETPU.kernels).items if item.loops]
        for g in (lower_for_device(folder / "float.onnx"), lowered_graph)
    ]
    for found in products:
        assert [item.macs for item in found] == [9 * 64 * a * b for a, b in ((8, 16), (16, 32), (32, 16))]
        assert [item.weights for item in found] == [9 * a * b + 4 * b for a, b in ((8, 16), (16, 32), (32, 16))]
    assert read_layers(lowered_graph, EDGETPU.kernels).given == 8 * 8 * 8


@pytest.mark.parametrize("balance", get_args(Balance))
def test_stages_hold_all_constants_once_and_no_strategy_beats_cycles(lowered_graph: Graph, balance: Balance) -> None:
    plan = plan_devices(lowered_graph, EDGETPU, 3, balance, Options()).contents()
    best = plan_devices(lowered_graph, EDGETPU, 3, "cycles", Options()).contents()
    one = plan["one_device"]
    assert sum(stage["held"] for stage in plan["stages"]) == one["held"] and plan["host"] == one["host"] == 0
    assert plan["slowest_ms"] == max(stage["ms"] for stage in plan["stages"]) >= best["slowest_ms"]
    assert sum(stage["layers"] for stage in plan["stages"]) == plan["layers"]
    for stage in plan["stages"]:
        assert stage["ms"] == pytest.approx(sum(stage["ms_of"].values()), abs=2e-4)
        assert stage["idle"] == pytest.approx(1 - stage["ms"] / plan["slowest_ms"], abs=2e-3)
    assert all(a["returned"] == b["given"] for a, b in zip(plan["stages"], plan["stages"][1:], strict=False))


def test_a_device_with_less_memory_is_given_less(lowered_graph: Graph) -> None:
    for member, sizes in ((Member({"device": 7_000}), (4_672, 27_840)), (Member({"device": 19_000}), (14_016, 18_496))):
        stage = int(sizes[0] > 7_000)
        plan = plan_devices(lowered_graph, EDGETPU, 2, "cycles", Options(memory={"device": 28_000}), {stage: member}).contents()
        assert plan["stages"][stage]["memory"] == member.capacities["device"] and plan["stages"][1 - stage]["memory"] == 28_000
        assert tuple(stage["held"] for stage in plan["stages"]) == sizes and plan["host"] == 0


def test_a_layer_larger_than_a_device_lies_with_the_host_and_is_named(lowered_graph: Graph) -> None:
    plan = plan_devices(lowered_graph, EDGETPU, 3, "parameters", Options(memory={"device": 5_000}))
    assert plan.contents()["host"] == 9_344 + 18_496
    assert sum("more than a device" in note for note in plan.notes) == 2
    with pytest.raises(FitError, match="do not stay on the devices"):
        plan_devices(lowered_graph, EDGETPU, "auto", "parameters", Options(memory={"device": 5_000}))
    assert len(plan_devices(lowered_graph, EDGETPU, "auto", "parameters", Options(memory={"device": 19_000})).parts) == 2


def test_what_a_device_does_not_have_is_refused(lowered_graph: Graph) -> None:
    for options, members, what in (
        (Options(memory={"l2": 5}), {}, "has no memory l2"),
        (Options(memory={"device": 10**9}), {}, "has 8110080 bytes"),
        (Options(cores=4), {}, "one flat memory and one core"),
        (Options(), {1: Member(cores=4)}, "chip 1: .* neither cores nor engines"),
    ):
        with pytest.raises(UsageError, match=what):
            plan_devices(lowered_graph, EDGETPU, 2, "cycles", options, members)
    with pytest.raises(UsageError, match="99 stages are more than"):
        plan_devices(lowered_graph, EDGETPU, 99, "cycles", Options())


@pytest.mark.slow
def test_the_command_line_plans_and_says_that_no_code_is_made(folder: Path) -> None:
    out, cut = folder / "out", ("--chips", "2", "--partition", "pipeline", "--balance", "parameters")
    result = deeploy_cli("compile", folder / "int8.onnx", "-t", "edgetpu", *cut, "-o", out)
    assert result.returncode == 0, result.stderr
    assert "no code is made" in result.stdout and "2 x edgetpu, cut by parameters" in result.stdout
    plan = json.loads((out / "plan.json").read_text())
    assert sorted(path.name for path in out.iterdir()) == ["deeploy.toml", "plan.json"] and len(plan["stages"]) == 2
    assert json.loads(deeploy_cli("report", out, "--json").stdout) == plan
    single = deeploy_cli("compile", folder / "int8.onnx", "-t", "edgetpu", "-o", out)
    assert single.returncode == 0 and "1 x edgetpu" in single.stdout
    for command, what in (
        (("run", out, "--inputs", folder / "calibration.npz"), "is a plan for target edgetpu, for which no code is made"),
        (("verify", folder / "int8.onnx", "-t", "edgetpu"), "for planning only: no code is made for it"),
        (("compile", folder / "int8.onnx", "-t", "edgetpu", "--chips", "2", "-o", out), "for planning pipelines only"),
    ):
        refused = deeploy_cli(*command)
        assert refused.returncode == 2 and what in refused.stderr and len(refused.stderr.splitlines()) == 2
