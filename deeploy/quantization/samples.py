"""The samples of a calibration: which slices of the arrays of an npz file make one inference of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from deeploy.errors import UsageError, shorten
from deeploy.frontend.arrays import without_pinned
from deeploy.frontend.npz import read_arrays, read_headers
from deeploy.frontend.pins import Pinned

Sample = dict[str, np.ndarray]  # inputs by name
_NOT_AN_NPZ = "--calibrate takes an .npz with one array per input of the model, samples stacked on the first axis"


@dataclass(frozen=True)
class Input:
    """A graph input: its element type and its shape, None where a dimension is symbolic."""

    name: str
    dtype: np.dtype
    shape: tuple[int | None, ...]


def inputs_of(model: onnx.ModelProto) -> list[Input]:
    """The inputs of a model that are no initialisers."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = []
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if value.name not in constants:
            shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
            inputs.append(Input(value.name, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)), shape))
    return inputs


def calibration_samples(inputs: Sequence[Input], path: Path, pinned: Sequence[Pinned]) -> list[Sample]:
    """The arrays of a file as one feed per sample.

    Raises:
        UsageError: the file is no npz, or its arrays are not those of these inputs.
    """
    headers = without_pinned(path, read_headers(path), [entry.name for entry in inputs], pinned)
    if not all(entry.name in headers for entry in inputs):
        if len(headers) < len(inputs):
            raise UsageError(f"{path} has {len(headers)} arrays, the model has {len(inputs)} inputs", _NOT_AN_NPZ)
        headers = dict(zip((entry.name for entry in inputs), headers.values(), strict=False))
    arrays = read_arrays(path, {entry.name: headers[entry.name] for entry in inputs})
    stacks = {entry.name: _stack(entry, arrays[entry.name]) for entry in inputs}
    counts = {name: len(stack) for name, stack in stacks.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{shorten(name)}: {count}" for name, count in counts.items())
        raise UsageError(f"{path} has different numbers of samples for the inputs ({shown})", "stack equally many samples for every input")
    if not all(counts.values()):
        raise UsageError(f"{path} holds no sample", _NOT_AN_NPZ)
    return [{name: stack[index] for name, stack in stacks.items()} for index in range(next(iter(counts.values()), 0))]


def _stack(entry: Input, array: np.ndarray) -> np.ndarray:
    """Return ``array`` as [samples, *shape of the input], of the input's element type."""
    rank = len(entry.shape)
    sample = entry.shape
    if array.ndim == rank and rank > 0:
        sample = (entry.shape[0] or 1, *array.shape[1:])
    elif array.ndim == rank + 1:
        sample = array.shape[1:]
    fits = array.ndim in (rank, rank + 1) and all(want is None or want == got for want, got in zip(entry.shape, sample, strict=True))
    if not fits or (array.ndim == rank and rank > 0 and array.shape[0] % (sample[0] or 1)):
        want = ",".join("?" if extent is None else str(extent) for extent in entry.shape)
        raise UsageError(
            f"calibration of input {shorten(entry.name)} has shape {list(array.shape)}, the input is [{want}]",
            "give it the input's shape, samples stacked on the first axis or on a new one before it",
        )
    values = array.astype(entry.dtype)
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all() or (entry.dtype.kind in "biu" and not np.array_equal(values, array)):
        raise UsageError(
            f"calibration of input {shorten(entry.name)} has values that {entry.dtype} cannot hold",
            "give finite numbers in the range of the input's type",
        )
    return values.reshape(-1, *sample)
