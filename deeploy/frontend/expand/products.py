"""Products and layers of com.microsoft: quantised in blocks or at run time, with activations and norms that belong to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from deeploy.errors import shorten
from deeploy.frontend.expand.expansion import Expansion, Refusal, Results, declares, expands
from deeploy.frontend.lower.contractions import read_equation
from deeploy.frontend.lower.quant import repeat_parameters
from deeploy.frontend.predicates import Operands, axis_in, first_shape, has_broadcast, rank_is, type_of
from deeploy.frontend.schemas import Attributes
from deeploy.frontend.vendors import ACTIVATIONS, PADDING
from deeploy.ir.nodes import Tensor, compute, constant
from deeploy.ir.types import DType, unpack_elements

_ACTIVATED = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",), "ThresholdedRelu": ("alpha",)}  # parameters


def to_float(x: Tensor, weights: Tensor, scale: Tensor, zero: Tensor | None, weight_zero: Tensor | None) -> Tensor:
    """A product of integers, in floats: ``scale`` is that of both together."""
    if weight_zero is not None and zero is None:
        zero = constant(np.zeros((), x.dtype.numpy))
    zeros = [tensor for tensor in (zero, weight_zero) if tensor is not None]
    return x.apply("MatMulInteger", weights, *zeros).cast(DType.FLOAT32) * scale


def _add_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias


@declares("MatMulIntegerToFloat", rank=2)
def matmul_to_float(
    x: Tensor,
    weights: Tensor,
    x_scale: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """A product of integers, in floats."""
    return _add_bias(to_float(x, weights, x_scale * scale, zero, weight_zero), bias)


@declares("DynamicQuantizeMatMul", rank=2)
def dynamic_matmul(
    m: Expansion, x: Tensor, weights: Tensor, scale: Tensor, weight_zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """The left matrix is quantised by its extremes."""
    integers, step, zero = m.compute_several("DynamicQuantizeLinear", 3, x)
    return _add_bias(to_float(integers, weights, step * scale, zero, weight_zero), bias)


@expands("Einsum")
def expand_einsum(m: Expansion, *, equation: str = "") -> Tensor | None:
    """Operands that have a letter twice, which is their diagonal, or axes of extent 1 that broadcast, which are left out."""
    operands = m.inputs()
    terms, result = read_equation(equation, [x.rank for x in operands]) or ([], "")
    pairs = [pair for word, x in zip(terms, operands, strict=False) for pair in zip(word, x.shape, strict=True)]
    sizes = dict(pairs) | {letter: n for letter, n in pairs if n != 1}
    if not terms or any(n not in (1, sizes[letter]) for letter, n in pairs):
        raise Refusal(
            f"has the equation '{shorten(equation, 60)}' for {', '.join(str(list(x.shape)) for x in operands)}",
            "correct the model: as many terms as operands, a letter for every axis, one extent for every letter",
        )
    distinct = [_distinct_letters(x, word, sizes) for x, word in zip(operands, terms, strict=True)]
    words = [word for _, word in distinct]
    return None if words == terms else m.compute("Einsum", *(x for x, _ in distinct), equation=f"{','.join(words)}->{result}")


def _distinct_letters(x: Tensor, word: str, sizes: Mapping[str, int]) -> tuple[Tensor, str]:
    kept = [at for at, letter in enumerate(word) if x.shape[at] == sizes[letter]]
    x, word = x.reshape([x.shape[at] for at in kept]), "".join(word[at] for at in kept)
    while (twice := next((letter for letter in word if word.count(letter) > 1), None)) is not None:
        first, size = word.index(twice), sizes[twice]
        pair = (first, word.index(twice, first + 1))
        others = [at for at in range(len(word)) if at not in pair]
        square = x.transpose([*others, *pair]).reshape([*(x.shape[at] for at in others), size**2])
        x, word = square.cut(len(others), 0, size**2, size + 1), "".join(word[at] for at in others) + twice
    return x, word


@expands("QLinearMatMul")
def quantised_matmul(
    m: Expansion,
    x: Tensor,
    step: Tensor,
    zero: Tensor | None,
    weights: Tensor,
    weight_step: Tensor,
    weight_zero: Tensor | None,
    scale: Tensor,
    result_zero: Tensor | None = None,
) -> Tensor | None:
    """Several scales or zero points for rows of the left matrix or of the result, or for each of several matrices."""
    columns, rank = weights.shape[-1:], max(x.rank, weights.rank)
    singles = all(each is None or each.elements == 1 for each in (step, zero, scale, result_zero))
    if singles and all(each is None or each.elements == 1 or each.shape == columns for each in (weight_step, weight_zero)):
        return None

    def per_row(tensor: Tensor) -> Tensor:
        """As they broadcast over a matrix: a list has one for each row."""
        return tensor.reshape([-1, 1]) if tensor.rank == 1 and tensor.elements > 1 and rank > 1 else tensor

    real, scale = to_float(x, weights, per_row(step) * weight_step, zero, weight_zero), per_row(scale)
    dtype = DType.UINT8 if result_zero is None else result_zero.dtype
    if scale.elements == 1:
        return m.compute("QuantizeLinear", real, scale.reshape([]), *([] if result_zero is None else [result_zero.reshape([])]))
    rounded = (real / scale).apply("Round")
    moved = rounded if result_zero is None else rounded + per_row(result_zero).cast(DType.FLOAT32)
    low, high = dtype.range
    return moved.apply("Clip", min=float(low), max=float(high)).cast(dtype)


def unpack_numbers(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """``count`` numbers of some bits along the last axis of bytes, without a sign."""
    return packed[..., :count] if bits == 8 else unpack_elements(packed, DType(f"u{bits}"), count)


def _zero_points(node: Operands) -> str | None:
    """MatMulNBits: zero points of all blocks, those of bytes packed by rows."""
    zero, (k, n, bits, size) = node.tensor(3), (int(node.attributes[name]) for name in ("K", "N", "bits", "block_size"))
    blocks = -(-k // size)
    needed = n * (-(-blocks * bits // 8) if type_of(zero) == np.uint8 else blocks)
    return None if math.prod(zero.shape) == needed else f"has zero points of shape {list(zero.shape)}, {needed} are needed"


@declares(
    "MatMulNBits",
    "K N: positive; bits: bits; block_size: size; accuracy_level?: int",
    _zero_points,
    rank=1,
)
def block_matmul(
    x: Tensor,
    packed: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray | None = None,
    order: np.ndarray | None = None,
    bias: Tensor | None = None,
    *,
    N: int = 0,
    K: int = 0,
    bits: int = 4,
    block_size: int = 32,
) -> Tensor:
    """Weights of few bits, with a scale and a zero point for every block of a column.

    The constant ``g_idx`` says of every row of weights which block's scale and zero point it has. Rows are sorted by these, and with them
    the elements of x, where blocks have as many rows as without it; else the weights become floats.
    """
    columns, rows, size = N, K, block_size
    if bits not in (2, 4, 8):
        raise Refusal(f"has weights of {bits} bits, or that are no constants", "quantise to 2, 4 or 8 bits")
    blocks = -(-rows // size)
    values = unpack_numbers(packed.reshape(columns, blocks, -1), bits, size).reshape(columns, -1)[:, :rows]
    scales = scales.reshape(columns, blocks)
    if zeros is None:
        centre = np.full((columns, blocks), 2 ** (bits - 1), np.uint8)
    elif zeros.dtype == np.uint8:
        centre = unpack_numbers(zeros.reshape(columns, -1), bits, blocks)
    else:
        centre = zeros.reshape(columns, blocks)
    if order is not None:
        if order.size < rows or not 0 <= order.ravel()[:rows].min() <= order.ravel()[:rows].max() < blocks:
            raise Refusal(
                f"has a g_idx that is not of {rows} constants from 0 to {blocks - 1}", "correct the model, or quantise without it"
            )
        block_of = order.ravel()[:rows].astype(np.int64)
        places = np.argsort(block_of, kind="stable")
        if np.array_equal(block_of[places], np.arange(rows) // size):
            values, x = values[:, places], x.take(places, x.rank - 1)
        else:
            scales, centre, size = scales[:, block_of], centre[:, block_of], 1
    return _add_bias(x @ _dequantise_blocks(values.T, scales.T, centre.T, 0, size), bias)


def _dequantise_blocks(values: np.ndarray, scales: np.ndarray, zeros: np.ndarray, axis: int, size: int) -> Tensor:
    """The numbers that bytes with a scale and a zero point for every block along an axis stand for; zero points may be no integers."""
    scales, whole = scales.astype(np.float32), zeros.astype(values.dtype)
    if size == 1 or not np.array_equal(zeros, whole):
        centre, steps = (repeat_parameters(array.astype(np.float32), size, axis, values.shape) for array in (zeros, scales))
        return constant((values.astype(np.float32) - centre) * steps)
    return compute("DequantizeLinear", *map(constant, (values, scales, whole)), axis=axis, block_size=size)


@declares("GatherBlockQuantized", axis_in("gather_axis"), axis_in("quantize_axis", default=1), rank=1)
def block_gather(
    table: np.ndarray,
    places: Tensor,
    scales: np.ndarray,
    zeros: np.ndarray | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    quantize_axis: int = 1,
    gather_axis: int = 0,
) -> Tensor:
    """Entries of a table of few bits, with a scale and a zero point for every block along an axis."""
    if bits not in (2, 4, 8) or table.dtype not in (np.int8, np.uint8):
        raise Refusal("has no table of 2, 4 or 8 bits, or no scales", "correct the model, or quantise it to 2, 4 or 8 bits")
    centre = 0
    if table.dtype == np.uint8:  # packed; elements of the types of 4 bits come as int8
        table, centre = unpack_numbers(table, bits, table.shape[-1] * 8 // bits), 2 ** (bits - 1)
        zeros = None if zeros is None else unpack_numbers(zeros, bits, scales.shape[-1])
    zeros = np.full(scales.shape, centre, table.dtype) if zeros is None else zeros
    rows = _dequantise_blocks(table, scales, zeros, quantize_axis % table.ndim, block_size)
    return rows.take(places, gather_axis % table.ndim)


@declares("FusedMatMul", "transA? transB? transBatchA? transBatchB?: flag", rank=2)
def fused_matmul(
    a: Tensor, b: Tensor, *, transA: int = 0, transB: int = 0, transBatchA: int = 0, transBatchB: int = 0, alpha: float = 1.0
) -> Tensor:
    """Transposes, the product, and its scale."""

    def turned(x: Tensor, batch: int, last: int) -> Tensor:
        if batch:  # the first axis is the one before the last
            x = x.transpose([*range(1, x.rank - 1), 0, x.rank - 1])
        return x.swap_last() if last else x

    result = turned(a, transBatchA, transA) @ turned(b, transBatchB, transB)
    return result if alpha == 1.0 else result * alpha


_WINDOW = f"auto_pad?: string {PADDING}; dilations? kernel_shape? pads? strides?: ints; group?: int"
_ACTIVATION = f"activation?: string {ACTIVATIONS}|Clip|HardSwish"


def _apply_activation(m: Expansion, x: Tensor, parameters: Sequence[float]) -> Tensor:
    """What the attribute ``activation`` names, with its parameters."""
    name = str(m.attrs.get("activation", ""))
    if name == "Clip":
        return m.compute("Clip", x, *(constant(np.float32(value)) for value in (*parameters, -np.inf, np.inf)[:2]))
    if name in ("Affine", "ScaledTanh"):
        raise Refusal(f"has the activation {name}", "export the model with the activation behind it")
    return m.compute(name, x, **dict(zip(_ACTIVATED.get(name, ()), parameters, strict=False))) if name else x


def _without_activation(m: Expansion) -> Attributes:
    return {name: value for name, value in m.attrs.items() if not name.startswith("activation")}


@declares("FusedConv", _WINDOW, _ACTIVATION, rank=3)
def fused_conv(
    m: Expansion,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    summand: Tensor | None = None,
    *,
    activation_params: Sequence[float] = (),
) -> Tensor:
    """A convolution, perhaps a summand, and an activation."""
    result = m.compute(m.op.removeprefix("Fused"), x, weights, *([] if bias is None else [bias]), **_without_activation(m))
    return _apply_activation(m, _add_bias(result, summand), activation_params)


@declares(
    "FusedGemm",
    _ACTIVATION,
    "activation_alpha? activation_beta? activation_gamma? alpha? beta?: float; transA? transB?: int",
    inputs=(2, 3),
    rank=2,
)
def fused_gemm(m: Expansion) -> Tensor:
    """A product and an activation."""
    named = [f"activation_{name}" for name in ("alpha", "beta", "gamma")]
    return _apply_activation(
        m,
        m.compute("Gemm", *m.inputs(), **_without_activation(m)),
        [float(m.attrs[name]) for name in named if name in m.attrs],
    )


@declares("BiasGelu", inputs=(2, 2))
@declares("FastGelu")
def biased_gelu(m: Expansion, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu of a sum; the fast one is an approximation."""
    return m.compute("Gelu", _add_bias(x, bias), **({"approximate": "tanh"} if m.op == "FastGelu" else {}))


