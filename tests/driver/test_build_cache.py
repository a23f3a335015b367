"""Projects that are kept: taken where nothing has changed, compiled where anything has."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from deeploy.cli import app
from deeploy.driver import build_cache as kept
from deeploy.errors import ModelError
from deeploy.resources import resource
from tests.models import model_of


def save_scaling_model(path: Path, weight: float, external: bool = False) -> Path:
    """A network that multiplies by a weight, beside itself where that is wanted."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    constant = numpy_helper.from_array(np.full(4, weight, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [constant])
    made = model_of(graph)
    if external:
        onnx.save(made, path, save_as_external_data=True, location="w.data", size_threshold=0)
    else:
        onnx.save(made, path)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A target of one's own: a copy of ``generic``."""
    return shutil.copytree(resource("targets") / "generic", tmp_path / "own", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture
def compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Compile into ``out``; whether that was done anew."""
    monkeypatch.setenv("DEEPLOY_CACHE", str(tmp_path / "cache"))

    def entries() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.glob("cache/projects/*.zip")}

    def is_compiled_anew(*arguments: str | Path) -> bool:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        before = entries()
        result = CliRunner().invoke(app, ["compile", *map(str, arguments), "-o", str(tmp_path / "out")], catch_exceptions=False)
        assert result.exit_code == 0 and f"written to {tmp_path / 'out'}" in result.output
        return entries() != before  # how long stages took is in it

    return is_compiled_anew


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_unchanged_is_taken_byte_for_byte(tmp_path: Path, compiles: Callable[..., bool]) -> None:
    network = save_scaling_model(tmp_path / "m.onnx", 2)
    assert compiles(network)
    first = written(tmp_path / "out")
    assert not compiles(network)
    assert written(tmp_path / "out") == first and len(first) > 10


def test_other_options_are_another_project(tmp_path: Path, compiles: Callable[..., bool]) -> None:
    network = save_scaling_model(tmp_path / "m.onnx", 2)
    assert compiles(network)
    assert compiles(network, "--objective", "ram")
    assert compiles(network, "-t", "siracusa")
    assert compiles(f"other={network}")
    assert not compiles(network, "-t", "siracusa")
    assert json.loads((tmp_path / "out" / "deploy.json").read_text())["target"] == "siracusa"


def test_a_changed_model_is_compiled(tmp_path: Path, compiles: Callable[..., bool]) -> None:
    assert compiles(save_scaling_model(tmp_path / "m.onnx", 2))
    assert compiles(save_scaling_model(tmp_path / "m.onnx", 3))
    assert np.full(4, 3, np.float32).tobytes() in (tmp_path / "out" / "network_weights.bin").read_bytes()
    assert compiles(save_scaling_model(tmp_path / "m.onnx", 2)), "what was kept of the same request is replaced"


def test_changed_data_beside_the_model_are_compiled(tmp_path: Path, compiles: Callable[..., bool]) -> None:
    network = save_scaling_model(tmp_path / "m.onnx", 2, external=True)
    assert compiles(network)
    assert not compiles(network)
    (tmp_path / "w.data").write_bytes(np.full(4, 3, np.float32).tobytes())
    assert compiles(network)
    (tmp_path / "w.data").unlink()
    with pytest.raises(ModelError, match="external data w"):
        compiles(network)


def test_a_changed_target_is_compiled_for(tmp_path: Path, target: Path, compiles: Callable[..., bool]) -> None:
    network = save_scaling_model(tmp_path / "m.onnx", 2)
    assert compiles(network, "-t", target)
    assert not compiles(network, "-t", target)
    (target / "new.txt").write_text("a further file")
    assert compiles(network, "-t", target)
    os.utime(target / "target.py", (1, 1))
    assert compiles(network, "-t", target)


def test_changed_inputs_are_read(tmp_path: Path, compiles: Callable[..., bool]) -> None:
    network, inputs = save_scaling_model(tmp_path / "m.onnx", 2), tmp_path / "x.npz"
    np.savez(inputs, x=np.zeros(4, np.float32))
    assert compiles(network, "--inputs", inputs)
    assert not compiles(network, "--inputs", inputs)
    np.savez(inputs, x=np.ones(4, np.float32))
    assert compiles(network, "--inputs", inputs)


def test_another_installation_compiles(tmp_path: Path, compiles: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    network = save_scaling_model(tmp_path / "m.onnx", 2)
    assert compiles(network)
    found = kept._stamp_installation()
    assert any("kernels" in line for line in found) and any("deeploy/driver/build_cache.py" in line for line in found)
    for number in (0, -1):  # a package was installed, a file of the compiler changed
        monkeypatch.setattr(kept, "_stamp_installation", lambda number=number: [*found[:number], "changed", *found[number:]])
        assert compiles(network)
    monkeypatch.undo()


def test_another_cross_compiler_compiles(tmp_path: Path, compiles: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of programs are part of a project."""
    network = save_scaling_model(tmp_path / "m.onnx", 2)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert compiles(network)
    assert not compiles(network)
    (tmp_path / "bin" / "arm-none-eabi-gcc").write_text("")
    assert compiles(network)


def test_the_cache_can_be_left_out(tmp_path: Path, compiles: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    network = save_scaling_model(tmp_path / "m.onnx", 2)
    assert not compiles(network, "--no-cache")
    assert not (tmp_path / "cache" / "projects").exists()
    for place in ("", "/proc/nowhere"):
        monkeypatch.setenv("DEEPLOY_CACHE", place)
        assert not compiles(network)
        assert (tmp_path / "out" / "deploy.json").exists()


def test_damaged_entries_are_compiled_again(tmp_path: Path, compiles: Callable[..., bool]) -> None:
    network = save_scaling_model(tmp_path / "m.onnx", 2)
    assert compiles(network)
    entry = next((tmp_path / "cache" / "projects").glob("*.zip"))
    whole, first = entry.read_bytes(), written(tmp_path / "out")
    for damaged in (b"", whole[: len(whole) // 2], whole.replace(b"#include", b"#INCLUDE")):
        entry.write_bytes(damaged)
        assert compiles(network)
        assert {n: d for n, d in written(tmp_path / "out").items() if n != "timings.json"} == {
            n: d for n, d in first.items() if n != "timings.json"
        }
    with zipfile.ZipFile(entry, "a") as archive:
        archive.writestr("project/../../escaped", "outside")
    assert compiles(network) and not (tmp_path / "escaped").exists()


def test_notes_are_told_again(tmp_path: Path, compiles: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPLOY_CACHE", str(tmp_path / "cache"))
    place = kept.place_of("anything", [])
    assert place is not None and place.find() is None
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.c").write_text("int a;")
    place.keep(tmp_path / "folder", ["a note"], kept.stamp_paths([tmp_path / "folder" / "a.c"]))
    found = place.find()
    assert found is not None and (found.notes, found.files) == (["a note"], {"a.c": b"int a;"})
    (tmp_path / "folder" / "a.c").write_text("int b;")
    assert place.find() is None


def test_large_projects_are_not_kept(tmp_path: Path, compiles: Callable[..., bool], monkeypatch: pytest.MonkeyPatch) -> None:
    network = save_scaling_model(tmp_path / "m.onnx", 2)
    monkeypatch.setattr(kept, "MOST_BYTES", network.stat().st_size)
    assert not compiles(network)
    monkeypatch.setattr(kept, "MOST_BYTES", network.stat().st_size - 1)
    assert kept.place_of("anything", [network]) is None


def test_files_of_a_model_are_inside_its_folder(tmp_path: Path) -> None:
    from deeploy.frontend.load import files_of

    network = save_scaling_model(tmp_path / "m.onnx", 2, external=True)
    assert files_of(network) == [network, tmp_path / "w.data"]
    damaged = onnx.load(network, load_external_data=False)
    damaged.graph.initializer[0].external_data[0].value = "../w.data"
    onnx.save(damaged, network)
    with pytest.raises(ModelError, match="outside the model's folder"):
        files_of(network)
