"""Boards: QEMU stands in for them, with its serial line as a terminal; and the protocol on a line that loses and changes bytes."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import serial
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy import cli
from deeploy.driver.verify import run_project, verify_compiled
from deeploy.errors import BuildError, FitError, UsageError
from deeploy.execution.runners import board, link
from deeploy.ir.target import load_timing
from deeploy.target import load
from tests.models import save_graph
from tests.streamed_networks import quantise_network, save_network

ARM = {"arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi", "qemu-system-arm": "qemu-system-arm"}
RISCV = {
    "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
    "qemu-system-riscv32": "qemu-system-misc",
}


def need(tools: dict[str, str]) -> None:
    for tool, debian in tools.items():
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}: install Debian's {debian}")


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Path]:
    """Where the serial line of an emulator appears; the emulator is ended afterwards."""
    yield tmp_path / "port"
    if (tmp_path / "port.pid").is_file():
        os.kill(int((tmp_path / "port.pid").read_text()), signal.SIGKILL)


@pytest.fixture(scope="module")
def two_products_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two products in floats, of more inputs than a message holds."""
    folder = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(3)
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name) for name, shape in (("a", (300, 8)), ("b", (8, 140)))
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 300]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 140]),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "two", ends[:1], ends[1:], weights)
    save_graph(graph, folder / "two.onnx")
    np.savez(folder / "inputs.npz", x=rng.normal(size=(3, 1, 300)).astype(np.float32))
    return folder


@pytest.mark.share(0.25)
@pytest.mark.parametrize(
    ("target", "name", "tools"), [("cortex_m4", "qemu_mps2", ARM), ("cortex_m7", "qemu_mps2", ARM), ("rv32imc", "qemu_rv32", RISCV)]
)
def test_a_project_runs_on_a_board(
    target: str, name: str, tools: dict[str, str], two_products_model: Path, port: Path, tmp_path: Path
) -> None:
    need(tools)
    out = tmp_path / "out"
    compiled = deeploy.compile(two_products_model / "two.onnx", target)
    compiled.write(out)
    options = ["--on", "board", "--board", name, "--port", str(port), "--save", str(tmp_path / "got.npz")]
    command = ["run", str(out), "--inputs", str(two_products_model / "inputs.npz"), *options]
    said = CliRunner().invoke(cli.app, command)
    assert said.exit_code == 0, said.output
    assert "3 samples run on the board" in said.output and "cycles" in said.output
    host = run_project(out, two_products_model / "inputs.npz")
    assert np.load(tmp_path / "got.npz")["y"].tobytes() == host.outputs[0].tobytes()
    number = (port.parent / "port.pid").read_text()
    found = json.loads(CliRunner().invoke(cli.app, [*command, "--json"]).output)
    assert (port.parent / "port.pid").read_text() == number  # the program that runs there is not loaded again
    assert len(found["cycles"]) == 3 and all(found["cycles"])
    assert [layer["name"] for layer in found["layers"]] == [call.name for call in compiled.plan.program.calls]
    assert 0 < sum(layer["cycles"] for layer in found["layers"]) <= found["cycles"][0]


def test_the_first_wrong_layer_on_a_board(two_products_model: Path, port: Path) -> None:
    need(ARM)
    compiled = deeploy.compile(two_products_model / "two.onnx", "cortex_m4")
    verdict = verify_compiled(compiled, two_products_model / "two.onnx", layers=True, on="board", board="qemu_mps2", port=str(port))
    assert verdict.passed
    assert "all 2 layers agree with the interpreter" in verdict.notes


def test_the_self_test_on_a_board(two_products_model: Path, port: Path, tmp_path: Path) -> None:
    need(ARM)
    out = tmp_path / "out"
    deeploy.compile(two_products_model / "two.onnx", "cortex_m4", self_test=two_products_model / "inputs.npz").write(out)
    options = ["--on", "board", "--board", "qemu_mps2", "--port", str(port), "--layers", "--json"]
    said = CliRunner().invoke(cli.app, ["run", str(out), *options])
    assert said.exit_code == 0, said.output
    layers = json.loads(said.output)["layers"]
    assert [layer["verdict"] for layer in layers] == ["same", "same"] and all(layer["cycles"] for layer in layers)


