"""Operators of others' training graphs compute what their documents say, and a whole step equals that of ``train_graph``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import deeploy
from tests.frontend.nodes import MS, TRAINING, sample
from tests.models import Net, conv

RANDOM = np.random.default_rng(2)
X, DY, S = (RANDOM.uniform(0.1, 0.9, (2, 3)).astype(np.float32) for _ in range(3))
LABEL = np.array([2, 0], np.int64)


def _softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(1, keepdims=True)


def _of_softmax(dy: np.ndarray, y: np.ndarray) -> np.ndarray:
    return y * (dy - (dy * y).sum(1, keepdims=True))


def _norm(dy: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, inverse: np.ndarray) -> list[np.ndarray]:
    normal = (x - mean[:, None]) * inverse[:, None]
    g = dy * scale
    dx = (g - g.mean(1, keepdims=True) - normal * (g * normal).mean(1, keepdims=True)) * inverse[:, None]
    return [dx, (dy * normal).sum(0), dy.sum(0)]


def _adam(rate: np.ndarray, x: np.ndarray, g: np.ndarray, v: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
    """The second definition of the document, behind three updates."""
    g = g + 0.01 * x
    v, h = 0.8 * v + 0.2 * g, 0.9 * h + 0.1 * g * g
    rate = rate * np.sqrt(1 - 0.9**3) / (1 - 0.8**3)
    return [(x - rate * v / (np.sqrt(h) + 1e-6)) * (1 - 0.02), v, h]


def _momentum(rate: np.ndarray, x: np.ndarray, g: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    g = g + 0.01 * x
    v = 0.8 * v + 0.5 * g
    return [x - rate * (g + 0.8 * v), v]


def _adagrad(rate: np.ndarray, x: np.ndarray, g: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
    g = g + 0.01 * x
    h = h + g * g
    return [x - rate / 1.3 * g / (np.sqrt(h) + 1e-6), h]


MEAN, INVERSE, STEPS = X.mean(1), 1 / X.std(1), np.array(3, np.int64)
SCALE = np.array([0.5, 2.0, -1.0], np.float32)
ABOUT = {"epsilon": 1e-6, "norm_coefficient": 0.01}
ONE = np.array(0.5, np.float32)
CASES: dict[str, tuple[list[np.ndarray], dict[str, object], Callable[..., object]]] = {
    "ReluGrad": ([DY, X - 0.5], {}, lambda dy, x: dy * (x > 0)),
    "SigmoidGrad": ([DY, X], {}, lambda dy, y: dy * y * (1 - y)),
    "TanhGrad": ([DY, X], {}, lambda dy, y: dy * (1 - y * y)),
    "SoftmaxGrad_13": ([DY, _softmax(X)], {"axis": 1}, _of_softmax),
    "LogSoftmaxGrad_13": ([DY, np.log(_softmax(X))], {"axis": 1}, lambda dy, y: dy - np.exp(y) * dy.sum(1, keepdims=True)),
    "SoftmaxCrossEntropyLossInternal": (
        [X, LABEL],
        {"reduction": "mean"},
        lambda x, label: [-np.log(_softmax(x))[[0, 1], label].mean(), np.log(_softmax(x))],
    ),
    "SoftmaxCrossEntropyLossInternalGrad": (
        [ONE, np.log(_softmax(X)), LABEL],
        {"reduction": "mean"},
        lambda dy, y, label: (np.exp(y) - np.eye(3)[label]) * dy / 2,
    ),
    "LayerNormalizationGrad": ([DY, X, SCALE, MEAN, INVERSE], {"axis": -1}, _norm),
    "ConcatTraining": ([X, DY], {"axis": 1}, lambda a, b: [np.concatenate([a, b], 1), np.array([3, 3])]),
    "InPlaceAccumulatorV2": ([X, DY, np.array([True])], {}, lambda a, b, first: [np.array([True]), b]),
    "InPlaceAccumulator": ([X, DY], {}, lambda a, b: a + b),
    "Adam": ([ONE, STEPS, X, DY, S, X], {"alpha": 0.8, "beta": 0.9, "norm_coefficient_post": 0.02, **ABOUT}, lambda r, t, *x: _adam(r, *x)),
    "Momentum": (
        [ONE, STEPS, X, DY, S],
        {"alpha": 0.8, "beta": 0.5, "norm_coefficient": 0.01, "mode": "nesterov"},
        lambda r, t, *x: _momentum(r, *x),
    ),
    "Adagrad": ([ONE, STEPS, X, DY, S], {"decay_factor": 0.1, **ABOUT}, lambda r, t, *x: _adagrad(r, *x)),
}


@pytest.mark.parametrize("op", CASES)
def test_operators_compute_what_their_documents_say(tmp_path: Path, op: str) -> None:
    arrays, attrs, formula = CASES[op]
    wanted = formula(*(array.astype(np.float64) if array.dtype == np.float32 else array for array in arrays))
    results = wanted if isinstance(wanted, list) else [wanted]
    domain = TRAINING if op in ("Adam", "Momentum", "Adagrad") else MS
    model = sample(op, [(array.shape, array.dtype) for array in arrays], len(results), domain, **attrs)
    for value, result in zip(model.graph.output, results, strict=True):
        value.type.tensor_type.elem_type = {"b": onnx.TensorProto.BOOL, "i": onnx.TensorProto.INT64}.get(np.asarray(result).dtype.kind, 1)
    found = deeploy.compile(model).interpret(arrays)
    for got, result in zip(found, results, strict=True):
        np.testing.assert_allclose(np.asarray(got).ravel(), np.asarray(result).ravel(), rtol=2e-5, atol=1e-6)


def _own_step(net: Net) -> onnx.ModelProto:
    """A step as onnxruntime's artifacts have it: a convolution, a Relu and a product, behind which weights are changed by a tenth."""
    image, label, one = net.x(2, 1, 4, 4), net.i(1, 0), net.c(np.array(1.0, np.float32))
    filters, weights = (helper.make_tensor_value_info(name, 1, shape) for name, shape in (("filters", [3, 1, 3, 3]), ("weights", [48, 2])))
    net.inputs += [filters, weights]
    before = net.Conv(image, "filters", pads=[1, 1, 1, 1])
    flat = net.Flatten(net.Relu(before))
    loss, logarithms = net.node("SoftmaxCrossEntropyLossInternal", [net.MatMul(flat, "weights"), label], 2, domain=MS, reduction="mean")
    scores = net.SoftmaxCrossEntropyLossInternalGrad(one, logarithms, label, domain=MS, reduction="mean")
    by_weights = net.Gemm(flat, scores, transA=1)
    behind = net.Reshape(net.Gemm(scores, "weights", transB=1), net.i(2, 3, 4, 4))
    of_relu = net.ReluGrad(behind, before, domain=MS)
    of_conv = net.node("ConvGrad", [of_relu, image, "filters"], 2, domain=MS, pads=[1, 1, 1, 1], kernel_shape=[3, 3])[1]
    rate = net.c(np.float32(0.1))
    changed = [net.Sub(w, net.Mul(g, rate)) for w, g in (("filters", of_conv), ("weights", by_weights))]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in (loss, *changed)]
    graph = helper.make_graph(net.nodes, "step", net.inputs, outputs, net.constants)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def test_a_step_of_onnxruntime_is_that_of_train_graph(tmp_path: Path) -> None:
    net = Net()
    hidden = net.Relu(conv(net, net.x(2, 1, 4, 4), 1, 3, bias=False))
    model = net.save(tmp_path / "m.onnx", net.MatMul(net.Flatten(hidden), net.w(48, 2)))
    step = deeploy.train_graph(model, "cross_entropy")
    states = {tensor.name: numpy_helper.to_array(tensor) for tensor in step.graph.initializer[:2]}
    image = np.random.default_rng(1).standard_normal((2, 1, 4, 4)).astype(np.float32)
    rate, label = np.array([0.1], np.float32), np.array([1, 0], np.int32)
    loss, *_ = deeploy.compile(step).interpret({"x0": image, "label": label, "learning_rate": rate})
    own = deeploy.compile(_own_step(Net())).interpret([image, *states.values()])
    np.testing.assert_allclose(own[0].item(), loss.item(), rtol=1e-6)
    second, *_ = deeploy.compile(_own_step(Net())).interpret([image, *own[1:]])
    sequence = deeploy.compile(step).interpret_sequence([{"x0": image, "label": label, "learning_rate": rate}] * 2)
    np.testing.assert_allclose(second.item(), sequence[1][0].item(), rtol=1e-5)
