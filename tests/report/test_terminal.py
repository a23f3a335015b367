"""What is printed of a plan: no time without its clock, and the planner's bound next to the planner's own count."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import deeploy
from deeploy.backend import project
from deeploy.chips import compile as compile_chips
from deeploy.errors import UsageError
from deeploy.report import chips, terminal
from deeploy.report.text import format_number
from tests.execution.simulation.nets import convolutions, perceptron

SIRACUSA = Path(__file__).parents[2] / "targets" / "siracusa"
WITHOUT_CLOCK = re.compile(r"\d\W?ms\b(?! at \d+ MHz)")


def _cards(page: Path) -> str:
    """The figures on top of a page."""
    return page.read_text().partition('class="cards"')[2].partition("</section>")[0][:2000]


def test_every_time_says_its_clock(tmp_path: Path) -> None:
    perceptron(tmp_path, deeploy.Options()).write(tmp_path / "out")
    for shown in (terminal.report_network(project.read_manifest(tmp_path / "out")), _cards(tmp_path / "out" / "report.html")):
        assert "ms at 360 MHz" in shown and not WITHOUT_CLOCK.search(shown)


@pytest.mark.share(0.4)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("asked", "in_file", "wanted"), [(None, None, 360), (500, None, 500), (None, 400, 400), (500, 400, 500)])
def test_chips_run_at_the_clock_of_one_chip(tmp_path: Path, count: int, asked: float | None, in_file: int | None, wanted: int) -> None:
    """It is the target's, unless a topology file says otherwise, or who compiles."""
    perceptron(tmp_path, deeploy.Options())
    topology = None
    if in_file is not None:
        text = (SIRACUSA / "topology.toml").read_text()
        topology = tmp_path / "topology.toml"
        topology.write_text(text.replace("[system]", f"[system]\nmhz = {in_file}"))
    compiled = compile_chips(tmp_path / "model.onnx", "siracusa", count, topology=topology, mhz=asked)
    compiled.write(tmp_path / "out")
    manifest = project.read_manifest(tmp_path / "out")
    printed = (chips.report_system(manifest), chips.summarise_system(manifest, tmp_path), terminal.report_network(manifest["chips"][0]))
    for shown in (*printed, _cards(tmp_path / "out" / "report.html")):
        assert f"ms at {wanted} MHz" in shown and not WITHOUT_CLOCK.search(shown.replace("uJ ms", ""))


def test_one_chip_runs_at_the_clock_that_is_asked_for(tmp_path: Path) -> None:
    perceptron(tmp_path, deeploy.Options())
    runs = [deeploy.compile(tmp_path / "model.onnx", "siracusa", mhz=mhz) for mhz in (None, 180)]
    for place, compiled in enumerate(runs):
        compiled.write(tmp_path / f"{place}")
    slow = project.read_manifest(tmp_path / "1")
    assert "ms at 180 MHz" in terminal.report_network(slow)
    first = project.read_manifest(tmp_path / "0")
    assert slow["cycles"] == first["cycles"] and slow["microseconds"] == pytest.approx(
        2 * first["microseconds"], abs=0.0015
    )  # nanoseconds are rounded


@pytest.mark.parametrize(
    ("target", "mhz", "what"), [("siracusa", 0.0, "no clock"), ("siracusa", 1e9, "no clock"), ("generic", 500.0, "no cycles")]
)
def test_a_clock_that_cannot_be_is_refused(tmp_path: Path, target: str, mhz: float, what: str) -> None:
    perceptron(tmp_path, deeploy.Options())
    with pytest.raises(UsageError, match=what):
        deeploy.compile(tmp_path / "model.onnx", target, mhz=mhz)


@pytest.mark.share(0.5)
@pytest.mark.parametrize("build", [convolutions, perceptron])
@pytest.mark.parametrize("l1", [3000, 6000])
def test_the_bound_is_that_of_the_planners_count(
    tmp_path: Path, build: Callable[[Path, deeploy.Options], deeploy.Compiled], l1: int
) -> None:
    build(tmp_path, deeploy.Options(memory={"l1": l1})).write(tmp_path / "out")
    manifest = project.read_manifest(tmp_path / "out")
    prediction = manifest["prediction"]
    assert prediction["bound"] <= prediction["cycles"]
    shown = terminal.report_network(manifest)
    assert f"no plan with these kernels takes fewer than {format_number(prediction['bound'])} (gap" in shown
    assert f"the planner counts {format_number(prediction['cycles'])} cycles" in shown


def test_by_default_every_thing_takes_a_line_and_words_are_explained(tmp_path: Path) -> None:
    convolutions(tmp_path, deeploy.Options(memory={"l1": 3000})).write(tmp_path / "out")
    manifest = project.read_manifest(tmp_path / "out")
    manifest["legend"] = {"upper": "requantises in 64 bits"}
    short, full = terminal.report_network(manifest, verbose=False), terminal.report_network(manifest)
    assert "addresses downwards" in full and "transfers" in full.partition("\nlayer")[0]
    assert "addresses downwards" not in short and len(short.splitlines()) < len(full.splitlines())
    for text in (short, full):
        assert "  upper: requantises in 64 bits" in text.splitlines()
        assert all(call["node"] in text for call in manifest["calls"])
    assert "--verbose" in short.splitlines()[-1] and "--verbose" not in full
