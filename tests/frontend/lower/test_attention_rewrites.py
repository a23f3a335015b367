"""What attention is rewritten into computes the same, bit for bit, and is left alone where it would not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from deeploy.execution.simulation.interpreter import network_outputs
from deeploy.frontend.lower import horizontal_fusion as siblings
from deeploy.frontend.lower import rotations, shared_reads, tables
from deeploy.frontend.lower.quant import requant_constants
from deeploy.ir.rewriting import Pass, rewrite_graph
from deeploy.ir.surgeon import read_graph
from deeploy.planning.binding.assemble import assemble_program
from deeploy.target import load
from tests.frontend.lower import lowered as build

KERNELS = load("generic").kernels
Build = Callable[[np.random.Generator], gs.Graph]


def both(make: Build, step: Pass, seed: int) -> tuple[list[str], list[str]]:
    """The operators of a random graph before and after a pass; on random inputs both give the same."""
    results, operators = [], []
    for passes in ((), (step,)):
        random = np.random.default_rng(seed)
        graph = rewrite_graph(read_graph(make(random)), passes)
        program = assemble_program("net", graph, KERNELS)
        arrays = [drawn(random, t.dtype.numpy, *t.shape) for t in graph.inputs]
        results.append(network_outputs(program, arrays))
        operators.append([call.node.op for call in program.calls])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    return operators[0], operators[1]


def drawn(random: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    if np.dtype(dtype).kind == "f":
        return random.normal(size=shape).astype(dtype)
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def constant(random: np.random.Generator, dtype: Any, *shape: int) -> gs.Constant:
    return build.const(f"c{random.integers(2**40)}", drawn(random, dtype, *shape))


def named(graph: gs.Graph, dtype: Any, shape: Sequence[int]) -> gs.Variable:
    return build.variable(f"t{len(graph.nodes)}", dtype, shape)


def requantisation(random: np.random.Generator, ratio: Any, y: Any) -> tuple[list[gs.Tensor], dict[str, Any]]:
    """Operands and attributes of a requantisation as quantised files have them: as many bits as fit."""
    info = np.iinfo(y)
    mul, add, shift = requant_constants(ratio, int(random.integers(-500, 500)), int(random.integers(info.min, info.max)))
    tensors: list[gs.Tensor] = [build.const(f"{name}{random.integers(2**40)}", values) for name, values in (("mul", mul), ("add", add))]
    return tensors, {"epilogue": ("requantise",), "shift": shift, "low": int(info.min), "high": int(info.max)}


# ---- products of one tensor


def products(random: np.random.Generator, kind: str, count: int = 3) -> gs.Graph:
    """Random products of one tensor, each with a reader of its own; of ``ties``, a quarter of the results lies between two steps."""
    rows, depth = int(random.integers(1, 6)), int(random.integers(1, 80))
    is_float = kind == "float"
    x = build.variable("x", np.float32 if is_float else random.choice([np.int8, np.uint8]), [1, rows, depth])
    graph = gs.Graph([], [x], [])
    result = np.float32 if is_float else np.int32 if kind == "wide" else np.int8
    for number in range(count):
        width, trans = int(random.integers(1, 30)), bool(random.integers(2))
        w = constant(random, np.float32 if is_float else np.int8, *((width, depth) if trans else (depth, width)))
        attrs: dict[str, Any] = {"trans_a": False, "trans_b": trans, "a_zero_point": 0, "b_zero_point": 0}
        operands: list[gs.Tensor] = []
        if is_float:
            operands, attrs["epilogue"] = [constant(random, np.float32, width)], ("bias",)
        elif kind != "wide":
            scale = 2.0 ** (0 if kind == "alike" else random.uniform(-3, 3)) / 100 / depth
            ratio = scale * random.uniform(0.6, 1, width if random.integers(2) else 1)
            operands, own = requantisation(random, ratio if kind != "alike" else 1 / 100 / depth, result)
            attrs |= own
            if kind == "ties":
                w.values = np.sign(w.values)
                operands, own = requantisation(random, 0.25, result)
                attrs |= own | {"even": 1}
        y = build.add(graph, "MatMul", [x, w, *operands], named(graph, result, [1, rows, width]), f"product {number}", **attrs)
        if np.dtype(result) == np.int8:
            table = constant(random, np.int8, 256)
            y = build.add(graph, "Lookup", [y, table], named(graph, np.int8, y.shape))
        else:
            y = build.add(graph, "Clip", [y], named(graph, result, y.shape), low=-1000, high=1000)
        graph.outputs.append(y)
    return graph


@pytest.mark.parametrize("kind", ["float", "wide", "alike", "ties", "own scales"])
@pytest.mark.parametrize("seed", range(8))
def test_products_of_one_tensor_are_one(kind: str, seed: int) -> None:
    before, after = both(lambda random: products(random, kind), siblings.PASS, seed)
    assert before.count("MatMul") == 3
    # Multipliers of one shift have fewer bits: where these do not give every result, a product stays apart.
    assert after.count("MatMul") <= (2 if kind == "own scales" else 1)


def _another_input(graph: gs.Graph) -> None:
    other = build.variable("x2", graph.inputs[0].dtype, graph.inputs[0].shape)
    graph.inputs.append(other)
    graph.nodes[0].inputs[0] = other


def _another_range(graph: gs.Graph) -> None:
    graph.nodes[0].attrs["high"] = 100


def _an_output(graph: gs.Graph) -> None:
    graph.outputs[0] = graph.nodes[0].outputs[0]


def _a_part(graph: gs.Graph) -> None:
    y = graph.nodes[0].outputs[0]
    flat = build.reshape(graph, y, [y.shape[1], y.shape[2]], "flat")
    graph.outputs[0] = build.add(graph, "Concat", [flat, flat], build.variable("joined", y.dtype, [2 * y.shape[1], y.shape[2]]), axis=0)


def _large(graph: gs.Graph) -> None:
    for tensor in (graph.inputs[0], *(t for node in graph.nodes for t in node.outputs)):
        tensor.shape = [1, 10000, tensor.shape[-1]]


@pytest.mark.parametrize("change", [_another_input, _another_range, _an_output, _a_part, _large])
def test_products_that_have_to_stay_apart(change: Callable[[gs.Graph], None]) -> None:
    def make(random: np.random.Generator) -> gs.Graph:
        graph = products(random, "alike", 2)
        change(graph)
        return graph

    before, after = both(make, siblings.PASS, 1)
    assert before == after
    assert after.count("MatMul") == 2


# ---- rotations


def rotation(random: np.random.Generator, kind: str, change: str = "") -> gs.Graph:
    """x * cos + concat(-second half, first half) * sin with random scales, shapes and orders of operands; ``change`` breaks it.

    With "pairs" in ``change``, the halves are every other element.
    """
    half = int(random.integers(1, 9))
    shape, is_float = [1, int(random.integers(1, 4)), int(random.integers(1, 5)), 2 * half], kind == "float"
    dtype = np.float32 if is_float else np.int8 if kind == "dialect" else random.choice([np.int8, np.uint8])
    x, cos, sin = (build.variable(n, dtype, s) for n, s in (("x", shape), ("cos", shape[2:]), ("sin", [1, 1, *shape[2:]])))
    graph = gs.Graph([], [x, cos, sin], [])

    def operate(op: str, a: gs.Tensor, b: gs.Tensor, ratio: float) -> gs.Tensor:
        operands, attrs = ([], {}) if is_float else requantisation(random, ratio, dtype)
        if op == "Mul":
            attrs |= {name: 0 if is_float else int(random.integers(-9, 9)) for name in ("a_zero_point", "b_zero_point")}
        if op == "Mul" and random.integers(2):
            a, b = b, a
        return build.add(graph, op, [a, b, *operands], named(graph, dtype, np.broadcast_shapes(tuple(a.shape), tuple(b.shape))), **attrs)

    def part(begin: int) -> gs.Tensor:
        ends, steps = ([*shape[:3], begin + half], (1,) * 4) if "pairs" not in change else (list(shape), (1, 1, 1, 2))
        return build.add(
            graph, "Slice", [x], named(graph, dtype, [*shape[:3], half]), starts=(0, 0, 0, begin), ends=tuple(ends), steps=steps
        )

    def function(t: gs.Tensor) -> gs.Tensor:
        y = named(graph, dtype, t.shape)
        if is_float:
            return build.add(graph, "Unary", [t], y, function="neg", alpha=0.0, beta=0.0)
        if kind == "dialect":
            return operate("Mul", t, build.const(f"minus {len(graph.nodes)}", [-1], np.int8), 0.9)
        return build.add(graph, "Lookup", [t, constant(random, dtype, 256)], y)

    first, second = part(0), part(1 if "pairs" in change else half)
    parts = [second, function(first)] if change == "sign" and is_float else [function(second), first]
    if "order" in change:
        parts = parts[::-1]
    if change == "tables":
        parts = [function(parts[0]), function(parts[1])]
    if "pairs" in change:
        parts = [build.reshape(graph, p, [*p.shape, 1], f"{p.name} (column)") for p in parts]
        pairs = build.add(graph, "Concat", parts, named(graph, dtype, [*shape[:3], half, 2]), axis=4)
        turned = build.reshape(graph, pairs, shape, "turned")
    else:
        turned = build.add(graph, "Concat", parts, named(graph, dtype, shape), axis=3)
    c, s = operate("Mul", x, cos, 1 / 90), operate("Mul", turned, sin, 1 / 90)
    if change == "reader":
        graph.outputs.append(turned)
    pair = (c, s) if random.integers(2) else (s, c)
    if is_float or kind == "dialect" or random.integers(2):
        y = operate("Add", *pair, 0.7)
    else:
        info = np.iinfo(dtype)
        attrs = {"mul_a": 3 << 26, "mul_b": 5 << 25, "add": 1 << 27, "shift": 28, "low": int(info.min), "high": int(info.max), "even": 0}
        y = build.add(graph, "ScaledAdd", pair, named(graph, dtype, shape), **attrs)
    graph.outputs.insert(0, y)
    return graph


ROTATIONS = [("float", ""), ("dialect", ""), ("tables", ""), ("tables", "tables"), *((k, "pairs") for k in ("float", "dialect", "tables"))]


@pytest.mark.parametrize(("kind", "change"), ROTATIONS)
@pytest.mark.parametrize("seed", range(10))
def test_rotations_are_one_operator(kind: str, change: str, seed: int) -> None:
    _, after = both(lambda random: rotation(random, kind, change), rotations.PASS, seed)
    assert after == ["Rotate"]


@pytest.mark.parametrize(
    ("kind", "change"),
    [("float", "order"), ("float", "sign"), ("tables", "order"), ("float", "reader"), ("tables", "reader"), ("float", "pairs order")],
)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_no_rotation(kind: str, change: str, seed: int) -> None:
    before, after = both(lambda random: rotation(random, kind, change), rotations.PASS, seed)
    assert before == after
    assert "Rotate" not in after


# ---- heads that become rows


def mixed(random: np.random.Generator, kind: str) -> gs.Graph:
    """What every head mixed of its values, transposed into rows, and projected; ``kind`` says what is otherwise."""
    count, length, width = (int(n) for n in random.integers(2, 7, 3))
    a, b = build.variable("a", np.uint8, [1, count, length, 5]), build.variable("b", np.int8, [1, count, 5, width])
    graph = gs.Graph([], [a, b], [])
    zeros = {"trans_a": False, "trans_b": False, "a_zero_point": 0, "b_zero_point": 0}
    operands, attrs = requantisation(random, 1 / 300, np.int8)
    y = build.add(graph, "MatMul", [a, b, *operands], named(graph, np.int8, [1, count, length, width]), **zeros, **attrs)
    perm = (0, 1, 3, 2) if kind == "columns" else (0, 2, 1, 3)
    moved = build.transpose(graph, y, perm, "rows")
    flat = [1, moved.shape[1], moved.shape[2] * moved.shape[3]]
    rows = moved if kind == "strides" else build.reshape(graph, moved, flat, "flat")
    if kind == "reader":
        graph.outputs.append(build.add(graph, "Clip", [y], named(graph, np.int8, y.shape), low=-9, high=9))
    w = constant(random, np.int8, rows.shape[-1], 7)
    graph.outputs.append(build.add(graph, "MatMul", [rows, w], named(graph, np.int32, [*rows.shape[:-1], 7]), **zeros))
    return graph


@pytest.mark.parametrize("seed", range(5))
def test_heads_are_written_as_rows(seed: int) -> None:
    before, after = both(lambda random: mixed(random, ""), shared_reads.PACKING, seed)
    assert (before, after) == (["MatMul", "Copy", "MatMul"], ["MatMul", "MatMul"])


@pytest.mark.parametrize("kind", ["strides", "reader", "columns"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_reordered_otherwise_stays(kind: str, seed: int) -> None:
    before, after = both(lambda random: mixed(random, kind), shared_reads.PACKING, seed)
    assert before == after


# ---- what becomes of shares


def shares(random: np.random.Generator, kind: str) -> gs.Graph:
    """An integer softmax and a function of its results."""
    x = build.variable("x", np.int8, [1, int(random.integers(1, 5)), int(random.integers(1, 20))])
    graph = gs.Graph([], [x], [])
    table = build.const("exponentials", np.rint(np.exp(-np.arange(256) / 25) * 2**20).astype(np.uint32))
    dtype = random.choice([np.int8, np.uint8])
    zero = int(np.iinfo(dtype).min)
    attrs = {"levels": 255, "zero_point": zero, "low": zero, "high": zero + 255, "rounded": bool(random.integers(2))}
    y = build.add(graph, "Softmax", [x, table], named(graph, dtype, x.shape), **attrs)
    if kind == "table":
        z = build.add(graph, "Lookup", [y, constant(random, np.int8, 256)], named(graph, np.int8, x.shape))
    else:
        operands, own = requantisation(random, random.uniform(0.1, 3, x.shape[-1] if kind == "columns" else 1), np.int8)
        own.pop("epilogue")
        z = build.add(graph, "RequantShift", [y, *operands], named(graph, np.int8, x.shape), **own)
    graph.outputs = [z, y] if kind == "reader" else [z]
    return graph


@pytest.mark.parametrize("kind", ["table", "requantised"])
@pytest.mark.parametrize("seed", range(5))
def test_shares_become_something_else_at_once(kind: str, seed: int) -> None:
    _, after = both(lambda random: shares(random, kind), tables.PASS, seed)
    assert after == ["Softmax"]


@pytest.mark.parametrize("seed", range(2))
def test_shares_that_others_read_stay(seed: int) -> None:
    before, after = both(lambda random: shares(random, "reader"), tables.PASS, seed)
    assert before == after == ["Softmax", "RequantShift"]
    before, after = both(lambda random: shares(random, "columns"), tables.PASS, seed + 2)
    assert before == after == ["Softmax", "RequantShift"]
