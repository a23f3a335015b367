"""Read an ONNX file into one self-contained model: external data inside, local functions inlined, versions checked.

External data is read only from regular files inside the model's own folder, so that a model cannot make the compiler
read other files of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import helper

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.attributes import read_array, read_attributes
from deeploy.frontend.constraints import check_constraints
from deeploy.frontend.exported import is_exported, read_exported
from deeploy.frontend.formats import recognise_folder, recognise_format
from deeploy.frontend.labels import without_dictionaries
from deeploy.frontend.schemas import DIALECT_DOMAINS, ONNX_FAILURES, RECORDS, canonical_domain, keeps_shape
from deeploy.frontend.shapes import numpy_dtype
from deeploy.frontend.structure import all_graphs, check_structure, count_inputs, is_standard, node_graphs
from deeploy.frontend.tflite import is_tflite, read_network
from deeploy.frontend.training_files import unpack_training_graph
from deeploy.frontend.validate import check_node, check_text
from deeploy.ir.nodes import Tensor
from deeploy.ir.types import DType
from deeploy.options import Exact

OLDEST_OPSET = 7

# Standard operators that are taken apart into others, as ONNX defines them.
COMPOSED = frozenset(op for (domain, op), record in RECORDS.items() if record.is_composed)
_BESIDE_OTHERS = 18  # opset of a model that imports other domains alone: onnxruntime takes one of the newest
_BODIES = "deeploy.bodies"  # domain of local functions that are made of composed operators
_DEEPEST = 2  # composed operators inside of others
_MOST_SHOWN = 1024  # elements of constants that describe a shape
_MOST_NODES = 1_000_000  # calls of local functions are expanded; nested ones can grow exponentially

_FLOATS = frozenset(onnx.TensorProto.DataType.Value(name) for name in ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"))

_EPSILON = 1e-6  # of RMSNorm: with it, the published float microLlama is what its files say within 1e-6

_EXPORT_AGAIN = "export the model again, or check that the file is complete"


def read_model(path: Path, exact: Exact = "tflite") -> onnx.ModelProto:
    """Read ``path``; the result has no external data and no local functions.

    ``exact``: whose rounding requantisations of TensorFlow Lite files have (``read_network``).

    Raises:
        ModelError: the file is missing, not ONNX, damaged, or refers to data that cannot be read.
        UnsupportedError: a version or a construct that is not handled.
    """
    model = read_whole(path, exact)
    check_opset(model)
    return _take_apart(model)


def read_whole(path: Path, exact: Exact = "tflite") -> onnx.ModelProto:
    """Like ``read_model``, of any version, and with composed operators as they are.

    Raises:
        ModelError, UnsupportedError: as ``read_model``.
    """
    model = _parse_model(path, exact)
    if opset_version(model) == 0 and model.opset_import:
        model.opset_import.append(helper.make_opsetid("", _BESIDE_OTHERS))
    without_dictionaries(model)
    unpack_training_graph(model)
    _load_external_data(model, path.parent)
    for tensor in (
        *model.graph.initializer,
        *_node_tensors(model.graph.node),
        *(t for function in model.functions for t in _node_tensors(function.node)),
    ):
        read_array(tensor, tensor.name)  # or whoever looks at its value finds that it is damaged
    model = _inline_functions(model)
    nodes = [node for graph in all_graphs(model.graph) for node in graph.node]
    if any(node.op_type == "RMSNorm" and node.domain in DIALECT_DOMAINS for node in nodes):
        for node in nodes:
            _of_floats(node)
    check_structure(model.graph)
    return model


def _of_floats(node: onnx.NodeProto) -> None:
    """A node of the dialect's float form as the standard and onnxruntime have it.

    RMSNorm adds 1e-6 where it says nothing else. Softmax is one of the last axis; before version 13, the standard has it of axis 1.
    """
    given = {attribute.name: attribute for attribute in node.attribute}
    if node.op_type == "RMSNorm" and node.domain in DIALECT_DOMAINS:
        epsilon = given.get("eps") or given.get("epsilon") or node.attribute.add(type=onnx.AttributeProto.FLOAT, f=_EPSILON)
        epsilon.name = "epsilon"
        node.op_type, node.domain = "SimplifiedLayerNormalization", ""
    elif node.op_type == "Softmax" and not node.domain and "axis" not in given:
        node.attribute.append(helper.make_attribute("axis", -1))


def _parse_model(path: Path, exact: Exact = "tflite") -> onnx.ModelProto:
    name = shorten(str(path))
    if path.is_dir():
        what, remedy = recognise_folder(path) or ("a folder", "give the path of a .onnx file")
        raise ModelError(f"{name} is {what}, not an ONNX file", remedy)
    if not path.is_file():
        raise ModelError(f"there is no file {name}", "check the path of the model")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{name} cannot be read: {error.strerror}", "check the permissions of the file") from error
    if not content:
        raise ModelError(f"{name} is empty", _EXPORT_AGAIN)
    if is_tflite(content):
        return read_network(content, name, exact == "tflite")
    if is_exported(content):
        return read_exported(content, name)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise _not_onnx(path, content, "is not an ONNX file, or it is truncated") from error
    if not model.HasField("graph"):
        raise _not_onnx(path, content, "holds no ONNX graph")
    check_text(model)
    return model


def _not_onnx(path: Path, content: bytes, problem: str) -> ModelError:
    """The error for a file that is something else, which it says where that can be told."""
    format_name = recognise_format(path, content)
    name = shorten(str(path))
    return (
        ModelError(f"{name} {problem}", _EXPORT_AGAIN)
        if format_name is None
        else ModelError(f"{name} is {format_name[0]}, not an ONNX file", format_name[1])
    )


def opset_version(model: onnx.ModelProto) -> int:
    """Version of the standard operators that the model uses; 0 when it imports none."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def check_opset(model: onnx.ModelProto) -> None:
    """Raise unless the model's opset is one that is handled."""
    version, newest = opset_version(model), onnx.defs.onnx_opset_version()
    if version == 0:
        raise ModelError("the model imports no opset of the standard operators", _EXPORT_AGAIN)
    if version < OLDEST_OPSET:
        raise UnsupportedError(
            f"the model uses opset {version}; the oldest that is handled is {OLDEST_OPSET}",
            "convert it with onnx.version_converter, or export it with a newer opset",
        )
    if version > newest:
        raise UnsupportedError(
            f"the model uses opset {version}; the newest that the installed onnx package knows is {newest}",
            "export the model with an older opset, or install a newer onnx package",
        )


