"""Small float networks for the quantiser, made of rows of operators and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import helper

from tests.models import save_model

Node = tuple[str, str, str, dict[str, object]]


def node(op: str, inputs: str, outputs: str, **attributes: object) -> Node:
    """A node of an operator, with the names of its inputs and outputs, separated by spaces."""
    return op, inputs, outputs, attributes


def save(
    path: Path,
    nodes: Sequence[Node],
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int]],
    constants: Mapping[str, np.ndarray],
    opset: int = 17,
) -> Path:
    """Write a network of floats; nodes are called by their first output."""
    made = [helper.make_node(op, i.split(), o.split(), o.split()[0], **a) for op, i, o, a in nodes]
    arrays = {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in constants.items()}
    return save_model(path, made, inputs, outputs, arrays, opset)


def outputs_of(path: Path, samples: Sequence[Mapping[str, np.ndarray]], states: Mapping[str, str] | None = None) -> list[list[np.ndarray]]:
    """Every output of every sample by onnxruntime, states carried from one to the next."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names, carried, found = [output.name for output in session.get_outputs()], dict[str, np.ndarray](), list[list[np.ndarray]]()
    for sample in samples:
        found.append(session.run(None, {**sample, **carried}))
        carried = {past: found[-1][names.index(present)] for past, present in (states or {}).items()}
    return found


def decibel(got: np.ndarray, expected: np.ndarray) -> float:
    """Signal to noise; 200 where there is no noise."""
    noise = float(np.square(got - expected).sum())
    return float(10 * np.log10(np.square(expected).sum() / noise)) if noise else 200.0
