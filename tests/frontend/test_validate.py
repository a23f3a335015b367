"""Nodes that are damaged in every way: the importer and the passes refuse them with two lines, or take them; nothing else happens."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.defs import OpSchema

from deeploy import api
from deeploy.driver.lower import Stopwatch, lower_model
from deeploy.errors import DeeployError, ModelError
from deeploy.frontend.constraints import check_constraints
from deeploy.frontend.schemas import DIALECT_OPS, RECORDS, find_record
from deeploy.options import Options
from deeploy.planning.binding.assemble import assemble_program
from deeploy.target import load
from tests.frontend import nodes

SAMPLES = nodes.sample_models()
# Operators without a kernel, which are damaged all the same.
NO_KERNEL = {
    *("LpPool", "Hardmax", "LSTM", "GRU"),
}
FREE_TEXTS = {  # nothing in C is named after them
    *(("Constant", name) for name in ("value_string", "value_strings")),
    *(("Einsum", "equation"), ("RegexFullMatch", "pattern"), ("StringNormalizer", "locale"), ("StringNormalizer", "stopwords")),
    *(("StringSplit", "delimiter"), ("TfIdfVectorizer", "pool_strings"), ("Cast", "to")),
}
FEW = 8  # damaged models of a sample in the fast tests


def lower_and_assemble(model: onnx.ModelProto, folder: Path) -> None:
    target = load("generic")
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    found = lower_model(Stopwatch(), folder / "model.onnx", target, Options())
    assemble_program("network", found.graph, target.kernels, {})


def refused(model: onnx.ModelProto, folder: Path, label: str) -> bool:
    """Whether a model is refused, in lines that can be printed."""
    try:
        lower_and_assemble(model, folder)
    except DeeployError as error:
        lines = str(error).splitlines()
        assert len(lines) == 2 or "no kernel" in lines[0], label
        assert all(line.isprintable() and len(line) < 1000 for line in lines), label
        return True
    return False


def damaged(name: str) -> list[tuple[str, nodes.Change]]:
    return [*nodes.attributes_damaged(SAMPLES[name]), *nodes.inputs_damaged(SAMPLES[name])]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_taken_and_what_is_damaged_refused_or_taken(name: str, tmp_path: Path) -> None:
    op = SAMPLES[name].graph.node[0].op_type
    if op not in NO_KERNEL:
        lower_and_assemble(SAMPLES[name], tmp_path)
    tried = random.Random(name).sample(damaged(name), FEW)
    assert any([refused(nodes.changed(SAMPLES[name], change), tmp_path, label) for label, change in tried])


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_whatever_is_damaged_is_refused_or_taken(name: str, tmp_path: Path) -> None:
    assert sum(refused(nodes.changed(SAMPLES[name], change), tmp_path, label) for label, change in damaged(name)) > 10


@pytest.mark.parametrize("equation", ["A\nB", ">-.b>a-", " --AA..", "ba>,..>>-"])
def test_equations_with_which_the_inference_of_onnx_does_not_end(equation: str, tmp_path: Path) -> None:
    model = copy.deepcopy(SAMPLES["Einsum"])
    next(one for one in model.graph.node[0].attribute if one.name == "equation").s = equation.encode()
    assert refused(model, tmp_path, equation)


def test_attributes_that_onnxruntime_demands_of_its_own_operators(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    schemas = [schema for schema in onnxruntime.get_all_operator_schema() if schema.domain == nodes.MS]
    demanded = {schema.name: {name for name, attribute in schema.attributes.items() if attribute.required} for schema in schemas}
    tried = set()
    for name, model in SAMPLES.items():
        node = model.graph.node[0]
        for attribute in node.attribute if node.domain == nodes.MS else ():
            if attribute.name in demanded.get(node.op_type, ()):  # not all builds have those of training
                without = copy.deepcopy(model)
                without.graph.node[0].attribute.remove(attribute)
                assert refused(without, tmp_path, name), (name, attribute.name)
                tried.add((node.op_type, attribute.name))
    assert tried >= {("QLinearReduceMean", "axes"), ("QLinearReduceMean", "keepdims"), ("QLinearConcat", "axis")}


def texts() -> Iterator[tuple[str, str]]:
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attribute in schema.attributes.items():
            if schema.domain == "" and attribute.type in (OpSchema.AttrType.STRING, OpSchema.AttrType.STRINGS):
                yield schema.name, name


def test_every_attribute_that_is_a_text_has_its_values_or_is_free() -> None:
    listed = {(op, name): known.texts for (_, op), record in RECORDS.items() for name, known in record.attributes.items() if known.texts}
    assert {*texts()} - {*listed} == FREE_TEXTS
    for op in ("Pad", "Resize", "Conv"):
        schema = onnx.defs.get_schema(op, 19)
        for name, attribute in schema.attributes.items():
            if attribute.type == OpSchema.AttrType.STRING:
                assert attribute.default_value.s.decode() in listed[op, name]


@pytest.mark.parametrize("name", [n for n in SAMPLES if any(a.type == a.STRING for a in SAMPLES[n].graph.node[0].attribute)])
def test_no_text_of_a_model_is_taken_that_is_not_listed(name: str, tmp_path: Path) -> None:
    for index, attribute in enumerate(SAMPLES[name].graph.node[0].attribute):
        if attribute.type == attribute.STRING and attribute.name not in ("equation", "out_dtype"):
            broken = copy.deepcopy(SAMPLES[name])
            broken.graph.node[0].attribute[index].s = b"constant'); system(1); //"
            with pytest.raises(ModelError, match=f"has {attribute.name} = .*not one of"):
                lower_and_assemble(broken, tmp_path)


def test_the_dialect_and_its_samples_have_each_other() -> None:
    own = {key for key, record in RECORDS.items() if record.inputs is not None}
    assert {op for domain, op in own if not domain} >= DIALECT_OPS
    assert {model.graph.node[0].op_type for model in SAMPLES.values()} >= {op for _, op in own}


def test_operators_of_onnx_have_no_record_of_another_domain() -> None:
    shared = {op for domain, op in RECORDS if domain and onnx.defs.has(op)}
    assert {"Attention", "Gelu", "RotaryEmbedding"} <= shared
    assert all(find_record("", op) is not RECORDS[domain, op] for domain, op in RECORDS if op in shared and domain)
    inputs = [gs.Variable(name, np.float32, (2, 3, 4)) for name in "qkv"] + [gs.Variable("mask", np.float32, (3, 3))]
    check_constraints(helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"]), {}, inputs)
    with pytest.raises(ModelError, match=r"has a mask of shape \[3, 3\]"):
        check_constraints(helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"], domain=nodes.MS), {}, inputs)


@pytest.mark.parametrize("field", ["name", "op_type", "domain", "input", "doc", "tensor", "parameter", "producer", "key", "graph"])
def test_a_text_that_is_not_utf8_is_named(field: str, tmp_path: Path) -> None:
    marked = f"the{field}mark"
    node = helper.make_node("Neg", ["x" if field != "input" else marked], ["y"], name=marked if field == "name" else "n")
    given = [helper.make_tensor_value_info("x" if field != "input" else marked, 1, [marked if field == "parameter" else 2])]
    graph = helper.make_graph([node], marked if field == "graph" else "g", given, [helper.make_tensor_value_info("y", 1, None)])
    graph.initializer.append(numpy_helper.from_array(np.zeros(2, np.float32), marked if field == "tensor" else "w"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name=marked if field == "producer" else "p")
    graph_node = model.graph.node[0]
    if field in ("op_type", "domain"):
        setattr(graph_node, field, marked)
    graph_node.doc_string = marked if field == "doc" else ""
    model.metadata_props.add(key=marked if field == "key" else "k", value="v")
    data = model.SerializeToString()
    assert data.count(marked.encode()) in (1, 2)
    (tmp_path / "model.onnx").write_bytes(data.replace(b"mark", b"\xff\xfe\x1b\x07"))
    with pytest.raises(ModelError, match=r"\\\\xff\\\\xfe\\x1b\\x07' of .* is not UTF-8 text") as raised:
        api.compile(tmp_path / "model.onnx")
    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize("scale", [0.0, -0.5, -1e-40, float("inf"), float("nan")])
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_scales_are_finite_and_positive(op: str, scale: float, tmp_path: Path) -> None:
    kind = np.float32 if op == "QuantizeLinear" else np.int8
    model = nodes.sample(op, [((2, 3), kind), np.array([0.1, scale, 0.1], np.float32), np.zeros(3, np.int8)], axis=1)
    with pytest.raises(ModelError, match=rf"has the scale 'i1', which is {np.float32(scale):g}".replace("+", r"\+")):
        lower_and_assemble(model, tmp_path)


def test_loops_and_missing_tensors_are_found_before_anything_walks_the_graph(tmp_path: Path) -> None:
    model = nodes.sample("Add", [(2, 3), (2, 3)])
    model.graph.node[0].input[1] = "o0"
    with pytest.raises(ModelError, match="reads its own output"):
        lower_and_assemble(model, tmp_path)
    model.graph.node[0].input[1] = "nobody"
    with pytest.raises(ModelError, match="reads 'nobody', which nothing produces"):
        lower_and_assemble(model, tmp_path)
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
