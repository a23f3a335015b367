"""Scales down to the smallest float: subnormal ones are taken exactly, wherever scales are read, and are the same in C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import deeploy
from deeploy.api import verify
from deeploy.errors import ModelError
from tests.frontend.models import build, f32

Node = helper.make_node
MICROSOFT = "com.microsoft"
SMALLEST, SMALLEST_NORMAL = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).smallest_normal


def subnormals(seed: int, count: int) -> np.ndarray:
    """Scales below the normal range, evenly spread over their exponents; the smallest one is among them."""
    drawn = np.exp2(np.random.default_rng(seed).uniform(-148, -126.01, count)).astype(np.float32)
    drawn[0] = SMALLEST
    assert ((drawn > 0) & (drawn < SMALLEST_NORMAL)).all()
    return drawn


class Net:
    """A network of several outputs, each of which quantises or dequantises with scales of its own."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.outputs: list[str] = []

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype)
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(Node(op, list(inputs), [name], **attributes))
        return name

    def both(self, x: str, scale: str, zero: str, **attributes: Any) -> str:
        """Quantised and dequantised."""
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, scale, zero, **attributes), scale, zero, **attributes)

    def convolution(self, x: str, random: np.random.Generator, weights: np.ndarray, bias: np.ndarray) -> str:
        """A convolution of bytes with scales for its weights and its bias, channel by channel."""
        count = len(weights)
        values = self.constant(random.integers(-127, 128, (count, 3, 2, 2)), np.int8)
        offsets = self.constant(random.integers(-(2**20), 2**20, count), np.int32)
        w = self.add("DequantizeLinear", values, self.constant(weights), axis=0)
        b = self.add("DequantizeLinear", offsets, self.constant(bias), axis=0)
        image = self.both(x, self.constant(0.02), self.constant(3, np.int8))
        return self.both(self.add("Conv", image, w, b), self.constant(0.05), self.constant(-4, np.int8))


@pytest.mark.parametrize("seed", range(2))
def test_subnormal_scales_are_taken_exactly(tmp_path: Path, seed: int) -> None:
    """C is the interpreter bit for bit, and both are onnxruntime within its rule."""
    net, random = Net(), np.random.default_rng(seed)
    weights, small = np.full(8, 0.01, np.float32), subnormals(seed, 8)
    bias = weights * np.float32(0.02)
    bias[:4], weights[:4] = small[:4], small[:4] * np.float32(50)
    net.outputs.append(net.convolution("x", random, weights, bias))
    net.outputs.append(net.convolution("x", random, small, small * np.float32(0.02) + SMALLEST))
    kinds = ((small[1], np.int8, ""), (small[2], np.uint8, ""), (small[3], np.int8, MICROSOFT), (SMALLEST, np.uint8, ""))
    for scale, dtype, domain in kinds:
        net.outputs.append(net.both("tiny", net.constant(scale), net.constant(7, dtype), domain=domain))
    net.outputs.append(net.both("tiny", net.constant(small[:3]), net.constant([-3, 0, 5], np.int8), axis=1))
    model = build(net.nodes, {"x": f32(1, 3, 5, 5), "tiny": f32(1, 3, 40)}, net.outputs, net.constants)
    onnx.save(model, tmp_path / "m.onnx")
    tiny = (random.standard_normal((1, 3, 40)) * random.choice(small[:4], (1, 3, 40)) * 90).astype(np.float32)
    inputs = {"x": random.standard_normal((1, 3, 5, 5)).astype(np.float32), "tiny": tiny}
    verdict = verify(deeploy.compile(tmp_path / "m.onnx"), tmp_path / "m.onnx", inputs)
    assert verdict.passed, verdict.contents()


def test_quantisers_of_brevitas(tmp_path: Path) -> None:
    """The same as NumPy in float32."""
    for scale in subnormals(3, 4):
        node = Node("Quant", ["x", "s", "z", "bits"], ["y"], domain="qonnx.custom_op.general", signed=1, narrow=0, rounding_mode="ROUND")
        constants = {"s": scale, "z": np.float32(0), "bits": np.float32(8)}
        x = (np.linspace(-300, 300, 64) * np.float64(scale)).astype(np.float32)
        (got,) = deeploy.compile(build([node], {"x": f32(64)}, ["y"], constants)).interpret([x])
        assert np.array_equal(got, np.clip(np.rint(x / scale), -128, 127).astype(np.float32) * scale)


@pytest.mark.parametrize("small", ["operand", "weights", "result"])
def test_operators_on_integers(tmp_path: Path, small: str) -> None:
    """QLinearMatMul with a subnormal scale: the nearest step of the exact product."""
    random = np.random.default_rng(7)
    scales = {"operand": (3e-40, 0.05, 2e-39), "weights": (0.05, 3e-40, 2e-39), "result": (2e-21, 3e-20, 9e-39)}[small]
    a, b, y = (np.float32(scale) for scale in scales)
    weights = random.integers(-127, 128, (6, 4)).astype(np.int8)
    zero = np.int8(0)
    node = Node("QLinearMatMul", ["x", "a", "z", "w", "b", "z", "s", "z"], ["y"])
    model = build([node], {"x": ([5, 6], onnx.TensorProto.INT8)}, ["y"], {"a": a, "b": b, "s": y, "w": weights, "z": zero})
    x = random.integers(-128, 128, (5, 6)).astype(np.int8)
    (got,) = deeploy.compile(model).interpret([x])
    exact = (x.astype(np.int64) @ weights.astype(np.int64)) * (np.float64(a) * np.float64(b) / np.float64(y))
    assert np.abs(got - np.clip(exact, -128, 127)).max() <= 0.5 + 1e-6 and len(np.unique(got)) > 5


@pytest.mark.parametrize("scale", [0.0, -1e-40, np.inf, np.nan])
def test_what_is_no_scale(scale: float) -> None:
    node = Node("QuantizeLinear", ["x", "s"], ["y"])
    with pytest.raises(ModelError, match="has the scale 's'"):
        deeploy.compile(build([node], {"x": f32(4)}, ["y"], {"s": np.float32(scale)}))
