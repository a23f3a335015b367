"""Sums of products, and running sums of quantised rows, as matrix products, and norms of images as norms of rows; all as ONNX operators."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence

import numpy as np

from deeploy.frontend.lower.lookup import real_constant
from deeploy.graph.nodes import Tensor, compute, constant, inverse
from deeploy.graph.rewriting import Match, Pass, Result, need, require, standard
from deeploy.operators.scan import RUNNING_SUM

_LONGEST = 256  # rows that are summed by a triangle of ones


@standard("CumSum")
def quantised_sum(m: Match, x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Result:
    """Of a dequantised tensor and short rows: a product with a triangle of ones, which stays one of integers."""
    axis %= x.rank
    size = x.shape[axis]
    require(m.source(x, "DequantizeLinear"), size <= _LONGEST)
    ones = np.triu(np.ones((size, size), np.int8), exclusive)  # row i enters the sums from column i on
    triangle = constant(ones[::-1, ::-1] if reverse else ones)
    perm = [*(i for i in range(x.rank) if i != axis), axis]
    last = x.transpose(perm)
    sums = last.reshape([-1, size]) @ compute("DequantizeLinear", triangle, constant(1.0, x.dtype), axis=0)
    return sums.reshape(last.shape).transpose(inverse(perm))


@standard("CumSum", kind="if", lowers=True)
def running_sum(m: Match, x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Along the middle one of three axes."""
    axis %= x.rank
    rows = x.reshape([math.prod(x.shape[:axis]), x.shape[axis], -1])
    return compute(RUNNING_SUM.name, rows, label="sums", exclusive=bool(exclusive), reverse=bool(reverse))


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
def einsum(*operands: Tensor, equation: str = "") -> Result:
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
        x, word = _multiply(x, word, y, other, joint, sizes), joint
    return x.transpose([word.index(c) for c in result])


def _multiply(a: Tensor, first: str, b: Tensor, second: str, result: str, sizes: Mapping[str, int]) -> Tensor:
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
def triangle(x: Tensor, k: int = 0, *, upper: int = 1) -> Tensor:
    """What lies above or below a diagonal, zeros elsewhere."""
    rows, columns = x.shape[-2:]
    at = max(-rows, min(columns, k))  # beyond these, all or none is kept
    kept = (np.triu if upper else np.tril)(np.ones((rows, columns), bool), at)
    return constant(kept).apply("Where", x, constant(0, x.dtype))


PASS = Pass("contractions", (quantised_sum, running_sum, einsum, image_of_columns, instance_norm, triangle))
