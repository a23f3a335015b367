"""Sums of products, and running sums of quantised rows, as matrix products, and norms of images as norms of rows; all as ONNX operators."""

from __future__ import annotations

import math
import string
from collections.abc import Collection, Sequence

import numpy as np
import onnx_graphsurgeon as gs

from deeploy.frontend.lower.lookup import real_constant
from deeploy.frontend.lower.rewriter import Rewriter, inverse, standard
from deeploy.graph.rewrite import Pass, producer
from deeploy.operators.scan import RUNNING_SUM

_COLUMNS = (("strides", 1, 1), ("dilations", 1, 1), ("pads", 0, 2))  # attributes of Col2Im, their default, and how many there are per axis
_LONGEST = 256  # rows that are summed by a triangle of ones


@standard("CumSum")
def quantised_sum(rw: Rewriter) -> bool:
    """Of a dequantised tensor and short rows: a product with a triangle of ones, which stays one of integers."""
    axis = rw.value(1)
    if axis is None or not rw.is_float or producer(rw.x, "DequantizeLinear") is None:
        return False
    rank = len(rw.x.shape)
    at = int(axis.item()) % rank
    size = rw.x.shape[at]
    if size > _LONGEST:
        return False
    ones = np.triu(np.ones((size, size), np.int8), int(rw.attrs.get("exclusive", 0)))  # row i enters the sums from column i on
    triangle = rw.constant(ones[::-1, ::-1] if rw.attrs.get("reverse", 0) else ones)
    perm = [*(i for i in range(rank) if i != at), at]
    last = rw.transpose(rw.x, perm)
    rows = rw.reshape(last, [math.prod(last.shape[:-1]), size])
    weights = rw.create("DequantizeLinear", triangle, rw.constant(1.0, rw.x.dtype), dtype=rw.x.dtype, axis=0)
    sums = rw.reshape(rw.create("MatMul", rows, weights), last.shape)
    return rw.finish(rw.transpose(sums, inverse(perm)))


@standard("CumSum", kind="if", lowers=True)
def running_sum(rw: Rewriter) -> bool:
    """Along the middle one of three axes."""
    axis, shape = rw.value(1), rw.x.shape
    if axis is None:
        return False
    at = int(axis.item()) % len(shape)
    rows = rw.reshape(rw.x, [math.prod(shape[:at]), shape[at], math.prod(shape[at + 1 :])])
    exclusive, reverse = (bool(rw.attrs.get(name, 0)) for name in ("exclusive", "reverse"))
    return rw.finish(rw.create(RUNNING_SUM.name, rows, shape=rows.shape, label="sums", exclusive=exclusive, reverse=reverse))


def read_equation(equation: str, ranks: Sequence[int]) -> tuple[list[str], str] | None:
    """The letters of every operand and of the result of an Einsum, given the ranks of operands; dots become capital letters.

    None where they are not those of so many operands, or the result has a letter twice.
    """
    text = equation.replace(" ", "").replace("...", ".")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    free = [c for c in string.ascii_uppercase if c not in text]
    hidden = [max(0, rank - len(word) + 1) if "." in word else 0 for word, rank in zip(terms, ranks, strict=False)]
    dots = free[: max(hidden, default=0)]
    if not arrow:
        right = "." * bool(dots) + "".join(sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1))
    terms = [word.replace(".", "".join(dots[len(dots) - count :])) for word, count in zip(terms, hidden, strict=False)]
    right = right.replace(".", "".join(dots))
    plain = all(word.isalpha() or not word for word in (*terms, right)) and len(set(right)) == len(right)
    fits = [len(word) for word in terms] == list(ranks)
    return (terms, right) if plain and fits and set(right) <= set("".join(terms)) else None


