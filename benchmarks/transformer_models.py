"""Transformers of given sizes as quantised graphs of the integer dialect, with seeded weights: decoders and encoders.

    make bench NAME='transformer_models decoder --width 512 --inner 2048 --heads 8 --layers 8 -o tinyllama.onnx'

The decoder is that of Llama: norms of mean squares in front, rotary positions, three feed-forward matrices with hard-swish, caches of keys
and values. The encoder is that of BERT: layer norms behind, two feed-forward matrices with GELU. Activations are int8, weights int8,
and multipliers are chosen such that values of random weights neither vanish nor saturate.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.graphs import Graph


@dataclass(frozen=True)
class Shape:
    """Sizes of a network: ``rows`` of an inference; ``past`` rows that caches hold before it, None: no caches; ``bits`` of weights."""

    width: int
    inner: int
    heads: int
    layers: int
    rows: int
    past: bool = False
    seed: int = 1
    bits: int = 8

    @property
    def head(self) -> int:
        return self.width // self.heads

    @property
    def weights(self) -> int:
        """Bytes of the matrices of one layer of a decoder."""
        return 4 * self.width * self.width + 3 * self.width * self.inner


class _Net(Graph):
    """Values are exact integers in float32, as the dialect has them; weights have ``bits``."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape.seed)
        self.bits = shape.bits

    def requantised(self, x: str, ratio: float, signed: bool = True, name: str = "") -> str:
        """clip(round(x * ratio)) to 8 bits."""
        shift = min(24, int(np.floor(np.log2(2**14 / ratio))))
        mul = int(np.rint(ratio * 2**shift))
        attrs = {"div": float(2**shift), "n_levels_out": 256.0, "signed": float(signed)}
        tensors = {key: numpy_helper.from_array(np.asarray(value, np.float32)) for key, value in attrs.items()}
        return self.node("RequantShift", x, self.constant([mul]), self.constant([0]), name=name, **tensors)

    def product(self, x: str, rows: int, columns: int) -> str:
        """x times a random matrix, requantised such that the results spread as x does."""
        most = 2 ** (self.bits - 1) - 1
        matrix = self.rng.integers(-most, most + 1, (rows, columns))
        return self.requantised(self.node("MatMul", x, self.constant(matrix)), 1 / (73 * most / 127 * np.sqrt(rows)))

    def sum(self, a: str, b: str) -> str:
        return self.requantised(self.node("Add", a, b), 0.7)

    def softmax(self, x: str) -> str:
        """Shares of 127, of scores whose step is 1/16."""
        step = 1 / 16
        a, b, c = 0.3585, 1.353, 0.344
        attrs = {
            "coeffA": 1.0,
            "coeffB": float(np.floor(b / step)),
            "coeffC": float(np.floor(c / (a * step**2))),
            "log2": float(np.floor(np.log(2) / step)),
            "n_levels": 256.0,
        }
        tensors = {key: numpy_helper.from_array(np.asarray(value, np.float32)) for key, value in attrs.items()}
        return self.requantised(self.node("iSoftmax", x, **tensors), 127 / 255)

    def heads(self, x: str, shape: Shape) -> str:
        """[1, rows, width] as [1, heads, rows, head]."""
        split = self.node("Reshape", x, self.constant([1, shape.rows, shape.heads, shape.head], np.int64))
        return self.node("Transpose", split, perm=[0, 2, 1, 3])

    def attention(self, q: str, k: str, v: str, shape: Shape, mask: str | None) -> str:
        """Heads [1, heads, rows, head] of queries, and of keys and values with all rows, to [1, rows, width]."""
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.requantised(scores, 1 / (73 * np.sqrt(shape.head)))
        if mask is not None:
            scores = self.requantised(self.node("Add", scores, mask), 1.0)
        mixed = self.requantised(self.node("MatMul", self.softmax(scores), v), 1 / 32)
        return self.node("Reshape", self.node("Transpose", mixed, perm=[0, 2, 1, 3]), self.constant([1, shape.rows, shape.width], np.int64))

    def root_norm(self, x: str, width: int) -> str:
        """The root mean square norm: results of a variance of about 40 steps."""
        attrs = {"D": numpy_helper.from_array(np.float32(2**7)), "n_levels": numpy_helper.from_array(np.float32(256))}
        return self.node("iRMSNorm", x, self.constant(self.rng.integers(4000, 6000, width)), **attrs)

    def layer_norm(self, x: str, width: int) -> str:
        attrs = {"D": numpy_helper.from_array(np.float32(2**7)), "n_levels": numpy_helper.from_array(np.float32(256))}
        weight, bias = self.rng.integers(3000, 4000, width), self.rng.integers(-500, 500, width)
        return self.node("iLayerNorm", x, self.constant(weight), self.constant(bias), **attrs)

    def turned(self, x: str, shape: Shape) -> str:
        """Rotary positions: x * cos + (-second half, first half) * sin along the last axis."""
        half = shape.head // 2
        first, second = (
            self.node("Slice", x, *(self.constant([n], np.int64) for n in (a, b, 3))) for a, b in ((0, half), (half, 2 * half))
        )
        crossed = self.node("Concat", self.requantised(self.node("Mul", second, self.constant(-1)), 1.0), first, axis=3)
        parts = [self.requantised(self.node("Mul", a, b), 1 / 127) for a, b in ((x, "cosines"), (crossed, "sines"))]
        return self.requantised(self.node("Add", *parts), 1.0)

    def decoder_layer(self, x: str, shape: Shape, number: int, mask: str | None) -> str:
        width, inner = shape.width, shape.inner
        h = self.root_norm(x, width)
        q, k, v = (self.heads(self.product(h, width, width), shape) for _ in range(3))
        q, k = self.turned(q, shape), self.turned(k, shape)
        if shape.past:
            k = self.node("Concat", f"past_key_values.{number}.key", k, axis=2, name=f"present.{number}.key")
            v = self.node("Concat", f"past_key_values.{number}.value", v, axis=2, name=f"present.{number}.value")
        x = self.sum(x, self.product(self.attention(q, k, v, shape, mask), width, width))
        h = self.root_norm(x, width)
        gate, up = self.product(h, width, inner), self.product(h, width, inner)
        attrs = {key: numpy_helper.from_array(np.float32(n)) for key, n in (("three", 48), ("six", 96), ("one_over_six", 1))}
        gate = self.requantised(self.node("iHardswish", gate, **attrs), 1 / 96)
        both = self.requantised(self.node("Mul", gate, up), 1 / 32)
        return self.sum(x, self.product(both, inner, width))

    def encoder_layer(self, x: str, shape: Shape) -> str:
        width, inner = shape.width, shape.inner
        q, k, v = (self.heads(self.product(x, width, width), shape) for _ in range(3))
        x = self.layer_norm(self.sum(x, self.product(self.attention(q, k, v, shape, None), width, width)), width)
        attrs = {key: numpy_helper.from_array(np.float32(n)) for key, n in (("b", -40), ("one", 1600))}
        inside = self.requantised(self.node("iGELU", self.product(x, width, inner), **attrs), 1 / 1600)
        return self.layer_norm(self.sum(x, self.product(inside, inner, width)), width)


