"""onnxruntime as an independent opinion, where it is installed and can run the model."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
}


@dataclass(frozen=True)
class Session:
    """A model loaded by onnxruntime, with its default optimisations."""

    session: Any
    outputs: Sequence[str]

    def run(self, samples: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray | None]:
        """Every output, stacked over the samples; None where its type is not the network's (``--quantised-io``)."""
        feeds = self.session.get_inputs()
        rows = []
        for sample in samples:
            arrays = {f.name: np.asarray(a, _TYPES.get(f.type, np.float32)) for f, a in zip(feeds, sample, strict=True)}
            rows.append(self.session.run(list(self.outputs), arrays))
        return [np.stack(column) for column in zip(*rows, strict=True)]


def session(model: Path | bytes, entry: Mapping[str, Any], optimise: bool = True) -> tuple[Session | None, str]:
    """Load ``model``, or say why onnxruntime cannot serve as a reference for the network described by ``entry``."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None, "onnxruntime is not installed (pip install 'deeploy-compiler[verify]')"
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    failures = (state.Fail, state.InvalidGraph, state.NotImplemented, state.InvalidArgument, state.RuntimeException, RuntimeError)
    try:
        loaded = onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model), options, providers=["CPUExecutionProvider"]
        )
    except failures as error:
        return None, "it cannot load the model: " + str(error).splitlines()[0].rpartition(" failed:")[2][:160]
    feeds, names = loaded.get_inputs(), [port["name"] for port in entry["outputs"]]
    kinds = {"f32": "float", "s8": "int8", "u8": "uint8", "s32": "int32", "s64": "int64"}
    wanted = [f"tensor({kinds.get(port['type'], '?')})" for port in entry["inputs"]]
    if [f.type for f in feeds] != wanted:
        return None, "its inputs have other types there"
    known = {o.name: o.type for o in loaded.get_outputs()}
    if any(known.get(name) != f"tensor({kinds.get(port['type'], '?')})" for name, port in zip(names, entry["outputs"], strict=True)):
        return None, "its outputs have other types there"
    return Session(loaded, names), ""
