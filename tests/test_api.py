"""Inputs of a compiled network: by position or by name, in the shapes of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.driver.verify import run_project
from deeploy.errors import UsageError, describe_cause
from tests.models import model_of, save_graph

PATHS: list[Path] = []  # of the model
A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)


@pytest.fixture(scope="module")
def compiled_difference(tmp_path_factory: pytest.TempPathFactory) -> deeploy.Compiled:
    """a - b."""
    path = tmp_path_factory.mktemp("api") / "m.onnx"
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in names] for names in ("ab", "y")]
    graph = helper.make_graph([helper.make_node("Sub", ["a", "b"], ["y"])], "g", *sides)
    save_graph(graph, path)
    PATHS.append(path)
    return deeploy.compile(path)


@pytest.mark.parametrize("inputs", [[A, B], {"a": A, "b": B}, {"b": B, "a": A}, {"c": B[0], "b": B, "a": A}], ids=["list", *"123"])
def test_names_decide_before_the_order_does(
    compiled_difference: deeploy.Compiled, inputs: list[np.ndarray] | dict[str, np.ndarray]
) -> None:
    np.testing.assert_array_equal(compiled_difference.interpret(inputs), [A - B])


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({"a": A}, "input b is missing"),
        ({"a": A, "B": B}, r"input b is missing, there is B\nDid you mean b\?"),
        ([A], "1 arrays were passed for 2 inputs"),
        ([A, B, B], "3 arrays were passed for 2 inputs"),
        ([A, B.T], r"input b has shape \[3, 2\] instead of \[2, 3\]"),
    ],
)
def test_other_inputs_are_refused(
    compiled_difference: deeploy.Compiled, inputs: list[np.ndarray] | dict[str, np.ndarray], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        compiled_difference.interpret(inputs)


def test_dir_names_all_that_can_be_used() -> None:
    """Functions for one chip and for several, and what they raise; each of them is there, and says what it raises."""
    names = {name for name in dir(deeploy) if not name.startswith("_")}
    assert {"api", "chips", "compile", "quantize", "inspect", "errors", "Compiled", "Form", "Options"} <= names
    assert all(hasattr(deeploy, name) for name in deeploy.__all__)
    functions = [getattr(module, name) for module in (deeploy.api, deeploy.chips) for name in module.__all__ if name.islower()]
    assert {function.__name__ for function in functions} >= {"compile", "verify", "evaluate", "explore", "report", "plan", "quantize"}
    for function in functions:
        assert "Raises:" in (function.__doc__ or ""), function
        assert {"return"} <= set(function.__annotations__), function


def test_a_network_says_what_it_costs_and_is_verified(compiled_difference: deeploy.Compiled) -> None:
    """From the file, from what was compiled, and from a model in memory that is nowhere on disk."""
    assert compiled_difference.cycles is None and compiled_difference.energy is None
    again = deeploy.compile(onnx.load(PATHS[0]), "siracusa")
    assert again.cycles and again.energy and sum(again.energy.values()) > 0
    assert [layer["op"] for layer in again.layers] == ["Sub"] == [layer["op"] for layer in again.report()["calls"]]
    (reason,) = again.explain(again.layers[0]["name"])
    assert reason["op"] == "Sub" and again.advice.keys() == {"network"}
    samples = {"a": np.stack([A, B]), "b": np.stack([B, A])}
    for verdict in (
        again.verify(samples),
        deeploy.verify(again, inputs=samples),
        deeploy.verify(PATHS[0], inputs=samples, target="siracusa"),
    ):
        assert verdict.passed
    assert not again.verify(samples, {"y": np.zeros((2, 2, 3), np.float32)}).passed
    with pytest.raises(UsageError, match="no layer nothing"):
        again.explain("nothing")


def test_several_networks_are_verified_one_by_one(compiled_difference: deeploy.Compiled) -> None:
    assert compiled_difference.networks.keys() == {"network"}
    both = deeploy.compile({"one": PATHS[0], "two": PATHS[0]})
    with pytest.raises(UsageError, match="which model is compared"):
        both.verify()


def test_the_objective_is_an_argument(compiled_difference: deeploy.Compiled) -> None:
    assert compiled_difference.plan.machine.objective == "cycles"
    assert deeploy.compile(PATHS[0], "siracusa", objective="edp").plan.machine.objective == "edp"
    assert deeploy.compile(PATHS[0], "cortex_m4", objective="ram").plan.machine.objective == "ram"
    with pytest.raises(UsageError, match='objective="fast" is unknown'):
        deeploy.compile(PATHS[0], "siracusa", objective="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("fix", [["a.engine=npu"], {5: 6}, "a.engine=npu"])
def test_what_is_fixed_is_a_mapping(compiled_difference: deeploy.Compiled, fix: object) -> None:
    assert compiled_difference.networks
    with pytest.raises(UsageError, match="is a mapping"):
        deeploy.compile(PATHS[0], "siracusa", fix=fix)  # type: ignore[arg-type]


def test_several_chips_answer_as_one_does() -> None:
    """A model in memory over two chips: the same methods, inputs and outputs."""
    rng = np.random.default_rng(0)
    weights = {name: numpy_helper.from_array(rng.normal(0, 0.3, (16, 16)).astype(np.float32), name) for name in "vw"}
    nodes = [helper.make_node(*node) for node in (("MatMul", ["x", "v"], ["a"]), ("Relu", ["a"], ["b"]), ("MatMul", ["b", "w"], ["y"]))]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16])] for name in "xy"]
    graph = helper.make_graph(nodes, "g", *ends, list(weights.values()))
    model = model_of(graph)
    one, chips = deeploy.compile(model, "siracusa"), deeploy.chips.compile(model, "siracusa", 2)
    x = rng.normal(size=(3, 4, 16)).astype(np.float32)
    wanted = one.run(x)
    assert np.allclose(chips.run({"x": x})["y"], wanted["y"], atol=1e-5) and np.allclose(chips.run([x[0]])["y"], wanted["y"][0], atol=1e-5)
    assert np.allclose(chips.interpret({"x": x[0]})[0], wanted["y"][0], atol=1e-5)
    assert chips.verify({"x": x}).passed and deeploy.verify(chips, inputs={"x": x}).passed
    assert chips.cycles and chips.energy and {"L1", "L2"} <= chips.memory.keys() and "2 chips" in repr(chips)
    assert {layer["chip"] for layer in chips.layers} == {0, 1} and chips.explain(chips.report("chip0")["calls"][0]["name"])
    assert dict(chips.evaluate({"x": x}, wanted["y"], "mse").values)["C"] < 1e-9
    with pytest.raises(UsageError, match="object is no model"):
        deeploy.chips.compile(object(), "siracusa", 2)  # type: ignore[arg-type]


def test_samples_lie_on_a_new_axis_or_on_the_first_one(tmp_path: Path) -> None:
    """The command line and Python take the same arrays: ten rows for a network of one are ten samples."""
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3])] for name in "xy"]
    save_graph(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", *ends), tmp_path / "m.onnx")
    compiled = deeploy.compile(tmp_path / "m.onnx")
    compiled.write(tmp_path / "out")
    rows = np.arange(30, dtype=np.float32).reshape(10, 3) - 15
    for given in (rows, rows[:, None]):
        np.savez(tmp_path / "in.npz", x=given)
        shown = run_project(tmp_path / "out", tmp_path / "in.npz")
        assert shown.samples == 10 and np.array_equal(shown.outputs[0], compiled.run(given)[0]) and shown.outputs[0].shape == (10, 1, 3)


def test_outputs_have_names_and_samples_may_be_stacked(compiled_difference: deeploy.Compiled) -> None:
    one = compiled_difference.run({"a": A, "b": B})
    assert one.names == ("y",) and np.array_equal(one["y"], A - B) and np.array_equal(one[0], A - B)
    assert [name for name, _ in one.items()] == ["y"] == list(dict(one))
    many = compiled_difference.run({"a": np.stack([A, B, A]), "b": np.stack([B, A, A])})
    assert np.array_equal(many["y"], np.stack([A - B, B - A, A - A]))
    with pytest.raises(KeyError, match="'z' is none of the outputs 'y'"):
        one["z"]
    with pytest.raises(UsageError, match=r"input a has shape \[2, 2, 3\] instead of \[2, 3\]"):
        compiled_difference.run({"a": np.stack([A, B]), "b": B})


def test_arrays_that_an_element_type_does_not_hold_are_refused(tmp_path: Path) -> None:
    """As a file with them is."""
    onnx.save(model_of_integers(), tmp_path / "m.onnx")
    network = deeploy.compile(tmp_path / "m.onnx", dialect="integer", input_types={"x": "int8"})
    for wrong in (np.full((2, 3), 0.5), np.full((2, 3), 200, np.uint8), np.full((2, 3), 500, np.int32)):
        with pytest.raises(UsageError, match="input x has values from"):
            network.run({"x": wrong})
    values = np.arange(6).reshape(2, 3)
    np.savez(tmp_path / "inputs.npz", x=values)
    for given in (values, {"x": values}, tmp_path / "inputs.npz", str(tmp_path / "inputs.npz")):
        assert dict(network.run(given))["y"].tolist() == values.tolist()


def model_of_integers() -> onnx.ModelProto:
    """A network of int8 that takes what is below 0 for 0."""
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT8, [2, 3]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"], "relu")], "g", ports[:1], ports[1:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def test_the_first_error_of_another_library_is_told_without_its_colours() -> None:
    with pytest.raises(RuntimeError) as raised:
        try:
            raise ValueError("\x1b[96mthe tensor has 2 channels\x1b[0m\nand more")
        except ValueError as error:
            raise RuntimeError("step 1/3 failed. Next steps:") from error
    assert describe_cause(raised.value) == "the tensor has 2 channels" and describe_cause(KeyError()) == "KeyError"


def test_arrays_without_names_are_refused_and_labels_may_be_a_list(compiled_difference: deeploy.Compiled) -> None:
    with pytest.raises(UsageError, match="arrays are given by name"):
        compiled_difference.verify(A)  # type: ignore[arg-type]
    stacks = {"a": np.stack([A, B]), "b": np.stack([B, A])}
    assert compiled_difference.evaluate(stacks, np.zeros((2, 2, 3)).tolist(), "mse").values  # type: ignore[arg-type]
