"""``--requantise engine``: layers that N-EUREKA requantises itself, within one step; what is said of them, and who refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy.cli import app
from deeploy.errors import UsageError
from deeploy.execution.simulation.requantised import measure_requantised
from deeploy.options import Options
from deeploy.planning.planner.requantise import requantise_graph, with_nearest
from deeploy.target import Target, load
from targets.siracusa.npu_kernels import KERNELS
from tests.models import save_graph

from .npu_networks import check, compile_layers, graph_of, kernels_of
from .test_npu_kernels import LAYERS
from .test_npu_sums import SUMS

SIRACUSA = load("siracusa")
ENGINES = {"npu": SIRACUSA.engine("npu")}
WIDE = 40  # channels of the network


def alone(has_sums: bool) -> Target:
    """Siracusa with N-EUREKA's kernels alone: those whose sums cores requantise, or those that requantise themselves."""
    return replace(SIRACUSA, kernels=tuple(k for k in KERNELS if (k.post_processing is not None) == has_sums and not k.resident))


@pytest.mark.slow
def test_layers_are_within_a_step_of_the_exact_ones_and_c_has_their_bits(tmp_path: Path) -> None:
    limited = [f"layer{number}" for number, layer in enumerate(SUMS) if layer.attrs["low"] not in (-128, 0)]
    assert len(limited) == 1 and requantise_graph(graph_of(SUMS), ENGINES, KERNELS)[1] == limited  # the engine has no such limits
    layers = [layer for layer in SUMS if layer.attrs["low"] in (-128, 0) and layer.attrs["epilogue"][-1] != "lookup"]
    exact, graph = compile_layers(layers, alone(True), Options(memory={"l1": 240_000})), graph_of(layers)
    changes, kept = requantise_graph(graph, ENGINES, KERNELS)
    assert (len(changes), kept) == (len(layers), [])
    made = compile_layers(with_nearest(graph, changes), alone(False), Options(memory={"l1": 240_000}))
    assert {kernel.post_processing for kernel in kernels_of(made)} == {None}
    check(made, layers, tmp_path)
    sample = [layer.x for layer in layers]
    shares = measure_requantised(made.network.program, changes, [sample])
    for change, want, got in zip(changes, exact.interpret(sample), made.interpret(sample), strict=True):
        far = np.abs(got.astype(np.int64) - want)
        found = shares[change.result]
        assert (found.differ, found.elements, found.largest) == ((far > 0).sum(), far.size, far.max()) and far.max() <= 1
        assert change.nearest.differ < 0.2 * change.nearest.inside
    assert sum(found.differ for found in shares.values()) > 0, "nothing is approximated"


def test_what_is_not_named_is_as_it_was() -> None:
    graph = graph_of(SUMS)
    first, *others = requantise_graph(graph, ENGINES, KERNELS)[0]
    changed = [node is not former for node, former in zip(with_nearest(graph, [first]).nodes, graph.nodes, strict=True)]
    assert others and changed == [node.outputs[0].name == first.result for node in graph.nodes]


def test_what_the_engine_computes_exactly_stays() -> None:
    layers = [layer for layer in LAYERS if layer.y != "s32"]
    assert requantise_graph(graph_of(layers), ENGINES, KERNELS) == ([], [])


def test_a_layer_of_which_one_step_cannot_be_kept_stays_exact() -> None:
    layer = next(layer for layer in SUMS if layer.op == "Conv")
    w, bias, mul, add = layer.constants
    apart = np.where(np.arange(mul.size) % 2 == 0, mul, mul >> 10).astype(np.int32)  # some channels are clipped nearly everywhere
    attrs = {**layer.attrs, "shift": layer.attrs["shift"] - 10}
    graph = graph_of([replace(layer, constants=(w, bias, apart, add >> 10), attrs=attrs)])
    own = ENGINES["npu"].requantiser
    assert own is not None
    common = replace(ENGINES["npu"], requantiser=replace(own, has_shifts=False))
    assert requantise_graph(graph, {"npu": common}, KERNELS) == ([], ["layer0"])
    changes, kept = requantise_graph(graph, ENGINES, KERNELS)  # shifts of their own help
    assert (len(changes), kept) == (1, [])


# ---- a network in QDQ form


