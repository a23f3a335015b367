"""Tensors without elements: they take no bytes, nobody computes them, and what is computed from them is what ONNX says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import deeploy
from deeploy.backend.project import read_manifest
from deeploy.options import Options
from deeploy.report import terminal
from tests.e2e.test_bad_input import node, save

Net = tuple[Sequence[onnx.NodeProto], tuple[int, ...], tuple[int, ...], dict[str, np.ndarray]]


def net_of_ports(x: tuple[int, ...], y: tuple[int, ...], *nodes: onnx.NodeProto, **constants: np.ndarray) -> Net:
    return nodes, x, y, constants


ONES = np.ones((2, 2, 2, 2), np.float32)
NETS: dict[str, Net] = {
    "reshape of a result": net_of_ports((0, 6), (0, 2, 3), node("Neg", "x", "a"), node("Reshape", "a s", "y"), s=np.array([0, 2, 3])),
    "reshape of the input": net_of_ports((2, 0, 3), (6, 0), node("Reshape", "x s", "a"), node("Neg", "a", "y"), s=np.array([6, -1])),
    "transpose": net_of_ports((0, 3), (3, 0), node("Transpose", "x", "a", perm=[1, 0]), node("Neg", "a", "y")),
    "pool of nothing": net_of_ports((0, 2, 4, 4), (0, 2, 3, 3), node("Relu", "x", "a"), node("MaxPool", "a", "y", kernel_shape=[2, 2])),
    "convolution of nothing": net_of_ports((0, 2, 4, 4), (0, 2, 3, 3), node("Conv", "x w", "y"), w=ONES),
    "joined with something": net_of_ports((0, 3), (2, 3), node("Concat", "x w", "y", axis=0), w=np.full((2, 3), 5, np.float32)),
    "sum of nothing": net_of_ports((2, 0), (1, 1), node("ReduceSum", "x", "y", keepdims=1)),
    "product over nothing": net_of_ports((2, 0), (2, 3), node("MatMul", "x w", "y"), w=np.ones((0, 3), np.float32)),
}


@pytest.mark.parametrize(("name", "target"), [*((name, "generic") for name in NETS), *((name, "siracusa") for name in list(NETS)[:5:4])])
def test_nothing_is_computed_from_nothing(name: str, target: str, tmp_path: Path) -> None:
    nodes, x, y, constants = NETS[name]
    path = save(tmp_path / "model.onnx", nodes, x, y, constants=[numpy_helper.from_array(a, n) for n, a in constants.items()])
    compiled = deeploy.compile(path, target)
    expected = constants["w"] if name == "joined with something" else np.zeros(y, np.float32)
    for got in (compiled.interpret([np.ones(x, np.float32)])[0], compiled.run([np.ones(x, np.float32)])[0]):
        np.testing.assert_array_equal(got, expected)
    compiled.write(tmp_path / "out")
    assert terminal.report_network(read_manifest(tmp_path / "out")).startswith(f"model.onnx for {target}: ")


# Graphs that leave nothing to call: what goes in, what comes out.
IDLE: dict[str, Net] = {
    "function of nothing": net_of_ports((2, 0), (2, 0), node("Relu", "x", "y")),
    "constant without elements": net_of_ports((2, 3), (3, 0), node("Identity", "w", "y"), w=np.ones((3, 0), np.float32)),
    "constant": net_of_ports((2, 3), (3, 5), node("Identity", "w", "y"), w=np.ones((3, 5), np.float32)),
    "constant of the output's own name": net_of_ports((2, 3), (2,), node("Shape", "x", "s"), node("Cast", "s", "y", to=1)),
    "view of the input": net_of_ports((2, 3), (6,), node("Reshape", "x s", "y"), s=np.array([6])),
}
SETTINGS = {
    "far constants": ("siracusa", Options(default_memory="L3")),
    "bytes moved": ("siracusa", Options(objective="traffic")),
    "least memory": ("generic", Options(objective="ram")),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", IDLE)
def test_a_network_without_calls_has_a_plan_and_a_project(name: str, setting: str, tmp_path: Path) -> None:
    nodes, x, y, constants = IDLE[name]
    path = save(tmp_path / "model.onnx", nodes, x, y, constants=[numpy_helper.from_array(a, n) for n, a in constants.items()])
    target, options = SETTINGS[setting]
    compiled = deeploy.compile(path, target, **options.given())
    compiled.write(tmp_path / "out")
    given = np.arange(math.prod(x), dtype=np.float32).reshape(x)
    expected = constants["w"] if "w" in constants else np.array(x, np.float32) if y == (2,) else given.reshape(y)
    for got in (compiled.interpret([given])[0], compiled.run([given])[0]):
        np.testing.assert_array_equal(got, expected)
