"""Operators that onnxruntime's optimiser writes: models that it saved, against the models before, and single ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import deeploy
from tests.frontend.lower import nets_transformer as t
from tests.frontend.lower.nets import CONSTRUCTS, OPSET, Net


def _session(path: Path, level: onnxruntime.GraphOptimizationLevel, saved: Path | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", ["encoder layer", "decoder layer", "gelu spelled with tanh", "layer norm spelled, torch"])
def test_an_optimised_model_is_the_model(name: str, tmp_path: Path) -> None:
    net = Net()
    result = CONSTRUCTS[name](net)
    onnx.save(net.model([str(result)], t.OPSETS.get(name, OPSET)), tmp_path / "m.onnx")
    _session(tmp_path / "m.onnx", onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, tmp_path / "optimised.onnx")
    shape = [d.dim_value for d in net.inputs[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    want = _session(tmp_path / "m.onnx", onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL).run(None, {"x0": x})[0]
    np.testing.assert_allclose(deeploy.compile(tmp_path / "optimised.onnx").interpret([x])[0], want, atol=1e-4)


CASES: dict[str, tuple[list[tuple[int, ...]], dict[str, float]]] = {
    "BiasGelu": ([(3, 8), (8,)], {}),
    "FastGelu": ([(3, 8), (8,)], {}),
    "Gelu": ([(3, 8)], {}),
    "QuickGelu": ([(3, 8)], {"alpha": 1.5}),
    "SkipLayerNormalization": ([(2, 3, 8), (2, 3, 8), (8,), (8,), (8,)], {"epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": ([(2, 3, 8), (2, 3, 8), (8,), (8,)], {"epsilon": 1e-5}),
    "FusedMatMul": ([(2, 3, 4, 8), (2, 3, 5, 8)], {"alpha": 0.3, "transB": 1}),
}


@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("second", [False, True])
def test_single_operators(op: str, second: bool, tmp_path: Path) -> None:
    """With the sum as a second output, where there is one."""
    shapes, attrs = CASES[op]
    if second and not op.startswith("Skip"):
        pytest.skip("it has one output")
    names = [f"x{i}" for i in range(len(shapes))]
    results = ["y", "", "", "sum"] if second else ["y"]
    node = helper.make_node(op, names, results, op, domain="com.microsoft", **attrs)
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes, strict=True)]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in results if n]
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=imports, ir_version=8), path)
    random = np.random.default_rng(1)
    feeds = {n: random.standard_normal(s).astype(np.float32) for n, s in zip(names, shapes, strict=True)}
    want = _session(path, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL).run(None, feeds)
    for got, expected in zip(deeploy.compile(path).interpret(feeds), want, strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-5 if op != "FastGelu" else 1e-3)
