"""Machines of ``examples/targets`` that run on GVSoC: what works for a target of the tree works for them, installed as packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import deeploy
from deeploy.backend.project import read_manifest, select_network
from deeploy.cli import app
from deeploy.driver.verify import run_project
from deeploy.target import Target, load, names
from tests.targets.test_snitch import save_float_network

PACKAGES = Path(__file__).resolve().parents[2] / "examples" / "targets"
MACHINES = sorted(folder.name for folder in PACKAGES.iterdir() if list(folder.glob("*/runtime/bare/soc.mk")))


@pytest.fixture(scope="module", autouse=True)
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The wheels of the packages, installed into a folder that is on the path."""
    folder, sources = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("sources")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(folder)]
    done = subprocess.run(
        [*command, *(str(shutil.copytree(PACKAGES / name, sources / name)) for name in MACHINES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def float_and_int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of floats and the same in 8 bits, with inputs."""
    return save_float_network(tmp_path_factory.mktemp("models"))


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Target:
    return load(str(request.param))


@pytest.fixture
def project(machine: Target, float_and_int8: Path, tmp_path: Path) -> Path:
    deeploy.compile(float_and_int8 / "int8.onnx", machine.name, inputs=float_and_int8 / "inputs.npz").write(tmp_path / "out")
    return tmp_path / "out"


def test_there_are_machines() -> None:
    assert {"pulp_open", "snitch"} <= set(MACHINES) <= set(names())


def test_a_wheel_has_all_that_a_project_needs(project: Path, float_and_int8: Path) -> None:
    with np.load(float_and_int8 / "inputs.npz") as arrays:
        samples = len(arrays["x"])
    assert len(run_project(project, float_and_int8 / "inputs.npz").outputs[0]) == samples
    made = {path.name for path in (project / "runtime" / "bare").iterdir()}
    assert {"bare.mk", "soc.mk", "program.mk", "main.c"} <= made


def said(*arguments: object) -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_reports_and_explanations(project: Path, machine: Target) -> None:
    said("report", project)
    assert machine.name in (project / "report.html").read_text()
    layer = select_network(read_manifest(project))["calls"][0]["name"]
    assert "cycles" in said("explain", project, layer)


def test_two_chips_compute_what_one_does(project: Path, machine: Target, float_and_int8: Path, tmp_path: Path) -> None:
    said(
        "compile",
        float_and_int8 / "int8.onnx",
        "-t",
        machine.name,
        "--chips",
        2,
        "-o",
        tmp_path / "chips",
        "--inputs",
        float_and_int8 / "inputs.npz",
    )
    found = [run_project(folder, float_and_int8 / "inputs.npz").outputs[0] for folder in (tmp_path / "chips", project)]
    assert np.array_equal(*found)


def test_accelerators_are_explored_for_its_kernels(machine: Target, float_and_int8: Path, tmp_path: Path) -> None:
    hardware = PACKAGES.parent / "hardware" / "array256_bw512.toml"
    assert "unrolling" in said(
        "explore", float_and_int8 / "int8.onnx", "--hardware", hardware, "-t", machine.name, "--configs", 1, "-o", tmp_path
    )
