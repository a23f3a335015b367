"""What a file that is no ONNX model is instead, told by its content and, where that does not tell, by its name, and what to do with it.

Asked only once a file could not be read as ONNX: no file that is a model is refused by what it looks like.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from deeploy.errors import shorten

_PYTORCH = "save it by torch.export.save as .pt2, or pass the module itself to deeploy.compile: docs/from-pytorch.md"
_TENSORFLOW = "convert it to ONNX with tf2onnx: docs/from-tflite.md"
_UNPACK = "unpack it, and give the path of the model in it"
_WEIGHTS = "export the model to ONNX with the program that made it: docs/from-pytorch.md"
_RUNTIME = "give the .onnx file that it was made from"
_HEAD = 1 << 10  # bytes that tell a text from a binary file
_MOST_SHOWN = 40  # characters of a text
_MOST_MEMBERS = 10_000  # of a zip archive that are looked at

# What files begin with, after how many bytes, what they are, and what to do.
_MAGIC: Sequence[tuple[int, bytes, str, str]] = (
    (0, b"version https://git-lfs", "a pointer of Git LFS in the place of the model", "fetch the file itself: git lfs pull"),
    (4, b"ORTM", "a model in onnxruntime's own format", _RUNTIME),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, such as a model of Keras", _TENSORFLOW),
    (0, b"GGUF", "a GGUF file, which holds weights for llama.cpp", _WEIGHTS),
    (0, b"\x1f\x8b", "an archive packed by gzip", _UNPACK),
    (0, b"BZh", "an archive packed by bzip2", _UNPACK),
    (0, b"\xfd7zXZ\0", "an archive packed by xz", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "an archive packed by zstd", _UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (0, b"Rar!", "a RAR archive", _UNPACK),
    (257, b"ustar", "a tar archive", _UNPACK),
    (0, b"\x93NUMPY", "an array of NumPy, not a model", "give the .onnx file; arrays are given by --inputs, in an npz file"),
    (0, b"\x89PNG", "a picture", "give the path of a .onnx file"),
    (0, b"\xff\xd8\xff", "a picture", "give the path of a .onnx file"),
    (0, b"%PDF", "a PDF document", "give the path of a .onnx file"),
    (0, b"\x7fELF", "a program", "give the path of a .onnx file"),
)
_EXPORTED = r"(.*/)?(serialized_exported_program\.json|archive_format)|(.*/)?models/[^/]*\.json"  # members of a program of PyTorch
# What members of a zip archive are called, what it is then, and what to do.
_MEMBERS: Sequence[tuple[str, str, str]] = (
    (r"(.*/)?(constants\.pkl|bytecode\.pkl)|(.*/)?code/.*\.py", "a TorchScript module", _PYTORCH),
    (r"(.*/)?data\.pkl", "a file of PyTorch: a module or its weights", _PYTORCH),
    (r"(.*/)?model\.weights\.h5", "a model of Keras", _TENSORFLOW),
    (r"(.*/)?saved_model\.pb", "a zip archive with a SavedModel of TensorFlow", _TENSORFLOW),
    (r".*\.tflite", "a zip archive with a TensorFlow Lite model", _UNPACK),
    (r".*\.onnx", "a zip archive with a model in it", _UNPACK),
    (r".*\.npy", "a file of arrays (npz), not a model", "give the .onnx file; arrays are given by --inputs"),
)
# What names end with, where the content does not tell.
_SUFFIXES: Sequence[tuple[tuple[str, ...], str, str]] = (
    ((".pt", ".pth", ".pt2", ".ckpt", ".pte", ".ptl"), "a file of PyTorch", _PYTORCH),
    ((".tflite", ".lite"), "a damaged TensorFlow Lite model", "export or download it again: docs/from-tflite.md"),
    ((".h5", ".hdf5", ".keras"), "a damaged model of Keras", _TENSORFLOW),
    ((".pb", ".pbtxt"), "a graph of TensorFlow", _TENSORFLOW),
    ((".safetensors",), "a file of weights (safetensors)", _WEIGHTS),
    ((".pkl", ".pickle", ".joblib"), "a Python object", "export the model to ONNX, scikit-learn's for example with skl2onnx"),
    ((".mlmodel", ".mlpackage"), "a model of Core ML", "export the model to ONNX with the program that made it"),
    ((".npz",), "a damaged file of arrays", "give the .onnx file; arrays are given by --inputs"),
    ((".zip",), "a damaged zip archive", _UNPACK),
)


def recognise_format(path: Path, content: bytes) -> tuple[str, str] | None:
    """What a file that is no ONNX model is, and what to do with it; None where nothing tells.

    Args:
        content: of the file, which is not empty.
    """
    for place, magic, what, remedy in _MAGIC:
        if content.startswith(magic, place):
            return what, remedy
    if content.startswith(b"PK\x03\x04"):
        return _recognise_archive(path)
    if content.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):  # protocols of pickle
        is_torch = path.suffix.lower() in _SUFFIXES[0][0] or b"torch" in content[: 64 * _HEAD]
        return ("an old file of PyTorch", _PYTORCH) if is_torch else _by_name(Path("object.pkl"))
    if content[8:10] in (b'{"', b"{}", b"{ ") and int.from_bytes(content[:8], "little") <= len(content):
        return _by_name(Path("weights.safetensors"))
    return _recognise_text(path, content) or _graph_of_tensorflow(content) or _by_name(path)


def is_exported_program(members: Sequence[str]) -> bool:
    """Whether a zip archive with members of these names is a program that PyTorch exported."""
    return any(re.fullmatch(_EXPORTED, name, re.DOTALL) for name in members[:_MOST_MEMBERS])


def recognise_folder(path: Path) -> tuple[str, str] | None:
    """What a folder is in the place of a model, and what to do; None where nothing tells."""
    if (path / "saved_model.pb").is_file():
        return "a SavedModel of TensorFlow", _TENSORFLOW
    if (path / "deploy.json").is_file():
        return "a project that deeploy compile wrote", "give the .onnx file that it was made from"
    return _by_name(path)


def list_members(source: Path | BinaryIO) -> list[str] | None:
    """The names of the first members of a zip archive; None where it is damaged."""
    try:
        with zipfile.ZipFile(source) as archive:
            return archive.namelist()[:_MOST_MEMBERS]
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return None


def _recognise_archive(path: Path) -> tuple[str, str]:
    names = list_members(path)
    if names is None:
        return _by_name(path) or ("a damaged zip archive", _UNPACK)
    for pattern, what, remedy in _MEMBERS:
        if any(re.fullmatch(pattern, name, re.DOTALL) for name in names):
            return what, remedy
    return "a zip archive", _UNPACK


def _recognise_text(path: Path, content: bytes) -> tuple[str, str] | None:
    """What a file of readable characters is."""
    try:
        text = content[:_HEAD].decode("utf-8", "strict" if len(content) <= _HEAD else "ignore").strip().removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None
    if not all(c.isprintable() or c.isspace() for c in text):
        return None
    begin = text.lower()
    if re.match(r"(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)", begin, re.DOTALL):
        return "a web page (HTML)", "download the model itself in its place: the link to the raw file"
    if begin.startswith(("<?xml", "<net")):
        return "an XML file", "export the model to ONNX with the program that made it"
    if path.suffix.lower() == ".pbtxt":
        return _by_name(path)
    return f"a text that begins '{shorten(text[:_MOST_SHOWN])}'", "give the path of a .onnx file"


def _graph_of_tensorflow(content: bytes) -> tuple[str, str] | None:
    """A graph or a SavedModel of TensorFlow, whose files have no mark: their inputs are called so."""
    return ("a graph of TensorFlow", _TENSORFLOW) if b"Placeholder" in content and b"dtype" in content else None


def _by_name(path: Path) -> tuple[str, str] | None:
    return next(((what, remedy) for suffixes, what, remedy in _SUFFIXES if path.suffix.lower() in suffixes), None)
