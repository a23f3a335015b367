"""What a model holds, and the options that it needs to be compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import onnx

from deeploy.documents import Contents
from deeploy.frontend import import_model
from deeploy.frontend.integer_graphs import computes_integers
from deeploy.frontend.load import opset_version, read_model
from deeploy.frontend.unknown import check_known
from deeploy.options import PinnedValue
from deeploy.report import text


def inspect_model(path: Path, dims: Mapping[str, int] | None, pins: Mapping[str, PinnedValue] | None) -> Contents:
    """Operators, inputs, outputs and bytes of constants of a file.

    Where dimensions have no extent, it is what the file says, and ``flags`` are the options that ``deeploy compile`` needs.

    Raises:
        ModelError, UnsupportedError, UsageError: it cannot be read, or does not have what ``dims`` or ``pins`` name.
    """
    model = read_model(path)
    open_ = _list_open_dims(model, dims or {}, pins or {})
    if not open_:
        graph = import_model(path, dims, pins=pins)
        return {**text.graph_contents(graph), "integers": computes_integers(graph)}
    check_known(model.graph, None)
    return _inspect_symbolic(model, open_)


def _list_open_dims(model: onnx.ModelProto, dims: Mapping[str, int], pins: Mapping[str, PinnedValue]) -> dict[str, str]:
    """The dimensions of inputs without an extent, by what ``--dim`` calls them, with a value to begin with."""
    constants = {tensor.name for tensor in model.graph.initializer}
    sessions = {}
    for value in (value for value in model.graph.input if value.name not in constants and value.name not in pins):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            names = [name for name in (dim.dim_param, f"{value.name}:{axis}") if name]
            if not dim.HasField("dim_value") and not any(name in dims for name in names):
                sessions[names[0]] = "1" if "batch" in names[0].lower() else "VALUE"
    return sessions


def _inspect_symbolic(model: onnx.ModelProto, open_: Mapping[str, str]) -> Contents:
    """``inspect`` of a model with dimensions that have no extent."""
    graph, constants = model.graph, {tensor.name: tensor for tensor in model.graph.initializer}

    def port(value: onnx.ValueInfoProto) -> Contents:
        tensor = value.type.tensor_type
        shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim]
        return {"name": value.name, "type": onnx.TensorProto.DataType.Name(tensor.elem_type).lower(), "shape": shape}

    operators = Counter(f"{node.domain}:{node.op_type}" if node.domain else node.op_type for node in graph.node)
    return {
        "opset": opset_version(model),
        "nodes": len(graph.node),
        "operators": dict(sorted(operators.items())),
        "inputs": [port(value) for value in graph.input if value.name not in constants],
        "outputs": [port(value) for value in graph.output],
        "constants": len(constants),
        "constant_bytes": sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in constants.values()),
        "flags": [word for name, value in open_.items() for word in ("--dim", f"{name}={value}")],
    }
