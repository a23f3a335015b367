"""Which buffers a call may write over others."""

from __future__ import annotations

import pytest

from deeploy.graph.nodes import Node, Tensor
from deeploy.graph.types import DType
from deeploy.midend.bind import bound_geometry
from deeploy.midend.lifetime import overwrites
from deeploy.midend.program import Buffer, Call, Operand, Program, Role
from deeploy.operators.views import Access
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
    call = Call("call", node, ADD, bound_geometry(ADD, body, {}), operands, {})
    assert overwrites(Program("net", buffers, (call,), (), (), {}), call) == [("y", x) for x in pairs]
