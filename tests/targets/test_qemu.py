"""Microcontrollers, and the target of ``examples/targets`` that is one, found by its entry point: programs under QEMU, bit for bit."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy import cli
from deeploy.backend.project import read_manifest, select_network
from deeploy.driver.verify import run_project, verify_compiled
from deeploy.errors import BuildError, FitError, UsageError
from deeploy.execution.runners import qemu, sizes
from deeploy.execution.verification.layers import layer_differences
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.ir.types import DType
from deeploy.options import Options
from deeploy.report import terminal
from deeploy.report import text as text_report
from deeploy.target import load, names
from tests.models import save_graph

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples" / "targets" / "tcm"
TOOLS = {
    "rv32gcv": {
        "clang": "clang",
        "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
        "qemu-system-riscv32": "qemu-system-misc",
    },
    "rv32imc": {
        "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
        "qemu-system-riscv32": "qemu-system-misc",
    },
    "cortex_m": {"arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi", "qemu-system-arm": "qemu-system-arm"},
}
MACHINES = ("rv32imc", "rv32gcv", "cortex_m4", "cortex_m7", "cortex_m33", "cortex_m55", "cortex_m7_tcm")
DIALECT = ["CNN_Linear2", "miniMobileNet", "MLPerf/ImageClassification", "MLPerf/KeywordSpotting"]
QUANTISED = [
    *("ad_int8_qdq_pc", "ic_int8_qdq_pc", "ic_int8_qdq_pt", "ic_int8_qop_pc"),
    *("kws_int8_qdq_pc", "kws_int8_qdq_pt", "kws_int8_qop_pt", "kws_int8_ref"),
]
FLOAT = ["ad_fp32"]
CASES = [(machine, kind, name) for machine in MACHINES for kind, many in (("dialect", DIALECT), ("tiny", QUANTISED)) for name in many]
CASES += [("cortex_m4", "tiny", name) for name in FLOAT]
KEPT = {(machine, "tiny", "kws_int8_qdq_pc") for machine in ("cortex_m55", "rv32gcv")} | {
    ("cortex_m55", "dialect", "miniMobileNet")
}  # tried by every run, beside a sample
VECTORS = {  # a target's kernels, an instruction of theirs and how often it occurs, what lists it
    "cortex_m55": ("helium_", "vmlava.s8", 4, ["arm-none-eabi-objdump", "-m", "armv8.1-m.main"]),
    "rv32gcv": ("rvv_", "vwmacc.vx", 4, ["riscv64-unknown-elf-objdump"]),
}
SAMPLE = KEPT | set(random.Random(9).sample(CASES, 5))  # of every run of the tests; all of them in `make test-full`


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package, installed into a folder that is on the path."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(folder)]
    source = shutil.copytree(PACKAGE, tmp_path_factory.mktemp("source") / PACKAGE.name)
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


def need(machine: str) -> None:
    for tool, debian in TOOLS[machine if machine in TOOLS else "cortex_m"].items():
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}: install Debian's {debian}")


def test_the_targets_are_found_by_name() -> None:
    assert set(MACHINES) <= set(names())
    for machine in MACHINES:
        target = load(machine)
        assert target.name == machine
        assert target.memory("FLASH").base is not None
        assert target.is_flat is (machine != "cortex_m7_tcm")
    kernels = {kernel.name for kernel in load("cortex_m7").kernels}
    assert {"arm_conv2d", "arm_conv2d_grouped", "arm_depthwise", "arm_matmul"} <= kernels
    assert [kernel.name for kernel in load("cortex_m33").kernels] == [kernel.name for kernel in load("cortex_m4").kernels]
    assert "arm_matmul" not in {kernel.name for kernel in load("rv32imc").kernels}


@pytest.mark.parametrize(("name", "peak"), [("ic_int8_qdq_pc", 51456), ("kws_int8_qdq_pc", 16256), ("ad_int8_qdq_pc", 768)])
def test_constants_take_no_ram(name: str, peak: int, shared_models: Path) -> None:
    """The arena holds what lives at a time and scratch memory; chains need less of it."""
    model = shared_models / "mlperf_tiny" / name / "network.onnx"
    whole, chained = (deeploy.compile(model, "cortex_m4", objective=objective).plan for objective in ("cycles", "ram"))
    assert whole.memory["RAM"].peak <= peak
    assert chained.memory["RAM"].peak < whole.memory["RAM"].peak or not chained.fused_groups


def compiled_case(machine: str, kind: str, name: str, models: Path) -> tuple[deeploy.Compiled, Path]:
    folder = models / ("dialect/Models" if kind == "dialect" else "mlperf_tiny") / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    options: dict[str, Any] = {"inputs": folder / "inputs.npz", "dialect": "integer"} if kind == "dialect" else {}
    return deeploy.compile(folder / "network.onnx", machine, **options), folder


@pytest.mark.parametrize(
    ("machine", "kind", "name"),
    [pytest.param(*case, marks=[] if case in SAMPLE else [pytest.mark.slow], id="-".join(case)) for case in CASES],
)
def test_networks(machine: str, kind: str, name: str, shared_models: Path, tmp_path: Path) -> None:
    """Two samples: every bit of the interpreter's integers, and the golden outputs of dialect networks."""
    need(machine)
    compiled, model = compiled_case(machine, kind, name, shared_models)
    compiled.write(tmp_path / "out")
    entry = select_network(read_manifest(tmp_path / "out"))
    samples = load_arrays(model / "inputs.npz", [Expected.of(port) for port in entry["inputs"]], "input").samples[:2]
    got = qemu.Qemu().run(tmp_path / "out", entry, samples).outputs
    for index, port in enumerate(entry["outputs"]):
        want = np.stack([compiled.interpret(sample)[index] for sample in samples])
        if port["equality"] in ("float", "softmax") and DType(port["type"]).is_float:
            np.testing.assert_allclose(got[index], want, rtol=1e-5, atol=1e-5)
        else:
            assert got[index].tobytes() == want.astype(DType(port["type"]).numpy).tobytes(), port["name"]
    if kind == "dialect":
        with np.load(model / "outputs.npz") as golden:
            for array, wanted in zip(got, golden.values(), strict=True):
                np.testing.assert_array_equal(array[0].astype(np.int64), wanted.astype(np.int64).reshape(array[0].shape))


