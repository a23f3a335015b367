"""Floats of 64 bits: what depends on inputs is computed in 32, as onnxruntime computes it in 64 within its rule; constants fold in 64."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import deeploy
from deeploy.api import verify
from deeploy.frontend import import_states
from deeploy.frontend.structure import all_graphs
from tests.frontend.lower import nets_transformer
from tests.frontend.lower.nets import CONSTRUCTS
from tests.frontend.models import build, read
from tests.models import OPSET, Net

Node = helper.make_node
DOUBLE, FLOAT = TensorProto.DOUBLE, TensorProto.FLOAT


def doubled(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model of floats with all of them in 64 bits."""
    for graph in all_graphs(model.graph):
        tensors = list(graph.initializer)
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type.tensor_type
            kind.elem_type = DOUBLE if kind.elem_type == FLOAT else kind.elem_type
        for attribute in (attribute for node in graph.node for attribute in node.attribute):
            if attribute.name in ("to", "dtype") and attribute.i == FLOAT:
                attribute.i = DOUBLE
            if attribute.type == AttributeProto.TENSOR:
                tensors.append(attribute.t)
        for tensor in tensors:
            if tensor.data_type == FLOAT:
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    return model


def drawn(count: int) -> list[str]:
    """Networks of floats alone, with one output, whose operators ONNX defines for floats of 64 bits."""
    found = [name for name in CONSTRUCTS if "resize" not in name and "quant" not in name]
    return random.Random(11).sample(found, count)


@pytest.mark.parametrize("name", drawn(24))
def test_networks_in_doubles(name: str) -> None:
    net = Net()
    result = CONSTRUCTS[name](net)
    if not isinstance(result, str) or any(value.type.tensor_type.elem_type != FLOAT for value in net.inputs):
        pytest.skip("the network has several outputs, or inputs that are no floats")
    model = doubled(net.model([str(result)], nets_transformer.OPSETS.get(name, OPSET)))
    feeds = {v.name: np.random.default_rng(0).standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim]) for v in net.inputs}
    got = deeploy.compile(model).interpret([array.astype(np.float32) for array in feeds.values()])
    assert all(array.dtype != np.float64 for array in got)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        want = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        pytest.skip("onnxruntime has no kernel for doubles here")
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def dense() -> onnx.ModelProto:
    """Doubles at both ends, a bound and a mask that float32 does not have, and a cast between both floats."""
    random = np.random.default_rng(1)
    nodes = [
        Node("MatMul", ["x", "w"], ["a"]),
        Node("Clip", ["a", "low", "high"], ["b"]),
        Node("Cast", ["b"], ["c"], to=FLOAT),
        Node("Relu", ["c"], ["d"]),
        Node("Cast", ["d"], ["e"], to=DOUBLE),
        Node("Add", ["e", "mask"], ["f"]),
        Node("Softmax", ["f"], ["y"], axis=1),
    ]
    constants = {"w": random.standard_normal((5, 4)), "low": np.array(-1.5e308), "high": np.array(1e300)}
    mask = np.array([[0, 0, -1.7e308, 0]])
    model = build(nodes, {"x": ([2, 5], DOUBLE)}, ["y", "d"], {**constants, "mask": mask}, 17)
    model.graph.output[0].type.tensor_type.elem_type = DOUBLE
    return model


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_c_is_what_onnxruntime_computes_in_doubles(tmp_path: Path, target: str) -> None:
    onnx.save(dense(), tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx", target)
    verdict = verify(compiled, tmp_path / "m.onnx")
    assert verdict.passed and {against for against, _ in verdict.comparisons} == {"interpreter", "onnxruntime"}
    (note,) = import_states(tmp_path / "m.onnx").notes
    assert note == "x, y: floats of 64 bits in the model, float32 in C"


def test_constants_fold_in_doubles(tmp_path: Path) -> None:
    """The product of 50 and 2.3 is below 115 in 64 bits, and 115 in 32."""
    nodes = [
        Node("Mul", ["n", "factor"], ["m"]),
        Node("Floor", ["m"], ["f"]),
        Node("Cast", ["f"], ["shape"], to=TensorProto.INT64),
        Node("Expand", ["x", "shape"], ["y"]),
    ]
    graph = read(build(nodes, {"x": ([1], DOUBLE)}, ["y"], {"n": np.array([50.0]), "factor": np.array([2.3])}), tmp_path)
    assert list(graph.outputs[0].shape) == [114]
