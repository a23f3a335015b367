"""TensorFlow Lite files written from a list of tensors and operators, by the flatbuffers package and our own table of fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np

from deeploy.frontend.tflite.operators import OPERATORS
from deeploy.frontend.tflite.reading import TABLES

_TYPES = {"f4": 0, "f2": 1, "i4": 2, "u1": 3, "i8": 4, "b1": 6, "i2": 7, "i1": 9}
# The number of a table of options in the union of the schema (BuiltinOptions), which readers of the schema need.
KINDS = {
    "CONV_2D": 1, "DEPTHWISE_CONV_2D": 2, "AVERAGE_POOL_2D": 5, "MAX_POOL_2D": 5, "FULLY_CONNECTED": 8, "SOFTMAX": 9,
    "CONCATENATION": 10, "ADD": 11, "L2_NORMALIZATION": 12, "RESIZE_BILINEAR": 15, "RESHAPE": 17, "SPACE_TO_DEPTH": 19,
    "MUL": 21, "PAD": 22, "GATHER": 23, "BATCH_TO_SPACE_ND": 24, "SPACE_TO_BATCH_ND": 25, "TRANSPOSE": 26, "MEAN": 27, "SUM": 27,
    "REDUCE_MAX": 27, "REDUCE_MIN": 27, "SUB": 28, "DIV": 29, "SQUEEZE": 30, "STRIDED_SLICE": 32, "EXP": 33, "SPLIT": 35, "CAST": 37,
    "MAXIMUM": 39, "MINIMUM": 39, "ARG_MAX": 40, "LESS": 41, "NEG": 42, "PADV2": 43, "GREATER": 44, "GREATER_EQUAL": 45,
    "LESS_EQUAL": 46, "SLICE": 48, "TRANSPOSE_CONV": 49, "TILE": 51, "EXPAND_DIMS": 52, "EQUAL": 53, "NOT_EQUAL": 54, "POW": 56,
    "ARG_MIN": 57, "PACK": 59, "LOGICAL_OR": 60, "LOGICAL_AND": 62, "LOGICAL_NOT": 63, "UNPACK": 64, "SQUARE": 66,
    "DEPTH_TO_SPACE": 94, "RESIZE_NEAREST_NEIGHBOR": 74, "LEAKY_RELU": 75, "SQUARED_DIFFERENCE": 76, "MIRROR_PAD": 77, "ABS": 78,
    "SPLIT_V": 79, "SELECT_V2": 98, "QUANTIZE": 91, "HARD_SWISH": 93, "BATCH_MATMUL": 101, "FLOOR_DIV": 65,
    "SVDF": 6, "GELU": 116, "UNIDIRECTIONAL_SEQUENCE_LSTM": 71,
}  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """A tensor of a file: of ``dtype``; quantised where it has scales; constant where it has data."""

    shape: Sequence[int]
    dtype: str = "i1"
    scale: Sequence[float] = ()
    zero: Sequence[int] = ()
    data: np.ndarray | None = None
    axis: int = 0
    name: str = ""
    is_variable: bool = False


@dataclass(frozen=True)
class Op:
    """An operator by its name, the indices of its tensors, and its options."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Mapping[str, Any] = field(default_factory=dict)
    intermediates: Sequence[int] = ()


