"""Small float networks for the machine with several memories, compiled with little memory so that they must be tiled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import deeploy
from deeploy.options import Options
from tests.models import node, save_model


def compile_nodes(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, list[int]],
    outputs: dict[str, list[int]],
    constants: dict[str, list[int]],
    options: Options,
    target: Any = "siracusa",
) -> deeploy.Compiled:
    """Constants hold small numbers; the file is called ``model.onnx``."""
    numbers = np.random.default_rng(1)
    weights = {name: numbers.uniform(-1, 1, shape).astype(np.float32) for name, shape in constants.items()}
    return deeploy.compile(save_model(folder / "model.onnx", nodes, inputs, outputs, weights), target, **options.given())


def convolutions(folder: Path, options: Options) -> deeploy.Compiled:
    """Padded, strided and grouped: windows have halos, borders are clipped, and the last tiles are smaller."""
    return compile_nodes(
        folder,
        [
            node("Conv", "x w1", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
            node("Relu", "a", "b"),
            node("Conv", "b w2", "c", pads=[2, 2, 2, 2], dilations=[2, 2], group=12),
            node("Add", "b c", "y"),
        ],
        {"x": [1, 3, 27, 22]},
        {"y": [1, 12, 14, 11]},
        {"w1": [12, 3, 3, 3], "w2": [12, 1, 3, 3]},
        options,
    )


def upsampled(folder: Path, options: Options) -> deeploy.Compiled:
    """Transposed convolutions: tiles begin at any phase of a stride, filters overlap, and some outputs are reached by no input."""
    return compile_nodes(
        folder,
        [
            node("ConvTranspose", "x w1", "a", pads=[1, 0, 0, 2], strides=[2, 3], output_padding=[1, 2]),
            node("ConvTranspose", "a w2", "b", dilations=[2, 1], strides=[3, 2], group=2),
            node("ConvTranspose", "b w3", "y"),
        ],
        {"x": [2, 6, 5, 4]},
        {"y": [2, 3, 41, 28]},
        {"w1": [6, 8, 3, 3], "w2": [8, 3, 3, 2], "w3": [6, 3, 2, 3]},
        options,
    )


def filters(folder: Path, options: Options) -> deeploy.Compiled:
    """Filters cut along their innermost axis, in a middle memory and again in the engine's own."""
    nodes = [node("Conv", "x w", "y", pads=[1, 1, 1, 1])]
    return compile_nodes(folder, nodes, {"x": [1, 16, 6, 6]}, {"y": [1, 32, 6, 6]}, {"w": [32, 16, 3, 3]}, options)


def perceptron(folder: Path, options: Options) -> deeploy.Compiled:
    """Weights that are far larger than what works on them."""
    return compile_nodes(
        folder,
        [
            node("Gemm", "x w1 b1", "a"),
            node("Relu", "a", "b"),
            node("Gemm", "b w2 b2", "c"),
            node("Tanh", "c", "d"),
            node("MatMul", "d w3", "y"),
        ],
        {"x": [5, 40]},
        {"y": [5, 10]},
        {"w1": [40, 61], "b1": [61], "w2": [61, 50], "b2": [50], "w3": [50, 10]},
        options,
    )


def transposed(folder: Path, options: Options) -> deeploy.Compiled:
    """Strided views: boxes with several axes."""
    return compile_nodes(
        folder,
        [
            node("Neg", "x", "n"),
            node("Transpose", "n", "t", perm=[0, 2, 1, 3]),
            node("Softmax", "t", "s"),
            node("Transpose", "s", "u", perm=[0, 2, 1, 3]),
            node("Sqrt", "u", "q"),
            node("Add", "q n", "y"),
        ],
        {"x": [2, 9, 14, 8]},
        {"y": [2, 9, 14, 8]},
        {},
        options,
    )
