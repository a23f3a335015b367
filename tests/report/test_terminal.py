"""What is printed of a plan: no time without its clock, and the planner's bound next to the planner's own count."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import deeploy
from deeploy.backend import project
from deeploy.chips import Cut
from deeploy.chips import compile as compile_chips
from deeploy.report import chips, terminal
from deeploy.report.text import number
from tests.simulate.nets import convolutions, perceptron

WITHOUT_CLOCK = re.compile(r"\d\W?ms\b(?! at \d+ MHz)")


def _cards(page: Path) -> str:
    """The figures on top of a page."""
    return page.read_text().partition('class="cards"')[2].partition("</section>")[0][:2000]


def test_every_time_says_its_clock(tmp_path: Path) -> None:
    perceptron(tmp_path, deeploy.Options()).write(tmp_path / "out")
    for shown in (terminal.report(project.read_manifest(tmp_path / "out")), _cards(tmp_path / "out" / "report.html")):
        assert "ms at 360 MHz" in shown and not WITHOUT_CLOCK.search(shown)


@pytest.mark.parametrize("count", [1, 2])
def test_chips_run_at_the_clock_of_their_system(tmp_path: Path, count: int) -> None:
    """It is the topology's, also for a single one: times of one and of many are compared at one clock."""
    perceptron(tmp_path, deeploy.Options())
    compiled = compile_chips(tmp_path / "model.onnx", "siracusa", Cut(count, "tensor", "cycles"))
    assert sum("chips run at 500 MHz, siracusa alone at 360 MHz" in note for note in compiled.notes) == 1
    compiled.write(tmp_path / "out")
    manifest = project.read_manifest(tmp_path / "out")
    printed = (chips.report(manifest), chips.summary(manifest, tmp_path), terminal.report(manifest["chips"][0]))
    for shown in (*printed, _cards(tmp_path / "out" / "report.html")):
        assert "ms at 500 MHz" in shown and not WITHOUT_CLOCK.search(shown.replace("uJ ms", ""))


@pytest.mark.parametrize("build", [convolutions, perceptron])
@pytest.mark.parametrize("l1", [3000, 6000])
def test_the_bound_is_that_of_the_planners_count(
    tmp_path: Path, build: Callable[[Path, deeploy.Options], deeploy.Compiled], l1: int
) -> None:
    build(tmp_path, deeploy.Options({"l1": l1})).write(tmp_path / "out")
    manifest = project.read_manifest(tmp_path / "out")
    prediction = manifest["prediction"]
    assert prediction["bound"] <= prediction["cycles"]
    counted = f"the planner's closed form counts {number(prediction['cycles'])}, and at least {number(prediction['bound'])} for any plan "
    assert counted in terminal.report(manifest)