@pytest.mark.slow
def test_a_board_of_ones_own(two_products_model: Path, port: Path, tmp_path: Path) -> None:
    """A folder with a board.mk; and the registers of an STM32F4, as QEMU has them."""
    need(ARM)
    out = tmp_path / "out"
    deeploy.compile(two_products_model / "two.onnx", "cortex_m4").write(out)
    boards = out / "runtime" / "board" / "boards"
    own = shutil.copytree(boards / "stm32f4", tmp_path / "own")
    with (own / "board.mk").open("a") as file:
        emulator = "qemu-system-arm -machine netduinoplus2"
        file.write(f"BOARD_LOAD = BEFORE='-serial null' sh {boards}/emulate.sh $(BOARD_PORT) $(BOARD_ELF) {emulator}\n")
    got = run_project(out, two_products_model / "inputs.npz", on="board", board=str(own), port=str(port))
    assert got.outputs[0].tobytes() == run_project(out, two_products_model / "inputs.npz").outputs[0].tobytes()


def test_errors_of_boards(two_products_model: Path, tmp_path: Path) -> None:
    need(ARM)
    out = tmp_path / "out"
    deeploy.compile(two_products_model / "two.onnx", "cortex_m4").write(out)

    def said(kind: type[Exception], text: str, **options: str) -> None:
        with pytest.raises(kind, match=text):
            run_project(out, two_products_model / "inputs.npz", on="board", **options)  # type: ignore[arg-type]

    said(UsageError, "needs a board")
    said(UsageError, "no such board", board="none")
    said(UsageError, "programs of cortex_m4 do not run there", board="qemu_rv32")
    said(BuildError, "(?s)cannot be loaded.*there, and no emulator's", board="qemu_mps2", port=str(two_products_model / "two.onnx"))
    said(
        BuildError, "(?s)load .*application.elf with a tool of its maker", board=str(silent(out, tmp_path)), port=str(tmp_path / "nothing")
    )
    shutil.copytree(tmp_path / "silent", tmp_path / "two words")
    said(UsageError, "spaces", board=str(tmp_path / "two words"), port=str(tmp_path / "nothing"))
    deeploy.compile(two_products_model / "two.onnx", "generic").write(tmp_path / "flat")
    with pytest.raises(UsageError, match="target generic has no boards"):
        run_project(tmp_path / "flat", two_products_model / "inputs.npz", on="board", board="qemu_mps2")
    refused = CliRunner().invoke(cli.app, ["run", str(out), "--inputs", str(two_products_model / "inputs.npz"), "--board", "x"])
    assert isinstance(refused.exception, UsageError) and "without --on board" in refused.exception.what


