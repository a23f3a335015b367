"""ONNX operators that are others in disguise: block rearrangements, repetition, borders that repeat, sums of several.

Everything here stays in the spelling of the normalised graph, so that quantisation is lowered afterwards by one set of rules. What a rule
returns is reshaped where it has another shape than the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.quant import behind_dequantisation
from deeploy.ir.nodes import Tensor, compute, concat
from deeploy.ir.rewriting import Match, Pass, Result, need, require, standard

_LARGEST = float(np.finfo(np.float32).max)
_SMALLEST = float(np.finfo(np.float32).tiny)


@standard("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    split = x.reshape([n, c, h // blocksize, blocksize, w // blocksize, blocksize])
    return split.transpose([0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4])


@standard("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, _, h, w = x.shape
    if mode == "DCR":
        return x.reshape([n, blocksize, blocksize, -1, h, w]).transpose([0, 3, 4, 1, 5, 2])
    return x.reshape([n, -1, blocksize, blocksize, h, w]).transpose([0, 1, 4, 2, 5, 3])


@standard("Pad")
def repeated_borders(x: Tensor, *, pads: Sequence[int], mode: Any) -> Result:
    """Borders that wrap around, or mirror more than once, are gathered along every axis."""
    widths = list(zip(pads[: x.rank], pads[x.rank :], strict=True))
    is_far = any(max(width) >= size for width, size in zip(widths, x.shape, strict=True))
    require(x.elements, mode == "wrap" or (mode == "reflect" and is_far))
    for axis, width in enumerate(widths):
        x = x.take(np.pad(np.arange(x.shape[axis]), width, mode), axis)
    return x


@standard("Expand", "Tile")
def decompose_repetition(m: Match, x: Tensor) -> Result:
    """Repetition as an Expand of equal rank; a Tile of more than single elements gets an axis to expand in front of each one."""
    require(x.elements, m.op == "Tile" or x.rank != m.y.rank)
    before, after = list[int](), list[int]()
    for size, result in zip([1] * (m.y.rank - x.rank) + [*x.shape], m.y.shape, strict=True):
        apart = size not in (1, result)
        before += [1, size] if apart else [size]
        after += [result // size, size] if apart else [result]
    return compute("Expand", x.reshape(before), shape=after)


@standard("Gather")
def decompose_index(x: Tensor, index: np.ndarray, *, axis: int) -> Result:
    """One constant index is a slice: a view."""
    require(not index.ndim, x.data is None)
    begin = int(index) % x.shape[axis]
    return x.cut(axis, begin, begin + 1)


@standard("IsNaN", lowers=True)
def is_nan(m: Match, x: Tensor) -> Tensor:
    """What differs from itself."""
    return m.replace("Binary", x, x, function="not_equal")


@standard("IsInf", kind="f")
def is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Result:
    require(detect_negative or detect_positive)
    size = x.apply("Abs") if detect_negative and detect_positive else x
    return size.apply("Equal", np.inf if detect_positive else -np.inf)


@standard("ArgMax", "ArgMin")
def of_integers(m: Match, x: Tensor) -> Result:
    """Where the largest of quantised values is, the largest integer is."""
    q = need(behind_dequantisation(x))
    require(q.is_scalar)
    return m.replace(m.op, q.tensor, **m.attrs)


@standard("LpNormalization", kind="f")
def decompose_normalisation(x: Tensor, *, axis: int = -1, p: int = 2) -> Result:
    """Divided by the sum of absolute values, or by the root of that of squares; rows of zeros stay."""
    require(p in (1, 2))
    return x / x.reduce(f"L{p}", axis).apply("Max", _SMALLEST)


@standard("LayerNormalization", kind="f")
def decompose_statistics(m: Match, x: Tensor, scale: Tensor, *bias: Tensor, axis: int = -1, epsilon: float = 1e-5) -> Result:
    """Where the mean or the deviation are results too, the norm is taken apart."""
    axes = range(axis % x.rank, x.rank)
    mean = x.reduce("Mean", *axes)
    d = x - mean
    deviation = ((d * d).reduce("Mean", *axes) + epsilon).apply("Sqrt").apply("Reciprocal")
    further = {given: value for given, value in zip(m.node.outputs[1:], (mean, deviation), strict=False) if given.name}
    require(further)
    return {**further, m.y: sum(bias, d * deviation * scale)}


@standard("Sum", "Mean")
def decompose_several(m: Match, first: Tensor, *others: Tensor) -> Result:
    """A chain of additions, and for the mean a multiplication."""
    require(m.op == "Sum" or m.y.dtype.is_float)
    total = sum(others, first)
    return total * (1 / len(m.inputs)) if m.op == "Mean" and others else total


@standard("Max", "Min", kind="f", commutes=True)
def decompose_bound(m: Match, x: Tensor, limit: float) -> Result:
    """The larger or smaller of a tensor and a constant number is a Clip."""
    require(len(m.inputs) == 2, x.shape == m.y.shape)
    return x.apply("Clip", **{"min": None, "max": None, "min" if m.op == "Max" else "max": limit})


@standard("PRelu", kind="f")
def decompose_slope(x: Tensor, slope: Tensor) -> Result:
    """The product with the slope where x is negative, and x elsewhere: a slope that may be infinite has no product with 0.

    Finite constant slopes stay as they are.
    """
    known = real_constant(slope)
    require(known is None or (known.size > 1 and not np.isfinite(known).all()))
    return x.apply("Less", 0).apply("Where", x * slope, x)


@standard("LogSoftmax", kind="f")
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """LogSoftmax in a form that neither overflows nor takes the logarithm of zero."""
    d = x - x.reduce("Max", axis)
    return d - d.apply("Exp").reduce("Sum", axis).apply("Log")


_SUMS: dict[str, Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]] = {
    "ReduceL1": lambda x, total: total(x.apply("Abs")),
    "ReduceL2": lambda x, total: total(x * x).apply("Sqrt"),
    "ReduceLogSum": lambda x, total: total(x).apply("Log"),
    "ReduceSumSquare": lambda x, total: total(x * x),
}


@standard(*_SUMS, kind="f")
def decompose_reduction(m: Match, x: Tensor, *, axes: Sequence[int], keepdims: int = 1) -> Tensor:
    """A sum with a function in front of it, behind it, or both."""
    return _SUMS[m.op](x, lambda terms: terms.reduce("Sum", *axes, keepdims=keepdims))


@standard("ReduceLogSumExp", kind="f")
def log_sum_exp(x: Tensor, *, axes: Sequence[int]) -> Tensor:
    """Exponentials are those of distances from the maximum.

    That is finite: an infinite one is as far from itself as infinity less infinity, which is no number.
    """
    largest = x.reduce("Max", *axes).apply("Clip", min=-_LARGEST, max=_LARGEST)
    return (x - largest).apply("Exp").reduce("Sum", *axes).apply("Log") + largest


@standard("MatMul", "MatMulInteger")
def decompose_vectors(m: Match, a: Tensor, b: Tensor) -> Result:
    """A vector is a matrix of one row (left) or one column (right)."""
    require(min(a.rank, b.rank) == 1)
    left = a.reshape([1, -1]) if a.rank == 1 else a
    right = b.reshape([-1, 1]) if b.rank == 1 else b
    return compute(m.op, left, right, *m.node.inputs[2:], dtype=m.y.dtype)


_LEAST_PRODUCT = 64  # channels times filters, from which on products of matrices pay


@standard("Conv", "ConvTranspose", kind="f")
def computed_filters(
    m: Match,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    group: int = 1,
) -> Result:
    """A convolution whose filters are computed: for each place of a filter, a product of matrices, which have faster kernels.

    A transposed convolution that moves by 1 is a convolution with filters that are turned around.
    """
    rank, is_transposed = x.rank - 2, m.op == "ConvTranspose"
    require(rank in (1, 2), group == 1, weights.data is None, behind_dequantisation(weights) is None)
    require(weights.shape[0] * weights.shape[1] >= _LEAST_PRODUCT, not is_transposed or max(strides) == 1)
    reach = [(kernel - 1) * dilation for kernel, dilation in zip(weights.shape[2:], dilations, strict=True)]
    before = [far - pad if is_transposed else pad for far, pad in zip(reach, pads, strict=False)]
    spans = [(count - 1) * stride + far + 1 for count, stride, far in zip(m.y.shape[2:], strides, reach, strict=True)]
    after = [span - size - first for span, size, first in zip(spans, x.shape[2:], before, strict=True)]
    require(min(before) >= 0)
    padded = x.transpose([0, *range(2, x.rank), 1]).pad([0, *before, 0], [0, *(max(n, 0) for n in after), 0])
    matrices = weights.transpose([*range(2, x.rank), *((0, 1) if is_transposed else (1, 0))])
    taps, filters = list[Tensor](), list[Tensor]()
    for place in np.ndindex(*weights.shape[2:]):
        seen, tap = padded, matrices
        for axis, at in enumerate(place):
            begin, step, count = at * dilations[axis], strides[axis], m.y.shape[2 + axis]
            seen = seen.cut(1 + axis, begin, begin + (count - 1) * step + 1, step)
            own = weights.shape[2 + axis] - 1 - at if is_transposed else at
            tap = tap.cut(axis, own, own + 1)
        taps.append(seen)
        filters.append(tap.reshape(matrices.shape[rank:]))
    if matrices.shape[-2] <= matrices.shape[-1]:  # what all windows see takes less memory than all products
        whole = concat(filters, 0) if is_transposed else matrices.reshape([-1, matrices.shape[-1]])
        result = concat(taps, x.rank - 1) @ whole
    else:
        products = [seen @ tap for seen, tap in zip(taps, filters, strict=True)]
        result = sum(products[1:], products[0])
    result = result if bias is None else result + bias
    return result.transpose([0, x.rank - 1, *range(1, x.rank - 1)])


_RULES = (
    *(
        space_to_depth,
        depth_to_space,
        repeated_borders,
        decompose_repetition,
        decompose_index,
        of_integers,
        is_nan,
        is_infinite,
        decompose_normalisation,
        decompose_statistics,
    ),
    *(
        decompose_several,
        decompose_bound,
        decompose_slope,
        log_softmax,
        decompose_reduction,
        log_sum_exp,
        decompose_vectors,
        computed_filters,
    ),
)
PASS = Pass("decompose", _RULES)
