"""The command as a user runs it: numbers, report, sweeps that resume, errors of two lines."""

from __future__ import annotations

import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from deeploy.explore import networks, sweep
from deeploy.explore.hardware import load_hardware
from deeploy.ir.loops import LayerLoops
from deeploy.jobs import workers
from tests.command import deeploy_cli

ROOT = Path(__file__).parents[2]
HARDWARE = ROOT / "examples" / "hardware" / "array256_bw512.toml"
MOBILEVIT = ROOT / "examples" / "layers" / "mobilevit_s.json"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return deeploy_cli("explore", *arguments, cwd=ROOT)


def explored(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network as a list of layers."""
    path = tmp_path_factory.mktemp("suite") / "small.json"
    layers = [
        LayerLoops("stem <b>", (1, 16, 3, 16, 16, 3, 3), (2, 2)),
        LayerLoops("pointwise", (1, 32, 16, 16, 16, 1, 1), count=3),
        LayerLoops("depthwise", (32, 1, 1, 16, 16, 3, 3), count=2),
    ]
    networks.save_layers(path, layers, "test")
    return path


class Page(HTMLParser):
    """Elements by name, and text outside of style."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def count(self, kind: str) -> int:
        return sum(attributes.get("class") == kind for _, attributes in self.elements)


def test_mobilevit_on_256_elements() -> None:
    study = explored(MOBILEVIT, "--hardware", HARDWARE)
    assert study["factorisations"] == {"all": 3003, "useful": 2105, "evaluated": 804, "pruned": True}
    assert study["pairs"] == 804 * 47
    one, two = study["sets"]
    assert (one["configs"], two["configs"]) == (1, 2)
    factors = one["unrollings"][0]["factors"]
    assert factors["OX"] * factors["OY"] >= 16
    assert factors["FX"] * factors["FY"] == 1
    assert sorted(max(u["factors"]["FX"], u["factors"]["FY"]) > 1 for u in two["unrollings"]) == [False, True]
    assert 1.2 < two["gain"] == pytest.approx(one["edp"] / two["edp"])
    assert sum(y["count"] for y in study["layers"]) == 108
    for entry in study["sets"]:
        total = sum(use["cycles"] * y["count"] for use, y in zip(entry["layers"], study["layers"], strict=True))
        assert total == pytest.approx(entry["cycles"])
    points = study["tradeoff"]
    assert [p["overhead_gates"] for p in points] == sorted({p["overhead_gates"] for p in points})
    assert [p["edp"] for p in points] == sorted((p["edp"] for p in points), reverse=True)
    assert points[0]["edp"] == one["edp"]


def test_the_summary_says_what_was_counted(suite: Path) -> None:
    result = run(suite, suite, "--hardware", HARDWARE, "--configs", "3", "--objective", "latency")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "array256_bw512: 256 elements, 3 different layers"
    assert lines[1].startswith("3003 factorisations, ")
    assert [line.split(":")[0] for line in lines if "gain" in line] == ["1 unrolling", "2 unrollings", "3 unrollings"]


def test_the_report_shows_everything(suite: Path, tmp_path: Path) -> None:
    result = run(suite, "--hardware", HARDWARE, "--configs", "3", "-o", tmp_path / "out")
    assert result.stdout.splitlines()[-1] == f"wrote {tmp_path / 'out' / 'report.html'}"
    study = json.loads((tmp_path / "out" / "explore.json").read_text())
    page = Page()
    page.feed((tmp_path / "out" / "report.html").read_text())
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert ids == ["theme", "unrollings", "sets", "tradeoff", "layers"]
    assert page.count("bar-edp") == len(study["sets"]) == 3
    assert page.count("empty") == 3 * 3
    assert sum(name == "circle" for name, _ in page.elements) == len(study["tradeoff"])
    assert "stem <b>" in page.text
    assert not any(name in ("b", "script") and attributes for name, attributes in page.elements)
    assert f"{study['sets'][1]['gain']:.3f}" in page.text


def test_a_sweep_resumes(suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = networks.load_layers(suite)
    points = sweep.parameter_grid(["pes=16,64", "memory.top.bandwidth=128,512"])
    assert points[1] == {"pes": 16.0, "memory.top.bandwidth": 512.0}
    folder = tmp_path / "results"
    with workers(2):
        first = sweep.sweep_points(layers, HARDWARE, points, 2, "edp", True, folder)
    assert [row["pes"] for row in first] == [16, 16, 64, 64]
    files = sorted(folder.iterdir())
    assert len(files) == 4
    files[0].unlink()  # as if interrupted before this one
    computed, study = [], sweep.compute_point
    monkeypatch.setattr(sweep, "compute_point", lambda task: computed.append(task) or {**study(task), "hardware": "again"})
    again = sweep.sweep_points(layers, HARDWARE, points, 2, "edp", True, folder)
    assert len(computed) == 1
    assert sum(row["hardware"] == "again" for row in again) == 1
    assert sum(one == other for one, other in zip(first, again, strict=True)) == 3
    assert sorted(folder.iterdir()) == files
    for damaged in ("{", "1", json.dumps({**json.loads(files[1].read_text()), "sets": []})):  # computed again
        computed.clear()
        files[1].write_text(damaged)
        sweep.sweep_points(layers, HARDWARE, points, 2, "edp", True, folder)
        assert len(computed) == 1
    computed.clear()
    sweep.sweep_points(layers, HARDWARE, points, 3, "edp", True, folder)
    assert len(computed) == 4  # another question: nothing is reused


def test_results_are_reused_for_the_same_question_only(suite: Path) -> None:
    layers, hardware = networks.load_layers(suite), load_hardware(HARDWARE, {})
    others: dict[str, tuple[object, ...]] = {
        "layers": (layers[1:], hardware, 2, "edp", True),
        "hardware": (layers, load_hardware(HARDWARE, {"pes": 16.0}), 2, "edp", True),
        "sizes": (layers, hardware, 3, "edp", True),
        "objective": (layers, hardware, 2, "latency", True),
        "pruning": (layers, hardware, 2, "edp", False),
    }
    digests = {name: sweep.task_digest(task) for name, task in others.items()}  # type: ignore[arg-type]
    assert len({*digests.values(), sweep.task_digest((layers, hardware, 2, "edp", True))}) == len(others) + 1
    assert sweep.task_digest((list(layers), load_hardware(HARDWARE, {}), 2, "edp", True)) == sweep.task_digest(
        (layers, hardware, 2, "edp", True)
    )


def test_a_sweep_from_the_command_line(suite: Path) -> None:
    rows = explored(suite, "--hardware", HARDWARE, "--vary", "memory.*.bandwidth=128,256", "--jobs", 1, "--configs", 1)
    assert [row["point"] for row in rows] == [{"memory.*.bandwidth": 128.0}, {"memory.*.bandwidth": 256.0}]
    assert rows[0]["sets"][0]["edp"] > rows[1]["sets"][0]["edp"]
    result = run(suite, "--hardware", HARDWARE, "--vary", "pes=16,32", "--jobs", 1)
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == ["pes 16", "pes 32"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hardware", "none.toml"], "error: there is no hardware file none.toml"),
        (["--hardware", HARDWARE, "--objective", "area"], "error: --objective area is unknown"),
        (["--hardware", HARDWARE, "--configs", "0"], "error: --configs 0 is out of range"),
        (["--hardware", HARDWARE, "--vary", "pes"], "error: --vary pes is not of the form FIELD=NUMBER"),
        (["--hardware", HARDWARE, "--vary", "pes=2", "--vary", "pes=4"], "error: --vary pes=4 is not of the form"),
        (["--hardware", HARDWARE, "--vary", "rows=2"], "error: rows is no field of"),
        (["--hardware", HARDWARE, "--vary", "pes=2.5"], f"error: {HARDWARE}: pes is 2.5, not a whole number"),
        (["--hardware", HARDWARE, "--vary", "pes=2", "-o", "out"], "error: --output, --write-engine and --emit-target show"),
        (["--hardware", HARDWARE, "--emit-target", "tests"], "error: tests exists and holds no target that was emitted"),
        (["--hardware", HARDWARE, "--cost", "guess"], "error: --cost guess is unknown"),
        (["--hardware", HARDWARE, "--vary", "pes=2", "--cost", "zigzag"], "error: --cost zigzag with --vary"),
        (["--hardware", HARDWARE, "-o", "tests"], "error: tests exists and holds no study"),
        (["--hardware", HARDWARE, "-o", "Makefile"], "error: Makefile exists and is not a folder"),
        (["--hardware", HARDWARE, "--jobs", "0"], "error: --jobs 0 is no number of processes"),
        (["--hardware", HARDWARE, "--results", "out"], "error: --results belongs to a sweep"),
        (["--hardware", HARDWARE, "--vary", "pes=16,9973", "--jobs", "2"], "error: no spatial unrolling fills 9973 elements"),
    ],
)
def test_errors_have_two_lines(suite: Path, arguments: list[object], message: str) -> None:
    result = run(suite, *arguments)
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert lines[0].startswith(message)
    assert len(lines) == 2


def test_a_model_that_is_missing(tmp_path: Path) -> None:
    result = run(tmp_path / "none.onnx", "--hardware", HARDWARE)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 2)
