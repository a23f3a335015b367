"""Layers of a network: from an ONNX file, through the compiler's own declarations, or from a list saved before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from deeploy.documents import Contents, read_document
from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend import import_states
from deeploy.frontend.dialect_types import is_dialect, resolve_input_types
from deeploy.frontend.integer_graphs import computes_integers, write_requantisations
from deeploy.frontend.lower import assign_types
from deeploy.frontend.states import append_states
from deeploy.ir.loops import LOOPS, LayerLoops, distinct_layers, from_geometry
from deeploy.ir.rewriting import rewrite_graph
from deeploy.ir.target import Target
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.binding.kernels import custom_type, inferred_shapes
from deeploy.planning.program import Program, Role

_FORMAT = 1


def read_network(file: Path, target: Target, dims: Mapping[str, int] | None = None) -> list[LayerLoops]:
    """The layers of a network, repeated ones counted.

    Args:
        file: an ONNX model, or a list that ``save_layers`` wrote (its name ends in ``.json``).
        target: whose lowering and kernels declare the loop nests.

    Raises:
        ModelError, UnsupportedError: a file that cannot be read, an operator without a loop nest, a network without products.
    """
    return load_layers(file) if file.suffix == ".json" else distinct_layers(_from_model(file, target, dims or {}))


def _from_model(file: Path, target: Target, dims: Mapping[str, int]) -> list[LayerLoops]:
    source = import_states(file, dims, partial(inferred_shapes, target.kernels))
    graph = source.graph
    if is_dialect(graph) or computes_integers(graph):
        types, _ = resolve_input_types(graph, {}, True)
        graph = assign_types(write_requantisations(graph, types), types, partial(custom_type, target.kernels))
    graph = append_states(rewrite_graph(graph, target.passes), source.pairs)
    return from_program(assemble_program(file.name, graph, target.kernels))


def from_program(program: Program) -> list[LayerLoops]:
    """Every multiply-accumulate nest of a network as a layer, in order.

    Raises:
        UnsupportedError: no call multiplies and accumulates, or one whose dimensions have no role.
    """
    layers = []
    for call in program.calls:
        constants = {n for n, operand in call.operands.items() if program.buffers[operand.buffer].role is Role.CONSTANT}
        layers += from_geometry(call.node.name, call.geometry, constants)
    if not layers:
        raise UnsupportedError(
            f"network {shorten(program.name)} has no layer that multiplies and accumulates",
            "Explore networks with convolutions or products.",
        )
    return layers


def save_layers(file: Path, layers: Sequence[LayerLoops], about: str) -> None:
    """Write a list of layers; ``about`` says which network, and how the list can be made again."""
    entries = [_layer_entry(layer) for layer in layers]
    lines = ",\n  ".join(json.dumps(entry) for entry in entries)
    file.write_text(f'{{"format": {_FORMAT}, "about": {json.dumps(about)}, "layers": [\n  {lines}\n]}}\n', encoding="utf-8")


def _layer_entry(layer: LayerLoops) -> Contents:
    sizes = dict(zip(LOOPS, layer.sizes, strict=True))
    return {"name": layer.name, "count": layer.count, **sizes, "strides": layer.strides, "dilations": layer.dilations}


def load_layers(file: Path) -> list[LayerLoops]:
    """Read a list of layers.

    Raises:
        UsageError: there is no such file.
        ModelError: it is not what its schema says; the layer's place and field are named.
    """
    return [_parse_layer(entry, position) for position, entry in enumerate(read_document(file, "layers.json", ModelError)["layers"])]


def _parse_layer(entry: Contents, position: int) -> LayerLoops:
    (sy, sx), (dy, dx) = (entry.get(name, (1, 1)) for name in ("strides", "dilations"))
    return LayerLoops(entry.get("name", str(position)), tuple(entry[loop] for loop in LOOPS), (sy, sx), (dy, dx), entry["count"])
