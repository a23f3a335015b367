"""Layer and root-mean-square norms of floats and of quantised values, along rows of the last axis (docs/integer-form.md)."""

from __future__ import annotations

import math

import numpy as np

from deeploy.ir.kernel import BYTES, FLOAT, Operator, Range, types
from deeploy.ir.nodes import Node
from deeploy.ir.types import Array
from deeploy.operators import rows
from deeploy.operators.accumulate import held, values
from deeploy.operators.draws import FLAG, sample
from deeploy.operators.elementwise import fits_loops, wide

MOST_COLUMNS = 1 << 16  # for which every sum of ``standardise`` fits 64 bits


def state_requirement(node: Node) -> str | None:
    """The row length for which sums are exact, and the rank of the C loops."""
    x = node.inputs[0]
    return fits_loops(node) if x is not None and x.shape[-1] <= MOST_COLUMNS else f"rows of at most {MOST_COLUMNS}"


def standardise_reference(node: Node, x: Array) -> Array:
    """2^fraction * d / sqrt(v), rounded half up: distances from the mean, or from the zero point, over the root of their squares.

    ``centred``: d = n*x - sum(x), v = n*sum(x^2) - sum(x)^2; else d = x - zero_point, v = sum(d^2). The root is that of
    (v*2^16 + epsilon) / 2^16; where v = 0, all is 0. Exactly: v*2^16 + epsilon = m * 4^k with 2^30 <= m < 2^32, and the result is
    (d * (2^62 // isqrt(m * 2^32)) + half) >> (38 + k - fraction). Last axis, x 8 bit. The norm's scale, bias, and without ``centred``
    the root of n, are in the requantisation.
    """
    attrs, n = node.attrs, x.shape[-1]
    rows = wide(x).reshape(-1, n)
    total = rows.sum(axis=1, keepdims=True)
    d = n * rows - total if attrs["centred"] else rows - attrs["zero_point"]
    v = n * (rows * rows).sum(axis=1) - total[:, 0] ** 2 if attrs["centred"] else (d * d).sum(axis=1)
    result = np.zeros_like(d)
    for row in np.flatnonzero(v):
        factor, shift = reciprocal_root((int(v[row]) << 16) + int(attrs["epsilon"]), int(attrs["fraction"]))
        result[row] = (d[row] * factor + (1 << (shift - 1))) >> shift
    return np.asarray(result.reshape(x.shape))


def reciprocal_root(value: int, fraction: int) -> tuple[int, int]:
    """``factor`` and ``shift`` with factor / 2^shift = 2^fraction / sqrt(value / 2^16); the factor has 31 bits.

    With value = m * 4^e and 2^30 <= m < 2^32: factor = 2^62 // isqrt(m * 2^32), which is 2^46 / sqrt(m).
    """
    exponent = (value.bit_length() - 31) // 2
    mantissa = value >> 2 * exponent if exponent >= 0 else value << -2 * exponent
    factor: int = 2**62 // math.isqrt(mantissa << 32)
    return factor, 38 + exponent - fraction


def _standardise_integers(node: Node) -> dict[str, tuple[Range, Range]]:
    """Of a value that is ``d`` from the centre: |d| * 2^fraction / sqrt(v) is at most 2^fraction * sqrt(n), and 1 more by rounding."""
    attrs, n = node.attrs, node.operands[0].shape[-1]
    low, high = values(node.operands[0], 0 if attrs["centred"] else int(attrs["zero_point"]))
    far, scale = (max(-low, high), 1) if not attrs["centred"] else (high - low, n)
    squares, most = n * max(-low, high) ** 2, (math.isqrt(n - 1) + 2 if attrs["centred"] else 1) << int(attrs["fraction"])
    value = ((far * n) ** 2 // 4 if attrs["centred"] else squares) << 16  # as variances are at most a quarter of the span's square
    ends = [reciprocal_root(max(end + int(attrs["epsilon"]), 1 << 16), int(attrs["fraction"])) for end in (0, value)]
    return {
        "squares": held(0, squares, 64 if squares >= 1 << 31 else 32),
        "spread": held(0, scale * squares, 64),
        "value": held(0, value + int(attrs["epsilon"]), 64, False),
        "shift": ((min(shift for _, shift in ends), max(shift for _, shift in ends)), (1, 62)),
        "products": held(-(far * scale << 31), (far * scale << 31) + (1 << max(shift for _, shift in ends) - 1), 64),
        "sum": held(-most - 1, most + 1),
    }


def normalise_reference(node: Node, x: Array, scale: Array, offset: Array | None = None) -> Array:
    """(x - mean) * (1 / sqrt(mean square + epsilon)) * scale + offset in float32; the mean is 0 unless ``centred``.

    Last axis; elements are added up in their order.
    """
    count = np.float32(x.shape[-1])
    d = x - np.add.accumulate(x, axis=-1)[..., -1:] / count if node.attrs["centred"] else x
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = 1 / np.sqrt(np.add.accumulate(d * d, axis=-1)[..., -1:] / count + np.float32(node.attrs["epsilon"]))
        y = d * factor * scale.astype(np.float32)
    return np.asarray(y if offset is None else y + offset, np.float32)


STANDARDISE = Operator(
    "Standardise",
    ("x",),
    rows.nest(),
    standardise_reference,
    {
        **rows.USUAL,
        "types": {"x": BYTES, "y": types("s8", "u8", "s32")},
        "requires": state_requirement,
        "epilogues": ((), ("requantise",), ("requantise", "lookup")),
        "data_dependent": rows.ROOT,
    },
    integers=_standardise_integers,
    draw=sample("x[*s]", centred=FLAG, zero_point=range(-9, 10), fraction=(8, 16, 20), epsilon=(1, 1 << 18)),
)
_FLOATS = dict.fromkeys(("x", "scale", "offset", "y"), FLOAT)
NORMALISE = Operator(
    "Normalise",
    ("x", "scale", "offset?"),
    rows.nest("scale", "offset"),
    normalise_reference,
    {**rows.USUAL, "types": _FLOATS},
    draw=sample("x[*s,c] scale[c] offset?[c]", centred=FLAG, epsilon=(1e-5,)),
)
