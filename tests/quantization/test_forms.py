"""Forms of quantisation: what a form promises holds in the file, and the one that is chosen is the fastest that loses little."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy.cli import app
from deeploy.errors import UnsupportedError, UsageError
from deeploy.options import Options
from deeploy.quantization.form import Form
from deeploy.quantization.forms import FORMS, Trial, choose_trial, quantize_for
from deeploy.quantization.losses import class_agreement, signal_to_noise
from deeploy.quantization.static import quantize_model
from deeploy.target import load
from tests.models import save_graph

RANDOM = np.random.default_rng(3)


@pytest.fixture(scope="module")
def float_network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A convolution, a Relu and a product of floats; and samples."""
    folder = tmp_path_factory.mktemp("float")
    weights = {"w": RANDOM.normal(size=(8, 4, 3, 3)), "v": RANDOM.normal(size=(8 * 36, 10))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Flatten", ["r"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "v"], ["y"], "product"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()],
    )
    save_graph(graph, folder / "float.onnx")
    np.savez(folder / "samples.npz", x=RANDOM.uniform(-1, 2, size=(6, 4, 6, 6)).astype(np.float32))
    return folder / "float.onnx", folder / "samples.npz"


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_form_is_what_it_says(form: Form, float_network: tuple[Path, Path], tmp_path: Path) -> None:
    quantize_model(*float_network, tmp_path / "q.onnx", form)
    model = onnx.load(tmp_path / "q.onnx")
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    activations = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert len(activations) >= 3
    assert {values[node.input[2]].dtype for node in activations} == {np.dtype(form.activations)}
    middle = 128 if form.activations == "uint8" else 0
    assert ({int(values[node.input[2]]) for node in activations} == {middle}) is form.symmetric
    scales = [values[node.input[1]] for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    weights = [values[node.input[1]] for node in model.graph.node if node.input[0] == "w_quantized"]
    assert {scale.size for scale in weights} == {8 if form.per_channel else 1}
    assert all(np.array_equal(np.exp2(np.rint(np.log2(scale))), scale) for scale in scales) is form.powers


def test_the_form_that_is_written_is_the_fastest_that_loses_little(float_network: tuple[Path, Path], tmp_path: Path) -> None:
    tried: list[str] = []
    trials, best = quantize_for(load("siracusa"), *float_network, tmp_path / "q.onnx", 6.0, Options(), on_form=tried.append)
    assert tried == [str(form) for form in FORMS] == [str(trial.form) for trial in trials]
    assert all(not trial.refused and trial.cycles > 0 and 10 < trial.signal_to_noise < 80 for trial in trials)
    most = max(trial.signal_to_noise for trial in trials)
    assert best.signal_to_noise >= most - 6
    assert not any(trial.cycles < best.cycles for trial in trials if trial.signal_to_noise >= most - 6)
    run = deeploy.compile(tmp_path / "q.onnx", "siracusa").network.predicted
    assert run is not None and round(run.cycles) == best.cycles


def test_choices() -> None:
    trials = [
        Trial(Form(), 100, 40.0),
        Trial(Form(symmetric=True), 80, 37.0),
        Trial(Form(powers=True), 60, 30.0),
        Trial(Form(per_channel=False), refused="no kernel"),
    ]
    assert [choose_trial(trials, loss) for loss in (0, 2.9, 3, 10)] == [trials[0], trials[0], trials[1], trials[2]]
    assert choose_trial(trials[3:], 3) is None
    assert trials[3].contents() == {"form": "int8, per tensor", "refused": "no kernel"}


def test_measures() -> None:
    expected = [np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([1, 2])]
    got = [np.array([[3.0, 4.0], [0.0, 1.0]]), np.array([5, 6])]
    assert signal_to_noise(got, expected) == pytest.approx(10 * np.log10(26 / 2))
    assert class_agreement(got, expected) == 0.5
    assert class_agreement([np.ones((3, 1))], [np.ones((3, 1))]) is None
    assert signal_to_noise(expected, expected) == 200


def test_outputs_of_one_number_have_no_largest_element() -> None:
    assert class_agreement([np.zeros(6)], [np.ones(6)]) is None


def test_a_float_model_that_onnxruntime_cannot_run(float_network: tuple[Path, Path], tmp_path: Path) -> None:
    model = onnx.load(float_network[0])
    model.graph.node[1].domain, model.graph.node[1].op_type = "own", "Unknown"
    model.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(model, tmp_path / "float.onnx")
    with pytest.raises(UnsupportedError, match="an operator is unknown: Unknown of the domain 'own'"):
        quantize_for(load("siracusa"), tmp_path / "float.onnx", float_network[1], tmp_path / "q.onnx", 3.0, Options())
    assert [path.name for path in tmp_path.iterdir()] == ["float.onnx"]


def test_an_output_that_cannot_be_written_is_said_at_once(float_network: tuple[Path, Path], tmp_path: Path) -> None:
    tried: list[str] = []
    for output in (tmp_path, tmp_path / "absent" / "q.onnx"):
        with pytest.raises(UsageError, match="cannot write"):
            quantize_for(load("siracusa"), *float_network, output, 3.0, Options(), on_form=tried.append)
    assert not tried


@pytest.mark.slow
def test_the_command(float_network: tuple[Path, Path], tmp_path: Path) -> None:
    command = ["quantize", str(float_network[0]), "--calibrate", str(float_network[1]), "-o", str(tmp_path / "q.onnx")]
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert (told["output"], told["form"], told["samples"]) == (str(tmp_path / "q.onnx"), "int8, per channel", 6)
    assert [layer["node"] for layer in told["layers"]] == ["product", "relu", "flatten"] and 10 < told["signal_to_noise"] < 80
    result = CliRunner().invoke(app, [*command, "--for", "siracusa", "--engines", "cluster"])
    lines = result.stdout.splitlines()
    assert result.exit_code == 0 and len(lines) == 2 + len(FORMS) and sum("chosen" in line for line in lines) == 1
    told = json.loads(CliRunner().invoke(app, [*command, "--for", "siracusa", "--engines", "cluster", "--json"]).stdout)
    assert told["chosen"] in next(line for line in lines if "chosen" in line)
    for more, problem in (
        (["--for", "generic"], "has no timing"),
        (["--for", "siracusa", "--per-tensor"], "--per-tensor with --for"),
        (["--for", "siracusa", "--method", "entropy"], "--method with --for"),
        (["--method", "guess"], "--method guess is unknown"),
        (["--keep", "conv", "--int16", "absent"], "--int16 absent: the model has no such node"),
        (["--for", "siracusa", "--loss", "-1"], "--loss -1"),
    ):
        failed = CliRunner().invoke(app, [*command, *more]).exception
        assert isinstance(failed, UsageError) and problem in failed.what
