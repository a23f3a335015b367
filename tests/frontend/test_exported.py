"""Programs that PyTorch saved: PyTorch makes ONNX of them, once for each file."""

from __future__ import annotations

import io
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import deeploy
from deeploy.errors import ModelError
from deeploy.frontend import exported, import_model
from tests.frontend.models import build, f32

MODEL = build([helper.make_node("Relu", ["x"], ["y"])], {"x": f32(2)}, ["y"])


def program(path: Path, name: str = "model.pt2") -> Path:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/archive_format", name)
    (path / name).write_bytes(file.getvalue())
    return path / name


def stand_in(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    """A module torch whose exporter gives MODEL for what ``load`` returns."""
    made = types.SimpleNamespace(model_proto=MODEL)
    torch = types.SimpleNamespace(export=types.SimpleNamespace(load=load), onnx=types.SimpleNamespace(export=lambda *a, **k: made))
    monkeypatch.setitem(sys.modules, "torch", torch)
    exported._export_program.cache_clear()


def test_pytorch_exports_a_program_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = list[bytes]()
    stand_in(monkeypatch, lambda file: loaded.append(file.read()))
    path = program(tmp_path)
    project = deeploy.compile(path, "generic")
    assert project.interpret([np.array([-1, 2], np.float32)])[0].tolist() == [0, 2]
    assert [node.op for node in import_model(path).nodes] == ["Relu"] and loaded == [path.read_bytes()]


def test_what_pytorch_says_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: io.BytesIO) -> None:
        raise RuntimeError("no schema version\nmore of it")

    stand_in(monkeypatch, fail)
    with pytest.raises(ModelError, match="no schema version") as caught:
        import_model(program(tmp_path))
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.exporters
def test_a_saved_module_computes_what_pytorch_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="no torch: install the extra torch")
    pytest.importorskip("onnxscript", reason="no onnxscript: install the extra torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 3)).eval()
    x = torch.randn(1, 1, 6, 6)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "model.pt2")
    got = deeploy.compile(tmp_path / "model.pt2", "generic").interpret([x.numpy()])[0]
    np.testing.assert_allclose(got, model(x).detach().numpy(), atol=1e-4)
