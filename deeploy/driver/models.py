"""Models and arrays as Python has them, in files that last as long as they are needed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import onnx

from deeploy.errors import UnsupportedError, UsageError, describe_cause


class Module(Protocol):
    """A ``torch.nn.Module``, of which this package knows no more than that it can be told not to train."""

    training: bool

    def train(self, mode: bool = True) -> Any: ...


Model: TypeAlias = str | Path | onnx.ModelProto | Module
Arrays: TypeAlias = str | Path | Mapping[str, np.ndarray]  # an npz file, or what is in one


@contextmanager
def model_file(model: Model, example_inputs: Sequence[object] | None = None) -> Iterator[Path]:
    """The ONNX file of a model: its own, or one that lasts as long as the context.

    Raises:
        UsageError: it is no model, or a PyTorch module without example inputs, or PyTorch's exporter is missing.
        UnsupportedError: PyTorch cannot export it.
    """
    if isinstance(model, str | Path):
        yield Path(model)
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        if isinstance(model, onnx.ModelProto):
            path.write_bytes(model.SerializeToString())
        else:
            _export_module(model, example_inputs, path)
        yield path


def _export_module(model: Module, example_inputs: Sequence[object] | None, path: Path) -> None:
    """Write a PyTorch module as ONNX, by PyTorch's default exporter, in the state in which it is used."""
    if not any((kind.__module__, kind.__name__) == ("torch.nn.modules.module", "Module") for kind in type(model).__mro__):
        raise UsageError(
            f"{type(model).__name__} is no model",
            "Give the path of an .onnx, .tflite or .pt2 file, an onnx.ModelProto, or a torch.nn.Module.",
        )
    if example_inputs is None:
        raise UsageError("a torch.nn.Module is exported by running it once", "Pass inputs: example_inputs=(torch.zeros(1, 3, 32, 32),)")
    import torch

    was_training = model.training
    try:
        model.train(False)
        given = tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)  # one tensor
        torch.onnx.export(model, given, str(path), verbose=False)
    except ImportError as error:
        raise UsageError(f"PyTorch's exporter needs {error.name}", "pip install torch onnxscript") from error
    except Exception as error:
        what = f"PyTorch cannot export {type(model).__name__}: {describe_cause(error)}"
        raise UnsupportedError(what, "Export it to ONNX as PyTorch's documentation says, and pass the file.") from error
    finally:
        model.train(was_training)


@contextmanager
def npz_file(arrays: Arrays) -> Iterator[Path]:
    """The npz file of arrays: its own, or one that lasts as long as the context."""
    if isinstance(arrays, str | Path):
        yield Path(arrays)
        return
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "arrays.npz"
        if not isinstance(arrays, Mapping):
            raise UsageError("arrays are given by name", 'Pass a dictionary, {"NAME": array}, or the path of an npz file.')
        np.savez(path, allow_pickle=False, **arrays)
        yield path
