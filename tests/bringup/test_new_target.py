"""The skeleton of a target works at once: its kernels, a network in tiles, its own tests, the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import deeploy
from deeploy.bringup import new
from deeploy.errors import UsageError
from deeploy.target import load

ROOT = Path(__file__).resolve().parents[2]
OWN = ("own_matmul", "own_add", "own_clip")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("targets") / "mychip"
    files = new.write_skeleton(path)
    assert {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()} == set(files)
    return path


def test_it_compiles_and_verifies_a_network(folder: Path) -> None:
    target = load(folder)
    assert (target.name, len(target.engines), [k.name for k in target.kernels[:3]]) == ("mychip", 1, list(OWN))
    compiled = deeploy.compile(folder / "model.onnx", target, memory={"l1": 1500})
    assert max(call.tiling.tiles for call in compiled.plan.calls) > 1
    assert {"own_matmul", "own_add"} <= {call.kernel.name for call in compiled.plan.program.calls}
    x = np.random.default_rng(0).integers(-128, 128, (24, 32)).astype(np.int8)
    got = compiled.run([x])[0]
    assert np.array_equal(got, compiled.interpret([x])[0]) and len(np.unique(got)) > 20


@pytest.mark.slow
def test_its_own_tests_pass(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "declaration or None", str(folder / "tests")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.slow
def test_its_python_is_typed_and_clean(folder: Path) -> None:
    config = str(ROOT / "pyproject.toml")
    for command in (["mypy", "--strict", "--config-file", config, "target.py"], ["ruff", "check", "--config", config, "target.py"]):
        environment = {**os.environ, "MYPYPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=folder, env=environment, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists and is not an empty folder"):
        new.write_skeleton(tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]
    with pytest.raises(UsageError, match="cannot be the name of a target"):
        new.write_skeleton(tmp_path / "my-chip")
