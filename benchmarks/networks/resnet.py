"""ResNet18 of any width at any image size, with seeded weights, quantised to int8 on seeded images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deeploy.quantization.static import quantize_model

OPSET = 17
SEED = 18
CALIBRATION = 8  # images


class _Builder:
    """Collects nodes and constants; a normalisation is taken to be folded into its convolution, so that variances stay as they are."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(SEED)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def node(self, op: str, *inputs: str, **attrs: object) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attrs))
        return name

    def conv(self, x: str, inputs: int, outputs: int, size: int, stride: int = 1) -> str:
        weights = self.random.standard_normal((outputs, inputs, size, size)) * np.sqrt(2 / (inputs * size * size))
        biases = self.random.standard_normal(outputs) / 10
        return self.node("Conv", x, self.constant(weights), self.constant(biases), strides=[stride] * 2, pads=[size // 2] * 4)

    def block(self, x: str, inputs: int, outputs: int, stride: int) -> str:
        y = self.node("Relu", self.conv(x, inputs, outputs, 3, stride))
        y = self.conv(y, outputs, outputs, 3)
        short = x if stride == 1 and inputs == outputs else self.conv(x, inputs, outputs, 1, stride)
        return self.node("Relu", self.node("Add", y, short))


def resnet18(channels: int, image: int, classes: int = 100) -> onnx.ModelProto:
    """The float network: a 7 x 7 convolution, a pool, four stages of two blocks with ``channels`` times 1, 2, 4 and 8, a classifier."""
    net = _Builder()
    x = net.node("Relu", net.conv("image", 3, channels, 7, 2))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = channels
    for stage in range(4):
        for repeat in range(2):
            outputs = channels << stage
            x = net.block(x, inputs, outputs, 2 if stage and not repeat else 1)
            inputs = outputs
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    weights = net.random.standard_normal((classes, inputs)) / np.sqrt(inputs)
    x = net.node("Gemm", x, net.constant(weights), net.constant(np.zeros(classes)), transB=1)
    given = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, image, image])
    result = helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, classes])
    graph = helper.make_graph(net.nodes, f"resnet18_{channels}_{image}", [given], [result], net.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def images(count: int, size: int, seed: int = SEED) -> np.ndarray:
    """Seeded images: smooth, so that neighbouring pixels are alike."""
    coarse = np.random.default_rng(seed).standard_normal((count, 1, 3, size // 4, size // 4)).astype(np.float32)
    return np.repeat(np.repeat(coarse, 4, axis=3), 4, axis=4)


def build(folder: Path, channels: int, image: int) -> Path:
    """Write the quantised network and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    file, calibration, result = folder / "float.onnx", folder / "calibration.npz", folder / f"resnet18_{channels}_{image}.onnx"
    onnx.save(resnet18(channels, image), file)
    np.savez(calibration, image=images(CALIBRATION, image, SEED + 1))
    quantize_model(file, calibration, result)
    return result
