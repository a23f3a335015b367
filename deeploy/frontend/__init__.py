"""From an ONNX file to a graph in the integer form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx
import onnx_graphsurgeon as gs

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.load import opset_version, read_model
from deeploy.frontend.normalise import normalise
from deeploy.frontend.shapes import read_type
from deeploy.frontend.structure import check_and_sort
from deeploy.frontend.trace import CustomShapes, trace

__all__ = ["import_model"]


def import_model(path: Path, dims: Mapping[str, int] | None = None, custom_shapes: CustomShapes | None = None) -> gs.Graph:
    """Read an ONNX file and return its normalised graph (docs/normalised-graph.md).

    Args:
        dims: extents of symbolic dimensions by name.
        custom_shapes: output shapes of an operator that nobody else knows, or None.

    Raises:
        ModelError: the file cannot be read or is no valid model.
        UnsupportedError: a construct that is not handled.
    """
    model = read_model(path)
    nodes = check_and_sort(model.graph)
    inputs = _inputs(model.graph, dims or {})
    version = opset_version(model)
    state = trace(model.graph, nodes, inputs, version, dims or {}, custom_shapes)
    outputs = [state.tensors[value.name] for value in model.graph.output]
    for value, tensor in zip(model.graph.output, outputs, strict=True):
        if tensor.name != value.name and isinstance(tensor, gs.Variable) and tensor not in inputs:
            tensor.name = value.name if sum(t is tensor for t in outputs) == 1 else tensor.name
    graph = gs.Graph(state.nodes, inputs, outputs, name=model.graph.name or "network", opset=version)
    return normalise(graph, version)


def _inputs(graph: onnx.GraphProto, dims: Mapping[str, int]) -> list[gs.Variable]:
    """The inputs that are not initialisers, with every dimension pinned."""
    constants = {tensor.name for tensor in graph.initializer}
    values = [value for value in graph.input if value.name not in constants]
    named = {dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    for name in dims.keys() - named:
        known = ", ".join(sorted(shorten(n) for n in named)) or "none"
        raise ModelError(
            f"--dim {shorten(name)}: no input has a dimension of that name", f"The symbolic dimensions of this model: {known}."
        )
    result = []
    for value in values:
        if not value.type.tensor_type.elem_type:
            raise ModelError(f"input '{shorten(value.name)}' has no element type", "export the model again")
        found = read_type(value.type, dims)
        if found.shape is None:
            raise UnsupportedError(f"input '{shorten(value.name)}' has no shape", "export the model with fixed shapes")
        for position, extent in enumerate(found.shape):
            if extent is None:
                result_name = value.type.tensor_type.shape.dim[position].dim_param
                if result_name:
                    remedy = f"pin it: --dim {shorten(result_name)}=VALUE"
                else:
                    remedy = "the dimension has no name to pin it by; export the model with fixed shapes"
                raise UnsupportedError(
                    f"dimension {position} of input '{shorten(value.name)}' ({shorten(result_name) or 'unnamed'}) is dynamic", remedy
                )
        result.append(gs.Variable(value.name, found.dtype, [n for n in found.shape if n is not None]))
    return result
