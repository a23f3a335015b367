"""Runs on the simulator that go wrong: what is missing, hangs, crashes or does not fit, in two lines and with the right exit status.

Compiler and launcher are scripts that do what the real ones were seen to do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from deeploy import api
from deeploy.backend.project import read_manifest, select_network
from deeploy.errors import DeeployError
from deeploy.execution.runners import gvsoc
from deeploy.execution.runners.runner import Result
from tests.command import deeploy_cli
from tests.models import save_graph

COMPILER = '#!/bin/sh\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done\n'
RIGHT = "head -c 24 inputs.bin > outputs.bin\necho 'layer 0 0 network_relu 120'\necho 'total 0 150'\n"
# What a launcher does: the class of the error, words of both lines, and the exit status.
FAILURES = {
    "another chip's simulator": (
        "echo 'Input error: Invalid target specified: siracusa' >&2; exit 1",
        "does not know this chip",
        "docs/siracusa.md",
        2,
    ),
    "a launcher without its packages": (
        "echo Traceback; echo \"ModuleNotFoundError: No module named 'prettytable'\" >&2; exit 1",
        "failed with status 1: ModuleNotFoundError: No module named 'prettytable'",
        "a launcher that starts",
        2,
    ),
    "a crash": ("kill -SEGV $$", "the simulator crashed with SIGSEGV: it printed nothing", "docs/siracusa.md", 2),
    "a model's own error": (
        "echo 'a line'; echo '\033[31mHyperRAM out of bounds\033[0m'; echo 'Input error: Platform returned an error (exitcode: 1)'; exit 1",
        "failed with status 1: HyperRAM out of bounds",
        "docs/siracusa.md",
        2,
    ),
    "an error of the program": ("echo 'error: run failed'; exit 1", "failed on the simulator: run failed", "Run it on the host first", 2),
    "arrays beside the arena": (
        "echo 'error: inputs and outputs do not fit into L2 beside the arena'; exit 1",
        "does not fit the chip: inputs and outputs do not fit into L2",
        "--l2",
        3,
    ),
    "constants": (
        "echo 'error: constants are larger than the weight memory'; exit 1",
        "larger than the weight memory",
        "--default-memory",
        3,
    ),
    "no outputs": ("exit 0", "left 0 bytes of outputs instead of 24", "docs/siracusa.md", 2),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    shape = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "g", shape[:1], shape[1:])
    save_graph(graph, folder / "model.onnx")
    api.compile(folder / "model.onnx", "siracusa").write(folder / "project")
    np.savez(folder / "inputs.npz", x=np.arange(6, dtype=np.float32).reshape(2, 3))
    return folder


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of PATH, with a compiler that leaves empty files."""
    script(tmp_path / "bin" / "riscv64-unknown-elf-gcc", COMPILER)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in ("GVSOC", "GVSOC_SOURCES", "GVSOC_REVISION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CHECK_STACKS", "0")
    return tmp_path / "bin"


def run(project: Path, seconds: float = 60.0) -> Result:
    entry = select_network(read_manifest(project / "project"))
    return gvsoc.Gvsoc(seconds=seconds).run(project / "project", entry, [[np.arange(6, dtype=np.float32).reshape(2, 3)]])


def failure(project: Path, seconds: float = 60.0) -> DeeployError:
    with pytest.raises(DeeployError) as raised:
        run(project, seconds)
    assert len(str(raised.value).splitlines()) == 2
    return raised.value


def test_a_run_that_goes_well(project: Path, tools: Path) -> None:
    script(tools / "gvsoc", RIGHT)
    done = run(project)
    assert (done.cycles, done.layers) == ((150,), (("network_relu", 120),))
    np.testing.assert_array_equal(done.outputs[0], np.arange(6, dtype=np.float32).reshape(1, 2, 3))


def test_layers_are_measured_unless_only_whole_inferences_are_wanted(project: Path, tools: Path) -> None:
    """By what the compiler is told."""
    log = tools / "log"
    script(tools / "riscv64-unknown-elf-gcc", COMPILER.replace("while", f"echo $* >> {log}\nwhile"))
    script(tools / "gvsoc", RIGHT)
    shutil.rmtree(project / "project" / "build", ignore_errors=True)
    entry = select_network(read_manifest(project / "project"))
    for has_layers in (True, False):
        log.unlink(missing_ok=True)
        gvsoc.Gvsoc(has_layers=has_layers).run(project / "project", entry, [[np.zeros((2, 3), np.float32)]])
        assert ("-DDEEPLOY_PROFILE" in log.read_text()) is has_layers


