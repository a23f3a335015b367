"""Decoder layers at the sizes of the Deeploy paper's language model, in the integer dialect, with seeded weights.

Llama-style layers as the paper's section IV describes them: norms of mean squares, queries and keys turned by a matrix of the position,
integer softmax, hard swish in a gated feed-forward block. They are written node by node as the dialect's exporter writes them: a
requantisation behind every operator, weights and biases apart, scales of keys and values that nearly agree with those of their caches.
Requantisations keep activations of random weights at about a third of the range of their type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.graphs import Graph

UNIT = 1 << 16  # the divisor of all requantisations
SPREAD = 40.0  # standard deviation of activations that the requantisations aim at
WEIGHTS = 36.0  # standard deviation of weights


@dataclass(frozen=True)
class Shape:
    """Sizes of a network: ``rows`` tokens of one inference, behind ``past`` rows of the caches; without caches ``past`` is None.

    Encoder layers have neither a mask nor turned queries and keys.
    """

    layers: int = 8
    width: int = 64
    heads: int = 16
    inner: int = 256
    rows: int = 1
    past: int | None = 255
    is_encoder: bool = False

    @property
    def head(self) -> int:
        return self.width // self.heads

    @property
    def total(self) -> int:
        """Rows that attention sees."""
        return self.rows + (self.past or 0)

    @property
    def weights(self) -> int:
        """Bytes of the matrices of all layers."""
        return self.layers * (4 * self.width**2 + 3 * self.width * self.inner)

    @property
    def caches(self) -> int:
        """Bytes of the caches of all layers with ``total`` rows."""
        return self.layers * 2 * self.width * self.total


class _Net(Graph):
    def __init__(self, shape: Shape, seed: int) -> None:
        super().__init__(seed)
        self.shape = shape

    def requantised(self, x: str, factor: float, name: str = "") -> str:
        """x times a factor, in signed bytes; no two calibrations give the same one."""
        exact = factor if factor == 1.0 else factor * self.rng.uniform(0.95, 1.05)
        mul, add = self.constant(float(round(exact * UNIT))), self.constant(0.0)
        return self.node("RequantShift", x, mul, add, name=name, div=float(UNIT), n_levels=256.0, signed=1.0)

    def nearly_one(self) -> float:
        """The ratio of two scales that were calibrated apart."""
        return float(self.rng.uniform(0.97, 1.01))

    def linear(self, x: str, inputs: int, outputs: int, spread: float = SPREAD) -> str:
        """Product with a weight matrix, bias and requantisation."""
        weights = np.clip(np.rint(self.rng.normal(scale=WEIGHTS, size=(inputs, outputs))), -128, 127)
        product = self.node("MatMul", x, self.constant(weights))
        biased = self.node("Add", self.constant(np.zeros(outputs)), product)
        return self.requantised(biased, SPREAD / (math.sqrt(inputs) * spread * WEIGHTS))

    def norm(self, x: str, name: str = "") -> str:
        weight = self.constant(np.full(self.shape.width, round(SPREAD * UNIT)))
        return self.node("iRMSNorm", x, weight, name=name, D=UNIT, n_levels=256)

    def residual(self, x: str, y: str) -> str:
        return self.requantised(self.node("Add", self.requantised(x, self.nearly_one()), y), 0.7)

    def heads(self, x: str, is_turned: bool) -> str:
        """[1, rows, width] to [1, heads, rows, head]."""
        s = self.shape
        split = self.node("Reshape", x, self.constant([1, s.rows, s.heads, s.head], np.int64))
        if is_turned and not s.is_encoder:
            split = self.requantised(self.node("MatMul", split, "turn"), 1 / 127)
        return self.node("Transpose", split, perm=[0, 2, 1, 3])

    def cached(self, x: str, past: str, present: str) -> str:
        """Keys or values behind those of earlier inferences."""
        if self.shape.past is None:
            return x
        both = self.node("Concat", past, self.requantised(x, self.nearly_one()), axis=-2)
        return self.requantised(both, 1.0, present)

    def attention(self, x: str, number: int) -> str:
        s = self.shape
        q, k, v = (self.heads(self.linear(x, s.width, s.width), kind != "v") for kind in "qkv")
        keys, values = (self.cached(t, f"past.{number}.{kind}", f"present.{number}.{kind}") for t, kind in ((k, "key"), (v, "value")))
        scores = self.node("MatMul", q, self.node("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = self.requantised(scores, 1 / (math.sqrt(s.head) * SPREAD))
        scores = self.requantised(self.node("TrueIntegerDiv", scores, Delta=16384, eps=1, eta=200000, y=2), 4 / UNIT)
        if not s.is_encoder:
            scores = self.requantised(self.node("Add", scores, self.requantised("mask", 50.0)), 1.0)
        shares = self.node("iSoftmax", scores, coeffA=1.0, coeffB=67.0, coeffC=2376.0, log2=50.0, n_levels=256.0)
        mixed = self.requantised(self.node("MatMul", self.requantised(shares, 0.5), values), 1 / 100)
        flat = self.constant([1, s.rows, s.width], np.int64)
        return self.linear(self.node("Reshape", self.node("Transpose", mixed, perm=[0, 2, 1, 3]), flat), s.width, s.width)

    def feed_forward(self, x: str) -> str:
        s = self.shape
        gate, up = (self.linear(x, s.width, s.inner) for _ in range(2))
        swish = self.requantised(self.node("iHardswish", gate, one_over_six=42, six=323, three=161), 8 / UNIT)
        return self.linear(self.requantised(self.node("Mul", swish, up), 1 / 60), s.inner, s.width, 27.0)


def write(shape: Shape, path: Path, seed: int = 0) -> None:
    """Write a network: tokens' vectors, a mask, turns of the positions and caches in; vectors and caches out."""
    net = _Net(shape, seed)
    x, s = "x", shape
    for number in range(s.layers):
        x = net.residual(x, net.attention(net.norm(x), number))
        x = net.residual(x, net.feed_forward(net.norm(x)))
    net.norm(x, "y")
    inputs: dict[str, list[int]] = {"x": [1, s.rows, s.width]}
    if not s.is_encoder:
        inputs |= {"mask": [s.total] if s.rows == 1 else [1, s.rows, s.total], "turn": [1, s.rows, s.head, s.head]}
    outputs = {"y": inputs["x"]}
    if s.past is not None:
        inputs |= {past: [1, s.heads, s.past, s.head] for past in pairs(s)}
        outputs |= {present: [1, s.heads, s.total, s.head] for present in pairs(s).values()}
    values = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in ends.items()] for ends in (inputs, outputs)]
    graph = helper.make_graph(net.nodes, "slm", values[0], values[1], net.constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def pairs(shape: Shape) -> dict[str, str]:
    """The caches: outputs by input."""
    kinds = [f"{number}.{kind}" for number in range(shape.layers) for kind in ("key", "value")]
    return {f"past.{kind}": f"present.{kind}" for kind in kinds} if shape.past is not None else {}


def types(shape: Shape) -> dict[str, str]:
    """Element types of the inputs."""
    names = ["x", *([] if shape.is_encoder else ["mask", "turn"]), *pairs(shape)]
    return dict.fromkeys(names, "int8")


def steps(shape: Shape, count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Inputs of ``count`` consecutive inferences of one sequence, the caches apart."""
    generator = np.random.default_rng(seed)
    result = []
    for number in range(count):
        positions = np.arange(number * shape.rows, (number + 1) * shape.rows)
        arrays = {"x": np.clip(np.rint(generator.normal(scale=SPREAD, size=(1, shape.rows, shape.width))), -128, 127)}
        if not shape.is_encoder:
            later = np.arange(shape.total)[None, :] > positions[:, None]
            mask = np.where(later, -128, 0)
            arrays |= {
                "mask": mask[0] if shape.rows == 1 else mask[None],
                "turn": np.stack([_turn(shape.head, int(p)) for p in positions])[None],
            }
        result.append({name: array.astype(np.int8) for name, array in arrays.items()})
    return result


def _turn(head: int, position: int) -> np.ndarray:
    """The matrix of signed bytes that turns pairs of a head's first and second half."""
    half = head // 2
    angles = position / 10_000.0 ** (np.arange(half) / half)
    c, s = np.diag(np.cos(angles)), np.diag(np.sin(angles))
    return np.asarray(np.rint(127 * np.block([[c, s], [-s, c]])))
