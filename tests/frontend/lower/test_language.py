"""An encoder and a decoder from tokens to logits, as exporters write them, in floats and quantised by onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

import deeploy
from deeploy.execution.simulation.interpreter import network_outputs
from tests.frontend.lower import nets_transformer as t
from tests.frontend.lower.test_constructs import _Samples
from tests.models import Net

S, D, HEADS, WORDS = 10, 32, 4, 50
Arrays = dict[str, np.ndarray]


def tokens(n: Net, name: str) -> str:
    n.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, [1, S]))
    return name


def bias(n: Net, x: str, columns: int) -> str:
    return str(n.Add(x, n.c((n.random.standard_normal(columns) * 0.1).astype(np.float32))))


def norm(n: Net, x: str) -> str:
    scale = n.c((1 + 0.2 * n.random.standard_normal(D)).astype(np.float32))
    return str(n.LayerNormalization(x, scale, n.c((0.1 * n.random.standard_normal(D)).astype(np.float32)), axis=-1, epsilon=1e-5))


def attend(n: Net, x: str, mask: str) -> str:
    width = D // HEADS
    q, k, v = (t.heads(n, bias(n, t.dense(n, x, D, D), D), S, HEADS, width) for _ in range(3))
    scores = n.Div(n.MatMul(q, n.Transpose(k, perm=[0, 1, 3, 2])), n.c(math.sqrt(width)))
    weights = n.Softmax(n.Add(scores, mask), axis=-1)
    return bias(n, t.dense(n, n.Reshape(n.Transpose(n.MatMul(weights, v), perm=[0, 2, 1, 3]), n.i(1, S, D)), D, D), D)


def gelu(n: Net, x: str) -> str:
    return str(n.Mul(n.Mul(x, n.Add(n.Erf(n.Div(x, n.c(math.sqrt(2)))), n.c(1.0))), n.c(0.5)))


def encoder(n: Net) -> str:
    """Words, positions and segments; a padding mask; two layers with the norm behind; the first word's class."""
    ids, kept, segments = tokens(n, "ids"), tokens(n, "mask"), tokens(n, "segments")
    x = n.Add(n.Add(n.Gather(n.w(WORDS, D), ids), n.Gather(n.w(2, D), segments)), n.Gather(n.w(S, D), n.c(np.arange(S)[None])))
    x = norm(n, x)
    mask = n.Mul(n.Sub(n.c(1.0), n.Cast(n.Unsqueeze(kept, n.i(1, 2)), to=1)), n.c(-10.0))
    for _ in range(2):
        x = norm(n, n.Add(x, attend(n, x, mask)))
        x = norm(n, n.Add(x, bias(n, t.dense(n, gelu(n, bias(n, t.dense(n, x, D, 64), 64)), 64, D), D)))
    first = n.Gather(x, n.c(0, np.int64), axis=1)
    pooled = n.Tanh(n.Gemm(first, n.w(D, D), n.w(D), transB=1))
    return str(n.Gemm(pooled, n.w(3, D), n.w(3), transB=1))


def decoder(n: Net) -> str:
    """Words; a causal mask joined with a padding mask, chosen by Where; two layers with shared key heads; logits of every word."""
    ids, kept = tokens(n, "ids"), tokens(n, "mask")
    x = n.Gather(n.w(WORDS, D), ids)
    for _ in range(2):
        x = n.Add(x, t.attention(n, t.rms_norm(n, x, D), S, HEADS, 2, D // HEADS))
        y = t.rms_norm(n, x, D)
        gate = t.dense(n, y, D, 48)
        x = n.Add(x, t.dense(n, n.Mul(n.Mul(gate, n.Sigmoid(gate)), t.dense(n, y, D, 48)), 48, D))
    real = n.Cast(n.Unsqueeze(kept, n.i(2)), to=1)
    return t.dense(n, n.Mul(t.rms_norm(n, x, D), real), D, WORDS)


def sample(inputs: list[str], seed: int) -> Arrays:
    random = np.random.default_rng(seed)
    arrays = {"ids": random.integers(0, WORDS, (1, S)), "mask": (np.arange(S) < random.integers(4, S + 1))[None].astype(np.int64)}
    arrays["segments"] = (np.arange(S) > 4)[None].astype(np.int64)
    return {name: arrays[name] for name in inputs}


def saved(path: Path, build: Callable[[Net], str]) -> list[str]:
    net = Net()
    onnx.save(net.model([build(net)]), path)
    return [value.name for value in net.inputs]


def expected(path: Path, arrays: Arrays) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, arrays)[0])