def _node_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """The constants that nodes hold, and those of the graphs that they hold."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for graph in node_graphs(node):
            yield from graph.initializer
            yield from _node_tensors(graph.node)


def files_of(path: Path) -> list[Path]:
    """The model's own file, and those inside its folder that hold data of its tensors.

    Raises:
        ModelError: the file is missing, not ONNX, damaged, or refers to data that cannot be read.
    """
    places = {_external_path(tensor, path.parent) for tensor in _external_tensors(_parse_model(path))}
    return [path, *sorted(places)]


def _external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors whose data lie in other files."""
    tensors = chain(
        model.graph.initializer, _node_tensors(model.graph.node), *(_node_tensors(function.node) for function in model.functions)
    )
    return (tensor for tensor in tensors if tensor.data_location == onnx.TensorProto.EXTERNAL)


def _load_external_data(model: onnx.ModelProto, folder: Path) -> None:
    """Replace external data by its bytes, read from files inside ``folder``."""
    for tensor in _external_tensors(model):
        tensor.raw_data = _external_bytes(tensor, folder)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _external_entries(tensor: onnx.TensorProto) -> dict[str, str]:
    """What a tensor says of its external data."""
    return {entry.key: entry.value for entry in tensor.external_data}


def _external_path(tensor: onnx.TensorProto, folder: Path) -> Path:
    return _file_inside(shorten(tensor.name), _external_entries(tensor).get("location", ""), folder)


def _external_bytes(tensor: onnx.TensorProto, folder: Path) -> bytes:
    name, entries, path = shorten(tensor.name), _external_entries(tensor), _external_path(tensor, folder)
    location = entries.get("location", "")
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries["length"]) if entries.get("length") else None
    except ValueError as error:
        raise ModelError(f"tensor '{name}' has an external offset or length that is not a number", _EXPORT_AGAIN) from error
    size = path.stat().st_size
    length = size - offset if length is None else length
    if offset < 0 or length < 0 or offset + length > size:
        raise ModelError(
            f"tensor '{name}' wants bytes {offset} to {offset + length} of {shorten(location)}, which has {size} bytes",
            "copy the complete data file next to the model",
        )
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise ModelError(f"external data {shorten(location)} cannot be read: {error.strerror}", "check its permissions") from error


