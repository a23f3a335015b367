"""Operators that onnxruntime's optimiser writes: models that it saved, against the models before, and single ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from tests.frontend.lower import nets_transformer as t
from tests.frontend.lower.nets import CONSTRUCTS
from tests.models import OPSET, Net


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


F, I32, I64, U8, I8 = np.float32, np.int32, np.int64, np.uint8, np.int8
RANDOM = np.random.default_rng(3)


@dataclass(frozen=True)
class Case:
    """One node: shapes are inputs of floats, arrays in a tuple inputs with these values, other arrays constants, None is absent."""

    inputs: Sequence[Any]
    outputs: int | Sequence[int] = 1
    attributes: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 2e-5


def w(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F) / 2


def integers(low: int, high: int, dtype: type, *shape: int) -> np.ndarray:
    return RANDOM.integers(low, high, shape).astype(dtype)


def given(array: np.ndarray) -> tuple[np.ndarray]:
    return (array,)


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], I32)
COS, SIN = np.cos(w(16, 4)), np.sin(w(16, 4))
WIDE_COS, WIDE_SIN = np.cos(w(16, 8)), np.sin(w(16, 8))
X3 = (2, 5, 16)
ROWS = [X3, X3, (16,), (16,)]
SOME: dict[str, Case] = {
    "BiasGelu": Case([(3, 8), (8,)]),
    "FastGelu": Case([(3, 8), (8,)], tolerance=1e-3),
    "FastGelu without a bias": Case([(3, 8)], tolerance=1e-3),
    "Gelu": Case([(3, 8)]),
    "QuickGelu": Case([(3, 8)], attributes={"alpha": 1.5}),
    "SkipLayerNormalization": Case([*ROWS, (16,)], attributes={"epsilon": 1e-5}),
    "SkipLayerNormalization and the sum": Case(ROWS, (0, 3), {"epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": Case([*ROWS[:3], (16,)], (0, 3), {"epsilon": 1e-5}),
    "EmbedLayerNormalization": Case(
        [given(integers(0, 9, I32, 2, 5)), given(integers(0, 2, I32, 2, 5)), w(9, 8), w(6, 8), w(2, 8), w(8), w(8), given(MASK)], 2
    ),
    "EmbedLayerNormalization of places": Case(
        [given(integers(0, 9, I32, 2, 5)), None, w(9, 8), w(6, 8), None, w(8), w(8), None, given(integers(0, 6, I32, 2, 5))], 3
    ),
    "FusedMatMul": Case([(2, 3, 4, 8), (2, 3, 5, 8)], attributes={"alpha": 0.3, "transB": 1}),
    "FusedMatMul of batches": Case([(4, 2, 3, 8), (2, 3, 8, 5)], attributes={"transBatchA": 1}),
    "FusedGemm": Case([(3, 4), w(4, 5), w(5)], attributes={"activation": "LeakyRelu", "activation_alpha": 0.2}),
    "FusedConv": Case([(1, 2, 5, 5), w(3, 2, 3, 3), w(3)], attributes={"activation": "Relu", "pads": [1, 1, 1, 1]}),
    "FusedConv and a sum": Case(
        [(1, 2, 5, 5), w(3, 2, 3, 3), w(3), (1, 3, 3, 3)], attributes={"activation": "Clip", "activation_params": [-0.5, 1.0]}
    ),
    "MatMulNBits": Case(
        [(2, 3, 48), integers(0, 256, U8, 5, 3, 8), np.abs(w(5, 3))], attributes={"K": 48, "N": 5, "bits": 4, "block_size": 16}
    ),
    "MatMulNBits with zero points": Case(
        [(3, 40), integers(0, 256, U8, 5, 3, 8), np.abs(w(15)), integers(0, 256, U8, 10), None, w(5)],
        attributes={"K": 40, "N": 5, "bits": 4, "block_size": 16},
    ),
    "MatMulNBits of bytes": Case(
        [(3, 32), integers(0, 256, U8, 5, 2, 16), np.abs(w(5, 2)), integers(0, 256, U8, 5, 2)],
        attributes={"K": 32, "N": 5, "bits": 8, "block_size": 16},
        tolerance=5e-4,
    ),
    "MatMulNBits of two bits": Case(
        [(2, 40), integers(0, 256, U8, 5, 2, 8), np.abs(w(5, 2))], attributes={"K": 40, "N": 5, "bits": 2, "block_size": 32}
    ),
    "MatMulNBits of sorted channels": Case(
        [(2, 40), integers(0, 256, U8, 5, 3, 8), np.abs(w(5, 3)), None, RANDOM.permutation(40).astype(I32) // 16],
        attributes={"K": 40, "N": 5, "bits": 4, "block_size": 16},
    ),
    "MatMulNBits of blocks of any length": Case(
        [(2, 40), integers(0, 256, U8, 5, 3, 8), np.abs(w(5, 3)), None, integers(0, 3, I32, 40)],
        attributes={"K": 40, "N": 5, "bits": 4, "block_size": 16},
    ),
    "DynamicQuantizeMatMul": Case([(3, 16), integers(-128, 128, I8, 16, 5), np.abs(w(5)), integers(-5, 5, I8, 5), w(5)], tolerance=1e-4),
    "MatMulIntegerToFloat": Case(
        [given(integers(0, 256, U8, 3, 16)), integers(-60, 60, I8, 16, 5), np.abs(w(1)), np.abs(w(5)), np.array(7, U8), None, w(5)]
    ),
    "RotaryEmbedding": Case([(2, 5, 16), given(integers(0, 16, I64, 2, 5)), COS, SIN]),
    "RotaryEmbedding of heads": Case([(2, 3, 5, 8), given(np.array([4])), COS, SIN], attributes={"interleaved": 1}),
    "RotaryEmbedding of a part": Case(
        [(1, 5, 24), given(integers(0, 16, I64, 1, 5)), COS, SIN], attributes={"num_heads": 2, "rotary_embedding_dim": 8}
    ),
    "Attention": Case([X3, w(16, 48), w(48), given(MASK)], attributes={"num_heads": 2}),
    "Attention of ends": Case([X3, w(16, 48), w(48), given(np.array([3, 5], I32))], attributes={"num_heads": 4}),
    "Attention of ends and beginnings": Case([X3, w(16, 48), w(48), given(np.array([3, 5, 1, 0], I32))], attributes={"num_heads": 4}),
    "Attention of other widths": Case(
        [X3, w(16, 40), w(40), None, None, (1, 2, 5, 5)], attributes={"num_heads": 2, "qkv_hidden_sizes": [16, 16, 8]}
    ),
    "Attention with a cache": Case(
        [X3, w(16, 48), w(48), given(np.ones((2, 8), I32)), (2, 2, 2, 3, 8)], 2, {"num_heads": 2, "unidirectional": 1, "scale": 0.3}
    ),
    "MultiHeadAttention": Case([X3, (2, 7, 16), (2, 7, 16), w(48)], attributes={"num_heads": 2}),
    "MultiHeadAttention of widths": Case([X3, (2, 7, 16), (2, 7, 24), None, given(np.array([4, 7], I32))], attributes={"num_heads": 2}),
    "MultiHeadAttention with caches": Case(
        [X3, X3, X3, None, None, (1, 2, 5, 8), (2, 2, 3, 8), (2, 2, 3, 8)], 3, {"num_heads": 2, "unidirectional": 1}
    ),
    "GroupQueryAttention": Case(
        [(2, 5, 64), (2, 5, 32), (2, 5, 32), None, None, np.array([4, 4], I32), np.array(5, I32)],
        3,
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    "GroupQueryAttention with caches": Case(
        [(1, 1, 128), None, None, (1, 2, 6, 16), (1, 2, 6, 16), np.array([6], I32), np.array(7, I32), WIDE_COS, WIDE_SIN],
        3,
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
    ),
    "GroupQueryAttention in a window": Case(
        [(1, 5, 128), None, None, (1, 2, 0, 16), (1, 2, 0, 16), np.array([4], I32), np.array(5, I32), WIDE_COS, WIDE_SIN],
        3,
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 2, "softcap": 3.0},
    ),
    "DynamicQuantizeLSTM": Case(
        [
            *((4, 1, 6), integers(-128, 128, I8, 2, 6, 20), integers(-128, 128, I8, 2, 5, 20), w(2, 40), None, (2, 1, 5), (2, 1, 5), None),
            *(np.abs(w(2)) / 99, np.zeros(2, I8), np.abs(w(2)) / 99, np.zeros(2, I8)),
        ],
        3,
        {"hidden_size": 5, "direction": "bidirectional"},
        1e-4,
    ),
    "QAttention": Case(
        [
            *(given(integers(0, 256, U8, *X3)), integers(-60, 60, I8, 16, 48), w(48), np.array(0.01, F), np.array(0.02, F)),
            *(given(MASK), np.array(120, U8), np.array(0, I8)),
        ],
        attributes={"num_heads": 2},
    ),
}


def model_of(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and what it is fed."""
    case, op = SOME[name], name.split()[0]
    feeds: dict[str, np.ndarray] = {}
    constants, names = [], []
    for number, value in enumerate(case.inputs):
        names.append("" if value is None else f"x{number}")
        if isinstance(value, np.ndarray):
            constants.append(numpy_helper.from_array(value, names[-1]))
        elif value is not None:
            feeds[names[-1]] = (
                value[0] if isinstance(value[0], np.ndarray) else np.random.default_rng(number).standard_normal(value).astype(F)
            )
    wanted = range(case.outputs) if isinstance(case.outputs, int) else case.outputs
    results = [f"y{i}" if i in wanted else "" for i in range(max(wanted) + 1)]
    node = helper.make_node(op, names, results, op, domain="com.microsoft", **case.attributes)
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    is_count = op.startswith("Embed")
    outputs = [
        helper.make_tensor_value_info(n, TensorProto.INT32 if is_count and i == 1 else TensorProto.FLOAT, None)
        for i, n in enumerate(results)
        if n
    ]
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=imports, ir_version=8), feeds


@pytest.mark.parametrize("name", SOME)
def test_single_operators(name: str, tmp_path: Path) -> None:
    model, feeds = model_of(name)
    onnx.save(model, tmp_path / "m.onnx")
    want = _session(tmp_path / "m.onnx", onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL).run(None, feeds)
    for got, expected in zip(deeploy.compile(tmp_path / "m.onnx").interpret(feeds), want, strict=True):
        np.testing.assert_allclose(got, expected, atol=SOME[name].tolerance, rtol=1e-4)
