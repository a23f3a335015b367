"""Operators of ai.onnx.ml that scale, choose and multiply: preprocessing, linear models, support vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deeploy.errors import shorten
from deeploy.frontend.expand.expansion import Expansion, Refusal, Results, expands
from deeploy.frontend.schemas import ML
from deeploy.ir.nodes import INTEGER_FORM, Tensor, compute, concat, constant, where
from deeploy.ir.types import DType
from deeploy.operators.coupling import COUPLING

_KINDS = {"int64s": np.int64, "floats": np.float32, "tensor": None}


def floats_of(m: Expansion, name: str) -> np.ndarray:
    """An attribute that is a list of floats; empty where it is absent."""
    return np.asarray(m.attrs.get(name, []), np.float32).reshape(-1)


def rows_of(x: Tensor) -> Tensor:
    """Rows of floats [rows, features]."""
    x = x.cast(DType.FLOAT32)
    return x.reshape([1, x.elements]) if x.rank < 2 else x


def classes_of(m: Expansion) -> np.ndarray:
    """The labels of classes."""
    labels = m.attrs.get("classlabels_ints") or m.attrs.get("classlabels_int64s") or []
    if not labels:
        raise Refusal("has no labels of classes", "export the model again")
    return np.asarray(labels, np.int64)


def choose_labels(index: Tensor, labels: np.ndarray) -> Tensor:
    """The labels at computed places."""
    return index.cast(DType.INT64) if np.array_equal(labels, np.arange(labels.size)) else constant(labels).take(index)


def choose_best(m: Expansion, scores: Tensor, labels: np.ndarray) -> Tensor:
    """The label of the largest score of every row, the first of equal ones."""
    return choose_labels(m.compute("ArgMax", scores, axis=1, keepdims=0), labels)


def transform_scores(m: Expansion, scores: Tensor) -> Tensor:
    """Scores behind the attribute ``post_transform``."""
    kind = str(m.attrs.get("post_transform", "NONE"))
    if kind not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise Refusal(f"has post_transform = {shorten(kind, 40)}", "export the model with NONE, LOGISTIC or SOFTMAX")
    return scores if kind == "NONE" else scores.apply("Sigmoid") if kind == "LOGISTIC" else scores.apply("Softmax", axis=scores.rank - 1)


def of_two(m: Expansion, score: Tensor, labels: np.ndarray, limit: float, complement: float) -> Results:
    """The label and the scores of two classes of the score [rows, 1] of the second, which is chosen above ``limit``."""
    label = choose_labels(score.apply("Greater", limit).reshape([score.shape[0]]).cast(DType.INT64), labels)
    if m.attrs.get("post_transform") == "LOGISTIC":
        return [label, concat([score.apply("Neg"), score], 1).apply("Sigmoid")]
    return [label, concat([complement - score, score], 1)]


@expands("Scaler", domain=ML)
def expand_scaler(m: Expansion, x: Tensor) -> Tensor:
    """(x - offset) * scale."""
    x, offset, scale = x.cast(DType.FLOAT32), floats_of(m, "offset"), floats_of(m, "scale")
    x = x - offset if offset.any() else x
    return x * scale if scale.size and not (scale == 1).all() else x


@expands("Normalizer", domain=ML)
def expand_normalizer(x: Tensor, *, norm: str = "MAX") -> Tensor:
    """Rows divided by their largest element, the sum of their sizes, or the root of that of their squares."""
    rows = rows_of(x)
    size = rows.reduce("Max" if norm == "MAX" else norm, 1)
    return (rows / where(size.apply("Equal", 0), 1.0, size)).reshape(x.shape)


@expands("Imputer", domain=ML)
def expand_imputer(m: Expansion, x: Tensor, *, replaced_value_float: float = 0.0, replaced_value_int64: int = 0) -> Tensor:
    """One value, or every NaN, replaced by one for its column."""
    if x.dtype.is_integer:
        return where(x.apply("Equal", replaced_value_int64), np.asarray(m.attrs.get("imputed_value_int64s", [0])), x)
    missing = m.compute("IsNaN", x) if math.isnan(replaced_value_float) else x.apply("Equal", replaced_value_float)
    return where(missing, floats_of(m, "imputed_value_floats"), x)


@expands("Binarizer", domain=ML)
def expand_binarizer(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    """1 above the threshold, else 0."""
    return x.apply("Greater", threshold).cast(x.dtype)


def _list_labels(m: Expansion, name: str) -> np.ndarray:
    """Keys or values of a LabelEncoder."""
    if f"{name}_strings" in m.attrs:
        raise Refusal("reads texts", "give it numbers, and encode texts in front of the network")
    for kind, dtype in _KINDS.items():
        if (listed := m.attrs.get(f"{name}_{kind}")) is not None:
            return np.asarray(listed, dtype).reshape(-1)
    raise Refusal(f"has no {name}", "export the model again")


@expands("LabelEncoder", domain=ML)
def label_encoder(m: Expansion, x: Tensor) -> Tensor:
    """The value of the first key that is equal, else a default."""
    keys, values = _list_labels(m, "keys"), _list_labels(m, "values")
    kind = "int64" if values.dtype.kind == "i" else "float"
    default = np.asarray(m.attrs.get("default_tensor", m.attrs.get(f"default_{kind}", -1 if kind == "int64" else -0.0)))
    wide, row = x.reshape([*x.shape, 1]), keys.astype(x.dtype.numpy)
    same = wide.apply("Equal", row)
    nan = np.isnan(row) if row.dtype.kind == "f" else np.zeros(row.size, bool)
    if nan.any():
        same = same.apply("Or", m.compute("IsNaN", wide).apply("And", nan))
    hit = same.cast(DType.INT32)
    value = constant(values).take(m.compute("ArgMax", hit, axis=x.rank, keepdims=0))
    return where(hit.reduce("Max", x.rank, keepdims=0).apply("Greater", 0), value, default.reshape(()))


@expands("ArrayFeatureExtractor", domain=ML)
def feature_extractor(x: Tensor, places: Tensor) -> Tensor:
    """Entries of the last axis."""
    result = x.take(places.reshape([places.elements]), x.rank - 1)
    return result.reshape([1, places.elements]) if x.rank == 1 else result


@expands("FeatureVectorizer", domain=ML)
def feature_vectorizer(m: Expansion) -> Tensor:
    """All inputs beside each other, as floats."""
    return concat([x.reshape([x.shape[0] if x.rank > 1 else 1, -1]).cast(DType.FLOAT32) for x in m.inputs()], 1)


@expands("OneHotEncoder", domain=ML)
def one_hot(m: Expansion, x: Tensor) -> Tensor:
    """1 at the category that is equal, zeros for a number that is none."""
    if "cats_int64s" not in m.attrs:
        raise Refusal("reads texts", "give it numbers, and encode texts in front of the network")
    categories = np.asarray(m.attrs["cats_int64s"], np.int64)
    return x.reshape([*x.shape, 1]).apply("Equal", categories.astype(x.dtype.numpy)).cast(DType.FLOAT32)


def _multiply_rows(m: Expansion, x: Tensor) -> Tensor:
    """The product of rows with the coefficients of classes or targets, and their intercepts."""
    scores, offset = x @ floats_of(m, "coefficients").reshape(-1, x.shape[1]).T, floats_of(m, "intercepts")
    return scores + offset if offset.size else scores


@expands("LinearClassifier", domain=ML)
def linear_classifier(m: Expansion, x: Tensor) -> Results:
    """A product, and the label of the largest score."""
    scores, labels = _multiply_rows(m, rows_of(x)), classes_of(m)
    if scores.shape[1] == 1 and labels.size == 2:
        return of_two(m, scores, labels, 0, 1)
    return [choose_best(m, scores, labels), transform_scores(m, scores)]


@expands("LinearRegressor", domain=ML)
def linear_regressor(m: Expansion, x: Tensor) -> Tensor:
    """A product."""
    return transform_scores(m, _multiply_rows(m, rows_of(x)))


def _compute_kernel(m: Expansion, x: Tensor, vectors: np.ndarray) -> Tensor:
    """What a support vector machine computes of every row and every vector."""
    kind = str(m.attrs.get("kernel_type", "LINEAR"))
    gamma, offset, degree = (float(value) for value in (*floats_of(m, "kernel_params"), 0, 0, 0)[:3])
    if kind == "RBF":  # |x - v|^2 of differences, which are exact where rows are near vectors
        difference = x.reshape([x.shape[0], 1, x.shape[1]]) - vectors
        return ((difference * difference).reduce("Sum", 2, keepdims=0) * -gamma).apply("Exp")
    inner = x @ vectors.T * gamma + offset
    return inner.apply("Tanh") if kind == "SIGMOID" else inner.apply("Pow", degree)


def _weigh_kernels(m: Expansion, x: Tensor, vectors: np.ndarray, weights: np.ndarray) -> Tensor:
    """Weighted sums of the kernels of all vectors; of linear ones, the product with one vector."""
    if m.attrs.get("kernel_type", "LINEAR") == "LINEAR":
        vector: np.ndarray = (vectors.T.astype(np.float64) @ weights).astype(np.float32)
        return x @ vector
    return _compute_kernel(m, x, vectors) @ weights


@expands("SVMRegressor", domain=ML)
def svm_regressor(m: Expansion, x: Tensor, *, n_supports: int = 0, one_class: int = 0) -> Tensor:
    """A weighted sum of kernels, or its sign."""
    x, weights = rows_of(x), floats_of(m, "coefficients").reshape(-1, 1)
    sums = _weigh_kernels(m, x, floats_of(m, "support_vectors").reshape(n_supports, -1), weights) if n_supports else x @ weights
    score = sums + floats_of(m, "rho")[:1]
    return where(score.apply("Greater", 0), 1.0, -1.0) if one_class else transform_scores(m, score)


def _decide_pairs(m: Expansion, x: Tensor, counts: Sequence[int]) -> Tensor:
    """The decision of every pair of classes: one product, for each weighs the vectors of its two classes."""
    total, classes, rho = sum(counts), len(counts), floats_of(m, "rho")
    table = floats_of(m, "coefficients").reshape(classes - 1, total)
    ends = np.cumsum(counts)
    spans = [slice(int(end - count), int(end)) for count, end in zip(counts, ends, strict=True)]
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights = np.zeros((total, len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        weights[spans[i], column], weights[spans[j], column] = table[j - 1, spans[i]], table[i, spans[j]]
    return _weigh_kernels(m, x, floats_of(m, "support_vectors").reshape(total, -1), weights) + rho[: len(pairs)]


@expands("SVMClassifier", domain=ML)
def svm_classifier(m: Expansion, x: Tensor, *, vectors_per_class: Sequence[int] = ()) -> Results:
    """A decision for every pair of classes, the label with most votes; decisions, or probabilities of classes."""
    x, labels, count = rows_of(x), classes_of(m), len(vectors_per_class)
    if not count:
        scores = x @ floats_of(m, "coefficients").reshape(labels.size, -1).T + floats_of(m, "rho")[:1]
        return [choose_best(m, scores, labels), transform_scores(m, scores)]
    scores = _decide_pairs(m, x, vectors_per_class)
    probabilities = None
    if (slopes := floats_of(m, "prob_a")).size and m.wants(1):  # Platt's, which are kept away from 0 and 1
        first = 1 - (scores * slopes + floats_of(m, "prob_b")).apply("Sigmoid")
        clipped = first.apply("Max", 1e-7).apply("Min", 1 - 1e-7)
        coupled = compute(COUPLING.name, clipped, shape=(x.shape[0], count), domain=INTEGER_FORM, classes=count)
        probabilities = transform_scores(m, coupled)
    if labels.size == 2 and probabilities is None:
        label = choose_labels(scores.apply("Greater", 0).reshape([scores.shape[0]]).cast(DType.INT64), labels[::-1].copy())
        return [label, concat([scores.apply("Neg"), scores], 1) if m.wants(1) else None]
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    for_first, for_second = (np.array([[pair[side] == c for c in range(count)] for pair in pairs], np.float32) for side in (0, 1))
    won = scores.apply("Greater", 0).cast(DType.FLOAT32)
    votes = won @ for_first + (1 - won) @ for_second
    return [choose_best(m, votes, labels), transform_scores(m, scores) if probabilities is None else probabilities]
