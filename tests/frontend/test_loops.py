"""``Loop`` and ``Scan`` of a constant number of rounds, against onnxruntime; what is refused of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import DeeployError, ModelError, UnsupportedError
from deeploy.frontend import import_states, without_branches
from deeploy.frontend.rounds import BODY, LOOPS
from tests.frontend.models import Spec, build, f32, read

node = helper.make_node
INT64, BOOL = TensorProto.INT64, TensorProto.BOOL


def body(nodes: list[onnx.NodeProto], inputs: list[str], results: list[str], **constants: Any) -> onnx.GraphProto:
    """A body whose inputs and outputs have no types, but for the two first ones of a Loop."""
    kinds = {"i": (INT64, []), "c": (BOOL, [])}
    sources = [helper.make_tensor_value_info(n, *kinds[n]) if n in kinds else onnx.ValueInfoProto(name=n) for n in inputs]
    values = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return helper.make_graph(nodes, "body", sources, [onnx.ValueInfoProto(name=name) for name in results], values)


def looped(inner: onnx.GraphProto, inputs: list[str], results: list[str], op: str = "Loop", **attributes: Any) -> list[onnx.NodeProto]:
    return [node(op, inputs, results, name="rounds", body=inner, **attributes)]


# carried: h = (h + x) * k[i], a row of each round; the name k of the body is also one outside
ROUND = [
    node("Gather", ["k", "i"], ["factor"], axis=0),
    node("Add", ["h", "x"], ["sum"]),
    node("Mul", ["sum", "factor"], ["next"]),
    node("Neg", ["next"], ["row"]),
    node("Identity", ["c"], ["on"]),
]
FACTORS = np.array([0.5, 2, -1, 3], np.float32)
COUNTED = body(ROUND, ["i", "c", "h"], ["on", "next", "row"], k=FACTORS)
# until h, which is constant, is at least four
UNTIL = body(
    [node("Add", ["h", "one"], ["next"]), node("Less", ["next", "four"], ["on"]), node("Mul", ["x", "next"], ["row"])],
    ["i", "c", "h"],
    ["on", "next", "row"],
    one=np.float32(1),
    four=np.float32(4),
)
INNER = body([node("Add", ["g", "x"], ["deep"]), node("Identity", ["c"], ["go"])], ["i", "c", "g"], ["go", "deep"])
NESTED = body(
    [*looped(INNER, ["two", "", "h"], ["sum"]), node("Mul", ["sum", "half"], ["next"]), node("Identity", ["c"], ["on"])],
    ["i", "c", "h"],
    ["on", "next"],
    two=np.int64(2),
    half=np.float32(0.5),
)
# carried h; a row of the first, a column of the second
SCANNED = body(
    [node("Add", ["h", "a"], ["u"]), node("Mul", ["u", "b"], ["next"]), node("Sub", ["u", "b"], ["row"])], ["h", "a", "b"], ["next", "row"]
)
WAYS = {"scan_input_axes": [0, 1], "scan_input_directions": [0, 1], "scan_output_axes": [-1], "scan_output_directions": [1]}
CASES: dict[str, tuple[list[onnx.NodeProto], dict[str, Spec], list[str]]] = {
    "counted": (looped(COUNTED, ["n", "t", "x"], ["y", "rows"]), {"x": f32(2, 3)}, ["y", "rows"]),
    "counted without a condition": (looped(COUNTED, ["n", "", "x"], ["y", "rows"]), {"x": f32(2, 3)}, ["rows"]),
    "until a condition": (looped(UNTIL, ["", "t", "zero"], ["h", "rows"]), {"x": f32(3)}, ["rows", "h"]),
    "nested": (looped(NESTED, ["n", "t", "x"], ["y"]), {"x": f32(2)}, ["y"]),
    "scan": (
        looped(SCANNED, ["h", "a", "b"], ["y", "rows"], "Scan", num_scan_inputs=2, **WAYS),
        {"h": f32(2), "a": f32(3, 2), "b": f32(2, 3)},
        ["y", "rows"],
    ),
    "scan forwards": (
        looped(SCANNED, ["h", "a", "b"], ["y", "rows"], "Scan", num_scan_inputs=2),
        {"h": f32(2), "a": f32(3, 2), "b": f32(3, 2)},
        ["rows", "y"],
    ),
}
OUTSIDE: dict[str, Any] = {"n": np.int64(3), "t": np.array(True), "k": np.float32(9), "zero": np.float32(0)}


def model_of(case: str) -> onnx.ModelProto:
    nodes, inputs, outputs = CASES[case]
    return build(nodes, inputs, outputs, OUTSIDE)


@pytest.mark.parametrize("case", CASES)
def test_rounds_are_those_of_onnxruntime(tmp_path: Path, case: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = onnx.shape_inference.infer_shapes(model_of(case))
    for value in model.graph.output:  # onnxruntime wants a type
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, (shape, _) in CASES[case][1].items()}
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    got = deeploy.compile(tmp_path / "model.onnx").interpret(feeds)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_nodes_of_rounds(tmp_path: Path) -> None:
    graph = read(model_of("counted"), tmp_path)
    assert sorted(n.op for n in graph.nodes) == ["Add"] * 3 + ["Concat"] + ["Mul"] * 3 + ["Neg"] * 3 + ["Reshape"] * 3
    flat = without_branches(model_of("nested"), {})
    assert {n.op_type for n in flat.graph.node} <= {"Add", "Mul", "Identity", "Constant"}


def test_no_round(tmp_path: Path) -> None:
    typed = onnx.GraphProto()
    typed.CopyFrom(COUNTED)
    typed.output[2].CopyFrom(helper.make_tensor_value_info("row", TensorProto.FLOAT, [2, 3]))
    model = build(looped(typed, ["none", "", "x"], ["y", "rows"]), {"x": f32(2, 3)}, ["y", "rows"], OUTSIDE | {"none": np.int64(0)})
    graph = read(model, tmp_path)
    assert [list(t.shape) for t in graph.outputs] == [[2, 3], [0, 2, 3]]


def test_a_budget_of_nodes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = build(looped(COUNTED, ["n", "t", "x"], ["y", "rows"]), {"x": f32(2, 3)}, ["y"], OUTSIDE | {"n": np.int64(4)})
    path.write_bytes(model.SerializeToString())
    assert len(import_states(path, unroll=24).graph.nodes) == 8
    (kept,) = import_states(path, unroll=23).graph.nodes
    assert (kept.op, kept.domain, kept.attrs[BODY].rounds) == ("Loop", LOOPS, 4)
    path.write_bytes(model_of("until a condition").SerializeToString())
    with pytest.raises(UnsupportedError, match="more than 5 nodes") as caught:
        import_states(path, unroll=5)
    assert "--unroll 50" in caught.value.remedy


COUNT_IN = build(looped(COUNTED, ["m", "t", "x"], ["y", "rows"]), {"x": f32(3), "m": ((), INT64)}, ["y"], OUTSIDE)
GREATER = body(
    [node("ReduceMax", ["h"], ["m"], keepdims=0), node("Less", ["m", "zero"], ["on"]), node("Neg", ["h"], ["r"])],
    ["i", "c", "h"],
    ["on", "r"],
)
WRONG: dict[str, tuple[onnx.ModelProto, type[DeeployError], str]] = {
    "a number at run time": (COUNT_IN, UnsupportedError, "--pin m=VALUE"),
    "a condition at run time": (
        build(looped(GREATER, ["n", "t", "x"], ["y"]), {"x": f32(3)}, ["y"], OUTSIDE),
        UnsupportedError,
        "fixed number",
    ),
    "a float number": (build(looped(COUNTED, ["zero", "t", "x"], ["y", "r"]), {"x": f32(3)}, ["y"], OUTSIDE), ModelError, "one int64"),
    "no body": (build([node("Loop", ["n", "t", "x"], ["y"])], {"x": f32(3)}, ["y"], OUTSIDE), ModelError, "no body"),
    "too many inputs": (
        build(looped(COUNTED, ["n", "t", "x", "x"], ["y", "r"]), {"x": f32(3)}, ["y"], OUTSIDE),
        ModelError,
        "a body of 3 inputs",
    ),
    "scanned inputs": (
        build(looped(SCANNED, ["x", "x", "x"], ["y", "r"], "Scan", num_scan_inputs=4), {"x": f32(3)}, ["y"]),
        ModelError,
        "scans 4 of 3",
    ),
    "axes": (
        build(looped(SCANNED, ["x", "x", "x"], ["y", "r"], "Scan", num_scan_inputs=2, scan_input_axes=[0]), {"x": f32(3)}, ["y"]),
        ModelError,
        "1 scan_input_axes instead of 2",
    ),
    "an axis": (
        build(looped(SCANNED, ["x", "x", "x"], ["y", "r"], "Scan", num_scan_inputs=2, scan_input_axes=[0, 5]), {"x": f32(3, 3)}, ["y"]),
        ModelError,
        "scans axis 5",
    ),
    "lengths": (
        build(looped(SCANNED, ["x", "x", "z"], ["y", "r"], "Scan", num_scan_inputs=2), {"x": f32(3), "z": f32(4)}, ["y"]),
        ModelError,
        "3, 4",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_loops_that_are_refused(tmp_path: Path, case: str) -> None:
    model, error, words = WRONG[case]
    with pytest.raises(error) as caught:
        read(model, tmp_path)
    assert words in f"{caught.value.what} {caught.value.remedy}"
    assert len(str(caught.value).splitlines()) == 2


def test_a_pinned_number_of_rounds(tmp_path: Path) -> None:
    assert [n.op for n in read(COUNT_IN, tmp_path, pins={"m": 2}).nodes] == ["Add", "Mul"] * 2
