"""Advice is right: of every kind, a network is compiled with and without what is advised, and the promise is kept to the cycle."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy import api, chips
from deeploy.cli import app
from deeploy.errors import UsageError
from deeploy.ir.target import load_timing
from deeploy.options import Options
from deeploy.quantization.form import Form
from deeploy.quantization.static import quantize_model
from deeploy.report import advice as report
from deeploy.report import quantised
from deeploy.target import load
from tests.e2e.systems import towers
from tests.models import Net, save_graph
from tests.planning.planner.test_ram_copies import BOARD

Advice = dict[str, dict[str, Any]]  # by kind
CLUSTER = ("cluster",)


def float_network(folder: Path) -> tuple[Path, Path]:
    """Three convolutions and a product; and samples."""
    numbers = np.random.default_rng(5)
    weights = {"w1": (32, 8, 3, 3), "w2": (32, 32, 1, 1), "w3": (32, 32, 3, 3), "v": (32, 10)}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "conv2"),
        helper.make_node("Relu", ["c"], ["d"], "relu2"),
        helper.make_node("Conv", ["d", "w3"], ["e"], "conv3", pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"], "pool"),
        helper.make_node("Flatten", ["f"], ["g"], "flatten"),
        helper.make_node("MatMul", ["g", "v"], ["y"], "product"),
    ]
    arrays = [numpy_helper.from_array(numbers.normal(size=shape).astype(np.float32), name) for name, shape in weights.items()]
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in (("x", [1, 8, 14, 14]), ("y", [1, 10]))]
    graph = helper.make_graph(nodes, "g", *ends, arrays)
    save_graph(graph, folder / "float.onnx")
    np.savez(folder / "samples.npz", x=numbers.uniform(-1, 1, size=(4, 8, 14, 14)).astype(np.float32))
    return folder / "float.onnx", folder / "samples.npz"


@pytest.fixture(scope="module")
def int8_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network in int8."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("models")
    quantize_model(*float_network(folder), folder / "int8.onnx", Form())
    return folder / "int8.onnx"


def compile_for_siracusa(model: Path, **options: Any) -> deeploy.Compiled:
    own = {name: options.pop(name) for name in ("quantised_io", "requantise", "input_types", "dialect") if name in options}
    return deeploy.compile(model, "siracusa", **options, **own)


def told(result: deeploy.Compiled) -> Advice:
    """The advice by its kind."""
    return {found["kind"]: found for found in api.advise(result)["network"]}


def cycles(result: deeploy.Compiled) -> float:
    """Predicted, of an inference."""
    assert result.network.predicted is not None
    return result.network.predicted.cycles


@pytest.fixture(scope="module")
def usual(int8_model: Path) -> tuple[float, Advice]:
    result = compile_for_siracusa(int8_model)
    return cycles(result), told(result)


def check_gain(before: float, after: float, advice: dict[str, Any]) -> None:
    """What was promised is what was found."""
    assert advice["gain"] == round(before - after) >= 0.01 * before
    assert advice["share"] == pytest.approx(advice["gain"] / before, rel=0.001)
    gains = [layer["gain"] for layer in advice["layers"]]
    assert gains and gains == sorted(gains, reverse=True) and gains[-1] > 0


def integer_network(folder: Path, muls: list[int]) -> Path:
    """A convolution in the integer dialect, whose channels have these multipliers."""
    numbers, net = np.random.default_rng(3), Net()
    weights = net.c(numbers.integers(-100, 100, (16, 16, 3, 3)).astype(np.float32))
    factors = np.resize(muls, (1, 16, 1, 1)).astype(np.float32)
    sums = net.Conv(net.x(1, 16, 12, 12), weights, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    result = net.RequantShift(sums, net.c(factors), net.c(factors * 0 + 77), div=1 << 31, n_levels=256, signed=1)
    path = folder / f"mul{muls[0]}.onnx"
    onnx.save(net.model([result]), path)
    return path


def test_scales_of_powers_of_two(tmp_path: Path) -> None:
    options = {"engines": CLUSTER, "input_types": {"x0": "int8"}, "dialect": "integer"}
    before, after = (compile_for_siracusa(integer_network(tmp_path, muls), **options) for muls in ([16777213, 12345679], [1 << 24]))
    advice = told(before)
    check_gain(cycles(before), cycles(after), advice["scales"])
    assert "narrow" in advice["scales"]["layers"][0]["text"]


def test_scales_of_a_qdq_network_promise_nothing_that_is_not_found(tmp_path: Path) -> None:
    """Its ties go to the even result, which scales of 2^n make frequent: such a network is slower, and nobody is told to make one."""
    pytest.importorskip("onnxruntime")
    files = float_network(tmp_path)
    for name, form in (("usual", Form(symmetric=True)), ("powers", Form(symmetric=True, powers=True))):
        quantize_model(*files, tmp_path / f"{name}.onnx", form)
    before, after = (compile_for_siracusa(tmp_path / f"{name}.onnx", engines=CLUSTER) for name in ("usual", "powers"))
    assert cycles(after) > cycles(before) and "scales" not in told(before)


def test_requantisation_by_the_engine(int8_model: Path, usual: tuple[float, Advice]) -> None:
    after = compile_for_siracusa(int8_model, requantise="engine")
    check_gain(usual[0], cycles(after), usual[1]["requantise"])
    assert usual[1]["requantise"]["options"] == ["--requantise", "engine"]


def test_integer_inputs_and_outputs(int8_model: Path, usual: tuple[float, Advice]) -> None:
    after = compile_for_siracusa(int8_model, quantised_io=True)
    check_gain(usual[0], cycles(after), usual[1]["quantised-io"])


@pytest.mark.slow
def test_advice_does_not_hang_on_names(int8_model: Path, usual: tuple[float, Advice], tmp_path: Path) -> None:
    """Names of converted networks are alike in C, where numbers tell them apart: what is left out is told by more than its name there."""
    alike = onnx.load(int8_model)
    for number, node in enumerate(alike.graph.node):
        node.name = f"model/activation/Relu;node {number}"
    onnx.save(alike, tmp_path / "alike.onnx")
    result = deeploy.compile(tmp_path / "alike.onnx", "siracusa")
    assert {call.name.rstrip("_0123456789") for call in result.plan.program.calls} == {"model_activation_Relu"}
    advice = told(result)
    assert cycles(result) == usual[0] and advice.keys() == usual[1].keys()
    for kind, entry in advice.items():
        assert entry["gain"] == usual[1][kind]["gain"]
        assert [layer["text"] for layer in entry["layers"]] == [layer["text"] for layer in usual[1][kind]["layers"]]
    operators = {call.name: call.node.op for call in result.plan.program.calls}
    left_out = [layer for layer in advice["quantised-io"]["layers"] if layer["text"] == "is left out"]
    assert {operators[layer["name"]] for layer in left_out} == {"Quantize", "Dequantize"}


FORMS = [
    "ad_int8_qdq_pc",
    "ic_int8_qdq_pc",
    "ic_int8_qdq_pt",
    "ic_int8_qop_pc",
    "kws_int8_qdq_pc",
    "kws_int8_qdq_pt",
    "kws_int8_qop_pt",
    "kws_int8_ref",
]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_what_is_promised_of_real_networks_arrives(shared_models: Path, form: str) -> None:
    """Integers at the edges, engines that requantise, and both, one after the other."""
    path = shared_models / "mlperf_tiny" / form / "network.onnx"
    integers, engine = {"quantised_io": True}, {"requantise": "engine"}
    plain, both = compile_for_siracusa(path), compile_for_siracusa(path, **integers, **engine)
    changed = {"quantised-io": compile_for_siracusa(path, **integers), "requantise": compile_for_siracusa(path, **engine)}
    steps = [(plain, changed["quantised-io"], "quantised-io"), (plain, changed["requantise"], "requantise")]
    steps += [(changed["requantise"], both, "quantised-io"), (changed["quantised-io"], both, "requantise")]
    advice = {one: told(one) for one in (plain, *changed.values())}
    for before, after, kind in steps:
        if kind in advice[before]:
            check_gain(cycles(before), cycles(after), advice[before][kind])
        else:
            assert cycles(before) - cycles(after) < 0.01 * cycles(before)


def test_integer_inputs_of_a_network_with_a_state(tmp_path: Path) -> None:
    """What writes the state, which nothing else reads, stays."""
    tensors = [numpy_helper.from_array(np.float32(0.02), "s"), numpy_helper.from_array(np.int8(0), "z")]
    nodes, shape = [], [1, 4096]
    for name in ("x", "h"):
        nodes.append(helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}.q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.q", "s", "z"], [f"{name}.d"]))
    nodes.append(helper.make_node("Add", ["x.d", "h.d"], ["sum"]))
    for name, source in (("hn", "sum"), ("y", "sum")):
        nodes.append(helper.make_node("QuantizeLinear", [source, "s", "z"], [f"{name}.q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.q", "s", "z"], [name]))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "h", "hn", "y")]
    graph = helper.make_graph(nodes, "state", ports[:2], ports[2:], tensors)
    save_graph(graph, tmp_path / "m.onnx")
    before, after = (deeploy.compile(tmp_path / "m.onnx", "siracusa", states={"h": "hn"}, quantised_io=io) for io in (False, True))
    check_gain(cycles(before), cycles(after), told(before)["quantised-io"])


@pytest.mark.share(0.25)
@pytest.mark.parametrize("l1", [4000, 9000])
def test_more_memory(tmp_path: Path, l1: int) -> None:
    model = one_convolution(tmp_path, 128)
    before = compile_for_siracusa(model, memory={"l1": l1}, engines=CLUSTER)
    advice = told(before)["memory"]
    option, size = advice["options"]
    after = compile_for_siracusa(model, memory={"l1": int(size)}, engines=CLUSTER)
    assert option == "--l1" and int(size) > l1
    check_gain(cycles(before), cycles(after), advice)
    assert any(re.search(r"windows take [1-9]\d* bytes of L1 instead of \d+", layer["text"]) for layer in advice["layers"])


def test_engines_that_were_left_out(tmp_path: Path) -> None:
    model = one_convolution(tmp_path, 128)
    before, after = compile_for_siracusa(model, engines=CLUSTER), compile_for_siracusa(model)
    advice = told(before)["engines"]
    check_gain(cycles(before), cycles(after), advice)
    assert "engines" not in told(after)
    assert "on npu" in advice["layers"][0]["text"]


def test_cores_that_were_left_out(tmp_path: Path) -> None:
    model = one_convolution(tmp_path, 128)
    before, after = compile_for_siracusa(model, engines=CLUSTER, cores=2), compile_for_siracusa(model, engines=CLUSTER)
    check_gain(cycles(before), cycles(after), told(before)["cores"])


@pytest.mark.slow
def test_one_buffer_where_two_are_slower(int8_model: Path) -> None:
    before, after = (compile_for_siracusa(int8_model, memory={"l1": 5000}, engines=CLUSTER, buffering=each) for each in ("double", "auto"))
    check_gain(cycles(before), cycles(after), told(before)["buffering"])
    assert "buffering" not in told(after)


def one_convolution(folder: Path, zero_point: int) -> Path:
    """QDQ with weights of uint8 and a zero point: what int8 holds where that is 128, and 9 bits where it is far from it."""
    numbers = np.random.default_rng(7)
    constants = {
        "s": np.float32(0.02),
        "z": np.int8(0),
        "ws": np.float32(0.01),
        "wz": np.uint8(zero_point),
        "w": numbers.integers(zero_point - 100, 256 if zero_point < 128 else 228, (32, 32, 3, 3)).astype(np.uint8),
        "so": np.float32(0.3),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Conv", ["d", "wd"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "so", "z"], ["qo"]),
        helper.make_node("DequantizeLinear", ["qo", "so", "z"], ["y"]),
    ]
    arrays = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 32, 10, 10])] for name in "xy"]
    graph = helper.make_graph(nodes, "g", *ends, arrays)
    path = folder / f"zero{zero_point}.onnx"
    return save_graph(graph, path)


@pytest.mark.parametrize("engines", [None, CLUSTER])
def test_weights_without_zero_points(tmp_path: Path, engines: tuple[str, ...] | None) -> None:
    before, after = (compile_for_siracusa(one_convolution(tmp_path, zero), engines=engines) for zero in (100, 128))
    advice = told(before)
    if engines is None:  # the accelerator takes such weights as they are
        assert "weights" not in advice and cycles(before) == pytest.approx(cycles(after), rel=0.01)
        return
    check_gain(cycles(before), cycles(after), advice["weights"])
    assert "weights" not in told(after)


def test_chips_are_told_what_the_system_gains(tmp_path: Path) -> None:
    onnx.save(towers(32, 2), tmp_path / "m.onnx")
    before, after = (chips.compile(tmp_path / "m.onnx", "siracusa", 2, quantised_io=integers) for integers in (False, True))
    before.write(tmp_path / "out", {"deeploy.toml": f'target = "siracusa"\nchips = "2"\n[models]\nnetwork = "{tmp_path / "m.onnx"}"\n'})
    advice = json.loads(CliRunner().invoke(app, ["advise", str(tmp_path / "out"), "--json"], catch_exceptions=False).stdout)["advice"]
    assert before.predicted is not None and after.predicted is not None
    found = {entry["kind"]: entry for entry in advice["chip0"]}["quantised-io"]
    check_gain(before.predicted.cycles, after.predicted.cycles, found)
    assert found["title"] in (tmp_path / "out" / "report.html").read_text()


@pytest.fixture(scope="module")
def project(int8_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project") / "out"
    words = ["compile", int8_model, "-t", "siracusa", "--cores", 2, "--engines", "cluster", "-o", folder, "--no-cache"]
    CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    return folder


def test_it_is_ranked_and_told_everywhere(project: Path) -> None:
    def run(*words: str) -> str:
        return CliRunner().invoke(app, [*words], catch_exceptions=False).stdout

    assert "deeploy advise OUT plans" in run("report", str(project))
    shown = run("advise", str(project))
    told = json.loads(run("report", str(project), "--json"))["advice"]
    assert len(told) >= 2 and [found["gain"] for found in told] == sorted((found["gain"] for found in told), reverse=True)
    text, page = run("report", str(project)), (project / "report.html").read_text()
    for place, found in enumerate(told, 1):
        line = f"  {place}. {found['title']}: -{100 * found['share']:.1f} %"
        assert line in text and line in shown
        assert found["title"] in page
    assert page.index("What would help") < page.index('class="cards"')
    layer = told[0]["layers"][0]
    assert f"{told[0]['title']}: -" in run("explain", str(project), layer["name"])
    (explained,) = json.loads(run("explain", str(project), layer["name"], "--json"))
    assert explained["advice"][0]["gain"] == layer["gain"] and explained["advice"][0]["kind"] == told[0]["kind"]


def test_a_project_of_something_else_is_not_advised(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project, tmp_path / "out")
    entry = json.loads((project / "deploy.json").read_text())
    (tmp_path / "out" / "deploy.json").write_text(json.dumps({**entry, "cycles": entry["cycles"] + 1}))
    with pytest.raises(UsageError, match="is not what its model, target and options are compiled to now"):
        CliRunner().invoke(app, ["advise", str(tmp_path / "out")], catch_exceptions=False)


def test_kernels_are_named_with_their_form_and_the_share_of_the_peak(project: Path) -> None:
    entry = json.loads((project / "deploy.json").read_text())
    text = CliRunner().invoke(app, ["report", str(project)]).stdout
    peak = entry["machine"]["peaks"]["cluster"]
    assert 4 < peak < 32  # eight cores that multiply four pairs of bytes in a cycle
    products = [call for call in entry["calls"] if call["macs"] > 10000]
    assert len(products) == 3
    for call in products:
        assert call["form"] in ("narrow", "split", "high") and call["source"].startswith("pulp/")
        (line,) = (line for line in text.splitlines() if line.startswith(call["node"][:30]) and "MAC" not in line)
        share = 100 * call["macs"] / call["cycles"] / peak
        assert f" {call['kernel']} {call['form']} " in line and f" {share:.1f} % " in line
        assert 0 < share < 100


@pytest.mark.parametrize("target", ["siracusa", "rv32imc", "rv32gcv"])
def test_a_float_network_is_told_to_quantise_first(int8_model: Path, tmp_path: Path, target: str) -> None:
    """With the bytes that weights and activations take then, and with cycles where they are known."""
    before, after = (deeploy.compile(path, target) for path in (float_network(tmp_path)[0], int8_model))
    first, rest = (api.advise(one)["network"] for one in (before, after))
    assert first[0]["kind"] == "quantise" and "quantise" not in {entry["kind"] for entry in rest}
    assert ("--for siracusa" in first[0]["title"]) == (target == "siracusa")
    told = [int(digits) for digits in re.findall(r"(?:take|of|activations) (\d+)", first[0]["why"])]
    programs = [one.network.program for one in (after, before)]
    expected = [measure(program) for measure in (quantised.weights_of, quantised.activations_of) for program in programs]
    assert told == pytest.approx(expected, rel=0.2)
    assert told[0] < 0.6 * told[1] and told[2] < 0.6 * told[3]
    assert (before.cycles is None) == (target == "rv32gcv")
    if before.cycles is not None:
        assert first[0]["gain"] == pytest.approx(cycles(before) - cycles(after), rel=1e-3), "scales that are calibrated are others"
    else:
        assert first[0]["gain"] == 0 and first[0]["layers"] == []
    lines = "\n".join(report.advice_lines(first))
    assert first[0]["why"] in lines and ("cycles)" in lines.splitlines()[1]) == (before.cycles is not None)


def test_a_measured_microcontroller_is_told_the_cycles_of_integers(int8_model: Path, tmp_path: Path) -> None:
    rates = {"default": 12, "arm_conv2d": 2, "arm_matmul": 2}
    entries = [f'[kernel.{name}]\ncall = 100\nmac = {mac}\noutput = 30\nprovenance = "assumed"\n' for name, mac in rates.items()]
    board = tmp_path / "board.toml"
    board.write_text("".join([BOARD.partition("[kernel")[0], *entries]))
    target = replace(load("cortex_m4"), timing=load_timing(board))
    before, after = (deeploy.compile(path, target) for path in (float_network(tmp_path)[0], int8_model))
    first = api.advise(before)["network"][0]
    assert first["kind"] == "quantise"
    check_gain(cycles(before), cycles(after), first)


def tower(folder: Path) -> Path:
    """Two products of floats."""
    onnx.save(towers(48, 2), folder / "tower.onnx")
    return folder / "tower.onnx"


NETWORKS: dict[str, Callable[[Path, Path], Path]] = {
    "int8": lambda model, folder: model,
    "zero points": lambda model, folder: one_convolution(folder, 100),
    "integers": lambda model, folder: integer_network(folder, [16777213, 12345679]),
    "floats": lambda model, folder: tower(folder),
}


@pytest.mark.slow
@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(NETWORKS)), st.integers(5, 64), st.booleans())
def test_what_explain_says_agrees_with_its_table(int8_model: Path, tmp_path: Path, name: str, kilobytes: int, has_npu: bool) -> None:
    """Of any network, with any L1: reasons and table tell the same, and name the instance that deploy.json names."""
    own = {"input_types": {"x0": "int8"}, "dialect": "integer"} if name == "integers" else {}
    options = Options(memory={"l1": 1024 * kilobytes}, engines=None if has_npu else CLUSTER)
    files = deeploy.compile(NETWORKS[name](int8_model, tmp_path), "siracusa", **options.given(), **own).files()
    calls = json.loads(files["explain.json"])["networks"]["network"]["calls"]
    entry = json.loads(files["deploy.json"])
    assert len(calls) == len(entry["calls"])
    for call, described in zip(calls, entry["calls"], strict=True):
        (chosen,) = [candidate for candidate in call["candidates"] if candidate["chosen"]]
        better = [candidate for candidate in call["candidates"] if candidate["cycles"] < chosen["cycles"]]
        reason_by_subject = {reason.partition(":")[0]: reason for reason in call["reasons"]}
        engine, tile, residence, time = (reason_by_subject[subject] for subject in ("Engine", "Tile", "Residence", "Time"))
        assert not ("No candidate is faster" in tile and better)
        alike = [c for c in better if (c["kernel"], c["sources"]) == (chosen["kernel"], chosen["sources"])]
        assert ("No other tiling with these residences is faster." in tile or "No candidate" in tile) == (not alike)
        elsewhere = [c for c in better if c["kernel"] == chosen["kernel"] and c["sources"] != chosen["sources"]]
        assert ("not faster with any other" in residence) == (not elsewhere)
        assert chosen["kernel"] == f"{described['kernel']} {described['form']}".rstrip() and f"by {chosen['kernel']}" in engine
        others = {candidate["kernel"] for candidate in call["candidates"]} - {chosen["kernel"]}
        assert not ("the only kernel that fits" in engine and others)
        counted = re.search(r"compared: ([\d ]+)\)", time) or re.match(r"Time: ([\d ]+) cycles", time)
        assert counted is not None and int(counted[1].replace(" ", "")) == chosen["cycles"]