def _file_inside(name: str, location: str, folder: Path) -> Path:
    """The file ``location``, which must be a regular file inside ``folder`` after following links."""
    if not location or "\0" in location:
        raise ModelError(f"tensor '{name}' has external data without a valid location", _EXPORT_AGAIN)
    outside = ModelError(
        f"external data {shorten(location)} of tensor '{name}' lies outside the model's folder",
        "put the data file into the model's folder and refer to it by a relative path",
    )
    relative = PurePosixPath(location)
    if relative.is_absolute() or PureWindowsPath(location).is_absolute() or ".." in relative.parts:
        raise outside
    try:
        root = folder.resolve(strict=True)
        path = (root / relative).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise ModelError(
            f"external data {shorten(location)} of tensor '{name}' is missing", "copy the data file next to the model"
        ) from error
    if not path.is_relative_to(root):
        raise outside
    if not path.is_file():
        raise ModelError(f"external data {shorten(location)} of tensor '{name}' is not a file", "copy the data file next to the model")
    return path


def _inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace calls of the model's local functions by their bodies."""
    if not model.functions:
        return model
    _check_calls(model)
    try:
        inlined = onnx.inliner.inline_local_functions(model, convert_version=True)
    except ONNX_FAILURES as error:
        raise ModelError(f"the model's local functions cannot be inlined: {shorten(str(error))}", _EXPORT_AGAIN) from error
    left = {(function.domain, function.name) for function in inlined.functions}
    for node in inlined.graph.node:
        if (node.domain, node.op_type) in left:
            raise UnsupportedError(
                f"local function '{shorten(node.op_type)}' uses other operator versions than the model and cannot be converted",
                "export the model with one opset for the graph and its functions",
            )
    return inlined


