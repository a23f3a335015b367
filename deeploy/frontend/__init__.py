"""The import stage: from an ONNX file to the normalised graph (docs/normalised-graph.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from deeploy.errors import shorten
from deeploy.frontend.dynamic_axis import Imported, has_caches, import_dynamic
from deeploy.frontend.exported import is_exported
from deeploy.frontend.graph_io import annotated_scales, bind_outputs, check_tensors, name_dims, read_inputs
from deeploy.frontend.labels import Labels, number_labels
from deeploy.frontend.load import opset_version, read_model
from deeploy.frontend.pins import Pinned, pin_inputs
from deeploy.frontend.schemas import ML
from deeploy.frontend.states import KnownState, take_values
from deeploy.frontend.structure import check_and_sort, describe_node, is_control
from deeploy.frontend.trace import trace_nodes
from deeploy.frontend.type_legalisation import double_ports, has_halves, narrow_types, widen_types
from deeploy.frontend.unknown import check_known
from deeploy.frontend.validate import check_model
from deeploy.frontend.vendors import TFLITE_DOMAIN
from deeploy.frontend.walk import CustomShapes
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.options import MOST_UNROLLED, Exact
from deeploy.options.texts import PinnedValue

__all__ = ["CustomShapes", "Imported", "import_model", "import_states", "in_floats", "readers_first", "without_branches"]

_LITE_UNROLLED = 500  # nodes of the rounds of loops of TensorFlow Lite files, unless the user says how many: LSTMs, for microcontrollers
_LARGEST_STEP = 1e30  # of a quantisation: no sensor, product or sum comes near it


def import_model(
    path: Path,
    dims: Mapping[str, int] | None = None,
    custom_shapes: CustomShapes | None = None,
    pins: Mapping[str, PinnedValue] | None = None,
) -> Graph:
    """Read an ONNX file and normalise it.

    Args:
        path: the model; external data is read from its folder only.
        dims: extents of symbolic dimensions by name; ``INPUT:AXIS`` names one that has no name.
        custom_shapes: output shapes of a node whose operator the importer does not know; None where it does not know
            either.
        pins: values of inputs that become constants, by name.

    Raises:
        ModelError: a file that cannot be read, or a model that is not valid.
        UnsupportedError: a valid model with something that is not handled.
        UsageError: ``dims`` or ``pins`` that the model does not have.
    """
    return import_read(_read_checked(path, dims or {}, pins or {}, custom_shapes).model, dims, custom_shapes)


def import_states(
    path: Path,
    dims: Mapping[str, int] | None = None,
    custom_shapes: CustomShapes | None = None,
    states: Mapping[str, str] | None = None,
    context: int | None = None,
    known: Sequence[KnownState] = (),
    pins: Mapping[str, PinnedValue] | None = None,
    unroll: int = MOST_UNROLLED,
    exact: Exact = "tflite",
) -> Imported:
    """Like ``import_model``, with inputs and outputs that are one state; see ``deeploy.frontend.dynamic_axis``.

    Loops become ``unroll`` nodes at most. ``exact``: whose rounding requantisations of TensorFlow Lite files have (``read_network``).
    """
    checked = _read_checked(path, dims or {}, pins or {}, custom_shapes, exact)

    is_lite = any(entry.domain == TFLITE_DOMAIN for entry in checked.model.opset_import)
    most = _LITE_UNROLLED if is_lite and unroll == MOST_UNROLLED else unroll

    def fold(part: onnx.ModelProto, extents: Mapping[str, int]) -> Graph:
        return import_read(part, extents, custom_shapes, most)

    declared, values = take_values(checked.model.graph, states or {})
    imported = import_dynamic(checked.model, fold, dims or {}, declared, context, known)
    labels = checked.labels
    told = [
        f"output {shorten(name)} is the index of a label, see deploy.json: {shorten(', '.join(texts))}" for name, texts in labels.items()
    ]
    if coarse := _coarse_quantisation(checked.model.graph):
        told.append(
            f"{coarse}: a mask of minus infinity led to its scale, which leaves nothing of the scores; deeploy quantize bounds masks"
        )
    if wide := double_ports(checked.model):
        told.append(f"{shorten(', '.join(wide))}: floats of 64 bits in the model, float32 in C")
    if checked.halves:
        told.append(f"{shorten(', '.join(checked.halves))}: floats of 16 bits in the model, float32 in C")
    return replace(
        imported,
        pairs=tuple(replace(pair, initial=values.get(pair.past)) for pair in imported.pairs),
        pinned=checked.pinned,
        narrow=checked.narrow,
        labels=labels,
        scales=annotated_scales(checked.model.graph),
        notes=(*imported.notes, *told),
    )


def _coarse_quantisation(graph: onnx.GraphProto) -> str:
    """The first quantisation whose steps are so large that only a mask can be its cause; empty where there is none."""
    scalars = (tensor for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT and math.prod(tensor.dims) == 1)
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in scalars}
    coarse = (n for n in graph.node if n.op_type == "QuantizeLinear" and np.any(values.get(n.input[1], np.zeros(1)) > _LARGEST_STEP))
    return next(map(describe_node, coarse), "")


def readers_first(models: Mapping[str, str | Path], dims: Mapping[str, Mapping[str, int]], states: Mapping[str, str]) -> list[str]:
    """The order in which models of one project are imported, by their names: those with caches for inputs come first.

    What they store says what those that only write caches have to.
    """
    if len(models) < 2:
        return list(models)
    return sorted(
        models, key=lambda name: not has_caches(_read_checked(Path(models[name]), {}, {}, lambda node: []).model, dims[name], states)
    )


class _Checked(NamedTuple):
    """A model that is well formed, with constants for the inputs that are pinned.

    Attributes:
        narrow: types that it has some of its weights in.
        halves: its inputs and outputs that are floats of 16 bits in the file.
    """

    model: onnx.ModelProto
    pinned: tuple[Pinned, ...]
    narrow: frozenset[DType]
    labels: Labels
    halves: list[str]


def _read_checked(
    path: Path, dims: Mapping[str, int], pins: Mapping[str, PinnedValue], custom_shapes: CustomShapes | None, exact: Exact = "tflite"
) -> _Checked:
    """A model, read and checked (see ``deeploy.frontend.validate``)."""
    model = read_model(path, exact)
    name_dims(model.graph, dims)
    pinned = pin_inputs(model, pins, dims)
    labels = number_labels(model)
    check_known(model.graph, custom_shapes)
    check_model(model, opset_version(model))
    narrow = narrow_types(model)
    return _Checked(model, pinned, narrow, labels, widen_types(model))


def in_floats(path: Path) -> Path | bytes:
    """A model for another runtime to compute as the generated code does; the file, where nothing of it has to change.

    Its floats of 16 bits are float32, its texts are their places in a list, and scores are no dictionaries.
    """
    model = read_model(path)
    if not has_halves(model) and all(node.domain != ML for node in model.graph.node) and not is_exported(path.read_bytes()):
        return path
    number_labels(model)
    widen_types(model)
    return bytes(model.SerializeToString())


def without_branches(model: onnx.ModelProto, dims: Mapping[str, int]) -> onnx.ModelProto:
    """The model with the nodes of branches and bodies in the place of control flow; the model itself where there is none.

    Raises:
        ModelError, UnsupportedError, UsageError: as ``import_model``.
    """
    if not any(map(is_control, model.graph.node)):
        return model
    checked = onnx.ModelProto()
    checked.CopyFrom(model)
    check_model(checked, opset_version(checked))
    nodes, inputs = check_and_sort(checked.graph), read_inputs(checked.graph, dims)
    flat = trace_nodes(checked.graph, nodes, inputs, opset_version(checked), dims, None, MOST_UNROLLED).flat
    del checked.graph.node[:]
    checked.graph.node.extend(flat)
    sorted_nodes = check_and_sort(checked.graph)
    del checked.graph.node[:]
    checked.graph.node.extend(sorted_nodes)
    return checked


def import_read(
    model: onnx.ModelProto,
    dims: Mapping[str, int] | None = None,
    custom_shapes: CustomShapes | None = None,
    unroll: int = MOST_UNROLLED,
) -> Graph:
    """Normalise a model that was read and checked, whose loops become ``unroll`` nodes at most; see ``import_model``."""
    version = opset_version(model)
    nodes = check_and_sort(model.graph)
    inputs = read_inputs(model.graph, dims or {})
    walk = trace_nodes(model.graph, nodes, inputs, version, dims or {}, custom_shapes, unroll)
    outputs = {output.name: walk.operand(walk.tensors[output.name], output.name) for output in model.graph.output}
    bound = bind_outputs(inputs, outputs, walk.known.fresh)
    graph = Graph(model.graph.name or "network", tuple(inputs), tuple(bound), version, list(model.opset_import))
    check_tensors(graph)
    return graph
