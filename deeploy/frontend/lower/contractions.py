"""Sums of products, and running sums of quantised rows, as matrix products, and norms of images as norms of rows; all as ONNX operators.

Convolutions along three axes are convolutions of images: every plane of the result reads as many planes of the volume as the filter is
deep. They become channels of one image, and the planes of the result its batch: sums of products are the same, so that quantised ones
stay exact. A plane that lies outside is one of zeros.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence

import numpy as np

from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.quant import behind_dequantisation, quantised_result
from deeploy.frontend.schemas import WEIGHTS
from deeploy.ir.nodes import Tensor, compute, constant, inverse_order
from deeploy.ir.rewriting import Match, Pass, Result, need, require, standard
from deeploy.ir.types import DType
from deeploy.operators.bands import BAND_MATMUL, pack_bands
from deeploy.operators.fourier import FIXED_FOURIER, REAL_FOURIER, fixed_factors, turning_factors
from deeploy.operators.scan import RUNNING_SUM

_RARE = 4  # by which elements are more than those in runs, where products with zeros are left out
_LONGEST = 256  # rows that are summed by a triangle of ones


@standard("CumSum")
def quantised_sum(m: Match, x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Result:
    """Running sums of short dequantised rows as a product of integers with a triangle of ones."""
    axis %= x.rank
    size = x.shape[axis]
    require(m.source(x, "DequantizeLinear"), size <= _LONGEST)
    ones = np.triu(np.ones((size, size), np.int8), exclusive)  # row i enters the sums from column i on
    triangle = constant(ones[::-1, ::-1] if reverse else ones)
    perm = [*(i for i in range(x.rank) if i != axis), axis]
    last = x.transpose(perm)
    sums = last.reshape([-1, size]) @ compute("DequantizeLinear", triangle, constant(1.0, x.dtype), axis=0)
    return sums.reshape(last.shape).transpose(inverse_order(perm))


@standard("CumSum", kind="if", lowers=True)
def running_sum(m: Match, x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Running sums as ``RunningSum``, along the middle one of three axes."""
    axis %= x.rank
    rows = x.reshape([math.prod(x.shape[:axis]), x.shape[axis], -1])
    return compute(RUNNING_SUM.name, rows, label="sums", exclusive=bool(exclusive), reverse=bool(reverse))


@standard("MatMul", kind="f", lowers=True)
def banded_product(m: Match, x: Tensor, matrix: np.ndarray) -> Tensor:
    """A product with a constant matrix whose columns are runs of elements between zeros, as ``BandMatMul``."""
    require(matrix.ndim == 2, x.rank > 1, x.dtype is DType.FLOAT32, (matrix != 0).any())
    w, spans = pack_bands(matrix)
    require(_RARE * w.size <= matrix.size)
    rows = x.reshape([-1, len(matrix)])
    return compute(BAND_MATMUL.name, rows, constant(w), constant(spans), shape=[rows.shape[0], len(spans)], label="bands")


@standard("DFT", lowers=True)
def fixed_fourier(m: Match, x: Tensor, *, axis: int, inverse: int = 0, onesided: int = 0) -> Result:
    """The frequencies of dequantised rows of 16 bits that are quantised by a scale so many times larger, as ``FixedFourier``."""
    points, q, readers = x.shape[-2], need(behind_dequantisation(m.views(x, is_shared=True)[1])), m.readers(m.y)
    require(all(view.op == "Reshape" for view in m.views(x, is_shared=True)[0]))
    require(axis == x.rank - 2, onesided, not inverse, x.shape[-1] == 1, readers, not m.is_output(m.y))
    results = [need(quantised_result(reader)) for reader in readers]
    for each, scale in ((q, q.s), *((result, q.s * points) for result in results)):
        require(each.is_scalar, each.tensor.dtype is DType.INT16, each.z == 0, each.s == np.float32(scale))
    rows, factors = q.tensor.reshape([-1, points]), constant(fixed_factors(points), label="turning factors")
    y = compute(FIXED_FOURIER.name, rows, factors, shape=[rows.shape[0], points + 2], dtype=DType.INT16, label="frequencies")
    return {result.tensor: y.reshape(m.y.shape) for result in results}


@standard("DFT", kind="f", lowers=True)
def real_fourier(m: Match, x: Tensor, *, axis: int, inverse: int = 0, onesided: int = 0) -> Tensor:
    """The frequencies of rows of real numbers as ``RealFourier``."""
    points = x.shape[-2]
    require(axis == x.rank - 2, onesided, not inverse, x.shape[-1] == 1)
    rows = x.reshape([-1, points])
    factors = constant(turning_factors(points), label="turning factors")
    return compute(REAL_FOURIER.name, rows, factors, shape=[rows.shape[0], points + 2], label="frequencies")