class _Tables:
    """Writes tables by the fields that are said of them."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1024)
        self.known = {**TABLES, **{operator.name: operator.options for operator in OPERATORS.values()}}

    def write(self, kind: str, values: Mapping[str, Any]) -> int:
        fields = [text.partition(":")[::2] for text in self.known[kind].split()]
        codes = [(name, about.partition("=")[0]) for name, about in fields]
        unknown = values.keys() - {name for name, _ in codes}
        assert not unknown, f"{kind} has no field {unknown}"
        # Tables and vectors have to be written before the table that refers to them.
        made = {name: self._object(code, values[name]) for name, code in codes if name in values and (len(code) > 1 or code in "su")}
        builder = self.builder
        builder.StartObject(len(codes))
        for slot, (name, code) in enumerate(codes):
            if name in made:
                builder.PrependUOffsetTRelativeSlot(slot, made[name], 0)
            elif name in values:
                kinds = {"i": "Int32", "I": "Uint32", "b": "Int8", "B": "Uint8", "f": "Float32", "q": "Int64", "Q": "Uint64"}
                builder.ForceDefaults(True)
                getattr(builder, f"Prepend{kinds[code]}Slot")(slot, values[name], 0)
                builder.ForceDefaults(False)
        return int(builder.EndObject())

    def _object(self, code: str, value: Any) -> int:
        builder = self.builder
        if code == "u":
            return int(value)
        if code == "s":
            return int(builder.CreateString(value))
        if code.startswith("@"):
            return self.write(code[1:], value)
        kind = code.strip("[]")
        if kind.startswith("@"):
            offsets = [self.write(kind[1:], each) for each in value]
            builder.StartVector(4, len(offsets), 4)
            for offset in reversed(offsets):
                builder.PrependUOffsetTRelative(offset)
            return int(builder.EndVector())
        array = np.asarray(value, np.dtype(kind))
        if kind == "B":
            builder.StartVector(1, array.size, 16)
            builder.head -= array.size
            builder.Bytes[builder.head : builder.head + array.size] = array.tobytes()
            return int(builder.EndVector())
        return int(builder.CreateNumpyVector(array))


def write_file(tensors: Sequence[Spec], ops: Sequence[Op], inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """A file with one graph."""
    tables = _Tables()
    numbers = {operator.name: number for number, operator in OPERATORS.items()}
    names = list(dict.fromkeys(op.name for op in ops))
    buffers: list[dict[str, Any]] = [{}]
    described = []
    for at, spec in enumerate(tensors):
        buffer = 0
        if spec.data is not None:
            buffer = len(buffers)
            buffers.append({"data": np.frombuffer(np.ascontiguousarray(spec.data).tobytes(), np.uint8)})
        entry = {"shape": spec.shape, "type": _TYPES[np.dtype(spec.dtype).str[1:]], "buffer": buffer, "name": spec.name or f"t{at}"}
        entry |= {"is_variable": 1} if spec.is_variable else {}
        if len(spec.scale):
            zero = spec.zero if len(spec.zero) else [0] * len(spec.scale)
            entry["quantisation"] = {"scale": spec.scale, "zero": zero, "axis": spec.axis}
        described.append(entry)
    operators = []
    for op in ops:
        entry = {"code": names.index(op.name), "inputs": op.inputs, "outputs": op.outputs}
        entry |= {"intermediates": op.intermediates} if op.intermediates else {}
        if op.options or op.name in KINDS:
            entry |= {"kind": KINDS[op.name], "options": tables.write(op.name, op.options)}
        operators.append(entry)
    codes = [{"short": min(numbers[name], 127), "version": VERSIONS.get(name, 1), "code": numbers[name]} for name in names]
    graph = {"tensors": described, "inputs": inputs, "outputs": outputs, "operators": operators, "name": "main"}
    root = tables.write("Model", {"version": 3, "codes": codes, "subgraphs": [graph], "buffers": buffers})
    tables.builder.Finish(root, b"TFL3")
    return bytes(tables.builder.Output())


# Versions of operators that take the types of the tests' files, which LiteRT looks at.
VERSIONS = {
    **dict.fromkeys(("ADD", "BROADCAST_TO", "CONCATENATION", "LOGISTIC", "MEAN", "MUL", "PAD", "SPLIT", "SUB", "SUM", "TANH"), 2),
    **{"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "AVERAGE_POOL_2D": 2, "MAX_POOL_2D": 2, "SOFTMAX": 2},
    **{"SVDF": 3, "UNIDIRECTIONAL_SEQUENCE_LSTM": 3},
}
