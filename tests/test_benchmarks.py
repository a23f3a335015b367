"""Measurements are found and run by their names, all write one format, and each is named by a page."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import find_measurements, main
from benchmarks.common import END, read_table, replace_table, table

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "Makefile",
    ROOT / "README.md",
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("examples/**/*.md"),
    *ROOT.glob("benchmarks/**/*.md"),
]
RESULTS = [path for path in ROOT.glob("benchmarks/**/*.json") if path.parent.name != "summaries"]
NAMED = re.compile(r"make bench NAME='?([\w/]+)")


def test_every_measurement_has_a_page_and_every_page_names_measurements() -> None:
    """What no page names is measured for nobody: it goes."""
    text = "\n".join(path.read_text() for path in [*PAGES, ROOT / "Makefile"])
    measurements = find_measurements()
    named = set(NAMED.findall(text))
    assert named - set(measurements) == set()
    assert {name for name in measurements if name not in named and not re.search(rf"benchmarks(/{name}\.py| {name}\n)", text)} == set()
    assert [name for name, what in measurements.items() if len(what) < 20] == []


def test_every_module_is_a_measurement_or_is_used() -> None:
    text = "\n".join(path.read_text() for folder in ("benchmarks", "tests") for path in (ROOT / folder).rglob("*.py"))
    measurements = find_measurements()
    others = [path.relative_to(ROOT / "benchmarks").with_suffix("") for path in ROOT.glob("benchmarks/**/*.py") if path.stem != "__main__"]
    assert [
        str(one)
        for one in others
        if str(one) not in measurements and not re.search(rf"import [\w, ]*\b{one.name}\b|\b{one.name} import", text)
    ] == []


def test_every_measurement_can_be_read() -> None:
    """Up to what is not installed here."""
    ours = {path.stem for path in ROOT.glob("benchmarks/**/*.py")}
    for name in find_measurements():
        try:
            assert callable(importlib.import_module(f"benchmarks.{name.replace('/', '.')}").main)
        except ModuleNotFoundError as error:
            assert error.name not in ours and not str(error.name).startswith("benchmarks")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_kept_results_say_what_they_depend_on(path: Path) -> None:
    found = json.loads(path.read_text())
    assert found["name"] in find_measurements() and found["results"]
    assert {"date", "machine", "versions", "commit"} <= set(found)


def test_a_measurement_writes_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "papers.json"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--results", str(file), "papers"])
    assert main() == 0
    found = json.loads(file.read_text())
    assert (found["name"], found["options"], found["status"]) == ("papers", [], 0) and found["versions"]["python"]
    assert sum(found["results"]["verdicts"].values()) >= 70 and found["results"]["printed"][-1] in capsys.readouterr().out


def test_measurements_are_listed_and_an_unknown_name_is_refused() -> None:
    listed, unknown = (
        subprocess.run([sys.executable, "-m", "benchmarks", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        for words in ([], ["plannner"])
    )
    assert listed.returncode == 0 and [line.split()[0] for line in listed.stdout.splitlines()] == list(find_measurements())
    assert unknown.returncode == 2 and "there is no measurement plannner" in unknown.stderr


def test_a_table_of_a_page_is_replaced_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n<!-- bench:host -->\n| old |\n{END}after\n")
    replace_table(page, "host", table(("network", "ms"), [("a", "1"), ("b", "2")]))
    assert read_table(page, "host") == [("a", "1"), ("b", "2")]
    assert page.read_text().startswith("before\n") and page.read_text().endswith(f"{END}after\n")
    with pytest.raises(SystemExit, match="no place for the table of spine"):
        replace_table(page, "spine", [])
