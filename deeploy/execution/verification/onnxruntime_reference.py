"""onnxruntime as an independent opinion, where it is installed and can run the model."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeploy.documents import Document
from deeploy.errors import shorten
from deeploy.ir.types import DType

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(int8)": np.int8,
    "tensor(int16)": np.int16,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint8)": np.uint8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
}
_KINDS = {dtype.value: name for dtype in DType for name, kind in _TYPES.items() if np.dtype(kind).name == dtype.name.lower()}


def name_type(dtype: DType) -> str:
    """What onnxruntime calls a type; empty where it has none."""
    return _KINDS.get(dtype.value, "")


@dataclass(frozen=True)
class Session:
    """A model loaded by onnxruntime, with its default optimisations."""

    session: Any
    outputs: Sequence[str]
    entry: Document

    def run(self, samples: Sequence[Sequence[np.ndarray]], sequence: bool = False) -> list[np.ndarray | None] | str:
        """Every output, stacked over the samples; None where its type is not the network's (``--quantised-io``).

        Why not, where onnxruntime fails on a sample: it refuses what the C takes, such as an index that is out of range.

        States are passed from step to step as the growing tensors that the model has; what has as many entries as there are
        rows is given and returned with these.
        """
        states = self.entry.get("states", ())
        feeds = _session_feeds(self.session, self.entry)
        needed = {f.name: _TYPES.get(f.type, np.float32) for f in self.session.get_inputs()}
        types = needed | {f.name: _TYPES.get(f.type, np.float32) for f in self.session.get_overridable_initializers()}
        shapes = {port["name"]: port["shape"] for port in self.entry["outputs"]}
        results, caches, count = [], dict[str, np.ndarray](), 0
        for sample in samples:
            if not sequence or not caches:
                empty = {s["past"]: _resized_shape(s["shape"], [s["axis"]], 0) for s in states if s["past"] in needed}
                caches, count = {name: np.zeros(shape, types[name]) for name, shape in empty.items()}, 0
            count += self.entry.get("rows", 0)
            arrays = {**caches, **{name: value.astype(types[name]) for name, value in _pinned_values(self.entry, types).items()}}
            for feed, port, array in zip(feeds, self.entry["inputs"], sample, strict=True):
                part = tuple(map(slice, _resized_shape(port["shape"], port.get("dynamic_axes", ()), count)))
                arrays[feed.name] = np.asarray(array[part], types[feed.name])
            try:
                got = self.session.run([*self.outputs, *(s["present"] for s in states)], arrays)
            except runtime_failures() as error:
                return "it fails on a sample: " + shorten(str(error).splitlines()[0].rpartition("Status Message: ")[2])
            caches = {s["past"]: array for s, array in zip(states, got[len(self.outputs) :], strict=True)}
            results.append([_pad_array(array, shapes.get(name, array.shape)) for name, array in zip(self.outputs, got, strict=False)])
        return [np.stack(column) for column in zip(*results, strict=True)]


def runtime_failures() -> tuple[type[Exception], ...]:
    """What onnxruntime raises for a model or a sample that it does not take."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return state.Fail, state.InvalidGraph, state.NotImplemented, state.InvalidArgument, state.RuntimeException, RuntimeError


def _session_feeds(session: Any, entry: Document) -> list[Any]:
    """The inputs of a session that are those of the network: neither states nor pinned."""
    given = {state["past"] for state in entry.get("states", ())} | {pinned["name"] for pinned in entry.get("pinned", ())}
    return [feed for feed in session.get_inputs() if feed.name not in given]


def _pinned_values(entry: Document, known: Collection[str]) -> dict[str, np.ndarray]:
    """The values of pinned inputs that the session still has, by name."""
    pinned_inputs = [pinned for pinned in entry.get("pinned", ()) if pinned["name"] in known]
    return {pinned["name"]: np.array(pinned["values"], pinned["type"]).reshape(pinned["shape"]) for pinned in pinned_inputs}


def _resized_shape(shape: Sequence[int], axes: Sequence[int], count: int) -> tuple[int, ...]:
    """A shape with ``count`` entries along some axes."""
    return tuple(count if axis in axes else size for axis, size in enumerate(shape))


def _pad_array(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """An array with zeros behind it where it has fewer entries than there is room for."""
    missing = [(0, max(0, n - m)) for m, n in zip(array.shape, shape, strict=False)]
    return array if array.ndim != len(shape) or not any(after for _, after in missing) else np.pad(array, missing)


def open_session(model: Path | bytes, entry: Document, optimise: bool = True, save: Path | None = None) -> tuple[Session | None, str]:
    """Load ``model``, or say why onnxruntime cannot serve as a reference for the network described by ``entry``.

    Args:
        save: where the model is saved as it is after the optimisations.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return None, "onnxruntime is not installed (pip install onnxruntime)"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if save is not None:
        options.optimized_model_filepath = str(save)
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        loaded = onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model), options, providers=["CPUExecutionProvider"]
        )
    except runtime_failures() as error:
        return None, "it cannot load the model: " + str(error).splitlines()[0].rpartition(" failed:")[2][:160]
    pasts = {state["past"]: state for state in entry.get("states", ())}
    axes = [(f.shape, pasts[f.name]["axis"]) for f in loaded.get_inputs() if f.name in pasts]
    if any(axis is not None and isinstance(shape[axis], int) for shape, axis in axes):
        return None, "its caches have a fixed length there"
    feeds, names = _session_feeds(loaded, entry), [port["name"] for port in entry["outputs"]]
    is_exact = all(port["equality"] == "exact" for port in entry["outputs"])
    if len(feeds) != len(entry["inputs"]) or not all(
        _is_kind(f.type, port, is_exact) for f, port in zip(feeds, entry["inputs"], strict=True)
    ):
        return None, "its inputs have other types there"
    known = {o.name: o.type for o in loaded.get_outputs()}
    if not all(_is_kind(known.get(name), port, is_exact) for name, port in zip(names, entry["outputs"], strict=True)):
        return None, "its outputs have other types there"
    return Session(loaded, names, entry), ""


def _is_kind(kind: str | None, port: Document, is_exact: bool) -> bool:
    """Whether a tensor of onnxruntime is what the network has: floats of 64 bits are float32 there, or hold integers (``is_exact``)."""
    real = "" if kind is None else kind.replace("double", "float")
    return real == _KINDS.get(port["type"], "-") or (is_exact and real == "tensor(float)")
