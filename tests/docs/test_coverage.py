"""The published table of coverage adds up, and a few tests behind it still end as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "coverage.md").read_text()


def test_the_table_adds_up() -> None:
    rows = [(int(right), int(count)) for right, count in re.findall(r"^\| \S+ \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)]
    applying, right = (int(n) for n in re.findall(r", (\d+) apply|fallback: ?\n?(\d+) right", PAGE) for n in n if n)
    assert (sum(r for r, _ in rows), sum(n for _, n in rows)) == (right, applying)
    assert len(rows) > 100 and right >= 0.6 * applying and " 0 wrong" in PAGE


@pytest.mark.slow
def test_some_of_it_measured_again() -> None:
    """As C, on this host: functions of one tensor whose names begin with "ac"."""
    command = [sys.executable, str(ROOT / "benchmarks" / "coverage.py"), "--c", "--only", "ac"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "| acos | 2 | 2 |" in done.stdout and "| acosh | 2 | 2 |" in done.stdout and "| acos | 2 | 2 |" in PAGE
