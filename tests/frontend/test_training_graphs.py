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


def _adam_with_decay(rate: np.ndarray, steps: np.ndarray, w: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    """PyTorch's AdamW in its third step."""
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    root = np.sqrt(v / (1 - 0.999**3)) + 1e-8
    return [np.array([True]), w * (1 - rate * 0.1) - rate * m / (1 - 0.9**3) / root, m, v]


def _adam_before_decay(rate: np.ndarray, steps: np.ndarray, w: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    """That of Transformers."""
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    w = w - rate * np.sqrt(1 - 0.999**3) / (1 - 0.9**3) * m / (np.sqrt(v) + 1e-8)
    return [np.array([True]), w * (1 - rate * 0.1), m, v]


def _of_rms(dy: np.ndarray, x: np.ndarray, scale: np.ndarray, inverse: np.ndarray) -> list[np.ndarray]:
    normal, scaled = x * inverse[:, None], dy * scale
    return [(scaled - normal * (scaled * normal).mean(1, keepdims=True)) * inverse[:, None], (dy * normal).sum(0)]


def _of_batch(dy: np.ndarray, x: np.ndarray, scale: np.ndarray, mean: np.ndarray, inverse: np.ndarray) -> list[np.ndarray]:
    """Channels are axis 1."""
    rows, back = (array.transpose(1, 0, 2, 3).reshape(2, -1) for array in (dy, x)), (2, 3, 4, 4)
    (dy, x), scale = rows, scale[:, None]
    normal = (x - mean[:, None]) * inverse[:, None]
    g = dy * scale
    dx = (g - g.mean(1, keepdims=True) - normal * (g * normal).mean(1, keepdims=True)) * inverse[:, None]
    return [dx.reshape(back).transpose(1, 0, 2, 3), (dy * normal).sum(1), dy.sum(1)]


def _clipped(*gradients: np.ndarray) -> list[np.ndarray]:
    length = np.sqrt(sum((g * g).sum() for g in gradients))
    return [g * min(1, 0.5 / (length + 1e-6)) for g in gradients]


IMAGE, OF_IMAGE = (RANDOM.standard_normal((3, 2, 4, 4)).astype(np.float32) for _ in range(2))
MEAN, INVERSE, STEPS = X.mean(1), 1 / X.std(1), np.array(3, np.int64)
SCALE = np.array([0.5, 2.0, -1.0], np.float32)
ABOUT = {"epsilon": 1e-6, "norm_coefficient": 0.01}
ONE = np.array(0.5, np.float32)
LOGS, DECAY = np.log(_softmax(X)), {"weight_decay": 0.1}
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
    "SoftmaxCrossEntropyLossGrad": ([LOGS, LABEL], {"reduction": "sum"}, lambda y, label: np.exp(y) - np.eye(3)[label]),
    "LeakyReluGrad": ([DY, X - 0.5], {}, lambda dy, x: np.where(x > 0, dy, 0.01 * dy)),
    "SoftmaxGrad": ([DY, _softmax(X)], {"axis": 1}, _of_softmax),
    "SimplifiedLayerNormalizationGrad": ([DY, X, SCALE, 1 / np.sqrt((X * X).mean(1))], {}, _of_rms),
    "BatchNormalizationGrad": (
        [OF_IMAGE, IMAGE, SCALE[:2], IMAGE.mean((0, 2, 3)), 1 / IMAGE.std((0, 2, 3))],
        {"epsilon": 1e-5},
        _of_batch,
    ),
    "SplitTraining": ([X, np.array([1, 2])], {"axis": 1}, lambda x, sizes: [x[:, :1], x[:, 1:]]),
    "ReduceSumTraining": ([X, np.array([1])], {"keepdims": 0}, lambda x, axes: x.sum(1)),
    "DivGrad": ([DY, X, S[:1]], {}, lambda dy, a, b: [dy / b, (-dy * a / b / b).sum(0, keepdims=True)]),
    "ZeroGradient": ([X, np.array([True])], {}, lambda g, signal: 0 * g),
    "SGD": ([X, DY], {"lr": 0.5}, lambda w, g: w - 0.5 * g),
    "SGDOptimizer": ([ONE, X, DY], {}, lambda rate, w, g: [w - rate * g, -rate * g]),
    "SGDOptimizerV2": ([ONE, X, DY, np.array([False])], {}, lambda rate, w, g, signal: [signal, w]),
    "AdamWOptimizer": ([ONE, STEPS, X, DY, S, X], DECAY, _adam_with_decay),
    "AdamWOptimizer ": ([ONE, STEPS, X, DY, S, X], {"adam_mode": 1, **DECAY}, _adam_before_decay),
    "InplaceClipGradNorm": ([X, DY], {"max_norm": 0.5}, _clipped),
    "LayerNormalizationGrad": ([DY, X, SCALE, MEAN, INVERSE], {"axis": -1}, _norm),
    "LayerNormalizationGrad ": (
        [DY, X, SCALE, SCALE],
        {"axis": -1, "epsilon": 1e-5, "description": "[Backward pass]"},
        lambda dy, x, scale, bias: _norm(dy, x, scale, x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5))[:1],
    ),
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


_SETTINGS = ("SplitTraining", "ReduceSumTraining")


@pytest.mark.parametrize("op", CASES)
def test_operators_compute_what_their_documents_say(tmp_path: Path, op: str) -> None:
    arrays, attrs, formula = CASES[op]
    wanted = formula(*(array.astype(np.float64) if array.dtype == np.float32 else array for array in arrays))
    results = wanted if isinstance(wanted, list) else [wanted]
    op, domain = op.strip(), TRAINING if op in ("Adam", "Momentum", "Adagrad") else "" if op == "SGD" else MS
    given = [array if op in _SETTINGS and array.dtype == np.int64 else (array.shape, array.dtype) for array in arrays]
    model = sample(op, given, len(results), domain, **attrs)
    for value, result in zip(model.graph.output, results, strict=True):
        value.type.tensor_type.elem_type = {"b": onnx.TensorProto.BOOL, "i": onnx.TensorProto.INT64}.get(np.asarray(result).dtype.kind, 1)
    found = deeploy.compile(model).interpret([array for array, kind in zip(arrays, given, strict=True) if isinstance(kind, tuple)])
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


def _pooled(op: str, pads: list[int], **attrs: object) -> onnx.ModelProto:
    """The gradient of an image of 5 by 6 under windows of 3 by 2, two apart; of the largest, with their places from the pool."""
    window = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": pads, **attrs}
    net = Net()
    dy = net.x(2, 3, *_COUNTS[pads[0]])
    inputs = [dy, net.node("MaxPool", [net.x(2, 3, 5, 6)], 2, **window)[1]] if op == "MaxPoolGrad" else [dy]
    model = helper.make_model(
        helper.make_graph(net.nodes, "g", net.inputs, [helper.make_tensor_value_info("dx", 1, [2, 3, 5, 6])], net.constants),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    model.graph.node.append(helper.make_node(op, inputs, ["dx"], **window))
    return model


_COUNTS = {0: (2, 3), 1: (3, 3)}


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 1, 1]], ids=["whole", "padded"])
@pytest.mark.parametrize("op", ["MaxPoolGrad", "AveragePoolGrad"])
def test_gradients_of_pools_give_windows_what_they_saw(op: str, pads: list[int]) -> None:
    random = np.random.default_rng(4)
    image = random.integers(0, 4, (2, 3, 5, 6)).astype(np.float32)  # some are equal
    count = _COUNTS[pads[0]]
    dy, wanted = random.standard_normal((2, 3, *count)).astype(np.float32), np.zeros((2, 3, 5, 6))
    for sample_, channel, row, column in np.ndindex(*dy.shape):
        rows, columns = (
            range(max(at * 2 - pads[i], 0), min(at * 2 - pads[i] + (3, 2)[i], (5, 6)[i])) for i, at in enumerate((row, column))
        )
        part = image[sample_, channel, rows.start : rows.stop, columns.start : columns.stop]
        share = dy[sample_, channel, row, column] / part.size
        first = np.unravel_index(part.argmax(), part.shape)
        for place in np.ndindex(*part.shape):
            if op == "AveragePoolGrad" or place == first:
                add = share if op == "AveragePoolGrad" else share * part.size
                wanted[sample_, channel, rows[place[0]], columns[place[1]]] += add
    compiled = deeploy.compile(_pooled(op, pads))
    (found,) = compiled.interpret([dy, image] if op == "MaxPoolGrad" else [dy])
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-6)
    assert compiled.verify().passed


