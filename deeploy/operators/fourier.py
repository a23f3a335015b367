"""The transform of rows of real numbers into the first half of their frequencies (docs/integer-form.md)."""

from __future__ import annotations

from random import Random

import numpy as np

from deeploy.ir.kernel import FLOAT, Operator, Row, Sample
from deeploy.ir.nest import Map, Nest, coupled, parallel
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array

MOST_POINTS = 1 << 15


def nest(node: Node) -> Nest:
    """Over x[r,n] and y[r,f], of which every element may depend on all of a row."""
    (r,), (n, f) = parallel("r"), coupled("n", "f")
    return Nest(reads={"x": Map(r, n)}, writes={"y": Map(r, f)})


def turning_factors(points: int) -> np.ndarray:
    """exp(-2 pi i k / points) for the first half of all k, as real and imaginary parts [points/2, 2]."""
    angles = -2 * np.pi * np.arange(points // 2) / points
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def _multiply(a: Array, b: Array, turn: Array) -> tuple[Array, Array]:
    return a * turn[:, 0] - b * turn[:, 1], a * turn[:, 1] + b * turn[:, 0]


def reference(node: Node, x: Array, w: Array) -> Array:
    """Real and imaginary parts in turn of the frequencies 0 to n/2 of x[r,n], n a power of two from 4 on, w ``turning_factors``.

    Pairs of elements are the complex numbers of a transform of half the length, by butterflies of two after a reordering by reversed bits
    (Cooley and Tukey, 1965); its even and odd parts then give that of the row (Press et al., Numerical Recipes, 12.3). No epilogue.
    """
    rows, half = len(x), x.shape[1] // 2
    bits = half.bit_length() - 1
    order = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(half)]
    re, im = x[:, 0::2][:, order].copy(), x[:, 1::2][:, order].copy()
    size = 1
    while size < half:
        turn = w[:: half // size][:size]
        pairs_re, pairs_im = re.reshape(rows, -1, 2, size), im.reshape(rows, -1, 2, size)
        b_re, b_im = _multiply(pairs_re[:, :, 1], pairs_im[:, :, 1], turn)
        a_re, a_im = pairs_re[:, :, 0].copy(), pairs_im[:, :, 0].copy()
        pairs_re[:, :, 0], pairs_im[:, :, 0], pairs_re[:, :, 1], pairs_im[:, :, 1] = a_re + b_re, a_im + b_im, a_re - b_re, a_im - b_im
        size *= 2
    y = np.zeros((rows, half + 1, 2), np.float32)
    y[:, 0, 0], y[:, half, 0] = re[:, 0] + im[:, 0], re[:, 0] - im[:, 0]
    k = np.arange(1, half // 2 + 1)
    m, q = half - k, np.float32(0.5)
    odd_re, odd_im = _multiply((im[:, k] + im[:, m]) * q, (re[:, m] - re[:, k]) * q, w[k])
    even_re, even_im = (re[:, k] + re[:, m]) * q, (im[:, k] - im[:, m]) * q
    y[:, k, 0], y[:, k, 1] = even_re + odd_re, even_im + odd_im
    y[:, m, 0], y[:, m, 1] = even_re - odd_re, odd_im - even_im
    return y.reshape(rows, -1)


def is_fast(points: int) -> bool:
    """Whether rows of so many elements have a fast transform."""
    return 4 <= points <= MOST_POINTS and points & (points - 1) == 0


def _fits(node: Node) -> str | None:
    return None if is_fast(node.operands[0].shape[-1]) else f"rows of a power of two from 4 to {MOST_POINTS} elements"


def _draw(rng: Random) -> Sample:
    rows, points = rng.choice((1, 2, 3, 5)), 1 << rng.randint(2, 7)
    return Sample({"x": (rows, points), "y": (rows, points + 2)}, {}, {"w": turning_factors(points)})


REAL_FOURIER = Operator(
    "RealFourier",
    ("x", "w"),
    nest,
    reference,
    Row(types=dict.fromkeys(("x", "w", "y"), FLOAT), accepts=_fits, constants=("w",), strided={"x": 1, "y": 1}, cores=("r",)),
    draw=_draw,
)
