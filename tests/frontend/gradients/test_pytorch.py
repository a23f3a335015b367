"""Gradients of the small networks are those that PyTorch finds of the same networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from deeploy.training.step import TrainOptions, make_step
from tests.frontend.gradients.test_gradients import evaluator, gradients, values_of
from tests.models import Net
from tests.training.networks import NETWORKS

torch = pytest.importorskip("torch", reason="no torch: install the extra torch", exc_type=ImportError)
functional = torch.nn.functional
Given = Mapping[str, Any]  # attributes of a node


def _padded(x: Any, attrs: Given, value: float = 0.0) -> Any:
    """An image with its padding, which PyTorch's operators have alike at both ends alone."""
    rank = x.dim() - 2
    pads = attrs.get("pads", [0] * (2 * rank))
    return functional.pad(x, [pads[axis + end] for axis in reversed(range(rank)) for end in (0, rank)], value=value)


def _convolve(a: Given, x: Any, w: Any, bias: Any = None) -> Any:
    operator = getattr(functional, f"conv{w.dim() - 2}d")
    return operator(_padded(x, a), w, bias, a.get("strides", 1), 0, a.get("dilations", 1), a.get("group", 1))


def _transpose(a: Given, x: Any, w: Any, bias: Any = None) -> Any:
    whole = functional.conv_transpose2d(x, w, bias, a.get("strides", 1), 0, a.get("output_padding", 0), a.get("group", 1))
    return _padded(whole, {"pads": [-n for n in a.get("pads", [0] * 4)]})


def _average(a: Given, x: Any) -> Any:
    """Sums over windows by the number of elements that they see."""
    sums, seen = (functional.avg_pool2d(_padded(each, a), a["kernel_shape"], a["strides"]) for each in (x, torch.ones_like(x)))
    return sums / seen


def _gemm(a: Given, x: Any, w: Any, bias: Any = 0) -> Any:
    x, w = (each.T if a.get(name) else each for each, name in ((x, "transA"), (w, "transB")))
    return a.get("alpha", 1.0) * x @ w + a.get("beta", 1.0) * bias


def _reduce(kind: str) -> Callable[..., Any]:
    return lambda a, x, axes=None: getattr(x, kind)(axes.tolist() if axes is not None else a["axes"], keepdim=bool(a.get("keepdims", 1)))


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "MatMul": lambda a, x, y: x @ y,
    "Add": lambda a, x, y: x + y,
    "Sub": lambda a, x, y: x - y,
    "Mul": lambda a, x, y: x * y,
    "Div": lambda a, x, y: x / y,
    "Pow": lambda a, x, y: x**y,
    **{
        op: lambda a, x, f=op: getattr(torch, f.lower())(x)
        for op in ("Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Abs", "Log", "Sqrt", "Reciprocal")
    },
    "LeakyRelu": lambda a, x: functional.leaky_relu(x, a.get("alpha", 0.01)),
    "Elu": lambda a, x: functional.elu(x, a.get("alpha", 1.0)),
    "Softplus": lambda a, x: functional.softplus(x),
    "HardSigmoid": lambda a, x: torch.clamp(0.2 * x + 0.5, 0, 1),
    "HardSwish": lambda a, x: functional.hardswish(x),
    "Clip": lambda a, x, low, high: torch.clamp(x, low, high),
    "Gelu": lambda a, x: functional.gelu(x, approximate=a.get("approximate", "none")),
    "Softmax": lambda a, x: functional.softmax(x, a["axis"]),
    "LogSoftmax": lambda a, x: functional.log_softmax(x, a["axis"]),
    "Conv": _convolve,
    "ConvTranspose": _transpose,
    "MaxPool": lambda a, x: functional.max_pool2d(_padded(x, a, -np.inf), a["kernel_shape"], a["strides"]),
    "AveragePool": _average,
    "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdim=True),
    "LayerNormalization": lambda a, x, w, bias: functional.layer_norm(x, w.shape, w, bias, 1e-5),
    "BatchNormalization": lambda a, x, w, bias, mean, variance: functional.batch_norm(x, mean, variance, w, bias),
    "Reshape": lambda a, x, shape: x.reshape(shape.tolist()),
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Flatten": lambda a, x: x.flatten(1),
    "Gather": lambda a, x, places: torch.index_select(x, a.get("axis", 0), places),
    "Concat": lambda a, *parts: torch.cat(parts, a["axis"]),
    "Gemm": _gemm,
    "ReduceMean": _reduce("mean"),
    "ReduceSum": _reduce("sum"),
}


def _run_forward(model: onnx.ModelProto, values: dict[str, Any]) -> Any:
    """The output of a model, of tensors by name."""
    for node in model.graph.node:
        attrs = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        attrs = {name: value.decode() if isinstance(value, bytes) else value for name, value in attrs.items()}
        values[node.output[0]] = OPERATORS[node.op_type](attrs, *(values[name] for name in node.input))
    return values[model.graph.output[0].name]


def _known_networks() -> list[str]:
    """The networks whose operators are all in the table."""
    known = []
    for name, build in NETWORKS.items():
        net = Net()
        build(net)
        known += [name] if {node.op_type for node in net.nodes} <= {*OPERATORS} else []
    return known


def test_at_least_30_networks_are_compared() -> None:
    assert len(_known_networks()) >= 30


@pytest.mark.parametrize("name", _known_networks())
def test_gradients_are_those_of_pytorch(tmp_path: Path, name: str) -> None:
    net = Net()
    path = net.save(tmp_path / "m.onnx", NETWORKS[name](net), opset=20 if "Gelu" in name else 17)
    step = make_step(path, TrainOptions("mse"))
    feeds, states = values_of(step)
    model = onnx.load(path)
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    constants = {key: torch.tensor(array.astype(np.float64) if array.dtype == np.float32 else array) for key, array in arrays.items()}
    weights = {key: torch.tensor(array, requires_grad=True) for key, array in states.items()}
    inputs = {key: torch.tensor(array) for key, array in feeds.items()}
    prediction = _run_forward(model, {**constants, **inputs, **weights})
    functional.mse_loss(prediction, inputs["label"]).backward()
    for key, found in gradients(evaluator(step), feeds, states).items():
        wanted = weights[key].grad.numpy()
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max() + 1e-12, key  # some are zero
