"""The published table of coverage adds up, and a few tests behind it still end as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_some_of_it_measured_again_with_fallback() -> None:
    """Generated, built and run: Hardmax has no kernel."""
    pytest.importorskip("emx_onnx_cgen", reason="the extra fallback is not installed")
    command = [sys.executable, str(ROOT / "benchmarks" / "coverage.py"), "--fallback", "--only", "hardmax_axis"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
    assert "| hardmax | 0 | 3 | 3 |" in done.stdout, done.stderr


@pytest.mark.slow
def test_some_of_it_measured_again() -> None:
    """As C, on this host: functions of one tensor whose names begin with "ac"."""
    command = [sys.executable, str(ROOT / "benchmarks" / "coverage.py"), "--c", "--only", "ac"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "| acos | 2 | 2 |" in done.stdout and "| acosh | 2 | 2 |" in done.stdout and "| acos | 2 | 2 | 2 |" in PAGE
