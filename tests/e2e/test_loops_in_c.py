"""Loops that stay loops in C: what their rounds compute one behind the other, bit for bit, with one copy of code and constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import UnsupportedError
from deeploy.ir.types import DType
from deeploy.planning.program import Role
from tests.models import save_graph

node = helper.make_node
UNITS, STEPS, INPUTS = 8, 12, 6
RANDOM = np.random.default_rng(7)
TARGETS = ["generic", "siracusa"]


def constant(name: str, value: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)


def port(name: str, shape: list[int], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def weights(*shape: int, kind: type = np.float32) -> np.ndarray:
    return np.asarray(RANDOM.normal(size=shape) / shape[0] ** 0.5, kind)


def saved(path: Path, nodes: list[onnx.NodeProto], ends: tuple[list[onnx.ValueInfoProto], ...], tensors: list[onnx.TensorProto]) -> Path:
    graph = helper.make_graph(nodes, "loops", *ends, tensors)
    return save_graph(graph, path)


def decoder(path: Path, kind: type = np.float32) -> Path:
    """A recurrent cell as a Scan: weights inside of the body and outside, which is computed; parts from both ends, along other axes."""
    body = helper.make_graph(
        [
            node("MatMul", ["x", "w"], ["p"]),
            node("MatMul", ["h", "r"], ["q"]),
            node("Add", ["p", "q"], ["sum"]),
            node("Add", ["sum", "bias"], ["all"]),
            node("Tanh", ["all"], ["turned"]),
            node("Mul", ["turned", "gate"], ["gated"]),
            node("Add", ["gated", "h"], ["next"]),
            node("ReduceMax", ["next"], ["top"], axes=[1], keepdims=0),
            node("Add", ["count", "one"], ["more"]),
            node("Identity", ["h"], ["before"]),
        ],
        "cell",
        [onnx.ValueInfoProto(name=name) for name in ("h", "count", "x", "gate")],
        [onnx.ValueInfoProto(name=name) for name in ("next", "more", "top", "before")],
        [constant("r", weights(UNITS, UNITS)), constant("one", np.int64(2))],
    )
    names = ["h", "start", "x", "gates"]
    ways = {"scan_input_axes": [0, 2], "scan_input_directions": [0, 1], "scan_output_axes": [1, 0], "scan_output_directions": [0, 1]}
    nodes = [
        node("Add", ["b", "shift"], ["bias"]),
        node("Cast", ["w16"], ["w"], to=TensorProto.FLOAT),
        node("Scan", names, ["last", "number", "tops", "states"], "cells", body=body, num_scan_inputs=2, **ways),
    ]
    sources = [port("h", [1, UNITS]), port("x", [STEPS, 1, INPUTS]), port("gates", [1, UNITS, STEPS]), port("shift", [UNITS])]
    results = [port("last", [1, UNITS]), port("number", [], TensorProto.INT64), port("tops", [1, STEPS]), port("states", [STEPS, 1, UNITS])]
    tensors = [constant("b", weights(UNITS)), constant("w16", weights(INPUTS, UNITS, kind=kind)), constant("start", np.int64(5))]
    return saved(path, nodes, (sources, results), tensors)


def given(program: Any) -> list[np.ndarray]:
    return [np.asarray(RANDOM.normal(size=program.buffers[name].shape), np.float32) for name in program.inputs]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_a_scan_that_stays_one(target: str, kind: type, tmp_path: Path) -> None:
    model = decoder(tmp_path / "model.onnx", kind)
    unrolled, kept = (deeploy.compile(model, target, unroll=nodes) for nodes in (1000, 50))
    values = given(kept.network.program)
    wanted = unrolled.run(values)
    assert all(len(np.unique(array)) > 5 for array in (wanted[0], wanted[2], wanted[3]))
    assert wanted[1] == 5 + 2 * STEPS
    assert all(np.array_equal(one, other) for one, other in zip(kept.run(values), wanted, strict=True))
    assert all(np.array_equal(one, other) for one, other in zip(kept.interpret(values), unrolled.interpret(values), strict=True))
    assert [call.node.op.split(".")[0] for call in kept.plan.program.calls].count("Scan") == 1
    constants = [b for b in kept.plan.program.buffers.values() if b.role is Role.CONSTANT and len(b.shape) == 2]
    narrow = DType.FLOAT32 if kind is np.float32 else DType.UINT16
    assert sorted((b.shape, b.dtype) for b in constants) == [((INPUTS, UNITS), narrow), ((UNITS, UNITS), DType.FLOAT32)]
    assert len(kept.plan.program.calls) < 8 < len(unrolled.plan.program.calls)


def test_its_code_and_its_time(tmp_path: Path) -> None:
    """Neither hangs on how many rounds there are but for the time, which is that of the calls of a round, as often."""
    kept = deeploy.compile(decoder(tmp_path / "model.onnx"), "siracusa", unroll=50)
    kept.write(tmp_path / "out")
    (source,) = (tmp_path / "out" / "kernels").rglob("loop_*.c")
    assert source.read_text().count("layer_") < 30
    assert kept.network.predicted is not None
    call = next(call for call in kept.network.predicted.calls if call.name == "cells")
    assert call.compute > STEPS * 1000


def counted(path: Path, rounds: int, body: onnx.GraphProto, name: str = "rounds") -> Path:
    tensors = [constant("n", np.int64(rounds)), constant("go", np.array(True))]
    return saved(
        path,
        [node("Loop", ["n", "go", "x"], ["y", "rows"], name, body=body)],
        ([port("x", [3])], [port("y", [3]), port("rows", [rounds, 3])]),
        tensors,
    )


def body(nodes: list[onnx.NodeProto], on: str = "c", tensors: list[onnx.TensorProto] | None = None) -> onnx.GraphProto:
    ends = [port("i", [], TensorProto.INT64), port("c", [], TensorProto.BOOL), port("h", [3])]
    return helper.make_graph(nodes, "body", ends, [onnx.ValueInfoProto(name=name) for name in (on, "next", "row")], tensors or [])


TABLE = constant("table", np.arange(21, dtype=np.float32).reshape(7, 3) / 8)
LOOKED_UP = [node("Gather", ["table", "i"], ["entry"]), node("Add", ["h", "entry"], ["next"]), node("Identity", ["h"], ["row"])]
INNER = helper.make_graph(
    [node("Mul", ["g", "h"], ["deep"]), node("Identity", ["d"], ["e"])],
    "inner",
    [port("j", [], TensorProto.INT64), port("d", [], TensorProto.BOOL), port("g", [3])],
    [onnx.ValueInfoProto(name=name) for name in ("e", "deep")],
)
NESTED = [
    node("Mul", ["h", "half"], ["small"]),
    node("Loop", ["two", "", "small"], ["powers"], "inner", body=INNER),
    node("Sub", ["h", "powers"], ["next"]),
    node("Identity", ["half3"], ["row"]),
]
CASES = {
    "the number of the round": (body(LOOKED_UP, tensors=[TABLE]), 7),
    "a loop in a loop": (
        body(NESTED, tensors=[constant("two", np.int64(2)), constant("half", np.float32(0.5)), constant("half3", np.ones(3, np.float32))]),
        4,
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_a_loop_that_stays_one(case: str, target: str, tmp_path: Path) -> None:
    inner, rounds = CASES[case]
    model = counted(tmp_path / "model.onnx", rounds, inner)
    unrolled, kept = (deeploy.compile(model, target, unroll=nodes) for nodes in (1000, 1))
    values = [np.float32([0.25, -1.5, 0.75])]
    for one, other, again in zip(unrolled.run(values), kept.run(values), kept.interpret(values), strict=True):
        assert np.array_equal(one, other)
        assert np.array_equal(one, again)
    assert len(kept.plan.program.calls) <= 2


def test_thousands_of_rounds(tmp_path: Path) -> None:
    """More than the budget that is there without an option."""
    table = np.arange(12000, dtype=np.float32).reshape(4000, 3) % 7
    kept = deeploy.compile(counted(tmp_path / "model.onnx", 4000, body(LOOKED_UP, tensors=[constant("table", table)])))
    y, rows = kept.run([np.zeros(3, np.float32)])
    assert np.array_equal(y, table.sum(0))
    assert np.array_equal(rows[1:], np.cumsum(table, 0)[:-1])
    assert len(kept.plan.program.calls) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_a_quantised_body(target: str, tmp_path: Path) -> None:
    """Products of bytes in a loop, whose state is quantised in every round."""
    numbers = {"s": np.float32(0.05), "z": np.int8(-3), "sw": np.float32(0.008)}
    w = np.random.default_rng(3).integers(-127, 127, (3, 3), np.int8, endpoint=True)
    quantised = [
        node("QuantizeLinear", ["h", "s", "z"], ["hq"]),
        node("DequantizeLinear", ["hq", "s", "z"], ["hd"]),
        node("DequantizeLinear", ["w", "sw"], ["wd"]),
        node("MatMul", ["hd", "wd"], ["p"]),
        node("QuantizeLinear", ["p", "s", "z"], ["pq"]),
        node("DequantizeLinear", ["pq", "s", "z"], ["next"]),
        node("Identity", ["next"], ["row"]),
    ]
    inner = body(quantised, tensors=[constant("w", w), *(constant(name, value) for name, value in numbers.items())])
    inner.input[2].type.tensor_type.shape.dim.insert(0, onnx.TensorShapeProto.Dimension(dim_value=1))
    ends = [port("x", [1, 3])], [port("y", [1, 3]), port("rows", [9, 1, 3])]
    tensors = [constant("n", np.int64(9)), constant("go", np.array(True))]
    model = saved(tmp_path / "model.onnx", [node("Loop", ["n", "go", "x"], ["y", "rows"], "rounds", body=inner)], ends, tensors)
    unrolled, kept = (deeploy.compile(model, target, unroll=nodes) for nodes in (1000, 1))
    values = [np.float32([[2.5, -1.5, 3.75]])]
    wanted = unrolled.run(values)
    assert len(np.unique(wanted[1])) > 5
    for one, other, again in zip(wanted, kept.run(values), kept.interpret(values), strict=True):
        assert np.array_equal(one, other)
        assert np.array_equal(one, again)
    (weights,) = [b for b in kept.network.program.buffers.values() if b.data is not None and b.data.size == 9]
    assert weights.dtype is DType.INT8


def test_what_cannot_stay_a_loop(tmp_path: Path) -> None:
    """Rounds that differ in their shapes, or end by a condition; both limits are named, and what to do."""
    until = [node("Less", ["i", "most"], ["on"]), node("Neg", ["h"], ["next"]), node("Identity", ["h"], ["row"])]
    model = counted(tmp_path / "until.onnx", 50, body(until, "on", [constant("most", np.int64(3))]))
    assert len(deeploy.compile(model, unroll=40).plan.program.calls) >= 4
    with pytest.raises(UnsupportedError) as caught:
        deeploy.compile(model, unroll=10)
    assert "takes more than 10 nodes when its rounds stand one behind the other" in caught.value.what
    assert "cannot stay a loop: node 'rounds' (Loop) ends by a condition" in caught.value.what
    assert caught.value.remedy == "allow more: unroll=100, or export the model with a shorter loop"