@pytest.fixture(scope="module")
def quantised_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions of 1x1 and a product, all of them quantised with real scales."""
    random = np.random.default_rng(0)
    tensors: dict[str, Any] = {"zero": np.int8(3), "none": np.zeros(WIDE, np.int8)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s0", "zero"], ["q0"])]
    for k in range(3):
        tensors |= {f"s{k}": np.float32(0.0213 + 0.004 * k), f"ws{k}": random.uniform(0.002, 0.006, WIDE).astype(np.float32)}
        tensors[f"w{k}"] = random.integers(-100, 100, (WIDE, WIDE, 1, 1)).astype(np.int8)
        nodes.append(helper.make_node("DequantizeLinear", [f"q{k}", f"s{k}", "zero"], [f"d{k}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"w{k}", f"ws{k}", "none"], [f"wd{k}"], axis=0))
        nodes.append(helper.make_node("Conv", [f"d{k}", f"wd{k}"], [f"conv{k}"], name=f"layer{k}"))
        nodes.append(helper.make_node("QuantizeLinear", [f"conv{k}", f"s{k + 1}", "zero"], [f"q{k + 1}"]))
    tensors["s3"] = np.float32(0.041)
    nodes.append(helper.make_node("DequantizeLinear", ["q3", "s3", "zero"], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, WIDE, 12, 12]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(np.asarray(a), n) for n, a in tensors.items()])
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    save_graph(graph, path)
    np.savez(path.with_suffix(".npz"), x=random.normal(size=(1, WIDE, 12, 12)).astype(np.float32))
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.stdout, done.stderr


def test_compile_reports_shares_and_cycles(quantised_model: Path, tmp_path: Path) -> None:
    options = ("-t", "siracusa", "--requantise", "engine", "--inputs", quantised_model.with_suffix(".npz"))
    status, told, _ = run("compile", quantised_model, *options, "-o", tmp_path / "out")
    entry = json.loads((tmp_path / "out" / "deploy.json").read_text())
    found = entry["requantised"]
    assert status == 0 and [layer["engine"] for layer in found["layers"]] == ["npu"] * 3 and found["exact"] == []
    assert entry["cycles"] < 0.7 * found["cycles"] and all("_sums" not in call["kernel"] for call in entry["calls"])
    for layer in found["layers"]:
        assert 0 < layer["differ"] < layer["inside"] < layer["sums"] and 0 < layer["measured"] < 0.05
    cycles = [f"{count:,}".replace(",", " ") for count in (entry["cycles"], found["cycles"])]
    assert f"requantised by npu, within one step: 3 layers; {cycles[0]} cycles predicted, {cycles[1]} exactly" in told
    assert f"{found['layers'][0]['measured']:.3%}" in told
    assert "Requantised by engines" in (tmp_path / "out" / "report.html").read_text()


def test_the_default_is_exact(quantised_model: Path) -> None:
    made, engine = deeploy.compile(quantised_model, "siracusa"), deeploy.compile(quantised_model, "siracusa", requantise="engine")
    assert made.network.requantised is None and engine.network.requantised is not None
    by = engine.network.requantisation
    assert by is not None and [call.kernel.name for call in by.plan.program.calls] == [call.kernel.name for call in made.plan.program.calls]
    x = np.load(quantised_model.with_suffix(".npz"))["x"]
    np.testing.assert_array_equal(made.interpret([x])[0], deeploy.compile(quantised_model, "generic").interpret([x])[0])
    np.testing.assert_array_equal(engine.run([x])[0], engine.interpret([x])[0])
    assert 0 < (made.interpret([x])[0] != engine.interpret([x])[0]).mean() < 0.2


def test_layers_that_cores_run_are_exact(quantised_model: Path) -> None:
    made = deeploy.compile(quantised_model, "siracusa", requantise="engine", memory={"l1": 3000})
    by = made.network.requantisation
    assert by is not None
    engines = {call.node.outputs[0].name: call.kernel.engine for call in made.plan.program.calls}
    assert {engines[layer.result] for layer in by.layers} <= {"npu"}
    for call in made.plan.program.calls:
        if call.kernel.engine == "cluster" and "requantise" in call.node.epilogue:
            assert call.node.attrs["shift"] > 31


def test_verify_says_what_it_costs_and_gains(quantised_model: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra verify is not installed")
    status, told, notes = run(
        "verify", quantised_model, "-t", "siracusa", "--requantise", "engine", "--inputs", quantised_model.with_suffix(".npz")
    )
    assert status == 0 and "against interpreter: y: ok, 100.00% equal" in told
    assert "against onnxruntime, the exact network: y: ok" in told
    assert "requantised by npu, within one step: 3 layers;" in notes and "y beside that of the exact network:" in notes
    assert notes.count("layer") >= 4 and "outputs that differ" in notes


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("-t", "generic"), "--requantise engine needs an engine that requantises its sums itself: target generic has none"),
        (
            ("-t", "siracusa", "--engines", "cluster"),
            "--requantise engine needs an engine that requantises its sums itself: --engines leaves",
        ),
        (("-t", "siracusa", "--chips", "2"), "--requantise engine with --chips: layers stay exact there"),
        (("-t", "edgetpu"), "--requantise engine with a target for planning only: layers stay exact there"),
    ],
)
def test_who_has_no_such_engine_refuses_in_two_lines(quantised_model: Path, tmp_path: Path, options: tuple[str, ...], what: str) -> None:
    with pytest.raises(UsageError, match=what) as refused:
        CliRunner().invoke(
            app, ["compile", str(quantised_model), *options, "--requantise", "engine", "-o", str(tmp_path / "out")], catch_exceptions=False
        )
    assert refused.value.remedy and not (tmp_path / "out").exists()


def test_an_unknown_choice_is_refused(quantised_model: Path) -> None:
    unknown: Any = "nearest"
    with pytest.raises(UsageError, match='requantise="nearest" is unknown'):
        deeploy.compile(quantised_model, "siracusa", requantise=unknown)