def small_model(folder: Path) -> Path:
    """The digits of the example, quantised with noise."""
    from deeploy.quantization.static import quantize_model

    images = np.random.default_rng(0).uniform(0, 1, (6, 1, 8, 8)).astype(np.float32)
    np.savez(folder / "images.npz", image=images)
    np.savez(folder / "inputs.npz", image=images[:, None])
    quantize_model(ROOT / "examples" / "digits" / "digits.onnx", folder / "images.npz", folder / "int8.onnx")
    return folder / "int8.onnx"


@pytest.mark.parametrize("machine", MACHINES)
def test_run_on_qemu_equals_the_host(machine: str, tmp_path: Path) -> None:
    """``deeploy run`` on the host model with every adversary, and under QEMU."""
    need(machine)
    compiled = deeploy.compile(small_model(tmp_path), machine)
    compiled.write(tmp_path / "out")
    host = run_project(tmp_path / "out", tmp_path / "inputs.npz")
    board = run_project(tmp_path / "out", tmp_path / "inputs.npz", on="qemu")
    assert board.samples == host.samples == 6
    for a, b in zip(host.outputs, board.outputs, strict=True):
        assert a.tobytes() == b.tobytes() and len(np.unique(a)) > 10
    if machine != "rv32imc":
        family, instruction, count, objdump = VECTORS.get(machine, ("arm_", "smlad", 16, ["arm-none-eabi-objdump"]))
        assert any(call.kernel.name.startswith(family) for call in compiled.plan.program.calls)
        program = str(tmp_path / "out/build/qemu/network/application.elf")
        listing = subprocess.run([*objdump, "-d", program], capture_output=True, text=True, check=True)
        assert listing.stdout.count(instruction) >= count


