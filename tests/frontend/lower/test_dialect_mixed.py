"""Dialect graphs with floats in them, caches, masks and embeddings: element types, and values against NumPy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeploy.errors import UnsupportedError
from tests.frontend.lower.test_dialect_functions import checked, compile_dialect
from tests.models import Net

RANDOM = np.random.default_rng(2)


def requant(net: Net, x: str, mul: int, add: int, shift: int) -> str:
    return net.node("RequantShift", [x, net.c(float(mul)), net.c(float(add))], 1, div=1 << shift, n_levels=256, signed=1)[0]


def requantised(x: np.ndarray, mul: int, add: int, shift: int) -> np.ndarray:
    rounding = (1 << shift) >> 1
    return np.asarray(np.clip((x.astype(np.int64) * mul + add + rounding) >> shift, -128, 127))


def draw(*shape: int) -> np.ndarray:
    return RANDOM.integers(-128, 128, shape)


def floats(path: Path, net: Net, output: str, x: np.ndarray, kind: str) -> np.ndarray:
    """The float output of the C for one input."""
    network = compile_dialect(path, net, output, [kind])
    got = network.run([x], sanitize=True)[0]
    np.testing.assert_allclose(got, network.interpret([x])[0], atol=1e-6)
    return got


def test_quantise_and_dequantise_at_the_ends(tmp_path: Path) -> None:
    x, w = (RANDOM.standard_normal((2, 8)) * 20).astype(np.float32), draw(8, 6)
    net = Net()
    q = net.QuantizeLinear(net.x(2, 8), net.c(np.float32(0.5)), net.c(np.int8(0)))
    y = net.DequantizeLinear(requant(net, net.MatMul(q, net.c(w.astype(np.float32))), 5, 0, 10), net.c(np.float32(0.25)), net.c(np.int8(0)))
    steps = np.clip(np.rint(x / np.float32(0.5)), -128, 127).astype(np.int64)
    np.testing.assert_array_equal(floats(tmp_path / "m.onnx", net, y, x, "float32"), requantised(steps @ w, 5, 0, 10) * np.float32(0.25))


@pytest.mark.parametrize("zero", [0, 12])
def test_quantisation_in_standard_operators(zero: int, tmp_path: Path) -> None:
    """Div, Add, Round, Clip in front of integer operators; Sub, Mul behind them."""
    x, w = (RANDOM.standard_normal((2, 8)) * 20).astype(np.float32), draw(8, 6)
    net = Net()
    rounded = net.Round(net.Add(net.Div(net.x(2, 8), net.c(0.5)), net.c(float(zero))))
    acc = net.MatMul(net.Clip(rounded, net.c(-128.0), net.c(127.0)), net.c(w.astype(np.float32)))
    y = net.Tanh(net.Mul(net.Sub(requant(net, acc, 5, 0, 10), net.c(3.0)), net.c(0.03)))
    steps = np.clip(np.rint(x / np.float32(0.5) + zero), -128, 127).astype(np.int64)
    got = floats(tmp_path / "m.onnx", net, y, x, "float32")
    np.testing.assert_allclose(got, np.tanh((requantised(steps @ w, 5, 0, 10) - 3) * 0.03), atol=1e-6)


def test_a_float_function_between_integers_is_a_table(tmp_path: Path) -> None:
    x, scale = draw(2, 40), np.float32(0.05)
    net = Net()
    real = net.DequantizeLinear(requant(net, net.x(2, 40), 3, 7, 4), net.c(scale), net.c(np.int8(0)))
    gelu = net.Mul(net.Mul(real, net.c(0.5)), net.Add(net.Erf(net.Div(real, net.c(math.sqrt(2)))), net.c(1.0)))
    y = requant(net, net.QuantizeLinear(gelu, net.c(scale), net.c(np.int8(0))), 9, 0, 4)
    real_values = requantised(x, 3, 7, 4) * scale
    want = real_values * 0.5 * (1 + np.vectorize(math.erf)(real_values / math.sqrt(2)))
    got = checked(tmp_path / "m.onnx", net, y, [x], ["int8"])
    np.testing.assert_array_equal(got, requantised(np.clip(np.rint(want / scale), -128, 127), 9, 0, 4))
    assert not any(
        t.dtype.is_float for c in compile_dialect(tmp_path / "m.onnx", net, y, ["int8"]).network.program.calls for t in c.node.outputs
    )


@pytest.mark.parametrize("length", [0, 5])
def test_a_cache_grows_by_what_is_new(length: int, tmp_path: Path) -> None:
    past, new = draw(1, 2, length, 4), draw(1, 2, 3, 4)
    net = Net()
    y = requant(net, net.Concat(net.x(1, 2, length, 4), requant(net, net.x(1, 2, 3, 4), 3, 7, 4), axis=-2), 1, 0, 0)
    got = checked(tmp_path / "m.onnx", net, y, [past, new], ["int8", "int8"])
    np.testing.assert_array_equal(got, np.concatenate([past, requantised(new, 3, 7, 4)], axis=2))


def test_embeddings_and_positions(tmp_path: Path) -> None:
    tokens, table, places = RANDOM.integers(0, 30, (1, 6)), draw(30, 8), draw(6, 8)
    net = Net()
    rows = net.Gather(net.c(table.astype(np.float32)), net.x(1, 6), axis=0)
    y = requant(net, net.Add(rows, net.Gather(net.c(places.astype(np.float32)), net.c(np.arange(6, dtype=np.float32)), axis=0)), 1, 0, 1)
    np.testing.assert_array_equal(checked(tmp_path / "m.onnx", net, y, [tokens], ["uint8"]), requantised(table[tokens] + places, 1, 0, 1))


def test_masks_and_signs(tmp_path: Path) -> None:
    x, mask = draw(1, 2, 4, 4), np.tril(np.ones((4, 4), bool))
    net = Net()
    source = net.x(1, 2, 4, 4)
    y = requant(net, net.Max(net.Where(net.c(mask), source, net.c(-128.0)), net.c(-100.0)), 3, 0, 2)
    np.testing.assert_array_equal(
        checked(tmp_path / "m.onnx", net, y, [x], ["int8"]), requantised(np.maximum(np.where(mask, x, -128), -100), 3, 0, 2)
    )
    net = Net()
    y = requant(net, net.Neg(net.x(2, 9)), 3, 1, 3)
    x = draw(2, 9)
    np.testing.assert_array_equal(checked(tmp_path / "m.onnx", net, y, [x], ["int8"]), requantised(-x, 3, 1, 3))


def test_shared_heads_are_not_repeated(tmp_path: Path) -> None:
    q, k = draw(1, 4, 3, 8), draw(1, 2, 3, 8)
    net = Net()
    queries, keys = net.x(1, 4, 3, 8), net.x(1, 2, 3, 8)
    long = net.Reshape(net.Expand(net.Unsqueeze(keys, net.i(2)), net.i(1, 2, 2, 3, 8)), net.i(1, 4, 3, 8))
    y = requant(net, net.MatMul(queries, net.Transpose(long, perm=[0, 1, 3, 2])), 5, 0, 12)
    got = checked(tmp_path / "m.onnx", net, y, [q, k], ["int8", "int8"])
    np.testing.assert_array_equal(got, requantised(q @ np.repeat(k, 2, axis=1).transpose(0, 1, 3, 2), 5, 0, 12))
    calls = compile_dialect(tmp_path / "m.onnx", net, y, ["int8", "int8"]).network.program.calls
    assert [call.node.op for call in calls] == ["MatMul"]  # requantised in place


@pytest.mark.parametrize("op", ["Concat", "Max"])
def test_different_types_do_not_join(op: str, tmp_path: Path) -> None:
    net = Net()
    attrs: dict[str, Any] = {"axis": 1} if op == "Concat" else {}
    y = requant(net, getattr(net, op)(net.x(2, 4), net.x(2, 4), **attrs), 1, 0, 1)
    with pytest.raises(UnsupportedError, match=f"{op}\\) joins int8, uint8"):
        compile_dialect(tmp_path / "m.onnx", net, y, ["int8", "uint8"])
