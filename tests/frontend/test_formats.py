"""Files of other kinds in the place of a model: each is told by its content, with the page to read, and none is tried any further."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from deeploy.errors import DeeployError, ModelError
from deeploy.frontend import import_model
from tests.command import deeploy_cli
from tests.frontend.models import build, f32

MODEL = build([helper.make_node("Relu", ["x"], ["y"])], {"x": f32(2)}, ["y"])
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 1234\n"
PYTORCH, TENSORFLOW = "docs/from-pytorch.md", "docs/from-tflite.md"


def packed(*names: str) -> bytes:
    """A zip archive with members of these names."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "content")
    return file.getvalue()


def arrays() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.zeros(2))
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.onnx"))
    return file.getvalue()


def saved_model() -> bytes:
    """The beginning of a SavedModel: schema version 1, and one graph with an input."""
    node = b"\x0a\x05input\x12\x0bPlaceholder\x2a\x0b\x0a\x05dtype\x12\x02\x30\x01"
    meta = b"\x12" + bytes([len(node) + 2]) + b"\x0a" + bytes([len(node)]) + node
    return b"\x08\x01\x12" + bytes([len(meta)]) + meta


SAFE = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()

# content, what the message says it is, what it says to do or to read
FILES: dict[str, tuple[bytes, str, str]] = {
    "pt": (packed("model/data.pkl", "model/data/0", "model/version"), "file of PyTorch", PYTORCH),
    "torchscript": (packed("net/code/__torch__.py", "net/data.pkl", "net/constants.pkl"), "TorchScript", PYTORCH),
    "pt2": (packed("model/archive_format", "model/models/model.json", "model/version"), "exported by PyTorch", PYTORCH),
    "pt2 of PyTorch 2.1": (packed("serialized_exported_program.json", "version"), "exported by PyTorch", PYTORCH),
    "old pth": (b"\x80\x02" + b"ctorch._utils\n_rebuild_tensor_v2", "old file of PyTorch", PYTORCH),
    "pickle": (pickle.dumps({"coefficients": [1.0]}), "Python object", "skl2onnx"),
    "tflite": (b"\x1c\0\0\0TFL3" + bytes(40), "TensorFlow Lite", TENSORFLOW),
    "h5": (b"\x89HDF\r\n\x1a\n" + bytes(40), "Keras", TENSORFLOW),
    "keras": (packed("metadata.json", "config.json", "model.weights.h5"), "Keras", TENSORFLOW),
    "saved model": (saved_model(), "TensorFlow", TENSORFLOW),
    "zip": (packed("readme.txt"), "zip archive", "unpack"),
    "zip with a model": (packed("folder/model.onnx"), "zip archive with a model", "unpack"),
    "zip that is cut off": (packed("folder/model.onnx")[:40], "damaged zip archive", "unpack"),
    "gzip": (gzip.compress(MODEL.SerializeToString()), "gzip", "unpack"),
    "tar": (tarred(), "tar archive", "unpack"),
    "npz": (arrays(), "file of arrays", "--inputs"),
    "html": (b"\n<!DOCTYPE html>\n<html><head><title>model.onnx at main</title>", "web page", "raw file"),
    "xhtml": (b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC>', "web page", "raw file"),
    "xml": (b'<?xml version="1.0"?>\n<net name="model">', "XML", "export the model to ONNX"),
    "lfs": (LFS, "Git LFS", "git lfs pull"),
    "text": (b"Entry not found", "text that begins 'Entry not found'", ".onnx"),
    "json": (b'{"error": "Access restricted"}', "text that begins", ".onnx"),
    "hostile text": ("Kein Zugriff \u00e9\nauf \u05d0".encode(), "Kein Zugriff \\xe9\\nauf \\u05d0", ".onnx"),
    "safetensors": (struct.pack("<Q", len(SAFE)) + SAFE + bytes(4), "safetensors", "export the model to ONNX"),
    "gguf": (b"GGUF\x03\0\0\0", "GGUF", "export the model to ONNX"),
    "ort": (b"\x20\0\0\0ORTM" + bytes(20), "onnxruntime", "made from"),
    "npy": (b"\x93NUMPY\x01\0", "NumPy", "--inputs"),
}
NAMES = {
    ".pt": PYTORCH,
    ".pth": PYTORCH,
    ".pt2": PYTORCH,
    ".tflite": TENSORFLOW,
    ".h5": TENSORFLOW,
    ".keras": TENSORFLOW,
    ".pb": TENSORFLOW,
}


def refusal(path: Path) -> str:
    """The error for a file, which is of two lines."""
    with pytest.raises(ModelError) as caught:
        import_model(path)
    text = str(caught.value)
    assert len(text.splitlines()) == 2 and caught.value.exit_status == 2 and all(c.isprintable() or c == "\n" for c in text)
    return text


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("name", ["model.onnx", "model"])
def test_files_are_told_by_their_content(tmp_path: Path, kind: str, name: str) -> None:
    content, what, remedy = FILES[kind]
    path = tmp_path / name
    path.write_bytes(content)
    text = refusal(path)
    assert what in text.splitlines()[0] and remedy in text.splitlines()[1] and name in text


@pytest.mark.parametrize("suffix", NAMES)
def test_names_tell_where_the_content_does_not(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(bytes(range(255, 0, -1)))
    assert NAMES[suffix] in refusal(path)


@pytest.mark.parametrize("suffix", [*NAMES, ".onnx"])
def test_empty_files_are_called_empty(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"")
    assert "is empty" in refusal(path)


def test_folders_are_told_by_what_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(saved_model())
    assert "SavedModel" in refusal(tmp_path) and TENSORFLOW in refusal(tmp_path)


@pytest.mark.parametrize("name", ["model.pt", "model.tflite", "model.zip", "model"])
def test_a_model_is_one_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(MODEL.SerializeToString())
    assert [node.op for node in import_model(tmp_path / name).nodes] == ["Relu"]


def test_no_beginning_or_damage_ends_in_a_traceback(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    path = tmp_path / "model.onnx"
    for content, _, _ in FILES.values():
        for length in (1, 4, 9, len(content) // 2):
            damaged = bytearray(content[:length])
            damaged[random.integers(0, len(damaged))] ^= int(random.integers(1, 256))
            path.write_bytes(damaged)
            with pytest.raises(DeeployError):
                import_model(path)


@pytest.mark.parametrize(
    "command", [["inspect"], ["compile", "-o", "out"], ["verify"], ["quantize", "--calibrate", "c.npz", "-o", "o.onnx"]]
)
def test_every_command_says_so(tmp_path: Path, command: list[str]) -> None:
    np.savez(tmp_path / "c.npz", x=np.zeros((4, 2), np.float32))
    (tmp_path / "model.onnx").write_bytes(LFS)
    done = deeploy_cli(command[0], "model.onnx", *command[1:], cwd=tmp_path)
    assert done.returncode == 2 and "git lfs pull" in done.stderr and len(done.stderr.strip().splitlines()) == 2
