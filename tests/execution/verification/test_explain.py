"""Differences from onnxruntime are explained by evidence, and a wrong layer never is, whatever the network makes of its error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import deeploy
from deeploy.driver import verify
from deeploy.execution.simulation.interpreter import network_outputs
from deeploy.execution.verification import onnxruntime_reference
from deeploy.execution.verification.compare import compare_output
from deeploy.execution.verification.explain import Evidence, explain_difference
from deeploy.execution.verification.layers import find_places, run_layers
from deeploy.operators.elementwise import FUNCTIONS
from tests.command import deeploy_cli
from tests.models import save_model

pytest.importorskip("onnxruntime", reason="the extra verify is not installed")
RNG = np.random.default_rng(3)
SIZE = 32
X = RNG.normal(size=(2, SIZE)).astype(np.float32)


def save(path: Path, nodes: list[onnx.NodeProto], constants: dict[str, Any], result: str) -> Path:
    """A network of x and one result, both of shape [2, SIZE]."""
    return save_model(path, nodes, {"x": [2, SIZE]}, {result: [2, SIZE]}, constants)


def chaotic(path: Path, depth: int = 24) -> Path:
    """A product, squeezed into [0, 1], and steps of the logistic map, of which each doubles what two values are apart."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Abs", ["p"], ["a"])]
    nodes += [helper.make_node("Add", ["a", "one"], ["b"]), helper.make_node("Div", ["a", "b"], ["x0"])]
    for k in range(depth):
        nodes.append(helper.make_node("Sub", ["one", f"x{k}"], [f"rest{k}"]))
        nodes.append(helper.make_node("Mul", [f"x{k}", f"rest{k}"], [f"product{k}"]))
        nodes.append(helper.make_node("Mul", [f"product{k}", "four"], [f"x{k + 1}"]))
    constants = {"w": np.random.default_rng(0).normal(size=(SIZE, SIZE)).astype(np.float32), "one": np.float32(1), "four": np.float32(4)}
    return save(path, nodes, constants, f"x{depth}")


def tiny(path: Path) -> Path:
    """Values around 1e-6, which are made large before steps of the logistic map."""
    nodes = [helper.make_node("Mul", ["x", "small"], ["s"]), helper.make_node("MatMul", ["s", "w"], ["p"])]
    nodes += [
        helper.make_node("Abs", ["p"], ["a"]),
        helper.make_node("Mul", ["a", "large"], ["l"]),
        helper.make_node("Add", ["l", "one"], ["b"]),
    ]
    nodes.append(helper.make_node("Div", ["l", "b"], ["x0"]))
    for k in range(24):
        nodes.append(helper.make_node("Sub", ["one", f"x{k}"], [f"rest{k}"]))
        nodes.append(helper.make_node("Mul", [f"x{k}", f"rest{k}"], [f"product{k}"]))
        nodes.append(helper.make_node("Mul", [f"product{k}", "four"], [f"x{k + 1}"]))
    w = np.random.default_rng(0).normal(size=(SIZE, SIZE)).astype(np.float32)
    constants = {"w": w, "small": np.float32(1e-6), "large": np.float32(1e6), "one": np.float32(1), "four": np.float32(4)}
    return save(path, nodes, constants, "x24")


