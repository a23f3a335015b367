"""Tensors without axes: one network of every operator that takes or gives them, and indices that only the network's user knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.driver.verify import verify_compiled
from tests.models import model_of

FLOAT, INT8, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT8, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
UNARY = ["Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Floor", "Erf", "HardSigmoid", "LeakyRelu", "Softplus", "Sign", "Transpose"]
BINARY = ["Add", "Sub", "Mul", "Min", "Max", "Mean", "Sum", "PRelu"]
REDUCE = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2"]
TABLES = {"row": ([7], FLOAT), "column": ([7, 1], FLOAT), "bytes": ([7], INT8), "words": ([7], INT32), "bits": ([7], BOOL)}
SIZE = 7


def operators_model() -> onnx.ModelProto:
    """Every operator, once, on inputs of the network; every result is an output."""
    inputs: dict[str, tuple[int, list[int]]] = {
        "a": (FLOAT, []), "b": (FLOAT, []), "v": (FLOAT, [5]), "m": (FLOAT, [3, 5]), "one": (FLOAT, [1]),
        "i": (INT32, []), "j": (INT32, []), "q": (INT8, []), "c": (BOOL, []), "d": (BOOL, []), "index": (INT64, []),
        **{name: (kind, shape) for name, (shape, kind) in TABLES.items()},
    }  # fmt: skip
    nodes: list[onnx.NodeProto] = []
    outputs: list[tuple[str, int, list[int]]] = []

    def add(op: str, operands: list[str], kind: int = FLOAT, shape: list[int] | None = None, **attrs: object) -> None:
        outputs.append((f"y{len(outputs)}", kind, shape or []))
        nodes.append(helper.make_node(op, operands, [outputs[-1][0]], **attrs))

    for op in UNARY:
        add(op, ["a"])
    for op in BINARY:
        add(op, ["a", "b"])
    for op in BINARY[:5]:
        add(op, ["v", "b"], FLOAT, [5])
        add(op, ["i", "j"], INT32)
    for op in ("Less", "Greater", "Equal"):
        add(op, ["a", "b"], BOOL)
    for op in REDUCE:
        for operand in ("v", "m"):
            add(op, [operand], keepdims=0)
    for op in ("ArgMax", "ArgMin"):
        add(op, ["v"], INT64, axis=0, keepdims=0)
    for name, (shape, kind) in TABLES.items():
        add("Gather", [name, "index"], kind, shape[1:])
    add("Where", ["c", "a", "b"])
    add("And", ["c", "d"], BOOL)
    add("Not", ["c"], BOOL)
    add("Cast", ["q"], to=FLOAT)
    add("MatMul", ["v", "v"])
    add("Squeeze", ["one"])
    add("Reshape", ["one", "no_axes"])
    add("Unsqueeze", ["a", "zero"], FLOAT, [1])
    add("Expand", ["a", "four"], FLOAT, [4])
    add("Flatten", ["a"], FLOAT, [1, 1], axis=0)
    add("Clip", ["a", "low", "high"])
    add("QuantizeLinear", ["a", "scale", "zero_point"], INT8)
    add("DequantizeLinear", ["q", "scale", "zero_point"])
    constants = [
        helper.make_tensor("no_axes", INT64, [0], []),
        helper.make_tensor("zero", INT64, [1], [0]), helper.make_tensor("four", INT64, [1], [4]),
        helper.make_tensor("low", FLOAT, [], [0.0]), helper.make_tensor("high", FLOAT, [], [1.0]),
        helper.make_tensor("scale", FLOAT, [], [0.1]), helper.make_tensor("zero_point", INT8, [], [3]),
    ]  # fmt: skip
    ports = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    results = [helper.make_tensor_value_info(*output) for output in outputs]
    return model_of_nodes(nodes, ports, results, constants)


def model_of_nodes(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto], constants: list[onnx.TensorProto]
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    return model_of(graph)


def gathering() -> onnx.ModelProto:
    """A table that an input of the network is an index into."""
    node = helper.make_node("Gather", ["table", "index"], ["y"])
    table = helper.make_tensor("table", FLOAT, [SIZE], [float(n) for n in range(SIZE)])
    index, y = helper.make_tensor_value_info("index", INT64, [2]), helper.make_tensor_value_info("y", FLOAT, [2])
    return model_of_nodes([node], [index], [y], [table])


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_tensors_without_axes(target: str, tmp_path: Path) -> None:
    path = tmp_path / "scalars.onnx"
    onnx.save(operators_model(), path)
    verdict = verify_compiled(deeploy.compile(path, target), path)
    assert verdict.passed and not any("not compared" in note for note in verdict.notes), (verdict.notes, verdict.comparisons)
    assert {against for against, _ in verdict.comparisons} == {"interpreter", "onnxruntime"}


def test_random_indices_are_in_the_range_of_their_table(tmp_path: Path) -> None:
    path = tmp_path / "gathering.onnx"
    onnx.save(gathering(), path)
    verdict = verify_compiled(deeploy.compile(path, "generic"), path)
    assert verdict.passed and len(set(verdict.outputs[0].ravel())) > 2
    assert {against for against, _ in verdict.comparisons} == {"interpreter", "onnxruntime"}


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_indices_out_of_range_read_the_nearest_entry(target: str, tmp_path: Path) -> None:
    """In C and in the interpreter; onnxruntime refuses them, which is said."""
    path, given = tmp_path / "gathering.onnx", tmp_path / "inputs.npz"
    onnx.save(gathering(), path)
    np.savez(given, index=np.array([[SIZE, -1], [-SIZE - 1, 2], [1 << 40, -(1 << 40)]], np.int64))
    verdict = verify_compiled(deeploy.compile(path, target), path, given)
    assert verdict.passed
    assert verdict.outputs[0].tolist() == [[SIZE - 1, SIZE - 1], [0, 2], [SIZE - 1, 0]]
    assert any("not compared with onnxruntime: it fails on a sample" in note and "out of" in note for note in verdict.notes)
