"""How long buffers live, which of them a call may write over others, and how much room is asked for and taken from which step to which."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.operators.views import Access
from deeploy.planning.binding.kernels import bound_geometry
from deeploy.planning.packing.addresses import Placement
from deeploy.planning.packing.lifetimes import FOR_EVER, OccupiedBytes, block_lifetimes, wanted_blocks
from deeploy.planning.program import Buffer, Call, Operand, Program, Role, buffer_spans, overwritten_pairs, united_buffers
from deeploy.planning.tiling.loops import CallTiling, Stream, TileLoop
from deeploy.target import load

ADD = next(kernel for kernel in load("generic").kernels if kernel.name == "add")


@pytest.mark.parametrize(
    ("types", "a_shape", "pairs"),
    [
        (("s8", "s8", "s8"), (3, 4, 2), ["a", "b"]),
        (("s8", "s8", "s8"), (3, 4, 1), ["b"]),  # fewer elements
        (("u16", "s8", "s8"), (3, 4, 1), ["b"]),  # as many bytes, but each element of a is needed for two of y
        (("u16", "u16", "s8"), (3, 4, 2), []),
    ],
)
def test_an_output_lies_over_an_input_of_the_same_elements(types: tuple[str, ...], a_shape: tuple[int, ...], pairs: list[str]) -> None:
    tensors = [Tensor(n, s, DType(t)) for n, s, t in zip("aby", (a_shape, (3, 4, 2), (3, 4, 2)), types, strict=True)]
    node = Node("node", "Add", tuple(tensors[:2]), tuple(tensors[2:]), {"epilogue": ("requantise",)})
    body = Node("node", "Add", tuple(tensors[:2]), tuple(tensors[2:]), {})
    operands = {t.name: Operand(t.name, Access.dense(t.shape)) for t in tensors}
    buffers = {t.name: Buffer(t.name, t.name, Role.LOCAL, t.dtype, t.shape) for t in tensors}
    call = Call(node, ADD, bound_geometry(ADD, body, {}), operands, "call", {})
    assert overwritten_pairs(Program("net", buffers, (call,), (), (), {}), call) == [("y", x) for x in pairs]


def test_what_is_read_later_lives_on() -> None:
    """c = a + b, d = a + c: the second call still reads a, so that c may lie over b alone, and d over a or c."""
    tensors = {name: Tensor(name, (3, 4, 2), DType("s8")) for name in "abcd"}
    buffers = {t.name: Buffer(t.name, t.name, Role.LOCAL, t.dtype, t.shape) for t in tensors.values()}
    calls = []
    for left, right, result in ("abc", "acd"):
        node = Node(result, "Add", (tensors[left], tensors[right]), (tensors[result],), {"epilogue": ("requantise",)})
        body = Node(result, "Add", node.inputs, node.outputs, {})
        names = dict(zip("aby", (left, right, result), strict=True))
        operands = {operand: Operand(name, Access.dense((3, 4, 2))) for operand, name in names.items()}
        calls.append(Call(node, ADD, bound_geometry(ADD, body, {}), operands, result, {}))
    program = Program("net", buffers, tuple(calls), (), (), {})
    assert buffer_spans(program) == {"a": (0, 1), "b": (0, 0), "c": (0, 1), "d": (1, 1)}
    assert united_buffers(program) == {0: ("c", "b"), 1: ("d", "a")}
    blocks = {(*sorted(one.buffers), one.first, one.last, one.size) for one in block_lifetimes(program)}
    assert blocks == {("b", "c", 0, 1, 24), ("a", "d", 0, 1, 24)}


@pytest.mark.parametrize(
    ("links", "first"),
    [
        ((None, None, None, None), [0, 0, 1, 2]),
        ((None, "send", "send", None), [0, 0, 0, 0]),  # a Send is over before anything arrives that is fetched while it runs
        ((None, None, "send", None), [0, 0, 1, 1]),
        (("send", "send", "recv", None), [0, 0, 0, 2]),
    ],
)
def test_windows_take_all_their_slots_from_where_their_fetch_begins(links: tuple[str | None, ...], first: list[int]) -> None:
    kernels = [SimpleNamespace(engine="cluster", link=link) for link in links]
    calls = [SimpleNamespace(name=f"c{i}", kernel=kernel, scratch={}, turns=(1, None)) for i, kernel in enumerate(kernels)]
    program: Any = SimpleNamespace(calls=calls, buffers={})
    early, late = (Stream(name, "L2_L1", 0, 1, 1, depth, 64, False, is_prefetchable=depth == 2) for name, depth in (("w", 2), ("x", 1)))
    candidate: Any = SimpleNamespace(tiling=CallTiling((TileLoop("k", 2, 1),), (early, late), None), is_double=True)
    found = wanted_blocks(program, load("siracusa"), [candidate] * 4, {}, [], {})
    for step in range(4):
        windows = {block.buffers[0]: block for block in found["L1"] if block.last == step}
        assert set(windows) == {f"c{step}.w", f"c{step}.x"} and not any(blocks for level, blocks in found.items() if level != "L1")
        assert (windows[f"c{step}.w"].size, windows[f"c{step}.w"].first) == (128, first[step])
        assert (windows[f"c{step}.x"].size, windows[f"c{step}.x"].first) == (64, step)


def test_bytes_between_two_steps_are_those_of_the_placements_that_are_there() -> None:
    rng = np.random.default_rng(0)
    placed = []
    for number in range(60):
        first = int(rng.integers(FOR_EVER, 20))
        placed.append(Placement("L1", 0, int(rng.integers(1, 50)), first, first + int(rng.integers(0, 6)), (f"b{number}",)))
    taken = OccupiedBytes(placed, lambda size: -(-size // 4) * 4)
    for first in range(20):
        for last in range(first, 20):
            there = [p for p in placed if p.first <= last and p.last >= first]
            assert taken.between(range(first, last + 1)) == sum(-(-p.size // 4) * 4 for p in there)
    assert OccupiedBytes([], lambda size: size).between(range(3)) == 0
