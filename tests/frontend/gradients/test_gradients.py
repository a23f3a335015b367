"""Gradients of small networks equal finite differences in 64 bits, and in 32 bits those of 64."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from deeploy.training.step import TrainOptions, make_step
from tests.models import Net
from tests.training.networks import NETWORKS

DELTA = 1e-5
Arrays = dict[str, np.ndarray]


def in_doubles(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with floats of 64 bits."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for tensor in wide.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in wide.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return wide


class ConvTranspose(OpRun):
    """Transposed convolutions in groups, which the evaluator of the onnx package does not compute."""

    op_domain = ""

    def _run(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, **attrs: Any) -> tuple[np.ndarray]:
        strides, dilations, pads, more, group = (attrs[name] for name in ("strides", "dilations", "pads", "output_padding", "group"))
        dilations = dilations or [1] * (x.ndim - 2)
        kernel, count, axes = w.shape[2:], x.shape[2:], range(x.ndim - 2)
        spans = [(count[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + more[i] for i in axes]
        y = np.zeros((len(x), group, w.shape[1], *spans))
        apart, filters = x.reshape(len(x), group, -1, *count), w.reshape(group, -1, *w.shape[1:])
        for place in np.ndindex(*kernel):
            taps = np.einsum("ngc...,gck->ngk...", apart, filters[(slice(None), slice(None), slice(None), *place)])
            steps = [slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in zip(place, dilations, count, strides, strict=True)]
            y[(slice(None), slice(None), slice(None), *steps)] += taps
        whole = y.reshape(len(x), -1, *spans)
        cut = whole[(slice(None), slice(None), *(slice(pads[i], spans[i] - pads[len(axes) + i]) for i in axes))]
        return (cut if bias is None else cut + bias.reshape(-1, *[1] * len(axes)),)


class Erf(OpRun):
    """In 64 bits."""

    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (np.vectorize(math.erf)(x),)


class Gelu(OpRun):
    """In 64 bits."""

    op_domain = ""

    def _run(self, x: np.ndarray, approximate: str = "none") -> tuple[np.ndarray]:
        if approximate == "tanh":
            return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),)
        return (0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),)


def evaluator(model: onnx.ModelProto) -> Callable[[Arrays], Arrays]:
    """The outputs of a model in 64 bits, by name."""
    wide, names = ReferenceEvaluator(in_doubles(model), new_ops=[ConvTranspose, Erf, Gelu]), [o.name for o in model.graph.output]
    return lambda feeds: dict(zip(names, wide.run(names, feeds), strict=True))


def build_step(tmp_path: Path, name: str, loss: str = "mse", opset: int = 20, **options: object) -> onnx.ModelProto:
    net = Net()
    path = net.save(tmp_path / "m.onnx", NETWORKS[name](net), opset=opset if "Gelu" in name else 17)
    return make_step(path, TrainOptions(loss, **options))  # type: ignore[arg-type]


def values_of(model: onnx.ModelProto, seed: int = 3) -> tuple[Arrays, Arrays]:
    """Random inputs, and what states begin with."""
    random, states = np.random.default_rng(seed), {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    feeds: Arrays = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        is_class = value.type.tensor_type.elem_type == TensorProto.INT32
        feeds[value.name] = random.integers(0, 2, shape).astype(np.int32) if is_class else random.uniform(0.1, 1, shape)
    names = {value.name for value in model.graph.input}
    return {name: array for name, array in feeds.items() if name not in states}, {
        k: v.astype(np.float64) for k, v in states.items() if k in names
    }


def gradients(run: Callable[[Arrays], Arrays], feeds: Arrays, states: Arrays) -> Arrays:
    """Those of a step of plain descent at a rate of 1."""
    results = run({**feeds, **states, "learning_rate": np.ones(1)})
    return {name: states[name] - results[f"{name}.next"] for name in states}


def assert_gradients(model: onnx.ModelProto, feeds: Arrays, states: Arrays) -> None:
    """Every gradient along a random direction is the difference quotient of the loss."""
    run, random = evaluator(model), np.random.default_rng(5)
    found = gradients(run, feeds, states)
    assert found
    for name, gradient in found.items():
        direction = random.standard_normal(gradient.shape)
        losses = [run({**feeds, **states, name: states[name] + sign * DELTA * direction})["loss"].item() for sign in (1, -1)]
        quotient = (losses[0] - losses[1]) / (2 * DELTA)
        scale = np.abs(gradient).sum()
        assert gradient.shape == states[name].shape
        assert abs((gradient * direction).sum() - quotient) <= 1e-7 * (1 + scale), name


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_the_quotients_of_small_differences(tmp_path: Path, name: str) -> None:
    model = build_step(tmp_path, name)
    onnx.checker.check_model(model, full_check=True)
    assert_gradients(model, *values_of(model))


@pytest.mark.parametrize("name", NETWORKS)
def test_floats_of_32_bits_have_these_gradients_within_1e_5(tmp_path: Path, name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = build_step(tmp_path, name)
    feeds, states = values_of(model)
    wide = gradients(evaluator(model), feeds, states)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    narrow = {k: v if v.dtype == np.int32 else v.astype(np.float32) for k, v in feeds.items()}
    narrow["learning_rate"] = np.array([1.0], np.float32)
    results = dict(zip([o.name for o in model.graph.output], session.run(None, narrow), strict=True))
    largest = max(np.abs(gradient).max() for gradient in wide.values())
    for weight, gradient in wide.items():
        got = states[weight].astype(np.float32) - results[f"{weight}.next"]
        steps = np.spacing(np.maximum(np.abs(states[weight]), np.abs(results[f"{weight}.next"])).astype(np.float32))
        assert np.all(np.abs(got - gradient) <= 1e-5 * largest + 2 * steps), weight


@pytest.mark.parametrize("loss", ["cross_entropy", "mse", "l1", "bce"])
@pytest.mark.parametrize("name", ["Softmax", "attention", "convolution", "Sigmoid"])
def test_losses_have_the_gradient_of_their_value(tmp_path: Path, loss: str, name: str) -> None:
    model = build_step(tmp_path, name, loss)
    assert_gradients(model, *values_of(model))