def read_equation(equation: str, ranks: Sequence[int]) -> tuple[list[str], str] | None:
    """The letters of every operand and of the result of an Einsum, given the ranks of operands; dots become capital letters.

    None where they are not those of so many operands, or the result has a letter twice.
    """
    text = equation.replace(" ", "").replace("...", ".")
    left, arrow, right = text.partition("->")
    words = left.split(",")
    hidden = [max(0, rank - len(word) + 1) if "." in word else 0 for word, rank in zip(words, ranks, strict=False)]
    dots = "".join(c for c in string.ascii_uppercase if c not in text)[: max(hidden, default=0)]
    if not arrow:
        right = "." * bool(dots) + "".join(sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1))
    terms = [word.replace(".", dots[len(dots) - count :]) for word, count in zip(words, hidden, strict=False)]
    result = right.replace(".", dots)
    fits = [len(word) for word in terms] == list(ranks) and len(set(result)) == len(result)
    return (terms, result) if fits and set(result) <= set("".join(terms)) <= set(string.ascii_letters) else None


@standard("Einsum")
def lower_einsum(*operands: Tensor, equation: str = "") -> Result:
    """One operand after the other is multiplied; letters of one alone that the result lacks are summed before."""
    terms, result = need(read_equation(equation, [operand.rank for operand in operands]))
    extents = {pair for word, operand in zip(terms, operands, strict=True) for pair in zip(word, operand.shape, strict=True)}
    sizes, spelled = dict(extents), "".join((*terms, result))
    require(len(extents) == len(sizes), all(len(set(word)) == len(word) for word in terms))
    alone = {c for c in sizes if spelled.count(c) == 1}
    x, *others = (
        operand.reduce("Sum", *(axis for axis, c in enumerate(word) if c in alone), keepdims=0)
        for operand, word in zip(operands, terms, strict=True)
    )
    word, *words = ("".join(c for c in word if c not in alone) for word in terms)
    for number, (y, other) in enumerate(zip(others, words, strict=True), 1):
        later = "".join(words[number:])
        joint = "".join(c for c in dict.fromkeys(word + other) if c in later + result) if later else result
        x, word = _multiply_operands(x, word, y, other, joint, sizes), joint
    return x.transpose([word.index(c) for c in result])


def _multiply_operands(a: Tensor, first: str, b: Tensor, second: str, result: str, sizes: Mapping[str, int]) -> Tensor:
    """The product of two operands of an Einsum: batches, rows, columns and what is summed are grouped and multiplied as matrices."""
    batch = [c for c in result if c in first and c in second]
    summed = [c for c in first if c in second and c not in result]
    rows, columns = ([c for c in word if c not in other] for word, other in ((first, second), (second, first)))

    def extents(letters: Sequence[str]) -> list[int]:
        return [sizes[c] for c in letters]

    def matrix(x: Tensor, word: str, outer: Sequence[str], inner: Sequence[str]) -> Tensor:
        """An operand as batches of matrices."""
        ordered = x.transpose([word.index(c) for c in (*batch, *outer, *inner)])
        return ordered.reshape([*extents(batch), math.prod(extents(outer)), math.prod(extents(inner))])

    product = matrix(a, first, rows, summed) @ matrix(b, second, summed, columns)
    order = [*batch, *rows, *columns]
    return product.reshape(extents(order)).transpose([order.index(c) for c in result])


