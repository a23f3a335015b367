"""Streams: what calls give one after the other is what the lengthened network gives on the whole recording, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import deeploy
from deeploy.certify import CertificateError
from deeploy.driver import streams
from deeploy.driver.project import CompiledProject
from deeploy.driver.verify import verify_compiled
from deeploy.errors import UnsupportedError, UsageError
from deeploy.execution.verification.compare import EXPLAINED
from deeploy.planning.binding import assemble
from deeploy.report.markup import text
from deeploy.report.sections import stream_section
from deeploy.report.terminal import report_network
from deeploy.report.text import format_number, stream_lines
from tests.models import Net, model_of, node, ports
from tests.streamed_networks import NETWORKS, quantise_network, random_network, save_network, silero


def compare_calls(compiled: CompiledProject, calls: int, is_float: bool) -> int:
    """Compare what calls give, as NumPy computes it, with both references; returns how many elements other than zero there are."""
    streamed, program = compiled.network.streamed, compiled.network.program
    assert streamed is not None
    buffer, rng = program.buffers[program.inputs[0]], np.random.default_rng(0)
    floats = buffer.dtype.is_float
    hops = [
        rng.normal(size=buffer.shape).astype(np.float32) if floats else rng.integers(-128, 128, buffer.shape).astype(buffer.dtype.numpy)
        for _ in range(calls)
    ]
    got = [np.stack(arrays) for arrays in zip(*compiled.interpret_sequence([[hop] for hop in hops]), strict=True)]
    wanted = streams.find_expected(streamed, hops, got, streams.run_references(compiled.plan.target))
    for a, b in zip(got, wanted, strict=True):
        assert np.allclose(a, b, atol=2e-6) if is_float else np.array_equal(a, b)
    for a, b in zip(got, streams.find_expected(streamed, hops, got, streams.run_onnxruntime), strict=True):
        assert np.allclose(a, b, atol=2e-5) if is_float else np.mean(a == b) > 0.9
    return sum(np.count_nonzero(array) for array in got)


def divide_products(compiled: CompiledProject) -> float:
    """Products of a call beside the least."""
    assert compiled.network.streamed is not None
    stream = compiled.network.streamed.stream
    return stream.products / stream.least_products


@pytest.mark.parametrize("hop", ["", "=8", "=3"])
@pytest.mark.parametrize("is_float", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_calls_give_what_the_lengthened_network_does(tmp_path: Path, name: str, is_float: bool, hop: str) -> None:
    path = save_network(name, tmp_path / "m.onnx")
    path = path if is_float else quantise_network(path, tmp_path / "q.onnx")
    compiled = deeploy.compile(path, stream=NETWORKS[name][1] + hop, certify=False)
    assert compare_calls(compiled, 16 if hop == "=8" else 40, is_float) > 20
    assert divide_products(compiled) == 1


@pytest.mark.parametrize(("hop", "calls"), [(64, 12), (24, 40), (16, 40)])
def test_a_voice_detector_streams(tmp_path: Path, hop: int, calls: int) -> None:
    n = Net()
    path = quantise_network(n.save(tmp_path / "m.onnx", *silero(n)), tmp_path / "q.onnx")
    compiled = deeploy.compile(path, stream=f"x0.2={hop}", certify=False)
    assert divide_products(compiled) == 1
    assert compiled.network.program.period == 64 // np.gcd(64, hop)
    assert compare_calls(compiled, calls, False) > 10


@pytest.mark.share(0.34)
@pytest.mark.parametrize("seed", range(24))
def test_random_networks_stream(tmp_path: Path, seed: int) -> None:
    n = Net()
    n.random = np.random.default_rng(seed)
    path, (hop, calls) = n.save(tmp_path / "m.onnx", *random_network(n)), [("", 20), ("=1", 70), ("=5", 30), ("=36", 12)][seed % 4]
    quantised = quantise_network(path, tmp_path / "q.onnx")
    for file in (path, quantised):
        assert compare_calls(deeploy.compile(file, stream=f"x0.2{hop}", certify=False), calls, file is path) > 20


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_c_streams(tmp_path: Path, name: str, target: str) -> None:
    path = quantise_network(save_network(name, tmp_path / "m.onnx"), tmp_path / "q.onnx")
    compiled = deeploy.compile(path, target, stream=f"{NETWORKS[name][1]}=8")
    found = verify_compiled(compiled, path)
    assert found.passed, found
    assert {against for against, _ in found.comparisons} == {
        "interpreter",
        "the lengthened network",
        "onnxruntime on the whole recording",
    }


@pytest.mark.parametrize(("name", "target"), [("tc_resnet", "siracusa"), ("crnn", "generic")])
def test_layers_behind_strides_run_in_every_nth_call(tmp_path: Path, name: str, target: str) -> None:
    path = quantise_network(save_network(name, tmp_path / "m.onnx"), tmp_path / "q.onnx")
    compiled = deeploy.compile(path, target, stream=f"{NETWORKS[name][1]}=1")
    periods = {call.period for call in compiled.network.program.calls if call.node.op != "Copy"}
    assert periods == ({1, 2, 4} if name == "tc_resnet" else {1, 2})
    assert verify_compiled(compiled, path).passed
    files, period = dict(compiled.files()), max(periods)
    assert f"_OUTPUT_0_EVERY {period} " in str(files["include/network.h"])
    code = str(files["src/network.c"])
    assert f"all_rows % {period} == 0" in code
    files["src/network.c"] = code.replace(f"all_rows % {period} == 0", "all_rows % 1 == 0")
    with pytest.raises(CertificateError):
        compiled.certify(files)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("past_rows % 8 ", "past_rows % 4 "), ("all_rows % 8 == 0", "all_rows % 16 == 0"), ("all_rows < 2)", "all_rows < 1)")],
)
def test_columns_lie_where_they_were_written(tmp_path: Path, right: str, wrong: str) -> None:
    """Masks and first values are written in first calls alone, and what a call leaves is copied in every eighth one."""
    path = quantise_network(save_network("tc_resnet", tmp_path / "m.onnx"), tmp_path / "q.onnx")
    compiled = deeploy.compile(path, "siracusa", stream=f"{NETWORKS['tc_resnet'][1]}=8")
    calls = compiled.network.program.calls
    assert {call.node.op for call in calls if call.first is not None} == {call.node.op for call in calls} & {"Where", "Binary"}
    assert min(call.period for call in calls if call.node.op == "Copy") == 8
    files = dict(compiled.files())
    code = str(files["src/network.c"])
    assert right in code
    with pytest.raises(CertificateError):
        compiled.certify({**files, "src/network.c": code.replace(right, wrong)})


def recurrent(path: Path, op: str) -> Path:
    """A convolution that looks ahead by less than a hop, and a recurrent layer that gives its whole sequence."""
    n, gates = Net(), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    x = n.Conv(n.x(1, 4, 12), n.w(5, 4, 3), pads=[1, 1])
    w, r = (n.c(n.random.standard_normal(shape).astype(np.float32) / 3) for shape in ((1, gates * 6, 5), (1, gates * 6, 6)))
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    y = n.node(op, (n.Transpose(x, perm=[2, 0, 1]), w, r), 2, hidden_size=6, **more)[0]
    return n.save(path, n.MatMul(n.Squeeze(y, n.i(1)), n.w(6, 3)))


@pytest.mark.parametrize("is_float", [True, False])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_go_on_where_they_were(tmp_path: Path, op: str, is_float: bool) -> None:
    path = recurrent(tmp_path / "m.onnx", op)
    path = path if is_float else quantise_network(path, tmp_path / "q.onnx")
    compiled = deeploy.compile(path, stream="x0.2=4", certify=False)
    assert compiled.network.streamed is not None
    (output,) = compiled.network.streamed.stream.outputs
    assert (output.delay, output.columns) == (4, 4)  # whole calls begin before the recording, not parts of one
    assert compare_calls(compiled, 8, is_float) > 20


def test_integers_of_the_dialect_stream(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1], kernel_shape=[3]),
        node("RequantShift", "a mul add", "b", div=256, n_levels=256, signed=1),
        node("Conv", "b w", "c", pads=[2, 0], kernel_shape=[3]),
        node("RequantShift", "c mul add", "d", div=256, n_levels=256, signed=1),
        node("Add", "d b", "e"),
        node("RequantShift", "e mul add", "y", div=16, n_levels=256, signed=1),
    ]
    constants = {
        "w": rng.integers(-60, 60, (3, 3, 3)).astype(np.float32),
        "mul": np.full((1, 3, 1), 7, np.float32),
        "add": np.full((1, 3, 1), 40, np.float32),
    }
    import onnx

    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    shape = (1, 3, 16)
    model = model_of(onnx.helper.make_graph(nodes, "g", ports({"x": shape}), ports({"y": shape}), tensors))
    onnx.save(model, tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx", stream="x.2=4", certify=False)
    streamed, hops = compiled.network.streamed, [rng.integers(-128, 128, (1, 3, 4)).astype(np.int8) for _ in range(8)]
    assert streamed is not None
    got = [np.stack(arrays) for arrays in zip(*compiled.interpret_sequence([[hop] for hop in hops]), strict=True)]
    wanted = streams.find_expected(streamed, hops, got, streams.run_references(compiled.plan.target))
    assert np.array_equal(got[0], wanted[0])
    assert np.count_nonzero(got[0]) > 20


def test_a_sliding_window_gives_what_each_window_does(tmp_path: Path) -> None:
    n = Net()
    x = n.Relu(n.Conv(n.x(1, 3, 20), n.w(4, 3, 5), strides=[2]))
    x = n.Relu(n.Conv(x, n.w(4, 4, 3)))
    path = n.save(tmp_path / "m.onnx", n.Gemm(n.Flatten(n.GlobalAveragePool(x)), n.w(4, 2)))
    compiled, whole = deeploy.compile(path, stream="x0.2=4", stream_mode="window"), deeploy.compile(path)
    recording = np.random.default_rng(0).normal(size=(1, 3, 40)).astype(np.float32)
    got = compiled.interpret_sequence([[recording[..., at : at + 4]] for at in range(0, 40, 4)])
    streamed = compiled.network.streamed
    assert streamed is not None
    (output,) = streamed.stream.outputs
    assert (output.delay, output.reach) == (0, 20)  # the last of seven columns of the second layer sees the last column of the window
    for call, outputs in enumerate(got):
        if (first := (call + 1) * 4 - output.reach) >= 0:
            assert np.allclose(outputs[0], whole.interpret([recording[..., first : first + 20]])[0], atol=1e-5)


@pytest.mark.parametrize("mode", ["recording", "window"])
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_of_several_layers_begin_together(tmp_path: Path, stride: int, mode: Literal["recording", "window"]) -> None:
    """Means of two layers, of which the second one has fewer columns, and the last column of it, are those of one window."""
    n, columns, hop = Net(), 13, 2
    first = n.Relu(n.x(1, 3, columns))
    second = n.Conv(first, n.w(3, 3, 3), strides=[stride])
    last = n.Gather(second, n.i(-1), axis=2)
    path = n.save(tmp_path / "m.onnx", n.Concat(n.GlobalAveragePool(first), n.GlobalAveragePool(second), last, axis=1))
    compiled, whole = deeploy.compile(path, stream=f"x0.2={hop}", stream_mode=mode, certify=False), deeploy.compile(path)
    recording = np.random.default_rng(0).normal(size=(1, 3, 40)).astype(np.float32)
    got = compiled.interpret_sequence([[recording[..., at : at + hop]] for at in range(0, 40, hop)])
    assert compiled.network.streamed is not None
    (output,) = compiled.network.streamed.stream.outputs
    assert (output.reach, output.delay) == ((13, 0) if stride == 1 else (14, 1))  # of which whole calls are made
    for call, outputs in enumerate(got):
        if (begin := (call + 1) * hop - output.reach) >= 0:
            assert np.allclose(outputs[0], whole.interpret([recording[..., begin : begin + columns]])[0], atol=1e-5)
    assert compare_calls(compiled, 20, True) > 20


@pytest.mark.parametrize(
    ("stream", "mode", "error", "said"),
    [
        ("x0", "recording", UsageError, r"stream x0 is not of the form INPUT\.AXIS"),
        ("x1.2", "recording", UsageError, r"the model has no input x1\nIts inputs: x0"),
        ("x0.0", "recording", UsageError, r"Axes of x0: 1 \(10 columns\), 2 \(32 columns\)"),
        ("x0.2", "window", UnsupportedError, r"node Conv_0 \(Conv\) pads the streamed axis"),
        ("x0.1", "recording", UnsupportedError, r"node Conv_0 \(Conv\) needs the whole window of input x0"),
        ("x0.2", "both", UsageError, 'stream_mode="both" is unknown'),
    ],
)
def test_what_does_not_stream_is_said(tmp_path: Path, stream: str, mode: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        deeploy.compile(save_network("tc_resnet", tmp_path / "m.onnx"), stream=stream, stream_mode=mode)


def test_what_needs_the_window_is_said(tmp_path: Path) -> None:
    compiled = deeploy.compile(save_network("ds_cnn", tmp_path / "m.onnx"), stream="x0.2", certify=False)
    assert compiled.notes == (
        "stream: each inference takes 2 new columns of x0; columns by which outputs lag: t13_0 6",
        "stream: node Conv_0 (Conv) and 2 more pad the recording, not every window: deeploy evaluate says what that changes",
        "stream: computed of a window, anew in every inference: node AveragePool_10 (AveragePool), and what follows",
    )


def test_reports_say_how_a_network_streams(tmp_path: Path) -> None:
    path = quantise_network(save_network("tc_resnet", tmp_path / "m.onnx"), tmp_path / "q.onnx")
    compiled = deeploy.compile(path, "siracusa", stream="x0.2=2", certify=False)
    entry = json.loads(compiled.files()["deploy.json"])
    states = sum(compiled.network.program.buffers[state.buffer].bytes for state in compiled.network.program.states)
    lines = stream_lines(entry)
    assert lines[0] == "stream: 2 new columns of x0 in an inference, for a window of 32"
    assert lines[1].startswith(f"  states {format_number(states)} bytes; products 2 848 of at least 2 848, 45 232 of the window")
    assert "in every inference, " in lines[2] and f"{entry['stream']['cycles']:,} cycles in the mean".replace(",", " ") in lines[2]
    assert lines[3] == "  t17_0: of a window in one of 2 inferences, 36 columns of the input late"
    assert entry["stream"]["cycles"] < entry["cycles"]
    assert lines[0] in report_network(entry)
    assert text(lines[3].strip()) in stream_section(entry)


@pytest.mark.parametrize("hop", [1, 2])
def test_a_stream_has_no_end(tmp_path: Path, hop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "MOST_INFERENCES", 14)  # instead of 2**31
    path = quantise_network(save_network("crnn", tmp_path / "m.onnx"), tmp_path / "q.onnx")
    compiled = deeploy.compile(path, stream=f"x0.2={hop}")
    assert streams.count_samples(compiled.network, 1) > 14
    assert verify_compiled(compiled, path).passed


def test_sums_of_floats_may_have_another_order(shared_models: Path) -> None:
    """A call's convolution of one column adds up in another order than that of the whole recording."""
    path = shared_models / "real" / "eegnet" / "network.onnx"
    found = verify_compiled(deeploy.compile(path, stream="x.3=16", certify=False), path)
    lengthened = next(comparison for against, comparison in found.comparisons if against == "the lengthened network")
    assert found.passed and 0 < lengthened.worst < 1e-6