def test_sizes_and_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the linker and the compiler say of the program: near what the emulator's program takes, and limited by options."""
    need("cortex_m4")
    model = small_model(tmp_path)
    compilation = deeploy.compile(model, "cortex_m4")
    compilation.write(tmp_path / "out")
    manifest = read_manifest(tmp_path / "out")
    found = manifest["sizes"]
    assert found["constants"] == manifest["memory"]["FLASH"]["constants"] and found["arena"] == manifest["memory"]["RAM"]["peak"]
    assert found["flash"] == found["code"] + found["constants"] and found["ram"] == sum(
        found[name] for name in ("arena", "io", "static", "stack")
    )
    assert found["io"] == manifest["memory"]["RAM"]["io"] > 0 and found["limits"] == {}
    run_project(tmp_path / "out", tmp_path / "inputs.npz", on="qemu")
    text, data = subprocess.run(
        ["arm-none-eabi-size", str(tmp_path / "out/build/qemu/network/application.elf")], capture_output=True, text=True, check=True
    ).stdout.split()[6:8]
    assert 0 <= int(text) + int(data) - found["flash"] < 6000  # what reads and writes files
    assert 0 < found["static"] < 100 and 300 < found["stack"] < 2048
    layers = found["layers"]
    assert [layer["name"] for layer in layers] == [call["name"] for call in manifest["calls"]]
    assert max(layer["stack"] for layer in layers) <= found["stack"] and min(layer["stack"] for layer in layers) > 0
    assert max(layer["arena"] for layer in layers) <= found["arena"] and sum(layer["constants"] for layer in layers) == found["constants"]
    assert all(0 < layer["code"] < found["code"] for layer in layers)
    shown = text_report.size_lines(manifest)
    assert f"stack {text_report.format_number(found['stack'])}" in shown[1] and "arm-none-eabi-gcc -O2" in shown[0]
    assert "code, bytes" in terminal.report_network(manifest) and "layer-sizes-network" in (tmp_path / "out" / "report.html").read_text()
    assert shown[0] in terminal.report_network(manifest) and ">Program<" in (tmp_path / "out" / "report.html").read_text()
    assert compilation.memory["FLASH"].peak == found["constants"]
    limits = {name: found[name] for name in ("flash", "ram", "stack")}
    options = [f"--{name}={size}" for name, size in limits.items()]
    command = ["compile", str(model), "-t", "cortex_m4", "-o", str(tmp_path / "fits"), *options]
    assert CliRunner().invoke(cli.app, command).exit_code == 0
    assert read_manifest(tmp_path / "fits")["sizes"] == {**found, "limits": limits}
    shown = text_report.size_lines(read_manifest(tmp_path / "fits"))
    assert f"flash: {text_report.format_number(found['flash'])} bytes of {text_report.format_number(found['flash'])}, code" in shown[0]
    for name in ("flash", "stack"):
        with pytest.raises(FitError, match=f"{name}={found[name] - 1}: the program takes {found[name]} bytes"):
            deeploy.compile(model, "cortex_m4", **{name: found[name] - 1})
    done = CliRunner().invoke(cli.app, [*command[:4], "-o", str(tmp_path / "no"), f"--stack={found['stack'] - 1}"])
    assert isinstance(done.exception, FitError) and not (tmp_path / "no").exists()
    with pytest.raises(UsageError, match="target siracusa has no memory RAM"):
        Options(ram=1000).limit_ram(load("siracusa"))
    with pytest.raises(UsageError, match="--stack: the target has no cross compiler"):
        sizes.measure_sizes({}, 0, 0, 0, {"stack": 1000})
    monkeypatch.setenv("PATH", "/nowhere")
    assert "sizes" not in json.loads(deeploy.compile(model, "cortex_m4").files()["deploy.json"])


