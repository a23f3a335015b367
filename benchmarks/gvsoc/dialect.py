"""Networks in the integer dialect that are not in the tree of models: seeded, with the shapes of the published ones.

    make bench NAME='gvsoc/dialect FOLDER'

writes ``network.onnx`` and ``inputs.npz`` of each into a folder of its own. Weights are random and requantisations such that
activations use their range, so that outputs say something about arithmetic and nothing about accuracy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BITS = 14  # of the common divisor of requantisations
SPREAD = 60.0  # standard deviation of what a requantisation leaves
RMS = {"u8": SPREAD / 2**0.5, "s8": SPREAD}  # of activations: half of the unsigned ones are rectified
WEIGHTS = 37.0  # of weights


class Builder:
    """A graph that grows at its end; activations are named by the node that makes them."""

    def __init__(self, name: str, kind: str, *shape: int) -> None:
        self.name, self.kind, self.shape, self.at = name, kind, shape, "input"
        self.rng = np.random.default_rng(len(name))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        low, high = (0, 255) if kind == "u8" else (-128, 127)
        self.input = self.rng.integers(low, high, shape, endpoint=True)
        self.types = {"input": kind}

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(f"w{len(self.constants)}", self.rng.integers(-64, 64, shape, endpoint=True).astype(np.float32))

    def add(self, op: str, *inputs: str, **attrs: object) -> str:
        """A node behind ``inputs``."""
        self.at = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [self.at], self.at, **attrs))
        return self.at

    def requantise(self, x: str, size: float, kind: str, channels: int = 0) -> str:
        """Results of standard deviation ``size`` to 8 bits; with multipliers per channel of axis 1 where there are ``channels``."""
        shape: tuple[int, ...] = (channels, 1, 1) if channels else ()
        mul = np.rint(self.rng.uniform(0.7, 1.3, shape) * SPREAD / size * 2**BITS).astype(np.float32)
        parts = [self.constant(f"r{len(self.constants)}", np.asarray(array, np.float32)) for array in (mul, 0 * mul)]
        numbers = {"div": np.float32(2**BITS), "n_levels_out": np.array([256], np.float32), "signed": np.array([kind == "s8"], np.float32)}
        found = self.add("RequantShift", x, *parts, **{key: numpy_helper.from_array(np.asarray(each)) for key, each in numbers.items()})
        self.types[found] = kind
        return found

    def conv(
        self,
        channels: int,
        filters: int,
        taps: tuple[int, int],
        stride: int | tuple[int, int] = 1,
        pads: Sequence[int] = (0, 0, 0, 0),
        group: int = 1,
    ) -> str:
        """A convolution and its requantisation, which is also the rectification."""
        strides = (stride, stride) if isinstance(stride, int) else stride
        x, depth = self.at, channels // group * taps[0] * taps[1]
        w = self.weights(filters, channels // group, *taps)
        y = self.add("Conv", x, w, kernel_shape=taps, strides=strides, pads=list(pads), dilations=[1, 1], group=group)
        return self.requantise(y, WEIGHTS * RMS[self.types[x]] * depth**0.5, "u8", filters)

    def product(self, x: str, depth: int, filters: int, kind: str) -> str:
        """Rows times constants, requantised."""
        y = self.add("MatMul", x, self.weights(depth, filters))
        return self.requantise(y, WEIGHTS * RMS[self.types[x]] * depth**0.5, kind)

    def like(self, op: str, *inputs: str, kind: str = "", **attrs: object) -> str:
        """A node whose result has the type of its first operand, or ``kind``."""
        found = self.add(op, *inputs, **attrs)
        self.types[found] = kind or self.types[inputs[0]]
        return found

    def reshape(self, x: str, *shape: int) -> str:
        return self.like("Reshape", x, self.constant(f"s{len(self.constants)}", np.array(shape, np.int64)))

    def write(self, folder: Path, *shape: int) -> None:
        """The model with the last node's result, of ``shape``, as its output, and one sample of inputs."""
        self.nodes[-1].output[0] = "output"
        value = helper.make_tensor_value_info
        ends = [value("input", TensorProto.FLOAT, self.shape)], [value("output", TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, self.name, *ends, self.constants)
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), folder / "network.onnx")
        np.savez(folder / "inputs.npz", input=self.input)


