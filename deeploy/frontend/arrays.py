"""Arrays from npz files: by name or by position, one sample or several stacked ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deeploy.documents import Document
from deeploy.errors import UsageError, shorten
from deeploy.frontend.npz import MOST_SAMPLES, Header, read_arrays, read_headers
from deeploy.frontend.pins import Pinned
from deeploy.graph.types import DType


@dataclass(frozen=True)
class Expected:
    """An input or output that an array is wanted for; without a ``dtype`` any number will do."""

    name: str
    shape: tuple[int, ...]
    dtype: DType | None = None

    @classmethod
    def of(cls, port: Document) -> Expected:
        """From an entry of ``deploy.json``."""
        return cls(port["name"], tuple(port["shape"]), DType(port["type"]))


@dataclass(frozen=True)
class Loaded:
    """Per sample one array per input or output, in the order of the graph."""

    samples: list[list[np.ndarray]]
    stacked: bool
    notes: tuple[str, ...]


def load_arrays(path: Path, wanted: Sequence[Expected], kind: str, pinned: Sequence[Pinned] = ()) -> Loaded:
    """Read the arrays for ``wanted`` (the graph's inputs or outputs, as ``kind`` says).

    By name when every name is present, else by position; surplus trailing arrays are ignored with a notice. Arrays that all
    have one more leading axis of one length are stacked samples. A zero-length array may be absent. What is there for an input
    that is ``pinned`` has to be the value that it is pinned to.

    Raises:
        UsageError: the file cannot be read, arrays are missing, or one has the wrong shape or values out of its type's range.
    """
    headers = without_pinned(path, read_headers(path), [w.name for w in wanted], pinned)
    picked, notes = _pick(path, headers, wanted, kind)
    present = [(headers[name], w) for name, w in zip(picked, wanted, strict=True) if name is not None]
    deeper = all(len(h.shape) == len(w.shape) + 1 and h.shape[1:] == w.shape for h, w in present)
    stacked = bool(present) and deeper and len({h.shape[0] for h, _ in present}) == 1
    count = present[0][0].shape[0] if stacked else 0
    if count > MOST_SAMPLES:  # as many as that have elements only if these take no bytes
        raise UsageError(f"{shorten(path.name)} states {count} samples; at most {MOST_SAMPLES} are read", "Store fewer samples in a file.")
    if not stacked:
        for header, want in present:
            if header.shape != want.shape:
                raise UsageError(
                    f"{shorten(path.name)}: {kind} '{shorten(want.name)}' has shape {list(header.shape)} instead of {list(want.shape)}",
                    "Store arrays of the model's own shapes, or stack several samples of all of them on one new first axis.",
                )
    read = read_arrays(path, {name: headers[name] for name in picked if name is not None})
    arrays = [
        np.zeros((*[count][: int(stacked)], *w.shape), np.int8) if name is None else read[name]
        for name, w in zip(picked, wanted, strict=True)
    ]
    converted = [_converted(path, a, w, kind) for a, w in zip(arrays, wanted, strict=True)]
    samples = [list(row) for row in zip(*converted, strict=True)] if stacked else [converted]
    if not samples:
        raise UsageError(f"{shorten(path.name)} holds no sample", "Store at least one.")
    return Loaded(samples, stacked, tuple(notes))


def without_pinned(path: Path, headers: dict[str, Header], wanted: Sequence[str], pinned: Sequence[Pinned]) -> dict[str, Header]:
    """The arrays that are not of pinned inputs, by name, or by position where there is one for every input of the model."""
    names = list(headers)
    if not set(wanted) <= headers.keys() and len(names) >= len(wanted) + len(pinned):
        found = {names[pin.position]: pin for pin in pinned}
    else:
        found = {pin.name: pin for pin in pinned if pin.name in headers}
    for name, array in read_arrays(path, {name: headers[name] for name in found}).items():
        found[name].check(array, shorten(path.name))
    return {name: header for name, header in headers.items() if name not in found}


def _pick(path: Path, arrays: Mapping[str, Header], wanted: Sequence[Expected], kind: str) -> tuple[list[str | None], list[str]]:
    """The name of the array of every wanted tensor, None for an absent one of zero length, and notices."""
    empty = {w.name for w in wanted if 0 in w.shape}
    if all(w.name in arrays or w.name in empty for w in wanted) and any(w.name in arrays for w in wanted):
        return [w.name if w.name in arrays else None for w in wanted], []
    values = list(arrays)
    if len(values) < len(wanted) and len(values) == sum(w.name not in empty for w in wanted):
        present = iter(values)
        return [None if w.name in empty else next(present) for w in wanted], []
    if len(values) < len(wanted):
        raise UsageError(
            f"{shorten(path.name)} holds {len(values)} arrays, the model has {len(wanted)} {kind}s",
            f"Store one array for each of: {', '.join(shorten(w.name, 40) for w in wanted[:20])}.",
        )
    surplus = len(values) - len(wanted)
    note = f"{shorten(path.name)}: the last {surplus} array(s) are not {kind}s and are ignored"
    return [*values[: len(wanted)]], [note] if surplus else []


def _converted(path: Path, array: np.ndarray, want: Expected, kind: str) -> np.ndarray:
    if want.dtype is None:
        return array
    if want.dtype.is_float or not array.size:
        return array.astype(want.dtype.numpy)
    low, high = want.dtype.range
    whole = array.dtype.kind != "f" or bool(np.all(array == np.rint(array)))
    if not whole or array.min() < low or array.max() > high:
        found = f"{array.min()} to {array.max()}" + ("" if whole else ", not all whole numbers")
        called = f"{shorten(path.name)}: {kind} '{shorten(want.name)}'"
        raise UsageError(
            f"{called} has values from {found}; its type {want.dtype.name.lower()} holds {low} to {high}",
            "Store values of the model's own type, or declare another one (--input-type).",
        )
    return array.astype(want.dtype.numpy)
