"""Streams are calibrated and judged as sequences: ranges of states are those that they have, and the figure is what a user sees."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import deeploy
from deeploy.cli import app
from deeploy.errors import UsageError
from deeploy.frontend.states import same_name
from deeploy.quantization.losses import compare_networks
from deeploy.quantization.static import read_source, write_quantised
from tests.models import Net
from tests.quantization.networks import decibel, node, outputs_of, save

RANDOM = np.random.default_rng(17)
WEIGHTS = RANDOM.normal(size=(6, 3))
STEPS = [{"x": RANDOM.normal(3, 1, (1, 6)).astype(np.float32), "mean": np.zeros((1, 6), np.float32)} for _ in range(40)]


def stream(path: Path, after: str = "meanN") -> Path:
    """What differs from a mean that runs over about fifty steps."""
    nodes = [
        node("Mul", "mean slow", "old"),
        node("Mul", "x fast", "fresh"),
        node("Add", "old fresh", after),
        node("Sub", f"x {after}", "apart"),
        node("Gemm", "apart w b", "y"),
    ]
    ports = {"x": (1, 6), "mean": (1, 6)}, {"y": (1, 3), after: (1, 6)}
    constants = {"slow": np.array([0.98]), "fast": np.array([0.02]), "w": WEIGHTS, "b": np.zeros(3)}
    return save(path, nodes, *ports, constants)


@pytest.mark.parametrize("arrays", [("x",), ("x", "mean")], ids=["states are absent", "states are zeros"])
def test_a_sequence_keeps_what_the_figure_says(arrays: tuple[str, ...], tmp_path: Path) -> None:
    model = stream(tmp_path / "f.onnx")
    np.savez(tmp_path / "c.npz", **{name: np.stack([step[name] for step in STEPS[:24]]) for name in arrays})
    source = read_source(model, tmp_path / "c.npz", {}, {})
    assert dict(source.states) == {"mean": "meanN"} and len(source.samples) % 24 == 0 and len(source.samples) > 64
    assert np.array_equal(source.samples[1]["mean"], outputs_of(model, STEPS[:1])[0][1])
    write_quantised(source, tmp_path / "q.onnx")
    found = compare_networks(source, tmp_path / "q.onnx")
    assert found.is_sequence and found.signal_to_noise > 25
    right, got = (outputs_of(path, STEPS, source.states) for path in (model, tmp_path / "q.onnx"))
    fresh = decibel(*(np.stack([step[0] for step in steps]) for steps in (got, right)))
    assert fresh > found.signal_to_noise - 3
    if "mean" in arrays:
        assert len(read_source(model, tmp_path / "c.npz", {}, {}, {}).samples) == 24
    deeploy.compile(tmp_path / "q.onnx", "siracusa", states=source.states)


def test_states_that_names_do_not_tell_are_declared(tmp_path: Path) -> None:
    model = stream(tmp_path / "f.onnx", "other")
    np.savez(tmp_path / "c.npz", x=np.stack([step["x"] for step in STEPS]), mean=np.zeros((40, 1, 6)))
    assert not read_source(model, tmp_path / "c.npz", {}, {}).states
    command = ["quantize", str(model), "--calibrate", str(tmp_path / "c.npz"), "-o", str(tmp_path / "q.onnx"), "--state"]
    told = json.loads(CliRunner().invoke(app, [*command, "mean=other", "--json"]).stdout)
    assert told["states"] == {"mean": "other"} and told["is_sequence"] and told["signal_to_noise"] > 25
    assert "a sequence of" in CliRunner().invoke(app, [*command, "mean=other"]).stdout
    assert "40 samples" in CliRunner().invoke(app, [*command, "none"]).stdout
    for given, problem in (("m=other", "no input m"), ("mean=z", "no output z"), ("mean=y", "the shapes"), ("mean", "NAME=VALUE")):
        failed = CliRunner().invoke(app, [*command, given]).exception
        assert isinstance(failed, UsageError) and problem in failed.what


@pytest.mark.parametrize(
    ("inputs", "outputs", "pairs"),
    [
        ("x c0_in c1_in", "y c0_out c1_out", "c0_in=c0_out c1_in=c1_out"),
        ("x s", "y sn", "s=sn"),
        ("input state", "output stateN", "state=stateN"),
        ("x h0 c0", "y hn cn", "h0=hn c0=cn"),
        ("x h_0 c_0", "y h_1 c_1", "h_0=h_1 c_0=c_1"),
        ("x cache", "y new_cache", "cache=new_cache"),
        ("x prevState", "y state", "prevState=state"),
        ("x input_states", "y output_states", "input_states=output_states"),
        ("x past_k past_v", "y present_k present_v", "past_k=present_k past_v=present_v"),
        ("input", "output", ""),
        ("x", "y", ""),
        ("x h_in", "y h_out h_new", ""),
    ],
)
def test_names_of_states(inputs: str, outputs: str, pairs: str) -> None:
    assert same_name(inputs.split(), outputs.split()) == dict(pair.split("=") for pair in pairs.split())


def test_a_network_of_states_alone_has_none(tmp_path: Path) -> None:
    model = save(tmp_path / "f.onnx", [node("Tanh", "x_in", "x_out")], {"x_in": (1, 4)}, {"x_out": (1, 4)}, {})
    np.savez(tmp_path / "c.npz", x_in=RANDOM.normal(size=(5, 1, 4)))
    assert len(read_source(model, tmp_path / "c.npz", {}, {}).samples) == 5


def test_recurrent_layers_that_stream_have_scales_for_the_whole_recording(tmp_path: Path) -> None:
    n = Net()  # a GRU that comes nearer to 0.96 by an eighth in every step, with windows of six steps
    steps = n.Transpose(n.x(1, 1, 6), perm=[2, 0, 1])
    w, r, b = (n.c(np.array(values, np.float32)) for values in ([[[0], [0], [2]]], np.zeros((1, 3, 1)), [[2, 0, 0, 0, 0, 0]]))
    y = n.node("GRU", (steps, w, r, b), 2, hidden_size=1, linear_before_reset=1)[0]
    model = n.save(tmp_path / "m.onnx", n.Squeeze(y, n.i(1)))
    windows, last = np.ones((8, 1, 1, 6), np.float32), {}
    for stream in (None, "x0.2"):
        deeploy.quantize(str(model), {"x0": windows}, tmp_path / "q.onnx", stream=stream)
        compiled = deeploy.compile(tmp_path / "q.onnx", stream="x0.2=6", certify=False)
        last[stream] = float(compiled.interpret_sequence([[window] for window in windows])[-1][0].ravel()[-1])
    assert last[None] < 0.6  # it has no number for what no window shows
    assert last["x0.2"] == pytest.approx(np.tanh(2), abs=0.02)


def test_samples_are_windows_of_an_input_that_is_there(tmp_path: Path) -> None:
    n = Net()
    model = n.save(tmp_path / "m.onnx", n.Relu(n.x(1, 1, 6)))
    with pytest.raises(UsageError, match=r"stream=\"y\.2\": the model has no input y\nIts inputs: x0\."):
        deeploy.quantize(str(model), {"x0": np.ones((2, 1, 1, 6), np.float32)}, tmp_path / "q.onnx", stream="y.2")
