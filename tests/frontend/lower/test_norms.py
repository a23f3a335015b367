"""Norms of quantised rows: what is added to the variance, or to the mean of the squares, has their unit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from tests.models import save_graph

COLUMNS = 12
WEIGHT, BIAS = np.linspace(0.5, 2, COLUMNS, dtype=np.float32), np.linspace(-1, 1, COLUMNS, dtype=np.float32)


def quantised(path: Path, op: str, epsilon: float, scale: float, step: float) -> deeploy.Compiled:
    numbers = {"w": WEIGHT, "b": BIAS, "scale": np.float32(scale), "step": np.float32(step), "zero": np.int8(3)}
    rest = ["w", "b"] if op == "LayerNormalization" else ["w"]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["a"]),
        helper.make_node(op, ["a", *rest], ["n"], epsilon=epsilon),
        helper.make_node("QuantizeLinear", ["n", "step", "zero"], ["y"]),
    ]
    sides = [[helper.make_tensor_value_info(name, TensorProto.INT8, [8, COLUMNS])] for name in "xy"]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()]
    graph = helper.make_graph(nodes, "g", *sides, constants)
    save_graph(graph, path, 23)
    return deeploy.compile(path)


@pytest.mark.parametrize("epsilon", [1e-5, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_epsilon_counts_as_in_real_numbers(op: str, epsilon: float, tmp_path: Path) -> None:
    """Variances are about 0.5: most of these are not small beside them."""
    x = np.random.default_rng(1).integers(-128, 128, (8, COLUMNS)).astype(np.int8)
    real = (x.astype(np.float64) - 3) * 0.01
    if op == "LayerNormalization":
        real -= real.mean(axis=-1, keepdims=True)
    expected = real / np.sqrt((real**2).mean(axis=-1, keepdims=True) + epsilon) * WEIGHT + (BIAS if op == "LayerNormalization" else 0)
    step = float(np.abs(expected).max() / 120)
    compiled = quantised(tmp_path / "m.onnx", op, epsilon, 0.01, step)
    assert [call.node.op for call in compiled.network.program.calls] == ["Standardise"]
    (got,) = compiled.interpret([x])
    difference = np.abs(got - np.clip(np.rint(expected / step) + 3, -128, 127))
    assert difference.max() <= 1 and (difference > 0).mean() < 0.05
