"""A decoder layer of onnxruntime's operators whose caches are states: grouped attention, rotated by the position."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.driver.verify import verify_compiled

CONTEXT, WIDTH = 9, 16


def save_attention(path: Path) -> Path:
    """Rows of 32 channels, 4 heads of which two share keys and values; the caches grow along the dimension ``past``."""
    rng, node = np.random.default_rng(0), helper.make_node
    angles = np.outer(np.arange(CONTEXT), 1 / 100 ** (np.arange(WIDTH // 2) / 8)).astype(np.float32)
    arrays = {
        "w": (rng.standard_normal((32, 8 * WIDTH)) * 0.2).astype(np.float32),
        "o": (rng.standard_normal((4 * WIDTH, 32)) * 0.2).astype(np.float32),
        **{"cos": np.cos(angles), "sin": np.sin(angles), "two": np.array(2), "one": np.array(1, np.int32), "shape": np.array([1])},
    }
    nodes = [
        node("MatMul", ["x", "w"], ["qkv"]),
        node("Shape", ["past_k"], ["extents"]),
        node("Gather", ["extents", "two"], ["rows"], axis=0),
        node("Cast", ["rows"], ["before"], to=TensorProto.INT32),
        node("Add", ["before", "one"], ["total"]),
        node("Reshape", ["before", "shape"], ["last"]),
        node(
            "GroupQueryAttention",
            ["qkv", "", "", "past_k", "past_v", "last", "total", "cos", "sin"],
            ["a", "present_k", "present_v"],
            "attention",
            domain="com.microsoft",
            **{"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
        ),
        node("MatMul", ["a", "o"], ["y"]),
    ]
    inputs = {"x": [1, 1, 32], "past_k": [1, 2, "past", WIDTH], "past_v": [1, 2, "past", WIDTH]}
    outputs = {"y": [1, 1, 32], "present_k": [1, 2, "total", WIDTH], "present_v": [1, 2, "total", WIDTH]}
    ends = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ports.items()] for ports in (inputs, outputs))
    graph = helper.make_graph(nodes, "layer", *ends, [numpy_helper.from_array(value, name) for name, value in arrays.items()])
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=versions, ir_version=8), path)
    return path


def test_every_position_is_that_of_onnxruntime(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path, data = save_attention(tmp_path / "m.onnx"), tmp_path / "x.npz"
    made = deeploy.compile(path, states={"past_k": "present_k", "past_v": "present_v"}, context=CONTEXT)
    np.savez(data, x=np.random.default_rng(1).standard_normal((CONTEXT, 1, 1, 32)).astype(np.float32))
    verdict = verify_compiled(made, path, data, sequence=True)
    assert verdict.passed and {against for against, _ in verdict.comparisons} == {"interpreter", "onnxruntime"}
