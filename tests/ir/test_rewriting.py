"""Rewrites of the value graph: what stands in for what, under which names, and what a rule may ask."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from deeploy.errors import ModelError
from deeploy.ir.nodes import Node, Tensor, compute, constant
from deeploy.ir.rewriting import Match, Pass, Reading, Result, Rule, lowered, standard
from deeploy.ir.types import DType
from deeploy.ir.values import Graph


def value(name: str, *shape: int) -> Tensor:
    return Tensor(name, shape, DType.FLOAT32)


def named(op: str, name: str, *inputs: Tensor, domain: str = "", **attributes: object) -> Tensor:
    """The result of a node, both under one name."""
    return Node(name, op, inputs, (value(name, *inputs[0].shape),), attributes, domain=domain).outputs[0]


def graph_of(inputs: Sequence[Tensor], *outputs: Tensor) -> Graph:
    return Graph("network", tuple(inputs), outputs)


def printed(graph: Graph) -> list[str]:
    return str(graph).splitlines()[1:-1]


@standard("LogSoftmax")
def log_softmax(m: Match) -> Result:
    distance = m.x - m.x.reduce("Max", -1)
    return distance - distance.apply("Exp").reduce("Sum", -1).apply("Log")


def test_what_is_new_is_called_after_what_it_was_made_for() -> None:
    x = value("x", 2, 3)
    graph = Pass("spell", (log_softmax,))(graph_of([x], named("Relu", "z", named("LogSoftmax", "y", x))))
    assert printed(graph) == [
        "y (reducemax): f32[2,1] = ReduceMax(x) axes=[1] keepdims=1",
        "y (sub): f32[2,3] = Sub(x, y (reducemax))",
        "y (exp): f32[2,3] = Exp(y (sub))",
        "y (reducesum): f32[2,1] = ReduceSum(y (exp)) axes=[1] keepdims=1",
        "y (log): f32[2,1] = Log(y (reducesum))",
        "y: f32[2,3] = Sub(y (sub), y (log))",
        "z: f32[2,3] = Relu(y)",
    ]
    assert graph.nodes[-2].name == "y"


def test_a_graph_without_a_match_is_the_same_one() -> None:
    x = value("x", 2)
    graph = graph_of([x], named("Relu", "y", x))
    assert Pass("spell", (log_softmax,))(graph) is graph


def test_the_graph_before_stays_as_it_was() -> None:
    x = value("x", 2, 3)
    graph = graph_of([x], named("Relu", "z", named("LogSoftmax", "y", x)))
    before = str(graph)
    assert str(Pass("spell", (log_softmax,))(graph)) != before == str(Graph("network", graph.inputs, graph.outputs))


@lowered("Clip")
def clamp(m: Match) -> Result:
    front = m.only_source(m.x, "Conv")
    return None if front is None else m.fuse(front, constant(np.ones(1)), low=m.attrs["low"])


@pytest.mark.parametrize("others", [0, 1])
def test_only_what_nobody_else_reads_moves_into_the_node_in_front(others: int) -> None:
    x = value("x", 2)
    y = named("Conv", "sum", x, domain="deeploy")
    graph = graph_of([x], named("Clip", "y", y, domain="deeploy", low=0), *[named("Relu", "other", y)] * others)
    lines = printed(Pass("fuse", (clamp,))(graph))
    assert ("y: f32[2] = Conv(x, f32[1] [1]) low=0" in lines) == (others == 0)
    assert len(lines) == 1 + 2 * others


def test_rules_of_the_integer_form_leave_onnx_alone() -> None:
    x = value("x", 2)
    graph = graph_of([x], named("Clip", "y", named("Conv", "sum", x), low=0))
    assert Pass("fuse", (clamp,))(graph) is graph


@standard("Identity")
def forward(m: Match) -> Result:
    return m.x


def test_an_output_that_was_there_before_is_copied_under_its_name() -> None:
    x = value("x", 2)
    y = named("Relu", "y", x)
    graph = Pass("forward", (forward,))(graph_of([x], named("Identity", "out", y), named("Tanh", "t", named("Identity", "i", y))))
    assert printed(graph) == ["y: f32[2] = Relu(x)", "out: f32[2] = Reshape(y)", "t: f32[2] = Tanh(y)"]
    assert [tensor.name for tensor in graph.outputs] == ["out", "t"]


@standard("Add")
def copied(m: Match) -> Result:
    readers = [node for node in m.readers(m.inputs[1]) if node.op == "Add"]
    return Reading(readers, m.inputs[1], compute("Copy", m.inputs[1])) if m.is_input(m.inputs[1]) and len(readers) > 1 else None


def test_some_readers_read_another_tensor() -> None:
    """Also those that read it behind what the first of them computes."""
    x, mask = value("x", 2), value("mask", 2)
    first = named("Add", "first", x, mask)
    graph = Pass("copies", (copied,))(graph_of([x, mask], named("Add", "y", named("Tanh", "t", first), mask), named("Exp", "e", mask)))
    assert printed(graph) == [
        "first (copy): f32[2] = Copy(mask)",
        "e: f32[2] = Exp(mask)",
        "first: f32[2] = Add(x, first (copy))",
        "t: f32[2] = Tanh(first)",
        "y: f32[2] = Add(t, first (copy))",
    ]


@standard("Tanh", "Exp")
def together(m: Match) -> Result:
    group = [node for node in m.readers(m.x) if node.op in ("Tanh", "Exp")]
    if len(group) < 2 or group[0] is not m.node:
        return None
    both = compute("Both", m.x, shape=(2, *m.x.shape))
    return {node.outputs[0]: compute("Part", both, shape=m.y.shape, of=node.op) for node in group}


def test_one_node_stands_in_for_several() -> None:
    x = value("x", 3)
    y = named("Relu", "y", x)
    graph = Pass("together", (together,))(graph_of([x], named("Tanh", "a", y), named("Neg", "c", named("Exp", "b", y))))
    assert printed(graph) == [
        "y: f32[3] = Relu(x)",
        "a (both): f32[2,3] = Both(y)",
        "a: f32[3] = Part(a (both)) of=Tanh",
        "b: f32[3] = Part(a (both)) of=Exp",
        "c: f32[3] = Neg(b)",
    ]


def test_names_are_unique() -> None:
    x = value("x", 2, 3)
    graph = graph_of([x], named("Relu", "y (sub)", named("LogSoftmax", "y", x)))
    names = [tensor.name for node in Pass("spell", (log_softmax,))(graph).nodes for tensor in node.outputs]
    assert len(set(names)) == len(names) == 7 and "y (sub 2)" in names


def test_rules_that_undo_each_other_end() -> None:
    @standard("Relu")
    def to_clip(m: Match) -> Result:
        return m.x.apply("Clip")

    @standard("Clip")
    def to_relu(m: Match) -> Result:
        return m.x.apply("Relu")

    x = value("x", 2)
    with pytest.raises(ModelError, match="pass turning does not end"):
        Pass("turning", (to_clip, to_relu))(graph_of([x], named("Relu", "y", x)))


@pytest.mark.parametrize("error", [IndexError("list index out of range"), ValueError("one\ntwo"), MemoryError("40 GiB")])
def test_a_node_that_contradicts_itself_is_named(error: Exception) -> None:
    def rewrite(m: Match) -> Result:
        raise error

    x = value("x", 3)
    graph = graph_of([x], Node("the slope", "PRelu", (x,), (value("y", 3),), domain="").outputs[0])
    with pytest.raises(ModelError, match=r"node the slope \(PRelu\) cannot be rewritten by prelu: \w+Error") as caught:
        Pass("lower", (Rule("prelu", frozenset({"PRelu"}), False, rewrite),))(graph)
    assert len(str(caught.value).splitlines()) == 2


def test_a_deep_network_is_sorted_without_recursion() -> None:
    y = x = value("x", 1)
    for number in range(5000):
        y = named("Relu", f"r{number}", y)
    assert [node.name for node in graph_of([x], y).nodes][:2] == ["r0", "r1"]
