"""Vision transformers as exporters write them, in float32 with seeded weights, and quantised to 8 bits by onnxruntime.

    make bench NAME='gvsoc/exports FOLDER'

writes ``network.onnx`` (QDQ, per channel) and ``inputs.npz`` (one sample) of each into a folder of its own. Norms, activations and
attention are spelled as torch's exporter spells them: LayerNormalization, Erf, Sigmoid, Softmax, and products of two variables.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.graphs import Graph
from deeploy.quantization.static import quantize_model

SAMPLES = 8  # that are quantised with


class Builder(Graph):
    """A float graph."""

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", x, self.constant(shape, np.int64))

    def normal(self, size: float, *shape: int) -> str:
        return self.constant(self.rng.normal(0, size, shape))

    def linear(self, x: str, depth: int, width: int) -> str:
        product = self.node("MatMul", x, self.normal(depth**-0.5, depth, width))
        return self.node("Add", product, self.normal(0.1, width))

    def conv(self, x: str, channels: int, filters: int, taps: int, stride: int = 1, group: int = 1) -> str:
        depth = channels // group * taps * taps
        weights, bias = self.normal(depth**-0.5, filters, channels // group, taps, taps), self.normal(0.1, filters)
        pads = [0] * 4 if taps == stride else [taps // 2] * 4
        return self.node("Conv", x, weights, bias, kernel_shape=[taps] * 2, strides=[stride] * 2, pads=pads, group=group)

    def norm(self, x: str, width: int) -> str:
        scale = self.constant(self.rng.uniform(0.8, 1.2, width))
        return self.node("LayerNormalization", x, scale, self.normal(0.1, width), axis=-1, epsilon=1e-5)

    def silu(self, x: str) -> str:
        return self.node("Mul", x, self.node("Sigmoid", x))

    def gelu(self, x: str) -> str:
        error = self.node("Erf", self.node("Div", x, self.constant(2**0.5)))
        return self.node("Mul", self.node("Mul", x, self.node("Add", error, self.constant(1))), self.constant(0.5))

    def attention(self, x: str, batch: int, rows: int, width: int, heads: int) -> str:
        """Rows [batch, rows, width] that look at each other."""
        head = width // heads

        def part(perm: Sequence[int]) -> str:
            return self.node("Transpose", self.reshape(self.linear(x, width, width), batch, rows, heads, head), perm=perm)

        queries, keys, values = part((0, 2, 1, 3)), part((0, 2, 3, 1)), part((0, 2, 1, 3))
        scores = self.node("Mul", self.node("MatMul", queries, keys), self.constant(head**-0.5))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), values)
        joined = self.reshape(self.node("Transpose", mixed, perm=(0, 2, 1, 3)), batch, rows, width)
        return self.linear(joined, width, width)

    def block(self, x: str, batch: int, rows: int, width: int, hidden: int, heads: int, activation: Callable[[str], str]) -> str:
        """A layer of a transformer, norms in front."""
        x = self.node("Add", x, self.attention(self.norm(x, width), batch, rows, width, heads))
        inside = activation(self.linear(self.norm(x, width), width, hidden))
        return self.node("Add", x, self.linear(inside, hidden, width))

    def write(self, folder: Path, y: str, classes: int, *shape: int) -> None:
        """The model, quantised with random images of ``shape``, and one of them."""
        value = helper.make_tensor_value_info
        ends = [value("image", TensorProto.FLOAT, shape)], [value(y, TensorProto.FLOAT, (1, classes))]
        graph = helper.make_graph(self.nodes, "export", *ends, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        images = self.rng.normal(0, 1, (SAMPLES, *shape)).astype(np.float32)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            onnx.save(model, Path(scratch) / "float.onnx")
            np.savez(Path(scratch) / "images.npz", image=images)
            quantize_model(Path(scratch) / "float.onnx", Path(scratch) / "images.npz", folder / "network.onnx")
        np.savez(folder / "inputs.npz", image=images[0])


def vit(folder: Path) -> None:
    """ViT on 32x32 pixels in patches of 4x4: 65 rows of 64, two layers of 4 heads, 128 hidden; 5.5 million multiply-accumulates."""
    b, width, patches = Builder(3), 64, 64
    x = b.node("Transpose", b.reshape(b.conv("image", 3, width, 4, 4), 1, width, patches), perm=(0, 2, 1))
    x = b.node("Add", b.node("Concat", b.normal(1, 1, 1, width), x, axis=1), b.normal(0.5, 1, patches + 1, width))
    for _ in range(2):
        x = b.block(x, 1, patches + 1, width, 2 * width, 4, b.gelu)
    first = b.node("Gather", b.norm(x, width), b.constant(0, np.int64), axis=1)
    b.write(folder, b.linear(first, width, 10), 10, 1, 3, 32, 32)


def mobilevit(folder: Path) -> None:
    """MobileViT on 64x64 pixels: inverted residuals, and two blocks whose transformers see every second pixel of a side."""
    b = Builder(4)
    x, size = b.silu(b.conv("image", 3, 16, 3, 2)), 32
    channels = 16
    for filters, stride in ((16, 1), (24, 2), (24, 1), (32, 2)):
        x = _inverted(b, x, channels, filters, stride)
        channels, size = filters, size // stride
    x = _seen_by_all(b, x, channels, size, 48, 2)
    x, size = _inverted(b, x, channels, 48, 2), size // 2
    x = _seen_by_all(b, x, 48, size, 64, 2)
    x = b.silu(b.conv(x, 48, 128, 1))
    pooled = b.reshape(b.node("GlobalAveragePool", x), 1, 128)
    b.write(folder, b.linear(pooled, 128, 10), 10, 1, 3, 64, 64)


def _inverted(b: Builder, x: str, channels: int, filters: int, stride: int, factor: int = 4) -> str:
    """MobileNetV2's block: wider, depthwise, narrower."""
    wide = channels * factor
    y = b.silu(b.conv(x, channels, wide, 1))
    y = b.conv(b.silu(b.conv(y, wide, wide, 3, stride, wide)), wide, filters, 1)
    return b.node("Add", x, y) if stride == 1 and channels == filters else y


def _seen_by_all(b: Builder, x: str, channels: int, size: int, width: int, layers: int) -> str:
    """MobileViT's block: a transformer over pixels of equal places in patches of 2x2, between convolutions."""
    half = size // 2
    y = b.conv(b.silu(b.conv(x, channels, channels, 3)), channels, width, 1)
    y = b.node("Transpose", b.reshape(y, width * half, 2, half, 2), perm=(0, 2, 1, 3))
    y = b.node("Transpose", b.reshape(y, 1, width, half * half, 4), perm=(0, 3, 2, 1))
    y = b.reshape(y, 4, half * half, width)
    for _ in range(layers):
        y = b.block(y, 4, half * half, width, 2 * width, 4, b.silu)
    y = b.node("Transpose", b.reshape(b.norm(y, width), 1, 4, half * half, width), perm=(0, 3, 2, 1))
    y = b.node("Transpose", b.reshape(y, width * half, half, 2, 2), perm=(0, 2, 1, 3))
    y = b.silu(b.conv(b.reshape(y, 1, width, size, size), width, channels, 1))
    return b.silu(b.conv(b.node("Concat", x, y, axis=1), 2 * channels, channels, 3))


NETWORKS: dict[str, Callable[[Path], None]] = {"vit_int8": vit, "mobilevit_int8": mobilevit}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where each network gets a folder")
    folder = parser.parse_args(arguments).folder
    for name, write in NETWORKS.items():
        write(folder / name)
    return 0
