"""The wheel alone is enough: installed into an empty environment, it compiles and runs a model from any directory."""

from __future__ import annotations

import email
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.models import save_graph

ROOT = Path(__file__).resolve().parents[1]
DATA = ("targets", "kernels", "templates")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and borrows what it depends on from the one that runs the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}) + "\n")
    return folder / "bin"


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in ``folder``, with nothing of the caller's Python settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)


def test_the_wheel_holds_the_package_and_its_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in DATA:
        files = {path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        assert files
        assert {f"deeploy/_data/{path.relative_to(ROOT)}" for path in files} <= names
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "deeploy").rglob("*.py")} <= names
    rest = {name.split("/")[0] for name in names}
    assert rest == {"deeploy", f"{wheel.name.split('-py3')[0]}.dist-info"}
    assert not [name for name in names if name.endswith(".pyc")]


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        folder = f"{wheel.name.split('-py3')[0]}.dist-info"
        meta = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
        scripts = archive.read(f"{folder}/entry_points.txt").decode()
        assert f"{folder}/licenses/LICENSE" in archive.namelist()
    assert (meta["Name"], meta["License-Expression"], meta["Requires-Python"]) == ("deeploy-compiler", "Apache-2.0", ">=3.11")
    extras = {
        "quantize",
        "verify",
        "demo",
        "train",
        "zigzag",
        "board",
        "cluster",
        "prove",
        "parquet",
        "exporters",
        "hf",
        "keras",
        "docs",
        "dev",
        "fallback",
        "sklearn",
        "tensorflow",
        "tflite-verify",
        "torch",
    }
    assert extras == set(meta.get_all("Provides-Extra", []))
    assert all("<" in line for line in meta.get_all("Requires-Dist", []))
    assert scripts.split("\n", 1) == ["[console_scripts]", "deeploy = deeploy.cli:main\n"]


def test_the_installed_package_is_the_wheel(environment: Path, tmp_path: Path) -> None:
    code = "import deeploy.resources as r; print(r.__file__, *(r.resource(k) for k in ('targets', 'kernels', 'templates')))"
    paths = run(tmp_path, environment / "python", "-c", code).stdout.split()
    assert len(paths) == 4
    assert all(Path(path).is_relative_to(environment.parent) and Path(path).exists() for path in paths)


def test_help(environment: Path, tmp_path: Path) -> None:
    result = run(tmp_path, environment / "deeploy", "--help")
    assert result.returncode == 0, result.stderr
    assert "compile" in result.stdout


def test_compile_and_run_from_another_directory(environment: Path, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"], "add")],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )
    save_graph(graph, tmp_path / "tiny.onnx")
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 0.5, np.float32)
    np.savez(tmp_path / "in.npz", a=a, b=b)
    np.savez(tmp_path / "right.npz", y=a + b)
    np.savez(tmp_path / "wrong.npz", y=a - b)

    compiled = run(tmp_path, environment / "deeploy", "compile", "tiny.onnx", "--target", "generic", "-o", "out")
    assert compiled.returncode == 0, compiled.stderr
    assert json.loads((tmp_path / "out" / "deploy.json").read_text())["target"] == "generic"
    for expected, status in (("right.npz", 0), ("wrong.npz", 1)):
        ran = run(tmp_path, environment / "deeploy", "run", "out", "--inputs", "in.npz", "--expect", expected)
        assert ran.returncode == status, ran.stdout + ran.stderr
