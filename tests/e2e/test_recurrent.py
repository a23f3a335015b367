"""LSTM, GRU and RNN: every option of ONNX against onnxruntime, in C on the host, on two targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import deeploy
from deeploy.driver.verify import verify_compiled
from deeploy.errors import DeeployError, UnsupportedError
from tests.models import model_of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
UNITS, INPUTS = 7, 6
PEEPHOLES, FIRST = 7, {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}


def recurrent_model(
    op: str,
    steps: int = 5,
    batch: int = 2,
    direction: str = "forward",
    layout: int = 0,
    first: str = "",
    outputs: str = "yhc",
    units: int = UNITS,
    bias: bool = True,
    peepholes: bool = False,
    **attrs: Any,
) -> onnx.ModelProto:
    """A layer; ``first`` says whether its states before the first step are a "constant", an "input", or absent."""
    rng, count = np.random.default_rng(0), 2 if direction == "bidirectional" else 1
    gates = GATES[op] * units
    shapes = {1: (count, gates, INPUTS), 2: (count, gates, units), **({3: (count, 2 * gates)} if bias else {})}
    shapes |= {PEEPHOLES: (count, 3 * units)} if peepholes else {}
    state = (batch, count, units) if layout else (count, batch, units)
    inputs = {0: (batch, steps, INPUTS) if layout else (steps, batch, INPUTS)}
    (inputs if first == "input" else shapes if first else {}).update(dict.fromkeys(FIRST[op], state))
    names = [f"operand{i}" if i in {**inputs, **shapes} else "" for i in range(8)]
    while not names[-1]:
        names.pop()
    results = {"y": (batch, steps, count, units) if layout else (steps, count, batch, units), "h": state, "c": state}
    every = "yhc" if op == "LSTM" else "yh"
    node = helper.make_node(
        op, names, [n if n in outputs else "" for n in every], op.lower(), hidden_size=units, direction=direction, **attrs, layout=layout
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(names[i], TensorProto.FLOAT, shape) for i, shape in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, results[n]) for n in every if n in outputs],
        [numpy_helper.from_array(rng.normal(scale=0.5, size=shape).astype(np.float32), names[i]) for i, shape in shapes.items()],
    )
    return model_of(graph, 14)


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{op} {direction}": (op, {"direction": direction}) for op in GATES for direction in ("forward", "reverse", "bidirectional")},
    **{f"{op} one step": (op, {"steps": 1, "direction": "bidirectional", "linear_before_reset": 1, "first": "input"}) for op in GATES},
    **{f"{op} from {first}": (op, {"first": first, "direction": "reverse"}) for op in GATES for first in ("input", "constant")},
    "last states": ("LSTM", {"outputs": "hc", "direction": "bidirectional", "batch": 1}),
    "no bias": ("LSTM", {"bias": False}),
    "peepholes": ("LSTM", {"peepholes": True}),
    "peepholes of one step": ("LSTM", {"peepholes": True, "steps": 1, "first": "input"}),
    "input and forget": ("LSTM", {"input_forget": 1}),
    "clip": ("LSTM", {"clip": 0.3}),
    "clip of a GRU": ("GRU", {"clip": 0.3, "linear_before_reset": 1}),
    "product is reset": ("GRU", {"linear_before_reset": 1, "direction": "bidirectional", "first": "input"}),
    "state of one step is reset": ("GRU", {"steps": 1, "first": "input"}),
    "functions": (
        "LSTM",
        {"activations": ["HardSigmoid", "Softsign", "ScaledTanh"], "activation_alpha": [0.3, 1.2], "activation_beta": [0.4, 0.7]},
    ),
    "functions by direction": (
        "LSTM",
        {
            "direction": "bidirectional",
            "activations": ["Sigmoid", "Tanh", "Relu", "Affine", "Elu", "Softplus"],
            "activation_alpha": [0.3, 0.9],
            "activation_beta": [0.4],
        },
    ),
    "leaky": ("GRU", {"activations": ["HardSigmoid", "LeakyRelu"], "activation_alpha": [0.3, 0.2], "activation_beta": [0.4]}),
    "threshold": ("RNN", {"activations": ["ThresholdedRelu"], "activation_alpha": [0.2], "clip": 2.0}),
    "weights that pass by": ("LSTM", {"steps": 2, "batch": 1, "units": 200}),
    "a long sequence": ("GRU", {"steps": 150, "batch": 1, "units": 40, "direction": "reverse", "linear_before_reset": 1}),
}


def attributes(op: str, given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "linear_before_reset" or op == "GRU"}


@pytest.mark.share(0.4)
@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize("option", OPTIONS)
def test_results_are_those_of_onnxruntime(tmp_path: Path, option: str, target: str) -> None:
    op, given = OPTIONS[option]
    path = tmp_path / "m.onnx"
    onnx.save(recurrent_model(op, **attributes(op, given)), path)
    found = verify_compiled(deeploy.compile(path, target), path)
    assert found.passed, found
    assert any(against == "onnxruntime" for against, _ in found.comparisons) or found.notes


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("steps", [1, 4])
def test_batches_may_come_first(tmp_path: Path, op: str, direction: str, steps: int) -> None:
    """Layout 1 gives what layout 0 does of transposed inputs."""
    compiled = []
    for layout in (0, 1):
        path = tmp_path / f"m{layout}.onnx"
        onnx.save(recurrent_model(op, steps, direction=direction, layout=layout, first="input"), path)
        compiled.append(deeploy.compile(path))
    rng = np.random.default_rng(1)
    inputs = [rng.normal(size=[d.dim_value for d in v.type.tensor_type.shape.dim]) for v in onnx.load(tmp_path / "m0.onnx").graph.input]
    plain = [a.astype(np.float32) for a in inputs]
    turned = [np.ascontiguousarray(a.swapaxes(0, 1)) for a in plain]
    orders = [(2, 0, 1, 3), *[(1, 0, 2)] * 2]
    for a, b, order in zip(compiled[0].run(plain), compiled[1].run(turned), orders, strict=False):
        assert np.allclose(a.transpose(order), b, atol=1e-6)


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_results_are_those_of_the_standard(tmp_path: Path, op: str) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(recurrent_model(op, outputs="h", first="constant"), path)
    x = np.random.default_rng(2).normal(size=(5, 2, INPUTS)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(onnx.load(path)).run(None, {"operand0": x})
    assert np.allclose(deeploy.compile(path, "siracusa").run([x])[0], wanted, atol=1e-5)


def changed(op: str = "LSTM", lengths: object = None, **attrs: Any) -> onnx.ModelProto:
    """A layer with other sequence lengths, or attributes."""
    made = recurrent_model(op, first="constant")
    node = made.graph.node[0]
    if lengths is not None:
        node.input[4] = "lengths"
        if isinstance(lengths, str):
            made.graph.input.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [2]))
        else:
            made.graph.initializer.append(numpy_helper.from_array(np.asarray(lengths, np.int32), "lengths"))
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attrs.items())
    return made


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (changed(lengths=[5, 3]), "node 'lstm' (LSTM) has sequence lengths that are not 5, that of its input"),
        (changed(lengths="input"), "node 'lstm' (LSTM) has sequence lengths that are computed"),
        (changed(activations=["Sigmoid", "Tanh"]), "node 'lstm' (LSTM) has 2 activations instead of 3"),
        (changed(activations=["Sigmoid", "Tanh", "Sine"]), "node 'lstm' (LSTM) has activations = 'Sine', not one of"),
    ],
)
def test_what_is_not_supported_is_said_in_two_lines(tmp_path: Path, made: onnx.ModelProto, text: str) -> None:
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(DeeployError) as error:
        deeploy.compile(tmp_path / "m.onnx")
    lines = str(error.value).splitlines()
    assert len(lines) == 2
    assert text in lines[0]


def test_lengths_of_the_sequence_itself_change_nothing(tmp_path: Path) -> None:
    x = np.random.default_rng(2).normal(size=(5, 2, INPUTS)).astype(np.float32)
    results = []
    for number, made in enumerate((changed(lengths=[5, 5]), changed())):
        onnx.save(made, tmp_path / f"{number}.onnx")
        results.append(deeploy.compile(tmp_path / f"{number}.onnx").run([x]))
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def test_weights_are_constants(tmp_path: Path) -> None:
    """Those that are computed are taken step by step, but for options that this does not have."""
    made = changed(clip=1.0)
    weights = next(t for t in made.graph.initializer if t.name == "operand1")
    made.graph.initializer.remove(weights)
    made.graph.input.append(helper.make_tensor_value_info("operand1", TensorProto.FLOAT, list(weights.dims)))
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="has weights operand1 that are computed\nExport"):
        deeploy.compile(tmp_path / "m.onnx")


def quantised(
    op: str, direction: str = "forward", axis: int | None = 1, outputs: str = "y", kind: type = np.int8, first: bool = False
) -> onnx.ModelProto:
    """A layer between quantisations of its input and its outputs, with weights of 8 bits."""
    rng, count = np.random.default_rng(0), 2 if direction == "bidirectional" else 1
    gates, zero = GATES[op] * UNITS, kind(128 if kind is np.uint8 else 3)
    constants: dict[str, np.ndarray] = {"x_step": np.float32(0.03), "x_zero": zero, "step": np.float32(1 / 127), "zero": np.int8(0)}
    constants["b"] = rng.normal(size=(count, 2 * gates)).astype(np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "x_step", "x_zero"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "x_step", "x_zero"], ["xd"]),
    ]
    for name, size in (("w", INPUTS), ("r", UNITS)):
        real = rng.normal(size=(count, gates, size)) / size**0.5
        step = np.abs(real).max(axis=tuple(i for i in range(3) if i != axis), keepdims=True) / 127
        constants |= {
            f"{name}_q": np.rint(real / step).astype(np.int8),
            f"{name}_step": np.asarray(step, np.float32).reshape([-1] if axis is not None else []),
        }
        constants[f"{name}_zero"] = np.zeros(constants[f"{name}_step"].shape, np.int8)
        along = {} if axis is None else {"axis": axis}
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_step", f"{name}_zero"], [name], **along))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (20, 1, INPUTS))]
    states = ["h", "c"][: len(FIRST[op])] if first else []
    for name in states:
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, (count, 1, UNITS)))
        nodes.append(helper.make_node("QuantizeLinear", [name, "step", "zero"], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", "step", "zero"], [f"{name}_d"]))
    attrs = {"linear_before_reset": 1} if op == "GRU" else {}
    names, every = ["xd", "w", "r", "b", "", *(f"{name}_d" for name in states)], "yhc" if op == "LSTM" else "yh"
    made = [f"{n}_real" if n in outputs else "" for n in every]
    nodes.append(helper.make_node(op, names, made, "layer", hidden_size=UNITS, direction=direction, **attrs))
    shapes, results = {"y": (20, count, 1, UNITS), "h": (count, 1, UNITS), "c": (count, 1, UNITS)}, []
    for n in every:
        if n in outputs:
            nodes.append(helper.make_node("QuantizeLinear", [f"{n}_real", "step", "zero"], [f"{n}_end"]))
            nodes.append(helper.make_node("DequantizeLinear", [f"{n}_end", "step", "zero"], [f"{n}_out"]))
            results.append(helper.make_tensor_value_info(f"{n}_out", TensorProto.FLOAT, shapes[n]))
    graph = helper.make_graph(nodes, "g", inputs, results, [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()])
    return model_of(graph, 14)


QUANTISED: dict[str, tuple[str, dict[str, Any]]] = {
    **{op: (op, {}) for op in GATES},
    "all results": ("LSTM", {"direction": "bidirectional", "axis": None, "outputs": "yhc"}),
    "from states": ("LSTM", {"direction": "reverse", "outputs": "yh", "first": True}),
    "unsigned": ("GRU", {"axis": 0, "outputs": "yh", "kind": np.uint8, "direction": "bidirectional"}),
}


@pytest.mark.parametrize("target", ["generic", "siracusa"])
@pytest.mark.parametrize("option", QUANTISED)
def test_quantised_layers_are_computed_in_integers(tmp_path: Path, option: str, target: str) -> None:
    op, given = QUANTISED[option]
    path = tmp_path / "m.onnx"
    onnx.save(quantised(op, **given), path)
    compiled = deeploy.compile(path, target)
    calls = {call.kernel.op for unit in compiled.units.values() for call in unit.network.program.calls}
    assert f"Integer{op}" in calls and op not in calls
    found = verify_compiled(compiled, path)
    assert found.passed, found
    assert all(c.equal == 1 for against, c in found.comparisons if against == "interpreter")
