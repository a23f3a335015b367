"""Programs that PyTorch exported and saved (``torch.export.save``, ``.pt2``), as ONNX by PyTorch's own exporter.

PyTorch loads the file, with whatever trust it has in it.
"""

from __future__ import annotations

import io
from functools import lru_cache

import onnx

from deeploy.errors import ModelError, describe_cause
from deeploy.frontend.formats import is_exported_program, list_members


def is_exported(content: bytes) -> bool:
    """Whether a file is a program that PyTorch exported."""
    if not content.startswith(b"PK\x03\x04"):
        return False
    return is_exported_program(list_members(io.BytesIO(content)) or [])


def read_exported(content: bytes, name: str) -> onnx.ModelProto:
    """The model of a file.

    Args:
        name: of the file, for messages.

    Raises:
        ModelError: PyTorch is not installed, or it cannot load the file, or export what is in it.
    """
    try:
        exported = _export_program(content)
    except ImportError as error:
        what = f"{name} is a program exported by PyTorch, which reads it: {error.name or 'torch'} is not installed"
        raise ModelError(what, "pip install torch onnxscript, or export it to ONNX: docs/from-pytorch.md") from error
    except Exception as error:  # whatever PyTorch raises for a file
        what = f"{name} is a program exported by PyTorch that it cannot turn into ONNX: {describe_cause(error)}"
        raise ModelError(what, "export it to ONNX yourself, and pass that file: docs/from-pytorch.md") from error
    model = onnx.ModelProto()
    model.ParseFromString(exported)
    return model


@lru_cache(maxsize=2)
def _export_program(content: bytes) -> bytes:
    """The ONNX model of a program; several readers ask for it."""
    import torch

    program = torch.export.load(io.BytesIO(content))
    made = torch.onnx.export(program, (), dynamo=True, verbose=False)
    return bytes(made.model_proto.SerializeToString())
