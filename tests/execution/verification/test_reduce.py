"""Models that are made smaller while a command fails on them in the same way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deeploy.errors import UsageError
from deeploy.execution.verification.reduce import Command, Failure, Reducer, command_of, reduce_model
from tests.command import deeploy_cli

SECRET = "the customer's network"
WEIGHTS = np.random.default_rng(3).normal(size=(48, 48)).astype(np.float32)


def branched_model() -> onnx.ModelProto:
    """Products and functions in a row, with a branch, texts and weights."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], name=SECRET)]
    functions = ["Relu", "Sigmoid", "Softsign", "Tanh", "Exp", "Abs"]
    nodes += [helper.make_node(op, [source], [result]) for op, source, result in zip(functions, "abcdef", "bcdefg", strict=True)]
    nodes += [helper.make_node("Reshape", ["g", "s"], ["y"]), helper.make_node("Neg", ["c"], ["z"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yz"]
    constants = [numpy_helper.from_array(WEIGHTS, "w"), numpy_helper.from_array(np.array([48, 6]), "s")]
    graph = helper.make_graph(nodes, SECRET, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 48])], ends, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name=SECRET)
    model.metadata_props.add(key="owner", value=SECRET)
    return model


def reduced(fails: Callable[[onnx.ModelProto], bool], most: int = 1000) -> onnx.ModelProto:
    reducer = Reducer(branched_model(), fails, lambda text: None, most)
    reducer.run()
    return reducer.best


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def weights(model: onnx.ModelProto) -> np.ndarray:
    return numpy_helper.to_array(next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 2))


def test_one_operator_is_left_on_one_element_and_nothing_says_whose_it_was() -> None:
    found = reduced(lambda model: "Softsign" in operators(model))
    assert operators(found) == ["Softsign"] and not found.graph.initializer
    assert [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in found.graph.input] == [[1, 1]]
    assert SECRET.encode() not in found.SerializeToString()
    onnx.checker.check_model(found, full_check=True)


def test_weights_go_where_they_do_not_matter() -> None:
    found = reduced(lambda model: "MatMul" in operators(model) and weights(model).shape == (48, 48))
    assert operators(found) == ["MatMul"] and set(np.unique(weights(found))) == {0, 1, 2}
    kept = reduced(lambda model: "MatMul" in operators(model) and np.array_equal(weights(model), WEIGHTS))
    assert operators(kept) == ["MatMul"]


def test_nodes_that_only_fail_together_stay_together() -> None:
    found = reduced(lambda model: {"Relu", "Exp"} <= {*operators(model)})
    assert operators(found) == ["Relu", "Exp"] and len(found.graph.input) == 2


def test_no_more_models_are_tried_than_allowed() -> None:
    tried: list[int] = []
    reduced(lambda model: bool(tried.append(1)), most=5)
    assert len(tried) == 5


SCRIPT = 'grep -q Softsign "$0" || exit 0; grep -q Tanh "$0" && { echo "error: node $(wc -c < "$0") at $0" >&2; exit 7; }; exit 8'


def saved(folder: Path) -> Path:
    onnx.save(branched_model(), folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize("place", ["{}", "model.onnx"])
def test_a_command_fails_in_the_same_way_on_what_is_written(place: str, tmp_path: Path) -> None:
    """The message has another size and path in it each time; another exit status is another failure."""
    path, small = saved(tmp_path), tmp_path / "small.onnx"
    word = place if place == "{}" else path
    done = deeploy_cli("reduce", path, "-o", small, "--json", "--", "sh", "-c", SCRIPT, word)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["nodes"], told["status"], told["error"]) == ([9, 2], 7, "error: node # at #")
    assert sorted(operators(onnx.load(small))) == ["Softsign", "Tanh"] and told["bytes"][1] == small.stat().st_size
    done = deeploy_cli("reduce", path, "-o", small, "--match", "^error: node", "--status", 7, "--", "sh", "-c", SCRIPT, word)
    assert done.returncode == 0 and done.stdout.startswith("9 nodes and ")


def test_a_command_that_hangs_fails_too(tmp_path: Path) -> None:
    command = Command(["sh", "-c", 'grep -q Softsign "$0" && sleep 60', "{}"], 0.3)
    found = reduce_model(saved(tmp_path), tmp_path / "small.onnx", command, tries=4)
    assert found.failure == Failure(None, "") and "Softsign" in operators(onnx.load(tmp_path / "small.onnx"))


def test_an_interruption_keeps_the_best_so_far(tmp_path: Path) -> None:
    said: list[str] = []

    def interrupt(text: str) -> None:
        said.append(text)
        if len(said) == 6:
            raise KeyboardInterrupt

    found = reduce_model(saved(tmp_path), tmp_path / "small.onnx", Command(["sh", "-c", SCRIPT, "{}"], 10), say=interrupt)
    assert found.tries < 9 and found.bytes[1] == (tmp_path / "small.onnx").stat().st_size and found.nodes[1] < found.nodes[0]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["true", "{}"], "the command ends with status 0"),
        (["false"], "the command has no place for the model"),
        (["no-such-program", "{}"], "no-such-program cannot be run"),
    ],
)
def test_a_command_that_cannot_be_followed_is_an_error(command: list[str], message: str, tmp_path: Path) -> None:
    done = deeploy_cli("reduce", saved(tmp_path), "-o", tmp_path / "small.onnx", "--", *command)
    assert done.returncode == 2 and done.stderr.startswith(f"error: {message}") and len(done.stderr.splitlines()) == 2
    assert not (tmp_path / "small.onnx").exists()


def test_a_file_that_does_not_parse_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(UsageError, match="cannot be read"):
        reduce_model(tmp_path / "model.onnx", tmp_path / "small.onnx", command_of(["false", "{}"], tmp_path, 1))
