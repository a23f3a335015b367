"""``verify`` notices whatever is wrong on one side only: the C, the interpreter, onnxruntime, or the golden outputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import deeploy
from deeploy.api import Compiled
from deeploy.cli import app
from deeploy.driver import project as drivers
from deeploy.driver import verify
from deeploy.errors import UsageError
from deeploy.execution.verification.onnxruntime_reference import Session
from tests.models import save_graph

REFERENCES = ["interpreter", "onnxruntime", "expected.npz"]
INPUT = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def two_output_model(tmp_path: Path) -> Path:
    """Two outputs that both depend on the input; the second has a constant of its own."""
    nodes = [helper.make_node("Neg", ["x"], ["a"], "first"), helper.make_node("Clip", ["x", "low"], ["b"], "second")]
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in names] for names in ("x", "ab")]
    graph = helper.make_graph(nodes, "g", *sides, [helper.make_tensor("low", TensorProto.FLOAT, [], [-0.75])])
    save_graph(graph, tmp_path / "model.onnx")
    np.savez(tmp_path / "inputs.npz", x=INPUT)
    np.savez(tmp_path / "expected.npz", a=-INPUT, b=np.maximum(INPUT, np.float32(-0.75)))
    return tmp_path / "model.onnx"


def differing(model: Path) -> list[tuple[str, str]]:
    """Which comparisons fail, by reference and output; all are made, and the verdict is that of all."""
    folder = model.parent
    verdict = verify.verify_compiled(deeploy.compile(model), model, folder / "inputs.npz", folder / "expected.npz")
    made = [(against, comparison.name) for against, comparison in verdict.comparisons]
    assert made == [(against, name) for against in REFERENCES for name in "ab"]
    failed = [(against, comparison.name) for against, comparison in verdict.comparisons if not comparison.passed]
    contents = verdict.contents()
    assert contents["passed"] is verdict.passed is (not failed)
    assert [entry["passed"] for entry in contents["comparisons"]] == [pair not in failed for pair in made]
    return failed


def test_nothing_differs_where_all_agree(two_output_model: Path) -> None:
    assert differing(two_output_model) == []


@pytest.mark.parametrize("output", "ab")
def test_wrong_c_differs_from_every_reference(two_output_model: Path, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the project is changed: only what was built from it may notice."""
    emitted = Compiled.sources
    entry = f"self->outputs[{'ab'.index(output)}]"

    def broken(compiled: Compiled) -> dict[str, str | bytes]:
        files = dict(emitted(compiled))
        text = str(files["src/network.c"])
        assert text.count(f"= {entry};") == 1
        return {**files, "src/network.c": text.replace(f"= {entry};", f"= (float *){entry} + 1;")}

    monkeypatch.setattr(Compiled, "sources", broken)
    assert differing(two_output_model) == [(against, output) for against in REFERENCES]


