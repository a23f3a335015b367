"""Operators of ai.onnx.ml that scale, choose and multiply: preprocessing, linear models, support vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from deeploy.errors import shorten
from deeploy.frontend.expand.builder import Builder, Operand
from deeploy.operators.coupling import COUPLING


def floats_of(b: Builder, name: str) -> np.ndarray:
    """An attribute that is a list of floats; empty where it is absent."""
    return np.asarray(b.attributes.get(name, []), np.float32).reshape(-1)


def rows_of(b: Builder) -> Operand:
    """The first input as rows of floats [rows, features]."""
    x = b.needed(0).cast(np.float32)
    return x.reshape(1, x.size) if x.rank < 2 else x


def classes_of(b: Builder) -> np.ndarray:
    """The labels of classes."""
    found = b.attributes.get("classlabels_ints") or b.attributes.get("classlabels_int64s") or []
    if not found:
        raise b.refused("has no labels of classes", "export the model again")
    return np.asarray(found, np.int64)


def chosen(b: Builder, index: Operand, labels: np.ndarray) -> Operand:
    """The labels at computed places."""
    if np.array_equal(labels, np.arange(labels.size)):
        return index.cast(np.int64)
    return b.operand(labels).take(index)


def best(b: Builder, scores: Operand, labels: np.ndarray) -> Operand:
    """The label of the largest score of every row, the first of equal ones."""
    return chosen(b, scores.apply("ArgMax", axis=1, keepdims=0), labels)


def transformed(b: Builder, scores: Operand) -> Operand:
    """Scores behind the attribute ``post_transform``."""
    kind = b.text("post_transform", "NONE")
    if kind not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise b.refused(f"has post_transform = {shorten(kind, 40)}", "export the model with NONE, LOGISTIC or SOFTMAX")
    return scores if kind == "NONE" else scores.apply("Sigmoid") if kind == "LOGISTIC" else scores.apply("Softmax", axis=-1)


def of_two(b: Builder, score: Operand, labels: np.ndarray, limit: float, complement: float) -> list[Operand | None]:
    """The label and the scores of two classes of the score [rows, 1] of the second, which is chosen above ``limit``."""
    label = chosen(b, score.greater(limit).reshape(score.shape[0]).cast(np.int64), labels)
    if b.text("post_transform", "NONE") == "LOGISTIC":
        return [label, b.concat([score.apply("Neg"), score], 1).apply("Sigmoid")]
    return [label, b.concat([complement - score, score], 1)]


def scaler(b: Builder) -> Operand:
    """Scaler: (x - offset) * scale."""
    x, offset, scale = b.needed(0).cast(np.float32), floats_of(b, "offset"), floats_of(b, "scale")
    x = x - offset if offset.any() else x
    return x * scale if scale.size and not (scale == 1).all() else x


def normalizer(b: Builder) -> Operand:
    """Normalizer: rows divided by their largest element, the sum of their sizes, or the root of that of their squares."""
    x, kind = rows_of(b), b.text("norm", "MAX")
    size = x.reduce("Max", [1]) if kind == "MAX" else x.reduce(kind, [1])
    return (x / b.where(size.equal(0), np.float32(1), size)).reshape(*b.needed(0).shape)


def imputer(b: Builder) -> Operand:
    """Imputer: one value, or every NaN, replaced by one for its column."""
    x = b.needed(0)
    if x.dtype.kind == "i":
        values, old = np.asarray(b.attributes.get("imputed_value_int64s", [0]), x.dtype), b.integer("replaced_value_int64", 0)
        return b.where(x.equal(old), values, x)
    old_float = float(b.attributes.get("replaced_value_float", 0.0))
    missing = x.apply("IsNaN") if math.isnan(old_float) else x.equal(old_float)
    return b.where(missing, floats_of(b, "imputed_value_floats"), x)


def binarizer(b: Builder) -> Operand:
    """Binarizer: 1 above the threshold, else 0."""
    x = b.needed(0)
    return x.greater(b.number("threshold", 0.0)).cast(x.dtype)


_KINDS = {"int64s": np.int64, "floats": np.float32, "tensor": None}


def _listed(b: Builder, name: str) -> np.ndarray:
    """Keys or values of a LabelEncoder."""
    if f"{name}_strings" in b.attributes:
        raise b.refused("reads texts", "give it numbers, and encode texts in front of the network")
    for kind, dtype in _KINDS.items():
        if (found := b.attributes.get(f"{name}_{kind}")) is not None:
            return np.asarray(found, dtype).reshape(-1)
    raise b.refused(f"has no {name}", "export the model again")


def label_encoder(b: Builder) -> Operand:
    """LabelEncoder of numbers: the value of the first key that is equal, else a default."""
    x, keys, values = b.needed(0), _listed(b, "keys"), _listed(b, "values")
    kind = "int64" if values.dtype.kind == "i" else "float"
    default = np.asarray(b.attributes.get("default_tensor", b.attributes.get(f"default_{kind}", -1 if kind == "int64" else -0.0)))
    wide, row = x.reshape(*x.shape, 1), keys.astype(x.dtype)
    same = wide.equal(row)
    nan = np.isnan(row) if row.dtype.kind == "f" else np.zeros(row.size, bool)
    if nan.any():
        same = b.op("Or", same, wide.apply("IsNaN").both(b.operand(nan)))
    hit = same.cast(np.int32)
    found = b.operand(values).take(hit.apply("ArgMax", axis=x.rank, keepdims=0))
    return b.where(hit.reduce("Max", [x.rank], keep=False).greater(0), found, default.astype(values.dtype).reshape(()))


def feature_extractor(b: Builder) -> Operand:
    """ArrayFeatureExtractor: entries of the last axis."""
    x, places = b.needed(0), b.needed(1)
    result = x.take(places.reshape(places.size), x.rank - 1)
    return result.reshape(1, places.size) if x.rank == 1 else result


def feature_vectorizer(b: Builder) -> Operand:
    """FeatureVectorizer: all inputs beside each other, as floats."""
    count = sum(bool(name) for name in b.node.input)
    parts = [b.needed(i).cast(np.float32) for i in range(count)]
    return b.concat([x.reshape(x.shape[0], -1) if x.rank > 1 else x.reshape(1, x.size) for x in parts], 1)


def one_hot(b: Builder) -> Operand:
    """OneHotEncoder of numbers: 1 at the category that is equal, zeros for a number that is none."""
    if "cats_int64s" not in b.attributes:
        raise b.refused("reads texts", "give it numbers, and encode texts in front of the network")
    x = b.needed(0)
    categories = np.asarray(b.attributes["cats_int64s"], np.int64).astype(x.dtype)
    return x.reshape(*x.shape, 1).equal(categories).cast(np.float32)


def linear_classifier(b: Builder) -> list[Operand | None]:
    """LinearClassifier: a product, and the label of the largest score."""
    x, labels = rows_of(b), classes_of(b)
    weights = floats_of(b, "coefficients").reshape(-1, x.shape[1])
    scores = x @ np.ascontiguousarray(weights.T)
    if (offset := floats_of(b, "intercepts")).size:
        scores = scores + offset
    if weights.shape[0] == 1 and labels.size == 2:
        return of_two(b, scores, labels, 0, 1)
    return [best(b, scores, labels), transformed(b, scores)]


def linear_regressor(b: Builder) -> Operand:
    """LinearRegressor: a product."""
    x = rows_of(b)
    scores = x @ np.ascontiguousarray(floats_of(b, "coefficients").reshape(-1, x.shape[1]).T)
    offset = floats_of(b, "intercepts")
    return transformed(b, scores + offset if offset.size else scores)


def _kernel(b: Builder, x: Operand, vectors: np.ndarray) -> Operand:
    """What a support vector machine computes of every row and every vector."""
    kind = b.text("kernel_type", "LINEAR")
    gamma, offset, degree = (float(value) for value in (*floats_of(b, "kernel_params"), 0, 0, 0)[:3])
    if kind == "RBF":  # |x - v|^2 of differences, which are exact where rows are near vectors
        difference = x.reshape(x.shape[0], 1, x.shape[1]) - vectors
        distance: Operand = (difference * difference).reduce("Sum", [2], keep=False) * -gamma
        return distance.apply("Exp")
    inner = x @ np.ascontiguousarray(vectors.T) * gamma + offset
    return inner.apply("Tanh") if kind == "SIGMOID" else inner.power(degree)


def _weighed(b: Builder, x: Operand, vectors: np.ndarray, weights: np.ndarray) -> Operand:
    """Weighted sums of the kernels of all vectors; of linear ones, the product with one vector."""
    if b.text("kernel_type", "LINEAR") == "LINEAR":
        one: np.ndarray = (vectors.T.astype(np.float64) @ weights).astype(np.float32)
        return x @ one
    return _kernel(b, x, vectors) @ weights


def svm_regressor(b: Builder) -> Operand:
    """SVMRegressor: a weighted sum of kernels, or its sign."""
    x, coefficients, rho = rows_of(b), floats_of(b, "coefficients"), floats_of(b, "rho")
    count = b.integer("n_supports", 0)
    weights = coefficients.reshape(-1, 1)
    score = (x @ weights if count == 0 else _weighed(b, x, floats_of(b, "support_vectors").reshape(count, -1), weights)) + rho[:1]
    if b.integer("one_class", 0):
        return b.where(score.greater(0), np.float32(1), np.float32(-1))
    return transformed(b, score)


def _pairs(b: Builder, x: Operand, counts: Sequence[int]) -> Operand:
    """The decision of every pair of classes: one product, for each weighs the vectors of its two classes."""
    total, classes, rho = sum(counts), len(counts), floats_of(b, "rho")
    table = floats_of(b, "coefficients").reshape(classes - 1, total)
    ends = np.cumsum(counts)
    spans = [slice(int(end - count), int(end)) for count, end in zip(counts, ends, strict=True)]
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights = np.zeros((total, len(pairs)), np.float32)
    for column, (i, j) in enumerate(pairs):
        weights[spans[i], column], weights[spans[j], column] = table[j - 1, spans[i]], table[i, spans[j]]
    return _weighed(b, x, floats_of(b, "support_vectors").reshape(total, -1), weights) + rho[: len(pairs)]


def svm_classifier(b: Builder) -> list[Operand | None]:
    """SVMClassifier: a decision for every pair of classes, the label with most votes; decisions, or probabilities of classes."""
    x, labels = rows_of(b), classes_of(b)
    counts = [int(n) for n in b.attributes.get("vectors_per_class", [])]
    if not counts:
        scores = x @ np.ascontiguousarray(floats_of(b, "coefficients").reshape(labels.size, -1).T) + floats_of(b, "rho")[:1]
        return [best(b, scores, labels), transformed(b, scores)]
    scores = _pairs(b, x, counts)
    probabilities = None
    if (slopes := floats_of(b, "prob_a")).size and b.wants(1):  # Platt's, which are kept away from 0 and 1
        first = 1 - (scores * slopes + floats_of(b, "prob_b")).apply("Sigmoid")
        clipped = first.larger(1e-7).smaller(1 - 1e-7)
        shape = (x.shape[0], len(counts))
        probabilities = transformed(b, b.lowered(COUPLING.name, [clipped], shape, np.float32, classes=len(counts)))
    if labels.size == 2 and probabilities is None:
        label = chosen(b, scores.greater(0).reshape(scores.shape[0]).cast(np.int64), labels[::-1].copy())
        return [label, b.concat([scores.apply("Neg"), scores], 1) if b.wants(1) else None]
    pairs = [(i, j) for i in range(len(counts)) for j in range(i + 1, len(counts))]
    for_first = np.array([[i == c for c in range(len(counts))] for i, _ in pairs], np.float32)
    for_second = np.array([[j == c for c in range(len(counts))] for _, j in pairs], np.float32)
    won = scores.greater(0).cast(np.float32)
    votes = won @ for_first + (1 - won) @ for_second
    return [best(b, votes, labels), transformed(b, scores) if probabilities is None else probabilities]


CLASSIC: Mapping[str, Callable[[Builder], Operand | list[Operand | None]]] = {
    "ArrayFeatureExtractor": feature_extractor,
    "Binarizer": binarizer,
    "FeatureVectorizer": feature_vectorizer,
    "Imputer": imputer,
    "LabelEncoder": label_encoder,
    "LinearClassifier": linear_classifier,
    "LinearRegressor": linear_regressor,
    "Normalizer": normalizer,
    "OneHotEncoder": one_hot,
    "SVMClassifier": svm_classifier,
    "SVMRegressor": svm_regressor,
    "Scaler": scaler,
}
