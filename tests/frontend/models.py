"""Small models for the tests of the import stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deeploy.frontend import CustomShapes, import_model
from deeploy.ir.values import Graph
from deeploy.options.texts import PinnedValue

Spec = tuple[Sequence[int | str | None], int]  # shape and element type of an input


def f32(*shape: int | str | None) -> Spec:
    return shape, TensorProto.FLOAT


def build(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Spec],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 13,
    **more: Any,
) -> onnx.ModelProto:
    """A model whose outputs have no declared shape."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, kind, shape) for name, (shape, kind) in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    domains = {node.domain for node in nodes} - {"", "ai.onnx"}
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)


def read(
    model: onnx.ModelProto,
    folder: Path,
    dims: Mapping[str, int] | None = None,
    custom_shapes: CustomShapes | None = None,
    pins: Mapping[str, PinnedValue] | None = None,
) -> Graph:
    """Write the model and import it."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return import_model(path, dims, custom_shapes, pins)


def one(
    folder: Path,
    op: str,
    shape: Sequence[int],
    *operands: np.ndarray | None,
    opset: int = 13,
    outputs: int = 1,
    domain: str = "",
    kind: int = TensorProto.FLOAT,
    **attributes: Any,
) -> Graph:
    """Import a model of one node that reads ``x`` and constants; None leaves an optional input out."""
    names = [f"c{i}" if value is not None else "" for i, value in enumerate(operands)]
    results = ["y", *(f"y{i}" for i in range(1, outputs))]
    node = helper.make_node(op, ["x", *names], results, name="the node", domain=domain, **attributes)
    constants = {name: value for name, value in zip(names, operands, strict=True) if value is not None}
    return read(build([node], {"x": (shape, kind)}, results, constants, opset), folder)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)
