"""Accuracy: metrics against their definitions, and C, quantised and float models side by side."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy.cli import app
from deeploy.errors import UnsupportedError, UsageError
from deeploy.evaluate import evaluate, metric_of
from deeploy.quantization.static import quantize
from deeploy.verification.metrics import auc, mse, top1

RANDOM = np.random.default_rng(5)


def test_top1() -> None:
    scores = np.array([[0.1, 0.9], [0.8, 0.2], [0.4, 0.6], [0.5, 0.1]])
    assert top1([scores], np.array([1, 0, 0, 0])) == 0.75
    assert top1([scores], np.array([[0, 1], [1, 0], [1, 0], [1, 0]])) == 0.75
    with pytest.raises(UsageError, match="labels of shape"):
        top1([scores], np.zeros(3))


@pytest.mark.parametrize("levels", [4, 1000])
def test_auc_is_the_share_of_pairs_in_order(levels: int) -> None:
    scores, labels = RANDOM.integers(0, levels, 60), RANDOM.integers(0, 2, 60)
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[labels == 1] for b in scores[labels == 0]]
    assert auc([scores.reshape(60, 1)], labels) == pytest.approx(np.mean(pairs))
    two = np.stack([-scores, scores], axis=1)
    assert auc([two], labels) == pytest.approx(np.mean(pairs))
    with pytest.raises(UsageError, match="one class"):
        auc([scores.reshape(60, 1)], np.ones(60))


def test_mse() -> None:
    assert mse([np.array([[1.0, 2.0], [3.0, 5.0]])], np.array([[1.0, 2.0], [3.0, 3.0]])) == 1.0
    with pytest.raises(UsageError, match="--metric mse"):
        mse([np.zeros((2, 2))], np.zeros(3))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier whose labels are those of its float model, but for one; its quantised model, project, samples and labels."""
    folder = tmp_path_factory.mktemp("trained")
    weights = RANDOM.normal(size=(8, 3)).astype(np.float32)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 8), ("y", 3)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "p")], "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "float.onnx")
    samples = RANDOM.normal(size=(20, 1, 8)).astype(np.float32)
    labels = (samples @ weights).reshape(20, 3).argmax(axis=1)
    labels[4] = (labels[4] + 1) % 3
    np.savez(folder / "samples.npz", x=samples)
    np.savez(folder / "labels.npz", labels=labels)
    quantize(folder / "float.onnx", folder / "samples.npz", folder / "int8.onnx")
    deeploy.compile(folder / "int8.onnx").write(folder / "out")
    return folder


def arguments(folder: Path) -> tuple[Path, Path, Path]:
    return folder / "out", folder / "samples.npz", folder / "labels.npz"


def test_side_by_side(trained: Path) -> None:
    found = evaluate(*arguments(trained), "top1", trained / "int8.onnx", trained / "float.onnx")
    values = dict(found.values)
    assert found.samples == 20 and list(values) == ["float", "quantised, in onnxruntime", "C"]
    assert values["float"] == 0.95 and values["C"] == values["quantised, in onnxruntime"] > 0.8
    command = [
        "evaluate",
        *map(str, arguments(trained)[:1]),
        "--inputs",
        str(trained / "samples.npz"),
        "--labels",
        str(trained / "labels.npz"),
    ]
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert told == {"metric": "top1", "samples": 20, "values": {"C": values["C"]}}
    assert f"{values['C']:.4f}" in CliRunner().invoke(app, command).stdout


def test_a_metric_of_the_user(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def errors(outputs, labels):\n    return (outputs[0].argmax(-1).ravel() != labels).sum()\n")
    found = evaluate(*arguments(trained), f"{tmp_path / 'own.py'}:errors", None, trained / "float.onnx")
    assert dict(found.values)["float"] == 1.0
    (tmp_path / "bad.py").write_text("def fails(outputs, labels):\n    return 1 / 0\nraising = 5\n")
    for metric, problem in (("bad.py:fails", "ZeroDivisionError"), ("bad.py:raising", "TypeError"), ("bad.py:absent", "AttributeError")):
        with pytest.raises(UsageError, match=problem):
            evaluate(*arguments(trained), str(tmp_path / metric))


def test_what_does_not_fit_is_said(trained: Path, tmp_path: Path) -> None:
    project, inputs, labels = arguments(trained)
    for name in ("guess", "absent.py:f", "x:y"):
        with pytest.raises(UsageError, match="is unknown"):
            metric_of(name)
    np.savez(tmp_path / "few.npz", labels=np.zeros(3))
    np.savez(tmp_path / "two.npz", a=np.zeros(20), b=np.zeros(20))
    np.savez(tmp_path / "one.npz", x=np.zeros((1, 8), np.float32))
    for given, problem in (((inputs, tmp_path / "few.npz"), "3 labels for 20"), ((inputs, tmp_path / "two.npz"), "holds 2 arrays")):
        with pytest.raises(UsageError, match=problem):
            evaluate(project, *given)
    with pytest.raises(UsageError, match="not stacked"):
        evaluate(project, tmp_path / "one.npz", labels)
    with pytest.raises(UnsupportedError, match=r"onnxruntime cannot run absent\.onnx"):
        evaluate(project, inputs, labels, "top1", tmp_path / "absent.onnx")
