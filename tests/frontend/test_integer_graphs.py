"""Float graphs that compute integers only: taken for integers, and equal to onnxruntime's floats in every bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.driver import lower
from deeploy.driver.verify import verify_compiled
from deeploy.ir.types import DType
from deeploy.planning.program import Role
from tests.models import Net

RANDOM = np.random.default_rng(40)
Graph = Callable[[Net], str]


def whole(*shape: int, most: int = 128) -> np.ndarray:
    return RANDOM.integers(-most, most, shape).astype(np.float32)


def requantised(n: Net, x: str, channels: tuple[int, ...] = (), shift: int = 12, high: float = 255.0) -> str:
    """As NEMO writes it: a factor, a summand, a division, the whole part, limits."""
    scaled = n.Add(n.Mul(x, n.c(np.abs(whole(*channels)) + 1)), n.c(whole(*channels, most=4000)))
    return str(n.Clip(n.Floor(n.Div(scaled, n.c(np.float32(2**shift)))), n.c(np.float32(0)), n.c(np.float32(high))))


def layer(n: Net, x: str, inputs: int, outputs: int, group: int = 1, **more: Any) -> str:
    weights = n.c(whole(outputs, inputs // group, 3, 3))
    return requantised(n, str(n.Conv(x, weights, group=group, pads=[1, 1, 1, 1])), (outputs, 1, 1), **more)


def padded(n: Net) -> str:
    x = layer(n, n.Pad(n.x(1, 3, 8, 8), n.i(0, 0, 1, 1, 0, 0, 1, 1), n.c(np.float32(0))), 3, 6, shift=14)
    pooled = n.Floor(n.AveragePool(x, kernel_shape=[2, 2], strides=[2, 2]))
    return str(n.Add(n.MatMul(n.Flatten(pooled), n.c(whole(150, 4))), n.c(whole(4, most=4000))))


def residual(n: Net) -> str:
    """Of branches with factors of their own, a depthwise layer, and a mean over all pixels, of 2^k and other numbers."""
    x = layer(n, n.x(1, 4, 6, 8), 4, 8)
    branch = layer(n, x, 8, 8, group=8, shift=10)
    total = n.Add(n.Mul(x, n.c(np.float32(37))), n.Mul(branch, n.c(np.float32(21))))
    joined = n.Clip(n.Floor(n.Mul(total, n.c(np.float32(2.0**-6)))), n.c(np.float32(0)), n.c(np.float32(255)))
    mean = n.Floor(n.GlobalAveragePool(n.MaxPool(joined, kernel_shape=[2, 2], strides=[2, 2])))
    return str(n.Gemm(n.Flatten(mean), n.c(whole(3, 8)), n.c(whole(3, most=900)), transB=1))


def windows_of_nine(n: Net) -> str:
    x = layer(n, n.x(1, 2, 9, 9), 2, 4, shift=11, high=127.0)
    pooled = n.Floor(n.AveragePool(x, kernel_shape=[3, 3], strides=[2, 2]))
    return str(n.ReduceSum(pooled, n.i(2), keepdims=0))


def scaled_pool(n: Net) -> str:
    """A mean that is scaled before its whole part is taken; limits in front of that; rounding as the half of a step."""
    x = layer(n, n.x(1, 2, 8, 8), 2, 4)
    mean = n.Mul(n.AveragePool(x, kernel_shape=[4, 2], strides=[4, 2]), n.c(np.float32(5)))
    limited = n.Clip(n.Div(mean, n.c(np.float32(8))), n.c(np.float32(3)), n.c(np.float32(100)))
    rounded = n.Floor(n.Add(n.Div(n.Sub(n.c(np.float32(9)), n.Floor(limited)), n.c(np.float32(4))), n.c(np.float32(0.5))))
    return str(n.Relu(n.MatMul(n.Reshape(rounded, n.i(1, 32)), n.c(whole(32, 3)))))


def thresholds(n: Net) -> str:
    """Streamlined as FINN does it: layers of whole weights, each with thresholds of its channels."""
    x = n.Conv(n.x(1, 3, 6, 6), n.c(whole(4, 3, 3, 3, most=4)))
    steps = {"domain": "qonnx.custom_op.general", "out_dtype": "INT4", "out_bias": -8.0}
    return str(n.MatMul(n.Flatten(n.node("MultiThreshold", [x, n.c(whole(4, 15, most=3000))], 1, **steps)[0]), n.c(whole(64, 3))))


@pytest.mark.parametrize("graph", [padded, residual, windows_of_nine, scaled_pool])
@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_graphs_that_compute_integers(graph: Graph, target: str, tmp_path: Path) -> None:
    made, path, samples = compile_graph(graph, tmp_path, target)
    verdict = verify_compiled(made, path, samples)
    assert verdict.passed and {against for against, _ in verdict.comparisons} == {"interpreter", "onnxruntime"}
    assert not any(t.dtype.is_float for call in made.network.program.calls for t in call.node.outputs)
    buffers = made.network.program.buffers.values()
    assert [buffer.dtype for buffer in buffers if buffer.role is Role.INPUT] == [DType.UINT8]
    assert {buffer.dtype for buffer in buffers if buffer.role is Role.OUTPUT} == {DType.INT32}


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_thresholds_of_integers(target: str, tmp_path: Path) -> None:
    made, path, samples = compile_graph(thresholds, tmp_path, target)
    stored = [onnx.numpy_helper.to_array(t).astype(np.int64) for t in onnx.load(path).graph.initializer]
    weights, rows, last = stored[:3]
    (x,) = np.load(samples).values()
    for sample in x.astype(np.int64):
        windows = np.lib.stride_tricks.sliding_window_view(sample, (3, 3), axis=(2, 3))
        sums = np.einsum("ncijhw,kchw->nkij", windows, weights)
        counts = (sums[..., None] >= rows[None, :, None, None, :]).sum(axis=-1) - 8
        (got,) = made.run([sample])
        assert got.dtype == np.int32 and len(np.unique(counts)) > 4
        np.testing.assert_array_equal(got, counts.reshape(1, -1) @ last)
        np.testing.assert_array_equal(got, made.interpret([sample])[0])
    assert [call.node.op for call in made.network.program.calls if call.node.outputs[0].dtype.is_float] == []


def is_float(made: deeploy.Compiled) -> bool:
    return [buffer.dtype for buffer in made.network.program.buffers.values() if buffer.role is Role.INPUT] == [DType.FLOAT32]


def test_what_stays_in_floats(tmp_path: Path) -> None:
    """Where it is asked for; where a sample, or a type that is given, says that inputs are no integers."""
    made, path, samples = compile_graph(padded, tmp_path)
    assert not is_float(made)
    assert is_float(deeploy.compile(path, inputs=samples, dialect="standard"))
    assert is_float(deeploy.compile(path, input_types={"x0": "float32"}))
    np.savez(tmp_path / "halves.npz", RANDOM.integers(0, 256, (1, 3, 8, 8)) / 2)
    halves = deeploy.compile(path, inputs=tmp_path / "halves.npz")
    assert is_float(halves) and verify_compiled(halves, path, tmp_path / "halves.npz").passed


@pytest.mark.parametrize("defect", ["weights", "divisor", "mean", "sqrt"])
def test_graphs_that_compute_other_numbers(defect: str, tmp_path: Path) -> None:
    """One constant, or one operator, that is not of whole numbers is enough."""

    def graph(n: Net) -> str:
        x = layer(n, n.x(1, 2, 8, 8), 2, 4)
        if defect == "divisor":
            return str(n.Floor(n.Div(x, n.c(np.float32(3)))))
        if defect == "mean":
            return str(n.AveragePool(x, kernel_shape=[2, 2]))
        if defect == "sqrt":
            return str(n.Floor(n.Sqrt(x)))
        return str(n.MatMul(x, n.c(RANDOM.normal(size=(8, 3)).astype(np.float32))))

    made, path, samples = compile_graph(graph, tmp_path)
    assert is_float(made) and verify_compiled(made, path, samples).passed


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_wrong_recognition_differs_from_onnxruntime(is_declared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean of integers is a fraction: rounded where a user says that the graph is of integers, wrong where it is only taken for one."""
    path, samples = saved(lambda n: str(n.ReduceMean(n.MatMul(n.x(2, 4), n.c(whole(4, 3))), axes=[1], keepdims=0)), tmp_path)
    monkeypatch.setattr(lower, "computes_integers", lambda graph: True)
    made = deeploy.compile(path, inputs=samples, dialect="integer" if is_declared else None)
    assert made.network.program.buffers[made.network.program.outputs[0]].dtype == DType.INT32
    verdict = verify_compiled(made, path, samples)
    assert verdict.passed is is_declared
    if is_declared:
        assert "not compared with onnxruntime: it computes fractions where operators of the integer dialect round" in verdict.notes
    else:
        assert [against for against, comparison in verdict.comparisons if not comparison.passed] == ["onnxruntime"]


def compile_graph(graph: Graph, path: Path, target: str = "generic") -> tuple[deeploy.Compiled, Path, Path]:
    model, samples = saved(graph, path)
    return deeploy.compile(model, target, inputs=samples), model, samples


def saved(graph: Graph, path: Path) -> tuple[Path, Path]:
    """A model, and an npz with two samples of integers."""
    net = Net()
    result = helper.make_tensor_value_info(graph(net), TensorProto.FLOAT, None)
    whole_graph = helper.make_graph(net.nodes, "g", net.inputs, [result], net.constants)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("qonnx.custom_op.general", 1)]
    onnx.save(helper.make_model(whole_graph, opset_imports=opsets, ir_version=8), path / "m.onnx")
    shape = [d.dim_value for d in net.inputs[0].type.tensor_type.shape.dim]
    np.savez(path / "in.npz", RANDOM.integers(0, 256, (2, *shape)).astype(np.float32))
    return path / "m.onnx", path / "in.npz"
