"""A TensorFlow Lite file as an ONNX model: tensors, and what operators are made of (``operators``).

Tensors keep the layout of the file. Where the file has quantised numbers, nodes compute with integers, each exactly as TensorFlow Lite's
reference kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.schemas import Attributes
from deeploy.frontend.tflite.flatbuffer import Flatbuffer
from deeploy.frontend.vendors import TFLITE, TFLITE_DOMAIN
from deeploy.ir.types import Array

_AGAIN = "export or download it again: docs/from-tflite.md"
_OPSET = 21
_MOST_ELEMENTS = 1 << 31
# Fields of the tables of a file in the order of their slots (tensorflow/compiler/mlir/lite/schema/schema.fbs).
TABLES = {
    "Model": "version:I codes:[@Code] subgraphs:[@Subgraph] -:s buffers:[@Buffer]",
    "Code": "short:b custom:s version:i=1 code:i",
    "Subgraph": "tensors:[@Tensor] inputs:[i] outputs:[i] operators:[@Operator] name:s",
    "Tensor": "shape:[i] type:b buffer:I name:s quantisation:@Quantisation is_variable:B sparsity:u",
    "Quantisation": "-:u -:u scale:[f] zero:[q] details:B -:u axis:i",
    "Operator": "code:I inputs:[i] outputs:[i] kind:B options:u",
    "Buffer": "data:[B] offset:Q size:Q",
}
_TYPES = {0: "f4", 1: "f2", 2: "i4", 3: "u1", 4: "i8", 6: "?", 7: "i2", 9: "i1", 10: "f8", 12: "u8", 15: "u4", 16: "u2"}
INTEGERS = ("i1", "u1", "i2")  # that stand for real numbers by a scale


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a file.

    Attributes:
        name: in the ONNX model; of no other tensor.
        scale: float32, one or one per entry of ``axis``; empty where it is not quantised.
        data: of a constant, else None.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: Array
    zero: Array
    axis: int
    data: Array | None
    is_variable: bool

    @property
    def is_quantised(self) -> bool:
        return bool(self.scale.size) and self.dtype.str[1:] in INTEGERS

    @property
    def s(self) -> float:
        """The scale of a tensor quantised as a whole, a float32."""
        return float(self.scale[0])

    @property
    def z(self) -> int:
        """The zero point of a tensor quantised as a whole."""
        return int(self.zero[0])

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest number of its type."""
        info = np.iinfo(self.dtype)
        return int(info.min), int(info.max)

    def steps(self, real: float) -> int:
        """A real number in steps of the tensor, as limits are quantised: to the nearest, half away from zero, in float32."""
        ratio = np.float32(real) / np.float32(self.s)
        return self.z + int(np.sign(ratio) * np.floor(np.abs(np.float64(ratio)) + 0.5))

    def every(self) -> Array:
        """All numbers of its type, int64."""
        low, high = self.range
        return np.arange(low, high + 1)


Operand = str | np.ndarray | Tensor | None


@dataclass
class Call:
    """An operator of the file and the nodes that it becomes.

    Attributes:
        op: its name in the schema.
        options: its own fields.
        inputs: None in the place of optional ones that are absent.
        is_exact: whether requantisations round as the reference kernels do; else once.
    """

    op: str
    options: Attributes
    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor]
    is_exact: bool
    _nodes: list[onnx.NodeProto]
    _constants: list[onnx.TensorProto]

    def input(self, position: int) -> Tensor | None:
        """An input; None where it is absent."""
        return self.inputs[position] if position < len(self.inputs) else None

    def needed(self, position: int) -> Tensor:
        """An input that has to be there."""
        tensor = self.input(position)
        if tensor is None:
            raise self.broken(f"lacks its input {position}")
        return tensor

    @property
    def x(self) -> Tensor:
        return self.needed(0)

    @property
    def y(self) -> Tensor:
        return self.outputs[0]

    def constant(self, position: int) -> Array:
        """The value of an input that has to be constant."""
        data = self.needed(position).data
        if data is None:
            raise self.refused(f"computes its input {position} at run time", "Make it a constant of the model.")
        return data

    def broken(self, what: str) -> ModelError:
        return ModelError(f"node '{shorten(self.outputs[0].name)}' ({self.op}) {what}", "correct the model, or export it again")

    def refused(self, what: str, remedy: str) -> UnsupportedError:
        return UnsupportedError(f"node '{shorten(self.outputs[0].name)}' ({self.op}) {what}", remedy)

    def need(self, holds: object, what: str) -> None:
        """Refuse the operator where something does not hold."""
        if not holds:
            raise self.broken(what)

    def add(self, op: str, *operands: Operand, outputs: Sequence[Tensor] = (), **attributes: Any) -> str:
        """A node of ONNX or of our own (``vendors.TFLITE``); the name of its result.

        Args:
            operands: names, tensors of the file, or arrays that become constants.
            outputs: where it computes these.
        """
        stem = f"{self.outputs[0].name}"
        names = []
        for operand in operands:
            if isinstance(operand, np.ndarray):
                names.append(f"{stem} constant {len(self._constants)}")
                self._constants.append(numpy_helper.from_array(np.ascontiguousarray(operand).reshape(operand.shape), names[-1]))
            else:
                names.append(operand.name if isinstance(operand, Tensor) else operand or "")
        results = [tensor.name for tensor in outputs] or [f"{stem} {op.lower()} {len(self._nodes)}"]
        title = stem if op in _NAMED else results[0]
        domain = TFLITE_DOMAIN if op in TFLITE else ""
        self._nodes.append(helper.make_node(op, names, results, title, domain=domain, **attributes))
        return results[0]

    def result(self, name: str) -> None:
        """Let a value be the output: what computes it gets the name of that."""
        self._nodes.append(helper.make_node("Identity", [name], [self.y.name], f"{self.y.name} result"))

    def cast(self, name: str) -> None:
        """Let a value in the type of the output be it."""
        self.add("Cast", name, outputs=[self.y], to=helper.np_dtype_to_tensor_dtype(self.y.dtype))

    def real_limits(self) -> tuple[float | None, float | None]:
        """The real limits of a fused activation."""
        code = self.options.get("fused", 0)
        if code not in ACTIVATIONS:
            raise self.refused(f"has the fused activation {code}, which is not handled", "Let it be an operator of its own.")
        return ACTIVATIONS[code]

    def activate(self, name: str) -> None:
        """Let a value within the limits of a fused activation be the output, of whatever scale it is."""
        low, high = self.real_limits()
        if (low, high) == (None, None):
            return self.result(name)
        ends = [end if end is None or not self.y.is_quantised else np.clip(self.y.steps(end), *self.y.range) for end in (low, high)]
        self.add("Clip", name, *(None if end is None else np.array(end, self.y.dtype) for end in ends), outputs=[self.y])
        return None