def _cache(shape: Shape, symbol: str) -> list[int | str]:
    return [1, shape.heads, symbol, shape.head]


def decoder(shape: Shape) -> onnx.ModelProto:
    """x [1, rows, width], cosines and sines [1, 1, rows, head], caches in; y, caches out. Without caches, later rows are masked."""
    net = _Net(shape)
    later = np.arange(shape.rows)[None, :] > np.arange(shape.rows)[:, None]
    mask = None if shape.past or shape.rows == 1 else net.constant(later * -100)
    x = "x"
    for number in range(shape.layers):
        x = net.decoder_layer(x, shape, number, mask)
    inputs: dict[str, list[int | str]] = {"x": [1, shape.rows, shape.width]}
    inputs |= {name: [1, 1, shape.rows, shape.head] for name in ("cosines", "sines")}
    outputs: dict[str, list[int | str]] = {x: [1, shape.rows, shape.width]}
    if shape.past:
        kinds = [f"{number}.{kind}" for number in range(shape.layers) for kind in ("key", "value")]
        inputs |= {f"past_key_values.{kind}": _cache(shape, "past") for kind in kinds}
        outputs |= {f"present.{kind}": _cache(shape, "total") for kind in kinds}
    return _model(net, inputs, outputs)


def encoder(shape: Shape) -> onnx.ModelProto:
    """x [1, rows, width] to y of the same shape."""
    net = _Net(shape)
    x = "x"
    for _ in range(shape.layers):
        x = net.encoder_layer(x, shape)
    sizes: list[int | str] = [1, shape.rows, shape.width]
    return _model(net, {"x": sizes}, {x: sizes})


def _model(net: _Net, inputs: dict[str, list[int | str]], outputs: dict[str, list[int | str]]) -> onnx.ModelProto:
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in sizes.items()] for sizes in (inputs, outputs)]
    graph = helper.make_graph(net.nodes, "transformer", *ends, net.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("decoder", "encoder"))
    for name, default in (("width", 512), ("inner", 2048), ("heads", 8), ("layers", 1), ("rows", 1), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--past", action="store_true", help="with caches of keys and values")
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args(arguments)
    shape = Shape(args.width, args.inner, args.heads, args.layers, args.rows, args.past, args.seed)
    onnx.save((decoder if args.kind == "decoder" else encoder)(shape), args.out)
