"""Reports of several chips: one page, one trace and a few lines that agree with deploy.json."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from deeploy.backend.project import read_manifest, select_network
from deeploy.cli import app
from deeploy.driver.verify import run_project
from deeploy.errors import UsageError
from deeploy.report.chips import mean_breakdown, report_system, summarise_system
from deeploy.report.explain_layer import find_explanations
from deeploy.report.page import report_page
from tests.e2e.systems import star, towers
from tests.report.browser import Document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of four chips, three of them alike."""
    path = tmp_path_factory.mktemp("chips")
    star(path, "siracusa", 4).write(path / "out")
    return path / "out"


def test_the_page_shows_all_chips_together_and_each_kind_once(folder: Path) -> None:
    text = (folder / "report.html").read_text()
    assert text.count("<article") == 3
    assert 'data-network="chip0"' in text and 'data-network="chip1"' in text and 'data-network="chip2"' not in text
    picture = text[text.index('id="joint"') :]
    assert all(f">chip {chip}</text>" in picture for chip in range(4))
    assert "waiting for chips" in picture


def test_the_trace_has_a_process_for_every_chip(folder: Path) -> None:
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert sorted(names.values()) == ["chip 0", "chip 1", "chip 2", "chip 3"]
    manifest = read_manifest(folder)
    end = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    assert end == pytest.approx(manifest["microseconds"], abs=0.01)


def test_figures_of_the_system_add_up(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert sum(mean_breakdown(manifest).values()) == pytest.approx(manifest["cycles"])
    energy = manifest["energy"]
    assert manifest["energy_uj"] == pytest.approx(sum(energy.values()), abs=0.01)
    assert manifest["waiting_uj"] > 0
    told = report_system({**manifest, "energy_missing": ["memory WM"]})
    assert (
        f"link {energy['link']:.2f}" in told and "energy is not known of: memory WM" in told and "not known" not in report_system(manifest)
    )
    assert energy["link"] == pytest.approx(manifest["bytes"]["link"] * 100e-6, abs=0.001)
    assert manifest["edp_uj_ms"] == pytest.approx(manifest["energy_uj"] * manifest["microseconds"] / 1000, abs=0.01)
    assert manifest["code"] == [0, 1, 1, 1]
    assert len(manifest["calls"]) == sum(len(entry["calls"]) for entry in manifest["chips"])
    assert manifest["microseconds"] == pytest.approx(manifest["cycles"] / manifest["machine"]["mhz"], abs=0.01)


def test_a_terminal_shows_a_line_per_chip(folder: Path) -> None:
    shown = report_system(read_manifest(folder))
    assert len(re.findall(r"^ +[0-3] +[01] ", shown, re.MULTILINE)) == 4
    assert f"{read_manifest(folder)['cycles']:,}".replace(",", " ") in shown
    short = summarise_system(read_manifest(folder), folder)
    assert "4 x siracusa (2 different)" in short and f"in {len(read_manifest(folder)['messages'])} messages" in short
    assert shown.splitlines()[1] in short and " uJ, EDP " in short


def test_bytes_are_sent_by_one_chip_and_received_by_the_other(folder: Path) -> None:
    messages = [{"from": 0, "to": 2, "bytes": 711}, {"from": 2, "to": 3, "bytes": 322}]
    manifest = {**read_manifest(folder), "messages": messages}
    wanted = [(711, 0), (0, 0), (322, 711), (0, 322)]
    lines = [line for line in report_system(manifest).splitlines() if re.match(r"^ +[0-3] +[01] ", line)]
    assert all(re.search(f" {sent} +{received} ", line) for line, (sent, received) in zip(lines, wanted, strict=True))
    table = Document(report_page(manifest, {}, {})).find("table", "id", "chips")[0]
    heads, *rows = table.all("tr")
    columns = [[cell.text for cell in heads.children].index(name) for name in ("sent", "received")]
    assert [tuple(int(row.children[column].text) for column in columns) for row in rows] == wanted


def test_one_chip_does_not_run_alone(folder: Path) -> None:
    np.savez(folder.parent / "x.npz", x=np.zeros((4, 128), np.float32))
    with pytest.raises(UsageError, match="--network chip1: one chip of several does not run alone"):
        run_project(folder, folder.parent / "x.npz", network="chip1")
    with pytest.raises(UsageError) as caught:
        find_explanations(folder, select_network(read_manifest(folder), "chip3"), "%%%")
    assert "--network chip3 lists the layers" in caught.value.remedy


def test_one_chip_is_shown_and_explained_by_name(folder: Path) -> None:
    shown = CliRunner().invoke(app, ["report", str(folder), "--network", "chip3"])
    assert shown.exit_code == 0 and "MatMul" in shown.output
    layer = next(call["node"] for call in read_manifest(folder)["chips"][3]["calls"] if call["op"] == "MatMul")
    explained = CliRunner().invoke(app, ["explain", str(folder), layer, "--network", "chip3"])
    assert explained.exit_code == 0 and "tiles" in explained.output


def test_the_command_line_cuts_and_compiles(tmp_path: Path) -> None:
    onnx.save(towers(32, 2), tmp_path / "m.onnx")
    done = CliRunner().invoke(app, ["compile", str(tmp_path / "m.onnx"), "-t", "siracusa", "--chips", "2", "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.exception
    assert "for 2 x siracusa" in done.output
    assert len(read_manifest(tmp_path / "out")["chips"]) == 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--chips", "none"], "--chips none: that is not a whole number from 1 to 1024"),
        (["--chips", "0"], "--chips 0: that is not a whole number from 1 to 1024"),
        (["--chips", "auto"], "--chips auto: only pipelines know"),
        (["--chips", "2", "--partition", "rows"], "--partition rows is unknown"),
        (["--chips", "2", "--topology", "none.toml"], "there is no topology file none.toml"),
        (["--topology", "none.toml"], "--topology without --chips"),
        (["--chips", "500"], "500"),
        (["--chips", "2", "--l2", "100"], "chip 0: "),
        (["--chips", "2", "--partition", "pipeline", "--balance", "luck"], "--balance luck is unknown"),
        (["--chips", "40", "--partition", "pipeline"], "40"),
    ],
)
def test_what_cannot_be_cut_is_refused_before_anything_is_written(tmp_path: Path, options: list[str], problem: str) -> None:
    onnx.save(towers(8, 2), tmp_path / "m.onnx")
    command = ["compile", str(tmp_path / "m.onnx"), "-t", "siracusa", "-o", str(tmp_path / "out"), *options]
    done = CliRunner().invoke(app, command)
    assert problem in str(done.exception)
    assert len(str(done.exception).splitlines()) == 2
    assert not (tmp_path / "out").exists()