def layers_in_8_bits(path: Path) -> Path:
    """Products in 8 bits; a last one in floats makes much of every step before it."""
    nodes, constants = (
        [],
        {"s": np.float32(0.05), "z": np.int8(0), "ws": np.float32(0.01), "w": RNG.normal(size=(SIZE, SIZE)).astype(np.float32)},
    )
    at = "x"
    for k in range(4):
        constants[f"w{k}"] = np.random.default_rng(k).integers(-127, 128, (SIZE, SIZE)).astype(np.int8)
        nodes.append(helper.make_node("QuantizeLinear", [at, "s", "z"], [f"q{k}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{k}", "s", "z"], [f"d{k}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"w{k}", "ws", "z"], [f"wd{k}"]))
        nodes.append(helper.make_node("MatMul", [f"d{k}", f"wd{k}"], [f"p{k}"]))
        at = f"p{k}"
    nodes += [helper.make_node("QuantizeLinear", [at, "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"])]
    nodes.append(helper.make_node("MatMul", ["d", "w"], ["y"]))
    return save(path, nodes, constants, "y")


def probabilities(path: Path) -> Path:
    """A softmax along the channels in 8 bits, whose steps a last product in floats makes much of."""
    scales = {"s": np.float32(0.05), "z": np.int8(0), "ps": np.float32(1 / 255), "pz": np.int8(-128)}
    constants = {**scales, "w": RNG.normal(size=(SIZE, SIZE)).astype(np.float32), "image": [2, 4, 2, 4], "rows": [2, SIZE]}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Reshape", ["d", "image"], ["i"]),
        helper.make_node("Softmax", ["i"], ["p"], axis=1),
        helper.make_node("QuantizeLinear", ["p", "ps", "pz"], ["pq"]),
        helper.make_node("DequantizeLinear", ["pq", "ps", "pz"], ["pd"]),
        helper.make_node("Reshape", ["pd", "rows"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    return save(path, nodes, constants, "y")


def explained(compiled: Path, model: Path) -> Evidence:
    """What is said of a network that computes one model, as if onnxruntime's optimiser gave something else for another one."""
    program = deeploy.compile(compiled).network.program
    result = onnx.load(model).graph.output[0].name
    port = {"name": result, "type": "f32", "shape": [2, SIZE], "equality": "float", "step": 1.0, "scale": 1.0, "zero_point": 0}
    entry = {"inputs": [{"name": "x", "type": "f32", "shape": [2, SIZE]}], "outputs": [port]}
    (y,) = network_outputs(program, [X])
    against = [compare_output(port, y[None], y[None] + 1)]
    found = explain_difference(program, entry, [[X]], model.read_bytes(), [y[None]], against)
    assert isinstance(found, Evidence)
    return found


def changed(model: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> Path:
    """The model with another constant."""
    loaded = onnx.load(model)
    for tensor in loaded.graph.initializer:
        if tensor.name == name:
            value = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(change(value), value.dtype), name))
    other = model.with_name(f"other_{name}.onnx")
    onnx.save(loaded, other)
    return other


def swapped(model: Path, result: str, op: str) -> Path:
    """The model with another operator."""
    loaded = onnx.load(model)
    for node in loaded.graph.node:
        if result in node.output:
            node.op_type = op
    other = model.with_name(f"other_{result}.onnx")
    onnx.save(loaded, other)
    return other


def test_a_network_that_amplifies_rounding_is_explained_and_strict_fails(tmp_path: Path) -> None:
    model = chaotic(tmp_path / "m.onnx")
    done = deeploy_cli("verify", model, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["verdict"], told["comparisons"][0]["rule"]) == (0, "explained", "every bit")
    assert "this network amplifies rounding: inputs moved by 1e-06 move outputs by" in told["evidence"]["text"]
    assert told["evidence"]["moved"][0]["worst"] > 1e-3
    assert deeploy_cli("verify", model, "--strict").returncode == 1


def test_an_optimiser_that_is_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = chaotic(tmp_path / "m.onnx", 0)
    original = onnxruntime_reference.open_session

    class Wrong(onnxruntime_reference.Session):
        def run(self, *given: Any) -> Any:
            return [array + np.float32(0.5) for array in super().run(*given)]

    def session(model: Path | bytes, entry: Any, optimise: bool = True, save: Path | None = None) -> Any:
        loaded, reason = original(model, entry, optimise, save)
        return (Wrong(loaded.session, loaded.outputs, loaded.entry) if optimise and loaded is not None else loaded), reason

    monkeypatch.setattr(onnxruntime_reference, "open_session", session)
    verdict = verify.verify_compiled(deeploy.compile(model), model)
    assert verdict.passed and verdict.evidence is not None
    assert verdict.evidence.text.endswith("onnxruntime's optimiser differs (0.5 absolute): without it, the outputs agree")
    assert not verify.verify_compiled(deeploy.compile(model), model, strict=True).passed


@pytest.mark.parametrize(("make", "tensors"), [(chaotic, 70), (tiny, 70), (layers_in_8_bits, 6), (probabilities, 3)])
def test_no_layer_of_a_right_network_is_found_wrong(make: Callable[[Path], Path], tensors: int, tmp_path: Path) -> None:
    model = make(tmp_path / "m.onnx")
    found = explained(model, model)
    assert found.disagreement is None and found.tensors >= tensors


DEFECTS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Path]]] = {
    "a factor of every step": (chaotic, lambda m: changed(m, "four", lambda a: a * 1.0005)),
    "one weight of a product": (chaotic, lambda m: changed(m, "w", lambda a: a + 0.01 * (np.arange(a.size) == 5).reshape(a.shape))),
    "an operator of a late step": (chaotic, lambda m: swapped(m, "rest20", "Add")),
    "a sign of values around 1e-6": (tiny, lambda m: changed(m, "small", np.negative)),
    "one weight behind values around 1e-6": (
        tiny,
        lambda m: changed(m, "w", lambda a: a + 0.01 * (np.arange(a.size) == 5).reshape(a.shape)),
    ),
    "rounding towards zero": (layers_in_8_bits, lambda m: changed(m, "w2", lambda a: np.trunc(a / 2) * 2)),
    "one weight in 8 bits": (layers_in_8_bits, lambda m: changed(m, "w1", lambda a: a ^ (64 * (np.arange(a.size) == 7).reshape(a.shape)))),
    "a weight of the tail in floats": (layers_in_8_bits, lambda m: changed(m, "w", lambda a: a * 1.001)),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_wrong_layers_are_found_in_networks_that_amplify(name: str, tmp_path: Path) -> None:
    """C and interpreter compute another network than the model; its first wrong layer differs from the same inputs."""
    make, defect = DEFECTS[name]
    model = make(tmp_path / "m.onnx")
    found = explained(defect(model), model)
    assert not found.is_explained and found.disagreement is not None, found.text


def test_a_difference_that_moved_values_do_not_reach_is_not_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers agree alone, and the network as a whole does not: here because it is said to give something else without optimisations."""
    from deeploy.execution.verification import explain as module

    model = chaotic(tmp_path / "m.onnx", 0)
    original = module._ExplainedLayers.computed

    def computed(self: Any, sample: Any) -> Any:
        mine, theirs, whole = original(self, sample)
        return mine, theirs, [array + np.float32(0.01) for array in whole]

    monkeypatch.setattr(module._ExplainedLayers, "computed", computed)
    found = explained(model, model)
    assert not found.is_explained and found.disagreement is None and "do not explain" in found.text
    assert found.contents()["unoptimised"][0]["worst"] == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("target", "factor", "passed"), [("generic", 1 + 1e-7, True), ("siracusa", 1 + 1e-7, True), ("generic", 1.001, False)]
)
def test_last_bits_of_the_c_library_are_told_from_wrong_c(
    target: str, factor: float, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the interpreter's hyperbolic cosine is not the one of the C, by a last bit, or by more."""
    model = chaotic(tmp_path / "m.onnx")
    loaded = onnx.load(model)
    loaded.graph.node[1].op_type = "Cosh"
    onnx.save(loaded, model)
    compiled = deeploy.compile(model, target=target)
    original = FUNCTIONS["cosh"]
    monkeypatch.setitem(FUNCTIONS, "cosh", lambda x, a, b: (original(x, a, b) * np.float32(factor)).astype(np.float32))
    np.savez(tmp_path / "x.npz", x=X)
    verdict = verify.verify_compiled(compiled, model, tmp_path / "x.npz")
    (against, found), *_ = verdict.comparisons
    assert (against, found.passed, verdict.passed) == ("interpreter", passed, passed)
    assert found.worst > 1e-3 and any("the C library" in note for note in verdict.notes)


def test_what_is_put_into_a_tensor_is_seen_by_its_views(tmp_path: Path) -> None:
    """A view that is complete with its tensor does not take it back."""
    constants = {"s": np.float32(0.5), "z": np.int8(0), "shape": np.array([SIZE, 2]), "back": np.array([2, SIZE])}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("Reshape", ["q", "shape"], ["r"])]
    nodes += [
        helper.make_node("Transpose", ["r"], ["t"]),
        helper.make_node("DequantizeLinear", ["t", "s", "z"], ["d"]),
        helper.make_node("Reshape", ["d", "back"], ["y"]),
    ]
    model = save(tmp_path / "m.onnx", nodes, constants, "y")
    program = deeploy.compile(model).network.program
    places = find_places(program, onnx.load(model).graph)
    assert {"q", "r"} <= {place.name for place in places}
    _, (plain,) = run_layers(program, [X], places)
    _, (moved,) = run_layers(program, [X], places, lambda name, array: array + np.int8(1) if name == "q" else array)
    assert np.array_equal(moved - plain, np.full_like(plain, 0.5))


def test_contents_hold_no_numbers_that_json_has_not() -> None:
    port = {"name": "y", "equality": "float", "step": 1.0}
    nothing = compare_output(port, np.array([1.0]), np.array([np.nan]))
    told = replace(Evidence("", False, 1), unoptimised=[nothing]).contents()
    assert told["unoptimised"][0]["worst"] is None and json.dumps(told, allow_nan=False)
