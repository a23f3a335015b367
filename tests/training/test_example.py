"""The example that learns on an emulated Cortex-M4 with 32 KB of RAM."""

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