def test_what_a_limit_of_ram_advises_fits(tmp_path: Path) -> None:
    """Every figure that a remedy quotes is that of the program that it leads to, whether the arena or all of it is too large."""
    need("cortex_m4")
    model = small_model(tmp_path)
    wide = deeploy.compile(model, "cortex_m4", ram=600_000).sizes
    least = deeploy.compile(model, "cortex_m4", ram=600_000, objective="ram").sizes
    assert wide is not None and least is not None and least.ram < wide.ram
    with pytest.raises(FitError, match=f"ram={least.ram - 1}: the program takes {least.ram} bytes") as error:
        deeploy.compile(model, "cortex_m4", ram=least.ram - 1)
    (quoted,) = re.findall(r"ram=(\d+)", error.value.remedy)
    fitting = deeploy.compile(model, "cortex_m4", ram=int(quoted)).sizes
    assert fitting is not None and fitting.ram <= int(quoted) == least.ram
    between = deeploy.compile(model, "cortex_m4", ram=wide.ram - 100).sizes
    assert between is not None and least.ram <= between.ram <= wide.ram - 100


def detector(path: Path, samples: Path) -> Path:
    """A detector of voices as they are: magnitudes of a spectrum, convolutions, an LSTM whose states go in and out in one tensor."""
    rng, bins, units = np.random.default_rng(3), 9, 12
    shapes = {"basis": (2 * bins, 1, 16), "c": (units, bins, 3), "w": (1, 4 * units, units), "r": (1, 4 * units, units), "v": (1, units, 1)}
    weights = {n: rng.normal(scale=s[-1] ** -0.5 / s[1] ** 0.25, size=s).astype(np.float32) for n, s in shapes.items()}
    numbers = {
        "pads": [0, 8, 0, 8],
        "one": [1],
        "zero": [0],
        "half": [bins],
        "all": [2 * bins],
        "first": 0,
        "second": 1,
        "two": np.float32(2),
    }
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"], mode="reflect"),
        helper.make_node("Unsqueeze", ["padded", "one"], ["signal"]),
        helper.make_node("Conv", ["signal", "basis"], ["spectrum"], strides=[16]),
        *(helper.make_node("Slice", ["spectrum", a, b, "one"], [n]) for n, a, b in (("re", "zero", "half"), ("im", "half", "all"))),
        *(helper.make_node("Pow", [n, "two"], [f"{n}_square"]) for n in ("re", "im")),
        helper.make_node("Add", ["re_square", "im_square"], ["power"]),
        helper.make_node("Sqrt", ["power"], ["magnitude"]),
        helper.make_node("Conv", ["magnitude", "c"], ["features"], pads=[1, 1]),
        helper.make_node("Relu", ["features"], ["active"]),
        helper.make_node("Transpose", ["active"], ["rows"], perm=[2, 0, 1]),
        *(helper.make_node("Gather", ["state", n], [f"{n}_state"]) for n in ("first", "second")),
        *(helper.make_node("Unsqueeze", [f"{n}_state", "zero"], [k]) for n, k in (("first", "h"), ("second", "cell"))),
        helper.make_node("LSTM", ["rows", "w", "r", "", "", "h", "cell"], ["", "hn", "cn"], hidden_size=units),
        helper.make_node("Concat", ["hn", "cn"], ["state_out"], axis=0),
        helper.make_node("Transpose", ["hn"], ["last"], perm=[1, 2, 0]),
        helper.make_node("Conv", ["last", "v"], ["score"]),
        helper.make_node("Sigmoid", ["score"], ["y"]),
    ]
    ends = {"x": [1, 64], "state": [2, 1, units], "y": [1, 1, 1], "state_out": [2, 1, units]}
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in ends.items()]
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in {**weights, **numbers}.items()]
    graph = helper.make_graph(nodes, "g", made[:2], made[2:], constants)
    save_graph(graph, path)
    x = rng.normal(size=(6, 1, 64)).astype(np.float32)
    np.savez(samples, x=x, state=rng.uniform(-0.5, 0.5, size=(6, 2, 1, units)).astype(np.float32))
    np.savez(samples.with_name("chunks.npz"), x=x)
    return path


