"""Infinities, what is no number, both zeros, subnormals and huge numbers: C, the interpreter and onnxruntime agree on every operator.

Where implementations differ among themselves, what this compiler does is stated here and in docs/limits.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.api import verify
from deeploy.errors import ModelError
from tests.frontend.models import build, f32

Node = helper.make_node
INF, NAN = np.inf, np.nan
UNARY = (
    *("Abs", "Neg", "Sign", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Reciprocal", "Floor", "Ceil", "Round"),
    *("Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "HardSwish", "HardSigmoid"),
    *("Elu", "Selu", "Celu", "ThresholdedRelu", "Shrink", "Softplus", "Softsign", "Gelu", "Mish", "IsNaN", "IsInf"),
)
BINARY = (
    *("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "Pow"),
    *("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "PRelu", "Where"),
)
REDUCTIONS = ("Max", "Min", "Sum", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
FIXED = (INF, -INF, NAN, 0.0, -0.0, 1.4e-45, -1e-39, 1.2e-38, 3e38, -3e38, 1.0, -1.0, 0.5, -2.5, 88.8, -88.8, 104.0, -104.0, 1e-8)
# Of rows: what is no number has a test of its own, and sums that are too large before they are complete depend on their order.
NUMBERS = (INF, -INF, 0.0, -0.0, 1e-45, 8e37, 1.0, -1.0, 2.5, 90.0, -30.0)


def drawn(seed: int) -> dict[str, np.ndarray]:
    """Special values beside drawn ones: one by one, in pairs, and in rows and images of four."""
    random = np.random.default_rng(seed)
    x = np.array([*FIXED, *random.standard_normal(5), *np.exp2(random.uniform(-149, 127, 8)) * random.choice([-1, 1], 8)], np.float32)
    pairs = np.stack([random.permutation(np.tile(x, 12)) for _ in "ab"])
    rows = random.choice(NUMBERS, (40, 4)).astype(np.float32)
    rows[:3] = [[INF] * 4, [-INF] * 4, [-3e38, -3e38, -1, 0]]
    image = np.where(random.random((1, 2, 8, 8)) < 0.2, random.choice(NUMBERS, (1, 2, 8, 8)), random.standard_normal((1, 2, 8, 8)))
    return {"x": x, "a": pairs[0], "b": pairs[1], "r": rows, "m": np.where(image == -INF, 0, image).astype(np.float32)}


def operators_model(inputs: dict[str, np.ndarray]) -> onnx.ModelProto:
    """An output of every operator on these."""
    constants: dict[str, Any] = {"axis": np.array([1]), "at": np.array(1), "low": np.float32(-1), "high": np.float32(2)}
    constants |= {"weights": np.array([[1, 0], [0, 1], [2, -1], [0, 0]], np.float32)}
    nodes = [Node(op, ["x"], [op]) for op in UNARY]
    nodes.append(Node("Cast", ["a"], ["chosen"], to=TensorProto.BOOL))
    nodes += [Node(op, (["chosen"] if op == "Where" else []) + ["a", "b"], [op]) for op in BINARY]
    nodes.append(Node("Mod", ["a", "b"], ["Mod"], fmod=1))
    for i, bounds in enumerate((["low", "high"], ["lowest", "high"], ["low", "highest"])):
        nodes.append(Node("Clip", ["x", *bounds], [f"Clip {i}"]))
    constants |= {"lowest": np.float32(-INF), "highest": np.float32(INF)}
    for i, value in enumerate((INF, -INF, 0.0, -0.0, 0.5, 1e-39, 3e38, 2.0, -1.0, -0.5)):
        constants[f"k{i}"] = np.array([value], np.float32)
        nodes += [Node(op, ["x", f"k{i}"], [f"{op} {i}"]) for op in ("Add", "Mul", "Div", "Max", "Min", "Pow", "PRelu")]
        nodes.append(Node("Div", [f"k{i}", "x"], [f"Div by {i}"]))
    constants["slopes"] = np.array([INF, -INF, 0.5, 0], np.float32)
    nodes.append(Node("PRelu", ["r", "slopes"], ["PRelu of channels"]))
    nodes += [Node(f"Reduce{op}", ["r", "axis"], [f"Reduce{op}"]) for op in REDUCTIONS]
    nodes += [Node(op, ["r"], [op], axis=1) for op in ("Softmax", "LogSoftmax", "ArgMax", "ArgMin")]
    nodes += [Node("CumSum", ["r", "at"], ["CumSum"]), Node("MatMul", ["r", "weights"], ["MatMul"])]
    nodes += [Node(op, ["m"], [op], kernel_shape=[2, 2], strides=[2, 2]) for op in ("MaxPool", "AveragePool")]
    nodes += [Node(op, ["m"], [op]) for op in ("GlobalMaxPool", "GlobalAveragePool")]
    for name, zero in (("u8", np.uint8(5)), ("s8", np.int8(-3)), ("s16", np.int16(7))):
        constants |= {f"zero {name}": zero, "scale": np.float32(0.1)}
        nodes.append(Node("QuantizeLinear", ["x", "scale", f"zero {name}"], [f"quantised {name}"]))
    outputs = [node.output[0] for node in nodes if node.output[0] != "chosen"]
    return build(nodes, {name: f32(*array.shape) for name, array in inputs.items()}, outputs, constants, 21)


def differing(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Where results are neither one within the rule of floats nor both the same infinity, nor both no number."""
    one, other = (np.asarray(array, np.float64).ravel() for array in (got, want))
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= 1e-4 * np.maximum(1, np.abs(other))
    return np.flatnonzero(~(near | (one == other) | (np.isnan(one) & np.isnan(other))))