@pytest.mark.parametrize("build", [encoder, decoder])
def test_floats(build: Callable[[Net], str], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    arrays = sample(saved(path, build), 3)
    compiled = deeploy.compile(path)
    np.testing.assert_allclose(compiled.run(arrays, sanitize=True)[0], expected(path, arrays), atol=1e-4)
    ops = [c.node.attrs.get("function", c.node.op) for c in compiled.network.program.calls]
    assert ops.count("Normalise") == 5 and ops.count("gelu") + ops.count("silu") == 2 and "Expand" not in ops


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("build", [encoder, decoder])
def test_quantised(build: Callable[[Net], str], kind: QuantType, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    inputs = saved(tmp_path / "float.onnx", build)
    calibration = _Samples([sample(inputs, seed) for seed in range(8)])
    quantize_static(tmp_path / "float.onnx", path, calibration, quant_format=QuantFormat.QDQ, activation_type=kind, per_channel=True)
    compiled = deeploy.compile(path)
    arrays = sample(inputs, 20)
    want = expected(path, arrays)
    got = compiled.run(arrays)[0]
    np.testing.assert_allclose(got, compiled.interpret(arrays)[0], atol=1e-6)
    steps = np.rint((got - want) / compiled.network.outputs[0].step)
    assert np.abs(steps).max() <= 1 and np.mean(steps == 0) >= 0.99
    floats = [c.node.op for c in compiled.network.program.calls if any(o.dtype.is_float for o in c.node.outputs)]
    mask = ["Cast", "Sub"] if build is encoder else ["Cast"]  # of the caller's integers, before the first quantisation
    assert floats == [*mask, "Dequantize"]


@pytest.mark.parametrize(("unsigned", "above"), [(True, 0), (False, 0), (True, 3), (False, 3)])
def test_a_function_plus_one_is_rounded_as_onnxruntime_does(unsigned: bool, above: int, tmp_path: Path) -> None:
    """Scales of an erf and of its sum with 1 are nearly one: every second value is a tie up to the noise of float32."""
    dtype, low = (np.uint8, 0) if unsigned else (np.int8, -128)
    zero, n = 127 + low, Net()
    n.inputs.append(helper.make_tensor_value_info("q", TensorProto.INT8 if low else TensorProto.UINT8, [256]))
    x = n.DequantizeLinear("q", n.c(np.float32(0.007843123748898506)), n.c(zero, dtype))
    one = n.DequantizeLinear(n.c([255 + low], dtype), n.c(np.float32(0.003921568859368563)), n.c(low, dtype))
    scale, offset = n.c(np.float32(0.007843133062124252)), n.c(low + above, dtype)
    path = tmp_path / "m.onnx"
    onnx.save(n.model([n.DequantizeLinear(n.QuantizeLinear(n.Add(x, one), scale, offset), scale, offset)]), path)
    sample = np.arange(low, low + 256).astype(dtype)
    expected = onnxruntime.InferenceSession(path).run(None, {"q": sample})[0]
    program = deeploy.compile(path).network.program
    assert [call.node.op for call in program.calls] == ["Lookup", "Dequantize"]
    np.testing.assert_array_equal(network_outputs(program, [sample])[0], expected)
