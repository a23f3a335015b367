"""What a user can get wrong: exit status 2, two helpful lines, no traceback, and nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import ModelError
from tests.command import deeploy_cli
from tests.models import save_graph

FLOAT = TensorProto.FLOAT


def save(
    path: Path, nodes: Sequence[onnx.NodeProto], x: Sequence[int | str] = (2, 3), y: Sequence[int | str] = (2, 3), **options: Any
) -> Path:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", options.get("type", FLOAT), x)],
        [helper.make_tensor_value_info("y", options.get("type", FLOAT), y)],
        options.get("constants", []),
    )
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", options.get("opset", 17))]).SerializeToString())
    return path


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"{op} of {inputs}", **attrs)


def ones(*shape: int) -> TensorProto:
    return numpy_helper.from_array(np.ones(shape, np.float32), "w")


def external(path: Path, location: str) -> Path:
    tensor = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return save(path, [node("Add", "x w", "y")], constants=[tensor])


def truncated(path: Path) -> Path:
    constant = numpy_helper.from_array(np.ones((200, 300), np.float32), "w")
    save(path, [node("Identity", "x", "y")], constants=[constant])
    path.write_bytes(path.read_bytes()[:5000])
    return path


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def linked(path: Path) -> Path:
    outside = path.parent.parent / "outside.bin"
    outside.write_bytes(bytes(24))
    (path.parent / "link.bin").symlink_to(outside)
    return external(path, "link.bin")


MODELS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda p: p, "there is no file"),
    "a folder": (lambda p: p.parent, "is a folder"),
    "empty": (lambda p: written(p, b""), "is empty"),
    "text": (lambda p: written(p, b"this is not a model\n" * 50), "not an ONNX file"),
    "truncated": (truncated, "truncated"),
    "cycle": (lambda p: save(p, [node("Add", "x b", "a"), node("Neg", "a", "b"), node("Neg", "b", "y")]), "has a cycle"),
    "node that reads itself": (lambda p: save(p, [node("Cast", "y", "y", to=FLOAT)], (2, "n"), (2, "n")), "(Cast) reads its own output"),
    "cycle of conversions": (
        lambda p: save(p, [node("Cast", "b", "y", to=FLOAT), node("Cast", "y", "a", to=FLOAT), node("QuantizeLinear", "a x", "b")]),
        "has a cycle through node 'Cast of y' (Cast), node 'QuantizeLinear of a x' (QuantizeLinear), node 'Cast of b' (Cast)",
    ),
    "cycle over an input": (
        lambda p: save(p, [node("Cast", "x", "y", to=FLOAT), node("Cast", "y", "x", to=FLOAT)]),
        "computes 'x', which exists already",
    ),
    "long cycle": (
        lambda p: save(p, [node("Neg", f"n{i}", f"n{(i + 1) % 3000}") for i in range(3000)] + [node("Add", "n0 x", "y")]),
        "and 2995 more",
    ),
    "nobody produces": (lambda p: save(p, [node("Add", "x ghost", "y")]), "reads 'ghost', which nothing produces"),
    "same output twice": (lambda p: save(p, [node("Neg", "x", "y"), node("Abs", "x", "y")]), "exists already"),
    "missing external file": (lambda p: external(p, "weights.bin"), "is missing"),
    "external file above": (lambda p: external(p, "../weights.bin"), "lies outside the model's folder"),
    "external absolute path": (lambda p: external(p, "/etc/passwd"), "lies outside the model's folder"),
    "external link that leaves": (linked, "lies outside the model's folder"),
    "dynamic shape": (
        lambda p: save(p, [node("Neg", "x", "y")], ["batch", 3], ["batch", 3]),
        "--dim batch=1",
    ),
    "unnamed dimension": (lambda p: save(p, [node("Neg", "x", "y")], ["", 3], ["", 3]), "--dim x:0=VALUE"),
    "opset 6": (lambda p: save(p, [node("Neg", "x", "y")], opset=6), "uses opset 6"),
    "unsupported operator": (lambda p: save(p, [node("Det", "x", "y")], (3, 3), ()), "(Det): f32[3,3]"),
    "complex numbers": (lambda p: save(p, [node("Neg", "x", "y")], type=TensorProto.COMPLEX64), "complex64"),
    "more elements than can be counted": (
        lambda p: save(p, [node("Neg", "x", "y")], (2**31, 2**31), (2**31, 2**31)),
        "has 4611686018427387904 elements, the generated code counts to 2147483647",
    ),
    "window beyond the image": (
        lambda p: save(p, [node("Conv", "x w", "y")], (1, 1, 8, 8), (1, 1, 1, 1), constants=[ones(1, 1, 9, 9)]),
        "elements, which its window cannot produce",
    ),
    "channels that disagree": (
        lambda p: save(p, [node("Conv", "x w", "y")], (1, 3, 8, 8), (1, 4, 6, 6), constants=[ones(4, 5, 3, 3)]),
        "has 3 input channels in 1 groups, which its weight of shape [4, 5, 3, 3] does not fit",
    ),
    "run-time axes": (
        lambda p: save(p, [node("Shape", "x", "s"), node("Cast", "x", "i", to=7), node("Reshape", "x i", "y")], (2,), (2,)),
        "run-time values",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_cannot_be_compiled(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    make, message = MODELS[name]
    path = make(folder / "model.onnx")
    done = deeploy_cli("compile", path, "-t", "generic", "-o", tmp_path / "out")
    lines = done.stderr.strip().splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert lines[0].startswith("error: ") and message in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and len(lines) >= 2
    assert len(lines) == 2 or "no kernel" in done.stderr
    assert not [entry.name for entry in tmp_path.iterdir() if entry.name not in ("models", "outside.bin")]


@pytest.fixture
def negating_model(tmp_path: Path) -> Path:
    return save(tmp_path / "model.onnx", [node("Neg", "x", "y")])


OPTIONS: dict[str, tuple[list[str], str]] = {
    "unknown target": (["--target", "nowhere"], "there is no target nowhere"),
    "dim without value": (["--dim", "batch"], "--dim batch is not of the form NAME=VALUE"),
    "what is fixed without value": (["--fix", "y.engine"], "For example: --fix conv1.engine=cluster"),
    "dim that is no number": (["--dim", "batch=many"], "--dim batch=many: that is not a whole number from 1 to 2147483647"),
    "dim that nobody has": (["--dim", "batch=3"], "--dim names 'batch', which the model does not have"),
    "type that does not exist": (["--input-type", "x=int7"], "int7 is no element type"),
    "type of no input": (["--input-type", "z=int8"], "--input-type z: the model has no input of that name"),
    "unknown dialect": (["--dialect", "latin"], "--dialect latin is unknown"),
    "unknown pass": (["--save-after", "nothing"], "there is no pass nothing"),
    "samples that are not there": (["--inputs", "nowhere.npz"], "there is no file nowhere.npz"),
    "no time": (["--seconds", "nan"], "--seconds nan is not a number above 0"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_wrong_option(name: str, negating_model: Path, tmp_path: Path) -> None:
    arguments, message = OPTIONS[name]
    done = deeploy_cli("compile", negating_model, "-o", tmp_path / "out", *arguments)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]


def test_an_output_folder_that_is_not_ours_is_left_alone(negating_model: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "deploy.json").write_text('{"generator": "somebody else"}')
    done = deeploy_cli("compile", negating_model, "-o", foreign)
    assert done.returncode == 2 and "was not written by deeploy" in done.stderr
    assert [entry.name for entry in foreign.iterdir()] == ["deploy.json"]


def test_a_failed_compilation_leaves_the_old_project(negating_model: Path, tmp_path: Path) -> None:
    assert deeploy_cli("compile", negating_model, "-o", tmp_path / "out").returncode == 0
    before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    bad = save(tmp_path / "bad.onnx", [node("Det", "x", "y")], (3, 3), ())
    assert deeploy_cli("compile", bad, "-o", tmp_path / "out").returncode == 2
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()} == before


ARRAYS: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "one name": ({"x": np.ones((2, 3))}, "holds the arrays x; the inputs are x, z"),
    "other names": ({"a": np.ones((2, 3)), "z": np.ones((2, 3))}, "holds the arrays a, z; the inputs are x, z"),
    "too few": ({"arr_0": np.ones((2, 3))}, "holds 1 arrays, the model has 2 inputs"),
    "wrong shape": ({"x": np.ones((2, 4)), "z": np.ones((2, 3))}, "has shape [2, 4] instead of [2, 3]"),
    "out of range": ({"x": np.full((2, 3), 300), "z": np.ones((2, 3))}, "values from 300 to 300; its type int8 holds -128 to 127"),
    "not whole": ({"x": np.full((2, 3), 0.5), "z": np.ones((2, 3))}, "not all whole numbers"),
    "text": ({"x": np.full((2, 3), "one"), "z": np.ones((2, 3))}, "not numbers"),
    "stacks of two lengths": ({"x": np.ones((4, 2, 3)), "z": np.ones((5, 2, 3))}, "different numbers of samples ('x': 4, 'z': 5)"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_do_not_fit(name: str, tmp_path: Path) -> None:
    arrays, message = ARRAYS[name]
    graph = helper.make_graph(
        [node("Add", "x z", "y")],
        "g",
        [helper.make_tensor_value_info(n, FLOAT, [2, 3]) for n in ("x", "z")],
        [helper.make_tensor_value_info("y", FLOAT, [2, 3])],
    )
    save_graph(graph, tmp_path / "model.onnx", 13)
    deeploy.compile(tmp_path / "model.onnx", dialect="integer").write(tmp_path / "out")
    np.savez(tmp_path / "in.npz", **arrays)
    done = deeploy_cli("run", tmp_path / "out", "--inputs", tmp_path / "in.npz")
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 2


@pytest.mark.parametrize("content", [b"", b"not a zip", None])
def test_an_npz_that_cannot_be_read(content: bytes | None, negating_model: Path, tmp_path: Path) -> None:
    deeploy.compile(negating_model).write(tmp_path / "out")
    if content is not None:
        (tmp_path / "in.npz").write_bytes(content)
    done = deeploy_cli("run", tmp_path / "out", "--inputs", tmp_path / "in.npz")
    assert done.returncode == 2 and "in.npz" in done.stderr and "Traceback" not in done.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.onnx"):  # nobody catches it
        deeploy_cli("compile", tmp_path / "none.onnx", "-o", tmp_path / "out", "--debug")


def test_an_arena_beyond_all_addresses(tmp_path: Path) -> None:
    shape = (2**15, 2**15)
    path = save(tmp_path / "model.onnx", [node("Neg", "x", "a"), node("Abs", "a", "y")], shape, shape)
    done = deeploy_cli("compile", path, "-o", tmp_path / "out")
    assert done.returncode == 3 and "the arena takes 4294967296 bytes" in done.stderr and len(done.stderr.strip().splitlines()) == 2


def cli(*arguments: object) -> tuple[int, str, str]:
    """Runs the command; returns exit status, stdout and stderr."""
    done = deeploy_cli(*arguments)
    return done.returncode, done.stdout, done.stderr


def is_refused(result: tuple[int, str, str], message: str) -> bool:
    status, out, err = result
    return (status, out, len(err.strip().splitlines())) == (2, "", 2) and err.startswith("error: ") and message in err


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_that_cannot_be_written(negating_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_refused(cli("compile", negating_model, "-o", tmp_path / ("x" * 300)), "cannot be written: File name too long")
    assert is_refused(cli("compile", negating_model, "-o", "/proc/nowhere/out"), "/proc/nowhere/out cannot be written")
    assert cli("compile", negating_model, "-o", tmp_path / "out")[0] == 0
    before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
        for folder in (tmp_path / "new", tmp_path / "out"):
            assert is_refused(cli("compile", negating_model, "-o", folder), f"there is no permission to write in {tmp_path}")
    for name in ("write_bytes", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, no_space)
            assert is_refused(cli("compile", negating_model, "-o", tmp_path / "out"), "out cannot be written: No space left on device")
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "out"]


def test_outputs_that_cannot_be_saved(negating_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deeploy.compile(negating_model).write(tmp_path / "out")
    np.savez(tmp_path / "in.npz", x=np.ones((2, 3), np.float32))
    run = ("run", tmp_path / "out", "--inputs", tmp_path / "in.npz", "--save")
    with monkeypatch.context() as patch:
        patch.setattr("deeploy.driver.verify.run_project", no_space)  # nothing runs before the place is known to be good
        assert is_refused(cli(*run, tmp_path), "it is a folder")
        assert is_refused(cli(*run, tmp_path / "none" / "got.npz"), "its folder does not exist")
        assert is_refused(cli(*run, tmp_path / ("x" * 300)), "File name too long")
    (tmp_path / "got.npz").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", no_space)
        assert is_refused(cli(*run, tmp_path / "got.npz"), "got.npz cannot be written: No space left on device")
    assert (tmp_path / "got.npz").read_text() == "old"
    assert cli(*run, tmp_path / "got.npz")[0] == 0 and np.array_equal(np.load(tmp_path / "got.npz")["y"], np.full((2, 3), -1, np.float32))
    assert cli(*run, "/dev/null")[0] == 0 and Path("/dev/null").is_char_device()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["got.npz", "in.npz", "model.onnx", "out"]


def test_figures_of_a_run_that_mean_nothing(negating_model: Path, tmp_path: Path) -> None:
    run = ("run", tmp_path, "--inputs", tmp_path / "in.npz")
    assert is_refused(cli(*run, "--tolerance", "-1"), "--tolerance -1 is not a number from 0 on")
    assert is_refused(cli(*run, "--tolerance", "nan"), "--tolerance nan is not a number from 0 on")
    assert is_refused(cli(*run, "--time-limit", "0"), "--time-limit 0 is not a number above 0")
    assert is_refused(cli("verify", negating_model, "--tolerance", "nan"), "--tolerance nan")


def test_what_the_system_refuses_elsewhere(tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", [node("Conv", "x w", "y")], (1, 64, 16, 16), (1, 64, 16, 16), constants=[ones(64, 64, 1, 1)])
    hardware = Path(__file__).parents[2] / "examples" / "hardware" / "array256_bw512.toml"
    explore = ("explore", path, "--hardware", hardware, "--configs", "1", "-o", "/proc/nowhere/study")
    assert is_refused(cli(*explore), "/proc/nowhere/study/report.html cannot be written: No such file or directory")


TARGETS = {
    "def (": "SyntaxError: invalid syntax",
    "import nothing_there": "ModuleNotFoundError: No module named 'nothing_there'",
    "raise SystemExit(0)": "SystemExit: 0",
    "TARGET = 3": "defines no TARGET of type deeploy.target.Target",
}


@pytest.mark.parametrize("text", TARGETS)
def test_a_target_that_is_broken(text: str, negating_model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "target.py").write_text(text)
    assert is_refused(cli("compile", negating_model, "-t", tmp_path / "mine", "-o", tmp_path / "out"), TARGETS[text])
    assert is_refused(cli("targets", tmp_path / "mine"), TARGETS[text])
    assert not (tmp_path / "out").exists()


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing else": ({"schema": None}, "deploy.json has schema None, this version reads 1"),
    "another version": ({"schema": 99}, "deploy.json has schema 99, this version reads 1"),
    "no calls": ({"calls": None}, "deploy.json: calls is null, not a list"),
    "a network without parts": ({"networks": [{"name": "network"}]}, "name is not a field; fields here: generator, version"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_project_that_was_changed(name: str, negating_model: Path, tmp_path: Path) -> None:
    changes, message = CHANGES[name]
    deeploy.compile(negating_model).write(tmp_path / "out")
    manifest = tmp_path / "out" / "deploy.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changes}))
    for command in (("report",), ("explain", "Neg"), ("run", "--inputs", "in.npz")):
        assert is_refused(cli(command[0], tmp_path / "out", *command[1:]), message)
    assert cli("compile", negating_model, "-o", tmp_path / "out")[0] == 0 and cli("report", tmp_path / "out")[0] == 0


def test_json_of_a_comparison_is_json(negating_model: Path, tmp_path: Path) -> None:
    deeploy.compile(negating_model).write(tmp_path / "out")
    np.savez(tmp_path / "in.npz", np.ones((2, 3), np.float32), np.ones(1))
    np.savez(tmp_path / "bad.npz", y=np.full((2, 3), np.inf, np.float32))
    status, out, _ = cli("run", tmp_path / "out", "--inputs", tmp_path / "in.npz", "--expect", tmp_path / "bad.npz", "--json")
    told = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    (compared,) = told["comparisons"]
    assert (status, told["samples"], told["passed"], compared["against"], compared["worst"]) == (1, 1, False, "bad.npz", None)
    assert told["notes"] == ["in.npz: the last 1 array(s) are not inputs and are ignored"]


def test_a_compilation_that_is_stopped_leaves_nothing(negating_model: Path, tmp_path: Path) -> None:
    code = """
import os, signal, pathlib
from deeploy.cli import main
write = pathlib.Path.write_bytes
def stop(path, data):
    write(path, data)
    os.kill(os.getpid(), signal.SIGTERM)
pathlib.Path.write_bytes = stop
main()
"""
    command = [sys.executable, "-c", code, "compile", str(negating_model), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "stopped by SIGTERM\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]
