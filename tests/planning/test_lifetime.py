"""How long buffers live, and which of them a call may write over others."""

from __future__ import annotations

import pytest

from deeploy.ir.nodes import Node, Tensor
from deeploy.ir.types import DType
from deeploy.operators.views import Access
from deeploy.planning.binding.kernels import bound_geometry
from deeploy.planning.packing.lifetimes import block_lifetimes
from deeploy.planning.program import Buffer, Call, Operand, Program, Role, buffer_spans, overwritten_pairs, united_buffers
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
