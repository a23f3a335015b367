"""LiteRT as the reference of a TensorFlow Lite file, where it is installed: by its reference kernels, whose integers are ours."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deeploy.documents import Document
from deeploy.errors import shorten
from deeploy.ir.types import DType


def run_litert(model: Path, samples: Sequence[Sequence[np.ndarray]], sequence: bool = False) -> list[np.ndarray] | str:
    """Every output, stacked over the samples, steps of one sequence or each its own; why there are none, as a text."""
    if importlib.util.find_spec("ai_edge_litert") is None:
        return "LiteRT is not installed (pip install ai-edge-litert)"
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    results = []
    try:
        interpreter = Interpreter(model_path=str(model), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
        interpreter.allocate_tensors()
        for sample in samples:
            if not sequence:
                interpreter.reset_all_variables()
            for port, array in zip(interpreter.get_input_details(), sample, strict=True):
                interpreter.set_tensor(port["index"], array.reshape(port["shape"]).astype(port["dtype"]))
            interpreter.invoke()
            results.append([interpreter.get_tensor(port["index"]) for port in interpreter.get_output_details()])
    except (RuntimeError, ValueError) as error:
        return f"LiteRT does not take the file: {shorten((str(error).splitlines() or [''])[0], 200)}"
    return [np.stack(column) for column in zip(*results, strict=True)]


def compared_outputs(
    model: Path, entry: Document, samples: Sequence[Sequence[np.ndarray]], sequence: bool
) -> list[np.ndarray | None] | str:
    """The same, None where an output has not the network's type (``--quantised-io``)."""
    outputs = run_litert(model, samples, sequence)
    if isinstance(outputs, str):
        return outputs
    return [y if y.dtype == DType(port["type"]).numpy else None for y, port in zip(outputs, entry["outputs"], strict=True)]
