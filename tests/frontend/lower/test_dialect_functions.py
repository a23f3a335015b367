"""The dialect's softmaxes, norms and functions through the whole compiler, against scalar Python written from its formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import deeploy
from deeploy.errors import DeeployError
from tests.models import Net, save_graph

RANDOM = np.random.default_rng(11)
Row = list[int]


def compile_dialect(
    path: Path, net: Net, output: str, types: list[str], target: str = "generic", options: deeploy.Options | None = None
) -> deeploy.Compiled:
    graph = helper.make_graph(net.nodes, "net", net.inputs, [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], net.constants)
    save_graph(graph, path, 13)
    named = dict(zip([v.name for v in net.inputs], types, strict=True))
    return deeploy.compile(path, target, input_types=named, **(options.given() if options else {}))


Run = Callable[[Path, Net, str, list[np.ndarray], list[str]], np.ndarray]


def checked(
    path: Path, net: Net, output: str, inputs: list[np.ndarray], types: list[str], target: str = "generic", l1: int | None = None
) -> np.ndarray:
    """The output of the C under sanitizers, which must be that of the interpreter."""
    options = deeploy.Options(memory={"l1": l1}) if l1 else None
    network = compile_dialect(path, net, output, types, target, options)
    got = network.run(inputs, sanitize=True)[0]
    np.testing.assert_array_equal(got, network.interpret(inputs)[0])
    return got.astype(np.int64)


@pytest.fixture(params=["generic", pytest.param("siracusa", marks=pytest.mark.slow)])
def run(request: pytest.FixtureRequest) -> Run:
    """``checked`` on both targets; cut to tiles where memory is managed."""
    return partial(checked, target=request.param, l1=2500 if request.param == "siracusa" else None)


def along_rows(x: np.ndarray, function: Callable[[Row], Row]) -> np.ndarray:
    return np.array([function([int(v) for v in row]) for row in x.reshape(-1, x.shape[-1])]).reshape(x.shape)


def draw(kind: str, *shape: int) -> np.ndarray:
    info = np.iinfo(kind)
    return RANDOM.integers(info.min, int(info.max) + 1, shape)


def cdiv(n: int, d: int) -> int:
    return abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1)


def i_softmax(row: Row, a: int, b: int, c: int, log2: int, levels: int) -> Row:
    e = []
    for x in row:
        t = x - max(row)
        z = min(max(-cdiv(t, log2), 0), 31)
        e.append((a * (t + z * log2 + b) ** 2 + c) >> z)
    return [v * (levels - 1) // sum(e) for v in e]


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("parameters", [(1, 345, 62395, 255, 256), (1, 173, 15599, 127, 256), (3, 40, 900, 7, 128), (1, 30000, 5, 19, 256)])
def test_i_softmax(kind: str, parameters: tuple[int, int, int, int, int], tmp_path: Path, run: Run) -> None:
    x = draw(kind, 2, 5, 70)
    net = Net()
    names = dict(zip(["coeffA", "coeffB", "coeffC", "log2", "n_levels"], parameters, strict=True))
    y = net.node("iSoftmax", [net.x(2, 5, 70)], 1, **{k: helper.make_tensor(k, TensorProto.FLOAT, [1], [v]) for k, v in names.items()})[0]
    got = run(tmp_path / "m.onnx", net, y, [x], [kind])
    np.testing.assert_array_equal(got, along_rows(x, lambda row: i_softmax(row, *parameters)))


def ita_max(row: Row, levels: int) -> Row:
    shifts = [(max(row) - x + 16) >> 5 for x in row]
    inverse = (levels - 1) * 256 // sum(256 >> s for s in shifts)
    return [inverse >> s for s in shifts]


def ita_partial_max(row: Row, levels: int, group: int) -> Row:
    acc, gm = 0, -128
    for begin in range(0, len(row) // group * group, group):
        part = row[begin : begin + group]
        ss = (max(part) - gm + 16) >> 5 if max(part) > gm else 0
        gm = max(gm, max(part))
        acc = (acc >> ss) + sum(256 >> ((gm - x + 16) >> 5) for x in part)
    return [((levels // 2 - 1) * 256 // acc) >> ((gm - x + 16) >> 5) for x in row]


def test_ita_max(tmp_path: Path, run: Run) -> None:
    x = draw("int8", 1, 4, 9, 64)
    net = Net()
    y = net.node("ITAMax", [net.x(1, 4, 9, 64)], 1, n_levels=256)[0]
    np.testing.assert_array_equal(run(tmp_path / "m.onnx", net, y, [x], ["int8"]), along_rows(x, lambda row: ita_max(row, 256)))


@pytest.mark.parametrize("group", [1, 16, 64])
def test_ita_partial_max(group: int, tmp_path: Path, run: Run) -> None:
    x = np.sort(draw("int8", 3, 7, 64), axis=-1) if group == 16 else draw("int8", 3, 7, 64)
    net = Net()
    y = net.node("ITAPartialMax", [net.x(3, 7, 64)], 1, n_levels=256, group_width=group)[0]
    got = run(tmp_path / "m.onnx", net, y, [x], ["int8"])
    np.testing.assert_array_equal(got, along_rows(x, lambda row: ita_partial_max(row, 256, group)))


def test_an_incomplete_group_adds_nothing(tmp_path: Path, run: Run) -> None:
    x = draw("int8", 5, 40)
    x[:, 32:] = -128  # below every maximum, where a larger one would have a negative shift
    net = Net()
    y = net.node("ITAPartialMax", [net.x(5, 40)], 1, n_levels=256, group_width=16)[0]
    got = run(tmp_path / "m.onnx", net, y, [x], ["int8"])
    np.testing.assert_array_equal(got, along_rows(x, lambda row: ita_partial_max(row, 256, 16)))


@pytest.mark.parametrize(("kind", "n", "size"), [("int8", 64, 4_000_000), ("uint8", 33, 900), ("int16", 50, 30)])
def test_norms(kind: str, n: int, size: int, tmp_path: Path, run: Run) -> None:
    x, w, b = draw(kind, 2, 6, n), RANDOM.integers(-size, size, n), RANDOM.integers(-size, size, n)
    x[0, 0] = 7  # no deviation at all
    depth = 4 if size < 1000 else 16

    def layer(row: Row) -> Row:
        c = [v - cdiv(sum(row), n) for v in row]
        std = math.isqrt(sum(v * v for v in c) // n + 1)
        y = [(cdiv(v * int(w[i]), std) + int(b[i])) >> depth for i, v in enumerate(c)]
        return [(v + 128) % 256 - 128 for v in y]

    def rms(row: Row) -> Row:
        std = math.isqrt(sum(v * v for v in row) // n + 1)
        return [min(max(cdiv(v * int(w[i]), std) >> depth, -128), 127) for i, v in enumerate(row)]

    for op, function, constants in (("iLayerNorm", layer, [w, b]), ("iRMSNorm", rms, [w])):
        net = Net()
        inputs = [net.x(2, 6, n), *(net.c(c.astype(np.float32)) for c in constants)]
        y = net.node(op, inputs, 1, D=1 << depth, n_levels=256)[0]
        np.testing.assert_array_equal(run(tmp_path / "m.onnx", net, y, [x], [kind]), along_rows(x, function))


@pytest.mark.parametrize(("shape", "factor"), [((12, 10), 425), ((10,), 2**20), ((12, 1), -7)])
@pytest.mark.parametrize("is_constant", [True, False])
def test_no_norm(shape: tuple[int, ...], factor: int, is_constant: bool, tmp_path: Path, run: Run) -> None:
    x, w, b = draw("int8", 2, 12, 10), draw("int8", *shape) // 30, draw("int8", 10)
    net = Net()
    source = net.x(2, 12, 10)
    weight = net.c(w.astype(np.float32)) if is_constant else net.x(*shape)
    y = net.node("iNoNorm", [source, weight, net.c(b.astype(np.float32))], 1, D=1 << 9, mul=factor, n_levels=256)[0]
    inputs = [x] if is_constant else [x, w]
    got = run(tmp_path / "m.onnx", net, y, inputs, ["int8"] * len(inputs))
    np.testing.assert_array_equal(got, ((x * w + b) * factor) >> 9)


def gelu(x: np.ndarray, b: int, one: int) -> np.ndarray:
    q = np.minimum(np.abs(x), -b)
    return np.asarray(x * ((one + np.sign(x) * (one - (q + b) ** 2)) >> 1))


def hard_swish(x: np.ndarray, three: int, six: int, one_over_six: int) -> np.ndarray:
    return np.asarray(x * (np.clip(x + three, 0, six) * one_over_six))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16"])
def test_functions(kind: str, tmp_path: Path, run: Run) -> None:
    x = draw(kind, 3, 50) // (1 if kind != "int16" else 50)
    cases: list[tuple[str, dict[str, int], np.ndarray]] = [
        ("iGELU", {"b": -83, "one": 6889}, gelu(x, -83, 6889)),
        ("iHardswish", {"three": 122, "six": 245, "one_over_six": 42}, hard_swish(x, 122, 245, 42)),
        ("TrueIntegerDiv", {"Delta": 16384, "eta": 200000, "y": 2, "eps": 1}, x * ((16384 * 200000) // 400001)),
        ("TrueIntegerDiv", {"Delta": 100, "eta": 3, "y": -7, "eps": 1}, x * -15),
    ]
    for op, attrs, want in cases:
        net = Net()
        y = net.node(op, [net.x(3, 50)], 1, **attrs)[0]
        np.testing.assert_array_equal(run(tmp_path / "m.onnx", net, y, [x], [kind]), want)
        net = Net()
        y = net.node(op, [net.x(3, 50)], 1, **attrs)[0]
        z = net.node("RequantShift", [y, net.c(-3.0), net.c(17.0)], 1, div=1 << 13, n_levels=256, signed=1)[0]
        got = run(tmp_path / "m.onnx", net, z, [x], [kind])
        np.testing.assert_array_equal(got, np.clip((want * -3 + 17 + (1 << 12)) >> 13, -128, 127))


def test_a_function_and_its_requantisation_are_one_table(tmp_path: Path) -> None:
    net = Net()
    y = net.node("iGELU", [net.x(3, 50)], 1, b=-83, one=6889)[0]
    z = net.node("RequantShift", [y, net.c(5.0), net.c(1.0)], 1, div=1 << 13, n_levels=256, signed=1)[0]
    calls = compile_dialect(tmp_path / "m.onnx", net, z, ["int8"]).network.program.calls
    assert [call.node.op for call in calls] == ["Lookup"] and calls[0].node.outputs[0].dtype.value == "s8"


@pytest.mark.parametrize("shape", [(4, 30), (4, 1), (1,)])
def test_integer_div(shape: tuple[int, ...], tmp_path: Path, run: Run) -> None:
    a, b = draw("int8", 4, 30), draw("uint8", *shape)
    net = Net()
    y = net.node("IntegerDiv", [net.x(4, 30), net.x(*shape)], 1, Delta=255, eps=3, eta=17)[0]

    def divide(n: int, m: int) -> int:
        n, d = 255 * 17 * n, 17 * m + 3
        return cdiv(n + (d >> 1) * (1 if n >= 0 else -1), d)

    want = np.vectorize(divide)(a, np.broadcast_to(b, a.shape))
    np.testing.assert_array_equal(run(tmp_path / "m.onnx", net, y, [a, b], ["int8", "uint8"]), want)


@pytest.mark.parametrize(
    ("op", "constants", "attrs", "message"),
    [
        ("iSoftmax", 0, {"coeffA": 1, "coeffB": 2, "coeffC": 3, "log2": 0, "n_levels": 256}, "log2 = 0"),
        ("iSoftmax", 0, {"coeffA": 1, "coeffB": 2, "n_levels": 256, "log2": 3}, "lacks the attribute 'coeffC'"),
        ("ITAPartialMax", 0, {"n_levels": 256, "group_width": 16}, "groups of 16 from rows of 8"),
        ("iRMSNorm", 8, {"D": 48, "n_levels": 256}, "D = 48"),
        ("iRMSNorm", 5, {"D": 64, "n_levels": 256}, r"an input 1 of shape \[5\], which does not broadcast to \[2, 8\]"),
        ("iGELU", 0, {"b": 5, "one": 9}, "b = 5"),
        ("TrueIntegerDiv", 0, {"Delta": 1, "eta": 2, "y": -1, "eps": 2}, "divides by zero"),
        ("TrueIntegerDiv", 0, {"Delta": 2**30, "eta": 4, "y": 0, "eps": 1}, "fit 32 bits"),
        ("IntegerDiv", 1, {"Delta": 2**30, "eta": 2**30, "eps": 2}, "Delta\\*eta"),
    ],
)
def test_what_has_no_meaning_is_refused(op: str, constants: int, attrs: dict[str, Any], message: str, tmp_path: Path) -> None:
    net = Net()
    weights = [net.c(np.arange(1, constants + 1, dtype=np.float32))] if constants else []
    y = net.node(op, [net.x(2, 8), *weights], 1, **attrs)[0]
    with pytest.raises(DeeployError, match=message):
        compile_dialect(tmp_path / "m.onnx", net, y, ["int8"])
