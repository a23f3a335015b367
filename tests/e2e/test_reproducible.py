"""Same model and options, same bytes: whatever Python's hashes, the machine's cores, the locale, the folder and what ran before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from deeploy.options import Options
from tests.e2e import decoders, systems
from tests.e2e.test_pipeline import residual
from tests.execution.simulation import nets

ROOT = Path(__file__).parents[2]
TARGETS = ROOT / "examples" / "targets"
_COMPILE = """
import json, sys
from deeploy.cli import main

for arguments in json.loads(sys.stdin.read()):
    sys.argv = ["deeploy", "compile", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
"""


@dataclass(frozen=True)
class Surroundings:
    """What must not show in a project."""

    seed: str
    locale: str
    threads: str
    zone: str
    is_narrow: bool  # one core
    is_moved: bool  # the models are copied to where the compiler runs, and named by relative paths
    is_reversed: bool  # the last case first, so that every network but one has others before it


PLACES = (
    Surroundings("0", "C", "1", "UTC", True, False, False),
    Surroundings("1", "C.UTF-8", "4", "Asia/Tokyo", False, True, False),
    Surroundings("77", "de_DE.UTF-8", "2", "America/Lima", False, False, True),
)


def convolutions(folder: Path) -> list[Path]:
    nets.convolutions(folder, Options())
    return [folder / "model.onnx"]


def perceptron(folder: Path) -> list[Path]:
    nets.perceptron(folder, Options())
    return [folder / "model.onnx"]


def quantised(folder: Path) -> list[Path]:
    """Many short constants, which are kept near the cores where there is room."""
    return [residual(folder)]


def decoder(folder: Path) -> list[Path]:
    return [decoders.decoder(folder, is_quantised=True)]


def prompt_and_step(folder: Path) -> list[Path]:
    return [decoders.writer(folder, name="step", last_only=True), decoders.writer(folder, name="prompt", begins=True)]


def towers(folder: Path) -> list[Path]:
    onnx.save(systems.towers(32, 4), folder / "towers.onnx")
    return [folder / "towers.onnx"]


Make = Callable[[Path], list[Path]]
SIRACUSA = ["-t", "siracusa"]
CASES: dict[str, tuple[Make, list[str]]] = {
    "generic": (convolutions, ["-t", "generic"]),
    "little L1": (convolutions, [*SIRACUSA, "--l1", "3000"]),
    "little L1 and L2": (convolutions, [*SIRACUSA, "--l1", "3000", "--l2", "14000", "--default-memory", "L3"]),
    "short constants": (quantised, [*SIRACUSA, "--l1", "6000"]),
    "two engines": (quantised, SIRACUSA),
    "caches": (decoder, [*SIRACUSA, "--l1", "9000", "--context", "8"]),
    "several networks": (prompt_and_step, ["-t", "generic", "--context", "12", "--dim", "step:rows=1", "--dim", "prompt:rows=4"]),
    "chips": (towers, [*SIRACUSA, "--chips", "4"]),
    "pipeline": (perceptron, [*SIRACUSA, "--chips", "2", "--partition", "pipeline"]),
    "outside": (quantised, ["-t", str(TARGETS / "duo" / "deeploy_duo")]),
}
REAL: dict[str, tuple[str, list[str]]] = {
    "miniMobileNet": ("Models/miniMobileNet", ["--l1", "9000"]),
    "CNN_Linear2": ("Models/CNN_Linear2", ["--l1", "16000", "--default-memory", "L3"]),
    "KeywordSpotting": ("Models/MLPerf/KeywordSpotting", ["--l1", "24000", "--l2", "40000", "--default-memory", "L3"]),
    "microLlama": ("Models/microLlama/INT8/microLlama1", ["--l1", "24000"]),
}


def check(cases: dict[str, list[str]], models: Path, folder: Path) -> None:
    """Compile every case in all surroundings; the paths of models in ``cases`` are relative to ``models``."""
    expected: dict[str, bytes] | None = None
    for number, place in enumerate(PLACES):
        here = folder / f"place{number}" / ("deeper" * place.is_moved)
        here.mkdir(parents=True)
        if place.is_moved:
            shutil.copytree(models, here / models.name)
        start = models.name if place.is_moved else str(models)
        wanted = [[a.format(models=start) for a in [*arguments, "--no-cache", "-o", f"out/{name}"]] for name, arguments in cases.items()]
        _run(wanted[::-1] if place.is_reversed else wanted, here, place)
        files = {str(p.relative_to(here)): p.read_bytes() for p in sorted((here / "out").rglob("*")) if p.is_file()}
        files = {
            name: data for name, data in files.items() if not name.endswith(("timings.json", "deeploy.toml"))
        }  # seconds, and where models lie
        expected = expected or files
        assert len(files) > 20 * len(cases)
        assert files.keys() == expected.keys()
        assert [name for name, data in files.items() if data != expected[name]] == [], place


def _run(cases: Sequence[list[str]], here: Path, place: Surroundings) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": place.seed, "OMP_NUM_THREADS": place.threads, "TZ": place.zone}
    environment |= {"LC_ALL": place.locale, "LANG": place.locale, "PYTHONPATH": str(ROOT)}
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)} if place.is_narrow else before)  # a child has its parent's
        command = [sys.executable, "-c", _COMPILE]
        done = subprocess.run(command, cwd=here, env=environment, input=json.dumps(cases), capture_output=True, text=True, check=False)
    finally:
        os.sched_setaffinity(0, before)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_same_model_and_options_same_bytes(tmp_path: Path) -> None:
    models = tmp_path / "models"
    cases = {}
    for name, (make, options) in CASES.items():
        (models / name).mkdir(parents=True)
        paths = [f"{{models}}/{path.relative_to(models)}" for path in make(models / name)]
        cases[name] = [*(paths if len(paths) == 1 else [f"{Path(path).stem}={path}" for path in paths]), *options]
    check(cases, models, tmp_path)


@pytest.mark.slow
def test_real_networks_in_little_memory(shared_models: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    cases = {}
    for name, (folder, options) in REAL.items():
        shutil.copytree(shared_models / "dialect" / folder, models / name)
        inputs = ["--inputs", f"{{models}}/{name}/inputs.npz", "--dialect", "integer"]
        cases[name] = [f"{{models}}/{name}/network.onnx", *SIRACUSA, *inputs, *options]
    check(cases, models, tmp_path)
