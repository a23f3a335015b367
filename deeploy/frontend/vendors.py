"""Records of operators that the onnx package does not define: of the integer dialect, onnxruntime and QONNX."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from deeploy.frontend.predicates import Operands, UnknownOperand, at_least, axis_in, broadcasts, extents, masked, rank_is, shape_is, type_of
from deeploy.frontend.records import QuantisedForm, Record, vendor


def _one_scale(node: Operands) -> str | None:
    """QLinear operators but products: every scale and zero point is one number."""
    wrong = next((t for t in node.inputs if t is not None and type_of(t) == np.float32 and math.prod(t.shape) != 1), None)
    return None if wrong is None else f"has scales of shape {list(wrong.shape)}, where there is one"


def _zero_points(node: Operands) -> str | None:
    """MatMulNBits: zero points of all blocks, those of bytes packed by rows."""
    zero, (k, n, bits, size) = node.tensor(3), (int(node.attributes[name]) for name in ("K", "N", "bits", "block_size"))
    blocks = -(-k // size)
    needed = n * (-(-blocks * bits // 8) if type_of(zero) == np.uint8 else blocks)
    return None if math.prod(zero.shape) == needed else f"has zero points of shape {list(zero.shape)}, {needed} are needed"


def _batches(node: Operands) -> str | None:
    """Queries, keys and values are of the same batches."""
    counts = {node.shape(position)[0] for position in range(3) if node.has(position) and node.shape(position)}
    return f"has queries, keys and values of {' and '.join(map(str, sorted(counts)))} batches" if len(counts) > 1 else None


def _columns(node: Operands) -> tuple[int, ...]:
    """A bias for every column of weights."""
    if len(node.shape(1)) != 2:
        raise UnknownOperand
    return node.shape(1)[1:]


def _skipped(node: Operands) -> str | None:
    """SkipLayerNormalization and its kind: what is added is the same for all batches, or has all rows of each."""
    x, skip = node.shape(0), node.shape(1)
    return None if x[-2:] == skip[-2:] else f"adds a tensor of shape {list(skip)} to one of shape {list(x)}"


def _biases(node: Operands) -> tuple[int, ...]:
    """MultiHeadAttention: one for every column of queries, keys and values."""
    q, v = node.shape(0), node.shape(2)
    if len(q) != 3 or len(v) != 3:
        raise UnknownOperand
    return (2 * q[-1] + v[-1],)


_SCALED = (broadcasts(1, extents), broadcasts(2, extents))
_SKIPPED = (rank_is(1, 2, 3), rank_is(2, 1), broadcasts(1, extents), _skipped)
_UNIDIRECTIONAL = at_least("unidirectional", 0, 1)
DIALECT: Mapping[str, Record] = {
    "RequantShift": vendor(3, 3, "div: power; n_levels: steps; signed?: int"),
    "iSoftmax": vendor(1, 1, "n_levels: levels; coeffA coeffB coeffC: word; log2: positive", rank=1),
    "ITAMax": vendor(1, 1, "n_levels: levels", rank=1),
    "ITAPartialMax": vendor(1, 1, "n_levels: levels; group_width: positive", rank=1),
    "iLayerNorm": vendor(3, 3, "D: power; n_levels?: int", *_SCALED, rank=1),
    "iRMSNorm": vendor(2, 2, "D: power; n_levels?: int", *_SCALED, rank=1),
    "iNoNorm": vendor(3, 3, "mul: word; D: power; n_levels?: int", *_SCALED),
    "iGELU": vendor(1, 1, "b: negative; one: word"),
    "iHardswish": vendor(1, 1, "three: word; six: natural; one_over_six: word"),
    "TrueIntegerDiv": vendor(1, 1, "Delta eps eta y: wide"),
    "IntegerDiv": vendor(2, 2, "Delta eps eta: wide", like=("Div", (0, 1))),
    "IntegerMean": vendor(1, 2, "axes?: ints", like=("ReduceMean", (0,))),
}
ACTIVATIONS = "Relu|Tanh|Sigmoid|Affine|LeakyRelu|ThresholdedRelu|ScaledTanh|HardSigmoid|Elu|Softsign|Softplus"
PADDING = "NOTSET|SAME_UPPER|SAME_LOWER|VALID"
_WINDOW = f"auto_pad?: string {PADDING}; dilations? kernel_shape? pads? strides?: ints; group?: int"
_ACTIVATION = f"activation?: string {ACTIVATIONS}|Clip|HardSwish"
_ATTENTION = "num_heads: heads; do_rotary? past_present_share_buffer? unidirectional?: int; mask_filter_value? scale?: float"
_EXPANDED: Mapping[str, Record] = {
    "Attention": vendor(
        *(2, 7, f"{_ATTENTION}; qkv_hidden_sizes?: ints; rotary_embedding_dim?: int"),
        *(_UNIDIRECTIONAL, at_least("rotary_embedding_dim", 0), shape_is(2, _columns), masked(3)),
        rank=3,
    ),
    "BiasGelu": vendor(2, 2),
    "DynamicQuantizeLSTM": vendor(
        *(
            1,
            12,
            f"hidden_size: positive; activations?: strings {ACTIVATIONS}; activation_alpha? activation_beta?: floats; clip?: float; "
            "direction?: string forward|reverse|bidirectional; input_forget?: int",
        ),
        rank=3,
    ),
    "DynamicQuantizeMatMul": vendor(3, 5, rank=2),
    "EmbedLayerNormalization": vendor(1, 9, "epsilon?: float; mask_index_type?: int", at_least("mask_index_type", 0, 1), rank=2),
    "FastGelu": vendor(1, 2),
    "FusedConv": vendor(2, 4, f"{_WINDOW}; {_ACTIVATION}; activation_params?: floats", rank=3),
    "FusedGemm": vendor(
        *(2, 3, f"{_ACTIVATION}; activation_alpha? activation_beta? activation_gamma? alpha? beta?: float; transA? transB?: int"), rank=2
    ),
    "FusedMatMul": vendor(
        *(2, 2, "alpha?: float; transA? transB? transBatchA? transBatchB?: int"),
        *(at_least(name, 0, 1) for name in ("transA", "transB", "transBatchA", "transBatchB")),
        rank=2,
    ),
    "GatherBlockQuantized": vendor(
        3, 4, "bits? block_size? gather_axis? quantize_axis?: int", axis_in("gather_axis"), axis_in("quantize_axis", default=1), rank=1
    ),
    "GroupQueryAttention": vendor(
        *(
            1,
            14,
            "num_heads kv_num_heads: heads; scale? softcap?: float; do_rotary? local_window_size? rotary_interleaved? smooth_softmax?: int",
        ),
        *(shape_is(5, lambda node: node.shape(0)[:1]), shape_is(8, lambda node: node.shape(7))),
        rank=3,
    ),
    "MatMulIntegerToFloat": vendor(4, 7, rank=2),
    "MatMulNBits": vendor(3, 6, "K N: positive; bits: bits; block_size: size; accuracy_level?: int", _zero_points, rank=1),
    "MultiHeadAttention": vendor(
        *(1, 10, "num_heads: heads; mask_filter_value? scale?: float; unidirectional?: int"),
        *(_UNIDIRECTIONAL, shape_is(3, _biases), masked(4), _batches),
        rank=3,
    ),
    "QAttention": vendor(5, 9, _ATTENTION, _UNIDIRECTIONAL, shape_is(2, _columns), masked(5), rank=3),
    "RotaryEmbedding": vendor(
        *(4, 4, "interleaved? is_packed_batching? num_heads? rotary_embedding_dim?: int; scale?: float"),
        *(at_least("rotary_embedding_dim", 0), at_least("interleaved", 0, 1)),
        rank=3,
    ),
    "SkipLayerNormalization": vendor(3, 5, "epsilon?: float", *_SKIPPED, rank=1),
    "SkipSimplifiedLayerNormalization": vendor(3, 4, "epsilon?: float", *_SKIPPED, rank=1),
}
ONNXRUNTIME: Mapping[str, Record] = {
    "QLinearAdd": vendor(7, 8, _one_scale, form=QuantisedForm("Add", 2, 6)),
    "QLinearMul": vendor(7, 8, _one_scale, form=QuantisedForm("Mul", 2, 6)),
    "QGemm": vendor(6, 9, form=QuantisedForm("Gemm", 2, 7, 6)),
    "QLinearConcat": vendor(5, 2**31, "axis", _one_scale, form=QuantisedForm("Concat", None, 0)),
    "QLinearSoftmax": vendor(4, 5, "opset?: int", _one_scale, rank=1, form=QuantisedForm("Softmax"), defaults={"axis": -1}),
    "QLinearSigmoid": vendor(4, 5, _one_scale, form=QuantisedForm("Sigmoid")),
    "QLinearLeakyRelu": vendor(4, 5, _one_scale, form=QuantisedForm("LeakyRelu")),
    "QLinearAveragePool": vendor(
        4, 5, f"kernel_shape; auto_pad?: {PADDING}; channels_last?: int", _one_scale, rank=3, form=QuantisedForm("AveragePool")
    ),
    "QLinearGlobalAveragePool": vendor(4, 5, "channels_last?: int", _one_scale, rank=3, form=QuantisedForm("GlobalAveragePool")),
    "QLinearReduceMean": vendor(4, 5, "axes: ints; keepdims", _one_scale, form=QuantisedForm("ReduceMean")),
    "Gelu": vendor(1, 1, "approximate?: none|tanh", keeps_shape=True),
    "QuickGelu": vendor(1, 1, "alpha?: float", keeps_shape=True),
    **_EXPANDED,
}
ROUNDING_MODES = ("ROUND", "HALF_EVEN", "CEIL", "FLOOR", "UP", "DOWN", "ROUND_TO_ZERO", "HALF_UP", "HALF_DOWN")
_ROUNDING = "|".join((*ROUNDING_MODES, *map(str.lower, ROUNDING_MODES)))
_QUANT = vendor(4, 4, f"signed narrow: flag; rounding_mode?: {_ROUNDING}")
QONNX_RECORDS: Mapping[str, Record] = {
    "Quant": _QUANT,
    "IntQuant": _QUANT,
    "BipolarQuant": vendor(2, 2),
    "Trunc": vendor(5, 6, f"signed? narrow?: int; rounding_mode?: string {_ROUNDING}"),
    "MultiThreshold": vendor(2, 2, "out_scale? out_bias?: float; out_dtype?: string; data_layout?: string NCHW|NHWC", rank=1),
}