def test_inputs_that_do_not_stream_are_the_same_for_a_recording(tmp_path: Path) -> None:
    n = Net()
    x, speaker, room = n.x(1, 4, 16), n.x(1, 5, 1), n.x(1, 3)
    columns = n.Add(n.Conv(x, n.w(5, 4, 3), pads=[1, 1]), speaker)
    scores = n.Add(n.Gemm(n.Flatten(n.GlobalAveragePool(columns)), n.w(5, 3)), room)
    path = n.save(tmp_path / "m.onnx", n.Relu(columns), scores)
    found = verify_compiled(deeploy.compile(path, stream="x0.2=4"), path)
    assert found.passed and len(found.comparisons) == 6


def test_a_stream_that_amplifies_rounding_is_explained(shared_models: Path) -> None:
    path = shared_models / "shapes" / "matchbox" / "network.onnx"
    compiled = deeploy.compile(path, stream="input.2=12", certify=False)
    for strict in (False, True):
        found = verify_compiled(compiled, path, strict=strict)
        (last,) = (comparison for against, comparison in found.comparisons if against == "onnxruntime on the whole recording")
        assert last.worst > 1 and found.passed is last.passed is not strict
        assert (last.rule == EXPLAINED) == any("this network amplifies rounding" in note for note in found.notes) == (not strict)
