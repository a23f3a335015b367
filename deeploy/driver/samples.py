"""Arrays that a network is run on from Python, and what it gives back: one sample, or several stacked on a new first axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.errors import UsageError, shorten
from deeploy.frontend.arrays import convert_values
from deeploy.frontend.io import Port
from deeploy.planning.program import Program

Arrays = str | Path | np.ndarray | Sequence[np.ndarray] | Mapping[str, np.ndarray]  # an npz file, or one per input, in order or by name


class Outputs(list[np.ndarray]):
    """The outputs of a network in their order; each also by its name, as in ``dict(outputs)``.

    Attributes:
        names: of the outputs, in the same order.
    """

    def __init__(self, names: Sequence[str], arrays: Iterable[np.ndarray]) -> None:
        super().__init__(arrays)
        self.names = tuple(names)

    def keys(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return self.names

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, str):
            return super().__getitem__(place)
        if place not in self.names:
            raise KeyError(f"{place!r} is none of the outputs {', '.join(map(repr, self.names))}")
        return super().__getitem__(self.names.index(place))


def read_sample(program: Program, inputs: Sequence[Port], given: Arrays) -> list[np.ndarray]:
    """The arrays of one sample in the order of the inputs, of their element types.

    Raises:
        UsageError: one is missing, or has another shape.
    """
    result = []
    for array, name in zip(_order_arrays(program, inputs, given), program.inputs, strict=True):
        buffer = program.buffers[name]
        if tuple(np.shape(array)) != buffer.shape:
            raise UsageError(
                f"input {shorten(buffer.tensor)} has shape {list(np.shape(array))} instead of {list(buffer.shape)}",
                "Pass arrays of the model's own shapes, or all of them stacked on a new first axis.",
            )
        result.append(convert_values(np.asarray(array), buffer.dtype, f"input {shorten(buffer.tensor)}"))
    return result


def split_samples(program: Program, inputs: Sequence[Port], given: Arrays) -> tuple[list[list[np.ndarray]], bool]:
    """The samples of arrays, and whether these are stacked.

    Raises:
        UsageError: an array is missing, or has another shape.
    """
    arrays = _order_arrays(program, inputs, given)
    deeper = {np.ndim(array) - len(program.buffers[name].shape) for array, name in zip(arrays, program.inputs, strict=True)}
    counts = {len(array) for array in arrays} if deeper == {1} else set[int]()
    if len(counts) != 1 or 0 in counts:
        return [read_sample(program, inputs, arrays)], False
    return [read_sample(program, inputs, [array[place] for array in arrays]) for place in range(counts.pop())], True


def _order_arrays(program: Program, inputs: Sequence[Port], given: Arrays) -> Sequence[np.ndarray]:
    """The arrays in the order of the inputs."""
    if isinstance(given, str | Path):
        with np.load(given, allow_pickle=False) as arrays:
            given = {name: arrays[name] for name in arrays.files}
    if isinstance(given, np.ndarray):
        given = [given] if len(inputs) == 1 else list(given)
    if isinstance(given, Mapping):
        missing = [port.name for port in inputs if port.name not in given]
        if missing:
            raise UsageError(f"input {shorten(missing[0])} is missing", "Pass an array for every input of the model.")
        given = [given[port.name] for port in inputs]
    if len(given) != len(program.inputs):
        raise UsageError(f"{len(given)} arrays were passed for {len(program.inputs)} inputs", "Pass one array per input.")
    return given
