"""Kernels of the cluster that move elements or work on each, on the host, with the portable body of xpulp.h."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deeploy.api import Compiled, Network
from deeploy.backend.project import select_network
from deeploy.execution.runners import host
from deeploy.frontend.io import describe_ports
from deeploy.ir.nodes import INTEGER_FORM, Tensor, compute
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators import rotate
from deeploy.options import Options
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.planner.machine import machine_of
from deeploy.planning.planner.network import make_plan
from deeploy.target import Kernel, load
from tests.operators import harness
from tests.operators.kernels import draw

PULP = harness.KERNELS.parent / "pulp"
ROWS = [(1,), (5, 3), (3, 65), (2, 1, 3, 2, 3, 6)]


@pytest.fixture(autouse=True)
def pulp_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the harness find the sources."""
    monkeypatch.setattr(harness, "WARNINGS", (*harness.WARNINGS, f"-I{PULP}"))


def kernel(name: str) -> Kernel:
    return next(k for k in load("siracusa").kernels if k.name == name)


@pytest.mark.parametrize("x", ["s8", "u8"])
@pytest.mark.parametrize("shape", ROWS)
def test_lookup(shape: tuple[int, ...], x: str) -> None:
    rng = np.random.default_rng(1)
    harness.check(kernel("pulp_lookup"), {"x": draw(rng, x, *shape), "table": draw(rng, "u8", 256)}, "u8", strided=len(shape) != 2)


@pytest.mark.parametrize("x", ["s8", "u8"])
@pytest.mark.parametrize("is_rounded", [True, False])
@pytest.mark.parametrize("shape", ROWS)
def test_softmax(shape: tuple[int, ...], is_rounded: bool, x: str) -> None:
    """Exponentials from one to many thousands, sums of zero among them."""
    rng = np.random.default_rng(2)
    attrs: dict[str, Any] = {"levels": 255, "zero_point": -128, "low": -128, "high": 127, "rounded": is_rounded}
    for table in (np.exp(-np.arange(256) / 30) * 2**18, np.full(256, 1), np.zeros(256), np.where(np.arange(256) < 2, 3, 1)):
        given = {"x": draw(rng, x, *shape), "table": np.rint(table).astype(np.uint32)}
        harness.check(kernel("pulp_softmax"), given, "s8", attrs, strided=True)
    given["results"] = draw(rng, "s8", 256)
    harness.check(kernel("pulp_softmax"), given, "s8", {**attrs, "smallest": -128}, strided=True)


def test_quotients_of_a_softmax_are_exact() -> None:
    """Sums and numerators of almost 32 bits, rows whose quotients are ties."""
    for count, largest in ((2, 2**23 - 2**15), (6, 7), (34, 1), (3, 2**22 + 1)):
        table = np.full(256, largest, np.uint32)
        table[1:] = np.random.default_rng(count).integers(0, largest, 255, endpoint=True)
        x = np.random.default_rng(5).integers(-3, 0, (40, count), endpoint=True).astype(np.int8)
        for is_rounded in (True, False):
            attrs = {"levels": 255, "zero_point": 0, "low": 0, "high": 255, "rounded": is_rounded}
            harness.check(kernel("pulp_softmax"), {"x": x, "table": table}, "u8", attrs)


