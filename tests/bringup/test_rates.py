"""Timings from what a machine measures of networks: rates are found again, and what is not known is never chosen for that."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy import cli
from deeploy.bringup.rates import Observed, fit_rates, observe_layers, write_rates
from deeploy.errors import UsageError
from deeploy.ir.target import ESTIMATE, load_timing
from deeploy.report.terminal import report_network
from deeploy.target import load
from tests.models import save_graph

TRUE = {"conv2d f32": (300, 1.5, 20), "matmul f32": (900, 4, 0), "add f32": (50, 0, 7)}


@pytest.fixture(scope="module")
def convolutions_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three convolutions of different sizes, an addition, and two products."""
    rng = np.random.default_rng(2)
    shapes = {"w0": (4, 3, 3, 3), "w1": (8, 4, 1, 1), "w2": (8, 8, 3, 3), "w3": (6, 10), "w4": (10, 3)}
    weights = [numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first"),
        helper.make_node("Conv", ["a", "w1"], ["b"], "second"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "third", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "c"], ["d"], "sum"),
        helper.make_node("MatMul", ["d", "w3"], ["e"], "product"),
        helper.make_node("MatMul", ["e", "w4"], ["y"], "last"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 3, 9, 8]), ("y", [1, 8, 7, 3]))]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    path = tmp_path_factory.mktemp("rates") / "layers.onnx"
    save_graph(graph, path)
    return path


def pretended(compiled: deeploy.Compiled) -> list[Observed]:
    """The layers with the cycles that they would take by ``TRUE``; others take 10 for each element."""
    names = [(call.name, 0) for call in compiled.plan.program.calls]
    layers = observe_layers(compiled.plan, names)
    rates = [TRUE.get(layer.kernel, (0, 0, 10)) for layer in layers]
    return [
        replace(layer, cycles=round(call + mac * layer.macs + output * layer.outputs))
        for layer, (call, mac, output) in zip(layers, rates, strict=True)
    ]


@pytest.mark.parametrize("name", ["generic", "cortex_m4"])
def test_predictions_are_what_was_measured(name: str, convolutions_model: Path, tmp_path: Path) -> None:
    target = load(name)
    layers = pretended(deeploy.compile(convolutions_model, target))
    rates = fit_rates(layers)
    (call, mac, output), got = TRUE["conv2d f32"], rates["conv2d f32"].rate
    assert (got.call, got.mac, got.output) == pytest.approx((call, mac, output), rel=0.02)
    assert rates[ESTIMATE].rate.mac >= max(rate.rate.mac for rate in rates.values())
    (tmp_path / "timing.toml").write_text(write_rates(target, rates, "a test", 50))
    assert tomllib.loads((tmp_path / "timing.toml").read_text())["machine"]["clock"]["mhz"] == 50
    compiled = deeploy.compile(convolutions_model, replace(target, timing=load_timing(tmp_path / "timing.toml")))
    assert [call.kernel.name for call in compiled.plan.program.calls] == [layer.kernel.split()[0] for layer in layers]
    compiled.write(tmp_path / "out")
    entry = deeploy.backend.project.read_manifest(tmp_path / "out")
    assert entry["cycles"] == pytest.approx(sum(layer.cycles for layer in layers), rel=0.01)
    assert entry["microseconds"] == pytest.approx(entry["cycles"] / 50, rel=1e-3)
    assert "at 50 MHz" in report_network(entry) and "MAC/cycle" in (tmp_path / "out" / "report.html").read_text()
    said = CliRunner().invoke(cli.app, ["explain", str(tmp_path / "out"), "third"])
    assert said.exit_code == 0 and "cycles" in said.output, said.output


def test_a_timing_of_another_machine_is_refused(convolutions_model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(
        write_rates(load("generic"), fit_rates(pretended(deeploy.compile(convolutions_model, "generic"))), "a test", 50)
    )
    options = [str(convolutions_model), "--timing", str(tmp_path / "t.toml"), "-o", str(tmp_path / "out")]
    said = CliRunner().invoke(cli.app, ["compile", *options, "-t", "siracusa"])
    assert isinstance(said.exception, UsageError) and "no cycles of" in said.exception.what
    assert CliRunner().invoke(cli.app, ["compile", *options, "-t", "cortex_m4"]).exit_code == 0
    several = CliRunner().invoke(
        cli.app, ["calibrate", str(convolutions_model), "-t", "siracusa", "--board", "b", "-o", str(tmp_path / "s.toml")]
    )
    assert isinstance(several.exception, UsageError) and "several memories" in several.exception.what
    assert not (tmp_path / "s.toml").exists()


def test_estimates_are_called_so_and_choose_no_kernel(convolutions_model: Path, tmp_path: Path) -> None:
    target = replace(load("cortex_m4"), timing=None)
    layers = pretended(deeploy.compile(convolutions_model, target))
    slowest = {rate.kernel: rate for rate in layers}["conv2d f32"]
    rates = fit_rates(
        [*layers, *(replace(slowest, kernel=f"{kernel.name} f32", cycles=1) for kernel in target.kernels if kernel.op == "Conv")]
    )
    (tmp_path / "timing.toml").write_text(write_rates(target, rates, "a test", 50, is_estimate=True))
    timing = load_timing(tmp_path / "timing.toml")
    assert timing.is_estimate and all(rate.is_estimate for rate in timing.kernels.values())
    options = [str(convolutions_model), "-t", "cortex_m4", "--timing", str(tmp_path / "timing.toml"), "-o", str(tmp_path / "out")]
    said = CliRunner().invoke(cli.app, ["compile", *options])
    assert said.exit_code == 0 and "at 50 MHz, an estimate from instructions" in said.output, said.output
    entry = deeploy.backend.project.read_manifest(tmp_path / "out")
    assert [call["kernel"] for call in entry["calls"]] == [layer.kernel.split()[0] for layer in layers]
    assert entry["is_estimate"] and entry["cycles"] > 0 and entry["prediction"] is None
    for command, *further in (("report",), ("explain", "third")):
        said = CliRunner().invoke(cli.app, [command, str(tmp_path / "out"), *further])
        assert said.exit_code == 0 and "cycles" in said.output, said.output


def test_few_layers_of_a_kernel_say_nothing_of_its_call() -> None:
    layers = [Observed("a", 10.0 * n, 5.0 * n, 100 * n + 1000) for n in (1, 2, 3, 4)]
    rates = fit_rates([*layers, Observed("b", 1000.0, 10.0, 50_000), Observed("c", 0.0, 10.0, 20_000)])
    assert rates["a"].rate.call == pytest.approx(1000, rel=0.01)
    assert rates["b"].rate.call == rates["c"].rate.call == 0
    assert rates[ESTIMATE].rate.call == 0 and rates[ESTIMATE].rate.output >= rates["c"].rate.output
