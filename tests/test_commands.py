"""Commands beside compiling: comparisons, build files, what a machine has, sizes; and the same from Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy import api
from deeploy.cli import app
from deeploy.cli.build_file import build_schema
from deeploy.errors import UnsupportedError, UsageError
from deeploy.execution.runners.doctor import examine_tools
from deeploy.options import Options, list_options
from deeploy.options.texts import parse_size
from deeploy.schemas import SCHEMAS
from tests.execution.simulation.nets import convolutions
from tests.models import model_of
from tests.report.browser import shown


def run(*words: str | Path, status: int = 0) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if status == 0 and done.exception is not None:
        raise done.exception
    assert done.exit_code == status, done.output
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two projects of one network, of which ``small`` has less memory, and its model."""
    folder = tmp_path_factory.mktemp("commands")
    convolutions(folder, Options())
    for name, size in (("small", "2500"), ("large", "16k")):
        run("compile", folder / "model.onnx", "-t", "siracusa", "--engines", "cluster", "--l1", size, "-o", folder / name)
    return folder


@pytest.mark.parametrize(("given", "wanted"), [("64k", 65536), ("1M", 2**20), ("7", 7), (12, 12), ("2 KiB".replace(" ", ""), 2048)])
def test_sizes(given: str | int, wanted: int) -> None:
    assert parse_size(given, "--l1 ") == wanted


@pytest.mark.parametrize("given", ["", "k", "-1", "1.5k", "64q", "1e3", "9" * 30, "٣"])
def test_what_is_no_size(given: str) -> None:
    with pytest.raises(UsageError, match=r"--l1 .*no size from 0 to"):
        parse_size(given, "--l1 ")


def test_sizes_reach_the_plan(folder: Path) -> None:
    assert json.loads((folder / "large" / "deploy.json").read_text())["memory"]["L1"]["capacity"] == 16384
    compiled = deeploy.compile(folder / "model.onnx", "siracusa", l1="16k", memory={"L2": "1M"}, engines=("cluster",))
    assert [compiled.memory[level].capacity for level in ("L1", "L2")] == [16384, 2**20]


def test_a_comparison_says_what_changed_and_why(folder: Path) -> None:
    found = json.loads(run("compare", folder / "small", folder / "large", "--json"))
    before, after = (json.loads((folder / name / "deploy.json").read_text()) for name in ("small", "large"))
    figures = {row["name"]: (row["before"], row["after"]) for row in found["figures"]}
    assert figures["cycles"] == (before["cycles"], after["cycles"]) and before["cycles"] > after["cycles"]
    assert {"name": "L1, bytes", "before": 2500, "after": 16384} in found["options"]
    changes = [abs(layer["change"]) for layer in found["layers"]]
    assert changes == sorted(changes, reverse=True) and changes[0] > 0
    assert sum(layer["change"] for layer in found["layers"]) == pytest.approx(after["cycles"] - before["cycles"], abs=len(changes) + 1)
    assert all(layer["why"] for layer in found["layers"])
    assert any("instead of" in reason for layer in found["layers"] for reason in layer["why"])


def test_a_comparison_with_itself_is_empty(folder: Path) -> None:
    assert json.loads(run("compare", folder / "small", folder / "small", "--json"))["layers"] == []
    assert "no layer differs" in run("compare", folder / "small", folder / "small")


def test_a_comparison_is_a_page_as_well(folder: Path, tmp_path: Path) -> None:
    text = run("compare", folder / "small", folder / "large", "-o", tmp_path / "page.html")
    found = json.loads(run("compare", folder / "small", folder / "large", "--json"))
    document = shown((tmp_path / "page.html").read_text(), tmp_path)
    (table,) = document.find("table", "id", "layers")
    rows = table.all("tr")[1:]
    assert len(rows) == len(found["layers"]) > 1
    for row, layer in zip(rows, found["layers"], strict=True):
        assert row.all("td")[4].text == "; ".join(layer["why"])
        assert layer["node"][:10] in text


def test_a_project_says_how_it_was_compiled(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    run("compile", "--config", folder / "small" / "deeploy.toml", "-o", tmp_path / "elsewhere" / "again")
    first, again = folder / "small", tmp_path / "elsewhere" / "again"
    files = {path.relative_to(first) for path in first.rglob("*") if path.is_file()} - {Path("deeploy.toml"), Path("timings.json")}
    assert len(files) > 8
    assert [file for file in files if (first / file).read_bytes() != (again / file).read_bytes()] == []
    run("compile", "--config", folder / "small" / "deeploy.toml", "--l1", "16k", "-o", tmp_path / "larger")
    assert (tmp_path / "larger" / "deploy.json").read_bytes() == (folder / "large" / "deploy.json").read_bytes()


def test_a_build_file_needs_its_models_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "deeploy.toml").write_text(f'target = "generic"\n[models]\nmodel = "{folder / "model.onnx"}"\n')
    run("compile", "--config", tmp_path / "deeploy.toml", "-o", tmp_path / "out")
    assert (tmp_path / "out" / "deploy.json").exists()


def test_a_build_file_names_what_it_does_not_know(folder: Path, tmp_path: Path) -> None:
    text = (folder / "small" / "deeploy.toml").read_text()
    (tmp_path / "deeploy.toml").write_text("l3 = 5\n" + text)
    with pytest.raises(UsageError, match="l3"):
        run("compile", "--config", tmp_path / "deeploy.toml", "-o", tmp_path / "out")
    with pytest.raises(UsageError, match="no model is named"):
        run("compile", "-o", tmp_path / "out")


