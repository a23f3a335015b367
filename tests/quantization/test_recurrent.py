"""Recurrent layers and magnitudes: what `quantize` makes of them is computed in integers where that keeps accuracy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.quantization.form import Form
from deeploy.quantization.losses import compare_networks
from deeploy.quantization.messages import compare_sizes, constant_sizes
from deeploy.quantization.static import quantize_model, read_source
from tests.models import save_graph

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, INPUTS, UNITS = 12, 10, 14
RANDOM = np.random.default_rng(5)


def save_recurrent(path: Path, op: str, samples: Path) -> Path:
    """A layer that begins with given states and is read as a sequence and at its end; states go out in one tensor."""
    shapes = {"w": (1, GATES[op] * UNITS, INPUTS), "r": (1, GATES[op] * UNITS, UNITS), "b": (1, 2 * GATES[op] * UNITS), "v": (UNITS, 3)}
    weights = {name: RANDOM.normal(size=shape).astype(np.float32) / shape[-1] ** 0.5 for name, shape in shapes.items()}
    names = ["h", "c"][: 2 if op == "LSTM" else 1]
    attributes = {"linear_before_reset": 1} if op == "GRU" else {}
    nodes = [
        helper.make_node(op, ["x", "w", "r", "b", "", *names], ["y", *(f"{n}n" for n in names)], "layer", hidden_size=UNITS, **attributes),
        helper.make_node("Concat", [f"{n}n" for n in names], ["state"], "states", axis=0),
        helper.make_node("Squeeze", ["y", "one"], ["flat"], "flat"),
        helper.make_node("MatMul", ["flat", "v"], ["scores"], "product"),
    ]
    inputs = {"x": (STEPS, 1, INPUTS), **dict.fromkeys(names, (1, 1, UNITS))}
    outputs = {"scores": (STEPS, 1, 3), "state": (len(names), 1, UNITS)}
    made, found = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in each.items()] for each in (inputs, outputs))
    constants = [numpy_helper.from_array(value, n) for n, value in {**weights, "one": np.array([1])}.items()]
    graph = helper.make_graph(nodes, "g", made, found, constants)
    save_graph(graph, path)
    np.savez(samples, **{n: RANDOM.uniform(-0.9, 0.9, size=(8, *shape)).astype(np.float32) for n, shape in inputs.items()})
    return path


@pytest.mark.share(0.25)
@pytest.mark.parametrize("op", GATES)
def test_layers_are_computed_in_integers_and_their_states_stay_exact(op: str, tmp_path: Path) -> None:
    model = save_recurrent(tmp_path / "f.onnx", op, tmp_path / "c.npz")
    quantize_model(model, tmp_path / "c.npz", tmp_path / "q.onnx", Form(per_channel=op != "RNN"))
    made = onnx.load(tmp_path / "q.onnx")
    scales = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer if tensor.name.startswith(("w_", "r_"))}
    assert {value.size for name, value in scales.items() if "scale" in name} == {1 if op == "RNN" else GATES[op] * UNITS}
    assert next(node.input for node in made.graph.node if node.op_type == "Concat")[0] == "hn"
    source = read_source(model, tmp_path / "c.npz", {}, {})
    assert compare_networks(source, tmp_path / "q.onnx").signal_to_noise > 30
    compiled = deeploy.compile(tmp_path / "q.onnx", "siracusa")
    assert Counter(call.kernel.op for unit in compiled.units.values() for call in unit.network.program.calls)[f"Integer{op}"] == 1
    session = onnxruntime.InferenceSession(tmp_path / "q.onnx")
    pairs = [(compiled.run(sample), session.run(None, sample)) for sample in source.samples]
    apart = np.stack([np.abs(got[0] - right[0]) for got, right in pairs])
    step = min(apart[apart > 1e-6], default=1.0)
    assert apart.max() < 1.01 * step and np.mean(apart > 1e-6) < 0.02
    assert max(np.abs(got[1] - right[1]).max() for got, right in pairs) < 1.5e-4


def test_a_layer_is_left_in_float_where_its_states_have_no_bound(tmp_path: Path) -> None:
    model = save_recurrent(tmp_path / "f.onnx", "RNN", tmp_path / "c.npz")
    loaded = onnx.load(model)
    loaded.graph.node[0].attribute.append(helper.make_attribute("activations", ["Relu"]))
    onnx.save(loaded, model)
    quantize_model(model, tmp_path / "c.npz", tmp_path / "q.onnx")
    layer = next(node for node in onnx.load(tmp_path / "q.onnx").graph.node if node.op_type == "RNN")
    assert list(layer.input[1:3]) == ["w", "r"]


def test_magnitudes_stay_in_float(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Pow", ["a", "two"], ["p"], "square"),
        helper.make_node("Mul", ["b", "b"], ["q"], "product"),
        helper.make_node("Add", ["p", "q"], ["s"], "sum"),
        helper.make_node("Sqrt", ["s"], ["m"], "root"),
        helper.make_node("Mul", ["m", "a"], ["y"], "behind"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 40]) for name in "aby"]
    graph = helper.make_graph(nodes, "g", values[:2], values[2:], [numpy_helper.from_array(np.float32(2), "two")])
    save_graph(graph, tmp_path / "f.onnx")
    np.savez(tmp_path / "c.npz", **{n: RANDOM.normal(size=(8, 40)).astype(np.float32) for n in "ab"})
    quantize_model(tmp_path / "f.onnx", tmp_path / "c.npz", tmp_path / "q.onnx")
    made = {node.name: node for node in onnx.load(tmp_path / "q.onnx").graph.node}
    assert [made[name].input[0] for name in ("sum", "root")] == ["p", "s"]
    assert made["behind"].input[0] == "m_DequantizeLinear_Output"


def test_a_form_that_is_larger_than_the_float_one_is_said(tmp_path: Path) -> None:
    model = save_recurrent(tmp_path / "f.onnx", "LSTM", tmp_path / "c.npz")
    source = read_source(model, tmp_path / "c.npz", {}, {})
    quantize_model(model, tmp_path / "c.npz", tmp_path / "q.onnx")
    floats, quantised = constant_sizes(source, onnx.load(tmp_path / "q.onnx"))
    assert floats == sum(numpy_helper.to_array(tensor).nbytes for tensor in onnx.load(model).graph.initializer)
    tables = [b for b in deeploy.compile(tmp_path / "q.onnx").network.program.buffers.values() if b.shape[-1:] == (1025,)]
    assert sum(b.bytes for b in tables) == 4100 and floats < quantised < floats + 4100  # a small layer
    assert "larger" in compare_sizes(100, 101) and "larger" not in compare_sizes(101, 100)