@standard("Einsum")
def einsum(rw: Rewriter) -> bool:
    """Of two operands: batches, rows, columns and what is summed are grouped and multiplied as matrices.

    Letters of one operand alone that the result lacks are summed before; of more operands, the first two are multiplied.
    """
    found = read_equation(str(rw.attrs.get("equation", "")), [len(t.shape) for t in rw.node.inputs])
    if found is None:
        return False
    terms, result = found
    pairs = [pair for word, t in zip(terms, rw.node.inputs, strict=True) for pair in zip(word, t.shape, strict=True)]
    sizes = dict(pairs)
    if any(sizes[c] != n for c, n in pairs) or any(len(set(word)) != len(word) for word in terms):
        return False
    needed = [set(result).union(*(word for other, word in enumerate(terms) if other != at)) for at in range(len(terms))]
    operands = [_summed(rw, t, word, kept) for t, word, kept in zip(rw.node.inputs, terms, needed, strict=True)]
    terms = ["".join(c for c in word if c in kept) for word, kept in zip(terms, needed, strict=True)]
    if len(terms) == 1:
        return rw.finish(rw.transpose(operands[0], [terms[0].index(c) for c in result]))
    if len(terms) > 2:
        joint = "".join(c for c in dict.fromkeys(terms[0] + terms[1]) if c in result or any(c in word for word in terms[2:]))
        equation = f"{terms[0]},{terms[1]}->{joint}"
        product = rw.create("Einsum", *operands[:2], shape=[sizes[c] for c in joint], equation=equation)
        return rw.replace("Einsum", product, *operands[2:], equation=f"{','.join([joint, *terms[2:]])}->{result}")
    first, second = terms
    batch = [c for c in result if c in first and c in second]
    summed = [c for c in first if c in second and c not in result]
    rows, columns = ([c for c in word if c not in other] for word, other in ((first, second), (second, first)))

    def matrix(x: gs.Tensor, word: str, outer: Sequence[str], inner: Sequence[str]) -> gs.Tensor:
        """An operand as batches of matrices."""
        extents = [math.prod(sizes[c] for c in letters) for letters in (outer, inner)]
        ordered = rw.transpose(x, [word.index(c) for c in (*batch, *outer, *inner)])
        return rw.reshape(ordered, [*(sizes[c] for c in batch), *extents])

    a, b = operands
    product = rw.create("MatMul", matrix(a, first, rows, summed), matrix(b, second, summed, columns))
    order = [*batch, *rows, *columns]
    whole = rw.reshape(product, [sizes[c] for c in order])
    return rw.finish(rw.transpose(whole, [order.index(c) for c in result]))


def _summed(rw: Rewriter, x: gs.Tensor, word: str, kept: Collection[str]) -> gs.Tensor:
    """The sum over the axes whose letters are not kept."""
    axes = tuple(at for at, c in enumerate(word) if c not in kept)
    return rw.create("ReduceSum", x, axes=axes, keepdims=False) if axes else x


@standard("Col2Im")
def image_of_columns(rw: Rewriter) -> bool:
    """A transposed convolution of every channel, whose columns are the inputs of its group and go to one tap each."""
    image, block = rw.value(1), rw.value(2)
    if image is None or block is None or len(image) != 2 or not rw.is_float:
        return False
    taps = math.prod(map(int, block))
    channels = rw.x.shape[1] // taps
    strides, dilations, pads = ([int(n) for n in rw.attrs.get(name, [default] * 2 * count)] for name, default, count in _COLUMNS)
    reach = [int(d) * (int(n) - 1) + 1 for d, n in zip(dilations, block, strict=True)]
    padded = [int(n) + pads[axis] + pads[2 + axis] - reach[axis] for axis, n in enumerate(image)]
    extents = [n // step + 1 for n, step in zip(padded, strides, strict=True)]
    weights = np.tile(np.eye(taps, dtype=np.float32).reshape(taps, 1, *map(int, block)), (channels, 1, 1, 1))
    window = {"strides": strides, "dilations": dilations, "pads": pads, "group": channels}
    left = [n % step for n, step in zip(padded, strides, strict=True)]
    x = rw.reshape(rw.x, [*rw.x.shape[:2], *extents])
    return rw.replace("ConvTranspose", x, rw.constant(weights), output_padding=left, kernel_shape=[int(n) for n in block], **window)


@standard("InstanceNormalization", kind="f")
def instance_norm(rw: Rewriter) -> bool:
    """Every channel of every image is a row; scale and bias are per channel."""
    values = [real_constant(t) for t in rw.node.inputs[1:3]]
    if any(v is None for v in values):
        return False
    spatial = rw.x.shape[2:]
    scale, bias = (rw.constant(np.asarray(v).reshape([-1, *(1 for _ in spatial)])) for v in values)
    rows = rw.reshape(rw.x, [*rw.x.shape[:2], math.prod(spatial)])
    ones = rw.constant(np.ones(rows.shape[2], np.float32))
    normal = rw.create("LayerNormalization", rows, ones, axis=2, epsilon=rw.attrs.get("epsilon", 1e-5))
    return rw.replace("Add", rw.create("Mul", rw.reshape(normal, rw.x.shape), scale), bias)


@standard("Trilu")
def triangle(rw: Rewriter) -> bool:
    """What lies above or below a diagonal, zeros elsewhere."""
    k = rw.value(1) if rw.input(1) is not None else np.zeros(1, np.int64)
    if k is None or k.size != 1:
        return False
    rows, columns = rw.x.shape[-2:]
    ones, at = np.ones((rows, columns), bool), max(-rows, min(columns, int(k.ravel()[0])))  # beyond these, all or none is kept
    kept = np.triu(ones, at) if rw.attrs.get("upper", 1) else np.tril(ones, at)
    return rw.replace("Where", rw.constant(kept), rw.x, rw.constant([0], rw.x.dtype))


PASS = Pass("contractions", (quantised_sum, running_sum, einsum, image_of_columns, instance_norm, triangle))