def test_the_schema_of_build_files_has_the_options_as_they_are_stated() -> None:
    """``python -c "from deeploy.cli.build_file import write_schema as write; write()"`` writes it anew."""
    assert SCHEMAS["deeploy.toml"] == build_schema()
    assert {option.key for option in list_options()} | {"models", "sha256", "version"} == set(build_schema()["properties"])


def test_the_doctor_tells_what_is_there() -> None:
    tools = {tool.name: tool for tool in examine_tools()}
    assert {"cmake", "ai_edge_litert"} <= tools.keys() and tools["gcc"].found and tools["make"].found and tools["gcc"].version
    assert all(bool(tool.remedy) != bool(tool.found) and tool.enables for tool in tools.values())
    told = json.loads(run("doctor", "--json"))
    assert [entry["name"] for entry in told] == list(tools)
    assert "deeploy run" in run("doctor")


@pytest.fixture(scope="module")
def symbolic(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", n, "width"])] for name, n in (("x", 3), ("y", 3))]
    weight = numpy_helper.from_array(np.ones(1, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"], "scale")], "g", *sides, [weight])
    return model_of(graph)


def test_what_a_symbolic_model_needs_is_shown(symbolic: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(symbolic, tmp_path / "m.onnx")
    text = run("inspect", tmp_path / "m.onnx")
    assert "input x: float['batch', 3, 'width']" in text and "Mul" in text
    assert text.rstrip().endswith("compile with: --dim batch=1 --dim width=16")
    found = json.loads(run("inspect", tmp_path / "m.onnx", "--json", "--dim", "batch=1"))
    assert found["flags"] == ["--dim", "width=16"]
    assert "flags" not in json.loads(run("inspect", tmp_path / "m.onnx", "--json", "--dim", "batch=1", "--dim", "width=4"))


def test_models_in_memory_are_compiled(symbolic: onnx.ModelProto) -> None:
    stages: list[str] = []
    compiled = deeploy.compile(symbolic, dims={"batch": 1, "width": 4}, on_stage=stages.append)
    assert "plan" in stages
    assert repr(compiled) == "<Compiled model.onnx for generic: 1 layers>"
    assert compiled._repr_html_().startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    assert np.array_equal(compiled.run([x])[0], x)
    assert api.inspect(symbolic, dims={"batch": 1, "width": 4})["nodes"] == 1


def test_what_is_no_model_is_refused() -> None:
    wrong: Any = 5
    with pytest.raises(UsageError, match="int is no model"):
        deeploy.compile(wrong)


def test_a_report_has_what_would_help(folder: Path) -> None:
    assert [found["kind"] for found in api.report(folder / "small")["advice"]] == ["quantise"]
    assert CliRunner().invoke(app, ["advise", str(folder / "small")]).exit_code == 0
    assert {found["kind"] for found in api.report(folder / "small")["advice"]} >= {"memory"}


def test_quantise_verify_and_evaluate_from_python(folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    numbers = np.random.default_rng(2)
    samples = {"x": numbers.uniform(-1, 1, (6, 1, 3, 27, 22)).astype(np.float32)}
    source = onnx.load(folder / "model.onnx")
    source.ir_version = 8
    model = deeploy.quantize(source, {"x": samples["x"][:, 0]})
    assert any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    compiled = deeploy.compile(model, "siracusa")
    verdict = api.verify(compiled, model, {"x": samples["x"][:2]})
    assert verdict.passed and len(verdict.comparisons) == 2
    found = api.evaluate(compiled, samples, np.zeros((6, 1, 12, 14, 11), np.float32), metric="mse", model=model)
    assert dict(found.values).keys() and found.samples == 6


def test_the_interface_is_listed() -> None:
    assert {"compile", "quantize", "inspect", "Compiled", "Options"} <= set(dir(deeploy))
    assert all(callable(getattr(api, name)) for name in api.__all__)


def test_every_command_prints_json() -> None:
    import typer

    group: Any = typer.main.get_command(app)
    commands = {**group.commands, **{f"target {name}": command for name, command in group.commands["target"].commands.items()}}
    del commands["target"]
    assert len(commands) > 12
    assert [name for name, command in commands.items() if "as_json" not in {p.name for p in command.params}] == []


def test_pytorch_modules_are_exported_as_they_are_used(symbolic: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PyTorch: a module of that name stands for it, whose exporter writes a known model."""
    import sys
    import types

    class Module:
        training = True

        def train(self, mode: bool = True) -> None:
            self.training = mode

    Module.__module__ = "torch.nn.modules.module"
    told: list[tuple[bool, tuple[int, ...]]] = []

    def export(model: Module, inputs: tuple[int, ...], path: str, verbose: bool) -> None:
        assert not verbose
        told.append((model.training, inputs))
        onnx.save(symbolic, path)

    torch: Any = types.ModuleType("torch")
    torch.onnx = types.SimpleNamespace(export=export)
    monkeypatch.setitem(sys.modules, "torch", torch)
    model = Module()
    with pytest.raises(UsageError, match="exported by running it once"):
        deeploy.compile(model)
    compiled = deeploy.compile(model, example_inputs=(1, 2), dims={"batch": 1, "width": 4})
    assert len(compiled.network.program.calls) == 1
    assert told == [(False, (1, 2))] and model.training

    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("no module", name="onnxscript")

    torch.onnx.export = missing
    with pytest.raises(UsageError, match="exporter needs onnxscript"):
        deeploy.compile(model, example_inputs=())
    torch.onnx.export = lambda *_, **__: (_ for _ in ()).throw(RuntimeError("no such operator"))
    with pytest.raises(UnsupportedError, match="cannot export Module: no such operator"):
        deeploy.compile(model, example_inputs=())
    assert model.training