@pytest.mark.parametrize("form", ["float", "int8"])
def test_a_stream_on_a_cortex_m4(form: str, tmp_path: Path) -> None:
    """Chunk by chunk, states in memory: what the host computes, bit for bit where it is of integers."""
    from deeploy.quantization.static import quantize_model

    need("cortex_m4")
    model = detector(tmp_path / "float.onnx", tmp_path / "samples.npz")
    if form == "int8":
        quantize_model(model, tmp_path / "samples.npz", tmp_path / "int8.onnx")
        model = tmp_path / "int8.onnx"
    compiled = deeploy.compile(model, "cortex_m4", states={"state": "state_out"})
    assert ("IntegerLSTM" in {call.kernel.op for call in compiled.plan.program.calls}) is (form == "int8")
    compiled.write(tmp_path / "out")
    host, board = (run_project(tmp_path / "out", tmp_path / "chunks.npz", on=on, sequence=True).outputs[0] for on in ("host", "qemu"))
    assert len(np.unique(host)) > 4
    np.testing.assert_allclose(board, host, rtol=1e-5 if form == "float" else 0, atol=1e-6 if form == "float" else 0)


def test_a_spectrum_in_16_bits_on_a_cortex_m4(tmp_path: Path) -> None:
    """Butterflies by the DSP extension: every bit of the reference."""
    need("cortex_m4")
    constants = {"s": np.float32(2**-15), "z": np.int16(0), "step": np.float32(64 * 2**-15), "none": np.array(64), "axis": np.array(1)}
    chain = [("QuantizeLinear", "x s z"), ("DequantizeLinear", "q s z"), ("DFT", "r none axis"), ("QuantizeLinear", "f step z")]
    steps = zip((*chain, ("DequantizeLinear", "w step z")), ("q", "r", "f", "w", "y"), strict=True)
    nodes = [helper.make_node(op, words.split(), [y], **({"onesided": 1} if op == "DFT" else {})) for (op, words), y in steps]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [5, 64, 1]), ("y", [5, 33, 2]))]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    compiled = deeploy.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "cortex_m4")
    assert "arm_fourier" in {call.kernel.name for call in compiled.plan.program.calls}
    x = np.random.default_rng(0).uniform(-1, 1, (5, 64, 1)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    compiled.write(tmp_path / "out")
    (y,) = run_project(tmp_path / "out", tmp_path / "x.npz", on="qemu").outputs
    np.testing.assert_array_equal(y.reshape(5, 33, 2), compiled.interpret({"x": x})[0])
    exact = np.fft.rfft(x[..., 0].astype(np.float64))
    np.testing.assert_allclose(y.reshape(5, 33, 2), np.stack([exact.real, exact.imag], -1), atol=7 * 64 * 2**-15)  # log2(64) steps, and x's


def test_weights_of_16_bits_on_a_cortex_m4(tmp_path: Path) -> None:
    """Rows of a table, times a matrix, both stored as float16: every bit of the reference."""
    need("cortex_m4")
    numbers = np.random.default_rng(4)
    table, weights = (numbers.normal(size=shape).astype(np.float16) for shape in ((40, 24), (24, 12)))
    table[:4] *= np.float16(2**-12)  # among them halves that are no normal ones
    nodes = [helper.make_node("Gather", ["table", "i"], ["rows"]), helper.make_node("MatMul", ["rows", "weights"], ["y"])]
    ports = [helper.make_tensor_value_info("i", TensorProto.INT64, [40]), helper.make_tensor_value_info("y", TensorProto.FLOAT16, [40, 12])]
    tensors = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(weights, "weights")]
    graph = helper.make_graph(nodes, "halves", ports[:1], ports[1:], tensors)
    save_graph(graph, tmp_path / "model.onnx", 21)
    compiled = deeploy.compile(tmp_path / "model.onnx", "cortex_m4")
    constants = [b.dtype for b in compiled.network.program.buffers.values() if b.data is not None]
    assert constants == [DType.FLOAT16, DType.FLOAT16]
    rows = np.arange(40)[::-1]
    np.savez(tmp_path / "inputs.npz", i=rows)
    compiled.write(tmp_path / "out")
    (board,) = run_project(tmp_path / "out", tmp_path / "inputs.npz", on="qemu").outputs
    (wanted,) = compiled.interpret([rows])
    assert len(np.unique(wanted)) > 400
    np.testing.assert_array_equal(board.reshape(wanted.shape), wanted)


