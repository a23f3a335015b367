"""The one builder of models of the tests: nodes, ports and constants become a model or a file.

``Net`` collects them operator by operator (``net.Relu(net.MatMul(x, net.w(8, 4)))``); ``model_of`` and ``save_model`` take what
``onnx.helper`` makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSIONS = {19: 9, 20: 9, 21: 10, 22: 10, 23: 11}  # the first that an opset may be written in; 8 before
Shape = Sequence[int | str | None]
Port = Shape | tuple[int, Shape | None] | None  # a shape of floats, an element type and a shape, or nothing that is known


def ports(declared: Mapping[str, Port]) -> list[onnx.ValueInfoProto]:
    """Inputs or outputs by their names."""
    found = []
    for name, port in declared.items():
        is_typed = isinstance(port, tuple) and len(port) == 2 and not isinstance(port[1], int | str)
        kind, shape = port if is_typed else (TensorProto.FLOAT, port)  # type: ignore[misc]
        found.append(helper.make_tensor_value_info(name, kind, shape))
    return found


def model_of(graph: onnx.GraphProto, opset: int = OPSET) -> onnx.ModelProto:
    """A model of a graph, in the oldest format that has the opset."""
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSIONS.get(opset, 8))


def save_graph(graph: onnx.GraphProto, path: Path | str, opset: int = OPSET) -> Path:
    """Write a model of a graph."""
    onnx.save(model_of(graph, opset), path)
    return Path(path)


def save_model(
    path: Path | str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Port],
    outputs: Mapping[str, Port],
    constants: Mapping[str, Any] | None = None,
    opset: int = OPSET,
) -> Path:
    """Write a model of nodes; constants are arrays, or what NumPy makes one of."""
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    return save_graph(helper.make_graph(list(nodes), "g", ports(inputs), ports(outputs), tensors), path, opset)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    """A node that is named by its first output; names are separated by spaces."""
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"{outputs.split()[0]}_node", **attrs)


class Net:
    """Collects inputs, constants and nodes; tensors are their names."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(7)
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.nodes: list[onnx.NodeProto] = []

    def x(self, *shape: int) -> str:
        """A float input."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def w(self, *shape: int) -> str:
        """A constant of standard normal values."""
        return self.c(self.random.standard_normal(shape).astype(np.float32))

    def c(self, value: Any, dtype: Any = None) -> str:
        """A constant."""
        name = f"c{len(self.constants)}"
        array = np.asarray(value, dtype)
        self.constants.append(numpy_helper.from_array(array.astype(np.float32) if array.dtype == np.float64 else array, name))
        return name

    def i(self, *values: int) -> str:
        """A constant of int64 values."""
        return self.c(np.array(values, np.int64))

    def __getattr__(self, op: str) -> Callable[..., str]:
        if not op[0].isupper():
            raise AttributeError(op)
        return lambda *inputs, **attrs: self.node(op, inputs, 1, **attrs)[0]

    def node(self, op: str, inputs: Sequence[str], outputs: int, **attrs: Any) -> list[str]:
        """An operator with several results."""
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"{op}_{len(self.nodes)}", **attrs))
        return names

    def model(self, outputs: Sequence[str], opset: int = OPSET) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "net", self.inputs, ports(dict.fromkeys(outputs)), self.constants)
        return onnx.shape_inference.infer_shapes(model_of(graph, opset))

    def save(self, path: Path, *outputs: str, opset: int = OPSET) -> Path:
        """Write the model."""
        onnx.save(self.model(outputs, opset), path)
        return path


def conv(n: Net, x: str, c: int, k: int, f: int = 3, bias: bool = True, **attrs: Any) -> str:
    """A square convolution from c to k channels, with padding that keeps the size unless ``attrs`` say otherwise."""
    attrs.setdefault("pads", [f // 2] * 4)
    w = n.c(n.random.standard_normal((k, c // attrs.get("group", 1), f, f)).astype(np.float32) / np.sqrt(c * f * f / attrs.get("group", 1)))
    return str(n.Conv(x, w, *([n.w(k)] if bias else []), **attrs))


def quantised(n: Net, x: str, scale: float = 0.05) -> str:
    """Through int8 and back."""
    parameters = n.c(np.float32(scale)), n.c(np.int8(0))
    return str(n.DequantizeLinear(n.QuantizeLinear(x, *parameters), *parameters))


def weights(n: Net, *shape: int) -> str:
    """A constant of int8, dequantised."""
    values = n.random.integers(-100, 100, shape).astype(np.int8)
    return str(n.DequantizeLinear(n.c(values), n.c(np.float32(0.004)), n.c(np.int8(0))))
