"""What the compiler makes of a transformer's pieces: one kernel for what files spell out, and nothing repeated or copied."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

import deeploy
from deeploy.frontend.lower import grouped_query as heads
from deeploy.ir.surgeon import read_graph
from tests.frontend.lower import lowered as build
from tests.frontend.lower import nets_transformer as t
from tests.frontend.lower.nets import CONSTRUCTS
from tests.frontend.lower.test_constructs import _Samples
from tests.models import OPSET, Net


def compile_construct(path: Path, name: str) -> deeploy.Compiled:
    net = Net()
    result = CONSTRUCTS[name](net)
    onnx.save(net.model([result] if isinstance(result, str) else result, t.OPSETS.get(name, OPSET)), path)
    return deeploy.compile(path)


def operators(compiled: deeploy.Compiled) -> dict[str, int]:
    """How often each operator occurs; functions of one tensor by their own names."""
    return dict(Counter(c.node.attrs.get("function", c.node.op) for c in compiled.network.program.calls))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((f"gelu spelled with erf, {order}", {"MatMul": 1, "gelu": 1}) for order in range(3)),
        ("gelu spelled with tanh", {"MatMul": 1, "gelu_tanh": 1}),
        ("silu", {"MatMul": 1, "silu": 1}),
        ("silu divided", {"MatMul": 1, "silu": 1}),
        ("silu gate", {"MatMul": 2, "silu": 1, "Mul": 1}),
        ("quick gelu", {"MatMul": 1, "silu": 1}),
        ("mish", {"MatMul": 1, "mish": 1}),
        *((f"layer norm spelled, {form}", {"Normalise": 1}) for form in ("torch", "twice", "reciprocal")),
        *((f"rms norm spelled, {form}", {"Normalise": 1}) for form in ("torch", "power", "divided")),
        ("layer norm axis 1", {"Normalise": 1}),
        ("expand behind", {"tanh": 1, "Expand": 1}),
        ("padding mask", {"greater": 1, "Cast": 1, "Sub": 1, "Mul": 1, "MatMul": 1, "Add": 1, "Softmax": 1}),
    ],
)
def test_what_is_spelled_out_is_one_kernel(name: str, expected: dict[str, int], tmp_path: Path) -> None:
    assert operators(compile_construct(tmp_path / "m.onnx", name)) == expected


@pytest.mark.parametrize("name", ["attention of groups", "attention of tiled groups", "attention of one key head", "decoder layer"])
def test_shared_heads_are_not_repeated(name: str, tmp_path: Path) -> None:
    compiled = compile_construct(tmp_path / "m.onnx", name)
    assert "Expand" not in operators(compiled)
    group = 4 if "one" in name else 2
    products = [c.node for c in compiled.network.program.calls if c.node.op == "MatMul" and len(c.node.outputs[0].shape) == 5]
    tiled = "tiled" in name  # groups, then heads
    assert [n.outputs[0].shape[1:3] for n in products] == [(group, 4 // group) if tiled else (4 // group, group)] * 2
    assert all(n.inputs[1] is not None and n.inputs[1].shape[1 if tiled else 2] == 1 for n in products)


@pytest.mark.parametrize(("op", "kept"), [("Mul", False), ("Clip", True)])
def test_expand_before_a_broadcasting_reader_is_nothing(op: str, kept: bool) -> None:
    a, b = build.variable("a", np.float32, [1, 8, 1, 1]), build.variable("b", np.float32, [1, 8, 4, 4])
    wide, y = build.variable("wide", np.float32, [1, 8, 4, 4]), build.variable("y", np.float32, [1, 8, 4, 4])
    inputs = [wide, b] if op == "Mul" else [wide]
    graph = gs.Graph([gs.Node("Expand", "e", {}, [a], [wide], domain=build.DOMAIN)], [a, b], [y])
    graph.nodes.append(gs.Node(op, "m", {}, inputs, [y], domain=build.DOMAIN))
    after = heads.PASS(read_graph(graph))
    assert [node.op for node in after.nodes] == [op, *(["Expand"] if kept else [])]
    assert after.nodes[0].inputs[0] is after.inputs[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["attention of groups", "decoder layer", "encoder layer"])
@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8])
def test_what_onnxruntime_quantises_by_itself(name: str, kind: QuantType, tmp_path: Path) -> None:
    """The operators that it quantises unless told otherwise: equal to what it computes, within one step, and in integers."""
    net = Net()
    result = CONSTRUCTS[name](net)
    onnx.save(net.model([str(result)], OPSET), tmp_path / "float.onnx")
    samples = [{"x0": np.random.default_rng(i).standard_normal((1, 9, 32)).astype(np.float32)} for i in range(5)]
    path = tmp_path / "m.onnx"
    quantize_static(tmp_path / "float.onnx", path, _Samples(samples[1:]), quant_format=QuantFormat.QDQ, activation_type=kind)
    compiled = deeploy.compile(path)
    want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, samples[0])[0]
    steps = np.rint((compiled.interpret(samples[0])[0] - want) / compiled.network.outputs[0].step)
    assert np.abs(steps).max() <= 1 and np.mean(steps == 0) >= 0.99
    floats = [c.node.op for c in compiled.network.program.calls if any(o.dtype.is_float for o in c.node.outputs)]
    assert floats == ["Dequantize"] or name == "encoder layer"  # its norms are spelled out, and quantised in the middle
    assert "Expand" not in operators(compiled)


def test_a_function_of_something_else_stays(tmp_path: Path) -> None:
    """x * sigmoid(x + 0.1) is no Swish, whatever its shape in the graph."""
    net = Net()
    x = net.x(3, 20)
    onnx.save(net.model([net.Mul(x, net.Sigmoid(net.Add(x, net.c(0.1))))]), tmp_path / "m.onnx")
    assert operators(deeploy.compile(tmp_path / "m.onnx")) == {"Add": 1, "sigmoid": 1, "Mul": 1}


def test_a_norm_over_other_axes_than_its_mean_stays(tmp_path: Path) -> None:
    net = Net()
    x = net.x(3, 4, 20)
    d = t.centred(net, x, [1])
    y = net.Div(d, net.Sqrt(net.Add(net.ReduceMean(net.Mul(d, d), axes=[2]), net.c(1e-5))))
    onnx.save(net.model([y]), tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx")
    values = np.random.default_rng(0).standard_normal((3, 4, 20)).astype(np.float32)
    wide = values - values.mean(axis=1, keepdims=True, dtype=np.float64)
    want = wide / np.sqrt((wide**2).mean(axis=2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(compiled.run([values])[0], want, atol=1e-5)
    assert operators(compiled)["Normalise"] == 1  # of the distances from the other mean


def test_tokens_positions_and_integers(tmp_path: Path) -> None:
    """Embeddings by 64-bit tokens, a mask from them, and integer arithmetic on the way, against onnxruntime."""
    net = Net()
    table = net.w(30, 8)
    tokens = "tokens"
    net.inputs.append(helper.make_tensor_value_info(tokens, TensorProto.INT64, [2, 7]))
    wrapped = net.Where(net.Less(tokens, net.c(0, np.int64)), net.Add(tokens, net.c(30, np.int64)), tokens)
    other = net.Sub(net.Mul(wrapped, net.c(3, np.int64)), net.Mul(net.Div(net.Mul(wrapped, net.c(3, np.int64)), net.i(30)), net.i(30)))
    kept = net.Unsqueeze(net.Cast(net.Not(net.Equal(wrapped, net.c(0, np.int64))), to=1), net.i(2))
    y = net.Mul(net.Add(net.Gather(table, wrapped), net.Gather(table, net.Max(other, net.i(4)))), kept)
    path = tmp_path / "m.onnx"
    onnx.save(net.model([y]), path)
    values = np.array([[0, 1, 29, -1, -30, 17, 4], [5, 6, 7, -8, 9, 0, 0]], np.int64)
    want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {tokens: values})[0]
    compiled = deeploy.compile(path)
    np.testing.assert_allclose(compiled.run([values], sanitize=True)[0], want, atol=1e-6)
    np.testing.assert_allclose(compiled.interpret([values])[0], want, atol=1e-6)