@pytest.mark.parametrize("sequence", [False, True])
def test_a_sequence_begins_once(sequence: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that belong together go on from each other's states; others begin anew."""
    began = []

    class Line(link.HostLine):
        def __init__(self) -> None:
            pass

        def write(self, data: bytes) -> None:
            assert data == b"\x01"

        def run(self, is_anew: bool, seconds: float, has_snapshots: bool = False) -> link.Ran:
            began.append(is_anew)
            return link.Ran(10, b"")

        def read(self, count: int) -> bytes:
            return bytes(count)

        def cycles(self, layers: int) -> list[int]:
            return [10] * layers

    @contextmanager
    def program(*_: object) -> Iterator[tuple[link.HostLine, link.Facts]]:
        yield Line(), link.Facts(1, 1, 10**6, 1, 1, 0, 0)

    monkeypatch.setattr(board.Board, "_program", program)
    port = {"name": "y", "type": "s8", "shape": []}
    entry = {"inputs": [port], "outputs": [port], "calls": []}
    found = board.Board().run(Path("out"), entry, [[np.array(1, np.int8)]] * 3, sequence)
    assert began == [True, not sequence, not sequence] and found.cycles == (10, 10, 10)


def silent(out: Path, tmp_path: Path) -> Path:
    """A board that no tool loads programs onto."""
    own = shutil.copytree(out / "runtime/board/boards/stm32f4", tmp_path / "silent")
    rules = (own / "board.mk").read_text()
    (own / "board.mk").write_text("\n".join(line for line in rules.splitlines() if not re.match("BOARD_(OPENOCD|PYOCD)", line)))
    return own


@pytest.mark.slow
def test_a_program_that_needs_more_memory_than_the_board(two_products_model: Path, port: Path, tmp_path: Path) -> None:
    need(ARM)
    out = tmp_path / "out"
    deeploy.compile(two_products_model / "two.onnx", "cortex_m4").write(out)
    own = shutil.copytree(out / "runtime" / "board" / "boards" / "qemu_mps2", tmp_path / "small")
    boards = out / "runtime/board/boards"
    with (own / "board.mk").open("a") as file:
        file.write("BOARD_LAYOUT += -UHEAP_END_LESS '-DHEAP_END_LESS=- 653000'\n")
        file.write(f"BOARD_LOAD = sh {boards}/emulate.sh $(BOARD_PORT) $(BOARD_ELF) $(QEMU_RUN)\n")
    with pytest.raises(FitError, match="no room in memory"):
        run_project(out, two_products_model / "inputs.npz", on="board", board=str(own), port=str(port))


@pytest.mark.slow
def test_a_board_says_what_kernels_take(two_products_model: Path, port: Path, tmp_path: Path) -> None:
    need(ARM)
    command = [
        "calibrate",
        str(two_products_model / "two.onnx"),
        "-t",
        "cortex_m4",
        "--board",
        "qemu_mps2",
        "--port",
        str(port),
        "-o",
        str(tmp_path / "t.toml"),
    ]
    said = CliRunner().invoke(cli.app, command)
    assert said.exit_code == 0 and "matmul" in said.output, said.output
    compiled = deeploy.compile(two_products_model / "two.onnx", replace(load("cortex_m4"), timing=load_timing(tmp_path / "t.toml")))
    assert compiled.plan.target.timing is not None and compiled.plan.target.timing.mhz == 25
    assert compiled.plan.prediction is not None and compiled.plan.prediction.cycles > 0


class Damaged:
    """A serial line that loses or changes one byte in ``often``, in both directions."""

    def __init__(self, line: serial.Serial, often: int) -> None:
        self.line, self.often, self.damages, self.random = line, often, 0, random.Random(5)

    @property
    def timeout(self) -> float | None:
        return self.line.timeout

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self.line.timeout = seconds

    def _through(self, data: bytes) -> bytes:
        kept = bytearray()
        for byte in data:
            is_damaged = self.random.randrange(self.often) == 0
            self.damages += is_damaged
            if not is_damaged or self.damages % 2:
                kept.append(byte ^ 0x20 * is_damaged)
        return bytes(kept)

    def read(self, size: int = 1) -> bytes:
        return self._through(self.line.read(size))

    def write(self, data: bytes, /) -> int | None:
        return self.line.write(self._through(data))


@pytest.fixture
def program(two_products_model: Path, port: Path, tmp_path: Path) -> Path:
    """The project of a program that runs at ``port``."""
    need(ARM)
    out = tmp_path / "out"
    deeploy.compile(two_products_model / "two.onnx", "cortex_m4").write(out)
    run_project(out, two_products_model / "inputs.npz", on="board", board="qemu_mps2", port=str(port))
    return out


@pytest.mark.slow
def test_damaged_messages_are_sent_again(program: Path, two_products_model: Path, port: Path) -> None:
    sample = np.load(two_products_model / "inputs.npz")["x"][0]
    want = run_project(program, two_products_model / "inputs.npz").outputs[0][0].tobytes()
    with serial.Serial(str(port), 115200) as line:
        link.HostLine(line).hello()  # an emulator needs a second to see that the line was opened
        damaged = Damaged(line, 3000)
        talk = link.HostLine(damaged)
        for _ in range(4):
            talk.hello()
            talk.write(sample.tobytes())
            talk.run(True, 5.0)
            assert talk.read(len(want)) == want
        assert damaged.damages > 2
        with pytest.raises(link.NoAnswer):
            link.HostLine(Damaged(line, 7)).hello()


@pytest.mark.slow
def test_a_request_that_comes_again_is_not_done_again(program: Path, port: Path) -> None:
    with serial.Serial(str(port), 115200) as line:
        talk = link.HostLine(line)
        first = talk.run(True, 5.0).cycles
        talk._number -= 1  # the host lost the answer, and asks the same once more
        assert talk.run(True, 5.0).cycles == first
        assert {talk.run(True, 5.0).cycles for _ in range(8)} != {first}


# what the runner sends for these, at least: the element type of its files, and how bytes become real values
BENCHMARKS = {
    "kws01": ("kws_int8_qdq_pc", "-DMLPERF_VALUES -DMLPERF_SIGNED -DMLPERF_SCALE=0.5 -DMLPERF_OFFSET=-83"),
    "ic01": ("ic_int8_qdq_pc", "-DMLPERF_VALUES"),
    "vww01": ("vww_fp32", "-DMLPERF_VALUES -DMLPERF_SCALE=0.00392156862745098"),
    "ad01": ("ad_int8_qdq_pc", "-DMLPERF_ANOMALY"),
    "sww01": ("", "-DMLPERF_VALUES -DMLPERF_SIGNED -DMLPERF_SCALE=0.03125"),  # of its published structure, a column of features for a call
}


def command(line: serial.Serial, text: str) -> list[str]:
    """The answer to a command, line by line, as the runner of MLPerf Tiny reads it."""
    line.write(f"{text}%".encode())
    lines: list[str] = []
    while not lines or "m-ready" not in lines[-1]:
        got = line.readline()
        assert got.endswith(b"\r\n"), (text, lines, got)
        lines.append(got.decode().strip())
    return lines[:-1]


@pytest.mark.parametrize("benchmark", [pytest.param(name, marks=[pytest.mark.slow] if name == "vww01" else []) for name in BENCHMARKS])
def test_mlperf_tiny(benchmark: str, port: Path, tmp_path: Path, shared_models: Path) -> None:
    """The commands of the runner, on two golden samples: results are those of the network on the host."""
    need(ARM)
    name, defines = BENCHMARKS[benchmark]
    path, out, fed = shared_models / "mlperf_tiny" / name / "network.onnx", tmp_path / "out", list[np.ndarray]()
    if not name:
        path = quantise_network(save_network("wake_word", tmp_path / "float.onnx"), tmp_path / "int8.onnx")
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    deeploy.compile(path, "cortex_m4", stream=None if name else "x0.2=1").write(out)
    options = ["BOARD=qemu_mps2", f"BOARD_PORT={port}", "BOARD_PROGRAM=mlperf", f"DEFINES=-DMLPERF_MODEL={benchmark} {defines}"]
    done = subprocess.run(["make", "-s", "-C", str(out), *options, "load-board"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (entry,) = json.loads((out / "deploy.json").read_text())["inputs"]
    rng = np.random.default_rng(1)
    with serial.Serial(str(port), 115200, timeout=20) as line:
        line.write(b"%")  # what the program printed when it began may have come before the line was opened
        while "Unknown command" not in line.readline().decode():
            pass
        assert line.readline() == b"m-ready\r\n"
        assert command(line, "name") == ["m-name-dut-[deeploy]"]
        assert f"m-model-[{benchmark}]" in command(line, "profile")
        for _ in range(2):
            if benchmark == "ad01":
                values = rng.normal(size=entry["shape"]).astype(np.float32)
                data = values.tobytes()
            else:
                is_signed = "SIGNED" in defines
                codes = rng.integers(-128 if is_signed else 0, 128 if is_signed else 256, entry["shape"])
                data = codes.astype(np.int8 if is_signed else np.uint8).tobytes()
                scale, offset = (
                    np.float32(re.search(rf"{key}=(\S+)", defines + f" -D{key}={usual}")[1]) for key, usual in (("SCALE", 1), ("OFFSET", 0))
                )  # type: ignore[index]
                values = (scale * (codes.astype(np.float32) + offset)).astype(np.float32)
            assert command(line, f"db load {len(data)}") == [f"m-[Expecting {len(data)} bytes]"]
            parts = [data[at : at + 31] for at in range(0, len(data), 31)]
            answers = [command(line, f"db {part.hex()}") for part in parts]
            assert answers == [[]] * (len(parts) - 1) + [["m-load-done"]]
            assert command(line, "db print 4 2") == ["m-buffer-" + data[2:6].hex("-")]
            said = command(line, "infer 2 1")
            laps = [int(text.removeprefix("m-lap-us-")) for text in said if text.startswith("m-lap-us-")]
            assert len(laps) == 2 and laps[0] < laps[1]
            (results,) = (text for text in said if text.startswith("m-results-["))
            fed = [*([] if name else fed), *[values] * (1 if name else 3)]  # what streams goes on from inference to inference
            np.savez(tmp_path / "fed.npz", **{entry["name"]: np.stack(fed)})
            want = run_project(out, tmp_path / "fed.npz", sequence=not name).outputs[0][-1]
            got = np.array([float(text) for text in results[len("m-results-[") : -1].split(",")])
            if benchmark == "ad01":
                want = np.mean((want.astype(np.float64) - values) ** 2)
            np.testing.assert_allclose(got, np.ravel(want), atol=1e-6, rtol=1e-6)
            assert command(line, "results") == [results]
        assert command(line, "db load 99999999")[0].startswith("e-[") and command(line, "db load 1")
        assert command(line, "infer 1 0") == ["e-[the bytes that were loaded are no input of this network]"]
        assert command(line, "db 0g") == ["e-[no hexadecimal digits]"] and command(line, "fly") == ["e-[Unknown command: fly]"]
