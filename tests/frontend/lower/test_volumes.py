"""Convolutions along three axes, in floats, QDQ and with dynamic scales, beside onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from tests.models import save_graph

RANDOM = np.random.default_rng(19)
SIZES = (5, 6, 7)
# Operator, channels, filters, groups, window, attributes.
CASES: dict[str, tuple[str, int, int, int, tuple[int, ...], dict[str, list[int]]]] = {
    "borders": ("Conv", 4, 6, 1, (3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
    "strides and groups": ("Conv", 4, 6, 2, (3, 2, 3), {"strides": [2, 1, 2], "pads": [1, 0, 1, 0, 1, 1]}),
    "depthwise with dilations": ("Conv", 3, 3, 3, (2, 2, 2), {"dilations": [2, 2, 3]}),
    "as deep as the volume": ("Conv", 3, 5, 1, (5, 3, 3), {}),
    "one element": ("Conv", 3, 5, 1, (1, 1, 1), {}),
    "transposed": ("ConvTranspose", 4, 6, 1, (3, 3, 3), {"strides": [2, 2, 2], "pads": [1, 1, 1, 1, 1, 1], "output_padding": [1, 0, 1]}),
    "transposed in groups": ("ConvTranspose", 4, 6, 2, (2, 2, 2), {"strides": [2, 1, 2]}),
}
Steps = tuple[list[onnx.NodeProto], dict[str, np.ndarray]]


def quantised(op: str, filters: np.ndarray) -> Steps:
    """QDQ around the operator and a Relu behind it; one scale per filter."""
    axis = int(op == "ConvTranspose")
    scales = np.linspace(0.005, 0.01, filters.shape[axis]).astype(np.float32)
    zero = np.zeros_like(scales, np.int8)
    constants = {"sx": np.float32(0.02), "zx": np.int8(3), "sy": np.float32(0.05), "zy": np.int8(-128), "sw": scales, "zw": zero}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["qx"]),
        helper.make_node("DequantizeLinear", ["qx", "sx", "zx"], ["a"]),
        helper.make_node("DequantizeLinear", ["qw", "sw", "zw"], ["w"], axis=axis),
        helper.make_node(op, ["a", "w", "b"], ["c"], name="c"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "sy", "zy"], ["qy"]),
        helper.make_node("DequantizeLinear", ["qy", "sy", "zy"], ["y"]),
    ]
    return nodes, {**constants, "qw": np.rint(filters * 127).clip(-127, 127).astype(np.int8)}


def dynamic(op: str, filters: np.ndarray) -> Steps:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["a", "scale", "zero"]),
        helper.make_node("ConvInteger", ["a", "w", "zero"], ["c"], name="c"),
        helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ]
    return nodes, {"w": np.rint(filters * 127).clip(-127, 127).astype(np.int8)}


def floats(op: str, filters: np.ndarray) -> Steps:
    return [helper.make_node(op, ["x", "w", "b"], ["y"], name="c")], {"w": filters}


@pytest.mark.share(0.5)
@pytest.mark.parametrize(
    ("case", "form", "target"),
    [
        *((case, quantised, "generic") for case in CASES),
        *((case, floats, "generic") for case in ("strides and groups", "transposed in groups")),
        *((case, dynamic, "generic") for case in ("strides and groups", "one element")),
        *((case, quantised, "siracusa") for case in ("borders", "transposed")),
    ],
)
def test_convolutions_of_volumes(case: str, form: object, target: str, tmp_path: Path) -> None:
    op, channels, filters, groups, window, attributes = CASES[case]
    shape = (channels, filters // groups, *window) if op == "ConvTranspose" else (filters, channels // groups, *window)
    assert callable(form)
    nodes, constants = form(op, RANDOM.normal(size=shape, scale=0.3).astype(np.float32))
    node = next(node for node in nodes if node.name == "c")
    node.attribute.extend(helper.make_attribute(name, value) for name, value in {**attributes, "group": groups}.items())
    constants = {"b": RANDOM.normal(size=filters).astype(np.float32), **constants}
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, channels, *SIZES))
    graph = helper.make_graph(nodes, "g", [given], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], tensors)
    save_graph(graph, tmp_path / "m.onnx", 18)
    x = RANDOM.normal(size=(2, channels, *SIZES)).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})
    compiled = deeploy.compile(tmp_path / "m.onnx", target)
    (got,) = compiled.run([x])
    np.testing.assert_array_equal(got, compiled.interpret([x])[0])
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=0.0501 if form is quantised else 1e-5)  # a step of the quantised result
    kernels = {call.kernel.name for call in compiled.network.program.calls}
    assert form is not quantised or not kernels & {"clip", "unary"}, "the limit is part of the convolution"