def axes(call: Call, values: Array, rank: int) -> list[int]:
    """Axes counted from the front, in ascending order."""
    given = [int(axis) for axis in values.ravel()]
    call.need(all(-rank <= axis < rank for axis in given), f"has the axes {given} of {rank}")
    return sorted({axis % rank for axis in given})


ACTIVATIONS: Mapping[int, tuple[float | None, float | None]] = {0: (None, None), 1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
_NAMED = ("Conv", "ConvInteger", "MatMul", "MatMulInteger", "Gemm", "MaxPool", "AveragePool")
Builder = Callable[[Call], None]


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
    from deeploy.frontend.tflite.operators import OPERATORS

    tables = Flatbuffer(content, {**TABLES, **{operator.name: operator.options for operator in OPERATORS.values()}})
    calls = list[tuple[Builder, Call]]()
    nodes, constants = list[onnx.NodeProto](), list[onnx.TensorProto]()
    try:
        model = tables.read_root("Model")
        if len(model["subgraphs"]) > 1:
            raise UnsupportedError(f"{name} has several graphs: branches, loops or signatures", "Export the model as one graph.")
        (graph,) = model["subgraphs"]
        tensors = _read_tensors(graph, model["buffers"], content)
        for entry in graph["operators"]:
            code = _code_of(model["codes"][entry["code"]])
            inputs = [None if at < 0 else tensors[at] for at in list(entry["inputs"])]
            outputs = [tensors[_positive(at)] for at in list(entry["outputs"])]
            if code not in OPERATORS or not outputs:
                raise UnsupportedError(
                    f"node '{shorten(outputs[0].name if outputs else '')}' has the operator {shorten(str(code))}, which is not handled",
                    "Cut the model in front of it, or convert it to ONNX with tf2onnx: docs/from-tflite.md",
                )
            known = OPERATORS[code]
            call = Call(known.name, tables.read_at(entry["options"], known.name), inputs, outputs, is_exact, nodes, constants)
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
    given, computed = ([_port(tensor) for tensor in side] for side in ports)
    built = helper.make_graph(nodes, shorten(graph["name"]) or "network", given, computed, constants)
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


def _port(tensor: Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, helper.np_dtype_to_tensor_dtype(tensor.dtype), tensor.shape)


def _check_types(call: Call) -> None:
    """Refuse what computes with floats and quantised weights, and wider or other types than there are kernels for."""
    weights = call.input(1)
    if call.op in _PRODUCTS and weights is not None and call.x.dtype.kind == "f" and weights.is_quantised:
        raise call.refused(
            "is hybrid: it quantises its floats at run time to multiply them by weights of 8 bits",
            "Convert the model with full integer quantisation (a representative dataset), or without any.",
        )


_PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL", "SVDF")


def _read_tensors(graph: Attributes, buffers: Sequence[Attributes], content: bytes) -> list[Tensor]:
    tensors: list[Tensor] = []
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
        tensors.append(Tensor(name, shape, dtype, *_read_scales(name, shape, about), data, bool(entry["is_variable"])))
    return tensors


def _read_scales(name: str, shape: Sequence[int], about: Attributes) -> tuple[Array, Array, int]:
    scale, zero, axis = np.array(about["scale"], np.float32), np.array(about["zero"], np.int64), int(about["axis"])
    if about["details"]:
        raise UnsupportedError(f"tensor '{shorten(name)}' has a quantisation of its own", "Convert the model with scales and zero points.")
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
