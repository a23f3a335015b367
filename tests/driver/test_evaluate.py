"""Accuracy: metrics against their definitions, and C, quantised and float models side by side."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import deeploy
from deeploy.cli import app
from deeploy.driver.evaluate import evaluate_project, metric_of
from deeploy.errors import ModelError, UnsupportedError, UsageError
from deeploy.execution.verification.metrics import auc, mse, top1
from deeploy.quantization.static import quantize_model
from tests.models import save_graph
from tests.streamed_networks import save_network

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
    save_graph(graph, folder / "float.onnx")
    samples = RANDOM.normal(size=(20, 1, 8)).astype(np.float32)
    labels = (samples @ weights).reshape(20, 3).argmax(axis=1)
    labels[4] = (labels[4] + 1) % 3
    np.savez(folder / "samples.npz", x=samples)
    np.savez(folder / "labels.npz", labels=labels)
    quantize_model(folder / "float.onnx", folder / "samples.npz", folder / "int8.onnx")
    deeploy.compile(folder / "int8.onnx").write(folder / "out")
    return folder


def arguments(folder: Path) -> tuple[Path, Path, Path]:
    return folder / "out", folder / "samples.npz", folder / "labels.npz"


def test_side_by_side(trained: Path) -> None:
    found = evaluate_project(*arguments(trained), "top1", trained / "int8.onnx", trained / "float.onnx")
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
    assert told == {"metric": "top1", "output": "y", "samples": 20, "values": {"C": values["C"]}}
    assert f"{values['C']:.4f}" in CliRunner().invoke(app, command).stdout


def test_a_metric_of_the_user(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def errors(outputs, labels):\n    return (outputs[0].argmax(-1).ravel() != labels).sum()\n")
    found = evaluate_project(*arguments(trained), f"{tmp_path / 'own.py'}:errors", None, trained / "float.onnx")
    assert dict(found.values)["float"] == 1.0
    (tmp_path / "bad.py").write_text("def fails(outputs, labels):\n    return 1 / 0\nraising = 5\n")
    for metric, problem in (("bad.py:fails", "ZeroDivisionError"), ("bad.py:raising", "TypeError"), ("bad.py:absent", "AttributeError")):
        with pytest.raises(UsageError, match=problem):
            evaluate_project(*arguments(trained), str(tmp_path / metric))


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
            evaluate_project(project, *given)
    with pytest.raises(UsageError, match="not stacked"):
        evaluate_project(project, tmp_path / "one.npz", labels)
    with pytest.raises(ModelError, match="there is no file"):
        evaluate_project(project, inputs, labels, "top1", tmp_path / "absent.onnx")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 9), ("y", 3)))
    graph = helper.make_graph([helper.make_node("Slice", ["x", "s", "e"], ["y"])], "g", [x], [y])
    graph.initializer.extend(numpy_helper.from_array(np.array(at), name) for name, at in (("s", [0, 0]), ("e", [1, 3])))
    save_graph(graph, tmp_path / "wider.onnx")
    with pytest.raises(UnsupportedError, match=r"onnxruntime cannot run wider\.onnx"):
        evaluate_project(project, inputs, labels, "top1", tmp_path / "wider.onnx")


@pytest.fixture(scope="module", params=["numbers", "texts"])
def forest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One decision among three classes, as trees of other packages are exported: labels first, then a dictionary of scores.

    Its classes are the numbers 3, 7 and 9, or texts; of the 20 samples' labels two are wrong.
    """
    folder = tmp_path_factory.mktemp("forest")
    names: dict[str, list[object]] = {"numbers": [3, 7, 9], "texts": ["ant", "bee", "cow"]}
    key = {"numbers": "int64s", "texts": "strings"}[request.param]
    # x0 <= 0: class 0; else x1 <= 0: class 1, else class 2
    node = helper.make_node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        nodes_treeids=[0] * 5,
        nodes_nodeids=[0, 1, 2, 3, 4],
        nodes_featureids=[0, 0, 1, 0, 0],
        nodes_values=[0.0] * 5,
        nodes_modes=["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 3, 0, 0],
        nodes_falsenodeids=[2, 0, 4, 0, 0],
        class_treeids=[0] * 3,
        class_nodeids=[1, 3, 4],
        class_ids=[0, 1, 2],
        class_weights=[1.0] * 3,
        post_transform="NONE",
        **{f"classlabels_{key}": names[request.param]},
    )
    zipped = helper.make_node("ZipMap", ["scores"], ["probability"], domain="ai.onnx.ml", **{f"classlabels_{key}": names[request.param]})
    kind = TensorProto.INT64 if request.param == "numbers" else TensorProto.STRING
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    label = helper.make_tensor_value_info("label", kind, [1])
    pairs = helper.make_map_type_proto(kind, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    probability = helper.make_value_info("probability", helper.make_sequence_type_proto(pairs))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node, zipped], "g", [x], [label, probability])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "forest.onnx")
    samples = RANDOM.normal(size=(20, 1, 4)).astype(np.float32)
    classes = np.where(samples[:, 0, 0] <= 0, 0, np.where(samples[:, 0, 1] <= 0, 1, 2))
    classes[:2] = (classes[:2] + 1) % 3
    np.savez(folder / "samples.npz", x=samples)
    np.savez(folder / "labels.npz", labels=np.array(names[request.param])[classes])
    np.savez(folder / "rows.npz", labels=np.eye(3)[classes])
    deeploy.compile(folder / "forest.onnx").write(folder / "out")
    return folder


