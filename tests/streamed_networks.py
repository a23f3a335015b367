"""Networks that run on sensors, small ones of each published kind, and random ones: all over a window of an input ``x0``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.models import Net


def _conv(n: Net, x: str, c: int, k: int, size: tuple[int, ...], **attrs: Any) -> str:
    """A convolution whose padding keeps extents but for strides, unless attributes say otherwise."""
    dilations = attrs.get("dilations", [1] * len(size))
    half = [(f - 1) * d // 2 for f, d in zip(size, dilations, strict=True)]
    attrs.setdefault("pads", [*half, *half])
    depth = c // attrs.get("group", 1)
    weight = n.c(n.random.standard_normal((k, depth, *size)).astype(np.float32) / np.sqrt(depth * np.prod(size)))
    return str(n.Conv(x, weight, n.c(n.random.standard_normal(k).astype(np.float32) / 4), **attrs))


def _score(n: Net, x: str, channels: int, classes: int = 4) -> str:
    """The mean over all positions, and a product."""
    return str(n.Gemm(n.Flatten(n.GlobalAveragePool(x)), n.w(channels, classes), n.w(classes)))


def ds_cnn(n: Net) -> list[str]:
    """DS-CNN of keyword spotting (Zhang et al., 2017): columns of ten features, depthwise-separable convolutions."""
    x, c = n.Relu(_conv(n, n.x(1, 1, 24, 10), 1, 8, (5, 4), strides=[2, 2], pads=[2, 1, 2, 1])), 8
    for _ in range(2):
        x = n.Relu(_conv(n, x, c, c, (3, 3), group=c))
        x = n.Relu(_conv(n, x, c, c, (1, 1)))
    pooled = n.AveragePool(x, kernel_shape=[12, 5], strides=[1, 1])
    return [n.Softmax(n.Gemm(n.Reshape(pooled, n.i(1, c)), n.w(c, 4), n.w(4)), axis=1)]


def tc_resnet(n: Net, features: int = 10, columns: int = 32, widths: Sequence[int] = (8, 8, 12)) -> list[str]:
    """TC-ResNet (Choi et al., 2019): frequencies are channels, blocks of two long convolutions beside a strided shortcut."""
    x, c = _conv(n, n.x(1, features, columns), features, widths[0], (3,)), widths[0]
    for k in widths[1:]:
        inner = n.Relu(_conv(n, x, c, k, (9,), strides=[2]))
        inner = _conv(n, inner, k, k, (9,))
        x, c = n.Relu(n.Add(inner, n.Relu(_conv(n, x, c, k, (1,), strides=[2], pads=[0, 0])))), k
    return [_score(n, x, c)]


def matchboxnet(n: Net, features: int = 10, columns: int = 40, c: int = 8, filters: Sequence[int] = (13, 15)) -> list[str]:
    """MatchboxNet (Majumdar and Ginsburg, 2020): separable convolutions in time with pointwise shortcuts, the last one dilated."""
    x = n.Relu(_conv(n, n.x(1, features, columns), features, c, (11,), strides=[2]))
    for f in filters:
        inner = x
        for _ in range(2):
            inner = n.Relu(_conv(n, _conv(n, inner, c, c, (f,), group=c), c, c, (1,)))
        x = n.Relu(n.Add(inner, _conv(n, x, c, c, (1,))))
    x = n.Relu(_conv(n, _conv(n, x, c, c, (7,), group=c, dilations=[2]), c, c, (1,)))
    return [_score(n, x, c)]


def wake_word(n: Net, features: int = 10, filters: Sequence[int] = (8, 8, 8, 4)) -> list[str]:
    """MLPerf Tiny's streaming wake word (github.com/mlcommons/tiny, 1.3): separable convolutions without padding, down to one column.

    The published one has 40 logarithms of mel bands, of 64 ms every 32, and 128, 128, 128 and 32 filters. Its norms are in weights.
    """
    x, c = n.x(1, features, 30), features
    for k, size in zip(filters, (3, 5, 10, 15), strict=True):
        x, c = n.Relu(_conv(n, _conv(n, x, c, c, (size,), group=c, pads=[0, 0]), c, k, (1,))), k
    return [n.Softmax(n.Gemm(n.Flatten(x), n.w(c, 3), n.w(3)), axis=1)]


def ecg(n: Net, columns: int = 32, c: int = 8, dilations: Sequence[int] = (1, 2, 4)) -> list[str]:
    """Beats of an electrocardiogram: residual branches with dilations that look ahead, a result for every column."""
    x = n.Relu(_conv(n, n.x(1, 2, columns), 2, c, (5,)))
    for d in dilations:
        inner = n.Relu(_conv(n, x, c, c, (3,), dilations=[d]))
        x = n.Add(x, _conv(n, inner, c, c, (3,), dilations=[d]))
    return [n.Transpose(_conv(n, x, c, 3, (1,)), perm=[0, 2, 1])]


def crnn(n: Net, features: int = 8, columns: int = 24, c: int = 6, units: int = 8) -> list[str]:
    """Convolutions, and a GRU over what they find, whose last state is scored (Arik et al., 2017)."""
    x = n.Relu(_conv(n, n.x(1, 1, columns, features), 1, c, (5, 4), strides=[2, 2], pads=[2, 1, 2, 1]))
    steps = n.Reshape(n.Transpose(x, perm=[2, 0, 1, 3]), n.i(columns // 2, 1, c * features // 2))
    shapes = (1, 3 * units, c * features // 2), (1, 3 * units, units), (1, 6 * units)
    w, r, b = (n.c(n.random.standard_normal(s).astype(np.float32) * np.float32(0.3)) for s in shapes)
    sequence, _ = n.node("GRU", (steps, w, r, b), 2, hidden_size=units, linear_before_reset=1)
    last = n.Gather(n.Squeeze(sequence, n.i(1)), n.c(np.int64(-1)), axis=0)
    return [n.Gemm(last, n.w(units, 4), n.w(4))]


def silero(n: Net, samples: int = 320, size: int = 32, c: int = 6, units: int = 6) -> list[str]:
    """A voice detector of Silero's kind: magnitudes of a Fourier transform that is a convolution, an LSTM behind strides, a score for
    every step."""
    bands, turns = size // 2 + 1, np.outer(np.arange(size // 2 + 1), np.arange(size)) * 2 * np.pi / size
    basis = np.concatenate([np.cos(turns), np.sin(turns)])[:, None] * np.hanning(size) / np.sqrt(size)
    parts = n.node("Split", (n.Conv(n.x(1, 1, samples), n.c(basis.astype(np.float32)), strides=[size // 2]), n.i(bands, bands)), 2, axis=1)
    x = n.Sqrt(n.Add(*(n.Mul(part, part) for part in parts)))
    for depth, stride in ((bands, 1), (c, 2), (c, 2)):
        x = n.Relu(_conv(n, x, depth, c, (3,), strides=[stride]))
    w, r = (n.c(n.random.standard_normal((1, 4 * units, k)).astype(np.float32) / 3) for k in (c, units))
    y = n.node("LSTM", (n.Transpose(x, perm=[2, 0, 1]), w, r), 2, hidden_size=units)[0]
    return [n.Sigmoid(n.MatMul(n.Squeeze(y, n.i(1)), n.w(units, 1)))]


def attend(n: Net, x: str, heads: int, mask: np.ndarray, kind: str = "add", bias: np.ndarray | None = None) -> str:
    """A layer of attention over columns [1, columns, 4 x heads], with a norm in front and a shortcut.

    Args:
        mask: whether a column sees another one; what is hidden is far below by a summand ("add"), or minus infinity ("where").
        bias: added to scores.
    """
    columns, width = len(mask), 4 * heads
    narrow = 4
    inner = n.LayerNormalization(x, n.c(np.ones(width, np.float32)), n.c(np.zeros(width, np.float32)), axis=-1)

    def project(y: str) -> str:
        return str(n.MatMul(y, n.c(n.random.standard_normal((width, width)).astype(np.float32) / np.float32(width**0.5))))

    orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    q, k, v = (n.Transpose(n.Reshape(n.Add(project(inner), n.w(width)), n.i(1, columns, heads, narrow)), perm=perm) for perm in orders)
    scores = n.Mul(n.MatMul(q, k), n.c(np.float32(narrow**-0.5)))
    scores = scores if bias is None else n.Add(scores, n.c(bias))
    hidden = n.c(np.where(mask, 0, -1e9).astype(np.float32)) if kind == "add" else n.c(np.float32(-np.inf))
    scores = n.Add(scores, hidden) if kind == "add" else n.Where(n.c(mask), scores, hidden)
    found = n.Transpose(n.MatMul(n.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3])
    return str(n.Add(x, project(n.Reshape(found, n.i(1, columns, width)))))


NETWORKS: Mapping[str, tuple[Callable[..., list[str]], str]] = {
    "ds_cnn": (ds_cnn, "x0.2"),
    "tc_resnet": (tc_resnet, "x0.2"),
    "matchboxnet": (matchboxnet, "x0.2"),
    "ecg": (ecg, "x0.2"),
    "crnn": (crnn, "x0.2"),
    "wake_word": (wake_word, "x0.2"),
}


def save_network(name: str, path: Path) -> Path:
    """Write the float model of a network."""
    n = Net()
    return n.save(path, *NETWORKS[name][0](n))


def random_network(n: Net) -> list[str]:
    """Layers that stream, drawn by the net's own generator, over a window of 48 columns; results for every column and of the window."""
    rng, c, columns = n.random, int(n.random.integers(2, 6)), 48
    x = n.x(1, c, columns)
    strides = 0
    for _ in range(rng.integers(2, 6)):
        kind = rng.choice(["conv", "pool", "average", "residual", "pad", "crop", "join", "norm"])
        if kind == "conv":
            f, d, s = int(rng.integers(1, 6)), int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3])) if strides < 2 else 1
            reach, k = (f - 1) * d, int(rng.integers(2, 6))
            before = int(rng.integers(0, reach + 1))
            strides += s > 1
            x, c = n.Relu(_conv(n, x, c, k, (f,), dilations=[d], strides=[s], pads=[before, reach - before])), k
        elif kind == "pool":
            x = n.MaxPool(x, kernel_shape=[3], strides=[1], pads=list(map(int, rng.permutation([0, 2]))))
        elif kind == "average":
            x = n.AveragePool(x, kernel_shape=[3], strides=[1], pads=[1, 1], count_include_pad=1)
        elif kind == "residual":
            d = int(rng.integers(1, 4))
            x = n.Add(x, n.Relu(_conv(n, x, c, c, (3,), dilations=[d], pads=list(map(int, rng.permutation([2 * d, 0]))))))
        elif kind == "pad":
            before = int(rng.integers(1, 4))
            x = _conv(n, n.Pad(x, n.i(0, 0, before, 0, 0, 3 - before)), c, c, (4,), pads=[0, 0], group=c)
        elif kind == "crop":
            before = int(rng.integers(0, 3))
            x = n.Slice(_conv(n, x, c, c, (3,), pads=[2, 2]), n.i(before), n.i(before - 2 if before < 2 else 1000), n.i(2))
        elif kind == "join":
            x, c = n.Concat(x, _conv(n, x, c, 2, (3,)), axis=1), c + 2
        else:
            turned = n.Transpose(x, perm=[0, 2, 1])
            x = n.Transpose(n.LayerNormalization(turned, n.w(c), n.w(c), axis=-1), perm=[0, 2, 1])
    return [n.Sigmoid(x), _score(n, x, c)]


def quantise_network(path: Path, output: Path) -> Path:
    """The network in int8, calibrated with noise."""
    import deeploy

    shape = [dim.dim_value for dim in onnx.load(path).graph.input[0].type.tensor_type.shape.dim]
    samples = np.random.default_rng(3).normal(size=(8, *shape)).astype(np.float32)
    deeploy.quantize(str(path), {"x0": samples}, output)
    return output
