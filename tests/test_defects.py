"""The list of seeded defects: that each still applies, has tests, and that its command tells killed from survived."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.defects import ROOT, Defect, Tree, every, judge, summary

DEFECTS = every()


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_defect_applies_once(defect: Defect) -> None:
    text = (ROOT / defect.file).read_text(encoding="utf-8")
    assert text.count(defect.old) == 1 and defect.applied(text) != text
    assert defect.tests and [test for test in defect.tests if not (ROOT / test).exists()] == []
    assert not defect.file.startswith("tests/")


def test_the_list_is_long_and_of_all_parts() -> None:
    parts = Counter(defect.part.partition(":")[0] for defect in DEFECTS)
    wanted = ("frontend", "integer form", "planner", "allocation", "certificate", "walk", "lowering", "kernels", "runtime", "HAL")
    more = ("CLI errors", "chips", "explore", "reports", "packages", "boards")
    assert len(DEFECTS) >= 40 and {*wanted, *more} <= parts.keys()
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)


TESTS = """
from value import VALUE


def test_value():
    assert VALUE == 1


def test_nothing():
    assert True


def test_that_fails_anyway():
    assert {}
"""


@pytest.mark.parametrize(
    ("new", "anyway", "fate"),
    [("VALUE = 2", "True", "killed"), ("VALUE = 1.0", "True", "survived"), ("VALUE = 1.0", "False", "fails without it")],
)
def test_what_becomes_of_a_defect(tmp_path: Path, new: str, anyway: str, fate: str) -> None:
    root = tmp_path / "small"
    (root / "tests").mkdir(parents=True)
    (root / "value.py").write_text("VALUE = 1\n")
    (root / "test_value.py").write_text(TESTS.format(anyway))
    (root / "tests" / "samples.py").write_text((ROOT / "tests" / "samples.py").read_text())
    (root / "conftest.py").write_text('pytest_plugins = ["tests.samples"]\n')
    (root / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: slow\n    gvsoc: simulated\npythonpath = .\n")
    defect = Defect("another value", "part", "value.py", "VALUE = 1", new, ["test_value.py"])
    found, noticed = judge(Tree(tmp_path, root), defect)
    assert found == fate and ("test_value" in noticed) == (fate != "survived")
    assert (tmp_path / "tree" / "value.py").read_text() == "VALUE = 1\n"


def test_the_summary_counts_by_part() -> None:
    assert summary({"a": ["killed", "survived"], "b": ["killed"]}).splitlines()[2:] == ["| a | 2 | 1 |", "| b | 1 | 1 |", "| all | 3 | 2 |"]
