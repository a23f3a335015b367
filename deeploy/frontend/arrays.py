"""Arrays from npz files: by name or by position, one sample or several stacked ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deeploy.documents import Document
from deeploy.errors import UsageError, shorten, suggest
from deeploy.frontend.npz import MOST_SAMPLES, Header, read_arrays, read_headers
from deeploy.frontend.pins import Pinned
from deeploy.ir.types import DType

MISFIT = -1  # samples in an array of another shape


@dataclass(frozen=True)
class Expected:
    """An input or output that an array is wanted for; without a ``dtype`` any number will do, and None is any extent."""

    name: str
    shape: tuple[int | None, ...]
    dtype: DType | None = None

    @classmethod
    def of(cls, port: Document) -> Expected:
        """What an input or output of ``deploy.json`` wants of an array."""
        return cls(port["name"], tuple(port["shape"]), DType(port["type"]))


@dataclass(frozen=True)
class Loaded:
    """Per sample one array per input or output, in the order of the graph."""

    samples: list[list[np.ndarray]]
    stacked: bool
    notes: tuple[str, ...]


def load_arrays(path: Path, wanted: Sequence[Expected], kind: str, pinned: Sequence[Pinned] = ()) -> Loaded:
    """Read the arrays for ``wanted`` (the graph's inputs or outputs, as ``kind`` says).

    By name when every name is present; by position where all names only count (``arr_0``, ``input_1``). Surplus trailing arrays are
    ignored with a notice. Samples are stacked on a new first axis, or on the first axis that is there: ten images for a network of
    one are ten samples. A zero-length array may be absent. What is there for an input that is ``pinned`` has to be the value that it
    is pinned to.

    Raises:
        UsageError: the file cannot be read, arrays are missing or fit no name, or one has the wrong shape or values out of its
            type's range.
    """
    headers = without_pinned(path, read_headers(path), [w.name for w in wanted], pinned)
    picked, notes = _pick_arrays(path, headers, wanted, kind)
    present = [(headers[name], w) for name, w in zip(picked, wanted, strict=True) if name is not None]
    counts = [_count_stacked(path, header, want, kind) for header, want in present]
    if len(set(counts)) > 1:
        told = ", ".join(f"'{shorten(w.name, 40)}': {'not stacked' if n is None else n}" for (_, w), n in zip(present, counts, strict=True))
        raise UsageError(f"{shorten(path.name)} holds different numbers of samples ({told})", f"Stack as many samples of every {kind}.")
    stacked = bool(counts) and counts[0] is not None
    count = (counts[0] if counts else None) or 0
    if stacked and not count:
        raise UsageError(f"{shorten(path.name)} holds no sample", "Store at least one.")
    if count > MOST_SAMPLES:  # as many as that have elements only if these take no bytes
        raise UsageError(f"{shorten(path.name)} states {count} samples; at most {MOST_SAMPLES} are read", "Store fewer samples in a file.")
    read = read_arrays(path, {name: headers[name] for name in picked if name is not None})
    arrays = [np.zeros([n or 0 for n in w.shape], np.int8) if name is None else read[name] for name, w in zip(picked, wanted, strict=True)]
    converted = [_convert_array(path, a, w, kind) for a, w in zip(arrays, wanted, strict=True)]
    if not stacked:
        return Loaded([converted], False, tuple(notes))
    stacks = [
        [a] * count if name is None else stack_samples(a, w.shape, count) for a, w, name in zip(converted, wanted, picked, strict=True)
    ]
    return Loaded([list(row) for row in zip(*stacks, strict=True)], True, tuple(notes))


def _count_stacked(path: Path, header: Header, want: Expected, kind: str) -> int | None:
    """How many samples an array holds; None where it is one that is not stacked."""
    count = count_samples(header.shape, want.shape)
    if count != MISFIT:
        return count
    raise UsageError(
        f"{shorten(path.name)}: {kind} '{shorten(want.name)}' has shape {list(header.shape)} instead of "
        f"[{', '.join('?' if n is None else str(n) for n in want.shape)}]",
        "Store arrays of the model's own shapes, or stack several samples of all of them on a new first axis or on the first one.",
    )


def count_samples(shape: Sequence[int], wanted: Sequence[int | None]) -> int | None:
    """How many samples an array of a shape holds, on a new first axis or on the first one.

    None where it is one that is not stacked, ``MISFIT`` where it has another shape.
    """
    rank = len(wanted)
    if len(shape) == rank and _shape_fits(shape, wanted) and not (rank and wanted[0] is None):
        return None
    if len(shape) == rank + 1 and _shape_fits(shape[1:], wanted):
        return shape[0]
    each = (wanted[0] or 1) if rank and wanted[0] != 0 else 0
    if each and len(shape) == rank and _shape_fits(shape[1:], wanted[1:]) and shape[0] % each == 0:
        return shape[0] // each
    return MISFIT


def _shape_fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return all(want is None or want == extent for extent, want in zip(shape, wanted, strict=True))


def stack_samples(array: np.ndarray, wanted: Sequence[int | None], count: int) -> list[np.ndarray]:
    """The samples of a stack, on a new first axis or on the first one."""
    return list(array if array.ndim > len(wanted) else array.reshape(count, -1, *array.shape[1:]))


def without_pinned(path: Path, headers: dict[str, Header], wanted: Sequence[str], pinned: Sequence[Pinned]) -> dict[str, Header]:
    """The arrays that are not of pinned inputs, by name, or by position where there is one for every input of the model."""
    names = list(headers)
    if not set(wanted) <= headers.keys() and len(names) >= len(wanted) + len(pinned) and _only_count(names):
        pin_by_name = {names[pin.position]: pin for pin in pinned}
    else:
        pin_by_name = {pin.name: pin for pin in pinned if pin.name in headers}
    for name, array in read_arrays(path, {name: headers[name] for name in pin_by_name}).items():
        pin_by_name[name].check(array, shorten(path.name))
    return {name: header for name, header in headers.items() if name not in pin_by_name}


def _pick_arrays(path: Path, arrays: Mapping[str, Header], wanted: Sequence[Expected], kind: str) -> tuple[list[str | None], list[str]]:
    """The name of the array of every wanted tensor, None for an absent one of zero length, and notices."""
    empty = {w.name for w in wanted if 0 in w.shape}
    if all(w.name in arrays or w.name in empty for w in wanted) and any(w.name in arrays for w in wanted):
        return [w.name if w.name in arrays else None for w in wanted], []
    values, is_named = list(arrays), any(w.name in arrays for w in wanted)
    if wanted and (kind == "input" or is_named) and not _only_count(values):  # golden outputs are often named after something else
        raise UsageError(
            f"{shorten(path.name)} holds the arrays {_list_names(values)}; the {kind}s are {_list_names([w.name for w in wanted])}",
            f"{_suggest_name(values, wanted)}Name the arrays as the {kind}s are named, or store all of them without names: "
            "numpy.savez(path, first, second).",
        )
    if len(values) < len(wanted) and len(values) == sum(w.name not in empty for w in wanted):
        present = iter(values)
        return [None if w.name in empty else next(present) for w in wanted], []
    if len(values) < len(wanted):
        raise UsageError(
            f"{shorten(path.name)} holds {len(values)} arrays, the model has {len(wanted)} {kind}s",
            f"Store one array for each of: {_list_names([w.name for w in wanted])}.",
        )
    surplus = len(values) - len(wanted)
    notes = [f"{shorten(path.name)}: the last {surplus} array(s) are not {kind}s and are ignored"] if surplus else []
    if len(wanted) > 1 and not _only_count(values):
        pairs = ", ".join(f"{shorten(name, 40)} as {shorten(w.name, 40)}" for name, w in zip(values, wanted[:20], strict=False))
        notes.append(f"{shorten(path.name)}: arrays are taken in their order: {pairs}")
    return [*values[: len(wanted)]], notes


def _suggest_name(names: Sequence[str], wanted: Sequence[Expected]) -> str:
    """A question about the first name that is nearly one of those that are wanted and absent."""
    absent = [w.name for w in wanted if w.name not in names]
    return next((told for name in names if name not in {w.name for w in wanted} and (told := suggest(name, absent))), "")


def _only_count(names: Sequence[str]) -> bool:
    """Whether names say nothing but a position, as NumPy's own do."""
    return all(re.fullmatch(r"(arr|input|output)_\d+", name) for name in names)


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(shorten(name, 40) for name in names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "") or "none"


def _convert_array(path: Path, array: np.ndarray, want: Expected, kind: str) -> np.ndarray:
    return array if want.dtype is None else convert_values(array, want.dtype, f"{shorten(path.name)}: {kind} '{shorten(want.name)}'")


def convert_values(array: np.ndarray, dtype: DType, called: str) -> np.ndarray:
    """The values of an array in an element type that holds all of them.

    Args:
        called: what messages call the array.

    Raises:
        UsageError: it does not hold them.
    """
    if dtype.is_float or not array.size:
        return array.astype(dtype.numpy)
    low, high = dtype.range
    whole = array.dtype.kind != "f" or bool(np.all(array == np.rint(array)))
    if not whole or array.min() < low or array.max() > high:
        value_range = f"{array.min()} to {array.max()}" + ("" if whole else ", not all whole numbers")
        raise UsageError(
            f"{called} has values from {value_range}; its type {dtype.name.lower()} holds {low} to {high}",
            "Store values of the model's own type, or declare another one (--input-type).",
        )
    return array.astype(dtype.numpy)
