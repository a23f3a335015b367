"""``If``: the branch whose condition is constant, or both and a choice; inputs that are pinned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy import chips
from deeploy.driver.compile import compile_networks
from deeploy.driver.verify import run_project, verify_compiled
from deeploy.errors import DeeployError, ModelError, UnsupportedError, UsageError
from deeploy.frontend import import_states, without_branches
from deeploy.frontend.pins import Pinned
from deeploy.options import Options
from deeploy.quantization.static import quantize_model
from deeploy.target import load as target
from tests.frontend.models import build, f32, read

node = helper.make_node


def branch(nodes: list[onnx.NodeProto], result: str, **constants: Any) -> onnx.GraphProto:
    values = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return helper.make_graph(nodes, "branch", [], [onnx.ValueInfoProto(name=result)], values)


def choice(condition: str, then: onnx.GraphProto, otherwise: onnx.GraphProto, output: str = "y") -> onnx.NodeProto:
    return node("If", [condition], [output], name=f"choice of {output}", then_branch=then, else_branch=otherwise)


def nested(condition: str = "c") -> list[onnx.NodeProto]:
    """Two levels, where the inner branches read what the outer branch computes, under a name that both branches have."""
    product = branch([node("Mul", ["t", "k"], ["r"])], "r", k=np.float32(3))
    inner = choice("inner", product, branch([node("Add", ["t", "k"], ["r"])], "r", k=np.float32(5)), "q")
    then = branch([node("Mul", ["x", "two"], ["t"]), inner], "q", two=np.float32(2))
    return [choice(condition, then, branch([node("Neg", ["x"], ["t"])], "t"))]


def ops(graph: Any) -> list[str]:
    return [n.op for n in graph.nodes]


def test_the_branch_of_a_constant_condition(tmp_path: Path) -> None:
    rank = [node("Shape", ["x"], ["s"]), node("Size", ["s"], ["n"]), node("Equal", ["n", "two"], ["c"])]
    model = build([*rank, *nested()], {"x": f32(2, 3)}, ["y"], {"two": np.int64(2), "inner": np.array(False)})
    graph = read(model, tmp_path)
    assert ops(graph) == ["Mul", "Add"] and graph.outputs[0].name == "y"
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array(True), "inner"))
    assert ops(read(model, tmp_path)) == ["Mul", "Mul"]
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.int64(3), "two"))
    assert ops(read(model, tmp_path)) == ["Neg"]


def test_a_choice_at_run_time_is_that_of_onnxruntime(tmp_path: Path) -> None:
    """Of nested branches, and a Clip whose bounds are computed."""
    pytest.importorskip("onnxruntime")
    conditions = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("Less", ["s", "four"], ["inner"]),
    ]
    clip = [node("ReduceMin", ["x"], ["low"], keepdims=0), node("ReduceMean", ["x"], ["high"], keepdims=0)]
    nodes = [*conditions, *nested(), *clip, node("Clip", ["y", "low", "high"], ["z"])]
    model = build(nodes, {"x": f32(1, 4)}, ["y", "z"], {"zero": np.float32(0), "four": np.float32(4)})
    path, data = tmp_path / "model.onnx", tmp_path / "inputs.npz"
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    samples = np.array([[[1, 2, 3, 4]], [[-1, -2, -3, 4]], [[1, 0.5, 0.25, 0.125]]], np.float32)
    np.savez(data, x=samples)
    verdict = verify_compiled(compile_networks({"network": path}, target("generic"), Options()), path, data)
    assert verdict.passed and {against for against, _ in verdict.comparisons} == {"interpreter", "onnxruntime"}
    expected = np.stack([x * 2 * 3 if 0 < x.sum() < 4 else x * 2 + 5 if x.sum() > 0 else -x for x in samples])
    assert np.array_equal(verdict.outputs[0], expected)


def test_without_branches_there_are_their_nodes(tmp_path: Path) -> None:
    model = build(nested(), {"x": f32(1, 3)}, ["y"], {"c": np.array(True), "inner": np.array(True)})
    flat = without_branches(model, {})
    assert [n.op_type for n in flat.graph.node] == ["Constant", "Mul", "Constant", "Mul", "Identity", "Identity"]
    assert ops(read(flat, tmp_path)) == ops(read(model, tmp_path)) == ["Mul", "Mul"]
    assert any(n.op_type == "If" for n in model.graph.node)


def long(sr: int = 16) -> onnx.ModelProto:
    """A network for two rates, of which an input says one."""
    one, other = (branch([node("MatMul", ["x", f"w{i}"], ["m"])], "m", **{f"w{i}": np.full((4, 4), i, np.float32)}) for i in (1, 2))
    nodes = [node("Equal", ["sr", "rate"], ["c"]), choice("c", one, other)]
    return build(nodes, {"x": f32("n", 4), "sr": ((), TensorProto.INT64)}, ["y"], {"rate": np.int64(sr)})


def test_a_pinned_input_is_a_constant_of_the_project(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path, data = tmp_path / "long.onnx", tmp_path / "inputs.npz"
    path.write_bytes(long().SerializeToString())
    for rate, factor in ((16, 1), (8, 2)):
        made = deeploy.compile(path, dims={"n": 1}, pins={"sr": rate})
        made.write(tmp_path / "out")
        x = np.arange(8, dtype=np.float32).reshape(2, 1, 4)
        for arrays in ({"x": x}, {"x": x, "sr": np.array([rate, rate])}, {"arr_0": x, "arr_1": np.array([rate] * 2)}):
            np.savez(data, **arrays)
            outputs = run_project(tmp_path / "out", data).outputs
            assert np.array_equal(outputs[0], factor * x.sum(-1, keepdims=True).repeat(4, -1))
        assert verify_compiled(made, path, data).passed
        for name, value in (("sr", np.array([rate, 7])), ("sr", np.array([[rate, rate]])), ("arr_1", np.array([7, 7]))):
            np.savez(data, **({"x": x} if name == "sr" else {"arr_0": x}), **{name: value})
            with pytest.raises(UsageError, match="sr"):
                run_project(tmp_path / "out", data)


def test_pins_of_several_chips(tmp_path: Path) -> None:
    path = tmp_path / "long.onnx"
    path.write_bytes(long().SerializeToString())
    made = chips.compile(path, "generic", 2, dims={"n": 2}, pins={"sr": [16]})
    made.write(tmp_path / "out")
    np.savez(tmp_path / "inputs.npz", x=np.ones((2, 4), np.float32), sr=np.int64(16))
    assert np.array_equal(run_project(tmp_path / "out", tmp_path / "inputs.npz").outputs[0], np.full((1, 2, 4), 4))


def test_a_long_choice_asks_for_a_pin(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        read(long(), tmp_path, {"n": 1})
    assert "--pin sr=VALUE" in caught.value.remedy


@pytest.mark.parametrize("value", [1.5, 1 << 70, float("nan"), "text", [1, 2], None, np.ones((2, 2))])
def test_values_that_cannot_be_pinned(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UsageError, match="--pin 'sr"):
        read(long(), tmp_path, {"n": 1}, pins={"sr": value})


def test_names_that_cannot_be_pinned(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no input of the model"):
        read(long(), tmp_path, {"n": 1}, pins={"rate": 1})
    with pytest.raises(UsageError, match="every input"):
        read(long(), tmp_path, {"n": 1}, pins={"sr": 1, "x": 0})


def test_pins_of_all_elements(tmp_path: Path) -> None:
    model = build([node("Add", ["x", "b"], ["y"])], {"b": f32("k"), "x": f32(2, 3)}, ["y"])
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    pinned = import_states(path, {"k": 3}, pins={"b": [1, 2, 3]}).pinned[0]
    assert pinned.position == 0 and pinned.value.dtype == np.float32 and pinned.value.tolist() == [1, 2, 3]
    again = Pinned.of(pinned.contents())
    assert again.contents() == pinned.contents()
    with pytest.raises(UsageError, match=r"deploy\.json"):
        Pinned.of({**pinned.contents(), "values": [1]})


def test_a_pinned_model_is_quantised(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path, data, result = tmp_path / "long.onnx", tmp_path / "data.npz", tmp_path / "int8.onnx"
    path.write_bytes(long().SerializeToString())
    x = np.random.default_rng(0).normal(size=(4, 1, 4)).astype(np.float32)
    np.savez(data, x=x, sr=np.full(4, 16))
    assert quantize_model(path, data, result, dims={"n": 1}, pins={"sr": 16}) == 4
    model = onnx.load(result)
    assert [v.name for v in model.graph.input] == ["x"] and model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1
    assert "MatMul" in [n.op_type for n in model.graph.node] and "If" not in [n.op_type for n in model.graph.node]
    np.savez(data, x=x, sr=np.full(4, 8))
    with pytest.raises(UsageError, match="--pin"):
        quantize_model(path, data, result, dims={"n": 1}, pins={"sr": 16})


SHORT = branch([node("Relu", ["x"], ["t"])], "t")
WIDE = branch([node("Concat", ["x", "x"], ["t"], axis=0)], "t")
LOST = branch([node("Relu", ["ghost"], ["t"])], "t")
FED = helper.make_graph([node("Relu", ["x"], ["t"])], "b", [helper.make_tensor_value_info("i", 1, [2])], [onnx.ValueInfoProto(name="t")])
LOOP = branch([node("Loop", ["x"], ["t"], body=SHORT)], "t")
ODD = branch([node("Softmax", ["x"], ["t"], axis="no")], "t")
COMPUTED = [node("ReduceMax", ["x"], ["m"], keepdims=0), node("Greater", ["m", "zero"], ["c"])]
WRONG: dict[str, tuple[list[onnx.NodeProto], type[DeeployError], str]] = {
    "a float condition": ([choice("x", SHORT, SHORT)], ModelError, "bool"),
    "other shapes": ([*COMPUTED, choice("c", SHORT, WIDE)], UnsupportedError, "float32"),
    "nobody produces": ([*COMPUTED, choice("c", SHORT, LOST)], ModelError, "ghost"),
    "inputs": ([*COMPUTED, choice("c", FED, SHORT)], ModelError, "1 inputs"),
    "a loop without inputs inside": ([*COMPUTED, choice("c", LOOP, SHORT)], ModelError, "Loop"),
    "an attribute of another kind": ([*COMPUTED, choice("c", SHORT, ODD)], ModelError, "axis"),
    "no branches": ([*COMPUTED, node("If", ["c"], ["y"])], ModelError, "two branches"),
    "a cycle through a branch": ([choice("d", branch([node("Relu", ["y"], ["t"])], "t"), SHORT)], ModelError, "own output"),
}


@pytest.mark.parametrize("case", WRONG)
def test_branches_that_are_refused(tmp_path: Path, case: str) -> None:
    nodes, error, words = WRONG[case]
    model = build(nodes, {"x": f32(2)}, ["y"], {"zero": np.float32(0), "d": np.array(True)})
    with pytest.raises(error, match=words):
        read(model, tmp_path)


def test_both_silero_networks_fold(shared_models: Path) -> None:
    graph = import_states(shared_models / "real/silero_v6/network.onnx", {"batch": 1, "sequence": 576}, pins={"sr": 16000}).graph
    assert "If" not in ops(graph) and ops(graph).count("Conv") == 6
    assert [t.name for t in graph.inputs] == ["input", "state"]
