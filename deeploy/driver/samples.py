"""Arrays that a network is run on from Python, and what it gives back: one sample, or several stacked on a new first axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.errors import UsageError, shorten, suggest
from deeploy.frontend.arrays import MISFIT, Expected, convert_values, count_samples, stack_samples

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

    def items(self) -> list[tuple[str, np.ndarray]]:
        """The outputs with their names."""
        return list(zip(self.names, self, strict=True))

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, str):
            return super().__getitem__(place)
        if place not in self.names:
            raise KeyError(f"{place!r} is none of the outputs {', '.join(map(repr, self.names))}")
        return super().__getitem__(self.names.index(place))


def read_sample(wanted: Sequence[Expected], given: Arrays) -> list[np.ndarray]:
    """The arrays of one sample in the order of the inputs, of their element types.

    Raises:
        UsageError: one is missing, or has another shape.
    """
    result = []
    for array, want in zip(_order_arrays(wanted, given), wanted, strict=True):
        if tuple(np.shape(array)) != want.shape:
            raise UsageError(
                f"input {shorten(want.name)} has shape {list(np.shape(array))} instead of {list(want.shape)}",
                "Pass arrays of the model's own shapes, or all samples stacked on a new first axis or on the first one.",
            )
        result.append(
            np.asarray(array) if want.dtype is None else convert_values(np.asarray(array), want.dtype, f"input {shorten(want.name)}")
        )
    return result


def split_samples(wanted: Sequence[Expected], given: Arrays) -> tuple[list[list[np.ndarray]], bool]:
    """The samples of arrays, and whether these are stacked: as ``deeploy run`` takes them (``deeploy.frontend.arrays``).

    Raises:
        UsageError: an array is missing, or has another shape.
    """
    arrays = _order_arrays(wanted, given)
    counts = [count_samples(np.shape(array), want.shape) for array, want in zip(arrays, wanted, strict=True)]
    count = counts[0] if counts else 0
    if count in (None, 0, MISFIT) or len(set(counts)) != 1:
        return [read_sample(wanted, arrays)], False
    stacks = [stack_samples(np.asarray(array), want.shape, count) for array, want in zip(arrays, wanted, strict=True)]
    return [read_sample(wanted, row) for row in zip(*stacks, strict=True)], True


def _order_arrays(wanted: Sequence[Expected], given: Arrays) -> Sequence[np.ndarray]:
    """The arrays in the order of the inputs."""
    if isinstance(given, str | Path):
        with np.load(given, allow_pickle=False) as arrays:
            given = {name: arrays[name] for name in arrays.files}
    if isinstance(given, np.ndarray):
        given = [given] if len(wanted) == 1 else list(given)
    if isinstance(given, Mapping):
        missing = [want.name for want in wanted if want.name not in given]
        if missing:
            unknown = sorted(set(given) - {want.name for want in wanted})
            what = f"input {shorten(missing[0])} is missing" + (f", there is {shorten(unknown[0])}" if unknown else "")
            raise UsageError(what, f"{suggest(unknown[0], missing) if unknown else ''}Pass an array for every input of the model.")
        given = [given[want.name] for want in wanted]
    if len(given) != len(wanted):
        raise UsageError(f"{len(given)} arrays were passed for {len(wanted)} inputs", "Pass one array per input.")
    return given
