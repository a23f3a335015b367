"""Ensembles of decision trees of ai.onnx.ml: flat lists of nodes for one operator, and what is done with what the leaves add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deeploy.errors import shorten
from deeploy.frontend.expand.ai_onnx_ml import choose_best, classes_of, floats_of, of_two, rows_of, transform_scores
from deeploy.frontend.expand.expansion import Expansion, Refusal, Results, expands
from deeploy.frontend.schemas import ML
from deeploy.ir.nodes import INTEGER_FORM, Tensor, compute, constant
from deeploy.ir.types import DType
from deeploy.operators.trees import AGGREGATES, LEAF, MISSING, MODES, TREES

Entry = tuple[int, float]  # what a leaf adds to which target


@dataclass
class _Forest:
    """The arrays of the operator, tree behind tree, children behind their parents."""

    nodes: list[list[int]] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def leaf(self, entries: list[Entry]) -> int:
        self.nodes.append([LEAF, 0, len(self.entries), len(entries)])
        self.thresholds.append(0.0)
        self.entries += entries
        return len(self.nodes) - 1

    def branch(self, feature: int, mode: int, threshold: float) -> int:
        self.nodes.append([feature, mode, 0, 0])
        self.thresholds.append(threshold)
        return len(self.nodes) - 1

    def grow(self, root: Any, look: Callable[[Any], tuple[int, int, float, Any, Any] | list[Entry]], most: int) -> None:
        """Add a tree: ``look`` says of a node its feature, mode, threshold and children, or what it adds as a leaf."""
        self.roots.append(len(self.nodes))
        waiting: list[tuple[Any, int, int]] = [(root, -1, 0)]
        while waiting:
            name, parent, side = waiting.pop()
            value = look(name)
            place = self.leaf(value) if isinstance(value, list) else self.branch(*value[:3])
            if parent >= 0:
                self.nodes[parent][side] = place
            if not isinstance(value, list):
                waiting += [(value[4], place, 3), (value[3], place, 2)]
            if len(self.nodes) > most:
                raise ValueError("a tree has a cycle")


def _build_forest(x: Tensor, forest: _Forest, targets: int, aggregate: str) -> Tensor:
    """The operator of a forest [rows, targets]."""
    x = rows_of(x)
    nodes = np.array(forest.nodes, np.int32)
    if nodes[:, 0].max() >= x.shape[1] or nodes[:, 0].min() < LEAF or aggregate not in AGGREGATES:
        raise Refusal(f"reads feature {nodes[:, 0].max()} of {x.shape[1]}, or aggregates by {shorten(aggregate, 40)}", "correct the model")
    entries = forest.entries or [(0, 0.0)]
    arrays = [
        *(nodes, np.array(forest.thresholds, np.float32), np.array(forest.roots, np.int32)),
        *(np.array([target for target, _ in entries], np.int32), np.array([weight for _, weight in entries], np.float32)),
    ]
    if min(arrays[3]) < 0 or max(arrays[3]) >= targets:
        raise Refusal(f"adds to target {max(arrays[3])} of {targets}", "correct the model")
    return compute(
        TREES.name,
        x,
        *map(constant, arrays),
        shape=(x.shape[0], targets),
        dtype=DType.FLOAT32,
        domain=INTEGER_FORM,
        aggregate=aggregate,
        targets=targets,
    )


def _read_mode(name: str, missing: int) -> int:
    if name not in MODES:
        raise Refusal(f"compares by {shorten(name, 40)}", f"use one of {', '.join(MODES)}")
    return MODES.index(name) + MISSING * bool(missing)


def _read_numbers(m: Expansion, name: str) -> list[float]:
    """A list of floats, or of doubles where the model has these."""
    values = m.attrs.get(name, m.attrs.get(f"{name}_as_tensor"))
    return [float(value) for value in np.atleast_1d(values if values is not None else [])]


def _list_nodes(m: Expansion, prefix: str, ids: str) -> _Forest:
    """The forest of lists with an entry for every node, and for all that leaves add (``prefix``), up to ai.onnx.ml 3."""
    values = m.attrs
    numbers = list(zip(values["nodes_treeids"], values["nodes_nodeids"], strict=True))
    count, zeros = len(numbers), [0] * len(numbers)
    thresholds = _read_numbers(m, "nodes_values")
    missing: list[int] = values.get("nodes_missing_value_tracks_true") or zeros
    columns = (
        values["nodes_modes"],
        values["nodes_featureids"],
        thresholds,
        values["nodes_truenodeids"],
        values["nodes_falsenodeids"],
        missing,
    )
    rows = dict(zip(numbers, zip(*columns, strict=True), strict=True))
    added: dict[tuple[int, int], list[Entry]] = {}
    weights = _read_numbers(m, f"{prefix}_weights")
    for tree, node, target, weight in zip(values[f"{prefix}_treeids"], values[f"{prefix}_nodeids"], values[ids], weights, strict=True):
        added.setdefault((tree, node), []).append((int(target), float(weight)))
    forest = _Forest()

    def look(number: tuple[int, int]) -> tuple[int, int, float, Any, Any] | list[Entry]:
        mode, feature, threshold, yes, no, tracks = rows[number]
        if mode == "LEAF":
            return added.get(number, [])
        return int(feature), _read_mode(mode, tracks), float(threshold), (number[0], yes), (number[0], no)

    children = {(number[0], child) for number, row in rows.items() if row[0] != "LEAF" for child in row[3:5]}
    for number in numbers:
        if number not in children:
            forest.grow(number, look, 2 * count)
    return forest


@expands("TreeEnsembleClassifier", domain=ML)
def expand_classifier(m: Expansion, x: Tensor) -> Results:
    """The label of the largest sum; of two classes with sums of one, of that above a half or above 0."""
    labels, forest, base = classes_of(m), _list_nodes(m, "class", "class_ids"), floats_of(m, "base_values")
    if labels.size == 2 and {target for target, _ in forest.entries} == {0} and base.size < 2:
        score = _build_forest(x, forest, 1, "SUM")
        is_probability = all(weight >= 0 for _, weight in forest.entries)
        return of_two(m, score + base if base.any() else score, labels, 0.5 if is_probability else 0, float(is_probability))
    scores = _build_forest(x, forest, labels.size, "SUM")
    scores = scores + base if base.any() else scores
    return [choose_best(m, scores, labels), transform_scores(m, scores)]


@expands("TreeEnsembleRegressor", domain=ML)
def expand_regressor(m: Expansion, x: Tensor, *, n_targets: int = 1, aggregate_function: str = "SUM") -> Tensor:
    """What the leaves add up to."""
    scores, base = _build_forest(x, _list_nodes(m, "target", "target_ids"), n_targets, aggregate_function), floats_of(m, "base_values")
    return transform_scores(m, scores + base if base.any() else scores)


@expands("TreeEnsemble", domain=ML)
def expand_ensemble(m: Expansion, x: Tensor, *, n_targets: int = 1, aggregate_function: int = 1, post_transform: int = 0) -> Tensor:
    """The tree ensemble of ai.onnx.ml 5, whose leaves and nodes are lists of their own."""
    values = m.attrs
    if "membership_values" in values:
        raise Refusal("compares with sets of values", "export the model with thresholds")
    features, count = np.atleast_1d(values["nodes_featureids"]), np.size(values["nodes_featureids"])
    modes, splits = np.atleast_1d(values["nodes_modes"]), np.atleast_1d(values["nodes_splits"])
    tracks = values.get("nodes_missing_value_tracks_true") or [0] * count
    targets, weights = np.atleast_1d(values["leaf_targetids"]), np.atleast_1d(values["leaf_weights"])
    forest = _Forest()

    def look(place: tuple[int, bool]) -> tuple[int, int, float, Any, Any] | list[Entry]:
        number, is_leaf = place
        if is_leaf:
            return [(int(targets[number]), float(weights[number]))]
        mode = int(modes[number])
        if not 0 <= mode < len(MODES):
            raise Refusal(f"compares by mode {mode}", f"use one of {', '.join(MODES)}")
        sides = (("nodes_truenodeids", "nodes_trueleafs"), ("nodes_falsenodeids", "nodes_falseleafs"))
        yes, no = ((int(values[ids][number]), bool(values[leaves][number])) for ids, leaves in sides)
        return int(features[number]), mode + MISSING * bool(tracks[number]), float(splits[number]), yes, no

    for root in values["tree_roots"]:
        is_alone = values["nodes_trueleafs"][root] and values["nodes_falseleafs"][root]
        same = values["nodes_truenodeids"][root] == values["nodes_falsenodeids"][root]
        forest.grow((int(values["nodes_truenodeids"][root]), True) if is_alone and same else (int(root), False), look, 4 * count + 4)
    scores = _build_forest(x, forest, n_targets, ("AVERAGE", "SUM", "MIN", "MAX")[aggregate_function])
    if post_transform > 2:
        raise Refusal(f"has post_transform = {post_transform}", "export the model with 0, 1 or 2")
    return (scores, scores.apply("Softmax", axis=1), scores.apply("Sigmoid"))[post_transform]
