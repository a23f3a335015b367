"""Bytes of the arena with and without chains (docs/fusion.md), and instructions of one inference where valgrind is installed.

    make bench NAME='arena [NETWORK ...]'

Networks are int8, with seeded weights and scales that mean nothing: neither memory nor instructions depend on them. Images of the
caller are not in the arena.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import deeploy
from benchmarks.common import Table
from benchmarks.graphs import Graph
from deeploy.execution.runners import host

COLUMNS = "{:<22}{:>10}{:>12}{:>12}{:>9}{:>16}{:>16}{:>9}"


class Network(Graph):
    """A quantised convolutional network; every method returns the name of an int8 tensor."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__(1)
        self.shape = [1, channels, size, size]

    def quantised(self, x: str) -> str:
        return self.node("QuantizeLinear", x, self.constant(0.05), self.constant(-128, np.int8))

    def real(self, x: str) -> str:
        return self.node("DequantizeLinear", x, self.constant(0.05), self.constant(-128, np.int8))

    def conv(self, x: str, channels: int, filters: int, taps: int, stride: int = 1, group: int = 1, relu: bool = True) -> str:
        depth, pads = channels // group, [taps // 2] * 4
        if stride == 2 and taps > 1:
            pads = [0, 0, 1, 1]
        scale = np.full(filters, 0.01 / np.sqrt(depth * taps * taps))
        weights = self.constant(self.rng.integers(-127, 128, (filters, depth, taps, taps)), np.int8)
        bias = self.constant(self.rng.integers(-1000, 1000, filters), np.int32)
        real = [
            self.node("DequantizeLinear", one, self.constant(factor), self.constant(np.zeros(filters), kind), axis=0)
            for one, factor, kind in ((weights, scale, np.int8), (bias, 0.05 * scale, np.int32))
        ]
        y = self.node("Conv", self.real(x), *real, kernel_shape=[taps] * 2, strides=[stride] * 2, pads=pads, group=group)
        return self.quantised(self.node("Clip", y, self.constant(0), self.constant(6)) if relu else y)

    def add(self, a: str, b: str) -> str:
        return self.quantised(self.node("Add", self.real(a), self.real(b)))

    def classified(self, x: str, channels: int, classes: int) -> onnx.ModelProto:
        pooled = self.quantised(self.node("GlobalAveragePool", self.real(x)))
        y = self.conv(pooled, channels, classes, 1, relu=False)
        ends = [
            [helper.make_tensor_value_info(name, TensorProto.INT8, shape)] for name, shape in (("x", self.shape), (y, [1, classes, 1, 1]))
        ]
        graph = helper.make_graph(self.nodes, "network", *ends, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def mobilenet_v1(width: float, size: int, classes: int) -> onnx.ModelProto:
    """Depthwise separable layers, as Visual Wake Words of MLPerf Tiny has them."""
    net, channels = Network(3, size), int(32 * width)
    x = net.conv("x", 3, channels, 3, 2)
    for base, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)):
        filters = int(base * width)
        x = net.conv(net.conv(x, channels, channels, 3, stride, channels), channels, filters, 1)
        channels = filters
    return net.classified(x, channels, classes)


def mobilenet_v2(width: float, size: int) -> onnx.ModelProto:
    """Inverted residuals, as the paper has them."""

    def rounded(channels: float) -> int:
        found = max(8, int(channels + 4) // 8 * 8)
        return found if found >= 0.9 * channels else found + 8

    net, channels = Network(3, size), rounded(32 * width)
    x = net.conv("x", 3, channels, 3, 2)
    for factor, base, count, first in (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    ):
        filters = rounded(base * width)
        for number in range(count):
            wide, stride = channels * factor, 1 if number else first
            y = net.conv(x, channels, wide, 1) if factor > 1 else x
            y = net.conv(net.conv(y, wide, wide, 3, stride, wide), wide, filters, 1, relu=False)
            x, channels = net.add(x, y) if number else y, filters
    return net.classified(net.conv(x, channels, 1280, 1), 1280, 1000)


def resnet8() -> onnx.ModelProto:
    """The residual network of MLPerf Tiny's image classification."""
    net = Network(3, 32)
    x, channels = net.conv("x", 3, 16, 3), 16
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        y = net.conv(net.conv(x, channels, filters, 3, stride), filters, filters, 3, relu=False)
        x = net.add(x if stride == 1 else net.conv(x, channels, filters, 1, 2, relu=False), y)
        channels = filters
    return net.classified(x, channels, 10)


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "vww_96": lambda: mobilenet_v1(0.25, 96, 2),
    "resnet8_32": resnet8,
    "mobilenetv2_0.35_96": lambda: mobilenet_v2(0.35, 96),
    "mobilenetv2_0.35_160": lambda: mobilenet_v2(0.35, 160),
    "mobilenetv2_1.0_160": lambda: mobilenet_v2(1.0, 160),
    "mobilenetv2_1.0_224": lambda: mobilenet_v2(1.0, 224),
}


def instructions(compiled: deeploy.Compiled, folder: Path) -> int | None:
    """Instructions of an inference: of three less those of one, halved; None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    compiled.write(folder)
    application = host.build_application(folder, flags="-O2")
    counts, shape = [], compiled.plan.program.buffers[compiled.plan.program.inputs[0]].shape
    for samples in (1, 3):
        data = folder / "samples.bin"
        data.write_bytes(np.random.default_rng(1).integers(-128, 128, (samples, *shape), np.int8).tobytes())
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={os.devnull}", str(application), "network"]
        run = subprocess.run([*command, str(data), str(folder / "y.bin"), str(samples)], capture_output=True, text=True, check=True)
        (count,) = re.findall(r"I\s+refs:\s+([\d,]+)", run.stderr)
        counts.append(int(count.replace(",", "")))
    return (counts[1] - counts[0]) // 2


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    wanted = parser.parse_args(arguments).networks or list(NETWORKS)
    columns = Table(COLUMNS, "network", "input", "arena", "chains", "share", "instructions", "with chains", "more")
    for name in wanted:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "network.onnx"
            onnx.save(NETWORKS[name](), path)
            both = [deeploy.compile(path, "generic", objective=objective) for objective in ("cycles", "ram")]
            peaks = [one.plan.memory["arena"].peak for one in both]
            counts = [instructions(one, Path(scratch) / str(number)) for number, one in enumerate(both)]
            entry = sum(both[0].plan.program.buffers[buffer].bytes for buffer in both[0].plan.program.inputs)
        shown = [f"{count:,}" if count is not None else "-" for count in counts]
        more = f"{counts[1] / counts[0] - 1:+.2%}" if counts[0] and counts[1] else "-"
        columns.add(name, f"{entry:,}", *(f"{peak:,}" for peak in peaks), f"{peaks[1] / peaks[0]:.0%}", *shown, more)
