"""The tensors and operators of a TensorFlow Lite file, and the ONNX model that is made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.schemas import Attributes
from deeploy.frontend.tflite.flatbuffer import Flatbuffer
from deeploy.frontend.tflite.network import Builder, LiteCall, LiteTensor
from deeploy.frontend.tflite.operators import OPERATORS
from deeploy.frontend.vendors import TFLITE_DOMAIN
from deeploy.ir.types import Array

_AGAIN = "export or download it again: docs/from-tflite.md"
_OPSET = 21
_MOST_ELEMENTS = 1 << 31
# Fields of the tables of a file in the order of their slots (tensorflow/compiler/mlir/lite/schema/schema.fbs).
TABLES = {
    "Model": "version:I codes:[@Code] subgraphs:[@Subgraph] -:s buffers:[@Buffer]",
    "Code": "short:b custom:s version:i=1 code:i",
    "Subgraph": "tensors:[@LiteTensor] inputs:[i] outputs:[i] operators:[@LiteOperator] name:s",
    "LiteTensor": "shape:[i] type:b buffer:I name:s quantisation:@Quantisation is_variable:B sparsity:u",
    "Quantisation": "-:u -:u scale:[f] zero:[q] details:B -:u axis:i",
    "LiteOperator": "code:I inputs:[i] outputs:[i] kind:B options:u -:u -:b -:u intermediates:[i]",
    "Buffer": "data:[B] offset:Q size:Q",
}
_TYPES = {0: "f4", 1: "f2", 2: "i4", 3: "u1", 4: "i8", 6: "?", 7: "i2", 9: "i1", 10: "f8", 12: "u8", 15: "u4", 16: "u2"}


def is_tflite(content: bytes) -> bool:
    """Whether a file is one of TensorFlow Lite, by its identifier."""
    return content[4:8] == b"TFL3"


def read_network(content: bytes, name: str, is_exact: bool = True) -> onnx.ModelProto:
    """The network of a file.

    Args:
        name: of the file, for messages.
        is_exact: requantisations round as TensorFlow Lite's reference kernels do; else once.

    Raises:
        ModelError: a damaged file. UnsupportedError: operators or types that are not handled.
    """
    tables = Flatbuffer(content, {**TABLES, **{operator.name: operator.options for operator in OPERATORS.values()}})
    calls = list[tuple[Builder, LiteCall]]()
    nodes, constants = list[onnx.NodeProto](), list[onnx.TensorProto]()
    states = list[onnx.ValueInfoProto](), list[onnx.ValueInfoProto]()
    try:
        model = tables.read_root("Model")
        if len(model["subgraphs"]) > 1:
            raise UnsupportedError(f"{name} has several graphs: branches, loops or signatures", "Export the model as one graph.")
        (graph,) = model["subgraphs"]
        tensors = _read_tensors(graph, model["buffers"], content)
        for entry in graph["operators"]:
            code = _code_of(model["codes"][entry["code"]])
            inputs = [None if at < 0 else tensors[at] for at in list(entry["inputs"])]
            outputs, between = ([tensors[_positive(at)] for at in list(entry[name])] for name in ("outputs", "intermediates"))
            if code not in OPERATORS or not outputs:
                raise UnsupportedError(
                    f"node '{shorten(outputs[0].name if outputs else '')}' has the operator {shorten(str(code))}, which is not handled",
                    "Cut the model in front of it, or convert it to ONNX with tf2onnx: docs/from-tflite.md",
                )
            known = OPERATORS[code]
            options = tables.read_at(entry["options"], known.name)
            call = LiteCall(known.name, options, inputs, outputs, between, is_exact, nodes, constants, states)
            calls.append((known.build, call))
        ports = [[tensors[_positive(at)] for at in list(graph[side])] for side in ("inputs", "outputs")]
    except (ValueError, IndexError) as error:
        raise ModelError(
            f"{name} is a damaged TensorFlow Lite file: {shorten(str(error)) or 'a number leads out of a list'}", _AGAIN
        ) from error
    for build, call in calls:
        _check_types(call)
        try:
            build(call)
        except (ValueError, IndexError, KeyError, OverflowError, ZeroDivisionError) as error:
            raise call.broken("does not fit its tensors") from error
    read = {name for node in nodes for name in node.input} | {tensor.name for tensor in ports[1]}
    constants += [numpy_helper.from_array(t.data, t.name) for t in tensors if t.data is not None and t.name in read]
    given, computed = ([*map(_port, side), *variables] for side, variables in zip(ports, states, strict=True))
    constants += [
        numpy_helper.from_array(array[0], f"{tensor.name} {key}")
        for tensor in {each.name: each for side in ports for each in side if each.is_quantised and each.scale.size == 1}.values()
        for key, array in (("scale", tensor.scale), ("zero point", tensor.zero))
    ]
    built = helper.make_graph(nodes, shorten(graph["name"]) or "network", given, computed, constants)
    for tensor in (tensor for side in ports for tensor in side if tensor.is_quantised and tensor.scale.size == 1):
        parameters = {"SCALE_TENSOR": f"{tensor.name} scale", "ZERO_POINT_TENSOR": f"{tensor.name} zero point"}
        note = built.quantization_annotation.add(tensor_name=tensor.name)
        note.quant_parameter_tensor_names.extend(onnx.StringStringEntryProto(key=key, value=name) for key, name in parameters.items())
    imports = [helper.make_opsetid("", _OPSET), helper.make_opsetid(TFLITE_DOMAIN, 1)]
    return helper.make_model(built, opset_imports=imports, ir_version=10)


def _positive(at: int) -> int:
    if at < 0:
        raise ValueError("a tensor has a negative number")
    return at


def _code_of(entry: Attributes) -> int | str:
    """The number of an operator, or the name of one that TensorFlow Lite does not define."""
    code = max(entry["short"], entry["code"])
    return f"'{entry['custom']}'" if code == 32 else code


def _port(tensor: LiteTensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, helper.np_dtype_to_tensor_dtype(tensor.dtype), tensor.shape)


def _check_types(call: LiteCall) -> None:
    """Refuse what computes with floats and quantised weights, and wider or other types than there are kernels for."""
    weights = call.input(1)
    if call.op in _PRODUCTS and weights is not None and call.x.dtype.kind == "f" and weights.is_quantised:
        raise call.refused(
            "is hybrid: it quantises its floats at run time to multiply them by weights of 8 bits",
            "Convert the model with full integer quantisation (a representative dataset), or without any.",
        )


_PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM")


def _read_tensors(graph: Attributes, buffers: Sequence[Attributes], content: bytes) -> list[LiteTensor]:
    tensors: list[LiteTensor] = []
    taken: set[str] = set()
    for at, entry in enumerate(graph["tensors"]):
        name = entry["name"] or f"tensor {at}"
        while name in taken:
            name = f"{name} {at}"
        taken.add(name)
        kind = _TYPES.get(entry["type"])
        if kind is None:
            raise UnsupportedError(
                f"tensor '{shorten(name)}' has an element type that is not handled (number {entry['type']})",
                "Convert the model with 8 bits, 16 bits or floats.",
            )
        if entry["sparsity"] is not None:
            raise UnsupportedError(f"tensor '{shorten(name)}' is stored sparse", "Convert the model without sparse tensors.")
        shape, dtype = tuple(map(int, entry["shape"])), np.dtype(kind)
        if min(shape, default=0) < 0 or math.prod(shape) > _MOST_ELEMENTS or len(shape) > 32:
            raise ValueError(f"tensor '{shorten(name)}' has the shape {shorten(str(list(shape)))}")
        if entry["buffer"] >= max(1, len(buffers)):
            raise ValueError(f"tensor '{shorten(name)}' lies in a buffer that the file lacks")
        about = entry["quantisation"] or {"scale": [], "zero": [], "details": 0, "axis": 0}
        data = _read_data(name, shape, dtype, buffers[entry["buffer"]] if buffers else {}, content)
        tensors.append(LiteTensor(name, shape, dtype, *_read_scales(name, shape, about), data, bool(entry["is_variable"])))
    return tensors


def _read_scales(name: str, shape: Sequence[int], about: Attributes) -> tuple[Array, Array, int]:
    scale, zero, axis = np.array(about["scale"], np.float32), np.array(about["zero"], np.int64), int(about["axis"])
    if about["details"]:
        raise UnsupportedError(f"tensor '{shorten(name)}' has a quantisation of its own", "Convert the model with scales and zero points.")
    axis = 0 if len(shape) == 1 else axis  # files say that of the weights of a bias
    zero = zero if zero.size else np.zeros(1, np.int64)
    zero = np.broadcast_to(zero, scale.shape) if zero.size == 1 and scale.size else zero
    is_sound = bool((np.isfinite(scale) & (scale >= 0)).all()) and bool((np.abs(zero) < 2**31).all())
    fits = scale.size <= 1 or (0 <= axis < len(shape) and shape[axis] == scale.size)
    if not is_sound or not fits or (scale.size and zero.size != scale.size):
        raise ValueError(f"tensor '{shorten(name)}' has scales or zero points that do not fit it")
    return (scale if (scale > 0).any() else scale[:0]), zero, axis


def _read_data(name: str, shape: Sequence[int], dtype: np.dtype[Any], buffer: Attributes, content: bytes) -> Array | None:
    """A constant's value; behind the tables of large files lie buffers that these give the place of."""
    data = buffer.get("data", [])
    if buffer.get("offset", 0) > 1:
        data = np.frombuffer(content[buffer["offset"] : buffer["offset"] + buffer["size"]], np.uint8)
    if not len(data):
        return None
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"tensor '{shorten(name)}' has {len(data)} bytes, which is not what its shape needs")
    return np.frombuffer(bytes(data), dtype.newbyteorder("<")).astype(dtype).reshape(shape)