def reference(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    found: list[np.ndarray] = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, inputs)
    return found


@pytest.mark.parametrize(("target", "seed"), [("generic", 1), ("generic", 2), ("siracusa", 3)])
def test_operators_on_special_values(tmp_path: Path, target: str, seed: int) -> None:
    inputs = drawn(seed)
    model = operators_model(inputs)
    onnx.save(model, tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx", target)
    with np.errstate(all="ignore"):
        interpreted = compiled.interpret(list(inputs.values()))
        computed = verify(compiled, tmp_path / "m.onnx", inputs).outputs
    wanted = reference(model, inputs)
    found = {}
    for output, c, numpy, runtime in zip(model.graph.output, computed, interpreted, wanted, strict=True):
        places = {"numpy": differing(c, numpy), "onnxruntime": differing(c, runtime)}
        found |= {(output.name, against): at.tolist() for against, at in places.items() if at.size}
    assert found == {}


def compiled_and_run(tmp_path: Path, model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What the C computes, which is what the interpreter does."""
    onnx.save(model, tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx")
    with np.errstate(all="ignore"):
        computed = [array.reshape(array.shape[1:]) for array in verify(compiled, tmp_path / "m.onnx", inputs).outputs]
        interpreted = compiled.interpret(list(inputs.values()))
    assert all(np.array_equal(c, numpy, equal_nan=c.dtype.kind == "f") for c, numpy in zip(computed, interpreted, strict=True))
    return computed


def test_what_is_no_number_in_rows_and_windows(tmp_path: Path) -> None:
    """Extremes and sums of rows are none, a window of a pool takes those that are numbers, and the first place may stay."""
    rows = np.array([[NAN, 1, 2], [1, NAN, INF], [1, 2, NAN], [NAN] * 3], np.float32)
    nodes = [Node(f"Reduce{op}", ["r"], [op], axes=[1], keepdims=0) for op in ("Max", "Min", "Mean", "LogSumExp")]
    nodes += [Node("Softmax", ["r"], ["Softmax"], axis=1), Node("MaxPool", ["m"], ["MaxPool"], kernel_shape=[3], strides=[3])]
    nodes += [Node("ArgMax", ["r"], ["ArgMax"], axis=1, keepdims=0), Node("ArgMin", ["r"], ["ArgMin"], axis=1, keepdims=0)]
    model = build(nodes, {"r": f32(4, 3), "m": f32(1, 1, 12)}, [node.output[0] for node in nodes], {}, 13)
    *reduced, softmax, pooled, largest, smallest = compiled_and_run(tmp_path, model, {"r": rows, "m": rows.reshape(1, 1, 12)})
    assert all(np.isnan(array).all() for array in (*reduced, softmax))
    assert pooled.ravel().tolist() == [2, INF, 2, -INF]
    assert largest.tolist() == [0, 2, 1, 0] and smallest.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_quantised_results_that_are_no_numbers(tmp_path: Path, kind: type[np.generic]) -> None:
    """0/0, roots and logarithms of negative numbers are the lowest value, others divided by 0 that of their sign."""
    a = np.array([0, 0, 0, 1, -1, 2, 0.05], np.float32)
    b = np.array([0, 1, -1, 0, 0, 0, 0.05], np.float32)
    constants = {"s": np.float32(0.05), "za": kind(3), "zb": kind(2), "zy": kind(60)}
    nodes = []
    for name in "ab":
        nodes += [
            Node("QuantizeLinear", [name, "s", f"z{name}"], [f"{name}q"]),
            Node("DequantizeLinear", [f"{name}q", "s", f"z{name}"], [f"{name}d"]),
        ]
    ops = {"Div": ["ad", "bd"], "Sqrt": ["ad"], "Log": ["ad"], "Reciprocal": ["bd"]}
    for op, names in ops.items():
        nodes += [Node(op, names, [f"{op}f"]), Node("QuantizeLinear", [f"{op}f", "s", "zy"], [op])]
    model = build(nodes, {"a": f32(7), "b": f32(7)}, list(ops), constants, 13)
    inputs = {"a": a, "b": b}
    for op, got, want in zip(ops, compiled_and_run(tmp_path, model, inputs), reference(model, inputs), strict=True):
        assert np.array_equal(got, want), op


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("pad", ["VALID", "NOTSET"])
def test_windows_that_are_wider_than_the_input(op: str, pad: str) -> None:
    """Rounded up, one window that is wider by less than a stride; otherwise no output, and a window that files count is refused."""
    for extent, size, stride in ((2, 3, 2), (1, 2, 2), (3, 5, 3), (4, 7, 4), (2, 4, 2), (1, 3, 2), (5, 7, 2)):
        node = Node(op, ["x"], ["y"], kernel_shape=[size], strides=[stride], ceil_mode=1, auto_pad=pad)
        model = build([node], {"x": f32(1, 1, extent)}, ["y"], {}, 19)
        x = np.arange(1, extent + 1, dtype=np.float32).reshape(1, 1, extent)
        (want,) = reference(model, {"x": x})
        if want.size or size - extent < stride:
            assert np.array_equal(deeploy.compile(model).interpret([x])[0], want)
        else:
            with pytest.raises(ModelError, match="which its window cannot produce"):
                deeploy.compile(model)