@pytest.mark.parametrize(("levels", "largest"), [(255, 1), (1, 3), (7, 511), (255, 686), (65_535, 500), (4_096, 2_049)])
def test_inverses_of_sums_are_exact(levels: int, largest: int) -> None:
    """Sums from one on, and numerators among them and their multiples."""
    attrs = {"levels": levels, "zero_point": 0, "low": 0, "high": 2**16 - 1, "rounded": False}
    table = np.random.default_rng(levels).integers(0, largest, 256, endpoint=True).astype(np.uint32)
    table[:9] = (largest, largest // 2, 1, 0, largest, 0, largest // 3, largest - 1, 1)
    for count in (1, 2, 33):
        x = np.random.default_rng(count).integers(-8, 0, (99, count), endpoint=True).astype(np.int8)
        x[50:] *= 15
        given = {"x": x, "table": table}
        chosen = kernel("pulp_softmax").macros
        assert chosen is not None and not any(chosen(harness.make_node(kernel("pulp_softmax"), given, "s32", attrs)).values())
        harness.check(kernel("pulp_softmax"), given, "s32", attrs)


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("weight", ["s8", "s16", "s32"])
def test_norms(shape: tuple[int, ...], weight: str) -> None:
    rng = np.random.default_rng(4)
    most = {"s8": 127, "s16": 2**15 - 1, "s32": 2**20}[weight]
    kind = np.dtype({"s8": "i1", "s16": "i2", "s32": "i4"}[weight])
    w, b = (rng.integers(-most, most, shape[-1], endpoint=True).astype(kind) for _ in range(2))
    for x in ("s8", "u8"):
        for size in (1.0, 0.02):
            given = {"x": (draw(rng, x, *shape) * size).astype(x.replace("s8", "i1").replace("u8", "u1")), "weight": w}
            named = ("weight", "bias")
            harness.check(kernel("pulp_layer_norm"), {**given, "bias": b}, "s8", {"shift": 3}, named, strided=True)
            if x == "s8":
                harness.check(kernel("pulp_rms_norm"), given, "s8", {"shift": 3}, ("weight",), strided=True)


@pytest.mark.parametrize("shape", [(5, 3), (3, 65), (4, 256)])
@pytest.mark.parametrize("centred", [True, False])
def test_standardised_rows(shape: tuple[int, ...], centred: bool) -> None:
    """Results of up to 29 bits and of few; rows of nothing but one element, whose root may be a power of two, and without deviation."""
    rng, n = np.random.default_rng(6), shape[-1]
    most = 29 - (n - 1).bit_length() // 2 - (n - 1).bit_length() % 2 if centred else 29
    mul, add = rng.integers(2**26, 2**28, n).astype(np.int32), rng.integers(-(2**40), 2**40, n)
    for fraction, epsilon in ((most, 0), (20, 1 << 18), (1, 1 << 40)):
        x = draw(rng, "u8" if epsilon else "s8", *shape)
        rows = x.reshape(-1, n)
        rows[0], rows[-1] = 9, 9
        rows[-1][-1] = 9 + 64
        attrs = {"centred": centred, "zero_point": 9, "fraction": fraction, "epsilon": epsilon}
        harness.check(kernel("pulp_standardise"), {"x": x}, "s32", attrs, strided=True)
        stage = {"epilogue": ("requantise",), "shift": 50 if epsilon else 34, "low": -128, "high": 127}
        harness.check(kernel("pulp_standardise"), {"x": x, "mul": mul, "add": add}, "s8", {**attrs, **stage}, strided=True)


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotations(interleaved: bool) -> None:
    """Products and sums of 64 bits in the network, ties that go up, down and to even steps; what has no form in 32 bits is refused."""
    rng = np.random.default_rng(7)
    x, table = draw(rng, "s8", 3, 2, 8), draw(rng, "s8", 2, 256)
    angles = {"cosine": draw(rng, "s8", 3, 1, 8), "sine": draw(rng, "u8", 3, 1, 8)}
    long = (2039811374, 1809848131, 29831206490, 31, -128, 127)
    for even in (-1, 0, 1):
        attrs = {
            "interleaved": interleaved,
            "cosine": (-2, -1, 1124440670, -893353197568, 37, -128, 127, even),
            "sine": (3, 0, 2500, 0, 12, -128, 127, even),
            "sum": (*long, even),
        }
        harness.check(kernel("pulp_rotate"), {"x": x, **angles, "table": table}, "s8", attrs, ("table",), strided=True)
    given = {"x": x, **angles, "table": table}
    node = harness.make_node(kernel("pulp_rotate"), given, "s8", {**attrs, "cosine": (0, 0, 3 << 29, 1, 0, -(2**40), 2**40, -1)})
    assert rotate.in_words(node) is None


@pytest.mark.slow
def test_quotients_of_a_norm_are_exact() -> None:
    """Every deviation that bytes have, products around its multiples."""
    for size in range(1, 128, 3):
        x = np.where(np.arange(64) % 2, size, -size).astype(np.int8)
        w = np.arange(-32, 32, dtype=np.int32) * 65_535 + np.arange(64, dtype=np.int32) % 3 - 1
        harness.check(kernel("pulp_rms_norm"), {"x": x, "weight": w}, "s8", {"shift": 12}, ("weight",))


# x shape, order of its axes in y, NumPy type
MOVES = (
    ((3, 17, 13), (1, 2, 0), "i1"),
    ((17, 13, 3), (2, 0, 1), "u1"),
    ((9, 14), (1, 0), "i1"),
    ((64, 31), (1, 0), "u1"),
    ((2, 5, 4, 7), (0, 2, 1, 3), "i1"),
    ((6, 4, 4), (1, 0, 2), "u1"),
    ((4, 3, 33), (1, 0, 2), "i1"),
    ((3, 2, 2, 3, 5), (4, 1, 3, 0, 2), "i1"),
    ((1, 7, 1, 5), (3, 2, 1, 0), "u1"),
    ((2, 24, 2, 4), (1, 0, 3, 2), "i1"),
    ((1, 1, 1), (2, 1, 0), "i1"),
    ((6, 7, 5), (2, 0, 1), "i2"),
    ((5, 7, 6), (1, 2, 0), "i4"),
    ((3, 11, 2), (1, 0, 2), "f4"),
    ((4, 3, 2), (2, 1, 0), "?"),
)


def moved(l1: int) -> tuple[Compiled, list[np.ndarray]]:
    """A network of transpositions side by side, and its inputs."""
    rng = np.random.default_rng(3)
    inputs, outputs, arrays = list[Tensor](), list[Tensor](), []
    for number, (shape, perm, kind) in enumerate(MOVES):
        array = rng.integers(0, 2 if kind == "?" else 100, shape).astype(kind)
        inputs.append(Tensor(f"x{number}", shape, DType.of(array.dtype)))
        outputs.append(compute("Transpose", inputs[-1], name=f"y{number}", called=f"t{number}", domain=INTEGER_FORM, perm=perm))
        arrays.append(array)
    graph = Graph("network", tuple(inputs), tuple(outputs))
    target, options = load("siracusa"), Options(memory={"l1": l1})
    machine = machine_of(target, options)
    assert machine is not None, "siracusa has scratchpad memories"
    program = assemble_program("network", graph, [kernel for kernel in target.kernels if kernel.engine == "cluster"])
    plan = make_plan(program, target, machine, options.seconds)
    sources, results = describe_ports(graph, True, {})
    return Compiled({"network": Network(plan, "moves", tuple(sources), tuple(results), "declared", ())}, {}), arrays


@pytest.mark.parametrize("l1", [60_000, 1_500])
def test_transpositions(tmp_path: Path, l1: int) -> None:
    """Whole, and in tiles of a few rows."""
    made, arrays = moved(l1)
    assert "pulp_copy" in {call.kernel.name for call in made.plan.program.calls}
    made.write(tmp_path)
    entry = select_network(json.loads((tmp_path / "deploy.json").read_text()))
    got = host.Host(sanitize=True).run(tmp_path, entry, [arrays]).outputs
    for (shape, perm, _), array, have in zip(MOVES, arrays, got, strict=True):
        np.testing.assert_array_equal(have[0], array.transpose(perm), err_msg=f"{shape} in order {perm}")
