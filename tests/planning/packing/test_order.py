"""The order of calls: the least memory at once, and nothing is read before it is written."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest

import deeploy
from deeploy.options import Options
from deeploy.planning.packing.order import order_calls
from deeploy.planning.program import Program, Role, buffer_spans
from tests.execution.simulation.nets import compile_nodes, node


def branches(folder: Path, seed: int) -> Program:
    """Branches of three widths from one input, joined by sums or behind each other, in a random order that is a legal one."""
    rng = Random(seed)
    nodes, ends, constants = [], [], {}
    for number in range(rng.randint(2, 3)):
        width = rng.choice((8, 40, 90))
        constants |= {f"w{number}": [4, width], f"v{number}": [width, 4]}
        nodes += [node("MatMul", f"x w{number}", f"a{number}"), node("MatMul", f"a{number} v{number}", f"b{number}")]
        ends.append(f"b{number}")
    while len(ends) > 1:
        a, b = ends.pop(0), ends.pop(0)
        ends.append(f"s{len(nodes)}")
        nodes.append(node("Add", f"{a} {b}", ends[-1]))
    nodes.append(node("Neg", ends[0], "y"))
    made: list[onnx.NodeProto] = []
    while len(made) < len(nodes):
        known = {"x", *constants, *(name for one in made for name in one.output)}
        made.append(rng.choice([one for one in nodes if one not in made and known.issuperset(one.input)]))
    return compile_nodes(folder, made, {"x": [3, 4]}, {"y": [3, 4]}, constants, Options(), "generic").plan.program


def peak(program: Program) -> int:
    alive = buffer_spans(program)
    loads = [0] * len(program.calls)
    for name, (first, last) in alive.items():
        for step in range(first, last + 1):
            loads[step] += program.buffers[name].bytes
    return max(loads)


def is_legal(program: Program) -> bool:
    """Whether every buffer is written before it is read."""
    written = {name for name, buffer in program.buffers.items() if buffer.role not in (Role.LOCAL, Role.OUTPUT)}
    for call in program.calls:
        if any(o.buffer not in written for name, o in call.operands.items() if name not in call.writes):
            return False
        written |= {call.operands[name].buffer for name in call.writes}
    return True


@pytest.mark.parametrize("seed", range(6))
def test_no_other_order_needs_less(seed: int, tmp_path: Path) -> None:
    program = branches(tmp_path, seed)
    others = (replace(program, calls=calls) for calls in itertools.permutations(program.calls))
    least = min(peak(other) for other in others if is_legal(other))
    found = order_calls(program)
    assert is_legal(found) and sorted(map(id, found.calls)) == sorted(map(id, program.calls))
    assert peak(found) == least


@pytest.mark.parametrize("seed", range(3))
def test_fewer_orders_grow_side_by_side_in_large_networks(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = branches(tmp_path, seed)
    monkeypatch.setattr("deeploy.planning.packing.order.MOST_CALLS", 1)
    found = order_calls(program)
    assert is_legal(found) and sorted(map(id, found.calls)) == sorted(map(id, program.calls))
    assert peak(found) <= peak(program)


def test_parts_of_a_concatenation_may_change_places_and_readers_of_what_is_overwritten_may_not(tmp_path: Path) -> None:
    """Wide tensors of three branches, all made before one is used: the order of the file needs all of them at once."""
    width = 300
    nodes = [node(op, "x", f"x{i}") for i, op in enumerate(("Neg", "Abs", "Exp"))]
    nodes += [node("MatMul", f"x{i} w{i}", f"a{i}") for i in range(3)]
    nodes += [node("MatMul", f"a{i} v{i}", f"b{i}") for i in range(3)]
    nodes += [node("Concat", "b0 b1 b2", "c", axis=0), node("Neg", "c", "y")]
    constants = {f"w{i}": [4, width] for i in range(3)} | {f"v{i}": [width, 4] for i in range(3)}
    plan = compile_nodes(tmp_path, nodes, {"x": [2, 4]}, {"y": [6, 4]}, constants, Options(), "generic").plan
    assert plan.memory["arena"].peak < 2 * 2 * width * 4
    sample = [np.random.default_rng(0).uniform(-1, 1, (2, 4)).astype(np.float32)]
    found = compile_nodes(tmp_path, nodes, {"x": [2, 4]}, {"y": [6, 4]}, constants, Options(), "generic").interpret(sample)
    other = deeploy.compile(tmp_path / "model.onnx", "siracusa").interpret(sample)
    np.testing.assert_allclose(found[0], other[0], rtol=1e-5)


def wide_branches(folder: Path, options: Options) -> deeploy.Compiled:
    """Four branches that are wide in the middle; the file computes all wide parts before any narrow one."""
    names, width = range(4), 600
    nodes = [node("MatMul", f"x w{n}", f"a{n}") for n in names] + [node("MatMul", f"a{n} v{n}", f"b{n}") for n in names]
    nodes.append(node("Concat", " ".join(f"b{n}" for n in names), "y", axis=1))
    constants = {f"w{n}": [4, width] for n in names} | {f"v{n}": [width, 4] for n in names}
    return compile_nodes(folder, nodes, {"x": [40, 4]}, {"y": [40, 16]}, constants, options, "siracusa")


def test_what_does_not_fit_in_the_order_of_the_file_is_planned_in_another_one(tmp_path: Path) -> None:
    """Of four tensors of 96 000 bytes in the middle of branches, two have room beside the constants."""
    room = 4 * 2 * 4 * 600 * 4 + 2 * 40 * 600 * 4 + 20_000
    options = Options(memory={"l1": 30_000, "l2": room}, engines=("cluster",))
    one = wide_branches(tmp_path, options)
    calls = [call.node.outputs[0].name for call in one.plan.program.calls]
    assert calls.index("b0") < calls.index("a3")
    assert is_legal(one.plan.program)
    assert [call.name for call in one.plan.program.calls] == [call.name for call in wide_branches(tmp_path, options).plan.program.calls]
    roomy = wide_branches(tmp_path, Options(memory={"l1": 30_000}, engines=("cluster",)))
    calls = [call.node.outputs[0].name for call in roomy.plan.program.calls]
    assert calls.index("a3") < calls.index("b0")
    sample = [np.random.default_rng(1).normal(size=[40, 4]).astype(np.float32)]
    np.testing.assert_array_equal(one.interpret(sample)[0], roomy.interpret(sample)[0])
