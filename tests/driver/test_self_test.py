"""Self-tests that run on the device: every layer's result beside the reference's, here, under QEMU and on a board that it stands for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy import cli
from deeploy.driver.verify import verify_compiled
from deeploy.errors import UsageError
from tests.e2e import decoders
from tests.models import save_graph
from tests.random.projects import base

RUN = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of convolutions, with a softmax at its end, and two samples of it."""
    folder, rng = tmp_path_factory.mktemp("self_test"), np.random.default_rng(5)
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in (("image", [1, 2, 12, 12]), ("scores", [1, 6]))]
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w2"], ["b"], "second"),
        helper.make_node("GlobalAveragePool", ["b"], ["c"], "pool"),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Softmax", ["d"], ["scores"], "soft"),
    ]
    weights = [
        numpy_helper.from_array(rng.normal(size=s).astype(np.float32) / 4, n) for n, s in (("w1", (4, 2, 3, 3)), ("w2", (6, 4, 3, 3)))
    ]
    graph = helper.make_graph(nodes, "g", *ends, weights)
    save_graph(graph, folder / "m.onnx", 13)
    np.savez(folder / "in.npz", image=rng.normal(size=(2, 1, 2, 12, 12)).astype(np.float32))
    return folder


def _compiled(folder: Path, out: Path, target: str = "generic", **options: object) -> Path:
    deeploy.compile(folder / "m.onnx", target, self_test=str(folder / "in.npz"), **options).write(out)  # type: ignore[arg-type]
    return out


def _told(out: Path, *options: str, status: int = 0) -> dict[str, str]:
    """What ``deeploy run --layers`` says of every layer."""
    said = RUN.invoke(cli.app, ["run", str(out), "--layers", "--json", *options])
    assert said.exit_code == status, said.output
    told = json.loads(said.output)
    assert told["passed"] is (status == 0) and told["unit"] == ("cycles" if "--on" in options else "nanoseconds")
    assert all(told["unit"] in layer for layer in told["layers"])
    return {layer["name"]: layer["verdict"] for layer in told["layers"]} | {"first": told["first"]}


def _damage(out: Path, constant: str) -> None:
    """Another first element of a constant."""
    source = out / "src/network_weights.c"
    text, count = re.subn(rf"(network_constant_{constant}\[\d+\] = \{{\n\s*)[^,]+", r"\g<1>7.0f", source.read_text())
    assert count == 1
    source.write_text(text)