@standard("Col2Im")
def image_of_columns(
    m: Match,
    x: Tensor,
    image: np.ndarray,
    block: np.ndarray,
    *,
    strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
) -> Result:
    """A transposed convolution of every channel, whose columns are the inputs of its group and go to one tap each."""
    require(len(image) == 2, x.dtype.is_float)
    taps, (batch, rows, _) = int(block.prod()), x.shape
    channels = rows // taps
    padded = image + pads[:2] + pads[2:] - (np.multiply(dilations, block - 1) + 1)
    weights = np.tile(np.eye(taps).reshape(taps, 1, *block), (channels, 1, 1, 1))
    window = {"kernel_shape": block.tolist(), "strides": strides, "dilations": dilations, "pads": pads, "group": channels}
    images = x.reshape([batch, rows, *(padded // strides + 1)])
    return m.replace("ConvTranspose", images, constant(weights), output_padding=(padded % strides).tolist(), **window)


@standard("InstanceNormalization", kind="f")
def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Result:
    """Every channel of every image is a row; scale and bias are per channel."""
    rows = x.reshape([*x.shape[:2], math.prod(x.shape[2:])])
    factor, summand = (need(real_constant(row)).reshape([-1, *[1] * (x.rank - 2)]) for row in (scale, bias))
    normal = rows.apply("LayerNormalization", np.ones(rows.shape[2]), axis=2, epsilon=epsilon).reshape(x.shape)
    return normal * factor + summand


@standard("Trilu")
def lower_triangle(x: Tensor, k: int = 0, *, upper: int = 1) -> Tensor:
    """What lies above or below a diagonal, zeros elsewhere."""
    rows, columns = x.shape[-2:]
    at = max(-rows, min(columns, k))  # beyond these, all or none is kept
    kept = (np.triu if upper else np.tril)(np.ones((rows, columns), bool), at)
    return constant(kept).apply("Where", x, constant(0, x.dtype))


PASS = Pass(
    "contractions",
    (
        quantised_sum,
        running_sum,
        banded_product,
        fixed_fourier,
        real_fourier,
        lower_einsum,
        image_of_columns,
        instance_norm,
        lower_triangle,
    ),
)


_WINDOW = ("kernel_shape", "strides", "dilations", "output_padding")


def _input_planes(m: Match) -> np.ndarray:
    """The plane of the input that every plane of the result reads, of shape [planes, depth of the filter].

    It is the one behind the last where it lies outside.
    """
    depth, stride, dilation, begin = (m.attrs[name][0] for name in (*_WINDOW[:3], "pads"))
    plane, tap, extent = np.arange(m.y.shape[2])[:, None], np.arange(depth) * dilation, m.x.shape[2]
    position, rest = np.divmod(plane + begin - tap, stride) if m.op == "ConvTranspose" else (plane * stride + tap - begin, 0)
    return np.where((rest == 0) & (position >= 0) & (position < extent), position, extent)


def _pad_volume(x: Tensor, pads: Sequence[int], value: float = 0) -> Tensor:
    """A volume with borders: their widths at the beginnings of its axes, then at the ends."""
    return x.apply("Pad", pads=[0, 0, *pads[:3], 0, 0, *pads[3:]], mode="constant", value=value)


def _filters_of_images(weights: Tensor, groups: int, is_transposed: bool) -> Tensor:
    """The filters of images: channels are sorted by group, then by plane."""
    channels, more, depth, *window = weights.shape
    split, joined = ([groups, -1, more], [-1, more]) if is_transposed else ([channels, more, 1], [channels, -1])
    planes_first = weights.reshape([*split, depth, *window]).transpose((0, 3, 1, 2, 4, 5))
    return planes_first.reshape([*joined, *window])


@standard(*WEIGHTS)
def lower_volume(m: Match, x: Tensor, weights: Tensor, *, group: int, pads: Sequence[int]) -> Result:
    """Planes become channels of images, and those of the result images of a batch."""
    require(x.rank == 5)
    (batch, channels, extent, *image), planes = x.shape, _input_planes(m)
    count, depth = planes.shape
    if extent in planes:
        point = m.input(2) if m.op == "ConvInteger" else None
        x = _pad_volume(x, [0, 0, 0, 1, 0, 0], need(0 if point is None else point.number))
    between = x.reshape([*x.shape[:3], -1]).transpose((0, 2, 1, 3)).take(planes.ravel(), 1)
    split = between.reshape([batch * count, depth, group, channels // group, -1]).transpose((0, 2, 1, 3, 4))
    images = split.reshape([batch * count, channels * depth, *image])
    window = {name: m.attrs[name][1:] for name in _WINDOW if name in m.attrs}
    attributes = {**m.attrs, **window, "pads": [*pads[1:3], *pads[4:]]}
    filters, shape = _filters_of_images(weights, group, m.op == "ConvTranspose"), [batch * count, m.y.shape[1], *m.y.shape[3:]]
    planar = compute(m.op, images, filters, *m.node.inputs[2:], shape=shape, dtype=m.y.dtype, **attributes)
    return planar.reshape([batch, count, m.y.shape[1], -1]).transpose((0, 2, 1, 3))


@standard("ConvInteger")
def dynamic_borders(m: Match, x: Tensor, *, pads: Sequence[int]) -> Result:
    """Borders of a volume whose zero point is computed are filled before the quantisation, whose range holds 0 in any case."""
    source = need(m.source(x, "DynamicQuantizeLinear"))
    require(x.rank == 5, any(pads))
    wide = compute("DynamicQuantizeLinear", _pad_volume(source.operands[0], pads), dtype=x.dtype)
    return m.replace(m.op, wide, *m.node.inputs[1:], **{**m.attrs, "pads": [0] * len(pads)})


VOLUMES = Pass("volumes", (dynamic_borders, lower_volume))