def visual_wake_words(folder: Path) -> None:
    """MobileNetV1 with a quarter of the channels on 96x96 pixels, 7 489 664 multiply-accumulates."""
    b = Builder("VisualWakeWords", "u8", 1, 3, 96, 96)
    b.conv(3, 8, (3, 3), 2, (0, 0, 1, 1))
    channels = 8
    for filters, stride in ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1)):
        b.conv(channels, channels, (3, 3), stride, (1, 1, 1, 1) if stride == 1 else (0, 0, 1, 1), channels)
        b.conv(channels, filters, (1, 1))
        channels = filters
    x = b.reshape(b.like("MaxPool", b.at, kernel_shape=[3, 3], strides=[3, 3], pads=[0, 0, 0, 0]), 1, 256)
    b.product(x, 256, 2, "s8")
    b.write(folder, 1, 2)


def anomaly_detection(folder: Path) -> None:
    """The autoencoder of MLPerf Tiny: ten products, 264 192 multiply-accumulates."""
    b = Builder("AnomalyDetection", "s8", 1, 640)
    sizes = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640)
    for depth, filters in pairwise(sizes):
        b.product(b.at, depth, filters, "s8" if filters == 640 else "u8")
    b.write(folder, 1, 640)


TOKENS, WIDTH, HEADS, HIDDEN = 16, 32, 4, 48


def eegformer(folder: Path) -> None:
    """A transformer on four channels of a signal: two convolutions, one block, a classifier, 200 k multiply-accumulates."""
    b = Builder("EEGFormer", "s8", 1, 4, 1, 260)
    b.conv(4, 16, (1, 8), (1, 4))
    b.like("MaxPool", b.at, kernel_shape=[1, 2], strides=[1, 2], pads=[0, 0, 0, 0])
    b.conv(16, WIDTH, (1, 4), (1, 2), (0, 1, 0, 1))
    x = b.like("Transpose", b.reshape(b.at, 1, WIDTH, TOKENS), perm=[0, 2, 1])
    y = _norm(b, x)
    heads = [_heads(b, b.product(y, WIDTH, WIDTH, "s8")) for _ in range(3)]
    keys = b.like("Transpose", heads[1], perm=[0, 1, 3, 2])
    scores = b.requantise(b.add("MatMul", heads[0], keys), 2 * RMS["s8"] ** 2 * (WIDTH // HEADS) ** 0.5, "s8")
    parts = b.like("ITAMax", scores, kind="u8", n_levels=256)
    seen = b.requantise(b.add("MatMul", parts, heads[2]), 60 * RMS["s8"], "s8")
    rows = b.reshape(b.like("Transpose", seen, perm=[0, 2, 1, 3]), 1, TOKENS, WIDTH)
    x = _residual(b, x, b.product(rows, WIDTH, WIDTH, "s8"))
    y = b.product(_norm(b, x), WIDTH, HIDDEN, "s8")
    y = b.requantise(b.add("iGELU", y, b=-40, one=1743), SPREAD * 1700, "s8")
    x = _residual(b, x, b.product(y, HIDDEN, WIDTH, "s8"))
    mean = b.like("IntegerMean", _norm(b, x), axes=[1], keepdims=0)
    b.product(mean, WIDTH, 2, "s8")
    b.write(folder, 1, 2)


def _norm(b: Builder, x: str) -> str:
    ranges = ((600_000, 900_000), (-60_000, 60_000))
    weight, bias = [b.constant(f"n{len(b.constants)}", b.rng.integers(*ends, WIDTH).astype(np.float32)) for ends in ranges]
    return b.like("iLayerNorm", x, weight, bias, kind="s8", D=numpy_helper.from_array(np.array([2**BITS], np.float32)), n_levels=256)


def _heads(b: Builder, x: str) -> str:
    return b.like("Transpose", b.reshape(x, 1, TOKENS, HEADS, WIDTH // HEADS), perm=[0, 2, 1, 3])


def _residual(b: Builder, x: str, y: str) -> str:
    both = [b.requantise(each, 90.0, "s8") for each in (x, y)]
    return b.requantise(b.add("Add", *both), 90.0, "s8")


NETWORKS: dict[str, Callable[[Path], None]] = {
    "VisualWakeWords": visual_wake_words,
    "AnomalyDetection": anomaly_detection,
    "EEGFormer": eegformer,
}


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    for name, write in NETWORKS.items():
        write(Path(arguments[0]) / name)
    return 0
