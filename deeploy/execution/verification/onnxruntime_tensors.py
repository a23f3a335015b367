"""The tensors inside of a model as onnxruntime computes them: after its optimisations, which are not changed by asking for tensors, or
without them where they leave less than half of what is wanted.

onnxruntime fuses operators and stores int8 tensors as uint8 where that is faster: few tensors keep their names. A tensor is found by
its name, by a Quantize or Dequantize with a known tensor on its other side, or by the name of the fused operator that computes it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from deeploy.documents import Document
from deeploy.execution.verification import onnxruntime_reference as reference

_SHIFT = 128  # between an int8 tensor and the uint8 tensor that stands for it
_PLAIN = ("Relu", "Clip")  # what fusing takes into the quantisation behind it


@dataclass(frozen=True)
class Inside:
    """Values by the model's names of its tensors, stacked over samples; and the network's outputs in the same run."""

    tensors: Mapping[str, np.ndarray]
    outputs: Sequence[np.ndarray | None]


def run_inside(model: Path, entry: Document, samples: Sequence[Sequence[np.ndarray]], wanted: Mapping[str, np.dtype[Any]]) -> Inside | str:
    """Run a model and keep the tensors of these names and types that can be found, or say why it cannot be run."""
    loaded = onnx.load(model)
    for number, node in enumerate(loaded.graph.node):
        node.name = f"node{number}"
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "optimised.onnx"
        session, reason = reference.open_session(loaded.SerializeToString(), entry, save=path)
        if session is None:
            return reason
        optimised = onnx.load(path)
    inner_names = {name: inner for name, inner in _optimised_names(loaded.graph, optimised.graph).items() if name in wanted}
    if 2 * len(inner_names) < len(wanted):
        optimised, inner_names = loaded, {name: name for node in loaded.graph.node for name in node.output if name in wanted}
    known = {value.name for value in optimised.graph.output}
    optimised.graph.output.extend(onnx.ValueInfoProto(name=inner) for inner in dict.fromkeys(inner_names.values()) if inner not in known)
    again, reason = reference.open_session(optimised.SerializeToString(), entry, optimise=False)
    if again is None:
        return reason
    ports = [port["name"] for port in entry["outputs"]]
    given = reference.Session(again.session, [*inner_names.values(), *ports], entry).run(samples)
    if isinstance(given, str):
        return given
    tensors = {}
    for name, values in zip(inner_names, given, strict=False):
        if values is not None and values.dtype == np.uint8 and wanted[name] == np.int8:
            values = (values.astype(np.int16) - _SHIFT).astype(np.int8)
        if values is not None and values.dtype == wanted[name]:
            tensors[name] = values
    return Inside(tensors, given[len(inner_names) :])


def _optimised_names(before: onnx.GraphProto, after: onnx.GraphProto) -> dict[str, str]:
    """Tensors of the model by their names after the optimisations, in the order of the model."""
    names = {name for node in before.node for name in node.output if name}
    produced = {name for node in after.node for name in node.output}
    makers = {node.name: node for node in before.node}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in before.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    sources = {node.output[0]: node.input[0] for node in before.node if node.op_type == "DequantizeLinear"}
    result = {name: name for name in names & produced}
    for node in after.node:
        if node.op_type == "DequantizeLinear" and node.output[0] in sources:
            result.setdefault(sources[node.output[0]], node.input[0])
        elif node.output and node.output[0] not in names:
            start = node.input[0] if node.op_type == "QuantizeLinear" else makers[node.name].output[0] if node.name in makers else ""
            quantised = _quantised_name(start, readers)
            if quantised is not None:
                result.setdefault(quantised, node.output[0])
    order = {name: position for position, name in enumerate(name for node in before.node for name in node.output)}
    return {name: result[name] for name in sorted(result.keys() & order.keys(), key=order.__getitem__)}


def _quantised_name(name: str, readers: Mapping[str, Sequence[onnx.NodeProto]]) -> str | None:
    """What the only quantisation behind a tensor gives, if nothing else reads the tensor but what is fused into that."""
    while True:
        reading = readers.get(name, ())
        if len(reading) != 1:
            return None
        name = str(reading[0].output[0])
        if reading[0].op_type == "QuantizeLinear":
            return name
        if reading[0].op_type not in _PLAIN:
            return None
