"""Chains of Clip and Relu behind an operator: each limits what the one before leaves, in integers as in floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import deeploy
from deeploy.execution.simulation.interpreter import network_outputs
from tests.models import Net

Limits = tuple[float | None, float | None]
RELU: Limits = (0.0, None)
CHAINS: tuple[tuple[Limits, ...], ...] = (
    ((-1.0, 1.0),),
    ((-3.0, 2.5), (-1.0, 1.0)),  # the inner one is the wider one
    ((-1.0, 1.0), (-3.0, 2.5)),
    ((-1.0, 2.0), (-2.0, 1.0)),  # each has one of the tighter limits
    ((-2.0, 1.0), (-1.0, 2.0)),
    ((-2.0, -1.0), (1.0, 2.0)),  # nothing in common: the outer one decides
    ((1.0, 2.0), (-2.0, -1.0)),
    (RELU, (None, 1.0)),
    ((None, 1.0), RELU),
    (RELU, (-1.0, 2.0), (None, 1.5), (0.5, 9.0)),
)
SCALE, ZERO = np.float32(0.05), np.int8(7)
A, B = np.meshgrid(np.arange(-128, 128, 5, dtype=np.int8), np.arange(-128, 128, 17, dtype=np.int8))


def limited(net: Net, x: str, chain: tuple[Limits, ...]) -> str:
    for ends in chain:
        x = net.Relu(x) if ends == RELU else net.Clip(x, *("" if end is None else net.c(np.float32(end)) for end in ends))
    return x


def computed(net: Net, result: str, folder: Path, inputs: list[np.ndarray]) -> np.ndarray:
    onnx.save(net.model([result]), folder / "model.onnx")
    program = deeploy.compile(folder / "model.onnx").network.program
    assert len(program.calls) == 1, "the limits are part of the operator"
    return network_outputs(program, inputs)[0]


def quantised(folder: Path, chain: tuple[Limits, ...]) -> np.ndarray:
    """A sum of int8 tensors, limited, in int8."""
    net = Net()
    for name in ("a", "b"):
        net.inputs.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT8, A.shape))
    parameters = net.c(SCALE), net.c(ZERO)
    sum_ = net.Add(*(net.DequantizeLinear(name, *parameters) for name in ("a", "b")))
    result = net.QuantizeLinear(limited(net, sum_, chain), *parameters)
    return computed(net, result, folder, [A, B])


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_quantised_limits_hold_one_after_the_other(chain: tuple[Limits, ...], tmp_path: Path) -> None:
    """Quantisation is monotone: the limits in steps, applied in turn to the steps of the sum."""
    wanted = quantised(tmp_path, ()).astype(np.int64)
    for ends in chain:
        low, high = (None if end is None else int(np.clip(np.rint(end / SCALE) + ZERO, -128, 127)) for end in ends)
        wanted = np.clip(wanted, low, high)
    np.testing.assert_array_equal(quantised(tmp_path, chain), wanted)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_limits_behind_a_quantisation_are_limits_of_the_operator_as_well(chain: tuple[Limits, ...], tmp_path: Path) -> None:
    """Exports with symmetric activations quantise in front of a Relu, and behind it with the same scale."""
    net = Net()
    for name in ("a", "b"):
        net.inputs.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT8, A.shape))
    parameters = net.c(SCALE), net.c(ZERO)
    result = net.QuantizeLinear(net.Add(*(net.DequantizeLinear(name, *parameters) for name in ("a", "b"))), *parameters)
    for ends in chain:
        result = net.QuantizeLinear(limited(net, net.DequantizeLinear(result, *parameters), (ends,)), *parameters)
    np.testing.assert_array_equal(computed(net, result, tmp_path, [A, B]), quantised(tmp_path, chain))


def test_a_table_that_does_more_than_limit_stays(tmp_path: Path) -> None:
    net = Net()
    for name in ("a", "b"):
        net.inputs.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT8, A.shape))
    parameters = net.c(SCALE), net.c(ZERO)
    sum_ = net.QuantizeLinear(net.Add(*(net.DequantizeLinear(name, *parameters) for name in ("a", "b"))), *parameters)
    result = net.QuantizeLinear(net.Relu(net.DequantizeLinear(sum_, *parameters)), net.c(SCALE * np.float32(0.5)), net.c(ZERO))
    onnx.save(net.model([result]), tmp_path / "model.onnx")
    assert [call.kernel.op for call in deeploy.compile(tmp_path / "model.onnx").network.program.calls] == ["ScaledAdd", "Lookup"]


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_limits_of_floats_hold_one_after_the_other(chain: tuple[Limits, ...], tmp_path: Path) -> None:
    def product(limits: tuple[Limits, ...]) -> np.ndarray:
        net = Net()
        x = net.x(9, 8)
        onnx.save(net.model([limited(net, net.MatMul(x, net.w(8, 7)), limits)]), tmp_path / "model.onnx")
        sample = np.random.default_rng(2).standard_normal((9, 8)).astype(np.float32)
        return network_outputs(deeploy.compile(tmp_path / "model.onnx").network.program, [sample])[0]

    wanted = product(())
    assert wanted.min() < -3 and wanted.max() > 3
    for ends in chain:
        wanted = np.clip(wanted, *(None if end is None else np.float32(end) for end in ends))
    np.testing.assert_array_equal(product(chain), wanted)