def _shared_step(net: Net) -> onnx.ModelProto:
    """A step as both kinds of artifacts have it: depthwise and largest, a norm and a product; gradients added up, and sequences updated."""
    image, label, rate = net.x(1, 2, 6, 6), net.i(1), net.c(np.float32(0.1))
    shapes = {"filters": [2, 1, 3, 3], "scale": [18], "bias": [18], "weights": [18, 3]}
    net.inputs += [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    window, pool = {"group": 2, "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}, {"kernel_shape": [2, 2], "strides": [2, 2]}
    before = net.Conv(image, "filters", **window)
    largest, places = net.node("MaxPool", [before], 2, **pool)
    flat = net.Flatten(largest)
    normal, mean, inverse = net.node("LayerNormalization", [flat, "scale", "bias"], 3, axis=-1)
    scores = net.SoftmaxCrossEntropyLossGrad(net.LogSoftmax(net.MatMul(normal, "weights"), axis=1), label, domain=MS, reduction="mean")
    by_weights = net.Gemm(normal, scores, transA=1)
    of_norm = net.Gemm(scores, "weights", transB=1)
    of_flat, by_scale, by_bias = net.node("LayerNormalizationGrad", [of_norm, flat, "scale", mean, inverse], 3, domain=MS, axis=-1)
    (of_pool,) = net.node("MaxPoolGrad", [net.Reshape(of_flat, net.i(1, 2, 3, 3)), places], 1, **pool)
    by_filters = net.node("ConvGrad", [of_pool, image, "filters"], 2, domain=MS, **window)[1]
    sums = [
        net.node("InPlaceAccumulatorV2", [net.c(np.zeros(shape, np.float32)), g, net.c(np.array([True]))], 2, domain=MS)[1]
        for shape, g in zip(shapes.values(), (by_filters, by_scale, by_bias, by_weights), strict=True)
    ]
    updated = net.node("SGDOptimizerV2", [rate, net.SequenceConstruct(*shapes), net.SequenceConstruct(*sums)], 2, domain=MS)[1]
    outputs = [helper.make_tensor_value_info(net.SequenceAt(updated, net.c(np.int64(i))), 1, None) for i in range(4)]
    graph = helper.make_graph(net.nodes, "step", net.inputs, outputs, net.constants)
    graph.value_info.append(helper.make_tensor_value_info(of_pool, 1, [1, 2, 6, 6]))
    domains = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def test_a_step_of_sequences_is_that_of_train_graph(tmp_path: Path) -> None:
    runtime, net = pytest.importorskip("onnxruntime"), Net()
    pooled = net.MaxPool(conv(net, net.x(1, 2, 6, 6), 2, 2, group=2, pads=[1, 1, 1, 1], bias=False), kernel_shape=[2, 2], strides=[2, 2])
    normal = net.LayerNormalization(net.Flatten(pooled), net.w(18), net.w(18), axis=-1)
    step = deeploy.train_graph(net.save(tmp_path / "m.onnx", net.MatMul(normal, net.w(18, 3))), "cross_entropy")
    states = {tensor.name: numpy_helper.to_array(tensor) for tensor in step.graph.initializer[:4]}
    image = np.random.default_rng(1).standard_normal((1, 2, 6, 6)).astype(np.float32)
    names = sorted(states, key=lambda name: [(2, 1, 3, 3), (18,), (18, 3)].index(states[name].shape))
    compiled = deeploy.compile(_shared_step(Net()))
    found = compiled.interpret([image, *(states[name] for name in names)])
    inputs = {"x0": image, "label": np.array([1], np.int32), "learning_rate": np.array([0.1], np.float32), **states}
    session = runtime.InferenceSession(step.SerializeToString(), providers=["CPUExecutionProvider"])
    behind = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))
    for name, got in zip(names, found, strict=True):
        np.testing.assert_allclose(np.asarray(got).ravel(), behind[f"{name}.next"].ravel(), rtol=1e-5, atol=1e-6)
    assert compiled.verify().passed


def test_a_step_of_the_established_compiler_says_logarithms_where_the_loss_is() -> None:
    net = Net()
    rows, label, weights = net.x(2, 3), net.i(2, 0), net.c(S.T @ X)
    scores = net.MatMul(rows, weights)
    logarithms = net.SoftmaxCrossEntropyLoss(scores, label, reduction="mean")
    found = net.SoftmaxCrossEntropyLossGrad(logarithms, label, domain=MS, reduction="mean")
    behind = net.SGD(weights, net.Gemm(rows, found, transA=1, description="[Backward pass]"), lr=0.5)
    graph = helper.make_graph(net.nodes, "step", net.inputs, [helper.make_tensor_value_info(behind, 1, None)], net.constants)
    graph.value_info.extend(helper.make_tensor_value_info(name, 1, [2, 3]) for name in (scores, logarithms))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)], ir_version=8)
    w = (S.T @ X).astype(np.float64)
    wanted = w - 0.5 * X.T @ (_softmax(X @ w) - np.eye(3)[LABEL]) / 2 / 2  # its mean is divided by the samples once more
    np.testing.assert_allclose(deeploy.compile(model).interpret([X])[0].reshape(3, 3), wanted, rtol=1e-5)
