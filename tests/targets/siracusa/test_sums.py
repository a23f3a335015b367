"""Sums of partial sums, with and without a residual connection: the cluster's kernels on the host, with the portable body of xpulp.h,
and networks of them on the host's machine model, whole and in tiles.
"""

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
from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.ir.values import Graph
from deeploy.operators import requantise
from deeploy.options import Options
from deeploy.planning.binding import kernels as bind
from deeploy.planning.binding.assemble import assemble_program
from deeploy.planning.planner.machine import machine_of
from deeploy.planning.planner.network import make_plan
from deeploy.target import Kernel, load
from tests.operators import harness
from tests.operators.kernels import draw, staged

PULP = harness.KERNELS.parent / "pulp"
BOTH: dict[str, Any] = {"mul_a": 3 << 14, "mul_b": 5 << 13, "offset": 1 << 15, "shift_sum": 16, "low_sum": -128, "high_sum": 127}

# Factor, half of a step, shift; and the form that it has in 32 bits.
FORMS = {"narrow": (45, 1 << 10, 11), "high": (1192384022, 1 << 36, 37)}
SHAPES = [((7,), 4), ((1, 1, 70), 2), ((2, 5, 6), 5), ((3, 1, 9), 3), ((1,), 2), ((4, 1), 3), ((2, 3, 5), 9)]


TYPES = (("s8", -128, 127), ("u8", 3, 250))


