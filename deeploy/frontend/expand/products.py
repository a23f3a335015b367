"""Products and layers of com.microsoft: quantised in blocks or at run time, with activations and norms that belong to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from deeploy.errors import shorten
from deeploy.frontend.expand.builder import Builder, Operand
from deeploy.frontend.lower.contractions import read_equation
from deeploy.frontend.lower.quant import repeated
from deeploy.graph.types import DType, unpack


def to_float(b: Builder, x: Operand, weights: Operand, scale: Operand, zero: Operand | None, weight_zero: Operand | None) -> Operand:
    """A product of integers, in floats: ``scale`` is that of both together."""
    sums = b.op("MatMulInteger", x, weights, zero, weight_zero)
    return sums.cast(np.float32) * scale


def matmul_to_float(b: Builder) -> Operand:
    """MatMulIntegerToFloat."""
    x, weights, x_scale, scale = (b.needed(position) for position in range(4))
    return _biased(to_float(b, x, weights, x_scale * scale, b.input(4), b.input(5)), b.input(6))


def _biased(x: Operand, bias: Operand | None) -> Operand:
    return x if bias is None else x + bias


def dynamic_matmul(b: Builder) -> Operand:
    """DynamicQuantizeMatMul: the left matrix is quantised by its extremes."""
    x, step, zero = b.several("DynamicQuantizeLinear", 3, b.needed(0))
    return _biased(to_float(b, x, b.needed(1), step * b.needed(2), zero, b.input(3)), b.input(4))


def einsum(b: Builder) -> Operand | None:
    """Einsum whose operands have a letter twice, which is their diagonal, or axes of extent 1 that broadcast, which are left out."""
    operands = [b.needed(position) for position in range(len(b.node.input))]
    terms, result = read_equation(b.text("equation", ""), [x.rank for x in operands]) or ([], "")
    pairs = [pair for word, x in zip(terms, operands, strict=False) for pair in zip(word, x.shape, strict=True)]
    sizes = dict(pairs) | {letter: n for letter, n in pairs if n != 1}
    if not terms or any(n not in (1, sizes[letter]) for letter, n in pairs):
        told = f"has the equation '{shorten(b.text('equation', ''), 60)}' for {', '.join(str(list(x.shape)) for x in operands)}"
        raise b.refused(told, "correct the model: as many terms as operands, a letter for every axis, one extent for every letter")
    distinct = [_distinct(x, word, sizes) for x, word in zip(operands, terms, strict=True)]
    words = [word for _, word in distinct]
    if words == terms:
        return None
    return b.op("Einsum", *(x for x, _ in distinct), equation=f"{','.join(words)}->{result}")


def _distinct(x: Operand, word: str, sizes: Mapping[str, int]) -> tuple[Operand, str]:
    kept = [at for at, letter in enumerate(word) if x.shape[at] == sizes[letter]]
    x, word = x.reshape(*(x.shape[at] for at in kept)), "".join(word[at] for at in kept)
    while (twice := next((letter for letter in word if word.count(letter) > 1), None)) is not None:
        first, size = word.index(twice), sizes[twice]
        pair = (first, word.index(twice, first + 1))
        others = [at for at in range(len(word)) if at not in pair]
        square = x.transpose(*others, *pair).reshape(*(x.shape[at] for at in others), size**2)
        x, word = square.slice(len(others), 0, size**2, size + 1), "".join(word[at] for at in others) + twice
    return x, word


def _per_row(x: Operand | None, rank: int) -> Operand | None:
    """Scales or zero points of rows as they broadcast over a matrix: a list has one for each row."""
    return x.reshape(-1, 1) if x is not None and x.rank == 1 and x.size > 1 and rank > 1 else x


def quantised_matmul(b: Builder) -> Operand | None:
    """QLinearMatMul with several scales or zero points for rows of the left matrix or of the result, or for each of several matrices."""
    x, weights = b.needed(0), b.needed(3)
    columns, rank = weights.shape[-1:], max(x.rank, weights.rank)
    if all(
        each is None or each.size == 1 or (at in (4, 5) and each.shape == columns) for at in (1, 2, 4, 5, 6, 7) for each in [b.input(at)]
    ):
        return None
    steps, scale, result_zero = (_per_row(b.input(at), rank) for at in (1, 6, 7))
    if steps is None or scale is None:
        return None
    real = to_float(b, x, weights, steps * b.needed(4), b.input(2), b.input(5))
    dtype = np.dtype(np.uint8) if result_zero is None else result_zero.dtype
    if scale.size == 1:
        return b.op("QuantizeLinear", real, scale.reshape(), *([] if result_zero is None else [result_zero.reshape()]))
    rounded = (real / scale).apply("Round")
    moved = rounded if result_zero is None else rounded + result_zero.cast(np.float32)
    return b.op("Clip", moved, *(b.operand(np.float32(end)) for end in (np.iinfo(dtype).min, np.iinfo(dtype).max))).cast(dtype)


def unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """``count`` numbers of some bits along the last axis of bytes, without a sign."""
    return packed[..., :count] if bits == 8 else unpack(packed, DType(f"u{bits}"), count)


def block_matmul(b: Builder) -> Operand:
    """MatMulNBits: weights of few bits, with a scale and a zero point for every block of a column.

    The constant ``g_idx`` says of every row of weights which block's scale and zero point it has. Rows are sorted by these, and with them
    the elements of x, where blocks have as many rows as without it; else the weights become floats.
    """
    x, order = b.needed(0), b.constant_input(4)
    columns, rows, bits, size = (b.integer(name, default) for name, default in (("N", 0), ("K", 0), ("bits", 4), ("block_size", 32)))
    packed, scales = b.constant_input(1), b.constant_input(2)
    if packed is None or scales is None or bits not in (2, 4, 8):
        raise b.refused(f"has weights of {bits} bits, or that are no constants", "quantise to 2, 4 or 8 bits")
    blocks = -(-rows // size)
    values = unpacked(packed.reshape(columns, blocks, -1), bits, size).reshape(columns, -1)[:, :rows]
    scales = scales.reshape(columns, blocks)
    zeros = b.constant_input(3)
    if zeros is None:
        centre = np.full((columns, blocks), 2 ** (bits - 1), np.uint8)
    elif zeros.dtype == np.uint8:
        centre = unpacked(zeros.reshape(columns, -1), bits, blocks)
    else:
        centre = zeros.reshape(columns, blocks)
    if b.input(4) is not None:
        if order is None or order.size < rows or not 0 <= order.ravel()[:rows].min() <= order.ravel()[:rows].max() < blocks:
            raise b.refused(
                f"has a g_idx that is not of {rows} constants from 0 to {blocks - 1}", "correct the model, or quantise without it"
            )
        block_of = order.ravel()[:rows].astype(np.int64)
        places = np.argsort(block_of, kind="stable")
        if np.array_equal(block_of[places], np.arange(rows) // size):
            values, x = values[:, places], x if np.array_equal(places, np.arange(rows)) else x.take(places, x.rank - 1)
        else:
            scales, centre, size = scales[:, block_of], centre[:, block_of], 1
    return _biased(x @ _blocks(b, values.T, scales.T, centre.T, 0, size), b.input(5))


def _blocks(b: Builder, values: np.ndarray, scales: np.ndarray, zeros: np.ndarray, axis: int, size: int) -> Operand:
    """The numbers that bytes with a scale and a zero point for every block along an axis stand for; zero points may be no integers."""
    scales, whole = scales.astype(np.float32), zeros.astype(values.dtype)
    if size == 1 or not np.array_equal(zeros, whole):
        centre, steps = (repeated(array.astype(np.float32), size, axis, values.shape) for array in (zeros, scales))
        return b.operand((values.astype(np.float32) - centre) * steps)
    return b.op("DequantizeLinear", *map(b.operand, (values, scales, whole)), axis=axis, block_size=size)


def block_gather(b: Builder) -> Operand:
    """GatherBlockQuantized: entries of a table of few bits, with a scale and a zero point for every block along an axis."""
    table, scales, zeros = (b.constant_input(position) for position in (0, 2, 3))
    bits, size = b.integer("bits", 4), b.integer("block_size", 128)
    if table is None or scales is None or bits not in (2, 4, 8) or table.dtype not in (np.int8, np.uint8):
        raise b.refused("has no table of 2, 4 or 8 bits, or no scales", "correct the model, or quantise it to 2, 4 or 8 bits")
    axis, along = (b.integer(name, default) % table.ndim for name, default in (("quantize_axis", 1), ("gather_axis", 0)))
    centre = 0
    if table.dtype == np.uint8:  # packed; elements of the types of 4 bits come as int8
        table, centre = unpacked(table, bits, table.shape[-1] * 8 // bits), 2 ** (bits - 1)
        zeros = None if zeros is None else unpacked(zeros, bits, scales.shape[-1])
    zeros = np.full(scales.shape, centre, table.dtype) if zeros is None else zeros
    return _blocks(b, table, scales, zeros, axis, size).take(b.needed(1), along)


def fused_matmul(b: Builder) -> Operand:
    """FusedMatMul: transposes, the product, and its scale."""
    operands = []
    for position, side in enumerate("AB"):
        x = b.needed(position)
        if b.integer(f"transBatch{side}", 0):  # the first axis is the one before the last
            x = x.transpose(*range(1, x.rank - 1), 0, x.rank - 1)
        operands.append(x.swap_last() if b.integer(f"trans{side}", 0) else x)
    result, alpha = operands[0] @ operands[1], b.number("alpha", 1.0)
    return result if alpha == 1.0 else result * alpha


def _activated(b: Builder, x: Operand, parameters: list[float]) -> Operand:
    """What the attribute ``activation`` names, with its parameters."""
    name = b.text("activation", "")
    if not name:
        return x
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",), "ThresholdedRelu": ("alpha",)}.get(name, ())
    if name == "Clip":
        bounds = [b.operand(np.float32(value)) for value in (*parameters, -np.inf, np.inf)[:2]]
        return b.op("Clip", x, *bounds)
    if name in ("Affine", "ScaledTanh"):
        raise b.refused(f"has the activation {name}", "export the model with the activation behind it")
    return x.apply(name, **dict(zip(names, parameters, strict=False)))


def fused_conv(b: Builder) -> Operand:
    """FusedConv: a convolution, perhaps a summand, and an activation."""
    own = {name: value for name, value in b.attributes.items() if not name.startswith("activation")}
    result = b.op("Conv", b.needed(0), b.needed(1), *([b.input(2)] if b.input(2) is not None else []), **own)
    return _activated(b, _biased(result, b.input(3)), [float(value) for value in b.attributes.get("activation_params", [])])


def fused_gemm(b: Builder) -> Operand:
    """FusedGemm: a product and an activation."""
    own = {name: value for name, value in b.attributes.items() if not name.startswith("activation")}
    given = (b.input(position) for position in range(3))
    result = b.op("Gemm", *(each for each in given if each is not None), **own)
    named = ("alpha", "beta", "gamma")
    return _activated(b, result, [float(b.attributes[f"activation_{name}"]) for name in named if f"activation_{name}" in b.attributes])


def biased_gelu(b: Builder) -> Operand:
    """BiasGelu, FastGelu."""
    x = _biased(b.needed(0), b.input(1))
    return x.apply("Gelu", approximate="tanh") if b.node.op_type == "FastGelu" else x.apply("Gelu")


def _norm(b: Builder, x: Operand, scale: Operand, offset: Operand | None, default: float) -> Operand:
    op = "LayerNormalization" if b.node.op_type in ("SkipLayerNormalization", "EmbedLayerNormalization") else "RMSNormalization"
    given = [scale] if offset is None else [scale, offset]
    return b.op(op, x, *given, axis=-1, epsilon=b.number("epsilon", default))


def skip_norm(b: Builder) -> list[Operand | None]:
    """SkipLayerNormalization, SkipSimplifiedLayerNormalization: the norm of a sum, which may be an output, too."""
    centred = b.node.op_type == "SkipLayerNormalization"
    total = _biased(b.needed(0) + b.needed(1), b.input(4 if centred else 3))
    norm = _norm(b, total, b.needed(2), b.input(3) if centred else None, 1e-12 if centred else 1e-5)
    return [norm, None, None, total]


def embedded_norm(b: Builder) -> list[Operand | None]:
    """EmbedLayerNormalization: rows of up to three tables, added and normalised; the number of ones in every mask."""
    words, segments, positions = b.needed(0), b.input(1), b.input(8)
    batch, length = words.shape
    places = b.needed(3).slice(0, 0, length) if positions is None else b.needed(3).take(positions)
    total = b.needed(2).take(words) + places
    if segments is not None:
        total = total + b.needed(4).take(segments)
    mask = b.input(7)
    if not b.wants(1):
        count = None
    elif mask is None:
        count = b.operand(np.zeros(batch, np.int32))
    else:
        count = mask.cast(np.int32).reduce("Sum", [1], keep=False)
    return [_norm(b, total, b.needed(5), b.input(6), 1e-12), count, total if b.wants(2) else None]


PRODUCTS: Mapping[str, Callable[[Builder], Operand | list[Operand | None]]] = {
    **dict.fromkeys(("BiasGelu", "FastGelu"), biased_gelu),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), skip_norm),
    "DynamicQuantizeMatMul": dynamic_matmul,
    "EmbedLayerNormalization": embedded_norm,
    "FusedConv": fused_conv,
    "FusedGemm": fused_gemm,
    "FusedMatMul": fused_matmul,
    "GatherBlockQuantized": block_gather,
    "MatMulIntegerToFloat": matmul_to_float,
    "MatMulNBits": block_matmul,
}