def test_what_cannot_run_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("cortex_m4")
    compiled = deeploy.compile(small_model(tmp_path), "generic")
    compiled.write(tmp_path / "out")
    with pytest.raises(UsageError, match="target generic does not run there"):
        run_project(tmp_path / "out", tmp_path / "inputs.npz", on="qemu")
    deeploy.compile(tmp_path / "int8.onnx", "cortex_m4").write(tmp_path / "out")
    makefile = (tmp_path / "out" / "Makefile").read_text()
    (tmp_path / "out" / "Makefile").write_text(makefile.replace("-DFLASH_BYTES=2097152", "-DFLASH_BYTES=4096"))
    with pytest.raises(FitError, match=r"region .* overflowed"):
        run_project(tmp_path / "out", tmp_path / "inputs.npz", on="qemu")
    (tmp_path / "out" / "Makefile").write_text(makefile)
    with pytest.raises(BuildError, match="did not end within"):
        run_project(tmp_path / "out", tmp_path / "inputs.npz", on="qemu", time_limit=0.001)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BuildError, match="is not installed"):
        run_project(tmp_path / "out", tmp_path / "inputs.npz", on="qemu")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three products one behind the other."""
    values = np.random.default_rng(4).normal(size=(3, 8, 8)).astype(np.float32)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x", "y")]
    nodes = [helper.make_node("MatMul", [a, f"w{i}"], [b], f"product{i}") for i, (a, b) in enumerate([("x", "a"), ("a", "b"), ("b", "y")])]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(values)])
    path = tmp_path_factory.mktemp("rows") / "rows.onnx"
    save_graph(graph, path)
    return path


@pytest.mark.parametrize("machine", ["cortex_m4", "rv32imc", "cortex_m7_tcm"])
def test_layers_are_compared_on_the_machine(machine: str, rows: Path, tmp_path: Path) -> None:
    """All of them agree; where a constant of the second one is another in flash, that is the first that differs."""
    need(machine)
    compiled = deeploy.compile(rows, machine)
    verdict = verify_compiled(compiled, rows, layers=True, on="qemu")
    assert verdict.passed and "all 3 layers agree with the interpreter" in verdict.notes
    compiled.write(tmp_path / "out")
    entry = select_network(read_manifest(tmp_path / "out"))
    weights = tmp_path / "out" / "src" / "network_weights.c"
    if weights.is_file():
        head, second, rest = weights.read_text().partition("network_constant_w1")
        weights.write_text(head + second + re.sub(r"\{\n *[-.\w]+", "{ 99.0f", rest, count=1))
    else:  # in flash that only transfers reach
        first = compiled.plan.program.buffers["w1"].data.tobytes()[:64]
        weights = tmp_path / "out" / "network_weights.bin"
        weights.write_bytes(weights.read_bytes().replace(first, np.float32(99).tobytes() + first[4:]))
    sample = [np.ones((2, 8), np.float32)]
    (found, *_) = layer_differences(tmp_path / "out", entry, compiled.plan, sample, rows, qemu.Qemu())
    assert found.startswith("first layer that differs from the interpreter: product1 "), found


def test_an_unknown_place_to_run(rows: Path) -> None:
    said = CliRunner().invoke(cli.app, ["verify", str(rows), "--on", "moon"])
    assert isinstance(said.exception, UsageError) and "host, gvsoc, qemu or board" in said.exception.what
