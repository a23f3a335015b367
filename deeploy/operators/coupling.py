"""Probabilities of classes from those of each of two (docs/integer-form.md), as support vector machines have them."""

from __future__ import annotations

from random import Random

import numpy as np

from deeploy.ir.kernel import FLOAT, Operator, Row, Sample, Scratch
from deeploy.ir.nest import Map, Nest, coupled, encoded, parallel
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators.draws import floats, sample

ROUNDS = 100  # at most
PRECISION = 0.005  # divided by the number of classes: the error at which rounds end


def nest(node: Node) -> Nest:
    """x[n,q] of all pairs of classes, the first class with the second, third, ... first; every result y[n,e] depends on all of them."""
    (n,), (e,) = parallel("n"), coupled("e")
    (q,) = encoded("q", of=(e,))
    return Nest(reads={"x": Map(n, q)}, writes={"y": Map(n, e)})


def _coupling_matrix(x: Array, classes: int) -> Array:
    """The matrix of the system, [rows, classes, classes]."""
    r = np.zeros((len(x), classes, classes), np.float32)
    first, second = np.triu_indices(classes, 1)
    r[:, first, second], r[:, second, first] = x, np.float32(1) - x
    matrix = -r * r.swapaxes(1, 2)
    for i in range(classes):
        matrix[:, i, i] = 0
        for j in range(classes):
            matrix[:, i, i] += r[:, j, i] * r[:, j, i]
    return matrix


def reference(node: Node, x: Array) -> Array:
    """The second method of Wu, Lin and Weng (Journal of Machine Learning Research 5, 2004), algorithm 2, in float32.

    x[n,q] of all q pairs of classes, the first with the second, third, ... first; classes. From equal probabilities on, until the error is
    below 0.005 / classes, at most 100 rounds; every row ends its rounds by itself. No epilogue.
    """
    classes, one, two = int(node.attrs["classes"]), np.float32(1), np.float32(2)
    matrix, p = _coupling_matrix(x, classes), np.full((len(x), classes), one / np.float32(classes), np.float32)
    active = np.arange(len(x))
    with np.errstate(all="ignore"):
        for _ in range(ROUNDS):
            q, own = matrix[active], p[active]
            products, total = np.zeros_like(own), np.zeros(len(active), np.float32)
            for i in range(classes):
                for j in range(classes):
                    products[:, i] += q[:, i, j] * own[:, j]
                total += own[:, i] * products[:, i]
            left = ~(np.abs(products - total[:, None]) < np.float32(PRECISION) / np.float32(classes)).all(axis=1)
            active, q, own, products, total = active[left], q[left], own[left], products[left], total[left]
            for i in range(classes):
                step = (total - products[:, i]) / q[:, i, i]
                own[:, i] += step
                total = (total + step * (step * q[:, i, i] + two * products[:, i])) / (one + step) / (one + step)
                products = (products + step[:, None] * q[:, i]) / (one + step[:, None])
                own = own / (one + step[:, None])
            p[active] = own
    return p


def _draw_node(rng: Random) -> Sample:
    e = rng.randint(2, 7)
    return sample(f"x[n,{e * (e - 1) // 2}] y[n,{e}]", classes=(e,), x=floats(0.01, 0.99))(rng)


COUPLING = Operator(
    "PairwiseCoupling",
    ("x",),
    nest,
    reference,
    Row(
        types={"x": FLOAT, "y": FLOAT},
        strided={"x": 1, "y": 1},
        data_dependent="Rounds end when they change little.",
        scratch={"work": Scratch(lambda node, tile: 4 * node.attrs["classes"] * (node.attrs["classes"] + 1))},
    ),
    draw=_draw_node,
)