@pytest.mark.parametrize("objective", ["cycles", "ram"])  # with one, layers are fused
def test_every_layer_is_compared_and_the_first_that_differs_is_named(objective: str, folder: Path, tmp_path: Path) -> None:
    out = _compiled(folder, tmp_path / "out", objective=objective)
    assert _told(out).pop("soft") == "same"  # exponentials are the project's own
    verdicts = _told(out)
    assert objective == "ram" or [verdicts[name] for name in ("first", "second", "pool")] == [None, "same", "same"]
    assert verdicts["pool"] == "same"
    _damage(out, "w2")
    verdicts = _told(out, status=1)
    assert verdicts["first"] == "second" and verdicts["pool"] == "differs"


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.share(0.25)
def test_layers_of_any_network_are_those_of_the_reference(seed: int, tmp_path: Path) -> None:
    case = base(seed)
    onnx.save(case.model, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", **case.inputs)
    out = _compiled(tmp_path, tmp_path / "out", input_types=case.types, objective="ram" if seed % 2 else "cycles", certify=False)
    assert {*_told(out).values()} <= {"same", "unchecked", None}


def test_a_network_with_states_begins_without_rows(tmp_path: Path) -> None:
    shutil.copy(decoders.decoder(tmp_path, 1), tmp_path / "m.onnx")
    steps = decoders.steps(2, 1, 8)
    shared = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
    np.savez(tmp_path / "in.npz", **shared)
    verdicts = _told(_compiled(tmp_path, tmp_path / "out", context=8))
    assert "same" in verdicts.values() and "differs" not in verdicts.values()


@pytest.mark.skipif(
    shutil.which("arm-none-eabi-gcc") is None or shutil.which("qemu-system-arm") is None, reason="no compiler or QEMU for Arm"
)
def test_it_runs_under_qemu_and_a_log_of_it_is_read(folder: Path, tmp_path: Path) -> None:
    out = _compiled(folder, tmp_path / "out", "cortex_m4")
    assert _told(out, "--on", "qemu")["pool"] == "same"
    _damage(out, "w1")
    assert _told(out, "--on", "qemu", status=1)["first"] == "first"
    (build,) = [path for path in (out / "build/qemu").iterdir() if "SELF_TEST" in path.name]
    options = [f"QEMU_BUILD=build/qemu/{build.name}", "DEFINES=-DNETWORK=0 -DSELF_TEST=network_test"]
    log = subprocess.run(["make", "-s", "-C", str(out), *options, "run-qemu"], capture_output=True, text=True, check=True)
    printed = "".join(f"12:00:01 > {line}\r\n" for line in (log.stdout + log.stderr).splitlines())
    (tmp_path / "log.txt").write_text(f"boot\r\n{printed}")
    said = RUN.invoke(cli.app, ["compare", str(out), str(tmp_path / "log.txt")])
    assert said.exit_code == 1 and said.output.endswith("first layer that differs: first\n")
    for text, words in (
        ("boot", "the log has no self-test of network"),
        (re.sub("begin [0-9a-f]{8}", "begin 00000000", printed), "the log is of another project"),
        (printed[: printed.index(" end ")], "the log is cut off"),
        (printed.replace(" pool ", " poool "), "names a layer poool"),
        (re.sub(r" 0 0 \w+ .* end [^\n]*\n", " failed 4\r\n", printed, flags=re.DOTALL), "an inference failed: 4"),
    ):
        (tmp_path / "log.txt").write_text(text)
        refused = RUN.invoke(cli.app, ["compare", str(out), str(tmp_path / "log.txt")])
        assert isinstance(refused.exception, UsageError) and words in str(refused.exception)


MAIN = """#include <stdio.h>
#include "network.h"
static _Alignas(NETWORK_ARENA_ALIGNMENT) unsigned char arena[NETWORK_ARENA_BYTES + 1];
int main(void) {
    return network_init(arena, sizeof arena) || network_test(putchar, 0);
}
"""


def test_it_is_part_of_one_file(folder: Path, tmp_path: Path) -> None:
    out = _compiled(folder, tmp_path / "out", package="single")
    (out / "single/main.c").write_text(MAIN)
    command = ["gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "network.c", "main.c", "-lm", "-o", "main"]
    subprocess.run(command, cwd=out / "single", check=True)
    said = subprocess.run(["./main"], cwd=out / "single", capture_output=True, text=True, check=True).stdout
    assert said.endswith("deeploy-test network end all equal\n")
    subprocess.run(["gcc", "-c", "-DDEEPLOY_NO_SELF_TEST", "network.c", "-o", "off.o"], cwd=out / "single", check=True)
    assert "network_test" not in subprocess.run(["nm", "off.o"], cwd=out / "single", capture_output=True, text=True, check=True).stdout


def test_a_project_with_one_runs_and_is_verified_as_others(folder: Path, tmp_path: Path) -> None:
    out = _compiled(folder, tmp_path / "out")
    said = RUN.invoke(cli.app, ["run", str(out), "--inputs", str(folder / "in.npz")])
    assert said.exit_code == 0 and "2 samples run on the host" in said.output
    verdict = verify_compiled(deeploy.compile(folder / "m.onnx", self_test=folder / "in.npz"), folder / "m.onnx", layers=True)
    assert verdict.passed and any("agree with the interpreter" in note for note in verdict.notes)


def _size(out: Path, *flags: str) -> int:
    """Bytes of all objects of a project."""
    subprocess.run(["make", "-s", "-C", str(out), "clean", "lib", f"CFLAGS=-O2 {' '.join(flags)}"], check=True)
    sizes = subprocess.run(["size", "-t", str(out / "build/libnetwork.a")], capture_output=True, text=True, check=True).stdout
    return int(sizes.splitlines()[-1].split()[3])


def test_it_takes_nothing_where_it_is_off(folder: Path, tmp_path: Path) -> None:
    deeploy.compile(folder / "m.onnx").write(tmp_path / "without")
    out = _compiled(folder, tmp_path / "out")
    without = _size(tmp_path / "without")
    assert _size(out, "-DDEEPLOY_NO_SELF_TEST") == without < _size(out)


def test_what_has_no_self_test(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="results in several memories"):
        deeploy.compile(folder / "m.onnx", "siracusa", self_test=folder / "in.npz")
    with pytest.raises(UsageError, match="several networks have no self-test"):
        deeploy.compile({"a": folder / "m.onnx", "b": folder / "m.onnx"}, self_test=folder / "in.npz")
    with pytest.raises(UsageError, match="a self-test is of one chip"):
        deeploy.chips.compile(folder / "m.onnx", "generic", chips=2, self_test=folder / "in.npz")
    deeploy.compile(folder / "m.onnx").write(tmp_path / "out")
    both = ["--layers", "--inputs", "in.npz"]
    for options, words in ((["--layers"], "the project has no self-test"), ([], "no inputs are named"), (both, "--inputs with --layers")):
        refused = RUN.invoke(cli.app, ["run", str(tmp_path / "out"), *options])
        assert isinstance(refused.exception, UsageError) and words in str(refused.exception)
    out = _compiled(folder, tmp_path / "tested")
    refused = RUN.invoke(cli.app, ["run", str(out), "--layers", "--on", "gvsoc"])
    assert isinstance(refused.exception, UsageError) and "a self-test runs on host, qemu or board" in str(refused.exception)
