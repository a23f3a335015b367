"""Operators on int64 and int32 that exporters apply to indices: the same in C, in the interpreter and by the standard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import deeploy
from deeploy.api import verify
from tests.frontend.models import build

Node = helper.make_node
KINDS = {"int64": TensorProto.INT64, "int32": TensorProto.INT32}
PAIRS = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Mod", "Sum")


def integer_operators_model(kind: str) -> onnx.ModelProto:
    """Two inputs of one type, and an output of every operator on them."""
    dtype = np.dtype(kind)
    nodes = [Node(op, ["x", "b"], [op]) for op in PAIRS]
    nodes += [Node(op, ["x"], [op]) for op in ("Abs", "Neg", "Sign", "Relu")]
    nodes += [
        Node("Clip", ["x", "low", "seven"], ["small"]),
        Node("Clip", ["x", "low", "high"], ["Clip"]),
        Node("Clip", ["x", "", "high"], ["Clip above"]),
        Node("Clip", ["x", "low"], ["Clip below"]),
        Node("Pow", ["small", "three"], ["Pow"]),
        Node("Pow", ["x", "one"], ["Pow of 1"]),
        Node("PRelu", ["x", "slope"], ["PRelu"]),
        Node("Where", ["Less", "x", "b"], ["Where"]),
        Node("ReduceSum", ["x", "axis"], ["ReduceSum"]),
        Node("ReduceMax", ["x"], ["ReduceMax"], axes=[1]),
        Node("ReduceMin", ["x"], ["ReduceMin"], axes=[1], keepdims=0),
        Node("ReduceMean", ["b"], ["ReduceMean"], axes=[0]),
        Node("ReduceMean", ["b"], ["ReduceMean of all"], keepdims=0),
        Node("ReduceProd", ["b"], ["ReduceProd"], axes=[0]),
        Node("ReduceL1", ["x"], ["ReduceL1"], axes=[1]),
        Node("ReduceSumSquare", ["small"], ["ReduceSumSquare"], axes=[0, 1]),
        Node("ArgMax", ["x"], ["ArgMax"], axis=1),
        Node("ArgMin", ["x"], ["ArgMin"], axis=0, keepdims=0),
        Node("CumSum", ["x", "at"], ["CumSum"]),
        Node("Cast", ["x"], ["Cast"], to=TensorProto.FLOAT),
        Node("MatMul", ["columns", "small"], ["MatMul"]),
        Node("MatMul", ["small", "rows"], ["MatMul by a constant"]),
        Node("Gemm", ["small", "rows"], ["Gemm"]),
    ]
    nodes.insert(0, Node("Transpose", ["b"], ["columns"]))
    values = {"low": -3, "high": 2**31 - 9 if kind == "int32" else 2**40, "seven": 7, "three": 3, "one": 1, "slope": -2}
    constants = {name: np.array(value, dtype) for name, value in values.items()} | {"axis": np.array([1]), "at": np.array(1)}
    constants["rows"] = np.arange(-9, 9).reshape(9, 2).astype(dtype)
    outputs = [node.output[0] for node in nodes if node.output[0] not in ("small", "columns")]
    shape = ([4, 9], KINDS[kind])
    return build(nodes, {"x": shape, "b": shape}, outputs, constants, 13)


def drawn(kind: str) -> dict[str, np.ndarray]:
    """Small numbers, and some whose sums and doubles just fit; no divisor is 0, which C does not have."""
    random, largest = np.random.default_rng(4), np.iinfo(kind).max // 20
    x, b = (np.where(random.random((4, 9)) < 0.2, random.integers(-largest, largest, (4, 9)), random.integers(-9, 9, (4, 9))) for _ in "xb")
    return {"x": x.astype(kind), "b": np.where(b == 0, 3, np.clip(b, -9, 9)).astype(kind)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_integers_are_those_of_the_standard(tmp_path: Path, kind: str, target: str) -> None:
    model, inputs = integer_operators_model(kind), drawn(kind)
    onnx.save(model, tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx", target)
    want: Any = ReferenceEvaluator(model).run(None, inputs)
    for output, one, other in zip(model.graph.output, compiled.interpret(list(inputs.values())), want, strict=True):
        if output.name != "Div":  # onnx's evaluator rounds down, C, NumPy's trunc and onnxruntime towards 0
            assert np.array_equal(one.reshape(np.shape(other)), other), output.name
    verdict = verify(compiled, tmp_path / "m.onnx", inputs)
    assert all(found.passed for against, found in verdict.comparisons if against == "interpreter"), verdict.contents()


@pytest.mark.parametrize("kind", ["uint32", "int8", "uint8"])
def test_signs_and_magnitudes_of_other_types(kind: str) -> None:
    x = np.array([0, 1, 5, np.iinfo(kind).max, np.iinfo(kind).min + (np.iinfo(kind).min < 0)], kind)
    spec = ([5], helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    nodes = [Node("Sign", ["x"], ["s"]), Node("Abs", ["x"], ["a"])]
    sign, magnitude = deeploy.compile(build(nodes, {"x": spec}, ["s", "a"])).interpret([x])
    assert np.array_equal(sign, np.sign(x)) and np.array_equal(magnitude, np.abs(x))
