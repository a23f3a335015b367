"""The published table of coverage adds up, and a few tests behind it still end as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import coverage

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "benchmarks" / "coverage.md").read_text()


def test_the_table_adds_up() -> None:
    rows = [tuple(map(int, row)) for row in re.findall(r"^\| \S+ \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)]
    (applying,) = map(int, re.findall(r", (\d+) apply", PAGE))
    counts = r"(\d+) right \([\d.]+ %\), (\d+) wrong, (\d+) refused .*?, (\d+) crashed"
    totals = [tuple(map(int, found)) for found in re.findall(counts, PAGE)]
    (right, *bad), (more, *worse) = totals
    assert tuple(map(sum, zip(*rows, strict=True))) == (right, more, applying)
    assert (bad, worse) == ([0, applying - right, 0], [0, applying - more, 0])
    assert len(rows) > 100 and right >= 0.6 * applying and more >= 0.95 * applying
    assert PAGE.split("## What is refused")[1].count("\n| ") - 1 == applying - more, "every refusal has its reason"


def test_some_of_it_measured_again_with_fallback(capsys: pytest.CaptureFixture[str]) -> None:
    """Generated, built and run: Hardmax has no kernel."""
    pytest.importorskip("emx_onnx_cgen", reason="the extra fallback is not installed")
    coverage.main(["--fallback", "--only", "hardmax_axis"])
    assert "| hardmax | 0 | 3 | 3 |" in capsys.readouterr().out


@pytest.mark.slow
def test_some_of_it_measured_again(capsys: pytest.CaptureFixture[str]) -> None:
    """As C, on this host: functions of one tensor whose names begin with "ac"."""
    coverage.main(["--c", "--only", "ac"])
    printed = capsys.readouterr().out
    assert "| acos | 2 | 2 |" in printed and "| acosh | 2 | 2 |" in printed and "| acos | 2 | 2 | 2 |" in PAGE
