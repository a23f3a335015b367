"""Models cut by hand and compiled for several chips."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from deeploy import chips
from deeploy.driver.lower import Stopwatch, lower_model
from deeploy.options import Options
from deeploy.partition.system import System, order_system
from deeploy.target import load
from tests.models import model_of
from tests.partition.cuts import cut


def towers(width: int, count: int) -> onnx.ModelProto:
    """``count`` equal products, of parts of the input with weights of their own, and their sum."""
    numbers = np.random.default_rng(3)
    nodes, weights = [], []

    def constant(value: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(value, f"c{len(weights)}"))
        return weights[-1].name

    zero = constant(np.zeros((), np.int8))

    def node(op: str, *inputs: str) -> str:
        nodes.append(helper.make_node(op, list(inputs), [f"t{len(nodes)}"], f"{op}_{len(nodes)}"))
        return f"t{len(nodes) - 1}"

    def quantised(x: str, scale: float) -> str:
        step = constant(np.array(scale, np.float32))
        return node("DequantizeLinear", node("QuantizeLinear", x, step, zero), step, zero)

    def product(x: str) -> str:
        w = constant(numbers.integers(-127, 128, (width, width)).astype(np.int8))
        return quantised(node("Relu", node("MatMul", x, node("DequantizeLinear", w, constant(np.array(0.01, np.float32)), zero))), 0.1)

    source = quantised("x", 0.05)
    limits = [constant(np.array([i * width], np.int64)) for i in range(count + 1)]
    axes = constant(np.array([1], np.int64))
    parts = [product(node("Slice", source, limits[i], limits[i + 1], axes)) for i in range(count)]
    total = parts[0]
    for part in parts[1:]:
        total = quantised(node("Add", total, part), 0.2)
    nodes[-1].output[0] = "y"
    shapes = {"x": [4, count * width], "y": [4, width]}
    sides = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in shapes.items())
    graph = helper.make_graph(nodes, "towers", *sides, weights)
    return model_of(graph)


def distributed(
    model: onnx.ModelProto, folder: Path, target: str, chip_of: Callable[[int, str], int], count: int, options: Options | None = None
) -> chips.Distributed:
    """Compile a model with node i, by its number and operator, on a chip of one's choice."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    machine, stopwatch = load(target), Stopwatch()
    found = lower_model(stopwatch, path, machine, Options())
    graph = found.graph
    system: System = order_system(cut(graph, lambda number: chip_of(number, graph.nodes[number].op), count))
    assert machine.topology is not None
    return chips.build(system, found, path.name, machine, machine.topology, options or Options(), stopwatch)


def samples(count: int, width: int) -> list[list[np.ndarray]]:
    numbers = np.random.default_rng(1)
    return [[numbers.standard_normal((4, width)).astype(np.float32)] for _ in range(count)]


def star(folder: Path, target: str, count: int, width: int = 32, options: Options | None = None) -> chips.Distributed:
    """The towers with a product on each chip, and all else on the first one."""
    products = iter(range(count))
    return distributed(towers(width, count), folder, target, lambda _, op: next(products) if op == "MatMul" else 0, count, options)


def layered(widths: list[int]) -> onnx.ModelProto:
    """Quantised products one behind the other, each with as many outputs as the next one has inputs."""
    numbers = np.random.default_rng(5)
    nodes, weights = [], []

    def node(op: str, *inputs: str) -> str:
        nodes.append(helper.make_node(op, list(inputs), [f"t{len(nodes)}"], f"{op}_{len(nodes)}"))
        return f"t{len(nodes) - 1}"

    def constant(value: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(value, f"c{len(weights)}"))
        return weights[-1].name

    step, zero, small = constant(np.array(0.1, np.float32)), constant(np.zeros((), np.int8)), constant(np.array(0.01, np.float32))
    x = node("DequantizeLinear", node("QuantizeLinear", "x", step, zero), step, zero)
    for before, after in itertools.pairwise(widths):
        w = constant(numbers.integers(-127, 128, (before, after)).astype(np.int8))
        y = node("Relu", node("MatMul", x, node("DequantizeLinear", w, small, zero)))
        x = node("DequantizeLinear", node("QuantizeLinear", y, step, zero), step, zero)
    nodes[-1].output[0] = "y"
    shapes = {"x": [4, widths[0]], "y": [4, widths[-1]]}
    sides = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in shapes.items())
    graph = helper.make_graph(nodes, "layered", *sides, weights)
    return model_of(graph)
