"""The newest graphs of the published compiler: factors of integer products, constants per row, what is left of integer operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.backend import project
from deeploy.errors import ModelError
from deeploy.execution.runners import host
from tests.models import save_model

RNG = np.random.default_rng(5)


def saved(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int]]],
    constants: dict[str, np.ndarray],
    result: tuple[int, list[int]],
    opset: int = 13,
) -> Path:
    return save_model(path, nodes, inputs, {nodes[-1].output[0]: result}, constants, opset)


def outputs_of(compiled: deeploy.Compiled, folder: Path, sample: list[np.ndarray]) -> np.ndarray:
    """What the C computes, which is what the interpreter does."""
    compiled.write(folder / "out")
    entry = project.select_network(project.read_manifest(folder / "out"))
    (outputs,) = host.Host().run(folder / "out", entry, [sample]).outputs
    np.testing.assert_array_equal(outputs[0], compiled.interpret(sample)[0])
    return np.asarray(outputs[0])


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (2.0, 3.0), (3.0, 1.0), (1.0, -2.0), (2.0, 0.0)])
def test_products_of_integers_have_whole_factors_and_requantise_row_by_row(alpha: float, beta: float, target: str, tmp_path: Path) -> None:
    a, b = (RNG.integers(-128, 128, shape) for shape in ((6, 9), (9, 7)))
    c, mul, add = RNG.integers(-128, 128, (6, 7)), RNG.integers(1, 90, (6, 1)), RNG.integers(-90_000, 90_000, (6, 1))
    nodes = [
        helper.make_node("Gemm", ["a", "b", "c"], ["y"], "product", alpha=alpha, beta=beta),
        helper.make_node("RequantShift", ["y", "mul", "add"], ["z"], "requantise", div=65536, n_levels=256, signed=1),
    ]
    constants = {"b": b.astype(np.int8), "c": c.astype(np.int8), "mul": mul.astype(np.int32), "add": add.astype(np.int32)}
    path = saved(tmp_path / "model.onnx", nodes, {"a": (TensorProto.INT8, [6, 9])}, constants, (TensorProto.INT8, [6, 7]))
    expected = np.clip(((alpha * (a @ b) + beta * c).astype(np.int64) * mul + add + 32768) >> 16, -128, 127)
    np.testing.assert_array_equal(outputs_of(deeploy.compile(path, target), tmp_path, [a.astype(np.int8)]), expected)


def test_products_of_integers_have_no_other_factors(tmp_path: Path) -> None:
    node = helper.make_node("Gemm", ["a", "b"], ["y"], "product", alpha=0.5)
    constants = {"b": np.ones((9, 7), np.int8)}
    path = saved(tmp_path / "model.onnx", [node], {"a": (TensorProto.INT8, [6, 9])}, constants, (TensorProto.INT32, [6, 7]))
    with pytest.raises(deeploy.errors.DeeployError, match="Gemm"):
        deeploy.compile(path)


def test_one_axis_of_an_integer_mean_may_be_a_number(tmp_path: Path) -> None:
    x = RNG.integers(-128, 128, (2, 3, 8)).astype(np.int8)
    found = []
    for axes in (2, [2]):
        node = helper.make_node("IntegerMean", ["x"], ["y"], "mean", domain="PACTOps", axes=axes, keepdims=0)
        path = saved(tmp_path / "model.onnx", [node], {"x": (TensorProto.INT8, [2, 3, 8])}, {}, (TensorProto.INT32, [2, 3]))
        found.append(deeploy.compile(path).interpret([x])[0])
    np.testing.assert_array_equal(*found)


LEFT = {"Div": {"Delta": 16384, "eps": 1, "eta": 200000}, "HardSwish": {"three": 3, "six": 6, "one_over_six": 10}}


@pytest.mark.parametrize("op", LEFT)
def test_what_is_left_of_an_integer_operator_means_nothing_for_floats(op: str, tmp_path: Path) -> None:
    x, found = RNG.normal(size=(2, 5)).astype(np.float32), []
    for left in ({}, LEFT[op]):
        inputs = ["x", "two"] if op == "Div" else ["x"]
        constants = {"two": np.full(1, 2, np.float32)} if op == "Div" else {}
        node = helper.make_node(op, inputs, ["y"], "one", **left)
        path = saved(tmp_path / "model.onnx", [node], {"x": (TensorProto.FLOAT, [2, 5])}, constants, (TensorProto.FLOAT, [2, 5]), 14)
        found.append(deeploy.compile(path).interpret([x])[0])
    np.testing.assert_array_equal(*found)


def test_an_integer_division_does_not_lose_what_it_divides_by(tmp_path: Path) -> None:
    node = helper.make_node("Div", ["x", "two"], ["y"], "one", **LEFT["Div"])
    constants = {"two": np.full(1, 2, np.int32)}
    path = saved(tmp_path / "model.onnx", [node], {"x": (TensorProto.INT32, [2, 5])}, constants, (TensorProto.INT32, [2, 5]))
    with pytest.raises(ModelError, match="IntegerDiv"):
        deeploy.compile(path)


def test_norms_and_softmax_of_the_float_dialect_are_those_of_the_last_axis(tmp_path: Path) -> None:
    """Before version 13 of the standard, Softmax without an axis is one of all but the first."""
    nodes = [helper.make_node("RMSNorm", ["x", "w"], ["n"], "norm"), helper.make_node("Softmax", ["n"], ["y"], "softmax")]
    x, w = RNG.normal(size=(1, 3, 8)).astype(np.float32) * 1e-3, RNG.normal(size=8).astype(np.float32)
    path = saved(tmp_path / "model.onnx", nodes, {"x": (TensorProto.FLOAT, [1, 3, 8])}, {"w": w}, (TensorProto.FLOAT, [1, 3, 8]), 10)
    normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w
    powers = np.exp(normed - normed.max(-1, keepdims=True))
    np.testing.assert_allclose(outputs_of(deeploy.compile(path), tmp_path, [x]), powers / powers.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_floats_are_padded_with_what_is_infinite(target: str, tmp_path: Path) -> None:
    node = helper.make_node("Pad", ["x", "pads", "value"], ["y"], "pad")
    constants = {"pads": np.array([0, 1, 0, 2]), "value": np.float32(-np.inf).reshape(())}
    path = saved(tmp_path / "model.onnx", [node], {"x": (TensorProto.FLOAT, [2, 3])}, constants, (TensorProto.FLOAT, [2, 6]))
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    expected = np.pad(x, ((0, 0), (1, 2)), constant_values=-np.inf)
    np.testing.assert_array_equal(outputs_of(deeploy.compile(path, target), tmp_path, [x]), expected)
