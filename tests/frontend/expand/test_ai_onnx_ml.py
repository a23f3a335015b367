"""Operators of ai.onnx.ml against onnxruntime: single nodes, forests, labels that are texts, and what scikit-learn's converter writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import deeploy
from deeploy.errors import DeeployError, UnsupportedError

onnxruntime = pytest.importorskip("onnxruntime")
F, I64 = np.float32, np.int64
RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((6, 4)).astype(F)
X[0] = 0


def reals(*shape: int) -> list[float]:
    return [float(value) for value in RANDOM.standard_normal(shape).ravel().round(3)]


def two_trees(weights: list[float], ids: list[int], modes: tuple[str, str] = ("BRANCH_LEQ", "BRANCH_LEQ")) -> dict[str, Any]:
    """One tree of three leaves, and one of two; each leaf adds to as many targets as there are for it."""
    count = len(ids) // 5
    return {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [1, 2, 0, 0, 0, 3, 0, 0],
        "nodes_values": [0.1, -0.4, 0, 0, 0, 0.2, 0, 0],
        "nodes_modes": [modes[0], modes[1], "LEAF", "LEAF", "LEAF", modes[0], "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0, 0, 0],
        "weights": weights,
        "ids": ids,
        "treeids": [tree for tree in (0, 0, 0, 1, 1) for _ in range(count)],
        "nodeids": [node for node in (2, 3, 4, 1, 2) for _ in range(count)],
    }


def forest(prefix: str, **found: Any) -> dict[str, Any]:
    own = ("weights", "ids", "treeids", "nodeids")
    return {f"{prefix}_{name}" if name in own else name: value for name, value in found.items()}


SVM = {"kernel_params": [0.4, 0.2, 2.0], "support_vectors": reals(5, 4)}
THREE = {**SVM, "classlabels_ints": [3, 5, 9], "vectors_per_class": [2, 2, 1], "coefficients": reals(2, 5), "rho": reals(3)}
GAPS = np.where(RANDOM.random((6, 4)) < 0.3, np.nan, X).astype(F)
LABELS = {"classlabels_int64s": [4, 6, 7]}
CASES: dict[str, tuple[np.ndarray, int, dict[str, Any]]] = {
    "Scaler": (X, 1, {"offset": reals(4), "scale": reals(4)}),
    "Scaler of integers": (np.arange(8).reshape(2, 4), 1, {"offset": [1.5], "scale": [0.25]}),
    **{f"Normalizer {norm}": (X, 1, {"norm": norm}) for norm in ("MAX", "L1", "L2")},
    "Imputer": (GAPS, 1, {"imputed_value_floats": reals(4), "replaced_value_float": float("nan")}),
    "Imputer of integers": (np.array([[1, 7], [7, 2]]), 1, {"imputed_value_int64s": [5, 6], "replaced_value_int64": 7}),
    "Binarizer": (X, 1, {"threshold": 0.3}),
    "LabelEncoder": (np.array([[3, 5], [9, 3]]), 1, {"keys_int64s": [3, 9], "values_floats": [0.5, -2.0], "default_float": 7.0}),
    "LabelEncoder of floats": (
        np.array([1.5, np.nan, 2.5], F),
        1,
        {"keys_floats": [1.5, float("nan")], "values_int64s": [4, 6], "default_int64": -3},
    ),
    "FeatureVectorizer": (X, 1, {"inputdimensions": [4]}),
    "OneHotEncoder": (np.array([[3, 5], [9, 4]]), 1, {"cats_int64s": [5, 3, 9]}),
    "LinearRegressor": (X, 1, {"coefficients": reals(2, 4), "intercepts": reals(2), "targets": 2}),
    **{
        f"LinearClassifier {post}": (
            X,
            2,
            {"coefficients": reals(3, 4), "intercepts": reals(3), "classlabels_ints": [0, 1, 2], "post_transform": post},
        )
        for post in ("NONE", "SOFTMAX", "LOGISTIC")
    },
    **{
        f"LinearClassifier of two {post}": (
            X,
            2,
            {"coefficients": reals(4), "intercepts": reals(1), "classlabels_ints": [5, 7], "post_transform": post},
        )
        for post in ("NONE", "LOGISTIC")
    },
    **{
        f"SVMRegressor {kind}": (X, 1, {**SVM, "kernel_type": kind, "n_supports": 5, "coefficients": reals(5), "rho": [0.1]})
        for kind in ("LINEAR", "RBF", "POLY", "SIGMOID")
    },
    "SVMRegressor of one class": (
        X,
        1,
        {**SVM, "kernel_type": "RBF", "n_supports": 5, "coefficients": reals(5), "rho": [0.1], "one_class": 1},
    ),
    "SVMClassifier": (X, 2, {**THREE, "kernel_type": "RBF"}),
    "SVMClassifier of products": (X, 2, {**THREE, "kernel_type": "LINEAR"}),
    **{
        f"SVMClassifier with probabilities of three behind {post}": (
            X,
            2,
            {**THREE, "kernel_type": "RBF", "prob_a": [-2.0, -0.7, -1.1], "prob_b": [0.3, 0.0, -0.8], "post_transform": post},
        )
        for post in ("NONE", "SOFTMAX")
    },
    "SVMClassifier with probabilities of two": (
        X,
        2,
        {
            **{
                **SVM,
                "kernel_type": "RBF",
                "classlabels_ints": [0, 1],
                "vectors_per_class": [3, 2],
                "coefficients": reals(5),
                "rho": [0.1],
            },
            **{"prob_a": [-1.7], "prob_b": [0.2]},
        },
    ),
    "SVMClassifier of two": (
        X,
        2,
        {**SVM, "kernel_type": "RBF", "classlabels_ints": [0, 1], "vectors_per_class": [3, 2], "coefficients": reals(5), "rho": [0.1]},
    ),
    **{
        f"TreeEnsembleRegressor {kind}": (
            GAPS,
            1,
            {**forest("target", **two_trees(reals(10), [0, 1] * 5)), "n_targets": 2, "aggregate_function": kind},
        )
        for kind in ("SUM", "AVERAGE", "MIN", "MAX")
    },
    "TreeEnsembleRegressor of other comparisons": (
        X,
        1,
        {**forest("target", **two_trees(reals(5), [0] * 5, ("BRANCH_GT", "BRANCH_LT"))), "n_targets": 1, "base_values": [0.5]},
    ),
    "TreeEnsembleClassifier": (X, 2, {**forest("class", **two_trees(reals(15), [0, 1, 2] * 5)), **LABELS, "base_values": reals(3)}),
    "TreeEnsembleClassifier of two": (
        X,
        2,
        {**forest("class", **two_trees(reals(5), [0] * 5)), "classlabels_int64s": [0, 1], "post_transform": "LOGISTIC"},
    ),
    "TreeEnsembleClassifier of probabilities": (
        X,
        2,
        {**forest("class", **two_trees([0.1, 0.3, 0.2, 0.4, 0.05], [0] * 5)), "classlabels_int64s": [2, 3]},
    ),
    "TreeEnsemble": (
        GAPS,
        1,
        {
            "nodes_featureids": [1, 2, 3],
            "nodes_splits": np.array([0.1, -0.4, 0.2], F),
            "nodes_modes": np.array([0, 3, 0], np.uint8),
            "nodes_truenodeids": [1, 0, 3],
            "nodes_trueleafs": [0, 1, 1],
            "nodes_falsenodeids": [2, 1, 4],
            "nodes_falseleafs": [1, 1, 1],
            "leaf_targetids": [0, 1, 0, 1, 0],
            "leaf_weights": np.array(reals(5), F),
            "tree_roots": [0, 2],
            "n_targets": 2,
            "aggregate_function": 1,
            "post_transform": 0,
        },
    ),
}


def model_of(op: str, x: np.ndarray, outputs: int, attributes: dict[str, Any], text: bool = False) -> onnx.ModelProto:
    """A model of one node that imports no other operators."""
    tensors = {name: numpy_helper.from_array(value, name) if isinstance(value, np.ndarray) else value for name, value in attributes.items()}
    names = ["label", "scores"] if outputs == 2 else ["y"]
    node = helper.make_node(op, ["x"], names, op, domain="ai.onnx.ml", **tensors)
    is_integer = op in ("Imputer", "LabelEncoder") and any("imputed_value_i" in name or "values_i" in name for name in attributes)
    label = TensorProto.STRING if text else TensorProto.INT64
    kinds = {"label": label, "y": TensorProto.INT64 if is_integer else TensorProto.FLOAT}
    results = [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), None) for name in names]
    source = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    version = {"TreeEnsemble": 5, "LabelEncoder": 4}.get(op, 3)
    imports = [helper.make_opsetid("ai.onnx.ml", version), *([helper.make_opsetid("", 18)] if text else [])]
    return helper.make_model(helper.make_graph([node], "g", [source], results), opset_imports=imports, ir_version=8)


def expected(model: onnx.ModelProto, x: np.ndarray) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    result: list[Any] = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    return result


@pytest.mark.parametrize("case", CASES)
def test_a_node_computes_what_onnxruntime_does(tmp_path: Path, case: str) -> None:
    x, outputs, attributes = CASES[case]
    model = model_of(case.split()[0], x, outputs, attributes)
    onnx.save(model, tmp_path / "m.onnx")
    for got, want in zip(deeploy.compile(tmp_path / "m.onnx").interpret([x]), expected(model, x), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_trees_in_c(tmp_path: Path) -> None:
    x, outputs, attributes = CASES["TreeEnsembleClassifier"]
    onnx.save(model_of("TreeEnsembleClassifier", x, outputs, attributes), tmp_path / "m.onnx")
    made = deeploy.compile(tmp_path / "m.onnx")
    assert made.plan.program.calls[0].kernel.name == "decision_trees"
    for one, other in zip(made.run([x]), made.interpret([x]), strict=True):
        assert np.array_equal(one, other)


def texts() -> onnx.ModelProto:
    """A classifier whose labels are texts, which pass through an extractor and a dictionary of scores, as converters write it."""
    attributes = {"coefficients": reals(3, 4), "intercepts": reals(3), "classlabels_strings": ["no", "yes", "maybe"]}
    model = model_of("LinearClassifier", X, 2, attributes, text=True)
    model.graph.node[0].output[:] = ["text", "raw"]
    model.graph.node.append(
        helper.make_node("ZipMap", ["raw"], ["scores"], domain="ai.onnx.ml", classlabels_strings=["no", "yes", "maybe"])
    )
    model.graph.node.append(helper.make_node("Identity", ["text"], ["label"]))
    pairs = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    model.graph.output[1].CopyFrom(helper.make_value_info("scores", helper.make_sequence_type_proto(pairs)))
    return model


def test_labels_that_are_texts_are_indices(tmp_path: Path) -> None:
    model = texts()
    onnx.save(model, tmp_path / "m.onnx")
    made = deeploy.compile(tmp_path / "m.onnx")
    label, scores = made.interpret([X])
    want_label, want_scores = expected(model, X)
    names = ("no", "yes", "maybe")
    assert [names[i] for i in label] == list(want_label)
    np.testing.assert_allclose(scores, [[row[name] for name in names] for row in want_scores], rtol=1e-5)
    made.write(tmp_path / "out")
    assert '"labels": [' in (tmp_path / "out/deploy.json").read_text()
    assert any("no, yes, maybe" in note for note in made.notes)


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a transform": (
        "LinearClassifier",
        {"coefficients": reals(8), "classlabels_ints": [0, 1], "post_transform": "\x1b[31m"},
        "post_transform",
    ),
    "no labels": ("LinearClassifier", {"coefficients": reals(4)}, "labels"),
    "texts": ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}, "texts"),
    "categories of texts": ("OneHotEncoder", {"cats_strings": ["a"]}, "texts"),
    "a mode": ("TreeEnsembleRegressor", forest("target", **two_trees(reals(5), [0] * 5, ("BRANCH", "BRANCH_LT"))), "BRANCH"),
    "a cycle": (
        "TreeEnsembleRegressor",
        forest("target", **two_trees(reals(5), [0] * 5)) | {"nodes_truenodeids": [1, 1, 0, 0, 0, 1, 0, 0]},
        "does not fit",
    ),
    "a feature": (
        "TreeEnsembleRegressor",
        forest("target", **two_trees(reals(5), [0] * 5)) | {"nodes_featureids": [9] * 8},
        "feature 9 of 4",
    ),
    "a target": ("TreeEnsembleRegressor", forest("target", **two_trees(reals(5), [3] * 5)), "target 3 of 1"),
    "coefficients": ("LinearRegressor", {"coefficients": reals(5)}, "does not fit"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(tmp_path: Path, case: str) -> None:
    op, attributes, words = WRONG[case]
    onnx.save(model_of(op, X, 2 if "Classifier" in op else 1, attributes), tmp_path / "m.onnx")
    with pytest.raises(DeeployError, match=words) as caught:
        deeploy.compile(tmp_path / "m.onnx")
    assert len(lines := str(caught.value).splitlines()) == 2 and all(map(str.isprintable, lines))


def test_texts_do_not_reach_the_interface(tmp_path: Path) -> None:
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=["a"], values_strings=["b"])
    source, result = (helper.make_tensor_value_info(name, TensorProto.STRING, [2]) for name in "xy")
    imports = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(helper.make_graph([node], "g", [source], [result]), opset_imports=imports), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="string"):
        deeploy.compile(tmp_path / "m.onnx")


@pytest.mark.parametrize("name", ["forest", "boosting", "logistic", "vectors"])
def test_what_the_converter_of_scikit_learn_writes(tmp_path: Path, name: str) -> None:
    skl2onnx = pytest.importorskip("skl2onnx", reason="no skl2onnx: install the extra sklearn")
    from sklearn import ensemble, linear_model, pipeline, preprocessing, svm

    models = {
        "forest": ensemble.RandomForestClassifier(5, random_state=0),
        "boosting": ensemble.GradientBoostingRegressor(n_estimators=5, random_state=0),
        "logistic": pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
        "vectors": svm.SVR(),
    }
    x = RANDOM.standard_normal((40, 4)).astype(F)
    found = models[name].fit(x, (x[:, 0] + x[:, 1] > 0).astype(I64) if name != "vectors" else x[:, 0])
    converted = skl2onnx.to_onnx(
        found, x[:1], target_opset={"": 18, "ai.onnx.ml": 3}, options={"zipmap": False} if name == "forest" else None
    )
    onnx.save(converted, tmp_path / "m.onnx")
    feed = converted.graph.input[0].name
    want = onnxruntime.InferenceSession(converted.SerializeToString()).run(None, {feed: x[:5]})
    for got, wanted in zip(deeploy.compile(tmp_path / "m.onnx", dims={f"{feed}:0": 5}).interpret([x[:5]]), want, strict=True):
        rows = [list(row.values()) for row in wanted] if isinstance(wanted, list) else wanted
        np.testing.assert_allclose(got, rows, rtol=1e-4, atol=1e-5)
