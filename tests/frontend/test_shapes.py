"""Shapes through operators that the onnx package does not know, and those of real networks."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from deeploy.errors import ModelError, UnsupportedError
from deeploy.frontend import import_model
from deeploy.frontend.schemas import DIALECT_OPS, keeps_shape
from deeploy.frontend.shapes import Value
from deeploy.ir.nodes import Node
from tests.frontend import nodes
from tests.frontend.models import build, f32, ints, one, read


def test_what_is_known_first_stays() -> None:
    """Of extents and types; shapes of other ranks fill nothing."""
    byte, real = np.dtype(np.int8), np.dtype(np.float32)
    other = Value(real, (2, 4))
    assert Value(None, (None, 3)).or_else(other) == Value(real, (2, 3))
    assert Value(byte, (5, None)).or_else(other) == Value(byte, (5, 4))
    assert Value(byte).or_else(other) == Value(byte, (2, 4))
    assert Value(None, (None,)).or_else(other) == Value(real, (None,))
    assert [value.static_shape for value in (other, Value(real, (None, 2)), Value(real), Value(real, ()))] == [[2, 4], None, None, []]


def test_every_dialect_operator_has_shapes(tmp_path: Path) -> None:
    for op in sorted(DIALECT_OPS - {"IntegerDiv", "IntegerMean"}):
        model = nodes.sample_models()[op]
        given = model.graph.input[0]
        given.CopyFrom(helper.make_tensor_value_info(given.name, TensorProto.FLOAT, (2, 0, 3)))
        assert list(read(model, tmp_path).outputs[0].shape) == [2, 0, 3]
    graph = one(tmp_path, "IntegerDiv", (2, 1, 5), np.ones((3, 1), np.float32), Delta=1, eps=1, eta=1)
    assert list(graph.outputs[0].shape) == [2, 3, 5]
    graph = one(tmp_path, "IntegerMean", (2, 3, 5), axes=[-1], keepdims=0)
    assert (list(graph.outputs[0].shape), graph.nodes[0].attrs) == ([2, 3], {"axes": [2], "keepdims": 0})


def test_microsoft_operators_have_shapes_and_types(tmp_path: Path) -> None:
    s, z = np.float32(0.1), np.uint8(3)
    uint8 = TensorProto.UINT8

    def shape(op: str, of: tuple[int, ...], *operands: np.ndarray | None, **attributes: object) -> tuple[list[int], np.dtype[np.generic]]:
        out = one(tmp_path, op, of, *operands, domain="com.microsoft", kind=uint8, **attributes).outputs[0]
        return list(out.shape), out.dtype.numpy

    b = np.ones((3, 1), np.uint8)
    assert shape("QLinearAdd", (2, 1, 4), s, z, b, s, z, s, z) == ([2, 3, 4], np.uint8)
    assert shape("QLinearMul", (2, 1, 4), s, z, b, s, z, s, z) == ([2, 3, 4], np.uint8)
    w = np.ones((5, 4), np.int8)
    assert shape("QGemm", (2, 4), s, z, w, s, np.int8(0), None, s, np.int8(1), transB=1) == ([2, 5], np.int8)
    assert shape("QGemm", (2, 4), s, z, w, s, np.int8(0), transB=1) == ([2, 5], np.float32)
    pooled = shape("QLinearAveragePool", (1, 2, 7, 7), s, z, s, z, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    assert pooled == ([1, 2, 4, 4], np.uint8)
    assert shape("QLinearGlobalAveragePool", (1, 2, 7, 7), s, z, s, z) == ([1, 2, 1, 1], np.uint8)
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        assert shape(op, (2, 3), s, z, s, z) == ([2, 3], np.uint8)
    assert shape("QLinearSoftmax", (2, 3), s, z, s, z, opset=13, axis=-1) == ([2, 3], np.uint8)
    node = helper.make_node("QLinearConcat", ["s", "z", "x", "s", "z", "x", "s", "z"], ["y"], axis=-1, domain="com.microsoft")
    graph = read(build([node], {"x": ([2, 3], uint8)}, ["y"], {"s": s, "z": z}), tmp_path)
    assert (list(graph.outputs[0].shape), graph.outputs[0].dtype.numpy, graph.nodes[0].attrs["axis"]) == ([2, 6], np.uint8, 1)


def test_batched_gemm_of_the_dialect(tmp_path: Path) -> None:
    weight = np.ones((6, 4), np.float32)
    assert list(one(tmp_path, "Gemm", (2, 3, 4), weight, np.zeros(6, np.float32), transB=1).outputs[0].shape) == [2, 3, 6]
    assert list(one(tmp_path, "Gemm", (2, 6, 3), weight, transA=1).outputs[0].shape) == [2, 3, 4]
    with pytest.raises(ModelError, match="multiplies"):
        one(tmp_path, "Gemm", (2, 3, 5), weight)


def test_contradicting_types_do_not_matter(tmp_path: Path) -> None:
    """A dialect file may add a float32 tensor to an int32 one and convolve int8 data."""
    node = helper.make_node
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Add", ["c", "b"], ["a"]), node("MatMul", ["a", "m"], ["y"])]
    constants = {"w": np.ones((3, 2, 1, 1), np.float32), "b": np.ones((3, 1, 1), np.int32), "m": np.ones((4, 6), np.float32)}
    graph = read(build(nodes, {"x": ([1, 2, 5, 4], TensorProto.INT8)}, ["y"], constants, 11), tmp_path)
    assert [list(t.shape) for n in graph.nodes for t in n.outputs] == [[1, 3, 5, 4], [1, 3, 5, 4], [1, 3, 5, 6]]


def test_attributes_stored_as_another_type(tmp_path: Path) -> None:
    """Pad with an integer ``value``, as dialect files have it, and Softmax with a tensor as ``axis``."""
    assert list(one(tmp_path, "Pad", (2,), pads=[1, 1], value=0, mode="constant").outputs[0].shape) == [4]
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    assert one(tmp_path, "Softmax", (2, 3), axis=axis).nodes[0].attrs["axis"] == 1


def test_zero_lengths_are_legal(tmp_path: Path) -> None:
    node = helper.make_node("Concat", ["past", "new"], ["present"], axis=2)
    graph = read(build([node], {"past": f32(1, 4, 0, 8), "new": f32(1, 4, 1, 8)}, ["present"]), tmp_path)
    assert list(graph.outputs[0].shape) == [1, 4, 1, 8]


def test_operators_that_only_a_target_knows(tmp_path: Path) -> None:
    nodes = [helper.make_node("Wobble", ["x"], ["a"], factor=3, domain="own"), helper.make_node("Relu", ["a"], ["y"])]
    model = build(nodes, {"x": f32(2, 4)}, ["y"])
    seen: list[tuple[str, object]] = []

    def shapes(node: Node) -> list[list[int]] | None:
        if not node.inputs:  # asked whether the operator is known at all
            return []
        seen.append((node.op, node.attrs["factor"]))
        return [[*node.inputs[0].shape, 3]]

    graph = read(model, tmp_path, custom_shapes=shapes)
    assert list(graph.outputs[0].shape) == [2, 4, 3]
    assert seen == [("Wobble", 3)]
    with pytest.raises(UnsupportedError, match="Wobble"):
        read(model, tmp_path, custom_shapes=lambda node: None)
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, 9]))
    assert list(read(model, tmp_path).outputs[0].shape) == [2, 9]


@pytest.mark.parametrize("op", ["Relu", "RequantShift"])
def test_operators_of_other_vendors_are_not_taken_for_standard_ones(tmp_path: Path, op: str) -> None:
    node = helper.make_node(op, ["x"], ["y"], name="odd", domain="com.acme")
    with pytest.raises(UnsupportedError, match=rf"{op}.*domain 'com.acme'"):
        read(build([node], {"x": f32(2, 4)}, ["y"]), tmp_path)


def test_shapes_that_depend_on_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="'y', output of node 'the node'"):
        one(tmp_path, "NonZero", (2, 3))
    assert list(one(tmp_path, "Tile", (2, 3), ints(2, 1)).outputs[0].shape) == [4, 3]


def test_real_networks_have_the_shapes_that_they_declare(shared_models: Path) -> None:
    paths = sorted(path for folder in ("dialect", "mlperf_tiny", "hf") for path in (shared_models / folder).rglob("*.onnx"))
    assert len(paths) > 50
    compared = 0
    for path in paths:
        graph, model = import_model(path), onnx.load(path)
        values = [*model.graph.value_info, *model.graph.input, *model.graph.output]
        declared = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values if v.type.tensor_type.HasField("shape")}
        found = {t.name: list(t.shape) for node in graph.nodes for t in (*node.operands, *node.outputs) if t.name in declared}
        assert found == {name: declared[name] for name in found}, path
        assert [t.name for t in graph.outputs] == [v.name for v in model.graph.output]
        assert {n.op for n in graph.nodes}.isdisjoint({"Constant", "Identity", "Dropout", "Squeeze", "Unsqueeze", "Flatten"})
        compared += len(found)
    assert compared > 1000


def test_large_graphs_are_read_quickly(shared_models: Path) -> None:
    """505 nodes well under the 0.8 s allowed; the bound is generous, since machines differ."""
    path = next(p for p in sorted(shared_models.rglob("*.onnx")) if "microLlama64" in str(p))
    start = time.process_time()
    assert len(import_model(path).nodes) == 505
    assert time.process_time() - start < 0.8


@pytest.mark.parametrize("opset", [7, 8, 13])
@pytest.mark.parametrize("op", ["Max", "Mean", "Min", "Sum"])
def test_operands_of_unequal_shapes_broadcast_in_every_opset(tmp_path: Path, op: str, opset: int) -> None:
    """ONNX says so since opset 8; exporters and runtimes did before."""
    graph = read(
        build([helper.make_node(op, ["a", "b", "c"], ["y"])], {"a": f32(1), "b": f32(2, 1), "c": f32(1, 3)}, ["y"], opset=opset), tmp_path
    )
    assert list(graph.outputs[0].shape) == [2, 3]


@pytest.mark.parametrize(("domain", "op"), [("ai.onnx.ml", "CategoryMapper"), ("com.microsoft", "MoE")])
def test_operators_of_other_domains_are_named(tmp_path: Path, domain: str, op: str) -> None:
    model = build([helper.make_node(op, ["x"], ["y"], domain=domain)], {"x": f32(2, 3)}, ["y"])
    with pytest.raises(UnsupportedError, match=f"an operator is unknown: {op} of the domain '{domain}'"):
        read(model, tmp_path)


@pytest.mark.parametrize(("op", "written"), [("Reshape", [2, 1]), ("Expand", [1, 2, 7])])
def test_sizes_of_an_example_in_the_file(op: str, written: list[int], tmp_path: Path) -> None:
    """As tracing exporters leave them behind: the message names the shape of the file, and the extent that it does not fit."""
    model = build([helper.make_node(op, ["x", "s"], ["y"])], {"x": f32("rows", 1)}, ["y"], {"s": ints(*written)})
    onnx.save(model, tmp_path / "m.onnx")
    assert import_model(tmp_path / "m.onnx", {"rows": 2}).outputs[0].shape == (tuple(written) if op == "Reshape" else (1, 2, 7))
    with pytest.raises(ModelError, match="rows=3 leads to: the file holds sizes of an example") as raised:
        import_model(tmp_path / "m.onnx", {"rows": 3})
    assert str(written) in raised.value.what and "dynamic_shapes" in raised.value.remedy


def test_an_operator_that_onnx_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="an operator is unknown: Erfc in the domain of ONNX"):
        one(tmp_path, "Erfc", (2, 3))


def test_operators_that_the_standard_defines_by_others_have_shapes(tmp_path: Path) -> None:
    """All definitions of the standard whose schema infers nothing: as the latest one that does, or the shape of the first input."""
    silent = {
        (schema.name, schema.since_version)
        for schema in onnx.defs.get_all_schemas_with_history()
        if not schema.domain and (schema.has_function or schema.has_context_dependent_function)
        if not schema.has_type_and_shape_inference_function
    }
    assert {("GreaterOrEqual", 12), ("LessOrEqual", 12)} <= silent
    others = {(op, version) for op, version in silent if not keeps_shape("", op)}
    for op, version in sorted(others):
        assert list(one(tmp_path, op, (2, 1, 5), np.ones((3, 1), np.float32), opset=version).outputs[0].shape) == [2, 3, 5]