def _take_apart(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace composed operators, also those in bodies, by the bodies that ONNX gives them, where the model's opset has one."""
    for _ in range(_DEEPEST):
        model = _take_apart_once(model)
    return model


def _take_apart_once(model: onnx.ModelProto) -> onnx.ModelProto:
    nodes = [node for graph in all_graphs(model.graph) for node in graph.node]
    composed = {node.op_type for node in nodes if is_standard(node)} & COMPOSED
    if not composed:
        return model
    for node in nodes:
        if node.op_type in composed:
            _state_defaults(node, opset_version(model))
    # Some bodies depend on the types and ranks of their inputs, constants included.
    known = {value.name for value in (*model.graph.input, *model.graph.value_info)}
    for tensor in model.graph.initializer:
        if tensor.name not in known:
            model.graph.value_info.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    try:
        typed = _infer_types(model)
        _check_composed(typed, composed)
        if any("" in node.input for node in typed.graph.node if node.op_type in composed):
            return _with_bodies(typed, composed)  # onnx's own way wants to know the type of inputs that are absent
        return onnx.inliner.inline_selected_functions(typed, [("", op) for op in sorted(composed)], inline_schema_functions=True)
    except ONNX_FAILURES as error:
        raise ModelError(
            f"{', '.join(sorted(composed))} cannot be expanded into simpler operators: {shorten(str(error))}", _EXPORT_AGAIN
        ) from error


def _infer_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with what onnx infers of its tensors, and of those behind operators that onnx does not know.

    Of these it is said which element type they give, and the shape of those that keep that of their input.
    """
    typed = onnx.shape_inference.infer_shapes(model)
    if all(onnx.defs.has(node.op_type, node.domain) for node in typed.graph.node):
        return typed
    values = (*typed.graph.input, *typed.graph.value_info, *typed.graph.output)
    types = {value.name: value.type for value in values if value.type.tensor_type.elem_type}
    outputs = {value.name: value for value in typed.graph.output}
    small = {tensor.name: tensor for tensor in typed.graph.initializer if math.prod(tensor.dims) <= _MOST_SHOWN}
    for node in (node for node in typed.graph.node if not node_graphs(node) and not types.keys() >= set(node.output)):
        given = {name: types[name] for name in node.input if name in types}
        if not onnx.defs.has(node.op_type, node.domain):
            inferred = {node.output[0]: _type_behind(node, types)} if given else {}
        else:
            schema = onnx.defs.get_schema(node.op_type, opset_version(model), node.domain)
            try:
                inferred = onnx.shape_inference.infer_node_outputs(
                    schema, node, given, {name: small[name] for name in given if name in small}
                )
            except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
                continue  # as infer_shapes leaves such nodes out
        new = {name: kind for name, kind in inferred.items() if name not in types and kind.tensor_type.elem_type}
        types |= new
        for name, kind in new.items():
            (outputs[name] if name in outputs else typed.graph.value_info.add(name=name)).type.CopyFrom(kind)
    return typed


def _type_behind(node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> onnx.TypeProto:
    """The type of what an operator that onnx does not know computes: that of its zero point or scale where it quantises."""
    known = [types[name].tensor_type for name in node.input if name in types]
    key = canonical_domain(node.domain, node.op_type), node.op_type
    value_type = onnx.TypeProto()
    value_type.tensor_type.elem_type = next((t.elem_type for t in known if t.elem_type in _FLOATS), onnx.TensorProto.FLOAT)
    if key == ("", "QuantizeLinear"):
        value_type.tensor_type.elem_type = known[2].elem_type if len(known) > 2 else onnx.TensorProto.UINT8
    if (keeps_shape(*key) or onnx.defs.has(node.op_type)) and known[0].HasField("shape"):
        value_type.tensor_type.shape.CopyFrom(known[0].shape)
    return value_type


def _check_composed(model: onnx.ModelProto, composed: set[str]) -> None:
    """Raise ModelError where a composed operator of a model with known types is given what it does not take: its body would not see it."""
    values = (*model.graph.input, *model.graph.value_info)
    types = {value.name: value.type.tensor_type for value in values if value.type.tensor_type.HasField("shape")}
    for node in model.graph.node:
        if node.op_type in composed and is_standard(node):
            attributes = read_attributes(node, "")
            check_node(node, "", attributes, count_inputs(node), opset_version(model))
            shapes = [[dim.dim_value for dim in types[name].shape.dim] for name in node.input if name in types]
            if len(shapes) == len(node.input) and all(min(shape, default=1) > 0 for shape in shapes):
                kinds = [numpy_dtype(types[name].elem_type) for name in node.input]
                operands = zip(node.input, shapes, kinds, strict=True)
                if all(map(DType.has, kinds)):
                    check_constraints(node, attributes, [Tensor(name, tuple(shape), DType.of(kind)) for name, shape, kind in operands])


def _with_bodies(model: onnx.ModelProto, composed: set[str]) -> onnx.ModelProto:
    """Replace composed operators of a model with known types by calls of local functions, one for each, and these by their bodies."""
    version = opset_version(model)
    types = {value.name: value.type for value in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    for number, node in enumerate(model.graph.node):
        if not is_standard(node) or node.op_type not in composed:
            continue
        schema: Any = onnx.defs.get_schema(node.op_type, version, "")  # its stub lacks what depends on the context
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        if not versions or any(name and name not in types for name in node.input):
            raise ValueError(f"{node.op_type} has no body for its types")
        given = [types[name].SerializeToString() if name else b"" for name in node.input]
        body = onnx.FunctionProto()
        body.ParseFromString(schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), given))
        body.domain, body.name = _BODIES, f"{node.op_type}{number}"
        node.domain, node.op_type = body.domain, body.name
        model.functions.append(body)
    model.opset_import.append(helper.make_opsetid(_BODIES, 1))
    return onnx.inliner.inline_local_functions(model)


def _state_defaults(node: onnx.NodeProto, version: int) -> None:
    """Give a node the attributes that it leaves at their defaults: bodies refer to them."""
    try:
        schema = onnx.defs.get_schema(node.op_type, version, "")
    except onnx.defs.SchemaError:
        return
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def _check_calls(model: onnx.ModelProto) -> None:
    """Raise when local functions call each other in a circle, or expand to more nodes than any real model has."""
    bodies = {(function.domain, function.name): function.node for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(nodes: Iterable[onnx.NodeProto], path: tuple[tuple[str, str], ...]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            for graph in node_graphs(node):
                total += size(graph.node, path)
            if key in path or len(path) > 100:
                raise ModelError(f"local function '{shorten(node.op_type)}' calls itself", "remove the recursion; ONNX does not allow it")
            if key in bodies and key not in sizes:
                sizes[key] = size(bodies[key], (*path, key))
            total += sizes.get(key, 1)
        return total

    if size(model.graph.node, ()) > _MOST_NODES:
        raise UnsupportedError(f"the model's local functions expand to more than {_MOST_NODES} nodes", _EXPORT_AGAIN)
