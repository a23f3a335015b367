"""Ensembles of decision trees (docs/integer-form.md): rows of features go down every tree, and what the leaves add is collected."""

from __future__ import annotations

from random import Random

import numpy as np

from deeploy.ir.kernel import FLOAT, Operator, Row, Sample, Tiling, types
from deeploy.ir.nest import Map, Nest, encoded, parallel
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.draws import floats, integers

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")  # how a feature is compared with a threshold
MISSING = 8  # added to the mode of a node where a feature that is no number counts as true
LEAF = -1  # the feature of a leaf, whose children are the first entry and the number of its weights
AGGREGATES = ("SUM", "AVERAGE", "MIN", "MAX")


def nest(node: Node) -> Nest:
    """x[n,f], nodes[m,4], thresholds[m], roots[t], entries (targets, weights)[q]: every result y[n,e] may depend on all of them."""
    n, e = parallel("n", "e")
    f, m, c, t, q = encoded("f", "m", "c", "t", "q", of=(e,))
    reads = {"x": Map(n, f), "nodes": Map(m, c), "thresholds": Map(m), "roots": Map(t), "targets": Map(q), "weights": Map(q)}
    return Nest(reads=reads, writes={"y": Map(n, e)})


def _find_leaf(x: Array, nodes: Array, thresholds: Array, root: int) -> Array:
    """The leaf of a tree that each row reaches."""
    place = np.full(x.shape[0], root)
    compare = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
    while (inner := np.flatnonzero(nodes[place, 0] >= 0)).size:
        at = place[inner]
        values, limits, modes = x[inner, nodes[at, 0]], thresholds[at], nodes[at, 1]
        outcomes = np.stack([function(values, limits) for function in compare])
        taken = outcomes[modes % MISSING, np.arange(inner.size)] | (np.isnan(values) & (modes >= MISSING))
        place[inner] = np.where(taken, nodes[at, 2], nodes[at, 3])
    return place


def reference(node: Node, x: Array, nodes: Array, thresholds: Array, roots: Array, targets: Array, weights: Array) -> Array:
    """What the reached leaves add to each target in float32, tree by tree; the least or the most of it; 0 where no leaf adds anything.

    x[n,f] float, nodes[m,4] int32, thresholds[m], roots[t], targets[q], weights[q]; aggregate, targets. A node (feature, mode, a, b) goes
    on to a where the feature compares with its threshold as the mode says (<=, <, >=, >, ==, != from 0; 8 more: or is NaN), else to b. A
    leaf has feature -1, and adds its b entries from a on.
    """
    aggregate = node.attrs["aggregate"]
    bound = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    combine = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
    y = np.full((x.shape[0], node.attrs["targets"]), bound, np.float32)
    for root in roots:
        leaf = _find_leaf(x, nodes, thresholds, int(root))
        first, count = nodes[leaf, 2], nodes[leaf, 3]
        for step in range(int(count.max(initial=0))):
            rows = np.flatnonzero(count > step)
            entry = first[rows] + step
            y[rows, targets[entry]] = combine(y[rows, targets[entry]], weights[entry])
    if aggregate == "AVERAGE":
        return np.asarray(y / np.float32(len(roots)), np.float32)
    return np.where(np.isinf(y) & (y == np.float32(bound)), np.float32(0), y) if bound else y


def _draw_node(rng: Random) -> Sample:
    """Trees of two levels, whose nodes are those of a heap, three branches and four leaves each."""
    rows, features, targets, count = (rng.randint(1, most) for most in (9, 5, 4, 5))
    nodes, entries = list[list[int]](), 0
    for root in range(0, 7 * count, 7):
        nodes += [
            [rng.randrange(features), rng.randrange(6) + rng.choice((0, MISSING)), root + 2 * i + 1, root + 2 * i + 2] for i in range(3)
        ]
        for added in rng.choices(range(3), k=4):
            nodes.append([LEAF, 0, entries, added])
            entries += added
    given = {"thresholds": floats(-1, 1), "targets": integers(0, targets - 1), "weights": floats(-1, 1)}
    arrays = {"nodes": np.array(nodes, np.int32), "roots": np.array(range(0, 7 * count, 7), np.int32)}
    sizes = {"thresholds": 7 * count, "targets": max(1, entries), "weights": max(1, entries)}
    arrays |= {name: values(rng, (sizes[name],)) for name, values in given.items()}
    return Sample({"x": (rows, features), "y": (rows, targets)}, {"aggregate": rng.choice(AGGREGATES), "targets": targets}, arrays)


TREES = Operator(
    "DecisionTrees",
    ("x", "nodes", "thresholds", "roots", "targets", "weights"),
    nest,
    reference,
    Row(
        types={
            **dict.fromkeys(("x", "thresholds", "weights", "y"), FLOAT),
            **dict.fromkeys(("nodes", "roots", "targets"), types("s32")),
        },
        constants=("nodes", "thresholds", "roots", "targets", "weights"),
        strided={"x": 1, "y": 1},
        data_dependent="The way to a leaf is longer for some values.",
        tiling=Tiling(whole=("e",)),
        cores=("n",),
    ),
    draw=_draw_node,
)
