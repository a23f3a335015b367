"""Windows of any geometry: padding wider than kernels, windows wholly in the padding, gaps between windows, one pixel, in tiles."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import deeploy
from deeploy.errors import FitError
from tests.models import model_of

NODES = 10  # in one network
SEEDS = 24
IN_SHORT_RUN = 2
SMALL_L1 = tuple(round(600 * 1.4**step) for step in range(12))  # bytes: the first that is enough
OPERATORS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "Pad")


def window(numbers: random.Random, op: str) -> tuple[dict[str, Any], tuple[int, int], tuple[int, int]]:
    """Attributes, kernel, and the extents of an image that give at least one output along every axis."""
    kernel, strides, dilations, pads, image = [], [], [], [[], []], []
    for _ in range(2):
        while True:
            taps, stride, dilation = numbers.choice([1, 1, 2, 3, 4]), numbers.choice([1, 1, 2, 3, 5]), numbers.choice([1, 1, 2, 3])
            before, after, size = numbers.choice([0, 0, 1, 2, 5, 7]), numbers.choice([0, 0, 1, 3, 6]), numbers.choice([1, 2, 3, 7, 12])
            reach = dilation * (taps - 1) + 1
            outputs = (
                (size - 1) * stride + reach - before - after if op == "ConvTranspose" else (size + before + after - reach) // stride + 1
            )
            if 1 <= outputs <= (8 if op == "ConvTranspose" else 16):  # the former is never cut along an image
                break
        for given, value in ((kernel, taps), (strides, stride), (dilations, dilation), (pads[0], before), (pads[1], after), (image, size)):
            given.append(value)
    return {"strides": strides, "dilations": dilations, "pads": pads[0] + pads[1]}, (kernel[0], kernel[1]), (image[0], image[1])


def windows_model(seed: int) -> onnx.ModelProto:
    """Nodes beside each other, every one with an input and an output of its own."""
    numbers, values = random.Random(seed), np.random.default_rng(seed)
    nodes, inputs, outputs, weights = [], [], [], []
    for number in range(NODES):
        op = numbers.choice(OPERATORS)
        attrs, kernel, image = window(numbers, op)
        batch, channels, filters = numbers.choice([1, 1, 2]), numbers.choice([1, 2, 5]), numbers.choice([1, 3, 4])
        x, y, w = f"x{number}", f"y{number}", f"w{number}"
        operands = [x]
        if op == "Pad":
            before, after = [numbers.choice([-1, 0, 0, 2, 9]) for _ in range(2)], [numbers.choice([-1, 0, 0, 1, 8]) for _ in range(2)]
            pads = [max(p, -((n - 1) // 2)) for p, n in zip(before + after, image * 2, strict=True)]
            weights.append(numpy_helper.from_array(np.array([0, 0, *pads[:2], 0, 0, *pads[2:]], np.int64), w))
            attrs, operands = {}, [x, w]
        elif op in ("MaxPool", "AveragePool"):
            attrs["kernel_shape"] = kernel
            if op == "AveragePool":
                attrs["count_include_pad"] = numbers.choice([0, 1])
        else:
            group = channels if numbers.random() < 0.3 else 1
            filters = filters * group
            shape = (channels, filters // group, *kernel) if op == "ConvTranspose" else (filters, channels // group, *kernel)
            attrs["group"] = group
            weights.append(numpy_helper.from_array(values.normal(size=shape).astype(np.float32), w))
            operands.append(w)
        nodes.append(helper.make_node(op, operands, [y], name=f"n{number}", **attrs))
        inputs.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, channels, *image]))
        outputs.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))
    graph = helper.make_graph(nodes, f"windows{seed}", inputs, outputs, weights)
    return onnx.shape_inference.infer_shapes(model_of(graph, 19))


def in_little_memory(path: Path) -> deeploy.Compiled:
    """Compiled for the least L1 of the list that is enough."""
    for size in SMALL_L1:
        try:
            return deeploy.compile(path, "siracusa", memory={"l1": size})
        except FitError:
            continue
    raise AssertionError(f"{SMALL_L1[-1]} bytes are too few")


def parameters() -> list[object]:
    sample = set(random.Random(11).sample(range(SEEDS), IN_SHORT_RUN))
    return [pytest.param(seed, marks=() if seed in sample else pytest.mark.slow) for seed in range(SEEDS)]


@pytest.mark.parametrize("seed", parameters())
def test_any_window_is_right_on_both_targets(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "windows.onnx"
    model = windows_model(seed)
    onnx.save(model, path)
    numbers = np.random.default_rng(seed)
    given = [numbers.normal(size=[d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32) for i in model.graph.input]
    flat, tiled = deeploy.compile(path, "generic"), in_little_memory(path)
    assert any(call.tiling.tiles > 1 for call in tiled.plan.calls)
    wanted = flat.interpret(given)
    for name, compiled in (("generic", flat), ("siracusa", tiled)):
        for node, got, want in zip(model.graph.node, compiled.run(given), wanted, strict=True):
            assert np.allclose(got, want, rtol=1e-5, atol=1e-5), f"{name}: {node.op_type} {onnx.printer.to_text(node)}"


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pads", [(1, 1, 0, 1), (0, 2, 2, 0), (2, 0, 0, 2)])
def test_taps_that_no_output_reaches_are_passed_over(pads: tuple[int, int, int, int], stride: int, tmp_path: Path) -> None:
    """Of small images, a transposed convolution reads a part of its filter, whose rows are apart then."""
    values = np.random.default_rng(stride)
    weights = numpy_helper.from_array(values.normal(size=(2, 3, 3, 3)).astype(np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2, 3, 1])
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], "n", strides=[stride, stride], pads=pads)
    graph = helper.make_graph([node], "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [weights])
    model = onnx.shape_inference.infer_shapes(model_of(graph, 19))
    onnx.save(model, tmp_path / "m.onnx")
    given = [values.normal(size=(2, 2, 3, 1)).astype(np.float32)]
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": given[0]})
    for target in ("generic", "siracusa"):
        (got,) = deeploy.compile(tmp_path / "m.onnx", target).run(given)
        assert np.allclose(got, wanted, rtol=1e-5, atol=1e-5), target
