"""What a model holds, and the options that it needs to be compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from deeploy.documents import Contents
from deeploy.errors import DeeployError
from deeploy.frontend import import_model
from deeploy.frontend.integer_graphs import computes_integers
from deeploy.frontend.load import opset_version, read_model
from deeploy.frontend.unknown import check_known
from deeploy.options.texts import PinnedValue
from deeploy.report import text

_EXTENTS = (16, 64, 224, 1)  # of dimensions without one, that are tried in this order
_MOST_TRIED = 1 << 26  # bytes of a model file


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
    return _inspect_symbolic(model, _guess_extents(path, open_, dims or {}, pins))


def _list_open_dims(model: onnx.ModelProto, dims: Mapping[str, int], pins: Mapping[str, PinnedValue]) -> list[str]:
    """The dimensions of inputs without an extent, by what ``--dim`` calls them."""
    constants = {tensor.name for tensor in model.graph.initializer}
    names = dict[str, None]()
    for value in (value for value in model.graph.input if value.name not in constants and value.name not in pins):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            known = [name for name in (dim.dim_param, f"{value.name}:{axis}") if name]
            if not (dim.HasField("dim_value") and dim.dim_value >= 0) and not any(name in dims for name in known):
                names[known[0]] = None
    return list(names)


def _guess_extents(path: Path, names: Sequence[str], dims: Mapping[str, int], pins: Mapping[str, PinnedValue] | None) -> dict[str, str]:
    """Extents to begin with, by name: 1 of a batch, and of the others the first with which the model can be read; else none."""
    for extent in _EXTENTS if path.stat().st_size <= _MOST_TRIED else ():
        guess = {name: 1 if "batch" in name.lower() else extent for name in names}
        try:
            import_model(path, {**dims, **guess}, pins=pins)
        except DeeployError:
            continue
        return {name: str(value) for name, value in guess.items()}
    return {name: "1" if "batch" in name.lower() else "VALUE" for name in names}


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