def _build_norm(m: Expansion, x: Tensor, scale: Tensor, offset: Tensor | None, epsilon: float) -> Tensor:
    op = "RMSNormalization" if m.op == "SkipSimplifiedLayerNormalization" else "LayerNormalization"
    return m.compute(op, x, scale, *([] if offset is None else [offset]), axis=-1, epsilon=epsilon)


def _expand_skip_norm(node: Operands) -> str | None:
    """SkipLayerNormalization and its kind: what is added is the same for all batches, or has all rows of each."""
    x, skip = node.shape(0), node.shape(1)
    return None if x[-2:] == skip[-2:] else f"adds a tensor of shape {list(skip)} to one of shape {list(x)}"


_SKIPPED = (rank_is(1, 2, 3), rank_is(2, 1), has_broadcast(1, first_shape), _expand_skip_norm)


@declares("SkipLayerNormalization", *_SKIPPED, rank=1)
def skip_norm(
    m: Expansion,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    offset: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> Results:
    """The norm of a sum, which may be an output, too."""
    total = _add_bias(x + skip, bias)
    return [_build_norm(m, total, scale, offset, epsilon), None, None, total]


@declares("SkipSimplifiedLayerNormalization", *_SKIPPED, rank=1)
def skip_simple_norm(m: Expansion, x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-5) -> Results:
    """A sum of two tensors and the root-mean-square norm of its rows."""
    return skip_norm(m, x, skip, scale, None, bias, epsilon=epsilon)


@declares(
    "EmbedLayerNormalization",
    "mask_index_type?: flag",
    inputs=(1, 9),
    rank=2,
)
def embedded_norm(
    m: Expansion,
    words: Tensor,
    segments: Tensor | None,
    word_table: Tensor,
    place_table: Tensor,
    segment_table: Tensor | None,
    scale: Tensor,
    offset: Tensor | None,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> Results:
    """Rows of up to three tables, added and normalised; the number of ones in every mask."""
    batch, length = words.shape
    total = word_table.take(words) + (place_table.cut(0, 0, length) if positions is None else place_table.take(positions))
    if segments is not None and segment_table is not None:
        total = total + segment_table.take(segments)
    count = constant(np.zeros(batch, np.int32)) if mask is None else mask.cast(DType.INT32).reduce("Sum", 1, keepdims=0)
    return [_build_norm(m, total, scale, offset, epsilon), count if m.wants(1) else None, total if m.wants(2) else None]