def sources(folder: Path) -> str:
    """Sources of the simulator at a revision, which is returned."""
    folder.mkdir()
    for words in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "--allow-empty", "-m", "c"]):
        subprocess.run(["git", "-C", folder, *words], check=True)
    return subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


def test_a_simulator_of_another_revision(project: Path, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sources lie beside its installation, or where they are said to be."""
    found = sources(tmp_path / "src")
    script(tools / "gvsoc", RIGHT)
    error = failure(project)
    assert f"is of revision {found[:8]}, the project was written for " in error.what and "GVSOC_REVISION=any" in error.remedy
    assert error.exit_status == 2
    monkeypatch.setenv("GVSOC_REVISION", "any")
    assert run(project).cycles == (150,)
    monkeypatch.delenv("GVSOC_REVISION")
    monkeypatch.setenv("GVSOC_SOURCES", str(tmp_path / "nowhere"))
    assert run(project).cycles == (150,)
    monkeypatch.setenv("GVSOC_SOURCES", str(tmp_path / "src"))
    makefile = project / "project" / "runtime" / "bare" / "program.mk"
    text = makefile.read_text()
    makefile.write_text(gvsoc._WANTED.sub(f"GVSOC_REVISION := {found[:8]}", text))
    try:
        assert run(project).cycles == (150,)
    finally:
        makefile.write_text(text)


@pytest.mark.parametrize("name", FAILURES)
def test_a_simulation_that_fails(project: Path, tools: Path, name: str) -> None:
    text, what, remedy, status = FAILURES[name]
    script(tools / "gvsoc", text)
    error = failure(project)
    assert what in error.what and remedy in error.remedy
    assert error.exit_status == status


def is_running(process: int) -> bool:
    """Whether a process is there and not ended; one that was killed may take a while to end."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_simulation_that_hangs_is_stopped_with_all_its_processes(project: Path, tools: Path, tmp_path: Path) -> None:
    script(tools / "gvsoc", f"sleep 100 & echo $! > {tmp_path / 'child'}; wait")
    start = time.monotonic()
    error = failure(project, 1.0)
    assert "did not end within 1 seconds" in error.what and "--time-limit" in error.remedy
    assert time.monotonic() - start < 30
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 20
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def test_no_simulator(project: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GVSOC", "/nowhere/gvsoc")
    assert "GVSOC names /nowhere/gvsoc, which cannot be run" in failure(project).what
    monkeypatch.delenv("GVSOC")
    monkeypatch.setenv("PATH", str(tools))
    assert "gvsoc is neither named by GVSOC nor on the path" in failure(project).what


def test_no_toolchain(project: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tools / "gvsoc", RIGHT)
    script(tools / "make", "exit 0")
    (tools / "riscv64-unknown-elf-gcc").unlink()
    monkeypatch.setenv("PATH", str(tools))
    error = failure(project)
    assert error.what == "riscv64-unknown-elf-gcc is not installed" and "picolibc-riscv64-unknown-elf" in error.remedy


@pytest.mark.parametrize(
    ("said", "what", "status"),
    [
        (
            "ld: error: code, data and the L2 arena together are larger than L2",
            "code, data and the L2 arena together are larger than L2",
            3,
        ),
        ("ld: error: the reserved part of L1 leaves no room for stacks", "the reserved part of L1 leaves no room for stacks", 3),
        (
            "error: the stack of core 0 needs 900 bytes, larger than the 800 that it has: a 900; leave more: --l1 7",
            "core 0 needs 900 bytes",
            3,
        ),
        ("ld: region `l1' overflowed by 812 bytes", "region `l1' overflowed by 812 bytes", 3),
        ("x.c:3:1: error: unknown type name 'foo'", "does not build for the chip: x.c:3:1: error: unknown type name 'foo'", 2),
    ],
)
def test_a_program_that_is_not_built(project: Path, tools: Path, said: str, what: str, status: int) -> None:
    script(tools / "gvsoc", RIGHT)
    script(tools / "riscv64-unknown-elf-gcc", f"cat >&2 <<'END'\nfirst line\n{said}\nlast line\nEND\nexit 1")
    shutil.rmtree(project / "project" / "build", ignore_errors=True)
    error = failure(project)
    assert what in error.what and error.exit_status == status
    assert "; " not in said or error.remedy == "Leave more: --l1 7"


def test_the_command_line_ends_with_that_status(project: Path, tools: Path) -> None:
    script(tools / "gvsoc", FAILURES["constants"][0])
    done = deeploy_cli("run", project / "project", "--on", "gvsoc", "--inputs", project / "inputs.npz")
    assert done.returncode == 3
    assert len(done.stderr.strip().splitlines()) == 2 and "weight memory" in done.stderr
