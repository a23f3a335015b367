"""The transform of rows of real numbers into the first half of their frequencies (docs/integer-form.md)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from deeploy.ir.kernel import FLOAT, Operator, Reference, Row, Sample, Types, types
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


def _multiply_complex(a: Array, b: Array, turn: Array) -> tuple[Array, Array]:
    return a * turn[:, 0] - b * turn[:, 1], a * turn[:, 1] + b * turn[:, 0]


def fixed_factors(points: int) -> np.ndarray:
    """``turning_factors`` in units of 2^-15, the largest ones cut to 16 bits."""
    angles = -2 * np.pi * np.arange(points // 2) / points
    factors = np.rint(np.stack([np.cos(angles), np.sin(angles)], axis=1) * 2**15)
    return np.asarray(np.minimum(factors, 2**15 - 1), np.int16)


def _bit_order(half: int) -> list[int]:
    """Numbers below a power of two, each at the place that its bits give from behind."""
    bits = half.bit_length() - 1
    return [int(f"{i:0{bits}b}"[::-1], 2) for i in range(half)]


def reference(node: Node, x: Array, w: Array) -> Array:
    """Real and imaginary parts in turn of the frequencies 0 to n/2 of x[r,n], n a power of two from 4 on, w ``turning_factors``.

    Pairs of elements are the complex numbers of a transform of half the length, by butterflies of two after a reordering by reversed bits
    (Cooley and Tukey, 1965); its even and odd parts then give that of the row (Press et al., Numerical Recipes, 12.3). No epilogue.
    """
    rows, half = len(x), x.shape[1] // 2
    order = _bit_order(half)
    re, im = x[:, 0::2][:, order].copy(), x[:, 1::2][:, order].copy()
    size = 1
    while size < half:
        turn = w[:: half // size][:size]
        pairs_re, pairs_im = re.reshape(rows, -1, 2, size), im.reshape(rows, -1, 2, size)
        b_re, b_im = _multiply_complex(pairs_re[:, :, 1], pairs_im[:, :, 1], turn)
        a_re, a_im = pairs_re[:, :, 0].copy(), pairs_im[:, :, 0].copy()
        pairs_re[:, :, 0], pairs_im[:, :, 0], pairs_re[:, :, 1], pairs_im[:, :, 1] = a_re + b_re, a_im + b_im, a_re - b_re, a_im - b_im
        size *= 2
    y = np.zeros((rows, half + 1, 2), np.float32)
    y[:, 0, 0], y[:, half, 0] = re[:, 0] + im[:, 0], re[:, 0] - im[:, 0]
    k = np.arange(1, half // 2 + 1)
    m, q = half - k, np.float32(0.5)
    odd_re, odd_im = _multiply_complex((im[:, k] + im[:, m]) * q, (re[:, m] - re[:, k]) * q, w[k])
    even_re, even_im = (re[:, k] + re[:, m]) * q, (im[:, k] - im[:, m]) * q
    y[:, k, 0], y[:, k, 1] = even_re + odd_re, even_im + odd_im
    y[:, m, 0], y[:, m, 1] = even_re - odd_re, odd_im - even_im
    return y.reshape(rows, -1)


def fixed_reference(node: Node, x: Array, w: Array) -> Array:
    """Real and imaginary parts of the frequencies 0 to n/2 of x[r,n] int16, divided by n, int16; w ``fixed_factors``. No epilogue.

    The same butterflies. Elements are halved, and halved again at every step: what is rounded half up is (a + b w) / 2 as a whole, w
    being exactly 1 at number 0. No |pair| exceeds 2^14.5, so that nothing but n times the largest element is cut off. Parts are wrong by
    log2(n) at most, and by less than 1 in the mean square.
    """
    rows, half, turns = len(x), x.shape[1] // 2, w.astype(np.int64)
    turns[0] = 2**15, 0
    pairs = ((x.astype(np.int64) + 1) >> 1).reshape(rows, half, 2)[:, _bit_order(half)]
    size = 1
    while size < half:
        a, b = pairs.reshape(rows, -1, 2, size, 2).transpose(2, 0, 1, 3, 4)
        turned, whole = np.stack(_multiply_complex(b[..., 0], b[..., 1], turns[:: half // size][:size]), axis=-1), a << 15
        pairs = np.stack([_round_upper(whole + turned), _round_upper(whole - turned)], axis=2).reshape(rows, half, 2)
        size *= 2
    re, im = pairs[..., 0], pairs[..., 1]
    y = np.zeros((rows, half + 1, 2), np.int64)
    y[:, 0, 0], y[:, half, 0] = re[:, 0] + im[:, 0], re[:, 0] - im[:, 0]
    k = np.arange(1, half // 2 + 1)
    m = half - k
    odd_re, odd_im = _multiply_complex(im[:, k] + im[:, m], re[:, m] - re[:, k], turns[k])
    even_re, even_im = (re[:, k] + re[:, m]) << 15, (im[:, k] - im[:, m]) << 15
    y[:, k, 0], y[:, k, 1] = _round_upper(even_re + odd_re), _round_upper(even_im + odd_im)
    y[:, m, 0], y[:, m, 1] = _round_upper(even_re - odd_re), _round_upper(odd_im - even_im)
    return np.minimum(y, 2**15 - 1).astype(np.int16).reshape(rows, -1)


def _round_upper(sums: Array) -> Array:
    """Sums in units of 2^-16, rounded half up."""
    return (sums + 2**15) >> 16


def is_fast(points: int) -> bool:
    """Whether rows of so many elements have a fast transform."""
    return 4 <= points <= MOST_POINTS and points & (points - 1) == 0


def _fits_portable(node: Node) -> str | None:
    return None if is_fast(node.operands[0].shape[-1]) else f"rows of a power of two from 4 to {MOST_POINTS} elements"


def _make_operator(name: str, compute: Reference, factors: Callable[[int], np.ndarray], elements: Types) -> Operator:
    def draw(rng: Random) -> Sample:
        rows, points = rng.choice((1, 2, 3, 5)), 1 << rng.randint(2, 7)
        return Sample({"x": (rows, points), "y": (rows, points + 2)}, {}, {"w": factors(points)})

    row = Row(
        types=dict.fromkeys(("x", "w", "y"), elements), requires=_fits_portable, constants=("w",), strided={"x": 1, "y": 1}, cores=("r",)
    )
    return Operator(name, ("x", "w"), nest, compute, row, draw=draw)


REAL_FOURIER = _make_operator("RealFourier", reference, turning_factors, FLOAT)
FIXED_FOURIER = _make_operator("FixedFourier", fixed_reference, fixed_factors, types("s16"))