@pytest.fixture(autouse=True)
def pulp_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the harness find the sources."""
    monkeypatch.setattr(harness, "WARNINGS", (*harness.WARNINGS, f"-I{PULP}"))


def kernel(name: str) -> Kernel:
    return next(k for k in load("siracusa").kernels if k.name == name)


def factors(shape: tuple[int, ...], form: str, per_channel: bool) -> tuple[dict[str, np.ndarray], int]:
    """Constants of a requantisation, and its shift."""
    mul, half, shift = FORMS[form]
    channels = shape[-1] if per_channel else 1
    rng = np.random.default_rng(channels)
    each = (mul * rng.uniform(0.6, 1, channels)).astype(np.int32) if channels > 1 else np.array([mul], np.int32)
    return {"mul": each, "add": (rng.integers(-9, 9, channels) << shift) + half}, shift


def check_form(node: Any, form: str) -> None:
    found = requantise.of_node(node)
    assert found is not None and found.form == form


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("shape", "terms"), SHAPES)
def test_sum(shape: tuple[int, ...], terms: int, keepdims: bool) -> None:
    x = draw(np.random.default_rng(terms), "s32", terms, *shape)
    (y,) = harness.check(kernel("pulp_sum"), {"x": x}, "s32", {"axes": (0,), "keepdims": keepdims}, strided=keepdims)
    np.testing.assert_array_equal(y, x.sum(axis=0, keepdims=keepdims))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("shape", "terms", "y", "low", "high"), [(*s, *TYPES[i % 2]) for i, s in enumerate(SHAPES)])
def test_requantised_sum(shape: tuple[int, ...], terms: int, y: str, low: int, high: int, form: str, per_channel: bool) -> None:
    """Behind a bias where there are an odd number of terms."""
    has_bias = bool(terms % 2)
    rng = np.random.default_rng(terms)
    given, shift = factors(shape, form, per_channel)
    given = {"x": draw(rng, "s32", terms, *shape), **given}
    given |= {"bias": rng.integers(-3000, 3000, shape[-1]).astype(np.int32)} if has_bias else {}
    stages = ("bias", "requantise") if has_bias else ("requantise",)
    attrs = staged({"axes": (0,), "keepdims": False}, *stages, shift=shift, low=low, high=high)
    check_form(harness.make_node(kernel("pulp_sum"), given, y, attrs), form)
    harness.check(kernel("pulp_sum"), given, y, attrs, strided=per_channel)


# Factors of a residual connection and of the sum before it, with their shift: of 16 bits, and longer ones.
ADDED = {"short": (3 << 12, 5 << 11, 14), "long": (1192384022, -497609111, 31)}


@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("b", "y", "low", "high"), [("s8", "s8", -128, 127), ("u8", "s8", -100, 99), ("s8", "u8", 0, 200)])
@pytest.mark.parametrize(("shape", "terms"), SHAPES[1:3])
def test_residual_sum(
    shape: tuple[int, ...], terms: int, b: str, y: str, low: int, high: int, form: str, per_channel: bool, added: str
) -> None:
    rng = np.random.default_rng(terms)
    given, shift = factors(shape, form, per_channel)
    mul_a, mul_b, last = ADDED[added]
    attrs = {"shift": shift, "low": low, "high": high, "mul_a": mul_a, "mul_b": mul_b, "offset": 5 << (last - 1), "shift_sum": last}
    attrs |= {"low_sum": DType(y).range[0], "high_sum": 99 if b == "u8" else DType(y).range[1]}
    given = {"x": draw(rng, "s32", terms, *shape), "b": draw(rng, b, *shape), **given}
    node = harness.make_node(kernel("pulp_residual_sum"), given, y, attrs)
    check_form(node, form)
    macros = kernel("pulp_residual_sum").macros
    assert macros is not None and bool(macros(node)["SUM_SHORT"]) == (added == "short")
    harness.check(kernel("pulp_residual_sum"), given, y, attrs, strided=per_channel)


@pytest.mark.parametrize(
    ("terms", "axes", "x", "mul", "need"),
    [
        (2, (0,), "s32", 45, True),
        (1, (0,), "s32", 45, False),
        (2, (1,), "s32", 45, False),
        (2, (0, 1), "s32", 45, False),
        (2, (0,), "s8", 45, False),
        (2, (0,), "s32", -45, False),
    ],
)
def test_what_is_left_to_the_portable_kernel(terms: int, axes: tuple[int, ...], x: str, mul: int, need: bool) -> None:
    """Other axes or types, a single term, and factors that have no form of 32 bits."""
    given = {"x": draw(np.random.default_rng(1), x, terms, 3, 5), "mul": np.array([mul], np.int32), "add": np.array([1 << 10], np.int32)}
    attrs = staged({"axes": axes, "keepdims": False}, "requantise", shift=11, low=-128, high=127)
    node = harness.make_node(kernel("reduce_sum"), given, "s8", attrs)
    (chosen,) = bind.select_kernels(load("siracusa").kernels, [node])
    assert chosen[0].name == ("pulp_sum" if need else "pulp_reduce_sum" if x == "s8" else "reduce_sum")


# shape of y, terms, channels of the factors
SUMS = [((1, 1, 512), 4, 1), ((3, 1, 37), 5, 37), ((2, 4, 6, 16), 2, 1), ((9, 1), 3, 1)]


def residual_sums(l1: int, cores: int) -> tuple[Compiled, list[np.ndarray], list[np.ndarray]]:
    """A network of residual sums side by side, its inputs and its outputs."""
    rng = np.random.default_rng(3)
    inputs, outputs, arrays, wanted = list[Tensor](), list[Tensor](), [], []
    for number, (shape, terms, channels) in enumerate(SUMS):
        x, b = (rng.integers(-size, size, s).astype(t) for size, s, t in ((2000, (terms, *shape), "i4"), (128, shape, "i1")))
        mul, add = rng.integers(30, 60, channels).astype(np.int32), np.full(channels, 1 << 10, np.int32)
        t = np.clip((x.sum(axis=0) * mul.astype(np.int64) + add) >> 11, -128, 127)
        wanted.append(np.clip((t * BOTH["mul_a"] + b.astype(np.int64) * BOTH["mul_b"] + BOTH["offset"]) >> 16, -128, 127).astype(np.int8))
        ins = [Tensor(f"{name}{number}", array.shape, DType.of(array.dtype)) for name, array in (("x", x), ("b", b))]
        factors = (Tensor(f"{name}{number}", array.shape, DType.of(array.dtype), array) for name, array in (("mul", mul), ("add", add)))
        attrs = {**BOTH, "shift": 11, "low": -128, "high": 127}
        inputs += ins
        outputs += Node(f"s{number}", "ResidualSum", (*ins, *factors), (Tensor(f"y{number}", shape, DType.INT8),), attrs).outputs
        arrays += [x, b]
    graph = Graph("network", tuple(inputs), tuple(outputs))
    target, options = load("siracusa"), Options(memory={"l1": l1}, cores=cores)
    machine = machine_of(target, options)
    assert machine is not None, "siracusa has scratchpad memories"
    plan = make_plan(assemble_program("network", graph, target.kernels), target, machine, options.seconds)
    sources, results = describe_ports(graph, True, {})
    return Compiled({"network": Network(plan, "sums", tuple(sources), tuple(results), "declared", ())}, {}), arrays, wanted


@pytest.mark.parametrize(("l1", "cores"), [(60_000, 8), (60_000, 3), (1_500, 8), (1_500, 1)])
def test_residual_sums(tmp_path: Path, l1: int, cores: int) -> None:
    made, arrays, wanted = residual_sums(l1, cores)
    if l1 < 2000:
        assert made.plan.tiling(0).tiles > 1
    made.write(tmp_path)
    entry = select_network(json.loads((tmp_path / "deploy.json").read_text()))
    got = host.Host(sanitize=True).run(tmp_path, entry, [arrays]).outputs
    for have, want in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(have[0], want)
