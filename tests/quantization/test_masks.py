"""Masks of attention are quantised without losing the scores beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.quantization.form import Form
from deeploy.quantization.losses import compare_networks, signal_to_noise
from deeploy.quantization.static import quantize_model, read_source
from tests.models import save_graph

ROWS, WIDTH = 10, 8
RANDOM = np.random.default_rng(3)
LEAST = np.finfo(np.float32).min
FUTURE = np.triu(np.ones((ROWS, ROWS), bool), 1)


def _where() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """As GPT-2 is exported: chosen by a constant, and masked again."""
    nodes = [helper.make_node("Where", ["future", "low", "scores"], ["w"]), helper.make_node("Add", ["w", "mask"], ["masked"])]
    return nodes, {"future": FUTURE, "low": np.float32(LEAST), "mask": np.where(FUTURE, LEAST, 0).astype(np.float32)}


def _infinite() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    return [helper.make_node("Add", ["scores", "mask"], ["masked"])], {"mask": np.where(FUTURE, -np.inf, 0).astype(np.float32)}


def _product() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """As BERT is exported: computed of what is seen."""
    nodes = [
        helper.make_node("Sub", ["one", "seen"], ["hidden"]),
        helper.make_node("Mul", ["hidden", "low"], ["mask"]),
        helper.make_node("Add", ["scores", "mask"], ["masked"]),
    ]
    return nodes, {"one": np.float32(1), "low": np.float32(LEAST)}


def _given() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    return [helper.make_node("Add", ["scores", "seen"], ["masked"])], {}


MASKS = {"where": _where, "infinite": _infinite, "product": _product, "given": _given}


def attention(kind: str, path: Path) -> dict[str, np.ndarray]:
    """Write one head of causal attention; returns its samples, stacked."""
    nodes, constants = MASKS[kind]()
    weights = {name: RANDOM.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 2 for name in ("wq", "wk", "wv")}
    inputs = {"x": (ROWS, WIDTH), **({"seen": (ROWS, ROWS)} if kind in ("product", "given") else {})}
    every = [
        *(helper.make_node("MatMul", ["x", f"w{name}"], [name], f"project {name}") for name in "qkv"),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[1, 0]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"], "scores"),
        *nodes,
        helper.make_node("Softmax", ["masked"], ["p"], "softmax", axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"], "mix"),
    ]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in {**weights, **constants}.items()]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(every, "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, (ROWS, WIDTH))], tensors)
    save_graph(graph, path)
    seen = {"product": ~FUTURE, "given": np.where(FUTURE, -1e9, 0)}.get(kind, FUTURE).astype(np.float32)
    samples = {"x": RANDOM.normal(size=(6, ROWS, WIDTH)).astype(np.float32), "seen": np.broadcast_to(seen, (6, ROWS, ROWS))}
    return {name: samples[name] for name in inputs}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("form", [Form(), Form(symmetric=True, powers=True), Form(activations="uint8", method="percentile")], ids=str)
def test_scores_keep_their_steps(kind: str, form: Form, tmp_path: Path) -> None:
    """The scales are those of the scores that are seen, hidden ones weigh nothing, and C follows."""
    samples = attention(kind, tmp_path / "m.onnx")
    np.savez(tmp_path / "samples.npz", **samples)
    quantize_model(tmp_path / "m.onnx", tmp_path / "samples.npz", tmp_path / "q.onnx", form)
    model = onnx.load(tmp_path / "q.onnx")
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    scales = [values[node.input[1]] for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    assert max(float(scale.max()) for scale in scales) <= 1
    sessions = [onnxruntime.InferenceSession(tmp_path / name) for name in ("m.onnx", "q.onnx")]
    feeds = [{name: array[number] for name, array in samples.items()} for number in range(6)]
    wanted, got = ([session.run(None, feed)[0] for feed in feeds] for session in sessions)
    assert signal_to_noise(got, wanted) > (17 if form.powers else 23)
    if form == Form():
        compiled = deeploy.compile(tmp_path / "q.onnx")
        np.testing.assert_allclose(compiled.run(feeds[0])[0], got[0], atol=2.5 * float(scales[-1].max()))
        source = read_source(tmp_path / "m.onnx", tmp_path / "samples.npz", {}, {})
        layers = {loss.tensor: loss.signal_to_noise for loss in compare_networks(source, tmp_path / "q.onnx").layers}
        assert layers["masked"] > 20, "of what is seen alone"
