"""The samples of a calibration: which slices of the arrays of an npz file make one inference of a model."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from deeploy.errors import UsageError, shorten
from deeploy.frontend.arrays import Expected, load_arrays
from deeploy.frontend.npz import read_headers
from deeploy.frontend.pins import Pinned

Sample = dict[str, np.ndarray]  # inputs by name


@dataclass(frozen=True)
class Input:
    """A graph input: its element type and its shape, None where a dimension is symbolic."""

    name: str
    dtype: np.dtype
    shape: tuple[int | None, ...]


def inputs_of(model: onnx.ModelProto, of_outputs: bool = False) -> list[Input]:
    """The inputs of a model that are no initialisers; or its outputs, whose shapes are not always known."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = []
    for value in model.graph.output if of_outputs else model.graph.input:
        tensor = value.type.tensor_type
        if value.name not in constants and tensor.elem_type:
            shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
            inputs.append(Input(value.name, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)), shape))
    return inputs


def calibration_samples(inputs: Sequence[Input], path: Path, pinned: Sequence[Pinned], states: Container[str] = ()) -> list[Sample]:
    """The arrays of a file as one feed per sample; see ``deeploy.frontend.arrays.load_arrays`` for how they are stacked.

    Args:
        states: inputs that may be absent, and are zeros then.

    Raises:
        UsageError: the file is no npz, or its arrays are not those of these inputs.
    """
    names = set(read_headers(path))
    others = [entry for entry in inputs if entry.name not in states]
    is_absent = not names >= {entry.name for entry in inputs} and (names >= {entry.name for entry in others} or len(names) < len(inputs))
    wanted = [entry for entry in inputs if entry.name in names or entry in others] if is_absent else inputs
    loaded = load_arrays(path, [Expected(entry.name, entry.shape) for entry in wanted], "input", pinned)
    zeros = {entry.name: np.zeros([extent or 1 for extent in entry.shape], entry.dtype) for entry in inputs if entry not in wanted}
    return [
        {**zeros, **{entry.name: _check_sample(path, entry, array) for entry, array in zip(wanted, sample, strict=True)}}
        for sample in loaded.samples
    ]


def _check_sample(path: Path, entry: Input, array: np.ndarray) -> np.ndarray:
    """An array in the element type of its input."""
    with np.errstate(invalid="ignore", over="ignore"):
        values = np.asarray(array, entry.dtype)
    exact = entry.dtype.kind == "f" or (entry.dtype.kind in "biu" and np.array_equal(values, array))
    if not exact or not np.isfinite(values).all():
        raise UsageError(
            f"{shorten(path.name)}: input '{shorten(entry.name)}' has values that {entry.dtype} cannot hold",
            "Store finite numbers in the range of the input's type.",
        )
    return values