def test_a_wrong_interpreter_differs_alone(two_output_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted = drivers.network_outputs
    monkeypatch.setattr(drivers, "network_outputs", lambda *given: [array + 1 for array in interpreted(*given)])
    assert differing(two_output_model) == [("interpreter", name) for name in "ab"]


def test_a_wrong_onnxruntime_differs_alone(two_output_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Session.run
    monkeypatch.setattr(Session, "run", lambda *given: [None if array is None else array + 1 for array in run(*given)])
    assert differing(two_output_model) == [("onnxruntime", name) for name in "ab"]


@pytest.mark.parametrize("output", "ab")
def test_wrong_golden_outputs_differ_alone(two_output_model: Path, output: str) -> None:
    arrays = dict(np.load(two_output_model.parent / "expected.npz"))
    np.savez(two_output_model.parent / "expected.npz", **{**arrays, output: arrays[output] + 1})
    assert differing(two_output_model) == [("expected.npz", output)]


@pytest.mark.parametrize("wrong", [[], ["b"]])
def test_the_exit_status_says_so(two_output_model: Path, wrong: list[str]) -> None:
    files = {name: str(two_output_model.parent / f"{name}.npz") for name in ("inputs", "expected")}
    np.savez(files["expected"], **{name: array + (name in wrong) for name, array in np.load(files["expected"]).items()})
    done = CliRunner().invoke(app, ["verify", str(two_output_model), "--inputs", files["inputs"], "--expect", files["expected"], "--json"])
    assert done.exit_code == len(wrong)
    assert json.loads(done.stdout)["passed"] is (not wrong)


@pytest.mark.parametrize(("tolerance", "passed"), [(None, False), (0.4, False), (0.6, True)])
def test_a_tolerance_is_that_of_golden_outputs(two_output_model: Path, tolerance: float | None, passed: bool) -> None:
    """Of a project, and beside onnxruntime; the interpreter is compared by its own rule all the same."""
    folder = two_output_model.parent
    np.savez(folder / "expected.npz", **{name: array + np.float32(0.5) for name, array in np.load(folder / "expected.npz").items()})
    compiled = deeploy.compile(two_output_model)
    verdict = verify.verify_compiled(compiled, two_output_model, folder / "inputs.npz", folder / "expected.npz", tolerance)
    assert verdict.passed is passed
    rules = {against: comparison.rule for against, comparison in verdict.comparisons}
    if tolerance is not None:
        assert rules["onnxruntime"] == rules["expected.npz"] == f"within {tolerance:g}" != rules["interpreter"]
    compiled.write(folder / "out")
    assert verify.run_project(folder / "out", folder / "inputs.npz", folder / "expected.npz", tolerance).passed is passed


def test_a_sequence_is_no_longer_than_its_context() -> None:
    """Steps of four rows in a context of eight."""
    verify._check_sequence({"context": 8, "rows": 4}, 2, True)
    verify._check_sequence({"context": 8, "rows": 4}, 3, False)
    with pytest.raises(UsageError, match=r"3 steps of 4 row\(s\) go beyond the context of 8 rows"):
        verify._check_sequence({"context": 8, "rows": 4}, 3, True)
    with pytest.raises(UsageError, match="the network has no states"):
        verify._check_sequence({}, 1, True)


SHAPES = {
    "a sum of everything": ("ReduceSum", [3, 4], [], {"keepdims": 0}),
    "a scalar of a scalar": ("Neg", [], [], {}),
    "the largest's place": ("ArgMax", [7], [], {"keepdims": 0}),
    "an inner product": ("MatMul", [7], [], {}),
    "a sum of nothing": ("ReduceSum", [0, 3], [], {"keepdims": 0}),
    "sums of nothing": ("MatMul", [2, 0], [2, 3], {}),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_outputs_without_axes_and_inputs_without_elements(tmp_path: Path, name: str, target: str) -> None:
    op, shape, result, attributes = SHAPES[name]
    kind = TensorProto.INT64 if op == "ArgMax" else TensorProto.FLOAT
    operands = ["x", "x" if shape == [7] else "w"] if op == "MatMul" else ["x"]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, [0, 3], [])] if "w" in operands else []
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), helper.make_tensor_value_info("y", kind, result)]
    graph = helper.make_graph([helper.make_node(op, operands, ["y"], **attributes)], "g", ports[:1], ports[1:], weights)
    path = tmp_path / "model.onnx"
    save_graph(graph, path, 13)
    verdict = verify.verify_compiled(deeploy.compile(path, target), path)
    assert [against for against, _ in verdict.comparisons] == ["interpreter", "onnxruntime"]
    assert verdict.passed


@pytest.mark.parametrize("target", ["generic", "siracusa"])
def test_a_product_of_nothing_is_zero(tmp_path: Path, target: str) -> None:
    shapes = {"a": [2, 0], "b": [0, 3], "y": [2, 3]}
    *ports, result = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft")
    versions = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", ports, [result]), opset_imports=versions, ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    (found,) = deeploy.compile(tmp_path / "model.onnx", target).run([np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)])
    np.testing.assert_array_equal(found, np.zeros((2, 3)))


def test_golden_outputs_without_their_names_are_taken_in_order_and_mixed_ones_are_refused(two_output_model: Path) -> None:
    arrays = dict(np.load(two_output_model.parent / "expected.npz"))
    first, second = arrays.values()
    np.savez(two_output_model.parent / "other.npz", p=first, q=second)
    compiled, folder = deeploy.compile(two_output_model), two_output_model.parent
    verdict = verify.verify_compiled(compiled, two_output_model, folder / "inputs.npz", folder / "other.npz")
    assert verdict.passed and "other.npz: arrays are taken in their order: p as a, q as b" in verdict.notes
    np.savez(folder / "mixed.npz", b=second, q=first)
    with pytest.raises(UsageError, match=r"mixed\.npz holds the arrays b, q; the outputs are a, b"):
        verify.verify_compiled(compiled, two_output_model, folder / "inputs.npz", folder / "mixed.npz")
