"""Tensors and operators of a TensorFlow Lite file while they become nodes of ONNX.

Tensors keep the layout of the file. Where the file has quantised numbers, nodes compute with integers, each exactly as TensorFlow Lite's
reference kernels do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper

from deeploy.errors import ModelError, UnsupportedError, shorten
from deeploy.frontend.schemas import Attributes
from deeploy.frontend.vendors import CARRIED, TFLITE, TFLITE_DOMAIN
from deeploy.ir.types import Array

INTEGERS = ("i1", "u1", "i2")  # that stand for real numbers by a scale


@dataclass(frozen=True, eq=False)
class LiteTensor:
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
    def is_wide(self) -> bool:
        """Whether its numbers have more than 8 bits."""
        return self.dtype.itemsize > 1

    @property
    def s(self) -> float:
        """The scale of a tensor quantised as a whole, a float32."""
        return float(self.scale[0])

    @property
    def z(self) -> int:
        """The zero point of a tensor quantised as a whole."""
        return int(self.zero[0])

    @property
    def zero_point(self) -> Array:
        """The number that stands for 0, in the type of the tensor: the zero point of one that is quantised as a whole."""
        return np.array(self.z if self.is_quantised else 0, self.dtype)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest number of its type."""
        info = np.iinfo(self.dtype)
        return int(info.min), int(info.max)

    @property
    def distances(self) -> tuple[int, int]:
        """The least and the largest number of its type, counted from the zero point."""
        low, high = self.range
        return low - self.z, high - self.z

    def steps(self, real: float) -> int:
        """A real number in steps of the tensor, as limits are quantised: to the nearest, half away from zero, in float32."""
        ratio = np.float32(real) / np.float32(self.s)
        return self.z + int(np.sign(ratio) * np.floor(np.abs(np.float64(ratio)) + 0.5))

    def every(self) -> Array:
        """All numbers of its type, int64."""
        low, high = self.range
        return np.arange(low, high + 1)


Operand = str | np.ndarray | np.generic | Sequence[int] | LiteTensor | None


