"""The examples that learn: on an emulated Cortex-M4 with 32 KB of RAM, and a new word of a keyword network."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LEARN = Path(__file__).resolve().parents[2] / "examples" / "learning" / "learn.py"


def test_the_last_layer_learns_digits_that_lie_on_their_side(tmp_path: Path) -> None:
    missing = [tool for tool in ("arm-none-eabi-gcc", "qemu-system-arm", "make") if shutil.which(tool) is None]
    missing += [package for package in ("sklearn", "onnxruntime") if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"there is no {missing[0]}")
    done = subprocess.run([sys.executable, str(LEARN), str(tmp_path / "work")], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after = (int(right) for right in re.findall(r"learning: (\d+) of 540", done.stdout))
    assert before < 120 and after > 440
    assert re.findall(r"(\w+) on Siracusa: \d{4,} cycles", done.stdout) == ["train", "infer"]


def test_a_keyword_network_learns_a_word_of_ten_examples(tmp_path: Path) -> None:
    for package in ("sklearn", "onnxruntime"):
        pytest.importorskip(package, reason=f"no {package}: install the extra demo")
    command = [sys.executable, str(LEARN.with_name("new_word.py")), str(tmp_path / "work")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (before, *old), (after, *kept) = (map(float, re.findall(r"([\d.]+)%", line)) for line in done.stdout.splitlines()[:2])
    assert before < 10 and after > 50
    assert min(now - then for now, then in zip(kept, old, strict=True)) > -10
    assert "100% of losses are equal" in done.stdout
    assert len(re.findall(r"predicted: \d+ cycles, [\d.]+ us, [\d.]+ uJ", done.stdout)) == 2