def test_labels_that_a_network_gives_are_compared_as_they_are(forest: Path) -> None:
    model = forest / "forest.onnx"
    found = evaluate_project(*arguments(forest), "top1", model)
    assert found.output == "label" and dict(found.values) == {"quantised, in onnxruntime": 0.9, "C": 0.9}
    rows = evaluate_project(forest / "out", forest / "samples.npz", forest / "rows.npz", "top1", model)
    assert rows.output == "probability" and dict(rows.values) == {"quantised, in onnxruntime": 0.9, "C": 0.9}
    squares = evaluate_project(forest / "out", forest / "samples.npz", forest / "rows.npz", "mse", model)
    assert squares.output == "probability" and dict(squares.values)["C"] == pytest.approx(2 * 2 / 60)


def test_an_output_that_no_metric_fits_is_refused(forest: Path, tmp_path: Path) -> None:
    project, inputs, labels = arguments(forest)
    with pytest.raises(UsageError, match="there is no such output"):
        evaluate_project(project, inputs, labels, output="guess")
    with pytest.raises(UsageError, match="output label has 1 label per sample"):
        evaluate_project(project, inputs, forest / "rows.npz", output="label")
    if np.load(labels)["labels"].dtype.kind != "U":
        with pytest.raises(UsageError, match="labels from 3 to 9 for scores of 3 classes"):
            evaluate_project(project, inputs, labels, "auc")
    else:
        np.savez(tmp_path / "labels.npz", labels=np.array(["dog"] * 20))
        with pytest.raises(UsageError, match="the network has no label 'dog'"):
            evaluate_project(project, inputs, tmp_path / "labels.npz")


def test_the_arg_max_of_one_score_is_refused(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 4), ("y", 1)))
    graph = helper.make_graph([helper.make_node("ReduceMean", ["x"], ["y"], axes=[1])], "g", [x], [y])
    save_graph(graph, tmp_path / "mean.onnx")
    deeploy.compile(tmp_path / "mean.onnx").write(tmp_path / "out")
    samples = RANDOM.normal(size=(20, 1, 4)).astype(np.float32)
    np.savez(tmp_path / "samples.npz", x=samples)
    np.savez(tmp_path / "labels.npz", labels=(samples.mean(axis=2)[:, 0] > 0).astype(np.int64))
    with pytest.raises(UsageError, match="output y has 1 element per sample and labels"):
        evaluate_project(*arguments(tmp_path))
    assert dict(evaluate_project(*arguments(tmp_path), "auc").values) == {"C": 1.0}


@pytest.mark.parametrize(("name", "hop"), [("wake_word", "3"), ("wake_word", "1"), ("ds_cnn", "1"), ("ds_cnn", "8")])
def test_windows_of_a_stream_come_one_after_the_other(tmp_path: Path, name: str, hop: str) -> None:
    """Without padding, a stream gives at the end of each window what the network makes of the window by itself; with it, something else."""
    path = save_network(name, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    windows = RANDOM.normal(size=(6, *session.get_inputs()[0].shape)).astype(np.float32)
    alone = np.stack([session.run(None, {"x0": window})[0] for window in windows])
    found = deeploy.compile(path, stream=f"x0.2={hop}", certify=False).evaluate({"x0": windows}, alone, "mse", model=path)
    values = dict(found.values)
    assert found.samples == 6 and values["quantised, in onnxruntime"] == 0
    assert (values["C, windows one after the other"] < 1e-9) == (name == "wake_word")
    assert values["C, windows one after the other"] < 0.3 * alone.var()


def test_columns_have_no_windows(tmp_path: Path) -> None:
    compiled = deeploy.compile(save_network("ecg", tmp_path / "m.onnx"), stream="x0.2=4", certify=False)
    with pytest.raises(UsageError, match=r"the project streams, and output t.* has new columns in each inference"):
        compiled.evaluate({"x0": np.zeros((3, 1, 2, 32), np.float32)}, np.zeros(3, np.int64))
