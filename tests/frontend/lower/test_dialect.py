"""The integer dialect: every form of its operators that CNNs use, against NumPy written from its formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.errors import NoKernelError
from deeploy.frontend.schemas import DIALECT_OPS
from deeploy.ir.nodes import INTEGER_FORM as DOMAIN
from deeploy.ir.nodes import Node
from deeploy.planning.binding.kernels import list_mismatches
from deeploy.target import load
from tests.models import Net, save_graph


def _run(path: Path, net: Net, output: str, inputs: Sequence[np.ndarray], types: Sequence[str]) -> np.ndarray:
    """Compile a dialect graph, interpret it, and return its only output as int64."""
    return np.asarray(_compiled(path, net, output, types).interpret(list(inputs))[0]).astype(np.int64)


def _compiled(path: Path, net: Net, output: str, types: Sequence[str], target: str = "generic") -> deeploy.Compiled:
    graph = helper.make_graph(net.nodes, "net", net.inputs, [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], net.constants)
    save_graph(graph, path, 13)
    names = [v.name for v in net.inputs]
    return deeploy.compile(path, target, dialect="integer", input_types=dict(zip(names, types, strict=True)))


def _requant(net: Net, x: str, mul: Any, add: Any, shift: int, levels: int = 256, signed: bool = True, tensors: bool = False) -> str:
    """A RequantShift whose attributes are ints or, as some files have them, float tensors of one element."""
    attrs = {"div": 1 << shift, "n_levels": levels, "signed": int(signed)}
    if tensors:
        attrs = {name: helper.make_tensor(name, TensorProto.FLOAT, [1], [float(v)]) for name, v in attrs.items()}
    return str(net.RequantShift(x, net.c(np.asarray(mul, np.float32)), net.c(np.asarray(add, np.float32)), **attrs))


def _requantised(x: np.ndarray, mul: Any, add: Any, shift: int, low: int = -128, high: int = 127) -> np.ndarray:
    rounding = 1 << (shift - 1) if shift else 0
    return np.clip((x.astype(np.int64) * mul + add + rounding) >> shift, low, high)


RANDOM = np.random.default_rng(3)
C = RANDOM.integers(-90, 90, 6)
B = RANDOM.integers(-5000, 5000, 6)


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize(
    ("shape", "form", "whole"),
    [
        ((2, 6, 4, 5), (), ()),
        ((2, 6, 4, 5), (1,), ()),
        ((2, 6, 4, 5), (6, 1, 1), (1, 6, 1, 1)),
        ((2, 6, 4, 5), (1, 6, 1, 1), (1, 6, 1, 1)),
        ((1, 6, 30), (6, 1, 1), (1, 6, 1)),  # on axis 1, whatever the rank
        ((1, 6, 30), (1, 6, 1, 1), (1, 6, 1)),
        ((2, 5, 6), (6,), (6,)),  # on the last axis
        ((2, 6, 5), (6, 1), (6, 1)),  # per row
        ((5, 6), (6,), (6,)),
    ],
)
def test_requantisation_broadcasts(
    shape: tuple[int, ...], form: tuple[int, ...], whole: tuple[int, ...], tensors: bool, tmp_path: Path
) -> None:
    mul, add = (C, B) if np.prod(form) == 6 else (C[:1] - 100, B[:1])
    x = np.random.default_rng(5).integers(-128, 128, shape)
    net = Net()
    y = _requant(net, net.x(*shape), mul.reshape(form), add.reshape(form), 6, tensors=tensors)
    got = _run(tmp_path / "m.onnx", net, y, [x], ["int8"])
    np.testing.assert_array_equal(got, _requantised(x, mul.reshape(whole), add.reshape(whole), 6))


@pytest.mark.parametrize(("levels", "signed", "low", "high"), [(256, False, 0, 255), (128, True, -64, 63), (16, False, 0, 15)])
def test_output_range(levels: int, signed: bool, low: int, high: int, tmp_path: Path) -> None:
    x = np.arange(256).reshape(1, 1, 16, 16)
    net = Net()
    y = _requant(net, net.x(1, 1, 16, 16), -7, 900, 2, levels, signed)
    np.testing.assert_array_equal(_run(tmp_path / "m.onnx", net, y, [x], ["uint8"]), _requantised(x, -7, 900, 2, low, high))


def test_shift_of_zero_does_not_round(tmp_path: Path) -> None:
    x = np.arange(-128, 128).reshape(1, 256)
    net = Net()
    y = _requant(net, net.x(1, 256), 2, 1, 0)
    np.testing.assert_array_equal(_run(tmp_path / "m.onnx", net, y, [x], ["int8"]), np.clip(2 * x + 1, -128, 127))


def test_identity_vanishes_and_a_narrower_range_does_not(tmp_path: Path) -> None:
    x = np.arange(-128, 128).reshape(1, 256)
    for levels, op in ((256, "RequantShift"), (64, "Lookup")):
        net = Net()
        first = _requant(net, net.x(1, 256), 3, 0, 1)
        y = _requant(net, first, 16, 0, 4, levels)
        low, high = -levels // 2, levels // 2 - 1
        got = _run(tmp_path / "m.onnx", net, y, [x], ["int8"])
        # A multiplier equal to the divisor rounds nothing, whatever is added for rounding.
        np.testing.assert_array_equal(got, np.clip(_requantised(x, 3, 0, 1), low, high))
        compiled = deeploy.compile(tmp_path / "m.onnx", dialect="integer", input_types={"x0": "int8"})
        assert [call.node.op for call in compiled.network.program.calls] == [op]  # both together are a table


@pytest.mark.parametrize(
    ("mul", "add", "vanishes"), [(65422, 0, True), (65795, 0, False), (65280, 0, False), (65536, 32767, True), (65536, 32768, False)]
)
def test_factors_that_round_to_the_value_itself_vanish(mul: int, add: int, vanishes: bool, tmp_path: Path) -> None:
    """Up to half a step at either end of the type: 128 * (65536 - mul) / 65536."""
    x = np.arange(-128, 128).reshape(1, 256)
    net = Net()
    y = _requant(net, _requant(net, net.x(1, 256), 3, 0, 1), mul, add, 16)
    want = _requantised(_requantised(x, 3, 0, 1), mul, add, 16)
    np.testing.assert_array_equal(_run(tmp_path / "m.onnx", net, y, [x], ["int8"]), want)
    compiled = deeploy.compile(tmp_path / "m.onnx", dialect="integer", input_types={"x0": "int8"})
    assert [call.node.op for call in compiled.network.program.calls] == ["RequantShift" if vanishes else "Lookup"]


def test_conv_requantisation_is_one_kernel_with_negative_multipliers(tmp_path: Path) -> None:
    x = RANDOM.integers(0, 256, (1, 3, 7, 6))
    w = RANDOM.integers(-128, 128, (6, 3, 1, 1))
    net = Net()
    conv = net.Conv(net.x(1, 3, 7, 6), net.c(w.astype(np.float32)), net.c(B.astype(np.float32)))
    y = _requant(net, conv, C.reshape(1, 6, 1, 1), B.reshape(1, 6, 1, 1), 10, signed=False)
    got = _run(tmp_path / "m.onnx", net, y, [x], ["uint8"])
    acc = np.einsum("nchw,kc->nkhw", x, w[:, :, 0, 0]) + B.reshape(1, 6, 1, 1)
    np.testing.assert_array_equal(got, _requantised(acc, C.reshape(1, 6, 1, 1), B.reshape(1, 6, 1, 1), 10, 0, 255))
    compiled = deeploy.compile(tmp_path / "m.onnx", dialect="integer", input_types={"x0": "uint8"})
    assert not any(call.node.op == "RequantShift" for call in compiled.network.program.calls)


def test_gemm_of_rank_3(tmp_path: Path) -> None:
    a, b = RANDOM.integers(-128, 128, (2, 5, 9)), RANDOM.integers(-128, 128, (6, 9))
    net = Net()
    y = net.Gemm(net.x(2, 5, 9), net.c(b.astype(np.float32)), net.c(B.astype(np.float32)), transB=1)
    got = _run(tmp_path / "m.onnx", net, _requant(net, y, 5, 0, 9), [a], ["int8"])
    np.testing.assert_array_equal(got, _requantised(a @ b.T + B, 5, 0, 9))


def _mean(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    total, n = x.sum(axis=axes, keepdims=keepdims), int(np.prod([x.shape[a] for a in axes]))
    if n & (n - 1) == 0 and not keepdims:
        return (total + n // 2) >> (n.bit_length() - 1)
    signed = total + np.where(total < 0, -1, 1) * (n >> 1)
    return np.asarray(np.sign(signed) * (np.abs(signed) // n))


@pytest.mark.parametrize("op", ["IntegerMean", "ReduceMean"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [(2, 3), (1,), (2,)])
def test_integer_mean(op: str, keepdims: int, axes: tuple[int, ...], tmp_path: Path) -> None:
    x = RANDOM.integers(-128, 128, (2, 4, 6, 5))
    net = Net()
    y = getattr(net, op)(net.x(2, 4, 6, 5), axes=list(axes), keepdims=keepdims)
    np.testing.assert_array_equal(_run(tmp_path / "m.onnx", net, y, [x], ["int8"]), _mean(x, axes, bool(keepdims)))


def test_pad_with_attributes_and_integer_sums(tmp_path: Path) -> None:
    x = RANDOM.integers(-128, 128, (1, 2, 4, 5))
    net = Net()
    padded = net.Pad(net.x(1, 2, 4, 5), pads=[0, 0, 1, 2, 0, 0, 0, 1], mode="constant", value=0.0)
    y = net.ReduceSum(padded, net.i(3), keepdims=0)
    want = np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 1))).sum(axis=3)
    np.testing.assert_array_equal(_run(tmp_path / "m.onnx", net, y, [x], ["int8"]), want)


@pytest.mark.parametrize(("op", "function"), [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)])
def test_mixed_integer_types(op: str, function: Callable[..., np.ndarray], tmp_path: Path) -> None:
    a, b = RANDOM.integers(0, 256, (1, 4, 6, 5)), RANDOM.integers(-128, 128, (4, 1, 1))
    net = Net()
    y = getattr(net, op)(net.x(1, 4, 6, 5), net.x(4, 1, 1))
    np.testing.assert_array_equal(_run(tmp_path / "m.onnx", net, y, [a, b], ["uint8", "int8"]), function(a, b))


def test_residual_of_requantised_operands(tmp_path: Path) -> None:
    a, b = RANDOM.integers(-128, 128, (1, 6, 4, 5)), RANDOM.integers(0, 256, (1, 6, 4, 5))
    net = Net()
    left, right = _requant(net, net.x(1, 6, 4, 5), 11, 3, 4), _requant(net, net.x(1, 6, 4, 5), 5, -9, 3)
    y = _requant(net, net.Add(left, right), 9, 0, 4)
    want = _requantised(_requantised(a, 11, 3, 4) + _requantised(b, 5, -9, 3), 9, 0, 4)
    np.testing.assert_array_equal(_run(tmp_path / "m.onnx", net, y, [a, b], ["int8", "uint8"]), want)
    compiled = deeploy.compile(tmp_path / "m.onnx", dialect="integer", input_types={"x0": "int8", "x1": "uint8"})
    assert [call.node.op for call in compiled.network.program.calls] == ["RequantAdd"]


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_a_factor_that_is_computed_is_refused(tmp_path: Path, target: str) -> None:
    """No kernel of the integer form takes the spelling of a file for its own: it would look for attributes that only lowering gives."""
    net = Net()
    x = net.x(1, 4)
    net.RequantShift(x, net.Mul(x, net.c(np.float32([2.0]))), net.c(np.float32([1.0])), div=256, n_levels=256, signed=1)
    with pytest.raises(NoKernelError, match="requant_shift needs the integer form"):
        _compiled(tmp_path / "m.onnx", net, net.nodes[-1].output[0], ["int8"], target)


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_what_files_call_as_kernels_do_is_told_apart(target: str) -> None:
    kernels = {kernel.op for kernel in load(target).kernels}
    names = {op for op in kernels if op in DIALECT_OPS or onnx.defs.has(op)}
    assert names >= {"RequantShift", "LSTM", "Conv"}
    for domain, is_left in (("", True), (DOMAIN, False)):
        found = {
            kernel.op: list_mismatches(kernel, Node("", kernel.op, (), (), domain=domain))
            for kernel in load(target).kernels
            if kernel.op in names
        }
        assert [op for op, problems in found.items() if any("integer form" in problem for problem in problems) is not is_left] == []
