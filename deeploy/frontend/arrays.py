"""Arrays from npz files: by name or by position, one sample or several stacked ones."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.errors import UsageError, shorten
from deeploy.graph.types import DType


@dataclass(frozen=True)
class Expected:
    """An input or output that an array is wanted for; without a ``dtype`` any number will do."""

    name: str
    shape: tuple[int, ...]
    dtype: DType | None = None

    @classmethod
    def of(cls, port: Mapping[str, Any]) -> Expected:
        """From an entry of ``deploy.json``."""
        return cls(port["name"], tuple(port["shape"]), DType(port["type"]))


@dataclass(frozen=True)
class Loaded:
    """Per sample one array per input or output, in the order of the graph."""

    samples: list[list[np.ndarray]]
    stacked: bool
    notes: tuple[str, ...]


def load_arrays(path: Path, wanted: Sequence[Expected], kind: str) -> Loaded:
    """Read the arrays for ``wanted`` (the graph's inputs or outputs, as ``kind`` says).

    By name when every name is present, else by position; surplus trailing arrays are ignored with a notice. Arrays that all
    have one more leading axis of one length are stacked samples. A zero-length array may be absent.

    Raises:
        UsageError: the file cannot be read, arrays are missing, or one has the wrong shape or values out of its type's range.
    """
    picked, notes = _pick(path, _read(path), wanted, kind)
    present = [(a, w) for a, w in zip(picked, wanted, strict=True) if a is not None]
    deeper = all(a.ndim == len(w.shape) + 1 and tuple(a.shape[1:]) == w.shape for a, w in present)
    stacked = bool(present) and deeper and len({len(a) for a, _ in present}) == 1
    count = (len(present[0][0]),) if stacked else ()
    arrays = [np.zeros((*count, *w.shape), np.int8) if a is None else a for a, w in zip(picked, wanted, strict=True)]
    exact = [tuple(a.shape) == w.shape for a, w in zip(arrays, wanted, strict=True)]
    if not stacked:
        for array, want, fits in zip(arrays, wanted, exact, strict=True):
            if not fits:
                raise UsageError(
                    f"{path.name}: {kind} '{shorten(want.name)}' has shape {list(array.shape)} instead of {list(want.shape)}",
                    "Store arrays of the model's own shapes, or stack several samples of all of them on one new first axis.",
                )
    converted = [_converted(path, a, w, kind) for a, w in zip(arrays, wanted, strict=True)]
    samples = [list(row) for row in zip(*converted, strict=True)] if stacked else [converted]
    if not samples:
        raise UsageError(f"{path.name} holds no sample", "Store at least one.")
    return Loaded(samples, stacked, tuple(notes))


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UsageError(f"there is no file {shorten(str(path))}", "Give the path of an npz file.")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise UsageError(f"{path.name} is a single array, not an npz", "Store it with numpy.savez.")
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"{path.name} is not a readable npz file: {str(error)[:100]}", "Store numeric arrays with numpy.savez.") from error


def _pick(path: Path, arrays: dict[str, np.ndarray], wanted: Sequence[Expected], kind: str) -> tuple[list[np.ndarray | None], list[str]]:
    """The array of every wanted tensor, None for an absent one of zero length, and notices."""
    empty = {w.name for w in wanted if 0 in w.shape}
    if all(w.name in arrays or w.name in empty for w in wanted) and any(w.name in arrays for w in wanted):
        return [arrays.get(w.name) for w in wanted], []
    values = list(arrays.values())
    if len(values) < len(wanted) and len(values) == sum(w.name not in empty for w in wanted):
        present = iter(values)
        return [None if w.name in empty else next(present) for w in wanted], []
    if len(values) < len(wanted):
        raise UsageError(
            f"{path.name} holds {len(values)} arrays, the model has {len(wanted)} {kind}s",
            f"Store one array for each of: {', '.join(shorten(w.name, 40) for w in wanted[:20])}.",
        )
    surplus = len(values) - len(wanted)
    return [*values[: len(wanted)]], [f"{path.name}: the last {surplus} array(s) are not {kind}s and are ignored"] if surplus else []


def _converted(path: Path, array: np.ndarray, want: Expected, kind: str) -> np.ndarray:
    if array.dtype.kind not in "iufb":
        raise UsageError(f"{path.name}: {kind} '{shorten(want.name)}' holds {array.dtype}, not numbers", "Store numeric arrays.")
    if want.dtype is None:
        return array
    if want.dtype.is_float or not array.size:
        return array.astype(want.dtype.numpy)
    low, high = want.dtype.range
    whole = array.dtype.kind != "f" or bool(np.all(array == np.rint(array)))
    if not whole or array.min() < low or array.max() > high:
        found = f"{array.min()} to {array.max()}" + ("" if whole else ", not all whole numbers")
        raise UsageError(
            f"{path.name}: {kind} '{shorten(want.name)}' has values from {found}; its type {want.dtype.name.lower()} holds {low} to {high}",
            "Store values of the model's own type, or declare another one (--input-type).",
        )
    return array.astype(want.dtype.numpy)
