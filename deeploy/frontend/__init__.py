"""The import stage: from an ONNX file to the normalised graph (docs/normalised-graph.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx_graphsurgeon as gs

from deeploy.frontend.ends import bind_outputs, check_types, read_inputs
from deeploy.frontend.load import opset_version, read_model
from deeploy.frontend.normalise import normalise
from deeploy.frontend.rules import Context
from deeploy.frontend.structure import check_and_sort
from deeploy.frontend.trace import CustomShapes, trace

__all__ = ["CustomShapes", "import_model"]


def import_model(path: Path, dims: Mapping[str, int] | None = None, custom_shapes: CustomShapes | None = None) -> gs.Graph:
    """Read an ONNX file and normalise it.

    Args:
        path: the model; external data is read from its folder only.
        dims: extents of symbolic dimensions by name; ``INPUT:AXIS`` names one that has no name.
        custom_shapes: output shapes of a node whose operator the importer does not know; None where it does not know
            either.

    Raises:
        ModelError: a file that cannot be read, or a model that is not valid.
        UnsupportedError: a valid model with something that is not handled.
        UsageError: ``dims`` that the model does not have.
    """
    model = read_model(path)
    version = opset_version(model)
    nodes = check_and_sort(model.graph)
    inputs = read_inputs(model.graph, dims or {})
    traced = trace(model.graph, nodes, inputs, version, dims or {}, custom_shapes)
    names = [output.name for output in model.graph.output]
    taken = {tensor.name for tensor in traced.tensors.values()} | set(traced.tensors) | traced.names
    context = Context(version, taken)
    live, tensors = normalise(traced.nodes, [traced.tensors[name] for name in names], context)
    live += bind_outputs(live, inputs, names, tensors, context)
    graph = gs.Graph(
        nodes=live,
        inputs=inputs,
        outputs=tensors,
        name=model.graph.name or "network",
        opset=version,
        import_domains=list(model.opset_import),
    )
    check_types(graph)
    return graph
