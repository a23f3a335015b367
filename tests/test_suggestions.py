"""What was nearly right is named: words of options, names of inputs, layers and parts; and options that are printed can be pasted."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import deeploy
from deeploy import cli
from deeploy.errors import DeeployError, quote_words
from tests.models import save_graph

RUN = CliRunner()
# What is typed, and what is meant.
COMPILE = [
    *(("--target cortexm4", "cortex_m4"), ("--package cmak", "cmake"), ("--objective cycle", "cycles"), ("--buffering doubl", "double")),
    *(("--dialect intger", "integer"), ("--requantise exat", "exact"), ("--pin imag=1", "image"), ("--input-type imag=int8", "image")),
    *(("--input-type image=int9", "int8"), ("--state imag=y", "image"), ("--dim batc=1", "batch"), ("--memory aren=1k", "arena")),
    *(("--engines clustr -t siracusa", "cluster"), ("--default-memory L22 -t siracusa", "L2"), ("--save-after fus", "fuse")),
    *(("--fix convol.engine=cpu", "convol_1"), ("--chips 2 --partition pipelin", "pipeline")),
]
OTHERS = [
    *(
        ("run OUT --inputs in.npz --on quem", "qemu"),
        ("verify m.onnx --on hots", "host"),
        ("run OUT --inputs in.npz --network netwrk", "network"),
        ("quantize m.onnx --calibrate in.npz -o q.onnx --method percentil", "percentile"),
    ),
    *(("evaluate OUT --inputs in.npz --labels in.npz --metric top", "top1"), ("explain OUT convol_11", "convol_1")),
    *(("targets generc", "generic"), ("run CHIP --inputs in.npz --on board --board stm32f", "stm32f4"), ("inspct m.onnx", "inspect")),
    ("inspect m.onnx --after fus", "fuse"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a symbolic dimension, its projects for two targets, and a sample."""
    folder = tmp_path_factory.mktemp("near")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("image", "y")]
    graph = helper.make_graph([helper.make_node("Softmax", ["image"], ["y"], "convol_1")], "g", ends[:1], ends[1:])
    save_graph(graph, folder / "m.onnx", 13)
    np.savez(folder / "in.npz", image=np.zeros((1, 4), np.float32))
    for name, target in (("OUT", "generic"), ("CHIP", "cortex_m4")):
        deeploy.compile(folder / "m.onnx", target, dims={"batch": 1}).write(folder / name)
    return folder


def _said(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(folder)
    done = RUN.invoke(cli.app, shlex.split(command))
    assert done.exception is not None and done.exit_code != 0
    return str(done.exception) if isinstance(done.exception, DeeployError) else done.output


@pytest.mark.parametrize(("typed", "meant"), COMPILE)
def test_a_value_of_an_option(typed: str, meant: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = "" if "--dim" in typed else " --dim batch=1"
    said = _said(folder, f"compile m.onnx -o other {typed}{fixed}", monkeypatch)
    assert "Did you mean" in said and meant in said.partition("Did you mean")[2].partition("?")[0]
    assert len(said.splitlines()) == 2 and not (folder / "other").exists()


@pytest.mark.parametrize(("command", "meant"), OTHERS)
def test_a_word_of_another_command(command: str, meant: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = _said(folder, command, monkeypatch)
    assert "Did you mean" in said and meant in said.partition("Did you mean")[2].partition("?")[0]


NAMES = ["ba tch's", "seq=len", "$(touch here)", "n\nm", "größe", "--", "a\\b", "\x1b[31m", '"', "?"]


@pytest.mark.parametrize("name", NAMES)
def test_dimensions_are_printed_as_a_shell_takes_them(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, shape) for end, shape in (("x", [name, -1, 2]), ("y", None))]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    save_graph(graph, tmp_path / "m.onnx", 13)
    monkeypatch.chdir(tmp_path)
    line = RUN.invoke(cli.app, ["inspect", "m.onnx"]).output.rstrip().splitlines()[-1].partition("compile with: ")[2]
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout.decode().split("\0")[:-1]
    assert words == ["--dim", f"{name}=16", "--dim", "x:1=16"] and line.isprintable()
    done = RUN.invoke(cli.app, ["compile", "m.onnx", "-o", "out", *words])
    assert done.exit_code == 0, done.output
    refused = RUN.invoke(cli.app, ["compile", "m.onnx", "-o", "out"]).exception
    assert isinstance(refused, DeeployError) and quote_words(["--dim", f"{name}=VALUE"]) in str(refused)
    assert not (tmp_path / "here").exists()