@dataclass
class LiteCall:
    """An operator of the file and the nodes that it becomes.

    Attributes:
        op: its name in the schema.
        options: its own fields.
        inputs: None in the place of optional ones that are absent.
        intermediates: tensors of which it has the quantisation alone.
        is_exact: whether requantisations round as the reference kernels do; else once.
        nodes, constants: of the model, to which it adds its own.
        states: of the model: inputs and outputs that are variables of the file.
    """

    op: str
    options: Attributes
    inputs: Sequence[LiteTensor | None]
    outputs: Sequence[LiteTensor]
    intermediates: Sequence[LiteTensor]
    is_exact: bool
    nodes: list[onnx.NodeProto]
    constants: list[onnx.TensorProto]
    states: tuple[list[onnx.ValueInfoProto], list[onnx.ValueInfoProto]]

    def input(self, position: int) -> LiteTensor | None:
        """An input; None where it is absent."""
        return self.inputs[position] if position < len(self.inputs) else None

    def needed(self, position: int) -> LiteTensor:
        """An input that has to be there."""
        tensor = self.input(position)
        if tensor is None:
            raise self.broken(f"lacks its input {position}")
        return tensor

    @property
    def x(self) -> LiteTensor:
        return self.needed(0)

    @property
    def y(self) -> LiteTensor:
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

    def add(self, op: str, *operands: Operand, outputs: Sequence[LiteTensor] = (), **attributes: Any) -> str:
        """A node of ONNX or of our own (``vendors.TFLITE``); the name of its result.

        Args:
            operands: names, tensors of the file, or what becomes a constant: arrays, numbers with a type, lists of integers (64 bits).
            outputs: where it computes these.
        """
        stem = f"{self.outputs[0].name}"
        names = []
        for operand in operands:
            if operand is None or isinstance(operand, str | LiteTensor):
                names.append(operand.name if isinstance(operand, LiteTensor) else operand or "")
                continue
            kind = operand.dtype if isinstance(operand, np.ndarray | np.generic) else np.int64
            names.append(f"{stem} constant {len(self.constants)}")
            self.constants.append(numpy_helper.from_array(np.asarray(operand, kind, order="C"), names[-1]))
        results = [tensor.name for tensor in outputs] or [f"{stem} {op.lower()} {len(self.nodes)}"]
        title = stem if op in _NAMED else results[0]
        domain = TFLITE_DOMAIN if op in TFLITE else ""
        self.nodes.append(helper.make_node(op, names, results, title, domain=domain, **attributes))
        return results[0]

    def state(self, variable: LiteTensor, dtype: np.dtype[Any] | None = None) -> str:
        """What a variable holds before an inference, in the type that is given; it begins with zeros."""
        kind = helper.np_dtype_to_tensor_dtype(dtype or variable.dtype)
        self.need(all(port.name != variable.name for port in self.states[0]), "shares a variable with another operator")
        for ports, name in zip(self.states, (variable.name, f"{variable.name}{CARRIED}"), strict=True):
            ports.append(helper.make_tensor_value_info(name, kind, variable.shape))
        return variable.name

    def leave(self, variable: LiteTensor, name: str) -> None:
        """Let a variable hold a value behind the inference."""
        self.nodes.append(helper.make_node("Identity", [name], [f"{variable.name}{CARRIED}"], f"{variable.name} carried"))

    def loop(self, given: Sequence[str], names: Sequence[str], inner: LiteCall, results: Sequence[str], carried: int) -> list[str]:
        """A Scan: rounds that ``inner`` has the nodes of, which carry the first tensors and read the others part by part.

        Args:
            names: what the nodes of a round call what is given.
            results: of a round, as many carried ones first.
        """
        ends = [f"{inner.y.name} {at}" for at in range(len(results))]
        given_ports, ports = ([onnx.ValueInfoProto(name=name) for name in side] for side in (names, ends))
        copies = [helper.make_node("Identity", [name], [end]) for name, end in zip(results, ends, strict=True)]
        body = helper.make_graph([*inner.nodes, *copies], "round", given_ports, ports)
        rows = [f"{self.y.name} scanned {at}" for at in range(len(results))]
        self.nodes.append(helper.make_node("Scan", given, rows, self.y.name, body=body, num_scan_inputs=len(given) - carried))
        return rows

    def result(self, name: str) -> None:
        """Let a value be the output: what computes it gets the name of that."""
        self.nodes.append(helper.make_node("Identity", [name], [self.y.name], f"{self.y.name} result"))

    def reshape(self, value: Operand) -> None:
        """Let a value in the shape of the output be it."""
        self.add("Reshape", value, self.y.shape, outputs=[self.y])

    def word(self, value: Operand) -> str:
        """An integer in 32 bits."""
        return self.add("Cast", value, to=onnx.TensorProto.INT32)

    def multiply(self, a: Operand, b: Operand, a_zero: int = 0, b_zero: int = 0) -> str:
        """The product of integers without their zero points, in 32 bits."""
        return self.add("MultiplyCentred", a, np.int32(0), b, a_zero_point=a_zero, b_zero_point=b_zero)

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


def read_axes(call: LiteCall, tensor: LiteTensor, values: ArrayLike) -> list[int]:
    """Axes of a tensor counted from the front, in ascending order."""
    given, rank = [int(axis) for axis in np.ravel(values)], len(tensor.shape)
    call.need(all(-rank <= axis < rank for axis in given), f"has the axes {given} of {rank}")
    return sorted({axis % rank for axis in given})


ACTIVATIONS: Mapping[int, tuple[float | None, float | None]] = {0: (None, None), 1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
_NAMED = ("Conv", "ConvInteger", "MatMul", "MatMulInteger", "Gemm", "MaxPool", "AveragePool")
Builder = Callable[[LiteCall], None]
